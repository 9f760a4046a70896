"""Keeps a runner's process running, ends all of it when it ends, and keeps its log within bounds.

The driver's Java process and its Python workers are the driver's children. When the driver is
killed they could live on and write to the same tables, so everything of the old session is ended,
and is gone, before a new driver starts.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

MAX_BYTES = 1024 * 1024
"""Bytes of each of the two files that a log has at most: some ten thousand lines."""
LONGEST_LOG_LINE = 8 * 1024


class BoundedLog:
    """A file of lines; when it is full it is put aside, in place of the one put aside before.

    Args:
        path: the file; made with the first line, for its owner alone.
        max_bytes: the most bytes of it.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._former = path.with_name(path.name + ".1")
        self._max_bytes = max_bytes
        self._lock = threading.Lock()

    @property
    def path(self) -> Path:
        """The file of the newest lines."""
        return self._path

    def append(self, line: str) -> None:
        """Add a line; what cannot be written is left out, as a full disk is reported elsewhere."""
        data = line.replace("\r", "").replace("\n", "\\n")[:LONGEST_LOG_LINE].encode("utf-8", "replace") + b"\n"
        with self._lock:
            try:
                # No link is followed: a tenant who makes one would have us write elsewhere.
                number = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
                with os.fdopen(number, "ab") as file:
                    file.write(data)
                    size = file.tell()
                if size >= self._max_bytes:
                    self._path.replace(self._former)
            except OSError:
                pass

    def tail(self, count: int) -> list[str]:
        """Return the last lines, oldest first."""
        last: deque[str] = deque(maxlen=max(count, 0))
        for path in (self._former, self._path):
            last.extend(_lines(path))
        return list(last)

    def position(self) -> tuple[int, int]:
        """Return where its end is now, for ``since``."""
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0
        return found.st_ino, found.st_size

    def since(self, position: tuple[int, int]) -> tuple[list[str], tuple[int, int]]:
        """Return the whole lines that came after a position, and the new one."""
        inode, offset = position
        lines: list[str] = []
        now = self.position()
        if inode and inode != now[0]:
            lines, _ = _lines_from(self._former, offset)
            offset = 0
        more, offset = _lines_from(self._path, offset)
        return [*lines, *more], (now[0], offset)

    def remove(self) -> None:
        """Remove the files."""
        for path in (self._former, self._path):
            path.unlink(missing_ok=True)


def _lines(path: Path) -> list[str]:
    return _lines_from(path, 0)[0]


def _lines_from(path: Path, offset: int) -> tuple[list[str], int]:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            file.seek(offset)
            data = file.read(2 * MAX_BYTES)
    except OSError:
        return [], offset
    whole = data[: data.rfind(b"\n") + 1]
    return whole.decode("utf-8", "replace").splitlines(), offset + len(whole)


FIRST_PAUSE_S = 0.5
LAST_PAUSE_S = 30.0
LONG_ENOUGH_S = 60.0
"""A driver that ran so long was not broken from the start; its next failure is a first one."""
GRACE_S = 15.0
"""An orderly stop ends the batch that runs and takes Java down."""
LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of a line from a driver; an answer to a query is the longest. What is longer is left out."""
MAX_WAITING = 1000
"""Lines for a driver that reads none; one that reads none for so long is started again."""


class Supervisor:
    """Runs a command in a session of its own, again whenever it ends.

    Args:
        command: the command to run; it is to end in order when its standard input ends.
        log: bounded file that the command's standard error is appended to.
        on_event: called with each line of JSON that the command writes, and ``{"event": "started", "pid": ...}``
            and ``{"event": "ended", "status": ...}``; called from other threads.
        environment: the environment of the command; None: ours.
        keep: open files that the command gets too, under the same numbers.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        on_event: Callable[[dict[str, Any]], None],
        *,
        environment: Mapping[str, str] | None = None,
        keep: Sequence[int] = (),
    ) -> None:
        self._command = list(command)
        self._keep = tuple(keep)
        self._log = BoundedLog(log)
        self._on_event = on_event
        self._environment = environment
        self._stopping = threading.Event()
        self._grace_s = GRACE_S
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._run, name="supervisor")

    @property
    def pid(self) -> int | None:
        """The running driver's process id, which is its session's too."""
        process = self._process
        return process.pid if process is not None else None

    def start(self) -> None:
        """Start the command, and go on doing so until ``stop``."""
        self._log.path.parent.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def send(self, message: dict[str, Any]) -> None:
        """Have the command read a line of JSON; lost when it ends before that, or is not running."""
        process = self._process
        if process is None:
            return
        try:
            self._lines.put_nowait(json.dumps(message).encode() + b"\n")
        except queue.Full:
            process.kill()

    def stop(self, grace_s: float = GRACE_S) -> None:
        """End the command in order, or by force after so many seconds; returns when all of it is gone."""
        self._grace_s = grace_s
        self._stopping.set()
        self._end_input()
        self._thread.join()

    def wait(self, seconds: float | None = None) -> None:
        """Wait so long, or until ``stop`` is called by another thread."""
        self._thread.join(seconds)

    def _end_input(self) -> None:
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            # It reads nothing, so it would not see the end either.
            if (process := self._process) is not None:
                process.kill()

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
        self._lines = queue.Queue(MAX_WAITING)
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=self._environment,
                pass_fds=self._keep,
            )
        except OSError as error:
            self._log.append(f"{self._command[0]} cannot be started: {error}")
            return 127
        self._process = process
        if self._stopping.is_set():
            # A stop that came before the process was known has not ended its input.
            self._end_input()
        self._on_event({"event": "started", "pid": process.pid})
        threads = [
            threading.Thread(target=self._read, args=(process.stdout,), name="supervisor-reader"),
            threading.Thread(target=self._complain, args=(process.stderr,), name="supervisor-log"),
            threading.Thread(target=self._write, args=(process,), name="supervisor-writer"),
        ]
        for thread in threads:
            thread.start()
        try:
            status = process.wait()
        finally:
            self._process = None
            end_session(process.pid)
            self._end_input()
            for thread in threads:
                thread.join()
            _close(process.stdout)
            _close(process.stderr)
        return status

    def _read(self, lines: IO[bytes] | None) -> None:
        assert lines is not None
        while line := lines.readline(LONGEST_LINE):
            if not line.endswith(b"\n"):
                while (rest := lines.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                    pass
                self._log.append(f"a line of more than {LONGEST_LINE} bytes is left out")
                continue
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict) and "event" in event:
                self._on_event(event)

    def _complain(self, lines: IO[bytes] | None) -> None:
        assert lines is not None
        while line := lines.readline(LONGEST_LINE):
            self._log.append(line.decode("utf-8", "replace").rstrip("\n"))

    def _write(self, process: subprocess.Popen[bytes]) -> None:
        """Pass lines on; then end the input, and give the process its time to end."""
        assert process.stdin is not None
        try:
            while (line := self._lines.get()) is not None:
                process.stdin.write(line)
                process.stdin.flush()
        except OSError:
            pass
        _close(process.stdin)
        if self._stopping.is_set():
            with suppress(subprocess.TimeoutExpired):
                process.wait(self._grace_s)
                return
            process.kill()


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        with suppress(OSError):
            stream.close()


def end_session(session: int, timeout_s: float = 10.0) -> bool:
    """Kill every process of a session and wait until they are gone.

    Args:
        session: the session's id, which is that of the process that began it.
        timeout_s: the seconds to wait.

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
