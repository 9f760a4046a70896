"""Plan the endpoints of a space: hosts, ports, and the connection details for applications. Pure.

Rules:
1. A space without endpoints has two: ``messaging`` and ``messaging-wss``.
2. Each endpoint answers to ``<space>.<namespace>.<domain>``; one that is exposed as a route also to its own host.
3. ``endpoints/admission.py`` has the rules of hosts. A dedicated port belongs to the oldest space that requests it,
   if its plan offers it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from enmasse.control.endpoints.admission import space_host
from enmasse.model.kinds.spaces import Endpoint, EndpointStatus

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from enmasse.model.kinds.plans import PortRange
    from enmasse.model.kinds.spaces import AddressSpace


DEFAULT_ENDPOINTS: Final = (
    Endpoint(name="messaging", service="messaging"),
    Endpoint(name="messaging-wss", service="messaging"),
)

SERVICE_PORTS: Final = ("amqp", "amqps", "amqp-ws", "amqp-wss", "http", "https")
"""Protocols of a node's port: by the names that EnMasse gives to service ports, and messages by HTTP."""


@dataclass(frozen=True, slots=True)
class SpaceEndpoint:
    """One endpoint of a space.

    Attributes:
        declared: the endpoint in the space, or by default.
        file: the file of its certificate.
        service_host: the host that always reaches it.
        external_host: the host that reaches it from outside; empty: it is not exposed.
        port: the port of its own; 0: that of the node.
    """

    declared: Endpoint
    file: str
    service_host: str
    external_host: str = ""
    port: int = 0

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts of the endpoint."""
        return tuple(dict.fromkeys(filter(None, (self.service_host, self.external_host))))

    def status(self, port: int, certificate: str | None) -> EndpointStatus:
        """Return the status that a tenant sees.

        Args:
            port: the port of the node.
            certificate: the certificate that it shows, PEM; None: none of its own.
        """
        own = self.port or port
        service = dict.fromkeys(SERVICE_PORTS, own) if own else {}
        expose = self.declared.expose
        outside = expose.route_service_port if expose and expose.route_service_port else "amqps"
        return EndpointStatus(
            name=self.declared.name,
            service_host=self.service_host,
            service_ports=service,
            external_host=self.external_host or None,
            external_ports={outside: own} if self.external_host and own else {},
            cert=certificate,
        )


def port_of(space: AddressSpace) -> int:
    """Return the port that a space asks for; 0 for none of its own."""
    return next((endpoint.port for endpoint in space.spec.served_endpoints if endpoint.port), 0)


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


def plan_endpoints(
    space: AddressSpace, domain: str, refused: Container[str], *, has_port: bool = True
) -> tuple[SpaceEndpoint, ...]:
    """Return the endpoints of a space.

    Args:
        space: the space as declared.
        domain: the domain of the installation.
        refused: hosts that it does not get.
        has_port: whether it gets the port that it asks for.
    """
    planned = []
    for endpoint in space.spec.served_endpoints or DEFAULT_ENDPOINTS:
        external = ""
        if endpoint.expose is not None:
            asked = (endpoint.expose.route_host or "").lower()
            external = asked if asked and asked not in refused else space_host(space, domain)
        is_issued = endpoint.cert is None or endpoint.cert.provider == "selfsigned"
        # What the platform issues for the same hosts is one certificate, so that nodes hold no more than they must.
        about = f"issued {external or space_host(space, domain)}" if is_issued else f"given {endpoint.name}"
        digest = hashlib.sha256(about.encode()).hexdigest()[:12]
        planned.append(
            SpaceEndpoint(
                endpoint,
                f"space.{space.metadata.namespace}.{space.metadata.name}.{digest}",
                space_host(space, domain),
                external,
                endpoint.port or 0 if has_port else 0,
            )
        )
    return tuple(planned)


def export_facts(status: EndpointStatus, authority: str) -> dict[str, str]:
    """Return the connection details for applications, by the keys that EnMasse gives them.

    Args:
        status: the status of the endpoint.
        authority: the certificates (PEM) that vouch for it.
    """
    facts = {"service.host": status.service_host or ""}
    facts |= {f"service.port.{name}": str(port) for name, port in status.service_ports.items()}
    if status.external_host:
        facts["external.host"] = status.external_host
        facts |= {f"external.port.{name}": str(port) for name, port in status.external_ports.items()}
    return facts | ({"ca.crt": authority} if authority else {})
