"""What can be done to the messages of an address, posted below its object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.ports import MessageChoice

if TYPE_CHECKING:
    import httpx

    from enmasse.errors import EnmasseError

ADDRESSES = "/apis/enmasse.io/v1beta1/namespaces/default/addresses"
ORDERS = {
    "apiVersion": "enmasse.io/v1beta1",
    "kind": "Address",
    "metadata": {"name": "shop.orders"},
    "spec": {"address": "orders", "type": "queue"},
}


@pytest.fixture
def shop(api: Any) -> Any:
    assert api("POST", ADDRESSES, json=ORDERS).status_code == 201
    return api


def failure(response: httpx.Response, code: int) -> str:
    assert (response.status_code, response.json()["code"]) == (code, code)
    return str(response.json()["message"])


@pytest.mark.parametrize(
    ("action", "body", "call", "message"),
    [
        ("purge", {}, ("purge", MessageChoice()), "3 messages deleted from 'orders'"),
        ("purge", {"selector": "a = 1"}, ("purge", MessageChoice("a = 1")), "3 messages deleted from 'orders'"),
        ("purge", {"search": "late"}, ("purge", MessageChoice(search="late")), "3 messages deleted from 'orders'"),
        ("move", {"to": "late"}, ("move", "late", MessageChoice()), "3 messages moved from 'orders' to 'late'"),
        (
            "move",
            {"to": "late", "selector": "x"},
            ("move", "late", MessageChoice("x")),
            "3 messages moved from 'orders' to 'late'",
        ),
        (
            "replay",
            {"selector": None},
            ("replay", MessageChoice()),
            "3 messages sent back from 'orders' to where they came from",
        ),
    ],
)
def test_the_node_is_asked_and_its_count_told(
    shop: Any, action: str, body: dict[str, Any], call: tuple[object, ...], message: str
) -> None:
    answer = shop("POST", f"{ADDRESSES}/shop.orders/{action}", json=body)
    assert answer.status_code == 200
    status = answer.json()
    assert (status["status"], status["message"], status["details"]["count"]) == ("Success", message, 3)
    assert shop.messages.calls == [(call[0], "default/shop.orders", *call[1:])]


def test_a_dry_run_only_counts(shop: Any) -> None:
    answer = shop("POST", f"{ADDRESSES}/shop.orders/purge?dryRun=All", json={"ids": ["1.-.abc"]})
    assert (answer.json()["message"], answer.json()["details"]["count"]) == (
        "3 messages would be deleted from 'orders'",
        3,
    )
    assert shop.messages.calls == [
        ("purge", "default/shop.orders", MessageChoice(ids=("1.-.abc",), is_dry=True)),
    ]
    assert "dryRun" in failure(shop("POST", f"{ADDRESSES}/shop.orders/purge?dryRun=yes", json={}), 400)


@pytest.mark.parametrize(
    ("action", "body", "message"),
    [
        ("move", {}, "to: required"),
        ("move", {"to": ""}, "to: required"),
        ("purge", {"to": "late"}, "to: unknown; purge takes selector, search, ids"),
        ("move", {"form": "late"}, "form: unknown; move takes to, selector, search, ids"),
        ("replay", {"selector": 5}, "selector: expected a string, got 5"),
        ("purge", {"search": ["a"]}, "search: expected a string"),
        ("purge", {"ids": "1.2.3"}, "ids: expected a list of at most 10000 ids"),
        ("purge", {"ids": [1]}, "ids: expected a list of at most 10000 ids"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(shop: Any, action: str, body: dict[str, Any], message: str) -> None:
    assert message in failure(shop("POST", f"{ADDRESSES}/shop.orders/{action}", json=body), 400)
    assert shop.messages.calls == []


def test_nothing_is_done_to_an_address_that_is_not_declared(shop: Any) -> None:
    assert "there is no Address" in failure(shop("POST", f"{ADDRESSES}/shop.late/purge", json={}), 404)
    assert shop.messages.calls == []


@pytest.mark.parametrize(("headers", "code"), [({"origin": "null"}, 403), ({"content-type": "text/plain"}, 415)])
def test_a_page_of_another_origin_cannot_purge(shop: Any, headers: dict[str, str], code: int) -> None:
    failure(shop("POST", f"{ADDRESSES}/shop.orders/purge", headers=headers), code)
    assert shop.messages.calls == []


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (NodeRefusedError(400, "the selector is not understood at character 3"), 400, "at character 3"),
        (NodeRefusedError(404, "space 'default/shop' has no address 'late'"), 404, "no address 'late'"),
        (NodeRefusedError(503, "the disk is full"), 503, "the disk is full"),
        (NodeRefusedError(501, "there is no such operation"), 503, "no such operation"),
        (NodeUnavailableError("node node-0 is not connected"), 503, "not connected"),
    ],
)
def test_what_the_node_says_is_passed_on(shop: Any, error: EnmasseError, code: int, message: str) -> None:
    shop.messages.error = error
    assert message in failure(shop("POST", f"{ADDRESSES}/shop.orders/purge", json={}), code)
