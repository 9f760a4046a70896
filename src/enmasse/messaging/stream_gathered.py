"""What gathered for a partition's next frames, and what one batch holds of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.messaging.delivery import Producer

if TYPE_CHECKING:
    from enmasse.messaging.frame import Frame
    from enmasse.messaging.stream_consumers import Done
    from enmasse.messaging.stream_merging import Span

__all__ = ["Ack", "Acks", "Cut", "Ready", "Rows", "settle_all"]

Ack = tuple[Producer, int]
"""Who hears that something is stored, and the id for that."""

Acks = dict[Producer, list[int]]
"""The same of many."""


def settle_all(acks: Acks, state: Any) -> None:
    """Tell an outcome, in an order that makes few ranges of the ids."""
    for producer, ids in acks.items():
        ids.sort()
        settle = producer.settle
        for delivery_id in ids:
            settle(delivery_id, state)


class Rows:
    """Messages that no frame holds yet."""

    __slots__ = ("acks", "bodies", "bytes", "heads", "keys", "sequences", "whole")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.whole: list[int] = []
        self.acks: Acks = {}
        self.sequences: list[tuple[bytes, int]] = []
        self.bytes = 0


class Ready:
    """A frame that a sender made; the node fills in offset and time."""

    __slots__ = ("acks", "bytes", "frame")

    def __init__(self, frame: Frame, ack: Ack | None) -> None:
        self.frame = frame
        self.bytes = len(frame.data)
        self.acks: Acks = {} if ack is None else {ack[0]: [ack[1]]}


class Cut:
    """What one batch holds of a partition."""

    __slots__ = ("acks", "commits", "done", "frames", "low", "merged", "released", "sequences", "size")

    def __init__(self) -> None:
        self.frames: list[tuple[int, int, bytes, int]] = []
        """First offset, end, bytes, and what they count for."""
        self.acks: Acks = {}
        self.sequences: dict[bytes, set[int]] = {}
        self.commits: dict[str, int | None] = {}
        self.done: list[Done] = []
        self.size = 0
        self.low = -1
        """Where the log begins once this is on disk; -1 leaves it where it is."""
        self.released = 0
        self.merged: Span | None = None

    def add_acks(self, acks: Acks) -> None:
        """These, too, hear what becomes of it."""
        for producer, ids in acks.items():
            known = self.acks.get(producer)
            if known is None:
                self.acks[producer] = ids
            else:
                known += ids
