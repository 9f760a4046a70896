"""The file of the schema registry, in SQLite.

Rules:
1. Every write is a transaction, on disk when it returns.
2. All that a space has is kept by the space's uid: another space of the name has nothing of it.
3. Ids count up within a space and are never given twice, nor are versions within a subject as long as it has any.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self, cast

from enmasse.databases.checksums import connect, protect
from enmasse.databases.soundness import check_database
from enmasse.errors import ConfigError, UnavailableError
from enmasse.schemas.compatibility import Level, Schema, SchemaType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

FORMAT: Final = 2
"""1 had no checksums of rows."""
_BUSY_S: Final = 10.0

_TABLES: Final = f"""
BEGIN;
CREATE TABLE spaces (
    space TEXT PRIMARY KEY,
    revision INTEGER NOT NULL DEFAULT 0,
    last_id INTEGER NOT NULL DEFAULT 0,
    characters INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE schemas (
    space TEXT NOT NULL,
    id INTEGER NOT NULL,
    type TEXT NOT NULL,
    text TEXT NOT NULL,
    identity TEXT NOT NULL,
    PRIMARY KEY (space, id),
    UNIQUE (space, identity)
) WITHOUT ROWID;
CREATE TABLE versions (
    space TEXT NOT NULL,
    subject TEXT NOT NULL,
    version INTEGER NOT NULL,
    id INTEGER NOT NULL,
    is_deleted INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (space, subject, version)
) WITHOUT ROWID;
CREATE INDEX versions_by_id ON versions (space, id);
CREATE TABLE levels (
    space TEXT NOT NULL,
    subject TEXT NOT NULL,
    level TEXT NOT NULL,
    PRIMARY KEY (space, subject)
) WITHOUT ROWID;
PRAGMA user_version = {FORMAT};
COMMIT;
"""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: Schema
    is_deleted: bool


class Tables:
    """The schemas of one space, within a transaction.

    Args:
        database: the file.
        space: the uid.
    """

    def __init__(self, database: sqlite3.Connection, space: str) -> None:
        self._database = database
        self._space = space

    @property
    def revision(self) -> int:
        """Counts the changes."""
        return self._of_space("revision")

    @property
    def characters(self) -> int:
        """The length of all schemas."""
        return self._of_space("characters")

    def _of_space(self, column: str) -> int:
        found = self._database.execute(f"SELECT {column} FROM spaces WHERE space = ?", (self._space,)).fetchone()  # noqa: S608  # a word of ours
        return 0 if found is None else int(found[0])

    def changed(self) -> None:
        """Count a change."""
        statement = (
            "INSERT INTO spaces (space, revision) VALUES (?, 1) ON CONFLICT DO UPDATE SET revision = revision + 1"
        )
        self._database.execute(statement, (self._space,))

    def versions(self, subject: str | None = None, schema_id: int | None = None) -> list[Version]:
        """Return versions by subject and number, deleted ones too: of a subject, or of a schema, or all."""
        rows = self._database.execute(
            "SELECT subject, version, id, type, text, is_deleted FROM versions JOIN schemas USING (space, id) "
            "WHERE space = ? AND (? IS NULL OR subject = ?) AND (? IS NULL OR id = ?) ORDER BY subject, version",
            (self._space, subject, subject, schema_id, schema_id),
        )
        return [
            Version(subject, version, number, Schema(cast("SchemaType", of), text), bool(is_deleted))
            for subject, version, number, of, text, is_deleted in rows
        ]

    def subjects(self) -> list[tuple[str, bool]]:
        """Return the names of subjects, and whether all of their versions are deleted."""
        rows = self._database.execute(
            "SELECT subject, min(is_deleted) FROM versions WHERE space = ? GROUP BY subject ORDER BY subject",
            (self._space,),
        )
        return [(subject, bool(is_deleted)) for subject, is_deleted in rows]

    def count(self, table: Literal["versions", "levels"]) -> int:
        """Return the number of rows that the space has in a table."""
        found = self._database.execute(f"SELECT count(*) FROM {table} WHERE space = ?", (self._space,)).fetchone()  # noqa: S608  # a word of ours
        return int(found[0])

    def schema(self, schema_id: int) -> Schema | None:
        """Return the schema of an id."""
        found = self._database.execute(
            "SELECT type, text FROM schemas WHERE space = ? AND id = ?", (self._space, schema_id)
        ).fetchone()
        return None if found is None else Schema(cast("SchemaType", found[0]), found[1])

    def id_of(self, schema: Schema) -> int | None:
        """Return the id of a schema."""
        found = self._database.execute(
            "SELECT id FROM schemas WHERE space = ? AND identity = ?", (self._space, schema.identity)
        ).fetchone()
        return None if found is None else int(found[0])

    def add_schema(self, schema: Schema) -> int:
        """Add a schema and return its id; call ``changed`` first."""
        self._database.execute(
            "UPDATE spaces SET last_id = last_id + 1, characters = characters + ? WHERE space = ?",
            (len(schema.text), self._space),
        )
        number = self._of_space("last_id")
        row = (self._space, number, schema.type, schema.text, schema.identity)
        self._database.execute("INSERT INTO schemas VALUES (?, ?, ?, ?, ?)", row)
        return number

    def add_version(self, subject: str, version: int, schema_id: int) -> None:
        """Add a version of a subject."""
        self._database.execute(
            "INSERT INTO versions VALUES (?, ?, ?, ?, 0)", (self._space, subject, version, schema_id)
        )

    def mark_deleted(self, subject: str, version: int) -> None:
        """Have a version found no more, but by its schema's id."""
        self._database.execute(
            "UPDATE versions SET is_deleted = 1 WHERE space = ? AND subject = ? AND version = ?",
            (self._space, subject, version),
        )

    def remove(self, subject: str, version: int) -> None:
        """Remove a version, and its schema with the last version that has it."""
        self._database.execute(
            "DELETE FROM versions WHERE space = ? AND subject = ? AND version = ?", (self._space, subject, version)
        )
        self._database.execute(
            "DELETE FROM schemas WHERE space = ?1 AND id NOT IN (SELECT id FROM versions WHERE space = ?1)",
            (self._space,),
        )
        self._database.execute(
            "UPDATE spaces SET characters = (SELECT coalesce(sum(length(text)), 0) FROM schemas WHERE space = ?1) "
            "WHERE space = ?1",
            (self._space,),
        )

    def level(self, subject: str) -> Level | None:
        """Return the level that was set of a subject; of no subject: of the space."""
        found = self._database.execute(
            "SELECT level FROM levels WHERE space = ? AND subject = ?", (self._space, subject)
        ).fetchone()
        return None if found is None else cast("Level", found[0])

    def set_level(self, subject: str, level: Level | None) -> None:
        """Set a level; None: there is none."""
        self._database.execute("DELETE FROM levels WHERE space = ? AND subject = ?", (self._space, subject))
        if level is not None:
            self._database.execute("INSERT INTO levels VALUES (?, ?, ?)", (self._space, subject, level))


class SchemaStore:
    """The file of one installation's schemas; its methods may be called from any thread.

    Args:
        path: the file; made when there is none, readable by its owner alone.

    Raises:
        ConfigError: when the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            check_database(path)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._database = connect(path, timeout=_BUSY_S, check_same_thread=False)
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"{path} cannot be opened as a schema registry: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    @contextmanager
    def transaction(self, space: str) -> Iterator[Tables]:
        """The tables of a space; all writes are committed when the block ends without an error.

        Raises:
            UnavailableError: the file cannot be used now.
        """
        with self._lock, self._committed():
            yield Tables(self._database, space)

    def forget_others(self, spaces: Collection[str]) -> None:
        """Remove all that belongs to other spaces than these, which are gone."""
        with self._lock, self._committed():
            for (space,) in self._database.execute("SELECT space FROM spaces").fetchall():
                if space not in spaces:
                    self._forget(space)

    def forget(self, space: str) -> None:
        """Remove all that a space had."""
        with self._lock, self._committed():
            self._forget(space)

    def _forget(self, space: str) -> None:
        for table in ("versions", "schemas", "levels", "spaces"):
            self._database.execute(f"DELETE FROM {table} WHERE space = ?", (space,))  # noqa: S608  # a word of ours

    @contextmanager
    def _committed(self) -> Iterator[None]:
        try:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise UnavailableError(f"the schema registry cannot be used now: {error}") from None

    def _prepare(self) -> None:
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        (found,) = self._database.execute("PRAGMA user_version").fetchone()
        if found > FORMAT:
            raise ConfigError(f"{self._path} was written by a newer version of EnMasse: update this one")
        if not found:
            self._database.executescript(_TABLES)
        protect(self._database)
        if found < FORMAT:
            self._database.execute(f"PRAGMA user_version = {FORMAT}")
