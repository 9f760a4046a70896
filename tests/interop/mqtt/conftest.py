"""A broker of MQTT, which is our node, and foreign clients that speak to it.

With ``ENMASSE_TEST_MQTT_PEER=mosquitto`` the broker is Debian's Mosquitto: what fails there, too, is a fault of the
test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.interop.conftest import HERE as INTEROP
from tests.interop.conftest import TOOLS, Addresses
from tests.interop.mqtt.broker import Mosquitto
from tests.interop.mqtt.mosquitto_commands import MosquittoCommands
from tests.support.foreign_tools import require
from tests.support.mqtt_devices import Connect, Device, Foreign, Program
from tests.support.node_process import NodeProcess

IS_MOSQUITTO = os.environ.get("ENMASSE_TEST_MQTT_PEER") == "mosquitto"


@dataclass
class Peer:
    """Whom clients speak to: every topic is there, and nobody needs a password.

    Attributes:
        port: where it speaks MQTT.
        web_url: where it speaks MQTT over WebSocket.
    """

    port: int
    web_url: str


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node for the tests of this folder, in whose one space every topic is there."""
    with NodeProcess(tmp_path_factory.mktemp("mqtt-node")) as process:
        addresses = Addresses(process)
        addresses.make_space()
        addresses.declare("topic", "#")
        addresses.close()
        yield process
        assert "Traceback" not in process.log, process.log


@pytest.fixture(scope="session")
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    if IS_MOSQUITTO:
        with Mosquitto(tmp_path_factory.mktemp("mosquitto")) as broker:
            yield Peer(broker.port, f"ws://127.0.0.1:{broker.web_port}/mqtt")
    else:
        port = request.getfixturevalue("node").port
        yield Peer(port, f"ws://127.0.0.1:{port}/mqtt")


@pytest.fixture(scope="session")
def paho() -> Iterator[Foreign]:
    require("paho-mqtt")
    from tests.support.paho_devices import PahoClient

    client = PahoClient()
    yield client
    client.close()


@pytest.fixture(scope="session")
def aiomqtt() -> Iterator[Foreign]:
    require("aiomqtt", "paho-mqtt")
    from tests.interop.mqtt.aiomqtt_client import AiomqttClient

    client = AiomqttClient()
    yield client
    client.close()


@pytest.fixture(scope="session")
def mosquitto() -> Iterator[Foreign]:
    require("mosquitto_pub and mosquitto_sub")
    client = MosquittoCommands()
    yield client
    client.close()


@pytest.fixture(scope="session")
def mqttjs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    require("MQTT.js")
    program = Program(
        ["node", str(Path(__file__).parent / "mqttjs_client.js")],
        tmp_path_factory.mktemp("mqttjs") / "log",
        {**os.environ, "NODE_PATH": str(TOOLS / "node_modules")},
    )
    yield program
    program.close()


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The one Java of both clients."""
    require("a JDK", "Eclipse Paho and HiveMQ's client for Java")
    program = Program(
        ["java", "-cp", f"{TOOLS / 'java'}/*", str(INTEROP / "java" / "MqttClients.java")],
        tmp_path_factory.mktemp("java") / "log",
    )
    yield program
    program.close()


@pytest.fixture(scope="session")
def paho_java(java: Program) -> Foreign:
    return java.with_options(client="paho")


@pytest.fixture(scope="session")
def hivemq(java: Program) -> Foreign:
    return java.with_options(client="hivemq")


@pytest.fixture
def connect(peer: Peer) -> Iterator[Connect]:
    """Connects devices to the broker, and disconnects them."""
    devices: list[Device] = []

    def made(client: Foreign, version: int, **options: Any) -> Device:
        device = Device(client, peer.port, version, **options)
        devices.append(device)
        return device

    yield made
    for device in devices:
        device.disconnect()
