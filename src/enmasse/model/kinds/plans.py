"""Plans: the choices that an operator offers to tenants, with their limits.

The credits of EnMasse 1.0 (``resources``, ``resourceLimits``) decide what has a place in spaces whose plan has them
and no limits in real units, which are ours.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from pydantic import Field

from enmasse.model.kinds.address_settings import MAX_NUMBER, MAX_PARTITIONS, AddressType, FullPolicy, SlowPolicy
from enmasse.model.kinds.addresses import unapplied_storing
from enmasse.model.kinds.durations import Duration, milliseconds
from enmasse.model.kinds.limits import (
    AddressLimits,
    MessageRedelivery,
    MessageTtl,
    SpaceLimits,
    storing_problems,
)
from enmasse.model.kinds.spaces import SpaceType
from enmasse.model.schema.conditions import Unapplied, over_bounds
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import is_label
from enmasse.model.schema.resource import Resource, ResourceStatus
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.model.kinds.addresses import Address


Credits = dict[str, Annotated[float, Field(ge=0)]]

Quota = Literal["limits", "credits"]

TEMPLATE_PARAMETERS: Final = "enmasse.io/template-parameters"
"""The annotation that keeps parameters of a flavor's template of 2016 that mean nothing today."""

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
        """Return True for a port of the range."""
        return self.first <= port <= self.last


class _Described(Model):
    """Texts that help a tenant to choose."""

    display_name: str | None = None
    display_order: int | None = None
    short_description: str | None = None
    long_description: str | None = None


class AddressSpacePlanSpec(_Described):
    """Limits and choices of spaces with this plan."""

    address_space_type: SpaceType
    resource_limits: Credits = Field(default_factory=dict)
    """Credits of EnMasse 1.0: `router`, `broker` and `aggregate`; no `router` for brokered spaces."""
    address_plans: tuple[str, ...] = Field(strict=False)
    """The address plans that a tenant of such a space may choose."""
    namespaces: tuple[str, ...] | None = Field(default=None, strict=False, min_length=1)
    """The namespaces whose spaces may have it; left out: all."""
    infra_config_ref: str | None = None
    limits: SpaceLimits | None = None
    """A space may ask for less, never for more."""
    node_selector: dict[str, str] | None = None
    """The labels of the nodes on which new spaces are placed, each with its value; left out: any."""
    ports: PortRange | None = None
    """The ports that spaces may have for themselves; none if left out."""
    quota: Quota | None = None
    """The policy that decides what has a place in a space: `limits` in real units, or the `credits` of EnMasse 1.0.
    Left out: `credits` where there are `resourceLimits` and no `limits`."""

    @property
    def policy(self) -> Quota:
        """The policy in effect, after the default."""
        return self.quota or ("credits" if self.resource_limits and self.limits is None else "limits")


class AddressPlanSpec(_Described):
    """Limits and options of addresses with this plan."""

    address_type: AddressType
    resources: Credits = Field(default_factory=dict)
    partitions: int = Field(default=1, ge=1, le=MAX_PARTITIONS)
    """Of a stream; of a queue: how many brokers share it."""
    retention_bytes: int | None = Field(default=None, ge=1, le=MAX_NUMBER)
    """The bytes of a stream that are kept; an address may ask for less."""
    retention_age: Duration | None = None
    """The time that a stream is kept; an address may ask for less."""
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

    @property
    def is_bounded(self) -> bool:
        """True if it bounds in some way what a space takes."""
        said = self.spec.limits is not None and any(self.spec.limits.to_dict().values())
        return said or self.spec.policy == "credits"

    def is_for(self, namespace: str) -> bool:
        """Return True if spaces of a namespace may have the plan."""
        return self.spec.namespaces is None or namespace in self.spec.namespaces

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        spec, kind = self.spec, self.spec.address_space_type
        for index, namespace in enumerate(spec.namespaces or ()):
            if not is_label(namespace):
                yield Problem(
                    f"spec.namespaces[{index}]", f"expected the name of a namespace, got {describe_value(namespace)}"
                )
        if spec.ports is not None and spec.ports.first > spec.ports.last:
            first, last = spec.ports.first, spec.ports.last
            yield Problem("spec.ports", f"expected first <= last, got {first} and {last}; exchange them")
        if kind == "brokered" and "router" in spec.resource_limits:
            yield Problem(
                "spec.resourceLimits.router", "expected none: a brokered space has no routers; leave it out"
            )
        for name in _NEEDED_CREDITS[kind] if spec.quota == "credits" else ():
            if name not in spec.resource_limits:
                yield Problem(f"spec.resourceLimits.{name}", f"required where a {kind} space is counted in credits")

    def unapplied(self) -> Iterator[Unapplied]:
        """Yield each field that is kept and shown, but changes nothing, as far as the plan alone shows."""
        spec = self.spec
        if spec.policy == "limits" and spec.resource_limits:
            why = "places are counted in limits; say quota: credits, or leave one of limits and resourceLimits out"
            yield Unapplied("spec.resourceLimits", why)
        elif spec.policy == "credits":
            yield from _unknown_credits(
                "spec.resourceLimits", spec.resource_limits, ("router", "broker", "aggregate")
            )
            if spec.limits is not None and spec.limits.addresses is not None:
                yield Unapplied(
                    "spec.limits.addresses", "places are counted in credits; say quota: limits to have it"
                )


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
        yield from storing_problems(spec.message_ttl, spec.message_redelivery)

    def unapplied(self) -> Iterator[Unapplied]:
        """Yield each field that is kept and shown, but changes nothing."""
        spec = self.spec
        yield from _unknown_credits("spec.resources", spec.resources, ("router", "broker"))
        if spec.partitions > 1 and spec.address_type == "queue":
            why = (
                "a queue is on one node as a whole; only where a space plan counts credits, it takes so many brokers"
            )
            yield Unapplied("spec.partitions", why)
        yield from unapplied_storing(spec, spec.address_type)
        if parameters := self.metadata.annotations.get(TEMPLATE_PARAMETERS):
            yield Unapplied(f"metadata.annotations[{TEMPLATE_PARAMETERS}]", f"nothing here has them: {parameters}")


def unapplied_over_plan(address: Address, plan: AddressPlanSpec) -> Iterator[Unapplied]:
    """Yield the fields in which an address asks for more than its plan allows; the plan holds."""
    spec = address.spec
    yield from over_bounds("spec.limits", spec.limits, plan.limits)
    if spec.message_ttl is not None and plan.message_ttl is not None:
        least, most = plan.message_ttl.minimum or 0, plan.message_ttl.maximum or None
        if (asked := spec.message_ttl.minimum) is not None and asked < least:
            yield Unapplied("spec.messageTtl.minimum", f"the plan raises it to {least}, which holds")
        if (asked := spec.message_ttl.maximum) is not None and most is not None and asked > most:
            yield Unapplied("spec.messageTtl.maximum", f"the plan allows {most}, which holds")
    if spec.retention is not None:
        size, age = spec.retention.size, spec.retention.age_ms
        if size is not None and plan.retention_bytes is not None and size > plan.retention_bytes:
            yield Unapplied("spec.retention.bytes", f"the plan allows {plan.retention_bytes}, which holds")
        if age is not None and plan.retention_age is not None and age > milliseconds(plan.retention_age):
            yield Unapplied("spec.retention.age", f"the plan allows {plan.retention_age}, which holds")


def _unknown_credits(path: str, given: dict[str, float], known: tuple[str, ...]) -> Iterator[Unapplied]:
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            yield Unapplied(f"{path}.{name}", f"nothing is counted under this name; {hint}")
