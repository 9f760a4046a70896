"""The types of addresses that can be declared: each is a class of its own and one row here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from enmasse.messaging.direct.anycast import Anycast
from enmasse.messaging.direct.multicast import Multicast
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.queues.subscription import Subscription
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.streams.stream import Stream

if TYPE_CHECKING:
    from enmasse.messaging.address import Address


class AddressType(NamedTuple):
    """One type of addresses; ``model/address_settings`` says which settings a type has.

    Attributes:
        name: the name as it is declared.
        of: its class, which says by its attributes and methods all else that differs between types.
        needs_topic: whether the topic that feeds it has to be named.
    """

    name: str
    of: type[Address]
    needs_topic: bool = False


ADDRESS_TYPES: dict[str, AddressType] = {
    row.name: row
    for row in (
        AddressType(Anycast.kind, Anycast),
        AddressType(Multicast.kind, Multicast),
        AddressType(Queue.kind, Queue),
        AddressType(Topic.kind, Topic),
        AddressType(Subscription.kind, Subscription, needs_topic=True),
        AddressType(Stream.kind, Stream),
        AddressType("deadletter", Queue),
    )
}
"""The types by name, in the order in which they are listed."""
