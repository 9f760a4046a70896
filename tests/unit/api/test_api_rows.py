"""Rows of tables: chosen, sorted and paged by the server, with live figures, and again when they change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from enmasse.api.access.authentication import Authenticator
from enmasse.api.app import ApiParts, NodeAccess, create_app
from enmasse.api.live.rows import TABLES
from enmasse.api.live.sampler import Sampler
from enmasse.control.access.accounts import Accounts
from enmasse.control.errors import NodeUnavailableError
from enmasse.model.schema.subresources import TABLES_OF_SPACES
from tests.unit.api.test_api_metrics import FakeNode, address, connector
from tests.unit.api.test_api_nodes import Sessions

if TYPE_CHECKING:
    from pathlib import Path

    from enmasse.control.store.registry import Registry

BASE = "/apis/enmasse.io/v1beta1"
SHOP = f"{BASE}/namespaces/ns/addressspaces/shop"


def document(kind: str, name: str, namespace: str = "ns", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "enmasse.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}


class Place:
    """The API over one node, with time that a test moves on."""

    def __init__(self, registry: Registry, authenticator: Authenticator | None = None) -> None:
        self.now = 1000.0
        self.node = FakeNode()
        self.sampler = Sampler([self.node], wall=lambda: self.now)
        self.stop = asyncio.Event()
        self.registry = registry
        self.sessions = Sessions("a", "b", "c")
        access = NodeAccess(figures=self.node, sessions=self.sessions)
        self.app = create_app(
            ApiParts(
                registry=registry,
                stop=self.stop,
                nodes={"node-0": access},
                sampler=self.sampler,
                authenticator=authenticator,
            )
        )

    def declare(self, *documents: dict[str, Any]) -> None:
        for body in documents:
            self.registry.store.create(body)

    async def get(self, path: str, **headers: str) -> Any:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            answer = await client.get(path)
        return answer.json() if answer.status_code == 200 else answer

    async def after(self, seconds: float, *addresses: dict[str, Any]) -> None:
        """Let time pass, after which the node has these addresses."""
        self.now += seconds
        self.node.found = replace(self.node.found, addresses=list(addresses))
        await self.sampler.sample()


@pytest.fixture
def place(registry: Registry) -> Place:
    place = Place(registry)
    place.declare(
        document("AddressSpace", "shop", type="standard", plan="standard-small"),
        document("AddressSpace", "shop", "other", type="brokered"),
        document("Address", "shop.orders", address="orders", type="queue", limits={"maxBytes": "1Ki", "links": 4}),
        document("Address", "shop.live", address="Live", type="anycast"),
        document("Address", "shop.feed", address="feed", type="stream"),
        document("Address", "shop.sub", address="mine", type="subscription", topic="news"),
        document("Address", "shop.orders", "other", address="theirs", type="queue"),
    )
    return place


def test_the_tables_are_those_that_are_described() -> None:
    assert sorted(TABLES) == sorted(TABLES_OF_SPACES)


async def test_rows_tell_of_tls_programs_and_what_waits(place: Place) -> None:
    program = {"product": "enmasse-python", "version": "1"}
    secure = {"tls": "TLSv1.3 TLS_AES_256_GCM_SHA384", "properties": program, "mechanism": "PLAIN"}
    place.sessions.told = {"a": secure, "b": {"tls": "", "presettled": 3, "backlog": 0}}
    [row] = (await place.get(f"{SHOP}/rows/connections?search=a"))["items"]
    assert {name: row[name] for name in secure} == secure
    [row] = (await place.get(f"{SHOP}/rows/connections?search=b"))["items"]
    assert (row["tls"], "properties" in row) == ("", False)
    [row] = (await place.get(f"{SHOP}/rows/links?search=b&sort=-backlog"))["items"]
    assert (row["presettled"], row["backlog"]) == (3, 0)


def told(answer: dict[str, Any], column: str) -> list[Any]:
    return [row[column] for row in answer["items"]]


async def test_rows_are_searched_filtered_sorted_and_paged(place: Place) -> None:
    path = f"{SHOP}/rows/addresses"
    found = await place.get(path)
    assert (found["kind"], found["total"], told(found, "address")) == (
        "RowList",
        4,
        ["feed", "Live", "mine", "orders"],
    )
    assert told(await place.get(f"{path}?search=LI"), "address") == ["Live"]
    assert told(await place.get(f"{path}?type=stream"), "address") == ["feed"]
    assert told(await place.get(f"{path}?status=Active"), "address") == []
    page = await place.get(f"{path}?sort=-address&offset=1&limit=2")
    assert (page["total"], told(page, "address")) == (4, ["mine", "Live"])
    for wrong in ("sort=secret", "limit=501", "limit=0", "offset=-1"):
        assert (await place.get(f"{path}?{wrong}")).status_code == 400
    assert (await place.get(f"{SHOP}/rows/secrets")).status_code == 404
    assert (await place.get(f"{SHOP}x/rows/addresses")).status_code == 404


async def test_a_connector_is_shown_with_its_problem_and_figures(place: Place) -> None:
    servers = [{"host": "mq.example.com", "port": 5671}, {"host": "::1"}]
    connectors: list[dict[str, Any]] = [
        {"name": "mill", "endpointHosts": servers, "tls": {}},
        {"name": "barn", "endpointHosts": servers[1:]},
        {"name": "new", "endpointHosts": servers[1:]},
    ]
    states = [{"name": "mill", "isReady": True}, {"name": "barn", "isReady": False, "messages": ["nobody is there"]}]
    space = place.registry.store.get("AddressSpace", "ns", "shop")
    space["spec"]["connectors"] = connectors
    place.registry.store.replace(space | {"status": {"connectors": states}})
    for number in (0, 1):
        figures = [connector("mill", messagesIn=10 * number, messagesOut=5 * number, unsettled=3), connector("barn")]
        place.node.found = replace(place.node.found, spaces=[{"name": "ns/shop", "connectorStatus": figures}])
        await place.after(5)
    barn, mill, new = (await place.get(f"{SHOP}/rows/connectors"))["items"]
    assert (mill["ready"], mill["hosts"], mill["tls"]) == (True, ["mq.example.com:5671", "[::1]"], "TLS")
    assert (mill["messagesIn"], mill["messagesOut"], mill["unsettled"]) == (2, 1, 3)
    assert (barn["ready"], barn["messages"], barn["hosts"], barn["messagesIn"]) == (
        False,
        ["nobody is there"],
        ["[::1]"],
        0,
    )
    assert new == {"name": "new", "ready": False, "hosts": ["[::1]"], "tls": ""}, "no node has told of it"
    assert told(await place.get(f"{SHOP}/rows/connectors?sort=-unsettled&search=i"), "name") == ["mill"]
    place.node.error = NodeUnavailableError("node node-0 is not connected")
    await place.sampler.sample()
    assert "unsettled" not in (await place.get(f"{SHOP}/rows/connectors?search=mill"))["items"][0]


async def test_an_order_follows_what_it_sorts_by(place: Place) -> None:
    path = f"{SHOP}/rows/addresses?sort=-stored"
    for more, less in (("orders", "feed"), ("feed", "orders")):
        await place.after(5, address(more, messagesStored=9), address(less, messagesStored=2))
        assert told(await place.get(path), "address")[:2] == [more, less]
    place.registry.store.delete("Address", "ns", "shop.feed")
    assert told(await place.get(path), "address")[:1] == ["orders"]


async def test_a_row_of_an_address_has_its_rates_fill_and_spark(place: Place) -> None:
    await place.after(0, address("orders", messagesIn=10, messagesStored=10))
    await place.after(
        5, address("orders", messagesIn=60, messagesOut=10, messagesStored=50, bytesStored=512, senders=1)
    )
    [row] = (await place.get(f"{SHOP}/rows/addresses?search=orders"))["items"]
    assert (row["messagesIn"], row["messagesOut"], row["stored"], row["senders"]) == (10, 2, 50, 1)
    assert row["fill"] == {"bytes": {"used": 512, "limit": 1024}, "links": {"used": 1, "limit": 4}}
    assert row["spark"] == {"in": [10], "out": [2]}
    assert not {"limits", "text", "key", "counts"} & row.keys()
    [unknown] = (await place.get(f"{SHOP}/rows/addresses?search=feed"))["items"]
    assert not {"stored", "messagesIn", "spark"} & unknown.keys()
    busiest = await place.get(f"{SHOP}/rows/addresses?sort=-messagesIn&limit=1")
    assert told(busiest, "address") == ["orders"]


async def test_a_row_of_a_pipeline_has_what_it_reads_and_writes_and_how_far_it_is(place: Place) -> None:
    query = {
        "name": "table-hot",
        "state": "Failed",
        "restarts": 2,
        "badRecords": 3,
        "watermark": "2026-01-31T12:00:00Z",
    }
    warehouse = {"type": "postgresql", "host": "db.example", "database": "plant", "credentialsSecret": "warehouse"}
    sinks = [{"address": "orders"}, {"table": "hot"}, {"database": warehouse | {"table": "latest"}}]
    sources = [
        {"name": "readings", "address": "feed"},
        {"name": "sites", "addresses": ["north", "south"]},
        {"name": "all", "addressPattern": "plant/#"},
        {"name": "machines", "database": warehouse | {"table": "machines"}},
        {"name": "old", "files": {"path": "archive", "format": "csv"}},
    ]
    declared = document("Pipeline", "shop.hot", sources=sources, sinks=sinks)
    status = {"phase": "Failed", "rows": 7, "rate": 1.5, "lag": 2, "lastError": "no room", "queries": [query]}
    behind = {"type": "SinksRestored", "status": "False", "reason": "RestoredBehindSink", "message": "wait"}
    status["conditions"] = [behind]
    parameters = {"address": "feed", "alerts": "orders", "bands": {"t": ":35"}}
    builtin = {"name": "anomalies", "parameters": parameters}
    place.declare(declared | {"status": status}, document("Pipeline", "shop.odd", builtin=builtin))
    place.declare(
        document("Pipeline", "shop.last", builtin={"name": "last-value", "parameters": {"address": "feed"}})
    )
    await place.after(0)
    await place.after(5)
    hot, last, odd = (await place.get(f"{SHOP}/rows/pipelines"))["items"]
    assert (hot["phase"], hot["rows"], hot["rate"], hot["lag"], hot["lastError"]) == ("Failed", 7, 1.5, 2, "no room")
    assert (hot["sinks"], hot["tables"]) == (["orders", "db.example/latest", "hot"], ["hot"])
    assert hot["sources"] == ["feed", "north", "south", "plant/#", "db.example/machines", "archive"]
    assert (hot["restarts"], hot["badRecords"], hot["watermark"]) == (2, 3, "2026-01-31T12:00:00Z")
    assert hot["spark"] == {"rate": [1.5, 1.5]}
    assert (odd["builtin"], odd["sources"], odd["sinks"], odd["tables"]) == ("anomalies", ["feed"], ["orders"], [])
    # Where it stopped is no place for it to go on from.
    assert (hot["behindSink"], "behindSink" in odd) == (True, False)
    assert (last["sinks"], last["tables"]) == (["last_value"], ["last_value"])
    failing = await place.get(f"{SHOP}/rows/pipelines?status=Failed&sort=-restarts")
    assert told(failing, "name") == ["shop.hot"]


async def test_a_restarted_node_counts_from_nothing_and_no_rate_is_negative(place: Place) -> None:
    await place.after(0, address("orders", messagesIn=100))
    await place.after(5, address("orders", messagesIn=3))
    [row] = (await place.get(f"{SHOP}/rows/addresses?search=orders"))["items"]
    assert row["messagesIn"] == 0
    assert row["spark"]["in"] == [0]


async def test_objects_that_come_change_and_go_are_followed(place: Place) -> None:
    path = f"{SHOP}/rows/addresses?search=new"
    assert (await place.get(path))["total"] == 0
    body = document("Address", "shop.new", address="new", type="queue")
    created = place.registry.store.create(body)
    assert told(await place.get(path), "phase") == ["Pending"]
    place.registry.store.replace(created | {"status": {"phase": "Active", "isReady": True, "messages": ["m"]}})
    [row] = (await place.get(path))["items"]
    assert (row["phase"], row["ready"], row["messages"]) == ("Active", True, ["m"])
    place.registry.store.delete("Address", "ns", "shop.new")
    assert (await place.get(path))["total"] == 0


async def test_changes_beyond_the_history_are_found_too(place: Place) -> None:
    path = f"{SHOP}/rows/addresses?limit=500"
    assert (await place.get(path))["total"] == 4
    for number in range(200):  # the store remembers fifty
        place.declare(document("Address", f"shop.n{number}", address=f"n{number}", type="queue"))
    assert (await place.get(path))["total"] == 204


async def test_subscriptions_connections_and_links_are_tables_too(place: Place) -> None:
    await place.after(0, address("sub", messagesStored=7, receivers=1))
    [row] = (await place.get(f"{SHOP}/rows/subscriptions"))["items"]
    assert (row["subscription"], row["address"], row["stored"]) == ("mine", "news", 7)
    found = await place.get(f"{SHOP}/rows/connections?sort=-name&limit=2")
    assert (found["total"], told(found, "name")) == (3, ["c", "b"])


@pytest.mark.parametrize(("bound", "listed", "at"), [(2, ["a", "b"], 2), (3, ["a", "b", "c"], None)])
@pytest.mark.parametrize("table", ["connections", "links"])
async def test_an_answer_says_where_connections_or_links_are_left_out(
    place: Place, monkeypatch: pytest.MonkeyPatch, table: str, bound: int, listed: list[str], at: int | None
) -> None:
    monkeypatch.setattr("enmasse.api.live.sessions._MAX_SESSIONS", bound)
    for _ in range(2):  # the second time as it was found for the first
        found = await place.get(f"{SHOP}/rows/{table}")
        assert (found["total"], told(found, "name"), found.get("truncatedAt")) == (len(listed), listed, at)
    assert (await place.get(f"{SHOP}/rows/{table}?search=c")).get("truncatedAt") == at


async def test_an_answer_says_where_addresses_have_no_figures_because_a_node_has_too_many(place: Place) -> None:
    tables = {name: f"{SHOP}/rows/{name}" for name in ("addresses", "subscriptions", "users")}
    tables["spaces"] = f"{BASE}/rows/addressspaces"
    tables["another"] = f"{BASE}/rows/addressspaces?namespace=other"

    async def truncated() -> dict[str, int | None]:
        return {name: (await place.get(path)).get("truncatedAt") for name, path in tables.items()}

    told_all = dict.fromkeys(tables)
    theirs = address("orders", "other/shop")
    await place.after(0, address("orders"), theirs)
    assert await truncated() == told_all  # what has none is not on the node yet
    place.node.found = replace(place.node.found, has_more=True)
    await place.after(5, address("orders"), theirs)
    assert await truncated() == told_all | dict.fromkeys(("addresses", "subscriptions", "spaces"), 2)
    await place.after(5, *(address(name) for name in ("orders", "live", "feed", "sub")), theirs)
    assert await truncated() == told_all


async def test_spaces_have_what_all_their_addresses_have(place: Place) -> None:
    await place.after(0, address("orders", messagesIn=0), address("live"))
    await place.after(5, address("orders", messagesIn=50, messagesStored=3), address("live", messagesIn=5))
    found = await place.get(f"{BASE}/rows/addressspaces?search=shop")
    assert told(found, "namespace") == ["ns", "other"]
    row = found["items"][0]
    assert (row["addresses"], row["messagesIn"], row["stored"]) == (4, 11, 3)
    assert (await place.get(f"{BASE}/rows/addressspaces?namespace=other"))["total"] == 1


async def lines_of(app: Any, path: str, **headers: str) -> AsyncIterator[dict[str, Any]]:
    """What a watch tells, line by line, until it ends."""
    parts: asyncio.Queue[bytes] = asyncio.Queue()
    gone = asyncio.Event()
    path, _, query = path.partition("?")
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), *((k.lower().encode(), v.encode()) for k, v in headers.items())],
        "scheme": "http", "server": ("localhost", 80), "client": ("127.0.0.1", 1), "http_version": "1.1",
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200
        else:
            await parts.put(message.get("body", b""))

    task = asyncio.create_task(app(scope, receive, send))
    task.add_done_callback(lambda _: parts.put_nowait(b""))
    try:
        while part := await parts.get():
            yield json.loads(part)
    finally:
        gone.set()
        await asyncio.wait({task})


async def test_a_watch_tells_rows_again_when_they_change_and_not_otherwise(place: Place) -> None:
    lines = lines_of(place.app, f"{SHOP}/rows/addresses?watch=true&search=orders")
    assert "stored" not in (await anext(lines))["items"][0]
    await place.after(0, address("orders", messagesStored=1))
    assert (await anext(lines))["items"][0]["stored"] == 1
    await place.after(5, address("orders", messagesStored=1), address("live", messagesStored=9))
    await place.after(5, address("orders", messagesStored=2))
    assert (await anext(lines))["items"][0]["stored"] == 2
    await lines.aclose()  # type: ignore[attr-defined]


async def test_fifty_viewers_of_the_same_cost_one_computation(place: Place) -> None:
    viewers = [lines_of(place.app, f"{SHOP}/rows/addresses?watch=true") for _ in range(50)]
    first = await asyncio.gather(*(anext(viewer) for viewer in viewers))
    assert len({line["time"] for line in first}) == 1
    await asyncio.gather(*(viewer.aclose() for viewer in viewers))  # type: ignore[attr-defined]


async def test_a_watch_of_a_space_that_is_deleted_ends_with_the_reason(place: Place) -> None:
    lines = lines_of(place.app, f"{SHOP}/rows/addresses?watch=true")
    await anext(lines)
    place.registry.store.delete("AddressSpace", "ns", "shop")
    event = await anext(lines)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 404)


@pytest.mark.parametrize("is_changed", [True, False], ids=["what-is-shown-changes", "all-is-as-before"])
async def test_one_sees_what_one_may_list_and_no_longer_when_that_ends(
    registry: Registry, tmp_path: Path, is_changed: bool
) -> None:
    accounts = Accounts(tmp_path / "control" / "accounts.json", now=lambda: 0.0)
    accounts.add("ann", password_hash="")
    token = accounts.create_token("ann").secret
    place = Place(registry, Authenticator(accounts, is_required=True))
    place.declare(
        document("AddressSpace", "shop"),
        document("AddressSpace", "shop", "other"),
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "ann", "namespace": "ns"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "enmasse.io:tenant-view",
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}],
        },
    )
    bearer = {"authorization": f"Bearer {token}"}
    assert told(await place.get(f"{BASE}/rows/addressspaces", **bearer), "namespace") == ["ns"]
    theirs = await place.get(f"{BASE}/namespaces/other/addressspaces/shop/rows/addresses", **bearer)
    assert theirs.status_code == 403
    assert (await place.get(f"{BASE}/rows/addressspaces")).status_code == 401
    lines = lines_of(place.app, f"{SHOP}/rows/addresses?watch=true", **bearer)
    await anext(lines)
    registry.store.delete("RoleBinding", "ns", "ann")
    if is_changed:
        place.declare(document("Address", "shop.secret", address="secret", type="queue"))
    with pytest.raises(StopAsyncIteration):
        await anext(lines)
