"""What a task does with its rows, beside a connection that keeps what it was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
import pytest

from enmasse.client import LinkRefusedError, Outcome
from enmasse.message.sections import Sections
from enmasse.message.types import Int
from enmasse.messaging.log.frame import Frame
from enmasse.messaging.streams.heads import partition_of
from enmasse.pipeline.errors import OptionError, RowRefusedError
from enmasse.pipeline.sink import task
from enmasse.pipeline.sink.connection import Result, SpaceConnection
from enmasse.pipeline.sink.identity import Identity
from enmasse.pipeline.sink.options import SinkOptions
from enmasse.pipeline.sink.packing import AddressInfo, Parcel
from enmasse.pipeline.sink.task import Counts, SinkTask

REJECTED = Outcome("rejected", "amqp:decode-error", "no")


class Space:
    """Addresses that take everything, but what is listed as rejected."""

    def __init__(self, **kinds: str) -> None:
        self._kinds = kinds
        self.rejects: tuple[bytes, ...] = ()
        self.parcels: list[Parcel] = []

    def info(self, address: str, producer: str) -> AddressInfo:
        if address not in self._kinds:
            raise LinkRefusedError("amqp:not-found", f"no address {address}")
        return AddressInfo(self._kinds[address], 2, 1_000_000)

    def ship(self, parcels: Sequence[Parcel], stall_s: float) -> list[Result]:
        self.parcels += parcels
        return [REJECTED if parcel.payload.endswith(self.rejects) else Outcome.ACCEPTED for parcel in parcels]

    def write(
        self,
        *values: str | None,
        address: str = "",
        to: Sequence[str] = (),
        beside: Any = None,
        **options: Any,
    ) -> Counts:
        columns: dict[str, Any] = {"value": pa.array(values, pa.string()), **(beside or {})}
        if to:
            columns["address"] = to
        chosen = SinkOptions(url="amqp://x", address=address, **options)
        sink = SinkTask(chosen, Identity("query", 3, 1), lambda: cast("SpaceConnection", self))
        return sink.write([pa.record_batch(columns)])

    def bodies(self, address: str) -> list[bytes]:
        found = []
        for parcel in self.parcels:
            if parcel.link.address == address and parcel.link.partition < 0:
                found.append(Sections(parcel.payload).body)
            elif parcel.link.address == address:
                found += [Sections(payload).body for payload in Frame(parcel.payload).payloads()]
        return found


def rejecting(ending: bytes, **kinds: str) -> Space:
    space = Space(**kinds)
    space.rejects = (ending,)
    return space


def test_rows_go_where_they_are_told() -> None:
    space = Space(q="queue", s="stream")
    assert space.write("a", "b", "c", address="q", to=["s", "q", ""]) == Counts(rows=3)
    assert (space.bodies("q"), space.bodies("s")) == ([b"b", b"c"], [b"a"])


def test_a_row_that_is_refused_ends_the_task_by_its_name() -> None:
    with pytest.raises(
        RowRefusedError, match="'nowhere' does not take row 1 of task 1 in batch 3 of query: amqp:not-"
    ):
        Space(q="queue").write("a", "b", to=["q", "nowhere"])
    with pytest.raises(RowRefusedError, match=r"does not take row 0 .*rejected .amqp:decode-error"):
        rejecting(b"bad", q="queue").write("bad", address="q")
    with pytest.raises(RowRefusedError, match="no address takes row 0"):
        Space(q="queue").write("a", to=[""])


def test_refused_rows_go_to_the_address_for_bad_records_before_their_neighbours_are_sent() -> None:
    space = Space(q="queue", bad="queue")
    counts = space.write("a", None, "c", address="q", bad_records="bad")
    assert counts == Counts(rows=3, refused=1)
    assert [parcel.link.address for parcel in space.parcels] == ["bad", "q", "q"]
    (bad, *_) = space.parcels
    assert bad.link.producer == "query/1/row/q"
    space.write("c", "a", None, None, None, to=["x", "y", "", "", "z"], bad_records="bad")
    numbers: dict[str, list[int]] = {}
    for parcel in space.parcels[3:]:
        sequence = Sections(parcel.payload).message_annotations["x-opt-sequence"]
        numbers.setdefault(parcel.link.producer, []).append(sequence & 0xFFFF)
    assert numbers == {
        "query/1/address/3": [0],
        "query/1/address/21": [1],
        "query/1/row/": [2, 3],
        "query/1/row/z": [4],
    }
    assert Sections(bad.payload).application_properties == {
        "enmasse-reason": "its value is null",
        "enmasse-address": "q",
        "enmasse-query": "query",
        "enmasse-batch": 3,
        "enmasse-task": 1,
        "enmasse-row": 1,
    }


def test_what_an_address_rejects_is_at_the_address_for_bad_records_too() -> None:
    class Picky(Space):
        def ship(self, parcels: Sequence[Parcel], stall_s: float) -> list[Result]:
            self.parcels += parcels
            wrong = [parcel.link.address == "q" and parcel.payload.endswith(b"bad") for parcel in parcels]
            return [REJECTED if is_wrong else Outcome.ACCEPTED for is_wrong in wrong]

    space = Picky(q="queue", bad="stream")
    assert space.write("a", "bad", "c", address="q", bad_records="bad") == Counts(rows=3, refused=1)
    assert space.bodies("bad") == [b"bad"]
    with pytest.raises(RowRefusedError, match="the address for bad records refuses it too"):
        rejecting(b"worse", q="queue", bad="stream").write("worse", address="q", bad_records="bad")


@pytest.mark.parametrize("options", [{"address": "nowhere"}, {"address": "q", "bad_records": "nowhere"}])
def test_an_option_that_names_no_address_ends_the_task(options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"option (address|badRecords): cannot write to 'nowhere'.*amqp:not-found"):
        Space(q="queue").write("a", None, **options)


def test_a_frame_that_is_refused_is_never_taken_for_one_row() -> None:
    class Changed(Space):
        def ship(self, parcels: Sequence[Parcel], stall_s: float) -> list[Result]:
            return [LinkRefusedError("amqp:not-found", "gone")] * len(parcels)

    with pytest.raises(RowRefusedError, match="and of 1 rows after it"):
        Changed(s="stream", bad="queue").write("a", "b", address="s", bad_records="bad")


def test_rows_are_numbered_by_their_content_where_that_is_asked_for() -> None:
    sent = []
    for values in (("a", "b", "c"), ("c", "a", "b")):
        space = Space(q="queue")
        space.write(*values, address="q", is_sorted=True)
        sent.append([parcel.payload for parcel in space.parcels])
    assert sent[0] == sent[1]


def test_what_is_sent_together_depends_on_the_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of one address are the same, whether rows of another were refused or not."""
    monkeypatch.setattr(task, "BUFFERED_BYTES", 1_000)
    monkeypatch.setattr(task, "SENT_PARCELS", 3)
    frames = []
    for kinds in ({"s": "stream", "q": "queue"}, {"s": "stream"}):
        space = Space(bad="queue", **kinds)
        values = ["x" * (50 + n) for n in range(100)]
        space.write(*values, to=["s" if n % 3 else "q" for n in range(100)], bad_records="bad")
        frames.append([parcel.payload for parcel in space.parcels if parcel.link.address == "s"])
    assert len(frames[0]) > 3
    assert frames[0] == frames[1]


def test_headers_that_no_message_can_have_are_refused_and_the_row_is_kept() -> None:
    space = Space(a="stream", q="queue", bad="queue")
    given = [[{"key": "n", "value": text, "type": "int"}] for text in ("1", "one")]
    for address in ("a", "q"):
        counts = space.write("x", "y", address=address, bad_records="bad", beside={"headers": given})
        assert (counts.rows, counts.refused) == (2, 1)
        assert space.bodies(address) == [b"x"]
    (row,) = (Sections(parcel.payload) for parcel in space.parcels if parcel.link.address == "q")
    assert row.application_properties == {"n": Int(1)}
    assert type(row.application_properties["n"]) is Int
    bad = [Sections(parcel.payload) for parcel in space.parcels if parcel.link.address == "bad"]
    assert [sections.body for sections in bad] == [b"y", b"y"]
    assert {sections.application_properties["enmasse-reason"] for sections in bad} == {"header 'n': 'one' is no int"}
    with pytest.raises(RowRefusedError, match="header 'n': 'one' is no int"):
        space.write("x", "y", address="q", beside={"headers": given})


def test_headers_count_before_properties_of_their_names() -> None:
    space = Space(q="queue")
    pairs = pa.array([[("n", "1"), ("m", "2")]], pa.map_(pa.string(), pa.string()))
    headers = [[{"key": "n", "value": "5", "type": "long"}]]
    space.write("x", address="q", beside={"properties": pairs, "headers": headers})
    assert Sections(space.parcels[0].payload).application_properties == {"n": 5, "m": "2"}


def test_rows_go_to_the_partition_that_they_name_and_the_others_by_key() -> None:
    space = Space(a="stream")
    keys, partitions = ["k", "k", "k", None], pa.array([1, 0, None, 1], pa.int32())
    space.write("one", "zero", "by key", "one too", address="a", beside={"key": keys, "partition": partitions})
    found = {
        parcel.link.partition: [Sections(payload).body for payload in Frame(parcel.payload).payloads()]
        for parcel in space.parcels
    }
    by_key = partition_of(b"k", 2)
    assert found == {
        0: [b"zero", *([b"by key"] if by_key == 0 else [])],
        1: [b"one", *([b"by key"] if by_key == 1 else []), b"one too"],
    }


@pytest.mark.parametrize(
    ("address", "partition", "complaint"),
    [
        ("a", 2, "there is no partition 2: 'a' has 0 to 1; leave out the column partition, or have it null"),
        ("a", -1, "there is no partition -1: 'a' has 0 to 1"),
        ("q", 0, "its partition is 0, and queue 'q' has none; leave out"),
    ],
)
def test_a_partition_that_is_not_there_is_named(address: str, partition: int, complaint: str) -> None:
    space = Space(a="stream", q="queue", bad="stream")
    with pytest.raises(RowRefusedError, match=complaint):
        space.write("x", address=address, beside={"partition": [partition]})
    counts = space.write("x", address=address, bad_records="bad", beside={"partition": [partition]})
    assert counts.refused == 1
    (bad,) = (Sections(parcel.payload) for parcel in space.parcels)
    assert complaint in bad.application_properties["enmasse-reason"]
