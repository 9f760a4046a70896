from __future__ import annotations

from collections.abc import Mapping

import pytest

from enmasse.errors import UnavailableError
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.errors import DataLossError
from enmasse.pipeline.source.offsets import PartitionState, Position, StreamState
from enmasse.pipeline.source.options import SourceOptions
from enmasse.pipeline.source.planner import Planner


def state(low: int, after: int, stream: str = "s1") -> StreamState:
    return StreamState(stream, {0: PartitionState(low, after)})


class Watch:
    """A node whose news are prepared; an error in place of a state is raised."""

    def __init__(self, now: StreamState, *news: StreamState | Exception | None) -> None:
        self.now, self.news, self.waits = now, list(news), list[float]()
        self.told: list[tuple[str, dict[int, int]]] = []
        self.refuses: Exception | None = None

    def state(self) -> StreamState:
        return self.now

    def wait(self, timeout_s: float) -> StreamState | None:
        self.waits.append(timeout_s)
        news = self.news.pop(0) if self.news else None
        if isinstance(news, Exception):
            raise news
        return news

    def rows_since(self, since_us: int) -> dict[int, int]:
        return {0: since_us // 1_000_000}

    def tell_progress(self, consumer: str, following: Mapping[int, int]) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.told.append((consumer, dict(following)))


def planner(watch: Watch, **options: str) -> Planner:
    parsed = SourceOptions.parse({"url": "amqp://h", "address": "t", **options})
    return Planner(parsed, lambda: watch, Backoff(60, clock=lambda: 0.0, sleep=lambda _: None))


def looking(watch: Watch, **options: str) -> Planner:
    """One that has looked once, and waits from then on."""
    found = planner(watch, **options)
    start = Position("s1", {number: state.next for number, state in watch.now.partitions.items()})
    assert (found.latest(start, None), watch.waits) == (start, [])
    return found


def at(offset: int, stream: str = "s1") -> Position:
    return Position(stream, {0: offset})


def test_a_query_begins_where_it_was_told() -> None:
    assert planner(Watch(state(3, 9))).initial() == at(9)
    assert planner(Watch(state(3, 9)), startingOffsets="earliest").initial() == at(3)


def test_a_query_begins_at_a_moment() -> None:
    assert planner(Watch(state(3, 9)), startingTimestamp="7000").initial() == at(7)
    assert planner(Watch(state(3, 9)), startingOffsets='{"0": "1970-01-01T00:00:08Z"}').initial() == at(8)


def test_how_far_a_query_has_come_is_told_when_it_moves() -> None:
    watch = Watch(state(0, 9), state(0, 12))
    plan = planner(watch, consumer="hot")
    for offset in (4, 9, 9, 12):
        plan.latest(at(offset), None)
    assert watch.told == [("hot", {0: 4}), ("hot", {0: 9}), ("hot", {0: 12})]


def test_nothing_is_told_without_a_name_or_of_another_stream() -> None:
    watch = Watch(state(0, 9))
    planner(watch).latest(at(4), None)
    planner(watch, consumer="hot", failOnDataLoss="false").latest(at(4, "s0"), None)
    assert watch.told == []


def test_a_query_goes_on_where_its_progress_is_not_wanted(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch(state(0, 9))
    watch.refuses = UnavailableError("it is full of names")
    plan = planner(watch, consumer="hot")
    assert plan.latest(at(4), None) == at(9)
    assert plan.latest(at(5), None) == at(9)
    assert [record.message.count("full of names") for record in caplog.records] == [1]


def test_a_backlog_is_planned_at_once() -> None:
    watch = Watch(state(0, 9))
    assert planner(watch).latest(at(4), None) == at(9)
    assert watch.waits == []


def test_an_idle_query_waits_for_news_and_then_takes_them() -> None:
    watch = Watch(state(0, 9), None, state(0, 12))
    plan = planner(watch)
    assert plan.latest(at(9), None) == at(9)
    assert watch.waits == [], "who started it learns at once that it runs"
    assert plan.latest(at(9), None) == at(9)
    assert plan.latest(at(9), None) == at(12)
    assert watch.waits == [3, 6]


def test_a_node_that_is_away_is_waited_for() -> None:
    watch = Watch(state(0, 9), UnavailableError("away"), UnavailableError("away"), state(0, 10))
    assert looking(watch).latest(at(9), None) == at(10)


def test_a_query_that_ends_takes_nothing_that_came_later() -> None:
    watch = Watch(state(0, 9))
    plan = planner(watch)
    plan.fix_target()
    plan.state = state(0, 50)
    assert plan.latest(at(2), 4) == at(6)
    assert plan.latest(at(6), 4) == at(9)
    assert plan.latest(at(9), 4) == at(9)
    assert watch.waits == []


def test_ranges_are_planned_from_logged_offsets_after_a_restart() -> None:
    spans = planner(Watch(state(0, 9))).spans(at(2), at(7))
    assert [tuple(span) for span in spans] == [("s1", 0, 2, 7)]
    assert planner(Watch(state(0, 9))).spans(at(7), at(7)) == []


def test_missing_rows_end_the_query_unless_told_otherwise() -> None:
    with pytest.raises(DataLossError, match="offsets 2 to 4"):
        planner(Watch(state(5, 9))).latest(at(2), None)
    lenient = planner(Watch(state(5, 9)), failOnDataLoss="false")
    assert lenient.latest(at(2), None) == at(9)
    assert [tuple(span) for span in lenient.spans(at(2), at(9))] == [("s1", 0, 5, 9)]


def test_an_address_made_anew_ends_the_query_unless_told_otherwise() -> None:
    with pytest.raises(DataLossError, match="s1"):
        planner(Watch(state(0, 4, "s2"))).latest(at(9), None)
    lenient = planner(Watch(state(0, 4, "s2")), failOnDataLoss="false")
    assert lenient.latest(at(9), None) == at(4, "s2")


def test_an_idle_query_polls_ever_less_often_until_there_is_news() -> None:
    watch = Watch(state(0, 9), *[None] * 6, state(0, 10))
    plan = looking(watch, pollTimeout="2s")
    for _ in range(7):
        plan.latest(at(9), None)
    plan.latest(at(10), None)
    assert watch.waits == [2, 4, 8, 16, 30, 30, 30, 2]


def test_a_long_wait_ends_when_spark_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(state(0, 9))
    plan = looking(watch, pollTimeout="2m")
    plan.latest(at(9), None)
    assert watch.waits == [30, 30, 30, 30]
    monkeypatch.setattr("os.getppid", lambda: 1)
    plan.latest(at(9), None)
    assert watch.waits == [30, 30, 30, 30, 30]


def test_a_batch_waits_for_enough_rows_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("enmasse.pipeline.source.planner.time.monotonic", lambda: now[0])
    waiting = planner(Watch(state(0, 5), state(0, 9)), minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    for _ in range(2):
        assert waiting.latest(at(0), None) == at(0)  # five, and nine then, are not enough
    now[0] = 61.0
    assert waiting.latest(at(0), None) == at(9)
    assert planner(Watch(state(0, 12)), minOffsetsPerTrigger="10").latest(at(0), None) == at(12)


def test_a_task_has_no_more_rows_than_it_may() -> None:
    spans = planner(Watch(state(0, 5)), maxRecordsPerPartition="2").spans(at(0), at(5))
    assert [(span.start, span.end) for span in spans] == [(0, 2), (2, 4), (4, 5)]
