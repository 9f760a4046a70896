"""The resource store: SQLite, one table of objects and one of their changes.

Rules:
1. Every write has a version of its own, one higher than the last, for all kinds together.
2. A write and its change record are one transaction; listeners hear of it after the commit.
3. Changes are kept for the last ``history`` versions; who asks for older ones must list again.
4. A write that returned is on disk (WAL with a sync per commit).

The store is used from one thread, the event loop's: a commit takes about as
long as a disk sync, and the control process carries no messages. It knows
nothing of what the objects mean; that is the registry's part.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from enmasse.control.errors import (
    ConflictError,
    ExpiredVersionError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Action", "Change", "Document", "ResourceStore"]

Document = dict[str, Any]
Action = Literal["ADDED", "MODIFIED", "DELETED"]

_FORMAT = 1
_SCHEMA = """
CREATE TABLE objects (
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    version INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (kind, namespace, name)
) WITHOUT ROWID;
CREATE TABLE changes (
    version INTEGER PRIMARY KEY, action TEXT NOT NULL,
    kind TEXT NOT NULL, namespace TEXT NOT NULL, body TEXT NOT NULL
);
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO facts VALUES ('version', 0), ('compacted', 0);
"""


@dataclass(frozen=True, slots=True)
class Change:
    """One write, as those who watch see it."""

    version: int
    action: Action
    document: Document


class ResourceStore:
    """Versioned objects on disk.

    Args:
        path: the database file; its directory must exist.
        history: how many changes are kept for those who watch.

    Raises:
        ConfigError: when the file was written by a newer version or is no database.
    """

    def __init__(self, path: Path, *, history: int = 10_000) -> None:
        self._history = history
        self._listeners: set[Callable[[], None]] = set()
        self._is_writing = False
        self._database = sqlite3.connect(path, isolation_level=None)
        try:
            self._prepare(path)
        except BaseException:
            self._database.close()
            raise
        self._version = self.fact("version")
        self._compacted = self.fact("compacted")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    @property
    def version(self) -> int:
        """The version of the last write."""
        return self._version

    def fact(self, name: str) -> int:
        """Return a number kept beside the objects, 0 if it was never written."""
        row = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else 0

    def write_fact(self, name: str, value: int) -> None:
        """Keep a number beside the objects."""
        self._database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    @contextmanager
    def listening(self, listener: Callable[[], None]) -> Iterator[None]:
        """Have ``listener`` called after every commit while the block runs."""
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)

    @contextmanager
    def transaction(self, *, dry_run: bool = False) -> Iterator[None]:
        """Make all writes in the block one: all of them are committed, or none.

        Args:
            dry_run: commit nothing in any case.
        """
        if self._is_writing:
            yield
            return
        version = self._version
        self._database.execute("BEGIN IMMEDIATE")
        self._is_writing = True
        try:
            yield
            if dry_run:
                self._roll_back(version)
            else:
                self._compact()
                self._database.execute("COMMIT")
        except BaseException:
            self._roll_back(version)
            raise
        finally:
            self._is_writing = False
        if self._version != version:
            for listener in tuple(self._listeners):
                listener()

    def get(self, kind: str, namespace: str, name: str) -> Document:
        """Return one object.

        Raises:
            ResourceNotFoundError: when there is none of this name.
        """
        document = self.find(kind, namespace, name)
        if document is None:
            raise ResourceNotFoundError(kind, namespace, name)
        return document

    def find(self, kind: str, namespace: str, name: str) -> Document | None:
        """Return one object, or None when there is none of this name."""
        row = self._database.execute(
            "SELECT body FROM objects WHERE kind = ? AND namespace = ? AND name = ?", (kind, namespace, name)
        ).fetchone()
        return json.loads(row[0]) if row else None

    def select(self, kind: str, namespace: str | None = None, prefix: str = "") -> list[Document]:
        """Return the objects of a kind by namespace and name; ``prefix`` is that of their names."""
        rows = self._database.execute(
            "SELECT body FROM objects WHERE kind = ? AND (? IS NULL OR namespace = ?)"
            " AND substr(name, 1, ?) = ? ORDER BY namespace, name",
            (kind, namespace, namespace, len(prefix), prefix),
        )
        return [json.loads(row[0]) for row in rows]

    def create(self, document: Document) -> Document:
        """Add an object and return it with its version.

        Raises:
            ResourceExistsError: when there is one of this name.
        """
        key = _key(document)
        with self.transaction():
            stored, body = self._stamp(document)
            try:
                self._database.execute("INSERT INTO objects VALUES (?, ?, ?, ?, ?)", (*key, self._version, body))
            except sqlite3.IntegrityError:
                raise ResourceExistsError(*key) from None
            self._record("ADDED", key, body)
        return stored

    def replace(self, document: Document, expected: str = "") -> Document:
        """Put an object in the place of its former version and return it with its new one.

        Args:
            document: the whole object.
            expected: the version which must be the present one; empty: any.

        Raises:
            ResourceNotFoundError: when there is none of this name.
            ConflictError: when the present version is another.
        """
        key = _key(document)
        with self.transaction():
            self._expect(key, expected)
            stored, body = self._stamp(document)
            self._database.execute(
                "UPDATE objects SET version = ?, body = ? WHERE kind = ? AND namespace = ? AND name = ?",
                (self._version, body, *key),
            )
            self._record("MODIFIED", key, body)
        return stored

    def delete(self, kind: str, namespace: str, name: str, expected: str = "") -> Document:
        """Remove an object and return its last form, with the version of the removal.

        Raises:
            ResourceNotFoundError: when there is none of this name.
            ConflictError: when the present version is not the expected one.
        """
        key = (kind, namespace, name)
        with self.transaction():
            self._expect(key, expected)
            last, body = self._stamp(self.get(*key))
            self._database.execute("DELETE FROM objects WHERE kind = ? AND namespace = ? AND name = ?", key)
            self._record("DELETED", key, body)
        return last

    def changes(
        self, after: int, *, kinds: tuple[str, ...] = (), namespace: str | None = None, limit: int = 500
    ) -> tuple[list[Change], int]:
        """Return the changes after a version, oldest first, and the version up to which they reach.

        Args:
            after: the last version that is known already.
            kinds: only these; empty: all.
            namespace: only this one; None: all.
            limit: how many changes to return at most.

        Raises:
            ExpiredVersionError: when the history does not reach back so far,
                or ``after`` is a version of another store.
        """
        if not self._compacted <= after <= self._version:
            raise ExpiredVersionError(after, self._compacted, self._version)
        marks = ", ".join("?" * len(kinds))
        rows = self._database.execute(
            "SELECT version, action, body FROM changes WHERE version > ?"  # noqa: S608  # only question marks
            f" AND (? IS NULL OR namespace = ?){f' AND kind IN ({marks})' if kinds else ''}"
            " ORDER BY version LIMIT ?",
            (after, namespace, namespace, *kinds, limit),
        ).fetchall()
        found = [Change(version, action, json.loads(body)) for version, action, body in rows]
        return found, found[-1].version if len(found) == limit else self._version

    def _prepare(self, path: Path) -> None:
        try:
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            (found,) = self._database.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError as error:
            raise ConfigError(f"{path} is not a resource store: {error}") from None
        if found > _FORMAT:
            raise ConfigError(f"{path} was written by a newer version of EnMasse: update this one")
        if found < _FORMAT:
            self._database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_FORMAT}; COMMIT;")

    def _roll_back(self, version: int) -> None:
        if self._database.in_transaction:  # SQLite rolls back by itself when the disk is full
            self._database.execute("ROLLBACK")
        self._version = version
        self._compacted = self.fact("compacted")

    def _stamp(self, document: Document) -> tuple[Document, str]:
        self._version += 1
        stamped = document | {"metadata": document["metadata"] | {"resourceVersion": str(self._version)}}
        return stamped, json.dumps(stamped, ensure_ascii=False, separators=(",", ":"))

    def _record(self, action: Action, key: tuple[str, str, str], body: str) -> None:
        kind, namespace, _ = key
        self._database.execute(
            "INSERT INTO changes VALUES (?, ?, ?, ?, ?)", (self._version, action, kind, namespace, body)
        )
        self._database.execute("UPDATE facts SET value = ? WHERE name = 'version'", (self._version,))

    def _expect(self, key: tuple[str, str, str], expected: str) -> None:
        row = self._database.execute(
            "SELECT version FROM objects WHERE kind = ? AND namespace = ? AND name = ?", key
        ).fetchone()
        if row is None:
            raise ResourceNotFoundError(*key)
        if expected and expected != str(row[0]):
            raise ConflictError(f"{key[0]} {key[2]}", f"version {expected}", f"version {row[0]}")

    def _compact(self) -> None:
        # In steps of a tenth, so that not every write deletes a row.
        if self._version - self._compacted > self._history * 1.1:
            self._compacted = self._version - self._history
            self._database.execute("DELETE FROM changes WHERE version <= ?", (self._compacted,))
            self._database.execute("UPDATE facts SET value = ? WHERE name = 'compacted'", (self._compacted,))


def _key(document: Document) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata["namespace"], metadata["name"]
