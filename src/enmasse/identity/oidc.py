"""What a token of an OpenID provider is worth [RFC 7519, RFC 8725].

Rules:
1. What a token says of itself chooses nothing: neither where keys come from (``jku``, ``jwk``, ``x5u``,
   ``x5c``), nor whether it is signed. Its ``alg`` must be one of ``ALGORITHMS`` and fit the key.
2. Only the provider's public keys are used: no token is good that whoever can check it could have made.
3. A token is good until it says so, for its audience, from its issuer; one that never ends is none.
4. What is refused is not repeated: reasons name claims, never the token's contents.

For the node, the API and the tests; keys are fetched elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt

from enmasse.errors import RemoteError
from enmasse.identity.errors import TokenError, UnknownKeyError
from enmasse.identity.oidc_settings import OidcSettings
from enmasse.wire.amqp.saslprep import saslprep

__all__ = ["ALGORITHMS", "Identity", "KeySet", "read_discovery", "verify_token"]

ALGORITHMS = {
    "RS256": "RSA", "RS384": "RSA", "RS512": "RSA",
    "PS256": "RSA", "PS384": "RSA", "PS512": "RSA",
    "ES256": "EC", "ES384": "EC", "ES512": "EC",
    "EdDSA": "OKP",
}  # fmt: skip
"""Those whose keys can be published, and the type of key that each takes [RFC 7518 3.1, RFC 8037]."""

CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
"""The one that each algorithm goes with [RFC 7518 3.4]."""

MAX_TOKEN_CHARACTERS = 16_384
"""As many as fit into a frame of SASL."""

MAX_KEYS = 100
MIN_RSA_BITS = 2_048
MAX_NAME_CHARACTERS = 255
MAX_GROUPS = 1_000


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a provider says that somebody is.

    Attributes:
        issuer: the provider.
        subject: how the provider calls the user, for ever.
        username: how people call the user.
        groups: those that the token names.
        scopes: what the token was given for.
        expires_at: until when that is so, in seconds since 1970 UTC; nothing if a password has shown it.
    """

    issuer: str
    subject: str
    username: str
    groups: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class _Key:
    kid: str | None
    kind: str
    algorithm: str | None
    fields: Mapping[str, Any] = field(repr=False)


class KeySet:
    """The public keys of a provider, as its JWKS document has them [RFC 7517].

    Keys that are of no use here are passed over: symmetric ones, those for encryption, of types that are not
    known, or too short to be safe.

    Raises:
        TokenError: it is no such document.
    """

    def __init__(self, document: Any) -> None:
        found = document.get("keys") if isinstance(document, Mapping) else None
        if not isinstance(found, list):
            raise TokenError("the provider's keys are no JWKS document")
        self._keys = [key for key in map(_read_key, found[:MAX_KEYS]) if key is not None]
        self._ready: dict[tuple[int, str], Any] = {}

    def __len__(self) -> int:
        """How many keys can be used."""
        return len(self._keys)

    def find(self, algorithm: str, kid: str | None) -> list[Any]:
        """The keys that a token with this header may be signed with, ready for use.

        Raises:
            UnknownKeyError: there is none, so far.
        """
        found = []
        for index, key in enumerate(self._keys):
            is_of_kind = key.kind == ALGORITHMS[algorithm] and key.algorithm in (None, algorithm)
            has_curve = key.fields.get("crv") == CURVES.get(algorithm, key.fields.get("crv"))
            if is_of_kind and has_curve and kid in (None, key.kid):
                ready = self._prepare(index, key, algorithm)
                if ready is not None:
                    found.append(ready)
        if not found:
            raise UnknownKeyError("no key of the provider fits the token")
        return found

    def _prepare(self, index: int, key: _Key, algorithm: str) -> Any:
        if (index, algorithm) not in self._ready:
            try:
                ready = jwt.PyJWK(dict(key.fields), algorithm=algorithm).key
            except (jwt.PyJWTError, ValueError, TypeError):
                ready = None
            if key.kind == "RSA" and ready is not None and ready.key_size < MIN_RSA_BITS:
                ready = None
            self._ready[index, algorithm] = ready
        return self._ready[index, algorithm]


def _read_key(item: Any) -> _Key | None:
    if not isinstance(item, Mapping):
        return None
    kind, kid, algorithm, operations = (item.get(name) for name in ("kty", "kid", "alg", "key_ops"))
    is_known = kind in ALGORITHMS.values() and (algorithm is None or algorithm in ALGORITHMS)
    is_for_signatures = item.get("use", "sig") == "sig" and (operations is None or "verify" in operations)
    if not is_known or not is_for_signatures or not isinstance(kid, str | None):
        return None
    # Should somebody publish private keys by mistake, they are not kept here.
    public = {name: item[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in item}
    return _Key(kid, str(kind), algorithm, public)


def read_discovery(document: Any, issuer: str) -> tuple[str, str]:
    """Where the keys and the tokens of a provider are [OpenID Connect Discovery 4.3].

    Args:
        document: what the provider says of itself.
        issuer: whom we have asked.

    Returns:
        The URL of the keys, and the URL where tokens are given; the latter is empty if there is none.

    Raises:
        TokenError: it is no such document, or another provider's.
    """
    if not isinstance(document, Mapping) or not isinstance(document.get("jwks_uri"), str):
        raise TokenError("the provider does not describe itself: jwks_uri is missing")
    if document.get("issuer") != issuer:
        raise TokenError(
            f"who was asked as {issuer} calls itself {document.get('issuer')!r:.200}; write its own name as issuer"
        )
    token_endpoint = document.get("token_endpoint", "")
    return document["jwks_uri"], token_endpoint if isinstance(token_endpoint, str) else ""


def verify_token(token: str, settings: OidcSettings, keys: KeySet, now: float) -> Identity:
    """Who the bearer of a token is.

    Args:
        token: a JWT in its compact form.
        settings: what it has to fulfil.
        keys: the provider's.
        now: seconds since 1970 UTC.

    Raises:
        UnknownKeyError: none of the keys fits; newer ones may.
        TokenError: it is not good; the message says why, for a log.
    """
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise TokenError(f"the token has more than {MAX_TOKEN_CHARACTERS} characters")
    if token.count(".") != 2:
        raise TokenError("the token is no signed JWT")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise TokenError("the token's header is malformed") from None
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenError("the token is signed by none of the algorithms that are taken")
    if "crit" in header or not isinstance(kid, str | None):
        raise TokenError("the token's header asks for what is not known")
    return _read_claims(_signed_claims(token, algorithm, keys.find(algorithm, kid)), settings, now)


def _signed_claims(token: str, algorithm: str, keys: list[Any]) -> Mapping[str, Any]:
    for key in keys:
        try:
            claims = jwt.decode(token, key, algorithms=[algorithm], options=_SIGNATURE_ALONE)
        except jwt.InvalidSignatureError:
            continue
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise TokenError("the token is malformed") from None
        return dict(claims)
    raise TokenError("the token's signature is wrong")


_SIGNATURE_ALONE: Any = {
    "verify_signature": True,
    **{f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")},
}
"""The claims are judged here, as time is given to us."""


def _read_claims(claims: Mapping[str, Any], settings: OidcSettings, now: float) -> Identity:
    if claims.get("iss") != settings.issuer:
        raise TokenError("the token is another provider's (iss)")
    audience = claims.get("aud")
    if not set(settings.audience) & set(_texts(audience)):
        raise TokenError(f"the token is not for us (aud): {' or '.join(settings.audience)} is expected")
    expires_at = _moment(claims, "exp")
    if expires_at is None:
        raise TokenError("the token has no end (exp)")
    if now >= expires_at + settings.leeway_s:
        raise TokenError("the token has expired (exp)")
    for claim in ("nbf", "iat"):
        begins_at = _moment(claims, claim)
        if begins_at is not None and now < begins_at - settings.leeway_s:
            raise TokenError(f"the token is not good yet ({claim}); are the clocks right?")
    subject, username = claims.get("sub", ""), claims.get(settings.username_claim)
    if not isinstance(username, str) or not isinstance(subject, str):
        raise TokenError(f"the token does not tell whose it is ({settings.username_claim})")
    try:
        name = saslprep(username)
    except RemoteError:
        name = ""
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS or any(letter.isspace() for letter in name):
        raise TokenError(f"the token's {settings.username_claim} cannot be a user's name")
    groups = _texts(claims.get(settings.groups_claim)) if settings.groups_claim else ()
    scopes = claims.get("scope")
    return Identity(
        settings.issuer,
        subject,
        name,
        # Keycloak writes the whole path of a group unless it is told not to.
        tuple(group.removeprefix("/") for group in groups[:MAX_GROUPS]),
        tuple(scopes.split()) if isinstance(scopes, str) else _texts(scopes),
        expires_at,
    )


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _moment(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenError(f"the token's {name} is no time")
    try:
        moment = float(value)
    except OverflowError:
        moment = math.inf
    if not math.isfinite(moment):
        raise TokenError(f"the token's {name} is no time")
    return moment
