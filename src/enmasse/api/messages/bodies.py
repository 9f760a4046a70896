"""Values and bodies of messages in the form of JSON.

Rules:
1. A value that JSON lacks is a map of ``type`` and ``value``: binary as hexadecimal digits, whole numbers beyond
   2^53, times, UUIDs, numbers that are none, maps whose keys are no text.
2. What is shown of a body is bounded: by its bytes, and by the values that it decodes to. One that cannot be decoded
   is shown as text if it is UTF-8, else as hexadecimal digits.
3. A body is decoded as its message's name says (Sparkplug), else as its address's schema says, else as its content
   type says, else as it looks.
"""

from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

import cbor2
import fastavro
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from enmasse.message.types import Array, Char, Described, Symbol, Timestamp
from enmasse.model.sql.avro import parse_avro
from enmasse.model.sql.protobuf import parse_protobuf
from enmasse.wire.sparkplug.edge_node import Reader, is_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SHOWN_BYTES = 64 << 10
"""Bytes of a body that are shown, unless all of it is asked for."""

WHOLE_BYTES = 1 << 20
"""Bytes that are shown of one that is asked for as a whole."""

MAX_VALUES = 100_000
MAX_LEVELS = 64
_EXACT = 1 << 53
_JSON_TYPES = ("application/json", "text/json")
_CBOR_TYPES = ("application/cbor",)
_AVRO_TYPES = ("application/avro", "avro/binary", "application/vnd.apache.avro")
_SINGLE_OBJECT = b"\xc3\x01"
_FINGERPRINT_BYTES = 8

Document = dict[str, Any]


class TooMuchError(ValueError):
    """Raised for a value that has too many parts, or is too deep."""


class _Plain:
    """Turns one value into JSON's, as long as it has not too many parts."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def value(self, found: Any, depth: int = 0) -> Any:
        """Return a value of AMQP, CBOR or Avro as one of JSON.

        Raises:
            TooMuchError: it has too many parts, or is too deep.
        """
        self._left -= 1
        if self._left < 0 or depth > MAX_LEVELS:
            raise TooMuchError("a value of too many parts")
        match found:
            case None | bool():
                return found
            case Timestamp():
                return _typed("timestamp", _moment(int(found)))
            case int():
                return int(found) if abs(found) <= _EXACT else _typed("integer", str(int(found)))
            case float():
                return float(found) if math.isfinite(found) else _typed("double", str(float(found)))
            case Symbol():
                return _typed("symbol", str(found))
            case Char() | str():
                return _text(str(found))
            case bytes() | bytearray() | memoryview():
                return _typed("binary", bytes(found).hex())
            case dict():
                return self._map(found, depth)
            case Array():
                return [self.value(item, depth + 1) for item in found.values]
            case list() | tuple() | set() | frozenset():
                return [self.value(item, depth + 1) for item in found]
            case Described():
                described = {"type": "described", "descriptor": self.value(found.descriptor, depth + 1)}
                return described | {"value": self.value(found.value, depth + 1)}
            case cbor2.CBORTag():
                return {"type": "tag", "tag": found.tag, "value": self.value(found.value, depth + 1)}
            case UUID():
                return _typed("uuid", str(found))
            case datetime() | date():
                return _typed("timestamp", found.isoformat())
            case Decimal():
                return _typed("decimal", str(found))
            case _:
                return _typed(type(found).__name__, _text(str(found)))

    def _map(self, found: Mapping[Any, Any], depth: int) -> Any:
        if all(isinstance(key, str) for key in found):
            return {_text(str(key)): self.value(item, depth + 1) for key, item in found.items()}
        pairs = [[self.value(key, depth + 1), self.value(item, depth + 1)] for key, item in found.items()]
        return {"type": "map", "value": pairs}


def plain(found: Any) -> Any:
    """Return a value as one of JSON; what has too many parts is only named.

    Symbols of AMQP are told from its strings in bodies alone: see ``Body``.
    """
    try:
        return _Plain().value(str(found) if isinstance(found, Symbol) else found)
    except TooMuchError as error:
        return _typed(type(found).__name__, str(error))


def _typed(kind: str, value: Any) -> Document:
    return {"type": kind, "value": value}


def _text(text: str) -> str:
    # Half a surrogate pair, which AMQP's UTF-8 cannot have and CBOR's may, is no character.
    return text.encode("utf-8", "replace").decode()


def _moment(milliseconds: int) -> str:
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(seconds: float) -> str:
    """Return a time since 1970 as RFC 3339 has it."""
    return _moment(round(seconds * 1000))


@dataclass(frozen=True, slots=True)
class Declared:
    """The declared encoding of an address's bodies.

    Attributes:
        format: the format of the address's schema; empty: nothing is said.
        schema: its text.
    """

    format: str = ""
    schema: str = ""


def body_of(body: Any, content_type: str | None, declared: Declared, most_bytes: int) -> Document:
    """Return the body of a message as JSON: its form, its size, and so much of it."""
    if isinstance(body, bytes | bytearray | memoryview):
        return _of_bytes(bytes(body), (content_type or "").partition(";")[0].strip().lower(), declared, most_bytes)
    if isinstance(body, str) and not isinstance(body, Symbol):
        raw = body.encode("utf-8", "replace")
        return {"form": _form_of_text(body, content_type)} | _cut_text(raw, most_bytes)
    form = "sequence" if isinstance(body, list) else "value"
    try:
        value = _Plain().value(body)
    except TooMuchError as error:
        return {"form": form, "text": str(error), "bytes": 0, "truncated": True}
    text = json.dumps(value, ensure_ascii=False)
    size = len(text.encode())
    if size > most_bytes:
        return {"form": form} | _cut_text(text.encode(), most_bytes)
    return {"form": form, "value": value, "bytes": size, "truncated": False}


def sparkplug_body(body: Any, names: Iterable[str], reader: Reader, most_bytes: int) -> Document | None:
    """Return the body of a message of Sparkplug; None: it is none, or too large.

    Args:
        body: the body.
        names: the names that the message may have been sent to.
        reader: has read those before it.
        most_bytes: the bytes of the largest one that is shown.
    """
    name = next((name for name in names if is_name(name)), "")
    if not name or not isinstance(body, bytes | bytearray | memoryview) or len(body) > most_bytes:
        return None
    try:
        found = reader.read(name, bytes(body))
        value = None if found is None else _Plain().value(found)
    except ValueError:
        return None
    return None if value is None else {"form": "sparkplug", "value": value, "bytes": len(body), "truncated": False}


def _of_bytes(raw: bytes, content_type: str, declared: Declared, most_bytes: int) -> Document:
    if len(raw) <= most_bytes:
        for form, read in (("cbor", _read_cbor), ("avro", _read_avro), ("protobuf", _read_protobuf)):
            if not _is_said(form, content_type, declared):
                continue
            try:
                value = read(raw, declared)
                return {"form": form, "value": _Plain().value(value), "bytes": len(raw), "truncated": False}
            except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, MemoryError, EOFError):
                break  # shown as it is
    try:
        text = raw[:most_bytes].decode()
    except UnicodeDecodeError as error:
        # A character may be cut in two at the end.
        if len(raw) <= most_bytes or error.start < most_bytes - 3:
            return _hex(raw, most_bytes)
        text = raw[: error.start].decode()
    if "\0" in text:
        return _hex(raw, most_bytes)
    form = _form_of_text(text, content_type)
    return {"form": form, "text": text, "bytes": len(raw), "truncated": len(raw) > most_bytes}


def _hex(raw: bytes, most_bytes: int) -> Document:
    shown = raw[:most_bytes]
    return {"form": "binary", "hex": shown.hex(), "bytes": len(raw), "truncated": len(shown) < len(raw)}


def _is_said(form: str, content_type: str, declared: Declared) -> bool:
    if declared.format in ("cbor", "avro", "protobuf"):
        return declared.format == form
    if form == "protobuf":
        return False
    if form == "cbor":
        return content_type in _CBOR_TYPES or content_type.endswith("+cbor")
    return bool(declared.schema) and content_type in _AVRO_TYPES


def _form_of_text(text: str, content_type: str | None) -> str:
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind in _JSON_TYPES or kind.endswith("+json"):
        return "json"
    if text[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]"):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return "text"
        return "json"
    return "text"


def _cut_text(raw: bytes, most_bytes: int) -> Document:
    shown = raw[:most_bytes].decode(errors="ignore")
    return {"text": shown, "bytes": len(raw), "truncated": len(raw) > most_bytes}


def _read_cbor(raw: bytes, _declared: Declared) -> Any:
    file = io.BytesIO(raw)
    try:
        item = cbor2.CBORDecoder(file).decode()
    except cbor2.CBORDecodeError as error:
        raise ValueError(str(error)) from error
    if file.tell() != len(raw):
        raise ValueError("more than one item")
    return item


def _read_avro(raw: bytes, declared: Declared) -> Any:
    file = io.BytesIO(raw)
    if raw.startswith(_SINGLE_OBJECT):
        file.seek(len(_SINGLE_OBJECT) + _FINGERPRINT_BYTES)
    record = fastavro.schemaless_reader(file, _schema(declared.schema), None)
    if file.tell() != len(raw):
        raise ValueError("more than one record")
    return record


def _read_protobuf(raw: bytes, declared: Declared) -> Any:
    message = _protobuf_kind(declared.schema)()
    try:
        message.ParseFromString(raw)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


@lru_cache(64)
def _protobuf_kind(text: str) -> Any:
    return GetMessageClass(parse_protobuf(text))


@lru_cache(64)
def _schema(text: str) -> Any:
    return parse_avro(text)
