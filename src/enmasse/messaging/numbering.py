"""What senders that number their messages say, so that one sent again is not stored again.

Rules:
1. A link property names the producer, an annotation numbers each message: rising, gaps allowed.
2. A message that was not stored, for whatever reason, is missing: it is taken when it comes again,
   whatever was stored after it.
"""

from __future__ import annotations

from enmasse.messaging.address import AttachOptions
from enmasse.messaging.errors import AttachError
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.sections import Sections

__all__ = [
    "MAX_PRODUCER_BYTES",
    "NO_SEQUENCE",
    "PRODUCER_PROPERTY",
    "SEQUENCE_ANNOTATION",
    "producer_name",
    "sequence_of",
]

PRODUCER_PROPERTY = "enmasse:producer"
SEQUENCE_ANNOTATION = "x-opt-sequence"

MAX_PRODUCER_BYTES = 255
"""A producer's name; keys of the journal have 400 bytes."""

MAX_SEQUENCE = (1 << 64) - 1

NO_SEQUENCE = f"a link with {PRODUCER_PROPERTY} carries messages with {SEQUENCE_ANNOTATION}, a number"


def producer_name(options: AttachOptions) -> bytes | None:
    """Under which name a sender numbers its messages; ``None`` if it does not.

    Raises:
        AttachError: what it gives is no name.
    """
    identity = options.properties.get(PRODUCER_PROPERTY)
    if identity is None:
        return None
    name = identity.encode() if isinstance(identity, str) else identity
    if not isinstance(name, bytes) or not 1 <= len(name) <= MAX_PRODUCER_BYTES:
        raise AttachError(
            "amqp:invalid-field",
            f"link property {PRODUCER_PROPERTY} takes a name of 1 to {MAX_PRODUCER_BYTES} bytes",
        )
    return name


def sequence_of(payload: bytes) -> int | None:
    """A message's number; ``None`` where it has none."""
    try:
        sequence = Sections(payload).message_annotations.get(SEQUENCE_ANNOTATION)
    except DecodeError:
        return None
    if not isinstance(sequence, int) or isinstance(sequence, bool) or not 0 <= sequence <= MAX_SEQUENCE:
        return None
    return sequence
