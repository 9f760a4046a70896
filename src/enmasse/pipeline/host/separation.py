"""Whether the processes of spaces can be kept from each other here; found out by trying."""

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
from enmasse.pipeline.host.space_folders import SpaceFolder
from enmasse.pipeline.host.user_numbers import USERS

__all__ = ["Separation", "clean_environment", "find_separation", "launch_command"]

_HANDED_ON: Final = ("PATH", "JAVA_HOME", "JDK_JAVA_OPTIONS", "TZ")

_PROBE_S = 30.0
_PROBE = """\
import os, pwd, sys
pwd.getpwuid(os.getuid())  # Java needs it
import enmasse.pipeline.session
open("mine", "w").close()
for closed in sys.argv[1:]:
    try:
        names = os.listdir(closed)
    except OSError:
        continue
    if names:
        sys.exit(f"it can read {closed}")
"""


@dataclass(frozen=True, slots=True)
class Separation:
    """What was found.

    Attributes:
        is_possible: whether each space's processes run as a user of their own.
        reason: why not, as a part of a sentence.
    """

    is_possible: bool
    reason: str = ""


def find_separation(data: Path, folders: Path) -> Separation:
    """Try to start a process that has what runners need and cannot read the installation's files.

    Args:
        data: the data directory.
        folders: where the folders of spaces lie.
    """
    if not sys.platform.startswith("linux"):
        return Separation(False, f"on {sys.platform} it is not known how")
    if os.getuid() != 0:
        return Separation(False, "EnMasse does not run as root, and only root may start processes of other users")
    place = Path(tempfile.mkdtemp(prefix="try-", dir=folders))
    try:
        folder = SpaceFolder(place, USERS.stop)
        folder.make()
        closed = [str(data / name) for name in ("control", "nodes", "tls", "logs")]
        command = launch_command(folder, [sys.executable, "-c", _PROBE, *closed], data)
        done = subprocess.run(
            command,
            env=clean_environment(folder),
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Separation(False, f"a process of another user cannot be started: {error}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if done.returncode == 0:
        return Separation(True)
    last = next(
        (line for line in reversed(done.stderr.splitlines()) if line.strip()), f"it ended with {done.returncode}"
    )
    return Separation(False, f"a process of another user does not work here ({last.strip()})")


def launch_command(folder: SpaceFolder, command: Sequence[str], data: Path) -> list[str]:
    """Return the command that starts another one with no more than it may have.

    Args:
        folder: of the space.
        command: what to run, its program as a whole path.
        data: what it must not see, but for its folder.
    """
    options = ["--parent", str(os.getpid()), "--folder", str(folder.path), "--work", "work"]
    if folder.user is not None:
        options += ["--user", str(folder.user), "--hide", str(data)]
        for path in _needed():
            options += ["--see", str(path)]
    return [sys.executable, "-I", "-S", launcher.__file__, *options, "--", *command]


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
    """The folders of Python, of our code and of Java."""
    found = [Path(sys.prefix), Path(sys.base_prefix), *map(Path, site.getsitepackages())]
    found.append(Path(launcher.__file__).parents[3])
    java = os.environ.get("JAVA_HOME") or shutil.which("java")
    if java:
        with suppress(OSError):
            place = Path(java).resolve()
            found.append(place if place.is_dir() else place.parents[1])
    return list(dict.fromkeys(path for path in found if path.exists()))
