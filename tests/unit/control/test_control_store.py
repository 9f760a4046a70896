"""The resource store: versions, history, locking, transactions, and what is left after a crash."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.errors import (
    ConflictError,
    ExpiredVersionError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from enmasse.control.store import ResourceStore
from enmasse.errors import ConfigError, LocalError

if TYPE_CHECKING:
    from pathlib import Path


def thing(name: str, kind: str = "Thing", namespace: str = "default", **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"namespace": namespace, "name": name}} | fields


def test_versions_rise_by_one_with_every_write_of_any_kind(store: ResourceStore) -> None:
    versions = [
        store.create(thing("a")),
        store.create(thing("b", kind="Other")),
        store.replace(thing("a", spec=1)),
        store.delete("Other", "default", "b"),
    ]
    assert [item["metadata"]["resourceVersion"] for item in versions] == ["1", "2", "3", "4"]


def test_an_object_is_found_by_kind_namespace_and_name(store: ResourceStore) -> None:
    store.create(thing("a", spec=1))
    store.create(thing("a", namespace="other", spec=2))
    store.create(thing("a", kind="Other", spec=3))
    assert store.get("Thing", "default", "a")["spec"] == 1
    assert [item["spec"] for item in store.select("Thing")] == [1, 2]
    assert [item["spec"] for item in store.select("Thing", "other")] == [2]
    with pytest.raises(ResourceNotFoundError, match="there is no Thing 'b' in namespace default"):
        store.get("Thing", "default", "b")


def test_a_name_is_taken_once(store: ResourceStore) -> None:
    store.create(thing("a"))
    with pytest.raises(ResourceExistsError):
        store.create(thing("a"))
    assert store.version == 1


def test_a_write_against_an_old_version_is_refused(store: ResourceStore) -> None:
    first = store.create(thing("a"))["metadata"]["resourceVersion"]
    store.replace(thing("a", spec=2), first)
    with pytest.raises(ConflictError):
        store.replace(thing("a", spec=3), first)
    with pytest.raises(ConflictError):
        store.delete("Thing", "default", "a", first)
    assert store.get("Thing", "default", "a")["spec"] == 2


def test_changes_are_told_from_any_version_on(store: ResourceStore) -> None:
    store.create(thing("a"))
    store.replace(thing("a", spec=1))
    store.delete("Thing", "default", "a")
    changes, reached = store.changes(0)
    assert [(item.version, item.action) for item in changes] == [(1, "ADDED"), (2, "MODIFIED"), (3, "DELETED")]
    assert changes[-1].document["spec"] == 1
    assert reached == 3
    assert store.changes(3) == ([], 3)


def test_changes_are_filtered_by_kind_and_namespace(store: ResourceStore) -> None:
    store.create(thing("a"))
    store.create(thing("b", kind="Other"))
    store.create(thing("c", namespace="other"))
    changes, reached = store.changes(0, kinds=("Thing",), namespace="default")
    assert [item.document["metadata"]["name"] for item in changes] == ["a"]
    assert reached == 3


def test_changes_come_in_portions(store: ResourceStore) -> None:
    for number in range(5):
        store.create(thing(f"n{number}"))
    changes, reached = store.changes(1, limit=2)
    assert [item.version for item in changes] == [2, 3]
    assert reached == 3


def test_a_version_beyond_the_history_is_expired_on_either_side(tmp_path: Path) -> None:
    with ResourceStore(tmp_path / "db", history=10) as store:
        for number in range(30):
            store.create(thing(f"n{number}"))
        with pytest.raises(ExpiredVersionError):
            store.changes(5)
        with pytest.raises(ExpiredVersionError):
            store.changes(31)
        assert len(store.changes(20)[0]) == 10


def test_a_transaction_is_all_or_nothing(store: ResourceStore) -> None:
    heard: list[int] = []
    with store.listening(lambda: heard.append(store.version)):
        with pytest.raises(ResourceExistsError), store.transaction():  # noqa: PT012  # the block is the point
            store.create(thing("a"))
            store.create(thing("a"))
        assert (store.version, store.select("Thing"), heard) == (0, [], [])
        with store.transaction():
            store.create(thing("a"))
            store.create(thing("b"))
        assert heard == [2]


def test_a_dry_run_changes_nothing(store: ResourceStore) -> None:
    with store.transaction(dry_run=True):
        assert store.create(thing("a"))["metadata"]["name"] == "a"
    assert (store.version, store.select("Thing"), store.changes(0)) == (0, [], ([], 0))


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


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(ConfigError, match="is not a resource store"):
        ResourceStore(tmp_path / "db")


def test_private_data_lies_beside_an_object_and_goes_with_it(store: ResourceStore) -> None:
    created = store.create(thing("a", metadata={"namespace": "default", "name": "a", "uid": "u"}))
    store.put_aside("u", "scram", b"secret")
    store.put_aside("u", "token", b"other")
    assert (store.aside("u", "scram"), store.aside("u", "other")) == (b"secret", None)
    assert "secret" not in str(store.select("Thing"))
    store.take_aside("u", "token")
    assert store.aside("u", "token") is None
    store.delete("Thing", "default", "a", expected="")
    assert store.aside("u", "scram") is None
    assert created["metadata"]["resourceVersion"] == "1"


def test_another_private_value_is_a_change_of_the_object_and_the_same_one_is_none(store: ResourceStore) -> None:
    store.create(thing("a", metadata={"namespace": "default", "name": "a", "uid": "u"}))
    store.put_aside("u", "scram", b"1")
    assert [change.action for change in store.changes(1)[0]] == ["MODIFIED"]
    store.put_aside("u", "scram", b"1")
    assert store.version == 2
    store.take_aside("u")
    assert store.version == 3
    with store.transaction():
        store.put_aside("u", "scram", b"2")
        store.replace(thing("a", metadata={"namespace": "default", "name": "a", "uid": "u"}, spec=1))
    assert store.version == 4


def test_private_data_put_aside_before_its_object_is_created_is_kept(store: ResourceStore) -> None:
    with store.transaction():
        store.put_aside("u", "scram", b"1")
        store.create(thing("a", metadata={"namespace": "default", "name": "a", "uid": "u"}))
    assert (store.aside("u", "scram"), store.version) == (b"1", 1)
    with store.transaction(dry_run=True):
        store.put_aside("u", "scram", b"2")
    store.put_aside("nobody", "scram", b"1")
    assert (store.aside("u", "scram"), store.aside("nobody", "scram")) == (b"1", None)


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


def test_a_dry_run_within_a_transaction_is_refused(store: ResourceStore) -> None:
    with pytest.raises(LocalError), store.transaction(), store.transaction(dry_run=True):
        pass
