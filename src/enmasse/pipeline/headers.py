"""The column ``headers``: application properties in order, each with the AMQP type that it has.

It is called as Kafka's is in Spark: ``ARRAY<STRUCT<key, value>>``, with the type beside them. What it gives of a
message makes the same application properties again. AMQP's are a map; names that come more than once are user
properties of MQTT, and lie in an annotation beside it.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import NoneType
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np

from enmasse.errors import LocalError
from enmasse.message.codec import decode_all, encode
from enmasse.message.errors import DecodeError
from enmasse.message.sections import Sections
from enmasse.message.types import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from enmasse.pipeline.errors import HeaderError

USER_PROPERTIES: Final = Symbol("x-opt-mqtt-user-properties")
"""The annotation with all user properties of a message of MQTT, if some have one name: names and values in turn."""

KNOWN: Final = 4_096
"""Headers that are remembered: devices repeat themselves."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENCODED = "encoded"
_STRANGE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class Header(NamedTuple):
    """One application property."""

    key: str | None
    value: str | bytes | None
    """As text; bytes are binary themselves."""
    type: str | None = None
    """AMQP's name of its type; ``None``: a string, or binary where it is bytes."""


class Properties(NamedTuple):
    """The headers of a message."""

    application: dict[str, Any]
    """The first of each name."""
    pairs: list[str] | None
    """Names and values in turn, where a name comes more than once."""


def headers_of(sections: Sections) -> list[Header]:
    """Return the headers of a message.

    Raises:
        DecodeError: its annotations or application properties cannot be decoded.
    """
    found, named = [], sections.application_properties
    texts = sections.message_annotations.get(USER_PROPERTIES)
    if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
        found = [Header(str(key), str(value), "string") for key, value in zip(texts[::2], texts[1::2], strict=False)]
    told = {header.key for header in found}
    return found + [_header(str(key), value) for key, value in named.items() if str(key) not in told]


def _header(key: str, value: Any) -> Header:
    name, write = _WRITERS.get(type(value), (_ENCODED, _encoded))
    return Header(key, write(value), name)


def properties_of(headers: tuple[Header, ...]) -> Properties:
    """Return what headers are in a message.

    Raises:
        HeaderError: no message can have them.
    """
    application: dict[str, Any] = {}
    for header in headers:
        if header.key is None:
            raise HeaderError("a header has no key")
        application.setdefault(header.key, _value(header))
    if len(application) == len(headers):
        return Properties(application, None)
    pairs = []
    for header in headers:
        if not isinstance(value := _value(header), str):
            raise HeaderError(f"header {header.key!r:.80} is of the type {header.type}; where a key comes twice, all "
                              "have to be strings, as user properties of MQTT")  # fmt: skip
        pairs += [str(header.key), value]
    return Properties(application, pairs)


known_properties = lru_cache(KNOWN)(properties_of)


def header_problem(headers: tuple[Header, ...]) -> str | None:
    """Return why no message can have headers; ``None`` if one can."""
    try:
        known_properties(headers)
    except HeaderError as error:
        return str(error)
    return None


def _value(header: Header) -> Any:
    text, name = header.value, header.type
    if text is None or isinstance(text, bytes):
        return text
    read = str if name is None else _READERS.get(name)
    if read is None:
        raise HeaderError(f"header {header.key!r:.80}: there is no type {name!r:.40}; expected {', '.join(_READERS)}")
    try:
        value = read(text)
        encode(value)
    except (ValueError, LookupError, OverflowError, struct.error, Base64Error, LocalError, DecodeError):
        raise HeaderError(f"header {header.key!r:.80}: {text!r:.80} is no {name}") from None
    return value


def _encoded(value: Any) -> str:
    return b64encode(encode(value)).decode()


def _floating(value: float) -> str:
    text = str(np.float32(value)) if isinstance(value, Float) else repr(value)
    return _STRANGE.get(text, text)


def _moment(value: Timestamp) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=value)
    except OverflowError:
        return str(int(value))
    return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def _whole(kind: Callable[[int], Any]) -> Callable[[str], Any]:
    return lambda text: kind(int(text))


def _bits(kind: Callable[[bytes], Any], size: int) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if len(data := bytes.fromhex(text)) != size:
            raise ValueError(text)
        return kind(data)

    return read


def _read_boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _read_char(text: str) -> Char:
    if len(text) != 1:
        raise ValueError(text)
    return Char(text)


def _read_moment(text: str) -> Timestamp:
    if text.strip().lstrip("-").isdecimal():
        return Timestamp(int(text))
    moment = datetime.fromisoformat(text.strip())
    since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH
    return Timestamp(since // timedelta(milliseconds=1))


def _read_encoded(text: str) -> Any:
    (value,) = decode_all(b64decode(text, validate=True))
    return value


def _plain(value: Any) -> str:
    return str(int(value))


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "null": lambda _: None,
    "boolean": _read_boolean,
    "ubyte": _whole(UByte),
    "ushort": _whole(UShort),
    "uint": _whole(UInt),
    "ulong": _whole(ULong),
    "byte": _whole(Byte),
    "short": _whole(Short),
    "int": _whole(Int),
    "long": int,
    "float": lambda text: Float(float(text)),
    "double": float,
    "decimal32": _bits(Decimal32, 4),
    "decimal64": _bits(Decimal64, 8),
    "decimal128": _bits(Decimal128, 16),
    "char": _read_char,
    "timestamp": _read_moment,
    "uuid": UUID,
    "binary": lambda text: b64decode(text, validate=True),
    "string": str,
    "symbol": Symbol,
    _ENCODED: _read_encoded,
}
"""By AMQP's names of types [AMQP 1.6]."""

_WRITERS: Final[dict[type, tuple[str, Callable[[Any], str | None]]]] = {
    NoneType: ("null", lambda _: None),
    bool: ("boolean", lambda value: str(value).lower()),
    UByte: ("ubyte", _plain),
    UShort: ("ushort", _plain),
    UInt: ("uint", _plain),
    ULong: ("ulong", _plain),
    Byte: ("byte", _plain),
    Short: ("short", _plain),
    Int: ("int", _plain),
    int: ("long", _plain),
    Float: ("float", _floating),
    float: ("double", _floating),
    Decimal32: ("decimal32", bytes.hex),
    Decimal64: ("decimal64", bytes.hex),
    Decimal128: ("decimal128", bytes.hex),
    Char: ("char", str),
    Timestamp: ("timestamp", _moment),
    UUID: ("uuid", str),
    bytes: ("binary", lambda value: b64encode(value).decode()),
    str: ("string", str),
    Symbol: ("symbol", str),
}
