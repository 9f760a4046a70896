"""What TLS adds to a message, beside what the same bytes cost through the TLS library alone.

The library is asked in a loop, in memory and with warm caches. What TLS adds to a relay that does nothing else is
told as well, without a target: as it is never saturated, it may be woken for other pieces with TLS than without.
"""

from __future__ import annotations

import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.generators import Load, build, run
from benchmarks.measurement import LIMIT_S, Line, Setting
from benchmarks.node import Node
from benchmarks.processes import Process, free_port
from enmasse.engines.authority import Authority

__all__ = ["cost_of_tls", "missing_tls"]

ADDRESS = "anycast.0"
SIZES = {"100 B": 100, "1 KiB": 1024, "64 KiB": 65_536}
TURN_S = 0.5
"""Of traffic with TLS and without, through the node and through the relay, in turns: a machine's speed changes
within seconds."""
WARMUP_S = 0.3
RECORD_BYTES = 16 << 10
"""What a record of TLS holds at most, and what both ends fill it with under load."""
PORTION_BYTES = 256 << 10
ALONE_BYTES = 16 << 20
RATIO = 1.3
TURNS = 4
"""As many more than other cases have: a small difference of two figures."""


def missing_tls() -> str:
    """How to get a load generator that speaks TLS."""
    told = subprocess.run([str(build("amqp_load")), "--tls", "--help"], capture_output=True, text=True, check=False)
    return "OpenSSL's headers (apt-get install libssl-dev)" if "without TLS" in told.stderr else ""


class Relay:
    """A process that passes on whatever comes to a port.

    Args:
        directory: for what it prints.
        to: the port that it passes everything on to.
        certificates: where those are that it speaks TLS with; without them it speaks none.
    """

    def __init__(self, directory: Path, to: int, certificates: Path | None = None) -> None:
        self.port = free_port()
        more: tuple[str, ...] = ()
        if certificates is not None:
            more = ("--certificate", str(certificates / "default.crt"), "--key", str(certificates / "default.key"))
        log = directory / f"relay-{self.port}.log"
        self.process = Process([str(build("tls_relay")), "--port", str(self.port), "--to", str(to), *more], log)
        self.process.wait_until(lambda: "ready" in log.read_text(), "opened its port")


def cost_of_tls(setting: Setting) -> Iterator[Line]:
    """Anycast 1:1, unsettled, through one listener without and with TLS in turns."""
    with TemporaryDirectory(prefix="run-", dir=setting.directory) as name:
        directory = Path(name)
        certificates = directory / "tls"
        certificates.mkdir()
        Authority(certificates).keep_server_certificate("default", ("localhost", "127.0.0.1"))
        node = Node(directory, tls=certificates)
        relays: list[Relay] = []
        try:
            node.declare(ADDRESS, addressType="anycast")
            relays += [Relay(directory, node.port), Relay(directory, node.port, certificates)]
            for shown, size in SIZES.items():
                yield from _compare(setting, node, relays, certificates, shown, size)
        finally:
            for relay in relays:
                relay.process.stop()
            node.stop()


def _compare(
    setting: Setting, node: Node, relays: list[Relay], certificates: Path, shown: str, size: int
) -> Iterator[Line]:
    everybody = [pid for pids in node.processes.values() for pid in pids]
    bare, secured = relays
    ways: dict[str, tuple[int, list[int], tuple[str, ...]]] = {
        "node": (node.port, everybody, ()),
        "node over TLS": (node.port, everybody, ("--tls",)),
        "relay": (bare.port, [bare.process.pid], ()),
        "relay over TLS": (secured.port, [secured.process.pid], ("--tls",)),
    }
    costs: dict[str, list[float]] = {way: [] for way in ways}
    alone: list[float] = []
    setting.patience.wait()
    for _ in range(max(1, round(TURNS * setting.runs * setting.seconds / TURN_S / 2))):
        for way, (port, pids, more) in ways.items():
            where = ("--port", str(port), "--address", ADDRESS, "--limit", str(LIMIT_S), "--size", str(size))
            result = run(Load("amqp_load", (*where, *more)), pids, seconds=TURN_S, warmup=WARMUP_S, late=2 * LIMIT_S)
            costs[way].append(result["server_cpu_us_per_msg"])
        # A message comes in and goes out, each time in a frame that is a little longer than it.
        alone.append(_library_us_per_byte(certificates) * (size + (29 if size < 256 else 32)))
    added = {
        way: median(more - less for less, more in zip(costs[way], costs[f"{way} over TLS"], strict=True))
        for way in ("node", "relay")
    }
    yield Line(f"1:1, {shown}, unsettled, plain", median(costs["node"]), "us/message")
    yield Line("what TLS adds", added["node"], "us/message")
    yield Line("the same bytes through the TLS library alone", median(alone), "us/message")
    yield Line("multiple", added["node"] / median(alone), "", target=RATIO)
    yield Line("what TLS adds to a relay of the same traffic", added["relay"], "us/message")


def _library_us_per_byte(certificates: Path) -> float:
    """CPU microseconds of the library to open and to seal a byte, in memory, in portions."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(certificates / "default.crt", certificates / "default.key")
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    client_context.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    while waiting:
        try:
            waiting[0].do_handshake()
            waiting.pop(0)
        except ssl.SSLWantReadError:
            waiting.reverse()
    portion = bytes(PORTION_BYTES)
    used = 0
    for _ in range(ALONE_BYTES // PORTION_BYTES):
        client.write(portion)
        sealed = to_server.read()
        began = time.thread_time_ns()
        to_server.write(sealed)
        for _ in range(PORTION_BYTES // RECORD_BYTES):
            server.read(RECORD_BYTES)
        server.write(portion)
        to_client.read()
        used += time.thread_time_ns() - began
    return used / 1e3 / ALONE_BYTES
