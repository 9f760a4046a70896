"""How long from a device's message to the alert at whoever listens: stream, Spark, address, receiver.

    python -m benchmarks.spark_alert_latency [--rate 50] [--seconds 30] [--warm-up 120]
        [--pipeline anomalies]

It runs as a runner starts it with ``trigger: 1ms``, one batch after another: ``declared`` is JSON and a
condition, as a Pipeline says it in SQL; ``anomalies`` is built in and keeps a state for each device, which
takes a shuffle. While Java compiles what is used often, batches take several times as long: it is left a
while. One device sends at a steady rate; each reading crosses its band, so each gives an alert. A
message is due at its moment whether or not the one before was in time, and its latency counts from then.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.accounting import cpu_seconds, descendants
from benchmarks.spark_place import spark_beside_node
from enmasse.client.blocking import Message, connect
from enmasse.model.kinds.pipelines.sources import SourceSpec
from enmasse.pipeline.builtin import anomalies
from enmasse.pipeline.running.command import SETTINGS
from enmasse.pipeline.running.planning.context import RunningContext
from enmasse.pipeline.running.planning.plans import AddressFacts, AddressTarget, Place, QueryPlan
from enmasse.pipeline.running.planning.targets import start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from benchmarks.node import Node


class Alerts(threading.Thread):
    """Hears alerts; when each reading's was there."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.heard: dict[int, float] = {}
        self.stopping = threading.Event()

    def run(self) -> None:
        with connect(self._url) as connection, connection.receiver("alerts") as receiver:
            while not self.stopping.is_set():
                delivery = receiver.receive(timeout=0.5)
                if delivery is not None:
                    now = time.perf_counter()
                    delivery.accept()
                    self.heard[round(abs(json.loads(delivery.message.body)["value"]))] = now


def send(url: str, rate: float, count: int) -> dict[int, float]:
    """Readings that are above and below their band in turn; when each was due."""
    due: dict[int, float] = {}
    with connect(url) as connection:
        sender = connection.sender("telemetry")
        begin = time.perf_counter()
        for number in range(count):
            moment = begin + number / rate
            time.sleep(max(0.0, moment - time.perf_counter()))
            value = (1000 + number) * (1 if number % 2 else -1)
            due[1000 + number] = moment
            sender.send(Message(json.dumps({"device": "d", "temperature": value}).encode(), subject="d"))
    return due


def declared(scene: RunningContext) -> QueryPlan:
    """What a pipeline of one's own comes to."""
    source = {
        "name": "readings",
        "address": "telemetry",
        "format": "json",
        "schema": "device STRING, temperature DOUBLE",
    }
    readings = scene.read(SourceSpec.model_validate(source))
    alerts = readings.where("abs(temperature) > 35").selectExpr(
        "to_json(struct(device, temperature AS value)) AS value"
    )
    return QueryPlan("alerts", alerts, AddressTarget("alerts"))


def built_in(scene: RunningContext) -> QueryPlan:
    """Below its band is as it should be, so that every second reading is an alert and the others its end."""
    parameters = {"address": "telemetry", "alerts": "alerts", "bands": {"temperature": ":0"}}
    plan = anomalies.build(scene, parameters)[0]
    assert isinstance(plan, QueryPlan)
    return plan


def start(name: str, spark: SparkSession, node: Node, folder: Path) -> StreamingQuery:
    """The query of a pipeline, as its runner starts it."""
    scene = RunningContext(
        spark,
        Place(node.url, "", folder),
        f"bench.{name}",
        {"telemetry": AddressFacts("stream"), "alerts": AddressFacts("queue")},
        "",
        lambda query: folder / "checkpoints" / query,
        folder / "spool",
        print,
    )
    plan = {"declared": declared, "anomalies": built_in}[name](scene)
    return start_query(scene, plan, folder / "checkpoint", 0.0, adopt=False)


def measure(name: str, node: Node, query: StreamingQuery, options: argparse.Namespace) -> None:
    """Send, hear, and say how long it took."""
    alerts = Alerts(node.url)
    alerts.start()
    warm = round(options.rate * options.warm_up)
    count = warm + round(options.rate * options.seconds)
    before = cpu_seconds(descendants(os.getpid()))
    due = send(node.url, options.rate, count)
    deadline = time.monotonic() + 30
    while len(alerts.heard) < count - 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    cpu = cpu_seconds(descendants(os.getpid())) - before
    alerts.stopping.set()
    alerts.join()
    measured = sorted(alerts.heard[n] - due[n] for n in list(due)[warm:] if n in alerts.heard)
    batches = [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]]
    lost = count - warm - len(measured)
    quantiles = {q: measured[min(len(measured) - 1, int(len(measured) * q))] * 1000 for q in (0.5, 0.9, 0.99)}
    print(
        f"{name:10} {options.rate:g} msg/s  {len(measured)} alerts, {lost} not heard  "
        + "  ".join(f"p{q * 100:g} {value:.0f} ms" for q, value in quantiles.items())
        + f"  batches {sorted(batches)[len(batches) // 2]} ms  CPU {cpu / (count / options.rate):.2f} cores",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=50.0, help="messages a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--warm-up", type=float, default=120.0, help="seconds that are sent before, and left out")
    parser.add_argument("--pipeline", default="declared", choices=["declared", "anomalies"])
    options = parser.parse_args()
    with spark_beside_node(SETTINGS) as (spark, node, folder):
        node.declare("telemetry", addressType="stream", partitions=1)
        node.declare("alerts", addressType="queue")
        query = start(options.pipeline, spark, node, folder)
        measure(options.pipeline, node, query, options)
        query.stop()


if __name__ == "__main__":
    main()
