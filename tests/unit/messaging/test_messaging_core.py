"""The core's turn: one batch for all that gathered, at most two on their way, and faults stay where they are."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.errors import EnmasseError
from enmasse.messaging.address import Address
from enmasse.messaging.core import MAX_UNCONFIRMED_BYTES, PAUSE_S
from enmasse.messaging.storage import Operation, Table
from enmasse.testing.ports import CoreHarness


class Diary(Address):
    """An address that writes down what the core asks of it."""

    kind = "diary"

    def __init__(self, harness: CoreHarness, name: str = "diary") -> None:
        super().__init__(harness.core, name)
        self.turns: list[float] = []
        self.deadlines: list[float] = []
        self.fault: Exception | None = None
        self.again = 0

    def on_turn(self, now: float) -> None:
        self.turns.append(now)
        if self.again:
            self.again -= 1
            self.due()
        if self.fault is not None:
            raise self.fault

    def on_deadline(self, now: float) -> None:
        self.deadlines.append(now)
        if self.fault is not None:
            raise self.fault


class Notes:
    """A log that writes one record for each note."""

    def __init__(self, harness: CoreHarness, name: str = "notes") -> None:
        self.core = harness.core
        self.name = name
        self.notes: list[bytes] = []
        self.told: list[Any] = []
        self.fault: Exception | None = None

    def note(self, text: bytes) -> None:
        self.notes.append(text)
        self.core.write(self)

    def cut(self, wall_us: int) -> tuple[list[Operation], Any]:
        if self.fault is not None:
            raise self.fault
        notes, self.notes = self.notes, []
        operations = [Operation(Table.META, self.name.encode() + note, note) for note in notes]
        return operations, notes or None

    def committed(self, token: Any) -> None:
        self.told.append(("stored", token))
        if self.fault is not None:
            raise self.fault

    def failed(self, token: Any, reason: str) -> None:
        self.told.append(("failed", token, reason))
        if self.fault is not None:
            raise self.fault


@pytest.fixture
def harness() -> CoreHarness:
    return CoreHarness()


def test_a_due_address_has_one_turn_however_often_it_says_so(harness: CoreHarness) -> None:
    diary = Diary(harness)
    diary.due()
    diary.due()
    assert harness.turns_requested == 1
    harness.turn()
    assert len(diary.turns) == 1
    harness.core.run_turn(1.0, 0)
    assert len(diary.turns) == 1


def test_what_becomes_due_in_a_turn_still_has_it_and_what_becomes_due_again_waits_for_the_next(
    harness: CoreHarness,
) -> None:
    diary = Diary(harness)
    diary.again = 2
    diary.due()
    harness.core.run_turn(0.0, 0)
    assert len(diary.turns) == 2
    assert harness.turns_requested == 2
    harness.turn()
    assert len(diary.turns) == 3


def test_all_logs_of_a_turn_become_one_batch(harness: CoreHarness) -> None:
    first, second = Notes(harness, "a"), Notes(harness, "b")
    first.note(b"1")
    first.note(b"2")
    second.note(b"3")
    harness.turn()
    assert harness.storage.pending == [1]
    assert [operation.value for operation in harness.storage.operations(1)] == [b"1", b"2", b"3"]
    harness.commit()
    assert first.told == [("stored", [b"1", b"2"])]
    assert second.told == [("stored", [b"3"])]
    assert harness.core.batches_committed == 1


def test_nothing_is_submitted_where_nothing_gathered(harness: CoreHarness) -> None:
    Notes(harness).core.write(Notes(harness))
    harness.turn()
    assert harness.storage.pending == []
    assert harness.core.is_idle


def test_at_most_two_batches_are_on_their_way_and_what_follows_gathers(harness: CoreHarness) -> None:
    logs = [Notes(harness, name) for name in "abcd"]
    for log in logs:
        log.note(b"1")
        harness.turn()
    assert harness.storage.pending == [1, 2]
    harness.storage.commit(1)
    harness.turn()
    assert harness.storage.pending == [2, 3]
    assert len(harness.storage.operations(3)) == 2


def test_of_one_log_one_batch_is_on_its_way(harness: CoreHarness) -> None:
    busy, free = Notes(harness, "busy"), Notes(harness, "free")
    busy.note(b"1")
    harness.turn()
    busy.note(b"2")
    free.note(b"3")
    harness.turn()
    assert [operation.value for operation in harness.storage.operations(2)] == [b"3"]
    harness.storage.fail()
    assert busy.told == [("failed", [b"1"], "the disk is full")]
    harness.advance(PAUSE_S)
    harness.commit()
    assert busy.told[1:] == [("stored", [b"2"])]


def test_one_answer_for_several_batches_reaches_them_in_order(harness: CoreHarness) -> None:
    first, second = Notes(harness, "a"), Notes(harness, "b")
    heard: list[str] = []
    first.note(b"1")
    harness.core.store([], lambda reason: heard.append(f"one {reason}"))
    harness.turn()
    second.note(b"2")
    harness.core.store([], lambda reason: heard.append(f"two {reason}"))
    harness.turn()
    harness.storage.commit()
    assert heard == ["one None", "two None"]
    assert (first.told, second.told) == ([("stored", [b"1"])], [("stored", [b"2"])])


def test_records_of_the_configuration_go_with_the_next_batch_and_are_answered_after_it(harness: CoreHarness) -> None:
    heard: list[str | None] = []
    harness.core.store([Operation(Table.ENTITY, b"k", b"v")], heard.append)
    harness.turn()
    assert heard == []
    harness.storage.fail("no room")
    assert heard == ["no room"]
    assert harness.storage.get(Table.ENTITY, b"k") is None
    harness.core.store([Operation(Table.ENTITY, b"k", b"w")], heard.append)
    harness.advance(PAUSE_S)
    harness.commit()
    assert heard == ["no room", None]
    assert harness.storage.get(Table.ENTITY, b"k") == b"w"
    assert (harness.core.batches_failed, harness.core.batches_committed) == (1, 1)


def test_after_a_failed_batch_nothing_is_written_for_a_moment(harness: CoreHarness) -> None:
    log = Notes(harness)
    log.note(b"1")
    harness.fail()
    log.note(b"2")
    harness.turn()
    assert harness.storage.pending == []
    assert harness.core.next_deadline() == pytest.approx(PAUSE_S)
    harness.advance(PAUSE_S)
    assert harness.storage.pending == [2]
    assert harness.core.next_deadline() is None


def test_an_address_that_fails_in_its_turn_does_not_take_the_others_theirs(harness: CoreHarness) -> None:
    broken, sound = Diary(harness, "broken"), Diary(harness, "sound")
    broken.fault = ZeroDivisionError("oops")
    broken.due()
    sound.due()
    harness.turn()
    assert sound.turns == [0.0]
    assert harness.faults == [("broken", broken.fault)]
    broken.due()
    harness.turn()
    assert len(broken.turns) == 2


def test_an_address_that_fails_at_its_deadline_does_not_take_the_others_theirs(harness: CoreHarness) -> None:
    broken, sound = Diary(harness, "broken"), Diary(harness, "sound")
    broken.fault = ZeroDivisionError("oops")
    harness.core.schedule(broken, 1.0)
    harness.core.schedule(sound, 1.0)
    harness.advance(1.0)
    assert sound.deadlines == [1.0]
    assert harness.faults == [("broken", broken.fault)]


def test_a_log_that_fails_does_not_keep_the_others_from_the_journal(harness: CoreHarness) -> None:
    broken, sound = Notes(harness, "broken"), Notes(harness, "sound")
    broken.fault = ZeroDivisionError("oops")
    broken.note(b"1")
    sound.note(b"2")
    harness.commit()
    assert sound.told == [("stored", [b"2"])]
    assert harness.faults == [("broken", broken.fault)]


@pytest.mark.parametrize("fails", [False, True])
def test_a_listener_that_fails_does_not_keep_the_answer_from_the_others(harness: CoreHarness, fails: bool) -> None:
    broken, sound = Notes(harness, "broken"), Notes(harness, "sound")
    heard: list[str | None] = []

    def fault(_reason: str | None) -> None:
        raise ZeroDivisionError

    broken.note(b"1")
    sound.note(b"2")
    harness.core.store([], fault)
    harness.core.store([], heard.append)
    harness.turn()
    broken.fault = ZeroDivisionError("oops")
    if fails:
        harness.fail()
    else:
        harness.commit()
    assert len(sound.told) == len(heard) == 1
    assert [name for name, _ in harness.faults] == ["broken", "a change of the configuration"]


def test_a_storage_that_takes_no_batch_is_a_failed_commit(
    harness: CoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_operations: object) -> int:
        raise EnmasseError("too large")

    log = Notes(harness)
    log.note(b"1")
    with monkeypatch.context() as patch:
        patch.setattr(harness.storage, "submit", refuse)
        harness.turn()
    assert log.told == [("failed", [b"1"], "too large")]
    log.note(b"2")
    harness.advance(PAUSE_S)
    harness.commit()
    assert log.told[1:] == [("stored", [b"2"])]


def test_deadlines_come_in_order_and_not_before_their_time(harness: CoreHarness) -> None:
    diary = Diary(harness)
    for when in (3.0, 1.0, 2.0):
        harness.core.schedule(diary, when)
    assert harness.core.next_deadline() == 1.0
    harness.core.handle_deadline(0.9)
    assert diary.deadlines == []
    harness.advance(2.5)
    assert diary.deadlines == [1.0, 2.0]
    assert harness.core.next_deadline() == 3.0


def test_a_deadline_that_is_told_again_is_kept_once(harness: CoreHarness) -> None:
    diary = Diary(harness)
    for _ in range(5):
        harness.core.schedule(diary, 1.0)
    harness.advance(1.0)
    assert diary.deadlines == [1.0]
    harness.core.schedule(diary, 1.0)
    harness.advance(0.0)
    assert diary.deadlines == [1.0, 1.0]


def test_the_wall_clock_of_a_turn_is_given_to_what_is_cut_in_it(harness: CoreHarness) -> None:
    seen: list[int] = []

    class Clocked(Notes):
        def cut(self, wall_us: int) -> tuple[list[Operation], Any]:
            seen.append(wall_us)
            return super().cut(wall_us)

    Clocked(harness).note(b"1")
    harness.core.run_turn(5.0, 1_234)
    assert seen == [1_234]
    assert harness.core.wall_us == 1_234


def test_the_journal_is_pressed_by_what_waits_for_it_and_what_is_on_its_way(harness: CoreHarness) -> None:
    core = harness.core
    pressed = [core.is_pressed]
    core.gathered_bytes = MAX_UNCONFIRMED_BYTES + 1
    pressed.append(core.is_pressed)
    core.gathered_bytes = 0
    core.store([Operation(Table.ENTITY, b"k", bytes(MAX_UNCONFIRMED_BYTES))], lambda _reason: None)
    harness.turn()
    pressed.append(core.is_pressed)
    harness.commit()
    pressed.append(core.is_pressed)
    assert pressed == [False, True, True, False]


def test_addresses_that_were_held_have_their_turn_once_the_journal_has_caught_up(harness: CoreHarness) -> None:
    diary = Diary(harness)
    harness.core.store([Operation(Table.ENTITY, b"k", bytes(MAX_UNCONFIRMED_BYTES))], lambda _reason: None)
    harness.turn()
    harness.core.hold(diary)
    harness.core.hold(diary)
    harness.turn()
    assert diary.turns == []
    harness.commit()
    assert len(diary.turns) == 1


def test_a_core_is_idle_once_everything_is_answered(harness: CoreHarness) -> None:
    log = Notes(harness)
    log.note(b"1")
    assert not harness.core.is_idle
    harness.turn()
    assert not harness.core.is_idle
    harness.commit()
    assert harness.core.is_idle


def test_a_call_for_later_that_a_turn_brings_is_known_when_the_turn_has_ended(harness: CoreHarness) -> None:
    called: list[str] = []

    class Caller(Diary):
        def on_turn(self, now: float) -> None:
            super().on_turn(now)
            self.core.call_later(1.0, lambda: called.append("call"))

    Caller(harness).due()
    harness.core.run_turn(harness.clock.now, 0)
    assert harness.core.next_deadline() == harness.clock.now + 1.0
    harness.advance(1.0)
    assert called == ["call"]


def test_an_earlier_deadline_asks_for_a_turn_so_that_the_shell_learns_of_it(harness: CoreHarness) -> None:
    diary = Diary(harness)
    harness.core.schedule(diary, 5.0)
    harness.turn()
    for when, asks in ((6.0, 0), (4.0, 1)):
        harness.core.schedule(diary, when)
        assert harness.turns_requested == asks, when


def test_a_log_that_writes_again_while_its_group_fails_has_another_turn(harness: CoreHarness) -> None:
    class Stubborn(Notes):
        def failed(self, token: Any, reason: str) -> None:
            super().failed(token, reason)
            self.note(b"again")

    first, second = Stubborn(harness, "a"), Notes(harness, "b")
    second.fault = RuntimeError("not now")
    first.note(b"1")
    second.note(b"2")
    harness.core.write_together([first, second])
    harness.turn()
    assert [operation.value for operation in harness.storage.operations(1)] == [b"again"]
