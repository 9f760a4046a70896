"""The process that checks passwords beside a node, whose only thread must not wait for that.

    python -m enmasse.node.users.password_process --fd N

Started by ``enmasse.node.users.password_checker`` with one end of a socket pair. Rules:

1. Passwords come over the socket alone, and stay in memory: nothing of them is logged or written, and the process
   leaves no core dump.
2. As many threads as there are processors, less one for the node, each do one check at a time (the hash function
   lets the others run), at a lower priority than the node's. Answers come as they are found, each with its number.
3. It ends at end of file, at once: whatever it was busy with, nobody waits for that any more. SIGINT and SIGTERM are
   for the node. Few imports: logins wait while it starts.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread

from enmasse.identity.password_checks import CheckResult, PasswordCheck, encode_answer, split_checks

NICENESS = 3
"""The node and its journal get twice as much of a processor that all want; more would starve logins beside others."""

MAX_THREADS = 8
"""More passwords at once than a node has logins in the same time."""

_READ_BYTES = 1 << 16
_PR_SET_DUMPABLE = 4

_Work = SimpleQueue[tuple[int, PasswordCheck | None]]


def thread_count() -> int:
    """Return the number of threads: one processor is left to the node."""
    return min(MAX_THREADS, max(1, len(os.sched_getaffinity(0)) - 1))


class Worker:
    """Does checks, each in one of its threads, and answers.

    Args:
        fd: its end of the socket pair, blocking.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._work: _Work = SimpleQueue()
        self._lock = Lock()
        """Answers of several threads do not mix."""

    def run(self) -> None:
        """Work until the node closes its end."""
        threads = thread_count()
        for _ in range(threads):
            Thread(target=self._check, daemon=True).start()
        self._answer(CheckResult.READY, threads)
        partial = b""
        while data := self._read():
            checks, partial = split_checks(partial + data)
            for found in checks:
                self._work.put(found)

    def _check(self) -> None:
        while True:
            number, check = self._work.get()
            result = CheckResult.FAILED
            if check is not None:
                with suppress(ValueError, OverflowError):  # what is stored cannot be used
                    result = CheckResult.RIGHT if check.is_right() else CheckResult.WRONG
            self._answer(result, number)

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, _READ_BYTES)
        except ConnectionResetError:
            return b""

    def _answer(self, result: CheckResult, number: int) -> None:
        data = encode_answer(result, number)
        with self._lock:
            while data:
                try:
                    data = data[os.write(self._fd, data) :]
                except (BrokenPipeError, ConnectionResetError):
                    return  # end of file follows


def _leave_no_dump() -> None:
    """Have the kernel write no core dump, neither to a file nor to a program, and let nobody trace the process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def main(arguments: list[str]) -> None:
    """Run the process for command-line arguments (without the program's name)."""
    _leave_no_dump()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.nice(NICENESS)
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    Worker(int(options["--fd"])).run()
    os._exit(0)  # threads that are busy are not waited for


if __name__ == "__main__":
    main(sys.argv[1:])
