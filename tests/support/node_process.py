"""A real node, as a process of its own, for tests that speak to it over sockets.

With ``ENMASSE_TEST_FRONT`` set, clients reach it through another node, which hands their connections over to it: see
``through_front.py``.
"""

from __future__ import annotations

import json
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import through_front
from tests.support.ready_processes import ReadyPopen

__all__ = ["NodeProcess"]

START_S = 60.0
"""A node is up in a second; a busy machine may take its time."""

STOP_S = 30.0


class NodeProcess:
    """Runs ``enmasse node`` on free ports of the loopback interface; a context manager.

    Args:
        data: the data directory; what an earlier node left there is taken up.
        arguments: further arguments of the command.
        before: a program of Python that the process runs first: makes limits small, say.

    Attributes:
        url: where clients connect, once started. A node started again keeps the port.
    """

    def __init__(self, data: Path, *arguments: str, before: str = "") -> None:
        self.data = data
        then = "import runpy; runpy.run_module('enmasse', run_name='__main__')"
        self._program = ("-c", f"{before}\n{then}") if before else ("-m", "enmasse")
        self.url = ""
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        # Paths of sockets are short, those of tests long.
        sockets = tempfile.mkdtemp(prefix="enmasse-")
        weakref.finalize(self, shutil.rmtree, sockets, ignore_errors=True)
        self._admin = Path(sockets) / "admin.sock"
        self._front: NodeProcess | None = None
        if through_front.IS_WANTED and "--peers" not in arguments:
            self._arguments, fronts = through_front.arguments_of(Path(sockets), arguments)
            self._front = NodeProcess(Path(sockets) / "front", *fronts, before=before)
            through_front.mirror(self.admin_url, self._front.admin_url)

    @property
    def port(self) -> int:
        """The port of ``url``."""
        return self._port if self._front is None else self._front.port

    @property
    def pid(self) -> int:
        """The node's process id."""
        assert self._process is not None, "the node was not started"
        return self._process.pid

    @property
    def admin_url(self) -> str:
        """Where management has full rights."""
        return f"amqp+unix://{self._admin}"

    @property
    def log(self) -> str:
        """What the node wrote on standard error, over all its lives."""
        path = self.data / "node.log"
        return path.read_text() if path.exists() else ""

    @property
    def memory_bytes(self) -> int:
        """The node's own memory, without the pages of files that it maps."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
        return int(line.split()[1]) * 1024

    def start(self) -> Self:
        """Start it and wait until it listens.

        Raises:
            RuntimeError: it ended or did not listen in time; the message holds its log.
        """
        assert self._process is None, "the node runs already"
        self.data.mkdir(parents=True, exist_ok=True)
        with (self.data / "node.log").open("a") as log:
            self._process = ReadyPopen(
                [
                    sys.executable, *self._program, "node", "--data", str(self.data),
                    "--listen", f"127.0.0.1:{self._port}", "--admin", str(self._admin), *self._arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )  # fmt: skip
        event = self._hear()
        if event.get("event") != "listening":
            self.kill()
            raise RuntimeError(f"the node does not listen; its log:\n{self.log}")
        self.url = str(event["url"])
        self._port = int(self.url.rpartition(":")[2])
        if self._front is not None:
            if self._front._process is None:
                self._front.start()
            self.url = self._front.url
        return self

    def _hear(self) -> dict[str, Any]:
        """The first line on the node's standard output, as JSON."""
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + START_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return {}
        line = self._process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {}
        return found

    def kill(self) -> None:
        """End it as a crash would, without any warning."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to stop in order; its exit code."""
        if self._front is not None:
            self._front.stop()
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        process.send_signal(number)
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(f"the node did not end within {STOP_S:.0f} s; its log:\n{self.log}") from None
        finally:
            if process.stdout is not None:
                process.stdout.close()
            self._process = None
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
