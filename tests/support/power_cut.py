"""What a power cut leaves: a program's file operations are recorded, and those that were not synced are dropped.

A tracer (``ptrace``, so nothing of the program is replaced, LMDB and SQLite neither) sees each write, sync, creation,
renaming and removal below a directory, and each line that the program says. From that a state of the disk is put
together for any moment: what was synced is there, of the rest a part by chance, and a name is there once its
directory was synced.

    python -m tests.support.power_cut DIRECTORY EVENTS PROGRAM...
"""

from __future__ import annotations

import ctypes
import os
import pickle
import platform
import random
import signal
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Disk", "Event", "record"]

SECTOR = 512

Event = tuple[Any, ...]
"""Of a file: ("write", path, offset, data, is_synced), ("truncate", path, size), ("sync", path). Of names:
("create" or "mkdir", path), ("rename", path, path), ("remove", path). ("said", line)."""

_X86 = {
    1: "write", 2: "open", 18: "pwrite", 20: "writev", 74: "sync", 75: "sync", 77: "ftruncate", 82: "rename",
    83: "mkdir", 84: "remove", 87: "remove", 257: "openat", 258: "mkdirat", 263: "removeat", 264: "renameat",
    296: "pwritev", 316: "renameat",
}  # fmt: skip
_ARM = {
    64: "write", 68: "pwrite", 66: "writev", 82: "sync", 83: "sync", 46: "ftruncate", 34: "mkdirat", 35: "removeat",
    38: "renameat", 56: "openat", 70: "pwritev", 276: "renameat",
}  # fmt: skip
_CALLS = {"x86_64": _X86, "aarch64": _ARM}.get(platform.machine(), {})
_SEIZE, _INTERRUPT, _SYSCALL, _LISTEN, _SYSCALL_INFO = 0x4206, 0x4207, 24, 0x4208, 0x420E
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10  # TRACESYSGOOD, fork, vfork, clone, exec
_WALL = 0x40000000
_INFO = struct.Struct("<BxxxIQQ7Q")
_ENTRY, _EXIT = 1, 2
_SYNCED = os.O_DSYNC | os.O_SYNC

_libc = ctypes.CDLL(None, use_errno=True)


def _ptrace(request: int, pid: int, address: int = 0, data: Any = 0) -> int:
    pointer = data if isinstance(data, ctypes.Array) else ctypes.c_void_p(data)
    result: int = _libc.ptrace(request, pid, ctypes.c_void_p(address), pointer)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")
    return result


class _Tracer:
    """Follows a process with all that it starts.

    Args:
        root: the directory that is looked at.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._entered: dict[int, tuple[str, tuple[int, ...], Event | None]] = {}
        self._known: set[str] = set()
        self.events: list[Event] = []

    def follow(self, process: subprocess.Popen[bytes]) -> None:
        """Record until the process has ended."""
        _ptrace(_SEIZE, process.pid, 0, _OPTIONS)
        _ptrace(_INTERRUPT, process.pid)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
        while True:
            try:
                pid, status = os.waitpid(-1, _WALL)
            except ChildProcessError:
                return
            if not os.WIFSTOPPED(status):
                continue
            number, event = os.WSTOPSIG(status), status >> 16
            deliver = 0
            if number == signal.SIGTRAP | 0x80:
                self._call(pid)
            elif not event and number != signal.SIGTRAP:
                deliver = number
            try:
                _ptrace(_SYSCALL, pid, 0, deliver)
            except ProcessLookupError:
                continue

    def _call(self, pid: int) -> None:
        buffer = ctypes.create_string_buffer(_INFO.size + 16)
        _ptrace(_SYSCALL_INFO, pid, len(buffer), buffer)
        kind, _, _, _, first, *rest = _INFO.unpack_from(buffer)
        if kind == _ENTRY:
            name = _CALLS.get(first)
            if name is not None:
                self._entered[pid] = (name, tuple(rest), self._before(pid, name, rest))
        elif kind == _EXIT and pid in self._entered:
            name, arguments, event = self._entered.pop(pid)
            result = struct.unpack("<q", struct.pack("<Q", first))[0]
            if result >= 0:
                self._after(pid, name, arguments, result, event)

    def _before(self, pid: int, name: str, a: list[int]) -> Event | None:
        """What is lost once the call is done: what was written, and from where."""
        if name in ("write", "pwrite", "writev", "pwritev"):
            path = self._path_of(pid, a[0])
            if name == "write" and a[0] == 1 and not path.startswith(self._root):
                line = self._read(pid, a[1], a[2]).decode("utf-8", "replace").strip()
                return ("said", line) if line else None
            if not path.startswith(self._root):
                return None
            info = dict(line.split(":\t") for line in Path(f"/proc/{pid}/fdinfo/{a[0]}").read_text().splitlines()[:2])
            data = self._read(pid, a[1], a[2]) if name in ("write", "pwrite") else self._gather(pid, a[1], a[2])
            offset = a[3] if name[0] == "p" else int(info["pos"])
            return ("write", path, offset, data, bool(int(info["flags"], 8) & _SYNCED))
        if name == "ftruncate":
            return ("truncate", self._path_of(pid, a[0]), a[1])
        if name == "sync":
            return ("sync", self._path_of(pid, a[0]))
        if name in ("rename", "renameat"):
            first, second = ((-100, a[0]), (-100, a[1])) if name == "rename" else ((a[0], a[1]), (a[2], a[3]))
            return ("rename", self._named(pid, *first), self._named(pid, *second))
        if name in ("remove", "removeat", "mkdir", "mkdirat"):
            place = (a[0], a[1]) if name.endswith("at") else (-100, a[0])
            return (name.removesuffix("at"), self._named(pid, *place))
        return None

    def _after(self, pid: int, name: str, a: tuple[int, ...], result: int, event: Event | None) -> None:
        if name in ("open", "openat"):
            flags = a[1] if name == "open" else a[2]
            path = self._path_of(pid, result)
            if path.startswith(self._root) and flags & os.O_CREAT and path not in self._known:
                self._known.add(path)
                self.events.append(("create", path))
            elif path.startswith(self._root) and flags & os.O_TRUNC:
                self.events.append(("truncate", path, 0))
            return
        if event is None or (event[0] != "said" and not str(event[1]).startswith(self._root)):
            return
        if event[0] == "write":
            event = (*event[:3], event[3][:result], event[4])
        elif event[0] == "rename":
            self._known.discard(event[1])
            self._known.add(event[2])
        elif event[0] == "remove":
            self._known.discard(event[1])
        self.events.append(event)

    def _path_of(self, pid: int, descriptor: int) -> str:
        try:
            return str(Path(f"/proc/{pid}/fd/{descriptor & 0xFFFFFFFF}").readlink())
        except OSError:
            return ""

    def _named(self, pid: int, descriptor: int, address: int) -> str:
        text = self._read(pid, address, 4096).split(b"\0")[0].decode()
        base = f"/proc/{pid}/cwd" if descriptor & 0xFFFFFFFF == 0xFFFFFF9C else f"/proc/{pid}/fd/{descriptor}"
        return os.path.normpath(os.path.join(Path(base).readlink(), text))  # noqa: PTH118 - of another process

    def _read(self, pid: int, address: int, size: int) -> bytes:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123 - likewise
            memory.seek(address)
            found = b""
            while len(found) < size:
                try:
                    part = memory.read(min(size - len(found), 4096 - (address + len(found)) % 4096))
                except OSError:  # a text may end before its page does
                    break
                if not part:
                    break
                found += part
            return found

    def _gather(self, pid: int, address: int, count: int) -> bytes:
        vectors = struct.iter_unpack("<QQ", self._read(pid, address, 16 * count))
        return b"".join(self._read(pid, start, size) for start, size in vectors)


def record(root: Path, program: str, *arguments: str) -> list[Event]:
    """Run a program of Python and return what it did to files below a directory, and what it said.

    Args:
        root: the directory, empty.
        program: its source.
        arguments: of the program.
    """
    events = root.with_name(root.name + ".events")
    wait = "import sys; sys.stdin.readline()\n"
    command = [sys.executable, "-m", "tests.support.power_cut", str(root), str(events)]
    done = subprocess.run(
        [*command, sys.executable, "-c", wait + program, *arguments], capture_output=True, text=True, check=False
    )
    if "ptrace" in done.stderr and "PermissionError" in done.stderr:
        pytest.skip("needs the right to trace a process that it has started")
    assert done.returncode == 0, done.stderr
    found: list[Event] = pickle.loads(events.read_bytes())
    return found


@dataclass
class _File:
    """A file on the disk."""

    synced: bytearray = field(default_factory=bytearray)
    open: list[Event] = field(default_factory=list)
    """Writes and truncations that were not synced."""

    def sync(self) -> None:
        for event in self.open:
            _apply(self.synced, event)
        self.open.clear()

    def after_cut(self, chance: random.Random) -> bytes:
        """The content, with a part of what was not synced: sectors of some writes."""
        content = bytearray(self.synced)
        share = chance.choice((0.0, 0.5, 0.9))
        for event in self.open:
            if event[0] == "truncate":
                if chance.random() < share:
                    _apply(content, event)
                continue
            _, _, offset, data, _ = event
            for at in range(0, len(data), SECTOR):
                if chance.random() < share:
                    _apply(content, ("write", "", offset + at, data[at : at + SECTOR], False))
        return bytes(content)


def _apply(content: bytearray, event: Event) -> None:
    if event[0] == "truncate":
        size = event[2]
        content += bytes(max(size - len(content), 0))
        del content[size:]
    else:
        offset, data = event[2], event[3]
        content += bytes(max(offset - len(content), 0))
        content[offset : offset + len(data)] = data


class Disk:
    """A disk that drops what was not synced.

    Args:
        root: the directory that was recorded.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._files: dict[str, _File] = {}
        self._names: list[tuple[Event, _File | None]] = []
        """What was done to names, since the directories were synced."""
        self._synced: dict[str, _File | None] = {}
        """Names on the disk; None: a directory."""

    def take(self, event: Event) -> None:
        """Let one thing happen."""
        kind, path = event[0], event[1]
        if kind == "said":
            return
        if kind == "create":
            self._files[path] = _File()
            self._names.append((event, self._files[path]))
        elif kind in ("mkdir", "rename", "remove"):
            self._names.append((event, self._files.get(path)))
            file = self._files.pop(path, None)
            if kind == "rename" and file is not None:
                self._files[event[2]] = file
        elif kind == "sync" and path not in self._files:
            self._sync_names(path)
        elif path in self._files:
            file = self._files[path]
            if kind == "sync":
                file.sync()
            else:
                file.open.append(event)
                if kind == "write" and event[4]:  # no more than this write
                    file.open.pop()
                    _apply(file.synced, event)

    def _sync_names(self, directory: str) -> None:
        left = []
        for event, file in self._names:
            if os.path.dirname(event[-1]) == directory:  # noqa: PTH120 - of text
                self._do(self._synced, event, file)
            else:
                left.append((event, file))
        self._names = left

    def _do(self, names: dict[str, _File | None], event: Event, file: _File | None) -> None:
        if event[0] in ("create", "mkdir"):
            names[event[1]] = file
        else:
            moved = names.pop(event[1], None)
            if event[0] == "rename":
                names[event[2]] = file or moved

    def cut(self, target: Path, chance: random.Random) -> None:
        """Write what is left into a fresh directory."""
        names = dict(self._synced)
        for event, file in self._names[: chance.choice((0, 0, len(self._names)))]:
            self._do(names, event, file)
        target.mkdir()
        for path, file in sorted(names.items()):
            place = target / path.removeprefix(self._root).lstrip("/")
            if not place.parent.is_dir():
                continue  # its directory is lost, and so is it
            if file is None:
                place.mkdir(exist_ok=True)
            elif not path.endswith("-shm"):  # which SQLite makes anew
                place.write_bytes(file.after_cut(chance))


def _main(root: str, events: str, *program: str) -> None:
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    tracer = _Tracer(root)
    tracer.follow(process)
    Path(events).write_bytes(pickle.dumps(tracer.events))


if __name__ == "__main__":
    _main(*sys.argv[1:])
