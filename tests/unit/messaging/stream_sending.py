"""A stream over a storage in memory, and what its senders send."""

from __future__ import annotations

from typing import Any

from enmasse.message.sections import Properties, encode_message
from enmasse.messaging.log.frame import encode_frame
from enmasse.messaging.streams.producers import FRAME_FORMAT, FRAMES_CAPABILITY
from enmasse.testing.ports import MemoryProducerPort
from tests.support.stream_scene import LOG, StreamScene

__all__ = ["LOG", "Scene", "frame", "keyed", "numbered", "send_frame"]


class Scene(StreamScene):
    """A stream whose senders wait for the disk."""

    def settle(self) -> None:
        """Run a turn: the disk answers when a test says so."""
        self.harness.turn()

    def frames_sender(self, partition: int = 0) -> MemoryProducerPort:
        return self.sender(capabilities=(FRAMES_CAPABILITY,), properties={"enmasse:partition": partition})

    def numbered_sender(self, name: Any = "p1") -> MemoryProducerPort:
        return self.sender(properties={"enmasse:producer": name})

    def rows(self, partition: int = 0) -> list[bytes]:
        """The bodies on disk by offset; offsets have no gaps."""
        rows: list[bytes] = []
        for frame in self.stored(partition):
            assert frame.first_offset == len(rows)
            rows += frame.cells(frame.bodies)
        return rows


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
