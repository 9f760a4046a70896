"""Places that are shared: nobody keeps more than others who want some."""

from __future__ import annotations

import pytest

from enmasse.net.shares import Owner, Shares


def filled(most: int, *owners: Owner) -> Shares[int]:
    shares: Shares[int] = Shares(most)
    for number, owner in enumerate(owners):
        shares.take(owner, number)
    return shares


def test_a_lone_owner_has_all_places_and_gives_them_up_in_their_order() -> None:
    shares = filled(4, *[("a",)] * 4)
    assert shares.is_full
    assert list(shares.richer_than(("a",))) == []
    assert list(shares.richer_than(("b",))) == [0, 1, 2, 3]


def test_nobody_gives_way_to_one_who_would_have_more() -> None:
    shares = filled(4, ("a",), ("a",), ("b",), ("b",))
    assert list(shares.richer_than(("a",))) == []
    assert list(shares.richer_than(("b",))) == []
    assert list(shares.richer_than(("c",))) == [0, 1]
    assert shares.leave(("a",), 0)
    assert not shares.leave(("a",), 0)
    assert not shares.is_full
    assert list(shares.richer_than(("c",))) == [2, 3]


def test_users_share_before_their_addresses_do() -> None:
    many = [("eve", str(number)) for number in range(6)]
    shares = filled(8, *many, ("ann", "home"), ("ann", "work"))
    assert list(shares.richer_than(("ann", "train"))) == [0], "who comes from many addresses has no more for that"
    assert list(shares.richer_than(("eve", "new"))) == []
    shares = filled(3, ("ann", "home"), ("ann", "home"), ("ann", "work"))
    assert list(shares.richer_than(("ann", "work"))) == []
    assert list(shares.richer_than(("ann", "train"))) == [0, 1]


@pytest.mark.parametrize("seed", range(3))
def test_whoever_asks_often_enough_comes_to_have_an_equal_share(seed: int) -> None:
    shares: Shares[int] = Shares(30)
    held: dict[int, Owner] = {}
    for number in range(120):
        # The greedy one asks six times as often as both others.
        owner = ((("greedy",), ("one",), ("two",))[min(2, max(0, (number + seed) % 8 - 5))],)[0]
        if shares.is_full:
            leaver = next(shares.richer_than(owner), None)
            if leaver is None:
                continue
            shares.leave(held.pop(leaver), leaver)
        shares.take(owner, number)
        held[number] = owner
    assert [sum(owner == (name,) for owner in held.values()) for name in ("greedy", "one", "two")] == [10, 10, 10]
