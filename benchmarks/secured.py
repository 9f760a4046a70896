"""What TLS adds to a message, beside what the same bytes cost through the TLS library alone.

The node has one processor to itself and the generator another, or a busier generator would move the node about. A
machine that others share is slower for parts of the time, by up to the double, and seconds later it is not: so runs
are short and many, with TLS and without in turns, and the calmest tenth of each counts. The library is asked in a
loop, in memory and with warm caches, on the node's processor.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.generators import Load, build, run
from benchmarks.measurement import LIMIT_S, Line, Setting
from benchmarks.node import Node
from enmasse.drivers.authority import Authority

__all__ = ["cost_of_tls", "missing_tls"]

ADDRESS = "anycast.0"
SIZES = {"100 B": 100, "1 KiB": 1024, "64 KiB": 65_536}
TURN_S = 0.4
WARMUP_S = 0.15
TURNS = 12
"""Pairs of runs for each second that other cases measure for."""
CALM = 0.1
"""Of the runs that count, the one above so many."""
RECORD_BYTES = 16 << 10
"""What a record of TLS holds at most, and what both ends fill it with under load."""
PORTION_BYTES = 256 << 10
ALONE_BYTES = 16 << 20
RATIO = 1.3


def missing_tls() -> str:
    """How to get a load generator that speaks TLS."""
    told = subprocess.run([str(build("amqp_load")), "--tls", "--help"], capture_output=True, text=True, check=False)
    return "OpenSSL's headers (apt-get install libssl-dev)" if "without TLS" in told.stderr else ""


def cost_of_tls(setting: Setting) -> Iterator[Line]:
    """Anycast 1:1, unsettled, through one listener without and with TLS in turns."""
    with TemporaryDirectory(prefix="run-", dir=setting.directory) as name:
        directory = Path(name)
        certificates = directory / "tls"
        certificates.mkdir()
        Authority(certificates).keep_server_certificate("default", ("localhost", "127.0.0.1"))
        node = Node(directory, tls=certificates)
        try:
            node.declare(ADDRESS, addressType="anycast")
            with _kept_apart(node.pids) as processor:
                for shown, size in SIZES.items():
                    yield from _compare(setting, node, certificates, processor, shown, size)
        finally:
            node.stop()


def _compare(
    setting: Setting, node: Node, certificates: Path, processor: set[int], shown: str, size: int
) -> Iterator[Line]:
    where = ("--port", str(node.port), "--address", ADDRESS, "--limit", str(LIMIT_S), "--size", str(size))
    # A message comes in and goes out, each time in a frame that is a little longer than it.
    carried = size + (29 if size < 256 else 32)
    plain: list[float] = []
    secured: list[float] = []
    alone: list[float] = []
    setting.patience.wait()
    for _ in range(max(1, round(TURNS * setting.runs * setting.seconds))):
        for costs, more in ((plain, ()), (secured, ("--tls",))):
            load = Load("amqp_load", (*where, *more))
            result = run(load, node.pids, seconds=TURN_S, warmup=WARMUP_S, late=2 * LIMIT_S)
            costs.append(result["server_cpu_us_per_msg"])
        with _on(processor):
            alone.append(_library_us_per_byte(certificates) * carried)
    added, library = _calm(secured) - _calm(plain), _calm(alone)
    yield Line(f"1:1, {shown}, unsettled, plain", _calm(plain), "us/message")
    yield Line("what TLS adds", added, "us/message")
    yield Line("the same bytes through the TLS library alone", library, "us/message")
    yield Line("multiple", added / library, "", target=RATIO)


def _calm(costs: list[float]) -> float:
    return sorted(costs)[int(CALM * len(costs))]


@contextmanager
def _kept_apart(pids: Iterable[int]) -> Iterator[set[int]]:
    """Give processes one processor, and ourselves with whatever we start another; tell which is theirs."""
    ours = os.sched_getaffinity(0)
    theirs = {min(ours)}
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), theirs)
    with _on(ours - theirs or ours):
        yield theirs


@contextmanager
def _on(processors: set[int]) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


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
