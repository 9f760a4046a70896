"""Messages as sections."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.message.codec import encode
from enmasse.message.errors import DecodeError
from enmasse.message.sections import (
    MAX_SECTIONS,
    Header,
    Properties,
    Sections,
    check_order,
    decode_message,
    encode_header,
    encode_message,
    header_of,
    is_durable,
    key_and_subject,
    to_of,
    user_id_of,
    with_header,
    with_message_annotations,
)
from enmasse.message.types import Described, Symbol, UInt, ULong
from enmasse.messaging.selectors.selector import compile_selector
from enmasse.wire.amqp.errors import LocalError

FULL = {
    "header": Header(durable=True, priority=7, ttl=5000, first_acquirer=True, delivery_count=2),
    "delivery_annotations": {"x-opt-hop": 1},
    "message_annotations": {"x-opt-partition-key": "key", "x-opt-other": [1, 2]},
    "properties": Properties(
        message_id=7,
        user_id=b"ann",
        to="orders/new",
        subject="coffee",
        reply_to="replies",
        correlation_id=UUID(int=5),
        content_type="text/plain",
        content_encoding="gzip",
        absolute_expiry_time=9,
        creation_time=8,
        group_id="g",
        group_sequence=4,
        reply_to_group_id="h",
    ),
    "application_properties": {"count": 3, "name": "x"},
    "footer": {"x-opt-hash": b"123"},
}
PLAIN = encode_message(b"body")


def section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


text = st.text(max_size=300)
identity = st.one_of(text, st.integers(0, 2**64 - 1), st.binary(max_size=40), st.uuids())
simple = st.one_of(text, st.integers(-(2**63), 2**63 - 1), st.booleans(), st.floats(allow_nan=False), st.binary())
symbols = st.text("abcdefgh-.:", min_size=1, max_size=30)
millis = st.integers(0, 2**62)
headers = st.builds(
    Header,
    durable=st.booleans(),
    priority=st.integers(0, 255),
    ttl=st.none() | st.integers(0, 2**32 - 1),
    first_acquirer=st.booleans(),
    delivery_count=st.integers(0, 2**32 - 1),
)
properties = st.builds(
    Properties,
    message_id=st.none() | identity,
    user_id=st.none() | st.binary(max_size=40),
    to=st.none() | text,
    subject=st.none() | text,
    reply_to=st.none() | text,
    correlation_id=st.none() | identity,
    content_type=st.none() | symbols,
    content_encoding=st.none() | symbols,
    absolute_expiry_time=st.none() | millis,
    creation_time=st.none() | millis,
    group_id=st.none() | text,
    group_sequence=st.none() | st.integers(0, 2**32 - 1),
    reply_to_group_id=st.none() | text,
)
bodies = st.one_of(st.binary(max_size=600), simple, st.none(), st.lists(simple), st.dictionaries(text, simple))


@given(
    body=bodies,
    header=headers,
    properties=properties,
    annotations=st.dictionaries(symbols, simple),
    application_properties=st.dictionaries(text, simple),
)
def test_what_was_encoded_is_decoded(
    body: Any,
    header: Header,
    properties: Properties,
    annotations: dict[str, Any],
    application_properties: dict[str, Any],
) -> None:
    payload = encode_message(
        body,
        header=header,
        message_annotations=annotations,
        properties=properties,
        application_properties=application_properties,
    )
    found = decode_message(payload)
    assert (found.body, found.header, found.properties) == (body, header, properties)
    assert (found.message_annotations, found.application_properties) == (annotations, application_properties)
    assert is_durable(payload) == header.durable
    assert to_of(payload) == properties.to
    assert key_and_subject(payload) == (annotations.get("x-opt-partition-key"), properties.subject)


def test_every_section_has_its_place() -> None:
    found = decode_message(encode_message(b"body", **FULL))  # type: ignore[arg-type]
    assert found.header == FULL["header"]
    assert found.properties == FULL["properties"]
    assert found.delivery_annotations == FULL["delivery_annotations"]
    assert found.message_annotations == FULL["message_annotations"]
    assert found.application_properties == FULL["application_properties"]
    assert found.footer == FULL["footer"]
    assert found.body == b"body"


def test_a_message_of_nothing_but_a_body_has_defaults_everywhere() -> None:
    found = decode_message(PLAIN)
    assert found.header == Header()
    assert found.properties == Properties()
    assert found.message_annotations == found.delivery_annotations == found.application_properties == {}
    assert header_of(PLAIN) is None
    assert found.body_range == (0, len(PLAIN))


def test_an_empty_payload_has_no_body() -> None:
    found = decode_message(b"")
    assert found.body is None
    assert found.body_range == (0, 0)
    assert not is_durable(b"")
    assert key_and_subject(b"") == (None, None)


def test_the_body_range_holds_every_body_section_and_no_footer() -> None:
    body = section(0x75, b"one") + section(0x75, b"two")
    payload = section(0x73, ["id"]) + body + section(0x78, {})
    start, stop = Sections(payload).body_range
    assert payload[start:stop] == body
    assert Sections(section(0x78, {})).body_range == (0, 0)


@pytest.mark.parametrize(
    ("payload", "body"),
    [
        pytest.param(section(0x75, b"one") + section(0x75, b"two"), b"onetwo", id="two data sections"),
        pytest.param(section(0x75, b"x" * 300), b"x" * 300, id="long data section"),
        pytest.param(section(0x76, [1, 2]), [1, 2], id="sequence"),
        pytest.param(section(0x76, [1]) + section(0x76, [2]), [1, 2], id="two sequences"),
        pytest.param(section(0x77, b"x"), b"x", id="binary value"),
        pytest.param(section(0x77, None), None, id="null value"),
    ],
)
def test_bodies_of_every_kind_are_read(payload: bytes, body: Any) -> None:
    assert decode_message(payload).body == body


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"\x00\x53\x70\xc0\x02\x01", id="short list"),
        pytest.param(b"\x00\x53\x70\xd0\x00\x00\x00\x05\x00\x00\x00\x01", id="long list"),
        pytest.param(b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x70\xc0\x02\x01", id="long descriptor"),
        pytest.param(b"\x00\xa3\x10amqp:header:list\xc0\x02\x01", id="symbolic descriptor"),
    ],
)
def test_durability_is_seen_in_every_form_of_a_header(start: bytes, durable: bool) -> None:
    payload = start + (b"\x41" if durable else b"\x42") + PLAIN
    assert is_durable(payload) == durable
    wide = start.replace(b"\xc0\x02", b"\xc0\x03").replace(b"\x05\x00\x00\x00\x01", b"\x06\x00\x00\x00\x01")
    assert is_durable(wide + (b"\x56\x01" if durable else b"\x56\x00") + PLAIN) == durable


@pytest.mark.parametrize(
    "header", [b"\x00\x53\x70\x45", b"\x00\x53\x70\xc0\x01\x00", b"\x00\x53\x70\xc0\x02\x01\x40"]
)
def test_an_empty_header_is_not_durable(header: bytes) -> None:
    assert not is_durable(header + PLAIN)
    assert header_of(header + PLAIN) == Header()


def test_a_header_is_replaced_and_the_rest_stays() -> None:
    payload = encode_message(b"body", **FULL)  # type: ignore[arg-type]
    changed = with_header(payload, Header(delivery_count=9))
    assert header_of(changed) == Header(delivery_count=9)
    rest = payload[len(encode_header(FULL["header"])) :]  # type: ignore[arg-type]
    assert changed.endswith(rest)
    assert with_header(changed, Header()) == rest


def test_a_header_is_put_before_a_message_without_one() -> None:
    assert with_header(PLAIN, Header(durable=True)) == encode_header(Header(durable=True)) + PLAIN


def test_annotations_are_put_behind_header_and_delivery_annotations() -> None:
    payload = encode_message(b"x", header=Header(durable=True), delivery_annotations={"a": 1})
    found = decode_message(with_message_annotations(payload, {"x-opt-offset": UInt(5)}))
    assert found.header.durable
    assert found.delivery_annotations == {"a": 1}
    assert found.message_annotations == {"x-opt-offset": 5}
    assert isinstance(next(iter(found.message_annotations)), Symbol)


def test_annotations_replace_those_of_the_same_name() -> None:
    payload = encode_message(b"x", message_annotations={"a": 1, "b": 2})
    assert Sections(with_message_annotations(payload, {"b": 3, "c": 4})).message_annotations == {
        "a": 1,
        "b": 3,
        "c": 4,
    }


def test_only_what_is_asked_for_is_looked_at() -> None:
    broken = section(0x70, [True]) + section(0x72, {Symbol("x-opt-partition-key"): "k"}) + section(0x73, "no list")
    assert is_durable(broken)
    assert Sections(broken).header.durable
    with pytest.raises(DecodeError):
        key_and_subject(broken)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"\x00", id="cut after the first byte"),
        pytest.param(b"\x00\x53", id="cut in the descriptor"),
        pytest.param(b"\x00\x53\x75", id="no value"),
        pytest.param(PLAIN[:-1], id="cut in the body"),
        pytest.param(b"hello", id="no section"),
        pytest.param(section(0x79, []), id="unknown section"),
        pytest.param(encode(Described([1], 2)), id="a list as descriptor"),
        pytest.param(encode(Described(Symbol("x:y"), 2)), id="unknown symbol"),
        pytest.param(section(0x73, [-1]), id="a negative message-id"),
        pytest.param(section(0x73, [True]), id="a truth value as message-id"),
        pytest.param(section(0x73, [None] * 8 + [ULong(1 << 63)]), id="an expiry time beyond 64 bits"),
        pytest.param(section(0x73, [None] * 11 + [1 << 32]), id="a group-sequence beyond 32 bits"),
        pytest.param(PLAIN + section(0x70, []), id="header behind the body"),
        pytest.param(section(0x70, []) * 2 + PLAIN, id="two headers"),
        pytest.param(PLAIN + section(0x77, 1), id="two kinds of body"),
        pytest.param(section(0x77, 1) * 2, id="two values"),
        pytest.param(section(0x70, {}), id="header that is no list"),
        pytest.param(section(0x70, [1]), id="durable that is no boolean"),
        pytest.param(section(0x70, [True, True]), id="priority that is a boolean"),
        pytest.param(section(0x70, [None] * 6), id="header with too many fields"),
        pytest.param(section(0x73, [None, None, 5]), id="to that is a number"),
        pytest.param(section(0x73, [None, None, None, 5]), id="subject that is a number"),
        pytest.param(section(0x72, 5), id="annotations that are no map"),
        pytest.param(section(0x72, {Symbol("x-opt-partition-key"): 1})[:-2], id="annotations cut short"),
        pytest.param(section(0x75, "text"), id="data that is no binary"),
        pytest.param(section(0x76, b"x"), id="sequence that is no list"),
    ],
)
def test_malformed_messages_raise_a_decode_error(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_message(payload)


@given(st.binary(max_size=80), st.integers(0, 200))
def test_whatever_the_bytes_only_decode_errors_come_out(noise: bytes, at: int) -> None:
    payload = encode_message(b"body", **FULL)  # type: ignore[arg-type]
    for data in (noise, payload[:at] + noise + payload[at + len(noise) :]):
        for ask in (
            decode_message,
            is_durable,
            header_of,
            to_of,
            key_and_subject,
            lambda data: with_header(data, Header()),
            lambda data: with_message_annotations(data, {"a": 1}),
        ):
            try:
                ask(data)
            except DecodeError:
                continue


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"properties": Properties(user_id=5)}, id="a number as user"),  # type: ignore[arg-type]
        pytest.param({"properties": Properties(to=5)}, id="a number as address"),  # type: ignore[arg-type]
        pytest.param({"properties": Properties(message_id=-1)}, id="a negative id"),
        pytest.param({"properties": Properties(content_type="ü")}, id="a symbol that is not ASCII"),
        pytest.param({"header": Header(priority=1000)}, id="a priority beyond its type"),
        pytest.param({"application_properties": {"x": object()}}, id="a property without a type"),
    ],
)
def test_what_amqp_cannot_say_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(LocalError):
        encode_message(b"", **wrong)


@pytest.mark.parametrize("section", [b"\x00\x53\x75\xa0\x00", b"\x00\x53\x76\x45"], ids=["data", "sequence"])
def test_a_body_of_too_many_sections_is_refused_before_they_are_walked_through(section: bytes) -> None:
    most = section * MAX_SECTIONS
    check_order(most)
    assert Sections(most).body is not None
    many = section * 3_000_000
    for read in (check_order, lambda payload: Sections(payload).body, user_id_of):
        with pytest.raises(DecodeError, match="more than 4096 sections"):
            read(many)


@pytest.mark.parametrize("section", [b"\x00\x53\x70\x45", b"\x00\x53\x71\x40", b"\x00\x53\x72\x40"])
def test_a_section_that_comes_again_and_again_is_refused_by_whoever_looks_for_a_later_one(section: bytes) -> None:
    many = section * 3_000_000
    for read in (check_order, user_id_of, to_of, key_and_subject, lambda payload: Sections(payload).body):
        with pytest.raises(DecodeError, match="out of order"):
            read(many)
    assert not compile_selector("a = 1 and JMSCorrelationID = 'x'").matches(many)
