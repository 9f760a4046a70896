"""Who may come in: how many connections there are, and how long each may take to become one.

Rules:
1. A connection is *half-open* from the moment it is accepted until its protocol says that it is open. It has
   ``handshake_timeout_s`` for that, whatever it has sent meanwhile.
2. Half-open connections have places of their own. When all are taken, the one that has waited longest gives way,
   for an honest peer is quicker than that; if even that one has just come, the newcomer is turned away.
3. A connection above the other limits is let in to be told so in its own protocol, which closes it: see
   ``Ticket.refusal``.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from enmasse.net.logs import log_event

__all__ = ["Door", "DoorLimits", "Ticket"]

GRACE_S = 1.0
"""How long nobody has to give way: a handshake across the world takes half of it."""

TELL_EVERY_S = 10.0
"""Whoever is turned away without a word is told of in the log, together with others."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """What a node's ports admit, all of them together."""

    max_connections: int = 20_000
    """Open connections; an idle one takes about 10 KiB."""

    max_connections_per_host: int = 0
    """Connections from one IP address; 0 is no limit, as all clients behind a proxy share one."""

    max_handshakes: int = 1_000
    """Half-open connections."""

    handshake_timeout_s: float = 10.0
    """From the accepted socket to the open connection, in seconds."""


class Ticket:
    """One connection's place.

    Attributes:
        refusal: why it is not to be admitted, if so; its protocol tells the peer.
    """

    __slots__ = ("_door", "_host", "_since", "_transport", "refusal")

    def __init__(
        self, door: Door, transport: asyncio.Transport, host: str, since: float, refusal: str | None
    ) -> None:
        self._door = door
        self._transport: asyncio.Transport | None = transport
        self._host = host
        self._since = since
        self.refusal = refusal

    @property
    def is_half_open(self) -> bool:
        """Whether it has yet to be admitted."""
        return self in self._door.half_open

    def admit(self) -> None:
        """The connection is open."""
        self._door.half_open.pop(self, None)
        self._transport = None

    def leave(self) -> None:
        """The connection is gone."""
        self._door.close(self, self._host)

    def drop(self) -> None:
        """Have a half-open connection end now."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def since(self) -> float:
        """When it came, by the loop's clock."""
        return self._since


class Door:
    """The account of all connections of a node's ports.

    Args:
        loop: whose clock is used.
        limits: how many there may be.

    Attributes:
        half_open: connections that are not admitted yet, those that came first in front.
        turned_away: how many were closed without a word.
        timed_out: how many did not open in time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: DoorLimits) -> None:
        self.limits = limits
        self.half_open: dict[Ticket, None] = {}
        self.turned_away = 0
        self.timed_out = 0
        self._loop = loop
        self._connections: set[Ticket] = set()
        self._hosts: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._told_at = -TELL_EVERY_S
        self._told = 0

    def __len__(self) -> int:
        """How many connections there are, half-open ones among them."""
        return len(self._connections)

    def enter(self, transport: asyncio.Transport) -> Ticket | None:
        """Give a new connection its place, or None if it has to go at once."""
        now = self._loop.time()
        if len(self.half_open) >= self.limits.max_handshakes and not self._make_room(now):
            self._turn_away(now)
            return None
        peer = transport.get_extra_info("peername")
        host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        ticket = Ticket(self, transport, host, now, self._refusal(host))
        self._connections.add(ticket)
        self._hosts[host] = self._hosts.get(host, 0) + 1
        self.half_open[ticket] = None
        if self._timer is None:
            self._timer = self._loop.call_at(now + self.limits.handshake_timeout_s, self._expire)
        return ticket

    def close(self, ticket: Ticket, host: str) -> None:
        """Take a connection from the account."""
        if ticket in self._connections:
            self._connections.remove(ticket)
            self.half_open.pop(ticket, None)
            left = self._hosts.pop(host) - 1
            if left:
                self._hosts[host] = left

    def shut(self) -> None:
        """End every half-open connection, as the node stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for ticket in list(self.half_open):
            ticket.drop()

    def _refusal(self, host: str) -> str | None:
        limits = self.limits
        if len(self._connections) - len(self.half_open) >= limits.max_connections:
            return f"the node has {limits.max_connections} connections, as many as it may; try another, or later"
        if 0 < limits.max_connections_per_host <= self._hosts.get(host, 0):
            return (
                f"there are {limits.max_connections_per_host} connections from {host}, as many as one host may have"
            )
        return None

    def _make_room(self, now: float) -> bool:
        oldest = next(iter(self.half_open), None)
        if oldest is None or now - oldest.since < GRACE_S:
            return False
        self._turn_away(now)
        # Its place is free at once, though the loop takes its socket away a little later.
        del self.half_open[oldest]
        oldest.drop()
        return True

    def _turn_away(self, now: float) -> None:
        self.turned_away += 1
        if now - self._told_at >= TELL_EVERY_S:
            log_event(
                _log,
                logging.WARNING,
                "limit-hit",
                at="connection-turned-away",
                connections=self.turned_away - self._told,
                description=f"{self.limits.max_handshakes} are half-open, as many as may be (--max-handshakes)",
            )
            self._told_at, self._told = now, self.turned_away

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        for ticket in list(self.half_open):
            due = ticket.since + self.limits.handshake_timeout_s
            if due > now:
                self._timer = self._loop.call_at(due, self._expire)
                return
            self.timed_out += 1
            del self.half_open[ticket]
            ticket.drop()
