"""The command line: what ``enmasse up`` takes until everything runs, and what a command costs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.accounting import cpu_seconds, descendants
from benchmarks.measurement import Line, Measurement, Setting
from benchmarks.processes import Process

__all__ = ["MEASUREMENTS"]

RUNS = b"Everything runs"
ENMASSE = (sys.executable, "-m", "enmasse")
DECLARED: tuple[tuple[str, ...], ...] = (
    ("create", "space", "bench"),
    ("create", "address", "orders", "--type", "queue"),
    ("status", "--wait", "60"),
)
"""What there is when commands are measured."""

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("--version",),
    ("get", "addresses"),
    ("status",),
    ("send", "orders", "a message"),
    ("receive", "orders", "--count", "1"),
)


def cost_of_starting(setting: Setting) -> Iterator[Line]:
    """Start an installation in an empty directory, and give commands, as often as is asked for."""
    figures: dict[str, list[float]] = {}
    for _ in range(setting.runs):
        setting.patience.wait()
        with TemporaryDirectory(prefix="run-", dir=setting.directory) as directory:
            for what, seconds in _measure(Path(directory)):
                figures.setdefault(what, []).append(seconds)
    for what, of_runs in figures.items():
        yield Line(what, median(of_runs), "s")


def _measure(directory: Path) -> Iterator[tuple[str, float]]:
    environment = {"ENMASSE_DATA": str(directory / "data")}
    log = directory / "log"
    began = time.monotonic()
    up = Process([*ENMASSE, "up", "--ports", "auto"], log, environment)
    try:
        up.wait_until(lambda: RUNS in log.read_bytes(), "runs")
        yield "from the start of up until everything runs", time.monotonic() - began
        yield "CPU of all its processes until then", cpu_seconds([up.pid, *descendants(up.pid)])
        for words in DECLARED:
            _cpu_of_command(words, environment)
        for words in COMMANDS:
            yield f"CPU of `enmasse {words[0]}`", _cpu_of_command(words, environment)
    finally:
        up.stop()


def _cpu_of_command(words: tuple[str, ...], environment: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*ENMASSE, *words], env={**os.environ, **environment}, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


MEASUREMENTS = (Measurement("The command line", cost_of_starting),)
