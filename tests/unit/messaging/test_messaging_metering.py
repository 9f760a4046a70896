"""Rates that turn into credit: what senders may send per second, alone and together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from enmasse.message.outcomes import Rejected, Released
from enmasse.message.sections import Properties, encode_message
from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import Producer, ProducerPort
from enmasse.messaging.direct.anycast import Anycast
from enmasse.messaging.direct.metered_sink import MeteredSink
from enmasse.messaging.limits import SpaceLimits
from enmasse.messaging.metering import Meter, MeteredPort
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.space import AnonymousTerminus, Space
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.testing.ports import CoreHarness, MemoryProducerPort

STEP_S = 0.005


class Sender:
    """A sender behind buckets, who sends whatever it may."""

    def __init__(self, harness: CoreHarness, address: Address, meters: Sequence[Meter], size: int = 100) -> None:
        self.link = MemoryProducerPort()
        self.port = MeteredPort(self.link, meters)
        port = cast("ProducerPort", self.port)
        self.producer = address.attach_producer(port, address.name, AttachOptions())
        self.link.sink = cast("Producer", MeteredSink(self.producer, self.port, 0))
        self.size = size
        self.is_busy = True

    def go(self) -> None:
        while self.is_busy and self.link.credit > 0:
            self.link.send(bytes(self.size), settled=True)

    def leave(self) -> None:
        self.port.leave()
        self.producer.on_detached()

    @property
    def sent(self) -> int:
        return self.link.received


@pytest.fixture
def harness() -> CoreHarness:
    return CoreHarness()


@pytest.fixture
def queue(harness: CoreHarness) -> Queue:
    made = Queue(harness.core, "q", 1)
    harness.turn()
    return made


def run(harness: CoreHarness, seconds: float, *senders: Sender) -> None:
    harness.turn()
    for _ in range(round(seconds / STEP_S)):
        for sender in senders:
            sender.go()
        harness.advance(STEP_S)


def test_a_sender_sends_as_many_messages_as_the_rate_says_and_one_burst(harness: CoreHarness, queue: Queue) -> None:
    sender = Sender(harness, queue, [Meter(harness.core, "m", 200, 0)])
    run(harness, 10, sender)
    assert 200 * 10 <= sender.sent <= 200 * 11


def test_the_lowest_rate_lets_a_message_pass_every_second(harness: CoreHarness, queue: Queue) -> None:
    sender = Sender(harness, queue, [Meter(harness.core, "m", 1, 0)])
    run(harness, 20, sender)
    assert 18 <= sender.sent <= 21


def test_a_sender_sends_as_many_bytes_as_the_rate_says_whatever_the_sizes(harness: CoreHarness, queue: Queue) -> None:
    sender = Sender(harness, queue, [Meter(harness.core, "m", 0, 100_000)])
    sent = 0
    for size in (100, 5_000, 70_000):
        sender.size = size
        before = sender.sent
        run(harness, 10, sender)
        sent += (sender.sent - before) * size
    # A change of sizes makes a debt of what was granted before, which is paid.
    assert 100_000 * 27 <= sent <= 100_000 * 31 + 70_000 * 20


def test_a_debt_of_bytes_is_paid_before_anything_else_comes(harness: CoreHarness, queue: Queue) -> None:
    sender = Sender(harness, queue, [Meter(harness.core, "m", 0, 10_000)], size=1_000_000)
    run(harness, 50, sender)
    assert sender.sent == 1
    run(harness, 60, sender)
    assert sender.sent == 2


def test_senders_of_one_bucket_share_it_equally(harness: CoreHarness, queue: Queue) -> None:
    meter = Meter(harness.core, "m", 500, 0)
    senders = [Sender(harness, queue, [meter]) for _ in range(5)]
    run(harness, 10, *senders)
    counts = [sender.sent for sender in senders]
    assert sum(counts) <= 500 * 11
    assert max(counts) <= 1.2 * min(counts)


def test_what_idle_senders_leave_goes_to_those_who_send(harness: CoreHarness, queue: Queue) -> None:
    meter = Meter(harness.core, "m", 500, 0)
    senders = [Sender(harness, queue, [meter]) for _ in range(5)]
    for idle in senders[1:]:
        idle.is_busy = False
    run(harness, 10, *senders)
    assert senders[0].sent >= 500 * 9


def test_a_sender_that_wakes_up_beside_a_busy_one_is_heard_within_seconds(harness: CoreHarness, queue: Queue) -> None:
    meter = Meter(harness.core, "m", 500, 0)
    busy, late = Sender(harness, queue, [meter]), Sender(harness, queue, [meter])
    late.is_busy = False
    run(harness, 5, busy, late)
    late.is_busy = True
    run(harness, 3, busy, late)
    before = busy.sent, late.sent
    run(harness, 4, busy, late)
    assert late.sent - before[1] >= 0.7 * (busy.sent - before[0])


def test_the_least_of_two_buckets_counts(harness: CoreHarness, queue: Queue) -> None:
    sender = Sender(harness, queue, [Meter(harness.core, "space", 1_000, 0), Meter(harness.core, "address", 100, 0)])
    run(harness, 5, sender)
    assert 100 * 5 <= sender.sent <= 100 * 6


def test_credit_of_a_direct_address_stays_what_its_receivers_take(harness: CoreHarness) -> None:
    address = Anycast(harness.core, "a")
    sender = Sender(harness, address, [Meter(harness.core, "m", 1_000, 0)])
    run(harness, 1, sender)
    assert sender.sent == 0
    receiver = harness.receiver(address, 5, presettle=True)
    run(harness, 1, sender)
    assert sender.sent == 5
    receiver.grant(10)
    run(harness, 1, sender)
    assert len(receiver.arrivals) == 15


@pytest.mark.slow
def test_a_new_rate_holds_for_senders_that_are_there(harness: CoreHarness, queue: Queue) -> None:
    meter = Meter(harness.core, "m", 1_000, 0)
    sender = Sender(harness, queue, [meter])
    run(harness, 2, sender)
    meter.configure(50, 0)
    run(harness, 1, sender)
    before = sender.sent
    run(harness, 10, sender)
    assert 49 * 10 <= sender.sent - before <= 50 * 10 + 10
    meter.configure(0, 0)
    before = sender.sent
    run(harness, 1, sender)
    assert sender.sent - before > 5_000


def test_an_idle_bucket_asks_for_no_turns(harness: CoreHarness, queue: Queue) -> None:
    sender = Sender(harness, queue, [Meter(harness.core, "m", 100, 100_000)])
    sender.is_busy = False
    run(harness, 3, sender)
    harness.turn()
    assert harness.core.next_deadline() is None


def test_a_sender_that_comes_again_and_again_has_no_burst_each_time(harness: CoreHarness, queue: Queue) -> None:
    meter = Meter(harness.core, "m", 100, 0)
    sent = 0
    for _ in range(20):
        sender = Sender(harness, queue, [meter])
        run(harness, 0.1, sender)
        sent += sender.sent
        sender.leave()
    assert sent <= 100 * 3 + 1


# The anonymous terminus


def anonymous(space: Space) -> MemoryProducerPort:
    port = MemoryProducerPort()
    port.sink = AnonymousTerminus(space, port)
    return port


def to(name: str, size: int = 10) -> bytes:
    return encode_message(bytes(size), properties=Properties(to=name))


def test_messages_that_name_their_address_keep_to_its_rate(harness: CoreHarness, queue: Queue) -> None:
    space = Space(harness.core, "ns/shop", lambda: "id")
    space.add(queue)
    queue.limit(AddressSettings(max_message_rate=10))
    port = anonymous(space)
    for _ in range(15):
        port.send(to("q"))
    harness.turn()
    assert [isinstance(state, Released) for _, state in port.outcomes] == [False] * 10 + [True] * 5
    harness.advance(2)
    port.send(to("q"))
    assert not isinstance(port.outcomes[-1][1], Released)


def test_messages_that_name_their_address_keep_to_its_size(harness: CoreHarness, queue: Queue) -> None:
    space = Space(harness.core, "ns/shop", lambda: "id")
    space.add(queue)
    queue.limit(AddressSettings(max_message_size=100))
    port = anonymous(space)
    port.send(to("q", 10))
    port.send(to("q", 1_000))
    refused = port.outcomes[-1][1]
    assert isinstance(refused, Rejected)
    assert refused.error is not None
    assert refused.error.condition == "amqp:link:message-size-exceeded"
    assert queue.depth == 1


def test_limits_of_a_space_are_told_by_name(harness: CoreHarness) -> None:
    space = Space(harness.core, "ns/shop", lambda: "id")
    space.limit(SpaceLimits(message_rate=5))
    assert space.meter is not None
    space.limit(SpaceLimits())
    assert (space.meter.message_rate, space.meter.byte_rate) == (0, 0)
