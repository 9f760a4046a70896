"""Leases of log numbers: whoever stops, comes back, or is restored from a backup, no number is used twice."""

from __future__ import annotations

import asyncio
import copy
import random
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control import log_numbers
from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.log_numbers import BLOCK, END, GIVEN, LogLeases
from enmasse.control.ports import LogNumbers, LogRange
from enmasse.messaging.errors import AttachError
from enmasse.messaging.log import numbers
from tests.support.chance import seeds
from tests.support.memory_resources import MemoryResources

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = ("node-0", "node-1", "node-2")


class Node:
    """A node's own part of it, over what its journal holds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.numbers = numbers.LogNumbers()
        self.stored: dict[bytes, bytes] = {}
        self.drawn: set[int] = set()
        """All numbers that were drawn, by whatever was forgotten since."""
        self.is_up = True

    async def log_numbers(self) -> LogNumbers | None:
        return LogNumbers(self.numbers.next, self.numbers.ranges and list(self.numbers.ranges), self.numbers.given)

    async def lease_logs(self, _installation: str, ranges: Sequence[LogRange], given: int) -> None:
        if not self.is_up:
            raise NodeUnavailableError("it has gone meanwhile")
        try:
            self.numbers.check(ranges)
        except numbers.LogRangeError as error:
            raise NodeRefusedError(409, str(error)) from None
        self._store(self.numbers.taking(ranges, given))
        self.numbers.take(ranges, given)

    def draw(self) -> None:
        try:
            number = self.numbers.draw()
        except AttachError:
            return
        assert number not in self.drawn
        self.drawn.add(number)
        self._store(self.numbers.counter())

    def _store(self, operation: Any) -> None:
        self.stored[operation.key] = operation.value

    def restart(self) -> None:
        self.numbers = numbers.LogNumbers()
        self.numbers.load(self)  # type: ignore[arg-type]

    def get(self, _table: object, key: bytes) -> bytes | None:
        return self.stored.get(key)

    def restore(self, backup: dict[bytes, bytes]) -> None:
        self.stored = dict(backup)
        if numbers.LOG_RANGES in backup:
            self.stored[numbers.LOG_RANGES] = numbers.without_ranges(backup[numbers.LOG_RANGES])
        self.restart()


class World:
    """An installation of three nodes, with what can be restored of it."""

    def __init__(self) -> None:
        self.store = MemoryResources()
        self.leases = LogLeases(self.store, NAMES)
        self.nodes = [Node(name) for name in NAMES]
        self.stores: list[MemoryResources] = [copy.deepcopy(self.store)]
        self.journals: list[list[dict[bytes, bytes]]] = [[{}] for _ in NAMES]

    def keep(self) -> None:
        for node in self.nodes:
            try:
                asyncio.run(self.leases.keep(node))  # type: ignore[arg-type]
            except (NodeUnavailableError, NodeRefusedError):
                continue

    def act(self, action: str, which: int) -> None:
        node = self.nodes[which % len(NAMES)]
        if action == "draw":
            # One that has none is not served yet, and stores nothing.
            if node.numbers.ranges is not None or node is self.nodes[0]:
                for _ in range(3):
                    node.draw()
        elif action == "restart a node":
            node.restart()
        elif action == "restart control":
            self.leases = LogLeases(self.store, NAMES)
        elif action == "lose an answer":
            node.is_up = False
            self.keep()
            node.is_up = True
        elif action == "back up":
            self.stores.append(copy.deepcopy(self.store))
            for kept, each in zip(self.journals, self.nodes, strict=True):
                kept.append(dict(each.stored))
        elif action == "restore control":
            self.store = copy.deepcopy(self.stores[which % len(self.stores)])
            self.leases = LogLeases(self.store, NAMES)
            for _ in range(6):  # so that it needs more before control hears of the others
                self.nodes[0].draw()
        elif action == "restore a node" and numbers.LOG_RANGES in node.stored:
            backups = [kept for kept in self.journals[which % len(NAMES)] if numbers.LOG_RANGES in kept]
            if backups:
                node.restore(backups[which % len(backups)])
        self.keep()


ACTIONS = (
    "draw",
    "restart a node",
    "restart control",
    "lose an answer",
    "back up",
    "restore control",
    "restore a node",
)


@pytest.mark.chance
@pytest.mark.parametrize("seed", seeds(60))
def test_no_number_is_used_twice(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_numbers, "BLOCK", 4)
    chosen = random.Random(seed)
    world = World()
    for _ in range(chosen.randrange(12)):
        world.nodes[0].draw()
    for _ in range(40):
        world.act(chosen.choice(ACTIONS), chosen.randrange(12))
    world.keep()
    for at, node in enumerate(world.nodes):
        assert all(node.drawn.isdisjoint(other.drawn) for other in world.nodes[at + 1 :])
        assert node.numbers.left >= log_numbers.AHEAD * 4 - 1  # the first of all is 1


def kept(leases: LogLeases, node: Node) -> Node:
    asyncio.run(leases.keep(node))  # type: ignore[arg-type]
    return node


def test_the_first_node_keeps_what_it_has_and_the_others_begin_beyond() -> None:
    store, first, second = MemoryResources(), Node("node-0"), Node("node-1")
    first.numbers.next = BLOCK + 7
    leases = LogLeases(store, ["node-0"])
    with pytest.raises(NodeUnavailableError, match="the first are those of node node-0"):
        kept(leases, second)
    kept(leases, first)
    assert first.numbers.ranges == [(1, 2 * BLOCK), (2 * BLOCK, 3 * BLOCK), (3 * BLOCK, 4 * BLOCK)]
    assert (first.numbers.next, store.fact(GIVEN)) == (BLOCK + 7, 4 * BLOCK)
    kept(leases, second)
    assert [leases.problem(node.name) for node in (first, second)] == ["", ""]
    assert second.numbers.ranges == [(4 * BLOCK, 5 * BLOCK), (5 * BLOCK, 6 * BLOCK)]
    second.draw()
    assert (second.drawn, kept(leases, second).numbers.ranges[-1]) == ({4 * BLOCK}, (6 * BLOCK, 7 * BLOCK))  # type: ignore[index]


def test_a_node_that_does_not_take_its_numbers_is_told_the_same_again() -> None:
    store, node = MemoryResources(), Node("node-0")
    leases = LogLeases(store, ["node-0"])
    node.is_up = False
    for _ in range(3):
        kept(leases, node)
    assert (node.numbers.ranges, store.fact(GIVEN)) == (None, 2 * BLOCK)
    node.is_up = True
    assert kept(leases, node).numbers.ranges == [(1, BLOCK), (BLOCK, 2 * BLOCK)]


def test_two_nodes_that_hold_the_same_numbers_are_reported() -> None:
    first, second = Node("node-0"), Node("node-1")
    leases = LogLeases(MemoryResources(), ["node-0"])
    first.numbers.ranges, second.numbers.ranges = [(1, 10), (20, 30)], [(10, 20), (29, 40)]
    for node in (first, second, first):
        kept(leases, node)
    assert leases.problem("node-0") == "it holds log numbers that node node-1 holds, too"
    assert leases.problem("node-1") == "it holds log numbers that node node-0 holds, too"


def test_an_older_store_learns_from_any_node_what_was_leased_to_one_that_is_away() -> None:
    store, first, second = MemoryResources(), Node("node-0"), Node("node-1")
    leases = LogLeases(store, ["node-0"])
    kept(leases, first)
    older = copy.deepcopy(store)
    kept(leases, second)
    kept(leases, first)
    leases = LogLeases(older, ["node-0", "node-1"], lambda name: name == "node-1")
    first.numbers.next = 2 * BLOCK - 1
    kept(leases, first)
    assert second.numbers.ranges == [(2 * BLOCK, 3 * BLOCK), (3 * BLOCK, 4 * BLOCK)]
    assert first.numbers.ranges is not None
    assert first.numbers.ranges[-2:] == [(4 * BLOCK, 5 * BLOCK), (5 * BLOCK, 6 * BLOCK)]


def test_a_node_that_has_counted_in_anothers_numbers_goes_on_beyond_and_that_is_reported() -> None:
    store, first, second = MemoryResources(), Node("node-0"), Node("node-1")
    second.numbers.next = 5
    leases = LogLeases(store, ["node-0"])
    kept(leases, first)
    assert kept(leases, second).numbers.next == 2 * BLOCK
    assert leases.problem("node-1") == "it has used log numbers up to 4 that are another node's"
    assert leases.problem("node-0") == ""


def test_the_last_numbers_are_leased_once_and_half_of_them_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    store, node = MemoryResources(), Node("node-0")
    node.numbers.next = END // 2 - 5
    leases = LogLeases(store, ["node-0"])
    kept(leases, node)
    assert "numbers are leased, and none twice" in leases.problem("node-0")
    assert "no number is used twice" in caplog.text
    store.write_fact(GIVEN, END)
    node.numbers.ranges = []
    kept(leases, node)
    assert (node.numbers.ranges, node.numbers.left) == ([], 0)
    assert f"all {END} are leased" in caplog.text
