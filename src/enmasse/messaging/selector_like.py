"""The forms of LIKE: ``%`` stands for any characters, ``_`` for one [JMS 2.0 3.8.1.1].

No regular expression is made of a peer's pattern, as a few of its signs could keep one busy for years.
The pieces between the ``%`` are found one after the other, each at the first place possible, which is
enough; so the time is in proportion to the text, and to the pattern only where a piece holds ``_``.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["like"]


class _Piece:
    """Characters between two ``%``; ``None`` stands for any one."""

    __slots__ = ("_any", "_masks", "_text", "characters", "size")

    def __init__(self, characters: list[str | None]) -> None:
        self.characters = characters
        self.size = len(characters)
        self._text: str | None = None if None in characters else "".join(filter(None, characters))
        self._any = sum(1 << place for place, character in enumerate(characters) if character is None)
        self._masks: dict[str, int] = {}
        for place, character in enumerate(characters):
            if character is not None:
                self._masks[character] = self._masks.get(character, self._any) | 1 << place

    def is_at(self, text: str, at: int) -> bool:
        """Whether it stands there."""
        if self._text is not None:
            return text.startswith(self._text, at)
        if len(text) - at < self.size:
            return False
        return all(
            wanted is None or wanted == found
            for wanted, found in zip(self.characters, text[at : at + self.size], strict=True)
        )

    def find(self, text: str, at: int, end: int) -> int:
        """Where it first ends, from ``at`` on; -1 if nowhere before ``end``."""
        if self._text is not None:
            found = text.find(self._text, at, end)
            return found + self.size if found >= 0 else -1
        # Bit n of the state: the last n + 1 characters are the first ones of the piece.
        state = 0
        last = 1 << self.size - 1
        masks, anything = self._masks, self._any
        for place in range(at, end):
            state = (state << 1 | 1) & masks.get(text[place], anything)
            if state & last:
                return place + 1
        return -1


def _pieces(pattern: str, escape: str) -> list[_Piece]:
    pieces: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            pieces[-1].append(next(characters))
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if character == "_" else character)
    return [_Piece(piece) for piece in pieces]


def like(pattern: str, escape: str = "") -> Callable[[str], bool]:
    """A function that tells whether a text has a form.

    Args:
        pattern: the form.
        escape: one character that takes the meaning from the one behind it, which there must be; none if empty.
    """
    first, *between = _pieces(pattern, escape)
    if not between:
        return lambda text: len(text) == first.size and first.is_at(text, 0)
    last = between.pop()
    least = first.size + last.size
    middle = [piece for piece in between if piece.size]

    def matches(text: str) -> bool:
        if len(text) < least or not first.is_at(text, 0) or not last.is_at(text, len(text) - last.size):
            return False
        at = first.size
        end = len(text) - last.size
        for piece in middle:
            at = piece.find(text, at, end)
            if at < 0:
                return False
        return True

    return matches
