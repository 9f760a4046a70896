"""Foreign clients of every protocol at one address: each sends, hears the outcome, receives and acknowledges."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.interop.conftest import Rhea
from tests.support.foreign_tools import require

__all__ = ["CLIENTS", "qpid_jms"]

COUNT = 20
"""Messages of each client."""

Play = Callable[[int, str, Path], None]
"""A client at work: the port of a node with the space ``default/demo``, the address, and a directory of its own."""


def bodies_of(name: str) -> list[str]:
    """The messages of a client, which are nobody else's."""
    return [f"{name} {number}" for number in range(COUNT)]


def proton(port: int, address: str, _directory: Path) -> None:
    require("python-qpid-proton")
    from proton import Delivery, Message
    from proton.utils import BlockingConnection

    bodies = bodies_of("proton")
    connection: Any = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=60)
    try:
        sender = connection.create_sender(address)
        told = [sender.send(Message(body=body, durable=True)).remote_state for body in bodies]
        assert told == [Delivery.ACCEPTED] * COUNT
        receiver = connection.create_receiver(address, credit=5)
        # What is released is there again, and comes first or last.
        assert receiver.receive(timeout=60).body == bodies[0]
        receiver.release(delivered=False)
        found = []
        for _ in bodies:
            found.append(receiver.receive(timeout=60).body)
            receiver.accept()
        assert sorted(found) == sorted(bodies)
    finally:
        connection.close()


def rhea(port: int, address: str, _directory: Path) -> None:
    require("rhea")
    bodies = bodies_of("rhea")
    process = Rhea()
    try:
        messages = [{"body": body, "durable": True} for body in bodies]
        report = process.play(port=port, scenario="exchange", source=address, messages=messages)
    finally:
        process.close()
    assert [message["body"] for message in report["received"]] == bodies
    assert [outcome for _, outcome, _ in report["outcomes"]] == ["accepted"] * COUNT


def paho(port: int, address: str, _directory: Path) -> None:
    require("paho-mqtt")
    from tests.support.mqtt_devices import Device
    from tests.support.paho_devices import PahoClient

    bodies = [body.encode() for body in bodies_of("paho")]
    client = PahoClient()
    for version in (4, 5):
        device = Device(client, port, version)
        assert device.publish(address, *bodies, qos=1) == [0] * COUNT
        assert device.subscribe(address, qos=1) == 1
        assert device.receive_bodies(COUNT) == bodies
        device.disconnect()
    client.close()


def stomp(port: int, address: str, _directory: Path) -> None:
    from tests.interop.test_interop_stomp import Client

    bodies = bodies_of("stomp.py")
    client = Client(port, vhost="demo.default").connect()
    try:
        for body in bodies:
            client.send(address, body, receipt=body)
            assert client.told.next("receipt").headers["receipt-id"] == body
        client.subscribe(address, ack="client-individual")
        found = client.told.messages(COUNT)
        assert [frame.body for frame in found] == bodies
        for frame in found:
            client.connection.ack(frame.headers["ack"], receipt=frame.body)
            client.told.next("receipt")
    finally:
        client.close()


def curl(port: int, address: str, _directory: Path) -> None:
    require("curl")
    base = f"http://127.0.0.1:{port}/v1/spaces/demo.default/addresses/{quote(address, safe='')}"
    bodies = bodies_of("curl")[:3]

    def ask(path: str, data: str, kind: str = "text/plain") -> Any:
        command = ["curl", "--silent", "--max-time", "60", "--noproxy", "*", "-H", f"content-type: {kind}"]
        done = subprocess.run(
            [*command, "--data", data, f"{base}/{path}"], capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    for body in bodies:
        assert ask("messages", body)["outcome"] == "accepted"
    found: list[Any] = []
    while len(found) < len(bodies):
        found += ask("receive?wait=30", "")["messages"]
    assert [message["body"] for message in found] == bodies
    settled = ask("settle", json.dumps({"leases": [message["lease"] for message in found]}), "application/json")
    assert settled["settled"] == len(bodies), settled


def qpid_jms(port: int, address: str, directory: Path, scenarios: Sequence[str] = ("completions", "many")) -> None:
    from tests.interop.test_interop_java import Program

    program = Program("JmsClient.java", directory / "jms.log")
    try:
        reports = program.play(f"amqp://127.0.0.1:{port}", "", "", *(f"{name}={address}" for name in scenarios))
    finally:
        program.close()
    assert reports == dict.fromkeys(scenarios, "ok"), (directory / "jms.log").read_text()


CLIENTS: dict[str, Play] = {
    "proton": proton,
    "rhea": rhea,
    "Qpid JMS": qpid_jms,
    "paho": paho,
    "stomp.py": stomp,
    "curl": curl,
}
