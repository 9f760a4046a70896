"""Single values of a message, found as the careful reader finds them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.message.codec import encode
from enmasse.message.errors import DecodeError
from enmasse.message.section_kinds import APPLICATION_PROPERTIES, HEADER_FIELDS, PROPERTY_FIELDS
from enmasse.message.sections import HEADER, PROPERTIES, Header, Properties, Sections, encode_message
from enmasse.message.types import Described, Symbol, Timestamp, ULong
from enmasse.messaging.selectors.fields import COMPOUND, key_of, list_field, map_value


def section(code: int | str, value: Any) -> bytes:
    return encode(Described(Symbol(code) if isinstance(code, str) else ULong(code), value))


def find(payload: bytes, name: str) -> Any:
    return map_value(payload, APPLICATION_PROPERTIES, name, key_of(name))


def field(payload: bytes, section: int, name: str) -> Any:
    fields = HEADER_FIELDS if section == HEADER else PROPERTY_FIELDS
    index = [known for known, _ in fields].index(name)
    return list_field(payload, section, index, fields[index][1], name)


names = st.text(max_size=6) | st.just("n" * 300)
values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=300), st.binary(max_size=9),
    st.floats(allow_nan=False), st.uuids(), st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.text(max_size=3), st.booleans(), max_size=2), st.integers(0, 9).map(Timestamp),
)  # fmt: skip
bodies = st.binary(max_size=20) | st.text(max_size=5)


@given(
    bodies, st.dictionaries(names, values, max_size=5), names, st.none() | st.builds(Header, durable=st.booleans())
)
def test_application_properties_are_found_or_missing(body: Any, properties: Any, name: str, header: Any) -> None:
    payload = encode_message(
        body, header=header, properties=Properties(subject="s"), application_properties=properties
    )
    for wanted in (name, *properties):
        expected = properties.get(wanted)
        assert find(payload, wanted) == (COMPOUND if isinstance(expected, list | dict) else expected)


@given(
    st.builds(
        Properties,
        message_id=st.none() | st.text(max_size=300) | st.uuids() | st.binary(),
        user_id=st.none() | st.binary(max_size=5),
        to=st.none() | st.text(max_size=300),
        subject=st.none() | st.text(max_size=5),
        creation_time=st.none() | st.integers(0, 2**40),
        group_sequence=st.none() | st.integers(0, 2**32 - 1),
    ),
    st.none() | st.builds(Header, priority=st.integers(0, 255), ttl=st.none() | st.integers(0, 2**32 - 1)),
)
def test_fields_are_found_or_missing(properties: Properties, header: Header | None) -> None:
    payload = encode_message(b"", header=header, properties=properties)
    for name, _ in PROPERTY_FIELDS:
        assert field(payload, PROPERTIES, name) == getattr(properties, name)
    sections = Sections(payload)
    for name, _ in HEADER_FIELDS:
        found = field(payload, HEADER, name)
        assert found == getattr(sections.header, name) or found is None


def test_unusual_encodings_are_read_the_careful_way() -> None:
    named = section("amqp:header:list", [True]) + section("amqp:application-properties:map", {"a": 1})
    assert find(named, "a") == 1
    assert field(named, HEADER, "durable") is True
    assert find(section(0x74, {Symbol("a"): 1, "b": 2}), "b") == 2
    assert find(section(0x74, {"b": 2, Symbol("a"): 1}), "a") == 1
    assert find(section(0x72, None) + section(0x74, {"a": 1}), "a") == 1
    assert find(section(0x74, {"x" * 300: 1, "a": 2}), "a") == 2
    assert field(section("amqp:properties:list", [UUID(int=1)]), PROPERTIES, "message_id") == UUID(int=1)


def test_sections_that_are_not_there_say_nothing() -> None:
    for payload in (b"", section(0x75, b"x"), section(0x70, []), section(0x73, [])):
        assert find(payload, "a") is None
        assert field(payload, HEADER, "priority") is None
        assert field(payload, PROPERTIES, "subject") is None


@pytest.mark.parametrize(
    "payload",
    [
        section(0x74, [1, 2]),
        section(0x74, "text"),
        b"\x00\x53\x74\xc1\x09\x02\xa1\x01b\x41",
        b"\x00\x53\x74\xc1\x05\x01\xa1\x01b\x41",
        b"\x00\x53\x74\xc1\x06\x02\xa1\x01b\x41\x41",
        b"\x00\x53\x74\xc1",
        b"\x00\x53\x70\xd0\x00\x00",
        b"no message",
    ],
)
def test_malformed_application_properties_are_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        find(payload, "a")


@pytest.mark.parametrize(
    "payload",
    [section(0x73, [None, None, None, 5]), section(0x73, {}), b"\x00\x53\x73\xc0\x20\x04\x40\x40\x40\xa1\x01s"],
)
def test_malformed_properties_are_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        field(payload, PROPERTIES, "subject")


def test_a_boolean_is_no_number() -> None:
    with pytest.raises(DecodeError, match="group_sequence"):
        field(section(0x73, [None] * 11 + [True]), PROPERTIES, "group_sequence")


@given(st.binary(max_size=40))
def test_any_bytes_give_a_value_or_a_decode_error(rest: bytes) -> None:
    for start in (b"", b"\x00\x53\x74\xc1", b"\x00\x53\x74\xc1\x20\x04\xa1\x01a", b"\x00\x53\x73\xc0\x20\x0d"):
        with suppress(DecodeError):
            find(start + rest, "a")
        with suppress(DecodeError):
            field(start + rest, PROPERTIES, "subject")
