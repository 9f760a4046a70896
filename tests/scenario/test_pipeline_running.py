"""Declared pipelines run by a real runner process against a real node."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

from enmasse.cli.commands.use.model_file import as_onnx
from enmasse.client.blocking import Message
from enmasse.pipeline.lake.compaction import compact
from tests.scenario.consumed_place import counts
from tests.scenario.pipeline_runner_place import RunnerPlace
from tests.scenario.taking import take, take_stream
from tests.support.foreign_tools import require
from tests.support.mqtt_devices import Device
from tests.support.stream_node import StreamNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.usefixtures("needs_spark"),
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("runner"),
]

STREAM = {"type": "stream"}
TEXTS = "SELECT offset, CAST(value AS STRING) AS text FROM readings"


def send(node: StreamNode, address: str, *bodies: str) -> None:
    with node.connect() as connection:
        messages = [Message(body.encode(), subject=f"d{n % 3}") for n, body in enumerate(bodies)]
        outcomes = connection.sender(address).send_all(messages, timeout=60)
        assert {str(outcome) for outcome in outcomes} == {"accepted"}


def texts(place: RunnerPlace, table: str) -> list[str]:
    return sorted(row["text"] for row in place.rows(table))


def to_table(address: str, table: str, sql: str = TEXTS, **more: Any) -> dict[str, Any]:
    return {
        "sources": [{"name": "readings", "address": address}],
        "steps": [{"name": "texts", "sql": sql}],
        "sinks": [{"table": table}],
        **more,
    }


def write_code(place: RunnerPlace, pipeline: str, **modules: str) -> None:
    folder = place.folder / "code" / pipeline
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)


def test_the_example_of_a_pipeline_of_ones_own_runs(node: StreamNode, place: RunnerPlace) -> None:
    example = Path(__file__).parents[2] / "examples" / "pipelines" / "plant.yaml"
    objects = {found["metadata"]["name"]: found["spec"] for found in yaml.safe_load_all(example.read_text())}
    for name in ("telemetry", "alerts", "bad"):
        node.create(f"plant-{name}", "stream" if name == "telemetry" else "queue")
    spec = json.loads(json.dumps(objects["plant.hot"]).replace('"telemetry"', '"plant-telemetry"'))
    spec = json.loads(json.dumps(spec).replace('"alerts"', '"plant-alerts"').replace('"bad"', '"plant-bad"'))
    kinds = {"plant-telemetry": STREAM, "plant-alerts": {"type": "queue"}, "plant-bad": {"type": "queue"}}
    place.put("demo.plant", spec, kinds)
    moments = ("12:00:01", "12:00:09", "12:00:21", "12:05:00")
    readings = [
        json.dumps({"device": "kiln", "temperature": 25 + 2 * n, "ts": f"2026-01-31T{moment}Z"})
        for n, moment in enumerate(moments)
    ]
    send(node, "plant-telemetry", *readings, "no reading")
    place.until(lambda: place.count("windows") == 2)
    found = sorted((row["since"].strftime("%H:%M:%S"), row["mean"], row["readings"]) for row in place.rows("windows"))
    assert found == [("12:00:00", 26.0, 2), ("12:00:20", 29.0, 1)]
    with node.connect() as connection:
        alert = connection.receiver("plant-alerts").receive(timeout=60)
        bad = connection.receiver("plant-bad").receive(timeout=60)
    assert alert is not None
    assert json.loads(alert.message.body)["temperature"] == 31.0
    assert bad is not None
    assert bad.message.body == b"no reading"
    place.send(command="delete", name="demo.plant", purge=True)


def with_function(address: str, table: str, function: str, **step: Any) -> dict[str, Any]:
    return {
        "sources": [{"name": "readings", "address": address}],
        "steps": [
            {"name": "texts", "sql": TEXTS},
            {"name": "scored", "function": function, "schema": "text STRING, score DOUBLE", **step},
        ],
        "sinks": [{"table": table}],
    }


def test_a_stream_flows_through_sql_into_a_table_and_the_status_tells(node: StreamNode, place: RunnerPlace) -> None:
    send(node, node.create("flow"), *(f"m{n}" for n in range(50)))
    place.put("demo.flow", to_table("flow", "flow"), {"flow": STREAM})
    place.until(lambda: place.count("flow") == 50)
    send(node, "flow", *(f"m{n}" for n in range(50, 60)))
    place.until(lambda: place.count("flow") == 60)
    assert texts(place, "flow") == sorted(f"m{n}" for n in range(60))
    status = place.until(lambda: (s := place.statuses["demo.flow"])["rows"] == 60 and s)
    assert status["phase"] == "Active"
    (query,) = status["queries"]
    assert query["name"] == "table-flow"
    assert query["state"] == "Running"
    assert query["lag"] == 0

    answer = place.ask("SELECT count(*) AS n, min(text) AS first FROM flow")
    assert answer["columns"] == [{"name": "n", "type": "BIGINT"}, {"name": "first", "type": "STRING"}]
    assert answer["rows"] == [[60, "m0"]]
    answer = place.ask("SELECT text FROM flow", limit=7)
    assert (len(answer["rows"]), answer["truncated"]) == (7, True)
    answer = place.ask("SELECT CAST(value AS STRING) v FROM flow_in WHERE offset = 0 ORDER BY v", addresses={})
    assert "there is no relation 'flow_in'; did you mean 'flow'?" in answer["error"]
    answer = place.ask("SELECT txt FROM flow")
    assert answer["error"].endswith("there is no column 'txt'; did you mean 'text'?")
    (place.folder / "lake" / "broken" / "_delta_log").mkdir(parents=True)
    (place.folder / "lake" / "broken" / "_delta_log" / f"{0:020d}.json").write_text("no JSON")
    assert place.ask("SELECT * FROM broken")["error"]
    answer = place.ask("SELECT count(*) FROM flow", addresses={"flow": STREAM})
    assert "`table:flow` or `address:flow`" in answer["error"]
    listed = place.ask("SHOW TABLES", addresses={"flow": STREAM, "clicks": STREAM})
    # The place is shared: other tests have tables of theirs.
    assert [row[:3] for row in listed["rows"] if row[0] in ("broken", "clicks", "flow")] == [
        ["broken", "table", None],
        ["flow", "table", "delta"],
        ["clicks", "stream", None],
        ["flow", "stream", None],
    ]
    assert [row[0] for row in place.ask("SHOW TABLES LIKE 'FL*'")["rows"]] == ["flow"]
    for sql in ("DESCRIBE flow", "SHOW COLUMNS IN flow"):
        assert ["text", "STRING"] in place.ask(sql)["rows"]
    assert ["value", "BINARY"] in place.ask("DESCRIBE `address:flow`", addresses={"flow": STREAM})["rows"]
    assert place.ask("DESCRIBE HISTORY flow")["rows"][-1][2] == "CREATE TABLE"
    # A place is said where it is one of the text that was asked.
    for sql, where in {"DESCRIBE flaw": "", "SELECT *\nFROM flaw": "line 2, column 6: "}.items():
        assert place.ask(sql)["error"].startswith(f"{where}there is no relation 'flaw'; did you mean 'flow'?")
    for name, rows in (("table:flow", 60), ("address:flow", 60)):
        answer = place.ask(f"SELECT count(*) AS n FROM `{name}`", addresses={"flow": STREAM})
        assert (answer["error"], answer["rows"]) == (None, [[rows]])
    answer = place.ask("SELECT count(*) AS n, 'x VERSION AS OF 1' AS t FROM flow VERSION AS OF 2")
    assert (answer["error"], answer["rows"][0][1]) == (None, "x VERSION AS OF 1")
    assert 0 < answer["rows"][0][0] < 60
    answer = place.ask("SELECT count(*) AS n FROM flow TIMESTAMP AS OF '2020-01-01'")
    assert "the table flow has no version of 2020-01-01" in answer["error"]
    answer = place.ask("SELECT operation FROM `history:flow` WHERE version = 0")
    assert answer["rows"] == [["CREATE TABLE"]]
    was = place.ask("SELECT count(*) AS n FROM flow VERSION AS OF 2")["rows"][0][0]

    def change(**table: Any) -> dict[str, Any]:
        place.send(command="query", id="1", change={"name": "flow", **table})
        return place.next_event("answer")

    # As it was, and then as it was before that; what is read meanwhile is added.
    answer = change(action="restore", version=2)
    assert answer["rows"][0][0].startswith("is as version 2 was, as version "), answer
    assert place.ask("SELECT count(*) AS n FROM flow")["rows"] == [[was]]
    restored = int(answer["rows"][0][0].rsplit(" ", 1)[1])
    assert change(action="restore", version=restored - 1)["error"] is None
    send(node, "flow", "m60")
    place.until(lambda: texts(place, "flow") == sorted(f"m{n}" for n in range(61)))
    assert "files became" in change(action="optimize")["rows"][0][0]
    assert "the table flow has no version 999" in change(action="restore", version=999)["error"]
    address = node.create("seen/by.all")
    send(node, address, "one", "two", "three")
    answer = place.ask(f"SELECT CAST(value AS STRING) v FROM `{address}` ORDER BY v", addresses={address: STREAM})
    assert answer["rows"] == [["one"], ["three"], ["two"]]
    for sql in (
        "SELECT reflect('java.lang.System', 'getenv', 'HOME')",
        "DROP TABLE flow",
        "SELECT * FROM parquet.`/tmp`",
    ):
        assert place.ask(sql)["error"], sql
    place.send(command="delete", name="demo.flow", purge=True)
    place.until(lambda: not (place.folder / "checkpoints" / "demo.flow").exists())
    assert place.count("flow") == 61


def test_a_function_gets_pandas_batches_and_takes_an_update(node: StreamNode, place: RunnerPlace) -> None:
    send(node, node.create("scores"), "a", "bb")
    write_code(
        place,
        "demo.scores",
        scoring="import lengths\ndef score(rows, factor):\n    return lengths.of(rows, factor)\n",
        lengths="def of(rows, factor):\n    return rows.assign(score=rows.text.str.len() * factor * 1.0)\n",
    )
    spec = with_function("scores", "scores", "scoring:score", parameters={"factor": 2})
    place.put("demo.scores", spec, {"scores": STREAM})
    place.until(lambda: place.count("scores") == 2)
    assert sorted(row["score"] for row in place.rows("scores")) == [2.0, 4.0]
    write_code(place, "demo.scores", lengths="def of(rows, factor):\n    return rows.assign(score=-1.0)\n")
    place.put("demo.scores", spec, {"scores": STREAM})
    send(node, "scores", "ccc")
    place.until(lambda: place.count("scores") == 3)
    assert sorted(row["score"] for row in place.rows("scores")) == [-1.0, 2.0, 4.0]
    place.send(command="delete", name="demo.scores", purge=True)


def test_sql_calls_functions_of_the_pipelines_own_code(node: StreamNode, place: RunnerPlace) -> None:
    source = {"name": "texts", "address": "sums", "format": "json", "schema": "a INT, b INT, at TIMESTAMP"}
    spec: dict[str, Any] = {
        "sources": [source],
        "steps": [
            {
                "name": "summed",
                "sql": "SELECT a, plus(a, b) AS sum, said(b).text AS b FROM texts WHERE plus(a, a) > 0",
            }
        ],
        "sinks": [{"table": "summed"}],
        "resources": {"session": "own"},
        "code": {
            "configMap": "sums",
            "functions": [
                {"name": "plus", "function": "sums:plus", "returns": "DOUBLE", "vectorized": True},
                {"name": "said", "function": "sums:said", "returns": "STRUCT<text: STRING>"},
            ],
        },
    }
    said = "def plus(a, b):\n    return a + b.fillna(0.5)\n\ndef said(b):\n    return {'text': f'is {b}'}\n"
    write_code(place, "demo.sums", sums=said)
    send(node, node.create("sums"), '{"a": 1, "b": 2}', '{"a": 3}')
    place.put("demo.sums", spec, {"sums": STREAM})
    place.until(lambda: place.count("summed") == 2)
    assert sorted((r["a"], r["sum"], r["b"]) for r in place.rows("summed")) == [(1, 3, "is 2"), (3, 3.5, "is None")]
    assert "plus() is not among" in place.ask("SELECT plus(1, 2)")["error"]
    write_code(place, "demo.sums", sums=said.replace("{'text': f'is {b}'}", "1 / b"))
    spec["steps"][0]["onError"] = "fail"
    place.put("demo.sums", spec, {"sums": STREAM})
    send(node, "sums", '{"a": 1, "b": 0}')
    place.until(lambda: "sums:said (sums.py, line 5): ZeroDivisionError" in place.statuses["demo.sums"]["lastError"])
    place.send(command="delete", name="demo.sums", purge=True)


COUNTING = """
import pandas as pd
from datetime import timedelta

def count(key, rows, state, quiet_s):
    if state.has_timed_out:
        total = state.value["total"]
        state.remove()
        return pd.DataFrame({"device": [key], "total": [total], "what": ["quiet"]})
    totals = (state.value or {"total": 0})["total"] + rows.amount.cumsum()
    state.update({"total": int(totals.iloc[-1])})
    state.set_timer(timedelta(seconds=quiet_s))
    return pd.DataFrame({"device": key, "total": totals, "what": "sum"})
"""


@pytest.mark.chance
def test_a_function_keeps_state_by_key_with_timers_and_each_row_counts_once(
    node: StreamNode, place: RunnerPlace
) -> None:
    node.create("purchases", partitions=2)
    step = {
        "name": "totals",
        "function": "counting:count",
        "input": "bought",
        "stateBy": "device",
        "state": {"schema": "total BIGINT", "timers": "processingTime", "ttl": "1h"},
        "schema": "device STRING, total BIGINT, what STRING",
        "parameters": {"quiet_s": 3600},
    }
    spec = {
        "sources": [
            {"name": "bought", "address": "purchases", "format": "json", "schema": "device STRING, amount INT"}
        ],
        "steps": [step],
        "sinks": [{"table": "totals"}, {"table": "latest", "mode": "update", "keys": ["device"], "orderBy": "total"}],
        "code": {"configMap": "counting"},
    }
    write_code(place, "demo.totals", counting=COUNTING)

    def buy(amount: int) -> None:
        send(node, "purchases", *[json.dumps({"device": f"d{n % 3}", "amount": amount}) for n in range(30)])

    def totals(what: str) -> list[tuple[str, int]]:
        return sorted((row["device"], row["total"]) for row in place.rows("totals") if row["what"] == what)

    def sums(most: int) -> list[tuple[str, int]]:
        return [(device, total) for device in ("d0", "d1", "d2") for total in range(1, most + 1)]

    buy(1)
    place.put("demo.totals", spec, {"purchases": STREAM})
    place.until(lambda: totals("sum") == sums(10))
    buy(1)
    # Its batches of before add nothing when they are done again, whatever was lost on the way.
    place.interrupt("demo.totals", spec, {"purchases": STREAM})
    place.put("demo.totals", spec, {"purchases": STREAM})
    place.until(lambda: totals("sum") == sums(20))
    place.until(lambda: sorted(r["total"] for r in place.rows("latest")) == [20, 20, 20])
    place.put("demo.totals", spec | {"steps": [step | {"parameters": {"quiet_s": 1}}]}, {"purchases": STREAM})
    buy(0)
    place.until(lambda: totals("quiet") == [("d0", 20), ("d1", 20), ("d2", 20)])
    buy(7)
    place.until(lambda: ("d0", 7) in totals("sum"))
    other = step | {"state": {"schema": "total INT, more INT", "timers": "processingTime"}}
    place.put("demo.totals", spec | {"steps": [other]}, {"purchases": STREAM})
    place.until(lambda: place.statuses["demo.totals"]["conditions"][0]["reason"] == "CheckpointMisfit")
    assert "more INT" in place.statuses["demo.totals"]["conditions"][0]["message"]
    place.send(command="delete", name="demo.totals", purge=True)


def test_timers_by_event_time_run_out_when_the_watermark_passes_them(node: StreamNode, place: RunnerPlace) -> None:
    source = """
import pandas as pd

def ended(key, rows, state):
    if state.has_timed_out:
        state.remove()
        return pd.DataFrame({"trip": [key], "ended": [state.now]})
    state.set_timer(rows["at"].max().tz_localize("UTC") + pd.Timedelta(minutes=10))
"""
    spec = {
        "sources": [
            {
                "name": "seen",
                "address": "trips",
                "format": "json",
                "schema": "trip STRING, at TIMESTAMP",
                "watermark": {"column": "at", "delay": "1s"},
            }
        ],
        "steps": [
            {
                "name": "ends",
                "function": "trips:ended",
                "stateBy": "trip",
                "state": {"schema": "seen INT", "timers": "eventTime", "orderBy": ["at"]},
                "schema": "trip STRING, ended TIMESTAMP",
            }
        ],
        "sinks": [{"table": "ends"}],
        "code": {"configMap": "trips"},
    }
    write_code(place, "demo.trips", trips=source)
    node.create("trips")
    place.put("demo.trips", spec, {"trips": STREAM})

    def see(trip: str, at: str) -> None:
        send(node, "trips", json.dumps({"trip": trip, "at": f"2026-01-31T{at}Z"}))

    see("a", "10:00:00")
    see("b", "10:08:00")
    see("c", "10:12:00")
    place.until(
        lambda: [(r["trip"], r["ended"].strftime("%H:%M:%S")) for r in place.rows("ends")] == [("a", "10:11:59")]
    )
    place.send(command="delete", name="demo.trips", purge=True)


def test_sql_calls_imported_models_and_takes_another_version_with_the_next_batch(
    node: StreamNode, place: RunnerPlace, tmp_path: Path
) -> None:
    for name in ("onnxruntime", "sklearn", "skl2onnx"):
        pytest.importorskip(name)
    import joblib
    from sklearn.linear_model import LinearRegression

    def imported(factor: float, **measured: str) -> list[list[Any]]:
        fitted = LinearRegression().fit([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0.0, factor, 1.0])
        joblib.dump(fitted, tmp_path / "pumps.joblib")
        content, _ = as_onnx(tmp_path / "pumps.joblib", [], trust=True)
        file = base64.b64encode(content).decode()
        answer = change({"model": "pumps", "file": file, "features": ["load", "rpm"], "output": None, **measured})
        assert answer["error"] is None, answer
        rows: list[list[Any]] = answer["rows"]
        return rows

    def change(wanted: dict[str, Any]) -> dict[str, Any]:
        place.send(command="query", id="1", change=wanted)
        return place.next_event("answer")

    spec = {
        "sources": [{"name": "seen", "address": "loads", "format": "json", "schema": "load DOUBLE, rpm DOUBLE"}],
        "steps": [
            {"name": "expected", "sql": "SELECT load, rpm, round(model_pumps(load, rpm), 3) AS power FROM seen"}
        ],
        "sinks": [{"table": "expected_power"}],
    }
    node.create("loads")
    place.put("demo.loads", spec, {"loads": STREAM})
    place.until(lambda: "there is no model 'pumps' yet" in place.statuses["demo.loads"].get("lastError", ""))
    (ready,) = place.statuses["demo.loads"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "ModelMissing")
    assert imported(2) == [["version 000001 counts, and takes load, rpm and gives DOUBLE"]]

    def powers() -> list[tuple[float, float]]:
        return sorted((row["load"], row["power"]) for row in place.rows("expected_power"))

    send(node, "loads", '{"load": 3, "rpm": 1}')
    place.until(lambda: powers() == [(3, 7)])
    ((told,),) = imported(10, heldBack="expected_power", target="power")
    assert "; measured: rows 1, rmse 24" in told
    send(node, "loads", '{"load": 4, "rpm": 1}')
    place.until(lambda: powers() == [(3, 7), (4, 41)])
    assert change({"model": "pumps", "version": None})["rows"] == [["version 000001 counts"]]
    send(node, "loads", '{"load": 5, "rpm": 0}')
    place.until(lambda: powers() == [(3, 7), (4, 41), (5, 10)])
    assert (
        "pumps: this is a pickle"
        in change({"model": "pumps", "file": base64.b64encode(b"\x80\x04").decode(), "features": []})["error"]
    )
    answer = change({"model": "pumps", "file": "", "features": [], "heldBack": "none", "target": "power"})
    assert "expected a file of ONNX" in answer["error"]
    place.send(command="delete", name="demo.loads", purge=True)


def test_a_function_that_raises_or_never_returns_is_told_and_its_neighbours_go_on(
    node: StreamNode, place: RunnerPlace
) -> None:
    node.create("trouble")
    source = (
        "import time\n\ndef fails(rows):\n    return rows.nothing\n\n"
        "def hangs(rows):\n    while True:\n        try:\n            time.sleep(1)\n"
        "        except Exception:\n            pass\n"
    )
    write_code(place, "demo.fails", bad=source)
    write_code(place, "demo.hangs", bad=source)
    place.put("demo.fails", with_function("trouble", "fails", "bad:fails", onError="fail"), {"trouble": STREAM})
    place.put("demo.hangs", with_function("trouble", "hangs", "bad:hangs", timeout="1s"), {"trouble": STREAM})
    place.put("demo.absent", with_function("trouble", "absent", "gone:score"), {"trouble": STREAM})
    place.put("demo.beside", to_table("trouble", "beside"), {"trouble": STREAM})
    send(node, "trouble", "x")

    def error(name: str) -> str:
        return str(place.statuses.get(name, {}).get("lastError", ""))

    place.until(lambda: "bad:fails (bad.py, line 4): AttributeError" in error("demo.fails"))
    place.until(lambda: "bad:hangs (bad.py, line" in error("demo.hangs") and "longer than 1 s" in error("demo.hangs"))
    place.until(lambda: "no module 'gone'" in error("demo.absent") and "add gone.py" in error("demo.absent"))
    place.until(lambda: texts(place, "beside") == ["x"])
    assert place.statuses["demo.fails"]["phase"] != "Active"
    send(node, "trouble", "y")
    place.until(lambda: texts(place, "beside") == ["x", "y"])
    write_code(place, "demo.fails", bad="def fails(rows):\n    return rows.assign(score=0.0)\n")
    place.put("demo.fails", with_function("trouble", "fails", "bad:fails", onError="fail"), {"trouble": STREAM})
    place.until(lambda: texts(place, "fails") == ["x", "y"])
    for name in ("fails", "hangs", "absent", "beside"):
        place.send(command="delete", name=f"demo.{name}", purge=True)


def test_bodies_are_decoded_and_what_cannot_be_is_counted(node: StreamNode, place: RunnerPlace) -> None:
    good = [json.dumps({"device": f"d{n}", "temperature": n / 2}) for n in range(5)]
    send(node, node.create("json"), *good, "not json", '{"device": "cut')
    node.create("limits", "queue")
    with node.connect() as connection:
        limited = Message(b'{"device": "limited", "temperature": 0}', properties={"limit": 2.5, "room": "hall"})
        connection.sender("json").send(limited)
    spec = {
        "sources": [{"name": "readings", "address": "json", "includeProperties": True, "includeHeaders": True}],
        "steps": [
            {
                "name": "warm",
                "sql": "SELECT device, temperature, _offset, _properties, _address FROM readings "
                "WHERE temperature > 0.7",
            },
            {
                "name": "limits",
                "sql": "SELECT device AS value, _headers AS headers FROM readings "
                "WHERE exists(_headers, h -> h.type = 'double')",
            },
        ],
        "sinks": [
            {"input": "warm", "table": "warm"},
            {"input": "readings", "table": "all"},
            {"input": "limits", "address": "limits"},
        ],
    }
    schema = {"format": "json", "definition": "device STRING, temperature DOUBLE"}
    addresses = {"json": {"type": "stream", "schema": schema}, "limits": {"type": "queue"}}
    place.put("demo.json", spec, addresses)
    (told,) = take(node, "limits", 1)
    assert (told.body, told.properties) == (b"limited", {"limit": 2.5, "room": "hall"})
    place.until(lambda: place.count("all") == 6 and place.count("warm") == 3)
    assert sorted(row["temperature"] for row in place.rows("warm")) == [1.0, 1.5, 2.0]
    queries = place.until(
        lambda: (q := place.statuses["demo.json"]["queries"]) and all("batch" in i for i in q) and q
    )
    assert [query["badRecords"] for query in queries] == [2, 2, 2]
    place.send(command="delete", name="demo.json", purge=True)


def test_a_queue_is_consumed_by_one_query_and_said_to_be(node: StreamNode, place: RunnerPlace) -> None:
    node.create("work", "queue")
    sent = [f"m{n}" for n in range(30)]
    send(node, "work", *sent)
    sql = "SELECT CAST(value AS STRING) AS text FROM readings"
    place.put("demo.work", to_table("work", "work", sql), {"work": {"type": "queue"}})
    place.until(lambda: place.count("work") >= 30)
    assert texts(place, "work") == sorted(sent)
    place.until(lambda: "consumes work, a queue" in place.statuses["demo.work"]["warnings"][0])
    place.send(command="delete", name="demo.work", purge=True)


def test_devices_of_mqtt_reach_a_pipeline_of_a_topic_below_its_name(node: StreamNode, place: RunnerPlace) -> None:
    require("paho-mqtt")
    from tests.support.paho_devices import PahoClient

    node.create("plant", "topic")
    with node.connect() as connection:
        # As an older version left it: a subscription to the topic alone, with something in it.
        old = ("shared", "global")
        connection.receiver("plant", name="demo.plant.readings", credit=0, durable=True, capabilities=old)
    send(node, "plant", "waits")
    sources = [{"name": "readings", "address": "plant", "includeTopicName": True}]
    sql = "SELECT topic_name, CAST(value AS STRING) AS text FROM readings"
    place.put("demo.plant", to_table("plant", "plant", sql, sources=sources), {"plant": {"type": "topic"}})
    place.until(lambda: place.count("plant") >= 1)
    paho = PahoClient()
    device = Device(paho, node.port, 5, client_id="gauge")
    for qos, topic in ((0, "plant"), (1, "plant/line1"), (2, "plant/line1/temp")):
        assert device.publish(topic, f"from {topic}".encode(), qos=qos) == [0]
    place.until(lambda: place.count("plant") >= 4)
    found = sorted((row["topic_name"], row["text"]) for row in place.rows("plant"))
    topics = ("plant", "plant/line1", "plant/line1/temp")
    assert found == sorted([("plant", "waits"), *((topic, f"from {topic}") for topic in topics)])
    device.disconnect()
    paho.close()
    place.send(command="delete", name="demo.plant", purge=True)


def test_what_is_consumed_feeds_several_sinks_and_gives_its_bad_records(node: StreamNode, place: RunnerPlace) -> None:
    for name, kind in (("jobs", "queue"), ("copies", "stream"), ("spoilt", "stream")):
        node.create(name, kind)
    good = [json.dumps({"device": f"d{n}", "temperature": n}) for n in range(20)]
    send(node, "jobs", *good, "not json", '{"device": "cut')
    columns = "device STRING, temperature DOUBLE"
    source = {"name": "readings", "address": "jobs", "format": "json", "schema": columns, "badRecords": "spoilt"}
    hot = {"name": "hot", "sql": "SELECT device, temperature FROM readings WHERE temperature >= 15"}
    spec: dict[str, Any] = {
        "sources": [source],
        "steps": [hot],
        "sinks": [
            {"table": "hottest"},
            {"input": "readings", "table": "jobs", "mode": "update", "keys": ["device"]},
            {"address": "copies"},
        ],
    }
    addresses = {"jobs": {"type": "queue"}, "copies": STREAM, "spoilt": STREAM}
    place.put("demo.jobs", spec, addresses)
    place.until(lambda: place.count("jobs") == 20 and place.count("hottest") == 5)
    assert sorted(row["device"] for row in place.rows("hottest")) == [f"d{n}" for n in range(15, 20)]
    copies, spoilt = take_stream(node, "copies", 5), take_stream(node, "spoilt", 2)
    assert sorted(json.loads(message.body)["device"] for message in copies) == [f"d{n}" for n in range(15, 20)]
    assert sorted(message.body for message in spoilt) == [b"not json", b'{"device": "cut']
    assert {message.properties["address"] for message in spoilt} == {"jobs"}
    assert all(message.properties["reason"] for message in spoilt)
    (query,) = place.until(lambda: (q := place.statuses["demo.jobs"]["queries"]) and q[0].get("rows") and q)
    assert (query["rows"], query["badRecords"]) == (22, 2), "however many branches read a message, it came once"
    place.until(lambda: counts(node, "jobs")["messagesStored"] == 0)
    send(node, "jobs", json.dumps({"device": "d7", "temperature": 99}))
    place.until(lambda: place.count("hottest") == 6)
    place.until(lambda: {row["device"]: row["temperature"] for row in place.rows("jobs")}["d7"] == 99)
    assert place.count("jobs") == 20
    spec["sinks"] = spec["sinks"][:1]
    place.put("demo.jobs", spec, addresses)
    place.until(lambda: "is read 2 times, and was 4 times" in place.statuses["demo.jobs"].get("lastError", ""))
    place.send(command="delete", name="demo.jobs", purge=True)


def test_a_sink_that_fails_doubles_nothing_in_the_one_before(node: StreamNode, place: RunnerPlace) -> None:
    node.create("chores", "queue")
    send(node, "chores", *[f"m{n}" for n in range(10)])
    spec = to_table("chores", "chores", "SELECT CAST(value AS STRING) AS text FROM readings")
    spec["sinks"].append({"address": "late"})
    place.put("demo.chores", spec, {"chores": {"type": "queue"}, "late": STREAM})
    place.until(lambda: place.count("chores") == 10)
    place.until(lambda: "late" in place.statuses["demo.chores"].get("lastError", ""))
    node.create("late")
    assert sorted(json.loads(m.body)["text"] for m in take_stream(node, "late", 10)) == [f"m{n}" for n in range(10)]
    place.until(lambda: counts(node, "chores")["messagesStored"] == 0)
    assert place.count("chores") == 10
    place.send(command="delete", name="demo.chores", purge=True)


def test_sinks_of_what_is_consumed_have_to_agree(node: StreamNode, place: RunnerPlace) -> None:
    node.create("tasks", "queue")
    counted = {"name": "counted", "sql": "SELECT key, count(*) AS n FROM readings GROUP BY key"}
    spec = {
        "sources": [{"name": "readings", "address": "tasks"}],
        "steps": [counted],
        "sinks": [{"table": "counted", "mode": "complete"}, {"input": "readings", "table": "tasks"}],
    }
    place.put("demo.tasks", spec, {"tasks": {"type": "queue"}})
    place.until(lambda: "need the same mode" in place.statuses.get("demo.tasks", {}).get("lastError", ""))
    place.send(command="delete", name="demo.tasks", purge=True)


def test_pause_keeps_the_place_and_available_now_finishes(node: StreamNode, place: RunnerPlace) -> None:
    send(node, node.create("rests"), "a", "b")
    place.put("demo.rests", to_table("rests", "rests"), {"rests": STREAM})
    place.until(lambda: texts(place, "rests") == ["a", "b"])
    place.put("demo.rests", to_table("rests", "rests", paused=True), {"rests": STREAM})
    place.until(lambda: place.statuses["demo.rests"]["conditions"][0]["reason"] == "Paused")
    send(node, "rests", "c")
    place.put("demo.rests", to_table("rests", "rests", trigger="availableNow"), {"rests": STREAM})
    place.until(lambda: place.state("demo.rests") == {"Finished"})
    assert texts(place, "rests") == ["a", "b", "c"]
    place.send(command="delete", name="demo.rests", purge=True)


def test_what_does_not_fit_a_schema_is_told_by_field_and_done_as_the_source_says(
    node: StreamNode, place: RunnerPlace
) -> None:
    node.create("drift", partitions=1)
    source = {"name": "readings", "address": "drift", "format": "json", "schema": "d STRING, t DOUBLE, n INT"}

    def spec(table: str, **more: Any) -> dict[str, Any]:
        return {"sources": [source | more], "sinks": [{"input": "readings", "table": table}]}

    kinds = {"drift": STREAM}
    place.put("demo.null", spec("nulls", onDrift="null"), kinds)
    place.put("demo.drop", spec("dropped", degradedAbove=0.9), kinds)
    place.put("demo.fail", spec("failed", onDrift="fail"), kinds)
    bodies = ['{"d":"a","t":1,"n":1}', '{"d":"b","t":"hot","n":2}', '{"d":"c","t":1e999,"n":"x"}', "no JSON"]
    send(node, "drift", *bodies)

    def rows(table: str) -> list[tuple[Any, ...]]:
        return sorted((row["d"], row["t"], row["n"]) for row in place.rows(table))

    place.until(lambda: rows("nulls") == [("a", 1.0, 1), ("b", None, 2), ("c", None, None)])
    place.until(lambda: rows("dropped") == [("a", 1.0, 1)])
    told = place.until(lambda: place.statuses["demo.null"]["queries"][0].get("drift"))
    assert [(field["source"], field["field"], field["count"]) for field in told] == [
        ("readings", "", 1),
        ("readings", "n", 1),
        ("readings", "t", 2),
    ]
    assert told[0]["example"] == "expected a JSON object, got no JSON"
    line = "source readings: 1 messages do not fit by n, as t: expected DOUBLE, got 1e999; n: expected INT, got x"
    place.until(lambda: any(line in said for said in place.log))
    assert "n: expected INT, got x" in told[1]["example"]
    ready = place.until(lambda: (c := place.statuses["demo.null"]["conditions"][0])["reason"] == "Degraded" and c)
    assert ready["status"] == "True"
    assert ready["message"] == "75.0% of the latest messages of source readings do not fit its schema"
    assert place.until(lambda: place.statuses["demo.drop"]["conditions"][0]["reason"] == "Running")
    place.until(lambda: "onDrift is fail" in place.statuses["demo.fail"]["queries"][0].get("error", ""))
    assert rows("failed") == []
    for name in ("null", "drop", "fail"):
        place.send(command="delete", name=f"demo.{name}", purge=True)


def test_rows_are_held_against_what_they_are_expected_to_meet_and_empty_messages_delete(
    node: StreamNode, place: RunnerPlace
) -> None:
    node.create("orders", partitions=1)
    node.create("letters", "queue")
    dropped = {"name": "has_id", "condition": "id IS NOT NULL", "action": "drop"}
    parted = {"name": "positive", "condition": "amount > 0", "action": "dead-letter"}
    counted = {"name": "cheap", "condition": "amount < 100"}
    source = {"name": "orders", "address": "orders", "format": "json", "schema": "amount INT", "tombstones": True}
    sql = "SELECT try_cast(_key AS INT) AS id, if(_tombstone, 1, amount) AS amount, _tombstone AS gone FROM orders"
    step = {"name": "fit", "sql": sql, "expectations": [dropped, parted, counted], "badRecords": "letters"}
    sink = {"table": "orders", "mode": "update", "keys": ["id"], "deleteWhen": "gone"}
    spec = {"sources": [source], "steps": [step], "sinks": [sink]}
    strict = source | {"expectations": [counted | {"action": "fail"}]}
    failing = {"sources": [strict], "sinks": [{"table": "failing"}]}
    kinds = {"orders": STREAM, "letters": {"type": "queue"}}
    place.put("demo.orders", spec, kinds)
    place.put("demo.failing", failing, kinds)

    def order(key: str, body: str) -> Message:
        return Message(body, subject=key)

    def orders() -> list[tuple[int, int]]:
        return sorted((row["id"], row["amount"]) for row in place.rows("orders"))

    with node.connect() as connection, connection.sender("orders") as sender:
        for key, amount in (("1", 10), ("2", -5), ("x", 10), ("3", 150), ("x", -7)):
            sender.send(order(key, json.dumps({"amount": amount})))
        place.until(lambda: orders() == [(1, 10), (3, 150)])
        sender.send(order("1", ""))
    place.until(lambda: orders() == [(3, 150)])
    (letter,) = take(node, "letters", 1)
    assert json.loads(letter.body) == {"id": 2, "amount": -5, "gone": False}
    assert letter.properties == {"reason": "positive: amount > 0", "relation": "fit"}

    def told() -> list[tuple[str, int, int]]:
        query = next(query for query in place.statuses["demo.orders"]["queries"] if query["name"] == "table-orders")
        return [(rule["name"], rule["failed"], rule["rows"]) for rule in query.get("expectations", ())]

    place.until(lambda: told() == [("has_id", 2, 6), ("positive", 2, 6), ("cheap", 1, 6)])
    said = "orders: a row does not meet cheap (amount < 100): "
    place.until(lambda: said in place.statuses["demo.failing"]["queries"][0].get("error", ""))
    for name in ("orders", "failing"):
        place.send(command="delete", name=f"demo.{name}", purge=True)


def test_null_and_absent_fields_are_told_apart_from_the_message_to_the_table(
    node: StreamNode, place: RunnerPlace
) -> None:
    node.create("twins", partitions=1)
    source = {"name": "changes", "address": "twins", "format": "json", "includePresent": True}
    source |= {"schema": "device STRING, at INT, mode STRING, target DOUBLE"}
    renamed = "transform(_present, n -> if(n = 'target', 'wanted', n)) AS _present"
    sink = {"mode": "update", "keys": ["device"], "orderBy": "at", "update": "present"}
    spec = {
        "sources": [source],
        "steps": [{"name": "named", "sql": f"SELECT device, at, mode, target * 2 AS wanted, {renamed} FROM changes"}],
        "sinks": [sink | {"input": "changes", "table": "twins"}, sink | {"input": "named", "table": "named"}],
    }
    place.put("demo.twins", spec, {"twins": STREAM})
    said: list[dict[str, Any]] = [
        {"device": "a", "at": 1, "mode": "auto", "target": 1},
        {"device": "b", "at": 1, "mode": "auto", "target": 1},
        {"device": "a", "at": 3, "target": None},
        {"device": "b", "at": 3, "mode": "off"},
        {"device": "a", "at": 2, "mode": "late", "target": 7},
        {"device": "b", "at": 2, "mode": "late", "target": 7},
    ]
    send(node, "twins", *map(json.dumps, said))

    def rows(table: str, column: str) -> list[tuple[Any, ...]]:
        return sorted((row["device"], row["at"], row["mode"], row[column]) for row in place.rows(table))

    place.until(lambda: rows("twins", "target") == [("a", 3, "late", None), ("b", 3, "off", 7.0)])
    place.until(lambda: rows("named", "wanted") == [("a", 3, "late", None), ("b", 3, "off", 14.0)])
    assert "_present" not in place.rows("twins")[0]
    place.send(command="delete", name="demo.twins", purge=True)
    place.until(lambda: not (place.folder / "checkpoints" / "demo.twins").exists())


def test_a_sink_may_have_a_trigger_of_its_own(node: StreamNode, place: RunnerPlace) -> None:
    send(node, node.create("paces"), "a")
    spec = to_table("paces", "quick")
    # The name is that of what is asked about tables, `history:TABLE`.
    spec["sinks"] = [*spec["sinks"], spec["sinks"][0] | {"table": "history", "trigger": "1h"}]
    place.put("demo.paces", spec, {"paces": STREAM})
    place.until(lambda: texts(place, "quick") == ["a"] and texts(place, "history") == ["a"])
    send(node, "paces", "b")
    place.until(lambda: texts(place, "quick") == ["a", "b"])
    assert place.ask("SELECT text FROM history")["rows"] == [["a"]]
    place.send(command="delete", name="demo.paces", purge=True)


def test_what_has_ended_runs_again_by_schedule_and_after_others(node: StreamNode, place: RunnerPlace) -> None:
    send(node, node.create("nightly"), "a")
    kinds = {"nightly": STREAM}
    place.put("demo.first", to_table("nightly", "nightly", trigger="availableNow", schedule="*/3 * * * * *"), kinds)
    later = {
        "sources": [{"name": "t", "table": "nightly", "stream": True}],
        "sinks": [{"input": "t", "table": "later"}],
        "trigger": "availableNow",
        "after": ["first"],
    }
    place.put("demo.second", later, {})
    parameters = {"address": "nightly", "startingOffsets": "earliest", "table": "kept"}
    kept = {"builtin": {"name": "lake", "parameters": parameters}, "trigger": "availableNow", "after": ["second"]}
    place.put("demo.kept", kept, kinds)
    ended = place.until(
        lambda: (s := place.statuses["demo.kept"])["conditions"][0]["reason"] == "Finished" and s["queries"]
    )
    assert [(one["name"], one["batch"]) for one in ended] == [("messages", 0), ("compact-kept", 1)]
    place.until(lambda: texts(place, "later") == ["a"])
    first = place.until(lambda: (s := place.statuses["demo.first"])["phase"] and s.get("lastRun") and s)
    assert first["nextRun"] > first["lastRun"]
    send(node, "nightly", "b")
    place.until(lambda: texts(place, "later") == ["a", "b"])
    assert place.state("demo.second") <= {"Finished", "Running", "Starting"}
    assert place.statuses["demo.first"]["lastRun"] > first["lastRun"]
    for name in ("first", "second", "kept"):
        place.until(lambda: place.statuses[f"demo.{name}"]["rows"] == 2)  # noqa: B023  # called at once
        place.send(command="delete", name=f"demo.{name}", purge=True)


def test_several_streams_are_one_source_and_new_ones_join_it(node: StreamNode, place: RunnerPlace) -> None:
    for name in ("hall/1", "hall/2"):
        node.create(name, partitions=2)
    source = {"name": "r", "addressPattern": "hall/#", "format": "json", "schema": "n INT", "maxRowsPerBatch": 3}
    spec = {"sources": [source], "sinks": [{"table": "hall"}]}

    def kinds(*numbers: int) -> dict[str, Any]:
        return {f"hall/{number}": STREAM for number in numbers} | {"other": STREAM}

    def rows() -> list[tuple[str, int]]:
        return sorted((row["_address"], row["n"]) for row in place.rows("hall"))

    def said(*numbers: int) -> list[str]:
        return [json.dumps({"n": number}) for number in numbers]

    send(node, "hall/1", *said(1, 2, 3, 4, 5))
    place.put("demo.hall", spec, kinds(1, 2))
    place.until(lambda: rows() == [("hall/1", number) for number in range(1, 6)])
    send(node, "hall/2", *said(6))
    place.until(lambda: rows()[-1] == ("hall/2", 6))
    assert place.until(lambda: place.statuses["demo.hall"]["queries"][0]["sources"][0]["lag"] == 0)
    node.create("hall/3", partitions=1)
    send(node, "hall/3", *said(7, 8))
    place.put("demo.hall", spec, kinds(1, 2, 3))
    place.until(lambda: rows()[-2:] == [("hall/3", 7), ("hall/3", 8)])
    send(node, "hall/1", *said(9))
    send(node, "hall/3", *said(10))
    place.until(lambda: len(rows()) == 10)
    assert [number for _, number in rows()] == [1, 2, 3, 4, 5, 9, 6, 7, 8, 10]
    place.put("demo.hall", spec | {"paused": True}, kinds(1, 2, 3))
    place.until(lambda: place.statuses["demo.hall"]["conditions"][0]["reason"] == "Paused")
    place.put("demo.hall", spec, kinds(1, 2, 3))
    send(node, "hall/2", *said(11))
    place.until(lambda: len(rows()) == 11)
    place.until(lambda: place.statuses["demo.hall"]["queries"][0]["sources"][0]["name"] == "hall/#")
    place.send(command="delete", name="demo.hall", purge=True)


def test_files_and_versions_of_a_table_are_read_once_each(node: StreamNode, place: RunnerPlace) -> None:
    node.create("misfits", "queue")
    lake = place.folder / "lake"
    orders = {
        "name": "orders",
        "files": {"path": "orders/new", "format": "csv", "header": True},
        "schema": "id INT, amount DOUBLE, at TIMESTAMP, note STRING",
        "badRecords": "misfits",
        "includePresent": True,
    }
    archive = {
        "sources": [orders],
        "sinks": [{"input": "orders", "table": "orders_raw", "partitionBy": ["day(at)"]}],
    }
    source = {"name": "raw", "table": "orders_raw", "stream": True}
    seen_spec = {
        "sources": [source],
        "steps": [{"name": "days", "sql": "SELECT id, at_day AS day FROM raw"}],
        "sinks": [{"table": "orders_seen"}],
    }
    place.put("demo.seen", seen_spec, {})
    place.until(lambda: "there is no Delta table 'orders_raw'" in str(place.statuses["demo.seen"]))
    place.put("demo.archive", archive, {"misfits": {"type": "queue"}})

    def drop(name: str, *lines: str, header: str = "id,amount,at,note") -> None:
        folder = lake / "files/orders/new/today"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f".{name}").write_text("\n".join((header, *lines)))
        (folder / f".{name}").rename(folder / name)

    def seen() -> list[tuple[int, str]]:
        return sorted((row["id"], str(row["day"])) for row in place.rows("orders_seen"))

    noted = '2,1,2026-02-01T10:00:00Z,"a ""note"", b"'
    drop("first.csv", "1,2.5,2026-01-31T10:00:00Z,", "two,1,,", noted, "3,x,,")
    place.until(lambda: seen() == [(1, "2026-01-31"), (2, "2026-02-01")])
    misfits = take(node, "misfits", 2)
    assert [(misfit.body, misfit.properties["address"]) for misfit in misfits] == [
        (b"two,1,,", "files/orders/new"),
        (b"3,x,,", "files/orders/new"),
    ]
    assert [row["note"] for row in place.rows("orders_raw") if row["id"] == 2] == ['a "note", b']
    assert {tuple(row["_present"]) for row in place.rows("orders_raw")} == {("id", "amount", "at", "note")}
    drop("other.csv", "1,3,2026-02-01T10:00:00Z,", header="amount,id,at,note")
    failed = place.until(lambda: place.statuses["demo.archive"]["queries"][0].get("error", ""))
    assert "CSV header does not conform to the schema" in failed
    assert "today/other.csv" in failed
    drop("other.csv", "3,1,2026-02-01T10:00:00Z,")  # in its place
    place.until(lambda: len(seen()) == 3)
    for numbers in (range(4, 9), range(9, 12)):
        for number in numbers:
            drop(f"{number}.csv", f"{number},1,2026-02-01T10:00:00Z,")
        place.until(lambda: len(seen()) == numbers[-1])  # noqa: B023  # called at once
    assert compact(lake / "orders_raw").made  # what was joined has no new rows
    drop("last.csv", "12,1,2026-02-01T10:00:00Z,")
    place.until(lambda: len(seen()) == 12)
    assert [row["id"] for row in place.rows("orders_raw") if "today/last.csv" in row["_file"]] == [12]
    readings = {
        "name": "r",
        "files": {"path": "readings", "format": "json"},
        "schema": "d STRING, t INT",
        "onDrift": "null",
        "includePresent": True,
    }
    place.put("demo.readings", {"sources": [readings], "sinks": [{"table": "readings"}]}, {})
    place.until((lake / "files/readings").is_dir)
    (lake / "files/readings/a.json").write_text('{"d":"x","t":1}\n\n{"d":"y","t":"hot"}\nnothing\n')
    place.until(lambda: sorted((r["d"], r["t"]) for r in place.rows("readings")) == [("x", 1), ("y", None)])
    assert sorted(list(row["_present"]) for row in place.rows("readings")) == [["d"], ["d", "t"]]
    DeltaTable(lake / "orders_raw").delete("id = 1")
    place.until(lambda: "deletes or replaces rows" in place.statuses["demo.seen"]["queries"][0].get("error", ""))
    place.put("demo.seen", seen_spec | {"sources": [source | {"skipChangeCommits": True}]}, {})
    drop("after.csv", "13,1,2026-02-01T10:00:00Z,")
    place.until(lambda: [identity for identity, _ in seen()] == list(range(1, 14)))
    for name in ("seen", "archive", "readings"):
        place.send(command="delete", name=f"demo.{name}", purge=True)


def test_steps_are_done_with_each_batch_as_a_whole(node: StreamNode, place: RunnerPlace) -> None:
    node.create("games", partitions=1)
    node.create("best", "queue")
    best = "SELECT *, row_number() OVER (PARTITION BY game ORDER BY score DESC) AS place FROM scores"
    spec = {
        "sources": [
            {"name": "scores", "address": "games", "format": "json", "schema": "game STRING, who STRING, score INT"}
        ],
        "steps": [
            {"name": "placed", "sql": best, "perBatch": True},
            {"name": "first", "sql": "SELECT game, who, score FROM placed WHERE place = 1"},
            {"name": "halved", "function": "frames:halved", "inputs": ["first"], "parameters": {"by": 2}},
        ],
        "sinks": [
            {"input": "first", "table": "best", "mode": "update", "keys": ["game"], "orderBy": "score"},
            {"input": "placed", "table": "placed", "mode": "update", "keys": ["game", "who"]},
            {"input": "halved", "address": "best"},
        ],
        "resources": {"session": "own"},
        "code": {"configMap": "frames"},
    }
    write_code(
        place,
        "demo.games",
        frames="def halved(first, by):\n    return first.selectExpr('game', f'score div {by} AS score')\n",
    )
    kinds = {"games": STREAM, "best": {"type": "queue"}}

    def score(game: str, who: str, points: int) -> str:
        return json.dumps({"game": game, "who": who, "score": points})

    def halves(count: int) -> list[int]:
        return sorted(json.loads(message.body)["score"] for message in take(node, "best", count))

    # Each time all of it in one batch.
    send(node, "games", score("a", "x", 1), score("a", "y", 5), score("b", "x", 2))
    place.put("demo.games", spec, kinds)
    place.until(lambda: place.count("best") == 2 and place.count("placed") == 3)
    assert halves(2) == [1, 2]
    place.put("demo.games", spec | {"paused": True}, kinds)
    place.until(lambda: place.statuses["demo.games"]["conditions"][0]["reason"] == "Paused")
    send(node, "games", score("a", "z", 9), score("a", "x", 3))
    place.put("demo.games", spec, kinds)
    place.until(lambda: sorted((r["game"], r["who"]) for r in place.rows("best")) == [("a", "z"), ("b", "x")])
    placed = [("a", "x", 2), ("a", "y", 1), ("a", "z", 1), ("b", "x", 1)]
    place.until(lambda: sorted((row["game"], row["who"], row["place"]) for row in place.rows("placed")) == placed)
    assert halves(1) == [4]
    place.send(command="delete", name="demo.games", purge=True)


def test_a_change_that_does_not_fit_is_refused_until_a_restart_is_asked_for(
    node: StreamNode, place: RunnerPlace
) -> None:
    send(node, node.create("first"), "a", "b")
    send(node, node.create("second"), "c")
    addresses = {"first": STREAM, "second": STREAM}
    place.put("demo.change", to_table("first", "change"), addresses)
    place.until(lambda: texts(place, "change") == ["a", "b"])
    place.put(
        "demo.change", to_table("first", "change", "SELECT offset, upper(CAST(value AS STRING)) text FROM readings")
    )
    send(node, "first", "d")
    place.until(lambda: texts(place, "change") == ["D", "a", "b"])
    with_neighbour = to_table("second", "change")
    with_neighbour["sinks"] += [{"table": "neighbour"}]
    place.put("demo.change", with_neighbour, addresses)
    place.until(lambda: place.statuses["demo.change"]["conditions"][0]["reason"] == "CheckpointMisfit")
    # Other queries of the pipeline go on.
    place.until(lambda: texts(place, "neighbour") == ["c"])
    message = place.statuses["demo.change"]["conditions"][0]["message"]
    assert "'source first'" in message
    assert "'source second'" in message
    assert "restart" in message
    again = to_table("second", "change", restart={"at": "now", "from": "earliest"})
    place.put("demo.change", again, addresses)
    place.until(lambda: texts(place, "change") == ["D", "a", "b", "c"])
    status = place.until(lambda: (s := place.statuses["demo.change"])["phase"] == "Active" and s)
    assert status["restartedAt"] == "now"
    send(node, "second", "e")
    place.until(lambda: texts(place, "change") == ["D", "a", "b", "c", "e"])
    assert sorted(p.name for p in (place.folder / "checkpoints" / "demo.change").iterdir()) == [
        "1",
        "2",
        "standing.json",
    ]
    place.send(command="delete", name="demo.change", purge=True)


def test_a_damaged_checkpoint_is_named(node: StreamNode, place: RunnerPlace) -> None:
    send(node, node.create("damage"), "a")
    place.put("demo.damage", to_table("damage", "damage"), {"damage": STREAM})
    place.until(lambda: texts(place, "damage") == ["a"])
    place.put("demo.damage", to_table("damage", "damage", paused=True), {"damage": STREAM})
    place.until(lambda: place.statuses["demo.damage"]["conditions"][0]["reason"] == "Paused")
    offsets = place.folder / "checkpoints" / "demo.damage" / "1" / "table-damage" / "offsets"
    newest = max((path for path in offsets.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    newest.write_text("v1\n{broken")
    place.put("demo.damage", to_table("damage", "damage"), {"damage": STREAM})
    told = place.until(lambda: place.statuses["demo.damage"].get("lastError"))
    assert str(newest) in told
    assert "restart" in told
    place.send(command="delete", name="demo.damage", purge=True)


def test_a_second_runner_of_the_space_is_refused(place: RunnerPlace) -> None:
    command = [sys.executable, "-m", "enmasse.pipeline", "run", "--space", "default/demo"]
    command += ["--url", place.url, "--folder", str(place.folder)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "another runner works in" in done.stderr
    assert done.stdout == ""


def test_bad_commands_are_told_and_change_nothing(place: RunnerPlace) -> None:
    place.send(command="put", pipeline={"kind": "Pipeline"})
    assert "spec" in place.next_event("refused")["error"]
    place.send(command="fly")
    assert "expected put" in place.next_event("refused")["error"]


def test_answers_are_lines_of_json_whatever_the_values(node: StreamNode, place: RunnerPlace) -> None:
    answer = place.ask(
        "SELECT TIMESTAMP '2026-01-31 12:00:00.25' AS t, DATE '2026-01-31' AS d, CAST(1.5 AS DECIMAL(5,2)) AS n, "
        "named_struct('a', array(1, NULL)) AS s, CAST('x' AS BINARY) AS b, CAST('NaN' AS DOUBLE) AS f, "
        "map('k', 1) AS m"
    )
    assert answer["error"] is None
    assert answer["rows"] == [
        ["2026-01-31T12:00:00.250000Z", "2026-01-31", "1.50", {"a": [1, None]}, "x", "nan", {"k": 1}]
    ]
    assert json.dumps(answer)


def test_a_runner_outlives_its_node_and_tells_of_an_address_that_is_gone(
    node: StreamNode, place: RunnerPlace
) -> None:
    for name in ("stays", "goes"):
        send(node, node.create(name), "a")
        place.put(f"demo.{name}", to_table(name, name), {name: STREAM})
    place.until(lambda: texts(place, "stays") == ["a"] and texts(place, "goes") == ["a"])
    node.kill()
    node.start()
    send(node, "stays", "b")
    send(node, "goes", "b")
    place.until(lambda: texts(place, "stays") == ["a", "b"] and texts(place, "goes") == ["a", "b"])
    node.delete("goes")
    place.until(lambda: place.state("demo.goes") == {"Failed"})
    assert "goes" in place.statuses["demo.goes"]["lastError"]
    send(node, "stays", "c")
    place.until(lambda: texts(place, "stays") == ["a", "b", "c"])
