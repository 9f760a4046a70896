"""What a connector costs the node that relays: CPU and memory of messages, the time of a hop, opened connections."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.accounting import AnonymousPeak, anonymous_bytes
from benchmarks.cases import Case
from benchmarks.generators import build, run
from benchmarks.measurement import Line, Measurement, Setting, send_traffic
from benchmarks.node import SPACE, Node
from benchmarks.peers import Floor
from enmasse.client.blocking import connect
from enmasse.errors import UnavailableError

__all__ = ["MEASUREMENTS"]

WARMUP_S = 0.5

SIZES = {100: ("100 B", 4.5), 65_536: ("64 KiB", 80.0)}
"""Bytes of a body, and the CPU microseconds of the relaying node per message that we want to stay under."""

GROWTH_MB = 64
"""Megabytes by which a node may grow that relays without end: what may wait on a link, and on its way."""

RATE = 1_000
HOP_RATIO = 1.5
"""Times that a hop may take of what bytes take that are only passed on."""

OPENED = 200
OPENED_LIMIT_S = 120.0


def relay(setting: Setting) -> Iterator[Line]:
    """One sender and one receiver, unsettled; each in turn comes through the connector, and before that neither."""
    with two_nodes(setting) as (near, far):
        there, here = ("anycast.0", far.port), ("mill/anycast.0", near.port)
        itself = ("anycast.0", near.port)
        ways = {
            "without a connector": (itself, itself),
            "the sender through one": (here, there),
            "the receiver through one": (there, here),
        }
        for size, (named, target) in SIZES.items():
            for who, (sends, receives) in ways.items():
                costs, before = [], anonymous_bytes(near.pids)
                with AnonymousPeak(lambda: near.pids) as peak:
                    for _ in range(setting.runs):
                        setting.patience.wait()
                        more = (
                            "--port",
                            str(sends[1]),
                            "--recv-port",
                            str(receives[1]),
                            "--recv-address",
                            receives[0],
                        )
                        traffic = send_traffic(
                            near, sends[0], *more, "--size", str(size), seconds=setting.seconds, warmup=WARMUP_S
                        )
                        assert not traffic.result["bad"], "messages came spoilt"
                        costs.append(traffic.result["server_cpu_us_per_msg"])
                yield Line(f"{named}, {who}", median(costs), "us", target=0 if sends == receives else target)
                yield Line("the node has grown by", (peak.bytes - before) / 1e6, "MB", target=GROWTH_MB)


def hop(setting: Setting) -> Iterator[Line]:
    """1,000 messages of 100 B a second, in turns through nothing but the other node, through both, and as bytes.

    A hop is by what the way through both takes longer.
    """
    case = Case("hop", "anycast", rate=RATE)
    found: dict[str, list[float]] = {"direct": [], "both": [], "bytes": []}
    with two_nodes(setting) as (near, far), TemporaryDirectory(prefix="run-", dir=setting.directory) as directory:
        floor = Floor(Path(directory))
        try:
            for _ in range(setting.runs):
                setting.patience.wait()
                for name, node, address in (("direct", far, "anycast.0"), ("both", near, "mill/anycast.0")):
                    more = ("--recv-port", str(far.port), "--recv-address", "anycast.0", "--rate", str(RATE))
                    traffic = send_traffic(node, address, *more, seconds=setting.seconds, warmup=WARMUP_S)
                    found[name].append(traffic.result["lat_us"]["p50"])
                load = floor.load(case)
                assert load is not None
                result = run(load, floor.processes["relay"], seconds=setting.seconds, warmup=WARMUP_S)
                found["bytes"].append(result["lat_us"]["p50"])
        finally:
            floor.stop()
    direct, both, alone = (median(found[name]) for name in ("direct", "both", "bytes"))
    yield Line("p50 to the other node directly", direct, "us")
    yield Line("p50 through the connector", both, "us")
    yield Line("p50 of a hop", both - direct, "us")
    yield Line("p50 of bytes that are passed on", alone, "us")
    yield Line("ratio of the hop to bytes alone", (both - direct) / alone, "", target=HOP_RATIO)


def opening(setting: Setting) -> Iterator[Line]:
    """Open connections with a receiver each, in pairs: here and through the connector, and here once more."""
    costs: dict[str, list[float]] = {"here": [], "through": [], "again": []}
    with two_nodes(setting) as (near, _):
        _open(near, "anycast.0")  # what is made once
        _open(near, "mill/anycast.0")
        for _ in range(2 * setting.runs):
            setting.patience.wait()
            for name, found in costs.items():
                found.append(_open(near, "mill/anycast.0" if name == "through" else "anycast.0"))
    here, again, through = (median(costs[name]) for name in ("here", "again", "through"))
    yield Line("a receiver of an address here", here, "us")
    yield Line("the same against itself", 100 * (again - here) / here, "%")
    yield Line("a receiver through the connector", through, "us")
    yield Line("which is more by", median(t - h for t, h in zip(costs["through"], costs["here"], strict=True)), "us")


def _open(node: Node, address: str) -> float:
    """Return the CPU microseconds of the node for each connection with a receiver that is opened."""
    pids = ",".join(map(str, node.processes["node"]))
    command = [str(build("amqp_load")), "--port", str(node.port), "--address", address, "--mode", "idle"]
    command += ["--receivers", str(OPENED), "--idle-links", "--seconds", "0.5", "--server-pid", pids, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=OPENED_LIMIT_S)
    if done.returncode:
        raise UnavailableError(f"the load generator gave up: {done.stderr.strip()}")
    cost: float = json.loads(done.stdout)["server_connect_cpu_us_per_conn"]
    return cost


@contextmanager
def two_nodes(setting: Setting) -> Iterator[tuple[Node, Node]]:
    """Start two nodes, of which the first has a connector to the second."""
    with setting.node() as far, setting.node("--connector-network", "127.0.0.1/32") as near:
        for node in (far, near):
            node.declare("anycast.0", addressType="anycast")
        connect_them(near, far)
        yield near, far


def connect_them(near: Node, far: Node) -> None:
    """Give a node a connector ``mill`` to another."""
    server = {"host": "127.0.0.1", "port": far.port}
    with connect(near.admin_url) as connection:
        connectors = {"mill": {"servers": [server], "patterns": ["#"]}}
        connection.management().update("io.enmasse.space", SPACE, {"connectors": connectors})


MEASUREMENTS = (
    Measurement("Through a connector", relay),
    Measurement("A hop through a connector at 1,000/s", hop),
    Measurement("CPU of the node to open a connection", opening),
)
