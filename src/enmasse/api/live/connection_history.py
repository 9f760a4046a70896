"""Records the message rates of connections for the last hour, within a bound on what nodes are asked for.

Rules:
1. Of a space that somebody looks at, all connections are recorded; of others those of the smallest spaces, up to
   ``MAX_RECORDED`` in all: a node tells of 200 connections in two milliseconds.
2. What is recorded has a bound (``Recorded``), and goes with its connection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from enmasse.api.live.history import Recorded
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.api.live.sampler import Sampler
    from enmasse.api.live.sessions import SessionRows

MAX_RECORDED: Final = 500
"""Connections that are recorded although nobody looks at them."""

LOOKED_AT_S: Final = 900.0
"""The time that a space's connections are recorded after somebody looked at one."""

_MAX_POINTS: Final = 200_000  # of forty bytes; an hour of a busy connection has 720
_PATIENCE_S: Final = 10.0


class ConnectionHistory:
    """Records the counters of connections with each reading of the nodes' figures.

    Args:
        rows: the connections of spaces.
        sampler: the sampler of the nodes' figures, which this follows.

    Attributes:
        recorded: by ``<namespace>/<space>/<connection>``.
    """

    def __init__(self, rows: SessionRows, sampler: Sampler) -> None:
        self.recorded = Recorded(("messagesIn", "messagesOut"), ("senders", "receivers"), _MAX_POINTS)
        self._rows = rows
        self._sampler = sampler
        self._looked_at: dict[str, float] = {}
        sampler.followers.append(self._follow)

    def record_space(self, space: str) -> None:
        """Record the connections of a space from now on."""
        self._looked_at[space] = self._sampler.latest.at

    async def _follow(self, at: float) -> None:
        present: set[str] = set()
        for space in self._spaces(at):
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    rows, _ = await self._rows.of(space)
            except (TimeoutError, EnmasseError):
                present |= {name for name in self.recorded.names if name.startswith(f"{space}/")}
                continue
            for row in rows:
                name = f"{space}/{row['name']}"
                counts = row["counts"]
                gauges = float(row.get("senders") or 0), float(row.get("receivers") or 0)
                self.recorded.add(name, at, (float(counts["messagesIn"]), float(counts["messagesOut"]), *gauges))
                present.add(name)
        self.recorded.forget(self.recorded.names - present)

    def _spaces(self, at: float) -> Iterator[str]:
        """Yield the spaces whose connections are recorded now."""
        self._looked_at = {space: seen for space, seen in self._looked_at.items() if at - seen < LOOKED_AT_S}
        totals = self._sampler.latest.totals
        yield from [space for space in self._looked_at if space in totals]
        room = MAX_RECORDED
        for space, total in sorted(totals.items(), key=lambda item: item[1].connections):
            room -= total.connections
            if room < 0:
                return
            if total.connections and space not in self._looked_at:
                yield space
