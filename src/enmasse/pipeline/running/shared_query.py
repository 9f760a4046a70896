"""Plans that read what is consumed, made one query: each message is given once, so one query alone may read it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # Spark's own custom

from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.running.fingerprints import fingerprint_of, reads_any
from enmasse.pipeline.running.plans import JobPlan, QueryPlan, SharedTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from enmasse.model.pipelines import OutputMode

__all__ = ["rows_of_part", "share_what_is_consumed"]

_PART: Final = "part"


def share_what_is_consumed(
    plans: Sequence[QueryPlan | JobPlan], consumed: Collection[str]
) -> list[QueryPlan | JobPlan]:
    """Return the plans with those made one that read what is consumed; the rest as it is.

    Args:
        plans: of one pipeline.
        consumed: the addresses that give each message once.

    Raises:
        PlanError: their targets take rows in ways that one query cannot have both.
    """
    readers = [plan for plan in plans if isinstance(plan, QueryPlan) and reads_any(plan, consumed)]
    if len(readers) < 2:
        return list(plans)
    rest = [plan for plan in plans if all(plan is not reader for reader in readers)]
    return [_share(readers), *rest]


def _share(plans: Sequence[QueryPlan]) -> QueryPlan:
    """One plan whose rows are those of all plans, each with its part's number and columns."""
    frames = [_part_of(plan.frame, index) for index, plan in enumerate(plans)]
    every = [plan.trigger_s for plan in plans if plan.trigger_s is not None]

    def on_start() -> None:
        for plan in plans:
            plan.on_start()

    return QueryPlan(
        " + ".join(plan.name for plan in plans),
        reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames),
        SharedTarget(tuple(plans), _mode_of(plans)),
        state=tuple(line for plan in plans for line in plan.state),
        trigger_s=min(every) if every else None,
        on_start=on_start,
    )


def _part_of(frame: DataFrame, index: int) -> DataFrame:
    columns = F.struct(*[F.col(f"`{name}`") for name in frame.columns])
    return frame.select(F.lit(index).alias(_PART), columns.alias(f"of{index}"))


def rows_of_part(rows: DataFrame, index: int) -> DataFrame:
    """Return the rows of one plan, with its columns, of a batch of a shared query."""
    return rows.where(F.col(_PART) == index).select(f"of{index}.*")


def _mode_of(plans: Sequence[QueryPlan]) -> OutputMode:
    modes = {plan.target.mode for plan in plans}
    if modes == {"append", "update"}:
        # What has no state gives the same rows either way.
        modes = {plan.target.mode for plan in plans if _is_stateful(plan)} or {"append"}
    if len(modes) > 1:
        told = ", ".join(f"{plan.name}: {plan.target.mode}" for plan in plans)
        raise PlanError(
            f"what is consumed is read by one query, and all its sinks with state need the same mode ({told}); "
            "bring the messages into a stream, and read that one"
        )
    return modes.pop()


def _is_stateful(plan: QueryPlan) -> bool:
    return any(not line.startswith("source ") for line in fingerprint_of(plan.frame))
