"""Finds out by trying whether the processes of spaces can be kept from each other here."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from enmasse.pipeline.host import launch as launcher
from enmasse.pipeline.host.space_folders import USERS, SpaceFolder
from enmasse.pipeline.host.syscalls import why_unfiltered

_SOURCES: Final = Path(launcher.__file__).parents[3]
_START: Final = """\
import sys
sys.path.append(sys.argv.pop(1))  # last, so that what is installed beside us hides nothing of Python's own
from enmasse.pipeline.host.launch import main
main(sys.argv[1:])
"""

_HANDED_ON: Final = ("PATH", "JAVA_HOME", "JDK_JAVA_OPTIONS", "TZ")

_PROBE_S = 30.0
_PROBE = """\
import os, pwd, sys
pwd.getpwuid(os.getuid())  # Java needs it
import enmasse.pipeline.session
open("mine", "w").close()
seen = {int(name) for name in os.listdir("/proc") if name.isdigit()}
if sys.argv[1] and seen != {1, os.getpid()}:
    sys.exit("it sees other processes")
for closed in sys.argv[2:]:
    try:
        names = os.listdir(closed)
    except OSError:
        continue
    if names:
        sys.exit(f"it can read {closed}")
"""


@dataclass(frozen=True, slots=True)
class Separation:
    """The means of separation that were found.

    Attributes:
        is_possible: whether each space's processes run as a user of their own.
        reason: why not, as a part of a sentence.
        uncaged: why runners have no network and no view of files of their own; empty: they have.
        crowded: why runners see other processes; empty: they do not.
        unfiltered: why runners may make all system calls; empty: they may not.
    """

    is_possible: bool
    reason: str = ""
    uncaged: str = ""
    crowded: str = ""
    unfiltered: str = ""

    @property
    def is_caged(self) -> bool:
        """True if each runner has a network and a view of the file system of its own."""
        return not self.uncaged

    @property
    def is_alone(self) -> bool:
        """True if each runner has process numbers of its own, and sees no other process."""
        return not (self.uncaged or self.crowded)


@dataclass(frozen=True, slots=True)
class Confines:
    """The bounds that a runner is kept to.

    Attributes:
        ours: host and port of each place of EnMasse that it may reach.
        hosts: the other hosts that an operator lets it reach, as that was written.
        is_caged: whether it has a view of the file system and a network of its own.
        is_alone: whether it has process numbers of its own besides.
        is_everywhere: whether it may reach everything, because it has executors elsewhere; then the view alone.
        cgroup: the control group that bounds it; None: there is none.
        memory: bytes that its processes have together; 0: that is not bounded.
        cores: the cores that it has; None: all.
    """

    ours: tuple[tuple[str, int], ...] = ()
    hosts: str = ""
    is_caged: bool = False
    is_alone: bool = False
    is_everywhere: bool = False
    cgroup: Path | None = None
    memory: int = 0
    cores: int | None = None


def find_separation(data: Path, folders: Path) -> Separation:
    """Try to start a process that has what runners need and cannot read the installation's files.

    Args:
        data: the data directory.
        folders: the directory of spaces' folders.
    """
    if not sys.platform.startswith("linux"):
        return Separation(False, why := f"on {sys.platform} it is not known how", why, why, why)
    crowded = _problem(data, folders, is_caged=True, is_alone=True)
    uncaged = _problem(data, folders, is_caged=True) if crowded else ""
    crowded, unfiltered = uncaged or crowded, why_unfiltered()
    if os.getuid() != 0:
        reason = "EnMasse does not run as root, and only root may start processes of other users"
        return Separation(False, reason, uncaged, crowded, unfiltered)
    reason = _problem(data, folders, is_caged=False) if uncaged else ""
    return Separation(not reason, reason, uncaged, crowded, unfiltered)


def _problem(data: Path, folders: Path, *, is_caged: bool, is_alone: bool = False) -> str:
    """Return why no process that has what runners need can be kept apart; empty: it can."""
    place = Path(tempfile.mkdtemp(prefix="try-", dir=folders))
    is_root = os.getuid() == 0
    try:
        folder = SpaceFolder(place, USERS.stop if is_root else None)
        folder.make()
        closed = (
            [str(data / name) for name in ("control", "nodes", "peers", "tls", "logs")] if is_root or is_caged else []
        )
        command = launch_command(
            folder,
            [sys.executable, "-c", _PROBE, "alone" if is_alone else "", *closed],
            data,
            Confines(is_caged=is_caged, is_alone=is_alone, is_everywhere=not is_caged),
        )
        done = subprocess.run(
            command,
            env=clean_environment(folder),
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"such a process cannot be started: {error}"
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if done.returncode == 0:
        return ""
    last = next(
        (line for line in reversed(done.stderr.splitlines()) if line.strip()), f"it ended with {done.returncode}"
    )
    return f"such a process does not work here ({last.strip()})"


def launch_command(folder: SpaceFolder, command: Sequence[str], data: Path, confines: Confines) -> list[str]:
    """Return the command that starts another one with no more than it may have.

    Args:
        folder: the folder of the space.
        command: the command to run, its program as a whole path.
        data: the directory that it must not see, but for its folder.
        confines: the bounds that it is kept to.
    """
    options = ["--parent", str(os.getpid()), "--folder", str(folder.path), "--work", "work"]
    options += ["--hosts", confines.hosts]
    for host, port in confines.ours:
        options += ["--ours", f"{host} {port}"]
    if folder.user is not None:
        options += ["--user", str(folder.user)]
    if confines.is_caged:
        options += ["--cage", "--hide", str(data), "--hide", str(folder.path.parent)]
        for path in _needed():
            options += ["--see", str(path)]
        if confines.is_alone:
            options.append("--alone")
    if confines.cgroup is not None:
        options += ["--cgroup", str(confines.cgroup)]
    else:
        options += ["--memory", str(confines.memory), "--cores", str(confines.cores or 0)]
    if confines.is_everywhere:
        options.append("--everywhere")
    return [sys.executable, "-I", "-S", "-c", _START, str(_SOURCES), *options, "--", *command]


def clean_environment(folder: SpaceFolder) -> dict[str, str]:
    """Return all that a runner learns from its environment."""
    kept = {name: value for name in _HANDED_ON if (value := os.environ.get(name))}
    return kept | {
        "HOME": str(folder.path / "work"),
        "LANG": "C.UTF-8",
        "ENMASSE_CREDENTIALS": str(folder.path / "credentials"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _needed() -> list[Path]:
    """Return the folders of Python, of our code and of Java."""
    found = [Path(sys.prefix), Path(sys.base_prefix), *map(Path, site.getsitepackages())]
    found.append(_SOURCES)
    java = os.environ.get("JAVA_HOME") or shutil.which("java")
    if java:
        with suppress(OSError):
            place = Path(java).resolve()
            found.append(place if place.is_dir() else place.parents[1])
    return list(dict.fromkeys(path for path in found if path.exists()))
