"""The devices that are connected, and the review of what they came in by whenever something of it has changed.

Rules:
1. A change of the registry marks who may be concerned: the connections of a device, or of all of a tenant, and the
   subscriptions of gateways to the commands of others. They are looked at some at a time, one question for each time.
2. A connection is closed if its device is gone or disabled, if its own proof does not hold any longer, or if its
   tenant does not serve it any more. A subscription ends if its gateway may not act for the device any more.
3. Who is marked while the control process is away stays as it is until that is back; then everybody is marked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from enmasse.node.devices.tenants import Device, Document

if TYPE_CHECKING:
    from enmasse.node.connections.client_connection import ClientConnection
    from enmasse.node.devices.directory import Directory
    from enmasse.node.devices.registry_link import RegistryLink
    from enmasse.node.devices.tenants import Tenant


AT_ONCE: Final = 200
"""Connections and subscriptions that one question is about: a few milliseconds of the node."""

AGAIN_S: Final = 1.0
"""Seconds after which a question is asked again that was not answered."""

GONE: Final = "the device was disabled or deleted"

Row = tuple[str, str, str]
"""Device, and type and name of its credentials; empty: they do not matter."""


class Reviewed(Protocol):
    """A connection, or a subscription, that lives by what the registry has."""

    @property
    def tenant_id(self) -> str:
        """The tenant."""

    def row(self, tenant: Tenant | None) -> Row | None:
        """Return what the registry is asked; None: nothing is, as it has ended, perhaps by what is known here."""

    def judge(self, tenant: Tenant, found: Document | None) -> None:
        """Go on or end, as the registry has answered: device and credentials, or None if there is no such device."""


class Connected:
    """A connection of a device.

    Args:
        home: all of them.
        connection: the connection of the device.
        device: the device, as it was when it was last looked at.
        adapter: the type of adapter.
        lasts: true if the device is connected as long as its connection is.
    """

    __slots__ = ("_home", "adapter", "connection", "device", "lasts")

    def __init__(
        self, home: ConnectedDevices, connection: ClientConnection, device: Device, adapter: str, *, lasts: bool
    ) -> None:
        self._home = home
        self.connection = connection
        self.device = device
        self.adapter = adapter
        self.lasts = lasts

    @property
    def tenant_id(self) -> str:
        """The tenant."""
        return self.device.tenant.id

    def row(self, tenant: Tenant | None) -> Row | None:
        """Return what the registry is asked; None: nothing is."""
        if not self._home.has(self.connection):
            return None
        reason = self.problem(tenant)
        if reason:
            self._home.cut(self.connection, reason)
            return None
        proof = self.connection.admission.proof
        return (self.device.id, "", "") if proof is None else (self.device.id, proof.kind, proof.auth_id)

    def problem(self, tenant: Tenant | None) -> str:
        """Return why the device may not stay, as far as that is known without the registry; empty: it may."""
        proof = self.connection.admission.proof
        if tenant is None or not tenant.is_enabled or tenant.space != self.device.tenant.space:
            return "the tenant was disabled or deleted"
        if not tenant.allows(self.adapter):
            return f"tenant {tenant.id!r} has the adapter {self.adapter} disabled"
        if proof is not None and not proof.is_vouched_for(tenant, self._home.wall()):
            return "the tenant does not trust the certificate's authority any more"
        return ""

    def judge(self, tenant: Tenant, found: Document | None) -> None:
        """Go on as the device is now, or close the connection."""
        if not self._home.has(self.connection):
            return
        admission = self.connection.admission
        device = None if found is None else Device(tenant, self.device.id, found["device"])
        if found is None or device is None or not device.is_enabled or device.is_after(self.device):
            self._home.cut(self.connection, GONE)
            return
        if admission.proof is not None:
            reason = admission.proof.review(found.get("credentials"), self._home.wall())
            if reason:
                self._home.cut(self.connection, reason)
                return
        before, self.device = self.device, device
        admission.device = device
        if before.groups != device.groups:
            self._home.regrouped(before, device)
        self._home.schedule(self.connection)
        self.connection.review()


class ConnectedDevices:
    """The connections of the devices of a node, and those that are to be reviewed.

    Args:
        directory: knows the tenants.
        link: to the control process.
        wall: returns seconds since 1970 UTC.

    Attributes:
        cut: closes a connection, with the reason.
        schedule: has a connection closed at the end of its proof.
        regrouped: called with a gateway as it was and as it is, when it belongs to other groups.
        acting: returns the subscriptions of gateways to the commands of a device, or of all devices of a tenant.
    """

    def __init__(self, directory: Directory, link: RegistryLink, wall: Callable[[], float]) -> None:
        self.wall = wall
        self.cut: Callable[[ClientConnection, str], object] = lambda _connection, _reason: None
        self.schedule: Callable[[ClientConnection], object] = lambda _connection: None
        self.regrouped: Callable[[Device, Device], object] = lambda _before, _after: None
        self.acting: Callable[[str, str], Iterable[Reviewed]] = lambda _tenant, _device: ()
        self._directory = directory
        self._link = link
        self._of: dict[ClientConnection, Connected] = {}
        self._tenants: dict[str, dict[str, list[Connected]]] = {}
        self._marked: dict[str, dict[Reviewed, None]] = {}
        """Those that are to be looked at, by their tenants."""
        self._is_going_on = False

    # Who is there

    def has(self, connection: ClientConnection) -> bool:
        """Return true if a connection is one of them."""
        return connection in self._of

    def add(self, connected: Connected) -> None:
        """Add a connection."""
        device = connected.device
        self._of[connected.connection] = connected
        self._tenants.setdefault(device.tenant.id, {}).setdefault(device.id, []).append(connected)

    def remove(self, connection: ClientConnection) -> Connected | None:
        """Remove a connection, and return it; None: it is none of them."""
        connected = self._of.pop(connection, None)
        if connected is not None:
            device = connected.device
            devices = self._tenants[device.tenant.id]
            found = devices[device.id]
            found.remove(connected)
            if not found:
                del devices[device.id]
            if not devices:
                del self._tenants[device.tenant.id]
        return connected

    def lasts(self, tenant: str, device: str) -> bool:
        """Return true if a device has a connection as long as which it is connected."""
        return any(connected.lasts for connected in self._tenants.get(tenant, {}).get(device, ()))

    def __iter__(self) -> Iterator[Connected]:
        """Iterate over the connections."""
        return iter(self._of.values())

    # The review

    def mark(self, reviewed: Reviewed) -> None:
        """Have one of them looked at."""
        self._mark(reviewed.tenant_id, (reviewed,))

    def mark_device(self, tenant: str, device: str) -> None:
        """Have all looked at that live by a device; an empty id: by any of the tenant."""
        devices = self._tenants.get(tenant, {})
        for found in list(devices.values()) if not device else (devices.get(device, ()),):
            self._mark(tenant, found)
        self._mark(tenant, self.acting(tenant, device))

    def mark_all(self) -> None:
        """Have everybody looked at: changes may have gone unnoticed."""
        for tenant in set(self._tenants) | set(self._directory.tenants):
            self.mark_device(tenant, "")

    def _mark(self, tenant: str, found: Iterable[Reviewed]) -> None:
        marked = dict.fromkeys(found)
        if marked:
            self._marked.setdefault(tenant, {}).update(marked)
            if not self._is_going_on:
                self._is_going_on = True
                self._link.core.call_later(0.0, self._go_on)

    def _go_on(self) -> None:
        """Look at some of those that are marked, and ask about them."""
        if not self._marked:
            self._is_going_on = False
            return
        tenant_id = next(iter(self._marked))
        marked = self._marked.pop(tenant_id)
        some = list(islice(marked, AT_ONCE))
        for reviewed in some:
            del marked[reviewed]
        if marked:
            self._marked[tenant_id] = marked  # behind those of other tenants
        tenant = self._directory.tenants.get(tenant_id)
        rows = [(reviewed, row) for reviewed in some if (row := reviewed.row(tenant)) is not None]
        if not rows or tenant is None:
            self._link.core.call_later(0.0, self._go_on)
            return
        asked = [reviewed for reviewed, _ in rows]

        def answered(answer: dict[str, Any] | None) -> None:
            found = (answer or {}).get("found") or []
            for reviewed, document in zip(asked, found, strict=False):
                reviewed.judge(self._directory.tenants.get(tenant_id) or tenant, document)
            self._marked.setdefault(tenant_id, {}).update(dict.fromkeys(asked[len(found) :]))
            if not self._marked[tenant_id]:
                del self._marked[tenant_id]
            self._link.core.call_later(0.0 if found else AGAIN_S, self._go_on)

        question = {"what": "review", "tenant": tenant_id, "of": [row for _, row in rows]}
        if not self._link.ask(question, answered):
            answered(None)
