"""The resource store: versions, history, locking, transactions, and what is left after a crash."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.errors import (
    ExpiredVersionError,
    StoreFullError,
)
from enmasse.control.store.store import ResourceStore
from enmasse.databases.checksums import connect, protect
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def thing(name: str, kind: str = "Thing", namespace: str = "default", **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"namespace": namespace, "name": name}} | fields


def test_a_version_beyond_the_history_is_expired_on_either_side(tmp_path: Path) -> None:
    with ResourceStore(tmp_path / "db", history=10) as store:
        for number in range(30):
            store.create(thing(f"n{number}"))
        with pytest.raises(ExpiredVersionError):
            store.changes(5)
        with pytest.raises(ExpiredVersionError):
            store.changes(31)
        assert len(store.changes(20)[0]) == 10


def test_everything_is_there_after_opening_again(tmp_path: Path) -> None:
    with ResourceStore(tmp_path / "db") as store:
        store.create(thing("a", spec="é"))
        store.write_fact("catalog", 7)
    with ResourceStore(tmp_path / "db") as store:
        assert store.get("Thing", "default", "a")["spec"] == "é"
        assert (store.version, store.fact("catalog"), len(store.changes(0)[0])) == (1, 7, 1)


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "db")
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(ConfigError, match="written by a newer version"):
        ResourceStore(tmp_path / "db")


def test_a_file_of_several_nodes_is_refused_by_versions_that_know_one(tmp_path: Path) -> None:
    def version() -> int:
        with closing(sqlite3.connect(tmp_path / "db")) as database:
            return int(database.execute("PRAGMA user_version").fetchone()[0])

    with ResourceStore(tmp_path / "db") as store:
        store.installation.know_node("node-0")
        store.installation.know_node("node-0")
        assert version() == 5
        store.installation.know_node("node-1")
        assert version() == 6, "those versions read 5 and older ones"
    with ResourceStore(tmp_path / "db") as store:
        store.installation.know_node("node-0")
    assert version() == 6


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(ConfigError, match="is not a resource store"):
        ResourceStore(tmp_path / "db")


def test_the_history_is_bounded_by_its_size_too(tmp_path: Path) -> None:
    with ResourceStore(tmp_path / "db", history_bytes=10_000) as store:
        store.create(thing("a"))
        for number in range(40):
            store.replace(thing("a", spec="x" * 1000, number=number))
        with pytest.raises(ExpiredVersionError):
            store.changes(20)
        assert len(store.changes(store.version - 1)[0]) >= 1
    with ResourceStore(tmp_path / "db", history_bytes=10_000) as store:
        (size,) = store._database.execute("SELECT sum(length(body) + length(before)) FROM changes").fetchone()
        assert size <= 10_000
        store.replace(thing("a", spec="y"))
        assert [change.document["spec"] for change in store.changes(41)[0]] == ["y"]


def test_what_one_namespace_writes_pushes_out_its_own_history_alone(tmp_path: Path) -> None:
    with ResourceStore(tmp_path / "db", history=100, history_bytes=100_000) as store:
        for number in range(10):
            store.create(thing(f"n{number}", namespace="quiet"))
        store.create({"kind": "Whole", "metadata": {"name": "w"}})
        store.create(thing("a", namespace="loud"))
        for number in range(300):
            store.replace(thing("a", namespace="loud", number=number))
        for number in range(20):
            store.replace(thing("a", namespace="loud", number=number, spec="x" * 10_000))
    with ResourceStore(tmp_path / "db", history=100, history_bytes=100_000) as store:
        assert len(store.changes(0, namespace="quiet")[0]) == 10
        assert len(store.changes(0, namespace="")[0]) == 1
        assert len(store.page("Thing", "quiet", limit=100, at=5)) == 5
        for namespace in ("loud", None):
            with pytest.raises(ExpiredVersionError):
                store.changes(0, namespace=namespace)
        ((kept, size),) = store.execute(
            "SELECT count(*), sum(length(body) + length(coalesce(before, ''))) FROM changes"
        )
        assert kept <= 110
        assert size <= 100_000


def test_a_history_of_the_former_format_is_kept_in_parts_from_now_on(tmp_path: Path) -> None:
    with ResourceStore(tmp_path / "db", history=10) as store:
        for number in range(8):
            store.create(thing(f"n{number}", namespace="quiet"))
    with closing(connect(tmp_path / "db", timeout=1)) as former:
        former.executescript(
            "DROP INDEX changes_by_namespace; DELETE FROM changes WHERE version <= 5;"
            "UPDATE facts SET value = 5 WHERE name = 'compacted'; PRAGMA user_version = 3;"
        )
        protect(former)
    with ResourceStore(tmp_path / "db", history=10) as store:
        with pytest.raises(ExpiredVersionError):
            store.changes(4, namespace="loud")
        for number in range(30):
            store.create(thing(f"n{number}", namespace="loud"))
        assert len(store.changes(5, namespace="quiet")[0]) == 3


def test_a_history_that_was_not_shortened_after_all_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ResourceStore(tmp_path / "db", history=10) as store:
        for number in range(11):
            store.create(thing(f"n{number}"))
        execute = store.execute

        def fail(statement: str, arguments: tuple[Any, ...] = ()) -> list[Any]:
            if statement == "COMMIT":
                raise StoreFullError("full")
            return execute(statement, arguments)

        monkeypatch.setattr(store, "execute", fail)
        with pytest.raises(StoreFullError):
            store.create(thing("one more"))
        monkeypatch.undo()
        assert len(store.changes(0)[0]) == 11
