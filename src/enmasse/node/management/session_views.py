"""Sessions and wills as management shows them: who has them and how much waits, never what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.messaging.sessions.session import NEVER
from enmasse.messaging.sessions.wills import WillState
from enmasse.node.errors import EntityError
from enmasse.node.management.entity_types import SESSION_TYPE, WILL_TYPE
from enmasse.node.management.views import View

if TYPE_CHECKING:
    from enmasse.messaging.sessions.session import Session
    from enmasse.messaging.sessions.wills import Will
    from enmasse.messaging.space import Space


MAX_FILTERS = 20
"""The filters of a session that are listed; all are counted."""


def sessions_of(*spaces: Space) -> View[Session]:
    """Return the view of the sessions of spaces, with their counters."""
    sessions = (session for space in spaces for session in space.sessions)
    return View(sessions, _session, lambda session: (session.client_id, _identity(session)))


def wills_of(*spaces: Space) -> View[tuple[Space, Will]]:
    """Return the view of the wills of spaces, without what they say."""
    wills = (
        (space, will) for space in spaces for will in space.sessions.wills.all if will.state is not WillState.OVER
    )
    return View(wills, _will, lambda one: (str(one[1].log_id), f"{one[0].name}/{one[1].log_id}"))


def delete_session(space: Space, client_id: str) -> None:
    """End a client's session, and its connection with it.

    Raises:
        EntityError: 404 there is none.
    """
    session = space.sessions.get(client_id)
    if session is None:
        raise EntityError(404, f"space {space.name!r} has no session of client {client_id!r:.200}")
    space.sessions.delete(session)


def _identity(session: Session) -> str:
    return f"{session.sessions.space.name}/{session.client_id}"


def _session(session: Session) -> dict[str, Any]:
    texts = list(session.filters)
    return {
        "type": SESSION_TYPE,
        "identity": _identity(session),
        "name": session.client_id,
        "space": session.sessions.space.name,
        "user": session.user,
        "connected": session.holder is not None,
        "expiry": None if session.expiry_s == NEVER else session.expiry_s,
        "leftAt": session.left_us // 1_000 or None,
        "filters": texts[:MAX_FILTERS],
        "filterCount": len(texts),
        "messagesStored": session.depth,
        "bytesStored": session.bytes_stored,
        "dropped": session.room.dropped,
        "inFlightOut": len(session.outgoing),
        "inFlightIn": len(session.incoming),
    }


def _will(one: tuple[Space, Will]) -> dict[str, Any]:
    space, will = one
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
