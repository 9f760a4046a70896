"""The how-to of users does what it says, command by command; and nobody comes in who is not meant to."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

HOWTO = (Path(__file__).parents[2] / "docs" / "howto" / "let-users-in.md").read_text()
RUN = re.compile(r"<!-- run: (\w+) -->\n```(\w+)\n(.*?)```", re.DOTALL)
SHOWN = re.compile(r"<!-- shown: (\w+) -->\n```text\n(.*?)```", re.DOTALL)
UP = re.compile(r"<!-- run in the background: up -->\n```sh\n(.*?)\n```", re.DOTALL)
BLOCKS = {name: (kind, content) for name, kind, content in RUN.findall(HOWTO)}
PORT = "127.0.0.1:5672"

pytestmark = pytest.mark.slow


class Machine:
    """A directory with an installation in it, and shells there."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.port = PORT
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "ENMASSE_DATA": str(place / "data"), "COLUMNS": "100"}

    def run(self, name: str) -> str:
        """Run a block of the how-to, and give what it says."""
        kind, content = BLOCKS[name]
        command = ["bash", "-euc"] if kind == "sh" else [sys.executable, "-W", "error", "-c"]
        done = subprocess.run(
            [*command, content.replace(PORT, self.port)],
            env=self.environment, cwd=self.place, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{content}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self) -> subprocess.Popen[bytes]:
        (command,) = UP.findall(HOWTO)
        return subprocess.Popen(
            ["bash", "-c", f"exec {command} --ports auto"],
            env=self.environment, cwd=self.place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def find_port(self) -> None:
        endpoints = self.place / "data" / "endpoints.json"
        self.until(endpoints.exists)
        found = re.search(r"amqp://([\d.]+:\d+)", endpoints.read_text())
        assert found is not None
        self.port = found[1]

    @property
    def log(self) -> str:
        return (self.place / "data" / "logs" / "node-0.log").read_text()

    @staticmethod
    def until(condition: object, seconds: float = 60) -> None:
        assert callable(condition)
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    shown = machine.run("users")
    wanted = dict(SHOWN.findall(HOWTO))["users"]
    assert [
        line.rstrip() for line in shown.splitlines() if line.startswith(("SPACE", "default"))
    ] == wanted.splitlines()
    process = machine.start()
    try:
        machine.find_port()
        yield machine
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def test_every_command_and_program_does_what_the_howto_says(machine: Machine) -> None:
    machine.run("declare")
    machine.run("send")
    assert "maker may not do that" in machine.run("refused")
    assert machine.run("python") == "two chairs\n"
    if find_spec("proton") is not None:
        machine.run("proton")
    elif os.environ.get("CI") == "true":
        pytest.fail("python-qpid-proton is missing: install a C compiler, then run `make clean setup`")
    machine.run("certificate")
    machine.until(lambda: "read again: 3 users" in machine.log)
    assert machine.run("external") == "accepted\n"
    machine.run("change")
    machine.until(lambda: "read again: 2 users" in machine.log)
    kind, content = BLOCKS["send"]
    with pytest.raises(AssertionError, match="unauthorized-access"):
        machine.run("send")
    BLOCKS["changed"] = (kind, content.replace("correct horse battery", "a better one"))
    machine.run("changed")
    assert "authentication-failed" in machine.log
    for secret in ("correct horse", "staple", "a better one"):
        assert secret not in machine.log
        assert secret not in (machine.place / "users.yaml").read_text()
