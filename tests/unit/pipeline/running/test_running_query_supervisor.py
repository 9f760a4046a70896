"""What is known of a query once it was started; when failures are taken for a Java that is spoilt."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from enmasse.pipeline.running.planning.plans import JobPlan
from enmasse.pipeline.running.supervision.query_supervisor import (
    PROCESSING,
    PROGRESS_S,
    SILENT_S,
    JobSupervisor,
    QuerySupervisor,
    StartLimiter,
    problem_of_all,
)

JAVA = "Caused by: java.lang.IllegalStateException: Illegal size 5 of collection, expected 8"
AWAY = "Caused by: enmasse.pipeline.errors.StreamUnavailableError: gave up after 60 s"


def failing(*errors: str) -> QuerySupervisor:
    """A query that was started so often, and failed with these errors."""
    left = list(errors)

    def start() -> Any:
        raise RuntimeError(left.pop(0))

    return tended(start, len(errors))


def tended(start: Callable[[], Any], times: int) -> QuerySupervisor:
    lines: list[str] = []
    life = QuerySupervisor("q", start, lines.append, StartLimiter(1))
    for number in range(times):
        life.check(1000.0 * number)
    return life


def started(looks: list[int], *, is_active: bool, has_order: bool = False) -> QuerySupervisor:
    """One that has started a query without a report; if it has ended, there was nothing to read."""

    def look() -> None:
        looks.append(len(looks))

    java = SimpleNamespace(lastProgress=look, exception=lambda: SimpleNamespace(isDefined=lambda: False))
    query: Any = SimpleNamespace(isActive=is_active, _jsq=java, status={"message": "Getting offsets"})
    lines: list[str] = []
    life = QuerySupervisor("q", lambda: query, lines.append, StartLimiter(1), has_order=lambda: has_order)
    life.check(0.0)
    return life


def test_what_a_start_came_to_is_known_when_it_is_over() -> None:
    assert started([], is_active=False).state == "Finished"


def test_a_start_is_not_waited_for_when_the_pipeline_is_to_change() -> None:
    looks: list[int] = []
    assert started(looks, is_active=True, has_order=True).state == "Starting"
    assert looks == [0, 1]


def test_a_batch_that_takes_long_is_told_and_what_waits_for_it_is_not_known() -> None:
    batch = json.dumps(
        {
            "runId": "r",
            "batchId": 1,
            "timestamp": "t1",
            "durationMs": {"addBatch": 5},
            "sources": [{"endOffset": {"stream": "s", "0": 4}, "latestOffset": {"stream": "s", "0": 6}}],
        }
    )
    reports = [SimpleNamespace(timestamp=lambda: "t1", json=lambda: batch)]
    java = SimpleNamespace(
        lastProgress=lambda: reports[-1],
        recentProgress=lambda: reports,
        exception=lambda: SimpleNamespace(isDefined=lambda: False),
    )
    query: Any = SimpleNamespace(isActive=True, _jsq=java, status={"message": "Getting offsets from it"})
    lines: list[str] = []
    life = QuerySupervisor("q", lambda: query, lines.append, StartLimiter(1))
    life.check(0.0)
    life.check(SILENT_S + 1)
    assert (life.state, life.long_since, life.status().lag) == ("Running", None, 2)
    query.status = {"message": PROCESSING}
    life.check(SILENT_S + 2)
    since = life.long_since
    assert since is not None
    assert (life.state, life.status().lag) == ("Running", None)
    life.check(SILENT_S + 30)
    assert life.long_since is since
    newer = batch.replace("t1", "t2")
    reports.append(SimpleNamespace(timestamp=lambda: "t2", json=lambda: newer))
    life.check(SILENT_S + 31)
    assert life.status().lag == 2


def test_the_log_tells_how_far_a_query_is_after_its_first_batch_then_once_a_minute_and_when_it_ends() -> None:
    def report(batch: int) -> Any:
        facts = {
            "runId": "r",
            "batchId": batch,
            "timestamp": f"2026-01-31T12:00:{batch:02}.000Z",
            "numInputRows": 1000,
            "durationMs": {"addBatch": 5, "latestOffset": 3000, "triggerExecution": 3250},
            "sources": [{"endOffset": {"stream": "s", "0": 4}, "latestOffset": {"stream": "s", "0": 6}}],
            "eventTime": {"watermark": "2026-01-31T11:59:50.000Z"},
            "stateOperators": [{"numRowsTotal": 7, "numRowsDroppedByWatermark": 2}],
        }
        return SimpleNamespace(timestamp=lambda: facts["timestamp"], json=lambda: json.dumps(facts))

    reports = [report(0)]
    java = SimpleNamespace(
        lastProgress=lambda: reports[-1],
        recentProgress=lambda: reports,
        exception=lambda: SimpleNamespace(isDefined=lambda: False),
    )
    query: Any = SimpleNamespace(isActive=True, _jsq=java, status={"message": PROCESSING})
    lines: list[str] = []
    life = QuerySupervisor("q", lambda: query, lines.append, StartLimiter(1))
    life.check(0.0)
    first = (
        "query q: batch 0, 1,000 rows since the runner started, the last batch took 250 ms, at 4,000 rows a second, "
        "lag 2, watermark 10.0 s behind, 2 late rows, 7 rows of state"
    )
    assert lines == [first]
    for batch in (1, 2):
        reports.append(report(batch))
        life.check(float(batch))
    assert lines == [first]
    reports.append(report(3))
    life.check(PROGRESS_S)
    assert [line[:33] for line in lines[1:]] == ["query q: batch 3, 4,000 rows since"[:33]]
    reports.append(report(4))
    query.isActive = False
    life.check(PROGRESS_S + 1)
    assert [line[:17] for line in lines[2:]] == ["query q: batch 4,", "query q: finished"]


def test_a_job_is_done_once_or_again_and_again() -> None:
    for is_once in (True, False):
        done: list[str] = []

        def run(done: list[str] = done) -> str:
            done.append("")
            if len(done) == 1:
                raise ValueError("no table yet")
            return "done"

        job = JobSupervisor(JobPlan("compact", run, 60.0), lambda _: None, is_once=is_once)
        states = []
        for now in (0.0, 0.5, 10.0, 20.0, 100.0, 110.0):
            job.check(now)
            states.append(job.state)
            if job._thread is not None:
                job._thread.join()
        again = ["Running", "Waiting"] if not is_once else ["Finished", "Finished"]
        assert states == ["Running", "Failed", "Running", "Finished" if is_once else "Waiting", *again]
        assert len(done) == (2 if is_once else 3)


def test_java_is_to_be_ended_once_every_query_fails_in_it_again_and_again() -> None:
    queries = [failing(JAVA, JAVA, JAVA), failing(AWAY, JAVA, JAVA, JAVA)]
    assert "fails in Java" in problem_of_all(queries)
    assert "IllegalStateException: Illegal size 5 of collection, expected 8" in problem_of_all(queries)


def test_a_failure_or_two_are_no_reason() -> None:
    assert problem_of_all([failing(JAVA, JAVA), failing(JAVA)]) == ""
    assert problem_of_all([]) == ""


def test_other_failures_between_show_that_java_is_not_spoilt() -> None:
    assert problem_of_all([failing(JAVA, JAVA, AWAY, JAVA, JAVA)]) == ""


def test_what_fails_before_it_gets_so_far_says_nothing() -> None:
    assert problem_of_all([failing(JAVA, JAVA, JAVA), failing(AWAY, AWAY)])
    assert problem_of_all([failing(AWAY, AWAY, AWAY)]) == ""


def test_a_query_that_runs_or_begins_keeps_java() -> None:
    beginning = tended(lambda: None, 0)
    assert problem_of_all([failing(JAVA, JAVA, JAVA), beginning]) == ""
