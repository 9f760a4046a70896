"""3.2: what a message is made of, and what of it a node may change."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from enmasse.message.codec import encode
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED, AmqpError, Modified, Rejected, Released
from enmasse.message.sections import Header, Properties, Sections, check_order, encode_message
from enmasse.message.types import Described, Symbol, Timestamp, UByte, UInt, ULong
from enmasse.wire.amqp.performatives import Disposition, Source, Target
from tests.conformance.clause_list import clause
from tests.conformance.node_scene import Node, NodePeer

HEADER, DELIVERY, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE, FOOTER = range(0x70, 0x79)

ALL_KINDS = [pytest.param(name, id=kind) for name, kind in (("q", "queue"), ("a", "anycast"), ("t", "topic"))]


def section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


def bare(*bodies: bytes) -> bytes:
    """Properties, application properties and a body, in an encoding that nobody would choose."""
    properties = encode(Described(Symbol("amqp:properties:list"), ["id-1", None, "elsewhere", "subject"]))
    application = b"\x00\x80" + (0x74).to_bytes(8, "big") + b"\xd1\x00\x00\x00\x0a\x00\x00\x00\x02\xa1\x01k\xa1\x01v"
    return properties + application + b"".join(bodies or (section(VALUE, "body"),))


def pass_through(payload: bytes, address: str = "q", node: Node | None = None) -> bytes:
    """What a receiver gets of a message."""
    node = node or Node()
    receiver, sender = node.peer("receiver"), node.peer("sender")
    receiver.receiver(address)
    receiver.hear()
    sender.sender(address)
    assert sender.deliver(payload) in (ACCEPTED, None)
    ((_, received),) = receiver.transfers()
    return received


@clause("3.2:bare-immutable", "3.2.4:to")
@pytest.mark.parametrize("address", ALL_KINDS)
def test_the_bare_message_is_not_touched(address: str) -> None:
    assert pass_through(bare(), address).endswith(bare())


@clause("3.2:bare-immutable", "3.2:order", "3.2.9:passed", "3.2.3:passed", "3.2.1:delivery-count")
def test_a_redelivered_message_differs_in_its_header_only() -> None:
    node = Node()
    footer = section(FOOTER, {Symbol("x-opt-sum"): b"\x01"})
    annotations = section(ANNOTATIONS, {Symbol("x-opt-unknown"): [1, "two"]})
    payload = section(HEADER, [True, UByte(7)]) + annotations + bare() + footer
    sender, receiver = node.peer("sender"), node.peer("receiver")
    sender.sender("q")
    sender.deliver(payload)
    receiver.receiver("q")
    ((first, received),) = receiver.transfers()
    assert received == payload
    receiver.settle(first.delivery_id, Modified(delivery_failed=True))
    ((_, again),) = receiver.transfers()
    assert again.endswith(annotations + bare() + footer)
    header = Sections(again).header
    assert (header.durable, header.priority, header.delivery_count) == (True, 7, 1)


@clause("3.2.6:several", "3.2.7:several", "3.2.8:any", "3.2:one-kind-of-body")
@pytest.mark.parametrize(
    "body",
    [
        [section(DATA, b"one"), section(DATA, b"two"), section(DATA, b"")],
        [section(SEQUENCE, [1, "a"]), section(SEQUENCE, []), section(SEQUENCE, [None])],
        [section(VALUE, None)],
        [section(VALUE, {"map": [1, {"deep": b"x"}]})],
        [section(VALUE, Described(Symbol("example:type"), 1))],
    ],
)
@pytest.mark.parametrize("address", ALL_KINDS)
def test_every_kind_of_body_passes_as_it_is(body: list[bytes], address: str) -> None:
    assert pass_through(bare(*body), address).endswith(bare(*body))


OUT_OF_ORDER = [
    section(PROPERTIES, []) + section(HEADER, [True]) + section(VALUE, 1),
    section(PROPERTIES, []) + section(DELIVERY, {}) + section(DATA, b"x"),
    section(APPLICATION, {}) + section(PROPERTIES, []) + section(VALUE, "text"),
    section(APPLICATION, {}) + section(APPLICATION, {}) + section(DATA, b"x"),
    encode(Described(Symbol("amqp:properties:list"), [])) + section(PROPERTIES, []) + section(DATA, b"x"),
    section(VALUE, 1) + section(PROPERTIES, []),
    section(DATA, b"x") + section(HEADER, [True]),
    section(FOOTER, {}) + section(VALUE, 1),
    section(VALUE, 1) + section(VALUE, 2),
    section(VALUE, {}) + section(FOOTER, {}) + section(FOOTER, {}),
    section(DATA, b"x") + section(SEQUENCE, [1]),
    section(DATA, b"x") + section(VALUE, "text"),
    section(HEADER, [True]) + section(HEADER, [True]) + section(VALUE, 1),
    section(0x79, 1),
    section(VALUE, {}) + section(0x79, 1),
    section(VALUE, 1) + b"\x00",
    section(VALUE, {}) + b"more",
    b"\xa1\x03abc",
]


@clause("3.2:order", "3.2:unknown-order", "3.2:one-kind-of-body")
@pytest.mark.parametrize("payload", OUT_OF_ORDER)
def test_sections_out_of_order_are_no_message(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        Sections(payload).has(VALUE)
    with pytest.raises(DecodeError):
        check_order(payload)


@clause("3.2:unknown-order", "2.8.15:decode")
@pytest.mark.parametrize("address", ["q", "t", "s", None])
def test_what_is_no_message_is_not_stored_and_the_next_one_is(address: str | None) -> None:
    node = Node()
    peer, receiver = node.peer(), node.peer("receiver")
    receiver.receiver(address or "q")
    receiver.hear()
    peer.sender(Target(address))
    for payload in [*OUT_OF_ORDER, b"\xff\xff", b"\x00\x53\x70\xc0\x7f\x01"]:
        addressed = payload if address else section(PROPERTIES, [None, None, "q"]) + payload
        outcome = peer.deliver(addressed)
        assert isinstance(outcome, Rejected), addressed
        assert outcome.error is not None
        assert outcome.error.condition == "amqp:decode-error"
    assert receiver.transfers() == []
    assert peer.deliver(encode_message("sound", properties=Properties(to="q"))) == ACCEPTED
    assert len(receiver.bodies()) == 1


@clause("3.2.1:durable")
def test_a_durable_message_is_accepted_once_it_is_on_disk() -> None:
    peer = Node().peer()
    peer.sender("q")
    peer.hear()
    peer.send(encode_message("m", header=Header(durable=True)))
    assert peer.hear_uncommitted() == []
    assert peer.hear_one(Disposition).state == ACCEPTED


@clause("3.2.1:priority")
def test_a_message_of_higher_priority_comes_first_and_4_is_the_default() -> None:
    node = Node()
    sender, receiver = node.peer("sender"), node.peer("receiver")
    sender.sender("q")
    for priority in (0, 3, None, 5, 9):
        header = None if priority is None else Header(priority=priority)
        sender.deliver(encode_message(priority, header=header))
    receiver.receiver("q")
    assert receiver.bodies() == [9, 5, None, 3, 0]


@clause("3.2.1:ttl")
def test_a_message_whose_time_has_run_out_is_not_delivered() -> None:
    node = Node()
    sender, receiver = node.peer("sender"), node.peer("receiver")
    sender.sender("q")
    sender.deliver(encode_message("short", header=Header(ttl=5_000)))
    sender.deliver(encode_message("long", header=Header(ttl=60_000)))
    node.harness.advance(10)
    receiver.receiver("q")
    ((_, payload),) = receiver.transfers()
    assert Sections(payload).body == "long"
    ttl = Sections(payload).header.ttl
    assert ttl is not None
    assert 45_000 < ttl <= 50_000


@clause("3.2.1:first-acquirer")
def test_first_acquirer_is_passed_on_until_a_delivery_has_failed() -> None:
    node = Node()
    sender, receiver = node.peer("sender"), node.peer("receiver")
    sender.sender("q")
    sender.deliver(encode_message("m", header=Header(first_acquirer=True)))
    receiver.receiver("q")
    ((first, payload),) = receiver.transfers()
    assert Sections(payload).header.first_acquirer is True
    receiver.settle(first.delivery_id, Modified(delivery_failed=True))
    ((_, payload),) = receiver.transfers()
    assert Sections(payload).header.first_acquirer is False


@clause("3.2.2:passed")
def test_delivery_annotations_do_no_harm() -> None:
    payload = section(DELIVERY, {Symbol("x-opt-hop"): 1}) + bare()
    assert pass_through(payload).endswith(bare())


@clause("3.2.10:opt-ignored")
def test_annotations_that_may_be_ignored_are_passed_on() -> None:
    found = pass_through(encode_message("m", message_annotations={"x-opt-something": 1}))
    assert Sections(found).message_annotations == {"x-opt-something": 1}


@clause("3.2.11:kept", "3.2.12:kept", "3.2.13:kept", "3.2.14:kept", "3.2.4:message-id-types")
@pytest.mark.parametrize(
    "message_id", [ULong(7), UUID("00112233-4455-6677-8899-aabbccddeeff"), b"\x00\x01", "text", "", ULong(1 << 63)]
)
def test_a_message_id_keeps_its_type(message_id: Any) -> None:
    payload = section(PROPERTIES, [message_id]) + section(VALUE, 1)
    assert pass_through(payload).endswith(payload)
    found = Sections(payload).properties.message_id
    assert found == message_id
    assert isinstance(found, str | bytes | UUID | int)


@clause("3.2.5:simple")
def test_application_properties_keep_their_types() -> None:
    values = {"a": UInt(1), "b": ULong(2), "c": 3, "d": True, "e": None, "f": 1.5, "g": b"x", "h": Timestamp(5)}
    payload = section(APPLICATION, values) + section(VALUE, 1)
    assert pass_through(payload).endswith(payload)


@clause("3.2.4:to")
def test_on_the_anonymous_terminus_to_is_the_address() -> None:
    node = Node()
    peer = node.peer()
    peer.sender(Target())
    assert peer.deliver(encode_message("m", properties=Properties(to="r"))) == ACCEPTED
    assert node.stored("r") == 1
    refused = peer.deliver(encode_message("m", properties=Properties(to="nowhere")))
    assert isinstance(refused, Rejected | Released)


# 3.3 and 3.4


def lent(node: Node, *bodies: Any) -> tuple[NodePeer, list[int]]:
    """A receiver that has some messages of the queue, and their delivery ids."""
    sender, receiver = node.peer("sender"), node.peer("receiver")
    sender.sender("q")
    for body in bodies:
        sender.deliver(encode_message(body))
    receiver.receiver("q")
    return receiver, [transfer.delivery_id or 0 for transfer, _ in receiver.transfers()]


@clause("3.3.1:available-acquired")
def test_a_message_that_one_receiver_has_is_not_given_to_another() -> None:
    node = Node()
    lent(node, "one")
    other = node.peer("other")
    other.receiver("q")
    assert other.bodies() == []


@clause("3.3.1:archived", "3.4.2:at-source")
def test_an_accepted_message_is_gone() -> None:
    node = Node()
    receiver, (number,) = lent(node, "one")
    receiver.settle(number, ACCEPTED)
    assert node.stored("q") == 0
    receiver.cut()
    other = node.peer("other")
    other.receiver("q")
    assert other.bodies() == []


@clause("3.4.4:at-source", "3.3.1:returned")
def test_a_released_message_is_available_as_it_was() -> None:
    node = Node()
    receiver, (number,) = lent(node, "one")
    other = node.peer("other")
    other.receiver("q")
    receiver.grant(0, count=1)
    receiver.settle(number, Released())
    ((_, payload),) = other.transfers()
    assert (Sections(payload).body, Sections(payload).header.delivery_count) == ("one", 0)


@clause("3.4.3:at-source")
def test_a_rejected_message_goes_where_dead_letters_go() -> None:
    node = Node(q={"deadletter": "dead"})
    node.address("dead", "deadletter")
    receiver, (number,) = lent(node, "one")
    receiver.settle(number, Rejected(AmqpError("example:bad", "not this")))
    assert (node.stored("q"), node.stored("dead")) == (0, 1)
    reader = node.peer("reader")
    reader.receiver("dead")
    ((_, payload),) = reader.transfers()
    assert "example:bad" in Sections(payload).message_annotations.values()


@clause("3.4.5:delivery-failed")
def test_modified_with_delivery_failed_counts_an_attempt() -> None:
    node = Node()
    receiver, (number,) = lent(node, "one")
    receiver.settle(number, Modified(delivery_failed=True))
    ((again, payload),) = receiver.transfers()
    assert Sections(payload).header.delivery_count == 1
    receiver.settle(again.delivery_id, Modified(delivery_failed=False))
    ((_, payload),) = receiver.transfers()
    assert Sections(payload).header.delivery_count == 1


@clause("3.4.5:undeliverable-here")
def test_modified_with_undeliverable_here_keeps_it_from_that_link() -> None:
    node = Node()
    receiver, (number,) = lent(node, "one")
    receiver.settle(number, Modified(undeliverable_here=True))
    assert receiver.transfers() == []
    other = node.peer("other")
    other.receiver("q")
    assert other.bodies() == ["one"]


@clause("3.4.5:annotations")
def test_the_annotations_of_modified_are_put_into_the_message() -> None:
    node = Node()
    sender, receiver = node.peer("sender"), node.peer("receiver")
    sender.sender("q")
    sender.deliver(encode_message("m", message_annotations={"x-opt-a": 1, "x-opt-b": 2}))
    receiver.receiver("q")
    ((transfer, _),) = receiver.transfers()
    receiver.settle(transfer.delivery_id, Modified(message_annotations={Symbol("x-opt-b"): 3, Symbol("x-opt-c"): 4}))
    ((_, payload),) = receiver.transfers()
    assert Sections(payload).message_annotations == {"x-opt-a": 1, "x-opt-b": 3, "x-opt-c": 4}


@clause("3.5.3:default-outcome-lost")
@pytest.mark.parametrize(
    ("default", "attempts"), [(ACCEPTED, 1), (Released(), 0), (Modified(), 0), (Modified(True), 1)]
)
def test_what_a_receiver_left_without_an_outcome_has_the_default_outcome(default: Any, attempts: int) -> None:
    node = Node()
    sender, receiver = node.peer("sender"), node.peer("receiver")
    sender.sender("q")
    sender.deliver(encode_message("one"))
    receiver.receiver(Source("q", default_outcome=default))
    assert len(receiver.transfers()) == 1
    receiver.cut()
    other = node.peer("other")
    other.receiver("q")
    assert [Sections(payload).header.delivery_count for _, payload in other.transfers()] == [attempts]


@clause("3.5.3:default-outcome", "2.7.6:settled-without-state")
@pytest.mark.parametrize(
    ("default", "stored", "attempts"), [(None, 1, 0), (ACCEPTED, 0, 0), (Released(), 1, 0), (Modified(True), 1, 1)]
)
def test_what_is_settled_without_a_state_has_the_default_outcome(default: Any, stored: int, attempts: int) -> None:
    node = Node()
    receiver, numbers = lent(node, "one", "two")
    assert len(numbers) == 2
    receiver.cut()
    again = node.peer("again")
    again.receiver(Source("q", default_outcome=default))
    first, second = [transfer.delivery_id for transfer, _ in again.transfers()]
    again.grant(0, count=2)
    again.settle(first)
    again.settle(second)
    assert node.stored("q") == 2 * stored
    other = node.peer("other")
    other.receiver("q")
    counts = [Sections(payload).header.delivery_count for _, payload in other.transfers()]
    assert counts == [1 + attempts] * (2 * stored), "one failed when the first connection was lost"
