"""3.5 and 2.6.3: sources and targets, and the nodes that are made for them."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, Rejected, Released
from enmasse.message.sections import Properties, Sections, encode_message
from enmasse.message.types import Described, Symbol, UInt, ULong
from enmasse.node.management.entity_fields import SPACE_TYPE
from enmasse.wire.amqp.performatives import Attach, Detach, Disposition, Flow, Source, Target, Transfer
from tests.conformance.clause_list import clause
from tests.conformance.node_scene import Node, NodePeer, message
from tests.conformance.server_scene import condition_of

SELECTOR = Symbol("apache.org:selector-filter:string")


def refused(peer: NodePeer, attach: Attach) -> str | None:
    """The condition with which the node refuses a link."""
    peer.say(attach)
    answer, *_, detach = [frame.performative for frame in peer.hear() if frame.performative is not None]
    assert isinstance(answer, Attach)
    assert (answer.target if answer.role else answer.source) is None
    assert isinstance(detach, Detach)
    assert detach.closed
    return condition_of(detach)


def from_source(source: Source | None) -> Attach:
    return Attach("out", 1, True, source=source, target=Target())


def to_target(target: Target | None) -> Attach:
    return Attach("in", 0, False, source=Source(), target=target, initial_delivery_count=0)


@clause("2.6.3:not-found", "2.6.3:refused", "2.8.15:not-found")
def test_an_address_that_is_not_there_is_not_found() -> None:
    assert refused(Node().peer(), from_source(Source("nowhere"))) == "amqp:not-found"
    assert refused(Node().peer(), to_target(Target("nowhere"))) == "amqp:not-found"


@clause("3.2.15:kept", "3.5:address-any", "2.8.15:invalid-field")
@pytest.mark.parametrize("address", [UInt(7), b"q", ["q"]])
def test_an_address_is_a_string(address: Any) -> None:
    assert refused(Node().peer(), from_source(Source(address))) == "amqp:invalid-field"
    assert refused(Node().peer(), to_target(Target(address))) == "amqp:invalid-field"


@clause("3.5:null-source", "2.6.3:refused")
def test_a_receiver_says_where_from() -> None:
    assert refused(Node().peer(), from_source(Source())) == "amqp:invalid-field"
    assert refused(Node().peer(), from_source(None)) == "amqp:not-found"
    assert refused(Node().peer(), to_target(None)) == "amqp:invalid-field"


@clause("3.5:null-target")
@pytest.mark.parametrize("address", [None, ""])
def test_a_null_target_is_the_anonymous_terminus(address: str | None) -> None:
    peer = Node().peer()
    answer = peer.sender(Target(address))
    assert isinstance(answer.target, Target)
    assert peer.deliver(encode_message("m", properties=Properties(to="q"))) == ACCEPTED


@clause("2.6.3:terminus-told")
def test_both_termini_are_told_as_they_are() -> None:
    peer = Node().peer()
    sent = peer.sender("q", source=Source("mine"))
    assert isinstance(sent.target, Target)
    assert sent.source is not None
    assert (sent.source.address, sent.target.address) == ("mine", "q")
    received = peer.receiver("q", target=Target("mine"))
    assert received.source is not None
    assert isinstance(received.target, Target)
    assert (received.source.address, received.target.address) == ("q", "mine")


@clause("2.7.3:max-message-size")
def test_the_largest_message_is_told_where_messages_are_held() -> None:
    size = Node().peer().sender("q").max_message_size
    assert size is not None
    assert size >= 1 << 20


@clause("2.8.2:settled", "2.8.2:unsettled", "2.7.3:modes")
@pytest.mark.parametrize(("asked", "settled"), [(0, False), (1, True), (2, False)])
def test_a_receiver_has_settled_or_unsettled_deliveries_as_it_asks(asked: int, settled: bool) -> None:
    node = Node()
    peer, sender = node.peer("receiver"), node.peer("sender")
    assert peer.receiver("q", snd_settle_mode=asked).snd_settle_mode == asked
    sender.sender("q")
    sender.deliver(message())
    ((transfer, _),) = peer.transfers()
    assert bool(transfer.settled) is settled
    assert node.stored("q") == (0 if settled else 1)


@clause("2.8.2:unsettled")
@pytest.mark.parametrize(
    ("address", "is_settled"), [("q", False), ("t", False), ("s", False), ("a", True), ("m", True)]
)
def test_what_its_sender_settled_comes_settled_from_direct_addresses_only(address: str, is_settled: bool) -> None:
    node = Node()
    peer, sender = node.peer("receiver"), node.peer("sender")
    peer.receiver(address, snd_settle_mode=0)
    sender.sender(address)
    sender.deliver(message(), settled=True)
    ((transfer, _),) = peer.transfers()
    assert bool(transfer.settled) is is_settled


@clause("2.8.18:detach-forced")
def test_links_of_a_deleted_address_are_detached_with_the_reason() -> None:
    node = Node()
    peer = node.peer()
    peer.receiver("r")
    peer.hear()
    node.delete("r")
    detach = peer.hear_one(Detach)
    assert condition_of(detach) == "amqp:resource-deleted"
    assert detach.closed


# 3.5.1 and 3.5.8 Filters


@clause("3.5.1:told", "3.5.1:described", "3.5.8:map", "3.5.8:null")
def test_the_filters_in_effect_are_told_and_null_is_none() -> None:
    node = Node()
    peer, sender = node.peer("receiver"), node.peer("sender")
    known = Described(SELECTOR, "colour = 'red'")
    filters = {Symbol("mine"): known, Symbol("odd"): None}
    answer = peer.receiver(Source("q", filter=filters))
    assert answer.source is not None
    assert answer.source.filter == {"mine": known}
    sender.sender("q")
    for colour in ("red", "blue", "red"):
        sender.deliver(encode_message(colour, application_properties={"colour": colour}))
    assert peer.bodies() == ["red", "red"]


@clause("3.5.1:described")
def test_a_filter_may_be_described_by_its_number() -> None:
    peer = Node().peer()
    found = {Symbol("f"): Described(ULong(0x0000468C00000004), "a = 1")}
    answer = peer.receiver(Source("q", filter=found))
    assert answer.source is not None
    assert answer.source.filter == found


@clause("3.5.1:unknown", "3.5.1:described", "2.8.15:not-implemented")
@pytest.mark.parametrize("address", ["q", "t", "s", "a", "m"])
@pytest.mark.parametrize("key", ["odd", "enmasse:start", SELECTOR])
def test_a_filter_that_is_not_known_by_its_descriptor_refuses_the_link(address: str, key: str) -> None:
    peer = Node().peer()
    source = Source(address, filter={Symbol(key): Described(Symbol("example:odd"), 1)})
    peer.say(from_source(source))
    detach = peer.hear_one(Detach)
    assert condition_of(detach) == "amqp:not-implemented"
    assert "'example:odd'" in str(detach.error)
    peer.receiver(address, name="sound", handle=2)
    assert peer.hear_all(Detach) == []


@clause("3.5.8:map")
def test_a_filter_that_is_there_twice_refuses_the_link() -> None:
    twice = {Symbol(key): Described(SELECTOR, "a = 1") for key in ("one", "two")}
    assert refused(Node().peer(), from_source(Source("q", filter=twice))) == "amqp:invalid-field"


@clause("3.5.1:malformed")
@pytest.mark.parametrize("value", ["colour = ", 7])
def test_a_filter_that_cannot_be_read_refuses_the_link(value: Any) -> None:
    source = Source("q", filter={Symbol("f"): Described(SELECTOR, value)})
    assert refused(Node().peer(), from_source(source)) == "amqp:invalid-field"


# 3.5.2 Distribution modes


@clause("3.5.2:move")
def test_moved_messages_go_to_one_receiver_each() -> None:
    node = Node()
    one, two, sender = node.peer("one"), node.peer("two"), node.peer("sender")
    for peer in (one, two):
        answer = peer.receiver(Source("q", distribution_mode=Symbol("move")))
        assert answer.source is not None
        assert answer.source.distribution_mode == "move"
    sender.sender("q")
    for number in range(6):
        sender.deliver(message(number))
    assert sorted(one.bodies() + two.bodies()) == list(range(6))


@clause("3.5.2:copy")
def test_copied_messages_stay() -> None:
    node = Node()
    one, two, sender = node.peer("one"), node.peer("two"), node.peer("sender")
    sender.sender("q")
    for number in range(3):
        sender.deliver(message(number))
    for peer in (one, two):
        answer = peer.receiver(Source("q", distribution_mode=Symbol("copy")))
        assert answer.source is not None
        assert answer.source.distribution_mode == "copy"
        found = peer.transfers()
        assert [Sections(payload).body for _, payload in found] == [0, 1, 2]
        for transfer, _ in found:
            peer.settle(transfer.delivery_id, ACCEPTED)
    assert node.stored("q") == 3


# 3.5.3 and 3.5.4


@clause("3.5.3:outcomes", "3.5.3:default-outcome")
def test_the_outcomes_in_effect_are_told() -> None:
    outcomes = (Symbol("amqp:accepted:list"), Symbol("amqp:released:list"))
    answer = Node().peer().receiver(Source("q", outcomes=outcomes, default_outcome=Released()))
    assert answer.source is not None
    assert answer.source.outcomes == outcomes
    assert answer.source.default_outcome == Released()


@clause("3.5.3:dynamic", "3.5.3:dynamic-lifetime", "3.5.9:lifetime", "3.5.10:gone")
def test_a_dynamic_source_lives_as_long_as_its_link() -> None:
    node = Node()
    peer, sender = node.peer("receiver"), node.peer("sender")
    answer = peer.receiver(Source(dynamic=True))
    assert answer.source is not None
    assert answer.source.dynamic
    name = answer.source.address
    assert name in node.names
    assert answer.source.dynamic_node_properties is not None
    assert answer.source.dynamic_node_properties["lifetime-policy"].descriptor == 0x2B
    sender.sender(name)
    sender.hear()
    sender.send(message("reply"))
    assert peer.bodies() == ["reply"]
    peer.say(Detach(1, closed=True))
    peer.hear()
    assert name not in node.names


@clause("3.5.4:dynamic", "3.5.10:gone")
def test_a_dynamic_target_goes_with_its_container() -> None:
    node = Node()
    peer = node.peer()
    answer = peer.sender(Target(dynamic=True))
    assert isinstance(answer.target, Target)
    assert answer.target.dynamic
    assert answer.target.address in node.names
    peer.cut()
    assert answer.target.address not in node.names


def dynamic(policy: int, **fields: Any) -> Source:
    properties = {Symbol("lifetime-policy"): Described(ULong(policy), [])}
    return Source(
        dynamic=True, dynamic_node_properties=properties, capabilities=(Symbol("temporary-queue"),), **fields
    )


def made(peer: NodePeer, policy: int) -> str:
    answer = peer.receiver(dynamic(policy))
    assert answer.source is not None
    properties = answer.source.dynamic_node_properties
    assert properties is not None
    assert properties["lifetime-policy"].descriptor == policy
    return str(answer.source.address)


@clause("3.5.11:gone", "3.5.9:lifetime")
def test_delete_on_no_links_waits_for_the_last_link() -> None:
    node = Node()
    peer, other = node.peer("one"), node.peer("two")
    name = made(peer, 0x2C)
    other.receiver(name)
    other.hear()
    peer.cut()
    node.harness.advance(5)
    assert name in node.names
    other.cut()
    node.harness.advance(5)
    assert name not in node.names


@clause("3.5.12:gone", "3.5.9:lifetime")
def test_delete_on_no_messages_waits_for_the_last_message() -> None:
    node = Node()
    peer, other = node.peer("one"), node.peer("two")
    name = made(peer, 0x2D)
    other.sender(name)
    other.deliver(message())
    peer.cut()
    other.cut()
    node.harness.advance(5)
    assert name in node.names
    reader = node.peer("reader")
    reader.receiver(name)
    ((transfer, _),) = reader.transfers()
    reader.settle(transfer.delivery_id, ACCEPTED)
    node.harness.advance(5)
    assert name not in node.names


@clause("3.5.13:gone", "3.5.9:lifetime")
def test_delete_on_no_links_or_messages_waits_for_both() -> None:
    node = Node()
    peer, other = node.peer("one"), node.peer("two")
    name = made(peer, 0x2E)
    other.sender(name)
    other.deliver(message())
    peer.cut()
    other.cut()
    node.harness.advance(5)
    assert name in node.names, "a message is left"
    reader = node.peer("reader")
    reader.receiver(name)
    ((transfer, _),) = reader.transfers()
    reader.settle(transfer.delivery_id, ACCEPTED)
    node.harness.advance(5)
    assert name in node.names, "a link is left"
    reader.cut()
    node.harness.advance(5)
    assert name not in node.names


@clause("3.5.3:dynamic", "3.5.4:dynamic", "2.8.15:invalid-field")
def test_a_dynamic_terminus_has_no_address_of_its_own() -> None:
    assert refused(Node().peer(), from_source(Source("mine", dynamic=True))) == "amqp:invalid-field"
    assert refused(Node().peer(), to_target(Target("mine", dynamic=True))) == "amqp:invalid-field"


@clause("3.5.5:configuration", "3.5.3:capabilities")
def test_a_durable_source_on_a_topic_keeps_what_is_sent_meanwhile() -> None:
    node = Node()
    made_of = Source("t", durable=1, expiry_policy=Symbol("never"))
    peer, sender = node.peer("subscriber"), node.peer("sender")
    answer = peer.receiver(made_of)
    assert answer.source is not None
    assert (answer.source.durable, answer.source.expiry_policy) == (1, "never")
    peer.hear()
    peer.cut()
    sender.sender("t")
    sender.deliver(encode_message("meanwhile"))
    again = node.peer("subscriber")
    again.receiver(made_of)
    assert again.bodies() == ["meanwhile"]


@clause("2.6.7:drain", "2.6.7:drain-empty", "2.6.8:drain-get")
def test_an_address_is_drained() -> None:
    node = Node()
    peer, sender = node.peer("receiver"), node.peer("sender")
    sender.sender("q")
    sender.deliver(message("one"))
    peer.receiver("q", 0)
    peer.grant(5, drain=True)
    frames = [frame.performative for frame in peer.hear()]
    names = [type(found).__name__ for found in frames]
    assert names == ["Transfer", "Flow"]
    flow = frames[-1]
    assert isinstance(flow, Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (5, 0, True)


@clause("2.6.3:terminus-told", "3.5.4:capabilities", "2.7.3:capabilities")
def test_a_capability_that_the_target_has_is_offered() -> None:
    peer = Node().peer()
    answer = peer.sender(Target("q", capabilities=(Symbol("queue"),)))
    assert isinstance(answer.target, Target)
    assert answer.target.capabilities == ("queue",)


@clause("2.7.1:hostname")
def test_the_host_that_a_client_wants_is_its_space() -> None:
    node = Node()
    node.entities.create(SPACE_TYPE, "ns/factory", {}, node.answers.append)
    node.harness.commit()
    assert node.answers[-1] is None
    shop, factory = node.peer("a", hostname="shop.ns"), node.peer("b", hostname="factory.ns")
    assert shop.receiver("q").source is not None
    assert refused(factory, from_source(Source("q"))) == "amqp:not-found"


@clause("2.7.3:max-message-size")
def test_a_message_that_one_receiver_cannot_take_waits_for_another() -> None:
    node = Node()
    small, sender = node.peer("small"), node.peer("sender")
    small.receiver("q", max_message_size=200)
    sender.sender("q")
    for body in ("x" * 300, "short", "y" * 300):
        assert sender.deliver(message(body)) == ACCEPTED
    assert small.bodies() == ["short"]
    assert node.stored("q") == 3
    large = node.peer("large")
    large.receiver("q")
    assert large.bodies() == ["x" * 300, "y" * 300]


@clause("2.7.3:max-message-size", "2.8.18:size")
def test_a_message_that_no_receiver_can_take_is_rejected_on_a_direct_address() -> None:
    node = Node()
    small, sender = node.peer("small"), node.peer("sender")
    small.receiver("a", max_message_size=200)
    small.hear()
    sender.sender("a")
    assert sender.deliver(message("x" * 300)) is None
    assert small.transfers() == []
    outcome = sender.hear_one(Disposition).state
    assert isinstance(outcome, Rejected)
    assert condition_of(outcome) == "amqp:link:message-size-exceeded"
    assert sender.deliver(message("short")) is None
    assert small.bodies() == ["short"]


@clause("2.7.3:max-message-size")
def test_a_volatile_subscriber_misses_what_it_cannot_take() -> None:
    node = Node()
    small, sender = node.peer("small"), node.peer("sender")
    small.receiver("t", max_message_size=200)
    small.hear()
    sender.sender("t")
    for body in ("x" * 300, "short"):
        assert sender.deliver(message(body)) == ACCEPTED
    assert small.bodies() == ["short"]


@clause("2.7.3:max-message-size", "2.6.14:abort")
@pytest.mark.parametrize("settled", [True, False])
def test_a_message_that_is_passed_on_while_it_comes_ends_where_the_receivers_size_does(settled: bool) -> None:
    node = Node()
    small, sender = node.peer("small"), node.peer("sender")
    small.receiver("a", max_message_size=3 << 20)
    small.hear()
    sender.sender("a")
    sender.hear()
    part = bytes(1 << 19)
    number = sender.send(message(b"")[:-2] + b"\xb0\x00\x40\x00\x00" + part, more=True, settled=settled)
    for _ in range(7):
        sender.say(Transfer(0, more=True), payload=part)
        small.hear()
    sender.say(Transfer(0), payload=b"")
    found = [frame.performative for frame in small.hear()]
    assert found == []
    told = sender.hear_all(Disposition)
    if settled:
        assert told == []
    else:
        assert [(found.first, condition_of(found.state)) for found in told] == [
            (number, "amqp:link:message-size-exceeded")
        ]
    sender.deliver(message("next"))
    assert small.bodies() == ["next"]


@clause("3.5.6:invalid", "2.8.15:invalid-field")
@pytest.mark.parametrize("fields", [{"expiry_policy": Symbol("whenever")}, {"durable": 3}])
def test_a_policy_that_does_not_exist_is_refused(fields: dict[str, Any]) -> None:
    assert refused(Node().peer(), from_source(Source("q", **fields))) == "amqp:invalid-field"
    assert refused(Node().peer(), to_target(Target("q", **fields))) == "amqp:invalid-field"


@clause("3.5.7:unknown")
def test_a_mode_that_is_not_known_is_not_told_to_be_in_effect() -> None:
    node = Node()
    answer = node.peer().receiver(Source("q", distribution_mode=Symbol("borrow")))
    assert answer.source is not None
    assert answer.source.distribution_mode in (None, "move")
