"""The reference of the API does what it says, command by command, on a real port."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.api.app import create_app
from enmasse.api.server import open_listener, serve_http
from enmasse.control.registry import Registry
from enmasse.control.store import ResourceStore
from tests.foreign_tools import require

if TYPE_CHECKING:
    from collections.abc import Iterator

REFERENCE = (Path(__file__).parents[3] / "docs" / "reference" / "api.md").read_text()
BLOCKS = dict(re.findall(r"<!-- run: (\w+) -->\n```sh\n(.*?)```", REFERENCE, re.DOTALL))


class NoMessages:
    """A node that nobody asks."""

    async def purge(self, name: str, selector: str | None) -> int:
        raise AssertionError(name)

    async def move(self, name: str, to: str, selector: str | None) -> int:
        raise AssertionError(name)

    async def replay(self, name: str, selector: str | None) -> int:
        raise AssertionError(name)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    require("curl")
    listener = open_listener("127.0.0.1", 0)
    stop = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        with ResourceStore(tmp_path / "resources.db") as store:
            registry = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{store.version}")
            registry.plant_namespaces()
            await serve_http(create_app(registry, stop, NoMessages()), listener, stop)

    number: int = listener.getsockname()[1]
    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    yield number
    loops[0].call_soon_threadsafe(stop.set)
    thread.join()


def run(name: str, port: int) -> list[dict[str, Any]]:
    """Run a block; every object that it answered."""
    script = BLOCKS[name].replace("http://localhost:8080", f"http://127.0.0.1:{port}")
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=30, check=True)
    decoder, text, found = json.JSONDecoder(), done.stdout.strip(), []
    while text:
        item, end = decoder.raw_decode(text)
        found.append(item)
        text = text[end:].lstrip()
    return found


def test_the_commands_of_the_reference_do_what_it_says(port: int) -> None:
    created, patched, listed, event = run("verbs", port)
    assert created["metadata"]["name"] == "shop"
    assert patched["spec"]["plan"] == "standard-small"
    assert [item["metadata"]["name"] for item in listed["items"]] == ["shop"]
    assert (event["type"], event["object"]) == ("ADDED", patched)
    applied, refused = run("apply", port)
    assert applied["spec"]["type"] == "queue"
    assert (refused["code"], refused["message"]) == (
        409,
        'Apply failed with 1 conflict: conflict with "ann" using enmasse.io/v1beta1: .spec.type',
    )
    assert refused["message"].partition(": ")[2] in REFERENCE
    team, going = run("namespaces", port)
    assert (team["status"]["phase"], going["status"]["phase"]) == ("Active", "Terminating")


def test_every_block_is_run() -> None:
    assert set(BLOCKS) == {"verbs", "apply", "namespaces"}
