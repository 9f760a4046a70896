"""Limits the connections of a node's ports: how many there may be, and how long each may take to open.

Rules:
1. A connection is *half-open* from the moment it is accepted until its protocol says that it is open. It has
   ``handshake_timeout_s`` for that, whatever it has sent meanwhile. What has come by then is taken first, however
   late the node is with that.
2. Half-open connections have slots of their own, shared fairly by addresses (IPv6: networks of /64). When all are
   taken, the address that has most loses one to an address that has fewer. Otherwise the newcomer's address loses
   the one that has waited longest, as an honest peer is quicker than that. If even that one is younger than
   ``GRACE_S``, the newcomer is turned away.
3. While the node itself is busy with what a peer has sent, as with its password, the peer has no part in that: its
   connection is *suspended*, is not half-open, and has all of the time again afterwards.
4. A connection above the other limits is accepted, and closed with the reason in its own protocol: see
   ``Slot.refusal``.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable
from dataclasses import dataclass

from enmasse.errors import ConfigError
from enmasse.identity.throttle import network_of
from enmasse.net.lanes import HandshakeLane
from enmasse.net.logs import log_event
from enmasse.net.loop import Turn
from enmasse.net.shares import Shares

GRACE_S = 1.0
"""The age from which on a half-open connection may lose its slot: a handshake across the world takes half of it."""

OTHER_FILES = 256
"""The file descriptors of a process that are not connections of its ports: stores, logs, management, libraries."""

MIN_FILES = 512
"""The fewest file descriptors with which a process that has ports starts: as many for connections as for the rest."""

LOG_EVERY_S = 10.0
"""Connections that are turned away are counted in one line of the log in so many seconds."""

_log = logging.getLogger(__name__)


def room_for_connections() -> int:
    """Raise this process' limit of file descriptors as far as it may, and return how many connections that allows.

    Raises:
        ConfigError: it may not have as many as ``MIN_FILES``.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return 1 << 30  # more than any port takes
    if hard < MIN_FILES:
        raise ConfigError(
            f"the limit of open files is {hard}, and at least {MIN_FILES} are needed: {OTHER_FILES} for files of "
            "ours, and one for each connection. Raise it where this is started, as by `ulimit -n 4096`, LimitNOFILE= "
            "of systemd, or --ulimit nofile=4096 of a container"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - OTHER_FILES


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of a node's ports, for all of them together."""

    max_connections: int = 20_000
    """The most open connections; an idle one takes about 10 KiB."""

    max_connections_per_host: int = 0
    """The most connections from one IP address, or /64 of IPv6; 0 is no limit, as clients may share a proxy."""

    max_handshakes: int = 5_000
    """The most half-open connections: as many clients as may come back at once. Each takes about 2 KiB."""

    handshake_timeout_s: float = 10.0
    """The time from the accepted socket to the open connection, in seconds."""


class Slot:
    """A connection's slot among those that the limiter grants.

    Attributes:
        network: the peer's address, or its network; connections are counted by it.
        refusal: the reason why the connection is to be closed, if it is; its protocol sends it to the peer.
    """

    __slots__ = ("_limiter", "_transport", "network", "refusal", "since")

    def __init__(
        self,
        limiter: ConnectionLimiter,
        transport: asyncio.Transport,
        network: str,
        since: float,
        refusal: str | None,
    ) -> None:
        self._limiter = limiter
        self._transport: asyncio.Transport | None = transport
        self.network = network
        self.since = since
        """The time at which the time limit began to run, by the loop's clock."""
        self.refusal = refusal

    @property
    def lane(self) -> HandshakeLane:
        """The lane of the connection until it is open, and when it is lost."""
        return self._limiter.lane

    @property
    def is_half_open(self) -> bool:
        """True until the connection is admitted."""
        return self in self._limiter.half_open

    def admit(self) -> None:
        """Mark the connection as open."""
        self._limiter.admit(self)
        self._transport = None

    def suspend(self) -> None:
        """Let no time run, as the peer waits for the node."""
        self._limiter.admit(self)

    def resume(self) -> None:
        """Let the time run again, from its beginning."""
        if self._transport is not None:
            self._limiter.resume(self)

    def leave(self) -> None:
        """Give the slot back, as the connection is closed."""
        self._limiter.close(self)

    def drop(self) -> None:
        """Abort the connection if it is half-open."""
        if self._transport is not None:
            self._transport.abort()


class ConnectionLimiter:
    """Counts the connections of a node's ports and refuses those beyond its limits.

    Args:
        turn: the turn of the loop.
        limits: the most that there may be.

    Attributes:
        lane: schedules the connections that are not open.
        half_open: the slots of connections that are not admitted yet, in the order of their arrival.
        turned_away: the number of connections that were aborted for want of a slot.
        timed_out: the number of those that did not open in time.
        count_changed: called when the number of connections has changed.
    """

    def __init__(self, turn: Turn, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.lane = HandshakeLane(turn)
        self.half_open: dict[Slot, None] = {}
        self.turned_away = 0
        self.timed_out = 0
        self.count_changed: Callable[[], object] | None = None
        self._loop = turn.loop
        self._turn = turn
        self._shares: Shares[Slot] = Shares(limits.max_handshakes)
        self._connections: set[Slot] = set()
        self._networks: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._logged_at = -LOG_EVERY_S
        self._logged = 0

    def __len__(self) -> int:
        """Return the number of connections, half-open ones included."""
        return len(self._connections)

    @property
    def is_full(self) -> bool:
        """True if there are as many connections as may be, half-open ones included."""
        return len(self._connections) >= self.limits.max_connections

    def enter(self, transport: asyncio.Transport) -> Slot | None:
        """Return a slot for a new connection, or None if the connection has to be aborted."""
        now = self._loop.time()
        peer = transport.get_extra_info("peername")
        network = network_of(str(peer[0])) if isinstance(peer, tuple) and peer else ""
        slot = Slot(self, transport, network, now, self._refusal(network))
        if self._shares.is_full and not self._make_room(slot):
            self._turn_away(now)
            return None
        self._connections.add(slot)
        self._networks[network] = self._networks.get(network, 0) + 1
        self._begin(slot)
        if self.count_changed is not None:
            self.count_changed()
        return slot

    def _begin(self, slot: Slot) -> None:
        self.half_open[slot] = None
        self._shares.take((slot.network,), slot)
        if self._timer is None:
            self._timer = self._loop.call_at(slot.since + self.limits.handshake_timeout_s, self._expire)

    def resume(self, slot: Slot) -> None:
        """Count a connection as half-open again, perhaps beyond their number: the node has let it wait."""
        if slot in self._connections and slot not in self.half_open:
            slot.since = self._loop.time()
            self._begin(slot)

    def admit(self, slot: Slot) -> None:
        """Mark a connection as open or suspended; it does not count as half-open."""
        if slot in self.half_open:
            del self.half_open[slot]
            self._shares.leave((slot.network,), slot)

    def close(self, slot: Slot) -> None:
        """Take a slot back."""
        if slot in self._connections:
            self._connections.remove(slot)
            self.admit(slot)
            left = self._networks.pop(slot.network) - 1
            if left:
                self._networks[slot.network] = left
            if self.count_changed is not None:
                self.count_changed()

    def shut(self) -> None:
        """Abort every half-open connection, as the node stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for slot in list(self.half_open):
            slot.drop()

    def _refusal(self, network: str) -> str | None:
        limits = self.limits
        if len(self._connections) - len(self.half_open) >= limits.max_connections:
            return f"the node has {limits.max_connections} connections, as many as it may; try another, or later"
        if 0 < limits.max_connections_per_host <= self._networks.get(network, 0):
            most = limits.max_connections_per_host
            return f"there are {most} connections from {network}, as many as one host may have"
        return None

    def _make_room(self, newcomer: Slot) -> bool:
        owner = (newcomer.network,)
        leaver = next(self._shares.richer_than(owner), None)
        if leaver is None:
            leaver = next(iter(self._shares.of(owner) or self.half_open), None)
            if leaver is None or newcomer.since - leaver.since < GRACE_S:
                return False
        self._turn_away(newcomer.since)
        # The slot is free at once, though the loop closes the socket a little later.
        self.admit(leaver)
        leaver.drop()
        return True

    def _turn_away(self, now: float) -> None:
        self.turned_away += 1
        if now - self._logged_at >= LOG_EVERY_S:
            log_event(
                _log,
                logging.WARNING,
                "limit-hit",
                at="connection-turned-away",
                connections=self.turned_away - self._logged,
                description=f"{self.limits.max_handshakes} are half-open, as many as may be (--max-handshakes)",
            )
            self._logged_at, self._logged = now, self.turned_away

    def _expire(self) -> None:
        """Drop whose time is over by now, once what has come is taken: from sockets, then from the lane."""
        now = self._loop.time()
        enqueue, later = self.lane.enqueue, self._turn.later
        # What is read may be put off twice: until its protocol is known, and until that takes it.
        later(lambda: later(lambda: enqueue(lambda: enqueue(lambda: self._drop_due(now)))))

    def _drop_due(self, now: float) -> None:
        self._timer = None
        for slot in list(self.half_open):
            due = slot.since + self.limits.handshake_timeout_s
            if due > now:
                self._timer = self._loop.call_at(due, self._expire)
                return
            self.timed_out += 1
            self.admit(slot)
            slot.drop()
