"""Keeps the folders of spaces, the user numbers that own them, and what is left of runners that ran there.

    pipelines/                      ours
        spaces.json                 which space has which folder, and which number its processes run as
        <namespace>.<space>/        ours, open to the space's processes; they cannot change what lies in it
            lake checkpoints spool models work events   theirs
            credentials code schemas                ours, open to them
            logs                                    ours alone

Rules:
1. Where processes can be separated, a space's processes run as a user of their own: a number without a name. A host
   that starts ends whatever runs as its numbers, so two hosts of one machine must never have the same: each holds a
   lock for every one of its numbers as long as it lives.
2. Whatever a space's processes can write may be a link: we neither read nor write there, and only remove.
3. A space that was deleted and made anew is another space: what the former one left is put aside, and ours.
4. Processes of runners whose host was killed are remembered, and ended before another runner starts.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import random
import shutil
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enmasse.drivers.data_directory import replace_file
from enmasse.errors import ConfigError
from enmasse.pipeline.backup.locks import make_locks
from enmasse.pipeline.credentials import AUTHORITY
from enmasse.pipeline.device_list import FOLDER as DEVICES
from enmasse.pipeline.host.supervise import end_session
from enmasse.pipeline.lake.objects import FILE as LAKE_FILE
from enmasse.pipeline.registry_copy import FILE

USERS = range(52_000, 58_000)
"""Below what systems give out by themselves, and within what a user namespace has."""

_LOCKS = Path("/run/enmasse/pipeline-users")


class UserNumbers:
    """The user numbers as which the processes of spaces run, each held by one host of a machine.

    Args:
        locks: folder of the locks; the same for all installations of a machine.
    """

    def __init__(self, locks: Path = _LOCKS) -> None:
        self._locks = locks
        self._held: dict[int, int] = {}

    def close(self) -> None:
        """Release all numbers."""
        while self._held:
            os.close(self._held.popitem()[1])

    def take(self, number: int) -> bool:
        """Hold a number for as long as this process lives; return whether no other host has it.

        Raises:
            ConfigError: the lock cannot be made.
        """
        if number in self._held:
            return True
        try:
            self._locks.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self._locks / str(number), os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"{self._locks / str(number)} cannot be made: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._held[number] = lock
        return True

    def take_any(self, taken: Iterable[int | None]) -> int:
        """Take a number that is free.

        Args:
            taken: numbers of this installation.

        Raises:
            ConfigError: there is none.
        """
        refused = set(taken)
        # At different places, so that what one installation left is seldom another's number later on.
        begin = random.randrange(len(USERS))  # noqa: S311  # to spread, not to hide
        numbers: list[int] = [*USERS[begin:], *USERS[:begin]]
        for number in numbers:
            if number not in refused and not _is_somebody(number) and self.take(number):
                return number
        raise ConfigError(f"all numbers from {USERS.start} to {USERS.stop - 1} are taken by spaces or users")


def _is_somebody(number: int) -> bool:
    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True


_PATIENCE_S = 10.0


class Leftovers:
    """Remembers which runners there are.

    Args:
        root: the folder of the host.
    """

    def __init__(self, root: Path) -> None:
        self._file = root / "runners.json"
        self._known: dict[str, tuple[int, str]] = {}

    def note(self, runner: Iterable[str], pid: int | None) -> None:
        """Remember the process of a runner; None: it has none any more."""
        name = " ".join(filter(None, runner))
        found = None if pid is None else (pid, _started(pid))
        if self._known.get(name) == found:
            return
        if found is None:
            self._known.pop(name)
        else:
            self._known[name] = found
        replace_file(self._file, json.dumps(self._known).encode())

    def end(self, users: Iterable[int]) -> None:
        """End what a former host left.

        Args:
            users: numbers that only runners run as.
        """
        try:
            former = json.loads(self._file.read_text())
            processes = [(int(pid), str(started)) for pid, started in former.values()]
        except (OSError, ValueError, TypeError, AttributeError):
            processes = []
        for pid, started in processes:
            # A number is not given to others while a session has it; a leader that began at another time is another.
            if _started(pid) in ("", started):
                end_session(pid)
        for user in users:
            end_user(user)


def end_user(user: int) -> bool:
    """Kill every process of a user who only has processes that we started; whether nothing is left."""
    deadline = time.monotonic() + _PATIENCE_S
    while found := _processes_of(user):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _processes_of(user: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        except (OSError, ValueError):
            continue
        if str(user) in lines.get("Uid", "").split() and lines.get("State", "").strip()[:1] not in ("Z", "X"):
            found.append(int(folder.name))
    return found


def _started(pid: int) -> str:
    """Return the time at which a process began, in the kernel's count; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
    except (OSError, IndexError):
        return ""


_THEIRS = ("lake", "checkpoints", "spool", "models", "work", "events")
_SHOWN = ("credentials", "code", "schemas", DEVICES)
_OURS = ("logs",)
_LOCK = "runner.lock"
"""By which runners keep each other away; they could not make it where only we make something."""
_FORMER = "former"

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SpaceFolder:
    """The folder of one space.

    Attributes:
        path: the path of the folder.
        user: the owner of its contents; None: ours, because processes cannot be separated.
    """

    path: Path
    user: int | None

    def make(self) -> None:
        """Make the folder and what lies in it, or give it to who it belongs to.

        Raises:
            ConfigError: it cannot be made.
        """
        try:
            is_moved = self.path.exists() and _owner_of(self.path / "work") not in (None, self._user)
            self.path.mkdir(exist_ok=True, mode=0o700)
            for name in (*_THEIRS, *_SHOWN, *_OURS):
                (self.path / name).mkdir(exist_ok=True, mode=0o700)
            if is_moved:
                for name in _THEIRS:
                    _give(self.path / name, self._user)
            os.close(os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600))
            make_locks(self.path, self.user)
            self._set_modes()
        except OSError as error:
            raise ConfigError(f"{error.filename or self.path} cannot be made: {error.strerror}") from None

    def write_credentials(self, name: str, entries: Mapping[str, str]) -> None:
        """Write the credentials of a Secret, for the pipelines that name it.

        Args:
            name: the name of the Secret.
            entries: ``username`` and ``password``, ``token``, or ``tls.crt`` and ``tls.key``; and ``ca.crt``, by
                which a database is verified.
        """
        folder = self.path / "credentials"
        if "tls.crt" in entries:
            # One file, so that nobody reads a certificate with the key of another one.
            pem = f"{entries['tls.crt'].rstrip()}\n{entries['tls.key'].rstrip()}\n"
            self._replace(folder / f"{name}.pem", pem.encode())
            content = {"tlsCertificate": f"{name}.pem"}
        elif "token" in entries:
            content = {"token": entries["token"]}
        else:
            content = {"user": entries["username"], "password": entries["password"]}
        self._replace(folder / f"{name}.json", json.dumps(content).encode())
        if authorities := entries.get("ca.crt"):
            self._replace(folder / f"{name}.crt", authorities.encode())
        else:
            (folder / f"{name}.crt").unlink(missing_ok=True)

    def write_authority(self, certificate: bytes) -> None:
        """Write the certificate of the authority to trust where a pipeline comes by token or certificate."""
        self._replace(self.path / "credentials" / AUTHORITY, certificate)

    def write_lake(self, settings: Mapping[str, str]) -> None:
        """Write where the space's tables are, unless that is there already; who reads it opens the storage anew."""
        path = self.path / "credentials" / LAKE_FILE
        data = json.dumps(dict(settings), sort_keys=True).encode()
        with suppress(OSError):
            if path.read_bytes() == data:
                return
        self._replace(path, data)

    def write_code(self, folder: str, modules: dict[str, str]) -> None:
        """Keep modules of Python in a folder below ``code``, in place of what was there."""
        target = self.path / "code" / folder
        _make_shown(target, self.user)
        for name, text in modules.items():
            self._replace(target / name, text.encode())
        for path in target.iterdir():
            if path.name not in modules:
                path.unlink() if not path.is_dir() or path.is_symlink() else shutil.rmtree(path)

    def write_schemas(self, data: bytes, asked_s: float) -> None:
        """Write the copy of the schema registry, as it was when it was asked for."""
        path = self.path / "schemas" / FILE
        new = path.with_name(f"{FILE}.new")
        self._replace(new, data)
        os.utime(new, (asked_s, asked_s))  # before it has its name, for readers go by it
        new.replace(path)

    def write_devices(self, path: Path, data: bytes) -> None:
        """Write the list of the devices of a tenant."""
        self._replace(path, data)

    def confirm_schemas(self, asked_s: float) -> None:
        """Note that the schema registry was still as the copy has it when it was asked for."""
        os.utime(self.path / "schemas" / FILE, (asked_s, asked_s))

    @property
    def _user(self) -> int:
        return os.getuid() if self.user is None else self.user

    def _set_modes(self) -> None:
        if self.user is None:
            return
        for name in (*_THEIRS, _LOCK):
            os.chown(self.path / name, self.user, self.user, follow_symlinks=False)
        for path in (self.path, *(self.path / name for name in _SHOWN)):
            os.chown(path, -1, self.user)
            path.chmod(0o750)

    def _replace(self, path: Path, data: bytes) -> None:
        replace_file(path, data, owner=None if self.user is None else (self.user, self.user))


class SpaceFolders:
    """The folders of all spaces, and the user numbers that their processes run as.

    Args:
        root: the folder that they lie in.
        numbers: the user numbers that the processes of spaces may run as.

    Raises:
        ConfigError: the record of them cannot be read.
    """

    def __init__(self, root: Path, numbers: UserNumbers | None = None) -> None:
        self._root = root
        self._numbers = numbers or UserNumbers()
        self._file = root / "spaces.json"
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self._known: dict[str, Document] = json.loads(self._file.read_text())
        except FileNotFoundError:
            self._known = {}
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._file} cannot be read: {error}") from None

    def users(self) -> list[int]:
        """Return the numbers that processes of spaces run as, and no others do."""
        known = [item["user"] for item in self._known.values() if item.get("user") is not None]
        return [number for number in known if self._numbers.take(number)]

    def claimed(self) -> list[tuple[str, str, str]]:
        """Space, name and uid of each pipeline that has begun and was not removed."""
        return [
            (name.replace(".", "/"), pipeline, uid)
            for name, item in self._known.items()
            for pipeline, uid in item["pipelines"].items()
        ]

    def claim(self, space: str, pipeline: str, uid: str) -> None:
        """Note that a pipeline is about to begin."""
        claims = self._known[space.replace("/", ".")]["pipelines"]
        if claims.get(pipeline) != uid:
            claims[pipeline] = uid
            self._save()

    def purge(self, space: str, pipeline: str) -> None:
        """Remove the place and the log of a pipeline that does not run; tables stay."""
        name = space.replace("/", ".")
        path = self._root / name
        for kind in ("checkpoints", "spool", "code"):
            _remove(path / kind / pipeline)
        for suffix in ("", ".1"):
            with suppress(OSError):
                (path / "logs" / f"{pipeline}.log{suffix}").unlink(missing_ok=True)
        if name in self._known and self._known[name]["pipelines"].pop(pipeline, None) is not None:
            self._save()

    def keep_credentials(self, named: Mapping[str, Collection[str]]) -> None:
        """Remove the credentials of all other Secrets.

        Args:
            named: the Secrets that something of a space names, by space.
        """
        for name in self._known:
            kept = named.get(name.replace(".", "/"), ())
            # What begins with an underscore is of no Secret of a pipeline.
            for path in (self._root / name / "credentials").glob("[!_]*"):
                if path.stem not in kept:
                    path.unlink(missing_ok=True)

    def path_of(self, space: str) -> Path:
        """Return where the folder of a space is, or would be."""
        return self._root / space.replace("/", ".")

    def folder(self, space: str, uid: str, *, is_separated: bool) -> SpaceFolder:
        """Return the folder of a space, made if need be.

        Args:
            space: ``<namespace>/<name>``.
            uid: the identity of the space.
            is_separated: whether its processes run as a user of their own.

        Raises:
            ConfigError: there is no free number, or it cannot be made.
        """
        name = space.replace("/", ".")
        known = self._known.get(name)
        if known is not None and known["uid"] != uid:
            self._put_aside(name)
            known = None
        user = known.get("user") if known is not None else None
        if is_separated and (user is None or not self._numbers.take(user)):
            user = self._numbers.take_any(item.get("user") for item in self._known.values())
        if known is None or known.get("user") != user:
            self._known[name] = {"uid": uid, "user": user, "pipelines": known["pipelines"] if known else {}}
            self._save()
        found = SpaceFolder(self._root / name, self._known[name]["user"] if is_separated else None)
        found.make()
        return found

    def _save(self) -> None:
        replace_file(self._file, json.dumps(self._known, indent=1).encode())

    def _put_aside(self, name: str) -> None:
        """Keep what a former space of this name left, where no space comes."""
        known = self._known[name]
        path = self._root / name
        former = self._root / _FORMER
        former.mkdir(exist_ok=True, mode=0o700)
        if path.exists():
            path.rename(former / f"{name}.{known['uid']}")
        del self._known[name]


def _owner_of(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except OSError:
        return None


def _give(folder: Path, user: int) -> None:
    """Give a folder with all in it to somebody, following no links."""
    for _, folders, files, number in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            os.chown(name, user, user, dir_fd=number, follow_symlinks=False)
    os.chown(folder, user, user, follow_symlinks=False)


def _make_shown(folder: Path, user: int | None) -> None:
    folder.mkdir(exist_ok=True, mode=0o700)
    if user is not None:
        os.chown(folder, -1, user)
        folder.chmod(0o750)


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path, ignore_errors=True)  # it follows no link, not even one that is put there meanwhile
