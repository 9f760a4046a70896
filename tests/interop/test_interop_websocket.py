"""AMQP over WebSocket with rhea, in Node.js and in a real browser."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.drivers.authority import Authority
from tests.interop.browser import Site, browse
from tests.interop.conftest import HERE, TOOLS, Addresses
from tests.support.foreign_tools import require
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

COUNT = 50
LARGE = 300_000
WHOLE = ["small", LARGE, *(f"message {number}" for number in range(COUNT))]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, Path]]:
    """A node with TLS, and where its certificates are."""
    tls = tmp_path_factory.mktemp("tls")
    Authority(tls).keep_server_certificate("default", ("localhost", "127.0.0.1"))
    with NodeProcess(tmp_path_factory.mktemp("node"), "--tls", str(tls)) as process:
        addresses = Addresses(process)
        addresses.make_space()
        for number in range(4):
            addresses.declare("queue", f"web-{number}")
        addresses.close()
        yield process, tls
        assert "Traceback" not in process.log, process.log


def check(report: dict[str, Any]) -> None:
    assert report["received"] == WHOLE, report["errors"]
    assert report["outcomes"] == ["accepted"] * len(WHOLE)
    assert report["errors"] == []


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_rhea_in_node_sends_and_receives(secure: tuple[NodeProcess, Path], scheme: str) -> None:
    require("rhea")
    node, tls = secure
    asked = {
        "url": f"{scheme}://localhost:{node.port}",
        "address": "web-0" if scheme == "ws" else "web-1",
        "count": COUNT,
        "large": LARGE,
    }
    done = subprocess.run(
        ["node", str(HERE / "rhea_websocket.js"), json.dumps(asked)],
        env={
            **os.environ,
            "NODE_PATH": str(TOOLS / "node_modules"),
            "NODE_EXTRA_CA_CERTS": str(tls / "authority" / "ca.crt"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}{done.stdout}"
    check(json.loads(done.stdout))


@pytest.fixture
def pages() -> Iterator[Site]:
    require("rhea")
    scripts = {
        "rhea.js": TOOLS / "node_modules" / "rhea" / "dist" / "rhea-umd.js",
        "play.js": HERE / "rhea_websocket.js",
    }
    with Site(scripts, "play(rheaUmd, WebSocket, asked, tell)") as found:
        yield found


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_rhea_in_a_browser_sends_and_receives(
    secure: tuple[NodeProcess, Path], pages: Site, tmp_path: Path, scheme: str
) -> None:
    node, tls = secure
    pages.asked = {
        "url": f"{scheme}://localhost:{node.port}",
        "address": "web-2" if scheme == "ws" else "web-3",
        "count": COUNT,
        "large": LARGE,
    }
    check(browse(pages, tmp_path / "profile", tls))


def test_a_strangers_page_is_refused_by_its_origin(
    secure: tuple[NodeProcess, Path], pages: Site, tmp_path: Path
) -> None:
    node, tls = secure
    pages.asked = {"url": f"ws://localhost:{node.port}", "address": "web-2", "count": 1, "large": 1}
    report = browse(pages, tmp_path / "profile", tls, "shop.example")
    assert report["received"] == []
    assert report["errors"]
