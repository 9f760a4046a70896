"""Frames that mean something: what seeds are made of, and what is put into inputs while they are changed."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from enmasse.message.codec import decode, encode
from enmasse.message.composites import encode_composite
from enmasse.message.outcomes import Accepted, AmqpError, Modified, Rejected, Released
from enmasse.message.sections import Header, Properties, encode_message
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
from enmasse.wire.amqp.framing import AMQP_HEADER, HEARTBEAT, SASL_HEADER, amqp_frame, sasl_frame
from enmasse.wire.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Composite,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Open,
    Received,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    TransactionalState,
    Transfer,
)

__all__ = [
    "ADDRESSES",
    "CHUNKS",
    "MESSAGES",
    "PERFORMATIVES",
    "SASL",
    "VALUES",
    "frame_of",
    "hello",
    "random_performative",
]

ADDRESSES = ("any", "all", "queue", "topic", "topic/a", "stream", "")
"""Of the node that the target ``node`` makes; the last is the anonymous terminus."""

STATES: tuple[Any, ...] = (
    None,
    Accepted(),
    Released(),
    Rejected(AmqpError("acme:bad", "why", {Symbol("k"): 1})),
    Modified(True, True, {Symbol("x-opt-a"): [1]}),
    Received(0, 10),
    Declared(b"txn"),
    TransactionalState(b"\0\0\0\1", Accepted()),
    TransactionalState(b"txn", None),
    Described(Symbol("acme:state:list"), []),
)
NUMBERS = (0, 1, 2, 3, 5, 100, 255, 256, 1000, 4095, 4096, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
SMALL = (0, 0, 0, 1, 1, 2, 3)

_FILTER = {
    Symbol("selector"): Described(Symbol("apache.org:selector-filter:string"), "a = 1 AND b LIKE 'x%'"),
}
_SOURCES: tuple[Any, ...] = (
    None,
    Source("queue"),
    Source("any", filter=_FILTER),
    Source("queue", distribution_mode="copy", outcomes=("amqp:accepted:list",), default_outcome=Released()),
    Source("topic", 2, "never", capabilities=("shared",)),
    Source(None, dynamic=True, dynamic_node_properties={Symbol("lifetime-policy"): Described(ULong(0x2B), [])}),
    Source(5),
)
_TARGETS: tuple[Any, ...] = (
    None,
    Target("queue"),
    Target("any", capabilities=("queue",)),
    Target(None),
    Target(None, dynamic=True),
    Coordinator(("amqp:local-transactions",)),
    Target([1]),
)

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1 << 40, -(1 << 40), 0.5, float("inf"), "", "a" * 300, b"", b"\xff" * 300,
    UByte(7), UShort(7), UInt(0), UInt(7), UInt(700), ULong(0), ULong(7), ULong(1 << 60), Byte(-7), Short(-7),
    Int(-7), Int(70_000), Timestamp(1), Float(0.5), Char("\U0001f600"), Symbol("name"), Symbol("n" * 300),
    Decimal32(b"1234"), Decimal64(b"12345678"), Decimal128(b"1234567890123456"), UUID(int=1),
    [], [1, "a", None], [[[[]]]], {}, {"k": 1, Symbol("k"): [2], 3: {}}, {UUID(int=2): b""},
    Described(Symbol("d"), [1]), Described(ULong(0x77), Described("again", None)),
    Array(0xA3, [Symbol("a"), Symbol("b")]), Array(0x71, [1, 2, 3]), Array(0x40, [None] * 9), Array(0x45, [[], []]),
    Array(0xC0, [[1], []]), Array(0xE0, [Array(0x50, [1])]), Array(0x70, [5], Symbol("described")),
    Array(0xB1, ["wide"]), Array(0x56, [True, False]), Array(0xC1, [{"a": 1}]),
)  # fmt: skip

PERFORMATIVES: tuple[Composite, ...] = (
    Open("fuzz"),
    Open("f", "space", 512, 3, 1000, ("en",), ("en",), ("c",), ("d",), {Symbol("product"): "fuzz"}),
    Begin(incoming_window=100, outgoing_window=100),
    Begin(0, 5, 0, 1, 2, ("a",), ("b",), {Symbol("p"): 1}),
    Attach("in", 0, False, source=Source(), target=Target("queue"), initial_delivery_count=0),
    Attach(
        "in",
        0,
        False,
        1,
        1,
        Source(),
        Target("any"),
        {b"tag": decode(encode_composite(Received(0, 1)))[0]},
        True,
        0xFFFFFFFF,
        1000,
    ),
    Attach("out", 1, True, source=Source("queue"), target=Target()),
    Attach("tx", 2, False, source=Source(), target=Coordinator(("amqp:local-transactions",))),
    Attach("all", 3, True, 1, 0, Source("topic", filter=_FILTER), Target(), properties={Symbol("a"): 1}),
    Flow(0, 100, 0, 100),
    Flow(0, 100, 0, 100, 1, 0, 10),
    Flow(0, 1, 0, 1, 1, 0, 1, 0, True, True, {Symbol("txn-id"): b"x"}),
    Flow(None, 0, 0, 0, 0, 1, 0, 5, False, True),
    Transfer(0, 0, b"t", 0, False),
    Transfer(0, 0, b"t", 0, True, True),
    Transfer(0, more=True),
    Transfer(0),
    Transfer(0, 1, b"", 0, aborted=True),
    Transfer(0, 2, b"u", 1, False, False, 1, TransactionalState(b"\0\0\0\1"), True, False, True),
    Disposition(True, 0, 0, True, Accepted()),
    Disposition(True, 0, 5, False, Rejected(AmqpError("acme:x"))),
    Disposition(True, 0, 0xFFFFFFFF, True, Released(), True),
    Disposition(False, 1, None, True),
    Disposition(True, 0, 3, True, TransactionalState(b"\0\0\0\1", Accepted())),
    Detach(0),
    Detach(1, True, AmqpError("acme:gone", "bye", {Symbol("k"): 1})),
    End(),
    End(AmqpError("acme:end")),
    Close(),
    Close(AmqpError("amqp:connection:forced", "go")),
)

SASL: tuple[Composite, ...] = (
    SaslMechanisms(("ANONYMOUS", "PLAIN", "EXTERNAL", "SCRAM-SHA-256", "XOAUTH2")),
    SaslMechanisms(("PLAIN",)),
    SaslMechanisms(()),
    SaslInit("ANONYMOUS", b"trace", "space"),
    SaslInit("PLAIN", b"\0user\0password", "space"),
    SaslInit("PLAIN", b"\0\xff\0"),
    SaslInit("EXTERNAL", b""),
    SaslInit("SCRAM-SHA-256", b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"),
    SaslInit("SCRAM-SHA-512", b"n,a=other,n=us=2Cer=3D,r=abc"),
    SaslInit("XOAUTH2", b"user=someone\x01auth=Bearer token\x01\x01"),
    SaslInit("OAUTHBEARER", b"n,,\x01auth=Bearer token\x01\x01"),
    SaslChallenge(b"r=abcdef,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"),
    SaslChallenge(b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=AA==,i=1"),
    SaslChallenge(b"e=other-error"),
    SaslResponse(b"c=biws,r=abcdef,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="),
    SaslResponse(b"\x01"),
    SaslResponse(b""),
    SaslOutcome(0),
    SaslOutcome(0, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
    SaslOutcome(1),
)

MESSAGES: tuple[bytes, ...] = (
    b"",
    encode_message(b"data"),
    encode_message("value"),
    encode_message({"a": [1, 2]}, header=Header(True, 7, 1000, True, 3)),
    encode_message(
        b"all",
        header=Header(durable=True),
        delivery_annotations={"x-opt-d": 1},
        message_annotations={"x-opt-partition-key": "k", "x-opt-m": [1]},
        properties=Properties(
            UUID(int=3), b"user", "queue", "subject", "any", "corr", "text/plain", "gzip", 1, 2, "group", 3, "back"
        ),
        application_properties={"a": 1, "b": "x", "c": True, "d": 2.5},
        footer={"x-opt-sum": b"1"},
    ),
    encode(Described(ULong(0x75), b"one")) + encode(Described(ULong(0x75), b"two")),
    encode(Described(ULong(0x76), [1])) + encode(Described(ULong(0x76), ["two", []])),
    encode(Described(Symbol("amqp:header:list"), [True])) + encode(Described(ULong(0x77), None)),
    encode_composite(Declare()),
    b"\0\x53\x77" + encode_composite(Declare()),
    b"\0\x53\x77" + encode_composite(Discharge(b"\0\0\0\1", False)),
)


def frame_of(performative: Composite, channel: int = 0, payload: bytes = b"") -> bytes:
    """The frame that a performative travels in."""
    if 0x40 <= performative.CODE <= 0x44:
        return sasl_frame(performative)
    return amqp_frame(channel, performative, len(payload)) + payload


def hello(*performatives: Composite) -> bytes:
    """The header and frames on channel 0."""
    return AMQP_HEADER + b"".join(frame_of(item) for item in performatives)


def random_performative(chance: Random) -> Composite:
    """One with fields of any value that fits their types."""
    pick = chance.choice
    flip = chance.random
    count = pick((None, *NUMBERS))
    match chance.randrange(10):
        case 0:
            return Begin(pick((None, None, 0, 1)), pick(NUMBERS), pick(NUMBERS), pick(NUMBERS), pick(NUMBERS))
        case 1 | 2:
            return Attach(
                pick(("a", "b", "in", "out", "")), pick((*SMALL, *SMALL, *NUMBERS)), flip() < 0.5,
                pick((0, 1, 2, 3)), pick((0, 1, 2)), pick(_SOURCES), pick(_TARGETS),
                initial_delivery_count=count, max_message_size=pick((None, 0, 10, 1 << 40)),
            )  # fmt: skip
        case 3 | 4:
            return Flow(
                pick((None, 0, 0, *NUMBERS)), pick(NUMBERS), pick(NUMBERS), pick(NUMBERS), pick((None, *SMALL)),
                count, pick((None, *NUMBERS)), pick((None, 0, 3)), flip() < 0.3, flip() < 0.3,
            )  # fmt: skip
        case 5 | 6:
            return Transfer(
                pick(SMALL), pick((None, *SMALL, *NUMBERS)), pick((None, b"t", b"")), pick((None, 0, 1)),
                flip() < 0.5, flip() < 0.3, pick((None, 0, 1)), pick(STATES),
                flip() < 0.1, flip() < 0.1, flip() < 0.1,
            )  # fmt: skip
        case 7:
            return Disposition(
                flip() < 0.8, pick((*SMALL, *NUMBERS)), pick((None, *SMALL, *NUMBERS)), flip() < 0.6, pick(STATES)
            )
        case 8:
            return Detach(pick(SMALL), flip() < 0.5)
        case _:
            return pick(PERFORMATIVES)


CHUNKS: tuple[bytes, ...] = (AMQP_HEADER, SASL_HEADER, HEARTBEAT, *(frame_of(item) for item in PERFORMATIVES))
"""Whole pieces of a conversation."""
