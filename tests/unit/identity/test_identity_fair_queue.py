"""A queue with a bound: whose turn it is, and who finds a place."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from enmasse.identity.fair_queue import FairQueue


def drained(queue: FairQueue[str]) -> list[str]:
    taken = []
    while (item := queue.take()) is not None:
        taken.append(item)
    return taken


def fill(queue: FairQueue[str], space: str, host: str, most: int = 10_000) -> int:
    """Put as many as there are places for; how many."""
    return next((number for number in range(most) if not queue.put(space, host, f"{space} {host} {number}")), most)


def test_what_comes_first_from_a_host_goes_first() -> None:
    queue: FairQueue[str] = FairQueue(100)
    for item in "abc":
        assert queue.put("shop", "host", item)
    assert len(queue) == 3
    assert drained(queue) == ["a", "b", "c"]
    assert len(queue) == 0
    assert queue.take() is None


def test_a_newcomer_waits_for_one_of_each_host_and_space_at_most() -> None:
    queue: FairQueue[str] = FairQueue(1_000)
    fill(queue, "shop", "flood", 100)
    queue.put("shop", "other", "other")
    queue.put("factory", "another", "another")
    first = [queue.take() for _ in range(4)]
    assert "another" in first[:2]
    assert "other" in first


def test_a_host_has_a_third_of_the_places_a_space_half_and_a_newcomer_always_some() -> None:
    queue: FairQueue[str] = FairQueue(1_200)
    assert fill(queue, "shop", "first") == 400
    for number in range(50):
        fill(queue, "shop", f"host {number}")
    assert 580 <= len(queue) <= 600
    assert fill(queue, "factory", "first") >= 190
    for number in range(6):
        assert fill(queue, f"space {number}", "host") >= 1, number


def test_places_come_back() -> None:
    queue: FairQueue[str] = FairQueue(9)
    for _ in range(20):
        assert fill(queue, "shop", "host") == 3
        assert len(drained(queue)) == 3


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=200), st.integers(1, 60))
def test_nothing_is_lost_and_the_bound_holds(arrivals: list[tuple[str, str]], most: int) -> None:
    queue: FairQueue[str] = FairQueue(most)
    placed: Counter[str] = Counter()
    for number, (space, host) in enumerate(arrivals):
        placed[space + host] += queue.put(space, host, space + host)
        assert len(queue) <= most
        if number % 5 == 4 and (item := queue.take()) is not None:
            placed[item] -= 1
    assert Counter(drained(queue)) == +placed
