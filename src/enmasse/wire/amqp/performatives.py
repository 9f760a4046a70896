"""Performatives, SASL frames, terminus and delivery states as classes [AMQP 2.7, 3.4, 3.5, 5.3].

Each class lists its fields in the order of the wire; a field's kind says how it is read and
written. ``encode`` drops trailing fields that are at their default, ``decode_performative`` is
its mirror image. The hot paths (transfer, disposition, flow) have their own readers in
``session``; what is here is the reference that they agree with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from enmasse.wire.amqp.codec import decode, encode_into
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.types import Array, Described, Symbol, UByte, UInt, ULong, UShort

__all__ = [
    "Accepted",
    "AmqpError",
    "Attach",
    "Begin",
    "Close",
    "Coordinator",
    "Detach",
    "Disposition",
    "End",
    "Flow",
    "Modified",
    "Open",
    "Performative",
    "Received",
    "Rejected",
    "Released",
    "SaslChallenge",
    "SaslInit",
    "SaslMechanisms",
    "SaslOutcome",
    "SaslResponse",
    "Source",
    "Target",
    "Transfer",
    "decode_performative",
    "encode_performative",
    "from_described",
]


@dataclass(frozen=True)
class _Kind:
    """How one field is checked when read and typed when written."""

    name: str
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def _number(name: str, wire: type[int], limit: int) -> _Kind:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
            raise DecodeError(f"{value!r:.60} where a {name} was expected")
        return int(value)

    return _Kind(name, read, wire)


def _instance(name: str, accepted: type | tuple[type, ...], write: Callable[[Any], Any]) -> _Kind:
    def read(value: Any) -> Any:
        if not isinstance(value, accepted):
            raise DecodeError(f"{value!r:.60} where a {name} was expected")
        return value

    return _Kind(name, read, write)


def _symbol(value: Any) -> str:
    if not isinstance(value, str) or not value.isascii():
        raise DecodeError(f"{value!r:.60} where a symbol was expected")
    return str(value)


def _symbols(value: Any) -> tuple[str, ...]:
    return tuple(_symbol(item) for item in (value.values if isinstance(value, Array) else [value]))


def _symbol_array(values: tuple[str, ...]) -> Array:
    wide = any(len(value) > 255 for value in values)
    return Array(0xB3 if wide else 0xA3, [Symbol(value) for value in values])


def _same(value: Any) -> Any:
    return value


_UBYTE = _number("ubyte", UByte, 0xFF)
_USHORT = _number("ushort", UShort, 0xFFFF)
_UINT = _number("uint", UInt, 0xFFFFFFFF)
_ULONG = _number("ulong", ULong, 0xFFFFFFFFFFFFFFFF)
_BOOLEAN = _instance("boolean", bool, _same)
_STRING = _instance("string", str, str)
_SYMBOL = _Kind("symbol", _symbol, Symbol)
_BINARY = _instance("binary", bytes, bytes)
_MAP = _instance("map", dict, _same)
_SYMBOLS = _Kind("symbols", _symbols, _symbol_array)
_ANY = _Kind("value", _same, _same)


def _composite(*names: str) -> _Kind:
    """A field that holds one of the composites named, by their classes."""

    def read(value: Any) -> Any:
        found = from_described(value)
        if type(found).__name__ not in names:
            raise DecodeError(f"{value!r:.60} where {' or '.join(names)} was expected")
        return found

    return _Kind("composite", read, _same)


_ERROR = _composite("AmqpError")
_STATE = _composite("Received", "Accepted", "Rejected", "Released", "Modified", "Described")
"""A state of an extension, such as those of transactions, stays a described value."""


def _field(kind: _Kind, default: Any = MISSING) -> Any:
    """A field of the wire; one without default is mandatory."""
    if default is MISSING:
        return field(metadata={"kind": kind})
    return field(default=default, metadata={"kind": kind})


class Performative:
    """A described list of fields."""

    __slots__ = ()
    CODE: ClassVar[int]
    SYMBOL: ClassVar[str]


@dataclass(slots=True)
class AmqpError(Performative):
    """Why a connection, session, link or delivery ended [AMQP 2.8.14]."""

    CODE = 0x1D
    SYMBOL = "amqp:error:list"
    condition: str = _field(_SYMBOL)
    description: str | None = _field(_STRING, None)
    info: dict[Any, Any] | None = _field(_MAP, None)


@dataclass(slots=True)
class Open(Performative):
    """Negotiates the connection [AMQP 2.7.1]; idle_time_out in milliseconds."""

    CODE = 0x10
    SYMBOL = "amqp:open:list"
    container_id: str = _field(_STRING)
    hostname: str | None = _field(_STRING, None)
    max_frame_size: int = _field(_UINT, 0xFFFFFFFF)
    channel_max: int = _field(_USHORT, 0xFFFF)
    idle_time_out: int | None = _field(_UINT, None)
    outgoing_locales: tuple[str, ...] | None = _field(_SYMBOLS, None)
    incoming_locales: tuple[str, ...] | None = _field(_SYMBOLS, None)
    offered_capabilities: tuple[str, ...] | None = _field(_SYMBOLS, None)
    desired_capabilities: tuple[str, ...] | None = _field(_SYMBOLS, None)
    properties: dict[Any, Any] | None = _field(_MAP, None)


@dataclass(slots=True)
class Begin(Performative):
    """Begins a session on a channel [AMQP 2.7.2]."""

    CODE = 0x11
    SYMBOL = "amqp:begin:list"
    MANDATORY: ClassVar = ("next_outgoing_id", "incoming_window", "outgoing_window")
    remote_channel: int | None = _field(_USHORT, None)
    next_outgoing_id: int = _field(_UINT, 0)
    incoming_window: int = _field(_UINT, 0)
    outgoing_window: int = _field(_UINT, 0)
    handle_max: int = _field(_UINT, 0xFFFFFFFF)
    offered_capabilities: tuple[str, ...] | None = _field(_SYMBOLS, None)
    desired_capabilities: tuple[str, ...] | None = _field(_SYMBOLS, None)
    properties: dict[Any, Any] | None = _field(_MAP, None)


@dataclass(slots=True)
class Source(Performative):
    """Where a link's messages come from [AMQP 3.5.3]; timeout in seconds."""

    CODE = 0x28
    SYMBOL = "amqp:source:list"
    address: Any = _field(_ANY, None)
    durable: int = _field(_UINT, 0)
    expiry_policy: str = _field(_SYMBOL, "session-end")
    timeout: int = _field(_UINT, 0)
    dynamic: bool = _field(_BOOLEAN, False)
    dynamic_node_properties: dict[Any, Any] | None = _field(_MAP, None)
    distribution_mode: str | None = _field(_SYMBOL, None)
    filter: dict[Any, Any] | None = _field(_MAP, None)
    default_outcome: Any = _field(_STATE, None)
    outcomes: tuple[str, ...] | None = _field(_SYMBOLS, None)
    capabilities: tuple[str, ...] | None = _field(_SYMBOLS, None)


@dataclass(slots=True)
class Target(Performative):
    """Where a link's messages go [AMQP 3.5.4]; timeout in seconds."""

    CODE = 0x29
    SYMBOL = "amqp:target:list"
    address: Any = _field(_ANY, None)
    durable: int = _field(_UINT, 0)
    expiry_policy: str = _field(_SYMBOL, "session-end")
    timeout: int = _field(_UINT, 0)
    dynamic: bool = _field(_BOOLEAN, False)
    dynamic_node_properties: dict[Any, Any] | None = _field(_MAP, None)
    capabilities: tuple[str, ...] | None = _field(_SYMBOLS, None)


@dataclass(slots=True)
class Coordinator(Performative):
    """The target of a link that controls transactions [AMQP 4.5.1]."""

    CODE = 0x30
    SYMBOL = "amqp:coordinator:list"
    capabilities: tuple[str, ...] | None = _field(_SYMBOLS, None)


@dataclass(slots=True)
class Attach(Performative):
    """Attaches a link to a session [AMQP 2.7.3]; role is true for a receiver."""

    CODE = 0x12
    SYMBOL = "amqp:attach:list"
    name: str = _field(_STRING)
    handle: int = _field(_UINT)
    role: bool = _field(_BOOLEAN)
    snd_settle_mode: int = _field(_UBYTE, 2)
    rcv_settle_mode: int = _field(_UBYTE, 0)
    source: Source | None = _field(_composite("Source"), None)
    target: Target | Coordinator | None = _field(_composite("Target", "Coordinator"), None)
    unsettled: dict[Any, Any] | None = _field(_MAP, None)
    incomplete_unsettled: bool = _field(_BOOLEAN, False)
    initial_delivery_count: int | None = _field(_UINT, None)
    max_message_size: int | None = _field(_ULONG, None)
    offered_capabilities: tuple[str, ...] | None = _field(_SYMBOLS, None)
    desired_capabilities: tuple[str, ...] | None = _field(_SYMBOLS, None)
    properties: dict[Any, Any] | None = _field(_MAP, None)


@dataclass(slots=True)
class Flow(Performative):
    """Updates the windows of a session and the credit of a link [AMQP 2.7.4]."""

    CODE = 0x13
    SYMBOL = "amqp:flow:list"
    MANDATORY: ClassVar = ("incoming_window", "next_outgoing_id", "outgoing_window")
    next_incoming_id: int | None = _field(_UINT, None)
    incoming_window: int = _field(_UINT, 0)
    next_outgoing_id: int = _field(_UINT, 0)
    outgoing_window: int = _field(_UINT, 0)
    handle: int | None = _field(_UINT, None)
    delivery_count: int | None = _field(_UINT, None)
    link_credit: int | None = _field(_UINT, None)
    available: int | None = _field(_UINT, None)
    drain: bool = _field(_BOOLEAN, False)
    echo: bool = _field(_BOOLEAN, False)
    properties: dict[Any, Any] | None = _field(_MAP, None)


@dataclass(slots=True)
class Transfer(Performative):
    """Carries a message or a part of one [AMQP 2.7.5]."""

    CODE = 0x14
    SYMBOL = "amqp:transfer:list"
    handle: int = _field(_UINT)
    delivery_id: int | None = _field(_UINT, None)
    delivery_tag: bytes | None = _field(_BINARY, None)
    message_format: int | None = _field(_UINT, None)
    settled: bool | None = _field(_BOOLEAN, None)
    more: bool = _field(_BOOLEAN, False)
    rcv_settle_mode: int | None = _field(_UBYTE, None)
    state: Any = _field(_STATE, None)
    resume: bool = _field(_BOOLEAN, False)
    aborted: bool = _field(_BOOLEAN, False)
    batchable: bool = _field(_BOOLEAN, False)


@dataclass(slots=True)
class Disposition(Performative):
    """Tells the state of deliveries [AMQP 2.7.6]; role is true from a receiver."""

    CODE = 0x15
    SYMBOL = "amqp:disposition:list"
    role: bool = _field(_BOOLEAN)
    first: int = _field(_UINT)
    last: int | None = _field(_UINT, None)
    settled: bool = _field(_BOOLEAN, False)
    state: Any = _field(_STATE, None)
    batchable: bool = _field(_BOOLEAN, False)


@dataclass(slots=True)
class Detach(Performative):
    """Detaches or, if closed, destroys a link [AMQP 2.7.7]."""

    CODE = 0x16
    SYMBOL = "amqp:detach:list"
    handle: int = _field(_UINT)
    closed: bool = _field(_BOOLEAN, False)
    error: AmqpError | None = _field(_ERROR, None)


@dataclass(slots=True)
class End(Performative):
    """Ends a session [AMQP 2.7.8]."""

    CODE = 0x17
    SYMBOL = "amqp:end:list"
    error: AmqpError | None = _field(_ERROR, None)


@dataclass(slots=True)
class Close(Performative):
    """Closes the connection [AMQP 2.7.9]."""

    CODE = 0x18
    SYMBOL = "amqp:close:list"
    error: AmqpError | None = _field(_ERROR, None)


@dataclass(slots=True)
class Received(Performative):
    """How much of a delivery has arrived [AMQP 3.4.1]."""

    CODE = 0x23
    SYMBOL = "amqp:received:list"
    section_number: int = _field(_UINT)
    section_offset: int = _field(_ULONG)


@dataclass(slots=True)
class Accepted(Performative):
    """The message was processed [AMQP 3.4.2]."""

    CODE = 0x24
    SYMBOL = "amqp:accepted:list"


@dataclass(slots=True)
class Rejected(Performative):
    """The message is invalid [AMQP 3.4.3]."""

    CODE = 0x25
    SYMBOL = "amqp:rejected:list"
    error: AmqpError | None = _field(_ERROR, None)


@dataclass(slots=True)
class Released(Performative):
    """The message was not processed [AMQP 3.4.4]."""

    CODE = 0x26
    SYMBOL = "amqp:released:list"


@dataclass(slots=True)
class Modified(Performative):
    """The message was changed but not processed [AMQP 3.4.5]."""

    CODE = 0x27
    SYMBOL = "amqp:modified:list"
    delivery_failed: bool = _field(_BOOLEAN, False)
    undeliverable_here: bool = _field(_BOOLEAN, False)
    message_annotations: dict[Any, Any] | None = _field(_MAP, None)


@dataclass(slots=True)
class SaslMechanisms(Performative):
    """What the server offers [AMQP 5.3.3.1]."""

    CODE = 0x40
    SYMBOL = "amqp:sasl-mechanisms:list"
    mechanisms: tuple[str, ...] = _field(_SYMBOLS)


@dataclass(slots=True)
class SaslInit(Performative):
    """What the client chose [AMQP 5.3.3.2]."""

    CODE = 0x41
    SYMBOL = "amqp:sasl-init:list"
    mechanism: str = _field(_SYMBOL)
    initial_response: bytes | None = _field(_BINARY, None)
    hostname: str | None = _field(_STRING, None)


@dataclass(slots=True)
class SaslChallenge(Performative):
    """A question of the server [AMQP 5.3.3.3]."""

    CODE = 0x42
    SYMBOL = "amqp:sasl-challenge:list"
    challenge: bytes = _field(_BINARY)


@dataclass(slots=True)
class SaslResponse(Performative):
    """The client's answer [AMQP 5.3.3.4]."""

    CODE = 0x43
    SYMBOL = "amqp:sasl-response:list"
    response: bytes = _field(_BINARY)


@dataclass(slots=True)
class SaslOutcome(Performative):
    """Whether the client is in: 0 ok, 1 authentication failed, 2-4 system trouble [AMQP 5.3.3.5]."""

    CODE = 0x44
    SYMBOL = "amqp:sasl-outcome:list"
    code: int = _field(_UBYTE)
    additional_data: bytes | None = _field(_BINARY, None)


_CLASSES: tuple[type[Performative], ...] = (
    Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close, AmqpError, Received, Accepted,
    Rejected, Released, Modified, Source, Target, Coordinator, SaslMechanisms, SaslInit, SaslChallenge,
    SaslResponse, SaslOutcome,
)  # fmt: skip
_BY_DESCRIPTOR: dict[Any, type[Performative]] = {}
_LAYOUT: dict[type[Performative], list[tuple[str, _Kind, Any]]] = {}
for _class in _CLASSES:
    _BY_DESCRIPTOR[_class.CODE] = _BY_DESCRIPTOR[_class.SYMBOL] = _class
    _forced = getattr(_class, "MANDATORY", ())
    _LAYOUT[_class] = [
        (f.name, f.metadata["kind"], MISSING if f.name in _forced else f.default)
        for f in fields(_class)  # type: ignore[arg-type]
        if "kind" in f.metadata
    ]

P = TypeVar("P", bound=Performative)


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


def decode_performative(data: bytes, at: int, end: int) -> tuple[Performative, int]:
    """The performative that starts at ``at``, and where the payload behind it starts.

    Raises:
        DecodeError: no known performative stands there, or its fields are wrong.
    """
    value, after = decode(data, at, end)
    found = from_described(value)
    if not isinstance(found, Performative):
        raise DecodeError(f"{value.descriptor!r:.60} is no performative")
    return found, after


def _to_described(value: Performative) -> Described:
    items: list[Any] = []
    keep = 0
    for name, kind, default in _LAYOUT[type(value)]:
        item = getattr(value, name)
        if item is not None:
            if isinstance(item, Performative):
                item = _to_described(item)
            elif not isinstance(item, Described):
                item = kind.write(item)
        if default is MISSING or item != default:
            keep = len(items) + 1
            items.append(item)
        else:
            items.append(None)
    return Described(ULong(value.CODE), items[:keep])


def encode_performative(value: Performative) -> bytes:
    """The bytes of a performative or composite, trailing defaults left out."""
    out = bytearray()
    encode_into(out, _to_described(value))
    return bytes(out)
