"""Traces of frames: what is traced, for whom, how much of it, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.client.options import Url
from enmasse.message.sections import encode_message
from enmasse.node.errors import EntityError
from enmasse.node.trace import MAX_BUFFER_BYTES, MAX_TRACES, PATIENCE_S
from enmasse.testing.recorder import RecordingSink
from enmasse.wire.amqp.framing import AMQP_HEADER, amqp_frame
from enmasse.wire.amqp.performatives import Detach, Source, Target
from enmasse.wire.amqp.sasl import SaslClient
from enmasse.wire.amqp.trace import describe
from enmasse.wire.sasl.mechanisms import Plain
from tests.unit.node.seeing_scene import SeenClient, SeenNode, TraceReader


@pytest.fixture
def node() -> SeenNode:
    return SeenNode()


def names(reader: TraceReader) -> list[str]:
    """The name of each frame, with its direction."""
    return [("> " if record[2] else "< ") + describe(record[3]).split(" ")[1] for record in reader.records]


def is_traced(client: SeenClient) -> bool:
    """Whether anybody hears the connection's bytes."""
    return client.binding.engine.trace is not None


def send(client: SeenClient, *payloads: bytes) -> None:
    """Send messages to the queue on a link of their own."""
    session = client.client.begin()
    client.go()
    sink = RecordingSink()
    sink.link = session.attach_sender("s", sink, Target("q"))
    client.go()
    for payload in payloads:
        sink.send(payload)
    client.go()


def test_a_running_connection_is_traced_from_now_on(node: SeenNode) -> None:
    client = SeenClient(node)
    number = node.connections.numbers[client.binding]
    reader = TraceReader(node, node.tracer.start(str(number), {})["address"])
    assert reader.records == []
    send(client, encode_message("hello"))
    reader.go()
    assert names(reader) == ["< begin", "> begin", "< attach", "> attach", "> flow", "< transfer", "> disposition"]
    assert {record[1] for record in reader.records} == {number}
    about = next(body["connections"] for body in reader.bodies if body["connections"])
    described = {"host": "127.0.0.1:4711", "container": "client-1", "space": "ns/shop", "protocol": "amqp"}
    assert about == {str(number): described}


def test_all_connections_are_traced_those_to_come_from_their_first_byte_on(node: SeenNode) -> None:
    first = SeenClient(node)
    reader = TraceReader(node, node.tracer.start("", {})["address"])
    second = SeenClient(node, "client-2")
    send(first, b"")
    reader.go()
    numbers = {node.connections.numbers[first.binding], node.connections.numbers[second.binding]}
    assert {record[1] for record in reader.records} == numbers
    assert names(reader)[:4] == ["< AMQP", "< open", "> AMQP", "> open"]


def test_a_container_is_traced_wherever_it_comes_from(node: SeenNode) -> None:
    SeenClient(node, "wanted")
    reader = TraceReader(node, node.tracer.start("", {"container": "wanted"})["address"])
    other = SeenClient(node, "other")
    assert not is_traced(other)
    later = SeenClient(node, "wanted")
    send(other, b"")
    reader.go()
    assert {record[1] for record in reader.records} == {node.connections.numbers[later.binding]}
    assert names(reader) == ["< AMQP", "< open", "> AMQP", "> open"]


def test_what_authenticates_is_masked_before_it_leaves_the_node(node: SeenNode) -> None:
    reader = TraceReader(node, node.tracer.start("", {})["address"])
    SeenClient(node, sasl=SaslClient([Plain("anna", "correct horse")]))
    reader.go()
    assert "< sasl-init" in names(reader)
    assert not any(b"correct horse" in payload for payload in reader.sink.payloads)


def test_payloads_are_cut_where_that_is_asked_for(node: SeenNode) -> None:
    client = SeenClient(node)
    cut = TraceReader(node, node.tracer.start("", {"payload": 5})["address"])
    whole = TraceReader(node, node.tracer.start("", {})["address"])
    message = encode_message("x" * 1000)
    send(client, message)
    for reader in (cut, whole):
        reader.go()
    (short,) = [record for record in cut.records if "transfer" in describe(record[3])]
    (long,) = [record for record in whole.records if "transfer" in describe(record[3])]
    assert long[3].endswith(message)
    assert (len(short[3]), short[4]) == (len(long[3]) - len(message) + 5, len(long[3]))


def test_a_trace_ends_with_its_reader_and_costs_nothing_any_more(node: SeenNode) -> None:
    client = SeenClient(node)
    address = node.tracer.start("", {})["address"]
    reader = TraceReader(node, address)
    assert is_traced(client)
    reader.client.close()
    reader.go()
    assert not is_traced(client)
    assert address not in node.admin.addresses


class Line:
    """A connection of the connector ``mill``, with two sessions."""

    name = "ns/shop/mill"
    container = "far"
    url = Url(host="10.1.2.3", port=5672)

    def __init__(self, *owners: object) -> None:
        self.owners = owners
        self.on_bytes: Any = None

    def trace(self, on_bytes: Any) -> bytes:
        self.on_bytes = on_bytes
        return b""

    def owner(self, is_outgoing: bool, channel: int) -> object:
        return self.owners[channel]

    def links_of(self, owner: object) -> list[Any]:
        return [(self.owners.index(owner), 0, "sender", "client-1|s|1", "orders")]


def test_frames_behind_a_connector_are_those_of_the_traced_connection_alone(node: SeenNode) -> None:
    client, other = SeenClient(node), SeenClient(node, "client-2")
    line = Line(client.binding, other.binding)
    node.lines.append(line)
    number = str(node.connections.numbers[client.binding])
    reader = TraceReader(node, node.tracer.start(number, {})["address"])
    frames = [amqp_frame(channel, Detach(handle=channel)) for channel in (1, 0)]
    line.on_bytes(True, AMQP_HEADER + frames[0] + frames[1][:5])
    line.on_bytes(True, frames[1][5:])
    line.on_bytes(False, frames[1])
    reader.go()
    assert [(record[1], record[2], record[3]) for record in reader.records] == [
        (f"{number}/mill", True, frames[1]),
        (f"{number}/mill", False, frames[1]),
    ]
    about = next(body["connections"][f"{number}/mill"] for body in reader.bodies if body["connections"])
    assert (about["connector"], about["container"], about["host"]) == ("mill", "far", "10.1.2.3:5672")
    assert about["links"][0]["name"] == "client-1|s|1"
    reader.client.close()
    reader.go()
    assert line.on_bytes is None


def test_a_trace_that_nobody_reads_in_time_is_forgotten(node: SeenNode) -> None:
    addresses = [node.tracer.start("", {})["address"] for _ in range(MAX_TRACES)]
    with pytest.raises(EntityError, match="traces run already"):
        node.tracer.start("", {})
    node.turn()
    node.harness.advance(PATIENCE_S + 1)
    assert not set(addresses) & set(node.admin.addresses)
    assert node.tracer.start("", {})["address"] in node.admin.addresses


def test_the_trace_of_one_connection_ends_with_it(node: SeenNode) -> None:
    client = SeenClient(node)
    number = node.connections.numbers[client.binding]
    reader = TraceReader(node, node.tracer.start(str(number), {})["address"])
    client.client.close()
    client.go()
    reader.go()
    assert names(reader) == ["< close", "> close"]
    assert [body["ended"] for body in reader.bodies][-1]


def test_a_reader_that_is_too_slow_loses_frames_and_is_told_how_many(node: SeenNode) -> None:
    client = SeenClient(node)
    reader = TraceReader(node, node.tracer.start("", {})["address"], credit=0)
    size = 1 << 20
    count = MAX_BUFFER_BYTES // size + 4
    send(client, *[encode_message(b"x" * (size // 2))] * (2 * count))
    reader.link.grant(1000)
    reader.go()
    held = sum(len(record[3]) for record in reader.records)
    dropped = reader.bodies[-1]["dropped"]
    assert held <= MAX_BUFFER_BYTES
    assert dropped >= 1
    assert names(reader).count("< transfer") < 2 * count


def test_the_administrator_is_not_traced(node: SeenNode) -> None:
    reader = TraceReader(node, node.tracer.start("", {})["address"])
    other = SeenClient(node, "administrator", is_admin=True)
    reader.go()
    assert reader.records == []
    with pytest.raises(EntityError, match="no connection"):
        node.tracer.start(str(node.connections.numbers[other.binding]), {})


def test_a_trace_has_one_reader(node: SeenNode) -> None:
    address = node.tracer.start("", {})["address"]
    TraceReader(node, address)
    second = TraceReader(node, address)
    assert second.link.is_detached


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("99", {}, "no connection '99'"),
        ("", {"conatiner": "x"}, "no argument 'conatiner'"),
        ("", {"container": 3}, "argument container"),
        ("1", {"container": "x"}, "argument container"),
        ("", {"payload": -1}, "argument payload"),
        ("", {"payload": True}, "argument payload"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(
    node: SeenNode, name: str, arguments: dict[str, object], problem: str
) -> None:
    SeenClient(node)
    with pytest.raises(EntityError, match=problem):
        node.tracer.start(name, arguments)


def test_bytes_that_are_no_frames_are_never_shown(node: SeenNode) -> None:
    client = SeenClient(node)
    reader = TraceReader(node, node.tracer.start("", {})["address"])
    client.binding.engine.receive(b"\xff" * 20 + b"secret", 0.0)
    client.go()
    reader.go()
    assert [record[3] for record in reader.records if not record[2]] == [b""]
    assert not any(b"secret" in payload for payload in reader.sink.payloads)


def test_a_receiver_is_traced_like_a_sender(node: SeenNode) -> None:
    client = SeenClient(node)
    send(client, encode_message("hello"))
    reader = TraceReader(node, node.tracer.start("", {})["address"])
    session = client.client.begin()
    client.go()
    sink = RecordingSink()
    session.attach_receiver("r", sink, Source("q")).grant(10)
    client.go()
    reader.go()
    assert "> transfer" in names(reader)
