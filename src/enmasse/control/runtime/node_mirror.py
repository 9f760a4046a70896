"""The observed state of one node: read page by page, and updated with the changes that control itself makes.

Rules:
1. Of an entity only its identity and the digest of its attributes are kept.
2. A change that control makes while a list is being read takes precedence over the list.
3. An entity that is missing in the node's list is not deleted but unknown: lists come in pages, and entities move
   between them. A caller that needs to know requests that entity alone.
4. As long as the node's revision advances as control expects it, nothing drifted, and nothing is read again.
5. A node that belongs to another installation counts as unreachable: nothing is read from it or written to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from enmasse.control.errors import ForeignNodeError, NodeRefusedError, NodeUnavailableError
from enmasse.control.ports import ENTITY_TYPES, ObservedEntity
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from enmasse.control.ports import (
        Action,
        AddressEntity,
        Entity,
        EntityType,
        NodeAdmin,
        NodeRevision,
        SpaceEntity,
    )

_log = logging.getLogger(__name__)

_AGAIN_S = 1.0
"""Seconds before an incomplete list of a node is read again."""

_MAX_ROUNDS = 60
"""A check is put off so many times because something is under way; then everything is read."""


_NOT_KNOWN = "it is not known yet to which installation its journal belongs"


_TRIES = 2
"""A node that refuses may have something else than expected: then that is read, and the change is tried again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of applying an entity to a node.

    Attributes:
        digest: the digest that the entity should have.
        present: the entity as the node has it.
        is_reachable: whether the node can be reached.
        refusal: the node's reason to refuse; empty: it did not refuse.
        differs: whether it refused because what it has cannot be changed to what is wanted.
    """

    digest: str
    present: ObservedEntity | None = None
    is_reachable: bool = True
    refusal: str = ""
    differs: bool = False


class NodeMirror:
    """The observed state of one node.

    Args:
        node: the port to it.
        admit: ensures that the node belongs to this installation; see ``admit_node``.
        resync_s: seconds between two checks for drift.
        changed: called with every entity that is not as it was known to be.
        reached: called when the node can be reached, and when it no longer can.
        observed: called when everything that the node has is known.
    """

    def __init__(
        self,
        node: NodeAdmin,
        *,
        admit: Callable[[], Awaitable[None]],
        resync_s: float,
        changed: Callable[[EntityType, str], None],
        reached: Callable[[bool], None],
        observed: Callable[[], None],
    ) -> None:
        self.is_reachable: bool | None = None
        """None: that is not known yet."""
        self.is_complete = False
        """True when everything that the node has is known."""
        self.was_complete = False
        """True when everything that the node has was known at any time since the start."""
        self.problem = ""
        """The reason why the node is left alone although it is reachable."""
        self._is_connected = False
        self._admit = admit
        self._node = node
        self._resync_s = resync_s
        self._changed = changed
        self._reached = reached
        self._observed = observed
        self._seen: dict[EntityType, dict[str, ObservedEntity]] = {kind: {} for kind in ENTITY_TYPES}
        self._of_space: dict[EntityType, defaultdict[str, set[str]]] = {
            kind: defaultdict(set) for kind in ENTITY_TYPES
        }
        self._unknown: set[tuple[EntityType, str]] = set()
        self._touched: set[tuple[EntityType, str]] | None = None
        self._revision: NodeRevision | None = None
        self._under_way = 0
        self._begun = 0
        self._skipped = 0
        self._is_other = False
        self._wake = asyncio.Event()

    @property
    def name(self) -> str:
        """The node's name."""
        return self._node.name

    def digest(self, entity: Entity) -> str:
        """Return the digest that a node has of an entity that is as this one."""
        return self._node.digest(entity)

    def names_in(self, kind: EntityType, space: str) -> Iterable[str]:
        """Return the names of all entities of a kind that the node is known to have in a space."""
        return tuple(self._of_space[kind].get(space, ()))

    def names(self, kind: EntityType) -> Iterable[str]:
        """Return the names of all entities of a kind that the node is known to have."""
        return tuple(self._seen[kind])

    async def find(self, kind: EntityType, name: str) -> ObservedEntity | None:
        """Return what the node has under a name; None: nothing.

        Raises:
            NodeUnavailableError: when that is not known and the node cannot be reached.
        """
        self._expect_admitted()
        seen = self._seen[kind].get(name)
        if (kind, name) not in self._unknown and (seen is not None or self.is_complete):
            return seen
        found = await self._node.find(kind, name)
        self._unknown.discard((kind, name))
        self._set(kind, name, found)
        self._touch(kind, name)
        return found

    async def find_address(self, name: str) -> AddressEntity | None:
        """Return an address with all that the node knows of it, or None.

        Raises:
            NodeUnavailableError: when the node cannot be reached.
        """
        self._expect_admitted()
        return await self._node.find_address(name)

    async def find_space(self, name: str) -> SpaceEntity | None:
        """Return a space with all that the node knows of it but secrets, or None.

        Raises:
            NodeUnavailableError: when the node cannot be reached.
        """
        self._expect_admitted()
        return await self._node.find_space(name)

    async def set_pending(self, space: str, address: str, reason: str) -> None:
        """Set the reason why an address is not there yet, for its clients; an empty one clears it.

        Raises:
            NodeUnavailableError: when the node cannot be reached.
            NodeRefusedError: when it says no.
        """
        self._expect_admitted()
        await self._node.set_pending(space, address, reason)

    def check_again(self) -> None:
        """Check at once whether anything has changed."""
        self._wake.set()

    def _expect_admitted(self) -> None:
        if self.problem:
            raise NodeUnavailableError(self.problem)

    async def perform(self, action: Action, entity: Entity) -> None:
        """Perform one operation on the node.

        Raises:
            NodeUnavailableError: when it cannot be reached.
            NodeRefusedError: when it says no.
        """
        self._expect_admitted()
        kind, name = entity.entity_type, entity.name
        self._under_way += 1
        self._begun += 1
        try:
            is_change = await getattr(self._node, action)(entity)
        except NodeRefusedError:
            # Perhaps it has something else than we think, of this or of what this needs.
            self._set(kind, name, None)
            self._unknown.add((kind, name))
            self._wake.set()
            raise
        except NodeUnavailableError:
            self._set(kind, name, None)
            self._unknown.add((kind, name))
            self._revision = None
            raise
        finally:
            self._under_way -= 1
            self._touch(kind, name)
        self._unknown.discard((kind, name))
        if self._revision is not None and is_change is not False:
            self._revision = self._revision.next()
        former = self._seen[kind].get(name)
        # A change of the problem counts as one of the entity.
        present = ObservedEntity(name, entity.uid, self._node.digest(entity))
        if former is not None:
            present = replace(present, problem=former.problem, connectors=former.connectors)
        self._set(kind, name, None if action == "delete" else present)

    async def run(self) -> None:
        """Follow the node until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(), name=f"follow node {self.name}")
            tasks.create_task(self._check(), name=f"check node {self.name}")

    async def _follow(self) -> None:
        async for is_connected in self._node.connections():
            _log.info("node %s: %s", self.name, "reachable" if is_connected else "not reachable")
            self._is_connected = is_connected
            self.problem = _NOT_KNOWN if is_connected else ""
            if is_connected:
                await self._enter()
            else:
                self._lose()

    async def _enter(self) -> None:
        """Admit a node that is connected, if it belongs to this installation."""
        try:
            await self._admit()
        except EnmasseError as error:
            self._refuse(error)
            return
        self.problem = ""
        if await self._is_as_before():
            self.is_reachable = True
            self._reached(True)
            return
        self.is_reachable = True
        self.is_complete = False
        # It may have lost what it had before: entities are read one by one until the whole list is.
        self._unknown.update((kind, name) for kind in ENTITY_TYPES for name in self._seen[kind])
        self._reached(True)
        self._is_other = True
        self._wake.set()

    def _refuse(self, error: EnmasseError) -> None:
        """Leave a node alone."""
        if self.problem != str(error):
            _log.warning("node %s is left alone: %s", self.name, error)
        self.problem = str(error)
        if self.is_reachable is not False:
            self._lose()
        if not isinstance(error, ForeignNodeError):
            asyncio.get_running_loop().call_later(_AGAIN_S, self._wake.set)

    def _lose(self) -> None:
        self.is_reachable = self.is_complete = False
        self._reached(False)

    async def _is_as_before(self) -> bool:
        """Return whether the node is the one that it was, and has what it had."""
        if self._revision is None or not self.is_complete or self._unknown:
            return False
        try:
            return await self._node.revision() == self._revision
        except (NodeUnavailableError, NodeRefusedError):
            return False

    async def _check(self) -> None:
        """Read everything when there is a reason to, and check regularly whether there is."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._resync_s):
                    await self._wake.wait()
            self._wake.clear()
            if self._is_connected and self.problem:
                await self._enter()
            if not self.is_reachable or not (self._is_other or await self._has_drifted()):
                continue
            try:
                await self._observe()
            except ForeignNodeError as error:
                self._touched = None
                self._refuse(error)
            except (NodeUnavailableError, NodeRefusedError) as error:
                _log.info("node %s cannot be read: %s", self.name, error)
                self._touched, self._is_other = None, True
                asyncio.get_running_loop().call_later(_AGAIN_S, self._wake.set)

    async def _has_drifted(self) -> bool:
        if self._revision is None:
            return True
        begun = self._begun
        found = self._revision
        if not self._under_way:
            try:
                found = await self._node.revision()
            except (NodeUnavailableError, NodeRefusedError):
                return True
        if self._under_way or begun != self._begun:
            # The revision may count what was done meanwhile or not: the next round shows it.
            self._skipped += 1
            return self._skipped > _MAX_ROUNDS
        self._skipped = 0
        return found != self._revision

    async def _observe(self) -> None:
        """Read everything that the node has."""
        await self._admit()
        self._is_other = False
        self._skipped = 0
        self._touched = set()
        self._revision = revision = await self._node.revision()
        for kind in ENTITY_TYPES:
            seen: set[str] = set()
            async for page in self._node.observe(kind):
                for entity in page:
                    seen.add(entity.name)
                    self._take(kind, entity)
                # The rest of control has its turn between two pages.
                await asyncio.sleep(0)
            for name in [name for name in self._seen[kind] if name not in seen]:
                if (kind, name) not in self._touched:
                    self._set(kind, name, None)
                    self._unknown.add((kind, name))
                    self._report_change(kind, name)
        touched, self._touched = self._touched, None
        _log.debug("node %s was at %s; %d entities changed meanwhile", self.name, revision, len(touched))
        self.is_complete = self.was_complete = True
        self._observed()

    def _take(self, kind: EntityType, entity: ObservedEntity) -> None:
        if self._touched is not None and (kind, entity.name) in self._touched:
            return
        self._unknown.discard((kind, entity.name))
        former = self._seen[kind].get(entity.name)
        if former != entity:
            self._set(kind, entity.name, entity)
            self._report_change(kind, entity.name)

    def _report_change(self, kind: EntityType, name: str) -> None:
        if self.was_complete:
            self._changed(kind, name)  # before, everything is news

    def _touch(self, kind: EntityType, name: str) -> None:
        if self._touched is not None:
            self._touched.add((kind, name))

    def _set(self, kind: EntityType, name: str, entity: ObservedEntity | None) -> None:
        space = _space_of(kind, name)
        if entity is None:
            self._seen[kind].pop(name, None)
            names = self._of_space[kind].get(space)
            if names is not None:
                names.discard(name)
                if not names:
                    del self._of_space[kind][space]
        else:
            self._seen[kind][name] = entity
            self._of_space[kind][space].add(name)


def _space_of(kind: EntityType, name: str) -> str:
    """Return the space of an entity: its name begins with it."""
    if kind == "space":
        return name
    namespace, _, rest = name.partition("/")
    return f"{namespace}/{rest.partition('.')[0]}"


def conflict_with(entity: Entity, uid: str) -> str:
    """Return the message about an entity of a node that conflicts with another one, and is not deleted for it."""
    kind = "address space" if entity.entity_type == "space" else "address"
    return (
        f"the node holds another {kind} of this name, of uid {uid}, which was not deleted: it is kept with all that "
        f"it stores. Delete this one (uid {entity.uid}), and the other one is declared in its place"
    )


async def apply_entity(
    mirror: NodeMirror, entity: Entity, seen: ObservedEntity | None, is_removed: Callable[[str], bool]
) -> Outcome:
    """Make a node have an entity as it is declared.

    Args:
        mirror: the node.
        entity: the entity as it should be.
        seen: the entity that the node has under its name.
        is_removed: returns by its uid whether an object was deleted: nothing else is removed for this one.
    """
    digest = mirror.digest(entity)
    for attempt in range(1, _TRIES + 1):
        is_other = seen is not None and seen.uid != entity.uid
        is_update = seen is not None and not is_other
        if seen is not None and is_other and not is_removed(seen.uid):
            return Outcome(digest, seen, refusal=conflict_with(entity, seen.uid), differs=True)
        if seen is not None and is_update and seen.digest == digest:
            return Outcome(digest, seen)
        try:
            if seen is not None and is_other:
                await mirror.perform("delete", replace(entity, uid=seen.uid))
            await mirror.perform("update" if is_update else "create", entity)
            seen = await mirror.find(entity.entity_type, entity.name)
        except NodeUnavailableError:
            return Outcome(digest, is_reachable=False)
        except NodeRefusedError as error:
            try:
                seen = await mirror.find(entity.entity_type, entity.name)
            except NodeUnavailableError:
                return Outcome(digest, is_reachable=False)
            if attempt == _TRIES or error.status not in (404, 409):
                _log.warning("node %s refuses %s: %s", mirror.name, entity.name, error)
                return Outcome(digest, seen, refusal=str(error), differs=is_update and error.status == 409)
    return Outcome(digest, seen)
