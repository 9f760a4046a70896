"""IoTProject: a tenant of the device registry, and the addresses over which its devices and applications meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from enmasse.model.kinds.durations import Duration
from enmasse.model.kinds.pipelines.builtins import BUILTINS, builtin_problems
from enmasse.model.kinds.spaces import SpaceType
from enmasse.model.schema.conditions import Unapplied, set_fields
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import is_label
from enmasse.model.schema.resource import Resource, ResourceStatus
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator

ONLY_KEPT = "the device registry keeps and shows it"
_OWN: Final = ("telemetry", "events")
_APPLIED = frozenset(("enabled", "defaults", "resource_limits", "registration_limits"))


class ProvidedStrategy(Model):
    """A space that is there."""

    namespace: str | None = None
    """The namespace of the project; no other is allowed."""
    address_space_name: str
    """The name of the space."""


class ManagedSpace(Model):
    """A space that is made for the project, for its users."""

    name: str
    """Its name."""
    plan: str | None = None
    """Its plan; left out: the default of its type."""
    type: SpaceType = "standard"
    """Its type."""


class TelemetryAddress(Model):
    """The address of telemetry."""

    plan: str | None = None
    """A plan for its type; left out: the smallest."""
    type: Literal["anycast", "queue", "stream"] = "anycast"
    """`anycast` hands over and stores nothing; `queue` and `stream` store."""


class StoredAddress(Model):
    """The address of events."""

    plan: str | None = None
    """A plan for queues; left out: the smallest."""


class DirectAddress(Model):
    """The addresses of commands and of inquiries."""

    plan: str | None = None
    """A plan for addresses of type anycast; left out: the smallest."""


class ProjectAddresses(Model):
    """The addresses of a project."""

    telemetry: TelemetryAddress = TelemetryAddress()
    """`telemetry/TENANT`."""
    event: StoredAddress = StoredAddress()
    """`event/TENANT`, a queue."""
    command: DirectAddress = DirectAddress()
    """`command/TENANT` and `inquiry/TENANT`; `command_response/TENANT` is a topic."""


class ManagedStrategy(Model):
    """A space and addresses that are made for the project, as it says."""

    address_space: ManagedSpace
    """The space. It stays when the project goes: others may use it."""
    addresses: ProjectAddresses = ProjectAddresses()
    """The addresses."""


class ProjectPipeline(Model):
    """A pipeline over what the devices of a project send."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: Literal["telemetry", "events", "lake", "last-value", "windows", "anomalies", "heartbeat"]
    """`telemetry` and `events` keep messages as rows of a table with the columns `device`, `tenant`, `time`,
    `adapter`, `gateway`, `content_type`, `payload` and `properties`; the others are built in, over telemetry.
    Events are taken from their queue: applications do not receive them. All others need telemetry to be a stream."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Those of the built-in pipeline but `address`; of `telemetry` and `events` the `table`. Tables that are not
    named are called after the project, as `NAME_telemetry`."""

    trigger: Duration | None = None
    """The time between two looks for more; left out: as pipelines do."""


class DownstreamStrategy(Model):
    """The space that the project uses: one of the two."""

    provided_strategy: ProvidedStrategy | None = None
    """A space that is there."""
    managed_strategy: ManagedStrategy | None = None
    """A space that is made."""
    external_strategy: dict[str, Any] | None = None
    """A messaging service elsewhere, as EnMasse 1.0 allowed; refused, with what to do."""


class ProjectLimits(Model):
    """The limits of what the devices use."""

    maximum_connections: int | None = Field(default=None, ge=0)
    """Connections at a time."""
    maximum_time_to_live: int | None = Field(default=None, ge=0)
    """Seconds that an event may wait."""


class ProjectRegistration(Model):
    """The limits of what is registered."""

    maximum_devices: int | None = Field(default=None, ge=0)
    """Devices."""
    maximum_credentials_per_device: int | None = Field(default=None, ge=0)
    """Credentials of each device."""


class ProjectConfiguration(Model):
    """The tenant in the device registry."""

    enabled: bool | None = None
    """True if its devices may come in."""
    minimum_message_size: int | None = Field(default=None, ge=0, le=2**31)
    """Bytes that a message counts at least."""
    registration_limits: ProjectRegistration | None = None
    """The limits of what is registered."""
    resource_limits: ProjectLimits | None = None
    """The limits of what the devices use."""
    defaults: dict[str, Any] | None = None
    """Properties of messages that say nothing else."""
    ext: dict[str, Any] | None = None
    """Anything else."""

    def to_tenant(self) -> dict[str, Any]:
        """Return the tenant as the device registry takes it."""
        limits, registration = self.resource_limits, self.registration_limits
        found: dict[str, Any] = {
            "enabled": self.enabled,
            "minimum-message-size": self.minimum_message_size,
            "defaults": self.defaults,
            "ext": self.ext,
        }
        if limits is not None:
            found["resource-limits"] = _set(
                {"max-connections": limits.maximum_connections, "max-ttl": limits.maximum_time_to_live}
            )
        if registration is not None:
            found["registration-limits"] = _set(
                {
                    "max-devices": registration.maximum_devices,
                    "max-credentials-per-device": registration.maximum_credentials_per_device,
                }
            )
        return _set(found)


def _set(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


class IoTProjectSpec(Model):
    """The space and the tenant of a project."""

    downstream_strategy: DownstreamStrategy
    """The space that it uses."""
    anonymous: bool = False
    """True if clients that have not logged in may use its addresses, where its space is open to everybody. A space
    that is made for the project is open then, too; else it is for its users."""
    configuration: ProjectConfiguration | None = None
    """The tenant in the device registry; left out: the registry's own API says it."""
    pipelines: tuple[ProjectPipeline, ...] = Field(default=(), strict=False)
    """Pipelines over what the devices send, on Spark; no two of the same name."""
    credentials_secret: str | None = None
    """A Secret with the user of the space as whom its pipelines run, as a Pipeline names one; needed where the space
    is for its users."""


class IoTProjectStatus(ResourceStatus):
    """The state of a project, as its controller found it."""

    tenant: str | None = None
    """The id of its tenant: `NAMESPACE.NAME`."""


class IoTProject(Resource):
    """A tenant of the device registry, with addresses in a space."""

    api_version: Literal["iot.enmasse.io/v1alpha1"] = "iot.enmasse.io/v1alpha1"
    kind: Literal["IoTProject"] = "IoTProject"
    spec: IoTProjectSpec
    status: IoTProjectStatus = IoTProjectStatus()

    @property
    def tenant(self) -> str:
        """The id of its tenant."""
        return f"{self.metadata.namespace}.{self.metadata.name}"

    @property
    def space(self) -> str:
        """The name of the space that it uses."""
        strategy = self.spec.downstream_strategy
        if strategy.managed_strategy is not None:
            return strategy.managed_strategy.address_space.name
        return strategy.provided_strategy.address_space_name if strategy.provided_strategy is not None else ""

    @property
    def space_namespace(self) -> str:
        """The namespace of that space."""
        provided = self.spec.downstream_strategy.provided_strategy
        return (provided.namespace if provided is not None else None) or self.metadata.namespace

    @property
    def addresses(self) -> ProjectAddresses:
        """The addresses that it asks for."""
        managed = self.spec.downstream_strategy.managed_strategy
        return ProjectAddresses() if managed is None else managed.addresses

    def parameters_of(self, pipeline: ProjectPipeline) -> dict[str, Any]:
        """Return the parameters of a pipeline: as they are given, with the project's address and table."""
        found: dict[str, Any] = dict(pipeline.parameters)
        if pipeline.name in BUILTINS:
            found["address"] = f"telemetry/{self.tenant}"
        goes = {"table"} if pipeline.name in ("lake", *_OWN) else {"table", "to", "alerts"}
        if not goes & set(found):
            ending = "raw" if pipeline.name == "lake" else pipeline.name.replace("-", "_")
            found["table"] = f"{self.metadata.name.replace('-', '_')}_{ending}"
        return found

    def name_problem(self, name: str) -> str | None:
        """Return what is wrong with a name."""
        if is_label(name):
            return None
        return (
            "the name of a project is a single word of lower-case letters, digits and '-', at most 63 characters, "
            f"because a tenant's id contains it; got {describe_value(name)}"
        )

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        strategy = self.spec.downstream_strategy
        if strategy.external_strategy is not None:
            yield Problem(
                "spec.downstreamStrategy.externalStrategy",
                "what devices send goes to a space of this installation: name one by providedStrategy or "
                "managedStrategy, and pass on from there by spec.connectors of the space",
            )
        elif (strategy.provided_strategy is None) == (strategy.managed_strategy is None):
            yield Problem("spec.downstreamStrategy", "expected one of providedStrategy and managedStrategy")
        elif not is_label(self.space):
            yield Problem("spec.downstreamStrategy", f"{describe_value(self.space)} is no name of a space")
        if self.space_namespace != self.metadata.namespace:
            path = "spec.downstreamStrategy.providedStrategy.namespace"
            yield Problem(path, "the space has to lie in the namespace of the project")
        yield from self._pipeline_problems()

    def _pipeline_problems(self) -> Iterator[Problem]:
        names = [pipeline.name for pipeline in self.spec.pipelines]
        if set(names) - {"events"} and self.addresses.telemetry.type != "stream":
            path = "spec.downstreamStrategy.managedStrategy.addresses.telemetry.type"
            yield Problem(path, "expected stream, as pipelines read what is kept")
        for at, pipeline in enumerate(self.spec.pipelines):
            path = f"spec.pipelines[{at}]"
            if pipeline.name in names[:at]:
                yield Problem(f"{path}.name", f"{pipeline.name} is there already")
            if pipeline.name in _OWN:
                if set(pipeline.parameters) - {"table"}:
                    yield Problem(f"{path}.parameters", "expected table, and nothing else")
                continue
            if "address" in pipeline.parameters:
                yield Problem(f"{path}.parameters.address", "it is that of the project's telemetry: leave it out")
                continue
            for problem in builtin_problems(pipeline.name, self.parameters_of(pipeline)):
                yield Problem(f"{path}.parameters.{problem.path}".rstrip("."), problem.message)

    def unapplied(self) -> Iterator[Unapplied]:
        """Yield each field that is kept and shown, but changes nothing."""
        for field, _ in set_fields(self.spec.configuration):
            if field not in _APPLIED:
                name = ProjectConfiguration.model_fields[field].alias
                yield Unapplied(f"spec.configuration.{name}", ONLY_KEPT)
