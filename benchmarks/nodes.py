"""Several nodes: what a front costs that passes on bytes to the home of a space, and what opening through it costs.

Everything is CPU time of nodes, in turns within one run, as the machine differs from hour to hour. *Bytes alone* is a
proxy on the same event loop with the same sockets, reads and writes, and nothing of ours between (``bare_proxy.py``).
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.accounting import cpu_seconds
from benchmarks.generators import Load, build, run
from benchmarks.measurement import Line, Measurement, Setting
from benchmarks.node import SPACE, Node
from benchmarks.processes import Process
from benchmarks.starting import ENMASSE, RUNS
from enmasse.client.blocking import connect
from enmasse.drivers.supervisor.endpoints import read_endpoints
from enmasse.errors import UnavailableError
from enmasse.wire.peer_header import PeerHeader, write_peer_header
from enmasse.wire.proxy_header import BalancerTls, ProxyHeader

__all__ = ["MEASUREMENTS"]

PIPES = (("stomp", 100, 1.3), ("stomp", 65_536, 1.2), ("amqp", 100, 1.3), ("amqp", 65_536, 1.2))
"""Protocol, bytes of a body, and the times of bytes alone that a pipe may take."""
SIZES = {100: "100 B", 65_536: "64 KiB"}

HOST = "bench.default"
"""The space that is at home at the second node."""
NEAR_SPACE, NEAR_HOST = "default/near", "near.default"
"""The one that is at home at the first."""
ADDRESS = "anycast.0"

DIRECT_RATIO = 1.1
OPENING_RATIO = 1.5
OPENED = 400
SETTLE_S = 0.1
"""The time that both nodes have for the end of the last connection."""

PAIRS = 8
"""Pairs of connections on a port that nodes share: each lands at either of them."""


class Peers:
    """Two nodes, the first of which is the front of what is at home at the second, and bare proxies to that.

    Attributes:
        front: the first.
        home: the second.
        proxies: the process and the port of a bare proxy for each protocol.
    """

    def __init__(self, front: Node, home: Node, proxies: Mapping[str, tuple[int, int]]) -> None:
        self.front = front
        self.home = home
        self.proxies = proxies

    @property
    def pids(self) -> list[int]:
        """Of both nodes."""
        return [*self.front.pids, *self.home.pids]


@contextmanager
def two_nodes(setting: Setting) -> Iterator[Peers]:
    """Start two nodes and a bare proxy for each protocol."""
    # A path below the directory of results may be longer than the name of a socket may be.
    with TemporaryDirectory(prefix="enmasse-") as name, ExitStack() as stack:
        short = Path(name)
        directory, secret = short / "peers", secrets.token_bytes(32)
        (short / "secret").write_text(secret.hex())
        nodes = []
        for number in range(2):
            known = ("--peers", str(directory), "--peers-secret", str(short / "secret"))
            nodes.append(stack.enter_context(setting.node("--name", f"node-{number}", *known)))
        for node in nodes:
            _share(node)
        nodes[1].declare(ADDRESS, addressType="anycast")
        near = {"space": NEAR_SPACE, "address": ADDRESS, "addressType": "anycast"}
        with connect(nodes[0].admin_url) as connection:
            connection.management().create("io.enmasse.address", "near", near)
        proxies = {}
        for protocol in ("stomp", "amqp"):
            client = ProxyHeader(True, ("127.0.0.1", 1), ("127.0.0.1", 2), BalancerTls(is_used=False))
            header = PeerHeader(client, secret, "", "node-0", SPACE, 1, protocol, is_here=True)
            (short / protocol).write_bytes(write_peer_header(header))
            given = (str(directory / "node-1.sock"), str(short / protocol))
            log = short / f"{protocol}.log"
            proxy = Process([sys.executable, "-m", "benchmarks.bare_proxy", *given], log)
            stack.callback(proxy.stop)
            proxy.wait_until(lambda log=log: log.read_bytes().endswith(b"\n"), "listened")
            proxies[protocol] = proxy.pid, int(log.read_text())
        yield Peers(nodes[0], nodes[1], proxies)


def _share(node: Node) -> None:
    """Tell a node which space is at home where."""
    with connect(node.admin_url) as connection:
        management = connection.management()
        management.update("io.enmasse.space", SPACE, {"home": "node-1", "homeGeneration": 1})
        near = {"spaceType": "standard", "authentication": "none", "home": "node-0", "homeGeneration": 1}
        management.create("io.enmasse.space", NEAR_SPACE, near)


def pipe(setting: Setting) -> Iterator[Line]:
    """One sender and one receiver, unsettled, come in turns to the home, to a front, and to a bare proxy."""
    with two_nodes(setting) as peers:
        home = peers.home.pids
        for protocol, size, wanted in PIPES:
            proxy, port = peers.proxies[protocol]
            # The bare proxy begins behind a login, of which there is none.
            ways = {
                "home": (peers.home.port, [], ()),
                "front": (peers.front.port, peers.front.pids, ()),
                "bare": (port, [proxy], ("--no-sasl",) if protocol == "amqp" else ()),
            }
            passing: dict[str, list[float]] = {way: [] for way in ways}
            serving: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(setting.runs):
                setting.patience.wait()
                for way, (to, between, more) in ways.items():
                    load = _load(protocol, to, HOST, "--size", str(size), *more)
                    costs = _cost(setting, [load], (between, home))
                    passing[way].append(costs[0])
                    serving[way].append(costs[1])
            what = f"{protocol.upper()}, {SIZES[size]}"
            yield Line(f"{what}: a node that clients reach directly", median(serving["home"]), "us")
            yield Line("the home behind a front", median(serving["front"]), "us")
            yield Line("the front", median(passing["front"]), "us")
            yield Line("bytes alone", median(passing["bare"]), "us")
            ratio = median(one / other for one, other in zip(passing["front"], passing["bare"], strict=True))
            yield Line("ratio of the front to bytes alone", ratio, "", target=wanted)


def homes(setting: Setting) -> Iterator[Line]:
    """Two senders with a receiver each, of two spaces: one on each node, in turns with two on one node."""
    costs: dict[str, list[float]] = {"one": [], "two": []}
    with two_nodes(setting) as peers:
        near = _load("amqp", peers.front.port, NEAR_HOST)
        ways = {"one": (near, near), "two": (near, _load("amqp", peers.home.port, HOST))}
        for _ in range(2 * setting.runs):
            setting.patience.wait()
            for way, loads in ways.items():
                costs[way] += _cost(setting, loads, (peers.pids,))
    yield Line("AMQP, 100 B: two senders on one node", median(costs["one"]), "us")
    yield Line("one on each of two nodes, which are their homes", median(costs["two"]), "us")
    ratio = median(two / one for one, two in zip(costs["one"], costs["two"], strict=True))
    yield Line("ratio of two nodes to one", ratio, "", target=DIRECT_RATIO)


def shared_port(setting: Setting) -> Iterator[Line]:
    """Eight senders with a receiver each, of one space, on the port of ``enmasse up`` with one node and with two."""
    costs: dict[int, list[float]] = {1: [], 2: []}
    with ExitStack() as stack:
        ups = {number: stack.enter_context(_up(setting, number)) for number in costs}
        for _ in range(setting.runs):
            setting.patience.wait()
            for number, (pids, port) in ups.items():
                pairs = ("--connections", str(PAIRS), "--address", "anycast.%d")
                costs[number] += _cost(setting, [_load("amqp", port, HOST, *pairs)], (pids,))
    yield Line("AMQP, 100 B: with one node", median(costs[1]), "us")
    yield Line("with two nodes", median(costs[2]), "us")


@contextmanager
def _up(setting: Setting, number: int) -> Iterator[tuple[list[int], int]]:
    """Start an installation; give the processes of its nodes, and its port."""
    with TemporaryDirectory(prefix="run-", dir=setting.directory) as name:
        directory = Path(name)
        environment = {"ENMASSE_DATA": str(directory / "data")}
        log = directory / "log"
        up = Process([*ENMASSE, "up", "--ports", "auto", "--nodes", str(number)], log, environment)
        try:
            up.wait_until(lambda: RUNS in log.read_bytes(), "runs")
            addresses = [("create", "address", f"anycast.{pair}", "--type", "anycast") for pair in range(PAIRS)]
            for words in (("create", "space", "bench"), *addresses, ("status", "--wait", "60")):
                given = {**os.environ, **environment}
                subprocess.run([*ENMASSE, *words], env=given, stdout=subprocess.DEVNULL, check=True)
            endpoints = read_endpoints(directory / "data" / "endpoints.json")
            assert endpoints is not None
            pids = [one.pid for one in endpoints.processes if one.kind in ("node", "journal")]
            yield pids, int(str(endpoints.url("amqp")).rpartition(":")[2])
        finally:
            up.stop()


def opening(setting: Setting) -> Iterator[Line]:
    """Open connections of STOMP one after the other, and close each: at the home, through a front, a bare proxy."""
    with two_nodes(setting) as peers:
        proxy, port = peers.proxies["stomp"]
        home = peers.home.pids
        ways = {
            "home": (peers.home.port, []),
            "front": (peers.front.port, peers.front.pids),
            "bare": (port, [proxy]),
        }
        passing: dict[str, list[float]] = {way: [] for way in ways}
        serving: dict[str, list[float]] = {way: [] for way in ways}
        for to, _ in ways.values():
            _open(to)  # what is made once
        count = setting.count(OPENED)
        for _ in range(3 * setting.runs):
            setting.patience.wait()
            for way, (to, between) in ways.items():
                before = cpu_seconds(between), cpu_seconds(home)
                for _ in range(count):
                    _open(to)
                time.sleep(SETTLE_S)
                passing[way].append((cpu_seconds(between) - before[0]) / count * 1e6)
                serving[way].append((cpu_seconds(home) - before[1]) / count * 1e6)
    direct = median(serving["home"])
    yield Line("at the home", direct, "us")
    yield Line("through a front: the front", median(passing["front"]), "us")
    yield Line("through a front: the home", median(serving["front"]), "us")
    yield Line("a bare proxy", median(passing["bare"]), "us")
    ratios = {
        way: median(
            (between + at_home) / alone
            for between, at_home, alone in zip(passing[way], serving[way], serving["home"], strict=True)
        )
        for way in ("front", "bare")
    }
    yield Line("ratio of both through a front to the home alone", ratios["front"], "", target=OPENING_RATIO)
    yield Line("ratio with a bare proxy in its place", ratios["bare"], "")


def _open(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(f"CONNECT\naccept-version:1.2\nhost:{HOST}\n\n\0".encode())
        answer = sock.recv(4096)
    if not answer.startswith(b"CONNECTED"):
        raise UnavailableError(f"the connection was refused: {answer!r:.200}")


def _load(protocol: str, port: int, host: str, *more: str) -> Load:
    return Load(f"{protocol}_load", ("--port", str(port), "--address", ADDRESS, "--vhost", host, *more))


def _cost(setting: Setting, loads: Sequence[Load], groups: Sequence[Sequence[int]]) -> list[float]:
    """Run some loads at once; return the CPU microseconds of each group of processes per message."""
    for load in loads:
        build(load.tool)
    before = [cpu_seconds(pids) for pids in groups]
    everybody = [pid for pids in groups for pid in pids]
    with ThreadPoolExecutor(len(loads)) as pool:
        results = list(pool.map(lambda load: run(load, everybody, seconds=setting.seconds), loads))
    messages = sum(result["total_received"] for result in results)
    return [(cpu_seconds(pids) - used) / messages * 1e6 for pids, used in zip(groups, before, strict=True)]


MEASUREMENTS = (
    Measurement("A pipe to the home of a space, CPU of nodes for each message", pipe),
    Measurement("Two nodes whose clients reach their homes, CPU of both for each message", homes),
    Measurement("Through the port that nodes share, CPU of all for each message", shared_port),
    Measurement("CPU to open a connection through a front, and to close it", opening),
)
