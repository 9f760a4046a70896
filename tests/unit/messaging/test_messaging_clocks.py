"""The wall clock is set while messages wait: delays and lives keep their length, times of day follow it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from enmasse.message.sections import Header, Properties, Sections, encode_message
from enmasse.message.types import Timestamp
from enmasse.messaging.delivery import FAILED
from enmasse.messaging.queues.queue import Queue
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.testing.ports import FIRST_WALL_US, CoreHarness, MemoryConsumerPort

DELAY_S = 10
HOUR_S = 3_600
LITTLE_S = 0.1
ON_DISK = 50
"""Messages ahead of ours that fill the memory, so that ours waits on disk."""

FIRST_MS = FIRST_WALL_US // 1_000


class Scene:
    """A queue that holds a message which waits, in memory or on disk; times are seconds since it came."""

    def __init__(self, *, is_paged: bool = False, redelivery_delay: int = 0) -> None:
        self.harness = CoreHarness()
        if is_paged:
            self.harness.core.window_bytes = 8_000
        self.queue = Queue(self.harness.core, "orders", 1, options=AddressSettings(redelivery_delay=redelivery_delay))
        self.queue.load()
        self._sender = self.harness.sender(self.queue)
        self.harness.turn()
        for _ in range(ON_DISK if is_paged else 0):
            self._sender.send(encode_message(b"plain", header=Header(durable=True)))
            self.harness.commit()

    def send(self, ttl_ms: int | None = None, expires_ms: int | None = None, **annotations: int) -> None:
        notes = {f"x-opt-delivery-{name}": value for name, value in annotations.items()}
        properties = None if expires_ms is None else Properties(absolute_expiry_time=Timestamp(expires_ms))
        header = Header(durable=True, ttl=ttl_ms)
        self._sender.send(encode_message(b"ours", header=header, properties=properties, message_annotations=notes))
        self.harness.commit()

    def set_clock(self, seconds: float) -> None:
        """The wall clock is set; a node has a turn several times a second."""
        self.harness.wall_shift_s += seconds
        self.harness.turns_requested += 1
        self.harness.commit()

    def pass_time(self, seconds: float) -> None:
        self.harness.advance(seconds)
        self.harness.commit()

    def read_all(self) -> MemoryConsumerPort:
        """A receiver takes what can be had, and waits."""
        receiver = self.harness.receiver(self.queue, 1_000)
        self.harness.commit()
        return receiver


def came(receiver: MemoryConsumerPort) -> int:
    return sum(Sections(payload).body == b"ours" for payload in receiver.payloads)


each_place = pytest.mark.parametrize("is_paged", [False, True], ids=["memory", "disk"])
each_way = pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S], ids=["forward", "back"])


@each_place
@each_way
def test_a_delay_keeps_its_length(is_paged: bool, jump_s: int) -> None:
    scene = Scene(is_paged=is_paged)
    scene.send(delay=DELAY_S * 1_000)
    receiver = scene.read_all()
    scene.set_clock(jump_s)
    scene.pass_time(DELAY_S - LITTLE_S)
    assert came(receiver) == 0
    scene.pass_time(2 * LITTLE_S)
    assert came(receiver) == 1


@each_way
def test_a_delay_of_what_was_written_after_the_clock_was_set_is_read_by_that_clock(jump_s: int) -> None:
    scene = Scene(is_paged=True)
    scene.set_clock(jump_s)
    scene.send(delay=DELAY_S * 1_000)
    receiver = scene.read_all()
    scene.pass_time(DELAY_S - LITTLE_S)
    assert came(receiver) == 0
    scene.pass_time(2 * LITTLE_S)
    assert came(receiver) == 1


@each_way
def test_the_wait_after_a_failed_delivery_keeps_its_length(jump_s: int) -> None:
    scene = Scene(redelivery_delay=DELAY_S * 1_000)
    scene.send()
    receiver = scene.read_all()
    receiver.settle(FAILED)
    scene.harness.commit()
    scene.set_clock(jump_s)
    scene.pass_time(DELAY_S - LITTLE_S)
    assert came(receiver) == 1
    scene.pass_time(2 * LITTLE_S)
    assert came(receiver) == 2


@each_place
@each_way
def test_a_life_keeps_its_length(is_paged: bool, jump_s: int) -> None:
    scene = Scene(is_paged=is_paged)
    scene.send(ttl_ms=DELAY_S * 1_000)
    scene.send(ttl_ms=DELAY_S * 1_000)
    scene.set_clock(jump_s)
    scene.pass_time(DELAY_S - 1)
    receiver = scene.harness.receiver(scene.queue, ON_DISK + 1 if is_paged else 1)
    scene.harness.commit()
    assert came(receiver) == 1
    ours = Sections(receiver.payloads[-1])
    assert ours.header.ttl == 1_000, "it is told what is left of it"
    scene.pass_time(2)
    receiver.grant(10)
    scene.pass_time(1)
    assert (came(receiver), scene.queue.expired) == (1, 1)


@each_place
def test_a_time_of_day_comes_when_the_clock_is_set_to_it(is_paged: bool) -> None:
    scene = Scene(is_paged=is_paged)
    scene.send(time=FIRST_MS + HOUR_S * 1_000)
    receiver = scene.read_all()
    scene.set_clock(HOUR_S - DELAY_S)
    scene.pass_time(DELAY_S - LITTLE_S)
    assert came(receiver) == 0
    scene.pass_time(2 * LITTLE_S)
    assert came(receiver) == 1


@each_place
def test_a_time_of_day_is_waited_for_when_the_clock_is_set_back(is_paged: bool) -> None:
    scene = Scene(is_paged=is_paged)
    scene.send(time=FIRST_MS + DELAY_S * 1_000)
    receiver = scene.read_all()
    scene.set_clock(-HOUR_S)
    scene.pass_time(HOUR_S + DELAY_S - LITTLE_S)
    assert came(receiver) == 0
    scene.pass_time(2 * LITTLE_S)
    assert came(receiver) == 1


@each_place
def test_an_absolute_expiry_follows_the_clock(is_paged: bool) -> None:
    scene = Scene(is_paged=is_paged)
    scene.send(expires_ms=FIRST_MS + HOUR_S * 1_000)
    scene.set_clock(HOUR_S)
    scene.pass_time(1)
    receiver = scene.read_all()
    assert (came(receiver), scene.queue.expired) == (0, 1)


@each_place
@pytest.mark.slow
def test_an_absolute_expiry_is_put_off_when_the_clock_is_set_back(is_paged: bool) -> None:
    scene = Scene(is_paged=is_paged)
    scene.send(expires_ms=FIRST_MS + DELAY_S * 1_000)
    scene.set_clock(-HOUR_S)
    scene.pass_time(HOUR_S)
    assert came(scene.read_all()) == 1


def test_an_absolute_expiry_that_was_over_while_a_receiver_had_the_message_is_waited_for_again() -> None:
    scene = Scene()
    scene.send(expires_ms=FIRST_MS + DELAY_S * 1_000)
    receiver = scene.read_all()
    scene.pass_time(DELAY_S + LITTLE_S)
    scene.set_clock(-HOUR_S)
    receiver.leave()
    scene.pass_time(DELAY_S)
    assert scene.queue.depth == 1
    scene.pass_time(HOUR_S)
    assert (scene.queue.depth, scene.queue.expired) == (0, 1)


def test_a_restart_knows_the_age_of_a_message_by_the_wall_clock() -> None:
    scene = Scene()
    scene.send(ttl_ms=DELAY_S * 1_000)
    harness = scene.harness.restarted()
    harness.wall_shift_s = DELAY_S - 1
    queue = Queue(harness.core, "orders", 1)
    queue.load()
    harness.commit()
    harness.advance(2)
    harness.commit()
    assert (queue.depth, queue.expired) == (0, 1)


@pytest.mark.parametrize("seconds", [0.2, -0.2])
def test_a_reading_of_the_clocks_that_is_a_little_off_wakes_nobody(seconds: float) -> None:
    woken: list[float] = []

    class Waiting:
        name = "waiting"
        on_deadline: Callable[[float], None] = staticmethod(woken.append)

    scene = Scene()
    scene.harness.core.schedule(Waiting(), HOUR_S)
    scene.set_clock(seconds)
    assert not woken
    scene.set_clock(10 * seconds)
    assert len(woken) == 1
