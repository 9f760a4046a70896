"""A few tests of foreign clients with a node before each node: see ``through_front.py``. All in ``make soak``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FEW = {
    "interop/test_interop_proton_stored.py": "survive_a_crash or again_and_again",
    "interop/test_interop_proton_transactions.py": "messages_move_with_the_commit",
    "interop/test_interop_stomp.py": "clients_of_every_version or large_bodies",
    "interop/mqtt/test_mqtt_clients.py": "session_keeps_what_comes and paho",
}
"""Parts of the names of tests, by file."""


def test_clients_notice_nothing_of_a_node_before_their_home() -> None:
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
