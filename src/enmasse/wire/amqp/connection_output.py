"""The output of a connection: frames, heartbeats, open and close [AMQP 2.4].

Rules:
1. What is to be written gathers in ``out`` until ``pending_output`` takes it, once per turn. The
   first chunk after that, or whatever else makes output due, calls ``wake``.
2. An end is reported once: links first, then sessions, then the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

from enmasse.message.outcomes import AmqpError
from enmasse.wire.amqp.errors import LocalError, RemoteError, SessionError
from enmasse.wire.amqp.framing import (
    AMQP_HEADER,
    HEARTBEAT,
    MIN_MAX_FRAME_SIZE,
    SASL_HEADER,
    amqp_frame,
    frame_within,
)
from enmasse.wire.amqp.handler import NOBODY, ConnectionHandler
from enmasse.wire.amqp.link import TURN_BYTES
from enmasse.wire.amqp.performatives import Begin, Close, Detach, Disposition, End, Open
from enmasse.wire.amqp.sasl import SaslClient, SaslServer
from enmasse.wire.amqp.session import Session
from enmasse.wire.amqp.session_output import INCOMING_WINDOW, OUTGOING_WINDOW, STALL_S, SessionOutput

MAX_FRAME_SIZE = 1 << 20
"""A frame of a stream fits into one transfer; larger ones only add latency for others."""

CHANNEL_MAX = 255
HANDLE_MAX = 4_095

HEARTBEATS = 3
"""Checks in each idle time-out of the peer that something was sent. Whatever was sent since the last check
counts, so that the longest silence is two of these intervals."""

MIN_IDLE_TIMEOUT_S = 0.1
"""A shorter idle time-out would have us do little else than keep the peer awake."""

MAX_PARTIAL_BYTES = 64 << 20
"""Bytes of the deliveries that a connection has begun and not ended, on all its links: four of
the largest messages that a stored address takes."""

ASSURED_BYTES = 64 << 10
"""The bytes that may wait for windows of sessions for ever."""

OPEN_TIMEOUT_S = 30.0
"""For the whole of header, SASL and open; a peer slower than that holds a socket for nothing."""


class Phase(Enum):
    """The phases of a connection."""

    HEADER = auto()
    SASL = auto()
    FRAMES = auto()
    LEFT = auto()
    """What the peer says is left as it is from its open on, as another may be to have it."""
    DISCARDING = auto()
    """We have closed it, all that was attached is gone, and what the peer says is not read [AMQP 2.4.6]."""
    DONE = auto()


def _asleep(_connection: ConnectionOutput) -> None:
    """Do nothing when there is output."""


def _in_time(_is_hot: bool) -> bool:
    """Return false: nothing else waits for its turn."""
    return False


def _no_more() -> bool:
    """Return false: there is no more room."""
    return False


def _any(_size: int) -> bool:
    """Return true: there is room for any message."""
    return True


def _none(_size: int) -> bool:
    """Return false: there is no more room in this turn."""
    return False


def _enough() -> None:
    """Do nothing with the room that is given back."""


class ConnectionOutput:
    """The state and the output of a connection; for its arguments see ``Connection``."""

    __slots__ = (
        "_chunks", "_created", "_desired", "_has_sent", "_holds", "_last_received", "_last_sent", "_missing",
        "_offered", "_phase", "_properties", "_sessions", "_sessions_due", "admits", "channel_max",
        "container_id", "cut_bytes", "cut_frames", "error", "handle_max", "handler", "has_more", "hostname",
        "idle_timeout_s", "is_blocked", "is_close_sent", "is_held", "is_late", "is_open_sent", "is_paused",
        "is_server", "kept_bytes", "less_room", "max_frame_size", "more_out", "more_room", "out", "out_bytes",
        "out_room", "partial_bytes", "partial_kept", "partial_room", "remote_channel_max", "remote_idle_s",
        "remote_max_frame_size", "remote_open", "sasl", "sessions", "trace", "wake",
    )  # fmt: skip

    def __init__(
        self,
        handler: ConnectionHandler,
        *,
        container_id: str,
        sasl: SaslServer | SaslClient | None = None,
        is_server: bool,
        now: float,
        hostname: str | None = None,
        idle_timeout_s: float = 60.0,
        max_frame_size: int = MAX_FRAME_SIZE,
        properties: dict[Any, Any] | None = None,
        offered_capabilities: tuple[str, ...] | None = None,
        desired_capabilities: tuple[str, ...] | None = None,
    ) -> None:
        self.handler = handler
        self.container_id = container_id
        self.hostname = hostname
        self.sasl = sasl
        self.is_server = is_server
        self.idle_timeout_s = idle_timeout_s
        self.max_frame_size = max_frame_size
        self.channel_max = CHANNEL_MAX
        self.handle_max = HANDLE_MAX
        self.remote_open: Open | None = None
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        self.remote_channel_max = 0
        self.remote_idle_s = 0.0
        self.is_open_sent = False
        self.is_close_sent = False
        self.is_paused = False
        """The socket takes nothing for now."""
        self.is_blocked = False
        """Every sending link is to hold back."""
        self.is_held = False
        """The peer's bytes are to be left unread, as what came cannot be passed on."""
        self._holds = 0
        self.partial_bytes = 0
        """Bytes of incomplete deliveries, on all links, and of an incomplete frame."""
        self.partial_room = MAX_PARTIAL_BYTES
        """Above so many of these ``more_room`` is called."""
        self.partial_kept = 0
        """Below so many of these ``less_room`` is called."""
        self.more_room: Callable[[], bool] = _no_more
        self.less_room: Callable[[], None] = _enough
        self.cut_bytes = 0
        """Bytes of a frame whose end has not come."""
        self.cut_frames = 0
        """The number of frames that came in more than one read."""
        self.error: AmqpError | None = None
        """The reason that the connection ended, once it has."""
        self.out: list[bytes | memoryview] = []
        self.out_bytes = 0
        self.kept_bytes = 0
        """The part of these that waits for the windows of sessions."""
        self.out_room = TURN_BYTES
        """Above so many of these ``more_out`` is called, with their number."""
        self.more_out: Callable[[int], bool] = _none
        self.admits: Callable[[int], bool] = _any
        self.wake: Callable[[Any], None] = _asleep
        self.is_late: Callable[[bool], bool] = _in_time
        """Asked between frames, with whether they are hot, whether what is left of a read is to wait."""
        self.has_more = False
        """True if something was left so: the next ``receive``, of nothing if need be, goes on with it."""
        self.trace: Callable[[bool, bytes], None] | None = None
        """Called with all bytes, those that we send with ``True``; read once per read and once per turn."""
        self.sessions: dict[int, Session] = {}
        """By the peer's channel."""
        self._sessions: dict[int, Session] = {}
        """By our channel."""
        self._sessions_due: dict[SessionOutput, None] = {}
        self._properties = properties
        self._offered = offered_capabilities
        self._desired = desired_capabilities
        self._chunks: list[bytes | bytearray | memoryview] = []
        self._missing = 0
        self._phase = Phase.HEADER
        self._created = now
        self._last_received = now
        self._last_sent = now
        self._has_sent = False
        if not is_server:
            self.put(SASL_HEADER if sasl is not None else AMQP_HEADER)
            if sasl is None:
                self.open()

    # Verbs of every engine

    def pending_output(self) -> list[bytes | memoryview]:
        """Take what is to be written now."""
        due = self._sessions_due
        while due:
            self._sessions_due = {}
            for session in due:
                session.flush()
            due = self._sessions_due
        out = self.out
        self.out = []
        self.out_bytes = self.kept_bytes
        if out:
            self._has_sent = True
            if self.trace is not None:
                self.trace(True, b"".join(out))
        return out

    @property
    def last_received(self) -> float:
        """The time at which the last bytes came, by the clock given to ``receive``."""
        return self._last_received

    @property
    def unread(self) -> bytes:
        """The beginning of a frame whose end has not come yet."""
        return b"".join(self._chunks)

    @property
    def _is_verdict_awaited(self) -> bool:
        """True if we have yet to decide on the peer's credentials."""
        sasl = self.sasl
        return isinstance(sasl, SaslServer) and sasl.is_waiting

    def next_deadline(self) -> float | None:
        """The time at which ``handle_deadline`` should be called next, by the clock given to ``receive``."""
        if self._phase in (Phase.DISCARDING, Phase.DONE):
            return None
        if self.remote_open is None:
            return self._created + OPEN_TIMEOUT_S
        deadlines = []
        if self.remote_idle_s and not self.is_close_sent:
            deadlines.append(self._last_sent + self.remote_idle_s / HEARTBEATS)
        if self.idle_timeout_s:
            deadlines.append(self._last_received + self.idle_timeout_s)
        return min(deadlines, default=None)

    def handle_deadline(self, now: float) -> None:
        """Do what is due: keep the peer awake, or give up a silent one."""
        if self._phase in (Phase.DISCARDING, Phase.DONE):
            return
        if self.remote_open is None:
            if self._is_verdict_awaited:
                # It is for our verdict that the peer waits.
                self._created = now
                return
            if now >= self._created + OPEN_TIMEOUT_S:
                self.fail(RemoteError("amqp:resource-limit-exceeded", f"no open within {OPEN_TIMEOUT_S:.0f} s"))
            return
        if self.idle_timeout_s and now >= self._last_received + self.idle_timeout_s:
            # A reader that is held back by us, or by its own full socket, is not silent of its own will.
            self.fail(RemoteError("amqp:resource-limit-exceeded", f"nothing came for {self.idle_timeout_s:.0f} s"))
            return
        if self.is_server and self.kept_bytes > ASSURED_BYTES:
            self._end_shut(now)
        if self._has_sent:
            self._has_sent = False
            self._last_sent = now
        elif self.remote_idle_s and now >= self._last_sent + self.remote_idle_s / HEARTBEATS:
            if not self.out:
                self.put(HEARTBEAT)
            self._last_sent = now

    def _end_shut(self, now: float) -> None:
        """End the sessions whose peers take nothing of what is kept for them."""
        for session in list(self._sessions.values()):
            if session.is_shut(now) and self.kept_bytes > ASSURED_BYTES:
                self.end_session(
                    session,
                    SessionError(
                        "amqp:resource-limit-exceeded",
                        f"nothing could be sent for {STALL_S:.0f} s while {self.kept_bytes} bytes wait for the "
                        "windows of the connection's sessions: open them, or grant less credit",
                    ),
                )

    @property
    def closed(self) -> bool:
        """True if nothing more will be received; once ``out`` is written the socket can go."""
        return self._phase is Phase.DONE

    # Output

    def put(self, chunk: bytes | memoryview) -> None:
        """Add to what is to be written."""
        if not self.out:
            self.wake(self)
        self.out.append(chunk)
        self.out_bytes += len(chunk)
        if self.out_bytes > self.out_room:
            self.fill()

    def say(self, channel: int, said: Close | Detach | Disposition | End) -> None:
        """Add a frame with an explanation to what is to be written, as far as the peer takes that."""
        self.put(frame_within(self.remote_max_frame_size, channel, said))

    def fill(self) -> None:
        """Block the output unless there is room for more of it in this turn."""
        if not self.more_out(self.out_bytes):
            self.block_output()

    def keep(self, more: int) -> None:
        """Count bytes that wait for a session's window, up or down."""
        self.kept_bytes += more
        self.out_bytes += more

    def kept_more(self) -> None:
        """Have it seen that something waits for a session's window, and whether there is room for it."""
        self.wake(self)
        if self.out_bytes > self.out_room:
            self.fill()

    def session_due(self, session: SessionOutput) -> None:
        """Have a session flushed before the next output."""
        if not self._sessions_due and not self.out:
            self.wake(self)
        self._sessions_due[session] = None

    def hold_input(self, is_held: bool) -> None:
        """Count who cannot pass on what has come, up or down."""
        self._holds += 1 if is_held else -1
        self.is_held = self._holds > 0
        self.wake(self)

    def has_room(self) -> bool:
        """Return true if what is not complete may be as much as it is."""
        return self.partial_bytes <= self.partial_room or self.more_room()

    def forget_partial(self, size: int) -> None:
        """So many bytes are part of something complete, or dropped."""
        self.partial_bytes -= size
        if self.partial_bytes < self.partial_kept:
            self.less_room()

    def block_output(self) -> None:
        """Have every sending link hold back until ``resume_output``."""
        if not self.is_blocked:
            self.is_blocked = True
            for session in list(self._sessions.values()):
                if not session.is_blocked:
                    session.tell_blocked(True)

    def resume_output(self) -> None:
        """The socket takes more: sending links may go on."""
        if self.is_blocked:
            self.is_blocked = False
            for session in list(self._sessions.values()):
                if not session.is_blocked:
                    session.tell_blocked(False)

    # Commands

    def open(self) -> None:
        """Send our open."""
        if self.is_open_sent:
            raise LocalError("the connection is open already")
        self.is_open_sent = True
        self.put(
            amqp_frame(
                0,
                Open(
                    container_id=self.container_id,
                    hostname=self.hostname,
                    max_frame_size=self.max_frame_size,
                    channel_max=self.channel_max,
                    # Half of what we wait, as the peer is asked to be quicker than the limit [AMQP 2.4.5].
                    idle_time_out=int(self.idle_timeout_s * 500) or None,
                    offered_capabilities=self._offered,
                    desired_capabilities=self._desired,
                    properties=self._properties,
                ),
            )
        )

    def begin(self) -> Session:
        """Begin a session; ``on_begun`` of the handler follows."""
        if self.is_close_sent or self._phase is Phase.DONE:
            raise LocalError("the connection is closed")
        if not self.is_open_sent:
            raise LocalError("the connection is not open yet")
        session = self._new_session()
        self._put_begin(session, None)
        return session

    def close(self, error: AmqpError | None = None) -> None:
        """Close the connection; what is attached is gone when the peer has answered."""
        if self.is_close_sent or self._phase is Phase.DONE:
            return
        for session in list(self._sessions.values()):
            if not session.is_end_sent:
                session.flush()
        if not self.is_open_sent:
            self.open()
        self.is_close_sent = True
        if error is not None:
            self.error = error
        self.say(0, Close(error))

    def fail(self, error: RemoteError) -> None:
        """End the connection at once because of a breach."""
        shown = AmqpError(error.condition, error.description)
        if self._phase is Phase.FRAMES:
            self.close(shown)
        self._finish(shown)

    def end_session(self, session: Session, error: SessionError) -> None:
        """End a session because of a breach, and ignore what still comes for it."""
        told = AmqpError(error.condition, error.description)
        session.end(told)
        session.is_ended = True
        if session.remote_channel is not None:
            self.sessions.pop(session.remote_channel, None)
        session.drop_links(told)
        self.handler.on_ended(session, told)

    def discard(self) -> None:
        """Detach all that is attached, though the peer has not answered our close, and read nothing more of it.

        A peer that answers ends the connection; else ``lost`` does, once it has had time to read the reason.
        """
        if self._phase is Phase.FRAMES and self.is_close_sent:
            self._finish(self.error)
            self._phase = Phase.DISCARDING

    def lost(self) -> None:
        """The socket is gone, or is to be closed."""
        self._finish(None)

    def _finish(self, error: AmqpError | None) -> None:
        if self._phase is Phase.DISCARDING:
            self._phase = Phase.DONE
            self.wake(self)
            return
        if self._phase is Phase.DONE:
            return
        self._phase = Phase.DONE
        self.has_more = False
        self.error = self.error or error
        sessions: Sequence[Session] = list(self._sessions.values())
        self._sessions.clear()
        self.sessions.clear()
        self._sessions_due.clear()
        self._chunks.clear()
        self.partial_bytes -= self.cut_bytes
        self.cut_bytes = 0
        for session in sessions:
            session.is_end_sent = True
            if not session.is_ended:
                session.is_ended = True
                session.drop_links(error)
                self.handler.on_ended(session, error)
        self.handler.on_closed(self.error)
        self.handler = NOBODY
        self.more_room, self.less_room = _no_more, _enough
        self.wake(self)

    def _new_session(self) -> Session:
        channel = 0
        while channel in self._sessions:
            channel += 1
        if channel > self.channel_max or (self.remote_open is not None and channel > self.remote_channel_max):
            raise RemoteError("amqp:resource-limit-exceeded", "the connection has no free channel")
        session = Session(self, channel)
        self._sessions[channel] = session
        return session

    def _put_begin(self, session: Session, remote_channel: int | None) -> None:
        self.put(
            amqp_frame(
                session.channel,
                Begin(
                    remote_channel=remote_channel,
                    next_outgoing_id=0,
                    incoming_window=INCOMING_WINDOW,
                    outgoing_window=OUTGOING_WINDOW,
                    handle_max=self.handle_max,
                ),
            )
        )
