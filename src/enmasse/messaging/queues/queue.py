"""Queues: messages are owned, stored if durable, and given to competing receivers in order.

A durable message is accepted when its commit has returned, or when a receiver has accepted it before:
then it need never be written. What is on hand and how it is handed out is said in ``backlog``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.messaging.address import AttachOptions, Declaration
from enmasse.messaging.delivery import Producer, ProducerPort
from enmasse.messaging.errors import UNSUPPORTED_FORMAT, full, malformed
from enmasse.messaging.facts import known_facts
from enmasse.messaging.log.message_log import MessageLog
from enmasse.messaging.log.sequences import producer_name
from enmasse.messaging.queues.backlog import Backlog
from enmasse.messaging.queues.producers import NumberedProducer, StoredProducer
from enmasse.model.kinds.address_settings import AddressSettings

if TYPE_CHECKING:
    from enmasse.message.outcomes import Rejected
    from enmasse.messaging.core import Core, Log


MAX_CREDIT = 1_000
"""Enough to cover a commit at full rate; a producer that is held up sends no more than this."""


class QueueProducer(StoredProducer):
    """A sender's end at a queue."""

    __slots__ = ()
    address: Queue

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take ownership: at once in memory, or once it is stored."""
        queue = self.address
        refusal: Rejected | None = None
        if message_format:
            refusal = UNSUPPORTED_FORMAT
        else:
            try:
                facts = self.read_facts(payload)
            except DecodeError as error:
                refusal = malformed(error)
        if refusal is None and queue.options.full_policy != "block" and not queue.make_room(len(payload)):
            refusal = full(queue.name)
        if refusal is not None:
            if settled:
                queue.dropped += 1
            else:
                self.settle(delivery_id, refusal)
            return
        if queue.writes_durable if facts.durable else queue.writes_all:
            entry = queue.enqueue(payload, None if settled else self, delivery_id, durable=True, facts=facts)
            if len(payload) == self.size:
                entry.body_at = len(self.head)
        else:
            queue.enqueue(payload, None, 0, durable=False, facts=facts)
            if not settled:
                self.settle(delivery_id, ACCEPTED)

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take it if there is room, whatever the credit."""
        if self.address.options.full_policy != "block" or self.address.free_bytes > len(payload):
            self.on_message(payload, delivery_id, settled, message_format)
        elif settled:
            self.address.dropped += 1
        else:
            self.settle(delivery_id, RELEASED)


class Staged:
    """The sender of a message that a transaction brings."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[str | None], None]) -> None:
        self._done = done

    def settle(self, _id: int, state: Any) -> None:
        """Report that it is stored, or never will be."""
        self._done(None if state is ACCEPTED else "it could not be written")


class Queue(Backlog):
    """A stored address whose messages go to one receiver each.

    Args:
        core: the core whose turn and journal it takes part in.
        name: the address.
        log_id: under which its frames are kept.
        options: the settings beyond storing.
    """

    kind = "queue"
    __slots__ = ("average_bytes", "log_id", "writes_all", "writes_durable")

    def __init__(self, core: Core, name: str, log_id: int, *, options: AddressSettings | None = None) -> None:
        options = options or AddressSettings()
        log = None if options.storage == "memory" else MessageLog(core, self, log_id)
        self.log_id = log_id
        self.average_bytes = 1024
        self.writes_durable = log is not None
        """True if durable messages are written."""
        self.writes_all = options.storage == "durable"
        super().__init__(core, name, log, (log_id, 0), options)

    @classmethod
    def declared(cls, core: Core, name: str, declaration: Declaration) -> Self:
        """Return the queue that a declaration describes; see ``Address``."""
        made = cls(core, name, declaration.log_id, options=declaration.settings)
        made.limit(declaration.settings)
        return made

    # Links

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """Attach a sender.

        Raises:
            AttachError: the name that it numbers its messages under is none.
        """
        name = producer_name(options)
        if name is not None:
            return self.add_producer(NumberedProducer(self, port, target, name))
        return self.add_producer(self.make_producer(port, target))

    def sequence_log(self) -> MessageLog:
        """Return the log that keeps the sequences of numbered producers."""
        return self.memory_log() if self.log is None else self.log

    def refuses(self, payload: bytes, target: str) -> bool:
        """Return whether there is no room for a message, even after making some as the policy says."""
        return self.options.full_policy != "block" and not self.make_room(len(payload))

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """Return a sender's end that is not granted credit."""
        return QueueProducer(self, port, target)

    # Messages

    def make_room(self, size: int) -> bool:
        """Return whether there is room for a message, the oldest ones making some if that is the policy."""
        needed = size + self.overhead
        while self.free_bytes < needed:
            if self.options.full_policy != "drop-oldest" or self.core.is_pressed:
                return False
            entry = self.next_entry()
            if entry is None:
                return False
            self.dropped += 1
            self.settle(entry)
        return True

    def on_turn(self, now: float) -> None:
        """Hand out, then let senders have what there is room for."""
        super().on_turn(now)
        if self.producers:
            self.average_bytes = self.mean_bytes()
            grant_credit(
                self, MAX_CREDIT if self.options.full_policy != "block" else self.window_for(len(self.producers))
            )

    def window_for(self, senders: int) -> int:
        """Return how many messages each of so many senders may send now."""
        free = self.free_bytes
        return max(1, free // (senders * self.average_bytes)) if free > 0 else 0

    def mean_bytes(self) -> int:
        """Return the mean size of a message, as far as is known."""
        return max(1, self.bytes_stored // self.depth) if self.depth else self.average_bytes

    # Transactions

    def enlist_message(self, payload: bytes, target: str, done: Callable[[str | None], None]) -> Log:
        """Have a message written with the next batch, and handed out only then.

        Args:
            payload: the message.
            target: the address as its sender named it.
            done: called once it is stored, or with the reason why it is not.
        """
        facts = known_facts(payload)
        if self.options.full_policy == "drop-oldest":
            self.make_room(len(payload))
        log = self.log
        if log is None:

            def decided(problem: str | None) -> None:
                if problem is None:
                    self.enqueue(payload, None, 0, durable=False, facts=facts)
                done(problem)

            log = self.memory_log()
            log.stage(decided)
        else:
            is_written = self.writes_durable if facts.durable else self.writes_all
            self.enqueue(payload, Staged(done), 0, durable=is_written, facts=facts, is_staged=True)
        return log

    # The journal

    def load(self) -> None:
        """Load what the journal holds; messages that a restart forgets are deleted."""
        if self.log is not None:
            first, forgotten = self.log.load()
            if forgotten:
                self.core.store_in_time(forgotten)
            self.start_from(first)


def grant_credit(address: Any, window: int) -> None:
    """Give every sender of an address its credit, at most ``MAX_CREDIT``."""
    window = min(MAX_CREDIT, window)
    if not window and address.core.is_pressed:
        address.core.hold(address)
    for producer in address.producers:
        port = producer.port
        credit = port.limit - port.received
        if 2 * credit <= window or credit > 2 * window:
            port.grant(window)
