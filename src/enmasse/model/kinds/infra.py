"""Infrastructure configurations: an operator's settings for the machinery behind spaces of one type.

The fields are EnMasse 1.0's. A space plan names one of them in ``infraConfigRef``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from enmasse.model.kinds.spaces import NetworkPolicy
from enmasse.model.schema.conditions import Unapplied, set_fields
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.quantities import BrokerSize, NumberOrShare, Quantity
from enmasse.model.schema.resource import Resource, ResourceStatus
from enmasse.model.schema.schema import Model

if TYPE_CHECKING:
    from collections.abc import Iterator


AddressFullPolicy = Literal["PAGE", "BLOCK", "FAIL", "DROP"]


class ComputeResources(Model):
    """The resources that a process may use."""

    cpu: Quantity | None = None
    """Cores: `500m`, `2`."""
    memory: Quantity | None = None
    """Bytes: `512Mi`."""


class StorageResources(ComputeResources):
    """The resources that a process that stores may use."""

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
    """The policy of a full address that says nothing itself: `PAGE` and `BLOCK` grant no credit, `FAIL` rejects,
    `DROP` drops its oldest messages."""
    global_max_size: BrokerSize | None = None
    """Bytes that messages take in memory before that: `512Mi`, or `64Mb` as brokers write it."""
    min_large_message_size: int | None = Field(default=None, ge=-1)
    """Bytes from which on a message is written to disk as it comes; -1: never."""
    max_unavailable: NumberOrShare | None = None
    """The most brokers that may be down for maintenance."""
    min_available: NumberOrShare | None = None
    """The fewest brokers that must stay up in maintenance."""
    resources: StorageResources | None = None
    storage_class_name: str | None = None
    update_persistent_volume_claim: bool | None = None
    """True if a change of storage is applied to what exists."""
    treat_reject_as_unmodified_delivery_failed: bool | None = None
    """True if a rejected message is a failed attempt; false: it is a dead letter at once."""
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
    """Limits of one client of a router."""

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
    handshake_timeout: int | None = Field(default=None, ge=0)
    """The same, as EnMasse 1.0 calls it, too."""
    worker_threads: int | None = Field(default=None, ge=1)
    max_unavailable: NumberOrShare | None = None
    """The most routers that may be down for maintenance."""
    min_available: NumberOrShare | None = None
    """The fewest routers that must stay up in maintenance."""
    resources: ComputeResources | None = None
    policy: RouterPolicy | None = None
    pod_template: dict[str, Any] | None = None
    """Merged into the template of its pods."""


class BrokeredInfraConfigSpec(Model):
    """The machinery of a brokered space."""

    version: str | None = None
    """The version of EnMasse that it was made for."""
    admin: AdminInfra | None = None
    broker: BrokeredBrokerInfra | None = None
    network_policy: NetworkPolicy | None = None


class StandardInfraConfigSpec(Model):
    """The machinery of a standard space."""

    version: str | None = None
    """The version of EnMasse that it was made for."""
    admin: AdminInfra | None = None
    broker: BrokerInfra | None = None
    router: RouterInfra | None = None
    network_policy: NetworkPolicy | None = None
    global_dlq: bool | None = Field(default=None, alias="globalDLQ")
    """True if rejected messages of all queues go to one address."""


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

    def unapplied(self) -> Iterator[Unapplied]:
        """Yield each field that is kept and shown, but changes nothing."""
        yield from _unapplied(self.spec)


class BrokeredInfraConfig(Resource):
    """The machinery behind brokered spaces."""

    api_version: Literal["admin.enmasse.io/v1beta1"] = "admin.enmasse.io/v1beta1"
    kind: Literal["BrokeredInfraConfig"] = "BrokeredInfraConfig"
    spec: BrokeredInfraConfigSpec = BrokeredInfraConfigSpec()
    status: ResourceStatus = ResourceStatus()

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        yield from _budget_problems("spec.broker", self.spec.broker)

    def unapplied(self) -> Iterator[Unapplied]:
        """Yield each field that is kept and shown, but changes nothing."""
        yield from _unapplied(self.spec)


InfraConfig = StandardInfraConfig | BrokeredInfraConfig


def _budget_problems(path: str, part: BrokeredBrokerInfra | RouterInfra | None) -> Iterator[Problem]:
    if part is not None and part.max_unavailable is not None and part.min_available is not None:
        yield Problem(path, "expected maxUnavailable or minAvailable, got both")


_APPLIED = frozenset({"address_full_policy", "treat_reject_as_unmodified_delivery_failed"})
"""The fields of a broker that addresses of its spaces follow."""

_NO_CLUSTER = "it is about programs that EnMasse 1.0 ran in a cluster; this service is one program"
_UNRESTRICTED = "the service has no firewall; restrict who may connect where its machine or network has one"
_PLAN_LIMITS = "limits are given in spec.limits of an AddressSpacePlan"


def _unapplied(spec: BrokeredInfraConfigSpec | StandardInfraConfigSpec) -> Iterator[Unapplied]:
    for field, part in set_fields(spec):
        path = f"spec.{type(spec).model_fields[field].alias}"
        if field == "network_policy":
            yield Unapplied(path, _UNRESTRICTED, is_needed=True)
        elif field in ("broker", "router"):
            for inner, _ in set_fields(part):
                if inner not in _APPLIED:
                    why = _PLAN_LIMITS if inner == "policy" else _NO_CLUSTER
                    yield Unapplied(f"{path}.{type(part).model_fields[inner].alias}", why)
        elif field == "global_dlq":
            yield Unapplied(path, "rejected messages go where deadletter of each address says")
        elif field != "version":
            yield Unapplied(path, _NO_CLUSTER)
