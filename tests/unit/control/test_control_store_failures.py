"""What the store does when its file cannot be used: it says so, leaves nothing half done, and goes on afterwards."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from enmasse.control.errors import (
    ExpiredVersionError,
    StoreBrokenError,
    StoreBusyError,
    StoreFullError,
    StoreReadOnlyError,
)
from enmasse.control.store.history import follow
from enmasse.control.store.store import ResourceStore
from enmasse.databases import soundness
from enmasse.errors import EnmasseError

FORMAT_1 = """
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
INSERT INTO facts VALUES ('version', 7), ('compacted', 0), ('catalog', 1);
INSERT INTO objects VALUES ('Thing', 'default', 'b', 5,
    '{"kind":"Thing","metadata":{"name":"b","namespace":"default","uid":"u-b","resourceVersion":"5"},"spec":2}');
INSERT INTO objects VALUES ('Thing', 'default', 'a', 7,
    '{"kind":"Thing","metadata":{"name":"a","namespace":"default","uid":"u-a","resourceVersion":"7"},"spec":1}');
INSERT INTO changes VALUES (7, 'MODIFIED', 'Thing', 'default', '{}');
PRAGMA user_version = 1;
"""


def thing(name: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "Thing", "metadata": {"namespace": "default", "name": name, "uid": f"u-{name}"}} | fields


def names(store: ResourceStore) -> list[str]:
    return [item["metadata"]["name"] for item in store.select("Thing")]


def expect_untouched(store: ResourceStore, error: type[EnmasseError]) -> None:
    """Try every kind of write; each fails, and none leaves a trace."""
    version = store.version
    heard: list[int] = []
    with store.listening(lambda: heard.append(store.version)):
        with pytest.raises(error):
            store.create(thing("b", spec="x" * 100_000))
        with pytest.raises(error):
            store.replace(thing("a", spec="x" * 100_000))
        with pytest.raises(error), store.transaction():  # noqa: PT012  # the block is the point
            store.put_aside("u-a", "note", b"x" * 100_000)
            store.create(thing("c", spec="x" * 100_000))
    assert (store.version, heard) == (version, [])


def test_a_lock_of_another_process_is_told_and_forgotten_when_it_is_gone(tmp_path: Path) -> None:
    with ResourceStore(tmp_path / "db") as store:
        store.create(thing("a"))
        other = sqlite3.connect(tmp_path / "db", isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            expect_untouched(store, StoreBusyError)
            assert names(store) == ["a"]
            other.execute("ROLLBACK")
        finally:
            other.close()
        store.create(thing("b"))
        assert (names(store), store.version) == (["a", "b"], 2)


def test_a_full_disk_is_told_and_forgotten_when_there_is_room(tmp_path: Path) -> None:
    with ResourceStore(tmp_path / "db") as store:
        store.create(thing("a"))
        database = store._database
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")
        expect_untouched(store, StoreFullError)
        assert (names(store), store.aside("u-a", "note")) == (["a"], None)
        database.execute("PRAGMA max_page_count = 1000000")
        store.create(thing("b", spec="x" * 100_000))
        assert (names(store), store.version) == (["a", "b"], 2)
    with ResourceStore(tmp_path / "db") as store:
        assert (names(store), store.version) == (["a", "b"], 2)


def test_a_file_that_cannot_be_written_is_told_and_still_read(tmp_path: Path) -> None:
    with ResourceStore(tmp_path / "db") as store:
        store.create(thing("a"))
        store._database.execute("PRAGMA query_only = ON")
        expect_untouched(store, StoreReadOnlyError)
        assert names(store) == ["a"]
        store._database.execute("PRAGMA query_only = OFF")
        store.create(thing("b"))
        assert names(store) == ["a", "b"]


def test_a_damaged_file_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundness, "_TRIED_S", 0.1)
    path = tmp_path / "db"
    with ResourceStore(path) as store, store.transaction():
        for number in range(500):
            store.create(thing(f"n{number}", spec="x" * 500))
    damaged = bytearray(path.read_bytes())
    damaged[8192 : len(damaged) // 2] = b"\xa5" * (len(damaged) // 2 - 8192)
    path.write_bytes(damaged)
    with pytest.raises(StoreBrokenError, match="restore a backup") as refused:
        ResourceStore(path)
    assert str(path) not in map(os.path.realpath, Path("/proc/self/fd").iterdir()), f"open after {refused}"


def test_a_follower_waits_while_the_file_is_locked(store: ResourceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create(thing("a"))
    refusals = 2
    changes = store.changes

    def refuse(*arguments: Any, **options: Any) -> Any:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise StoreBusyError("locked")
        return changes(*arguments, **options)

    async def body() -> list[str]:
        async for found in follow(store, 0, pause_s=0.001):
            return [change.document["metadata"]["name"] for change in found]
        return []

    monkeypatch.setattr(store, "changes", refuse)
    assert asyncio.run(body()) == ["a"]


def test_a_file_of_the_first_format_is_taken_over(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "db")
    old.executescript(FORMAT_1)
    old.close()
    for _ in range(2):
        with ResourceStore(tmp_path / "db") as store:
            assert names(store) == ["a", "b"]
            assert (store.version, store.fact("catalog")) == (7, 1)
            found = store.find_uid("u-a")
            assert found is not None
            assert found["spec"] == 1
    with ResourceStore(tmp_path / "db") as store:
        with pytest.raises(ExpiredVersionError):
            store.changes(6)
        store.replace(thing("a", spec=3), "7")
        assert [change.version for change in store.changes(7)[0]] == [8]


def test_a_migration_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "db")
    old.executescript(FORMAT_1)
    old.execute("PRAGMA journal_mode = WAL")
    old.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreBusyError):
            ResourceStore(tmp_path / "db")
    finally:
        old.close()
    with ResourceStore(tmp_path / "db") as store:
        assert names(store) == ["a", "b"]
