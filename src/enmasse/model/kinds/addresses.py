"""Address: a named destination with a type and a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Literal, Protocol

from pydantic import Field
from pydantic.alias_generators import to_snake

from enmasse.model.kinds.address_settings import (
    ADDRESS_TYPES,
    BROKERED_TYPES,
    MAX_PARTITIONS,
    SETTINGS,
    STORING,
    Acknowledge,
    AddressType,
    Distribution,
    FullPolicy,
    SlowPolicy,
    Storage,
    wire_name,
)
from enmasse.model.kinds.limits import (
    AddressLimits,
    MessageRedelivery,
    MessageTtl,
    Retention,
    SubscriptionSpec,
    storing_problems,
)
from enmasse.model.schema.conditions import Unapplied
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import MAX_ADDRESS_CHARACTERS, address_problem, pattern_problem
from enmasse.model.schema.resource import ResourceStatus, SpaceMember
from enmasse.model.schema.schema import Model, describe_value
from enmasse.model.sql.message_schema import MessageSchema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.model.kinds.spaces import SpaceType


OFFERED_TYPES: dict[SpaceType, tuple[AddressType, ...]] = {
    "standard": ADDRESS_TYPES,
    "brokered": BROKERED_TYPES,
}
"""The types of addresses that a space of each type has."""

GROUP: Final = "enmasse.io/group"
"""The annotation that keeps the group of an address: a request for one broker, which no plan grants today."""


def _owners() -> dict[str, tuple[AddressType, ...]]:
    """Return the fields of a spec that only some types of addresses have, with those types."""
    found: dict[str, tuple[AddressType, ...]] = {}
    for setting in SETTINGS.values():
        field = to_snake(setting.path.partition(".")[0])
        if field and setting.of and field not in ("limits", *_WAITING_FIELDS):
            found[field] = setting.of
    return found


_WAITING_FIELDS = ("message_ttl", "message_redelivery")
"""Fields that every address may have; they have an effect only where messages wait for receivers."""

FIELD_OWNERS: dict[str, tuple[AddressType, ...]] = {
    "topic": ("subscription",),
    "subscription": ("subscription",),
    "partitions": ("stream",),
    "forwarders": ("queue", "subscription"),
    **_owners(),
}
"""Fields that not every type has."""

_SLOW_POLICIES = SETTINGS["slow_policy"].choices_of
_COUNTED = SETTINGS["max_consumers"]
_SIZED = SETTINGS["max_bytes"]


class Forwarder(Model):
    """A pump between this address and one behind a connector."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    """Told apart by it."""
    remote_address: str
    """`<connector>/<address>`: a connector of the space, and an address behind it."""
    direction: Literal["in", "out"]
    """`in`: from there to here; `out`: from here to there."""
    priority: int | None = Field(default=None, ge=0, le=255)
    """The priority that messages get on the way; as in AMQP, what is above 9 counts as 9."""


class AddressSpec(Model):
    """The declaration of an address by its tenant."""

    address: str = Field(
        json_schema_extra={"minLength": 1, "maxLength": MAX_ADDRESS_CHARACTERS, "pattern": r"^[^\s$][^\s]*$"}
    )
    """The name that applications use: text without blanks, `#`, `+`, `*`, `::`; the topic `#` has all names."""
    type: AddressType
    """The delivery to receivers, and whether messages are stored."""
    plan: str | None = None
    """A plan for the address's type; left out: the smallest."""
    topic: str | None = None
    """The address of the topic that a subscription belongs to."""
    partitions: int | None = Field(default=None, ge=1, le=MAX_PARTITIONS)
    """Of a stream; left out: as many as the plan says. Fixed once the stream exists."""
    subscription: SubscriptionSpec | None = None
    deadletter: str | None = None
    """The address to which messages go that failed too often; an address of type deadletter."""
    expiry: str | None = None
    """The address to which messages go whose time is over; an address of type deadletter."""
    message_ttl: MessageTtl | None = None
    message_redelivery: MessageRedelivery | None = None
    storage: Storage | None = None
    """The part that survives a restart; left out: durable messages. Fixed once the address exists."""
    full_policy: FullPolicy | None = None
    """The policy once ``limits.maxBytes`` is reached; left out: as the plan says, or block."""
    slow_policy: SlowPolicy | None = None
    """The policy towards a receiver of a topic or multicast address that falls behind.

    left out: as the plan says, or drop-oldest of a topic, drop of a multicast address.
    """
    distribution: Distribution | None = None
    """The rule that picks the receiver of the next message; on one node both mean the same. left out: balanced."""
    acknowledge: Acknowledge | None = None
    """The side whose acceptance a sender's outcome is: the receiver's, or the node's. left out: the receiver's."""
    fallback: str | None = None
    """The queue that takes messages of a direct address as long as it has no receiver."""
    exclusive: bool | None = None
    """True if one receiver gets everything while the others stand by."""
    last_value_key: str | None = Field(default=None, min_length=1)
    """Keep only the latest message of each key: ``subject``, or the name of an application property."""
    users_only: bool | None = None
    """True if it is closed to clients that have not logged in, where its space is open to everybody."""
    limits: AddressLimits | None = None
    retention: Retention | None = None
    schema_: MessageSchema | None = Field(default=None, alias="schema")
    """The encoding of messages and their fields, for pipelines; nothing that is sent is checked against it."""
    forwarders: tuple[Forwarder, ...] = Field(default=(), strict=False)

    @property
    def max_consumers(self) -> int:
        """The number of consumers at a time that the spec allows; 0 is without limit."""
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
    """The part of the plan that is in effect."""

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
    """The state of a forwarder."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    is_ready: bool = False
    messages: tuple[str, ...] = Field(default=(), strict=False)


class AddressStatus(ResourceStatus):
    """The state of an address, as its controller found it."""

    plan_status: PlanStatus | None = None
    broker_statuses: tuple[BrokerStatus, ...] = Field(default=(), strict=False)
    """The nodes that store its messages."""
    forwarders: tuple[ForwarderStatus, ...] = Field(default=(), strict=False)
    """The state of its forwarders."""
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
        if spec.limits and spec.limits.max_consumers and _COUNTED.path_for(spec.type) != _COUNTED.path:
            hint = "; use spec.subscription.maxConsumers" if spec.type == "subscription" else ""
            yield Problem("spec.limits.maxConsumers", f"only a queue has it, this is {_a(spec.type)}{hint}")
        if spec.limits and spec.limits.max_bytes and not _SIZED.is_of(spec.type):
            yield Problem("spec.limits.maxBytes", f"only what stores has it, this is {_a(spec.type)}")
        if spec.schema_ is not None:
            yield from spec.schema_.problems("spec.schema")
        yield from storing_problems(spec.message_ttl, spec.message_redelivery)
        yield from self._forwarder_problems()

    def unapplied(self) -> Iterator[Unapplied]:
        """Yield each field that is kept and shown, but changes nothing, as far as the address alone shows."""
        if self.spec.forwarders:
            why = "no messages are moved to or from another messaging service; a program of yours can do it"
            yield Unapplied("spec.forwarders", why, is_needed=True)
        yield from unapplied_storing(self.spec, self.spec.type)
        if GROUP in self.metadata.annotations:
            yield Unapplied(f"metadata.annotations[{GROUP}]", "all addresses of a space are on one node anyway")

    def _forwarder_problems(self) -> Iterator[Problem]:
        spec = self.spec
        names = [forwarder.name for forwarder in spec.forwarders]
        for index, forwarder in enumerate(spec.forwarders):
            path = f"spec.forwarders[{index}]"
            if forwarder.name in names[:index]:
                yield Problem(f"{path}.name", f"expected a name used once, but '{forwarder.name}' occurs before")
            connector, _, remote = forwarder.remote_address.partition("/")
            if not connector.isalnum() or not remote:
                yield Problem(
                    f"{path}.remoteAddress",
                    "expected <connector>/<address>, where the connector is letters and digits, "
                    f"got {describe_value(forwarder.remote_address)}",
                )
            elif problem := pattern_problem(remote):
                yield Problem(f"{path}.remoteAddress", f"behind the connector: {problem}")
            if forwarder.direction == "in" and spec.type == "subscription":
                yield Problem(f"{path}.direction", "a subscription forwards only 'out'")


class _Options(Protocol):
    """The options that an address and its plan both have."""

    @property
    def slow_policy(self) -> SlowPolicy | None: ...
    @property
    def limits(self) -> AddressLimits | None: ...


def unapplied_storing(spec: _Options, address_type: AddressType) -> Iterator[Unapplied]:
    """Yield the options, of an address or of a plan, that have no effect on addresses of this type."""
    for field in (*_WAITING_FIELDS, "full_policy"):
        if getattr(spec, field) is not None and address_type not in STORING:
            name = wire_name(field)
            why = f"it is for messages that wait for receivers, and {_a(address_type)} keeps none so"
            yield Unapplied(f"spec.{name}", why)
    policy, policies = spec.slow_policy, _SLOW_POLICIES.get(address_type, ())
    if policy is not None and policy not in policies:
        why = f"{_a(address_type)} has {' or '.join(policies)}" if policies else f"{_a(address_type)} has none"
        yield Unapplied("spec.slowPolicy", why)
    is_counted = _COUNTED.path_for(address_type) == _COUNTED.path
    if spec.limits is not None and spec.limits.max_consumers is not None and not is_counted:
        hint = "; say it in spec.subscription.maxConsumers" if address_type == "subscription" else ""
        yield Unapplied("spec.limits.maxConsumers", f"only a queue has it, this is {_a(address_type)}{hint}")
    if spec.limits is not None and spec.limits.max_bytes is not None and not _SIZED.is_of(address_type):
        yield Unapplied("spec.limits.maxBytes", f"only what stores has it, this is {_a(address_type)}")


def _any_of(types: tuple[AddressType, ...]) -> str:
    return f"a {types[0]}" if len(types) == 1 else f"a {', '.join(types[:-1])} or {types[-1]}"


def _a(address_type: AddressType) -> str:
    return f"an {address_type}" if address_type == "anycast" else f"a {address_type}"
