"""A node's connections over engines in memory, with their traces and logs."""

from __future__ import annotations

from itertools import count
from typing import Any

from enmasse.message.sections import Sections
from enmasse.messaging.space import Space
from enmasse.node.amqp.binding import Binding
from enmasse.node.connections.connections import Connections
from enmasse.node.connections.logs import EventLog
from enmasse.node.management.entities import Entities
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.trace import Tracer
from enmasse.testing.engine_pair import EnginePair
from enmasse.testing.ports import CoreHarness
from enmasse.testing.recorder import Recorder, RecordingSink
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.performatives import Source
from enmasse.wire.amqp.sasl import SaslClient


class Shell:
    """The socket of a connection, as far as the account of connections looks at it."""

    bytes_in = 11
    bytes_out = 22
    peer = "127.0.0.1:4711"
    slot = None
    is_stalled = False
    tls = via = ""

    def reset_later(self, _seconds: float) -> None:
        """Do nothing: there is no socket."""


class SeenNode:
    """A node with the space ``ns/shop`` and the queue ``q``; ``$admin`` is the administrator's."""

    def __init__(self) -> None:
        self.harness = CoreHarness()
        ids = count(1)
        self.connections = Connections(lambda: 1_700_000_000_000)
        self.entities = Entities(self.harness.core, lambda: f"id{next(ids)}", self.connections.close_space)
        self.entities.load()
        self.admin = Space(self.harness.core, "$admin", lambda: f"id{next(ids)}")
        self.events = EventLog()
        self.later: list[Any] = []
        self.tracer = Tracer(
            self.admin,
            self.connections,
            soon=self.later.append,
            clock_us=lambda: 1_700_000_000_000_000,
            new_id=lambda: f"id{next(ids)}",
            lines=lambda: self.lines,
        )
        self.lines: list[Any] = []
        """Connections to other containers."""
        self.entities.create(SPACE_TYPE, "ns/shop", {}, lambda _: None)
        self.harness.commit()
        asked = {"space": "ns/shop", "address": "q", "addressType": "queue"}
        self.entities.create(ADDRESS_TYPE, "ns/shop.q", asked, lambda _: None)
        self.harness.commit()

    def turn(self) -> None:
        """Run the turn, and what is to be called in it."""
        later, self.later[:] = list(self.later), []
        for call in later:
            call()
        self.harness.commit()


class SeenClient(EnginePair):
    """A client's engine, joined to the node's."""

    def __init__(
        self,
        node: SeenNode,
        container: str = "client-1",
        *,
        is_admin: bool = False,
        sasl: SaslClient | None = None,
        greets: bool = True,
    ) -> None:
        self.node = node
        self.binding = Binding(
            node.connections,
            spaces=lambda: node.entities.spaces,
            fixed=node.admin if is_admin else None,
            default=None,
            url="amqp://here:1",
            peer="unix" if is_admin else Shell.peer,
            events=None if is_admin else node.events,
        )
        self.binding.engine = Connection(
            self.binding, container_id="node", is_server=True, now=0.0, sasl=self.binding.sasl()
        )
        node.connections.connected(self.binding, Shell())  # type: ignore[arg-type]
        client = Connection(Recorder(), container_id=container, is_server=False, now=0.0, sasl=sasl)
        super().__init__(client, self.binding.engine, node.harness.clock)
        if greets:
            self.go()

    def go(self) -> None:
        """Carry bytes and run turns until nothing moves."""
        for _ in range(4):
            self.pump()
            self.node.turn()
        self.pump()


class TraceReader(SeenClient):
    """The administrator, who reads one trace."""

    def __init__(self, node: SeenNode, address: str, credit: int = 100) -> None:
        super().__init__(node, "administrator", is_admin=True)
        session = self.client.begin()
        self.go()
        self.sink = RecordingSink()
        self.link = session.attach_receiver("t", self.sink, Source(address))
        self.go()
        if credit:
            self.link.grant(credit)
            self.go()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What came, message by message."""
        return [Sections(payload).body for payload in self.sink.payloads]

    @property
    def records(self) -> list[list[Any]]:
        """Time, connection, direction, frame and size of each frame."""
        return [record for body in self.bodies for record in body["records"]]
