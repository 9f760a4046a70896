"""``$management`` of a space: lets its users read its entities and act on them.

Rules:
1. A request concerns the space of its connection; entities of other spaces do not exist for it.
2. The permission ``view`` allows reading, ``manage`` allows all. It is checked with every request, as it may change.
3. An answer goes to a dynamic address of the same space, whose name only its owner knows. Few answers wait there: a
   client that does not receive them gets no more.
4. A request costs no more than a page, and the requests of a space are rate-limited, as tenants share the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from enmasse.errors import RemoteError
from enmasse.identity.throttle import Throttle
from enmasse.message.sections import Properties, Sections, encode_message
from enmasse.messaging.direct.anycast import Anycast
from enmasse.messaging.dynamic import DYNAMIC_PREFIX
from enmasse.messaging.space import Service
from enmasse.node.errors import EntityError
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.management.entity_types import (
    CONNECTION_TYPE,
    LINK_TYPE,
    SELF_OPERATIONS,
    SESSION_TYPE,
    WILL_TYPE,
    describe_types,
)
from enmasse.node.management.requests import ACTIONS, act, asked_names, asked_page, table
from enmasse.node.management.retained_values import CLEAR, LIST, RETAINED_ACTIONS, act_on_retained
from enmasse.node.management.session_views import delete_session, sessions_of, wills_of
from enmasse.node.management.views import MAX_ROWS, View, view_of

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.node.connections.client_connection import ClientConnection
    from enmasse.node.connections.connections import Connections
    from enmasse.node.management.entities import Entities
    from enmasse.node.users.rights import Rights

TYPES = (SPACE_TYPE, ADDRESS_TYPE, CONNECTION_TYPE, LINK_TYPE, SESSION_TYPE, WILL_TYPE)

BURST, PAUSE_S = 50, 0.05
"""The requests of a space that may come at once, and the seconds for each one after these."""

WAITING_BYTES = 1 << 20
"""The most bytes of answers that wait to be received."""

Reply = Callable[[int, str, Any], None]


class SpaceManagement:
    """Serves the requests of the spaces' users.

    Args:
        entities: the node's spaces and addresses.
        connections: the node's connections.
        clock: returns the time in seconds.
    """

    def __init__(self, entities: Entities, connections: Connections, clock: Callable[[], float]) -> None:
        self._entities = entities
        self._connections = connections
        self._clock = clock
        self._throttle = Throttle(BURST, PAUSE_S)

    def service(self, core: Core, name: str, connection: ClientConnection) -> Service:
        """Return the address that a connection's sender of requests attaches to."""
        return Service(core, name, lambda payload: self.serve(connection, payload))

    def serve(self, connection: ClientConnection, payload: bytes) -> None:
        """Serve one request; one without a valid ``reply-to`` is dropped."""
        space = connection.space
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
        if self._throttle.must_wait(space.name, now):
            reply(429, f"space {space.name!r} asks too often; ask again in a second", {})
            return
        self._throttle.failed(space.name, now)
        try:
            self._act(connection, asked, body, reply, lambda: to in space.addresses)
        except EntityError as error:
            reply(error.status, error.description, {})

    def _act(
        self,
        connection: ClientConnection,
        asked: dict[str, Any],
        body: Any,
        reply: Reply,
        is_wanted: Callable[[], bool],
    ) -> None:
        operation = str(asked.get("operation", ""))
        rights = connection.admission.rights
        if operation == "QUERY":
            _require(rights.may_view, rights, "view")
            self._query(connection, str(asked.get("entityType") or ADDRESS_TYPE), asked, body, reply)
            return
        if operation in SELF_OPERATIONS:
            _require(rights.may_view, rights, "view")
            reply(200, "OK", describe_types(operation, asked, _allowed_operations(rights)))
            return
        kind, name = str(asked.get("type", "")), str(asked.get("name") or asked.get("identity") or "")
        if operation == "READ":
            _require(rights.may_view, rights, "view")
            reply(200, "OK", self._read(connection, kind, name))
        elif operation in ACTIONS and kind == ADDRESS_TYPE:
            _require(rights.may_manage, rights, "manage")
            self._act_on_messages(connection, operation, name, body, reply, is_wanted)
        elif operation in RETAINED_ACTIONS and kind == SPACE_TYPE:
            if operation == CLEAR:
                _require(rights.may_manage, rights, "manage")
            else:
                _require(rights.may_view, rights, "view")
            space = connection.space
            if space is None or name not in ("", space.name):
                raise EntityError(404, f"there is no {kind} {name!r:.400}")
            act_on_retained(operation, space, body, reply, rights.is_closed)
        elif operation == "DELETE" and kind == CONNECTION_TYPE:
            _require(rights.may_manage, rights, "manage")
            reason = f"closed by {connection.user!r}, who manages the space"
            if connection.space is None or not self._connections.close(name, reason, connection.space):
                raise EntityError(404, f"there is no {kind} {name!r}")
            reply(204, "No Content", {})
        elif operation == "DELETE" and kind == SESSION_TYPE:
            _require(rights.may_manage, rights, "manage")
            if connection.space is not None:
                delete_session(connection.space, name.removeprefix(f"{connection.space.name}/"))
            reply(204, "No Content", {})
        else:
            _require(rights.may_view, rights, "view")
            raise EntityError(501, f"operation {operation!r:.100} is not possible on {kind!r:.100} in a space")

    # Reading

    def _read(self, connection: ClientConnection, kind: str, name: str) -> dict[str, Any]:
        if kind == ADDRESS_TYPE:
            return self._entities.read(ADDRESS_TYPE, self._address_named(connection, name))
        entity = self._view(connection, kind).find(name)
        if entity is not None:
            return entity
        raise EntityError(404, f"there is no {kind} {name!r:.400}")

    def _query(self, connection: ClientConnection, kind: str, asked: dict[str, Any], body: Any, reply: Reply) -> None:
        page, names = asked_page(asked, MAX_ROWS), asked_names(body)
        if kind == ADDRESS_TYPE:
            chosen = list(islice(self._own_names(connection), page.start, page.stop))
            found = [self._entities.read(ADDRESS_TYPE, name) for name in chosen]
        else:
            found = self._view(connection, kind).page(page)
        reply(200, "OK", table(found, names))

    def _view(self, connection: ClientConnection, kind: str) -> View[Any]:
        space = connection.space
        assert space is not None
        if kind == SPACE_TYPE:
            return view_of([self._entities.read(SPACE_TYPE, space.name)])
        if kind == CONNECTION_TYPE:
            return self._connections.connections_of(space)
        if kind == LINK_TYPE:
            return self._connections.links_of(space)
        if kind == SESSION_TYPE:
            return sessions_of(space)
        if kind == WILL_TYPE:
            return wills_of(space)
        raise EntityError(501, f"there is no entity type {kind!r:.100}; there are {', '.join(TYPES)}")

    def _own_names(self, connection: ClientConnection) -> Iterable[str]:
        assert connection.space is not None
        return self._entities.declared.of_space(connection.space.name).values()

    def _address_named(self, connection: ClientConnection, name: str) -> str:
        """Return the entity's name of an address of the space, given that or the address.

        Raises:
            EntityError: 404 the space has none of that name.
        """
        assert connection.space is not None
        space, declared = connection.space.name, self._entities.declared
        named = declared.named(space, name)
        if named is None and name in declared and declared[name]["space"] == space:
            named = name
        if named is None:
            raise EntityError(404, f"there is no {ADDRESS_TYPE} {name!r:.400}")
        return named

    # Acting

    def _act_on_messages(
        self,
        connection: ClientConnection,
        operation: str,
        name: str,
        body: Any,
        reply: Reply,
        is_wanted: Callable[[], bool],
    ) -> None:
        def done(count: int, error: EntityError | None) -> None:
            if error is None:
                reply(200, "OK", {"count": count})
            else:
                reply(error.status, error.description, {})

        space, address = self._entities.find(self._address_named(connection, name))
        act(operation, name, space, address, body, done, connection.admission.rights.is_closed, is_wanted)


def _allowed_operations(rights: Rights) -> dict[str, dict[str, Sequence[str]]]:
    """Return the operations that a user may ask for, by entity type."""
    found: dict[str, dict[str, Sequence[str]]] = {kind: {"READ": ()} for kind in TYPES}
    found[SPACE_TYPE][LIST] = RETAINED_ACTIONS[LIST]
    if rights.may_manage:
        found[SPACE_TYPE][CLEAR] = RETAINED_ACTIONS[CLEAR]
        found[ADDRESS_TYPE] |= ACTIONS
        found[CONNECTION_TYPE]["DELETE"] = ()
        found[SESSION_TYPE]["DELETE"] = ()
    return found


def _require(is_allowed: bool, rights: Rights, permission: str) -> None:
    if not is_allowed:
        user = "anonymous" if rights.user is None else rights.user.name
        raise EntityError(403, f"user {user!r} lacks the permission {permission!r}")
