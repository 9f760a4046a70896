"""The columns that documents of a JSON Schema come to.

Rules:
1. A document is an object; its properties are the columns, all of which may be NULL.
2. A column has one type: null beside it does not count.
"""

from __future__ import annotations

import json
from typing import Any, Final

from enmasse.model.sql.ddl import Column, ColumnType
from enmasse.model.sql.message_columns import RESERVED
from enmasse.model.sql.message_schema import SchemaTextError
from enmasse.schemas.json_schemas import resolve

_MAX_DEPTH: Final = 20
_SIMPLE: Final = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "string": "STRING"}
_FORMATS: Final = {"date-time": "TIMESTAMP", "date": "DATE"}


def json_schema_columns(text: str) -> tuple[Column, ...]:
    """Return the columns.

    Raises:
        SchemaTextError: the documents are no objects, or a property has no type that a column can have.
    """
    root = json.loads(text)
    columns = _fields(_plain(root, root, ""), root, "", 0)
    names = [column.name.lower() for column in columns]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise SchemaTextError(
                f"there are two properties {columns[index].name!r}; case does not tell columns apart"
            )
        if name in RESERVED:
            raise SchemaTextError(f"column {name!r} is one that every address has; choose another name")
    return columns


def _fields(schema: dict[str, Any], root: Any, path: str, depth: int) -> tuple[Column, ...]:
    properties = schema.get("properties")
    if depth > _MAX_DEPTH:
        raise SchemaTextError(f"{path}: expected at most {_MAX_DEPTH} types in each other")
    if not properties or schema.get("type", "object") != "object":
        raise SchemaTextError(f"{path or 'the schema'}: expected an object with properties")
    return tuple(
        Column(name, _type(below, root, f"{path}.{name}".strip("."), depth + 1)) for name, below in properties.items()
    )


def _type(schema: Any, root: Any, path: str, depth: int) -> ColumnType:
    plain = _plain(schema, root, path)
    kind = plain["type"]
    if kind == "object" and not plain.get("properties") and isinstance(plain.get("additionalProperties"), dict):
        below = _type(plain["additionalProperties"], root, f"{path}[]", depth + 1)
        return ColumnType("MAP", inner=(ColumnType("STRING"), below))
    if kind == "object":
        return ColumnType("STRUCT", fields=_fields(plain, root, path, depth))
    if kind == "array":
        return ColumnType("ARRAY", inner=(_type(plain.get("items", True), root, f"{path}[]", depth + 1),))
    return ColumnType(_FORMATS.get(plain.get("format", ""), "STRING") if kind == "string" else _SIMPLE[kind])


def _plain(schema: Any, root: Any, path: str) -> dict[str, Any]:
    """Return a schema without references at its top, with one type."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, dict):
            break
        if isinstance(schema.get("$ref"), str):
            schema = resolve(root, schema["$ref"])
            continue
        choices = schema.get("anyOf") or schema.get("oneOf")
        others = [item for item in choices or () if not (isinstance(item, dict) and item.get("type") == "null")]
        if len(others) == 1:
            schema = others[0]
            continue
        types = _types(schema)
        if len(types) != 1 or choices:
            break
        return {**schema, "type": types[0]}
    raise SchemaTextError(
        f"{path or 'the schema'}: expected one type, and null at most beside it; or leave the subject out, and "
        "give the columns in schema"
    )


def _types(schema: dict[str, Any]) -> list[str]:
    found = schema.get("type")
    if found is None and "properties" in schema:
        return ["object"]
    if found is None and all(isinstance(value, str) for value in schema.get("enum", (0,))):
        return ["string"]
    return [name for name in ([found] if isinstance(found, str) else found or ()) if name != "null"]
