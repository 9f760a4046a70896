"""Devices that speak MQTT: what they publish, the commands that they are sent, and the errors that they are told.

Rules:
1. A device has no session: nothing of it is kept from one connection to the next, and its will is ignored.
2. QoS 0 is at most once, QoS 1 is answered once the application has the message, or it is stored. There is no QoS 2.
3. What cannot be delivered is told to who subscribes to errors. Else the connection ends, unless the topic's property
   ``on-error`` says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.message.sections import Sections
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.dynamic import DynamicRequest
from enmasse.messaging.errors import AttachError
from enmasse.messaging.limits import filter_footprint
from enmasse.node.connections.client_connection import ClientLink
from enmasse.node.devices.messages import (
    EMPTY,
    Command,
    DeviceError,
    Downstream,
    RequestIds,
    Sent,
    check_payload,
    inquiry_of,
    response_of,
    seconds_of,
)
from enmasse.node.devices.tenants import COMMAND, INQUIRY, MQTT, Device
from enmasse.node.large_messages import Gathered
from enmasse.node.mqtt.device_topics import ERROR, FilterTopic, PublishTopic, read_filter, read_topic
from enmasse.node.mqtt.publications import Publications
from enmasse.node.mqtt.publishing import Overruled
from enmasse.node.mqtt.statistics import is_of_statistics
from enmasse.node.plain_values import as_bytes
from enmasse.wire.mqtt.handler import PublishSink
from enmasse.wire.mqtt.packets import (
    PacketError,
    PublishProperties,
    Reason,
    Subscribe,
    Unsubscribe,
    Version,
)
from enmasse.wire.mqtt.writing import encode_publish, encode_publish_properties

# A connection, and what its device sends and is sent, know each other.
if TYPE_CHECKING:
    from enmasse.node.devices.devices import Devices
    from enmasse.node.mqtt.connection import MqttConnection


MAX_COMMANDS: Final = 100
"""Commands of QoS 1 without an answer, at most as many as the device takes."""

MAX_ANSWERS: Final = 100
"""Answers to inquiries that may be on their way to a device."""

MAX_PACKET_ID: Final = 0xFFFF

_REASONS: Final = {
    400: Reason.TOPIC_NAME_INVALID,
    401: Reason.NOT_AUTHORIZED,
    403: Reason.NOT_AUTHORIZED,
    404: Reason.TOPIC_NAME_INVALID,
    413: Reason.PACKET_TOO_LARGE,
    429: Reason.QUOTA_EXCEEDED,
}
_STATUSES: Final = {
    Reason.NOT_AUTHORIZED: 403,
    Reason.TOPIC_NAME_INVALID: 404,
    Reason.PACKET_TOO_LARGE: 413,
    Reason.QUOTA_EXCEEDED: 503,
}


class NoSession:
    """Stands for the session that a device does not have."""

    is_lasting = is_present = has_no_local = False
    expiry_s = 0

    def resume(self) -> None:
        """Do nothing: nothing waits."""

    def review(self) -> None:
        """Do nothing: nothing is kept."""

    def cancel_will(self) -> None:
        """Do nothing: a device has none."""

    def detach(
        self, _holder: Any, *, is_clean_close: bool, expiry_s: int | None = None, is_node_gone: bool = False
    ) -> None:
        """Do nothing: nothing is kept."""


class _Policy:
    """A device's wish for the case that a message cannot be delivered."""

    __slots__ = ("correlation_id", "device", "endpoint", "on_error")

    def __init__(self, topic: PublishTopic, device: str) -> None:
        self.on_error = topic.on_error
        self.endpoint = "command-response" if topic.kind == COMMAND else topic.kind
        self.device = device
        self.correlation_id = topic.properties.get("correlation-id", "")


class DevicePublications(Publications):
    """The messages that a device publishes.

    Args:
        connection: the device's.
        device: the device that connects.
        devices: the devices of the node.
    """

    __slots__ = ("_acknowledge", "_devices", "_looked_up", "_mqtt", "_policies", "_subscriptions")

    def __init__(self, connection: MqttConnection, devices: Devices, subscriptions: DeviceSubscriptions) -> None:
        super().__init__(connection)
        self._mqtt = connection
        self._devices = devices
        self._subscriptions = subscriptions
        self._policies: dict[int, _Policy] = {}
        self._looked_up = 0
        """Devices that are being looked up; the client is not read meanwhile."""
        self._acknowledge = self.put_puback
        self.put_puback = self._acknowledged

    @property
    def device(self) -> Device:
        """The device that is connected."""
        device = self._mqtt.admission.device
        assert device is not None
        return device

    def make_sink(self, topic: str, properties: PublishProperties | None) -> PublishSink:
        """Return the sink for messages with this topic and these properties."""
        try:
            return DevicePublishing(self, topic, properties)
        except DeviceError as error:
            # A bridge of Mosquitto that is a gateway tells of itself, too.
            return Overruled(self, topic) if is_of_statistics(topic) else _Refusing(self, error)

    def publish(self, sink: DevicePublishing, device: Device, payload: bytes, flags: int, packet_id: int) -> None:
        """Send a message of a device to its address, or answer it with the reason why that is not possible."""
        if packet_id:
            self._policies[packet_id] = _Policy(sink.topic, device.id)
        try:
            name, message = sink.message_of(self, device, payload, flags)
            target = self._target(name)
            if len(message) > target.sender.most_bytes:
                raise DeviceError(413, f"a message may have up to {target.sender.most_bytes} bytes")
        except RemoteError as error:
            self.refuse(sink.topic, device.id, packet_id, error)
            return
        sender = target.sender
        if packet_id:
            self.keep(packet_id, target, message)
        if sender.received < sender.limit and not sender.waiting:
            sender.received += 1
            target.end.on_message(message, packet_id, not packet_id, 0)
            if sender.received == sender.limit:
                target.end.on_exhausted()
        else:
            sender.wait(target, message, packet_id)
        if len(self.unanswered) >= self.most_unanswered:
            self.hold()

    @property
    def refuses_unattended(self) -> bool:
        """True: a device is told at once that nobody listens."""
        return True

    @property
    def answers_to(self) -> str:
        """The address at which answers to inquiries arrive."""
        return self._subscriptions.answers_to

    @property
    def request_ids(self) -> RequestIds:
        """Reads the ids of requests."""
        return self._devices.request_ids

    def look_up(self, device: str, found: Callable[[Device | DeviceError], None]) -> None:
        """Find the device that the connected one acts for; the client is not read before that is known."""
        is_found = False

        def decided(which: Device | DeviceError) -> None:
            nonlocal is_found
            is_found = True
            found(which)
            if is_held:
                self._looked_up -= 1
                if not self._looked_up and not self.is_held and not self._engine.closed:
                    self._engine.hold_input(False)

        is_held = False
        self._devices.act_for(self.device, device, decided)
        if not is_found:
            is_held = True
            self._looked_up += 1
            self._engine.hold_input(True)

    def refuse(self, topic: PublishTopic, device: str, packet_id: int, error: RemoteError) -> None:
        """Answer a message that cannot be sent."""
        status = error.status if isinstance(error, DeviceError) else _status_of(error)
        policy = self._policies.pop(packet_id, None) or _Policy(topic, device)
        self._fail(policy, packet_id, status, error.description)

    def _acknowledged(self, packet_id: int, reason: int = 0, text: str = "") -> None:
        self._policies.pop(packet_id, None)
        self._acknowledge(packet_id, reason, text)

    def accepted(self, number: int, reason: int, text: str = "") -> None:
        """Answer a message that was accepted."""
        self._policies.pop(number, None)
        super().accepted(number, reason, text)

    def answer(self, number: int, reason: Reason, text: str) -> None:
        """Answer a message that was not accepted."""
        policy = self._policies.pop(number, None)
        if policy is not None:
            self._fail(policy, number, _STATUSES.get(reason, 503), text)
        if self.is_held:
            self._go_on_reading()

    def _fail(self, policy: _Policy, packet_id: int, status: int, text: str) -> None:
        is_told = self._subscriptions.tell_error(
            policy.device, policy.endpoint, policy.correlation_id or str(packet_id or -1), status, text
        )
        ends = policy.on_error == "disconnect" or (policy.on_error == "default" and not is_told)
        reason = _REASONS.get(status, Reason.IMPLEMENTATION_SPECIFIC_ERROR)
        if self.is_v5 and packet_id and policy.on_error != "skip-ack":
            self._engine.put_puback(packet_id, reason, text)
            if policy.on_error != "disconnect":
                return
        if ends:
            self._mqtt.fail_with(reason, text)
        elif packet_id and policy.on_error != "skip-ack":
            self._engine.put_puback(packet_id)

    def close(self) -> None:
        """Offer what waits with QoS 0 for the last time, as the connection is closed."""
        self._policies.clear()
        super().close()


def _status_of(error: RemoteError) -> int:
    return {
        "amqp:unauthorized-access": 403,
        "amqp:not-found": 503,
        "amqp:link:message-size-exceeded": 413,
        "amqp:resource-limit-exceeded": 429,
    }.get(error.condition, 503)


class DevicePublishing:
    """The ``PublishSink`` of a device's messages with the same topic and properties."""

    __slots__ = ("_downstream", "_flags", "_home", "_properties", "_text", "is_lasting", "topic")

    def __init__(self, home: DevicePublications, text: str, properties: PublishProperties | None) -> None:
        self._home = home
        self._text = text
        self._properties = properties
        self._downstream: Downstream | None = None
        self._flags = -1
        self.topic = read_topic(home.device.tenant, text)
        # Whether a gateway may act for a device is asked with each message.
        self.is_lasting = not self.topic.device and properties is None

    def on_publish(self, payload: bytes, flags: int, packet_id: int) -> None:
        """Take a message: at once, or when it is known whether a gateway may send it."""
        home = self._home
        if flags & 4:
            raise PacketError(Reason.QOS_NOT_SUPPORTED, "devices send with QoS 0 or 1")
        if not self.topic.device:
            home.publish(self, home.device, payload, flags, packet_id)
            return

        def found(device: Device | DeviceError) -> None:
            if isinstance(device, DeviceError):
                home.refuse(self.topic, self.topic.device, packet_id, device)
            else:
                home.publish(self, device, payload, flags, packet_id)

        home.look_up(self.topic.device, found)

    def message_of(self, home: DevicePublications, device: Device, payload: bytes, flags: int) -> tuple[str, bytes]:
        """Return the address and the message for a payload.

        Raises:
            RemoteError: it cannot be sent.
        """
        topic = self.topic
        now_ms = home.space.core.wall_us // 1000
        content_type = topic.properties.get("content-type", "")
        if self._properties is not None:
            content_type = content_type or self._properties.content_type or ""
        if topic.kind == COMMAND:
            to, correlation_id = home.request_ids.read(device.tenant, device.id, topic.request_id)
            return to, response_of(device, topic.status, content_type, payload, to, correlation_id, now_ms)
        if topic.kind == INQUIRY:
            to = device.tenant.address(INQUIRY)
            return to, inquiry_of(device, topic.name, content_type, payload, home.answers_to, topic.request_id)
        check_payload(content_type, payload)
        downstream = self._downstream
        if downstream is None or flags != self._flags:
            ttl_s = seconds_of(topic.properties, "hono-ttl")
            if ttl_s is None and self._properties is not None:
                ttl_s = self._properties.message_expiry_s
            user = dict(self._properties.user_properties) if self._properties is not None else {}
            sent = Sent(
                kind=topic.kind,
                device=device,
                adapter=MQTT,
                orig_address=self._text,
                gateway=home.device.id if device.id != home.device.id else "",
                content_type=content_type,
                ttl_s=ttl_s,
                ttd_s=seconds_of(topic.properties, "hono-ttd") if content_type == EMPTY else None,
                is_once=bool(flags & 2),
                is_retained=bool(flags & 1),
                properties=user,
            )
            address = home.space.find(sent.address)
            downstream = self._downstream = Downstream(sent, is_partitioned=address.is_read_by_offset)
            self._flags = flags
        return device.tenant.address(topic.kind), downstream.message(payload, now_ms)


class _Refusing:
    """The ``PublishSink`` of messages whose topic is none that devices may use."""

    __slots__ = ("_error", "_home")
    is_lasting = False

    def __init__(self, home: DevicePublications, error: DeviceError) -> None:
        self._home = home
        self._error = error

    def on_publish(self, payload: bytes, flags: int, packet_id: int) -> None:
        """Refuse a message."""
        topic = PublishTopic("unknown", "", "", 0, "", {})
        self._home.refuse(topic, self._home.device.id, packet_id, self._error)


class _Answers:
    """The receiver of answers to a device's inquiries, at an address of its own; a ``ConsumerPort``.

    Args:
        connection: the device's.
        deliver: sends the device an answer: its correlation id, and the message.
    """

    def __init__(self, connection: MqttConnection, deliver: Callable[[str, Sections], bool]) -> None:
        self.credit = 0
        self.is_detach_sent = False
        self._deliver = deliver
        link = ClientLink(self, "answers", "answers", None, is_sender=False)
        try:
            self.address = connection.make_dynamic(link, DynamicRequest())
            connection.count(link, self.address)
            self.consumer = self.address.attach_consumer(self, AttachOptions(source=self.address.name))
        except RemoteError as error:
            connection.refused(link, error)
            raise
        connection.joined(self, link, self.consumer)
        self._gain(MAX_ANSWERS)

    def _gain(self, credit: int) -> None:
        self.credit += credit
        self.consumer.on_credit(credit, False)

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        """Send the device an answer."""
        self.credit -= 1
        try:
            sections = Sections(payload)
            is_sent = self._deliver(str(sections.properties.correlation_id or ""), sections)
        except RemoteError:
            is_sent = False
        if not settled:
            self.consumer.on_outcome(delivery, ACCEPTED if is_sent else RELEASED)
        self._gain(1)

    def put(self, delivery: Any, payload: bytes, settled: bool) -> None:
        """Send a large answer, which has used up its credit already."""
        self.credit += 1
        self.send(delivery, payload, settled)

    def take_back(self) -> None:
        """Take back the credit of an answer that was not sent."""
        self._gain(1)

    def send_while_it_comes(self, delivery: Any, settled: bool, message_format: int = 0) -> Gathered:
        """Take an answer that is still being received."""
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
        """Return nothing: answers are settled as they come."""
        return []

    def detach(self, error: Any = None) -> None:
        """Do nothing: the address lasts as long as the connection."""
        self.is_detach_sent = True


class _CommandListener:
    """A subscription to commands."""

    __slots__ = ("_home", "end", "filter", "qos")

    def __init__(self, home: DeviceSubscriptions, topic: FilterTopic, qos: int) -> None:
        self._home = home
        self.filter = topic
        self.qos = qos
        self.end: Callable[[], None] = _nothing

    def offer(self, command: Command, done: Callable[[Any], None]) -> bool:
        """Send a command to the device; false if it takes none now."""
        return self._home.send_command(self, command, done)

    def refuse(self, error: DeviceError) -> None:
        """End the subscription: the gateway may not act for the device any more."""
        self._home.listener_refused(self, error)


class DeviceSubscriptions:
    """The messages that a device is sent: commands, errors, and answers to inquiries.

    Args:
        connection: the device's.
        devices: the devices of the node.
    """

    def __init__(self, connection: MqttConnection, devices: Devices) -> None:
        self._connection = connection
        self._engine = connection.engine
        self._devices = devices
        self._commands: dict[str, _CommandListener] = {}
        self._errors: dict[str, FilterTopic] = {}
        self._answers: dict[str, tuple[FilterTopic, int]] = {}
        self._counted: set[str] = set()
        """The filters that count as subscriptions of the space."""
        self._answering: _Answers | None = None
        self._under_way: dict[int, Callable[[Any], None]] = {}
        self._packet_id = 0
        self._most = min(MAX_COMMANDS, connection.engine.peer_receive_maximum)
        self._is_v5 = connection.engine.version is Version.V5

    @property
    def _device(self) -> Device:
        device = self._connection.admission.device
        assert device is not None
        return device

    # Packets

    def subscribe(self, packet: Subscribe) -> None:
        """Subscribe to filters; the answer follows when it is known which of them are allowed."""
        codes: list[int] = [Reason.TOPIC_FILTER_INVALID] * len(packet.filters)
        left, text = len(packet.filters), ""

        def decided(at: int, code: int, reason: str = "") -> None:
            nonlocal left, text
            codes[at] = code
            text = text or reason
            left -= 1
            if not left and not self._engine.closed:
                self._engine.put_suback(packet.packet_id, codes, text)

        for at, wanted in enumerate(packet.filters):
            try:
                topic = read_filter(self._device.tenant, wanted.text)
            except DeviceError as error:
                decided(at, _REASONS.get(error.status, Reason.TOPIC_FILTER_INVALID), error.description)
                continue
            try:
                self._count(wanted.text)
            except AttachError as error:
                decided(at, Reason.QUOTA_EXCEEDED, error.description)
                continue
            qos = min(wanted.qos, 1)
            if topic.kind == ERROR:
                self._errors[wanted.text] = topic
                decided(at, 0)
            elif topic.kind == INQUIRY:
                self._answers[wanted.text] = topic, qos
                decided(at, qos if self._receives_answers() else Reason.QUOTA_EXCEEDED)
            else:
                self._listen(wanted.text, topic, qos, lambda code, reason, at=at: decided(at, code, reason))  # type: ignore[misc]

    def _count(self, text: str) -> None:
        """Count a filter as a subscription of the space, if it is new.

        Raises:
            AttachError: the space has as many as it may.
        """
        space = self._connection.space
        if space is not None and text not in self._counted:
            space.usage.require_room(filter_footprint(text))
            space.usage.take(filter_footprint(text))
            self._counted.add(text)

    def _count_out(self, text: str) -> None:
        space = self._connection.space
        if space is not None and text in self._counted:
            self._counted.remove(text)
            space.usage.give_back(filter_footprint(text))

    def _listen(self, text: str, topic: FilterTopic, qos: int, decided: Callable[[int, str], None]) -> None:
        """Listen for commands."""
        listener = _CommandListener(self, topic, qos)

        def found(device: Device | DeviceError) -> None:
            if isinstance(device, DeviceError):
                if text not in self._commands:
                    self._count_out(text)
                decided(_REASONS.get(device.status, Reason.NOT_AUTHORIZED), device.description)
                return
            former = self._commands.pop(text, None)
            if former is not None:
                former.end()
            # The acknowledgement goes before any command.
            decided(qos, "")
            self._commands[text] = listener
            listener.end = self._devices.commands.listen(device, listener, lambda: self._device, adapter=MQTT)

        if topic.device == "+":
            former = self._commands.pop(text, None)
            if former is not None:
                former.end()
            decided(qos, "")
            self._commands[text] = listener
            listener.end = self._devices.commands.listen_for_all(self._device, listener, adapter=MQTT)
        else:
            self._devices.act_for(self._device, topic.device, found)

    def listener_refused(self, listener: _CommandListener, error: DeviceError) -> None:
        """End a subscription; of that version 5 and subscribers to errors need no end of the connection."""
        for text in [text for text, each in self._commands.items() if each is listener]:
            del self._commands[text]
            self._connection.log("link-detached", error, role="receiver", address=text)
        listener.end()
        is_told = self.tell_error(listener.filter.device, COMMAND, "-1", error.status, error.description)
        if not (is_told or self._is_v5):
            self._connection.fail_with(Reason.NOT_AUTHORIZED, error.description)

    def unsubscribe(self, packet: Unsubscribe) -> None:
        """Unsubscribe from filters."""
        codes = []
        for text in packet.filters:
            self._count_out(text)
            listener = self._commands.pop(text, None)
            if listener is not None:
                listener.end()
            is_known = listener is not None
            is_known |= self._errors.pop(text, None) is not None
            is_known |= self._answers.pop(text, None) is not None
            codes.append(Reason.SUCCESS if is_known else Reason.NO_SUBSCRIPTION_EXISTED)
        self._engine.put_unsuback(packet.packet_id, codes)

    def on_puback(self, packet_id: int, reason: int) -> None:
        """Settle a command that the device has acknowledged."""
        done = self._under_way.pop(packet_id, None)
        if done is not None:
            done(ACCEPTED if reason < Reason.UNSPECIFIED_ERROR else RELEASED)

    def on_pubrec(self, packet_id: int, reason: int) -> None:
        """Do nothing: nothing is sent with QoS 2."""

    def on_pubcomp(self, packet_id: int) -> None:
        """Do nothing: nothing is sent with QoS 2."""

    # What the device is sent

    def _receives_answers(self) -> bool:
        if self._answering is None:
            try:
                self._answering = _Answers(self._connection, self._send_answer)
            except RemoteError:
                return False
        return True

    @property
    def answers_to(self) -> str:
        """The address at which answers to inquiries arrive.

        Raises:
            DeviceError: the device does not subscribe to them.
        """
        if self._answering is None or not self._answers:
            raise DeviceError(400, "subscribe to inquiry///res/# before you ask")
        return self._answering.address.name

    def _send_answer(self, request_id: str, sections: Sections) -> bool:
        status = sections.application_properties.get("status")
        code = int(status) if isinstance(status, int) and 200 <= status < 600 else 200
        payload, kind = as_bytes(sections.body)
        told = PublishProperties(content_type=str(sections.properties.content_type or kind) or None)
        for topic, qos in self._answers.values():
            return self._put(topic.answer_topic(request_id, code), payload, qos, told, _ignore)
        return False

    def send_command(self, listener: _CommandListener, command: Command, done: Callable[[Any], None]) -> bool:
        """Send a command; it is accepted when it is acknowledged, or with QoS 0 as it is sent."""
        if self._engine.closed or self._engine.is_blocked or len(self._under_way) >= self._most:
            return False
        topic = listener.filter.command_topic(command.device, command.request_id, command.name)
        properties = PublishProperties(content_type=command.content_type or None)
        if not self._put(topic, command.payload, listener.qos, properties, done):
            return False
        if not listener.qos:
            done(ACCEPTED)
        return True

    def _put(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        properties: PublishProperties,
        done: Callable[[Any], None],
    ) -> bool:
        name = topic.encode(errors="replace")
        most = self._engine.peer_maximum_packet_size
        if len(name) > 0xFFFF or "+" in topic or "#" in topic or (most and len(name) + len(payload) + 64 > most):
            return False
        packet_id = 0
        if qos:
            packet_id = self._packet_id
            while True:
                packet_id = packet_id % MAX_PACKET_ID + 1
                if packet_id not in self._under_way:
                    break
            self._packet_id = packet_id
            self._under_way[packet_id] = done
        told = encode_publish_properties(properties) if self._is_v5 else b""
        self._engine.put(encode_publish(name, payload, qos=qos, packet_id=packet_id, properties=told))
        return True

    def tell_error(self, device: str, endpoint: str, correlation_id: str, status: int, text: str) -> bool:
        """Tell the device of an error, if it subscribes to errors; return whether it does."""
        own = device == self._device.id
        topics = [
            topic for topic in self._errors.values() if topic.device in ("+", device) or (own and not topic.device)
        ]
        for topic in topics[:1]:
            document = {
                "code": status,
                "message": text,
                "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "correlation-id": correlation_id,
            }
            name = topic.error_topic(device, endpoint, correlation_id, status)
            told = PublishProperties(content_type="application/json")
            self._put(name, json.dumps(document).encode(), 0, told, _ignore)
        return bool(topics)

    # Its connection

    def go_on(self) -> None:
        """Do nothing: nothing waits."""

    def on_blocked(self, is_blocked: bool) -> None:
        """Do nothing: commands are not offered while the socket is blocked."""

    def on_written(self) -> None:
        """Do nothing: nothing is renewed."""

    def filter_ended(self, text: str, error: RemoteError) -> None:
        """Do nothing: there are no statistics."""

    def close(self) -> None:
        """End all subscriptions; commands that have no answer may be sent again."""
        for listener in self._commands.values():
            listener.end()
        self._commands.clear()
        for text in list(self._counted):
            self._count_out(text)
        under_way, self._under_way = self._under_way, {}
        for done in under_way.values():
            done(RELEASED)


def _nothing() -> None:
    pass


def _ignore(_state: Any) -> None:
    pass
