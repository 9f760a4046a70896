"""What a stream keeps: by bytes, by age, with the rest in order after failures and restarts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED
from enmasse.message.sections import Sections, encode_message
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.log.frame import encode_frame
from enmasse.messaging.storage import Operation, Table
from enmasse.messaging.streams import merging as stream_merging
from enmasse.messaging.streams.producers import FRAME_FORMAT, FRAMES_CAPABILITY
from enmasse.messaging.streams.retention import STEP
from enmasse.testing.ports import FIRST_WALL_US
from tests.support.stream_scene import StreamScene, bodies, offsets

ROW = len(encode_message(bytes(100))) + 20
"""What one message counts for."""


def content(number: int) -> bytes:
    return b"%0100d" % number


def fill(scene: StreamScene, *numbers: int, partition: int = 0) -> None:
    for number in numbers:
        scene.append(content(number), partition=partition)


def kept(scene: StreamScene, partition: int = 0) -> list[int]:
    """The numbers on disk; the log begins where it says."""
    frames = scene.stored(partition)
    found = scene.stream.partitions[partition]
    if frames:
        assert frames[0].first_offset == found.low
        assert frames[-1].next_offset == found.visible
    else:
        assert found.low == found.visible
    index = [int.from_bytes(key[-8:], "big") for key, _ in scene.records(Table.TIME, partition)]
    assert index == [frame.first_offset for frame in frames]
    return [int(body) for frame in frames for body in frame.cells(frame.bodies)]


def marks(scene: StreamScene) -> list[list[int]]:
    found: list[list[int]] = scene.stream.counts()["partitionMarks"]
    return found


# Bytes


def test_above_its_bytes_the_oldest_frames_go() -> None:
    scene = StreamScene(retention_bytes=10 * ROW)
    fill(scene, *range(25))
    assert kept(scene) == list(range(15, 25))
    assert marks(scene) == [[0, 15, 25]]
    counts = scene.stream.counts()
    assert (counts["messagesStored"], counts["bytesStored"]) == (10, 10 * ROW)


def test_what_is_kept_survives_a_restart_with_its_counters() -> None:
    scene = StreamScene(retention_bytes=10 * ROW)
    fill(scene, *range(25))
    again = scene.restart()
    assert marks(again) == [[0, 15, 25]]
    assert again.stream.counts()["bytesStored"] == 10 * ROW
    fill(again, 25)
    assert kept(again) == list(range(16, 26))


def test_without_retention_a_full_stream_takes_no_more_and_loses_nothing() -> None:
    scene = StreamScene(max_bytes=10 * ROW)
    fill(scene, *range(10))
    assert scene.sender().credit == 0
    assert kept(scene) == list(range(10))


def test_with_retention_by_age_a_full_stream_gives_up_its_oldest() -> None:
    scene = StreamScene(max_bytes=10 * ROW, retention_ms=3_600_000)
    fill(scene, *range(25))
    assert kept(scene) == list(range(15, 25))
    assert scene.sender().credit > 0


def test_the_limit_of_the_address_counts_where_it_is_lower() -> None:
    scene = StreamScene(max_bytes=5 * ROW, retention_bytes=10 * ROW)
    fill(scene, *range(25))
    assert kept(scene) == list(range(20, 25))


def test_the_last_frame_of_a_partition_stays_however_large() -> None:
    scene = StreamScene(retention_bytes=10)
    fill(scene, 0, 1, 2)
    assert kept(scene) == [2]


def test_the_oldest_frame_goes_whatever_its_partition() -> None:
    scene = StreamScene(2, retention_bytes=6 * ROW)
    for number in range(4):
        fill(scene, number, partition=0)
        scene.harness.advance(1.0)
    for number in range(4, 10):
        fill(scene, number, partition=1)
        scene.harness.advance(1.0)
    # The last one of partition 0 stays, as every partition's does.
    assert (kept(scene, 0), kept(scene, 1)) == ([3], [5, 6, 7, 8, 9])


def test_many_frames_go_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_merging, "LARGE_ROWS", 1)
    scene = StreamScene()
    for number in range(3 * STEP):
        scene.append(content(number))
    before = scene.stream.partitions[0].low
    scene.stream.configure(retention_bytes=ROW)
    steps = []
    for _ in range(50):
        scene.harness.turn()
        scene.harness.storage.commit()
        low = scene.stream.partitions[0].low
        steps += [low] if low != before else []
        before = low
    assert all(high - low <= STEP for low, high in pairwise([0, *steps]))
    assert steps[-1] == 3 * STEP - 1
    assert kept(scene) == [3 * STEP - 1]


def test_a_stream_that_is_told_to_keep_less_gives_it_up_at_once() -> None:
    scene = StreamScene()
    fill(scene, *range(20))
    scene.stream.configure(retention_bytes=5 * ROW)
    scene.settle()
    assert kept(scene) == list(range(15, 20))
    scene.stream.configure()
    fill(scene, *range(20, 30))
    assert kept(scene) == list(range(15, 30))


def test_senders_go_on_while_the_oldest_go() -> None:
    scene = StreamScene(retention_bytes=10 * ROW)
    sender = scene.sender()
    for number in range(200):
        sender.send(encode_message(content(number)))
        if number % 7 == 0:
            scene.settle()
    scene.settle()
    assert [state for _, state in sender.outcomes] == [ACCEPTED] * 200
    numbers = kept(scene)
    assert numbers == list(range(numbers[0], 200))
    assert scene.stream.bytes_stored <= 16 * ROW


# Age


def test_what_is_too_old_goes() -> None:
    scene = StreamScene(retention_ms=10_000)
    for number in range(30):
        fill(scene, number)
        scene.harness.advance(1.0)
    scene.settle()
    first = kept(scene)[0]
    assert 18 <= first <= 20
    assert kept(scene) == list(range(first, 30))


def test_an_idle_stream_becomes_empty_and_goes_on_at_its_offset() -> None:
    scene = StreamScene(retention_ms=10_000)
    fill(scene, *range(5))
    for _ in range(15):
        scene.harness.advance(1.0)
        scene.settle()
    assert kept(scene) == []
    assert marks(scene) == [[0, 5, 5]]
    assert scene.stream.counts()["bytesStored"] == 0
    again = scene.restart()
    fill(again, 5)
    assert offsets(again.reader(start="first")) == [5]


def test_what_grew_too_old_while_the_node_was_down_goes_when_it_is_back() -> None:
    scene = StreamScene(retention_ms=10_000)
    fill(scene, *range(5))
    scene.harness.clock.advance(60.0)
    again = scene.restart()
    assert kept(again) == []
    assert marks(again) == [[0, 5, 5]]


# Readers


def test_a_reader_below_the_beginning_goes_on_there() -> None:
    scene = StreamScene(retention_bytes=5 * ROW)
    reader = scene.reader(3, start="first")
    fill(scene, *range(20))
    assert bodies(reader)[:3] == [content(number) for number in range(3)]
    scene.stream.partitions[0].tail.forget(1 << 40)
    reader.grant(100)
    scene.settle()
    rest = offsets(reader)[3:]
    assert rest == list(range(rest[0], 20))
    assert set(range(15, 20)) <= set(rest)


@pytest.mark.parametrize("start", ["first", 0, 3])
def test_a_new_reader_begins_where_the_stream_does(start: Any) -> None:
    scene = StreamScene(retention_bytes=5 * ROW)
    fill(scene, *range(20))
    assert offsets(scene.reader(start=start)) == list(range(15, 20))


def test_readers_of_offsets_hear_where_partitions_begin() -> None:
    scene = StreamScene(retention_bytes=5 * ROW)
    reader = scene.offsets()
    fill(scene, *range(7))
    told = [Sections(payload).body["partitions"][0][1:3] for payload in reader.payloads]
    assert told[0] == [0, 0]
    assert told[-1] == [2, 7]


def test_a_range_of_frames_that_is_deleted_ends_at_once() -> None:
    scene = StreamScene(retention_bytes=5 * ROW)
    fill(scene, *range(20))
    reader = scene.frames(from_=2, to=9)
    assert reader.arrivals == []
    assert reader.is_detached
    assert reader.error is None


# Faults


def test_frames_whose_deletion_failed_are_kept_until_it_succeeds() -> None:
    scene = StreamScene()
    fill(scene, *range(10))
    scene.stream.configure(retention_bytes=4 * ROW)
    scene.harness.turn()
    scene.harness.storage.answer_reads()
    scene.harness.fail()
    assert kept(scene) == list(range(10))
    assert scene.stream.counts()["bytesStored"] == 10 * ROW
    scene.harness.advance(PAUSE_S)
    scene.settle()
    fill(scene, 10)
    assert kept(scene) == list(range(7, 11))


def test_a_crash_leaves_all_or_nothing_of_a_deletion() -> None:
    for reaches_disk in (False, True):
        scene = StreamScene()
        fill(scene, *range(10))
        scene.stream.configure(retention_bytes=4 * ROW)
        scene.harness.turn()
        scene.harness.storage.answer_reads()
        scene.harness.turn()
        through = scene.harness.storage.pending[0] if reaches_disk else 0
        again = scene.restart(through)
        numbers = kept(again)
        assert numbers == list(range(6 if reaches_disk else 0, 10))
        assert again.stream.counts()["bytesStored"] == len(numbers) * ROW


def of_first_version(scene: StreamScene, **options: Any) -> StreamScene:
    """The stream as the first version would have left it."""
    storage = scene.harness.storage
    size = sum(len(frame.data) for frame in scene.stored())
    operations = [Operation(Table.TIME, key, None) for key, _ in storage.scan_all(Table.TIME)]
    for key, value in storage.scan_all(Table.MARK):
        operations.append(Operation(Table.MARK, key, value[:16] + size.to_bytes(8, "big")))
    storage.submit(operations)
    storage.commit()
    return scene.restart(**options)


def test_frames_of_the_first_version_go_too() -> None:
    scene = StreamScene()
    fill(scene, *range(10))
    size = len(scene.stored()[0].data)
    again = of_first_version(scene)
    fill(again, *range(10, 15))
    again.stream.configure(retention_bytes=3 * size + 5 * ROW)
    again.settle()
    frames = again.stored()
    assert [int(body) for frame in frames for body in frame.cells(frame.bodies)] == list(range(7, 15))
    assert marks(again) == [[0, 7, 15]]
    again.stream.configure(retention_bytes=3 * ROW)
    again.settle()
    assert kept(again) == [12, 13, 14]
    assert again.stream.counts()["bytesStored"] == 3 * ROW


def test_large_frames_of_the_first_version_go_step_by_step() -> None:
    scene = StreamScene()
    sender = scene.sender(capabilities=(FRAMES_CAPABILITY,))
    for number in range(8):
        data = encode_frame(0, [0], [b""], [b"\x00\x53\x75\xb0" + (400_000).to_bytes(4, "big")], [bytes(400_000)])
        assert sender.send(data, message_format=FRAME_FORMAT) == number
        scene.settle()
    again = of_first_version(scene, retention_bytes=1_000_000)
    again.settle()
    assert [frame.first_offset for frame in again.stored()] == [6, 7]
    assert marks(again) == [[0, 6, 8]]


def test_a_damaged_frame_goes_like_any_other() -> None:
    scene = StreamScene()
    fill(scene, *range(10))
    key, value = scene.records(Table.FRAME)[1]
    scene.harness.storage.damage(Table.FRAME, key, value[:-1] + b"\x55")
    scene.stream.configure(retention_bytes=4 * ROW)
    scene.settle()
    assert kept(scene) == list(range(6, 10))


def test_merged_frames_go_whole_and_nothing_younger_goes_with_them() -> None:
    scene = StreamScene(retention_bytes=100 * ROW)
    for number in range(400):
        fill(scene, number)
        stored = scene.stored()
        low = scene.stream.partitions[0].low
        assert stored[0].first_offset == low
        assert number + 1 - low >= min(number + 1, 36)
    assert scene.stream.bytes_stored <= 165 * ROW
    numbers = kept(scene)
    assert numbers == list(range(numbers[0], 400))


def test_a_turn_that_comes_a_little_before_its_time_loses_no_look() -> None:
    scene = StreamScene(retention_ms=10_000)
    fill(scene, *range(5))
    scene.harness.clock.advance(11.0)
    core = scene.harness.core
    while (deadline := core.next_deadline()) is not None and deadline <= scene.harness.clock.now:
        # The shell tells the time of the deadline, while its turn still has the time before.
        core.handle_deadline(deadline)
        wall_us = FIRST_WALL_US + int(scene.harness.clock.now * 1_000_000)
        core.run_turn(deadline - 1e-6, wall_us)
        scene.settle()
    assert kept(scene) == []


def test_a_deleted_stream_looks_no_more() -> None:
    scene = StreamScene(retention_ms=1_000)
    fill(scene, 0)
    scene.stream.close("amqp:resource-deleted", "gone")
    scene.harness.advance(100.0)
    assert scene.harness.core.next_deadline() is None
    assert scene.harness.core.is_idle
