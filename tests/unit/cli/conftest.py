"""Commands against an API on a real port; no node, so nothing becomes ready."""

from __future__ import annotations

import asyncio
import io
import itertools
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from enmasse.api.app import create_app
from enmasse.api.pipeline_host import PipelineHost
from enmasse.api.server import open_listener, serve_http
from enmasse.cli.app import run_app
from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.registry import Registry
from enmasse.control.store import ResourceStore
from enmasse.control.user_passwords import UserPasswords
from enmasse.engines.embedded.paths import Layout
from enmasse.engines.supervisor.endpoints import Endpoint, Endpoints, write_endpoints
from enmasse.model.kinds import decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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


class MemoryMessages:
    """A node with 1 message wherever it is asked."""

    async def purge(self, name: str, selector: str | None) -> int:
        if selector == "(":
            raise NodeRefusedError(400, "the selector is not understood at character 2")
        return 1

    async def move(self, name: str, to: str, selector: str | None) -> int:
        return 1

    async def replay(self, name: str, selector: str | None) -> int:
        raise NodeUnavailableError("node node-0 is not connected")


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

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        uids = itertools.count(1)
        with ResourceStore(layout.data / "resources.db") as store:
            registry = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{next(uids)}")
            registry.ask(UserPasswords())
            registry.plant_catalog()
            for name in ("team-a", "other"):
                registry.create(decode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            pipelines = PipelineHost(layout.data / "pipelines.sock")
            await serve_http(create_app(registry, stop, MemoryMessages(), pipelines=pipelines), listener, stop)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    yield url
    loops[0].call_soon_threadsafe(stop.set)
    thread.join()
