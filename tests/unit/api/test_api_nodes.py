"""The API before several nodes: each is asked for what it has, and one that is away is missed alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from enmasse.api.app import ApiParts, NodeAccess, create_app
from enmasse.client.management import ManagementError
from enmasse.control.context import Context
from enmasse.control.errors import NodeUnavailableError
from enmasse.control.ports import MessageChoice
from enmasse.model.schema.subresources import CONNECTIONS, LINKS, SESSIONS, WILLS, Subresource
from enmasse.node.management.entity_types import ATTRIBUTES
from tests.unit.api.conftest import MemoryMessages
from tests.unit.api.test_api_metrics import FakeNode
from tests.unit.control.stage import have_home

if TYPE_CHECKING:
    from enmasse.control.store.registry import Registry

SPACE = {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "metadata": {"name": "shop"}, "spec": {}}
SPACES = "/apis/enmasse.io/v1beta1/namespaces/default/addressspaces"
ADDRESSES = "/apis/enmasse.io/v1beta1/namespaces/default/addresses"


class Sessions:
    """The connections of one node, told in pages of two."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.told: dict[str, dict[str, Any]] = {}
        self.error: Exception | None = None

    async def connections_of(self, _space: str, offset: int) -> tuple[list[dict[str, Any]], bool]:
        if self.error is not None:
            raise self.error
        page = [{"name": name, "openedAt": 0} | self.told.get(name, {}) for name in self.names[offset : offset + 2]]
        return page, len(self.names) > offset + 2

    links_of = wills_of = connections_of

    async def mqtt_sessions_of(self, _space: str, offset: int) -> tuple[list[dict[str, Any]], bool]:
        page = [{"name": name, "leftAt": 1_000} for name in self.names[offset : offset + 2]]
        return page, len(self.names) > offset + 2

    async def close_connection(self, _space: str, connection: str) -> bool:
        if connection not in self.names:
            return False
        self.names.remove(connection)
        return True

    end_session = close_connection


class Admin:
    """A node as the controllers know it, which nobody asks anything here."""

    def __init__(self, name: str) -> None:
        self.name = name


class Two:
    """The API of two nodes; the space ``southern`` is placed on the second one."""

    def __init__(self, registry: Registry) -> None:
        names = ("north", "south")
        admins: list[Any] = [Admin(name) for name in names]
        context = Context(registry, admins, now=str, jitter=lambda: 1.0)
        for name, space in zip(names, ("default/shop", "default/southern"), strict=True):
            have_home(context, space, name)
        self.messages = {name: MemoryMessages() for name in names}
        self.sessions = {"north": Sessions("a", "b", "c"), "south": Sessions("d")}
        self.values = {"north": Values("a", "b", "c"), "south": Values("d")}
        self.figures = {name: FakeNode() for name in names}
        for name, figures in self.figures.items():
            figures.name = name
        # An address is on one node, so it is told by one.
        self.figures["south"].found = replace(self.figures["south"].found, addresses=[])
        nodes = {
            name: NodeAccess(
                messages=self.messages[name],
                figures=self.figures[name],
                sessions=self.sessions[name],
                retained=self.values[name],
            )
            for name in names
        }
        app = create_app(ApiParts(registry=registry, stop=asyncio.Event(), nodes=nodes, context=context))
        self._transport = httpx.ASGITransport(app)

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def body() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://localhost") as client:
                return await client.request(method, path, **options)

        return asyncio.run(body())


@pytest.fixture
def two(registry: Registry) -> Two:
    two = Two(registry)
    for space in ("shop", "southern"):
        assert two("POST", SPACES, json=SPACE | {"metadata": {"name": space}}).status_code == 201
        metadata = {"name": f"{space}.orders", "namespace": "default"}
        document = SPACE | {"kind": "Address", "metadata": metadata, "spec": {"address": "orders", "type": "queue"}}
        assert two("POST", ADDRESSES, json=document).status_code == 201
    return two


def test_messages_are_purged_on_the_node_of_their_space(two: Two) -> None:
    assert two("POST", f"{ADDRESSES}/southern.orders/purge", json={}).status_code == 200
    assert [node.calls for node in two.messages.values()] == [
        [],
        [("purge", "default/southern.orders", MessageChoice())],
    ]


@pytest.mark.parametrize("what", ["connections", "links", "sessions", "wills"])
def test_connections_of_all_nodes_are_listed_page_by_page(two: Two, what: str) -> None:
    found, token = [], ""
    while True:
        page = two("GET", f"{SPACES}/shop/{what}", params={"continue": token} if token else {}).json()
        found.append([item["name"] for item in page["items"]])
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert found == [["a", "b"], ["c"], ["d"]]
    assert two("GET", f"{SPACES}/shop/{what}", params={"continue": "0.2"}).status_code == 400


def test_the_first_page_is_that_of_the_first_node_which_has_something(two: Two) -> None:
    two.sessions["north"].names = []
    page = two("GET", f"{SPACES}/shop/connections").json()
    assert [item["name"] for item in page["items"]] == ["d"]
    two.sessions["south"].names = []
    assert two("GET", f"{SPACES}/shop/connections").json()["items"] == []


@pytest.mark.parametrize("listed", [CONNECTIONS, LINKS, SESSIONS, WILLS], ids=lambda listed: listed.name)
def test_a_node_tells_all_that_is_listed(listed: Subresource) -> None:
    told = ATTRIBUTES[f"io.enmasse.{listed.name.removesuffix('s')}"]
    assert {field.of_node or field.name for field in listed.fields} <= set(told)


def test_a_connection_is_closed_wherever_it_is(two: Two) -> None:
    assert two("DELETE", f"{SPACES}/shop/connections/d").status_code == 200
    assert two("DELETE", f"{SPACES}/shop/connections/d").status_code == 404
    assert (two.sessions["north"].names, two.sessions["south"].names) == (["a", "b", "c"], [])


def test_what_is_at_one_node_is_ended_while_another_one_is_away(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> bool:
        raise NodeUnavailableError("node north is not connected")

    for call in ("close_connection", "end_session"):
        monkeypatch.setattr(two.sessions["north"], call, away)
    assert two("DELETE", f"{SPACES}/shop/connections/none").status_code == 503
    assert two("DELETE", f"{SPACES}/shop/connections/d").status_code == 200
    two.sessions["south"].names.append("lamp")
    assert two("DELETE", f"{SPACES}/shop/sessions/lamp").status_code == 200


def test_a_session_is_ended_wherever_it_is(two: Two) -> None:
    two.sessions["south"].names.append("hall/lamp")
    assert two("DELETE", f"{SPACES}/shop/sessions/hall%2Flamp").json()["status"] == "Success"
    gone = two("DELETE", f"{SPACES}/shop/sessions/hall/lamp")
    assert (gone.status_code, gone.json()["message"]) == (404, "space shop has no session of client hall/lamp")
    assert two("DELETE", f"{SPACES}/none/sessions/d").status_code == 404
    assert two("GET", f"{SPACES}/shop/sessions").json()["items"][0]["leftAt"] == "1970-01-01T00:00:01Z"


def test_every_node_has_its_series(two: Two) -> None:
    lines = two("GET", "/metrics").text.splitlines()
    assert 'enmasse_node_up{node="north"} 1.0' in lines
    assert 'enmasse_node_up{node="south"} 1.0' in lines
    assert sum(line.startswith("enmasse_node_info{") for line in lines) == 2
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_one_node_is_up_while_the_other_is_away(two: Two) -> None:
    two.figures["south"].error = ManagementError(503, "it is starting")
    north, south = two("GET", "/readyz", headers={"accept": "application/json"}).json()["nodes"]
    assert (north["name"], north["up"], south["name"], south["up"]) == ("north", True, "south", False)
    assert 'enmasse_node_up{node="south"} 0.0' in two("GET", "/metrics").text.splitlines()


# Retained values


class Values:
    """The retained values of one node, told in pages of two."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.calls: list[tuple[str, str]] = []

    async def retained_of(self, space: str, pattern: str, offset: int) -> tuple[list[dict[str, Any]], int | None]:
        self.calls.append((space, pattern))
        page = [
            {
                "name": name,
                "address": "news",
                "bytes": 5,
                "durable": True,
                "time": 0,
                "expires": 1000 if name == "a" else None,
            }
            for name in self.names[offset : offset + 2]
        ]
        return page, offset + 2 if len(self.names) > offset + 2 else None

    async def clear_retained(self, space: str, pattern: str) -> int:
        self.calls.append((space, pattern))
        count = len(self.names)
        self.names.clear()
        return count


def test_values_of_all_nodes_are_listed_page_by_page(two: Two) -> None:
    found, token = [], ""
    while True:
        parameters = {"filter": "news/#"} | ({"continue": token} if token else {})
        page = two("GET", f"{SPACES}/shop/retained", params=parameters).json()
        assert page["kind"] == "RetainedValueList"
        found.append(page["items"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert [[item["name"] for item in items] for items in found] == [["a", "b"], ["c"], ["d"]]
    assert found[0][0] == {
        "name": "a", "address": "news", "bytes": 5, "durable": True, "time": "1970-01-01T00:00:00Z",
        "expires": "1970-01-01T00:00:01Z",
    }  # fmt: skip
    assert "expires" not in found[0][1]
    assert set(two.values["north"].calls) == {("default/shop", "news/#")}
    assert two("GET", f"{SPACES}/shop/retained").status_code == 200
    assert two.values["north"].calls[-1] == ("default/shop", "#")
    assert two("GET", f"{SPACES}/none/retained").status_code == 404


def test_values_are_cleared_on_all_nodes_if_it_is_said_which(two: Two) -> None:
    for parameters in ({}, {"filter": ""}):
        assert two("DELETE", f"{SPACES}/shop/retained", params=parameters).status_code == 400
    assert two("DELETE", f"{SPACES}/none/retained", params={"filter": "#"}).status_code == 404
    done = two("DELETE", f"{SPACES}/shop/retained", params={"filter": "#"}).json()
    assert (done["status"], done["message"], done["details"]["count"]) == ("Success", "4 retained values cleared", 4)
    two.values["north"].names.append("x")
    assert (
        two("DELETE", f"{SPACES}/shop/retained", params={"filter": "x"}).json()["message"]
        == "1 retained value cleared"
    )
