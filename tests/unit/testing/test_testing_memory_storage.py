"""The storage in memory: commits, failures and crashes when the test says so."""

from __future__ import annotations

import pytest

from enmasse.errors import LocalError
from enmasse.messaging.storage import Operation, Table
from enmasse.testing.memory_storage import MemoryStorage, RecordingListener


def put(key: bytes) -> Operation:
    return Operation(Table.FRAME, key, b"v")


def made(batches: int) -> tuple[MemoryStorage, RecordingListener]:
    listener = RecordingListener()
    storage = MemoryStorage(listener)
    for i in range(1, batches + 1):
        assert storage.submit([put(b"%d" % i)]) == i
    return storage, listener


def keys(storage: MemoryStorage) -> list[bytes]:
    return [key for key, _ in storage.scan_all(Table.FRAME)]


def test_nothing_is_read_before_the_commit() -> None:
    storage, listener = made(1)
    assert storage.get(Table.FRAME, b"1") is None
    assert listener.answers == []
    storage.commit()
    assert storage.get(Table.FRAME, b"1") == b"v"
    assert listener.answers == [(1, None)]


def test_a_commit_through_a_number_leaves_later_batches_waiting() -> None:
    storage, listener = made(3)
    storage.commit(2)
    assert (listener.answers, storage.pending, keys(storage)) == ([(2, None)], [3], [b"1", b"2"])
    assert storage.unconfirmed_bytes > 0


def test_a_commit_of_nothing_is_no_answer() -> None:
    storage, listener = made(0)
    storage.commit()
    assert listener.answers == []


def test_a_failed_batch_counts_for_nothing() -> None:
    storage, listener = made(2)
    storage.fail("no room")
    storage.commit()
    assert listener.answers == [(1, "no room"), (2, None)]
    assert listener.failed == {1: "no room"}
    assert keys(storage) == [b"2"]
    assert storage.unconfirmed_bytes == 0


def test_failing_needs_a_waiting_batch() -> None:
    with pytest.raises(LocalError, match="no batch waits"):
        MemoryStorage().fail()


def test_waiting_operations_can_be_looked_at() -> None:
    storage, _ = made(2)
    assert storage.operations(2) == [put(b"2")]
    storage.commit()
    with pytest.raises(LocalError, match="batch 2 does not wait"):
        storage.operations(2)


def test_a_crash_loses_what_was_not_committed_and_answers_nothing() -> None:
    storage, listener = made(3)
    storage.commit(1)
    successor = storage.crash()
    assert keys(successor) == [b"1"]
    assert listener.answers == [(1, None)]
    assert successor.submit([]) == 1


def test_a_crash_may_keep_batches_that_were_never_answered() -> None:
    storage, listener = made(3)
    assert keys(storage.crash(through=2)) == [b"1", b"2"]
    assert listener.answers == []


def test_after_a_crash_the_old_storage_takes_nothing() -> None:
    storage, _ = made(1)
    storage.crash()
    with pytest.raises(LocalError, match="crashed"):
        storage.submit([])
