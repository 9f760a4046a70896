"""Keeps which delivery stands for which row of the spool, and accepts it once Spark has committed the row.

Rules:
1. A delivery that stands here is accepted when its row is committed, or at once if its message was committed before.
2. A delivery whose message is in a batch already, and has no living delivery there, takes that place.
3. With its connection a delivery is gone; its message comes again, if the address still has it.
4. A query's progress is read from Spark's own checkpoint: a source learns only when it plans the next
   batch, which on a quiet address may be never. ``commits/N`` is there as soon as batch N is done, and ``offsets/N``
   holds what the source gave as the batch's end.

``Handle`` is whatever settles a delivery.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import unquote, urlsplit

from enmasse.pipeline.source.consumed.spool import BatchFile, Disk


def local_path(location: str) -> Path | None:
    """Return where a checkpoint lies on this machine; ``None`` if it lies elsewhere, as in HDFS or S3."""
    parts = urlsplit(location)
    if parts.scheme not in {"", "file"} or (parts.scheme and parts.netloc not in {"", "localhost"}):
        return None
    return Path(os.path.normpath(Path(unquote(parts.path) if parts.scheme else location).absolute()))


class CommitLog:
    """The progress of one spool, as a checkpoint has it.

    Args:
        folder: the checkpoint.
        spool: the spool's id, which is part of its offsets.
    """

    def __init__(self, folder: Path, spool: str) -> None:
        self._folder = folder
        self._spool = spool
        self._disk = Disk()
        self._synced = -1

    def position(self) -> int | None:
        """Return the offset below which everything is committed, and will be after a loss of power too.

        ``None`` while nothing is committed, or if what is committed is not of this spool.
        """
        try:
            done = [int(path.name) for path in (self._folder / "commits").iterdir() if path.name.isdecimal()]
        except OSError:
            return None
        for batch in sorted(done, reverse=True)[:2]:
            path = self._folder / "offsets" / str(batch)
            try:
                position = self._position_in(path.read_text())
                if position is not None:
                    self._sync(batch)
                    return position
            except OSError:
                continue
        return None

    def _position_in(self, text: str) -> int | None:
        for line in text.splitlines():
            found = self._find(line)
            if found is not None:
                return found
        return None

    def _find(self, value: Any) -> int | None:
        """Our offset in a line: as it is, or as text within what a later version of Spark writes around it."""
        if isinstance(value, str):
            if self._spool not in value:
                return None
            try:
                return self._find(json.loads(value))
            except ValueError:
                return None
        if isinstance(value, dict):
            if value.get("spool") == self._spool:
                return int(value["next"])
            value = list(value.values())
        if isinstance(value, list):
            return next((found for item in value if (found := self._find(item)) is not None), None)
        return None

    def _sync(self, batch: int) -> None:
        """Have the proof survive a loss of power, before anything is deleted because of it."""
        if batch <= self._synced:
            return
        for folder in (self._folder / "offsets", self._folder / "commits"):
            self._disk.sync(folder / str(batch))
            self._disk.sync(folder)
        self._synced = batch


Handle = TypeVar("Handle")


class Entry(Generic[Handle]):
    """A batch that Spark may still ask for.

    Args:
        file: the file in which it lies.
        identities: the identities of its rows, where they have any.
        handles: the rows' deliveries, where they are alive.
    """

    __slots__ = ("file", "handles", "identities")

    def __init__(
        self, file: BatchFile, identities: Sequence[bytes | None], handles: Sequence[Handle | None] = ()
    ) -> None:
        self.file = file
        self.identities = list(identities)
        self.handles: list[Handle | None] = list(handles) or [None] * len(self.identities)

    @property
    def living(self) -> list[Handle]:
        """Deliveries that can be accepted."""
        return [handle for handle in self.handles if handle is not None]

    @property
    def unheld(self) -> list[bytes]:
        """Identities of rows that have no living delivery."""
        pairs = zip(self.identities, self.handles, strict=True)
        return [identity for identity, handle in pairs if handle is None and identity is not None]

    @property
    def known(self) -> list[bytes]:
        """Identities of all rows that have one."""
        return [identity for identity in self.identities if identity is not None]


class Ledger(Generic[Handle]):
    """The account of one query.

    Args:
        entries: the batches of its spool, in their order.
        again: identities of committed messages that may come again.
    """

    def __init__(self, entries: Iterable[Entry[Handle]] = (), again: Iterable[bytes] = ()) -> None:
        self.entries: list[Entry[Handle]] = []
        self._rows: dict[bytes, list[tuple[Entry[Handle], int]]] = {}
        self._again = Counter(again)
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry[Handle]) -> None:
        """A batch was written."""
        self.entries.append(entry)
        for row, identity in enumerate(entry.identities):
            if identity is not None:
                self._rows.setdefault(identity, []).append((entry, row))

    def tie(self, identity: bytes | None, handle: Handle) -> bool:
        """Give a delivery the row of its message, if there is one that has none; returns whether there was."""
        for entry, row in self._rows.get(identity, ()) if identity is not None else ():
            if entry.handles[row] is None:
                entry.handles[row] = handle
                return True
        return False

    def is_committed(self, identity: bytes | None) -> bool:
        """Return whether a message was committed before and is to be accepted at once; called once for each."""
        if identity is None or not self._again[identity]:
            return False
        self._again[identity] -= 1
        return True

    def may_come_again(self, identities: Iterable[bytes]) -> None:
        """Committed messages whose acceptance is in doubt."""
        self._again.update(identities)

    def committed(self, position: int) -> list[Entry[Handle]]:
        """Return the batches below an offset, which Spark will not ask for any more; they stay until ``remove``."""
        return [entry for entry in self.entries if entry.file.end <= position]

    def remove(self, entry: Entry[Handle]) -> None:
        """A batch is settled."""
        self.entries.remove(entry)
        for row, identity in enumerate(entry.identities):
            if identity is None:
                continue
            left = [place for place in self._rows[identity] if place != (entry, row)]
            if left:
                self._rows[identity] = left
            else:
                del self._rows[identity]

    def lost(self) -> None:
        """The connection is gone, and every delivery with it."""
        for entry in self.entries:
            entry.handles = [None] * len(entry.handles)
