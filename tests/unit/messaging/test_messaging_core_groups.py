"""Logs that are written together share one batch, and so its fate."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.messaging.storage import Operation, Table
from enmasse.testing.ports import CoreHarness


class Notes:
    """A log that writes one record for each note."""

    def __init__(self, harness: CoreHarness, name: str) -> None:
        self.core = harness.core
        self.name = name
        self.notes: list[bytes] = []
        self.told: list[Any] = []
        self.fault: Exception | None = None

    def add(self, *texts: bytes) -> Notes:
        """Gather notes for whenever the log is cut."""
        self.notes += texts
        return self

    def note(self, text: bytes) -> None:
        self.add(text)
        self.core.write(self)

    def cut(self, wall_us: int) -> tuple[list[Operation], Any]:
        if self.fault is not None:
            raise self.fault
        notes, self.notes = self.notes, []
        return [Operation(Table.META, self.name.encode() + note, note) for note in notes], notes or None

    def committed(self, token: Any) -> None:
        self.told.append(("stored", token))

    def failed(self, token: Any, reason: str) -> None:
        self.told.append(("failed", token, reason))


@pytest.fixture
def harness() -> CoreHarness:
    return CoreHarness()


def values(harness: CoreHarness, number: int) -> list[bytes]:
    return sorted(operation.value or b"" for operation in harness.storage.operations(number))


def test_a_group_is_one_batch_and_fails_as_one(harness: CoreHarness) -> None:
    first, second = Notes(harness, "a"), Notes(harness, "b")
    harness.core.write_together([first.add(b"1"), second.add(b"2")])
    harness.turn()
    assert values(harness, 1) == [b"1", b"2"]
    harness.fail()
    assert first.told == [("failed", [b"1"], "the disk is full")]
    assert second.told == [("failed", [b"2"], "the disk is full")]
    assert harness.storage.scan(Table.META, b"", b"\xff", 1 << 20) == []


def test_nothing_of_a_group_is_cut_while_one_of_it_has_a_batch_on_its_way(harness: CoreHarness) -> None:
    first, second, other = Notes(harness, "a"), Notes(harness, "b"), Notes(harness, "c")
    first.note(b"1")
    harness.turn()
    harness.core.write_together([first.add(b"2"), second.add(b"3")])
    other.note(b"4")
    harness.turn()
    assert values(harness, 2) == [b"4"]
    harness.commit()
    assert first.told == [("stored", [b"1"]), ("stored", [b"2"])]
    assert second.told == [("stored", [b"3"])]
    assert harness.core.batches_committed == 3


def test_a_log_of_a_waiting_group_is_not_cut_for_what_else_is_written_to_it(harness: CoreHarness) -> None:
    first, second = Notes(harness, "a"), Notes(harness, "b")
    first.note(b"1")
    harness.turn()
    harness.core.write_together([first.add(b"2"), second.add(b"3")])
    second.note(b"4")
    harness.turn()
    assert harness.storage.pending == [1]
    harness.storage.commit()
    harness.turn()
    assert values(harness, 2) == [b"2", b"3", b"4"]


def test_groups_that_share_a_log_become_one(harness: CoreHarness) -> None:
    first, second, third = Notes(harness, "a"), Notes(harness, "b"), Notes(harness, "c")
    first.note(b"1")
    third.note(b"2")
    harness.turn()
    harness.core.write_together([first.add(b"3"), second.add(b"4")])
    harness.core.write_together([second.add(b"5"), third.add(b"6")])
    harness.turn()
    assert harness.storage.pending == [1]
    harness.storage.commit()
    harness.turn()
    assert values(harness, 2) == [b"3", b"4", b"5", b"6"]


def test_the_last_log_of_each_group_hears_after_the_others(harness: CoreHarness) -> None:
    heard: list[str] = []

    class Listening(Notes):
        def committed(self, token: Any) -> None:
            heard.append(self.name)

    logs = {name: Listening(harness, name).add(b"x") for name in "abcdxyz"}
    for names in ("abx", "bcy", "adz"):
        harness.core.write_together([logs[name] for name in names])
    harness.commit()
    assert sorted(heard) == sorted(logs)
    for names in ("abx", "bcy", "adz"):
        assert all(heard.index(names[-1]) > heard.index(other) for other in names[:-1])


def test_a_group_is_cut_in_the_end_however_busy_its_logs_are(harness: CoreHarness) -> None:
    logs = [Notes(harness, f"{index}") for index in range(4)]
    for log in logs[:2]:
        log.note(b"before")
    harness.turn()
    for log in logs[2:]:
        log.note(b"before")
    harness.turn()
    assert harness.storage.pending == [1, 2]
    harness.core.write_together([log.add(b"together") for log in logs])
    for _ in range(2):
        harness.storage.commit(harness.storage.pending[0])
        for log in logs:
            log.note(b"always")
        harness.turn()
    assert [value for value in values(harness, 3) if value == b"together"] == [b"together"] * 4


def test_a_group_is_forgotten_once_it_is_cut(harness: CoreHarness) -> None:
    first, second = Notes(harness, "a"), Notes(harness, "b")
    harness.core.write_together([first.add(b"1"), second.add(b"2")])
    harness.turn()
    harness.storage.commit()
    first.note(b"3")
    harness.turn()
    second.note(b"4")
    harness.turn()
    assert harness.storage.pending == [2, 3]


def test_where_one_log_of_a_group_fails_nothing_of_the_others_is_written(harness: CoreHarness) -> None:
    first, second, broken, other = (Notes(harness, name) for name in "abcd")
    broken.fault = RuntimeError("a bug")
    harness.core.write_together([first.add(b"1"), broken.add(b"2"), second.add(b"3")])
    other.note(b"4")
    harness.turn()
    assert [name for name, _ in harness.faults] == ["c"]
    assert values(harness, 1) == [b"4"]
    for log in (first, second):
        assert [told[0] for told in log.told] == ["failed"]
    first.note(b"5")
    harness.commit()
    assert first.told[-1] == ("stored", [b"5"])


def test_a_group_of_one_is_written_like_any_log(harness: CoreHarness) -> None:
    log = Notes(harness, "a")
    harness.core.write_together([log.add(b"1")])
    harness.commit()
    assert log.told == [("stored", [b"1"])]
