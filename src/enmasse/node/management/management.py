"""``$management`` of the node: requests and answers by message [AMQP Management draft 4].

A request names its operation, type and entity in application properties and carries attributes in
its body; the answer goes to ``reply-to`` with the request's correlation-id, or else its message-id.

``Inspection`` adds operations on a space: its connections and links in pages, closing one, and what addresses wait
for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from enmasse.errors import RemoteError
from enmasse.message.sections import Properties, Sections, encode_message
from enmasse.node.errors import EntityError
from enmasse.node.management.entity_fields import ADDRESS_TYPE, FIELDS, SPACE_TYPE
from enmasse.node.management.entity_types import ARGUMENTS, SELF_OPERATIONS, describe_types
from enmasse.node.management.requests import ACTIONS, act, asked_names, asked_page, table
from enmasse.node.management.retained_values import RETAINED_ACTIONS, act_on_retained
from enmasse.node.management.session_views import delete_session, sessions_of, wills_of
from enmasse.node.management.views import MAX_ROWS, View

if TYPE_CHECKING:
    from enmasse.messaging.space import Space
    from enmasse.node.connections.connections import Connections
    from enmasse.node.management.entities import Entities

_IDENTIFYING = frozenset({"name", "space", "uid", "generation", "digest"})
"""Attributes that identify an entity and its version; they are read without counters."""

Reply = Callable[[int, str, Any], None]
Views = dict[str, Callable[[], View[Any]]]
Operations = dict[tuple[str, str], Callable[[str, Any], dict[str, Any]]]
LateOperations = dict[tuple[str, str], Callable[[str, Any, Callable[[dict[str, Any] | EntityError], None]], None]]
"""Operations that give the body of their answer, or an error, when they have it."""


class EntityStore(Protocol):
    """Creates, changes, deletes and reads entities of some types, as ``Entities`` does."""

    def create(
        self, entity_type: str, name: str, attributes: dict[str, Any], done: Callable[[EntityError | None], None], /
    ) -> None:
        """Add an entity."""

    def update(
        self, entity_type: str, name: str, attributes: dict[str, Any], done: Callable[[EntityError | None], None], /
    ) -> None:
        """Change an entity."""

    def delete(self, entity_type: str, name: str, done: Callable[[EntityError | None], None], /) -> None:
        """Remove an entity."""

    def read(self, entity_type: str, name: str, /) -> dict[str, Any]:
        """Return one entity's attributes."""

    def read_all(self, entity_type: str, page: slice = ..., /) -> list[dict[str, Any]]:
        """Return a page of the entities' attributes."""


class Management:
    """Serves requests about a node.

    Args:
        entities: the spaces and addresses.
        views: functions that return the views of read-only entities, by entity type.
        answer: sends a payload to an address of the administrator's space.
        is_there: returns whether that has such an address.
        operations: further operations, by entity type and name: each gets the entity's name (may be empty) and the
            request's body, and returns the body of the answer.
        others: further entities that can be created, changed and deleted, by entity type.
        late: further operations that take their time.
    """

    def __init__(
        self,
        entities: Entities,
        views: Views,
        answer: Callable[[str, bytes], None],
        is_there: Callable[[str], bool],
        operations: Operations | None = None,
        others: Mapping[str, EntityStore] | None = None,
        late: LateOperations | None = None,
    ) -> None:
        self._entities = entities
        self._views = views
        self._answer = answer
        self._is_there = is_there
        self._operations = operations or {}
        self._late = late or {}
        self._declared: dict[str, EntityStore] = {SPACE_TYPE: entities, ADDRESS_TYPE: entities, **(others or {})}

    def serve(self, payload: bytes) -> None:
        """Serve one request; a malformed one, or one without a ``reply-to``, is dropped."""
        try:
            sections = Sections(payload)
            properties = sections.properties
            asked = dict(sections.application_properties)
            body = sections.body
        except RemoteError:
            return
        if not properties.reply_to:
            return
        correlation = properties.correlation_id
        if correlation is None:
            correlation = properties.message_id
        reply_to = properties.reply_to

        def reply(status: int, description: str, answer: Any) -> None:
            message = encode_message(
                answer,
                properties=Properties(to=reply_to, correlation_id=correlation),
                application_properties={"statusCode": status, "statusDescription": description},
            )
            self._answer(reply_to, message)

        try:
            self._act(asked, body, reply, lambda: self._is_there(reply_to))
        except EntityError as error:
            reply(error.status, error.description, {})

    @property
    def _supported(self) -> dict[str, dict[str, Sequence[str]]]:
        """The operations that can be asked for, by entity type."""
        found: dict[str, dict[str, Sequence[str]]] = {
            entity_type: dict.fromkeys(("CREATE", "READ", "UPDATE", "DELETE"), ()) for entity_type in self._declared
        }
        found |= {entity_type: {"READ": ()} for entity_type in self._views}
        found[ADDRESS_TYPE] |= ACTIONS
        found[SPACE_TYPE] |= RETAINED_ACTIONS
        for entity_type, operation in (*self._operations, *self._late):
            found[entity_type][operation] = ARGUMENTS[operation]
        return found

    def _act(self, asked: dict[str, Any], body: Any, reply: Reply, is_wanted: Callable[[], bool]) -> None:
        operation = asked.get("operation")
        if operation in SELF_OPERATIONS:
            reply(200, "OK", describe_types(operation, asked, self._supported))
            return
        if operation == "QUERY":
            entity_type = asked.get("entityType") or SPACE_TYPE
            self._query(str(entity_type), asked, body, reply)
            return
        entity_type = str(asked.get("type", ""))
        name = str(asked.get("name") or asked.get("identity") or "")
        if entity_type not in self._declared and entity_type not in self._views:
            raise EntityError(501, f"there is no entity type {entity_type!r}")
        if operation == "READ":
            reply(200, "OK", self._read(entity_type, name))
            return
        asked_for = self._operations.get((entity_type, str(operation)))
        if asked_for is not None:
            reply(200, "OK", asked_for(name, body))
            return
        takes_time = self._late.get((entity_type, str(operation)))
        if takes_time is not None:
            takes_time(name, body, lambda found: _answer_late(found, reply))
            return
        if operation in ACTIONS and entity_type == ADDRESS_TYPE:
            self._act_on_messages(operation, name, body, reply, is_wanted)
            return
        if operation in RETAINED_ACTIONS and entity_type == SPACE_TYPE:
            space = self._entities.spaces.get(name)
            if space is None:
                raise EntityError(404, f"there is no space {name!r:.400}")
            act_on_retained(operation, space, body, reply)
            return
        if operation not in ("CREATE", "UPDATE", "DELETE") or entity_type in self._views:
            raise EntityError(501, f"operation {operation!r} is not possible on {entity_type}")
        attributes = body if isinstance(body, dict) else {}

        def done(error: EntityError | None) -> None:
            if error is not None:
                reply(error.status, error.description, {})
            elif operation == "DELETE":
                reply(204, "No Content", {})
            else:
                status, description = (201, "Created") if operation == "CREATE" else (200, "OK")
                reply(status, description, declared.read(entity_type, name))

        declared = self._declared[entity_type]
        if operation == "CREATE":
            declared.create(entity_type, name, attributes, done)
        elif operation == "UPDATE":
            declared.update(entity_type, name, attributes, done)
        else:
            expected = attributes.get("uid")
            if expected is not None and (present := declared.read(entity_type, name).get("uid")) != expected:
                raise EntityError(409, f"{name!r} has the uid {present!r}, not {expected!r}: it is another one")
            declared.delete(entity_type, name, done)

    def _act_on_messages(
        self, operation: str, name: str, body: Any, reply: Reply, is_wanted: Callable[[], bool]
    ) -> None:
        def done(count: int, error: EntityError | None) -> None:
            if error is None:
                reply(200, "OK", {"count": count})
            else:
                reply(error.status, error.description, {})

        space, address = self._entities.find(name)
        act(operation, name, space, address, body, done, is_wanted=is_wanted)

    def _read(self, entity_type: str, name: str) -> dict[str, Any]:
        view = self._views.get(entity_type)
        if view is None:
            return self._declared[entity_type].read(entity_type, name)
        found = view().find(name)
        if found is None:
            raise EntityError(404, f"there is no {entity_type} {name!r}")
        return found

    def _query(self, entity_type: str, asked: dict[str, Any], body: Any, reply: Reply) -> None:
        view = self._views.get(entity_type)
        page, names = asked_page(asked, MAX_ROWS), asked_names(body)
        if entity_type in FIELDS and names and _IDENTIFYING.issuperset(names):
            rows = self._entities.identify(entity_type, names, page)
            reply(200, "OK", {"attributeNames": names, "results": rows})
            return
        if view is not None:
            found = view().page(page)
        elif entity_type in self._declared:
            found = self._declared[entity_type].read_all(entity_type, page)
        else:
            raise EntityError(501, f"there is no entity type {entity_type!r}")
        reply(200, "OK", table(found, names))


def _answer_late(found: dict[str, Any] | EntityError, reply: Reply) -> None:
    if isinstance(found, EntityError):
        reply(found.status, found.description, {})
    else:
        reply(200, "OK", found)


Operation = Callable[[str, Any], dict[str, Any]]


class Inspection:
    """Operations on a space: list its connections, links, sessions and wills, end some, note what is waited for.

    The latter is what control reports of addresses that are declared and not served yet.

    Args:
        entities: the node's spaces.
        connections: the node's connections.
    """

    def __init__(self, entities: Entities, connections: Connections) -> None:
        self._entities = entities
        self._connections = connections

    @property
    def operations(self) -> dict[tuple[str, str], Operation]:
        """The operations by entity type and name."""
        return {
            (SPACE_TYPE, "CONNECTIONS"): lambda name, body: self._page(name, body, self._connections.connections_of),
            (SPACE_TYPE, "LINKS"): lambda name, body: self._page(name, body, self._connections.links_of),
            (SPACE_TYPE, "SESSIONS"): lambda name, body: self._page(name, body, sessions_of),
            (SPACE_TYPE, "WILLS"): lambda name, body: self._page(name, body, wills_of),
            (SPACE_TYPE, "END"): self._end,
            (SPACE_TYPE, "CLOSE"): self._close,
            (SPACE_TYPE, "PENDING"): self._wait,
        }

    def _space(self, name: str) -> Space:
        space = self._entities.spaces.get(name)
        if space is None:
            raise EntityError(404, f"there is no space {name!r:.400}")
        return space

    def _page(self, name: str, body: Any, of: Callable[[Space], View[Any]]) -> dict[str, Any]:
        offset = body.get("offset", 0) if isinstance(body, dict) else 0
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise EntityError(400, f"offset is a number from 0 on, not {offset!r:.100}")
        found = of(self._space(name)).page(slice(offset, offset + MAX_ROWS + 1))
        return {"results": found[:MAX_ROWS], "hasMore": len(found) > MAX_ROWS}

    def _wait(self, name: str, body: Any) -> dict[str, Any]:
        address, reason = (body.get("address"), body.get("reason")) if isinstance(body, dict) else (None, None)
        if not isinstance(address, str) or not isinstance(reason, str):
            raise EntityError(400, "address and reason are strings; the reason is empty for what waits no more")
        self._space(name).wait_for(address, reason)
        return {}

    def _end(self, name: str, body: Any) -> dict[str, Any]:
        client = body.get("client") if isinstance(body, dict) else None
        if not isinstance(client, str):
            raise EntityError(400, f"client is a client id in a string, not {client!r:.100}")
        delete_session(self._space(name), client)
        return {}

    def _close(self, name: str, body: Any) -> dict[str, Any]:
        number = body.get("connection") if isinstance(body, dict) else None
        if not isinstance(number, str):
            raise EntityError(400, f"connection is a connection's number in a string, not {number!r:.100}")
        if not self._connections.close(number, "closed by an operator", self._space(name)):
            raise EntityError(404, f"space {name!r} has no connection {number!r:.100}")
        return {}
