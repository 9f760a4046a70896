"""The description of the API, as clients of every age read it."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.api.kube.served import SERVED, operations_of
from enmasse.api.openapi.v2 import encode_document, message_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    Api = Callable[..., httpx.Response]

OF_KUBECTL_1_20 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
KIND = "x-kubernetes-group-version-kind"


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def test_every_kind_has_a_definition_that_clients_find_by_group_version_and_kind(api: Api) -> None:
    document = api("GET", "/openapi/v2").json()
    found = {
        (gvk["group"], gvk["version"], gvk["kind"])
        for schema in document["definitions"].values()
        for gvk in schema.get(KIND, ())
    }
    for served in SERVED:
        assert (served.group, served.version, served.kind.name) in found
        assert (served.group, served.version, f"{served.kind.name}List") in found
    names = {f"#/definitions/{name}" for name in document["definitions"]}
    assert set(references(document)) <= names


def numbers(part: Any) -> Iterator[float]:
    if isinstance(part, int | float):
        yield part
    for value in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from numbers(value)


def test_no_number_is_beyond_what_a_double_holds_exactly(api: Api) -> None:
    described = [api("GET", "/openapi/v2").json()]
    described += [api("GET", f"/openapi/v3/{path}").json() for path in api("GET", "/openapi/v3").json()["paths"]]
    assert len(described) > 2
    assert max(abs(number) for document in described for number in numbers(document)) <= 2**53


def test_what_can_be_patched_says_that_it_takes_dry_runs_and_field_validation(api: Api) -> None:
    paths = api("GET", "/openapi/v2").json()["paths"]
    for served in SERVED:
        for operation in operations_of(served):
            told = paths[operation.path][operation.method]
            assert told["x-kubernetes-action"] == operation.action
            if operation.method == "patch":
                names = {parameter["name"] for parameter in told["parameters"]}
                assert names >= {"dryRun", "fieldValidation", "fieldManager", "force"}
                assert "application/apply-patch+yaml" in told["consumes"]


def test_operations_have_names_of_their_own() -> None:
    names = [operation.id for served in SERVED for operation in operations_of(served)]
    assert len(names) == len(set(names))


def test_older_clients_get_the_same_document_as_protocol_buffers(api: Api) -> None:
    answered = api("GET", "/openapi/v2", headers={"accept": OF_KUBECTL_1_20})
    assert "protobuf" in answered.headers["content-type"]
    found: Any = message_type("Document").FromString(answered.content)
    plain = api("GET", "/openapi/v2").json()
    assert found.swagger == "2.0"
    assert [item.name for item in found.definitions.additional_properties] == list(plain["definitions"])
    assert [item.name for item in found.paths.path] == list(plain["paths"])
    address = next(
        item.value for item in found.definitions.additional_properties if item.name == "io.enmasse.v1beta1.Address"
    )
    assert [(item.name, KIND in item.name) for item in address.vendor_extension] == [(KIND, True)]
    properties = {item.name: item.value for item in address.properties.additional_properties}
    assert set(properties) == {"apiVersion", "kind", "metadata", "spec", "status"}
    assert properties["metadata"]._ref.startswith("#/definitions/")
    assert list(properties["spec"].type.value) == ["object"]


def test_a_document_with_fields_that_have_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="securityDefinitions"):
        encode_document({"swagger": "2.0", "info": {}, "paths": {}, "definitions": {}, "securityDefinitions": {}})


def test_each_group_and_version_has_a_document_of_its_own_in_version_3(api: Api) -> None:
    index = api("GET", "/openapi/v3").json()["paths"]
    assert set(index) == {served.prefix.removeprefix("/") for served in SERVED}
    for path, item in index.items():
        answered = api("GET", item["serverRelativeURL"])
        assert "immutable" in answered.headers["cache-control"]
        document = answered.json()
        assert document["openapi"].startswith("3.0")
        assert all(address.startswith(f"/{path}/") for address in document["paths"])
        names = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert set(references(document)) == names


def test_an_outdated_hash_leads_to_the_present_document(api: Api) -> None:
    moved = api("GET", "/openapi/v3/apis/enmasse.io/v1beta1", params={"hash": "OLD"})
    assert moved.status_code == 301
    assert api("GET", moved.headers["location"]).status_code == 200
    assert api("GET", "/openapi/v3/apis/enmasse.io/v1").status_code == 404


def test_who_has_a_document_already_is_told_so(api: Api) -> None:
    for path in ("/openapi/v2", "/openapi/v3", "/openapi/v3/apis/enmasse.io/v1beta1"):
        tag = api("GET", path).headers["etag"]
        again = api("GET", path, headers={"if-none-match": f'"other", W/{tag}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert api("GET", path, headers={"if-none-match": '"other"'}).status_code == 200


def test_documents_are_compressed_for_who_takes_that(api: Api) -> None:
    plain = api("GET", "/openapi/v2", headers={"accept-encoding": "identity"})
    packed = api("GET", "/openapi/v2", headers={"accept-encoding": "br, gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) == len(gzip.compress(plain.content, mtime=0))
    assert packed.content == plain.content


def test_a_form_that_is_not_there_is_refused(api: Api) -> None:
    assert api("GET", "/openapi/v2", headers={"accept": "text/html"}).status_code == 406
    assert api("GET", "/openapi/v3/apis/enmasse.io/v1beta1", headers={"accept": "text/html"}).status_code == 406
