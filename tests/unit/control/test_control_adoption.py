"""A store that does not know what a node has: all is declared as it is there, or kept and named."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.addresses.planning import AddressView, wanted_address
from enmasse.control.context import Context
from enmasse.control.errors import NodeRefusedError
from enmasse.control.installation import Removals
from enmasse.control.ports import (
    AddressEntity,
    ConnectorEntity,
    ConnectorServer,
    SpaceEntity,
    SpaceLimitSettings,
    UserEntity,
)
from enmasse.control.runtime.verdicts import PlanCatalog
from enmasse.control.spaces.adoption import ADOPTED_FROM, adopted_address, adopted_space
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.control.users.controller import UserController
from enmasse.control.users.passwords import ASIDE, Credentials, UserPasswords, make_credentials
from enmasse.model.catalog import default_plans
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.schema.objects import decode
from tests.support.polling import until_async
from tests.unit.control.memory_users import MemoryUsers
from tests.unit.control.stage import Stage, node_of, running

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    from enmasse.model.schema.resource import Resource

    Make = Callable[..., Resource]
    Perform = Callable[[Callable[[Stage], Coroutine[Any, Any, None]]], None]

KEY = "default/shop.orders"
LIMITED = SpaceLimitSettings(max_connections=7, max_ttl=60_000, max_retained=9, max_session_expiry=120_000)
SHOP = SpaceEntity("default/shop", "standard", "standard", "uid-shop", 3, 5_000_000, LIMITED)
BOUND = AddressSettings(
    max_bytes=1_000_000, max_consumers=2, max_message_rate=50, full_policy="reject", max_attempts=3
)
ORDERS = AddressEntity(KEY, "default/shop", "orders", "queue", "", 0, "uid-orders", 4, settings=BOUND)


def put(node: Any, *entities: SpaceEntity | AddressEntity, installation: str = "former") -> None:
    """Have a node hold what another store has declared."""
    node.journal_of = installation
    for entity in entities:
        node._table(entity)[entity.name] = entity


@contextmanager
def new_store(path: Path) -> Iterator[Registry]:
    """A registry with a store that has nothing but what every installation begins with."""
    with ResourceStore(path) as store:
        numbers = iter(range(1, 10_000))
        registry = Registry(
            store,
            now=lambda: "2026-01-01T00:00:00Z",
            new_uid=lambda: f"other-{next(numbers)}",
            admission=[UserPasswords()],
        )
        registry.create_namespaces()
        registry.create_catalog()
        yield registry


def test_what_a_new_store_does_not_know_is_declared_as_the_node_has_it(perform: Perform) -> None:
    async def scene(stage: Stage) -> None:
        news = AddressEntity("default/shop.news", "default/shop", "news", "topic", "", 0, "uid-news", 1)
        reader = AddressEntity(
            "default/shop.reader", "default/shop", "reader", "subscription", "news", 0, "uid-reader", 1,
            settings=AddressSettings(max_consumers=3),
        )  # fmt: skip
        log = AddressEntity(
            "default/shop.log", "default/shop", "log", "stream", "", 4, "uid-log", 1,
            settings=AddressSettings(retention_bytes=100 << 30, retention_ms=90_000),
        )  # fmt: skip
        put(stage.node, SHOP, ORDERS, reader, news, log)
        before = stage.node.state
        held = dict(before.spaces), dict(before.addresses)
        async with stage.controlled() as plane:
            await stage.settled(plane)
            await until_async(
                lambda: all(stage.reason("Address", f"shop.{n}") == "Served" for n in ("orders", "reader", "log"))
            )
            assert node_of(plane).kept == {}
            # The node was told nothing: all is as it was there.
            assert before.spaces == held[0]
            assert {k: v for k, v in before.addresses.items() if held[1][k] != v} == {}
            assert stage.node.calls == []
            space = stage.registry.store.get("AddressSpace", "default", "shop")
            assert (space["metadata"]["uid"], space["metadata"]["generation"]) == ("uid-shop", 3)
            assert space["metadata"]["annotations"] == {ADOPTED_FROM: "node-0"}
            assert space["spec"]["authenticationService"] == {"type": "standard"}
            assert space["spec"]["limits"] == {
                "connections": 7,
                "retained": 9,
                "maxBytes": 5_000_000,
                "ttl": "1m",
                "sessionExpiry": "2m",
            }
            assert stage.registry.store.installation.id() == "former"
            # What is declared from now on, and deleted, is on the node as ever.
            stage.registry.delete("Address", "default", "shop.orders")
            await until_async(lambda: KEY not in before.addresses)
        assert stage.node.calls == [("delete", KEY)]

    perform(scene)


def test_a_space_that_only_its_users_enter_is_never_opened(perform: Perform) -> None:
    async def scene(stage: Stage) -> None:
        oidc = {"issuer": "https://login.example.com/realms/a", "audience": ["shop"]}
        guarded = replace(SHOP, authentication="external", oidc=oidc)
        put(stage.node, guarded, ORDERS)
        async with stage.controlled() as plane:
            await stage.settled(plane)
            await until_async(lambda: stage.reason("Address", "shop.orders") == "Served")
            space = stage.registry.store.get("AddressSpace", "default", "shop")
            # Nobody has declared the provider here: the space waits for it, and the node keeps what it has.
            assert space["spec"]["authenticationService"] == {"name": "login.example.com"}
            status, reason, message = stage.condition("AddressSpace", "shop", "AuthenticationReady")
            assert (status, reason) == ("False", "UnknownAuthenticationService")
            assert "login.example.com" in message
            assert stage.node.state.spaces["default/shop"] == guarded

    perform(scene)


def test_what_was_deleted_goes_and_nothing_else_when_the_process_dies_in_between(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        for name in ("orders", "bills"):
            stage.registry.create(make_address(name))
        stage.registry.create(make_space())
        async with stage.controlled() as plane:
            await stage.settled(plane)
            assert set(stage.node.state.addresses) == {KEY, "default/shop.bills"}
        # No process is there to tell the node; and the name is used again.
        stage.registry.delete("Address", "default", "shop.bills")
        stage.registry.delete("Address", "default", "shop.orders")
        again = stage.registry.create(make_address())["metadata"]["uid"]
        put(stage.node, replace(ORDERS, name="default/shop.late", address="late", uid="uid-late"),
            installation=stage.node.journal_of)  # fmt: skip
        async with stage.controlled() as plane:
            await stage.settled(plane)
            await until_async(lambda: stage.node.state.addresses[KEY].uid == again)
            assert set(stage.node.state.addresses) == {KEY, "default/shop.late"}
            await stage.settled(plane)
            assert node_of(plane).removals.uids("Address") == []

    perform(scene)


def test_a_deletion_is_remembered_until_a_node_that_is_away_has_done_it(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        stage.registry.create(make_address())
        async with stage.controlled() as plane:
            await stage.settled(plane)
            stage.node.cut()
            await until_async(lambda: node_of(plane).mirror.is_reachable is False)
            gone = stage.registry.delete("Address", "default", "shop.orders")["metadata"]["uid"]
            await until_async(lambda: KEY not in plane.context.desired.addresses)
            assert node_of(plane).removals.uids("Address") == [gone]
            assert KEY in stage.node.state.addresses
            stage.node.connect()
            await until_async(lambda: KEY not in stage.node.state.addresses)
            await until_async(lambda: node_of(plane).removals.uids("Address") == [])

    perform(scene)


def test_every_node_that_was_ever_known_has_to_do_a_deletion(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        other = Removals(stage.registry.store, "node-1")
        stage.registry.create(make_space())
        stage.registry.create(make_address())
        async with stage.controlled() as plane:
            await stage.settled(plane)
            gone = stage.registry.delete("Address", "default", "shop.orders")["metadata"]["uid"]
            await until_async(lambda: node_of(plane).removals.uids("Address") == [])
            assert other.uids("Address") == [gone]
            assert Removals(stage.registry.store, "node-1").has(gone)

    perform(scene)


def test_another_object_under_a_declared_name_is_kept_and_named(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        stage.registry.create(make_address())
        async with stage.controlled() as plane:
            await stage.settled(plane)
        mine = stage.registry.store.get("Address", "default", "shop.orders")["metadata"]["uid"]
        put(stage.node, ORDERS, installation=stage.node.journal_of)
        stage.node.instance = "with another journal"
        async with stage.controlled() as plane:
            await stage.settled(plane)
            await until_async(lambda: stage.reason("Address", "shop.orders") == "NodeDiffers")
            assert "uid-orders" in stage.condition("Address", "shop.orders", "Ready")[2]
            assert "uid-orders" in node_of(plane).kept["address", KEY]
            assert stage.node.state.addresses[KEY] == ORDERS
            # As the message says: this one is deleted, and the other one is declared in its place.
            stage.registry.delete("Address", "default", "shop.orders")
            await until_async(lambda: bool(stage.registry.store.find("Address", "default", "shop.orders")))
            assert (
                stage.registry.store.get("Address", "default", "shop.orders")["metadata"]["uid"]
                == "uid-orders"
                != mine
            )
            await until_async(lambda: not node_of(plane).kept)
            assert stage.node.state.addresses[KEY] == ORDERS

    perform(scene)


def test_another_space_under_a_declared_name_is_kept_with_all_in_it(perform: Perform, make_space: Make) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space(authenticationService={"type": "none"}))
        put(stage.node, SHOP, ORDERS)
        async with stage.controlled() as plane:
            await stage.settled(plane)
            await until_async(lambda: stage.reason("AddressSpace", "shop") == "NodeDiffers")
            await until_async(lambda: set(node_of(plane).kept) == {("space", "default/shop"), ("address", KEY)})
            assert stage.node.calls == []
            stage.registry.delete("AddressSpace", "default", "shop")
            await until_async(
                lambda: (
                    not node_of(plane).kept and bool(stage.registry.store.find("Address", "default", "shop.orders"))
                )
            )
            space = stage.registry.store.get("AddressSpace", "default", "shop")
            assert (space["metadata"]["uid"], space["spec"]["authenticationService"]) == (
                "uid-shop",
                {"type": "standard"},
            )
            assert (stage.node.state.spaces["default/shop"], stage.node.calls) == (SHOP, [])

    perform(scene)


def test_what_cannot_be_declared_without_opening_it_wider_is_kept_and_named(perform: Perform) -> None:
    async def scene(stage: Stage) -> None:
        narrow = replace(ORDERS, settings=replace(BOUND, max_senders=1))
        odd = replace(ORDERS, name="default/shop.Odd_Name", address="odd", uid="uid-odd")
        put(stage.node, SHOP, narrow, odd)
        async with stage.controlled() as plane:
            await until_async(lambda: len(node_of(plane).kept) == 2 and node_of(plane).mirror.is_complete)
            await until_async(lambda: "max_senders 1 (not 0)" in node_of(plane).kept.get(("address", KEY), ""))
            await until_async(lambda: "Odd_Name" in node_of(plane).kept["address", odd.name])
            first, second = node_of(plane).problems()
            assert first.startswith("address default/shop.Odd_Name is kept: it cannot be declared as it is there: ")
            assert second.startswith("address default/shop.orders is kept: ")
            with pytest.raises(NodeRefusedError, match="max_senders"):
                node_of(plane).expect(KEY)  # whoever purges what is declared must not purge this
            assert stage.node.state.addresses == {KEY: narrow, odd.name: odd}
            assert stage.registry.store.find("Address", "default", "shop.orders") is None

    perform(scene)


def test_a_node_of_another_installation_is_left_alone_until_it_is_taken_in(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space("mine"))
        async with stage.controlled() as plane:
            await stage.settled(plane)
        own = stage.node.journal_of
        stage.node.cut(lose=True)
        stage.node.connect()
        put(stage.node, SHOP, ORDERS, installation="another")
        stage.node.calls.clear()
        async with stage.controlled() as plane:
            await until_async(lambda: "enmasse journal adopt --name node-0" in node_of(plane).mirror.problem)
            stage.registry.create(make_address("new", space="mine"))
            await until_async(lambda: stage.reason("AddressSpace", "mine") == "NodeUnavailable")
            stage.registry.delete("Address", "default", "mine.new")
            await until_async(lambda: plane.is_settled)
            assert stage.node.calls == []
            assert stage.node.journal_of == "another"
            with pytest.raises(NodeRefusedError, match="belongs to another"):
                await node_of(plane).take_in("what-somebody-was-shown-before")
            await node_of(plane).take_in("another")
            await until_async(lambda: stage.node.journal_of == own and not node_of(plane).mirror.problem)
            await until_async(lambda: set(stage.node.state.spaces) == {"default/shop", "default/mine"})
            await until_async(lambda: bool(stage.registry.store.find("Address", "default", "shop.orders")))
            assert stage.node.state.addresses == {KEY: ORDERS}

    perform(scene)


def test_connectors_are_declared_again_and_wait_for_the_secrets_that_they_had(perform: Perform) -> None:
    server = ConnectorServer("mq.example.com", 5671, True, {}, 30, None)
    login = {"ca.crt": ("", ""), "username": ("login", "username"), "password": ("login", "pw")}
    mill = ConnectorEntity("mill", (server, replace(server, host="two.example.com")), ("orders", "news/#"), login)
    barn = ConnectorEntity("barn", (replace(server, port=5672, is_tls=False, idle_timeout_s=None),), ("#",))
    old = ConnectorEntity("old", (), ("#",))  # as a node of an older version tells it

    async def scene(stage: Stage) -> None:
        put(stage.node, replace(SHOP, connectors=(mill, barn, old)))
        async with stage.controlled() as plane:
            await stage.settled(plane)
            await until_async(lambda: stage.reason("AddressSpace", "shop") == "Served")
            found = stage.registry.store.get("AddressSpace", "default", "shop")
            space = decode(found)
            assert isinstance(space, AddressSpace)
            first, second = space.spec.connectors
            assert [host.host for host in first.endpoint_hosts] == ["mq.example.com", "two.example.com"]
            assert [address.pattern for address in first.addresses] == ["orders", "news/#"]
            assert (first.idle_timeout, second.tls, second.credentials) == (30, None, None)
            assert first.secrets == ("shop-mill", "login")
            # The one without secrets goes on; the other does so once they are there.
            (kept,) = stage.node.state.spaces["default/shop"].connectors
            assert kept == barn
            told = {item["name"]: item.get("messages", []) for item in found["status"]["connectors"]}
            assert told == {"mill": ["it waits: there is no Secret default/shop-mill"], "barn": []}

    perform(scene)


def test_users_keep_passwords_and_rights(tmp_path: Path, memory_node: Any) -> None:
    keys = make_keys_of("secret")
    jo = UserEntity(
        "default/shop.jo", "default/shop", "uid-shop", "jo", "uid-jo", 2, "1/uid-shop/uid-jo/2/abc",
        authorization=((("send", "recv"), ("orders", "*")),), scram=keys,
    )  # fmt: skip
    pump = UserEntity(
        "default/shop.pump_7", "default/shop", "uid-shop", "pump_7", "uid-pump", 1, "1/uid-shop/uid-pump/1/",
        certificates=("pump.example.com",), authorization=((("recv",), ("#",)),), client_ids="%u-*",
    )  # fmt: skip
    strange = replace(jo, name="default/shop.x", username="x", uid="uid-x", authorization=((("send",), ("a/+",)),))

    async def scene(registry: Registry) -> None:
        space = adopted_space(SHOP, "node-0", service="", plan=None)
        registry.adopt(space)
        node = MemoryUsers()
        node.journal_of = "former"
        node.users = {user.name: user for user in (jo, pump, strange)}
        registry.create_catalog()
        messaging = memory_node()
        messaging.journal_of = "former"
        context = Context(registry, [messaging], now=lambda: "2026-01-01T00:00:00Z", jitter=lambda: 0.01)
        kept = context.nodes["node-0"].kept
        async with running(context, UserController(context, [node])), asyncio.timeout(60):
            while registry.store.count("MessagingUser") < 2 or not kept:
                await asyncio.sleep(0.002)
        found = {item["metadata"]["uid"]: item for item in registry.store.select("MessagingUser")}
        assert found["uid-jo"]["spec"]["authorization"] == [
            {"operations": ["send", "recv"], "addresses": ["orders", "+"]}
        ]
        assert found["uid-pump"]["spec"]["authentication"] == {"type": "certificate", "subject": "pump.example.com"}
        assert found["uid-pump"]["spec"]["clientId"] == {"pattern": "%u-*"}
        aside = registry.store.aside("uid-jo", ASIDE)
        assert aside is not None
        assert Credentials.unpack(aside).entity_keys() == keys
        # A declaration would have the node told in other words.
        assert set(kept) == {("user", "default/shop.x")}
        assert (node.calls, len(node.users)) == ([], 3)

    with new_store(tmp_path / "db") as registry:
        asyncio.run(scene(registry))


def make_keys_of(password: str) -> dict[str, Any]:
    return make_credentials(password, ("SCRAM-SHA-256",), lambda count: b"0" * count).entity_keys()


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("queue", AddressSettings(deadletter="dead", max_attempts=10, exclusive=True, last_value_key="subject")),
        ("queue", AddressSettings(ttl_minimum=5, ttl_maximum=9, redelivery_delay=3, redelivery_delay_multiplier=2.0)),
        ("topic", AddressSettings(slow_policy="spill", max_links=3)),
        ("multicast", AddressSettings(slow_policy="block", fallback="orders")),
        ("multicast", AddressSettings(max_message_size=10)),
        ("anycast", AddressSettings(distribution="closest")),
        ("stream", AddressSettings(retention_bytes=1000, max_bytes=5)),
        ("deadletter", AddressSettings(max_consumers=1)),
    ],
)
def test_a_declaration_made_of_what_a_node_has_comes_to_the_same_there(
    kind: str, settings: AddressSettings, registry: Registry
) -> None:

    entity = AddressEntity(
        "default/shop.a", "default/shop", "a", kind, "", 3 if kind == "stream" else 0, "uid-a", 5, settings=settings
    )
    space = adopted_space(SHOP, "node-0", service="", plan=None)
    assert isinstance(space, AddressSpace)
    plans = default_plans()
    catalog = PlanCatalog(
        {plan.metadata.name: plan for plan in plans if plan.kind == "AddressSpacePlan"},  # type: ignore[misc]
        {plan.metadata.name: plan for plan in plans if plan.kind == "AddressPlan"},  # type: ignore[misc]
    )
    address: Any = adopted_address(entity, "node-0")
    assert wanted_address(AddressView(address, space, plans=catalog)) == entity
