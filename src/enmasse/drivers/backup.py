"""The journal's tools in a process of their own, which damage may end without harm to ours.

Copies of a whole installation: what is declared, who may use it, certificates, and what the nodes store.

A backup is a directory that appears under its name when all of it is on disk:

    backup.json           format, version, time, and the nodes
    control/*.db          the databases of the control process, each as of one moment
    tls/                  the authority and its certificates, keys included
    ports.json            the ports
    pipelines.json        which folder of pipelines is the installation's
    nodes/NAME/journal    the journal of a node, as of one commit

The databases are copied before the journals. What is declared or deleted in between is reconciled by the
controllers, as always.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from enmasse.drivers.data_directory import DirectoryLock, Layout
from enmasse.errors import ConfigError, LocalError, UnavailableError
from enmasse.storage.tools import DAMAGED, SOUND
from enmasse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class JournalToolError(LocalError):
    """Raised when the process of a tool was ended by a signal that we did not send."""


def run_journal_tool(*arguments: str) -> int:
    """Run one of ``python -m enmasse.storage.tools``; its output goes to our own.

    Args:
        arguments: of its command line: the tool's name, then the journal's directory.

    Returns:
        Its exit code; ``-signal.SIGINT`` if Ctrl-C ended it.

    Raises:
        JournalToolError: another signal ended it.
    """
    process = subprocess.Popen([sys.executable, "-m", "enmasse.storage.tools", *arguments])
    try:
        code = process.wait()
    except KeyboardInterrupt:
        code = process.wait()
    if code < 0 and code != -signal.SIGINT:
        raise JournalToolError(
            f"the tool that read {arguments[1]} was ended by {signal.Signals(-code).name}. If that is not what "
            "somebody did to it, the disk or file system could not read a page: see the kernel's log"
        )
    return code


_FORMAT = 1
_FACTS = "backup.json"
_FOLDERS, _FILES = ("tls", "control/tls"), ("ports.json", "pipelines.json")


class BackupError(ConfigError):
    """Raised when a backup could not be made or used."""


def back_up(layout: Layout, target: Path, report: Callable[[str], None]) -> bool:
    """Copy an installation, which may be running, and return whether all of it is sound.

    Damaged parts are named and left out, as ``enmasse journal backup`` does it.

    Args:
        layout: of the installation.
        target: a directory that is absent or empty; only its owner can read it afterwards.
        report: called with a sentence on what is being copied.

    Raises:
        BackupError: there is no installation, or no room for the copy.
    """
    if not layout.store.exists():
        raise BackupError(f"{layout.data} is no data directory of an installation: there is no {layout.store}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BackupError(f"{target} exists and is not an empty directory: name another one")
    partial = target.with_name(f".{target.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700, parents=True)
        try:
            is_sound = _fill(layout, partial, report)
            partial.replace(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except (OSError, sqlite3.Error) as error:
        raise BackupError(f"the backup {target} could not be written: {error}") from None
    return is_sound


def _fill(layout: Layout, target: Path, report: Callable[[str], None]) -> bool:
    (target / "control").mkdir(mode=0o700)
    for database in sorted(layout.control.glob("*.db")):
        report(f"copying {database}")
        _copy_database(database, target / "control" / database.name)
    for folder in _FOLDERS:
        if (layout.data / folder).is_dir():
            shutil.copytree(layout.data / folder, target / folder)
    for name in _FILES:
        if (layout.data / name).exists():
            shutil.copy2(layout.data / name, target / name)
    # A missing journal is an error, and not left out: see storage/presence.py.
    known = {path.name for path in layout.data.glob("journals/*")}
    nodes = sorted(known | {path.parent.name for path in layout.data.glob("nodes/*/journal")})
    is_sound = True
    for node in nodes:
        (target / "nodes" / node).mkdir(mode=0o700, parents=True)
        is_sound &= _use_tool("backup", layout.data / "nodes" / node / "journal", target / "nodes" / node / "journal")
    facts = {
        "format": _FORMAT,
        "version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "nodes": nodes,
    }
    (target / _FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return is_sound


def _copy_database(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
    target.chmod(0o600)


def _use_tool(name: str, *arguments: Path | str) -> bool:
    """Copy a journal; return whether all of it is sound."""
    code = run_journal_tool(name, *(str(argument) for argument in arguments))
    if code in (-signal.SIGINT, 128 + signal.SIGINT):
        raise KeyboardInterrupt
    if code not in (SOUND, DAMAGED):
        raise BackupError(f"the journal {arguments[0]} was not copied")
    return code == SOUND


def restore(source: Path, layout: Layout, report: Callable[[str], None], *, force: bool = False) -> bool:
    """Restore an installation from a backup, and return whether all of it is sound.

    What declares the contents of the nodes comes last, so run an interrupted one again before anything starts.

    Args:
        source: a directory that ``back_up`` has made.
        layout: of the installation; nothing may run there.
        report: called with a sentence on what is being copied.
        force: replace an installation that is there.

    Raises:
        BackupError: there is no backup, or an installation is in the way.
        UnavailableError: the installation is running.
    """
    facts = _read_facts(source)
    if layout.store.exists() and not force:
        raise BackupError(f"{layout.data} holds an installation already: name another directory, or use --force")
    try:
        with ExitStack() as stack:
            stack.enter_context(DirectoryLock(layout.control))
            for database in layout.control.glob("*.db*"):
                database.unlink()
            is_sound = True
            for node in facts["nodes"]:
                arguments = ["--force"] if force else []
                is_sound &= _use_tool(
                    "restore",
                    layout.data / "nodes" / node / "journal",
                    source / "nodes" / node / "journal",
                    *arguments,
                )
            for folder in _FOLDERS:
                if (source / folder).is_dir():
                    shutil.rmtree(layout.data / folder, ignore_errors=True)
                    shutil.copytree(source / folder, layout.data / folder)
            for name in _FILES:
                if (source / name).exists():
                    shutil.copy2(source / name, layout.data / name)
            for database in sorted((source / "control").glob("*.db")):
                report(f"copying {database}")
                _copy_database(database, layout.control / database.name)
    except (OSError, sqlite3.Error) as error:
        raise UnavailableError(f"{source} could not be restored to {layout.data}: {error}") from None
    return is_sound


def _read_facts(source: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads((source / _FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise BackupError(
            f"{source} is no backup of an installation: it has no {_FACTS} that can be read; "
            "`enmasse journal restore` takes the backup of a journal alone"
        ) from None
    found = facts.get("format")
    if found != _FORMAT:
        raise BackupError(
            f"{source} has format {found}, and this version reads {_FORMAT}: use the version it is from"
        )
    return facts
