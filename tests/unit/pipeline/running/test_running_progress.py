from __future__ import annotations

from typing import Any

from enmasse.model.kinds.pipelines.status import QueryStatus, SourceStatus
from enmasse.pipeline.decoding import BAD_ROWS, COUNT_OF, EXAMPLE_OF
from enmasse.pipeline.running.steps.late_rows import AFTER, BEFORE, LATE
from enmasse.pipeline.running.steps.verdicts import FAILED
from enmasse.pipeline.running.supervision.progress import Progress, sum_of_most


def report(batch: int = 3, **more: Any) -> dict[str, Any]:
    return {
        "runId": "r",
        "batchId": batch,
        "timestamp": f"2026-01-31T12:00:0{batch}.000Z",
        "numInputRows": 10,
        "inputRowsPerSecond": 5.04,
        "durationMs": {"addBatch": 5, "triggerExecution": 80},
        "sources": [
            {"endOffset": {"stream": "s", "0": 4, "1": 9}, "latestOffset": '{"stream": "s", "0": 6, "1": 9}'},
        ],
        **more,
    }


def status(progress: Progress) -> dict[str, Any]:
    return progress.status("q", "Running", restarts=2, error=None, is_counted=True).to_dict()


def test_reports_add_up_and_are_counted_once() -> None:
    progress = Progress()
    assert progress.take(report(1))
    assert not progress.take(report(1))
    assert progress.take(report(2, observedMetrics={f"{BAD_ROWS}readings": {"bad": 4}, "mine": {"bad": 100}}))
    found = status(progress)
    assert found["rows"] == 20
    assert found["badRecords"] == 4
    assert found["batch"] == 2
    assert found["lag"] == 2
    assert found["inputRowsPerSecond"] == 5.0
    assert found["processedRowsPerSecond"] == 125.0
    assert "stateRows" not in found
    assert found["restarts"] == 2


def test_messages_that_are_bad_as_a_whole_are_counted_beside_columns_that_do_not_fit() -> None:
    progress = Progress()
    counts = {
        "all": 9,
        "bad": 5,
        COUNT_OF: 3,
        EXAMPLE_OF: "it is empty",
        f"{COUNT_OF}t": 2,
        f"{EXAMPLE_OF}t": "t: hot",
    }
    progress.take(report(1, observedMetrics={f"{BAD_ROWS}readings": counts}))
    assert [(field["field"], field["count"]) for field in status(progress)["drift"]] == [("", 3), ("t", 2)]


def test_rows_that_fail_are_counted_by_relation_once_where_a_query_has_it_twice() -> None:
    progress = Progress()
    failed = {"all": 10, "failed": 2, "example": "share: a / b: division by zero"}
    metrics = {
        f"{FAILED}shares#0.1": failed,
        f"{FAILED}shares#0.2": failed,
        f"{FAILED}shares#1.1": failed | {"all": 8, "failed": 1},
        f"{FAILED}fine#0.1": {"all": 10, "failed": 0, "example": None},
    }
    progress.take(report(1, observedMetrics=metrics))
    progress.take(report(2, observedMetrics=metrics))
    (told,) = status(progress)["failedRows"]
    assert told == {"relation": "shares", "count": 6, "example": "share: a / b: division by zero"}
    assert progress.failed_share("shares") == 0.3
    assert progress.failed_share("fine") == 0
    assert len(progress.news) == 1


def test_a_source_that_is_read_for_several_branches_is_counted_once() -> None:
    progress = Progress((("readings", 3), ("others", 1)))
    progress.take(report(1, numInputRows=16, sources=[{"numInputRows": 12}, {"numInputRows": 4}]))
    found = status(progress)
    assert found["rows"] == 8
    assert found["inputRowsPerSecond"] == 2.5
    assert [(source["name"], source["rows"]) for source in found["sources"]] == [("readings", 4), ("others", 4)]


def test_what_queries_read_of_one_address_counts_once() -> None:
    def query(name: str, **rows: int) -> QueryStatus:
        sources = tuple(SourceStatus(name=source, rows=count, lag=100 - count) for source, count in rows.items())
        return QueryStatus(name=name, rows=sum(rows.values()), lag=7, sources=sources)

    queries = [query("a", readings=30), query("b", readings=20, orders=5), query("c", readings=30), query("d")]
    assert sum_of_most(queries[:3], "rows") == 35
    assert sum_of_most(queries[:3], "lag") == 80 + 95
    # One whose sources are not known counts as it is.
    assert sum_of_most(queries, "lag") == 80 + 95 + 7
    assert sum_of_most([], "rows") is None


def test_an_idle_report_is_no_batch() -> None:
    progress = Progress()
    progress.take(report(4, numInputRows=0, durationMs={"latestOffset": 3000, "triggerExecution": 3000}))
    assert "batch" not in status(progress)
    assert "batchDurationMs" not in status(progress)


def test_a_batch_took_as_long_as_it_was_done_and_not_as_its_rows_were_waited_for() -> None:
    progress = Progress()
    durations = {"latestOffset": 29_000, "addBatch": 150, "triggerExecution": 29_200}
    progress.take(report(3, durationMs=durations, inputRowsPerSecond="NaN"))
    for _ in range(2):
        found = status(progress)
        assert (found["batchDurationMs"], found["processedRowsPerSecond"]) == (200, 50.0)
        assert "inputRowsPerSecond" not in found
        idle = {"latestOffset": 30_000, "triggerExecution": 30_001}
        progress.take(report(4, numInputRows=0, durationMs=idle, inputRowsPerSecond="NaN"))


def test_state_and_watermark_are_told() -> None:
    progress = Progress()
    operators = [{"numRowsTotal": 7, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 2}]
    progress.take(report(1, stateOperators=operators, eventTime={"watermark": "1970-01-01T00:00:00.000Z"}))
    assert "watermark" not in status(progress)
    progress.take(report(2, stateOperators=operators, eventTime={"watermark": "2026-01-31T11:59:52.000Z"}))
    found = status(progress)
    assert (found["stateRows"], found["stateBytes"], found["lateRows"]) == (7, 100, 4)
    assert found["watermarkDelayMs"] == 10_000


def test_rows_that_were_sent_elsewhere_as_they_came_too_late_are_late_rows() -> None:
    progress = Progress()
    metrics = {f"{LATE}readings, {BEFORE}": {BEFORE: 9}, f"{LATE}readings, {AFTER}": {AFTER: 6}}
    progress.take(report(1, stateOperators=[{"numRowsDroppedByWatermark": 0}], observedMetrics=metrics))
    assert status(progress)["lateRows"] == 3


def test_lag_is_not_known_while_a_query_does_not_run() -> None:
    progress = Progress((("s", 1),))
    progress.take(report())
    assert [one["lag"] for one in status(progress)["sources"]] == [status(progress)["lag"]] == [2]
    failed = progress.status("q", "Failed", restarts=0, error="why", is_counted=False)
    assert (failed.lag, [one.lag for one in failed.sources]) == (None, [None])


def test_offsets_of_another_stream_are_no_lag() -> None:
    progress = Progress()
    progress.take(
        report(sources=[{"endOffset": {"stream": "a", "0": 1}, "latestOffset": {"stream": "b", "0": 9}}, {}])
    )
    assert "lag" not in status(progress)
