"""The control process is killed at random moments while clients write, and converges with the node."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from enmasse.client import connect
from enmasse.client.management import Management
from enmasse.drivers.data_directory import Layout
from tests.support.chance import kills
from tests.support.node_process import NodeProcess
from tests.support.polling import until
from tests.support.ready_processes import ReadyPopen

pytestmark = [pytest.mark.slow, pytest.mark.chance]

LIVES = kills(2)
WRITERS = 3
EACH = 12
PATIENCE_S = 60.0
BASE = "/apis/enmasse.io/v1beta1/namespaces/default"


class Control:
    """``enmasse control``, which can be killed and started again on the same port."""

    def __init__(self, data: Path, node_url: str) -> None:
        self._data = data
        self._node_url = node_url
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def start(self) -> Self:
        with (self._data / "control.log").open("ab") as log:
            self._process = ReadyPopen(
                [
                    sys.executable, "-m", "enmasse", "control", "--data", str(self._data),
                    "--port", str(self.port), "--node-url", self._node_url,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )  # fmt: skip
        assert self._process.stdout is not None
        event = json.loads(self._process.stdout.readline() or b"{}")
        assert event.get("event") == "listening", (self._data / "control.log").read_text()[-3000:]
        self.port = int(event["url"].rpartition(":")[2])
        return self

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate(timeout=PATIENCE_S)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        api = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            given = None if body is None else json.dumps(body)
            api.request(method, BASE + path, given, {"content-type": "application/json", **self.proof})
            answer = api.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            api.close()

    @property
    def proof(self) -> dict[str, str]:
        return {"authorization": f"Bearer {Layout(self._data).operator_token.read_text()}"}

    def insist(self, method: str, path: str, body: Any = None) -> int:
        """Ask until there is an answer, as scripts around kubectl do."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with suppress(OSError, http.client.HTTPException, ValueError):
                code, _ = self.ask(method, path, body)
                if code < 500:
                    return code
            time.sleep(0.02)
        raise AssertionError(f"no answer to {method} {path}")


@contextmanager
def installation(data: Path) -> Iterator[tuple[NodeProcess, Control]]:
    with NodeProcess(data) as node:
        control = Control(data, node.admin_url).start()
        try:
            yield node, control
        finally:
            control.kill()


def space(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "AddressSpace",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "standard", "plan": "standard-unlimited"},
    }


def address(owner: str, number: int, ttl: int = 0) -> dict[str, Any]:
    spec: dict[str, Any] = {"address": f"a{number}", "type": "queue"}
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Address",
        "metadata": {"name": f"{owner}.a{number}", "namespace": "default"},
        "spec": spec | ({"messageTtl": {"maximum": ttl}} if ttl else {}),
    }


def work(control: Control, writer: int, wanted: dict[str, int]) -> None:
    """Create, change and delete; ``wanted`` tells what must be there in the end: name to time to live."""
    name = f"space{writer}"
    assert control.insist("POST", "/addressspaces", space(name)) in (201, 409)
    for number in range(EACH):
        assert control.insist("POST", "/addresses", address(name, number)) in (201, 409)
        wanted[f"{name}.a{number}"] = 0
        if number % 3 == 1:
            patched = control.insist("PUT", f"/addresses/{name}.a{number}", address(name, number, 1000 + number))
            assert patched == 200
            wanted[f"{name}.a{number}"] = 1000 + number
        if number % 3 == 2:
            assert control.insist("DELETE", f"/addresses/{name}.a{number - 1}") in (200, 404)
            del wanted[f"{name}.a{number - 1}"]
        time.sleep(0.05)
    doomed = f"doomed{writer}"
    assert control.insist("POST", "/addressspaces", space(doomed)) in (201, 409)
    assert control.insist("POST", "/addresses", address(doomed, 0)) in (201, 409)
    assert control.insist("DELETE", f"/addressspaces/{doomed}") in (200, 404)


async def on_node(node: NodeProcess) -> dict[str, tuple[str, int]]:
    """What the node has: name to uid and time to live."""
    async with connect(node.admin_url) as connection:
        management = Management(connection)
        found = await management.query("io.enmasse.address", ("name", "uid", "ttlMaximum"))
        spaces = await management.query("io.enmasse.space", ("name", "uid"))
    return {item["name"]: (item["uid"], item.get("ttlMaximum") or 0) for item in (*found, *spaces)}


def declared(control: Control) -> dict[str, tuple[str, int]] | None:
    """The same as declared; None as long as not everything is ready."""
    told = {}
    for plural in ("addresses", "addressspaces"):
        for item in control.ask("GET", f"/{plural}")[1]["items"]:
            if not item["status"].get("isReady"):
                return None
            ttl = item["spec"].get("messageTtl", {}).get("maximum", 0)
            told[f"default/{item['metadata']['name']}"] = (item["metadata"]["uid"], ttl)
    return told


def test_a_control_process_killed_at_random_converges(tmp_path: Path, story_chance: random.Random) -> None:
    wanted: dict[str, int] = {}
    failures: list[Exception] = []
    with installation(tmp_path) as (node, control):

        def write(writer: int) -> None:
            try:
                work(control, writer, wanted)
            except (AssertionError, OSError) as error:
                failures.append(error)

        writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        for _ in range(LIVES):
            time.sleep(story_chance.uniform(0.1, 0.8))
            control.kill()
            control.start()
        for writer in writers:
            writer.join(2 * PATIENCE_S)
        assert not failures, failures
        until(lambda: asyncio.run(on_node(node)) == declared(control))
        found = asyncio.run(on_node(node))
    names = {f"default/{name}": ttl for name, ttl in wanted.items()}
    assert {name: ttl for name, (_, ttl) in found.items() if "." in name} == names
    assert {name for name in found if "." not in name} == {f"default/space{number}" for number in range(WRITERS)}
