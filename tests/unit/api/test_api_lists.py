"""Lists: pages that show one moment, versions, selectors by index, whole collections deleted."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.model.schema.objects import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from enmasse.control.store.registry import Registry

    Api = Callable[..., httpx.Response]

MAPS = "/api/v1/namespaces/default/configmaps"
EVERYWHERE = "/api/v1/configmaps"


def put(registry: Registry, name: str, namespace: str = "default", **labels: str) -> None:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    resource = decode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    if registry.store.find("ConfigMap", namespace, name):
        registry.replace(resource)
    else:
        registry.create(resource)


def names(listed: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def walk(api: Api, path: str, **parameters: str) -> list[list[str]]:
    pages: list[list[str]] = []
    more: dict[str, str] = {}
    while True:
        listed = api("GET", path, params=parameters | more).json()
        pages.append(names(listed))
        if "continue" not in listed["metadata"]:
            return pages
        more = {"continue": listed["metadata"]["continue"]}


def test_a_list_comes_in_pages_of_the_size_that_is_asked_for(api: Api, registry: Registry) -> None:
    for name in "abcde":
        put(registry, name)
    first = api("GET", MAPS, params={"limit": "2"}).json()
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["a", "b"], 3)
    assert walk(api, MAPS, limit="2") == [["a", "b"], ["c", "d"], ["e"]]
    assert walk(api, MAPS, limit="5") == [list("abcde")]
    assert walk(api, MAPS) == [list("abcde")]


def test_pages_go_through_all_namespaces(api: Api, registry: Registry) -> None:
    for name in ("a", "b"):
        put(registry, name, "enmasse-infra")
        put(registry, name)
    assert walk(api, EVERYWHERE, limit="3") == [["a", "b", "a"], ["b"]]


def test_all_pages_show_the_moment_of_the_first(api: Api, registry: Registry) -> None:
    for name in "bdfh":
        put(registry, name)
    first = api("GET", MAPS, params={"limit": "1"}).json()
    version = first["metadata"]["resourceVersion"]
    put(registry, "a")
    put(registry, "e")
    put(registry, "d", colour="red")
    put(registry, "d", colour="blue")
    registry.delete("ConfigMap", "default", "f")
    put(registry, "f", colour="new")
    registry.delete("ConfigMap", "default", "h")
    rest = api("GET", MAPS, params={"limit": "9", "continue": first["metadata"]["continue"]}).json()
    assert (names(first), names(rest)) == (["b"], ["d", "f", "h"])
    assert rest["metadata"]["resourceVersion"] == version
    assert all("labels" not in item["metadata"] for item in rest["items"])
    assert names(api("GET", MAPS).json()) == ["a", "b", "d", "e", "f"]


def test_a_page_after_the_history_is_gone_is_refused_and_the_rest_can_be_had_as_it_is(
    api: Api, registry: Registry
) -> None:
    for name in "abc":
        put(registry, name)
    token = api("GET", MAPS, params={"limit": "1"}).json()["metadata"]["continue"]
    for number in range(120):
        put(registry, "a", n=str(number))
    put(registry, "d")
    refused = api("GET", MAPS, params={"limit": "1", "continue": token})
    assert (refused.status_code, refused.json()["reason"]) == (410, "Expired")
    again = refused.json()["metadata"]["continue"]
    assert names(api("GET", MAPS, params={"continue": again}).json()) == ["b", "c", "d"]


def test_a_page_has_as_many_chosen_objects_as_were_asked_for(api: Api, registry: Registry) -> None:
    for number in range(10):
        put(registry, f"n{number}", odd="yes" if number % 2 else "no")
    listed = api("GET", MAPS, params={"labelSelector": "odd=yes", "limit": "2"}).json()
    assert names(listed) == ["n1", "n3"]
    assert "remainingItemCount" not in listed["metadata"]
    assert walk(api, MAPS, labelSelector="odd=yes", limit="2") == [["n1", "n3"], ["n5", "n7"], ["n9"]]


def test_a_list_can_be_of_an_exact_version(api: Api, registry: Registry) -> None:
    put(registry, "a")
    put(registry, "b")
    put(registry, "c")

    def listed(**parameters: str) -> Any:
        return api("GET", MAPS, params=parameters).json()

    assert names(listed(resourceVersion="2", resourceVersionMatch="Exact")) == ["a", "b"]
    assert names(listed(resourceVersion="2", limit="5")) == ["a", "b"]
    assert names(listed(resourceVersion="2", resourceVersionMatch="NotOlderThan")) == ["a", "b", "c"]
    assert names(listed(resourceVersion="2")) == ["a", "b", "c"]
    assert names(listed(resourceVersion="0")) == ["a", "b", "c"]
    assert listed(resourceVersion="2", resourceVersionMatch="Exact")["metadata"]["resourceVersion"] == "2"


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"resourceVersionMatch": "Exact"}, 400),
        ({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, 400),
        ({"resourceVersion": "1", "resourceVersionMatch": "Newer"}, 400),
        ({"resourceVersion": "x"}, 400),
        ({"resourceVersion": "-1"}, 400),
        ({"limit": "-1"}, 400),
        ({"limit": "many"}, 400),
        ({"continue": "nonsense"}, 400),
        ({"continue": base64.b64encode(b'["a", 1, {}]').decode()}, 400),
        ({"continue": base64.b64encode(b'[1, "default", "a"]').decode(), "resourceVersion": "1"}, 400),
        ({"fieldSelector": "spec.colour=red"}, 400),
        ({"resourceVersion": "99"}, 504),
        ({"watch": "true", "resourceVersion": "99"}, 410),
        ({"watch": "true", "timeoutSeconds": "nan"}, 400),
        ({"watch": "true", "sendInitialEvents": "true"}, 422),
    ],
)
def test_parameters_that_make_no_sense_are_refused(
    api: Api, registry: Registry, parameters: dict[str, str], code: int
) -> None:
    put(registry, "a")
    response = api("GET", MAPS, params=parameters)
    assert (response.status_code, response.json()["kind"], response.json()["code"]) == (code, "Status", code)


def test_a_version_that_is_not_there_yet_is_told_as_kubernetes_tells_it(api: Api) -> None:
    status = api("GET", MAPS, params={"resourceVersion": "99"}).json()
    assert (status["reason"], status["details"]["retryAfterSeconds"]) == ("Timeout", 1)
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert status["message"] == "Too large resource version: 99, current: 0"


def test_addresses_are_found_by_what_applications_call_them(api: Api, registry: Registry) -> None:
    for name, kind in (("orders", "queue"), ("news", "topic")):
        registry.create(
            decode(
                {
                    "apiVersion": "enmasse.io/v1beta1",
                    "kind": "Address",
                    "metadata": {"name": f"shop.{name}", "namespace": "default"},
                    "spec": {"address": name.upper(), "type": kind},
                }
            )
        )
    path = "/apis/enmasse.io/v1beta1/namespaces/default/addresses"
    for selector, expected in (
        ("spec.address=ORDERS", ["shop.orders"]),
        ("spec.address=ORDERS,spec.type=topic", []),
        ("spec.type=topic", ["shop.news"]),
        ("spec.type!=topic", ["shop.orders"]),
        ("metadata.name=shop.news", ["shop.news"]),
        ("metadata.name=shop", []),
        ("metadata.namespace=default,metadata.name!=shop.news", ["shop.orders"]),
    ):
        assert names(api("GET", path, params={"fieldSelector": selector}).json()) == expected, selector


def test_what_is_chosen_can_be_deleted_at_once(api: Api, registry: Registry) -> None:
    for name in "abcd":
        put(registry, name, tier="gold" if name in "ab" else "tin")
    put(registry, "a", "enmasse-infra", tier="gold")
    dry = api("DELETE", MAPS, params={"labelSelector": "tier=gold", "dryRun": "All"})
    assert (dry.status_code, names(dry.json())) == (200, ["a", "b"])
    gone = api("DELETE", MAPS, params={"labelSelector": "tier=gold"})
    assert (gone.json()["kind"], names(gone.json())) == ("ConfigMapList", ["a", "b"])
    assert names(api("GET", MAPS).json()) == ["c", "d"]
    api("DELETE", MAPS, params={"fieldSelector": "metadata.name=c"})
    assert names(api("GET", EVERYWHERE).json()) == ["d", "a"]


def test_both_versions_of_a_kind_show_the_same_objects(api: Api) -> None:
    plan = {
        "apiVersion": "admin.enmasse.io/v1beta1",
        "kind": "AddressPlan",
        "metadata": {"name": "mine"},
        "spec": {"addressType": "queue"},
    }
    old, new = (
        f"/apis/admin.enmasse.io/{version}/namespaces/default/addressplans" for version in ("v1beta1", "v1beta2")
    )
    created = api("POST", old, json=plan)
    assert (created.status_code, created.json()["apiVersion"]) == (201, "admin.enmasse.io/v1beta1")
    for path, version in ((old, "v1beta1"), (new, "v1beta2")):
        listed = api("GET", path).json()
        assert [item["apiVersion"] for item in listed["items"]] == [f"admin.enmasse.io/{version}"]
        assert api("GET", f"{path}/mine").json()["apiVersion"] == f"admin.enmasse.io/{version}"
