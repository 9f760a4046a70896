"""Gives each space a realm in the Keycloak that its authentication service names, and keeps its users there.

Rules:
1. A look compares a realm with what is declared and puts right what differs, whoever has changed it. What others
   have put into a realm, users of a directory for instance, is left alone.
2. Keys: ``space:<key>`` is a realm with all its users, ``user:<key>`` one user, ``service:<name>`` a service of any
   type: whether it can be used, and if it is a Keycloak, the realms of spaces that are no more.
3. While a Keycloak is away nothing is lost: what is to be done there follows from what is declared.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from enmasse.control.authentication import (
    PASSWORDS_MISSING,
    MissingError,
    is_realm_missing,
    judge_service,
    keycloak_of,
    secret_entry,
)
from enmasse.control.realm_passwords import ASIDE, RealmPassword
from enmasse.control.realm_port import RealmConflictError, RealmUnavailableError, RealmUser
from enmasse.control.runtime import Controller
from enmasse.control.space_planning import condition
from enmasse.control.statuses import StatusWriter
from enmasse.control.user_planning import told_pattern
from enmasse.control.verdicts import ADMITTED, Verdict
from enmasse.identity.keycloak import group_of, realm_name
from enmasse.model.conditions import READY
from enmasse.model.kinds import restore
from enmasse.model.plans import PLAN_NAMESPACE
from enmasse.model.users import MessagingUser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from enmasse.control.identity_providers import IdentityProviders
    from enmasse.control.realm_port import ConnectRealmAdmin, RealmAdmin
    from enmasse.control.store import Change, Document, ResourceStore
    from enmasse.model.authentication import AuthenticationService
    from enmasse.model.spaces import AddressSpace

__all__ = ["RealmController"]

_PAGE = 500
_KINDS = frozenset({"AddressSpace", "MessagingUser", "AuthenticationService", "Secret"})

_log = logging.getLogger(__name__)


class RealmController:
    """Reconciles declared spaces and users with Keycloaks; a listener of the store's changes.

    Args:
        store: where the declarations lie.
        spaces: all spaces that are declared, by key.
        providers: knows which service a space has, and is told how the realms are.
        connect: makes the way to a Keycloak.
        now: gives the present, RFC 3339 in UTC.
        jitter: gives a factor around 1 for delays.
        resync_s: seconds between two checks for drift.

    Attributes:
        controller: to be run by a ``Runtime``, which this listens to.
    """

    def __init__(
        self,
        store: ResourceStore,
        spaces: Callable[[], Mapping[str, AddressSpace]],
        providers: IdentityProviders,
        connect: ConnectRealmAdmin,
        *,
        now: Callable[[], str],
        jitter: Callable[[], float],
        resync_s: float = 60.0,
    ) -> None:
        self.controller = Controller("realms", self._look, jitter=jitter, workers=4)
        self._store = store
        self._spaces = spaces
        self._providers = providers
        self._statuses = StatusWriter(
            store, lambda service: self.controller.look_at(f"service:{service.metadata.name}")
        )
        self._connect = connect
        self._now = now
        self._resync_s = resync_s
        self._admins: dict[str, tuple[tuple[str, ...], RealmAdmin]] = {}
        """By service: what it was connected with, and the way there."""
        self._gone: dict[str, tuple[str, str, str]] = {}
        """Users that are declared no more, by key: space, name and uid."""

    async def run(self) -> None:
        """Publish what was found, and look for drift, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._statuses.run(), name="publish statuses of services")
                while True:
                    await asyncio.sleep(self._resync_s)
                    self._look_at_all()
        finally:
            for _, admin in self._admins.values():
                await admin.close()

    # Following the store

    def load(self, store: ResourceStore) -> None:
        """Have everything looked at."""
        self._look_at_all()

    def _look_at_all(self) -> None:
        for name in self._providers.services:
            self.controller.look_at(f"service:{name}", background=True)
        for key, space in self._spaces().items():
            if keycloak_of(self._providers.service_of(space)) is not None:
                self.controller.look_at(f"space:{key}", background=True)

    def apply(self, change: Change) -> None:
        """Take one change."""
        document, kind = change.document, change.document["kind"]
        if kind not in _KINDS or _is_status_only(change):
            return
        metadata = document["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        if kind == "MessagingUser":
            self._apply_user(change, key)
        elif kind == "AddressSpace" and change.action != "DELETED":
            self.controller.look_at(f"space:{key}")
        else:
            self._look_at_all()

    def _apply_user(self, change: Change, key: str) -> None:
        before, document = change.before, change.document
        space = f"{document['metadata']['namespace']}/{document['metadata']['name'].partition('.')[0]}"
        if change.action == "DELETED":
            self._gone[key] = (space, document["spec"]["username"], document["metadata"]["uid"])
        else:
            self._gone.pop(key, None)
            if before is not None and before["spec"]["username"] != document["spec"]["username"]:
                self.controller.look_at(f"space:{space}")
        self.controller.look_at(f"user:{key}")

    # Looking

    async def _look(self, key: str) -> bool:
        kind, _, name = key.partition(":")
        if kind == "service":
            return await self._look_at_service(name)
        if kind == "space":
            return await self._look_at_space(name)
        return await self._look_at_user(name)

    async def _look_at_service(self, name: str) -> bool:
        """Say whether a service can be used; remove the realms of spaces that are no more."""
        service = self._providers.services.get(name)
        if service is None:
            return True
        verdict = judge_service(service, self._providers.find_secret)
        try:
            if verdict.is_yes and keycloak_of(service) is not None:
                admin = self._admin_of(service)
                found = await admin.realms(service.metadata.uid)
                # Not before: a space that is declared meanwhile may have its realm already.
                uids = {space.metadata.uid for space in self._spaces().values()}
                for realm, uid in found.items():
                    if uid not in uids:
                        await admin.delete_realm(realm)
                        _log.info("realm %s is removed with its space", realm)
        except (MissingError, RealmUnavailableError) as error:
            verdict = _verdict_of(error)
        ready = condition(READY, verdict, service.metadata.generation)
        status = service.status.with_conditions((ready,), self._now())
        status = status.model_copy(update={"message": verdict.message or None})
        self._statuses.publish(service, status)
        return verdict.is_yes or keycloak_of(service) is None

    async def _look_at_space(self, key: str) -> bool:
        """Bring a realm to what is declared."""
        space = self._spaces().get(key)
        service = None if space is None else self._providers.service_of(space)
        if space is None or service is None or keycloak_of(service) is None:
            self._providers.say(key, None)
            return True
        if space.metadata.deletion_timestamp:
            return True
        verdict = ADMITTED
        try:
            admin, realm = self._admin_of(service), realm_of(space)
            await admin.ensure_realm(realm, service.metadata.uid, space.metadata.uid)
            without = await self._put_users(admin, realm, key)
            if without:
                verdict = Verdict(
                    PASSWORDS_MISSING,
                    f"{len(without)} users cannot log in before their passwords are set anew, as they were set while "
                    f"the address space had another authentication service: {', '.join(without[:5])}",
                )
        except (MissingError, RealmUnavailableError, RealmConflictError) as error:
            verdict = _verdict_of(error)
        self._providers.say(key, verdict)
        return not is_realm_missing(verdict)

    async def _put_users(self, admin: RealmAdmin, realm: str, space: str) -> list[str]:
        """Bring the users of a realm to what is declared; return the names of those without a password."""
        found = await admin.users(realm)
        declared: set[str] = set()
        without = []
        for document in self._documents_of(space):
            user = self._wanted(document)
            if user is None:
                continue
            declared.add(user.username)
            if not user.revision:
                without.append(user.username)
            if found.get(user.username) != user:
                await admin.put_user(realm, user, found.get(user.username), self._password(user.uid))
        for username in found.keys() - declared:
            await admin.delete_user(realm, found[username])
        return without

    async def _look_at_user(self, key: str) -> bool:
        namespace, _, name = key.partition("/")
        gone = self._gone.get(key)
        space_key = gone[0] if gone else f"{namespace}/{name.partition('.')[0]}"
        space = self._spaces().get(space_key)
        service = None if space is None else self._providers.service_of(space)
        if space is None or service is None or keycloak_of(service) is None or space.metadata.deletion_timestamp:
            self._gone.pop(key, None)
            return True
        if not self._providers.has_realm(space_key):
            return True  # its users have their turn when the realm is looked at
        try:
            admin, realm = self._admin_of(service), realm_of(space)
            if gone is not None:
                found = await admin.find_user(realm, gone[1])
                if found is not None and found.uid == gone[2]:
                    await admin.delete_user(realm, found)
                self._gone.pop(key, None)
                return True
            document = self._store.find("MessagingUser", namespace, name)
            user = None if document is None else self._wanted(document)
            if user is None:
                self.controller.look_at(f"space:{space_key}")  # it may have been another one
                return True
            present = await admin.find_user(realm, user.username)
            if present != user:
                await admin.put_user(realm, user, present, self._password(user.uid))
        except (MissingError, RealmUnavailableError, RealmConflictError) as error:
            _log.info("user %s: %s", key, error)
            self.controller.look_at(f"space:{space_key}")
        return True

    # What is wanted

    def _documents_of(self, space: str) -> Iterator[Document]:
        namespace, _, name = space.partition("/")
        after = (namespace, f"{name}.")
        while page := self._store.page("MessagingUser", namespace, after=after, limit=_PAGE):
            for _, found, _ in page:
                if not found.startswith(f"{name}."):
                    return
                document = self._store.find("MessagingUser", namespace, found)
                if document is not None:
                    yield document
            after = page[-1][:2]

    def _wanted(self, document: Document) -> RealmUser | None:
        """What a realm should have of a declared user; nothing if it does not log in there."""
        user = restore(document)
        assert isinstance(user, MessagingUser)
        if user.spec.authentication.type != "password" or user.metadata.deletion_timestamp:
            return None
        kept = self._store.aside(user.metadata.uid, ASIDE)
        groups = {
            group_of(operation, told_pattern(address))
            for grant in user.spec.authorization
            for operation in grant.operations
            for address in (grant.addresses if operation in ("send", "recv") else ("",))
        }
        revision = "" if kept is None else RealmPassword.unpack(kept).id
        return RealmUser(user.spec.username, user.metadata.uid, revision, frozenset(groups))

    def _password(self, uid: str) -> Mapping[str, object] | None:
        kept = self._store.aside(uid, ASIDE)
        return None if kept is None else RealmPassword.unpack(kept).hashed

    def _admin_of(self, service: AuthenticationService) -> RealmAdmin:
        keycloak = keycloak_of(service)
        assert keycloak is not None
        find = self._providers.find_secret
        namespace, secret = service.metadata.namespace or PLAN_NAMESPACE, keycloak.credentials_secret
        place = secret.namespace or namespace, secret.name
        ca_cert = ""
        if keycloak.ca_cert_secret is not None:
            trusted = keycloak.ca_cert_secret
            ca_cert = secret_entry(find, trusted.namespace or namespace, trusted.name, "ca.crt")
        given = (
            keycloak.url,
            secret_entry(find, *place, "admin.username"),
            secret_entry(find, *place, "admin.password"),
            ca_cert,
        )
        name = service.metadata.name
        known = self._admins.get(name)
        if known is None or known[0] != given:
            # The former one ends by itself: others may be using it.
            known = self._admins[name] = (given, self._connect(*given))
        return known[1]


def realm_of(space: AddressSpace) -> str:
    """The name of a space's realm."""
    return realm_name(space.metadata.namespace, space.metadata.name)


def _verdict_of(error: Exception) -> Verdict:
    if isinstance(error, MissingError):
        return Verdict(error.reason, str(error))
    reason = "RealmConflict" if isinstance(error, RealmConflictError) else "KeycloakUnavailable"
    return Verdict(reason, str(error))


def _is_status_only(change: Change) -> bool:
    """Whether nothing but the status was written; what is put aside goes without a change of the status."""
    before, after = change.before, change.document
    if before is None or before.get("status") == after.get("status"):
        return False
    old, new = before["metadata"], after["metadata"]
    return all(old.get(name) == new.get(name) for name in ("uid", "generation", "deletionTimestamp"))
