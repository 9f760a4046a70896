"""Writes what sessions have in flight to the journal: one record for each direction of a session.

Rules:
1. A record is written whole: what is in flight is bounded, and a batch brings many changes of it.
2. What must not be sent before it is on disk asks for a batch (``write``), together with the logs that it depends
   on; what may be lost without harm (an acknowledged QoS 1 message) is written within a second, if it still is
   in flight then.
3. A batch has at most ``MAX_SESSIONS`` records that nobody waits for: it is cut in one turn.
4. A message that is in no frame yet has no place. Its session is written again with the batch that follows.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from enmasse.messaging.core import Core, Log
    from enmasse.messaging.storage import Operation


LAZY_S: Final = 1.0
"""Seconds until what may be lost is written."""

MAX_SESSIONS: Final = 128
"""The most sessions of a batch, beside those whose batch somebody waits for: some milliseconds of work."""

Done = Callable[[str | None], None]


class Written(Protocol):
    """A session as the journal sees it."""

    def cut(self) -> tuple[list[Operation], list[int], bool]:
        """Return what to write now, the packet ids whose messages may go out then, and whether more is to follow."""

    def written(self, packet_ids: list[int]) -> None:
        """Note that a cut is on disk."""

    def unwritten(self) -> None:
        """Note that a cut is not on disk: everything is to be written again."""


class _Cut:
    __slots__ = ("dones", "sessions")

    def __init__(self, dones: list[Done]) -> None:
        self.sessions: list[tuple[Written, list[int]]] = []
        self.dones = dones


class SessionJournal:
    """The log of what the sessions of a space have in flight.

    Args:
        core: the core whose batches it is written with.
        name: its name in reports.
    """

    __slots__ = ("_core", "_dirty", "_dones", "_is_waiting", "_lazy", "_urgent", "name")

    def __init__(self, core: Core, name: str) -> None:
        self.name = name
        self._core = core
        self._dirty: dict[Written, None] = {}
        self._urgent: dict[Written, None] = {}
        """Those of them whose batch somebody waits for."""
        self._lazy: dict[Written, None] = {}
        self._is_waiting = False
        self._dones: list[Done] = []

    def write(self, session: Written, done: Done | None = None, *logs: Log) -> None:
        """Have a session written with the next batch.

        Args:
            session: the session.
            done: called once that is on disk, or with the reason why it is not.
            logs: those that are cut into the same batch, all or nothing; before this one.
        """
        self._dirty[session] = None
        if done is not None:
            self._dones.append(done)
            self._urgent[session] = None
        if logs:
            self._core.write_together([*logs, self])
        else:
            self._core.write(self)

    def write_later(self, session: Written) -> None:
        """Have a session written within a second, if there is no batch for it before."""
        self._lazy[session] = None
        if not self._is_waiting:
            self._is_waiting = True
            self._core.call_later(LAZY_S, self._write_lazy)

    def _write_lazy(self) -> None:
        self._is_waiting = False
        lazy, self._lazy = self._lazy, {}
        if lazy:
            self._dirty.update(lazy)
            self._core.write(self)

    def forget(self, session: Written) -> None:
        """Forget a session that is over."""
        self._dirty.pop(session, None)
        self._urgent.pop(session, None)
        self._lazy.pop(session, None)

    # The core's log

    def cut(self, wall_us: int) -> tuple[list[Operation], Any]:
        """Return what changed of the sessions."""
        dirty, self._dirty = self._dirty, {}
        urgent, self._urgent = self._urgent, {}
        if len(dirty) > MAX_SESSIONS:
            # The others are written with the batches that follow.
            first = dict.fromkeys(islice(dirty, MAX_SESSIONS)) | urgent
            self._dirty = {session: None for session in dirty if session not in first}
            dirty = first
        cut = _Cut(self._dones)
        self._dones = []
        operations: list[Operation] = []
        for session in dirty:
            self._lazy.pop(session, None)
            changes, packet_ids, is_more_coming = session.cut()
            operations += changes
            cut.sessions.append((session, packet_ids))
            if is_more_coming:
                self._dirty[session] = None
        if self._dirty:
            self._core.write(self)
        return operations, cut if operations or cut.dones or any(ids for _, ids in cut.sessions) else None

    def committed(self, token: _Cut) -> None:
        """Note that a cut is on disk."""
        for session, packet_ids in token.sessions:
            session.written(packet_ids)
        for done in token.dones:
            done(None)

    def failed(self, token: _Cut, reason: str) -> None:
        """Have everything written again that is not on disk."""
        for session, _ in token.sessions:
            session.unwritten()
            self._dirty[session] = None
        self._core.write(self)
        for done in token.dones:
            done(reason)
