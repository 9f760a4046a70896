"""Times of a stream's messages: they never go back, are indexed, and readers start at one."""

from __future__ import annotations

import pytest

from enmasse.message.types import Timestamp
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.storage import Operation, Table
from enmasse.testing.ports import FIRST_WALL_US
from tests.support.stream_scene import LOG, StreamScene, bodies

FIRST_MS = FIRST_WALL_US // 1000


def every_second(count: int, *, tail: bool = True) -> StreamScene:
    """A stream with one message a second, whose bodies are their seconds."""
    scene = StreamScene()
    for second in range(count):
        scene.append(b"%d" % second)
        scene.harness.advance(1.0)
    return scene if tail else scene.restart()


def times(scene: StreamScene) -> list[int]:
    return [time for frame in scene.stored() for time in frame.timestamps()]


def without_index(scene: StreamScene) -> StreamScene:
    """The stream as the first version would have left it."""
    storage = scene.harness.storage
    operations = [Operation(Table.TIME, key, None) for key, _ in storage.scan_all(Table.TIME)]
    for key, value in storage.scan_all(Table.MARK):
        operations.append(Operation(Table.MARK, key, value[:24]))
    storage.submit(operations)
    storage.commit()
    return scene.restart()


def test_times_never_go_back_when_the_clock_does() -> None:
    scene = every_second(3)
    scene.harness.clock.now = 0.5
    scene.append(b"late")
    assert times(scene) == [FIRST_WALL_US + second * 1_000_000 for second in (0, 1, 2, 2)]


@pytest.mark.parametrize("is_first_version", [False, True])
def test_times_do_not_go_back_over_a_restart_either(is_first_version: bool) -> None:
    scene = every_second(3)
    again = without_index(scene) if is_first_version else scene.restart()
    again.harness.clock.now = 0.0
    again.append(b"late")
    assert times(again)[-1] == FIRST_WALL_US + 2_000_000


def test_the_time_after_a_restart_is_that_of_the_last_row_not_of_the_last_frame() -> None:
    scene = StreamScene()
    for second in range(70):
        scene.append(b"%d" % second)
        scene.harness.advance(1.0)
    assert len(scene.stored()) < 70
    again = scene.restart()
    again.harness.clock.now = 0.0
    again.append(b"late")
    assert times(again) == sorted(times(again))


def test_each_frame_has_an_entry_in_the_index() -> None:
    scene = every_second(5)
    keys = [key for key, _ in scene.records(Table.TIME)]
    assert keys == [
        log_key(LOG, 0, FIRST_WALL_US + second * 1_000_000) + second.to_bytes(8, "big") for second in range(5)
    ]


@pytest.mark.parametrize("tail", [True, False])
@pytest.mark.parametrize(
    ("after_ms", "expected"),
    [(-5_000, 0), (0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2), (8_999, 9), (9_000, 9), (9_001, 10)],
)
def test_a_reader_starts_at_the_first_message_at_or_after_a_time(tail: bool, after_ms: int, expected: int) -> None:
    scene = every_second(10, tail=tail)
    reader = scene.reader(start=Timestamp(FIRST_MS + after_ms))
    scene.append(b"10")
    assert bodies(reader) == [b"%d" % second for second in range(expected, 11)]


def test_a_time_before_1970_is_the_beginning() -> None:
    assert bodies(every_second(2).reader(start=Timestamp(-1))) == [b"0", b"1"]


def test_a_time_that_is_still_to_come_is_waited_for() -> None:
    scene = every_second(3)
    reader = scene.reader(start=Timestamp(FIRST_MS + 4_500))
    for second in range(3, 7):
        scene.append(b"%d" % second)
        scene.harness.advance(1.0)
    assert bodies(reader) == [b"5", b"6"]


@pytest.mark.parametrize("after_ms", [0, 1_500, 59_000])
def test_a_time_is_found_inside_of_merged_frames(after_ms: int) -> None:
    scene = StreamScene()
    for second in range(70):
        scene.append(b"%d" % second)
        scene.harness.advance(1.0)
    assert scene.stored()[0].rows > 1
    expected = [b"%d" % second for second in range(-(-after_ms // 1_000), 70)]
    for found in (scene, scene.restart()):
        assert bodies(found.reader(start=Timestamp(FIRST_MS + after_ms))) == expected


def test_a_time_is_found_by_looking_at_rows_where_there_is_no_index() -> None:
    scene = without_index(every_second(10))
    assert bodies(scene.reader(start=Timestamp(FIRST_MS + 4_000))) == [b"%d" % second for second in range(4, 10)]
    scene.harness.clock.now = 20.0
    scene.append(b"indexed")
    assert bodies(scene.reader(start=Timestamp(FIRST_MS + 8_000))) == [b"8", b"9", b"indexed"]
    assert bodies(scene.reader(start=Timestamp(FIRST_MS + 15_000))) == [b"indexed"]


def test_partitions_have_times_of_their_own() -> None:
    scene = StreamScene(2)
    for second in range(6):
        scene.append(b"%d" % second, partition=second % 2)
        scene.harness.advance(1.0)
    assert sorted(bodies(scene.reader(start=Timestamp(FIRST_MS + 2_500)))) == [b"3", b"4", b"5"]
    assert bodies(scene.reader(start=Timestamp(FIRST_MS + 2_500), partition=1)) == [b"3", b"5"]
