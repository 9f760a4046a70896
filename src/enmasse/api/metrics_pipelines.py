"""What the statuses of pipelines say in figures."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["MAX_PIPELINES", "pipeline_figures"]

MAX_PIPELINES = 1_000
"""That have metrics of their own."""

Document = dict[str, Any]
Rows = list[tuple[list[str], float]]


def pipeline_figures(pipelines: Iterable[Document]) -> Iterator[tuple[str, Rows]]:
    """Yield the name of each metric with its rows.

    Args:
        pipelines: their documents.
    """
    phases: Counter[tuple[str, str, str]] = Counter()
    rows: dict[str, Rows] = {name: [] for name in ("rows", "lag", "rate", "restarts", "bad_records")}
    for index, item in enumerate(pipelines):
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        space, status = name.partition(".")[0], item.get("status", {})
        phases[space, namespace, str(status.get("phase") or "Pending")] += 1
        if index >= MAX_PIPELINES:
            continue
        labels = [name, space, namespace]
        queries = status.get("queries") or ()
        rows["rows"].append((labels, status.get("rows") or 0))
        rows["restarts"].append((labels, sum(query.get("restarts") or 0 for query in queries)))
        rows["bad_records"].append((labels, sum(query.get("badRecords") or 0 for query in queries)))
        for field in ("lag", "rate"):
            if status.get(field) is not None:
                rows[field].append((labels, status[field]))
    yield "pipelines", [(list(key), number) for key, number in sorted(phases.items())]
    yield "pipeline_rows", rows["rows"]
    yield "pipeline_lag", rows["lag"]
    yield "pipeline_rows_per_second", rows["rate"]
    yield "pipeline_query_restarts", rows["restarts"]
    yield "pipeline_bad_records", rows["bad_records"]
