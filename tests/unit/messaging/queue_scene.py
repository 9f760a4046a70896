"""A queue over a storage in memory, with a sender and receivers."""

from __future__ import annotations

from typing import Any

from enmasse.message.sections import Header, encode_message
from enmasse.messaging.log.frame import Frame
from enmasse.messaging.log.layout import log_range
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.storage import Table
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort, MemoryProducerPort

LOG = 7


def message(body: Any, *, durable: bool = True, **header: Any) -> bytes:
    return encode_message(str(body).encode(), header=Header(durable=durable, **header))


def bodies(port: MemoryConsumerPort) -> list[str]:
    return [payload.rpartition(b"\xa0")[2][1:].decode() for payload in port.payloads]


class Scene:
    """A queue, one sender and one receiver."""

    def __init__(self, harness: CoreHarness | None = None, **options: Any) -> None:
        self.harness = harness or CoreHarness()
        self.queue = Queue(self.harness.core, "orders", LOG, options=AddressSettings(**options))
        self.queue.load()
        self._sender: MemoryProducerPort | None = None

    @property
    def sender(self) -> MemoryProducerPort:
        if self._sender is None:
            self._sender = self.harness.sender(self.queue)
            self.harness.turn()
        return self._sender

    def receiver(self, credit: int = 0, **options: Any) -> MemoryConsumerPort:
        port = self.harness.receiver(self.queue, credit, **options)
        self.harness.turn()
        return port

    def send(self, *bodies_: Any, durable: bool = True, settled: bool = False) -> list[int]:
        return [self.sender.send(message(body, durable=durable), settled=settled) for body in bodies_]

    def stored(self) -> list[tuple[int, int]]:
        """First offset and rows of every frame on disk."""
        frames = self.harness.storage.scan(Table.FRAME, *log_range(LOG), 1 << 30)
        return [(frame.first_offset, frame.rows) for frame in (Frame(value) for _, value in frames)]

    def settled_records(self) -> list[bytes]:
        return [key for key, _ in self.harness.storage.scan(Table.SETTLED, *log_range(LOG), 1 << 30)]

    def restart(self, through: int = 0) -> Scene:
        return Scene(self.harness.restarted(through))

    def drain(self) -> list[str]:
        """Everything that can be received now."""
        port = self.receiver(10_000)
        port.accept(len(port.unsettled))
        port.leave()
        return bodies(port)
