"""The tables of the resource store's file, how a file of a former format is migrated, and what is counted in them.

Bodies lie in a table with rows of its own numbering, not in the index of the
names: so the index stays small, and an object that is created goes to the
end of the table however many there are.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from enmasse.control.errors import StoreBrokenError, StoreBusyError, StoreFullError, StoreReadOnlyError
from enmasse.control.store.port import Used
from enmasse.databases.checksums import connect, protect
from enmasse.databases.soundness import DatabaseDamagedError, check_database
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from enmasse.control.store.port import Key
    from enmasse.errors import EnmasseError

_FORMAT = 5

_OF_SEVERAL_NODES = 6
"""The format of the same tables once there are several nodes: a version that starts one alone would have it serve
spaces whose messages others have, and does not open this."""

_SCHEMA = """
CREATE TABLE objects (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL,
    version INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE UNIQUE INDEX objects_by_name ON objects (kind, namespace, name);
CREATE INDEX objects_by_uid ON objects (uid);
CREATE INDEX objects_by_address ON objects (kind, json_extract(body, '$.spec.address'));
CREATE TABLE changes (
    version INTEGER PRIMARY KEY, action TEXT NOT NULL,
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    body TEXT NOT NULL, before TEXT
);
CREATE INDEX changes_by_kind ON changes (kind, version);
CREATE INDEX changes_by_namespace ON changes (namespace, version);
CREATE TABLE asides (
    uid TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (uid, name)
) WITHOUT ROWID;
CREATE TABLE owners (
    owner TEXT NOT NULL, dependent TEXT NOT NULL, PRIMARY KEY (owner, dependent)
) WITHOUT ROWID;
CREATE INDEX owners_by_dependent ON owners (dependent);
"""

_INSTALLATION = """
CREATE TABLE installation (id TEXT NOT NULL);
CREATE TABLE nodes (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE removals (
    node TEXT NOT NULL, uid TEXT NOT NULL, kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    PRIMARY KEY (node, uid)
) WITHOUT ROWID;
CREATE INDEX removals_by_name ON removals (node, kind, namespace, name);
"""

_FACTS = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO facts VALUES ('version', 0), ('compacted', 0);
"""

# The history of format 1 does not have the former form of an object: watches list again.
_FROM_1 = f"""
{_INSTALLATION}
ALTER TABLE objects RENAME TO former;
DROP TABLE changes;
{_SCHEMA}
INSERT INTO objects (kind, namespace, name, uid, version, body)
    SELECT kind, namespace, name, coalesce(json_extract(body, '$.metadata.uid'), ''), version, body
    FROM former ORDER BY version;
DROP TABLE former;
UPDATE facts SET value = (SELECT value FROM facts WHERE name = 'version') WHERE name = 'compacted';
"""  # noqa: S608  # of constants

# Format 3 forgot changes of all namespaces alike.
_FROM_3 = "CREATE INDEX IF NOT EXISTS changes_by_namespace ON changes (namespace, version);"

# Format 2 left deletions to be found by what a node has and nobody declares. Those that the history still
# has are remembered for the first node that is known.
_FROM_2 = f"""
{_INSTALLATION}
INSERT OR IGNORE INTO removals
    SELECT '', coalesce(json_extract(body, '$.metadata.uid'), ''), kind, namespace, name
    FROM changes WHERE action = 'DELETED' AND kind IN ('AddressSpace', 'Address', 'MessagingUser');
{_FROM_3}
"""  # noqa: S608  # of constants

# Format 4 had no checksums, which `protect` adds.
_STEPS = {0: _FACTS + _SCHEMA + _INSTALLATION, 1: _FROM_1, 2: _FROM_2, 3: _FROM_3, 4: ""}

_BUSY_S = 0.2  # the event loop stands still meanwhile; the client gets an error and tries again
_CACHE_KIB = 32 * 1024  # the indexes of 200,000 objects, so that creating one reads nothing from disk
_PRIMARY = 0xFF  # of an extended result code of SQLite


def open_database(path: Path) -> sqlite3.Connection:
    """Open the file of a resource store; create or migrate it where necessary.

    Raises:
        ConfigError: when the file was written by a newer version or is no database.
        StoreBusyError, StoreFullError, StoreReadOnlyError: when it cannot be used now.
    """
    try:
        check_database(path)
    except OSError as error:
        raise StoreReadOnlyError(f"the resource store cannot be read: {error}; nothing was changed") from None
    except DatabaseDamagedError as error:
        raise StoreBrokenError(str(error)) from None
    database = connect(path, timeout=_BUSY_S)
    try:
        _prepare(database, path)
    except BaseException:
        database.close()
        raise
    return database


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        (found,) = database.execute("PRAGMA user_version").fetchone()
        if found > _OF_SEVERAL_NODES:
            raise ConfigError(f"{path} was written by a newer version of EnMasse: update this one")
        if found < _FORMAT:
            script = _STEPS[found]
            database.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {_FORMAT}; COMMIT;")
        protect(database)
    except sqlite3.DatabaseError as error:
        if _code(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            raise ConfigError(f"{path} is not a resource store: {error}") from None
        raise translate(error) from None


def translate(error: sqlite3.Error) -> EnmasseError:
    """Return our error for a failure of SQLite, in words for the author of the write."""
    match _code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusyError("another process has the resource store locked: try again")
        case sqlite3.SQLITE_FULL:
            return StoreFullError("the disk with the resource store is full: nothing was written; make room")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return StoreReadOnlyError(f"the resource store cannot be written: {error}; nothing was changed")
        case _:
            return StoreBrokenError(
                f"the resource store cannot be used: {error}; check its disk, or restore a backup"
            )


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY


class InstallationTables:
    """The tables of the installation; ``port.InstallationFacts`` documents the methods.

    Args:
        execute: runs a statement of SQL and returns its rows.
        transaction: makes all statements in the block one.
    """

    def __init__(
        self, execute: Callable[..., list[Any]], transaction: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._execute = execute
        self._transaction = transaction

    def id(self) -> str:
        """Return the id of the installation; empty as long as it has none."""
        rows = self._execute("SELECT id FROM installation")
        return str(rows[0][0]) if rows else ""

    def join(self, installation: str) -> str:
        """Give it an id unless it has one; return the one that it has."""
        with self._transaction():
            self._execute(
                "INSERT INTO installation SELECT ? WHERE NOT EXISTS (SELECT * FROM installation)", (installation,)
            )
        return self.id()

    def know_node(self, node: str) -> None:
        """Record that a node may have declared objects."""
        if self._execute("SELECT 1 FROM nodes WHERE name = ?", (node,)):
            return
        with self._transaction():
            self._execute("INSERT INTO nodes VALUES (?)", (node,))
            self._execute("UPDATE OR REPLACE removals SET node = ? WHERE node = ''", (node,))
            if self._execute("SELECT count(*) FROM nodes")[0][0] > 1:
                self._execute(f"PRAGMA user_version = {_OF_SEVERAL_NODES}")

    def remember_removal(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Record that every known node has to delete an object."""
        self._execute(
            "INSERT OR IGNORE INTO removals SELECT name, ?, ?, ?, ? FROM nodes", (uid, kind, namespace, name)
        )

    def removed_names(self, node: str) -> list[tuple[str, str, str]]:
        """Return kinds, namespaces and names of which a node has something to delete."""
        return self._execute("SELECT DISTINCT kind, namespace, name FROM removals WHERE node = ?", (node,))

    def removed_uids(self, node: str, kind: str, key: Key | None = None) -> list[str]:
        """Return the uids of the objects of a kind, or of one name of it, that a node has to delete."""
        where, arguments = ("", ()) if key is None else (" AND namespace = ? AND name = ?", key)
        rows = self._execute(
            f"SELECT uid FROM removals WHERE node = ? AND kind = ?{where}",  # noqa: S608  # constants
            (node, kind, *arguments),
        )
        return [row[0] for row in rows]

    def is_removed(self, node: str, uid: str) -> bool:
        """Return whether a node has to delete an object."""
        return bool(self._execute("SELECT 1 FROM removals WHERE node = ? AND uid = ?", (node, uid)))

    def forget_removals(self, node: str, uids: Iterable[str]) -> None:
        """Record that a node has deleted objects."""
        with self._transaction():
            for uid in uids:
                self._execute("DELETE FROM removals WHERE node = ? AND uid = ?", (node, uid))


class UsageCounters:
    """Counters of each namespace's objects by kind, and of their bytes, so that they need not be counted anew.

    Args:
        execute: runs a statement of SQL and returns its rows.
    """

    def __init__(self, execute: Callable[..., list[Any]]) -> None:
        self._of: dict[str, dict[str, Used]] = {}
        self._noted: list[tuple[str, str, int, int]] = []  # in this transaction
        for kind, namespace, count, size in execute(
            "SELECT kind, namespace, count(*), total(length(CAST(body AS BLOB))) FROM objects"
            " GROUP BY kind, namespace"
        ):
            self._add(kind, namespace, count, int(size))
        for kind, namespace, size in execute(
            "SELECT kind, namespace, total(length(value)) FROM asides JOIN objects USING (uid)"
            " GROUP BY kind, namespace"
        ):
            self._add(kind, namespace, 0, int(size))

    def of(self, namespace: str) -> Mapping[str, Used]:
        """Return what a namespace has, by kind."""
        return self._of.get(namespace, {})

    def count(self, kind: str) -> int:
        """Return the number of objects of a kind everywhere."""
        return sum(kinds[kind].objects for kinds in self._of.values() if kind in kinds)

    def note(self, kind: str, namespace: str, count: int, size: int) -> None:
        """Count what a write has changed; a transaction that fails reverts it."""
        self._noted.append((kind, namespace, -count, -size))
        self._add(kind, namespace, count, size)

    def close(self, *, is_committed: bool) -> None:
        """End a transaction."""
        if not is_committed:
            for noted in self._noted:
                self._add(*noted)
        self._noted.clear()

    def _add(self, kind: str, namespace: str, count: int, size: int) -> None:
        kinds = self._of.setdefault(namespace, {})
        present = kinds.get(kind, Used())
        kinds[kind] = Used(present.objects + count, present.size + size)
        if kinds[kind] == (0, 0):
            del kinds[kind]
            if not kinds:
                del self._of[namespace]
