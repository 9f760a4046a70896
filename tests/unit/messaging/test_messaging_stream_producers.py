"""Streams: frames and numbered messages, and nothing twice from idempotent senders."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, Rejected
from enmasse.message.sections import encode_message
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.errors import AttachError
from enmasse.messaging.log.layout import FRAME_BYTES
from enmasse.messaging.storage import Table
from enmasse.messaging.streams.producers import FRAME_FORMAT
from enmasse.testing.ports import FIRST_WALL_US
from tests.unit.messaging.stream_sending import Scene, frame, numbered, send_frame


@pytest.fixture
def scene() -> Scene:
    return Scene()


# Frames


def test_a_frame_is_stored_with_the_nodes_offset_and_time(scene: Scene) -> None:
    sender = scene.frames_sender()
    send_frame(sender, b"a", b"b")
    send_frame(sender, b"c")
    scene.harness.commit()
    assert sender.outcomes == [(0, ACCEPTED), (1, ACCEPTED)]
    assert scene.rows() == [b"a", b"b", b"c"]
    assert scene.stored()[0].timestamps().tolist() == [FIRST_WALL_US] * 2


def test_frames_go_to_the_partition_that_the_link_names() -> None:
    scene = Scene(3)
    send_frame(scene.frames_sender(2), b"a")
    scene.harness.commit()
    assert [scene.rows(index) for index in range(3)] == [[], [], [b"a"]]


@pytest.mark.parametrize("partition", [-1, 3, "1", 1.0, None])
def test_a_partition_that_does_not_exist_is_refused(partition: Any) -> None:
    with pytest.raises(AttachError, match="partitions 0 to 2") as refusal:
        Scene(3).frames_sender(partition)
    assert refusal.value.condition == "amqp:invalid-field"


@pytest.mark.parametrize(
    ("payload", "message_format"),
    [
        (encode_message(b"x"), 0),
        (b"garbage", FRAME_FORMAT),
        (frame(b"x")[:-1] + b"\x77", FRAME_FORMAT),
        (bytes(4 * FRAME_BYTES + 1), FRAME_FORMAT),
    ],
    ids=["a message", "garbage", "a wrong checksum", "too large"],
)
def test_what_is_no_frame_is_rejected(scene: Scene, payload: bytes, message_format: int) -> None:
    sender = scene.frames_sender()
    sender.send(payload, message_format=message_format)
    sender.send(payload, message_format=message_format, settled=True)
    scene.harness.commit()
    ((_, state),) = sender.outcomes
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "amqp:decode-error"
    assert scene.rows() == []


def test_a_frame_without_rows_is_accepted_and_moves_its_producers_sequence_only(scene: Scene) -> None:
    sender = scene.frames_sender()
    send_frame(sender, producer=b"p", sequence=1)
    scene.harness.commit()
    send_frame(sender, b"late", producer=b"p", sequence=1)
    send_frame(sender, b"next", producer=b"p", sequence=2)
    scene.harness.commit()
    assert [state for _, state in sender.outcomes] == [ACCEPTED] * 3
    assert scene.rows() == [b"next"]


def test_a_frame_that_comes_again_after_its_commit_is_accepted_and_written_nowhere(scene: Scene) -> None:
    sender = scene.frames_sender()
    send_frame(sender, b"a", producer=b"p", sequence=4)
    scene.harness.commit()
    for again in (scene, scene.restart()):
        port = again.frames_sender()
        send_frame(port, b"a", producer=b"p", sequence=4)
        send_frame(port, b"a", producer=b"p", sequence=3)
        again.harness.commit()
        assert [state for _, state in port.outcomes] == [ACCEPTED] * 2
        assert again.rows() == [b"a"]


def test_a_frame_that_comes_again_while_its_commit_runs_is_released_and_asked_for_later(scene: Scene) -> None:
    sender = scene.frames_sender()
    send_frame(sender, b"a", producer=b"p", sequence=4)
    before_it_is_cut = send_frame(sender, b"a", producer=b"p", sequence=4)
    scene.harness.turn()
    while_it_runs = send_frame(sender, b"a", producer=b"p", sequence=4)
    assert sender.states == {before_it_is_cut: RELEASED, while_it_runs: RELEASED}
    scene.harness.commit()
    after = send_frame(sender, b"a", producer=b"p", sequence=4)
    assert sender.states[0] is sender.states[after] is ACCEPTED
    scene.harness.commit()
    assert scene.rows() == [b"a"]


def test_producers_and_partitions_are_told_apart() -> None:
    scene = Scene(2)
    for partition in range(2):
        for producer in (b"p", b"q", b"p" * 255):
            send_frame(scene.frames_sender(partition), producer[:1], producer=producer, sequence=1)
    scene.harness.commit()
    assert [len(scene.rows(partition)) for partition in range(2)] == [3, 3]


def test_a_frame_without_a_producer_is_stored_each_time(scene: Scene) -> None:
    sender = scene.frames_sender()
    send_frame(sender, b"a")
    send_frame(sender, b"a")
    scene.harness.commit()
    assert scene.rows() == [b"a", b"a"]


def test_a_frame_whose_commit_failed_is_new_when_it_comes_again(scene: Scene) -> None:
    sender = scene.frames_sender()
    send_frame(sender, b"a", producer=b"p", sequence=4)
    scene.harness.fail()
    scene.harness.advance(PAUSE_S)
    send_frame(sender, b"a", producer=b"p", sequence=4)
    scene.harness.commit()
    assert sender.outcomes == [(0, RELEASED), (1, ACCEPTED)]
    assert scene.rows() == [b"a"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_failed_frame_is_not_taken_for_a_duplicate_of_what_was_stored_after_it(
    scene: Scene, restarts: bool
) -> None:
    sender = scene.frames_sender()
    send_frame(sender, b"4", producer=b"p", sequence=4)
    scene.harness.turn()
    send_frame(sender, b"5", producer=b"p", sequence=5)
    scene.harness.fail()
    send_frame(sender, b"6", producer=b"p", sequence=6)
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    assert scene.rows() == [b"5", b"6"]
    again = scene.restart() if restarts else scene
    port = again.frames_sender()
    for sequence in (4, 5, 6, 4):
        send_frame(port, b"%d" % sequence, producer=b"p", sequence=sequence)
        again.harness.commit()
    assert [state for _, state in port.outcomes] == [ACCEPTED] * 4
    assert again.rows() == [b"5", b"6", b"4"]
    third = again.restart()
    send_frame(third.frames_sender(), b"4", producer=b"p", sequence=4)
    third.harness.commit()
    assert third.rows() == [b"5", b"6", b"4"]


def test_a_duplicate_of_a_frame_whose_commit_fails_is_not_accepted(scene: Scene) -> None:
    sender = scene.frames_sender()
    send_frame(sender, b"a", producer=b"p", sequence=1)
    scene.harness.turn()
    send_frame(sender, b"a", producer=b"p", sequence=1)
    send_frame(sender, b"b")
    scene.harness.fail()
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    assert sender.states == {0: RELEASED, 1: RELEASED, 2: ACCEPTED}
    assert scene.rows() == [b"b"]


def test_a_producer_that_never_sends_again_what_failed_does_not_fill_the_memory(scene: Scene) -> None:
    partition = scene.stream.partitions[0]
    for turn in range(3):
        for number in range(3_000):
            partition.append_once(b"", None, b"p", turn * 3_000 + number)
        scene.harness.fail()
        scene.harness.advance(PAUSE_S)
    partition.append_once(b"", None, b"p", 10_000)
    scene.harness.commit()
    ((_, record),) = scene.harness.storage.scan_all(Table.PRODUCER)
    assert len(record) == 8 * (1 + 4_096) + 4


# Numbered messages


def test_a_numbered_message_is_stored_once(scene: Scene) -> None:
    sender = scene.numbered_sender()
    sender.send(numbered(0))
    sender.send(numbered(1))
    scene.harness.commit()
    sender.send(numbered(1))
    sender.send(numbered(2))
    scene.harness.commit()
    assert [state for _, state in sender.outcomes] == [ACCEPTED] * 4
    assert scene.rows() == [b"0", b"1", b"2"]
    port = scene.restart()
    again = port.numbered_sender(b"p1")
    again.send(numbered(2))
    port.harness.commit()
    assert port.rows() == [b"0", b"1", b"2"]


def test_numbered_messages_that_failed_while_others_followed_are_stored_when_they_come_again(scene: Scene) -> None:
    sender = scene.numbered_sender()
    for number in range(3):
        sender.send(numbered(number))
    scene.harness.turn()
    for number in range(3, 6):
        sender.send(numbered(number))
    scene.harness.fail()
    for number in range(6, 8):
        sender.send(numbered(number))
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    for number in range(8):
        sender.send(numbered(number))
    scene.harness.commit()
    assert sorted(scene.rows()) == [b"%d" % number for number in range(8)]
    assert all(state is ACCEPTED for _, state in sender.outcomes[-8:])


def test_a_numbered_message_without_a_key_goes_where_it_went_before() -> None:
    scene = Scene(4)
    sender = scene.numbered_sender()
    for _ in range(2):
        for number in range(8):
            sender.send(numbered(number))
        scene.harness.commit()
    stored = [body for index in range(4) for body in scene.rows(index)]
    assert sorted(stored) == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize("sequence", [None, -1, "1", True, 1.5])
def test_a_numbered_message_without_a_number_is_rejected(scene: Scene, sequence: Any) -> None:
    sender = scene.numbered_sender()
    annotations = None if sequence is None else {"x-opt-sequence": sequence}
    payload = encode_message(b"x", message_annotations=annotations)
    sender.send(payload)
    sender.send(payload, settled=True)
    scene.harness.commit()
    ((_, state),) = sender.outcomes
    assert isinstance(state, Rejected)
    assert scene.rows() == []


@pytest.mark.parametrize("name", ["", b"", "x" * 256, 7, ["p"]])
def test_a_producer_has_a_name_of_1_to_255_bytes(scene: Scene, name: Any) -> None:
    with pytest.raises(AttachError, match="1 to 255 bytes"):
        scene.numbered_sender(name)
