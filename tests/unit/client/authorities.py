"""Certificates for tests: authorities made on the spot, and what they sign."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


class Authority:
    """Signs; its own certificate is ``ca_file``."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.ca_file = directory / f"{name}.crt"
        basic = x509.BasicConstraints(ca=True, path_length=None)
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        own = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        builder = self._builder(self.name, self.key.public_key(), -DAY, 10 * DAY)
        builder = builder.add_extension(basic, critical=True).add_extension(usage, critical=True)
        certificate = builder.add_extension(own, critical=False).sign(self.key, hashes.SHA256())
        self.ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, begins: dt.timedelta, ends: dt.timedelta
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
        )

    def sign(
        self, name: str, *, begins: dt.timedelta = -DAY, ends: dt.timedelta = DAY, password: str | None = None
    ) -> Path:
        """A PEM file with a certificate for a host name or IP address, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            alternative = x509.DNSName(name)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        certificate = (
            self._builder(subject, key.public_key(), begins, ends)
            .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        path = self.directory / f"{name}-{certificate.serial_number}.pem"
        locked: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            locked = serialization.BestAvailableEncryption(password.encode())
        path.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
        )
        return path

    def server(self, name: str, *, begins: dt.timedelta = -DAY, ends: dt.timedelta = DAY) -> ssl.SSLContext:
        """A server's context with a certificate for a host name or IP address."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.sign(name, begins=begins, ends=ends))
        return context
