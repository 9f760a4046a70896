"""Small frames of a stream become larger ones, and nobody who reads notices."""

from __future__ import annotations

import random

import pytest

from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.storage import Table
from enmasse.messaging.streams.merging import FULL_ROWS, LARGE_BYTES, LARGE_ROWS, RUN_FRAMES, Merging, Span
from tests.support.stream_scene import StreamScene, bodies, offsets


def numbers(scene: StreamScene, start: int = 0) -> list[int]:
    return [int(body) for body in bodies(scene.reader(start=start))]


def fill(scene: StreamScene, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        scene.append(b"%d" % number)


# Which frames


class Log:
    """Frames and what ``Merging`` makes of them."""

    def __init__(self) -> None:
        self.merging = Merging()
        self.frames: list[Span] = []
        self.rewritten: dict[int, int] = {}
        """How often a row's frame was merged, by offset."""

    def add(self, rows: int, size: int = 0) -> None:
        first = self.frames[-1].end if self.frames else 0
        span = Span(first, first + rows, size or rows * 100)
        self.frames.append(span)
        self.merging.add(span)

    def merge(self) -> Span | None:
        run = self.merging.run()
        if run is not None:
            inside = [span for span in self.frames if run.first <= span.first < run.end]
            assert (inside[0].first, inside[-1].end) == (run.first, run.end)
            assert 2 <= len(inside) <= RUN_FRAMES
            assert not any(span.is_large for span in inside)
            at = self.frames.index(inside[0])
            self.frames[at : at + len(inside)] = [run]
            for offset in range(run.first, run.end):
                self.rewritten[offset] = self.rewritten.get(offset, 0) + 1
            self.merging.merged(run)
        return run


def test_single_rows_become_full_frames_in_two_rounds() -> None:
    log = Log()
    for _ in range(3 * FULL_ROWS):
        log.add(1)
        log.merge()
    sizes = [span.end - span.first for span in log.frames]
    assert sum(size >= LARGE_ROWS for size in sizes) >= 2
    assert len(sizes) < 2 * RUN_FRAMES + 8
    assert max(log.rewritten.values()) == 2


def test_large_frames_are_left_alone() -> None:
    log = Log()
    for _ in range(100):
        log.add(LARGE_ROWS)
        log.add(1, LARGE_BYTES)
        assert log.merge() is None


def test_small_frames_before_a_large_one_are_merged_as_they_are() -> None:
    log = Log()
    for _ in range(5):
        log.add(1)
    assert log.merge() is None
    log.add(LARGE_ROWS)
    assert log.merge() == (0, 5, 500)
    assert [span.end - span.first for span in log.frames] == [5, LARGE_ROWS]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_runs_are_adjacent_small_and_rewritten_twice_at_most(seed: int) -> None:
    rng = random.Random(seed)
    log = Log()
    low = 0
    for _ in range(1_000):
        log.add(rng.choice((1, 1, 1, 10, 100, 1_000, 3_000)))
        if rng.random() < 0.8:
            log.merge()
        if rng.random() < 0.01:
            low = rng.choice(log.frames).first
            log.merging.forget(low)
            log.frames = [span for span in log.frames if span.first >= low]
    while log.merge() is not None:
        pass
    assert max(log.rewritten.values()) <= 2
    assert all(a.end == b.first for a, b in zip(log.frames, log.frames[1:], strict=False))


# In a stream


def test_small_frames_are_merged_with_a_later_batch() -> None:
    scene = StreamScene()
    fill(scene, RUN_FRAMES)
    assert len(scene.stored()) == RUN_FRAMES
    fill(scene, 1, RUN_FRAMES)
    assert [frame.rows for frame in scene.stored()] == [RUN_FRAMES, 1]
    assert numbers(scene) == list(range(RUN_FRAMES + 1))


def test_an_idle_stream_writes_nothing_to_merge() -> None:
    scene = StreamScene()
    fill(scene, RUN_FRAMES)
    scene.harness.advance(100.0)
    assert scene.harness.core.is_idle
    assert not scene.harness.storage.pending


def test_the_index_keeps_step_with_the_frames() -> None:
    scene = StreamScene()
    fill(scene, 200)
    firsts = [int.from_bytes(key[-8:], "big") for key, _ in scene.records(Table.TIME)]
    assert firsts == [frame.first_offset for frame in scene.stored()]


def test_small_frames_are_merged_after_a_restart_too() -> None:
    scene = StreamScene()
    fill(scene, RUN_FRAMES - 4)
    again = scene.restart()
    fill(again, 6, RUN_FRAMES - 4)
    assert len(again.stored()) < 6
    assert numbers(again) == list(range(RUN_FRAMES + 2))


def test_counters_do_not_change_by_merging() -> None:
    scene = StreamScene()
    fill(scene, RUN_FRAMES + 10)
    counts = scene.stream.counts()
    again = scene.restart().stream.counts()
    for name in ("messagesStored", "bytesStored", "partitionMarks"):
        assert counts[name] == again[name]


def test_a_merge_whose_batch_failed_is_tried_again() -> None:
    scene = StreamScene()
    fill(scene, RUN_FRAMES)
    scene.stream.partitions[0].append(b"\x00\x53\x75\xa0\x03100", None)
    scene.harness.fail()
    assert len(scene.stored()) == RUN_FRAMES
    scene.harness.advance(PAUSE_S)
    fill(scene, 2, RUN_FRAMES)
    assert scene.stored()[0].rows == RUN_FRAMES
    assert numbers(scene) == list(range(RUN_FRAMES + 2))


@pytest.mark.parametrize("start", [0, 1, 30, 63, 64, 65, 100, 199])
def test_a_reader_begins_inside_of_a_merged_frame(start: int) -> None:
    scene = StreamScene()
    fill(scene, 200)
    for found in (scene, scene.restart()):
        assert offsets(found.reader(start=start)) == list(range(start, 200))


@pytest.mark.parametrize("credit", [1, 7, 40])
def test_a_reader_that_is_among_them_while_frames_are_merged_misses_nothing(credit: int) -> None:
    scene = StreamScene()
    fill(scene, 60)
    again = scene.restart()
    reader = again.reader(credit, start="first")
    fill(again, 140, 60)
    again.stream.partitions[0].tail.forget(1 << 40)
    while len(reader.arrivals) < 200:
        before = len(reader.arrivals)
        reader.grant(credit)
        again.settle()
        assert len(reader.arrivals) > before
    assert offsets(reader) == list(range(200))


def test_a_damaged_frame_is_not_merged_and_costs_only_its_own_rows() -> None:
    scene = StreamScene()
    fill(scene, 20)
    key, value = scene.records(Table.FRAME)[7]
    scene.harness.storage.damage(Table.FRAME, key, value[:-1] + b"\x55")
    fill(scene, 180, 20)
    again = scene.restart()
    assert numbers(again) == [number for number in range(200) if number != 7]
    assert again.stream.counts()["damaged"] == 1
