"""Devices that speak AMQP: a sender of telemetry, events, responses and inquiries, and receivers of commands.

A device sends on the anonymous terminus, with ``to`` as Hono's AMQP adapter has it: ``telemetry``, ``event`` or
``inquiry``, alone or with ``/TENANT/DEVICE`` behind it; a response goes to its command's ``reply-to``, with its
status in the application property ``status``. It receives commands from ``command`` or ``command/TENANT/DEVICE``; the
tenant may be left empty. For answers to inquiries it receives from a dynamic address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Rejected
from enmasse.message.sections import Properties, Sections, encode_message
from enmasse.messaging.address import Address
from enmasse.messaging.delivery import Consumer
from enmasse.messaging.errors import AttachError
from enmasse.messaging.space import AnonymousTerminus
from enmasse.node.devices.messages import (
    Command,
    DeviceError,
    Downstream,
    Sent,
    check_payload,
    inquiry_of,
    response_of,
)
from enmasse.node.devices.tenants import AMQP, COMMAND, EVENT, INQUIRY, RESPONSE, TELEMETRY, Device, Tenant
from enmasse.node.plain_values import as_bytes

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.delivery import ConsumerPort, ProducerPort
    from enmasse.messaging.space import Space
    from enmasse.node.devices.devices import Devices


_SENT: Final = {
    "telemetry": TELEMETRY,
    "t": TELEMETRY,
    "event": EVENT,
    "e": EVENT,
    "inquiry": INQUIRY,
    "command_response": RESPONSE,
}


class _Named:
    """The kind and device of a message, by its ``to``."""

    __slots__ = ("device", "kind", "request_id")

    def __init__(self, tenant: Tenant, to: str) -> None:
        words = to.split("/")
        self.kind = _SENT.get(words[0], "")
        self.request_id = ""
        if self.kind == RESPONSE and len(words) == 4:
            self.request_id = words.pop()
        if not self.kind or len(words) not in (1, 3) or (self.kind == RESPONSE) != bool(self.request_id):
            raise DeviceError(
                404,
                f"devices send to telemetry, event, inquiry, or to a command's reply-to, not to {to!r:.200}; "
                "gateways put /TENANT/DEVICE behind",
            )
        self.device = words[2] if len(words) == 3 else ""
        if len(words) == 3 and words[1] not in ("", tenant.id, tenant.alias):
            raise DeviceError(403, f"the device is of another tenant than {words[1]!r:.200}")


class DeviceTerminus(AnonymousTerminus):
    """The sender of a device, which names in each message what that is.

    Args:
        space: the space of the device's tenant.
        port: the sender's link.
        devices: the devices of the node.
        device_of: returns the device that is connected.
        require: checks that it may send to an address.
    """

    __slots__ = ("_device_of", "_devices")

    def __init__(
        self,
        space: Space,
        port: ProducerPort,
        devices: Devices,
        device_of: Callable[[], Device],
        require: Callable[[str], None],
    ) -> None:
        super().__init__(space, port, require=require)
        self._devices = devices
        self._device_of = device_of

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Send a device's message to its address, once it is known of which device it is."""
        self._renew()
        gateway = self._device_of()
        try:
            sections = Sections(payload)
            named = _Named(gateway.tenant, sections.properties.to or "")
        except RemoteError as error:
            self._refuse(error, delivery_id, settled)
            return

        def found(device: Device | DeviceError) -> None:
            try:
                if isinstance(device, DeviceError):
                    raise device
                to, message = self._message(named, gateway, device, sections, settled=settled)
                target = self.end_of(to)
            except RemoteError as error:
                self._refuse(error, delivery_id, settled)
            else:
                target.on_crossed(message, delivery_id, settled, 0)

        self._devices.act_for(gateway, named.device, found)

    on_crossed = on_message

    def _message(
        self, named: _Named, gateway: Device, device: Device, sections: Sections, *, settled: bool
    ) -> tuple[str, bytes]:
        properties, application = sections.properties, sections.application_properties
        body, kind = as_bytes(sections.body)
        content_type = str(properties.content_type or kind)
        now_ms = self._devices.now_ms()
        tenant = device.tenant
        if named.kind == RESPONSE:
            status = application.get("status")
            if not isinstance(status, int) or not 200 <= status < 600:
                raise DeviceError(400, "a response has the application property status, from 200 to 599")
            to, correlation_id = self._devices.request_ids.read(tenant, device.id, named.request_id)
            return to, response_of(device, int(status), content_type, body, to, correlation_id, now_ms)
        if named.kind == INQUIRY:
            if not properties.reply_to:
                raise DeviceError(400, "an inquiry has a reply-to: the dynamic address of a receiver")
            correlation_id = properties.correlation_id
            if correlation_id is None:
                correlation_id = properties.message_id
            subject = properties.subject or ""
            return tenant.address(INQUIRY), inquiry_of(
                device, subject, content_type, body, properties.reply_to, correlation_id
            )
        check_payload(str(properties.content_type or ""), body)
        ttd = application.get("ttd")
        sent = Sent(
            kind=named.kind,
            device=device,
            adapter=AMQP,
            orig_address=properties.to or "",
            gateway=gateway.id if gateway.id != device.id else "",
            content_type=content_type,
            ttl_s=None if sections.header.ttl is None else sections.header.ttl // 1000,
            ttd_s=int(ttd) if isinstance(ttd, int) and ttd >= -1 else None,
            is_once=not settled,
            properties={
                str(name): value
                for name, value in application.items()
                if isinstance(value, str | int | float | bool | bytes)
            },
        )
        address = self._space.find(sent.address)
        return sent.address, Downstream(sent, is_partitioned=address.is_read_by_offset).message(body, now_ms)

    def _refuse(self, error: RemoteError, delivery_id: int, settled: bool) -> None:
        if settled:
            self._space.unroutable += 1
        elif isinstance(error, DeviceError) and error.status == 503:
            self.settle(delivery_id, RELEASED)  # the message is right, and may be sent again
        else:
            self.settle(delivery_id, Rejected(AmqpError(error.condition, error.description)))


class _Commands(Address):
    """Stands for the commands of a device where a link has its address."""

    kind = "command"

    def __init__(self, core: Core, name: str) -> None:
        super().__init__(core, name)
        self.leave: Callable[[], None] = _nothing

    def remove_consumer(self, consumer: Consumer) -> None:
        """Take no more commands for a receiver that is detached."""
        self.leave()


class _Delivery:
    """A command that a device has not settled."""

    __slots__ = ("done", "sink")

    def __init__(self, sink: CommandConsumer, done: Callable[[Any], None]) -> None:
        self.sink = sink
        self.done = done


class CommandConsumer(Consumer):
    """A receiver's end at the commands of a device; a ``Listener``.

    Args:
        core: the core of the space.
        port: the receiver's link.
        name: the name as the receiver names its source.
        tenant: the tenant of the device.
        presettle: true if the receiver asked for settled messages: a command is accepted as it is sent.
    """

    __slots__ = ("_tenant",)
    address: _Commands

    def __init__(self, core: Core, port: ConsumerPort, name: str, tenant: Tenant, *, presettle: bool) -> None:
        super().__init__(_Commands(core, name), port, presettle=presettle)
        self._tenant = tenant

    def offer(self, command: Command, done: Callable[[Any], None]) -> bool:
        """Send a command to the device; false if it takes none now."""
        if self.port.credit <= 0 or self.is_blocked:
            return False
        response = f"{RESPONSE}/{self._tenant.id}/{command.device}/{command.request_id}"
        message = encode_message(
            command.payload,
            properties=Properties(
                to=f"{COMMAND}/{self._tenant.id}/{command.device}",
                subject=command.name,
                content_type=command.content_type or None,
                reply_to=None if command.is_one_way else response,
                correlation_id=None if command.is_one_way else command.request_id,
            ),
            application_properties={"device_id": command.device},
        )
        self.deliveries += 1
        self.unsettled += not self.presettle
        self.send(_Delivery(self, done), message, self.presettle, 0)
        if self.presettle:
            done(ACCEPTED)
        return True

    def refuse(self, error: DeviceError) -> None:
        """Detach the receiver: the gateway may not act for the device any more."""
        self.port.detach(AmqpError(error.condition, error.description))
        self.on_detached()

    def on_credit(self, gained: int, drain: bool) -> None:
        """Drain, if the receiver wants that: nothing waits here."""
        if drain:
            self.port.drained()

    def on_outcome(self, delivery: Any, state: Any) -> None:
        """Pass the device's outcome to the sender of the command."""
        self.unsettled -= 1
        if state is not ACCEPTED:
            self.count(state)
        delivery.done(RELEASED if state is None else state)

    def on_detached(self, *, closed: bool = False) -> None:
        """Release what the device has not settled, and take no more commands."""
        for delivery in self.port.take_unsettled():
            self.on_outcome(delivery, RELEASED)
        super().on_detached(closed=closed)


def device_of_source(tenant: Tenant, name: str) -> str:
    """Return the device that a source of commands is of; empty: the connected one.

    Raises:
        AttachError: it is no source of a device.
    """
    words = name.split("/")
    is_named = len(words) == 3 and words[1] in ("", tenant.id, tenant.alias) and words[2]
    if words[0] != COMMAND or not (len(words) == 1 or is_named):
        raise AttachError(
            "amqp:not-found",
            f"devices receive from command, or command//DEVICE, not from {name!r:.200}",
        )
    return words[2] if is_named else ""


def _nothing() -> None:
    pass
