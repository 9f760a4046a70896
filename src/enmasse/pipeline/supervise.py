"""Keeps a job's process running, and ends all of it when it ends.

The driver's Java process and its Python workers are the driver's children. When the driver is
killed they could live on and write to the same tables, so everything of the old session is ended,
and is gone, before a new driver starts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

__all__ = ["Supervisor", "end_session"]

FIRST_PAUSE_S = 0.5
LAST_PAUSE_S = 30.0
LONG_ENOUGH_S = 60.0
"""A driver that ran so long was not broken from the start; its next failure is a first one."""
GRACE_S = 15.0
"""An orderly stop ends the batch that runs and takes Java down."""


class Supervisor:
    """Runs a command in a session of its own, again whenever it ends.

    Args:
        command: what to run; it is to end in order when its standard input ends.
        log: file that the command's standard error is appended to.
        on_event: hears each line of JSON that the command writes, and ``{"event": "started", "pid": ...}``
            and ``{"event": "ended", "status": ...}``; called from another thread.
    """

    def __init__(self, command: Sequence[str], log: Path, on_event: Callable[[dict[str, Any]], None]) -> None:
        self._command = list(command)
        self._log = log
        self._on_event = on_event
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="supervisor")

    @property
    def pid(self) -> int | None:
        """The running driver's process id."""
        process = self._process
        return process.pid if process is not None else None

    def start(self) -> None:
        """Start the command, and go on doing so until ``stop``."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """End the command in order, or by force after a while; returns when all of it is gone."""
        self._stopping.set()
        process = self._process
        if process is not None:
            _close(process.stdin)
        self._thread.join()

    def wait(self, seconds: float | None = None) -> None:
        """Wait so long, or until ``stop`` is called by another thread."""
        self._thread.join(seconds)

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            began = time.monotonic()
            status = self._run_once()
            if time.monotonic() - began > LONG_ENOUGH_S:
                pause_s = FIRST_PAUSE_S
            self._on_event({"event": "ended", "status": status})
            self._stopping.wait(pause_s)
            pause_s = min(pause_s * 2, LAST_PAUSE_S)

    def _run_once(self) -> int:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._process = process
        self._on_event({"event": "started", "pid": process.pid})
        reader = threading.Thread(target=self._read, args=(process.stdout,), name="supervisor-reader")
        reader.start()
        try:
            # A stop that came before the process was known has not closed its input.
            while process.poll() is None and not self._stopping.wait(0.1):
                pass
            _close(process.stdin)
            try:
                status = process.wait(GRACE_S if self._stopping.is_set() else 0)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
        finally:
            self._process = None
            end_session(process.pid)
            reader.join()
            _close(process.stdout)
        return status

    def _read(self, lines: IO[bytes] | None) -> None:
        assert lines is not None
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "event" in event:
                self._on_event(event)


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        with suppress(OSError):
            stream.close()


def end_session(session: int, timeout_s: float = 10.0) -> bool:
    """Kill every process of a session and wait until they are gone.

    Args:
        session: the session's id, which is that of the process that began it.
        timeout_s: how long to wait.

    Returns:
        Whether nothing is left.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        members = _members(session)
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not members:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def _members(session: int) -> list[int]:
    """Living processes of a session; zombies are dead."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name in parentheses may hold anything, so count from its end.
            state, _, _, sid = (folder / "stat").read_text().rpartition(") ")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(sid) == session and state not in "ZX":
            found.append(int(folder.name))
    return found
