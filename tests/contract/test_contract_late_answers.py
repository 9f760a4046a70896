"""The contract of protocols where others answer an attach: the client is told when they have, and gone means gone."""

from __future__ import annotations

import json
from typing import Any, Protocol

import pytest

from enmasse.message.codec import encode
from enmasse.message.outcomes import ACCEPTED, Released
from enmasse.message.sections import Header, Sections, encode_message
from enmasse.message.types import Described, Symbol, UInt, ULong, UShort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.limits import SpaceLimits
from enmasse.node.amqp.recovery import Recovery
from enmasse.node.amqp.wills import WILL
from enmasse.node.connections.client_connection import ClientConnection
from enmasse.node.connections.connections import Connections
from enmasse.node.http.connection import HttpConnection
from enmasse.node.large_messages import MAX_MESSAGE_BYTES
from enmasse.node.ports import ServedHosts
from enmasse.node.protocols import PROTOCOLS
from enmasse.node.users.gate import Gate
from enmasse.wire.amqp.link import ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Attach, Source, Target
from enmasse.wire.mqtt.packets import Filter, Reason, Version
from tests.support.late_address import LateAddress, LateConsumer, LateProducer
from tests.unit.node import entities_scene, mqtt_scene, stomp_scene, test_node_binding

NAME = "far/orders"
BODY = b"a message"
MESSAGE = encode_message(BODY, header=Header(durable=True))

REFUSALS = ("amqp:not-found", "amqp:unauthorized-access", "amqp:resource-limit-exceeded", "amqp:internal-error")


class Client(Protocol):
    """A client of one protocol, at a node with a late address."""

    address: LateAddress
    receiver_refusals: tuple[Any, ...]
    """What it is told for each of ``REFUSALS`` in place of a receiver."""
    sender_refusals: tuple[Any, ...]

    @property
    def connection(self) -> ClientConnection:
        """The node's end."""

    def receive(self) -> None:
        """Ask for messages of the name."""

    def send(self) -> None:
        """Send a message to the name, or ask to."""

    def heard(self) -> list[Any]:
        """What it was told since it last asked: ``receiving``, ``sent``, a message's body, or an error."""

    def leave_receiver(self) -> None:
        """Give up to receive."""

    def leave_sender(self) -> None:
        """Give up to send."""

    def cut(self) -> None:
        """Lose the connection."""


def _late(space: Any) -> LateAddress:
    address = LateAddress(space.core, "far")
    space.add(address)
    return address


class Amqp:
    """A client of AMQP."""

    receiver_refusals = sender_refusals = REFUSALS

    def __init__(self) -> None:
        node = test_node_binding.Node()
        self.address = _late(node.entities.spaces["ns/shop"])
        self.client = node.client()
        self.connection = self.client.binding
        self._told = 0
        self._refused = 0
        self.sink: Any = None
        self._sent: Any = None

    def receive(self) -> None:
        self.sink = self.client.receiver(NAME, answer=ACCEPTED)

    def send(self) -> None:
        self.sink = self.client.sender(NAME)

    def heard(self) -> list[Any]:
        self.client.go()
        diary = self.client.diary
        found: list[Any] = []
        for link in diary.calls("attached")[self._told :]:
            self._told += 1
            # An attach without terminus is followed by the reason.
            is_refused = any(name == link for name, _, _ in self.client.refusals[self._refused :])
            if link == "in" and not is_refused:
                found.append("receiving")
            elif not is_refused and self.sink.link.credit:
                self._sent = self.sink.send(MESSAGE)
        self.client.go()
        if self._sent is not None and self._sent.state is ACCEPTED:
            found.append("sent")
            self._sent = None
        if self.sink is not None:
            found += [Sections(payload).body for payload in self.sink.payloads]
            self.sink.received.clear()
        found += [condition for _, condition, _ in self.client.refusals[self._refused :] if condition]
        self._refused = len(self.client.refusals)
        return found

    def _leave(self) -> None:
        self.sink.link.detach()
        self.client.go()

    leave_receiver = leave_sender = _leave

    def cut(self) -> None:
        self.client.cut()


class Stomp:
    """A client of STOMP."""

    receiver_refusals = sender_refusals = REFUSALS

    def __init__(self) -> None:
        self.scene = stomp_scene.Scene()
        self.address = _late(self.scene.node.entities.spaces["ns/shop"])
        self.client = self.scene.client()
        self.connection = self.client.connection

    def receive(self) -> None:
        self.client.say("SUBSCRIBE", id="0", destination=NAME, receipt="receiving")

    def send(self) -> None:
        self.client.send(NAME, BODY, receipt="sent")

    def heard(self) -> list[Any]:
        found: list[Any] = []
        for frame in self.client.told():
            if frame.command == "ERROR":
                found.append(next((one for one in REFUSALS if one in str(frame)), frame))
            else:
                found.append(frame.body if frame.command == "MESSAGE" else frame.headers["receipt-id"])
        return found

    def leave_receiver(self) -> None:
        self.client.say("UNSUBSCRIBE", id="0")
        # A frame that was dealt with has its receipt.
        assert self.heard() == ["receiving"]

    def leave_sender(self) -> None:
        self.cut()

    def cut(self) -> None:
        self.client.engine.lost()


class Mqtt:
    """A client of MQTT 5."""

    version = Version.V5
    receiver_refusals: tuple[Any, ...] = (
        Reason.TOPIC_FILTER_INVALID,
        Reason.NOT_AUTHORIZED,
        Reason.QUOTA_EXCEEDED,
        Reason.UNSPECIFIED_ERROR,
    )
    sender_refusals: tuple[Any, ...] = (
        Reason.TOPIC_NAME_INVALID,
        Reason.NOT_AUTHORIZED,
        Reason.QUOTA_EXCEEDED,
        Reason.IMPLEMENTATION_SPECIFIC_ERROR,
    )

    def __init__(self) -> None:
        self.scene = mqtt_scene.Scene()
        self.address = _late(self.scene.node.entities.spaces["ns/shop"])
        self.client = self.scene.client(self.version)
        self.connection = self.client.connection
        self._is_cut = False

    def receive(self) -> None:
        self.client.subscribe(NAME, qos=1)

    def send(self) -> None:
        self.client.publish(NAME, BODY, 1)

    def heard(self) -> list[Any]:
        found: list[Any] = []
        for one in self.client.told():
            if one.kind == "suback":
                found += ["receiving" if code < 0x80 else code for code in one.codes]
            elif one.kind == "puback":
                found.append(one.reason or "sent")
            elif one.kind == "publish":
                found.append(one.payload)
                self.client.acknowledge(one)
        self.scene.go_on()
        if self.client.is_cut and not self._is_cut:
            self._is_cut = True
            found.append("cut")
        return found

    def leave_receiver(self) -> None:
        self.client.unsubscribe(NAME)
        suback, unsuback = self.client.told()
        assert (suback.kind, unsuback.kind) == ("suback", "unsuback")
        assert suback.codes[0] >= Reason.UNSPECIFIED_ERROR
        assert unsuback.codes in ([0], [])

    def leave_sender(self) -> None:
        self.cut()

    def cut(self) -> None:
        self._is_cut = True
        self.client.node_engine.lost()


class Mqtt3(Mqtt):
    """A client of MQTT 3.1.1, which has one code, and no answer to a message that is not taken."""

    version = Version.V3_1_1
    receiver_refusals = (0x80, 0x80, 0x80, 0x80)
    sender_refusals = ("cut", "cut", "cut", "cut")


class _Transport:
    def get_extra_info(self, name: str) -> Any:
        return {"sockname": ("127.0.0.1", 80)}.get(name)


class _Shell(stomp_scene.Shell):
    transport = _Transport()


class Http:
    """A client of HTTP, which asks for messages that are there."""

    path = "receive"
    receiver_refusals: tuple[Any, ...] = (404, 403, 429, 500)
    sender_refusals: tuple[Any, ...] = (404, 403, 429, 500)

    def __init__(self) -> None:
        self.node = entities_scene.Node()
        self.node.space()
        self.connections = Connections(lambda: 1_700_000_000_000)
        spaces = self.node.entities.spaces
        self.connections.hosts = ServedHosts(
            frozenset(("node",)), lambda _host: False, lambda: spaces, Gate(None, lambda: 0.0)
        )
        self.address = _late(spaces["ns/shop"])
        self.connection = HttpConnection(
            self.connections,
            spaces=lambda: spaces,
            fixed=None,
            default=None,
            url="amqp://here:1",
            peer=_Shell.peer,
        )
        self.engine = self.connection.make_engine("node", 0.0)
        self.connections.connected(self.connection, _Shell())  # type: ignore[arg-type]

    def ask(self, method: str, path: str, body: bytes = b"", *headers: str) -> None:
        lines = [
            f"{method} /v1/spaces/shop.ns/addresses/far%2Forders/{path} HTTP/1.1",
            "Host: node",
            f"Content-Length: {len(body)}",
            *headers,
        ]
        self.engine.receive("\r\n".join((*lines, "", "")).encode() + body, self.node.harness.clock.now)

    def receive(self) -> None:
        self.ask("POST", f"{self.path}?auto=true")

    def send(self) -> None:
        self.ask("POST", "messages", BODY)

    def heard(self) -> list[Any]:
        written = b""
        for _ in range(3):
            self.node.harness.commit()
            written += b"".join(bytes(chunk) for chunk in self.engine.pending_output())
        assert not self.node.harness.faults, self.node.harness.faults
        if not written:
            return []
        head, _, body = written.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        if status >= 300:
            return [status]
        answer = json.loads(body)
        if "messages" not in answer:
            return ["sent"]
        return ["receiving", *(each["body"].encode() for each in answer["messages"])]

    def cut(self) -> None:
        self.engine.lost()

    leave_receiver = leave_sender = cut


class HttpLooking(Http):
    """One that looks at messages."""

    def receive(self) -> None:
        self.ask("GET", "messages")


class HttpEvents(Http):
    """One that is sent events."""

    def receive(self) -> None:
        self.ask("GET", "events", b"", "Accept: text/event-stream")

    def heard(self) -> list[Any]:
        written = b""
        for _ in range(3):
            self.node.harness.commit()
            written += b"".join(bytes(chunk) for chunk in self.engine.pending_output())
        if not written:
            return []
        head, _, body = written.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        if status >= 300:
            return [status]
        if b"event-stream" not in head:
            return ["sent"]
        return ["receiving", *([BODY] if BODY in body else [])]


CLIENTS: dict[str, type[Any]] = {
    "amqp": Amqp,
    "stomp": Stomp,
    "mqtt 5": Mqtt,
    "mqtt 3.1.1": Mqtt3,
    "http": Http,
    "http looking": HttpLooking,
    "http events": HttpEvents,
}


def test_every_protocol_is_held_to_it() -> None:
    assert {name.split()[0] for name in CLIENTS} == set(PROTOCOLS)


@pytest.fixture(params=list(CLIENTS.values()), ids=list(CLIENTS))
def client(request: pytest.FixtureRequest) -> Any:
    return request.param()


def only_end(client: Client) -> Any:
    (end,) = client.address.made
    return end


def assert_nothing_left(client: Client) -> None:
    """Nothing of a link is left, but for what is asked for later."""
    end = only_end(client)
    assert end.left
    assert (client.address.producers, client.address.consumers) == ([], [])
    assert client.connection.links == {}
    space = client.connection.space
    assert space is not None
    assert (space.usage.links, dict(space.usage.senders), dict(space.usage.receivers)) == (0, {}, {})


# Receivers


def test_a_receiver_is_answered_when_the_other_side_has(client: Client) -> None:
    client.receive()
    assert client.heard() == []
    end = only_end(client)
    assert isinstance(end, LateConsumer)
    assert end.options.source == NAME
    assert end.credits == []
    end.open(MESSAGE)
    assert client.heard() == ["receiving", BODY]
    assert end.credits[0][0] > 0


@pytest.mark.parametrize("at", range(len(REFUSALS)), ids=REFUSALS)
def test_a_receiver_that_is_refused_late_is_told_why(client: Client, at: int) -> None:
    client.receive()
    assert client.heard() == []
    only_end(client).opening.settle(AttachError(REFUSALS[at], "the other side says no"))
    assert client.heard() == [client.receiver_refusals[at]]
    assert_nothing_left(client)


@pytest.mark.parametrize("answer", [None, AttachError("amqp:not-found", "it is not there")], ids=["yes", "no"])
@pytest.mark.parametrize("way", ["leaves", "is cut"])
def test_a_receiver_that_goes_before_its_answer_leaves_nothing(
    client: Client, way: str, answer: AttachError | None
) -> None:
    client.receive()
    assert client.heard() == []
    if way == "leaves":
        client.leave_receiver()
    else:
        client.cut()
    assert_nothing_left(client)
    client.heard()
    only_end(client).opening.settle(answer)
    assert client.heard() == []
    assert only_end(client).credits == []
    assert_nothing_left(client)


def test_a_receiver_whose_address_goes_before_its_answer_is_told_so(client: Client) -> None:
    client.receive()
    assert client.heard() == []
    space = client.connection.space
    assert space is not None
    space.remove(client.address)
    assert client.heard() != []
    assert_nothing_left(client)
    only_end(client).opening.settle(None)
    assert client.heard() == []
    assert only_end(client).credits == []


@pytest.mark.parametrize("answer", [None, AttachError("amqp:not-found", "it is not there")], ids=["yes", "no"])
@pytest.mark.parametrize("role", ["receiver", "sender"])
def test_a_connection_that_the_node_closes_is_answered_no_more(
    client: Client, role: str, answer: AttachError | None
) -> None:
    client.receive() if role == "receiver" else client.send()
    assert client.heard() == []
    client.connection.close("amqp:connection:forced", "the node stops")
    end = only_end(client)
    end.opening.settle(answer)
    assert "receiving" not in client.heard()
    client.cut()
    assert_nothing_left(client)
    assert end.credits == [] if role == "receiver" else end.payloads == []


# Senders


def test_a_sender_is_answered_when_the_other_side_has(client: Client) -> None:
    client.send()
    assert client.heard() == []
    end = only_end(client)
    assert isinstance(end, LateProducer)
    assert end.target == NAME
    end.open()
    assert client.heard() == ["sent"]
    assert [bytes(Sections(payload).body) for payload in end.payloads] == [BODY]


@pytest.mark.parametrize("at", range(len(REFUSALS)), ids=REFUSALS)
def test_a_sender_that_is_refused_late_is_told_why(client: Client, at: int) -> None:
    client.send()
    assert client.heard() == []
    only_end(client).opening.settle(AttachError(REFUSALS[at], "the other side says no"))
    assert client.heard() == [client.sender_refusals[at]]
    assert_nothing_left(client)


@pytest.mark.parametrize("answer", [None, AttachError("amqp:not-found", "it is not there")], ids=["yes", "no"])
@pytest.mark.parametrize("way", ["leaves", "is cut"])
def test_a_sender_that_goes_before_its_answer_leaves_nothing(
    client: Client, way: str, answer: AttachError | None
) -> None:
    client.send()
    assert client.heard() == []
    if way == "leaves":
        client.leave_sender()
    else:
        client.cut()
    assert_nothing_left(client)
    client.heard()
    only_end(client).opening.settle(answer)
    assert client.heard() == []
    assert only_end(client).payloads == []
    assert_nothing_left(client)


def test_a_sender_whose_address_goes_before_its_answer_is_told_so(client: Client) -> None:
    client.send()
    assert client.heard() == []
    space = client.connection.space
    assert space is not None
    space.remove(client.address)
    assert client.heard() != []
    assert_nothing_left(client)
    only_end(client).opening.settle(None)
    assert client.heard() == []
    assert only_end(client).payloads == []


# What is special about a protocol


@pytest.mark.parametrize("drains", [False, True])
def test_amqp_credit_that_came_before_the_answer_reaches_the_end(drains: bool) -> None:
    client = Amqp()
    client.receive()
    link = client.sink.link
    assert isinstance(link, ReceivingLink)
    if drains:
        link.drain()
    assert client.heard() == []
    end = only_end(client)
    end.open(MESSAGE)
    assert client.heard() == ["receiving", BODY]
    assert end.credits == [(100, drains)]
    assert link.credit == (0 if drains else 99)


def test_amqp_a_session_that_ends_takes_links_without_an_answer_with_it() -> None:
    client = Amqp()
    client.receive()
    other = client.client.sender(NAME)
    client.client.session.end()
    client.client.go()
    assert [end.left for end in client.address.made] == [1, 1]
    for end in client.address.made:
        end.opening.settle(None)
    assert client.heard() == []
    assert other.credits == []


FILTERS = {
    Symbol("mine"): Described(Symbol("other:filter:list"), [UInt(5), ULong(6), 7]),
    Symbol("jms-selector"): Described(ULong(0x0000468C00000004), "a = 1"),
    Symbol("plain"): UShort(8),
}


def test_amqp_an_attach_is_carried_whole_and_answered_as_it_was_granted() -> None:
    client = Amqp()
    asked = Source(
        address=NAME, filter=FILTERS, capabilities=("queue",), default_outcome=Released(), distribution_mode="copy"
    )
    client.client.receiver(asked, credit=0, properties={Symbol("paid"): UInt(3)}, desired_capabilities=("x",))
    came = only_end(client).options.attach
    assert (came.source.address, came.source.distribution_mode, came.source.default_outcome) == (
        NAME,
        "copy",
        Released(),
    )
    assert encode(came.source.filter) == encode(FILTERS)
    assert {type(value) for value in came.properties.values()} == {UInt}
    assert came.desired_capabilities == ("x",)
    granted = Attach(
        "theirs",
        7,
        False,
        snd_settle_mode=1,
        source=Source(address="orders", filter={Symbol("mine"): FILTERS[Symbol("mine")]}, durable=2),
        target=Target(address="there"),
        offered_capabilities=("y",),
        properties={Symbol("product"): "remote"},
    )
    only_end(client).granted = granted
    only_end(client).opening.settle(None)
    client.client.go()
    (link,) = client.client.session.by_name.values()
    answer = link.remote_attach
    assert answer is not None
    assert isinstance(answer.source, Source)
    # The client knows it by its own name.
    assert (answer.name, answer.source.address, answer.source.durable) == ("in", NAME, 2)
    assert encode(answer.source.filter) == encode(granted.source.filter if granted.source else None)
    assert (answer.snd_settle_mode, answer.target) == (1, Target(address="there"))
    assert (answer.offered_capabilities, answer.properties) == (("y",), {"product": "remote"})


@pytest.mark.parametrize(("theirs", "told"), [(1000, 1000), (None, MAX_MESSAGE_BYTES), (1 << 40, MAX_MESSAGE_BYTES)])
def test_amqp_a_sender_is_told_what_others_have_granted(theirs: int | None, told: int) -> None:
    client = Amqp()
    client.client.sender(Target(address=NAME, capabilities=("queue",)), properties={Symbol("paid"): UInt(3)})
    came = only_end(client).options.attach
    assert (came.target.capabilities, came.properties) == (("queue",), {"paid": 3})
    only_end(client).granted = Attach(
        "theirs",
        7,
        True,
        source=Source(),
        target=Target(address="orders", durable=1),
        max_message_size=theirs,
        properties={Symbol("product"): "remote"},
    )
    only_end(client).open()
    client.client.go()
    (link,) = client.client.session.by_name.values()
    answer = link.remote_attach
    assert answer is not None
    assert answer.target == Target(address=NAME, durable=1)
    assert (answer.max_message_size, answer.properties) == (told, {"product": "remote"})
    assert isinstance(link, SendingLink)
    assert link.credit == 10


@pytest.mark.parametrize("way", ["refused", "detached"])
def test_amqp_what_outlasts_a_link_is_not_kept_of_one_that_never_was(way: str) -> None:
    client = Amqp()
    will = {Symbol(WILL): {"to": NAME, "body": "gone"}}
    client.sink = client.client.sender(Target(address=NAME, durable=2, expiry_policy="never"), properties=will)
    assert client.client.refusals == []
    if way == "refused":
        only_end(client).opening.settle(AttachError("amqp:not-found", "it is not there"))
    else:
        client.leave_sender()
    client.client.go()
    assert_nothing_left(client)
    space = client.connection.space
    assert space is not None
    assert len(space.sessions.wills) == 0
    assert len(client.connection._connections.shared(Recovery)) == 0


def test_amqp_a_rate_that_is_limited_before_the_answer_holds_after_it() -> None:
    client = Amqp()
    client.send()
    connection, space = client.connection, client.connection.space
    assert space is not None
    space.limit(SpaceLimits(message_rate=1))
    connection.bounds.meter(space, connection.links.values())
    assert client.heard() == []
    only_end(client).open(100)
    assert client.heard() == ["sent"]
    assert 0 < client.sink.link.credit + 1 < 100


def test_stomp_a_receipt_of_a_later_subscription_does_not_wait() -> None:
    client = Stomp()
    client.receive()
    client.client.subscribe("queue", "1")
    assert client.heard() == []
    only_end(client).open()
    assert client.heard() == ["receiving"]


def test_mqtt_a_packet_with_several_filters_is_answered_once_all_are() -> None:
    client = Mqtt()
    client.client.subscribe(Filter("queue", 1), Filter("far/a", 1), Filter("nowhere/x", 0), Filter("far/b", 0))
    client.client.subscribe("topic")
    assert client.heard() == ["receiving"]
    first, second = client.address.made
    second.opening.settle(None)
    assert client.heard() == []
    first.opening.settle(AttachError("amqp:unauthorized-access", "not you"))
    (suback,) = client.client.told()
    assert suback.codes == [1, Reason.NOT_AUTHORIZED, Reason.TOPIC_FILTER_INVALID, 0]
    assert set(client.client.connection.session.filters) == {"queue", "far/b", "topic"}


def test_mqtt_a_filter_that_is_asked_for_again_waits_for_the_same_answer_up_to_a_number() -> None:
    client = Mqtt()
    for _ in range(9):
        client.receive()
    assert client.heard() == [Reason.QUOTA_EXCEEDED]
    only_end(client).opening.settle(None)
    assert client.heard() == ["receiving"] * 8
    client.receive()
    assert client.heard() == ["receiving"]
    only_end(client)


@pytest.mark.parametrize("answer", [None, AttachError("amqp:not-found", "it is not there")], ids=["yes", "no"])
def test_mqtt_a_session_that_goes_on_keeps_a_filter_whatever_its_answer_is(answer: AttachError | None) -> None:
    client = Mqtt3()
    lasting = client.scene.client(Version.V3_1_1, "lasting", is_clean=False)
    lasting.subscribe(NAME, qos=1)
    client.scene.go_on()
    client.address.made[0].opening.settle(None)
    assert lasting.one("suback").codes == [1]
    lasting.node_engine.lost()
    again = client.scene.client(Version.V3_1_1, "lasting", is_clean=False)
    assert again.told() == []
    client.address.made[1].open(MESSAGE) if answer is None else client.address.made[1].opening.settle(answer)
    assert again.bodies() == ([BODY] if answer is None else [])
    assert not again.is_cut
    assert list(again.connection.session.filters) == [NAME]
    assert len(again.connection.links) == (1 if answer is None else 0)


def test_mqtt_messages_of_qos_0_wait_shortly_for_the_answer() -> None:
    client = Mqtt()
    client.client.publish(NAME, b"first")
    client.scene.go_on()
    client.scene.harness.advance(2.0)
    client.scene.go_on()
    assert client.address.dropped == 1
    client.client.publish(NAME, b"second", 1)
    assert client.heard() == []
    only_end(client).open()
    assert client.heard() == ["sent"]


def test_mqtt_messages_of_qos_0_are_counted_where_the_other_side_refuses() -> None:
    client = Mqtt()
    client.client.publish(NAME, b"first")
    client.scene.go_on()
    only_end(client).opening.settle(AttachError("amqp:not-found", "it is not there"))
    client.scene.go_on()
    assert client.scene.node.entities.spaces["ns/shop"].unroutable == 1
    assert_nothing_left(client)


@pytest.mark.parametrize("kind", [Amqp, Mqtt, Http], ids=lambda kind: kind.__name__.lower())
def test_a_name_that_was_refused_is_asked_for_again(kind: type[Any]) -> None:
    client = kind()
    client.send()
    client.heard()
    only_end(client).opening.settle(AttachError("amqp:not-found", "it is not there yet"))
    client.heard()
    client.send()
    assert client.heard() == []
    _, end = client.address.made
    end.open()
    assert client.heard() == ["sent"]


def test_mqtt_each_name_has_a_credit_of_its_own_where_others_grant_it() -> None:
    client = Mqtt()
    for name in ("far/a", "far/b", "far/a"):
        client.client.publish(name, BODY, 1)
    client.scene.go_on()
    first, second = client.address.made
    assert (first.target, second.target) == ("far/a", "far/b")
    first.open(0)
    second.open(1)
    assert client.heard() == ["sent"]
    first.port.grant(2)
    assert client.heard() == ["sent", "sent"]
    assert (len(first.payloads), len(second.payloads)) == (2, 1)


def test_http_a_message_without_an_answer_in_time_says_so() -> None:
    client = Http()
    client.ask("POST", "messages?wait=5", BODY)
    assert client.heard() == []
    client.node.harness.advance(6.0)
    assert client.heard() == [503]
    only_end(client).open()
    assert client.heard() == []
    assert only_end(client).payloads == []


def test_http_a_request_that_waits_for_nothing_is_answered_once_the_other_side_has_said_what_there_is() -> None:
    client = Http()
    client.receive()
    client.node.harness.advance(5.0)
    assert client.heard() == []
    only_end(client).open()
    assert client.heard() == ["receiving"]
