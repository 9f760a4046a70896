"""The part of a backup that pipelines leave on a disk: checkpoints, spools, models and tables, copied while they run.

    pipelines/spaces.json                      which space has which folder
    pipelines/<namespace>.<space>/checkpoints  where its queries are; spool, models alike
    pipelines/<namespace>.<space>/lake         its tables

Rules:
1. While it is noted how far queries are, none begins another batch (``backup_locks``). Whether one has all the same
   is looked at afterwards, when others have fixed their states, too; then all of it is noted again.
2. So a checkpoint, tables and journals are of one moment. A batch that was running comes again after a restore, with
   the same rows and the same number, and is there once.
3. Logs of tables are copied with the checkpoints. The files that they name are noted then and copied afterwards:
   nothing deletes them meanwhile, and what comes later is not copied.
4. Whatever a space's processes can write may be a link: none is followed, and only regular files of theirs are read.
5. Paths that Spark, spools and joined tables remember are those of the new place after a restore.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote, unquote

from enmasse.drivers.data_directory import replace_file
from enmasse.errors import ConfigError
from enmasse.model.kinds.pipelines.builtins import BUILTINS
from enmasse.model.kinds.pipelines.sources import FILES
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, PIPELINE, WEBHOOK
from enmasse.pipeline.backup_locks import BATCHES, DELETIONS, lock, make_locks
from enmasse.pipeline.errors import BackupBusyError
from enmasse.pipeline.sums import DamagedFileError, check_sum, resealed

_STATE: Final = ("spool", "checkpoints", "models")
_LAKE: Final = "lake"
_SPACES: Final = "spaces.json"
RESTORED: Final = "restored.json"
"""In the folder of pipelines: those that write to what was not restored, and have not been told where they go on."""
_LOG: Final = "_delta_log"
_STAGING: Final = "_staging"
_BESIDE: Final = "_tombstones"

_PASSES: Final = 5
"""A folder that is copied while files come is looked at again, until nothing has come."""
_WAIT_S: Final = 60.0
"""So long a deletion that is under way is waited for. Who holds a lock for longer harms what is copied of its own."""
_LOCK: Final = "backup.lock"
_SAY_S: Final = 2.0
_BLOCK: Final = 8 << 20
_LARGEST_TEXT: Final = 64 << 20
_BINARY: Final = frozenset((".zip", ".sst", ".changelog", ".delta", ".snapshot", ".parquet", ".arrow", ".again"))

Report = Callable[[str], None]


def _walk(folder: str, number: int) -> Iterator[tuple[str, int, list[str]]]:
    """Yield an open folder and all below it: the relative path, a descriptor, and the names of what is no folder."""
    folders: list[str] = []
    files: list[str] = []
    with os.scandir(number) as entries:
        for entry in entries:
            (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
    yield folder, number, files
    for name in folders:
        try:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=number)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                continue  # it has gone, or something else has come
            raise
        try:
            yield from _walk(f"{folder}{name}/", inner)
        finally:
            os.close(inner)


def _files_below(top: Path) -> Iterator[tuple[str, int, list[str]]]:
    try:
        number = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            return
        raise
    try:
        yield from _walk("", number)
    finally:
        os.close(number)


class _Copier:
    """Copies trees, those again that have changed only in part.

    Args:
        report: called now and then with how much was copied.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._linked: dict[tuple[int, int], Path] = {}
        self._files = self._bytes = 0
        self._say_at = time.monotonic() + _SAY_S
        self.passed_over: set[str] = set()
        """Files that are links, devices or of others."""

    def mirror(self, source: Path, target: Path, is_wanted: Callable[[str], bool]) -> set[str]:
        """Make a tree like another one; return the files that are there.

        Args:
            source: need not be there.
            target: of which only files that are wanted are removed, if the other one has them no more.
            is_wanted: whether a file is copied, by its relative path.
        """
        for _ in range(_PASSES):
            seen: set[str] = set()
            has_changed = False
            for folder, number, names in _files_below(source):
                if f"/{_STAGING}/" in f"/{folder}":
                    continue
                wanted = [name for name in names if is_wanted(folder + name)]
                seen.update(folder + name for name in names)
                for name in wanted:
                    has_changed |= self._copy(name, number, source / folder, target / folder)
            for folder, number, names in _files_below(target):
                for name in names:
                    if folder + name not in seen and is_wanted(folder + name):
                        os.unlink(name, dir_fd=number)
                        has_changed = True
            if not has_changed:
                break
        return seen

    def copy_all(self, source: Path, target: Path, chosen: set[str]) -> None:
        """Copy the files that are chosen, as far as they are there."""
        for folder, number, names in _files_below(source):
            for name in names:
                if folder + name in chosen:
                    self._copy(name, number, source / folder, target / folder)

    def _copy(self, name: str, folder: int, place: Path, target: Path) -> bool:
        """Copy a file unless it is there; whether it was not."""
        try:
            number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):
                raise
            self.passed_over.add(str(place / name))
            return False
        with os.fdopen(number, "rb") as file:
            facts = os.fstat(number)
            is_of_another = facts.st_nlink > 1 and facts.st_uid != os.fstat(folder).st_uid
            if not stat.S_ISREG(facts.st_mode) or is_of_another:
                self.passed_over.add(str(place / name))
                return False
            return self._copy_open(file.fileno(), facts, target / name)

    def _copy_open(self, number: int, facts: os.stat_result, target: Path) -> bool:
        if target.exists():
            there = target.stat()
            if (there.st_size, there.st_mtime_ns) == (facts.st_size, facts.st_mtime_ns):
                return False
            target.unlink()
        _make(target.parent)
        key = facts.st_dev, facts.st_ino
        former = self._linked.get(key) if facts.st_nlink > 1 else None
        if former is not None and former.exists():
            os.link(former, target)
            return True
        to = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self._bytes += _copy_bytes(number, to)
            os.utime(to, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        finally:
            os.close(to)
        if facts.st_nlink > 1:
            self._linked[key] = target
        self._files += 1
        if time.monotonic() >= self._say_at:
            self._say_at = time.monotonic() + _SAY_S
            self._report(f"copied {self._files:,} files of pipelines, {self._bytes >> 20:,} MiB")
        return True


def _make(folder: Path) -> None:
    """Make a folder and those above it that are missing, for us alone."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _copy_bytes(source: int, target: int) -> int:
    """Copy the rest of an open file, by reference where the file system has that; how many bytes."""
    total = 0
    try:
        while count := os.copy_file_range(source, target, _BLOCK):
            total += count
    except OSError as error:
        if total or error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF):
            raise
        while block := os.read(source, _BLOCK):
            view = memoryview(block)
            while view:
                view = view[os.write(target, view) :]
            total += len(block)
    return total


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
        folder: of the pipelines; need not be there.
        target: made if there is anything to copy.
        report: called with a sentence on what is being copied.
    """

    def __init__(self, folder: Path, target: Path, report: Report) -> None:
        self._folder, self._target, self._report = folder, target, report
        self._copier = _Copier(report)
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
        for space in self._spaces():
            self._noted |= self._mirror(space)

    def moved(self) -> list[str]:
        """Return the spaces in which a query has begun a batch since ``note``."""
        now: set[str] = set()
        for space in self._spaces():
            for kind in _STATE:
                for folder, _, names in _files_below(space / kind):
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
        found = outside_of(_objects(store))
        sinks = {sink for of_space in found.values() for item in of_space.values() for sink in item["sinks"]}
        self._outside = [f"{sink}, which pipelines write" for sink in sorted(sinks)]
        return found

    def _spaces(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted(path.parent for path in self._folder.glob(f"*/{_LAKE}") if path.parent.name != "former")

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


# What is not copied


def _objects(store: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """Return kind, namespace and body of what is declared, as far as it concerns pipelines."""
    asked = (
        "SELECT kind, namespace, body FROM objects WHERE kind IN ('AddressSpace', 'Address', 'Pipeline', 'Webhook')"
    )
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
        return [(kind, namespace, json.loads(body)) for kind, namespace, body in database.execute(asked)]


def outside_of(objects: list[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the pipelines that write to what a backup does not have: by space and name their uid, restart and sinks.

    Args:
        objects: kind, namespace and body of what is declared.
    """
    lakes: dict[str, str] = {}
    pushed: dict[str, set[str]] = {}
    topics: dict[tuple[str, str], str] = {}
    for kind, namespace, body in objects:
        name, spec = str(body["metadata"]["name"]), body.get("spec") or {}
        space = f"{namespace}.{name.partition('.')[0]}"
        s3 = (spec.get("lake") or {}).get("s3") if kind == ADDRESS_SPACE.name else None
        if s3:
            prefix = str(s3.get("prefix") or "").strip("/")
            lakes[space] = "/".join(filter(None, (f"s3://{s3['bucket']}", prefix)))
        elif kind == WEBHOOK.name:
            pushed.setdefault(space, set()).add(str(spec["address"]))
        elif kind == ADDRESS.name and spec.get("topic"):
            topics[space, str(spec["address"])] = str(spec["topic"])
    for space, addresses in pushed.items():
        addresses |= {topics[space, name] for name in addresses if (space, name) in topics}
    found: dict[str, Any] = {}
    for kind, namespace, body in objects:
        if kind != PIPELINE.name:
            continue
        name, spec = str(body["metadata"]["name"]), body.get("spec") or {}
        space = f"{namespace}.{name.partition('.')[0]}"
        sinks = sorted(set(_sinks_outside(spec, lakes.get(space), pushed.get(space, set()))))
        if sinks:
            restarted_at = (spec.get("restart") or {}).get("at")
            known = {"uid": body["metadata"].get("uid"), "restartedAt": restarted_at, "sinks": sinks}
            found.setdefault(space, {})[name] = known
    return found


def _sinks_outside(spec: Mapping[str, Any], lake: str | None, pushed: set[str]) -> Iterator[str]:
    sinks = spec.get("sinks") or ()
    tables = {sink["table"] for sink in sinks if sink.get("table")}
    addresses = {sink[key] for sink in sinks for key in ("address", "badRecords") if sink.get(key)}
    for database in (sink["database"] for sink in sinks if sink.get("database")):
        yield f"table {database['table']} of PostgreSQL at {database['host']}"
    builtin = spec.get("builtin") or {}
    if (kind := BUILTINS.get(str(builtin.get("name")))) is not None:
        with suppress(ValueError):
            parameters = kind.model_validate(builtin.get("parameters") or {})
            tables |= set(parameters.tables())
            addresses |= set(parameters.writes())
    if lake:
        yield from (f"table {table} in {lake}" for table in tables)
    is_any = "*" in addresses
    yield from (
        f"address {name}, which a webhook posts to a URL" for name in (pushed if is_any else addresses & pushed)
    )
    commands = {name for name in addresses if name == "command" or name.startswith("command/")}
    yield from (f"address {name}, which brings commands to devices" for name in commands)


# Back again


def restore(source: Path, folder: Path, former: str, outside: Mapping[str, Any], report: Report) -> None:
    """Bring a folder of pipelines back, in the place of what is there.

    Args:
        source: the copy; need not be there.
        folder: the place that it goes to, held by the caller.
        former: the place that it was at.
        outside: the pipelines that write to what was not copied.
        report: called with a sentence on what is being copied.
    """
    partial = folder / ".restoring"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    if source.is_dir():
        report("copying what pipelines have")
        _Copier(report).mirror(source, partial, _any)
    for space in _folders_in(partial, "*"):
        for kind in (*_STATE, _LAKE, "work"):  # by whose owner the host finds out that it was moved
            (space / kind).mkdir(mode=0o700, exist_ok=True)
        _move(space, former, str(folder.resolve()))
    for name in (_SPACES, RESTORED, "runners.json"):
        (folder / name).unlink(missing_ok=True)
    for path in folder.glob(f"*/{_LAKE}"):
        if path.parent not in (partial, folder / "former"):
            shutil.rmtree(path.parent)
    for path in partial.iterdir():
        path.rename(folder / path.name)
    partial.rmdir()
    if outside:
        replace_file(folder / RESTORED, json.dumps(outside, indent=1).encode())


def _move(space: Path, former: str, now: str) -> None:
    """Have what remembers where it lies remember the new place."""
    if former == now:
        return
    texts = [path for path in (space / "checkpoints").rglob("*") if path.suffix not in _BINARY]
    for path in [*texts, *(space / "spool").rglob("spool.json")]:
        if not path.is_file() or path.stat().st_size > _LARGEST_TEXT:
            continue
        try:
            text = path.read_bytes().decode()
        except UnicodeDecodeError:
            continue
        # Spark writes URIs, which are quoted; others write JSON, with letters as they are or escaped.
        moved = re.sub(f"(file:(?://)?){re.escape(quote(former))}/", lambda found: f"{found[1]}{quote(now)}/", text)
        for old in {former, _in_json(former)}:
            moved = re.sub(f"(?<!file:)(?<!file://){re.escape(old)}/", lambda _: f"{_in_json(now)}/", moved)
        if moved != text:
            path.write_bytes(resealed(text, moved).encode())
            # Hadoop's checksum is of the former contents; without one none is looked at.
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


class RestoredMarks:
    """The pipelines that write to what was not restored, and have not been told yet where they go on.

    Args:
        folder: of the pipelines.

    Raises:
        ConfigError: what is known of them cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / RESTORED
        try:
            self._marks: dict[str, dict[str, Any]] = json.loads(self._file.read_text())
        except FileNotFoundError:
            self._marks = {}
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._file} cannot be read: {error}") from None

    def sinks_ahead(self, space: str, name: str, uid: str, restart: Mapping[str, Any]) -> list[str]:
        """Return what may have rows that a pipeline is going to write again, in words; none: it may go on.

        Args:
            space: ``<namespace>.<space>``.
            name: of the pipeline.
            uid: of the pipeline: another one of the name begins anew.
            restart: as it is declared; one with ``from`` that came after the backup says where it goes on.
        """
        mark = self._marks.get(space, {}).get(name)
        if mark is None or mark["uid"] != uid:
            return []
        is_told = bool(restart.get("from")) and restart.get("at") != mark["restartedAt"]
        return [] if is_told else list(mark["sinks"])

    def forget(self, space: str, name: str, restarted_at: str | None) -> None:
        """Forget a pipeline whose restart was done, or which is gone.

        Args:
            space: ``<namespace>.<space>``.
            name: of the pipeline.
            restarted_at: the restart that was done; None: it is gone.
        """
        mark = self._marks.get(space, {}).get(name)
        if mark is not None and restarted_at != mark["restartedAt"]:
            del self._marks[space][name]
            replace_file(self._file, json.dumps(self._marks, indent=1).encode())


class PipelinesPart:
    """The way to copy an installation's pipelines and to bring them back."""

    def copy(self, folder: Path, target: Path, report: Report) -> PipelinesCopy:
        """Return what copies a folder of pipelines."""
        return PipelinesCopy(folder, target, report)

    def restore(self, source: Path, folder: Path, former: str, outside: Mapping[str, Any], report: Report) -> None:
        """Bring a folder of pipelines back; see ``restore``."""
        restore(source, folder, former, outside, report)
