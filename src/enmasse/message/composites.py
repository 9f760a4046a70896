"""Composites: described lists of fields, and how a class stands for one.

Each class lists its fields in the order of the wire; a field's kind says how it is read and
written. ``encode_composite`` drops trailing fields that are at their default,
``decode_composite`` is its mirror image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from enmasse.message.codec import decode, encode_into
from enmasse.message.errors import DecodeError
from enmasse.message.types import Array, Described, Symbol, UByte, UInt, ULong, UShort

__all__ = [
    "ANY",
    "BINARY",
    "BOOLEAN",
    "FIELDS",
    "MAP",
    "NAME",
    "NAMES",
    "STRING",
    "UBYTE",
    "UINT",
    "ULONG",
    "USHORT",
    "Composite",
    "Kind",
    "composite",
    "decode_composite",
    "encode_composite",
    "field_of",
    "from_described",
    "register",
]  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """The check of a field when read, and its type when written."""

    name: str
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def _number(name: str, wire: type[int], limit: int) -> Kind:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
            raise DecodeError(f"{value!r:.60} where a {name} was expected")
        return int(value)

    return Kind(name, read, wire)


def _instance(name: str, accepted: type | tuple[type, ...], write: Callable[[Any], Any]) -> Kind:
    def read(value: Any) -> Any:
        if not isinstance(value, accepted):
            raise DecodeError(f"{value!r:.60} where a {name} was expected")
        return value

    return Kind(name, read, write)


def _symbol(value: Any) -> str:
    if not isinstance(value, str) or not value.isascii():
        raise DecodeError(f"{value!r:.60} where a symbol was expected")
    return str(value)


def _symbols(value: Any) -> tuple[str, ...]:
    return tuple(_symbol(item) for item in (value.values if isinstance(value, Array) else [value]))


def _symbol_array(values: tuple[str, ...]) -> Array:
    wide = any(len(value) > 255 for value in values)
    return Array(0xB3 if wide else 0xA3, [Symbol(value) for value in values])


def _read_fields(value: Any) -> dict[Any, Any]:
    """A map whose keys are names; strings pass for symbols, as some peers write them."""
    if not isinstance(value, dict):
        raise DecodeError(f"{value!r:.60} where a map was expected")
    for key in value:
        if isinstance(key, str):
            _symbol(key)
    return value


def _write_fields(value: dict[Any, Any]) -> dict[Any, Any]:
    return {Symbol(key) if isinstance(key, str) else key: item for key, item in value.items()}


def _same(value: Any) -> Any:
    return value


UBYTE = _number("ubyte", UByte, 0xFF)
USHORT = _number("ushort", UShort, 0xFFFF)
UINT = _number("uint", UInt, 0xFFFFFFFF)
ULONG = _number("ulong", ULong, 0xFFFFFFFFFFFFFFFF)
BOOLEAN = _instance("boolean", bool, _same)
STRING = _instance("string", str, str)
NAME = Kind("symbol", _symbol, Symbol)
BINARY = _instance("binary", bytes, bytes)
MAP = _instance("map", dict, _same)
FIELDS = Kind("fields", _read_fields, _write_fields)
"""A map from names to values: its keys are symbols [AMQP 2.8.13], which strict peers insist on."""
NAMES = Kind("symbols", _symbols, _symbol_array)
ANY = Kind("value", _same, _same)


def composite(*names: str) -> Kind:
    """A field that holds one of the composites named, by their classes."""

    def read(value: Any) -> Any:
        found = from_described(value)
        if type(found).__name__ not in names:
            raise DecodeError(f"{value!r:.60} where {' or '.join(names)} was expected")
        return found

    return Kind("composite", read, _same)


def field_of(kind: Kind, default: Any = MISSING) -> Any:
    """A field of the wire; one without default is mandatory."""
    if default is MISSING:
        return field(metadata={"kind": kind})
    return field(default=default, metadata={"kind": kind})


class Composite:
    """A described list of fields."""

    __slots__ = ()
    CODE: ClassVar[int]
    SYMBOL: ClassVar[str]


_BY_DESCRIPTOR: dict[Any, type[Composite]] = {}
_LAYOUT: dict[type[Composite], list[tuple[str, Kind, Any]]] = {}


def register(*classes: type[Composite]) -> None:
    """Have descriptors stand for these classes from now on."""
    for cls in classes:
        _BY_DESCRIPTOR[cls.CODE] = _BY_DESCRIPTOR[cls.SYMBOL] = cls
        forced = getattr(cls, "MANDATORY", ())
        _LAYOUT[cls] = [
            (f.name, f.metadata["kind"], MISSING if f.name in forced else f.default)
            for f in fields(cls)  # type: ignore[arg-type]
            if "kind" in f.metadata
        ]


P = TypeVar("P", bound=Composite)


def _build(cls: type[P], values: Any) -> P:
    if not isinstance(values, list):
        raise DecodeError(f"a {cls.SYMBOL} is not a list")
    layout = _LAYOUT[cls]
    if len(values) > len(layout):
        raise DecodeError(f"a {cls.SYMBOL} has {len(values)} fields, {len(layout)} are known")
    found: dict[str, Any] = {}
    for index, (name, kind, default) in enumerate(layout):
        value = values[index] if index < len(values) else None
        if value is not None:
            found[name] = kind.read(value)
        elif default is MISSING:
            raise DecodeError(f"a {cls.SYMBOL} lacks its mandatory field {name}")
    return cls(**found)


def from_described(value: Any) -> Any:
    """The composite that a described value stands for.

    Values with a descriptor that is not known here (a filter, a lifetime policy, a delivery
    state of an extension) stay as they are.

    Raises:
        DecodeError: a known composite whose fields are wrong, or a value that is not described.
    """
    if not isinstance(value, Described):
        raise DecodeError(f"{value!r:.60} where a composite was expected")
    descriptor = value.descriptor
    if not isinstance(descriptor, int | str):
        raise DecodeError("a descriptor that is neither number nor symbol")
    cls = _BY_DESCRIPTOR.get(descriptor)
    return value if cls is None else _build(cls, value.value)


def decode_composite(data: bytes, at: int, end: int) -> tuple[Composite, int]:
    """The composite that starts at ``at``, and where what is behind it starts.

    Raises:
        DecodeError: no known composite stands there, or its fields are wrong.
    """
    value, after = decode(data, at, end)
    found = from_described(value)
    if not isinstance(found, Composite):
        raise DecodeError(f"{value.descriptor!r:.60} is no composite that is known here")
    return found, after


def _to_described(value: Composite) -> Described:
    items: list[Any] = []
    keep = 0
    for name, kind, default in _LAYOUT[type(value)]:
        item = getattr(value, name)
        if item is not None:
            if isinstance(item, Composite):
                item = _to_described(item)
            elif not isinstance(item, Described):
                item = kind.write(item)
        if default is MISSING or item != default:
            keep = len(items) + 1
            items.append(item)
        else:
            items.append(None)
    return Described(ULong(value.CODE), items[:keep])


def encode_composite(value: Composite) -> bytes:
    """The bytes of a composite, trailing defaults left out."""
    out = bytearray()
    encode_into(out, _to_described(value))
    return bytes(out)
