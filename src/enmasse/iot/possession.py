"""Proof of possession: who has the key of an authority signs a nonce of ours with it.

Rules:
1. A nonce names tenant, key and end, and is sealed: none is stored. It is of no use for another tenant or key, nor
   once it has ended. One that the control process has made before it started anew is none any more.
2. The nonce is a text that says what is signed, and so is no certificate, request or token of anything.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key

from enmasse.iot.documents import RegistryError

if TYPE_CHECKING:
    from collections.abc import Callable

NONCE_S: Final = 24 * 3_600
"""Seconds that a nonce is good for: keys of authorities may lie in a safe."""

_HASHES: Final = (hashes.SHA256(), hashes.SHA384(), hashes.SHA512())
_HEAD: Final = "EnMasse proof of possession, version 1"


class Nonces:
    """Makes nonces, and reads its own.

    Args:
        secret: seals them.
        random: makes a text that was never made before.
        wall: returns seconds since 1970 UTC.
    """

    def __init__(self, secret: bytes, random: Callable[[], str], wall: Callable[[], float]) -> None:
        self._secret = secret
        self._random = random
        self._wall = wall

    def make(self, tenant: str, key: str) -> tuple[str, int]:
        """Return a nonce for a key of a tenant, by the key's digest, and when it ends in seconds since 1970."""
        ends = int(self._wall()) + NONCE_S
        text = f"{_HEAD}\ntenant: {tenant}\nkey: {key}\nends: {ends}\nnonce: {self._random()}\n"
        return f"{text}seal: {self._seal(text)}\n", ends

    def check(self, nonce: str, tenant: str, key: str) -> None:
        """Refuse a nonce that is not ours, not for this key of this tenant, or over.

        Raises:
            RegistryError: 400.
        """
        text, found, seal = nonce.partition("seal: ")
        if not found or not hmac.compare_digest(seal.strip().encode(), self._seal(text).encode()):
            raise RegistryError(400, "nonce: it is none of this installation's, or of before it started: ask for one")
        fields = dict(line.partition(": ")[::2] for line in text.splitlines())
        if (fields.get("tenant"), fields.get("key")) != (tenant, key):
            raise RegistryError(400, "nonce: it is for another tenant or authority: ask for one")
        if int(fields.get("ends", "0")) < self._wall():
            raise RegistryError(400, "nonce: its time is over: ask for another one")

    def _seal(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), sha256).hexdigest()


def is_signed(key: bytes, nonce: str, signature: bytes) -> bool:
    """Return true if a nonce was signed with a key.

    Args:
        key: the public key, in DER.
        nonce: the nonce that was given.
        signature: a signature of RSA (PKCS #1 or PSS) or ECDSA with SHA-256, SHA-384 or SHA-512, or of Ed25519.

    Raises:
        ValueError: the key is none of these.
    """
    found, signed = load_der_public_key(key), nonce.encode()
    return any(_verifies(found, signature, signed, *how) for how in _ways(found))


def _ways(key: Any) -> list[tuple[Any, ...]]:
    if isinstance(key, Ed25519PublicKey):
        return [()]
    if isinstance(key, EllipticCurvePublicKey):
        return [(ECDSA(each),) for each in _HASHES]
    if isinstance(key, RSAPublicKey):
        salted = [padding.PSS(padding.MGF1(each), padding.PSS.AUTO) for each in _HASHES]
        return [(padding.PKCS1v15(), each) for each in _HASHES] + list(zip(salted, _HASHES, strict=True))
    raise ValueError("expected a key of RSA, EC or Ed25519")


def _verifies(key: Any, signature: bytes, signed: bytes, *how: Any) -> bool:
    try:
        key.verify(signature, signed, *how)
    except InvalidSignature:
        return False
    return True


def sign(key: Any, nonce: str) -> bytes:
    """Return the signature of a nonce by a private key.

    Raises:
        ValueError: the key is not of RSA, EC or Ed25519.
    """
    signed = nonce.encode()
    if isinstance(key, RSAPrivateKey):
        return key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    if isinstance(key, EllipticCurvePrivateKey):
        return key.sign(signed, ECDSA(hashes.SHA256()))
    if isinstance(key, Ed25519PrivateKey):
        return key.sign(signed)
    raise ValueError("expected a private key of RSA, EC or Ed25519")
