"""Streams: what senders are granted, and what they get back when the stream is deleted."""

from __future__ import annotations

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.message.sections import encode_message
from enmasse.messaging.core import MAX_UNCONFIRMED_BYTES
from enmasse.messaging.queues.queue import MAX_CREDIT
from enmasse.messaging.storage import Operation, Table
from enmasse.messaging.streams.producers import FRAME_CREDIT
from enmasse.messaging.streams.stream import IN_FLIGHT_BYTES
from tests.unit.messaging.stream_sending import Scene, send_frame


@pytest.fixture
def scene() -> Scene:
    return Scene()


# Credit


def test_senders_of_messages_and_of_frames_have_windows_of_their_own(scene: Scene) -> None:
    assert scene.sender().credit == MAX_CREDIT
    assert scene.frames_sender().credit == FRAME_CREDIT


def test_a_stream_grants_what_its_byte_budget_allows() -> None:
    scene = Scene(max_bytes=50 * 1_024)
    sender = scene.sender()
    assert sender.credit == 50
    for _ in range(40):
        sender.send(encode_message(bytes(1_000)))
    scene.harness.commit()
    assert 0 < sender.credit <= 10
    while sender.credit:
        sender.send(encode_message(bytes(1_000)))
        scene.harness.commit()
    assert scene.stream.free_bytes < 1_024
    assert scene.restart().stream.bytes_stored == scene.stream.bytes_stored


def test_a_full_stream_stays_full_after_a_restart() -> None:
    scene = Scene(max_bytes=20_000)
    sender = scene.sender()
    sender.send(encode_message(bytes(20_000)))
    scene.harness.commit()
    again = scene.restart()
    assert again.sender().credit == 0


@pytest.mark.parametrize("is_full", [False, True])
def test_a_message_that_crossed_a_call_in_needs_room(is_full: bool) -> None:
    scene = Scene(max_bytes=20_000)
    sender = scene.sender()
    sender.send(encode_message(bytes(20_000 if is_full else 100)))
    scene.harness.commit()
    sender.grant(0)
    crossed = sender.send(encode_message(b"x"))
    sender.grant(0)
    sender.highest = sender.received + 1
    sender.send(encode_message(b"x"), settled=True)
    scene.harness.commit()
    assert sender.states[crossed] is (RELEASED if is_full else ACCEPTED)
    assert scene.stream.counts()["dropped"] == is_full
    assert len(scene.rows()) == (1 if is_full else 3)


def test_while_the_journal_is_behind_senders_get_no_credit_and_then_they_do(scene: Scene) -> None:
    sender = scene.sender()
    scene.harness.core.store([Operation(Table.ENTITY, b"k", bytes(MAX_UNCONFIRMED_BYTES))], lambda _reason: None)
    scene.harness.turn()
    scene.stream.due()
    scene.harness.turn()
    assert sender.credit == 0
    scene.harness.commit()
    assert sender.credit == MAX_CREDIT


def test_messages_that_wait_for_a_slow_journal_press_it_too(scene: Scene) -> None:
    sender = scene.sender()
    body = encode_message(bytes(MAX_UNCONFIRMED_BYTES // 8))
    for _ in range(9):
        sender.send(body)
        scene.harness.turn()
    assert sender.credit == 0
    scene.harness.commit()
    assert sender.credit > 0
    assert scene.harness.core.gathered_bytes == 0


def test_senders_of_large_messages_are_granted_fewer(scene: Scene) -> None:
    sender = scene.sender()
    assert sender.credit == MAX_CREDIT
    size = 128 << 10
    for _ in range(12):
        sender.send(encode_message(bytes(size)))
        scene.harness.turn()
        scene.harness.commit()
    assert 0 < sender.credit * size <= 2 * IN_FLIGHT_BYTES


# Deletion


def test_a_deleted_stream_gives_back_what_was_not_on_its_way_and_writes_nothing_more(scene: Scene) -> None:
    sender, frames = scene.sender(), scene.frames_sender()
    sender.send(encode_message(b"on its way"))
    scene.harness.turn()
    sender.send(encode_message(b"waits"))
    send_frame(frames, b"waits")
    scene.stream.close("amqp:resource-deleted", "gone")
    assert sender.outcomes == [(1, RELEASED)]
    assert frames.outcomes == [(0, RELEASED)]
    scene.harness.commit()
    assert scene.rows() == [b"on its way"]
    assert scene.harness.core.gathered_bytes == 0
    assert scene.harness.core.is_idle
    assert sender.error.condition == "amqp:resource-deleted"
