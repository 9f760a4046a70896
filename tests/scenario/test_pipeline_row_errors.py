"""Rows for which an expression fails have their verdict where they are computed, and no other row waits for it."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from enmasse.client.blocking import Message
from tests.scenario.pipeline_runner_place import RunnerPlace
from tests.scenario.taking import take
from tests.support.chance import kills
from tests.support.stream_node import StreamNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.usefixtures("needs_spark"),
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("runner"),
]

STREAM, QUEUE = {"type": "stream"}, {"type": "queue"}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "a": 8, "b": 2, "s": "4"},
    {"id": 2, "a": 8, "b": 0, "s": "4"},
    {"id": 3, "a": 8, "b": 4, "s": "four"},
    {"id": 4, "a": 2147483647, "b": 1, "s": "5"},
    {"id": 5, "a": None, "b": None, "s": None},
]
COMPUTED = """
    SELECT id, a / b AS share, CAST(s AS INT) AS n, a + 1 AS more, element_at(array(7, 8), coalesce(b, 1)) AS one
    FROM readings
"""


def readings(address: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "readings",
        "address": address,
        "format": "json",
        "schema": "id INT, a INT, b INT, s STRING",
    } | more


def send(node: StreamNode, address: str, rows: list[dict[str, Any]]) -> None:
    with node.connect() as connection:
        messages = [Message(json.dumps(row), subject=f"d{row['id']}") for row in rows]
        outcomes = connection.sender(address).send_all(messages, timeout=60)
        assert {str(outcome) for outcome in outcomes} == {"accepted"}


def failed(place: RunnerPlace, name: str) -> list[tuple[str, int]]:
    queries = place.statuses[name]["queries"]
    return sorted({(one["relation"], one["count"]) for query in queries for one in query.get("failedRows", ())})


def test_a_row_that_fails_is_sent_left_out_or_null_as_is_said(node: StreamNode, place: RunnerPlace) -> None:
    send(node, node.create("judged", partitions=1), ROWS)
    node.create("judged-bad", "queue")
    kinds = {"judged": STREAM, "judged-bad": QUEUE}

    def spec(table: str, **step: Any) -> dict[str, Any]:
        steps = [{"name": "computed", "sql": COMPUTED, **step}]
        return {"sources": [readings("judged")], "steps": steps, "sinks": [{"table": table}]}

    place.put("demo.dropped", spec("dropped"), kinds)
    place.put("demo.nulls", spec("nulls", onError="null"), kinds)
    place.put("demo.letters", spec("lettered", badRecords="judged-bad"), kinds)
    place.put("demo.failing", spec("failing", onError="fail"), kinds)

    def rows(table: str) -> list[tuple[Any, ...]]:
        return sorted((tuple(row.values()) for row in place.rows(table)), key=lambda row: row[0])

    good = [(1, 4.0, 4, 9, 8), (5, None, None, None, 7)]
    place.until(lambda: rows("dropped") == good)
    place.until(lambda: rows("lettered") == good)
    nulls = [good[0], (2, None, 4, 9, None), (3, 2.0, None, 9, None), (4, 2147483647.0, 5, None, 7), good[1]]
    place.until(lambda: rows("nulls") == nulls)
    letters = sorted(take(node, "judged-bad", 3), key=lambda one: int(one.properties["offset"]))
    assert [json.loads(one.body) for one in letters] == ROWS[1:4]
    assert [one.properties["reason"] for one in letters] == [
        "share: a / b: division by zero",
        "n: CAST(s AS INT): 'four' is no INT",
        "more: a + 1: overflow of INT",
    ]
    assert {(one.properties["relation"], one.properties["partition"]) for one in letters} == {("computed", "0")}
    for name in ("dropped", "nulls", "letters"):
        place.until(lambda: failed(place, f"demo.{name}") == [("computed", 3)])  # noqa: B023  # called at once
    ready = place.until(lambda: (c := place.statuses["demo.dropped"]["conditions"][0])["reason"] == "Degraded" and c)
    assert ready["message"] == "an expression fails for 60.0% of the latest rows of computed"
    assert any("computed: an expression fails for 3 of 5 rows, as " in line for line in place.log)
    place.until(lambda: "ivision by zero" in place.statuses["demo.failing"]["queries"][0].get("error", ""))
    assert place.rows("failing") == []
    for name in ("dropped", "nulls", "letters", "failing"):
        place.send(command="delete", name=f"demo.{name}", purge=True)


def test_a_text_that_folders_have_for_null_is_no_partition(node: StreamNode, place: RunnerPlace) -> None:
    word = "__HIVE_DEFAULT_PARTITION__"
    sent = [{"id": n, "s": text} for n, text in enumerate((word, "north", None, word.lower(), ""))]
    send(node, node.create("sites", partitions=1), sent)
    node.create("sites-bad", "queue")
    spec = {
        "sources": [readings("sites", badRecords="sites-bad")],
        "steps": [{"name": "kept", "sql": "SELECT id, s FROM readings", "badRecords": "sites-bad"}],
        "sinks": [
            {"table": "sites", "partitionBy": ["s"]},
            {"table": "sites_merged", "partitionBy": ["s"], "mode": "update", "keys": ["id", "s"]},
            {"table": "sites_plain", "partitionBy": ["s"], "format": "parquet"},
            {"table": "sites_in_one", "partitionBy": ["id"]},
        ],
    }
    place.put("demo.sites", spec, {"sites": STREAM, "sites-bad": QUEUE})

    def rows(table: str) -> list[tuple[Any, ...]]:
        return sorted((row["id"], row["s"]) for row in place.rows(table))

    good = [(1, "north"), (2, None), (3, word.lower()), (4, None)]
    for table in ("sites", "sites_merged", "sites_plain"):
        place.until(lambda: rows(table) == good)  # noqa: B023  # called at once
    place.until(lambda: rows("sites_in_one") == sorted([*good[:3], (4, ""), (0, word)]))
    letters = take(node, "sites-bad", 3)
    assert {json.loads(letter.body)["id"] for letter in letters} == {0}
    for letter in letters:
        assert letter.properties["reason"] == (
            f"s: {word} is no value of a partition, as folders of tables have that name for NULL"
        )
    place.until(lambda: failed(place, "demo.sites") == [("kept", 1)])
    place.send(command="delete", name="demo.sites", purge=True)


FUNCTIONS = """
def inverse(value):
    return None if value is None else 8 / value

def text(value):
    return "?" if value == 4 else value

def over_series(values):
    if (values == 0).any():
        raise ValueError("a zero among them")
    return values * 2

def frames(rows):
    if (rows["b"] == 0).any():
        raise ValueError("a zero in the frame")
    rows["twice"] = rows["b"] * 2
    return rows[["id", "twice"]]
"""


def test_functions_of_python_fail_for_their_rows_alone(node: StreamNode, place: RunnerPlace) -> None:
    send(node, node.create("called", partitions=1), ROWS[:4])
    node.create("called-bad", "queue")
    (place.folder / "code" / "demo.called").mkdir(parents=True)
    (place.folder / "code" / "demo.called" / "own.py").write_text(FUNCTIONS)
    declared = [
        {"name": "inverse", "function": "own:inverse", "returns": "DOUBLE"},
        {"name": "as_number", "function": "own:text", "returns": "INT"},
        {"name": "twice", "function": "own:over_series", "returns": "INT", "vectorized": True},
    ]
    sql = "SELECT id, inverse(b) AS i, as_number(b) AS n, inverse(4 / (id - 1)) AS of_failing FROM readings"
    steps = [
        {"name": "computed", "sql": sql, "onError": "null"},
        {"name": "series", "sql": "SELECT id FROM readings WHERE twice(b) > 1", "badRecords": "called-bad"},
        {"name": "framed", "function": "own:frames", "schema": "id INT NOT NULL, twice INT", "input": "readings"},
    ]
    spec = {
        "sources": [readings("called", schema="id INT, a INT, b INT, s STRING, at TIMESTAMP")],
        "steps": steps,
        "sinks": [{"table": name, "input": name} for name in ("computed", "series", "framed")],
        "code": {"configMap": "own", "functions": declared},
        "resources": {"session": "own"},
    }
    place.put("demo.called", spec, {"called": STREAM, "called-bad": QUEUE})

    def rows(table: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in place.rows(table))

    place.until(
        lambda: rows("computed") == [(1, 4.0, 2, None), (2, None, 0, 2.0), (3, 2.0, None, 4.0), (4, 8.0, 1, 6.0)]
    )
    place.until(lambda: rows("series") == [(1,), (3,), (4,)])
    place.until(lambda: rows("framed") == [(1, 4), (3, 8), (4, 2)])
    (letter,) = take(node, "called-bad", 1)
    assert json.loads(letter.body) == ROWS[1]
    assert (
        letter.properties["reason"]
        == "WHERE: function own:over_series (own.py, line 10): ValueError: a zero among them"
    )
    place.until(lambda: failed(place, "demo.called") == [("computed", 3), ("framed", 1), ("series", 1)])
    examples = {
        one["relation"]: one["example"]
        for q in place.statuses["demo.called"]["queries"]
        for one in q.get("failedRows", ())
    }
    assert examples["framed"] == "function own:frames (own.py, line 15): ValueError: a zero in the frame"
    # As some runtimes write that there is no moment; pandas has none before 1677.
    send(node, "called", [{"id": 5, "a": 1, "b": 8, "s": "1", "at": "0001-01-01T00:00:00Z"}, {"id": 6, "b": 8}])
    place.until(lambda: rows("framed") == [(1, 4), (3, 8), (4, 2), (6, 16)])
    place.until(lambda: rows("series") == [(1,), (3,), (4,), (5,), (6,)])
    place.until(lambda: ("framed", 2) in failed(place, "demo.called"))
    place.send(command="delete", name="demo.called", purge=True)


def test_groups_joins_and_generators_are_made_of_the_rows_that_can_be_computed(
    node: StreamNode, place: RunnerPlace
) -> None:
    send(node, node.create("grouped", partitions=1), ROWS)
    node.create("grouped-bad", "queue")
    steps = [
        {
            "name": "totals",
            "sql": "SELECT CAST(s AS INT) AS n, sum(a / b) AS share FROM readings GROUP BY CAST(s AS INT)",
        },
        {
            "name": "pairs",
            "sql": "SELECT r.id, o.id AS to FROM readings AS r JOIN other AS o ON r.id = CAST(o.s AS INT)",
            "onError": "drop",
        },
        {
            "name": "ranges",
            "sql": "SELECT r.id, o.id AS to, nullif(r.a / r.b, 4) AS n FROM readings AS r JOIN other AS o "
            "ON r.id = o.id AND CAST(r.s AS INT) BETWEEN o.id AND o.id + 3",
            "onError": "drop",
        },
    ]
    sources = [readings("grouped", badRecords="grouped-bad"), readings("grouped") | {"name": "other"}]
    spec = {
        "sources": sources,
        "steps": steps,
        "sinks": [
            {"table": "totals", "input": "totals", "mode": "update", "keys": ["n"]},
            {"table": "pairs", "input": "pairs"},
            {"table": "ranges", "input": "ranges"},
        ],
    }
    place.put("demo.grouped", spec, {"grouped": STREAM, "grouped-bad": QUEUE})
    place.until(
        lambda: (
            {(row["n"], row["share"]) for row in place.rows("totals")} == {(4, 4.0), (5, 2147483647.0), (None, None)}
        )
    )
    place.until(lambda: {(row["id"], row["to"]) for row in place.rows("pairs")} == {(4, 1), (4, 2), (5, 4)})
    place.until(lambda: len(place.rows("ranges")) == 2)
    assert {tuple(row.values()) for row in place.rows("ranges")} == {(1, 1, None), (4, 4, 2147483647.0)}
    letters = sorted(take(node, "grouped-bad", 2), key=lambda one: int(one.properties["offset"]))
    assert [one.properties["reason"] for one in letters] == [
        "a / b: division by zero",
        "CAST(s AS INT): 'four' is no INT",
    ]
    place.until(lambda: failed(place, "demo.grouped") == [("pairs", 1), ("ranges", 2), ("totals", 2)])
    place.send(command="delete", name="demo.grouped", purge=True)


@pytest.mark.chance
@pytest.mark.timeout(3600)  # thirty kills in `make soak`
def test_each_row_is_in_the_results_or_among_the_letters_once_whatever_is_killed(
    node: StreamNode, place: RunnerPlace, story_chance: random.Random
) -> None:
    node.create("killed", partitions=2)
    node.create("killed-bad", "queue")
    kinds = {"killed": STREAM, "killed-bad": QUEUE}
    spec = {
        "sources": [readings("killed", maxRowsPerBatch=50)],
        "steps": [
            {"name": "computed", "sql": "SELECT id, b, a / b AS share FROM readings", "badRecords": "killed-bad"},
            {"name": "totals", "sql": "SELECT b, count(*) AS n, sum(id) AS total FROM computed GROUP BY b"},
        ],
        # The query with state sends the letters.
        "sinks": [
            {"input": "totals", "table": "killed_totals", "mode": "update", "keys": ["b"]},
            {"input": "computed", "table": "killed_rows"},
        ],
        "trigger": "0s",
    }
    sent = 0
    for _ in range(kills(1)):
        place.put("demo.killed", spec, kinds)
        more = story_chance.randrange(100, 200)
        send(node, "killed", [{"id": n, "a": 8, "b": n % 5} for n in range(sent, sent + more)])
        before, sent = place.count("killed_rows"), sent + more
        place.until(lambda: place.count("killed_rows") > before)  # noqa: B023  # called at once
        time.sleep(story_chance.uniform(0.0, 1.0))  # anywhere in the batches that follow
        place.interrupt("demo.killed", spec, kinds)
    place.put("demo.killed", spec, kinds)
    good = [n for n in range(sent) if n % 5]
    # What each kill left behind comes in small batches.
    patience_s = 60.0 * (1 + kills(1))
    place.until(lambda: place.count("killed_rows") >= len(good), patience_s)
    place.until(lambda: sum(row["n"] for row in place.rows("killed_totals")) >= len(good), patience_s)
    letters = take(node, "killed-bad", sent - len(good))
    assert sorted(json.loads(letter.body)["id"] for letter in letters) == [n for n in range(sent) if n % 5 == 0]
    assert sorted(row["id"] for row in place.rows("killed_rows")) == good
    totals = {row["b"]: (row["n"], row["total"]) for row in place.rows("killed_totals")}
    of = {b: [n for n in good if n % 5 == b] for b in range(1, 5)}
    assert totals == {b: (len(found), sum(found)) for b, found in of.items()}
    place.send(command="delete", name="demo.killed", purge=True)
