"""Verification of the tokens of an OpenID provider [RFC 7519, RFC 8725].

Rules:
1. A token chooses neither where keys come from (``jku``, ``jwk``, ``x5u``, ``x5c``) nor whether it is signed.
   Its ``alg`` must be one of ``ALGORITHMS`` and fit the key.
2. Only asymmetric keys of the provider are used: with a shared key, everybody who can check tokens could make them.
3. A token must have an end that has not come, and the right audience and issuer.
4. An ID token is for the client that asked for it alone (``azp``), and no token of another type is one of ours.
5. Names are the provider's own, to the letter: nothing folds them, so no two users of a provider are one here.
6. Reasons of refusals name claims, never the contents of a token.

The node and the API use it; ``net.oidc_provider`` fetches the keys.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jwt

from enmasse.errors import RemoteError
from enmasse.identity.errors import TokenError, UnknownKeyError
from enmasse.identity.oidc_settings import OidcSettings
from enmasse.wire.sasl.scram import saslprep

ALGORITHMS = {
    "RS256": "RSA", "RS384": "RSA", "RS512": "RSA",
    "PS256": "RSA", "PS384": "RSA", "PS512": "RSA",
    "ES256": "EC", "ES384": "EC", "ES512": "EC",
    "EdDSA": "OKP",
}  # fmt: skip
"""Algorithms with public keys, and the type of key of each [RFC 7518 3.1, RFC 8037]."""

CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
"""The curve of each algorithm [RFC 7518 3.4]."""

MAX_TOKEN_CHARACTERS = 16_384
"""The most that fits into a SASL frame."""

MAX_KEYS = 100
MIN_RSA_BITS = 2_048
MAX_NAME_CHARACTERS = 255
MAX_GROUPS = 1_000


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a user, as a provider states it.

    Attributes:
        issuer: the provider.
        subject: the permanent id of the user at the provider.
        username: the name of the user.
        groups: in the token.
        scopes: the scopes of the token.
        expires_at: the time at which the token ends, in seconds since 1970 UTC; None for a login by password.
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
    """The public keys in the JWKS document of a provider [RFC 7517].

    Keys that cannot be used are skipped: symmetric ones, those for encryption, of unknown types, or too short to be
    safe.

    Raises:
        TokenError: it is not a JWKS document.
    """

    def __init__(self, document: Any) -> None:
        found = document.get("keys") if isinstance(document, Mapping) else None
        if not isinstance(found, list):
            raise TokenError("the provider's keys are no JWKS document")
        self._keys = [key for key in map(_read_key, found[:MAX_KEYS]) if key is not None]
        self._ready: dict[tuple[int, str], Any] = {}

    def __len__(self) -> int:
        """Return the number of usable keys."""
        return len(self._keys)

    def find(self, algorithm: str, kid: str | None) -> list[Any]:
        """Return the keys that a token with this header may be signed with.

        Raises:
            UnknownKeyError: there is none.
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
    # A private key that is published by mistake is not kept.
    public = {name: item[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in item}
    return _Key(kid, str(kind), algorithm, public)


class Discovery(NamedTuple):
    """The URLs that a provider names; empty: it has none for that.

    Attributes:
        keys: the keys of its signatures.
        token: the URL at which codes and passwords are exchanged for tokens.
        authorization: the URL at which people log in with their browsers.
    """

    keys: str
    token: str = ""
    authorization: str = ""


def read_discovery(document: Any, issuer: str) -> Discovery:
    """Read the discovery document of a provider [OpenID Connect Discovery 4.3].

    Args:
        document: the document as the provider serves it.
        issuer: the provider that was asked.

    Raises:
        TokenError: it is not a discovery document, or that of another provider.
    """
    if not isinstance(document, Mapping) or not isinstance(document.get("jwks_uri"), str):
        raise TokenError("the provider does not describe itself: jwks_uri is missing")
    if document.get("issuer") != issuer:
        raise TokenError(
            f"the provider at {issuer} has the issuer {document.get('issuer')!r:.200}; configure that one as issuer"
        )
    token, authorization = (document.get(f"{name}_endpoint", "") for name in ("token", "authorization"))
    return Discovery(
        document["jwks_uri"],
        token if isinstance(token, str) else "",
        authorization if isinstance(authorization, str) else "",
    )


def verify_token(token: str, settings: OidcSettings, keys: KeySet, now: float) -> Identity:
    """Verify a token, and return the identity in it.

    Args:
        token: a JWT in its compact form.
        settings: the settings of the provider.
        keys: the keys of the provider.
        now: seconds since 1970 UTC.

    Raises:
        UnknownKeyError: none of the keys has signed it; newer ones may have.
        TokenError: it is invalid; the message says why, for a log.
    """
    claims = _signed_claims(token, keys)
    # Only one who asked for it may believe an ID token; an access token is for whoever it names in `aud`.
    if claims.get("typ") == "ID" or "at_hash" in claims or "c_hash" in claims:
        _check_party(claims, {*settings.audience, settings.client_id})
    expires_at = _check_claims(claims, settings, settings.audience, now)
    return _identity(claims, settings, expires_at)


def verify_id_token(
    token: str, settings: OidcSettings, keys: KeySet, now: float, *, nonce: str | None = None
) -> IdToken:
    """Verify an ID token that the provider gave to our client [OpenID Connect Core 3.1.3.7].

    Args:
        token: a JWT in its compact form.
        settings: the settings of the provider, with our client.
        keys: the keys of the provider.
        now: seconds since 1970 UTC.
        nonce: the one that the login was begun with; None: it was begun without.

    Raises:
        UnknownKeyError: none of the keys has signed it; newer ones may have.
        TokenError: it is invalid; the message says why, for a log.
    """
    claims = _signed_claims(token, keys)
    expires_at = _check_claims(claims, settings, (settings.client_id,), now)
    _check_party(claims, {settings.client_id})
    if nonce is not None and claims.get("nonce") != nonce:
        raise TokenError("the ID token is of another login (nonce)")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise TokenError("the ID token does not say of whom it is (sub)")
    return IdToken(claims, settings, subject, expires_at)


@dataclass(frozen=True, slots=True)
class IdToken:
    """The verified ID token of a login.

    Attributes:
        claims: all that it says.
        settings: the settings of its provider.
        subject: the permanent id of the user at the provider.
        expires_at: the time at which it ends, in seconds since 1970 UTC.
    """

    claims: Mapping[str, Any] = field(repr=False)
    settings: OidcSettings
    subject: str
    expires_at: float

    @property
    def proved_at(self) -> float | None:
        """The time at which the user last proved to the provider who they are; None: it does not say so.

        Raises:
            TokenError: the time that it says is none.
        """
        return _moment(self.claims, "auth_time")

    @property
    def identity(self) -> Identity:
        """The identity in it.

        Raises:
            TokenError: it has no name that a user can have.
        """
        return _identity(self.claims, self.settings, self.expires_at)


def _check_party(claims: Mapping[str, Any], parties: Collection[str]) -> None:
    """Check that an ID token was given to one of these clients; one of several audiences alone proves nothing.

    Raises:
        TokenError: it was given to another.
    """
    party = claims.get("azp")
    if party is None:
        if len(_texts(claims.get("aud"))) > 1:
            raise TokenError("the ID token has several audiences and does not say for which client it is (azp)")
    elif not isinstance(party, str) or party not in parties:
        raise TokenError("the ID token is for another client (azp)")


def _signed_claims(token: str, keys: KeySet) -> Mapping[str, Any]:
    """Return the claims of a token that one of the keys has signed."""
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise TokenError(f"the token has more than {MAX_TOKEN_CHARACTERS} characters")
    if token.count(".") != 2:
        raise TokenError("the token is not a signed JWT")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise TokenError("the token's header is malformed") from None
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenError("the token is not signed with one of the accepted algorithms")
    if "crit" in header or not isinstance(kid, str | None):
        raise TokenError("the token's header has an extension or key id that is not understood")
    if not _is_our_type(header.get("typ")):
        raise TokenError("the token is neither an access token nor an ID token (typ)")
    for key in keys.find(algorithm, kid):
        try:
            claims = jwt.decode(token, key, algorithms=[algorithm], options=_SIGNATURE_ALONE)
        except jwt.InvalidSignatureError:
            continue
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise TokenError("the token is malformed") from None
        return dict(claims)
    # A key without a name, or with the name of an earlier one, may have been rotated.
    raise UnknownKeyError("the token's signature is wrong")


def _is_our_type(named: Any) -> bool:
    """Return whether a token says of no other type that it is one [RFC 8725 3.11], such as one for logging out."""
    if named is None:
        return True
    kind = named.lower().removeprefix("application/") if isinstance(named, str) else "+jwt"
    return kind == "at+jwt" or not kind.endswith("+jwt")


_SIGNATURE_ALONE: Any = {
    "verify_signature": True,
    **{f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")},
}
"""PyJWT checks the signature alone: it would check times with the clock of the machine."""


def _check_claims(claims: Mapping[str, Any], settings: OidcSettings, audiences: Collection[str], now: float) -> float:
    """Check by whom, for whom and until when a token is; return when it ends."""
    if claims.get("iss") != settings.issuer:
        raise TokenError("the token is of another provider (iss)")
    if set(audiences).isdisjoint(_texts(claims.get("aud"))):
        raise TokenError(f"the token is not for us (aud): {' or '.join(audiences)} is expected")
    expires_at = _moment(claims, "exp")
    if expires_at is None:
        raise TokenError("the token has no end (exp)")
    if now >= expires_at + settings.leeway_s:
        raise TokenError("the token has expired (exp)")
    for claim in ("nbf", "iat"):
        begins_at = _moment(claims, claim)
        if begins_at is not None and now < begins_at - settings.leeway_s:
            raise TokenError(f"the token is not valid yet ({claim}); are the clocks right?")
    return expires_at


def _identity(claims: Mapping[str, Any], settings: OidcSettings, expires_at: float) -> Identity:
    """Return the identity in checked claims."""
    subject, username = claims.get("sub", ""), claims.get(settings.username_claim)
    if not isinstance(username, str) or not isinstance(subject, str):
        raise TokenError(f"the token has no name of a user ({settings.username_claim})")
    if not _is_name(username):
        raise TokenError(f"the token's {settings.username_claim} cannot be a user's name")
    groups = _texts(claims.get(settings.groups_claim)) if settings.groups_claim else ()
    scopes = claims.get("scope")
    return Identity(
        settings.issuer,
        subject,
        username,
        # Keycloak writes the whole path of a group by default.
        tuple(group.removeprefix("/") for group in groups[:MAX_GROUPS]),
        tuple(filter(None, scopes.split(" "))) if isinstance(scopes, str) else _texts(scopes),
        expires_at,
    )


def _is_name(text: str) -> bool:
    """Return whether a text can be a user's name: SASLprep says what no name has."""
    if not 1 <= len(text) <= MAX_NAME_CHARACTERS or any(letter.isspace() for letter in text):
        return False
    try:
        return bool(saslprep(text))
    except RemoteError:
        return False


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _moment(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenError(f"the token's {name} is not a time")
    try:
        moment = float(value)
    except OverflowError:
        moment = math.inf
    if not math.isfinite(moment):
        raise TokenError(f"the token's {name} is not a time")
    return moment
