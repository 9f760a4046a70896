"""Messages of JSON whose values all fit their columns, read straight into rows by msgspec.

Rules:
1. A row is the one that ``json_documents`` and ``shaping`` make, or there is none: they alone decide about what is
   odd, and say what is wrong.
2. A value that msgspec would take with fewer digits than it has is left to them: numbers of DECIMAL are read as
   written, and ``-0`` not at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import msgspec

from enmasse.model.sql.ddl import Column, ColumnType
from enmasse.pipeline.decoding.json_documents import VALUES, read_value
from enmasse.pipeline.decoding.shaping import INTEGERS, MAX_FLOAT, Shape, column_shape

_has_negative_zero = re.compile("-0(?![0-9.])").search


def rows_reader(columns: Sequence[Column]) -> Callable[[bytes], list[Any] | None]:
    """Return the function that makes of a message a value for each column, or None where that takes a closer look."""
    try:
        record, values_of = _record(columns)
    except ValueError:  # names with quotes or backslashes
        return lambda _: None
    decode = msgspec.json.Decoder(record).decode

    def read(content: bytes) -> list[Any] | None:
        try:
            text = content.decode()
            if "-0" in text and _has_negative_zero(text):
                return None
            row = values_of(decode(text))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        # A row of NULLs alone may be of a message that has no field of the table.
        return None if row.count(None) == len(row) else row

    return read


def _record(fields: Sequence[Column]) -> tuple[Any, Callable[[Any], list[Any]]]:
    """Return the type of an object with such fields, and the function that gives their values."""
    members: list[Any] = []
    finishing: list[tuple[int, Shape]] = []
    for index, field in enumerate(fields):
        annotation, finish = _field(field)
        members.append((f"f{index}", annotation, None) if field.is_nullable else (f"f{index}", annotation))
        if finish is not None:
            finishing.append((index, finish))
    rename = {f"f{index}": field.name for index, field in enumerate(fields)}
    record = msgspec.defstruct("Record", members, rename=rename, kw_only=True, gc=False)
    as_tuple = msgspec.structs.astuple

    def values(read: Any) -> list[Any]:
        row = list(as_tuple(read))
        for index, finish in finishing:
            if row[index] is not None:
                row[index] = finish(row[index])
        return row

    return record, values


def _field(field: Column) -> tuple[Any, Shape | None]:
    """Return the type that msgspec reads a field as, and what finishes the value that was read, if anything."""
    annotation, finish = _type(field.type, field)
    return annotation | None if field.is_nullable and annotation is not msgspec.Raw else annotation, finish


def _type(of: ColumnType, field: Column) -> tuple[Any, Shape | None]:
    if of.name in INTEGERS:
        bound = 1 << INTEGERS[of.name] - 1
        return Annotated[int, msgspec.Meta(ge=-bound, le=bound - 1)], None
    if of.name == "FLOAT":
        return Annotated[float, msgspec.Meta(ge=-MAX_FLOAT, le=MAX_FLOAT)], None
    if of.name in _AS_READ:
        return _AS_READ[of.name], None
    if of.name == "ARRAY":
        return _array(of)
    if of.name == "MAP" and of.inner[0].name == "STRING":
        return _map(of)
    if of.name == "STRUCT":
        record, values_of = _record(of.fields)
        names = [inner.name for inner in of.fields]
        return record, lambda read: dict(zip(names, values_of(read), strict=True))
    shape = column_shape(field, field.name, VALUES)
    if of.name in _THEN_SHAPED:
        return _THEN_SHAPED[of.name], shape
    return msgspec.Raw, lambda written: shape(read_value(bytes(written).decode()))


_AS_READ: Final[dict[str, Any]] = {"DOUBLE": float, "STRING": str, "BOOLEAN": bool}
_THEN_SHAPED: Final[dict[str, Any]] = {
    "TIMESTAMP": int | float | str,
    "TIMESTAMP_NTZ": str,
    "DATE": str,
    "BINARY": str,
}


def _array(of: ColumnType) -> tuple[Any, Shape | None]:
    annotation, finish = _field(Column("", of.inner[0]))
    made = list[annotation]  # type: ignore[valid-type]  # made while it runs
    if finish is None:
        return made, None
    return made, lambda items: [None if item is None else finish(item) for item in items]


def _map(of: ColumnType) -> tuple[Any, Shape | None]:
    annotation, finish = _field(Column("", of.inner[1]))
    made = dict[str, annotation]  # type: ignore[valid-type]  # made while it runs
    if finish is None:
        return made, lambda entries: list(entries.items())
    return made, lambda entries: [(key, None if item is None else finish(item)) for key, item in entries.items()]
