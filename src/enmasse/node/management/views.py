"""Views: what management shows of things that are no entities of its own, such as connections, in pages.

A row of one takes some 20 microseconds and there may be ten thousands, so rows are made of those alone that are asked
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

Row = dict[str, Any]

MAX_ROWS: Final = 200
"""The most entities of one answer: some milliseconds of the node's time."""

ALL: Final = slice(0, None)


class View(Generic[T]):
    """A view of many things.

    Args:
        things: the things, in a stable order.
        row: returns the attributes of one.
        names: returns the name and the identity of one.
    """

    def __init__(
        self, things: Iterable[T], row: Callable[[T], Row], names: Callable[[T], tuple[str | None, str | None]]
    ) -> None:
        self._things = things
        self._row = row
        self._names = names

    def page(self, page: slice = ALL) -> list[Row]:
        """Return the rows of a page."""
        return [self._row(thing) for thing in list(islice(self._things, page.start, page.stop))]

    def find(self, name: str) -> Row | None:
        """Return the row of what has a name or an identity, if there is one."""
        return next((self._row(thing) for thing in self._things if name in self._names(thing)), None)


def view_of(rows: Iterable[Row]) -> View[Row]:
    """Return the view of few rows that are made already."""
    return View(rows, lambda row: row, lambda row: (row.get("name"), row.get("identity")))
