"""What a store remembers of deletions, node by node, from the transaction of each until the node has done it."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from enmasse.control.installation import Removals
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.databases.checksums import connect, protect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from enmasse.model.schema.resource import Resource

    Make = Callable[..., Resource]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResourceStore]:
    with ResourceStore(tmp_path / "resources.db") as opened:
        yield opened


def test_a_deletion_is_remembered_with_the_removal_or_not_at_all(registry: Registry, make_address: Make) -> None:
    removals = Removals(registry.store, "node-0")
    uid = registry.create(make_address())["metadata"]["uid"]
    registry.delete("Address", "default", "shop.orders", dry_run=True)
    with suppress(KeyError), registry.store.transaction():
        registry.delete("Address", "default", "shop.orders")
        raise KeyError
    assert removals.uids("Address") == []
    assert registry.store.find("Address", "default", "shop.orders") is not None
    registry.delete("Address", "default", "shop.orders")
    assert (removals.uids("Address"), removals.has(uid), removals.has("another")) == ([uid], True, False)


def test_what_has_finalizers_is_remembered_when_it_goes(registry: Registry, make_space: Make) -> None:
    removals = Removals(registry.store, "node-0")
    uid = registry.create(make_space())["metadata"]["uid"]
    registry.change_finalizers("AddressSpace", "default", "shop", uid=uid, add="x.io/y")
    registry.delete("AddressSpace", "default", "shop")
    assert not removals.has(uid)
    registry.change_finalizers("AddressSpace", "default", "shop", uid=uid, remove="x.io/y")
    assert removals.has(uid)


def test_what_is_done_is_forgotten_and_what_the_node_still_has_is_not(registry: Registry, make_address: Make) -> None:
    removals = Removals(registry.store, "node-0")
    first, second, third = (_create_and_delete(registry, make_address) for _ in range(3))
    removals.load(registry.store)
    assert removals.keys("Address") == ["default/shop.orders"]
    removals.settle("Address", "default/shop.orders", second)
    assert len(removals) == 2
    removals.flush()
    assert [removals.has(uid) for uid in (first, second, third)] == [False, True, False]
    removals.settle("Address", "default/shop.orders")
    removals.flush()
    assert (removals.uids("Address"), removals.keys("Address"), len(removals)) == ([], [], 0)


def _create_and_delete(registry: Registry, make_address: Make) -> str:
    uid: str = registry.create(make_address())["metadata"]["uid"]
    registry.delete("Address", "default", "shop.orders")
    return uid


def test_deletions_of_a_former_format_are_remembered_for_the_first_node(
    store: ResourceStore, registry: Registry, make_address: Make, tmp_path: Path
) -> None:
    kept = registry.create(make_address("kept"))["metadata"]["uid"]
    gone = _create_and_delete(registry, make_address)
    path = tmp_path / "resources.db"
    store.close()
    with closing(connect(path, timeout=1)) as database:
        database.executescript(
            "DROP TABLE removals; DROP TABLE nodes; DROP TABLE installation;PRAGMA user_version = 2;"
        )
        protect(database)
    with ResourceStore(path) as opened:
        assert opened.installation.id() == ""
        assert opened.get("Address", "default", "shop.kept")["metadata"]["uid"] == kept
        assert Removals(opened, "node-0").uids("Address") == [gone]
        assert Removals(opened, "node-1").uids("Address") == []
