"""Named consumers of a partition: the offset each has come to, kept with the stream.

An offset that a consumer commits is the next one it wants. What outcomes commit only moves forward; what
a client commits by a message may move anywhere. What a transaction commits is written with its batch, and
counts for nothing if that fails.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

from enmasse.messaging.errors import AttachError

MAX_CONSUMERS = 1_024
"""Names that a partition keeps; more are the sign of a client that makes up a new one each time."""

MAX_NAME_BYTES = 255

_OFFSET = struct.Struct(">Q")

Done = Callable[[bool], None]
"""Called with whether a commit is on disk."""


def consumer_name(value: object, what: str) -> str:
    """Return a consumer's name as a client gave it.

    Raises:
        AttachError: it is none.
    """
    if not isinstance(value, str) or not 1 <= len(value.encode()) <= MAX_NAME_BYTES:
        raise AttachError("amqp:invalid-field", f"{what} takes a name of 1 to {MAX_NAME_BYTES} bytes")
    return str(value)


class ConsumerOffsets:
    """The offsets that named consumers of one partition committed."""

    __slots__ = ("_coming", "_done", "_flying", "_moved", "_staged", "reached", "stored")

    def __init__(self) -> None:
        self.stored: dict[str, int] = {}
        """The offsets on disk, by name."""
        self.reached: dict[str, int] = {}
        """The offsets that consumers reached, whether or not they are on disk."""
        self._coming: dict[str, int | None] = {}
        self._done: list[Done] = []
        self._staged: list[tuple[str, Callable[[], int]]] = []
        """Commits of transactions: the name, and a function that returns the offset when it is written."""
        self._flying: dict[str, int | None] = {}
        """Offsets of a cut that are to be written again if it fails."""
        self._moved: dict[str, int] = {}
        """Offsets of a cut that transactions brought."""

    @property
    def is_due(self) -> bool:
        """True if something is to be written."""
        return bool(self._coming or self._done or self._staged)

    def has_room(self, name: str) -> bool:
        """Return whether a name is known, or one more may be."""
        return name in self.reached or len(self.reached) < MAX_CONSUMERS

    def advance(self, name: str, offset: int) -> None:
        """Note that a consumer has got through everything below ``offset``."""
        if offset > self.reached.get(name, -1):
            self.reached[name] = offset
            self._coming[name] = offset

    def commit(self, name: str, offset: int | None, done: Done) -> None:
        """Commit a client's offset; ``None`` forgets the name. ``done`` is called when that is on disk."""
        if offset is None:
            self.reached.pop(name, None)
        else:
            self.reached[name] = offset
        self._coming[name] = offset
        self._done.append(done)

    def stage(self, name: str, offset: Callable[[], int], done: Done) -> None:
        """Move a consumer forward for a transaction.

        Args:
            name: the consumer.
            offset: gives the next offset that it wants, when it is written; below 0 where nothing changes.
            done: called with whether that is on disk; if it is not, it never will be.
        """
        self._staged.append((name, offset))
        self._done.append(done)

    def cut(self) -> tuple[dict[str, int | None], list[Done]]:
        """Return the offsets to write now, and the callbacks for them."""
        self._flying = self._coming
        coming, self._coming = dict(self._coming), {}
        done, self._done = self._done, []
        staged, self._staged = self._staged, []
        self._moved = {}
        for name, offset_now in staged:
            offset = offset_now()
            if name in coming and coming[name] is None:
                continue
            if offset > max(coming.get(name) or -1, self.reached.get(name, -1)):
                self._moved[name] = coming[name] = offset
        return coming, done

    @staticmethod
    def records(coming: dict[str, int | None]) -> Iterable[tuple[bytes, bytes | None]]:
        """Return name and value of the records to write; ``None`` deletes one."""
        for name, offset in coming.items():
            yield name.encode(), None if offset is None else _OFFSET.pack(offset)

    def written(self, coming: dict[str, int | None], done: list[Done]) -> None:
        """Note that a cut is on disk."""
        for name, offset in coming.items():
            if offset is None:
                self.stored.pop(name, None)
            else:
                self.stored[name] = offset
        for name, offset in self._moved.items():
            if name not in self._coming:
                self.reached[name] = max(offset, self.reached.get(name, -1))
        for callback in done:
            callback(True)

    def failed(self, coming: dict[str, int | None], done: list[Done]) -> None:
        """Note that a cut is not on disk; what consumers got through is written again, clients ask again."""
        self._coming = self._flying | self._coming
        for callback in done:
            callback(False)

    def load(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Load what the journal holds."""
        for name, value in records:
            (self.stored[name.decode()],) = _OFFSET.unpack(value)
        self.reached = dict(self.stored)
