"""Requests made up from the OpenAPI of the device registry: no failure of ours, and every answer is as described."""

from __future__ import annotations

import asyncio
import itertools
import os
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import httpx
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
from enmasse.api.registry.operations import openapi_document
from enmasse.control.projects.commands import CommandDispatcher
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.iot.command_store import CommandStore
from enmasse.iot.documents import RegistryError
from enmasse.iot.lookups import Lookups
from enmasse.iot.registry import DeviceRegistry
from enmasse.iot.store import DeviceStore
from tests.support.chance import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.applications import Starlette

pytestmark = [pytest.mark.slow, pytest.mark.chance, pytest.mark.filterwarnings("ignore")]

EXAMPLES = int(os.environ.get("ENMASSE_API_EXAMPLES", examples(5)))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeviceStore]:
    with DeviceStore(tmp_path_factory.mktemp("devices") / "devices.db") as made:
        yield made


@pytest.fixture(scope="module")
def devices(store: DeviceStore) -> DeviceRegistry:
    numbers = itertools.count(1)
    return DeviceRegistry(
        store,
        now=lambda: "2026-01-01T00:00:00Z",
        new_id=lambda: f"id-{next(numbers)}",
        new_version=lambda: f"v{next(numbers)}",
    )


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, store: DeviceStore, devices: DeviceRegistry) -> Iterator[Starlette]:
    uids = itertools.count(1)
    # Without a project a tenant has no addresses, so that nothing is delivered, and whoever asks at once is refused.
    commands = CommandDispatcher(
        CommandStore(store, new_id=lambda: f"command-{next(uids)}", now_ms=lambda: 1_000),
        Lookups(store),
        lambda _tenant: None,
        lambda _space: nullcontext(),  # type: ignore[arg-type,return-value]  # nobody gets there
    )
    with ResourceStore(tmp_path_factory.mktemp("api") / "resources.db") as resources:
        registry = Registry(resources, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{next(uids)}")
        registry.create_namespaces()
        yield create_app(ApiParts(registry=registry, stop=asyncio.Event(), devices=devices, commands=commands))


def test_made_up_requests_are_answered_as_described(app: Starlette, devices: DeviceRegistry) -> None:
    plant = "plant"
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
            if is_meant and "{tenant}" in case.path:
                make(devices, plant)
                case.path_parameters |= {"tenant": plant} | ({"device": "d-1"} if "{device}" in case.path else {})
            case.validate_response(send(app, case), checks=CHECKS)

        play()


def make(devices: DeviceRegistry, plant: str) -> None:
    """Let there be a tenant with a device, whatever a request has deleted."""
    with suppress(RegistryError):
        devices.create_tenant(plant, {})
    if not any(devices.all_devices(plant)):
        devices.create_device(plant, "d-1", {"ext": {"a": [1, None, "b"]}}, "me")


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
