"""The authorities that vouch for certificates: what tells one from another, and the chains that lead to one.

An authority is a name and a key. Certificates of it may be many, and what a client presents is made by others; so
names are compared as X.509 compares them, and keys by what they are, whatever the text or bytes in which they came.
"""

from __future__ import annotations

import re
import unicodedata
from base64 import b64decode
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key
from cryptography.x509 import Certificate, Name, load_der_x509_certificate, load_pem_x509_certificates
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

MAX_CHAIN = 16
"""Certificates of a client that are looked at."""


_ATTRIBUTE: Final = re.compile(r"(\\.)|(?:^|\s*([,+]))\s*([A-Za-z][A-Za-z0-9-]*|[0-9.]+)\s*=\s*")
_MORE_ATTRIBUTES: Final = {"EMAILADDRESS": NameOID.EMAIL_ADDRESS, "SERIALNUMBER": NameOID.SERIAL_NUMBER}
"""Attributes without a short name in RFC 4514 that Java and OpenSSL write so."""


def read_name(text: str) -> Name:
    """Return a name that is written as RFC 4514 says; attributes may be in small letters, with spaces around them.

    Raises:
        ValueError: it is none.
    """

    def spelled(found: re.Match[str]) -> str:
        return found[1] or f"{found[2] or ''}{found[3].upper()}="

    name = Name.from_rfc4514_string(_ATTRIBUTE.sub(spelled, text), _MORE_ATTRIBUTES)
    if not name.rdns:
        raise ValueError("the name is empty")
    return name


def canonical_name(name: Name) -> str:
    """Return a digest of a name, the same for all that are equal; empty for the empty name.

    Case, white space, the types of strings and the order within an RDN make no difference [RFC 5280 7.1]. What
    OpenSSL takes for equal is equal here; beyond ASCII more is [RFC 4518 2].
    """
    rdns = [sorted((one.oid.dotted_string, _folded(one.value)) for one in rdn) for rdn in name.rdns]
    return sha256(repr(rdns).encode()).hexdigest() if rdns else ""


def _folded(value: str | bytes) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return " ".join(unicodedata.normalize("NFKC", value).casefold().split())


def key_digest(key: bytes) -> str:
    """Return a digest of a public key in DER, the same in whatever form its SubjectPublicKeyInfo is written.

    Raises:
        ValueError: it is no key.
    """
    try:
        found = load_der_public_key(key)
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None
    return sha256(found.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


@dataclass(frozen=True, slots=True)
class AuthorityId:
    """An authority as it is told from others.

    Attributes:
        name: a digest of its canonical name.
        key: a digest of its public key.
    """

    name: str
    key: str

    @classmethod
    def of(cls, subject: str, key: str) -> AuthorityId | None:
        """Return that of a subject (RFC 4514) and a key, DER in base64; None: these make no authority."""
        try:
            return cls(canonical_name(read_name(subject)), key_digest(b64decode(key)))
        except ValueError:
            return None

    @classmethod
    def of_certificate(cls, certificate: Certificate) -> AuthorityId:
        """Return that of a certificate.

        Raises:
            ValueError: it cannot be read.
        """
        try:
            key = certificate.public_key()
        except UnsupportedAlgorithm as error:
            raise ValueError(str(error)) from None
        return cls(
            canonical_name(certificate.subject),
            key_digest(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)),
        )


def issuers_of(chain: Sequence[bytes]) -> list[str]:
    """Return the canonical names of who has issued the certificates of a chain, those nearest to the client first.

    Args:
        chain: certificates in DER, the client's own first.

    Raises:
        ValueError: one cannot be read.
    """
    found = (canonical_name(load_der_x509_certificate(each).issuer) for each in chain[:MAX_CHAIN])
    return list(dict.fromkeys(name for name in found if name))


def end_of(certificate: bytes) -> float | None:
    """Return when a certificate in DER ends, in seconds since 1970 UTC; None: it cannot be read."""
    try:
        return load_der_x509_certificate(certificate).not_valid_after_utc.timestamp()
    except ValueError:
        return None


def ends_of(certificates: str) -> list[datetime]:
    """Return when certificates in PEM end; none that cannot be read."""
    try:
        return [found.not_valid_after_utc for found in load_pem_x509_certificates(certificates.encode())]
    except ValueError:
        return []


def verified_end(chain: Sequence[bytes], authorities: Iterable[bytes]) -> bytes | None:
    """Return the authority that vouches for a client: the end of its chain, in DER; None: none of them does.

    Signatures, times, whether a certificate may issue others, the length of paths and constraints of names are
    verified by OpenSSL, as in a handshake; names are compared as X.509 says.

    Args:
        chain: certificates that the client has presented, in DER, its own first.
        authorities: certificates in DER.
    """
    from OpenSSL import crypto  # noqa: PLC0415  takes time to load, and only certificates of clients need it

    try:
        store = crypto.X509Store()
        for each in authorities:
            store.add_cert(crypto.load_certificate(crypto.FILETYPE_ASN1, each))
        own, *others = [crypto.load_certificate(crypto.FILETYPE_ASN1, each) for each in chain[:MAX_CHAIN]]
        found = crypto.X509StoreContext(store, own, others).get_verified_chain()
    except (crypto.X509StoreContextError, crypto.Error, ValueError):
        return None
    return crypto.dump_certificate(crypto.FILETYPE_ASN1, found[-1])
