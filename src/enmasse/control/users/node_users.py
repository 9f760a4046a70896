"""The observed users of one node: read when it becomes reachable, and updated with the changes that control makes."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.installation import admit_node
from enmasse.control.ports import ObservedUser
from enmasse.control.users.planning import UserVerdict
from enmasse.model.schema.kinds import MESSAGING_USER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from enmasse.control.context import Node
    from enmasse.control.ports import UserAdmin, UserEntity
    from enmasse.control.store.port import Store


SERVED = UserVerdict("Served", is_yes=True)

_AGAIN_S = 1.0
"""Seconds before an incomplete list of a node is read again."""

_log = logging.getLogger(__name__)


class NodeUsers:
    """The users of one node.

    Args:
        node: the state that control keeps of it.
        admin: the port to its users.
        store: the store of the installation that the node has to belong to.
        removed: called with a space of which the node has a user less.

    Attributes:
        observed: the users that the node has, by uid.
        is_observed: whether that is all.
        is_reachable: whether the node can be reached.
        places: the number of users of each space that the node has, or is about to get.
        removals: the objects that the node has to delete yet.
        kept: the objects left on the node although they are not declared, and why.
    """

    def __init__(self, node: Node, admin: UserAdmin, store: Store, removed: Callable[[str], None]) -> None:
        self.name = node.name
        self.admin = admin
        self.removals = node.removals
        self.kept = node.kept
        self.observed: dict[str, ObservedUser] = {}
        self.is_observed = False
        self.is_reachable = True
        self.places: Counter[str] = Counter()
        self._store = store
        self._removed = removed
        self._turned = asyncio.Event()

    @property
    def is_known(self) -> bool:
        """True when the users of the node are known, or it cannot be reached."""
        return self.is_observed or not self.is_reachable

    def uids(self) -> list[str]:
        """Return the uids of all users that the node has or has to delete."""
        return [*self.observed, *self.removals.uids(MESSAGING_USER.name)]

    def is_as_should_be(self, uid: str, revision: str) -> bool:
        """Return whether the node has a user at a revision; an unreachable node is assumed to have it."""
        there = self.observed.get(uid)
        return not self.is_reachable if there is None else there.revision == revision

    async def follow(self) -> None:
        """Follow whether the node can be reached, until cancelled."""
        async for is_reachable in self.admin.connections():
            _log.info("users: node %s is %s", self.name, "reachable" if is_reachable else "not reachable")
            self.is_reachable = is_reachable
            self.is_observed = False
            self._turned.set()

    async def turns(self) -> AsyncIterator[None]:
        """Yield whenever all users of the node are known, or it can no longer be reached; for ever."""
        problem = ""
        while True:
            await self._turned.wait()
            self._turned.clear()
            if self.is_reachable:
                try:
                    await self._observe()
                except (NodeUnavailableError, NodeRefusedError) as error:
                    if str(error) != problem:  # that of another installation stays so for long
                        _log.info("users: node %s cannot be read: %s", self.name, error)
                    problem = str(error)
                    await asyncio.sleep(_AGAIN_S)
                    self._turned.set()
                    continue
            yield

    async def _observe(self) -> None:
        """Read all users that the node has; a user that is changed meanwhile is reconciled afterwards."""
        await admit_node(self._store, self.admin)
        observed: dict[str, ObservedUser] = {}
        async for page in self.admin.users_after(""):
            observed |= {user.uid: user for user in page}
        self.observed = observed
        self.places = Counter(_space_of(user.name) for user in observed.values())
        self.is_observed = True

    async def remove(self, user: ObservedUser) -> None:
        """Remove a user from the node."""
        await self.admin.delete_user(user.name)
        if self.observed.pop(user.uid, None) is not None:
            space = _space_of(user.name)
            self.places[space] -= 1
            self._removed(space)
        _log.info("user %s: taken from node %s", user.name, self.name)

    async def serve(self, entity: UserEntity, there: ObservedUser | None) -> UserVerdict:
        """Make the node have a user as it is declared now.

        Args:
            entity: the entity as it should be.
            there: the user as the node has it; None: it has none.

        Raises:
            NodeUnavailableError: the node cannot be reached.
        """
        if there is not None and there.revision == entity.revision and there.name == entity.name:
            return SERVED
        if not self.is_reachable:
            raise NodeUnavailableError("the node is not connected")
        if there is not None and there.name != entity.name:
            await self.remove(there)
            there = None
        is_new = there is None
        self.places[entity.space] += is_new
        try:
            if is_new:
                await self._create(entity)
            else:
                await self.admin.update_user(entity)
        except NodeRefusedError as error:
            self.places[entity.space] -= is_new
            if not is_new and error.status == 404:
                self.places[entity.space] -= 1
                self.observed.pop(entity.uid, None)
            _log.warning("user %s: %s", entity.name, error)
            return UserVerdict("NodeRefused", str(error))
        except BaseException:
            self.places[entity.space] -= is_new
            raise
        self.observed[entity.uid] = ObservedUser(entity.name, entity.uid, entity.revision)
        return SERVED

    async def _create(self, entity: UserEntity) -> None:
        try:
            await self.admin.create_user(entity)
        except NodeRefusedError as error:
            found = await self.admin.find_user(entity.name) if error.status == 409 else None
            if found is None:
                raise
            if found.uid == entity.uid:
                # An answer got lost.
                await self.admin.update_user(entity)
                return
            if self._store.find_uid(found.uid) is not None:
                raise NodeRefusedError(
                    409, f"another MessagingUser of the address space has the username {entity.username!r}"
                ) from None
            await self.admin.delete_user(entity.name)
            self.observed.pop(found.uid, None)
            await self.admin.create_user(entity)


def _space_of(name: str) -> str:
    """Return the space of a node's user, which its name begins with."""
    namespace, _, rest = name.partition("/")
    return f"{namespace}/{rest.partition('.')[0]}"
