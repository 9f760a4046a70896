"""The check of a database before it is used, and its mending.

Where a bit was changed by the disk, everything is as it was afterwards: a row's checksum tells which bit it was,
in a page that holds the tree together each is tried, and indexes are made anew. What more than that has damaged is
left out by name if it is rows, else the database is refused. The file as it was found is kept beside it.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from enmasse.databases.checksums import (
    columns,
    connect,
    explain_other_schema,
    has_checksums,
    row_checksum,
    tables,
    wrong_schema_text,
)
from enmasse.databases.pages import implausible_pages, inner_pages, page_size, places, schema_pages
from enmasse.databases.wal import mend_wal
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


class DatabaseDamagedError(ConfigError):
    """Raised when a database is damaged and cannot be mended; nothing was changed."""


_log = logging.getLogger(__name__)

MAX_CHECKED_BYTES: Final = 256 << 20
"""Of a file that is checked when it is opened: some seconds."""

_BUSY_S = 10.0
_TRIED_S = 20.0
"""Seconds in which bits are tried."""

_MAX_MENDED_ROW_BYTES = 1 << 16
"""In what is longer, another bit than the changed one might fit the checksum, and to try takes long."""

_NOT_USABLE = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
_SEARCHED_BYTES = 24
_MAGIC = b"SQLite format 3\0"
_MAX_NAMED = 20
_SHOWN = 80
_PAGE = re.compile(r"page (\d+)", re.IGNORECASE)
_OF_INDEX = re.compile(r"(row \d+ |wrong # of entries in|non-unique entry in)[^\n]*index [^\n]*$")
_KEPT_AT = "%Y%m%dT%H%M%SZ"


_Mended = dict[tuple[str, tuple[Any, ...]], tuple[Any, ...] | None]
"""By table and values as they were found, the values of a damaged row as it was written; None: it is lost."""


@dataclass
class _Found:
    """The fault of a database."""

    structure: list[str] = field(default_factory=list)
    """Of its pages: as SQLite says it."""
    rows: list[tuple[str, tuple[Any, ...], int]] = field(default_factory=list)
    """Table, values and checksum of rows with a wrong one."""

    def __bool__(self) -> bool:
        return bool(self.structure or self.rows)


def check_database(path: Path) -> None:
    """Check a database that nobody has open, and mend it as far as that can be done.

    Args:
        path: the file; nothing is done where there is none, where it is large, or no database.

    Raises:
        DatabaseDamagedError: it cannot be mended; nothing was changed.
        OSError: it cannot be read or written.
    """
    if _size(path) + _size(_wal(path)) > MAX_CHECKED_BYTES or not _is_database(path):
        return
    for sentence in mend_wal(_wal(path)):
        _log.error("%s", sentence)
    found = find_damage(path)
    if not found:
        return
    kept = _keep(path)
    mended = _mended_rows(found)
    if not all(map(_is_mended_by_copying, found.structure)) or None in mended.values():
        if _mend_page(path, found):
            found = find_damage(path)
            mended = _mended_rows(found)
        elif not all(map(_is_mended_by_copying, found.structure)):
            raise _refusal(path, "; ".join(found.structure)[:1000])
    if found:
        _write_anew(path, found, mended)
    _log.error("%s is mended; it is kept as it was found in %s", path, kept)


def find_damage(path: Path) -> _Found:
    """Return what is wrong with a database."""
    found = _Found()
    with closing(connect(path, timeout=_BUSY_S)) as database:
        database.text_factory = bytes
        try:
            found.structure = _explain(database)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _NOT_USABLE:
                return found  # whoever opens it next says so
            found.structure.append(str(error))
        try:
            for table in tables(database):
                if has_checksums(database, table):
                    found.rows += [(table, values, wrong) for values, wrong in _wrong_rows(database, table)]
        except sqlite3.DatabaseError as error:
            found.structure.append(str(error))
    return found


def told_damage(path: Path) -> list[str]:
    """Return what is wrong with a database, however large it is, in words."""
    found = find_damage(path)
    rows = [f"the row {_name(values)} of {table} is not as it was written" for table, values, _ in found.rows]
    return [f"{path.name}: {problem}" for problem in (*found.structure, *rows)]


def _explain(database: sqlite3.Connection) -> list[str]:
    rows = database.execute(f"PRAGMA integrity_check({_MAX_NAMED})").fetchall()
    problems = [row[0].decode("utf-8", "replace") for row in rows if row[0] != b"ok"]
    other = explain_other_schema(database)
    return problems if other is None else [*problems, f"page 1: {other}"]


def _is_mended_by_copying(problem: str) -> bool:
    """Return true if a problem is one of indexes alone, or of a row that one of them is computed from."""
    return _OF_INDEX.match(problem) is not None or "JSON" in problem


def _wrong_rows(database: sqlite3.Connection, table: str) -> Iterator[tuple[tuple[Any, ...], int]]:
    named = ", ".join(columns(database, table))
    for *values, checksum in database.execute(f"SELECT {named}, checksum FROM {table}"):  # noqa: S608  # names of ours
        if row_checksum(*values) != checksum:
            yield tuple(values), checksum


def _mend_page(path: Path, found: _Found) -> bool:
    """Change back the one bit that keeps the pages from being sound; return whether there is one."""
    with closing(sqlite3.connect(path, timeout=_BUSY_S)) as database, suppress(sqlite3.DatabaseError):
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # else it is read with the rest
    data = path.read_bytes()
    if _mend_schema(path, data):
        return True
    named = [int(number) for problem in found.structure for number in _PAGE.findall(problem)]
    named += [page for _, values, _ in found.rows if (page := _page_of(data, values))]
    of_schema = schema_pages(data)
    if any("schema" in problem for problem in found.structure):
        named += of_schema
    pages = list(dict.fromkeys([*named, *implausible_pages(data), *of_schema, *inner_pages(data)]))
    deadline = time.monotonic() + _TRIED_S
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        copy = Path(folder, path.name)
        shutil.copy(path, copy)
        fd = os.open(copy, os.O_RDWR)
        try:
            for at in places(data, pages):
                for bit in (1, 2, 4, 8, 16, 32, 64, 128):
                    os.pwrite(fd, bytes((data[at] ^ bit,)), at)
                    if _has_sound_pages(copy):
                        _flip(path, at, data[at] ^ bit)
                        _log.error("%s: one bit, at byte %d, was not as written, and is changed back", path, at)
                        return True
                os.pwrite(fd, data[at : at + 1], at)
                if time.monotonic() > deadline:
                    break
        finally:
            os.close(fd)
    return False


def _mend_schema(path: Path, data: bytes) -> bool:
    """Change back the one bit of the schema's text that its checksum misses; return whether there is one."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            database.text_factory = bytes
            database.execute("PRAGMA writable_schema = ON")  # which ignores what makes no sense
            if (texts := wrong_schema_text(database)) is None:
                return False
    except (sqlite3.Error, TypeError):
        return False
    found, written = texts
    start = data.find(found)
    (at,) = [index for index, (one, other) in enumerate(zip(found, written, strict=True)) if one != other]
    if start < 0:  # it lies on several pages
        return False
    _flip(path, start + at, written[at])
    _log.error("%s: one bit of the schema, at byte %d, was not as written, and is changed back", path, start + at)
    return True


def _page_of(data: bytes, values: tuple[Any, ...]) -> int:
    """Return the page of a row, of which some values may be wrong; 0 if it is not found."""
    longest = max((value for value in values if isinstance(value, bytes)), key=len, default=b"")
    middle = longest[len(longest) // 2 :][:_SEARCHED_BYTES]
    return data.find(middle) // page_size(data) + 1 if middle else 0


def _has_sound_pages(path: Path) -> bool:
    """Return true if SQLite and the schema's checksum find nothing wrong; indexes may be."""
    try:
        with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as database:
            database.text_factory = bytes
            rows = database.execute("PRAGMA integrity_check(1)").fetchall()
            if rows != [(b"ok",)] or explain_other_schema(database) is not None:
                return False
            return not any(
                next(_wrong_rows(database, table), None)
                for table in tables(database)
                if has_checksums(database, table)
            )
    except (sqlite3.Error, UnicodeDecodeError):
        return False


def _flip(path: Path, at: int, value: int) -> None:
    fd = os.open(path, os.O_RDWR)
    try:
        os.pwrite(fd, bytes((value,)), at)
        os.fsync(fd)
    finally:
        os.close(fd)


def _mended_rows(found: _Found) -> _Mended:
    return {(table, values): _mended(values, checksum) for table, values, checksum in found.rows}


def _write_anew(path: Path, found: _Found, mended: _Mended) -> None:
    """Put a fresh file with all sound rows in the place of one whose indexes or rows are damaged."""
    for (table, values), better in mended.items():
        what = "one bit was not as written, and is changed back" if better else "it cannot be read, and is left out"
        _log.error("%s: a row of %s is damaged, %s: %s", path, table, _name(values), what)
    for problem in found.structure:
        _log.error("%s: %s; its indexes are made anew", path, problem)
    new = path.with_name(f".{path.name}.new")
    for leftover in (new, _wal(new)):
        leftover.unlink(missing_ok=True)
    try:
        with closing(connect(path, timeout=_BUSY_S)) as old, closing(connect(new, timeout=_BUSY_S)) as fresh:
            _copy(old, fresh, mended)
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except (sqlite3.Error, UnicodeDecodeError) as error:
        new.unlink(missing_ok=True)
        raise _refusal(path, str(error)) from None
    new.chmod(0o600)
    _sync(new)
    new.replace(path)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    _sync(path.parent)


def _copy(old: sqlite3.Connection, fresh: sqlite3.Connection, mended: _Mended) -> None:
    (version,) = old.execute("PRAGMA user_version").fetchone()
    created = old.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    old.text_factory = bytes
    fresh.execute("BEGIN")
    for kind, name, sql in created:
        if kind == "table" and not name.startswith("sqlite_"):
            fresh.execute(sql)
    for table in tables(fresh):
        names = columns(fresh, table)
        text = {row[1] for row in fresh.execute(f"PRAGMA table_info({table})") if row[2] == "TEXT"}
        put = f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
        for values in old.execute(f"SELECT {', '.join(names)} FROM {table}"):  # noqa: S608  # names of ours
            better = mended.get((table, values), values)
            if better is not None:
                fresh.execute(
                    put,
                    [
                        value.decode() if isinstance(value, bytes) and name in text else value
                        for name, value in zip(names, better, strict=True)
                    ],
                )
    if any(name == "sqlite_sequence" for _, name, _ in created):
        fresh.execute("DELETE FROM sqlite_sequence")
        for name, last in old.execute("SELECT name, seq FROM sqlite_sequence"):
            fresh.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (name.decode(), last))
    for kind, _, sql in created:
        if kind in ("index", "trigger"):
            fresh.execute(sql)
    fresh.execute(f"PRAGMA user_version = {version}")
    fresh.execute("COMMIT")
    fresh.execute("PRAGMA journal_mode = WAL")


def _mended(values: tuple[Any, ...], checksum: int) -> tuple[Any, ...] | None:
    """Return a row with the one bit changed back that makes its checksum right; None if there is none."""
    if (row_checksum(*values) ^ checksum).bit_count() == 1:
        return values  # it was a bit of the checksum
    if sum(len(value) for value in values if isinstance(value, bytes)) > _MAX_MENDED_ROW_BYTES:
        return None
    for index, value in enumerate(values):
        for other in _variants(value):
            changed = (*values[:index], other, *values[index + 1 :])
            if row_checksum(*changed) == checksum:
                return changed
    return None


def _variants(value: Any) -> Iterator[Any]:
    """Yield a value with each of its bits changed, one at a time."""
    if isinstance(value, bytes):
        data = bytearray(value)
        for at in range(len(data)):
            for bit in (1, 2, 4, 8, 16, 32, 64, 128):
                data[at] ^= bit
                yield bytes(data)
                data[at] ^= bit
    elif isinstance(value, int):
        for bit in range(63):
            yield value ^ 1 << bit


def _name(values: tuple[Any, ...]) -> str:
    """Return the beginning of a row, for people: its keys come first."""
    shown = [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values]
    return ", ".join(str(value)[:_SHOWN] for value in shown[:5])


def _refusal(path: Path, problem: str) -> DatabaseDamagedError:
    return DatabaseDamagedError(
        f"{path} is damaged, and nothing was changed: {problem}. Look for the cause in the kernel's log, and "
        "restore a backup"
    )


def _keep(path: Path) -> Path:
    kept = path.with_name(f"{path.name}.damaged-{time.strftime(_KEPT_AT, time.gmtime())}")
    shutil.copy2(path, kept)
    if _size(_wal(path)):
        shutil.copy2(_wal(path), _wal(kept))
    return kept


def _is_database(path: Path) -> bool:
    """Return true if a file begins as a database, or all but one bit of that does."""
    if not path.exists():
        return False
    with path.open("rb") as file:
        start = file.read(len(_MAGIC))
    difference = int.from_bytes(start, "big") ^ int.from_bytes(_MAGIC, "big")
    return len(start) == len(_MAGIC) and difference.bit_count() <= 1


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
