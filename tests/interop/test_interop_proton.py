"""python-qpid-proton against a real node: its reactor for what happens by itself, every address type."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("proton") is None and os.environ.get("CI") != "true":
    pytest.skip(
        "python-qpid-proton is missing: install a C compiler, then run `make clean setup` (see .venv/proton.log)",
        allow_module_level=True,
    )

from proton import Condition, Delivery, Endpoint, Link, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import AtMostOnce, Container, Filter

from enmasse.testing.node_process import NodeProcess

pytestmark = pytest.mark.slow

TIMEOUT_S = 60.0

Answer = Callable[[int, Any], None]


class Play(MessagingHandler):
    """Connects, does what a test wants, and fails if that takes too long."""

    def __init__(self, node: NodeProcess, **options: Any) -> None:
        super().__init__(auto_accept=False, **options)
        self.url = node.url
        self.connection: Any = None
        self.container: Any = None
        self.errors: list[tuple[str, str]] = []
        self.ends_on_error = False
        self.connect_options: dict[str, Any] = {}

    def play(self) -> None:
        container = Container(self)
        container.schedule(TIMEOUT_S, self)
        container.run()

    def on_timer_task(self, event: Any) -> None:
        shown = {
            name: value for name, value in vars(self).items() if isinstance(value, int | str | list | dict | set)
        }
        raise TimeoutError(f"{type(self).__name__} did not come to its end: {shown}")

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = event.container.connect(self.url, reconnect=False, **self.connect_options)
        self.begin()

    def begin(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self.connection.close()

    def on_connection_closed(self, event: Any) -> None:
        event.container.stop()

    def on_link_error(self, event: Any) -> None:
        condition = event.link.remote_condition
        self.errors.append((condition.name, condition.description))
        if self.ends_on_error:
            self.end()


class Exchange(Play):
    """Receives from ``source`` and, once that stands, sends messages to ``target``.

    Args:
        source: where to receive from.
        target: where to send to; the same without.
        messages: what to send.
        answer: given (number, event) settles a message; accepts without.
        expect: how many to receive before the end; as many as are sent without.
        settled: send settled.
        receivers: how many links receive.
        options: for the receivers' links.
        credit: what each receiver grants and keeps up; with 1, only after each message.
    """

    def __init__(
        self,
        node: NodeProcess,
        source: str,
        messages: Sequence[Any],
        *,
        target: str | None = None,
        answer: Answer | None = None,
        expect: int | None = None,
        settled: bool = False,
        receivers: int = 1,
        options: Any = None,
        credit: int = 10,
    ) -> None:
        super().__init__(node, prefetch=credit if credit > 1 else 0)
        self.is_stepping = credit == 1
        self.source, self.target = source, target or source
        self.messages = list(messages)
        self.answer = answer
        self.expect = len(messages) * receivers if expect is None else expect
        self.settled = settled
        self.receivers = receivers
        self.options = options
        self.received: list[Any] = []
        self.settled_by_sender: list[bool] = []
        self.sent = 0
        self.told: dict[str, tuple[str, Any]] = {}
        self.sender: Any = None

    def begin(self) -> None:
        for number in range(self.receivers):
            receiver = self.container.create_receiver(
                self.connection, self.source, name=f"r{number}", options=self.options
            )
            if self.is_stepping:
                receiver.flow(1)

    def on_link_opened(self, event: Any) -> None:
        if event.receiver:
            self.receivers -= 1
            if not self.receivers:
                options = AtMostOnce() if self.settled else None
                self.sender = self.container.create_sender(self.connection, self.target, options=options)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit > 0 and self.sent < len(self.messages):
            message = self.messages[self.sent]
            event.sender.send(message if isinstance(message, Message) else Message(body=message))
            self.sent += 1
        self.look()

    def on_message(self, event: Any) -> None:
        number = len(self.received)
        self.received.append(event.message)
        self.settled_by_sender.append(event.delivery.settled)
        if not event.delivery.settled:
            if self.answer is not None:
                self.answer(number, event)
            else:
                self.accept(event.delivery)
        if self.is_stepping and len(self.received) < self.expect:
            event.receiver.flow(1)
        self.look()

    def on_accepted(self, event: Any) -> None:
        self.note("accepted", event)

    def on_rejected(self, event: Any) -> None:
        self.note("rejected", event)

    def on_released(self, event: Any) -> None:
        modified = event.delivery.remote_state == Delivery.MODIFIED
        self.note("modified" if modified else "released", event)

    def note(self, outcome: str, event: Any) -> None:
        remote = event.delivery.remote
        details = (remote.condition, remote.failed, remote.undeliverable, remote.annotations)
        self.told[event.delivery.tag] = (outcome, details)
        self.look()

    def look(self) -> None:
        done = self.sent == len(self.messages) and (self.settled or len(self.told) == len(self.messages))
        if done and len(self.received) >= self.expect:
            self.end()

    @property
    def outcomes(self) -> list[str]:
        """What became of each message, in the order of sending; proton's tags count."""
        return [self.told[tag][0] for tag in sorted(self.told, key=int)]

    @property
    def details(self) -> list[Any]:
        """The details of each outcome: (condition, failed, undeliverable, annotations)."""
        return [self.told[tag][1] for tag in sorted(self.told, key=int)]

    @property
    def bodies(self) -> list[Any]:
        return [message.body for message in self.received]


def first(partition: int | None = None) -> Any:
    """A reader's option: from the beginning of the stream."""
    filters: dict[Any, Any] = {symbol("enmasse:start"): "first"}
    if partition is not None:
        filters[symbol("enmasse:partition")] = partition
    return Filter(filters)


ALL = ["anycast", "multicast", "queue", "topic", "subscription", "stream"]


def pair_of(addresses: Any, kind: str) -> tuple[str, str]:
    """Where to receive from and where to send to, for an address of some type."""
    if kind == "subscription":
        topic = addresses.declare("topic")
        return addresses.declare("subscription", topic=topic), topic
    address = addresses.declare(kind)
    return address, address


@pytest.mark.parametrize("kind", ALL)
def test_messages_pass_through_every_address_type_in_order(node: NodeProcess, addresses: Any, kind: str) -> None:
    source, target = pair_of(addresses, kind)
    play = Exchange(node, source, [f"message {n}" for n in range(50)], target=target)
    play.play()
    assert play.bodies == [f"message {n}" for n in range(50)]
    assert play.outcomes == ["accepted"] * 50
    account = addresses.read(target)
    assert account["messagesIn"] == 50


@pytest.mark.parametrize("kind", ALL)
def test_settled_messages_pass_through_every_address_type(node: NodeProcess, addresses: Any, kind: str) -> None:
    source, target = pair_of(addresses, kind)
    play = Exchange(node, source, list(range(20)), target=target, settled=True)
    play.play()
    assert play.bodies == list(range(20))
    assert addresses.read(target)["dropped"] == 0


@pytest.mark.parametrize("kind", ["anycast", "multicast", "queue", "topic", "stream"])
def test_a_megabyte_passes_through_every_address_type(node: NodeProcess, addresses: Any, kind: str) -> None:
    address = addresses.declare(kind)
    bodies = [os.urandom(1 << 20), os.urandom((1 << 20) + 12345), b"small"]
    play = Exchange(node, address, [Message(body=body, durable=True) for body in bodies])
    play.play()
    assert [bytes(body) for body in play.bodies] == bodies
    assert play.outcomes == ["accepted"] * 3


def test_messages_pass_through_frames_of_512_bytes_and_a_small_window(node: NodeProcess, addresses: Any) -> None:
    for kind in ("anycast", "queue"):
        bodies = [os.urandom(size) for size in (0, 1, 450, 500, 50_000, 200_000)]
        play = Exchange(node, addresses.declare(kind), bodies)
        play.connect_options = {"max_frame_size": 512}
        play.play()
        assert [bytes(body) for body in play.bodies] == bodies
        assert play.outcomes == ["accepted"] * len(bodies)


def test_every_section_of_a_message_arrives_as_it_was_sent(node: NodeProcess, addresses: Any) -> None:
    for kind in ("anycast", "queue", "stream"):
        address = addresses.declare(kind)
        sent = Message(
            body={"list": [1, 2.5, None, True], "map": {"k": b"bytes"}},
            durable=True,
            priority=7,
            ttl=3600.0,
            id="id-1",
            user_id=b"me",
            address="ignored",
            subject="subject",
            reply_to="replies",
            correlation_id=123,
            content_type="application/x",
            content_encoding="none",
            group_id="group",
            group_sequence=5,
            reply_to_group_id="other",
            properties={"text": "t", "number": 5, "flag": True},
            annotations={symbol("x-opt-mine"): "kept"},
            instructions={symbol("x-opt-hop"): 1},
        )
        play = Exchange(node, address, [sent])
        play.play()
        (got,) = play.received
        for field in (
            "body", "durable", "priority", "ttl", "id", "user_id", "address", "subject", "reply_to", "correlation_id",
            "content_type", "content_encoding", "group_id", "group_sequence", "reply_to_group_id", "properties",
        ):  # fmt: skip
            assert getattr(got, field) == getattr(sent, field), (kind, field)
        assert got.annotations[symbol("x-opt-mine")] == "kept"


def test_receivers_of_anycast_share_and_receivers_of_multicast_copy(node: NodeProcess, addresses: Any) -> None:
    shared = Exchange(node, addresses.declare("anycast"), list(range(60)), receivers=3, expect=60)
    shared.play()
    assert sorted(shared.bodies) == list(range(60))
    copied = Exchange(node, addresses.declare("multicast"), list(range(20)), receivers=3)
    copied.play()
    assert sorted(copied.bodies) == sorted(3 * list(range(20)))
    assert copied.outcomes == ["accepted"] * 20


# Outcomes


def settle_every_way(number: int, event: Any) -> None:
    """One of each: accept, reject with an error, release, modify with details."""
    delivery = event.delivery
    if number == 1:
        delivery.local.condition = Condition("acme:invalid", "no amount", {symbol("field"): "amount"})
        delivery.update(Delivery.REJECTED)
    elif number == 2:
        delivery.update(Delivery.RELEASED)
    elif number == 3:
        delivery.local.failed = True
        delivery.local.undeliverable = True
        delivery.local.annotations = {symbol("x-opt-why"): "tired"}
        delivery.update(Delivery.MODIFIED)
    else:
        delivery.update(Delivery.ACCEPTED)
    delivery.settle()


def test_an_anycast_sender_gets_its_receivers_own_outcome(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("anycast")
    play = Exchange(node, address, list(range(5)), answer=settle_every_way)
    play.play()
    assert play.outcomes == ["accepted", "rejected", "released", "modified", "accepted"]
    condition = play.details[1][0]
    assert (condition.name, condition.description) == ("acme:invalid", "no amount")
    assert condition.info == {symbol("field"): "amount"}
    _, failed, undeliverable, annotations = play.details[3]
    assert failed
    assert undeliverable
    assert annotations == {symbol("x-opt-why"): "tired"}
    account = addresses.read(address)
    assert [account[name] for name in ("accepted", "rejected", "released", "modified")] == [2, 1, 1, 1]


def test_multicast_accepts_if_any_receiver_does(node: NodeProcess, addresses: Any) -> None:
    outcomes = {"r0": Delivery.RELEASED, "r1": Delivery.REJECTED, "r2": Delivery.ACCEPTED}

    def answer(_number: int, event: Any) -> None:
        event.delivery.update(outcomes[event.link.name])
        event.delivery.settle()

    play = Exchange(node, addresses.declare("multicast"), [1], receivers=3, answer=answer)
    play.play()
    assert play.outcomes == ["accepted"]
    play = Exchange(node, addresses.declare("multicast"), [1], receivers=2, answer=answer)
    play.play()
    assert play.outcomes == ["rejected"]


@pytest.mark.parametrize("durable", [False, True])
def test_a_queue_accepts_and_deals_with_its_receivers_outcomes_itself(
    node: NodeProcess, addresses: Any, durable: bool
) -> None:
    address = addresses.declare("queue")
    seen: list[tuple[int, int]] = []

    def answer(_number: int, event: Any) -> None:
        body, attempts = event.message.body, event.message.delivery_count
        again = body in [earlier for earlier, _ in seen]
        seen.append((body, attempts))
        state = Delivery.ACCEPTED
        if body == 1:
            state = Delivery.REJECTED
        elif body == 2 and not again:
            state = Delivery.RELEASED
        elif body == 3 and not again:
            event.delivery.local.failed = True
            state = Delivery.MODIFIED
        event.delivery.update(state)
        event.delivery.settle()

    messages = [Message(body=n, durable=durable) for n in range(5)]
    play = Exchange(node, address, messages, answer=answer, expect=7, credit=1)
    play.play()
    assert play.outcomes == ["accepted"] * 5
    assert sorted(body for body, _ in seen) == [0, 1, 2, 2, 3, 3, 4]
    assert [attempts for body, attempts in seen if body == 2] == [0, 0]
    assert [attempts for body, attempts in seen if body == 3] == [0, 1]


class Unsettled(Exchange):
    """Leaves what it receives unsettled and detaches."""

    def on_message(self, event: Any) -> None:
        self.received.append(event.message)
        if len(self.received) == len(self.messages):
            event.receiver.close()

    def on_link_closed(self, event: Any) -> None:
        if event.receiver:
            self.look()


def test_what_a_receiver_left_unsettled_failed_for_the_anycast_sender(node: NodeProcess, addresses: Any) -> None:
    play = Unsettled(node, addresses.declare("anycast"), [1, 2, 3])
    play.play()
    assert play.outcomes == ["modified"] * 3
    assert all(failed for _, failed, _, _ in play.details)


def test_what_a_receiver_left_unsettled_stays_in_the_queue(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    Unsettled(node, address, [1, 2, 3]).play()
    again = Exchange(node, address, [], expect=3)
    again.play()
    assert again.bodies == [1, 2, 3]
    assert [message.delivery_count for message in again.received] == [1, 1, 1]


# Credit


class Patience(Play):
    """A sender that is there before any receiver."""

    def __init__(self, node: NodeProcess, address: str, answer: int) -> None:
        super().__init__(node, prefetch=0)
        self.address = address
        self.state = answer
        self.before: list[int] = []
        self.outcome = 0
        self.sender: Any = None
        self.receiver: Any = None
        self.other: Any = None

    def begin(self) -> None:
        self.sender = self.container.create_sender(self.connection, self.address)

    def on_link_opened(self, event: Any) -> None:
        if event.sender and event.sender.name == self.sender.name and self.receiver is None:
            # A round trip on another link shows that no credit was on its way.
            self.other = self.container.create_receiver(self.connection, self.address, name="no-credit")
            self.receiver = self.other
        elif event.receiver and event.receiver.name == "no-credit":
            self.before.append(self.sender.credit)
            self.receiver = self.container.create_receiver(self.connection, self.address, name="credit")
            self.receiver.flow(1)

    def on_sendable(self, event: Any) -> None:
        self.before.append(event.sender.credit)
        event.sender.send(Message(body="at last"))

    def on_message(self, event: Any) -> None:
        event.delivery.update(self.state)
        event.delivery.settle()

    def on_settled(self, event: Any) -> None:
        if event.sender:
            self.outcome = event.delivery.remote_state
            self.end()


@pytest.mark.parametrize("state", [Delivery.RELEASED, Delivery.ACCEPTED])
@pytest.mark.parametrize("kind", ["anycast", "multicast"])
def test_a_sender_gets_no_credit_before_a_receiver_has_some_and_then_its_outcome(
    node: NodeProcess, addresses: Any, kind: str, state: int
) -> None:
    play = Patience(node, addresses.declare(kind), state)
    play.play()
    assert play.before == [0, 1]
    assert play.outcome == state


class Crowd(Play):
    """A thousand senders over a few connections, and one receiver with a credit of 10."""

    CONNECTIONS = 10

    def __init__(self, node: NodeProcess, address: str, senders: int) -> None:
        super().__init__(node, prefetch=10)
        self.address = address
        self.senders = senders
        self.connections: list[Any] = []
        self.sent: set[str] = set()
        self.got: list[str] = []
        self.accepted = 0

    def begin(self) -> None:
        self.container.create_receiver(self.connection, self.address)
        for number in range(self.CONNECTIONS):
            connection = self.container.connect(self.url, reconnect=False)
            self.connections.append(connection)
            for link in range(number, self.senders, self.CONNECTIONS):
                self.container.create_sender(connection, self.address, name=f"sender-{link}")

    def on_sendable(self, event: Any) -> None:
        self.send(event.sender)

    def send(self, sender: Any) -> None:
        # Proton counts below zero when a delivery has crossed with a lower credit.
        if sender.name not in self.sent and sender.credit > 0:
            self.sent.add(sender.name)
            sender.send(Message(body=sender.name))

    def on_released(self, event: Any) -> None:
        # It had crossed with credit that was called in: the sender tries again.
        self.sent.discard(event.sender.name)
        self.send(event.sender)

    def on_message(self, event: Any) -> None:
        self.got.append(event.message.body)
        self.accept(event.delivery)

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1
        if self.accepted == self.senders:
            for connection in self.connections:
                connection.close()
            self.end()


def test_a_thousand_senders_get_through_to_a_receiver_with_a_credit_of_10(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("anycast")
    play = Crowd(node, address, 1000)
    play.play()
    assert sorted(play.got) == sorted(f"sender-{n}" for n in range(1000))
    account = addresses.read(address)
    assert account["accepted"] == 1000
    assert account["creditExcess"] == 0, "granted beyond what the receiver had asked for"


class Abort(Play):
    """Breaks a message off in the middle, then sends a whole one; the receiver's credit is 1."""

    def __init__(self, node: NodeProcess, address: str) -> None:
        super().__init__(node, prefetch=0)
        self.address = address
        self.step = "wait for credit"
        self.partial: Any = None
        self.bodies: list[Any] = []
        self.receiver: Any = None

    def begin(self) -> None:
        self.receiver = self.container.create_receiver(self.connection, self.address)
        self.receiver.flow(1)

    def on_link_opened(self, event: Any) -> None:
        if event.receiver:
            self.container.create_sender(self.connection, self.address)

    def on_sendable(self, event: Any) -> None:
        if self.step == "wait for credit":
            self.step = "abort"
            self.partial = event.sender.delivery("partial")
            event.sender.stream(Message(body=b"x" * 100_000).encode()[:50_000])
            # What was given goes out first; then the rest is called off.
            event.container.schedule(0.05, self)
        elif self.step == "send again" and event.sender.credit > 0:
            self.step = "done"
            event.sender.send(Message(body="whole"))

    def on_timer_task(self, event: Any) -> None:
        if self.step != "abort":
            super().on_timer_task(event)
        self.step = "send again"
        self.partial.abort()

    def on_message(self, event: Any) -> None:
        self.bodies.append(event.message.body)
        self.accept(event.delivery)

    def on_accepted(self, event: Any) -> None:
        self.end()


def test_an_aborted_message_takes_nobodys_credit_away(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("anycast")
    play = Abort(node, address)
    play.play()
    assert play.bodies == ["whole"]
    assert addresses.read(address)["creditExcess"] == 0


class Quiet(Play):
    """Says nothing for longer than both sides' idle time-outs."""

    def begin(self) -> None:
        self.container.create_receiver(self.connection, "nowhere")

    def on_link_error(self, event: Any) -> None:
        super().on_link_error(event)
        event.container.schedule(1.0, self)

    def on_timer_task(self, event: Any) -> None:
        assert self.errors, "the time-out of the whole"
        self.end()

    def on_transport_error(self, event: Any) -> None:
        self.errors.append((event.transport.condition.name, event.transport.condition.description))
        event.container.stop()


def test_heartbeats_keep_a_quiet_connection(node: NodeProcess) -> None:
    play = Quiet(node)
    play.connect_options = {"heartbeat": 0.3}
    play.play()
    assert [name for name, _ in play.errors] == ["amqp:not-found"]


# Replies


class Request(Play):
    """Asks over a dynamic reply address; a responder on the same connection answers to it."""

    def __init__(self, node: NodeProcess, address: str, *, to: str | None) -> None:
        super().__init__(node)
        self.address = address
        self.to = to
        self.replies: list[Any] = []
        self.reply_to = ""
        self.asked = False
        self.service: Any = None
        self.answers: Any = None
        self.reply_receiver: Any = None

    def begin(self) -> None:
        self.service = self.container.create_receiver(self.connection, self.address, name="service")
        self.answers = self.container.create_sender(self.connection, self.to, name="answers")
        self.reply_receiver = self.container.create_receiver(self.connection, None, dynamic=True, name="replies")

    def on_link_opened(self, event: Any) -> None:
        if event.receiver and event.receiver.name == "replies":
            self.reply_to = event.receiver.remote_source.address
            self.container.create_sender(self.connection, self.address, name="requests")

    def on_sendable(self, event: Any) -> None:
        if event.sender.name == "requests" and not self.asked:
            self.asked = True
            event.sender.send(Message(body="ping", reply_to=self.reply_to, correlation_id="c-1"))

    def on_message(self, event: Any) -> None:
        self.accept(event.delivery)
        if event.receiver.name == "service":
            asked = event.message
            answer = Message(body=asked.body + " pong", address=asked.reply_to, correlation_id=asked.correlation_id)
            self.answers.send(answer)
        else:
            self.replies.append(event.message)
            self.end()


@pytest.mark.parametrize("kind", ["anycast", "queue"])
def test_a_request_is_answered_over_a_dynamic_address(node: NodeProcess, addresses: Any, kind: str) -> None:
    play = Request(node, addresses.declare(kind), to=None)
    play.play()
    assert play.reply_to
    assert [(reply.body, reply.correlation_id) for reply in play.replies] == [("ping pong", "c-1")]
    other = Request(node, addresses.declare(kind), to=None)
    other.play()
    assert other.reply_to != play.reply_to


# Names


class Unknown(Play):
    """Tries addresses that do not exist, then one that does."""

    def __init__(self, node: NodeProcess, address: str) -> None:
        super().__init__(node)
        self.address = address
        self.body = None

    def begin(self) -> None:
        self.container.create_sender(self.connection, "nowhere", name="bad-sender")
        self.container.create_receiver(self.connection, "nowhere", name="bad-receiver")

    def on_link_error(self, event: Any) -> None:
        super().on_link_error(event)
        if len(self.errors) == 2:
            self.container.create_receiver(self.connection, self.address)
            self.container.create_sender(self.connection, self.address)

    def on_sendable(self, event: Any) -> None:
        if event.sender.name != "bad-sender" and self.body is None:
            event.sender.send(Message(body="alive"))

    def on_message(self, event: Any) -> None:
        self.body = event.message.body
        self.accept(event.delivery)
        self.end()


def test_an_unknown_address_is_refused_while_the_connection_lives(node: NodeProcess, addresses: Any) -> None:
    play = Unknown(node, addresses.declare("queue"))
    play.play()
    assert [name for name, _ in play.errors] == ["amqp:not-found"] * 2
    assert all("nowhere" in description for _, description in play.errors)
    assert play.body == "alive"


class Anonymous(Exchange):
    """Names the address in each message."""

    def on_link_opened(self, event: Any) -> None:
        if event.receiver:
            self.receivers -= 1
            if not self.receivers:
                self.sender = self.container.create_sender(self.connection, None)


@pytest.mark.parametrize("kind", ALL)
def test_the_anonymous_terminus_reaches_every_address_type(node: NodeProcess, addresses: Any, kind: str) -> None:
    source, target = pair_of(addresses, kind)
    play = Anonymous(node, source, [Message(body=n, address=target) for n in range(5)])
    play.play()
    assert play.bodies == list(range(5))
    assert play.outcomes == ["accepted"] * 5


def test_the_anonymous_terminus_says_what_it_cannot_deliver(node: NodeProcess, addresses: Any) -> None:
    nobody = addresses.declare("anycast")
    messages = [Message(body=1, address="nowhere"), Message(body=2), Message(body=3, address=nobody)]
    play = Anonymous(node, addresses.declare("queue"), messages, expect=0)
    play.play()
    assert play.outcomes == ["rejected", "rejected", "released"]
    assert play.details[0][0].name == "amqp:not-found"
    assert play.details[1][0].name == "amqp:precondition-failed"


def test_a_topic_takes_names_below_it_and_patterns(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic", "news")
    below = f"{topic}/sport/chess"
    for pattern, expect in ((f"{topic}/#", 3), (f"{topic}/*/chess", 3), (f"{topic}/#/chess", 3), (below, 3)):
        play = Exchange(node, pattern, [1, 2, 3], target=below, expect=expect)
        play.play()
        assert play.bodies == [1, 2, 3], pattern
    other = Exchange(node, f"{topic}/politics", [1, 2, 3], target=below, expect=0)
    other.play()
    assert other.bodies == []
    assert other.outcomes == ["accepted"] * 3


# What stays


def test_a_queue_keeps_messages_until_somebody_comes(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    sender = Exchange(node, address, list(range(100)), expect=0, credit=0)
    sender.play()
    assert sender.outcomes == ["accepted"] * 100
    assert addresses.read(address)["messagesStored"] == 100
    receiver = Exchange(node, address, [], expect=100)
    receiver.play()
    assert receiver.bodies == list(range(100))


def test_a_subscription_keeps_what_its_topic_was_sent(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    subscriptions = [addresses.declare("subscription", topic=topic) for _ in range(2)]
    sender = Exchange(node, subscriptions[0], list(range(10)), target=topic, expect=0, credit=0)
    sender.play()
    assert sender.outcomes == ["accepted"] * 10
    for subscription in (subscriptions[0], f"{topic}::{subscriptions[1]}"):
        receiver = Exchange(node, subscription, [], expect=10)
        receiver.play()
        assert receiver.bodies == list(range(10))


def test_nobody_sends_into_a_subscription(node: NodeProcess, addresses: Any) -> None:
    subscription, _ = pair_of(addresses, "subscription")
    play = Exchange(node, subscription, ["x"], expect=0)
    play.ends_on_error = True
    play.play()
    assert [name for name, _ in play.errors] == ["amqp:not-allowed"]


def test_a_stream_is_read_again_and_again(node: NodeProcess, addresses: Any) -> None:
    stream = addresses.declare("stream", partitions=3)
    messages = [Message(body=n, subject=f"device-{n % 7}") for n in range(70)]
    sender = Exchange(node, stream, messages, expect=0, credit=0)
    sender.play()
    assert sender.outcomes == ["accepted"] * 70
    for _ in range(2):
        reader = Exchange(node, stream, [], expect=70, options=first())
        reader.play()
        assert sorted(reader.bodies) == list(range(70))
        by_device: dict[str, list[int]] = {}
        where: dict[str, set[int]] = {}
        for message in reader.received:
            by_device.setdefault(message.subject, []).append(message.body)
            where.setdefault(message.subject, set()).add(message.annotations[symbol("x-opt-partition")])
        assert all(numbers == sorted(numbers) for numbers in by_device.values())
        assert all(len(partitions) == 1 for partitions in where.values())
    partition = next(iter(where["device-0"]))
    one = Exchange(node, stream, [], expect=1, options=first(partition), credit=1)
    one.play()
    assert one.received[0].annotations[symbol("x-opt-offset")] == 0
    assert one.received[0].annotations[symbol("x-opt-partition")] == partition


def test_durable_messages_survive_a_crash_of_the_node(own_node: Any) -> None:
    process, manage = own_node
    addresses = manage()
    queue, topic = addresses.declare("queue"), addresses.declare("topic")
    subscription = addresses.declare("subscription", topic=topic)
    stream = addresses.declare("stream")
    durable = [Message(body=n, durable=True) for n in range(100)]
    for target in (queue, topic, stream):
        sender = Exchange(process, subscription, durable, target=target, expect=0, credit=0)
        sender.play()
        assert sender.outcomes == ["accepted"] * 100
    taken = Exchange(process, queue, [], expect=30, credit=1)
    taken.play()
    # What was settled last may come again, so let a later commit carry it.
    Exchange(process, queue, [Message(body="last", durable=True)], expect=0, credit=0).play()

    process.kill()
    process.start()

    for source, options, expected in (
        (queue, None, [*range(30, 100), "last"]),
        (subscription, None, list(range(100))),
        (stream, first(), list(range(100))),
    ):
        reader = Exchange(process, source, [], expect=len(expected), options=options)
        reader.play()
        assert reader.bodies == expected


class Forced(Play):
    """Has the node stopped, and waits until it goes."""

    def begin(self) -> None:
        self.container.create_receiver(self.connection, "nowhere")

    def on_link_error(self, event: Any) -> None:
        self.stopping()

    def stopping(self) -> None:
        raise NotImplementedError

    def on_disconnected(self, event: Any) -> None:
        # To proton a forced close is a reason to connect again, and so no error.
        self.errors.append((event.connection.remote_condition.name, event.connection.remote_condition.description))
        event.container.stop()


def test_a_node_that_stops_says_so(own_node: Any) -> None:
    process, _ = own_node
    play = Forced(process)
    play.stopping = lambda: os.kill(process.pid, 15)  # type: ignore[method-assign]
    play.play()
    assert [name for name, _ in play.errors] == ["amqp:connection:forced"]
    assert process.stop() == 0


def test_endpoints_know_each_other(node: NodeProcess, addresses: Any) -> None:
    """The link's state as proton sees it, and as the node's management tells it."""
    address = addresses.declare("anycast")
    play = Exchange(node, address, [1])
    seen: list[dict[str, Any]] = []
    end = play.end

    def look() -> None:
        assert play.sender.state & Endpoint.REMOTE_ACTIVE
        assert isinstance(play.sender, Link)
        seen.extend(link for link in addresses.query("io.enmasse.link") if link["address"] == address)
        end()

    play.end = look  # type: ignore[method-assign]
    play.play()
    assert {(link["role"], link["deliveries"]) for link in seen} == {("sender", 1), ("receiver", 1)}
