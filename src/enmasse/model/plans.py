"""Plans: what an operator lets tenants choose from, and within which limits.

The credits of EnMasse 1.0 (``resources``, ``resourceLimits``) are kept for
display and compatibility. Limits in real units are ours.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from enmasse.model.addresses import MAX_PARTITIONS, AddressType, MessageRedelivery, MessageTtl
from enmasse.model.resource import Resource, ResourceStatus
from enmasse.model.schema import Model
from enmasse.model.spaces import SpaceType

__all__ = [
    "PLAN_NAMESPACE",
    "AddressPlan",
    "AddressPlanSpec",
    "AddressSpacePlan",
    "AddressSpacePlanSpec",
]

PLAN_NAMESPACE = "enmasse-infra"
"""Where the operator's objects live; tenants' namespaces hold spaces and addresses."""

Credits = dict[str, float]


class _Described(Model):
    """Texts that help a tenant to choose."""

    display_name: str | None = None
    display_order: int | None = None
    short_description: str | None = None
    long_description: str | None = None


class AddressSpacePlanSpec(_Described):
    """What a space with this plan may use."""

    address_space_type: SpaceType
    resource_limits: Credits
    address_plans: tuple[str, ...] = Field(strict=False)
    """The address plans that a tenant of such a space may choose."""
    infra_config_ref: str | None = None


class AddressPlanSpec(_Described):
    """What an address with this plan may use."""

    address_type: AddressType
    resources: Credits = Field(default_factory=dict)
    partitions: int = Field(default=1, ge=1, le=MAX_PARTITIONS)
    """Of a stream; of a queue: how many brokers share it."""
    retention_bytes: int | None = Field(default=None, ge=1)
    """How much of a stream is kept."""
    message_ttl: MessageTtl | None = None
    message_redelivery: MessageRedelivery | None = None


class AddressSpacePlan(Resource):
    """Limits and address plans of a space."""

    immutable: ClassVar[tuple[str, ...]] = ("addressSpaceType",)

    api_version: Literal["admin.enmasse.io/v1beta2"] = "admin.enmasse.io/v1beta2"
    kind: Literal["AddressSpacePlan"] = "AddressSpacePlan"
    spec: AddressSpacePlanSpec
    status: ResourceStatus = ResourceStatus()


class AddressPlan(Resource):
    """Limits of an address."""

    immutable: ClassVar[tuple[str, ...]] = ("addressType",)

    api_version: Literal["admin.enmasse.io/v1beta2"] = "admin.enmasse.io/v1beta2"
    kind: Literal["AddressPlan"] = "AddressPlan"
    spec: AddressPlanSpec
    status: ResourceStatus = ResourceStatus()
