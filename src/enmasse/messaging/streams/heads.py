"""The head of a message: its key, its partition as Kafka's own clients compute it, and where its content is.

All of it, the content's length included, follows from the bytes before the content, and those repeat: a
device sends thousands of messages that differ in their content alone. So it is worked out once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.message.errors import DecodeError
from enmasse.message.sections import key_and_subject
from enmasse.messaging.log.frame import split_payload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.messaging.streams.partition_log import Partition

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash with Kafka's seed."""
    length = len(data)
    h = (0x9747B28C ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key: the hash without its sign bit, modulo the number of partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


KNOWN_HEADS = 4_096
KNOWN_HEAD_BYTES = 512
"""The longest head that a stream remembers: longer ones rarely repeat."""


def key_of(payload: bytes) -> bytes:
    """Return a message's partition key: the annotation, else the subject, else nothing."""
    try:
        annotation, subject = key_and_subject(payload)
    except DecodeError:
        return b""
    key = subject if annotation is None else annotation
    if key is None:
        return b""
    return key if isinstance(key, bytes) else str(key).encode()


class Head:
    """A message's beginning."""

    __slots__ = ("body_at", "data", "is_whole", "key", "partition", "size")

    def __init__(self, data: bytes, body_bytes: int, is_whole: bool, key: bytes, partition: Partition | None) -> None:
        self.data = data
        """The bytes themselves."""
        self.body_at = len(data)
        self.size = len(data) + body_bytes
        """The size of the messages that begin with it."""
        self.is_whole = is_whole
        """True if it is all of the message."""
        self.key = key
        self.partition = partition
        """``None`` for messages without a key."""


NO_HEAD = Head(b"", -1, True, b"", None)
"""No message begins like that."""


class Heads:
    """The heads of a stream that were seen lately.

    Args:
        partitions: the partitions of the stream.
    """

    __slots__ = ("_known", "_partitions")

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self._known: dict[bytes, Head] = {}
        self._partitions = partitions

    def of(self, payload: bytes, like: Head = NO_HEAD) -> Head:
        """Return the head of a message, which may be as long as that of another."""
        known = self._known
        found = known.get(payload[: like.body_at])
        if found is not None and found.size == len(payload):
            return found
        data, body, is_whole = split_payload(payload)
        found = known.get(data)
        if found is None:
            key = key_of(data)
            found = Head(data, len(body), is_whole, key, self.partition_for(key))
            if len(data) <= KNOWN_HEAD_BYTES and not is_whole:
                if len(known) >= KNOWN_HEADS:
                    known.clear()
                known[data] = found
        return found

    def partition_for(self, key: bytes) -> Partition | None:
        """Return the partition of a key; ``None`` if it is none and there are several."""
        partitions = self._partitions
        if len(partitions) == 1:
            return partitions[0]
        return partitions[partition_of(key, len(partitions))] if key else None
