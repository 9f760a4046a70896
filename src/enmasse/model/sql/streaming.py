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
    from collections.abc import Collection, Mapping

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


def check(text: str, streams: Collection[str], *, has_windows: bool) -> bool:
    """Check that a query asks of streams nothing that needs their end, and return whether it makes windows of time.

    Args:
        text: a checked query.
        streams: those of its relations that are streams.
        has_windows: whether its groups end without windows that it makes.

    Raises:
        SqlError: it does; with the place, and the way that works.
    """
    tree = read(text)
    names = {name.lower() for name in streams}
    parts = {cte.alias.lower(): cte.this for cte in tree.find_all(exp.CTE)}
    makes_windows = any(str(call.this).lower() in WINDOWS for call in tree.find_all(exp.Anonymous))
    for node in tree.walk():
        query = node.parent
        if isinstance(node, exp.Window):
            query = node.find_ancestor(exp.Query)
        elif isinstance(node, exp.Except | exp.Intersect):
            query = node
        if not isinstance(query, exp.Query) or not _reads(query, names, parts):
            continue
        if isinstance(node, exp.Having):
            if query.args.get("group") is None:
                raise SqlError(f"{_HAVING_WITHOUT_GROUP} {_WINDOW}", *place_of(node, text))
            if not has_windows and not makes_windows:
                raise SqlError(f"{_HAVING_WITHOUT_WINDOW} {_WINDOW}", *place_of(node, text))
        elif type(node) in _ENDLESS:
            raise SqlError(_ENDLESS[type(node)], *place_of(node, text))
    return makes_windows


def _reads(query: exp.Expr, streams: Collection[str], parts: Mapping[str, exp.Expr]) -> bool:
    """Return whether a query reads a stream, itself or by a WITH."""
    for table in query.find_all(exp.Table):
        name = table.name.lower()
        part = parts.get(name)
        if part is not None:
            if _reads(part, streams, {other: parts[other] for other in parts if other != name}):
                return True
        elif name in streams:
            return True
    return False
