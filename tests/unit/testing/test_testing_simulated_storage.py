"""What a journal's model does when a test says so; the port's contract is tested in tests/contract."""

from __future__ import annotations

from random import Random

import pytest

from enmasse.errors import LocalError
from enmasse.messaging.storage import Operation, Table
from enmasse.testing.memory_storage import RecordingListener
from enmasse.testing.simulated_storage import SimulatedStorage
from tests.support.faults import FaultRates, JournalFaults


def put(key: bytes, value: bytes = b"v") -> Operation:
    return Operation(Table.MARK, key, value)


def keys(storage: SimulatedStorage) -> list[bytes]:
    return [key for key, _ in storage.scan_all(Table.MARK)]


@pytest.fixture
def listener() -> RecordingListener:
    return RecordingListener()


@pytest.fixture
def storage(listener: RecordingListener) -> SimulatedStorage:
    return SimulatedStorage(listener)


def test_a_commit_is_seen_before_it_is_told(storage: SimulatedStorage, listener: RecordingListener) -> None:
    storage.submit([put(b"a")])
    storage.commit()
    assert keys(storage) == [b"a"]
    assert listener.answers == []
    storage.answer()
    assert listener.answers == [(1, None)]


def test_a_lost_answer_is_told_by_the_next_journal(storage: SimulatedStorage, listener: RecordingListener) -> None:
    storage.submit([put(b"a")])
    storage.submit([put(b"b")])
    storage.commit()
    storage.kill()
    with pytest.raises(LocalError, match="revive"):
        storage.commit()
    storage.revive()
    assert listener.answers == [(1, None)]
    assert storage.open == [2]


def test_a_failure_that_nothing_proves_is_forgotten_with_its_journal(
    storage: SimulatedStorage, listener: RecordingListener
) -> None:
    storage.submit([put(b"a")])
    storage.fail()
    storage.kill()
    storage.revive()
    assert listener.answers == []
    storage.settle()
    assert listener.answers == [(1, None)]
    assert keys(storage) == [b"a"]


def test_a_failure_before_a_commit_outlives_its_journal(
    storage: SimulatedStorage, listener: RecordingListener
) -> None:
    storage.submit([put(b"a")])
    storage.submit([put(b"b")])
    storage.fail()
    storage.commit()
    storage.kill()
    storage.revive()
    assert listener.answers == [(1, "the disk is full"), (2, None)]
    assert keys(storage) == [b"b"]


def test_a_crash_leaves_what_was_committed_and_a_part_of_the_rest(storage: SimulatedStorage) -> None:
    for key in (b"a", b"b", b"c"):
        storage.submit([put(key)])
    storage.commit()
    found = storage.crash(2)
    assert keys(found) == [b"a", b"b"]
    assert found.submitted == 0
    with pytest.raises(LocalError, match="crashed"):
        storage.submit([put(b"d")])


def test_a_copy_does_not_see_what_comes_later(storage: SimulatedStorage) -> None:
    storage.submit([put(b"a")])
    storage.commit()
    copy = storage.copy()
    storage.submit([put(b"b")])
    storage.commit()
    assert keys(copy) == [b"a"]
    assert keys(storage) == [b"a", b"b"]


def test_what_was_asked_for_is_on_disk_once_a_batch_made_with_that_knowledge_is(storage: SimulatedStorage) -> None:
    storage.submit([put(b"a")])
    storage.commit()
    assert storage.written_through == 0, "batch 1 was made before anything was known"
    storage.answer()
    storage.submit([put(b"b")])
    storage.commit()
    assert storage.written_through == 1
    storage.submit([put(b"c")])
    storage.fail()
    storage.submit([put(b"d")])
    storage.commit()
    assert storage.written_through == 1, "batch 4 may lack what batch 3 held"


def test_a_short_read_ends_where_it_would_have_ended_when_it_was_asked_for(storage: SimulatedStorage) -> None:
    found: list[list[bytes]] = []

    def done(records: list[tuple[bytes, bytes]], damaged: list[bytes]) -> None:
        assert damaged == []
        found.append([value for _, value in records])

    storage.submit([put(b"a", b"1")])
    storage.commit()
    storage.fetch(Table.MARK, b"", b"\xff", 1_000, done)
    storage.fetch(Table.MARK, b"", b"\xff", 1_000, done)
    storage.submit([put(b"a", b"2"), put(b"b", b"2")])
    storage.commit()
    storage.finish_read(is_short=True)
    storage.finish_read()
    assert found == [[b"2"], [b"2", b"2"]]


def test_faults_of_one_seed_are_the_same_each_time() -> None:
    def play() -> list[tuple[int, str | None]]:
        listener = RecordingListener()
        storage = SimulatedStorage(listener)
        faults = JournalFaults(Random(7), FaultRates(disk_full=0.3, journal_death=0.2, refusal=0.1))
        for number in range(200):
            if len(storage.open) < 4 and not storage.is_refusing:
                storage.submit([put(b"%d" % number)])
            faults.step(storage)
        return listener.answers

    answers = play()
    assert answers == play()
    assert {reason for _, reason in answers} == {None, "the disk is full"}
