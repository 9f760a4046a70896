"""A stream over a storage in memory, for tests of streams.

scene = StreamScene(partitions=2)
scene.append(b"one", b"two")
reader = scene.reader(start="first")
assert bodies(reader) == [b"one", b"two"]
"""

from __future__ import annotations

from typing import Any, Self

from enmasse.message.sections import Sections, encode_message
from enmasse.messaging.log.frame import Frame
from enmasse.messaging.log.layout import log_range
from enmasse.messaging.storage import Table
from enmasse.messaging.streams.producers import COMMITS_CAPABILITY, FRAMES_CAPABILITY
from enmasse.messaging.streams.readers import OFFSETS_CAPABILITY
from enmasse.messaging.streams.stream import Stream
from enmasse.testing.ports import FIRST_WALL_US, CoreHarness, MemoryConsumerPort, MemoryProducerPort

__all__ = ["LOG", "StreamScene", "bodies", "offsets"]

LOG = 4
"""The id of the stream's log."""


class StreamScene:
    """A stream, its journal, and links to it.

    Args:
        partitions: of the stream.
        harness: with what an earlier stream left; a new one without.
        options: of the stream.
    """

    def __init__(self, partitions: int = 1, *, harness: CoreHarness | None = None, **options: Any) -> None:
        self.harness = harness or CoreHarness()
        self.options = options
        self.stream = Stream(self.harness.core, "log", LOG, uid="u1", partitions=partitions, **options)
        self.stream.load()
        self.settle()

    def restart(self, through: int = 0, **options: Any) -> Self:
        """The stream after a crash; the clock goes on."""
        harness = self.harness.restarted(through)
        harness.clock.advance(self.harness.clock.now)
        return type(self)(len(self.stream.partitions), harness=harness, **(self.options | options))

    def settle(self) -> None:
        """Let the disk write and answer until nobody asks any more."""
        self.harness.commit()
        while self.harness.storage.waiting_reads or self.harness.storage.pending:
            self.harness.storage.commit()
            self.harness.turn()

    def turn(self) -> None:
        """Run turns until none is asked for, while the disk answers nothing."""
        harness = self.harness
        while harness.turns_requested:
            harness.turns_requested = 0
            harness.core.run_turn(harness.clock.now, FIRST_WALL_US + int(harness.clock.now * 1_000_000))

    def append(self, *contents: bytes, partition: int = 0) -> None:
        """Store messages with these bodies as one frame."""
        for content in contents:
            self.stream.partitions[partition].append(encode_message(content), None)
        self.settle()

    def sender(self, **options: Any) -> MemoryProducerPort:
        """A sender; ``options`` are those of ``AttachOptions``."""
        port = self.harness.sender(self.stream, **options)
        self.settle()
        return port

    def commits(self) -> MemoryProducerPort:
        """A sender of consumers' offsets."""
        return self.sender(capabilities=(COMMITS_CAPABILITY,))

    def reader(self, credit: int = 10_000, **filters: Any) -> MemoryConsumerPort:
        """A reader of messages; filters without their prefix, a trailing underscore is left out."""
        return self._attach(credit, (), filters)

    def frames(self, credit: int = 10_000, **filters: Any) -> MemoryConsumerPort:
        """A reader of frames."""
        return self._attach(credit, (FRAMES_CAPABILITY,), filters)

    def offsets(self, credit: int = 10_000, url: str = "", **filters: Any) -> MemoryConsumerPort:
        """A reader of offsets; ``url`` is where clients connect."""
        return self._attach(credit, (OFFSETS_CAPABILITY,), filters, **({"url": url} if url else {}))

    def _attach(
        self, credit: int, capabilities: tuple[str, ...], filters: dict[str, Any], **options: Any
    ) -> MemoryConsumerPort:
        named = {"enmasse:" + name.rstrip("_"): value for name, value in filters.items()}
        port = self.harness.receiver(self.stream, credit, filters=named, capabilities=capabilities, **options)
        self.settle()
        return port

    def stored(self, partition: int = 0) -> list[Frame]:
        """The frames on disk."""
        found = self.harness.storage.scan(Table.FRAME, *log_range(LOG, partition), 1 << 30)
        return [Frame(value) for _, value in found]

    def records(self, table: Table, partition: int = 0) -> list[tuple[bytes, bytes]]:
        """What a table holds of a partition."""
        return self.harness.storage.scan(table, *log_range(LOG, partition), 1 << 30)


def bodies(port: MemoryConsumerPort) -> list[Any]:
    """The bodies that a reader of messages got."""
    return [Sections(payload).body for payload in port.payloads]


def offsets(port: MemoryConsumerPort) -> list[int]:
    """The offsets that a reader of messages got."""
    return [Sections(payload).message_annotations["x-opt-offset"] for payload in port.payloads]
