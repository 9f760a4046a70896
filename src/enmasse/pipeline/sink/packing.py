"""Packs rows into parcels: messages for most addresses, frames by partition for streams.

Rules:
1. What a frame holds depends on the rows before it and on nothing else, so that a task that runs again makes
   the same frames with the same numbers.
2. A row that can never be taken is a refusal before anything is sent.
"""

from __future__ import annotations

from typing import NamedTuple

from enmasse.messaging.log.frame import encode_frame
from enmasse.messaging.streams.heads import partition_of
from enmasse.pipeline.headers import header_problem
from enmasse.pipeline.sink.columns import Row
from enmasse.pipeline.sink.identity import Identity
from enmasse.pipeline.sink.messages import MAX_TTL_MS, Encoder, data_prefix, key_bytes

DIRECT = frozenset({"anycast", "multicast"})


class AddressInfo(NamedTuple):
    """Facts that a node reports of an address."""

    kind: str
    """``anycast``, ``multicast``, ``queue``, ``topic`` or ``stream``."""
    partitions: int
    """The number of partitions of a stream."""
    max_bytes: int
    """Bytes of a message at most."""

    @property
    def is_direct(self) -> bool:
        """True if nothing is stored, so that a receiver has to be there."""
        return self.kind in DIRECT


class LinkKey(NamedTuple):
    """One link to an address."""

    address: str
    producer: str = ""
    """The name under which its messages are numbered; empty: they are not."""
    partition: int = -1
    """The partition that it takes frames for; below 0 it takes messages."""


class Numbered(NamedTuple):
    """A row and its place in its task."""

    place: int
    row: Row
    address: str


class Parcel(NamedTuple):
    """One transfer: a message of one row, or a frame of many."""

    link: LinkKey
    payload: bytes
    first: Numbered
    """The row, or the first of them."""
    rows: int = 1


class Refusal(NamedTuple):
    """A row that an address does not take, or a frame that begins with it."""

    numbered: Numbered
    reason: str
    rows: int = 1
    cause: str = "outcome"
    """``address``: nothing can go there; ``row``: it cannot be packed; ``outcome``: the address said so."""


FRAME_ROWS = 4_096
FRAME_BYTES = 1 << 20
"""A frame is closed at either, as the node closes its own."""

FRAME_OVERHEAD_BYTES = 512
"""Its header and the producer's name."""

ROW_OVERHEAD_BYTES = 20
"""A row's time and its place in three columns."""

_NO_PARTITION = "leave out the column partition, or have it null"

KNOWN_KEYS = 65_536
"""Keys whose partition is remembered."""


def problem_of(row: Row) -> str | None:
    """Return why no address will ever take a row; ``None`` if one may."""
    if row.value is None:
        return "its value is null"
    if row.ttl is not None and not 0 <= row.ttl <= MAX_TTL_MS:
        return f"its ttl of {row.ttl} ms is not between 0 and {MAX_TTL_MS}"
    return None if row.headers is None else header_problem(row.headers)


class Packer:
    """Packs one task's rows for one address.

    Args:
        address: the address to which they go.
        info: the facts about the address.
        identity: the identity of the rows.
        encoder: makes messages.
    """

    def __init__(self, address: str, info: AddressInfo, identity: Identity, encoder: Encoder) -> None:
        self.address = address
        self.info = info
        self._identity = identity
        self._encoder = encoder

    def add(self, index: int, row: Row, out: list[Parcel]) -> str | None:
        """Pack a row; what is ready to be sent goes to ``out``.

        Returns:
            Why it can never be taken, or ``None``.
        """
        raise NotImplementedError

    def close(self, out: list[Parcel]) -> None:
        """Have what is packed halfway sent, too."""


class MessagePacker(Packer):
    """A message for each row, numbered where the address remembers numbers."""

    def __init__(self, address: str, info: AddressInfo, identity: Identity, encoder: Encoder) -> None:
        super().__init__(address, info, identity, encoder)
        self._is_numbered = not info.is_direct
        self._link = LinkKey(address, identity.producer)

    def add(self, index: int, row: Row, out: list[Parcel]) -> str | None:
        """Return a message."""
        if row.partition is not None:
            return (
                f"its partition is {row.partition}, and {self.info.kind} {self.address!r} has none; {_NO_PARTITION}"
            )
        identity = self._identity
        payload = self._encoder.message(
            row,
            message_id=identity.message_id(index),
            sequence=identity.row_sequence(index) if self._is_numbered else None,
        )
        if len(payload) > self.info.max_bytes:
            return f"too large: {len(payload)} bytes, and {self.info.max_bytes} are the most"
        out.append(Parcel(self._link, payload, Numbered(index, row, self.address)))
        return None


class _Open:
    """A frame that is not full."""

    __slots__ = ("bodies", "bytes", "first", "heads", "keys")

    def __init__(self, first: Numbered) -> None:
        self.first = first
        self.keys: list[bytes] = []
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.bytes = FRAME_OVERHEAD_BYTES


class StreamPacker(Packer):
    """Frames by partition: the row's own, else as the node would choose it for each message.

    Rows without a key go to one partition together, another one with every batch.
    """

    def __init__(self, address: str, info: AddressInfo, identity: Identity, encoder: Encoder) -> None:
        super().__init__(address, info, identity, encoder)
        self._producer = identity.producer.encode()
        self._open: list[_Open | None] = [None] * info.partitions
        self._chunks = [0] * info.partitions
        self._limit = min(FRAME_BYTES, info.max_bytes)
        self._of_key = {b"": (identity.batch + identity.task) % info.partitions}

    def add(self, index: int, row: Row, out: list[Parcel]) -> str | None:
        """Return a row of a frame."""
        value = row.value or b""
        head = self._encoder.head(row) + data_prefix(len(value))
        key = key_bytes(row)
        size = len(key) + len(head) + len(value) + ROW_OVERHEAD_BYTES
        if size + FRAME_OVERHEAD_BYTES > self.info.max_bytes or size + FRAME_OVERHEAD_BYTES > 4 * FRAME_BYTES:
            most = min(self.info.max_bytes, 4 * FRAME_BYTES) - FRAME_OVERHEAD_BYTES
            return f"too large: {size} bytes, and {most} are the most that a frame takes"
        partition = self._of_key.get(key) if row.partition is None else row.partition
        if partition is not None and not 0 <= partition < self.info.partitions:
            last = self.info.partitions - 1
            return f"there is no partition {partition}: {self.address!r} has 0 to {last}; {_NO_PARTITION}"
        if partition is None:
            if len(self._of_key) > KNOWN_KEYS:
                self._of_key = {b"": self._of_key[b""]}
            partition = self._of_key[key] = partition_of(key, self.info.partitions)
        frame = self._open[partition]
        if frame is not None and (frame.bytes + size > self._limit or len(frame.keys) >= FRAME_ROWS):
            self._finish(partition, frame, out)
            frame = None
        if frame is None:
            frame = self._open[partition] = _Open(Numbered(index, row, self.address))
        frame.keys.append(key)
        frame.heads.append(head)
        frame.bodies.append(value)
        frame.bytes += size
        return None

    def close(self, out: list[Parcel]) -> None:
        """Have the frames sent that are not full."""
        for partition, frame in enumerate(self._open):
            if frame is not None:
                self._finish(partition, frame, out)

    def _finish(self, partition: int, frame: _Open, out: list[Parcel]) -> None:
        self._open[partition] = None
        chunk = self._chunks[partition]
        self._chunks[partition] = chunk + 1
        rows = len(frame.keys)
        data = encode_frame(
            0,
            [0] * rows,
            frame.keys,
            frame.heads,
            frame.bodies,
            producer=self._producer,
            sequence=self._identity.frame_sequence(chunk),
        )
        out.append(Parcel(LinkKey(self.address, partition=partition), data, frame.first, rows))
