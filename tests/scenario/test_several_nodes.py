"""One installation with four nodes behind the same ports."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
from collections import Counter
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from enmasse.client import Receiver
from enmasse.client import connect as connect_client
from enmasse.client.blocking import connect as open_client
from enmasse.client.management import Management
from enmasse.client.message import Message
from enmasse.drivers.data_directory import Layout
from enmasse.drivers.supervisor.endpoints import Endpoints, read_endpoints
from enmasse.errors import EnmasseError
from enmasse.net.connection_limiter import room_for_connections
from tests.scenario.foreign_load import Load, Place, loads_at
from tests.support.chance import is_long, kills
from tests.support.installation import Installation
from tests.support.polling import until
from tests.support.processes import is_alive
from tests.support.ready_commands import command_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.slow

NODES = 4
STEP = 10
"""What each client does from one kill to the next, at least."""
SPACES = ("north", "east", "south", "west")
HOWTO = (Path(__file__).parents[2] / "docs" / "howto" / "run-several-nodes.md").read_text()
BLOCKS = dict(re.findall(r"<!-- (?:run: )?(\w+) -->\n```\w+\n(.*?)```", HOWTO, re.DOTALL))
HEADER = b"AMQP\x00\x01\x00\x00"


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    installation = Installation(tmp_path_factory.mktemp("several") / "data")
    installation.start("--nodes", str(NODES), "--no-pipelines")
    until(lambda: len(nodes_of(installation)) == NODES)
    shell(installation, "spaces")
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
        assert is_ready(several, name)
    assert shell(several, "ready") == "okok\n"
    with urlopen(Request(f"{several.url('api')}/metrics", headers=several.proof)) as answer:
        metrics = answer.read().decode()
    assert all(f'enmasse_node_ready{{node="{name}"}} 1.0' in metrics for name in names)
    kinds = [(item["kind"], item["name"]) for item in several.endpoints()["processes"][2:]]
    assert kinds == [(kind, name) for name in names for kind in ("node", "journal")]
    peers = Layout(several.data).peers
    modes = {path.name: path.stat().st_mode & 0o777 for path in (peers, *peers.iterdir())}
    assert modes.keys() >= {f"{name}.sock" for name in names}
    assert (modes.pop("peers"), set(modes.values())) == (0o700, {0o600})


def shell(installation: Installation, name: str) -> str:
    """Run a block of the how-to; what it said."""
    environment = {**os.environ, "ENMASSE_DATA": str(installation.data), "PATH": command_path(), "COLUMNS": "120"}
    block = BLOCKS[name].replace("localhost:8080", urlsplit(installation.url("api")).netloc)
    # The paths of sockets are short, those of tests long.
    socket_of = Layout(installation.data).admin_socket
    block = block.replace("${ENMASSE_DATA:-.enmasse}/nodes/node-2/admin.sock", str(socket_of("node-2")))
    done = subprocess.run(
        ["bash", "-euc", block], env=environment, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def test_the_how_to_does_what_it_says_and_each_space_has_a_home_of_its_own(several: Installation) -> None:
    assert set(homes_of(several).values()) == {f"node-{number}" for number in range(NODES)}
    told = shell(several, "send")
    assert told == "".join(f"accepted\nfor {name}\n" for name in SPACES)


def homes_of(installation: Installation) -> dict[str, str]:
    items = json.loads(installation.ok("get", "spaces", "-o", "json"))["items"]
    return {item["metadata"]["name"]: item["status"]["home"] for item in items}


def test_clients_come_to_their_space_by_every_node_and_find_what_was_stored_when_its_home_was_killed(
    several: Installation,
) -> None:
    host = "south.default.enmasse.local"
    with ExitStack() as stack:
        clients = [stack.enter_context(open_client(several.url("amqp"), hostname=host)) for _ in range(40)]
        for number, client in enumerate(clients):
            client.sender("orders").send(Message(str(number), durable=True))
        home = homes_of(several)["south"]
        with open_client(f"amqp+unix://{Layout(several.data).admin_socket(home)}") as admin:
            rows = [
                row for row in admin.management().query("io.enmasse.connection") if row["space"] == "default/south"
            ]
        others = {name for name in nodes_of(several) if name != home}
        assert {row["via"] for row in rows} >= others
        header, *listed = several.ok("get", "connections", "--space", "south").splitlines()
        assert "VIA" in header
        assert all(any(name in line for line in listed) for name in others)
        traced = [line.split()[0] for line in several.ok("trace").splitlines() if "default/south" in line]
        assert set(traced) == {home}
        several.ok("trace", str(rows[0]["name"]), "--seconds", "0")
        assert "no node has a connection 99999 of a client" in several.run("trace", "99999").err
        pid = nodes_of(several)[home]
        os.kill(pid, signal.SIGKILL)
        until(lambda: nodes_of(several).get(home) not in (None, pid))
        found = set()
        with clients[0].receiver("orders") as receiver:
            for _ in clients:
                delivery = receiver.receive(timeout=60)
                assert delivery is not None
                found.add(delivery.message.body)
                delivery.accept()
    assert found == {str(number) for number in range(40)}


def unready_nodes(installation: Installation) -> set[str]:
    status = json.loads(installation.run("status", "-o", "json").out)
    return {node["name"] for node in status["nodes"] if not node["ready"]}


def is_ready(installation: Installation, name: str) -> bool:
    """Whether the API says that a node is ready, as a probe without a proof asks."""
    try:
        with urlopen(f"{installation.url('api')}/readyz/nodes/{name}") as answer:
            return bool(answer.read() == b"ok")
    except HTTPError as error:
        if error.code != 503:
            raise
        return False


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
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it has been closed meanwhile
            found += os.readlink(each).startswith("socket:")  # noqa: PTH115
    return found


def held_by(pid: int, clients: list[socket.socket]) -> int:
    """How many clients' connections a process has at its end."""
    links = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]  # noqa: PTH115
    ports = {client.getsockname()[1] for client in clients}
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        found += int(words[2].partition(":")[2], 16) in ports and f"socket:[{words[9]}]" in links
    return found


def test_of_a_thousand_connections_that_come_at_once_no_node_has_twice_its_share(several: Installation) -> None:
    room_for_connections()
    nodes = nodes_of(several)
    before = {name: sockets_of(pid) for name, pid in nodes.items()}
    with ExitStack() as stack:
        clients = [connect(several, stack) for _ in range(1000)]
        for client in clients:
            assert client.recv(8) == HEADER
        counts = {name: sockets_of(pid) - before[name] for name, pid in nodes.items()}
        # Control's own come and go, and on a busy machine the first ones have been half-open for too long by now.
        assert sum(counts.values()) in range(700, 1010), counts
        assert max(counts.values()) <= sum(counts.values()) / 2, counts


def test_clients_of_other_nodes_notice_nothing_of_one_that_is_killed_and_comes_back(several: Installation) -> None:
    before = nodes_of(several)
    with ExitStack() as stack:
        clients = [connect(several, stack) for _ in range(40)]
        assert all(client.recv(8) == HEADER for client in clients)
        of_it = held_by(before["node-1"], clients)
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
        assert lost <= of_it, f"{lost} were lost, and the node had {of_it}"
        for _ in range(20):
            assert connect(several, stack).recv(8) == HEADER, "the others let clients in"
        until(lambda: nodes_of(several).get("node-1") not in (None, before["node-1"]))
    assert {**nodes_of(several), "node-1": 0} == {**before, "node-1": 0}
    several.ok("status", "--wait", "150")


def test_a_node_that_hangs_is_missed_while_the_others_and_control_go_on(several: Installation) -> None:
    homes = homes_of(several)
    hung = homes["south"]
    pid = nodes_of(several)[hung]
    others = [space for space in SPACES if space != "south"]
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: unready_nodes(several) == {hung})
        for space in others:
            for text in ("one", "two", "three"):
                several.ok("send", "orders", text, "--space", space)
            assert several.ok("receive", "orders", "--count", "3", "--space", space).split() == [
                "one",
                "two",
                "three",
            ]
            several.ok("create", "address", "later", "--type", "queue", "--space", space, "--wait", "60")
        several.ok("create", "address", "later", "--type", "queue", "--space", "south")
    finally:
        os.kill(pid, signal.SIGCONT)
    several.ok("status", "--wait", "150")
    assert nodes_of(several)[hung] == pid
    several.ok("send", "later", "text", "--space", "south")
    for space in SPACES:
        several.ok("delete", "address", "later", "--space", space)


def rows_of(installation: Installation) -> dict[tuple[str, str], dict[str, Any]]:
    """The connections of clients, by their home and number, but those of HTTP, which come and go."""
    found = {}
    for home in nodes_of(installation):
        with open_client(f"amqp+unix://{Layout(installation.data).admin_socket(home)}", patience=60) as admin:
            for row in admin.management().query("io.enmasse.connection"):
                if row["protocol"] != "http" and row["space"].startswith("default/"):
                    found[home, str(row["identity"])] = dict(row)
    return found


def look(installation: Installation, homes: dict[str, str], space: str, address: str) -> list[str]:
    """Take all that an address holds, as many messages as it has by the account of its home."""
    with open_client(f"amqp+unix://{Layout(installation.data).admin_socket(homes[space])}") as admin:
        stored = int(admin.management().read("io.enmasse.address", f"default/{space}.{address}")["messagesStored"])
    found: list[str] = []
    with (
        open_client(installation.url("amqp"), hostname=f"{space}.default.enmasse.local") as client,
        client.receiver(address, credit=1000) as receiver,
    ):
        for _ in range(stored):
            delivery = receiver.receive(timeout=60)
            assert delivery is not None, f"{stored} messages are stored in {address}, {len(found)} came"
            body = delivery.message.body
            found.append(body if isinstance(body, str) else bytes(body).decode())
            delivery.accept()
        assert receiver.drain(timeout=60) == 0, f"{stored} messages are stored in {address}, and more came"
    return found


def await_work(loads: Sequence[Load]) -> None:
    """Wait until every client has done something more."""
    goals = [load.count() + STEP for load in loads]

    def is_done() -> bool:
        for load in loads:
            if load.failure is not None:
                raise AssertionError(type(load).__name__) from load.failure
        return all(load.count() >= goal for load, goal in zip(loads, goals, strict=True))

    until(
        is_done, lambda: {type(load).__name__: load.count() - goal for load, goal in zip(loads, goals, strict=True)}
    )


def kill_some(several: Installation, chance: random.Random) -> Counter[str]:
    """Kill a node or two, and see that nobody is cut off but their own clients; who those were."""
    nodes = nodes_of(several)
    rows = rows_of(several)
    victims = set(chance.sample(sorted(nodes), chance.choice([1, 1, 1, 2])))
    for name in victims:
        os.kill(nodes[name], signal.SIGKILL)
    until(lambda: all(nodes_of(several).get(name) not in (None, nodes[name]) for name in victims))
    unharmed = {at: row for at, row in rows.items() if at[0] not in victims and row["via"] not in victims}
    left = rows_of(several)
    assert not (lost := [row for at, row in unharmed.items() if at not in left]), (victims, lost)
    handed_over = [(at[0], row) for at, row in rows.items() if row["via"]]
    return Counter(
        f"{'home' if home in victims else 'front'} {row['protocol']}"
        for home, row in handed_over
        if {home, row["via"]} & victims
    )


def address_of(space: str, name: str, kind: str) -> str:
    """The document that declares an address."""
    spec = {"address": name, "type": kind}
    metadata = {"name": f"{space}.{name}"}
    return json.dumps({"apiVersion": "enmasse.io/v1beta1", "kind": "Address", "metadata": metadata, "spec": spec})


@pytest.mark.chance
@pytest.mark.timeout(180 + 20 * kills(6))
def test_every_message_is_accounted_for_whichever_nodes_are_killed_under_clients_of_every_kind(
    several: Installation, story_chance: random.Random
) -> None:
    taking = partial(look, several, homes_of(several))
    loads = list(loads_at([Place(several.url("amqp"), space, taking) for space in SPACES]))
    needed = [(load.place.space, *address) for load in loads for address in load.addresses.items()]
    several.ok("apply", "-f", "-", "--wait", "150", stdin="\n---\n".join(address_of(*each) for each in needed))
    lost: Counter[str] = Counter()
    for load in loads:
        load.start()
    try:
        for _ in range(kills(6)):
            await_work(loads)
            lost += kill_some(several, story_chance)
        await_work(loads)
    finally:
        for load in loads:
            load.stop()
    for load in loads:
        load.check()
    several.ok("status", "--wait", "150")
    ways = {f"{end} {protocol}" for end in ("home", "front") for protocol in ("amqp", "mqtt", "stomp")}
    assert lost.keys() >= ways if is_long() else {text.split()[0] for text in lost} == {"home", "front"}, lost


def test_spaces_are_spread_over_the_nodes_and_reached_through_any(several: Installation) -> None:
    several.ok("nodes", "cordon", "node-3")
    for number in range(6):
        several.ok("create", "space", f"s{number}")
        several.ok("create", "address", "orders", "--type", "queue", "--space", f"s{number}")
    several.ok("status", "--wait", "150")
    counts = Counter(homes_of(several).values())
    homes = {name: home for name, home in homes_of(several).items() if name in {f"s{number}" for number in range(6)}}
    assert set(homes.values()) == {"node-0", "node-1", "node-2"}
    assert max(counts[name] for name in set(homes.values())) - min(counts[name] for name in set(homes.values())) < 2
    assert json.loads(several.ok("get", "space", "s0", "-o", "json"))["status"]["homeGeneration"] == 1
    for name in homes:
        # The front is any of the four; several connections, so that it is hardly always the home.
        for text in ("one", "two", "three"):
            several.ok("send", "orders", text, "--space", name)
        assert several.ok("receive", "orders", "--count", "3", "--space", name).split() == ["one", "two", "three"]
    rows = [line.split()[:6] for line in several.ok("nodes").splitlines()[1:]]
    assert rows == [
        [name, "Active", "front,home", "-", str(name == "node-3"), str(counts[name])] for name in nodes_of(several)
    ]
    refused = several.run("delete", "messagingnode", "node-1")
    assert "node node-1 cannot be deleted: it is the home of default/" in refused.err
    several.ok("nodes", "uncordon", "node-3")
    several.ok("create", "space", "late")
    several.ok("status", "--wait", "150")
    assert homes_of(several)["late"] == "node-3"
    held = asyncio.run(log_ranges(several))
    pairs = [found for ranges in held.values() for found in ranges]
    assert all(len(ranges) > 1 for ranges in held.values())
    assert all(before[1] <= after[0] for before, after in pairwise(sorted(pairs))), held
    several.ok("delete", "space", *homes, "late")
    until(lambda: homes_of(several).keys().isdisjoint(homes))


async def log_ranges(installation: Installation) -> dict[str, list[list[int]]]:
    """The log numbers that each node was leased."""
    found = {}
    for name in nodes_of(installation):
        url = f"amqp+unix://{Layout(installation.data).admin_socket(name)}"
        async with connect_client(url) as connection:
            (told,) = await Management(connection).query("io.enmasse.installation")
            found[name] = told["logRanges"]
    return found


async def stop_under_clients(several: Installation) -> set[str]:
    """Stop everything; what clients that came in by any node are told."""

    async def wait(receiver: Receiver) -> str:
        with pytest.raises(EnmasseError) as ended:
            await receiver.receive(timeout=60)
        return str(ended.value)

    async with AsyncExitStack() as stack:
        waits = []
        for _ in range(40):
            client = connect_client(several.url("amqp"), hostname="east.default.enmasse.local", reconnect=False)
            receiver = await (await stack.enter_async_context(client)).receiver("quiet")
            waits.append(asyncio.create_task(wait(receiver)))
        assert await asyncio.to_thread(several.stop) == 0
        return set(await asyncio.gather(*waits))


def test_clients_are_told_that_everything_stops_by_whichever_node_they_came(several: Installation) -> None:
    several.ok("create", "address", "quiet", "--type", "anycast", "--space", "east", "--wait", "150")
    told = asyncio.run(stop_under_clients(several))
    assert {text.partition("amqp:connection:forced: ")[2] for text in told} == {"the node is stopping; connect again"}


def test_fewer_nodes_than_have_spaces_are_refused(several: Installation) -> None:
    if several.is_running:
        assert several.stop() == 0
    refused = several.run("up", "--nodes", "2")
    assert (refused.code, " ".join(refused.err.split())) == (1, " ".join(BLOCKS["refused"].split()))


def test_a_node_without_its_journal_is_missed_while_the_others_serve_and_a_new_one_takes_the_next_space(
    several: Installation,
) -> None:
    if several.is_running:
        assert several.stop() == 0
    journal = several.data / "nodes" / "node-2" / "journal"
    shutil.move(journal, several.data / "elsewhere")
    several.launch("--nodes", str(NODES + 1), "--no-pipelines")
    told = f"node-2 is not started: the journal in {journal} is gone: there is no {journal}/data.mdb"
    until(lambda: told in several.log.read_text(), several.log.read_text)
    until(lambda: set(nodes_of(several)) == {"node-0", "node-1", "node-3", "node-4"})
    until(lambda: unready_nodes(several) == {"node-2"})
    assert (is_ready(several, "node-1"), is_ready(several, "node-2")) == (True, False)
    until(lambda: several.log.read_text().count("Everything runs") == 2, several.log.read_text)
    with ExitStack() as stack:
        for _ in range(8):
            assert connect(several, stack).recv(8) == HEADER
        shutil.move(several.data / "elsewhere", journal)
        several.ok("status", "--wait", "150")
        assert "node-2" in nodes_of(several)
    assert several.log.read_text().count(told) == 1
    several.ok("create", "space", "another", "--wait", "150")
    assert homes_of(several)["another"] == f"node-{NODES}"
