"""Messages of devices and of their applications, in the form that Hono's applications know [Hono 2, APIs over AMQP].

Rules:
1. What a device sends has one data section, and says in application properties which device it is of, by which
   adapter it came and to which address the device had sent it.
2. A command names its device in ``to``, itself in ``subject``, and where its response goes in ``reply-to`` and
   ``correlation-id``; without these nobody waits for a response.
3. The id of a request, which the device sends back with its response, holds where that goes. It is signed, so that a
   device answers what it was asked and nothing else; the key is the node's, of this start.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from enmasse.errors import LocalError, RemoteError
from enmasse.message.codec import decode, encode
from enmasse.message.sections import PARTITION_KEY, RETAIN, Header, Properties, Sections, data_start, encode_message
from enmasse.message.types import Int, Timestamp
from enmasse.messaging.dynamic import DYNAMIC_PREFIX
from enmasse.node.devices.tenants import COMMAND, EVENT, INQUIRY, MAX_TTL_S, RESPONSE, TELEMETRY, Device, Tenant
from enmasse.node.plain_values import as_bytes

OCTETS: Final = "application/octet-stream"
EMPTY: Final = "application/vnd.eclipse-hono-empty-notification"

_EMPTY_DATA: Final = b"\x00\x53\x75\xa0\x00"
_SOME_TIME: Final = 0x1122334455667788
"""Stands for the time at which a message came; in UTF-8 its last byte cannot follow the others."""

_TIME_BYTES: Final = b"\x83" + _SOME_TIME.to_bytes(8, "big")
_SIGNATURE_BYTES: Final = 12

_OURS: Final = frozenset(("content-type", "ttl", "ttl-telemetry-qos0", "ttl-telemetry-qos1", "ttl-command-response"))
"""Defaults that are no properties of messages."""

_NODES: Final = frozenset(("device_id", "tenant_id", "gateway_id", "orig_adapter", "orig_address", "ttd", "ttl"))
"""Properties that the node alone gives a message."""


class DeviceError(RemoteError):
    """Raised when what a device asks for cannot be done.

    Attributes:
        status: in the codes of HTTP, as Hono's adapters tell it in every protocol.
    """

    def __init__(self, status: int, description: str, condition: str = "") -> None:
        super().__init__(condition or _CONDITIONS.get(status, "amqp:internal-error"), description)
        self.status = status


_CONDITIONS: Final = {
    400: "hono:bad-request",
    401: "amqp:unauthorized-access",
    403: "amqp:unauthorized-access",
    404: "amqp:not-found",
    413: "amqp:link:message-size-exceeded",
    429: "amqp:resource-limit-exceeded",
    503: "hono:service-unavailable",
}
"""The condition of AMQP for each status."""


@dataclass(slots=True)
class Sent:
    """The description that a device gives of the messages that it sends.

    Attributes:
        kind: ``telemetry`` or ``event``.
        device: the device that sends them.
        adapter: by which they come.
        orig_address: to which the device sends them.
        gateway: the id of the device that sends them for it; empty: it sends them itself.
        content_type: the type of the payload; empty: not said.
        ttl_s: the seconds that they may wait; None: not said.
        ttd_s: the seconds that the device waits for a command from now on; None: not said.
        is_once: true if they are to arrive at least once.
        is_retained: true if the device asks to have them retained.
        properties: the rest of what it says.
    """

    kind: str
    device: Device
    adapter: str
    orig_address: str
    gateway: str = ""
    content_type: str = ""
    ttl_s: int | None = None
    ttd_s: int | None = None
    is_once: bool = True
    is_retained: bool = False
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """The address to which they go."""
        return self.device.tenant.address(self.kind)


class Downstream:
    """Makes messages to the applications from payloads of a device.

    Args:
        sent: the description of them.
        is_partitioned: true if the address keeps the order of messages with the same key.
    """

    __slots__ = ("_at", "_head", "_tenant")

    def __init__(self, sent: Sent, *, is_partitioned: bool = False) -> None:
        device = sent.device
        self._tenant = device.tenant
        defaults = {**device.tenant.defaults, **device.defaults}
        header = Header(durable=sent.kind == EVENT or (sent.is_once and is_partitioned))
        ttl_s = _ttl_of(sent, defaults)
        if ttl_s is not None:
            header.ttl = min(ttl_s, MAX_TTL_S) * 1000 or 1
        application: dict[str, Any] = {
            name: value
            for name, value in defaults.items()
            if name not in _OURS and isinstance(value, str | int | float | bool)
        }
        application |= {name: value for name, value in sent.properties.items() if name not in _NODES}
        application |= {
            "device_id": device.id,
            "tenant_id": device.tenant.id,
            "orig_adapter": sent.adapter,
            "orig_address": sent.orig_address,
        }
        if sent.gateway:
            application["gateway_id"] = sent.gateway
        if sent.ttd_s is not None:
            application["ttd"] = Int(sent.ttd_s)
        annotations: dict[str, Any] = {}
        if sent.is_retained:
            annotations[RETAIN] = True
        if is_partitioned:
            annotations[PARTITION_KEY] = device.id
        content_type = sent.content_type or str(defaults.get("content-type") or OCTETS)
        try:
            payload = encode_message(
                b"",
                header=header,
                message_annotations=annotations,
                properties=Properties(
                    to=sent.address, content_type=content_type, creation_time=Timestamp(_SOME_TIME)
                ),
                application_properties=application,
            )
        except (LocalError, UnicodeError) as error:
            raise DeviceError(400, str(error)) from None
        self._head = payload[: -len(_EMPTY_DATA)]
        self._at = self._head.index(_TIME_BYTES) + 1

    def message(self, body: bytes, now_ms: int) -> bytes:
        """Return the message with a payload that came at a time, in milliseconds since 1970 UTC.

        Raises:
            DeviceError: the tenant's data volume is used up.
        """
        count_payload(self._tenant, len(body))
        return self.uncounted(body, now_ms)

    def uncounted(self, body: bytes, now_ms: int) -> bytes:
        """Return the message, whose payload uses up nothing of the tenant's data volume."""
        head, at = self._head, self._at
        return b"".join((head[:at], now_ms.to_bytes(8, "big"), head[at + 8 :], data_start(len(body)), body))


def _ttl_of(sent: Sent, defaults: dict[str, Any]) -> int | None:
    """Return how many seconds a message may wait: what is said of it or its default, within the tenant's bound."""
    name = "ttl"
    if sent.kind == TELEMETRY:
        name = "ttl-telemetry-qos1" if sent.is_once else "ttl-telemetry-qos0"
    own = sent.ttl_s if sent.ttl_s is not None else defaults.get(name)
    most = sent.device.tenant.most_ttl_s(sent.kind, is_once=sent.is_once)
    found = [each for each in (own, most) if isinstance(each, int) and not isinstance(each, bool) and each >= 0]
    return min(found, default=None)


def seconds_of(properties: Mapping[str, str], name: str) -> int | None:
    """Return a property that is a number of seconds; None: it is not there.

    Raises:
        DeviceError: it is no such number.
    """
    text = properties.get(name)
    if text is None:
        return None
    found = int(text) if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 11 else -2
    least = -1 if name.endswith("ttd") else 0
    if found < least:
        raise DeviceError(400, f"{name} is a number of seconds, not {text!r:.40}")
    return found


def count_payload(tenant: Tenant, size: int) -> None:
    """Count a payload that a device of a tenant sends or is sent.

    Raises:
        DeviceError: the tenant's data volume is used up.
    """
    check_volume(tenant)
    tenant.usage.take(size)


def check_volume(tenant: Tenant) -> None:
    """Check that a tenant may use more.

    Raises:
        DeviceError: its data volume is used up.
    """
    if not tenant.usage.may_send:
        raise DeviceError(429, f"the devices of tenant {tenant.id!r} have used up their data volume")


def check_payload(content_type: str, body: bytes) -> None:
    """Check what a device sends.

    Raises:
        DeviceError: it is empty and has no content type, or it says that it is empty and is not.
    """
    if not body and not content_type:
        raise DeviceError(400, f"the message is empty: give it a payload, or a content type, such as {EMPTY}")
    if body and content_type == EMPTY:
        raise DeviceError(400, f"a message with the content type {EMPTY} has no payload")


@dataclass(frozen=True, slots=True)
class Command:
    """A command to a device.

    Attributes:
        device: to which it goes.
        name: the name of the command.
        content_type: the type of the payload; empty: not said.
        payload: for the device.
        request_id: the id that the device sends back with its response; empty: it sends none.
    """

    device: str
    name: str
    content_type: str
    payload: bytes
    request_id: str

    @property
    def is_one_way(self) -> bool:
        """True if nobody waits for a response."""
        return not self.request_id


class RequestIds:
    """Makes and reads the ids of requests.

    Args:
        key: secret; ids that were made with another are refused.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def make(self, tenant: Tenant, device: str, reply_to: str, correlation_id: Any) -> str:
        """Return the id of a request to a device."""
        held = encode([reply_to, correlation_id, device])
        return urlsafe_b64encode(self._sign(tenant, held) + held).decode().rstrip("=")

    def read(self, tenant: Tenant, device: str, request_id: str) -> tuple[str, Any]:
        """Return where the response goes, and its correlation id.

        Raises:
            DeviceError: the device was not asked that.
        """
        refused = DeviceError(400, "there is no request with this id, or it was another device's")
        try:
            data = urlsafe_b64decode(request_id + "=" * (-len(request_id) % 4))
        except ValueError:
            raise refused from None
        signature, held = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._sign(tenant, held)):
            raise refused
        (reply_to, correlation_id, asked), _ = decode(held, 0, len(held))
        if asked != device:
            raise refused
        return reply_to, correlation_id

    def _sign(self, tenant: Tenant, held: bytes) -> bytes:
        return hmac.digest(self._key, tenant.id.encode() + b"\0" + held, "sha256")[:_SIGNATURE_BYTES]


def target_of(tenant: Tenant, sections: Sections) -> str:
    """Return the id of the device that a command is for.

    Raises:
        DeviceError: it names none of the tenant's.
    """
    to = sections.properties.to or ""
    prefix = tenant.address(COMMAND) + "/"
    if not to.startswith(prefix) or not to[len(prefix) :] or "/" in to[len(prefix) :]:
        raise DeviceError(400, f"the command's to is {prefix}DEVICE, not {to!r:.200}")
    return to[len(prefix) :]


def command_of(tenant: Tenant, device: str, sections: Sections, ids: RequestIds) -> Command:
    """Return a command as devices are told it.

    Raises:
        RemoteError: it is malformed.
    """
    properties = sections.properties
    if not properties.subject:
        raise DeviceError(400, "the command has no subject, which is its name")
    reply_to, request_id = properties.reply_to, ""
    if reply_to:
        if not reply_to.startswith((tenant.address(RESPONSE) + "/", DYNAMIC_PREFIX)):
            raise DeviceError(400, f"the command's reply-to is {tenant.address(RESPONSE)}/ID, not {reply_to!r:.200}")
        correlation_id = properties.correlation_id
        if correlation_id is None:
            correlation_id = properties.message_id
        if correlation_id is None:
            raise DeviceError(400, "the command has a reply-to and neither correlation-id nor message-id")
        request_id = ids.make(tenant, device, reply_to, correlation_id)
    payload, kind = as_bytes(sections.body)
    return Command(device, properties.subject, str(properties.content_type or kind), payload, request_id)


def response_of(
    device: Device, status: int, content_type: str, body: bytes, to: str, correlation_id: Any, now_ms: int
) -> bytes:
    """Return the message with a device's response.

    Raises:
        DeviceError: the tenant's data volume is used up.
    """
    count_payload(device.tenant, len(body))
    most_s = device.tenant.most_ttl_s(RESPONSE)
    own = device.defaults.get("ttl-command-response", device.tenant.defaults.get("ttl-command-response"))
    found = [each for each in (own, most_s) if isinstance(each, int) and each >= 0]
    header = Header(ttl=min(*found, MAX_TTL_S) * 1000 or 1) if found else Header()
    return encode_message(
        body,
        header=header,
        properties=Properties(
            to=to,
            correlation_id=correlation_id,
            content_type=content_type or None,
            creation_time=Timestamp(now_ms),
        ),
        application_properties={"status": Int(status), "device_id": device.id, "tenant_id": device.tenant.id},
    )


def inquiry_of(
    device: Device, name: str, content_type: str, body: bytes, reply_to: str, correlation_id: Any = None
) -> bytes:
    """Return the message with an inquiry of a device.

    Raises:
        DeviceError: the tenant's data volume is used up.
    """
    count_payload(device.tenant, len(body))
    return encode_message(
        body,
        properties=Properties(
            to=device.tenant.address(INQUIRY),
            subject=name,
            reply_to=reply_to,
            correlation_id=reply_to if correlation_id is None else correlation_id,
            content_type=content_type or OCTETS,
        ),
        application_properties={"device_id": device.id, "tenant_id": device.tenant.id},
    )
