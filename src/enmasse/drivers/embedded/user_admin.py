"""The driver of a node's users: AMQP management over its private socket, on a connection of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.ports import ObservedUser, UserEntity
from enmasse.drivers.embedded.node_admin import AmqpNodeAdmin
from enmasse.drivers.embedded.node_admin import _Errors as Errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


_USER = "io.enmasse.user"
_NOT_FOUND = 404


class AmqpUserAdmin(AmqpNodeAdmin):
    """Manages the users of one node; ``connections`` keeps the connection up while it is iterated."""

    async def users_after(self, name: str) -> AsyncIterator[list[ObservedUser]]:
        """Yield all users in the order of their names, page by page, from beyond a name; empty: from the first."""
        while True:
            with Errors():
                page = await self._reachable(self._management).perform("LIST", _USER, arguments={"after": name})
            columns = (page.get("names"), page.get("uids"), page.get("revisions"))
            if not all(isinstance(column, list) for column in columns):
                raise NodeUnavailableError("the node does not say which users it has")
            found = [ObservedUser(*row) for row in zip(*columns, strict=True)]  # type: ignore[arg-type]  # checked
            if not found:
                return
            yield found
            name = found[-1].name

    async def find_user(self, name: str) -> ObservedUser | None:
        """Return what the node has under a name; None: nothing."""
        try:
            with Errors():
                found = await self._reachable(self._management).read(_USER, name)
        except NodeRefusedError as error:
            if error.status != _NOT_FOUND:
                raise
            return None
        return ObservedUser(found["name"], found.get("uid") or "", found.get("revision") or "")

    async def read_user(self, name: str) -> UserEntity | None:
        """Return a user with all that the node knows of it, the keys of its password too; None: there is none."""
        try:
            with Errors():
                found = await self._reachable(self._management).read(_USER, name)
                keys = await self._reachable(self._management).perform("KEYS", _USER, name)
        except NodeRefusedError as error:
            if error.status != _NOT_FOUND:
                raise
            return None
        return UserEntity(
            name=found["name"],
            space=found["space"],
            space_uid=found.get("spaceUid") or "",
            username=found["username"],
            uid=found.get("uid") or "",
            generation=found.get("generation") or 0,
            revision=found.get("revision") or "",
            certificates=tuple(found.get("certificates") or ()),
            authorization=tuple(
                (tuple(grant["operations"]), tuple(grant["addresses"])) for grant in found.get("authorization") or ()
            ),
            scram=keys,
            client_ids=found.get("clientIds") or "",
        )

    async def may(self, name: str, operation: str, address: str) -> tuple[bool, str]:
        """Return whether a user may do something, and by which permission or why not."""
        try:
            with Errors():
                asked = {"operation": operation, "address": address}
                found = await self._reachable(self._management).perform("MAY", _USER, name, asked)
        except NodeRefusedError as error:
            if error.status != _NOT_FOUND:
                raise
            return False, "the node does not have the user: its conditions say why"
        return found["allowed"], found["reason"]

    async def create_user(self, user: UserEntity) -> None:
        """Add a user."""
        with Errors():
            await self._reachable(self._management).create(_USER, user.name, _attributes(user))

    async def update_user(self, user: UserEntity) -> None:
        """Give a user other attributes; its connections stay as far as they may."""
        with Errors():
            await self._reachable(self._management).update(_USER, user.name, _attributes(user))

    async def delete_user(self, name: str) -> None:
        """Remove a user; one that is not there is removed already."""
        try:
            with Errors():
                await self._reachable(self._management).delete(_USER, name)
        except NodeRefusedError as error:
            if error.status != _NOT_FOUND:
                raise


def _attributes(user: UserEntity) -> dict[str, Any]:
    """Return the attributes of a user for a node: all of them, so that no former one stays."""
    return {
        "space": user.space,
        "spaceUid": user.space_uid,
        "username": user.username,
        "uid": user.uid,
        "generation": user.generation,
        "revision": user.revision,
        "certificates": list(user.certificates),
        "authorization": [
            {"operations": list(operations), "addresses": list(addresses)}
            for operations, addresses in user.authorization
        ],
        "scram": user.scram,
        "clientIds": user.client_ids or None,
    }
