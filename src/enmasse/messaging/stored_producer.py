"""What senders to queues and topics share: a look at each message, quickened by the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.messaging.delivery import Producer, ProducerPort
from enmasse.messaging.facts import PLAIN, Facts, facts_of
from enmasse.messaging.frame import split_payload
from enmasse.wire.amqp.sections import check_order

if TYPE_CHECKING:
    from enmasse.messaging.address import Address

__all__ = ["StoredProducer"]


class StoredProducer(Producer):
    """A sender's end at an address that stores.

    What precedes a body's content holds its length, so a message of the same size and start as another
    asks for the same.
    """

    __slots__ = ("facts", "head", "size")

    def __init__(self, address: Address, port: ProducerPort, target: str) -> None:
        super().__init__(address, port, target)
        self.size = -1
        """Of the latest message, if what it asks for is told by its size and head."""
        self.head = b""
        self.facts = PLAIN

    def look(self, payload: bytes) -> Facts:
        """What a message asks for.

        Raises:
            DecodeError: it cannot be read, or its sections are out of order.
        """
        if len(payload) == self.size and payload.startswith(self.head):
            return self.facts
        facts = facts_of(payload)
        self.head, _, is_whole = split_payload(payload)
        if is_whole:
            check_order(payload)
        self.facts = facts
        self.size = -1 if is_whole else len(payload)
        return facts
