"""Part 1: how values look on the wire."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest

from enmasse.errors import LocalError
from enmasse.message.codec import decode, encode, skip
from enmasse.message.composites import decode_composite, encode_composite
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
from enmasse.wire.amqp.performatives import Begin, Open
from tests.conformance.clause_list import clause

SOME_UUID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def check(data: bytes, value: Any) -> None:
    """These bytes are this value, of this type, and end where they end."""
    found, end = decode(data + b"\x40")
    assert (found, type(found), end) == (value, type(value), len(data))
    assert skip(data, 0, len(data)) == len(data)


def shortest(value: Any, data: bytes) -> None:
    """This value is written as these bytes, and read back as it was."""
    assert encode(value) == data
    check(data, value)


def refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(data)


@clause("1.6.1:encoding")
def test_null_has_no_content() -> None:
    shortest(None, b"\x40")


@clause("1.6.2:encodings", "1.2:any-encoding")
def test_a_boolean_comes_in_three_encodings() -> None:
    shortest(True, b"\x41")
    shortest(False, b"\x42")
    check(b"\x56\x01", True)
    check(b"\x56\x00", False)
    refused(b"\x56\x02")


@clause("1.6.3:range", "1.6.4:range", "1.2.1:width")
def test_small_unsigned_integers() -> None:
    for number in (0, 1, 0xFF):
        shortest(UByte(number), bytes((0x50, number)))
    for number in (0, 0x0102, 0xFFFF):
        shortest(UShort(number), b"\x60" + number.to_bytes(2, "big"))
    for value in (UByte(-1), UByte(256), UShort(0x10000)):
        with pytest.raises(LocalError):
            encode(value)


@clause("1.6.5:encodings", "1.2:any-encoding")
def test_a_uint_comes_in_four_octets_one_or_none() -> None:
    shortest(UInt(0), b"\x43")
    shortest(UInt(255), b"\x52\xff")
    shortest(UInt(256), b"\x70\x00\x00\x01\x00")
    shortest(UInt(0xFFFFFFFF), b"\x70\xff\xff\xff\xff")
    check(b"\x70\x00\x00\x00\x01", UInt(1))
    check(b"\x52\x00", UInt(0))


@clause("1.6.6:encodings", "1.2:any-encoding")
def test_a_ulong_comes_in_eight_octets_one_or_none() -> None:
    shortest(ULong(0), b"\x44")
    shortest(ULong(255), b"\x53\xff")
    shortest(ULong(1 << 63), b"\x80\x80" + bytes(7))
    check(b"\x80" + bytes(8), ULong(0))


@clause("1.6.7:range", "1.6.8:range", "1.2.1:width")
def test_small_signed_integers() -> None:
    shortest(Byte(-128), b"\x51\x80")
    shortest(Byte(127), b"\x51\x7f")
    shortest(Short(-2), b"\x61\xff\xfe")
    shortest(Short(-32768), b"\x61\x80\x00")


@clause("1.6.9:encodings", "1.6.10:encodings", "1.2:any-encoding")
def test_signed_integers_come_in_full_or_in_one_octet() -> None:
    shortest(Int(-1), b"\x54\xff")
    shortest(Int(128), b"\x71\x00\x00\x00\x80")
    check(b"\x71\xff\xff\xff\xff", Int(-1))
    shortest(-1, b"\x55\xff")
    shortest(-(1 << 63), b"\x81\x80" + bytes(7))
    check(b"\x81" + bytes(7) + b"\x05", 5)


@clause("1.6.11:encoding", "1.6.12:encoding", "1.2.1:width")
def test_binary_floating_point() -> None:
    shortest(Float(1.5), b"\x72" + struct.pack(">f", 1.5))
    shortest(-0.1, b"\x82" + struct.pack(">d", -0.1))
    assert str(decode(b"\x82\x7f\xf8" + bytes(6))[0]) == "nan"


@clause("1.6.13:encoding", "1.6.14:encoding", "1.6.15:encoding")
def test_decimals_are_passed_on_bit_by_bit() -> None:
    shortest(Decimal32(b"abcd"), b"\x74abcd")
    shortest(Decimal64(b"abcdefgh"), b"\x84abcdefgh")
    shortest(Decimal128(b"abcdefghijklmnop"), b"\x94abcdefghijklmnop")


@clause("1.6.16:encoding")
def test_a_char_is_utf_32() -> None:
    shortest(Char("é"), b"\x73\x00\x00\x00\xe9")
    shortest(Char("😀"), b"\x73\x00\x01\xf6\x00")
    refused(b"\x73\x00\x00\xd8\x00")
    refused(b"\x73\x00\x11\x00\x00")


@clause("1.6.17:encoding")
def test_a_timestamp_may_lie_before_1970() -> None:
    shortest(Timestamp(-1), b"\x83" + b"\xff" * 8)
    shortest(Timestamp(1_600_000_000_000), b"\x83" + (1_600_000_000_000).to_bytes(8, "big"))


@clause("1.6.18:encoding")
def test_a_uuid_is_its_16_octets() -> None:
    shortest(SOME_UUID, b"\x98" + SOME_UUID.bytes)


@pytest.mark.parametrize(
    ("short", "wide", "make"),
    [
        pytest.param(0xA0, 0xB0, lambda n: b"x" * n, marks=clause("1.6.19:encodings")),
        pytest.param(0xA1, 0xB1, lambda n: "x" * n, marks=clause("1.6.20:encodings")),
        pytest.param(0xA3, 0xB3, lambda n: Symbol("x" * n), marks=clause("1.6.21:encodings")),
    ],
)
@clause("1.2.2:size", "1.2:any-encoding")
def test_sized_values_have_a_size_of_one_octet_or_four(short: int, wide: int, make: Any) -> None:
    for size in (0, 1, 255):
        shortest(make(size), bytes((short, size)) + b"x" * size)
        check(bytes((wide,)) + size.to_bytes(4, "big") + b"x" * size, make(size))
    shortest(make(256), bytes((wide,)) + b"\x00\x00\x01\x00" + b"x" * 256)


@clause("1.2.2:cut-short")
def test_a_size_beyond_the_end_is_refused() -> None:
    for code in (0xA0, 0xA1, 0xA3):
        refused(bytes((code, 5)) + b"1234")
        refused(bytes((code | 0x10, 0, 0, 0, 5)) + b"1234")
        refused(bytes((code | 0x10, 0xFF, 0xFF, 0xFF, 0xFF)) + b"1234")
    refused(b"\x70\x00\x00")
    refused(b"\x98" + bytes(15))


@clause("1.6.20:utf8")
def test_a_string_is_utf_8() -> None:
    shortest("é😀", b"\xa1\x06\xc3\xa9\xf0\x9f\x98\x80")
    for bad in (b"\xff", b"\xc3", b"\xed\xa0\x80"):
        refused(bytes((0xA1, len(bad))) + bad)


@clause("1.1.1:symbols-ascii")
def test_a_symbol_is_ascii() -> None:
    refused(b"\xa3\x02\xc3\xa9")
    with pytest.raises(LocalError):
        encode(Symbol("é"))


@clause("1.1.1:binary-vs-string")
def test_binary_string_and_symbol_are_not_mixed_up() -> None:
    kinds = [type(decode(bytes((code, 1)) + b"a")[0]) for code in (0xA0, 0xA1, 0xA3)]
    assert kinds == [bytes, str, Symbol]
    assert [encode(kind("a") if kind is not bytes else b"a")[0] for kind in kinds] == [0xA0, 0xA1, 0xA3]


@clause("1.6.22:encodings", "1.2.3:count")
def test_a_list_has_three_encodings() -> None:
    shortest([], b"\x45")
    shortest([True, None], b"\xc0\x03\x02\x41\x40")
    check(b"\xd0\x00\x00\x00\x06\x00\x00\x00\x02\x41\x40", [True, None])
    check(b"\xc0\x01\x00", [])
    wide = [True] * 256
    shortest(wide, b"\xd0\x00\x00\x01\x04\x00\x00\x01\x00" + b"\x41" * 256)


@clause("1.6.23:encodings", "1.6.23:order", "1.2.3:count")
def test_a_map_has_two_encodings_and_keeps_its_order() -> None:
    shortest({"b": 1, "a": 2}, b"\xc1\x0b\x04\xa1\x01b\x55\x01\xa1\x01a\x55\x02")
    check(b"\xd1\x00\x00\x00\x0e\x00\x00\x00\x04\xa1\x01b\x55\x01\xa1\x01a\x55\x02", {"b": 1, "a": 2})
    assert list(decode(encode({"z": 1, "a": 2, "m": 3}))[0]) == ["z", "a", "m"]


@clause("1.6.23:pairs")
def test_a_map_with_an_odd_count_is_refused() -> None:
    refused(b"\xc1\x04\x01\xa1\x01a")


@clause("1.6.23:duplicate-keys")
def test_a_map_with_the_same_key_twice_is_refused() -> None:
    refused(b"\xc1\x0b\x04\xa1\x01a\x55\x01\xa1\x01a\x55\x02")
    # A string and a symbol, or numbers of other widths, are other keys.
    decode(b"\xc1\x0b\x04\xa1\x01a\x55\x01\xa3\x01a\x55\x02")


@clause("1.2.3:size-mismatch")
def test_elements_fill_their_compound_exactly() -> None:
    refused(b"\xc0\x04\x02\x41\x40\x40")
    refused(b"\xc0\x02\x02\x41\x40")
    refused(b"\xc0\x02\x01\xa1\x05abcde")
    refused(b"\xd0\x00\x00\x00\x03\x00\x00\x00\x00")


@clause("1.2.4:one-constructor", "1.6.24:encodings")
def test_an_array_has_one_constructor() -> None:
    shortest(Array(0xA3, [Symbol("a"), Symbol("bc")]), b"\xe0\x07\x02\xa3\x01a\x02bc")
    check(b"\xf0\x00\x00\x00\x0a\x00\x00\x00\x02\xa3\x01a\x02bc", Array(0xA3, [Symbol("a"), Symbol("bc")]))
    check(b"\xe0\x02\x00\xa1", Array(0xA1, []))


@clause("1.2.4:described-elements")
def test_the_elements_of_an_array_may_be_described() -> None:
    check(b"\xe0\x07\x02\x00\x53\x77\x50\x01\x02", Array(0x50, [UByte(1), UByte(2)], ULong(0x77)))


@clause("1.2:constructor", "1.1.2:any-descriptor")
def test_a_described_value_keeps_a_descriptor_that_nobody_knows() -> None:
    shortest(Described(Symbol("example:thing"), "x"), b"\x00\xa3\x0dexample:thing\xa1\x01x")
    shortest(Described(ULong(1 << 40), [1]), b"\x00\x80\x00\x00\x01\x00\x00\x00\x00\x00\xc0\x03\x01\x55\x01")
    shortest(Described(Described(UInt(0), None), None), b"\x00\x00\x43\x40\x40")


@clause("1.2:unknown-code")
def test_codes_that_are_not_assigned_are_refused() -> None:
    for code in (0x01, 0x46, 0x57, 0x62, 0x75, 0x85, 0x99, 0xA2, 0xC2, 0xE1, 0xFF):
        refused(bytes((code,)) + bytes(32))


# Composites


@clause("1.4:trailing-null")
def test_trailing_fields_may_be_left_out() -> None:
    assert encode_composite(Open("c")) == b"\x00\x53\x10\xc0\x04\x01\xa1\x01c"
    assert decode_composite(b"\x00\x53\x10\xc0\x04\x01\xa1\x01c", 0, 9)[0] == Open("c")


def composite(code: int, *values: Any) -> Any:
    data = encode(Described(ULong(code), list(values)))
    return decode_composite(data, 0, len(data))[0]


@clause("1.4:null-is-absent")
def test_a_null_field_has_its_default() -> None:
    assert composite(0x10, "c", None, None, None) == Open("c", None, 0xFFFFFFFF, 0xFFFF)


@clause("1.4:mandatory", "2.7.1:container-id", "2.7.2:mandatory")
@pytest.mark.parametrize(
    "fields", [(0x10,), (0x10, None), (0x11, None, UInt(0), UInt(0)), (0x11, None, None, UInt(0), UInt(0))]
)
def test_a_mandatory_field_is_missed(fields: tuple[Any, ...]) -> None:
    with pytest.raises(DecodeError, match="mandatory"):
        composite(*fields)


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        pytest.param(0x12, [None, UInt(0), False], marks=clause("2.7.3:mandatory")),
        pytest.param(0x12, ["n", None, False], marks=clause("2.7.3:mandatory")),
        pytest.param(0x12, ["n", UInt(0)], marks=clause("2.7.3:mandatory")),
        pytest.param(0x13, [None, UInt(1), UInt(1)], marks=clause("2.7.4:mandatory")),
        pytest.param(0x13, [None, None, UInt(1), UInt(1)], marks=clause("2.7.4:mandatory")),
        pytest.param(0x14, [], marks=clause("2.7.5:handle")),
        pytest.param(0x15, [True], marks=clause("2.7.6:mandatory")),
        pytest.param(0x15, [None, UInt(0)], marks=clause("2.7.6:mandatory")),
        pytest.param(0x16, [], marks=clause("2.7.7:handle")),
        pytest.param(0x1D, [], marks=clause("2.8.14:condition")),
        pytest.param(0x32, [], marks=clause("4.5.3:txn-id")),
        pytest.param(0x41, [], marks=clause("5.3.3.2:mechanism")),
        pytest.param(0x44, [], marks=clause("5.3.3.5:code")),
    ],
)
@clause("1.4:mandatory")
def test_mandatory_fields_of_the_other_types_are_missed(code: int, fields: list[Any]) -> None:
    import enmasse.wire.amqp.performatives  # noqa: F401 - registers its types

    with pytest.raises(DecodeError, match="mandatory"):
        composite(code, *fields)


@clause("1.4:multiple")
def test_several_values_come_as_nothing_one_or_an_array() -> None:
    for capabilities, found in (
        (None, None),
        (Symbol("a"), ("a",)),
        (Array(0xA3, [Symbol("a"), Symbol("b")]), ("a", "b")),
    ):
        fields = ["c", None, None, None, None, None, None, capabilities]
        assert composite(0x10, *fields).offered_capabilities == found


@clause("1.4:too-many-fields")
def test_more_fields_than_there_are_is_refused() -> None:
    with pytest.raises(DecodeError, match="fields"):
        composite(0x17, None, None)


@clause("1.5:symbolic")
def test_a_descriptor_is_a_number_or_a_symbol() -> None:
    fields = [None, UInt(0), UInt(1), UInt(2)]
    by_number = encode(Described(ULong(0x11), fields))
    by_name = encode(Described(Symbol("amqp:begin:list"), fields))
    found = [decode_composite(data, 0, len(data))[0] for data in (by_number, by_name)]
    assert found == [Begin(None, 0, 1, 2)] * 2
