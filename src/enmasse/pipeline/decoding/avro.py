"""Avro: one record in binary, as it is or with the header of the single-object encoding.

Rules:
1. Logical types are read here where the library takes more than it was given: times of day that no day has,
   decimals rounded to the digits of their schema, UUIDs written anew.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import fastavro

from enmasse.model.sql.avro import parse_avro
from enmasse.pipeline.decoding.shaping import RecordProblem

_SINGLE_OBJECT: Final = b"\xc3\x01"
_DAY_S: Final = 86_400
_MIDNIGHT: Final = datetime(1970, 1, 1, tzinfo=UTC)
_IS_UUID: Final = re.compile("[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}").fullmatch


def _time_of_day(data: int, units: int) -> time:
    if not 0 <= data < _DAY_S * units:
        raise ValueError(f"{data} is no time of day")
    return (_MIDNIGHT + timedelta(microseconds=data * 1_000_000 // units)).time()


def _uuid(data: str, *_: Any) -> str:
    if not _IS_UUID(data):
        raise ValueError(f"{data[:60]!r} is no UUID")
    return data


def _decimal(data: bytes, written: Any, *_: Any) -> Decimal:
    if not data:
        raise ValueError("a decimal has no bytes")
    return Decimal(f"{int.from_bytes(data, signed=True)}e-{written.get('scale', 0)}")


_READERS: Final[dict[str, Callable[..., Any]]] = {
    "int-time-millis": lambda data, *_: _time_of_day(data, 1_000),
    "long-time-micros": lambda data, *_: _time_of_day(data, 1_000_000),
    "string-uuid": _uuid,
    "bytes-decimal": _decimal,
    "fixed-decimal": _decimal,
}
_OWN: Final = "enmasse."
"""The beginning of the names of their logical types, for the library has one set of readers for a whole process."""
for _name, _read in _READERS.items():
    _kind, _, _logical = _name.partition("-")
    fastavro.read.LOGICAL_READERS[f"{_kind}-{_OWN}{_logical}"] = _read


def reading_schema(schema_text: str) -> Any:
    """Return a schema as messages are read by it.

    Raises:
        AvroSchemaError: the text is no schema.
    """
    parse_avro(schema_text)
    return parse_avro(json.dumps(_with_own(json.loads(schema_text))))


def _with_own(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_own(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _with_own(value) for name, value in schema.items()}
    kind, logical = schema.get("type"), schema.get("logicalType")
    return made | {"logicalType": f"{_OWN}{logical}"} if f"{kind}-{logical}" in _READERS else made


def avro_reader(schema_text: str) -> Callable[[bytes], Any]:
    """Return the reader of messages of one schema; it raises RecordProblem.

    Raises:
        AvroSchemaError: the text is no schema.
    """
    schema = reading_schema(schema_text)
    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    fingerprint = fastavro.schema.fingerprint(canonical, "CRC-64-AVRO")
    # Written least byte first, and given most byte first.
    header = _SINGLE_OBJECT + bytes.fromhex(fingerprint)[::-1]

    def read(content: bytes) -> Any:
        return read_record(
            content, len(header) if content.startswith(header) else 0, schema, None, "not Avro of this schema"
        )

    return read


def read_record(content: bytes, begin: int, written: Any, wanted: Any, no_record: str) -> Any:
    """Return the record that stands in a message from a place to its end.

    Args:
        content: the message.
        begin: the place.
        written: the schema by which the record was written.
        wanted: the schema by which it is read, or None for the same.
        no_record: the words for a message that is none, before the reason.

    Raises:
        RecordProblem: it is no record of the schema, or there is more.
        SchemaResolutionError: the record that was written cannot be read by the other schema.
    """
    file = io.BytesIO(content)
    file.seek(begin)
    try:
        record = fastavro.schemaless_reader(file, written, wanted)
    except EOFError as error:
        raise RecordProblem(f"{no_record}: it ends too soon") from error
    except (ValueError, LookupError, OverflowError, TypeError, ArithmeticError, MemoryError) as error:
        raise RecordProblem(f"{no_record}: {error}") from error
    if file.tell() != len(content):
        raise RecordProblem(f"expected one Avro record, got {len(content) - file.tell()} more bytes")
    return record
