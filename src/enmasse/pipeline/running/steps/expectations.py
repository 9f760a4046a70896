"""Holds the rows of a relation against what they are expected to meet.

Rules:
1. Every condition is counted over all rows that come to it, whatever becomes of them.
2. The first condition that a row does not meet, of those that do more than count, decides what becomes of it.
3. What goes to dead letters is a query of its own over the same rows, so that each comes once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from enmasse.model.sql.ddl import quote_identifier
from enmasse.pipeline.errors import PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from enmasse.model.kinds.pipelines.relations import Expectation

EXPECTED: Final = "expectations of "
"""Prefix of the observations that count them; the relation's name follows, and after ``#`` a number."""

ALL: Final = "all rows"
"""The count of all rows among them, which no expectation is named."""

_MET: Final = "__enmasse_met_"
_FATE: Final = "__enmasse_fate"
_SHOWN: Final = 500
"""Characters of a row for which a query fails."""


@dataclass(frozen=True)
class Held:
    """A relation that was held against its expectations."""

    rows: DataFrame
    """Those that go on."""
    dead: DataFrame | None
    """Messages of those that go to dead letters."""


def hold(
    frame: DataFrame,
    name: str,
    expectations: Sequence[Expectation],
    sql: Callable[[str, DataFrame], DataFrame],
    origin: str | None = None,
    *,
    times: int = 0,
) -> Held:
    """Hold rows against expectations.

    Args:
        frame: the rows.
        name: the name of the relation.
        expectations: the expectations that they are to meet.
        sql: runs checked SQL over the relation ``rows``.
        origin: the address that the rows came from as they are; None: they were made of others.
        times: the number of times that relations were made for queries: what is made again is observed under another
            name.

    Raises:
        PlanError: a condition is none.
    """
    columns = list(frame.columns)
    conditions = ", ".join(
        f"coalesce(({one.condition}), false) AS {_MET}{number}" for number, one in enumerate(expectations)
    )
    marked = sql(f"SELECT *, {conditions} FROM rows", frame)  # noqa: S608  # checked by what runs it
    if marked.columns != [*columns, *(f"{_MET}{number}" for number in range(len(expectations)))]:
        raise PlanError(f"{name}: a condition of its expectations is more than one condition")
    fate = F.lit(None).cast("int")
    for number, one in reversed(list(enumerate(expectations))):
        if one.action not in (None, "keep"):
            fate = F.when(~F.col(f"{_MET}{number}"), F.lit(number)).otherwise(fate)
    counts = [F.count(F.lit(1)).alias(ALL)]
    counts += [F.count_if(~F.col(f"{_MET}{number}")).alias(one.name) for number, one in enumerate(expectations)]
    shown = [F.col(quote_identifier(column)) for column in columns]
    rows = marked.withColumn(_FATE, fate)
    failing = [number for number, one in enumerate(expectations) if one.action == "fail"]
    goes_on = F.col(_FATE).isNull()
    for number in failing:
        one = expectations[number]
        text = F.substring(F.to_json(F.struct(*shown)), 1, _SHOWN)
        said = F.concat(F.lit(f"{name}: a row does not meet {one.name} ({one.condition}): "), text)
        goes_on = goes_on | F.when(F.col(_FATE) == number, F.raise_error(said).cast("boolean")).otherwise(False)
    dead = [number for number, one in enumerate(expectations) if one.action == "dead-letter"]
    kept = rows.observe(f"{EXPECTED}{name}#{times}", *counts).where(goes_on).select(*shown)
    return Held(
        kept, _letters(rows.where(F.col(_FATE).isin(dead)), name, columns, expectations, origin) if dead else None
    )


def _letters(
    rows: DataFrame, name: str, columns: Sequence[str], expectations: Sequence[Expectation], origin: str | None
) -> DataFrame:
    """Return rows as messages that say what they did not meet."""
    reason = F.lit(None).cast("string")
    for number, one in enumerate(expectations):
        reason = F.when(F.col(_FATE) == number, F.lit(f"{one.name}: {one.condition}")).otherwise(reason)
    entries = [F.lit("reason"), reason, F.lit("relation"), F.lit(name)]
    if origin is not None:
        entries += [F.lit("address"), F.lit(origin)]
    for place in ("partition", "offset"):
        if f"_{place}" in columns:
            entries += [F.lit(place), F.col(f"_{place}").cast("string")]
    content = [F.col(quote_identifier(column)) for column in columns if not column.startswith("_")]
    value = F.to_json(F.struct(*content)).alias("value")
    key = [F.col("_key").alias("key")] if "_key" in columns else []
    return rows.select(value, F.create_map(*entries).alias("properties"), *key)
