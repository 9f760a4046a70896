"""paho-mqtt through kills of node and journal: QoS 1 loses nothing, QoS 2 doubles nothing, and wills are sent."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.client import blocking
from tests.support.chance import kills
from tests.support.foreign_tools import require
from tests.support.node_process import NodeProcess
from tests.support.polling import until

if TYPE_CHECKING:
    from paho.mqtt.client import Client

pytestmark = [pytest.mark.slow, pytest.mark.chance]

SPACE = "default/crash"
TOPIC, QUEUE = "news", "orders"

WINDOW = 20
"""Messages that a client has on their way."""
STEP = 60
"""Messages that come from one kill to the next."""
PATIENCE_S = 60.0
NOT_FOUND = 0x92
"""The reason of a PUBCOMP for a packet id that is not known."""


@contextmanager
def management(process: NodeProcess) -> Iterator[Any]:
    with blocking.connect(process.admin_url, patience=20) as connection:
        yield connection.management()


def declare(process: NodeProcess) -> None:
    """Make the space, a topic and a queue."""
    require("paho-mqtt")
    with management(process) as found:
        found.create("io.enmasse.space", SPACE, {"authentication": "none"})
        for address, kind in ((TOPIC, "topic"), (QUEUE, "queue")):
            attributes = {"space": SPACE, "address": address, "addressType": kind}
            found.create("io.enmasse.address", f"{SPACE}.{address}", attributes)


def connected(process: NodeProcess) -> list[str]:
    """The names of the clients."""
    with management(process) as found:
        return [str(entity["container"]) for entity in found.query("io.enmasse.connection")]


def journal_pid(process: NodeProcess) -> int:
    with management(process) as found:
        (told,) = found.query("io.enmasse.statistics", ["journalPid"])
    return int(told["journalPid"] or 0)


# Kills


def kill_node(process: NodeProcess, chance: random.Random) -> None:
    process.kill()
    process.start()


def kill_both(process: NodeProcess, chance: random.Random) -> None:
    victims = [journal_pid(process), process.pid]
    chance.shuffle(victims)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    kill_node(process, chance)


def kill_journal(process: NodeProcess, chance: random.Random) -> None:
    """Clients notice nothing but a pause."""
    before = journal_pid(process)
    os.kill(before, signal.SIGKILL)
    until(lambda: journal_pid(process) not in (0, before))


KILLS = {"node": kill_node, "both": kill_both, "journal": kill_journal}


# Clients


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

    Attributes:
        lost_sessions: how often it came back and its session was not there.
    """

    def __init__(self, port: int, version: int, will: str | None = None) -> None:
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

    def __init__(self, port: int, version: int, target: str, qos: int) -> None:
        super().__init__(port, version)
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
                self.changed.wait_for(lambda: self._is_stopping or len(self._numbers) < WINDOW)
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

    def __init__(self, port: int, version: int, *filters: str, will: str | None = None) -> None:
        super().__init__(port, version, will)
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


def test_nothing_acknowledged_is_lost_and_with_qos_2_nothing_comes_twice(
    process: NodeProcess, story_chance: random.Random
) -> None:
    declare(process)
    port = process.port
    # A topic's subscription by a wildcard, and a queue by its name, each with both versions.
    subscribers = [Subscriber(port, 5, f"{TOPIC}/#"), Subscriber(port, 4, QUEUE)]
    publishers = [
        Publisher(port, 4, f"{TOPIC}/one", 1),
        Publisher(port, 5, f"{TOPIC}/two", 2),
        Publisher(port, 4, QUEUE, 2),
    ]
    with at_work(*subscribers, *publishers):
        for _ in range(kills(5)):
            for subscriber in subscribers:
                reached = subscriber.count() + story_chance.randrange(STEP)
                subscriber.await_more_than(reached)
            KILLS[story_chance.choice(list(KILLS))](process, story_chance)
        for publisher in publishers:
            publisher.finish()
        for publisher in publishers:
            assert not publisher.failures
            assert publisher.acknowledged == set(range(publisher.sent))
            subscriber = subscribers[publisher.target == QUEUE]
            subscriber.await_numbers(publisher.target, publisher.sent)
            if publisher.qos == 2:
                counts = Counter(subscriber.received[publisher.target])
                doubled = {number: count for number, count in counts.items() if count > 1}
                assert not doubled, f"twice on {publisher.target}: {doubled}"
                assert subscriber.received[publisher.target] == list(range(publisher.sent))
    assert [speaker.lost_sessions for speaker in (*subscribers, *publishers)] == [0] * 5
    assert "Traceback" not in process.log, process.log


# Wills


GRACE_S = 8
"""Seconds that clients have to come back after a restart, in these tests: half a minute otherwise."""

SHORT_GRACE = f"""
from enmasse.messaging.sessions import sessions, wills
assert wills.GRACE_S == sessions.GRACE_S == 30
wills.GRACE_S = sessions.GRACE_S = {GRACE_S}
"""


class Mortal:
    """A client with a will that ends without a word, and does not come back."""

    def __init__(self, port: int, will: str) -> None:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        self.client: Client = Client(CallbackAPIVersion.VERSION2, will, reconnect_on_failure=False)
        # QoS 2: with 1 it might come again to a client that acknowledged it just before a crash.
        self.client.will_set(f"{TOPIC}/wills", will.encode(), 2)
        self.connected = threading.Event()
        self.client.on_connect = lambda *_: self.connected.set()
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert self.connected.wait(PATIENCE_S)

    def die(self) -> None:
        sock: Any = self.client.socket()
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)
        self.client.loop_stop()

    def leave(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


class Heir(Subscriber):
    """Puts down the wills that come, and has one itself, which is not to come: it is always back in time."""

    def __init__(self, port: int) -> None:
        self.wills: list[str] = []
        super().__init__(port, 5, f"{TOPIC}/wills", will=f"{TOPIC}/wills")

    def _on_message(self, _client: Any, _userdata: Any, message: Any) -> None:
        with self.changed:
            self.wills.append(message.payload.decode())
            self.changed.notify_all()

    def await_will(self, will: str) -> None:
        self.wait_for(lambda: will in self.wills, lambda: f"{will} does not come, but {self.wills}")


def test_wills_are_sent_once_whatever_is_killed(tmp_path: Path, story_chance: random.Random) -> None:
    with NodeProcess(tmp_path, before=SHORT_GRACE) as node:
        declare(node)
        heir = Heir(node.port)
        with at_work(heir):
            Mortal(node.port, "has left").leave()
            Mortal(node.port, "of the client").die()
            heir.await_will("of the client")
            for killed in ("node", "both"):
                leaves, lost = Mortal(node.port, "leaves later"), Mortal(node.port, f"of {killed}")
                leaves.leave()
                until(lambda: "leaves later" not in connected(node))
                # Nobody tells it when its goodbye is on disk: what is, is so no later than what is stored then.
                heir.client.publish(f"{TOPIC}/other", b"", 1).wait_for_publish(PATIENCE_S)
                KILLS[killed](node, story_chance)
                lost.die()
                heir.await_will(f"of {killed}")
            # What was sent is not sent again after another restart; the last will comes after anything older.
            kill_node(node, story_chance)
            Mortal(node.port, "the last").die()
            heir.await_will("the last")
        assert heir.wills == ["of the client", "of node", "of both", "the last"]
        assert heir.lost_sessions == 0
        assert "Traceback" not in node.log, node.log
