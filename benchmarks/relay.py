"""What a message through a connector costs the node that relays it, and whether its memory stays flat."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from benchmarks.accounting import AnonymousPeak, anonymous_bytes
from benchmarks.measurement import Line, Measurement, Setting, send_traffic
from benchmarks.node import SPACE, Node
from enmasse.client.blocking import connect

__all__ = ["MEASUREMENTS"]

WARMUP_S = 0.5

SIZES = {100: ("100 B", 4.5), 65_536: ("64 KiB", 80.0)}
"""Bytes of a body, and the CPU microseconds of the relaying node per message that we want to stay under."""

GROWTH_MB = 64
"""Megabytes by which a node may grow that relays without end: what may wait on a link, and on its way."""


def relay(setting: Setting) -> Iterator[Line]:
    """One sender and one receiver, unsettled; each in turn comes through the connector, and before that neither."""
    with setting.node() as far, setting.node("--connector-network", "127.0.0.1/32") as near:
        for node in (far, near):
            node.declare("anycast.0", addressType="anycast")
        connect_them(near, far)
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


def connect_them(near: Node, far: Node) -> None:
    """Give a node a connector ``mill`` to another."""
    server = {"host": "127.0.0.1", "port": far.port}
    with connect(near.admin_url) as connection:
        connectors = {"mill": {"servers": [server], "patterns": ["#"]}}
        connection.management().update("io.enmasse.space", SPACE, {"connectors": connectors})


MEASUREMENTS = (Measurement("Through a connector", relay),)
