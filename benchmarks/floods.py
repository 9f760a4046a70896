"""What one connection that floods a node with frames costs another connection of its space."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from benchmarks.measurement import Line, Measurement, Setting
from benchmarks.node import Node
from enmasse.client.blocking import connect
from enmasse.client.message import Message

__all__ = ["MEASUREMENTS"]

KINDS = {"attach": "attaches and detaches", "begin": "begins and ends", "flow": "asks for flows"}

LIMIT_MS = 30.0

WARMUP_S = 0.5

SECONDS = 3.0
"""At least."""


def floods(setting: Setting) -> Iterator[Line]:
    """Durable sends one at a time, connections and links, beside one flooder of each kind in turn."""
    seconds = max(setting.seconds, SECONDS)
    found: dict[str, list[dict[str, float]]] = {}
    with setting.node() as node:
        for address in ("queue.flood", "queue.probe"):
            node.declare(address, addressType="queue")
        setting.patience.wait()
        for _ in range(setting.runs):
            # In turns, so that whatever else the machine does meets all of them.
            found.setdefault("calm", []).append(_probe(node, seconds))
            for kind, name in KINDS.items():
                with _flood(node, kind, seconds + 60):
                    found.setdefault(f"beside one that {name}", []).append(_probe(node, seconds))
    for name, runs in found.items():
        for what in runs[0]:
            target = 0.0 if name == "calm" or "p50" in what else LIMIT_MS
            yield Line(f"{name}: {what}", median(run[what] for run in runs), "ms", target=target)


def _probe(node: Node, seconds: float) -> dict[str, float]:
    """Milliseconds of a send that is accepted, of an open connection and of an attached link.

    By the clock, and how long the node ran meanwhile: on a machine that others use the latter tells more.
    """
    found: dict[str, float] = {}

    def measure(what: str, call: Callable[[], object], seconds: float) -> None:
        clock, cpu = _times(node, call, seconds)
        found[f"{what} p50"] = median(clock)
        found[f"{what} p99"] = quantiles(clock, n=100)[98]
        found[f"{what} p99, time of the node"] = quantiles(cpu, n=100)[98]

    with connect(node.url) as connection:
        sender = connection.sender("queue.probe")
        message = Message("x" * 100, durable=True)
        measure("send", lambda: sender.send(message), seconds)
        measure("attach and detach", lambda: connection.sender("queue.probe").close(), seconds / 2)
    measure("connect and close", lambda: connect(node.url).close(), seconds / 2)
    return found


def _times(node: Node, call: Callable[[], object], seconds: float) -> tuple[list[float], list[float]]:
    clock: list[float] = []
    cpu: list[float] = []
    spent = Path(f"/proc/{node.processes['node'][0]}/schedstat")
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until or len(clock) < 2:
        before = _nanoseconds(spent)
        call()
        clock.append((time.perf_counter() - began) * 1000)
        cpu.append((_nanoseconds(spent) - before) / 1_000_000)
    return clock, cpu


def _nanoseconds(spent: Path) -> int:
    return int(spent.read_text(encoding="ascii").split()[0])


@contextmanager
def _flood(node: Node, kind: str, seconds: float) -> Iterator[None]:
    script = Path(__file__).parent / "flooding.py"
    where = ("--port", str(node.port), "--kind", kind, "--address", "queue.flood", "--seconds", str(seconds))
    # Clients are on machines of their own; here the flooder must not keep the other one from running.
    with subprocess.Popen(["nice", "-n", "10", sys.executable, str(script), *where]) as process:
        try:
            time.sleep(WARMUP_S)
            yield
            if process.poll() is not None:
                message = f"the flooder has ended: {process.returncode}"
                raise RuntimeError(message)
        finally:
            process.kill()


MEASUREMENTS = (Measurement("One connection that floods its space", floods),)
