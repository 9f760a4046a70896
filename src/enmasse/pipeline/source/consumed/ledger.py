"""Which delivery stands for which row of the spool, and what is to be accepted when.

Rules:
1. A delivery that stands here is accepted when its row is committed, or at once if its message was committed before.
2. A delivery whose message is in a batch already, and has no living delivery there, takes that place.
3. With its connection a delivery is gone; its message comes again, if the address still has it.

Pure; ``Handle`` is whatever settles a delivery.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from enmasse.pipeline.source.consumed.batch_file import BatchFile

__all__ = ["Entry", "Ledger"]

Handle = TypeVar("Handle")


class Entry(Generic[Handle]):
    """A batch that Spark may still ask for.

    Args:
        file: where it lies.
        identities: of its rows, where they have any.
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
        """Give a delivery the row of its message, if there is one that has none; tells whether there was."""
        for entry, row in self._rows.get(identity, ()) if identity is not None else ():
            if entry.handles[row] is None:
                entry.handles[row] = handle
                return True
        return False

    def is_committed(self, identity: bytes | None) -> bool:
        """Whether a message was committed before and is to be accepted at once; asked once for each that comes."""
        if identity is None or not self._again[identity]:
            return False
        self._again[identity] -= 1
        return True

    def may_come_again(self, identities: Iterable[bytes]) -> None:
        """Committed messages whose acceptance is in doubt."""
        self._again.update(identities)

    def committed(self, position: int) -> list[Entry[Handle]]:
        """The batches below an offset, which Spark will not ask for any more; they stay until ``remove``."""
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
