"""Readers of streams: of messages, of whole frames, of offsets; from where, to where, and how many."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import RELEASED, Rejected
from enmasse.message.sections import Sections, encode_message
from enmasse.message.types import Timestamp
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.errors import AttachError
from enmasse.messaging.log.frame import Frame
from enmasse.messaging.streams import readers as stream_readers
from enmasse.messaging.streams import stream
from enmasse.messaging.streams.producers import FRAME_FORMAT
from enmasse.testing.ports import FIRST_WALL_US, CoreHarness, MemoryConsumerPort
from tests.support.stream_scene import StreamScene


class Scene(StreamScene):
    """A stream with rows whose bodies are their numbers, one frame of ``size`` rows after the other."""

    def __init__(self, rows: int = 0, *, size: int = 3, partitions: int = 1, harness: CoreHarness | None = None):
        super().__init__(partitions, harness=harness)
        for first in range(0, rows, size):
            self.append_numbers(*range(first, min(first + size, rows)))

    def append_numbers(self, *numbers: int, partition: int = 0, commit: bool = True) -> None:
        for number in numbers:
            self.stream.partitions[partition].append(encode_message(b"%d" % number), None)
        if commit:
            self.harness.commit()

    def settle(self) -> None:
        """Let the disk answer until nobody asks any more, and write nothing."""
        self.harness.turn()
        while self.harness.storage.waiting_reads:
            self.harness.storage.answer_reads()
            self.harness.turn()


def numbers(port: MemoryConsumerPort) -> list[int]:
    return [int(Sections(payload).body) for payload in port.payloads]


def ranges(port: MemoryConsumerPort) -> list[tuple[int, int]]:
    frames = [Frame(payload) for payload in port.payloads]
    return [(frame.first_offset, frame.next_offset) for frame in frames]


# Messages


def test_a_reader_gets_what_comes_after_it_unless_it_asks_for_more() -> None:
    scene = Scene(5)
    reader = scene.reader()
    assert numbers(reader) == []
    scene.append_numbers(5, 6)
    assert numbers(reader) == [5, 6]


@pytest.mark.parametrize(
    ("start", "expected"),
    [("first", list(range(7))), ("next", []), ("last", [6]), (0, list(range(7))), (4, [4, 5, 6]), (7, []), (9, [])],
)
def test_a_reader_starts_where_it_asks_to(start: Any, expected: list[int]) -> None:
    scene = Scene(7)
    assert numbers(scene.reader(start=start)) == expected


def test_a_reader_that_starts_beyond_the_end_waits_for_its_offset() -> None:
    scene = Scene(3)
    reader = scene.reader(start=5)
    scene.append_numbers(3, 4, 5, 6)
    assert numbers(reader) == [5, 6]


def test_the_last_of_an_empty_stream_is_the_first_to_come() -> None:
    scene = Scene()
    reader = scene.reader(start="last")
    scene.append_numbers(0)
    assert numbers(reader) == [0]


@pytest.mark.parametrize("start", ["latest", -1, 1.5, True, b"first"])
def test_a_start_that_is_not_served_is_refused(start: Any) -> None:
    with pytest.raises(AttachError, match="first, last, next, an offset or a timestamp"):
        Scene(1).reader(start=start)


def test_readers_see_rows_only_after_their_commit() -> None:
    scene = Scene(2)
    reader = scene.reader(start="first")
    scene.append_numbers(2, commit=False)
    scene.harness.turn()
    assert numbers(reader) == [0, 1]
    scene.harness.commit()
    assert numbers(reader) == [0, 1, 2]


def test_readers_never_see_rows_whose_commit_failed() -> None:
    scene = Scene(2)
    reader = scene.reader(start="first")
    scene.append_numbers(99, commit=False)
    scene.harness.fail()
    scene.harness.advance(PAUSE_S)
    scene.append_numbers(2)
    assert numbers(reader) == [0, 1, 2]


def test_reading_consumes_nothing_whatever_the_outcome() -> None:
    scene = Scene(4)
    first = scene.reader(start="first")
    first.accept()
    first.settle(RELEASED)
    first.settle(Rejected())
    second = scene.reader(start="first")
    assert numbers(first) == numbers(second) == [0, 1, 2, 3]
    counts = scene.stream.counts()
    assert (counts["accepted"], counts["released"], counts["rejected"], counts["unsettled"]) == (1, 1, 1, 5)
    assert counts["messagesStored"] == 4


def test_each_message_costs_a_credit_and_reading_goes_on_where_it_stopped() -> None:
    scene = Scene(8)
    reader = scene.reader(2, start="first")
    assert numbers(reader) == [0, 1]
    reader.grant(3)
    scene.harness.turn()
    assert numbers(reader) == [0, 1, 2, 3, 4]


def test_a_message_tells_its_place_and_time() -> None:
    scene = Scene(2)
    scene.harness.advance(1.5)
    scene.append_numbers(7, partition=0)
    annotations = Sections(scene.reader(start="last").payloads[0]).message_annotations
    assert annotations == {
        "x-opt-offset": 2,
        "x-opt-partition": 0,
        "x-opt-enqueued-time": FIRST_WALL_US // 1000 + 1_500,
    }


def test_annotations_of_the_sender_stay() -> None:
    scene = Scene()
    payload = encode_message(b"x", message_annotations={"x-opt-partition-key": "k", "x-opt-offset": 99})
    scene.stream.partitions[0].append(payload, None)
    scene.harness.commit()
    annotations = Sections(scene.reader(start="first").payloads[0]).message_annotations
    assert (annotations["x-opt-partition-key"], annotations["x-opt-offset"]) == ("k", 0)


def test_a_message_that_cannot_be_read_comes_as_it_was_sent() -> None:
    scene = Scene()
    scene.stream.partitions[0].append(b"\x00\x53\x72garbage", None)
    scene.harness.commit()
    assert scene.reader(start="first").payloads == [b"\x00\x53\x72garbage"]


def test_a_reader_reads_all_partitions_in_turn_unless_it_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_readers, "CHUNK_ROWS", 1)
    scene = Scene(partitions=3)
    for partition in range(3):
        scene.append_numbers(*range(partition * 10, partition * 10 + 3), partition=partition)
    everything = numbers(scene.reader(start="first"))
    assert sorted(everything) == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    assert sorted(number // 10 for number in everything[:3]) == [0, 1, 2]
    assert numbers(scene.reader(start="first", partition=1)) == [10, 11, 12]


def test_a_blocked_reader_is_served_when_its_connection_is_free() -> None:
    scene = Scene()
    reader = scene.reader()
    reader.block()
    scene.append_numbers(0)
    assert numbers(reader) == []
    reader.block(False)
    scene.harness.turn()
    assert numbers(reader) == [0]


def test_a_drained_reader_gets_what_there_is_and_has_no_credit_left() -> None:
    scene = Scene(3)
    reader = scene.reader(0, start="first")
    reader.drain(10)
    assert numbers(reader) == [0, 1, 2]
    assert reader.credit == 0


def test_a_reader_of_settled_messages_gets_them_settled() -> None:
    scene = Scene(1)
    port = scene.harness.receiver(scene.stream, 5, presettle=True, filters={"enmasse:start": "first"})
    scene.harness.turn()
    assert port.arrivals[0].settled


def test_a_reader_that_leaves_leaves_nothing_behind() -> None:
    scene = Scene(3)
    reader = scene.reader(start="first")
    reader.leave()
    assert reader.unsettled == []
    assert scene.stream.consumers == []


# Frames


def test_a_reader_of_frames_gets_them_as_they_are_stored() -> None:
    scene = Scene(7)
    reader = scene.frames(from_=0)
    assert ranges(reader) == [(0, 3), (3, 6), (6, 7)]
    assert {arrival.message_format for arrival in reader.arrivals} == {FRAME_FORMAT}
    frame = Frame(reader.payloads[0])
    assert frame.cells(frame.bodies) == [b"0", b"1", b"2"]


def test_frames_that_overlap_the_range_come_whole_and_the_link_is_closed_at_its_end() -> None:
    scene = Scene(9)
    reader = scene.frames(from_=4, to=7)
    assert ranges(reader) == [(3, 6), (6, 9)]
    assert reader.is_detached
    assert reader.error is None
    assert scene.stream.consumers == []


def test_a_range_that_ends_between_two_frames_takes_no_more_than_it_needs() -> None:
    reader = Scene(9).frames(from_=3, to=6)
    assert ranges(reader) == [(3, 6)]
    assert reader.is_detached


def test_an_empty_range_is_closed_as_soon_as_there_is_credit() -> None:
    reader = Scene(9).frames(1, from_=3, to=3)
    assert reader.arrivals == []
    assert reader.is_detached


def test_a_range_that_is_not_stored_yet_is_waited_for() -> None:
    scene = Scene(3)
    reader = scene.frames(from_=0, to=5)
    assert ranges(reader) == [(0, 3)]
    assert not reader.is_detached
    scene.append_numbers(3, 4, 5)
    assert ranges(reader) == [(0, 3), (3, 6)]
    assert reader.is_detached


def test_each_frame_costs_a_credit() -> None:
    scene = Scene(9)
    reader = scene.frames(1, from_=0, to=9)
    assert ranges(reader) == [(0, 3)]
    reader.grant(1)
    scene.harness.turn()
    assert ranges(reader) == [(0, 3), (3, 6)]
    assert not reader.is_detached
    reader.grant(1)
    scene.harness.turn()
    assert reader.is_detached


def test_a_reader_of_frames_starts_with_what_comes_next_unless_it_says_from_where() -> None:
    scene = Scene(3)
    reader = scene.frames()
    scene.append_numbers(3)
    assert ranges(reader) == [(3, 4)]


def test_a_reader_of_frames_reads_one_partition() -> None:
    scene = Scene(partitions=2)
    scene.append_numbers(1, partition=0)
    scene.append_numbers(2, 3, partition=1)
    assert ranges(scene.frames(partition=1, from_=0)) == [(0, 2)]
    assert ranges(scene.frames(from_=0)) == [(0, 1)]


@pytest.mark.parametrize(
    "filters", [{"from_": -1}, {"from_": "0"}, {"from_": True}, {"to": 1.5}, {"partition": -1}, {"partition": 2}]
)
def test_filters_that_do_not_fit_are_refused(filters: dict[str, Any]) -> None:
    with pytest.raises(AttachError) as refusal:
        Scene(partitions=2).frames(**filters)
    assert refusal.value.condition == "amqp:invalid-field"


def test_a_partition_that_does_not_exist_is_refused_for_messages_too() -> None:
    with pytest.raises(AttachError, match="partitions 0 to 1, not 2"):
        Scene(partitions=2).reader(partition=2)


# From memory and from the journal


@pytest.mark.parametrize("tail_bytes", [1, 500, 1 << 20])
@pytest.mark.parametrize("start", [0, 1, 30, 58, 59])
def test_memory_and_journal_give_the_same_rows(monkeypatch: pytest.MonkeyPatch, tail_bytes: int, start: int) -> None:
    monkeypatch.setattr(stream, "TAIL_BYTES", tail_bytes)
    scene = Scene(60, size=4)
    expected = list(range(start, 60))
    assert numbers(scene.reader(start=start)) == expected
    again = Scene(harness=scene.harness.restarted())
    assert numbers(again.reader(start=start)) == expected
    wanted = [(first, first + 4) for first in range(0, 60, 4) if first + 4 > start]
    assert ranges(again.frames(from_=start, to=60)) == wanted
    again.append_numbers(60)
    assert numbers(again.reader(start=start)) == [*expected, 60]


@pytest.mark.parametrize("limit", [1, 300, 1 << 20])
def test_reading_in_small_steps_gives_the_same_rows(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr("enmasse.messaging.streams.readers.READ_BYTES", limit)
    scene = Scene(40)
    again = Scene(harness=scene.harness.restarted())
    assert numbers(again.reader(start="first")) == list(range(40))


def test_a_slow_reader_goes_on_in_the_journal_where_memory_no_longer_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "TAIL_BYTES", 400)
    scene = Scene()
    reader = scene.reader(1, start="first")
    for number in range(30):
        scene.append_numbers(number)
        if number % 3 == 0:
            reader.grant(1)
            scene.settle()
    reader.grant(100)
    scene.settle()
    assert numbers(reader) == list(range(30))


def test_rows_that_are_on_disk_but_not_answered_yet_are_not_shown() -> None:
    scene = Scene(3)
    reader = scene.reader(start="first")
    scene.append_numbers(3, commit=False)
    scene.harness.turn()
    scene.harness.storage.listener = None
    scene.harness.storage.commit()
    late = scene.reader(start="first")
    assert numbers(reader) == numbers(late) == [0, 1, 2]


# Offsets


def told(port: MemoryConsumerPort) -> list[Any]:
    return [Sections(payload).body for payload in port.payloads]


def test_a_reader_of_offsets_is_told_at_once_and_then_of_changes() -> None:
    scene = Scene(partitions=2)
    reader = scene.offsets(url="amqp://here:1")
    assert told(reader) == [
        {
            "stream": "u1",
            "partitions": [[0, 0, 0, "amqp://here:1"], [1, 0, 0, "amqp://here:1"]],
            "bytes": [0, 0],
        },
    ]
    assert reader.arrivals[0].settled
    scene.append_numbers(1, 2, partition=1)
    assert told(reader)[1]["partitions"] == [[0, 0, 0, "amqp://here:1"], [1, 0, 2, "amqp://here:1"]]
    assert told(reader)[1]["bytes"] == [0, scene.stream.bytes_stored]
    scene.stream.advanced()
    scene.harness.turn()
    assert len(reader.arrivals) == 2


@pytest.mark.parametrize(
    ("after_s", "starts"), [(-1, [0, 0]), (0, [0, 0]), (1, [0, 0]), (2, [3, 0]), (3, [6, 0]), (99, [6, 0])]
)
def test_a_reader_of_offsets_is_told_in_which_frame_a_moment_lies(after_s: int, starts: list[int]) -> None:
    scene = Scene(partitions=2)
    for second in range(3):
        scene.append_numbers(1, 2, 3)
        assert scene.stream.partitions[0].visible == 3 * second + 3
        scene.harness.advance(1.0)
    reader = scene.offsets(start=Timestamp(FIRST_WALL_US // 1000 + after_s * 1000))
    assert told(reader)[0]["starts"] == starts


@pytest.mark.parametrize("start", ["first", 3, True])
def test_a_reader_of_offsets_asks_for_moments_alone(start: Any) -> None:
    with pytest.raises(AttachError, match="takes a timestamp"):
        Scene().offsets(start=start)


def test_changes_that_come_while_there_is_no_credit_are_told_together() -> None:
    scene = Scene()
    reader = scene.offsets(1)
    for number in range(5):
        scene.append_numbers(number)
    assert len(reader.arrivals) == 1
    reader.grant(1)
    scene.harness.turn()
    assert [value["partitions"][0][2] for value in told(reader)] == [0, 5]


def test_draining_a_reader_of_offsets_sends_nothing_without_credit() -> None:
    scene = Scene(1)
    reader = scene.offsets(0)
    reader.drain(0)
    assert reader.arrivals == []
    reader.drain(5)
    assert (len(reader.arrivals), reader.credit) == (1, 0)


def test_rows_whose_commit_failed_are_not_announced() -> None:
    scene = Scene(1)
    reader = scene.offsets(url="amqp://here:1")
    scene.append_numbers(1, commit=False)
    scene.harness.fail()
    assert [value["partitions"][0][2] for value in told(reader)] == [1]
