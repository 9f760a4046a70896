"""MQTT: what messages, sessions and connections cost, beside Mosquitto and RabbitMQ's plugin of MQTT."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.accounting import cpu_seconds
from benchmarks.cases import Case
from benchmarks.generators import Load, build, run
from benchmarks.measurement import Line, Measurement, Setting
from benchmarks.node import SPACE, Node
from benchmarks.peers import Mosquitto, RabbitMQ
from benchmarks.returning import PASSWORD, create_users, user_keys
from enmasse.errors import UnavailableError

__all__ = ["CASES", "MEASUREMENTS"]

OUTSTANDING = 900
"""On their way at most: with a thousand in a client's queue, Mosquitto drops what comes next."""

TOPIC = "topic.0"

CASES = (
    Case("1:1, 100 B, QoS 0", "topic", protocol="mqtt", outstanding=OUTSTANDING, target=4.0),
    Case("1:1, 100 B, QoS 1", "topic", protocol="mqtt", qos=1, outstanding=OUTSTANDING, target=9.0),
    Case("1:1, 100 B, QoS 2", "topic", protocol="mqtt", qos=2, outstanding=OUTSTANDING, target=14.0),
    Case("1:10, 100 B, QoS 0, per copy", "topic", protocol="mqtt", fanout=10, outstanding=OUTSTANDING, target=2.0),
    Case("10:10, 100 B, QoS 1", "topic", protocol="mqtt", qos=1, pairs=10, outstanding=OUTSTANDING),
)

BRIDGE_US = 6.0
SHARE_OF_RABBITMQ = 1 / 3

RETAINED = 1_000
RETAINED_S = 0.2

IDLE = 1_000
IDLE_KIB = 6.0
MANY_IDLE = 20_000
MANY_IDLE_CORES = 0.10
KEEP_ALIVE_S = 60
HOLD_S = 30.0

COMING_BACK = 5_000
BACK_S = 10.0
BACK_WITH_PASSWORDS_S = 30.0
BYSTANDER_MS = 20.0
BYSTANDER_RATE = 1_000
LIMIT_S = 120.0

FILES_OF_EACH = 1.25
"""Files that a node may open for each connection that it takes."""

Speaker = Node | Mosquitto | RabbitMQ


def _port(server: Speaker) -> int:
    return server.port if isinstance(server, Node) else server.mqtt_port


def _login(server: Speaker) -> tuple[str, ...]:
    return ("--user", "guest", "--pass", "guest") if isinstance(server, RabbitMQ) else ()


def _pids(server: Speaker) -> list[int]:
    return [pid for pids in server.processes.values() for pid in pids]


@contextmanager
def _servers(setting: Setting, *kinds: type[Speaker]) -> Iterator[list[Speaker]]:
    """Ourselves, and those peers that are here and asked for, each with the topic of these measurements."""
    with ExitStack() as stack:
        found: list[Speaker] = []
        for kind in kinds:
            if kind is Node or kind in setting.peers:
                directory = stack.enter_context(TemporaryDirectory(prefix="run-", dir=setting.directory))
                server = kind(Path(directory))
                stack.callback(server.stop)
                server.prepare([Case("", "topic")])
                found.append(server)
        yield found


# AMQP to MQTT, and back


def bridges(setting: Setting) -> Iterator[Line]:
    """Settled messages of a topic from a sender of one protocol to a receiver of the other."""
    with _servers(setting, Node) as (node,):
        assert isinstance(node, Node)
        for name, sender, receiver in (("AMQP to MQTT", "amqp", "mqtt"), ("MQTT to AMQP", "mqtt", "amqp")):
            setting.patience.wait()
            found = [_bridge(node, sender, receiver, setting.seconds) for _ in range(setting.runs)]
            spent = median(run["server_cpu_us_per_msg"] for run in found)
            yield Line(f"{name}, 100 B, QoS 0, for each received", spent, "us", BRIDGE_US)
            yield Line("messages a second", median(run["received_per_s"] for run in found), "")


def _arguments(protocol: str, node: Node, mode: str) -> list[str]:
    common = ["--port", str(node.port), "--mode", mode, "--size", "100", "--json"]
    if protocol == "amqp":
        return [str(build("amqp_load")), *common, "--address", TOPIC, "--settled"]
    return [str(build("mqtt_load")), *common, "--topic", TOPIC, "--qos", "0"]


def _bridge(node: Node, sender: str, receiver: str, seconds: float) -> dict[str, Any]:
    """What the receiver's generator measures while the sender's works."""
    more = ("--seconds", str(seconds), "--warmup", "0.5")
    command = [*_arguments(receiver, node, "recv"), *more, "--server-pid", ",".join(map(str, _pids(node)))]
    with ExitStack() as stack:
        sending = stack.enter_context(
            subprocess.Popen(
                [*_arguments(sender, node, "send"), "--seconds", str(seconds + 3)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        stack.callback(sending.kill)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + LIMIT_S)
        if done.returncode or not done.stdout:
            raise UnavailableError(f"{done.stderr.strip()}: {' '.join(command)}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# A session whose client is away


def sessions(setting: Setting) -> Iterator[Line]:
    """QoS 1 into the queue of a session whose client is away: what the server owns until it is back."""
    with _servers(setting, Node, RabbitMQ, Mosquitto) as servers:
        spent: dict[str, list[float]] = {server.name: [] for server in servers}
        rates: dict[str, list[float]] = {server.name: [] for server in servers}
        for _ in range(setting.runs):
            for server in servers:
                setting.patience.wait()
                _session(server, is_kept=True)
                where = ("--port", str(_port(server)), "--topic", TOPIC, *_login(server))
                load = Load("mqtt_load", (*where, "--mode", "send", "--qos", "1", "--size", "100"))
                before = cpu_seconds(_pids(server))
                result = run(load, _pids(server), seconds=setting.seconds, warmup=0.5)
                used = cpu_seconds(_pids(server)) - before
                _session(server, is_kept=False)
                spent[server.name].append(used / result["total_acked"] * 1e6)
                rates[server.name].append(result["sent_per_s"])
        theirs = {server.name: median(spent[server.name]) for server in servers if isinstance(server, RabbitMQ)}
        for server in servers:
            target = sum(theirs.values()) * SHARE_OF_RABBITMQ if isinstance(server, Node) else 0.0
            yield Line(f"{server.name}, 100 B, QoS 1", median(spent[server.name]), "us", target)
            yield Line("messages a second", median(rates[server.name]), "")


def _session(server: Speaker, *, is_kept: bool) -> None:
    """Open a session with a subscription and leave, or end it."""
    with _connected(server, is_clean=not is_kept) as sock:
        if is_kept:
            sock.sendall(_packet(0x82, b"\0\1" + _text(TOPIC) + b"\1"))
            _expect(sock, 0x90, 5)


def _text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def _packet(first: int, content: bytes) -> bytes:
    return bytes((first, len(content))) + content


@contextmanager
def _connected(server: Speaker, *, is_clean: bool) -> Iterator[socket.socket]:
    """A client of 3.1.1, which says goodbye at the end."""
    has_login = isinstance(server, RabbitMQ)
    flags = (2 if is_clean else 0) | (0xC0 if has_login else 0)
    login = _text("guest") + _text("guest") if has_login else b""
    with socket.create_connection(("127.0.0.1", _port(server)), timeout=30) as sock:
        sock.sendall(_packet(0x10, _text("MQTT") + bytes((4, flags, 0, 60)) + _text("bench-session") + login))
        _expect(sock, 0x20, 4)
        yield sock
        sock.sendall(b"\xe0\0")


# Retained values


def retained(setting: Setting) -> Iterator[Line]:
    """Retained values to a client that subscribes, on a server on which nothing else happens."""
    count = setting.count(RETAINED)
    values = [_packet(0x31, _text(f"{TOPIC}/{number:06d}") + b"x" * 100) for number in range(count)]
    wanted = sum(map(len, values))
    with _servers(setting, Node, Mosquitto) as servers:
        seconds: dict[str, list[float]] = {server.name: [] for server in servers}
        for server in servers:
            with _connected(server, is_clean=True) as sock:
                sock.sendall(b"".join(values) + b"\xc0\0")
                _expect(sock, 0xD0, 2)
        for _ in range(setting.runs):
            for server in servers:
                setting.patience.wait()
                with _connected(server, is_clean=True) as sock:
                    began = time.monotonic()
                    sock.sendall(_packet(0x82, b"\0\1" + _text(f"{TOPIC}/#") + b"\0"))
                    _expect(sock, 0x90, 5)
                    came = 0
                    while came < wanted:
                        came += len(sock.recv(65_536)) or wanted + 1
                    if came != wanted:
                        raise UnavailableError(f"{server.name} sends {came} bytes of {wanted}")
                    seconds[server.name].append(time.monotonic() - began)
        for server in servers:
            target = RETAINED_S * count / RETAINED if isinstance(server, Node) else 0.0
            yield Line(f"{server.name}, {count:,} values", median(seconds[server.name]), "s", target)


def _expect(sock: socket.socket, first: int, size: int) -> None:
    answer = b""
    while len(answer) < size:
        data = sock.recv(size - len(answer))
        if not data:
            break
        answer += data
    if answer[:1] != bytes((first,)) or answer[-1] not in (0, 1):
        raise UnavailableError(f"the server answers {answer.hex()}")


# Idle connections


def idle(setting: Setting) -> Iterator[Line]:
    """A thousand idle connections: memory of each, of a server of its own each time."""
    for kind in (Node, Mosquitto, RabbitMQ):
        for has_subscription in (False, True):
            with _servers(setting, kind) as servers:
                for server in servers:
                    found = _hold(server, setting.count(IDLE), 3.0, has_subscription=has_subscription)
                    is_ours = kind is Node and not has_subscription
                    name = f"{server.name}, {'a subscription' if has_subscription else 'no subscription'}"
                    yield Line(f"{name}: each", found["kb_per_conn"], "KiB", IDLE_KIB if is_ours else 0.0)
                    yield Line("to open one", found["server_connect_cpu_us_per_conn"], "us")


def many_idle(setting: Setting) -> Iterator[Line]:
    """20,000 idle connections with keep-alives: memory, and the share of a core that serves them."""
    count = _possible(setting.count(MANY_IDLE))
    for kind in (Node, Mosquitto):
        with _servers(setting, kind) as servers:
            for server in servers:
                found = _hold(server, count, HOLD_S, "--keepalive", str(KEEP_ALIVE_S))
                target = MANY_IDLE_CORES if kind is Node else 0.0
                yield Line(f"{server.name}: {count:,} connections, of a core", found["server_idle_cores"], "", target)
                yield Line("each", found["kb_per_conn"], "KiB")
                yield Line("still alive", found["alive"], "", count, at_least=True)


def _hold(server: Speaker, count: int, seconds: float, *more: str, has_subscription: bool = False) -> dict[str, Any]:
    pids = server.processes["node"] if isinstance(server, Node) else _pids(server)
    command = [
        str(build("mqtt_load")), "--mode", "idle", "--port", str(_port(server)), "--topic", TOPIC,
        "--subscribers", str(count), "--seconds", str(seconds), "--server-pid", ",".join(map(str, pids)),
        *(["--idle-subs"] if has_subscription else []), *_login(server), *more,
    ]  # fmt: skip
    return _told(command, seconds + LIMIT_S)


def _told(command: Sequence[str], seconds: float) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    if done.returncode:
        raise UnavailableError(f"{done.stderr.strip()}: {' '.join(command)}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _possible(count: int) -> int:
    """As many of so many connections as a node may have here, which keeps files for handshakes and others."""
    wanted = round(count * FILES_OF_EACH)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= wanted:
        return count
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
        return count
    return round(hard / FILES_OF_EACH)


# Coming back


def coming_back(setting: Setting) -> Iterator[Line]:
    """5,000 clients whose connections are lost come back at once, while a bystander sends over AMQP."""
    count = _possible(setting.count(COMING_BACK))
    with _servers(setting, Node) as (node,):
        assert isinstance(node, Node)
        node.declare("anycast.0", addressType="anycast")
        found, p99_ms = _storm(node, count)
        yield Line(f"{count:,} clients are back after", found["back_s"], "s", BACK_S)
        yield Line("to take one back", found["server_cpu_us_per_conn"], "us")
        yield Line("a bystander's p99 meanwhile", p99_ms, "ms", BYSTANDER_MS)


def coming_back_with_passwords(setting: Setting) -> Iterator[Line]:
    """The same with a user and a password each, after a node's restart, which has forgotten whom it knew."""
    count = _possible(setting.count(COMING_BACK))
    with _servers(setting, Node) as (node,):
        assert isinstance(node, Node)
        node.declare("anycast.0", addressType="anycast")
        asyncio.run(create_users(node, count, user_keys(setting.directory, count)))
        found, p99_ms = _storm(node, count, "--user", "device-%d@guarded.default", "--pass", PASSWORD, "--restart")
        yield Line(f"{count:,} clients with passwords are back after", found["back_s"], "s", BACK_WITH_PASSWORDS_S)
        yield Line("a bystander's p99 meanwhile", p99_ms, "ms", BYSTANDER_MS)


def _storm(node: Node, count: int, *more: str) -> tuple[dict[str, Any], float]:
    """What the clients met, and the 99th percentile of a bystander's latency meanwhile, in milliseconds."""
    command = [
        str(build("mqtt_load")), "--mode", "storm", "--port", str(node.port), "--subscribers", str(count),
        "--limit", str(LIMIT_S), "--client-id", "device", "--hold", "1",
    ]  # fmt: skip
    is_restart = "--restart" in more
    pids = [] if is_restart else ["--server-pid", ",".join(map(str, node.processes["node"]))]
    with subprocess.Popen(
        [*command, *pids, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as storm:
        assert storm.stdout is not None
        assert storm.stderr is not None
        try:
            if storm.stdout.readline() != "ready\n":
                raise UnavailableError(storm.stderr.read().strip())
            if is_restart:
                node.kill()
                node.start()
            with _bystander(node) as latencies:
                told = storm.stdout.readline()
            if not told:
                raise UnavailableError(storm.stderr.read().strip())
            found = json.loads(told)
        finally:
            storm.kill()
    return found, latencies[0]


@contextmanager
def _bystander(node: Node) -> Iterator[list[float]]:
    """Sends 1,000 messages a second to itself over AMQP, until the block ends; then the list has its p99 in ms."""
    latencies: list[float] = []
    namespace, _, space = SPACE.partition("/")
    command = [
        str(build("amqp_load")), "--port", str(node.port), "--vhost", f"{space}.{namespace}",
        "--address", "anycast.0", "--rate", str(BYSTANDER_RATE),
        "--warmup", "0", "--seconds", str(2 * LIMIT_S), "--json",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as bystander:
        try:
            yield latencies
            bystander.terminate()
            told, _ = bystander.communicate(timeout=LIMIT_S)
            if not told:
                raise UnavailableError("they were back before a bystander could be watched: make them more")
            latencies.append(json.loads(told)["lat_us"]["p99"] / 1e3)
        finally:
            bystander.kill()


MEASUREMENTS = (
    Measurement("AMQP to MQTT and back", bridges),
    Measurement("QoS 1 into the queue of a session whose client is away", sessions),
    Measurement("1,000 retained values", retained),
    Measurement("1,000 idle connections", idle),
    Measurement("20,000 idle connections with keep-alives", many_idle),
    Measurement("5,000 clients come back at once", coming_back),
    Measurement("5,000 clients come back with passwords after a restart", coming_back_with_passwords),
)
