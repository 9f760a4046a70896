from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.message.codec import encode
from enmasse.message.types import Array, Described, Symbol, Timestamp, ULong
from enmasse.pipeline.source.columns import value_of

HEADER = Described(ULong(0x70), [True])
PROPERTIES = Described(ULong(0x73), ["id"])


def message(*bodies: object, code: int = 0x77) -> bytes:
    sections = [HEADER, PROPERTIES, *[Described(ULong(code), body) for body in bodies]]
    return b"".join(encode(section) for section in sections)


def test_data_sections_are_joined() -> None:
    assert value_of(message(b"one ", b"two", code=0x75)) == b"one two"


def test_a_body_of_text_or_bytes_is_given_plainly() -> None:
    assert value_of(message("grün")) == "grün".encode()
    assert value_of(message(b"\xff\x00")) == b"\xff\x00"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"t": 21.5, "ok": True, "no": None}, {"t": 21.5, "ok": True, "no": None}),
        ([1, "a", [2]], [1, "a", [2]]),
        ({1: b"\x00\x01"}, {"1": "AAE="}),
        (Timestamp(1_700_000_000_000), 1_700_000_000_000),
        (Array(0xA3, [Symbol("a"), Symbol("b")]), ["a", "b"]),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (float("nan"), "nan"),
        (Described(Symbol("unit"), 5), {"descriptor": "unit", "value": 5}),
    ],
)
def test_a_structured_body_is_json(body: object, expected: object) -> None:
    assert json.loads(value_of(message(body))) == expected


def test_sequences_are_one_list() -> None:
    assert json.loads(value_of(message([1, 2], [3], code=0x76))) == [1, 2, 3]


def test_a_message_without_a_body_has_no_value() -> None:
    assert value_of(message()) == b""
    assert value_of(message(None)) == b""


@given(st.binary(max_size=200))
def test_no_message_stops_a_query(payload: bytes) -> None:
    assert isinstance(value_of(payload), bytes)


def test_what_cannot_be_decoded_is_given_as_it_came() -> None:
    assert value_of(b"\x00\x53") == b"\x00\x53"
