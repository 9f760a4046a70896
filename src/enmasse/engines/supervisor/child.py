"""One child process: started, listened to, started again when it dies, stopped in order."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from typing import TYPE_CHECKING, Any, BinaryIO

from enmasse.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["Child"]

_log = logging.getLogger(__name__)

_FIRST_DELAY_S = 0.1  # a process that died once is wanted back at once
_LONGEST_DELAY_S = 10.0
_STABLE_S = 10.0  # who ran that long starts with the first delay again
_LOG_BYTES = 10 * 1024 * 1024
_TAIL_LINES = 15

Event = dict[str, Any]


class Child:
    """A process that is kept alive.

    It gets a session of its own, so that Ctrl-C in the terminal reaches only
    the supervisor, which stops its children in order. Its standard input stays
    open for as long as the supervisor lives; its standard output carries one
    JSON object a line; its standard error goes to its log.

    Args:
        name: for messages and the log.
        command: the program and its arguments.
        log: where its standard error goes; the former log is kept once it is large.
        on_start: called with the process id of each new process.
        on_event: called with each JSON object that it prints.
        tell: says a sentence to the user.
        is_needed: whether it is an error if the process ends before it has ever opened a port; else it is
            started again then, too.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        on_start: Callable[[int], None],
        on_event: Callable[[Event], None],
        tell: Callable[[str], None],
        is_needed: bool = True,
    ) -> None:
        self.name = name
        self._command = command
        self._log = log
        self._on_start = on_start
        self._on_event = on_event
        self._tell = tell
        self._is_needed = is_needed
        self._process: asyncio.subprocess.Process | None = None
        self._has_listened = False
        self._log_start = 0
        self._is_stopping = False

    async def run(self) -> None:
        """Keep the process alive until ``stop``.

        Raises:
            UnavailableError: when it is needed and ends before it has ever opened a port.
        """
        loop = asyncio.get_running_loop()
        delay = _FIRST_DELAY_S
        while True:
            began = loop.time()
            try:
                process = await self._start()
            except OSError as error:  # no memory, or too many processes
                ending, said = f"cannot be started ({error.strerror})", []
            else:
                code = await self._follow(process)
                ending, said = _describe(code), self._words() if code > 0 else []
            if self._is_stopping:
                return
            if self._is_needed and not self._has_listened:
                raise UnavailableError(f"{self.name} {ending} while starting; {self._log} ends with:\n{self._tail()}")
            if loop.time() - began > _STABLE_S:
                delay = _FIRST_DELAY_S
            reason = f" ({said[-1]})" if said else ""
            self._tell(f"{self.name} {ending}{reason}; starting it again in {delay:.1f} s")
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_DELAY_S)

    def send(self, line: str) -> None:
        """Write a line to the process's standard input; nothing happens when it is gone."""
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(line.encode() + b"\n")

    async def stop(self, patience_s: float) -> None:
        """End the process in order, or by force after ``patience_s`` seconds."""
        self._is_stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        _signal(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(patience_s):
                await process.wait()
        except TimeoutError:
            self._tell(f"{self.name} did not stop within {patience_s:g} s; ending it by force")
            _signal(process, signal.SIGKILL)
            await process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        log = self._open_log()
        try:
            return await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        finally:
            if log is not None:
                log.close()

    async def _follow(self, process: asyncio.subprocess.Process) -> int:
        """Listen to a process that was started, and return its exit code."""
        self._process = process
        if self._is_stopping:  # asked to while the process was being made
            _signal(process, signal.SIGTERM)
        _log.info("%s: process %d", self.name, process.pid)
        self._on_start(process.pid)
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            async for line in process.stdout:
                self._hear(line)
            return await process.wait()
        finally:
            process.stdin.close()

    def _hear(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict):
            _log.warning("%s said: %s", self.name, line.decode(errors="replace").rstrip())
            return
        if event.get("event") == "listening":
            self._has_listened = True
        self._on_event(event)

    def _open_log(self) -> BinaryIO | None:
        """Open the log, begun anew when it is large; None, our own standard error, where it cannot be."""
        try:
            if self._log.exists() and self._log.stat().st_size > _LOG_BYTES:
                self._log.replace(self._log.with_name(self._log.name + ".1"))
            log = self._log.open("ab")
        except OSError as error:
            self._tell(f"{self._log} cannot be written ({error.strerror}): {self.name} starts without it")
            return None
        self._log_start = log.tell()
        return log

    def _words(self) -> list[str]:
        """Return the lines that the process has written to its log since its start."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._log_start)
                return log.read().decode(errors="replace").split("\n")[:-1]
        except OSError:
            return []

    def _tail(self) -> str:
        return "\n".join(f"  {line}" for line in self._words()[-_TAIL_LINES:])


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:
        _log.debug("process %d is gone already", process.pid)


def _describe(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"
