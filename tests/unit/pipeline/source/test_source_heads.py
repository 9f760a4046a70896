from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.client import Message
from enmasse.messaging.log.frame import Frame, encode_frame, split_payload
from enmasse.pipeline.source import columns
from enmasse.pipeline.source.columns import FULL_SCHEMA, decode_head, frame_to_batch, property_columns, value_of
from enmasse.pipeline.source.consumed.browsing import rows_to_batch
from enmasse.pipeline.source.consumed.options import ConsumedOptions
from enmasse.pipeline.source.consumed.spool import Row


def head_of(message: Message) -> bytes:
    return split_payload(message.encode())[0]


def test_a_head_tells_type_properties_annotations_and_target() -> None:
    message = Message(
        b"21.5",
        content_type="text/plain",
        to="telemetry/boiler",
        properties={"unit": "C", "n": 3, "ok": True, "raw": b"\0\1", "none": None, "f": 1.5},
        annotations={"x-opt-partition-key": "boiler", "x-id": UUID(int=5)},
    )
    head = decode_head(head_of(message))
    assert head.content_type == "text/plain"
    assert dict(head.properties) == {"unit": "C", "n": "3", "ok": "true", "raw": "AAE=", "none": None, "f": "1.5"}
    assert dict(head.annotations) == {"x-opt-partition-key": "boiler", "x-id": str(UUID(int=5))}
    assert head.address == "telemetry/boiler"


@pytest.mark.parametrize("body", [b"x", "text", {"a": 1}, [1, 2], None, b"x" * 70_000])
def test_whatever_the_body_is(body: Any) -> None:
    message = Message(body, content_type="a/b", properties={"k": "v"})
    assert decode_head(message.encode()) == decode_head(head_of(message))
    assert decode_head(message.encode()).content_type == "a/b"


def test_a_message_without_properties_has_none() -> None:
    assert decode_head(head_of(Message(b"x"))) == (None, [], [], None)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_say_nothing_and_raise_nothing(data: bytes) -> None:
    assert decode_head(data)
    assert decode_head(b"\0\x53\x73" + data)


def test_heads_that_repeat_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def decode(head: bytes) -> columns.Head:
        seen.append(head)
        return decode_head(head)

    monkeypatch.setattr(columns, "decode_head", decode)
    messages = [head_of(Message(b"x", properties={"device": f"d{n % 3}"})) for n in range(3_000)]
    found = property_columns(pa.array(messages, pa.binary()), "telemetry")
    assert len(seen) == 3
    assert dict(found[1][4].as_py()) == {"device": "d1"}
    assert found[3].to_pylist() == ["telemetry"] * 3_000


def test_what_is_kept_of_heads_is_bounded() -> None:
    columns._known.cache_clear()
    for n in range(2 * columns.KNOWN_HEADS):
        decode_head(head_of(Message(b"x", message_id=n, properties={"device": f"d{n}"})))
    long = head_of(Message(b"x", properties={"k": "v" * columns.KNOWN_HEAD_BYTES}))
    kept = columns._known.cache_info().currsize
    decode_head(long)
    assert columns._known.cache_info().currsize == kept == columns.KNOWN_HEADS


def test_a_frame_becomes_all_columns() -> None:
    sent = [
        Message(b"one", content_type="text/plain", properties={"n": 1}),
        Message({"two": 2}, to="elsewhere"),
        Message(b"three"),
    ]
    cut = [split_payload(message.encode()) for message in sent]
    data = encode_frame(
        10,
        [int(datetime(2026, 1, 31, tzinfo=UTC).timestamp()) * 1_000_000] * 3,
        [b""] * 3,
        [head for head, _, _ in cut],
        [body for _, body, _ in cut],
        whole=[n for n, (_, _, is_whole) in enumerate(cut) if is_whole],
    )
    batch = frame_to_batch(Frame(data), 0, 11, 13, value_of, properties_of="telemetry")
    assert batch.schema.equals(FULL_SCHEMA)
    assert batch.column("value").to_pylist() == [b'{"two":2}', b"three"]
    assert batch.column("address").to_pylist() == ["elsewhere", "telemetry"]
    assert batch.column("content_type").to_pylist() == [None, None]
    assert batch.column("properties").to_pylist() == [[], []]
    found = [{"key": "n", "value": "1", "type": "long"}]
    for properties_of in ("", "telemetry"):
        batch = frame_to_batch(Frame(data), 0, 10, 13, value_of, properties_of=properties_of, with_headers=True)
        assert batch.schema.names[-1] == "headers"
        assert batch.column("headers").to_pylist() == [found, [], []]


def test_a_topics_message_has_the_name_that_it_was_sent_to() -> None:
    sent = [
        Message(b"below", annotations={"x-opt-topic-name": "plant/line1"}),
        Message(b"itself"),
        Message({"a": "structure"}, annotations={"x-opt-topic-name": "plant/line2/temp", "x": "y"}),
    ]
    rows = [Row(1_700_000_000_000_000, None, message.encode()) for message in sent]
    common = {"url": "amqp://h", "spoolDir": "/s", "checkpointLocation": "/c", "includeTopicName": "true"}
    for kind, address, itself in (
        ("topic", "plant", "plant"),
        ("topic", "plant/#", "plant"),
        ("subscription", "lines", None),
        ("queue", "letters", None),
    ):
        for more in ({}, {"includeProperties": "true", "includeHeaders": "true"}):
            options = ConsumedOptions.parse(common | {"address": address} | more, kind)
            batch = rows_to_batch(7, rows, options)
            assert batch.schema.names == [column.name for column in options.source.columns]
            assert batch.column("topic_name").to_pylist() == ["plant/line1", itself, "plant/line2/temp"]
