"""Becomes a runner with no more than it may have: ``python -I -S -c ... OPTIONS -- COMMAND``.

It runs before anything of ours is loaded, because what it takes away cannot be taken from a process that
has begun: it, and what it imports, needs the standard library alone.

Rules:
1. A runner dies with the host, is the first to go when memory runs out, and yields to nodes and journals.
2. With ``--user`` it runs as that number, without other groups, and can never become anybody else.
3. With ``--cage`` it has a view of the file system and a network of its own (``cage.py``), and a relay beside it
   that carries its connections to the places of ``--ours`` and ``--hosts`` (``relay.py``); with ``--everywhere``
   the view alone.
4. Without, the modes of files must do, and Landlock refuses other ports than those, if the kernel has it.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from enmasse.pipeline.host.cage import check, confine, enter_namespaces, make_view
from enmasse.pipeline.host.reach import RELAYED, Reach, parse_hosts, place_of

# <linux/prctl.h>
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38

FILES = 16_384
PROCESSES = 4_096
"""Threads count too, and Java and Arrow have hundreds."""
FILE_BYTES = 64 << 30
"""Bytes of one file; Spark writes some hundred MiB."""
NICE = 5
OOM_SCORE = 500
RELAYS = 58_001
"""The number that relays run as where EnMasse is root; no space's processes do."""

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: Sequence[str]) -> None:
    """Become the command; ends the process with a sentence when that cannot be."""
    try:
        _become(_options(arguments))
    except OSError as error:
        sys.exit(f"the runner cannot be started: {error.filename or ''}: {error.strerror or error}")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True, help="process id of who starts this")
    parser.add_argument("--user", type=int, help="number to run as")
    parser.add_argument("--folder", required=True, help="what it may write, and where it begins")
    parser.add_argument("--work", default="", help="below the folder: where it begins")
    parser.add_argument("--see", action="append", default=[], help="what it must be able to read")
    parser.add_argument("--hide", action="append", default=[], help="what it must not see")
    parser.add_argument("--cgroup", default="", help="the control group that bounds it")
    parser.add_argument("--cage", action="store_true", help="with a view and a network of its own")
    parser.add_argument("--everywhere", action="store_true", help="it may connect to whatever this machine reaches")
    parser.add_argument("--ours", action="append", default=[], help="HOST PORT of ours that it may reach")
    parser.add_argument("--hosts", default="", help="what an operator lets it reach besides")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(arguments)


def _become(options: argparse.Namespace) -> None:
    _die_with(options.parent)
    if options.cgroup:
        _join(options.cgroup)
    _limit()
    ours = (word.split() for word in options.ours)
    reach = Reach([place_of(host, int(port), is_ours=True) for host, port in ours] + parse_hosts(options.hosts)[0])
    user = os.getuid() if options.user is None else options.user
    if options.cage:
        os.umask(0o022)  # its view is made for another user
        relay = None if options.everywhere else _start_relay(reach)
        listening = enter_namespaces(None if relay is None else reach)
        make_view(user, options.folder, options.see, options.hide, None if relay is None else reach)
        if relay is not None:
            socket.send_fds(relay, [b"."], [item.fileno() for item in listening])
            for item in listening:
                item.close()
    _change_user(options.user)
    _die_with(options.parent)  # it is forgotten when the user or what it may do changes
    check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    confine(None if options.cage or options.everywhere else _ports(reach))
    if options.cage and not options.everywhere:
        os.environ[RELAYED] = "1"
    os.umask(0o077)
    os.chdir(os.path.join(options.folder, options.work))  # noqa: PTH118  # as a path it says no more
    os.execve(options.command[0], options.command, os.environ)  # noqa: S606  # that is what this is for


def _start_relay(reach: Reach) -> socket.socket:
    """Fork the process that stays outside; what it is to be given the sockets by, and is open as long as it runs."""
    here, there = socket.socketpair()
    if os.fork() == 0:
        here.close()
        try:
            _be_relay(there, reach)
        finally:
            os._exit(1)
    there.close()
    here.set_inheritable(True)
    # Whoever has lost it has lost its connections for ever: it ends, and is started again with another.
    fcntl.fcntl(here, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(here, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(here, fcntl.F_SETFL, fcntl.fcntl(here, fcntl.F_GETFL) | os.O_ASYNC)
    return here


def _be_relay(runner: socket.socket, reach: Reach) -> None:
    from enmasse.pipeline.host.relay import carry  # noqa: PLC0415  # the runner need not wait until that is loaded

    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):  # they are the runner's
        os.dup2(nothing, number)
    os.chdir("/")
    _change_user(RELAYS if os.getuid() == 0 else None)
    check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    check(_libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "a process that nobody traces")
    carry(runner, reach)


def _change_user(number: int | None) -> None:
    if number is not None:
        os.setgroups([])
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)


def _ports(reach: Reach) -> Iterator[int]:
    """Yield the ports of all places, and those that the system gives out by itself, which Spark's processes have."""
    yield from {place.port for place in reach.places}
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split())
    yield from range(first, last + 1)


def _die_with(parent: int) -> None:
    check(_libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0), "dying with the host")
    if os.getppid() != parent:
        sys.exit("the host has ended meanwhile")


def _join(group: str) -> None:
    try:
        Path(group, "cgroup.procs").write_text("0", encoding="ascii")
    except OSError as error:  # it is a bound of what runs, and no reason not to run
        print(f"the memory of this runner is not bounded: {error}", file=sys.stderr)  # noqa: T201  # the runner's log


def _limit() -> None:
    for kind, wanted in (
        (resource.RLIMIT_CORE, 0),  # a core would hold passwords
        (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_NPROC, PROCESSES),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
    ):
        hard = resource.getrlimit(kind)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (value, value))
    os.nice(NICE)
    Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE), encoding="ascii")
