"""Lease log numbers to nodes, in blocks, so that no two logs of an installation have the same number.

Rules:
1. The store keeps one number, beyond all that were leased or used by anyone; leases begin there, and it only grows.
   It is on disk before a node hears of a block, so none is leased twice.
2. The first node of an installation owns what is below its first lease: it has counted by itself. No other node is
   served before it has a block.
3. Each node is told that number, and tells what it has used and holds: so a store that is older than its nodes, as
   after a restore, learns from them, and nothing is leased before all nodes were heard that can be reached. A journal
   that is restored draws from no block that it had before.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from enmasse.control.errors import NodeRefusedError, NodeUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enmasse.control.ports import LogNumbers, LogRange, NodeAdmin
    from enmasse.control.store.port import Store

BLOCK = 1 << 16
"""The numbers of one lease."""

AHEAD = 2
"""The whole blocks that a node has ahead, so that control may be away while the node uses them."""

END = 1 << 31
"""The number behind the last one that is leased: what is beyond are logs that a node forgets as it starts."""

GIVEN = "logs given"
"""The name of the store's number, among its facts."""

_LOOK_S = 0.02
"""Seconds from one look to the next whether the others were heard."""

_log = logging.getLogger(__name__)


class LogLeases:
    """The leases of an installation.

    Args:
        store: keeps how far they are.
        nodes: the names of the nodes, the first one first.
        is_away: whether a node of a name cannot be reached.
        patience_s: seconds that a node without numbers waits for the others before it is refused.
    """

    def __init__(
        self,
        store: Store,
        nodes: Sequence[str],
        is_away: Callable[[str], bool] = lambda _name: False,
        patience_s: float = 0.0,
    ) -> None:
        self._store = store
        self._first = nodes[0] if nodes else ""
        self._unheard = set(nodes)
        self._is_away = is_away
        self._patience_s = patience_s
        self._untold: dict[str, list[LogRange]] = {}
        """Ranges that were leased to a node which has not confirmed them, by its name."""
        self._held: dict[str, list[LogRange]] = {}
        """The ranges that each node had when it was last asked."""
        self._problems: dict[str, str] = {}
        self._is_warned = False

    @property
    def given(self) -> int:
        """A number beyond all that were leased or used."""
        return self._store.fact(GIVEN)

    @property
    def _is_waiting(self) -> bool:
        """True if a node that can be reached was not heard yet."""
        return any(not self._is_away(name) for name in self._unheard)

    def problem(self, node: str) -> str:
        """Return what is wrong with the numbers of a node; empty if nothing is."""
        if self._problems.get(node):
            return self._problems[node]
        given = self.given
        return f"{given:,} of {END:,} log numbers are leased, and none twice" if given >= END // 2 else ""

    async def keep(self, node: NodeAdmin) -> None:
        """Have a node hold blocks ahead of what it uses.

        Raises:
            NodeUnavailableError: it has none and gets none now, so nothing may be stored there.
            NodeRefusedError: likewise.
        """
        held = await node.log_numbers()
        if held is None:
            return  # of an older version, which counts by itself
        self._unheard.discard(node.name)
        if held.ranges is None and node.name != self._first and self._patience_s:
            # At the start of an installation all nodes come at about the same time, in any order.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience_s):
                    while self._is_waiting or not self.given:
                        await asyncio.sleep(_LOOK_S)
        if held.ranges is not None:
            self._learn(node.name, held)
        elif not self.given and node.name != self._first:
            raise NodeUnavailableError(
                f"node {node.name} has no log numbers yet: the first are those of node {self._first}, which has not "
                "been reached"
            )
        ranges = self._due(node.name, held)
        if held.ranges is None and not ranges:
            raise NodeUnavailableError(f"node {node.name} gets its log numbers once all other nodes were heard")
        if not ranges and held.given >= self.given:
            return
        try:
            await node.lease_logs(self._store.installation.id(), ranges, self.given)
        except (NodeRefusedError, NodeUnavailableError) as error:
            if isinstance(error, NodeRefusedError) and error.status == 409:
                self._untold.pop(node.name, None)
            if held.ranges is None and node.name != self._first:
                raise
            _log.warning("node %s has not taken log numbers: %s", node.name, error)
        else:
            self._untold.pop(node.name, None)
            self._held[node.name] = [*(held.ranges or ()), *ranges]

    def _due(self, node: str, held: LogNumbers) -> list[LogRange]:
        """Return the ranges that a node is to be told, which are on disk then."""
        untold = [found for found in self._untold.get(node, ()) if found not in (held.ranges or ())]
        if not self.given:
            untold = [(1, (held.next // BLOCK + 1) * BLOCK)]
            self._note(untold[0][1])
        if held.ranges is None:
            self._learn(node, held)
        ahead = [found for found in (*(held.ranges or ()), *untold) if found[0] >= held.next]
        wanted = 0 if self._is_waiting else AHEAD - len(ahead)
        first = self.given
        fresh = [(first + number * BLOCK, first + (number + 1) * BLOCK) for number in range(wanted)]
        fresh = [(start, end) for start, end in fresh if end <= END]
        if fresh:
            self._note(fresh[-1][1])
            _log.info("node %s may use log numbers up to %d", node, fresh[-1][1] - 1)
        elif wanted > 0:
            _log.error("node %s needs more log numbers, and all %d are leased", node, END)
        if self.given >= END // 2 and not self._is_warned:
            self._is_warned = True
            _log.warning("%d of %d log numbers are leased: no number is used twice", self.given, END)
        if untold or fresh:
            self._untold[node] = [*untold, *fresh]
        return [*untold, *fresh]

    def _learn(self, node: str, held: LogNumbers) -> None:
        """Take over what a node knows, and find out whether another one holds the same."""
        ranges = held.ranges or []
        used = -(-held.next // BLOCK) * BLOCK
        known = max(used, held.given, *(end for _, end in ranges), 0)
        problem = ""
        if held.ranges is None and held.next > 1 and known < self.given and node != self._first:
            problem = f"it has used log numbers up to {held.next - 1} that are another node's"
        for other, others in self._held.items():
            if other != node and any(first < last and start < end for start, last in others for first, end in ranges):
                problem = f"it holds log numbers that node {other} holds, too"
        if problem and self._problems.get(node) != problem:
            _log.error("node %s: %s; none of its spaces can go to another node", node, problem)
        self._problems[node] = problem
        self._held[node] = list(ranges)
        if known > self.given:
            self._note(known)

    def _note(self, given: int) -> None:
        with self._store.transaction():
            self._store.write_fact(GIVEN, given)
