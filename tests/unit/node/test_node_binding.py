"""What a client's AMQP connection finds: its space, its addresses, and what its links become."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, Accepted, AmqpError, Modified, Rejected, Released
from enmasse.message.sections import Header, Properties, Sections, encode_message
from enmasse.message.types import Described, Symbol, ULong
from enmasse.messaging.patterns import SUBTREE_CAPABILITY
from enmasse.node.amqp.binding import Binding
from enmasse.node.connections.connections import Connections
from enmasse.node.large_messages import MAX_MESSAGE_BYTES
from enmasse.node.management.entities import Entities
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.testing.engine_pair import EnginePair
from enmasse.testing.ports import CoreHarness
from enmasse.testing.recorder import Recorder, RecordingSink
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.link import ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Disposition, Received, Source, Target
from enmasse.wire.amqp.sasl import SaslClient
from enmasse.wire.amqp.session import Session
from enmasse.wire.sasl.mechanisms import Anonymous, Plain

START = Symbol("enmasse:start")
SELECTED = Described(ULong(0x0000468C00000004), "a = 1")
NO_LOCAL = Described(ULong(0x0000468C00000003), [])


class Shell:
    """The socket of a connection, as far as the account of connections looks at it."""

    bytes_in = 11
    bytes_out = 22
    peer = "127.0.0.1:1"
    slot = None
    is_stalled = False
    tls = via = ""

    def reset_later(self, _seconds: float) -> None:
        """Do nothing: there is no socket."""


class Node:
    """Entities and connections of a node over a storage in memory."""

    def __init__(self, *spaces: str) -> None:
        self.harness = CoreHarness()
        ids = count(1)
        self.connections = Connections(lambda: 1_700_000_000_000)
        self.entities = Entities(self.harness.core, lambda: f"id{next(ids)}", self.connections.close_space)
        self.entities.load()
        self.answers: list[Any] = []
        self.default: str | None = None
        self.port_of: str | None = None
        for name in spaces or ("ns/shop",):
            self.entities.create(SPACE_TYPE, name, {}, self.answers.append)
        self.harness.commit()
        assert not any(self.answers)

    def address(self, name: str, kind: str, space: str = "ns/shop", **attributes: Any) -> None:
        asked = {"space": space, "address": name, "addressType": kind, **attributes}
        self.entities.create(ADDRESS_TYPE, f"{space}.{name}", asked, self.answers.append)
        self.harness.commit()
        assert self.answers[-1] is None

    def client(self, *, hostname: str | None = None, sasl: SaslClient | None = None) -> Client:
        return Client(self, hostname, sasl)


class Client(EnginePair):
    """A client's engine, joined to a node's."""

    def __init__(
        self,
        node: Node,
        hostname: str | None,
        sasl: SaslClient | None,
        *,
        container: str = "client-1",
        **options: Any,
    ) -> None:
        self.node = node
        self.diary = Recorder()
        self.binding = Binding(
            node.connections,
            spaces=lambda: node.entities.spaces,
            fixed=None,
            default=node.default,
            port_of=node.port_of,
            url="amqp://here:1",
            peer=Shell.peer,
            **options,
        )
        self.binding.engine = Connection(
            self.binding, container_id="node", is_server=True, now=0.0, sasl=self.binding.sasl()
        )
        node.connections.connected(self.binding, Shell())  # type: ignore[arg-type]
        client = Connection(
            self.diary, container_id=container, is_server=False, now=0.0, hostname=hostname, sasl=sasl
        )
        super().__init__(client, self.binding.engine, node.harness.clock)
        self._session: Session | None = None
        self.go()

    def go(self) -> None:
        """Carry bytes, run turns and commit until nothing moves."""
        for _ in range(4):
            self.pump()
            self.node.harness.commit()
        self.pump()

    @property
    def session(self) -> Session:
        if self._session is None:
            self._session = self.client.begin()
            self.go()
        return self._session

    def sender(self, target: Target | str | None, name: str = "out", **options: Any) -> RecordingSink:
        sink = RecordingSink()
        made = Target(address=target) if isinstance(target, str) else target
        sink.link = self.session.attach_sender(name, sink, made, **options)
        self.go()
        return sink

    def receiver(
        self, source: Source | str, credit: int = 100, name: str = "in", answer: Any = None, **options: Any
    ) -> RecordingSink:
        sink = RecordingSink()
        sink.answer = answer
        made = Source(address=source) if isinstance(source, str) else source
        link = self.session.attach_receiver(name, sink, made, **options)
        sink.link = link
        self.go()
        if credit:
            link.grant(credit)
            self.go()
        return sink

    @property
    def refusals(self) -> list[tuple[str, str | None, bool]]:
        """Name, condition and whether closed, of every link that the node detached."""
        found: list[tuple[str, str | None, bool]] = self.diary.calls("detached")
        return found


@pytest.fixture
def node() -> Node:
    made = Node()
    for name, kind in {"a": "anycast", "q": "queue", "t": "topic", "s": "stream"}.items():
        made.address(name, kind)
    return made


def message(body: bytes = b"x", **properties: Any) -> bytes:
    return encode_message(body, header=Header(durable=True), properties=Properties(**properties))


# The space


def test_a_client_that_names_nothing_belongs_to_the_only_space(node: Node) -> None:
    client = node.client()
    assert client.diary.calls("opened") == ["node"]
    assert client.binding.space is node.entities.spaces["ns/shop"]


@pytest.mark.parametrize(
    ("hostname", "sasl"),
    [
        ("factory.ns", None),
        (None, SaslClient([Anonymous()], "factory.ns.enmasse.local")),
        (None, SaslClient([Plain("jo@factory.ns", "any")])),
    ],
)
def test_a_client_that_names_a_space_belongs_to_it(hostname: str | None, sasl: SaslClient | None) -> None:
    node = Node("ns/shop", "ns/factory")
    client = node.client(hostname=hostname, sasl=sasl)
    assert client.binding.space is node.entities.spaces["ns/factory"]


def test_a_client_that_names_none_of_several_is_told_how() -> None:
    node = Node("ns/shop", "ns/factory")
    client = node.client()
    assert client.diary.error is not None
    assert client.diary.error.condition == "amqp:not-found"
    assert "factory.ns, shop.ns" in (client.diary.error.description or "")
    assert len(node.connections) == 0


def test_a_listener_may_have_a_default_space() -> None:
    node = Node("ns/shop", "ns/factory")
    node.default = "ns/factory"
    assert node.client().binding.space is node.entities.spaces["ns/factory"]


def test_a_client_reaches_the_addresses_of_its_space_only() -> None:
    node = Node("ns/shop", "ns/factory")
    node.address("a", "anycast", "ns/shop")
    client = node.client(hostname="factory.ns")
    client.sender("a")
    assert client.refusals == [("out", "amqp:not-found", True)]


# Links


def test_a_message_and_its_outcome_travel_end_to_end(node: Node) -> None:
    client = node.client()
    receiver = client.receiver("a", answer=ACCEPTED)
    sender = client.sender("a")
    sent = sender.send(message(b"hello"))
    client.go()
    assert receiver.payloads == [message(b"hello")]
    assert sent.state is ACCEPTED


@pytest.mark.parametrize(
    ("target", "condition"),
    [
        (Target(address="nowhere"), "amqp:not-found"),
        (None, "amqp:invalid-field"),
        (Target(address=7), "amqp:invalid-field"),
    ],
    ids=["unknown", "none", "number"],
)
def test_a_sender_that_cannot_be_is_refused_and_the_connection_lives(node: Node, target: Any, condition: str) -> None:
    client = node.client()
    client.sender(target)
    assert client.refusals == [("out", condition, True)]
    client.receiver("a")
    sender = client.sender("a", name="good")
    assert sender.credits == [(100, False)]


@pytest.mark.parametrize(
    ("source", "condition"),
    [
        (Source(address="nowhere"), "amqp:not-found"),
        (Source(), "amqp:invalid-field"),
        (Source(address=""), "amqp:invalid-field"),
        (Source(address=7), "amqp:invalid-field"),
        (Source(address="s", filter={Symbol("enmasse:partition"): 9}), "amqp:invalid-field"),
        (Source(address="s", filter={Symbol("enmasse:start"): "soon"}), "amqp:not-implemented"),
        (Source(address="s", filter={START: Described(Symbol("other"), "first")}), "amqp:not-implemented"),
        (Source(address="s", filter={Symbol("other"): 1}), "amqp:not-implemented"),
        (Source(address="s", filter={Symbol("enmasse:from"): 1}), "amqp:not-implemented"),
        (
            Source(address="s", filter={Symbol("x"): SELECTED}),
            "amqp:not-implemented",
        ),
        (Source(address="s", filter={START: 1, Symbol("x"): Described(START, 2)}), "amqp:invalid-field"),
        (Source(address="s", filter={Symbol("x"): Described(START, Described(START, 1))}), "amqp:not-implemented"),
        (Source(address="q", filter={START: "first"}), "amqp:not-implemented"),
        (
            Source(address="q", filter={Symbol("no-local"): NO_LOCAL}),
            "amqp:not-implemented",
        ),
        (Source(address="a", filter={Symbol("jms-selector"): "a = 1"}), "amqp:not-implemented"),
    ],
    ids=[
        "unknown",
        "none",
        "empty",
        "number",
        "partition",
        "start",
        "by key",
        "unknown filter",
        "of frames",
        "selector of a stream",
        "twice",
        "doubly described",
        "start of a queue",
        "no-local",
        "selector of anycast",
    ],
)
def test_a_receiver_that_cannot_be_is_refused_and_the_connection_lives(
    node: Node, source: Source, condition: str
) -> None:
    client = node.client()
    client.receiver(source, credit=0)
    assert client.refusals == [("in", condition, True)]
    client.sender("q")
    client.receiver("q", name="good")
    assert len(client.refusals) == 1


def test_a_link_that_goes_leaves_its_address(node: Node) -> None:
    client = node.client()
    receiver, sender = client.receiver("a"), client.sender("a")
    address = node.entities.spaces["ns/shop"].find("a")
    assert (len(address.consumers), len(address.producers)) == (1, 1)
    for sink in (receiver, sender):
        assert isinstance(sink.link, ReceivingLink | SendingLink)
        sink.link.detach()
    client.go()
    assert (len(address.consumers), len(address.producers)) == (0, 0)
    assert client.binding.links == {}


def test_a_connection_that_is_lost_leaves_nothing(node: Node) -> None:
    client = node.client()
    client.receiver("a")
    client.sender("a")
    client.receiver(Source(dynamic=True), name="reply")
    space = node.entities.spaces["ns/shop"]
    address = space.find("a")
    client.cut()
    assert (address.consumers, address.producers) == ([], [])
    assert not any(name.startswith("$dynamic/") for name in space.addresses)
    assert len(node.connections) == 0


def test_an_address_that_is_deleted_detaches_its_links_with_the_reason(node: Node) -> None:
    client = node.client()
    client.receiver("a")
    node.entities.delete(ADDRESS_TYPE, "ns/shop.a", node.answers.append)
    client.go()
    assert client.refusals == [("in", "amqp:resource-deleted", True)]


def test_a_space_that_is_deleted_closes_its_connections(node: Node) -> None:
    client = node.client()
    for name in "aqts":
        node.entities.delete(ADDRESS_TYPE, f"ns/shop.{name}", node.answers.append)
    node.harness.commit()
    node.entities.delete(SPACE_TYPE, "ns/shop", node.answers.append)
    client.go()
    assert client.diary.error is not None
    assert client.diary.error.condition == "amqp:connection:forced"


def test_a_dynamic_source_is_an_address_for_replies(node: Node) -> None:
    client = node.client()
    replies = client.receiver(Source(dynamic=True), answer=ACCEPTED)
    assert replies.link is not None
    assert replies.link.remote_attach is not None
    assert replies.link.remote_attach.source is not None
    name = replies.link.remote_attach.source.address
    assert name.startswith("$dynamic/")
    anonymous = client.sender(Target())
    sent = anonymous.send(message(b"answer", to=name))
    client.go()
    assert replies.payloads == [message(b"answer", to=name)]
    assert sent.state is ACCEPTED


def test_an_anonymous_sender_is_told_what_is_wrong_with_each_message(node: Node) -> None:
    client = node.client()
    anonymous = client.sender(Target())
    sent = [anonymous.send(message(to=to)) for to in ("nowhere", "a", "q")]
    client.go()
    rejected, released, accepted = (item.state for item in sent)
    assert isinstance(rejected, Rejected)
    assert rejected.error is not None
    assert rejected.error.condition == "amqp:not-found"
    assert isinstance(released, Released)
    assert accepted is ACCEPTED


def test_links_tell_the_largest_message_and_the_capabilities_they_serve(node: Node) -> None:
    client = node.client()
    sender = client.sender("s", desired_capabilities=("enmasse:frames",))
    assert sender.link is not None
    attach = sender.link.remote_attach
    assert attach is not None
    assert attach.max_message_size == MAX_MESSAGE_BYTES
    assert attach.offered_capabilities == ("enmasse:frames",)


@pytest.mark.parametrize("capability", ["queue", "topic"])
def test_a_link_that_takes_an_address_for_another_kind_is_refused(node: Node, capability: str) -> None:
    client, wrong = node.client(), []
    for kind in ("queue", "anycast", "topic", "multicast", "subscription", "stream"):
        node.address(kind, kind, **({"topic": "topic"} if kind == "subscription" else {}))
        client.receiver(Source(address=kind, capabilities=(capability,)), credit=0, name=f"from {kind}")
        wrong.append(f"from {kind}")
        if kind != "subscription":
            client.sender(Target(address=kind, capabilities=(capability,)), name=f"to {kind}")
            wrong.append(f"to {kind}")
    others = ("topic", "multicast") if capability == "queue" else ("queue", "anycast")
    refused = [name for name in wrong if name.endswith(others)]
    assert client.refusals == [(name, "amqp:not-allowed", True) for name in refused]


@pytest.mark.parametrize(
    "filters",
    [{START: 1}, {START: Described(START, 1)}, {Symbol("any name"): Described(START, 1), Symbol("none"): None}],
)
def test_stream_filters_are_found_by_descriptor_and_echoed(node: Node, filters: dict[Symbol, Any]) -> None:
    client = node.client()
    sender = client.sender("s")
    for number in range(3):
        sender.send(message(b"%d" % number))
    client.go()
    reader = client.receiver(Source(address="s", filter=filters))
    assert [Sections(payload).body for payload in reader.payloads] == [b"1", b"2"]
    assert reader.link is not None
    assert reader.link.remote_attach is not None
    assert reader.link.remote_attach.source is not None
    in_place = {key: value for key, value in filters.items() if value is not None}
    assert reader.link.remote_attach.source.filter == in_place


@pytest.mark.parametrize(("mode", "settled"), [(0, False), (1, True), (2, True)])
def test_readers_of_streams_get_settled_messages_unless_they_ask_for_others(
    node: Node, mode: int, settled: bool
) -> None:
    client = node.client()
    reader = client.receiver("s", snd_settle_mode=mode)
    client.sender("s").send(message())
    client.go()
    assert reader.received[0].settled is settled


@pytest.mark.parametrize(("mode", "settled"), [(0, False), (1, True), (2, False)])
def test_receivers_get_unsettled_messages_unless_they_ask_for_settled_ones(
    node: Node, mode: int, settled: bool
) -> None:
    client = node.client()
    receiver = client.receiver("q", snd_settle_mode=mode)
    client.sender("q").send(message())
    client.go()
    assert receiver.received[0].settled is settled


def test_a_sender_below_a_topic_reaches_the_patterns_that_match(node: Node) -> None:
    client = node.client()
    matching, other = client.receiver("t/*"), client.receiver("t/x/y", name="other")
    client.sender("t/x").send(message())
    client.go()
    assert (len(matching.received), len(other.received)) == (1, 0)


# Outcomes in every shape


def batchable(state: Any) -> dict[str, Any]:
    return {"settled": True, "state": state, "batchable": True}


@pytest.mark.parametrize(
    ("fields", "depth"),
    [
        (batchable(Accepted()), 0),
        (batchable(Rejected(AmqpError("a:b", "no"))), 0),
        (batchable(Released()), 1),
        (batchable(Modified(delivery_failed=True)), 1),
        ({"settled": False, "state": Accepted(), "batchable": True}, 0),
        ({"settled": True}, 1),
        ({"settled": True, "state": Received(section_number=0, section_offset=0)}, 1),
        ({"settled": True, "state": Described(Symbol("acme:pondering:list"), [])}, 1),
    ],
    ids=["accepted", "rejected", "released", "modified", "unsettled accepted", "none", "received", "unknown"],
)
def test_outcomes_count_in_whatever_shape_they_come(node: Node, fields: dict[str, Any], depth: int) -> None:
    client = node.client()
    receiver = client.receiver("q", credit=1)
    client.sender("q").send(message())
    client.go()
    first = receiver.received[0].delivery_id
    session = client.session
    client.client.put(amqp_frame(session.channel, Disposition(role=True, first=first, last=first, **fields)))
    client.go()
    queue = node.entities.spaces["ns/shop"].find("q")
    assert queue.counts()["messagesStored"] == depth
    counts = queue.counts()
    assert counts["unsettled"] == 0
    assert counts["accepted"] + counts["rejected"] == 1 - depth
    assert counts["released"] + counts["modified"] == depth


def test_a_sender_that_settles_second_hears_the_outcome_first(node: Node) -> None:
    client = node.client()
    sender = client.sender("q", rcv_settle_mode=1)
    sent = sender.send(message())
    client.go()
    assert sent.state is ACCEPTED


# The account


def test_connections_and_links_are_shown_as_the_client_sees_itself(node: Node) -> None:
    client = node.client(sasl=SaslClient([Plain("jo", "secret")]))
    client.receiver("a", credit=5, answer=ACCEPTED)
    client.sender("a").send(message())
    client.go()
    (connection,) = node.connections.connections_of().page()
    assert connection == {
        "type": "io.enmasse.connection",
        "identity": "1",
        "name": "1",
        "protocol": "amqp",
        "container": "client-1",
        "host": "127.0.0.1:1",
        "space": "ns/shop",
        "user": "anonymous",
        "mechanism": "PLAIN",
        "tls": "",
        "via": None,
        "properties": None,
        "openedAt": 1_700_000_000_000,
        "senders": 1,
        "receivers": 1,
        "bytesIn": 11,
        "bytesOut": 22,
        "messagesIn": 1,
        "messagesOut": 1,
        "transactions": 0,
        "paused": "",
    }
    receiver, sender = node.connections.links_of().page()
    assert {key: receiver[key] for key in ("name", "role", "address", "connection", "space")} == {
        "name": "in", "role": "receiver", "address": "a", "connection": "1", "space": "ns/shop",
    }  # fmt: skip
    assert (receiver["credit"], receiver["deliveries"], receiver["accepted"], receiver["unsettled"]) == (4, 1, 1, 0)
    assert (sender["name"], sender["role"], sender["credit"], sender["deliveries"]) == ("out", "sender", 4, 1)
    assert receiver["identity"] != sender["identity"]
    assert node.connections.links == 2


@pytest.mark.parametrize(("mode", "presettled"), [(0, 0), (1, 1), (2, None)])
def test_a_sender_says_at_attach_whether_it_settles_its_messages_itself(
    node: Node, mode: int, presettled: int | None
) -> None:
    client = node.client()
    sink = client.sender("q", snd_settle_mode=mode)
    sink.send(message())
    client.go()
    (link,) = node.connections.links_of().page()
    assert (link["deliveries"], link["presettled"], link["backlog"]) == (1, presettled, None)


def test_what_waits_is_told_of_few_receivers_of_an_address_alone(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    client = node.client()
    client.sender("q").send(message())
    client.receiver("q", credit=0, name="one")
    client.receiver("q", credit=0, name="two")
    assert [link["backlog"] for link in node.connections.links_of().page()] == [None, 1, 1]
    monkeypatch.setattr("enmasse.node.connections.client_connection.MAX_ASKED", 1)
    assert [link["backlog"] for link in node.connections.links_of().page()] == [None, None, None]


def test_a_connection_has_so_many_links_and_no_more(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enmasse.node.connections.client_connection.MAX_LINKS", 2)
    node.address("many", "queue")
    client = node.client()
    for number in range(3):
        client.sender("many", name=f"out-{number}")
    assert client.refusals == [("out-2", "amqp:resource-limit-exceeded", True)]
    assert len(client.binding.links) == 2


def test_a_receiver_that_asks_is_told_what_it_has_attached_to(node: Node) -> None:
    client = node.client()
    sender = client.sender("q")
    for _ in range(3):
        sender.send(message())
    client.go()

    def told(address: str, *capabilities: str) -> dict[str, Any] | None:
        source = Source(address, distribution_mode=Symbol("copy"))
        link = client.receiver(
            source, credit=0, name=f"{address}{capabilities}", desired_capabilities=capabilities
        ).link
        assert link is not None
        assert link.remote_attach is not None
        properties = link.remote_attach.properties
        return None if properties is None else {str(key): value for key, value in properties.items()}

    kind, stored = "enmasse:address-type", "enmasse:messages-stored"
    assert told("a", kind) == {kind: "anycast"}
    assert told("q", kind) == {kind: "queue", stored: 3}
    assert told("t", kind) == {kind: "topic", stored: 0}
    assert told("s", kind) == {kind: "stream"}
    assert told("q") is None


def test_a_receiver_that_asks_for_the_subtree_gets_what_is_sent_below_its_source(node: Node) -> None:
    client = node.client()
    capability = (SUBTREE_CAPABILITY,)
    alone = client.receiver("t", name="alone")
    wide = client.receiver("t", name="wide", desired_capabilities=capability)
    part = client.receiver("t/a", name="part", desired_capabilities=capability)
    for target in ("t", "t/a", "t/a/b"):
        client.sender(target, name=target).send(message(target.encode()))
        client.go()
    found = [[Sections(payload).body for payload in sink.payloads] for sink in (alone, wide, part)]
    assert found == [[b"t"], [b"t", b"t/a", b"t/a/b"], [b"t/a", b"t/a/b"]]
    assert wide.link is not None
    assert wide.link.remote_attach is not None
    assert wide.link.remote_attach.source == Source("t")
    client.receiver("q", name="none", desired_capabilities=capability)
    assert client.refusals == [("none", "amqp:not-found", True)]
