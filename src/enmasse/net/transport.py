"""The shell between a protocol engine and its socket, for servers and clients alike.

Rules:
1. An engine hears of bytes at once, of as many in a turn as it takes in ``SHARE_S``: all others wait for
   it. It asks between frames whether that is over (``is_late``). What it wants to write is written at the
   end of the turn. Beside others, busy connections share one part of the turn, and their output may be
   gathered over several (``lanes``).
2. A peer that does not read is sent nothing more: where it is owed more than there is room for (on a server as
   ``owed`` says, on a client ``HIGH_WATER`` bytes), the engine's links are blocked and, on a server, the peer's own
   bytes are left in the socket. Clients go on reading, or two ends that both wait for the other to read would wait
   for ever. A server leaves a peer's bytes unread as well while the engine cannot pass on what it has (``is_held``).
3. A server's peer that reads nothing for ``STALL_S`` while more waits for it than is assured loses the connection:
   what waits is of use to nobody. So does one that reads next to nothing, where others have less and need the room,
   or twice as much waits as there is room for; and one that has never read what waited for it, where its like needs
   the room. What waits for another reason than the socket is the engine's to end: it is called at each look.
4. An exception out of an engine is our bug: it is logged, and costs only that connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from fcntl import ioctl
from termios import TIOCOUTQ
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from enmasse.net.connection_limiter import Slot
from enmasse.net.deadlines import Step
from enmasse.net.lanes import ConnectionLoad, HandshakeLane, Quantum
from enmasse.net.layer import Borrower, Layer
from enmasse.net.loop import Turn
from enmasse.net.owed import ASSURED_BYTES, MAX_BYTES, WRITE_BYTES, Owed, Room
from enmasse.net.tls_names import peer_names_of, presented_chain_of, server_name_of

if TYPE_CHECKING:
    from enmasse.net.proxy_layer import Proxied

HIGH_WATER = MAX_BYTES
"""Bytes owed to a peer above which it is asked to read first: as many as one turn may put out."""

LOW_WATER = HIGH_WATER // 4
"""Low enough to make the pause worth it, high enough that the socket never runs dry."""

SHARE_S = 0.0005
"""The time that one connection's bytes may keep a turn, in seconds."""

MIN_SHARE_BYTES = 32 << 10
"""Fewer bytes are not worth another turn."""

ALONE = Quantum(SHARE_S, MIN_SHARE_BYTES)

HOT_SHARES = 4
"""Shares that messages and their outcomes may take where few bytes of them last long: shorter turns would cost
those who send many more than others win."""

STALL_S = 60.0
"""Seconds that a peer may read nothing while more waits for it than is assured."""

RETRY_S = 0.25
"""Seconds until a peer for whose large message there is no room asks again."""

STALL_CHECKS = 6
"""Looks at it in that time."""

NEW_LOOKS = 5
"""The factor by which a peer that has never taken what waited for it is looked at more often."""

READ_BYTES = 1 << 20
"""A peer that has acknowledged more has read: its system keeps less for a program that does not."""

SLOW_RATE = ASSURED_BYTES / 10
"""The bytes a second that a peer has to read from one look to the next, or it may have to give way."""

LINGER_S = 5.0

LARGE_CHUNK_BYTES = 8 << 10
"""Chunks of this mean size are handed to the kernel from where they lie: copying them once more costs more
than it saves."""

FEW_CHUNKS = 256
"""More are small ones, as a turn's output is bounded, and worth joining."""

MAX_ADDED = 1 << 16
"""The most that one read may add to the backlog of turns, counted in receivers of messages: some 0.1 s of work. Much
at once is handed out with fewer writes."""

HANDSHAKE_FLUSHES = 8
"""A handshake is over after fewer writes; until then the deadline may still come closer."""

_NOTHING = memoryview(b"")

_AT_ONCE = struct.pack("ii", 1, 0)
"""A socket that lingers for no time is reset as it is closed."""

_log = logging.getLogger(__name__)


class Engine(Protocol):
    """The verbs of every protocol engine."""

    wake: Callable[[Any], None]
    is_late: Callable[[bool], bool]
    out_room: int
    """The bytes of output that it gathers before it asks ``more_out``."""
    out_bytes: int
    """Those that it has gathered, and those that it keeps as the peer is not ready for them."""
    more_out: Callable[[int], bool]
    """Returns true if so many bytes, which it has gathered, may become more: it blocks its output otherwise."""
    admits: Callable[[int], bool]
    """Returns true if there is room for one message of so many bytes: it blocks its output otherwise, for a while."""
    has_more: bool
    is_paused: bool
    is_blocked: bool
    is_held: bool

    @property
    def closed(self) -> bool:
        """True if the socket can go once the output is written."""

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes from the peer."""

    def pending_output(self) -> list[bytes | memoryview]:
        """Give what is to be written."""

    def next_deadline(self) -> float | None:
        """Tell when to call ``handle_deadline``."""

    def handle_deadline(self, now: float) -> None:
        """Do what is due."""

    def block_output(self) -> None:
        """Produce no more for now."""

    def resume_output(self) -> None:
        """Go on."""

    def lost(self) -> None:
        """The socket is gone."""


class EngineProtocol(Borrower):
    """One connection: an engine, its socket, and its place in the turn.

    Use it as the factory's product of ``create_server``, ``create_connection`` and their siblings
    for unix sockets: ``lambda: EngineProtocol(turn, make_engine)``.

    Args:
        turn: the turn of the loop that it runs on.
        make_engine: makes the engine when the socket is connected; it is given this shell, whose
            ``transport`` and ``peer`` are set, and may take the clock from ``turn.now``.
        yields: whether to leave bytes unread while the peer does not read (see rule 2).
        slot: its place among a server's connections.

    Attributes:
        engine: the engine, once connected.
        transport: the socket's transport, once connected.
        peer: the other end, as ``host:port``, or ``unix``; behind a load balancer the client's own address.
        proxied: what a load balancer says of the client; None: there is none between.
        is_secure: whether TLS protects the connection, with a load balancer that of the client as well.
        server_name: the host that the client named for TLS (SNI), in lower case.
        peer_names: the names in the peer's certificate, if it gave one and it was verified: the subject's
            common name, then DNS names and mail addresses.
        peer_chain: the certificates that the peer has presented, in DER, its own first.
        bytes_in: bytes read.
        bytes_out: bytes written.
        is_lost: whether the socket is gone.
        load: its lane, and how busy it keeps the loop once it is known whose it is.
    """

    __slots__ = (
        "__weakref__", "_added", "_began", "_closed", "_flushes", "_is_dirty", "_is_held", "_is_hung_up",
        "_is_input_over", "_is_over",
        "_is_put_off", "_is_reading_paused", "_is_slow", "_is_waiting", "_left", "_linger", "_make_engine", "_owed",
        "_pace", "_rest", "_share_s", "_stall", "_timer", "_timer_at", "_turn", "_yields", "bytes_in", "bytes_out",
        "engine", "is_lost", "is_secure", "load", "peer", "peer_chain", "peer_names", "proxied", "server_name",
        "slot", "transport",
    )  # fmt: skip
    engine: Engine
    transport: asyncio.Transport
    linger_s: ClassVar[float] = LINGER_S
    """The time that the last words to a peer may take to be read."""

    def __init__(
        self,
        turn: Turn,
        make_engine: Callable[[EngineProtocol], Engine],
        *,
        yields: bool = True,
        slot: Slot | None = None,
    ) -> None:
        self._turn = turn
        self._make_engine = make_engine
        self._yields = yields
        self._is_dirty = False
        self._is_held = False
        self._is_hung_up = False
        self._is_input_over = False
        """True if the peer says nothing more, and not all that it has said was taken, or answered, when that came."""
        self._is_put_off = False
        self._is_reading_paused = False
        self._is_waiting = False
        self._added = 0
        self._rest = _NOTHING
        self._pace = 0.0
        self._began = 0.0
        self._share_s = 0.0
        self._left = 0
        """The bytes that waited for the peer when its signs of life were looked for last."""
        self._owed: Owed | None = None
        """The bytes that the peer is owed, on a server."""
        self._is_over = False
        """True while the socket does not take everything."""
        self._is_slow = False
        """True if the peer has read next to nothing from one look to the next."""
        self._flushes = 0
        self._timer: asyncio.TimerHandle | Step | None = None
        self._timer_at = 0.0
        self._stall: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._closed: asyncio.Future[None] | None = None
        self.slot = slot
        self.load: ConnectionLoad | HandshakeLane | None = None if slot is None else slot.lane
        self.peer = ""
        self.proxied: Proxied | None = None
        self.is_secure = False
        self.server_name: str | None = None
        self.peer_names: tuple[str, ...] = ()
        self.peer_chain: tuple[bytes, ...] = ()
        self.bytes_in = 0
        self.bytes_out = 0
        self.is_lost = False

    @property
    def tls(self) -> str:
        """The version of TLS and its cipher, by which the client has come; empty without TLS."""
        if self.proxied is not None and self.proxied.header.tls is not None:
            given = self.proxied.header.tls
            return f"{given.version} {given.cipher}".strip()
        tls = self.transport.get_extra_info("ssl_object") if self.is_secure else None
        cipher = None if tls is None else tls.cipher()
        return f"{tls.version()} {cipher[0]}" if tls is not None and cipher is not None else ""

    @property
    def via(self) -> str:
        """The node that has taken the connection and handed it over; empty: it was this one."""
        return "" if self.proxied is None else self.proxied.front

    @property
    def is_stalled(self) -> bool:
        """True if the peer is not read, as it does not read itself."""
        return self._is_reading_paused

    @property
    def refusal(self) -> str | None:
        """Why the peer is not to be admitted, if so."""
        return None if self.slot is None else self.slot.refusal

    # What the socket does

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected: make the engine and write what it says first."""
        # uvloop's transports implement the interface without inheriting it.
        self.transport = transport = cast("asyncio.Transport", transport)
        self.peer = _describe_peer(transport)
        tls = transport.get_extra_info("ssl_object")
        proxied: Proxied | None = transport.get_extra_info("proxied")
        if proxied is not None:
            self.proxied = proxied
            self.is_secure = proxied.is_private(tls)
            self.server_name = proxied.header.authority
            self.peer_names = proxied.names
            self.peer_chain = proxied.chain
            tls = proxied.client_tls(tls)
        if tls is not None:
            self.is_secure = True
            self.server_name = server_name_of(tls) or self.server_name
            self.peer_names = peer_names_of(tls)
            self.peer_chain = presented_chain_of(tls)
        transport.set_write_buffer_limits(high=HIGH_WATER, low=LOW_WATER)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._turn.begin()
        self._take(self._make_engine(self))
        if self._owed is not None:
            # So it is known when the socket has taken everything, and when it has not.
            transport.set_write_buffer_limits(high=0, low=0)
        self._wake(self.engine)
        self._arm()

    def _take(self, engine: Engine) -> None:
        self.engine = engine
        engine.wake = self._wake
        engine.is_late = self._is_late
        if self._owed is not None:
            engine.out_room = self._owed.room
            engine.more_out = self._more_out
            engine.admits = self._admits

    def replace(self, engine: Engine) -> list[bytes | memoryview]:
        """Have another engine serve the connection from now on; the former one is not called any more.

        Must not be called out of an engine.

        Returns:
            What the former one has yet to write.
        """
        former = self.engine
        rest = former.pending_output()
        former.wake, former.is_late, former.more_out, former.admits = _nobody, _never, _never, _never
        self._disarm()
        self._turn.begin()
        self._take(engine)
        if former.is_paused:
            engine.is_paused = True
            engine.block_output()
        if self._is_held and not (self._rest or self._is_put_off or engine.is_held):
            # Nothing has come that a turn is needed for.
            self._is_held = False
            if self._may_read():
                self.transport.resume_reading()
        self._is_dirty = False
        self._wake(engine)
        self._arm()
        return rest

    def limit_output(self, make_holder: Callable[[Callable[[], None]], Room]) -> None:
        """Have what the peer is owed count against a budget; to be called while its engine is made, or replaced.

        Args:
            make_holder: returns the peer's place in it, given the function by which the peer gives way to others.
        """
        if self._owed is not None:
            self._owed.release()
        self._owed = Owed(lambda: make_holder(self._give_way))

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        self._receive(data)

    def eof_received(self) -> bool:
        """Close the connection, as the peer says nothing more; unless the engine has yet to tell it something."""
        self._turn.begin()
        # What has come is taken first, and what is said to it is written.
        is_pending = self._is_dirty or not self._has_taken_all()
        # The loop's own TLS, which clients have, is closed at both ends at once.
        self._is_input_over = is_pending and (isinstance(self.transport, Layer) or self.transport.can_write_eof())
        return self._is_input_over or (not is_pending and self._end_input())

    def _has_taken_all(self) -> bool:
        return not (self._rest or self._is_put_off or self._is_waiting)

    def _end_input(self) -> bool:
        end_input = getattr(self.engine, "end_input", None)
        return end_input is not None and bool(end_input())

    def data_lent(self, data: memoryview) -> None:
        """Bytes have come, and lie where others will lie as soon as this returns."""
        self._receive(data)
        if self._rest.obj is data.obj:
            self._rest = memoryview(bytes(self._rest))

    def _receive(self, data: bytes | memoryview) -> None:
        self.bytes_in += len(data)
        self._turn.begin()
        load = self.load
        if self._is_waiting:
            self._rest = memoryview(b"".join((self._rest, data)))
        elif load is None:
            self._receive_slice(data, ALONE)
        elif not load.lane.is_shared():
            self._receive_alone(load, data)
        elif load.lane.is_full() and not self.transport.is_closing():
            self._rest = memoryview(b"".join((self._rest, data)))
            self.transport.pause_reading()
            self._put_off()
        else:
            self._receive_shared(load, data)

    def _receive_shared(self, load: ConnectionLoad | HandshakeLane, data: bytes | memoryview) -> None:
        lane = load.lane
        seconds = self._receive_slice(data, lane.quantum)
        lane.charge(seconds)
        load.add(seconds, self._turn.now)

    def _receive_alone(self, load: ConnectionLoad | HandshakeLane, data: bytes | memoryview) -> None:
        seconds = self._receive_slice(data, ALONE)
        load.lane.charge(seconds)
        load.add(seconds, self._turn.now)

    def _receive_slice(self, data: bytes | memoryview, quantum: Quantum) -> float:
        """Take as much as others may wait for, and the rest in the turns that follow; how long it took."""
        self._share_s = quantum.seconds
        self._began = began = perf_counter()
        engine = self.engine
        least = quantum.least
        size = len(data)
        most = size if size <= least else max(least, int(self._pace * quantum.seconds))
        part = bytes(data if size <= most else data[:most])
        self._added = added = self._turn.backlog.added
        self._guard("input from", engine.receive, part, self._turn.now)
        if self._turn.backlog.added != added:
            self._wait_for_backlog()
        seconds = perf_counter() - began
        if size > least and not engine.has_more:
            self._pace = len(part) / seconds
        if (size > most or engine.has_more) and (self.is_lost or not self.transport.is_closing()):
            self._rest = memoryview(data)[most:]
            if not self.is_lost:
                self.transport.pause_reading()
            self._put_off()
        return seconds

    def _wait_for_backlog(self) -> None:
        """Read no more until what was brought is done (``fan_out``): others have turns meanwhile."""
        self._is_waiting = True
        if not (self.is_lost or self.transport.is_closing()):
            self.transport.pause_reading()
        self._turn.backlog.after(self._backlog_done)

    def _backlog_done(self) -> None:
        self._is_waiting = False
        self._put_off()

    def _put_off(self) -> None:
        """Have reading go on in one of the turns that follow."""
        if not self._is_put_off:
            self._is_put_off = True
            if self.load is not None and self.load.lane.is_shared():
                self.load.lane.enqueue(self._read_on)
            else:
                self._turn.later(self._read_on)

    def _is_late(self, is_hot: bool) -> bool:
        """True if others have waited long enough for what the engine takes, or the peer for what it is owed."""
        if self._turn.backlog.added - self._added > MAX_ADDED:
            return True
        if self.engine.is_blocked and self._yields and not self.is_lost:
            return True
        return perf_counter() - self._began >= (HOT_SHARES if is_hot else 1) * self._share_s

    def _read_on(self) -> None:
        """Take what has come, then what comes, unless that is to wait (rule 2)."""
        self._is_put_off = False
        if self.is_lost:
            self._lose_in_lane()
            return
        if self._may_read():
            self._receive_rest()
            if not (self._rest or self.engine.has_more) and self._may_read():
                if not self._is_input_over:
                    self.transport.resume_reading()
                elif not (self._is_dirty or self._end_input()):
                    self.transport.close()
        # Reading is paused: a hold that ends with this turn has it go on, too.
        self._is_held |= self.engine.is_held

    def _receive_rest(self) -> None:
        data, self._rest = self._rest, _NOTHING
        if not data and not self.engine.has_more:
            return
        if self.load is None:
            self._receive_slice(data, ALONE)
        elif self.load.lane.is_shared():
            self._receive_shared(self.load, data)
        else:
            self._receive_alone(self.load, data)

    def _may_read(self) -> bool:
        return not (self._is_waiting or self._is_reading_paused or self.engine.is_held or self.transport.is_closing())

    # What the peer is owed

    def _more_out(self, size: int) -> bool:
        """True if the engine may gather more output in this turn than so many bytes."""
        owed = self._owed
        assert owed is not None  # or the engine would not ask
        if self.is_lost or not owed.has_room(owed.waiting + size):
            return False
        self.engine.out_room = owed.room - owed.waiting
        return True

    def _admits(self, size: int) -> bool:
        """True if there is room for a large message; the engine is paused otherwise, and goes on to ask again."""
        owed, engine = self._owed, self.engine
        if owed is None or self.is_lost:
            return True
        kept = owed.waiting + engine.out_bytes
        is_admitted = owed.admits(kept, size)
        if not (is_admitted or owed.has_read) and self._has_read():
            owed.has_read = True
            is_admitted = owed.admits(kept, size)
        if is_admitted:
            engine.out_room = owed.room - owed.waiting
            self._turn.later(self._tidy)
            return True
        if self._is_over:
            # It goes on once the socket has taken everything.
            engine.is_paused = True
        elif not (engine.is_paused or self._is_dirty):
            # Who has output in this turn asks again in the next one.
            engine.is_paused = True
            self._turn.loop.call_later(RETRY_S, self._retry)
        self._guard("blocking", engine.block_output)
        return False

    def _has_read(self) -> bool:
        """Return true if the peer's system has acknowledged more than it keeps for a program that reads nothing."""
        sock = self.transport.get_extra_info("socket")
        queued = bytearray(4)
        try:
            ioctl(sock.fileno(), TIOCOUTQ, queued)
        except (AttributeError, OSError):
            return False
        left = self.transport.get_write_buffer_size() + int.from_bytes(queued, sys.byteorder)
        return self.bytes_out - left > READ_BYTES

    def _tidy(self) -> None:
        """Give back the room of a message that was not sent after all."""
        owed = self._owed
        if owed is not None and owed.is_extra and not self._is_over:
            self._release(owed)

    def _retry(self) -> None:
        """Let the engine ask for room again, unless it waits for the socket."""
        if not self._is_over and not self.is_lost:
            # It may not ask, and would be taken for one that waits.
            self._tidy()
            self.engine.is_paused = False
            self._turn.later(self._resume)

    def pause_writing(self) -> None:
        """The peer does not keep up."""
        owed = self._owed
        if owed is None:
            self._pause()
            return
        self._is_over = True
        owed.waiting = self.transport.get_write_buffer_size()
        self._weigh(owed)

    def _weigh(self, owed: Owed) -> None:
        """Give the engine the room that is left beside what waits for the socket, or pause it if there is none."""
        if not owed.has_room(owed.waiting):
            self._pause()
        self.engine.out_room = max(0, owed.room - owed.waiting)
        if owed.is_extra:
            self._watch()

    def _pause(self) -> None:
        self.engine.is_paused = True
        self._guard("blocking", self.engine.block_output)
        if self._yields and not self._is_reading_paused and not self.transport.is_closing():
            self._is_reading_paused = True
            self._left = self.transport.get_write_buffer_size()
            self.transport.pause_reading()
            self._watch()

    def _watch(self) -> None:
        """Look from now on whether the peer reads, as more waits for it than is assured."""
        if self._stall is None and not self.is_lost:
            self._look_again(self.bytes_out - self.transport.get_write_buffer_size(), 0.0)

    def _look_again(self, taken: int, idle_s: float) -> None:
        owed = self._owed
        seconds = STALL_S / STALL_CHECKS
        if owed is not None and not owed.has_read:
            seconds /= NEW_LOOKS
        self._stall = self._turn.loop.call_later(seconds, self._check_stall, seconds, taken, idle_s)

    def _check_stall(self, seconds: float, before: int, idle_s: float) -> None:
        """Drop a peer that has read nothing at any of the last looks, and look no more if nothing waits.

        Args:
            seconds: the time since the last look.
            before: the bytes that it had taken then.
            idle_s: the seconds for which it had taken nothing then.
        """
        self._stall = None
        owed = self._owed
        if self.is_lost or not (self._is_reading_paused or (owed is not None and owed.is_extra)):
            return
        left = self.transport.get_write_buffer_size()
        taken = self.bytes_out - left
        self._is_slow = taken - before < SLOW_RATE * seconds
        if self._is_slow and owed is not None and owed.is_needed:
            self._give_way()
            return
        idle_s = idle_s + seconds if left and taken <= before else 0.0
        if idle_s < STALL_S - seconds / 2:
            self._look_again(taken, idle_s)
            # What waits for another reason than the socket is the engine's to end.
            self._guard("a look at", self._keep_time, self._turn.begin())
            return
        _log.warning(
            "%s has read nothing for %.0f s while %d bytes wait for it: it is disconnected", self.peer, STALL_S, left
        )
        self.abort()

    def _give_way(self) -> None:
        """Drop the peer, if it reads next to nothing, as others need the room of what waits for it."""
        if self._is_slow and not self.is_lost and self._owed is not None:
            _log.warning("%s reads next to nothing, and others need the room: it is disconnected", self.peer)
            self._owed.release()
            self.abort()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        owed = self._owed
        self._is_slow = False
        if owed is not None:
            self._is_over = False
            owed.has_read |= owed.is_extra
            self._release(owed)
            if not self.engine.is_paused:
                return
        self.engine.is_paused = False
        if self._is_reading_paused:
            self._is_reading_paused = False
            self._put_off()
        self._turn.later(self._resume)

    def _release(self, owed: Owed) -> None:
        """Give the room back, as the socket has taken everything, but for what the engine keeps."""
        owed.release()
        if self.engine.out_bytes > ASSURED_BYTES:
            owed.has_room(self.engine.out_bytes)
            self._watch()
        self.engine.out_room = owed.room

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self.is_lost = True
        if self.slot is not None:
            self.slot.leave()
        self._disarm()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self._owed is not None:
            self._owed.release()
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        self._turn.begin()
        if self._is_put_off:
            return
        if self.slot is not None and self.slot.lane.is_full():
            self._is_put_off = True
            self.slot.lane.enqueue(self._read_on)
        else:
            self._lose_in_lane()

    def _lose_in_lane(self) -> None:
        began = perf_counter()
        self._lose()
        if self.slot is not None:
            self.slot.lane.charge(perf_counter() - began)

    def _lose(self) -> None:
        """Tell the engine of the loss once it has taken what came before, in turns as ever."""
        if self._is_waiting:
            return
        if not self.engine.is_held:
            self._receive_rest()
            if self._rest or self.engine.has_more or self._is_waiting:
                return
        self._rest = _NOTHING
        engine = self.engine
        self._guard("the loss of", engine.lost)
        # They know each other.
        engine.wake, engine.is_late, engine.more_out, engine.admits = _nobody, _never, _never, _never
        self._owed = None
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    # What the engine does

    def _wake(self, _engine: Engine) -> None:
        if not self._is_dirty:
            self._is_dirty = True
            self._turn.mark(self)

    def flush(self) -> None:
        """Write what the engine has to say, unless its lane puts that off; called at the end of a turn."""
        if self.load is not None and self.load.lane.defers(self):
            return
        self._guard("output for", self._write)
        self._is_dirty = False

    def _write(self) -> None:
        engine = self.engine
        chunks = engine.pending_output()
        if self.is_lost or self._is_hung_up:
            return
        owed = self._owed
        if chunks:
            was_over = self._is_over
            # What the socket does not take is watched as it is written, by what was written in all.
            if len(chunks) <= FEW_CHUNKS and (size := sum(map(len, chunks))) >= LARGE_CHUNK_BYTES * len(chunks):
                self.bytes_out += size
                self.transport.writelines(chunks)
            else:
                data = b"".join(chunks)
                size = len(data)
                self.bytes_out += size
                self.transport.write(data)
            if was_over and owed is not None:
                owed.waiting += size + WRITE_BYTES
                self._weigh(owed)
        if owed is not None and owed.is_extra and not self._is_over:
            self._release(owed)
        if engine.closed:
            self._hang_up()
            return
        if engine.is_held is not self._is_held:
            self._is_held = engine.is_held
            if self._is_held:
                self.transport.pause_reading()
            else:
                self._put_off()
        elif (self._rest or engine.has_more) and not engine.is_held:
            self._put_off()
        if engine.is_blocked and not engine.is_paused:
            self._turn.later(self._resume)
        elif self._is_input_over and self._has_taken_all() and not self._end_input():
            self.transport.close()
        if self._flushes < HANDSHAKE_FLUSHES:
            self._flushes += 1
            self._arm()

    def _resume(self) -> None:
        engine = self.engine
        if engine.is_blocked and not engine.is_paused and not self.is_lost:
            self._guard("resuming", engine.resume_output)

    # Time

    def _arm(self) -> None:
        """Have the timer run at the engine's deadline, if it would run too late or not at all."""
        deadline = self.engine.next_deadline()
        if deadline is None or self.is_lost:
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._disarm()
        self._timer_at = deadline
        turn = self._turn
        self._timer = turn.deadlines.add(deadline, self) or turn.loop.call_at(deadline, self.on_deadline)

    def _disarm(self) -> None:
        timer, self._timer = self._timer, None
        if isinstance(timer, Step):
            timer.cancel(self)
        elif timer is not None:
            timer.cancel()

    def on_deadline(self) -> None:
        """Let the engine do what is due."""
        self._timer = None
        # A timer may be a little early by the turn's clock, and would then run again and again.
        self._guard("a deadline of", self._keep_time, max(self._turn.begin(), self._timer_at))

    def _keep_time(self, now: float) -> None:
        if self._is_held or self._is_waiting:
            # It is for us that the peer is not heard.
            self.engine.receive(b"", now)
        elif self._is_reading_paused:
            left = self.transport.get_write_buffer_size()
            if left < self._left:
                # We do not read the peer, so its reading is the sign of life that counts.
                self.engine.receive(b"", now)
            self._left = left
        self.engine.handle_deadline(now)
        self._arm()

    # The end

    def _hang_up(self) -> None:
        self._is_hung_up = True
        # Where the peer was quicker, asyncio over TLS takes this for a second close; Python 3.11.2 fails at abort.
        if not self.transport.is_closing():
            self.transport.close()
        self._linger = self._turn.loop.call_later(self.linger_s, self.transport.abort)

    def abort(self) -> None:
        """Drop the socket without another word."""
        if not self.is_lost:
            self.transport.abort()

    def reset(self) -> None:
        """Drop the socket so that the peer hears of it at once: one that waits for its socket to fail, say.

        What the peer has not read yet may be lost.
        """
        if not self.is_lost:
            sock = self.transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self.abort()

    def reset_later(self, seconds: float) -> None:
        """Reset the connection if it has not ended by then."""
        self._turn.loop.call_later(seconds, self.reset)

    def reset_once_closed(self, seconds: float) -> None:
        """Have the peer's socket fail, if the peer has not closed it within so many seconds of this end."""
        sock = self.transport.get_extra_info("socket")
        if self.is_lost or sock is None:
            return
        loop = self._turn.loop
        with suppress(OSError):  # there are too many files
            # A number, which may be left behind where the loop ends before that: so does the process then.
            kept = os.dup(sock.fileno())

            def reset() -> None:
                with socket.socket(fileno=kept) as ending:
                    ending.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)

            def end(_closed: object) -> None:
                ending = socket.socket(fileno=kept)
                with suppress(OSError):  # the peer is gone
                    ending.shutdown(socket.SHUT_WR)
                ending.detach()
                loop.call_later(seconds, reset)

            if self._closed is None:
                self._closed = loop.create_future()
            self._closed.add_done_callback(end)

    def _guard(self, what: str, call: Callable[..., None], *arguments: Any) -> None:
        """Call into the engine; should it fail, drop the connection."""
        try:
            call(*arguments)
        except Exception:  # noqa: BLE001  whatever it is, only this connection may suffer
            _log.exception("The engine failed at %s %s", what, self.peer)
            self.abort()

    async def wait_closed(self) -> None:
        """Wait until the socket is gone."""
        if self.is_lost:
            return
        if self._closed is None:
            self._closed = self._turn.loop.create_future()
        await asyncio.shield(self._closed)


def _nobody(_engine: Any) -> None:
    """Wake nobody, as the socket is gone."""


def _never(_value: int) -> bool:
    """Return false: nobody waits for the engine, and it has nothing to say any more."""
    return False


def _describe_peer(transport: asyncio.Transport) -> str:
    name = transport.get_extra_info("peername")
    if isinstance(name, tuple):
        host, port = name[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    # Whoever comes to a balancer's socket is not on this machine.
    return "unix" if transport.get_extra_info("proxied") is None else "proxied-unix"
