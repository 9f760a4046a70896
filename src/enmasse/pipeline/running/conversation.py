"""Commands come in and events go out, one JSON object a line."""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["Commands", "Voice"]

LONGEST_COMMAND: Final = 32 * 1024 * 1024
"""A resource is at most 1 MiB in the API, and credentials and code do not come this way."""


class Voice:
    """Writes events, whole even when several threads speak.

    Args:
        descriptor: of the file that events go to.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def __call__(self, event: str, **fields: Any) -> None:
        """Write one event; that nobody reads is seen elsewhere, as the end of the input."""
        line = (json.dumps({"event": event, **fields}, default=str) + "\n").encode()
        with self._lock:
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError:
                return


class Commands:
    """The commands, in order, until the input ends or a signal asks to end.

    Args:
        descriptor: of the file that commands come from.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def watch_signals(self) -> None:
        """End on SIGTERM and SIGINT too; call it from the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.end())

    def end(self) -> None:
        """Have the iteration end after the commands that are there."""
        self._queue.put(None)

    def _read(self) -> None:
        with os.fdopen(self._descriptor, "rb", closefd=False) as lines:
            while line := lines.readline(LONGEST_COMMAND):
                try:
                    command = json.loads(line)
                except ValueError:
                    continue
                if isinstance(command, dict):
                    self._queue.put(command)
        self.end()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield commands as they come."""
        while (command := self._queue.get()) is not None:
            yield command
