"""Moments beyond the years 1 to 9999: Spark and Arrow hold them, and a table may; Python's ``datetime`` does not.

Rules:
1. Rows leave Spark for an answer with moments as numbers, at every depth; no ``datetime`` is made of them.
2. A function of Python is not called with what its types do not hold: that is a failure of the row.
3. As text a far one is ISO 8601 with its whole year, ``+58878-06-04T00:00:00Z``, and the year before 1 is 0000.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from enmasse.model.sql.ddl import quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_BEGIN: Final = datetime(1, 1, 1)  # noqa: DTZ001  # of a calendar, not of a zone
_BEGIN_DAYS: Final = -719_162
"""The first day of the year 1, of days since 1970."""
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
"""The calendar repeats after so many."""
_DAY_US: Final = 86_400_000_000
_PANDAS_US: Final = (-(1 << 63) // 1000 + 1, (1 << 63) // 1000 - 1)
PANDAS_BOUNDS: Final = {
    "TimestampType": _PANDAS_US,
    "TimestampNTZType": _PANDAS_US,
    "DateType": (_BEGIN_DAYS, 2_932_896),
}
"""The least and the greatest moment that pandas holds, by Spark's type: of dates those of the years 1 to 9999."""
_US_OF: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}


def moment_text(micros: int, *, has_zone: bool) -> str:
    """Return a moment in ISO 8601, of whatever year.

    Args:
        micros: microseconds since 1970.
        has_zone: whether it is one of UTC; else of a place that is not known.
    """
    days, in_day = divmod(micros, _DAY_US)
    time = (_BEGIN + timedelta(microseconds=in_day)).isoformat()[10:]
    return f"{date_text(days)}{time}{'Z' if has_zone else ''}"


def date_text(days: int) -> str:
    """Return a day in ISO 8601, by how many there are since 1970."""
    cycles, rest = divmod(days - _BEGIN_DAYS, _CYCLE_DAYS)
    near = _BEGIN + timedelta(days=rest)
    year = near.year + cycles * _CYCLE_YEARS
    return f"{year:04d}{near:-%m-%d}" if 0 <= year <= 9999 else f"{year:+05d}{near:-%m-%d}"


def is_far(text: str) -> bool:
    """Return whether a text of these functions is one of a year that ``datetime`` does not hold."""
    return text[0] in "+-" or text.startswith("0000-")


def python_values(column: pa.Array) -> list[Any]:
    """Return the values of a column as ``to_pylist`` does, and far moments as text."""
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        values = [_of_scalar(scalar) for scalar in column]
    return values


def _of_scalar(scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    of = scalar.type
    if pa.types.is_map(of):
        return [(_of_scalar(pair["key"]), _of_scalar(pair["value"])) for pair in scalar.values]
    if pa.types.is_struct(of):
        return {field.name: _of_scalar(scalar[index]) for index, field in enumerate(of)}
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return [_of_scalar(item) for item in scalar.values]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if pa.types.is_date32(of):
            return date_text(scalar.value)
        return moment_text(scalar.value * _US_OF[of.unit], has_zone=of.tz is not None)


def arguments_of(columns: Sequence[pa.Array]) -> list[tuple[Any, ...] | str]:
    """Return the values of each row, or why Python cannot have them."""
    try:
        return list(zip(*[column.to_pylist() for column in columns], strict=True))
    except (OverflowError, ValueError):
        return [_arguments([column.slice(row, 1) for column in columns]) for row in range(len(columns[0]))]


def _arguments(columns: Sequence[pa.Array]) -> tuple[Any, ...] | str:
    try:
        return tuple(column.to_pylist()[0] for column in columns)
    except (OverflowError, ValueError):
        shown = [str(python_values(column)[0])[:60] for column in columns]
        return f"got a moment beyond the years 1 to 9999, which Python does not hold: {', '.join(shown)}"


def beyond_pandas(frame: DataFrame) -> dict[str, Column]:
    """Return conditions on rows, by the names of columns: that one holds a moment which pandas does not.

    A ``Timestamp`` of pandas counts nanoseconds, and ends in the year 2262.
    """
    from pyspark.sql import functions as F  # noqa: PLC0415  # workers need it not

    def is_beyond(column: Column, kind: DataType) -> Column:
        return F.coalesce(_any_moment(column, kind, F.lit(False)), F.lit(False))

    return {
        field.name: is_beyond(F.col(quote_identifier(field.name)), field.dataType)
        for field in frame.schema.fields
        if numbers_type(field.dataType) != field.dataType
    }


def _any_moment(column: Column, kind: DataType, no: Column) -> Column:
    """Return whether a value holds a moment that pandas does not; NULL counts as that it does not hold one."""
    from pyspark.sql import functions as F  # noqa: PLC0415  # workers need it not
    from pyspark.sql.types import ArrayType, MapType, StructType  # noqa: PLC0415

    if numbers_type(kind) == kind:
        return no
    if isinstance(kind, ArrayType):
        return F.exists(column, lambda item: F.coalesce(_any_moment(item, kind.elementType, no), no))
    if isinstance(kind, MapType):
        keys, values = (ArrayType(kind.keyType), ArrayType(kind.valueType))
        of_keys, of_values = _any_moment(F.map_keys(column), keys, no), _any_moment(F.map_values(column), values, no)
        return F.coalesce(of_keys, no) | F.coalesce(of_values, no)
    if isinstance(kind, StructType):
        found = no
        for one in kind.fields:
            found |= F.coalesce(_any_moment(column.getField(one.name), one.dataType, no), no)
        return found
    least, most = PANDAS_BOUNDS[type(kind).__name__]
    return ~_numbers(column, kind).between(least, most)


def as_numbers(frame: DataFrame) -> DataFrame:
    """Return rows with moments as microseconds and dates as days since 1970, at every depth."""
    from pyspark.sql import functions as F  # noqa: PLC0415  # workers need it not

    kinds = [field.dataType for field in frame.schema.fields]
    if all(numbers_type(kind) == kind for kind in kinds):
        return frame
    # Columns of an answer may have one name.
    given = frame.toDF(*[f"c{index}" for index in range(len(kinds))])
    columns = [_numbers(F.col(f"c{index}"), kind) for index, kind in enumerate(kinds)]
    return given.select(*[column.alias(name) for column, name in zip(columns, frame.columns, strict=True)])


def numbers_type(kind: DataType) -> DataType:
    """Return the type of values of a type in ``as_numbers``."""
    from pyspark.sql.types import (  # noqa: PLC0415  # workers need it not
        ArrayType,
        DateType,
        IntegerType,
        LongType,
        MapType,
        StructField,
        StructType,
        TimestampNTZType,
        TimestampType,
    )

    if isinstance(kind, TimestampType | TimestampNTZType):
        return LongType()
    if isinstance(kind, DateType):
        return IntegerType()
    if isinstance(kind, ArrayType):
        return ArrayType(numbers_type(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(numbers_type(kind.keyType), numbers_type(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, StructType):
        return StructType([StructField(one.name, numbers_type(one.dataType), one.nullable) for one in kind.fields])
    return kind


def _numbers(column: Column, kind: DataType) -> Column:
    from pyspark.sql import functions as F  # noqa: PLC0415  # workers need it not
    from pyspark.sql.types import (  # noqa: PLC0415
        ArrayType,
        DateType,
        MapType,
        StructType,
        TimestampNTZType,
        TimestampType,
    )

    if numbers_type(kind) == kind:
        return column
    if isinstance(kind, TimestampType | TimestampNTZType):
        # The session's zone is UTC.
        return F.unix_micros(column.cast("timestamp"))
    if isinstance(kind, DateType):
        return F.unix_date(column)
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda item: _numbers(item, kind.elementType))
    if isinstance(kind, MapType):
        keys = F.transform(F.map_keys(column), lambda key: _numbers(key, kind.keyType))
        values = F.transform(F.map_values(column), lambda value: _numbers(value, kind.valueType))
        return F.map_from_arrays(keys, values)
    assert isinstance(kind, StructType)
    fields = [_numbers(column.getField(one.name), one.dataType).alias(one.name) for one in kind.fields]
    return F.when(column.isNotNull(), F.struct(*fields))
