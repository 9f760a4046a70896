"""How long a sender waits until a durable message is accepted, beside the commit that this cannot do without."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from benchmarks.generators import build
from benchmarks.measurement import Line, Setting, send_traffic
from benchmarks.node import Node

__all__ = ["accepted_sends"]

RATE = 1_000
SECONDS = 5.0
"""Of each run, at least."""
TURN_S = 1.0
"""A disk is quick now and slow then: bare commits and sends take turns, so that both meet it in every state."""
WARMUP_S = 0.5
LONGEST_TURN_S = 30.0
RATIO = 2.0


def accepted_sends(setting: Setting) -> Iterator[Line]:
    """1,000 durable messages a second, from the moment each was due to its outcome.

    In turns of a second with a bare LMDB commit of the same, in one process and passed on to it by others as a
    node does: first on a quiet machine, then while anycast traffic takes whatever the node has. What is told
    are medians of the turns.
    """
    turns = max(1, round(setting.runs * max(setting.seconds, SECONDS) / TURN_S))
    with setting.node() as node:
        node.declare("queue.0", addressType="queue")
        node.declare("anycast.0", addressType="anycast")
        for name in ("quiet", "saturated by anycast traffic"):
            bare: list[dict[str, float]] = []
            passed_on: list[dict[str, float]] = []
            ours: list[dict[str, float]] = []
            setting.patience.wait()
            with ExitStack() as stack:
                if name != "quiet":
                    stack.enter_context(_saturated(node, turns * LONGEST_TURN_S))
                for _ in range(turns):
                    bare.append(_commit(setting.directory, TURN_S))
                    passed_on.append(_commit(setting.directory, TURN_S, "--passed-on"))
                    arguments = ("--mode", "send", "--durable", "--rate", str(RATE))
                    traffic = send_traffic(node, "queue.0", *arguments, seconds=TURN_S, warmup=WARMUP_S)
                    ours.append(traffic.result["lat_us"])
            for part in ("p50", "p99"):
                theirs = median(run[part] for run in bare)
                accepted = median(run[part] for run in ours)
                yield Line(f"{name}: {part} of a bare LMDB commit", theirs, "us")
                yield Line("the same, passed on", median(run[part] for run in passed_on), "us")
                yield Line(f"{part} of an accepted send", accepted, "us")
                yield Line("ratio to the bare commit", accepted / theirs, "", target=RATIO if part == "p99" else 0)


def _commit(directory: Path, seconds: float, *how: str) -> dict[str, float]:
    script = Path(__file__).parent / "bare_commits.py"
    command = [sys.executable, str(script), "--rate", str(RATE), "--seconds", str(seconds), *how]
    done = subprocess.run(
        [*command, "--directory", str(directory)], capture_output=True, text=True, check=True, timeout=seconds + 60
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


@contextmanager
def _saturated(node: Node, seconds: float) -> Iterator[None]:
    command = [str(build("amqp_load")), "--port", str(node.port), "--address", "anycast.0"]
    with subprocess.Popen([*command, "--seconds", str(seconds), "--json"], stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()
