"""Messaging users on their way to a node: told once, told again when they change, and said how far they are."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.context import Context
from enmasse.control.errors import NodeRefusedError
from enmasse.control.store.writes import finish_here
from enmasse.control.users.controller import UserController
from enmasse.control.users.passwords import UserPasswords
from enmasse.model.schema.objects import decode
from tests.support.polling import until_async
from tests.unit.control.memory_users import MemoryUsers
from tests.unit.control.stage import running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from enmasse.control.store.port import Document
    from enmasse.control.store.registry import Registry
    from enmasse.model.schema.resource import Resource

    Make = Callable[..., Resource]

STANDARD = {"authenticationService": {"type": "standard"}}


def make_user(name: str = "shop.jo", password: str | None = "c2VjcmV0", **spec: Any) -> Resource:
    authentication = {"type": "password"} if password is None else {"type": "password", "password": password}
    return decode(
        {
            "apiVersion": "user.enmasse.io/v1beta1",
            "kind": "MessagingUser",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"username": name.partition(".")[2], "authentication": authentication, **spec},
        }
    )


class Desk:
    """A registry with the users' controller at work."""

    def __init__(self, registry: Registry, messaging: Any, node: MemoryUsers) -> None:
        self.registry = registry
        self.messaging = messaging
        self.node = node

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        context = Context(self.registry, [self.messaging], now=lambda: "2026-01-01T00:00:00Z", jitter=lambda: 0.01)
        async with running(context, UserController(context, [self.node])):
            yield

    def write(self, resource: Resource) -> Document:
        try:
            return finish_here(lambda: self.registry.create(resource))
        except Exception as error:
            if "exists already" not in str(error):
                raise
            return finish_here(lambda: self.registry.replace(resource))

    def status(self, name: str) -> tuple[str, ...]:
        """Phase, and the reason why it is ready or not."""
        document = self.registry.store.get("MessagingUser", "default", name)
        found = document.get("status", {})
        reasons = [item["reason"] for item in found.get("conditions", ()) if item["type"] == "Ready"]
        return (found.get("phase", "Pending"), *reasons)

    async def says(self, name: str, *expected: str) -> None:
        await until_async(lambda: self.status(name) == expected)


@pytest.fixture
def desk(registry: Registry, memory_node: Any) -> Desk:
    registry.add_admission(UserPasswords())
    registry.create_catalog()
    return Desk(registry, memory_node(), MemoryUsers())


def test_a_user_waits_for_its_space_and_is_told_to_the_node(desk: Desk, make_space: Make) -> None:
    async def body() -> None:
        desk.write(
            make_user(authorization=[{"operations": ["send"], "addresses": ["*", "a/+", "top*", "in/${username}"]}])
        )
        async with desk.running():
            await desk.says("shop.jo", "Pending", "SpaceMissing")
            desk.write(make_space())
            await desk.says("shop.jo", "Pending", "NoAuthentication")
            assert desk.node.users == {}
            desk.write(make_space(**STANDARD))
            await desk.says("shop.jo", "Active", "Served")
            user = desk.node.users["default/shop.jo"]
            assert (user.space, user.username) == ("default/shop", "jo")
            assert user.authorization == ((("send",), ("#", "a/*", "top*", "in/${username}")),)
            assert set(user.scram) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
            desk.write(make_space())
            await desk.says("shop.jo", "Pending", "NoAuthentication")
            assert desk.node.users == {}

    asyncio.run(body())


def test_changes_reach_the_node_and_nothing_else_is_told(desk: Desk, make_space: Make) -> None:
    async def body() -> None:
        desk.write(make_space(**STANDARD))
        desk.write(make_user())
        async with desk.running():
            await desk.says("shop.jo", "Active", "Served")
            first = desk.node.users["default/shop.jo"]
            desk.write(make_user())
            desk.write(make_user(authorization=[{"operations": ["view"]}]))
            await until_async(lambda: desk.node.users["default/shop.jo"].authorization != ())
            desk.write(make_user("shop.jo", "b3RoZXI=", authorization=[{"operations": ["view"]}]))
            await until_async(lambda: desk.node.users["default/shop.jo"].scram != first.scram)
        async with desk.running():
            await until_async(lambda: desk.status("shop.jo") == ("Active", "Served"))
            desk.registry.delete("MessagingUser", "default", "shop.jo")
            await until_async(lambda: not desk.node.users)
        assert [action for action, _ in desk.node.calls] == ["create", "update", "update", "delete"]

    asyncio.run(body())


def test_what_changed_while_nobody_looked_is_put_right(desk: Desk, make_space: Make) -> None:
    async def body() -> None:
        desk.write(make_space(**STANDARD))
        for name in ("shop.jo", "shop.bo"):
            desk.write(make_user(name))
        async with desk.running():
            await until_async(lambda: len(desk.node.users) == 2)
        desk.registry.delete("MessagingUser", "default", "shop.jo")
        del desk.node.users["default/shop.bo"]
        async with desk.running():
            await until_async(lambda: set(desk.node.users) == {"default/shop.bo"})

    asyncio.run(body())


def test_a_user_without_a_password_and_others_say_what_they_lack(desk: Desk, make_space: Make) -> None:
    async def body() -> None:
        desk.write(make_space(**STANDARD))
        desk.write(make_user(password=None))
        desk.write(make_user("shop.fed", authentication={"type": "federated"}))
        desk.write(make_user("shop.card", authentication={"type": "certificate", "subject": "card.example.com"}))
        desk.write(make_user("shop.sa", username="@@serviceaccount@@", authentication={"type": "serviceaccount"}))
        async with desk.running():
            await desk.says("shop.jo", "Pending", "NoPassword")
            await desk.says("shop.fed", "Pending", "NoProvider")
            await desk.says("shop.sa", "Pending", "NoServiceAccounts")
            await desk.says("shop.card", "Active", "Served")
            assert desk.node.users["default/shop.card"].certificates == ("card.example.com",)
            status = desk.registry.store.get("MessagingUser", "default", "shop.jo")["status"]
            assert "enmasse passwd shop.jo" in status["message"]
            assert status["generation"] == 1
            desk.write(make_user())
            await desk.says("shop.jo", "Active", "Served")

    asyncio.run(body())


def test_a_full_space_takes_another_user_when_one_has_gone(desk: Desk, make_space: Make) -> None:
    async def body() -> None:
        desk.write(make_space(**STANDARD, limits={"users": 2}))
        for name in ("shop.a", "shop.b", "shop.c"):
            desk.write(make_user(name))
        async with desk.running():
            await until_async(lambda: len(desk.node.users) == 2)
            names = {"shop.a", "shop.b", "shop.c"}
            await until_async(
                lambda: sorted(desk.status(name)[-1] for name in names) == ["QuotaExceeded", "Served", "Served"]
            )
            (late,) = (name for name in names if desk.status(name)[-1] == "QuotaExceeded")
            desk.registry.delete("MessagingUser", "default", min(names - {late}))
            await desk.says(late, "Active", "Served")
            desk.write(make_user("shop.d"))
            await desk.says("shop.d", "Pending", "QuotaExceeded")
            desk.write(make_space(**STANDARD))
            await desk.says("shop.d", "Active", "Served")

    asyncio.run(body())


def test_two_objects_with_one_username_are_one_user_too_many(desk: Desk, make_space: Make) -> None:
    async def body() -> None:
        desk.write(make_space(**STANDARD))
        desk.write(make_user("shop.one", username="jo"))
        async with desk.running():
            await desk.says("shop.one", "Active", "Served")
            desk.write(make_user("shop.two", username="jo"))
            await desk.says("shop.two", "Failed", "NodeRefused")
            desk.registry.delete("MessagingUser", "default", "shop.one")
            await desk.says("shop.two", "Active", "Served")

    asyncio.run(body())


def test_a_node_that_is_away_keeps_its_users_and_hears_of_changes_later(desk: Desk, make_space: Make) -> None:
    async def body() -> None:
        desk.write(make_space(**STANDARD))
        desk.write(make_user())
        async with desk.running():
            await desk.says("shop.jo", "Active", "Served")
            desk.node.switch(False)
            desk.write(make_user("shop.bo"))
            await desk.says("shop.bo", "Configuring", "NodeUnavailable")
            assert desk.status("shop.jo") == ("Active", "Served")
            desk.node.switch(True)
            await desk.says("shop.bo", "Active", "Served")

    asyncio.run(body())


def test_nobody_comes_into_a_space_that_is_going(desk: Desk, make_space: Make) -> None:
    async def body() -> None:
        space = make_space(**STANDARD)
        kept = space.model_copy(update={"metadata": space.metadata.model_copy(update={"finalizers": ("test/x",)})})
        uid = desk.write(kept)["metadata"]["uid"]
        for name in ("shop.a", "shop.b", "shopping.a"):
            desk.write(make_user(name))
        async with desk.running():
            await until_async(lambda: len(desk.node.users) == 2)
            desk.registry.delete("AddressSpace", "default", "shop")
            await until_async(lambda: not desk.node.users)
            await desk.says("shop.a", "Pending", "SpaceTerminating")
            desk.registry.change_finalizers("AddressSpace", "default", "shop", uid=uid, remove="test/x")
            await desk.says("shopping.a", "Pending", "SpaceMissing")

    asyncio.run(body())


def test_what_the_node_refuses_is_said_and_tried_again(desk: Desk, make_space: Make) -> None:
    async def body() -> None:
        desk.node.refusal = NodeRefusedError(400, "no such thing")
        desk.write(make_space(**STANDARD))
        desk.write(make_user())
        async with desk.running():
            await desk.says("shop.jo", "Failed", "NodeRefused")
            desk.node.refusal = None
            await desk.says("shop.jo", "Active", "Served")

    asyncio.run(body())


def test_a_user_of_a_former_release_gets_the_conditions_of_today(desk: Desk, make_space: Make) -> None:
    async def body() -> None:
        desk.write(make_space(**STANDARD))
        desk.write(make_user())
        async with desk.running():
            await desk.says("shop.jo", "Active", "Served")
        store = desk.registry.store
        former = store.get("MessagingUser", "default", "shop.jo")
        status = former["status"]
        status["conditions"] = [item for item in status["conditions"] if item["type"] != "InEffect"]
        store.replace(former)

        def kinds() -> list[str]:
            found = store.get("MessagingUser", "default", "shop.jo")["status"]["conditions"]
            return [item["type"] for item in found]

        assert "InEffect" not in kinds()
        async with desk.running():
            await until_async(lambda: "InEffect" in kinds())

    asyncio.run(body())
