"""Functions of a pipeline's Python in a form that gives, for each row, what they give or what they raised.

Rules:
1. A function that is called with many rows, and raises, is called again with half of them, until it is known for
   which rows it raises. Those are left out, and the others have what it gave for those that it was called with.
2. It is not called with moments that Python does not hold: a row of them fails.
3. That it takes too long, or gives something else than was declared, belongs to no row, and fails the query.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pyarrow as pa

from enmasse.model.sql.ddl import quote_identifier
from enmasse.pipeline.errors import FunctionError
from enmasse.pipeline.far_moments import arguments_of, beyond_pandas
from enmasse.pipeline.running.steps.functions import FunctionCall
from enmasse.pipeline.running.steps.sql_functions import call_of
from enmasse.pipeline.running.steps.verdicts import LETTER, Judging, letter_of, only_good
from enmasse.pipeline.sink.json_rows import json_of, values_of
from enmasse.pipeline.workers.settling import settle

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql._typing import UserDefinedFunctionLike
    from pyspark.sql.types import StructType

    from enmasse.model.kinds.pipelines.pipeline import Code

_LETTER: Final = "__enmasse_letter"
_PLACES: Final = ("_partition", "_offset")


def judged_functions(code: Code | None, modules: Mapping[str, str]) -> dict[str, UserDefinedFunctionLike]:
    """Return the functions that SQL of a pipeline may call, by name; each gives ``value`` and ``error``.

    Args:
        code: the code, as declared.
        modules: source by module name.

    Raises:
        PlanError: there is no such function, or no such type.
    """
    from pyspark.sql.pandas import functions  # noqa: PLC0415  # loaded when the session was made
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415
    from pyspark.sql.types import StringType, StructField, StructType  # noqa: PLC0415

    spark: Any = functions  # its stubs have no structures
    found: dict[str, UserDefinedFunctionLike] = {}
    for index, one in enumerate(code.functions if code is not None else ()):
        call, returns = call_of(one, f"spec.code.functions[{index}]", modules)
        both = StructType([StructField("value", returns), StructField("error", StringType())])
        if one.vectorized:
            found[one.name] = spark.pandas_udf(_over_series(call), both)
        else:
            found[one.name] = spark.arrow_udf(_over_rows(call, to_arrow_type(returns, timezone="UTC")), both)
    return found


def _over_rows(call: FunctionCall, kind: pa.DataType) -> Any:
    """Return what Spark calls with Arrow's columns, and which calls the function for each row."""

    def given(*columns: pa.Array) -> pa.StructArray:
        settle()
        function = call.load()
        rows = arguments_of(columns)
        values: list[Any] = []
        errors: list[str | None] = []

        def call_for_all() -> None:
            for row in rows:
                if isinstance(row, str):
                    values.append(None)
                    errors.append(f"function {call.where}: {row}")
                    continue
                value, error = call.attempt(lambda: function(*row))  # noqa: B023  # called at once
                values.append(value)
                errors.append(error)

        call.run(call_for_all)
        try:
            made = pa.array(values, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            made = pa.array([_fitting(call, kind, values, errors, row) for row in range(len(values))], kind)
        return pa.StructArray.from_arrays([made, pa.array(errors, pa.string())], ["value", "error"])

    given.__annotations__ = {"columns": pa.Array, "return": pa.Array}  # as Spark reads them
    return given


def _fitting(call: FunctionCall, kind: pa.DataType, values: list[Any], errors: list[str | None], row: int) -> Any:
    """Return a value if it is of a type; else None, and say so among the errors."""
    try:
        pa.array([values[row]], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        errors[row] = f"function {call.where}: expected {kind}, got {str(values[row])[:80]!r}"
        return None
    return values[row]


def _over_series(call: FunctionCall) -> Any:
    """Return what Spark calls with a Series for each argument, a few thousand rows each."""

    def given(*columns: pd.Series) -> pd.DataFrame:
        settle()
        function = call.load()
        frame = pd.concat(columns, axis=1, keys=range(len(columns)))
        found = list(by_halves(call, frame, lambda part: function(*(part[name] for name in part.columns))))
        parts = []
        for rows, result, error in found:
            if error is None and (not isinstance(result, pd.Series) or len(result) != len(rows)):
                what = f"a Series of {len(rows)} values, one for each row"
                described = f"one of {len(result)}" if isinstance(result, pd.Series) else type(result).__name__
                raise FunctionError(f"function {call.where}: expected {what}, got {described}")
            values = [None] * len(rows) if error is not None else list(result)
            parts.append(pd.DataFrame({"value": pd.Series(values, dtype=object), "error": error}))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"value": [], "error": []})

    given.__annotations__ = {"columns": pd.Series, "return": pd.DataFrame}  # as Spark reads them
    return given


def by_halves(
    call: FunctionCall, frame: pd.DataFrame, act: Callable[[pd.DataFrame], Any]
) -> list[tuple[pd.DataFrame, Any, str | None]]:
    """Call a function with rows, and where it raises with half of them; return for which rows it gave or raised what.

    Args:
        call: the function, with its time.
        frame: the rows.
        act: calls it.
    """
    found: list[tuple[pd.DataFrame, Any, str | None]] = []

    def call_for_all() -> None:
        left = [frame]
        while left:
            rows = left.pop()
            # What it was called with it may have changed before it raised.
            result, error = call.attempt(lambda: act(rows.copy()))  # noqa: B023  # called at once
            if error is None or len(rows) < 2:
                found.append((rows, result, error))
            else:
                half = len(rows) // 2
                left += [rows.iloc[half:].reset_index(drop=True), rows.iloc[:half].reset_index(drop=True)]

    call.run(call_for_all)
    return found


@dataclass(frozen=True)
class JudgedCall:
    """A step's function, for ``mapInPandas``: it gives the declared columns, and a letter for each failing row.

    Attributes:
        call: the function.
        kinds: the columns that it gets, by name.
        known: the properties of each letter beside its reason.
    """

    call: FunctionCall
    kinds: Mapping[str, pa.DataType]
    known: Mapping[str, str]

    def over(self, batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Call it with each batch.

        Raises:
            FunctionError: it took too long, or gave other columns; the message says where.
        """
        settle()
        call, function = self.call, self.call.load()
        for batch in batches:
            for rows, result, error in by_halves(call, batch, lambda part: function(part, **call.parameters)):
                if error is None:
                    yield call.checked(result).assign(**{_LETTER: None})
                elif len(rows):
                    yield pd.DataFrame(
                        {name: [None] for name in call.columns} | {_LETTER: [self._letter(rows, error)]}
                    )
                else:
                    raise FunctionError(error)

    def _letter(self, rows: pd.DataFrame, reason: str) -> dict[str, Any]:
        row = {name: _value(rows[name], kind) for name, kind in self.kinds.items()}
        places = {name[1:]: str(row[name]) for name in _PLACES if row.get(name) is not None}
        return {
            "value": json_of({name: value for name, value in row.items() if not name.startswith("_")}),
            "properties": {"reason": reason, **self.known, **places},
            "key": None if row.get("_key") is None else str(row["_key"]),
        }


def _value(column: pd.Series, kind: pa.DataType) -> Any:
    """Return the only value of a column of pandas as what it was in Arrow."""
    try:
        return values_of(pa.Array.from_pandas(column, type=kind))[0]
    except (pa.ArrowException, TypeError, ValueError):
        return str(column.iloc[0])


def for_pandas(frame: DataFrame, judging: Judging | None) -> DataFrame:
    """Return the rows of a frame that pandas holds: those with a moment that it does not hold fail.

    Args:
        frame: the rows.
        judging: the rules by which they are judged; None: one that fails, fails the query.
    """
    from pyspark.sql import functions as F  # noqa: PLC0415  # workers need it not

    beyond = beyond_pandas(frame)
    if not beyond:
        return frame
    columns = {name: F.col(quote_identifier(name)) for name in frame.columns}
    said = [
        F.when(is_beyond, F.concat(F.lit(f"{name}: got a moment that pandas does not hold: "), _shown(columns[name])))
        for name, is_beyond in beyond.items()
    ]
    failed, reason = reduce(operator.or_, beyond.values()), F.concat_ws("; ", *said)
    if judging is None:
        return frame.where(~failed | F.raise_error(reason).cast("boolean"))
    letter = None if judging.sent is None else F.when(failed, letter_of(judging, reason, columns))
    good = only_good(frame, judging, 1, failed, reason, letter)
    if not judging.is_null:
        return good
    return good.select(
        *[F.when(~beyond[name], one).alias(name) if name in beyond else one for name, one in columns.items()]
    )


def _shown(column: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: PLC0415  # workers need it not

    return F.substring(column.cast("string"), 1, 60)


def judged_rows(frame: DataFrame, call: FunctionCall, columns: StructType, judging: Judging) -> DataFrame:
    """Return what a function gives for the rows of a frame, without those that it raises for.

    Args:
        frame: the rows.
        call: the function.
        columns: the columns that it gives.
        judging: the rules by which they are judged.
    """
    from pyspark.sql import functions as F  # noqa: PLC0415  # workers need it not
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415

    from enmasse.pipeline.naming import by_any_name  # noqa: PLC0415

    kinds = {field.name: field.type for field in to_arrow_schema(frame.schema, timezone="UTC")}
    letter = StructField(_LETTER, StructType.fromDDL(LETTER))
    given = StructType([*(StructField(one.name, one.dataType) for one in columns.fields), letter])
    judged = JudgedCall(call, kinds, {"relation": judging.relation})
    found = by_any_name(for_pandas(frame, judging)).mapInPandas(judged.over, given)
    is_bad, reason = F.col(_LETTER).isNotNull(), F.col(_LETTER)["properties"]["reason"]
    good = only_good(found, judging, 0, is_bad, reason, F.col(_LETTER))
    return good.select(*[F.col(quote_identifier(name)) for name in call.columns])
