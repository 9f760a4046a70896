"""Numbered messages to queues and topics: stored once, whatever dies and however often they are sent."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, Rejected
from enmasse.message.sections import Header, Sections, encode_message
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.errors import AttachError
from enmasse.messaging.log.layout import delete_log, log_key
from enmasse.messaging.patterns import parse
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.queues.subscription import Subscription
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.space import Space
from enmasse.messaging.storage import Table
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort, MemoryProducerPort


def numbered(sequence: Any, *, durable: bool = True, size: int = 0) -> bytes:
    annotations = None if sequence is None else {"x-opt-sequence": sequence}
    body = f"{sequence}".encode() + b" " * size
    return encode_message(body, header=Header(durable=durable), message_annotations=annotations)


class Scene:
    """Queue ``q``, and topic ``t`` with the subscriptions ``a`` and ``b``."""

    def __init__(self, harness: CoreHarness | None = None, **options: Any) -> None:
        self.harness = harness or CoreHarness()
        self._options = options
        core, wished = self.harness.core, AddressSettings(**options)
        self.space = Space(core, "ns/shop", lambda: "id")
        self.queue = Queue(core, "q", 1, options=wished)
        self.topic = Topic(core, "t", 2, options=wished)
        self.subscriptions = [
            Subscription(core, name, log_id, topic="t", pattern=parse("t/#"), options=wished)
            for name, log_id in (("a", 3), ("b", 4))
        ]
        for address in (self.queue, self.topic, *self.subscriptions):
            self.space.add(address)
        self.queue.load()
        self.topic.load()
        self.harness.commit()

    def sender(self, kind: str, name: Any = "p") -> MemoryProducerPort:
        address = self.queue if kind == "queue" else self.topic
        port = self.harness.sender(address, properties={"enmasse:producer": name})
        self.harness.turn()
        return port

    def restart(self, through: int = 0) -> Scene:
        return Scene(self.harness.restarted(through), **self._options)

    def sources(self, kind: str) -> list[Any]:
        return [self.queue] if kind == "queue" else [*self.subscriptions]

    def receiver(self, address: Any, credit: int = 1000) -> MemoryConsumerPort:
        port = self.harness.receiver(address, credit)
        self.harness.turn()
        return port

    def drain(self, kind: str) -> list[list[str]]:
        """What each receiver gets; it is taken away."""
        found = []
        for address in self.sources(kind):
            port = self.receiver(address)
            self.harness.turn()
            port.accept(len(port.unsettled))
            port.leave()
            found.append([Sections(payload).body.strip().decode() for payload in port.payloads])
        self.harness.commit()
        return found


KINDS = pytest.mark.parametrize("kind", ["queue", "topic"])


def all_of(kind: str, *sequences: int) -> list[list[str]]:
    return [[str(sequence) for sequence in sequences]] * (1 if kind == "queue" else 2)


@KINDS
def test_one_that_is_sent_again_is_accepted_and_not_stored_again(kind: str) -> None:
    scene = Scene()
    sender = scene.sender(kind)
    for sequence in (0, 1, 0, 1, 7, 7):
        sender.send(numbered(sequence))
        scene.harness.commit()
    assert [state for _, state in sender.outcomes] == [ACCEPTED] * 6
    assert scene.drain(kind) == all_of(kind, 0, 1, 7)


@KINDS
def test_what_was_stored_is_known_after_a_restart_though_it_was_received(kind: str) -> None:
    scene = Scene()
    sender = scene.sender(kind)
    sender.send(numbered(3))
    scene.harness.commit()
    assert scene.drain(kind) == all_of(kind, 3)
    again = scene.restart()
    sender = again.sender(kind)
    sender.send(numbered(3))
    sender.send(numbered(4))
    again.harness.commit()
    assert [state for _, state in sender.outcomes] == [ACCEPTED, ACCEPTED]
    assert again.drain(kind) == all_of(kind, 4)


@KINDS
def test_nobody_has_a_message_before_it_is_on_disk(kind: str) -> None:
    """Else a crash would leave it received, and unknown when it is sent again."""
    scene = Scene()
    receivers = [scene.receiver(address) for address in scene.sources(kind)]
    sender = scene.sender(kind)
    sender.send(numbered(1))
    scene.harness.turn()
    assert [port.payloads for port in receivers] == [[]] * len(receivers)
    scene.harness.commit()
    assert [len(port.payloads) for port in receivers] == [1] * len(receivers)
    assert [state for _, state in sender.outcomes] == [ACCEPTED]


@KINDS
def test_one_on_its_way_is_released_when_it_comes_again(kind: str) -> None:
    scene = Scene()
    sender = scene.sender(kind)
    sender.send(numbered(1))
    scene.harness.turn()
    sender.send(numbered(1))
    assert sender.outcomes == [(1, RELEASED)]
    scene.harness.commit()
    assert sender.outcomes == [(1, RELEASED), (0, ACCEPTED)]
    assert scene.drain(kind) == all_of(kind, 1)


@KINDS
def test_one_whose_commit_failed_is_taken_when_it_comes_again(kind: str) -> None:
    scene = Scene()
    sender = scene.sender(kind)
    sender.send(numbered(1))
    scene.harness.turn()
    scene.harness.fail()
    assert sender.outcomes == [(0, RELEASED)]
    scene.harness.advance(PAUSE_S)
    sender.send(numbered(2))
    scene.harness.commit()
    sender = (again := scene.restart()).sender(kind)
    sender.send(numbered(1))
    sender.send(numbered(2))
    again.harness.commit()
    assert [state for _, state in sender.outcomes] == [ACCEPTED, ACCEPTED]
    assert again.drain(kind) == all_of(kind, 2, 1)


@KINDS
def test_one_that_there_was_no_room_for_is_taken_when_it_comes_again(kind: str) -> None:
    scene = Scene(full_policy="reject", max_bytes=2_000)
    sender = scene.sender(kind)
    sender.send(numbered(1))
    sender.send(numbered(2, size=4_000))
    sender.send(numbered(3))
    scene.harness.commit()
    assert [type(state) for _, state in sorted(sender.outcomes)] == [type(ACCEPTED), Rejected, type(ACCEPTED)]
    assert scene.drain(kind) == all_of(kind, 1, 3)
    sender = (again := scene.restart()).sender(kind)
    sender.send(numbered(1))
    sender.send(numbered(2))
    again.harness.commit()
    assert again.drain(kind) == all_of(kind, 2)


def test_one_that_crossed_with_a_lower_credit_is_taken_when_it_comes_again() -> None:
    scene = Scene(max_bytes=3_000)
    sender = scene.sender("queue")
    sender.send(numbered(1, size=2_999))
    scene.harness.commit()
    assert sender.credit == 0
    sender.send(numbered(2))
    assert sender.outcomes[-1][1] == RELEASED
    assert scene.drain("queue") == all_of("queue", 1)
    scene.harness.turn()
    sender.send(numbered(3))
    scene.harness.commit()
    sender.send(numbered(2))
    scene.harness.commit()
    assert scene.drain("queue") == all_of("queue", 3, 2)


@KINDS
def test_producers_are_told_apart(kind: str) -> None:
    scene = Scene()
    for name in ("p", b"q"):
        scene.sender(kind, name).send(numbered(1))
        scene.harness.commit()
    assert scene.drain(kind) == all_of(kind, 1, 1)


@KINDS
@pytest.mark.parametrize("sequence", [None, -1, "1", 1.5, True])
def test_a_message_without_a_number_is_rejected(kind: str, sequence: Any) -> None:
    scene = Scene()
    sender = scene.sender(kind)
    sender.send(numbered(sequence))
    sender.send(numbered(sequence), settled=True)
    sender.send(b"\0", message_format=0)
    sender.send(numbered(1), message_format=1)
    scene.harness.commit()
    conditions = [state.error.condition for _, state in sender.outcomes]
    assert conditions == ["amqp:invalid-field", "amqp:decode-error", "amqp:not-implemented"]
    assert scene.drain(kind) == all_of(kind)


@KINDS
@pytest.mark.parametrize("name", ["", 7, "x" * 256])
def test_a_name_that_is_none_is_refused(kind: str, name: Any) -> None:
    with pytest.raises(AttachError, match="1 to 255 bytes"):
        Scene().sender(kind, name)


@KINDS
def test_numbers_of_messages_that_a_restart_forgets_are_kept(kind: str) -> None:
    scene = Scene()
    scene.sender(kind).send(numbered(1, durable=False))
    scene.harness.commit()
    again = scene.restart()
    again.sender(kind).send(numbered(1, durable=False))
    again.harness.commit()
    assert again.drain(kind) == all_of(kind)


@KINDS
def test_what_is_in_memory_alone_is_told_apart_until_the_restart(kind: str) -> None:
    scene = Scene(storage="memory")
    sender = scene.sender(kind)
    for sequence in (1, 1, 2):
        sender.send(numbered(sequence))
        scene.harness.commit()
    assert [state for _, state in sender.outcomes] == [ACCEPTED] * 3
    assert scene.drain(kind) == all_of(kind, 1, 2)
    again = scene.restart()
    again.sender(kind).send(numbered(1))
    again.harness.commit()
    if kind == "queue":
        assert again.drain(kind) == all_of(kind, 1)


def test_a_topic_without_subscriptions_knows_them_too() -> None:
    scene = Scene()
    for subscription in scene.subscriptions:
        scene.topic.unsubscribe(subscription)
    sender = scene.sender("topic")
    volatile = scene.receiver(scene.topic)
    for sequence in (1, 1, 2):
        sender.send(numbered(sequence))
        scene.harness.commit()
    assert [Sections(payload).body for payload in volatile.payloads] == [b"1", b"2"]
    assert [state for _, state in sender.outcomes] == [ACCEPTED] * 3


def test_numbered_messages_beyond_the_window_wait_on_disk() -> None:
    scene = Scene()
    scene.queue.window = 10_000
    sender = scene.sender("queue")
    for sequence in range(100):
        sender.send(numbered(sequence, size=500))
        scene.harness.commit()
    assert scene.queue.resident_bytes < 15_000
    found = [int(body) for _ in range(40) for body in scene.drain("queue")[0]]
    assert found == list(range(100))


def test_a_deleted_queue_leaves_no_producers() -> None:
    scene = Scene()
    scene.sender("queue").send(numbered(1))
    scene.harness.commit()
    storage = scene.harness.storage
    assert storage.get(Table.PRODUCER, log_key(1, 0, 0) + b"p") is not None
    assert Table.PRODUCER in {operation.table for operation in delete_log(storage, 1)}
