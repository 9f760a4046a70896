"""What a node has, as far as control knows: seen page by page, kept up with what control does itself.

Rules:
1. Of an entity only its identity and the digest of its attributes are kept.
2. What control does itself while the node tells what it has, counts more than what is told.
3. What is missing in the node's list is not gone but unknown: lists are told in pages, and things move
   between them. Whoever needs to know asks for that one.
4. As long as the node numbers its changes as control expects it, nothing drifted, and nothing is asked.
5. A node that belongs to another installation counts as one that cannot be reached: it is asked and told nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from enmasse.control.errors import ForeignNodeError, NodeRefusedError, NodeUnavailableError
from enmasse.control.ports import ENTITY_TYPES, Sighting
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

__all__ = ["NodeMirror"]

_log = logging.getLogger(__name__)

_AGAIN_S = 1.0
"""Before a node that did not tell all it has is asked again."""

_MOST_ROUNDS = 60
"""So many times a check is put off because something is under way; then everything is looked at."""


_NOT_KNOWN = "it is not known yet to which installation its journal belongs"


class NodeMirror:
    """One node, as control sees it.

    Args:
        node: the way to it.
        admit: sees that the node belongs to this installation; see ``admit_node``.
        resync_s: seconds between two checks for drift.
        changed: hears of every entity that is not as it was known to be.
        reached: hears when the node can be reached, and when it no longer can.
        observed: hears when all is known that the node has.
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
        """Whether everything is known that the node has."""
        self.was_complete = False
        """Whether everything was known since the start that the node had."""
        self.problem = ""
        """Why the node is left alone although it is there."""
        self._is_connected = False
        self._admit = admit
        self._node = node
        self._resync_s = resync_s
        self._changed = changed
        self._reached = reached
        self._observed = observed
        self._seen: dict[EntityType, dict[str, Sighting]] = {kind: {} for kind in ENTITY_TYPES}
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

    async def find(self, kind: EntityType, name: str) -> Sighting | None:
        """Return what the node has under a name; None: nothing.

        Raises:
            NodeUnavailableError: when that is not known and the node cannot be reached.
        """
        self._expect_admitted()
        seen = self._seen[kind].get(name)
        if seen is not None or (self.is_complete and (kind, name) not in self._unknown):
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

    def look_again(self) -> None:
        """Ask the node at once whether anything has changed."""
        self._wake.set()

    def _expect_admitted(self) -> None:
        if self.problem:
            raise NodeUnavailableError(self.problem)

    async def perform(self, action: Action, entity: Entity) -> None:
        """Have the node do something.

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
        self._set(kind, name, None if action == "delete" else Sighting(name, entity.uid, self._node.digest(entity)))

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
        """Take up a node that is connected, if it belongs to this installation."""
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
        """Tell whether the node is the one that it was, and has what it had."""
        if self._revision is None or not self.is_complete or self._unknown:
            return False
        try:
            return await self._node.revision() == self._revision
        except (NodeUnavailableError, NodeRefusedError):
            return False

    async def _check(self) -> None:
        """Look at everything when there is a reason to, and ask regularly whether there is."""
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
                _log.info("node %s does not tell what it has: %s", self.name, error)
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
            # What was done meanwhile may be counted there or not: the next round tells.
            self._skipped += 1
            return self._skipped > _MOST_ROUNDS
        self._skipped = 0
        return found != self._revision

    async def _observe(self) -> None:
        """Have the node tell all that it has."""
        await self._admit()
        self._is_other = False
        self._skipped = 0
        self._touched = set()
        self._revision = revision = await self._node.revision()
        for kind in ENTITY_TYPES:
            seen: set[str] = set()
            async for page in self._node.observe(kind):
                for sighting in page:
                    seen.add(sighting.name)
                    self._take(kind, sighting)
                # The rest of control has its turn between two pages.
                await asyncio.sleep(0)
            for name in [name for name in self._seen[kind] if name not in seen]:
                if (kind, name) not in self._touched:
                    self._set(kind, name, None)
                    self._unknown.add((kind, name))
                    self._tell(kind, name)
        touched, self._touched = self._touched, None
        _log.debug("node %s was at %s; %d entities changed meanwhile", self.name, revision, len(touched))
        self.is_complete = self.was_complete = True
        self._observed()

    def _take(self, kind: EntityType, sighting: Sighting) -> None:
        if self._touched is not None and (kind, sighting.name) in self._touched:
            return
        self._unknown.discard((kind, sighting.name))
        former = self._seen[kind].get(sighting.name)
        if former != sighting:
            self._set(kind, sighting.name, sighting)
            self._tell(kind, sighting.name)

    def _tell(self, kind: EntityType, name: str) -> None:
        if self.was_complete:
            self._changed(kind, name)  # before, everything is news

    def _touch(self, kind: EntityType, name: str) -> None:
        if self._touched is not None:
            self._touched.add((kind, name))

    def _set(self, kind: EntityType, name: str, sighting: Sighting | None) -> None:
        space = _space_of(kind, name)
        if sighting is None:
            self._seen[kind].pop(name, None)
            names = self._of_space[kind].get(space)
            if names is not None:
                names.discard(name)
                if not names:
                    del self._of_space[kind][space]
        else:
            self._seen[kind][name] = sighting
            self._of_space[kind][space].add(name)


def _space_of(kind: EntityType, name: str) -> str:
    """Return the space of an entity: its name begins with it."""
    if kind == "space":
        return name
    namespace, _, rest = name.partition("/")
    return f"{namespace}/{rest.partition('.')[0]}"
