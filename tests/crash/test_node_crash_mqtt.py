"""paho-mqtt through kills of node and journal: QoS 1 loses nothing, QoS 2 doubles nothing, and wills are sent."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.client import blocking
from tests.support.chance import kills
from tests.support.foreign_tools import require
from tests.support.node_process import NodeProcess
from tests.support.paho_sessions import PATIENCE_S, Publisher, Subscriber, at_work
from tests.support.polling import until

if TYPE_CHECKING:
    from paho.mqtt.client import Client

pytestmark = [pytest.mark.slow, pytest.mark.chance]

SPACE = "default/crash"
TOPIC, QUEUE = "news", "orders"

STEP = 60
"""Messages that come from one kill to the next."""


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
