"""The part of a backup that pipelines leave on a disk: checkpoints, spools, models and tables, copied while they run.

    pipelines/spaces.json                      which space has which folder
    pipelines/place                            where all of it was (``relocation.py``)
    pipelines/<namespace>.<space>/checkpoints  where its queries are; spool, models alike
    pipelines/<namespace>.<space>/lake         its tables

Rules:
1. While it is noted how far queries are, none begins another batch (``locks.py``). Whether one has all the same
   is looked at afterwards, when others have fixed their states, too; then all of it is noted again.
2. So a checkpoint, tables and journals are of one moment. A batch that was running comes again after a restore, with
   the same rows and the same number, and is there once.
3. Logs of tables are copied with the checkpoints. The files that they name are noted then and copied afterwards:
   nothing deletes them meanwhile, and what comes later is not copied.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote

from enmasse.drivers.data_directory import replace_file
from enmasse.model.kinds.pipelines.sources import FILES
from enmasse.pipeline.backup.files import FileCopier, Report, files_below
from enmasse.pipeline.backup.locks import BATCHES, DELETIONS, lock, make_locks
from enmasse.pipeline.backup.outside import RESTORED, declared_in, outside_of
from enmasse.pipeline.backup.relocation import PLACE, place_of
from enmasse.pipeline.errors import BackupBusyError
from enmasse.pipeline.sums import DamagedFileError, check_sum

_STATE: Final = ("spool", "checkpoints", "models")
_LAKE: Final = "lake"
_SPACES: Final = "spaces.json"
_LOG: Final = "_delta_log"
_BESIDE: Final = "_tombstones"
_WAIT_S: Final = 60.0
"""So long a deletion that is under way is waited for. Who holds a lock for longer harms what is copied of its own."""
_LOCK: Final = "backup.lock"


def _is_bulk(path: str) -> bool:
    """Return whether a file of a lake never changes, so that it may be copied later; or is none of ours."""
    first = path.partition("/")[0]
    is_data = path.endswith(".parquet") and f"/{_LOG}/" not in path and first != _BESIDE
    return is_data or (first == FILES and "/" in path)


def _is_kept(path: str) -> bool:
    return not _is_bulk(path)


def _any(_: str) -> bool:
    return True


def _tells(kind: str, path: str) -> bool:
    """Return whether the presence of a file says how far a query is."""
    *folders, name = path.split("/")
    if kind == "checkpoints":
        return bool(folders) and folders[-1] in ("offsets", "commits") and name.isdecimal()
    return kind == "spool" and not name.startswith(".")


class PipelinesCopy:
    """The files of an installation's pipelines, as they are copied; a context manager.

    Args:
        folder: the folder of the pipelines; need not be there.
        target: made if there is anything to copy.
        report: called with a sentence on what is being copied.
    """

    def __init__(self, folder: Path, target: Path, report: Report) -> None:
        self._folder, self._target, self._report = folder, target, report
        self._copier = FileCopier(report)
        self._noted: set[str] = set()
        self._bulk: dict[str, set[str]] = {}
        self._deletions, self._batches = ExitStack(), ExitStack()
        self._locked: set[tuple[str, str]] = set()
        self._outside: list[str] = []

    def __enter__(self) -> Self:
        """Keep files of tables from being deleted."""
        try:
            self._keep_others_away()
            self._lock(DELETIONS, self._deletions)
        except BaseException:
            self._deletions.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Let everything be deleted again."""
        self._deletions.close()

    def approach(self) -> None:
        """Copy what will hardly change any more, so that pipelines need not rest for it."""
        for space in self._spaces():
            self._report(f"copying what pipelines of {space.name} have done")
            self._mirror(space)

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Have no query begin another batch meanwhile."""
        try:
            self._lock(BATCHES, self._batches)
            yield
        finally:
            self._batches.close()
            self._locked = {key for key in self._locked if key[1] != BATCHES}

    def note(self) -> None:
        """Copy how far queries are, and note which files tables have."""
        # A space that has come meanwhile rests, too.
        self._lock(DELETIONS, self._deletions)
        self._lock(BATCHES, self._batches)
        self._noted, self._bulk = set(), {}
        if (self._folder / _SPACES).exists():
            self._target.mkdir(mode=0o700, exist_ok=True)
            shutil.copy2(self._folder / _SPACES, self._target / _SPACES)
            (self._target / PLACE).write_text(place_of(self._folder))
        for space in self._spaces():
            self._noted |= self._mirror(space)

    def moved(self) -> list[str]:
        """Return the spaces in which a query has begun a batch since ``note``."""
        now: set[str] = set()
        for space in self._spaces():
            for kind in _STATE:
                for folder, _, names in files_below(space / kind):
                    now |= {f"{space.name}/{kind}/{folder}{name}" for name in names if _tells(kind, folder + name)}
        return sorted({path.partition("/")[0] for path in now ^ self._noted})

    def _mirror(self, space: Path) -> set[str]:
        """Copy what changes of a space; return the files that say how far queries are."""
        telling: set[str] = set()
        for kind in _STATE:
            seen = self._copier.mirror(space / kind, self._target / space.name / kind, _any)
            telling |= {f"{space.name}/{kind}/{path}" for path in seen if _tells(kind, path)}
        seen = self._copier.mirror(space / _LAKE, self._target / space.name / _LAKE, _is_kept)
        self._bulk[space.name] = {path for path in seen if _is_bulk(path)}
        return telling

    def copy_tables(self) -> bool:
        """Copy the files of tables that were noted; whether those are there that the tables need."""
        problems = []
        for name, chosen in self._bulk.items():
            if chosen:
                self._report(f"copying the tables of {name}")
            self._copier.copy_all(self._folder / name / _LAKE, self._target / name / _LAKE, chosen)
            problems += _missing(self._target / name / _LAKE)
        for name in self._bulk:
            problems += _changed(self._target / name)
        for problem in problems:
            self._report(f"damaged: {problem}")
        return not problems

    def held(self) -> list[str]:
        """Return what was copied, in words."""
        found = []
        for name in sorted(self._bulk):
            place = self._target / name
            counts = [
                (len(_folders_in(place / _LAKE, "[!_]*")), "tables"),
                (len(_folders_in(place / "checkpoints", "[!_]*")), "checkpoints with their spools"),
                (len(_folders_in(place / "models", "[!_]*")), "models"),
            ]
            found.append(f"of the pipelines of {name} " + ", ".join(f"{count} {what}" for count, what in counts))
        return found

    def left_out(self) -> list[str]:
        """Return what was not, in words."""
        found = list(self._outside)
        if self._bulk:
            found.append("Spark's event logs and temporary files (events, work)")
            found.append("copies of Secrets, ConfigMaps and schemas for pipelines, which are made again")
        if (self._folder / "former").exists():
            found.append(f"tables of spaces that were deleted and made anew ({self._folder / 'former'})")
        found += [f"{path}, which is a link, or a file of others" for path in sorted(self._copier.passed_over)]
        return found

    def outside(self, store: Path) -> dict[str, Any]:
        """Return the pipelines that write to what is not copied, by space.

        Args:
            store: the copy of the resource store.
        """
        found = outside_of(declared_in(store))
        sinks = {sink for of_space in found.values() for item in of_space.values() for sink in item["sinks"]}
        self._outside = [f"what pipelines have written to {sink}" for sink in sorted(sinks)]
        return found

    def _spaces(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted(path.parent for path in self._folder.glob(f"*.*/{_LAKE}"))

    def _keep_others_away(self) -> None:
        if self._folder.is_dir():
            number = os.open(self._folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            self._deletions.callback(os.close, number)
            if not lock(number, fcntl.LOCK_EX):
                raise BackupBusyError(f"another backup copies {self._folder}: wait until it is done")

    def _lock(self, name: str, held: ExitStack) -> None:
        """Hold a lock of every space that is not held yet."""
        for space in self._spaces():
            if (space.name, name) in self._locked:
                continue
            with suppress(FileNotFoundError):  # it goes
                make_locks(space)
                number = os.open(space / name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                held.callback(os.close, number)
                self._wait_for(number, space, name)
                self._locked.add((space.name, name))

    def _wait_for(self, number: int, space: Path, name: str) -> None:
        until = time.monotonic() + _WAIT_S
        while not lock(number, fcntl.LOCK_EX):
            if time.monotonic() > until:
                self._report(f"{space / name} is not let go of: pipelines of {space.name} are copied as they run")
                return
            time.sleep(0.05)


def _folders_in(place: Path, pattern: str) -> list[Path]:
    return [path for path in place.glob(pattern) if path.is_dir()]


def _changed(space: Path) -> Iterator[str]:
    """Yield what was not copied as it was written, in words: of files that have a checksum beside them."""
    for beside in space.rglob(".*.crc"):
        file = beside.with_name(beside.name[1:-4])
        with suppress(FileNotFoundError):
            try:
                check_sum(file)
            except DamagedFileError as error:
                if file.suffix != ".tmp":  # else it was being written
                    yield str(error)


def _missing(lake: Path) -> list[str]:
    """Return what tables that were copied lack, in words."""
    logs = sorted(lake.glob(f"*/{_LOG}"))
    if not logs:
        return []
    try:
        from deltalake import DeltaTable  # noqa: PLC0415  # slow to load
        from deltalake.exceptions import DeltaError  # noqa: PLC0415
    except ImportError:
        return []
    found = []
    for table in (log.parent for log in logs):
        try:
            paths = DeltaTable(table).get_add_actions().column("path").to_pylist()
        except (DeltaError, OSError, ValueError) as error:
            found.append(f"the table {lake.parent.name}/{table.name} cannot be read: {error}")
            continue
        lost = [path for path in map(unquote, paths) if not (table / path).exists()]
        found += [f"the table {lake.parent.name}/{table.name} lacks its file {path}" for path in lost]
    return found


def restore(source: Path, folder: Path, outside: Mapping[str, Any], report: Report) -> None:
    """Bring a folder of pipelines back, in the place of what is there.

    Args:
        source: the copy; need not be there.
        folder: the place that it goes to, held by the caller.
        outside: the pipelines that write to what was not copied.
        report: called with a sentence on what is being copied.
    """
    partial = folder / ".restoring"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    if source.is_dir():
        report("copying what pipelines have")
        FileCopier(report).mirror(source, partial, _any)
    for space in _folders_in(partial, "*"):
        for kind in (*_STATE, _LAKE, "work"):  # by whose owner the host finds out that it was moved
            (space / kind).mkdir(mode=0o700, exist_ok=True)
    for name in (_SPACES, PLACE, RESTORED, "runners.json"):
        (folder / name).unlink(missing_ok=True)
    for path in folder.glob(f"*/{_LAKE}"):
        if path.parent not in (partial, folder / "former"):
            shutil.rmtree(path.parent)
    for path in partial.iterdir():
        path.rename(folder / path.name)
    partial.rmdir()
    if outside:
        replace_file(folder / RESTORED, json.dumps(outside, indent=1).encode())


class PipelinesPart:
    """The way to copy an installation's pipelines and to bring them back."""

    def copy(self, folder: Path, target: Path, report: Report) -> PipelinesCopy:
        """Return what copies a folder of pipelines."""
        return PipelinesCopy(folder, target, report)

    def restore(self, source: Path, folder: Path, outside: Mapping[str, Any], report: Report) -> None:
        """Bring a folder of pipelines back; see ``restore``."""
        restore(source, folder, outside, report)
