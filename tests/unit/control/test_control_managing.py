"""Who has set which fields: what applying and other writes mean for them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.control.errors import FieldConflictError
from enmasse.control.store.managed_fields import Manager, apply, leaves, track

Document = dict[str, Any]


def list_type(path: tuple[str, ...]) -> tuple[str, ...] | None:
    return ("name",) if path[-1:] == ("forwarders",) else None


def managed(document: Document, fields: list[Document]) -> Document:
    return document | {"metadata": document.get("metadata", {}) | {"managedFields": fields}}


def applied(live: Document | None, manager: str, spec: Document, *, force: bool = False) -> Document:
    config = {"kind": "Address", "metadata": {"name": "a"}, "spec": spec}
    return managed(*apply(live, config, Manager(manager, "v1", "Apply"), "now", list_type, force=force))


def written(live: Document, manager: str, spec: Document) -> Document:
    changed = live | {"spec": spec}
    return managed(changed, track(live, changed, Manager(manager, "v1"), "now", list_type))


def fields_of(document: Document, manager: str) -> Document:
    found = [item["fieldsV1"] for item in document["metadata"]["managedFields"] if item["manager"] == manager]
    return found[0] if found else {}


def test_who_applies_owns_what_is_applied_and_nothing_else() -> None:
    live = applied(None, "ann", {"plan": "p"})
    assert fields_of(live, "ann") == {"f:spec": {"f:plan": {}}}


def test_fields_of_different_managers_live_beside_each_other() -> None:
    live = applied(applied(None, "ann", {"plan": "p"}), "bob", {"ttl": 5})
    assert live["spec"] == {"plan": "p", "ttl": 5}
    assert fields_of(live, "ann") == {"f:spec": {"f:plan": {}}}
    assert fields_of(live, "bob") == {"f:spec": {"f:ttl": {}}}


def test_another_value_for_a_field_of_somebody_else_is_a_conflict_that_names_both() -> None:
    live = applied(applied(None, "ann", {"plan": "p", "ttl": 5}), "bob", {"ttl": 5})
    with pytest.raises(FieldConflictError) as caught:
        applied(live, "carl", {"plan": "q", "ttl": 6})
    assert caught.value.conflicts == (
        ("ann", "v1", ".spec.plan"),
        ("ann", "v1", ".spec.ttl"),
        ("bob", "v1", ".spec.ttl"),
    )
    assert str(caught.value) == (
        'Apply failed with 3 conflicts: conflicts with "ann" using v1:\n- .spec.plan\n- .spec.ttl\n'
        'conflicts with "bob" using v1:\n- .spec.ttl'
    )


def test_one_conflict_is_told_in_one_line() -> None:
    with pytest.raises(FieldConflictError) as caught:
        applied(applied(None, "ann", {"plan": "p"}), "bob", {"plan": "q"})
    assert str(caught.value) == 'Apply failed with 1 conflict: conflict with "ann" using v1: .spec.plan'


def test_the_same_value_is_shared() -> None:
    live = applied(applied(None, "ann", {"plan": "p"}), "bob", {"plan": "p"})
    assert fields_of(live, "ann") == fields_of(live, "bob") == {"f:spec": {"f:plan": {}}}


def test_force_takes_a_field_from_the_others() -> None:
    live = applied(applied(None, "ann", {"plan": "p", "ttl": 1}), "bob", {"plan": "q"}, force=True)
    assert live["spec"] == {"plan": "q", "ttl": 1}
    assert fields_of(live, "ann") == {"f:spec": {"f:ttl": {}}}
    assert fields_of(live, "bob") == {"f:spec": {"f:plan": {}}}


def test_what_is_applied_no_more_is_removed_unless_somebody_else_owns_it() -> None:
    live = applied(applied(None, "ann", {"plan": "p", "ttl": 1}), "bob", {"ttl": 1})
    live = applied(live, "ann", {})
    assert live["spec"] == {"ttl": 1}
    assert fields_of(live, "ann") == {"f:spec": {}}
    assert applied(live, "bob", {})["spec"] == {}


def test_a_write_takes_the_fields_that_it_changed() -> None:
    live = written(applied(None, "ann", {"plan": "p", "ttl": 1}), "edit", {"plan": "q", "ttl": 1})
    assert fields_of(live, "ann") == {"f:spec": {"f:ttl": {}}}
    assert fields_of(live, "edit") == {"f:spec": {"f:plan": {}}}
    with pytest.raises(FieldConflictError, match='conflict with "edit"'):
        applied(live, "ann", {"plan": "p", "ttl": 1})


def test_a_write_that_removes_a_field_removes_its_owner() -> None:
    live = written(applied(None, "ann", {"plan": "p", "ttl": 1}), "edit", {"plan": "p"})
    assert fields_of(live, "ann") == {"f:spec": {"f:plan": {}}}
    assert fields_of(live, "edit") == {}


def test_entries_of_a_keyed_list_have_owners_of_their_own() -> None:
    live = applied(None, "ann", {"forwarders": [{"name": "a", "to": "x"}]})
    live = applied(live, "bob", {"forwarders": [{"name": "b", "to": "y"}]})
    assert live["spec"]["forwarders"] == [{"name": "a", "to": "x"}, {"name": "b", "to": "y"}]
    live = applied(live, "ann", {"forwarders": [{"name": "c", "to": "z"}]})
    assert live["spec"]["forwarders"] == [{"name": "b", "to": "y"}, {"name": "c", "to": "z"}]


def test_an_entry_stays_while_somebody_else_owns_a_field_of_it() -> None:
    live = applied(None, "ann", {"forwarders": [{"name": "a", "to": "x"}]})
    live = applied(live, "bob", {"forwarders": [{"name": "a", "ttl": 1}]})
    assert live["spec"]["forwarders"] == [{"name": "a", "to": "x", "ttl": 1}]
    live = applied(live, "ann", {})
    assert live["spec"]["forwarders"] == [{"name": "a", "ttl": 1}]


def test_an_object_from_before_belongs_to_before_first_apply() -> None:
    live: Document = {"kind": "Address", "metadata": {"name": "a"}, "spec": {"plan": "p"}}
    with pytest.raises(FieldConflictError, match='conflict with "before-first-apply"'):
        applied(live, "ann", {"plan": "q"})
    assert applied(live, "ann", {"plan": "p"})["spec"] == {"plan": "p"}


def test_many_writers_are_joined_to_one_from_long_ago() -> None:
    live = applied(None, "ann", {"plan": "p"})
    for number in range(15):
        live = written(live, f"w{number}", live["spec"] | {f"field{number}": number})
    updaters = [item for item in live["metadata"]["managedFields"] if item["operation"] == "Update"]
    assert len(updaters) == 10
    assert "ancient-changes" in {item["manager"] for item in updaters}
    owned = {key for item in updaters for key in item["fieldsV1"]["f:spec"]}
    assert owned == {f"f:field{number}" for number in range(15)}


def test_a_status_has_managers_of_its_own() -> None:
    live = applied(None, "ann", {"plan": "p"})
    status = Manager("ctl", "v1", "Apply", "status")
    live = managed(
        *apply(live, {"kind": "Address", "metadata": {"name": "a"}, "status": {"x": 1}}, status, "now", list_type)
    )
    assert (live["spec"], live["status"]) == ({"plan": "p"}, {"x": 1})
    live = applied(live, "ann", {"plan": "q"})
    assert live["status"] == {"x": 1}
    assert fields_of(live, "ctl") == {"f:status": {"f:x": {}}}


specs = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=4)
managers = st.sampled_from(["ann", "bob", "edit"])


@given(st.lists(st.tuples(managers, specs), min_size=1, max_size=8))
def test_every_field_has_an_owner_and_who_applied_last_has_what_it_wants(steps: list[tuple[str, Document]]) -> None:
    live: Document | None = None
    for manager, spec in steps:
        if manager == "edit" and live is not None:
            live = written(live, manager, spec)
            continue
        live = applied(live, manager, spec, force=True)
        assert {key: live.get("spec", {}).get(key) for key in spec} == spec
        again = applied(live, manager, spec)  # no conflict with oneself, and nothing to do
        assert again == live
    assert live is not None
    owned = {path for item in live["metadata"]["managedFields"] for path in item["fieldsV1"].get("f:spec", {})}
    present = {path[1] for path in leaves({"spec": live.get("spec") or {}}, list_type) if len(path) > 1}
    assert present <= owned
