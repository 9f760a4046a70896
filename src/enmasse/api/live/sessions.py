"""The connections and links of spaces: asked of nodes when somebody looks, as rows with rates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from enmasse.model.schema.subresources import LINKS

if TYPE_CHECKING:
    from collections.abc import Sequence

Document = dict[str, Any]

LINK_COUNTS: Final = tuple(field.name for field in LINKS.fields if field.type == "integer")

_MAX_SESSIONS: Final = 20_000  # connections or links of one space that are looked at
_FRESH_S: Final = 1.0
_FORGET_S: Final = 60.0
_COUNTED: Final = {"messagesIn": "messagesIn", "messagesOut": "messagesOut", "deliveries": "rate"}
"""Counters of connections and links, and the columns of their rates."""


class SessionRows:
    """The connections, or links, of spaces as nodes tell them, with their rates.

    Args:
        ports: return a page of them for a space and an offset, and whether there are more; one for each node.
        shape: returns a row for what a node tells.
        clock: returns seconds, monotonic.
    """

    def __init__(
        self,
        ports: Sequence[Callable[[str, int], Any]],
        shape: Callable[[Document], Document],
        clock: Callable[[], float],
    ) -> None:
        self._ports = ports
        self._shape = shape
        self._clock = clock
        self._found: dict[str, tuple[float, list[Document], int]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def of(self, space: str) -> tuple[list[Document], int]:
        """Return the rows of a space, and the bound that leaves some of them out; 0: none does.

        Raises:
            NodeUnavailableError: a node cannot be reached.
        """
        async with self._locks.setdefault(space, asyncio.Lock()):
            former = self._found.get(space)
            if former is not None and self._clock() - former[0] < _FRESH_S:
                return former[1:]
            rows, bound = await self._ask(space)
            now = self._clock()
            if former is not None:
                _add_rates(former[1], rows, now - former[0])
            self._found[space] = (now, rows, bound)
        self._forget(now)
        return rows, bound

    async def _ask(self, space: str) -> tuple[list[Document], int]:
        rows: list[Document] = []
        for ask in self._ports:
            offset, has_more = 0, True
            while has_more:
                page, has_more = await ask(space, offset)
                offset += len(page)
                rows += map(self._shape, page)
                if len(rows) > _MAX_SESSIONS:
                    return rows[:_MAX_SESSIONS], _MAX_SESSIONS
        return rows, 0

    def _forget(self, now: float) -> None:
        """Forget spaces that nobody looks at any more."""
        for space in [space for space, (at, *_) in self._found.items() if now - at > _FORGET_S]:
            del self._found[space]
            self._locks.pop(space, None)


def _add_rates(former: Sequence[Document], rows: Sequence[Document], passed: float) -> None:
    known = {row["key"]: row for row in former}
    for row in rows:
        before = known.get(row["key"])
        if before is None or passed <= 0:
            continue
        for counter, now in row["counts"].items():
            row[_COUNTED[counter]] = round(max(0.0, now - before["counts"].get(counter, 0)) / passed, 2)


def connection_row(told: Document) -> Document:
    """Return the row of a connection for what a node tells of it."""
    opened = datetime.fromtimestamp(told["openedAt"] / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    protocol = told.get("protocol") or ""
    row = {
        "name": told["name"],
        "host": told.get("host"),
        "via": told.get("via"),
        "containerId": told.get("container"),
        "protocol": protocol,
        "user": told.get("user"),
        "mechanism": told.get("mechanism"),
        "tls": told.get("tls"),
        "properties": told.get("properties"),
        "senders": told.get("senders"),
        "receivers": told.get("receivers"),
        "notRead": told.get("paused"),
    }
    counts = {name: told.get(name) or 0 for name in ("messagesIn", "messagesOut")}
    return _without_none(row) | {"opened": opened, "key": told["name"], "counts": counts}


def link_row(told: Document) -> Document:
    """Return the row of a link for what a node tells of it."""
    row = {name: told.get(name) for name in ("name", "connection", "role", "address", *LINK_COUNTS)}
    row["containerId"] = told.get("container")
    counts = {"deliveries": told.get("deliveries") or 0}
    return _without_none(row) | {"key": told.get("identity") or told["name"], "counts": counts}


def _without_none(row: Document) -> Document:
    return {name: value for name, value in row.items() if value is not None}
