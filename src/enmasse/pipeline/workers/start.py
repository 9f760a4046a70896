"""The program that Spark starts as Python: has the zygote fork a process for it, and stands for that process.

    python -I -S start.py SOCKET -m MODULE ARGUMENT ...

It needs the standard library alone, and little of that: it is there as long as the process that it stands for.
A signal to it reaches that process. Without a zygote it becomes the process itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

_HANDED_ON = (signal.SIGTERM, signal.SIGHUP)
"""SIGINT is not: a terminal sends it to all, and Spark's processes ignore it."""


def main(path: str, arguments: Sequence[str]) -> int:
    """Start the process, wait for it to end; its exit status."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as zygote:
        # The process may run, and be known, before anybody could hand a signal on.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDED_ON)
        child = _ask(zygote, path, arguments)
        if child is None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDED_ON)
            os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606  # what Spark asked for
        for number in _HANDED_ON:
            signal.signal(number, lambda got, _frame: zygote.sendall(bytes([got])))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDED_ON)
        with suppress(OSError):
            if status := zygote.recv(1):
                return status[0]
    # It is the zygote that has gone: nothing else would report the end of the process.
    with suppress(OSError):
        os.kill(child, signal.SIGKILL)
    return 1


def _ask(zygote: socket.socket, path: str, arguments: Sequence[str]) -> int | None:
    """Return the process that was made; None if there will be none."""
    asked = {"arguments": list(arguments), "environment": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109  # a module less
    request = json.dumps(asked).encode()
    try:
        zygote.connect(path)
        socket.send_fds(zygote, [len(request).to_bytes(4, "big")], [0, 1, 2])
        zygote.sendall(request)
        answer = zygote.recv(4)  # comes once it has loaded what it is to share
    except OSError:
        return None
    return int.from_bytes(answer, "big") or None


if __name__ == "__main__":
    # It has written nothing, and what Python does at its end could only change the status.
    os._exit(main(sys.argv[1], sys.argv[2:]))
