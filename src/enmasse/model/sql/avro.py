"""Avro schemas of messages, and the columns that they come to.

Rules:
1. A message is one record; its fields are the columns.
2. Unions are with null, or of one type: a column has one type.
3. Nothing that takes no bytes (null alone, an empty record, fixed of 0) stands in a schema: a few bytes could
   claim any number of them.
"""

from __future__ import annotations

import json
from typing import Any, Final

from enmasse.model.sql.ddl import Column, ColumnType

_MAX_CHARACTERS: Final = 100_000
_MAX_DEPTH: Final = 20
_SIMPLE: Final = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
    "enum": "STRING",
    "fixed": "BINARY",
}
_LOGICAL: Final = {
    "date": "DATE",
    "uuid": "STRING",
    "time-millis": "STRING",
    "time-micros": "STRING",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ",
    "local-timestamp-micros": "TIMESTAMP_NTZ",
}
_MAX_DECIMAL_DIGITS: Final = 38


class AvroSchemaError(ValueError):
    """Raised when a text is no Avro schema of messages; the message names the place in it."""


def parse_avro(text: str) -> Any:
    """Return a schema as ``fastavro`` uses it.

    Raises:
        AvroSchemaError: it is no schema, or one of something else than messages.
    """
    import fastavro  # noqa: PLC0415  # only where there is such a schema

    if len(text) > _MAX_CHARACTERS:
        raise AvroSchemaError(f"expected at most {_MAX_CHARACTERS} characters, got {len(text)}")
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AvroSchemaError(f"expected an Avro schema in JSON: {error}") from error
    if not isinstance(plain, dict) or plain.get("type") != "record":
        raise AvroSchemaError('expected a record, as in {"type": "record", "name": ..., "fields": [...]}')
    try:
        return fastavro.parse_schema(plain)
    except (fastavro.schema.SchemaParseException, ValueError, TypeError, KeyError, RecursionError) as error:
        reason = str(error).strip("'\"")
        unknown = isinstance(error, fastavro.schema.UnknownType)
        raise AvroSchemaError(f"unknown type {reason}" if unknown else reason) from error


def avro_columns(text: str) -> tuple[Column, ...]:
    """Return the columns of messages with this schema.

    Raises:
        AvroSchemaError: as ``parse_avro``; or a field has no type that a column can have.
    """
    reading = _Reading()
    columns = reading.fields(parse_avro(text), "", 0)
    names = [column.name.lower() for column in columns]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise AvroSchemaError(f"there are two fields {columns[index].name!r}; case does not tell columns apart")
    return columns


class _Reading:
    """Named types that have been read, and those that are being read."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._open: set[str] = set()

    def fields(self, record: dict[str, Any], path: str, depth: int) -> tuple[Column, ...]:
        if depth > _MAX_DEPTH:
            raise AvroSchemaError(f"{path}: expected at most {_MAX_DEPTH} types in each other")
        name = record["name"]
        if name in self._open:
            raise AvroSchemaError(f"{path}: {name} holds itself, which no column can")
        self._known[name] = record
        if not record["fields"]:
            raise AvroSchemaError(f"{path or name}: expected at least one field")
        for field in record["fields"]:
            if not isinstance(field["name"], str):
                raise AvroSchemaError(
                    f"{path or name}: expected a text as the name of a field, got {field['name']!r}"
                )
        self._open.add(name)
        columns = tuple(
            Column(field["name"], self.type(field["type"], f"{path}.{field['name']}".strip("."), depth + 1))
            for field in record["fields"]
        )
        self._open.discard(name)
        return columns

    def type(self, schema: Any, path: str, depth: int) -> ColumnType:
        if isinstance(schema, list):
            others = [item for item in schema if item != "null"]
            if len(others) != 1:
                raise AvroSchemaError(
                    f"{path}: expected a union of null and one type, got one of {len(others)} types"
                )
            return self.type(others[0], path, depth)
        if isinstance(schema, str):
            if schema in self._known:
                return self.type(self._known[schema], path, depth)
            schema = {"type": schema}
        kind = schema["type"]
        if "name" in schema:
            self._known[schema["name"]] = schema
        if kind == "record":
            return ColumnType("STRUCT", fields=self.fields(schema, path, depth))
        if kind == "array":
            return ColumnType("ARRAY", inner=(self.type(schema["items"], f"{path}[]", depth + 1),))
        if kind == "map":
            return ColumnType(
                "MAP", inner=(ColumnType("STRING"), self.type(schema["values"], f"{path}[]", depth + 1))
            )
        if kind == "fixed" and schema["size"] < 1:
            raise AvroSchemaError(f"{path}: expected a fixed of at least one byte")
        logical = schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            precision, scale = schema["precision"], schema.get("scale", 0)
            if precision > _MAX_DECIMAL_DIGITS:
                raise AvroSchemaError(f"{path}: expected at most {_MAX_DECIMAL_DIGITS} digits, got {precision}")
            return ColumnType("DECIMAL", arguments=(precision, scale))
        if isinstance(kind, (list, dict)):
            return self.type(kind, path, depth + 1)
        name = _LOGICAL.get(logical or "") or _SIMPLE.get(kind)
        if name is None:
            raise AvroSchemaError(f"{path}: a column cannot be {kind}")
        return ColumnType(name)
