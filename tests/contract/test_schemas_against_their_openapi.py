"""Requests made up from the OpenAPI of the schema registry: no failure of ours, and every answer is as described."""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies
from schemathesis import openapi
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from enmasse.api.app import ApiParts, create_app
from enmasse.api.schemas.operations import openapi_document
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.model.schema.objects import decode
from enmasse.schemas.compatibility import read_schema
from enmasse.schemas.registry import SchemaRegistry
from enmasse.schemas.store import SchemaStore
from tests.contract.test_registry_against_its_openapi import send
from tests.support.chance import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.applications import Starlette

pytestmark = [pytest.mark.slow, pytest.mark.chance, pytest.mark.filterwarnings("ignore")]

EXAMPLES = int(os.environ.get("ENMASSE_API_EXAMPLES", examples(5)))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SPACE = {
    "apiVersion": "enmasse.io/v1beta1",
    "kind": "AddressSpace",
    "metadata": {"name": "shop", "namespace": "default"},
    "spec": {"type": "standard", "plan": "standard-unlimited"},
}
MEANT = {"namespace": "default", "space": "shop", "subject": "readings", "version": "latest", "id": "1"}


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    with SchemaStore(tmp_path_factory.mktemp("schemas") / "schemas.db") as store:
        yield SchemaRegistry(store)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, schemas: SchemaRegistry) -> Iterator[Starlette]:
    uids = itertools.count(1)
    with ResourceStore(tmp_path_factory.mktemp("api") / "resources.db") as store:
        registry = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{next(uids)}")
        registry.create_namespaces()
        registry.create_catalog()
        space = registry.create(decode(SPACE))
        schemas.register(space["metadata"]["uid"], "readings", read_schema("AVRO", '"int"'))
        yield create_app(ApiParts(registry=registry, stop=asyncio.Event(), schemas=schemas))


def test_made_up_requests_are_answered_as_described(app: Starlette) -> None:
    for found in openapi.from_dict(openapi_document()).get_all_operations():
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
                case.path_parameters |= {name: value for name, value in MEANT.items() if f"{{{name}}}" in case.path}
            case.validate_response(send(app, case), checks=CHECKS)

        play()
