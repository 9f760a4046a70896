"""A node without sockets: core and entities over a simulated journal, and what a node finds when it starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from enmasse.message.outcomes import ACCEPTED
from enmasse.message.sections import Sections
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.core import Core
from enmasse.messaging.storage import Table
from enmasse.messaging.streams.stream import Stream
from enmasse.node.connections.handover import Handovers, Home
from enmasse.node.management.entities import Entities
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.testing.ports import MemoryConsumerPort
from enmasse.wire.peer_header import PeerHeader
from enmasse.wire.proxy_header import ProxyHeader
from tests.simulation.clients import attempts_of, number_of

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.testing.simulated_storage import SimulatedStorage
    from tests.simulation.copies import WallClock

__all__ = ["ALONE", "LOG_TABLES", "QUEUES", "Findings", "Node", "Surroundings", "look", "marks_of"]

SECRET = b"of this start, for all nodes"
MAX_TURNS = 200
"""Turns that may follow from one another; more mean that something asks for ever."""

QUEUES = ("queue", "subscription", "deadletter")
"""Types of addresses that messages wait at for receivers."""

ALL = 1_000_000
"""More credit than there are messages."""

LOG_TABLES = (Table.FRAME, Table.SETTLED, Table.ATTEMPTS, Table.HOLDER)


class Surroundings(NamedTuple):
    """What a node knows of itself and of others.

    Attributes:
        name: its name.
        space: the space that is at home there.
        homes: of all spaces; none where there is no other node.
    """

    name: str
    space: str
    homes: dict[str, Home]


ALONE = Surroundings("node-0", "ns/space", {})


class Node:
    """One life of a node.

    Args:
        surroundings: who it is.
        storage: its journal.
        now: the clock in seconds.
        clock: the wall clock.
        report: hears what failed.
        window: bytes that each address may have in memory; 0 is as a real node has it.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        storage: SimulatedStorage,
        now: float,
        clock: WallClock,
        report: Callable[[str], None],
        window: int = 0,
    ) -> None:
        self.surroundings = surroundings
        self.storage = storage
        self.now = now
        self._clock = clock
        self._report = report
        self._is_turn_due = False
        self._ids = 0
        self.core = Core(storage, self._request_turn, self._fault)
        if window:
            self.core.window_bytes = window
        self.entities = Entities(self.core, self._new_id)
        # Nobody's connection is here: clients are links.
        nobody = cast("Any", None)
        spaces = self.entities.records[SPACE_TYPE]
        self.handovers = Handovers(
            nobody, nobody, surroundings.name, spaces, lambda: "here", nobody, lambda _space: None
        )
        self.handovers.directory, self.handovers.secret = Path("peers"), SECRET
        self.entities.is_here = lambda space: self.handovers.elsewhere(space) is None
        storage.listener = self.core

    def _request_turn(self) -> None:
        self._is_turn_due = True

    def _fault(self, name: str, error: Exception) -> None:
        self._report(f"{name} failed: {type(error).__name__}: {error}")

    def _new_id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"

    def load(self) -> None:
        """Take up what the journal holds."""
        self.entities.load()
        self.turn()

    def create(self, entity_type: str, name: str, attributes: dict[str, Any]) -> None:
        """Add a space or an address, and wait until it is there."""
        problems: list[Any] = []
        self.entities.create(entity_type, name, attributes, problems.append)
        self.settle()
        assert problems == [None], problems

    def create_spaces(self) -> None:
        """Add the space that everything is in, and those of others."""
        for space, home in self.surroundings.homes.items():
            self.create(SPACE_TYPE, space, {"home": home.node, "homeGeneration": home.generation})
        if not self.surroundings.homes:
            self.create(SPACE_TYPE, self.surroundings.space, {})

    def takes_from(self, front: Node) -> bool:
        """Whether another node knows that the space is at home here, and its clients come in."""
        space = self.surroundings.space
        home = front.handovers.elsewhere(space)
        if home is None:
            return False
        client = ProxyHeader(True, None, None, None, "")
        header = PeerHeader(client, SECRET, "here", front.surroundings.name, space, home.generation, "amqp")
        return home.node == self.surroundings.name and self.handovers.problem_of(header) is None

    def create_address(self, name: str, attributes: dict[str, Any]) -> None:
        """Add an address to the space."""
        space = self.surroundings.space
        self.create(ADDRESS_TYPE, f"{space}.{name}", {"space": space, "address": name, **attributes})

    def delete_address(self, name: str) -> list[Any]:
        """Remove an address from the space; what is returned is no more empty once that is on the disk."""
        told: list[Any] = []
        self.entities.delete(ADDRESS_TYPE, f"{self.surroundings.space}.{name}", told.append)
        return told

    def find(self, name: str) -> Address:
        """An address by its name."""
        return self.entities.spaces[self.surroundings.space].find(name)

    def look_at_clock(self) -> None:
        """Have a turn, as a node has several times a second."""
        self._is_turn_due = True
        self.turn()

    def turn(self) -> None:
        """Run turns until none is asked for."""
        for _ in range(MAX_TURNS):
            if not self._is_turn_due:
                return
            self._is_turn_due = False
            self.core.run_turn(self.now, self._clock.us(self.now))
        self._report(f"turns are still asked for after {MAX_TURNS}")

    def advance(self, seconds: float) -> None:
        """Let time pass, with every deadline and its turn on the way."""
        end = self.now + seconds
        self.turn()
        # Streams look ten times a second for what they need not keep any more.
        for _ in range(MAX_TURNS + round(20 * seconds)):
            deadline = self.core.next_deadline()
            if deadline is None or deadline > end:
                break
            self.now = max(self.now, deadline)
            self.core.handle_deadline(self.now)
            self.turn()
        else:
            self._report(f"deadlines still come after {MAX_TURNS} within {seconds} s")
        self.now = max(self.now, end)

    def settle(self) -> None:
        """Have everything done that waits for the journal."""
        for _ in range(MAX_TURNS):
            self.turn()
            if self.storage.is_idle and self.core.is_idle:
                return
            if self.storage.is_idle:
                # It waits after a failure.
                self.advance(1.0)
            self.storage.settle()
        self._report(f"the journal is not idle after {MAX_TURNS} rounds")


@dataclass(slots=True)
class Findings:
    """What a node finds when it starts.

    Attributes:
        messages: by queue or subscription, in the order they were handed out: numbers and their
            failed deliveries.
        rows: by stream and partition: offset and number.
        marks: by stream and partition: the first offset, and the one above the last, when they were read.
    """

    messages: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    rows: dict[str, list[list[tuple[int, int]]]] = field(default_factory=dict)
    marks: dict[str, list[tuple[int, int]]] = field(default_factory=dict)


def look(
    surroundings: Surroundings,
    storage: SimulatedStorage,
    now: float,
    clock: WallClock,
    patience: float,
    window: int,
    targets: set[str],
    report: Callable[[str], None],
) -> Findings:
    """Start a node over a journal of its own, see what it has, take all of it, and see that nothing is left.

    Args:
        surroundings: of the node.
        storage: the journal, which is used up.
        now: the clock.
        clock: the wall clock.
        patience: how long to wait for messages that are not to be delivered at once.
        window: as of a node.
        targets: addresses that may be given messages of others meanwhile.
        report: hears what does not fit.
    """
    node = Node(surroundings, storage, now, clock, lambda text: report(f"in a node that starts: {text}"), window)
    node.load()
    findings = Findings()
    ports: dict[str, MemoryConsumerPort] = {}
    stored: dict[str, int] = {}
    streams = set()
    for record in node.entities.records[ADDRESS_TYPE].values():
        name, kind = record["address"], record["addressType"]
        address = node.find(name)
        if kind in QUEUES:
            stored[name] = address.counts()["messagesStored"]
            ports[name] = _attach(address, ALL)
        elif kind == "stream":
            findings.rows[name] = _rows(node, address, record.get("partitions", 1))
            findings.marks[name] = marks_of(address)
            streams.add(record["log"])
    node.settle()
    end = now + patience
    while node.now < end and any(len(ports[name].arrivals) < count for name, count in stored.items()):
        # What becomes due is handed out once that is on the disk.
        node.advance(0.1)
        node.settle()
    for name, port in ports.items():
        if len(port.arrivals) > stored[name] and name not in targets:
            report(f"{name}: a node that starts says it holds {stored[name]} messages, and hands out more: "
                   f"{len(port.arrivals)}")  # fmt: skip
    for _ in range(2):
        for port in ports.values():
            while port.unsettled:
                port.settle(ACCEPTED)
        node.settle()
        if not targets:
            break
        node.advance(3.0)
    for name, port in ports.items():
        findings.messages[name] = [_seen(arrival.payload) for arrival in port.arrivals]
        counts = node.find(name).counts()
        if counts["messagesStored"] or counts["bytesStored"]:
            report(f"{name}: a node that starts has {counts['messagesStored']} messages of {counts['bytesStored']} "
                   "bytes left when all were taken")  # fmt: skip
    for table in LOG_TABLES:
        left = [key for key, _ in storage.scan_all(table) if int.from_bytes(key[:4], "big") not in streams]
        if left:
            report(f"{len(left)} records of table {table.name} are left when all was taken: {left[0].hex()}")
    return findings


def _attach(address: Address, credit: int, **options: Any) -> MemoryConsumerPort:
    port = MemoryConsumerPort()
    port.sink = address.attach_consumer(port, AttachOptions(**options))
    port.grant(credit)
    return port


def _seen(payload: bytes) -> tuple[int, int]:
    return number_of(payload), attempts_of(payload)


def marks_of(address: Address) -> list[tuple[int, int]]:
    """Where the partitions of a stream begin and end, by its own words."""
    assert isinstance(address, Stream)
    return [(low, end) for _, low, end in address.counts()["partitionMarks"]]


def _rows(node: Node, address: Address, partitions: int) -> list[list[tuple[int, int]]]:
    port = _attach(address, ALL, presettle=True, filters={"enmasse:start": "first"})
    node.settle()
    rows: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
    for payload in port.payloads:
        annotations = Sections(payload).message_annotations
        rows[annotations["x-opt-partition"]].append((annotations["x-opt-offset"], number_of(payload)))
    port.leave()
    return rows
