"""Debian's Mosquitto, on which tests can be tried that run against a node otherwise."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.foreign_tools import MOSQUITTO, require
from tests.support.polling import until

__all__ = ["Mosquitto"]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class Mosquitto:
    """A broker on free ports of the loopback interface, without users; a context manager.

    Args:
        directory: where its configuration, its store and its log are.

    Attributes:
        port: where it speaks MQTT.
        web_port: where it speaks MQTT over WebSocket.
    """

    def __init__(self, directory: Path) -> None:
        require("mosquitto")
        self._directory = directory
        self.port = _free_port()
        self.web_port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self._directory / "mosquitto.log").read_text()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it listens."""
        settings = self._directory / "mosquitto.conf"
        settings.write_text(
            f"listener {self.port} 127.0.0.1\n"
            f"listener {self.web_port} 127.0.0.1\nprotocol websockets\n"
            "allow_anonymous true\nmax_queued_messages 0\nset_tcp_nodelay true\n"
            f"persistence true\npersistence_location {self._directory}/\n"
            "autosave_interval 1\nautosave_on_changes true\n"
        )
        with (self._directory / "mosquitto.log").open("a") as log:
            self._process = subprocess.Popen(
                [MOSQUITTO, "-c", settings], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self._listens, lambda: self.log)

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(signal.SIGTERM)
