"""Certificates of endpoints, in the directory that nodes read: whole pairs, keys readable by their owner alone.

Beside each pair lies ``NAME.hosts``, a host to a line: the pair is shown for these and for no others, whatever its
certificate says of itself. So no tenant's certificate is ever shown to clients of another.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from enmasse.control.ports import ServedCertificate, UnusableCertificateError
from enmasse.drivers.authority import Authority
from enmasse.drivers.data_directory import replace_file
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path


class EndpointCertificates:
    """The certificates of endpoints.

    Args:
        directory: the directory that nodes are given with ``--tls``; the platform's authority lies in it too.
        wildcard: certificate and key of the installation's own; None: there is none.
        now: gives the present.
    """

    def __init__(self, directory: Path, wildcard: tuple[Path, Path] | None, now: Callable[[], dt.datetime]) -> None:
        self._directory = directory
        self._wildcard = wildcard
        self._now = now

    def keep_issued(self, file: str, hosts: Sequence[str]) -> ServedCertificate:
        """Provide a certificate by the platform's authority for hosts, renewed when a third of its life is left."""
        authority = Authority(self._directory, self._now())
        path = self._directory / f"{file}.crt"
        vouches = authority.certificate().decode()
        try:
            authority.keep_server_certificate(file, hosts)
            if self._is_foreign(path, vouches):
                path.unlink()  # the endpoint had one of its own before
                authority.keep_server_certificate(file, hosts)
            self._write_hosts(file, hosts)
            text = path.read_text(encoding="ascii")
        except (OSError, ValueError, ConfigError) as error:
            raise UnusableCertificateError("NotWritten", f"the certificate cannot be kept: {error}") from None
        return ServedCertificate(text, vouches, self._days_left(_read(text)[0]))

    def keep_given(self, file: str, hosts: Sequence[str], certificate: str, key: str) -> ServedCertificate:
        """Provide a given certificate for hosts; both may be PEM, or that in base64."""
        pem, secret = _pem(certificate, "certificate"), _pem(key, "key")
        chain = _read(pem)
        first = chain[0]
        try:
            own = serialization.load_pem_private_key(secret.encode(), None).public_key()
        except (ValueError, TypeError):
            # The library's words might hold some of it.
            raise UnusableCertificateError(
                "Unreadable", "the key cannot be read: a private key in PEM, without a password, is expected"
            ) from None
        form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        if own.public_bytes(*form) != first.public_key().public_bytes(*form):
            raise UnusableCertificateError("KeyMismatch", "the key is not that of the certificate")
        if first.not_valid_after_utc <= self._now():
            raise UnusableCertificateError(
                "Expired", f"the certificate ended at {first.not_valid_after_utc:%Y-%m-%d}"
            )
        if first.not_valid_before_utc > self._now():
            raise UnusableCertificateError(
                "NotYetValid", f"the certificate begins at {first.not_valid_before_utc:%Y-%m-%d}"
            )
        covered = [host for host in hosts if _covers(first, host)]
        if not covered:
            raise UnusableCertificateError(
                "HostNotCovered", f"the certificate is for none of the endpoint's hosts: {', '.join(hosts)}"
            )
        try:
            self._replace(f"{file}.key", secret.encode(), 0o600)
            self._replace(f"{file}.crt", pem.encode(), 0o644)
            self._write_hosts(file, covered)
        except (OSError, ConfigError) as error:
            raise UnusableCertificateError("NotWritten", f"the certificate cannot be kept: {error}") from None
        vouches = "".join(
            item.public_bytes(serialization.Encoding.PEM).decode() for item in chain if item.issuer == item.subject
        )
        return ServedCertificate(pem, vouches, self._days_left(first))

    def keep_wildcard(self, file: str, hosts: Sequence[str]) -> ServedCertificate:
        """Provide the installation's own certificate for hosts."""
        if self._wildcard is None:
            raise UnusableCertificateError(
                "NoWildcard", "the installation has no wildcard certificate: its operator gives it one at the start"
            )
        try:
            certificate, key = (path.read_text(encoding="ascii") for path in self._wildcard)
        except (OSError, ValueError) as error:
            raise UnusableCertificateError(
                "Unreadable", f"the wildcard certificate cannot be read: {error}"
            ) from None
        return self.keep_given(file, hosts, certificate, key)

    def given_days_left(self) -> dict[str, int]:
        """Return the days left of the operator's own certificates, by file."""
        found = {}
        vouches = Authority(self._directory, self._now()).certificate().decode()
        for path in self._directory.glob("*.crt"):
            if path.name == "clients-ca.crt" or path.with_suffix(".hosts").exists():
                continue
            try:
                if self._is_foreign(path, vouches):
                    found[path.name] = self._days_left(x509.load_pem_x509_certificate(path.read_bytes()))
            except (OSError, ValueError):
                continue  # its own check reports that
        return found

    def withdraw(self, prefix: str, besides: Collection[str]) -> None:
        """Remove the certificates whose files begin with a prefix, except some."""
        for path in self._directory.glob(f"{prefix}*"):
            if path.stem not in besides and path.suffix in (".crt", ".key", ".hosts"):
                path.unlink(missing_ok=True)

    def _is_foreign(self, path: Path, vouches: str) -> bool:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        return certificate.issuer != x509.load_pem_x509_certificate(vouches.encode()).subject

    def _write_hosts(self, file: str, hosts: Sequence[str]) -> None:
        self._replace(f"{file}.hosts", "".join(f"{host}\n" for host in hosts).encode(), 0o644)

    def _replace(self, name: str, data: bytes, mode: int) -> None:
        path = self._directory / name
        if not path.exists() or path.read_bytes() != data:
            replace_file(path, data, mode)

    def _days_left(self, certificate: x509.Certificate) -> int:
        return (certificate.not_valid_after_utc - self._now()).days


def _pem(text: str, what: str) -> str:
    if not text:
        raise UnusableCertificateError("Missing", f"the {what} is missing")
    if "-----BEGIN" in text:
        return text
    try:
        return base64.b64decode(text, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise UnusableCertificateError("Unreadable", f"the {what} is neither PEM nor PEM in base64") from None


def _read(pem: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem.encode())
    except ValueError:
        raise UnusableCertificateError("Unreadable", "the certificate cannot be read: PEM is expected") from None


def _covers(certificate: x509.Certificate, host: str) -> bool:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    found = {name.lower() for name in names.get_values_for_type(x509.DNSName)}
    return host in found or f"*.{host.partition('.')[2]}" in found
