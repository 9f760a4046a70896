"""The trie of patterns, checked against matching each pattern by itself."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.messaging import pattern_trie
from enmasse.messaging.pattern_trie import PatternTrie
from enmasse.messaging.patterns import Pattern, Start, Wild, matches, parse, parse_filter

WORDS = st.sampled_from(["a", "b", "ab", "", Wild.ANY, Wild.REST, Start("a"), Start("")])
PATTERNS = st.lists(WORDS, min_size=1, max_size=5).map(tuple)
NAMES = st.lists(st.sampled_from(["a", "b", "ab", "", "ac", "*"]), min_size=1, max_size=6).map("/".join)

FILTERS = st.tuples(st.lists(st.sampled_from(["a", "b", "", "+"]), min_size=1, max_size=5), st.booleans()).map(
    lambda parts: "/".join([*parts[0], *(["#"] if parts[1] else [])])
)


def holding(patterns: list[Pattern]) -> PatternTrie[int]:
    trie: PatternTrie[int] = PatternTrie()
    for number, pattern in enumerate(patterns):
        trie.add(pattern, number)
    return trie


@given(st.lists(PATTERNS, max_size=8), NAMES)
def test_it_finds_what_matches_and_nothing_else(patterns: list[Pattern], name: str) -> None:
    found = holding(patterns).find(name)
    assert sorted(found) == [number for number, pattern in enumerate(patterns) if matches(pattern, name)]


@given(st.lists(PATTERNS, max_size=8), st.sets(st.integers(0, 7)), NAMES)
def test_what_was_removed_is_not_found_and_the_others_are(patterns: list[Pattern], gone: set[int], name: str) -> None:
    trie = holding(patterns)
    for number in gone & set(range(len(patterns))):
        trie.remove(patterns[number], number)
    left = [number for number in range(len(patterns)) if number not in gone]
    assert sorted(trie) == left
    assert len(trie) == len(left)
    assert sorted(trie.find(name)) == [number for number in left if matches(patterns[number], name)]


@given(st.lists(PATTERNS, max_size=8))
def test_nothing_is_left_of_patterns_that_were_removed(patterns: list[Pattern]) -> None:
    trie = holding(patterns)
    for number, pattern in enumerate(patterns):
        trie.remove(pattern, number)
    assert trie._root.is_empty


@given(st.lists(FILTERS, max_size=8), NAMES, st.integers(1, 9))
def test_topic_filters_that_match_are_counted_up_to_a_number(filters: list[str], name: str, most: int) -> None:
    trie = holding([parse_filter(text) for text in filters])
    assert min(most, trie.count(name, most)) == min(most, len(trie.find(name)))


@given(st.lists(FILTERS, max_size=8), FILTERS, st.lists(st.sampled_from(["a", "x"]), max_size=9))
def test_a_name_is_found_that_a_topic_filter_matches(filters: list[str], text: str, others: list[str]) -> None:
    pattern = parse_filter(text)
    name = holding([parse_filter(one) for one in filters]).example(pattern, others)
    assert matches(pattern, "/".join(name)) or (not name and text == "#")


def test_to_count_takes_a_bounded_number_of_steps() -> None:
    trie = holding([parse_filter("/".join(words) + "/x") for words in product("a+", repeat=12)])
    assert trie.count("/".join("a" * 12) + "/y", 1) == 0
    assert trie.count("/".join("a" * 12) + "/x", 64) >= 64


def test_a_value_with_several_patterns_is_found_once() -> None:
    trie: PatternTrie[str] = PatternTrie()
    for pattern in ("a/#", "a/+", "a/b"):
        trie.add(parse(pattern), "x")
    assert trie.find("a/b") == ["x"]
    trie.remove(parse("a/b"), "x")
    assert trie.find("a/b") == ["x"]
    assert trie.find("a") == ["x"]


def test_what_was_never_added_can_be_removed() -> None:
    trie: PatternTrie[str] = PatternTrie()
    trie.add(parse("a/b"), "x")
    for pattern in ("a", "a/b/c", "a/b", "b"):
        trie.remove(parse(pattern), "y")
    assert trie.find("a/b") == ["x"]


class _CountedNode(pattern_trie._Node[int]):
    """A node that counts how often it is looked at."""

    __slots__ = ()
    looks = 0

    def __getattribute__(self, name: str) -> object:
        if name == "words":
            type(self).looks += 1
        return super().__getattribute__(name)


@pytest.mark.slow
def test_a_search_takes_no_more_with_many_patterns_than_with_few(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(pattern_trie, "_Node", _CountedNode)
    looks = []
    for count in (10, 10_000):
        trie = holding([parse(f"devices/{number}/+/#") for number in range(count)])
        trie.add(parse("devices/7/up"), -1)
        _CountedNode.looks = 0
        assert sorted(trie.find("devices/7/up")) == [-1, 7]
        looks.append(_CountedNode.looks)
    assert looks[0] == looks[1] < 30


def test_many_wildcards_in_a_row_take_no_more_than_words_times_branches(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(pattern_trie, "_Node", _CountedNode)
    trie = holding([parse("/".join(["#/a"] * 30))])
    _CountedNode.looks = 0
    assert trie.find("/".join(["a"] * 60)) == [0]
    assert 60 < _CountedNode.looks < 60 * 200
