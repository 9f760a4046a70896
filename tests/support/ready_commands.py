"""``enmasse`` for the shells of tests: a command is forked from a process that has imported all that it needs.

It has its own process, directory, environment, streams, signals and exit code, as any other, and starts in a tenth of
the time; ``up`` and its children, too. What else keeps running (``demo``, ``bench``, ...) is the installed program.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

from tests.support.ready_processes import CAN_FORK, ROOM, have_children_forked, import_installation

BIN = Path(sys.executable).parent
LONG = ("node", "control", "demo", "bench", "top", "tail", *(() if CAN_FORK else ("up",)))

CLIENT = """\
#!{python} -IS
import array, json, os, signal, socket, sys
if (sys.argv[1:2] or [""])[0] in {long!r}:
    os.execv({real!r}, [{real!r}, *sys.argv[1:]])
peer = socket.socket(socket.AF_UNIX)
peer.connect({place!r} + (".up" if sys.argv[1:2] == ["up"] else ""))
umask = os.umask(0)
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ), umask]).encode()
fds = array.array("i", [0, 1, 2])
peer.sendmsg([len(request).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
peer.sendall(request)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: peer.sendall(bytes([number])))
code = peer.recv(1)
os._exit(code[0] if code else 70)
"""


@functools.cache
def command_path() -> str:
    """Return a ``PATH`` on which ``enmasse`` starts soon, and all else is as it is installed."""
    folder = tempfile.TemporaryDirectory(prefix="enmasse-commands-")
    atexit.register(folder.cleanup)
    place = str(Path(folder.name) / "socket")
    script = Path(folder.name) / "enmasse"
    script.write_text(CLIENT.format(python=sys.executable, long=LONG, real=str(BIN / "enmasse"), place=place))
    script.chmod(0o755)
    command = [sys.executable, "-m", "tests.support.ready_commands", place, "-" * ROOM]
    root = str(Path(__file__).parents[2])
    # It ends with its input, whatever becomes of this process.
    environment = {**os.environ, "ENMASSE_TEST_ROOM": "-" * ROOM}
    server = subprocess.Popen(command, cwd=root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    server.stdout.close()
    atexit.register(server.wait)
    atexit.register(server.stdin.close)
    return f"{folder.name}:{BIN}:{os.environ['PATH']}"


def main(place: str) -> None:
    """Fork a command for each who connects, until the input ends."""
    from enmasse.cli.app import COMMANDS, run_app

    with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
        sys.argv = ["enmasse", "--help"]
        run_app()
        for name, command in COMMANDS.items():
            if name not in LONG:
                command.load()
        import enmasse.cli.api_client
        import enmasse.client.blocking  # noqa: F401
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listeners = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for listener, path in zip(listeners, (place, f"{place}.up"), strict=True):
        listener.bind(path)
        listener.listen(50)
    print("ready", flush=True)  # noqa: T201  # to who started this
    numbers = [listener.fileno() for listener in listeners]
    while 0 not in (asked := select.select([*numbers, 0], [], [])[0]):
        is_up = asked[0] == numbers[1]
        peer, _ = listeners[is_up].accept()
        if is_up:
            import_installation()
        if os.fork() == 0:
            for listener in listeners:
                listener.close()
            code = 1
            try:
                _become(peer)
                code = run_app()
            except SystemExit as end:
                code = int(end.code or 0)
            finally:
                for stream in (sys.stdout, sys.stderr):
                    with suppress(OSError):
                        stream.flush()
                with suppress(OSError):
                    peer.sendall(bytes([code]))
                os._exit(code)
        peer.close()


def _become(peer: socket.socket) -> None:
    """Take over the arguments, directory, environment, streams and signals of a client."""
    data, fds, _, _ = socket.recv_fds(peer, 4, 3)
    size = int.from_bytes(data, "big")
    request = b""
    while len(request) < size:
        more = peer.recv(size - len(request))
        if not more:
            os._exit(1)
        request += more
    arguments, directory, environment, umask = json.loads(request)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, closefd=False, encoding="utf-8", errors=errors)  # noqa: SIM115  # as long as it runs
        for number, mode, errors in ((0, "r", None), (1, "w", None), (2, "w", "backslashreplace"))
    )
    os.chdir(directory)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["enmasse", *arguments]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if arguments[:1] == ["up"]:
        have_children_forked(peer)
    threading.Thread(target=_heed, args=(peer,), daemon=True).start()


def _heed(peer: socket.socket) -> None:
    """Pass on the client's signals; who is killed takes its command along."""
    while number := peer.recv(1):
        os.kill(os.getpid(), number[0])
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
