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

from enmasse.api.access.authentication import Authenticator
from enmasse.api.app import ApiParts, NodeAccess, create_app
from enmasse.api.listeners import open_listener, serve_http
from enmasse.control.access.accounts import new_secret
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.drivers.data_directory import Layout
from tests.support.foreign_tools import require
from tests.support.messages import NoMessages

if TYPE_CHECKING:
    from collections.abc import Iterator

REFERENCE = (Path(__file__).parents[3] / "docs" / "reference" / "api.md").read_text()
SECRET = new_secret()
BLOCKS = dict(re.findall(r"<!-- run: (\w+) -->\n```sh\n(.*?)```", REFERENCE, re.DOTALL))


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
            registry.create_namespaces()
            authenticator = Authenticator(is_required=True, operator=SECRET)
            await serve_http(
                create_app(
                    ApiParts(
                        registry=registry,
                        stop=stop,
                        nodes={"node-0": NodeAccess(messages=NoMessages())},
                        authenticator=authenticator,
                    )
                ),
                listener,
                stop,
            )

    number: int = listener.getsockname()[1]
    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    yield number
    loops[0].call_soon_threadsafe(stop.set)
    thread.join()


def run(name: str, port: int, place: Path) -> list[dict[str, Any]]:
    """Run a block in a directory with an installation; every object that it answered."""
    file = Layout(place / ".enmasse").operator_token
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(SECRET)
    script = BLOCKS["token"] + BLOCKS[name].replace("http://localhost:8080", f"http://127.0.0.1:{port}")
    done = subprocess.run(["bash", "-euc", script], cwd=place, capture_output=True, text=True, timeout=30, check=True)
    decoder, text, found = json.JSONDecoder(), done.stdout.strip(), []
    while text:
        item, end = decoder.raw_decode(text)
        found.append(item)
        text = text[end:].lstrip()
    return found


def test_the_commands_of_the_reference_do_what_it_says(port: int, tmp_path: Path) -> None:
    created, patched, listed, event = run("verbs", port, tmp_path)
    assert created["metadata"]["name"] == "shop"
    assert patched["spec"]["plan"] == "standard-small"
    assert [item["metadata"]["name"] for item in listed["items"]] == ["shop"]
    assert (event["type"], event["object"]) == ("ADDED", patched)
    (several,) = run("lists", port, tmp_path)
    assert [item["spec"]["type"] for item in several["items"]] == ["queue", "topic"]
    applied, refused = run("apply", port, tmp_path)
    assert applied["spec"]["type"] == "queue"
    assert (refused["code"], refused["message"]) == (
        409,
        'Apply failed with 1 conflict: conflict with "ann" using enmasse.io/v1beta1: .spec.type',
    )
    assert refused["message"].partition(": ")[2] in REFERENCE
    team, going = run("namespaces", port, tmp_path)
    assert (team["status"]["phase"], going["status"]["phase"]) == ("Active", "Terminating")


def test_every_block_is_run() -> None:
    assert set(BLOCKS) == {"token", "verbs", "lists", "apply", "namespaces"}
