"""A selector as a tree; ``str`` of a node is a selector that means the same."""

from __future__ import annotations

from dataclasses import dataclass, field

BOOLEAN, NUMBER, STRING, ANY = "a condition", "a number", "a string", "any value"
"""The type that a node gives, as far as its form says; an identifier may give any value."""


@dataclass(frozen=True, slots=True)
class Node:
    """Any part of a selector."""

    @property
    def gives(self) -> str:
        """The type that it gives."""
        return BOOLEAN


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A constant."""

    value: bool | int | float | str

    @property
    def gives(self) -> str:
        """The type of the constant."""
        if isinstance(self.value, bool):
            return BOOLEAN
        return STRING if isinstance(self.value, str) else NUMBER

    def __str__(self) -> str:
        if isinstance(self.value, bool):
            return str(self.value).upper()
        if isinstance(self.value, str):
            return _quote(self.value, "'")
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Identifier(Node):
    """A field of the message by its name.

    Attributes:
        name: the name, as written.
        is_quoted: whether it stood in double quotes, and so names an application property.
        position: its place in the selector, from 1.
    """

    name: str
    is_quoted: bool = False
    position: int = field(default=0, compare=False)

    @property
    def gives(self) -> str:
        """Not known before there is a message."""
        return ANY

    def __str__(self) -> str:
        return _quote(self.name, '"') if self.is_quoted else self.name


@dataclass(frozen=True, slots=True)
class Not(Node):
    """The opposite of a condition."""

    operand: Node

    def __str__(self) -> str:
        return f"(NOT {self.operand})"


@dataclass(frozen=True, slots=True)
class Logical(Node):
    """Conditions joined by AND or by OR."""

    operator: str
    operands: tuple[Node, ...]

    def __str__(self) -> str:
        return "(" + f" {self.operator} ".join(map(str, self.operands)) + ")"


@dataclass(frozen=True, slots=True)
class Comparison(Node):
    """Two values compared by = <> < <= > or >=."""

    operator: str
    left: Node
    right: Node

    def __str__(self) -> str:
        return f"({self.left} {self.operator} {self.right})"


@dataclass(frozen=True, slots=True)
class Between(Node):
    """True if a number lies between two, both included."""

    value: Node
    low: Node
    high: Node
    is_negated: bool = False

    def __str__(self) -> str:
        return f"({self.value} {_not(self.is_negated)}BETWEEN {self.low} AND {self.high})"


@dataclass(frozen=True, slots=True)
class In(Node):
    """True if a value is among some."""

    value: Node
    choices: tuple[Literal, ...]
    is_negated: bool = False

    def __str__(self) -> str:
        return f"({self.value} {_not(self.is_negated)}IN ({', '.join(map(str, self.choices))}))"


@dataclass(frozen=True, slots=True)
class Like(Node):
    """True if a string has a form."""

    value: Node
    pattern: str
    escape: str = ""
    is_negated: bool = False

    def __str__(self) -> str:
        escape = f" ESCAPE {_quote(self.escape, chr(39))}" if self.escape else ""
        return f"({self.value} {_not(self.is_negated)}LIKE {_quote(self.pattern, chr(39))}{escape})"


@dataclass(frozen=True, slots=True)
class IsNull(Node):
    """True if the message lacks a value."""

    value: Node
    is_negated: bool = False

    def __str__(self) -> str:
        return f"({self.value} IS {_not(self.is_negated)}NULL)"


@dataclass(frozen=True, slots=True)
class Arithmetic(Node):
    """Numbers joined by operators of one precedence, from left to right."""

    first: Node
    steps: tuple[tuple[str, Node], ...]

    @property
    def gives(self) -> str:
        """A number."""
        return NUMBER

    def __str__(self) -> str:
        return f"({self.first}" + "".join(f" {operator} {operand}" for operator, operand in self.steps) + ")"


@dataclass(frozen=True, slots=True)
class Negative(Node):
    """A number with the other sign."""

    operand: Node

    @property
    def gives(self) -> str:
        """A number."""
        return NUMBER

    def __str__(self) -> str:
        return f"(- {self.operand})"


def _quote(text: str, quote: str) -> str:
    return quote + text.replace(quote, quote * 2) + quote


def _not(is_negated: bool) -> str:
    return "NOT " if is_negated else ""
