"""Checks which rows fit into a table: its columns as Delta and Spark write them, and how they may change.

Rules:
1. Every column of a table may be null, for a message may lack a field, and later files may lack a column.
2. Columns may be added, where that was asked for. What a column's type is does not change.
3. Names are compared without regard to case, for some readers do so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from enmasse.pipeline.errors import TableSchemaError

Field = Mapping[str, Any]
"""A column as both write it in JSON: ``name``, ``type``, ``nullable``, ``metadata``."""

_SIMPLE: Final = (
    "boolean",
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
)
_FOLDERS: Final = ("boolean", "byte", "short", "integer", "long", "string", "date")
"""Types whose values make names of folders that every reader reads back alike."""


def nullable(fields: Sequence[Field]) -> list[dict[str, Any]]:
    """Return the same columns, all of which may be null, at every depth.

    Raises:
        TableSchemaError: a type that no table has; names the column.
    """
    return [
        {
            "name": field["name"],
            "type": _nullable_type(field["name"], field["type"]),
            "nullable": True,
            "metadata": {},
        }
        for field in fields
    ]


def _nullable_type(name: str, of: Any) -> Any:
    if isinstance(of, str) and (of in _SIMPLE or of.startswith("decimal(")):
        return of
    kind = of.get("type") if isinstance(of, Mapping) else of
    if kind == "array":
        return {"type": "array", "elementType": _nullable_type(name, of["elementType"]), "containsNull": True}
    if kind == "map":
        types = {key: _nullable_type(name, of[key]) for key in ("keyType", "valueType")}
        return {"type": "map", **types, "valueContainsNull": True}
    if kind == "struct":
        return {"type": "struct", "fields": nullable(of["fields"])}
    raise TableSchemaError(f"column {name!r}: a table has no columns of type {kind}; CAST it to another one")


def check_columns(fields: Sequence[Field], keys: Sequence[str], partition_by: Sequence[str]) -> None:
    """Make sure that there can be such a table.

    Raises:
        TableSchemaError: two columns have one name, or a key or partition is no column, or of no use as one.
    """
    types: dict[str, Any] = {}
    for field in fields:
        if field["name"].lower() in {name.lower() for name in types}:
            raise TableSchemaError(f"there are two columns {field['name']!r}; case does not distinguish them")
        types[field["name"]] = field["type"]
    for what, names in (("keys", keys), ("partitionBy", partition_by)):
        for name in names:
            if name not in types:
                raise TableSchemaError(f"{what} names {name!r}, but the columns are {', '.join(types)}")
    for name in partition_by:
        if types[name] not in _FOLDERS:
            raise TableSchemaError(
                f"partitionBy names {name!r}, which is {_shown(types[name])}; "
                "folders are named by dates, texts, whole numbers or booleans"
            )
    if set(types) == set(partition_by):
        raise TableSchemaError("partitionBy names every column, so nothing is left for the files")


def is_ordered(fields: Sequence[Field], name: str) -> bool:
    """Return whether the values of a column have an order."""
    of = next(field["type"] for field in fields if field["name"] == name)
    return isinstance(of, str) and of not in ("boolean", "binary")


def added_columns(table: Sequence[Field], rows: Sequence[Field], *, evolve: bool, name: str) -> list[Field]:
    """Return the columns that the table needs for these rows.

    Raises:
        TableSchemaError: a type differs, or a column is new and ``evolve`` was not asked for.
    """
    known = {field["name"]: field for field in table}
    folded = {column.lower(): column for column in known}
    new: list[Field] = []
    for field in rows:
        column = field["name"]
        there = known.get(column)
        if there is not None:
            if there["type"] != field["type"]:
                raise TableSchemaError(
                    f"the table {name} has {column!r} as {_shown(there['type'])}, "
                    f"but it comes as {_shown(field['type'])}; CAST it, or write to another table"
                )
        elif column.lower() in folded:
            raise TableSchemaError(f"the table {name} has {folded[column.lower()]!r}, but it comes as {column!r}")
        else:
            new.append(field)
    if new and not evolve:
        names = ", ".join(repr(field["name"]) for field in new)
        raise TableSchemaError(
            f"the table {name} has no column {names}; allow new columns with evolve: add, or leave them out"
        )
    return new


def _shown(of: Any) -> str:
    return of.upper() if isinstance(of, str) else json.dumps(of)


def event_time(fields: Sequence[Field]) -> str | None:
    """Return the column of the event's time: the first TIMESTAMP that is not the address's own, else that one."""
    found = [field["name"] for field in fields if field["type"] == "timestamp"]
    own = [name for name in found if not name.startswith("_")]
    return next(iter(own or found), None)
