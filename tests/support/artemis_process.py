"""A real Artemis, as a process of its own, for tests that connect a space to it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.support.foreign_tools import HERE

__all__ = ["ArtemisProcess"]

HOME = HERE / "artemis"

START_S = 120.0
"""It starts in four seconds; a busy machine may take its time."""


class ArtemisProcess:
    """Runs an Artemis on a free port of the loopback interface; everybody may come in.

    Args:
        data: where its instance lies; what an earlier one left there is taken up.
        queues: the names of its queues; others are made on request, as topics unless a client asks for a queue.

    Attributes:
        port: the port, the same for all its lives.
    """

    def __init__(self, data: Path, *queues: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port: int = taken.getsockname()[1]
        self._data = data
        self._queues = queues
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = {
            **os.environ,
            # It is used for seconds: what takes longer to compile than it saves is not worth it.
            "JAVA_ARGS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms64m -Xmx256m "
            "--add-opens java.base/jdk.internal.misc=ALL-UNNAMED",
        }

    @property
    def log(self) -> str:
        """What it wrote, over all its lives."""
        path = self._data.with_suffix(".log")
        return path.read_text() if path.exists() else ""

    def start(self) -> None:
        """Start it and wait until it listens.

        Raises:
            RuntimeError: it ended or does not listen in time; the message holds its log.
        """
        if not self._data.exists():
            unused = [f"--no-{name}-acceptor" for name in ("amqp", "hornetq", "mqtt", "stomp")]
            subprocess.run(
                [
                    HOME / "bin" / "artemis", "create", self._data, "--silent", "--no-web", "--no-autotune", "--nio",
                    "--host", "127.0.0.1", "--default-port", str(self.port), *unused,
                    "--user", "admin", "--password", "admin", "--allow-anonymous", "--queues", ",".join(self._queues),
                ],
                env=self._environment,
                check=True,
                capture_output=True,
            )  # fmt: skip
        with self._data.with_suffix(".log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._data / "bin" / "artemis", "run"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Artemis does not listen; its log:\n{self.log[-10_000:]}")
            time.sleep(0.1)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """End it, and the shell that started it, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def remove(self) -> None:
        """End it, and leave nothing of it."""
        self.kill()
        shutil.rmtree(self._data, ignore_errors=True)
