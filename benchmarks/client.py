"""The Python client beside python-qpid-proton's reactor: CPU of the client's own process per message.

Each run is a process of its own that sends 100-byte messages through one node to a constant counterpart, or
receives them from one; every message is made or read in full, and has its outcome. Runs of the two libraries
alternate. It stands by itself too: ``python -m benchmarks.client --runs 3``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.node import Node
from enmasse.client import Message, connect
from enmasse.errors import UnavailableError
from enmasse.net.loop import run

SIZE = 100
ADDRESS = "client"
TARGET = 5.0
"""How many times as many messages per CPU second we want to send and to receive."""

CREDIT = 1000
"""Of either library's receiver: more than either needs."""

WARMUP = 5_000
"""Messages before the clock starts."""

LOOK_EVERY = 256
LIMIT_S = 120.0
LIBRARIES = ("enmasse", "proton")
ROLES = ("send", "receive")


class Meter:
    """Counts messages, and the CPU time of this process from the end of the warm-up on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._count = 0
        self._began = 0.0
        self._cpu = 0.0
        self.result: dict[str, float] | None = None

    def count(self) -> bool:
        """One message more; whether it was the last one."""
        self._count += 1
        if self._count % LOOK_EVERY:
            return False
        if not self._began:
            if self._count >= WARMUP:
                self._count = 0
                self._began = time.perf_counter()
                self._cpu = time.process_time()
            return False
        took = time.perf_counter() - self._began
        if took < self._seconds:
            return False
        cpu = time.process_time() - self._cpu
        self.result = {"messages": self._count, "us": cpu / self._count * 1e6, "rate": self._count / took}
        return True


async def send_enmasse(url: str, seconds: float) -> dict[str, float] | None:
    meter = Meter(seconds)
    async with connect(url) as connection, connection.sender(ADDRESS) as sender:
        ended = asyncio.Event()

        def told(_outcome: Any) -> None:
            if meter.count():
                ended.set()

        while not ended.is_set():
            for _ in range(await sender.wait_for_credit()):
                sender.send_nowait(Message(bytes(SIZE))).add_done_callback(told)
        return meter.result


async def receive_enmasse(url: str, seconds: float) -> dict[str, float] | None:
    meter = Meter(seconds)
    async with connect(url) as connection, connection.receiver(ADDRESS, credit=CREDIT) as receiver:
        async for delivery in receiver:
            if len(delivery.message.body) != SIZE:
                raise UnavailableError("a message came that nobody has sent")
            delivery.accept()
            if meter.count():
                break
        return meter.result


def run_proton(role: str, url: str, seconds: float) -> dict[str, float] | None:
    from proton import Message as ProtonMessage  # noqa: PLC0415  the other child does not need it
    from proton.handlers import MessagingHandler  # noqa: PLC0415
    from proton.reactor import Container  # noqa: PLC0415

    meter = Meter(seconds)

    class Sending(MessagingHandler):
        def on_start(self, event: Any) -> None:
            event.container.create_sender(f"{url}/{ADDRESS}")

        def on_sendable(self, event: Any) -> None:
            while event.sender.credit > 0 and meter.result is None:
                event.sender.send(ProtonMessage(body=bytes(SIZE)))

        def on_accepted(self, event: Any) -> None:
            if meter.result is None and meter.count():
                event.connection.close()

    class Receiving(MessagingHandler):
        def __init__(self) -> None:
            super().__init__(prefetch=CREDIT)

        def on_start(self, event: Any) -> None:
            event.container.create_receiver(f"{url}/{ADDRESS}")

        def on_message(self, event: Any) -> None:
            if len(event.message.body) != SIZE:
                raise UnavailableError("a message came that nobody has sent")
            if meter.result is None and meter.count():
                event.connection.close()

    Container(Sending() if role == "send" else Receiving()).run()
    return meter.result


def child(library: str, role: str, url: str, seconds: float) -> None:
    """One run; prints what it found."""
    if library == "proton":
        found = run_proton(role, url, seconds)
    else:
        found = run((send_enmasse if role == "send" else receive_enmasse)(url, seconds))
    print(json.dumps(found), flush=True)


@contextmanager
def counterpart(role: str, url: str) -> Iterator[None]:
    """Whoever is at the other end, until this run is over."""
    other = "receive" if role == "send" else "send"
    process = subprocess.Popen(command("enmasse", other, url, LIMIT_S), stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def command(library: str, role: str, url: str, seconds: float) -> list[str]:
    return [sys.executable, "-m", "benchmarks.client", "--child", library, role, url, "--seconds", str(seconds)]


def measure(node: Node, library: str, role: str, seconds: float) -> dict[str, float]:
    """One run in a process of its own.

    Raises:
        UnavailableError: it did not come to its end.
    """
    with counterpart(role, node.url):
        ask = command(library, role, node.url, seconds)
        done = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    if done.returncode or not done.stdout.strip():
        raise UnavailableError(f"{library} did not {role}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> int:
    """Measure both libraries in both roles, and say how they compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each run (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each library and role (default: %(default)s)")
    parser.add_argument("--directory", type=Path, default=Path("build/bench"), help="where the node's data lie")
    parser.add_argument("--child", nargs=3, metavar=("LIBRARY", "ROLE", "URL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        library, role, url = given.child
        child(library, role, url, given.seconds)
        return 0
    given.directory.mkdir(parents=True, exist_ok=True)
    found: dict[tuple[str, str], list[dict[str, float]]] = {(r, lib): [] for r in ROLES for lib in LIBRARIES}
    with TemporaryDirectory(prefix="run-", dir=given.directory) as directory:
        node = Node(Path(directory))
        try:
            node.declare(ADDRESS, addressType="anycast")
            for _ in range(given.runs):
                for (role, library), runs in found.items():
                    runs.append(measure(node, library, role, given.seconds))
        finally:
            node.stop()
    for role in ROLES:
        us = {library: [one["us"] for one in found[role, library]] for library in LIBRARIES}
        for library, each in us.items():
            rate = statistics.median(one["rate"] for one in found[role, library])
            cost = f"{statistics.median(each):.2f} us of CPU per message ({min(each):.2f} to {max(each):.2f})"
            print(f"{role} {library}: {cost}, {rate:,.0f} a second")
        ratio = statistics.median(us["proton"]) / statistics.median(us["enmasse"])
        verdict = "within" if ratio >= TARGET else "MISSES"
        print(f"{role}: {ratio:.1f} times as many messages per CPU second ({verdict} >= {TARGET:g})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
