"""Values as decoders give them, as values that a column of a type takes; pure.

Rules:
1. A value that is not of its column's type is a problem that names the column, never a guess: no text for a
   number, no number for a boolean, nothing cut off to fit.
2. Whole numbers go where decimals are expected, and ``1.0`` where a whole number is. NaN and infinity are
   problems: no aggregate survives them.
3. A TIMESTAMP is a moment with a time zone, ISO 8601, or a number since 1970: of seconds below 1e11, which lies
   in the year 5138, and of milliseconds from there on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from enmasse.model.sql.ddl import Column, ColumnType

Shape = Callable[[Any], Any]
Said = Callable[[Column, Any], str]

BETWEEN_PROBLEMS: Final = "; "
"""The mark between the problems of a message, and in none of them: values are quoted without it."""
DATE: Final = "(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
"""Days of the years 1 to 9999; it does not know how long months are."""
_TIME: Final = "[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.][0-9]{1,9})?)?"
_ZONE: Final = "(?:Z|[+-](?:0[0-9]|1[0-7])(?::?[0-5][0-9])?)"
LOCAL: Final = f"{DATE}(?:{_TIME})?"
MOMENT: Final = f"{DATE}(?:{_TIME}{_ZONE}?)?"
_IS_DATE, _IS_LOCAL, _IS_MOMENT = (re.compile(one).fullmatch for one in (DATE, LOCAL, MOMENT))
_SHOWN: Final = 60
"""Characters of a wrong value: enough to recognise it."""
_ALL_SHOWN: Final = 1000
INTEGERS: Final = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
MAX_FLOAT: Final = 3.4028234663852886e38
_MILLISECONDS_FROM: Final = 1e11
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST: Final = -62_135_596_800_000_000
LAST: Final = 253_402_300_799_999_999
"""Years 1 to 9999 in microseconds, what Spark and Python have in common."""


class RecordProblem(ValueError):  # noqa: N818  # what becomes of it is a column, not a traceback
    """A message is no record of its schema.

    Attributes:
        problems: sentences that say where and why.
        row: the values that are right, and None for the others; empty where nothing is.
    """

    def __init__(self, *problems: str, row: Sequence[Any] = ()) -> None:
        super().__init__(BETWEEN_PROBLEMS.join(problems))
        self.problems = problems
        self.row = row


def shaper(
    columns: Sequence[Column], values: Mapping[str, Shape] | None = None, said: Said | None = None
) -> Callable[[Any], list[Any]]:
    """Return the function that makes a value for each column of a decoded message.

    The function raises RecordProblem, which has a problem for each column that is wrong.

    Args:
        columns: the columns of the messages.
        values: functions that a value of the format goes through first, by the name of its column's type.
        said: the words for a value that does not fit; else those of its type.
    """
    shapes = [(column.name, column_shape(column, column.name, values or {})) for column in columns]

    names = [name for name, _ in shapes]

    def shape(record: Any) -> list[Any]:
        if not isinstance(record, Mapping):
            raise RecordProblem(f"expected a map, got {_shown(record)}")
        get = record.get
        try:
            row = [of(get(name)) for name, of in shapes]
        except RecordProblem:
            row = []
        if row.count(None) == len(row) and not any(name in record for name in names):
            raise RecordProblem(f"it does not have any field of {', '.join(names)}"[:_ALL_SHOWN])
        if not row:
            raise of_values(record)
        return row

    def of_values(record: Mapping[Any, Any]) -> RecordProblem:
        row: list[Any] = []
        problems = []
        for column, (name, of) in zip(columns, shapes, strict=True):
            value = record.get(name)
            try:
                row.append(of(value))
            except RecordProblem as problem:
                row.append(None)
                words = said(column, value) if said is not None and value is not None else str(problem)
                # What stands within a value is named by its path.
                problems.append(words if words.startswith(f"{name}: ") else f"{name}: {words}")
        return RecordProblem(*problems, row=row)

    return shape


def column_shape(column: Column, path: str, values: Mapping[str, Shape]) -> Shape:
    """Return the function that makes of a decoded value one for a column; it raises RecordProblem.

    Args:
        column: the column or field.
        path: the name by which problems call it.
        values: the functions that ``shaper`` takes by that name.
    """
    inner = _shape(column.type, path, values)
    if (made := values.get(column.type.name)) is not None:
        typed = inner
        inner = lambda value: typed(made(value))  # noqa: E731  # the one of its kind
    if column.is_nullable:
        return lambda value: None if value is None else inner(value)

    def required(value: Any) -> Any:
        if value is None:
            raise RecordProblem(f"{path}: required")
        return inner(value)

    return required


def _shape(of: ColumnType, path: str, values: Mapping[str, Shape]) -> Shape:
    if of.name in INTEGERS:
        return _integer(of.name, INTEGERS[of.name], path)
    if of.name in ("DOUBLE", "FLOAT"):
        return _floating(of.name, path)
    if of.name == "DECIMAL":
        return _decimal(of, path)
    if of.name == "ARRAY":
        return _array(of, path, values)
    if of.name == "MAP":
        return _map(of, path, values)
    if of.name == "STRUCT":
        return _struct(of, path, values)
    make = _PLAIN[of.name]

    def plain(value: Any) -> Any:
        made = make(value)
        if made is None:
            raise _wrong(path, of.name, value)
        return made

    return plain


def _integer(name: str, bits: int, path: str) -> Shape:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def integer(value: Any) -> int:
        if type(value) is not int and not _is_whole(value):
            raise _wrong(path, name, value)
        if not low <= value <= high:
            raise RecordProblem(f"{path}: expected {name}, got {_shown(value)}, which is out of range")
        return int(value)

    return integer


def _is_whole(value: Any) -> bool:
    """Return whether a number that may have digits after its point has none; JSON writes whole ones as 1.0, too."""
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value()


def _floating(name: str, path: str) -> Shape:
    most = MAX_FLOAT if name == "FLOAT" else math.inf

    def floating(value: Any) -> float:
        if type(value) is not float:
            if type(value) is not int and not isinstance(value, Decimal):
                raise _wrong(path, name, value)
            try:
                value = float(value)
            except (OverflowError, ValueError):  # too large, or a Decimal that signals
                raise RecordProblem(f"{path}: expected {name}, got {_shown(value)}, which is out of range") from None
        if not math.isfinite(value) or abs(value) > most:
            raise RecordProblem(f"{path}: expected {name}, got {value}, which is out of range")
        return float(value)

    return floating


def _decimal(of: ColumnType, path: str) -> Shape:
    precision, scale = of.arguments
    unit = Decimal(1).scaleb(-scale)
    context = Context(prec=precision, rounding=ROUND_HALF_UP)

    def decimal(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise _wrong(path, str(of), value)
        is_huge = isinstance(value, int) and value.bit_length() > 128
        try:
            # Not a number where it is huge: its digits would take longer than they are worth.
            exact = Decimal(repr(value) if isinstance(value, float) else "NaN" if is_huge else value)
            made = exact.quantize(unit, context=context)
        except InvalidOperation:
            made = Decimal("NaN")
        if not made.is_finite():
            raise RecordProblem(f"{path}: expected {of}, got {_shown(value)}, which is out of range")
        return made

    return decimal


def _array(of: ColumnType, path: str, values: Mapping[str, Shape]) -> Shape:
    item = column_shape(Column("", of.inner[0]), f"{path}[]", values)

    def array(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise _wrong(path, "ARRAY", value)
        return [item(entry) for entry in value]

    return array


def _map(of: ColumnType, path: str, values: Mapping[str, Shape]) -> Shape:
    key = column_shape(Column("", of.inner[0], is_nullable=False), f"{path} key", values)
    item = column_shape(Column("", of.inner[1]), f"{path}[]", values)

    def entries(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, Mapping):
            raise _wrong(path, "MAP", value)
        # Two keys may come to one, as 1 and 1.0 do; Spark refuses such maps.
        return list({key(name): item(entry) for name, entry in value.items()}.items())

    return entries


def _struct(of: ColumnType, path: str, values: Mapping[str, Shape]) -> Shape:
    fields = [(field.name, column_shape(field, f"{path}.{field.name}", values)) for field in of.fields]

    def struct(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _wrong(path, "STRUCT", value)
        return {name: shape(value.get(name)) for name, shape in fields}

    return struct


def _boolean(value: Any) -> bool | None:
    return value if type(value) is bool else None


def _text(value: Any) -> str | None:
    if isinstance(value, UUID | time):
        return str(value)
    if type(value) is not str:
        return None
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            # Half of a pair of surrogates, which is no character.
            return None
    return value


def _binary(value: Any) -> bytes | None:
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _date(value: Any) -> date | None:
    if isinstance(value, datetime):
        return None
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value) if type(value) is str and _IS_DATE(value) else None
    except ValueError:
        return None


def _moment(value: Any) -> int | None:
    """Microseconds since 1970, for Arrow takes them without the cost of an object each."""
    if type(value) in (int, float, Decimal):
        if not math.isfinite(value):
            return None
        return _within(value * 1_000_000 if abs(value) < _MILLISECONDS_FROM else value * 1_000)
    found = _datetime(value, _IS_MOMENT)
    if found is None:
        return None
    return _within(_micros((found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH))


def _local_moment(value: Any) -> int | None:
    found = _datetime(value, _IS_LOCAL)
    if found is None or found.tzinfo:
        return None
    return _micros(found.replace(tzinfo=UTC) - _EPOCH)


def _datetime(value: Any, is_one: Callable[[str], Any]) -> datetime | None:
    if isinstance(value, datetime):
        return value
    if type(value) is not str or not is_one(value):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def _within(micros: float | Decimal) -> int | None:
    return round(micros) if FIRST <= micros <= LAST else None


def _micros(since: timedelta) -> int:
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


_PLAIN: Final[dict[str, Shape]] = {
    "BOOLEAN": _boolean,
    "STRING": _text,
    "BINARY": _binary,
    "DATE": _date,
    "TIMESTAMP": _moment,
    "TIMESTAMP_NTZ": _local_moment,
}


def _wrong(path: str, expected: str, value: Any) -> RecordProblem:
    return RecordProblem(f"{path}: expected {expected}, got {_shown(value)}")


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "a number of many digits"
    if isinstance(value, bool | int | float | Decimal):
        return str(value)[:_SHOWN]
    if isinstance(value, str):
        text = value[:_SHOWN].encode(errors="replace").decode()
        return f"the text {text!r}" + ("..." if len(value) > _SHOWN else "")
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return f"a {_KINDS.get(type(value), type(value).__name__)}"


_KINDS: Final[dict[type, str]] = {dict: "map", list: "list", tuple: "list"}
