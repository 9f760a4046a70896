"""Large messages that are passed on while they are still coming, so that none is held whole.

Rules:
1. Its receiver gets nothing else on that link before it ends.
2. While the receiver takes no more, the sender's session is stalled, and if more than ``AHEAD_BYTES`` come all
   the same its connection is left unread. That blocks whatever else the sender says, the other's way to go on
   may be among it, so a receiver that does not go on within ``PATIENCE_S`` loses the delivery.
3. The outcome is sent after the last piece, as the sender is still sending before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.messaging.delivery import FAILED, Consumer, ConsumerPort, Delivery, Producer, ProducerPort

if TYPE_CHECKING:
    from enmasse.messaging.address import Address


LARGE_BYTES = 1 << 20
"""Bytes from which a message is passed on while it comes: as many as a connection may owe its peer."""

AHEAD_BYTES = 16 << 20
"""Bytes that may wait for a receiver in the middle of a message: more than a sender within its window sends."""

WAITING_BYTES = 64 << 20
"""Bytes that may wait for the receivers of an address in all."""

PATIENCE_S = 60.0
"""Seconds for which a receiver may keep a sender waiting in the middle of a message."""


class PartsPort(Protocol):
    """A delivery that is sent while its message is still coming."""

    is_kept: bool
    """True if its pieces are kept until the last one has come."""

    def write(self, part: bytes | memoryview) -> None:
        """Send a piece, after which others come."""

    def end(self, part: bytes | memoryview) -> None:
        """Send the last piece."""

    def abort(self) -> None:
        """Give it up, which settles it."""


class PassingPort(Protocol):
    """The link of a receiver of large messages, beside what every ``ConsumerPort`` can do."""

    holds_back: bool
    """True if nothing more should be sent for now."""

    def send_while_it_comes(self, delivery: Any, settled: bool, message_format: int = 0) -> PartsPort:
        """Begin to send a message for one credit."""


class HeldPort(Protocol):
    """The link of a sender of large messages, beside what every ``ProducerPort`` can do."""

    def stall(self, is_stalled: bool) -> None:
        """Have the sender stop when it has sent what it may, or go on."""

    def hold_input(self, is_held: bool) -> None:
        """Leave what the sender sends unread, or read on."""


class KeepsDeliveries(Protocol):
    """The address of a large message, which may wait there for a receiver."""

    backlog_bytes: int
    """Bytes of the messages that wait."""

    @property
    def room_bytes(self) -> int:
        """Bytes that may wait in all; beyond them large messages are not read."""

    def forget(self, delivery: Delivery) -> None:
        """Let a delivery wait no longer, if it does."""


class PassingProducer(Producer):
    """A sender's end that passes large messages on while they come; its address is a ``KeepsDeliveries``."""

    __slots__ = ("large",)

    def __init__(self, address: Address, port: ProducerPort, target: str) -> None:
        super().__init__(address, port, target)
        self.large: LargeDelivery | None = None
        """The large message that is being received."""

    def on_large(
        self, payload: bytes, delivery_id: int, settled: bool, message_format: int, is_crossed: bool
    ) -> LargeDelivery:
        """Pass a large message on while it comes, to a receiver that can take it now or soon."""
        raise NotImplementedError

    def on_detached(self) -> None:
        """Note that the link is detached, maybe in the middle of a message."""
        if self.large is not None:
            self.large.abort()
        super().on_detached()


class LargeReceiver(Protocol):
    """The end to which a large message is passed on while it comes."""

    presettle: bool

    @property
    def holds_back(self) -> bool:
        """True if nothing more should be sent to it for now."""

    def begin_large(self, large: LargeDelivery, is_settled: bool) -> PartsPort:
        """Begin to send a message, which is told when the end's link takes no more."""

    def end_large(self, *, has_failed: bool) -> None:
        """Note that nothing more of the message comes; if it has failed, it gets no outcome."""


class PassingConsumer(Consumer):
    """A receiver's end to which large messages are passed on while they come; its port is a ``PassingPort``."""

    __slots__ = ("large",)

    def __init__(self, address: Address, port: ConsumerPort, presettle: bool) -> None:
        super().__init__(address, port, presettle)
        self.large: LargeDelivery | None = None
        """The large message that is being sent."""

    def on_blocked(self, blocked: bool) -> None:
        """Note that the receiver's connection takes no more for now, or again."""
        if self.large is not None:
            self.large.on_blocked(blocked)
        else:
            super().on_blocked(blocked)

    @property
    def holds_back(self) -> bool:
        """True if nothing more should be sent for now."""
        return cast("PassingPort", self.port).holds_back

    def begin_large(self, large: LargeDelivery, is_settled: bool) -> PartsPort:
        """Begin to send a message, for one credit."""
        self.deliveries += 1
        if not is_settled:
            self.unsettled += 1
        self.large = large
        self.is_blocked = True
        return cast("PassingPort", self.port).send_while_it_comes(large, is_settled, large.message_format)

    def end_large(self, *, has_failed: bool) -> None:
        """Note that nothing more of the message comes."""
        if has_failed:
            self.unsettled -= 1
            self.count(FAILED)
        self.large = None
        self.is_blocked = self.holds_back
        self.address.due()


def _input_of(producer: PassingProducer) -> HeldPort:
    return cast("HeldPort", producer.port)


def _room_of(producer: PassingProducer) -> KeepsDeliveries:
    return cast("KeepsDeliveries", producer.address)


class LargeDelivery(Delivery):
    """A large message on its way; ``Passage`` of the engine calls it for the sender's link."""

    __slots__ = (
        "_ahead",
        "_is_given_up",
        "_is_held",
        "_is_stalled",
        "_more",
        "_outcome",
        "_parts",
        "_wait",
        "consumer",
        "is_complete",
        "sender",
    )

    def __init__(
        self, payload: bytes, producer: PassingProducer, producer_id: int, settled: bool, message_format: int
    ) -> None:
        super().__init__(payload, None, producer_id, settled, message_format)
        self.sender = producer
        # Outcomes are reported to this object, which knows when to pass them to the sender.
        self.producer = cast("Producer", self)
        self.consumer: LargeReceiver | None = None
        """The current receiver."""
        self.is_complete = False
        self._more = bytearray()
        """The bytes that came behind ``payload`` while it waits."""
        self._parts: PartsPort | None = None
        self._outcome: Any = None
        self._is_given_up = False
        """True if it has no receiver: the rest is discarded."""
        self._is_stalled = False
        self._is_held = False
        self._ahead = 0
        """Bytes that have come since the receiver takes no more."""
        self._wait = 0

    @property
    def waiting_bytes(self) -> int:
        """Return the bytes that it takes while it waits."""
        return len(self.payload) + len(self._more)

    # Called by the sender's link

    @property
    def is_kept(self) -> bool:
        """True while what comes is kept until the message is complete."""
        return self._parts is not None and self._parts.is_kept

    def write(self, part: bytes | memoryview) -> None:
        """Pass on a piece, after which others come."""
        if self._parts is not None:
            self._parts.write(part)
        elif not self._is_given_up:
            self._add(part)
        self._keep_pace(len(part))

    def end(self, part: bytes | memoryview, settled: bool) -> None:
        """Pass on the last piece."""
        self.is_complete = True
        self.settled |= settled
        self.sender.large = None
        if self._parts is not None:
            self._parts.end(part)
            self._leave()
        elif not self._is_given_up:
            self._add(part)
            self.payload += self._more
            self._more = bytearray()
        self._release_sender()
        if self._outcome is not None:
            self._report()

    def abort(self) -> None:
        """Note that the sender aborted the message, or is detached."""
        self.is_complete = True
        self.settled = True
        self.sender.large = None
        if self.consumer is None:
            _room_of(self.sender).forget(self)
        self._give_up()

    # Its way to a receiver

    def hold(self) -> None:
        """Have the sender wait until a receiver takes the message, or more of it."""
        if not self._is_stalled:
            self._is_stalled = True
            self._ahead = 0
            _input_of(self.sender).stall(True)
            self._wait += 1
            wait = self._wait
            self.sender.address.core.call_later(PATIENCE_S, lambda: self._on_patience(wait))

    def start(self, consumer: LargeReceiver) -> None:
        """Give what has come to a receiver, and what comes from now on."""
        payload, self.payload = self.payload, b""
        more, self._more = self._more, bytearray()
        is_settled = self.settled or consumer.presettle
        if is_settled:
            self._outcome = ACCEPTED
        else:
            self.sink = cast("Consumer", consumer)
        self.consumer = consumer
        self._parts = consumer.begin_large(self, is_settled)
        self._release_sender()
        self._parts.write(payload)
        if more:
            self._parts.write(memoryview(more))
        self._keep_pace(0)

    def on_blocked(self, blocked: bool) -> None:
        """Note that the receiver's connection takes no more for now, or again."""
        if blocked:
            self.hold()
        else:
            self._release_sender()

    def settle(self, _producer_id: int, state: Any) -> None:
        """Note the outcome, which is sent once the sender has sent all."""
        self.sink = None
        self._outcome = state
        if self.is_complete:
            self._report()
        else:
            self._give_up()

    def lost(self) -> None:
        """Note that the receiver was detached in the middle of the message."""
        self._outcome = FAILED
        self._give_up()

    def _report(self) -> None:
        self.producer = None
        if not self.settled:
            self.settled = True
            self.sender.settle(self.producer_id, self._outcome)

    def _keep_pace(self, size: int) -> None:
        if self.consumer is not None and self.consumer.holds_back:
            self.hold()
        if self._is_stalled:
            self._ahead += size
            room = _room_of(self.sender)
            if (self._ahead > AHEAD_BYTES or room.backlog_bytes > room.room_bytes) and not self._is_held:
                self._is_held = True
                _input_of(self.sender).hold_input(True)

    def _release_sender(self) -> None:
        if self._is_stalled:
            self._is_stalled = False
            self._wait += 1
            _input_of(self.sender).stall(False)
        if self._is_held:
            self._is_held = False
            _input_of(self.sender).hold_input(False)

    def _on_patience(self, wait: int) -> None:
        if self._wait != wait or not self._is_stalled:
            return
        if self.consumer is None:
            _room_of(self.sender).forget(self)
            self._outcome = RELEASED
            self._give_up()
        else:
            self.lost()

    def _give_up(self) -> None:
        """End what the receiver has of it, and let the rest pass by."""
        self._is_given_up = True
        self.payload = b""
        self._more = bytearray()
        if self._parts is not None:
            self._parts.abort()
            self._leave()
        self._release_sender()

    def _leave(self) -> None:
        consumer, self.consumer, self._parts = self.consumer, None, None
        assert consumer is not None
        has_failed = self._is_given_up and self.sink is not None
        if has_failed:
            self.sink = None
        consumer.end_large(has_failed=has_failed)

    def _add(self, part: bytes | memoryview) -> None:
        self._more += part
        _room_of(self.sender).backlog_bytes += len(part)
