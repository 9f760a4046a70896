"""The credentials of a device: what proves that it is the one.

Rules:
1. A plain password is hashed at once, with bcrypt; it is neither stored nor shown. Given once more it is the same
   secret.
2. What is secret is never shown again. Each secret has an id, by which a client refers to it: one that is sent with
   its id alone keeps what it is, so that the rest can be changed around it (the "patch mode" of Hono).
3. Several secrets may be valid at once, so that a device can be given another one before the former ends.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import bcrypt
from pydantic import Field

from enmasse.identity.authorities import canonical_name
from enmasse.iot.certificates import algorithm_of, bytes_of, facts_of
from enmasse.iot.documents import Free, Part, RegistryError, Time, parse_time, validated
from enmasse.model.schema.schema import describe_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from enmasse.iot.documents import Document, NewId

PLAIN: Final = "pwd-plain"

MAX_CREDENTIALS: Final = 50
"""The most credentials of one device."""

_MAX_SECRETS = 20  # of one of them
_MAX_PLAIN_BYTES = 72  # bcrypt looks at no more
_BCRYPT_COST = 10  # Hono's: some 50 ms
_MAX_BCRYPT_COST = 12  # a login is to take no more than four times that
_BCRYPT = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
_SHA_BYTES: Final = {"sha-256": 32, "sha-512": 64}
_HASH: Final = ("hash-function", "pwd-hash", "salt")

Base64 = Annotated[str, Field(max_length=32 * 1024)]


class Secret(Part):
    """The time in which a secret may be used; of a certificate this is all."""

    id: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    enabled: bool | None = None
    not_before: Time | None = None
    not_after: Time | None = None
    comment: Annotated[str, Field(max_length=1024)] | None = None


class PasswordSecret(Secret):
    """A password: in plain, or its hash."""

    hash_function: Literal["sha-256", "sha-512", "bcrypt"] | None = None
    pwd_hash: Annotated[str, Field(max_length=512)] | None = Field(default=None, repr=False)
    salt: Annotated[str, Field(max_length=512)] | None = Field(default=None, repr=False)
    pwd_plain: str | None = Field(default=None, repr=False, json_schema_extra={"writeOnly": True})


class PskSecret(Secret):
    """A key that the device has, too."""

    key: Base64 | None = Field(default=None, repr=False)


class RpkSecret(Secret):
    """A public key, or a certificate that has it."""

    key: Base64 | None = None
    cert: Base64 | None = Field(default=None, json_schema_extra={"writeOnly": True})
    algorithm: Literal["RSA", "EC", "EdDSA"] | None = None


AuthId = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^\x00-\x1f\x7f]+$")]


class _Common(Part):
    auth_id: AuthId | None = None
    enabled: bool | None = None
    comment: Annotated[str, Field(max_length=1024)] | None = None
    ext: Free | None = None


class PasswordCredentials(_Common):
    """A name and passwords."""

    type: Literal["hashed-password"]
    secrets: Annotated[tuple[PasswordSecret, ...], Field(strict=False, min_length=1, max_length=_MAX_SECRETS)]


class PskCredentials(_Common):
    """An identity and keys for TLS without certificates."""

    type: Literal["psk"]
    secrets: Annotated[tuple[PskSecret, ...], Field(strict=False, min_length=1, max_length=_MAX_SECRETS)]


class CertificateCredentials(_Common):
    """The subject of a client certificate; or a certificate that has it."""

    type: Literal["x509-cert"]
    secrets: Annotated[tuple[Secret, ...], Field(strict=False, min_length=1, max_length=1)] | None = None
    cert: Base64 | None = Field(default=None, json_schema_extra={"writeOnly": True})


class RpkCredentials(_Common):
    """A name and public keys, which signatures of tokens are checked with."""

    type: Literal["rpk"]
    secrets: Annotated[tuple[RpkSecret, ...], Field(strict=False, min_length=1, max_length=_MAX_SECRETS)]


TYPES: Final[dict[str, type[_Common]]] = {
    "hashed-password": PasswordCredentials,
    "psk": PskCredentials,
    "x509-cert": CertificateCredentials,
    "rpk": RpkCredentials,
}
_SECRET: Final = {"hashed-password": (*_HASH, PLAIN), "psk": ("key",), "x509-cert": (), "rpk": ("key", "algorithm")}
"""The fields of a secret of each type; all of them but a public key are never shown."""


def read_credentials(
    given: Any, former: Sequence[Document], *, new_id: NewId, templates: Mapping[str, str] | None = None
) -> list[Document]:
    """Return the credentials of a device as they are kept; passwords are still plain.

    Args:
        given: by the client.
        former: those that the device had.
        new_id: makes ids of secrets.
        templates: the templates of ids from certificates, by the canonical name of the authority that has issued
            them.

    Raises:
        RegistryError: 400.
    """
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise RegistryError(400, f"expected a list of credentials, got {describe_value(given)}")
    if len(given) > MAX_CREDENTIALS:
        raise RegistryError(400, f"a device has at most {MAX_CREDENTIALS} credentials, got {len(given)}")
    known = {key_of(item): item for item in former}
    kept = [_read(item, f"[{at}]", known, new_id, templates or {}) for at, item in enumerate(given)]
    keys = [key_of(item) for item in kept]
    for at, key in enumerate(keys):
        if key in keys[:at]:
            raise RegistryError(400, f"[{at}]: there is another one of this type and auth-id")
    return kept


def key_of(item: Document) -> tuple[str, str]:
    """Return type and auth-id, by which a tenant has each of its credentials once."""
    return item["type"], item["auth-id"]


def _read(
    given: Document, path: str, known: Mapping[tuple[str, str], Document], new_id: NewId, templates: Mapping[str, str]
) -> Document:
    model = TYPES.get(given["type"]) if isinstance(given.get("type"), str) else None
    if model is None:
        expected = f"expected one of {', '.join(TYPES)}"
        raise RegistryError(400, f"{path}.type: {expected}; got {describe_value(given.get('type'))}")
    validated(model, given, path)
    item: Document = {key: value for key, value in given.items() if value is not None}
    if "cert" in item:
        facts = facts_of(item.pop("cert"), f"{path}.cert")
        template = templates.get(canonical_name(facts.certificate.issuer))
        item["auth-id"] = facts.subject if template is None else facts.fill(template)
        secret = (item.get("secrets") or [{}])[0]
        item["secrets"] = [secret | {"not-before": facts.not_before, "not-after": facts.not_after}]
    for name in ("auth-id", "secrets"):
        if name not in item:
            raise RegistryError(400, f"{path}.{name}: required")
    former = known.get(key_of(item), {"secrets": []})
    of_id = {secret["id"]: secret for secret in former["secrets"]}
    is_known = key_of(item) in known
    item["secrets"] = [
        _read_secret(secret, item["type"], f"{path}.secrets[{at}]", of_id, is_known)
        for at, secret in enumerate(item["secrets"])
    ]
    ids = [secret["id"] for secret in item["secrets"] if "id" in secret]
    if len(set(ids)) < len(ids):
        raise RegistryError(400, f"{path}.secrets: ids have to differ")
    for secret in item["secrets"]:
        if "id" not in secret:
            secret["id"] = new_id()
    return item


def _read_secret(given: Document, kind: str, path: str, former: Mapping[str, Document], is_known: bool) -> Document:
    secret: Document = {key: value for key, value in given.items() if value is not None}
    before, after = (parse_time(secret.get(name, "")) for name in ("not-before", "not-after"))
    if before is not None and after is not None and before > after:
        raise RegistryError(400, f"{path}: not-before is later than not-after")
    if "id" in secret and is_known:
        if secret["id"] not in former:
            raise RegistryError(400, f"{path}.id: these credentials have no secret '{secret['id']}'")
        if not any(secret.get(name) for name in (*_SECRET[kind], "cert")):
            old = former[secret["id"]]
            return secret | {name: old[name] for name in _SECRET[kind] if name in old}
    match kind:
        case "hashed-password":
            return _read_password(secret, path)
        case "psk":
            if not bytes_of(secret.get("key", ""), f"{path}.key"):
                raise RegistryError(400, f"{path}.key: required: the key in base64")
        case "rpk":
            return _read_public_key(secret, path)
    return secret


def _read_password(secret: Document, path: str) -> Document:
    if plain := secret.get(PLAIN):
        try:
            size = len(plain.encode())
        except UnicodeEncodeError:
            raise RegistryError(400, f"{path}.{PLAIN}: expected characters of Unicode") from None
        if size > _MAX_PLAIN_BYTES or "\0" in plain:
            raise RegistryError(400, f"{path}.{PLAIN}: expected at most {_MAX_PLAIN_BYTES} bytes, none of them 0")
        return {key: value for key, value in secret.items() if key not in _HASH}
    secret.pop(PLAIN, None)
    function, digest = secret.get("hash-function"), secret.get("pwd-hash")
    if not function or not digest:
        raise RegistryError(400, f"{path}: expected {PLAIN}, or hash-function and pwd-hash")
    if function == "bcrypt":
        found = _BCRYPT.fullmatch(digest)
        if found is None or not 4 <= int(found[1]) <= _MAX_BCRYPT_COST:
            raise RegistryError(400, f"{path}.pwd-hash: expected a hash of bcrypt of cost 4 to {_MAX_BCRYPT_COST}")
        secret.pop("salt", None)  # the hash has it
    else:
        if len(bytes_of(digest, f"{path}.pwd-hash")) != _SHA_BYTES[function]:
            raise RegistryError(400, f"{path}.pwd-hash: expected {_SHA_BYTES[function]} bytes in base64")
        bytes_of(secret.get("salt", ""), f"{path}.salt")
    return secret


def _read_public_key(secret: Document, path: str) -> Document:
    if "cert" in secret:
        facts = facts_of(secret.pop("cert"), f"{path}.cert")
        found = {"key": facts.key, "algorithm": facts.algorithm}
        return secret | found | {"not-before": facts.not_before, "not-after": facts.not_after}
    if not secret.get("key"):
        raise RegistryError(400, f"{path}: expected key or cert")
    algorithm = algorithm_of(secret["key"], f"{path}.key")
    if secret.setdefault("algorithm", algorithm) != algorithm:
        raise RegistryError(400, f"{path}.algorithm: the key is of {algorithm}")
    return secret


def count_plain(credentials: Sequence[Document]) -> int:
    """Return how many passwords have to be hashed."""
    return sum(PLAIN in secret for item in credentials for secret in item["secrets"])


def hash_passwords(credentials: Sequence[Document], former: Sequence[Document], cost: int = _BCRYPT_COST) -> None:
    """Replace plain passwords by their hashes: slow, and not for the event loop.

    A password that was one of the last two of its credentials keeps its hash: it is the same secret, and whoever has
    come in by it stays.

    Args:
        credentials: those to keep.
        former: those that the device had.
        cost: that of new hashes; those of another cost are not looked at, so that their number alone says how long
            all takes.
    """
    ours = f"$2a${cost:02}$"
    known = {key_of(item): [one.get("pwd-hash", "") for one in item["secrets"][-2:]] for item in former}
    for item in credentials:
        for secret in item["secrets"]:
            if (plain := secret.pop(PLAIN, None)) is not None:
                password, had = plain.encode(), known.get(key_of(item), ())
                same = (it for it in had if it.startswith(ours) and bcrypt.checkpw(password, it.encode()))
                digest = next(same, None) or bcrypt.hashpw(password, bcrypt.gensalt(cost, prefix=b"2a")).decode()
                secret |= {"hash-function": "bcrypt", "pwd-hash": digest}


def without_secrets(credentials: Sequence[Document]) -> list[Document]:
    """Return credentials as they are shown."""
    return [
        item
        | {
            "secrets": [
                {
                    key: value
                    for key, value in secret.items()
                    if item["type"] == "rpk" or key not in _SECRET[item["type"]]
                }
                for secret in item["secrets"]
            ]
        }
        for item in credentials
    ]
