"""An address behind which others answer: each attach waits until a test says what they say."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from enmasse.message.outcomes import ACCEPTED
from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import Consumer, Delivery, Producer
from enmasse.messaging.errors import AttachError
from enmasse.pending import Pending

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.delivery import ConsumerPort, ProducerPort


class LateProducer(Producer):
    """A sender's end, which keeps what it is given."""

    __slots__ = ("granted", "left", "opening", "options", "payloads", "settles")

    def __init__(self, address: Address, port: ProducerPort, target: str, options: AttachOptions) -> None:
        super().__init__(address, port, target)
        self.options = options
        self.granted = None
        self.opening: Pending[AttachError | None] = Pending()
        self.payloads: list[bytes] = []
        self.settles = True
        """True if it accepts each message as it comes."""
        self.left = 0

    def open(self, credit: int = 10) -> None:
        """Have it answered, and granted credit."""
        self.opening.settle(None)
        self.port.grant(credit)

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Keep a message."""
        assert self.opening.answer == (None,)
        self.payloads.append(payload)
        if self.settles and not settled:
            self.settle(delivery_id, ACCEPTED)

    on_crossed = on_message

    def on_detached(self) -> None:
        """Note that it is left."""
        self.left += 1
        super().on_detached()


class LateConsumer(Consumer):
    """A receiver's end, which keeps what it is told."""

    __slots__ = ("credits", "granted", "left", "opening", "options", "outcomes", "waiting")

    def __init__(self, address: Address, port: ConsumerPort, options: AttachOptions) -> None:
        super().__init__(address, port, options.presettle)
        self.opening: Pending[AttachError | None] = Pending()
        self.options = options
        self.granted = None
        self.credits: list[tuple[int, bool]] = []
        """The credit of the port and whether it was to be drained, each time that it was told."""
        self.waiting: list[bytes] = []
        """What is sent as soon as there is credit."""
        self.outcomes: list[Any] = []
        self.left = 0

    def open(self, *waiting: bytes) -> None:
        """Have it answered, where some messages wait."""
        self.waiting += waiting
        self.opening.settle(None)

    def on_credit(self, gained: int, drain: bool) -> None:
        """Send what waits."""
        assert self.opening.answer == (None,)
        self.credits.append((self.port.credit, drain))
        while self.waiting and self.port.credit > 0:
            delivery = Delivery(b"", None, 0, False, 0)
            delivery.sink = self
            self.deliveries += 1
            self.unsettled += not self.presettle
            self.send(delivery, self.waiting.pop(0), self.presettle)
        if drain:
            self.port.drained()

    def on_outcome(self, delivery: Delivery, state: Any) -> None:
        """Keep an outcome."""
        self.unsettled -= 1
        self.outcomes.append(state)

    def on_detached(self, *, closed: bool = False) -> None:
        """Note that it is left."""
        self.left += 1
        for _ in self.port.take_unsettled():
            self.unsettled -= 1
        super().on_detached()


class LateAddress(Address):
    """The address, which has all names below its own; each has links of its own."""

    kind = "late"
    owns_subtree = True
    names_apart = True
    __slots__ = ("made",)

    def __init__(self, core: Core, name: str) -> None:
        super().__init__(core, name)
        self.made: list[Any] = []
        """The ends that were asked for, in order."""

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """Attach a sender, whose answer comes later."""
        end = LateProducer(self, port, target, options)
        self.made.append(end)
        return self.add_producer(end)

    def known_filters(self, options: AttachOptions) -> Collection[str]:
        """Return all of them: others know which there are."""
        return options.filters

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach a receiver, whose answer comes later."""
        end = LateConsumer(self, port, options)
        self.made.append(end)
        return self.add_consumer(end)
