"""The names of a space's addresses that filters with wildcards may reach: topics and multicast addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from enmasse.messaging.sessions.filters import ROOT
from enmasse.messaging.sessions.word_index import WordIndex

REACHED: Final = frozenset(("topic", "multicast"))
"""The types of addresses that filters with wildcards reach: receiving takes nothing away there."""

OWNERS: Final = frozenset(("topic",))
"""Those that own the names below theirs."""


class Names:
    """The names of addresses, those declared and not built yet included.

    It costs nothing until it is asked for the first time.

    Args:
        listed: returns the names and types of all addresses that there are.
    """

    __slots__ = ("_index", "_kinds", "_listed")

    def __init__(self, listed: Iterable[tuple[str, str]]) -> None:
        self._listed = listed
        self._index: WordIndex[str] = WordIndex()
        self._kinds: dict[str, bool] | None = None
        """By name, whether names below it belong to it; ``None`` until somebody asks."""

    def _known(self) -> dict[str, bool]:
        if self._kinds is None:
            self._kinds = {}
            for name, kind in self._listed:
                self.add(name, kind)
        return self._kinds

    def add(self, name: str, kind: str) -> None:
        """Note an address that is declared."""
        if self._kinds is None or kind not in REACHED or name in self._kinds:
            return
        self._kinds[name] = kind in OWNERS
        if name != ROOT:
            self._index.add(tuple(name.split("/")), name)

    def remove(self, name: str) -> None:
        """Note that an address is gone."""
        if self._kinds is not None and self._kinds.pop(name, None) is not None and name != ROOT:
            self._index.remove(tuple(name.split("/")), name)

    def knows(self, name: str) -> bool:
        """Return true if an address is known, so that filters reach it already."""
        return self._kinds is not None and name in self._kinds

    def reached_by(self, words: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
        """Return the names that a filter of some words may reach, and whether each owns the names below it."""
        kinds = self._known()
        if ROOT in kinds:
            yield ROOT, True
        for name in self._index.reached_by(words):
            yield name, kinds[name]
