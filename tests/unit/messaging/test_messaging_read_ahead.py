"""What is read ahead for receivers: bounded for all together, and read again without a gap where it was dropped."""

from __future__ import annotations

import random
from typing import Any

import pytest

from enmasse.messaging.log.frame import Frame
from enmasse.messaging.read_ahead import ReadAhead
from enmasse.messaging.streams import readers as stream_readers
from tests.support.chance import SEED
from tests.support.stream_scene import StreamScene, offsets


class Keeper:
    """Counts how often it had to drop what it had."""

    def __init__(self) -> None:
        self.drops = 0

    def drop(self) -> None:
        self.drops += 1


def test_who_was_served_longest_ago_drops_what_it_has() -> None:
    account = ReadAhead(100)
    first, second, third = Keeper(), Keeper(), Keeper()
    account.keep(first, 40)
    account.keep(second, 40)
    account.keep(first, 50)
    account.keep(third, 50)
    assert (first.drops, second.drops, third.drops, account.held) == (0, 1, 0, 100)
    account.keep(second, 500)
    assert (first.drops, second.drops, third.drops, account.held) == (1, 1, 1, 500)
    account.keep(second, 0)
    assert account.held == 0


@pytest.fixture
def _tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is read at a time, so that more is asked for while some is here."""
    monkeypatch.setattr(stream_readers, "READ_BYTES", 1_000)
    monkeypatch.setattr(stream_readers, "LEAST_READ_BYTES", 1_000)


def cold(partitions: int, rows: int) -> StreamScene:
    """A stream whose rows are on disk alone, a few in a frame."""
    scene = StreamScene(partitions)
    for partition in range(partitions):
        for first in range(0, rows, 3):
            scene.append(*[b"%d" % number for number in range(first, min(first + 3, rows))], partition=partition)
    return scene.restart()


@pytest.mark.usefixtures("_tight")
@pytest.mark.chance
@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("kind", ["messages", "settled", "consumer", "frames"])
def test_readers_that_have_to_drop_what_they_have_miss_nothing(kind: str, partitions: int) -> None:
    """Five at a time where there is room for none, each of which takes a little, stops, and goes on."""
    chance = random.Random(SEED)
    rows = 60
    scene = cold(partitions, rows)
    core, storage = scene.harness.core, scene.harness.storage
    core.read_ahead.max_bytes = 0
    readers: list[Any] = []
    for number in range(5):
        options: dict[str, Any] = {"filters": {"enmasse:start": "first"}, "presettle": kind == "settled"}
        if kind == "consumer":
            options["filters"] |= {"enmasse:consumer": f"c{number}"}
        elif kind == "frames":
            options = {"filters": {"enmasse:from": 0}, "capabilities": ("enmasse:frames",)}
        readers.append(scene.harness.receiver(scene.stream, 0, **options))
    wanted = rows // 3 if kind == "frames" else rows * partitions
    most = 0
    for _ in range(20_000):
        behind = [port for port in readers if len(port.arrivals) < wanted]
        if not behind:
            break
        port = chance.choice(behind)
        match chance.randrange(4):
            case 0 | 1:
                port.grant(port.credit + chance.randrange(1, 5))
            case 2:
                port.block(chance.random() < 0.5)
            case 3:
                storage.answer_reads()
        scene.turn()
        most = max(most, core.read_ahead.held)
    for port in readers:
        port.block(False)
    scene.settle()
    # What one has read.
    assert 0 < most < 2_000 * partitions
    for port in readers:
        if kind == "frames":
            firsts = [Frame(payload, verify=False).first_offset for payload in port.payloads]
            assert firsts == list(range(0, rows, 3))
        else:
            assert sorted(offsets(port)) == sorted([*range(rows)] * partitions)
        port.leave()
    assert core.read_ahead.held == 0


@pytest.mark.usefixtures("_tight")
def test_what_there_is_no_room_for_is_not_read_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader asks for room by what it knows of the message before it has it read once more."""
    monkeypatch.setattr(stream_readers, "SMALL_BYTES", 10)
    scene = cold(1, 6)
    core, storage = scene.harness.core, scene.harness.storage
    port = scene.harness.receiver(scene.stream, 0, filters={"enmasse:start": "first"})
    asked = []

    def refuse(size: int) -> bool:
        asked.append(size)
        port.sink.is_blocked = True
        return False

    monkeypatch.setattr(port, "admits", refuse)
    port.grant(10)
    scene.settle()
    assert len(asked) == 1
    core.read_ahead.max_bytes = 0
    core.read_ahead.keep(Keeper(), 1)
    for number in range(2, 5):
        port.block(False)
        scene.turn()
        assert (len(asked), storage.waiting_reads) == (number, 0)
    monkeypatch.undo()
    port.block(False)
    scene.settle()
    assert offsets(port) == list(range(6))
