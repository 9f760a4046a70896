"""Large messages that are passed on while they come: at an anycast address, and between any two ends that can."""

from __future__ import annotations

from typing import Any, cast

import pytest

from enmasse.message.outcomes import ACCEPTED, Modified
from enmasse.message.sections import encode_message
from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import Consumer, ConsumerPort, Delivery, Producer, ProducerPort
from enmasse.messaging.direct.anycast import Anycast
from enmasse.messaging.direct.large import LARGE_BYTES, WAITING_BYTES, LargeDelivery, PassingConsumer, PassingProducer
from enmasse.testing.recorder import RecordingSink
from enmasse.wire.amqp.link import ReceivingLink
from tests.unit.node.test_node_binding import Client, Node

LARGE = encode_message(b"x" * (3 * LARGE_BYTES))


class StraightProducer(PassingProducer):
    """A sender's end whose messages are its receiver's."""

    __slots__ = ()

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Pass a message on."""
        consumer = self.address.consumers[0]
        consumer.deliveries += 1
        consumer.unsettled += 1
        delivery = Delivery(b"", self, delivery_id, settled, message_format)
        delivery.sink = consumer
        consumer.send(delivery, payload, False, message_format)

    def on_large(
        self, payload: bytes, delivery_id: int, settled: bool, message_format: int, is_crossed: bool
    ) -> LargeDelivery:
        """Pass a large message on while it comes."""
        self.large = LargeDelivery(payload, self, delivery_id, settled, message_format)
        consumer = self.address.consumers[0]
        assert isinstance(consumer, PassingConsumer)
        self.large.start(consumer)
        return self.large


class StraightConsumer(PassingConsumer):
    """A receiver's end, whose credit is the sender's."""

    __slots__ = ()

    def on_credit(self, gained: int, drain: bool) -> None:
        """Grant the same to the sender."""
        for producer in self.address.producers:
            producer.port.grant(self.port.credit)

    def on_outcome(self, delivery: Delivery, state: Any) -> None:
        """Give the sender the receiver's outcome."""
        self.unsettled -= 1
        if delivery.producer is not None:
            delivery.producer.settle(delivery.producer_id, state)


class Straight(Address):
    """An address of one sender and one receiver, with nothing between."""

    kind = "straight"
    passes_large = True
    backlog_bytes = 0
    room_bytes = WAITING_BYTES

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """Attach the sender."""
        port.grant(sum(consumer.port.credit for consumer in self.consumers))
        return self.add_producer(StraightProducer(self, port, target))

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach the receiver."""
        return self.add_consumer(StraightConsumer(self, port, options.presettle))

    def forget(self, delivery: Delivery) -> None:
        """Do nothing: no delivery waits here."""

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove the receiver, and give up what it was being sent."""
        assert isinstance(consumer, PassingConsumer)
        if consumer.large is not None:
            consumer.large.lost()
        super().remove_consumer(consumer)


class Scene:
    """Two clients of a node, of whom one has begun to send a large message to the other."""

    def __init__(self, kind: type[Address]) -> None:
        node = Node()
        space = node.entities.spaces["ns/shop"]
        self.address: Any = kind(space.core, "a")
        space.add(self.address)
        self.receiver = Client(node, None, None, container="receiver")
        self.sender = Client(node, None, None, container="sender")
        self.got = self.receiver.receiver("a", credit=10, answer=ACCEPTED)
        self.sink: RecordingSink = self.sender.sender("a")
        self.go()
        self.sent = self.sink.send(LARGE)
        # Most of it is on its way, which is stopped in the middle.
        self.sender.to_server.chunk_bytes = 64 << 10
        self.sender.to_server.collect()
        self.carry(32)

    def carry(self, chunks: int) -> None:
        self.sender.to_server.deliver(chunks)
        self.receive()

    def receive(self) -> None:
        self.receiver.go()
        # All that was put out is written.
        self.receiver.server.resume_output()

    def go(self) -> None:
        for _ in range(4):
            self.sender.go()
            self.receive()

    @property
    def link(self) -> ReceivingLink:
        return cast("ReceivingLink", self.got.link)


@pytest.fixture(params=[Anycast, Straight], ids=lambda kind: kind.kind)
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param)


def test_a_large_message_is_passed_on_while_it_comes(scene: Scene) -> None:
    assert scene.link.partial_bytes > LARGE_BYTES
    assert scene.got.payloads == []
    assert not scene.sent.is_settled
    scene.go()
    assert scene.got.payloads == [LARGE]
    assert scene.sent.state is ACCEPTED
    (consumer,) = scene.address.consumers
    assert (consumer.large, consumer.unsettled, consumer.is_blocked) == (None, 0, False)
    assert (scene.address.producers[0].large, scene.address.backlog_bytes) == (None, 0)


def test_a_receiver_that_goes_in_the_middle_fails_it(scene: Scene) -> None:
    scene.link.detach()
    scene.receiver.go()
    scene.go()
    assert scene.sent.state == Modified(delivery_failed=True)
    assert scene.address.consumers == []
    assert scene.address.backlog_bytes == 0


def test_a_sender_that_goes_in_the_middle_takes_it_along(scene: Scene) -> None:
    scene.sender.cut()
    scene.receive()
    assert scene.got.payloads == []
    (consumer,) = scene.address.consumers
    assert (consumer.large, consumer.unsettled, consumer.is_blocked) == (None, 0, False)
    other = Client(scene.sender.node, None, None, container="other")
    sink = other.sender("a")
    sent = sink.send(encode_message(b"small"))
    for _ in range(4):
        other.go()
        scene.receive()
    assert scene.got.payloads == [encode_message(b"small")]
    assert sent.state is ACCEPTED
