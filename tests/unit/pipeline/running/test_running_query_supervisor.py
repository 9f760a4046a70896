"""When failures of queries are taken for a Java that is spoilt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from enmasse.pipeline.running.supervision.query_supervisor import QuerySupervisor, StartLimiter, problem_of_all

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
