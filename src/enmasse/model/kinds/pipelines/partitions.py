"""The words of ``partitionBy``: a column, or a function of one, as ``day(ts)`` and ``bucket(16, device)``.

A name with brackets or commas stands in backquotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from enmasse.model.sql.ddl import identifier_of

FUNCTIONS: Final = ("year", "month", "day", "hour", "bucket")
MAX_BUCKETS: Final = 1000

_CALL: Final = re.compile(r"\s*(\w+)\s*\(\s*(?:(\d+)\s*,)?\s*(`(?:[^`]|``)+`|[^(),]+?)\s*\)\s*")


@dataclass(frozen=True)
class Partition:
    """A column that lays out a table.

    Attributes:
        name: the name of the column.
        function: makes it; empty: rows bring it.
        column: the column that it is made of.
        count: of buckets.
    """

    name: str
    function: str = ""
    column: str = ""
    count: int = 0

    def __str__(self) -> str:
        if not self.function:
            return self.name
        return f"{self.function}({f'{self.count}, ' if self.count else ''}{self.column})"


def partition_of(text: str) -> Partition:
    """Return what a text declares.

    Raises:
        ValueError: it is no such function, or has other arguments; says what was expected.
    """
    found = _CALL.fullmatch(text)
    if found is None:
        return Partition(identifier_of(text))
    function, count, column = found[1].lower(), int(found[2] or 0), identifier_of(found[3])
    if function not in FUNCTIONS or (function == "bucket") != (1 <= count <= MAX_BUCKETS):
        raise ValueError(
            "expected a column, year(column), month(column), day(column), hour(column) or bucket(16, column) with "
            f"{MAX_BUCKETS} buckets at most, got {text!r}; a name with brackets or commas stands in backquotes"
        )
    return Partition(f"{column}_{function}", function, column, count)
