"""The test of connectors over the API: which node tests which server, as whom, and what is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from enmasse.api.app import ApiParts, NodeAccess, create_app
from enmasse.control.context import Context
from enmasse.control.errors import NodeRefusedError
from enmasse.control.ports import ConnectorServer, ConnectorStep
from tests.unit.control.stage import have_home

if TYPE_CHECKING:
    from enmasse.control.store.registry import Registry

SPACES = "/apis/enmasse.io/v1beta1/namespaces/default/addressspaces"


class MemoryNode:
    """A node that reaches all hosts but one, and notes what it is asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[tuple[str, ConnectorServer, str]] = []
        self.error: NodeRefusedError | None = None

    async def test_connector(self, space: str, server: ConnectorServer, address: str) -> list[ConnectorStep]:
        if self.error is not None:
            raise self.error
        self.asked.append((space, server, address))
        return [ConnectorStep("DNS", server.host != "gone.example.com", 1.23456, f"looked at {server.host}")]


class Site:
    def __init__(self, registry: Registry) -> None:
        self.nodes = [MemoryNode("north"), MemoryNode("south")]
        admins: list[Any] = list(self.nodes)
        context = Context(registry, admins, now=str, jitter=lambda: 1.0)
        have_home(context, "default/shop", "south")
        nodes = {node.name: NodeAccess(connectors=node) for node in self.nodes}
        parts = ApiParts(registry=registry, stop=asyncio.Event(), nodes=nodes, context=context)
        self._transport = httpx.ASGITransport(create_app(parts))

    def __call__(self, path: str, body: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://localhost") as client:
                return await client.post(path, json=body)

        return asyncio.run(ask())

    def declare(self, *connectors: dict[str, Any]) -> None:
        space = {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "metadata": {"name": "shop"}}
        assert self(SPACES, space | {"spec": {"connectors": list(connectors)}}).status_code == 201


@pytest.fixture
def site(registry: Registry) -> Site:
    return Site(registry)


HOSTS = [{"host": "mq.example.com"}, {"host": "gone.example.com", "port": 61617}]


def secret(name: str, key: str | None = None) -> dict[str, Any]:
    return {"valueFromSecret": {"name": name} | ({} if key is None else {"key": key})}


def test_each_server_is_tested_in_turn_by_the_node_of_the_space(site: Site) -> None:
    addresses = [{"name": "all", "pattern": "#"}, {"name": "orders", "pattern": "orders/new"}]
    site.declare({"name": "old", "endpointHosts": HOSTS, "addresses": addresses, "maxFrameSize": 1024})
    answer = site(f"{SPACES}/shop/connectors/old/test", {})
    assert answer.status_code == 200
    assert answer.json()["kind"] == "ConnectorTest"
    assert [(item["host"], item["port"], item["succeeded"]) for item in answer.json()["items"]] == [
        ("mq.example.com", 5672, True),
        ("gone.example.com", 61617, False),
    ]
    assert answer.json()["items"][0]["steps"] == [
        {"step": "DNS", "succeeded": True, "milliseconds": 1.2, "message": "looked at mq.example.com"}
    ]
    north, south = site.nodes
    assert not north.asked
    assert [(space, address) for space, _, address in south.asked] == [("default/shop", "orders/new")] * 2
    assert south.asked[0][1] == ConnectorServer("mq.example.com", 5672, False, {}, None, 1024)
    assert site(f"{SPACES}/shop/connectors/old/test", {"address": "other"}).status_code == 200
    assert south.asked[-1][2] == "other"


def test_what_lies_in_secrets_goes_to_the_node_alone(site: Site) -> None:
    tls = {"caCert": secret("broker"), "clientCert": {"value": "C"}, "clientKey": secret("broker", "own")}
    credentials = {"username": {"value": "ann"}, "password": secret("broker")}
    site.declare({"name": "old", "endpointHosts": HOSTS[:1], "tls": tls, "credentials": credentials})
    waiting = site(f"{SPACES}/shop/connectors/old/test", {})
    assert waiting.status_code == 409
    assert waiting.json()["message"] == "connector 'old' waits: there is no Secret default/broker"
    given = {"ca.crt": "A", "own": "K", "password": "hush-hush\n"}
    document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "broker"}, "stringData": given}
    assert site("/api/v1/namespaces/default/secrets", document).status_code == 201
    answer = site(f"{SPACES}/shop/connectors/old/test", {})
    assert answer.status_code == 200
    assert "hush" not in answer.text
    ((_, server, _),) = site.nodes[1].asked
    assert (server.port, server.is_tls) == (5671, True)
    assert server.secrets == {
        "ca.crt": "A", "tls.crt": "C", "tls.key": "K", "username": "ann", "password": "hush-hush",
    }  # fmt: skip
    assert "hush" not in repr(server)


def test_what_cannot_be_tested_is_refused(site: Site) -> None:
    site.declare({"name": "old", "endpointHosts": HOSTS[:1]})
    path = f"{SPACES}/shop/connectors/old/test"
    for given in ({"address": 3}, {"address": "x" * 1025}):
        assert site(path, given).status_code == 400
    missing = site(f"{SPACES}/shop/connectors/new/test", {})
    assert (missing.status_code, missing.json()["message"]) == (404, "space shop has no connector new; it has old")
    assert site(f"{SPACES}/other/connectors/old/test", {}).status_code == 404
    site.nodes[1].error = NodeRefusedError(503, "other connectors are tested already: try again in a moment")
    busy = site(path, {})
    assert busy.status_code == 503
    assert "try again in a moment" in busy.json()["message"]
