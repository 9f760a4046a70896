"""The proof by which a device has logged in, which its connection keeps, and whether that still holds.

Rules:
1. A connection lives by its own proof alone: another secret of the same device changes nothing for it.
2. A secret is known again by what it consists of, not by its id: a client may give another password the same id, or
   the same one another id.
3. A certificate holds as long as its tenant has the authority that has vouched for it, by that one's key.
"""

from __future__ import annotations

import json
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from enmasse.node.devices.tenants import Device, Document, Tenant


PASSWORD, CERTIFICATE, KEY = "hashed-password", "x509-cert", "rpk"

_NAMES: Final = {PASSWORD: "password", CERTIFICATE: "certificate", KEY: "token"}

_PARTS: Final = {PASSWORD: ("hash-function", "pwd-hash", "salt"), KEY: ("algorithm", "key")}
"""The fields of a secret of each type; a certificate has none in the registry."""


class Login:
    """Credentials of a device.

    Attributes:
        device: the device of the credentials.
        secrets: the secrets, as the registry has them.
        is_enabled: true if they may be used.
    """

    __slots__ = ("device", "is_enabled", "secrets")

    def __init__(self, device: Device, document: Document) -> None:
        self.device = device
        self.secrets: list[Document] = list(document.get("secrets") or ())
        self.is_enabled = document.get("enabled") is not False


class Proof:
    """The proof by which a device has logged in.

    Args:
        kind: the type of credentials.
        auth_id: their name.
        login: the credentials, as they were then.
        secret: the one of them that was right.
        until: the time at which the proof ends by itself, as a token's does, in seconds since 1970 UTC; None: never.
        authority: the public key of the tenant's authority that has vouched for it; empty: none was needed.

    Attributes:
        ends_at: the time at which it ends, as far as is known now; None: never.
        material: what the secret is known again by.
    """

    __slots__ = ("auth_id", "authority", "ends_at", "kind", "login", "material", "until")

    def __init__(
        self,
        kind: str,
        auth_id: str,
        login: Login,
        secret: Document,
        *,
        until: float | None = None,
        authority: str = "",
    ) -> None:
        self.kind = kind
        self.auth_id = auth_id
        self.authority = authority
        self.login: Login | None = login
        self.until = until
        self.material = material_of(kind, secret)
        self.ends_at = _sooner(until, seconds_of(secret.get("not-after")))

    @property
    def name(self) -> str:
        """Its name for people: password, certificate or token."""
        return _NAMES[self.kind]

    def is_vouched_for(self, tenant: Tenant, now: float) -> bool:
        """Return true if a tenant still has the authority of the proof, where it needed one."""
        return not self.authority or any(
            anchor.get("public-key") == self.authority and (seconds_of(anchor.get("not-after")) or now) >= now
            for anchor in tenant.anchors
        )

    def review(self, credentials: Document | None, now: float) -> str:
        """Return why it holds no longer; empty: it does, until ``ends_at``.

        Args:
            credentials: those of its type and name that the device has now; None: there are none.
            now: in seconds since 1970 UTC.
        """
        if credentials is None or credentials.get("enabled") is False:
            return f"the {self.name} was removed or disabled"
        valid = valid_secrets(credentials.get("secrets") or (), now)
        same = [secret for secret in valid if material_of(self.kind, secret) == self.material]
        if not same:
            return f"the {self.name} was removed, disabled or replaced"
        ends = [seconds_of(secret.get("not-after")) for secret in same]
        last = None if None in ends else max(end for end in ends if end is not None)
        self.ends_at = _sooner(self.until, last)
        return ""


def valid_secrets(secrets: Iterable[Document], now: float) -> Iterable[Document]:
    """Yield those of some secrets that may be used at a time, in seconds since 1970 UTC."""
    for secret in secrets:
        before, after = seconds_of(secret.get("not-before")), seconds_of(secret.get("not-after"))
        if secret.get("enabled") is False or (before or now) > now or (after or now) < now:
            continue
        yield secret


def seconds_of(text: Any) -> float | None:
    """Return a time of a document in seconds since 1970 UTC."""
    return datetime.fromisoformat(text).timestamp() if text else None


def material_of(kind: str, secret: Document) -> bytes:
    """Return what a secret is known again by."""
    parts = [secret.get(name) for name in _PARTS.get(kind, ())]
    return sha256(json.dumps(parts).encode()).digest()[:16]


def _sooner(one: float | None, other: float | None) -> float | None:
    return min((each for each in (one, other) if each is not None), default=None)
