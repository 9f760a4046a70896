"""Spaces: how a name finds an address, and senders that name one in each message."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, Rejected
from enmasse.message.sections import Header, Properties, encode_message
from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.direct.anycast import Anycast
from enmasse.messaging.direct.multicast import Multicast
from enmasse.messaging.errors import AttachError
from enmasse.messaging.facts import PLAIN
from enmasse.messaging.patterns import parse
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.queues.subscription import Subscription
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.retained_log import decode_value
from enmasse.messaging.space import (
    ANONYMOUS_CREDIT,
    KNOWN_TARGETS,
    MAX_PENDING,
    MAX_REASON,
    AnonymousTerminus,
    Service,
    Space,
)
from enmasse.messaging.storage import Table
from enmasse.messaging.streams.stream import Stream
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort, MemoryProducerPort


class Scene:
    def __init__(self) -> None:
        self.harness = CoreHarness()
        ids = count(1)
        self.space = Space(self.harness.core, "ns/shop", lambda: f"id{next(ids)}")
        self.logs = count(1)

    def add(self, kind: type[Address], name: str, **options: Any) -> Any:
        numbered = {"log_id": next(self.logs)} if kind in (Queue, Stream, Subscription, Topic) else {}
        made = kind(self.harness.core, name, **numbered, **options)
        self.space.add(made)
        return made

    def anonymous(self) -> MemoryProducerPort:
        port = MemoryProducerPort()
        port.sink = AnonymousTerminus(self.space, port)
        return port

    def receiver(self, name: str, credit: int = 10) -> MemoryConsumerPort:
        port = self.harness.receiver(self.space.find(name), credit)
        self.harness.turn()
        return port


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize("name", ["a", "a/b", "/a", "a//b", "news", "+/b", "a::b"])
def test_the_topic_of_all_names_has_those_that_no_other_address_has(scene: Scene, name: str) -> None:
    scene.add(Topic, "news/sport")
    root = scene.add(Topic, "#")
    assert scene.space.find(name) is root
    assert scene.space.find("news/sport/chess").name == "news/sport"


@pytest.mark.parametrize("name", ["$SYS", "$SYS/broker/uptime", "news::reader"])
def test_the_topic_of_all_names_has_none_of_the_service_s_nor_a_subscription_that_is_not_there(
    scene: Scene, name: str
) -> None:
    scene.add(Topic, "news")
    scene.add(Topic, "#")
    with pytest.raises(AttachError, match="has no address"):
        scene.space.find(name)


@pytest.mark.parametrize("name", ["$aws/things/x", "$", "$SYSTEM/x"])
def test_a_space_may_take_names_with_a_dollar_sign_that_are_not_the_service_s(scene: Scene, name: str) -> None:
    root = scene.add(Topic, "#")
    with pytest.raises(AttachError, match="has no address"):
        scene.space.find(name)
    scene.space.takes_dollar_names = True
    assert scene.space.find(name) is root
    for own in ("$SYS/broker/uptime", "$share/g/x", "$dynamic/x", "$management", "$addresses", "$lwt"):
        with pytest.raises(AttachError, match="has no address"):
            scene.space.find(own)


def test_only_a_topic_can_have_all_names(scene: Scene) -> None:
    scene.add(Queue, "#")
    with pytest.raises(AttachError, match="has no address"):
        scene.space.find("a")


@pytest.mark.parametrize("name", ["#", "+", "a/#", "a/*/b"])
def test_a_sender_names_no_pattern_of_the_topic_of_all_names(scene: Scene, name: str) -> None:
    scene.add(Topic, "#")
    with pytest.raises(AttachError, match="is a pattern"):
        scene.space.find_target(name)


def to(name: str | None, body: bytes = b"x", *, durable: bool = False) -> bytes:
    properties = None if name is None else Properties(to=name)
    return encode_message(body, properties=properties, header=Header(durable=durable) if durable else None)


def condition(state: Any) -> str:
    assert isinstance(state, Rejected)
    assert state.error is not None
    return state.error.condition


# Names


def test_an_address_is_found_by_its_name(scene: Scene) -> None:
    orders = scene.add(Anycast, "orders")
    nested = scene.add(Queue, "orders/eu")
    assert scene.space.find("orders") is orders
    assert scene.space.find("orders/eu") is nested


@pytest.mark.parametrize(
    "name", ["", "Orders", "orders/", "orders/us", "/orders", "a::b", "::", "orders::", "::orders"]
)
def test_a_name_that_nothing_has_is_not_found(scene: Scene, name: str) -> None:
    scene.add(Anycast, "orders")
    with pytest.raises(AttachError, match="space 'ns/shop' has no address") as refusal:
        scene.space.find(name)
    assert refusal.value.condition == "amqp:not-found"


@pytest.mark.parametrize("name", ["news", "news/sport", "news/sport/chess", "news/*", "news/#", "news/"])
def test_names_and_patterns_below_a_topic_find_it(scene: Scene, name: str) -> None:
    news = scene.add(Topic, "news")
    assert scene.space.find(name) is news


def test_the_longest_name_wins(scene: Scene) -> None:
    scene.add(Topic, "news")
    sport = scene.add(Topic, "news/sport")
    queue = scene.add(Queue, "news/sport/results")
    assert scene.space.find("news/sport/chess") is sport
    assert scene.space.find("news/sport/results") is queue
    assert scene.space.find("news/sport/results/today") is sport


def test_a_subscription_is_found_by_its_name_and_through_its_topic(scene: Scene) -> None:
    scene.add(Topic, "news")
    audit = scene.add(Subscription, "audit", topic="news", pattern=parse("news/#"))
    assert scene.space.find("audit") is audit
    assert scene.space.find("news::audit") is audit


@pytest.mark.parametrize("name", ["other::audit", "news::orders", "news::missing"])
def test_a_subscription_is_not_found_through_another_topic(scene: Scene, name: str) -> None:
    scene.add(Topic, "news"), scene.add(Topic, "other"), scene.add(Queue, "orders")
    scene.add(Subscription, "audit", topic="news", pattern=parse("news/#"))
    with pytest.raises(AttachError):
        scene.space.find(name)


@pytest.mark.parametrize("name", ["news::missing", "nowhere::reader", "news/sport::reader", "a/b::c/d"])
def test_a_receiver_of_a_subscription_that_is_not_there_has_no_topic_above_in_its_place(
    scene: Scene, name: str
) -> None:
    scene.add(Topic, "#"), scene.add(Topic, "news")
    with pytest.raises(AttachError, match=r"no (address|subscription)") as refusal:
        scene.space.find_source(name)
    assert refusal.value.condition == "amqp:not-found"


def test_a_topic_may_have_two_colons_in_its_own_name(scene: Scene) -> None:
    odd = scene.add(Topic, "a::b")
    assert scene.space.find_source("a::b") is scene.space.find_source("a::b/c") is odd


def test_nothing_of_another_space_is_found() -> None:
    ours, theirs = Scene(), Scene()
    theirs.add(Anycast, "orders")
    with pytest.raises(AttachError):
        ours.space.find("orders")


# Coming and going


def test_an_address_takes_the_retained_values_of_its_names_from_the_topics_above(scene: Scene) -> None:
    root, hall = scene.add(Topic, "#"), scene.add(Topic, "hall")
    for name in ("door", "hall", "hall/bell", "hall/attic", "hall/attic/t", "hall/attics", "shed/t"):
        home = hall if name.startswith("hall") else root
        home.retained.set(name, name.encode(), PLAIN)
    attic, shed, door = scene.add(Topic, "hall/attic"), scene.add(Topic, "shed"), scene.add(Multicast, "door")
    scene.harness.turn()
    scene.harness.commit()
    assert [sorted(one.retained.values) for one in (root, hall, attic, shed, door)] == [
        [], ["hall", "hall/attics", "hall/bell"], ["hall/attic", "hall/attic/t"], ["shed/t"], ["door"]
    ]  # fmt: skip
    stored = {
        (int.from_bytes(key[:4], "big"), decode_value(record)[1:])
        for key, record in scene.harness.storage.scan_all(Table.RETAINED)
    }
    assert {name for log, (name, _) in stored if log == attic.log.log_id} == {"hall/attic", "hall/attic/t"}
    assert {name for log, (name, _) in stored if log == hall.log.log_id} == {"hall", "hall/attics", "hall/bell"}


def test_removing_an_address_detaches_its_links(scene: Scene) -> None:
    orders = scene.add(Anycast, "orders")
    receiver = scene.receiver("orders")
    sender = scene.harness.sender(orders)
    scene.space.remove(orders)
    for port in (receiver, sender):
        assert port.is_detached
        assert (port.error.condition, "'orders'" in port.error.description) == ("amqp:resource-deleted", True)
    with pytest.raises(AttachError):
        scene.space.find("orders")


def test_removing_an_address_leaves_another_that_took_its_name(scene: Scene) -> None:
    old = scene.add(Anycast, "orders")
    new = scene.add(Queue, "orders")
    scene.space.remove(old)
    assert scene.space.find("orders") is new


def test_closing_a_space_removes_everything(scene: Scene) -> None:
    scene.add(Anycast, "a"), scene.add(Topic, "t"), scene.add(Queue, "q")
    scene.add(Subscription, "s", topic="t", pattern=parse("t/#"))
    receivers = [scene.receiver(name) for name in ("a", "t", "q", "s")]
    scene.space.close()
    assert scene.space.addresses == {}
    assert all(receiver.is_detached for receiver in receivers)


def test_dynamic_addresses_have_names_of_their_own(scene: Scene) -> None:
    first, second = scene.space.add_dynamic(), scene.space.add_dynamic()
    assert (first.name, second.name) == ("$dynamic/id1", "$dynamic/id2")
    assert scene.space.find(first.name) is first
    receiver = scene.receiver(second.name)
    scene.anonymous().send(to(second.name, b"answer"))
    assert len(receiver.arrivals) == 1


# The anonymous terminus


def test_an_anonymous_sender_has_a_small_window_that_is_kept_filled(scene: Scene) -> None:
    port = scene.anonymous()
    assert port.credit == ANONYMOUS_CREDIT
    for _ in range(3 * ANONYMOUS_CREDIT):
        port.send(to("nowhere"), settled=True)
        assert port.credit > 0
    assert max(port.grants) == ANONYMOUS_CREDIT


def test_each_message_finds_its_own_address(scene: Scene) -> None:
    scene.add(Anycast, "a"), scene.add(Multicast, "m"), scene.add(Queue, "q"), scene.add(Topic, "t")
    scene.add(Stream, "s", uid="u")
    scene.add(Subscription, "sub", topic="t", pattern=parse("t/#"))
    receivers = {name: scene.receiver(name) for name in ("a", "m", "q", "sub", "s")}
    port = scene.anonymous()
    for name in ("a", "m", "q", "t/below", "s"):
        port.send(to(name, durable=True))
    scene.harness.commit()
    for receiver in receivers.values():
        assert len(receiver.arrivals) == 1
        receiver.accept()
    assert port.states == dict.fromkeys(range(5), ACCEPTED)


@pytest.mark.parametrize("kind", [Anycast, Multicast])
def test_a_delivery_takes_a_receivers_credit_on_arrival_or_is_released(scene: Scene, kind: type[Address]) -> None:
    scene.add(kind, "direct")
    port = scene.anonymous()
    without_receiver = port.send(to("direct"))
    receiver = scene.receiver("direct", 1)
    with_credit = port.send(to("direct"))
    without_credit = port.send(to("direct"))
    receiver.accept()
    assert port.states == {without_receiver: RELEASED, with_credit: ACCEPTED, without_credit: RELEASED}


def test_credit_that_was_promised_to_others_is_not_taken(scene: Scene) -> None:
    orders = scene.add(Anycast, "orders")
    scene.receiver("orders", 5)
    sender = scene.harness.sender(orders)
    scene.harness.turn()
    assert sender.credit == 5
    port = scene.anonymous()
    port.send(to("orders"))
    assert port.outcomes == [(0, RELEASED)]
    assert sender.credit == 5


def test_a_stored_address_without_room_releases(scene: Scene) -> None:
    scene.add(Queue, "q", options=AddressSettings(max_bytes=100))
    port = scene.anonymous()
    first = port.send(to("q", b"x" * 90, durable=True))
    assert port.states[first] is RELEASED


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (to("missing"), "amqp:not-found"),
        (to(None), "amqp:precondition-failed"),
        (to(""), "amqp:precondition-failed"),
        (to("sub"), "amqp:not-allowed"),
        (b"\x00\x53\x73garbage", "amqp:decode-error"),
    ],
    ids=["missing", "none", "empty", "subscription", "garbage"],
)
@pytest.mark.parametrize("settled", [False, True])
def test_a_message_without_an_address_to_go_to_is_rejected(
    scene: Scene, payload: bytes, expected: str, settled: bool
) -> None:
    scene.add(Topic, "t")
    scene.add(Subscription, "sub", topic="t", pattern=parse("t/#"))
    port = scene.anonymous()
    port.send(payload, settled=settled)
    assert [condition(state) for _, state in port.outcomes] == ([] if settled else [expected])


def test_an_address_that_comes_or_goes_is_noticed(scene: Scene) -> None:
    port = scene.anonymous()
    port.send(to("orders"))
    orders = scene.add(Anycast, "orders")
    receiver = scene.receiver("orders")
    port.send(to("orders"))
    scene.space.remove(orders)
    port.send(to("orders"))
    queue = scene.add(Queue, "orders")
    port.send(to("orders"))
    assert len(receiver.arrivals) == 1
    assert queue.depth == 1
    assert [condition(port.states[index]) for index in (0, 2)] == ["amqp:not-found"] * 2


def test_many_addresses_can_be_named_and_answers_still_come(scene: Scene) -> None:
    port = scene.anonymous()
    names = [f"q{number}" for number in range(KNOWN_TARGETS + 20)]
    for name in names:
        scene.add(Queue, name)
    for name in names:
        port.send(to(name, durable=True))
    scene.harness.commit()
    assert [state for _, state in port.outcomes] == [ACCEPTED] * len(names)


def test_after_an_anonymous_sender_has_gone_nobody_is_told(scene: Scene) -> None:
    scene.add(Queue, "q"), scene.add(Anycast, "a")
    receiver = scene.receiver("a")
    port = scene.anonymous()
    port.send(to("q", durable=True))
    port.send(to("a"))
    port.leave()
    receiver.accept()
    scene.harness.commit()
    assert port.outcomes == []
    assert scene.harness.faults == []


# Services


def test_a_service_takes_requests_and_accepts_them(scene: Scene) -> None:
    asked: list[bytes] = []
    service = Service(scene.harness.core, "$management", asked.append)
    scene.space.add(service)
    sender = scene.harness.sender(service)
    for number in range(2 * ANONYMOUS_CREDIT):
        sender.send(b"%d" % number, settled=number % 2 == 1)
    scene.anonymous().send(to("$management", b"by name"))
    assert asked[:-1] == [b"%d" % number for number in range(2 * ANONYMOUS_CREDIT)]
    assert len(asked) == 2 * ANONYMOUS_CREDIT + 1
    assert [state for _, state in sender.outcomes] == [ACCEPTED] * ANONYMOUS_CREDIT


def test_a_service_gives_no_messages_to_receivers(scene: Scene) -> None:
    service = Service(scene.harness.core, "$management", lambda _payload: None)
    with pytest.raises(AttachError, match="gives no messages to receivers") as refusal:
        service.attach_consumer(MemoryConsumerPort(), AttachOptions())
    assert refusal.value.condition == "amqp:not-allowed"


def test_an_address_of_no_kind_takes_no_links(scene: Scene) -> None:
    nothing = Address(scene.harness.core, "x")
    with pytest.raises(AttachError):
        nothing.attach_producer(MemoryProducerPort(), "x", AttachOptions())
    scene.space.add(nothing)
    port = scene.anonymous()
    port.send(to("x"))
    assert condition(port.states[0]) == "amqp:not-allowed"


def test_a_message_that_names_a_pattern_is_rejected_unless_an_address_is_called_so() -> None:
    scene = Scene()
    scene.add(Topic, "news")
    scene.add(Topic, "a/+")
    for name in ("news", "news/c++", "a/+", "a/+/b"):
        assert scene.space.find_target(name).kind == "topic"
    for name in ("news/+", "news/*/x", "news/#", "a/+/#"):
        assert scene.space.find(name).kind == "topic"
        with pytest.raises(AttachError, match="is a pattern") as refused:
            scene.space.find_target(name)
        assert refused.value.condition == "amqp:not-allowed"
    scene.add(Queue, "news/+")
    assert scene.space.find_target("news/+").kind == "queue"


def test_who_asks_for_an_address_that_waits_is_told_for_what_until_it_is_there() -> None:
    space = Space(CoreHarness().core, "ns/shop", lambda: "id")

    def said(name: str) -> str:
        with pytest.raises(AttachError) as refused:
            space.find(name)
        assert refused.value.condition == "amqp:not-found"
        return refused.value.description

    assert said("orders") == "space 'ns/shop' has no address 'orders'"
    space.wait_for("orders", "unknown address plan 'nope'")
    assert said("orders") == "space 'ns/shop' does not serve address 'orders' yet: unknown address plan 'nope'"
    # Of a connector it is the first word of all names behind it.
    assert said("orders//new").endswith("does not serve address 'orders//new' yet: unknown address plan 'nope'")
    space.declared("orders", "queue")
    assert said("orders") == "space 'ns/shop' has no address 'orders'"
    for number in range(MAX_PENDING + 1):
        space.wait_for(f"a{number}", "x" * 10 * MAX_REASON)
    assert (len(space.pending), len(space.pending["a0"])) == (MAX_PENDING, MAX_REASON)
    space.wait_for("a0", "")
    assert "a0" not in space.pending
