"""Columns that the sink knows: checked when a query is planned, read as plain values in its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.headers import Header
from enmasse.pipeline.sink.options import SinkOptions

_TEXT = (StringType,)
_BYTES = (BinaryType, StringType)
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_SIMPLE = (StringType, BinaryType, BooleanType, FloatType, DoubleType, *_WHOLE)

_TYPES: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "value": (_BYTES, "binary or string"),
    "key": (_BYTES, "binary or string"),
    "subject": (_TEXT, "string"),
    "properties": ((MapType,), "a map of string to string, number, boolean or binary"),
    "headers": (
        (ArrayType,),
        "an array<struct<key string, value string, type string>>, or with a binary value and no type",
    ),
    "content_type": (_TEXT, "string"),
    "message_id": (_TEXT, "string"),
    "address": (_TEXT, "string"),
    "ttl": ((*_WHOLE, DayTimeIntervalType), "a whole number of milliseconds, or an interval"),
    "durable": ((BooleanType,), "boolean"),
    "partition": (_WHOLE, "a whole number"),
}


class Row(NamedTuple):
    """One row, as plain values; ``None`` where it has nothing."""

    value: bytes | None
    key: str | bytes | None
    subject: str | None
    properties: tuple[tuple[str, Any], ...] | None
    content_type: str | None
    message_id: str | None
    address: str | None
    ttl: int | None
    """Milliseconds."""
    durable: bool | None
    headers: tuple[Header, ...] | None = None
    partition: int | None = None


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Check that a frame has columns which the sink knows, and can be written.

    Raises:
        OptionError: a column is unknown, missing or of a type that does not fit; the message says which.
    """
    known = ", ".join(_TYPES)
    seen: set[str] = set()
    for field in schema.fields:
        name = field.name
        if name not in _TYPES:
            raise OptionError(
                f"format enmasse does not write the column {name!r}; it knows {known}. "
                "Drop it, or make it part of the value: .selectExpr('to_json(struct(*)) AS value')"
            )
        if name in seen:
            raise OptionError(f"there are two columns {name!r}; drop one")
        seen.add(name)
        kinds, wanted = _TYPES[name]
        fits = isinstance(field.dataType, kinds)
        if fits and isinstance(field.dataType, MapType):
            fits = isinstance(field.dataType.keyType, StringType) and isinstance(field.dataType.valueType, _SIMPLE)
        if fits and isinstance(field.dataType, ArrayType):
            fits = _are_headers(field.dataType.elementType)
        if not fits:
            raise OptionError(f"column {name!r} should be {wanted}, not {field.dataType.simpleString()}")
    if "value" not in seen:
        raise OptionError("there is no column 'value': .selectExpr('to_json(struct(*)) AS value') makes one of all")
    if "address" not in seen and not options.address:
        raise OptionError('nothing says where rows go: expected .option("address", "alerts") or a column \'address\'')


def _are_headers(of: DataType) -> bool:
    if not isinstance(of, StructType):
        return False
    kinds = {field.name: type(field.dataType) for field in of.fields}
    value = kinds.pop("value", None)
    if value is BinaryType:
        return kinds == {"key": StringType}
    return value is StringType and kinds in ({"key": StringType}, {"key": StringType, "type": StringType})


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """Return the rows of a batch whose columns were checked."""
    named = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = [_values(name, named.get(name)) for name in Row._fields]
    return map(Row, *_bounded(columns, batch.num_rows))


def _bounded(columns: list[Iterable[Any]], rows: int) -> list[Iterable[Any]]:
    return [repeat(None, rows) if column is None else column for column in columns]


def _values(name: str, column: pa.Array | None) -> Any:
    if column is None:
        return None
    if name == "value":
        return pc.cast(column, pa.large_binary() if _is_large(column) else pa.binary()).to_pylist()
    if name == "ttl":
        if pa.types.is_duration(column.type):
            column = pc.cast(column, pa.duration("ms"), safe=False)
        return pc.cast(column, pa.int64()).to_pylist()
    if name == "properties":
        return [None if pairs is None else tuple(sorted(pairs)) for pairs in column.to_pylist()]
    if name == "headers":
        return [None if found is None else tuple(map(_header, found)) for found in column.to_pylist()]
    return column.to_pylist()


def _header(of: dict[str, Any] | None) -> Header:
    return Header(None, None) if of is None else Header(of["key"], of["value"], of.get("type"))


def _is_large(column: pa.Array) -> bool:
    return bool(pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type))
