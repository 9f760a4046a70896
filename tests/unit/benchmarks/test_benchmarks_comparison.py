from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from enmasse.errors import UnavailableError

# The benchmarks are no part of the package; they are found from the root of the repository.
sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks import comparison
from benchmarks.accounting import Patience
from benchmarks.cases import Case
from benchmarks.comparison import EXTRA_RUNS, Plan, compare
from benchmarks.generators import Load

CASE = Case("1:1", "anycast")


class FakeServer:
    def __init__(self, name: str, tool: str | None = "amqp_load") -> None:
        self.name = name
        self.tool = tool
        self.processes: dict[str, list[int]] = {"server": []}

    def prepare(self, cases: Iterable[Case]) -> None:
        pass

    def load(self, case: Case) -> Load | None:
        return None if self.tool is None else Load(self.tool, (self.name,))

    def stop(self) -> None:
        pass


def result(us: float, foreign: float = 0.0, steal: float = 0.0) -> dict[str, Any]:
    return {
        "server_cpu_us_per_msg": us,
        "foreign_share": foreign,
        "steal_share": steal,
        "total_sent": 10,
        "total_received": 10,
        "bad": 0,
    }


class FakeRuns:
    """Stands in for the generators: tells one server's prepared results after the other."""

    def __init__(self, results: dict[str, list[dict[str, Any] | UnavailableError]]) -> None:
        self.results = results
        self.order: list[str] = []

    def __call__(self, load: Load, pids: object, *, seconds: float, warmup: float) -> dict[str, Any]:
        name = load.arguments[0]
        self.order.append(name)
        found = self.results[name].pop(0)
        if isinstance(found, UnavailableError):
            raise found
        return found


def plan(runs: int) -> Plan:
    return Plan(seconds=0.1, runs=runs, patience=Patience(0.0))


def test_servers_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = FakeRuns({"ours": [result(1.0), result(2.0)], "theirs": [result(3.0), result(4.0)]})
    monkeypatch.setattr(comparison, "run", runs)
    compare(CASE, [FakeServer("ours"), FakeServer("theirs")], plan(2))
    assert runs.order == ["ours", "theirs", "ours", "theirs"]


def test_disturbed_runs_are_thrown_away_and_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = FakeRuns({"ours": [result(9.0, foreign=0.06), result(1.0), result(9.0, steal=0.05), result(2.0)]})
    monkeypatch.setattr(comparison, "run", runs)
    (outcome,) = compare(CASE, [FakeServer("ours")], plan(2))
    assert outcome.figures("us") == (1.0, 1.5, 2.0)
    assert len(outcome.thrown_away) == 2
    assert not outcome.is_disturbed


def test_on_a_machine_that_is_never_quiet_the_runs_end_and_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = FakeRuns({"ours": [result(9.0, foreign=0.5) for _ in range(99)]})
    monkeypatch.setattr(comparison, "run", runs)
    (outcome,) = compare(CASE, [FakeServer("ours")], plan(2))
    assert len(runs.order) == 2 + EXTRA_RUNS
    assert outcome.is_disturbed


def test_a_server_that_fails_is_not_asked_again_and_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = FakeRuns({"ours": [result(1.0), result(1.0)], "theirs": [UnavailableError("gone")]})
    monkeypatch.setattr(comparison, "run", runs)
    ours, theirs = compare(CASE, [FakeServer("ours"), FakeServer("theirs")], plan(2))
    assert len(ours.runs) == 2
    assert theirs.failure == "gone"


def test_a_server_without_an_answer_to_the_case_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = FakeRuns({"ours": [result(1.0)]})
    monkeypatch.setattr(comparison, "run", runs)
    found = compare(CASE, [FakeServer("ours"), FakeServer("theirs", tool=None)], plan(1))
    assert [outcome.server for outcome in found] == ["ours"]


def test_what_was_sent_and_never_came_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = FakeRuns({"ours": [result(1.0) | {"total_received": 7, "bad": 1}]})
    monkeypatch.setattr(comparison, "run", runs)
    (outcome,) = compare(CASE, [FakeServer("ours")], plan(1))
    assert outcome.losses() == 4
