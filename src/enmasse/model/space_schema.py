"""AddressSpaceSchema: what a tenant may choose from, derived from the operator's objects."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from enmasse.model.addresses import AddressType
from enmasse.model.limits import AddressLimits, SpaceLimits
from enmasse.model.resource import Data
from enmasse.model.schema import Model

__all__ = [
    "AddressPlanDescription",
    "AddressSpaceSchema",
    "AddressSpaceSchemaSpec",
    "AddressTypeDescription",
    "Named",
    "RouteServicePortDescription",
    "SpacePlanDescription",
]


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
    """What an address takes at most."""


class SpacePlanDescription(Named):
    """A plan of spaces."""

    resource_limits: dict[str, float] = Field(default_factory=dict)
    """Credits that a space has."""
    limits: SpaceLimits | None = None
    """What a space takes at most."""


class AddressTypeDescription(Named):
    """A type of addresses, and its plans."""

    name: AddressType
    plans: tuple[AddressPlanDescription, ...] = Field(default=(), strict=False)


class RouteServicePortDescription(Named):
    """A port that a route leads to."""

    route_tls_terminations: tuple[str, ...] = Field(default=(), strict=False)


class AddressSpaceSchemaSpec(Model):
    """What may be chosen for a space of this type."""

    description: str | None = None
    address_types: tuple[AddressTypeDescription, ...] = Field(default=(), strict=False)
    plans: tuple[SpacePlanDescription, ...] = Field(default=(), strict=False)
    authentication_services: tuple[str, ...] = Field(default=(), strict=False)
    certificate_provider_types: tuple[Named, ...] = Field(default=(), strict=False)
    endpoint_expose_types: tuple[Named, ...] = Field(default=(), strict=False)
    route_service_ports: tuple[RouteServicePortDescription, ...] = Field(default=(), strict=False)


class AddressSpaceSchema(Data):
    """What a tenant may choose for spaces of one type, which is the object's name."""

    is_namespaced: ClassVar[bool] = False

    api_version: Literal["enmasse.io/v1beta1"] = "enmasse.io/v1beta1"
    kind: Literal["AddressSpaceSchema"] = "AddressSpaceSchema"
    spec: AddressSpaceSchemaSpec = AddressSpaceSchemaSpec()
