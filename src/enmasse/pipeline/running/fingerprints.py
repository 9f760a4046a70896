"""What a query's checkpoint depends on, in lines that people can read.

Spark keeps offsets by the order of the sources, and state by the stateful steps and their columns. A
changed projection or filter fits; another source, grouping or join does not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from enmasse.pipeline.running.logical_plans import analyzed, each

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame

    from enmasse.pipeline.running.plans import QueryPlan

__all__ = ["fingerprint_of", "readings_of", "reads_any"]

_STATEFUL: Final = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsWithState",
        "GlobalLimit",
        "Join",
        "TransformWithState",
        "TransformWithStateInPySpark",
    }
)
_STREAMS: Final = frozenset({"StreamingRelation", "StreamingRelationV2", "StreamingDataSourceV2Relation"})
_IDS = re.compile(r"#\d+L?")


def fingerprint_of(frame: DataFrame) -> list[str]:
    """Return a line for each source and each stateful step of a streaming frame, from the sources on.

    Args:
        frame: analysed, not started.
    """
    lines: list[str] = []
    _describe(analyzed(frame), lines)
    return lines


def readings_of(frame: DataFrame) -> tuple[int, ...]:
    """Return how often a streaming frame reads each of its sources, in the order in which Spark reports them.

    Spark reads a source once for each branch that begins with it, and counts its rows as often.
    """
    found: dict[str, int] = {}
    _count(analyzed(frame), found)
    return tuple(found.values())


def reads_any(plan: QueryPlan, addresses: Collection[str]) -> bool:
    """Whether a query reads one of these addresses."""
    return bool(addresses) and not {f"source {name}" for name in addresses}.isdisjoint(fingerprint_of(plan.frame))


def _is_stream(plan: Any) -> bool:
    return str(plan.nodeName()) in _STREAMS or plan.getClass().getSimpleName() in _STREAMS


def _count(plan: Any, found: dict[str, int]) -> None:
    if _is_stream(plan):
        columns = str(plan.output())  # numbered; the same only where the same relation is meant
        found[columns] = found.get(columns, 0) + 1
    for child in each(plan.children()):
        _count(child, found)


def _describe(plan: Any, lines: list[str]) -> None:
    name = str(plan.nodeName())
    if _is_stream(plan):
        lines.append(f"source {_address_of(plan)}")
        return
    children = each(plan.children())
    for child in children:
        _describe(child, lines)
    if name in _STATEFUL and plan.isStreaming() and (name != "Join" or all(c.isStreaming() for c in children)):
        lines.append(f"{name} {_keys_of(name, plan)} -> {_columns_of(plan)}")


def _address_of(plan: Any) -> str:
    options = plan.extraOptions().asCaseSensitiveMap() if hasattr(plan, "extraOptions") else {}
    found = {str(key).lower(): str(options[key]) for key in options}
    return found.get("address") or found.get("path") or str(plan.getClass().getSimpleName())


def _keys_of(name: str, plan: Any) -> str:
    if name == "Aggregate":
        keys = [_IDS.sub("", str(key.toString())) for key in each(plan.groupingExpressions())]
        values = [_IDS.sub("", str(value.toString())) for value in each(plan.aggregateExpressions())]
        return f"by {', '.join(keys)} of {', '.join(values)}"
    if name == "Join":
        condition = plan.condition()
        return _IDS.sub("", str(condition.get().toString())) if condition.isDefined() else "on nothing"
    if name.startswith("Deduplicate"):
        return f"by {', '.join(_IDS.sub('', str(key.toString())) for key in each(plan.keys()))}"
    return ""


def _columns_of(plan: Any) -> str:
    return str(plan.schema().simpleString())
