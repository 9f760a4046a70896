"""Reconcile spaces with the Keycloak that their authentication service names: a realm for each space, with its users.

Rules:
1. Reconciling compares a realm with what is declared and corrects what differs, no matter who has changed it. Things
   that others have put into a realm, users of a directory for instance, are left alone.
2. Keys: ``space:<key>`` is a realm with all its users, ``user:<key>`` one user, ``service:<name>`` a service of any
   type: whether it can be used, and if it is a Keycloak, the realms of spaces that no longer exist.
3. While a Keycloak is away nothing is lost: what to do there follows from what is declared.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from enmasse.control.ports import RealmConflictError, RealmUnavailableError, RealmUser
from enmasse.control.runtime.controller import Controller
from enmasse.control.runtime.verdicts import ADMITTED, Verdict, condition
from enmasse.control.users.authentication_services import (
    PASSWORDS_MISSING,
    MissingError,
    is_realm_missing,
    judge_service,
    keycloak_of,
    secret_entry,
)
from enmasse.control.users.passwords import REALM_ASIDE, RealmPassword, node_pattern
from enmasse.identity.federation import group_of, realm_name
from enmasse.model.kinds.users import MessagingUser
from enmasse.model.schema.conditions import READY, with_effect
from enmasse.model.schema.kinds import ADDRESS_SPACE, AUTHENTICATION_SERVICE, MESSAGING_USER, SECRET
from enmasse.model.schema.names import PLAN_NAMESPACE
from enmasse.model.schema.objects import restore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from enmasse.control.context import Context
    from enmasse.control.ports import ConnectRealmAdmin, RealmAdmin
    from enmasse.control.store.port import Change, Document, Store
    from enmasse.model.kinds.authentication import AuthenticationService
    from enmasse.model.kinds.spaces import AddressSpace


_PAGE = 500
_KINDS = frozenset({ADDRESS_SPACE.name, MESSAGING_USER.name, AUTHENTICATION_SERVICE.name, SECRET.name})

_log = logging.getLogger(__name__)


class RealmController(Controller):
    """Reconciles declared spaces and users with Keycloaks.

    Args:
        context: the context of the controllers.
        connect: connects to a Keycloak.
        resync_s: seconds between two checks for drift.
    """

    name = "realms"
    workers = 4

    def __init__(self, context: Context, connect: ConnectRealmAdmin, *, resync_s: float = 60.0) -> None:
        super().__init__(jitter=context.jitter)
        self._store = context.store
        self._desired = context.desired
        self._providers = context.providers
        self._statuses = context.statuses
        self._connect = connect
        self._now = context.now
        self._resync_s = resync_s
        self._admins: dict[str, tuple[tuple[str, ...], RealmAdmin]] = {}
        """By service: the settings of its connection, and the connection."""
        self._deleted: dict[str, tuple[str, str, str]] = {}
        """Users that are no longer declared, by key: space, name and uid."""

    async def run_beside(self) -> None:
        """Enqueue everything from time to time, for drift, until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._resync_s)
                self._enqueue_all()
        finally:
            for _, admin in self._admins.values():
                await admin.close()

    # Following the store

    def load(self, store: Store) -> None:
        """Enqueue everything."""
        self._enqueue_all()

    def _enqueue_all(self) -> None:
        for name in self._providers.services:
            self.enqueue(f"service:{name}", background=True)
        for key, space in self._desired.spaces.items():
            if keycloak_of(self._providers.service_of(space)) is not None:
                self.enqueue(f"space:{key}", background=True)

    def apply(self, change: Change) -> None:
        """Take one change."""
        document, kind = change.document, change.document["kind"]
        if kind not in _KINDS or _is_status_only(change):
            return
        metadata = document["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        if kind == MESSAGING_USER.name:
            self._apply_user(change, key)
        elif kind == ADDRESS_SPACE.name and change.action != "DELETED":
            self.enqueue(f"space:{key}")
        else:
            self._enqueue_all()

    def _apply_user(self, change: Change, key: str) -> None:
        before, document = change.before, change.document
        space = f"{document['metadata']['namespace']}/{document['metadata']['name'].partition('.')[0]}"
        if change.action == "DELETED":
            self._deleted[key] = (space, document["spec"]["username"], document["metadata"]["uid"])
        else:
            self._deleted.pop(key, None)
            if before is not None and before["spec"]["username"] != document["spec"]["username"]:
                self.enqueue(f"space:{space}")
        self.enqueue(f"user:{key}")

    # Reconciling

    async def reconcile(self, key: str) -> bool:
        """Reconcile a service, a realm or one of its users."""
        kind, _, name = key.partition(":")
        if kind == "service":
            return await self._reconcile_service(name)
        if kind == "space":
            return await self._reconcile_space(name)
        return await self._reconcile_user(name)

    async def _reconcile_service(self, name: str) -> bool:
        """Publish whether a service can be used; remove the realms of spaces that no longer exist."""
        service = self._providers.services.get(name)
        if service is None:
            return True
        verdict = judge_service(service, self._providers.find_secret)
        try:
            if verdict.is_yes and keycloak_of(service) is not None:
                admin = self._admin_of(service)
                found = await admin.realms(service.metadata.uid)
                # Not before: a space that is declared meanwhile may have its realm already.
                uids = {space.metadata.uid for space in self._desired.spaces.values()}
                for realm, uid in found.items():
                    if uid not in uids:
                        await admin.delete_realm(realm)
                        _log.info("realm %s is removed with its space", realm)
        except (MissingError, RealmUnavailableError) as error:
            verdict = _verdict_of(error)
        generation = service.metadata.generation
        conditions = with_effect((condition(READY, verdict, generation),), list(service.unapplied()), generation)
        status = service.status.with_conditions(conditions, self._now())
        status = status.model_copy(update={"message": verdict.message or None})
        self._statuses.publish(service, status, partial(self.enqueue, f"service:{service.metadata.name}"))
        return verdict.is_yes or keycloak_of(service) is None

    async def _reconcile_space(self, key: str) -> bool:
        """Make a realm as it is declared."""
        space = self._desired.spaces.get(key)
        service = None if space is None else self._providers.service_of(space)
        if space is None or service is None or keycloak_of(service) is None:
            self._providers.set_state(key, None)
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
        self._providers.set_state(key, verdict)
        return not is_realm_missing(verdict)

    async def _put_users(self, admin: RealmAdmin, realm: str, space: str) -> list[str]:
        """Make the users of a realm as they are declared; return the names of those without a password."""
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

    async def _reconcile_user(self, key: str) -> bool:
        namespace, _, name = key.partition("/")
        deleted = self._deleted.get(key)
        space_key = deleted[0] if deleted else f"{namespace}/{name.partition('.')[0]}"
        space = self._desired.spaces.get(space_key)
        service = None if space is None else self._providers.service_of(space)
        if space is None or service is None or keycloak_of(service) is None or space.metadata.deletion_timestamp:
            self._deleted.pop(key, None)
            return True
        if not self._providers.has_realm(space_key):
            return True  # its users have their turn with the realm
        try:
            admin, realm = self._admin_of(service), realm_of(space)
            if deleted is not None:
                found = await admin.find_user(realm, deleted[1])
                if found is not None and found.uid == deleted[2]:
                    await admin.delete_user(realm, found)
                self._deleted.pop(key, None)
                return True
            document = self._store.find(MESSAGING_USER.name, namespace, name)
            user = None if document is None else self._wanted(document)
            if user is None:
                self.enqueue(f"space:{space_key}")  # it may have been another one
                return True
            present = await admin.find_user(realm, user.username)
            if present != user:
                await admin.put_user(realm, user, present, self._password(user.uid))
        except (MissingError, RealmUnavailableError, RealmConflictError) as error:
            _log.info("user %s: %s", key, error)
            self.enqueue(f"space:{space_key}")
        return True

    # What is wanted

    def _documents_of(self, space: str) -> Iterator[Document]:
        namespace, _, name = space.partition("/")
        after = (namespace, f"{name}.")
        while page := self._store.page(MESSAGING_USER.name, namespace, after=after, limit=_PAGE):
            for _, found, _ in page:
                if not found.startswith(f"{name}."):
                    return
                document = self._store.find(MESSAGING_USER.name, namespace, found)
                if document is not None:
                    yield document
            after = page[-1][:2]

    def _wanted(self, document: Document) -> RealmUser | None:
        """Return the user that a realm should have; None if it does not log in there."""
        user = restore(document)
        assert isinstance(user, MessagingUser)
        if user.spec.authentication.type != "password" or user.metadata.deletion_timestamp:
            return None
        kept = self._store.aside(user.metadata.uid, REALM_ASIDE)
        groups = {
            group_of(operation, node_pattern(address))
            for grant in user.spec.authorization
            for operation in grant.operations
            for address in (grant.addresses if operation in ("send", "recv") else ("",))
        }
        revision = "" if kept is None else RealmPassword.unpack(kept).id
        return RealmUser(user.spec.username, user.metadata.uid, revision, frozenset(groups))

    def _password(self, uid: str) -> Mapping[str, object] | None:
        kept = self._store.aside(uid, REALM_ASIDE)
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
    """Return the name of a space's realm."""
    return realm_name(space.metadata.namespace, space.metadata.name)


def _verdict_of(error: Exception) -> Verdict:
    if isinstance(error, MissingError):
        return Verdict(error.reason, str(error))
    reason = "RealmConflict" if isinstance(error, RealmConflictError) else "KeycloakUnavailable"
    return Verdict(reason, str(error))


def _is_status_only(change: Change) -> bool:
    """Return whether nothing but the status was written; what is put aside changes no status."""
    before, after = change.before, change.document
    if before is None or before.get("status") == after.get("status"):
        return False
    old, new = before["metadata"], after["metadata"]
    return all(old.get(name) == new.get(name) for name in ("uid", "generation", "deletionTimestamp"))
