"""A stream over a storage in memory, and what its senders send."""

from __future__ import annotations

from typing import Any

from enmasse.messaging.frame import Frame, encode_frame
from enmasse.messaging.log import log_range
from enmasse.messaging.storage import Table
from enmasse.messaging.stream import FRAME_FORMAT, FRAMES_CAPABILITY, Stream
from enmasse.testing.ports import CoreHarness, MemoryProducerPort
from enmasse.wire.amqp.sections import Properties, encode_message

LOG = 9


class Scene:
    """A stream over a storage in memory."""

    def __init__(self, partitions: int = 1, harness: CoreHarness | None = None, **options: Any) -> None:
        self.harness = harness or CoreHarness()
        self.stream = Stream(self.harness.core, "log", LOG, uid="u1", partitions=partitions, **options)
        self.stream.load()

    def sender(self, **options: Any) -> MemoryProducerPort:
        port = self.harness.sender(self.stream, **options)
        self.harness.turn()
        return port

    def frames_sender(self, partition: int = 0) -> MemoryProducerPort:
        return self.sender(capabilities=(FRAMES_CAPABILITY,), properties={"enmasse:partition": partition})

    def numbered_sender(self, name: Any = "p1") -> MemoryProducerPort:
        return self.sender(properties={"enmasse:producer": name})

    def stored(self, partition: int = 0) -> list[Frame]:
        found = self.harness.storage.scan(Table.FRAME, *log_range(LOG, partition), 1 << 30)
        return [Frame(value) for _, value in found]

    def rows(self, partition: int = 0) -> list[bytes]:
        """The bodies on disk by offset; offsets have no gaps."""
        rows: list[bytes] = []
        for frame in self.stored(partition):
            assert frame.first_offset == len(rows)
            rows += frame.cells(frame.bodies)
        return rows

    def restart(self, through: int = 0) -> Scene:
        return Scene(len(self.stream.partitions), self.harness.restarted(through))


def keyed(key: Any, body: bytes = b"x", *, annotation: Any = None) -> bytes:
    return encode_message(
        body,
        properties=None if key is None else Properties(subject=key),
        message_annotations=None if annotation is None else {"x-opt-partition-key": annotation},
    )


def numbered(sequence: Any, body: bytes = b"", key: str | None = None) -> bytes:
    return encode_message(
        body or b"%d" % sequence,
        message_annotations={"x-opt-sequence": sequence},
        properties=None if key is None else Properties(subject=key),
    )


def frame(*bodies: bytes, producer: bytes = b"", sequence: int = 0, first: int = 99) -> bytes:
    count = len(bodies)
    heads = [b"\x00\x53\x75\xa0" + bytes([len(body)]) for body in bodies]
    return encode_frame(first, [5] * count, [b"k"] * count, heads, bodies, producer=producer, sequence=sequence)


def send_frame(port: MemoryProducerPort, *bodies: bytes, producer: bytes = b"", sequence: int = 0) -> int:
    return port.send(frame(*bodies, producer=producer, sequence=sequence), message_format=FRAME_FORMAT)
