"""A provider of identities without a server: keys of each kind, and tokens signed with them."""

from __future__ import annotations

import functools
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from enmasse.identity.oidc import KeySet

ISSUER = "https://id.example.com/realms/shop"
NOW = 1_800_000_000.0
KIDS = {"RS256": "rsa", "ES256": "ec", "EdDSA": "ed"}


@functools.cache
def private_key(name: str) -> Any:
    """A key that stays the same for one run of the tests."""
    if name.startswith("rsa"):
        return rsa.generate_private_key(65_537, 1_024 if name == "rsa-weak" else 2_048)
    return ec.generate_private_key(ec.SECP256R1()) if name.startswith("ec") else ed25519.Ed25519PrivateKey.generate()


@functools.cache
def public_fields(name: str) -> str:
    algorithm: Any = {"r": jwt.algorithms.RSAAlgorithm, "e": jwt.algorithms.ECAlgorithm}[name[0]]
    if name.startswith("ed"):
        algorithm = jwt.algorithms.OKPAlgorithm
    return json.dumps(algorithm.to_jwk(private_key(name).public_key(), as_dict=True))


def jwk(name: str, **fields: Any) -> dict[str, Any]:
    """A public key as a provider publishes it."""
    return {**json.loads(public_fields(name)), "kid": name, "use": "sig", **fields}


def jwks(*names: str) -> dict[str, Any]:
    return {"keys": [jwk(name) for name in names]}


def keys(*names: str) -> KeySet:
    return KeySet(jwks(*(names or ("rsa", "ec", "ed"))))


def claims(**changed: Any) -> dict[str, Any]:
    """Claims of a good token; None leaves one out."""
    found = {
        "iss": ISSUER, "aud": "messaging", "sub": "u-1", "preferred_username": "ida",
        "iat": NOW - 10, "exp": NOW + 60, "scope": "openid orders",
        "groups": ["/warehouse", "send_orders%2F%23"],
    } | changed  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def token(
    algorithm: str = "RS256", *, key: str | None = None, header: dict[str, Any] | None = None, **changed: Any
) -> str:
    """A token; ``changed`` are claims, ``header`` is added to its header, None leaves out."""
    kid = KIDS[algorithm]
    fields = {name: value for name, value in {"kid": kid, **(header or {})}.items() if value is not None}
    return jwt.encode(claims(**changed), private_key(key or kid), algorithm, headers=fields)


__all__ = ["ISSUER", "KIDS", "NOW", "claims", "jwk", "jwks", "keys", "private_key", "public_fields", "token"]
