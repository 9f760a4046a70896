"""Plans: what an operator lets tenants choose from, and within which limits.

The credits of EnMasse 1.0 (``resources``, ``resourceLimits``) are kept for
display and compatibility. Limits in real units are ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from enmasse.model.addresses import MAX_PARTITIONS, AddressType
from enmasse.model.durations import Duration
from enmasse.model.errors import Problem
from enmasse.model.limits import AddressLimits, SpaceLimits
from enmasse.model.resource import Resource, ResourceStatus
from enmasse.model.schema import Model
from enmasse.model.spaces import SpaceType
from enmasse.model.storing import (
    MAX_NUMBER,
    FullPolicy,
    MessageRedelivery,
    MessageTtl,
    SlowPolicy,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "PLAN_NAMESPACE",
    "AddressPlan",
    "AddressPlanSpec",
    "AddressSpacePlan",
    "AddressSpacePlanSpec",
    "PortRange",
]

PLAN_NAMESPACE = "enmasse-infra"
"""Where the operator's objects live; tenants' namespaces hold spaces and addresses."""

Credits = dict[str, Annotated[float, Field(ge=0)]]

_NEEDED_CREDITS: dict[SpaceType, tuple[str, ...]] = {
    "standard": ("router", "broker", "aggregate"),
    "brokered": ("broker",),
}


class PortRange(Model):
    """Ports that follow each other."""

    first: int = Field(ge=1024, le=65535)
    """The lowest."""
    last: int = Field(ge=1024, le=65535)
    """The highest."""

    def __contains__(self, port: int) -> bool:
        """Tell whether it is one of them."""
        return self.first <= port <= self.last


class _Described(Model):
    """Texts that help a tenant to choose."""

    display_name: str | None = None
    display_order: int | None = None
    short_description: str | None = None
    long_description: str | None = None


class AddressSpacePlanSpec(_Described):
    """What a space with this plan may use."""

    address_space_type: SpaceType
    resource_limits: Credits = Field(default_factory=dict)
    """Credits of EnMasse 1.0: `router`, `broker` and `aggregate`; only `broker` for brokered spaces."""
    address_plans: tuple[str, ...] = Field(strict=False)
    """The address plans that a tenant of such a space may choose."""
    infra_config_ref: str | None = None
    limits: SpaceLimits | None = None
    """A space may ask for less, never for more."""
    ports: PortRange | None = None
    """The ports that spaces may have for themselves; none if left out."""
    quota: Literal["limits", "credits"] = "limits"
    """Which policy decides what has a place in a space: limits in real units, or the credits of EnMasse 1.0."""


class AddressPlanSpec(_Described):
    """What an address with this plan may use."""

    address_type: AddressType
    resources: Credits = Field(default_factory=dict)
    partitions: int = Field(default=1, ge=1, le=MAX_PARTITIONS)
    """Of a stream; of a queue: how many brokers share it."""
    retention_bytes: int | None = Field(default=None, ge=1, le=MAX_NUMBER)
    """How much of a stream is kept; an address may ask for less."""
    retention_age: Duration | None = None
    """For how long a stream is kept; an address may ask for less."""
    limits: AddressLimits | None = None
    """An address may ask for less, never for more."""
    full_policy: FullPolicy | None = None
    slow_policy: SlowPolicy | None = None
    message_ttl: MessageTtl | None = None
    """An address may only narrow it."""
    message_redelivery: MessageRedelivery | None = None
    """An address may say otherwise, field by field."""


class AddressSpacePlan(Resource):
    """Limits and address plans of a space."""

    immutable: ClassVar[tuple[str, ...]] = ("addressSpaceType",)

    api_version: Literal["admin.enmasse.io/v1beta2"] = "admin.enmasse.io/v1beta2"
    kind: Literal["AddressSpacePlan"] = "AddressSpacePlan"
    spec: AddressSpacePlanSpec
    status: ResourceStatus = ResourceStatus()

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        spec = self.spec
        if spec.quota != "credits":
            return
        for name in _NEEDED_CREDITS[spec.address_space_type]:
            if name not in spec.resource_limits:
                kind = spec.address_space_type
                yield Problem(f"spec.resourceLimits.{name}", f"required where a {kind} space is counted in credits")


class AddressPlan(Resource):
    """Limits of an address."""

    immutable: ClassVar[tuple[str, ...]] = ("addressType",)

    api_version: Literal["admin.enmasse.io/v1beta2"] = "admin.enmasse.io/v1beta2"
    kind: Literal["AddressPlan"] = "AddressPlan"
    spec: AddressPlanSpec
    status: ResourceStatus = ResourceStatus()

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        spec = self.spec
        if spec.partitions > 1 and spec.address_type not in ("queue", "stream"):
            yield Problem("spec.partitions", f"only a queue or stream has more than one, this is {spec.address_type}")
        if spec.address_type != "stream":
            for field in ("retention_bytes", "retention_age"):
                if getattr(spec, field) is not None:
                    name = AddressPlanSpec.model_fields[field].alias
                    yield Problem(f"spec.{name}", f"only a stream has it, this is {spec.address_type}")
