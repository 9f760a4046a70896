"""Requests made up from our own OpenAPI: no answer is a failure of ours, and every answer is as described.

``ENMASSE_API_EXAMPLES`` says how many are made up for each operation (``make fuzz-api``); few here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
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

from enmasse.api.app import create_app
from enmasse.api.openapi_v3 import documents_v3
from enmasse.control.registry import Registry
from enmasse.control.store import ResourceStore
from enmasse.model.kinds import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

EXAMPLES = int(os.environ.get("ENMASSE_API_EXAMPLES", "6"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DOCUMENTS = documents_v3()
OBJECTS = """
{apiVersion: enmasse.io/v1beta1, kind: AddressSpace, metadata: {name: shop, namespace: default}, spec: {}}
---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: shop.orders, namespace: default}
spec: {address: orders, type: queue}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: shop, namespace: default}, data: {colour: red}}
"""


class NoMessages:
    """A node without messages."""

    async def purge(self, *_: Any, **__: Any) -> int:
        return 0

    move = replay = purge


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResourceStore]:
    with ResourceStore(tmp_path_factory.mktemp("api") / "resources.db", history=50) as store:
        yield store


@pytest.fixture(scope="module")
def app(store: ResourceStore) -> FastAPI:
    uids = itertools.count(1)
    registry = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{next(uids)}")
    registry.plant_namespaces()
    registry.plant_catalog()
    for document in yaml.safe_load_all(OBJECTS):
        registry.create(decode(document))
    stop = asyncio.Event()
    stop.set()  # a watch ends as soon as it has told what there is
    return create_app(registry, stop, NoMessages())


@pytest.mark.parametrize("path", sorted(DOCUMENTS))
def test_made_up_requests_are_answered_as_described(app: FastAPI, store: ResourceStore, path: str) -> None:
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
                # A stream of events, for which OpenAPI has no words.
                assert all(json.loads(line)["object"] for line in response.text.splitlines())
            else:
                case.validate_response(response, checks=CHECKS)

        play()


def aim(case: Any, store: ResourceStore) -> None:
    """Let a request be about an object that there is, or may be: few names that are made up are names."""
    told = case.operation.definition.raw["x-kubernetes-group-version-kind"]
    present = store.select(told["kind"])
    place = present[-1]["metadata"] if present else {"name": "shop.new", "namespace": "default"}
    case.path_parameters = {name: place.get(name, "default") for name in case.path_parameters or {}}
    if isinstance(case.body, dict) and isinstance(case.body.get("metadata"), dict) and case.method != "PATCH":
        name = "shop.made" if case.method == "POST" else place["name"]
        labels = {"made": "up"} if case.body["metadata"].get("labels") else {}
        case.body["metadata"] = {"name": name, "labels": labels}


def is_watch(response: httpx.Response) -> bool:
    return "transfer-encoding" in response.headers or "content-length" not in response.headers


def send(app: FastAPI, case: Any) -> httpx.Response:
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
