"""The senders to queues and topics, those that number their messages included.

The facts of each message are found quickly from the one before. A numbered message that is sent again is not
stored again; it is handed out only once it is stored together with its number: else one that a receiver took
before would come twice after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Rejected
from enmasse.message.sections import check_order
from enmasse.messaging.delivery import Producer, ProducerPort
from enmasse.messaging.errors import UNSUPPORTED_FORMAT, full, malformed
from enmasse.messaging.facts import PLAIN, Facts, facts_of
from enmasse.messaging.log.frame import split_payload
from enmasse.messaging.log.sequences import NO_SEQUENCE, sequence_of

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.core import Log
    from enmasse.messaging.log.message_log import MessageLog


class StoredProducer(Producer):
    """A sender's end at an address that stores.

    What precedes a body's content holds its length, so a message of the same size and start as another
    asks for the same.
    """

    __slots__ = ("facts", "head", "size")

    def __init__(self, address: Address, port: ProducerPort, target: str) -> None:
        super().__init__(address, port, target)
        self.size = -1
        """The size of the latest message, if size and head tell its facts."""
        self.head = b""
        self.facts = PLAIN

    def read_facts(self, payload: bytes) -> Facts:
        """Return the facts of a message.

        Raises:
            DecodeError: it cannot be read, or its sections are out of order.
        """
        if len(payload) == self.size and payload.startswith(self.head):
            return self.facts
        facts = facts_of(payload)
        # What cannot be read is not taken for known when it comes again.
        self.size = -1
        self.head, _, is_whole = split_payload(payload)
        if is_whole:
            check_order(payload)
        else:
            self.size = len(payload)
        self.facts = facts
        return facts


class TakesNumbered(Protocol):
    """An address that takes numbered messages: a queue or topic."""

    name: str
    dropped: int

    def annotate(self, payload: bytes, target: str) -> bytes:
        """Return the message with what the address itself writes into its annotations."""

    def sequence_log(self) -> MessageLog:
        """Return the log that keeps the sequences."""

    def refuses(self, payload: bytes, target: str) -> bool:
        """Return whether there is no room for a message, even after making some as the policy says."""

    def window_for(self, senders: int) -> int:
        """Return how many messages each of so many senders may send now."""

    def enlist_message(self, payload: bytes, target: str, done: Callable[[str | None], None]) -> Log:
        """Have a message written with the next batch, and handed out only then."""


class NumberedProducer(StoredProducer):
    """A sender's end at a queue or topic.

    Args:
        address: the queue or topic.
        port: the link.
        target: the address as the sender named it.
        name: under which it numbers its messages.
    """

    is_plain = False
    __slots__ = ("_name",)

    def __init__(self, address: TakesNumbered, port: ProducerPort, target: str, name: bytes) -> None:
        super().__init__(address, port, target)  # type: ignore[arg-type]  # both kinds are addresses
        self._name = name

    @property
    def _home(self) -> TakesNumbered:
        return self.address  # type: ignore[return-value]  # as above

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Have it stored, unless it is."""
        refusal, sequence = self._read(payload, message_format)
        home = self._home
        if refusal is None:
            try:
                payload = home.annotate(payload, self.target)
            except DecodeError as error:
                refusal = malformed(error)
        if refusal is not None:
            self._refuse(refusal, delivery_id, settled)
            return
        log = home.sequence_log()
        if not log.knows(self._name, sequence) and home.refuses(payload, self.target):
            log.miss(self._name, sequence)
            self._refuse(full(home.name), delivery_id, settled)
            return
        state = log.judge(self._name, sequence)
        if state is None:

            def decided(problem: str | None) -> None:
                if not settled:
                    self.settle(delivery_id, ACCEPTED if problem is None else RELEASED)

            home.enlist_message(payload, self.target, decided)
        elif not settled:
            self.settle(delivery_id, state)

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take it if there is room, else remember that it is missing."""
        home = self._home
        if home.window_for(1):
            self.on_message(payload, delivery_id, settled, message_format)
            return
        refusal, sequence = self._read(payload, message_format)
        if refusal is None:
            home.sequence_log().miss(self._name, sequence)
        self._refuse(refusal or RELEASED, delivery_id, settled)

    def _read(self, payload: bytes, message_format: int) -> tuple[Rejected | None, int]:
        if message_format:
            return UNSUPPORTED_FORMAT, 0
        try:
            self.read_facts(payload)
        except DecodeError as error:
            return malformed(error), 0
        sequence = sequence_of(payload)
        if sequence is None:
            return Rejected(AmqpError("amqp:invalid-field", NO_SEQUENCE)), 0
        return None, sequence

    def _refuse(self, state: object, delivery_id: int, settled: bool) -> None:
        if settled:
            self._home.dropped += 1
        else:
            self.settle(delivery_id, state)
