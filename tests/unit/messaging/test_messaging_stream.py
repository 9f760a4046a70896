"""Streams: which partition, which offset, and stored before accepted."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.message.sections import encode_message
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.errors import UNSUPPORTED_FORMAT
from enmasse.messaging.log.layout import FRAME_BYTES, FRAME_ROWS
from enmasse.messaging.streams.heads import key_of, partition_of
from enmasse.messaging.streams.producers import FRAME_FORMAT
from enmasse.testing.ports import FIRST_WALL_US
from tests.unit.messaging.stream_sending import Scene, frame, keyed, send_frame


@pytest.fixture
def scene() -> Scene:
    return Scene()


# Partitions


def chosen(scene: Scene, *payloads: bytes) -> list[int]:
    sender = scene.sender()
    found = []
    for payload in payloads:
        before = [partition.next_offset for partition in scene.stream.partitions]
        sender.send(payload)
        scene.harness.commit()
        after = [partition.next_offset for partition in scene.stream.partitions]
        found.append(next(index for index, (a, b) in enumerate(zip(before, after, strict=True)) if a != b))
    return found


@pytest.mark.parametrize("key", ["device-1", "device-2", "ä", ""])
def test_a_message_with_a_subject_goes_where_kafka_would_put_that_key(key: str) -> None:
    if key:
        assert chosen(Scene(7), keyed(key)) == [partition_of(key.encode(), 7)]
    else:
        assert chosen(Scene(3), *[keyed("")] * 4) == [1, 2, 0, 1]


def test_the_annotation_comes_before_the_subject() -> None:
    assert chosen(Scene(50), keyed("device-1", annotation="other")) == [partition_of(b"other", 50)]


@pytest.mark.parametrize(("annotation", "key"), [(b"\xff\x00", b"\xff\x00"), (17, b"17")])
def test_a_key_may_be_bytes_or_a_number(annotation: Any, key: bytes) -> None:
    assert chosen(Scene(50), keyed(None, annotation=annotation)) == [partition_of(key, 50)]


def test_messages_without_a_key_take_turns() -> None:
    assert sorted(chosen(Scene(4), *[keyed(None)] * 8)) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_what_is_no_message_is_rejected_or_dropped() -> None:
    scene = Scene(2)
    sender = scene.sender()
    sender.send(b"\x00\x53\x72garbage")
    sender.send(b"\x00\x53\x72garbage", settled=True)
    scene.harness.commit()
    ((_, outcome),) = sender.outcomes
    assert outcome.error.condition == "amqp:decode-error"
    assert scene.stream.dropped == 1
    assert sum(partition.next_offset for partition in scene.stream.partitions) == 0


def test_a_message_that_cannot_be_read_has_no_key() -> None:
    assert key_of(b"\x00\x53\x72garbage") == b""


def test_equal_keys_stay_together_and_in_order() -> None:
    scene = Scene(5)
    sender = scene.sender()
    for number in range(40):
        sender.send(keyed(f"k{number % 4}", b"%d" % number))
        if number % 7 == 0:
            scene.harness.commit()
    scene.harness.commit()
    for index in range(5):
        numbers = [int(body) for body in scene.rows(index)]
        for key in range(4):
            mine = [number for number in numbers if number % 4 == key]
            assert mine == sorted(mine)
            assert not mine or partition_of(b"k%d" % key, 5) == index


# Appending


def test_every_message_is_accepted_only_after_its_commit_whatever_its_durable_flag(scene: Scene) -> None:
    sender = scene.sender()
    sender.send(encode_message(b"one"))
    scene.harness.turn()
    assert sender.outcomes == []
    scene.harness.commit()
    assert sender.outcomes == [(0, ACCEPTED)]
    assert scene.rows() == [b"one"]


def test_offsets_are_consecutive_over_turns_frames_and_restarts() -> None:
    scene = Scene(2)
    total = 0
    for turn in range(3):
        sender = scene.sender()
        for _ in range(turn + 2):
            sender.send(keyed("a"))
            sender.send(keyed("b"))
            total += 2
        scene.harness.commit()
        if turn == 1:
            scene = scene.restart()
    assert len(scene.rows(0)) + len(scene.rows(1)) == total
    assert [p.next_offset for p in scene.stream.partitions] == [len(scene.rows(0)), len(scene.rows(1))]


def test_what_one_turn_wrote_to_a_partition_is_one_frame_with_the_turns_time(scene: Scene) -> None:
    scene.harness.advance(2.5)
    sender = scene.sender()
    for _ in range(10):
        sender.send(keyed("k", b"body"))
    scene.harness.commit()
    (stored,) = scene.stored()
    assert stored.rows == 10
    assert stored.timestamps().tolist() == [FIRST_WALL_US + 2_500_000] * 10
    assert stored.cells(stored.keys) == [b"k"] * 10
    assert stored.payloads() == [keyed("k", b"body")] * 10


def test_a_turn_that_is_too_large_for_one_frame_is_several(scene: Scene) -> None:
    partition = scene.stream.partitions[0]
    for _ in range(FRAME_ROWS + 1):
        partition.append(encode_message(b"x"), None)
    for _ in range(3):
        partition.append(encode_message(bytes(FRAME_BYTES // 2)), None)
    scene.harness.commit()
    assert [found.rows for found in scene.stored()] == [FRAME_ROWS, 3, 1]
    assert len(scene.rows()) == FRAME_ROWS + 4


def test_a_settled_message_is_stored_and_answered_by_nobody(scene: Scene) -> None:
    sender = scene.sender()
    sender.send(encode_message(b"one"), settled=True)
    scene.harness.commit()
    assert sender.outcomes == []
    assert scene.rows() == [b"one"]


def test_only_messages_of_format_0_come_from_ordinary_senders(scene: Scene) -> None:
    sender = scene.sender()
    sender.send(frame(b"x"), message_format=FRAME_FORMAT)
    sender.send(frame(b"x"), message_format=FRAME_FORMAT, settled=True)
    scene.harness.commit()
    assert sender.outcomes == [(0, UNSUPPORTED_FORMAT)]
    assert scene.rows() == []


# Failed commits


def test_a_failed_commit_releases_its_senders_and_gives_its_offsets_to_others(scene: Scene) -> None:
    sender = scene.sender()
    sender.send(encode_message(b"stored"))
    scene.harness.commit()
    sender.send(encode_message(b"lost"))
    scene.harness.turn()
    sender.send(encode_message(b"later"))
    scene.harness.fail()
    assert sender.states[1] is RELEASED
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    assert sender.states[2] is ACCEPTED
    assert scene.rows() == [b"stored", b"later"]
    assert scene.stream.counts()["messagesStored"] == 2
    assert scene.restart().rows() == [b"stored", b"later"]


def test_counters_are_exact_after_failures_and_restarts() -> None:
    scene = Scene(2)
    sender = scene.sender()
    for turn in range(6):
        for number in range(turn + 1):
            sender.send(keyed(f"k{number}"))
        if turn % 3 == 1:
            scene.harness.fail()
            scene.harness.advance(PAUSE_S)
        else:
            scene.harness.commit()
    again = scene.restart()
    for found in (scene, again):
        frames = [frame for index in range(2) for frame in found.stored(index)]
        counts = found.stream.counts()
        assert counts["messagesStored"] == sum(frame.rows for frame in frames) == 1 + 3 + 4 + 6
        payloads = [payload for frame in frames for payload in frame.payloads()]
        # Each row takes its message, its key (two bytes here) and 20 bytes of columns.
        assert counts["bytesStored"] == sum(len(payload) + 2 + 20 for payload in payloads)


def test_a_partition_loads_its_own_offsets_and_not_its_neighbours() -> None:
    scene = Scene(3)
    for partition, rows in ((1, 5), (2, 1)):
        sender = scene.frames_sender(partition)
        send_frame(sender, *[b"x"] * rows)
    scene.harness.commit()
    again = scene.restart()
    assert [partition.next_offset for partition in again.stream.partitions] == [0, 5, 1]
