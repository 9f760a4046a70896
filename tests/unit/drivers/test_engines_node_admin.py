"""The node behind control's port, against a real node process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.ports import (
    ENTITY_TYPES,
    AddressEntity,
    ConnectorEntity,
    ConnectorServer,
    Entity,
    ObservedEntity,
    SpaceEntity,
    SpaceLimitSettings,
)
from enmasse.drivers.data_directory import Layout
from enmasse.drivers.embedded.node_admin import AmqpNodeAdmin
from enmasse.model.kinds.address_settings import AddressSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

THREE = AddressSettings(max_consumers=3)
SHOP = SpaceEntity("default/shop", "standard", "none", "uid-1", 1)
NEWS = AddressEntity("default/shop.news", "default/shop", "news", "topic", "", 0, "uid-2", 1)
READER = AddressEntity(
    "default/shop.reader", "default/shop", "reader", "subscription", "news", 0, "uid-3", 1, settings=THREE
)
LOG = AddressEntity("default/shop.log", "default/shop", "log", "stream", "", 4, "uid-4", 7)


class NodeProcess:
    """A node that can be killed and started again."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.url = f"amqp+unix://{Layout(data).admin_socket('node-0')}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["node", "--data", str(self.data), "--listen", "127.0.0.1:0"]
        self._process = subprocess.Popen([sys.executable, "-m", "enmasse", *command], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert b"listening" in self._process.stdout.readline()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path / ("x" * 60))  # too long for a socket among the data
    process.start()
    yield process
    process.kill()


@asynccontextmanager
async def administrated(node: NodeProcess) -> AsyncIterator[tuple[AmqpNodeAdmin, asyncio.Queue[bool]]]:
    admin = AmqpNodeAdmin("node-0", node.url, jitter=lambda: 1.0)
    told: asyncio.Queue[bool] = asyncio.Queue()

    async def follow() -> None:
        async for is_up in admin.connections():
            await told.put(is_up)

    following = asyncio.create_task(follow())
    try:
        async with asyncio.timeout(60):
            yield admin, told
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


async def observed(admin: AmqpNodeAdmin) -> set[ObservedEntity]:
    return {item for kind in ENTITY_TYPES async for page in admin.observe(kind) for item in page}


def identified(admin: AmqpNodeAdmin, *entities: Entity) -> set[ObservedEntity]:
    """What a node tells that has these entities, with every attribute as it was told."""
    return {ObservedEntity(entity.name, entity.uid, admin.digest(entity)) for entity in entities}


def test_entities_are_created_changed_seen_and_deleted(node: NodeProcess) -> None:
    async def body() -> None:
        async with administrated(node) as (admin, told):
            assert await told.get() is True
            before = await admin.revision()
            assert await observed(admin) == set()
            for entity in (SHOP, NEWS, READER, LOG):
                await admin.create(entity)
            assert await observed(admin) == identified(admin, SHOP, NEWS, READER, LOG)
            later = replace(LOG, generation=8)
            await admin.update(later)
            assert [await admin.delete(READER), await admin.delete(READER)] == [True, False]
            assert await observed(admin) == identified(admin, SHOP, NEWS, later)
            assert identified(admin, later) != identified(admin, LOG)
            assert await admin.find("address", LOG.name) in identified(admin, later)
            assert await admin.find("address", READER.name) is None
            assert await admin.find_address(LOG.name) == later
            after = await admin.revision()
            assert (after.instance, after.changes) == (before.instance, before.changes + 6)

    asyncio.run(body())


def test_options_reach_the_node_and_go_back_to_their_defaults(node: NodeProcess) -> None:
    everything = AddressSettings(
        storage="durable",
        max_bytes=1_000_000,
        max_consumers=2,
        full_policy="reject",
        ttl_minimum=10,
        ttl_maximum=20,
        max_attempts=3,
        redelivery_delay=4,
        redelivery_delay_multiplier=1.5,
        max_redelivery_delay=50,
        deadletter="failed",
        expiry="late",
        exclusive=True,
        last_value_key="subject",
    )
    orders = AddressEntity("default/shop.orders", "default/shop", "orders", "queue", "", 0, "uid-5", 1, everything)
    kept = replace(LOG, settings=AddressSettings(retention_bytes=5_000_000, retention_ms=60_000))
    news = replace(NEWS, settings=AddressSettings(slow_policy="block"))
    quotes = AddressEntity(
        "default/shop.quotes", "default/shop", "quotes", "anycast", "", 0, "uid-6", 1,
        settings=AddressSettings(distribution="closest", fallback="orders"),
    )  # fmt: skip
    shop = replace(SHOP, max_bytes=10_000_000)

    async def body() -> None:
        async with administrated(node) as (admin, told):
            assert await told.get() is True
            for entity in (shop, orders, kept, news, quotes):
                await admin.create(entity)
            assert await observed(admin) == identified(admin, shop, orders, kept, news, quotes)
            plain = [
                replace(item, settings=AddressSettings(storage=item.settings.storage)) for item in (orders, quotes)
            ]
            changed: list[Entity] = [*plain, LOG, NEWS, SHOP]
            for entity in changed:
                await admin.update(entity)
            assert await observed(admin) == identified(admin, *changed)

    asyncio.run(body())


def test_of_connectors_a_node_tells_what_they_reach_and_no_secret(node: NodeProcess) -> None:
    secrets = {"username": "miller", "password": "flour and water"}
    server = ConnectorServer("mq.example.com", 5672, True, secrets, 30, None)
    origins = {"username": ("login", "username"), "password": ("login", "pw")}
    mill = ConnectorEntity("mill", (server,), ("orders",), origins)
    barn = ConnectorEntity("barn", (replace(server, is_tls=False),), ("#",))
    shop = replace(SHOP, connectors=(mill, barn))

    async def body() -> None:
        async with administrated(node) as (admin, told):
            assert await told.get() is True
            await admin.create(shop)
            found = await admin.find_space(SHOP.name)
            assert found is not None
            nowhere = dict.fromkeys(secrets, ("", ""))
            assert found.connectors == (
                replace(mill, servers=(replace(server, secrets={}),)),
                replace(barn, servers=(replace(server, is_tls=False, secrets={}),), origins=nowhere),
            )
            seen = await admin.find("space", SHOP.name)
            assert seen is not None
            assert (seen.digest, seen.connectors) == (admin.digest(shop), (("mill", ""), ("barn", "")))
            assert "flour" not in repr((found, seen, shop))
            await admin.update(SHOP)
            assert await admin.find_space(SHOP.name) == SHOP

    asyncio.run(body())


def test_a_node_that_says_no_is_understood(node: NodeProcess) -> None:
    async def body() -> None:
        async with administrated(node) as (admin, told):
            assert await told.get() is True
            with pytest.raises(NodeRefusedError) as caught:
                await admin.create(NEWS)
            assert caught.value.status == 404
            await admin.create(SHOP)
            with pytest.raises(NodeRefusedError, match="409"):
                await admin.create(SHOP)

    asyncio.run(body())


def test_a_killed_node_is_noticed_and_found_again_with_what_it_had(node: NodeProcess) -> None:
    limits = SpaceLimitSettings(max_connections=5, max_ttl=9, max_retained=3, max_session_expiry=4)
    shop = replace(SHOP, authentication="standard", max_bytes=7, limits=limits, hosts=("a.example.com",), port=0)

    async def body() -> None:
        async with administrated(node) as (admin, told):
            assert await told.get() is True
            await admin.create(SHOP)
            assert (await admin.installation(), await admin.since()) == ("", "")
            await admin.join("first")
            await admin.take_over("first", "second")
            with pytest.raises(NodeRefusedError, match="409"):
                await admin.join("third")
            await asyncio.to_thread(node.kill)
            assert await told.get() is False
            with pytest.raises(NodeUnavailableError):
                await observed(admin)
            await asyncio.to_thread(node.start)
            assert await told.get() is True
            assert await observed(admin) == identified(admin, SHOP)
            assert await admin.installation() == "second"
            assert (await admin.since()).endswith("Z")
            await admin.update(shop)
            assert await admin.find_space(SHOP.name) == shop
            assert await admin.find_space("default/none") is None
            with pytest.raises(NodeRefusedError, match="it is another one"):
                await admin.delete(replace(SHOP, uid="another"))
            assert [await admin.delete(SHOP), await admin.delete(SHOP)] == [True, False]

    asyncio.run(body())


def test_a_node_that_was_never_there_is_told_of_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with administrated(NodeProcess(tmp_path)) as (_, told):
            assert await told.get() is False
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(told.get(), 0.3)

    asyncio.run(body())


def test_figures_and_a_canary_come_over_the_same_connection(
    node: NodeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        admin = AmqpNodeAdmin("node-0", node.url, jitter=lambda: 1.0)
        with pytest.raises(NodeUnavailableError):
            await admin.ping()
        async with administrated(node) as (admin, told):
            assert await told.get()
            await admin.create(SHOP)
            await admin.create(NEWS)
            await admin.ping()
            figures = await admin.figures(("messagesIn", "receivers"))
            assert figures.statistics["ready"] is True
            assert figures.health["problems"] == []
            assert [(item["name"], item["messagesIn"]) for item in figures.addresses] == [("default/shop.news", 0)]
            assert figures.has_more is False
            monkeypatch.setattr("enmasse.drivers.embedded.node_admin._MAX_ADDRESSES", 0)
            figures = await admin.figures(("messagesIn",))
            assert (figures.addresses, figures.has_more) == ([], True)

    asyncio.run(asyncio.wait_for(story(), 60))
