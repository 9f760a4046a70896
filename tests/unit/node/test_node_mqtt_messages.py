"""Messages of MQTT as AMQP's sections and back, and what is told of messages of other protocols."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.message.sections import Header, Properties, Sections, data_start, encode_message
from enmasse.message.types import Described, Symbol, Timestamp, UByte, ULong
from enmasse.node.http.cloudevents import event_of
from enmasse.node.mqtt.messages import find_body, from_sections, is_lasting, to_sections
from enmasse.node.mqtt.receiving import MAX_HEADS, Encoder, EncoderKey
from enmasse.wire.mqtt.packets import PublishProperties
from enmasse.wire.mqtt.writing import encode_publish, encode_publish_properties

NOW_MS = 1_700_000_000_000

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
TOPIC = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=20)
PROPERTIES = st.builds(
    PublishProperties,
    st.sampled_from((None, 0, 1)),
    st.none() | st.integers(0, 0xFFFFFFFF),
    st.none() | TEXT,
    st.none() | TOPIC,
    st.none() | st.binary(max_size=20),
    st.lists(st.tuples(TEXT, TEXT), max_size=4),
)


@given(st.binary(max_size=300), st.sampled_from((0, 1, 2)), st.booleans(), PROPERTIES)
def test_what_an_mqtt_client_sent_comes_as_it_was(
    body: bytes, qos: int, is_retained: bool, properties: PublishProperties
) -> None:
    payload = to_sections(qos, is_retained, properties, NOW_MS).encode_head() + data_start(len(body)) + body
    content = from_sections(payload, NOW_MS)
    assert (content.payload, content.qos, content.is_retain) == (body, qos, is_retained)
    assert content.properties == properties
    assert content.is_timed is (not is_lasting(properties))
    section, begin = find_body(payload)
    assert (payload[section : section + 3], payload[begin:]) == (b"\x00\x53\x75", body)


def test_its_places_in_amqp_are_those_that_others_know() -> None:
    properties = PublishProperties(1, 60, "text/plain", "answers/me", b"\1\2", [("a", "1"), ("b", "2")])
    sections = Sections(to_sections(1, True, properties, NOW_MS).encode_head() + data_start(2) + b"hi")
    assert (sections.header.durable, sections.header.ttl, sections.body) == (True, 60_000, b"hi")
    told = sections.properties
    assert (told.content_type, told.reply_to, told.correlation_id) == ("text/plain", "answers/me", b"\1\2")
    assert sections.application_properties == {"a": "1", "b": "2"}
    assert sections.message_annotations == {
        "x-opt-retain": True, "x-opt-mqtt-qos": 1, "x-opt-mqtt-payload-format": 1,
    }  # fmt: skip
    assert to_sections(0, False, None, NOW_MS).encode_head() == b""


EVENT = [("id", "7"), ("Trace", "x"), ("source", "/till"), ("type", "sold"), ("specversion", "1.0"), ("shop", "3")]


def test_an_event_of_cloudevents_has_its_attributes_where_every_protocol_finds_them() -> None:
    """Those of MQTT's binary mode, and those of AMQP's, in either of its forms and in AMQP's types."""
    head = to_sections(0, False, PublishProperties(content_type="text/plain", user_properties=EVENT), NOW_MS)
    payload = head.encode_head() + data_start(2) + b"hi"
    sections = Sections(payload)
    assert sections.application_properties == {
        "cloudEvents_id": "7", "Trace": "x", "cloudEvents_source": "/till", "cloudEvents_type": "sold",
        "cloudEvents_specversion": "1.0", "cloudEvents_shop": "3",
    }  # fmt: skip
    assert event_of(payload, source="", name="")["type"] == "sold"
    assert from_sections(payload, NOW_MS).properties.user_properties == EVENT
    sent = {"cloudEvents:id": "7", "cloudEvents:source": "/till", "cloudEvents:type": "sold"} | {
        "cloudEvents:specversion": "1.0", "cloudEvents:time": Timestamp(0), "other": 1,
    }  # fmt: skip
    told = from_sections(encode_message(b"", application_properties=sent), NOW_MS).properties
    assert dict(told.user_properties) == {
        "id": "7", "source": "/till", "type": "sold", "specversion": "1.0", "time": "1970-01-01T00:00:00Z",
        "other": "1",
    }  # fmt: skip


@pytest.mark.parametrize(
    "pairs",
    [
        [pair for pair in EVENT if pair[0] != "source"],
        [("specversion", "0.3"), *EVENT[:4]],
        [(f"cloudEvents_{name}", value) for name, value in EVENT],
        [("cloudEvents_id", "8"), *EVENT],
    ],
)
def test_what_is_no_event_or_says_it_otherwise_comes_as_it_was(pairs: list[tuple[str, str]]) -> None:
    head = to_sections(0, False, PublishProperties(user_properties=pairs), NOW_MS).encode_head()
    assert from_sections(head + data_start(0), NOW_MS).properties.user_properties == pairs


@pytest.mark.parametrize("kind", ["text/plain", "t\u00e9xt/plain"])
def test_a_content_type_among_attributes_is_taken_whatever_it_is(kind: str) -> None:
    pairs = [*EVENT, ("datacontenttype", kind)]
    head = to_sections(0, False, PublishProperties(user_properties=pairs), NOW_MS).encode_head()
    payload = head + data_start(0)
    assert Sections(payload).properties.content_type == (kind if kind.isascii() else None)
    assert dict(from_sections(payload, NOW_MS).properties.user_properties) == dict(pairs)


def test_a_long_expiry_is_a_time_of_day() -> None:
    head = to_sections(0, False, PublishProperties(message_expiry_s=1 << 31), NOW_MS).encode_head()
    payload = head + data_start(0)
    assert Sections(payload).properties.absolute_expiry_time == NOW_MS + (1 << 31) * 1000
    assert from_sections(payload, NOW_MS + 5_000).properties.message_expiry_s == (1 << 31) - 5
    assert from_sections(payload, NOW_MS + (1 << 50)).properties.message_expiry_s == 0


@pytest.mark.parametrize(
    ("body", "payload", "told"),
    [
        ("text", b"text", PublishProperties(payload_format=1)),
        (b"\xff", b"\xff", PublishProperties()),
        ({"a": [1, None]}, b'{"a": [1, null]}', PublishProperties(content_type="application/json")),
        (7, b"7", PublishProperties(content_type="application/json")),
        (Described(ULong(5), "x"), b'"x"', PublishProperties(content_type="application/json")),
    ],
)
def test_bodies_of_amqp(body: Any, payload: bytes, told: PublishProperties) -> None:
    content = from_sections(encode_message(body), NOW_MS)
    assert (content.payload, content.properties) == (payload, told)


@pytest.mark.parametrize("said", [None, 0, 1])
def test_a_payload_format_is_told_as_it_was_said(said: int | None) -> None:
    parts = to_sections(0, False, PublishProperties(payload_format=said), NOW_MS)
    content = from_sections(parts.encode(b"x"), NOW_MS)
    assert content.properties.payload_format == said
    assert encode_publish_properties(content.properties) == (b"\0" if said is None else bytes((2, 1, said)))


def test_what_mqtt_has_no_place_for_are_user_properties() -> None:
    payload = encode_message(
        b"",
        header=Header(priority=7, delivery_count=2),
        message_annotations={Symbol("x-opt-offset"): ULong(9), Symbol("x-opt-topic-name"): "a/b"},
        properties=Properties(message_id="m1", subject="s", creation_time=Timestamp(5), reply_to="a/#"),
        application_properties={"n": UByte(3), "nul": "a\0b", "yes": True},
    )
    content = from_sections(payload, NOW_MS)
    assert content.topic == "a/b"
    assert content.properties == PublishProperties(
        user_properties=[
            ("n", "3"), ("yes", "true"), ("message-id", "m1"), ("subject", "s"), ("creation-time", "5"),
            ("priority", "7"), ("delivery-count", "2"), ("x-opt-offset", "9"),
        ]
    )  # fmt: skip


@given(st.binary(max_size=60))
def test_what_is_malformed_is_told_as_it_is(payload: bytes) -> None:
    content = from_sections(payload, NOW_MS)
    section, begin = find_body(payload)
    assert 0 <= section <= begin <= len(payload)
    if (
        not begin
        and content.properties.user_properties[:1]
        and content.properties.user_properties[0][0] == "x-malformed"
    ):
        assert content.payload == payload


# Packets


def encoder(**options: Any) -> Encoder:
    telling = {
        "space": "ns/shop", "is_v5": True, "topic": "orders", "is_fixed": False, "takes": False,
        "keeps_retain": False, "identifiers": (),
    }  # fmt: skip
    return Encoder(EncoderKey(**{**telling, **options}), lambda: NOW_MS)


def message(body: bytes, qos: int = 1, topic: str = "", **properties: Any) -> bytes:
    head = to_sections(qos, False, PublishProperties(**properties), NOW_MS).encode_head()
    payload = head + data_start(len(body)) + body
    if not topic:
        return payload
    sections = Sections(payload)
    return encode_message(
        body,
        header=sections.header,
        message_annotations={**sections.message_annotations, Symbol("x-opt-topic-name"): topic},
        properties=sections.properties,
    )


@given(
    st.lists(
        st.tuples(st.binary(max_size=200), st.sampled_from((0, 1, 2)), st.sampled_from(("", "a", "a/b"))), max_size=8
    )
)
def test_packets_are_the_same_whatever_came_before(messages: list[tuple[bytes, int, str]]) -> None:
    shared = encoder(identifiers=(3,))
    for body, qos, topic in messages:
        shared.read(message(body, qos, topic, content_type="x/y"))
        name = (topic or "orders").encode()
        told = encode_publish_properties(PublishProperties(content_type="x/y", subscription_identifiers=[3]))
        assert shared.plain() == encode_publish(name, body, properties=told)
        assert shared.qos == qos
        for number in (1, 2):
            assert shared.numbered(number, 513) == encode_publish(name, body, number, packet_id=513, properties=told)
            assert shared.size(number) == len(shared.numbered(number, 513))
        assert shared.size(0) == len(shared.plain())


def test_a_packet_is_encoded_once_for_all_who_are_told_the_same() -> None:
    shared = encoder()
    payload = message(b"x", 0)
    shared.read(payload)
    assert shared.plain() is shared.packet
    assert shared.payload is payload
    large = message(bytes(100_000), 0)
    shared.read(large)
    assert shared.payload is None, "nobody keeps a large message for a subscriber that may not come"


def test_an_encoder_knows_a_bounded_number_of_heads() -> None:
    shared = encoder()
    for number in range(3 * MAX_HEADS):
        shared.read(message(b"x", 0, f"topic/{number}"))
        assert shared.topic == f"topic/{number}".encode()
    assert len(shared._heads) <= MAX_HEADS


def test_what_is_subscribed_to_by_its_name_has_that_name() -> None:
    fixed = encoder(is_fixed=True, takes=True, topic="letters", keeps_retain=True)
    fixed.read(message(b"x", 0, "news/sport"))
    told = PublishProperties(user_properties=[("x-opt-topic-name", "news/sport")])
    assert fixed.plain() == encode_publish(b"letters", b"x", properties=encode_publish_properties(told))
    assert fixed.qos == 2


def test_time_that_is_left_is_told_anew() -> None:
    now = [NOW_MS]
    shared = encoder()
    shared._now_ms = lambda: now[0]
    payload = encode_message(b"x", properties=Properties(absolute_expiry_time=NOW_MS + 10_000))
    for seconds in (10, 7):
        shared.read(payload)
        told = encode_publish_properties(PublishProperties(message_expiry_s=seconds))
        assert shared.plain() == encode_publish(b"orders", b"x", properties=told)
        now[0] += 3_000
        shared.read(message(b"other"))
