"""What a stored address sees of a message at a glance."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.message.codec import encode
from enmasse.message.errors import DecodeError
from enmasse.message.sections import Header, Properties, Sections, encode_message
from enmasse.message.types import Described, Symbol, Timestamp, UInt, ULong
from enmasse.messaging.facts import LAST_MS, MAX_HEADERS, PLAIN, PLAIN_DURABLE, facts_of


def section(code: int | str, value: Any) -> bytes:
    return encode(Described(Symbol(code) if isinstance(code, str) else ULong(code), value))


def annotated(**annotations: Any) -> bytes:
    return encode_message(
        b"body", message_annotations={f"x-opt-{name.replace('_', '-')}": value for name, value in annotations.items()}
    )


BODY = encode_message(b"body")


def test_a_message_that_says_nothing_is_plain() -> None:
    assert facts_of(BODY) is PLAIN
    assert facts_of(encode_message("body", properties=Properties(message_id="m", subject="s"))) is PLAIN
    assert facts_of(encode_message("body", properties=Properties(creation_time=5))) is PLAIN
    assert facts_of(encode_message("body", properties=Properties(reply_to_group_id="g"))) is PLAIN
    assert facts_of(encode_message("body", application_properties={"a": 1})) is PLAIN
    assert facts_of(b"") is PLAIN


def test_a_durable_message_that_says_nothing_else_is_plain() -> None:
    durable = Header(durable=True)
    assert facts_of(encode_message(b"body", header=durable)) is PLAIN_DURABLE
    assert facts_of(encode_message(b"body", header=Header(durable=True, delivery_count=3))) is PLAIN_DURABLE
    assert facts_of(encode_message(b"b", header=durable, properties=Properties(subject="s" * 300))) is PLAIN_DURABLE
    assert facts_of(section(0x70, [True])) is PLAIN_DURABLE


def test_other_annotations_leave_a_message_plain() -> None:
    assert facts_of(annotated(jms_msg_type=5, partition_key="k")) is PLAIN
    assert facts_of(annotated(delivery_mode="x-opt-delivery-mode")) is PLAIN
    assert facts_of(annotated(delivery_time=None)) is PLAIN


def test_header_properties_and_annotations_are_all_seen() -> None:
    facts = facts_of(
        encode_message(
            b"body",
            header=Header(durable=True, priority=7, ttl=5000),
            delivery_annotations={"x-opt-hop": 1},
            message_annotations={"x-opt-delivery-time": 12, "x-opt-delivery-delay": UInt(34)},
            properties=Properties(
                message_id="m" * 300, to="t", absolute_expiry_time=56, creation_time=1, group_id="g", group_sequence=7
            ),
        )
    )
    assert not facts.is_plain
    assert (facts.durable, facts.priority, facts.ttl_ms) == (True, 7, 5000)
    assert (facts.delivery_time_ms, facts.delivery_delay_ms) == (12, 34)
    assert (facts.expires_ms, facts.group, facts.group_sequence) == (56, "g", 7)
    assert "group='g'" in repr(facts)


def test_sections_named_by_symbol_are_seen() -> None:
    payload = section("amqp:header:list", [True]) + section("amqp:properties:list", [None] * 10 + ["g"]) + BODY
    facts = facts_of(payload)
    assert (facts.durable, facts.group) == (True, "g")
    assert facts_of(section("amqp:header:list", [True]) + BODY) is PLAIN_DURABLE
    assert facts_of(section(0x70, [False]) + section("amqp:properties:list", []) + BODY) is PLAIN


def test_a_section_of_null_says_nothing() -> None:
    assert facts_of(section(0x72, None) + BODY) is PLAIN
    assert facts_of(section(0x72, {}) + BODY) is PLAIN


def test_a_message_that_was_moved_neither_expires_nor_waits() -> None:
    moved = {"x-opt-dead-letter-reason": "expired", "x-opt-delivery-delay": 5, "x-opt-delivery-time": "x"}
    properties = Properties(absolute_expiry_time=5, group_id="g")
    facts = facts_of(encode_message(b"body", message_annotations=moved, properties=properties))
    assert (facts.expires_ms, facts.delivery_delay_ms, facts.delivery_time_ms, facts.group) == (0, 0, 0, "g")
    assert facts_of(encode_message(b"", message_annotations=moved)) is PLAIN
    slowly = section("amqp:message-annotations:map", moved) + section("amqp:properties:list", [None] * 8 + [5])
    assert facts_of(slowly + BODY) is PLAIN
    assert facts_of(encode_message(b"", message_annotations={"x-opt-debug": 1})) is PLAIN


def test_an_empty_group_is_none() -> None:
    assert facts_of(encode_message(b"", properties=Properties(group_id=""))) is PLAIN


def test_a_group_sequence_alone_is_kept() -> None:
    assert facts_of(encode_message(b"", properties=Properties(group_sequence=0))).group_sequence == 0


def test_a_time_to_live_of_zero_is_none() -> None:
    assert facts_of(encode_message(b"body", header=Header(ttl=0))) is PLAIN


def test_an_expiry_at_the_end_of_time_is_none() -> None:
    assert facts_of(encode_message(b"", properties=Properties(absolute_expiry_time=LAST_MS))) is PLAIN
    assert facts_of(encode_message(b"", properties=Properties(absolute_expiry_time=LAST_MS - 1))).expires_ms
    assert facts_of(encode_message(b"", properties=Properties(absolute_expiry_time=2**63 - 1))) is PLAIN


@pytest.mark.parametrize("kind", [int, UInt, ULong, Timestamp])
def test_a_delivery_time_may_be_of_any_integer_type(kind: Any) -> None:
    assert facts_of(annotated(delivery_time=kind(99))).delivery_time_ms == 99
    assert facts_of(annotated(delivery_delay=kind(99))).delivery_delay_ms == 99


def test_a_delivery_that_was_due_in_the_past_is_due_now() -> None:
    assert facts_of(annotated(delivery_time=-1)) is PLAIN
    assert facts_of(annotated(delivery_delay=-(2**63))) is PLAIN
    assert facts_of(annotated(delivery_delay=-5, delivery_time=7)).delivery_time_ms == 7


@pytest.mark.parametrize(
    ("payload", "word"),
    [
        (annotated(delivery_time="soon"), "x-opt-delivery-time"),
        (annotated(delivery_delay=1.5), "x-opt-delivery-delay"),
        (annotated(delivery_delay=True), "x-opt-delivery-delay"),
        (annotated(delivery_delay=ULong(2**64 - 1)), "after the year 9999"),
        (annotated(delivery_time=LAST_MS + 1), "after the year 9999"),
        (encode_message(b"", properties=Properties(absolute_expiry_time=-1)), "before 1970"),
        (section(0x70, [True, None, Timestamp(-1)]) + BODY, "ttl"),
        (section(0x70, [True, None, -5]) + BODY, "ttl"),
        (section(0x70, [1]) + BODY, "durable"),
        (section(0x70, {}) + BODY, "header"),
        (section(0x73, {}) + BODY, "list"),
        (section(0x73, [None] * 10 + [5]) + BODY, "group-id"),
        (section(0x73, [None] * 8 + ["later"]) + BODY, "absolute-expiry-time"),
        (section(0x73, [None] * 11 + ["1"]) + BODY, "group-sequence"),
        (section(0x72, []) + section(0x70, [True]) + BODY, "order"),
        (section(0x70, []) + section(0x70, [True]) + BODY, "order"),
        (section(0x79, []), "sections"),
        (b"\x00\x53\x6f\x45", "sections"),
        (b"no message", "sections"),
        (b"\x00\x53\x73\xc0\x09\x01\x40", "short"),
        (b"\x00\x53\x73\xd0\x00\x00\x00\x09\x00\x00\x00\x0b\x40", "short"),
        (b"\x00\x53\x73\xc0\x02\x0b\x40" + BODY, "short"),
        (b"\x00\x53\x73\xc0\x03\x0b\xa1\xff" + BODY, "short"),
    ],
)
def test_what_is_malformed_is_refused_by_name(payload: bytes, word: str) -> None:
    with pytest.raises(DecodeError, match=word):
        facts_of(payload)


@pytest.mark.parametrize(
    "payload",
    [
        encode_message(b"", header=Header(durable=True, priority=9, ttl=70_000)),
        encode_message(b"", properties=Properties(message_id="m", group_id="g", group_sequence=3)),
        encode_message(b"", message_annotations={"x-opt-delivery-time": 5}),
    ],
)
def test_a_message_cut_anywhere_is_refused_or_read_without_harm(payload: bytes) -> None:
    for size in range(len(payload)):
        with suppress(DecodeError):
            facts_of(payload[:size])


def test_headers_without_end_do_not_fill_the_memory() -> None:
    for ttl in range(1, MAX_HEADERS + 3):
        assert facts_of(encode_message(b"", header=Header(ttl=ttl))).ttl_ms == ttl


uints = st.integers(0, 2**32 - 1)
headers = st.builds(Header, durable=st.booleans(), priority=st.integers(0, 255), ttl=st.none() | uints)
times = st.none() | st.integers(0, LAST_MS - 1)
texts = st.none() | st.text(max_size=300)
all_properties = st.builds(
    Properties,
    message_id=texts | st.uuids() | st.binary() | st.integers(0, 2**64 - 1),
    user_id=st.none() | st.binary(),
    to=texts,
    correlation_id=texts | st.uuids(),
    content_type=st.none() | st.just("text/plain"),
    absolute_expiry_time=times,
    creation_time=times,
    group_id=texts,
    group_sequence=st.none() | uints,
    reply_to_group_id=texts,
)
notes = st.dictionaries(
    st.sampled_from(("x-opt-delivery-time", "x-opt-delivery-delay", "x-opt-other")), st.integers(0, LAST_MS)
)


@given(st.none() | headers, st.none() | notes, st.none() | notes, st.none() | all_properties)
def test_facts_agree_with_the_sections(header: Any, hop: Any, notes: Any, properties: Any) -> None:
    payload = encode_message(
        "body", header=header, delivery_annotations=hop, message_annotations=notes, properties=properties
    )
    facts = facts_of(payload)
    sections = Sections(payload)
    assert facts.durable == sections.header.durable
    assert facts.priority == sections.header.priority
    assert facts.ttl_ms == (sections.header.ttl or 0)
    assert facts.expires_ms == (sections.properties.absolute_expiry_time or 0)
    assert facts.group == (sections.properties.group_id or None)
    assert facts.group_sequence == sections.properties.group_sequence
    assert facts.delivery_time_ms == sections.message_annotations.get("x-opt-delivery-time", 0)
    assert facts.delivery_delay_ms == sections.message_annotations.get("x-opt-delivery-delay", 0)
    assert facts.is_plain == (facts is PLAIN or facts is PLAIN_DURABLE)


@given(st.binary(max_size=60), st.binary(max_size=20))
def test_any_bytes_give_facts_or_a_decode_error(first: bytes, rest: bytes) -> None:
    for start in (b"", b"\x00\x53\x70", b"\x00\x53\x73\xc0", b"\x00\x53\x73\xc0\x30\x0d", b"\x00\x53\x72\xc1"):
        with suppress(DecodeError):
            facts_of(start + first + BODY + rest)


def test_a_message_that_is_to_be_retained_says_so_with_true() -> None:
    facts = facts_of(annotated(retain=True))
    assert facts.retain
    assert facts.is_plain
    assert not facts.durable
    assert facts is facts_of(annotated(retain=True))
    assert facts_of(
        encode_message(b"b", header=Header(durable=True), message_annotations={"x-opt-retain": True})
    ).durable
    for value in (False, None, 1, "true", b"x-opt-retain"):
        assert not facts_of(annotated(retain=value)).retain
    assert not facts_of(annotated(retained=True)).retain
    assert not facts_of(annotated(other="x-opt-retain")).retain
    assert not PLAIN.retain
    assert not PLAIN_DURABLE.retain


def test_retaining_goes_with_everything_else_that_a_message_asks_for() -> None:
    full = encode_message(
        b"body",
        header=Header(durable=True, priority=7, ttl=5000),
        message_annotations={"x-opt-retain": True, "x-opt-delivery-delay": 70, "x-opt-long": "x" * 100},
        properties=Properties(absolute_expiry_time=Timestamp(9_000), group_id="g"),
    )
    facts = facts_of(full)
    assert (facts.retain, facts.durable, facts.priority, facts.ttl_ms) == (True, True, 7, 5000)
    assert (facts.expires_ms, facts.group, facts.delivery_delay_ms) == (9_000, "g", 70)
    assert not facts.is_plain
    slow = section("amqp:message-annotations:map", {Symbol("x-opt-retain"): True}) + section(0x77, "body")
    assert facts_of(slow).retain
    creation = encode_message(
        b"b", message_annotations={"x-opt-retain": True}, properties=Properties(creation_time=Timestamp(5))
    )
    assert facts_of(creation) is facts_of(annotated(retain=True))
