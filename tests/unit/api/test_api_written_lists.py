"""Several addresses written by one request: all of them or none, and each as if it had been written alone."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from enmasse.api.access.audit import AuditLog
from enmasse.api.app import ApiParts, create_app
from enmasse.model.schema.kinds import MAX_IN_LIST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from enmasse.control.store.registry import Registry

    Api = Callable[..., httpx.Response]

ADDRESSES = "/apis/enmasse.io/v1beta1/namespaces/default/addresses"
PARTIAL = {"accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}


def address(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": f"shop.{name}"}, "spec": {"address": name, "type": "queue"} | spec}


def listed(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressList", "items": list(items)} | more


def names(api: Api) -> list[str]:
    return [item["metadata"]["name"] for item in api("GET", ADDRESSES).json()["items"]]


def test_all_objects_of_a_list_are_created_with_owners_and_versions_of_their_own(api: Api) -> None:
    created = api("POST", ADDRESSES, json=listed(address("a"), address("b")), params={"fieldManager": "ann"})
    assert (created.status_code, created.json()["kind"]) == (201, "AddressList")
    first, second = (item["metadata"] for item in created.json()["items"])
    assert first["resourceVersion"] != second["resourceVersion"] == created.json()["metadata"]["resourceVersion"]
    assert [item["managedFields"][0]["manager"] for item in (first, second)] == ["ann", "ann"]
    assert api("GET", f"{ADDRESSES}/shop.b").json() == created.json()["items"][1]


def test_one_that_is_refused_refuses_all_and_is_named(api: Api) -> None:
    api("POST", ADDRESSES, json=listed(address("b")))
    refused = api("POST", ADDRESSES, json=listed(address("a"), address("b"), address("c")))
    assert (refused.status_code, refused.json()["details"]["name"]) == (409, "shop.b")
    wrong = api("POST", ADDRESSES, json=listed(address("a"), address("c", type="cube")))
    assert wrong.status_code == 422
    assert "shop.c" in wrong.json()["message"]
    assert names(api) == ["shop.b"]


def test_a_list_replaces_what_is_there_and_nothing_else(api: Api) -> None:
    created = api("POST", ADDRESSES, json=listed(address("a"), address("b"))).json()["items"]
    created[0]["spec"]["plan"] = "standard-large-queue"
    replaced = api("PUT", ADDRESSES, json=listed(*created))
    assert [item["metadata"]["generation"] for item in replaced.json()["items"]] == [2, 1]
    late = api("PUT", ADDRESSES, json=listed(created[1], created[0]))
    assert (late.status_code, late.json()["reason"]) == (409, "Conflict"), "the version of the second is a former one"
    missing = api("PUT", ADDRESSES, json=listed(created[1], address("z")))
    assert missing.status_code == 404


def test_a_dry_run_of_a_list_writes_nothing_and_sees_what_stands_before(api: Api) -> None:
    version = api("GET", ADDRESSES).json()["metadata"]["resourceVersion"]
    dry = api("POST", ADDRESSES, json=listed(address("a"), address("b")), params={"dryRun": "All"})
    assert (dry.status_code, len(dry.json()["items"])) == (201, 2)
    twice = api("POST", ADDRESSES, json=listed(address("a"), address("a")), params={"dryRun": "All"})
    assert twice.status_code == 409
    assert api("GET", ADDRESSES).json()["metadata"]["resourceVersion"] == version
    assert names(api) == []


def test_the_metadata_alone_is_answered_to_who_asks_for_it(api: Api) -> None:
    created = api("POST", ADDRESSES, json=listed(address("a")), headers=PARTIAL).json()
    assert created["kind"] == "PartialObjectMetadataList"
    assert created["items"][0]["metadata"]["name"] == "shop.a"
    assert "spec" not in created["items"][0]


def test_warnings_of_all_objects_stand_in_the_answer(api: Api) -> None:
    created = api(
        "POST",
        ADDRESSES,
        json=listed(address("a", plann="x"), address("b", type="anycast", messageTtl={"maximum": 5})),
    )
    assert created.json()["warnings"][0] == "unknown field \"spec.plann\", did you mean 'plan'?"
    assert "warning" not in created.headers


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (listed(), 400, "items: expected a list of objects"),
        (listed(items={}), 400, "items: expected a list of objects"),
        (listed(*(address(f"a{number}") for number in range(MAX_IN_LIST + 1))), 413, "at most 50 objects"),
        (listed(address("a") | {"kind": "Pipeline"}), 400, "this path takes Address"),
        (listed({"metadata": {"name": "shop.a", "namespace": "other"}}), 400, "the path says default"),
        (listed("shop.a"), 400, "expected one map"),  # type: ignore[arg-type]
        (listed({"metadata": ["shop.a"]}), 422, "metadata"),
    ],
)
def test_what_is_no_list_of_addresses_is_refused(api: Api, body: Any, code: int, message: str) -> None:
    for method in ("POST", "PUT"):
        refused = api(method, ADDRESSES, json=body)
        assert refused.status_code == code
        assert message in refused.json()["message"]
    assert names(api) == []


def test_other_kinds_take_no_lists(api: Api) -> None:
    spaces = ADDRESSES.replace("addresses", "addressspaces")
    body = {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpaceList", "items": [{"metadata": {"name": "shop"}}]}
    assert api("POST", spaces, json=body).status_code == 400
    assert api("PUT", spaces, json=body).status_code == 405


def test_a_quota_counts_what_stands_before_in_the_list(api: Api) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"count/addresses.enmasse.io": "2"}},
    }
    assert api("POST", "/api/v1/namespaces/default/resourcequotas", json=quota).status_code == 201
    full = api("POST", ADDRESSES, json=listed(*(address(name) for name in "abc")), params={"dryRun": "All"})
    assert full.status_code == 403
    assert api("POST", ADDRESSES, json=listed(address("a"), address("b"))).status_code == 201
    assert api("POST", ADDRESSES, json=listed(address("c"))).status_code == 403


def test_the_audit_log_has_a_line_for_each_object(registry: Registry, tmp_path: Path) -> None:
    async def write(log: AuditLog) -> None:
        app = create_app(ApiParts(registry=registry, stop=asyncio.Event(), audit=log))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            await client.post(ADDRESSES, json=listed(address("a"), address("b")))
            await client.put(ADDRESSES, json=listed(address("a"), address("z")))

    with AuditLog(tmp_path / "audit.log") as log:
        asyncio.run(write(log))
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert [(line["verb"], line["name"], line["code"]) for line in lines] == [
        ("create", "shop.a", 201),
        ("create", "shop.b", 201),
        ("update", "shop.a", 404),
        ("update", "shop.z", 404),
    ]
