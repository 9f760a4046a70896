"""A whole installation in processes of its own, and the commands on it.

With ``ENMASSE_TEST_NODES=4`` it has four nodes, of which the first is nobody's home.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import tty
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from enmasse.cli.app import run_app
from enmasse.drivers.data_directory import Layout
from tests.support.polling import until
from tests.support.ready_processes import ReadyPopen

__all__ = ["EXAMPLES", "NODES", "Done", "Installation"]

EXAMPLES = Path(__file__).parents[2] / "examples"

NODES = int(os.environ.get("ENMASSE_TEST_NODES", "1"))
"""How many nodes an installation has whose test does not say it."""

_NOBODYS_HOME = {
    "apiVersion": "admin.enmasse.io/v1beta1",
    "kind": "MessagingNode",
    "metadata": {"name": "node-0"},
    "spec": {"unschedulable": True},
}
"""What happens to be asked of the first node alone does not find the spaces of a test there."""


@dataclass
class Done:
    code: int
    out: str
    err: str


class Installation:
    """One ``enmasse up`` and the commands on it.

    Args:
        data: its directory; its log is beside it.
    """

    def __init__(self, data: Path) -> None:
        self.data = data
        self._has_examples_only = False
        self.log = data.with_name(data.name + ".log")
        self.supervisor: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str, stdout: int | None = None) -> None:
        self.launch(*arguments, stdout=stdout)
        self.ok("status", "--wait", "150")
        if NODES > 1 and "--nodes" not in arguments:
            self.ok("apply", "-f", "-", stdin=json.dumps(_NOBODYS_HOME))

    def launch(self, *arguments: str, stdout: int | None = None) -> None:
        """Start it, and do not wait until everything is ready."""
        if NODES > 1 and "--nodes" not in arguments:
            arguments = (*arguments, "--nodes", str(NODES))
        with self.log.open("ab") as log:
            self.supervisor = ReadyPopen(
                [sys.executable, "-m", "enmasse", "up", "--data", str(self.data), "--ports", "auto", *arguments],
                stdout=log if stdout is None else stdout,
                stderr=log,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self.supervisor is not None and self.supervisor.poll() is None

    def be_empty(self) -> None:
        """Have it run without any space, whatever the last test did to it."""
        self._has_examples_only = False
        if not self.is_running:
            self.start()
        # A project would make its space anew.
        for project in self._found("iotprojects"):
            self.ok(
                "delete", "iotproject", project["name"], "--namespace", project["namespace"], "--ignore-not-found"
            )
        until(lambda: not self._found("iotprojects"))
        for space in self._spaces():
            self.ok("delete", "space", space["name"], "--namespace", space["namespace"], "--ignore-not-found")
        until(lambda: not self._spaces(), self._spaces)
        self.ok("status", "--wait", "150")

    def have_examples(self) -> None:
        """Have it run with the examples and nothing else, unless the last test left it so."""
        if not (self.is_running and self._has_examples_only):
            self.be_empty()
            self.apply_examples()
            self._has_examples_only = True

    def apply_examples(self) -> None:
        """Apply the examples of one space, which no command need name."""
        for path in sorted(EXAMPLES.glob("0[1-6]-*.yaml")):
            self.ok("apply", "-f", str(path))
        self.ok("status", "--wait", "150")

    def _spaces(self) -> list[dict[str, str]]:
        return self._found("spaces")

    def _found(self, kind: str) -> list[dict[str, str]]:
        found = json.loads(self.ok("get", kind, "--all-namespaces", "-o", "json"))
        return [item["metadata"] for item in found["items"]]

    def stop(self) -> int:
        assert self.supervisor is not None
        self.supervisor.send_signal(signal.SIGINT)
        return self.supervisor.wait(120)

    def run(self, *arguments: str, stdin: str = "") -> Done:
        """Run a command in this process, which is the same but for the start of Python."""
        out, err = io.StringIO(), io.StringIO()
        with (
            redirect_stdout(out),
            redirect_stderr(err),
            mock.patch.object(sys, "argv", ["enmasse", *arguments, "--data", str(self.data)]),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()))),
        ):
            try:
                code = run_app()
            except SystemExit as end:
                code = int(end.code or 0)
        return Done(code, out.getvalue(), err.getvalue())

    def run_at_terminal(self, *arguments: str) -> Done:
        """Run a command as at a terminal, and return what that would have been told, both streams as one."""
        ours, terminal = os.openpty()
        tty.setraw(terminal)  # or the terminal would end lines in its own way
        told = bytearray()

        def read() -> None:
            with suppress(OSError):  # it is closed
                while part := os.read(ours, 65_536):
                    told.extend(part)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            with (
                os.fdopen(terminal, "w", encoding="utf-8") as screen,
                redirect_stdout(screen),
                redirect_stderr(screen),
                mock.patch.object(sys, "argv", ["enmasse", *arguments, "--data", str(self.data)]),
                mock.patch.dict(os.environ, {"COLUMNS": "9999", "TERM": "xterm"}),
            ):
                code = run_app()
        finally:
            reader.join(30)
            os.close(ours)
        return Done(code, told.decode(), "")

    def ok(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.code == 0, (arguments, done.out, done.err, self.log.read_text())
        return done.out

    def endpoints(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.data / "endpoints.json").read_text())
        return found

    def pid(self, kind: str) -> int:
        return next(int(item["pid"]) for item in self.endpoints()["processes"] if item["kind"] == kind)

    def url(self, protocol: str) -> str:
        return next(str(item["url"]) for item in self.endpoints()["endpoints"] if item["protocol"] == protocol)

    def home(self, space: str) -> str:
        """The name of the node that has a space."""
        return str(json.loads(self.ok("get", "space", space, "-o", "json"))["status"]["home"])

    @property
    def proof(self) -> dict[str, str]:
        """The header that says that we are its operator."""
        return {"authorization": f"Bearer {Layout(self.data).operator_token.read_text()}"}
