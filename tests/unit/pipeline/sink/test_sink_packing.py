"""Rows into messages and frames."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.sections import Sections
from enmasse.messaging.log.frame import Frame
from enmasse.messaging.streams.heads import partition_of
from enmasse.pipeline.sink.columns import Row
from enmasse.pipeline.sink.identity import Identity
from enmasse.pipeline.sink.messages import Encoder
from enmasse.pipeline.sink.packing import (
    FRAME_ROWS,
    AddressInfo,
    LinkKey,
    MessagePacker,
    Parcel,
    StreamPacker,
    problem_of,
)

IDENTITY = Identity("query", 7, 2)


def row(value: bytes | None = b"x", **columns: Any) -> Row:
    return Row(None, None, None, None, None, None, None, None, None)._replace(value=value, **columns)


def packer(kind: str, partitions: int = 1, max_bytes: int = 16 << 20, identity: Identity = IDENTITY) -> Any:
    made = StreamPacker if kind == "stream" else MessagePacker
    return made("a", AddressInfo(kind, partitions, max_bytes), identity, Encoder(durable=True))


def pack(made: Any, *rows: Row) -> list[Parcel]:
    out: list[Parcel] = []
    for index, one in enumerate(rows):
        assert made.add(index, one, out) is None
    made.close(out)
    return out


def test_a_message_says_what_its_row_says() -> None:
    columns: dict[str, Any] = {"key": b"k", "subject": "s", "content_type": "text/plain", "ttl": 90}
    (parcel,) = pack(packer("queue"), row(b"body", properties=(("n", 1),), **columns))
    sections = Sections(parcel.payload)
    assert sections.body == b"body"
    assert sections.header.durable
    assert sections.header.ttl == 90
    assert sections.message_annotations == {"x-opt-partition-key": b"k", "x-opt-sequence": 7 << 32}
    assert sections.properties.message_id == "query/7/2/0"
    assert (sections.properties.subject, sections.properties.content_type) == ("s", "text/plain")
    assert sections.application_properties == {"n": 1}
    assert parcel.link == LinkKey("a", "query/2")


def test_a_row_may_bring_an_id_and_say_that_it_is_not_durable() -> None:
    (parcel,) = pack(packer("anycast"), row(message_id="mine", durable=False))
    sections = Sections(parcel.payload)
    assert sections.properties.message_id == "mine"
    assert not sections.header.durable
    assert "x-opt-sequence" not in sections.message_annotations


def test_numbers_rise_with_rows_and_batches() -> None:
    later = Identity("query", 8, 2)
    sequences = [
        Sections(parcel.payload).message_annotations["x-opt-sequence"]
        for parcel in pack(packer("queue"), row(), row()) + pack(packer("queue", identity=later), row())
    ]
    assert sequences == sorted(set(sequences))
    assert IDENTITY.frame_sequence((1 << 20) - 1) < later.frame_sequence(0)


def test_frames_are_what_the_node_would_have_made() -> None:
    rows = [row(b"%d" % n, key=f"k{n % 5}", subject="s") for n in range(20)]
    found: dict[int, list[bytes]] = {}
    for parcel in pack(packer("stream", 3), *rows):
        frame = Frame(parcel.payload)
        assert (frame.producer, frame.sequence) == (b"query/2", 7 << 20)
        assert parcel.rows == frame.rows
        for key, payload in zip(frame.cells(frame.keys), frame.payloads(), strict=True):
            assert partition_of(key, 3) == parcel.link.partition
            assert Sections(payload).message_annotations == {"x-opt-partition-key": key.decode()}
            found.setdefault(parcel.link.partition, []).append(Sections(payload).body)
    assert sorted(int(body) for bodies in found.values() for body in bodies) == list(range(20))
    assert all(bodies == sorted(bodies, key=int) for bodies in found.values())


def test_rows_without_a_key_stay_together_and_turn_with_the_batches() -> None:
    partitions = []
    for batch in range(4):
        parcels = pack(packer("stream", 4, identity=Identity("q", batch, 0)), row(), row())
        assert [parcel.rows for parcel in parcels] == [2]
        partitions.append(parcels[0].link.partition)
    assert sorted(partitions) == [0, 1, 2, 3]


def test_frames_are_numbered_and_cut_by_rows_and_bytes() -> None:
    parcels = pack(packer("stream"), *[row()] * (FRAME_ROWS + 1))
    assert [parcel.rows for parcel in parcels] == [FRAME_ROWS, 1]
    assert [Frame(parcel.payload).sequence & 0xFFFFF for parcel in parcels] == [0, 1]
    parcels = pack(packer("stream"), *[row(bytes(400_000))] * 5)
    assert [parcel.rows for parcel in parcels] == [2, 2, 1]
    parcels = pack(packer("stream", max_bytes=5_000), *[row(bytes(2_000))] * 5)
    assert all(len(parcel.payload) <= 5_000 for parcel in parcels)


def test_the_same_rows_make_the_same_frames() -> None:
    rows = [row(bytes(n % 900), key=f"k{n % 31}") for n in range(20_000)]
    assert pack(packer("stream", 4), *rows) == pack(packer("stream", 4), *rows)


@pytest.mark.parametrize("kind", ["queue", "stream"])
def test_a_row_that_is_too_large_is_told_with_its_size(kind: str) -> None:
    out: list[Parcel] = []
    assert (packer(kind, max_bytes=10_000).add(0, row(bytes(11_000)), out) or "").startswith("too large: 11")
    assert out == []


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (row(None), "its value is null"),
        (row(ttl=-1), "its ttl of -1 ms is not between"),
        (row(ttl=1 << 32), "its ttl of 4294967296 ms"),
    ],
)
def test_rows_that_nobody_takes(bad: Row, problem: str) -> None:
    assert (problem_of(bad) or "").startswith(problem)
    assert problem_of(row(b"", ttl=0)) is None
