"""STOMP's headers as AMQP's sections, and back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.errors import RemoteError
from enmasse.message.sections import Header, Properties, Sections, data_start, decode_message, encode_message
from enmasse.message.types import Symbol, Timestamp
from enmasse.node.stomp.messages import from_sections, to_sections

SAID = {
    "amqp-message-id": "m:1",
    "user-id": "me",
    "to": "elsewhere",
    "subject": "s",
    "reply-to": "back",
    "correlation-id": "c\n1",
    "content-type": "text/plain; charset=utf-8",
    "content-encoding": "gzip",
    "expires": "99999999999999",
    "creation-time": "1700000000000",
    "group-id": "g",
    "group-sequence": "7",
    "reply-to-group-id": "h",
    "persistent": "true",
    "priority": "9",
    "ttl": "1000",
    "x-opt-partition-key": "key",
    "x-opt-delivery-delay": "5",
    "colour": "red: or blue",
}


def message(headers: dict[str, str], body: bytes = b"x") -> bytes:
    return to_sections(headers).encode(body)


def test_what_a_client_says_is_in_its_place_and_comes_back() -> None:
    payload = message({"destination": "a", "receipt": "1", "content-length": "1", **SAID}, b"body")
    sections = decode_message(payload)
    assert sections.header == Header(durable=True, priority=9, ttl=1000)
    assert sections.properties == Properties(
        "m:1", b"me", "elsewhere", "s", "back", "c\n1", "text/plain; charset=utf-8", "gzip", 99999999999999,
        1700000000000, "g", 7, "h",
    )  # fmt: skip
    assert sections.message_annotations == {"x-opt-partition-key": "key", "x-opt-delivery-delay": 5}
    assert sections.application_properties == {"colour": "red: or blue"}
    content = from_sections(payload)
    assert dict(content.headers) == SAID
    assert payload[content.body_at :] == content.body == b"body"


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=6), st.binary(max_size=400))
def test_headers_of_a_client_s_own_come_back(headers: dict[str, str], body: bytes) -> None:
    own = {f"own-{name}": value for name, value in headers.items()}
    content = from_sections(message(own, body))
    assert dict(content.headers) == own
    assert content.body == body


def test_a_user_id_is_the_property_and_nothing_else() -> None:
    forged = encode_message(
        b"", application_properties={"user-id": "jo", "k": "v"}, message_annotations={"user-id": "jo"}
    )
    assert dict(from_sections(forged).headers) == {"k": "v"}
    own = encode_message(b"", properties=Properties(user_id=b"ida"), application_properties={"user-id": "jo"})
    assert [value for name, value in from_sections(own).headers if name == "user-id"] == ["ida"]


def test_a_message_id_is_amqp_s() -> None:
    assert Sections(message({"message-id": "1"})).properties.message_id == "1"
    assert Sections(message({"expires": "0", "ttl": "0"})).properties.absolute_expiry_time is None


@pytest.mark.parametrize(
    "headers",
    [
        {"priority": "10"}, {"priority": "high"}, {"ttl": "-1"}, {"ttl": "4294967296"}, {"expires": "soon"},
        {"group-sequence": "1e3"}, {"creation-time": "9" * 30}, {"content-type": "\u00e9"}, {"priority": "\u0663"},
    ],
)  # fmt: skip
def test_what_a_property_cannot_be_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(RemoteError, match="amqp:invalid-field"):
        to_sections(headers).encode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"), (7, "7"), (1.5, "1.5"), (Symbol("s"), "s"), (Timestamp(5), "5"), (b"b", "b"), (None, ""),
        (b"\xff", "/w=="), (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ],
)  # fmt: skip
def test_properties_of_amqp_are_text(value: Any, text: str) -> None:
    payload = encode_message(b"x", application_properties={"key": value})
    assert dict(from_sections(payload).headers) == {"key": text}


def test_what_a_message_was_sent_to_below_its_topic_is_told_apart() -> None:
    content = from_sections(encode_message(b"x", message_annotations={"x-opt-topic-name": "news/sport"}))
    assert (content.topic_name, content.headers) == ("news/sport", [])


def test_a_body_with_a_footer_or_in_parts_is_not_taken_for_one_that_ends_the_payload() -> None:
    assert from_sections(encode_message(b"xyz", footer={"x-opt-sum": 1})).body_at == 0
    assert from_sections(data_start(1) + b"a" + data_start(1) + b"b").body == b"ab"


def test_a_malformed_message_is_its_bytes() -> None:
    content = from_sections(b"\x00\x53\x74\xff")
    assert content.body == b"\x00\x53\x74\xff"
    assert dict(content.headers)["content-type"] == "application/octet-stream"
