"""Reads the values that headers and JSON have, and writes JSON."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from typing import Any, Final

from enmasse.wire.http.answers import HttpError

INVALID: Final = "amqp:invalid-field"

MAX_IDENTITY: Final = (1 << 64) - 1
"""The largest number that is the id of a message."""

_MAX_WHOLE: Final = (1 << 63) - 1
_CONTROLS: Final = bytes(range(32))

MAX_JSON_LEVELS = 100
"""Lists and maps in each other; Python's parser and writer have a stack, of which a connection has used a part."""


def invalid(name: str, wanted: str, value: Any) -> HttpError:
    """Return the error for a value that is not what was wanted."""
    return HttpError(400, f"{name} is {wanted}, not {value!r:.60}", INVALID)


class Whole:
    """Reads a whole number, of JSON or of a header.

    Args:
        least: the least that it may be.
        most: the most.
    """

    __slots__ = ("least", "most")

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most

    def __call__(self, name: str, value: Any) -> int:
        """Return the number.

        Raises:
            HttpError: it is none, or out of bounds.
        """
        if isinstance(value, str):
            text = value.strip()
            value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text
        if not isinstance(value, int) or isinstance(value, bool) or not self.least <= value <= self.most:
            raise invalid(name, f"a whole number from {self.least} to {self.most}", value)
        return value


_NUMBER: Final = Whole(0, MAX_IDENTITY)


def text_of(name: str, value: Any) -> str:
    """Return a text.

    Raises:
        HttpError: the value is none.
    """
    if not isinstance(value, str):
        raise invalid(name, "text", value)
    return value


def identity_of(name: str, value: Any) -> str | int:
    """Return the id of a message: a text, or in JSON a number, which is one of AMQP.

    Raises:
        HttpError: the value is neither.
    """
    return value if isinstance(value, str) else _NUMBER(name, value)


def octets_of(name: str, value: Any) -> bytes:
    """Return the bytes of a text. Raises as ``text_of`` does."""
    return text_of(name, value).encode()


def truth_of(name: str, value: Any) -> bool:
    """Return the truth that a value of JSON is, or a text.

    Raises:
        HttpError: it is neither true nor false.
    """
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else ""
    if text not in ("true", "false"):
        raise invalid(name, "true or false", value)
    return text == "true"


def base64_of(name: str, value: Any) -> bytes:
    """Return the bytes of a base64 text.

    Raises:
        HttpError: this is none.
    """
    try:
        return b64decode(text_of(name, value), validate=True)
    except (binascii.Error, ValueError):
        raise invalid(name, "base64", value) from None


def is_json(content_type: str) -> bool:
    """Return true if a content type says that the content is JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def parse_json(text: str | bytes) -> Any:
    """Return a value of JSON, which can be written as a part of a document.

    Raises:
        ValueError: this is none, or it nests too deep.
    """
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it nests too deep") from None
    opened = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if opened <= MAX_JSON_LEVELS:
        return found
    level = [found]
    for _ in range(MAX_JSON_LEVELS + 1):
        level = [part for part in level if isinstance(part, dict | list)]
        if not level:
            return found
        level = [item for part in level for item in (part.values() if isinstance(part, dict) else part)]
    raise ValueError(f"it nests more than {MAX_JSON_LEVELS} levels deep")


def read_json(text: str | bytes, what: str) -> Any:
    """Return a value of JSON.

    Raises:
        HttpError: this is none.
    """
    try:
        return parse_json(text)
    except ValueError:
        problem = f"{what} is not JSON, or nests more than {MAX_JSON_LEVELS} levels deep"
        raise HttpError(400, problem, INVALID) from None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def plain_of(name: str, value: Any) -> dict[str, Any]:
    """Return an object of plain values: those of application properties have no structure [AMQP 3.2.5]."""
    if not isinstance(value, dict):
        raise invalid(name, "an object of JSON", value)
    for key, each in value.items():
        if not (each is None or isinstance(each, str | int | float)):
            raise invalid(f"{name}.{key:.60}", "a text, a number, true, false or null", each)
        if isinstance(each, float) and each - each != 0:
            raise invalid(f"{name}.{key:.60}", "a number that ends", each)
        if isinstance(each, int) and not -_MAX_WHOLE - 1 <= each <= _MAX_WHOLE:
            raise invalid(f"{name}.{key:.60}", "a number of 64 bits", each)
    return value


def size_of(payload: bytes) -> int:
    """Return the bytes that a message takes as text in an answer, where a control character is written as six."""
    return 6 * len(payload) - 5 * len(payload.translate(None, _CONTROLS))


def dumped(document: Any) -> bytes:
    """Return a line of JSON."""
    return json.dumps(document, ensure_ascii=False).encode(errors="replace") + b"\n"
