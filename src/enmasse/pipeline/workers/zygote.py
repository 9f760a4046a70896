"""A process with all loaded that Spark's Python processes need, forked for each of them: it shares that memory.

    python -m enmasse.pipeline.workers.zygote SOCKET_NUMBER

Loading takes half a second and 40 MB, and a session has four such processes and one more for each query.
It ends with its standard input, and the processes that it made end with it.

What a process asks for (``start.py``), on a connection of its own: the length of a JSON object in four bytes, with
its standard files, and the object: ``arguments`` of Python, ``environment`` and ``folder``. The answer is the number
of the process in four bytes, or none where it cannot be forked, and once it has ended its exit status in one byte.
Meanwhile each byte that comes is a signal to it; if the connection is closed, it is killed.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyspark.sql.streaming.python_streaming_source_runner
import pyspark.sql.worker.create_data_source
import pyspark.sql.worker.lookup_data_sources
import pyspark.sql.worker.plan_data_source_read
import pyspark.sql.worker.write_into_data_source  # noqa: F401  # loaded for the forks, as those above

import enmasse.pipeline.workers.daemon  # noqa: F401  # with what it loads

_REQUEST_S: Final = 5.0
_LONGEST_REQUEST: Final = 1 << 22
"""Environments are as large as the system lets them be."""
_HASH_SEED: Final = "PYTHONHASHSEED"
"""Python reads it when it starts."""


@dataclass(frozen=True, slots=True)
class Request:
    """The process that somebody asked for.

    Attributes:
        module: to be run.
        arguments: the arguments of the module.
        environment: all of it.
        folder: the folder in which it begins.
        files: its standard input, output and error.
    """

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    files: Sequence[int]


def serve(listening: socket.socket, lifeline: int) -> Request | None:
    """Fork a process for each who asks.

    Args:
        listening: the socket at which they ask.
        lifeline: the file that is open for reading as long as this is to go on.

    Returns:
        In a process that was forked, what it is to become; None in this one, at its end.
    """
    return _Zygote(listening, lifeline).run()


class _Zygote:
    def __init__(self, listening: socket.socket, lifeline: int) -> None:
        self._listening = listening
        self._lifeline = lifeline
        self._connections: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._waking = socket.socketpair()

    def run(self) -> Request | None:
        self._waking.setblocking(False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)
        for file in (self._listening, self._lifeline, self._woken):
            self._selector.register(file, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == self._lifeline:
                    return None
                if key.fileobj is self._woken:
                    self._woken.recv(4096)
                    self._reap()
                elif key.fileobj is self._listening:
                    if (request := self._fork()) is not None:
                        return request
                else:
                    self._signal(key.data)

    def _fork(self) -> Request | None:
        """Return what the fork is to become; None in this process."""
        connection, _ = self._listening.accept()
        connection.settimeout(_REQUEST_S)
        try:
            request = _receive(connection)
        except (OSError, ValueError, KeyError, TypeError):
            connection.close()
            return None
        try:
            child = os.fork()
        except OSError:  # there are too many already; the caller starts one itself
            child = None
        if child == 0:
            connection.close()
            self._close()
            return request
        for number in request.files:
            os.close(number)
        if child is None:
            connection.close()
            return None
        self._connections[child] = connection
        self._selector.register(connection, selectors.EVENT_READ, child)
        with suppress(OSError):
            connection.sendall(child.to_bytes(4, "big"))
        return None

    def _signal(self, child: int) -> None:
        if child not in self._connections:
            return  # it has ended since this was reported
        try:
            numbers = self._connections[child].recv(16)
        except OSError:
            numbers = b""
        for number in numbers or (signal.SIGKILL,):
            os.kill(child, number)
        if not numbers:
            self._forget(child)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                child, status = found
                if child in self._connections:
                    code = os.waitstatus_to_exitcode(status)
                    with suppress(OSError):
                        self._connections[child].sendall(bytes([code if code >= 0 else 128 - code]))
                    self._forget(child)

    def _forget(self, child: int) -> None:
        connection = self._connections.pop(child)
        self._selector.unregister(connection)
        connection.close()

    def _close(self) -> None:
        """Leave nothing of this in a fork."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for file in (self._listening, self._woken, self._waking, *self._connections.values()):
            file.close()


def _receive(connection: socket.socket) -> Request:
    head, files, _, _ = socket.recv_fds(connection, 4, 3)
    try:
        with connection.makefile("rb") as stream:
            text = stream.read(min(int.from_bytes(head, "big"), _LONGEST_REQUEST))
        return _understand(text, files)
    except BaseException:
        for number in files:
            os.close(number)
        raise


def _understand(text: bytes, files: Sequence[int]) -> Request:
    asked = json.loads(text)
    option, module, *arguments = asked["arguments"]
    environment = asked["environment"]
    if option != "-m" or len(files) != 3 or environment.get(_HASH_SEED) != os.environ.get(_HASH_SEED):
        raise ValueError("this cannot be forked")
    return Request(module, arguments, environment, asked["folder"], files)


def become(request: Request) -> None:
    """Go on as ``python -m MODULE ARGUMENT ...``."""
    for number, file in enumerate(request.files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.path[0] = request.folder
    sys.argv = [request.module, *request.arguments]
    # Else runpy warns that it has been loaded before.
    sys.modules.pop(request.module, None)
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    # Else a collection in a fork writes to each page that holds objects, and so copies it.
    gc.freeze()
    found = serve(socket.socket(fileno=int(sys.argv[1])), sys.stdin.fileno())
    if found is not None:
        become(found)
