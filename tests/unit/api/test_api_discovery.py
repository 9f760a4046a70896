"""Discovery, health, hosts, and what is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    Api = Callable[..., httpx.Response]


def test_clients_find_groups_versions_and_kinds(api: Api) -> None:
    groups = api("GET", "/apis").json()["groups"]
    assert [group["name"] for group in groups] == ["enmasse.io", "admin.enmasse.io"]
    for group in groups:
        assert api("GET", f"/apis/{group['name']}").json()["preferredVersion"] == group["versions"][0]
        found = api("GET", f"/apis/{group['preferredVersion']['groupVersion']}").json()
        assert found["kind"] == "APIResourceList"
        for resource in found["resources"]:
            assert resource["namespaced"]
            if "/" in resource["name"]:
                assert (resource["verbs"], resource["name"].partition("/")[0]) == (["create"], "addresses")
                continue
            assert "watch" in resource["verbs"]
            path = f"/apis/{found['groupVersion']}/{resource['name']}"
            assert api("GET", path).json()["kind"] == f"{resource['kind']}List"
    assert api("GET", "/api").json()["kind"] == "APIVersions"


def test_health_and_version_are_told(api: Api) -> None:
    assert (api("GET", "/healthz").text, api("GET", "/readyz").text) == ("ok", "ok")
    assert api("GET", "/version").json()["gitVersion"].startswith("v")


def test_every_path_is_described(api: Api) -> None:
    paths = api("GET", "/openapi.json").json()["paths"]
    single = paths["/apis/enmasse.io/v1beta1/namespaces/{namespace}/addresses/{name}"]
    assert set(single) == {"get", "put", "patch", "delete"}


def test_what_is_not_there_is_answered_with_a_status(api: Api) -> None:
    missing = api("GET", "/apis/enmasse.io/v1beta1/pods")
    assert (missing.status_code, missing.json()["reason"]) == (404, "NotFound")
    wrong = api("DELETE", "/healthz")
    assert (wrong.status_code, wrong.json()["reason"]) == (405, "MethodNotAllowed")


def test_a_parameter_of_the_wrong_type_is_answered_with_a_status(api: Api) -> None:
    path = "/apis/enmasse.io/v1beta1/addresses"
    response = api("GET", path, params={"watch": "perhaps"})
    assert (response.status_code, response.json()["reason"]) == (400, "BadRequest")
    response = api("GET", path, params={"watch": "true", "resourceVersion": "new"})
    assert response.status_code == 400


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "10.0.0.1:8080", ""])
def test_a_host_that_is_not_this_machine_is_refused(api: Api, host: str) -> None:
    response = api("GET", "/healthz", headers={"host": host})
    assert (response.status_code, response.json()["reason"]) == (403, "Forbidden")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "127.1.2.3", "[::1]:8080"])
def test_a_loopback_host_is_served(api: Api, host: str) -> None:
    assert api("GET", "/healthz", headers={"host": host}).status_code == 200
