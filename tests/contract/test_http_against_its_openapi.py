"""Requests made up from the OpenAPI of a node's HTTP, over a socket: every answer is as described.

``ENMASSE_API_EXAMPLES`` says how many are made up for each operation (``make fuzz-api``); few here.
"""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, strategies
from schemathesis import openapi
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from enmasse.client.blocking import connect
from enmasse.node.http.routes import ACTIONS, PATH
from tests.support.chance import examples
from tests.support.node_process import NodeProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.chance, pytest.mark.filterwarnings("ignore")]

EXAMPLES = int(os.environ.get("ENMASSE_API_EXAMPLES", examples(5)))
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
PLACE = {"space": "shop", "namespace": "default", "address": "orders"}
ADDRESSES = {"orders": "queue", "any": "anycast", "log": "stream", "news": "topic"}
JSON = "application/json"
EVENT = {"specversion": "1.0", "id": "1", "source": "/a", "type": "sold", "data": {"a": 1}}


@schemathesis.serializer("application/x-ndjson")
def lines(_: Any, value: Any) -> bytes:
    return str(value).encode(errors="replace")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a node with an open space, in which there are messages, and a closed one."""
    with NodeProcess(tmp_path_factory.mktemp("node")) as node:
        with connect(node.admin_url) as connection:
            management = connection.management()
            management.create("io.enmasse.space", "default/shop", {})
            management.create("io.enmasse.space", "default/closed", {"authentication": "standard"})
            for address, kind in ADDRESSES.items():
                attributes = {"space": "default/shop", "address": address, "addressType": kind}
                management.create("io.enmasse.address", f"default/shop.{address}", attributes)
        with httpx.Client(base_url=f"http://127.0.0.1:{node.port}", trust_env=False, timeout=60) as client:
            for address in ("orders", "log"):
                path = f"/v1/spaces/shop.default/addresses/{address}/messages"
                headers = {"X-Subject": "s", "X-Priority": "3", "X-Opt-Key": "1", "X-Properties": '{"a": 1.5}'}
                assert client.post(path, json={"a": [1]}, headers=headers).status_code == 202
            yield client


@pytest.fixture(scope="module")
def described(client: httpx.Client) -> Any:
    """What the node says of itself."""
    answer = client.get("/v1/openapi.json")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == JSON
    return openapi.from_dict(answer.json())


def test_the_description_is_complete_and_for_everybody(client: httpx.Client) -> None:
    found = client.get("/v1/openapi.json", headers={"Authorization": "Bearer of.no.space"}).json()
    assert found["openapi"] == "3.1.0"
    for action, methods in ACTIONS.items():
        operations = found["paths"][PATH.replace("{action}", action)]
        assert {method.upper() for method in operations} == {"PARAMETERS", "OPTIONS", *methods}
    asked = client.head("/v1/openapi.json")
    assert (asked.status_code, asked.content) == (200, b"")
    refused = client.post("/v1/openapi.json", json={})
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
    assert client.get("/v1/openapi.json", headers={"Origin": "http://evil.example"}).status_code == 403


def test_made_up_requests_are_answered_as_described(client: httpx.Client, described: Any) -> None:
    for found in described.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize="ENMASSE_API_EXAMPLES" not in os.environ,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(), address=strategies.sampled_from((None, *ADDRESSES)))
        def play(case: Any, address: str | None) -> None:
            if address is not None:
                # Of the names that are made up none is that of a space, of the credentials none are right.
                case.path_parameters = PLACE | {"address": address}
                case.headers = {name: value for name, value in case.headers.items() if name != "Authorization"}
            check(client, case)

        play()


ASKED: list[tuple[str, str, str, dict[str, Any], Any, str, int]] = [
    ("POST", "messages", "orders", {}, "text", "text/plain", 202),
    ("POST", "messages", "log", {}, EVENT, "application/cloudevents+json", 202),
    ("POST", "messages", "orders", {}, [EVENT], "application/cloudevents-batch+json", 200),
    ("POST", "messages", "orders", {}, '{"body": 1}\nno message', "application/x-ndjson", 200),
    ("POST", "messages", "any", {}, "text", "text/plain", 503),
    ("POST", "messages", "none", {}, "text", "text/plain", 404),
    ("GET", "messages", "orders", {"max": "2"}, None, "", 200),
    ("GET", "messages", "log", {"offset": "first"}, None, "", 200),
    ("GET", "messages", "orders", {"offset": "1"}, None, "", 400),
    ("HEAD", "messages", "orders", {}, None, "", 200),
    ("POST", "receive", "orders", {"max": "2"}, None, "", 200),
    ("POST", "receive", "log", {}, None, "", 409),
    ("GET", "events", "log", {"offset": "first"}, None, "", 200),
    ("GET", "events", "orders", {}, None, "", 406),
    ("POST", "settle", "orders", {}, {"leases": ["a"], "outcome": "reject"}, JSON, 200),
    ("POST", "settle", "orders", {}, {"leases": ["a"], "outcome": "eat"}, JSON, 400),
    ("POST", "renew", "orders", {}, {"leases": ["a"], "lease": 1.5}, JSON, 200),
    ("POST", "request", "any", {}, "text", "text/plain", 504),
    ("OPTIONS", "settle", "orders", {}, None, "", 204),
]


@pytest.mark.parametrize(("method", "action", "address", "query", "body", "kind", "status"), ASKED)
def test_what_is_meant_is_answered_as_described(
    client: httpx.Client,
    described: Any,
    method: str,
    action: str,
    address: str,
    query: dict[str, Any],
    body: Any,
    kind: str,
    status: int,
) -> None:
    more: dict[str, Any] = {"body": body, "media_type": kind} if kind else {}
    place = PLACE | {"address": address}
    case = described[path_of(action)][method].Case(path_parameters=place, query=query, **more)
    assert check(client, case).status_code == status


def test_who_is_nobody_is_answered_as_described(client: httpx.Client, described: Any) -> None:
    place = PLACE | {"space": "closed"}
    assert check(client, described[path_of("receive")]["POST"].Case(path_parameters=place)).status_code == 401


def test_an_answer_of_another_client_is_as_described(client: httpx.Client, described: Any) -> None:
    def serve() -> None:
        with httpx.Client(base_url=client.base_url, trust_env=False, timeout=90) as server:
            path = "/v1/spaces/shop.default/addresses"
            asked = server.post(f"{path}/any/receive?wait=60").json()["messages"][0]
            server.post(f"{path}/{asked['replyTo'].replace('/', '%2F')}/messages", json={"answer": 1})
            server.post(f"{path}/any/settle", json={"leases": [asked["lease"]]})

    serving = threading.Thread(target=serve)
    serving.start()
    operation = described[path_of("request")]["POST"]
    case = operation.Case(
        path_parameters=PLACE | {"address": "any"}, query={"wait": "60"}, body="question", media_type="text/plain"
    )
    answer = check(client, case, wait="60")
    serving.join(90)
    assert (answer.status_code, answer.json()) == (200, {"answer": 1})


def path_of(action: str) -> str:
    return PATH.replace("{action}", action)


def check(client: httpx.Client, case: Any, wait: str = "0") -> httpx.Response:
    """Send a request that was made up, and have its answer checked."""
    if case.method == "POST" and case.path.endswith(("messages", "request")):
        # What waits by default, or as long as was made up, waits in vain.
        case.query = {**(case.query or {}), "wait": wait}
    elif "wait" in (case.query or {}):
        case.query["wait"] = wait
    options = case.as_transport_kwargs(base_url=str(client.base_url))
    options = {key: value for key, value in options.items() if value is not None and key != "cookies"}
    if "data" in options:
        options["content"] = options.pop("data")
    with client.stream(**options) as answer:
        if case.method == "GET" and answer.headers.get("content-type") == "text/event-stream":
            # It has no end: what is checked is an answer with its first event.
            content = next(answer.iter_raw()) if case.query.get("offset") == "first" else b""
            begun = httpx.Response(answer.status_code, headers={"content-type": "text/event-stream"}, content=content)
            begun.request, begun.elapsed = answer.request, timedelta()
        else:
            answer.read()
            begun = answer
    assert begun.status_code != 500, begun.text
    case.validate_response(begun, checks=CHECKS)
    return begun
