"""Brings messaging users to a node, and says how far they are.

Rules:
1. Of a user that a node has, its uid and its revision are known here; all else lies in the store.
2. Two kinds of keys are looked at: ``<namespace>/<name>`` is a declared user, ``uid:<uid>`` one that the node has
   and that may be declared no more.
3. A user that is served stays served, and is said to be, while the node cannot be reached: it keeps its users itself.
4. Nobody comes into a space that is going; its users are deleted with all else that is in it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from enmasse.control.address_controller import NOT_ADOPTABLE
from enmasse.control.adoption import adopted_user
from enmasse.control.effective import effective_space_limits
from enmasse.control.errors import ForbiddenError, NodeRefusedError, NodeUnavailableError
from enmasse.control.installation import admit_node
from enmasse.control.runtime import Controller
from enmasse.control.statuses import StatusWriter
from enmasse.control.user_credentials import ASIDE, Credentials
from enmasse.control.user_planning import (
    SpaceFacts,
    UserVerdict,
    judge_user,
    revision_of,
    user_conditions,
    user_entity,
)
from enmasse.control.user_port import UserSighting
from enmasse.model.conditions import READY, Condition
from enmasse.model.kinds import restore
from enmasse.model.names import space_of
from enmasse.model.plans import PLAN_NAMESPACE, AddressSpacePlan
from enmasse.model.spaces import AddressSpace
from enmasse.model.users import MessagingUser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from enmasse.control.address_controller import Kept
    from enmasse.control.events import EventRecorder
    from enmasse.control.installation import Removals
    from enmasse.control.registry import Registry
    from enmasse.control.store import Change, Document, ResourceStore
    from enmasse.control.user_port import UserAdmin, UserEntity

__all__ = ["UserController"]

_log = logging.getLogger(__name__)

_UID = "uid:"
_PAGE = 1_000
_AGAIN_S = 1.0
_KIND = "MessagingUser"
_SERVED = UserVerdict("Served", is_yes=True)


def _declared_authentication(space: AddressSpace) -> str | None:
    return space.spec.authentication_service.kind


class UserController:
    """Reconciles declared users with those of one node; a listener of the store's changes.

    Args:
        registry: where the declarations lie and the conditions go.
        node: the way to the node.
        removals: what the node has to delete yet.
        kept: takes what is left on the node although it is not declared, and why.
        now: gives the present, RFC 3339 in UTC.
        jitter: gives a factor around 1 for delays.
        authentication_of: tells the kind of a space's authentication service; None where that does not exist.
        events: is told what happened to users.
        looked: hears how long each look took, in seconds.

    Attributes:
        controller: to be run by a ``Runtime``, which this listens to.
    """

    def __init__(
        self,
        registry: Registry,
        node: UserAdmin,
        removals: Removals,
        kept: Kept,
        *,
        now: Callable[[], str],
        jitter: Callable[[], float],
        authentication_of: Callable[[AddressSpace], str | None] = _declared_authentication,
        events: EventRecorder | None = None,
        looked: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self.controller = Controller("users", self._look, jitter=jitter, looked=looked)
        self._registry = registry
        self._store: ResourceStore = registry.store
        self._node = node
        self._removals = removals
        self._kept = kept
        self._now = now
        self._authentication_of = authentication_of
        self._events = events
        self._statuses = StatusWriter(registry.store, lambda user: self.controller.look_at(user.key))
        self._spaces: dict[str, SpaceFacts] = {}
        self._plans: dict[str, AddressSpacePlan] = {}
        self._observed: dict[str, UserSighting] = {}
        """What the node has, by uid."""
        self._is_observed = False
        self._is_reachable = True
        self._turned = asyncio.Event()
        self._places: Counter[str] = Counter()
        """Users of each space that the node has, or is being told of."""
        self._waiting: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """Users of each space that have no place there, because it is full, and since when they are declared."""

    # Following the store

    def load(self, store: ResourceStore) -> None:
        """Take up what the store holds."""
        self._plans = {}
        for document in store.select("AddressSpacePlan", PLAN_NAMESPACE):
            self._put_plan(document)
        self._spaces = {}
        for document in store.select("AddressSpace"):
            self._put_space(document)
        if self._is_observed or not self._is_reachable:
            # Else all are looked at as soon as the node has told what it has.
            for _ in self._pages_looked_at():
                pass

    def _pages_looked_at(self) -> Iterator[None]:
        """Have all users looked at, page by page."""
        after: tuple[str, str] | None = None
        while page := self._store.page(_KIND, after=after, limit=_PAGE):
            for namespace, name, _ in page:
                self.controller.look_at(f"{namespace}/{name}", background=True)
            after = page[-1][:2]
            yield
        for number, uid in enumerate({**self._observed, **dict.fromkeys(self._removals.uids(_KIND))}):
            self.controller.look_at(_UID + uid, background=True)
            if number % _PAGE == 0:
                yield

    def apply(self, change: Change) -> None:
        """Take one change."""
        document, kind = change.document, change.document["kind"]
        metadata = document["metadata"]
        if kind == _KIND:
            if change.action == "DELETED":
                self.controller.look_at(_UID + metadata["uid"])
            elif _is_status_only(change):
                return
            key = f"{metadata['namespace']}/{metadata['name']}"
            self._stop_waiting(_space_key(metadata), key)
            self.controller.look_at(key)
        elif kind == "AddressSpace":
            key = f"{metadata['namespace']}/{metadata['name']}"
            before = self._spaces.pop(key, None)
            if change.action != "DELETED":
                self._put_space(document)
            if self._spaces.get(key) != before:
                self._look_at_users_of(key)
        elif kind == "AuthenticationService":
            before_all = dict(self._spaces)
            for space in self._store.select("AddressSpace"):
                self._put_space(space)
            for key, facts in self._spaces.items():
                if facts != before_all.get(key):
                    self._look_at_users_of(key)
        elif kind == "AddressSpacePlan" and metadata["namespace"] == PLAN_NAMESPACE:
            self._plans.pop(metadata["name"], None)
            if change.action != "DELETED":
                self._put_plan(document)
            for document in self._store.select("AddressSpace"):
                self._put_space(document)
            for waiting in list(self._waiting):
                self._look_at_waiting(waiting)

    def _put_plan(self, document: Document) -> None:
        plan = restore(document)
        assert isinstance(plan, AddressSpacePlan)
        self._plans[plan.metadata.name] = plan

    def _put_space(self, document: Document) -> None:
        space = restore(document)
        assert isinstance(space, AddressSpace)
        plan = self._plans.get(space.spec.plan_name)
        self._spaces[space.key] = SpaceFacts(
            key=space.key,
            uid=space.metadata.uid,
            authentication=self._authentication_of(space),
            most_users=effective_space_limits(space.spec, plan.spec if plan is not None else None).users or 0,
            is_leaving=bool(space.metadata.deletion_timestamp),
        )

    def _look_at_users_of(self, key: str) -> None:
        namespace, _, space = key.partition("/")
        after = (namespace, f"{space}.")
        while page := self._store.page(_KIND, namespace, after=after, limit=_PAGE):
            for _, name, _ in page:
                if not name.startswith(f"{space}."):
                    return
                self.controller.look_at(f"{namespace}/{name}", background=True)
            after = page[-1][:2]

    def _look_at_waiting(self, space: str) -> None:
        found = self._waiting.pop(space, {})
        for key in sorted(found, key=lambda key: (found[key], key)):
            self.controller.look_at(key, background=True)

    def _stop_waiting(self, space: str, key: str) -> None:
        waiting = self._waiting.get(space)
        if waiting is not None:
            waiting.pop(key, None)
            if not waiting:
                del self._waiting[space]

    # Following the node

    async def run(self) -> None:
        """Keep the node in view, and publish what was found, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._statuses.run(), name="publish the statuses of users")
            tasks.create_task(self._follow_node(), name="follow the node for users")
            tasks.create_task(self._keep_in_view(), name="users of the node")

    async def _follow_node(self) -> None:
        async for is_reachable in self._node.connections():
            _log.info("users: the node is %s", "reachable" if is_reachable else "not reachable")
            self._is_reachable = is_reachable
            self._is_observed = False
            self._turned.set()

    async def _keep_in_view(self) -> None:
        problem = ""
        while True:
            await self._turned.wait()
            self._turned.clear()
            if self._is_reachable:
                try:
                    await self._observe()
                except (NodeUnavailableError, NodeRefusedError) as error:
                    if str(error) != problem:  # that of another installation stays so for long
                        _log.info("users: the node does not tell what it has: %s", error)
                    problem = str(error)
                    await asyncio.sleep(_AGAIN_S)
                    self._turned.set()
                    continue
            for _ in self._pages_looked_at():
                await asyncio.sleep(0)  # others have their turn

    async def _observe(self) -> None:
        """Have the node tell all users that it has; what is told of one meanwhile has its turn afterwards."""
        await admit_node(self._store, self._node)
        observed: dict[str, UserSighting] = {}
        async for page in self._node.users_after(""):
            observed |= {sighting.uid: sighting for sighting in page}
        self._observed = observed
        self._places = Counter(_space_of_entity(sighting.name) for sighting in observed.values())
        self._is_observed = True

    # Looking

    async def _look(self, key: str) -> bool:
        """Look at one key and put it right; return whether nothing is left to do."""
        if key.startswith(_UID):
            return await self._look_at_sighting(key[len(_UID) :])
        namespace, _, name = key.partition("/")
        document = self._store.find(_KIND, namespace, name)
        if document is None:
            return True
        space = self._spaces.get(_space_key(document["metadata"]))
        if not self._is_observed and self._is_reachable:
            return True  # looked at again as soon as the node has told what it has
        if self._is_fine(document, space):
            return True
        return await self._look_at_user(document, space)

    def _is_fine(self, document: Document, space: SpaceFacts | None) -> bool:
        """Tell whether a user is served and says so; quickly, as all are looked at when the process starts."""
        metadata = document["metadata"]
        generation = metadata["generation"]
        is_said = any(
            condition["type"] == READY
            and condition["status"] == "True"
            and condition.get("observedGeneration") == generation
            for condition in document.get("status", {}).get("conditions", ())
        )
        if not is_said or space is None or not judge_user("", space).is_yes:
            return False
        there = self._observed.get(metadata["uid"])
        if there is None:
            return not self._is_reachable
        kept = self._store.aside(metadata["uid"], ASIDE)
        credentials_id = "" if kept is None else Credentials.id_of(kept)
        return there.revision == revision_of(space.uid, metadata["uid"], generation, credentials_id)

    async def _look_at_sighting(self, uid: str) -> bool:
        """Take a user from the node that was deleted; one that nobody has deleted is declared as it is there."""
        sighting = self._observed.get(uid)
        if self._store.find_uid(uid) is not None or not (sighting or self._is_observed):
            return True
        if sighting is not None and not self._removals.has(uid):
            return await self._adopt(sighting)
        if sighting is not None:
            await self._remove(sighting)
        self._removals.confirm({uid})
        return True

    async def _adopt(self, sighting: UserSighting) -> bool:
        """Declare a user as the node has it."""
        key = ("user", sighting.name)
        entity = await self._node.read_user(sighting.name)
        if entity is None or entity.uid != sighting.uid:
            self._observed.pop(sighting.uid, None)
            self._kept.pop(key, None)
            return True
        space = self._spaces.get(entity.space)
        if self._removals.has(entity.uid) or (self._removals.has(entity.space_uid) and space is None):
            return True  # its deletion has it looked at
        try:
            if space is None or space.uid != entity.space_uid:
                raise ForbiddenError(f"its address space {entity.space} is not declared as the node has it")
            place = judge_user(entity.name, space)
            if not place.is_yes:
                raise ForbiddenError(place.message)
            is_external = space.authentication != "standard"
            user = adopted_user(entity, self._node.name, is_external=is_external)
            assert isinstance(user, MessagingUser)
            if user_entity(user, space, None).authorization != entity.authorization or len(entity.certificates) > 1:
                raise ForbiddenError("its rights or certificates cannot be said in a declaration")
            with self._store.transaction():
                if entity.scram:
                    # The revision ends with what tells these keys from others.
                    kept = {"id": entity.revision.rpartition("/")[2], "keys": entity.scram}
                    self._store.put_aside(entity.uid, ASIDE, json.dumps(kept, separators=(",", ":")).encode())
                self._registry.adopt(user)
        except NOT_ADOPTABLE as error:
            self._kept[key] = f"it cannot be declared as it is there: {error}"
            return False
        self._kept.pop(key, None)
        _log.warning("user %s, which the node has, was not declared: it is now", sighting.name)
        return True

    async def _remove(self, sighting: UserSighting) -> None:
        await self._node.delete_user(sighting.name)
        if self._observed.pop(sighting.uid, None) is not None:
            space = _space_of_entity(sighting.name)
            self._places[space] -= 1
            self._look_at_waiting(space)
        _log.info("user %s: taken from the node", sighting.name)

    async def _look_at_user(self, document: Document, space: SpaceFacts | None) -> bool:
        user = restore(document)
        assert isinstance(user, MessagingUser)
        kept = self._store.aside(user.metadata.uid, ASIDE)
        credentials = None if kept is None else Credentials.unpack(kept)
        place = judge_user(user.key, space)
        there = self._observed.get(user.metadata.uid)
        served = UserVerdict("Configuring", "the node is being told")
        try:
            if place.is_yes and space is not None:
                if there is None and space.most_users and self._places[space.key] >= space.most_users:
                    self._waiting[space.key][user.key] = user.metadata.creation_timestamp
                    place = UserVerdict(
                        "QuotaExceeded",
                        f"Quota exceeded for resource users: {space.most_users} are allowed and there",
                    )
                else:
                    served = await self._serve(user_entity(user, space, credentials), there)
            elif there is not None and space is not None:
                # Nobody can come in as this user now, and what it was told is out of date one day.
                await self._remove(there)
        except NodeUnavailableError as error:
            self._publish(
                user, space, place, UserVerdict("NodeUnavailable", "the node cannot be reached"), credentials
            )
            _log.debug("user %s: %s", user.key, error)
            return not self._is_reachable  # all are looked at when it is back
        self._publish(user, space, place, served, credentials)
        return served.is_yes or not place.is_yes

    async def _serve(self, entity: UserEntity, there: UserSighting | None) -> UserVerdict:
        """Have the node know a user as it is declared now."""
        if there is not None and there.revision == entity.revision and there.name == entity.name:
            return _SERVED
        if not self._is_reachable:
            raise NodeUnavailableError("the node is not connected")
        if there is not None and there.name != entity.name:
            await self._remove(there)
            there = None
        is_new = there is None
        self._places[entity.space] += is_new
        try:
            if is_new:
                await self._create(entity)
            else:
                await self._node.update_user(entity)
        except NodeRefusedError as error:
            self._places[entity.space] -= is_new
            if not is_new and error.status == 404:
                self._places[entity.space] -= 1
                self._observed.pop(entity.uid, None)
            _log.warning("user %s: %s", entity.name, error)
            return UserVerdict("NodeRefused", str(error))
        except BaseException:
            self._places[entity.space] -= is_new
            raise
        self._observed[entity.uid] = UserSighting(entity.name, entity.uid, entity.revision)
        return _SERVED

    async def _create(self, entity: UserEntity) -> None:
        try:
            await self._node.create_user(entity)
        except NodeRefusedError as error:
            found = await self._node.find_user(entity.name) if error.status == 409 else None
            if found is None:
                raise
            if found.uid == entity.uid:
                # An answer got lost.
                await self._node.update_user(entity)
                return
            if self._store.find_uid(found.uid) is not None:
                raise NodeRefusedError(
                    409, f"another MessagingUser of the address space has the username {entity.username!r}"
                ) from None
            await self._node.delete_user(entity.name)
            self._observed.pop(found.uid, None)
            await self._node.create_user(entity)

    def _publish(
        self,
        user: MessagingUser,
        space: SpaceFacts | None,
        place: UserVerdict,
        served: UserVerdict,
        credentials: Credentials | None,
    ) -> None:
        found = user_conditions(user, space, place, served, has_keys=credentials is not None)
        status = user.status.with_conditions(found, self._now())
        message = "; ".join(status.messages) or None
        status = status.model_copy(update={"message": message, "generation": user.metadata.generation})
        self._statuses.publish(user, status)
        if status != user.status:
            self._tell(user, found)

    def _tell(self, user: MessagingUser, found: tuple[Condition, ...]) -> None:
        """Note an event where a user has become ready, or is not for a new reason."""
        (ready,) = (condition for condition in found if condition.type == READY)
        before = next((condition for condition in user.status.conditions if condition.type == READY), None)
        if self._events is None or (before is not None and before.reason == ready.reason):
            return
        self._events.record(
            kind=_KIND,
            namespace=user.metadata.namespace,
            name=user.metadata.name,
            uid=user.metadata.uid,
            type="Normal" if ready.status == "True" else "Warning",
            reason=ready.reason,
            message=ready.message or "the user can come in",
        )


def _is_status_only(change: Change) -> bool:
    """Tell whether nothing but the status was written; what is put aside goes without a change of the status."""
    before, after = change.before, change.document
    if before is None or before.get("status") == after.get("status"):
        return False
    old, new = before["metadata"], after["metadata"]
    return all(old.get(name) == new.get(name) for name in ("uid", "generation", "deletionTimestamp"))


def _space_key(metadata: Document) -> str:
    return f"{metadata['namespace']}/{space_of(metadata['name'])}"


def _space_of_entity(name: str) -> str:
    """Return the space of a node's user, which its name begins with."""
    namespace, _, rest = name.partition("/")
    return f"{namespace}/{rest.partition('.')[0]}"
