"""AddressSpace: a tenant's group of addresses, reachable over one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from enmasse.model.kinds.connectors import Connector, connector_problems, repeated
from enmasse.model.kinds.lakes import Lake, lake_problems
from enmasse.model.kinds.limits import SpaceLimits
from enmasse.model.schema.conditions import Unapplied
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.kinds import DEFAULT_SPACE_PLANS, PLANS_WITH_MQTT
from enmasse.model.schema.names import host_problem, is_label
from enmasse.model.schema.resource import Resource, ResourceStatus
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator


SpaceType = Literal["standard", "brokered"]

NO_AUTHENTICATION: Final = "none"
"""The authentication service that admits everyone."""


class SecretReference(Model):
    """The name of a secret in the space's namespace."""

    name: str
    """The name of the secret."""


class AuthenticationOverrides(Model):
    """Settings of an external authentication service that a space overrides."""

    host: str | None = None
    """The host of the service."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """Its port."""
    realm: str | None = None
    """The realm that knows the users of the space."""
    ca_cert_secret: SecretReference | None = None
    """The authority to trust: entry `ca.crt`."""


class AuthenticationServiceReference(Model):
    """The service that knows the users of a space."""

    name: str | None = None
    """An AuthenticationService."""
    type: Literal["none", "standard", "external"] | None = None
    """Instead of a name: the first service of this type."""
    overrides: AuthenticationOverrides | None = None
    """The overrides of an external service that allows them."""

    @property
    def is_none(self) -> bool:
        """True for the service that admits everyone."""
        return self.kind == NO_AUTHENTICATION

    @property
    def kind(self) -> Literal["none", "standard"] | None:
        """The type of the service: it admits everyone, or only the space's users; None if it does not exist."""
        if self.name in {None, NO_AUTHENTICATION, "none-authservice"} and self.type in {None, NO_AUTHENTICATION}:
            return NO_AUTHENTICATION
        if self.name in {None, "standard", "standard-authservice"} and self.type in {None, "standard"}:
            return "standard"
        return None


class Certificate(Model):
    """The origin of an endpoint's certificate."""

    provider: Literal["selfsigned", "wildcard", "certBundle", "openshift"] = "selfsigned"
    """`selfsigned`: issued by the installation; `certBundle`: your own; `wildcard`: the operator's."""
    secret_name: str | None = None
    """The secret that holds it."""
    tls_cert: str | None = None
    """The certificate of a certBundle in PEM, in base64."""
    tls_key: str | None = Field(default=None, repr=False)
    """The key of a certBundle in PEM, in base64."""


class Exposure(Model):
    """The way to an endpoint from outside a cluster."""

    type: Literal["route", "loadbalancer"]
    """A host name on a shared port, or ports of its own."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Of the object that exposes it."""
    route_host: str | None = None
    """One more host name, of a domain that an operator granted to the namespace; left out: one is made."""
    route_service_port: Literal["amqps", "https"] | None = None
    """The port that the route leads to."""
    route_tls_termination: Literal["passthrough", "reencrypt"] | None = None
    """The side that ends TLS."""
    load_balancer_ports: tuple[str, ...] = Field(default=(), strict=False)
    """The ports that are reached from outside: `amqp`, `amqps`, `amqp-wss`."""
    load_balancer_source_ranges: tuple[str, ...] = Field(default=(), strict=False)
    """From where."""


class Export(Model):
    """An object into which the facts an application needs for connecting are written."""

    kind: Literal["ConfigMap", "Secret", "Service"]
    """The kind of the object that is written."""
    name: str
    """Its name, in the namespace of the space."""


class Endpoint(Model):
    """An access point of a space, with a certificate and a way from outside."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    """Told apart by it."""
    service: Literal["messaging", "mqtt", "console"]
    """The service that is reached: messaging in any protocol, MQTT too, by each but `console`, which changes nothing:
    the console is at the address of the API."""
    cert: Certificate | None = None
    expose: Exposure | None = None
    exports: tuple[Export, ...] = Field(default=(), strict=False)
    """The objects to which the facts for connecting are written."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """A port of the space's own, where clients need not name it; one of those that its plan offers."""


class NetworkPolicy(Model):
    """Kubernetes network policy rules that are merged into the space's own."""

    ingress: tuple[dict[str, Any], ...] = Field(default=(), strict=False)
    """The peers that may connect."""
    egress: tuple[dict[str, Any], ...] = Field(default=(), strict=False)
    """The peers that may be connected to."""


class MqttOptions(Model):
    """The behaviour towards clients of MQTT."""

    undeliverable: Literal["disconnect", "acknowledge"] | None = None
    """The answer to a client of MQTT 3.1.1 that publishes with QoS 1 or 2 to a name that leads nowhere or that it may
    not use, as the protocol has no error for it: it is disconnected, or the message is acknowledged, dropped and
    counted. Left out: `disconnect`.
    """
    overlapping: Literal["once", "each"] | None = None
    """The copies that a client has of a message that several of its filters match: one, with the highest QoS and
    the identifiers of all, or a copy for each of them. Of sessions that begin from then on. Left out: `once`.
    """
    dollar_names: bool | None = None
    """True if clients may use names that begin with `$`, such as `$aws/...`, below the topic `#`; those of the
    service itself, such as `$SYS` and `$share`, are never among them. Left out: no.
    """
    maximum_packet_size: int | None = Field(default=None, ge=1_024, le=16 << 20)
    """The bytes of the largest packet that a client may send, 1,024 at least; clients of version 5 are told. Left
    out: 16 MiB and a bit."""
    receive_maximum: int | None = Field(default=None, ge=1, le=1_000)
    """The messages of QoS 1 and 2 that a client may send without their answers; clients of version 5 are told, others
    are not read while they have as many. Left out: 1,000."""
    keep_alive: int | None = Field(default=None, ge=1, le=65_535)
    """The seconds of the longest keep-alive, which clients of version 5 are told that ask for a longer one, or for
    none. Left out: 3,600."""
    inflight: int | None = Field(default=None, ge=1, le=1_000)
    """The messages of QoS 1 and 2 that a client is sent without its answers, if it takes as many. Left out: 1,000."""


class HttpOptions(Model):
    """The behaviour towards clients of HTTP, devices among them."""

    query_properties: bool | None = None
    """True if a message that is sent has what its request's query says as application properties, texts, but for the
    parameters that its path knows: for senders whose query cannot be left out, as ChirpStack's `?event=up`. Left out:
    such a parameter is a mistake, and nothing where devices send.
    """


class SparkOptions(Model):
    """Spark's UI and event log of the sessions that run a space's pipelines."""

    ui: bool | None = None
    """True if Spark's UI can be opened from each pipeline, with the right `pipelines/ui`; left out: no."""
    event_log: bool | None = None
    """True if sessions write Spark's event log, for its history server; left out: no."""


class AddressSpaceSpec(Model):
    """The declaration of a space by its tenant."""

    type: SpaceType = "standard"
    """`standard`: all types of addresses; `brokered`: queues and topics on one node in strict order."""
    plan: str | None = None
    """A plan of the space's type; left out: the smallest. `standard-small-with-mqtt` and the like of EnMasse 1.0 are
    the plans without that ending."""
    authentication_service: AuthenticationServiceReference = AuthenticationServiceReference(type=NO_AUTHENTICATION)
    """The service that knows its users."""
    endpoints: tuple[Endpoint, ...] = Field(default=(), strict=False)
    """Its access points."""
    connectors: tuple[Connector, ...] = Field(default=(), strict=False)
    """Connections to other messaging services."""
    network_policy: NetworkPolicy | None = None
    """The peers that may connect to it in a cluster."""
    limits: SpaceLimits | None = None
    """The limits of the space; a plan may say less."""
    mqtt: MqttOptions | None = None
    """The behaviour towards clients of MQTT."""
    http: HttpOptions | None = None
    """The behaviour towards clients of HTTP, devices among them."""
    lake: Lake | None = None
    """The place of the tables of its pipelines; left out: a folder of the installation."""
    spark: SparkOptions | None = None
    """The settings of its pipelines' Spark sessions: what is kept and shown. A change starts them again."""

    @property
    def plan_name(self) -> str:
        """The plan in effect."""
        plan = self.plan or DEFAULT_SPACE_PLANS[self.type]
        return PLANS_WITH_MQTT.get(plan, plan)

    @property
    def served_endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints that are served: all but those of the console of EnMasse 1.0."""
        return tuple(endpoint for endpoint in self.endpoints if endpoint.service != "console")


class EndpointStatus(Model):
    """The hosts and ports of an endpoint."""

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
    """The state of a connector."""

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
    """The state of a space, as its controller found it."""

    ca_cert: str | None = None
    """Certificates of the authorities that vouch for the endpoints, PEM."""
    endpoint_statuses: tuple[EndpointStatus, ...] = Field(default=(), strict=False)
    """The hosts and ports of its endpoints."""
    connectors: tuple[ConnectorStatus, ...] = Field(default=(), strict=False)
    """The state of its connectors."""
    routers: tuple[RouterStatus, ...] = Field(default=(), strict=False)
    """The state of its nodes."""
    limits: SpaceLimits | None = None
    """The limits in effect: the least of what space and plan say."""
    home: str | None = None
    """The node that has its addresses and all that they store; chosen once, by the control process alone."""
    home_generation: int | None = None
    """The number of nodes that have been its home, this one included."""


class AddressSpace(Resource):
    """A tenant's group of addresses, reachable over one connection."""

    immutable: ClassVar[tuple[str, ...]] = ("type", "lake")

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
        yield from repeated("spec.endpoints", [item.name for item in self.spec.endpoints])
        ported = [index for index, item in enumerate(self.spec.endpoints) if item.port is not None]
        for index in ported[1:]:
            yield Problem(
                f"spec.endpoints[{index}].port", "a space has one port of its own, and another endpoint has it"
            )
        for index, item in enumerate(self.spec.endpoints):
            host = item.expose.route_host if item.expose is not None else None
            if host and (problem := host_problem(host)):
                yield Problem(f"spec.endpoints[{index}].expose.routeHost", problem)
        if self.spec.lake is not None:
            yield from lake_problems("spec.lake", self.spec.lake)
        yield from repeated("spec.connectors", [item.name for item in self.spec.connectors])
        for index, connector in enumerate(self.spec.connectors):
            yield from connector_problems(f"spec.connectors[{index}]", connector)

    def unapplied(self) -> Iterator[Unapplied]:
        """Yield each field that is kept and shown, but changes nothing, as far as the space alone shows."""
        for index, endpoint in enumerate(self.spec.endpoints):
            path = f"spec.endpoints[{index}]"
            if endpoint.service == "console":
                yield Unapplied(path, "the console is part of the service, at the address of its API")
                continue
            if endpoint.cert is not None:
                yield from _unapplied_certificate(f"{path}.cert", endpoint.cert)
            if endpoint.expose is not None:
                yield from _unapplied_exposure(f"{path}.expose", endpoint.expose)
        for index, connector in enumerate(self.spec.connectors):
            if connector.role != "route-container":
                why = "each link goes on as a link there, whatever the other side is"
                yield Unapplied(f"spec.connectors[{index}].role", why)
        if self.spec.plan in PLANS_WITH_MQTT:
            yield Unapplied(
                "spec.plan", f"its ending alone: every space speaks MQTT, so {self.spec.plan_name} is in effect"
            )
        if self.spec.network_policy is not None:
            yield Unapplied("spec.networkPolicy", _NO_FIREWALL, is_needed=True)


_NO_FIREWALL: Final = "the service has no firewall; restrict who may connect where its machine or network has one"


def _unapplied_certificate(path: str, cert: Certificate) -> Iterator[Unapplied]:
    given = {"secretName": cert.secret_name, "tlsCert": cert.tls_cert, "tlsKey": cert.tls_key}
    if cert.provider in ("selfsigned", "wildcard"):
        why = f"provider {cert.provider} has a certificate of its own; use certBundle for yours"
        ignored = tuple(given)
    elif cert.provider == "openshift":
        why, ignored = "there is no OpenShift here; use selfsigned, or certBundle for your own", ("provider", *given)
        given["provider"] = cert.provider
    else:
        why = "secretName says where the certificate and its key are; leave one of them out"
        ignored = ("tlsCert", "tlsKey") if cert.secret_name else ()
    for name in ignored:
        if given[name] is not None:
            yield Unapplied(f"{path}.{name}", why)


def _unapplied_exposure(path: str, expose: Exposure) -> Iterator[Unapplied]:
    if expose.type == "loadbalancer":
        yield Unapplied(f"{path}.type", "there is no load balancer; status.endpointStatuses shows how it is reached")
    if expose.annotations:
        yield Unapplied(f"{path}.annotations", "nothing is made outside that could have them")
    if expose.route_tls_termination == "reencrypt":
        why = "TLS ends at the node alone, with nothing in between; use passthrough"
        yield Unapplied(f"{path}.routeTlsTermination", why)
    if expose.load_balancer_ports:
        why = "all protocols are reached at the one port that status.endpointStatuses names"
        yield Unapplied(f"{path}.loadBalancerPorts", why)
    if expose.load_balancer_source_ranges:
        yield Unapplied(f"{path}.loadBalancerSourceRanges", _NO_FIREWALL, is_needed=True)
