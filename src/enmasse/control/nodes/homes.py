"""The homes of spaces: the node that has the addresses of each, decided once and kept in the status of the space.

Control alone decides on it. The status is written in the same step in which the node is chosen, so no space has two.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from enmasse.control.nodes.planning import Candidate, Home, choose_home, refusals_of
from enmasse.model.kinds.nodes import MessagingNode
from enmasse.model.schema.kinds import ADDRESS_SPACE, MESSAGING_NODE
from enmasse.model.schema.objects import restore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enmasse.control.runtime.desired import Desired
    from enmasse.control.runtime.verdicts import Verdict
    from enmasse.control.store.port import Document, Store
    from enmasse.control.store.registry import Registry
    from enmasse.model.kinds.spaces import AddressSpace

_FACT = "homes"
"""The store's note that the spaces which an older version has declared have a home."""

_log = logging.getLogger(__name__)


class Homes:
    """The homes of all spaces.

    Args:
        store: the store of the statuses.
        desired: the declarations.
        nodes: the names of the nodes, the first one first.
        is_reachable: whether the node of a name can be reached.
        busy: returns the share of a processor that a node uses.
    """

    def __init__(
        self,
        store: Store,
        desired: Desired,
        nodes: Sequence[str],
        is_reachable: Callable[[str], bool],
        busy: Callable[[str], float] = lambda _name: 0.0,
    ) -> None:
        self.nodes = tuple(nodes)
        self.busy = busy
        self._store = store
        self._desired = desired
        self._is_reachable = is_reachable
        self._placed: dict[str, tuple[str, Home]] = {}
        """Uid and home of spaces that were placed since the start, by their keys."""
        self._counts: dict[str, int] | None = None
        """The number of spaces on each node; None: they have to be counted."""
        self._waiting: dict[str, Verdict] = {}
        """The spaces that no node may have now, and why."""

    @property
    def are_several(self) -> bool:
        """True if there are several nodes, so that they have to know of homes."""
        return len(self.nodes) > 1

    @property
    def waiting(self) -> list[str]:
        """The keys of the spaces that no node may have now."""
        return list(self._waiting)

    def of(self, key: str) -> Home | None:
        """Return the home of a space; None: it has none yet."""
        declared = self._desired.spaces.get(key)
        placed = self._placed.get(key)
        if declared is None:
            return None if placed is None else placed[1]
        if placed is not None and placed[0] == declared.metadata.uid:
            return placed[1]
        status = declared.status
        return Home(status.home, status.home_generation or 1) if status.home else None

    def name_of(self, key: str) -> str:
        """Return the name of the node that is a space's home; that of the first node for one that has none yet."""
        home = self.of(key)
        return home.node if home is not None else self.nodes[0]

    def why_not(self, key: str) -> Verdict | None:
        """Return why a space has no home; None if it has one, or was not placed yet."""
        return self._waiting.get(key)

    def spaces_on(self, node: str) -> list[str]:
        """Return the keys of the spaces that are at home on a node."""
        return sorted(key for key in self._desired.spaces if (home := self.of(key)) is not None and home.node == node)

    def place(self, space: AddressSpace) -> bool:
        """Give a space a home unless it has one; return whether it has one now."""
        if self.of(space.key) is not None:
            return True
        plan = self._desired.space_plans.get(space.spec.plan_name)
        if plan is None:
            return False  # which nodes may have it is not known yet
        nodes, selector = self._candidates(), plan.spec.node_selector or {}
        found = choose_home(nodes, selector)
        if not isinstance(found, Candidate):
            if self._waiting.get(space.key) != found:
                refusals = refusals_of(nodes, selector) | {
                    node.name: "cannot be reached" for node in nodes if not node.is_reachable
                }
                _log.warning("space %s has no home: %s", space.key, "; ".join(map(" ".join, refusals.items())))
            self._waiting[space.key] = found
            return False
        self.settle(space, Home(found.name))
        return True

    def settle(self, space: AddressSpace, home: Home) -> None:
        """Write the home of a space that has none into its status."""
        metadata = space.metadata
        with self._store.transaction():
            document = self._store.find(space.kind, metadata.namespace, metadata.name)
            if document is None or document["metadata"]["uid"] != metadata.uid:
                return
            status = document.get("status") or {}
            if status.get("home"):
                home = Home(status["home"], status.get("homeGeneration") or 1)
            else:
                self._store.replace(_at(document, home))
        if self._counts is not None and self.of(space.key) is None:
            self._counts[home.node] = self._counts.get(home.node, 0) + 1
        else:
            self._counts = None
        self._placed[space.key] = metadata.uid, home
        self._waiting.pop(space.key, None)
        if self.are_several:
            _log.info("space %s is at home on node %s", space.key, home.node)

    def drop(self, key: str) -> None:
        """Forget a deleted space."""
        self._placed.pop(key, None)
        self._waiting.pop(key, None)
        self._counts = None

    def clear(self) -> None:
        """Forget everything that the declarations say themselves."""
        self._placed.clear()
        self._waiting.clear()
        self._counts = None

    def begin(self) -> None:
        """Have all spaces that an older version has declared be at home on the first node; once."""
        if not self.nodes or self._store.fact(_FACT):
            return
        with self._store.transaction():
            for document in self._store.select(ADDRESS_SPACE.name):
                if not (document.get("status") or {}).get("home"):
                    self._store.replace(_at(document, Home(self.nodes[0])))
            self._store.write_fact(_FACT, 1)

    def _candidates(self) -> list[Candidate]:
        if self._counts is None:
            homes = map(self.of, self._desired.spaces)
            self._counts = Counter(home.node for home in homes if home is not None)
        return [self._candidate(name, self._counts.get(name, 0)) for name in self.nodes]

    def _candidate(self, name: str, spaces: int) -> Candidate:
        document = self._store.find(MESSAGING_NODE.name, "", name)
        found = MessagingNode() if document is None else restore(document)
        assert isinstance(found, MessagingNode)
        return Candidate(
            name,
            found.metadata.labels,
            is_cordoned=found.spec.unschedulable,
            is_home="home" in found.spec.roles,
            is_reachable=self._is_reachable(name),
            spaces=spaces,
            busy=self.busy(name),
        )


def make_nodes(registry: Registry, names: Sequence[str]) -> None:
    """Make the object of each node that has none."""
    for name in names:
        if registry.store.find(MESSAGING_NODE.name, "", name) is None:
            registry.create(MessagingNode(metadata={"name": name}))  # type: ignore[arg-type]  # a model reads it


def _at(document: Document, home: Home) -> Document:
    status = {**(document.get("status") or {}), "home": home.node, "homeGeneration": home.generation}
    return {**document, "status": status}
