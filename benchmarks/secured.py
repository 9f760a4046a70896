"""What TLS adds to a message, beside what the same bytes cost through the TLS library alone."""

from __future__ import annotations

import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.generators import build
from benchmarks.measurement import Line, Setting, send_traffic
from benchmarks.node import Node
from enmasse.engines.authority import Authority

__all__ = ["cost_of_tls", "missing_tls"]

SIZES = {"100 B": 100, "1 KiB": 1024, "64 KiB": 65_536}
TURN_S = 1.0
"""Of traffic with TLS and without, in turns: a machine's speed changes within seconds."""
WARMUP_S = 0.5
RECORD_BYTES = 16 << 10
"""What a record of TLS holds at most, and what both ends fill it with under load."""
PORTION_BYTES = 256 << 10
"""As much as stays in the processor's cache: the library alone is given its best."""
ALONE_BYTES = 64 << 20
RATIO = 1.3
TURNS = 3
"""As many more than other cases have: a small difference of two figures."""


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
            node.declare("anycast.0", addressType="anycast")
            for shown, size in SIZES.items():
                yield from _compare(setting, node, certificates, shown, size)
        finally:
            node.stop()


def _compare(setting: Setting, node: Node, certificates: Path, shown: str, size: int) -> Iterator[Line]:
    costs: dict[bool, list[float]] = {False: [], True: []}
    alone: list[float] = []
    setting.patience.wait()
    for _ in range(max(1, round(TURNS * setting.runs * setting.seconds / TURN_S))):
        for is_secured, found in costs.items():
            more = ("--tls",) if is_secured else ()
            arguments = ("--size", str(size), *more)
            traffic = send_traffic(node, "anycast.0", *arguments, seconds=TURN_S, warmup=WARMUP_S)
            found.append(traffic.result["server_cpu_us_per_msg"])
        # A message comes in and goes out, each time in a frame that is a little longer than it.
        alone.append(_library_us_per_byte(certificates) * (size + (29 if size < 256 else 32)))
    added = median(secured - plain for plain, secured in zip(costs[False], costs[True], strict=True))
    yield Line(f"1:1, {shown}, unsettled, plain", median(costs[False]), "us/message")
    yield Line("what TLS adds", added, "us/message")
    yield Line("the same bytes through the TLS library alone", median(alone), "us/message")
    yield Line("multiple", added / median(alone), "", target=RATIO)


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
