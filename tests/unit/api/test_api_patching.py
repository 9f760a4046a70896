"""Patches: JSON patches, merge patches, strategic merges."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.api.kube.patches import json_patch, merge_patch, strategic_merge
from enmasse.api.kube.status import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    Api = Callable[..., httpx.Response]

Document = dict[str, Any]

ADDRESSES = "/apis/enmasse.io/v1beta1/namespaces/default/addresses"
ORDERS = f"{ADDRESSES}/shop.orders"


@pytest.fixture
def orders(api: Api) -> Document:
    document = {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Address",
        "metadata": {"name": "shop.orders"},
        "spec": {"address": "orders", "type": "queue", "plan": "small"},
    }
    created: Document = api("POST", ADDRESSES, json=document).json()
    return created


def patch(api: Api, patch_type: str, body: Any, path: str = ORDERS, **parameters: str) -> httpx.Response:
    headers = {"content-type": f"application/{patch_type}"}
    return api("PATCH", path, content=json.dumps(body), headers=headers, params=parameters)


def test_a_json_patch_changes_what_it_points_at(api: Api, orders: Document) -> None:
    operations = [
        {"op": "test", "path": "/spec/plan", "value": "small"},
        {"op": "replace", "path": "/spec/plan", "value": "large"},
        {"op": "add", "path": "/metadata/labels", "value": {"a/b": "x"}},
        {"op": "copy", "from": "/metadata/labels/a~1b", "path": "/metadata/labels/c"},
    ]
    patched = patch(api, "json-patch+json", operations).json()
    assert (patched["spec"]["plan"], patched["metadata"]["labels"]) == ("large", {"a/b": "x", "c": "x"})
    assert patched["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("operations", "code", "message"),
    [
        ([{"op": "test", "path": "/spec/plan", "value": "x"}], 422, "operation 0: test failed at /spec/plan"),
        ([{"op": "remove", "path": "/spec/nothing"}], 422, "operation 0: can't remove"),
        ([{"op": "add", "path": "/spec/a/b", "value": 1}], 422, "operation 0"),
        ([{"op": "paint", "path": "/spec"}], 400, "not an operation of RFC 6902"),
        ([{"op": "add", "path": "spec", "value": 1}], 422, "operation 0"),
        ([{"op": "copy", "path": "/a", "from": 5}], 400, "operation 0"),
        ([5], 400, "not an operation"),
        ({}, 400, "a list of operations"),
        ([{"op": "replace", "path": "", "value": 5}], 422, "leaves no object"),
        (
            [{"op": "replace", "path": "/metadata/name", "value": "x"}],
            400,
            "metadata.name: the path says shop.orders",
        ),
        ([{"op": "replace", "path": "/kind", "value": "Pod"}], 400, "kind: this path takes Address"),
        ([{"op": "add", "path": "/spec/plan", "value": 5}], 422, "spec.plan: expected a string"),
        ([{"op": "remove", "path": "/metadata"}], 422, "metadata: the patch removes it"),
        ([{"op": "test", "path": "/kind", "value": "Address"}] * 10_001, 413, "at most 10000 operations"),
    ],
)
def test_a_json_patch_that_does_not_fit_changes_nothing(
    api: Api, orders: Document, operations: Any, code: int, message: str
) -> None:
    response = patch(api, "json-patch+json", operations)
    assert (response.status_code, response.json()["code"]) == (code, code)
    assert message in response.json()["message"]
    assert api("GET", ORDERS).json() == orders


def test_copies_of_copies_are_bounded(api: Api, orders: Document) -> None:
    grow = [
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "x" * 100}},
        *({"op": "copy", "from": "/metadata/annotations", "path": f"/metadata/annotations/b{n}"} for n in range(40)),
    ]
    response = patch(api, "json-patch+json", grow)
    assert (response.status_code, response.json()["reason"]) == (413, "RequestEntityTooLarge")
    with pytest.raises(RequestError, match="more than 32 deep"):
        json_patch({"a": {}}, [{"op": "copy", "from": "", "path": "/a/a"}] * 3 + _nested(40))


def _nested(depth: int) -> list[Document]:
    value: Document = {}
    for _ in range(depth):
        value = {"a": value}
    return [{"op": "add", "path": "/b", "value": value}]


def test_a_patch_may_name_the_version_that_it_is_meant_for(api: Api, orders: Document) -> None:
    version = orders["metadata"]["resourceVersion"]
    good = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        {"op": "replace", "path": "/spec/plan", "value": "large"},
    ]
    assert patch(api, "json-patch+json", good).status_code == 200
    assert patch(api, "json-patch+json", good).status_code == 409


def test_a_patch_with_dry_run_writes_nothing(api: Api, orders: Document) -> None:
    response = patch(api, "merge-patch+json", {"spec": {"plan": "large"}}, dryRun="All")
    assert response.json()["spec"]["plan"] == "large"
    assert api("GET", ORDERS).json() == orders


def test_a_patch_of_what_is_not_there_is_answered_with_404(api: Api) -> None:
    for kind in ("json-patch+json", "merge-patch+json"):
        response = patch(api, kind, [] if kind.startswith("json") else {})
        assert (response.status_code, response.json()["details"]["kind"]) == (404, "addresses")


@pytest.mark.parametrize(
    ("target", "change", "expected"),
    [  # the examples of RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches_do_what_the_rfc_says(target: Any, change: Any, expected: Any) -> None:
    assert merge_patch(target, change) == expected


def _lists(path: tuple[str, ...]) -> tuple[str, ...] | None:
    return {"ports": ("port",), "finalizers": ()}.get(path[-1])


@pytest.mark.parametrize(
    ("target", "change", "expected"),
    [
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        (
            {"ports": [{"port": 1, "x": 1}]},
            {"ports": [{"port": 1, "y": 2}]},
            {"ports": [{"port": 1, "x": 1, "y": 2}]},
        ),
        ({"ports": [{"port": 1}]}, {"ports": [{"port": 2}]}, {"ports": [{"port": 1}, {"port": 2}]}),
        (
            {"ports": [{"port": 1}, {"port": 2}]},
            {"ports": [{"$patch": "delete", "port": 1}]},
            {"ports": [{"port": 2}]},
        ),
        ({"ports": [{"port": 1}]}, {"ports": [{"port": 2}, {"$patch": "replace"}]}, {"ports": [{"port": 2}]}),
        ({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
        ({"other": [1, 2]}, {"other": [3], "$setElementOrder/other": [3]}, {"other": [3]}),
        ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"$retainKeys": ["c", "d"], "d": 3}}, {"a": {"c": 2, "d": 3}}),
    ],
)
def test_strategic_merges_know_the_keys_of_lists(target: Document, change: Document, expected: Document) -> None:
    assert strategic_merge(target, change, _lists) == expected


def test_a_kind_of_the_core_group_takes_a_strategic_merge(api: Api) -> None:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1", "b": "2"}}
    path = "/api/v1/namespaces/default/configmaps"
    api("POST", path, json=document)
    change = {"data": {"b": None, "c": "3"}, "metadata": {"finalizers": ["x.io/y"]}}
    patched = patch(api, "strategic-merge-patch+json", change, f"{path}/m").json()
    assert (patched["data"], patched["metadata"]["finalizers"]) == ({"a": "1", "c": "3"}, ["x.io/y"])
