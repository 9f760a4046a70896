"""Who needs which frames and rows of a log that several owners share, on disk and in memory."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.messaging.log.frame_sets import FrameCounts, FrameRanges
from enmasse.messaging.log.holders import Holders, encode_holders

ROWS = st.sets(st.integers(0, 30), min_size=1).map(lambda rows: tuple(sorted(rows)))
OWNERS = st.dictionaries(st.integers(1, (1 << 32) - 1), ROWS, min_size=1, max_size=20)


def by_rows(owners: dict[int, tuple[int, ...]]) -> dict[tuple[int, ...], list[int]]:
    sets: dict[tuple[int, ...], list[int]] = {}
    for owner, rows in owners.items():
        sets.setdefault(rows, []).append(owner)
    return sets


@given(OWNERS, st.integers(0, 100))
def test_a_record_says_who_has_which_rows(owners: dict[int, tuple[int, ...]], other: int) -> None:
    holders = Holders(encode_holders(by_rows(owners)))
    assert len(holders) == len(owners)
    assert dict(holders.items()) == owners
    assert {owner: holders.rows_of(owner) for owner in owners} == owners
    assert holders.rows_of(other) == owners.get(other, ())


def test_a_message_for_ten_has_a_small_record() -> None:
    assert len(encode_holders({(0,): list(range(100, 110))})) == 60
    assert len(encode_holders({(row,): [100 + row] for row in range(1_000)})) == 8 + 1_000 * 20


@given(OWNERS, st.data())
def test_a_record_that_was_cut_off_is_none(owners: dict[int, tuple[int, ...]], data: st.DataObject) -> None:
    record = encode_holders(by_rows(owners))
    with pytest.raises(ValueError, match="record of owners"):
        Holders(record[: data.draw(st.integers(0, len(record) - 1))])


class Frames:
    """Frames one after the other, three offsets each."""

    @staticmethod
    def ranges(frames: set[int]) -> list[tuple[int, int]]:
        held = FrameRanges()
        held.load([(3 * frame, 3 * frame + 3) for frame in sorted(frames)])
        return list(held)


STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=40)


@given(STEPS, st.integers(0, 40))
def test_ranges_are_those_of_the_frames_that_are_needed(steps: list[tuple[bool, int]], offset: int) -> None:
    held, frames = FrameRanges(), set[int]()
    for is_added, frame in steps:
        if not is_added:
            held.remove(3 * frame, 3 * frame + 3)
            frames.discard(frame)
        elif frame not in frames:
            held.add(3 * frame, 3 * frame + 3)
            frames.add(frame)
    offsets = {3 * frame + row for frame in frames for row in range(3)}
    assert list(held) == Frames.ranges(frames)
    assert bool(held) == bool(frames)
    assert (offset in held) == (offset in offsets)
    following = held.following(offset)
    assert following == min((one for one in offsets if one >= offset), default=None)
    if following is not None:
        ends = [end for _, end in held if end > following]
        assert held.reach(following, 0) == ends[0]
        assert held.reach(following, 1_000) == ends[-1]
    held.remove_from(offset - offset % 3)
    assert list(held) == Frames.ranges({frame for frame in frames if frame < offset // 3})


@given(st.lists(st.tuples(st.sampled_from(["add", "change", "remove", "cut"]), st.integers(0, 200)), max_size=300))
def test_counts_are_kept_by_frame(steps: list[tuple[str, int]]) -> None:
    counts, expected, following = FrameCounts(), Counter[int](), 0
    there: set[int] = set()
    for step, number in steps:
        first = 3 * (number % (following // 3 + 1))
        if step == "add":
            counts.append(following, number, has_record=False)
            expected[following] = number
            there.add(following)
            following += 3
        elif step == "change" and first in there:
            expected[first] += 1
            assert counts.change(first, 1) == expected[first]
        elif step == "remove":
            counts.remove(first)
            there.discard(first)
        elif step == "cut" and number < 20:
            following = min(following, first)
            counts.remove_from(following)
            there = {one for one in there if one < following}
    assert len(counts) == len(there)
    assert counts.within(3, 300) == sorted(one for one in there if 3 <= one < 300)
    for first in range(0, following + 3, 3):
        assert counts.get(first) == (expected[first] if first in there else 0)


def test_a_frame_that_was_removed_counts_for_nothing() -> None:
    counts = FrameCounts()
    for number in range(1_000):
        counts.append(number, 2, has_record=number % 2 == 0)
    for number in range(900):
        counts.remove(number)
        assert (counts.change(number, -1), counts.has_record(number)) == (0, False)
    counts.note_record(999)
    assert [counts.has_record(number) for number in (998, 999, 997)] == [True, True, False]
    assert len(counts._firsts) <= 250
