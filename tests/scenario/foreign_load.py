"""Clients of every kind at work, each in its thread, whatever node dies meanwhile; each message is counted."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar
from urllib.parse import urlsplit

import stomp
from stomp.exception import StompException

from enmasse.client.blocking import connect
from enmasse.client.message import Message
from tests.support.chance import is_long
from tests.support.foreign_tools import require
from tests.support.ledger import Ledger, Name, name_of
from tests.support.paho_sessions import Publisher, Subscriber, at_work
from tests.support.polling import PATIENCE_S

__all__ = ["Load", "Place", "loads_at"]

TESTS = Path(__file__).parents[1]
PAUSE_S = 0.05
"""Until a client that was refused or cut off comes again."""
TOKENS = 60
WINDOW = 10 if is_long() else 2
"""Messages that a client has on their way."""


class Place:
    """A space, as clients name it.

    Args:
        url: where AMQP is spoken, as is everything else.
        space: its name.
        look: takes all that an address of a space holds.
    """

    def __init__(self, url: str, space: str, look: Callable[[str, str], list[str]]) -> None:
        self.url = url
        self.space = space
        self.port = int(urlsplit(url).port or 0)
        self.host = f"{space}.default.enmasse.local"
        self.user_name = f"anyone@{space}.default"
        self._look = look

    def look(self, address: str) -> list[str]:
        """Take all that an address holds."""
        return self._look(self.space, address)


class Load:
    """A client at work until it is stopped.

    Args:
        place: its space.

    Attributes:
        done: how much it has done.
        failure: why it has ended by itself.
    """

    addresses: ClassVar[dict[str, str]] = {}
    """The types of the addresses that it needs, by their names."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.done = 0
        self.failure: BaseException | None = None
        self.is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as failure:  # noqa: BLE001  it is the test's
            self.failure = failure

    def count(self) -> int:
        """Return how much it has done."""
        return self.done

    def work(self) -> None:
        """Work until it is to stop."""
        raise NotImplementedError

    def stop(self) -> None:
        """Have it end in order, with an answer to everything."""
        self.is_stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{self._thread.name} does not end"

    def check(self) -> None:
        """Compare what was answered with what there is now, or has come."""
        raise NotImplementedError


class Ours(Load):
    """Our own client, which comes again by itself and sends what was not answered again."""

    addresses: ClassVar = {"orders": "queue"}

    def work(self) -> None:
        with connect(self.place.url, hostname=self.place.host, patience=60) as connection:
            sender = connection.sender("orders")
            while not self.is_stopping.is_set():
                assert sender.send(Message(str(self.done), durable=True), timeout=60).name == "accepted"
                self.done += 1

    def check(self) -> None:
        assert {int(body) for body in self.place.look("orders")} == set(range(self.done))


class Counted(Load):
    """A client that never sends a message twice, and whose queue is compared with its ledger."""

    def __init__(self, place: Place, ledger: Ledger | None = None) -> None:
        super().__init__(place)
        self.ledger = ledger or Ledger(next(iter(self.addresses)))

    def check(self) -> None:
        found = [name_of(body) for body in self.place.look(self.ledger.address)]
        self.ledger.look([found], len(found))
        assert not self.ledger.problems, "\n".join(self.ledger.problems)


class Proton(Counted):
    """python-qpid-proton: a producer, anew with each connection."""

    addresses: ClassVar = {"proton": "queue"}

    def work(self) -> None:
        from tests.support.proton_load import ProtonProducer

        following = 0
        while not self.is_stopping.is_set():
            client = ProtonProducer(
                self.place.url, "proton", [self.ledger], "proton", following, host=self.place.host, window=WINDOW
            )
            client.is_stopping = self.is_stopping
            client.run()
            following = client.next
            self.is_stopping.wait(PAUSE_S)

    def count(self) -> int:
        return self.ledger.accepted_count


class ProtonTaking(Counted):
    """python-qpid-proton: a consumer of what another client sends, anew with each connection."""

    def work(self) -> None:
        from tests.support.proton_load import ProtonConsumer

        while not self.is_stopping.is_set():
            client = ProtonConsumer(self.place.url, self.ledger.address, self.ledger, host=self.place.host)
            client.is_stopping = self.is_stopping
            client.run()
            self.is_stopping.wait(PAUSE_S)

    def count(self) -> int:
        return self.ledger.taken_count

    def check(self) -> None:
        """Do nothing: who sends compares."""


class Program(Counted):
    """A program of its own, which says line by line what it does and hears."""

    _input: IO[str]

    def command(self) -> Sequence[str]:
        """Return the words that start it."""
        raise NotImplementedError

    def end(self) -> None:
        """Tell it to end."""
        raise NotImplementedError

    def hear(self, *words: str) -> None:
        """Take a line."""
        raise NotImplementedError

    def work(self) -> None:
        environment = {**os.environ, "NODE_PATH": str(TESTS / "tools" / "node_modules")}
        with subprocess.Popen(
            self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            self._input = process.stdin
            for line in process.stdout:
                self.hear(*line.split())
        assert process.returncode == 0

    def stop(self) -> None:
        self.end()
        super().stop()


class Rhea(Program):
    """rhea, which comes again by itself."""

    addresses: ClassVar = {"rhea": "queue"}

    def command(self) -> Sequence[str]:
        asked = {
            "port": self.place.port, "hostname": self.place.host, "address": "rhea", "name": "rhea", "first": 0,
            "window": WINDOW, "reconnects": True,
        }  # fmt: skip
        return ["node", str(TESTS / "support" / "rhea_producer.js"), json.dumps(asked)]

    def end(self) -> None:
        self._input.write("stop\n")
        self._input.flush()

    def hear(self, *words: str) -> None:
        name = ("rhea", int(words[1]))
        told = {"s": self.ledger.offered, "a": self.ledger.accepted, "r": self.ledger.refused}
        told[words[0]](name)

    def count(self) -> int:
        return self.ledger.accepted_count


class Jms(Program):
    """Qpid JMS, which carries tokens from one queue to the other and back in transactions."""

    addresses: ClassVar = {"left": "queue", "right": "queue"}

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.places: dict[str, str | None] = {}
        """Of the tokens, by what was committed; in doubt it is nowhere."""

    def start(self) -> None:
        with connect(self.place.url, hostname=self.place.host, patience=60) as connection:
            sender = connection.sender("left")
            for number in range(TOKENS):
                sender.send(Message(f"token:{number}", durable=True), timeout=60)
                self.places[f"token:{number}"] = "left"
        super().start()

    def command(self) -> Sequence[str]:
        reconnects = "initialReconnectDelay=50&failover.reconnectDelay=50&failover.maxReconnectDelay=200"
        node = f"amqp://127.0.0.1:{self.place.port}?amqp.vhost={self.place.host}"
        url = f"failover:({node})?jms.prefetchPolicy.all=5&failover.{reconnects}"
        program = TESTS / "interop" / "java" / "JmsMover.java"
        return ["java", "-cp", f"{TESTS / 'tools' / 'java'}/*", str(program), url, "left", "right"]

    def end(self) -> None:
        self._input.close()

    def hear(self, *words: str) -> None:
        if words[0] == "m":
            self.places |= dict.fromkeys(words[2:], words[1])
            self.done += 1
        elif words[0] == "d":
            self.places |= dict.fromkeys(words[1:])

    def check(self) -> None:
        found = {side: self.place.look(side) for side in self.addresses}
        there = Counter(found["left"] + found["right"])
        missing = {body: side for body, side in self.places.items() if not there[body]}
        more = there - Counter(self.places.keys())
        assert not missing and not more, f"{more} came too often, and {missing}, committed last as said, did not"  # noqa: PT018
        for side, bodies in found.items():
            wrong = [body for body in bodies if self.places[body] not in (side, None)]
            assert not wrong, f"{wrong} are {side}, where no commit put them"


class _Told(stomp.ConnectionListener):  # type: ignore[misc]  # without types
    """What a client of stomp.py is told: frames, and None once its connection has ended."""

    def __init__(self) -> None:
        self.frames: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def on_message(self, frame: Any) -> None:
        self.frames.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.frames.put(frame)

    def on_disconnected(self) -> None:
        self.frames.put(None)


class Stomp(Counted):
    """stomp.py: a producer, anew with each connection, that waits for receipts."""

    addresses: ClassVar = {"stomp": "queue"}

    def work(self) -> None:
        while not self.is_stopping.is_set():
            connection = stomp.Connection12(
                [("127.0.0.1", self.place.port)], vhost=self.place.host, reconnect_attempts_max=1
            )
            told = _Told()
            connection.set_listener("told", told)
            try:
                connection.connect(wait=True)
                self.live(connection, told.frames)
                connection.disconnect()
            except (StompException, OSError):
                self.is_stopping.wait(PAUSE_S)
            finally:
                connection.transport.stop()

    def live(self, connection: Any, frames: queue.SimpleQueue[Any]) -> None:
        """Work until it is to stop, or its connection has ended."""
        while not self.is_stopping.is_set():
            for _ in range(WINDOW):
                self.next += 1
                self.ledger.offered(("stomp", self.next))
                connection.send("stomp", f"stomp:{self.next}", receipt=str(self.next), persistent="true")
            for _ in range(WINDOW):
                frame = frames.get(timeout=PATIENCE_S)
                if frame is None:
                    return
                self.ledger.accepted(("stomp", int(frame.headers["receipt-id"])))
                self.done += 1

    next = 0


class StompTaking(Stomp):
    """stomp.py: a consumer, anew with each connection, which waits until its acknowledgements are on disk."""

    addresses: ClassVar = {}

    def check(self) -> None:
        """Do nothing: who sends compares."""

    def live(self, connection: Any, frames: queue.SimpleQueue[Any]) -> None:
        connection.subscribe(self.ledger.address, "0", "client-individual", headers={"prefetch-count": str(WINDOW)})
        taken: dict[str, Name] = {}
        while taken or not self.is_stopping.is_set():
            try:
                frame = frames.get(timeout=PAUSE_S)
            except queue.Empty:
                continue
            if frame is None:
                return
            if frame.cmd == "RECEIPT":
                self.ledger.sure([taken.pop(frame.headers["receipt-id"])])
                self.done += 1
                continue
            name = name_of(frame.body)
            self.ledger.delivered(name)
            if not self.is_stopping.is_set():
                self.ledger.taken(name)
                taken[frame.headers["ack"]] = name
                connection.ack(frame.headers["ack"], receipt=frame.headers["ack"])


class Curl(Counted):
    """curl, which repeats a request with the same key until it is answered."""

    addresses: ClassVar = {"curl": "queue"}

    def work(self) -> None:
        url = f"http://127.0.0.1:{self.place.port}/v1/spaces/{self.place.space}.default/addresses/curl/messages"
        command = [
            "curl", "--silent", "--noproxy", "*", "--retry", "60", "--retry-all-errors", "--retry-delay", "1",
            "--write-out", "%{http_code}", "--header", "Content-Type: text/plain",
        ]  # fmt: skip
        while not self.is_stopping.is_set():
            name = "curl", self.done
            self.ledger.offered(name)
            body = f"{name[0]}:{name[1]}"
            asked = [*command, "--header", f"Idempotency-Key: {body}", "--data", body, url]
            done = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            # Before it there are the bodies of answers.
            assert done.stdout.endswith("202"), (done.returncode, done.stdout)
            self.ledger.accepted(name)
            self.done += 1
            self.is_stopping.wait(PAUSE_S)


class Paho(Load):
    """paho-mqtt with QoS 2, from a publisher to a subscriber whose sessions stay."""

    addresses: ClassVar = {"paho": "topic"}
    version = 5

    def work(self) -> None:
        port, user = self.place.port, self.place.user_name
        (self.target,) = self.addresses
        self.subscriber = Subscriber(port, self.version, self.target, user_name=user)
        self.publisher = Publisher(port, self.version, self.target, 2, user_name=user, window=WINDOW)
        with at_work(self.subscriber, self.publisher):
            while not self.is_stopping.wait(PAUSE_S):
                self.done = self.subscriber.count()
            self.publisher.finish()
            self.subscriber.await_numbers(self.target, self.publisher.sent)

    def check(self) -> None:
        publisher, subscriber = self.publisher, self.subscriber
        assert not publisher.failures
        assert publisher.acknowledged == set(range(publisher.sent))
        found = subscriber.received[self.target]
        doubled = [number for number, count in Counter(found).items() if count > 1]
        assert not doubled, f"twice on {self.target}: {doubled}"
        assert found == list(range(publisher.sent))
        assert (publisher.lost_sessions, subscriber.lost_sessions) == (0, 0)


class Paho4(Paho):
    """The same with MQTT 3.1.1, by a queue."""

    addresses: ClassVar = {"paho4": "queue"}
    version = 4


def loads_at(places: Sequence[Place]) -> Iterator[Load]:
    """Clients of every kind, spread over some spaces."""
    require("python-qpid-proton", "rhea", "paho-mqtt", "a JDK", "Qpid JMS and ProtonJ2", "curl")
    yield from map(Ours, places)
    first, second, third, fourth = places
    proton = Proton(first)
    yield proton
    yield ProtonTaking(first, proton.ledger)
    sending = Stomp(second)
    yield sending
    yield StompTaking(second, sending.ledger)
    yield Rhea(fourth)
    yield Curl(third)
    yield Paho(first)
    yield Paho4(third)
    yield Jms(fourth)
