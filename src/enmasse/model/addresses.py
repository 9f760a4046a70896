"""Address: a named destination with a type and a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from enmasse.model.errors import Problem
from enmasse.model.limits import AddressLimits
from enmasse.model.message_schema import MessageSchema
from enmasse.model.names import MAX_ADDRESS_CHARACTERS, address_problem
from enmasse.model.resource import ResourceStatus, SpaceMember
from enmasse.model.schema import Model, describe_value
from enmasse.model.storing import (
    Distribution,
    FullPolicy,
    MessageRedelivery,
    MessageTtl,
    Retention,
    SlowPolicy,
    Storage,
    SubscriptionSpec,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.model.spaces import SpaceType

__all__ = [
    "ADDRESS_TYPES",
    "FIELD_OWNERS",
    "MAX_PARTITIONS",
    "OFFERED_TYPES",
    "Address",
    "AddressSpec",
    "AddressStatus",
    "AddressType",
    "BrokerStatus",
    "Forwarder",
    "ForwarderStatus",
    "PlanStatus",
]

AddressType = Literal["anycast", "multicast", "queue", "topic", "subscription", "stream", "deadletter"]

ADDRESS_TYPES: tuple[AddressType, ...] = (
    "anycast",
    "multicast",
    "queue",
    "topic",
    "subscription",
    "stream",
    "deadletter",
)

OFFERED_TYPES: dict[SpaceType, tuple[AddressType, ...]] = {
    "standard": ADDRESS_TYPES,
    "brokered": ("queue", "topic", "subscription", "deadletter"),
}
"""The types of addresses that a space of each type has."""

MAX_PARTITIONS = 1024
"""One journal holds all partitions of a stream, each with its own index entry and cursor."""

_DIRECT: tuple[AddressType, ...] = ("anycast", "multicast")
_QUEUES: tuple[AddressType, ...] = ("queue", "subscription")
_KEEPING: tuple[AddressType, ...] = ("queue", "topic", "subscription", "deadletter")
FIELD_OWNERS: dict[str, tuple[AddressType, ...]] = {
    "topic": ("subscription",),
    "subscription": ("subscription",),
    "partitions": ("stream",),
    "retention": ("stream",),
    "deadletter": ("queue", "topic", "subscription"),
    "expiry": ("queue", "topic", "subscription"),
    "exclusive": (*_QUEUES, "deadletter"),
    "last_value_key": _QUEUES,
    "slow_policy": ("topic", "multicast"),
    "distribution": ("anycast",),
    "fallback": _DIRECT,
    "storage": _KEEPING,
    "full_policy": _KEEPING,
    "forwarders": _QUEUES,
}
"""Fields that not every type has."""


_SLOW_POLICIES = {"topic": ("block", "drop-oldest", "spill"), "multicast": ("block", "drop")}


class Forwarder(Model):
    """A pump between this address and one behind a connector."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    """Told apart by it."""
    remote_address: str
    """`<connector>/<address>`: a connector of the space, and an address behind it."""
    direction: Literal["in", "out"]
    """`in`: from there to here; `out`: from here to there."""
    priority: int | None = Field(default=None, ge=0, le=9)
    """The priority that messages get on the way."""


class AddressSpec(Model):
    """What a tenant asks of an address."""

    address: str = Field(
        json_schema_extra={"minLength": 1, "maxLength": MAX_ADDRESS_CHARACTERS, "pattern": r"^[^\s$][^\s]*$"}
    )
    """The name that applications use: any text without white space."""
    type: AddressType
    """How messages are given to receivers, and whether they are stored."""
    plan: str | None = None
    """A plan for the address's type; left out: the smallest."""
    topic: str | None = None
    """The address of the topic that a subscription belongs to."""
    partitions: int | None = Field(default=None, ge=1, le=MAX_PARTITIONS)
    """Of a stream; left out: as many as the plan says. Fixed once the stream exists."""
    subscription: SubscriptionSpec | None = None
    deadletter: str | None = None
    """Where messages go that failed too often; an address of type deadletter."""
    expiry: str | None = None
    """Where messages go whose time is over; an address of type deadletter."""
    message_ttl: MessageTtl | None = None
    message_redelivery: MessageRedelivery | None = None
    storage: Storage | None = None
    """What survives a restart; left out: durable messages. Fixed once the address exists."""
    full_policy: FullPolicy | None = None
    """What happens when ``limits.maxBytes`` is reached; left out: as the plan says, or block."""
    slow_policy: SlowPolicy | None = None
    """What happens to a receiver of a topic or multicast address that falls behind.

    left out: as the plan says, or drop-oldest of a topic, drop of a multicast address.
    """
    distribution: Distribution | None = None
    """Which receiver gets the next message; on one node both mean the same. left out: balanced."""
    fallback: str | None = None
    """The queue that takes messages of a direct address as long as it has no receiver."""
    exclusive: bool | None = None
    """Whether one receiver gets everything while the others stand by."""
    last_value_key: str | None = Field(default=None, min_length=1)
    """Keep only the latest message of each key: ``subject``, or the name of an application property."""
    limits: AddressLimits | None = None
    retention: Retention | None = None
    schema_: MessageSchema | None = Field(default=None, alias="schema")
    """How messages are encoded and what is in them, for pipelines; nothing that is sent is checked against it."""
    forwarders: tuple[Forwarder, ...] = Field(default=(), strict=False)

    @property
    def max_consumers(self) -> int:
        """How many consumers are taken at once, as far as this says it; 0 is without limit."""
        if self.type != "subscription":
            return (self.limits.max_consumers if self.limits else None) or 0
        return (self.subscription or SubscriptionSpec()).max_consumers

    def plan_name(self, space_type: SpaceType) -> str:
        """Return the plan in effect in a space of the given type."""
        if self.plan is not None:
            return self.plan
        if space_type == "brokered":
            return f"brokered-{self.type}"
        return "standard-deadletter" if self.type == "deadletter" else f"standard-small-{self.type}"


class PlanStatus(Model):
    """What of the plan is in effect."""

    name: str
    partitions: int | None = None
    resources: dict[str, float] = Field(default_factory=dict)
    """Credits that the address uses up."""


class BrokerStatus(Model):
    """A store that holds messages of the address."""

    cluster_id: str
    container_id: str
    broker_id: str | None = None
    state: Literal["Active", "Migrating", "Draining"]


class ForwarderStatus(Model):
    """Whether a forwarder works."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    is_ready: bool = False
    messages: tuple[str, ...] = Field(default=(), strict=False)


class AddressStatus(ResourceStatus):
    """What the controller found about an address."""

    plan_status: PlanStatus | None = None
    broker_statuses: tuple[BrokerStatus, ...] = Field(default=(), strict=False)
    """Where its messages are stored."""
    forwarders: tuple[ForwarderStatus, ...] = Field(default=(), strict=False)
    """How its forwarders are."""
    subscription: SubscriptionSpec | None = None
    """In effect, after defaults; as all that follow."""
    message_ttl: MessageTtl | None = None
    message_redelivery: MessageRedelivery | None = None
    limits: AddressLimits | None = None
    retention: Retention | None = None


class Address(SpaceMember):
    """A named destination with a type and a plan."""

    immutable: ClassVar[tuple[str, ...]] = (
        "address",
        "type",
        "topic",
        "partitions",
        "subscription.maxConsumers",
        "storage",
    )

    api_version: Literal["enmasse.io/v1beta1"] = "enmasse.io/v1beta1"
    kind: Literal["Address"] = "Address"
    spec: AddressSpec
    status: AddressStatus = AddressStatus()

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        spec = self.spec
        if problem := address_problem(spec.address):
            yield Problem("spec.address", problem)
        if spec.type == "subscription" and not spec.topic:
            yield Problem("spec.topic", "required for a subscription: the address of its topic")
        for field, owners in FIELD_OWNERS.items():
            if getattr(spec, field) not in (None, ()) and spec.type not in owners:
                name = AddressSpec.model_fields[field].alias
                yield Problem(f"spec.{name}", f"only {_any_of(owners)} has it, this is {_a(spec.type)}")
        policies = _SLOW_POLICIES.get(spec.type)
        if spec.slow_policy and policies and spec.slow_policy not in policies:
            given = describe_value(spec.slow_policy)
            yield Problem("spec.slowPolicy", f"expected {' or '.join(policies)} for {_a(spec.type)}, got {given}")
        for field in ("deadletter", "expiry", "fallback"):
            if getattr(spec, field) == spec.address:
                yield Problem(f"spec.{field}", f"expected another address, got {describe_value(spec.address)} itself")
        if spec.limits and spec.limits.max_consumers and spec.type not in ("queue", "deadletter"):
            hint = "; use spec.subscription.maxConsumers" if spec.type == "subscription" else ""
            yield Problem("spec.limits.maxConsumers", f"only a queue has it, this is {_a(spec.type)}{hint}")
        if spec.limits and spec.limits.max_bytes and spec.type in _DIRECT:
            yield Problem("spec.limits.maxBytes", f"only what stores has it, this is {_a(spec.type)}")
        if spec.schema_ is not None:
            yield from spec.schema_.problems("spec.schema")
        yield from self._ttl_problems()
        yield from self._redelivery_problems()
        yield from self._forwarder_problems()

    def unapplied(self) -> Iterator[str]:
        """Yield a sentence for each field that is kept and shown, but changes nothing."""
        if self.spec.forwarders:
            yield f"{self.metadata.name}: spec.forwarders is kept, but has no effect in this version"
        for field in ("message_ttl", "message_redelivery"):
            if getattr(self.spec, field) and self.spec.type not in _KEEPING:
                name = AddressSpec.model_fields[field].alias
                yield f"{self.metadata.name}: spec.{name} is kept, but has no effect on {_a(self.spec.type)}"

    def _ttl_problems(self) -> Iterator[Problem]:
        ttl = self.spec.message_ttl
        if ttl and ttl.minimum is not None and ttl.maximum is not None and ttl.minimum > ttl.maximum:
            yield Problem(
                "spec.messageTtl",
                f"expected minimum <= maximum, got minimum {ttl.minimum} and maximum {ttl.maximum}",
            )

    def _redelivery_problems(self) -> Iterator[Problem]:
        redelivery = self.spec.message_redelivery
        if redelivery is None:
            return
        first, longest = redelivery.redelivery_delay, redelivery.maximum_delivery_delay
        if first and longest and first > longest:
            yield Problem(
                "spec.messageRedelivery",
                f"expected redeliveryDelay <= maximumDeliveryDelay, got {first} and {longest}",
            )

    def _forwarder_problems(self) -> Iterator[Problem]:
        spec = self.spec
        names = [forwarder.name for forwarder in spec.forwarders]
        for index, forwarder in enumerate(spec.forwarders):
            path = f"spec.forwarders[{index}]"
            if forwarder.name in names[:index]:
                yield Problem(f"{path}.name", f"expected a name used once, but '{forwarder.name}' occurs before")
            connector, _, remote = forwarder.remote_address.partition("/")
            if not connector or not remote:
                yield Problem(
                    f"{path}.remoteAddress",
                    f"expected <connector>/<address>, got {describe_value(forwarder.remote_address)}",
                )
            if forwarder.direction == "in" and spec.type == "subscription":
                yield Problem(f"{path}.direction", "a subscription forwards only 'out'")


def _any_of(types: tuple[AddressType, ...]) -> str:
    return f"a {types[0]}" if len(types) == 1 else f"a {', '.join(types[:-1])} or {types[-1]}"


def _a(address_type: AddressType) -> str:
    return f"an {address_type}" if address_type == "anycast" else f"a {address_type}"
