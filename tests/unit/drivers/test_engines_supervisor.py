"""What the supervisor does when its own files cannot be written."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING

import pytest

from enmasse.control.store.store import ResourceStore
from enmasse.drivers.data_directory import DirectoryLock, Layout, make_private, replace_file
from enmasse.drivers.supervisor.endpoints import Endpoints, read_endpoints
from enmasse.drivers.supervisor.node_count import choose_nodes
from enmasse.drivers.supervisor.ports import ClientSockets, Ports
from enmasse.drivers.supervisor.supervisor import UpSettings, _Supervisor
from enmasse.errors import ConfigError
from enmasse.net.shared_listener import Siblings
from tests.support.polling import until_async
from tests.unit.node.line_protocol import BOTH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


class Bound(socket.socket):
    """A socket that would be bound, and is none."""

    def fileno(self) -> int:
        return 9


def supervisor_of(
    layout: Layout,
    report: Callable[[str], None],
    ready: Callable[[Endpoints], None] = lambda _endpoints: None,
    *,
    ports: Ports | None = None,
    nodes: Sequence[str] = ("node-0",),
) -> _Supervisor:
    """A supervisor whose sockets are bound to no port."""
    ports = ports or Ports(1, 2)
    sockets = ClientSockets.__new__(ClientSockets)
    sockets.by_protocol = dict.fromkeys(("amqp", *ports.further), Bound.__new__(Bound))
    return _Supervisor(layout, UpSettings(layout.data), nodes, ports, sockets, ready, report)


def test_endpoints_that_cannot_be_written_are_told_of_once_and_written_when_they_can_be(tmp_path: Path) -> None:
    async def story() -> None:
        layout, told = Layout(tmp_path), list[str]()
        supervisor = supervisor_of(layout, told.append)
        layout.endpoints.mkdir()  # no file can take its place
        supervisor._on_control_event({"event": "listening"})
        supervisor._nodes.on_event("node-0", {"event": "loaded", "pid": 11, "journal_pid": 12})
        supervisor._control_started(13)
        assert [sentence.partition(":")[0] for sentence in told] == [f"{layout.endpoints} cannot be written"]
        layout.endpoints.rmdir()
        async with asyncio.timeout(20):
            while (endpoints := read_endpoints(layout.endpoints)) is None:
                await asyncio.sleep(0.01)
        assert {process.kind: process.pid for process in endpoints.processes}.items() > {
            ("node", 11),
            ("journal", 12),
            ("control", 13),
        }
        assert told[1:] == [f"{layout.endpoints} is written again"]
        assert not list(tmp_path.glob(".endpoints*"))

    asyncio.run(story())


def test_each_node_is_opened_once_the_file_names_it_and_clients_wait_only_while_one_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = list[str]()
    monkeypatch.setattr(ClientSockets, "refuse", lambda _sockets: refused.append("refused"))
    monkeypatch.setattr("enmasse.drivers.supervisor.node_children.WAIT_S", 0.01)

    async def story() -> None:
        layout = Layout(tmp_path)
        supervisor = supervisor_of(layout, print, nodes=("node-0", "node-1"))
        nodes = supervisor._nodes
        told = list[tuple[str, int, list[str]]]()

        def named() -> list[str]:
            return [
                f"{each.kind} {each.pid}" for each in (read_endpoints(layout.endpoints) or Endpoints()).processes[1:]
            ]

        for number, child in enumerate(nodes.children.values()):
            monkeypatch.setattr(child, "send", lambda line, number=number: told.append((line, number, named())))
        nodes.on_event("node-1", {"event": "loaded", "pid": 21, "journal_pid": 22})
        assert not told
        supervisor._on_control_event({"event": "listening"})
        assert not told, "what checks passwords for both is not there"
        nodes.open("passwords")
        assert [each[1:] for each in told] == [(1, ["node 21", "journal 22"])]
        nodes.on_event("node-0", {"event": "loaded", "pid": 11, "journal_pid": 12})
        assert told[1][1:] == (0, ["node 11", "journal 12", "node 21", "journal 22"])
        assert nodes._counts is not None
        ours = [Siblings(nodes._counts, index) for index in range(2)]
        for each in ours:
            each.tell(7)
        nodes._ended("node-0", 0)
        assert (ours[0].least(), ours[1].least()) == (7, None), "nothing is left to who is gone"
        await asyncio.sleep(0)
        assert nodes._refusing is None, "the other one is open"
        nodes._ended("node-1", 1)
        await until_async(lambda: refused == ["refused"])
        nodes.on_event("node-1", {"event": "loaded", "pid": 23, "journal_pid": 22})
        assert named() == ["node 11", "journal 12", "node 23", "journal 22"]
        word, *others = [each[0] for each in told]
        assert others == [word, word], "the nodes know each other, also after a start"
        assert len(bytes.fromhex(json.loads(word)["peers"])) == 32
        for child in nodes.children.values():
            assert json.loads(word)["peers"] not in " ".join(child._command)
        nodes._ended("node-0", 0)
        assert nodes._refusing is None

    asyncio.run(story())


def test_the_number_of_nodes_is_kept(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert choose_nodes(layout, None) == ["node-0"]
    assert not layout.node_count.exists(), "an installation is as it was"
    assert choose_nodes(layout, 3) == choose_nodes(layout, None) == ["node-0", "node-1", "node-2"]
    assert choose_nodes(layout, 1) == choose_nodes(layout, None) == ["node-0"]
    for count in (0, 65):
        with pytest.raises(ConfigError, match=f"{count} nodes: from 1 to 64 are expected"):
            choose_nodes(layout, count)
    layout.node_count.write_text("{}")
    with pytest.raises(ConfigError, match=r"nodes\.json cannot be read as the number of nodes"):
        choose_nodes(layout, None)


def test_fewer_nodes_than_have_spaces_are_refused_with_the_names_of_these(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.control.mkdir()
    assert len(choose_nodes(layout, 4)) == 4
    homes = {"shop": 0, "mill": 2, **{f"many-{number:02}": 3 for number in range(12)}}
    with ResourceStore(layout.store) as store:
        for name, node in homes.items():
            metadata = {"name": name, "namespace": "default", "uid": name}
            status = {"home": f"node-{node}", "homeGeneration": 1}
            store.create({"kind": "AddressSpace", "metadata": metadata, "spec": {}, "status": status})
        metadata = {"name": "waits", "namespace": "default", "uid": "waits"}
        store.create({"kind": "AddressSpace", "metadata": metadata, "spec": {}})
        with pytest.raises(ConfigError) as refused:
            choose_nodes(layout, 2)
        assert choose_nodes(layout, None) == ["node-0", "node-1", "node-2", "node-3"], "nothing has changed"
        assert len(choose_nodes(layout, 5)) == 5
    many = ", ".join(f"default/many-{number:02}" for number in range(10))
    assert str(refused.value) == (
        "2 nodes would leave out spaces that are at home on others: node-2 has default/mill; "
        f"node-3 has {many} and 2 more. Start as many nodes as before, and delete these spaces first"
    )
    layout.store.write_bytes(b"damaged")
    assert choose_nodes(layout, 1) == ["node-0"], "control says what is wrong with it"


def test_everything_runs_once_each_endpoint_has_answered_and_what_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that takes long is told of with its logs, then each way in which endpoints do not serve, once."""
    module = "enmasse.drivers.supervisor.supervisor"
    answers = [["mqtt://x: no answer"], ["mqtt://x: no answer"], ["mqtt://x: refused"], []]
    monkeypatch.setattr(f"{module}.failed_probes", lambda _endpoints: answers.pop(0))
    monkeypatch.setattr(f"{module}._START_PATIENCE_S", 0.01)
    monkeypatch.setattr(f"{module}._PROBE_AGAIN_S", 0.0)

    async def story() -> None:
        told = list[str]()
        ready = asyncio.Event()
        supervisor = supervisor_of(Layout(tmp_path), told.append, lambda _endpoints: ready.set())
        announcing = asyncio.create_task(supervisor._announce())
        supervisor._on_control_event({"event": "listening"})
        async with asyncio.timeout(20):
            while not told:
                await asyncio.sleep(0.01)
            assert not ready.is_set()
            supervisor._nodes.on_event("node-0", {"event": "listening"})
            await ready.wait()
        await announcing
        log = tmp_path / "logs" / "node-0.log"
        assert told == [
            f"node-0 ({log}): no port was opened in 0.01 s; waiting for that",
            "mqtt://x: no answer\nwaiting for that",
            "mqtt://x: refused\nwaiting for that",
        ]
        assert answers == []

    asyncio.run(story())


def test_a_directory_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    below = tmp_path / "file" / "data"
    with pytest.raises(ConfigError, match=r"file.* cannot be written .*--data"), DirectoryLock(below):
        pytest.fail("it was made")
    with pytest.raises(ConfigError, match=r"data cannot be written .*--data"):
        make_private(below)


def test_a_file_that_cannot_be_replaced_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "token").mkdir()
    with pytest.raises(ConfigError, match="token cannot be written"):
        replace_file(tmp_path / "token", b"secret")
    assert [item.name for item in tmp_path.iterdir()] == ["token"]


def test_what_a_node_serves_of_a_further_protocol_is_told_where_the_rest_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enmasse.drivers.supervisor.supervisor.PROTOCOLS", BOTH)

    async def story() -> None:
        ports = Ports(1, 2, further={"lines": 3})
        supervisor = supervisor_of(Layout(tmp_path), print, ports=ports)
        assert [(item.protocol, item.url) for item in supervisor._endpoints.endpoints] == [
            ("amqp", "amqp://127.0.0.1:1"),
            ("amqps", "amqps://127.0.0.1:1"),
            ("lines", "lines://127.0.0.1:3"),
            ("lines+ssl", "lines+ssl://127.0.0.1:3"),
            ("api", "http://127.0.0.1:2"),
            ("console", "http://127.0.0.1:2/console/"),
            ("registry", "http://127.0.0.1:2/registry/v1"),
            ("schemas", "http://127.0.0.1:2/schemas/v1"),
        ]
        assert "lines=fd:9" in supervisor._nodes.children["node-0"]._command

    asyncio.run(story())
