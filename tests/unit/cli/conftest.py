"""Commands against an API on a real port; no node, so nothing becomes ready."""

from __future__ import annotations

import asyncio
import io
import itertools
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.api.app import ApiParts, NodeAccess, create_app
from enmasse.api.listeners import open_listener, serve_http
from enmasse.api.pipelines import PipelineHost
from enmasse.cli.app import run_app
from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.control.users.passwords import UserPasswords
from enmasse.drivers.data_directory import Layout
from enmasse.drivers.supervisor.endpoints import Endpoint, Endpoints, write_endpoints
from enmasse.iot.possession import Nonces
from enmasse.iot.registry import DeviceRegistry
from enmasse.iot.store import DeviceStore
from enmasse.model.schema.objects import decode
from enmasse.schemas.registry import SchemaRegistry
from enmasse.schemas.store import SchemaStore
from tests.support.empty_databases import copied
from tests.support.messages import NoMessages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from enmasse.control.ports import MessageChoice


@dataclass
class Result:
    code: int
    out: str
    err: str


class Cli:
    """Runs commands in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Result:
        self._monkeypatch.setattr(sys, "argv", ["enmasse", *arguments])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        try:
            code = run_app()
        except SystemExit as end:
            code = int(end.code or 0)
        captured = self._capsys.readouterr()
        return Result(code, captured.out, captured.err)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    monkeypatch.setenv("ENMASSE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("NO_COLOR", "1")
    return Cli(monkeypatch, capsys)


class MemoryMessages(NoMessages):
    """A node with 1 message wherever it is asked."""

    async def purge(self, name: str, choice: MessageChoice) -> int:
        if choice.selector == "(":
            raise NodeRefusedError(400, "the selector is not understood at character 2")
        return 1

    async def move(self, name: str, to: str, choice: MessageChoice) -> int:
        return 1

    async def replay(self, name: str, choice: MessageChoice) -> int:
        raise NodeUnavailableError("node node-0 is not connected")


class MemoryValues:
    """A node with three values, of which each page has two."""

    def __init__(self) -> None:
        self.names = ["lamps/1", "lamps/2", "[red]lamps[/red]"]

    async def retained_of(self, space: str, pattern: str, offset: int) -> tuple[list[dict[str, Any]], int | None]:
        names = [name for name in self.names if pattern in ("#", name)]
        items: list[dict[str, Any]] = [
            {"name": name, "address": "lamps", "bytes": 7, "durable": True, "time": 0, "expires": None}
            for name in names[offset : offset + 2]
        ]
        return items, offset + 2 if len(names) > offset + 2 else None

    async def clear_retained(self, space: str, pattern: str) -> int:
        before = len(self.names)
        self.names = [name for name in self.names if pattern not in ("#", name)]
        return before - len(self.names)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[str]:
    """Serve the API from a thread, and have the data directory lead to it."""
    layout = Layout(tmp_path / "data")
    layout.data.mkdir()
    listener = open_listener("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    write_endpoints(layout.endpoints, Endpoints((Endpoint("api", url),)))
    stop = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    is_serving = threading.Event()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        is_serving.set()
        uids = itertools.count(1)
        with (
            ResourceStore(copied(ResourceStore, layout.data / "resources.db")) as store,
            DeviceStore(copied(DeviceStore, layout.data / "devices.db")) as devices,
            SchemaStore(layout.data / "schemas.db") as schemas,
        ):
            registry = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{next(uids)}")
            registry.add_admission(UserPasswords())
            registry.create_catalog()
            for name in ("team-a", "other"):
                registry.create(decode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            pipelines = PipelineHost(layout.data / "pipelines.sock")
            await serve_http(
                create_app(
                    ApiParts(
                        registry=registry,
                        stop=stop,
                        nodes={"node-0": NodeAccess(messages=MemoryMessages(), retained=MemoryValues())},
                        pipelines=pipelines,
                        schemas=SchemaRegistry(schemas),
                        devices=DeviceRegistry(
                            devices,
                            now=lambda: "2026-01-01T00:00:00Z",
                            new_id=lambda: f"id-{next(uids)}",
                            new_version=lambda: f"v{next(uids)}",
                            nonces=Nonces(b"a secret", lambda: f"{next(uids)}", lambda: 0.0),
                            grants_aliases=True,
                        ),
                    )
                ),
                listener,
                stop,
            )

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert is_serving.wait(30)
    yield url
    loops[0].call_soon_threadsafe(stop.set)
    thread.join()
