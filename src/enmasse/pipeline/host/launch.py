"""Starts a runner with no more than it may have: ``python -I -S launch.py OPTIONS -- COMMAND``.

It runs before anything of ours is loaded, because what it takes away cannot be taken from a process that
has begun: it needs the standard library alone.

Rules:
1. A runner dies with the host, is the first to go when memory runs out, and yields to nodes and journals.
2. With ``--user`` it runs as that number, without other groups, and can never become anybody else.
3. Then it has a view of the file system of its own, if the kernel lets us make one: what is hidden is empty
   there, but for what it needs. Where we may not, the modes of files must do.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import signal
import stat
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

# <sched.h>, <sys/mount.h>, <linux/prctl.h>
CLONE_NEWNS = 0x00020000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38

FILES = 16_384
PROCESSES = 4_096
"""Threads count too, and Java and Arrow have hundreds."""
NICE = 5
OOM_SCORE = 500
PASSWORDS = "/etc/passwd"
TEMPORARY = "size=64m,mode=1777"
TEMPORARY_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  # to be hidden, not to be used

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: Sequence[str]) -> None:
    """Become the command; ends the process with a sentence when that cannot be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True, help="process id of who starts this")
    parser.add_argument("--user", type=int, help="number to run as")
    parser.add_argument("--folder", required=True, help="what it may write, and where it begins")
    parser.add_argument("--work", default="", help="below the folder: where it begins")
    parser.add_argument("--see", action="append", default=[], help="what it must be able to read")
    parser.add_argument("--hide", action="append", default=[], help="what it must not see")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    _die_with(options.parent)
    _limit()
    if options.user is not None:
        with suppress(PermissionError):  # then what is closed to others must be closed by its mode
            _make_view(options.user, options.folder, options.see, options.hide)
        os.setgroups([])
        os.setresgid(options.user, options.user, options.user)
        os.setresuid(options.user, options.user, options.user)
        _die_with(options.parent)  # it is forgotten when the user changes
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    os.umask(0o077)
    os.chdir(os.path.join(options.folder, options.work))  # noqa: PTH118  # a module less to load
    os.execve(options.command[0], options.command, os.environ)  # noqa: S606  # that is what this is for


def _die_with(parent: int) -> None:
    _check(_libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0), "dying with the host")
    if os.getppid() != parent:
        sys.exit("the host has ended meanwhile")


def _limit() -> None:
    for kind, wanted in (
        (resource.RLIMIT_CORE, 0),  # a core would hold passwords
        (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_NPROC, PROCESSES),
    ):
        hard = resource.getrlimit(kind)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (value, value))
    os.nice(NICE)
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123  # a module less to load
        file.write(str(OOM_SCORE))


def _make_view(user: int, folder: str, see: Sequence[str], hide: Sequence[str]) -> None:
    """Hide what is to be hidden, and make what is needed reachable.

    Raises:
        PermissionError: the kernel does not let us.
    """
    _check(_libc.unshare(CLONE_NEWNS), "a view of its own")
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    needed = [os.path.realpath(path) for path in (*see, folder)]
    closed = [found for path in needed if (found := _closed_above(path, user)) is not None]
    areas = _outermost(os.path.realpath(path) for path in (*TEMPORARY_FOLDERS, *hide, *closed) if os.path.isdir(path))  # noqa: PTH112
    kept = {path: os.open(path, os.O_PATH) for path in dict.fromkeys(needed) if _area_of(path, areas)}
    for area in areas:
        is_temporary = area in TEMPORARY_FOLDERS
        options = TEMPORARY if is_temporary else "size=1m,mode=755"
        _mount("tmpfs", area, "tmpfs", MS_NOSUID | MS_NODEV, options)
    for path, number in sorted(kept.items()):
        _place(path, number)
        _mount(f"/proc/self/fd/{number}", path, None, MS_BIND | MS_REC)
        if path != os.path.realpath(folder):
            _mount(None, path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
        os.close(number)
    _name(user, folder)
    for area in areas:
        if area not in TEMPORARY_FOLDERS:
            _mount(None, area, None, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, "size=1m,mode=755")


def _name(user: int, folder: str) -> None:
    """Give the number a name and a home: without, Java has neither, and Hadoop's part of Spark does not start."""
    draft = f"{TEMPORARY_FOLDERS[0]}/passwd"
    with open(PASSWORDS, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123  # a module less to load
        known = file.read()
    with open(draft, "w", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123  # the same
        file.write(f"{known.rstrip()}\nenmasse-{user}:x:{user}:{user}::{folder}/work:/usr/sbin/nologin\n")
    os.chmod(draft, 0o444)  # noqa: PTH101
    _mount(draft, PASSWORDS, None, MS_BIND)
    os.unlink(draft)  # noqa: PTH108


def _place(path: str, number: int) -> None:
    """Make what something can be mounted over."""
    if stat.S_ISDIR(os.fstat(number).st_mode):
        os.makedirs(path, mode=0o755, exist_ok=True)  # noqa: PTH103
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)  # noqa: PTH103, PTH120
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o444))


def _closed_above(path: str, user: int) -> str | None:
    """The outermost folder above a path that a user cannot pass."""
    parts = path.split("/")[1:-1]
    for count in range(1, len(parts) + 1):
        above = "/" + "/".join(parts[:count])
        found = os.stat(above)  # noqa: PTH116
        mode = found.st_mode >> 6 if found.st_uid == user else found.st_mode
        if not mode & stat.S_IXOTH:
            return above
    return None


def _outermost(paths: Iterable[str]) -> list[str]:
    found: list[str] = []
    for path in sorted(set(paths)):
        if not _area_of(path, found):
            found.append(path)
    return found


def _area_of(path: str, areas: Iterable[str]) -> str | None:
    return next((area for area in areas if path == area or path.startswith(area + "/")), None)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    words = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    _check(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), f"mounting {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        sys.exit(f"the runner cannot be started: {error.filename or ''}: {error.strerror or error}")
