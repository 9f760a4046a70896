"""A pipeline from its declaration to rows in a table, as ``enmasse up`` runs it with Spark."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from deltalake import DeltaTable

from enmasse.client.blocking import Message, TlsOptions, connect
from tests.support.chance import kills
from tests.support.installation import Installation
from tests.support.polling import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.usefixtures("needs_spark"),
    pytest.mark.timeout(600),  # Spark starts twice
]

ROOT = "/apis/enmasse.io/v1beta1/namespaces/default"
LATE_S = 240.0

MANIFEST = """
apiVersion: enmasse.io/v1beta1
kind: AddressSpace
metadata: {name: shop}
spec: {type: standard, authenticationService: {name: standard}}
---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: shop.telemetry}
spec: {address: telemetry, type: stream}
---
apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {name: shop.keep}
spec:
  credentialsSecret: keeper
  sources: [{name: rows, address: telemetry}]
  steps: [{name: texts, sql: "SELECT CAST(value AS STRING) AS text FROM rows"}]
  sinks: [{input: texts, table: texts}]
"""
PYTHON = """
apiVersion: enmasse.io/v1beta1
kind: AddressSpace
metadata: {name: other}
spec: {type: standard}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: scoring}
data: {scoring.py: "def score(frames): return frames"}
---
apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {name: shop.scored}
spec:
  sources: [{name: rows, address: telemetry}]
  steps: [{name: scored, function: "scoring:score", schema: "text STRING"}]
  sinks: [{input: scored, table: scored}]
  code: {configMap: scoring}
"""


LOADED = (
    """
apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {name: shop.loaded}
spec:
  credentialsSecret: keeper
  trigger: 100ms
  sources: [{name: rows, address: numbers, maxRowsPerBatch: 50}]
  steps:
  - {name: found, sql: "SELECT CAST(CAST(value AS STRING) AS INT) AS n FROM rows"}
  - {name: latest, sql: "SELECT n % 7 AS k, n FROM found"}
  sinks:
  - {input: found, table: found}
  - {input: found, address: copied}
  - {input: found, address: tasks}
  - {input: latest, table: latest, mode: update, keys: [k], orderBy: n}
---
apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {name: shop.worked}
spec:
  credentialsSecret: keeper
  trigger: 100ms
  sources: [{name: rows, address: work}]
  steps: [{name: found, sql: "SELECT CAST(CAST(value AS STRING) AS INT) AS n FROM rows"}]
  sinks: [{input: found, table: worked}, {input: found, address: done}]
---
apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {name: shop.posted}
spec:
  credentialsSecret: keeper
  sources: [{name: rows, address: telemetry}]
  steps: [{name: texts, sql: "SELECT CAST(value AS STRING) AS text FROM rows"}]
  sinks: [{input: texts, address: posted}]
---
apiVersion: enmasse.io/v1beta1
kind: Webhook
metadata: {name: shop.hook}
spec: {address: posted, url: "http://127.0.0.1:9/", paused: true}
"""
    + "".join(
        f"""---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {{name: shop.{name}}}
spec: {{address: {name}, type: {kind}}}
"""
        for name, kind in {
            "numbers": "stream", "copied": "stream", "tasks": "queue", "work": "queue", "done": "stream",
            "posted": "queue",
        }.items()
    )
)  # fmt: skip


def runner_of(data: Path) -> int | None:
    """The process that runs the space's pipelines."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "run" in words and str(data / "pipelines" / "default.shop") in words and "--parent" not in words:
            return int(folder.name)
    return None


class Shop:
    """An installation with the space ``shop``, whose user is known by a certificate."""

    def __init__(self, installation: Installation, folder: Path, files: dict[str, Path]) -> None:
        self.installation = installation
        self.folder = folder
        self.files = files
        self._login = TlsOptions(folder / "ca.crt", files["tls.crt"], files["tls.key"])

    def apply(self, manifest: str) -> None:
        path = self.folder / "manifest.yaml"
        path.write_text(manifest)
        self.installation.ok("apply", "-f", str(path))

    def http(self) -> httpx.Client:
        own = self.installation
        return httpx.Client(base_url=own.url("api"), headers=own.proof, trust_env=False, timeout=200)

    @contextmanager
    def sender(self, address: str) -> Iterator[Callable[[str], object]]:
        where = self.installation.url("amqps")
        with connect(where, hostname="shop.default", tls=self._login) as connection:
            sender = connection.sender(address)
            yield lambda text: sender.send(Message(text, durable=True))

    def status(self, name: str) -> dict[str, Any]:
        with self.http() as http:
            found: dict[str, Any] = http.get(f"{ROOT}/pipelines/{name}").json().get("status", {})
            return found

    def ask(self, sql: str) -> list[Any]:
        """The first column of an answer; nothing while there is none."""
        asked = {"sql": sql, "credentialsSecret": "keeper", "limit": 10_000}
        with self.http() as http:
            answer = http.post(f"{ROOT}/addressspaces/shop/query", json=asked)
        return [row[0] for row in answer.json()["rows"]] if answer.status_code == 200 else []

    def kept(self, table: str) -> list[int]:
        """The numbers of a table, read without Spark, which works half a second for each question."""
        lake = self.installation.data / "pipelines" / "default.shop" / "lake"
        found: list[int] = DeltaTable(lake / table).to_pyarrow_table(columns=["n"])["n"].to_pylist()
        return found

    def numbers(self, address: str) -> list[int]:
        """What an address holds: numbers, or JSON with one."""
        texts = self.ask(f"SELECT CAST(value AS STRING) FROM {address}")
        return sorted(int(re.sub(r"\D", "", text)) for text in texts)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """An installation that ends with its pipelines: one that others use would start their runner again."""
    folder = tmp_path_factory.mktemp("shop")
    own = Installation(folder / "data")
    try:
        own.start()
        (folder / "shop.yaml").write_text(MANIFEST)
        own.ok("apply", "-f", str(folder / "shop.yaml"))
        own.ok("certificate", "issue", "keeper.example.com", "--directory", str(folder), "--data", str(own.data))
        rights = ("--certificate", "keeper.example.com", "--send", "*", "--recv", "*")
        own.ok("create", "user", "keeper", "--space", "shop", *rights)
        files = {entry: folder / f"keeper.example.com.{entry[4:]}" for entry in ("tls.crt", "tls.key")}
        entries = {entry: file.read_text() for entry, file in files.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keeper"}, "stringData": entries}
        found = Shop(own, folder, files)
        found.apply(json.dumps(secret))
        (folder / "ca.crt").write_bytes((own.data / "tls" / "authority" / "ca.crt").read_bytes())
        own.ok("status", "--wait", "150")
        yield found
    finally:
        if own.is_running:
            own.stop()


def test_rows_reach_a_table_by_certificate_over_the_death_of_the_runner_and_the_host(shop: Shop) -> None:
    own, key = shop.installation, (shop.folder / "keeper.example.com.key").read_text()
    http = shop.http()

    def send(numbers: range) -> None:
        with shop.sender("telemetry") as put:
            for number in numbers:
                put(f"reading {number}")

    def texts() -> list[str]:
        answer = http.post(f"{ROOT}/addressspaces/shop/query", json={"sql": "SELECT text FROM texts"})
        return sorted(row[0] for row in answer.json()["rows"]) if answer.status_code == 200 else []

    def status(name: str = "shop.keep") -> dict[str, Any]:
        return shop.status(name)

    with http:
        send(range(10))
        until(
            lambda: status().get("phase") == "Running" and status().get("rows") == 10,
            status,
            seconds=LATE_S,
            step=0.3,
        )
        assert len(texts()) == 10
        os.kill(until(lambda: runner_of(own.data), status, seconds=LATE_S, step=0.3), signal.SIGKILL)
        host = own.pid("pipelines")
        os.kill(host, signal.SIGKILL)
        until(lambda: own.pid("pipelines") != host, own.endpoints, seconds=LATE_S, step=0.3)
        send(range(10, 20))
        until(lambda: len(texts()) >= 20, status, seconds=LATE_S, step=1)
        assert texts() == sorted(f"reading {number}" for number in range(20))
        asked = {"sql": "SELECT count(*) AS n FROM telemetry", "credentialsSecret": "keeper"}
        assert http.post(f"{ROOT}/addressspaces/shop/query", json=asked).json()["rows"] == [[20]]
        log = http.get(f"{ROOT}/pipelines/shop.keep/log", params={"tail": 50})
        assert log.status_code == 200
        assert key.splitlines()[1] not in log.text + str(status())
        shop.apply(PYTHON)
        found = until(lambda: status("shop.scored").get("conditions"), status, seconds=LATE_S, step=0.3)
        # The operator has shown a token: nothing but what separates spaces decides on Python.
        (rule,) = (item for item in found if item["type"] == "PythonAllowed")
        assert (rule["reason"], rule["status"]) in (("Separated", "True"), ("NotSeparated", "False"))


@pytest.mark.chance
def test_a_backup_of_what_runs_has_each_row_once(shop: Shop, tmp_path: Path) -> None:
    own = shop.installation
    shop.apply(LOADED)
    own.ok("status", "--wait", "150")
    sent: dict[str, int] = {}
    is_over = threading.Event()

    def produce(address: str) -> None:
        with shop.sender(address) as put:
            # At a pace that a busy machine keeps: all of it is worked off after the restore.
            for number in count():
                if is_over.wait(0.02):
                    return
                put(str(number))
                sent[address] = number + 1

    def rows(table: str) -> int:
        log = own.data / "pipelines" / "default.shop" / "lake" / table / "_delta_log"
        return len(list(log.glob("*.json")))

    def has_gone_on() -> Callable[[], bool]:
        tables = ("found", "latest", "worked")
        before = {table: rows(table) for table in tables}
        return lambda: all(rows(table) > before[table] + 1 for table in tables)

    producers = [threading.Thread(target=produce, args=(address,)) for address in ("numbers", "work")]
    copies = []
    try:
        for thread in producers:
            thread.start()
        for number in range(min(kills(1), 5)):  # each is restored, with a Spark of its own
            until(has_gone_on(), lambda: shop.status("shop.loaded"), seconds=LATE_S, step=0.3)
            before = dict(sent)
            told = own.ok("backup", str(tmp_path / f"copy{number}"))
            assert "holds of the pipelines of default.shop" in told
            assert "leaves out what pipelines have written to address posted, which a webhook posts to a URL" in told
            copies.append(before)
        until(has_gone_on(), lambda: shop.status("shop.loaded"), seconds=LATE_S, step=0.3)
    finally:
        is_over.set()
        for thread in producers:
            thread.join()
    assert own.stop() == 0
    assert runner_of(own.data) is None
    assert "BrokenPipe" not in own.log.read_text()
    for number, before in enumerate(copies):
        again = Installation(tmp_path / f"again{number}")
        assert "restart shop.posted --namespace default --from WHERE" in again.ok(
            "restore", str(tmp_path / f"copy{number}")
        )
        try:
            again.start()
            _check_each_row(Shop(again, shop.folder, shop.files), before)
        finally:
            again.stop()


def _check_each_row(shop: Shop, before: dict[str, int]) -> None:
    """See that all that had been taken is there once, in streams, queues and tables."""
    until(
        lambda: shop.status("shop.worked").get("phase") == "Running",
        lambda: shop.status("shop.worked"),
        seconds=LATE_S,
        step=0.3,
    )
    taken = shop.numbers("numbers")
    assert taken == list(range(len(taken)))
    assert len(taken) >= before["numbers"]
    until(lambda: len(shop.kept("found")) >= len(taken), lambda: shop.status("shop.loaded"), seconds=LATE_S, step=0.3)
    until(lambda: not shop.numbers("work"), lambda: shop.status("shop.worked"), seconds=LATE_S, step=1)
    until(lambda: len(shop.numbers("copied")) >= len(taken) <= len(shop.numbers("tasks")), seconds=LATE_S, step=1)
    assert sorted(shop.ask("SELECT n FROM found")) == taken
    assert shop.numbers("copied") == taken
    assert shop.numbers("tasks") == taken
    until(lambda: max(shop.kept("latest")) == taken[-1], seconds=LATE_S, step=0.3)
    assert sorted(shop.ask("SELECT n FROM latest")) == taken[-7:]
    worked = sorted(shop.ask("SELECT n FROM worked"))
    assert worked == list(range(len(worked)))
    assert len(worked) >= before["work"]
    until(lambda: len(shop.numbers("done")) >= len(worked), seconds=LATE_S, step=1)
    assert shop.numbers("done") == worked
    # What is posted elsewhere may be ahead.
    found = shop.status("shop.posted")
    assert found["phase"] == "Failed"
    assert any(item["reason"] == "RestoredBehindSink" for item in found["conditions"])
    shop.installation.ok("pipeline", "restart", "posted", "--space", "shop", "--from", "latest")
    until(lambda: shop.status("shop.posted")["phase"] == "Running", seconds=LATE_S, step=0.3)
    assert not (shop.installation.data / "pipelines" / "restored.json").read_text().count("uid")
