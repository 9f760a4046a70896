"""A space with a topic, over a storage in memory, with subscriptions, senders and receivers."""

from __future__ import annotations

from typing import Any

from enmasse.message.sections import Header, Sections, encode_message
from enmasse.messaging.log.frame import Frame
from enmasse.messaging.log.layout import log_range
from enmasse.messaging.patterns import parse
from enmasse.messaging.queues.subscription import Subscription
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.space import Space
from enmasse.messaging.storage import Table
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort, MemoryProducerPort

TOPIC_LOG = 1_000


class Scene:
    """A space with the topic ``news``."""

    def __init__(self, harness: CoreHarness | None = None, *, is_fresh: bool = True) -> None:
        self.harness = harness or CoreHarness()
        self.space = Space(self.harness.core, "ns/shop", lambda: "id")
        self.topic = Topic(self.harness.core, "news", TOPIC_LOG)
        self.space.add(self.topic)
        if is_fresh:
            self.topic.load()
        self.logs = 0

    def subscription(self, name: str, pattern: str = "news/#", **options: Any) -> Subscription:
        self.logs += 1
        made = Subscription(
            self.harness.core,
            name,
            self.logs,
            topic="news",
            pattern=parse(pattern),
            options=AddressSettings(**options),
        )
        self.space.add(made)
        self.harness.commit()
        return made

    def sender(self, target: str = "news") -> MemoryProducerPort:
        port = self.harness.sender(self.space.find(target), target)
        self.harness.turn()
        return port

    def receiver(self, source: str, credit: int = 100, **options: Any) -> MemoryConsumerPort:
        port = self.harness.receiver(self.space.find(source), credit, source=source, **options)
        self.harness.turn()
        return port

    def stored(self) -> list[bytes]:
        frames = self.harness.storage.scan(Table.FRAME, *log_range(TOPIC_LOG), 1 << 30)
        return [body for _, value in frames for body in Frame(value).cells(Frame(value).bodies)]


def message(body: bytes = b"x", *, durable: bool = True) -> bytes:
    return encode_message(body, header=Header(durable=durable))


def bodies(port: MemoryConsumerPort) -> list[bytes]:
    return [Sections(payload).body for payload in port.payloads]
