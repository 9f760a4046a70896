"""Dynamic addresses: how they are made, what keeps them, and when they are gone."""

from __future__ import annotations

from itertools import count

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, Rejected
from enmasse.message.sections import Properties, encode_message
from enmasse.messaging.dynamic import (
    ALL_QUEUES_BYTES,
    ALL_WAITING_BYTES,
    CHECK_S,
    MAX_DYNAMIC,
    MAX_WAITING,
    QUEUE_BYTES,
    DynamicRequest,
    Lifetime,
)
from enmasse.messaging.errors import AttachError
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.space import AnonymousTerminus, Space
from enmasse.testing.ports import CoreHarness, MemoryProducerPort


class Scene:
    """A space whose dynamic addresses get numbers for names."""

    def __init__(self) -> None:
        self.harness = CoreHarness()
        ids = count(1)
        self.space = Space(self.harness.core, "ns/shop", lambda: f"id{next(ids)}")

    def anonymous(self) -> MemoryProducerPort:
        port = MemoryProducerPort()
        port.sink = AnonymousTerminus(self.space, port)
        return port

    def is_there(self, name: str) -> bool:
        return name in self.space.addresses

    def left(self, name: str, *, is_creator: bool = False) -> None:
        """What the connection tells when a link has gone."""
        self.space.dynamic.left(name, is_creator=is_creator)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def to(name: str, body: bytes = b"x") -> bytes:
    return encode_message(body, properties=Properties(to=name))


def test_by_default_it_goes_with_the_link_that_it_was_made_for(scene: Scene) -> None:
    address = scene.space.add_dynamic()
    receiver, sender = scene.harness.receiver(address, 1), scene.harness.sender(address)
    sender.leave()
    scene.left(address.name)
    assert scene.is_there(address.name)
    scene.left(address.name, is_creator=True)
    assert not scene.is_there(address.name)
    assert receiver.error.condition == "amqp:resource-deleted"
    assert len(scene.space.dynamic) == 0


def test_it_may_live_as_long_as_any_link_is_attached(scene: Scene) -> None:
    address = scene.space.add_dynamic(DynamicRequest("queue", Lifetime.NO_LINKS))
    creator, other = scene.harness.sender(address), scene.harness.receiver(address, 1)
    scene.harness.turn()
    creator.send(to(address.name))
    creator.leave()
    scene.left(address.name, is_creator=True)
    assert scene.is_there(address.name)
    other.leave()
    scene.left(address.name)
    assert not scene.is_there(address.name)


def test_it_may_live_until_its_messages_are_gone_too(scene: Scene) -> None:
    address = scene.space.add_dynamic(DynamicRequest("queue", Lifetime.NO_MESSAGES))
    creator = scene.harness.sender(address)
    scene.harness.turn()
    creator.send(to(address.name))
    creator.leave()
    scene.left(address.name, is_creator=True)
    scene.harness.turn()
    receiver = scene.harness.receiver(address, 1)
    scene.harness.turn()
    scene.harness.advance(2 * CHECK_S)
    assert scene.is_there(address.name)
    receiver.accept()
    scene.harness.advance(2 * CHECK_S)
    assert not scene.is_there(address.name)
    assert receiver.is_detached


def test_it_may_live_until_neither_links_nor_messages_are_left(scene: Scene) -> None:
    address = scene.space.add_dynamic(DynamicRequest("queue", Lifetime.NO_LINKS_OR_MESSAGES))
    creator = scene.harness.sender(address)
    scene.harness.turn()
    creator.send(to(address.name))
    creator.leave()
    scene.left(address.name, is_creator=True)
    scene.harness.advance(2 * CHECK_S)
    assert scene.is_there(address.name)
    receiver = scene.harness.receiver(address, 1)
    scene.harness.turn()
    receiver.accept()
    scene.harness.advance(2 * CHECK_S)
    assert scene.is_there(address.name)
    receiver.leave()
    scene.left(address.name)
    assert not scene.is_there(address.name)


@pytest.mark.parametrize("lifetime", [Lifetime.NO_MESSAGES, Lifetime.NO_LINKS_OR_MESSAGES])
def test_without_messages_it_need_not_wait_for_any(scene: Scene, lifetime: Lifetime) -> None:
    address = scene.space.add_dynamic(DynamicRequest("queue", lifetime))
    scene.harness.sender(address).leave()
    scene.left(address.name, is_creator=True)
    assert not scene.is_there(address.name)


def test_a_temporary_topic_gives_everybody_a_copy_and_keeps_nothing(scene: Scene) -> None:
    topic = scene.space.add_dynamic(DynamicRequest("topic"))
    receivers = [scene.harness.receiver(topic, 1) for _ in range(2)]
    sender = scene.harness.sender(topic)
    scene.harness.turn()
    sender.send(to(topic.name))
    scene.harness.turn()
    assert [len(receiver.arrivals) for receiver in receivers] == [1, 1]
    with pytest.raises(AttachError, match="no durable subscriptions"):
        scene.harness.receiver(topic, 1, is_durable=True, name="for ever")


def test_a_topic_lives_by_its_subscribers_links_too(scene: Scene) -> None:
    topic = scene.space.add_dynamic(DynamicRequest("topic", Lifetime.NO_LINKS))
    creator, subscriber = scene.harness.sender(topic), scene.harness.receiver(topic, 1)
    creator.leave()
    scene.left(topic.name, is_creator=True)
    assert scene.is_there(topic.name)
    subscriber.leave()
    scene.left(topic.name)
    assert not scene.is_there(topic.name)


def test_replies_wait_for_a_receiver_that_is_short_of_credit(scene: Scene) -> None:
    address = scene.space.add_dynamic()
    receiver = scene.harness.receiver(address, 1)
    port = scene.anonymous()
    for number in range(3):
        port.send(to(address.name, b"%d" % number))
    assert len(receiver.arrivals) == 1
    receiver.grant(10)
    scene.harness.turn()
    receiver.accept(3)
    assert port.states == dict.fromkeys(range(3), ACCEPTED)


def test_a_settled_reply_waits_although_the_credit_of_its_link_was_called_in(scene: Scene) -> None:
    address = scene.space.add_dynamic()
    receiver = scene.harness.receiver(address, 1)
    port = scene.harness.sender(address)
    scene.harness.turn()
    assert port.credit == 1
    scene.anonymous().send(to(address.name, b"first"))
    scene.harness.turn()
    port.send(to(address.name, b"second"), settled=True)
    receiver.grant(1)
    scene.harness.turn()
    assert len(receiver.arrivals) == 2


def test_replies_that_wait_are_bounded(scene: Scene) -> None:
    address = scene.space.add_dynamic()
    scene.harness.receiver(address, 0)
    port = scene.anonymous()
    sent = [port.send(to(address.name)) for _ in range(MAX_WAITING + 1)]
    assert port.states == {sent[-1]: RELEASED}


def test_replies_are_released_when_their_receiver_is_gone(scene: Scene) -> None:
    address = scene.space.add_dynamic(DynamicRequest(lifetime=Lifetime.NO_LINKS))
    receiver = scene.harness.receiver(address, 0)
    port = scene.anonymous()
    waiting = port.send(to(address.name))
    receiver.leave()
    scene.harness.turn()
    late = port.send(to(address.name))
    assert port.states == {waiting: RELEASED, late: RELEASED}


def test_a_reply_to_an_address_that_is_gone_is_rejected(scene: Scene) -> None:
    address = scene.space.add_dynamic()
    scene.left(address.name, is_creator=True)
    port = scene.anonymous()
    sent = port.send(to(address.name))
    state = port.states[sent]
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "amqp:not-found"


def test_a_space_has_only_so_many(scene: Scene) -> None:
    addresses = [scene.space.add_dynamic() for _ in range(MAX_DYNAMIC)]
    with pytest.raises(AttachError) as refusal:
        scene.space.add_dynamic()
    assert refusal.value.condition == "amqp:resource-limit-exceeded"
    scene.left(addresses[0].name, is_creator=True)
    assert scene.space.add_dynamic()


def test_the_more_there_are_the_less_each_may_hold(scene: Scene) -> None:
    queue = scene.space.add_dynamic(DynamicRequest("queue"))
    assert isinstance(queue, Queue)
    assert queue.max_bytes == QUEUE_BYTES
    others = [scene.space.add_dynamic(DynamicRequest("queue")) for _ in range(999)]
    held = [address.max_bytes for address in (queue, *others) if isinstance(address, Queue)]
    assert sum(held) <= ALL_QUEUES_BYTES
    assert min(held) == max(held)
    replies = scene.space.add_dynamic()
    scene.harness.receiver(replies, 0)
    port = scene.anonymous()
    assert scene.space.dynamic.waiting_bytes * len(scene.space.dynamic) <= ALL_WAITING_BYTES
    fits = port.send(to(replies.name, b"x" * (scene.space.dynamic.waiting_bytes // 2)))
    too_much = port.send(to(replies.name, b"x" * scene.space.dynamic.waiting_bytes))
    assert port.states == {too_much: RELEASED}
    for address in others:
        scene.left(address.name, is_creator=True)
    assert queue.max_bytes == QUEUE_BYTES
    assert fits not in port.states


def test_what_is_no_dynamic_address_is_none_of_their_business(scene: Scene) -> None:
    scene.left("orders", is_creator=True)
    scene.left("orders")
