"""Clients of paho-mqtt whose sessions outlive their connections, and which come back to them by themselves."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paho.mqtt.client import Client

__all__ = ["PATIENCE_S", "WINDOW", "Publisher", "Speaker", "Subscriber", "at_work"]

WINDOW = 20
"""Messages that a client has on their way."""
PATIENCE_S = 60.0
NOT_FOUND = 0x92
"""The reason of a PUBCOMP for a packet id that is not known."""


def make_client(*arguments: Any, **options: Any) -> Client:
    """A client of paho-mqtt without a fault of it.

    With each attempt to connect again it looks anew at what is on its way, and takes a message that it has released
    already, with QoS 2, for one to be published. After two attempts it would so publish it twice.
    """
    from paho.mqtt.client import Client
    from paho.mqtt.enums import MessageState

    class Careful(Client):
        def _messages_reconnect_reset_out(self) -> None:
            released = [
                message
                for message in self._out_messages.values()
                if message.state == MessageState.MQTT_MS_RESEND_PUBREL
            ]
            super()._messages_reconnect_reset_out()
            for message in released:
                message.state = MessageState.MQTT_MS_RESEND_PUBREL

    return Careful(*arguments, **options)


class Speaker:
    """A client whose session stays, and which comes back to it by itself.

    Args:
        port: the node's.
        version: of the protocol, 4 or 5.
        will: the topic of its will, if it has one.
        user_name: what it logs in as; nothing without.

    Attributes:
        lost_sessions: how often it came back and its session was not there.
    """

    def __init__(self, port: int, version: int, will: str | None = None, *, user_name: str = "") -> None:
        from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        self.client = make_client(
            CallbackAPIVersion.VERSION2,
            f"crash-{uuid.uuid4()}",
            protocol=MQTTProtocolVersion(version),
            clean_session=None if version == 5 else False,
        )
        self.client.reconnect_delay_set(0.05, 0.2)  # type: ignore[arg-type]  # floats do
        self.client.max_inflight_messages_set(WINDOW)
        if user_name:
            self.client.username_pw_set(user_name)
        if will is not None:
            self.client.will_set(will, b"of one that came back", 1)
        self.client.on_connect = self._on_connect
        self.lost_sessions = 0
        self.changed = threading.Condition()
        self._connections = 0
        if version == 5:
            stays = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            stays.SessionExpiryInterval = 3600
            self.client.connect("127.0.0.1", port, clean_start=False, properties=stays)
        else:
            self.client.connect("127.0.0.1", port)

    def _on_connect(self, _client: Any, _userdata: Any, flags: Any, reason: Any, _properties: Any) -> None:
        with self.changed:
            if not reason.is_failure:
                self.lost_sessions += self._connections > 0 and not flags.session_present
                self._connections += 1
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE_S), what()

    def start(self) -> None:
        self.client.loop_start()
        self.wait_for(lambda: self._connections > 0, lambda: "it does not connect")

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


class Publisher(Speaker):
    """Publishes numbered messages until it is told to stop; a few are on their way at any time."""

    def __init__(
        self, port: int, version: int, target: str, qos: int, *, user_name: str = "", window: int = WINDOW
    ) -> None:
        super().__init__(port, version, user_name=user_name)
        self.window = window
        self.target = target
        self.qos = qos
        self.client.on_publish = self._on_publish
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.failures: list[str] = []
        self._numbers: dict[int, int] = {}
        self._early: set[int] = set()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._publish)

    def start(self) -> None:
        super().start()
        self._thread.start()

    def _publish(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self._is_stopping or len(self._numbers) < self.window)
                if self._is_stopping:
                    return
            # Without the lock: paho calls back with locks of its own.
            info = self.client.publish(self.target, str(self.sent).encode(), self.qos)
            with self.changed:
                if info.mid in self._early:
                    self._early.remove(info.mid)
                    self.acknowledged.add(self.sent)
                else:
                    self._numbers[info.mid] = self.sent
                self.sent += 1

    def _on_publish(self, _client: Any, _userdata: Any, number: int, reason: Any, _properties: Any) -> None:
        with self.changed:
            # After a crash the node may have forgotten what was released: it says so, and that is as good.
            if reason.is_failure and reason.value != NOT_FOUND:
                self.failures.append(str(reason))
            if number in self._numbers:
                self.acknowledged.add(self._numbers.pop(number))
            else:
                self._early.add(number)
            self.changed.notify_all()

    def stop(self) -> None:
        with self.changed:
            self._is_stopping = True
            self.changed.notify_all()
        super().stop()

    def finish(self) -> None:
        """Publish no more, and wait until all is acknowledged."""
        with self.changed:
            self._is_stopping = True
            self.changed.notify_all()
        self._thread.join(PATIENCE_S)
        self.wait_for(
            lambda: not self._numbers, lambda: f"{len(self._numbers)} of {self.target} are not acknowledged"
        )


class Subscriber(Speaker):
    """Puts down the numbers that come, by topic."""

    def __init__(self, port: int, version: int, *filters: str, will: str | None = None, user_name: str = "") -> None:
        super().__init__(port, version, will, user_name=user_name)
        self.client.on_message = self._on_message
        self.client.on_subscribe = self._on_subscribe
        self.received: dict[str, list[int]] = {}
        self._filters = filters
        self._granted: list[int] = []

    def start(self) -> None:
        super().start()
        self.client.subscribe([(text, 2) for text in self._filters])
        self.wait_for(lambda: bool(self._granted), lambda: "no SUBACK")
        assert self._granted == [2] * len(self._filters)

    def _on_subscribe(self, _client: Any, _userdata: Any, _number: Any, reasons: Any, _properties: Any) -> None:
        with self.changed:
            self._granted = [reason.value for reason in reasons]
            self.changed.notify_all()

    def _on_message(self, _client: Any, _userdata: Any, message: Any) -> None:
        with self.changed:
            self.received.setdefault(message.topic, []).append(int(message.payload))
            self.changed.notify_all()

    def count(self) -> int:
        return sum(map(len, self.received.values()))

    def await_more_than(self, number: int) -> None:
        self.wait_for(lambda: self.count() > number, lambda: f"no more than {self.count()} have come")

    def await_numbers(self, topic: str, last: int) -> None:
        """Wait until all numbers below have come."""

        def missing() -> list[int]:
            return sorted(set(range(last)) - set(self.received.get(topic, ())))

        self.wait_for(lambda: not missing(), lambda: f"of {last} on {topic} these never came: {missing()[:20]}")


@contextmanager
def at_work(*speakers: Speaker) -> Iterator[None]:
    for speaker in speakers:
        speaker.start()
    try:
        yield
    finally:
        for speaker in speakers:
            speaker.stop()
