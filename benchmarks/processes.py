"""Starting and stopping servers: each in its own folder, on free ports of the loopback."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from enmasse.errors import UnavailableError

__all__ = ["Process", "free_port"]

START_S = 60.0
STOP_S = 20.0
LAST_LINES = 15


def free_port() -> int:
    """A port of the loopback that nobody listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


class Process:
    """One process of ours, in a group of its own, that writes to a file.

    Args:
        command: program and arguments.
        log: the file for whatever it prints.
        environment: what it has beside our own.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.command = command
        self.log = log
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self.pid = self.popen.pid

    def wait_for_port(self, port: int) -> None:
        """Return when the process accepts connections.

        Raises:
            UnavailableError: it ended, or does not within a minute.
        """
        self.wait_until(lambda: _accepts(port), f"listens on port {port}")

    def wait_until(self, is_so: object, what: str) -> None:
        """Return when ``is_so()`` holds.

        Raises:
            UnavailableError: the process ended, or it does not hold within a minute.
        """
        assert callable(is_so)
        deadline = time.monotonic() + START_S
        while not is_so():
            if self.popen.poll() is not None:
                raise UnavailableError(f"{self.command[0]} ended with {self.popen.returncode}:\n{self.last_words()}")
            if time.monotonic() > deadline:
                raise UnavailableError(f"{self.command[0]} never {what}:\n{self.last_words()}")
            time.sleep(0.02)

    def last_words(self) -> str:
        """The end of what it printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LAST_LINES:])

    def kill(self) -> None:
        """End it at once, but nothing that it has started."""
        self.popen.kill()
        self.popen.wait()

    def stop(self) -> None:
        """End it in order, or else at once, with what it has started."""
        if self.popen.poll() is None:
            self.popen.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(STOP_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.wait()


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
