"""Application properties as headers, and back."""

from __future__ import annotations

import math
import struct
from typing import Any
from uuid import UUID

import pytest

from enmasse.message.codec import encode
from enmasse.message.sections import Sections, encode_message
from enmasse.message.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
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
from enmasse.pipeline.errors import HeaderError
from enmasse.pipeline.headers import USER_PROPERTIES, Header, headers_of, properties_of

EACH: list[tuple[Any, str, str | None]] = [
    (None, "null", None),
    (True, "boolean", "true"),
    (False, "boolean", "false"),
    (UByte(255), "ubyte", "255"),
    (UShort(65_535), "ushort", "65535"),
    (UInt((1 << 32) - 1), "uint", "4294967295"),
    (ULong((1 << 64) - 1), "ulong", "18446744073709551615"),
    (Byte(-128), "byte", "-128"),
    (Short(-32_768), "short", "-32768"),
    (Int(-(1 << 31)), "int", "-2147483648"),
    (-(1 << 63), "long", "-9223372036854775808"),
    (Float(struct.unpack(">f", struct.pack(">f", 0.1))[0]), "float", "0.1"),
    (0.1, "double", "0.1"),
    (math.inf, "double", "Infinity"),
    (Decimal32(b"\x22\x50\x00\x01"), "decimal32", "22500001"),
    (Decimal64(bytes(range(8))), "decimal64", "0001020304050607"),
    (Decimal128(bytes(16)), "decimal128", "0" * 32),
    (Char("ö"), "char", "ö"),
    (Timestamp(1_769_860_800_123), "timestamp", "2026-01-31T12:00:00.123Z"),
    (Timestamp(-1), "timestamp", "1969-12-31T23:59:59.999Z"),
    (Timestamp((1 << 63) - 1), "timestamp", "9223372036854775807"),
    (UUID(int=7), "uuid", "00000000-0000-0000-0000-000000000007"),
    (b"\xff\x00", "binary", "/wA="),
    ("hö 😀", "string", "hö 😀"),
    ("", "string", ""),
    (Symbol("s"), "symbol", "s"),
    # No application property may be so, but nothing hinders a sender.
    ([1, "two"], "encoded", None),
    ({"a": Array(0xA3, [Symbol("x")])}, "encoded", None),
]


def message(annotations: dict[str, Any] | None = None, **properties: Any) -> Sections:
    return Sections(encode_message(b"", message_annotations=annotations, application_properties=properties))


@pytest.mark.parametrize(("value", "name", "text"), EACH)
def test_each_type_is_named_and_makes_the_same_bytes_again(value: Any, name: str, text: str | None) -> None:
    (header,) = headers_of(message(p=value))
    assert (header.key, header.type) == ("p", name)
    if name != "encoded":
        assert header.value == text
    (again,) = properties_of((header,)).application.values()
    assert type(again) is type(value)
    assert encode(again) == encode(value)


def test_what_is_no_number_stays_so() -> None:
    (header,) = headers_of(message(p=math.nan))
    assert (header.value, header.type) == ("NaN", "double")
    assert math.isnan(properties_of((header,)).application["p"])


def test_names_that_come_more_than_once_keep_their_order() -> None:
    texts = ["a", "1", "b", "2", "a", "3"]
    headers = headers_of(message({USER_PROPERTIES: texts}, a="1", b="2", c=5))
    assert headers == [("a", "1", "string"), ("b", "2", "string"), ("a", "3", "string"), ("c", "5", "long")]
    found = properties_of(tuple(headers[:3]))
    assert (found.application, found.pairs) == ({"a": "1", "b": "2"}, texts)
    assert properties_of(tuple(headers[:2])).pairs is None


@pytest.mark.parametrize("annotation", ["a", [1, 2], {"a": "b"}])
def test_an_annotation_that_is_no_list_of_texts_says_nothing(annotation: Any) -> None:
    assert headers_of(message({USER_PROPERTIES: annotation}, a="1")) == [("a", "1", "string")]


def test_a_header_of_kafka_is_binary_and_one_without_a_type_text() -> None:
    headers = (Header("a", b"\xff"), Header("b", "x"), Header("c", None))
    assert properties_of(headers).application == {"a": b"\xff", "b": "x", "c": None}


@pytest.mark.parametrize(
    ("headers", "complaint"),
    [
        ([Header(None, "x")], "a header has no key"),
        ([Header("a", "x", "number")], "header 'a': there is no type 'number'; expected null, boolean"),
        ([Header("a", "x", "int")], "header 'a': 'x' is no int"),
        ([Header("a", "256", "ubyte")], "'256' is no ubyte"),
        ([Header("a", "-1", "ulong")], "'-1' is no ulong"),
        ([Header("a", "1e40", "float")], "is no float"),
        ([Header("a", "yes", "boolean")], "is no boolean"),
        ([Header("a", "ab", "char")], "is no char"),
        ([Header("a", "ö", "symbol")], "is no symbol"),
        ([Header("a", "00", "decimal32")], "is no decimal32"),
        ([Header("a", "=", "binary")], "is no binary"),
        ([Header("a", "soon", "timestamp")], "is no timestamp"),
        ([Header("a", "7", "uuid")], "is no uuid"),
        ([Header("a", "/w==", "encoded")], "is no encoded"),
        ([Header("a", "QUE=", "encoded")], "is no encoded"),
        ([Header("a", "1", "int"), Header("a", "2", "int")], "of the type int; where a key comes twice"),
    ],
)
def test_what_no_message_can_have_is_told_by_its_key(headers: list[Header], complaint: str) -> None:
    with pytest.raises(HeaderError, match=complaint):
        properties_of(tuple(headers))
