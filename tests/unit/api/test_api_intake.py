"""Fields that nobody knows, and fields that are said twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    Api = Callable[..., httpx.Response]

ADDRESSES = "/apis/enmasse.io/v1beta1/namespaces/default/addresses"
YAML = {"content-type": "application/yaml"}
JSON = {"content-type": "application/json"}


def address(name: str = "shop.orders", /, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Address",
        "metadata": {"name": name},
        "spec": {"address": "orders", "type": "queue"} | spec,
    }


def post(api: Api, document: dict[str, Any], validation: str | None = None) -> httpx.Response:
    return api("POST", ADDRESSES, json=document, params={"fieldValidation": validation} if validation else {})


def warnings(response: httpx.Response) -> list[str]:
    return response.headers.get_list("warning")


def test_strict_refuses_an_unknown_field_and_names_it(api: Api) -> None:
    refused = post(api, address(plann="x", messageTtl={"maximun": 5}), "Strict")
    assert refused.status_code == 422
    status = refused.json()
    assert {cause["field"] for cause in status["details"]["causes"]} == {"spec.plann", "spec.messageTtl.maximun"}
    assert "did you mean 'plan'?" in status["message"]
    assert api("GET", f"{ADDRESSES}/shop.orders").status_code == 404


def test_without_a_word_an_unknown_field_is_dropped_with_a_warning(api: Api) -> None:
    for name, validation in (("shop.a", None), ("shop.b", "Warn")):
        created = post(api, address(name, plann="x", forwarders=[{"name": "f", "nam": 1}]), validation)
        assert created.status_code == 422, "what else is wrong is refused in any case"
        created = post(api, address(name, plann="x", messageTtl={"maximum": 5, "maximun": 5}), validation)
        assert created.status_code == 201
        assert sorted(warnings(created)) == [
            "299 - \"unknown field 'spec.messageTtl.maximun', did you mean 'maximum'?\"",
            "299 - \"unknown field 'spec.plann', did you mean 'plan'?\"",
        ]
        assert created.json()["spec"] == {"address": "orders", "type": "queue", "messageTtl": {"maximum": 5}}


def test_ignore_drops_an_unknown_field_silently(api: Api) -> None:
    created = post(api, address(plann="x"), "Ignore")
    assert (created.status_code, warnings(created)) == (201, [])
    assert "plann" not in created.json()["spec"]


def test_what_is_wrong_otherwise_is_refused_whatever_the_policy(api: Api) -> None:
    for validation in ("Ignore", "Warn", "Strict"):
        refused = post(api, address(plann="x", type="queueue"), validation)
        assert (refused.status_code, "spec.type" in refused.json()["message"]) == (422, True)


def test_unknown_fields_of_a_change_are_treated_alike(api: Api) -> None:
    assert post(api, address()).status_code == 201
    path, merge = f"{ADDRESSES}/shop.orders", {"content-type": "application/merge-patch+json"}
    body = '{"spec": {"plann": "x"}}'
    refused = api("PATCH", path, content=body, headers=merge, params={"fieldValidation": "Strict"})
    assert (refused.status_code, "spec.plann" in refused.json()["message"]) == (422, True)
    changed = api("PATCH", path, content=body, headers=merge)
    assert (changed.status_code, len(warnings(changed))) == (200, 1)
    replaced = api("PUT", path, json=address(plann="x"))
    assert (replaced.status_code, len(warnings(replaced))) == (200, 1)


TWICE_IN_JSON = """{"apiVersion": "enmasse.io/v1beta1", "kind": "Address", "metadata": {"name": "shop.orders"},
"spec": {"address": "orders", "type": "topic", "type": "queue"}}"""
TWICE_IN_YAML = """
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: shop.orders}
spec:
  address: orders
  type: topic
  type: queue
"""


@pytest.mark.parametrize(("body", "headers"), [(TWICE_IN_JSON, JSON), (TWICE_IN_YAML, YAML)])
def test_a_field_said_twice_is_refused_or_the_last_one_counts(api: Api, body: str, headers: dict[str, str]) -> None:
    refused = api("POST", ADDRESSES, content=body, headers=headers, params={"fieldValidation": "Strict"})
    assert refused.status_code == 400
    assert "the key 'type' occurs twice" in refused.json()["message"]
    created = api("POST", ADDRESSES, content=body, headers=headers)
    assert (created.status_code, created.json()["spec"]["type"]) == (201, "queue")
    assert warnings(created) == ["299 - \"duplicate field 'type'\""]


def test_warnings_are_bounded(api: Api) -> None:
    unknown: dict[str, Any] = {f"no{number}": 1 for number in range(100)}
    created = post(api, address(**unknown))
    assert created.status_code == 201
    assert len(warnings(created)) == 21
    assert "80 more fields" in warnings(created)[-1]


def test_a_policy_that_is_none_is_refused(api: Api) -> None:
    refused = post(api, address(), "Sometimes")
    assert (refused.status_code, "fieldValidation" in refused.json()["message"]) == (400, True)
