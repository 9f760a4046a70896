"""Tells of a session's filters whether more of them match one name than may.

Rules:
1. Whether there is such a name cannot be told without looking at very many. So few are tried, each of them a name
   that there may be, and in a bounded number of steps: what is found is true, and not everything is found.
2. For a filter that comes, the names are: its own, with a word that nothing else has for each wildcard; one that has
   words of other filters in these places; and the one of an earlier filter that the most have matched, if it matches.
3. A session that has no more filters than may match one name needs none of this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from enmasse.messaging.pattern_trie import PatternTrie
from enmasse.messaging.patterns import matches, parse_filter

if TYPE_CHECKING:
    from enmasse.messaging.sessions.session_filter import SessionFilter


MAX_MATCHES: Final = 64
"""The most filters of a session that may match one name: each has a part in what is done with every message to it."""

_NO_WORD: Final = "+"
"""In the place of a word of which nothing is known: no name has it."""


class Crowd:
    """The filters of a session that has many.

    Args:
        filters: those that are there.
    """

    __slots__ = ("_fullest", "_most", "_trie", "_words")

    def __init__(self, filters: Iterable[SessionFilter]) -> None:
        self._trie: PatternTrie[SessionFilter] = PatternTrie()
        self._words: list[str] = []
        """The latest words that stand for themselves, by their places in filters."""
        self._fullest = ""
        """The name that the most filters were seen to match, and how many."""
        self._most = 0
        for filter_ in filters:
            self.add(filter_)

    def add(self, filter_: SessionFilter) -> None:
        """Add a filter."""
        pattern = parse_filter(filter_.filter.topic)
        self._trie.add(pattern, filter_)
        words = self._words
        for at, word in enumerate(pattern):
            if at == len(words):
                words.append(_NO_WORD)
            if isinstance(word, str):
                words[at] = word

    def remove(self, filter_: SessionFilter) -> None:
        """Remove a filter."""
        self._trie.remove(parse_filter(filter_.filter.topic), filter_)
        self._most = 0

    def name_in(self, filter_: SessionFilter) -> str | None:
        """Return a name that a filter matches beside as many others as may; ``None`` if none is seen."""
        topic = filter_.filter.topic
        pattern = parse_filter(topic)
        names = [topic, "/".join(self._trie.example(pattern, self._words))]
        if self._fullest and matches(pattern, self._fullest):
            names.append(self._fullest)
        for name in dict.fromkeys(names):
            count = self._trie.count(name, MAX_MATCHES)
            if count > self._most:
                self._fullest, self._most = name, count
            if count >= MAX_MATCHES:
                return name
        return None
