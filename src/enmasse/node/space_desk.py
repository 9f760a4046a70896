"""``$management`` of a space: what its users may see of it, and do to it.

Rules:
1. Whatever is asked, the space is the connection's; what lies in another does not exist.
2. ``view`` may read, ``manage`` may also act. It is asked for with every request: permissions change.
3. An answer goes to a dynamic address of the same space, whose name only its owner knows, and waits there in small
   number: who does not fetch answers gets none.
4. No request costs more than a page, and a space asks so often and no more: others have the same node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from enmasse.errors import RemoteError
from enmasse.identity.throttle import Throttle
from enmasse.messaging.anycast import Anycast
from enmasse.messaging.dynamic import DYNAMIC_PREFIX
from enmasse.messaging.space import Service
from enmasse.node.actions import ACTIONS, act
from enmasse.node.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.entity_types import CONNECTION_TYPE, LINK_TYPE, SELF_OPERATIONS, tell_types
from enmasse.node.errors import EntityError
from enmasse.node.queries import asked_names, asked_page, table
from enmasse.wire.amqp.sections import Properties, Sections, encode_message

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.node.binding import Binding
    from enmasse.node.connections import Connections
    from enmasse.node.entities import Entities
    from enmasse.node.rights import Rights

__all__ = ["SpaceDesk"]

TYPES = (SPACE_TYPE, ADDRESS_TYPE, CONNECTION_TYPE, LINK_TYPE)

MOST_ROWS = 200
"""Entities that one answer tells: two milliseconds of the node's time."""

BURST, PAUSE_S = 50, 0.05
"""So many requests of a space at once, and then one in each pause."""

WAITING_BYTES = 1 << 20
"""Answers that wait to be fetched."""

Reply = Callable[[int, str, Any], None]


class SpaceDesk:
    """Answers the users of spaces.

    Args:
        entities: the node's spaces and addresses.
        connections: the node's connections.
        clock: the time in seconds.
    """

    def __init__(self, entities: Entities, connections: Connections, clock: Callable[[], float]) -> None:
        self._entities = entities
        self._connections = connections
        self._clock = clock
        self._often = Throttle(BURST, PAUSE_S)

    def service(self, core: Core, name: str, binding: Binding) -> Service:
        """The address that a connection's link for requests attaches to."""
        return Service(core, name, lambda payload: self.serve(binding, payload))

    def serve(self, binding: Binding, payload: bytes) -> None:
        """Take one request; one that has no way back is dropped."""
        space = binding.space
        try:
            sections = Sections(payload)
            properties = sections.properties
            asked = dict(sections.application_properties)
            body = sections.body
        except RemoteError:
            return
        to = properties.reply_to
        if space is None or not to or not to.startswith(DYNAMIC_PREFIX):
            return
        correlation = properties.correlation_id
        if correlation is None:
            correlation = properties.message_id

        def reply(status: int, description: str, answer: Any) -> None:
            address = space.addresses.get(to)
            if isinstance(address, Anycast) and address.backlog_bytes < WAITING_BYTES:
                address.offer(
                    encode_message(
                        answer,
                        properties=Properties(to=to, correlation_id=correlation),
                        application_properties={"statusCode": status, "statusDescription": description},
                    )
                )

        now = self._clock()
        if self._often.must_wait(space.name, now):
            reply(429, f"space {space.name!r} asks too often; ask again in a second", {})
            return
        self._often.failed(space.name, now)
        try:
            self._act(binding, asked, body, reply)
        except EntityError as error:
            reply(error.status, error.description, {})

    def _act(self, binding: Binding, asked: dict[str, Any], body: Any, reply: Reply) -> None:
        operation = str(asked.get("operation", ""))
        rights = binding.admission.rights
        if operation == "QUERY":
            _require(rights.may_view, rights, "view")
            self._query(binding, str(asked.get("entityType") or ADDRESS_TYPE), asked, body, reply)
            return
        if operation in SELF_OPERATIONS:
            _require(rights.may_view, rights, "view")
            reply(200, "OK", tell_types(operation, asked, _possible(rights)))
            return
        kind, name = str(asked.get("type", "")), str(asked.get("name") or asked.get("identity") or "")
        if operation == "READ":
            _require(rights.may_view, rights, "view")
            reply(200, "OK", self._read(binding, kind, name))
        elif operation in ACTIONS and kind == ADDRESS_TYPE:
            _require(rights.may_manage, rights, "manage")
            self._act_on_messages(binding, operation, name, body, reply)
        elif operation == "DELETE" and kind == CONNECTION_TYPE:
            _require(rights.may_manage, rights, "manage")
            reason = f"closed by {binding.user!r}, who manages the space"
            if binding.space is None or not self._connections.close(name, reason, binding.space):
                raise EntityError(404, f"there is no {kind} {name!r}")
            reply(204, "No Content", {})
        else:
            _require(rights.may_view, rights, "view")
            raise EntityError(501, f"operation {operation!r:.100} is not possible on {kind!r:.100} in a space")

    # What is told

    def _read(self, binding: Binding, kind: str, name: str) -> dict[str, Any]:
        if kind == ADDRESS_TYPE:
            return self._entities.read(ADDRESS_TYPE, self._address_named(binding, name))
        for entity in self._views(binding, kind):
            if name in (entity.get("identity"), entity.get("name")):
                return entity
        raise EntityError(404, f"there is no {kind} {name!r:.400}")

    def _query(self, binding: Binding, kind: str, asked: dict[str, Any], body: Any, reply: Reply) -> None:
        page, names = asked_page(asked, MOST_ROWS), asked_names(body)
        if kind == ADDRESS_TYPE:
            chosen = list(islice(self._own_names(binding), page.start, page.stop))
            found = [self._entities.read(ADDRESS_TYPE, name) for name in chosen]
        else:
            found = list(islice(self._views(binding, kind), page.start, page.stop))
        reply(200, "OK", table(found, names))

    def _views(self, binding: Binding, kind: str) -> Iterable[dict[str, Any]]:
        space = binding.space
        assert space is not None
        if kind == SPACE_TYPE:
            return [self._entities.read(SPACE_TYPE, space.name)]
        if kind == CONNECTION_TYPE:
            return self._connections.connections_of(space)
        if kind == LINK_TYPE:
            return self._connections.links_of(space)
        raise EntityError(501, f"there is no entity type {kind!r:.100}; there are {', '.join(TYPES)}")

    def _own_names(self, binding: Binding) -> Iterable[str]:
        assert binding.space is not None
        return self._entities.declared.of_space(binding.space.name).values()

    def _address_named(self, binding: Binding, name: str) -> str:
        """The entity's name of an address of the space, by that or as it is called.

        Raises:
            EntityError: 404 the space has none of that name.
        """
        assert binding.space is not None
        space, declared = binding.space.name, self._entities.declared
        named = declared.named(space, name)
        if named is None and name in declared and declared[name]["space"] == space:
            named = name
        if named is None:
            raise EntityError(404, f"there is no {ADDRESS_TYPE} {name!r:.400}")
        return named

    # What is done

    def _act_on_messages(self, binding: Binding, operation: str, name: str, body: Any, reply: Reply) -> None:
        def done(count: int, error: EntityError | None) -> None:
            if error is None:
                reply(200, "OK", {"count": count})
            else:
                reply(error.status, error.description, {})

        space, address = self._entities.find(self._address_named(binding, name))
        act(operation, name, space, address, body, done)


def _possible(rights: Rights) -> dict[str, dict[str, Sequence[str]]]:
    """What a user may ask for, by entity type."""
    found: dict[str, dict[str, Sequence[str]]] = {kind: {"READ": ()} for kind in TYPES}
    if rights.may_manage:
        found[ADDRESS_TYPE] |= ACTIONS
        found[CONNECTION_TYPE]["DELETE"] = ()
    return found


def _require(is_allowed: bool, rights: Rights, permission: str) -> None:
    if not is_allowed:
        user = "anonymous" if rights.user is None else rights.user.name
        raise EntityError(403, f"user {user!r} lacks the permission {permission!r}")
