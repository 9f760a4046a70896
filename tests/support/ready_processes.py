"""Programs of EnMasse that are forked from a process which has imported them: that is four fifths of their start.

Such a process is a child of who starts it, with its own id, session, directory, environment, streams, descriptors,
signals and exit code, and ``/proc`` shows its own arguments and environment. ``make soak`` starts each program as it
is installed.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import inspect
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.chance import is_long

__all__ = ["CAN_FORK", "ROOM", "ReadyPopen", "have_children_forked", "import_installation"]

OF_A_NODE = (
    "encodings.idna",
    "enmasse.cli.commands.run.node",
    "enmasse.node.amqp.binding",
    "enmasse.node.health_port",
    "enmasse.node.http.connection",
    "enmasse.node.main",
    "enmasse.node.mqtt.connection",
    "enmasse.node.stomp.connection",
)
IMPORTS = {
    "node": OF_A_NODE,
    "installation": (
        *OF_A_NODE,
        "anyio._backends._asyncio",
        "certifi",
        "cryptography.hazmat.backends.openssl.backend",
        "enmasse.cli.app",
        "enmasse.cli.commands.run.control",
        "enmasse.cli.commands.run.up",
        "enmasse.control_process.process",
        "enmasse.pipeline.host.command",
        "h2.connection",
        "httpcore",
        "uvicorn.lifespan.off",
    ),
}
"""What is imported beforehand, and also what each imports as it starts. A node alone is no larger than otherwise."""

CAN_FORK = sys.platform == "linux" and not is_long()
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
ROOM = 2048
"""Bytes more for arguments, and for the environment, than those of the process that forks."""
MESSAGE_BYTES = 128 * 1024
MAX_DESCRIPTORS = 250
FREE_NUMBERS = 300
"""From here on no program expects a descriptor."""
PATIENCE_S = 60.0


class ReadyPopen(subprocess.Popen[Any]):
    """Starts ``python -m enmasse... ARGUMENTS`` soon, and all else as its base does."""

    def _execute_child(self, *values: Any) -> None:
        base = super()._execute_child  # type: ignore[misc]
        asked = inspect.signature(base).bind(*values).arguments
        command = asked["args"]
        is_ours = isinstance(command, list | tuple) and list(command[:2]) == [sys.executable, "-m"]
        if not (CAN_FORK and is_ours and command[2].partition(".")[0] == "enmasse" and asked["preexec_fn"] is None):
            base(*values)
            return
        environment = os.environ if asked["env"] is None else asked["env"]
        umask = os.umask(0o022)
        os.umask(umask)
        numbers = sorted(map(int, asked["pass_fds"]))
        request = {
            "parent": os.getpid(),
            "module": command[2],
            "arguments": list(map(str, command[3:])),
            "directory": os.fspath(asked["cwd"] or Path.cwd()),
            "environment": {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()},
            "umask": umask,
            "has_session": asked["start_new_session"],
            "numbers": numbers,
        }
        streams = enumerate(asked[name] for name in ("p2cread", "c2pwrite", "errwrite"))
        self.pid = _fork(request, [number if fd == -1 else fd for number, fd in streams] + numbers)
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in ends))  # type: ignore[attr-defined]


_lock = threading.Lock()
_libc = ctypes.CDLL(None)
_peers: dict[tuple[int, str], socket.socket] = {}
"""What forks for a process, by its id: for what it starts, or for what any program has of children."""
_CHILDREN = "children"


def _fork(request: Mapping[str, Any], fds: list[int]) -> int:
    """Return the id of a new process, which is a child of this one."""
    group = "node" if (request["module"], *request["arguments"][:1]) == ("enmasse", "node") else "installation"
    with _lock:
        pid = os.getpid()
        if (peer := _peers.get((pid, _CHILDREN)) or _peers.get((pid, group))) is None:
            peer = _peers[pid, group] = _start(group)
        # Its parent ends at once, and it becomes a child of the next of its ancestors that takes such in.
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            socket.send_fds(peer, [json.dumps(request).encode()], fds)
            told = peer.recv(64)
        finally:
            _libc.prctl(PR_SET_CHILD_SUBREAPER, 0)
    assert told, "what forks processes has ended"
    return int(told)


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(PATIENCE_S)
    return ours, theirs


def _start(group: str) -> socket.socket:
    """Start what forks the processes of a group; it ends with this process."""
    ours, theirs = _pair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.ready_processes", group, str(theirs.fileno()), "-" * ROOM],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "ENMASSE_TEST_ROOM": "-" * ROOM},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def _serve(peer: socket.socket) -> None:
    """Fork a process for each request, in which this returns after its program; end when nobody asks any more."""
    gc.freeze()
    while True:
        data, fds, _, _ = socket.recv_fds(peer, MESSAGE_BYTES, MAX_DESCRIPTORS)
        if not data:
            os._exit(0)  # there is nothing to put in order, which would take as long as a node's start
        if (middle := os.fork()) == 0:
            if os.fork() != 0:
                os._exit(0)
            gc.unfreeze()
            _be(json.loads(data), fds, peer)
            return
        os.waitpid(middle, 0)
        for fd in fds:
            os.close(fd)


def _be(request: Mapping[str, Any], fds: Sequence[int], peer: socket.socket) -> None:
    """Be the program that was asked for."""
    patient_until = time.monotonic() + PATIENCE_S
    while os.getppid() != request["parent"]:
        if time.monotonic() > patient_until:  # whoever asked has ended
            os._exit(1)
        time.sleep(0.0005)
    if request["has_session"]:
        os.setsid()
    peer.send(str(os.getpid()).encode())
    peer.close()
    _take(fds, [0, 1, 2, *request["numbers"]])
    for number, mode, buffering, errors in (0, "r", -1, None), (1, "w", -1, None), (2, "w", 1, "backslashreplace"):
        stream = open(number, mode, buffering=buffering, closefd=False, encoding="utf-8", errors=errors)  # noqa: SIM115
        setattr(sys, ("stdin", "stdout", "stderr")[number], stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["directory"])
    sys.path[0] = request["directory"]
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    command = [sys.executable, "-m", request["module"], *request["arguments"]]
    _tell(command, [f"{name}={value}" for name, value in request["environment"].items()])
    if request["arguments"][:1] == ["up"]:
        have_children_forked()
    sys.argv = ["", *request["arguments"]]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def _take(fds: Sequence[int], numbers: Sequence[int]) -> None:
    """Give descriptors their numbers, which others of them may have had."""
    moved = []
    for fd in fds:
        moved.append(fcntl.fcntl(fd, fcntl.F_DUPFD, FREE_NUMBERS))
        os.close(fd)
    for fd, number in zip(moved, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)


def _tell(command: Iterable[str], environment: Iterable[str]) -> None:
    """Write this process's own arguments and environment where the kernel looks for them."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    for texts, begin, end in (command, fields[45], fields[46]), (environment, fields[47], fields[48]):
        size = int(end) - int(begin)
        data = b"".join(os.fsencode(text) + b"\0" for text in texts)
        ctypes.memmove(int(begin), data[: size - 1].ljust(size, b"\0"), size)


def have_children_forked(*own: socket.socket) -> None:
    """Leave behind what forks the children of this process, while it is still as it began.

    Args:
        own: what is this process's alone.
    """
    ours, theirs = _pair()
    if os.fork() == 0:
        for each in (ours, *own):
            each.close()
        os.setsid()
        with Path(os.devnull).open("r+b") as nothing:
            for number in (0, 1):
                os.dup2(nothing.fileno(), number)
        _serve(theirs)
        sys.exit()
    theirs.close()
    _peers[os.getpid(), _CHILDREN] = ours
    subprocess.Popen = ReadyPopen  # type: ignore[misc]


def import_installation() -> None:
    """Import what ``enmasse up`` and its children need."""
    for module in IMPORTS["installation"]:
        importlib.import_module(module)


def main(group: str, fd: str, *_: str) -> None:
    """Import what a group needs, and fork its processes."""
    gc.disable()
    for module in IMPORTS[group]:
        importlib.import_module(module)
    with socket.socket(fileno=int(fd)) as peer, suppress(KeyboardInterrupt):
        _serve(peer)


if __name__ == "__main__":
    main(*sys.argv[1:])
