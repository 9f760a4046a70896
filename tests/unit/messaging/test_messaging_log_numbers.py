"""The numbers of logs at a node: drawn from what it was leased, once that is on disk."""

from __future__ import annotations

import pytest

from enmasse.messaging.errors import AttachError
from enmasse.messaging.log.numbers import FIRST_VOLATILE_LOG, MANY, LogNumbers, LogRangeError
from enmasse.testing.ports import CoreHarness


def loaded(harness: CoreHarness) -> LogNumbers:
    harness.core.log_numbers.load(harness.storage)
    return harness.core.log_numbers


def take(harness: CoreHarness, *ranges: tuple[int, int], given: int = 0) -> None:
    numbers = harness.core.log_numbers
    numbers.check(ranges)
    harness.core.store([numbers.taking(ranges, given)], lambda _reason: numbers.take(ranges, given))
    harness.commit()


def test_a_node_counts_by_itself_until_it_is_leased_a_range_and_in_its_ranges_from_then_on() -> None:
    harness = CoreHarness()
    assert [harness.core.new_log()[0] for _ in range(3)] == [1, 2, 3]
    take(harness, (1, 6), (100, 102), given=200)
    drawn = [harness.core.new_log() for _ in range(3)]
    assert [number for number, _ in drawn] == [4, 5, 100]
    harness.core.store([drawn[-1][1]], lambda _reason: None)
    harness.commit()
    again = harness.restarted()
    numbers = loaded(again)
    assert (numbers.next, numbers.ranges, numbers.given) == (101, [(100, 102)], 200)
    assert (numbers.draw(), numbers.left) == (101, 0)
    with pytest.raises(AttachError, match="control, which leases them, has not given it more yet"):
        numbers.draw()
    assert "none is left" in numbers.problem
    take(again, (150, 160), given=220)
    assert (numbers.draw(), numbers.problem) == (150, "")


@pytest.mark.parametrize(
    ("first", "end", "why"),
    [
        (3, 12, "used"),
        (18, 25, "overlaps 10 to 20"),
        (20, 20, "no range"),
        (0, 5, "no range"),
        (30, FIRST_VOLATILE_LOG + 1, "no range"),
    ],
)
def test_a_range_that_overlaps_what_was_used_or_is_held_is_refused(first: int, end: int, why: str) -> None:
    harness = CoreHarness()
    take(harness, (10, 20))
    numbers = harness.core.log_numbers
    assert numbers.draw() == 10
    with pytest.raises(LogRangeError, match=why):
        numbers.check([(first, end)])
    numbers.check([(10, 20), (20, 30)])


def test_half_of_all_numbers_are_a_reason_to_warn_and_none_is_drawn_beyond_the_last() -> None:
    numbers = LogNumbers()
    assert numbers.problem == ""
    numbers.next = MANY
    assert "are used up" in numbers.problem
    numbers.next = FIRST_VOLATILE_LOG - 1
    assert numbers.draw() == FIRST_VOLATILE_LOG - 1
    with pytest.raises(AttachError):
        numbers.draw()
