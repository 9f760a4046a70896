"""The check of a step's query over streams: what needs an end of the rows, though Spark may take it.

A stream has no end. ``LIMIT`` ends it for good after its first rows, and a group without a window never stays as it
is: a row that ``HAVING`` let through is not taken back. ``sql`` imports this when there is SQL to check: the parser
is slow to load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from enmasse.model.sql.dialect import place_of, read
from enmasse.model.sql.sql import SqlError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from enmasse.model.sql.sql import Streams

WINDOWS: Final = frozenset({"window", "session_window"})
"""The functions that make windows of time."""

_PER_BATCH: Final = "set perBatch: true on the step"
_ENDLESS: Final[dict[type[exp.Expr], str]] = {
    exp.Limit: f"LIMIT would end the stream for good after its first rows: {_PER_BATCH}, for those of each batch",
    exp.Offset: f"a stream has no rows that OFFSET could skip each time: {_PER_BATCH}, for those of each batch",
    exp.Order: f"a stream has no end, and so no order of all its rows: {_PER_BATCH}, for the order of each batch",
    exp.Except: f"EXCEPT needs all rows of a stream: LEFT ANTI JOIN a table, or {_PER_BATCH}, for each batch",
    exp.Intersect: f"INTERSECT needs all rows of a stream: SEMI JOIN a table, or {_PER_BATCH}, for each batch",
    exp.Window: f"a stream has no windows over its rows: {_PER_BATCH}, for each batch, or GROUP BY window(...)",
}
_HAVING_WITHOUT_GROUP: Final = (
    "HAVING without GROUP BY is over all rows that ever come: use WHERE for single rows, or"
)
_HAVING_WITHOUT_WINDOW: Final = (
    "a group without a window goes on, and a row of it that HAVING lets through is not taken back:"
)
_WINDOW: Final = f"GROUP BY window(...), which ends with the watermark, or {_PER_BATCH}"


_DISTINCT: Final = (
    "DISTINCT keeps each row of a stream in mind for ever, to leave it out when it comes again: use dropDuplicates, "
    f"which ends with the watermark, {_WINDOW}"
)
_UNION: Final = (
    "UNION keeps each row of a stream in mind for ever, to leave it out when it comes again: use UNION ALL, and "
    f"dropDuplicates, which ends with the watermark, or {_PER_BATCH}"
)
_DISTINCT_VALUES: Final = (
    "(DISTINCT ...) is not kept in mind of a group of a stream: use approx_count_distinct(...), or collect_set(...) "
    f"and functions of arrays, or {_PER_BATCH}, for each batch"
)
_SUBQUERY: Final = (
    "a subquery over a stream would need all of its rows: JOIN the stream (SEMI JOIN for IN and EXISTS), or "
    f"{_PER_BATCH}, for each batch"
)
_OUTER: Final = (
    "a row of a stream without a partner is known as such when a watermark has passed: give a source of the join a "
    f"watermark, and say in ON how far apart in time rows may be; or JOIN a table, or {_PER_BATCH}"
)


def check(text: str, streams: Streams, *, has_windows: bool, is_complete: bool) -> bool:
    """Check that a query asks of streams nothing that needs their end, and return whether it makes windows of time.

    Args:
        text: a checked query.
        streams: those of its relations that are streams, and whether they have a watermark.
        has_windows: whether its groups end without windows that it makes.
        is_complete: whether what comes of it is written anew each time.

    Raises:
        SqlError: it does; with the place, and the way that works.
    """
    tree = read(text)
    found = {name.lower(): has_watermark for name, has_watermark in streams}
    parts = {cte.alias.lower(): cte.this for cte in tree.find_all(exp.CTE)}
    makes_windows = any(str(call.this).lower() in WINDOWS for call in tree.find_all(exp.Anonymous))
    for node in tree.walk():
        if problem := _problem(node, found, parts):
            raise SqlError(problem, *place_of(node, text))
        if not is_complete and (problem := _endless(node, found, parts, has_windows or makes_windows)):
            raise SqlError(problem, *place_of(node, text))
    return makes_windows


def _problem(node: exp.Expr, streams: Mapping[str, bool], parts: Mapping[str, exp.Expr]) -> str | None:
    """Return what is wrong with a part of a query over streams, whatever becomes of its rows."""
    query = node.find_ancestor(exp.Query)
    if isinstance(node, exp.Distinct) and isinstance(node.parent, exp.Anonymous):
        if query is not None and _streams_of(query, streams, parts):
            return f"{node.parent.this}{_DISTINCT_VALUES}"
    elif _is_subquery(node):
        if _streams_of(node, streams, parts):
            return _SUBQUERY
    elif isinstance(node, exp.Join) and node.side and node.kind not in ("SEMI", "ANTI"):
        joins = node.parent.args["joins"] if node.parent is not None else []
        first = node.parent.args.get("from_") if node.parent is not None else None
        before = [one for one in (first, *joins[: joins.index(node)]) if one is not None]
        left = {name for one in before for name in _streams_of(one, streams, parts)}
        right = _streams_of(node.this, streams, parts)
        if left and right and not any(streams[name] for name in left | right):
            return _OUTER
    return None


def _is_subquery(node: exp.Expr) -> bool:
    """Return whether a query stands where an expression does."""
    if isinstance(node, exp.Exists):
        return True
    return isinstance(node, exp.Subquery) and not isinstance(
        node.parent, exp.From | exp.Join | exp.Query | exp.CTE | exp.Lateral
    )


def _endless(
    node: exp.Expr, streams: Mapping[str, bool], parts: Mapping[str, exp.Expr], has_windows: bool
) -> str | None:
    """Return what is wrong with a part of a query whose rows are final once they have come."""
    query = node.parent
    if isinstance(node, exp.Window):
        query = node.find_ancestor(exp.Query)
    elif isinstance(node, exp.SetOperation):
        query = node
    if not isinstance(query, exp.Query) or not _streams_of(query, streams, parts):
        return None
    if isinstance(node, exp.Having) and query.args.get("group") is None:
        return f"{_HAVING_WITHOUT_GROUP} {_WINDOW}"
    if isinstance(node, exp.Having) and not has_windows:
        return f"{_HAVING_WITHOUT_WINDOW} {_WINDOW}"
    if isinstance(node, exp.Distinct) and not has_windows:
        return _DISTINCT
    if isinstance(node, exp.Union) and node.args.get("distinct") and not has_windows:
        return _UNION
    return _ENDLESS.get(type(node))


def _streams_of(part: exp.Expr, streams: Mapping[str, bool], parts: Mapping[str, exp.Expr]) -> set[str]:
    """Return the streams that a part of a query reads, itself or by a WITH."""
    found = set()
    for table in part.find_all(exp.Table):
        name = table.name.lower()
        if name in parts:
            found |= _streams_of(parts[name], streams, {other: parts[other] for other in parts if other != name})
        elif name in streams:
            found.add(name)
    return found
