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
5. With ``--alone`` it sees no other process: it has a space of process numbers, of which the first one is ours and
   reaps what is left behind. Outside a process stands for both; what it is told by a signal it hands on.
6. What the kernel offers beside files and TCP is refused (``syscalls.py``), where that is possible.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from enmasse.pipeline.host.cage import check, confine, enter_namespaces, make_view
from enmasse.pipeline.host.reach import RELAYED, Reach, parse_hosts, place_of
from enmasse.pipeline.host.syscalls import refuse_calls, why_unfiltered

# <linux/prctl.h>
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38

FILES = 16_384
PROCESSES = 4_096
"""Threads count too, and Java and Arrow have hundreds."""
FILE_BYTES = 64 << 30
"""Bytes of one file; Spark writes some hundred MiB."""
NICE = 5
OOM_SCORE = 500
_HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOOK_S = 1.0
_SIGNALLED = 128
"""A shell's exit status of what a signal has ended, less the signal."""
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
    parser.add_argument("--memory", type=int, default=0, help="bytes of all its processes, without a control group")
    parser.add_argument("--cores", type=int, default=0, help="cores that it has, without a control group")
    parser.add_argument("--cage", action="store_true", help="with a view and a network of its own")
    parser.add_argument("--alone", action="store_true", help="with --cage: with process numbers of its own")
    parser.add_argument("--everywhere", action="store_true", help="it may connect to whatever this machine reaches")
    parser.add_argument("--ours", action="append", default=[], help="HOST PORT of ours that it may reach")
    parser.add_argument("--hosts", default="", help="what an operator lets it reach besides")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(arguments)


def _become(options: argparse.Namespace) -> None:
    _die_with(options.parent)
    if options.cgroup:
        _join(options.cgroup)
    _limit(options.cores)
    ours = (word.split() for word in options.ours)
    reach = Reach([place_of(host, int(port), is_ours=True) for host, port in ours] + parse_hosts(options.hosts)[0])
    user = os.getuid() if options.user is None else options.user
    if options.cage:
        os.umask(0o022)  # its view is made for another user
        relay = None if options.everywhere else _start_relay(reach)
        within = None if relay is None else reach
        listening = enter_namespaces(within, is_alone=options.alone)
        if relay is not None:
            socket.send_fds(relay, [b"."], [item.fileno() for item in listening])
            for item in listening:
                item.close()
        if options.alone:
            outside = _leave_a_process(options)
        make_view(user, options.folder, options.see, options.hide, within, is_alone=options.alone)
    _change_user(options.user)
    # It is forgotten when the user or what it may do changes.
    if options.alone:
        _end_with(outside)
    else:
        _die_with(options.parent)
    check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    confine(None if options.cage or options.everywhere else _ports(reach))
    if not why_unfiltered():
        refuse_calls()
    if options.alone:
        _leave_the_first(options.memory)
    if options.cage and not options.everywhere:
        os.environ[RELAYED] = "1"
    os.umask(0o077)
    os.chdir(os.path.join(options.folder, options.work))  # noqa: PTH118  # as a path it says no more
    os.execve(options.command[0], options.command, os.environ)  # noqa: S606  # that is what this is for


def _leave_a_process(options: argparse.Namespace) -> int:
    """Go on as the first process of the new process numbers, and leave this one outside, which stands for it.

    Returns:
        What ends when that one does.
    """
    ending, alive = os.pipe()
    if child := os.fork():
        os.close(ending)
        os.chdir("/")
        _forget_files(0, 1)
        _change_user(options.user)
        _die_with(options.parent)
        check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
        _stand_for(child)
    os.close(alive)
    return ending


def _end_with(outside: int) -> None:
    """Have this process, and so all with its process numbers, end when the one outside does."""
    check(_libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "ending with the process outside")
    if select.select([outside], [], [], 0)[0]:
        sys.exit("the process outside has ended meanwhile")
    os.close(outside)


def _leave_the_first(memory: int) -> None:
    """Go on in another process, and leave the first one, which reaps whatever has lost its parent.

    Args:
        memory: bytes that all processes may have together; 0: that is somebody else's matter.
    """
    if child := os.fork():
        os.chdir("/")
        _forget_files(0, 1)
        check(_libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "a process that nobody traces")
        if memory:
            signal.signal(signal.SIGALRM, lambda *_: _look_after(memory))
            signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
        _stand_for(child)


def _look_after(memory: int) -> None:
    """End all processes if they have more memory than they may."""
    numbers = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  # as names
    # What processes share is in each of them, and is looked at closely only where that could be too much.
    if sum(map(_resident_bytes, numbers)) > memory and (used := sum(map(_shared_out_bytes, numbers))) > memory:
        print(  # noqa: T201  # the runner's log
            f"the processes of this runner have {used >> 20} MiB of memory together, more than the {memory >> 20} "
            "that they may: all of them are ended",
            file=sys.stderr,
            flush=True,
        )
        os._exit(_SIGNALLED + signal.SIGKILL)


def _resident_bytes(number: str) -> int:
    """Return the bytes of a process, with all that it shares."""
    try:
        return int(Path("/proc", number, "statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def _shared_out_bytes(number: str) -> int:
    """Return the bytes of a process that are not those of files, and of what it shares its part."""
    try:
        lines = Path("/proc", number, "smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    found = {words[0]: int(words[1]) << 10 for line in lines if (words := line.split())[0].startswith("Pss")}
    # Linux before 5.9 does not tell files apart.
    return found.get("Pss_Anon:", found.get("Pss:", 0)) + found.get("Pss_Shmem:", 0)


def _stand_for(child: int) -> NoReturn:
    """Hand signals on to a process, wait for it to end, and end as it did."""
    for number in _HANDED_ON:
        signal.signal(number, lambda got, _frame: os.kill(child, got))
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            if code > _SIGNALLED and os.getpid() != 1:
                # The first process cannot end by a signal of its own; its exit status says which one it was.
                code = _SIGNALLED - code
                if -code in _HANDED_ON:
                    signal.signal(-code, signal.SIG_DFL)
                os.kill(os.getpid(), -code)
            os._exit(code if code >= 0 else _SIGNALLED - code)


def _forget_files(*numbers: int) -> None:
    """Have nothing of the runner's open: who waits for its end would wait for this process."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in numbers:
        os.dup2(nothing, number)
    os.close(nothing)


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

    _forget_files(0, 1)
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


def _limit(cores: int) -> None:
    there = sorted(os.sched_getaffinity(0))
    if 0 < cores < len(there):
        # Not all runners have the first ones. That it is not changed is a matter of the filter of calls.
        first = os.getpid() % len(there)
        os.sched_setaffinity(0, (there[first:] + there[:first])[:cores])
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
