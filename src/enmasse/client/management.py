"""The client of a node's management: CREATE, READ, UPDATE, DELETE, QUERY, and operations on stored messages.

The operations are those of the OASIS draft "AMQP Management 1.0"; the types and attributes of a node
are in ``docs/reference/conventions.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from enmasse.client.connection import Connection
from enmasse.client.errors import RemoteError
from enmasse.client.message import Message

__all__ = ["Management", "ManagementError"]

TIMEOUT_S = 30.0
"""For one operation: a node answers in milliseconds, unless it is being restarted."""

PAGE = 200
"""The most entities that one answer holds."""

ADDRESS_TYPE = "io.enmasse.address"

_CONDITIONS = {400: "amqp:invalid-field", 401: "amqp:unauthorized-access", 403: "amqp:unauthorized-access",
               404: "amqp:not-found", 409: "amqp:precondition-failed", 501: "amqp:not-implemented"}  # fmt: skip


class ManagementError(RemoteError):
    """The node did not do what was asked.

    Attributes:
        status: the answer's status code: 400 bad request, 404 no such entity, 409 it exists already
            or is in use, 501 no such operation.
        description: why, in words.
    """

    def __init__(self, status: int, description: str) -> None:
        super().__init__(_CONDITIONS.get(status, "amqp:internal-error"), description)
        self.args = (f"{description} (status {status})",)
        self.status = status


class Management:
    """The manager of what a connection leads to.

    Args:
        connection: a connection to the node.
        address: the address at which the node listens for management requests.
        timeout: seconds that one operation may take.
    """

    def __init__(self, connection: Connection, *, address: str = "$management", timeout: float = TIMEOUT_S) -> None:
        self._connection = connection
        self._address = address
        self._timeout_s = timeout

    async def create(
        self, entity_type: str, name: str, attributes: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Create an entity, and return its attributes as they are now.

        Raises:
            ManagementError: it exists already, or the attributes are wrong.
        """
        return await self._ask("CREATE", {"type": entity_type, "name": name}, attributes)

    async def read(self, entity_type: str, name: str | None = None, *, identity: str | None = None) -> dict[str, Any]:
        """Return the attributes of an entity, found by its name or its identity.

        Raises:
            ManagementError: there is no such entity.
        """
        return await self._ask("READ", _which(entity_type, name, identity), None)

    async def update(
        self,
        entity_type: str,
        name: str | None,
        attributes: Mapping[str, Any],
        *,
        identity: str | None = None,
    ) -> dict[str, Any]:
        """Set some attributes of an entity, and return all as they are then.

        Raises:
            ManagementError: there is no such entity, or the attributes are wrong.
        """
        return await self._ask("UPDATE", _which(entity_type, name, identity), attributes)

    async def delete(self, entity_type: str, name: str | None = None, *, identity: str | None = None) -> None:
        """Delete an entity.

        Raises:
            ManagementError: there is no such entity, or it must not be deleted.
        """
        await self._ask("DELETE", _which(entity_type, name, identity), None)

    async def query(
        self, entity_type: str, attribute_names: Sequence[str] = (), *, offset: int = 0, count: int | None = None
    ) -> list[dict[str, Any]]:
        """Return the entities of a type, each with the attributes asked for; with none asked for, all.

        Args:
            entity_type: their type.
            attribute_names: the attributes wanted of each.
            offset: the number of rows to pass over.
            count: the most rows. They are asked for in pages, as a node does nothing else meanwhile: of what comes
                and goes between two, one may be missing.

        Raises:
            ManagementError: there is no such type, or a space is asked for too many pages at once.
        """
        rows: list[dict[str, Any]] = []
        while True:
            wanted = PAGE if count is None else min(PAGE, count - len(rows))
            page = await self._query(entity_type, attribute_names, offset + len(rows), wanted)
            rows += page
            if len(page) < wanted or len(rows) == count:
                return rows

    async def _query(
        self, entity_type: str, attribute_names: Sequence[str], offset: int, count: int
    ) -> list[dict[str, Any]]:
        asked: dict[str, Any] = {"entityType": entity_type, "offset": offset, "count": count}
        found = await self._ask("QUERY", asked, {"attributeNames": list(attribute_names)})
        names = found.get("attributeNames")
        results = found.get("results")
        if not isinstance(names, list) or not isinstance(results, list):
            raise ManagementError(500, "the answer to a query has no attributeNames and results")
        return [dict(zip(names, values, strict=False)) for values in results]

    async def perform(
        self, operation: str, entity_type: str, name: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Perform any other operation that a node knows, and return the body of its answer.

        Raises:
            ManagementError: the node does not know it, or refuses it.
        """
        return await self._ask(operation, _which(entity_type, name, None), arguments)

    async def purge(self, name: str, selector: str | None = None) -> int:
        """Delete messages that an address stores, and return how many they were.

        Args:
            name: the name of the address entity, ``<namespace>/<object name>``.
            selector: only what it selects, as in ``colour = 'red'``.

        Raises:
            ManagementError: there is no such address, it stores no messages, or the selector is not understood.
        """
        return await self._act("PURGE", name, {"selector": selector})

    async def move(self, name: str, to: str, selector: str | None = None) -> int:
        """Move messages that an address stores to another address of its space, and return how many.

        Args:
            name: as for ``purge``.
            to: the other address, as applications call it.
            selector: as for ``purge``.

        Raises:
            ManagementError: as for ``purge``, or there is no such other address.
        """
        return await self._act("MOVE", name, {"to": to, "selector": selector})

    async def replay(self, name: str, selector: str | None = None) -> int:
        """Send dead letters back to the addresses that they came from, and return how many.

        Args:
            name: as for ``purge``, of the address that stores the dead letters.
            selector: as for ``purge``.

        Raises:
            ManagementError: as for ``purge``.
        """
        return await self._act("REPLAY", name, {"selector": selector})

    async def _act(self, operation: str, name: str, arguments: Mapping[str, Any]) -> int:
        given = {key: value for key, value in arguments.items() if value is not None}
        answer = await self._ask(operation, {"type": ADDRESS_TYPE, "name": name}, given)
        count = answer.get("count")
        if not isinstance(count, int):
            raise ManagementError(500, f"the answer to {operation} has no count")
        return count

    async def _ask(
        self, operation: str, properties: Mapping[str, Any], attributes: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        request = Message(dict(attributes or {}), properties={"operation": operation, **properties})
        reply = await self._connection.request(self._address, request, timeout=self._timeout_s)
        status = reply.properties.get("statusCode")
        if not isinstance(status, int):
            raise ManagementError(500, f"the answer to {operation} has no statusCode")
        if not 200 <= status < 300:
            raise ManagementError(status, str(reply.properties.get("statusDescription") or f"{operation} failed"))
        return reply.body if isinstance(reply.body, dict) else {}


def _which(entity_type: str, name: str | None, identity: str | None) -> dict[str, str]:
    which = {"type": entity_type}
    if name is not None:
        which["name"] = name
    if identity is not None:
        which["identity"] = identity
    return which
