"""What the beginning of a message tells: its key, its partition, and where its body's content is.

All of it, the content's length included, is told by the bytes before the content, and those repeat: a
device sends thousands of messages that differ in their content alone. So it is worked out once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.messaging.frame import split_payload
from enmasse.messaging.partition import partition_of
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.sections import key_and_subject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.messaging.stream_log import Partition

__all__ = ["NO_HEAD", "Head", "Heads", "key_of"]

KNOWN_HEADS = 4_096
KNOWN_HEAD_BYTES = 512
"""What the memory of one stream's heads is bounded by: heads that long are mostly their own kind."""


def key_of(payload: bytes) -> bytes:
    """A message's partition key: the annotation, else the subject, else nothing."""
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
        """Of the messages that begin with it."""
        self.is_whole = is_whole
        """Whether it is all of the message."""
        self.key = key
        self.partition = partition
        """``None`` for messages without a key."""


NO_HEAD = Head(b"", -1, True, b"", None)
"""No message begins like that."""


class Heads:
    """The heads of a stream that were seen lately.

    Args:
        partitions: of the stream.
    """

    __slots__ = ("_known", "_partitions")

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self._known: dict[bytes, Head] = {}
        self._partitions = partitions

    def of(self, payload: bytes, like: Head = NO_HEAD) -> Head:
        """The head of a message, which may be as long as that of another."""
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
        """The partition of a key; ``None`` if it is none and there are several."""
        partitions = self._partitions
        if len(partitions) == 1:
            return partitions[0]
        return partitions[partition_of(key, len(partitions))] if key else None
