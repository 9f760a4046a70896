"""What the platform does for a space whose home is not the node that clients come to, nor the first one."""

from __future__ import annotations

import asyncio
import json
import queue
import shutil
import socket
import ssl
import subprocess
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

import httpx
import pytest

from enmasse.client.blocking import Connection, Message, connect
from enmasse.drivers.data_directory import Layout
from enmasse.wire.mqtt.packets import Reason, Version, Will
from tests.support.installation import Installation
from tests.support.mqtt_peer import MqttPeer
from tests.support.polling import until
from tests.support.stream_node import StreamNode

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

HOME = "node-1"
SEVERAL = 6
"""Connections that come one after the other: some of them to another node than the home."""
CORDON = {
    "apiVersion": "admin.enmasse.io/v1beta1",
    "kind": "MessagingNode",
    "metadata": {"name": "node-0"},
    "spec": {"unschedulable": True},
}
USER, PASSWORD = "app@farm.default", "of the application"
TENANT, DEVICE, SECRET = "default.barn", "sensor-1", "of the device"
BARN = """
apiVersion: iot.enmasse.io/v1alpha1
kind: IoTProject
metadata: {name: barn}
spec:
  downstreamStrategy:
    managedStrategy: {addressSpace: {name: farm}, addresses: {telemetry: {type: queue}}}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    found = Installation(tmp_path_factory.mktemp("services") / "d")
    networks = ("--webhook-network", "127.0.0.1/32", "--connector-network", "127.0.0.1/32")
    found.start("--nodes", "2", "--no-pipelines", *networks)
    try:
        found.ok("apply", "-f", "-", stdin=json.dumps(CORDON))
        found.ok("create", "space", "shop", "--wait", "60")
        for name, kind in {"orders": "queue", "others": "queue", "lamps": "topic"}.items():
            found.ok("create", "address", name, "--type", kind, "--space", "shop")
        found.ok("status", "--wait", "60")
        assert found.home("shop") == HOME
        yield found
    finally:
        code = found.stop() if found.is_running else 0
    assert code == 0


def at_shop(place: Installation, **options: Any) -> Connection:
    return connect(place.url("amqp"), hostname="shop.default.enmasse.local", **options)


def rows_at(place: Installation, node: str, kind: str) -> list[dict[str, Any]]:
    with connect(f"amqp+unix://{Layout(place.data).admin_socket(node)}") as admin:
        return [dict(row) for row in admin.management().query(f"io.enmasse.{kind}")]


@pytest.fixture(scope="module")
def barn(place: Installation) -> None:
    place.ok("apply", "-f", "-", stdin=BARN)
    place.ok("wait", "iotproject", "barn", "--for", "condition=Ready")
    place.ok("create", "user", "app", "--space", "farm", "--send", "#", "--recv", "#", stdin=PASSWORD)
    place.ok("iot", "device", "create", TENANT, DEVICE)
    place.ok("iot", "credentials", "create", TENANT, DEVICE, stdin=SECRET)
    assert place.home("farm") == HOME


def test_commands_reach_a_device_by_whichever_node_it_has_come(place: Installation, barn: None) -> None:
    port = urlsplit(place.url("mqtt")).port
    assert port is not None
    asked = ("iot", "command", "send", TENANT, "temperature", "--device", DEVICE, "--now", "--wait", "20")

    async def answered() -> str:
        options: dict[str, Any] = {"user_name": f"{DEVICE}@{TENANT}", "password": SECRET.encode()}
        async with MqttPeer(port, DEVICE, Version.V5, **options) as peer:
            await peer.subscribed("command///req/#", qos=1)
            asking = asyncio.create_task(asyncio.to_thread(place.ok, *asked))
            request = (await peer.message()).topic.split("/")[4]
            await peer.answer(f"command///res/{request}/200", b"18.5")
            await asyncio.to_thread(until, lambda: is_device_connected(place))
            return await asking

    for _ in range(SEVERAL):
        assert asyncio.run(answered()) == f"device {DEVICE} answers 200: 18.5\n"
    until(lambda: not is_device_connected(place))

    with connect(place.url("amqp"), user=USER, password=PASSWORD) as application, httpx.Client(timeout=60) as http:
        sender, events = application.sender(f"command/{TENANT}"), application.receiver(f"event/{TENANT}")
        for number in range(SEVERAL):
            command = Message(str(number), to=f"command/{TENANT}/{DEVICE}", subject="milk", ttl=60.0)
            command.properties["command-mode"] = "stored"
            assert str(sender.send(command)) == "accepted"
            url = f"{place.url('http')}/event?hono-ttd=20"
            told = http.post(
                url, content=b"anything?", auth=(f"{DEVICE}@{TENANT}", SECRET), headers={"connection": "close"}
            )
            assert (told.status_code, told.text) == (200, str(number))
            seen: set[str] = set()
            while not seen >= {"sent", "accepted"}:
                event = events.receive(30)
                assert event is not None
                event.accept()
                seen.add(json.loads(event.message.body)["state"] if event.message.body != b"anything?" else "sent")


def is_device_connected(place: Installation) -> bool:
    found = httpx.get(f"{place.url('registry')}/devices/{TENANT}/{DEVICE}", headers=place.proof).json()
    return bool(found["status"]["connected"])


def test_a_webhook_pushes_what_was_stored_at_the_home(place: Installation) -> None:
    heard: queue.Queue[bytes] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.put(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        hook = {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "Webhook",
            "metadata": {"name": "shop.hook"},
            "spec": {"address": "orders", "url": f"http://127.0.0.1:{server.server_address[1]}/"},
        }
        place.ok("apply", "-f", "-", stdin=json.dumps(hook))
        place.ok("wait", "webhook", "shop.hook")
        place.ok("send", "orders", "two loaves", "--space", "shop")
        assert heard.get(timeout=60) == b"two loaves"
        place.ok("delete", "webhook", "shop.hook")
        place.ok("wait", "webhook", "shop.hook", "--for", "delete")
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def mill(place: Installation, tmp_path: Path) -> Iterator[StreamNode]:
    """The other container of a connector of the space."""
    far = StreamNode(tmp_path / "far").start()
    try:
        far.create("orders", "queue")
        far.create("news", "topic")
        declare_connectors(
            place,
            [
                {
                    "name": "mill",
                    "endpointHosts": [{"host": "127.0.0.1", "port": far.port}],
                    "addresses": [{"name": "all", "pattern": "#"}],
                }
            ],
        )
        yield far
    finally:
        declare_connectors(place, [])
        far.stop()


def declare_connectors(place: Installation, connectors: list[dict[str, Any]]) -> None:
    space = {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "AddressSpace",
        "metadata": {"name": "shop"},
        "spec": {"connectors": connectors},
    }
    place.ok("apply", "-f", "-", stdin=json.dumps(space))
    place.ok("status", "--wait", "60")


def test_a_connector_is_dialled_by_the_home_alone(place: Installation, mill: StreamNode) -> None:
    steps = json.loads(place.ok("connector", "test", "mill", "--space", "shop", "--address", "orders", "-o", "json"))
    assert [item["succeeded"] for item in steps] == [True]
    clients = [at_shop(place) for _ in range(SEVERAL)]
    try:
        for client in clients:
            assert str(client.sender("mill/orders").send(Message("a loaf", durable=True))) == "accepted"
        states = {
            name: [
                item["connections"]
                for row in rows_at(place, name, "space")
                for item in row.get("connectorStatus") or ()
            ]
            for name in ("node-0", HOME)
        }
        assert states == {"node-0": [], HOME: [1]}
        for client in clients:
            transaction = client.transaction()
            with client.receiver("mill/orders", credit=1) as receiver, client.sender("mill/orders") as sender:
                got = receiver.receive(30)
                assert got is not None
                got.accept(transaction=transaction)
                sender.send(Message("a roll", durable=True), transaction=transaction)
                transaction.commit()
    finally:
        for client in clients:
            client.close()
    with at_shop(place) as client, client.receiver("mill/orders", credit=SEVERAL) as receiver:
        found = []
        for _ in range(SEVERAL):
            got = receiver.receive(30)
            assert got is not None
            got.accept()
            found.append(got.message.body)
    assert found == ["a roll"] * SEVERAL
    # A subscription there is the space's, by whichever node its client comes.
    for number in range(SEVERAL):
        with at_shop(place, container_id="reader") as client:
            receiver = client.receiver("mill/news", name="daily", durable=True)
            if number:
                got = receiver.receive(30)
                assert got is not None
                assert got.message.body == str(number)
                got.accept()
        with at_shop(place) as client:
            client.sender("mill/news").send(Message(str(number + 1), durable=True))


def test_retained_values_sessions_and_wills_are_those_of_the_home(place: Installation) -> None:
    port = urlsplit(place.url("mqtt")).port
    assert port is not None
    realm: dict[str, Any] = {"user_name": "@shop.default"}

    async def leave() -> None:
        for number in range(SEVERAL):
            async with MqttPeer(port, f"lamp-{number}", Version.V5, session_expiry_s=300, **realm) as peer:
                await peer.subscribed("lamps/none", qos=1)
                assert await peer.answer(f"lamps/{number}", b"on", retain=True) == Reason.NO_MATCHING_SUBSCRIBERS
                peer.leave()
                await peer.ended()
        will = Will("lamps/gone", b"bye", qos=1, delay_s=60)
        async with MqttPeer(port, "lamp-0", Version.V5, session_expiry_s=300, is_clean=False, will=will, **realm):
            assert [item["client"] for item in listed(place, "wills")] == ["lamp-0"]
            await asyncio.to_thread(place.ok, "delete", "session", "lamp-0", "--space", "shop")

    asyncio.run(leave())
    names = {f"lamp-{number}" for number in range(1, SEVERAL)}
    assert {item["name"] for item in listed(place, "sessions")} == names
    for name in names:
        place.ok("delete", "session", name, "--space", "shop")
    assert listed(place, "sessions") == []
    shown = place.ok("retained", "list", "--space", "shop")
    assert all(f"lamps/{number}" in shown for number in range(SEVERAL))
    assert place.ok("retained", "get", "lamps/3", "--space", "shop").strip() == "on"
    place.ok("retained", "clear", "#", "--space", "shop")
    assert "lamps" not in place.run("retained", "list", "--space", "shop").out


def listed(place: Installation, what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(place.ok("get", what, "--space", "shop", "-o", "json"))["items"]
    return found


def test_stored_messages_are_browsed_moved_and_purged_at_the_home(place: Installation) -> None:
    for number in range(3):
        place.ok("send", "orders", f"order {number}", "--durable", "--space", "shop")
    assert "order 1" in place.ok("address", "browse", "orders", "--space", "shop")
    place.ok("address", "move", "orders", "others", "--space", "shop")
    assert "order 2" in place.ok("address", "browse", "others", "--space", "shop")
    place.ok("address", "purge", "others", "--space", "shop")
    assert "order" not in place.run("address", "browse", "others", "--space", "shop").out


def test_expired_messages_are_sent_back_at_the_home(place: Installation) -> None:
    place.ok("create", "address", "missed", "--type", "deadletter", "--space", "shop")
    place.ok("create", "address", "doors", "--type", "queue", "--expiry", "missed", "--space", "shop")
    for number in range(3):
        place.ok("send", "doors", f"door {number}", "--durable", "--ttl", "0.2", "--space", "shop")
    until(lambda: place.run("address", "browse", "missed", "--space", "shop").out.count("door ") == 3)
    place.ok("address", "replay", "missed", "--space", "shop")
    back = place.ok("receive", "doors", "--count", "3", "--space", "shop")
    assert sorted(back.splitlines()) == [f"door {number}" for number in range(3)]
    assert "door" not in place.run("address", "browse", "missed", "--space", "shop").out


def test_each_node_shows_the_certificate_of_the_space_that_is_named(place: Installation, tmp_path: Path) -> None:
    own = "mq.shop.example"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9"]
    names = ["-subj", f"/CN={own}", "-addext", f"subjectAltName=DNS:{own}"]
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    subprocess.run([*make, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    space = json.loads(place.ok("get", "space", "shop", "-o", "json"))
    space["spec"]["endpoints"] = [
        {
            "name": "messaging",
            "service": "messaging",
            "expose": {"type": "route", "routeHost": own, "routeServicePort": "amqps"},
            "cert": {
                "provider": "certBundle",
                "tlsCert": b64encode(certificate.read_bytes()).decode(),
                "tlsKey": b64encode(key.read_bytes()).decode(),
            },
        }
    ]
    place.ok(
        "apply",
        "-f",
        "-",
        stdin=json.dumps(
            {name: space[name] for name in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "shop"}}
        ),
    )
    place.ok("wait", "space", "shop", "--for", "condition=CertificatesReady")
    ours = ssl.create_default_context(cadata=place.ok("ca"))
    theirs = ssl.create_default_context(cafile=str(certificate))
    where = urlsplit(place.url("amqps"))
    for host, context in ((own, theirs), ("farm.default.enmasse.local", ours)):
        until(lambda: all(is_shown(where, host, context) for _ in range(2 * SEVERAL)))  # noqa: B023


def is_shown(where: SplitResult, host: str, context: ssl.SSLContext) -> bool:
    """Return whether a node proves to be a host."""
    try:
        with (
            socket.create_connection((where.hostname, where.port), timeout=30) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return True
    except ssl.SSLCertVerificationError:
        return False


def test_a_backup_is_a_set_that_is_restored_whole(place: Installation, tmp_path: Path) -> None:
    place.ok("send", "others", "kept", "--durable", "--space", "shop")
    copy = tmp_path / "copy"
    place.ok("backup", str(copy))
    facts = json.loads((copy / "backup.json").read_text())
    assert facts["nodes"] == ["node-0", HOME]
    homes = {node: dict.fromkeys(spaces, 1) for node, spaces in facts["homes"].items()}
    assert (facts["homes"], facts["homes"][HOME]["default/shop"]) == (homes, 1)

    broken = tmp_path / "broken"
    shutil.copytree(copy, broken)
    shutil.rmtree(broken / "nodes" / HOME)
    again = Installation(tmp_path / "again")
    refused = again.run("restore", str(broken))
    assert (refused.code, f"the journal of {HOME} is not in it any more" in refused.err) == (1, True), refused.err
    (broken / "backup.json").write_text(json.dumps(facts | {"nodes": ["node-0"]}))
    refused = again.run("restore", str(broken))
    assert (refused.code, f"is at home on {HOME}, whose journal is not there" in refused.err) == (1, True)
    shutil.copytree(copy / "nodes" / HOME, broken / "nodes" / HOME)
    (broken / "backup.json").write_text(json.dumps(facts | {"homes": {"node-0": {"default/shop": 1}}}))
    refused = again.run("restore", str(broken))
    assert (refused.code, "is of two backups" in refused.err) == (1, True)
    assert not again.data.exists()

    again.ok("restore", str(copy))
    again.start("--no-pipelines")
    try:
        assert {item["name"] for item in again.endpoints()["processes"] if item["kind"] == "node"} == {"node-0", HOME}
        space = json.loads(again.ok("get", "space", "shop", "-o", "json"))
        assert (space["status"]["home"], space["status"]["homeGeneration"]) == (HOME, 2)
        for node in ("node-0", HOME):
            (row,) = [row for row in rows_at(again, node, "space") if row["name"] == "default/shop"]
            assert (row["home"], row["homeGeneration"]) == (HOME, 2)
        for number in range(SEVERAL):
            with at_shop(again) as client, client.receiver("others") as receiver:
                got = receiver.receive(30)
                assert got is not None
                assert got.message.body == "kept"
                if number == SEVERAL - 1:
                    got.accept()
                else:
                    got.release()
    finally:
        assert again.stop() == 0
    # Once more, in its place: what it has counted meanwhile is not counted again.
    again.ok("restore", str(copy), "--force")
    last = tmp_path / "last"
    again.ok("backup", str(last))
    assert json.loads((last / "backup.json").read_text())["homes"][HOME]["default/shop"] == 3
