"""The one grammar of patterns over ``/``-separated words.

``*`` stands for exactly one word, and so does ``+``, as MQTT writes it; ``#`` for zero or more words anywhere, so
``a/#`` matches ``a``. Within a longer word they are letters.

Permissions know two more things, see ``parse_permission``.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

USER = "${username}"
"""In a permission: the name of the user who has it."""

_VARIABLE = re.compile(r"\$\{username\}|%u|%c")
"""The variables in a permission's words: the user's name or, as ``%c``, the client's."""

MAX_WORDS = 128
"""Words of a name, and of a receiver's pattern: to match them takes steps by the product of both at most."""

SUBTREE_CAPABILITY: Final = "enmasse:subtree"
"""The capability by which a receiver of a topic asks for all names below its source, too."""

_NO_WORD = "/"
"""A word that is in no name."""


MAX_PARTS: Final = 100
"""The most patterns that a filter is cut into."""


class Wild(Enum):
    """A word of a pattern that stands for others."""

    ANY = "*"
    """Exactly one word."""
    REST = "#"
    """Zero or more words."""


class Start(NamedTuple):
    """A word of a pattern that stands for all words which begin so."""

    text: str


Pattern = tuple["str | Wild | Start", ...]

_WILDCARDS = {"*": Wild.ANY, "+": Wild.ANY, "#": Wild.REST}

_FILTER_WILDCARDS = {"+": Wild.ANY, "#": Wild.REST}


def words_problem(text: str) -> str | None:
    """Return why a name or pattern has more words than any is matched with; ``None`` if it has not."""
    words = text.count("/") + 1
    return f"a name has at most {MAX_WORDS} words, {text[:60]!r}... has {words}" if words > MAX_WORDS else None


def is_pattern(text: str) -> bool:
    """Return whether a name stands for others."""
    return not _WILDCARDS.keys().isdisjoint(text.split("/"))


def subtree(text: str) -> str:
    """Return the pattern of a name and all names below it; one that is such a pattern already is left as it is."""
    rest = Wild.REST.value
    return text if text.rpartition("/")[2] == rest else f"{text}/{rest}"


def parse(text: str) -> Pattern:
    """Parse a pattern, such as ``sensors/+/temperature/#``, as its words."""
    words: list[str | Wild | Start] = []
    for word in text.split("/"):
        if _WILDCARDS.get(word) is Wild.ANY:
            words.append(Wild.ANY)
        elif word == "#":
            # Two in a row mean what one means, and matching stays quick.
            if not words or words[-1] is not Wild.REST:
                words.append(Wild.REST)
        else:
            words.append(word)
    return tuple(words)


def parse_filter(text: str) -> Pattern:
    """Parse a topic filter of MQTT as its words: only ``+`` and ``#`` are wildcards there."""
    return tuple(_FILTER_WILDCARDS.get(word, word) for word in text.split("/"))


def parse_permission(text: str, user: str, client: str = "") -> Pattern:
    """Parse a permission's pattern for one user.

    Its last word may end with ``*``, and then stands for all names that go on in any way. ``${username}`` and ``%u``
    stand for the user's name as it is, and ``%c`` for what the client calls itself: wildcards and slashes in these
    are letters like any other, so that they reach nothing which is not called so.

    Args:
        text: such as ``devices/${username}/#`` or ``order*``; valid by ``identity.permissions.pattern_problem``.
        user: the user's name; without one, what needs it matches nothing.
        client: the client's name for itself; without one, what needs it matches nothing.
    """
    values = {USER: user, "%u": user, "%c": client}
    words: list[str | Wild | Start] = []
    for word in parse(text):
        if isinstance(word, str) and (named := _VARIABLE.findall(word)):
            is_known = all(values[name] for name in named)
            words.append(_VARIABLE.sub(lambda found: values[found[0]], word) if is_known else _NO_WORD)
        else:
            words.append(word)
    last = text.rpartition("/")[2]
    if len(last) > 1 and last.endswith("*"):
        words[-1:] = [Start(last[:-1]), Wild.REST]
    return tuple(words)


def matches(pattern: Pattern, name: str) -> bool:
    """Return whether a name matches, in time proportional to the product of both lengths at most."""
    return _reaches_end(pattern, name.split("/"), None)


def covers(pattern: Pattern, other: str) -> bool:
    """Return whether all names that another pattern stands for match; one without wildcards stands for itself."""
    return _reaches_end(pattern, other.split("/"), Wild.REST.value)


def _reaches_end(pattern: Pattern, words: list[str], unknown: str | None) -> bool:
    """Return whether a pattern can consume all words; one that is unknown may be any number of words."""
    # reachable[i]: whether the pattern so far can have consumed the first i words.
    reachable = [True] + [False] * len(words)
    for part in pattern:
        if part is Wild.REST:
            seen = False
            for index, here in enumerate(reachable):
                seen = seen or here
                reachable[index] = seen
        else:
            following = [False] * (len(words) + 1)
            for index, word in enumerate(words):
                if not reachable[index]:
                    continue
                if part is Wild.ANY:
                    is_one = word != unknown
                elif unknown is not None and word in _WILDCARDS:
                    # A word that is spelled like a wildcard is none, and covers none.
                    is_one = False
                else:
                    is_one = word.startswith(part.text) if isinstance(part, Start) else part == word
                following[index + 1] |= is_one
            reachable = following
    return reachable[-1]


class Cut(str):
    """A filter of which grants cover a part alone: its text, with the patterns of the names that are left.

    Attributes:
        patterns: stand together for these names.
    """

    __slots__ = ("patterns",)
    patterns: tuple[Pattern, ...]

    @classmethod
    def of(cls, text: str, patterns: tuple[Pattern, ...]) -> Cut:
        """Return a filter that is left with some patterns."""
        made = cls(text)
        made.patterns = patterns
        return made


def is_cut(source: str) -> bool:
    """Return whether grants cover a part of a filter alone."""
    return isinstance(source, Cut)


def patterns_of(source: str) -> tuple[Pattern, ...]:
    """Return the patterns that a topic filter stands for: one, unless it is cut."""
    return source.patterns if isinstance(source, Cut) else (parse_filter(source),)


def patterns_at(source: str) -> tuple[Pattern, ...]:
    """Return the patterns that a receiver's source stands for: one, unless it is cut."""
    return source.patterns if isinstance(source, Cut) else (parse(source),)


def is_within(source: str, name: str) -> bool:
    """Return whether a topic filter matches a name, or what is left of it does."""
    return any(matches(pattern, name) for pattern in patterns_of(source))


class _TooManyError(Exception):
    """Raised when patterns meet in more parts than are looked for."""


def meet(wanted: Pattern, granted: Pattern, most: int = MAX_PARTS) -> list[Pattern] | None:
    """Return patterns that together stand for the names which two patterns stand for; ``None`` if they are too many.

    Args:
        wanted: a pattern or topic filter.
        granted: a pattern of any form.
        most: the most patterns that are looked for.
    """
    try:
        return list(_Meeting(wanted, granted, most).rest_of(0, 0))
    except _TooManyError:
        return None


class _Meeting:
    """Two patterns whose words are compared; what follows the first words of both is worked out once."""

    __slots__ = ("_granted", "_known", "_most", "_wanted")

    def __init__(self, wanted: Pattern, granted: Pattern, most: int) -> None:
        self._wanted = wanted
        self._granted = granted
        self._most = most
        self._known: dict[tuple[int, int], dict[Pattern, None]] = {}

    def rest_of(self, at: int, other: int) -> dict[Pattern, None]:
        """Return the patterns of what follows the first words of both.

        Raises:
            _TooManyError: there are too many.
        """
        found = self._known.get((at, other))
        if found is None:
            found = self._known[at, other] = self._look(at, other)
            if len(found) > self._most:
                raise _TooManyError
        return found

    def _look(self, at: int, other: int) -> dict[Pattern, None]:
        wanted, granted = self._wanted, self._granted
        mine = wanted[at] if at < len(wanted) else None
        theirs = granted[other] if other < len(granted) else None
        if mine is Wild.REST and at == len(wanted) - 1:
            return {granted[other:]: None}
        if theirs is Wild.REST and other == len(granted) - 1:
            return {wanted[at:]: None}
        if mine is Wild.REST and theirs is Wild.REST:
            # One of them stands for at least the words of the other.
            after = self.rest_of(at + 1, other) | self.rest_of(at, other + 1)
            return {_behind(mine, rest): None for rest in after}
        if mine is Wild.REST:
            more = {} if theirs is None else {_behind(theirs, rest): None for rest in self.rest_of(at, other + 1)}
            return self.rest_of(at + 1, other) | more
        if theirs is Wild.REST:
            more = {} if mine is None else {_behind(mine, rest): None for rest in self.rest_of(at + 1, other)}
            return self.rest_of(at, other + 1) | more
        if mine is None or theirs is None:
            return {(): None} if mine is theirs else {}
        word = _both(mine, theirs)
        return {} if word is None else {(word, *rest): None for rest in self.rest_of(at + 1, other + 1)}


def _behind(word: str | Wild | Start, rest: Pattern) -> Pattern:
    """Return the pattern of a word and what follows it."""
    return rest if word is Wild.REST and rest and rest[0] is Wild.REST else (word, *rest)


def _both(mine: str | Wild | Start, theirs: str | Wild | Start) -> str | Wild | Start | None:
    """Return the word that stands for what both do; ``None`` if there is no such word."""
    if mine is Wild.ANY:
        return theirs
    if theirs is Wild.ANY:
        return mine
    if isinstance(theirs, Start):
        return mine if isinstance(mine, str) and mine.startswith(theirs.text) else None
    return mine if mine == theirs else None
