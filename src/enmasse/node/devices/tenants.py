"""Tenants of devices as a node knows them: what the registry says of one, and of a device.

Rules:
1. A document comes from the registry of the control process, which has checked it; what is missing has its default.
2. A property that a message does not have comes from its device's defaults, and then from those of its tenant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from enmasse.identity.permissions import SEND, Grant, Permissions
from enmasse.node.devices.usage import DATA, DURATION, Usage
from enmasse.node.patterns import matcher_of

BY_DEVICE: Final = "device:"
"""The owners that are devices begin with this."""

Document = Mapping[str, Any]

HTTP, MQTT, AMQP = "hono-http", "hono-mqtt", "hono-amqp"
"""The types of adapters, as tenants enable and disable them."""

TELEMETRY, EVENT, COMMAND, RESPONSE, INQUIRY = "telemetry", "event", "command", "command_response", "inquiry"
"""The addresses of a tenant begin with these; the id of the tenant follows."""

MAX_TTL_S: Final = 0xFFFFFFFF // 1000
"""The longest time to live that a message of AMQP may have."""


class Tenant:
    """A tenant.

    Args:
        document: the tenant, as the registry has it.
        space: ``<namespace>/<space>``, in which its addresses are.
        password_cost: the most that the check of a wrong password of its devices costs, in rounds of bcrypt.

    Attributes:
        id: its id.
        alias: another name; empty: none.
        space: the space, as given.
        document: the document, as given.
        is_enabled: true if its devices may come in.
        defaults: properties of messages that do not have them.
        has_connection_events: true if applications are told of devices that connect and disconnect.
        has_ttd_events: true if they are told of devices that begin and cease to listen for commands.
        limits: the bounds of what its devices may use, as the registry has them.
        most_connections: connections of its devices at a time; -1: any number.
        password_cost: the cost, as given, or as the registry has said since.
        permissions: those of a device.
        usage: the part that its devices have used.
    """

    __slots__ = (
        "_adapters", "alias", "anchors", "defaults", "document", "has_connection_events", "has_ttd_events", "id",
        "is_enabled", "limits", "most_connections", "password_cost", "permissions", "space", "usage",
    )  # fmt: skip

    def __init__(self, identity: str, space: str, document: Document, password_cost: int = 0) -> None:
        self.id = identity
        self.space = space
        self.password_cost = password_cost
        self.document = document
        self.alias: str = document.get("alias") or ""
        self.is_enabled = document.get("enabled") is not False
        self.defaults: Document = document.get("defaults") or {}
        self.anchors: Sequence[Document] = document.get("trusted-ca") or ()
        ext: Document = document.get("ext") or {}
        self.has_connection_events = ext.get("connection-events") is True
        self.has_ttd_events = ext.get("ttd-events") is True
        self.limits: Document = document.get("resource-limits") or {}
        self._adapters = {item["type"]: item for item in document.get("adapters") or ()}
        self.most_connections = int(self.limits.get("max-connections", -1))
        self.usage = Usage()
        targets = (self.address(TELEMETRY), self.address(EVENT), self.address(INQUIRY), f"{self.address(RESPONSE)}/#")
        self.permissions = Permissions((Grant((SEND,), targets),), matcher_of)

    def address(self, kind: str) -> str:
        """Return the address of a kind."""
        return f"{kind}/{self.id}"

    def allows(self, adapter: str) -> bool:
        """Return true if its devices may use a type of adapter: any, where none is named."""
        if not self._adapters:
            return True
        found = self._adapters.get(adapter)
        return found is not None and found.get("enabled") is not False

    @property
    def has_usage_limits(self) -> bool:
        """True if what its devices use in a period is limited."""
        return DATA in self.limits or DURATION in self.limits

    def most_ttl_s(self, kind: str, *, is_once: bool = True) -> int | None:
        """Return the longest time to live of a message in seconds; None: it has no bound.

        Args:
            kind: telemetry, event or response.
            is_once: true if telemetry is to arrive at least once.
        """
        name = {
            TELEMETRY: "max-ttl-telemetry-qos1" if is_once else "max-ttl-telemetry-qos0",
            RESPONSE: "max-ttl-command-response",
        }.get(kind, "max-ttl")
        found = int(self.limits.get(name, -1))
        return None if found < 0 else found


class Device:
    """A device.

    Args:
        tenant: the tenant of the device.
        identity: its id.
        document: the tenant, as the registry has it.
    """

    __slots__ = ("authorities", "defaults", "gateway_groups", "groups", "id", "is_enabled", "made", "tenant", "via")

    def __init__(self, tenant: Tenant, identity: str, document: Document) -> None:
        self.tenant = tenant
        self.id = identity
        self.made = str(document.get("made") or "")
        """The time at which it was registered: tells it from a former device of its id."""
        self.is_enabled = document.get("enabled") is not False
        self.defaults: Document = document.get("defaults") or {}
        self.via = frozenset(document.get("via") or ())
        self.gateway_groups = frozenset(document.get("viaGroups") or ())
        """The groups whose members may act for it."""
        self.groups = frozenset(document.get("memberOf") or ())
        """The groups of gateways that it belongs to."""
        self.authorities = frozenset(document.get("authorities") or ())

    @property
    def owner(self) -> str:
        """Identifies it as the owner of what it leaves behind: by its id, and when it was registered."""
        return f"{BY_DEVICE}{self.tenant.id} {self.id} {self.made}"

    def is_after(self, other: Device) -> bool:
        """Return true if it is another device of the same id, which was registered anew."""
        return self.made != other.made and "" not in (self.made, other.made)

    def is_gateway_of(self, other: Device) -> bool:
        """Return true if it may act for another device."""
        return self.id in other.via or not self.groups.isdisjoint(other.gateway_groups)
