"""Frames and protocol headers [AMQP 2.2, 2.3]."""

from __future__ import annotations

import struct
from dataclasses import replace

from enmasse.message.composites import encode_composite
from enmasse.message.outcomes import AmqpError, Modified, Rejected
from enmasse.wire.amqp.performatives import Close, Composite, Detach, Disposition, End

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"

MIN_MAX_FRAME_SIZE = 512
"""No peer may ask for smaller frames [AMQP 2.7.1]."""

MAX_CONDITION = 100
"""Characters of a condition, in a frame that is too large otherwise."""

HEARTBEAT = b"\x00\x00\x00\x08\x02\x00\x00\x00"
"""An empty frame, which only says that we are alive [AMQP 2.4.5]."""

FRAME_HEAD = struct.Struct(">IHHBH")
"""Size, data offset and type, channel, and the first three bytes of a performative."""

CRUMB_BYTES = 4_096
"""Smaller pieces of something larger share one object, as it may come byte by byte."""

_HEADER = struct.Struct(">IBBH")


def gather(pieces: list[bytes | bytearray | memoryview], piece: bytes | memoryview) -> None:
    """Add a piece of a frame or message that is to be joined once all of it has come."""
    if len(piece) >= CRUMB_BYTES:
        pieces.append(piece)
    elif pieces and isinstance(pieces[-1], bytearray):
        pieces[-1] += piece
    else:
        pieces.append(bytearray(piece))


def amqp_frame(channel: int, performative: Composite, payload_bytes: int = 0) -> bytes:
    """A frame of type 0 up to its payload, which is to follow."""
    body = encode_composite(performative)
    return _HEADER.pack(8 + len(body) + payload_bytes, 2, 0, channel) + body


def frame_within(size: int, channel: int, said: Close | Detach | Disposition | End) -> bytes:
    """A frame of at most so many bytes, which leaves out what it cannot explain within them.

    Explanations and annotations may be the words of another peer, which takes larger frames. One that is too large
    would cost the connection [AMQP 2.4.3].
    """
    frame = amqp_frame(channel, said)
    if len(frame) <= size:
        return frame
    state = None
    if isinstance(said, Disposition):
        state = said.state
        if isinstance(state, Modified):
            return amqp_frame(channel, replace(said, state=replace(state, message_annotations=None)))
    error = getattr(said, "error", None) if state is None else getattr(state, "error", None)
    if error is None:
        return frame

    def with_words(words: str | None) -> bytes:
        shorter = AmqpError(error.condition[:MAX_CONDITION], words)
        changed = {"error": shorter} if state is None else {"state": Rejected(shorter)}
        return amqp_frame(channel, replace(said, **changed))

    over = len(with_words(error.description)) - size
    words = (error.description or "").encode()
    return with_words(words[: max(0, len(words) - max(0, over))].decode(errors="ignore"))


def sasl_frame(performative: Composite) -> bytes:
    """A whole frame of type 1 [AMQP 5.3.1]."""
    body = encode_composite(performative)
    return _HEADER.pack(8 + len(body), 2, 1, 0) + body
