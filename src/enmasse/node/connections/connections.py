"""The registry of a node's connections and links, of every protocol, as management shows them.

``LaneWatcher`` assigns each connection to the scheduler's lanes of its space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, runtime_checkable

from enmasse.messaging.budget import Budget
from enmasse.messaging.chores import ENDING_UNITS
from enmasse.messaging.delivery import Producer
from enmasse.net.lanes import ConnectionLoad, LaneScheduler
from enmasse.node.connections.unfinished import unfinished_budget
from enmasse.node.connections.waiting import WaitingBudget, WaitingRoom
from enmasse.node.management.entity_types import CONNECTION_TYPE, LINK_TYPE
from enmasse.node.management.views import View

if TYPE_CHECKING:
    from enmasse.messaging.owners import Holding
    from enmasse.messaging.space import Space
    from enmasse.net.loop import Turn
    from enmasse.net.transport import EngineProtocol
    from enmasse.node.connections.client_connection import ClientConnection, ClientLink
    from enmasse.node.connections.handover import Handovers
    from enmasse.node.health import Answer
    from enmasse.node.management.space_management import SpaceManagement
    from enmasse.node.ports import ServedHosts
    from enmasse.storage.link import JournalLink

    _Open = tuple[ClientConnection, int]
    """A connection that is open, and its number."""

T = TypeVar("T")

AGAIN: Final = "amqp:connection:forced"
"""The condition that has clients connect again."""

LINGER_S: Final = 1.0
"""Seconds in which a client may go that was told to come again, before its socket is reset."""

UNREAD_BYTES: Final = 16 << 20
"""The bytes, of a node, that were made for clients and wait for them to read. One answer may be larger."""

UNREAD_GRAIN_BYTES: Final = 4 << 10


class Watcher(Protocol):
    """Called when connections come and go."""

    def on_connected(self, connection: ClientConnection, number: int) -> None:
        """Called when a socket is connected; nothing was read or written yet."""

    def on_opened(self, connection: ClientConnection, number: int) -> None:
        """Called when the client has opened the connection; space and container are known."""

    def on_closed(self, connection: ClientConnection) -> None:
        """Called when the connection is closed."""


@runtime_checkable
class KeepsHoldings(Protocol):
    """State of a protocol by which clients come back to what they had."""

    def holdings(self, space: Space) -> Iterable[Holding]:
        """Return what there is of a space."""


class Connections:
    """The connections of a node.

    Args:
        wall_ms: returns the wall clock in milliseconds since 1970 UTC.
    """

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self.shells: dict[ClientConnection, EngineProtocol] = {}
        """The connected sockets, from their first byte on."""
        self.numbers: dict[ClientConnection, int] = {}
        """The number of each connected socket; a number is never used twice."""
        self.watchers: list[Watcher] = []
        self.unfinished = unfinished_budget()
        """The budget for incomplete messages, of all connections."""
        self.unread = Budget(UNREAD_BYTES, UNREAD_GRAIN_BYTES)
        """The budget for what was made for clients that do not read it, of all connections."""
        self._waiting = WaitingBudget()
        """The budget for messages of clients that wait for credit, of all connections."""
        self.origins: tuple[str, ...] = ()
        """Origins of web pages that may use the node by HTTP; ``*`` is all."""
        self.hosts: ServedHosts
        """The names by which clients of HTTP may call the node."""
        self.answer: Answer = lambda _target: None
        """Returns status and text where the node itself answers a target of HTTP, as for its health."""
        self.handovers: Handovers | None = None
        """Hands connections over to the homes of their spaces; None: every space is at home here."""
        self.space_management: SpaceManagement | None = None
        """Serves ``$management`` of the spaces."""
        self._shared: dict[type[Any], Any] = {}
        self._open: dict[ClientConnection, int] = {}
        self._last_number = 0
        self.wall_ms = wall_ms

    def shared(self, kind: type[T]) -> T:
        """Return the state that a protocol shares among its connections, such as links that may be resumed.

        Args:
            kind: the class of the state; one is made at the first call.
        """
        found = self._shared.get(kind)
        if found is None:
            found = self._shared[kind] = kind()
        return found

    def holdings(self, space: Space) -> Iterator[Holding]:
        """Iterate over what protocols keep for clients of a space that come back."""
        for state in self._shared.values():
            if isinstance(state, KeepsHoldings):
                yield from state.holdings(space)

    def waiting_room(self, space: Space) -> WaitingRoom:
        """Return the place of the messages of a connection of a space that wait for credit."""
        return WaitingRoom(self._waiting, space.name)

    def connected(self, connection: ClientConnection, shell: EngineProtocol) -> None:
        """Register a connected socket."""
        self.shells[connection] = shell
        self._last_number += 1
        self.numbers[connection] = self._last_number
        for watcher in self.watchers:
            watcher.on_connected(connection, self._last_number)

    def waits(self, connection: ClientConnection, *, is_waiting: bool) -> None:
        """Let no time run for a client that waits for the node's verdict on its login, or let it run again."""
        shell = self.shells.get(connection)
        if shell is not None and shell.slot is not None:
            if is_waiting:
                shell.slot.suspend()
            else:
                shell.slot.resume()

    @property
    def has_peers(self) -> bool:
        """True if there are other nodes, which may be the homes of spaces."""
        return self.handovers is not None and self.handovers.directory is not None

    def hand_over(self, connection: ClientConnection, space: Space) -> bool:
        """Begin to hand a connection over, if its space is at home at another node; return whether it is.

        Raises:
            RemoteError: it is, and connections of the protocol are not handed over.
        """
        return self.handovers is not None and self.handovers.begin(connection, space)

    def left(self, connection: ClientConnection) -> None:
        """Stop handing a connection over, if that is under way: its client is gone."""
        if self.handovers is not None:
            self.handovers.cancel(connection)

    def opened(self, connection: ClientConnection) -> None:
        """Mark a connection as open, in its space."""
        connection.opened_at_ms = self.wall_ms()
        number = self._open[connection] = self.numbers[connection]
        for watcher in self.watchers:
            watcher.on_opened(connection, number)

    def closed(self, connection: ClientConnection) -> None:
        """Remove a connection."""
        self._open.pop(connection, None)
        self.shells.pop(connection, None)
        self.numbers.pop(connection, None)
        for watcher in self.watchers:
            watcher.on_closed(connection)

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._open)

    @property
    def links(self) -> int:
        """The number of attached links."""
        return sum(len(connection.links) for connection in self._open)

    def force(self, connection: ClientConnection, reason: str) -> None:
        """Close a connection so that its client may connect again."""
        connection.close(AGAIN, reason)
        if connection.waits_for_reset and connection in self.shells:
            self.shells[connection].reset_later(LINGER_S)

    def close_space(self, space: Space) -> None:
        """Close the connections of a space that is deleted, in turns if they are many."""
        space.core.chores.add(f"connections of space {space.name}", self._close_space(space))

    def _close_space(self, space: Space) -> Iterator[int]:
        for connection, _ in self._of(space):
            self.force(connection, f"space {space.name!r} was deleted")
            yield ENDING_UNITS

    def rehome(self, space: Space) -> None:
        """Close the connections of a space that has another home now, in turns if they are many."""
        space.core.chores.add(f"connections of space {space.name}", self._rehome(space))

    def _rehome(self, space: Space) -> Iterator[int]:
        for connection, _ in self._of(space):
            if not connection.admission.is_administrator:
                self.force(connection, "the space has another home now: connect again")
                yield ENDING_UNITS

    def meter(self, space: Space) -> None:
        """Apply the rate limits of a space, which are new, to its senders that are attached."""
        for connection in self._open:
            if connection.space is space:
                connection.bounds.meter(space, connection.links.values())

    def close(self, name: str, reason: str, space: Space | None = None) -> bool:
        """Close the connection of a number, if there is one (in a space); its client may connect again at once."""
        for connection, number in self._open.items():
            if str(number) == name and (space is None or connection.space is space):
                self.force(connection, reason)
                return True
        return False

    def connections_of(self, space: Space | None = None) -> View[_Open]:
        """Return the view of the connections of a space, or of all, with their counters."""
        return View(self._of(space), self._connection, lambda one: (str(one[1]),) * 2)

    def links_of(self, space: Space | None = None) -> View[tuple[ClientConnection, int, ClientLink]]:
        """Return the view of the links of a space, or of all, with their counters and the client's role."""
        links = (
            (connection, number, link)
            for connection, number in self._of(space)
            for link in list(connection.links.values())
        )
        return View(links, self._link, lambda one: (one[2].name, f"{one[1]}/{one[2].handle}"))

    def traffic_of(self, space: Space) -> tuple[int, int, int, int]:
        """Return the numbers of the connections and receivers of a space, and their bytes in and out."""
        found = [(connection, self.shells[connection]) for connection, _ in self._of(space)]
        return (
            len(found),
            sum(not link.is_sender for connection, _ in found for link in connection.links.values()),
            sum(shell.bytes_in for _, shell in found),
            sum(shell.bytes_out for _, shell in found),
        )

    def _of(self, space: Space | None) -> list[_Open]:
        if space is None:
            return list(self._open.items())
        return [(connection, number) for connection, number in self._open.items() if connection.space is space]

    def _connection(self, one: _Open) -> dict[str, Any]:
        connection, number = one
        links = [(link, link.counts()) for link in connection.links.values()]
        came = [counts["deliveries"] for link, counts in links if link.is_sender]
        left = [counts["deliveries"] for link, counts in links if not link.is_sender]
        shell = self.shells[connection]
        return {
            "type": CONNECTION_TYPE,
            "identity": str(number),
            "name": str(number),
            "protocol": connection.protocol,
            "container": connection.container,
            "host": connection.peer,
            "space": connection.space.name if connection.space is not None else None,
            "user": connection.user,
            "mechanism": connection.admission.mechanism,
            "tls": shell.tls,
            "via": shell.via or None,
            "properties": connection.properties,
            "openedAt": connection.opened_at_ms,
            "senders": len(came),
            "receivers": len(left),
            "bytesIn": shell.bytes_in,
            "bytesOut": shell.bytes_out,
            "messagesIn": sum(came),
            "transactions": connection.transactions,
            "paused": connection.why_held
            or ("" if not shell.is_stalled else "the client does not read its messages"),
            "messagesOut": sum(left),
        }

    @staticmethod
    def _link(one: tuple[ClientConnection, int, ClientLink]) -> dict[str, Any]:
        connection, number, link = one
        end = link.end
        assert end is not None  # it has joined
        return {
            "type": LINK_TYPE,
            "identity": f"{number}/{link.handle}",
            "name": link.name,
            "connection": str(number),
            "container": connection.container,
            "role": link.role,
            "address": end.target if isinstance(end, Producer) else end.address.name,
            "space": connection.space.name if connection.space is not None else None,
            **link.counts(),
            **link.estimates(),
        }


FEW_BYTES: Final = 2 << 10
"""The largest batch for which turns are kept short. Larger ones come from senders at full speed, which long turns
serve better."""


class LaneWatcher:
    """Puts each connection that opens into a lane of its space.

    Args:
        connections: the node's connections.
        admin: the administrator's space, whose connections are not scheduled.
        turn: the turn of the loop.
        journal: the journal, for the bytes that wait for a commit.
    """

    def __init__(self, connections: Connections, admin: Space, turn: Turn, journal: JournalLink) -> None:
        self._connections = connections
        self._admin = admin
        self._lanes = LaneScheduler(turn, lambda: 0 < journal.unconfirmed_bytes <= FEW_BYTES)

    def on_connected(self, connection: ClientConnection, number: int) -> None:
        """Do nothing: the space is not known yet."""

    def on_opened(self, connection: ClientConnection, number: int) -> None:
        """Assign the connection to the lanes of its space."""
        if connection.space is not None and connection.space is not self._admin:
            self._connections.shells[connection].load = self.load_of(connection.space)

    def load_of(self, space: Space) -> ConnectionLoad:
        """Return the place of a new connection in the lanes of its space."""
        return ConnectionLoad(self._lanes.of(space.name), self._lanes.turn.now)

    def on_closed(self, connection: ClientConnection) -> None:
        """Do nothing: lanes end with their last connection."""
