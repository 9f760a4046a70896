"""Every command of the guide, against a real node, for a moment."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.client.blocking import connect
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[3] / "docs" / "howto" / "put-load-on-a-peer.md"
BLOCKS = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)
COMMANDS = [line.partition(" #")[0].strip() for block in BLOCKS for line in block.splitlines()]
ADDRESSES = {"orders": "anycast", "pair.0": "anycast", "pair.1": "anycast", "news": "multicast", "stored": "queue"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as process:
        with connect(process.admin_url) as connection:
            management = connection.management()
            management.create("io.enmasse.space", "default/a", {"spaceType": "standard", "authentication": "none"})
            for address, kind in ADDRESSES.items():
                attributes = {"space": "default/a", "address": address, "addressType": kind}
                management.create("io.enmasse.address", f"default/{address}", attributes)
        yield process.url


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_does_what_it_says(url: str, command: str) -> None:
    program, *arguments = shlex.split(command)
    assert program == "enmasse"
    # Of an option that is given twice the last one counts.
    brief = ("--url", url, "--duration", "0.2", "--warm-up", "0")
    done = subprocess.run(
        [sys.executable, "-m", "enmasse", *arguments, *brief], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert ("latency_us" if "--json" in arguments else "LATENCY" if "--senders 0" not in command else "received") in (
        done.stdout
    )
