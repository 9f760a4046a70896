"""Commands on their way to devices: from the address ``command/T`` to the connection at which a device listens.

Rules:
1. The node receives from the command address of every tenant, so that applications always have credit, and learn by
   the outcome what became of a command: accepted when the device has it, released when nobody listens, rejected when
   it is malformed or its device unknown.
2. A command goes to who listens for exactly its device; else to the gateway that has last acted for the device; else
   to any gateway of it that listens.
3. A command that is to be stored is handed to the control process, and accepted once it is on disk there.
4. A command that its device has been sent and does not answer is released, so that it does not keep its sender and
   those of others waiting.
5. A gateway that listens for one device is reviewed (``revocation``) whenever that device, or the gateway, changes.
"""

from __future__ import annotations

from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Rejected
from enmasse.message.sections import Sections
from enmasse.messaging.address import AttachOptions
from enmasse.node.devices.directory import UNAVAILABLE, Directory, Found
from enmasse.node.devices.messages import Command, DeviceError, RequestIds, check_volume, command_of, target_of
from enmasse.node.devices.tenants import COMMAND, Device, Tenant
from enmasse.node.large_messages import Gathered
from enmasse.node.plain_values import as_bytes

# A connection at which a device listens knows its tenant's commands.
if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.delivery import Consumer
    from enmasse.messaging.space import Space
    from enmasse.node.devices.registry_link import RegistryLink
    from enmasse.node.devices.revocation import Row
    from enmasse.node.devices.tenants import Document


WINDOW: Final = 1_000
"""Commands of a tenant that have no outcome yet."""

ANSWER_S: Final = 20.0
"""A device has this time to settle a command, and at most twice as much; then its sender is told that it did not."""

RETRY_S: Final = 1.0
"""The address of a tenant may come later than the tenant."""

MAX_GATEWAYS: Final = 100_000
"""Devices of a tenant whose last gateway is known."""

MODE, SUPERSEDE_KEY, COMMAND_ID = "command-mode", "supersede-key", "command-id"
"""Application properties of commands: ``stored``, what one takes the place of, and the id of a stored one."""

Done = Callable[[Any], None]


class Listener(Protocol):
    """A connection, or a request, that takes commands."""

    def offer(self, command: Command, done: Done) -> bool:
        """Take a command, and call ``done`` with its outcome; return false if it takes none now."""

    def refuse(self, error: DeviceError) -> None:
        """Take no more commands: the gateway may not act for the device any more."""


class Acting:
    """A gateway's subscription to the commands of another device.

    Args:
        device: the device of the commands.
        gateway: returns the gateway as it is now.
        listener: takes the commands.

    Attributes:
        is_over: True once it has ended.
    """

    __slots__ = ("device", "gateway", "is_over", "listener")

    def __init__(self, device: Device, gateway: Callable[[], Device], listener: Listener) -> None:
        self.device = device
        self.gateway = gateway
        self.listener = listener
        self.is_over = False

    @property
    def tenant_id(self) -> str:
        """The tenant."""
        return self.device.tenant.id

    def row(self, _tenant: Tenant | None) -> Row | None:
        """Return what the registry is asked; None: nothing is, as it has ended."""
        return None if self.is_over else (self.device.id, "", "")

    def judge(self, tenant: Tenant, found: Document | None) -> None:
        """Go on, or end if the gateway may not act for the device any more."""
        if self.is_over:
            return
        device = None if found is None else Device(tenant, self.device.id, found["device"])
        gateway = self.gateway()
        if device is None or not device.is_enabled:
            self.listener.refuse(DeviceError(404, f"device {self.device.id!r:.255} was disabled or deleted"))
        elif not gateway.is_gateway_of(device):
            what = f"{gateway.id!r:.255} may not act for device {device.id!r:.255} any more"
            self.listener.refuse(DeviceError(403, what))


class Commands:
    """The commands of all tenants of a node.

    Args:
        directory: knows the tenants and devices.
        link: to the control process.
        spaces: returns the spaces by name.
        ids: makes the ids of requests.
    """

    def __init__(
        self,
        directory: Directory,
        link: RegistryLink,
        spaces: Callable[[], Mapping[str, Space]],
        ids: RequestIds,
    ) -> None:
        self._directory = directory
        self._link = link
        self._spaces = spaces
        self._ids = ids
        self._tenants: dict[str, TenantCommands] = {}
        self._acting: dict[str, dict[str, dict[Acting, None]]] = {}
        """By tenant and device."""
        self.doubt: Callable[[Acting], object] = lambda _acting: None
        """Has a subscription of a gateway reviewed."""
        self.ready: Callable[[Device, str], Callable[[], None]] = lambda _device, _adapter: lambda: None
        """Tells applications that a device listens until further notice, and returns what tells that it does not."""

    def tenant_changed(self, identity: str) -> None:
        """Receive the commands of a tenant, or not any more."""
        tenant = self._directory.tenants.get(identity)
        known = self._tenants.get(identity)
        if tenant is None:
            if known is not None:
                del self._tenants[identity]
                known.leave()
        elif known is None:
            self._tenants[identity] = TenantCommands(tenant, self._directory, self._link, self._spaces, self._ids)
        else:
            known.change(tenant)

    def listen(
        self, device: Device, listener: Listener, by: Callable[[], Device], *, adapter: str = ""
    ) -> Callable[[], None]:
        """Have a listener offered the commands of a device; return what ends that.

        Args:
            device: the device of the commands.
            listener: takes them.
            by: returns the device that is connected, which acts for that one if it is another.
            adapter: the type of adapter, if the listener listens until further notice.
        """
        end = self._told(self._of(device).listen(device, listener), device, adapter)
        if by().id == device.id:
            return end
        acting = Acting(device, by, listener)
        of_device = self._acting.setdefault(device.tenant.id, {}).setdefault(device.id, {})
        of_device[acting] = None
        if not self._directory.keeps_device(device):
            self.doubt(acting)

        def ended() -> None:
            end()
            if not acting.is_over:
                acting.is_over = True
                del of_device[acting]
                if not of_device:
                    self._acting[device.tenant.id].pop(device.id, None)

        return ended

    def acting(self, tenant: str, device: str = "") -> Iterable[Acting]:
        """Return the subscriptions of gateways to the commands of a device; an empty id: of all of a tenant."""
        devices = self._acting.get(tenant, {})
        if device:
            return devices.get(device, ())
        return [each for found in devices.values() for each in found]

    def regroup(self, before: Device, after: Device) -> None:
        """Take note that a gateway belongs to other groups than before."""
        known = self._tenants.get(after.tenant.id)
        if known is not None:
            known.regroup(after)
        for acting in self.acting(after.tenant.id):
            if acting.gateway().id == before.id:
                self.doubt(acting)

    def listen_for_all(self, gateway: Device, listener: Listener, *, adapter: str = "") -> Callable[[], None]:
        """Have a listener offered the commands of all devices of a gateway; return what ends that."""
        return self._told(self._of(gateway).listen_for_all(gateway, listener), gateway, adapter)

    def listen_as(self, gateway: Device, listener: Listener, *, adapter: str = "") -> Callable[[], None]:
        """Have a listener offered the commands of a device, and of all whose gateway it is; return what ends that."""
        known = self._of(gateway)
        own, others = known.listen(gateway, listener), known.listen_for_all(gateway, listener)
        return self._told(_both(own, others), gateway, adapter)

    def _told(self, end: Callable[[], None], device: Device, adapter: str) -> Callable[[], None]:
        return _both(end, self.ready(device, adapter)) if adapter else end

    def last_gateway(self, device: Device, gateway: Device) -> None:
        """Note that a gateway acts for a device."""
        self._of(device).last_gateway(device.id, gateway.id)

    def _of(self, device: Device) -> TenantCommands:
        found = self._tenants.get(device.tenant.id)
        if found is None:
            raise DeviceError(403, f"tenant {device.tenant.id!r} is not served any more")
        return found


class TenantCommands:
    """The commands of one tenant, and who listens for them; a ``ConsumerPort`` of the command address."""

    def __init__(
        self,
        tenant: Tenant,
        directory: Directory,
        link: RegistryLink,
        spaces: Callable[[], Mapping[str, Space]],
        ids: RequestIds,
    ) -> None:
        self.tenant = tenant
        self.credit = 0
        self._directory = directory
        self._link = link
        self._spaces = spaces
        self._ids = ids
        self._consumer: Consumer | None = None
        self._core: Core | None = None
        self._has_left = False
        self._is_retrying = False
        self._exact: dict[str, list[Listener]] = {}
        self._gateways: dict[str, list[Listener]] = {}
        self._groups: dict[str, frozenset[str]] = {}
        """The groups to which the gateways belong that listen."""
        self._members: dict[str, dict[str, None]] = {}
        """The gateways that listen, by the groups that they belong to."""
        self._last: OrderedDict[str, str] = OrderedDict()
        self._under_way: dict[int, Any] = {}
        self._late: dict[int, Done] = {}
        """Those of them that were under way when the time that each has began anew, and what ends them."""
        self._in_time: dict[int, Done] = {}
        self._is_timed = False
        self._attach()

    # The address

    def _attach(self) -> None:
        self._is_retrying = False
        if self._consumer is not None or self._has_left:
            return
        space = self._spaces().get(self.tenant.space)
        if space is not None:
            self._core = space.core
            try:
                address = space.find(self.tenant.address(COMMAND))
                self.credit = 0
                self._consumer = address.attach_consumer(self, AttachOptions(source=address.name))
            except RemoteError:
                self._consumer = None
            else:
                self._renew()
                return
        core = self._core or self._link.core
        self._is_retrying = True
        core.call_later(RETRY_S, self._attach)

    def change(self, tenant: Tenant) -> None:
        """Take note of the tenant's present state."""
        if tenant.space != self.tenant.space:
            self._detach()
        self.tenant = tenant
        if self._consumer is None and not self._is_retrying:
            self._attach()

    def leave(self) -> None:
        """Receive no more commands: the tenant is gone."""
        self._has_left = True
        self._detach()

    def _detach(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.on_detached(closed=True)

    def _renew(self) -> None:
        if self._consumer is not None:
            gained = WINDOW - self.credit - len(self._under_way)
            self.credit += gained
            self._consumer.on_credit(gained, False)

    # A port of a receiver

    @property
    def consumer(self) -> Any:
        """The end of the link at the address."""
        return self._consumer

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        """Take a command from the address."""
        self.credit -= 1
        consumer = self._consumer
        key = id(delivery)
        self._under_way[key] = delivery

        def done(state: Any) -> None:
            if self._under_way.get(key) is not delivery:
                return
            del self._under_way[key]
            if self._in_time.pop(key, None) is None:
                self._late.pop(key, None)
            if not settled and consumer is self._consumer and consumer is not None:
                consumer.on_outcome(delivery, state)
            if 2 * self.credit <= WINDOW:
                self._renew()

        try:
            self._route(Sections(payload), done)
        except RemoteError as error:
            done(Rejected(AmqpError(error.condition, error.description)))
        if key in self._under_way:
            self._in_time[key] = done
            if not self._is_timed:
                self._time()

    def _time(self) -> None:
        """Look, after the time that each has, at what is under way now."""
        self._is_timed = True
        (self._core or self._link.core).call_later(ANSWER_S, self._end_late)

    def _end_late(self) -> None:
        self._is_timed = False
        late, self._late, self._in_time = self._late, self._in_time, {}
        for done in late.values():
            done(RELEASED)
        if self._late:
            self._time()

    def put(self, delivery: Any, payload: bytes, settled: bool) -> None:
        """Take a large command, which has used up its credit already."""
        self.credit += 1
        self.send(delivery, payload, settled)

    def take_back(self) -> None:
        """Take back the credit of a command that was not sent."""
        self.credit += 1
        self._renew()

    def send_while_it_comes(self, delivery: Any, settled: bool, message_format: int = 0) -> Gathered:
        """Take a command that is still being received."""
        return Gathered(self, delivery, settled)

    def admits(self, size: int) -> bool:
        """Return true: they are small."""
        return True

    def follow(self, delivery: Any) -> bool:
        """Return false: nothing is held back."""
        return False

    def drained(self) -> None:
        """Do nothing: nothing is drained."""

    def take_unsettled(self) -> list[Any]:
        """Remove and return the commands that have no outcome."""
        found, self._under_way = list(self._under_way.values()), {}
        self._late, self._in_time = {}, {}
        return found

    def detach(self, error: Any = None) -> None:
        """Note that the address is gone; it may come again."""
        self._consumer = None
        if not self._has_left and not self._is_retrying:
            self._is_retrying = True
            (self._core or self._link.core).call_later(RETRY_S, self._attach)

    # Who listens

    def listen(self, device: Device, listener: Listener) -> Callable[[], None]:
        """Have a listener offered the commands of a device; the latest is asked first."""
        end = _add(self._exact, device.id, listener)
        self._link.note("listening", self.tenant.id, device.id)
        return end

    def listen_for_all(self, gateway: Device, listener: Listener) -> Callable[[], None]:
        """Have a listener offered the commands of all devices of a gateway."""
        end = _add(self._gateways, gateway.id, listener)
        self._group(gateway.id, gateway.groups)
        self._link.note("listening", self.tenant.id, gateway.id)

        def ended() -> None:
            end()
            if gateway.id not in self._gateways:
                self._group(gateway.id, frozenset())

        return ended

    def regroup(self, gateway: Device) -> None:
        """Take note that a gateway belongs to other groups than before."""
        if gateway.id in self._gateways:
            self._group(gateway.id, gateway.groups)

    def _group(self, gateway: str, groups: frozenset[str]) -> None:
        before = self._groups.pop(gateway, frozenset())
        if groups:
            self._groups[gateway] = groups
        for group in before - groups:
            self._members[group].pop(gateway, None)
            if not self._members[group]:
                del self._members[group]
        for group in groups - before:
            self._members.setdefault(group, {})[gateway] = None

    def last_gateway(self, device: str, gateway: str) -> None:
        """Note that a gateway acts for a device."""
        if self._last.pop(device, None) is None and len(self._last) >= MAX_GATEWAYS:
            self._last.popitem(last=False)
        self._last[device] = gateway

    # The way of a command

    def _route(self, sections: Sections, done: Done) -> None:
        target = target_of(self.tenant, sections)
        command = command_of(self.tenant, target, sections, self._ids)
        if sections.application_properties.get(MODE) == "stored":
            self._store(command, sections, done)
            return
        check_volume(self.tenant)
        if not self._offer(self._exact.get(target, ()), command, done):
            self._directory.find_device(
                self.tenant, target, lambda found: self._route_by_gateway(found, command, done)
            )

    def _route_by_gateway(self, device: Found, command: Command, done: Done) -> None:
        if device is UNAVAILABLE:
            done(RELEASED)
        elif device is None:
            done(Rejected(AmqpError("amqp:not-found", f"there is no device {command.device!r:.255}")))
        elif not device.is_enabled:
            done(Rejected(AmqpError("amqp:not-found", f"device {command.device!r:.255} is disabled")))
        else:
            for gateway in self._gateways_of(device):
                if self._offer(self._gateways.get(gateway, ()), command, done):
                    return
            done(RELEASED)

    def _offer(self, listeners: Iterable[Listener], command: Command, done: Done) -> bool:
        """Offer a command to the newest that takes it; what nobody takes is not counted."""
        is_taken = any(listener.offer(command, done) for listener in reversed(list(listeners)))
        if is_taken:
            self.tenant.usage.take(len(command.payload))
        return is_taken

    def _gateways_of(self, device: Device) -> Iterable[str]:
        """Yield the gateways that may listen for a device, the one that has last acted for it first."""
        members = {gateway for group in device.gateway_groups for gateway in self._members.get(group, ())}
        allowed = device.via | members
        last = self._last.get(device.id)
        if last is not None and last in allowed:
            yield last
        yield from sorted(allowed - {last})

    def _store(self, command: Command, sections: Sections, done: Done) -> None:
        """Hand a command to the control process, which keeps it until its device listens."""
        properties, application = sections.properties, sections.application_properties
        payload, kind = as_bytes(sections.body)
        correlation_id = properties.correlation_id if properties.correlation_id is not None else properties.message_id
        if not isinstance(correlation_id, str | int | None):
            raise DeviceError(400, "the correlation-id of a command that is stored is a text or a number")
        question = {
            "what": "store",
            "tenant": self.tenant.id,
            "device-id": command.device,
            "name": command.name,
            "content-type": str(properties.content_type or kind),
            "payload": b64encode(payload).decode(),
            "ttl-ms": sections.header.ttl,
            "supersede-key": application.get(SUPERSEDE_KEY),
            "reply-to": properties.reply_to,
            "correlation-id": correlation_id,
        }

        def answered(answer: dict[str, Any] | None) -> None:
            if answer is None:
                done(RELEASED)
            elif answer.get("error"):
                done(Rejected(AmqpError("amqp:precondition-failed", str(answer["error"]))))
            else:
                done(ACCEPTED)

        if not self._link.ask(question, answered):
            done(RELEASED)


def _both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        one()
        other()

    return call


def _add(listeners: dict[str, list[Listener]], key: str, listener: Listener) -> Callable[[], None]:
    listeners.setdefault(key, []).append(listener)

    def end() -> None:
        found = listeners.get(key, [])
        if listener in found:
            found.remove(listener)
            if not found:
                del listeners[key]

    return end
