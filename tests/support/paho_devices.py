"""paho-mqtt as tests ask for it; see ``mqtt_devices``."""

from __future__ import annotations

import queue
import threading
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.support.mqtt_devices import WAIT_S

__all__ = ["PahoClient", "properties_of", "publish_properties", "received"]

_NAMES = {
    "content_type": "ContentType",
    "response_topic": "ResponseTopic",
    "correlation": "CorrelationData",
    "expiry": "MessageExpiryInterval",
    "format": "PayloadFormatIndicator",
}


def properties_of(packet_type: int, **values: Any) -> Properties:
    """Properties of a packet by paho's names; what is None is left out."""
    made = Properties(packet_type)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        if value is not None:
            setattr(made, name, value)
    return made


def publish_properties(options: dict[str, Any]) -> Properties:
    """The properties that a test asks a message to have."""
    told = {_NAMES[name]: value for name, value in options.items() if name in _NAMES}
    if "CorrelationData" in told:
        told["CorrelationData"] = bytes.fromhex(told["CorrelationData"])
    made = properties_of(PacketTypes.PUBLISH, **told)
    if "user_properties" in options:
        made.UserProperty = [tuple(pair.split("=")) for pair in options["user_properties"].split(",")]
    return made


def received(message: Any) -> dict[str, Any]:
    """A message as tests look at it."""
    told = {
        "topic": str(message.topic), "payload": bytes(message.payload).hex(), "qos": message.qos,
        "retain": bool(message.retain),
    }  # fmt: skip
    for ours, theirs in _NAMES.items():
        value = getattr(message.properties, theirs, None) if message.properties is not None else None
        if value is not None:
            told[ours] = value.hex() if isinstance(value, bytes) else value
    pairs = getattr(message.properties, "UserProperty", None) if message.properties is not None else None
    if pairs:
        told["user_properties"] = [list(pair) for pair in pairs]
    return told


class _Connection:
    """One client of paho, with its thread."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.is_five = options["version"] == 5
        self.inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self.connected: queue.Queue[dict[str, Any]] = queue.Queue()
        self.reasons: dict[int, ReasonCode | None] = {}
        self.acknowledged = threading.Condition()
        self.client = Client(
            CallbackAPIVersion.VERSION2,
            options["id"],
            protocol=options["version"],
            reconnect_on_failure=False,
            clean_session=None if self.is_five else bool(options["clean"]),
        )
        self.client.on_connect = self._on_connect
        self.client.on_message = lambda _client, _userdata, message: self.inbox.put(received(message))
        self.client.on_subscribe = self._on_acknowledged
        self.client.on_unsubscribe = self._on_acknowledged
        self.client.on_publish = self._on_acknowledged
        if options.get("user"):
            self.client.username_pw_set(options["user"], options.get("password"))
        if options.get("will_topic"):
            self.client.will_set(
                options["will_topic"],
                bytes.fromhex(options["will_payload"]),
                options["will_qos"],
                bool(options["will_retain"]),
                properties_of(PacketTypes.WILLMESSAGE, WillDelayInterval=options.get("will_delay"))
                if self.is_five
                else None,
            )

    def connect(self, options: dict[str, Any]) -> dict[str, Any]:
        if self.is_five:
            properties = properties_of(
                PacketTypes.CONNECT,
                SessionExpiryInterval=options.get("expiry"),
                ReceiveMaximum=options.get("receive_maximum"),
            )
            self.client.connect(
                "127.0.0.1", options["port"], clean_start=bool(options["clean"]), properties=properties
            )
        else:
            self.client.connect("127.0.0.1", options["port"])
        self.client.loop_start()
        return self.connected.get(timeout=WAIT_S)

    def _on_connect(self, _client: Any, _userdata: Any, flags: Any, reason: ReasonCode, _properties: Any) -> None:
        if reason.is_failure:
            self.connected.put({"refused": reason.value})
        else:
            self.connected.put({"present": flags.session_present})

    def _on_acknowledged(self, _client: Any, _userdata: Any, number: int, reason: Any, _properties: Any) -> None:
        with self.acknowledged:
            # A list for SUBACK and UNSUBACK, which is empty for UNSUBACK in 3.1.1.
            self.reasons[number] = next(iter(reason), None) if isinstance(reason, list) else reason
            self.acknowledged.notify_all()

    def reason(self, number: int) -> int:
        """The code by which something was acknowledged."""
        with self.acknowledged:
            assert self.acknowledged.wait_for(lambda: number in self.reasons, WAIT_S), "nothing was acknowledged"
            reason = self.reasons.pop(number)
        return 0 if reason is None else reason.value

    def end(self) -> None:
        self.client.loop_stop()


class PahoClient:
    """Connections of paho-mqtt."""

    def __init__(self) -> None:
        self._connections: dict[str, _Connection] = {}

    def ask(self, do: str, **options: Any) -> dict[str, Any]:
        told = {name: value for name, value in options.items() if value is not None}
        reply: dict[str, Any] = getattr(self, f"_{do}")(told)
        return reply

    def close(self) -> None:
        assert not self._connections

    def _connect(self, options: dict[str, Any]) -> dict[str, Any]:
        connection = _Connection(options)
        reply = connection.connect(options)
        if "refused" in reply:
            connection.end()
        else:
            self._connections[options["name"]] = connection
        return reply

    def _subscribe(self, options: dict[str, Any]) -> dict[str, Any]:
        connection = self._connections[options["name"]]
        if connection.is_five:
            asked = SubscribeOptions(
                options["qos"],
                noLocal=bool(options.get("no_local")),
                retainAsPublished=bool(options.get("as_published")),
                retainHandling=options.get("handling", 0),
            )
            _, number = connection.client.subscribe(options["filter"], options=asked)
        else:
            _, number = connection.client.subscribe(options["filter"], options["qos"])
        assert number is not None
        return {"granted": connection.reason(number)}

    def _unsubscribe(self, options: dict[str, Any]) -> dict[str, Any]:
        connection = self._connections[options["name"]]
        _, number = connection.client.unsubscribe(options["filter"])
        assert number is not None
        connection.reason(number)
        return {}

    def _publish(self, options: dict[str, Any]) -> dict[str, Any]:
        connection = self._connections[options["name"]]
        properties = publish_properties(options) if connection.is_five else None
        numbers = [
            connection.client.publish(
                options["topic"], bytes.fromhex(payload), options["qos"], bool(options["retain"]), properties
            ).mid
            for payload in options["payloads"].split(",")
        ]
        return {"reasons": [connection.reason(number) for number in numbers]}

    def _receive(self, options: dict[str, Any]) -> dict[str, Any]:
        inbox = self._connections[options["name"]].inbox
        found: list[dict[str, Any]] = []
        for _ in range(options["count"]):
            try:
                found.append(inbox.get(timeout=WAIT_S))
            except queue.Empty:
                raise AssertionError(f"{len(found)} of {options['count']} messages came: {found}") from None
        return {"messages": found}

    def _arrived(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"count": self._connections[options["name"]].inbox.qsize()}

    def _disconnect(self, options: dict[str, Any]) -> dict[str, Any]:
        connection = self._connections.pop(options["name"])
        connection.client.disconnect()
        connection.end()
        return {}

    def _forget(self, options: dict[str, Any]) -> dict[str, Any]:
        self._connections.pop(options["name"]).end()
        return {}
