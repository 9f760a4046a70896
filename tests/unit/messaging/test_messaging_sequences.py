"""How many idempotent producers a partition remembers, and for how long."""

from __future__ import annotations

import struct

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.message.sections import encode_message
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.log import sequences
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.log.sequences import Sequences
from enmasse.messaging.storage import Operation, Table
from tests.support.stream_scene import LOG, StreamScene, bodies


def send(scene: StreamScene, producer: str, *sequences: int) -> None:
    sender = scene.sender(properties={"enmasse:producer": producer})
    for sequence in sequences:
        content = f"{producer}{sequence}".encode()
        sender.send(encode_message(content, message_annotations={"x-opt-sequence": sequence}))
    scene.settle()
    assert [state for _, state in sender.outcomes] == [ACCEPTED] * len(sequences)
    sender.leave()


def remembered(scene: StreamScene) -> list[str]:
    return [key[16:].decode() for key, _ in scene.records(Table.PRODUCER)]


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sequences, "MAX_PRODUCERS", 5)
    return 5


def test_beyond_the_bound_the_producer_that_was_silent_longest_is_forgotten(bound: int) -> None:
    scene = StreamScene()
    for number in range(bound):
        send(scene, f"p{number}", 1)
    send(scene, "p0", 2)
    send(scene, "new", 1)
    assert sorted(remembered(scene)) == ["new", "p0", "p2", "p3", "p4"]
    send(scene, "p0", 2)
    send(scene, "p1", 1)
    assert bodies(scene.reader(start="first")).count(b"p02") == 1
    assert bodies(scene.reader(start="first")).count(b"p11") == 2


def test_who_was_silent_longest_is_known_after_a_restart(bound: int) -> None:
    scene = StreamScene()
    for number in range(bound):
        send(scene, f"p{number}", 1)
        scene.harness.advance(10.0)
    send(scene, "p0", 2)
    again = scene.restart()
    send(again, "new", 1)
    assert sorted(remembered(again)) == ["new", "p0", "p2", "p3", "p4"]
    third = again.restart()
    for number in (0, 2, 3, 4):
        send(third, f"p{number}", 1)
    assert len(bodies(third.reader(start="first"))) == bound + 2


def test_records_of_the_first_version_are_taken_up_as_the_oldest(bound: int) -> None:
    scene = StreamScene()
    key = log_key(LOG, 0, 0) + b"old"
    scene.harness.storage.submit([Operation(Table.PRODUCER, key, struct.pack(">2Q", 7, 3))])
    scene.harness.storage.commit()
    again = scene.restart()
    send(again, "old", 7, 3, 8)
    assert bodies(again.reader(start="first")) == [b"old3", b"old8"]
    third = again.restart()
    for number in range(bound):
        third.harness.advance(1.0)
        send(third, f"p{number}", 1)
    assert "old" not in remembered(third)


def test_a_producer_is_not_forgotten_while_something_of_it_is_on_its_way(bound: int) -> None:
    sequences = Sequences()
    assert sequences.judge(b"busy", 1) is None
    for number in range(20):
        name = b"p%d" % number
        assert sequences.judge(name, 1) is None
        records = dict(sequences.cut({name: {1}}, number))
        assert b"busy" not in records
        sequences.stored({name: {1}})
        assert len(sequences) <= bound + 1
    assert sequences.judge(b"busy", 1) is RELEASED


def test_many_producers_are_remembered_across_a_restart() -> None:
    scene = StreamScene()
    for number in range(300):
        send(scene, f"p{number}", number)
    again = scene.restart()
    for number in range(300):
        send(again, f"p{number}", number)
    assert len(bodies(again.reader(start="first"))) == 300


def test_a_failed_deletion_of_a_forgotten_producer_does_no_harm(bound: int) -> None:
    scene = StreamScene()
    for number in range(bound):
        send(scene, f"p{number}", 1)
    sender = scene.sender(properties={"enmasse:producer": "new"})
    sender.send(encode_message(b"x", message_annotations={"x-opt-sequence": 1}))
    scene.harness.fail()
    assert sender.states[0] is RELEASED
    assert len(remembered(scene)) == bound
    scene.harness.advance(PAUSE_S)
    sender.send(encode_message(b"x", message_annotations={"x-opt-sequence": 1}))
    scene.settle()
    assert sender.states[1] is ACCEPTED
