"""Idle connections: the memory that each takes, and the CPU time that opening and keeping it costs."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.table import Table

from benchmarks.cases import Case
from benchmarks.generators import build
from benchmarks.node import Node
from benchmarks.results import Results
from enmasse.errors import UnavailableError

__all__ = ["measure_idle"]

COUNT = 1_000
HOLD_S = 5.0
LIMIT_S = 120.0


def measure_idle(results: Results) -> None:
    """Open a thousand connections, first bare and then with one receiver each, and hold them.

    Raises:
        UnavailableError: the load generator could not open them all.
    """
    table = Table(title=f"{COUNT:,} idle connections")
    table.add_column("each with")
    for heading in ("KB each", "opened in s", "CPU us to open", "CPU share while idle"):
        table.add_column(heading, justify="right")
    for name, more in (("no link", ()), ("one receiver", ("--idle-links",))):
        # A node of its own for each: memory that was once taken is not given back.
        with ExitStack() as stack:
            node = Node(Path(stack.enter_context(TemporaryDirectory(prefix="run-", dir=results.directory))))
            stack.callback(node.stop)
            node.prepare([Case("idle", "anycast")])
            node_pid = str(node.processes["node"][0])
            command = [str(build("amqp_load")), "--mode", "idle", "--receivers", str(COUNT), "--address", "anycast.0"]
            command += ["--port", str(node.port), "--seconds", str(HOLD_S), "--server-pid", node_pid, *more]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        if done.returncode:
            raise UnavailableError(f"the load generator gave up: {done.stderr.strip()}")
        found = json.loads(done.stdout)
        results.add_record("connections", {"each": name, **found})
        table.add_row(
            name,
            f"{found['kb_per_conn']:.1f}",
            f"{found['connect_s']:.2f}",
            f"{found['server_connect_cpu_us_per_conn']:,.0f}",
            f"{found['server_idle_cores']:.1%}",
        )
    results.console.print(table)
