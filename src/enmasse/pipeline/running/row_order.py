"""Whether a batch that is computed again brings its rows in the same order.

What is read by offset and goes through steps that take one row after the other keeps its order. A shuffle takes
blocks as they arrive: from one machine in a fixed order, from several in any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from enmasse.pipeline.running.logical_plans import analyzed, each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["has_fixed_order"]

_ROW_BY_ROW: Final = frozenset(
    {
        "ArrowEvalPython",
        "BatchEvalPython",
        "CollectMetrics",
        "EventTimeWatermark",
        "Filter",
        "Generate",
        "LocalRelation",
        "MapInArrow",
        "MapInPandas",
        "OneRowRelation",
        "Project",
        "StreamingDataSourceV2Relation",
        "StreamingRelation",
        "StreamingRelationV2",
        "SubqueryAlias",
        "Union",
        "View",
    }
)
"""The steps and leaves that are known to keep an order; of any other it is not assumed."""


def has_fixed_order(frame: DataFrame, *, on_one_machine: bool) -> bool:
    """Tell whether the tasks of a frame give their rows in the same order each time.

    Args:
        frame: analysed, not started.
        on_one_machine: whether all its tasks run in one process of Java.
    """
    return on_one_machine or _is_row_by_row(analyzed(frame))


def _is_row_by_row(plan: Any) -> bool:
    names = {str(plan.nodeName()), str(plan.getClass().getSimpleName())}
    # A subquery in a condition becomes a join.
    if names.isdisjoint(_ROW_BY_ROW) or each(plan.subqueries()):
        return False
    return all(_is_row_by_row(child) for child in each(plan.children()))
