"""A node's handle on a process beside it, such as its journal: start, socket pair, end.

It knows nothing of what is said. A process that several nodes share was started by somebody else, and is reached by a
socket of its own.

No threads: the loop watches the socket and the process (a pidfd). The process is started by exec
with all other descriptors closed, as an inherited socket or lock would hide a death.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

A = TypeVar("A")

_SOCKET_BYTES = 1 << 18
"""Asked of the kernel: bounds what one turn of the loop copies; more only adds cold memory to each copy."""

_READ_BYTES = 1 << 13
_CHUNKS_PER_WRITE = 64
_CREDENTIALS = struct.Struct("iII")


class ProcessLink(Generic[A]):
    """A process at the other end of a socket.

    Args:
        loop: watches the socket.
        sock: the socket, connected.
        split: cuts complete answers off the front of what was received, and returns the rest too.
        on_answers: called with the answers of the process.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        split: Callable[[bytes], tuple[list[A], bytes]],
        on_answers: Callable[[list[A]], None],
    ) -> None:
        self._loop = loop
        self._split = split
        self._on_answers = on_answers
        self._queue: deque[bytes | memoryview] = deque()
        self._partial = b""
        self._ending = False
        self._reading = True
        self._socket = sock
        self._send = sock.send
        loop.add_reader(sock.fileno(), self._read)

    @property
    def pid(self) -> int:
        """Process id."""
        raise NotImplementedError

    @property
    def unsent(self) -> int:
        """The number of pieces that wait for the process to read."""
        return len(self._queue)

    def send(self, data: bytes) -> None:
        """Write now what the socket takes and the rest when it takes it.

        To a process that has died this does nothing.
        """
        if self._queue:
            self._queue.append(data)
            return
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # its end is noticed elsewhere
        if sent != len(data):
            self._queue.append(memoryview(data)[sent:])
            self._loop.add_writer(self._socket.fileno(), self._flush)

    def _flush(self) -> None:
        queue = self._queue
        while queue:
            try:
                sent = self._socket.sendmsg(list(islice(queue, _CHUNKS_PER_WRITE)))
            except BlockingIOError:
                return
            except OSError:
                queue.clear()
                break
            while sent:
                chunk = queue.popleft()
                if sent < len(chunk):
                    queue.appendleft(memoryview(chunk)[sent:])
                    break
                sent -= len(chunk)
        self._loop.remove_writer(self._socket.fileno())
        if self._ending:
            self._shut()

    def end(self) -> None:
        """Say that nothing follows; the process ends when it has committed what was sent."""
        if not self._ending:
            self._ending = True
            if not self._queue:
                self._shut()

    def _shut(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return  # dead already, as is noticed elsewhere

    def kill(self) -> None:
        """End the process at once, or the connection to it."""
        raise NotImplementedError

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            answers, self._partial = self._split(self._partial + data)
            if answers:
                self._on_answers(answers)
        else:
            self._loop.remove_reader(self._socket.fileno())
            self._reading = False
            self._has_shut()

    def _has_shut(self) -> None:
        """Called as the other end of the socket is closed."""
        raise NotImplementedError

    def _close(self) -> None:
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._queue.clear()


class PairedProcess(ProcessLink[A]):
    """One running process at the other end of a socket pair, which is started.

    Args:
        loop: watches the process and its socket.
        module: the module that it runs; given ``--fd N`` besides the arguments.
        arguments: the arguments of its command line.
        split: cuts complete answers off the front of what was received, and returns the rest too.
        on_answers: called with the answers of the process.
        on_ended: called once the process has ended, with its exit status (negative: signal),
            after all that it said.

    Raises:
        OSError: the process could not be started.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        module: str,
        arguments: list[str],
        split: Callable[[bytes], tuple[list[A], bytes]],
        on_answers: Callable[[list[A]], None],
        on_ended: Callable[[int], None],
    ) -> None:
        self._on_ended = on_ended
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        ours.setblocking(False)
        try:
            self._popen = _start(theirs.fileno(), module, arguments)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        super().__init__(loop, ours, split, on_answers)
        self._pidfd = os.pidfd_open(self._popen.pid)
        loop.add_reader(self._pidfd, self._exited)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._popen.pid

    def kill(self) -> None:
        """End the process at once; what it had not committed is lost to it."""
        self._popen.kill()

    def _has_shut(self) -> None:
        # The kernel closes the socket when the process ends, so this only ends a broken one.
        if not self._ending:
            self._popen.kill()

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        while self._reading:
            self._read()
        self._close()
        self._on_ended(self._popen.wait())


class SharedProcess(ProcessLink[A]):
    """A process that others have started, and other nodes use as well.

    Args:
        loop: watches its socket.
        path: the socket at which it is reached.
        split: cuts complete answers off the front of what was received, and returns the rest too.
        on_answers: called with the answers of the process.
        on_ended: called once the connection has ended, after all that it said.

    Raises:
        OSError: it cannot be reached, or is of another user.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        path: Path,
        split: Callable[[bytes], tuple[list[A], bytes]],
        on_answers: Callable[[list[A]], None],
        on_ended: Callable[[], None],
    ) -> None:
        self._on_ended = on_ended
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.setblocking(False)
            sock.connect(str(path))
            given = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except BaseException:
            sock.close()
            raise
        pid, user, _ = _CREDENTIALS.unpack(given)
        self._pid: int = pid
        if user != os.geteuid():
            sock.close()
            raise PermissionError(f"{path} belongs to user {user}")
        super().__init__(loop, sock, split, on_answers)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._pid

    def kill(self) -> None:
        """End the connection at once."""
        self._socket.shutdown(socket.SHUT_RDWR)  # the reader finds the end

    def _has_shut(self) -> None:
        self._close()
        self._on_ended()


def _start(fd: int, module: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", module, "--fd", str(fd), *arguments]
    # Blocked signals stay blocked through exec: no Ctrl-C can hit the process before it ignores them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        return subprocess.Popen(
            command, pass_fds=(fd,), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, close_fds=True
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
