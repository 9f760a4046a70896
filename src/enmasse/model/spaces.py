"""AddressSpace: a tenant's group of addresses, reachable over one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from enmasse.model.errors import Problem
from enmasse.model.limits import SpaceLimits
from enmasse.model.names import is_label
from enmasse.model.resource import Resource, ResourceStatus
from enmasse.model.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "NO_AUTHENTICATION",
    "AddressSpace",
    "AddressSpaceSpec",
    "AddressSpaceStatus",
    "AuthenticationServiceReference",
    "ConnectorStatus",
    "Endpoint",
    "EndpointStatus",
    "RouterStatus",
    "SpaceType",
]

SpaceType = Literal["standard", "brokered"]

NO_AUTHENTICATION: Final = "none"
"""The authentication service that lets everyone in."""

_DEFAULT_PLANS: dict[SpaceType, str] = {
    "standard": "standard-small",
    "brokered": "brokered-single-broker",
}


class SecretReference(Model):
    """The name of a secret in the space's namespace."""

    name: str


class AuthenticationOverrides(Model):
    """What a space changes of an external authentication service."""

    host: str | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    realm: str | None = None
    ca_cert_secret: SecretReference | None = None


class AuthenticationServiceReference(Model):
    """Which service knows the users of a space."""

    name: str | None = None
    type: Literal["none", "standard", "external"] | None = None
    overrides: AuthenticationOverrides | None = None

    @property
    def is_none(self) -> bool:
        """Whether this is the service that lets everyone in."""
        return self.kind == NO_AUTHENTICATION

    @property
    def kind(self) -> Literal["none", "standard"] | None:
        """What the service does: let everyone in, or only the space's users; None for one that does not exist."""
        if self.name in {None, NO_AUTHENTICATION, "none-authservice"} and self.type in {None, NO_AUTHENTICATION}:
            return NO_AUTHENTICATION
        if self.name in {None, "standard", "standard-authservice"} and self.type in {None, "standard"}:
            return "standard"
        return None


class Certificate(Model):
    """Where an endpoint's certificate comes from."""

    provider: Literal["selfsigned", "wildcard", "certBundle", "openshift"] = "selfsigned"
    secret_name: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = Field(default=None, repr=False)


class Exposure(Model):
    """How an endpoint is reached from outside a cluster."""

    type: Literal["route", "loadbalancer"]
    annotations: dict[str, str] = Field(default_factory=dict)
    route_host: str | None = None
    route_service_port: Literal["amqps", "https"] | None = None
    route_tls_termination: Literal["passthrough", "reencrypt"] | None = None
    load_balancer_ports: tuple[str, ...] = Field(default=(), strict=False)
    load_balancer_source_ranges: tuple[str, ...] = Field(default=(), strict=False)


class Export(Model):
    """An object into which the facts an application needs for connecting are written."""

    kind: Literal["ConfigMap", "Secret", "Service"]
    name: str


class Endpoint(Model):
    """A door of a space, with a certificate and a way from outside."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    service: Literal["messaging"]
    cert: Certificate | None = None
    expose: Exposure | None = None
    exports: tuple[Export, ...] = Field(default=(), strict=False)


class HostPort(Model):
    """A server of another messaging service."""

    host: str
    port: int | None = Field(default=None, ge=1, le=65535)


class SecretKey(Model):
    """One entry of a secret."""

    name: str
    key: str | None = None


class ValueOrSecret(Model):
    """A value given here, or the place in a secret where it lies."""

    value: str | None = Field(default=None, repr=False)
    value_from_secret: SecretKey | None = None


class ConnectorTls(Model):
    """Certificates towards another messaging service."""

    ca_cert: ValueOrSecret | None = None
    client_cert: ValueOrSecret | None = None
    client_key: ValueOrSecret | None = None


class ConnectorCredentials(Model):
    """User and password at another messaging service."""

    username: ValueOrSecret
    password: ValueOrSecret


class ConnectorAddress(Model):
    """A pattern of addresses that another messaging service serves."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    pattern: str


class Connector(Model):
    """A connection to another messaging service."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str = Field(pattern=r"^[a-zA-Z0-9]+$")
    endpoint_hosts: tuple[HostPort, ...] = Field(strict=False, min_length=1)
    role: Literal["route-container", "normal", "edge"] = "route-container"
    idle_timeout: int | None = Field(default=None, ge=0)
    max_frame_size: int | None = Field(default=None, ge=512)
    tls: ConnectorTls | None = None
    credentials: ConnectorCredentials | None = None
    addresses: tuple[ConnectorAddress, ...] = Field(default=(), strict=False)


class NetworkPolicy(Model):
    """Kubernetes network policy rules that are merged into the space's own."""

    ingress: tuple[dict[str, Any], ...] = Field(default=(), strict=False)
    egress: tuple[dict[str, Any], ...] = Field(default=(), strict=False)


class AddressSpaceSpec(Model):
    """What a tenant asks of a space."""

    type: SpaceType = "standard"
    plan: str | None = None
    """A plan of the space's type; None: the smallest."""
    authentication_service: AuthenticationServiceReference = AuthenticationServiceReference(type=NO_AUTHENTICATION)
    endpoints: tuple[Endpoint, ...] = Field(default=(), strict=False)
    connectors: tuple[Connector, ...] = Field(default=(), strict=False)
    network_policy: NetworkPolicy | None = None
    limits: SpaceLimits | None = None

    @property
    def plan_name(self) -> str:
        """The plan in effect."""
        return self.plan or _DEFAULT_PLANS[self.type]


class EndpointStatus(Model):
    """Where an endpoint is reached."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    service_host: str | None = None
    """The host name within the installation."""
    service_ports: dict[str, int] = Field(default_factory=dict)
    """Ports there, by the name of what they speak."""
    external_host: str | None = None
    """The host name from outside."""
    external_ports: dict[str, int] = Field(default_factory=dict)
    """Ports there, by the name of what they speak."""
    cert: str | None = None
    """Its certificate, PEM."""


class ConnectorStatus(Model):
    """Whether a connector works."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    is_ready: bool = False
    messages: tuple[str, ...] = Field(default=(), strict=False)


class RouterStatus(Model):
    """A node of the space and whom it is connected to."""

    entry_keys: ClassVar[tuple[str, ...]] = ("id",)

    id: str
    neighbors: tuple[str, ...] = Field(default=(), strict=False)
    undelivered: int | None = None


class AddressSpaceStatus(ResourceStatus):
    """What the controller found about a space."""

    ca_cert: str | None = None
    """Certificates of the authorities that vouch for the endpoints, PEM."""
    endpoint_statuses: tuple[EndpointStatus, ...] = Field(default=(), strict=False)
    """Where it is reached."""
    connectors: tuple[ConnectorStatus, ...] = Field(default=(), strict=False)
    """How its connectors are."""
    routers: tuple[RouterStatus, ...] = Field(default=(), strict=False)
    """How its nodes are."""
    limits: SpaceLimits | None = None
    """In effect: the least of what space and plan say."""


class AddressSpace(Resource):
    """A tenant's group of addresses, reachable over one connection."""

    immutable: ClassVar[tuple[str, ...]] = ("type",)

    api_version: Literal["enmasse.io/v1beta1"] = "enmasse.io/v1beta1"
    kind: Literal["AddressSpace"] = "AddressSpace"
    spec: AddressSpaceSpec = AddressSpaceSpec()
    status: AddressSpaceStatus = AddressSpaceStatus()

    def name_problem(self, name: str) -> str | None:
        """Return what is wrong with a name."""
        if is_label(name):
            return None
        return (
            "the name of a space is a single word of lower-case letters, digits and '-', at most "
            f"63 characters, because host names contain it; got {describe_value(name)}"
        )

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        yield from _repeated("spec.endpoints", [item.name for item in self.spec.endpoints])
        yield from _repeated("spec.connectors", [item.name for item in self.spec.connectors])

    def unapplied(self) -> Iterator[str]:
        """Yield a sentence for each field that is kept and shown, but changes nothing yet."""
        for field in ("endpoints", "connectors", "network_policy"):
            if getattr(self.spec, field):
                name = AddressSpaceSpec.model_fields[field].alias
                yield f"{self.metadata.name}: spec.{name} is kept, but has no effect in this version"


def _repeated(path: str, names: list[str]) -> Iterator[Problem]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Problem(f"{path}[{index}].name", f"expected a name used once, but '{name}' occurs before")
