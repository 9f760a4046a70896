"""The SQL of pipelines and queries, checked without Spark: one query that only computes, over known relations.

Rules:
1. Everything is on a list: kinds of syntax, functions, relations. What is on none is refused.
2. What is run is ``CheckedSql.canonical``, made anew from the checked tree, never the text as it was written:
   so two parsers cannot disagree about what was checked.
3. Text, number of words and depth are bounded before anything is parsed.

The parser takes a tenth of a second to load. So this module has what others need without it: the entry, its result
and its error. It imports ``tree`` when the first SQL is checked, and ``tree`` and the modules below it import these
types: a circle on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


MAX_SQL_CHARACTERS: Final = 20_000
"""The longest query: pages of SQL, and checked within a few hundredths of a second."""

_KEPT = 128  # checked queries: what is applied again, and again by a controller, is not parsed again

Columns = tuple[str, ...] | None
"""The names of a relation's columns; None where they are not known."""

Streams = frozenset[tuple[str, bool]]
"""The names of relations that are streams, each with whether it has a watermark."""


class SqlError(ValueError):
    """Raised when a text is no query that may be run.

    Attributes:
        message: the problem.
        line: the line of it, from 1.
        column: the column of it, from 1.
    """

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.message = message
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class CheckedSql:
    """A query that may be run.

    Attributes:
        canonical: the SQL to run, in Spark's dialect.
        relations: those that it reads, by their declared names.
        functions: those that it calls, in lower case.
        columns: the columns that it gives, as far as they are known.
    """

    canonical: str
    relations: frozenset[str]
    functions: frozenset[str]
    columns: Columns


def checked_sql(text: str, relations: Mapping[str, Columns], functions: Collection[str] = ()) -> CheckedSql:
    """Return the checked query of a text.

    Args:
        text: one query in Spark's SQL.
        relations: those that it may read, by name, with the columns where they are known; errors list them in this
            order.
        functions: those of the user's own that it may call beside Spark's, in lower case.

    Raises:
        SqlError: it is none, or does more than compute, or reads something else; with the place.
    """
    return _checked(text, tuple(relations.items()), frozenset(functions))


def check_syntax(text: str) -> None:
    """Check a query as far as that can be done without the relations that there are.

    Raises:
        SqlError: it is none that may be run, whatever it reads; with the place.
    """
    _require_length(text)
    from enmasse.model.sql.tree import check_alone  # noqa: PLC0415  # the parser is slow to load

    check_alone(text)


@lru_cache(maxsize=_KEPT)
def checked_streaming(text: str, streams: Streams, *, has_windows: bool, is_complete: bool) -> bool:
    """Check that a query asks of streams nothing that needs their end, and return whether it makes windows of time.

    Args:
        text: a query that ``checked_sql`` takes.
        streams: those of its relations that are streams, and whether they have a watermark.
        has_windows: whether its groups end without windows that it makes.
        is_complete: whether what comes of it is written anew each time.

    Raises:
        SqlError: it asks for more; with the place, and the way that works.
    """
    # The parser is slow to load.
    from enmasse.model.sql.streaming import check  # noqa: PLC0415

    return check(text, streams, has_windows=has_windows, is_complete=is_complete)


@lru_cache(maxsize=_KEPT)
def _checked(text: str, relations: tuple[tuple[str, Columns], ...], functions: frozenset[str]) -> CheckedSql:
    _require_length(text)
    # What checks a query and what it is asked by know each other: this file is loaded without sqlglot, which is slow.
    from enmasse.model.sql.tree import check  # noqa: PLC0415

    return check(text, dict(relations), functions)


def _require_length(text: str) -> None:
    if len(text) > MAX_SQL_CHARACTERS:
        raise SqlError(f"expected at most {MAX_SQL_CHARACTERS} characters, got {len(text)}")
