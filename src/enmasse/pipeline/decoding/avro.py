"""Avro: one record in binary, as it is or with the header of the single-object encoding.

Rules:
1. Logical types are read here where the library takes more than it was given: times of day that no day has,
   decimals rounded to the digits of their schema, UUIDs written anew; and where it gives bytes.
2. Of a union of several types the library tells by name which one a value is of, if that has a name. The type of
   another one tells: no two of them are read as the same type of Python.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import fastavro

from enmasse.model.sql.avro import (
    DURATION,
    DURATION_BYTES,
    UUID_BYTES,
    definition,
    named_types,
    parse_avro,
    union_branches,
)
from enmasse.pipeline.decoding.shaping import RecordProblem

_SINGLE_OBJECT: Final = b"\xc3\x01"
_DAY_S: Final = 86_400
_MIDNIGHT: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PARTS: Final = struct.Struct("<III")
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


def _uuid_of_bytes(data: bytes, *_: Any) -> Any:
    return str(UUID(bytes=data)) if len(data) == UUID_BYTES else data


def _duration(data: bytes, *_: Any) -> Any:
    return dict(zip(DURATION, _PARTS.unpack(data), strict=True)) if len(data) == DURATION_BYTES else data


def _as_it_is(data: int, *_: Any) -> int:
    return data


_READERS: Final[dict[str, Callable[..., Any]]] = {
    "int-time-millis": lambda data, *_: _time_of_day(data, 1_000),
    "long-time-micros": lambda data, *_: _time_of_day(data, 1_000_000),
    "string-uuid": _uuid,
    "bytes-decimal": _decimal,
    "fixed-decimal": _decimal,
    "fixed-uuid": _uuid_of_bytes,
    "fixed-duration": _duration,
    "long-timestamp-nanos": _as_it_is,
    "long-local-timestamp-nanos": _as_it_is,
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
    read_one = record_reader(schema, None)
    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    fingerprint = fastavro.schema.fingerprint(canonical, "CRC-64-AVRO")
    # Written least byte first, and given most byte first.
    header = _SINGLE_OBJECT + bytes.fromhex(fingerprint)[::-1]

    def read(content: bytes) -> Any:
        return read_one(content, len(header) if content.startswith(header) else 0, "not Avro of this schema")

    return read


def record_reader(written: Any, wanted: Any) -> Callable[[bytes, int, str], Any]:
    """Return the function that reads the record which stands in a message from a place to its end.

    The function takes the message, the place, and the words for a message that is none, before the reason. It raises
    RecordProblem where it is no record of the schema, or there is more; and SchemaResolutionError where the record
    that was written cannot be read by the other schema.

    Args:
        written: the schema by which records were written.
        wanted: the schema by which they are read, or None for the same.
    """
    has_several = any(map(_has_several, (written, wanted)))
    choose = _Unions(wanted or written).chooser(wanted or written, "") if has_several else None

    def record_of(file: io.BytesIO, begin: int) -> Any:
        file.seek(begin)
        if not has_several:
            return fastavro.schemaless_reader(file, written, wanted)
        try:
            return fastavro.schemaless_reader(file, written, wanted, return_named_type=True)
        except TypeError:
            # The library finds no name where one schema defines a type in a union, and the other one before.
            file.seek(begin)
            return fastavro.schemaless_reader(file, written, wanted)

    def read(content: bytes, begin: int, no_record: str) -> Any:
        file = io.BytesIO(content)
        try:
            record = record_of(file, begin)
        except EOFError as error:
            raise RecordProblem(f"{no_record}: it ends too soon") from error
        except (ValueError, LookupError, OverflowError, TypeError, ArithmeticError, MemoryError) as error:
            raise RecordProblem(f"{no_record}: {error}") from error
        if file.tell() != len(content):
            raise RecordProblem(f"expected one Avro record, got {len(content) - file.tell()} more bytes")
        return record if choose is None else choose(record)

    return read


def _has_several(schema: Any) -> bool:
    """Return whether there is a union of several types beside null in a schema."""
    if isinstance(schema, list):
        return len([one for one in schema if one != "null"]) > 1 or any(map(_has_several, schema))
    if not isinstance(schema, dict):
        return False
    inner = [field["type"] for field in schema.get("fields", ())]
    return any(map(_has_several, (*inner, *(schema[key] for key in ("type", "items", "values") if key in schema))))


class _Unions:
    """Values as the library reads them, as values of columns: a union of several types is a map with one entry.

    Args:
        schema: the schema by which messages are read.
    """

    def __init__(self, schema: Any) -> None:
        self._named = named_types(schema)

    def chooser(self, schema: Any, path: str) -> Callable[[Any], Any]:
        """Return the function that does it for values of a type."""
        if isinstance(schema, list):
            return self._of_union(schema, path)
        kind = definition(schema, self._named)
        if kind["type"] == "record":
            fields = [
                (field["name"], self.chooser(field["type"], f"{path}.{field['name']}".strip(".")))
                for field in kind["fields"]
            ]

            def of_record(value: Any) -> dict[str, Any]:
                found = _plain(value)
                return {name: choose(found[name]) for name, choose in fields}

            return of_record
        if kind["type"] == "array":
            item = self.chooser(kind["items"], f"{path}[]")
            return lambda value: [item(one) for one in value]
        if kind["type"] == "map":
            item = self.chooser(kind["values"], f"{path}[]")
            return lambda value: {key: item(one) for key, one in value.items()}
        return _plain

    def _of_union(self, union: list[Any], path: str) -> Callable[[Any], Any]:
        branches = union_branches(union, self._named)
        choosers = {name: self.chooser(branch, f"{path}.{name}") for name, branch in branches.items()}
        if len(branches) == 1:
            (only,) = choosers.values()
            return lambda value: None if value is None else only(value)
        by_name = {branch["name"]: name for name, branch in branches.items() if "name" in branch}
        named = set(by_name.values())

        def choose(value: Any) -> Any:
            if value is None:
                return None
            if type(value) is tuple:
                name = by_name[value[0]]
            else:
                fitting = [name for name, branch in branches.items() if _is_of(value, branch)]
                # One with a name has it, unless it was written by a schema without a union there.
                found = [name for name in fitting if name not in named] or fitting
                if len(found) != 1:
                    raise RecordProblem(f"{path}: it does not tell which type it is of: {', '.join(branches)}")
                name = found[0]
            return {name: choosers[name](value)}

        return choose


def _plain(value: Any) -> Any:
    """Return a value without the name of its type, which the library adds in unions."""
    return value[1] if type(value) is tuple else value


def _is_of(value: Any, branch: dict[str, Any]) -> bool:
    """Return whether a value can have been read as a type."""
    kind, logical = branch["type"], str(branch.get("logicalType", "")).removeprefix(_OWN)
    if kind == "record":
        return type(value) is dict and value.keys() == {field["name"] for field in branch["fields"]}
    if logical == "duration":
        return type(value) is dict and tuple(value) == DURATION
    return type(value) is _PYTHON.get((kind, logical), _PYTHON.get((kind, "")))


_PYTHON: Final[dict[tuple[str, str], type]] = {
    ("boolean", ""): bool,
    ("int", ""): int,
    ("long", ""): int,
    ("float", ""): float,
    ("double", ""): float,
    ("string", ""): str,
    ("enum", ""): str,
    ("bytes", ""): bytes,
    ("fixed", ""): bytes,
    ("array", ""): list,
    ("map", ""): dict,
    ("bytes", "decimal"): Decimal,
    ("fixed", "decimal"): Decimal,
    ("fixed", "uuid"): str,
    ("int", "date"): date,
    ("int", "time-millis"): time,
    ("long", "time-micros"): time,
    **{("long", f"{where}timestamp-{unit}"): datetime for where in ("", "local-") for unit in ("millis", "micros")},
}
