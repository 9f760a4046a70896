"""The retained values of a space: found by patterns, bounded, and forgotten when their time is over."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.messaging.facts import PLAIN, Facts
from enmasse.messaging.limits import SpaceLimits
from enmasse.messaging.patterns import Wild, matches, parse, parse_permission
from enmasse.messaging.retained import EXPIRY_STEP_US, FORGOTTEN_AT_ONCE, INDEXED_WORDS, Retained, matcher
from enmasse.messaging.retained_log import RetainedLog
from enmasse.testing.ports import FIRST_WALL_US, CoreHarness

WORDS = st.sampled_from(["a", "b", "", "$a", "*", "a.b", "x\n"])
NAMES = st.lists(WORDS, min_size=1, max_size=5).map("/".join)
PATTERNS = st.lists(st.one_of(WORDS.filter(lambda w: w != "*"), st.sampled_from("+*#")), min_size=1, max_size=5)


class Shelf:
    """A space with the retained values of the topics ``a`` and ``b``."""

    def __init__(self, **limits: int) -> None:
        self.harness = CoreHarness()
        self.harness.turn()
        self.values = Retained(self.harness.core, "ns/shop")
        self.values.limits = SpaceLimits(**limits)
        self.a, self.b = (RetainedLog(self.harness.core, name, log) for name, log in (("a", 1), ("b", 2)))
        for home in (self.a, self.b):
            home.join(self.values)

    def date_ms(self, seconds: int) -> int:
        return FIRST_WALL_US // 1000 + int(self.harness.clock.now + seconds) * 1000

    def set(self, *names: str, payload: bytes = b"v", facts: Facts = PLAIN, home: RetainedLog | None = None) -> None:
        for name in names:
            (home or self.a).set(name, payload, facts)

    def found(self, pattern: str, **options: Any) -> list[str]:
        return [value.name for value in self.values.match(parse(pattern), **options)]


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def test_a_value_is_found_by_its_name_and_by_patterns(shelf: Shelf) -> None:
    shelf.set("a/1/t", "a/2/t", "a/2/h", "a")
    value = shelf.values.get("a/1/t")
    assert value is not None
    assert (value.name, value.payload, value.home) == ("a/1/t", b"v", shelf.a)
    assert shelf.values.get("a/3/t") is None
    assert shelf.found("a/2/t") == ["a/2/t"]
    assert shelf.found("a/+/t") == ["a/1/t", "a/2/t"]
    assert shelf.found("a/2/#") == ["a/2/t", "a/2/h"]
    assert shelf.found("#/t") == ["a/1/t", "a/2/t"]
    assert shelf.found("#") == ["a/1/t", "a/2/t", "a/2/h", "a"]
    assert shelf.found("a/9/#") == shelf.found("a/1/t/#/x") == shelf.found("c") == []


def test_a_later_value_takes_the_place_of_an_earlier_one(shelf: Shelf) -> None:
    shelf.set("a/1", "a/2")
    shelf.set("a/1", payload=b"longer")
    assert [(value.name, value.payload) for value in shelf.values.match(parse("#"))] == [
        ("a/1", b"longer"),
        ("a/2", b"v"),
    ]
    assert (len(shelf.values), shelf.values.bytes_retained) == (2, 3 + 6 + 3 + 1)


def test_a_name_has_one_value_though_another_address_comes_to_own_it(shelf: Shelf) -> None:
    shelf.set("a/1", "a/2")
    shelf.set("a/1", payload=b"other", home=shelf.b)
    assert shelf.found("#", home=shelf.b) == ["a/1"]
    assert shelf.found("#", home=shelf.a) == ["a/2"]
    assert list(shelf.a.values) == ["a/2"]
    assert shelf.a.get("a/1") is None
    assert shelf.b.get("a/1") is shelf.values.get("a/1")


@given(names=st.lists(NAMES, unique=True), patterns=st.lists(PATTERNS.map("/".join), max_size=4), gone=st.sets(NAMES))
def test_whatever_comes_and_goes_a_search_finds_what_matches(
    names: list[str], patterns: list[str], gone: set[str]
) -> None:
    shelf = Shelf()
    shelf.set(*names)
    for name in gone:
        shelf.a.clear(name)
    left = [name for name in names if name not in gone]
    for text in patterns:
        is_wild = text.partition("/")[0] in ("*", "+", "#")
        found = [name for name in left if matches(parse(text), name) and not (is_wild and name.startswith("$"))]
        assert sorted(shelf.found(text)) == sorted(found)
    for name in left:
        shelf.a.clear(name)
    assert (len(shelf.values), shelf.values.bytes_retained) == (0, 0)
    assert not any(shelf.values._words)
    assert not shelf.values._last


@given(pattern=PATTERNS.map("/".join), name=NAMES)
def test_the_matcher_of_a_pattern_matches_as_patterns_do(pattern: str, name: str) -> None:
    assert matcher(parse(pattern))(name) == matches(parse(pattern), name)


def test_a_matcher_knows_beginnings_of_words_and_takes_no_time_for_many_wildcards() -> None:
    begins = parse_permission("a/b*", "")
    assert [name for name in ("a/b", "a/bc/d", "a/c", "b") if matcher(begins)(name)] == ["a/b", "a/bc/d"]
    many = parse("/".join(["#/a"] * 30) + "/b")
    assert not matcher(many)("a/" * 300 + "c")


def test_a_star_is_a_letter_where_only_the_wildcards_of_mqtt_are_wild(shelf: Shelf) -> None:
    shelf.set("a/*", "a/b", "b/c")
    assert [value.name for value in shelf.values.match(("a", "*"))] == ["a/*"]
    assert [value.name for value in shelf.values.match(("a", Wild.ANY))] == ["a/*", "a/b"]


def test_a_wildcard_in_the_first_place_leaves_system_names_out(shelf: Shelf) -> None:
    shelf.set("$sys/a", "b/a")
    for pattern in ("#", "+/a", "#/a"):
        assert shelf.found(pattern) == ["b/a"]
    assert shelf.found("$sys/+") == ["$sys/a"]


def test_a_search_looks_at_those_with_the_rarest_word_alone(shelf: Shelf) -> None:
    shelf.set(*(f"a/{n}/t" for n in range(1000)), "a/7/alarm", "a/9/alarm")
    for pattern, looks in (
        ("a/7/#", 2),
        ("a/+/alarm", 2),
        ("+/7/+", 2),
        ("a/7/t", 1),
        ("+/+/+/x", 0),
        ("#/alarm", 2),
        ("a/#", 1002),
    ):
        assert len(shelf.values._candidates(parse(pattern), None)) == looks
    shelf.set("b/7/t", home=shelf.b)
    assert len(shelf.values._candidates(parse("+/#"), shelf.b)) == 1


def test_names_of_ten_thousand_words_are_found_and_cost_an_index_of_a_few(shelf: Shelf) -> None:
    deep = "/".join("x" * 10_000)
    shelf.set(deep, f"{deep}/y")
    assert len(shelf.values._words) == INDEXED_WORDS
    assert shelf.found(f"{'+/' * 10_000}y") == [f"{deep}/y"]
    assert shelf.found("x/#") == [deep, f"{deep}/y"]
    shelf.a.clear(deep)
    assert shelf.found("x/#") == [f"{deep}/y"]


def test_a_search_lets_others_go_on_and_takes_what_happens_meanwhile(shelf: Shelf) -> None:
    shelf.set(*(f"a/{n}" for n in range(2000)))
    assert list(shelf.values.search(parse("a/+/+/#"))) == [None] * (2000 // 256)
    search = shelf.values.search(parse("#"))
    first = next(search)
    assert first is not None
    shelf.a.clear("a/1")
    shelf.set("a/2", payload=b"new")
    shelf.set("a/new")
    second = next(search)
    assert second is not None
    assert (first.name, second.name, second.payload) == ("a/0", "a/2", b"new")


def test_pages_come_in_order_and_each_looks_at_so_many(shelf: Shelf) -> None:
    shelf.set(*(f"a/{n}/{'t' if n % 10 else 'h'}" for n in range(100)))
    found, after = shelf.values.page(parse("#"), 0, 30, 1000)
    assert ([value.name for value in found], after) == ([f"a/{n}/{'t' if n % 10 else 'h'}" for n in range(30)], 30)
    found, after = shelf.values.page(parse("#"), 90, 30, 1000)
    assert (len(found), after) == (10, None)
    found, after = shelf.values.page(parse_permission("a/4*", ""), 0, 30, 45)
    assert ([value.name for value in found], after) == (["a/4/t", "a/40/h", *(f"a/{n}/t" for n in range(41, 45))], 45)
    assert shelf.values.page(parse("#"), 1000, 30, 50) == ([], None)


# Bounds


def test_a_space_has_as_many_values_as_its_plan_allows() -> None:
    shelf = Shelf(retained=2)
    shelf.set("a/1", "a/2")
    text = shelf.values.refusal("a/3", 1)
    assert text == (
        "space 'ns/shop' has 2 retained values, and its plan allows no more for 'a/3'; clear some, or ask for a "
        "larger plan"
    )
    assert shelf.values.refusal("a/2", 100) is None
    shelf.a.clear("a/1")
    assert shelf.values.refusal("a/3", 1) is None


def test_a_space_has_as_many_bytes_of_values_as_its_plan_allows() -> None:
    shelf = Shelf(retained_bytes=100)
    shelf.set("é", payload=bytes(98))
    text = shelf.values.refusal("a", 0)
    assert text is not None
    assert text.startswith("space 'ns/shop' has 100 bytes of retained values")
    assert shelf.values.refusal("é", 99) is not None
    assert shelf.values.refusal("é", 98) is None
    shelf.values.limits = SpaceLimits(retained_bytes=10)
    assert shelf.values.refusal("é", 97) is None


# Time


def test_a_value_whose_time_is_over_is_found_no_more_and_then_forgotten(shelf: Shelf) -> None:
    # Time that passes without a turn is not a message's.
    shelf.harness.clock.advance(100)
    shelf.set("a/1", facts=Facts(ttl_ms=1_000))
    shelf.set("a/2", facts=Facts(ttl_ms=60_000))
    shelf.set("a/3", facts=Facts(expires_ms=shelf.date_ms(2)))
    shelf.set("a/4")
    shelf.harness.turn()
    shelf.harness.advance(0.9)
    assert len(shelf.found("#")) == 4
    shelf.harness.advance(0.2)
    shelf.set("a/5")
    shelf.harness.turn()
    assert shelf.found("#") == ["a/2", "a/3", "a/4", "a/5"]
    assert shelf.found("a/1") == []
    assert shelf.values.get("a/1") is None
    assert [value.name for value in shelf.values.page(parse("#"), 0, 9, 9)[0]] == ["a/2", "a/3", "a/4", "a/5"]
    assert len(shelf.values) == 5
    shelf.harness.advance(2 * EXPIRY_STEP_US / 1e6)
    assert len(shelf.values) == 3
    shelf.harness.advance(60 + 2 * EXPIRY_STEP_US / 1e6)
    assert list(shelf.a.values) == ["a/4", "a/5"]
    assert shelf.values._steps == {}


def test_a_value_lives_as_long_as_its_latest_message_says(shelf: Shelf) -> None:
    shelf.set("a/1", "a/2", facts=Facts(ttl_ms=1_000))
    shelf.set("a/1")
    shelf.set("a/2", facts=Facts(ttl_ms=500_000))
    shelf.harness.advance(100)
    shelf.set("a/3", facts=Facts(ttl_ms=1))
    shelf.a.clear("a/3")
    shelf.harness.turn()
    assert shelf.found("#") == ["a/1", "a/2"]
    shelf.harness.advance(450)
    assert list(shelf.a.values) == ["a/1"]
    assert shelf.values._steps == {}


def test_many_values_whose_time_ends_together_are_forgotten_in_parts(shelf: Shelf) -> None:
    many = 3 * FORGOTTEN_AT_ONCE
    shelf.set(*(f"a/{n}" for n in range(many)), facts=Facts(ttl_ms=1_000))
    shelf.harness.turn()
    core = shelf.harness.core
    sizes = []
    while len(shelf.values):
        deadline = core.next_deadline()
        assert deadline is not None
        shelf.harness.clock.advance(max(0.0, deadline - shelf.harness.clock.now))
        core.handle_deadline(shelf.harness.clock.now)
        sizes.append(len(shelf.values))
        shelf.harness.turn()
    assert max(before - after for before, after in zip([many, *sizes], sizes, strict=False)) == FORGOTTEN_AT_ONCE


def test_a_date_holds_though_the_clock_is_set(shelf: Shelf) -> None:
    shelf.set("a/1", facts=Facts(expires_ms=shelf.date_ms(5)))
    shelf.harness.turn()
    shelf.harness.wall_shift_s = -3600
    shelf.harness.advance(60)
    shelf.set("a/2")
    shelf.harness.turn()
    assert shelf.found("#") == ["a/1", "a/2"]
    shelf.harness.wall_shift_s = 0
    shelf.harness.advance(60)
    assert list(shelf.a.values) == ["a/2"]
