"""Functions of a message, made from a selector's tree.

Each gives true, false or unknown (``None``); or a value, ``None`` if there is none.

Rules:
1. Numbers compare and compute with numbers whatever their width; whole ones divide to whole ones,
   rounded towards zero, as Java does. What has no result, such as a division by zero or a product beyond all
   numbers, is unknown.
2. A boolean is no number, although Python's are.
3. In the forms of LIKE, ``%`` stands for any characters and ``_`` for one [JMS 2.0 3.8.1.1]. No regular
   expression is made of a peer's pattern, as a few of its signs could keep one busy for years. The pieces
   between the ``%`` are found one after the other, each at the first place possible, which is enough; so the
   time is in proportion to the text, and to the pattern only where a piece holds ``_``. ``work`` bounds it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from enmasse.messaging.selectors.fields import Field, MessageFields, field_of
from enmasse.messaging.selectors.nodes import (
    Arithmetic,
    Between,
    Comparison,
    Identifier,
    In,
    IsNull,
    Like,
    Literal,
    Logical,
    Negative,
    Node,
    Not,
)

STEP = 256
"""The work that is a step of the interpreter, some 0.1 us; less is what C does for a character."""


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
        """Return whether the piece stands there."""
        if self._text is not None:
            return text.startswith(self._text, at)
        if len(text) - at < self.size:
            return False
        return all(
            wanted is None or wanted == found
            for wanted, found in zip(self.characters, text[at : at + self.size], strict=True)
        )

    def find(self, text: str, at: int, end: int) -> int:
        """Return where the piece first ends, from ``at`` on; -1 if nowhere before ``end``."""
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
    """Return a function that matches texts with a form.

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


def likening(pattern: str, escape: str = "") -> int:
    """Return the work that a form is at most for each character of a text, as ``work`` counts it.

    Each character is looked at for one of the pieces between two ``%``, of which a plain one is searched for in C;
    the first and the last are looked for in one place.
    """
    return 8 + max(
        (
            STEP * (1 + piece.size // 64) if None in piece.characters else min(piece.size, 100) // 4
            for piece in _pieces(pattern, escape)[1:-1]
        ),
        default=0,
    )


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def condition(node: Node) -> Field:
    """Return a function that gives ``True``, ``False`` or ``None``.

    Raises:
        SelectorError: a name means nothing.
    """
    if isinstance(node, Identifier | Literal):
        return _truth(value_of(node))
    return _CONDITIONS[type(node)](node)


def value_of(node: Node) -> Field:
    """Return a function that gives the value of any node."""
    if isinstance(node, Literal):
        constant = node.value
        return lambda _fields: constant
    if isinstance(node, Identifier):
        return field_of(node.name, is_quoted=node.is_quoted, position=node.position)
    if isinstance(node, Arithmetic):
        return _arithmetic(node)
    if isinstance(node, Negative):
        return _negative(node)
    return condition(node)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _truth(find: Field) -> Field:
    """Return a value as a condition: unknown if it is not a boolean."""

    def is_true(fields: MessageFields) -> bool | None:
        value = find(fields)
        return value if isinstance(value, bool) else None

    return is_true


def _not(node: Not) -> Field:
    inner = condition(node.operand)

    def is_not(fields: MessageFields) -> bool | None:
        known = inner(fields)
        return None if known is None else not known

    return is_not


def _logical(node: Logical) -> Field:
    """Combine by AND, false as soon as one operand is, or by OR, true as soon as one is; else unknown if one is."""
    operands = [condition(operand) for operand in node.operands]
    decisive = node.operator == "OR"

    def joined(fields: MessageFields) -> bool | None:
        result: bool | None = not decisive
        for operand in operands:
            known: bool | None = operand(fields)
            if known is decisive:
                return decisive
            if known is None:
                result = None
        return result

    return joined


def _comparison(node: Comparison) -> Field:
    left, right = value_of(node.left), value_of(node.right)
    if node.operator in ("=", "<>"):
        if isinstance(node.right, Literal) and isinstance(node.right.value, str):
            return _equal_to_text(left, node.right.value, node.operator == "=")
        return _equality(left, right, node.operator == "=")
    compare = _ORDERS[node.operator]

    def ordered(fields: MessageFields) -> bool | None:
        one = left(fields)
        other = right(fields)
        if one is None or other is None:
            return None
        return compare(one, other) if _is_number(one) and _is_number(other) else False

    return ordered


def _equal_to_text(find: Field, text: str, wanted: bool) -> Field:
    """Return a condition that compares with a text, the most usual condition of all."""

    def equal(fields: MessageFields) -> bool | None:
        value = find(fields)
        if value is None:
            return None
        return isinstance(value, str) and (value == text) is wanted

    return equal


def _equality(left: Field, right: Field, wanted: bool) -> Field:
    def equal(fields: MessageFields) -> bool | None:
        one = left(fields)
        other = right(fields)
        if one is None or other is None:
            return None
        return _are_alike(one, other) and (one == other) is wanted

    return equal


def _are_alike(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return isinstance(one, bool) and isinstance(other, bool)
    if isinstance(one, str):
        return isinstance(other, str)
    return isinstance(one, int | float) and isinstance(other, int | float)


def _between(node: Between) -> Field:
    """Compare twice: not between is less or greater."""
    value, low, high = node.value, node.low, node.high
    if node.is_negated:
        return _logical(Logical("OR", (Comparison("<", value, low), Comparison(">", value, high))))
    return _logical(Logical("AND", (Comparison(">=", value, low), Comparison("<=", value, high))))


def _in(node: In) -> Field:
    find = value_of(node.value)
    wanted = not node.is_negated
    # A pair, as True would be found among numbers as 1.
    choices = frozenset((isinstance(choice.value, bool), choice.value) for choice in node.choices)

    def is_in(fields: MessageFields) -> bool | None:
        value = find(fields)
        if value is None:
            return None
        is_among = isinstance(value, str | int | float) and (isinstance(value, bool), value) in choices
        return is_among is wanted

    return is_in


def _like(node: Like) -> Field:
    find = value_of(node.value)
    matches = like(node.pattern, node.escape)
    wanted = not node.is_negated

    def is_like(fields: MessageFields) -> bool | None:
        value = find(fields)
        if value is None:
            return None
        return (isinstance(value, str) and matches(value)) is wanted

    return is_like


def _is_null(node: IsNull) -> Field:
    find = value_of(node.value)
    wanted = not node.is_negated
    return lambda fields: (find(fields) is None) is wanted


def _negative(node: Negative) -> Field:
    find = value_of(node.operand)

    def negated(fields: MessageFields) -> int | float | None:
        value = find(fields)
        return -value if _is_number(value) else None

    return negated


def _divide(one: Any, other: Any) -> Any:
    if isinstance(one, int) and isinstance(other, int):
        quotient = abs(one) // abs(other)
        return quotient if (one < 0) == (other < 0) else -quotient
    return one / other


_NO_NUMBER = 2**1024
"""A whole number beyond all floating ones; products would grow with the length of a selector."""


def _multiply(one: Any, other: Any) -> Any:
    product = one * other
    if type(product) is int and not -_NO_NUMBER < product < _NO_NUMBER:
        raise OverflowError
    return product


_STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": _multiply,
    "/": _divide,
}


def _arithmetic(node: Arithmetic) -> Field:
    first = value_of(node.first)
    steps = [(_STEPS[sign], value_of(operand)) for sign, operand in node.steps]

    def computed(fields: MessageFields) -> Any:
        result = first(fields)
        if not _is_number(result):
            return None
        for step, operand in steps:
            value = operand(fields)
            if not _is_number(value):
                return None
            try:
                result = step(result, value)
            except (OverflowError, ZeroDivisionError):
                return None
        return result

    return computed


_CONDITIONS: dict[type[Node], Callable[[Any], Field]] = {
    Between: _between,
    Comparison: _comparison,
    In: _in,
    IsNull: _is_null,
    Like: _like,
    Logical: _logical,
    Not: _not,
}
