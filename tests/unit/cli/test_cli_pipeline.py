"""``enmasse pipeline`` against a real API; what runs pipelines is scripted here, for Spark takes long to start."""

from __future__ import annotations

import base64
import json
import socketserver
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml

from enmasse.api import pipelines
from enmasse.drivers.data_directory import Layout
from tests.support.polling import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Cli = Callable[..., Any]

PIPELINES = "/apis/enmasse.io/v1beta1/namespaces/default/pipelines"
HOT = """
apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {name: shop.hot, namespace: default}
spec:
  sources:
    - {name: readings, address: telemetry, format: json, schema: "device STRING, temperature DOUBLE"}
  steps:
    - {name: hot, sql: "SELECT device, temperature FROM readings WHERE temperature > 30"}
  sinks:
    - {address: alerts}
"""
ANSWER = {
    "columns": [{"name": "device", "type": "string"}, {"name": "n", "type": "bigint"}],
    "rows": [["boiler-1", 3], ["boiler [2]", None]],
}


@pytest.fixture
def shop(api: str, cli: Cli, tmp_path: Path) -> Path:
    """A space with a stream and a queue, and a file with a pipeline."""
    assert cli("create", "space", "shop", "--wait", "0").code == 0
    for name, kind in (("telemetry", "stream"), ("alerts", "queue")):
        assert cli("create", "address", name, "--type", kind, "--space", "shop", "--wait", "0").code == 0
    path = tmp_path / "hot.yaml"
    path.write_text(HOT)
    return path


def tell(api: str, name: str, **status: Any) -> None:
    """Write a status, as the host of pipelines does."""
    url = f"{api}{PIPELINES}/{name}"
    found = httpx.get(url).json()
    changed = found | {"status": found.get("status", {}) | status}
    assert httpx.put(f"{url}/status", json=changed).status_code == 200


def spec_of(api: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{api}{PIPELINES}/{name}").json()["spec"]
    return found


@contextmanager
def host(data: Path, answer: dict[str, Any], log: bytes = b"", code: int = 200) -> Iterator[list[Any]]:
    """Answer at the socket of the host of pipelines; gives what was asked."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append((self.path, json.loads(self.rfile.read(int(self.headers["content-length"])))))
            self._answer("application/json", json.dumps(answer).encode())

        def do_GET(self) -> None:
            asked.append(self.path)
            self._answer("text/plain", log)

        def _answer(self, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "socket"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class calls it so
            pass

    with socketserver.ThreadingUnixStreamServer(str(Layout(data).data / "pipelines.sock"), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join()


def test_a_file_is_run_and_followed_for_a_while(api: str, cli: Cli, shop: Path) -> None:
    done = cli("pipeline", "run", str(shop), "--timeout", "0.1")
    assert (done.code, done.out) == (0, "shop.hot: Pending\n")
    assert "pipeline/shop.hot created" in done.err
    again = cli("pipeline", "run", str(shop), "--detach")
    assert (again.code, again.out) == (0, "")
    assert "pipeline/shop.hot unchanged" in again.err


def test_following_ends_when_a_pipeline_has_finished(api: str, cli: Cli, shop: Path) -> None:
    assert cli("pipeline", "run", str(shop), "--detach").code == 0
    queries = [{"name": "to-alerts", "state": "Finished", "rows": 1200}]
    tell(api, "shop.hot", phase="Finished", rows=1200, rate=12.5, lag=0, queries=queries)
    done = cli("pipeline", "status", "hot", "--watch")
    assert (done.code, done.out) == (0, "shop.hot: Finished, 1,200 rows, 12.5 rows/s, lag 0\n")


def test_a_builtin_pipeline_is_run_with_its_parameters(api: str, cli: Cli, shop: Path) -> None:
    sets = ("address=telemetry", "alerts=alerts", 'bands={"temperature": "10:35"}', "warmUp=5", "metrics=t,humidity")
    words = [word for setting in sets for word in ("--set", setting)]
    done = cli("pipeline", "run", "--builtin", "anomalies", *words, "--name", "hot", "--credentials", "me", "-d")
    assert done.code == 0, done.err
    assert spec_of(api, "shop.hot") == {
        "credentialsSecret": "me",
        "paused": False,
        "builtin": {
            "name": "anomalies",
            "parameters": {
                "address": "telemetry",
                "alerts": "alerts",
                "bands": {"temperature": "10:35"},
                "warmUp": 5,
                "metrics": ["t", "humidity"],
            },
        },
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name either a FILE with a pipeline, or a built-in one with --builtin"),
        (("hot.yaml", "--builtin", "lake"), "name either a FILE"),
        (("hot.yaml", "--set", "a=b"), "are for --builtin: a file says all that itself"),
        (("--builtin", "leak"), "there is no built-in pipeline 'leak'; there are lake (keeps every message in"),
        (("--builtin", "lake", "--set", "address"), "--set takes KEY=VALUE, not 'address'"),
        (("--builtin", "lake", "--set", "adress=a"), "lake has no such parameter; did you mean address?"),
        (("--builtin", "heartbeat", "--set", "cleared=maybe"), "--set cleared: expected true or false, got 'maybe'"),
        (("--builtin", "lake"), "spec.builtin.parameters.address: required, but it is missing"),
        (("nowhere.yaml",), "nowhere.yaml cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_run_is_said_without_a_traceback(
    api: str, cli: Cli, shop: Path, words: tuple[str, ...], message: str
) -> None:
    done = cli("pipeline", "run", *words)
    assert done.code in (1, 2, 3)
    assert message in done.err
    assert "Traceback" not in done.err


def test_sql_that_is_wrong_is_refused_before_anything_is_sent(api: str, cli: Cli, shop: Path) -> None:
    shop.write_text(HOT.replace("temperature FROM", "temprature FROM"))
    done = cli("pipeline", "run", str(shop))
    assert done.code == 1
    assert "spec.steps[0].sql: line 1, column 16: there is no column 'temprature'; did you mean" in done.err


def test_a_pipeline_is_listed_shown_explained_and_deleted_like_everything(api: str, cli: Cli, shop: Path) -> None:
    assert "There are no pipelines in namespace default." in cli("pipeline", "list").err
    assert cli("apply", "-f", str(shop)).code == 0
    tell(api, "shop.hot", phase="Active", isReady=True, rows=1200, rate=12.345, lag=7)
    for words in (("pipeline", "list"), ("get", "pipelines"), ("get", "pl", "--space", "shop")):
        heads, row = cli(*words).out.splitlines()
        assert heads.split() == ["NAME", "READY", "PHASE", "ROWS", "RATE", "LAG", "AGE"]
        assert row.split()[:6] == ["shop.hot", "True", "Active", "1200", "12.3", "7"]
    assert "there is no address space 'other'" in cli("get", "pl", "--space", "other").err
    assert "shop.hot" in cli("describe", "pipeline", "shop.hot").out
    explained = cli("explain", "pipeline.spec.sources").out
    assert "startingOffsets" in explained
    assert "The inputs: each a relation by its name." in explained
    assert cli("delete", "pipeline", "shop.hot").code == 0
    assert cli("get", "pipeline", "shop.hot").code == 3


def test_the_status_has_a_row_for_each_query(api: str, cli: Cli, shop: Path) -> None:
    assert cli("apply", "-f", str(shop)).code == 0
    query = {
        "name": "to-alerts",
        "state": "Running",
        "batch": 41,
        "batchDurationMs": 1250,
        "rows": 123456,
        "inputRowsPerSecond": 1234.5,
        "lag": 0,
        "watermarkDelayMs": 10500,
        "lateRows": 3,
        "stateRows": 17,
        "badRecords": 2,
        "error": "the address alerts [x] is full",
    }
    tell(api, "shop.hot", phase="Active", rows=123456, queries=[query], warnings=["it consumes"], messages=["waits"])
    lines = cli("pipeline", "status", "hot").out.splitlines()
    assert lines[:3] == ["shop.hot: Active, 123,456 rows", "  waits", "  it consumes"]
    heads = "QUERY STATE BATCH TOOK ROWS ROWS/S LAG WATERMARK AGE LATE ROWS STATE ROWS BAD ERROR"
    assert " ".join(lines[3].split()) == heads
    assert lines[4].split(maxsplit=11) == [
        *("to-alerts", "Running", "41", "1.25s", "123,456", "1,234", "0", "10.5s", "3", "17", "2"),
        "the address alerts [x] is full",
    ]
    assert json.loads(cli("pipeline", "status", "shop.hot", "-o", "json").out)["queries"][0]["batch"] == 41


def test_a_pipeline_rests_goes_on_and_starts_again(api: str, cli: Cli, shop: Path) -> None:
    assert cli("apply", "-f", str(shop)).code == 0
    assert cli("pipeline", "pause", "hot").out == "pipeline/shop.hot paused\n"
    assert spec_of(api, "shop.hot")["paused"] is True
    assert cli("pipeline", "resume", "hot", "--space", "shop").out == "pipeline/shop.hot goes on\n"
    assert spec_of(api, "shop.hot")["paused"] is False
    assert cli("pipeline", "restart", "hot").out == "pipeline/shop.hot starts again\n"
    first = spec_of(api, "shop.hot")["restart"]
    assert set(first) == {"at"}
    assert cli("pipeline", "restart", "hot", "--from", "2026-01-31T12:00:00Z").code == 0
    second = spec_of(api, "shop.hot")["restart"]
    assert second["from"] == "2026-01-31T12:00:00Z"
    assert second["at"] > first["at"]
    assert cli("pipeline", "restart", "hot").code == 0
    assert "from" not in spec_of(api, "shop.hot")["restart"]
    wrong = cli("pipeline", "restart", "hot", "--from", "yesterday")
    assert (wrong.code, "--from: expected earliest, latest, a moment such as" in wrong.err) == (2, True)


def test_a_backfill_is_asked_for_and_followed_until_it_is_done(api: str, cli: Cli, shop: Path) -> None:
    assert cli("apply", "-f", str(shop)).code == 0
    day = ("--from", "2026-01-31T00:00:00Z", "--to", "2026-02-01T00:00:00Z")
    assert cli("pipeline", "backfill", "hot", *day, "--partition", "site=north", "--detach").code == 0
    first = spec_of(api, "shop.hot")["backfill"]
    assert (first["from"], first["to"], first["partitions"]) == (day[1], day[3], {"site": "north"})
    assert cli("pipeline", "backfill", "hot", "--partition", "device=a=b", "--detach").code == 0
    second = spec_of(api, "shop.hot")["backfill"]
    assert set(second) == {"at", "partitions"}
    assert (second["partitions"], second["at"] > first["at"]) == ({"device": "a=b"}, True)

    def followed(**status: Any) -> Any:
        before = spec_of(api, "shop.hot")["backfill"]["at"]

        def run() -> None:
            at = until(lambda: (at := spec_of(api, "shop.hot")["backfill"]["at"]) != before and at)
            tell(api, "shop.hot", backfill={"at": at, "table": "days", **status})

        telling = threading.Thread(target=run)
        telling.start()
        done = cli("pipeline", "backfill", "hot", *day, "--table", "days")
        telling.join()
        return done

    done = followed(state="Done", rows=1200, rowsBefore=1100, partitions=1)
    assert (done.code, done.out) == (0, "days: 1,200 rows replaced 1,100 in 1 partitions\n")
    refused = followed(state="Refused", message="table days has mode update")
    assert (refused.code, refused.err) == (1, "error: table days has mode update\n")
    wrong = cli("pipeline", "backfill", "hot", "--partition", "north")
    assert (wrong.code, "expected COLUMN=VALUE" in wrong.err) == (2, True)
    half = cli("pipeline", "backfill", "hot", *day[:2])
    assert "spec.backfill.to: required: from and to go together" in half.err
    assert cli("pipeline", "pause", "hot").code == 0
    paused = cli("pipeline", "backfill", "hot", *day)
    assert (paused.code, "is paused, and computes nothing" in paused.err) == (2, True)


def test_a_pipeline_that_is_not_there_or_there_twice_is_said(api: str, cli: Cli, shop: Path) -> None:
    none = cli("pipeline", "pause", "hot")
    assert (none.code, none.err) == (
        3,
        "error: there is no pipeline 'hot' in namespace default; there is none at all\n",
    )
    shop.write_text(f"{HOT}---{HOT.replace('shop.hot', 'other.hot')}")
    assert cli("apply", "-f", str(shop)).code == 0
    assert "there are other.hot, shop.hot" in cli("pipeline", "pause", "cold").err
    both = cli("pipeline", "pause", "hot")
    assert (both.code, "exists in several spaces: name one with --space" in both.err) == (2, True)
    assert cli("pipeline", "pause", "hot", "--space", "other").code == 0


def test_an_answer_is_a_table_json_csv_or_a_chart(api: str, cli: Cli, shop: Path, tmp_path: Path) -> None:
    sql = "SELECT device, count(*) AS n FROM readings GROUP BY device"
    with host(tmp_path / "data", ANSWER) as asked:
        table = cli("pipeline", "query", sql, "--limit", "5", "--credentials", "me")
        assert table.code == 3, "there is no such secret"
        table = cli("pipeline", "query", sql, "--limit", "5")
        assert (table.code, table.err) == (0, "2 rows\n")
        assert [line.rsplit(maxsplit=1) for line in table.out.splitlines()] == [
            ["device", "n"],
            ["boiler-1", "3"],
            ["boiler [2]", "NULL"],
        ]
        assert asked == [("/query", {"space": "default/shop", "sql": sql, "limit": 5})]
        form = cli("pipeline", "query", "-", "-o", "json", stdin=sql.encode())
        assert json.loads(form.out) == [{"device": "boiler-1", "n": 3}, {"device": "boiler [2]", "n": None}]
        assert cli("pipeline", "query", sql, "-o", "csv").out == "device,n\nboiler-1,3\nboiler [2],\n"
        drawn = cli("pipeline", "query", sql, "-o", "chart").out.splitlines()
        assert drawn[0] == "n by device"
        assert drawn[1].startswith("boiler-1 ██")


FAR = "at: 2 of its moments are beyond the years 1 to 9999, such as +58878-06-04T00:00:00Z"


def test_an_answer_may_be_a_file_of_parquet(api: str, cli: Cli, shop: Path, tmp_path: Path) -> None:
    content = "PAR1\x00\x01\n é PAR1"
    answer = {"file": base64.b64encode(content.encode()).decode(), "truncated": True}
    answer["warnings"] = [FAR]
    with host(tmp_path / "data", answer) as asked:
        done = cli("pipeline", "query", "SELECT 1", "--limit", "7", "-o", "parquet")
    assert (done.code, done.out) == (0, content)
    assert "there are more rows than the 7 that were asked for" in done.err
    assert done.err.count(FAR) == 1
    assert asked == [("/query", {"space": "default/shop", "sql": "SELECT 1", "limit": 7, "as": "parquet"})]
    (tmp_path / "data" / "pipelines.sock").unlink()
    with host(tmp_path / "data", {"error": "line 1, column 15: there is no relation 'x'"}):
        wrong = cli("pipeline", "query", "SELECT * FROM x", "-o", "parquet")
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.err == "error: sql: line 1, column 15: there is no relation 'x'\n"


def test_the_tables_of_a_space_are_listed(api: str, cli: Cli, shop: Path, tmp_path: Path) -> None:
    columns = [{"name": name, "type": "ANY"} for name in ("table", "columns", "rows", "bytes", "format", "files")]
    rows = [["readings", [{"name": "device", "type": "STRING"}], 3, 900, "delta", 2], ["spoilt", *[None] * 5]]
    with host(tmp_path / "data", {"columns": columns, "rows": rows}) as asked:
        done = cli("pipeline", "tables")
        assert done.code == 0
        assert [line.split() for line in done.out.splitlines()[1:]] == [
            ["readings", "delta", "3", "2", "900", "device", "STRING"],
            ["spoilt", "-", "-", "-", "-"],
        ]
        told = json.loads(cli("pipeline", "tables", "-o", "json").out)[0]
        assert (told["table"], told["format"], told["files"]) == ("readings", "delta", 2)
    assert asked == [("/query", {"space": "default/shop", "limit": 10_000, "mayStart": True})] * 2
    (tmp_path / "data" / "pipelines.sock").unlink()
    with host(tmp_path / "data", {"columns": [], "rows": []}):
        assert "has no table yet" in cli("pipeline", "tables").err


def test_what_is_wrong_with_a_query_is_said(
    api: str, cli: Cli, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "_START_S", 0.5)
    away = cli("pipeline", "query", "SELECT 1")
    assert (away.code, away.err.startswith("error: the host of pipelines does not answer")) == (4, True)
    with host(tmp_path / "data", {"error": "line 1, column 15: there is no relation 'x'"}):
        wrong = cli("pipeline", "query", "SELECT * FROM x")
    assert (wrong.code, wrong.err) == (1, "error: sql: line 1, column 15: there is no relation 'x'\n")
    (tmp_path / "data" / "pipelines.sock").unlink()
    answer = {"columns": [{"name": "a", "type": "string"}], "rows": [["x"]], "truncated": True, "warnings": [FAR]}
    with host(tmp_path / "data", answer):
        drawn = cli("pipeline", "query", "SELECT a FROM t", "-o", "chart")
        assert drawn.code == 2
        assert "cannot be drawn: a chart needs a column of times, numbers or names first" in drawn.err
        said = cli("pipeline", "query", "SELECT a FROM t").err
        assert "there are more than 1 rows" in said
        assert said.count(FAR) == 1


def test_the_log_of_a_pipeline_is_shown(api: str, cli: Cli, shop: Path, tmp_path: Path) -> None:
    assert cli("apply", "-f", str(shop)).code == 0
    with host(tmp_path / "data", {}, log="batch 1\nwärmer [x]\n".encode()) as asked:
        done = cli("pipeline", "logs", "hot", "--lines", "7")
    assert (done.code, done.out) == (0, "batch 1\nwärmer [x]\n")
    assert asked == ["/log/default/shop.hot?tail=7&follow=false"]
    away = cli("pipeline", "logs", "hot")
    assert (away.code, "the host of pipelines does not answer" in away.err) == (4, True)


def test_a_built_in_pipeline_takes_no_others_place(api: str, cli: Cli, shop: Path) -> None:
    def run(name: str, *more: str) -> Any:
        settings = ("--set", "address=telemetry", "--set", "alerts=alerts", *more)
        return cli("pipeline", "run", "--builtin", name, "--name", "watch", "--space", "shop", *settings, "--detach")

    assert run("heartbeat").code == 0
    assert run("heartbeat", "--set", "after=5m").code == 0
    refused = run("anomalies", "--set", 'bands={"temperature": "0:30"}')
    assert refused.code == 2
    assert "shop.watch is there, and is the built-in pipeline 'heartbeat': choose another --name" in refused.err


def test_tables_are_listed_looked_back_at_and_restored(api: str, cli: Cli, shop: Path, tmp_path: Path) -> None:
    space = {"space": "default/shop"}
    answer = {"columns": [{"name": "done", "type": "STRING"}], "rows": [["is as version 3 was, as version 9"]]}
    with host(tmp_path / "data", answer) as asked:
        done = cli("table", "restore", "readings", "--version", "3")
        assert (done.code, done.out) == (0, "table readings: is as version 3 was, as version 9\n")
        assert cli("table", "restore", "readings", "--at", "2026-01-31T12:00:00Z").code == 0
        assert cli("table", "optimize", "readings").code == 0
        assert cli("table", "history", "readings").code == 0
    assert [command for _, command in asked] == [
        space | {"change": {"name": "readings", "action": "restore", "version": 3}},
        space | {"change": {"name": "readings", "action": "restore", "at": "2026-01-31T12:00:00Z"}},
        space | {"change": {"name": "readings", "action": "optimize"}},
        space | {"sql": "SELECT * FROM `history:readings` ORDER BY version DESC", "limit": 20},
    ]
    assert cli("table", "restore", "readings").code == 2
    (tmp_path / "data" / "pipelines.sock").unlink()
    with host(tmp_path / "data", {"error": "there is no table 'x' in the lake; there are none"}):
        refused = cli("table", "optimize", "x")
    assert (refused.code, refused.err) == (1, "error: there is no table 'x' in the lake; there are none\n")
    with httpx.Client(
        base_url=f"{api}/apis/enmasse.io/v1beta1/namespaces/default/addressspaces/shop/tables/t"
    ) as http:
        for action, body, code in (
            ("burn", {}, 404),
            ("optimize", {"version": 1}, 400),
            ("restore", {}, 400),
            ("restore", {"version": 1, "at": "x"}, 400),
            ("restore", {"version": -1}, 400),
            ("restore", {"version": True}, 400),
            ("restore", {"at": 5}, 400),
        ):
            assert http.post(f"/{action}", json=body).status_code == code, (action, body)


def test_a_model_is_imported_as_a_file_of_onnx(api: str, cli: Cli, shop: Path, tmp_path: Path) -> None:
    (tmp_path / "pump-power.onnx").write_bytes(b"onnx")
    (tmp_path / "pumps.pkl").write_bytes(b"\x80\x04.")
    said = "version 000001 counts, and takes load, rpm and gives DOUBLE"
    answer = {"columns": [{"name": "done", "type": "STRING"}], "rows": [[said]]}
    with host(tmp_path / "data", answer) as asked:
        done = cli("model", "import", str(tmp_path / "pump-power.onnx"), "--features", "load,rpm")
        assert (done.code, done.out) == (0, f"model pump_power: {said}\n")
        named = cli("model", "import", str(tmp_path / "pump-power.onnx"), "--name", "p", "--output-name", "odds")
        assert named.code == 0
    file = base64.b64encode(b"onnx").decode()
    assert [command["change"] for _, command in asked] == [
        {"model": "pump_power", "file": file, "features": ["load", "rpm"], "output": None},
        {"model": "p", "file": file, "features": [], "output": "odds"},
    ]
    refused = cli("model", "import", str(tmp_path / "pumps.pkl"))
    assert (refused.code, "pumps.pkl is a pickle, which runs as code" in refused.err) == (2, True)
    assert cli("model", "import", str(tmp_path / "nothing.onnx")).code == 2
    assert "--name: expected lower-case letters" in cli("model", "import", "a.onnx", "--name", "A B").err
    url = f"{api}/apis/enmasse.io/v1beta1/namespaces/default/addressspaces/shop/models/p"
    onnx = {"content-type": "application/octet-stream"}
    assert httpx.post(f"{url}/import", json={}).status_code == 415
    assert httpx.post(f"{url}/import", content=bytes(8 * 1024 * 1024 + 1), headers=onnx).status_code == 413
    assert httpx.post(f"{url}/rollback", content=bytes(1024 * 1024 + 1), headers=onnx).status_code == 413
    assert httpx.post(url.replace("/p", "/..p") + "/import", content=b"", headers=onnx).status_code in (400, 404)


@pytest.mark.parametrize(
    ("models", "why"),
    [
        ([], "--model: say of which type is what the model gives, as pumps=DOUBLE"),
        (["pumps"], "as pumps=DOUBLE"),
        (["pumps=NUMBER"], "--model: pumps: expected a type such as DOUBLE, got 'NUMBER'"),
        (["pumps=DOUBLE", "fans=DOUBLE"], "--model: no sql of the steps calls model_fans()"),
    ],
)
def test_a_check_is_told_what_models_give(cli: Cli, tmp_path: Path, models: list[str], why: str) -> None:
    file = tmp_path / "hot.yaml"
    file.write_text(HOT.replace("temperature > 30", "model_pumps(temperature) > 30"))
    done = cli("pipeline", "check", str(file), *(part for model in models for part in ("--model", model)))
    assert (done.code, why in done.err) == (2, True), done.err


ROOMS = "database: {type: postgresql, host: db, database: d, table: plant.Rooms, credentialsSecret: s}"


def joined(folder: Path, source: str) -> str:
    """Write a pipeline that reads a table, too."""
    document = yaml.safe_load(HOT)
    document["spec"]["sources"].append({"name": "rooms", **yaml.safe_load(source)})
    file = folder / "joined.yaml"
    file.write_text(yaml.safe_dump(document))
    return str(file)


@pytest.mark.parametrize(
    ("source", "given", "why"),
    [
        ("table: devices", [], "say which columns the table devices has, as 'devices=id INT, name STRING'"),
        ("table: devices", ["devices"], "expected NAME=COLUMNS, as devices=id INT, name STRING, got 'devices'"),
        (ROOMS, [], "say which columns the table plant.Rooms has, as 'plant.Rooms=id INT, name STRING'"),
    ],
)
def test_a_check_asks_for_the_columns_of_tables(
    cli: Cli, tmp_path: Path, source: str, given: list[str], why: str
) -> None:
    done = cli("pipeline", "check", joined(tmp_path, source), *(part for one in given for part in ("--table", one)))
    assert (done.code, why in done.err) == (2, True), done.err


def test_a_check_tells_what_is_wrong_with_each_file(cli: Cli, tmp_path: Path) -> None:
    texts = {
        "yaml": "spec: {sources: [}",
        "empty": "",
        "address": yaml.safe_dump(
            {
                "apiVersion": "enmasse.io/v1beta1",
                "kind": "Address",
                "metadata": {"name": "shop.a"},
                "spec": {"address": "a", "type": "queue"},
            }
        ),
        "sql": HOT.replace("SELECT", "SELEC"),
        "kind": HOT.replace("Pipeline", "Pipelines"),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    files = {name: str(tmp_path / f"{name}.yaml") for name in [*texts, "nowhere"]}
    done = cli("pipeline", "check", *files.values())
    told = {name for name, file in files.items() if any(file in line for line in done.err.splitlines())}
    assert (done.code, told) == (1, set(files)), done.err
    # An option that is asked for hides none of it, and all of them are asked for at once.
    tables = [joined(tmp_path, ROOMS), str(tmp_path / "one.yaml")]
    (tmp_path / "one.yaml").write_text((tmp_path / "joined.yaml").read_text().replace("plant.Rooms", "shops"))
    done = cli("pipeline", "check", files["nowhere"], *tables)
    assert done.code == 2
    for part in ("nowhere.yaml cannot be read", "the table plant.Rooms has", "the table shops has"):
        assert part in done.err, done.err


@pytest.mark.parametrize("name", ["plant.Rooms", "plant_rooms"])
def test_a_check_takes_a_table_of_a_database_by_its_name(cli: Cli, tmp_path: Path, name: str) -> None:
    # What is looked at next is wrong, so that Spark need not be asked.
    given = ("--table", f"{name}=id INT", "--model", "fans=DOUBLE")
    done = cli("pipeline", "check", joined(tmp_path, ROOMS), *given)
    assert (done.code, "model_fans()" in done.err) == (2, True), done.err


def test_the_address_of_sparks_pages_is_printed(api: str, cli: Cli, shop: Path) -> None:
    assert cli("apply", "-f", str(shop)).code == 0
    away = cli("pipeline", "ui", "hot")
    assert (away.code, "the host of pipelines does not answer" in away.err) == (4, True)


def test_a_pipeline_is_tested_with_rows(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "hot.yaml"
    file.write_text(HOT)
    done = cli("pipeline", "test", str(file), "rows.yaml", str(file))
    assert (done.code, f"expected FILE ROWS, and further such pairs, got {file} alone" in done.err) == (2, True), (
        done.err
    )
