"""Frames: many messages as columns, the unit that is appended, checksummed, sent and read.

Layout, little-endian (docs/reference/frames.md):

    header   magic "EMF2", flags u8, producer length u8, reserved u16, rows u32, size u32,
             first offset u64, crc32 u32, producer sequence u64, producer id
    (padded to a multiple of 8)
    ts       int64[rows]                microseconds UTC, when the address accepted the message
    key      int32[rows + 1] + bytes
    head     int32[rows + 1] + bytes    AMQP sections before the body, to the data section's prefix
    body     int32[rows + 1] + bytes    the data section's content
    whole    u8[(rows + 7) // 8]        only if flagged: rows whose message lies whole in head

Every column starts at a multiple of 8, as Arrow likes it. ``size`` is that of the whole frame and
``crc32`` covers all but itself. A message is exactly ``head[i] + body[i]``.

"EMF1" is the same, but its checksum leaves the header before it out; it is read and no more written.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import gt

from enmasse.errors import EnmasseError

MAGIC = b"EMF2"
_FIRST_MAGIC = b"EMF1"
MAX_FRAME_BYTES = 1 << 30
"""Offsets inside a column are int32."""

FLAG_WHOLE = 1
"""There is a bitmap of the rows whose message lies whole in ``head``."""
FLAG_VOLATILE = 2
"""The messages are not durable: a restart forgets them."""

_HEADER = struct.Struct("<4sBBHIIQIQ")
_START = struct.Struct("<4sBBHIIQ")
_CRC_AT = 24
_CRC = struct.Struct("<I")
_FIRST_AT = 16
_FIRST = struct.Struct("<Q")
_PADS = [b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0"]

assert sys.byteorder == "little", "frames are written with the machine's own integers"


class FrameError(EnmasseError):
    """Bytes that are not a frame, or a frame whose checksum is wrong."""


class Column:
    """The place of one variable-length column in a frame's bytes."""

    __slots__ = ("data_at", "data_end", "offsets_at")

    def __init__(self, offsets_at: int, data_at: int, data_end: int) -> None:
        self.offsets_at = offsets_at
        self.data_at = data_at
        self.data_end = data_end


def _pad(size: int) -> bytes:
    return _PADS[size & 7]


def encode_frame(
    first_offset: int,
    timestamps: Sequence[int],
    keys: Sequence[bytes],
    heads: Sequence[bytes],
    bodies: Sequence[bytes],
    *,
    whole: Sequence[int] = (),
    producer: bytes = b"",
    sequence: int = 0,
    volatile: bool = False,
) -> bytes:
    """Encode a frame of ``len(timestamps)`` messages.

    Args:
        first_offset: the first row's offset; the others follow without a gap.
        timestamps: microseconds since 1970 UTC, one a row.
        keys: partition keys, one a row; empty where there is none.
        heads: the bytes before the body's content, for each row.
        bodies: the body's content, one a row.
        whole: indices of the rows whose whole message is in ``heads``.
        producer: id of an idempotent producer, at most 255 bytes.
        sequence: that producer's sequence.
        volatile: whether a restart forgets these messages.

    Raises:
        FrameError: the columns are too large for 32-bit offsets or differ in length, or the
            producer id is too long.
    """
    rows = len(timestamps)
    if len(producer) > 255:
        raise FrameError(f"a producer id of {len(producer)} bytes is above the limit of 255")
    if not rows == len(keys) == len(heads) == len(bodies):
        raise FrameError(
            f"columns differ in length: {rows} timestamps, {len(keys)} keys, {len(heads)} heads, {len(bodies)} bodies"
        )
    columns: list[tuple[bytes, bytes]] = []
    for column in (keys, heads, bodies):
        offsets = array("i", [0])
        try:
            offsets.extend(accumulate(map(len, column)))
        except OverflowError:
            raise FrameError("a column of a frame is larger than 2 GiB") from None
        columns.append((offsets.tobytes(), b"".join(column)))
    flags = FLAG_VOLATILE if volatile else 0
    bitmap = bytearray()
    if whole:
        flags |= FLAG_WHOLE
        bitmap = bytearray((rows + 7) >> 3)
        for row in whole:
            bitmap[row >> 3] |= 1 << (row & 7)
    ts = array("q", timestamps).tobytes()
    return seal_frame(flags, rows, first_offset, ts, columns, bitmap, producer, sequence)


def seal_frame(
    flags: int,
    rows: int,
    first_offset: int,
    timestamps: bytes,
    columns: Sequence[tuple[bytes, bytes]],
    bitmap: bytes | bytearray,
    producer: bytes = b"",
    sequence: int = 0,
) -> bytes:
    """Return a frame made of columns that are laid out already.

    Args:
        flags: the flags of the header.
        rows: the number of rows.
        first_offset: the first row's offset.
        timestamps: the ts column.
        columns: offsets and data of keys, heads and bodies.
        bitmap: a bit for each row that is whole; empty where the flag is not set.
        producer: id of an idempotent producer, at most 255 bytes.
        sequence: that producer's sequence.

    Raises:
        FrameError: the frame is too large.
    """
    parts: list[bytes | bytearray] = [producer, _pad(_HEADER.size + len(producer)), timestamps]
    for index, data in columns:
        parts += (index, _pad(len(index)), data, _pad(len(data)))
    parts.append(bitmap)
    rest = b"".join(parts)
    size = _HEADER.size + len(rest)
    if size > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {size} bytes is above the limit of {MAX_FRAME_BYTES}")
    start = _START.pack(MAGIC, flags, len(producer), 0, rows, size, first_offset)
    tail = sequence.to_bytes(8, "little") + rest
    return b"".join((start, _CRC.pack(zlib.crc32(tail, zlib.crc32(start))), tail))


def _crc_of(data: bytes | bytearray | memoryview) -> int:
    """Return the checksum that a frame of these bytes should have, by its version."""
    view = memoryview(data)
    before = 0 if view[:4] == _FIRST_MAGIC else zlib.crc32(view[:_CRC_AT])
    return zlib.crc32(view[_CRC_AT + 4 :], before)


def frame_head(start: bytes | memoryview) -> tuple[int, int, int, int]:
    """Return the first offset, rows, size and flags of the frame that starts with these bytes, unchecked.

    Args:
        start: at least the first 36 bytes.

    Raises:
        FrameError: no frame starts so.
    """
    if len(start) < _HEADER.size:
        raise FrameError(f"{len(start)} bytes are too short for a frame")
    magic, flags, _, _, rows, size, first = _START.unpack_from(start)
    if magic not in (MAGIC, _FIRST_MAGIC):
        raise FrameError(f"not a frame: it starts with {bytes(magic)!r}")
    return first, rows, size, flags


def check_frame(data: bytes | memoryview, first_offset: int) -> None:
    """Check that these bytes are the frame that was written at an offset; reads each byte once.

    Args:
        data: the bytes that should be exactly one frame.
        first_offset: the offset that its key says.

    Raises:
        FrameError: they are not.
    """
    first, _, size, _ = frame_head(data)
    if size != len(data):
        raise FrameError(f"a frame of {size} bytes came as {len(data)}")
    if _crc_of(data) != _CRC.unpack_from(data, _CRC_AT)[0]:
        raise FrameError(f"the frame at offset {first_offset} has a wrong checksum")
    if first != first_offset:
        raise FrameError(f"the frame at offset {first_offset} says that it belongs at {first}")


class Frame:
    """A view over one frame's bytes; columns are found, rows are cut only when asked for.

    Args:
        data: exactly one frame.
        verify: whether to check the checksum; false only for bytes this process made or checked.

    Raises:
        FrameError: the bytes are no frame, or not the ones that were written.
    """

    __slots__ = ("_flags", "bodies", "data", "first_offset", "heads", "keys", "producer", "rows", "sequence",
                 "ts_at", "whole_at")  # fmt: skip

    def __init__(self, data: bytes, *, verify: bool = True) -> None:
        if len(data) < _HEADER.size:
            raise FrameError(f"{len(data)} bytes are too short for a frame")
        magic, flags, producer_bytes, _, rows, size, first, crc, sequence = _HEADER.unpack_from(data)
        if magic not in (MAGIC, _FIRST_MAGIC):
            raise FrameError(f"not a frame: it starts with {bytes(magic)!r}")
        if size != len(data):
            raise FrameError(f"a frame of {size} bytes came as {len(data)}")
        if verify and _crc_of(data) != crc:
            raise FrameError(f"the frame at offset {first} has a wrong checksum")
        self.data = data
        self.rows: int = rows
        self.first_offset: int = first
        self.sequence: int = sequence
        self._flags: int = flags
        at = _HEADER.size
        self.producer = bytes(data[at : at + producer_bytes])
        at += producer_bytes
        at += -at & 7
        self.ts_at = at
        at += rows * 8
        columns = []
        for _ in range(3):
            index = at
            at += (rows + 1) * 4
            if at > size:
                raise FrameError("a frame's columns do not fit into it")
            (length,) = struct.unpack_from("<i", data, at - 4)
            at += -at & 7
            if length < 0 or at + length > size:
                raise FrameError("a frame's columns do not fit into it")
            columns.append(Column(index, at, at + length))
            at += length
            at += -at & 7
        self.keys, self.heads, self.bodies = columns
        self.whole_at = at if flags & FLAG_WHOLE else 0
        if self.whole_at and at + ((rows + 7) >> 3) > size:
            raise FrameError("a frame's bitmap does not fit into it")

    @property
    def next_offset(self) -> int:
        """The offset after the last row's."""
        return self.first_offset + self.rows

    @property
    def has_whole(self) -> bool:
        """True if any row's message lies whole in ``head``."""
        return bool(self._flags & FLAG_WHOLE)

    @property
    def is_volatile(self) -> bool:
        """True if a restart forgets these messages."""
        return bool(self._flags & FLAG_VOLATILE)

    def is_whole(self, row: int) -> bool:
        """Return whether this row's message lies whole in ``head``."""
        return bool(self.whole_at) and bool(self.data[self.whole_at + (row >> 3)] >> (row & 7) & 1)

    def timestamps(self) -> array[int]:
        """Return every row's acceptance time in microseconds UTC."""
        values = array("q")
        values.frombytes(self.data[self.ts_at : self.ts_at + 8 * self.rows])
        return values

    def cells(self, column: Column) -> list[bytes]:
        """Return every row of one column, cut out."""
        index = array("i")
        index.frombytes(self.data[column.offsets_at : column.offsets_at + 4 * (self.rows + 1)])
        data, at, end = self.data, column.data_at, column.data_end
        previous = 0
        for position in index:
            if position < previous or at + position > end:
                raise FrameError("a frame's offsets are out of order")
            previous = position
        return [bytes(data[at + a : at + b]) for a, b in pairwise(index)]

    def check_columns(self) -> None:
        """Check that every row can be cut; for frames that another process made.

        Raises:
            FrameError: a column's offsets are out of order.
        """
        for column in (self.keys, self.heads, self.bodies):
            index = array("i")
            index.frombytes(self.data[column.offsets_at : column.offsets_at + 4 * (self.rows + 1)])
            if index[0] != 0 or any(map(gt, index, index[1:])):
                raise FrameError("a frame's offsets are out of order")

    def cell(self, column: Column, row: int) -> bytes:
        """Return one row of one column, cut out."""
        begin, end = struct.unpack_from("<2i", self.data, column.offsets_at + 4 * row)
        if not 0 <= begin <= end <= column.data_end - column.data_at:
            raise FrameError("a frame's offsets are out of order")
        return bytes(self.data[column.data_at + begin : column.data_at + end])

    def payload(self, row: int) -> bytes:
        """Return one row's message, as its AMQP sections."""
        return self.cell(self.heads, row) + self.cell(self.bodies, row)

    def payloads(self) -> list[bytes]:
        """Return every row's message, as its AMQP sections."""
        heads, bodies = self.cells(self.heads), self.cells(self.bodies)
        return [head + body for head, body in zip(heads, bodies, strict=True)]


def restamp_frame(frame: Frame, first_offset: int, timestamp: int) -> bytes:
    """Return the same frame, as it is written now and not volatile, with the offset and time that its log gives it.

    Args:
        frame: a frame that a sender made.
        first_offset: the first row's offset.
        timestamp: microseconds since 1970 UTC, for every row.
    """
    data = bytearray(frame.data)
    data[:4] = MAGIC
    data[4] &= FLAG_WHOLE
    data[frame.ts_at : frame.ts_at + 8 * frame.rows] = array("q", [timestamp]).tobytes() * frame.rows
    _FIRST.pack_into(data, _FIRST_AT, first_offset)
    _CRC.pack_into(data, _CRC_AT, _crc_of(data))
    return bytes(data)


_U32 = struct.Struct(">I")


def _end_of_value(data: bytes, at: int) -> int:
    """Return the end of the value whose constructor stands at ``at`` (no described values)."""
    code = data[at]
    width = code >> 4
    if width == 4:
        return at + 1
    if width <= 9:
        return at + 1 + (0, 0, 0, 0, 0, 1, 2, 4, 8, 16)[width]
    if width in (0xA, 0xC, 0xE):
        return at + 2 + data[at + 1]
    end: int = at + 5 + _U32.unpack_from(data, at + 1)[0]
    return end


def split_payload(payload: bytes) -> tuple[bytes, bytes, bool]:
    """Cut a message into (head, body, whole) as frames keep it.

    A message that consists of one data section, or one amqp-value of binary or string, after its
    other sections is cut before the content. Any other lies whole in head, with an empty body; so does one
    whose sections are out of order.
    """
    at = 0
    last = 0x6F
    size = len(payload)
    try:
        while at < size:
            if payload[at] != 0 or payload[at + 1] != 0x53:
                break
            section = payload[at + 2]
            if section in (0x75, 0x77):
                code = payload[at + 3]
                if code == 0xA0 or (section == 0x77 and code == 0xA1):
                    begin = at + 5
                    end = begin + payload[at + 4]
                elif code == 0xB0 or (section == 0x77 and code == 0xB1):
                    begin = at + 8
                    end = begin + _U32.unpack_from(payload, at + 4)[0]
                else:
                    break
                if end != size:
                    break
                return payload[:begin], payload[begin:], False
            if not last < section <= 0x74:
                break
            last = section
            at = _end_of_value(payload, at + 3)
    except (IndexError, struct.error):
        pass
    return payload, b"", True
