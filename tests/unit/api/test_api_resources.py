"""The verbs of the API, object by object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from enmasse.model.schema.objects import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from enmasse.control.store.registry import Registry

    Api = Callable[..., httpx.Response]

BASE = "/apis/enmasse.io/v1beta1"
SPACES = f"{BASE}/namespaces/default/addressspaces"
ADDRESSES = f"{BASE}/namespaces/default/addresses"


def space(name: str = "shop", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "metadata": {"name": name}} | fields


def address(name: str = "shop.orders", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Address",
        "metadata": {"name": name},
        "spec": {"address": name.partition(".")[2], "type": "queue"} | spec,
    }


def failure(response: httpx.Response, code: int, reason: str) -> str:
    status = response.json()
    assert response.status_code == code
    assert (status["kind"], status["status"], status["code"], status["reason"]) == (
        "Status",
        "Failure",
        code,
        reason,
    )
    return str(status["message"])


def test_an_object_is_created_read_and_deleted(api: Api) -> None:
    created = api("POST", SPACES, json=space())
    assert created.status_code == 201
    metadata = created.json()["metadata"]
    assert [item["manager"] for item in metadata.pop("managedFields")] == ["python-httpx"]
    assert metadata == {
        "name": "shop",
        "namespace": "default",
        "uid": "uid-1",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    assert api("GET", f"{SPACES}/shop").json() == created.json()
    deleted = api("DELETE", f"{SPACES}/shop").json()
    assert (deleted["status"], deleted["details"]["uid"]) == ("Success", "uid-1")
    assert failure(api("GET", f"{SPACES}/shop"), 404, "NotFound") == (
        "there is no AddressSpace 'shop' in namespace default"
    )


def test_a_body_may_be_yaml(api: Api) -> None:
    text = "apiVersion: enmasse.io/v1beta1\nkind: AddressSpace\nmetadata: {name: shop}\n"
    headers = {"content-type": "application/yaml"}
    assert api("POST", SPACES, content=text, headers=headers).status_code == 201


def test_lists_carry_the_version_to_watch_from(api: Api, registry: Registry) -> None:
    api("POST", SPACES, json=space())
    registry.create(decode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}))
    api("POST", SPACES.replace("default", "other"), json=space())
    listed = api("GET", SPACES).json()
    assert (listed["kind"], listed["apiVersion"]) == ("AddressSpaceList", "enmasse.io/v1beta1")
    assert listed["metadata"]["resourceVersion"] == "3"
    assert [item["metadata"]["namespace"] for item in listed["items"]] == ["default"]
    everywhere = api("GET", f"{BASE}/addressspaces").json()["items"]
    assert [item["metadata"]["namespace"] for item in everywhere] == ["default", "other"]


def test_lists_are_filtered_by_labels_and_fields(api: Api) -> None:
    api("POST", SPACES, json=space("a", metadata={"name": "a", "labels": {"tier": "gold"}}))
    api("POST", SPACES, json=space("b"))

    def names(**parameters: str) -> list[str]:
        items = api("GET", SPACES, params=parameters).json()["items"]
        return [item["metadata"]["name"] for item in items]

    assert names(labelSelector="tier=gold") == ["a"]
    assert names(labelSelector="!tier") == ["b"]
    assert names(fieldSelector="metadata.name=b") == ["b"]
    failure(api("GET", SPACES, params={"labelSelector": "a=b=c"}), 400, "BadRequest")


def test_a_replacement_needs_the_present_version_if_it_names_one(api: Api) -> None:
    first = api("POST", ADDRESSES, json=address()).json()
    changed = first | {"spec": first["spec"] | {"plan": "standard-large-queue"}}
    second = api("PUT", f"{ADDRESSES}/shop.orders", json=changed).json()
    assert (second["metadata"]["generation"], second["metadata"]["resourceVersion"]) == (2, "2")
    message = failure(api("PUT", f"{ADDRESSES}/shop.orders", json=changed), 409, "Conflict")
    assert "read it again" in message
    assert api("PUT", f"{ADDRESSES}/shop.orders", json=address()).status_code == 200


def test_a_merge_patch_changes_what_it_names_and_removes_what_is_null(api: Api) -> None:
    api("POST", ADDRESSES, json=address(plan="standard-small-queue", deadletter="dlq"))
    headers = {"content-type": "application/merge-patch+json"}
    patch = b'{"metadata": {"labels": {"a": "b"}}, "spec": {"deadletter": null}}'
    patched = api("PATCH", f"{ADDRESSES}/shop.orders", content=patch, headers=headers).json()
    assert patched["metadata"]["labels"] == {"a": "b"}
    assert patched["spec"]["plan"] == "standard-small-queue"
    assert "deadletter" not in patched["spec"]
    stale = b'{"metadata": {"resourceVersion": "1"}, "spec": {"plan": "p"}}'
    response = api("PATCH", f"{ADDRESSES}/shop.orders", content=stale, headers=headers)
    failure(response, 409, "Conflict")


def test_a_dry_run_writes_nothing(api: Api) -> None:
    dry = {"params": {"dryRun": "All"}}
    assert api("POST", SPACES, json=space(), **dry).status_code == 201
    failure(api("GET", f"{SPACES}/shop"), 404, "NotFound")
    api("POST", SPACES, json=space())
    assert api("DELETE", f"{SPACES}/shop", **dry).status_code == 200
    assert api("GET", f"{SPACES}/shop").status_code == 200
    failure(api("POST", SPACES, json=space(), params={"dryRun": "Some"}), 400, "BadRequest")


def test_a_deletion_keeps_its_preconditions(api: Api) -> None:
    api("POST", SPACES, json=space())
    response = api("DELETE", f"{SPACES}/shop", json={"preconditions": {"uid": "other"}})
    failure(response, 409, "Conflict")
    assert api("DELETE", f"{SPACES}/shop", json={"preconditions": {"uid": "uid-1"}}).status_code == 200


def test_an_invalid_object_is_refused_with_every_cause(api: Api) -> None:
    response = api("POST", ADDRESSES, json=address(type="quue", colour=1))
    message = failure(response, 422, "Invalid")
    assert message.startswith("Address shop.orders is not valid: spec.type: expected one of anycast,")
    causes = response.json()["details"]["causes"]
    assert [cause["field"] for cause in causes] == ["spec.type", "spec.colour"]
    assert api("GET", ADDRESSES).json()["items"] == []


def test_a_name_that_is_taken_is_refused(api: Api) -> None:
    api("POST", SPACES, json=space())
    failure(api("POST", SPACES, json=space()), 409, "AlreadyExists")


def test_what_cannot_change_is_refused(api: Api) -> None:
    api("POST", ADDRESSES, json=address())
    response = api("PUT", f"{ADDRESSES}/shop.orders", json=address(type="topic"))
    assert "spec.type: cannot change from 'queue' to 'topic'" in failure(response, 422, "Invalid")


def test_fields_without_effect_are_accepted_with_a_warning(api: Api) -> None:
    response = api("POST", ADDRESSES, json=address(type="anycast", messageTtl={"maximum": 5}))
    assert response.status_code == 201
    assert response.headers["warning"] == (
        '299 - "shop.orders: spec.messageTtl has no effect: it is for messages that wait for receivers, '
        'and an anycast keeps none so"'
    )


def test_connectors_of_a_space_without_users_are_accepted_with_a_warning(api: Api) -> None:
    services = "/apis/admin.enmasse.io/v1beta1/namespaces/enmasse-infra/authenticationservices"
    for name, kind in (("everybody", "none"), ("ours", "standard")):
        service = {"apiVersion": "admin.enmasse.io/v1beta1", "kind": "AuthenticationService"}
        made = api("POST", services, json=service | {"metadata": {"name": name}, "spec": {"type": kind}})
        assert made.status_code == 201, made.text
    connectors = [{"name": name, "endpointHosts": [{"host": "mq.example.com"}]} for name in ("mill", "barn")]
    references: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"authenticationService": {"type": "none"}}, True),
        ({"authenticationService": {"name": "everybody"}}, True),
        ({"authenticationService": {"type": "standard"}}, False),
        ({"authenticationService": {"name": "ours"}}, False),
    ]
    for number, (spec, is_open) in enumerate(references):
        response = api("POST", SPACES, json=space(f"s{number}", spec=spec | {"connectors": connectors}))
        assert response.status_code == 201, response.text
        said = response.headers.get("warning", "")
        assert ("whoever comes in may use mill, barn" in said) is is_open, spec
        assert "warning" not in api("POST", SPACES, json=space(f"n{number}", spec=spec)).headers, spec


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (address(), "kind: this path takes AddressSpace, got 'Address'"),
        (space(apiVersion="v1"), "apiVersion: this path takes enmasse.io/v1beta1, got 'v1'"),
        (
            space(metadata={"name": "shop", "namespace": "other"}),
            "metadata.namespace: the path says default, the object 'other'",
        ),
    ],
)
def test_an_object_must_agree_with_its_path(api: Api, document: dict[str, Any], message: str) -> None:
    assert failure(api("POST", SPACES, json=document), 400, "BadRequest") == message


def test_a_name_must_agree_with_its_path(api: Api) -> None:
    api("POST", SPACES, json=space())
    assert "the path says shop" in failure(api("PUT", f"{SPACES}/shop", json=space("other")), 400, "BadRequest")


def test_a_namespace_is_a_dns_label(api: Api) -> None:
    failure(api("POST", SPACES.replace("default", "NO"), json=space()), 400, "BadRequest")


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        (b"{", 400, "BadRequest"),
        (b"\xff\xfe", 400, "BadRequest"),
        (b"[]", 400, "BadRequest"),
        (b"", 400, "BadRequest"),
        (b"a: 1\n---\nb: 2", 400, "BadRequest"),
        (b"[" * 5000, 400, "BadRequest"),
        (b'{"kind": "AddressSpace", "apiVersion": "enmasse.io/v1beta1"}', 422, "Invalid"),
        (b" " * (1024 * 1024 + 1), 413, "RequestEntityTooLarge"),
    ],
)
def test_a_body_that_is_no_object_is_refused(api: Api, body: bytes, code: int, reason: str) -> None:
    headers = {"content-type": "application/json"}
    failure(api("POST", SPACES, content=body, headers=headers), code, reason)


def test_a_body_without_announced_length_is_bounded_too(api: Api) -> None:
    async def endless() -> Any:
        for _ in range(64):
            yield b" " * 65536

    headers = {"content-type": "application/json"}
    response = api("POST", SPACES, content=endless(), headers=headers)
    failure(response, 413, "RequestEntityTooLarge")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
@pytest.mark.parametrize(("method", "path"), [("POST", SPACES), ("PATCH", f"{SPACES}/shop")])
def test_content_types_that_any_web_page_can_send_are_refused(
    api: Api, method: str, path: str, content_type: str
) -> None:
    headers = {"origin": "http://localhost"} | ({"content-type": content_type} if content_type else {})
    failure(api(method, path, content=b"{}", headers=headers), 415, "UnsupportedMediaType")


def test_a_strategic_merge_is_for_the_kinds_of_the_core_group_alone(api: Api) -> None:
    headers = {"content-type": "application/strategic-merge-patch+json"}
    response = api("PATCH", f"{SPACES}/shop", content=b"{}", headers=headers)
    assert "application/merge-patch+json" in failure(response, 415, "UnsupportedMediaType")
