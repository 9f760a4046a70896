"""The words of a selector [JMS 2.0 3.8.1.1].

Beyond the specification: an identifier may contain dots, and one in double quotes may contain
anything (``"my-property" = 5``); such a one is always the name of an application property.
"""

from __future__ import annotations

import re
from math import isinf
from typing import Any, NamedTuple

from enmasse.messaging.errors import SelectorError

MAX_LENGTH = 4_096
"""Characters of a selector; the longest in practice list some hundred names."""

MAX_INTEGER = 2**64 - 1
"""The largest that a message can carry; JMS ends at half of it."""

KEYWORDS = frozenset(
    ("AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"),
)

_WORD = re.compile(r"(?:[^\W\d]|\$)[\w$]*(?:\.[\w$]+)*")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"0[xX]|[0-9]+\Z")
_SIGNS = ("<>", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "(", ")", ",")


class Kind:
    """The kind of a token."""

    WORD = "a name"
    QUOTED = "a quoted name"
    KEYWORD = "a keyword"
    STRING = "a string"
    NUMBER = "a number"
    SIGN = "a sign"
    END = "the end"


class Token(NamedTuple):
    """A token.

    Attributes:
        kind: one of ``Kind``.
        value: the name, the keyword in capitals, the sign, the string or the number.
        position: the position of its first character, from 1.
    """

    kind: str
    value: Any
    position: int

    def __str__(self) -> str:
        return self.kind if self.kind == Kind.END else repr(self.value)


def tokens(text: str) -> list[Token]:
    """Return the words of a selector, closed by one of kind ``END``.

    Raises:
        SelectorError: it is too long, or contains what is no word.
    """
    if len(text) > MAX_LENGTH:
        raise SelectorError(f"it has {len(text)} characters, of which {MAX_LENGTH} are allowed", MAX_LENGTH + 1)
    found = []
    at = 0
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text):
            found.append(Token(Kind.END, "", at + 1))
            return found
        token, at = _token(text, at)
        found.append(token)


def _token(text: str, at: int) -> tuple[Token, int]:
    start = text[at]
    if start == "'":
        value, stop = _quoted(text, at, "string")
        return Token(Kind.STRING, value, at + 1), stop
    if start == '"':
        value, stop = _quoted(text, at, "name")
        if not value:
            raise SelectorError("a quoted name is empty", at + 1)
        return Token(Kind.QUOTED, value, at + 1), stop
    if word := _WORD.match(text, at):
        value = word.group()
        keyword = value.upper()
        if keyword in KEYWORDS:
            return Token(Kind.KEYWORD, keyword, at + 1), word.end()
        return Token(Kind.WORD, value, at + 1), word.end()
    if number := _NUMBER.match(text, at):
        return _number(text, number)
    for sign in _SIGNS:
        if text.startswith(sign, at):
            return Token(Kind.SIGN, sign, at + 1), at + len(sign)
    advice = "; unequal is written <>" if text.startswith("!=", at) else ""
    raise SelectorError(f"{start!r} means nothing here{advice}", at + 1)


def _quoted(text: str, start: int, what: str) -> tuple[str, int]:
    """Return what stands between quotes; a doubled quote stands for one."""
    quote = text[start]
    parts = []
    at = start + 1
    while True:
        stop = text.find(quote, at)
        if stop < 0:
            raise SelectorError(f"the {what} that starts here has no closing {quote}", start + 1)
        parts.append(text[at:stop])
        at = stop + 1
        if text[at : at + 1] != quote:
            return quote.join(parts), at
        at += 1


def _number(text: str, match: re.Match[str]) -> tuple[Token, int]:
    """Return a number in Java's writing: hexadecimal, octal with a leading zero, exact or approximate."""
    written = match.group()
    position = match.start() + 1
    stop = match.end()
    value: int | float
    if not _INTEGER.match(written):
        value = float(written)
        if text[stop : stop + 1] in tuple("dDfF"):
            stop += 1
    elif text[stop : stop + 1] in tuple("dDfF"):
        value = float(written)
        stop += 1
    else:
        value = _integer(written, position)
        if text[stop : stop + 1] in tuple("lL"):
            stop += 1
    if isinstance(value, float) and isinf(value):
        raise SelectorError(f"{written} is larger than any number", position)
    if stop < len(text) and (text[stop].isalnum() or text[stop] in "_$."):
        raise SelectorError(f"{text[match.start() : stop + 1]!r} is no number", position)
    return Token(Kind.NUMBER, value, position), stop


def _integer(written: str, position: int) -> int:
    if written[:2] in ("0x", "0X"):
        value = int(written, 0)
    elif written[0] == "0" and len(written) > 1:
        if not set(written) <= set("01234567"):
            raise SelectorError(f"{written} is no octal number, which the leading 0 makes it", position)
        value = int(written, 8)
    else:
        value = int(written)
    if value > MAX_INTEGER:
        raise SelectorError(f"{written} is larger than {MAX_INTEGER}, the largest whole number", position)
    return value
