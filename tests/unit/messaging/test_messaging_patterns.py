"""The one grammar of patterns, checked against the plain definition of what it means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.messaging.patterns import MAX_PARTS, is_pattern, matches, meet, parse, parse_filter, parse_permission

WORDS = st.sampled_from(["a", "b", "", "*", "+"])
NAMES = st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=6).map("/".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "", "*", "+", "#"]), min_size=1, max_size=6).map("/".join)


def means(pattern: list[str], name: list[str]) -> bool:
    """The definition, word by word."""
    if not pattern:
        return not name
    if pattern[0] == "#":
        return any(means(pattern[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and pattern[0] in ("*", "+", name[0]) and means(pattern[1:], name[1:])


@given(PATTERNS, NAMES)
def test_a_pattern_matches_what_its_definition_says(pattern: str, name: str) -> None:
    assert matches(parse(pattern), name) == means(pattern.split("/"), name.split("/"))


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a", ["a"], ["b", "a/b", "", "a/"]),
        ("a/#", ["a", "a/b", "a/b/c", "a/"], ["b", "ab", "b/a"]),
        ("#", ["a", "", "a/b/c"], []),
        ("a/*", ["a/b", "a/"], ["a", "a/b/c"]),
        ("a/+/c", ["a/b/c", "a//c", "a/+/c"], ["a/c", "a/b/b/c", "a/b/d"]),
        ("+", ["a", "+"], ["a/b"]),
        ("*", ["a", ""], ["a/b"]),
        ("a/*/c", ["a/b/c", "a//c"], ["a/c", "a/b/b/c"]),
        ("a/#/c", ["a/c", "a/b/c", "a/b/b/c", "a/c/c"], ["a", "a/c/b"]),
        ("#/b/#", ["b", "a/b", "b/c", "a/b/c"], ["a", "a/c"]),
    ],
)
def test_words_and_wildcards(pattern: str, matching: list[str], others: list[str]) -> None:
    words = parse(pattern)
    assert [name for name in matching if not matches(words, name)] == []
    assert [name for name in others if matches(words, name)] == []


def test_only_a_whole_word_makes_a_pattern() -> None:
    assert [name for name in ("a", "c++", "a*/b#", "+1/a") if is_pattern(name)] == []
    assert all(is_pattern(name) for name in ("*", "a/+", "#/b", "a/*/b"))


def test_wildcards_inside_a_word_are_letters() -> None:
    assert matches(parse("a*/b#"), "a*/b#")
    assert not matches(parse("a*"), "ab")


def test_words_are_told_apart_by_case() -> None:
    assert not matches(parse("A/b"), "a/b")


def test_a_pattern_that_is_made_to_be_slow_is_not() -> None:
    pattern = parse("#/*/" * 50 + "x")
    # By trying all ways it would not come back.
    assert not matches(pattern, "/".join("a" * 200))


WORDS = st.sampled_from(["a", "b", "ab", "+"])
FILTERS = st.builds(
    lambda words, end: "/".join(words + end), st.lists(WORDS, min_size=1, max_size=4), st.sampled_from([[], ["#"]])
)
GRANTS = st.builds(
    lambda words, end: "/".join(words) + end,
    st.lists(st.sampled_from(["a", "b", "ab", "+", "#"]), min_size=1, max_size=5),
    st.sampled_from(["", "/a*", "/#"]),
)
NAMES = st.lists(st.sampled_from(["a", "b", "ab", "c"]), min_size=1, max_size=6).map("/".join)


@given(FILTERS, GRANTS, NAMES)
def test_two_patterns_meet_in_what_both_stand_for(wanted: str, granted: str, name: str) -> None:
    mine, theirs = parse_filter(wanted), parse_permission(granted, "")
    parts = meet(mine, theirs)
    assert parts is not None
    assert any(matches(part, name) for part in parts) is (matches(mine, name) and matches(theirs, name))


def test_patterns_that_are_made_to_meet_in_very_many_parts_take_no_time() -> None:
    wanted, granted = parse_filter("/".join("a" * 120)), parse("#/a/" * 40 + "#")
    assert meet(wanted, granted) == [wanted]
    assert meet(wanted, parse("#/a/" * 40 + "#/b")) == []
    assert meet(parse_filter("/".join("+" * 120)), granted) is None
    assert len(meet(parse_filter("/".join("+" * MAX_PARTS)), parse("#/a/#")) or ()) == MAX_PARTS
