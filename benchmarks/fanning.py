"""One publisher whose messages reach very many receivers, or what many clients ask for in one moment.

python benchmarks/fanning.py --port 5672 --kind clients --count 4000 --seconds 10

Prints ``ready`` once all are connected, goes on until its standard input ends or the seconds are over, then prints
one line of JSON: the messages that went out and were acknowledged, and the bytes that came in.
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import socket
import sys
import time
from collections.abc import Callable

from enmasse.wire.amqp.framing import AMQP_HEADER, amqp_frame
from enmasse.wire.amqp.performatives import Attach, Begin, Flow, Open, Source, Target

BURST = 50
"""Messages of a burst; the next one goes when all are acknowledged."""

CREDIT = 1 << 20

WINDOW = (1 << 31) - 1

LINKS = 1_000
"""Links of one connection of AMQP."""

RETAINED = 200


def mqtt_string(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


def mqtt_packet(first: int, body: bytes) -> bytes:
    size, length = len(body), b""
    while size > 127:
        length += bytes((size & 127 | 128,))
        size >>= 7
    return bytes((first,)) + length + bytes((size,)) + body


def mqtt_connect(client: str, *, clean: bool = True, will: str = "") -> bytes:
    flags = 2 * clean | (4 if will else 0)
    body = mqtt_string("MQTT") + bytes((4, flags)) + (0).to_bytes(2, "big") + mqtt_string(client)
    if will:
        body += mqtt_string(will) + mqtt_string("gone")
    return mqtt_packet(0x10, body)


def mqtt_stored(client: str, expiry_s: int) -> bytes:
    """A session of MQTT 5 that outlives its connection for some seconds."""
    properties = b"\x05\x11" + expiry_s.to_bytes(4, "big")
    body = mqtt_string("MQTT") + bytes((5, 0)) + (0).to_bytes(2, "big") + properties + mqtt_string(client)
    return mqtt_packet(0x10, body)


def mqtt_subscribe(text: str, qos: int) -> bytes:
    return mqtt_packet(0x82, b"\0\1" + mqtt_string(text) + bytes((qos,)))


def mqtt_publish(topic: str, packet_id: int, *, retain: bool = False) -> bytes:
    return mqtt_packet(0x32 | retain, mqtt_string(topic) + packet_id.to_bytes(2, "big") + b"x")


class Client:
    """A socket whose input is thrown away, but for a count and what is to be answered."""

    def __init__(self, port: int, first: bytes, answers: int, *, acks: bool = False) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(first)
        self.answers = answers
        """The bytes that precede the first message."""
        self.read = 0
        self.acks = acks
        self._rest = b""
        self.sock.setblocking(False)

    def receive(self) -> int:
        try:
            data = self.sock.recv(1 << 18)
        except BlockingIOError:
            return 0
        if not data:
            raise SystemExit("the node has closed a connection")
        self.read += len(data)
        if self.acks:
            self._acknowledge(data)
        return len(data)

    def _acknowledge(self, data: bytes) -> None:
        data, at, answer = self._rest + data, 0, b""
        while at + 2 <= len(data) and (stop := at + 2 + data[at + 1]) <= len(data):
            if data[at] & 0xF6 == 0x32:
                name = at + 4 + int.from_bytes(data[at + 2 : at + 4], "big")
                answer += b"\x40\x02" + data[name : name + 2]
            at = stop
        self._rest = data[at:]
        if answer:
            self.sock.setblocking(True)
            self.sock.sendall(answer)
            self.sock.setblocking(False)


def clients(port: int, count: int, text: str, *, qos: int = 0, clean: bool = True, will: str = "") -> list[Client]:
    """MQTT clients with one filter each."""
    made = []
    for number in range(count):
        first = mqtt_connect(f"c{number}", clean=clean, will=will)
        if text:
            first += mqtt_subscribe(text, qos)
        made.append(Client(port, first, 9 if text else 4, acks=qos > 0))
        if number % 50 == 49:
            await_answers(made[-50:])
    return made


def amqp_links(port: int, count: int, address: str, *, credit: int = CREDIT, presettle: bool = True) -> list[Client]:
    """Links over as few connections as hold them."""
    made = []
    while count > 0:
        here = min(count, LINKS)
        count -= here
        frames = [Open(container_id=f"links-{count}", channel_max=0, max_frame_size=1 << 16)]
        first = AMQP_HEADER + b"".join(amqp_frame(0, frame) for frame in frames)
        first += amqp_frame(0, Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW))
        for handle in range(here):
            first += amqp_frame(
                0,
                Attach(
                    name=f"link-{handle}",
                    handle=handle,
                    role=True,
                    snd_settle_mode=1 if presettle else 0,
                    source=Source(address=address),
                    target=Target(),
                ),
            )
            first += amqp_frame(
                0,
                Flow(
                    next_incoming_id=0,
                    incoming_window=WINDOW,
                    next_outgoing_id=0,
                    outgoing_window=WINDOW,
                    handle=handle,
                    delivery_count=0,
                    link_credit=credit,
                ),
            )
        made.append(Client(port, first, 1))
    time.sleep(3)
    return made


def await_answers(made: list[Client]) -> None:
    until = time.monotonic() + 60
    while late := [client for client in made if client.read < client.answers]:
        if time.monotonic() > until:
            raise SystemExit(f"{len(late)} clients had no answer")
        time.sleep(0.005)
        for client in late:
            client.receive()


class Publisher:
    """Sends bursts of small messages of QoS 1, each when the one before is acknowledged."""

    def __init__(self, port: int, topic: str, burst: int) -> None:
        self.client = Client(port, mqtt_connect("publisher"), 4)
        await_answers([self.client])
        self.sent = self.acknowledged = 0
        self._topic = topic
        self._burst = burst

    def go_on(self) -> None:
        self.acknowledged = (self.client.read - 4) // 4
        if self.acknowledged < self.sent:
            return
        self.sent += self._burst
        self.client.sock.setblocking(True)
        self.client.sock.sendall(b"".join(mqtt_publish(self._topic, number + 1) for number in range(self._burst)))
        self.client.sock.setblocking(False)


def busy(port: int, count: int) -> list[Client]:
    """Receivers without credit, and one that takes everything."""
    return amqp_links(port, count - 1, "anycast.0", credit=0) + amqp_links(port, 1, "anycast.0")


def working(port: int, count: int) -> list[Client]:
    """Receivers that have credit, and never settle what they have."""
    return amqp_links(port, count, "anycast.0", presettle=False)


KINDS: dict[str, Callable[[int, int], list[Client]]] = {
    "clients": lambda port, count: clients(port, count, "topic.0"),
    "sessions": lambda port, count: clients(port, count, "topic.0", qos=1, clean=False),
    "shared": lambda port, count: clients(port, count, "$share/group/topic.0", qos=1),
    "multicast": lambda port, count: clients(port, count, "multicast.0"),
    "links": lambda port, count: amqp_links(port, count, "topic.0"),
    "busy": busy,
    "working": working,
}

TARGETS = {"multicast": "multicast.0", "busy": "anycast.0", "working": "anycast.0"}
"""Where messages go that do not go to the topic."""

STAYING: dict[str, Callable[[int, int], list[Client]]] = {
    "connected": lambda port, count: clients(port, count, "topic.0"),
    "stored": lambda port, count: clients(port, count, "topic.0", qos=1, clean=False),
    "attached": lambda port, count: amqp_links(port, count, "queue.0"),
}
"""Clients to whom nothing is sent."""

EXPIRY_S = 6


def fan_out(port: int, kind: str, count: int, seconds: float, burst: int) -> None:
    """Publish, read and acknowledge until the time is over."""
    made = KINDS[kind](port, count)
    publisher = Publisher(port, TARGETS.get(kind, "topic.0"), burst)
    print("ready", flush=True)
    poll = select.epoll()
    known = {client.sock.fileno(): client for client in (*made, publisher.client)}
    for number in known:
        poll.register(number, select.EPOLLIN)
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    before = sum(client.read for client in made)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        publisher.go_on()
        found = poll.poll(0.5)
        for number, _ in found:
            if number == sys.stdin.fileno():
                until = 0
            else:
                known[number].receive()
    read = sum(client.read for client in made) - before
    print(json.dumps({"sent": publisher.sent, "acknowledged": publisher.acknowledged, "read": read}))


def retained(port: int, count: int) -> None:
    """Clients that all ask for the same retained values in one moment, again and again."""
    publisher = Client(port, mqtt_connect("publisher"), 4)
    publisher.sock.setblocking(True)
    for number in range(RETAINED):
        publisher.sock.sendall(mqtt_publish(f"topic.0/{number}", number % 60_000 + 1, retain=True))
    publisher.sock.setblocking(False)
    made = clients(port, count, "")
    print("ready", flush=True)
    poll = select.epoll()
    known = {client.sock.fileno(): client for client in (*made, publisher)}
    for number in known:
        poll.register(number, select.EPOLLIN)
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    asked = 0
    due = 0.0
    while True:
        if time.monotonic() > due:
            asked += count
            for client in made:
                client.sock.setblocking(True)
                client.sock.sendall(mqtt_subscribe("topic.0/#", 0))
                client.sock.setblocking(False)
            due = time.monotonic() + 10
        for number, _ in poll.poll(0.5):
            if number == sys.stdin.fileno():
                print(json.dumps({"asked": asked, "read": sum(client.read for client in made)}))
                return
            known[number].receive()


def wills(port: int, count: int) -> None:
    """Clients with a will that are lost in one moment, again and again."""
    watch = Client(port, mqtt_connect("watch") + mqtt_subscribe("topic.0", 0), 9)
    made = clients(port, count, "", will="topic.0")
    print("ready", flush=True)
    lost = 0
    while not select.select([sys.stdin], [], [], 0.5)[0]:
        for client in made:
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sock.close()
        lost += count
        time.sleep(1)
        watch.receive()
        made = clients(port, count, "", will="topic.0")
    watch.receive()
    print(json.dumps({"lost": lost, "read": watch.read}))


def stay(port: int, kind: str, count: int) -> None:
    """Clients that read whatever comes, and may be closed."""
    made = STAYING[kind](port, count)
    print("ready", flush=True)
    poll = select.epoll()
    known = {client.sock.fileno(): client for client in made}
    for number in known:
        poll.register(number, select.EPOLLIN)
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    closed = 0
    while True:
        for number, _ in poll.poll(0.5):
            if number == sys.stdin.fileno():
                print(json.dumps({"clients closed": closed}))
                return
            try:
                known[number].receive()
            except (SystemExit, OSError):
                poll.unregister(number)
                closed += 1


def expiring(port: int, count: int) -> None:
    """Sessions whose clients are lost in one moment, and that end in one."""
    made = []
    for number in range(count):
        first = mqtt_stored(f"c{number}", EXPIRY_S) + mqtt_packet(
            0x82, b"\0\1\0" + mqtt_string("topic.0") + bytes((1,))
        )
        made.append(Client(port, first, 10))
        if number % 50 == 49:
            await_answers(made[-50:])
    for client in made:
        client.sock.close()
    print("ready", flush=True)
    sys.stdin.read()
    print(json.dumps({"sessions": count}))


def main() -> None:
    """Do as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kind", choices=(*KINDS, *STAYING, "retained", "wills", "expiring"), required=True)
    parser.add_argument("--count", type=int, default=4_000)
    parser.add_argument("--burst", type=int, default=BURST)
    parser.add_argument("--seconds", type=float, default=600.0)
    given = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if given.kind == "retained":
        retained(given.port, given.count)
    elif given.kind == "wills":
        wills(given.port, given.count)
    elif given.kind == "expiring":
        expiring(given.port, given.count)
    elif given.kind in STAYING:
        stay(given.port, given.kind, given.count)
    else:
        fan_out(given.port, given.kind, given.count, given.seconds, given.burst)


if __name__ == "__main__":
    main()
