"""Devices publish by MQTT into a stream, Spark reads it, and what it finds comes back to a device by MQTT."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from enmasse.pipeline.builtin import anomalies
from enmasse.pipeline.running.planning.plans import Place
from tests.scenario.builtin_stage import Stage, body
from tests.support.foreign_tools import require
from tests.support.mqtt_devices import Device

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.stream_node import StreamNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


@pytest.fixture
def stage(spark: SparkSession, stream_node: StreamNode, tmp_path: Path) -> Iterator[Stage]:
    stream_node.create("telemetry")
    yield Stage(spark, Place(stream_node.url, "", tmp_path / "default.demo"))
    for query in spark.streams.active:
        query.stop()


def test_an_alert_comes_back_to_a_device(stage: Stage, stream_node: StreamNode) -> None:
    require("paho-mqtt")
    from tests.support.paho_devices import PahoClient

    stream_node.create("alerts", "topic")
    paho = PahoClient()
    devices = [Device(paho, stream_node.port, version, client_id=f"gauge-{version}") for version in (4, 5)]
    display = Device(paho, stream_node.port, 5, client_id="display")
    assert display.subscribe("alerts", 1) == 1
    for device in devices:
        # With QoS 1 and 2: each is in the stream once it is acknowledged.
        for qos, temperature in ((1, 20.0), (2, 36.5), (1, 21.0)):
            measured = body(device.client_id, time.time(), temperature=temperature)
            assert device.publish("telemetry", measured, qos=qos) == [0]
    plans = anomalies.build(stage, {"address": "telemetry", "alerts": "alerts", "bands": {"temperature": "10:35"}})
    stage.finish(plans, "alerts")
    told = [json.loads(message.payload) for message in display.receive(4)]
    for device in devices:
        assert [(one["state"], one["value"]) for one in told if one["device"] == device.client_id] == [
            ("raised", 36.5),
            ("cleared", 21.0),
        ]
    for device in (*devices, display):
        device.disconnect()
    paho.close()
