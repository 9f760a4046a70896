"""Where results go: a table on the terminal, and a file with one JSON line per case and server."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.comparison import Outcome
from benchmarks.measurement import Line
from enmasse.version import __version__

__all__ = ["Results"]

SERVER_WIDTH = 26
COLUMNS = (("CPU us", 7), ("min .. max", 15), ("msg/s", 9), ("p50 us", 7), ("p99 us", 7), ("RSS MB", 6), ("runs", 6))
PLAIN_WIDTH = 120
"""Where the output is no terminal."""


class Results:
    """One invocation's results.

    Args:
        directory: where the file is made.
        command: what was asked for, to be told beside the figures.
    """

    def __init__(self, directory: Path, command: list[str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        now = datetime.now(UTC)
        self.path = directory / f"{now:%Y%m%dT%H%M%SZ}.jsonl"
        self.console = Console()
        if not self.console.is_terminal:
            self.console = Console(width=PLAIN_WIDTH)
        self._write({"kind": "about", "at": now.isoformat(timespec="seconds"), "command": command, **_about()})

    def _write(self, record: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def add(self, suite: str, outcomes: list[Outcome]) -> None:
        """Keep what was measured in one case."""
        for outcome in outcomes:
            record: dict[str, Any] = {
                "kind": "case",
                "suite": suite,
                "case": outcome.case.name,
                "target_us": outcome.case.target,
                "target_p99_ms": outcome.case.target_p99_ms,
                "server": outcome.server,
                "disturbed": outcome.is_disturbed,
                "failure": outcome.failure,
                "runs": outcome.runs,
                "thrown_away": outcome.thrown_away,
            }
            if outcome.counted:
                for name in ("us", "rate", "p50", "p99", "rss_mb"):
                    record[name] = dict(zip(("min", "median", "max"), outcome.figures(name), strict=True))
                record["parts_us"] = outcome.parts()
                record["losses"] = outcome.losses()
            self._write(record)

    def add_record(self, suite: str, record: dict[str, Any]) -> None:
        """Keep what is no case of the common kind."""
        self._write({"kind": "figures", "suite": suite, **record})

    def add_lines(self, suite: str, name: str, lines: Sequence[Line], failure: str) -> None:
        """Keep and print what has a plan of its own."""
        figures = [asdict(line) for line in lines]
        self._write({"kind": "lines", "suite": suite, "case": name, "failure": failure, "lines": figures})
        table = Table(title=name, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        table.add_column("", min_width=SERVER_WIDTH)
        table.add_column("", justify="right", min_width=12, no_wrap=True)
        table.add_column("")
        table.add_column("target")
        for line in lines:
            shown = f"{line.value:,.2f}" if abs(line.value) < 100 else f"{line.value:,.0f}"
            table.add_row(line.what, shown, line.unit, line.verdict)
        self.console.print(table)
        if failure:
            self.console.print(f"  failed: {failure}", highlight=False, markup=False)

    def show(self, outcomes: list[Outcome]) -> None:
        """Print what was measured in one case."""
        if not outcomes:
            return
        table = Table(title=outcomes[0].case.name, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        table.add_column("server", min_width=SERVER_WIDTH)
        for heading, width in COLUMNS:
            table.add_column(heading, justify="right", min_width=width, no_wrap=True)
        for outcome in outcomes:
            table.add_row(outcome.server, *_cells(outcome))
        self.console.print(table)
        for outcome in outcomes:
            for remark in _remarks(outcome):
                self.console.print(f"  {outcome.server}: {remark}", highlight=False, markup=False)


def _cells(outcome: Outcome) -> list[str]:
    runs = f"{len(outcome.runs)}"
    if outcome.thrown_away:
        runs += f" (-{len(outcome.thrown_away)})"
    if not outcome.counted:
        return ["-"] * 6 + [runs]
    low, median, high = outcome.figures("us")
    cells = [f"{median:,.2f}", f"{low:,.2f} .. {high:,.2f}", f"{outcome.figures('rate')[1]:,.0f}"]
    cells += [f"{outcome.figures(name)[1]:,.0f}" for name in ("p50", "p99")]
    return [*cells, f"{outcome.figures('rss_mb')[1]:,.0f}", runs]


def _remarks(outcome: Outcome) -> list[str]:
    remarks = []
    if outcome.failure:
        remarks.append(f"failed: {outcome.failure.partition(': /')[0].splitlines()[0]}")
    if outcome.is_disturbed:
        remarks.append("every run was DISTURBED by other processes")
    if outcome.counted:
        if outcome.losses():
            remarks.append(f"{outcome.losses()} lost or spoilt")
        parts = outcome.parts()
        if len(parts) > 1 and outcome.case.durable | outcome.case.stores:
            remarks.append(", ".join(f"{role} {us:.2f} us" for role, us in parts.items()))
        target = outcome.case.target
        if target and "node" in parts:
            role = outcome.case.target_of
            verdict = "within" if (parts[role] if role else outcome.figures("us")[1]) <= target else "ABOVE"
            remarks.append(f"{verdict} the target of {target:g} us{f' for the {role}' if role else ''}")
        target_ms = outcome.case.target_p99_ms
        if target_ms and "node" in parts:
            verdict = "within" if outcome.figures("p99")[1] <= target_ms * 1e3 else "ABOVE"
            remarks.append(f"p99 {verdict} the target of {target_ms:g} ms")
    return remarks


def _about() -> dict[str, Any]:
    """The version and the machine, without which figures mean little."""
    models = [
        line.partition(":")[2].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")
    ]
    memory = next((line.split()[1] for line in _lines(Path("/proc/meminfo"))), "0")
    return {
        "version": __version__,
        "commit": _git("rev-parse", "--short", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no", "--", "src")),
        "python": sys.version.split()[0],
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": models[0] if models else "",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "memory_mb": int(memory) // 1024,
    }


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _git(*arguments: str) -> str:
    here = Path(__file__).parent
    try:
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
