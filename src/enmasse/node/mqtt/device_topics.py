"""The topics by which devices speak MQTT, as Hono's MQTT adapter has them.

``telemetry`` and ``event``, alone or followed by ``/T/D``; ``command/T/D/req/#`` to be sent commands, and
``command/T/D/res/ID/STATUS`` for responses; ``error/T/D/#`` to be told of errors. T is the tenant, D the device: both
may be empty, which is one's own, and D may be ``+`` for all devices of a gateway. Each word has a short form: ``t``,
``e``, ``c``, ``q`` and ``s``. A message's topic may end with properties, as in ``telemetry/?content-type=a%2Fb``.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from enmasse.node.devices.messages import DeviceError
from enmasse.node.devices.tenants import COMMAND, EVENT, INQUIRY, TELEMETRY, Tenant

ERROR: Final = "error"

KINDS: Final = {
    "telemetry": TELEMETRY,
    "t": TELEMETRY,
    "event": EVENT,
    "e": EVENT,
    "command": COMMAND,
    "c": COMMAND,
    "inquiry": INQUIRY,
    "i": INQUIRY,
}
"""The meaning of each word with which a topic begins; no connector has such a name."""

ON_ERROR: Final = ("default", "disconnect", "ignore", "skip-ack")
MAX_PROPERTIES: Final = 20


class PublishTopic(NamedTuple):
    """The topic of a message from a device.

    Attributes:
        kind: ``telemetry``, ``event``, ``command`` for a response, or ``inquiry``.
        device: of which it is; empty: of the device that is connected.
        request_id: the id of a response or an inquiry.
        status: the status of a response.
        name: the name of an inquiry.
        properties: at the end of the topic.
    """

    kind: str
    device: str
    request_id: str
    status: int
    name: str
    properties: dict[str, str]

    @property
    def on_error(self) -> str:
        """The fate of the connection if the message cannot be delivered; of ``ON_ERROR``."""
        return self.properties.get("on-error", "default")


class FilterTopic(NamedTuple):
    """A filter to which a device subscribes.

    Attributes:
        kind: ``command``, ``error`` or ``inquiry``.
        device: for which; empty: for the device itself; ``+``: for all devices of a gateway.
        word: the first word, as the device wrote it.
        tenant: the second, as the device wrote it.
        action: the fourth, as the device wrote it; empty for errors.
    """

    kind: str
    device: str
    word: str
    tenant: str
    action: str

    def command_topic(self, device: str, request_id: str, name: str) -> str:
        """Return the topic with which a command is delivered."""
        target = device if self.device else ""
        return f"{self.word}/{self.tenant}/{target}/{self.action}/{request_id}/{name}"

    def error_topic(self, device: str, endpoint: str, correlation_id: str, status: int) -> str:
        """Return the topic with which an error is told."""
        target = device if self.device else ""
        return f"{self.word}/{self.tenant}/{target}/{endpoint}/{correlation_id}/{status}"

    def answer_topic(self, request_id: str, status: int) -> str:
        """Return the topic with which an answer to an inquiry is delivered."""
        return f"{self.word}/{self.tenant}//{self.action}/{request_id}/{status}"


def read_topic(tenant: Tenant, topic: str) -> PublishTopic:
    """Read the topic of a message.

    Raises:
        DeviceError: it is none that devices may use.
    """
    path, mark, bag = topic.rpartition("/?")
    if not mark:
        path, bag = topic, ""
    properties = _read_bag(bag)
    words = path.rstrip("/").split("/") if path.count("/") < 3 else path.split("/")
    kind = KINDS.get(words[0])
    if kind in (TELEMETRY, EVENT):
        if len(words) > 3:
            raise _unknown(topic)
        _check_tenant(tenant, words[1] if len(words) > 1 else "")
        return PublishTopic(kind, words[2] if len(words) > 2 else "", "", 0, "", properties)
    if kind == COMMAND and len(words) == 6 and words[3] in ("res", "s"):
        _check_tenant(tenant, words[1])
        return PublishTopic(kind, words[2], words[4], _status(words[5]), "", properties)
    if kind == INQUIRY and len(words) == 6 and words[3] in ("req", "q") and words[4] and words[5]:
        _check_tenant(tenant, words[1])
        return PublishTopic(kind, words[2], words[4], 0, words[5], properties)
    raise _unknown(topic)


def read_filter(tenant: Tenant, text: str) -> FilterTopic:
    """Read the filter of a subscription.

    Raises:
        DeviceError: it is none that devices may use.
    """
    words = text.split("/")
    kind = ERROR if words[0] in ("error", "e") and len(words) == 4 else KINDS.get(words[0], "")
    is_right = len(words) == (4 if kind == ERROR else 5) and words[-1] == "#" and "#" not in words[2]
    if kind == COMMAND and is_right and words[3] in ("req", "q"):
        _check_tenant(tenant, words[1])
        return FilterTopic(kind, words[2], words[0], words[1], words[3])
    if kind == INQUIRY and is_right and words[3] in ("res", "s") and not words[2]:
        _check_tenant(tenant, words[1])
        return FilterTopic(kind, "", words[0], words[1], words[3])
    if kind == ERROR and is_right:
        _check_tenant(tenant, words[1])
        return FilterTopic(kind, words[2], words[0], words[1], "")
    raise DeviceError(
        404,
        f"devices subscribe to command/[T]/[D]/req/#, error/[T]/[D]/# and inquiry/[T]//res/#, not to {text!r:.200}",
    )


def _read_bag(text: str) -> dict[str, str]:
    try:
        found = dict(
            parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=MAX_PROPERTIES)
        )
    except ValueError:
        raise DeviceError(400, f"the properties of a topic are up to {MAX_PROPERTIES} name=value with &") from None
    if found.get("on-error", "default") not in ON_ERROR:
        raise DeviceError(400, f"on-error is one of {', '.join(ON_ERROR)}")
    return found


def _check_tenant(tenant: Tenant, named: str) -> None:
    if named not in ("", tenant.id, tenant.alias):
        raise DeviceError(403, f"the device is of another tenant than {named!r:.200}")


def _status(text: str) -> int:
    status = int(text) if text.isascii() and text.isdigit() and len(text) == 3 else 0
    if not 200 <= status < 600:
        raise DeviceError(400, f"the status of a response is a number from 200 to 599, not {text!r:.20}")
    return status


def _unknown(topic: str) -> DeviceError:
    return DeviceError(
        404,
        "devices publish to telemetry, event, command/[T]/[D]/res/ID/STATUS and inquiry/[T]/[D]/req/ID/NAME, not to "
        f"{topic!r:.200}",
    )
