"""The suites of foreign clients and of outcomes once more, with a node before each node: see ``through_front.py``.

All of them in ``make soak``, and a few of each protocol in ``make test``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.chance import is_long

pytestmark = [pytest.mark.slow, pytest.mark.chance]

ROOT = Path(__file__).parents[2]
FEW = {
    "interop/test_interop_proton_stored.py": "survive_a_crash or again_and_again",
    "interop/test_interop_proton_transactions.py": "messages_move_with_the_commit",
    "interop/test_interop_stomp.py": "clients_of_every_version or large_bodies",
    "interop/mqtt/test_mqtt_clients.py": "session_keeps_what_comes and paho",
}
"""Parts of the names of tests, by file."""

WHOLE = (
    "interop/mqtt",
    "interop/test_interop_proton*.py",
    "interop/test_interop_stomp*.py",
    "interop/test_interop_queue*.py",
    "interop/test_interop_rhea.py",
    "interop/test_interop_topic_durable.py",
    "interop/test_interop_retained.py",
    "interop/test_interop_tenancy.py",
    "interop/test_interop_users*.py",
    "interop/test_interop_websocket.py",
    "outcomes/test_outcomes_[dhmsu]*.py",
)

ABOUT_PORTS = "not other_machines_come_in"
"""Tests that ask the home's management for ports that its front alone has."""


def test_clients_notice_nothing_of_a_node_before_their_home() -> None:
    if is_long():
        chosen = [str(path) for pattern in WHOLE for path in sorted((ROOT / "tests").glob(pattern))]
        names = ABOUT_PORTS
    else:
        chosen = [str(ROOT / "tests" / name) for name in FEW]
        names = " or ".join(f"({name})" for name in FEW.values())
    played = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", names, *chosen],
        env={**os.environ, "ENMASSE_TEST_FRONT": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert played.returncode == 0, played.stdout[-5_000:]
    assert "[100%]" in played.stdout
