"""A child process: started, restarted when it dies, stopped in order; and how a child ends with its supervisor.

The end of standard input tells a child that reads it. The kernel's signal also
reaches one that is busy or has not come so far.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

from enmasse.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

_log = logging.getLogger(__name__)

_FIRST_DELAY_S = 0.1  # a process that died once is wanted back at once
_LONGEST_DELAY_S = 10.0
_CHECK_AGAIN_S = 2.0
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
        log: the file of its standard error; the former log is kept once it is large.
        on_start: called with the process id of each new process.
        on_end: called as a process has ended.
        on_event: called with each JSON object that it prints.
        report: shows a sentence to the user.
        descriptors: those that it inherits, under the same numbers.
        check: called before each start; raises ``ConfigError`` while it may not be started.
        is_needed: asked when the process ends before it has ever opened a port: true if that is an error; else it
            is started again then, too.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        on_start: Callable[[int], None] = lambda _pid: None,
        on_end: Callable[[], None] = lambda: None,
        on_event: Callable[[Event], None],
        report: Callable[[str], None],
        descriptors: Iterable[int] = (),
        check: Callable[[], None] | None = None,
        is_needed: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name = name
        self._command = command
        self._log = log
        self._on_start = on_start
        self._on_end = on_end
        self._on_event = on_event
        self._report = report
        self._descriptors = tuple(descriptors)
        self._check = check
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
        while await self._may_start():
            began = loop.time()
            try:
                process = await self._start()
            except OSError as error:  # no memory, or too many processes
                ending, lines = f"cannot be started ({error.strerror})", []
            else:
                code = await self._follow(process)
                ending, lines = _describe(code), self._log_lines() if code > 0 else []
            if self._is_stopping:
                return
            if not self._has_listened and self._is_needed():
                raise UnavailableError(f"{self.name} {ending} while starting; {self._log} ends with:\n{self._tail()}")
            if loop.time() - began > _STABLE_S:
                delay = _FIRST_DELAY_S
            reason = f" ({lines[-1]})" if lines else ""
            self._report(f"{self.name} {ending}{reason}; starting it again in {delay:.1f} s")
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_DELAY_S)

    async def _may_start(self) -> bool:
        """Wait until the process may be started; return false if it is not to be any more."""
        told = ""
        while self._check is not None:
            try:
                self._check()
                break
            except ConfigError as error:
                if str(error) != told:
                    told = str(error)
                    self._report(f"{self.name} is not started: {told}. It is, once that is mended")
                await asyncio.sleep(_CHECK_AGAIN_S)
        return not self._is_stopping

    def send(self, line: str) -> None:
        """Write a line to the process's standard input; nothing happens when it has ended."""
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
            self._report(f"{self.name} did not stop within {patience_s:g} s; ending it by force")
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
                pass_fds=self._descriptors,
            )
        finally:
            if log is not None:
                log.close()

    async def _follow(self, process: asyncio.subprocess.Process) -> int:
        """Handle the events of a process that was started, and return its exit code."""
        self._process = process
        if self._is_stopping:  # requested while the process was being made
            _signal(process, signal.SIGTERM)
        _log.info("%s: process %d", self.name, process.pid)
        self._on_start(process.pid)
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            async for line in process.stdout:
                self._handle_line(line)
            return await process.wait()
        finally:
            process.stdin.close()
            self._on_end()

    def _handle_line(self, line: bytes) -> None:
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
            self._report(f"{self._log} cannot be written ({error.strerror}): {self.name} starts without it")
            return None
        self._log_start = log.tell()
        return log

    def _log_lines(self) -> list[str]:
        """Return the lines that the process has written to its log since its start."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._log_start)
                return log.read().decode(errors="replace").split("\n")[:-1]
        except OSError:
            return []

    def _tail(self) -> str:
        return "\n".join(f"  {line}" for line in self._log_lines()[-_TAIL_LINES:])


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:
        _log.debug("process %d has ended already", process.pid)


def _describe(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"


_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def die_with_parent() -> None:
    """Let the kernel send SIGTERM to this process when the thread that started it ends; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


async def end_of_input() -> None:
    """Wait until standard input ends, because the supervisor has."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while await reader.read(4096):
            pass
    finally:
        transport.close()
