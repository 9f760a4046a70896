"""AMQP values whose type Python does not show by itself [AMQP 1.6].

Python's own types stand for the rest: ``None`` null, ``bool`` boolean, ``int`` long, ``float``
double, ``str`` string, ``bytes`` binary, ``uuid.UUID`` uuid, ``list`` list, ``dict`` map.
Numbers of another width are subclasses of ``int``, so they compare and compute as numbers.
"""

from __future__ import annotations

from typing import Any


class UByte(int):
    """Unsigned, 8 bits."""

    __slots__ = ()


class UShort(int):
    """Unsigned, 16 bits."""

    __slots__ = ()


class UInt(int):
    """Unsigned, 32 bits."""

    __slots__ = ()


class ULong(int):
    """Unsigned, 64 bits."""

    __slots__ = ()


class Byte(int):
    """Signed, 8 bits."""

    __slots__ = ()


class Short(int):
    """Signed, 16 bits."""

    __slots__ = ()


class Int(int):
    """Signed, 32 bits."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970 UTC."""

    __slots__ = ()


class Float(float):
    """IEEE 754, 32 bits."""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Symbol(str):
    """A name from a restricted domain, in ASCII."""

    __slots__ = ()


class _Decimal(bytes):
    """A decimal number as its IEEE 754 bits, kept and passed on but not computed with."""

    __slots__ = ()


class Decimal32(_Decimal):
    """4 bytes."""

    __slots__ = ()


class Decimal64(_Decimal):
    """8 bytes."""

    __slots__ = ()


class Decimal128(_Decimal):
    """16 bytes."""

    __slots__ = ()


class Described:
    """A value with a descriptor that says what it means [AMQP 1.2]."""

    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor: Any, value: Any) -> None:
        self.descriptor = descriptor
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Described) and self.descriptor == other.descriptor and self.value == other.value

    def __hash__(self) -> int:
        return hash((Described, self.descriptor))

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


class Array:
    """Values of one type, which the constructor's code names [AMQP 1.6.24].

    Args:
        code: the format code that the elements share, such as 0xA3 for symbols up to 255 bytes.
        values: the elements.
        descriptor: the descriptor of each element, if there is one.
    """

    __slots__ = ("code", "descriptor", "values")

    def __init__(self, code: int, values: list[Any], descriptor: Any = None) -> None:
        self.code = code
        self.values = values
        self.descriptor = descriptor

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Array)
            and self.code == other.code
            and self.values == other.values
            and self.descriptor == other.descriptor
        )

    def __hash__(self) -> int:
        return hash((Array, self.code, len(self.values)))

    def __repr__(self) -> str:
        return f"Array({self.code:#04x}, {self.values!r}, {self.descriptor!r})"
