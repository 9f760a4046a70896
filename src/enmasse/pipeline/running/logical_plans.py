"""Reads Spark's logical plans: what a checkpoint depends on, and whether rows keep their order.

Spark keeps offsets by the order of the sources, and state by the stateful steps and their columns. A changed
projection or filter fits an old checkpoint; another source, grouping or join does not.

A batch that is computed again brings its rows in the same order if they are read by offset and go through steps that
take one row after the other. A shuffle takes blocks as they arrive: from one machine in a fixed order, from several
in any.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pyspark.sql import DataFrame


def analyzed(frame: DataFrame) -> Any:
    """Return what Spark understood of a frame, before it is optimised."""
    return frame._jdf.queryExecution().analyzed()  # the plan is there alone


def each(sequence: Any) -> list[Any]:
    """Return the elements of a sequence of Scala's."""
    iterator = sequence.iterator()
    found = []
    while iterator.hasNext():
        found.append(iterator.next())
    return found


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
    """Return whether the tasks of a frame give their rows in the same order each time.

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


def has_watermark(frame: DataFrame) -> bool:
    """Return whether a column of a streaming frame has a watermark."""
    return any(
        attribute.metadata().contains("spark.watermarkDelayMs") for attribute in each(analyzed(frame).output())
    )


def is_stateful(frame: DataFrame) -> bool:
    """Return whether a streaming frame keeps state."""
    return any(not line.startswith("source ") for line in fingerprint_of(frame))


def goes_by_clock(frame: DataFrame) -> bool:
    """Return whether a streaming frame has timers that run out by the clock of the machine."""
    return _goes_by_clock(analyzed(frame))


def _goes_by_clock(plan: Any) -> bool:
    if str(plan.nodeName()) == "FlatMapGroupsInPandasWithState" and "ProcessingTime" in str(
        plan.timeout().toString()
    ):
        return True
    return any(map(_goes_by_clock, each(plan.children())))


_WINDOW: Final = re.compile(r"named_struct\(start, .*precisetimestampconversion")
_FIXED_END: Final = re.compile(r" \+ (\d+)\), LongType, Timestamp(?:NTZ)?Type\)\)\)$")
"""The end of a window as it is computed: its start, in microseconds, and its size."""


def seconds_of_windows(frame: DataFrame) -> float:
    """Return the size of the windows that rows of a frame are put into; of windows over windows the sum.

    Args:
        frame: analysed, not started.

    Returns:
        0 if there are none, and infinity if the size of a window depends on its rows.
    """
    return _seconds_of_windows(analyzed(frame))


def _seconds_of_windows(plan: Any) -> float:
    own = map(_seconds_of_window, each(plan.expressions()))
    # Windows that overlap are computed by several expressions, one for each that a row belongs to.
    return max(own, default=0.0) + max(map(_seconds_of_windows, each(plan.children())), default=0.0)


def _seconds_of_window(expression: Any) -> float:
    value = expression.child() if expression.getClass().getSimpleName() == "Alias" else expression
    if not _WINDOW.match(text := str(value.toString())):
        return 0.0
    end = _FIXED_END.search(text)
    return int(end[1]) / 1e6 if end else math.inf


def observations_of(frame: DataFrame) -> list[str]:
    """Return the names of the observations in a frame's plan, each as often as it is there."""
    return list(_observations(analyzed(frame)))


def _observations(plan: Any) -> Iterator[str]:
    if str(plan.nodeName()) == "CollectMetrics":
        yield str(plan.name())
    for child in each(plan.children()):
        yield from _observations(child)


def fingerprint_of(frame: DataFrame) -> list[str]:
    """Return a line for each source and each stateful step of a streaming frame, from the sources on.

    Args:
        frame: analysed, not started.
    """
    lines: list[str] = []
    _describe(analyzed(frame), lines)
    return lines


_SUM: Final = re.compile(r"\b(?:sum|avg)\((?!\s*\))")


def sums_in(fingerprint: Sequence[str]) -> list[str]:
    """Return the sums of groups that a query computes, each once, as ``sum(litres)``.

    Args:
        fingerprint: its lines.
    """
    found: dict[str, None] = {}
    for line in fingerprint:
        if line.startswith("Aggregate "):
            for call in _SUM.finditer(line):
                found[line[call.start() : _end_of_call(line, call.end())]] = None
    return list(found)


def _end_of_call(text: str, start: int) -> int:
    depth = 1
    for index in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if depth == 0:
            return index + 1
    return len(text)


def readings_of(frame: DataFrame) -> tuple[tuple[str, int], ...]:
    """Return the sources of a streaming frame, in the order in which Spark reports them, and how often each is read.

    Spark reads a source once for each branch that begins with it, and counts its rows as often. A source is called
    after its address; a second one over the same address has a number behind that.
    """
    found: dict[str, tuple[str, int]] = {}
    _count(analyzed(frame), found)
    names = [name for name, _ in found.values()]
    numbers = [names[:index].count(name) for index, name in enumerate(names)]
    return tuple(
        (f"{name}-{number + 1}" if number else name, count)
        for (name, count), number in zip(found.values(), numbers, strict=True)
    )


def reads_any(frame: DataFrame, addresses: Collection[str]) -> bool:
    """Return whether a query reads one of these addresses."""
    return bool(addresses) and not {f"source {name}" for name in addresses}.isdisjoint(fingerprint_of(frame))


def _is_stream(plan: Any) -> bool:
    return str(plan.nodeName()) in _STREAMS or plan.getClass().getSimpleName() in _STREAMS


def _count(plan: Any, found: dict[str, tuple[str, int]]) -> None:
    if _is_stream(plan):
        columns = str(plan.output())  # numbered; the same only where the same relation is meant
        name, count = found.get(columns, (_address_of(plan), 0))
        found[columns] = name, count + 1
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
    if plan.getClass().getSimpleName() == "StreamingRelation":  # of files
        path = plan.dataSource().options().get("path")
        return str(path.get()).rpartition("/lake/")[2] if path.isDefined() else "files"
    options = plan.extraOptions().asCaseSensitiveMap() if hasattr(plan, "extraOptions") else {}
    found = {str(key).lower(): str(options[key]) for key in options}
    if "subscribe" in found:
        return found.get("subscribepattern") or ", ".join(json.loads(found["subscribe"]))
    return found.get("address") or found.get("path", "").rpartition("/lake/")[2] or plan.getClass().getSimpleName()


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
