"""Sets of fields, and the algebra of merging and removing them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.control.store.managed_fields import SET, describe_path, leaves, members, merge, remove, to_v1

Document = dict[str, Any]


def list_type(path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Lists are keyed by ``name`` below ``items``, sets below ``tags``, and one value elsewhere."""
    return {"items": ("name",), "tags": SET}.get(path[-1])


names = st.sampled_from("abc")
scalars = st.integers(0, 3) | st.sampled_from(["x", "y"])


def _keyed(entries: list[Document]) -> list[Document]:
    return list({entry["name"]: entry for entry in entries}.values())


def documents() -> st.SearchStrategy[Document]:
    """Return objects whose fields always have the same type under the same name, as kinds have them."""
    return st.recursive(
        st.fixed_dictionaries(
            {}, optional={"size": scalars, "tags": st.lists(scalars, unique=True), "order": st.lists(scalars)}
        ),
        lambda inner: st.fixed_dictionaries(
            {},
            optional={
                "size": scalars,
                "tags": st.lists(scalars, unique=True),
                "spec": inner,
                "labels": st.dictionaries(names, scalars),
                "items": st.lists(st.builds(lambda name, rest: rest | {"name": name}, names, inner), max_size=3).map(
                    _keyed
                ),
            },
        ),
        max_leaves=6,
    )


@given(documents())
@pytest.mark.slow
def test_a_set_is_read_as_it_was_written_down(document: Document) -> None:
    fields = frozenset(leaves(document, list_type))
    assert members(to_v1(fields)) == fields


@given(documents(), documents())
def test_what_is_merged_has_all_that_the_configuration_says(live: Document, config: Document) -> None:
    merged = leaves(merge(live, config, list_type), list_type)
    for path, value in leaves(config, list_type).items():
        if value not in ({}, []):  # an empty map or keyed list adds nothing
            assert merged[path] == value


@given(documents(), documents())
def test_merging_the_same_again_changes_nothing(live: Document, config: Document) -> None:
    once = merge(live, config, list_type)
    assert merge(once, config, list_type) == once
    assert merge(live, {}, list_type) == live
    assert merge({}, config, list_type) == config


@given(documents())
def test_without_all_its_fields_nothing_is_left_of_an_object(document: Document) -> None:
    assert remove(document, frozenset(leaves(document, list_type)), list_type) == {}


@given(documents(), documents())
def test_removing_leaves_the_other_fields(document: Document, other: Document) -> None:
    fields = frozenset(leaves(other, list_type))
    left = leaves(remove(document, fields, list_type), list_type)
    for path, value in leaves(document, list_type).items():
        is_removed = any(path[: len(field)] == field for field in fields)
        if not is_removed and value not in ({}, []):
            assert left[path] == value


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        ({"spec": {"plan": "p"}}, {"f:spec": {"f:plan": {}}}),
        ({"labels": {}}, {"f:labels": {}}),
        ({"tags": ["a"]}, {"f:tags": {'v:"a"': {}}}),
        ({"order": ["a"]}, {"f:order": {}}),
        (
            {"items": [{"name": "a", "size": 1}]},
            {"f:items": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:size": {}}}},
        ),
    ],
)
def test_fields_are_written_as_kubernetes_writes_them(document: Document, fields: Document) -> None:
    assert to_v1(frozenset(leaves(document, list_type))) == fields


def test_a_path_is_told_to_people() -> None:
    assert describe_path(("f:spec", "f:items", 'k:{"name":"a"}', "f:size")) == '.spec.items[name="a"].size'
    assert describe_path(("f:tags", 'v:"a"')) == '.tags[="a"]'


@pytest.mark.parametrize("text", [{"spec": {}}, {"f:spec": 1}, {"x:spec": {}}])
def test_what_is_no_set_is_refused(text: Document) -> None:
    with pytest.raises(ValueError, match="expected"):
        members(text)
