"""Infrastructure configurations: what an operator says about the machinery behind spaces of one type.

The fields are EnMasse 1.0's. A space plan names one of them in ``infraConfigRef``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from enmasse.model.errors import Problem
from enmasse.model.quantities import NumberOrShare, Quantity
from enmasse.model.resource import Resource, ResourceStatus
from enmasse.model.schema import Model
from enmasse.model.spaces import NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "BrokerInfra",
    "BrokeredInfraConfig",
    "BrokeredInfraConfigSpec",
    "RouterInfra",
    "RouterPolicy",
    "StandardInfraConfig",
    "StandardInfraConfigSpec",
]

AddressFullPolicy = Literal["PAGE", "BLOCK", "FAIL", "DROP"]


class ComputeResources(Model):
    """What a process may use."""

    cpu: Quantity | None = None
    """Cores: `500m`, `2`."""
    memory: Quantity | None = None
    """Bytes: `512Mi`."""


class StorageResources(ComputeResources):
    """What a process that stores may use."""

    storage: Quantity | None = None
    """Bytes on disk: `2Gi`."""


class AdminInfra(Model):
    """The process that configures brokers and routers."""

    resources: ComputeResources | None = None
    pod_template: dict[str, Any] | None = None
    """Merged into the template of its pods."""


class BrokeredBrokerInfra(Model):
    """The broker of a brokered space."""

    address_full_policy: AddressFullPolicy | None = None
    """What happens when an address is full."""
    global_max_size: Quantity | None = None
    """Bytes that messages take in memory before that."""
    min_large_message_size: int | None = Field(default=None, ge=-1)
    """Bytes from which on a message is written to disk as it comes; -1: never."""
    max_unavailable: NumberOrShare | None = None
    """How many may be down for maintenance."""
    min_available: NumberOrShare | None = None
    """How many must stay up in maintenance."""
    resources: StorageResources | None = None
    storage_class_name: str | None = None
    update_persistent_volume_claim: bool | None = None
    """Whether a change of storage is applied to what exists."""
    treat_reject_as_unmodified_delivery_failed: bool | None = None
    use_modified_for_transient_delivery_errors: bool | None = None
    java_opts: str | None = None
    pod_template: dict[str, Any] | None = None
    """Merged into the template of its pods."""


class BrokerInfra(BrokeredBrokerInfra):
    """The brokers of a standard space."""

    connector_idle_timeout: int | None = Field(default=None, ge=0)
    """Milliseconds."""
    connector_worker_threads: int | None = Field(default=None, ge=1)


class RouterPolicy(Model):
    """What one client may use of a router."""

    max_connections: int | None = Field(default=None, ge=1)
    max_connections_per_host: int | None = Field(default=None, ge=1)
    max_connections_per_user: int | None = Field(default=None, ge=1)
    max_sessions_per_connection: int | None = Field(default=None, ge=1)
    max_senders_per_connection: int | None = Field(default=None, ge=1)
    max_receivers_per_connection: int | None = Field(default=None, ge=1)
    max_message_size: int | None = Field(default=None, ge=1)
    """Bytes."""


class RouterInfra(Model):
    """The routers of a standard space."""

    min_replicas: int | None = Field(default=None, ge=0)
    link_capacity: int | None = Field(default=None, ge=1)
    """Messages that a sender may have under way."""
    idle_timeout: int | None = Field(default=None, ge=0)
    """Seconds of silence after which a connection is closed."""
    initial_handshake_timeout: int | None = Field(default=None, ge=0)
    """Seconds that a client may take to log in."""
    worker_threads: int | None = Field(default=None, ge=1)
    max_unavailable: NumberOrShare | None = None
    """How many may be down for maintenance."""
    min_available: NumberOrShare | None = None
    """How many must stay up in maintenance."""
    resources: ComputeResources | None = None
    policy: RouterPolicy | None = None
    pod_template: dict[str, Any] | None = None
    """Merged into the template of its pods."""


class BrokeredInfraConfigSpec(Model):
    """What runs for a brokered space."""

    version: str | None = None
    """The version of EnMasse that it was made for."""
    admin: AdminInfra | None = None
    broker: BrokeredBrokerInfra | None = None
    network_policy: NetworkPolicy | None = None


class StandardInfraConfigSpec(Model):
    """What runs for a standard space."""

    version: str | None = None
    """The version of EnMasse that it was made for."""
    admin: AdminInfra | None = None
    broker: BrokerInfra | None = None
    router: RouterInfra | None = None
    network_policy: NetworkPolicy | None = None
    global_dlq: bool | None = Field(default=None, alias="globalDLQ")
    """Whether rejected messages of all queues go to one address."""


class StandardInfraConfig(Resource):
    """The machinery behind standard spaces."""

    api_version: Literal["admin.enmasse.io/v1beta1"] = "admin.enmasse.io/v1beta1"
    kind: Literal["StandardInfraConfig"] = "StandardInfraConfig"
    spec: StandardInfraConfigSpec = StandardInfraConfigSpec()
    status: ResourceStatus = ResourceStatus()

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        yield from _budget_problems("spec.broker", self.spec.broker)
        yield from _budget_problems("spec.router", self.spec.router)

    def unapplied(self) -> Iterator[str]:
        """Yield a sentence for each part that is kept and shown, but changes nothing yet."""
        yield from _kept(self.metadata.name, self.spec)


class BrokeredInfraConfig(Resource):
    """The machinery behind brokered spaces."""

    api_version: Literal["admin.enmasse.io/v1beta1"] = "admin.enmasse.io/v1beta1"
    kind: Literal["BrokeredInfraConfig"] = "BrokeredInfraConfig"
    spec: BrokeredInfraConfigSpec = BrokeredInfraConfigSpec()
    status: ResourceStatus = ResourceStatus()

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        yield from _budget_problems("spec.broker", self.spec.broker)

    def unapplied(self) -> Iterator[str]:
        """Yield a sentence for each part that is kept and shown, but changes nothing yet."""
        yield from _kept(self.metadata.name, self.spec)


def _budget_problems(path: str, part: BrokeredBrokerInfra | RouterInfra | None) -> Iterator[Problem]:
    if part is not None and part.max_unavailable is not None and part.min_available is not None:
        yield Problem(path, "expected maxUnavailable or minAvailable, got both")


def _kept(name: str, spec: BrokeredInfraConfigSpec | StandardInfraConfigSpec) -> Iterator[str]:
    for field, info in type(spec).model_fields.items():
        if field != "version" and getattr(spec, field) is not None:
            yield f"{name}: spec.{info.alias} is kept, but has no effect in this version"
