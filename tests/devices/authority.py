"""Authorities of devices' certificates, as tests make them."""

from __future__ import annotations

import ssl
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from enmasse.identity.authorities import AuthorityId

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime.now(UTC)


@dataclass(slots=True)
class Authority:
    """An authority of a tenant, or one below it.

    Attributes:
        folder: for what it issues.
        key: its own.
        certificate: the same.
        above: certificates between it and its root, its own first.
    """

    folder: Path
    key: Any
    certificate: x509.Certificate
    above: tuple[x509.Certificate, ...] = ()

    @classmethod
    def new(cls, folder: Path, name: str | x509.Name, *, key: Any = None) -> Authority:
        own = key or ec.generate_private_key(ec.SECP256R1())
        called = name_of(name)
        return cls(folder, own, _signed(called, called, own.public_key(), own, is_authority=True))

    @classmethod
    def read(cls, folder: Path, file: Path) -> Authority:
        """Return one whose key nobody has here."""
        return cls(folder, None, x509.load_pem_x509_certificate(file.read_bytes()))

    def below(self, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        made = _signed(name_of(name), self.certificate.subject, key.public_key(), self.key, is_authority=True)
        return Authority(self.folder, key, made, (made, *self.above))

    def cross(self, other: Authority) -> Authority:
        """Return another one, certified by this one, too."""
        subject, public = other.certificate.subject, other.certificate.public_key()
        made = _signed(subject, self.certificate.subject, public, self.key, is_authority=True)
        return Authority(self.folder, other.key, made, (made, *self.above))

    @property
    def anchor(self) -> dict[str, Any]:
        return {"cert": b64encode(self.certificate.public_bytes(Encoding.DER)).decode()}

    @property
    def key_digest(self) -> str:
        return AuthorityId.of_certificate(self.certificate).key

    def issue(self, name: str, *, days: int = 10, serial: int | None = None) -> ssl.SSLContext:
        """Return what a client with a certificate of this name connects with."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.post_handshake_auth = True
        context.load_cert_chain(self.pem(name, days=days, serial=serial))
        return context

    def pem(self, name: str, *, days: int = 10, serial: int | None = None) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject
        made = _signed(name_of(name), issuer, key.public_key(), self.key, days=days, serial=serial)
        file = self.folder / f"{name}-{days}-{made.serial_number}-{made.fingerprint(hashes.SHA256()).hex()[:8]}.pem"
        chain = b"".join(each.public_bytes(Encoding.PEM) for each in (made, *self.above))
        file.write_bytes(chain + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return file


def name_of(name: str | x509.Name) -> x509.Name:
    """Return the name of somebody of tests, or the one that is given."""
    if isinstance(name, x509.Name):
        return name
    return x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, name), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Grün & Co")]
    )


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: Any,
    by: Any,
    *,
    days: int = 10,
    serial: int | None = None,
    is_authority: bool = False,
) -> x509.Certificate:
    end = NOW + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial or x509.random_serial_number())
        .not_valid_before(end - timedelta(days=20))
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .sign(by, hashes.SHA256())
    )
