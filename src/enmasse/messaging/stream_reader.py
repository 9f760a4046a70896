"""What the readers of a stream have in common, whatever they are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import AttachOptions
from enmasse.messaging.delivery import ACCEPTED, Consumer, ConsumerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.stream_log import Partition
from enmasse.messaging.transaction import Done as Told
from enmasse.wire.amqp.types import Timestamp

if TYPE_CHECKING:
    from enmasse.messaging.core import Log
    from enmasse.messaging.stream import Stream

__all__ = [
    "PARTITION_FILTER",
    "READ_BYTES",
    "START_FILTER",
    "Sent",
    "StreamConsumer",
    "chosen_partitions",
    "frame_at",
    "number_filter",
    "time_of",
]

PARTITION_FILTER = "enmasse:partition"
START_FILTER = "enmasse:start"

READ_BYTES = 1 << 20
"""What a reader takes from the journal at once, all its partitions together."""


def number_filter(filters: dict[str, Any], name: str, default: int | None) -> int | None:
    """A filter that takes a number from 0.

    Raises:
        AttachError: it has another value.
    """
    value = filters.get(name, default)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise AttachError("amqp:invalid-field", f"filter {name} takes a number from 0, not {value!r}")
    return value


def time_of(start: Timestamp) -> int:
    """Microseconds of the moment from which on messages are wanted."""
    return max(0, start * 1_000)


def frame_at(partition: Partition, since_us: int) -> int:
    """Where the last frame begins that may hold rows before a moment, and after it the first row that does not."""
    entry = partition.index_of_time.before(since_us)
    return partition.low if entry is None else max(entry.first, partition.low)


def chosen_partitions(stream: Stream, options: AttachOptions) -> list[Partition]:
    """The partition that a reader names, or all.

    Raises:
        AttachError: there is no such partition.
    """
    index = number_filter(options.filters, PARTITION_FILTER, None)
    return stream.partitions if index is None else [stream.partition(index)]


class StreamConsumer(Consumer):
    """What readers of all kinds share: they are served in the stream's turn."""

    __slots__ = ("_is_draining",)
    address: Stream

    def __init__(self, address: Stream, port: ConsumerPort, presettle: bool) -> None:
        super().__init__(address, port, presettle)
        self._is_draining = False

    def on_credit(self, gained: int, drain: bool) -> None:
        """Send what there is for the credit; a drain ends when nothing is left to come from the disk."""
        if drain:
            self._is_draining = True
            self.serve()
        else:
            self.address.advanced()

    def on_blocked(self, blocked: bool) -> None:
        """The connection takes no more for now, or again."""
        self.is_blocked = blocked
        if not blocked:
            self.address.advanced()

    def on_outcome(self, delivery: Any, state: Any) -> None:
        """Reading does not consume: the outcome is only counted."""
        self.unsettled -= 1
        if state is not ACCEPTED:
            self.count(state)

    def enlist(self, delivery: Any, done: Told) -> Log | None:
        """Have a delivery accepted by a transaction; see ``GivesMessages``."""
        return None

    def serve(self) -> None:
        """Send what there is, as far as credit goes."""
        if self.port.credit > 0 and not self.is_blocked:
            self.pump()
        if self._is_draining and not self.is_blocked and not self.is_reading:
            self._is_draining = False
            self.port.drained()

    @property
    def is_reading(self) -> bool:
        """Whether there may be more once the disk has answered."""
        return False

    def pump(self) -> None:
        """Send what there is, as far as credit goes."""
        raise NotImplementedError


class Sent:
    """A delivery that a reader may settle; nothing depends on it."""

    __slots__ = ("sink",)

    def __init__(self, sink: Consumer) -> None:
        self.sink = sink
