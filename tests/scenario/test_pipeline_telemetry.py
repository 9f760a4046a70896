"""The telemetry job under kills: what the stream accepted is in the table, each message once."""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from enmasse.client.blocking import Message
from enmasse.errors import EnmasseError
from enmasse.messaging.frame import Frame
from enmasse.pipeline.__main__ import main, telemetry_command
from enmasse.pipeline.errors import TableMismatchError
from enmasse.pipeline.frames_client import StreamConnection
from enmasse.pipeline.options import SourceOptions
from enmasse.pipeline.supervise import Supervisor
from enmasse.pipeline.tables import BatchTable
from enmasse.pipeline.telemetry import readings_of, windows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .conftest import StreamNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

KILLS = int(os.environ.get("ENMASSE_TEST_KILLS", "1"))


class Devices(threading.Thread):
    """Five devices that send until stopped; one of them runs hot."""

    def __init__(self, node: StreamNode) -> None:
        super().__init__()
        self._node = node
        self._stop_asked = threading.Event()
        self.accepted: list[bytes] = []

    def run(self) -> None:
        number = 0
        while not self._stop_asked.is_set():
            try:
                with self._node.connect() as connection:
                    sender = connection.sender("telemetry")
                    while not self._stop_asked.is_set():
                        batch = [self._body(number + n) for n in range(10)]
                        number += 10
                        messages = [Message(body, subject=f"device-{n % 5}") for n, body in enumerate(batch)]
                        outcomes = sender.send_all(messages, timeout=20)
                        answered = zip(batch, outcomes, strict=True)
                        self.accepted += [body for body, outcome in answered if str(outcome) == "accepted"]
                        time.sleep(0.05)
            except EnmasseError:
                time.sleep(0.1)

    @staticmethod
    def _body(number: int) -> bytes:
        if number % 50 == 49:
            return b"not telemetry %d" % number
        device = number % 5
        temperature = 50.0 if device == 4 else 20.0 + device
        return json.dumps(
            {"device": f"device-{device}", "n": number, "temperature": temperature, "ts": int(time.time() * 1000)}
        ).encode()

    def finish(self) -> None:
        self._stop_asked.set()
        self.join()


class Job:
    """The supervised job, and what it said."""

    def __init__(self, node: StreamNode, folder: Path) -> None:
        self.tables = folder / "tables"
        words = ["--url", node.url, "--address", "telemetry", "--alerts", "alerts", "--quick"]
        words += ["--out", str(self.tables), "--checkpoint", str(folder / "checkpoint")]
        words += [
            "--work",
            str(folder / "work"),
            "--live-trigger",
            "0.5",
            "--table-trigger",
            "0.5",
            "--windows-trigger",
            "1",
            "--window",
            "2",
            "--lateness",
            "2",
        ]
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.supervisor = Supervisor(telemetry_command(words), folder / "work" / "driver.log", self._events.put)

    def until(self, name: str, **fields: Any) -> dict[str, Any]:
        while True:
            event = self._events.get(timeout=120)
            if event["event"] == name and fields.items() <= event.items():
                return event

    def kill_driver(self) -> None:
        pid = self.supervisor.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self.until("ended", status=-signal.SIGKILL)


def stored(node: StreamNode) -> list[tuple[int, int, bytes]]:
    """Every message that the stream holds, by the node's account."""
    found = []
    stream = StreamConnection(node.url, SourceOptions.parse({"url": node.url, "address": "telemetry"}))
    for number, partition in stream.state().partitions.items():
        for data in stream.frames(number, partition.low, partition.next):
            frame = Frame(data)
            bodies = frame.cells(frame.bodies)
            found += [(number, frame.first_offset + n, body) for n, body in enumerate(bodies)]
    stream.close()
    return sorted(found)


def raw_rows(tables: Path) -> list[tuple[int, int, bytes]]:
    raw = pd.read_parquet(tables / "raw", columns=["partition", "offset", "value"])
    return sorted(zip(raw["partition"], raw["offset"], raw["value"], strict=True))


def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.2)


@pytest.mark.timeout(600)
def test_the_raw_table_holds_every_message_once_however_often_driver_and_node_are_killed(
    needs_spark: None, stream_node: StreamNode, tmp_path: Path
) -> None:
    stream_node.create("telemetry")
    stream_node.create("alerts", "topic")
    job = Job(stream_node, tmp_path / "job")
    devices = Devices(stream_node)
    with stream_node.connect() as connection:
        alerts = connection.receiver("alerts")
        devices.start()
        job.supervisor.start()
        moment = random.Random(4)
        try:
            for kill in range(KILLS):
                job.until("table", table="raw")
                # Anywhere in the next batches, whatever they are about to write.
                time.sleep(moment.uniform(0.0, 1.5))
                if kill == 0:
                    stream_node.kill()
                    stream_node.start()
                    job.until("table", table="raw")
                job.kill_driver()
            job.until("alert", device="device-4")
            job.until("table", table="windows")
            devices.finish()
            until(lambda: len(raw_rows(job.tables)) >= len(stored(stream_node)))
        finally:
            devices.finish()
            job.supervisor.stop()
        heard = []
        while (delivery := alerts.receive(timeout=2)) is not None:
            heard.append(delivery.message)
    in_stream, in_table = stored(stream_node), raw_rows(job.tables)
    assert in_table == in_stream
    assert Counter(devices.accepted) <= Counter(value for _, _, value in in_table)
    windows = pd.read_parquet(job.tables / "windows")
    assert not windows.duplicated(["window_start", "device", "metric"]).any()
    assert heard
    assert {message.subject for message in heard} == {"device-4"}
    assert all(json.loads(message.body)["id"] == message.message_id for message in heard)


READINGS = [
    (b"", {"device": "a", "temperature": 20, "ts": 1_700_000_000_000}, {("a", "temperature", 20.0, 0)}),
    (b"", {"device": "a", "temperature": "21.5", "ts": "2023-11-14T22:13:20Z"}, {("a", "temperature", 21.5, 0)}),
    (b"", {"device": "a", "temperature": 1, "ts": 1_699_999_999}, {("a", "temperature", 1.0, -1)}),
    (b"k", {"temperature": 22, "load": 0.5}, {("k", "temperature", 22.0, 60), ("k", "load", 0.5, 60)}),
    (b"k", {"device": "", "t": 1, "ts": 4_000_000_000_000}, {("k", "t", 1.0, 60)}),
    (b"k", {"device": "a", "t": 1, "ts": "yesterday"}, {("a", "t", 1.0, 60)}),
    (b"", {"temperature": 20}, set()),
    (b"k", {"device": "a", "text": "x", "flag": True, "none": None, "map": {"x": 1}, "list": [1]}, set()),
    (b"k", '{"device": "a", "t": NaN, "u": 1e999, "ts": 1700000000000}', set()),
    (b"k", '{"device": "a", "t": 1, "t": 2, "ts": 1700000000000}', {("a", "t", 1.0, 0), ("a", "t", 2.0, 0)}),
    (b"k", '{"device": "a", "t": 1', None),
    (b"k", "[1, 2]", set()),
    (b"k", "", set()),
    (b"k", "\ud800", set()),
]


def test_only_telemetry_becomes_readings(spark: SparkSession) -> None:
    accepted = datetime.fromtimestamp(1_700_000_060, UTC)
    rows = []
    for key, value, _ in READINGS:
        text = value if isinstance(value, str) else json.dumps(value)
        rows.append((accepted, key, text.encode(errors="surrogatepass")))
    frame = spark.createDataFrame(rows, "timestamp TIMESTAMP, key BINARY, value BINARY")
    found = readings_of(frame).selectExpr("device", "metric", "value", "unix_seconds(time) - 1700000000 AS at")
    expected = set().union(*[readings for _, _, readings in READINGS if readings is not None])
    assert {tuple(row) for row in found.collect()} == expected


def test_windows_hold_statistics(spark: SparkSession) -> None:
    rows = [(f"d{n % 2}", "t", float(n), datetime.fromtimestamp(1_700_000_000 + n, UTC)) for n in range(20)]
    frame = spark.createDataFrame(rows, "device STRING, metric STRING, value DOUBLE, time TIMESTAMP")
    found = {
        (row["device"], int(row["at"])): row
        for row in windows_of(frame, 10, 10).selectExpr("*", "unix_seconds(window_start) AS at").collect()
    }
    assert len(found) == 4
    row = found["d1", 1_700_000_000]
    assert (row["count"], row["mean"], row["min"], row["max"]) == (5, 5.0, 1.0, 9.0)
    assert row["stddev"] == pytest.approx(3.1623, abs=1e-3)


def test_a_batch_is_added_whole_and_once(spark: SparkSession, tmp_path: Path) -> None:
    table = BatchTable(tmp_path / "t", tmp_path / "_staging")
    assert table.add(spark.range(5).toDF("n"), 0, "q1") == 5
    assert table.add(spark.range(99).toDF("n"), 0, "q1") == 0
    assert table.add(spark.range(0).toDF("n"), 1, "q1") == 0
    assert table.add(spark.range(5, 8).toDF("n"), 2, "q1") == 3
    assert sorted(pd.read_parquet(table.path)["n"]) == list(range(8))
    assert sorted(row["n"] for row in spark.read.parquet(str(table.path)).collect()) == list(range(8))


def test_what_an_interrupted_attempt_left_is_not_in_the_table(spark: SparkSession, tmp_path: Path) -> None:
    table = BatchTable(tmp_path / "t", tmp_path / "_staging")
    left = tmp_path / "_staging" / "t" / "batch=0"
    spark.range(50).toDF("n").write.parquet(str(left))
    assert table.add(spark.range(5).toDF("n"), 0, "q1") == 5
    assert sorted(pd.read_parquet(table.path)["n"]) == list(range(5))


def test_a_table_refuses_another_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    table = BatchTable(tmp_path / "t", tmp_path / "_staging")
    checkpoint = tmp_path / "checkpoint"
    table.check_owner(checkpoint)
    table.add(spark.range(1).toDF("n"), 0, "q1")
    with pytest.raises(TableMismatchError, match="checkpoint"):
        table.check_owner(checkpoint)
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id": "q1"}')
    table.check_owner(checkpoint)


def test_without_java_the_job_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    words = ["telemetry", "--url", "amqp://h", "--address", "t", "--out", "o", "--checkpoint", "c"]
    assert main(words) == 2
    assert "apt-get install" in capsys.readouterr().err
