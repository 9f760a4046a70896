"""What the file of the resource store looks like, and how a file of a former format becomes one.

Bodies lie in a table with rows of its own numbering, not in the index of the
names: so the index stays small, and an object that is created goes to the
end of the table however many there are.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from enmasse.control.errors import StoreBrokenError, StoreBusyError, StoreFullError, StoreReadOnlyError
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from enmasse.errors import EnmasseError

__all__ = ["open_database", "translate"]

_FORMAT = 3

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

# The history of format 1 does not tell what an object was before: who watches lists again.
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

# Format 2 left deletions to be found by what a node has and nobody declares. Those of which the history still
# tells are remembered for the first node that is known.
_FROM_2 = f"""
{_INSTALLATION}
INSERT OR IGNORE INTO removals
    SELECT '', coalesce(json_extract(body, '$.metadata.uid'), ''), kind, namespace, name
    FROM changes WHERE action = 'DELETED' AND kind IN ('AddressSpace', 'Address', 'MessagingUser');
"""  # noqa: S608  # of constants

_STEPS = {0: _FACTS + _SCHEMA + _INSTALLATION, 1: _FROM_1, 2: _FROM_2}

_BUSY_S = 0.2  # the event loop stands still meanwhile; whoever asked is told to try again
_CACHE_KIB = 32 * 1024  # the indexes of 200,000 objects, so that creating one reads nothing from disk
_PRIMARY = 0xFF  # of an extended result code of SQLite


def open_database(path: Path) -> sqlite3.Connection:
    """Open the file of a resource store, making it or bringing it to the present format.

    Raises:
        ConfigError: when the file was written by a newer version or is no database.
        StoreBusyError, StoreFullError, StoreReadOnlyError: when it cannot be used now.
    """
    database = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_S)
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
        if found > _FORMAT:
            raise ConfigError(f"{path} was written by a newer version of EnMasse: update this one")
        if found < _FORMAT:
            script = _STEPS[found]
            database.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {_FORMAT}; COMMIT;")
    except sqlite3.DatabaseError as error:
        if _code(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            raise ConfigError(f"{path} is not a resource store: {error}") from None
        raise translate(error) from None


def translate(error: sqlite3.Error) -> EnmasseError:
    """Return the error of ours that says what a failure of SQLite means to whoever wanted to write."""
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
