"""A selector's tree as functions of a message.

Each gives true, false or unknown (``None``); or a value, ``None`` where there is none.

Rules:
1. Numbers compare and compute with numbers whatever their width; whole ones divide to whole ones,
   rounded towards zero, as Java does. What has no result, such as a division by zero, is unknown.
2. A boolean is no number, although Python's are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from enmasse.messaging.selector_fields import Field, Look, field_of
from enmasse.messaging.selector_like import like
from enmasse.messaging.selector_nodes import (
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

__all__ = ["condition"]

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def condition(node: Node) -> Field:
    """A function that gives ``True``, ``False`` or ``None``.

    Raises:
        SelectorError: a name means nothing.
    """
    if isinstance(node, Identifier | Literal):
        return _truth(value_of(node))
    return _CONDITIONS[type(node)](node)


def value_of(node: Node) -> Field:
    """A function that gives the value of any node."""
    if isinstance(node, Literal):
        constant = node.value
        return lambda _look: constant
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
    """A value as a condition: unknown if it is not a boolean."""

    def is_true(look: Look) -> bool | None:
        value = find(look)
        return value if isinstance(value, bool) else None

    return is_true


def _not(node: Not) -> Field:
    inner = condition(node.operand)

    def is_not(look: Look) -> bool | None:
        known = inner(look)
        return None if known is None else not known

    return is_not


def _logical(node: Logical) -> Field:
    """AND is false, and OR is true, as soon as one operand is; else unknown if one is."""
    operands = [condition(operand) for operand in node.operands]
    decisive = node.operator == "OR"

    def joined(look: Look) -> bool | None:
        result: bool | None = not decisive
        for operand in operands:
            known: bool | None = operand(look)
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

    def ordered(look: Look) -> bool | None:
        one = left(look)
        other = right(look)
        if one is None or other is None:
            return None
        return compare(one, other) if _is_number(one) and _is_number(other) else False

    return ordered


def _equal_to_text(find: Field, text: str, wanted: bool) -> Field:
    """The most usual condition of all."""

    def equal(look: Look) -> bool | None:
        value = find(look)
        if value is None:
            return None
        return isinstance(value, str) and (value == text) is wanted

    return equal


def _equality(left: Field, right: Field, wanted: bool) -> Field:
    def equal(look: Look) -> bool | None:
        one = left(look)
        other = right(look)
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
    """As two comparisons: not between is less or greater."""
    value, low, high = node.value, node.low, node.high
    if node.is_negated:
        return _logical(Logical("OR", (Comparison("<", value, low), Comparison(">", value, high))))
    return _logical(Logical("AND", (Comparison(">=", value, low), Comparison("<=", value, high))))


def _in(node: In) -> Field:
    find = value_of(node.value)
    wanted = not node.is_negated
    # A pair, as True would be found among numbers as 1.
    choices = frozenset((isinstance(choice.value, bool), choice.value) for choice in node.choices)

    def is_in(look: Look) -> bool | None:
        value = find(look)
        if value is None:
            return None
        is_among = isinstance(value, str | int | float) and (isinstance(value, bool), value) in choices
        return is_among is wanted

    return is_in


def _like(node: Like) -> Field:
    find = value_of(node.value)
    matches = like(node.pattern, node.escape)
    wanted = not node.is_negated

    def is_like(look: Look) -> bool | None:
        value = find(look)
        if value is None:
            return None
        return (isinstance(value, str) and matches(value)) is wanted

    return is_like


def _is_null(node: IsNull) -> Field:
    find = value_of(node.value)
    wanted = not node.is_negated
    return lambda look: (find(look) is None) is wanted


def _negative(node: Negative) -> Field:
    find = value_of(node.operand)

    def negated(look: Look) -> int | float | None:
        value = find(look)
        return -value if _is_number(value) else None

    return negated


def _divide(one: Any, other: Any) -> Any:
    if isinstance(one, int) and isinstance(other, int):
        quotient = abs(one) // abs(other)
        return quotient if (one < 0) == (other < 0) else -quotient
    return one / other


_STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
}


def _arithmetic(node: Arithmetic) -> Field:
    first = value_of(node.first)
    steps = [(_STEPS[sign], value_of(operand)) for sign, operand in node.steps]

    def computed(look: Look) -> Any:
        result = first(look)
        if not _is_number(result):
            return None
        for step, operand in steps:
            value = operand(look)
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
