"""JSON [RFC 8259]: one object in UTF-8, nothing after it; its numbers keep the digits that were sent.

Rules:
1. A number with a point or an exponent is a ``Written``: types of columns decide what it is, and no digit is lost.
2. NaN and infinity are read, or the other values of the message were lost; no column takes them.
3. What JSON has no type for is a text: ``VALUES`` makes of it what ``shaping`` takes, or leaves it as it is.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from json.encoder import encode_basestring
from typing import Any, Final

from enmasse.model.sql.ddl import Column
from enmasse.pipeline.decoding.shaping import RecordProblem

_IS_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII).fullmatch
_LOOKS_BARE: Final = re.compile("-?[0-9]|(?:true|false|NaN|-?Infinity)$").match
_UNQUOTED: Final = frozenset(("STRING", "BINARY", "DATE", "TIMESTAMP_NTZ"))
_SHOWN: Final = 60
"""Characters of a wrong value: enough to recognise it."""


class Written(str):
    """A number as it was sent."""

    __slots__ = ()


def _whole(text: str) -> int | Written:
    # No whole number of Python has a sign and is zero.
    return Written(text) if text == "-0" else int(text)


_DECODE: Final = json.JSONDecoder(parse_float=Written).decode
_DECODE_SIGNED: Final = json.JSONDecoder(parse_float=Written, parse_int=_whole).decode


def read_value(text: str) -> Any:
    """Return the value of a text of JSON; raises ValueError or RecursionError."""
    return (_DECODE_SIGNED if "-0" in text else _DECODE)(text)


def read_json(content: bytes) -> dict[str, Any]:
    """Return the object that a message holds.

    Raises:
        RecordProblem: it is no JSON, or no object.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise RecordProblem("it is no UTF-8") from None
    try:
        found = read_value(text)
    except (ValueError, RecursionError):
        found = None
    if type(found) is dict:
        return found
    begun = text.lstrip(" \t\r\n")
    if not begun:
        raise RecordProblem("it is empty")
    if not begun.startswith("{"):
        raise RecordProblem(f"expected a JSON object, got {text[:_SHOWN]}")
    raise RecordProblem("it is not one JSON object and nothing else")


def json_problem(column: Column, value: Any) -> str:
    """Return what is said of a value that does not fit."""
    shown = _shown(value)
    looks_bare = _IS_NUMBER if column.type.name == "TIMESTAMP" else _LOOKS_BARE
    if type(value) is str and column.type.name not in _UNQUOTED and looks_bare(value):
        shown = f'"{shown}"'
    return f"{column.name}: expected {column.type}, got {shown}"


def _shown(value: Any) -> str:
    try:
        text = value if type(value) is str else _json(value)
    except (ValueError, RecursionError):
        text = json.dumps(value) if type(value) is float else "what is no JSON"
    return text[:_SHOWN].encode(errors="replace").decode()


def _json(value: Any) -> str:
    """Return what was read as JSON again, its numbers as they were; raises ValueError where NaN is in it."""
    if type(value) is dict:
        return f"{{{','.join([f'{encode_basestring(name)}:{_json(one)}' for name, one in value.items()])}}}"
    if type(value) is list:
        return f"[{','.join([_json(one) for one in value])}]"
    if type(value) is Written:
        return str(value)
    if type(value) is str:
        return encode_basestring(value)
    return json.dumps(value, allow_nan=False)


def _text(value: Any) -> Any:
    if type(value) is str:
        return value
    try:
        return _json(value)
    except (ValueError, RecursionError):
        return value


def _exact(value: Any) -> Any:
    if type(value) is not Written:
        return value
    try:
        return Decimal(value)
    except InvalidOperation:  # an exponent of many digits
        return Decimal("NaN")


def _amount(value: Any) -> Any:
    return Decimal(value) if type(value) is str and _IS_NUMBER(value) else _exact(value)


def _floating(value: Any) -> Any:
    return float(value) if type(value) is Written else value


def _bytes(value: Any) -> Any:
    if type(value) is not str:
        return value
    text = value.replace("\r", "").replace("\n", "")
    try:
        made = b64decode(text, validate=True)
    except ValueError:
        return value
    # Not with bits that nothing holds.
    return made if b64encode(made).decode() == text else value


VALUES: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), _exact),
    **dict.fromkeys(("FLOAT", "DOUBLE", "TIMESTAMP"), _floating),
    "DECIMAL": _amount,
    "STRING": _text,
    "BINARY": _bytes,
}
"""The functions that make of a document's value one for ``shaping``, by the name of the column's type."""
