"""Retained values in the journal: written with the turn that brought them, gone with their address."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.errors import EnmasseError
from enmasse.message.sections import Header, encode_message
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.facts import PLAIN, Facts
from enmasse.messaging.log.layout import delete_log
from enmasse.messaging.retained import EXPIRY_STEP_US, Retained
from enmasse.messaging.retained_log import RetainedError, RetainedLog, decode_value
from enmasse.messaging.storage import Operation, Table
from enmasse.testing.ports import CoreHarness


class Place:
    """The values of one address, over a storage in memory."""

    def __init__(self, harness: CoreHarness | None = None, log_id: int = 7) -> None:
        self.harness = harness or CoreHarness()
        self.harness.turn()
        self.index = Retained(self.harness.core, "ns/shop")
        self.log = RetainedLog(self.harness.core, "news", log_id)
        self.log.join(self.index)
        self.log.load()
        self.told: list[str | None] = []

    def restarted(self, through: int = 0) -> Place:
        return Place(self.harness.restarted(through), self.log.log_id)

    def set(self, name: str, payload: bytes = b"v", facts: Facts = PLAIN) -> None:
        self.log.set(name, payload, facts, self.told.append)

    @property
    def known(self) -> dict[str, bytes]:
        return {name: value.payload for name, value in self.log.values.items()}

    @property
    def records(self) -> list[tuple[bytes, bytes]]:
        return list(self.harness.storage.scan_all(Table.RETAINED))


@pytest.fixture
def place() -> Place:
    return Place()


def test_a_value_is_known_at_once_and_reported_once_it_is_on_disk(place: Place) -> None:
    place.set("news/a")
    place.harness.turn()
    assert (place.known, place.told) == ({"news/a": b"v"}, [])
    place.harness.commit()
    assert place.told == [None]
    assert place.restarted().known == {"news/a": b"v"}


def test_a_value_that_is_cleared_is_gone_after_a_crash_too(place: Place) -> None:
    place.set("news/a")
    place.set("news/b")
    place.harness.commit()
    assert place.log.clear("news/a", place.told.append)
    assert not place.log.clear("news/c", place.told.append)
    assert place.known == {"news/b": b"v"}
    assert len(place.told) == 2
    place.harness.commit()
    assert place.told == [None] * 4
    assert place.restarted().known == {"news/b": b"v"}


def test_names_that_change_often_in_a_turn_are_written_once(place: Place) -> None:
    for number in range(5):
        place.set("news/a", b"%d" % number)
    place.set("news/b")
    place.log.clear("news/b")
    place.harness.commit()
    assert place.told == [None] * 6
    assert [decode_value(value)[1:] for _, value in place.records] == [("news/a", b"4")]


def test_what_could_not_be_written_is_reported_and_written_again(place: Place) -> None:
    place.set("news/a")
    place.harness.fail()
    assert len(place.told) == 1
    assert place.told[0] is not None
    assert place.known == {"news/a": b"v"}
    place.log.clear("news/gone")
    place.harness.advance(2 * PAUSE_S)
    place.harness.commit()
    assert place.restarted().known == {"news/a": b"v"}
    assert place.harness.core.gathered_bytes == 0


def test_nothing_is_written_for_an_address_that_keeps_nothing_on_disk() -> None:
    place = Place(log_id=0)
    place.set("news/a")
    assert (place.known, place.told) == ({"news/a": b"v"}, [None])
    assert place.log.clear("news/a", place.told.append)
    place.harness.commit()
    assert (place.known, place.records) == ({}, [])


def test_a_value_keeps_its_time_over_a_restart(place: Place) -> None:
    payload = encode_message(b"x", header=Header(ttl=5_000))
    place.set("news/a", payload, Facts(ttl_ms=5_000))
    place.set("news/b", encode_message(b"x"))
    place.harness.commit()
    place.harness.advance(3)
    again = place.restarted()
    again.harness.clock.advance(place.harness.clock.now)
    assert again.index.get("news/a") is not None
    again.set("news/c")
    again.harness.commit()
    again.harness.advance(3)
    again.set("news/d")
    again.harness.commit()
    assert again.index.get("news/a") is None
    again.harness.advance(3 * EXPIRY_STEP_US / 1e6)
    again.harness.commit()
    assert sorted(again.known) == ["news/b", "news/c", "news/d"]
    assert len(again.records) == 3


def test_the_newer_of_two_values_of_a_name_wins_at_the_start(place: Place) -> None:
    place.set("news/a", b"old")
    place.harness.commit()
    place.harness.advance(1)
    newer = RetainedLog(place.harness.core, "news/a", 9)
    newer.join(place.index)
    newer.set("news/a", b"new", PLAIN)
    # A crash came before the older one was deleted.
    place.log._changed.clear()
    place.harness.commit()
    assert len(place.records) == 2
    for order in ((7, 9), (9, 7)):
        harness = place.harness.restarted()
        index = Retained(harness.core, "ns/shop")
        logs = {log_id: RetainedLog(harness.core, str(log_id), log_id) for log_id in order}
        for log in logs.values():
            log.join(index)
        for log in logs.values():
            log.load()
        value = index.get("news/a")
        assert value is not None
        assert (value.payload, value.home) == (b"new", logs[9])
        harness.commit()
        assert [decode_value(record)[2] for _, record in harness.storage.scan_all(Table.RETAINED)] == [b"new"]


def test_a_record_that_is_damaged_is_left_out_and_reported(place: Place) -> None:
    place.set("news/a")
    damaged = [
        Operation(Table.RETAINED, (7).to_bytes(4, "big") + bytes((n,)) * 16, v)
        for n, v in enumerate((b"", b"x" * 12))
    ]
    place.harness.core.store(damaged, lambda _reason: None)
    place.harness.commit()
    again = place.restarted()
    assert again.known == {"news/a": b"v"}
    assert [(name, type(error)) for name, error in again.harness.faults] == [
        ("retained values of news", RetainedError)
    ] * 2
    with pytest.raises(RetainedError, match="cut short"):
        decode_value(bytes(8) + b"\0\0\0\x05abc")
    assert issubclass(RetainedError, EnmasseError)


# Transactions


def stage(place: Place, name: str, payload: bytes | None) -> list[str | None]:
    told: list[str | None] = []
    place.log.stage(name, payload, PLAIN, told.append)
    return told


def test_a_value_of_a_transaction_is_known_once_it_is_on_disk(place: Place) -> None:
    place.set("news/b")
    place.harness.commit()
    told = [stage(place, "news/a", b"v"), stage(place, "news/b", None)]
    place.harness.turn()
    assert place.known == {"news/b": b"v"}
    place.harness.commit()
    assert told == [[None], [None]]
    assert place.known == place.restarted().known == {"news/a": b"v"}


def test_a_value_of_a_transaction_that_fails_was_never_there(place: Place) -> None:
    told = stage(place, "news/a", b"v")
    place.harness.fail()
    assert len(told) == 1
    assert told[0] is not None
    place.harness.advance(2 * PAUSE_S)
    place.harness.commit()
    assert place.known == place.restarted().known == {}


@pytest.mark.parametrize("is_on_its_way", [False, True])
@pytest.mark.parametrize("later", [b"later", None])
def test_a_later_value_is_not_overtaken_by_that_of_a_transaction(
    place: Place, is_on_its_way: bool, later: bytes | None
) -> None:
    told = stage(place, "news/a", b"staged")
    if is_on_its_way:
        place.harness.turn()
    if later is None:
        place.log.clear("news/a")
    else:
        place.set("news/a", later)
    place.harness.commit()
    assert told == [None]
    expected = {} if later is None else {"news/a": later}
    assert place.known == expected
    assert place.restarted().known == expected


# The end


def test_the_values_go_with_their_address(place: Place) -> None:
    place.set("news/a")
    place.harness.commit()
    place.set("news/b")
    told = stage(place, "news/c", b"v")
    place.log.close()
    assert (len(place.index), place.index.bytes_retained) == (0, 0)
    assert place.told[1:] == told == ["the address was deleted"]
    place.harness.commit()
    place.harness.core.store(list(delete_log(place.harness.storage, 7)), lambda _reason: None)
    place.harness.commit()
    assert place.records == []
    assert place.harness.core.gathered_bytes == 0


def test_what_is_on_its_way_when_the_address_is_deleted_comes_to_nothing(place: Place) -> None:
    place.set("news/a")
    told: Any = stage(place, "news/b", b"v")
    place.harness.turn()
    place.log.close()
    place.harness.commit()
    assert (place.told, told, place.known) == ([None], [None], {})
