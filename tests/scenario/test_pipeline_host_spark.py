"""A pipeline from its declaration to rows in a table, as ``enmasse up`` runs it with Spark."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from enmasse.client.blocking import Message, connect

if TYPE_CHECKING:
    from tests.scenario.conftest import Installation

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
spec: {type: standard}
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


def until(found: Callable[[], Any], what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + LATE_S
    while not (value := found()):
        assert time.monotonic() < deadline, what()
        time.sleep(0.5)
    return value


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


def test_rows_reach_a_table_over_the_death_of_the_runner_and_the_host(own: Installation, tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(MANIFEST)
    own.ok("apply", "-f", str(path))
    own.ok("status", "--wait", "60")
    http = httpx.Client(base_url=own.url("api"), trust_env=False, timeout=200)

    def send(numbers: range) -> None:
        with connect(own.url("amqp"), hostname="shop.default") as connection:
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
        until(lambda: len(texts()) == 10, status)
        until(lambda: status().get("phase") == "Running" and status().get("rows") == 10, status)
        os.kill(until(lambda: runner_of(own.data), status), signal.SIGKILL)
        host = own.pid("pipelines")
        os.kill(host, signal.SIGKILL)
        until(lambda: own.pid("pipelines") != host, own.endpoints)
        send(range(10, 20))
        until(lambda: len(texts()) >= 20, status)
        assert texts() == sorted(f"reading {number}" for number in range(20))
        log = http.get(f"{ROOT}/pipelines/shop.keep/log", params={"tail": 50})
        assert log.status_code == 200
        path.write_text(PYTHON)
        own.ok("apply", "-f", str(path))
        found = until(lambda: status("shop.scored").get("messages") and status("shop.scored"), status)
        assert found["phase"] == "Failed"
        assert {"NotSeparated", "ApiOpen"} & {item["reason"] for item in found["conditions"]}
    assert own.stop() == 0
    assert runner_of(own.data) is None
    assert "BrokenPipe" not in own.log.read_text()
