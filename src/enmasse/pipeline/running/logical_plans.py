"""Reading Spark's logical plans, which are Java's alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["analyzed", "each"]


def analyzed(frame: DataFrame) -> Any:
    """Return what Spark understood of a frame, before it is optimised."""
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001  # the plan is there alone


def each(sequence: Any) -> list[Any]:
    """Return the elements of a sequence of Scala's."""
    iterator = sequence.iterator()
    found = []
    while iterator.hasNext():
        found.append(iterator.next())
    return found
