"""The one grammar of patterns over ``/``-separated words.

``*`` stands for exactly one word, ``#`` for zero or more words anywhere, so ``a/#`` matches ``a``.
MQTT writes ``+`` for ``*``, and its ``*`` is a word like any other; ``parse`` is told which.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["Pattern", "Wild", "covers", "matches", "parse"]


class Wild(Enum):
    """A word of a pattern that stands for others."""

    ANY = "*"
    """Exactly one word."""
    REST = "#"
    """Zero or more words."""


Pattern = tuple["str | Wild", ...]


def parse(text: str, *, any_word: str = "*") -> Pattern:
    """A pattern as its words.

    Args:
        text: such as ``sensors/*/temperature/#``.
        any_word: what stands for one word; ``+`` in MQTT.
    """
    words: list[str | Wild] = []
    for word in text.split("/"):
        if word == any_word:
            words.append(Wild.ANY)
        elif word == "#":
            # Two in a row mean what one means, and matching stays quick.
            if not words or words[-1] is not Wild.REST:
                words.append(Wild.REST)
        else:
            words.append(word)
    return tuple(words)


def matches(pattern: Pattern, name: str) -> bool:
    """Whether a name matches, in time proportional to the product of both lengths at most."""
    return _reaches_end(pattern, name.split("/"), None)


def covers(pattern: Pattern, other: str) -> bool:
    """Whether every name that another pattern stands for matches; a name without wildcards stands for itself."""
    return _reaches_end(pattern, other.split("/"), Wild.REST.value)


def _reaches_end(pattern: Pattern, words: list[str], unknown: str | None) -> bool:
    """Whether a pattern can consume all words; one that is unknown may be any number of words."""
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
                if reachable[index] and (part == word or (part is Wild.ANY and word != unknown)):
                    following[index + 1] = True
            reachable = following
    return reachable[-1]
