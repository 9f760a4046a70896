"""What the supervisor does when its own files cannot be written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from enmasse.drivers.data_directory import DirectoryLock, Layout, make_private, replace_file
from enmasse.drivers.supervisor.endpoints import read_endpoints
from enmasse.drivers.supervisor.ports import Ports
from enmasse.drivers.supervisor.supervisor import UpSettings, _Supervisor
from enmasse.errors import ConfigError
from tests.unit.node.line_protocol import BOTH

if TYPE_CHECKING:
    from pathlib import Path


def test_endpoints_that_cannot_be_written_are_told_of_once_and_written_when_they_can_be(tmp_path: Path) -> None:
    async def story() -> None:
        layout, told = Layout(tmp_path), list[str]()
        supervisor = _Supervisor(layout, UpSettings(tmp_path), Ports(1, 2), lambda _endpoints: None, told.append)
        layout.endpoints.mkdir()  # no file can take its place
        supervisor._on_control_event({"event": "listening"})
        supervisor._on_node_event({"event": "loaded", "pid": 11, "journal_pid": 12})
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
        supervisor = _Supervisor(
            Layout(tmp_path), UpSettings(tmp_path), Ports(1, 2), lambda _endpoints: ready.set(), told.append
        )
        announcing = asyncio.create_task(supervisor._announce())
        supervisor._on_control_event({"event": "listening"})
        async with asyncio.timeout(20):
            while not told:
                await asyncio.sleep(0.01)
            assert not ready.is_set()
            supervisor._on_node_event({"event": "listening"})
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
        supervisor = _Supervisor(Layout(tmp_path), UpSettings(tmp_path), ports, lambda _endpoints: None, print)
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
        assert "lines=127.0.0.1:3" in supervisor._node._command

    asyncio.run(story())
