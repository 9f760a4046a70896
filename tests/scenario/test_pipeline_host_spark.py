"""A pipeline from its declaration to rows in a table, as ``enmasse up`` runs it with Spark."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from enmasse.client.blocking import Message, TlsOptions, connect
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


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Installation]:
    """An installation that ends with its pipelines: one that others use would start their runner again."""
    found = Installation(tmp_path / "data")
    try:
        found.start()
        yield found
    finally:
        if found.is_running:
            found.stop()


def test_rows_reach_a_table_by_certificate_over_the_death_of_the_runner_and_the_host(
    own: Installation, tmp_path: Path
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(MANIFEST)
    own.ok("apply", "-f", str(path))
    own.ok("certificate", "issue", "keeper.example.com", "--directory", str(tmp_path), "--data", str(own.data))
    rights = ("--certificate", "keeper.example.com", "--send", "telemetry", "--recv", "telemetry")
    own.ok("create", "user", "keeper", "--space", "shop", *rights)
    files = {entry: tmp_path / f"keeper.example.com.{entry[4:]}" for entry in ("tls.crt", "tls.key")}
    entries = {entry: file.read_text() for entry, file in files.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keeper"}, "stringData": entries}
    path.write_text(json.dumps(secret))
    own.ok("apply", "-f", str(path))
    shown = TlsOptions(own.data / "tls" / "authority" / "ca.crt", files["tls.crt"], files["tls.key"])
    own.ok("status", "--wait", "150")
    http = httpx.Client(base_url=own.url("api"), headers=own.proof, trust_env=False, timeout=200)

    def send(numbers: range) -> None:
        with connect(own.url("amqps"), hostname="shop.default", tls=shown) as connection:
            sender = connection.sender("telemetry")
            for number in numbers:
                sender.send(Message(f"reading {number}", durable=True))

    def texts() -> list[str]:
        answer = http.post(f"{ROOT}/addressspaces/shop/query", json={"sql": "SELECT text FROM texts"})
        return sorted(row[0] for row in answer.json()["rows"]) if answer.status_code == 200 else []

    def status(name: str = "shop.keep") -> dict[str, Any]:
        found: dict[str, Any] = http.get(f"{ROOT}/pipelines/{name}").json().get("status", {})
        return found

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
        until(lambda: len(texts()) >= 20, status, seconds=LATE_S, step=0.3)
        assert texts() == sorted(f"reading {number}" for number in range(20))
        asked = {"sql": "SELECT count(*) AS n FROM telemetry", "credentialsSecret": "keeper"}
        assert http.post(f"{ROOT}/addressspaces/shop/query", json=asked).json()["rows"] == [[20]]
        log = http.get(f"{ROOT}/pipelines/shop.keep/log", params={"tail": 50})
        assert log.status_code == 200
        assert entries["tls.key"].splitlines()[1] not in log.text + str(status())
        path.write_text(PYTHON)
        own.ok("apply", "-f", str(path))
        found = until(lambda: status("shop.scored").get("conditions"), status, seconds=LATE_S, step=0.3)
        # The operator has shown a token: nothing but what separates spaces decides on Python.
        (rule,) = (item for item in found if item["type"] == "PythonAllowed")
        assert (rule["reason"], rule["status"]) in (("Separated", "True"), ("NotSeparated", "False"))
    assert own.stop() == 0
    assert runner_of(own.data) is None
    assert "BrokenPipe" not in own.log.read_text()
