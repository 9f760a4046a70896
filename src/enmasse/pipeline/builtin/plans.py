"""Parts that the built-in pipelines' plans share: checked parameters, rows as messages, compaction of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError
from pyspark.sql import functions as F

from enmasse.model.kinds.durations import milliseconds
from enmasse.model.kinds.pipelines.builtins import BuiltinParameters
from enmasse.model.schema.schema import explain
from enmasse.model.sql.ddl import quote_identifier
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.running.planning.plans import JobPlan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from enmasse.pipeline.running.planning.plans import PlanContext

P = TypeVar("P", bound=BuiltinParameters)


def checked(kind: type[P], given: P | Mapping[str, Any]) -> P:
    """Return parameters that are right.

    Args:
        kind: the class of the built-in pipeline.
        given: as declared, or checked before.

    Raises:
        PlanError: they are not; the message names each and what was expected.
    """
    try:
        parameters = given if isinstance(given, kind) else kind.model_validate(dict(given))
    except ValidationError as error:
        problems = explain(error, kind)
    else:
        problems = list(parameters.problems())
        if not problems:
            return parameters
    message = "; ".join(f"spec.builtin.parameters.{problem.path}: {problem.message}" for problem in problems)
    raise PlanError(message)


def seconds(duration: str) -> float:
    """Return the length of a duration that was checked."""
    return milliseconds(duration) / 1000


def micros(duration: str) -> int:
    """Return the length of a duration that was checked, in microseconds."""
    return milliseconds(duration) * 1000


def as_json_messages(frame: DataFrame, message_id: Column, leave_out: Sequence[str] = ()) -> DataFrame:
    """Return a message for each row, JSON of its columns, keyed and named by its ``device``.

    Keyed, so that the messages about one device stay in order.

    Args:
        frame: rows with a column ``device``.
        message_id: the same whenever the same row comes again.
        leave_out: columns that are left out of the message.
    """
    fields = [F.col(quote_identifier(name)) for name in frame.columns if name not in leave_out]
    return frame.select(
        F.to_json(F.struct(*fields)).alias("value"),
        F.col("device").alias("key"),
        F.col("device").alias("subject"),
        message_id.alias("message_id"),
        F.lit("application/json").alias("content_type"),
    )


EVERY_S: Final = 3600.0
KEEP_S: Final = 86_400.0


def compaction_of(context: PlanContext, table: str, *, every_s: float = EVERY_S, keep_s: float = KEEP_S) -> JobPlan:
    """Return a job that keeps a table quick to read.

    Args:
        context: the context, with the lake.
        table: the table; nothing is done while it is not there.
        every_s: the seconds between two runs.
        keep_s: the seconds that files stay that were replaced, for readers of older versions.
    """
    path = context.place.lake / table

    def run() -> str:
        from enmasse.pipeline.lake.compaction import compact  # noqa: PLC0415  # loads libraries of the lake

        return f"table {table}: {compact(path, keep_h=max(1, round(keep_s / 3600)))}"

    return JobPlan(f"compact-{table}", run, every_s)
