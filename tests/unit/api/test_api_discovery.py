"""Discovery, health, hosts, and what is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, MESSAGING_USER
from enmasse.model.schema.subresources import REPORTS

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from enmasse.model.schema.kinds import Kind
    from enmasse.model.schema.subresources import Subresource

    Api = Callable[..., httpx.Response]


def test_clients_find_groups_versions_and_kinds(api: Api) -> None:
    groups = api("GET", "/apis").json()["groups"]
    assert {group["name"] for group in groups} == {
        "enmasse.io",
        "iot.enmasse.io",
        "admin.enmasse.io",
        "user.enmasse.io",
        "rbac.authorization.k8s.io",
    }
    for group in groups:
        assert api("GET", f"/apis/{group['name']}").json()["preferredVersion"] == group["versions"][0]
        found = api("GET", f"/apis/{group['preferredVersion']['groupVersion']}").json()
        assert found["kind"] == "APIResourceList"
        for resource in found["resources"]:
            is_beside = resource["name"] in [report.resource for report in REPORTS]
            is_of_all = resource["kind"] in ("AddressSpaceSchema", "ClusterRole", "ClusterRoleBinding")
            assert resource["namespaced"] is not (is_of_all or is_beside)
            if "/" in resource["name"] or is_beside:
                continue
            assert "watch" in resource["verbs"]
            path = f"/apis/{found['groupVersion']}/{resource['name']}"
            assert api("GET", path).json()["kind"] == f"{resource['kind']}List"
    assert api("GET", "/api").json()["kind"] == "APIVersions"


def test_the_version_before_is_served_by_what_enmasse_had_in_it(api: Api) -> None:
    for group, kinds in (
        ("enmasse.io", {"addressspaces", "addresses", "addressspaceschemas"}),
        ("user.enmasse.io", {"messagingusers"}),
    ):
        told = api("GET", f"/apis/{group}").json()
        assert [item["version"] for item in told["versions"]] == ["v1beta1", "v1alpha1"]
        found = api("GET", f"/apis/{group}/v1alpha1").json()["resources"]
        assert {item["name"] for item in found if "/" not in item["name"]} & {"pipelines", *kinds} == kinds
    former = "/apis/enmasse.io/v1alpha1/namespaces/default/addressspaces"
    space = {"apiVersion": "enmasse.io/v1alpha1", "kind": "AddressSpace", "metadata": {"name": "old"}, "spec": {}}
    made = api("POST", former, json=space)
    assert (made.status_code, made.json()["apiVersion"]) == (201, "enmasse.io/v1alpha1")
    for version in ("v1alpha1", "v1beta1"):
        path = former.replace("v1alpha1", version)
        assert api("GET", f"{path}/old").json()["apiVersion"] == f"enmasse.io/{version}"
        assert [item["metadata"]["name"] for item in api("GET", path).json()["items"]] == ["old"]


def test_everything_is_discovered_at_once_where_the_client_can_read_that(api: Api) -> None:
    def ask(path: str, version: str) -> httpx.Response:
        accept = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList,application/json"
        return api("GET", path, headers={"accept": accept})

    for version in ("v2", "v2beta1"):
        found = ask("/apis", version)
        assert found.headers["content-type"].endswith(f"g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList")
        listed = found.json()
        assert (listed["kind"], listed["apiVersion"]) == ("APIGroupDiscoveryList", f"apidiscovery.k8s.io/{version}")
        for group in listed["items"]:
            name = group["metadata"]["name"]
            plain = api("GET", f"/apis/{name}").json()
            assert [item["version"] for item in group["versions"]] == [item["version"] for item in plain["versions"]]
            for item in group["versions"]:
                resources = api("GET", f"/apis/{name}/{item['version']}").json()["resources"]
                told = [item["resource"] for item in item["resources"]]
                told += [
                    f"{resource['resource']}/{below['subresource']}"
                    for resource in item["resources"]
                    for below in resource["subresources"]
                ]
                assert sorted(told) == sorted(resource["name"] for resource in resources)
    assert ask("/api", "v2").json()["kind"] == "APIGroupDiscoveryList"
    assert ask("/apis", "v3").json()["kind"] == "APIGroupList"
    assert api("GET", "/apis", headers={"accept": "text/html"}).status_code == 406


def test_health_and_version_are_told(api: Api) -> None:
    assert (api("GET", "/healthz").text, api("GET", "/readyz").text) == ("ok", "ok")
    assert api("GET", "/version").json()["gitVersion"].startswith("v")


def test_every_path_is_described(api: Api) -> None:
    paths = api("GET", "/openapi/v2").json()["paths"]
    single = paths["/apis/enmasse.io/v1beta1/namespaces/{namespace}/addresses/{name}"]
    assert {"get", "put", "patch", "delete"} <= set(single)


def test_what_pipelines_are_asked_is_discovered_and_described(api: Api) -> None:
    base = "/apis/enmasse.io/v1beta1"
    found = {item["name"]: (item["kind"], item["verbs"]) for item in api("GET", base).json()["resources"]}
    assert found["addressspaces/query"] == ("QueryResult", ["create"])
    assert found["pipelines/log"] == ("Pipeline", ["get"])
    paths = api("GET", f"/openapi/v3{base}").json()["paths"]
    log = paths[f"{base}/namespaces/{{namespace}}/pipelines/{{name}}/log"]["get"]
    assert [parameter["name"] for parameter in log["parameters"]] == ["follow", "tail"]
    assert log["responses"]["200"]["content"] == {"text/plain": {"schema": {"type": "string"}}}
    query = paths[f"{base}/namespaces/{{namespace}}/addressspaces/{{name}}/query"]["post"]
    rows = query["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    assert rows.endswith(".QueryResult")


LISTED = [below for below in ADDRESS_SPACE.subresources if below.answer == "items"]


@pytest.mark.parametrize("listed", LISTED, ids=lambda listed: listed.name)
def test_what_nodes_report_is_discovered_and_described_in_both_versions(api: Api, listed: Subresource) -> None:
    base = "/apis/enmasse.io/v1beta1"
    found = {item["name"]: (item["kind"], item["verbs"]) for item in api("GET", base).json()["resources"]}
    assert found[f"addressspaces/{listed.name}"] == (listed.kind, list(listed.verbs))
    path = f"{base}/namespaces/{{namespace}}/addressspaces/{{name}}/{listed.name}"
    newer, older = api("GET", f"/openapi/v3{base}").json(), api("GET", "/openapi/v2").json()
    for document, schemas in ((newer, newer["components"]["schemas"]), (older, older["definitions"])):
        items = schemas[f"io.enmasse.v1beta1.{listed.kind}"]["properties"]["items"]["items"]
        assert list(items["properties"]) == [field.name for field in listed.fields]
        assert [parameter["name"] for parameter in document["paths"][path]["get"]["parameters"]] == [
            "continue", *listed.query
        ]  # fmt: skip
        single = document["paths"].get(f"{path}/{{{listed.item}}}" if listed.item else path, {})
        assert ("delete" in single) == ("delete" in listed.verbs)
        if listed.item:
            names = [parameter["name"] for parameter in single["parameters"]]
            assert names == ["namespace", "name", listed.item]
        elif "delete" in single:
            assert [parameter["required"] for parameter in single["delete"]["parameters"]] == [True]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)
def test_what_is_told_beside_objects_is_discovered_and_described_in_both_versions(
    api: Api, report: Subresource
) -> None:
    base = "/apis/enmasse.io/v1beta1"
    found = {item["name"]: item for item in api("GET", base).json()["resources"]}
    kind = report.kind.removesuffix("List")
    assert (found[report.resource]["kind"], found[report.resource]["verbs"]) == (kind, list(report.verbs))
    newer, older = api("GET", f"/openapi/v3{base}").json(), api("GET", "/openapi/v2").json()
    for document, schemas in ((newer, newer["components"]["schemas"]), (older, older["definitions"])):
        told = document["paths"][f"{base}/{report.name}"]["get"]
        assert [parameter["name"] for parameter in told["parameters"]] == list(report.query)
        described = schemas[f"io.enmasse.v1beta1.{report.kind}"]["properties"]
        assert {field.name for field in report.beside} <= set(described)
        if report.fields:
            assert set(described["items"]["items"]["properties"]) == {field.name for field in report.fields}


BELOW = [
    (kind, below)
    for kind in (ADDRESS_SPACE, ADDRESS, MESSAGING_USER)
    for below in kind.subresources
    if below.answer == "report" or below.body
]


@pytest.mark.parametrize(("kind", "below"), BELOW, ids=lambda item: item.name)
def test_what_can_be_asked_of_objects_is_described_with_what_is_given_and_answered(
    api: Api, kind: Kind, below: Subresource
) -> None:
    paths = api("GET", f"/openapi/v3{kind.base_path()}").json()["paths"]
    item = paths[f"{kind.base_path()}/namespaces/{{namespace}}/{kind.plural}/{{name}}/{below.name}"]
    named = {item["name"]: item["verbs"] for item in api("GET", kind.base_path()).json()["resources"]}
    assert f"{kind.plural}/{below.resource}" in named
    if "get" in below.verbs:
        assert [parameter["name"] for parameter in item["get"]["parameters"]] == list(below.query)
    if below.body:
        body = item["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert list(body["properties"]) == [field.name for field in below.body]
        assert body.get("required", []) == [field.name for field in below.body if field.is_always]


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
