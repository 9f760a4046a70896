"""Fallbacks: a queue that takes a direct address's messages while it has no receiver.

Rules:
1. While the direct address has no receiver, its senders are senders of the queue: its credit, its policies,
   its outcomes.
2. With the first receiver the queue's credit is called in. What crossed that on the wire, and finds no
   receiver's credit, still goes to the queue.
3. The queue gives what it has to its own receivers only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from enmasse.messaging.address import Address
from enmasse.messaging.delivery import DETACHED
from enmasse.messaging.queues.queue import Queue

if TYPE_CHECKING:
    from enmasse.messaging.address import AddressSpace, Declaration
    from enmasse.messaging.core import Core, Log
    from enmasse.messaging.delivery import Producer, ProducerPort


class _LentPort:
    """A sender's link, lent to the queue."""

    __slots__ = ("_producer", "base", "is_lent")

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.is_lent = False
        self.base = 0
        """Messages that had come when it was lent."""

    @property
    def received(self) -> int:
        """Deliveries that have come since it was lent."""
        return self._producer.port.received - self.base

    @property
    def limit(self) -> int:
        """Deliveries that may come since then."""
        return self._producer.port.limit - self.base

    @property
    def highest(self) -> int:
        """The largest limit that was sent."""
        return self._producer.port.highest - self.base

    def grant(self, credit: int) -> None:
        """Set the sender's credit."""
        self._producer.port.grant(credit)

    def settle(self, delivery_id: int, state: Any) -> None:
        """Send an outcome to the sender, if it is still attached."""
        self._producer.settle(delivery_id, state)

    def detach(self, error: Any = None) -> None:
        """Leave the link attached: the queue is deleted, but the link belongs to the direct address."""


class Fallback:
    """The fallback of one direct address: a queue for messages without a receiver.

    Args:
        address: the direct address.
        space: the space of the queue, once that exists.
        name: the queue's address.
    """

    __slots__ = ("_address", "_lent", "_space", "_twins", "name", "taken")

    def __init__(self, address: Address, space: AddressSpace, name: str) -> None:
        self._address = address
        self._space = space
        self.name = name
        self.taken = 0
        """Messages that the queue was given."""
        self._twins: dict[Producer, tuple[Producer, _LentPort]] = {}
        """The senders' ends at the queue."""
        self._lent: Queue | None = None
        """The queue that gives credit now."""
        space.fallbacks.setdefault(name, {})[address] = None

    @property
    def has_queue(self) -> bool:
        """True if the queue exists."""
        return self._queue() is not None

    def lends(self, *, wanted: bool) -> bool:
        """Have the queue give credit to the senders, or stop it; return whether it does."""
        queue = self._queue() if wanted else None
        if self._lent is not None and queue is not self._lent:
            self._end()
        if queue is None:
            return False
        self._lent = queue
        for producer in self._address.producers:
            twin, port = self._twin(queue, producer)
            if not port.is_lent:
                port.is_lent = True
                port.base = producer.port.received
                queue.add_producer(twin)
        queue.due()
        return True

    def take(
        self,
        producer: Producer,
        payload: bytes,
        delivery_id: int,
        settled: bool,
        message_format: int,
        *,
        is_within: bool,
    ) -> bool:
        """Give a message to the queue; return whether there is one.

        Args:
            producer: the sender's end at the direct address.
            payload: the message.
            delivery_id: the id of the sender's.
            settled: whether the sender asks for no outcome.
            message_format: 0 for AMQP's own.
            is_within: whether the sender had credit for it.
        """
        queue = self._queue()
        if queue is None:
            return False
        twin, port = self._twin(queue, producer)
        self.taken += 1
        if not port.is_lent:
            queue.count_detached()["in"] += 1
        on_message = twin.on_message if is_within and port.is_lent else twin.on_crossed
        on_message(payload, delivery_id, settled, message_format)
        queue.due()
        return True

    def write_with(self, log: Log) -> None:
        """Have what the queue takes in this turn written in one batch with what another log has."""
        queue = self._queue()
        if queue is not None and queue.log is not None:
            self._address.core.write_together((queue.log, log))

    def forget(self, producer: Producer) -> None:
        """Forget a sender that was detached."""
        twin, _ = self._twins.pop(producer, (None, None))
        if twin is not None:
            twin.on_detached()

    def close(self) -> None:
        """End the fallback."""
        self._end()
        others = self._space.fallbacks.get(self.name, {})
        others.pop(self._address, None)
        if not others:
            self._space.fallbacks.pop(self.name, None)

    def _queue(self) -> Queue | None:
        found = self._space.address(self.name)
        return found if isinstance(found, Queue) else None

    def _end(self) -> None:
        queue, self._lent = self._lent, None
        if queue is not None:
            for twin, port in self._twins.values():
                if port.is_lent:
                    port.is_lent = False
                    queue.remove_producer(twin)

    def _twin(self, queue: Queue, producer: Producer) -> tuple[Producer, _LentPort]:
        found = self._twins.get(producer)
        # One that was detached, as another node served the queue meanwhile, hears of no outcome any more.
        if found is None or found[0].address is not queue or found[0].port is DETACHED:
            port = _LentPort(producer)
            found = self._twins[producer] = queue.make_producer(cast("ProducerPort", port), producer.target), port
        return found


class Direct(Address):
    """The base of anycast and multicast addresses: a queue may take messages without a receiver."""

    __slots__ = ("fallback", "fallback_name", "space")

    def __init__(self, core: Core, name: str) -> None:
        super().__init__(core, name)
        self.space: AddressSpace | None = None
        self.fallback: Fallback | None = None
        self.fallback_name = ""

    def apply(self, declaration: Declaration) -> None:
        """Apply a changed declaration."""
        super().apply(declaration)
        self.fall_back_to(declaration.settings.fallback)

    @property
    def is_unattended(self) -> bool:
        """True if it has neither a receiver nor a queue to fall back to; see ``Address``."""
        return not self.consumers and not (self.fallback is not None and self.fallback.has_queue)

    def join(self, space: AddressSpace) -> None:
        """Join a space."""
        self.space = space
        self.fall_back_to(self.fallback_name)

    def fall_back_to(self, name: str) -> None:
        """Set the queue for messages without a receiver; without a name there is none."""
        self.fallback_name = name
        if self.fallback is not None and self.fallback.name != name:
            self.fallback.close()
            self.fallback = None
        if name and self.fallback is None and self.space is not None:
            self.fallback = Fallback(self, self.space, name)
        self.due()

    def remove_producer(self, producer: Producer) -> None:
        """Remove a sender."""
        if self.fallback is not None:
            self.fallback.forget(producer)
        super().remove_producer(producer)

    def close(self, condition: str, description: str) -> None:
        """Close the address."""
        super().close(condition, description)
        if self.fallback is not None:
            self.fallback.close()
            self.fallback = None

    def counts(self) -> dict[str, int]:
        """Return the counters of the address, by their management names."""
        return super().counts() | {"fallbackTaken": 0 if self.fallback is None else self.fallback.taken}
