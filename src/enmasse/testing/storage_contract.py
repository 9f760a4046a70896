"""Checks that every implementation of the storage port must pass; any test may run them.

    @pytest.mark.parametrize("check", STORAGE_CHECKS, ids=lambda check: check.__name__)
    def test_my_storage(check):
        asyncio.run(check(MyHarness()))

A check fails with ``AssertionError``. Each one wants a fresh harness over an empty storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from enmasse.errors import LocalError
from enmasse.messaging.log.frame import Frame, encode_frame
from enmasse.messaging.log.merge import MERGE_BYTES, MERGE_FRAMES, merge_operation, time_key
from enmasse.messaging.storage import Operation, Table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from enmasse.messaging.storage import Storage
    from enmasse.testing.memory_storage import RecordingListener

__all__ = ["STORAGE_CHECKS", "StorageHarness"]


class StorageHarness(Protocol):
    """The handle by which a check uses its storage."""

    @property
    def storage(self) -> Storage:
        """The storage, started; another object after ``reopen``."""

    @property
    def listener(self) -> RecordingListener:
        """The listener of the storage; a new one after ``reopen``."""

    async def settle(self) -> None:
        """Return when every batch and every read that was asked for before is answered."""

    async def reopen(self) -> None:
        """Stop the storage in order and start another over the same data."""


def _put(key: bytes, value: bytes, table: Table = Table.FRAME) -> Operation:
    return Operation(table, key, value)


def _delete(key: bytes, table: Table = Table.FRAME) -> Operation:
    return Operation(table, key, None)


async def check_batches_are_numbered_without_gaps(harness: StorageHarness) -> None:
    """Each number is one above the last."""
    numbers = [harness.storage.submit([_put(b"%d" % i, b"v")]) for i in range(5)]
    assert numbers == list(range(numbers[0], numbers[0] + 5))
    await harness.settle()
    assert harness.storage.submit([]) == numbers[-1] + 1
    await harness.settle()


async def check_no_answer_comes_from_within_submit(harness: StorageHarness) -> None:
    """Submit returns before the listener is called."""
    for i in range(100):
        harness.storage.submit([_put(b"%d" % i, b"v" * 1000)])
        assert harness.listener.answers == []
    await harness.settle()
    assert harness.listener.committed == 100


async def check_every_batch_is_answered_in_order(harness: StorageHarness) -> None:
    """Committed numbers rise and reach the last batch, empty ones included."""
    last = 0
    for i in range(50):
        last = harness.storage.submit([_put(b"%d" % i, b"v")] if i % 3 else [])
    await harness.settle()
    numbers = [number for number, _ in harness.listener.answers]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == last
    assert harness.listener.failed == {}


async def check_reads_see_a_batch_whole_or_not_at_all(harness: StorageHarness) -> None:
    """Whenever they come; and whole once it is answered."""
    storage = harness.storage
    for i in range(20):
        value = b"%d" % i
        storage.submit([_put(b"a", value), _put(b"z", value)])
        seen = [found for _, found in storage.scan(Table.FRAME, b"", b"\xff", 1 << 20)]
        assert len(seen) in {0, 2}
        assert len(set(seen)) < 2
    await harness.settle()
    assert list(storage.scan_all(Table.FRAME)) == [(b"a", b"19"), (b"z", b"19")]


async def check_a_later_operation_on_a_record_wins(harness: StorageHarness) -> None:
    """Within a batch and across batches."""
    storage = harness.storage
    storage.submit([_put(b"a", b"1"), _put(b"a", b"2"), _put(b"b", b"1"), _delete(b"b")])
    storage.submit([_put(b"c", b"1")])
    storage.submit([_delete(b"c"), _put(b"c", b"2"), _delete(b"never there")])
    await harness.settle()
    assert list(storage.scan_all(Table.FRAME)) == [(b"a", b"2"), (b"c", b"2")]
    assert storage.get(Table.FRAME, b"b") is None


async def check_values_of_every_size_come_back(harness: StorageHarness) -> None:
    """From nothing to several mebibytes; any bytes in keys of up to 400 bytes."""
    values = {b"k%d" % size: bytes(size % 251 for _ in range(size)) for size in (0, 1, 15, 4096, 70_000)}
    values[b""] = b"the empty key"
    values[b"\xff" * 400] = b"the longest key"
    values[b"\0\xff\0"] = b"x" * (5 << 20)
    harness.storage.submit([_put(key, value) for key, value in values.items()])
    await harness.settle()
    for key, value in values.items():
        assert harness.storage.get(Table.FRAME, key) == value, key
    assert [key for key, _ in harness.storage.scan_all(Table.FRAME)] == sorted(values)


async def check_a_key_that_is_too_long_is_refused(harness: StorageHarness) -> None:
    """With nothing handed over and no number used up."""
    refusal = ""
    try:
        harness.storage.submit([_put(b"ok", b"v"), _put(b"x" * 401, b"v")])
    except LocalError as error:
        refusal = str(error)
    assert "401" in refusal
    assert harness.storage.unconfirmed_bytes == 0
    assert harness.storage.submit([]) == 1
    await harness.settle()
    assert list(harness.storage.scan_all(Table.FRAME)) == []


async def check_unconfirmed_bytes_rise_and_return_to_zero(harness: StorageHarness) -> None:
    """They cover at least the values."""
    storage = harness.storage
    assert storage.unconfirmed_bytes == 0
    for i in range(10):
        storage.submit([_put(b"%d" % i, b"v" * 10_000)])
        assert storage.unconfirmed_bytes >= (i + 1) * 10_000
    await harness.settle()
    assert storage.unconfirmed_bytes == 0


async def check_tables_do_not_see_each_other(harness: StorageHarness) -> None:
    """Not in scans, floors or deletes."""
    storage = harness.storage
    tables = [table for table in Table if table not in {Table.META, Table.MERGE}]
    storage.submit([_put(b"k", table.name.encode(), table) for table in tables])
    storage.submit([_delete(b"k", Table.MARK)])
    await harness.settle()
    for table in tables:
        expected = [] if table is Table.MARK else [(b"k", table.name.encode())]
        assert list(storage.scan_all(table)) == expected
        assert storage.scan(table, b"", b"\xff", 1 << 20) == expected
        assert storage.floor(table, b"z", b"") == (expected[0] if expected else None)
        assert storage.floor(table, b"a", b"") is None


async def check_scan_keeps_to_range_and_limit(harness: StorageHarness) -> None:
    """First inclusive, last exclusive; stops after the record that reaches the limit."""
    storage = harness.storage
    storage.submit([_put(b"%02d" % i, b"v" * 100) for i in range(20)])
    await harness.settle()

    def keys(first: bytes, last: bytes, limit: int) -> list[int]:
        return [int(key) for key, _ in storage.scan(Table.FRAME, first, last, limit)]

    assert keys(b"05", b"08", 1 << 20) == [5, 6, 7]
    assert keys(b"05", b"08", 1) == [5]
    assert keys(b"05", b"99", 200) == [5, 6]
    assert keys(b"05", b"99", 201) == [5, 6, 7]
    assert keys(b"05x", b"07", 1 << 20) == [6]
    assert keys(b"08", b"05", 1 << 20) == []
    assert keys(b"30", b"99", 1 << 20) == []


async def check_floor_finds_the_record_before(harness: StorageHarness) -> None:
    """The greatest key that is not above the one asked for, and not below the lower bound."""
    storage = harness.storage
    storage.submit([_put(key, key) for key in (b"a10", b"a20", b"b10")])
    storage.submit([_put(b"", b"before", Table.SETTLED), _put(b"zz", b"before", Table.ENTITY)])
    await harness.settle()

    def floor(key: bytes, first: bytes) -> bytes | None:
        found = storage.floor(Table.FRAME, key, first)
        assert found is None or found[0] == found[1]
        return None if found is None else found[0]

    assert floor(b"a20", b"a") == b"a20"
    assert floor(b"a19", b"a") == b"a10"
    assert floor(b"a99", b"a") == b"a20"
    assert floor(b"a05", b"a") is None
    assert floor(b"b05", b"b") is None
    assert floor(b"b05", b"a") == b"a20"
    assert floor(b"zz", b"") == b"b10"
    assert floor(b"a15", b"a15") is None


async def check_scan_all_yields_large_tables_in_order(harness: StorageHarness) -> None:
    """More than an adapter may want to read at once."""
    storage = harness.storage
    for part in range(10):
        storage.submit([_put(b"%04d" % (part * 100 + i), b"v" * 3000) for i in range(100)])
    await harness.settle()
    assert [int(key) for key, _ in storage.scan_all(Table.FRAME)] == list(range(1000))


async def check_data_survive_a_new_start(harness: StorageHarness) -> None:
    """And the next storage begins its own numbers and writes on."""
    harness.storage.submit([_put(b"a", b"1"), _put(b"b", b"1")])
    harness.storage.submit([_delete(b"b")])
    await harness.settle()
    await harness.reopen()
    assert list(harness.storage.scan_all(Table.FRAME)) == [(b"a", b"1")]
    assert harness.listener.answers == []
    assert harness.storage.submit([_put(b"c", b"1")]) == 1
    await harness.settle()
    assert list(harness.storage.scan_all(Table.FRAME)) == [(b"a", b"1"), (b"c", b"1")]


async def check_a_listener_may_submit(harness: StorageHarness) -> None:
    """From within an answer; that batch is answered later."""
    storage, listener = harness.storage, harness.listener
    on_committed = listener.on_committed
    submitted: list[int] = []

    def submit_once(number: int) -> None:
        if not submitted:
            submitted.append(storage.submit([_put(b"second", b"v")]))
        on_committed(number)

    listener.on_committed = submit_once  # type: ignore[method-assign]
    first = storage.submit([_put(b"first", b"v")])
    await harness.settle()
    await harness.settle()
    assert submitted == [first + 1]
    assert listener.committed == first + 1
    assert storage.get(Table.FRAME, b"second") == b"v"


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


STORAGE_CHECKS: tuple[Callable[[StorageHarness], Awaitable[None]], ...] = (
    check_batches_are_numbered_without_gaps,
    check_no_answer_comes_from_within_submit,
    check_every_batch_is_answered_in_order,
    check_reads_see_a_batch_whole_or_not_at_all,
    check_a_later_operation_on_a_record_wins,
    check_values_of_every_size_come_back,
    check_a_key_that_is_too_long_is_refused,
    check_unconfirmed_bytes_rise_and_return_to_zero,
    check_tables_do_not_see_each_other,
    check_scan_keeps_to_range_and_limit,
    check_floor_finds_the_record_before,
    check_scan_all_yields_large_tables_in_order,
    check_data_survive_a_new_start,
    check_a_listener_may_submit,
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
"""Every check of the contract."""
