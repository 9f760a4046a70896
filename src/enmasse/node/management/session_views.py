"""Sessions and wills as management shows them: who has them and how much waits, never what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from enmasse.messaging.sessions.session import NEVER
from enmasse.messaging.sessions.wills import WillState
from enmasse.node.errors import EntityError
from enmasse.node.management.entity_types import SESSION_TYPE, WILL_TYPE

if TYPE_CHECKING:
    from enmasse.messaging.sessions.session import Session
    from enmasse.messaging.sessions.wills import Will
    from enmasse.messaging.space import Space
    from enmasse.node.management.entities import Entities


MOST_FILTERS = 20
"""The filters of a session that are listed; all are counted."""


def sessions_of(space: Space) -> Iterator[dict[str, Any]]:
    """Return the sessions of a space, with their counters."""
    return (_session(session) for session in list(space.sessions))


def wills_of(space: Space) -> Iterator[dict[str, Any]]:
    """Return the wills of a space, without what they say."""
    return (_will(space, will) for will in space.sessions.wills.all if will.state is not WillState.OVER)


def read_sessions(entities: Entities) -> list[dict[str, Any]]:
    """Return every session of a node."""
    return [entity for space in entities.spaces.values() for entity in sessions_of(space)]


def read_wills(entities: Entities) -> list[dict[str, Any]]:
    """Return every will of a node."""
    return [entity for space in entities.spaces.values() for entity in wills_of(space)]


def delete_session(space: Space, client_id: str) -> None:
    """End a client's session, and its connection with it.

    Raises:
        EntityError: 404 there is none.
    """
    session = space.sessions.get(client_id)
    if session is None:
        raise EntityError(404, f"space {space.name!r} has no session of client {client_id!r:.200}")
    space.sessions.delete(session)


def _session(session: Session) -> dict[str, Any]:
    texts = list(session.filters)
    return {
        "type": SESSION_TYPE,
        "identity": f"{session.sessions.space.name}/{session.client_id}",
        "name": session.client_id,
        "space": session.sessions.space.name,
        "user": session.user,
        "connected": session.holder is not None,
        "expiry": None if session.expiry_s == NEVER else session.expiry_s,
        "leftAt": session.left_us // 1_000 or None,
        "filters": texts[:MOST_FILTERS],
        "filterCount": len(texts),
        "messagesStored": session.depth,
        "bytesStored": session.bytes_stored,
        "dropped": session.room.dropped,
        "inFlightOut": len(session.outgoing),
        "inFlightIn": len(session.incoming),
    }


def _will(space: Space, will: Will) -> dict[str, Any]:
    return {
        "type": WILL_TYPE,
        "identity": f"{space.name}/{will.log_id}",
        "name": str(will.log_id),
        "space": space.name,
        "user": will.user,
        "client": will.client,
        "link": will.link,
        "address": will.message.name,
        "state": will.state.value,
        "delay": will.message.delay_s,
        "bytes": len(will.message.payload),
    }
