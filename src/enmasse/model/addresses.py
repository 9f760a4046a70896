"""Address: a named destination with a type and a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from enmasse.model.errors import Problem
from enmasse.model.names import address_problem, space_of
from enmasse.model.resource import Resource, ResourceStatus
from enmasse.model.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.model.spaces import SpaceType

__all__ = [
    "ADDRESS_TYPES",
    "MAX_PARTITIONS",
    "Address",
    "AddressSpec",
    "AddressStatus",
    "AddressType",
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

MAX_PARTITIONS = 1024
"""One journal holds all partitions of a stream, each with its own index entry and cursor."""

_WITH_LEFTOVERS: frozenset[AddressType] = frozenset({"queue", "topic"})
_FORWARDING: frozenset[AddressType] = frozenset({"queue", "subscription"})
_UNAPPLIED = ("deadletter", "expiry", "message_ttl", "message_redelivery", "forwarders")


class MessageTtl(Model):
    """Bounds, in milliseconds, on how long messages may wait."""

    minimum: int | None = Field(default=None, ge=0)
    maximum: int | None = Field(default=None, ge=1)


class MessageRedelivery(Model):
    """How often and how soon a message is offered again."""

    maximum_delivery_attempts: int | None = Field(default=None, ge=-1)
    """-1: without limit."""
    redelivery_delay: int | None = Field(default=None, ge=0)
    """Milliseconds before the first repetition."""
    redelivery_delay_multiplier: float | None = Field(default=None, ge=1)
    maximum_delivery_delay: int | None = Field(default=None, ge=0)
    """Milliseconds."""


class SubscriptionSpec(Model):
    """What a subscription allows."""

    max_consumers: int = Field(default=1, ge=1, le=1_000_000)


class Forwarder(Model):
    """A pump between this address and one behind a connector."""

    name: str
    remote_address: str
    direction: Literal["in", "out"]
    priority: int | None = Field(default=None, ge=0, le=9)


class AddressSpec(Model):
    """What a tenant asks of an address."""

    address: str
    """The name that applications use: any text without white space."""
    type: AddressType
    plan: str | None = None
    """A plan for the address's type; None: the smallest."""
    topic: str | None = None
    """The address of the topic that a subscription belongs to."""
    partitions: int | None = Field(default=None, ge=1, le=MAX_PARTITIONS)
    """Of a stream; None: as many as the plan says. Fixed once the stream exists."""
    subscription: SubscriptionSpec | None = None
    deadletter: str | None = None
    expiry: str | None = None
    message_ttl: MessageTtl | None = None
    message_redelivery: MessageRedelivery | None = None
    forwarders: tuple[Forwarder, ...] = Field(default=(), strict=False)

    @property
    def max_consumers(self) -> int:
        """How many consumers a subscription takes at once; 0, without limit, for other types."""
        if self.type != "subscription":
            return 0
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


class AddressStatus(ResourceStatus):
    """What the controller found about an address."""

    plan_status: PlanStatus | None = None
    subscription: SubscriptionSpec | None = None
    """In effect, after defaults."""


class Address(Resource):
    """A named destination with a type and a plan."""

    immutable: ClassVar[tuple[str, ...]] = (
        "address",
        "type",
        "topic",
        "partitions",
        "subscription.maxConsumers",
    )

    api_version: Literal["enmasse.io/v1beta1"] = "enmasse.io/v1beta1"
    kind: Literal["Address"] = "Address"
    spec: AddressSpec
    status: AddressStatus = AddressStatus()

    @property
    def space(self) -> str:
        """The name of the space that the address belongs to."""
        return space_of(self.metadata.name)

    @property
    def space_key(self) -> str:
        """Namespace and name of the space, as in ``default/shop``."""
        return f"{self.metadata.namespace}/{self.space}"

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        spec = self.spec
        if "." not in self.metadata.name:
            yield Problem(
                "metadata.name",
                "expected <space>.<anything>, where the part before the first dot names the space, "
                f"got {describe_value(self.metadata.name)}",
            )
        if problem := address_problem(spec.address):
            yield Problem("spec.address", problem)
        if spec.type == "subscription" and not spec.topic:
            yield Problem("spec.topic", "required for a subscription: the address of its topic")
        if spec.type != "subscription":
            for field in ("topic", "subscription"):
                if getattr(spec, field) is not None:
                    yield Problem(f"spec.{field}", f"only a subscription has it, this is {_a(spec.type)}")
        if spec.type != "stream" and spec.partitions is not None:
            yield Problem("spec.partitions", f"only a stream has it, this is {_a(spec.type)}")
        if spec.type not in _WITH_LEFTOVERS:
            for field in ("deadletter", "expiry"):
                if getattr(spec, field) is not None:
                    yield Problem(f"spec.{field}", f"only queues and topics have it, this is {_a(spec.type)}")
        yield from self._ttl_problems()
        yield from self._forwarder_problems()

    def unapplied(self) -> Iterator[str]:
        """Yield a sentence for each field that is kept and shown, but changes nothing yet."""
        for field in _UNAPPLIED:
            if getattr(self.spec, field):
                name = AddressSpec.model_fields[field].alias
                yield f"{self.metadata.name}: spec.{name} is kept, but has no effect in this version"

    def _ttl_problems(self) -> Iterator[Problem]:
        ttl = self.spec.message_ttl
        if ttl and ttl.minimum is not None and ttl.maximum is not None and ttl.minimum > ttl.maximum:
            yield Problem(
                "spec.messageTtl",
                f"expected minimum <= maximum, got minimum {ttl.minimum} and maximum {ttl.maximum}",
            )

    def _forwarder_problems(self) -> Iterator[Problem]:
        spec = self.spec
        if spec.forwarders and spec.type not in _FORWARDING:
            yield Problem("spec.forwarders", f"only queues and subscriptions have them, this is {_a(spec.type)}")
        for index, forwarder in enumerate(spec.forwarders):
            path = f"spec.forwarders[{index}]"
            connector, _, remote = forwarder.remote_address.partition("/")
            if not connector or not remote:
                yield Problem(
                    f"{path}.remoteAddress",
                    f"expected <connector>/<address>, got {describe_value(forwarder.remote_address)}",
                )
            if forwarder.direction == "in" and spec.type == "subscription":
                yield Problem(f"{path}.direction", "a subscription forwards only 'out'")


def _a(address_type: AddressType) -> str:
    return f"an {address_type}" if address_type == "anycast" else f"a {address_type}"
