"""Keeps open connections to what their users may do: permissions change, and tokens expire.

A client that wants to stay beyond the end of its token connects again with a new one. A password that a provider has
confirmed does not expire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enmasse.messaging.space import Space
    from enmasse.node.client_connection import ClientConnection
    from enmasse.node.connections import Connections
    from enmasse.node.users.federation import Federation


def review(connections: Connections, spaces: Iterable[Space]) -> None:
    """Close the connections and detach the links that users and permissions do not allow any more."""
    for space in spaces:
        # Senders that name addresses in messages are checked again.
        space.version += 1
    for connection in list(connections.shells):
        connection.review()


def review_user(connections: Connections, space: Space | None, name: str) -> None:
    """Review the connections of one user."""
    if space is None:
        return
    space.version += 1
    for connection in list(connections.shells):
        rights = connection.admission.rights
        if rights.space is space and rights.user is not None and rights.user.name == name:
            connection.review()


CHECK_S = 3_600.0
"""The longest time between two readings of the wall clock, in seconds, as it may be set."""


class TokenExpiry:
    """Closes connections whose tokens have expired; a ``Watcher`` of the node's connections.

    Args:
        loop: the event loop, for timers.
        wall: returns seconds since 1970 UTC.
        federation: knows how far clocks may differ, and so how much longer a token is valid.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wall: Callable[[], float], federation: Federation) -> None:
        self._loop = loop
        self._wall = wall
        self._federation = federation
        self._timers: dict[ClientConnection, asyncio.TimerHandle] = {}

    def on_connected(self, connection: ClientConnection, number: int) -> None:
        """Do nothing: nobody has logged in yet."""

    def on_opened(self, connection: ClientConnection, number: int) -> None:
        """Set a timer for the end of the user's token."""
        self._check(connection)

    def on_closed(self, connection: ClientConnection) -> None:
        """Cancel the connection's timer."""
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _check(self, connection: ClientConnection) -> None:
        self._timers.pop(connection, None)
        user = connection.admission.rights.user
        if user is None or user.identity is None or user.identity.expires_at is None:
            return
        settings = self._federation.settings_of(user.space)
        left_s = user.identity.expires_at + (settings.leeway_s if settings is not None else 0) - self._wall()
        if left_s > 0:
            self._timers[connection] = self._loop.call_later(min(left_s, CHECK_S), self._check, connection)
            return
        connection.close("amqp:unauthorized-access", "the token has expired; connect again with a new one")
