"""Runs cases against servers in turn, and keeps the runs that nothing disturbed.

The figure to compare is CPU time per message: rates and latencies move with the machine and with
whoever else uses it, CPU time much less so.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.accounting import Patience, cpu_seconds, rss_bytes
from benchmarks.cases import Case
from benchmarks.generators import Load, run
from benchmarks.peers import Server
from enmasse.errors import UnavailableError

__all__ = ["Outcome", "Plan", "compare"]

FOREIGN_SHARE = 0.05
STEAL_SHARE = 0.04
"""A run is thrown away when other processes, or the hypervisor, took more of the machine."""

EXTRA_RUNS = 3
"""What thrown-away runs of one case may be repeated with, for each server."""

SLOW_SECONDS = 5.0
"""A run at a fixed rate is at least so long: CPU time is counted in ticks of 10 ms."""

WARMUP_S = 0.7


@dataclass(frozen=True)
class Plan:
    """How much to measure.

    Attributes:
        seconds: of each run.
        runs: of each case and server.
        patience: waits for a quiet machine.
    """

    seconds: float
    runs: int
    patience: Patience


@dataclass
class Outcome:
    """What was measured of one server in one case.

    Attributes:
        case: what was done.
        server: by whom.
        runs: what was measured, each as the load generator tells it, and ``parts``: the share of each
            role in the server's CPU time.
        thrown_away: runs that were disturbed.
        failure: why there are no more runs.
    """

    case: Case
    server: str
    runs: list[dict[str, Any]] = field(default_factory=list)
    thrown_away: list[dict[str, Any]] = field(default_factory=list)
    failure: str = ""

    @property
    def is_disturbed(self) -> bool:
        """Whether there are only runs that ought to be thrown away."""
        return not self.runs and bool(self.thrown_away)

    @property
    def counted(self) -> list[dict[str, Any]]:
        """The runs to look at: disturbed ones only where there are no others."""
        return self.runs or self.thrown_away

    def figures(self, name: str) -> tuple[float, float, float]:
        """Smallest, median and greatest value of what the runs measured."""
        values = [_figure(run, name) for run in self.counted]
        return min(values), statistics.median(values), max(values)

    def parts(self) -> dict[str, float]:
        """CPU microseconds per message of each role, in the median."""
        per_message = self.figures("us")[1]
        roles = self.counted[0]["parts"]
        return {role: per_message * statistics.median(r["parts"][role] for r in self.counted) for role in roles}

    def losses(self) -> int:
        """Messages that were sent and never came (or were not accepted), came twice or spoilt.

        Bytes alone are not counted.
        """
        if any(run["tool"] == "tcp_floor" for run in self.counted):
            return 0
        if self.case.stores:
            return int(sum(run["total_sent"] - run["accepted"] for run in self.counted))
        lost = [abs(run["total_sent"] * self.case.fanout - run["total_received"]) for run in self.counted]
        return int(sum(lost) + sum(run["bad"] for run in self.counted))


def _figure(result: dict[str, Any], name: str) -> float:
    if name == "us":
        return float(result["server_cpu_us_per_msg"])
    if name == "rate":
        return float(result["received_per_s"] or result["sent_per_s"])
    if name in ("p50", "p99"):
        return float(result["lat_us"][name])
    return float(result[name])


def compare(case: Case, servers: Iterable[Server], plan: Plan) -> list[Outcome]:
    """Measure a case with each server that knows it, in alternation."""
    able: list[tuple[Server, Load, Outcome]] = []
    for server in servers:
        load = server.load(case)
        if load is not None:
            able.append((server, load, Outcome(case, server.name)))
    for _ in range(plan.runs + EXTRA_RUNS):
        for server, load, outcome in able:
            if len(outcome.runs) >= plan.runs or outcome.failure:
                continue
            plan.patience.wait()
            try:
                result = _measure(server, load, case, plan.seconds)
            except UnavailableError as error:
                outcome.failure = str(error)
                continue
            is_quiet = result["foreign_share"] <= FOREIGN_SHARE and result["steal_share"] <= STEAL_SHARE
            (outcome.runs if is_quiet else outcome.thrown_away).append(result)
    return [outcome for _, _, outcome in able]


def _measure(server: Server, load: Load, case: Case, seconds: float) -> dict[str, Any]:
    before = {role: cpu_seconds(pids) for role, pids in server.processes.items()}
    everybody: Sequence[int] = [pid for pids in server.processes.values() for pid in pids]
    long_enough = max(seconds, SLOW_SECONDS) if case.rate else seconds
    result = run(load, everybody, seconds=long_enough, warmup=WARMUP_S)
    used = {role: cpu_seconds(pids) - before[role] for role, pids in server.processes.items()}
    total = sum(used.values()) or 1.0
    result["tool"] = load.tool
    result["parts"] = {role: seconds / total for role, seconds in used.items()}
    result["rss_mb"] = rss_bytes(everybody) / 1e6
    return result
