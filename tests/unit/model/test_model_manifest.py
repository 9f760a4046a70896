"""Manifests: several documents, lists, bounds, and messages that name the place."""

from __future__ import annotations

import json

import pytest

from enmasse.model.schema.errors import ManifestError
from enmasse.model.schema.manifest import MAX_BYTES, MAX_VALUES, in_order, load_manifest, read_documents

SPACE = """
apiVersion: enmasse.io/v1beta1
kind: AddressSpace
metadata: {name: shop}
"""
QUEUE = """
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: shop.orders}
spec: {address: orders, type: queue}
"""


def refusal(text: str) -> str:
    with pytest.raises(ManifestError) as caught:
        load_manifest(text, "shop.yaml")
    return str(caught.value)


def test_several_documents_are_read_and_empty_ones_passed_over() -> None:
    loaded = load_manifest(f"# shop\n---\n{QUEUE}---\n# nothing\n---\n{SPACE}", "shop.yaml")
    assert [item.metadata.name for item in loaded] == ["shop.orders", "shop"]
    assert [item.metadata.name for item in in_order(loaded)] == ["shop", "shop.orders"]


def test_json_is_read_as_well() -> None:
    (document,) = read_documents(SPACE, "shop.yaml")
    assert load_manifest(json.dumps(document, indent="\t"), "shop.json") == load_manifest(SPACE, "shop.yaml")


def test_a_list_stands_for_its_items() -> None:
    items = [read_documents(text, "x")[0] for text in (SPACE, QUEUE)]
    loaded = load_manifest(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "x")
    assert [item.metadata.name for item in loaded] == ["shop", "shop.orders"]


def test_items_of_a_list_of_one_kind_need_not_say_it() -> None:
    (queue,) = read_documents(QUEUE, "x")
    item = {key: value for key, value in queue.items() if key not in ("apiVersion", "kind")}
    listed = {"apiVersion": queue["apiVersion"], "kind": "AddressList", "items": [item, queue]}
    assert load_manifest(json.dumps(listed), "x") == 2 * load_manifest(QUEUE, "x")
    assert refusal(json.dumps(listed | {"items": [item, 7]})).startswith("shop.yaml: document 1: items[1]: expected")
    assert "items[0].kind" in refusal(json.dumps({"apiVersion": "v1", "kind": "List", "items": [item]}))


def test_a_kind_of_the_internet_of_things_is_told_to_be_missing() -> None:
    config = {"apiVersion": "iot.enmasse.io/v1alpha1", "kind": "IoTConfig", "metadata": {"name": "x"}}
    told = refusal(json.dumps(config))
    assert "of the kinds of iot.enmasse.io this version has IoTProject alone" in told
    assert "did you mean" not in told


def test_an_error_names_file_document_and_path() -> None:
    assert (
        refusal(SPACE + "---" + QUEUE.replace("queue", "quue"))
        == "shop.yaml: document 2: spec.type: expected one of "
        "anycast, multicast, queue, topic, subscription, stream, deadletter, got 'quue'"
    )


def test_an_error_in_a_list_names_the_item() -> None:
    items = [read_documents(SPACE, "x")[0], {"kind": "Pod"}]
    assert refusal(json.dumps({"kind": "List", "items": items})).startswith(
        "shop.yaml: document 1: items[1].kind: expected one of Namespace,"
    )


def test_everything_that_is_wrong_in_any_document_is_told_once() -> None:
    wrong = QUEUE.replace("queue", "quue")
    told = refusal(f"{wrong}---\n{SPACE}---\nkind: List\nitems: 7\n---\n{wrong}").splitlines()
    assert [line.split(": ")[1:3] for line in told] == [
        ["document 1", "spec.type"],
        ["document 3", "items"],
        ["document 4", "spec.type"],
    ]
    many = refusal("---".join([wrong] * 60)).splitlines()
    assert (len(many), many[-1]) == (51, "and 10 more")


def test_text_that_is_no_yaml_is_refused_with_line_and_column() -> None:
    assert refusal("a: 1\nb: [1,\nc: }") == (
        "shop.yaml: not valid YAML: line 3, column 4: did not find expected node content"
    )


@pytest.mark.parametrize("text", ["a: 1\na: 2", '{"a": 1, "a": 2}'])
def test_a_key_that_occurs_twice_is_refused(text: str) -> None:
    assert "the key 'a' occurs twice in one map" in refusal(text)


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!python/name:os.system", "!custom"])
def test_tags_that_would_build_objects_are_refused(tag: str) -> None:
    assert "not valid YAML" in refusal(f"a: {tag} [x]")


def test_a_billion_laughs_are_refused_before_anything_is_built() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 9)]
    assert f"more than {MAX_VALUES:,} values" in refusal("\n".join(lines))


def test_an_alias_that_contains_itself_is_refused() -> None:
    assert "contains itself" in refusal("a: &a {b: [*a]}")


def test_a_harmless_alias_is_written_out() -> None:
    (document,) = read_documents("a: &a {b: 1}\nc: *a", "x")
    assert document == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize("text", ["[" * 10_000, "[" * 10_000 + "]" * 10_000, "- " * 10_000, "{a: " * 10_000])
def test_deep_nesting_is_refused(text: str) -> None:
    assert "nested more than 32 deep" in refusal(text)


def test_a_document_with_too_many_values_is_refused() -> None:
    assert "more than" in refusal(json.dumps({"items": [0] * MAX_VALUES}))


def test_a_file_that_is_too_large_is_refused() -> None:
    assert "at most 8 MiB" in refusal("#" * (MAX_BYTES + 1))


@pytest.mark.parametrize("text", ["9" * 5000, '{"a": ' + "9" * 5000 + "}"])
def test_a_number_of_thousands_of_digits_is_refused(text: str) -> None:
    assert "not valid" in refusal(text)


def test_dates_and_merge_keys_stay_text_as_in_json() -> None:
    (document,) = read_documents("a: 2024-01-31\n<<: {b: 1}", "x")
    assert document == {"a": "2024-01-31", "<<": {"b": 1}}
