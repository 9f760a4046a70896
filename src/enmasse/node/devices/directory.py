"""The knowledge of a node of tenants, devices and credentials: told by the control process, or asked of it and kept.

Rules:
1. The node is told of every tenant. Devices and credentials are asked for when they are needed, and kept.
2. What is kept is asked about again after ``FRESH_S``, and dropped as soon as the registry says that it has changed.
   While the control process is away, what is kept is good for ``STALE_S``, so that known devices still come in.
3. What there is not is kept, too, and as long: who guesses costs the registry nothing, and learns nothing by the time
   that another question takes.
4. What was asked before a change is answered, but not kept: it may be what was before.
5. Everything is bounded: entries, questions under way, and what waits for an answer.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection
from itertools import islice
from typing import Any, Final

from enmasse.node.devices.proofs import Login
from enmasse.node.devices.tenants import Device, Document, Tenant

MAX_KEPT: Final = 50_000
MAX_ABSENT: Final = 10_000
MAX_ASKED: Final = 2_000
"""Questions under way; a fleet that comes back waits its turn by trying again."""

DEFAULT_COST: Final = 1 << 10
"""Rounds of bcrypt, as the registry hashes passwords."""

FRESH_S: Final = 60.0
STALE_S: Final = 24 * 3_600.0
ANSWER_S: Final = 5.0


class Unavailable:
    """The answer is not known now, and may be later."""


UNAVAILABLE: Final = Unavailable()

Found = Any
"""The object that was looked for; None: there is none; ``UNAVAILABLE``."""

Key = tuple[str, ...]


class _Kept:
    __slots__ = ("device", "known_at", "value")

    def __init__(self, value: Any, device: str, known_at: float) -> None:
        self.value = value
        self.device = device
        self.known_at = known_at


class Directory:
    """The tenants, and what is kept of their devices.

    Args:
        clock: returns the time in seconds.
        ask: asks the control process: takes the question, and what is called with the answer, or with None when none
            came; returns false if it cannot be asked now.
        tenant_changed: called with the id of a tenant that came, changed or went.
        device_changed: called with the ids of the tenant and of a device that changed; an empty one: all of them.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        ask: Callable[[dict[str, Any], Callable[[dict[str, Any] | None], None]], bool],
        tenant_changed: Callable[[str], None],
        device_changed: Callable[[str, str], None],
    ) -> None:
        self.tenants: dict[str, Tenant] = {}
        self._secret = secrets.token_bytes(32)
        self.has_all_tenants = False
        """True if the control process has told of every tenant since it came."""
        self.aliases: dict[str, str] = {}
        """The ids of the tenants that have one, by it."""
        self._in_space: dict[str, dict[str, Tenant]] = {}
        self._clock = clock
        self._ask = ask
        self._tenant_changed = tenant_changed
        self._device_changed = device_changed
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._of_device: dict[tuple[str, str], set[Key]] = {}
        self._absent: OrderedDict[Key, float] = OrderedDict()
        self._waiting: dict[Key, list[Callable[[Found], None]]] = {}
        self._outdated: set[Key] = set()
        """Those of them that were asked about before a change of their tenant."""

    # What control tells

    def put_tenant(self, tenant: Tenant) -> None:
        """Take note of a tenant, or of its present state."""
        known = self.tenants.get(tenant.id)
        if known is not None and (known.space, known.document) == (tenant.space, tenant.document):
            known.password_cost = tenant.password_cost
            return
        if known is not None:
            tenant.usage = known.usage
        self._forget_names(tenant.id)
        self.tenants[tenant.id] = tenant
        self._in_space.setdefault(tenant.space, {})[tenant.id] = tenant
        if tenant.alias:
            self.aliases[tenant.alias] = tenant.id
        # What is kept of its devices refers to its former state.
        self.forget(tenant.id)
        self._tenant_changed(tenant.id)

    def remove_tenant(self, identity: str) -> None:
        """Forget a tenant, and all of its devices."""
        self._forget_names(identity)
        if self.tenants.pop(identity, None) is not None:
            self.forget(identity)
            self._tenant_changed(identity)

    def _forget_names(self, identity: str) -> None:
        former = self.tenants.get(identity)
        if former is None:
            return
        if self.aliases.get(former.alias) == identity:
            del self.aliases[former.alias]
        there = self._in_space[former.space]
        del there[identity]
        if not there:
            del self._in_space[former.space]

    def keep_tenants(self, identities: set[str]) -> None:
        """Forget every tenant but these, which are all that there are."""
        self.has_all_tenants = True
        for identity in [each for each in self.tenants if each not in identities]:
            self.remove_tenant(identity)

    def forget_absent(self, tenant: str) -> None:
        """Ask again about what a tenant did not have."""
        for key in [key for key in self._absent if key[1] == tenant]:
            del self._absent[key]

    def forget(self, tenant: str, *devices: str) -> None:
        """Drop what is kept of devices, or of all devices of a tenant if none is named: it has changed."""
        self.forget_absent(tenant)
        # Of which device a login is that is asked about, is not known yet.
        self._outdated.update(key for key in self._waiting if key[1] == tenant)
        for device in devices:
            for key in self._of_device.pop((tenant, device), set()):
                self._kept.pop(key, None)
        if not devices:
            for key in [key for key in self._kept if key[1] == tenant]:
                self._drop(key)
        for device in devices or ("",):
            self._device_changed(tenant, device)

    def doubt(self) -> None:
        """Ask about everything again when it is next needed: changes may have gone unnoticed."""
        self.has_all_tenants = False
        for kept in self._kept.values():
            kept.known_at = min(kept.known_at, self._clock() - FRESH_S)
        self._absent.clear()
        self._outdated.update(self._waiting)

    def keeps(self, login: Login) -> bool:
        """Return true if credentials are those that are kept now: nothing is known to have changed."""
        keys = self._of_device.get((login.device.tenant.id, login.device.id), ())
        return any(self._kept[key].value is login for key in keys)

    def keeps_device(self, device: Device) -> bool:
        """Return true if a device is as it is kept now."""
        kept = self._kept.get(("device", device.tenant.id, device.id))
        return kept is not None and kept.value is device

    # What is looked for

    def made_up_cost(self, realm: str) -> int:
        """Return what the check of a password costs where there is no such tenant: as in one that there is.

        It is always the same one for a realm, so that what attempts at several realms cost says nothing.
        """
        if not self.tenants:
            return DEFAULT_COST
        chosen = int.from_bytes(
            hashlib.blake2b(realm.encode("utf-8", "surrogatepass"), key=self._secret).digest()[:8]
        )
        return next(islice(self.tenants.values(), chosen % len(self.tenants), None)).password_cost

    def tenant(self, name: str) -> Tenant | None:
        """Return a tenant by its id or alias."""
        return self.tenants.get(name) or self.tenant_of_alias(name)

    def tenant_of_alias(self, alias: str) -> Tenant | None:
        """Return the tenant that has an alias."""
        return self.tenants.get(self.aliases.get(alias, ""))

    def tenants_in(self, space: str) -> Collection[Tenant]:
        """Return the tenants whose addresses are in a space."""
        return self._in_space.get(space, {}).values()

    def find_login(self, tenant: Tenant, kind: str, auth_id: str, done: Callable[[Found], None]) -> None:
        """Find the credentials of a type with an auth-id; ``done`` is called with a ``Login``, now or later."""

        def made(document: Document) -> Login:
            device = Device(tenant, document["device-id"], document["device"])
            return Login(device, document["credentials"])

        question = {"what": "credentials", "tenant": tenant.id, "type": kind, "auth-id": auth_id}
        self._find(("login", tenant.id, kind, auth_id), question, made, done)

    def find_device(self, tenant: Tenant, identity: str, done: Callable[[Found], None]) -> None:
        """Find a device by its id; ``done`` is called with a ``Device``, now or later."""

        def made(document: Document) -> Device:
            return Device(tenant, identity, document["device"])

        self._find(
            ("device", tenant.id, identity),
            {"what": "device", "tenant": tenant.id, "device-id": identity},
            made,
            done,
        )

    def _find(
        self, key: Key, question: dict[str, Any], made: Callable[[Document], Any], done: Callable[[Found], None]
    ) -> None:
        now = self._clock()
        kept = self._kept.get(key)
        if kept is not None and now - kept.known_at < FRESH_S:
            done(kept.value)
            return
        absent = self._absent.get(key)
        if absent is not None and now - absent < FRESH_S:
            done(None)
            return
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(done)
            return
        if len(self._waiting) >= MAX_ASKED:
            done(self._stale(key))
            return
        self._waiting[key] = [done]

        def answered(answer: dict[str, Any] | None) -> None:
            is_outdated = key in self._outdated
            self._outdated.discard(key)
            found = self._stale(key) if answer is None else self._learn(key, answer, made, is_kept=not is_outdated)
            for each in self._waiting.pop(key):
                each(found)

        if not self._ask(question, answered):
            answered(None)

    def _stale(self, key: Key) -> Found:
        kept = self._kept.get(key)
        return kept.value if kept is not None and self._clock() - kept.known_at < STALE_S else UNAVAILABLE

    def _learn(self, key: Key, answer: dict[str, Any], made: Callable[[Document], Any], *, is_kept: bool) -> Found:
        self._drop(key)
        if answer.get("error"):
            return UNAVAILABLE
        tenant = self.tenants.get(key[1])
        if tenant is not None and "password-cost" in answer:
            tenant.password_cost = answer["password-cost"]
        document = answer.get("found")
        if not is_kept:
            return None if document is None else made(document)
        if document is None:
            if len(self._absent) >= MAX_ABSENT:
                self._absent.popitem(last=False)
            self._absent[key] = self._clock()
            return None
        if len(self._kept) >= MAX_KEPT:
            self._drop(next(iter(self._kept)))
        value = made(document)
        device = value.device.id if isinstance(value, Login) else value.id
        self._kept[key] = _Kept(value, device, self._clock())
        self._of_device.setdefault((key[1], device), set()).add(key)
        return value

    def _drop(self, key: Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is None:
            return
        keys = self._of_device.get((key[1], kept.device))
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._of_device[key[1], kept.device]
