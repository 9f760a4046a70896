"""What the console shows, on the command line: overview, nodes, audit, checks of users, what comes to an address."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.api.access.audit import AuditLog
from enmasse.api.app import ApiParts, NodeAccess, create_app
from enmasse.api.listeners import open_listener, serve_http
from enmasse.api.live.sampler import Sampler
from enmasse.client import Message
from enmasse.control.errors import NodeRefusedError
from enmasse.control.ports import BrowsedMessage, NodeFigures
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.drivers.data_directory import Layout
from enmasse.drivers.supervisor.endpoints import Endpoint, Endpoints, write_endpoints
from enmasse.model.schema.objects import decode
from tests.support.messages import NoMessages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from pathlib import Path

    from enmasse.control.ports import Browsing

    Cli = Callable[..., Any]

SPACE = {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace"}
ADDRESS = {"apiVersion": "enmasse.io/v1beta1", "kind": "Address"}
USER = {"apiVersion": "user.enmasse.io/v1beta1", "kind": "MessagingUser"}


class WatchedNode(NoMessages):
    """A node with one connection, a judge, and two messages that come to every queue."""

    name = "node-0"

    def __init__(self) -> None:
        self.wanted: Browsing | None = None
        self.problem: Exception | None = None
        self.flowed = 0
        self.sample: Callable[[], object] = lambda: None

    async def figures(self, _counters: Sequence[str]) -> NodeFigures:
        if self.problem is not None:
            raise self.problem
        self.flowed += 1
        statistics = {"memoryBytes": 64 << 20, "connections": 3, "links": 5, "addresses": 2, "uptime": 61_000}
        counts = {"orders": (10, 0, 0), "feed": (8, 4, 1234)}
        addresses = [
            {
                "name": f"default/shop.{name}", "space": "default/shop", "senders": 2, "messagesStored": stored,
                "messagesIn": came * self.flowed, "messagesOut": left * self.flowed,
            }
            for name, (came, left, stored) in counts.items()
        ]  # fmt: skip
        return NodeFigures(statistics, {"ready": False, "problems": ["the [disk] is full"]}, [], addresses)

    async def health(self) -> dict[str, Any]:
        return {"ready": self.problem is None}

    async def ping(self) -> None:
        pass

    async def may(self, name: str, operation: str, address: str) -> tuple[bool, str]:
        allowed = (operation, address) == ("send", "orders")
        return allowed, f"{name} may send to orders alone"

    @asynccontextmanager
    async def follow(self, name: str, wanted: Browsing) -> AsyncIterator[AsyncIterator[BrowsedMessage]]:
        self.wanted = wanted
        if name.endswith("direct"):
            raise NodeRefusedError(400, "'direct' hands messages to receivers alone")

        async def two() -> AsyncIterator[BrowsedMessage]:
            yield BrowsedMessage("1", 5, Message("[red]one[/red]", subject="s"))
            yield BrowsedMessage("2", 5, Message({"a": 1}))

        yield two()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[WatchedNode]:
    """Serve the API before such a node from a thread, and have the data directory lead to it."""
    layout = Layout(tmp_path / "data")
    layout.data.mkdir()
    listener = open_listener("127.0.0.1", 0)
    write_endpoints(layout.endpoints, Endpoints((Endpoint("api", f"http://127.0.0.1:{listener.getsockname()[1]}"),)))
    stop, loops, node = asyncio.Event(), [], WatchedNode()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        uids = itertools.count(1)
        seconds = itertools.count(1000)
        sampler = Sampler([node], wall=lambda: next(seconds))
        for _ in range(2):
            await sampler.sample()
        loop = loops[0]
        node.sample = lambda: asyncio.run_coroutine_threadsafe(sampler.sample(), loop).result()
        with (
            ResourceStore(layout.data / "resources.db") as store,
            AuditLog(layout.data / "audit.log") as audit,
        ):
            registry = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{next(uids)}")
            registry.create_catalog()
            for kind, name, spec in (
                (SPACE, "shop", {"type": "standard"}),
                (ADDRESS, "shop.orders", {"address": "orders", "type": "queue"}),
                (ADDRESS, "shop.direct", {"address": "direct", "type": "anycast"}),
                (ADDRESS, "shop.feed", {"address": "feed", "type": "stream"}),
                (USER, "shop.app", {"username": "app", "authentication": {"type": "federated"}}),
            ):
                registry.create(decode(kind | {"metadata": {"name": name, "namespace": "default"}, "spec": spec}))
            access = NodeAccess(messages=node, figures=node, users=node)
            parts = ApiParts(registry=registry, stop=stop, nodes={"node-0": access}, sampler=sampler, audit=audit)
            await serve_http(create_app(parts), listener, stop)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    yield node
    loops[0].call_soon_threadsafe(stop.set)
    thread.join()


@pytest.mark.usefixtures("place")
def test_the_overview_tells_problems_with_their_remedies_and_sums(cli: Cli) -> None:
    told = cli("overview").out
    assert (
        "Node node-0: the [disk] is full\n  `enmasse logs node-0` says more. Where a disk is full, make room" in told
    )
    assert "Addresses:   3\n" in told
    assert "node-0" in told.splitlines()[-1]
    found = json.loads(cli("overview", "-o", "json").out)
    assert (found["kind"], found["totals"]["spaces"], found["problemCount"]) == ("Overview", 1, 1)


def test_the_busiest_addresses_come_first_and_a_silent_node_is_named(cli: Cli, place: WatchedNode) -> None:
    told = cli("top", "--count", "1")
    assert [line.split() for line in told.out.splitlines()[1:3]] == [
        ["default/shop", "feed", "stream", "8", "4", "1.2k", "0", "2", "0"],
        ["default/shop", "orders", "queue", "10", "0", "0", "0", "2", "0"],
    ]
    assert told.out.splitlines()[3].split()[3:] == ["-"] * 6
    assert told.err == ""
    few = cli("top", "--count", "1", "--lines", "1", "--space", "shop")
    assert "feed" in few.out.splitlines()[1]
    assert few.err == "2 more addresses\n"
    assert cli("top", "--count", "1", "--space", "nowhere").out.splitlines()[1:] == []
    place.problem = NodeRefusedError(503, "it is away")
    place.sample()
    assert "node-0 does not answer: the node answered 503: it is away" in cli("top", "--count", "1").err


@pytest.mark.usefixtures("place")
def test_nodes_are_listed_like_objects(cli: Cli) -> None:
    heads, row = cli("get", "nodes").out.splitlines()
    assert heads.split()[:3] == ["NAME", "UP", "READY"]
    assert row.split()[:5] == ["node-0", "True", "False", "-", "64"]
    assert "the [disk] is full" in row
    assert cli("get", "node", "-o", "name").out == "node/node-0\n"
    (item,) = json.loads(cli("get", "nodes", "-o", "json").out)["items"]
    assert (item["name"], item["uptime"]) == ("node-0", 61_000)
    assert cli("get", "nodes", "--watch").code == 2


@pytest.mark.usefixtures("place")
def test_the_audit_log_is_read_by_user_and_text_the_latest_at_the_end(cli: Cli) -> None:
    assert cli("audit").err == "Nothing of that is in the audit log.\n"
    for name in ("first", "second"):
        assert cli("create", "namespace", name).code == 0
    told = cli("audit").out.splitlines()
    assert [line.split()[2:4] for line in told[-2:]] == [
        ["create", "namespaces/first"],
        ["create", "namespaces/second"],
    ]
    assert json.loads(cli("audit", "--search", "SECOND", "-o", "json").out)["items"][0]["name"] == "second"
    assert cli("audit", "--user", "nobody").out == ""
    latest = cli("audit", "--count", "1")
    assert "second" in latest.out
    assert "there is more: --before 2" in latest.err


@pytest.mark.usefixtures("place")
def test_a_user_is_checked_with_the_reason_and_the_exit_code_says_it_too(cli: Cli) -> None:
    allowed = cli("check", "user", "app", "--may", "send", "--address", "orders")
    assert (allowed.code, allowed.out) == (0, "yes: default/shop.app may send to orders alone\n")
    refused = cli("check", "user", "shop.app", "--may", "recv", "-a", "orders", "-o", "json")
    assert refused.code == 1
    assert json.loads(refused.out) == {
        "user": "app", "operation": "recv", "address": "orders", "allowed": False,
        "reason": "default/shop.app may send to orders alone",
    }  # fmt: skip
    where = cli("check", "user", "app", "--may", "send")
    assert (where.code, "--address" in where.err) == (2, True)
    assert cli("check", "user", "app", "--may", "view").code == 1
    assert cli("check", "user", "nobody", "--may", "view").code == 3
    assert cli("check", "user", "app", "--may", "fly").code == 2


def test_what_comes_to_an_address_is_shown_as_it_is(cli: Cli, place: WatchedNode) -> None:
    told = cli("tail", "orders", "--count", "2", "--search", "red", "--selector", "a = 1")
    assert (told.code, told.out.splitlines()[0], told.err) == (
        0, "[red]one[/red]", "Following orders; Ctrl-C ends.\n",
    )  # fmt: skip
    assert json.loads(told.out.splitlines()[1]) == {"a": 1}
    assert place.wanted is not None
    assert (place.wanted.selector, place.wanted.matches is not None) == ("a = 1", True)
    (line,) = cli("tail", "shop.orders", "--count", "1", "-o", "json").out.splitlines()
    assert json.loads(line)["properties"] == {"subject": "s"}
    cli("tail", "feed", "--from", "7", "--count", "1")
    assert place.wanted.offset == 7
    cli("tail", "feed", "--from", "1970-01-01T00:00:01Z", "--count", "1")
    assert place.wanted.time_ms == 1000


@pytest.mark.usefixtures("place")
def test_what_cannot_be_followed_is_refused_with_the_reason(cli: Cli) -> None:
    refused = cli("tail", "direct")
    assert (refused.code, "hands messages to receivers alone" in refused.err) == (1, True)
    assert cli("tail", "nowhere").code == 3
