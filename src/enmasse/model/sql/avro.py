"""Avro schemas of messages, and the columns that they come to.

Rules:
1. A message is one record; its fields are the columns.
2. Null in a union makes a column that may be NULL, which all may. A union of several other types is a structure with
   a field for each, of which one is not NULL: named after the type, as in Avro's JSON. Numbers of one kind are one.
3. A logical type counts on the type that it is defined for, and is nothing elsewhere.
4. Nothing that takes no bytes (null alone, an empty record, fixed of 0) stands in a schema: a few bytes could
   claim any number of them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from enmasse.model.sql.ddl import Column, ColumnType

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    ("int", "date"): "DATE",
    ("string", "uuid"): "STRING",
    ("int", "time-millis"): "STRING",
    ("long", "time-micros"): "STRING",
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
    ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
}
DURATION: Final = ("months", "days", "milliseconds")
"""The parts of a duration, each of four bytes."""
_DURATION_TYPE: Final = ColumnType("STRUCT", fields=tuple(Column(name, ColumnType("BIGINT")) for name in DURATION))
UUID_BYTES, DURATION_BYTES = 16, 12
_MAX_FIELDS: Final = 10_000
"""Fields of all structures: a name that stands for a type again and again would make any number of them."""
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
    except (
        fastavro.schema.SchemaParseException,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as error:
        reason = str(error).strip("'\"")
        unknown = isinstance(error, fastavro.schema.UnknownType)
        raise AvroSchemaError(f"unknown type {reason}" if unknown else reason) from error


def avro_columns(text: str) -> tuple[Column, ...]:
    """Return the columns of messages with this schema.

    Raises:
        AvroSchemaError: as ``parse_avro``; or a field has no type that a column can have.
    """
    parsed = parse_avro(text)
    columns = _Reading(named_types(parsed)).fields(parsed, "", 0)
    names = [column.name.lower() for column in columns]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise AvroSchemaError(f"there are two fields {columns[index].name!r}; case does not tell columns apart")
    return columns


def named_types(schema: Any) -> dict[str, Any]:
    """Return the types of a parsed schema that have names, which stand for them elsewhere in it."""
    found: dict[str, Any] = {}
    left = [schema]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left += node
        elif isinstance(node, dict):
            if node["type"] in ("record", "enum", "fixed"):
                found[node["name"]] = node
            left += [field["type"] for field in node.get("fields", ())]
            left += [node[key] for key in ("items", "values") if key in node]
    return found


def definition(schema: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return a type of a parsed schema, that is no union, as a map with its ``type``."""
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    return dict(schema)


def union_branches(union: list[Any], named: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the types of a union but null, by the names of the fields that they come to.

    Raises:
        AvroSchemaError: two have one name, or one is a union.
    """
    found: dict[str, dict[str, Any]] = {}
    for item in union:
        if isinstance(item, list):
            raise AvroSchemaError("a union stands in a union")
        branch = definition(item, named)
        name = str(branch.get("name", branch["type"])).rpartition(".")[2]
        if name == "null":
            continue
        if name.lower() in map(str.lower, found):
            raise AvroSchemaError(f"two types of a union are called {name!r}")
        found[name] = branch
    for narrow, wide in (("int", "long"), ("float", "double")):
        if narrow in found and wide in found and _sort(found[narrow]) == _sort(found[wide]):
            del found[narrow]
    return found


def _sort(schema: dict[str, Any]) -> str | None:
    """Return what a number stands for: the type of column of a logical type, or None."""
    return _LOGICAL.get((schema["type"], _logical(schema)))


def _logical(schema: dict[str, Any]) -> str:
    # Readers of messages put a word and a dot before the name.
    return str(schema.get("logicalType", "")).rpartition(".")[2]


class _Reading:
    """Named types, those that are being read, and how many fields that came to."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._open: set[str] = set()
        self._count = 0

    def fields(self, record: dict[str, Any], path: str, depth: int) -> tuple[Column, ...]:
        if depth > _MAX_DEPTH:
            raise AvroSchemaError(f"{path}: expected at most {_MAX_DEPTH} types in each other")
        name = record["name"]
        if name in self._open:
            raise AvroSchemaError(f"{path}: {name} holds itself, which no column can")
        self._count += len(record["fields"])
        if self._count > _MAX_FIELDS:
            raise AvroSchemaError(f"{path}: expected at most {_MAX_FIELDS} fields in all")
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
            return self._union(schema, path, depth)
        schema = definition(schema, self._named)
        kind = schema["type"]
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
        logical = _logical(schema)
        if logical == "decimal" and kind in ("bytes", "fixed"):
            precision, scale = schema.get("precision"), schema.get("scale") or 0
            if not precision:
                raise AvroSchemaError(f"{path}: expected the precision of a decimal")
            if precision > _MAX_DECIMAL_DIGITS:
                raise AvroSchemaError(f"{path}: expected at most {_MAX_DECIMAL_DIGITS} digits, got {precision}")
            return ColumnType("DECIMAL", arguments=(precision, scale))
        if (kind, logical, schema.get("size")) == ("fixed", "duration", DURATION_BYTES):
            return _DURATION_TYPE
        if (kind, logical, schema.get("size")) == ("fixed", "uuid", UUID_BYTES):
            return ColumnType("STRING")
        name = _LOGICAL.get((kind, logical)) or _SIMPLE.get(kind)
        if name is None:
            raise AvroSchemaError(f"{path}: a column cannot be {kind}")
        return ColumnType(name)

    def _union(self, union: list[Any], path: str, depth: int) -> ColumnType:
        if depth > _MAX_DEPTH:
            raise AvroSchemaError(f"{path}: expected at most {_MAX_DEPTH} types in each other")
        try:
            branches = union_branches(union, self._named)
        except AvroSchemaError as error:
            raise AvroSchemaError(f"{path}: {error}") from error
        if not branches:
            raise AvroSchemaError(f"{path}: a column cannot be null alone")
        self._count += len(branches)
        fields = [
            Column(name, self.type(branch, f"{path}.{name}" if len(branches) > 1 else path, depth + 1))
            for name, branch in branches.items()
        ]
        return fields[0].type if len(fields) == 1 else ColumnType("STRUCT", fields=tuple(fields))
