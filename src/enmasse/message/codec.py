"""The AMQP type system as bytes, both ways [AMQP 1].

Rules:
1. Any bytes either decode or raise ``DecodeError``, in time proportional to their number.
2. ``decode(encode(value))`` gives the same value of the same type.
3. Nesting is bounded, so that no peer can exhaust our stack.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from enmasse.errors import LocalError
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

__all__ = ["decode", "decode_all", "encode", "encode_into", "skip"]

MAX_DEPTH = 32
"""Deeper than any format in use; management's answers nest four levels."""

MAX_EMPTY_ELEMENTS = 32
"""Elements of an array that take no bytes (null, say), which the array's size cannot bound. With
so few, arrays of them cost no more memory per byte received than a list of empty lists does."""

MAX_ODD_KEYS = 64
"""Keys of a map whose hash a peer can choose (uuid, array, described): a map of many with the
same hash would take time in proportion to the square of their number. No format uses such keys."""

_HASHED_WELL = frozenset(
    (str, Symbol, Char, bytes, Decimal32, Decimal64, Decimal128, float, Float, bool, type(None),
     int, UByte, UShort, UInt, ULong, Byte, Short, Int, Timestamp)
)  # fmt: skip

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_F32 = struct.Struct(">f")
_F64 = struct.Struct(">d")

Reader = Callable[[bytes, int, int], Any]


def _char(data: bytes, at: int, _size: int) -> Char:
    (point,) = _U32.unpack_from(data, at)
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise DecodeError(f"{point:#x} is no Unicode character")
    return Char(chr(point))


def _boolean(data: bytes, at: int, _size: int) -> bool:
    if data[at] > 1:
        raise DecodeError(f"a boolean of {data[at]:#04x}")
    return data[at] == 1


def _string(data: bytes, at: int, size: int) -> str:
    try:
        return data[at : at + size].decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"a string that is not UTF-8: {error.reason}") from None


def _symbol(data: bytes, at: int, size: int) -> Symbol:
    try:
        return Symbol(data[at : at + size].decode("ascii"))
    except UnicodeDecodeError:
        raise DecodeError("a symbol that is not ASCII") from None


_FIXED: dict[int, tuple[int, Reader]] = {
    0x40: (0, lambda _d, _a, _n: None),
    0x41: (0, lambda _d, _a, _n: True),
    0x42: (0, lambda _d, _a, _n: False),
    0x43: (0, lambda _d, _a, _n: UInt(0)),
    0x44: (0, lambda _d, _a, _n: ULong(0)),
    0x45: (0, lambda _d, _a, _n: []),
    0x50: (1, lambda d, a, _n: UByte(d[a])),
    0x51: (1, lambda d, a, _n: Byte(_I8.unpack_from(d, a)[0])),
    0x52: (1, lambda d, a, _n: UInt(d[a])),
    0x53: (1, lambda d, a, _n: ULong(d[a])),
    0x54: (1, lambda d, a, _n: Int(_I8.unpack_from(d, a)[0])),
    0x55: (1, lambda d, a, _n: int(_I8.unpack_from(d, a)[0])),
    0x56: (1, _boolean),
    0x60: (2, lambda d, a, _n: UShort(_U16.unpack_from(d, a)[0])),
    0x61: (2, lambda d, a, _n: Short(_I16.unpack_from(d, a)[0])),
    0x70: (4, lambda d, a, _n: UInt(_U32.unpack_from(d, a)[0])),
    0x71: (4, lambda d, a, _n: Int(_I32.unpack_from(d, a)[0])),
    0x72: (4, lambda d, a, _n: Float(_F32.unpack_from(d, a)[0])),
    0x73: (4, _char),
    0x74: (4, lambda d, a, n: Decimal32(d[a : a + n])),
    0x80: (8, lambda d, a, _n: ULong(_U64.unpack_from(d, a)[0])),
    0x81: (8, lambda d, a, _n: int(_I64.unpack_from(d, a)[0])),
    0x82: (8, lambda d, a, _n: float(_F64.unpack_from(d, a)[0])),
    0x83: (8, lambda d, a, _n: Timestamp(_I64.unpack_from(d, a)[0])),
    0x84: (8, lambda d, a, n: Decimal64(d[a : a + n])),
    0x94: (16, lambda d, a, n: Decimal128(d[a : a + n])),
    0x98: (16, lambda d, a, n: UUID(bytes=d[a : a + n])),
}
_VARIABLE: dict[int, tuple[int, Reader]] = {
    0xA0: (1, lambda d, a, n: d[a : a + n]),
    0xA1: (1, _string),
    0xA3: (1, _symbol),
    0xB0: (4, lambda d, a, n: d[a : a + n]),
    0xB1: (4, _string),
    0xB3: (4, _symbol),
}
_COMPOUND = frozenset((0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0))


def decode(data: bytes, at: int = 0, end: int | None = None) -> tuple[Any, int]:
    """The value that starts at ``at``, and where it ends.

    Raises:
        DecodeError: no value stands there, or it would end beyond ``end``.
    """
    limit = len(data) if end is None else end
    try:
        return _decode(data, at, limit, 0)
    except (IndexError, struct.error):
        raise DecodeError("a value is cut short") from None


def decode_all(data: bytes) -> list[Any]:
    """Every value of a sequence of values.

    Raises:
        DecodeError: the bytes are not a whole number of values.
    """
    values = []
    at = 0
    while at < len(data):
        value, at = decode(data, at)
        values.append(value)
    return values


def _decode(data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    if at >= end:
        raise DecodeError("a value is missing")
    code = data[at]
    if code == 0:
        if depth >= MAX_DEPTH:
            raise DecodeError(f"values are nested more than {MAX_DEPTH} levels deep")
        descriptor, at = _decode(data, at + 1, end, depth + 1)
        value, at = _decode(data, at, end, depth + 1)
        return Described(descriptor, value), at
    return _decode_as(code, data, at + 1, end, depth)


def _decode_as(code: int, data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    """The value of a known format code whose content starts at ``at``."""
    fixed = _FIXED.get(code)
    if fixed is not None:
        width, read = fixed
        stop = at + width
        if stop > end:
            raise DecodeError("a value is cut short")
        return read(data, at, width), stop
    variable = _VARIABLE.get(code)
    if variable is not None:
        width, read = variable
        size = data[at] if width == 1 else _U32.unpack_from(data, at)[0]
        at += width
        stop = at + size
        if stop > end:
            raise DecodeError(f"a value of {size} bytes is cut short")
        return read(data, at, size), stop
    if code not in _COMPOUND:
        raise DecodeError(f"{code:#04x} is no AMQP format code")
    if depth >= MAX_DEPTH:
        raise DecodeError(f"values are nested more than {MAX_DEPTH} levels deep")
    if code & 0x10:
        size, count = _U32.unpack_from(data, at)[0], _U32.unpack_from(data, at + 4)[0]
        stop = at + 4 + size
        at += 8
    else:
        size, count = data[at], data[at + 1]
        stop = at + 1 + size
        at += 2
    if stop > end or at > stop:
        raise DecodeError(f"a compound value of {size} bytes is cut short")
    kind = code & 0xEF
    value: Any
    if kind == 0xC0:
        value = _elements(data, at, stop, count, depth)
    elif kind == 0xC1:
        value = _pairs(_elements(data, at, stop, count, depth))
    else:
        value = _array(data, at, stop, count, depth)
    return value, stop


def _elements(data: bytes, at: int, stop: int, count: int, depth: int) -> list[Any]:
    if count > stop - at:
        raise DecodeError(f"{count} elements do not fit into {stop - at} bytes")
    values = []
    for _ in range(count):
        value, at = _decode(data, at, stop, depth + 1)
        values.append(value)
    if at != stop:
        raise DecodeError("a compound value is longer than its elements")
    return values


def _pairs(values: list[Any]) -> dict[Any, Any]:
    if len(values) & 1:
        raise DecodeError("a map with a key that has no value")
    keys = values[::2]
    if len(keys) > MAX_ODD_KEYS and sum(type(key) not in _HASHED_WELL for key in keys) > MAX_ODD_KEYS:
        raise DecodeError(f"a map with more than {MAX_ODD_KEYS} keys of a rare type")
    try:
        found = dict(zip(keys, values[1::2], strict=True))
        # Python takes 1 and 1.0, or a string and a symbol, for equal; AMQP does not.
        if len(found) < len(keys) and len({(type(key), key) for key in keys}) < len(keys):
            raise DecodeError("a map with the same key twice")
    except TypeError:
        raise DecodeError("a map whose key is a list or a map") from None
    return found


def _array(data: bytes, at: int, stop: int, count: int, depth: int) -> Array:
    if at >= stop:
        raise DecodeError("an array without a constructor")
    descriptor = None
    code = data[at]
    at += 1
    if code == 0:
        descriptor, at = _decode(data, at, stop, depth + 1)
        if at >= stop:
            raise DecodeError("an array without a constructor")
        code = data[at]
        at += 1
    fixed = _FIXED.get(code)
    if fixed is None and code not in _VARIABLE and code not in _COMPOUND:
        raise DecodeError(f"{code:#04x} is no AMQP format code")
    least = fixed[0] if fixed is not None else 1
    if count > ((stop - at) // least if least else MAX_EMPTY_ELEMENTS):
        raise DecodeError(f"{count} array elements do not fit into {stop - at} bytes")
    values: list[Any] = []
    if fixed is not None and not least:
        values = [fixed[1](data, at, 0)] * count
        count = 0
    for _ in range(count):
        value, at = _decode_as(code, data, at, stop, depth + 1)
        values.append(value)
    if at != stop:
        raise DecodeError("an array is longer than its elements")
    return Array(code, values, descriptor)


def skip(data: bytes, at: int, end: int) -> int:
    """Return where the value that starts at ``at`` ends, without making it.

    Only sizes are read, so what lies inside a compound value is not checked.

    Raises:
        DecodeError: the value would end beyond ``end``.
    """
    missing = 1
    try:
        while missing:
            code = data[at]
            if code == 0:
                # A descriptor and what it describes, each a value that may itself be described.
                at += 1
                missing += 1
                continue
            width = code >> 4
            if width < 0xA:
                at += 1 + _FIXED[code][0]
            elif width in (0xA, 0xC, 0xE):
                at += 2 + data[at + 1]
            else:
                at += 5 + _U32.unpack_from(data, at + 1)[0]
            missing -= 1
    except KeyError:
        raise DecodeError(f"{data[at]:#04x} is no AMQP format code") from None
    except (IndexError, struct.error):
        raise DecodeError("a value is cut short") from None
    if at > end:
        raise DecodeError("a value is cut short")
    return at


def encode(value: Any) -> bytes:
    """The bytes of one value, in the shortest form of its type.

    Raises:
        LocalError: the value has no AMQP type, or is out of its type's range.
    """
    out = bytearray()
    encode_into(out, value)
    return bytes(out)


def encode_into(out: bytearray, value: Any) -> None:
    """Append the bytes of one value; see ``encode``."""
    write = _WRITERS.get(type(value))
    if write is None:
        write = next((w for t, w in _WRITERS.items() if isinstance(value, t)), None)
        if write is None:
            raise LocalError(f"{type(value).__name__} has no AMQP type")
    try:
        write(out, value)
    except (struct.error, ValueError, TypeError, OverflowError) as error:
        raise LocalError(f"{value!r:.100} does not fit its AMQP type: {error}") from None


def _sized(out: bytearray, short: int, content: bytes) -> None:
    size = len(content)
    if size < 256:
        out += bytes((short, size))
    else:
        out.append(short | 0x10)
        out += _U32.pack(size)
    out += content


def _compound(out: bytearray, short: int, count: int, content: bytes | bytearray) -> None:
    size = len(content)
    if size < 255 and count < 256:
        out += bytes((short, size + 1, count))
    else:
        out.append(short | 0x10)
        out += _U32.pack(size + 4)
        out += _U32.pack(count)
    out += content


def _write_uint(out: bytearray, value: int) -> None:
    if value == 0:
        out.append(0x43)
    elif 0 < value < 256:
        out += bytes((0x52, value))
    else:
        out.append(0x70)
        out += _U32.pack(value)


def _write_ulong(out: bytearray, value: int) -> None:
    if value == 0:
        out.append(0x44)
    elif 0 < value < 256:
        out += bytes((0x53, value))
    else:
        out.append(0x80)
        out += _U64.pack(value)


def _write_signed(short: int, long: int, packer: struct.Struct) -> Callable[[bytearray, int], None]:
    def write(out: bytearray, value: int) -> None:
        if -128 <= value < 128:
            out.append(short)
            out += _I8.pack(value)
        else:
            out.append(long)
            out += packer.pack(value)

    return write


def _write_fixed(code: int, packer: struct.Struct) -> Callable[[bytearray, Any], None]:
    def write(out: bytearray, value: Any) -> None:
        out.append(code)
        out += packer.pack(value)

    return write


def _write_bits(code: int, size: int) -> Callable[[bytearray, bytes], None]:
    def write(out: bytearray, value: bytes) -> None:
        if len(value) != size:
            raise ValueError(f"{size} bytes are needed")
        out.append(code)
        out += value

    return write


def _write_char(out: bytearray, value: str) -> None:
    out.append(0x73)
    out += _one_char(value)


def _one_char(value: str) -> bytes:
    if len(value) != 1:
        raise ValueError("one character is needed")
    return value.encode("utf-32-be")


def _write_list(out: bytearray, value: list[Any] | tuple[Any, ...]) -> None:
    if not value:
        out.append(0x45)
        return
    content = bytearray()
    for item in value:
        encode_into(content, item)
    _compound(out, 0xC0, len(value), content)


def _write_map(out: bytearray, value: dict[Any, Any]) -> None:
    content = bytearray()
    for key, item in value.items():
        encode_into(content, key)
        encode_into(content, item)
    _compound(out, 0xC1, 2 * len(value), content)


def _write_described(out: bytearray, value: Described) -> None:
    out.append(0)
    encode_into(out, value.descriptor)
    encode_into(out, value.value)


def _write_array(out: bytearray, value: Array) -> None:
    content = bytearray()
    if value.descriptor is not None:
        content.append(0)
        encode_into(content, value.descriptor)
    content.append(value.code)
    if _FIXED.get(value.code, (1,))[0] == 0 and len(value.values) > MAX_EMPTY_ELEMENTS:
        raise ValueError(f"{len(value.values)} elements that take no bytes")
    for item in value.values:
        content += _element(value.code, item)
    _compound(out, 0xE0, len(value.values), content)


def _element(code: int, item: Any) -> bytes:
    """An array's element: its content in the width that ``code`` fixes, without a constructor."""
    if code in _PACKERS:
        return _PACKERS[code].pack(item)
    if code == 0x73:
        return _one_char(item)
    if code in _FIXED:
        width = _FIXED[code][0]
        content = item.bytes if isinstance(item, UUID) else bytes(item) if width else b""
        if len(content) != width:
            raise ValueError(f"{width} bytes are needed for format code {code:#04x}")
        return content
    if code in _VARIABLE:
        content = item.encode() if isinstance(item, str) else bytes(item)
        return (bytes((len(content),)) if code < 0xB0 else _U32.pack(len(content))) + content
    if code not in _COMPOUND:
        raise ValueError(f"{code:#04x} is no AMQP format code")
    inner = bytearray()
    encode_into(inner, item)
    if inner[0] == 0x45:
        inner = bytearray((0xC0, 1, 0))
    if (inner[0] ^ code) & 0xEF:
        raise ValueError(f"an element is not of format code {code:#04x}")
    if inner[0] == code:
        return bytes(inner[1:])
    if code & 0x10:
        return _U32.pack(inner[1] + 3) + _U32.pack(inner[2]) + bytes(inner[3:])
    raise ValueError(f"an element is too large for format code {code:#04x}")


_PACKERS: dict[int, struct.Struct] = {
    0x50: struct.Struct(">B"),
    0x51: _I8,
    0x52: struct.Struct(">B"),
    0x53: struct.Struct(">B"),
    0x54: _I8,
    0x55: _I8,
    0x56: struct.Struct(">?"),
    0x60: _U16,
    0x61: _I16,
    0x70: _U32,
    0x71: _I32,
    0x72: _F32,
    0x80: _U64,
    0x81: _I64,
    0x82: _F64,
    0x83: _I64,
}

_WRITERS: dict[type, Callable[[bytearray, Any], None]] = {
    type(None): lambda out, _v: out.append(0x40),
    bool: lambda out, v: out.append(0x41 if v else 0x42),
    UByte: _write_fixed(0x50, struct.Struct(">B")),
    UShort: _write_fixed(0x60, _U16),
    UInt: _write_uint,
    ULong: _write_ulong,
    Byte: _write_fixed(0x51, _I8),
    Short: _write_fixed(0x61, _I16),
    Int: _write_signed(0x54, 0x71, _I32),
    Timestamp: _write_fixed(0x83, _I64),
    Float: _write_fixed(0x72, _F32),
    Char: _write_char,
    Symbol: lambda out, v: _sized(out, 0xA3, v.encode("ascii")),
    Decimal32: _write_bits(0x74, 4),
    Decimal64: _write_bits(0x84, 8),
    Decimal128: _write_bits(0x94, 16),
    Described: _write_described,
    Array: _write_array,
    int: _write_signed(0x55, 0x81, _I64),
    float: _write_fixed(0x82, _F64),
    str: lambda out, v: _sized(out, 0xA1, v.encode()),
    bytes: lambda out, v: _sized(out, 0xA0, v),
    bytearray: lambda out, v: _sized(out, 0xA0, bytes(v)),
    memoryview: lambda out, v: _sized(out, 0xA0, bytes(v)),
    UUID: lambda out, v: out.extend(b"\x98" + v.bytes),
    list: _write_list,
    tuple: _write_list,
    dict: _write_map,
}
