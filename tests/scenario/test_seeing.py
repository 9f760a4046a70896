"""Looking inside what runs: the how-to's commands, traces that tshark reads, logs, metrics, health."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from enmasse.client import Message
from enmasse.client.blocking import connect
from enmasse.drivers.data_directory import Layout
from enmasse.net.logs import BURST
from enmasse.storage.lock import DirectoryLock
from tests.support.foreign_tools import require
from tests.support.node_process import NodeProcess
from tests.support.polling import until
from tests.support.ready_commands import command_path
from tests.support.small_disk import small_disk

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- run: (\w+) -->\n```\w+\n(.*?)```", re.DOTALL)
BLOCKS = dict(BLOCK.findall((ROOT / "docs/howto/look-inside.md").read_text()))
METRICS = (ROOT / "docs/reference/metrics.md").read_text()

pytestmark = pytest.mark.slow


def find_tool(name: str) -> str:
    require(name)
    return name


@pytest.fixture(scope="module")
def tshark() -> str:
    return find_tool("tshark")


@pytest.fixture(scope="module")
def curl() -> str:
    return find_tool("curl")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with the queue ``orders``, whose log is JSON."""
    with NodeProcess(tmp_path_factory.mktemp("node"), "--log-format", "json") as node:
        declare(node)
        yield node


def declare(node: NodeProcess) -> None:
    with connect(node.admin_url) as connection:
        management = connection.management()
        management.create("io.enmasse.space", "default/shop", {})
        queue = {"space": "default/shop", "address": "orders", "addressType": "queue"}
        management.create("io.enmasse.address", "default/shop.orders", queue)


def events(node: NodeProcess) -> list[dict[str, Any]]:
    """Every line of the node's log, each of which is JSON."""
    return [json.loads(line) for line in node.log.splitlines()]


def figures(node: NodeProcess) -> dict[str, Any]:
    with connect(node.admin_url) as connection:
        found: dict[str, Any] = connection.management().query("io.enmasse.statistics")[0]
    return found


def ready(node: NodeProcess) -> tuple[int, str]:
    answer = httpx.get(f"http://127.0.0.1:{node.port}/readyz?verbose", timeout=10)
    return answer.status_code, answer.text


@contextmanager
def traced(node: NodeProcess, *arguments: str) -> Iterator[list[str]]:
    """Trace while the block runs; what was shown is in the list after it."""
    shown: list[str] = []
    admin = node.admin_url.removeprefix("amqp+unix://")
    process = subprocess.Popen(
        [sys.executable, "-m", "enmasse", "trace", "--admin", admin, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        with connect(node.admin_url) as connection:
            until(lambda: any(item["address"].startswith("$trace") for item in links(connection)))
        yield shown
    finally:
        process.send_signal(signal.SIGINT)
        shown += process.communicate(timeout=60)[0].splitlines()


def links(connection: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = connection.management().query("io.enmasse.link")
    return [item for item in found if item["address"]]


def send(node: NodeProcess, body: Any, container: str = "c") -> None:
    with connect(
        node.url, container_id=container, user="anna", password="correct horse", allow_insecure_plain=True
    ) as connection:
        connection.sender("orders").send(Message(body))


def test_a_trace_shows_every_frame_of_a_connection_and_no_secret(node: NodeProcess) -> None:
    with traced(node, "--container", "wanted", "--payload", "4") as shown:
        send(node, "hello", "other")
        send(node, "hello", "wanted")
    text = "\n".join(shown)
    for part in (
        "<- header SASL 1.0.0", "-> sasl sasl-mechanisms", "<- sasl sasl-init mechanism='PLAIN'", "masked",
        "<- 0 open container-id='wanted'", "-> 0 attach", "<- 0 transfer", "payload", "state=accepted()",
        "<- 0 close",
    ):  # fmt: skip
        assert part in text
    assert "correct horse" not in text
    assert "other" not in text


def test_a_trace_shows_requests_of_http_and_no_secret(node: NodeProcess) -> None:
    url = f"http://127.0.0.1:{node.port}/v1/spaces/shop.default/addresses/orders/messages"
    with traced(node, "--all", "--payload", "4") as shown:
        answer = httpx.post(url, content=b"hello", auth=("anna", "correct horse"), timeout=30, trust_env=False)
        assert answer.status_code == 202
    text = "\n".join(shown)
    for part in (
        "<- 'POST /v1/spaces/shop.default/addresses/orders/messages HTTP/1.1'", "Authorization:****",
        "body 5 bytes b'hell'", "-> 'HTTP/1.1 202 Accepted'",
    ):  # fmt: skip
        assert part in text
    assert answer.request.headers["authorization"].removeprefix("Basic ") not in text


def test_wireshark_dissects_every_frame(node: NodeProcess, tshark: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.pcap"
    with connect(node.url, container_id="running") as running:
        sender = running.sender("orders")
        sender.send(Message("before"))
        with traced(node, "--all", "--write", str(file)) as shown:
            sender.send(Message("after"))
            send(node, b"x" * 900_000)
            send(node, "hello")
    columns = ("tcp.len", "_ws.col.Protocol", "_ws.malformed")
    chosen = [part for column in columns for part in ("-e", column)]
    rows = run([tshark, "-r", str(file), "-T", "fields", *chosen, "-E", "separator=|"]).splitlines()
    packets = [row.split("|") for row in rows]
    assert not [packet for packet in packets if packet[2]]
    # A frame that is longer than a packet shows in its last one; all before it are TCP's, and empty packets too.
    others = [int(packet[0]) for packet in packets if packet[1] != "AMQP"]
    assert sum(others) == 900_000
    assert [size for size in others if size] == [60_000] * 15
    frames = sum(packet[1] == "AMQP" for packet in packets)
    assert frames > 30
    counted = re.search(r"(\d+) frames of (\d+) connections", "\n".join(shown))
    assert counted is not None
    # In the middle of a connection the protocol headers of both sides are made up.
    assert (int(counted[1]) + 2, int(counted[2])) == (frames, 3)
    names = run([tshark, "-r", str(file), "-Y", "amqp", "-T", "fields", "-e", "_ws.col.Info"])
    for name in ("sasl.init", "open", "begin", "attach", "flow", "transfer", "disposition", "close"):
        assert name in names
    assert file.read_bytes().count(b"correct horse") == 0


def test_the_log_is_json_with_tenant_container_link_and_condition(node: NodeProcess) -> None:
    with connect(node.url, container_id="curious") as connection, pytest.raises(Exception, match="nowhere"):
        connection.sender("nowhere").send(Message("x"))
    found = [event for event in events(node) if event.get("container") == "curious"]
    refused = next(event for event in found if event["event"] == "link-refused")
    assert refused["space"] == "default/shop"
    assert refused["condition"] == "amqp:not-found"
    assert refused["address"] == "nowhere"
    assert refused["link"]
    assert refused["level"] == "warning"
    assert "correct horse" not in node.log


def test_a_hostile_client_cannot_flood_the_log(node: NodeProcess) -> None:
    before = len(events(node))
    refused = figures(node)["events"]["connection-refused"]
    count = 3 * BURST
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", node.port), 10) as client:
            client.sendall(b"AMQP\x00\x01\x00\x00" + b"\x00\x00\x00\x01\xff\xff\xff\xff" * 2)
            while client.recv(4096):
                pass
    assert figures(node)["events"]["connection-refused"] == refused + count
    assert len(events(node)) - before < 2 * BURST


def test_a_node_says_that_it_is_healthy_and_ready_on_the_port_of_its_clients(node: NodeProcess, curl: str) -> None:
    for path in ("/healthz", "/readyz"):
        done = run([curl, "-sS", "--max-time", "10", "-w", "%{http_code}", f"http://127.0.0.1:{node.port}{path}"])
        assert done == "ok\n200"
    status, text = ready(node)
    assert status == 200
    assert "[+] journal" in text


def test_a_killed_journal_shows_until_another_has_taken_over(node: NodeProcess) -> None:
    before = figures(node)
    assert before["journalUp"]
    lock = DirectoryLock(str(node.data / "nodes/node-0/journal"))
    os.kill(before["journalPid"], signal.SIGKILL)
    # Whoever has the lock keeps the next journal waiting.
    until(lock.acquire)
    try:
        until(lambda: ready(node)[0] == 503)
        assert "[-] journal" in ready(node)[1]
        assert httpx.get(f"http://127.0.0.1:{node.port}/healthz", timeout=10).status_code == 200
        assert not figures(node)["journalUp"]
    finally:
        lock.release()
    until(lambda: ready(node)[0] == 200)
    after = figures(node)
    assert after["journalReplacements"] == before["journalReplacements"] + 1
    send(node, "stored again")
    assert sum(figures(node)["commitTimes"]["counts"]) >= sum(after["commitTimes"]["counts"])


def test_a_full_disk_is_told_and_the_node_stays_ready_for_receivers(tmp_path: Path) -> None:
    with small_disk(tmp_path / "nodes/node-0/journal", "4m"), NodeProcess(tmp_path) as node:
        declare(node)
        with connect(node.url) as connection, connection.sender("orders") as sender:
            until(lambda: sender.send(Message(b"x" * 200_000, durable=True)).name == "released")
        assert figures(node)["journalFailure"]
        status, text = ready(node)
        assert status == 200
        assert "[!] storage: the last batch could not be written" in text
        assert figures(node)["failedCommits"] >= 1


# The how-to, on a whole installation


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = command_path()
    data = tmp_path_factory.mktemp("seeing")
    return {**os.environ, "PATH": path, "ENMASSE_DATA": str(data), "COLUMNS": "150"}


@pytest.fixture(scope="module")
def installation(environment: dict[str, str]) -> Iterator[dict[str, Any]]:
    """What ``endpoints.json`` says of an installation with the how-to's space and queue."""
    process = subprocess.Popen(
        ["enmasse", "up", "--ports", "auto", "--log-format", "json"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        run(["enmasse", "status", "--wait", "150"], environment)
        yield json.loads((Path(environment["ENMASSE_DATA"]) / "endpoints.json").read_text())
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(150)


def run(command: list[str], environment: dict[str, str] | None = None, place: Path | None = None) -> str:
    done = subprocess.run(
        command, env=environment, cwd=place, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def url(installation: dict[str, Any], protocol: str) -> str:
    return next(str(item["url"]) for item in installation["endpoints"] if item["protocol"] == protocol)


def commands(script: str, installation: dict[str, Any], environment: dict[str, str], place: Path) -> str:
    """Run commands of a page where the ports are these."""
    for port, protocol in (("5672", "amqp"), ("8080", "api")):
        script = script.replace(f"localhost:{port}", url(installation, protocol).partition("//")[2])
    return run(["bash", "-euc", script], environment, place)


def proof(environment: dict[str, str]) -> dict[str, str]:
    token = Layout(Path(environment["ENMASSE_DATA"])).operator_token.read_text()
    return {"authorization": f"Bearer {token}"}


def test_the_page_on_metrics_shows_them(
    environment: dict[str, str], installation: dict[str, Any], curl: str, tmp_path: Path
) -> None:
    ((_, script),) = BLOCK.findall(METRICS)
    assert "enmasse_node_up" in commands(script, installation, environment, tmp_path)


def test_the_howto_does_what_it_says(
    environment: dict[str, str], installation: dict[str, Any], tshark: str, curl: str, tmp_path: Path
) -> None:
    shown = {name: commands(script, installation, environment, tmp_path) for name, script in BLOCKS.items()}
    assert "node-0   True" in shown["status"]
    assert "[+] journal" in shown["status"]
    assert "[+] node node-0" in shown["status"]
    assert "transfer" in shown["trace"]
    assert "AMQP" in shown["capture"]
    assert '"condition": "amqp:not-found"' in shown["refused"]
    assert "Addresses:   1" in shown["overview"]
    assert "create" in shown["overview"]
    assert "default/shop" in shown["flow"]
    assert shown["flow"].endswith("whoever may look sees this\n")
    assert (
        'enmasse_messages_stored{address="orders",addressspace="shop",namespace="default",type="queue"} 2.0'
        in (shown["metrics"])
    )


def test_a_dead_node_shows_in_the_metrics_and_hangs_nobody(
    environment: dict[str, str], installation: dict[str, Any]
) -> None:
    api = url(installation, "api")
    node = next(item["pid"] for item in installation["processes"] if item["kind"] == "node")

    def is_up() -> float:
        # The time-out is what Prometheus has by default.
        text = httpx.get(f"{api}/metrics", headers=proof(environment), timeout=10).text
        families = {family.name: family for family in text_string_to_metric_families(text)}
        return float(families["enmasse_node_up"].samples[0].value)

    assert is_up() == 1
    os.kill(node, signal.SIGSTOP)
    try:
        until(lambda: is_up() == 0)
        assert httpx.get(f"{api}/readyz", timeout=10).text == "ok"
        told = httpx.get(f"{api}/readyz?verbose", headers=proof(environment), timeout=10).text
        assert "[!] node node-0" in told
        command = ["bash", "-c", "enmasse top --count 1 2>&1"]
        until(lambda: "node-0 does not answer" in run(command, environment))
    finally:
        os.kill(node, signal.SIGCONT)
    until(lambda: is_up() == 1)
    run(["enmasse", "status", "--wait", "150"], environment)
