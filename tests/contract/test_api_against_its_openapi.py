"""Requests made up from our own OpenAPI: no answer is a failure of ours, and every answer is as described.

``ENMASSE_API_EXAMPLES`` says how many are made up for each operation (``make fuzz-api``); few here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings, strategies
from schemathesis import openapi
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from enmasse.api.access.audit import AuditLog
from enmasse.api.app import ApiParts, NodeAccess, create_app
from enmasse.api.live.sampler import Sampler
from enmasse.api.openapi.v3 import documents_v3
from enmasse.client import Message, Outcome
from enmasse.control.ports import BrowsedMessage, MessagePage, NodeFigures, TracedFrame
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.model.schema.objects import decode
from enmasse.model.schema.subresources import (
    CONNECTIONS,
    LINKS,
    REPORTS,
    RETAINED,
    SESSIONS,
    TABLES_OF_SPACES,
    WILLS,
    Subresource,
)
from tests.support.chance import examples

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from starlette.applications import Starlette

    from enmasse.errors import EnmasseError

pytestmark = [pytest.mark.slow, pytest.mark.chance, pytest.mark.filterwarnings("ignore")]

EXAMPLES = int(os.environ.get("ENMASSE_API_EXAMPLES", examples(3)))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DOCUMENTS = documents_v3()
FORMER = {"apis/enmasse.io/v1alpha1", "apis/user.enmasse.io/v1alpha1"}
"""Those of versions whose paths and objects are those of another one."""
OBJECTS = """
{apiVersion: enmasse.io/v1beta1, kind: AddressSpace, metadata: {name: shop, namespace: default}, spec: {}}
---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: shop.orders, namespace: default}
spec: {address: orders, type: queue}
---
apiVersion: user.enmasse.io/v1beta1
kind: MessagingUser
metadata: {name: shop.app, namespace: default}
spec: {username: app, authentication: {type: federated}, authorization: [{operations: [send], addresses: [orders]}]}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: shop, namespace: default}, data: {colour: red}}
"""


class OneOfEach:
    """A node that has one of everything in every space, with every field."""

    name = "node-0"

    async def browse(self, *_: Any) -> MessagePage:
        message = Message({"a": 1}, subject="s", properties={"n": 1}, annotations={"x-opt-offset": 5})
        return MessagePage([BrowsedMessage("1", 10, message), BrowsedMessage("2", 1, None, b"a")], "2")

    async def figures(self, counters: Sequence[str]) -> NodeFigures:
        space: dict[str, Any] = {"name": "default/shop", "connections": 1}
        address: dict[str, Any] = {
            "name": "default/shop.orders",
            "space": "default/shop",
            **dict.fromkeys(counters, 1),
        }
        return NodeFigures(
            {"cpuSeconds": 1.5, "version": "1"}, {"ready": True, "problems": ["p"]}, [space], [address]
        )

    async def health(self) -> dict[str, Any]:
        return {"ready": True}

    async def ping(self) -> None:
        pass

    async def may(self, *_: Any) -> tuple[bool, str]:
        return True, "it may"

    @asynccontextmanager
    async def trace(self, *_: Any) -> AsyncIterator[AsyncIterator[TracedFrame]]:
        async def frames() -> AsyncIterator[TracedFrame]:
            yield TracedFrame("2026-01-01T00:00:00Z", True, "open", 10)

        yield frames()

    @asynccontextmanager
    async def follow(self, *_: Any) -> AsyncIterator[AsyncIterator[BrowsedMessage]]:
        yield nothing()

    async def receive(self, *_: Any) -> list[BrowsedMessage]:
        return []

    async def send(self, _name: str, messages: Sequence[Message]) -> list[Outcome | EnmasseError]:
        return [Outcome.ACCEPTED for _ in messages]

    async def purge(self, *_: Any, **__: Any) -> int:
        return 0

    move = replay = clear_retained = purge

    async def end(self, _space: str, name: str) -> bool:
        return name == "one"

    close_connection = end_session = end

    async def connections_of(self, *_: Any) -> tuple[list[dict[str, Any]], bool]:
        return [entity_of(CONNECTIONS)], False

    async def links_of(self, *_: Any) -> tuple[list[dict[str, Any]], bool]:
        return [entity_of(LINKS)], False

    async def mqtt_sessions_of(self, *_: Any) -> tuple[list[dict[str, Any]], bool]:
        return [entity_of(SESSIONS)], False

    async def wills_of(self, *_: Any) -> tuple[list[dict[str, Any]], bool]:
        return [entity_of(WILLS)], False

    async def retained_of(self, *_: Any) -> tuple[list[dict[str, Any]], int | None]:
        return [entity_of(RETAINED)], None


async def nothing() -> AsyncIterator[BrowsedMessage]:
    """Nothing comes."""
    return
    yield  # type: ignore[unreachable]  # it is a generator


def entity_of(listed: Subresource) -> dict[str, Any]:
    """What a node reports of one item."""
    values: dict[str, Any] = {"string": "one", "number": 0.5, "boolean": True, "strings": ["a/#"], "object": {}}
    return {field.of_node or field.name: values.get(field.type, 1) for field in listed.fields}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResourceStore]:
    with ResourceStore(tmp_path_factory.mktemp("api") / "resources.db", history=50) as store:
        yield store


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditLog]:
    with AuditLog(tmp_path_factory.mktemp("audit") / "audit.log") as log:
        yield log


@pytest.fixture(scope="module")
def app(store: ResourceStore, audit: AuditLog) -> Starlette:
    uids = itertools.count(1)
    registry = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{next(uids)}")
    registry.create_namespaces()
    registry.create_catalog()
    for document in yaml.safe_load_all(OBJECTS):
        registry.create(decode(document))
    stop = asyncio.Event()
    stop.set()  # a watch ends as soon as it has told what there is
    node = OneOfEach()
    access = NodeAccess(messages=node, figures=node, sessions=node, retained=node, traces=node, users=node)
    sampler = Sampler([node])
    parts = ApiParts(registry=registry, stop=stop, nodes={"node-0": access}, audit=audit, sampler=sampler)
    app = create_app(parts)
    for _ in range(2):
        asyncio.run(sampler.sample())
    return app


PLACE = {"namespace": "default", "name": "shop", "connection": "one"}
ASKED: list[tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any] | None]] = [
    *(
        ("get", "/addressspaces/{name}/rows/{table}", PLACE | {"table": table}, {}, None)
        for table in TABLES_OF_SPACES
    ),
    ("get", "/addressspaces/{name}/series", PLACE, {}, None),
    ("get", "/addressspaces/{name}/series", PLACE, {"address": "shop.orders"}, None),
    ("get", "/addressspaces/{name}/series", PLACE, {"connection": "one"}, None),
    ("get", "/addressspaces/{name}/connections", PLACE, {}, None),
    ("get", "/addressspaces/{name}/links", PLACE, {}, None),
    *(("get", f"/{report.name}", {}, {}, None) for report in REPORTS),
    ("get", "/addresses/{name}/messages", PLACE | {"name": "shop.orders"}, {"limit": 2, "search": "a"}, None),
    ("post", "/addresses/{name}/messages", PLACE | {"name": "shop.orders"}, {}, {"messages": [{"body": "a"}]}),
    ("post", "/addresses/{name}/receive", PLACE | {"name": "shop.orders"}, {}, {"limit": 1}),
    ("post", "/addresses/{name}/purge", PLACE | {"name": "shop.orders"}, {"dryRun": "All"}, {"ids": ["1"]}),
    ("post", "/addresses/{name}/move", PLACE | {"name": "shop.orders"}, {}, {"to": "a", "search": "b"}),
    ("post", "/messagingusers/{name}/check", PLACE | {"name": "shop.app"}, {}, {"operation": "view"}),
]


@pytest.mark.parametrize(("method", "path", "place", "query", "body"), ASKED)
def test_what_is_there_is_answered_as_described(
    app: Starlette, method: str, path: str, place: dict[str, Any], query: dict[str, Any], body: dict[str, Any] | None
) -> None:
    group = "user.enmasse.io" if "messagingusers" in path else "enmasse.io"
    full = f"/apis/{group}/v1beta1{'/namespaces/{namespace}' if place else ''}{path}"
    operation = openapi.from_dict(DOCUMENTS[f"apis/{group}/v1beta1"])[full][method.upper()]
    wanted = {name: place[name] for name in place if f"{{{name}}}" in full}
    more: dict[str, Any] = {} if body is None else {"body": body, "media_type": "application/json"}
    case = operation.Case(path_parameters=wanted, query=query, **more)
    response = send(app, case)
    assert response.status_code == 200, response.text
    case.validate_response(response, checks=CHECKS)


@pytest.mark.parametrize("path", sorted(DOCUMENTS.keys() - FORMER))
def test_made_up_requests_are_answered_as_described(app: Starlette, store: ResourceStore, path: str) -> None:
    schema = openapi.from_dict(DOCUMENTS[path])
    for found in schema.get_all_operations():
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
        @given(case=operation.as_strategy(), is_meant=strategies.booleans())
        def play(case: Any, is_meant: bool) -> None:
            if is_meant:
                aim(case, store)
            response = send(app, case)
            if response.is_success and is_watch(response):
                # A stream of events, or of answers, for which OpenAPI has no words.
                lines = [json.loads(line) for line in response.text.splitlines()]
                assert all(line["object"] if "type" in line else line for line in lines)
            else:
                case.validate_response(response, checks=CHECKS)

        play()


def aim(case: Any, store: ResourceStore) -> None:
    """Let a request be about an object that there is, or may be: few names that are made up are names."""
    told = case.operation.definition.raw["x-kubernetes-group-version-kind"]
    present = store.select(told["kind"])
    place = present[-1]["metadata"] if present else {"name": "shop.new", "namespace": "default"}
    given = case.path_parameters or {}
    case.path_parameters = {
        name: place.get(name, value if name == "table" else "one") for name, value in given.items()
    }
    if isinstance(case.body, dict) and isinstance(case.body.get("metadata"), dict) and case.method != "PATCH":
        name = "shop.made" if case.method == "POST" else place["name"]
        labels = {"made": "up"} if case.body["metadata"].get("labels") else {}
        case.body["metadata"] = {"name": name, "labels": labels}


def is_watch(response: httpx.Response) -> bool:
    return "transfer-encoding" in response.headers or "content-length" not in response.headers


def send(app: Starlette, case: Any) -> httpx.Response:
    """Send a request that was made up, without a socket."""
    options = case.as_transport_kwargs(base_url="http://localhost")
    options = {key: value for key, value in options.items() if value is not None and key != "cookies"}
    if "data" in options:
        options["content"] = options.pop("data")

    async def body() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.request(**options)

    return asyncio.run(body())
