"""The contract of protocols' converters: what comes back as it was, and a true list of what does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.message.sections import Header, Properties, Sections, data_start, encode_message
from enmasse.message.types import Symbol, Timestamp
from enmasse.node.http import documents
from enmasse.node.http import messages as http
from enmasse.node.mqtt import messages as mqtt
from enmasse.node.plain_values import as_bytes
from enmasse.node.protocols import PROTOCOLS
from enmasse.node.stomp import messages as stomp
from enmasse.wire.http.answers import HttpError

NOW_MS = 1_700_000_000_000
PAGES = Path(__file__).parents[2] / "docs" / "reference"


def message(body: Any = b"x", header: dict[str, Any] | None = None, **more: Any) -> bytes:
    """A durable message with a content type, so that a part is looked at by itself."""
    fields = {"content_type": "text/csv"} | more.pop("fields", {})
    return encode_message(
        body, header=Header(**({"durable": True} | (header or {}))), properties=Properties(**fields), **more
    )


def sent_again_by_mqtt(payload: bytes) -> bytes:
    content = mqtt.from_sections(payload, NOW_MS)
    return mqtt.to_sections(content.qos, content.is_retain, content.properties, NOW_MS).encode(content.payload)


def sent_again_by_stomp(payload: bytes) -> bytes:
    content = stomp.from_sections(payload)
    return stomp.to_sections(dict(content.headers)).encode(content.body)


def sent_again_by_http(payload: bytes) -> bytes:
    content = http.from_sections(Sections(payload))
    headers = {name.lower(): value for name, value in content.headers} | {"content-type": content.content_type}
    return http.to_sections(headers).encode(content.body)


def sent_again_in_json(payload: bytes) -> bytes:
    document = documents.from_sections(payload)
    document.pop("deliveryCount", None)
    return documents.to_sections(json.dumps(document))


CONVERTERS: Mapping[str, tuple[Any, Callable[[bytes], bytes], str]] = {
    "mqtt": (mqtt, sent_again_by_mqtt, "mqtt"),
    "stomp": (stomp, sent_again_by_stomp, "stomp"),
    "http": (http, sent_again_by_http, "http"),
    "http in json": (documents, sent_again_in_json, "http"),
}
"""The modules of converters; what becomes of a message that a client gets and sends again; and the page of each."""

PARTS: Mapping[str, bytes] = {
    "`durable`": message(),
    "not `durable`": message(header={"durable": False}),
    "`priority`": message(header={"priority": 9}),
    "`ttl`": message(header={"ttl": 60_000}),
    "`ttl` with a part of a second": message(header={"ttl": 60_400}),
    "`first-acquirer`": message(header={"first_acquirer": True}),
    "`delivery-count`": message(header={"delivery_count": 2}),
    "delivery annotations": message(delivery_annotations={"x-opt-hop": "a"}),
    "texts as annotations `x-opt-...`": message(message_annotations={"x-opt-a": "a"}),
    "numbers as annotations `x-opt-...`": message(message_annotations={"x-opt-a": 7}),
    "other values as annotations `x-opt-...`": message(message_annotations={"x-opt-a": [7]}),
    "annotations of other names": message(message_annotations={"a": "a"}),
    "`x-opt-retain`": message(message_annotations={"x-opt-retain": True}),
    "a text as `message-id`": message(fields={"message_id": "m"}),
    "a number as `message-id`": message(fields={"message_id": 7}),
    "bytes as `message-id`": message(fields={"message_id": b"m\xff"}),
    "a UUID as `message-id`": message(fields={"message_id": UUID(int=7)}),
    "`user-id`": message(fields={"user_id": b"ida"}),
    "`to`": message(fields={"to": "a"}),
    "`subject`": message(fields={"subject": "a"}),
    "`reply-to`": message(fields={"reply_to": "a"}),
    "a text as `correlation-id`": message(fields={"correlation_id": "c"}),
    "a number as `correlation-id`": message(fields={"correlation_id": 7}),
    "bytes as `correlation-id`": message(fields={"correlation_id": b"c\xff"}),
    "a UUID as `correlation-id`": message(fields={"correlation_id": UUID(int=7)}),
    "`content-type`": message(),
    "no `content-type`": message(fields={"content_type": None}),
    "`content-encoding`": message(fields={"content_encoding": "gzip"}),
    "`absolute-expiry-time`": message(fields={"absolute_expiry_time": NOW_MS + 3_600_000}),
    "`creation-time`": message(fields={"creation_time": NOW_MS}),
    "`group-id`": message(fields={"group_id": "a"}),
    "`group-sequence`": message(fields={"group_sequence": 7}),
    "`reply-to-group-id`": message(fields={"reply_to_group_id": "a"}),
    "texts as application properties": message(application_properties={"key": "a"}),
    "numbers as application properties": message(application_properties={"key": 7}),
    "floats as application properties": message(application_properties={"key": 0.5}),
    "booleans as application properties": message(application_properties={"key": True}),
    "nulls as application properties": message(application_properties={"key": None}),
    "bytes as application properties": message(application_properties={"key": b"a\xff"}),
    "symbols as application properties": message(application_properties={"key": Symbol("a")}),
    "timestamps as application properties": message(application_properties={"key": Timestamp(7)}),
    "UUIDs as application properties": message(application_properties={"key": UUID(int=7)}),
    "body of data": message(bytes(range(256))),
    "body of JSON": message(b'{"a":1}', fields={"content_type": "application/json"}),
    "body of several data sections": message() + data_start(1) + b"y",
    "body of a text": message("a"),
    "body of another value": message({"a": [1]}),
    "body of a sequence": message([1, 2]),
    "footer": message(footer={"x-opt-sum": 1}),
}

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=8)
SIMPLE = st.none() | st.booleans() | st.integers(-1 << 63, (1 << 63) - 1) | TEXT | st.binary(max_size=8)
IDS = st.none() | TEXT | st.integers(0, (1 << 64) - 1) | st.binary(max_size=8) | st.uuids()
MESSAGES = st.builds(
    lambda header, annotations, fields, application, body: encode_message(
        body,
        header=header,
        message_annotations=annotations,
        properties=fields,
        application_properties=application,
    ),
    st.builds(Header, st.booleans(), st.integers(0, 9), st.none() | st.integers(1, (1 << 32) - 1)),
    st.dictionaries(st.sampled_from(["x-opt-a", "x-opt-b"]), TEXT | st.integers(0, 1 << 59), max_size=2),
    st.builds(
        Properties,
        message_id=IDS,
        subject=st.none() | TEXT,
        reply_to=st.none() | TEXT,
        correlation_id=IDS,
        content_type=st.sampled_from([None, "text/csv", "application/json"]),
        group_id=st.none() | TEXT,
        group_sequence=st.none() | st.integers(0, (1 << 32) - 1),
    ),
    st.dictionaries(TEXT.map("own-{}".format), SIMPLE, max_size=3),
    st.binary(max_size=300) | TEXT | st.lists(st.integers(0, 9)) | st.dictionaries(TEXT, st.integers(0, 9)),
)


each_converter = pytest.mark.parametrize("name", CONVERTERS)


def test_every_protocol_is_held_to_the_contract() -> None:
    # AMQP's messages are what the others are converted to.
    assert {name.partition(" ")[0] for name in CONVERTERS} == set(PROTOCOLS) - {"amqp"}


@each_converter
@pytest.mark.parametrize("part", PARTS)
def test_what_is_lost_is_listed_and_nothing_else(name: str, part: str) -> None:
    module, send_again, _ = CONVERTERS[name]
    becomes = [becomes for becomes, parts in module.LOST.items() if part in parts]
    if becomes == ["refused"]:
        with pytest.raises(HttpError):
            send_again(PARTS[part])
        return
    again = send_again(PARTS[part])
    if becomes == ["nothing"]:
        assert again == send_again(message())
    assert (again != PARTS[part]) is bool(becomes)
    assert len(becomes) < 2


@each_converter
def test_the_page_of_each_protocol_says_what_is_lost(name: str) -> None:
    module, _, page = CONVERTERS[name]
    rows = [f"| {', '.join(parts)} | {becomes} |" for becomes, parts in module.LOST.items()]
    assert "\n".join(rows) in (PAGES / f"{page}.md").read_text()
    assert {part for parts in module.LOST.values() for part in parts} <= set(PARTS)


@each_converter
@given(payload=MESSAGES)
def test_what_a_client_has_sent_comes_back_as_it_was(name: str, payload: bytes) -> None:
    _, send_again, _ = CONVERTERS[name]
    sent = send_again(payload)
    assert send_again(sent) == sent


@each_converter
@given(payload=MESSAGES)
def test_the_body_of_a_message_comes_through(name: str, payload: bytes) -> None:
    module, send_again, _ = CONVERTERS[name]
    body, _ = as_bytes(Sections(payload).body)
    again = Sections(send_again(payload)).body
    is_written_anew = any("body of JSON" in parts for parts in module.LOST.values())
    assert again == body or (is_written_anew and json.loads(again) == json.loads(body))
