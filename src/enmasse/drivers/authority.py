"""The certificate authority of an installation: it issues certificates for servers, clients and endpoints.

Its files lie in one directory, the one that a node is given with ``--tls``:

- ``authority/ca.crt``, ``authority/ca.key``: the authority itself;
- ``default.crt``, ``default.key``: the certificate that a node presents, unless an operator replaces it;
- ``clients-ca.crt``: the authorities that clients' certificates may come from; at first this one alone.

Keys are readable by their owner alone. Files are replaced whole, the key before the certificate. The certificate of
an installation on this machine is made at its first start and renewed in time.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from enmasse.drivers.data_directory import replace_file
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

AUTHORITY_DAYS = 3650
"""Clients keep the authority's certificate, so it changes as rarely as possible."""

SERVER_DAYS = 365
"""Browsers and mobile systems refuse certificates that are valid for much longer."""

CLIENT_DAYS = 365

MAX_COMMON_NAME = 64
"""A longer common name is against the standard [RFC 5280 A.1]."""

Key = ec.EllipticCurvePrivateKey


class Issued:
    """A certificate and its key, both as PEM."""

    def __init__(self, certificate: bytes, key: bytes) -> None:
        self.certificate = certificate
        self.key = key

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Write ``NAME.crt`` and ``NAME.key``; return the two paths.

        Raises:
            ConfigError: they cannot be written there.
        """
        paths = directory / f"{name}.crt", directory / f"{name}.key"
        replace_file(paths[1], self.key, 0o600)
        replace_file(paths[0], self.certificate, 0o644)
        return paths


class Authority:
    """The authority of one directory; created there at its first use.

    Args:
        directory: the directory of its files.
        now: the present time; by default the clock's.
    """

    def __init__(self, directory: Path, now: dt.datetime | None = None) -> None:
        self.directory = directory
        self._now = now or dt.datetime.now(dt.UTC)

    @property
    def path(self) -> Path:
        """The path of the authority's certificate."""
        return self.directory / "authority" / "ca.crt"

    def certificate(self) -> bytes:
        """Return the authority's certificate as PEM, which clients need to trust us."""
        return self._load()[0].public_bytes(serialization.Encoding.PEM)

    def keep_server_certificate(self, name: str, hosts: Sequence[str], directory: Path | None = None) -> bool:
        """Create the server's certificate, or renew it if it ends soon or lacks a host.

        A certificate that another authority has issued is left alone.

        Args:
            name: the name of the files.
            hosts: the hosts that it is for; the first is the common name.
            directory: the directory of the files; by default the authority's, for nodes.

        Returns:
            Whether files have changed.

        Raises:
            ConfigError: files there cannot be read or written.
        """
        authority, key = self._load()
        clients = self.directory / "clients-ca.crt"
        if not clients.exists():
            replace_file(clients, authority.public_bytes(serialization.Encoding.PEM), 0o644)
        path = (directory or self.directory) / f"{name}.crt"
        if path.exists():
            present = _read_certificate(path)
            if not _is_issued_by(present, authority):
                return False
            if not self._ends_soon(present) and set(hosts) <= _hosts_of(present):
                return False
        names: list[x509.GeneralName] = [_general_name(host) for host in hosts]
        issued = self._issue(authority, key, hosts[0], names, SERVER_DAYS, ExtendedKeyUsageOID.SERVER_AUTH)
        issued.write(path.parent, name)
        return True

    def issue_client(self, name: str, days: int = CLIENT_DAYS, groups: Sequence[str] = ()) -> Issued:
        """Issue a client certificate for ``name``, which becomes the common name.

        Args:
            name: the name of the client.
            days: its lifetime.
            groups: become organisations; with one at least it is good for the API too.

        Raises:
            ConfigError: a name cannot stand in a certificate.
        """
        for text in (name, *groups):
            if not text.strip() or len(text) > MAX_COMMON_NAME or not text.isprintable():
                raise ConfigError(
                    f"{text!r} is no name for a certificate: 1 to {MAX_COMMON_NAME} characters are expected"
                )
        authority, key = self._load()
        is_mail = name.isascii() and name.count("@") == 1
        alternative: list[x509.GeneralName] = [x509.RFC822Name(name)] if is_mail else []
        return self._issue(authority, key, name, alternative, days, ExtendedKeyUsageOID.CLIENT_AUTH, groups)

    def keep_client_certificate(self, name: str, directory: Path, file: str) -> tuple[Path, Path]:
        """Create a certificate for a client of our own, or renew it when a third of its life is left.

        Args:
            name: the name of the client.
            directory: the directory of the files.
            file: their name.

        Returns:
            Where certificate and key are.

        Raises:
            ConfigError: files there cannot be read or written.
        """
        path = directory / f"{file}.crt"
        if path.exists():
            present = _read_certificate(path)
            if _is_issued_by(present, self._load()[0]) and not self._ends_soon(present):
                return path, path.with_suffix(".key")
        return self.issue_client(name).write(directory, file)

    def issue_node(self, hosts: Sequence[str], directory: Path) -> list[Path]:
        """Certify a node on another machine for its management, in the form that ``--management-tls`` takes.

        Args:
            hosts: the hosts that the control process connects to.
            directory: the directory to which the files are written.

        Raises:
            ConfigError: they cannot be written there.
        """
        authority, key = self._load()
        names = [_general_name(host) for host in hosts]
        issued = self._issue(authority, key, hosts[0], names, SERVER_DAYS, ExtendedKeyUsageOID.SERVER_AUTH)
        clients = directory / "clients-ca.crt"
        replace_file(clients, authority.public_bytes(serialization.Encoding.PEM), 0o644)
        return [*issued.write(directory, "default"), clients]

    def _load(self) -> tuple[x509.Certificate, Key]:
        """Return certificate and key of the authority, created or renewed where necessary."""
        key_path = self.path.with_suffix(".key")
        if not key_path.exists():
            key_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            key = ec.generate_private_key(ec.SECP256R1())
            replace_file(key_path, _key_pem(key), 0o600)
        else:
            key = _read_key(key_path)
        if self.path.exists():
            certificate = _read_certificate(self.path)
            if not self._ends_soon(certificate):
                return certificate, key
        # With the same key and name, what the former certificate vouches for is vouched for by this one too.
        certificate = self._certify_itself(key)
        replace_file(self.path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        return certificate, key

    def _certify_itself(self, key: Key) -> x509.Certificate:
        # Installations have names of their own, or a client that trusts two could not tell them apart.
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "EnMasse"),
                x509.NameAttribute(NameOID.COMMON_NAME, f"EnMasse authority {identifier.digest.hex()[:12]}"),
            ]
        )
        return (
            self._begin(name, name, key.public_key(), AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )

    def _issue(
        self,
        authority: x509.Certificate,
        authority_key: Key,
        common_name: str,
        alternative: list[x509.GeneralName],
        days: int,
        purpose: x509.ObjectIdentifier,
        groups: Sequence[str] = (),
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        named = x509.NameAttribute(NameOID.COMMON_NAME, common_name[:MAX_COMMON_NAME])
        subject = x509.Name([*organisations, named])
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
        builder = (
            self._begin(subject, authority.subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(issuer_key, critical=False)
        )
        if alternative:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternative), critical=False)
        certificate = builder.sign(authority_key, hashes.SHA256())
        return Issued(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))

    def _begin(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
    ) -> x509.CertificateBuilder:
        # The hour before allows for clients whose clock is slow.
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - dt.timedelta(hours=1))
            .not_valid_after(self._now + dt.timedelta(days=days))
        )

    def _ends_soon(self, certificate: x509.Certificate) -> bool:
        """Return whether less than a third of its life is left."""
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        return end - self._now < (end - begin) / 3


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _hosts_of(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    return addresses | set(names.get_values_for_type(x509.DNSName))


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _key_pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as a certificate: {error}; put a sound one there") from None


def _read_key(path: Path) -> Key:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path} cannot be read as a private key: {error}; put the right one there") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path} holds another kind of key than was made here; put the right one there")
    return key


_NAME = "default"
_DAY_S = 86_400.0


def keep_certificate(tls: Path, host: str) -> None:
    """Create the certificate of this machine, or renew it when it ends soon or this machine has a new name.

    Args:
        tls: the directory of certificates.
        host: the interface that is served.

    Raises:
        ConfigError: the certificate there cannot be used, or nothing can be written.
    """
    own = socket.gethostname()
    # The first is the common name too, by which Qpid Proton knows a server that it reached by its IP address.
    hosts = [host, "localhost", "127.0.0.1", "::1", *([own] if own.isascii() and own else [])]
    Authority(tls).keep_server_certificate(_NAME, tuple(dict.fromkeys(hosts)))


async def keep_renewing(tls: Path, host: str, report: Callable[[str], None]) -> None:
    """Renew the certificate in time, checking once a day, until cancelled; nodes detect the change by themselves."""
    while True:
        await asyncio.sleep(_DAY_S)
        try:
            keep_certificate(tls, host)
        except ConfigError as error:
            report(f"the certificate cannot be kept: {error}")
