from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.pipeline.errors import DataLossError, OptionError
from enmasse.pipeline.source.bounds import Moment
from enmasse.pipeline.source.offsets import (
    Gap,
    PartitionState,
    Position,
    StreamState,
    find_gaps,
    plan_end,
    plan_spans,
    resolve_bounds,
)


def state(*bounds: tuple[int, int], stream: str = "s1") -> StreamState:
    return StreamState(stream, {n: PartitionState(low, after) for n, (low, after) in enumerate(bounds)})


def at(*offsets: int, stream: str = "s1") -> Position:
    return Position(stream, dict(enumerate(offsets)))


def test_a_state_is_read_from_the_nodes_message() -> None:
    parsed = StreamState.parse({"stream": "u1", "partitions": [[0, 5, 9, "amqp://h:1"], [1, 0, 0, None]]})
    assert parsed.partitions == {0: PartitionState(5, 9), 1: PartitionState(0, 0)}
    assert parsed.starts is None


def test_a_state_may_tell_bytes_and_where_a_moment_lies() -> None:
    body = {"stream": "u1", "partitions": [[0, 5, 9, ""], [1, 0, 0, ""]], "bytes": [400, 0], "starts": [7, 0]}
    parsed = StreamState.parse(body)
    assert [parsed.partitions[n].row_bytes for n in (0, 1)] == [100, 0]
    assert parsed.starts == {0: 7, 1: 0}


@pytest.mark.parametrize("body", [None, {}, {"stream": "u", "partitions": [[1, 2]]}, b"x"])
def test_any_other_message_is_refused(body: object) -> None:
    with pytest.raises(ValueError, match="offsets"):
        StreamState.parse(body)


def test_a_position_survives_sparks_json() -> None:
    position = at(3, 1 << 40)
    assert Position.from_json(json.loads(json.dumps(position.to_json()))) == position


def test_a_foreign_checkpoint_is_refused() -> None:
    with pytest.raises(OptionError):
        Position.from_json({"0": 12})


def test_bounds_are_words_or_offsets() -> None:
    stored = state((5, 9), (0, 4))
    assert resolve_bounds("o", "earliest", stored) == at(5, 0)
    assert resolve_bounds("o", "latest", stored) == at(9, 4)
    assert resolve_bounds("startingOffsets", {0: 7}, stored) == at(7, 0)
    assert resolve_bounds("endingOffsets", {0: 7}, stored) == at(7, 4)
    with pytest.raises(OptionError, match="partition 2"):
        resolve_bounds("o", {2: 7}, stored)


def test_moments_are_what_the_stream_says_they_are() -> None:
    moments = {Moment(1): {0: 6, 1: 3}, Moment(2): {0: 8}}
    assert resolve_bounds("o", Moment(1), state((5, 9), (0, 4)), moments) == at(6, 3)
    assert resolve_bounds("o", {0: Moment(2), 1: 2}, state((5, 9), (0, 4)), moments) == at(8, 2)


def test_a_limit_in_bytes_counts_a_row_as_the_mean_of_its_partition() -> None:
    stored = StreamState("s1", {0: PartitionState(0, 100, 10_000), 1: PartitionState(0, 300, 10_000)})
    # 50 rows are in proportion 12.5 of 100 bytes and 37.5 of 33.3.
    assert sum(plan_end(at(0, 0), stored, max_bytes=2_500).next.values()) == 50
    assert sum(plan_end(at(0, 0), stored, max_bytes=2_500, max_rows=8).next.values()) == 8
    assert plan_end(at(0, 0), stored, max_bytes=20_000) == at(100, 300)
    assert sum(plan_end(at(0, 0), stored, max_bytes=1).next.values()) == 1
    assert plan_end(at(0, 0), state((0, 9), (0, 9)), max_bytes=1) == at(9, 9)


def test_without_a_limit_everything_is_admitted() -> None:
    assert plan_end(at(0, 2), state((0, 10), (0, 30))) == at(10, 30)


def test_a_limit_is_spread_in_proportion_to_the_backlogs() -> None:
    assert plan_end(at(0, 0), state((0, 100), (0, 300)), max_rows=40) == at(10, 30)


def test_a_small_backlog_is_not_starved() -> None:
    end = plan_end(at(0, 0, 0), state((0, 1000), (0, 1000), (0, 1000)), max_rows=2)
    assert sum(end.next.values()) == 2


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 500)), min_size=1, max_size=6),
    st.integers(1, 300),
)
def test_a_batch_never_exceeds_its_limit_and_uses_all_of_it(
    partitions: list[tuple[int, int, int]], limit: int
) -> None:
    stored = state(*[(low, low + read + left) for low, read, left in partitions])
    start = at(*[low + read for low, read, _ in partitions])
    end = plan_end(start, stored, max_rows=limit)
    taken = [end.next[n] - start.next[n] for n in start.next]
    assert all(0 <= rows <= left for rows, (_, _, left) in zip(taken, partitions, strict=True))
    assert sum(taken) == min(limit, sum(left for _, _, left in partitions))


def test_a_batch_never_goes_beyond_its_target() -> None:
    assert plan_end(at(0, 0), state((0, 100), (0, 5)), target=at(7, 5)) == at(7, 5)
    assert plan_end(at(7, 5), state((0, 100), (0, 9)), target=at(7, 5)) == at(7, 5)


def test_a_start_below_the_low_water_mark_is_a_gap_and_the_batch_begins_above_it() -> None:
    stored = state((10, 20), (0, 5))
    assert find_gaps(at(4, 5), stored) == [Gap(0, 4, 10)]
    assert plan_end(at(4, 5), stored, max_rows=3) == at(13, 5)
    assert plan_spans(at(4, 5), at(13, 5), stored)[0][1:4] == (0, 10, 13)


def test_a_stream_that_went_back_is_a_gap_and_reading_goes_on_where_it_is() -> None:
    stored = state((0, 20))
    assert find_gaps(at(25), stored) == [Gap(0, 20, 25)]
    assert plan_end(at(25), stored) == at(20)


def test_nothing_new_leaves_the_position_as_it_is() -> None:
    assert plan_end(at(10, 30), state((0, 10), (0, 30))) == at(10, 30)


def test_an_address_made_anew_is_data_loss_and_is_read_from_its_beginning() -> None:
    anew = state((0, 3), stream="s2")
    with pytest.raises(DataLossError, match="s1"):
        find_gaps(at(100), anew)
    end = plan_end(at(100), anew)
    assert end == at(3, stream="s2")
    assert [span[:4] for span in plan_spans(at(100), end, anew)] == [("s2", 0, 0, 3)]


def test_ranges_are_split_until_there_are_enough() -> None:
    spans = plan_spans(at(0, 0), at(100, 10), state((0, 100), (0, 10)), min_partitions=4)
    assert len(spans) >= 4
    covered = [(s.partition, offset) for s in spans for offset in range(s.start, s.end)]
    assert covered == [(0, n) for n in range(100)] + [(1, n) for n in range(10)]


def test_the_same_positions_give_the_same_ranges() -> None:
    stored = state((0, 1000), (0, 10))
    plans = [plan_spans(at(3, 4), at(900, 9), stored, min_partitions=5) for _ in range(2)]
    assert plans[0] == plans[1]
