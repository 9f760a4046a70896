"""Addresses of another container: each link of a client goes on as one link there, with its credit and outcomes.

Rules:
1. One link here is one link there. A sender has the credit that the other container grants, a receiver's credit is
   asked of it, and outcomes pass as they are, both ways: nothing is stored, and nothing acknowledged for another.
2. What comes for credit that was taken back meanwhile, as the two ends do not hear of it at once, is kept and goes
   first once there is credit again: containers that are not ours detach those who send more than was granted.
3. A link that is lost there is attached again, and has no credit here until then. What was written to it and has no
   outcome ends modified, with delivery-failed; what was not written is released. What a receiver has of it cannot be
   settled any more: the other container hands it out again.
4. A large message goes on while it comes, in either direction, so that none is held whole.
5. A receiver that settles second hears of an outcome once it has taken effect there. If the link there is lost
   before, its own link ends, at once or when it tells the outcome: nothing else could say that it has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import Consumer, ConsumerPort, Delivery, Producer, ProducerPort
from enmasse.messaging.direct.large import LargeDelivery
from enmasse.messaging.errors import AttachError
from enmasse.messaging.limits import Usage
from enmasse.messaging.relay.receivers import RelayConsumer, Source
from enmasse.messaging.relay.senders import RelayGuest, RelayProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from enmasse.messaging.core import Core
    from enmasse.messaging.relay.uplink import Uplink

# A relay and the ends of its links know each other, and so do these ends and the uplink that attaches theirs.


class Relay(Address):
    """All addresses of another container, below one name: ``<name>/<address there>``.

    Args:
        core: the core whose turn it takes part in.
        name: the name of the connector.
        uplink: the way to the other container.
        reaches: returns whether an address of the other container may be reached.
        usage: the account of its space; None: one of its own.

    Attributes:
        reaches_any: true if there is an address that may be; else none is made there for a link, either.
    """

    kind = "connector"
    owns_subtree: ClassVar[bool] = True
    names_apart: ClassVar[bool] = True
    passes_large = True
    is_closed: ClassVar[bool] = False
    """Whatever becomes of the connector, its links are told."""
    __slots__ = ("guests", "reaches", "reaches_any", "uplink", "usage")

    def __init__(
        self,
        core: Core,
        name: str,
        uplink: Uplink,
        reaches: Callable[[str], bool],
        usage: Usage | None = None,
    ) -> None:
        super().__init__(core, name)
        self.uplink = uplink
        self.reaches = reaches
        self.reaches_any = True
        self.guests: dict[RelayGuest, None] = {}
        """Senders' ends with a link there that name the address in each message, those that came first first."""
        self.usage = usage or Usage(name)

    @property
    def backlog_bytes(self) -> int:
        """Bytes of the messages that wait, at all connectors of the space."""
        return self.usage.connector_bytes

    @backlog_bytes.setter
    def backlog_bytes(self, size: int) -> None:
        self.usage.connector_bytes = size

    @property
    def room_bytes(self) -> int:
        """Bytes that may wait in all."""
        return self.usage.limits.connector_bytes

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """Attach a sender; the other container answers later."""
        name = self._name_there(target, is_dynamic=options.is_dynamic)
        producer = RelayProducer(self, port, target)
        self.uplink.attach_sender(producer, name, options)
        return self.add_producer(producer)

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """Return a sender's end that is not granted credit; what it sends waits for the other container's."""
        return RelayGuest(self, port, target, self._name_there(target))

    def known_filters(self, options: AttachOptions) -> Collection[str]:
        """Return all that are asked for: the other container says which it knows."""
        return options.filters

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach a receiver; the other container answers later."""
        name = self._name_there(options.source, is_dynamic=options.is_dynamic)
        settles_second = options.attach is not None and options.attach.rcv_settle_mode == 1
        consumer = RelayConsumer(self, port, options.presettle, settles_second)
        self.uplink.attach_receiver(consumer, name, options)
        return self.add_consumer(consumer)

    def forget(self, delivery: Delivery) -> None:
        """Let a large message wait no longer, if it does."""
        assert isinstance(delivery, LargeDelivery)
        assert isinstance(delivery.sender, RelayProducer | Source)
        delivery.sender.forget(delivery)

    def _name_there(self, name: str, *, is_dynamic: bool = False) -> str:
        """Return what the other container calls an address; of a dynamic one what leads on from there, or nothing."""
        _, _, there = name.partition("/")
        if is_dynamic and not there:
            if not self.reaches_any:
                raise AttachError("amqp:not-found", f"connector {self.name!r} reaches nothing: it has no patterns")
            return ""
        if not there:
            problem = f"{self.name!r} is a connector: name an address behind it, such as '{self.name}/orders'"
            raise AttachError("amqp:not-found", problem)
        if not self.reaches(there):
            raise AttachError("amqp:not-found", self.problem_of(there))
        return there

    def problem_of(self, there: str) -> str:
        """Return what is told of an address there that is not reached."""
        return f"connector {self.name!r} does not reach {there!r:.200}: none of its addresses has a pattern for it"
