"""Transactions as a client's links see them: declared, used, discharged, lapsed and lost."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from enmasse.messaging.transaction import Account
from enmasse.node.binding import Binding
from enmasse.node.connections import Connections
from enmasse.node.coordinator import CAPABILITIES, TransactionLimits
from enmasse.node.entities import ADDRESS_TYPE, SPACE_TYPE, Entities
from enmasse.testing.engine_pair import EnginePair
from enmasse.testing.ports import CoreHarness
from enmasse.testing.recorder import Recorder, RecordingSink, Sent
from enmasse.wire.amqp.codec import encode
from enmasse.wire.amqp.composites import Performative, encode_performative
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.link import SendingLink
from enmasse.wire.amqp.outcomes import ACCEPTED, RELEASED
from enmasse.wire.amqp.performatives import (
    AmqpError,
    Coordinator,
    Disposition,
    Modified,
    Rejected,
    Source,
    Target,
    Transfer,
)
from enmasse.wire.amqp.sections import Header, Properties, Sections, encode_message, header_of
from enmasse.wire.amqp.session import Session
from enmasse.wire.amqp.transactions import (
    ROLLBACK,
    TIMEOUT,
    UNKNOWN_ID,
    Declare,
    Declared,
    Discharge,
    TransactionalState,
)
from enmasse.wire.amqp.types import ULong

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
        self.binding.connection = Connection(
            self.binding, container_id="node", is_server=True, now=0.0, max_frame_size=4096
        )
        node.connections.connected(self.binding, Shell())  # type: ignore[arg-type]
        client = Connection(self.diary, container_id="client-1", is_server=False, now=0.0, idle_timeout_s=0)
        super().__init__(client, self.binding.connection, node.harness.clock)
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
        return {name: condition for name, condition, _ in self.diary.told("detached") if condition}

    def attach_control(self, name: str = "control", session: Session | None = None, **options: Any) -> RecordingSink:
        sink = self.sender(Coordinator(("amqp:local-transactions",)), name, session, **options)
        if not self.control.link:
            self.control = sink
        return sink

    def say(self, what: Performative, *, settled: bool = False, control: RecordingSink | None = None) -> Any:
        """Send a declare or a discharge; the state that answers it."""
        control = control or self.control
        control.link.session.flush()  # type: ignore[union-attr]
        sent = control.send(VALUE + encode_performative(what), settled=settled)
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
        before = len(self.diary.told("retired"))
        outcomes = len(sink.outcomes)
        link.send_in_transaction(Sent(sink), payload, settled, 0, TransactionalState(txn_id))
        self.go()
        told = self.diary.told("retired")[before:]
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


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def client(node: Node) -> Client:
    return Client(node)


# Declaring and discharging


def test_a_control_link_says_what_the_coordinator_can(client: Client) -> None:
    control = client.attach_control()
    assert control.link is not None
    answer = control.link.remote_attach
    assert answer is not None
    assert answer.target == Coordinator(CAPABILITIES)
    assert control.credits[-1] == (100, False)


def test_messages_to_several_addresses_appear_with_the_commit(node: Node, client: Client) -> None:
    txn = client.declare()
    senders = [client.sender(name, name) for name in ("q", "r", "s", "t")]
    for sink in senders:
        assert client.post(sink, txn) == TransactionalState(txn, ACCEPTED)
    assert [node.stored(name) for name in ("q", "r", "s", "sub")] == [0, 0, 0, 0]
    assert client.say(Discharge(txn)) == ACCEPTED
    assert [node.stored(name) for name in ("q", "r", "s", "sub")] == [1, 1, 1, 1]
    assert node.harness.core.batches_failed == 0
    again = node.harness.restarted()
    found = Entities(again.core, lambda: "id", lambda _: None)
    found.load()
    addresses = found.spaces["ns/shop"].addresses
    assert [addresses[name].counts()["messagesStored"] for name in ("q", "r", "s", "sub")] == [1, 1, 1, 1]


def test_nothing_of_a_transaction_remains_after_a_rollback(node: Node, client: Client) -> None:
    txn = client.declare()
    sink = client.sender("q")
    client.post(sink, txn)
    assert client.say(Discharge(txn, True)) == ACCEPTED
    assert node.stored("q") == 0
    assert client.say(Discharge(txn)).error.condition == UNKNOWN_ID


def test_transactions_do_not_see_each_other(node: Node, client: Client) -> None:
    sink = client.sender("q")
    first, second = client.declare(), client.declare()
    assert first != second
    client.post(sink, first, "first")
    client.post(sink, second, "second")
    sink.send(encode_message("between", header=Header(durable=True)))
    client.go()
    client.say(Discharge(second))
    client.say(Discharge(first, True))
    assert bodies(client.receiver("q")) == ["between", "second"]


def test_a_commit_that_fails_is_told_and_leaves_everything_as_before(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    sink = client.sender("s")
    txn = client.declare()
    client.retire(receiver, txn, settled=False)
    client.post(sink, txn)
    sent = client.control.send(VALUE + encode_performative(Discharge(txn)))
    client.pump()
    node.harness.fail()
    client.pump()
    assert sent.state.error.condition == ROLLBACK
    assert "disk is full" in sent.state.error.description
    assert (node.stored("q"), node.stored("s")) == (1, 0)
    assert node["q"].consumers[0].unsettled == 1
    node.harness.advance(1)
    client.tell(receiver, receiver.received[0].delivery_id, ACCEPTED, settled=True)
    assert node.stored("q") == 0
    assert node.harness.faults == []


def test_a_settled_discharge_takes_effect_without_an_answer(node: Node, client: Client) -> None:
    txn = client.declare()
    client.post(client.sender("q"), txn)
    assert client.say(Discharge(txn), settled=True) is None
    assert node.stored("q") == 1


@pytest.mark.parametrize(
    ("what", "condition"),
    [
        (Declare(global_id=b"xa"), "amqp:not-implemented"),
        (Discharge(b"nonsense"), UNKNOWN_ID),
        (AmqpError("a:b"), "amqp:invalid-field"),
    ],
)
def test_what_a_coordinator_does_not_do_is_rejected(client: Client, what: Performative, condition: str) -> None:
    client.attach_control()
    answer = client.say(what)
    assert isinstance(answer, Rejected)
    assert answer.error is not None
    assert answer.error.condition == condition
    client.declare()


@pytest.mark.parametrize("payload", [b"", b"garbage", VALUE + b"\x40", VALUE + b"\x00\x53\x32\x45"])
def test_a_control_message_that_cannot_be_read_is_rejected(client: Client, payload: bytes) -> None:
    client.attach_control()
    sent = client.control.send(payload)
    client.go()
    assert sent.state.error.condition == "amqp:invalid-field"


def test_a_settled_declare_cannot_be_answered(client: Client) -> None:
    client.attach_control()
    client.say(Declare(), settled=True)
    assert client.detached["control"] == "amqp:not-allowed"


def test_a_control_link_that_knows_no_rejection_is_detached_instead(node: Node, client: Client) -> None:
    source = Source(outcomes=("amqp:accepted:list",))
    control = client.attach_control(source=source)
    txn = client.declare()
    client.post(client.sender("q"), txn)
    client.say(Discharge(b"nonsense"), control=control)
    assert client.detached["control"] == UNKNOWN_ID
    assert node.stored("q") == 0
    assert client.binding._coordinator is not None
    assert client.binding._coordinator.transactions == {}


def test_a_control_link_may_be_used_for_ever(client: Client) -> None:
    client.attach_control()
    for _ in range(300):
        assert client.say(Discharge(client.declare(), True)) == ACCEPTED


# Bounds


def test_a_connection_has_so_many_transactions_at_once(node: Node) -> None:
    client = Client(node, TransactionLimits(max_open=2))
    first = client.declare()
    client.declare()
    answer = client.say(Declare())
    assert answer.error.condition == "amqp:resource-limit-exceeded"
    client.say(Discharge(first))
    client.declare()
    Client(node, TransactionLimits(max_open=2)).declare()


def test_a_transaction_that_holds_too_much_rolls_back(node: Node) -> None:
    account = Account(1 << 20)
    client = Client(node, TransactionLimits(max_bytes=2_000, account=account))
    sink = client.sender("q")
    txn = client.declare()
    client.post(sink, txn, "x" * 1_000)
    answer = client.post(sink, txn, "x" * 1_000)
    assert answer.outcome.error.condition == "amqp:resource-limit-exceeded"
    answer = client.say(Discharge(txn))
    assert answer.error.condition == ROLLBACK
    assert "2000 bytes" in answer.error.description
    assert (node.stored("q"), account.held_bytes) == (0, 0)


def test_a_transaction_lapses_in_time(node: Node) -> None:
    client = Client(node, TransactionLimits(timeout_s=60))
    client.fill("q", "one", "two")
    receiver = client.receiver("q")
    sink = client.sender("r")
    late = client.declare()
    client.post(sink, late)
    client.retire(receiver, late)
    kept = client.retire(receiver, late, index=1, settled=False)
    node.harness.advance(30)
    good = client.declare()
    client.post(sink, good)
    node.harness.advance(31)
    client.go()
    assert client.post(sink, late).error.condition == TIMEOUT
    assert bodies(receiver) == ["one", "two", "one"]
    client.retire(receiver, late, index=2)
    assert bodies(receiver)[3:] == ["one"]
    assert client.say(Discharge(good)) == ACCEPTED
    assert client.say(Discharge(late)).error.condition == TIMEOUT
    assert client.say(Discharge(late)).error.condition == UNKNOWN_ID
    client.tell(receiver, kept, ACCEPTED, settled=True)
    assert (node.stored("q"), node.stored("r")) == (1, 1)


def test_a_rollback_of_what_has_lapsed_is_no_error(node: Node) -> None:
    client = Client(node, TransactionLimits(timeout_s=1))
    txn = client.declare()
    node.harness.advance(2)
    assert client.say(Discharge(txn, True)) == ACCEPTED


def test_transactions_may_have_all_the_time_there_is(node: Node) -> None:
    client = Client(node, TransactionLimits(timeout_s=0))
    txn = client.declare()
    node.harness.advance(100_000)
    assert client.say(Discharge(txn)) == ACCEPTED


# Posting


def test_a_direct_address_cannot_be_posted_to(node: Node, client: Client) -> None:
    client.receiver("a")
    sink = client.sender("a", "direct")
    txn = client.declare()
    answer = client.post(sink, txn)
    assert answer.outcome.error.condition == "amqp:not-implemented"
    assert "anycast 'a'" in answer.outcome.error.description
    answer = client.say(Discharge(txn))
    assert answer.error.condition == ROLLBACK
    assert "anycast 'a'" in answer.error.description


def test_a_settled_message_that_is_refused_shows_at_the_discharge(node: Node, client: Client) -> None:
    client.receiver("a")
    sink = client.sender("a", "direct")
    txn = client.declare()
    assert client.post(sink, txn, settled=True) is None
    assert client.say(Discharge(txn)).error.condition == ROLLBACK


def test_a_message_of_an_unknown_transaction_is_rejected_or_ends_its_link(client: Client) -> None:
    sink = client.sender("q")
    assert client.post(sink, b"none").error.condition == UNKNOWN_ID
    assert client.detached == {}
    client.post(sink, b"none", settled=True)
    assert client.detached == {"out": UNKNOWN_ID}


def test_a_sender_without_an_address_takes_part(node: Node, client: Client) -> None:
    sink = client.sender(Target())
    txn = client.declare()
    for number in range(250):
        assert client.post(sink, txn, to="qr"[number % 2]).outcome == ACCEPTED
    assert client.say(Discharge(txn)) == ACCEPTED
    assert (node.stored("q"), node.stored("r")) == (125, 125)
    for to, condition in (("nowhere", "amqp:not-found"), (None, "amqp:precondition-failed")):
        txn = client.declare()
        assert client.post(sink, txn, to=to).outcome.error.condition == condition
        assert client.say(Discharge(txn)).error.condition == ROLLBACK


def test_credit_is_granted_again_for_what_transactions_hold(node: Node, client: Client) -> None:
    sink = client.sender("q")
    txn = client.declare()
    link = sink.link
    assert isinstance(link, SendingLink)
    for _ in range(2_500):
        assert link.credit > 0
        client.post(sink, txn, settled=True) if link.credit % 500 == 0 else link.send_in_transaction(
            None, encode_message("x"), True, 0, TransactionalState(txn)
        )
        if link.credit == 0:
            client.go()
    client.go()
    client.say(Discharge(txn))
    assert node.stored("q") == 2_500


def test_frames_cannot_be_part_of_a_transaction(client: Client) -> None:
    sink = client.sender("s", desired_capabilities=("enmasse:frames",))
    txn = client.declare()
    answer = client.post(sink, txn)
    assert answer.outcome.error.condition == "amqp:not-implemented"


def test_a_discharge_in_the_middle_of_a_message_rolls_back(node: Node, client: Client) -> None:
    sink = client.sender("q")
    other = client.new_session()
    client.attach_control(session=other)
    txn = client.declare()
    link = sink.link
    assert link is not None
    client.client.put(
        amqp_frame(link.channel, Transfer(link.handle, 0, b"t", 0, more=True, state=TransactionalState(txn)))
    )
    answer = client.say(Discharge(txn))
    assert answer.error.condition == ROLLBACK
    assert "not come to its end" in answer.error.description


def test_a_message_to_the_control_link_cannot_be_part_of_a_transaction(client: Client) -> None:
    txn = client.declare()
    assert client.post(client.control, txn).outcome.error.condition == "amqp:not-implemented"


# Settling


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("name", ["q", "sub"])
def test_what_is_received_is_gone_with_the_commit(node: Node, client: Client, settled: bool, name: str) -> None:
    client.fill("t" if name == "sub" else name, "in")
    receiver = client.receiver(name)
    txn = client.declare()
    delivery_id = client.retire(receiver, txn, settled=settled)
    client.post(client.sender("r"), txn)
    assert (node.stored(name), node.stored("r")) == (1, 0)
    assert client.say(Discharge(txn)) == ACCEPTED
    assert (node.stored(name), node.stored("r")) == (0, 1)
    (consumer,) = node[name].consumers
    assert (consumer.unsettled, consumer.accepted) == (0, 1)
    assert client.server.sessions[0].enlisted == {}
    assert delivery_id not in client.server.sessions[0].unsettled


def test_an_unsettled_delivery_is_settled_by_the_node_once_committed(client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    delivery_id = client.retire(receiver, txn, settled=False)
    seen = len(client.to_client.carried)
    client.say(Discharge(txn))
    frame = amqp_frame(0, Disposition(False, delivery_id, delivery_id, True, ACCEPTED))
    assert frame in bytes(client.to_client.carried[seen:])


def test_what_was_settled_comes_again_after_a_rollback_as_a_failed_attempt(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    client.retire(receiver, txn)
    client.say(Discharge(txn, True))
    assert bodies(receiver) == ["in", "in"]
    header = header_of(receiver.payloads[1])
    assert header is not None
    assert header.delivery_count == 1


def test_what_was_not_settled_stays_with_its_receiver_after_a_rollback(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    delivery_id = client.retire(receiver, txn, settled=False)
    client.say(Discharge(txn, True))
    assert bodies(receiver) == ["in"]
    txn = client.declare()
    client.retire(receiver, txn, settled=False)
    client.say(Discharge(txn))
    assert node.stored("q") == 0
    assert delivery_id not in client.server.sessions[0].unsettled


@pytest.mark.parametrize(
    ("outcome", "again"), [(RELEASED, 0), (Modified(delivery_failed=True), 1), (Rejected(), None)]
)
def test_other_outcomes_take_effect_with_the_commit(
    node: Node, client: Client, outcome: Any, again: int | None
) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    client.retire(receiver, txn, outcome)
    assert bodies(receiver) == ["in"]
    assert node.stored("q") == 1
    client.say(Discharge(txn))
    assert bodies(receiver)[1:] == ([] if again is None else ["in"])
    if again is not None:
        header = header_of(receiver.payloads[1])
        assert (header.delivery_count if header else 0) == again
    assert node.stored("q") == (0 if again is None else 1)


def test_what_is_read_from_a_stream_within_a_transaction_is_only_settled(node: Node, client: Client) -> None:
    client.fill("s", "in")
    sink = RecordingSink()
    source = Source(address="s", filter={"enmasse:start": "first"})
    link = client.session.attach_receiver("in", sink, source, snd_settle_mode=0)
    sink.link = link
    client.go()
    link.grant(10)
    client.go()
    txn = client.declare()
    client.retire(sink, txn, settled=False)
    client.say(Discharge(txn))
    assert node["s"].consumers[0].unsettled == 0
    assert node.stored("s") == 1


def test_a_later_outcome_outside_takes_a_delivery_out_of_the_transaction(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    delivery_id = client.retire(receiver, txn, settled=False)
    client.tell(receiver, delivery_id, RELEASED, settled=True)
    assert bodies(receiver) == ["in", "in"]
    assert client.say(Discharge(txn)) == ACCEPTED
    assert node.stored("q") == 1


def test_a_delivery_may_be_settled_after_it_was_told_within_the_transaction(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    delivery_id = client.retire(receiver, txn, settled=False)
    client.tell(receiver, delivery_id, None, settled=True)
    client.say(Discharge(txn, True))
    assert bodies(receiver) == ["in", "in"]


def test_a_delivery_may_change_its_transaction(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    first, second = client.declare(), client.declare()
    client.retire(receiver, first, settled=False)
    client.retire(receiver, second, settled=True)
    client.say(Discharge(first, True))
    assert bodies(receiver) == ["in"]
    client.say(Discharge(second))
    assert node.stored("q") == 0


def test_a_delivery_settled_while_its_commit_runs_needs_no_answer(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    delivery_id = client.retire(receiver, txn, settled=False)
    sent = client.control.send(VALUE + encode_performative(Discharge(txn)))
    client.pump()
    node.harness.turn()
    assert receiver.link is not None
    client.client.put(amqp_frame(0, Disposition(True, delivery_id, None, True, ACCEPTED)))
    client.pump()
    seen = len(client.to_client.carried)
    client.go()
    assert sent.state == ACCEPTED
    assert node.stored("q") == 0
    assert amqp_frame(0, Disposition(False, delivery_id, delivery_id, True, ACCEPTED)) not in bytes(
        client.to_client.carried[seen:]
    )


def test_a_direct_delivery_cannot_be_settled_within_a_transaction(node: Node, client: Client) -> None:
    receiver = client.receiver("a")
    sink = client.sender("a", "direct")
    sink.send(encode_message("x"))
    client.go()
    txn = client.declare()
    client.retire(receiver, txn)
    assert client.detached == {"in": "amqp:not-implemented"}
    assert sink.states == [Modified(delivery_failed=True)]
    assert client.say(Discharge(txn)).error.condition == ROLLBACK


def test_an_outcome_of_an_unknown_transaction_ends_the_link_and_the_message_comes_again(
    node: Node, client: Client
) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    client.retire(receiver, b"none")
    assert client.detached == {"in": UNKNOWN_ID}
    assert bodies(client.receiver("q", name="second")) == ["in"]


# Ends


@pytest.mark.parametrize("end", ["detach", "session", "connection"])
def test_what_is_not_discharged_is_rolled_back_with_its_control_link(node: Node, client: Client, end: str) -> None:
    client.fill("q", "one", "two")
    session = client.new_session() if end == "session" else client.session
    receiver = client.receiver("q", session=session)
    control = client.attach_control(session=session)
    txn = client.declare(control)
    client.post(client.sender("r", session=session), txn)
    client.retire(receiver, txn)
    client.retire(receiver, txn, index=1, settled=False)
    if end == "detach":
        assert control.link is not None
        control.link.detach()
    elif end == "session":
        session.end()
    else:
        client.server.lost()
    client.go()
    account = client.binding._limits.account
    assert account.held_bytes == 0
    assert (node.stored("q"), node.stored("r")) == (2, 0)
    if end == "detach":
        assert bodies(receiver) == ["one", "two", "one"]
    else:
        assert bodies(Client(node).receiver("q")) == ["one", "two"]
    assert node.harness.faults == []


@pytest.mark.parametrize("fail", [False, True])
def test_a_receiver_may_leave_before_the_discharge(node: Node, client: Client, fail: bool) -> None:
    client.fill("q", "one", "two")
    receiver = client.receiver("q")
    txn = client.declare()
    client.retire(receiver, txn)
    client.retire(receiver, txn, index=1, settled=False)
    assert receiver.link is not None
    receiver.link.detach()
    client.go()
    second = client.receiver("q", name="second")
    assert bodies(second) == []
    assert client.say(Discharge(txn, fail)) == ACCEPTED
    assert bodies(second) == (["one", "two"] if fail else [])
    assert node.stored("q") == (2 if fail else 0)
    assert node.harness.faults == []


def test_a_connection_lost_during_the_commit_does_not_undo_it(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    client.post(client.sender("r"), txn)
    client.retire(receiver, txn, settled=False)
    client.control.send(VALUE + encode_performative(Discharge(txn)))
    client.pump()
    node.harness.turn()
    client.server.lost()
    node.harness.commit()
    assert (node.stored("q"), node.stored("r")) == (0, 1)
    assert node.harness.faults == []


def test_a_connection_lost_during_a_commit_that_fails_gives_everything_back(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    client.retire(receiver, txn, settled=False)
    client.control.send(VALUE + encode_performative(Discharge(txn)))
    client.pump()
    node.harness.turn()
    client.server.lost()
    node.harness.fail()
    node.harness.advance(1)
    assert bodies(Client(node).receiver("q")) == ["in"]


def test_a_queue_deleted_in_the_middle_is_no_trouble(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    client.retire(receiver, txn)
    client.post(client.sender("r"), txn)
    node.entities.delete(ADDRESS_TYPE, "ns/shop.q", node.answers.append)
    client.go()
    assert client.say(Discharge(txn)) == ACCEPTED
    assert node.stored("r") == 1
    assert node.harness.faults == []


def test_an_address_deleted_before_the_commit_rolls_back_what_was_posted_to_it(node: Node, client: Client) -> None:
    txn = client.declare()
    client.post(client.sender("q", "q"), txn)
    client.post(client.sender("r", "r"), txn)
    node.entities.delete(ADDRESS_TYPE, "ns/shop.q", node.answers.append)
    client.go()
    answer = client.say(Discharge(txn))
    assert answer.error.condition == ROLLBACK
    assert "'q' was deleted" in answer.error.description
    assert node.stored("r") == 0


def test_transactions_show_as_a_link(node: Node, client: Client) -> None:
    client.attach_control()
    (link,) = node.connections.read_links()
    assert (link["role"], link["address"]) == ("sender", "$coordinator")
    (connection,) = node.connections.read_connections()
    assert connection["transactions"] == 0
    client.declare()
    (connection,) = node.connections.read_connections()
    assert connection["transactions"] == 1
