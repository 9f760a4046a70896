"""What the microseconds of a message are spent on: samples of a busy node, sorted by what the code there does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.generators import build
from benchmarks.measurement import Line, Setting, send_traffic
from benchmarks.node import Node
from enmasse.errors import UnavailableError

__all__ = ["missing_profiler", "sort_samples", "spending"]

RATE = 500
"""Samples a second."""
SECONDS = 4.0
WARMUP_S = 1.0

OTHER = "everything else: turns, credit, flow, statistics"
PLACES = (
    ("joining and writing output, the system call included", ("EngineProtocol._write (",)),
    ("the event loop: waiting, reading, calling us", ("Runner.run (", "run (asyncio/")),
    ("finding frames in what was read", ("Connection.receive (", "Connection._read (", "Connection._frames (")),
    ("reading a transfer", ("Session.on_transfer (", "Session._rare_fields (")),
    ("writing a transfer", ("SendingLink.send (",)),
    (
        "dispositions, in and out",
        (
            "Session.on_disposition (",
            "Session._dispose (",
            "Session._ids (",
            "SessionOutput.settle (",
            "SessionOutput._flush_dispositions (",
            "AnycastConsumer.on_outcome (",
        ),
    ),
    ("the address: choosing a receiver, remembering the delivery", ("enmasse/messaging/",)),
)
"""What is done, and how the innermost function of a sample tells that it is this; the first that fits counts."""


def missing_profiler() -> str:
    """How to get what looks on."""
    return "" if _tool() else "py-spy (`pip install py-spy` into an environment of its own, and name it in PY_SPY)"


def _tool() -> str | None:
    return os.environ.get("PY_SPY") or shutil.which("py-spy")


def spending(setting: Setting) -> Iterator[Line]:
    """Anycast 1:1, 100 bytes, unsettled, as fast as it goes, while py-spy looks on."""
    tool = _tool()
    assert tool is not None
    samples: Counter[str] = Counter()
    costs = []
    with setting.node() as node:
        node.declare("anycast.0", addressType="anycast")
        for _ in range(setting.runs):
            setting.patience.wait()
            traffic = send_traffic(node, "anycast.0", seconds=SECONDS, warmup=WARMUP_S)
            costs.append(traffic.result["server_cpu_us_per_msg"])
        setting.patience.wait()
        samples.update(sort_samples(_look(tool, node, setting.directory)))
    all_samples = sum(samples.values())
    us = median(costs)
    yield Line("a message, without anybody looking on", us, "us")
    for place in (*(name for name, _ in PLACES), OTHER):
        yield Line(place, us * samples[place] / all_samples, "us")


def _look(tool: str, node: Node, directory: Path) -> list[str]:
    """Sample the node under load; each line is a stack and how often it was met."""
    pid = node.processes["node"][0]
    with TemporaryDirectory(prefix="run-", dir=directory) as name:
        found = Path(name) / "samples"
        load = [str(build("amqp_load")), "--port", str(node.port), "--address", "anycast.0"]
        load += ["--seconds", str(SECONDS + 2 * WARMUP_S), "--json"]
        with subprocess.Popen(load, stdout=subprocess.DEVNULL) as generator:
            watch = [tool, "record", "--pid", str(pid), "--duration", str(round(SECONDS)), "--rate", str(RATE)]
            done = subprocess.run(
                [*watch, "--format", "raw", "--function", "--output", str(found)],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            generator.wait(60)
        if done.returncode or not found.exists():
            raise UnavailableError(f"py-spy saw nothing: {done.stderr.strip()}")
        return found.read_text().splitlines()


def sort_samples(stacks: Iterable[str]) -> Counter[str]:
    """Count samples by what is done in their innermost function."""
    counts: Counter[str] = Counter()
    for line in stacks:
        stack, _, number = line.rpartition(" ")
        innermost = stack.rpartition(";")[2]
        place = next((name for name, marks in PLACES if any(mark in innermost for mark in marks)), OTHER)
        counts[place] += int(number)
    return counts
