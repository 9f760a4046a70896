"""What every implementation of the storage port must do with frames; part of ``storage_contract``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.messaging.frame import Frame, encode_frame
from enmasse.messaging.merge import MERGE_BYTES, MERGE_FRAMES, merge_operation, time_key
from enmasse.messaging.storage import Operation, Table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from enmasse.testing.storage_contract import StorageHarness

__all__ = ["FRAMES_CHECKS"]


def _put(key: bytes, value: bytes, table: Table = Table.FRAME) -> Operation:
    return Operation(table, key, value)


def _key(offset: int, partition: int = 0, log: int = 1) -> bytes:
    return log.to_bytes(4, "big") + partition.to_bytes(4, "big") + offset.to_bytes(8, "big")


def _frame(offset: int, rows: int = 1, size: int = 10, *, volatile: bool = False, producer: bytes = b"") -> bytes:
    return encode_frame(
        offset,
        [1_000_000 + row for row in range(offset, offset + rows)],
        [b"key %d" % row for row in range(offset, offset + rows)],
        [b"head %d" % row for row in range(offset, offset + rows)],
        [b"%d" % row * size for row in range(offset, offset + rows)],
        whole=[row for row in range(rows) if (offset + row) % 3 == 0],
        volatile=volatile,
        producer=producer,
        sequence=offset,
    )


def _put_frame(data: bytes, partition: int = 0) -> list[Operation]:
    frame = Frame(data)
    key = _key(frame.first_offset, partition)
    return [_put(key, data), _put(time_key(key, frame.timestamps()[0]), b"", Table.TIME)]


def _rows(data: bytes) -> list[tuple[int, int, bytes, bytes, bytes, bool]]:
    frame = Frame(data)
    return [
        (frame.first_offset + row, stamp, key, head, body, frame.is_whole(row))
        for row, (stamp, key, head, body) in enumerate(
            zip(
                frame.timestamps(),
                frame.cells(frame.keys),
                frame.cells(frame.heads),
                frame.cells(frame.bodies),
                strict=True,
            )
        )
    ]


class _Reads:
    """Remembers what ``fetch`` found."""

    def __init__(self) -> None:
        self.found: list[tuple[list[tuple[bytes, bytes]], list[bytes]]] = []

    def __call__(self, records: list[tuple[bytes, bytes]], damaged: list[bytes]) -> None:
        self.found.append((records, damaged))


async def check_fetch_reads_as_scan_does(harness: StorageHarness) -> None:
    """The same records, frames and others, by the same limit, and nothing of other tables."""
    storage = harness.storage
    storage.submit([operation for offset in range(20) for operation in _put_frame(_frame(offset, size=100))])
    storage.submit([_put(b"%02d" % i, b"v" * 100, Table.PRODUCER) for i in range(20)])
    await harness.settle()
    for table, first, last, limit in (
        (Table.FRAME, b"", b"\xff", 1 << 20),
        (Table.FRAME, _key(5), _key(8), 1 << 20),
        (Table.FRAME, _key(5), _key(19), 1),
        (Table.FRAME, _key(5), _key(19), 700),
        (Table.FRAME, _key(30), _key(40), 1 << 20),
        (Table.PRODUCER, b"05", b"99", 201),
        (Table.PRODUCER, b"08", b"05", 1 << 20),
        (Table.MARK, b"", b"\xff", 1 << 20),
    ):
        reads = _Reads()
        storage.fetch(table, first, last, limit, reads)
        await harness.settle()
        assert reads.found == [(storage.scan(table, first, last, limit), [])], (table, first, last, limit)


async def check_fetch_answers_each_read_once_and_later(harness: StorageHarness) -> None:
    """Never from within, however many are under way, also one that an answer asks for."""
    storage = harness.storage
    storage.submit([operation for offset in range(50) for operation in _put_frame(_frame(offset))])
    await harness.settle()
    reads, second = _Reads(), _Reads()
    asked: list[int] = []

    def ask_again(records: list[tuple[bytes, bytes]], damaged: list[bytes]) -> None:
        assert not damaged
        asked.append(len(records))
        storage.fetch(Table.FRAME, _key(0), _key(1), 1, second)
        assert second.found == []

    for offset in range(50):
        storage.fetch(Table.FRAME, _key(offset), _key(offset + 1), 1, reads)
        assert reads.found == []
    storage.fetch(Table.FRAME, b"", b"\xff", 1 << 20, ask_again)
    await harness.settle()
    await harness.settle()
    assert [found for found, _ in reads.found] == [[(_key(offset), _frame(offset))] for offset in range(50)]
    assert asked == [50]
    assert second.found == [([(_key(0), _frame(0))], [])]


async def check_fetch_sees_what_was_committed_before_it(harness: StorageHarness) -> None:
    """And at most what is committed when it answers."""
    storage = harness.storage
    storage.submit(_put_frame(_frame(0)))
    await harness.settle()
    reads = _Reads()
    storage.fetch(Table.FRAME, b"", b"\xff", 1 << 20, reads)
    storage.submit(_put_frame(_frame(1)))
    await harness.settle()
    await harness.settle()
    ((records, damaged),) = reads.found
    assert damaged == []
    assert records in ([(_key(0), _frame(0))], [(_key(0), _frame(0)), (_key(1), _frame(1))])


async def check_fetch_leaves_out_damaged_frames(harness: StorageHarness) -> None:
    """And names them; the sound ones around them come."""
    storage = harness.storage
    flipped = bytearray(_frame(1, size=5000))
    flipped[len(flipped) // 2] ^= 1
    values = [_frame(0, size=5000), bytes(flipped), _frame(2), b"no frame at all", _frame(7), _frame(5)]
    storage.submit([_put(_key(offset), value) for offset, value in enumerate(values)])
    await harness.settle()
    reads = _Reads()
    storage.fetch(Table.FRAME, _key(0), _key(9), 1 << 20, reads)
    storage.fetch(Table.FRAME, _key(1), _key(9), 1, reads)
    await harness.settle()
    assert reads.found == [
        ([(_key(offset), values[offset]) for offset in (0, 2, 5)], [_key(1), _key(3), _key(4)]),
        ([], [_key(1)]),
    ]


async def check_heads_tell_what_lies_there(harness: StorageHarness) -> None:
    """Key, first 64 bytes and length, in key order, within the range, of one table."""
    storage = harness.storage
    values = {b"%05d" % i: b"%d" % i * (i % 90) for i in range(3000)}
    values[b"10000"] = b"x" * (3 << 20)
    storage.submit([_put(key, value) for key, value in values.items()])
    storage.submit([_put(b"00001", b"", Table.SETTLED)])
    await harness.settle()
    expected = [(key, value[:64], len(value)) for key, value in sorted(values.items())]
    found = [(bytes(key), bytes(start), size) for key, start, size in storage.heads(Table.FRAME, b"", b"\xff")]
    assert found == expected
    assert [item[0] for item in storage.heads(Table.FRAME, b"00005", b"00008")] == [b"00005", b"00006", b"00007"]
    assert list(storage.heads(Table.MARK, b"", b"\xff")) == []


async def check_merge_makes_one_frame_of_adjacent_ones(harness: StorageHarness) -> None:
    """Rows stay what and where they were; of the time index the first entry stays; producers go."""
    storage = harness.storage
    frames = [_frame(0, 5), _frame(5), _frame(6, 100, producer=b"p"), _frame(106, 9)]
    for data in (*frames, _frame(115)):
        storage.submit(_put_frame(data))
    storage.submit(_put_frame(_frame(0, 3), partition=1))
    storage.submit([merge_operation(_key(0), 115)])
    await harness.settle()
    merged, rest = storage.scan(Table.FRAME, _key(0), _key(0, 1), 1 << 20)
    assert merged[0] == _key(0)
    assert _rows(merged[1]) == [row for data in frames for row in _rows(data)]
    assert (Frame(merged[1]).producer, Frame(merged[1]).is_volatile) == (b"", False)
    assert rest == (_key(115), _frame(115))
    assert [key for key, _ in storage.scan_all(Table.TIME)] == [
        time_key(_key(0), 1_000_000),
        time_key(_key(115), 1_000_115),
        time_key(_key(0, 1), 1_000_000),
    ]
    assert list(storage.scan_all(Table.MERGE)) == []


async def check_merge_leaves_apart_what_does_not_belong_together(harness: StorageHarness) -> None:
    """Gaps, other volatility, damage, and frames that settled ranges or failed deliveries point into."""
    storage = harness.storage
    damaged = bytearray(_frame(6))
    damaged[-1] ^= 1
    apart = [
        _frame(0), _frame(1), _frame(3), _frame(4, volatile=True), _frame(5, volatile=True), bytes(damaged),
        _frame(7), _frame(8), _frame(9), _frame(10),
    ]  # fmt: skip
    storage.submit([_put(_key(Frame(data, verify=False).first_offset), data) for data in apart])
    storage.submit([_put(_key(7), b"s", Table.SETTLED), _put(_key(9), b"s", Table.SETTLED)])
    storage.submit([_put(_key(10), b"a", Table.ATTEMPTS)])
    storage.submit([merge_operation(_key(0), 100)])
    await harness.settle()
    found = storage.scan(Table.FRAME, _key(0), _key(100), 1 << 20)
    assert [int.from_bytes(key[-8:], "big") for key, _ in found] == [0, 3, 4, 6, 7, 9, 10]
    frames = {int.from_bytes(key[-8:], "big"): Frame(data, verify=False) for key, data in found}
    assert {offset: frame.rows for offset, frame in frames.items()} == {0: 2, 3: 1, 4: 2, 6: 1, 7: 2, 9: 1, 10: 1}
    assert [offset for offset, frame in frames.items() if frame.is_volatile] == [4]
    assert found[3] == (_key(6), bytes(damaged))


async def check_merge_is_bounded(harness: StorageHarness) -> None:
    """By frames and by bytes; what is left can be merged by the next instruction."""
    storage = harness.storage
    storage.submit([operation for offset in range(100) for operation in _put_frame(_frame(offset))])
    sizes = MERGE_BYTES // 4
    big = [encode_frame(offset, [0], [b""], [b""], [b"x" * sizes]) for offset in range(6)]
    storage.submit([operation for data in big for operation in _put_frame(data, partition=1)])
    storage.submit([merge_operation(_key(0), 100), merge_operation(_key(0, 1), 100)])
    await harness.settle()
    keys = [key for key, _ in storage.scan(Table.FRAME, _key(0), _key(0, 1), 1 << 20)]
    assert keys == [_key(0), *(_key(offset) for offset in range(MERGE_FRAMES, 100))]
    keys = [key for key, _ in storage.scan(Table.FRAME, _key(0, 1), _key(0, 2), 1 << 30)]
    assert keys == [_key(0, 1), _key(3, 1), _key(4, 1), _key(5, 1)]
    storage.submit([merge_operation(_key(MERGE_FRAMES), 100)])
    await harness.settle()
    keys = [key for key, _ in storage.scan(Table.FRAME, _key(0), _key(0, 1), 1 << 20)]
    assert keys == [_key(0), _key(MERGE_FRAMES)]


async def check_merge_follows_what_its_batch_did_before(harness: StorageHarness) -> None:
    """Frames of the same batch merge; what comes after the instruction does not; nothing there is no error."""
    storage = harness.storage
    storage.submit([merge_operation(_key(50), 60)])
    storage.submit(
        [
            *_put_frame(_frame(0)),
            *_put_frame(_frame(1)),
            merge_operation(_key(0), 10),
            *_put_frame(_frame(2)),
        ]
    )
    storage.submit([_put(b"after", b"v", Table.SETTLED)])
    await harness.settle()
    found = storage.scan(Table.FRAME, _key(0), _key(100), 1 << 20)
    assert [(key, Frame(data).rows) for key, data in found] == [(_key(0), 2), (_key(2), 1)]
    assert harness.listener.failed == {}
    await harness.reopen()
    assert harness.storage.scan(Table.FRAME, _key(0), _key(100), 1 << 20) == found


FRAMES_CHECKS: tuple[Callable[[StorageHarness], Awaitable[None]], ...] = (
    check_fetch_reads_as_scan_does,
    check_fetch_answers_each_read_once_and_later,
    check_fetch_sees_what_was_committed_before_it,
    check_fetch_leaves_out_damaged_frames,
    check_heads_tell_what_lies_there,
    check_merge_makes_one_frame_of_adjacent_ones,
    check_merge_leaves_apart_what_does_not_belong_together,
    check_merge_is_bounded,
    check_merge_follows_what_its_batch_did_before,
)
"""Every check of frames."""
