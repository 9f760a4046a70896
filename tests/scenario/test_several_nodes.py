"""One installation with four nodes behind the same ports."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from enmasse.drivers.data_directory import Layout
from enmasse.drivers.supervisor.endpoints import Endpoints, read_endpoints
from enmasse.net.connection_limiter import room_for_connections
from tests.support.installation import Installation
from tests.support.polling import until
from tests.support.processes import is_alive

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

NODES = 4
HEADER = b"AMQP\x00\x01\x00\x00"


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    installation = Installation(tmp_path_factory.mktemp("several") / "data")
    installation.data.mkdir(mode=0o700)
    Layout(installation.data).node_count.write_text(json.dumps({"nodes": NODES}))
    installation.start("--no-pipelines")
    until(lambda: len(nodes_of(installation)) == NODES)
    yield installation
    assert installation.stop() == 0, installation.log.read_text()


def test_commands_and_metrics_know_every_node(several: Installation) -> None:
    names = [f"node-{number}" for number in range(NODES)]
    status = json.loads(several.ok("status", "-o", "json"))
    assert [(node["name"], node["ready"]) for node in status["nodes"]] == [(name, True) for name in names]
    wanted = [[name, "True", "True"] for name in names]
    until(lambda: [line.split()[:3] for line in several.ok("get", "nodes").splitlines()[1:]] == wanted)
    for name in names:
        assert several.run("logs", name, "--tail", "0").code == 0
    with urlopen(Request(f"{several.url('api')}/metrics", headers=several.proof)) as answer:
        metrics = answer.read().decode()
    assert all(f'enmasse_node_ready{{node="{name}"}} 1.0' in metrics for name in names)
    kinds = [(item["kind"], item["name"]) for item in several.endpoints()["processes"][2:]]
    assert kinds == [(kind, name) for name in names for kind in ("node", "journal")]
    peers = Layout(several.data).peers
    assert {path.name: path.stat().st_mode & 0o777 for path in (peers, *peers.iterdir())} == {
        "peers": 0o700,
        **{f"{name}.sock": 0o600 for name in names},
    }


def nodes_of(installation: Installation) -> dict[str, int]:
    """The process ids of the nodes that are open."""
    found = (read_endpoints(Layout(installation.data).endpoints) or Endpoints()).processes
    return {item.name: item.pid for item in found if item.kind == "node" and is_alive(item.pid)}


def connect(installation: Installation, stack: ExitStack) -> socket.socket:
    place = urlsplit(installation.url("amqp"))
    connection = stack.enter_context(socket.create_connection((place.hostname, place.port), timeout=60))
    connection.sendall(HEADER)
    return connection


def sockets_of(pid: int) -> int:
    """How many sockets a process has."""
    place = f"/proc/{pid}/fd"
    return sum(os.readlink(f"{place}/{each}").startswith("socket:") for each in os.listdir(place))  # noqa: PTH208, PTH115


def test_of_a_thousand_connections_that_come_at_once_no_node_has_twice_its_share(several: Installation) -> None:
    room_for_connections()
    nodes = nodes_of(several)
    before = {name: sockets_of(pid) for name, pid in nodes.items()}
    with ExitStack() as stack:
        clients = [connect(several, stack) for _ in range(1000)]
        for client in clients:
            assert client.recv(8) == HEADER
        counts = {name: sockets_of(pid) - before[name] for name, pid in nodes.items()}
        assert sum(counts.values()) in range(990, 1010), counts  # control's own come and go
        assert max(counts.values()) <= 500, counts


def test_clients_of_other_nodes_notice_nothing_of_one_that_is_killed_and_comes_back(several: Installation) -> None:
    before = nodes_of(several)
    with ExitStack() as stack:
        clients = [connect(several, stack) for _ in range(40)]
        assert all(client.recv(8) == HEADER for client in clients)
        os.kill(before["node-1"], signal.SIGKILL)
        until(lambda: not is_alive(before["node-1"]))
        lost = 0
        for client in clients:
            client.settimeout(0.01)
            try:
                lost += not client.recv(1)
            except TimeoutError:
                pass
            except ConnectionResetError:
                lost += 1
        assert lost < 20, "those of one node of four"
        for _ in range(20):
            assert connect(several, stack).recv(8) == HEADER, "the others let clients in"
        until(lambda: nodes_of(several).get("node-1") not in (None, before["node-1"]))
    assert {**nodes_of(several), "node-1": 0} == {**before, "node-1": 0}
    several.ok("status", "--wait", "150")


def test_a_node_without_its_journal_is_named_and_the_others_serve_and_it_once_the_journal_is_there(
    several: Installation,
) -> None:
    assert several.stop() == 0
    journal = several.data / "nodes" / "node-2" / "journal"
    shutil.move(journal, several.data / "elsewhere")
    several.launch("--no-pipelines")
    told = f"node-2 is not started: the journal in {journal} is gone: there is no {journal}/data.mdb"
    until(lambda: told in several.log.read_text(), several.log.read_text)
    until(lambda: set(nodes_of(several)) == {"node-0", "node-1", "node-3"})
    only = "error: node node-2 is not ready (node node-2 is not connected)\n"
    until(lambda: several.run("status").err == only, lambda: several.run("status").err)
    until(lambda: several.log.read_text().count("Everything runs") == 2, several.log.read_text)
    with ExitStack() as stack:
        for _ in range(8):
            assert connect(several, stack).recv(8) == HEADER
        shutil.move(several.data / "elsewhere", journal)
        several.ok("status", "--wait", "150")
        assert "node-2" in nodes_of(several)
    assert several.log.read_text().count(told) == 1
