"""What tells a message that comes again from one that comes for the first time.

A message id alone is not enough: there are senders that give every message the same, and every device may count
from one. So a message is known by its id and by all that its sender wrote; two that agree in both are one.
"""

from __future__ import annotations

from hashlib import blake2b

from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.sections import bare_message

__all__ = ["IDENTITY_BYTES", "identity_of"]

IDENTITY_BYTES = 16

_PROPERTIES = b"\x00\x53\x73"
_LIST8, _LIST32, _NULL = 0xC0, 0xD0, 0x40


def identity_of(payload: bytes) -> bytes | None:
    """What tells a message from every other one; ``None`` if it has no message id.

    Args:
        payload: its AMQP sections. Header and annotations, which change on the way, do not count.
    """
    try:
        bare = bare_message(payload)
        if not _has_id(bare):
            return None
    except (DecodeError, IndexError):
        return None
    return blake2b(bare, digest_size=IDENTITY_BYTES).digest()


def _has_id(bare: bytes) -> bool:
    """Whether the first of the properties, which is the message id, is there [AMQP 3.2.4]."""
    if bare[:3] != _PROPERTIES:
        return False
    if bare[3] == _LIST8:
        return bare[5] > 0 and bare[6] != _NULL
    if bare[3] == _LIST32:
        return bare[8:12] != bytes(4) and bare[12] != _NULL
    return False
