"""Merging frames: the same rows in fewer frames, and nothing that does not belong together."""

from __future__ import annotations

import zlib
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from enmasse.messaging.log.frame import Frame, encode_frame
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.log.merge import (
    MERGE_BYTES,
    MERGE_FRAMES,
    merge_frames,
    merge_operation,
    merge_range,
    plan_merge,
    time_key,
)
from enmasse.messaging.storage import Table

CELLS = st.binary(max_size=20)
ROW = st.tuples(st.integers(0, 2**62), CELLS, CELLS, CELLS, st.booleans())
ROWS = st.lists(ROW, min_size=1, max_size=12)
Rows = list[tuple[int, bytes, bytes, bytes, bool]]


def encode(first: int, rows: Rows, *, volatile: bool = False, producer: bytes = b"") -> bytes:
    return encode_frame(
        first,
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        [row[3] for row in rows],
        whole=[index for index, row in enumerate(rows) if row[4]],
        volatile=volatile,
        producer=producer,
    )


def as_first_version(data: bytes) -> bytes:
    return b"EMF1" + data[4:24] + zlib.crc32(data[28:]).to_bytes(4, "little") + data[28:]


def rows_of(data: bytes) -> dict[int, tuple[int, bytes, bytes, bytes, bool]]:
    frame = Frame(data)
    cells = zip(
        frame.timestamps(),
        frame.cells(frame.keys),
        frame.cells(frame.heads),
        frame.cells(frame.bodies),
        strict=True,
    )
    return {frame.first_offset + row: (*found, frame.is_whole(row)) for row, found in enumerate(cells)}


def records(*frames: bytes) -> list[tuple[bytes, bytes]]:
    return [(log_key(1, 0, Frame(data, verify=False).first_offset), data) for data in frames]


def carry_out(before: list[tuple[bytes, bytes]], **options: object) -> dict[bytes, bytes]:
    after = dict(before)
    for table, key, value in plan_merge(before, **options):  # type: ignore[arg-type]
        if table is Table.FRAME:
            if value is None:
                del after[key]
            else:
                after[key] = value
    return after


@given(st.integers(0, 2**40), st.lists(st.tuples(ROWS, st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_merged_rows_are_the_same_rows(first: int, parts: list[tuple[Rows, bool, bool]]) -> None:
    frames = []
    offset = first
    for rows, has_producer, is_old in parts:
        data = encode(offset, rows, producer=b"p" if has_producer else b"")
        frames.append(as_first_version(data) if is_old else data)
        offset += len(rows)
    merged = merge_frames([Frame(data) for data in frames])
    assert rows_of(merged) == {offset: row for data in frames for offset, row in rows_of(data).items()}
    found = Frame(merged)
    assert (found.first_offset, found.next_offset, found.producer) == (first, offset, b"")


@given(st.lists(st.tuples(ROWS, st.integers(0, 2), st.booleans(), st.booleans()), min_size=1, max_size=10))
def test_whatever_lies_there_no_row_is_lost_moved_or_mixed(parts: list[tuple[Rows, int, bool, bool]]) -> None:
    frames = []
    pointed = set()
    offset = 0
    for rows, gap, volatile, is_pointed in parts:
        offset += gap
        frames.append(encode(offset, rows, volatile=volatile))
        if is_pointed:
            pointed.add(log_key(1, 0, offset))
        offset += len(rows)
    before = records(*frames)
    after = carry_out(before, is_pointed_into=pointed.__contains__)
    assert {at: row for data in after.values() for at, row in rows_of(data).items()} == {
        at: row for data in frames for at, row in rows_of(data).items()
    }
    assert all(Frame(data).first_offset == int.from_bytes(key[8:], "big") for key, data in after.items())
    assert pointed <= after.keys()
    volatile_before = {at for _, data in before for at in rows_of(data) if Frame(data).is_volatile}
    volatile_after = {at for data in after.values() for at in rows_of(data) if Frame(data).is_volatile}
    assert volatile_after == volatile_before
    left = sorted(Frame(data).first_offset for data in after.values())
    frames_left = [Frame(after[log_key(1, 0, at)]) for at in left]
    for one, other in pairwise(frames_left):
        assert (
            one.next_offset != other.first_offset
            or one.is_volatile != other.is_volatile
            or log_key(1, 0, other.first_offset) in pointed
        )


def test_entries_of_the_time_index_go_with_their_frames() -> None:
    frames = [encode(at, [(1000 + at, b"", b"", b"", False)]) for at in range(3)]
    gone = [key for table, key, value in plan_merge(records(*frames)) if table is Table.TIME and value is None]
    assert gone == [time_key(log_key(1, 0, at), 1000 + at) for at in (1, 2)]


def test_a_damaged_frame_stays_and_ends_the_run() -> None:
    frames = [encode(at, [(0, b"", b"", b"body", False)]) for at in range(5)]
    damaged = frames[2][:-3] + b"???"
    after = carry_out(records(frames[0], frames[1], damaged, frames[3], frames[4]))
    assert sorted(after) == [log_key(1, 0, at) for at in (0, 2, 3)]
    assert after[log_key(1, 0, 2)] == damaged


def test_a_frame_under_a_wrong_key_stays() -> None:
    before = [(log_key(1, 0, at), encode(at + (at == 1), [(0, b"", b"", b"", False)])) for at in range(2)]
    assert carry_out(before) == dict(before)


def test_one_step_takes_so_many_frames_and_bytes_and_no_more() -> None:
    small = [encode(at, [(0, b"", b"", b"", False)]) for at in range(MERGE_FRAMES + 3)]
    assert len(carry_out(records(*small))) == 4
    large = [encode(at, [(0, b"", b"", b"x" * (MERGE_BYTES // 2 - 500), False)]) for at in range(4)]
    assert len(carry_out(records(*large))) == 3
    assert len(carry_out(records(encode(0, [(0, b"", b"", b"x" * MERGE_BYTES, False)]), *large[1:]))) == 4


def test_an_instruction_names_a_range_of_one_partition() -> None:
    operation = merge_operation(log_key(3, 2, 10), 50)
    assert operation.table is Table.MERGE
    assert merge_range(operation.key, operation.value) == (log_key(3, 2, 10), log_key(3, 2, 50))
    assert merge_range(b"short", operation.value) is None
    assert merge_range(operation.key, b"") is None
    assert merge_range(operation.key, None) is None
