"""@stomp/stompjs over WebSocket against a real node, as web pages use it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.foreign_tools import require
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
TOOLS = HERE.parent / "tools"


def run(node: NodeProcess, **asked: Any) -> dict[str, Any]:
    """Have the client play its part, and give what it reports."""
    require("stompjs")
    asked = {"url": f"ws://127.0.0.1:{node.port}", "headers": {"host": "interop.default"}, **asked}
    done = subprocess.run(
        ["node", str(HERE / "stomp_client.js"), json.dumps(asked)],
        env={**os.environ, "NODE_PATH": str(TOOLS / "node_modules")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"stompjs: {done.stderr}{done.stdout}"
    report: dict[str, Any] = json.loads(done.stdout)
    return report


MESSAGES = [{"body": f"grüße {number}", "headers": {"n": f"{number}:x", "priority": "8"}} for number in range(20)]


@pytest.mark.parametrize(
    ("kind", "binary"), [("anycast", False), ("queue", True), ("topic", False), ("stream", True)]
)
def test_messages_pass_over_websocket_in_text_and_binary(
    node: NodeProcess, addresses: Any, kind: str, binary: bool
) -> None:
    address = addresses.declare(kind)
    report = run(node, source=address, target=address, messages=MESSAGES, binary=binary)
    assert report["errors"] == []
    assert report["version"] == "1.2"
    assert [message["body"] for message in report["received"]] == [message["body"] for message in MESSAGES]
    assert [message["headers"]["n"] for message in report["received"]] == [f"{number}:x" for number in range(20)]
    assert sorted(report["receipts"]) == list(range(20))


def test_an_error_reaches_the_page(node: NodeProcess) -> None:
    report = run(node, source="nowhere", target="nowhere", messages=MESSAGES)
    (error,) = report["errors"]
    assert (error["condition"], error["receipt-id"]) == ("amqp:not-found", "subscribed")
