"""What a backfill builds upon: where a query is, how long windows are, and what a stream still has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from enmasse.model.kinds.pipelines.backfills import Backfill, BackfillStatus
from enmasse.model.kinds.pipelines.pipeline import PipelineSpec
from enmasse.model.kinds.pipelines.sources import SourceSpec
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.lake.batches import Layout
from enmasse.pipeline.lake.replacing import Replaced, Replacement, choose
from enmasse.pipeline.running.planning.context import RunningContext
from enmasse.pipeline.running.planning.plans import Place, QueryPlan, TableTarget
from enmasse.pipeline.running.supervision import backfill
from enmasse.pipeline.running.supervision.backfill import (
    BackfillSupervisor,
    NotYetError,
    Reached,
    Running,
    check_kept,
    planned,
    reached,
)
from enmasse.pipeline.source.offsets import PartitionState, Position, StreamState

WATERMARK = datetime(2026, 2, 1, 12, tzinfo=UTC)


def test_a_batch_says_where_it_ended(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    text = f'v1\n{{"batchWatermarkMs":{int(WATERMARK.timestamp() * 1000)}}}\n{{"stream": "s", "0": 7, "1": 9}}'
    (tmp_path / "offsets" / "4").write_text(text)
    assert reached(tmp_path, 4) == Reached(Position("s", {0: 7, 1: 9}), WATERMARK)
    with pytest.raises(NotYetError, match="has done no batch yet"):
        reached(tmp_path, -1)


def test_windows_that_may_be_open_are_refused() -> None:
    until = Reached(Position("s", {}), WATERMARK)
    start = datetime(2026, 1, 31, tzinfo=UTC)
    day = choose(["day(ts)"], {}, start, datetime(2026, 2, 1, tzinfo=UTC))
    assert backfill._check_windows(3600, until, day) == start - timedelta(hours=1)
    hours = choose(["hour(ts)"], {}, start, datetime(2026, 2, 1, 11, 30, tzinfo=UTC))
    with pytest.raises(PlanError, match="expected a time before 2026-02-01T11:00:00Z"):
        backfill._check_windows(3600, until, hours)
    for windows_s in (0, math.inf):
        with pytest.raises(PlanError, match="windows of a fixed size"):
            backfill._check_windows(windows_s, until, day)


PLANS = [
    QueryPlan(f"table-{name}", cast("Any", None), TableTarget(name, layout))
    for name, layout in {
        "newest": Layout(mode="update", keys=("site",), partition_by=("day(ts)",)),
        "flat": Layout(),
        "plain": Layout(format="parquet", partition_by=("day",)),
    }.items()
]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("newest", "table newest has mode update"),
        ("flat", "table flat is not laid out by partitions that could be replaced"),
        ("plain", "table plain is not laid out by partitions"),
        ("other", r"expected one that the pipeline writes \(newest, flat, plain\), got 'other'"),
        (None, "table: required: the pipeline writes newest, flat, plain"),
    ],
)
def test_tables_whose_partitions_do_not_stand_for_themselves_are_refused(table: str | None, said: str) -> None:
    def never(*_: object) -> Any:
        raise AssertionError

    running = Running("shop.a", "u", PipelineSpec(), cast("Any", None), PLANS, never, never)
    with pytest.raises(PlanError, match=said):
        planned(running, Backfill(at="1", table=table))
    with pytest.raises(PlanError, match="writes no table"):
        planned(replace(running, plans=[]), Backfill(at="1", table=table))


class Node:
    """What a node says of a stream."""

    def __init__(self, low: int, first: int, stream: str = "s") -> None:
        self._state = StreamState(stream, {0: PartitionState(low, 100)})
        self._first = first

    def get(self, *_: Any) -> Node:
        return self

    def close(self) -> None:
        pass

    def state(self) -> StreamState:
        return self._state

    def rows_since(self, _us: int) -> dict[int, int]:
        return {0: self._first}


@pytest.mark.parametrize(
    ("node", "since", "said"),
    [
        (Node(0, 0), WATERMARK, ""),
        (Node(0, 0), None, ""),
        (Node(10, 11), WATERMARK, ""),
        (Node(10, 10), WATERMARK, "expected all messages since 2026-02-01T12:00:00Z, but partition 0 begins with"),
        (Node(10, 11), None, "expected all messages that it ever had"),
        (Node(0, 0, "other"), WATERMARK, "was made anew"),
    ],
)
def test_a_stream_that_may_have_dropped_what_is_needed_is_refused(
    monkeypatch: pytest.MonkeyPatch, node: Node, since: datetime | None, said: str
) -> None:
    monkeypatch.setattr(backfill, "Connections", lambda: node)
    options = {"url": "amqp://localhost", "address": "a", "startingOffsets": "earliest"}
    until = Reached(Position("s", {0: 90}), WATERMARK)
    if not said:
        # What is read begins here: what is dropped from now on is missed and not left out.
        assert check_kept(options, until, since) == Position("s", {0: node.state().partitions[0].low})
        return
    with pytest.raises(PlanError, match=said):
        check_kept(options, until, since)


def test_a_backfill_that_another_process_did_says_what_came_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, context = SimpleNamespace(columns=["site"]), SimpleNamespace(place=Place("", "", Path()))
    target = TableTarget("t", Layout(partition_by=("site",)))
    plan = QueryPlan("table-t", cast("Any", frame), target)
    running = Running("shop.a", "u", PipelineSpec(), cast("Any", context), [plan], Path, cast("Any", None))
    monkeypatch.setattr(backfill, "planned", lambda *_: (plan, target, None))
    monkeypatch.setattr(Replacement, "done", lambda _: Replaced(rows=5, rows_before=4, partitions=3))
    supervisor = BackfillSupervisor(running, Backfill(at="1", partitions={"site": "north"}), lambda _: None)
    supervisor._compute()
    assert supervisor.status() == BackfillStatus(at="1", state="Done", table="t", rows=5, rows_before=4, partitions=3)


def test_what_is_read_begins_where_the_stream_began_when_it_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "Connections", lambda: Node(10, 11))
    monkeypatch.setattr(backfill, "fingerprint_of", lambda _: ["source a"])
    context = SimpleNamespace(options_of=lambda _: {"url": "amqp://localhost", "address": "a"})
    asked: list[Mapping[str, str]] = []

    def once(_: str, between: Mapping[str, str]) -> Any:
        asked.append(between)
        raise PlanError("asked")

    plan = QueryPlan("table-t", cast("Any", None), TableTarget("t", Layout(partition_by=("day(ts)",))))
    running = Running("shop.a", "u", PipelineSpec(), cast("Any", context), [plan], Path, once)
    supervisor = BackfillSupervisor(running, Backfill(at="1"), lambda _: None)
    chosen = choose(["day(ts)"], {}, WATERMARK, WATERMARK + timedelta(days=1))
    until = Reached(Position("s", {0: 90}), WATERMARK)
    with pytest.raises(PlanError, match="asked"):
        supervisor._replace(cast("Any", None), until, chosen, plan, cast("Any", plan.target), cast("Any", None))
    assert asked == [{"startingOffsets": '{"0": 10}', "endingOffsets": '{"0": 90}'}]
    source = SourceSpec(name="a", address="a")
    read = RunningContext(
        cast("Any", None),
        Place("amqp://localhost", "", Path()),
        "shop.a",
        {},
        "",
        Path,
        Path(),
        lambda _: None,
        between=asked[0],
    )._options(source, ["a"], "stream")
    assert {name: read[name] for name in asked[0]} == asked[0]
