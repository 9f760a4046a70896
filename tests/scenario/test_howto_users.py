"""The how-to of users does what it says, command by command; and nobody comes in who is not meant to."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.foreign_tools import require
from tests.support.installation import Installation
from tests.support.polling import until
from tests.support.ready_commands import command_path

HOWTO = (Path(__file__).parents[2] / "docs" / "howto" / "let-users-in.md").read_text()
RUN = re.compile(r"<!-- run: ([\w ]+) -->\n```(\w+)\n(.*?)```", re.DOTALL)
SHOWN = re.compile(r"<!-- shown: (\w+) -->\n```text\n(.*?)```", re.DOTALL)
UP = re.compile(r"<!-- run in the background: ([\w ]+) -->\n```sh\n(.*?)\n```", re.DOTALL)
WRITE = re.compile(r"<!-- write: ([\w.]+) -->\n```yaml\n(.*?)```", re.DOTALL)
BLOCKS = {name: (kind, content) for name, kind, content in RUN.findall(HOWTO)}
WANTED = dict(SHOWN.findall(HOWTO))
COMMANDS = dict(UP.findall(HOWTO))
PORT = "127.0.0.1:5672"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Machine:
    """A directory with an installation in it, and shells there."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.port = PORT
        path = command_path()
        self.environment = {**os.environ, "PATH": path, "ENMASSE_DATA": str(place / "data"), "COLUMNS": "100"}

    def run(self, name: str) -> str:
        """Run a block of the how-to, and give what it says."""
        kind, content = BLOCKS[name]
        command = ["bash", "-euc"] if kind == "sh" else [sys.executable, "-W", "error", "-c"]
        done = subprocess.run(
            [*command, content.replace(PORT, self.port)],
            env=self.environment, cwd=self.place, capture_output=True, text=True, timeout=170, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{content}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def up(self, name: str) -> Iterator[None]:
        """Keep an installation up, as a block of the how-to has it."""
        endpoints = self.place / "data" / "endpoints.json"
        endpoints.unlink(missing_ok=True)
        process = subprocess.Popen(
            ["bash", "-c", f"exec {COMMANDS[name]} --ports auto"],
            env=self.environment, cwd=self.place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            until(endpoints.exists)
            found = re.search(r"amqp://([\d.]+:\d+)", endpoints.read_text())
            assert found is not None
            self.port = found[1]
            assert Installation(self.place / "data").run("status", "--wait", "150").code == 0
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(150)

    @property
    def log(self) -> str:
        return (self.place / "data" / "logs" / "node-0.log").read_text()


def lines(text: str, columns: int | None = None) -> list[list[str]]:
    """The words of each line of a table, without the columns that are not to be compared."""
    return [line.split()[:columns] for line in text.splitlines() if line.strip()]


def test_every_command_and_program_does_what_the_howto_says(tmp_path: Path) -> None:
    require("python-qpid-proton with SASL and TLS")
    machine = Machine(tmp_path)
    for name, content in WRITE.findall(HOWTO):
        (tmp_path / name).write_text(content)
    with machine.up("up"):
        machine.run("declare")
        users = machine.run("users")
        assert lines(users[users.index("NAME") :], 4) == lines(WANTED["users"])
        allowed, refused = machine.run("check").splitlines()
        assert (allowed.startswith("yes: "), refused.startswith("no: ")) == (True, True)
        machine.run("apply")
        until(lambda: "Active" in machine.run("describe"))
        machine.run("send")
        assert "maker may not do that" in machine.run("refused")
        assert "that is of another" in machine.run("own")
        assert machine.run("python") == "two chairs\n"
        machine.run("proton")
        machine.run("certificate")
        assert machine.run("external") == "accepted\n"
        machine.run("boss")
        assert machine.run("manage") == WANTED["manage"]
        machine.run("change")
        kind, content = BLOCKS["send"]
        until(lambda: "authentication-failed" in machine.log or _fails(machine, "send"))
        with pytest.raises(AssertionError, match="unauthorized-access"):
            machine.run("send")
        BLOCKS["changed"] = (kind, content.replace("correct horse battery", "a better one"))
        machine.run("changed")
    listed = machine.run("file")
    assert lines(listed[listed.index("SPACE") :]) == lines(WANTED["file"])
    with machine.up("up with a file"):
        machine.run("keeper")
        machine.run("change the file")
        until(lambda: "read again: 0 users" in machine.log)
        with pytest.raises(AssertionError, match="unauthorized-access"):
            machine.run("keeper")
    said = machine.log + (tmp_path / "users.yaml").read_text()
    said += "".join(path.read_text(errors="replace") for path in (tmp_path / "data").rglob("*") if path.is_file())
    for secret in ("correct horse", "staple", "a better one", "gauge seven", "Z2F1Z2Ugc2V2ZW4", "eyes everywhere"):
        assert secret not in said


def _fails(machine: Machine, name: str) -> bool:
    try:
        machine.run(name)
    except AssertionError:
        return True
    return False
