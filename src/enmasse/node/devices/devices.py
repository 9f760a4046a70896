"""The devices of a node: who is connected, what they may, and the link to their registry."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import RemoteError
from enmasse.node.devices.authorities import Authorities
from enmasse.node.devices.commands import Commands
from enmasse.node.devices.directory import UNAVAILABLE, Directory, Found
from enmasse.node.devices.login import DeviceLogin
from enmasse.node.devices.messages import DeviceError, RequestIds
from enmasse.node.devices.notifications import Notifications
from enmasse.node.devices.registry_link import RegistryLink
from enmasse.node.devices.revocation import Connected, ConnectedDevices
from enmasse.node.devices.tenants import Device
from enmasse.node.devices.usage import TELL_S, UsageTeller
from enmasse.node.errors import TenancyError
from enmasse.node.tenancy import named_space

if TYPE_CHECKING:
    from enmasse.identity.passwords import PasswordClient, Passwords
    from enmasse.messaging.space import Space
    from enmasse.node.connections.client_connection import ClientConnection
    from enmasse.node.devices.tenants import Tenant
    from enmasse.node.tenancy import Names


SETTLE_S: Final = 0.1
"""Authorities of tenants that change at once are taken together."""

_NEW: Final = "auto-provisioning-enabled"
"""The authority of a gateway whose devices are registered as they first send."""


class Devices:
    """The devices of a node.

    Args:
        admin: the administrator's space.
        spaces: returns the spaces by name.
        clock: returns the time in seconds.
        wall: returns seconds since 1970 UTC.
        passwords: checks and caches passwords.
        names: returns the meaning of host names.
    """

    def __init__(
        self,
        admin: Space,
        spaces: Callable[[], Mapping[str, Space]],
        *,
        names: Callable[[], Names],
        clock: Callable[[], float],
        wall: Callable[[], float],
        passwords: Passwords,
    ) -> None:
        self.link = RegistryLink(admin)
        self.directory = Directory(clock, self.link.ask, self._tenant_changed, self._device_changed)
        self.link.directory = self.directory
        self.link.came = self._came
        self.authorities = Authorities(self.named_by, lambda act: self.link.core.call_later(SETTLE_S, act))
        self.request_ids = RequestIds(secrets.token_bytes(32))
        self.commands = Commands(self.directory, self.link, spaces, self.request_ids)
        self._spaces = spaces
        self._names = names
        self._clock = clock
        self._has_control = False
        self._wall = wall
        self._passwords = passwords
        self.connected = ConnectedDevices(self.directory, self.link, wall)
        self.connected.acting, self.connected.regrouped = self.commands.acting, self.commands.regroup
        self.commands.doubt = self.connected.mark
        self.notifications = Notifications(spaces, self.now_ms)
        self.commands.ready = self.notifications.ready
        self._counts: Counter[str] = Counter()
        """The connections of each tenant's devices that last, which alone are limited."""
        self._usage = UsageTeller(
            self.directory.tenants.values,
            self.link.ask,
            clock=clock,
            wall=wall,
            source=secrets.token_hex(8),
        )
        self._is_usage_due = False

    def login(self, tenant: Tenant | None, realm: str, client: PasswordClient) -> DeviceLogin:
        """Begin a login of a device of a tenant, or of none, which fails as any other does."""
        return DeviceLogin(
            self.directory, self._passwords, tenant, realm, client=client, wall=self._wall, ask=self.link.ask
        )

    def expect_tenants(self) -> None:
        """Expect a control process to tell of the tenants; a node on its own has none."""
        self._has_control = True

    @property
    def are_tenants_known(self) -> bool:
        """True if a realm that is no tenant's here is none's: the control process is there and has told of all."""
        return not self._has_control or (self.link.is_up and self.directory.has_all_tenants)

    def named_by(self, host: str | None) -> Collection[Tenant] | None:
        """Return the tenants that a host names: those of a space, or the one whose alias is its first label.

        Returns:
            None if it names neither a tenant nor a space. For a host that is misspelt, no tenants.
        """
        try:
            space = named_space(self._spaces(), host, names=self._names())
        except TenancyError:
            return ()
        if space is not None:
            return self.directory.tenants_in(space.name)
        tenant = self.directory.tenant_of_alias(self._names().label(host))
        return None if tenant is None else (tenant,)

    def agrees(self, host: str | None, tenant: Tenant) -> bool:
        """Return true if a host does not name others than a tenant."""
        named = self.named_by(host)
        return named is None or any(each.id == tenant.id for each in named)

    def is_valid(self, device: Device) -> bool:
        """Return true if a device that has logged in may stay, as far as that is known."""
        tenant = self.directory.tenants.get(device.tenant.id)
        return tenant is not None and tenant.is_enabled and tenant.space == device.tenant.space

    def now_ms(self) -> int:
        """Return the time in milliseconds since 1970 UTC."""
        return int(self._wall() * 1000)

    # Connections

    def enter(self, connection: ClientConnection, device: Device, adapter: str, *, lasts: bool = True) -> None:
        """Register a connection of a device.

        Args:
            connection: the device's.
            device: the device that it is.
            adapter: the type of adapter.
            lasts: true if the device is connected as long as its connection is, and is so counted.

        Raises:
            DeviceError: its tenant allows no such adapter, or no more connections.
        """
        connected = Connected(self.connected, connection, device, adapter, lasts=lasts)
        # It may have changed since the device has logged in.
        tenant = self.directory.tenants.get(device.tenant.id) or device.tenant
        if problem := connected.problem(tenant):
            raise DeviceError(403, problem)
        if lasts and not tenant.usage.may_connect:
            raise DeviceError(429, f"the devices of tenant {tenant.id!r} were connected for as long as they may be")
        if lasts and 0 <= tenant.most_connections <= self._counts[tenant.id]:
            raise DeviceError(
                429, f"tenant {tenant.id!r} has {tenant.most_connections} connections, as many as it may"
            )
        self.connected.add(connected)
        proof = connection.admission.proof
        if proof is not None and proof.login is not None:
            if not self.directory.keeps(proof.login):
                self.connected.mark(connected)
            proof.login = None
        if lasts:
            self._counts[tenant.id] += 1
            tenant.usage.connect(1, self._clock())
        self.link.note("connected" if lasts else "seen", tenant.id, device.id)
        connection.admission.rights.nobody = device.owner
        if lasts:
            self.notifications.connected(device, adapter, connection.container or connection.peer)

    def leave(self, connection: ClientConnection, error: Exception | None = None) -> None:
        """Forget a connection that is closed, with an error of either side if there is one."""
        connected = self.connected.remove(connection)
        if connected is not None and connected.lasts:
            device = connected.device
            self._counts[device.tenant.id] -= 1
            device.tenant.usage.connect(-1, self._clock())
            found = connection.closing or error
            reason = found.description if isinstance(found, RemoteError) else str(found or "")
            self.notifications.disconnected(
                device, connected.adapter, connection.container or connection.peer, reason
            )
            # It may have come again before the end of this connection was heard of, as by another node.
            if not self.connected.lasts(device.tenant.id, device.id):
                self.link.note("disconnected", device.tenant.id, device.id)

    def _tell_usage(self) -> None:
        self._usage.tell()
        self._is_usage_due = self._usage.is_wanted
        if self._is_usage_due:
            self.link.core.call_later(TELL_S, self._tell_usage)

    def _came(self) -> None:
        """Tell the control process, which has come, who is here, and look at everybody again."""
        self._has_control = True
        self._usage.tell(everything=True)
        for connected in self.connected:
            if connected.lasts:
                self.link.note("present", connected.tenant_id, connected.device.id)
        self.connected.mark_all()

    def _tenant_changed(self, identity: str) -> None:
        tenant = self.directory.tenants.get(identity)
        self.authorities.put(identity, tenant)
        self.commands.tenant_changed(identity)
        if tenant is not None:
            self._usage.enter_periods(tenant)  # also when its limits are gone
            if tenant.has_usage_limits and not self._is_usage_due:
                self._is_usage_due = True
                self.link.core.call_later(0.0, self._tell_usage)

    def _device_changed(self, tenant: str, device: str) -> None:
        """Look again at the devices that are connected and may have changed."""
        self.connected.mark_device(tenant, device)

    # Gateways

    def act_for(self, gateway: Device, identity: str, done: Callable[[Device | DeviceError], None]) -> None:
        """Find the device that a gateway acts for.

        Args:
            gateway: the device that is connected.
            identity: the id of the device; its own for itself.
            done: called with the device, or with the reason why the gateway may not act for it.
        """
        if identity in ("", gateway.id):
            done(gateway)
            return
        tenant = gateway.tenant

        def found(device: Found) -> None:
            if device is UNAVAILABLE:
                done(DeviceError(503, "the device registry cannot be asked now: try again"))
            elif device is None:
                if _NEW in gateway.authorities:
                    self._provision(gateway, identity, done)
                else:
                    done(DeviceError(404, f"there is no device {identity!r:.255}"))
            elif not device.is_enabled:
                done(DeviceError(404, f"device {identity!r:.255} is disabled"))
            elif not gateway.is_gateway_of(device):
                done(DeviceError(403, f"{gateway.id!r:.255} may not act for device {identity!r:.255}"))
            else:
                self.commands.last_gateway(device, gateway)
                done(device)

        self.directory.find_device(tenant, identity, found)

    def _provision(self, gateway: Device, identity: str, done: Callable[[Device | DeviceError], None]) -> None:
        """Have a device registered that a gateway sends for."""
        tenant = gateway.tenant

        def answered(answer: dict[str, Any] | None) -> None:
            if answer is None or answer.get("error"):
                reason = "the device registry cannot be asked now" if answer is None else answer["error"]
                done(DeviceError(503 if answer is None else 403, f"the device was not registered: {reason}"))
                return
            self.directory.forget(tenant.id, identity)
            done(Device(tenant, identity, (answer.get("found") or {}).get("device") or {}))

        question = {"what": "provision", "tenant": tenant.id, "device-id": identity, "gateway": gateway.id}
        if not self.link.ask(question, answered):
            answered(None)
