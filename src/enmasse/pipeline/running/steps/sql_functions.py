"""Functions of a pipeline's Python that its SQL calls: user-defined functions of Spark.

A function for rows is called with values of Python, one for each argument, batch by batch of Arrow; a vectorized one
with a pandas Series for each argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from pandas import Series
from pyarrow import Array, ArrowInvalid, ArrowTypeError, array

from enmasse.model.kinds.durations import milliseconds
from enmasse.pipeline.errors import FunctionError, PlanError
from enmasse.pipeline.far_moments import arguments_of
from enmasse.pipeline.running.steps.functions import FunctionCall, check_function
from enmasse.pipeline.workers.settling import settle

if TYPE_CHECKING:
    from pyarrow import DataType as ArrowType
    from pyspark.sql._typing import UserDefinedFunctionLike

    from enmasse.model.kinds.pipelines.pipeline import Code, SqlFunction

DEFAULT_TIMEOUT: Final = "10m"


def sql_functions(code: Code | None, modules: Mapping[str, str]) -> dict[str, UserDefinedFunctionLike]:
    """Return the functions that SQL of a pipeline may call, by name.

    Args:
        code: the code, as declared.
        modules: source by module name.

    Raises:
        PlanError: there is no such function, or no such type.
    """
    functions = code.functions if code is not None else ()
    return {one.name: _udf(one, f"spec.code.functions[{index}]", modules) for index, one in enumerate(functions)}


def _udf(declared: SqlFunction, place: str, modules: Mapping[str, str]) -> UserDefinedFunctionLike:
    # Loaded when the session was made.
    from pyspark.sql.pandas.functions import arrow_udf, pandas_udf  # noqa: PLC0415
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415

    call, returns = call_of(declared, place, modules)
    made: Any
    if declared.vectorized:
        made = pandas_udf(over_series(call), returns)
    else:
        made = arrow_udf(over_rows(call, to_arrow_type(returns, timezone="UTC")), returns)
    return cast("UserDefinedFunctionLike", made)


def call_of(declared: SqlFunction, place: str, modules: Mapping[str, str]) -> tuple[FunctionCall, Any]:
    """Return the call of a function, and the type of what it gives.

    Raises:
        PlanError: there is no such function, or no such type.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415  # loaded when the session was made
    from pyspark.sql.types import DataType  # noqa: PLC0415

    module, function = check_function(f"{place}.function", declared.function, modules)
    try:
        returns: Any = DataType.fromDDL(declared.returns)
    except PySparkException:
        raise PlanError(f"{place}.returns: expected a type such as DOUBLE, got {declared.returns!r}") from None
    timeout_s = milliseconds(declared.timeout or DEFAULT_TIMEOUT) / 1000
    return FunctionCall(module, function, modules, (), timeout_s), returns


def over_series(call: FunctionCall) -> Any:
    """Return what Spark calls with a Series for each argument, a few thousand rows each."""

    def given(*columns: Series) -> Series:
        settle()
        function = call.load()
        found = call.run(lambda: function(*columns))
        if not isinstance(found, Series) or len(found) != len(columns[0]):
            what = f"a Series of {len(columns[0])} values, one for each row"
            described = f"one of {len(found)}" if isinstance(found, Series) else type(found).__name__
            raise FunctionError(f"function {call.where}: expected {what}, got {described}")
        return found

    given.__annotations__ = {"columns": Series, "return": Series}  # as Spark reads them
    return given


def over_rows(call: FunctionCall, kind: ArrowType) -> Any:
    """Return what Spark calls with Arrow's columns, and which calls the function for each row."""

    def given(*columns: Array) -> Array:
        settle()
        function = call.load()
        rows = arguments_of(columns)
        if wrong := next((row for row in rows if isinstance(row, str)), None):
            raise FunctionError(f"function {call.where}: {wrong}")
        found = call.run(lambda: [function(*row) for row in rows])
        try:
            return array(found, kind)
        except (ArrowInvalid, ArrowTypeError, OverflowError) as error:
            raise FunctionError(
                f"function {call.where}: expected {kind}, and what it gives is none: {error}"
            ) from None

    given.__annotations__ = {"columns": Array, "return": Array}  # as Spark reads them
    return given
