"""What is not in memory any more: fetched elsewhere, one request a reader, damaged frames left out."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.messaging.log.frame import Frame
from enmasse.messaging.storage import Table
from enmasse.messaging.streams import readers as stream_readers
from enmasse.testing.ports import CoreHarness
from tests.support.stream_scene import StreamScene, bodies, offsets


def cold(count: int, size: int = 3, partitions: int = 1) -> StreamScene:
    """A stream whose rows are on disk alone, ``size`` in a frame."""
    scene = StreamScene(partitions)
    for partition in range(partitions):
        for first in range(0, count, size):
            numbers = range(first, min(first + size, count))
            scene.append(*[b"%d" % number for number in numbers], partition=partition)
    return scene.restart()


def damage(scene: StreamScene, *places: int) -> None:
    records = scene.records(Table.FRAME)
    for place in places:
        key, value = records[place]
        scene.harness.storage.damage(Table.FRAME, key, value[:-1] + bytes((value[-1] ^ 1,)))


def attach(scene: StreamScene, credit: int = 1_000, **filters: Any) -> Any:
    """A reader, without waiting for the disk."""
    named = {"enmasse:" + name.rstrip("_"): value for name, value in filters.items()}
    port = scene.harness.receiver(scene.stream, credit, filters=named)
    scene.turn()
    return port


def test_the_node_never_reads_frames_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = cold(50)
    storage = scene.harness.storage
    for name in ("scan", "floor", "get"):
        whole = getattr(storage, name)

        def only_others(table: Table, *arguments: Any, whole: Any = whole) -> Any:
            assert table is not Table.FRAME
            return whole(table, *arguments)

        monkeypatch.setattr(storage, name, only_others)
    reader = attach(scene, start=20)
    assert reader.arrivals == []
    assert storage.waiting_reads == 1
    monkeypatch.undo()
    scene.settle()
    assert offsets(reader) == list(range(20, 50))


def test_a_reader_has_one_request_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_readers, "READ_BYTES", 500)
    monkeypatch.setattr(stream_readers, "LEAST_READ_BYTES", 500)
    scene = cold(60)
    reader = attach(scene, 5, start="first")
    for _ in range(10):
        scene.stream.advanced()
        scene.turn()
        assert scene.harness.storage.waiting_reads == 1
    while len(reader.arrivals) < 60:
        scene.harness.storage.answer_reads()
        reader.grant(5)
        scene.turn()
        assert scene.harness.storage.waiting_reads <= 1
    assert offsets(reader) == list(range(60))


def test_more_is_asked_for_before_the_last_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_readers, "READ_BYTES", 1_000)
    monkeypatch.setattr(stream_readers, "LEAST_READ_BYTES", 1_000)
    scene = cold(60)
    reader = attach(scene, 3, start="first")
    scene.harness.storage.answer_reads()
    scene.turn()
    while not scene.harness.storage.waiting_reads:
        reader.grant(3)
        scene.turn()
    before = len(reader.arrivals)
    reader.grant(1)
    scene.turn()
    assert len(reader.arrivals) == before + 1


def test_a_drain_waits_for_the_disk() -> None:
    scene = cold(5)
    reader = attach(scene, 0, start="first")
    reader.drain(100)
    scene.turn()
    assert (reader.arrivals, reader.credit) == ([], 100)
    scene.settle()
    assert offsets(reader) == list(range(5))
    assert reader.credit == 0


def test_a_reader_that_left_before_the_answer_disturbs_nobody() -> None:
    scene = cold(5)
    reader = attach(scene, start="first")
    reader.leave()
    other = scene.reader(start="first")
    assert reader.arrivals == []
    assert offsets(other) == list(range(5))


def test_a_stream_that_was_deleted_before_the_answer_sends_nothing() -> None:
    scene = cold(5)
    reader = attach(scene, start="first")
    scene.stream.close("amqp:resource-deleted", "gone")
    scene.settle()
    assert reader.arrivals == []
    assert scene.harness.faults == []


def test_memory_goes_on_where_the_disk_ends() -> None:
    scene = cold(10)
    reader = attach(scene, start=4)
    scene.append(b"10", b"11")
    assert offsets(reader) == list(range(4, 12))


@pytest.mark.parametrize("lost", [[0], [3], [9], [0, 1, 2], [4, 5], [8, 9], list(range(10))])
def test_damaged_frames_are_left_out_and_shift_no_offset(lost: list[int]) -> None:
    scene = cold(30)
    damage(scene, *lost)
    expected = [number for number in range(30) if number // 3 not in lost]
    reader = scene.reader(start="first")
    assert offsets(reader) == expected
    assert bodies(reader) == [b"%d" % number for number in expected]
    scene.append(b"30")
    assert offsets(reader) == [*expected, 30]
    assert scene.stream.counts()["damaged"] == len(lost)
    assert sorted(name for name, _ in scene.harness.faults) == ["log#0"] * len(lost)
    assert "offset" in str(scene.harness.faults[0][1])


@pytest.mark.parametrize("limit", [1, 300, 600])
def test_damaged_frames_are_left_out_however_little_is_read_at_once(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(stream_readers, "READ_BYTES", limit)
    monkeypatch.setattr(stream_readers, "LEAST_READ_BYTES", limit)
    scene = cold(30)
    damage(scene, 0, 1, 4, 9)
    assert offsets(scene.reader(start="first")) == [n for n in range(30) if n // 3 not in (0, 1, 4, 9)]


@pytest.mark.parametrize("start", range(8, 20))
def test_a_reader_may_begin_at_what_is_damaged(start: int) -> None:
    scene = cold(30)
    damage(scene, 3, 4)
    assert offsets(scene.reader(start=start)) == [n for n in range(start, 30) if n // 3 not in (3, 4)]


def test_a_damaged_frame_is_reported_once() -> None:
    scene = cold(30)
    damage(scene, 2)
    for _ in range(3):
        scene.reader(start="first")
    assert scene.stream.counts()["damaged"] == len(scene.harness.faults) == 1


def test_readers_of_frames_see_the_gap() -> None:
    scene = cold(12)
    damage(scene, 1)
    reader = scene.frames(from_=0, to=12)
    found = [Frame(payload) for payload in reader.payloads]
    assert [(frame.first_offset, frame.next_offset) for frame in found] == [(0, 3), (6, 9), (9, 12)]
    assert reader.is_detached


def test_a_range_whose_frames_are_all_damaged_ends() -> None:
    scene = cold(12)
    damage(scene, 1, 2)
    reader = scene.frames(from_=3, to=9)
    assert reader.arrivals == []
    assert reader.is_detached


def test_all_partitions_are_read_at_the_same_time() -> None:
    scene = cold(9, partitions=3)
    reader = attach(scene, start="first")
    assert scene.harness.storage.waiting_reads == 3
    scene.settle()
    assert sorted(offsets(reader)) == sorted([*range(9)] * 3)


def test_data_without_a_time_index_are_read_from_any_offset() -> None:
    scene = cold(30)
    storage = scene.harness.storage
    for key, _ in list(storage.scan_all(Table.TIME)):
        storage._write(Table.TIME, key, None)
    again = StreamScene(harness=CoreHarness(storage.crash()))
    for start in (0, 1, 7, 29):
        assert offsets(again.reader(start=start)) == list(range(start, 30))
