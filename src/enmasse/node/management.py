"""``$management``: requests and answers by message [AMQP Management draft 4].

A request names its operation, type and entity in application properties and carries attributes in
its body; the answer goes to ``reply-to`` with the request's correlation-id, or else its message-id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from enmasse.errors import RemoteError
from enmasse.node.actions import ACTIONS, act
from enmasse.node.entities import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.entity_fields import FIELDS
from enmasse.node.entity_types import ARGUMENTS, SELF_OPERATIONS, tell_types
from enmasse.node.errors import EntityError
from enmasse.node.queries import asked_names, asked_page, table
from enmasse.wire.amqp.sections import Properties, Sections, encode_message

if TYPE_CHECKING:
    from enmasse.node.entities import Entities

__all__ = ["Declared", "Management"]

_IDENTIFYING = frozenset({"name", "space", "uid", "generation", "digest"})
"""Attributes that tell which entity it is and whether it has changed; nothing is counted for them."""

Reply = Callable[[int, str, Any], None]
Views = dict[str, Callable[[], list[dict[str, Any]]]]
Operations = dict[tuple[str, str], Callable[[str, Any], dict[str, Any]]]


class Declared(Protocol):
    """Entities of some types that can be declared: see ``Entities``."""

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
        """One entity's attributes."""

    def read_all(self, entity_type: str, page: slice = ..., /) -> list[dict[str, Any]]:
        """Some entities' attributes."""


class Management:
    """Answers requests about a node.

    Args:
        entities: what can be created, changed and deleted.
        views: what can only be read, by entity type.
        answer: sends a payload to an address of the management space.
        operations: what else can be asked for, by entity type and operation: given the entity's name, or
            nothing, and the request's body, each gives the body of the answer.
        others: what else can be created, changed and deleted, by entity type.
    """

    def __init__(
        self,
        entities: Entities,
        views: Views,
        answer: Callable[[str, bytes], None],
        operations: Operations | None = None,
        others: Mapping[str, Declared] | None = None,
    ) -> None:
        self._entities = entities
        self._views = views
        self._answer = answer
        self._operations = operations or {}
        self._declared: dict[str, Declared] = {SPACE_TYPE: entities, ADDRESS_TYPE: entities, **(others or {})}

    def serve(self, payload: bytes) -> None:
        """Take one request; malformed ones without a way back are dropped."""
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
            self._act(asked, body, reply)
        except EntityError as error:
            reply(error.status, error.description, {})

    @property
    def _possible(self) -> dict[str, dict[str, Sequence[str]]]:
        """What can be asked for, by entity type."""
        found: dict[str, dict[str, Sequence[str]]] = {
            entity_type: dict.fromkeys(("CREATE", "READ", "UPDATE", "DELETE"), ()) for entity_type in self._declared
        }
        found |= {entity_type: {"READ": ()} for entity_type in self._views}
        found[ADDRESS_TYPE] |= ACTIONS
        for entity_type, operation in self._operations:
            found[entity_type][operation] = ARGUMENTS[operation]
        return found

    def _act(self, asked: dict[str, Any], body: Any, reply: Reply) -> None:
        operation = asked.get("operation")
        if operation in SELF_OPERATIONS:
            reply(200, "OK", tell_types(operation, asked, self._possible))
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
        if operation in ACTIONS and entity_type == ADDRESS_TYPE:
            self._act_on_messages(operation, name, body, reply)
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

    def _act_on_messages(self, operation: str, name: str, body: Any, reply: Reply) -> None:
        def done(count: int, error: EntityError | None) -> None:
            if error is None:
                reply(200, "OK", {"count": count})
            else:
                reply(error.status, error.description, {})

        space, address = self._entities.find(name)
        act(operation, name, space, address, body, done)

    def _read(self, entity_type: str, name: str) -> dict[str, Any]:
        view = self._views.get(entity_type)
        if view is None:
            return self._declared[entity_type].read(entity_type, name)
        for entity in view():
            if name in (entity.get("identity"), entity.get("name")):
                return entity
        raise EntityError(404, f"there is no {entity_type} {name!r}")

    def _query(self, entity_type: str, asked: dict[str, Any], body: Any, reply: Reply) -> None:
        view = self._views.get(entity_type)
        page, names = asked_page(asked), asked_names(body)
        if entity_type in FIELDS and names and _IDENTIFYING.issuperset(names):
            rows = self._entities.tell(entity_type, names, page)
            reply(200, "OK", {"attributeNames": names, "results": rows})
            return
        if view is not None:
            found = view()[page]
        elif entity_type in self._declared:
            found = self._declared[entity_type].read_all(entity_type, page)
        else:
            raise EntityError(501, f"there is no entity type {entity_type!r}")
        reply(200, "OK", table(found, names))
