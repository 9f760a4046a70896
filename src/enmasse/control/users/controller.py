"""Reconcile messaging users with the nodes, and report their conditions.

Rules:
1. Of a user that a node has, its uid and its revision are kept here; all else lies in the store.
2. There are two kinds of keys: ``<namespace>/<name>`` is a declared user, ``uid:<uid>`` one that the node has
   and that may no longer be declared.
3. A user that is served stays served, and is reported so, while the node cannot be reached: the node keeps its users.
4. A terminating space accepts no new users; its users are deleted with everything else in it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from enmasse.control.context import together
from enmasse.control.errors import ForbiddenError, NodeUnavailableError
from enmasse.control.runtime.controller import Controller
from enmasse.control.spaces.adoption import NOT_ADOPTABLE, adopted_user
from enmasse.control.spaces.effective import effective_space_limits
from enmasse.control.users.node_users import SERVED, NodeUsers
from enmasse.control.users.passwords import ASIDE, Credentials
from enmasse.control.users.planning import (
    SpaceFacts,
    UserVerdict,
    judge_user,
    revision_of,
    user_conditions,
    user_entity,
)
from enmasse.model.kinds.plans import AddressSpacePlan
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.kinds.users import MessagingUser
from enmasse.model.schema.conditions import IN_EFFECT, READY, Condition
from enmasse.model.schema.kinds import ADDRESS_SPACE, ADDRESS_SPACE_PLAN, AUTHENTICATION_SERVICE, MESSAGING_USER
from enmasse.model.schema.names import PLAN_NAMESPACE, space_of
from enmasse.model.schema.objects import restore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from enmasse.control.context import Context
    from enmasse.control.ports import ObservedUser, UserAdmin
    from enmasse.control.store.port import Change, Document, Store


_log = logging.getLogger(__name__)

_UID = "uid:"
_PAGE = 1_000
_KIND = MESSAGING_USER.name
_CONFIGURING = UserVerdict("Configuring", "the node is being configured")


class UserController(Controller):
    """Reconciles declared users with all nodes.

    Args:
        context: the context of the controllers.
        admins: the ports to the users of the nodes, one for each node.
    """

    name = "users"

    def __init__(self, context: Context, admins: Iterable[UserAdmin]) -> None:
        super().__init__(jitter=context.jitter, observe=context.observe)
        self._context = context
        self._registry = context.registry
        self._store = context.store
        self._spaces: dict[str, SpaceFacts] = {}
        self._plans: dict[str, AddressSpacePlan] = {}
        self._nodes = [
            NodeUsers(context.nodes[admin.name], admin, context.store, self._enqueue_waiting) for admin in admins
        ]
        self._waiting: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """Users of each space that wait because it is full, and the time of their creation."""

    # Following the store

    def load(self, store: Store) -> None:
        """Load what the store holds."""
        self._plans = {}
        for document in store.select(ADDRESS_SPACE_PLAN.name, PLAN_NAMESPACE):
            self._put_plan(document)
        self._spaces = {}
        for document in store.select(ADDRESS_SPACE.name):
            self._put_space(document)
        if any(node.is_known for node in self._nodes):
            # Else all are enqueued as soon as the users of a node are known.
            for _ in self._enqueued_pages(self._nodes):
                pass

    def _enqueued_pages(self, nodes: list[NodeUsers]) -> Iterator[None]:
        """Enqueue all users, those that are declared and those of nodes, page by page."""
        after: tuple[str, str] | None = None
        while page := self._store.page(_KIND, after=after, limit=_PAGE):
            for namespace, name, _ in page:
                self.enqueue(f"{namespace}/{name}", background=True)
            after = page[-1][:2]
            yield
        for number, uid in enumerate(dict.fromkeys(uid for node in nodes for uid in node.uids())):
            self.enqueue(_UID + uid, background=True)
            if number % _PAGE == 0:
                yield

    def apply(self, change: Change) -> None:
        """Take one change."""
        document, kind = change.document, change.document["kind"]
        metadata = document["metadata"]
        if kind == _KIND:
            if change.action == "DELETED":
                self.enqueue(_UID + metadata["uid"])
            elif _is_status_only(change):
                return
            key = f"{metadata['namespace']}/{metadata['name']}"
            self._stop_waiting(_space_key(metadata), key)
            self.enqueue(key)
        elif kind == ADDRESS_SPACE.name:
            key = f"{metadata['namespace']}/{metadata['name']}"
            before = self._spaces.pop(key, None)
            if change.action != "DELETED":
                self._put_space(document)
            if self._spaces.get(key) != before:
                self._enqueue_users_of(key)
        elif kind == AUTHENTICATION_SERVICE.name:
            before_all = dict(self._spaces)
            for space in self._store.select(ADDRESS_SPACE.name):
                self._put_space(space)
            for key, facts in self._spaces.items():
                if facts != before_all.get(key):
                    self._enqueue_users_of(key)
        elif kind == ADDRESS_SPACE_PLAN.name and metadata["namespace"] == PLAN_NAMESPACE:
            self._plans.pop(metadata["name"], None)
            if change.action != "DELETED":
                self._put_plan(document)
            for document in self._store.select(ADDRESS_SPACE.name):
                self._put_space(document)
            for waiting in list(self._waiting):
                self._enqueue_waiting(waiting)

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
            authentication=self._context.providers.kind_of(space),
            most_users=effective_space_limits(space.spec, plan.spec if plan is not None else None).users or 0,
            is_leaving=bool(space.metadata.deletion_timestamp),
        )

    def _enqueue_users_of(self, key: str) -> None:
        namespace, _, space = key.partition("/")
        after = (namespace, f"{space}.")
        while page := self._store.page(_KIND, namespace, after=after, limit=_PAGE):
            for _, name, _ in page:
                if not name.startswith(f"{space}."):
                    return
                self.enqueue(f"{namespace}/{name}", background=True)
            after = page[-1][:2]

    def _enqueue_waiting(self, space: str) -> None:
        found = self._waiting.pop(space, {})
        for key in sorted(found, key=lambda key: (found[key], key)):
            self.enqueue(key, background=True)

    def _stop_waiting(self, space: str, key: str) -> None:
        waiting = self._waiting.get(space)
        if waiting is not None:
            waiting.pop(key, None)
            if not waiting:
                del self._waiting[space]

    # Following the nodes

    async def run_beside(self) -> None:
        """Follow the users of the nodes, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for node in self._nodes:
                tasks.create_task(node.follow(), name=f"follow {node.name} for users")
                tasks.create_task(self._keep_in_view(node), name=f"users of {node.name}")

    async def _keep_in_view(self, node: NodeUsers) -> None:
        async for _ in node.turns():
            for _ in self._enqueued_pages([node]):
                await asyncio.sleep(0)  # others have their turn

    # Reconciling

    async def reconcile(self, key: str) -> bool:
        """Reconcile one user, or one that a node has and that may no longer be declared."""
        if key.startswith(_UID):
            return await self._on_nodes(lambda node: self._reconcile_observed(node, key[len(_UID) :]))
        namespace, _, name = key.partition("/")
        document = self._store.find(_KIND, namespace, name)
        if document is None:
            return True
        space = self._spaces.get(_space_key(document["metadata"]))
        if not any(node.is_known for node in self._nodes):
            return True  # reconciled as soon as the users of a node are known
        if self._is_fine(document, space):
            return True
        return await self._reconcile_user(document, space)

    async def _on_nodes(self, act: Callable[[NodeUsers], Awaitable[bool]]) -> bool:
        """Do something for every node of which the users are known, as ``Context.on_nodes`` does."""
        return await together([act(node) for node in self._nodes if node.is_known])

    def _is_fine(self, document: Document, space: SpaceFacts | None) -> bool:
        """Return whether a user is served and reported so; quickly, as all are reconciled when the process starts."""
        metadata = document["metadata"]
        generation = metadata["generation"]
        conditions = {item["type"]: item for item in document.get("status", {}).get("conditions", ())}
        ready = conditions.get(READY, {})
        is_published = ready.get("status") == "True" and ready.get("observedGeneration") == generation
        if not is_published or IN_EFFECT not in conditions or space is None or not judge_user("", space).is_yes:
            return False
        kept = self._store.aside(metadata["uid"], ASIDE)
        credentials_id = "" if kept is None else Credentials.id_of(kept)
        revision = revision_of(space.uid, metadata["uid"], generation, credentials_id)
        return all(node.is_as_should_be(metadata["uid"], revision) for node in self._nodes if node.is_known)

    async def _reconcile_observed(self, node: NodeUsers, uid: str) -> bool:
        """Remove a deleted user from a node; adopt one that was never deleted."""
        observed, removals = node.observed.get(uid), node.removals
        if self._store.find_uid(uid) is not None or not (observed or node.is_observed):
            return True
        if observed is not None and not removals.has(uid):
            return await self._adopt(node, observed)
        if observed is not None:
            await node.remove(observed)
        removals.confirm({uid})
        return True

    async def _adopt(self, node: NodeUsers, observed: ObservedUser) -> bool:
        """Declare a user as a node has it."""
        key, kept_there = ("user", observed.name), node.kept
        entity = await node.admin.read_user(observed.name)
        if entity is None or entity.uid != observed.uid:
            node.observed.pop(observed.uid, None)
            kept_there.pop(key, None)
            return True
        space = self._spaces.get(entity.space)
        if node.removals.has(entity.uid) or (node.removals.has(entity.space_uid) and space is None):
            return True  # its deletion has it reconciled
        if self._store.find_uid(entity.uid) is not None:
            return True  # as another node has it
        try:
            if space is None or space.uid != entity.space_uid:
                raise ForbiddenError(f"its address space {entity.space} is not declared as the node has it")
            place = judge_user(entity.name, space)
            if not place.is_yes:
                raise ForbiddenError(place.message)
            is_external = space.authentication != "standard"
            user = adopted_user(entity, node.name, is_external=is_external)
            assert isinstance(user, MessagingUser)
            if user_entity(user, space, None).authorization != entity.authorization or len(entity.certificates) > 1:
                raise ForbiddenError("its rights or certificates cannot be said in a declaration")
            with self._store.transaction():
                if entity.scram:
                    # The revision ends with the id of these keys.
                    kept = {"id": entity.revision.rpartition("/")[2], "keys": entity.scram}
                    self._store.put_aside(entity.uid, ASIDE, json.dumps(kept, separators=(",", ":")).encode())
                self._registry.adopt(user)
        except NOT_ADOPTABLE as error:
            kept_there[key] = f"it cannot be declared as it is there: {error}"
            return False
        kept_there.pop(key, None)
        _log.warning("user %s, which the node has, was not declared: it is now", observed.name)
        return True

    async def _reconcile_user(self, document: Document, space: SpaceFacts | None) -> bool:
        user = restore(document)
        assert isinstance(user, MessagingUser)
        kept = self._store.aside(user.metadata.uid, ASIDE)
        credentials = None if kept is None else Credentials.unpack(kept)
        place = judge_user(user.key, space)
        found: list[UserVerdict] = []
        is_full = is_retried = False

        async def serve_on(node: NodeUsers) -> bool:
            nonlocal is_full, is_retried
            there = node.observed.get(user.metadata.uid)
            served = _CONFIGURING
            try:
                if place.is_yes and space is not None:
                    if there is None and space.most_users and node.places[space.key] >= space.most_users:
                        self._waiting[space.key][user.key] = user.metadata.creation_timestamp
                        is_full = True
                    else:
                        served = await node.serve(user_entity(user, space, credentials), there)
                elif there is not None and space is not None:
                    # Nobody can come in as this user now, and what the node has is out of date one day.
                    await node.remove(there)
            except NodeUnavailableError as error:
                served = UserVerdict("NodeUnavailable", "the node cannot be reached")
                is_retried |= node.is_reachable  # else all are enqueued when it is back
                _log.debug("user %s: %s", user.key, error)
            found.append(served)
            return True

        await self._on_nodes(serve_on)
        if is_full and space is not None:
            message = f"Quota exceeded for resource users: {space.most_users} are allowed and there"
            place = UserVerdict("QuotaExceeded", message)
        served = next((item for item in found if not item.is_yes), SERVED)
        self._publish(user, space, place, served, credentials)
        if any(item.reason == "NodeUnavailable" for item in found):
            return not is_retried
        return served.is_yes or not place.is_yes

    def _publish(
        self,
        user: MessagingUser,
        space: SpaceFacts | None,
        place: UserVerdict,
        served: UserVerdict,
        credentials: Credentials | None,
    ) -> None:
        found = user_conditions(user, space, place, served, has_keys=credentials is not None)
        status = user.status.with_conditions(found, self._context.now())
        message = "; ".join(status.messages) or None
        status = status.model_copy(update={"message": message, "generation": user.metadata.generation})
        self._context.statuses.publish(user, status, partial(self.enqueue, user.key))
        if status != user.status:
            self._record_event(user, found)

    def _record_event(self, user: MessagingUser, found: tuple[Condition, ...]) -> None:
        """Record an event where a user has become ready, or is not for a new reason."""
        (ready,) = (condition for condition in found if condition.type == READY)
        before = next((condition for condition in user.status.conditions if condition.type == READY), None)
        events = self._context.events
        if events is None or (before is not None and before.reason == ready.reason):
            return
        events.record(
            kind=_KIND,
            namespace=user.metadata.namespace,
            name=user.metadata.name,
            uid=user.metadata.uid,
            type="Normal" if ready.status == "True" else "Warning",
            reason=ready.reason,
            message=ready.message or "the user can come in",
        )


def _is_status_only(change: Change) -> bool:
    """Return whether nothing but the status was written; what is put aside changes no status."""
    before, after = change.before, change.document
    if before is None or before.get("status") == after.get("status"):
        return False
    old, new = before["metadata"], after["metadata"]
    return all(old.get(name) == new.get(name) for name in ("uid", "generation", "deletionTimestamp"))


def _space_key(metadata: Document) -> str:
    return f"{metadata['namespace']}/{space_of(metadata['name'])}"
