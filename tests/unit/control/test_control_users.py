"""Messaging users on their way to a node: told once, told again when they change, and said how far they are."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.runtime import Runtime
from enmasse.control.unfinished import finish_here
from enmasse.control.user_controller import UserController
from enmasse.control.user_passwords import UserPasswords
from enmasse.control.user_port import UserEntity, UserSighting
from enmasse.model.kinds import decode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from enmasse.control.registry import Registry
    from enmasse.control.store import Document
    from enmasse.model.resource import Resource

    Make = Callable[..., Resource]

STANDARD = {"authenticationService": {"type": "standard"}}


class MemoryUsers:
    """A node's users in memory."""

    def __init__(self) -> None:
        self.users: dict[str, UserEntity] = {}
        self.calls: list[tuple[str, str]] = []
        self.is_up = True
        self.refusal: NodeRefusedError | None = None
        self._turned = asyncio.Event()

    def switch(self, is_up: bool) -> None:
        self.is_up = is_up
        self._turned.set()

    async def connections(self) -> AsyncIterator[bool]:
        while True:
            self._turned.clear()
            yield self.is_up
            await self._turned.wait()

    async def users_after(self, name: str) -> AsyncIterator[list[UserSighting]]:
        self._expect_up()
        for user in sorted(self.users.values(), key=lambda user: user.name):
            if user.name > name:
                yield [UserSighting(user.name, user.uid, user.revision)]

    async def find_user(self, name: str) -> UserSighting | None:
        self._expect_up()
        user = self.users.get(name)
        return None if user is None else UserSighting(user.name, user.uid, user.revision)

    async def create_user(self, user: UserEntity) -> None:
        await self._told("create", user.name)
        if user.name in self.users:
            raise NodeRefusedError(409, "exists already")
        self.users[user.name] = user

    async def update_user(self, user: UserEntity) -> None:
        await self._told("update", user.name)
        if user.name not in self.users:
            raise NodeRefusedError(404, "there is none")
        self.users[user.name] = user

    async def delete_user(self, name: str) -> None:
        await self._told("delete", name)
        self.users.pop(name, None)

    async def _told(self, action: str, name: str) -> None:
        await asyncio.sleep(0)
        self._expect_up()
        if self.refusal is not None:
            raise self.refusal
        self.calls.append((action, name))

    def _expect_up(self) -> None:
        if not self.is_up:
            raise NodeUnavailableError("the node is down")


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

    def __init__(self, registry: Registry, node: MemoryUsers) -> None:
        self.registry = registry
        self.node = node

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        users = UserController(self.registry, self.node, now=lambda: "2026-01-01T00:00:00Z", jitter=lambda: 0.01)
        runtime = Runtime(self.registry.store)
        runtime.add(users.controller)
        runtime.listen(users)
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(runtime.run()), tasks.create_task(users.run())]
            try:
                yield
            finally:
                for task in work:
                    task.cancel()

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

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.002)

    async def says(self, name: str, *expected: str) -> None:
        await self.until(lambda: self.status(name) == expected)


@pytest.fixture
def desk(registry: Registry) -> Desk:
    registry.ask(UserPasswords())
    return Desk(registry, MemoryUsers())


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
            await desk.until(lambda: desk.node.users["default/shop.jo"].authorization != ())
            desk.write(make_user("shop.jo", "b3RoZXI=", authorization=[{"operations": ["view"]}]))
            await desk.until(lambda: desk.node.users["default/shop.jo"].scram != first.scram)
        async with desk.running():
            await desk.until(lambda: desk.status("shop.jo") == ("Active", "Served"))
            desk.registry.delete("MessagingUser", "default", "shop.jo")
            await desk.until(lambda: not desk.node.users)
        assert [action for action, _ in desk.node.calls] == ["create", "update", "update", "delete"]

    asyncio.run(body())


def test_what_changed_while_nobody_looked_is_put_right(desk: Desk, make_space: Make) -> None:
    async def body() -> None:
        desk.write(make_space(**STANDARD))
        for name in ("shop.jo", "shop.bo"):
            desk.write(make_user(name))
        async with desk.running():
            await desk.until(lambda: len(desk.node.users) == 2)
        desk.registry.delete("MessagingUser", "default", "shop.jo")
        del desk.node.users["default/shop.bo"]
        async with desk.running():
            await desk.until(lambda: set(desk.node.users) == {"default/shop.bo"})

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
            await desk.until(lambda: len(desk.node.users) == 2)
            names = {"shop.a", "shop.b", "shop.c"}
            await desk.until(
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


def test_a_space_takes_its_users_with_it(desk: Desk, make_space: Make) -> None:
    async def body() -> None:
        space = make_space(**STANDARD)
        kept = space.model_copy(update={"metadata": space.metadata.model_copy(update={"finalizers": ("test/x",)})})
        desk.write(kept)
        for name in ("shop.a", "shop.b", "shopping.a"):
            desk.write(make_user(name))
        async with desk.running():
            await desk.until(lambda: len(desk.node.users) == 2)
            desk.registry.delete("AddressSpace", "default", "shop")
            await desk.until(lambda: not desk.node.users)
            left = [item["metadata"]["name"] for item in desk.registry.store.select("MessagingUser")]
            assert left == ["shopping.a"]

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
