from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from enmasse.errors import UnavailableError
from enmasse.messaging.log.frame import FrameError, encode_frame
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.errors import DataLossError, StreamUnavailableError
from enmasse.pipeline.source.offsets import PartitionState, Span, StreamState
from enmasse.pipeline.source.reading import read_span


class Stored:
    """A stream of ten rows a frame, with a connection that can break."""

    def __init__(self, rows: int, *, low: int = 0, stream: str = "s1") -> None:
        self.stream, self.low, self.rows = stream, low, rows
        self.frames_until_break = -1
        self.missing: set[int] = set()
        self.attempts: list[int] = []
        self.away = 0
        self.low_later: int | None = None
        self.damaged = -1

    def state(self) -> StreamState:
        if self.away:
            self.away -= 1
            raise UnavailableError("away")
        return StreamState(self.stream, {0: PartitionState(self.low, self.rows)})

    def frames(self, partition: int, start: int, end: int) -> Generator[bytes, None, None]:
        assert partition == 0
        self.attempts.append(start)
        if self.low_later is not None:
            self.low = self.low_later
        for first in range(start - start % 10, min(end, self.rows), 10):
            if first in self.missing:
                continue
            if self.frames_until_break == 0:
                self.frames_until_break = -1
                raise UnavailableError("the node went away")
            self.frames_until_break -= 1
            rows = range(first, min(first + 10, self.rows))
            nothing = [b""] * len(rows)
            data = encode_frame(first, [0] * len(rows), nothing, nothing, [b"%d" % n for n in rows])
            yield data[:-1] + b"!" if first == self.damaged else data


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def backoff(self) -> Backoff:
        return Backoff(60, clock=lambda: self.now, sleep=self.sleep)


def read(stored: Stored, start: int, end: int, *, fail: bool = True) -> list[int]:
    def rows() -> Iterator[int]:
        span = Span("s1", 0, start, end)
        for batch in read_span(span, lambda: stored, fail_on_data_loss=fail, backoff=Clock().backoff()):
            yield from batch.column("offset").to_pylist()

    return list(rows())


def test_exactly_the_range_is_read() -> None:
    assert read(Stored(100), 13, 57) == list(range(13, 57))


def test_reading_goes_on_where_the_connection_broke() -> None:
    stored = Stored(100)
    stored.frames_until_break = 3
    assert read(stored, 5, 95) == list(range(5, 95))
    assert stored.attempts == [5, 30]


def test_a_node_that_is_away_for_a_while_is_waited_for() -> None:
    stored = Stored(100)
    stored.away = 10
    assert read(stored, 0, 20) == list(range(20))


def test_a_node_that_stays_away_ends_the_task() -> None:
    stored = Stored(100)
    stored.away = 10_000
    with pytest.raises(StreamUnavailableError, match="60 s: away"):
        read(stored, 0, 20)


def test_rows_below_the_low_water_mark_are_an_error_that_names_them() -> None:
    with pytest.raises(DataLossError, match="partition 0: offsets 5 to 29"):
        read(Stored(100, low=30), 5, 50)


def test_rows_that_are_gone_are_skipped_when_that_is_wanted() -> None:
    assert read(Stored(100, low=30), 5, 50, fail=False) == list(range(30, 50))
    assert read(Stored(100, low=80), 5, 50, fail=False) == []


def test_rows_that_the_node_leaves_out_are_missed() -> None:
    stored = Stored(100)
    stored.missing = {20, 30, 60}
    with pytest.raises(DataLossError, match="offsets 20 to 39"):
        read(stored, 0, 65)
    assert read(stored, 0, 65, fail=False) == [*range(20), *range(40, 60)]


def test_rows_that_the_node_leaves_out_at_the_end_are_missed_too() -> None:
    stored = Stored(100)
    stored.missing = {60}
    with pytest.raises(DataLossError, match="offsets 60 to 64"):
        read(stored, 0, 65)


def test_rows_that_retention_takes_while_they_are_read_are_missed() -> None:
    stored = Stored(100)
    stored.missing = {20, 30}
    stored.low_later = 40
    with pytest.raises(DataLossError, match="offsets 20 to 39"):
        read(stored, 0, 60)
    stored.low = 0
    assert read(stored, 0, 60, fail=False) == [*range(20), *range(40, 60)]


def test_a_damaged_frame_ends_the_task_and_is_named() -> None:
    stored = Stored(100)
    stored.damaged = 30
    with pytest.raises(FrameError, match="offset 30"):
        read(stored, 0, 60)


def test_a_stream_that_was_made_anew_is_not_taken_for_the_old_one() -> None:
    with pytest.raises(DataLossError):
        read(Stored(100, stream="s2"), 0, 10)
    assert read(Stored(100, stream="s2"), 0, 10, fail=False) == []


def test_rows_that_the_node_does_not_have_are_a_gap_at_the_end() -> None:
    with pytest.raises(DataLossError, match="offsets 100 to 119"):
        read(Stored(100), 90, 120)
    assert read(Stored(100), 90, 120, fail=False) == list(range(90, 100))
