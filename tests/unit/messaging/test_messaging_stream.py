"""Streams: which partition, which offset, stored before accepted, and nothing twice from idempotent senders."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.messaging.core import MAX_UNCONFIRMED_BYTES, PAUSE_S
from enmasse.messaging.delivery import ACCEPTED, RELEASED
from enmasse.messaging.errors import AttachError
from enmasse.messaging.frame import Frame, encode_frame
from enmasse.messaging.log import FRAME_BYTES, FRAME_ROWS, log_range
from enmasse.messaging.partition import partition_of
from enmasse.messaging.queue import MAX_CREDIT, UNSUPPORTED_FORMAT
from enmasse.messaging.storage import Operation, Table
from enmasse.messaging.stream import (
    FRAME_CREDIT,
    FRAME_FORMAT,
    FRAMES_CAPABILITY,
    IN_FLIGHT_BYTES,
    Stream,
)
from enmasse.testing.ports import FIRST_WALL_US, CoreHarness, MemoryProducerPort
from enmasse.wire.amqp.performatives import Rejected
from enmasse.wire.amqp.sections import Properties, encode_message

LOG = 9


class Scene:
    """A stream over a storage in memory."""

    def __init__(self, partitions: int = 1, harness: CoreHarness | None = None, **options: Any) -> None:
        self.harness = harness or CoreHarness()
        self.stream = Stream(self.harness.core, "log", LOG, uid="u1", partitions=partitions, **options)
        self.stream.load()

    def sender(self, **options: Any) -> MemoryProducerPort:
        port = self.harness.sender(self.stream, **options)
        self.harness.turn()
        return port

    def frames_sender(self, partition: int = 0) -> MemoryProducerPort:
        return self.sender(capabilities=(FRAMES_CAPABILITY,), properties={"enmasse:partition": partition})

    def numbered_sender(self, name: Any = "p1") -> MemoryProducerPort:
        return self.sender(properties={"enmasse:producer": name})

    def stored(self, partition: int = 0) -> list[Frame]:
        found = self.harness.storage.scan(Table.FRAME, *log_range(LOG, partition), 1 << 30)
        return [Frame(value) for _, value in found]

    def rows(self, partition: int = 0) -> list[bytes]:
        """The bodies on disk by offset; offsets have no gaps."""
        rows: list[bytes] = []
        for frame in self.stored(partition):
            assert frame.first_offset == len(rows)
            rows += frame.cells(frame.bodies)
        return rows

    def restart(self, through: int = 0) -> Scene:
        return Scene(len(self.stream.partitions), self.harness.restarted(through))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def keyed(key: Any, body: bytes = b"x", *, annotation: Any = None) -> bytes:
    return encode_message(
        body,
        properties=None if key is None else Properties(subject=key),
        message_annotations=None if annotation is None else {"x-opt-partition-key": annotation},
    )


def numbered(sequence: Any, body: bytes = b"", key: str | None = None) -> bytes:
    return encode_message(
        body or b"%d" % sequence,
        message_annotations={"x-opt-sequence": sequence},
        properties=None if key is None else Properties(subject=key),
    )


def frame(*bodies: bytes, producer: bytes = b"", sequence: int = 0, first: int = 99) -> bytes:
    count = len(bodies)
    heads = [b"\x00\x53\x75\xa0" + bytes([len(body)]) for body in bodies]
    return encode_frame(first, [5] * count, [b"k"] * count, heads, bodies, producer=producer, sequence=sequence)


def send_frame(port: MemoryProducerPort, *bodies: bytes, producer: bytes = b"", sequence: int = 0) -> int:
    return port.send(frame(*bodies, producer=producer, sequence=sequence), message_format=FRAME_FORMAT)


# Partitions


def chosen(scene: Scene, *payloads: bytes) -> list[int]:
    sender = scene.sender()
    found = []
    for payload in payloads:
        before = [partition.next_offset for partition in scene.stream.partitions]
        sender.send(payload)
        scene.harness.commit()
        after = [partition.next_offset for partition in scene.stream.partitions]
        found.append(next(index for index, (a, b) in enumerate(zip(before, after, strict=True)) if a != b))
    return found


@pytest.mark.parametrize("key", ["device-1", "device-2", "ä", ""])
def test_a_message_with_a_subject_goes_where_kafka_would_put_that_key(key: str) -> None:
    if key:
        assert chosen(Scene(7), keyed(key)) == [partition_of(key.encode(), 7)]
    else:
        assert chosen(Scene(3), *[keyed("")] * 4) == [1, 2, 0, 1]


def test_the_annotation_comes_before_the_subject() -> None:
    assert chosen(Scene(50), keyed("device-1", annotation="other")) == [partition_of(b"other", 50)]


@pytest.mark.parametrize(("annotation", "key"), [(b"\xff\x00", b"\xff\x00"), (17, b"17")])
def test_a_key_may_be_bytes_or_a_number(annotation: Any, key: bytes) -> None:
    assert chosen(Scene(50), keyed(None, annotation=annotation)) == [partition_of(key, 50)]


def test_messages_without_a_key_take_turns() -> None:
    assert sorted(chosen(Scene(4), *[keyed(None)] * 8)) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_message_that_cannot_be_read_has_no_key() -> None:
    scene = Scene(2)
    scene.sender().send(b"\x00\x53\x72garbage")
    scene.harness.commit()
    assert sum(partition.next_offset for partition in scene.stream.partitions) == 1


def test_equal_keys_stay_together_and_in_order() -> None:
    scene = Scene(5)
    sender = scene.sender()
    for number in range(40):
        sender.send(keyed(f"k{number % 4}", b"%d" % number))
        if number % 7 == 0:
            scene.harness.commit()
    scene.harness.commit()
    for index in range(5):
        numbers = [int(body) for body in scene.rows(index)]
        for key in range(4):
            mine = [number for number in numbers if number % 4 == key]
            assert mine == sorted(mine)
            assert not mine or partition_of(b"k%d" % key, 5) == index


# Appending


def test_every_message_is_accepted_only_after_its_commit_whatever_its_durable_flag(scene: Scene) -> None:
    sender = scene.sender()
    sender.send(encode_message(b"one"))
    scene.harness.turn()
    assert sender.outcomes == []
    scene.harness.commit()
    assert sender.outcomes == [(0, ACCEPTED)]
    assert scene.rows() == [b"one"]


def test_offsets_are_consecutive_over_turns_frames_and_restarts() -> None:
    scene = Scene(2)
    total = 0
    for turn in range(3):
        sender = scene.sender()
        for _ in range(turn + 2):
            sender.send(keyed("a"))
            sender.send(keyed("b"))
            total += 2
        scene.harness.commit()
        if turn == 1:
            scene = scene.restart()
    assert len(scene.rows(0)) + len(scene.rows(1)) == total
    assert [p.next_offset for p in scene.stream.partitions] == [len(scene.rows(0)), len(scene.rows(1))]


def test_what_one_turn_wrote_to_a_partition_is_one_frame_with_the_turns_time(scene: Scene) -> None:
    scene.harness.advance(2.5)
    sender = scene.sender()
    for _ in range(10):
        sender.send(keyed("k", b"body"))
    scene.harness.commit()
    (stored,) = scene.stored()
    assert stored.rows == 10
    assert stored.timestamps().tolist() == [FIRST_WALL_US + 2_500_000] * 10
    assert stored.cells(stored.keys) == [b"k"] * 10
    assert stored.payloads() == [keyed("k", b"body")] * 10


def test_a_turn_that_is_too_large_for_one_frame_is_several(scene: Scene) -> None:
    partition = scene.stream.partitions[0]
    for _ in range(FRAME_ROWS + 1):
        partition.append(encode_message(b"x"), None)
    for _ in range(3):
        partition.append(encode_message(bytes(FRAME_BYTES // 2)), None)
    scene.harness.commit()
    assert [found.rows for found in scene.stored()] == [FRAME_ROWS, 3, 1]
    assert len(scene.rows()) == FRAME_ROWS + 4


def test_a_settled_message_is_stored_and_answered_by_nobody(scene: Scene) -> None:
    sender = scene.sender()
    sender.send(encode_message(b"one"), settled=True)
    scene.harness.commit()
    assert sender.outcomes == []
    assert scene.rows() == [b"one"]


def test_only_messages_of_format_0_come_from_ordinary_senders(scene: Scene) -> None:
    sender = scene.sender()
    sender.send(frame(b"x"), message_format=FRAME_FORMAT)
    sender.send(frame(b"x"), message_format=FRAME_FORMAT, settled=True)
    scene.harness.commit()
    assert sender.outcomes == [(0, UNSUPPORTED_FORMAT)]
    assert scene.rows() == []


# Failed commits


def test_a_failed_commit_releases_its_senders_and_gives_its_offsets_to_others(scene: Scene) -> None:
    sender = scene.sender()
    sender.send(encode_message(b"stored"))
    scene.harness.commit()
    sender.send(encode_message(b"lost"))
    scene.harness.turn()
    sender.send(encode_message(b"later"))
    scene.harness.fail()
    assert sender.states[1] is RELEASED
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    assert sender.states[2] is ACCEPTED
    assert scene.rows() == [b"stored", b"later"]
    assert scene.stream.counts()["messagesStored"] == 2
    assert scene.restart().rows() == [b"stored", b"later"]


def test_counters_are_exact_after_failures_and_restarts() -> None:
    scene = Scene(2)
    sender = scene.sender()
    for turn in range(6):
        for number in range(turn + 1):
            sender.send(keyed(f"k{number}"))
        if turn % 3 == 1:
            scene.harness.fail()
            scene.harness.advance(PAUSE_S)
        else:
            scene.harness.commit()
    again = scene.restart()
    for found in (scene, again):
        frames = [frame for index in range(2) for frame in found.stored(index)]
        counts = found.stream.counts()
        assert counts["messagesStored"] == sum(frame.rows for frame in frames) == 1 + 3 + 4 + 6
        payloads = [payload for frame in frames for payload in frame.payloads()]
        # Each row takes its message, its key (two bytes here) and 20 bytes of columns.
        assert counts["bytesStored"] == sum(len(payload) + 2 + 20 for payload in payloads)


def test_a_partition_loads_its_own_offsets_and_not_its_neighbours() -> None:
    scene = Scene(3)
    for partition, rows in ((1, 5), (2, 1)):
        sender = scene.frames_sender(partition)
        send_frame(sender, *[b"x"] * rows)
    scene.harness.commit()
    again = scene.restart()
    assert [partition.next_offset for partition in again.stream.partitions] == [0, 5, 1]


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
    again = Scene(1, scene.harness.restarted(), max_bytes=20_000)
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


def test_senders_of_large_messages_are_granted_fewer(scene: Scene) -> None:
    sender = scene.sender()
    assert sender.credit == MAX_CREDIT
    size = 128 << 10
    for _ in range(12):
        sender.send(encode_message(bytes(size)))
        scene.harness.turn()
        scene.harness.commit()
    assert 0 < sender.credit * size <= 2 * IN_FLIGHT_BYTES
