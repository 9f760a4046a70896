"""The type system as bytes: round trips, every encoding variant, and what no peer may do to us."""

from __future__ import annotations

import math
import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.errors import LocalError
from enmasse.message.codec import MAX_DEPTH, MAX_EMPTY_ELEMENTS, decode, decode_all, encode, skip
from enmasse.message.errors import DecodeError
from enmasse.message.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from tests.support.chance import examples


def bits(kind: type[int], size: int, *, signed: bool) -> st.SearchStrategy[Any]:
    low, high = (-(1 << size - 1), (1 << size - 1) - 1) if signed else (0, (1 << size) - 1)
    return st.integers(low, high).map(kind)


ascii_text = st.text(st.characters(max_codepoint=127), max_size=300)
unicode_text = st.text(st.characters(codec="utf-8"), max_size=300)
scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    bits(UByte, 8, signed=False),
    bits(UShort, 16, signed=False),
    bits(UInt, 32, signed=False),
    bits(ULong, 64, signed=False),
    bits(Byte, 8, signed=True),
    bits(Short, 16, signed=True),
    bits(Int, 32, signed=True),
    bits(int, 64, signed=True),
    bits(Timestamp, 64, signed=True),
    st.floats(),
    st.floats(width=32).map(Float),
    st.characters(codec="utf-8").map(Char),
    st.uuids(),
    st.binary(max_size=300),
    unicode_text,
    ascii_text.map(Symbol),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
)
keys = st.one_of(ascii_text.map(Symbol), unicode_text, bits(ULong, 64, signed=False), st.uuids())
arrays = st.one_of(
    st.lists(ascii_text.map(Symbol), max_size=5).map(lambda values: Array(0xB3, values)),
    st.lists(unicode_text, max_size=5).map(lambda values: Array(0xB1, values)),
    st.lists(st.binary(max_size=255), max_size=5).map(lambda values: Array(0xA0, values)),
    st.lists(bits(UInt, 32, signed=False), max_size=300).map(lambda values: Array(0x70, values)),
    st.lists(bits(int, 8, signed=True), max_size=5).map(lambda values: Array(0x55, values)),
    st.lists(bits(Timestamp, 64, signed=True), max_size=5).map(lambda values: Array(0x83, values)),
    st.lists(st.floats(allow_nan=False), max_size=5).map(lambda values: Array(0x82, values)),
    st.lists(st.booleans(), max_size=5).map(lambda values: Array(0x56, values)),
    st.lists(st.uuids(), max_size=5).map(lambda values: Array(0x98, values)),
    st.lists(st.none(), max_size=5).map(lambda values: Array(0x40, values)),
    st.lists(bits(ULong, 8, signed=False), max_size=5).map(lambda values: Array(0x53, values, Symbol("a:b"))),
    st.lists(st.characters(codec="utf-8").map(Char), max_size=5).map(lambda values: Array(0x73, values)),
    st.lists(st.binary(min_size=8, max_size=8).map(Decimal64), max_size=5).map(lambda values: Array(0x84, values)),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars | arrays,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.builds(Described, ascii_text.map(Symbol) | bits(ULong, 64, signed=False), inner),
        st.lists(st.lists(inner, max_size=3), max_size=3).map(lambda items: Array(0xD0, items)),
    ),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal in value and in type, all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack(">d", left) == struct.pack(">d", right) or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same([*left], [*right]) and same([*left.values()], [*right.values()])
    if isinstance(left, Described):
        return same(left.descriptor, right.descriptor) and same(left.value, right.value)
    if isinstance(left, Array):
        return left.code == right.code and same(left.descriptor, right.descriptor) and same(left.values, right.values)
    return bool(left == right)


def test_the_comparison_used_here_tells_types_apart() -> None:
    assert not same(UInt(1), ULong(1))
    assert not same([1], [True])
    assert not same(Symbol("a"), "a")
    assert not same({Symbol("a"): 1}, {"a": 1})
    assert not same(0.0, -0.0)


@settings(max_examples=examples(60))
@given(values)
def test_a_value_comes_back_with_its_type(value: Any) -> None:
    data = encode(value)
    back, at = decode(data)
    assert at == len(data)
    expected = value
    if isinstance(value, Array) and value.code in (0xE0, 0xC0):
        expected = Array(value.code | 0x10, value.values, value.descriptor)
    assert same(back, expected)


@given(st.lists(values, max_size=4))
def test_a_sequence_of_values_comes_back(items: list[Any]) -> None:
    assert same(decode_all(b"".join(map(encode, items))), items)


@settings(max_examples=examples(60))
@given(values)
def test_skip_ends_where_decode_ends(value: Any) -> None:
    data = encode(value)
    assert skip(data, 0, len(data)) == len(data)
    assert skip(b"\xff" + data + b"\xff", 1, len(data) + 2) == len(data) + 1


@given(values, st.data())
def test_a_value_cut_short_is_a_decode_error(value: Any, data: st.DataObject) -> None:
    encoded = encode(value)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(DecodeError):
        decode(encoded[:cut])
    with pytest.raises(DecodeError):
        decode(encoded + b"\x40", 0, cut)
    with pytest.raises(DecodeError):
        skip(encoded, 0, cut)


def decode_or_refuse(data: bytes) -> None:
    """Either way out is fine, any other exception fails the test."""
    try:
        value, at = decode(data)
    except DecodeError:
        return
    assert 0 < at <= len(data)
    assert skip(data, 0, len(data)) == at
    again = encode(value)
    assert encode(decode(again)[0]) == again


@settings(max_examples=examples(150))
@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    decode_or_refuse(data)


CODES = bytes.fromhex(
    "00 40 41 42 43 44 45 50 51 52 53 54 55 56 60 61 70 71 72 73 74 80 81 82 83 84 94 98"
    "a0 a1 a3 b0 b1 b3 c0 c1 d0 d1 e0 f0"
)


@settings(max_examples=examples(150))
@given(
    st.lists(st.sampled_from(CODES) | st.integers(0, 8) | st.integers(0, 255), max_size=60).map(bytes),
)
def test_bytes_made_of_format_codes_decode_or_are_refused(data: bytes) -> None:
    decode_or_refuse(data)


@settings(max_examples=examples(100))
@given(values, st.data())
def test_a_value_with_changed_bytes_decodes_or_is_refused(value: Any, data: st.DataObject) -> None:
    encoded = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    decode_or_refuse(bytes(encoded))


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("40", None),
        ("41", True),
        ("42", False),
        ("5601", True),
        ("5600", False),
        ("5000", UByte(0)),
        ("60ffff", UShort(65535)),
        ("43", UInt(0)),
        ("5200", UInt(0)),
        ("52ff", UInt(255)),
        ("7000000000", UInt(0)),
        ("70ffffffff", UInt(4294967295)),
        ("44", ULong(0)),
        ("5310", ULong(16)),
        ("800000000000000010", ULong(16)),
        ("80ffffffffffffffff", ULong(18446744073709551615)),
        ("51ff", Byte(-1)),
        ("61ffff", Short(-1)),
        ("54ff", Int(-1)),
        ("71ffffffff", Int(-1)),
        ("55ff", -1),
        ("81ffffffffffffffff", -1),
        ("723fc00000", Float(1.5)),
        ("823ff8000000000000", 1.5),
        ("7400112233", Decimal32(bytes.fromhex("00112233"))),
        ("840011223344556677", Decimal64(bytes.fromhex("0011223344556677"))),
        ("730001f600", Char("\U0001f600")),
        ("83ffffffffffffffff", Timestamp(-1)),
        ("9800112233445566778899aabbccddeeff", UUID("00112233-4455-6677-8899-aabbccddeeff")),
        ("a0020102", b"\x01\x02"),
        ("b0000000020102", b"\x01\x02"),
        ("a102c3a9", "é"),
        ("b100000002c3a9", "é"),
        ("a30161", Symbol("a")),
        ("b30000000161", Symbol("a")),
        ("45", []),
        ("c00100", []),
        ("d00000000400000000", []),
        ("c0030241 42", [True, False]),
        ("d000000006000000024142", [True, False]),
        ("c10702a1016ba10176", {"k": "v"}),
        ("d10000000a00000002a1016ba10176", {"k": "v"}),
        ("e00a0270 00000001 00000002", Array(0x70, [UInt(1), UInt(2)])),
        ("f00000000d00000002 70 00000001 00000002", Array(0x70, [UInt(1), UInt(2)])),
        ("e005 03 00 5301 40", Array(0x40, [None, None, None], ULong(1))),
        ("00a30161 40", Described(Symbol("a"), None)),
        ("00 00 5301 5302 40", Described(Described(ULong(1), ULong(2)), None)),
        ("00 5301 00 5302 40", Described(ULong(1), Described(ULong(2), None))),
    ],
)
def test_every_encoding_variant_is_read(encoded: str, value: Any) -> None:
    data = bytes.fromhex(encoded)
    back, at = decode(data)
    assert at == len(data)
    assert same(back, value)
    assert skip(data, 0, len(data)) == len(data)


@pytest.mark.parametrize(
    ("encoded", "why"),
    [
        ("", "missing"),
        ("00", "missing"),
        ("0040", "missing"),
        ("01", "no AMQP format code"),
        ("3f", "no AMQP format code"),
        ("a2 00", "no AMQP format code"),
        ("ff 00000000", "no AMQP format code"),
        ("5602", "boolean"),
        ("73 0000d800", "Unicode"),
        ("73 00110000", "Unicode"),
        ("a1 01 ff", "UTF-8"),
        ("a3 01 80", "ASCII"),
        ("a0 02 00", "cut short"),
        ("b0 ffffffff", "cut short"),
        ("c0 00", "cut short"),
        ("c0 01 01", "do not fit"),
        ("c0 03 01 4040", "longer"),
        ("c0 03 02 41a0", "cut short"),
        ("d0 00000003 00000000", "cut short"),
        ("d0 ffffffff 00000000", "cut short"),
        ("d0 00000004 ffffffff", "do not fit"),
        ("c1 02 01 40", "no value"),
        ("c1 03 02 45 40", "key"),
        ("c1 05 02 c10100 40", "key"),
        ("e0 01 00", "constructor"),
        ("e0 02 01 00", "constructor|missing"),
        ("e0 04 01 00 5301", "constructor"),
        ("e0 03 02 50 01", "do not fit"),
        ("e0 05 02 50 010203", "longer"),
        ("f0 00000005 ffffffff 40", "do not fit"),
        ("f0 00000005 ffffffff 45", "do not fit"),
        ("f0 00000005 ffffffff 70", "do not fit"),
        ("e0 02 01 01", "no AMQP format code|do not fit"),
    ],
)
def test_malformed_values_are_decode_errors(encoded: str, why: str) -> None:
    with pytest.raises(DecodeError, match=why) as caught:
        decode(bytes.fromhex(encoded))
    assert caught.value.condition == "amqp:decode-error"


@pytest.mark.parametrize("depth", [10_000, 300_000])
def test_lists_nested_thousands_deep_are_refused(depth: int) -> None:
    data = b"".join(b"\xd0" + struct.pack(">II", 9 * (depth - level) - 4, 1) for level in range(depth)) + b"\x45"
    with pytest.raises(DecodeError, match="levels deep"):
        decode(data)


@pytest.mark.parametrize(
    "opening",
    [b"\x00", b"\x00\x40", b"\xe0\x02\x01", b"\xe0\x02\x01\xe0", b"\xe0\x02\x01\x00", b"\xc1\xff\x02\x40"],
)
def test_endless_nesting_of_any_kind_is_refused(opening: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(opening * 100_000)


def test_nesting_up_to_the_bound_is_read() -> None:
    value: Any = None
    for _ in range(MAX_DEPTH):
        value = [value]
    assert decode(encode(value))[0] == value
    with pytest.raises(DecodeError, match="levels deep"):
        decode(encode([value]))


def test_arrays_cannot_announce_more_than_their_bytes() -> None:
    fits = Array(0x40, [None] * MAX_EMPTY_ELEMENTS)
    assert decode(encode(fits))[0] == fits
    with pytest.raises(DecodeError, match="do not fit"):
        decode(bytes.fromhex("f000000005") + struct.pack(">I", MAX_EMPTY_ELEMENTS + 1) + b"\x40")
    with pytest.raises(LocalError, match="take no bytes"):
        encode(Array(0x40, [None] * (MAX_EMPTY_ELEMENTS + 1)))


@pytest.mark.parametrize("constructor", ["00", "004000", "46", "ff"])
def test_arrays_of_nothing_need_a_format_code_all_the_same(constructor: str) -> None:
    content = bytes.fromhex(constructor)
    with pytest.raises(DecodeError):
        decode(bytes((0xE0, 1 + len(content), 0)) + content)


def test_a_megabyte_of_arrays_of_nothing_stays_small() -> None:
    element = bytes((0xE0, 2, MAX_EMPTY_ELEMENTS, 0x40))
    count = 100_000
    data = b"\xd0" + struct.pack(">II", 4 + count * len(element), count) + element * count
    value, _ = decode(data)
    assert sum(len(item.values) for item in value) <= 8 * len(data)


def test_keys_whose_hash_the_peer_chose_cannot_slow_us_down() -> None:
    # Python's hash of a UUID is its number modulo 2**61 - 1, so these all fall into one slot.
    colliding = b"".join(encode(UUID(int=7 + n * ((1 << 61) - 1))) + b"\x40" for n in range(60_000))
    data = b"\xd1" + struct.pack(">II", 4 + len(colliding), 120_000) + colliding
    with pytest.raises(DecodeError, match="rare type"):
        decode(data)


def test_maps_may_have_many_keys_of_the_usual_types() -> None:
    value = {f"key{n}": n for n in range(1000)} | {ULong(n): None for n in range(1000)}
    assert same(decode(encode(value))[0], value)


@pytest.mark.parametrize(
    "value",
    [
        UByte(256),
        UByte(-1),
        UShort(65536),
        UInt(-1),
        UInt(1 << 32),
        ULong(-1),
        ULong(1 << 64),
        Byte(128),
        Short(-32769),
        Int(1 << 31),
        1 << 63,
        Timestamp(1 << 63),
        Float(1e300),
        Char("ab"),
        Char(""),
        Char("\ud800"),
        "\ud800",
        Symbol("é"),
        Decimal32(b"12345"),
        Array(0xA0, [b"x" * 256]),
        Array(0x50, [256]),
        Array(0x98, [b"short"]),
        Array(0x01, [1]),
        Array(0xC0, [{}]),
        Array(0xC0, [["x" * 300]]),
        Array(0x73, ["ab"]),
        Array(0xA0, [None]),
        object(),
        [1, [object()]],
        {"k": {1, 2}},
    ],
)
def test_what_has_no_encoding_is_our_own_error(value: Any) -> None:
    with pytest.raises(LocalError):
        encode(value)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ((1, 2), "c005025501 5502"),
        (bytearray(b"x"), "a00178"),
        (memoryview(b"x"), "a00178"),
        (True, "41"),
        ("x" * 255, "a1ff" + "78" * 255),
        ("x" * 256, "b100000100" + "78" * 256),
        ([None] * 253, "c0fefd" + "40" * 253),
        ([None] * 254, "c0fffe" + "40" * 254),
        ([None] * 255, "d0000001030000 00ff" + "40" * 255),
    ],
)
def test_values_take_their_shortest_form(value: Any, encoded: str) -> None:
    assert encode(value).hex() == bytes.fromhex(encoded).hex()
