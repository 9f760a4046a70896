"""Limits and options of addresses and spaces: granted by an operator with a plan, narrowed by a tenant.

Rules:
1. A limit that is left out is none.
2. A space or an address may say less than its plan, never more: the least of both holds.
3. Rates are taken over a second; what exceeds them waits, it is not refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from enmasse.model.kinds.address_settings import MAX_MULTIPLIER, MAX_NUMBER, RejectPolicy
from enmasse.model.kinds.durations import Duration, milliseconds
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.schema import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

_Amount = Annotated[int, Field(ge=1, le=MAX_NUMBER)]
_Count = Annotated[int, Field(ge=1, le=1_000_000)]


class AddressLimits(Model):
    """Limits of an address."""

    max_bytes: _Amount | None = None
    """Stored bytes; of what stores."""
    max_consumers: _Count | None = None
    """Receivers at a time; of a queue. A subscription says it in a field of its own."""
    message_rate: _Amount | None = None
    """Messages a second that it takes from all senders together."""
    byte_rate: _Amount | None = None
    """Bytes a second that it takes from all senders together."""
    message_size: _Amount | None = None
    """Bytes of the largest message that it takes."""
    links: _Count | None = None
    """Senders and receivers at a time, all together."""


class SpaceLimits(Model):
    """Limits of a space with all its addresses together."""

    connections: _Count | None = None
    """Connections at a time."""
    devices: _Count | None = None
    """Connected devices at a time: different container ids."""
    links: _Count | None = None
    """Senders and receivers at a time, all together."""
    addresses: _Count | None = None
    """Addresses that may be declared."""
    users: _Count | None = None
    """Messaging users that may be declared."""
    message_rate: _Amount | None = None
    """Messages a second that it takes from all senders together."""
    byte_rate: _Amount | None = None
    """Bytes a second that it takes from all senders together."""
    max_bytes: _Amount | None = None
    """Stored bytes of its queues, subscriptions and streams together."""
    message_size: _Amount | None = None
    """Bytes of the largest message that it takes."""
    ttl: Duration | None = None
    """The longest that a message may wait: `30s`, `15m`, `12h`, `7d`."""
    retained: _Count | None = None
    """Retained values of its topics and multicast addresses together; 100,000 if left out."""
    retained_bytes: _Amount | None = None
    """Bytes of these values together; 64 MiB if left out, since they are in memory."""
    sessions: _Count | None = None
    """Sessions that outlive their connections; 100,000 if left out."""
    session_bytes: _Amount | None = None
    """Bytes of messages that wait in one session, which then loses its oldest; 16 MiB if left out."""
    session_expiry: Duration | None = None
    """The time that a session is kept without its client: `30s`, `15m`, `12h`, `7d`. Left out: as long as the client
    asks for."""
    will_grace: Duration | None = None
    """The time that a client has to come back before its will is sent, where the node that it had reached has ended
    and another one is the home of the space; `5s` if left out. A will may wait longer by itself."""
    filter_addresses: _Count | None = None
    """Addresses that one filter with wildcards may stand for; 1,000 if left out."""
    subscriptions: _Count | None = None
    """Filters of MQTT clients, and subscriptions that other receivers make at topics; 100,000 if left out."""
    subscription_bytes: _Amount | None = None
    """Bytes of the node's memory that these take together, with sessions and wills; 1 GiB if left out."""
    connector_connections: _Count | None = None
    """Connections of its connectors to other containers at a time, all together; 64 if left out."""
    connector_sessions: _Count | None = None
    """Sessions on these, one for each connection of a client that uses a connector, at RabbitMQ 3 for each link;
    10,000 if left out."""
    connector_unsettled: _Count | None = None
    """Messages that one sender has sent through a connector and knows no outcome of; 10,000 if left out."""
    connector_bytes: _Amount | None = None
    """Bytes that wait at its connectors, for credit there or for receivers here; 64 MiB if left out."""
    pipeline_memory: _Amount | None = None
    """Bytes of Java's heap in each session of Spark that runs its pipelines, 512 MiB at least; what all processes of
    the session have follows from it. Left out: what the machine has."""
    pipeline_cores: _Count | None = None
    """Cores of each of these sessions; left out: those of the machine."""

    @property
    def ttl_ms(self) -> int | None:
        """The longest time to live in milliseconds."""
        return None if self.ttl is None else milliseconds(self.ttl)

    @property
    def session_expiry_ms(self) -> int | None:
        """The longest time that a session is kept without its client, in milliseconds."""
        return None if self.session_expiry is None else milliseconds(self.session_expiry)

    @property
    def will_grace_ms(self) -> int | None:
        """The time that a will waits if the node has ended that its client had reached, in milliseconds."""
        return None if self.will_grace is None else milliseconds(self.will_grace)


class MessageTtl(Model):
    """Bounds, in milliseconds, on how long messages may wait."""

    minimum: int | None = Field(default=None, ge=0, le=MAX_NUMBER)
    """A shorter time of a message is raised to it."""
    maximum: int | None = Field(default=None, ge=0, le=MAX_NUMBER)
    """A longer time of a message is lowered to it; 0 is no bound."""


class MessageRedelivery(Model):
    """Attempts to deliver a message, and the delays between them."""

    maximum_delivery_attempts: int | None = Field(default=None, ge=-1, le=MAX_NUMBER)
    """-1 and 0: without limit."""
    reject_policy: RejectPolicy | None = None
    """`retry`: a rejection is a failed attempt; `deadletter`: it is the last one. Left out: as the infrastructure
    configuration of the space's plan says, or else `retry` where attempts are limited, `deadletter` where not."""
    redelivery_delay: int | None = Field(default=None, ge=0, le=MAX_NUMBER)
    """Milliseconds before the first repetition."""
    redelivery_delay_multiplier: float | None = Field(default=None, ge=1, le=MAX_MULTIPLIER)
    """The factor by which the delay grows with each attempt."""
    maximum_delivery_delay: int | None = Field(default=None, ge=0, le=MAX_NUMBER)
    """Milliseconds; 0: the delay grows without bound."""


class SubscriptionSpec(Model):
    """Options of a subscription."""

    max_consumers: int = Field(default=1, ge=1, le=1_000_000)
    """Receivers at a time."""


class Retention(Model):
    """Bounds on what a stream keeps; messages beyond the first bound that is reached are deleted."""

    size: int | None = Field(default=None, ge=1, le=MAX_NUMBER, alias="bytes")
    """Stored bytes that are kept."""
    age: Duration | None = None
    """The time that messages are kept: `30s`, `15m`, `12h`, `7d`."""

    @property
    def age_ms(self) -> int | None:
        """The age in milliseconds."""
        return None if self.age is None else milliseconds(self.age)


def storing_problems(ttl: MessageTtl | None, redelivery: MessageRedelivery | None) -> Iterator[Problem]:
    """Yield contradictions in the times to live and the redelivery of an address or a plan."""
    if ttl and ttl.minimum is not None and ttl.maximum and ttl.minimum > ttl.maximum:
        yield Problem(
            "spec.messageTtl",
            f"expected minimum <= maximum, got minimum {ttl.minimum} and maximum {ttl.maximum}; change one of them",
        )
    if redelivery is None:
        return
    first, longest = redelivery.redelivery_delay, redelivery.maximum_delivery_delay
    if first and longest and first > longest:
        yield Problem(
            "spec.messageRedelivery",
            f"expected redeliveryDelay <= maximumDeliveryDelay, got {first} and {longest}; change one of them",
        )
