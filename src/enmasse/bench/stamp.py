"""What stands at the beginning of each body: when the message was due, whose it is, its number.

The clock is the machine's monotonic one, which all processes on it share; so senders and receivers of
one measurement run on one machine.
"""

from __future__ import annotations

import struct

from enmasse.client import Message

__all__ = ["STAMP", "STAMP_BYTES", "head_and_filler"]

STAMP = struct.Struct(">QIIQ")
"""Due (ns), run, sender, number."""

STAMP_BYTES = STAMP.size


def head_and_filler(size: int, *, durable: bool) -> tuple[bytes, bytes]:
    """What a message of ``size`` bytes has before and after its stamp."""
    payload = Message(b"\0" * size, durable=durable).encode()
    return payload[: len(payload) - size], b"x" * (size - STAMP_BYTES)
