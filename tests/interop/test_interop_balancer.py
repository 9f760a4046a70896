"""Clients behind HAProxy on another machine: who is let in, what for, and as whom the node sees them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.foreign_tools import require

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of everything that ``balancer_network`` tries."""
    require("HAProxy")
    alone = ["unshare", "--net", "--pid", "--mount-proc", "--kill-child", "--fork"]
    alone += ["--map-root-user"] if os.geteuid() else []
    folder = tmp_path_factory.mktemp("balancer")
    command = [*alone, sys.executable, "-B", "-m", "tests.interop.balancer_network", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    if done.stderr.startswith("unshare: ") or (not done.returncode and json.loads(done.stdout)["problem"]):
        pytest.skip(f"networks cannot be made here: {done.stderr or done.stdout}")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


PRIVATE = ["passed through", "ended, then TLS"]


def test_a_password_is_taken_where_both_ways_are_by_tls_and_nowhere_else(told: dict[str, Any]) -> None:
    ways = {way: places for way, places in told["in"].items() if way.endswith("by password")}
    assert set(ways) == {f"{way} by password" for way in ("AMQP", "WebSocket", "MQTT", "STOMP", "HTTP")}
    assert {way: places for way, places in ways.items() if places != PRIVATE} == {}


def test_what_proves_itself_without_its_password_comes_by_every_way(told: dict[str, Any]) -> None:
    assert len(told["in"]["AMQP by SCRAM"]) == 5


def test_nobody_is_let_in_without_a_proof(told: dict[str, Any]) -> None:
    ways = {way: places for way, places in told["in"].items() if way.endswith("as nobody")}
    assert set(ways) == {f"{way} as nobody" for way in ("AMQP", "WebSocket", "MQTT", "STOMP", "HTTP")}
    assert {way: places for way, places in ways.items() if places} == {}


def test_the_log_has_the_clients_own_address(told: dict[str, Any]) -> None:
    opened = [
        line for line in told["log"] if line.get("event") == "connection-opened" and line["user"].startswith("jo-")
    ]
    assert {line["host"].rpartition(":")[0] for line in opened} == {"10.71.0.2"}
    failed = [line for line in told["log"] if line.get("event") == "authentication-failed"]
    assert {line["host"].rpartition(":")[0] for line in failed} == {"10.71.0.2"}


def test_a_header_is_one_from_the_load_balancer_alone_and_it_has_to_send_one(told: dict[str, Any]) -> None:
    amqp = b"AMQP".hex()
    # To bytes that are of no protocol AMQP says what it would have taken.
    assert told["strangers"]["from elsewhere"].startswith(amqp)
    assert told["strangers"]["without a header"] == ""
    assert told["strangers"]["with a header"].startswith(amqp)
    # Its checks of health have one.
    refused = [line for line in told["log"] if line.get("event") == "proxy-refused"]
    assert [line["host"] for line in refused] == ["10.72.0.1"]
