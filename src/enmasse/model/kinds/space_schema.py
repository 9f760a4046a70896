"""AddressSpaceSchema: the choices of a tenant, derived from the operator's objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeVar, get_args

from pydantic import Field

from enmasse.model.kinds.address_settings import AddressType
from enmasse.model.kinds.addresses import OFFERED_TYPES
from enmasse.model.kinds.limits import AddressLimits, SpaceLimits
from enmasse.model.kinds.spaces import SpaceType
from enmasse.model.schema.metadata import Metadata
from enmasse.model.schema.resource import Data
from enmasse.model.schema.schema import Model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from enmasse.model.kinds.authentication import AuthenticationService
    from enmasse.model.kinds.plans import AddressPlan, AddressPlanSpec, AddressSpacePlan, AddressSpacePlanSpec


class Named(Model):
    """A choice, with texts that help to choose."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    display_name: str | None = None
    description: str | None = None


class AddressPlanDescription(Named):
    """A plan of addresses."""

    resources: dict[str, float] = Field(default_factory=dict)
    """Credits that an address takes."""
    limits: AddressLimits | None = None
    """The limits of an address."""


class SpacePlanDescription(Named):
    """A plan of spaces."""

    resource_limits: dict[str, float] = Field(default_factory=dict)
    """Credits that a space has."""
    limits: SpaceLimits | None = None
    """The limits of a space."""


class AddressTypeDescription(Named):
    """A type of addresses, and its plans."""

    name: AddressType
    plans: tuple[AddressPlanDescription, ...] = Field(default=(), strict=False)


class RouteServicePortDescription(Named):
    """A port that a route leads to."""

    route_tls_terminations: tuple[str, ...] = Field(default=(), strict=False)


class AddressSpaceSchemaSpec(Model):
    """The choices for a space of this type."""

    description: str | None = None
    address_types: tuple[AddressTypeDescription, ...] = Field(default=(), strict=False)
    plans: tuple[SpacePlanDescription, ...] = Field(default=(), strict=False)
    authentication_services: tuple[str, ...] = Field(default=(), strict=False)
    certificate_provider_types: tuple[Named, ...] = Field(default=(), strict=False)
    endpoint_expose_types: tuple[Named, ...] = Field(default=(), strict=False)
    route_service_ports: tuple[RouteServicePortDescription, ...] = Field(default=(), strict=False)


class AddressSpaceSchema(Data):
    """The choices of a tenant for spaces of one type, which is the object's name."""

    is_namespaced: ClassVar[bool] = False

    api_version: Literal["enmasse.io/v1beta1"] = "enmasse.io/v1beta1"
    kind: Literal["AddressSpaceSchema"] = "AddressSpaceSchema"
    spec: AddressSpaceSchemaSpec = AddressSpaceSchemaSpec()


PlanT = TypeVar("PlanT", "AddressPlan", "AddressSpacePlan")

_SPACES: Final[dict[SpaceType, str]] = {
    "standard": "All types of addresses, on as many nodes as are needed.",
    "brokered": "Queues and topics on one node: strict order, and transactions over all of them.",
}
_ADDRESSES: Final[dict[AddressType, str]] = {
    "anycast": "Direct: each message goes to one receiver, whose outcome the sender gets.",
    "multicast": "Direct: each message goes to all receivers there are.",
    "queue": "Stored: each message goes to one receiver, once there is one.",
    "topic": "Copies each message into its subscriptions.",
    "subscription": "Stored: what its topic was sent, for receivers that come and go.",
    "stream": "Stored in order and kept: readers begin where they like.",
    "deadletter": "Stored: what other addresses could not deliver.",
}
_CERTIFICATES: Final = (
    Named(name="selfsigned", display_name="Self-signed", description="Issued by the installation's own authority."),
    Named(name="wildcard", display_name="Wildcard", description="The operator's, good for all spaces."),
    Named(name="certBundle", display_name="Certificate bundle", description="Your own, with its key."),
)
_EXPOSES: Final = (
    Named(name="loadbalancer", display_name="Load balancer", description="Ports of their own."),
    Named(name="route", display_name="Route", description="A host name of its own on a shared port."),
)
_PORTS: Final = (
    RouteServicePortDescription(name="amqps", display_name="AMQPS", route_tls_terminations=("passthrough",)),
    RouteServicePortDescription(
        name="https", display_name="HTTPS", route_tls_terminations=("passthrough", "reencrypt")
    ),
)


def address_space_schemas(
    space_plans: Iterable[AddressSpacePlan],
    address_plans: Iterable[AddressPlan],
    services: Iterable[AuthenticationService],
) -> list[AddressSpaceSchema]:
    """Return a schema for each type of spaces, without uid and times; the object's name is the type.

    It lists what everybody may choose: plans that only some namespaces may have are left out, since a schema is the
    same for all. An address plan is listed where such a space plan offers it.

    Args:
        space_plans: those of the operator's namespace.
        address_plans: those of the operator's namespace.
        services: those of the operator's namespace.
    """
    spaces, addresses, names = list(space_plans), list(address_plans), sorted(item.metadata.name for item in services)
    found = []
    for space_type in get_args(SpaceType):
        mine = _ordered(
            plan for plan in spaces if plan.spec.address_space_type == space_type and plan.spec.namespaces is None
        )
        offered = {name for plan in mine for name in plan.spec.address_plans}
        spec = AddressSpaceSchemaSpec(
            description=_SPACES[space_type],
            plans=tuple(_space_plan(plan) for plan in mine),
            address_types=tuple(
                AddressTypeDescription(
                    name=kind,
                    description=_ADDRESSES[kind],
                    plans=tuple(
                        _address_plan(plan)
                        for plan in _ordered(addresses)
                        if plan.spec.address_type == kind and plan.metadata.name in offered
                    ),
                )
                for kind in OFFERED_TYPES[space_type]
            ),
            authentication_services=tuple(names),
            certificate_provider_types=_CERTIFICATES,
            endpoint_expose_types=_EXPOSES,
            route_service_ports=_PORTS,
        )
        found.append(AddressSpaceSchema(metadata=Metadata(name=space_type), spec=spec))
    return found


def _ordered(plans: Iterable[PlanT]) -> list[PlanT]:
    return sorted(plans, key=lambda plan: (plan.spec.display_order or 0, plan.metadata.name))


def _space_plan(plan: AddressSpacePlan) -> SpacePlanDescription:
    spec = plan.spec
    return SpacePlanDescription(
        name=plan.metadata.name,
        display_name=spec.display_name,
        description=_description(spec),
        resource_limits=spec.resource_limits,
        limits=spec.limits,
    )


def _address_plan(plan: AddressPlan) -> AddressPlanDescription:
    spec = plan.spec
    return AddressPlanDescription(
        name=plan.metadata.name,
        display_name=spec.display_name,
        description=_description(spec),
        resources=spec.resources,
        limits=spec.limits,
    )


def _description(spec: AddressPlanSpec | AddressSpacePlanSpec) -> str | None:
    return spec.short_description or spec.long_description
