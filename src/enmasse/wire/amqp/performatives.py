"""Performatives, SASL frames, terminus and states of transactions as classes [AMQP 2.7, 3.5, 4.5, 5.3].

How they are read and written is said in ``message.composites``, and outcomes are in ``message.outcomes``. The hot
paths (transfer, disposition, flow) have their own readers in ``session``; what is here is the reference that they
agree with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from enmasse.message.composites import (
    ANY,
    BINARY,
    BOOLEAN,
    FIELDS,
    MAP,
    NAME,
    NAMES,
    STRING,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    Composite,
    composite,
    decode_composite,
    encode_composite,
    field_of,
    from_described,
    register,
)
from enmasse.message.outcomes import ACCEPTED, ERROR, RELEASED, Accepted, AmqpError, Modified, Rejected, Released
from enmasse.message.types import Symbol

# Taken from here they know every class, as only what is imported is registered.
__all__ = ["Composite", "decode_composite", "encode_composite", "from_described"]

_STATE = composite(
    "Received", "Accepted", "Rejected", "Released", "Modified", "Declared", "TransactionalState", "Described"
)
"""Delivery states; that of an extension stays a described value."""


@dataclass(slots=True)
class Open(Composite):
    """Negotiates the connection [AMQP 2.7.1]; idle_time_out in milliseconds."""

    CODE = 0x10
    SYMBOL = "amqp:open:list"
    container_id: str = field_of(STRING)
    hostname: str | None = field_of(STRING, None)
    max_frame_size: int = field_of(UINT, 0xFFFFFFFF)
    channel_max: int = field_of(USHORT, 0xFFFF)
    idle_time_out: int | None = field_of(UINT, None)
    outgoing_locales: tuple[str, ...] | None = field_of(NAMES, None)
    incoming_locales: tuple[str, ...] | None = field_of(NAMES, None)
    offered_capabilities: tuple[str, ...] | None = field_of(NAMES, None)
    desired_capabilities: tuple[str, ...] | None = field_of(NAMES, None)
    properties: dict[Any, Any] | None = field_of(FIELDS, None)


@dataclass(slots=True)
class Begin(Composite):
    """Begins a session on a channel [AMQP 2.7.2]."""

    CODE = 0x11
    SYMBOL = "amqp:begin:list"
    MANDATORY: ClassVar = ("next_outgoing_id", "incoming_window", "outgoing_window")
    remote_channel: int | None = field_of(USHORT, None)
    next_outgoing_id: int = field_of(UINT, 0)
    incoming_window: int = field_of(UINT, 0)
    outgoing_window: int = field_of(UINT, 0)
    handle_max: int = field_of(UINT, 0xFFFFFFFF)
    offered_capabilities: tuple[str, ...] | None = field_of(NAMES, None)
    desired_capabilities: tuple[str, ...] | None = field_of(NAMES, None)
    properties: dict[Any, Any] | None = field_of(FIELDS, None)


DYNAMIC_PLACE = Symbol("x-opt-qd.address")
"""The property of a dynamic node by which a link names the container, behind others, that is to make it; it is that
of Qpid Dispatch."""


@dataclass(slots=True)
class Source(Composite):
    """The source of a link's messages [AMQP 3.5.3]; timeout in seconds."""

    CODE = 0x28
    SYMBOL = "amqp:source:list"
    address: Any = field_of(ANY, None)
    durable: int = field_of(UINT, 0)
    expiry_policy: str = field_of(NAME, "session-end")
    timeout: int = field_of(UINT, 0)
    dynamic: bool = field_of(BOOLEAN, False)
    dynamic_node_properties: dict[Any, Any] | None = field_of(FIELDS, None)
    distribution_mode: str | None = field_of(NAME, None)
    filter: dict[Any, Any] | None = field_of(FIELDS, None)
    default_outcome: Any = field_of(_STATE, None)
    outcomes: tuple[str, ...] | None = field_of(NAMES, None)
    capabilities: tuple[str, ...] | None = field_of(NAMES, None)


@dataclass(slots=True)
class Target(Composite):
    """The target of a link's messages [AMQP 3.5.4]; timeout in seconds."""

    CODE = 0x29
    SYMBOL = "amqp:target:list"
    address: Any = field_of(ANY, None)
    durable: int = field_of(UINT, 0)
    expiry_policy: str = field_of(NAME, "session-end")
    timeout: int = field_of(UINT, 0)
    dynamic: bool = field_of(BOOLEAN, False)
    dynamic_node_properties: dict[Any, Any] | None = field_of(FIELDS, None)
    capabilities: tuple[str, ...] | None = field_of(NAMES, None)


@dataclass(slots=True)
class Coordinator(Composite):
    """The target of a link that controls transactions [AMQP 4.5.1]."""

    CODE = 0x30
    SYMBOL = "amqp:coordinator:list"
    capabilities: tuple[str, ...] | None = field_of(NAMES, None)


@dataclass(slots=True)
class Attach(Composite):
    """Attaches a link to a session [AMQP 2.7.3]; role is true for a receiver."""

    CODE = 0x12
    SYMBOL = "amqp:attach:list"
    name: str = field_of(STRING)
    handle: int = field_of(UINT)
    role: bool = field_of(BOOLEAN)
    snd_settle_mode: int = field_of(UBYTE, 2)
    rcv_settle_mode: int = field_of(UBYTE, 0)
    source: Source | None = field_of(composite("Source"), None)
    target: Target | Coordinator | None = field_of(composite("Target", "Coordinator"), None)
    unsettled: dict[Any, Any] | None = field_of(MAP, None)
    incomplete_unsettled: bool = field_of(BOOLEAN, False)
    initial_delivery_count: int | None = field_of(UINT, None)
    max_message_size: int | None = field_of(ULONG, None)
    offered_capabilities: tuple[str, ...] | None = field_of(NAMES, None)
    desired_capabilities: tuple[str, ...] | None = field_of(NAMES, None)
    properties: dict[Any, Any] | None = field_of(FIELDS, None)


@dataclass(slots=True)
class Flow(Composite):
    """Updates the windows of a session and the credit of a link [AMQP 2.7.4]."""

    CODE = 0x13
    SYMBOL = "amqp:flow:list"
    MANDATORY: ClassVar = ("incoming_window", "next_outgoing_id", "outgoing_window")
    next_incoming_id: int | None = field_of(UINT, None)
    incoming_window: int = field_of(UINT, 0)
    next_outgoing_id: int = field_of(UINT, 0)
    outgoing_window: int = field_of(UINT, 0)
    handle: int | None = field_of(UINT, None)
    delivery_count: int | None = field_of(UINT, None)
    link_credit: int | None = field_of(UINT, None)
    available: int | None = field_of(UINT, None)
    drain: bool = field_of(BOOLEAN, False)
    echo: bool = field_of(BOOLEAN, False)
    properties: dict[Any, Any] | None = field_of(FIELDS, None)


@dataclass(slots=True)
class Transfer(Composite):
    """Carries a message or a part of one [AMQP 2.7.5]."""

    CODE = 0x14
    SYMBOL = "amqp:transfer:list"
    handle: int = field_of(UINT)
    delivery_id: int | None = field_of(UINT, None)
    delivery_tag: bytes | None = field_of(BINARY, None)
    message_format: int | None = field_of(UINT, None)
    settled: bool | None = field_of(BOOLEAN, None)
    more: bool = field_of(BOOLEAN, False)
    rcv_settle_mode: int | None = field_of(UBYTE, None)
    state: Any = field_of(_STATE, None)
    resume: bool = field_of(BOOLEAN, False)
    aborted: bool = field_of(BOOLEAN, False)
    batchable: bool = field_of(BOOLEAN, False)


@dataclass(slots=True)
class Disposition(Composite):
    """Reports the state of deliveries [AMQP 2.7.6]; role is true from a receiver."""

    CODE = 0x15
    SYMBOL = "amqp:disposition:list"
    role: bool = field_of(BOOLEAN)
    first: int = field_of(UINT)
    last: int | None = field_of(UINT, None)
    settled: bool = field_of(BOOLEAN, False)
    state: Any = field_of(_STATE, None)
    batchable: bool = field_of(BOOLEAN, False)


@dataclass(slots=True)
class Detach(Composite):
    """Detaches or, if closed, destroys a link [AMQP 2.7.7]."""

    CODE = 0x16
    SYMBOL = "amqp:detach:list"
    handle: int = field_of(UINT)
    closed: bool = field_of(BOOLEAN, False)
    error: AmqpError | None = field_of(ERROR, None)


@dataclass(slots=True)
class End(Composite):
    """Ends a session [AMQP 2.7.8]."""

    CODE = 0x17
    SYMBOL = "amqp:end:list"
    error: AmqpError | None = field_of(ERROR, None)


@dataclass(slots=True)
class Close(Composite):
    """Closes the connection [AMQP 2.7.9]."""

    CODE = 0x18
    SYMBOL = "amqp:close:list"
    error: AmqpError | None = field_of(ERROR, None)


@dataclass(slots=True)
class Received(Composite):
    """The part of a delivery that has arrived [AMQP 3.4.1]."""

    CODE = 0x23
    SYMBOL = "amqp:received:list"
    section_number: int = field_of(UINT)
    section_offset: int = field_of(ULONG)


@dataclass(slots=True)
class SaslMechanisms(Composite):
    """The mechanisms that the server offers [AMQP 5.3.3.1]."""

    CODE = 0x40
    SYMBOL = "amqp:sasl-mechanisms:list"
    mechanisms: tuple[str, ...] = field_of(NAMES)


@dataclass(slots=True)
class SaslInit(Composite):
    """The mechanism that the client chose [AMQP 5.3.3.2]."""

    CODE = 0x41
    SYMBOL = "amqp:sasl-init:list"
    mechanism: str = field_of(NAME)
    initial_response: bytes | None = field_of(BINARY, None)
    hostname: str | None = field_of(STRING, None)


@dataclass(slots=True)
class SaslChallenge(Composite):
    """A question of the server [AMQP 5.3.3.3]."""

    CODE = 0x42
    SYMBOL = "amqp:sasl-challenge:list"
    challenge: bytes = field_of(BINARY)


@dataclass(slots=True)
class SaslResponse(Composite):
    """The client's answer [AMQP 5.3.3.4]."""

    CODE = 0x43
    SYMBOL = "amqp:sasl-response:list"
    response: bytes = field_of(BINARY)


@dataclass(slots=True)
class SaslOutcome(Composite):
    """The result of authentication: 0 ok, 1 authentication failed, 2-4 system trouble [AMQP 5.3.3.5]."""

    CODE = 0x44
    SYMBOL = "amqp:sasl-outcome:list"
    code: int = field_of(UBYTE)
    additional_data: bytes | None = field_of(BINARY, None)


_CLASSES: tuple[type[Composite], ...] = (
    Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close, Received, Source, Target, Coordinator,
    SaslMechanisms, SaslInit, SaslChallenge, SaslResponse, SaslOutcome,
)  # fmt: skip
register(*_CLASSES)


LOCAL_TRANSACTIONS = "amqp:local-transactions"
MULTI_TRANSACTIONS = "amqp:multi-txns-per-ssn"
MULTI_SESSIONS = "amqp:multi-ssns-per-txn"
"""Capabilities of a coordinator [AMQP 4.5.7]."""

_OUTCOME = composite("Accepted", "Rejected", "Released", "Modified", "Declared", "Described")


@dataclass(slots=True)
class Declare(Composite):
    """The body of a message that asks for a transaction [AMQP 4.5.2]; a global id is for distributed ones."""

    CODE = 0x31
    SYMBOL = "amqp:declare:list"
    global_id: Any = field_of(ANY, None)


@dataclass(slots=True)
class Discharge(Composite):
    """The body of a message that ends a transaction: by commit, or by rollback if ``fail`` [AMQP 4.5.3].

    A commit says so: that it may be left out is not known to Artemis.
    """

    CODE = 0x32
    SYMBOL = "amqp:discharge:list"
    txn_id: bytes = field_of(BINARY)
    fail: bool | None = field_of(BOOLEAN, None)


@dataclass(slots=True)
class Declared(Composite):
    """The outcome of a declare: the transaction has begun under this id [AMQP 4.5.5]."""

    CODE = 0x33
    SYMBOL = "amqp:declared:list"
    txn_id: bytes = field_of(BINARY)


@dataclass(slots=True)
class TransactionalState(Composite):
    """The outcome of a delivery once its transaction is committed [AMQP 4.5.6]."""

    CODE = 0x34
    SYMBOL = "amqp:transactional-state:list"
    txn_id: bytes = field_of(BINARY)
    outcome: Any = field_of(_OUTCOME, None)


register(Declare, Discharge, Declared, TransactionalState)


TERMINAL = (Accepted, Rejected, Released, Modified, Declared)
"""States after which a delivery has no other [AMQP 3.4, 4.5.5]."""

SMALL_STATES = {
    b"\x00\x53\x24\x45": ACCEPTED,
    b"\x00\x53\x24\xc0\x01\x00": ACCEPTED,
    b"\x00\x53\x26\x45": RELEASED,
    b"\x00\x53\x26\xc0\x01\x00": RELEASED,
}
"""Encoded outcomes that need no decoding."""
