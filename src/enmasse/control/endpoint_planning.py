"""By which doors a space is reached: hosts, ports, and what applications are told of them. Pure.

Rules:
1. A space without endpoints has two: ``messaging`` and ``messaging-wss``.
2. Each endpoint answers to ``<space>.<namespace>.<domain>``; one that is exposed as a route also to its own host.
3. Nobody has a host twice, and nobody one below the domain but their own: a host belongs to the oldest space
   that asks for it. The same holds for ports of their own, which the plan must offer.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from enmasse.model.spaces import Endpoint, EndpointStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from enmasse.model.plans import PortRange
    from enmasse.model.spaces import AddressSpace

__all__ = [
    "DEFAULT_ENDPOINTS",
    "Door",
    "doors_of",
    "export_facts",
    "port_of",
    "refused_hosts",
    "refused_ports",
    "route_hosts",
    "space_host",
]

DEFAULT_ENDPOINTS: Final = (
    Endpoint(name="messaging", service="messaging"),
    Endpoint(name="messaging-wss", service="messaging"),
)

SPEAKS: Final = ("amqp", "amqps", "amqp-ws", "amqp-wss")
"""What the port of a node speaks, by the names that EnMasse gives to service ports."""


@dataclass(frozen=True, slots=True)
class Door:
    """One endpoint of a space.

    Attributes:
        endpoint: as declared, or by default.
        file: by which its certificate is kept.
        service_host: by which it is reached in any case.
        external_host: by which it is reached from outside; empty: it is not exposed.
        port: of its own; 0: that of the node.
    """

    endpoint: Endpoint
    file: str
    service_host: str
    external_host: str = ""
    port: int = 0

    @property
    def hosts(self) -> tuple[str, ...]:
        """All its hosts."""
        return tuple(dict.fromkeys(filter(None, (self.service_host, self.external_host))))

    def status(self, port: int, certificate: str | None) -> EndpointStatus:
        """Return what a tenant is told of it.

        Args:
            port: of the node.
            certificate: that it shows, PEM; None: none of its own.
        """
        own = self.port or port
        service = dict.fromkeys(SPEAKS, own) if own else {}
        expose = self.endpoint.expose
        outside = expose.route_service_port if expose and expose.route_service_port else "amqps"
        return EndpointStatus(
            name=self.endpoint.name,
            service_host=self.service_host,
            service_ports=service,
            external_host=self.external_host or None,
            external_ports={outside: own} if self.external_host and own else {},
            cert=certificate,
        )


def space_host(space: AddressSpace, domain: str) -> str:
    """Return the host that names a space."""
    return f"{space.metadata.name}.{space.metadata.namespace}.{domain}"


def route_hosts(space: AddressSpace) -> tuple[str, ...]:
    """Return the hosts that a space asks for, beside its own."""
    hosts = [
        endpoint.expose.route_host.lower()
        for endpoint in space.spec.endpoints
        if endpoint.expose is not None and endpoint.expose.route_host
    ]
    return tuple(dict.fromkeys(hosts))


def refused_hosts(spaces: Iterable[AddressSpace], domain: str) -> dict[str, dict[str, str]]:
    """Return by key the hosts that spaces ask for and do not get, each with the reason."""
    known = sorted(spaces, key=lambda item: (item.metadata.creation_timestamp, item.key))
    # A space answers to its name and namespace without the domain as well.
    owners = {f"{space.metadata.name}.{space.metadata.namespace}": space.key for space in known}
    refused: dict[str, dict[str, str]] = {}
    for space in known:
        for host in route_hosts(space):
            if host == space_host(space, domain):
                continue
            if host == domain or host.endswith(f".{domain}"):
                reason = f"host {host} is below {domain}, where hosts are given by name and namespace"
            elif (owner := owners.setdefault(host, space.key)) != space.key:
                del owner  # whose it is, is not for others to know
                reason = f"host {host} belongs to another space"
            else:
                continue
            refused.setdefault(space.key, {})[host] = reason
    return refused


def port_of(space: AddressSpace) -> int:
    """Return the port that a space asks for; 0 for none of its own."""
    return next((endpoint.port for endpoint in space.spec.endpoints if endpoint.port), 0)


def refused_ports(spaces: Iterable[AddressSpace], offered: Mapping[str, PortRange | None]) -> dict[str, str]:
    """Return by key the spaces that do not get the port that they ask for, with the reason.

    Args:
        spaces: all that there are.
        offered: the ports of each space plan, by its name.
    """
    owners: dict[int, str] = {}
    refused = {}
    for space in sorted(spaces, key=lambda item: (item.metadata.creation_timestamp, item.key)):
        port, ports = port_of(space), offered.get(space.spec.plan_name)
        if not port:
            continue
        if ports is None or port not in ports:
            there = f"those from {ports.first} to {ports.last}" if ports else "none"
            refused[space.key] = f"plan '{space.spec.plan_name}' does not offer port {port}; it offers {there}"
        elif owners.setdefault(port, space.key) != space.key:
            refused[space.key] = f"port {port} belongs to another space"
    return refused


def doors_of(
    space: AddressSpace, domain: str, refused: Mapping[str, str], *, has_port: bool = True
) -> tuple[Door, ...]:
    """Return the doors of a space.

    Args:
        space: as declared.
        domain: of the installation.
        refused: hosts that it does not get.
        has_port: whether it gets the port that it asks for.
    """
    doors = []
    for endpoint in space.spec.endpoints or DEFAULT_ENDPOINTS:
        external = ""
        if endpoint.expose is not None:
            asked = (endpoint.expose.route_host or "").lower()
            external = asked if asked and asked not in refused else space_host(space, domain)
        is_issued = endpoint.cert is None or endpoint.cert.provider == "selfsigned"
        # What the platform issues for the same hosts is one certificate, so that nodes hold no more than they must.
        about = f"issued {external or space_host(space, domain)}" if is_issued else f"given {endpoint.name}"
        digest = hashlib.sha256(about.encode()).hexdigest()[:12]
        doors.append(
            Door(
                endpoint,
                f"space.{space.metadata.namespace}.{space.metadata.name}.{digest}",
                space_host(space, domain),
                external,
                endpoint.port or 0 if has_port else 0,
            )
        )
    return tuple(doors)


def export_facts(status: EndpointStatus, authority: str) -> dict[str, str]:
    """Return what an application needs for connecting, by the keys that EnMasse gives it.

    Args:
        status: of the endpoint.
        authority: the certificates (PEM) that vouch for it.
    """
    facts = {"service.host": status.service_host or ""}
    facts |= {f"service.port.{name}": str(port) for name, port in status.service_ports.items()}
    if status.external_host:
        facts["external.host"] = status.external_host
        facts |= {f"external.port.{name}": str(port) for name, port in status.external_ports.items()}
    return facts | ({"ca.crt": authority} if authority else {})
