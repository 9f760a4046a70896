"""Making one frame of several small ones, as ``Table.MERGE`` asks a storage to.

Rules:
1. Only adjacent frames of equal volatility merge; rows keep offset, time, key, head, body and whole bit.
2. A merged frame has no producer: sequences are remembered in ``Table.PRODUCER``.
3. A frame that is damaged, or that other records point into (settled ranges, failed deliveries), stays as
   it is and ends a run; the first frame of a run may be pointed into, as its rows stay where they are.
4. One instruction takes at most ``MERGE_FRAMES`` frames and ``MERGE_BYTES`` bytes. What is above stays.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate

from enmasse.messaging.log.frame import FLAG_VOLATILE, FLAG_WHOLE, Column, Frame, FrameError, seal_frame
from enmasse.messaging.storage import Operation, Table

MERGE_FRAMES = 64
MERGE_BYTES = 1 << 20
"""A step that the commit of a batch waits for: a few milliseconds at most."""

_KEY_BYTES = 16
_PREFIX_BYTES = 8


def merge_operation(first_key: bytes, end: int) -> Operation:
    """Return the instruction to merge what lies from a frame's key on and begins below an offset.

    Args:
        first_key: the key of a frame, as ``log_key`` makes it.
        end: the offset below which the last frame begins.
    """
    return Operation(Table.MERGE, first_key, end.to_bytes(8, "big"))


def merge_range(key: bytes, value: bytes | memoryview | None) -> tuple[bytes, bytes] | None:
    """Return first and last key (exclusive) of the frames that an instruction means; ``None`` if it is none."""
    if len(key) != _KEY_BYTES or value is None or len(value) != 8:
        return None
    return key, key[:_PREFIX_BYTES] + bytes(value)


def time_key(frame_key: bytes, timestamp: int) -> bytes:
    """Return the key in ``Table.TIME`` of a frame.

    Args:
        frame_key: the frame's own key.
        timestamp: its first row's, in microseconds.
    """
    return frame_key[:_PREFIX_BYTES] + (timestamp & (1 << 64) - 1).to_bytes(8, "big") + frame_key[_PREFIX_BYTES:]


def plan_merge(
    records: Sequence[tuple[bytes, bytes]], is_pointed_into: Callable[[bytes], bool] = lambda _key: False
) -> list[Operation]:
    """Return the changes that make as few frames as possible of a range of them.

    Args:
        records: keys and bytes of the range's frames, in order.
        is_pointed_into: whether other records refer to the frame of this key.
    """
    operations: list[Operation] = []
    run: list[tuple[bytes, Frame]] = []
    for key, data in _bounded(records):
        frame = _sound(key, data)
        if run and (frame is None or not _continues(run[-1][1], frame) or is_pointed_into(key)):
            operations += _merge_run(run)
            run = []
        if frame is not None:
            run.append((key, frame))
    operations += _merge_run(run)
    return operations


def _bounded(records: Sequence[tuple[bytes, bytes]]) -> Sequence[tuple[bytes, bytes]]:
    sizes = accumulate(len(data) for _, data in records)
    count = sum(1 for size in sizes if size <= MERGE_BYTES)
    return records[: min(count, MERGE_FRAMES)]


def _sound(key: bytes, data: bytes) -> Frame | None:
    try:
        frame = Frame(data)
        frame.check_columns()
    except FrameError:
        return None
    return frame if frame.rows and frame.first_offset.to_bytes(8, "big") == key[_PREFIX_BYTES:] else None


def _continues(before: Frame, frame: Frame) -> bool:
    return before.next_offset == frame.first_offset and before.is_volatile == frame.is_volatile


def _merge_run(run: list[tuple[bytes, Frame]]) -> list[Operation]:
    if len(run) < 2:
        return []
    operations = [Operation(Table.FRAME, run[0][0], merge_frames([frame for _, frame in run]))]
    for key, frame in run[1:]:
        (timestamp,) = struct.unpack_from("<q", frame.data, frame.ts_at)
        operations.append(Operation(Table.FRAME, key, None))
        operations.append(Operation(Table.TIME, time_key(key, timestamp), None))
    return operations


def merge_frames(frames: Sequence[Frame]) -> bytes:
    """Return one frame with the rows of several, without a producer.

    Args:
        frames: at least one; each begins where the one before ends, and all are as volatile as the first.

    Raises:
        FrameError: the columns are too large for one frame.
    """
    rows = 0
    bitmap = 0
    for frame in frames:
        if frame.whole_at:
            bits = frame.data[frame.whole_at : frame.whole_at + ((frame.rows + 7) >> 3)]
            bitmap |= (int.from_bytes(bits, "little") & (1 << frame.rows) - 1) << rows
        rows += frame.rows
    ts = b"".join([frame.data[frame.ts_at : frame.ts_at + 8 * frame.rows] for frame in frames])
    columns = [
        _join([(frame, frame.keys) for frame in frames]),
        _join([(frame, frame.heads) for frame in frames]),
        _join([(frame, frame.bodies) for frame in frames]),
    ]
    whole = bitmap.to_bytes((rows + 7) >> 3, "little") if bitmap else b""
    flags = (FLAG_VOLATILE if frames[0].is_volatile else 0) | (FLAG_WHOLE if bitmap else 0)
    return seal_frame(flags, rows, frames[0].first_offset, ts, columns, whole)


def _join(cells: list[tuple[Frame, Column]]) -> tuple[bytes, bytes]:
    """Return offsets and data of one column."""
    offsets = array("i", [0])
    base = 0
    parts: list[bytes] = []
    for frame, column in cells:
        data = frame.data
        index = memoryview(data)[column.offsets_at + 4 : column.offsets_at + 4 * (frame.rows + 1)]
        if base:
            offsets.extend([base + at for at in index.cast("i")])
        else:
            offsets.frombytes(index)
        base = offsets[-1]
        parts.append(data[column.data_at : column.data_end])
    return offsets.tobytes(), b"".join(parts)
