"""Backfills by a real runner: partitions are computed again while their query goes on, or that is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.client.blocking import Message
from tests.scenario.test_pipeline_running import STREAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.scenario.pipeline_runner_place import RunnerPlace
    from tests.support.stream_node import StreamNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.usefixtures("needs_spark"),
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("runner"),
]

WRONG = "SELECT site, value * 2 AS value, ts FROM readings"
RIGHT = "SELECT site, value, ts FROM readings"


def spec_of(address: str, sql: str, **more: Any) -> dict[str, Any]:
    schema = "site STRING, value INT, ts TIMESTAMP"
    source = {"name": "readings", "address": address, "format": "json", "schema": schema}
    return {
        "sources": [source | more.pop("source", {})],
        "steps": [{"name": "rows", "sql": sql}],
        "sinks": [{"table": address, "partitionBy": ["day(ts)"]} | more.pop("sink", {})],
        **more,
    }


def backfill(at: str, start: str = "2026-01-02", end: str = "2026-01-03", **more: Any) -> dict[str, Any]:
    return {"backfill": {"at": at, "from": f"{start}T00:00:00Z", "to": f"{end}T00:00:00Z"} | more}


def send(node: StreamNode, address: str, *readings: tuple[str, int, str]) -> None:
    bodies = [json.dumps({"site": site, "value": value, "ts": ts}) for site, value, ts in readings]
    with node.connect() as connection:
        outcomes = connection.sender(address).send_all([Message(body.encode()) for body in bodies], timeout=60)
        assert {str(outcome) for outcome in outcomes} == {"accepted"}


def ended(place: RunnerPlace, name: str, at: str) -> Callable[[], dict[str, Any] | None]:
    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = place.statuses[name]["backfill"]
        return found if found["at"] == at and found["state"] in ("Done", "Refused", "Failed") else None

    return look


def values(place: RunnerPlace, table: str) -> list[tuple[int, int]]:
    return sorted((row["ts"].day, row["value"]) for row in place.rows(table))


@pytest.mark.chance
def test_a_day_is_computed_again_while_its_query_goes_on_from_where_it_was(
    node: StreamNode, place: RunnerPlace
) -> None:
    node.create("days", "stream")
    place.put("demo.days", spec_of("days", WRONG), {"days": STREAM})
    send(node, "days", *((f"s {n}", n, f"2026-01-0{1 + n % 3}T12:00:00Z") for n in range(9)))
    place.until(lambda: place.count("days") == 9)
    # Corrected: what comes is right from here on, and what is there stays wrong.
    place.put("demo.days", spec_of("days", RIGHT), {"days": STREAM})
    send(node, "days", ("s", 100, "2026-01-02T23:59:59Z"))
    place.until(lambda: place.count("days") == 10)
    place.put("demo.days", spec_of("days", RIGHT, **backfill("one")), {"days": STREAM})
    done = place.until(ended(place, "demo.days", "one"))
    assert (done["state"], done["rows"], done["rowsBefore"], done["partitions"]) == ("Done", 4, 4, 1), done
    wrong, right = [(1, 0), (1, 6), (1, 12)], [(2, 1), (2, 4), (2, 7), (2, 100)]
    late = [(3, 4), (3, 10), (3, 16)]
    assert values(place, "days") == [*wrong, *right, *late]
    assert place.statuses["demo.days"]["queries"][0]["restarts"] == 0
    # Neither lost nor doubled: the query adds to the same day what comes behind.
    send(node, "days", ("s", 200, "2026-01-02T10:00:00Z"))
    place.until(lambda: values(place, "days") == [*wrong, *right, (2, 200), *late])
    # One that is stopped leaves the table as it was or as it is to be, and is done when its pipeline goes on.
    before = values(place, "days")
    everything = [(1, 0), (1, 3), (1, 6), *right, (2, 200), (3, 2), (3, 5), (3, 8)]
    whole = spec_of("days", RIGHT, **backfill("two", "2026-01-01", "2026-01-04"))
    place.put("demo.days", whole, {"days": STREAM})
    place.until(lambda: any("backfill two: Running" in line for line in place.log))
    place.interrupt("demo.days", whole, {"days": STREAM})
    assert values(place, "days") in (before, everything)
    place.put("demo.days", whole, {"days": STREAM})
    done = place.until(ended(place, "demo.days", "two"))
    assert (done["state"], done["rows"], done["rowsBefore"], done["partitions"]) == ("Done", 11, 11, 3), done
    assert values(place, "days") == everything
    send(node, "days", ("s", 300, "2026-01-03T10:00:00Z"))
    place.until(lambda: values(place, "days") == [*everything, (3, 300)])
    place.send(command="delete", name="demo.days", purge=True)


def test_partitions_are_chosen_by_value_and_windows_only_once_they_are_closed(
    node: StreamNode, place: RunnerPlace
) -> None:
    node.create("sites", "stream")
    sink = {"partitionBy": ["site"]}
    place.put("demo.sites", spec_of("sites", WRONG, sink=sink), {"sites": STREAM})
    send(node, "sites", ("north ü", 1, "2026-01-01T00:00:00Z"), ("south", 1, "2026-01-01T00:00:00Z"))
    place.until(lambda: place.count("sites") == 2)
    again = {"backfill": {"at": "one", "partitions": {"site": "north ü"}}}
    place.put("demo.sites", spec_of("sites", RIGHT, sink=sink, **again), {"sites": STREAM})
    assert place.until(ended(place, "demo.sites", "one"))["state"] == "Done"
    assert sorted((row["site"], row["value"]) for row in place.rows("sites")) == [("north ü", 1), ("south", 2)]
    place.send(command="delete", name="demo.sites", purge=True)

    node.create("hours", "stream")
    source = {"watermark": {"column": "ts", "delay": "1m"}}
    sink = {"partitionBy": ["hour(since)"]}
    window = "window(ts, '10 minutes')"
    sql = f"SELECT {window}.start AS since, sum(value) AS total FROM readings GROUP BY {window}"
    place.put("demo.hours", spec_of("hours", sql, source=source, sink=sink), {"hours": STREAM})
    minutes = ("10:01", "10:02", "10:55", "11:05", "11:35")
    send(node, "hours", *(("s", 1, f"2026-01-01T{minute}:00Z") for minute in minutes))
    place.until(lambda: place.count("hours") == 3)
    again = {"backfill": {"at": "one", "from": "2026-01-01T10:00:00Z", "to": "2026-01-01T11:00:00Z"}}
    place.put("demo.hours", spec_of("hours", sql, source=source, sink=sink, **again), {"hours": STREAM})
    done = place.until(ended(place, "demo.hours", "one"))
    assert (done["state"], done["rows"], done["rowsBefore"]) == ("Done", 2, 2), done
    assert sorted(row["total"] for row in place.rows("hours")) == [1, 1, 2]
    again = {"backfill": {"at": "two", "from": "2026-01-01T10:00:00Z", "to": "2026-01-01T12:00:00Z"}}
    place.put("demo.hours", spec_of("hours", sql, source=source, sink=sink, **again), {"hours": STREAM})
    refused = place.until(ended(place, "demo.hours", "two"))
    assert refused["state"] == "Refused"
    assert (
        "windows of the last partition may still be open: expected a time before 2026-01-01T11:24:00Z"
        in (refused["message"])
    )
    place.send(command="delete", name="demo.hours", purge=True)


def test_a_day_that_rows_bring_themselves_keeps_all_of_its_rows(node: StreamNode, place: RunnerPlace) -> None:
    node.create("local", "stream")
    day = "to_date(from_utc_timestamp(ts, '+02:00')) AS ts_day"
    wrong, right = (sql.replace(", ts ", f", ts, {day} ") for sql in (WRONG, RIGHT))
    place.put("demo.local", spec_of("local", wrong), {"local": STREAM})
    moments = ("2026-01-01T21:00:00Z", "2026-01-01T22:00:00Z", "2026-01-02T21:00:00Z", "2026-01-02T22:00:00Z")
    send(node, "local", *(("s", number, at) for number, at in enumerate(moments, 1)))
    place.until(lambda: place.count("local") == 4)
    place.put("demo.local", spec_of("local", right, **backfill("one")), {"local": STREAM})
    done = place.until(ended(place, "demo.local", "one"))
    assert (done["state"], done["rows"], done["rowsBefore"]) == ("Done", 2, 2), done
    assert sorted((row["ts_day"].day, row["value"]) for row in place.rows("local")) == [
        (1, 2),
        (2, 2),
        (2, 3),
        (3, 8),
    ]
    place.send(command="delete", name="demo.local", purge=True)


def test_what_depends_on_more_than_messages_is_refused_with_the_reason(node: StreamNode, place: RunnerPlace) -> None:
    node.create("more", "stream")
    spec = spec_of("more", RIGHT, source={"watermark": {"column": "ts", "delay": "1m"}})
    spec["steps"].append({"name": "once", "input": "rows", "dropDuplicates": ["site"]})
    days: dict[str, Any] = {"partitionBy": ["day(ts)"], "input": "rows"}
    spec["sinks"] = [{"table": "single", **days, "input": "once"}, {"table": "quiet", **days}]
    place.put("demo.more", spec | backfill("first", table="single"), {"more": STREAM})
    refused = place.until(ended(place, "demo.more", "first"))
    assert refused["state"] == "Refused"
    assert "table single: DeduplicateWithinWatermark keeps state from message to message" in refused["message"]
    # The other table does not depend on what keeps state.
    send(node, "more", ("s", 1, "2026-01-02T00:00:00Z"))
    place.until(lambda: place.count("quiet") == 1)
    place.put("demo.more", spec | backfill("last", table="quiet"), {"more": STREAM})
    done = place.until(ended(place, "demo.more", "last"))
    assert (done["state"], done["rows"], done["rowsBefore"]) == ("Done", 1, 1), done
    place.send(command="delete", name="demo.more", purge=True)
