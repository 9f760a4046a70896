"""A node's users in memory, as the controller of users sees them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.ports import ObservedUser, UserEntity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["MemoryUsers"]


class MemoryUsers:
    """A node's users in memory."""

    name = "node-0"

    def __init__(self) -> None:
        self.journal_of = ""
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

    async def installation(self) -> str:
        self._expect_up()
        return self.journal_of

    async def since(self) -> str:
        self._expect_up()
        return ""

    async def join(self, installation: str) -> None:
        self._expect_up()
        self.journal_of = installation

    async def take_over(self, former: str, installation: str) -> None:
        assert self.journal_of == former
        self.journal_of = installation

    async def read_user(self, name: str) -> UserEntity | None:
        self._expect_up()
        return self.users.get(name)

    async def users_after(self, name: str) -> AsyncIterator[list[ObservedUser]]:
        self._expect_up()
        for user in sorted(self.users.values(), key=lambda user: user.name):
            if user.name > name:
                yield [ObservedUser(user.name, user.uid, user.revision)]

    async def find_user(self, name: str) -> ObservedUser | None:
        self._expect_up()
        user = self.users.get(name)
        return None if user is None else ObservedUser(user.name, user.uid, user.revision)

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
