"""Idle connections: the memory that each takes, and the CPU time that opening and keeping it costs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.table import Table

from benchmarks.cases import Case
from benchmarks.generators import build
from benchmarks.node import Node
from benchmarks.peers import Peer
from benchmarks.reporting import Results
from enmasse.errors import UnavailableError

__all__ = ["measure_idle"]

COUNT = 1_000
HOLD_S = 5.0
LIMIT_S = 120.0
TARGET_KIB = 12
"""With one receiver."""


def measure_idle(results: Results, peers: Sequence[type[Peer]]) -> None:
    """Open a thousand connections, first bare and then with one receiver each, and hold them.

    Raises:
        UnavailableError: the load generator could not open them all.
    """
    table = Table(title=f"{COUNT:,} idle connections")
    table.add_column("server")
    table.add_column("each with")
    for heading in ("KiB each", "opened in s", "CPU us to open", "CPU share while idle"):
        table.add_column(heading, justify="right")
    kinds: list[tuple[type[Node | Peer], bool]] = [(Node, False), (Node, True)]
    for kind, has_link in (*kinds, *((peer, True) for peer in peers)):
        found = _measure(kind, results.directory, has_link=has_link)
        if found is None:
            continue
        is_wanted = kind is Node and has_link
        results.add_record("connections", {**found, "target_kib": TARGET_KIB if is_wanted else 0})
        verdict = ("" if found["kb_per_conn"] <= TARGET_KIB else f" > {TARGET_KIB}") if is_wanted else ""
        table.add_row(
            found["server"],
            found["each"],
            f"{found['kb_per_conn']:.1f}{verdict}",
            f"{found['connect_s']:.2f}",
            f"{found['server_connect_cpu_us_per_conn']:,.0f}",
            f"{found['server_idle_cores']:.1%}",
        )
    results.console.print(table)


def _measure(kind: type[Node | Peer], directory: Path, *, has_link: bool) -> dict[str, Any] | None:
    """One server of its own for each: memory that was once taken is not given back."""
    case = Case("idle", "anycast")
    with ExitStack() as stack:
        server = kind(Path(stack.enter_context(TemporaryDirectory(prefix="run-", dir=directory))))
        stack.callback(server.stop)
        server.prepare([case])
        load = server.load(case)
        if load is None or load.tool != "amqp_load":
            return None
        roles = server.processes
        pids = ",".join(map(str, roles.get("node") or [pid for role in roles.values() for pid in role]))
        command = [str(build("amqp_load")), *load.arguments, "--mode", "idle", "--receivers", str(COUNT)]
        command += ["--seconds", str(HOLD_S), "--server-pid", pids, *(["--idle-links"] if has_link else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    if done.returncode:
        raise UnavailableError(f"the load generator gave up: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return {"server": server.name, "each": "one receiver" if has_link else "no link", **found}
