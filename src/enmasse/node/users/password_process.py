"""The process that checks passwords beside a node, whose only thread must not wait for that, or beside several.

    python -m enmasse.node.users.password_process --fd N
    python -m enmasse.node.users.password_process --listen PATH

Started by ``enmasse.node.users.password_checker`` with one end of a socket pair; or by the supervisor for all nodes
of a machine, with the socket that they come to, and the secret of this start in a line on standard input. Rules:

1. Passwords come over the sockets alone, and stay in memory: nothing of them is logged or written, and the process
   leaves no core dump.
2. As many threads as there are processors, less one for the node, each do one check at a time (the hash function
   lets the others run), at a lower priority than the node's. Answers come as they are found, each with its number.
3. It ends at end of file, at once: whatever it was busy with, nobody waits for that any more. SIGINT and SIGTERM are
   for the node, if it is of one. Few imports: logins wait while it starts.
4. One node cannot hold up another: one that does not read its answers loses its connection.
5. Nodes that share it count failed logins together: what one reports is passed on to the others, and one that comes,
   as it was started again, is told of those that count still. A password that was right for one is known for all.
"""

from __future__ import annotations

import ctypes
import hmac
import os
import resource
import secrets
import signal
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Final

from enmasse.identity.password_checks import (
    REPORT,
    SECRET,
    CheckResult,
    Frame,
    encode_answer,
    encode_passed_report,
    split_frames,
)
from enmasse.identity.throttle import (
    NETWORK_FAILURES,
    NETWORK_FORGET_S,
    USER_FAILURES,
    USER_FORGET_S,
    LoginStep,
)

NICENESS = 3
"""The node and its journal get twice as much of a processor that all want; more would starve logins beside others."""

MAX_THREADS = 8
"""More passwords at once than a node has logins in the same time."""

REMEMBERED: Final = 32_768
"""Passwords that are known to be right, of all nodes."""

FAILED_BYTES: Final = 1 << 16
"""The bytes of failed logins that a node is told when it comes; no more, as they wait in its socket."""

COUNTED_S: Final = max(NETWORK_FAILURES * NETWORK_FORGET_S, USER_FAILURES * USER_FORGET_S)
"""The time for which a failed login may count."""

_READ_BYTES = 1 << 16
_FAILED = bytes((LoginStep.FAILED,))
_PR_SET_DUMPABLE = 4
_CREDENTIALS = struct.Struct("iII")


def thread_count() -> int:
    """Return the number of threads: one processor is left to the node."""
    return min(MAX_THREADS, max(1, len(os.sched_getaffinity(0)) - 1))


class Node:
    """The connection of a node.

    Args:
        sock: the socket, blocking.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = Lock()
        """Answers of several threads do not mix."""

    def read(self) -> bytes:
        """Return what has come; nothing once the node has gone."""
        try:
            return self._socket.recv(_READ_BYTES)
        except OSError:
            return b""

    def tell(self, data: bytes) -> None:
        """Write something; a node that does not read loses its connection."""
        with self._lock, suppress(OSError):
            try:
                sent = self._socket.send(data, socket.MSG_DONTWAIT)
            except OSError:
                sent = 0
            if sent != len(data):
                self._socket.shutdown(socket.SHUT_RDWR)  # whoever reads finds the end

    def close(self) -> None:
        """Close the socket."""
        with self._lock:
            self._socket.close()


class Worker:
    """Does checks, each in one of its threads, and answers.

    Args:
        remembers: true if what was right is known from then on.
    """

    def __init__(self, *, remembers: bool = False) -> None:
        self._work: SimpleQueue[tuple[Node, Frame]] = SimpleQueue()
        self._threads = thread_count()
        self._nodes: set[Node] = set()
        self._lock = Lock()
        self._key = secrets.token_bytes(32) if remembers else b""
        self._right: dict[bytes, None] = {}
        """The signatures of passwords that were right."""
        self._failed: deque[tuple[float, bytes]] = deque()
        """The times of failed logins, and their reports as they are passed on."""
        self._failed_bytes = 0
        for _ in range(self._threads):
            Thread(target=self._check, daemon=True).start()

    def serve(self, node: Node, secret: str = "") -> None:
        """Take a node's checks until it goes.

        Args:
            node: the node's connection.
            secret: what it has to say first; empty: nothing.
        """
        partial = b""
        is_known = not secret
        if is_known:
            self._welcome(node)
        while data := node.read():
            frames, partial = split_frames(partial + data)
            if not is_known and frames:
                first = frames.pop(0)
                if first.kind != SECRET or not hmac.compare_digest(first.body, secret.encode()):
                    break
                is_known = True
                self._welcome(node)
            if not is_known and len(partial) > _READ_BYTES:
                break
            for frame in frames:
                if frame.kind == REPORT:
                    self._pass_on(node, frame.body)
                else:
                    self._work.put((node, frame))
        with self._lock:
            self._nodes.discard(node)
        node.close()

    def _welcome(self, node: Node) -> None:
        since = time.monotonic() - COUNTED_S
        with self._lock:
            self._nodes.add(node)
            failed = [report for at, report in self._failed if at >= since]
        node.tell(b"".join((encode_answer(CheckResult.READY, self._threads), *failed)))

    def _pass_on(self, node: Node, report: bytes) -> None:
        data = encode_passed_report(report)
        with self._lock:
            others = [other for other in self._nodes if other is not node]
            if report[:1] == _FAILED:
                self._failed.append((time.monotonic(), data))
                self._failed_bytes += len(data)
                while self._failed_bytes > FAILED_BYTES:
                    self._failed_bytes -= len(self._failed.popleft()[1])
        for other in others:
            other.tell(data)

    def _check(self) -> None:
        while True:
            node, frame = self._work.get()
            result = CheckResult.FAILED
            with suppress(ValueError, OverflowError):  # what is stored cannot be used
                result = self._result_of(frame)
            node.tell(encode_answer(result, frame.number))

    def _result_of(self, frame: Frame) -> CheckResult:
        signature = b""
        if self._key:
            signature = blake2b(frame.body, key=self._key, person=bytes((frame.kind,))).digest()
            if signature in self._right:
                return CheckResult.RIGHT
        check = frame.check
        if check is None:
            return CheckResult.FAILED
        if not check.is_right():
            return CheckResult.WRONG
        if self._key:
            with self._lock:
                if len(self._right) >= REMEMBERED:
                    del self._right[next(iter(self._right))]
                self._right[signature] = None
        return CheckResult.RIGHT


def listen(path: str, secret: str) -> None:
    """Serve nodes that come to a socket; it never returns."""
    Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    os.umask(0o177)
    listener.bind(path)
    listener.listen()
    worker = Worker(remembers=True)
    os.write(1, b'{"event": "listening"}\n')
    while True:
        sock, _ = listener.accept()
        _, user, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if user == os.geteuid():
            Thread(target=worker.serve, args=(Node(sock), secret), daemon=True).start()
        else:
            sock.close()


def _end_with_input() -> None:
    while os.read(0, _READ_BYTES):
        pass
    os._exit(0)


def _leave_no_dump() -> None:
    """Have the kernel write no core dump, neither to a file nor to a program, and let nobody trace the process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def main(arguments: list[str]) -> None:
    """Run the process for command-line arguments (without the program's name)."""
    _leave_no_dump()
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    if "--fd" in options:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.nice(NICENESS)
    if "--fd" in options:
        Worker().serve(Node(socket.socket(fileno=int(options["--fd"]))))
        os._exit(0)  # threads that are busy are not waited for
    secret = sys.stdin.readline().strip()
    if not secret:
        sys.exit("enmasse: the line with the secret of this start is missing on standard input")
    Thread(target=_end_with_input, daemon=True).start()
    listen(options["--listen"], secret)


if __name__ == "__main__":
    main(sys.argv[1:])
