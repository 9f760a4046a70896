"""Inputs that are closer to sense than changed bytes are: frames stay frames, values stay values."""

from __future__ import annotations

from random import Random
from typing import Any

from enmasse.errors import EnmasseError
from enmasse.message.codec import decode, encode
from enmasse.message.composites import decode_composite, encode_composite
from enmasse.message.types import Array, Described, Symbol, UInt, ULong
from enmasse.wire.amqp.performatives import Composite
from fuzz.vocabulary import CHUNKS, MESSAGES, NUMBERS, SASL, VALUES, frame_of, random_performative

__all__ = ["mutate_conversation", "mutate_performative", "mutate_sasl", "mutate_sections", "mutate_value"]

CHANGES = 4
"""Changes of one input at once, at most."""

NONSENSE = (EnmasseError, AttributeError, TypeError, ValueError)
"""What comes of writing fields that are of another type than they say."""


def _change_bytes(data: bytes, chance: Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(4):
            case 0 if at < len(out):
                out[at] = chance.choice((0, 1, 0x40, 0x45, 0x7F, 0x80, 0xC0, 0xD0, 0xFF, chance.randrange(256)))
            case 1:
                del out[at : at + chance.randint(1, 8)]
            case 2:
                out[at:at] = chance.randbytes(chance.randint(1, 4))
            case _:
                out[at : at + 4] = chance.choice(NUMBERS).to_bytes(4, "big")
    return bytes(out)


# Conversations: a byte that says how it begins and how it is cut, then protocol headers and frames


def split(data: bytes) -> list[bytes]:
    """The headers and frames of a stream; what is neither is the last piece."""
    pieces = []
    at = 0
    while len(data) - at >= 8:
        size = 8 if data[at : at + 4] == b"AMQP" else int.from_bytes(data[at : at + 4], "big")
        if size < 8 or at + size > len(data):
            break
        pieces.append(data[at : at + size])
        at += size
    if at < len(data):
        pieces.append(data[at:])
    return pieces


def _resized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame[4:]


def _change_frame(frame: bytes, chance: Random) -> bytes:
    if len(frame) < 9 or frame[:4] == b"AMQP":
        return _change_bytes(frame, chance)
    match chance.randrange(6):
        case 0:
            return _change_bytes(frame, chance)
        case 1:
            return frame[:6] + chance.choice((0, 1, 2, 255, 65_535)).to_bytes(2, "big") + frame[8:]
        case 2:
            return _resized(frame + chance.choice(MESSAGES))
        case 3:
            return _resized(frame[:8] + _change_bytes(frame[8:], chance))
    try:
        found, after = decode_composite(frame, 8, len(frame))
        return _resized(frame[:8] + encode_composite(_change_field(found, chance)) + frame[after:])
    except NONSENSE:
        return _resized(frame[:8] + _change_bytes(frame[8:], chance))


def _change_field(found: Composite, chance: Random) -> Composite:
    name = chance.choice(list(found.__dataclass_fields__) or [""])  # type: ignore[attr-defined]
    now = getattr(found, name, None)
    if isinstance(now, bool):
        setattr(found, name, not now)
    elif isinstance(now, int):
        setattr(found, name, chance.choice(NUMBERS))
    elif isinstance(now, Composite):
        _change_field(now, chance)
    elif name:
        setattr(found, name, chance.choice((None, "a", b"t", "x" * 300, {}, {Symbol("k"): [1]}, ("a", "b"), 1)))
    return found


def mutate_conversation(data: bytes, max_bytes: int, chance: Random) -> bytes:
    """Add, remove, change and move frames."""
    start, pieces = data[:1] or b"\0", split(data[1:])
    for _ in range(chance.randint(1, CHANGES)):
        at = chance.randrange(len(pieces) + 1)
        match chance.randrange(9):
            case 0:
                pieces.insert(at, chance.choice(CHUNKS))
            case 1 | 2 | 3:
                payload = chance.choice((b"", b"", b"xyz", *MESSAGES, bytes(600)))
                channel = chance.choice((0, 0, 0, 0, 1, 2))
                try:
                    pieces.insert(at, frame_of(random_performative(chance), channel, payload))
                except NONSENSE:
                    continue
            case 4 if pieces:
                del pieces[at % len(pieces)]
            case 5 if pieces:
                pieces.insert(at, pieces[chance.randrange(len(pieces))])
            case 6 if chance.random() < 0.2:
                start = bytes((chance.randrange(256),))
            case _ if pieces:
                pieces[at % len(pieces)] = _change_frame(pieces[at % len(pieces)], chance)
    return (start + b"".join(pieces))[:max_bytes]


def mutate_sasl(data: bytes, max_bytes: int, chance: Random) -> bytes:
    """Add, remove and change SASL frames."""
    start, pieces = data[:1] or b"\0", split(data[1:])
    for _ in range(chance.randint(1, 2)):
        at = chance.randrange(len(pieces) + 1)
        match chance.randrange(5):
            case 0 | 1:
                pieces.insert(at, frame_of(chance.choice(SASL)))
            case 2 if pieces:
                del pieces[at % len(pieces)]
            case _ if pieces:
                pieces[at % len(pieces)] = _change_frame(pieces[at % len(pieces)], chance)
    return (start + b"".join(pieces))[:max_bytes]


# Values


def _value(chance: Random, depth: int = 0) -> Any:
    kind = chance.randrange(12 if depth < 4 else 8)
    match kind:
        case 8:
            return [_value(chance, depth + 1) for _ in range(chance.randrange(4))]
        case 9:
            keys = [chance.choice((1, "a", Symbol("b"), b"c", UInt(3), None)) for _ in range(chance.randrange(4))]
            return {key: _value(chance, depth + 1) for key in keys}
        case 10:
            return Described(chance.choice((ULong(0x24), Symbol("d"), 5, None)), _value(chance, depth + 1))
        case 11:
            return Array(chance.choice((0x40, 0x45, 0x50, 0x70, 0xA1, 0xC0)), [])
    return chance.choice(VALUES)


def mutate_value(data: bytes, max_bytes: int, chance: Random) -> bytes:
    """A new value, one put into another, or changed bytes."""
    match chance.randrange(4):
        case 0:
            return encode(_value(chance))[:max_bytes]
        case 1:
            return (data + encode(_value(chance)))[:max_bytes]
        case 2:
            try:
                inner, _ = decode(data)
                return encode([inner, _value(chance)])[:max_bytes]
            except NONSENSE:
                return _change_bytes(data, chance)[:max_bytes]
    return _change_bytes(data, chance)[:max_bytes]


def mutate_performative(data: bytes, max_bytes: int, chance: Random) -> bytes:
    """Another performative, one with another field, or changed bytes."""
    try:
        match chance.randrange(4):
            case 0:
                return encode_composite(random_performative(chance))[:max_bytes]
            case 1 | 2:
                found, after = decode_composite(data, 0, len(data))
                return (encode_composite(_change_field(found, chance)) + data[after:])[:max_bytes]
    except NONSENSE:
        pass
    return _change_bytes(data, chance)[:max_bytes]


def mutate_sections(data: bytes, max_bytes: int, chance: Random) -> bytes:
    """Add, repeat and drop sections, or change bytes."""
    sections = []
    at = 0
    try:
        while at < len(data):
            _, after = decode(data, at)
            sections.append(data[at:after])
            at = after
    except NONSENSE:
        sections.append(data[at:])
    where = chance.randrange(len(sections) + 1)
    match chance.randrange(6):
        case 0:
            code = chance.choice((0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79))
            sections.insert(where, encode(Described(ULong(code), _value(chance))))
        case 1:
            sections.insert(where, chance.choice(MESSAGES))
        case 2 if sections:
            del sections[where % len(sections)]
        case 3 if sections:
            chance.shuffle(sections)
        case _ if sections:
            sections[where % len(sections)] = _change_bytes(sections[where % len(sections)], chance)
    return b"".join(sections)[:max_bytes]
