"""The journal's tools in a process of their own, which damage may end without harm to ours.

Copies of a whole installation: what is declared, who may use it, certificates, and what the nodes store.

A backup is a directory that appears under its name when all of it is on disk:

    backup.json           format, version, time, the nodes, which spaces each has, what is in it and what is left out
    control/*.db          the databases of the control process, each as of one moment
    tls/                  the authority and its certificates, keys included
    ports.json            the ports
    nodes.json            the number of nodes, where there are several
    pipelines.json        which folder of pipelines is the installation's
    pipelines/            what the pipelines of each space have done, and their tables (``enmasse.pipeline.backup``)
    nodes/NAME/journal    the journal of a node, as of one commit

Rules:
1. How far pipelines are is noted first, and no query begins another batch until the journals' commits are fixed. So
   what a checkpoint calls done is in the tables and the journals, and of what comes after it nothing is.
2. The databases are copied last: what messages refer to is there. What was declared or deleted in between is
   reconciled by the controllers, as always.
3. What is left out is named, in ``backup.json``, too.
4. A restored installation is the copied one, and has no other journals. It is a set: a node that has a space has its
   journal in it. What counts the homes of a space goes on beyond all that it was.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from enmasse.control.log_numbers import GIVEN
from enmasse.databases.checksums import connect
from enmasse.databases.soundness import told_damage
from enmasse.drivers.data_directory import DirectoryLock, Layout
from enmasse.drivers.pipelines_folder import folder_of, replaced_folder
from enmasse.errors import ConfigError, LocalError, UnavailableError
from enmasse.storage.presence import marker_path
from enmasse.storage.tools import DAMAGED, SOUND
from enmasse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager


class JournalToolError(LocalError):
    """Raised when the process of a tool was ended by a signal that we did not send."""


def run_journal_tool(*arguments: str) -> int:
    """Run one of ``python -m enmasse.storage.tools``; its output goes to our own.

    Args:
        arguments: the arguments of its command line: the tool's name, then the journal's directory.

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


_FORMAT: Final = 2
_WITHOUT_PIPELINES: Final = 1
"""The format of versions that left out what pipelines have."""
_FACTS = "backup.json"
_FOLDERS, _FILES, _OWNER = ("tls", "control/tls"), ("ports.json", "nodes.json"), "pipelines.json"
_PIPELINES: Final = "pipelines"
_ROUNDS: Final = 50
"""Each query begins at most one more batch while it is to rest, so fewer are enough."""

_HELD: Final = (
    "what is declared, accounts, devices and schemas (control)",
    "the authority and its certificates, with their keys (tls), and the ports",
)
_LEFT_OUT: Final = (
    "the logs of processes and of pipelines, and the audit log",
    "the tokens of the operator and of the host of pipelines, which are made anew",
)


class BackupError(ConfigError):
    """Raised when a backup could not be made or used."""


class PipelinesCopy(Protocol):
    """The part of a backup that knows what pipelines leave on a disk.

    While it is entered, nothing deletes files that it may have to copy.
    """

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(self, *_: object) -> None:
        """Let everything be deleted again."""

    def approach(self) -> None:
        """Copy what will hardly change any more, so that pipelines need not rest for it."""

    def at_rest(self) -> AbstractContextManager[None]:
        """Have no query begin another batch meanwhile."""

    def note(self) -> None:
        """Copy how far queries are, and note which files tables have."""

    def moved(self) -> list[str]:
        """Return the spaces in which a query has begun a batch since ``note``."""

    def copy_tables(self) -> bool:
        """Copy what was noted; whether all of it was there."""

    def held(self) -> list[str]:
        """Return what was copied, in words."""

    def left_out(self) -> list[str]:
        """Return what was not, in words."""

    def outside(self, store: Path) -> Mapping[str, Any]:
        """Return the pipelines that write to what is not copied, by the copy of the resource store."""


class PipelinesPart(Protocol):
    """The way to copy pipelines and to bring them back."""

    def copy(self, folder: Path, target: Path, report: Callable[[str], None]) -> PipelinesCopy:
        """Return what copies a folder of pipelines."""

    def restore(self, source: Path, folder: Path, outside: Mapping[str, Any], report: Callable[[str], None]) -> None:
        """Bring a folder of pipelines back, in the place of what is there.

        Args:
            source: the copy.
            folder: the place that it goes to.
            outside: the pipelines that write to what was not copied.
            report: called with a sentence on what is being copied.
        """


@dataclass(frozen=True)
class Outcome:
    """The result of a backup or a restore.

    Attributes:
        is_sound: whether nothing was damaged.
        held: the contents of the backup, in words.
        left_out: the rest, in words.
        waiting: lines that name the pipelines which go on once somebody says from where.
    """

    is_sound: bool
    held: list[str]
    left_out: list[str]
    waiting: list[str]


def back_up(layout: Layout, target: Path, pipelines: PipelinesPart, report: Callable[[str], None]) -> Outcome:
    """Copy an installation, which may be running.

    Damaged parts are named and left out, as ``enmasse journal backup`` does it.

    Args:
        layout: the layout of the installation.
        target: a directory that is absent or empty; only its owner can read it afterwards.
        pipelines: copies what pipelines have.
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
            outcome = _fill(layout, partial, pipelines, report)
            os.sync()
            partial.replace(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except (OSError, sqlite3.Error) as error:
        raise BackupError(f"the backup {target} could not be written: {error}") from None
    return outcome


def _fill(layout: Layout, target: Path, pipelines: PipelinesPart, report: Callable[[str], None]) -> Outcome:
    # A missing journal is an error, and not left out: see storage/presence.py.
    known = {path.name for path in layout.data.glob("journals/*")}
    nodes = sorted(known | {path.parent.name for path in layout.data.glob("nodes/*/journal")})
    folder = folder_of(layout)
    with pipelines.copy(folder, target / _PIPELINES, report) as of_pipelines, ExitStack() as journals:
        of_pipelines.approach()
        with of_pipelines.at_rest():
            for left in reversed(range(_ROUNDS)):
                of_pipelines.note()
                copies = [_JournalCopy(layout, node, target) for node in nodes]
                for copy in copies:
                    journals.callback(copy.close)
                    copy.wait_until_fixed()
                moved = of_pipelines.moved()
                if not moved or not left:
                    break
                journals.close()
        for space in moved:
            report(
                f"damaged: pipelines of {space} did not rest, so what they write may be lost or doubled; pause them"
            )
        is_sound = not moved
        for copy in copies:
            is_sound &= copy.finish()
        is_sound &= _copy_control(layout, target, report)
        outside = of_pipelines.outside(target / "control" / layout.store.name)
        is_sound &= of_pipelines.copy_tables()
        held = [*_HELD, *(f"the journal of {node}" for node in nodes), *of_pipelines.held()]
        left_out = [*of_pipelines.left_out(), *_LEFT_OUT]
    homes = _homes(target / "control" / layout.store.name)
    if layout.node_count.exists():  # else the only one may be elsewhere, with its journal
        _require_journals(homes, nodes, f"{layout.data} is not whole")
    facts = {
        "format": _FORMAT,
        "version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "nodes": nodes,
        "homes": homes,
        "holds": held,
        "leavesOut": left_out,
        "outside": outside,
    }
    (target / _FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return Outcome(is_sound, held, left_out, [])


def _copy_control(layout: Layout, target: Path, report: Callable[[str], None]) -> bool:
    """Copy what is declared, and the files beside it; whether all of its rows are as they were written."""
    (target / "control").mkdir(mode=0o700)
    damage = []
    for database in sorted(layout.control.glob("*.db")):
        report(f"copying {database}")
        _copy_database(database, target / "control" / database.name)
        damage += told_damage(target / "control" / database.name)
    for problem in damage:
        report(f"damaged: {problem}")
    for name in _FOLDERS:
        if (layout.data / name).is_dir():
            shutil.copytree(layout.data / name, target / name)
    for name in (*_FILES, _OWNER):
        if (layout.data / name).exists():
            shutil.copy2(layout.data / name, target / name)
    return not damage


def _copy_database(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
    target.chmod(0o600)


class _JournalCopy:
    """The copy of a journal as of one commit, by a process of its own."""

    def __init__(self, layout: Layout, node: str, target: Path) -> None:
        self._source = layout.data / "nodes" / node / "journal"
        to = target / "nodes" / node / "journal"
        to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        ours, theirs = os.pipe()
        self._fixed = os.fdopen(ours)
        command = [sys.executable, "-m", "enmasse.storage.tools", "backup", str(self._source), str(to)]
        try:
            self._process = subprocess.Popen(
                [*command, "--in-step", str(theirs)], bufsize=0, stdin=subprocess.PIPE, pass_fds=[theirs]
            )
        finally:
            os.close(theirs)

    def wait_until_fixed(self) -> None:
        """Wait until the commit is fixed, or the process has ended."""
        self._fixed.read()

    def finish(self) -> bool:
        """Copy; whether all of it is sound."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, and said why
            self._process.stdin.write(b"\n")
        return _is_sound(self._process.wait(), self._source)

    def close(self) -> None:
        """Have it end, without a copy if there is none yet."""
        assert self._process.stdin is not None
        self._fixed.close()
        self._process.stdin.close()
        self._process.wait()


def _use_tool(name: str, *arguments: Path | str) -> bool:
    """Restore a journal; return whether all of it is sound."""
    return _is_sound(run_journal_tool(name, *(str(argument) for argument in arguments)), arguments[0])


def _is_sound(code: int, journal: Path | str) -> bool:
    if code in (-signal.SIGINT, 128 + signal.SIGINT):
        raise KeyboardInterrupt
    if code not in (SOUND, DAMAGED):
        raise BackupError(f"the journal {journal} was not copied")
    return code == SOUND


def restore(
    source: Path,
    layout: Layout,
    pipelines: PipelinesPart,
    report: Callable[[str], None],
    *,
    force: bool = False,
    folder: Path | None = None,
) -> Outcome:
    """Restore an installation from a backup.

    What declares the contents of the nodes comes last, so run an interrupted one again before anything starts.

    Args:
        source: a directory that ``back_up`` has made.
        layout: the layout of the installation; nothing may run there.
        pipelines: brings back what pipelines have.
        report: called with a sentence on what is being copied.
        force: replace an installation that is there.
        folder: the new place of pipelines' files; None: that of the installation which is replaced, or below the data
            directory.

    Raises:
        BackupError: there is no backup, or an installation is in the way.
        UnavailableError: the installation is running.
    """
    facts = _read_facts(source)
    nodes = [node for node in facts["nodes"] if (source / "nodes" / node / "journal").is_dir()]
    missing = [node for node in facts["nodes"] if node not in nodes]
    if missing:
        raise BackupError(f"{source} is not whole: the journal of {', '.join(missing)} is not in it any more")
    homes = _homes(source / "control" / layout.store.name)
    if (source / layout.node_count.name).exists():
        _require_journals(homes, nodes, f"{source} is not whole")
    if homes != facts.get("homes", homes):
        raise BackupError(
            f"{source} is of two backups: its {_FACTS} has spaces on other nodes than what is declared there"
        )
    if layout.store.exists() and not force:
        raise BackupError(f"{layout.data} holds an installation already: name another directory, or use --force")
    try:
        with ExitStack() as stack:
            stack.enter_context(DirectoryLock(layout.control))
            is_old = facts["format"] == _WITHOUT_PIPELINES
            if not is_old:
                place = (folder or folder_of(layout)).absolute()
                stack.enter_context(replaced_folder(layout, place, source / _OWNER, force=force))
                pipelines.restore(source / _PIPELINES, place, facts["outside"], report)
            leased, replaced = _logs_given(layout.store), _homes(layout.store)
            for database in layout.control.glob("*.db*"):
                database.unlink()
            is_sound = True
            for node in sorted({path.name for path in layout.data.glob("nodes/*")} - {*nodes}):
                shutil.rmtree(layout.data / "nodes" / node)
                Path(marker_path(layout.data, node)).unlink(missing_ok=True)
            for node in nodes:
                arguments = ["--force"] if force else []
                is_sound &= _use_tool(
                    "restore",
                    layout.data / "nodes" / node / "journal",
                    source / "nodes" / node / "journal",
                    *arguments,
                )
            for name in _FOLDERS:
                if (source / name).is_dir():
                    shutil.rmtree(layout.data / name, ignore_errors=True)
                    shutil.copytree(source / name, layout.data / name)
            layout.node_count.unlink(missing_ok=True)
            for name in (*_FILES, _OWNER) if is_old else _FILES:
                if (source / name).exists():
                    shutil.copy2(source / name, layout.data / name)
            for database in sorted((source / "control").glob("*.db")):
                report(f"copying {database}")
                _copy_database(database, layout.control / database.name)
            _begin_beyond(layout.store, leased)
            _count_homes_beyond(layout.store, replaced)
            os.sync()
    except (OSError, sqlite3.Error) as error:
        raise UnavailableError(f"{source} could not be restored to {layout.data}: {error}") from None
    return Outcome(is_sound, facts["holds"], facts["leavesOut"], _waiting(facts["outside"]))


def _logs_given(store: Path) -> int:
    """Return the number beyond all log numbers that a store has leased; 0 if it cannot be read."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
        for (value,) in database.execute("SELECT value FROM facts WHERE name = ?", (GIVEN,)):
            return int(value)
    return 0


def _begin_beyond(store: Path, given: int) -> None:
    """Have a restored store lease no log number that the one in whose place it is has leased."""
    if given > _logs_given(store):
        with suppress(sqlite3.Error), closing(connect(store, timeout=1)) as database:
            database.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (GIVEN, given))


_HOMES: Final = """
SELECT json_extract(body, '$.status.home'), namespace || '/' || name,
    coalesce(json_extract(body, '$.status.homeGeneration'), 1)
FROM objects WHERE kind = 'AddressSpace' AND json_extract(body, '$.status.home') IS NOT NULL
ORDER BY 1, 2
"""
_NEXT_HOME: Final = """
UPDATE objects SET body = json_set(body, '$.status.homeGeneration', ?)
WHERE kind = 'AddressSpace' AND namespace || '/' || name = ? AND json_extract(body, '$.status.home') IS NOT NULL
"""

Homes = dict[str, dict[str, int]]
"""By node, the spaces that are at home there, each with what counts the homes that it has had."""


def _homes(store: Path) -> Homes:
    """Return the homes of spaces that a store has; none if it cannot be read."""
    found: Homes = {}
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
        for node, space, generation in database.execute(_HOMES):
            found.setdefault(node, {})[space] = int(generation)
    return found


def _require_journals(homes: Homes, nodes: Collection[str], problem: str) -> None:
    """Check that each node with spaces has a journal.

    Raises:
        BackupError: one has none.
    """
    for node, spaces in homes.items():
        if node not in nodes:
            raise BackupError(
                f"{problem}: {', '.join(sorted(spaces))} is at home on {node}, whose journal is not there"
            )


def _count_homes_beyond(store: Path, replaced: Homes) -> None:
    """Have a restored store count on from all homes that its spaces have had, there and in the one it replaces."""
    former = {space: generation for spaces in replaced.values() for space, generation in spaces.items()}
    with suppress(sqlite3.Error), closing(connect(store, timeout=1)) as database:
        for spaces in _homes(store).values():
            for space, generation in spaces.items():
                database.execute(_NEXT_HOME, (max(generation, former.get(space, 0)) + 1, space))


def _waiting(outside: Mapping[str, Any]) -> list[str]:
    return [
        f"pipeline {name} of space {space} waits for `enmasse pipeline restart {name} --namespace "
        f"{space.partition('.')[0]} --from WHERE`, as it writes to {'; '.join(found['sinks'])}"
        for space, of_space in outside.items()
        for name, found in of_space.items()
    ]


def _read_facts(source: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads((source / _FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise BackupError(
            f"{source} is no backup of an installation: it has no {_FACTS} that can be read; "
            "`enmasse journal restore` takes the backup of a journal alone"
        ) from None
    found = facts.get("format")
    if found == _WITHOUT_PIPELINES:
        nothing = "tables, checkpoints and models of pipelines: the version that made it left them out"
        return {**facts, "holds": [], "leavesOut": [nothing], "outside": {}}
    if found != _FORMAT:
        raise BackupError(
            f"{source} has format {found}, and this version reads {_FORMAT}: use the version it is from"
        )
    return facts
