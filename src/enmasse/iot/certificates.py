"""Reads X.509 certificates and public keys for the registry."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key
from cryptography.x509 import Certificate, load_der_x509_certificate
from cryptography.x509.oid import NameOID

from enmasse.iot.documents import RegistryError

if TYPE_CHECKING:
    from datetime import datetime

_ALGORITHMS: Final[tuple[tuple[type, str], ...]] = (
    (RSAPublicKey, "RSA"),
    (EllipticCurvePublicKey, "EC"),
    (Ed25519PublicKey, "EdDSA"),
)
_OF_SUBJECT: Final = {
    "{{subject-cn}}": NameOID.COMMON_NAME,
    "{{subject-ou}}": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "{{subject-o}}": NameOID.ORGANIZATION_NAME,
}
_SUBJECT_DN: Final = "{{subject-dn}}"
PLACEHOLDERS: Final = (*_OF_SUBJECT, _SUBJECT_DN)
"""The parts that a template of ids may have in it."""
_PLACEHOLDER: Final = re.compile("|".join(map(re.escape, PLACEHOLDERS)))


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """The facts of a certificate; names are of RFC 4514, the key is DER in base64."""

    subject: str
    issuer: str
    key: str
    algorithm: str
    not_before: str
    not_after: str
    certificate: Certificate

    def fill(self, template: str) -> str:
        """Return a template with the parts of the subject in the place of the placeholders.

        Raises:
            RegistryError: 400 when the subject has no such part.
        """

        def part(found: re.Match[str]) -> str:
            placeholder = found[0]
            if placeholder == _SUBJECT_DN:
                return self.subject
            parts = self.certificate.subject.get_attributes_for_oid(_OF_SUBJECT[placeholder])
            if not parts:
                raise RegistryError(400, f"cert: the subject {self.subject} has nothing for {placeholder}")
            return str(parts[0].value)

        # At once: what a subject has in it is no placeholder.
        return _PLACEHOLDER.sub(part, template)


def facts_of(text: str, path: str) -> CertificateFacts:
    """Return the facts of a certificate, DER in base64.

    Raises:
        RegistryError: 400.
    """
    try:
        found = load_der_x509_certificate(bytes_of(text, path))
        key = found.public_key()
        return CertificateFacts(
            subject=found.subject.rfc4514_string(),
            issuer=found.issuer.rfc4514_string(),
            key=b64encode(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode(),
            algorithm=_algorithm_of(key, path),
            not_before=_text(found.not_valid_before_utc),
            not_after=_text(found.not_valid_after_utc),
            certificate=found,
        )
    except (ValueError, UnsupportedAlgorithm):
        raise RegistryError(400, f"{path}: expected an X.509 certificate, DER in base64") from None


def algorithm_of(text: str, path: str) -> str:
    """Return the algorithm of a public key, DER in base64.

    Raises:
        RegistryError: 400.
    """
    try:
        return _algorithm_of(load_der_public_key(bytes_of(text, path)), path)
    except (ValueError, UnsupportedAlgorithm):
        raise RegistryError(400, f"{path}: expected a public key, DER in base64") from None


def bytes_of(text: str, path: str) -> bytes:
    """Return what is in base64.

    Raises:
        RegistryError: 400.
    """
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RegistryError(400, f"{path}: expected base64") from None


def _algorithm_of(key: Any, path: str) -> str:
    for kind, name in _ALGORITHMS:
        if isinstance(key, kind):
            return name
    raise RegistryError(400, f"{path}: expected a key of RSA, EC or Ed25519")


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
