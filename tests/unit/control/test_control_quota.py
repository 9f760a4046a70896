"""Quota: who has a place, who waits, and the arithmetic of EnMasse 1.0's credits."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.control.spaces.credits import CreditPlaces
from enmasse.control.spaces.quota import Claim, CountedPlaces, Place, Places
from tests.support.chance import examples

if TYPE_CHECKING:
    from collections.abc import Callable

LIMITS = {"router": 2.0, "broker": 2.0, "aggregate": 2.0}


def credits_of(limits: dict[str, float] | None = None) -> CreditPlaces:
    return CreditPlaces("default/shop", limits if limits is not None else LIMITS, "p")


def queue(router: float, broker: float, partitions: int = 1, address: str = "q") -> Claim:
    return Claim(address, "queue", plan="x", router=router, broker=broker, partitions=partitions)


def fitting(places: Places, claim: Callable[[int], Claim], tries: int = 30) -> int:
    """How many objects of a kind find a place."""
    return sum(places.acquire(f"k{number}", number, claim(number)) is not None for number in range(tries))


# The documented examples


def test_three_queues_fit_and_the_fourth_would_need_a_second_broker() -> None:
    places = credits_of()
    assert fitting(places, lambda _: queue(0.2, 0.3), 4) == 3
    assert places.usage() == {"router": 1, "broker": 1, "aggregate": 2}
    assert places.refusal("k3") == (
        "Quota exceeded for resource aggregate: 3 would be needed, the limit is 2 of plan 'p'"
    )


def test_ten_anycast_addresses_fit() -> None:
    places = credits_of()
    assert fitting(places, lambda _: Claim("a", "anycast", router=0.2), 11) == 10
    assert "aggregate" in places.refusal("k10") or "router" in places.refusal("k10")


def test_ten_tenths_are_one() -> None:
    places = credits_of({"router": 1})
    assert fitting(places, lambda _: Claim("a", "anycast", router=0.1), 11) == 10


def test_a_sharded_queue_has_its_parts_on_different_brokers() -> None:
    places = credits_of({"broker": 3})
    place = places.acquire("big", 1, queue(0, 2.5))
    assert place is not None
    assert len(set(place.brokers)) == 3
    assert places.acquire("more", 2, queue(0, 0.2)) is None
    assert places.acquire("fills", 3, queue(0, 0.1)) is not None
    assert places.usage()["broker"] == 3


def test_a_partitioned_queue_costs_its_credit_in_all() -> None:
    places = credits_of({})
    place = places.acquire("parts", 1, queue(0, 1.0, partitions=3))
    assert place is not None
    assert len(set(place.brokers)) == 3
    assert fitting(places, lambda number: queue(0, 2 / 3, address=f"q{number}"), 3) == 3
    assert places.usage()["broker"] == 3


def test_a_large_topic_has_a_cluster_of_its_own_and_its_subscriptions_spread_over_it() -> None:
    places = credits_of({"broker": 2})
    topic = places.acquire("t", 1, Claim("news", "topic", broker=2.0))
    assert topic is not None
    assert topic.brokers[0].startswith("broker-sharded-")
    assert places.usage()["broker"] == 2
    found = [
        places.acquire(f"s{n}", 2 + n, Claim(f"s{n}", "subscription", topic="news", broker=0.6)) for n in range(3)
    ]
    assert [place and place.brokers[0][-1] for place in found] == ["0", "1", None]
    assert places.usage()["broker"] == 2


def test_a_subscription_sits_with_its_topic_and_is_not_in_the_sum() -> None:
    places = credits_of({"broker": 1})
    topic = places.acquire("t", 1, Claim("news", "topic", broker=0.9))
    reader = places.acquire("s", 2, Claim("s", "subscription", topic="news", broker=1.0))
    assert topic is not None
    assert reader is not None
    assert reader.brokers == topic.brokers
    assert places.usage()["broker"] == 1


def test_dead_letters_cost_nothing() -> None:
    places = credits_of({"router": 0, "broker": 0, "aggregate": 0})
    assert places.acquire("d", 1, Claim("d", "deadletter")) == Place()


def test_one_that_asks_for_more_than_there_is_keeps_what_it_has() -> None:
    places = credits_of({"broker": 1})
    small = places.acquire("q", 1, queue(0, 0.4))
    places.acquire("other", 2, queue(0, 0.4, address="o"))
    assert places.acquire("q", 1, queue(0, 0.7)) is None
    assert places.place_of("q") == small
    assert places.refusal("q").startswith("Quota exceeded for resource broker")
    assert places.give_back("other") == ["q"]
    assert places.acquire("q", 1, queue(0, 0.7)) == small
    assert places.refusal("q") == ""


# What holds for every policy


@pytest.fixture(params=["limits", "credits"])
def two_places(request: pytest.FixtureRequest) -> Places:
    """Room for two objects that claim one half each."""
    if request.param == "limits":
        return CountedPlaces("addresses", {"addresses": 2}, "p")
    return credits_of({"broker": 1})


def test_those_who_waited_longest_come_first(two_places: Places) -> None:
    half = queue(0, 0.5)
    # The order of the calls is not the order of age.
    for key, order in (("a", 1), ("b", 2), ("young", 9), ("old", 3)):
        two_places.acquire(key, order, half)
    assert [two_places.place_of(key) is not None for key in ("a", "b", "young", "old")] == [True, True, False, False]
    assert two_places.refusal("old").startswith("Quota exceeded for resource ")
    assert two_places.give_back("a") == ["old"]
    assert two_places.give_back("unknown") == []
    assert two_places.give_back("b") == ["young"]


def test_narrower_limits_take_nothing_away_and_wider_ones_let_in(two_places: Places) -> None:
    for number, key in enumerate("abc"):
        two_places.acquire(key, number, queue(0, 0.5))
    (resource,) = [name for name in two_places.usage() if name in ("addresses", "broker")]
    assert two_places.relimit({resource: 0}) == []
    assert two_places.place_of("a") is not None
    assert two_places.excess({resource: 0}) != []
    assert two_places.excess({resource: 9}) == []
    assert two_places.relimit({resource: 9}) == ["c"]


def test_one_that_no_longer_waits_gets_no_place(two_places: Places) -> None:
    for number, key in enumerate("abcd"):
        two_places.acquire(key, number, queue(0, 0.5))
    assert two_places.give_back("c") == []
    assert two_places.give_back("a") == ["d"]


def test_places_of_before_a_restart_are_taken_up(two_places: Places) -> None:
    for number, key in enumerate("abc"):
        two_places.hold(key, number, queue(0, 0.5), Place(("broker-1",)))
    assert two_places.place_of("c") is not None  # more than there is room for, but they were there
    assert two_places.acquire("d", 4, queue(0, 0.5)) is None
    assert two_places.give_back("a") == []
    assert two_places.give_back("b") == ["d"]


# Properties

TENTHS = st.integers(0, 25).map(lambda number: number / 10)
CLAIMS = st.builds(
    lambda kind, router, broker, partitions: Claim("x", kind, "", "p", router, broker, partitions),
    st.sampled_from(["anycast", "queue", "topic", "deadletter"]),
    TENTHS,
    TENTHS,
    st.integers(1, 3),
)
ACTIONS = st.lists(st.tuples(st.integers(0, 6), st.none() | CLAIMS), max_size=30)


@settings(max_examples=examples(60), deadline=None)
@given(ACTIONS, st.integers(0, 4), st.integers(0, 4), st.integers(0, 6))
def test_credits_never_exceed_the_limits_and_waiting_ends_when_there_is_room(
    actions: list[tuple[int, Claim | None]], router: int, broker: int, aggregate: int
) -> None:
    limits = {"router": router, "broker": broker, "aggregate": aggregate}
    places = CreditPlaces("default/shop", {name: float(value) for name, value in limits.items()}, "p")
    claims: dict[str, Claim] = {}
    for order, (number, claim) in enumerate(actions):
        key = f"k{number}"
        if claim is None:
            claims.pop(key, None)
            for let_in in places.give_back(key):
                assert let_in in claims
        elif places.acquire(key, order, claim) is not None:
            claims[key] = claim
        else:
            claims.setdefault(key, claim)
        usage = places.usage()
        assert all(usage[name] <= limit for name, limit in limits.items())
        placed = [key for key in claims if places.place_of(key) is not None]
        waiting = [key for key in claims if places.refusal(key)]
        assert set(placed) | set(waiting) == set(claims)
    for key in list(claims):
        places.give_back(key)
    assert places.usage() == {"router": 0, "broker": 0, "aggregate": 0}


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(TENTHS, max_size=12))
def test_what_routers_are_needed_is_the_ceiling_of_the_exact_sum(claimed: list[float]) -> None:
    places = credits_of({})
    for number, credit in enumerate(claimed):
        assert places.acquire(f"k{number}", number, Claim("a", "anycast", router=credit)) is not None
    assert places.usage()["router"] == ceil(sum((Fraction(repr(credit)) for credit in claimed), Fraction()))
