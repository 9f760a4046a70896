"""One contract, two resource stores: in SQLite and in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.errors import (
    ConflictError,
    ExpiredVersionError,
    ForbiddenError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from enmasse.control.store.port import Store, Used
from enmasse.control.store.store import ResourceStore
from enmasse.errors import LocalError
from tests.support.memory_resources import MemoryResources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from enmasse.control.store.port import Document


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened: Any = (
        ResourceStore(tmp_path / "db", history=40) if request.param == "sqlite" else MemoryResources(history=40)
    )
    with opened:
        yield opened


def thing(name: str, kind: str = "Thing", namespace: str = "default", **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"namespace": namespace, "name": name}} | fields


def owned(name: str, uid: str, *owners: str) -> dict[str, Any]:
    references = [{"uid": owner} for owner in owners]
    return {
        "kind": "Thing",
        "metadata": {"namespace": "default", "name": name, "uid": uid, "ownerReferences": references},
    }


def test_versions_rise_by_one_with_every_write_of_any_kind(store: Store) -> None:
    versions = [
        store.create(thing("a")),
        store.create(thing("b", kind="Other")),
        store.replace(thing("a", spec=1)),
        store.delete("Other", "default", "b"),
    ]
    assert [item["metadata"]["resourceVersion"] for item in versions] == ["1", "2", "3", "4"]


def test_an_object_is_found_by_kind_namespace_and_name(store: Store) -> None:
    store.create(thing("a", spec=1))
    store.create(thing("a", namespace="other", spec=2))
    store.create(thing("a", kind="Other", spec=3))
    assert store.get("Thing", "default", "a")["spec"] == 1
    assert [item["spec"] for item in store.select("Thing")] == [1, 2]
    assert [item["spec"] for item in store.select("Thing", "other")] == [2]
    with pytest.raises(ResourceNotFoundError, match="there is no Thing 'b' in namespace default"):
        store.get("Thing", "default", "b")


def test_a_name_is_taken_once(store: Store) -> None:
    store.create(thing("a"))
    with pytest.raises(ResourceExistsError):
        store.create(thing("a"))
    assert store.version == 1


def test_a_write_against_an_old_version_is_refused(store: Store) -> None:
    first = store.create(thing("a"))["metadata"]["resourceVersion"]
    store.replace(thing("a", spec=2), first)
    with pytest.raises(ConflictError):
        store.replace(thing("a", spec=3), first)
    with pytest.raises(ConflictError):
        store.delete("Thing", "default", "a", first)
    assert store.get("Thing", "default", "a")["spec"] == 2


def test_changes_are_told_from_any_version_on(store: Store) -> None:
    store.create(thing("a"))
    store.replace(thing("a", spec=1))
    store.delete("Thing", "default", "a")
    changes, reached = store.changes(0)
    assert [(item.version, item.action) for item in changes] == [(1, "ADDED"), (2, "MODIFIED"), (3, "DELETED")]
    assert changes[-1].document["spec"] == 1
    assert reached == 3
    assert store.changes(3) == ([], 3)


def test_changes_are_filtered_by_kind_and_namespace(store: Store) -> None:
    store.create(thing("a"))
    store.create(thing("b", kind="Other"))
    store.create(thing("c", namespace="other"))
    changes, reached = store.changes(0, kinds=("Thing",), namespace="default")
    assert [item.document["metadata"]["name"] for item in changes] == ["a"]
    assert reached == 3


def test_changes_come_in_portions(store: Store) -> None:
    for number in range(5):
        store.create(thing(f"n{number}"))
    changes, reached = store.changes(1, limit=2)
    assert [item.version for item in changes] == [2, 3]
    assert reached == 3


def test_a_transaction_is_all_or_nothing(store: Store) -> None:
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


def test_a_dry_run_changes_nothing(store: Store) -> None:
    with store.transaction(dry_run=True):
        assert store.create(thing("a"))["metadata"]["name"] == "a"
    assert (store.version, store.select("Thing"), store.changes(0)) == (0, [], ([], 0))


def test_private_data_lies_beside_an_object_and_goes_with_it(store: Store) -> None:
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


def test_another_private_value_is_a_change_of_the_object_and_the_same_one_is_none(store: Store) -> None:
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


def test_private_data_put_aside_before_its_object_is_created_is_kept(store: Store) -> None:
    with store.transaction():
        store.put_aside("u", "scram", b"1")
        store.create(thing("a", metadata={"namespace": "default", "name": "a", "uid": "u"}))
    assert (store.aside("u", "scram"), store.version) == (b"1", 1)
    with store.transaction(dry_run=True):
        store.put_aside("u", "scram", b"2")
    store.put_aside("nobody", "scram", b"1")
    assert (store.aside("u", "scram"), store.aside("nobody", "scram")) == (b"1", None)


def test_a_dry_run_within_a_transaction_is_refused(store: Store) -> None:
    with pytest.raises(LocalError), store.transaction(), store.transaction(dry_run=True):
        pass


def test_changes_that_are_forgotten_are_expired(store: Store) -> None:
    for number in range(100):
        store.create(thing(f"n{number}"))
    for version in (5, 101):
        with pytest.raises(ExpiredVersionError):
            store.changes(version)
        with pytest.raises(ExpiredVersionError):
            store.page("Thing", limit=10, at=version)
    assert len(store.changes(70)[0]) == 30


def test_a_page_is_as_of_its_version_whatever_is_written_later(store: Store) -> None:
    for name in ("a", "b", "c"):
        store.create(thing(name, spec=1))
    store.create(thing("z", namespace="other"))
    store.replace(thing("b", spec=2))
    store.delete("Thing", "default", "c")
    store.create(thing("d"))
    then = store.page("Thing", limit=10, at=4)
    assert [row[:2] for row in then] == [("default", "a"), ("default", "b"), ("default", "c"), ("other", "z")]
    assert '"spec":1' in then[1][2]
    now = store.page("Thing", "default", limit=10)
    assert [row[1] for row in now] == ["a", "b", "d"]
    assert [row[1] for row in store.page("Thing", after=("default", "b"), limit=1)] == ["d"]
    assert [row[1] for row in store.page("Thing", "default", after=("default", "a"), limit=10, at=4)] == ["b", "c"]


def names(found: Iterable[Document]) -> list[str]:
    return [item["metadata"]["name"] for item in found]


def test_objects_are_selected_and_counted(store: Store) -> None:
    for name in ("shop.b", "shop.a", "stop.a"):
        store.create(thing(name, spec={"address": name[-1]}))
    store.create(thing("shop.c", namespace="other"))
    assert names(store.select("Thing", "default", "shop.")) == ["shop.a", "shop.b"]
    assert names(store.select("Thing", None, "shop.", limit=2)) == ["shop.a", "shop.b"]
    assert names(store.select("Thing", "default", after="shop.a")) == ["shop.b", "stop.a"]
    assert names(store.bodies("Thing")) == ["shop.b", "shop.a", "stop.a", "shop.c"]
    assert names(store.select_address("Thing", "default", "a")) == ["shop.a", "stop.a"]
    assert (store.count("Thing"), store.count("Thing", "default"), store.count("Other")) == (4, 3, 0)
    assert store.count("Thing", None, ("default", "shop.b")) == 2
    assert store.namespaces() == ["default", "other"]


def test_dependents_are_found_by_their_owners_and_owners_that_are_gone(store: Store) -> None:
    store.create(owned("a", "uid-a"))
    store.create(owned("c", "uid-c", "uid-a", "gone"))
    store.create(owned("b", "uid-b", "uid-a"))
    assert names(store.dependents("uid-a")) == ["b", "c"]
    assert names(store.dependents("uid-a", after="uid-b")) == ["c"]
    assert store.lost_owners() == ["gone"]
    store.replace(owned("c", "uid-c"))
    assert (store.lost_owners(), len(store.dependents("uid-a"))) == ([], 1)
    found = store.find_uid("uid-b")
    assert found is not None
    assert found["metadata"]["name"] == "b"


def test_a_write_is_judged_by_its_growth_and_one_that_is_refused_leaves_nothing(store: Store) -> None:
    grown: list[int] = []

    def refuse(growth: int) -> None:
        grown.append(growth)
        raise ForbiddenError("too much")

    with store.transaction():
        store.create(thing("a", spec="x"), grown.append)
        with pytest.raises(ForbiddenError):
            store.create(thing("b", spec="x"), refuse)
        with pytest.raises(ForbiddenError):
            store.replace(thing("a", spec="xé"), "", refuse)
    assert grown == [grown[0], grown[0], 2]
    assert ([item["spec"] for item in store.select("Thing")], store.version) == (["x"], 1)


def test_usage_is_counted_with_what_is_put_aside(store: Store) -> None:
    store.create(owned("a", "uid-a"))
    (size,) = (used.size for used in store.usage.of("default").values())
    store.put_aside("uid-a", "scram", b"12345")
    found = store.usage.of("default")["Thing"]
    assert found == Used(1, size + 5)
    with store.transaction(dry_run=True):
        store.delete("Thing", "default", "a")
        assert store.usage.count("Thing") == 0
    assert store.usage.count("Thing") == 1
    store.delete("Thing", "default", "a")
    assert dict(store.usage.of("default")) == {}


def test_facts_are_kept_unless_their_transaction_fails(store: Store) -> None:
    store.write_fact("catalog", 3)
    with pytest.raises(ForbiddenError), store.transaction():  # noqa: PT012  # the block is the point
        store.write_fact("catalog", 4)
        raise ForbiddenError("no")
    store.create(thing("a"))
    assert (store.fact("catalog"), store.fact("other"), store.fact("version")) == (3, 0, 1)


def test_the_first_id_of_an_installation_stays(store: Store) -> None:
    assert store.installation.id() == ""
    assert store.installation.join("first") == "first"
    assert store.installation.join("second") == "first"


def test_every_node_that_is_known_has_to_delete_what_is_removed(store: Store) -> None:
    facts = store.installation
    for node in ("north", "south", "north"):
        facts.know_node(node)
    with store.transaction(dry_run=True):
        facts.remember_removal("Address", "default", "shop.a", "uid-0")
    with store.transaction():
        facts.remember_removal("Address", "default", "shop.a", "uid-1")
        facts.remember_removal("Address", "default", "shop.a", "uid-2")
        facts.remember_removal("MessagingUser", "default", "shop.jo", "uid-3")
    facts.know_node("late")
    assert facts.removed_names("late") == []
    facts.forget_removals("north", ["uid-1", "uid-3"])
    assert facts.removed_names("north") == [("Address", "default", "shop.a")]
    assert facts.removed_uids("north", "Address") == ["uid-2"]
    assert sorted(facts.removed_uids("south", "Address", ("default", "shop.a"))) == ["uid-1", "uid-2"]
    assert facts.removed_uids("south", "Address", ("default", "shop.b")) == []
    assert (facts.is_removed("north", "uid-3"), facts.is_removed("south", "uid-3")) == (False, True)
    assert not facts.is_removed("south", "uid-0")
