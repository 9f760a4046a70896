"""Closes connections whose clients may not stay: users and permissions change, proofs are taken back, and they end.

Rules:
1. What is to be looked at again, and what is to be closed, waits in one queue, of which a turn takes ``PER_TURN``:
   however many clients are concerned, others wait a few milliseconds.
2. A client that wants to stay beyond the end of its proof connects again with a new one. A password that a provider
   has confirmed does not end by itself.
3. Ends are read from the wall clock, each second at least, as it may be set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from enmasse.messaging.space import Space
    from enmasse.node.connections.client_connection import ClientConnection
    from enmasse.node.connections.connections import Connections
    from enmasse.node.users.federation import Federation

_log = logging.getLogger(__name__)

PER_TURN: Final = 20
"""Connections that are looked at or closed in a turn: a few milliseconds."""

CHECK_S: Final = 1.0
"""The longest time between two readings of the wall clock while there are proofs that end, in seconds."""

UNAUTHORIZED: Final = "amqp:unauthorized-access"


class Turns(Protocol):
    """The turns of a loop (``net.loop.Turn``)."""

    loop: asyncio.AbstractEventLoop

    def begin(self) -> float:
        """Make sure that a turn is running."""

    def later(self, call: Callable[[], None]) -> None:
        """Have ``call`` called in the next turn."""


class Reviews:
    """The reviews of a node's connections; a ``Watcher`` of them.

    Args:
        connections: the node's connections.
        spaces: returns the spaces by name.
        turn: the loop's turn.
        wall: returns seconds since 1970 UTC.
        federation: knows how far the clocks of providers may differ, and so how much longer a token is valid.
    """

    def __init__(
        self,
        connections: Connections,
        spaces: Callable[[], Mapping[str, Space]],
        turn: Turns,
        wall: Callable[[], float],
        federation: Federation,
    ) -> None:
        self._connections = connections
        self._spaces = spaces
        self._turn = turn
        self._wall = wall
        self._federation = federation
        self._queue: dict[ClientConnection, str] = {}
        """The connections that wait, with the reason why they are to be closed; empty: they are looked at."""
        self._is_going_on = False
        self._of_user: dict[tuple[str, str], dict[ClientConnection, None]] = {}
        self._ends: dict[ClientConnection, tuple[float, int]] = {}
        """The end of a connection's proof, and its number."""
        self._numbered: dict[int, ClientConnection] = {}
        self._heap: list[tuple[float, int]] = []
        """All of these, and some that are closed by now."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # What has changed

    def review_all(self) -> None:
        """Look again at all connections: users, spaces or permissions have changed."""
        for space in self._spaces().values():
            # Senders that name addresses in messages are checked again.
            space.version += 1
            space.review_grants()
        for connection in self._connections.shells:
            self._queue.setdefault(connection, "")
        self._begin()

    def review_user(self, space: str, name: str) -> None:
        """Look again at the connections of one user."""
        known, found = self._spaces().get(space), self._of_user.get((space, name))
        if known is not None:
            known.review_grants(name)
        if not found:
            return
        if known is not None:
            known.version += 1
        for connection in found:
            self._queue.setdefault(connection, "")
        self._begin()

    def close(self, connection: ClientConnection, reason: str) -> None:
        """Close a connection, whose client may not stay for a reason that it is told."""
        self._queue[connection] = reason
        self._begin()

    def _begin(self) -> None:
        if not self._is_going_on:
            self._is_going_on = True
            self._turn.begin()
            self._go_on()

    def _go_on(self) -> None:
        queue = self._queue
        for connection in list(islice(queue, PER_TURN)):
            reason = queue.pop(connection)
            shell = self._connections.shells.get(connection)
            if shell is None:
                continue  # it is closed by now
            try:
                if reason:
                    connection.close(UNAUTHORIZED, reason)
                else:
                    connection.review()
            except Exception:  # noqa: BLE001  those that follow must be looked at, and this one may not stay
                _log.exception("a connection of %s is dropped: it could not be looked at again", connection.peer)
                shell.abort()
        if queue:
            self._turn.later(self._go_on)
        else:
            self._is_going_on = False

    # A watcher of connections

    def on_connected(self, connection: ClientConnection, number: int) -> None:
        """Do nothing: nobody has logged in yet."""

    def on_opened(self, connection: ClientConnection, number: int) -> None:
        """Note whose connection it is, and until when its client may stay."""
        admission = connection.admission
        user = admission.rights.user
        if user is not None and admission.device is None:
            self._of_user.setdefault((user.space, user.name), {})[connection] = None
        self.schedule(connection)

    def on_closed(self, connection: ClientConnection) -> None:
        """Forget a connection."""
        self._queue.pop(connection, None)
        _, number = self._ends.pop(connection, (0.0, 0))
        self._numbered.pop(number, None)
        user = connection.admission.rights.user
        if user is not None:
            key = (user.space, user.name)
            found = self._of_user.get(key)
            if found is not None:
                found.pop(connection, None)
                if not found:
                    del self._of_user[key]

    # Proofs that end

    def schedule(self, connection: ClientConnection) -> None:
        """Have a connection closed at the end of its proof, which may be sooner than was known."""
        end = self._end_of(connection)
        known = self._ends.get(connection)
        number = connection.number
        if end is None or not number or (known is not None and known[0] <= end):
            return
        self._ends[connection] = (end, number)
        self._numbered[number] = connection
        if len(self._heap) > 2 * len(self._ends) + PER_TURN:
            self._heap = list(self._ends.values())
            heapify(self._heap)
        else:
            heappush(self._heap, (end, number))
        self._arm()

    def _end_of(self, connection: ClientConnection) -> float | None:
        admission = connection.admission
        if admission.proof is not None:
            return admission.proof.ends_at
        user = admission.rights.user
        if user is None or user.identity is None or user.identity.expires_at is None:
            return admission.certified_until
        settings = self._federation.settings_of(user.space)
        return user.identity.expires_at + (settings.leeway_s if settings is not None else 0)

    def _arm(self) -> None:
        loop, now = self._turn.loop, self._wall()
        delay_s = min(max(self._heap[0][0] - now, 0.0), CHECK_S)
        if self._timer is not None:
            if self._timer_at <= now + delay_s:
                return
            self._timer.cancel()
        self._timer_at = now + delay_s
        self._timer = loop.call_later(delay_s, self._end)

    def _end(self) -> None:
        self._timer = None
        now, heap = self._wall(), self._heap
        while heap and heap[0][0] <= now:
            end, number = heappop(heap)
            connection = self._numbered.get(number)
            if connection is None or self._ends[connection][0] != end:
                continue  # it is closed, or ends sooner
            del self._ends[connection], self._numbered[number]
            last = self._end_of(connection)
            if last is not None and last > now:
                self.schedule(connection)  # it has proved itself again
            elif last is not None:
                admission = connection.admission
                what = "token" if admission.certified_until is None else "certificate"
                what = what if admission.proof is None else admission.proof.name
                self.close(connection, f"the {what} has expired; connect again with a new one")
        if self._heap:
            self._arm()
