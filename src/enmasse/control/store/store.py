"""The resource store in SQLite: one table of objects and one of their changes. It implements ``store/port.py``.

Rules:
1. Every write has a version of its own, one higher than the last, for all kinds together.
2. A write and its change record are one transaction; listeners are called after the commit.
3. The last ``history`` changes are kept, fewer when they are large, in fair parts for all namespaces; who asks for
   older ones must list again.
4. A write that returned is on disk (WAL with a sync per commit). One that failed, for
   whatever reason, has left nothing; the next one is tried on its own merits.
5. No operation on one object takes longer because there are many.

The store is used from one thread, the event loop's: a commit takes about as
long as a disk sync, and the control process carries no messages. It knows
nothing of what the objects mean; that is the registry's part.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from enmasse.control.errors import (
    ConflictError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from enmasse.control.store.history import History
from enmasse.control.store.port import Action, Change, Document, Judge, Key, agree
from enmasse.control.store.tables import InstallationTables, UsageCounters, open_database, translate
from enmasse.errors import EnmasseError, LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path


_BEYOND = "\U0010ffff"  # sorts after every character of a name


class ResourceStore:
    """Versioned objects on disk.

    Args:
        path: the database file; its directory must exist.
        history: the number of changes that are kept for watches.
        history_bytes: the most bytes of them together.

    Every method raises ``StoreBusyError``, ``StoreFullError``, ``StoreReadOnlyError``
    or ``StoreBrokenError`` when the file cannot be used.

    Raises:
        ConfigError: when the file was written by a newer version or is no database.
    """

    def __init__(self, path: Path, *, history: int = 10_000, history_bytes: int = 256 * 1024 * 1024) -> None:
        self._listeners: set[Callable[[], None]] = set()
        self._is_writing = self._is_dry = False
        self._touched: set[str] = set()  # uids with another aside than before this transaction
        self._written: dict[str, Key] = {}  # uids written in this transaction, with kind and namespace
        self._aside_growth: dict[str, int] = {}  # bytes by uid, of objects not written since
        self._database = open_database(path)
        try:
            self._version = self.fact("version")
            self._history = History(self.execute, most=history, most_bytes=history_bytes)
            self.usage = UsageCounters(self.execute)
            self.installation = InstallationTables(self.execute, self.transaction)
        except BaseException:
            self._database.close()
            raise

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
        rows = self.execute("SELECT value FROM facts WHERE name = ?", (name,))
        return int(rows[0][0]) if rows else 0

    def write_fact(self, name: str, value: int) -> None:
        """Keep a number beside the objects."""
        self.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    @contextmanager
    def listening(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call ``listener`` after every commit while the block runs."""
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
            if dry_run and not self._is_dry:
                raise LocalError("a dry run within a transaction would be committed with it")
            yield
            return
        version = self._version
        self.execute("BEGIN IMMEDIATE")
        self._is_writing, self._is_dry = True, dry_run
        is_committed = False
        try:
            yield
            self._show_touched()
            if not dry_run:
                self._history.compact()
                self.execute("COMMIT")
                is_committed = True
        finally:
            self._is_writing = False
            self._touched.clear()
            self._written.clear()
            self._aside_growth.clear()
            if not is_committed:
                self._version = version
                if self._database.in_transaction:  # SQLite rolls back by itself when the disk is full
                    self.execute("ROLLBACK")
            self._history.close(is_committed=is_committed)
            self.usage.close(is_committed=is_committed)
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
        rows = self.execute(
            "SELECT body FROM objects WHERE kind = ? AND namespace = ? AND name = ?", (kind, namespace, name)
        )
        return json.loads(rows[0][0]) if rows else None

    def find_uid(self, uid: str) -> Document | None:
        """Return the object with this identity, or None when there is none."""
        rows = self.execute("SELECT body FROM objects WHERE uid = ?", (uid,))
        return json.loads(rows[0][0]) if rows else None

    def select(
        self, kind: str, namespace: str | None = None, prefix: str = "", *, after: str = "", limit: int = -1
    ) -> list[Document]:
        """Return the objects of a kind by namespace and name.

        Args:
            kind: the kind of the objects.
            namespace: only this one; None: all.
            prefix: only those with names that begin so.
            after: only those with later names; with a namespace.
            limit: the most objects; -1: all of them.
        """
        if namespace is None:
            rows = self.execute(
                "SELECT body FROM objects WHERE kind = ? AND substr(name, 1, ?) = ?"
                " ORDER BY kind, namespace, name LIMIT ?",
                (kind, len(prefix), prefix, limit),
            )
        else:
            rows = self.execute(
                "SELECT body FROM objects WHERE kind = ? AND namespace = ? AND name >= ? AND name < ? AND name > ?"
                " ORDER BY kind, namespace, name LIMIT ?",
                (kind, namespace, prefix, prefix + _BEYOND, after, limit),
            )
        return [json.loads(row[0]) for row in rows]

    def bodies(self, kind: str) -> Iterator[Document]:
        """Yield the objects of a kind in the order of their creation, whatever clocks said then.

        Nothing may be written meanwhile.
        """
        for (body,) in self._database.execute("SELECT body FROM objects WHERE kind = ? ORDER BY id", (kind,)):
            yield json.loads(body)

    def select_address(self, kind: str, namespace: str, address: str) -> list[Document]:
        """Return the objects of a kind and namespace with this ``spec.address``, by their names."""
        rows = self.execute(
            "SELECT body FROM objects INDEXED BY objects_by_address"
            " WHERE kind = ? AND json_extract(body, '$.spec.address') = ? AND namespace = ? ORDER BY name",
            (kind, address, namespace),
        )
        return [json.loads(row[0]) for row in rows]

    def count(self, kind: str, namespace: str | None = None, after: Key | None = None) -> int:
        """Return how many objects of a kind there are, in one namespace or all, after a key or in all."""
        space, name = after or ("", "")
        rows = self.execute(
            "SELECT count(*) FROM objects WHERE kind = ? AND (? IS NULL OR namespace = ?)"
            " AND (namespace, name) > (?, ?)",
            (kind, namespace, namespace, space, name),
        )
        return int(rows[0][0])

    def page(
        self, kind: str, namespace: str | None = None, *, after: Key | None = None, limit: int, at: int = 0
    ) -> list[tuple[str, str, str]]:
        """Return a part of the list of all objects of a kind as it was at a version.

        Args:
            kind: the kind of the objects.
            namespace: only this one; None: all.
            after: the last key of the former part.
            limit: the most objects.
            at: the version; 0: the present one.

        Returns:
            Namespace, name and JSON form of each, by namespace and name.

        Raises:
            ExpiredVersionError: when the history does not reach back so far.
        """
        at = at or self._version
        self._history.expect(at, self._version, namespace)
        where, key = "(namespace, name) > (?, ?)", after or ("", "")
        if namespace is not None:
            where, key = "namespace = ? AND name > ?", (namespace, key[1])
        rows = self.execute(
            f"SELECT namespace, name, body FROM objects WHERE kind = ? AND {where}"  # noqa: S608  # constants
            " AND version <= ? ORDER BY kind, namespace, name LIMIT ?",
            (kind, *key, at, limit),
        )
        if at < self._version:
            # What was written since lies in the first change after that version, as it was before.
            former = self.execute(
                f"SELECT namespace, name, before, min(version) FROM changes WHERE kind = ? AND {where}"  # noqa: S608
                " AND version > ? GROUP BY namespace, name",
                (kind, *key, at),
            )
            rows = sorted([*rows, *(row[:3] for row in former if row[2] is not None)])[:limit]
        return rows

    def create(self, document: Document, judge: Judge = agree) -> Document:
        """Add an object and return it with its version.

        Args:
            document: the whole object.
            judge: refuses it by an error, for the bytes that it takes.

        Raises:
            ResourceExistsError: when there is one of this name.
        """
        key = _key(document)
        with self.transaction():
            stored, body = self._stamp(document)
            uid = _uid(document)
            size = _size(body) + self._aside_growth.get(uid, 0)
            try:
                self.execute(
                    "INSERT INTO objects (kind, namespace, name, uid, version, body) VALUES (?, ?, ?, ?, ?, ?)",
                    (*key, uid, self._version, body),
                )
            except sqlite3.IntegrityError:
                self._version -= 1  # the transaction around this one may go on
                raise ResourceExistsError(*key) from None
            try:
                judge(size)
            except EnmasseError:
                self.execute("DELETE FROM objects WHERE kind = ? AND namespace = ? AND name = ?", key)
                self._version -= 1  # likewise
                raise
            self.usage.note(*key[:2], 1, size)
            self._own(uid, None, document)
            self._record("ADDED", key, uid, body, None)
        return stored

    def replace(self, document: Document, expected: str = "", judge: Judge = agree) -> Document:
        """Put an object in the place of its former version and return it with its new one.

        Args:
            document: the whole object.
            expected: the version which must be the present one; empty: any.
            judge: refuses it by an error, for the bytes by which it is larger than it was.

        Raises:
            ResourceNotFoundError: when there is none of this name.
            ConflictError: when the present version is another.
        """
        key = _key(document)
        with self.transaction():
            row, before = self._expect(key, expected)
            stored, body = self._stamp(document)
            uid = _uid(document)
            growth = _size(body) - _size(before) + self._aside_growth.get(uid, 0)
            try:
                judge(growth)
            except EnmasseError:
                self._version -= 1  # the transaction around this one may go on
                raise
            self.usage.note(*key[:2], 0, growth)
            self.execute(
                "UPDATE objects SET uid = ?, version = ?, body = ? WHERE id = ?", (uid, self._version, body, row)
            )
            self._own(uid, before, document)
            self._record("MODIFIED", key, uid, body, before)
        return stored

    def delete(self, kind: str, namespace: str, name: str, expected: str = "") -> Document:
        """Remove an object and return its last form, with the version of the removal.

        Raises:
            ResourceNotFoundError: when there is none of this name.
            ConflictError: when the present version is not the expected one.
        """
        key = (kind, namespace, name)
        with self.transaction():
            row, before = self._expect(key, expected)
            last, body = self._stamp(json.loads(before))
            uid = _uid(last)
            ((aside,),) = self.execute("SELECT total(length(value)) FROM asides WHERE uid = ?", (uid,))
            self.execute("DELETE FROM objects WHERE id = ?", (row,))
            self.execute("DELETE FROM asides WHERE uid = ?", (uid,))
            self.usage.note(*key[:2], -1, -_size(before) - int(aside) + self._aside_growth.get(uid, 0))
            self._own(uid, before, None)
            self._record("DELETED", key, uid, body, before)
        return last

    def put_aside(self, uid: str, name: str, value: bytes) -> None:
        """Keep private data beside an object: deleted with it, never shown by the API.

        Watches receive it as any change of the object. It may be
        put there in the transaction that creates the object, before it is
        created; without an object it is not kept.

        Args:
            uid: the identity of the object.
            name: the name of the data.
            value: the data; takes the place of what had the name before.
        """
        with self.transaction():
            former = self.aside(uid, name)
            if former != value:
                self.execute("INSERT OR REPLACE INTO asides VALUES (?, ?, ?)", (uid, name, value))
                self._touch(uid, len(value) - len(former or b""))

    def aside(self, uid: str, name: str) -> bytes | None:
        """Return what was put beside an object under a name, or None."""
        rows = self.execute("SELECT value FROM asides WHERE uid = ? AND name = ?", (uid, name))
        return rows[0][0] if rows else None

    def take_aside(self, uid: str, name: str | None = None) -> None:
        """Remove what was put beside an object, under one name or all."""
        with self.transaction():
            which = "uid = ? AND (? IS NULL OR name = ?)"
            ((found, size),) = self.execute(
                f"SELECT count(*), total(length(value)) FROM asides WHERE {which}",  # noqa: S608  # a constant
                (uid, name, name),
            )
            if found:
                self.execute(f"DELETE FROM asides WHERE {which}", (uid, name, name))  # noqa: S608  # likewise
                self._touch(uid, -int(size))

    def dependents(self, owner: str, *, after: str = "", limit: int = 100) -> list[Document]:
        """Return objects which name an object, by its uid, among their owners, by their uids.

        Args:
            owner: the uid of the owner.
            after: only those with later uids.
            limit: the most objects.
        """
        rows = self.execute(
            "SELECT body FROM owners JOIN objects ON uid = dependent WHERE owner = ? AND dependent > ?"
            " ORDER BY dependent LIMIT ?",
            (owner, after, limit),
        )
        return [json.loads(row[0]) for row in rows]

    def lost_owners(self) -> list[str]:
        """Return the uids that objects name as their owners, and that no object has."""
        rows = self.execute("SELECT DISTINCT owner FROM owners WHERE owner NOT IN (SELECT uid FROM objects)")
        return [row[0] for row in rows]

    def namespaces(self) -> list[str]:
        """Return the namespaces that objects lie in."""
        # One step in the index for each, however many objects lie there.
        found: list[str] = []
        for (kind,) in self.execute("SELECT DISTINCT kind FROM objects"):
            last = ""
            while rows := self.execute(
                "SELECT namespace FROM objects WHERE kind = ? AND namespace > ? ORDER BY namespace LIMIT 1",
                (kind, last),
            ):
                last = rows[0][0]
                found.append(last)
        return sorted(set(found))

    def changes(
        self, after: int, *, kinds: tuple[str, ...] = (), namespace: str | None = None, limit: int = 500
    ) -> tuple[list[Change], int]:
        """Return the changes after a version, oldest first, and the version up to which they reach.

        Args:
            after: the last version that is known already.
            kinds: only these; empty: all.
            namespace: only this one; None: all.
            limit: the most changes to return.

        Raises:
            ExpiredVersionError: when the history does not reach back so far,
                or ``after`` is a version of another store.
        """
        self._history.expect(after, self._version, namespace)
        found = self._history.since(after, kinds, namespace, limit)
        return found, found[-1].version if len(found) == limit else self._version

    def execute(self, statement: str, arguments: tuple[Any, ...] = ()) -> list[Any]:
        """Run one statement of SQL, for other modules of this package with tables of their own; return its rows."""
        try:
            return self._database.execute(statement, arguments).fetchall()
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            raise translate(error) from None

    def _stamp(self, document: Document) -> tuple[Document, str]:
        self._version += 1
        stamped = document | {"metadata": document["metadata"] | {"resourceVersion": str(self._version)}}
        return stamped, _text(stamped)

    def _record(self, action: Action, key: tuple[str, str, str], uid: str, body: str, before: str | None) -> None:
        self._history.note(self._version, action, key, body, before)
        self.execute("UPDATE facts SET value = ? WHERE name = 'version'", (self._version,))
        self._written[uid] = key[:2]
        self._aside_growth.pop(uid, None)

    def _touch(self, uid: str, growth: int) -> None:
        """Record that the private data of an object has changed."""
        self._touched.add(uid)
        if (written := self._written.get(uid)) is not None:
            self.usage.note(*written, 0, growth)
        else:  # it is about to be written
            self._aside_growth[uid] = self._aside_growth.get(uid, 0) + growth

    def _own(self, uid: str, before: str | None, document: Document | None) -> None:
        """Update the index of owners."""
        if before is not None and '"ownerReferences"' in before:
            self.execute("DELETE FROM owners WHERE dependent = ?", (uid,))
        if document is not None:
            for owner in document["metadata"].get("ownerReferences") or ():
                self.execute("INSERT OR IGNORE INTO owners VALUES (?, ?)", (owner["uid"], uid))

    def _show_touched(self) -> None:
        """Give objects with changed private data a new version, unless they have one."""
        for uid in self._touched - self._written.keys():
            document = self.find_uid(uid)
            if document is None:
                self.execute("DELETE FROM asides WHERE uid = ?", (uid,))
            else:
                self.replace(document)

    def _expect(self, key: tuple[str, str, str], expected: str) -> tuple[int, str]:
        """Return the row and the body of an object."""
        rows = self.execute(
            "SELECT id, version, body FROM objects WHERE kind = ? AND namespace = ? AND name = ?", key
        )
        if not rows:
            raise ResourceNotFoundError(*key)
        row, version, body = rows[0]
        if expected and expected != str(version):
            raise ConflictError(f"{key[0]} {key[2]}", f"version {expected}", f"version {version}")
        return row, body


def _key(document: Document) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def _uid(document: Document) -> str:
    uid: str = document["metadata"].get("uid", "")
    return uid


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _size(body: str) -> int:
    return len(body) if body.isascii() else len(body.encode())
