"""The ids of stored messages: their places, by which browsers continue and single messages are chosen.

An id is ``<place>.<offset>.<checksum>``: the place in memory, the offset in the log (``-`` where the message lies in
no frame yet), and a checksum of the message. The offset outlives restarts; the place in memory does not, and the
checksum keeps it from meaning another message then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Self
from zlib import crc32

if TYPE_CHECKING:
    from enmasse.messaging.log.entry import Entry

IDS_CAPABILITY: Final = "enmasse:ids"
"""The capability of a receiver that wants ids, as an annotation of each message."""

NOWHERE = -1
"""The offset of a message that lies in no frame yet."""


class Place(NamedTuple):
    """The place of a message at one queue or subscription.

    Attributes:
        seq: in memory; of a message that lies on disk only, of the last one shown before it.
        offset: in the log, or ``NOWHERE``.
        check: the checksum of the message.
    """

    seq: int
    offset: int
    check: int

    @classmethod
    def of(cls, payload: bytes, seq: int, offset: int) -> Self:
        """Return the place of a message."""
        return cls(seq, offset, crc32(payload))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the place that an id names; None if the text is no id."""
        parts = text.split(".")
        try:
            seq, offset, check = parts
            return cls(int(seq), NOWHERE if offset == "-" else int(offset), int(check, 16))
        except ValueError:
            return None

    def has(self, payload: bytes, seq: int, offset: int) -> bool:
        """Return whether a message lies here."""
        is_here = seq == self.seq if self.offset == NOWHERE else offset == self.offset
        return is_here and crc32(payload) == self.check

    def __str__(self) -> str:
        offset = "-" if self.offset == NOWHERE else str(self.offset)
        return f"{self.seq}.{offset}.{self.check:08x}"


def offset_of(entry: Entry) -> int:
    """Return the offset of a message in its log, or ``NOWHERE``."""
    return NOWHERE if entry.frame is None else entry.frame.first + entry.row


class Chosen:
    """A set of places, which tells whether a message lies at one of them."""

    __slots__ = ("_offsets", "_seqs")

    def __init__(self, places: list[Place]) -> None:
        self._offsets = {(place.offset, place.check) for place in places if place.offset != NOWHERE}
        self._seqs = {(place.seq, place.check) for place in places if place.offset == NOWHERE}

    def has(self, payload: bytes, seq: int, offset: int) -> bool:
        """Return whether a message was chosen."""
        check = crc32(payload)
        return (offset, check) in self._offsets or (seq, check) in self._seqs
