"""A sender's end whose link is metered, or whose messages are measured while they pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from enmasse.message.outcomes import RELEASED, AmqpError, Rejected
from enmasse.messaging.delivery import Producer

if TYPE_CHECKING:
    from enmasse.message.passage import Passage
    from enmasse.messaging.address import Address
    from enmasse.messaging.direct.large import PassingProducer
    from enmasse.messaging.metering import Meter, MeteredPort


def too_large(most: int) -> AmqpError:
    """Return the outcome for a message with more bytes than it may have."""
    return AmqpError("amqp:link:message-size-exceeded", f"messages may have up to {most} bytes")


class MeteredSink:
    """The sink that a metered link calls in place of its producer.

    Args:
        producer: the sender's end at its address.
        port: the producer's port.
        most_bytes: the most bytes of a message that is passed on while it comes; 0 is without limit.
    """

    __slots__ = ("most_bytes", "port", "producer")

    def __init__(self, producer: Producer, port: MeteredPort, most_bytes: int) -> None:
        self.producer = producer
        self.port = port
        self.most_bytes = most_bytes

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Handle a message within the credit."""
        self.port.add_bytes(len(payload))
        self.producer.on_message(payload, delivery_id, settled, message_format)

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Handle a message for credit that was taken back meanwhile, by the address or by a bucket."""
        self.port.add_bytes(len(payload))
        self.producer.on_crossed(payload, delivery_id, settled, message_format)

    def on_large(
        self, payload: bytes, delivery_id: int, settled: bool, message_format: int, is_crossed: bool
    ) -> Passage:
        """Handle the beginning of a large message."""
        self.port.add_bytes(len(payload))
        # Only links of addresses that pass large messages on are asked.
        producer = cast("PassingProducer", self.producer)
        passage = producer.on_large(payload, delivery_id, settled, message_format, is_crossed)
        return _Measured(self.port, passage, len(payload), self.most_bytes)

    def on_exhausted(self) -> None:
        """Note that the last credit has been used: what the address granted, or the buckets."""
        self.port.exhausted()
        self.producer.on_exhausted()

    def on_given_up(self, credit: int) -> None:
        """Note that credit was used up without a message."""
        self.port.exhausted()
        self.producer.on_given_up(credit)

    def on_available(self, available: int) -> None:
        """Note that messages wait for credit at the sender."""
        if available:
            self.port.wanted()
        self.producer.on_available(available)


class _Measured:
    """The rest of a large message, whose bytes are counted."""

    __slots__ = ("_most_bytes", "_passage", "_port", "_size")

    def __init__(self, port: MeteredPort, passage: Passage, size: int, most_bytes: int) -> None:
        self._port = port
        self._passage = passage
        self._size = size
        self._most_bytes = most_bytes

    @property
    def is_kept(self) -> bool:
        """True while what comes is kept until the message is complete."""
        return self._passage.is_kept

    def _count(self, size: int) -> bool:
        self._size += size
        self._port.add_bytes(size)
        if self._most_bytes and self._size > self._most_bytes:
            self._passage.abort()
            self._port.detach(too_large(self._most_bytes))
            return False
        return True

    def write(self, part: bytes | memoryview) -> None:
        """Pass on a piece, after which others come."""
        if self._count(len(part)):
            self._passage.write(part)

    def end(self, part: bytes | memoryview, settled: bool) -> None:
        """Pass on the last piece."""
        if self._count(len(part)):
            self._passage.end(part, settled)

    def abort(self) -> None:
        """Note that the sender aborted the message."""
        self._passage.abort()


class Guest(Producer):
    """An address with limits as a sender on the anonymous terminus reaches it.

    Args:
        producer: its end at the address.
        meter: the address's bucket, if its rate is limited.
        most_bytes: the most bytes of a message there; 0 is without limit.
    """

    __slots__ = ("_meter", "_most_bytes", "_producer")

    def __init__(self, producer: Producer, meter: Meter | None, most_bytes: int) -> None:
        super().__init__(producer.address, producer.port, producer.target)
        self._producer = producer
        self._meter = meter
        self._most_bytes = most_bytes

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Pass the message to the address if that may take it now."""
        size = len(payload)
        address: Address = self.address
        if self._most_bytes and size > self._most_bytes:
            if settled:
                address.dropped += 1
            else:
                self.settle(delivery_id, Rejected(too_large(self._most_bytes)))
        elif self._meter is not None and not self._meter.take(size):
            if settled:
                address.dropped += 1
            else:
                self.settle(delivery_id, RELEASED)
        else:
            self._producer.on_crossed(payload, delivery_id, settled, message_format)

    def on_detached(self) -> None:
        """Note that the link is detached."""
        super().on_detached()
        self._producer.on_detached()
