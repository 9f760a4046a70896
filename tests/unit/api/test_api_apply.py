"""Server-side apply: who owns which field, conflicts, what is removed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    Api = Callable[..., httpx.Response]

Document = dict[str, Any]

ADDRESSES = "/apis/enmasse.io/v1beta1/namespaces/default/addresses"
ORDERS = f"{ADDRESSES}/shop.orders"
YAML = "application/apply-patch+yaml"


def config(**spec: Any) -> Document:
    return {"apiVersion": "enmasse.io/v1beta1", "kind": "Address", "metadata": {"name": "shop.orders"}, "spec": spec}


def apply(api: Api, manager: str, document: Document, path: str = ORDERS, **parameters: str) -> httpx.Response:
    given = {"fieldManager": manager} | parameters
    return api("PATCH", path, content=json.dumps(document), headers={"content-type": YAML}, params=given)


FULL = config(address="orders", type="queue", plan="small")


def managers(document: Document) -> list[tuple[str, str, Document]]:
    return [
        (item["manager"], item["operation"], item["fieldsV1"])
        for item in document["metadata"].get("managedFields", [])
    ]


def test_applying_creates_what_is_not_there_and_changes_what_is(api: Api) -> None:
    first = apply(api, "ann", FULL)
    assert first.status_code == 201
    (entry,) = first.json()["metadata"]["managedFields"]
    assert entry == {
        "manager": "ann",
        "operation": "Apply",
        "apiVersion": "enmasse.io/v1beta1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:address": {}, "f:type": {}, "f:plan": {}}},
    }
    second = apply(api, "ann", config(address="orders", type="queue", plan="large"))
    assert (second.status_code, second.json()["spec"]["plan"]) == (200, "large")
    assert second.json()["metadata"]["generation"] == 2


def test_applying_takes_yaml(api: Api) -> None:
    text = (
        "apiVersion: enmasse.io/v1beta1\nkind: Address\nmetadata: {name: shop.orders}\n"
        "spec:\n  address: orders\n  type: queue\n"
    )
    response = api("PATCH", ORDERS, content=text, headers={"content-type": YAML}, params={"fieldManager": "ann"})
    assert response.status_code == 201


def test_applying_the_same_again_is_no_write(api: Api) -> None:
    first = apply(api, "ann", FULL).json()
    assert apply(api, "ann", FULL).json() == first


def test_a_conflict_names_the_manager_and_the_field_and_changes_nothing(api: Api) -> None:
    first = apply(api, "ann", FULL).json()
    response = apply(api, "bob", config(address="orders", type="queue", plan="large"))
    status = response.json()
    assert (response.status_code, status["reason"]) == (409, "Conflict")
    assert status["message"] == (
        'Apply failed with 1 conflict: conflict with "ann" using enmasse.io/v1beta1: .spec.plan'
    )
    assert status["details"]["causes"] == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "ann" using enmasse.io/v1beta1',
            "field": ".spec.plan",
        }
    ]
    assert api("GET", ORDERS).json() == first


def test_force_takes_the_field(api: Api) -> None:
    apply(api, "ann", FULL)
    forced = apply(api, "bob", config(plan="large"), force="true").json()
    assert forced["spec"]["plan"] == "large"
    assert managers(forced) == [
        ("ann", "Apply", {"f:spec": {"f:address": {}, "f:type": {}}}),
        ("bob", "Apply", {"f:spec": {"f:plan": {}}}),
    ]
    conflict = apply(api, "ann", FULL)
    assert conflict.status_code == 409


def test_a_field_that_is_applied_no_more_is_removed(api: Api) -> None:
    labelled = FULL | {"metadata": {"name": "shop.orders", "labels": {"a": "1", "b": "2"}}}
    apply(api, "ann", labelled)
    apply(api, "bob", config() | {"metadata": {"name": "shop.orders", "labels": {"b": "2"}}})
    after = apply(api, "ann", config(address="orders", type="queue")).json()
    assert after["metadata"]["labels"] == {"b": "2"}
    assert "plan" not in after["spec"]


def test_an_update_owns_what_it_changes_and_applying_meets_it(api: Api) -> None:
    first = apply(api, "ann", FULL).json()
    changed = first | {"spec": first["spec"] | {"plan": "large"}}
    headers = {"user-agent": "kubectl/v1.20.2 (linux/amd64)"}
    updated = api("PUT", ORDERS, json=changed, headers=headers).json()
    assert managers(updated)[1] == ("kubectl", "Update", {"f:spec": {"f:plan": {}}})
    assert 'conflict with "kubectl" using' in apply(api, "ann", FULL).json()["message"]
    back = updated | {"spec": FULL["spec"]}
    named = api("PUT", ORDERS, json=back, params={"fieldManager": "edit"}).json()
    assert ("edit", "Update", {"f:spec": {"f:plan": {}}}) in managers(named)


def test_lists_with_keys_are_applied_entry_by_entry(api: Api) -> None:
    def forwarder(name: str) -> Document:
        return {"name": name, "remoteAddress": f"{name}/x", "direction": "out"}

    apply(api, "ann", config(address="orders", type="queue", forwarders=[forwarder("a")]))
    both = apply(api, "bob", config(forwarders=[forwarder("b")])).json()
    assert [item["name"] for item in both["spec"]["forwarders"]] == ["a", "b"]
    one = apply(api, "ann", config(address="orders", type="queue")).json()
    assert [item["name"] for item in one["spec"]["forwarders"]] == ["b"]


def test_finalizers_are_a_set_that_managers_share(api: Api) -> None:
    metadata = {"name": "shop.orders"}
    apply(api, "ann", FULL | {"metadata": metadata | {"finalizers": ["a.io/x"]}})
    both = apply(api, "bob", config() | {"metadata": metadata | {"finalizers": ["b.io/x"]}}).json()
    assert both["metadata"]["finalizers"] == ["a.io/x", "b.io/x"]
    one = apply(api, "ann", FULL).json()
    assert one["metadata"]["finalizers"] == ["b.io/x"]


@pytest.mark.parametrize("value", [[], [{}]])
def test_managed_fields_can_be_forgotten(api: Api, value: list[Document]) -> None:
    first = apply(api, "ann", FULL).json()
    reset = [{"op": "replace", "path": "/metadata/managedFields", "value": value}]
    headers = {"content-type": "application/json-patch+json"}
    after = api("PATCH", ORDERS, content=json.dumps(reset), headers=headers).json()
    assert managers(after) == []
    assert (after["spec"], after["metadata"]["generation"]) == (first["spec"], 1)
    conflict = apply(api, "bob", config(plan="large"))
    assert '"before-first-apply"' in conflict.json()["message"]


def test_managed_fields_that_a_client_makes_up_do_not_count(api: Api) -> None:
    forged = {"manager": "eve", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
    document = FULL | {"metadata": {"name": "shop.orders", "managedFields": [forged]}}
    assert [name for name, _, _ in managers(api("POST", ADDRESSES, json=document).json())] == ["python-httpx"]


@pytest.mark.parametrize(
    ("document", "parameters", "code", "message"),
    [
        (FULL, {"fieldManager": ""}, 422, "fieldManager: required"),
        (FULL, {"fieldManager": "x" * 129}, 422, "at most 128"),
        (FULL, {"force": "perhaps"}, 400, "force: expected true or false"),
        (FULL | {"kind": "AddressSpace"}, {}, 400, "kind: this path takes Address"),
        (FULL | {"metadata": {"name": "other"}}, {}, 400, "metadata.name: the path says shop.orders"),
        (FULL | {"metadata": {"name": "shop.orders", "managedFields": [{}]}}, {}, 400, "must be nil"),
        (config(type="queue"), {}, 422, "spec.address: required"),
        (FULL | {"metadata": []}, {}, 400, "metadata: expected a map, got a list"),
        (FULL | {"metadata": {"name": "shop.orders", "resourceVersion": "77"}}, {}, 409, "changed meanwhile"),
    ],
)
def test_what_cannot_be_applied_is_refused(
    api: Api, document: Document, parameters: dict[str, str], code: int, message: str
) -> None:
    if code == 409:
        apply(api, "ann", FULL)
    response = apply(api, "ann", document, **parameters)
    assert response.status_code == code
    assert message in response.json()["message"]


def test_other_patches_cannot_be_forced(api: Api) -> None:
    apply(api, "ann", FULL)
    headers = {"content-type": "application/merge-patch+json"}
    response = api("PATCH", ORDERS, content=b"{}", headers=headers, params={"force": "true"})
    assert response.status_code == 422


def test_a_dry_run_shows_the_conflict_or_the_result_and_writes_nothing(api: Api) -> None:
    assert apply(api, "ann", FULL, dryRun="All").status_code == 201
    assert api("GET", ORDERS).status_code == 404
    first = apply(api, "ann", FULL).json()
    assert apply(api, "bob", config(plan="large"), dryRun="All").status_code == 409
    assert apply(api, "bob", config(plan="large"), dryRun="All", force="true").json()["spec"]["plan"] == "large"
    assert api("GET", ORDERS).json() == first


def test_a_secret_is_applied_without_its_values_in_the_managed_fields(api: Api) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": "tiger"}}
    path = "/api/v1/namespaces/default/secrets/s"
    first = apply(api, "ann", secret, path)
    assert (first.status_code, first.json()["data"]) == (201, {"password": "dGlnZXI="})
    assert "tiger" not in first.text
    assert apply(api, "ann", secret, path).json() == first.json()


def test_two_managers_write_one_status_field_by_field(api: Api) -> None:
    apply(api, "ann", FULL)
    status = f"{ORDERS}/status"
    condition = {"type": "Ready", "status": "True", "reason": "Fine", "message": "", "lastTransitionTime": "t"}
    first = apply(api, "ctl", config() | {"status": {"phase": "Active", "conditions": [condition]}}, status).json()
    assert first["status"]["phase"] == "Active"
    other = condition | {"type": "Happy"}
    second = apply(api, "other", config() | {"status": {"conditions": [other]}}, status).json()
    assert [item["type"] for item in second["status"]["conditions"]] == ["Ready", "Happy"]
    assert apply(api, "other", config() | {"status": {"phase": "Failed"}}, status).status_code == 409
    entries = second["metadata"]["managedFields"]
    assert [(item["manager"], item.get("subresource")) for item in entries] == [
        ("ann", None),
        ("ctl", "status"),
        ("other", "status"),
    ]
