"""What every implementation of the storage port must do, as checks that any test may run.

    @pytest.mark.parametrize("check", STORAGE_CHECKS, ids=lambda check: check.__name__)
    def test_my_storage(check):
        asyncio.run(check(MyHarness()))

A check fails with ``AssertionError``. Each one wants a fresh harness over an empty storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from enmasse.errors import LocalError
from enmasse.messaging.storage import Operation, Table
from enmasse.testing.frames_contract import FRAMES_CHECKS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from enmasse.messaging.storage import Storage
    from enmasse.testing.memory_storage import RecordingListener

__all__ = ["STORAGE_CHECKS", "StorageHarness"]


class StorageHarness(Protocol):
    """How a check handles the storage it is given."""

    @property
    def storage(self) -> Storage:
        """The storage, started; another object after ``reopen``."""

    @property
    def listener(self) -> RecordingListener:
        """What the storage answers to; a new one after ``reopen``."""

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
    """Submit returns before anything is heard."""
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
    heard = listener.on_committed
    submitted: list[int] = []

    def submit_once(number: int) -> None:
        if not submitted:
            submitted.append(storage.submit([_put(b"second", b"v")]))
        heard(number)

    listener.on_committed = submit_once  # type: ignore[method-assign]
    first = storage.submit([_put(b"first", b"v")])
    await harness.settle()
    await harness.settle()
    assert submitted == [first + 1]
    assert listener.committed == first + 1
    assert storage.get(Table.FRAME, b"second") == b"v"


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
    *FRAMES_CHECKS,
)
"""Every check of the contract."""
