"""A node in memory, and a client whose links take part in transactions."""

from __future__ import annotations

from itertools import count
from typing import Any

from enmasse.message.codec import encode
from enmasse.message.composites import Composite, encode_composite
from enmasse.message.outcomes import ACCEPTED
from enmasse.message.sections import Header, Properties, Sections, encode_message
from enmasse.message.types import ULong
from enmasse.messaging.transaction import TransactionLimits
from enmasse.node.amqp.binding import Binding
from enmasse.node.connections.connections import Connections
from enmasse.node.management.entities import Entities
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.testing.engine_pair import EnginePair
from enmasse.testing.ports import CoreHarness
from enmasse.testing.recorder import Recorder, RecordingSink, Sent
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.link import SendingLink
from enmasse.wire.amqp.performatives import (
    Coordinator,
    Declare,
    Declared,
    Disposition,
    Source,
    Target,
    TransactionalState,
)
from enmasse.wire.amqp.session import Session

VALUE = b"\x00" + encode(ULong(0x77))


class Node:
    """A node's addresses over a storage in memory: queues q and r, stream s, topic t, anycast a."""

    def __init__(self) -> None:
        self.harness = CoreHarness()
        ids = count(1)
        self.connections = Connections(lambda: 1_700_000_000_000)
        self.entities = Entities(self.harness.core, lambda: f"id{next(ids)}", self.connections.close_space)
        self.entities.load()
        self.answers: list[Any] = []
        self.entities.create(SPACE_TYPE, "ns/shop", {}, self.answers.append)
        self.harness.commit()
        kinds = {"q": "queue", "r": "queue", "s": "stream", "t": "topic", "a": "anycast"}
        for name, kind in kinds.items():
            asked = {"space": "ns/shop", "address": name, "addressType": kind}
            self.entities.create(ADDRESS_TYPE, f"ns/shop.{name}", asked, self.answers.append)
            self.harness.commit()
        asked = {"space": "ns/shop", "address": "sub", "addressType": "subscription", "topic": "t"}
        self.entities.create(ADDRESS_TYPE, "ns/shop.sub", asked, self.answers.append)
        self.harness.commit()
        assert not any(self.answers)

    def __getitem__(self, name: str) -> Any:
        return self.entities.spaces["ns/shop"].addresses[name]

    def stored(self, name: str) -> int:
        stored: int = self[name].counts()["messagesStored"]
        return stored


class Shell:
    """The socket of a connection, as far as the account of connections looks at it."""

    bytes_in = bytes_out = 0
    peer = "127.0.0.1:1"
    slot = None
    is_stalled = False
    tls = via = ""

    def reset_later(self, _seconds: float) -> None:
        """Do nothing: there is no socket."""


class Client(EnginePair):
    """A client's engine, joined to a node's."""

    def __init__(self, node: Node, limits: TransactionLimits | None = None) -> None:
        self.node = node
        self.diary = Recorder()
        self.binding = Binding(
            node.connections,
            spaces=lambda: node.entities.spaces,
            fixed=None,
            default=None,
            url="amqp://here:1",
            peer=Shell.peer,
            limits=limits,
        )
        self.binding.engine = Connection(
            self.binding, container_id="node", is_server=True, now=0.0, max_frame_size=4096
        )
        node.connections.connected(self.binding, Shell())  # type: ignore[arg-type]
        client = Connection(self.diary, container_id="client-1", is_server=False, now=0.0, idle_timeout_s=0)
        super().__init__(client, self.binding.engine, node.harness.clock)
        self.pump()
        self.session = self.new_session()
        self.control = RecordingSink()

    def go(self) -> None:
        """Carry bytes, run turns and commit until nothing moves."""
        for _ in range(4):
            self.pump()
            self.node.harness.commit()
        self.pump()

    def new_session(self) -> Session:
        session = self.client.begin()
        self.pump()
        return session

    def sender(
        self,
        target: Target | Coordinator | str | None,
        name: str = "out",
        session: Session | None = None,
        **options: Any,
    ) -> RecordingSink:
        sink = RecordingSink()
        made = Target(address=target) if isinstance(target, str) else target
        sink.link = (session or self.session).attach_sender(name, sink, made, **options)
        self.go()
        return sink

    def receiver(
        self, source: str, credit: int = 100, name: str = "in", session: Session | None = None
    ) -> RecordingSink:
        sink = RecordingSink()
        link = (session or self.session).attach_receiver(name, sink, Source(address=source))
        sink.link = link
        self.go()
        link.grant(credit)
        self.go()
        return sink

    @property
    def detached(self) -> dict[str, str | None]:
        """Condition of every link that the node detached because of something, by its name."""
        return {name: condition for name, condition, _ in self.diary.calls("detached") if condition}

    def attach_control(self, name: str = "control", session: Session | None = None, **options: Any) -> RecordingSink:
        sink = self.sender(Coordinator(("amqp:local-transactions",)), name, session, **options)
        if not self.control.link:
            self.control = sink
        return sink

    def say(self, what: Composite, *, settled: bool = False, control: RecordingSink | None = None) -> Any:
        """Send a declare or a discharge; the state that answers it."""
        control = control or self.control
        control.link.session.flush()  # type: ignore[union-attr]
        sent = control.send(VALUE + encode_composite(what), settled=settled)
        self.go()
        return sent.state

    def declare(self, control: RecordingSink | None = None) -> bytes:
        if control is None and not self.control.link:
            self.attach_control()
        answer = self.say(Declare(), control=control)
        assert isinstance(answer, Declared)
        return answer.txn_id

    def post(
        self, sink: RecordingSink, txn_id: bytes, body: Any = "x", *, settled: bool = False, to: str | None = None
    ) -> Any:
        """Send a message within a transaction; the state that answers it."""
        payload = encode_message(body, header=Header(durable=True), properties=Properties(to=to))
        link = sink.link
        assert isinstance(link, SendingLink)
        before = len(self.diary.calls("retired"))
        outcomes = len(sink.outcomes)
        link.send_in_transaction(Sent(sink), payload, settled, 0, TransactionalState(txn_id))
        self.go()
        told = self.diary.calls("retired")[before:]
        if told:
            return told[0][1]
        return sink.outcomes[-1][1] if len(sink.outcomes) > outcomes else None

    def retire(
        self, sink: RecordingSink, txn_id: bytes, outcome: Any = ACCEPTED, *, index: int = 0, settled: bool = True
    ) -> int:
        """Tell an outcome within a transaction; the delivery's id."""
        delivery_id = sink.received[index].delivery_id
        self.tell(sink, delivery_id, TransactionalState(txn_id, outcome), settled=settled)
        return delivery_id

    def tell(self, sink: RecordingSink, delivery_id: int, state: Any, *, settled: bool) -> None:
        link = sink.link
        assert link is not None
        self.client.put(amqp_frame(link.channel, Disposition(True, delivery_id, None, settled, state)))
        self.go()

    def fill(self, name: str, *bodies: str) -> None:
        sink = self.sender(name, f"fill-{name}")
        for body in bodies:
            sink.send(encode_message(body, header=Header(durable=True)))
        self.go()
        assert sink.link is not None
        sink.link.detach()
        self.go()


def bodies(sink: RecordingSink) -> list[Any]:
    return [Sections(payload).body for payload in sink.payloads]
