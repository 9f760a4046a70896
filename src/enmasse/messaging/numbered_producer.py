"""Senders to queues and topics that number their messages, so that one sent again is not stored again.

A message is handed out only once it is stored together with its number: else one that a receiver took
before would come twice after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from enmasse.messaging.delivery import ACCEPTED, RELEASED, ProducerPort
from enmasse.messaging.numbering import NO_SEQUENCE, sequence_of
from enmasse.messaging.refusals import UNSUPPORTED_FORMAT, full, malformed
from enmasse.messaging.stored_producer import StoredProducer
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.performatives import AmqpError, Rejected

if TYPE_CHECKING:
    from enmasse.messaging.core import Log
    from enmasse.messaging.message_log import MessageLog

__all__ = ["NumberedProducer", "TakesNumbered"]


class TakesNumbered(Protocol):
    """What a queue or topic does for numbered senders."""

    name: str
    dropped: int

    def sequence_log(self) -> MessageLog:
        """What the sequences are kept with."""

    def refuses(self, payload: bytes, target: str) -> bool:
        """Whether there is no room for a message, even after making some as the policy says."""

    def window_for(self, senders: int) -> int:
        """Messages that each of so many senders may send now."""

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
        if refusal is not None:
            self._refuse(refusal, delivery_id, settled)
            return
        home = self._home
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
            self.look(payload)
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
