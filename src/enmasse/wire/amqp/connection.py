"""Connections: negotiation, frames, channels, time-outs [AMQP 2.2 - 2.4].

Rules:
1. One class for both roles; the only difference is who speaks first.
2. ``receive`` never raises for what a peer sent: a breach closes the session or the connection with
   the condition that names it.
3. What is said is in ``connection_output``.
"""

from __future__ import annotations

import struct

from enmasse.message.composites import decode_composite
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import AmqpError
from enmasse.wire.amqp.connection_output import MAX_FRAME_SIZE, MIN_IDLE_TIMEOUT_S, ConnectionOutput, Phase
from enmasse.wire.amqp.errors import FramingError, RemoteError, SessionError
from enmasse.wire.amqp.framing import (
    AMQP_HEADER,
    FRAME_HEAD,
    MIN_MAX_FRAME_SIZE,
    SASL_HEADER,
    amqp_frame,
    gather,
)
from enmasse.wire.amqp.performatives import Attach, Begin, Close, Composite, Detach, End, Open
from enmasse.wire.amqp.sasl import SaslServer
from enmasse.wire.amqp.session import Session

__all__ = ["SPEAKS_TLS", "Connection"]

SPEAKS_TLS = "the peer speaks TLS"
"""The description of the error for a peer that answers in the clear with a record of TLS."""

SASL_FRAME_BYTES = 16_384
"""Room for a bearer token; nothing else of SASL comes near it."""

SOON_S = 2.0
"""The silence after which a peer that was refused is given up: it says something every half of a second at least."""

SLICE_BYTES = 4_096
"""After so many bytes of frames that are hot, and after each other frame, it is asked whether the rest is to wait."""

_U32 = struct.Struct(">I")

_CLOSE = b"\x00\x53\x18"
"""A close begins so. In a message that is discarded it ends the connection a little earlier, which harms nobody."""


class Connection(ConnectionOutput):
    """One end of an AMQP connection, without a socket.

    Args:
        handler: hears what happens.
        container_id: the name by which we call ourselves.
        sasl: our side of SASL; ``None`` does without.
        is_server: whether the peer speaks first.
        now: the clock, in seconds.
        hostname: the host, and so the space, that a client asks for.
        idle_timeout_s: silence after which we give the peer up; 0 waits for ever.
        max_frame_size: the largest frame that we take, in bytes.
        properties: the properties that we tell of ourselves in open.
        offered_capabilities: extensions that we support.
        desired_capabilities: extensions that we want.
    """

    __slots__ = ()

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes from the peer; whatever follows from them is in ``out`` and has been called."""
        self._last_received = now
        if self._phase is Phase.DONE:
            return
        if self._phase is Phase.DISCARDING:
            if _CLOSE in data:
                self._finish(None)
            return
        if self.trace is not None and data:
            self.trace(False, data)
        if self._phase is Phase.LEFT:
            if data:
                self._chunks.append(data)
            return
        missing = self._missing
        at = 0
        if missing:
            if self.has_more:
                if self.is_held:
                    if data:
                        gather(self._chunks, data)
                    return
            elif len(data) < missing:
                gather(self._chunks, data)
                self._missing = missing - len(data)
                if not self._has_room_for_cut(len(data)):
                    self.fail(self._no_room())
                return
            # Only the frame that was cut is copied, unless its size is not known yet.
            is_frame = missing > 1 and self._phase is Phase.FRAMES
            self._chunks.append(data[:missing] if is_frame else data)
            whole = b"".join(self._chunks)
            self._chunks.clear()
            self._missing = 0
            self.has_more = False
            if self.cut_bytes:
                cut, self.cut_bytes = self.cut_bytes, 0
                self.forget_partial(cut)
            if is_frame:
                self._read(whole)
                at = missing
            else:
                data = whole
        if at < len(data):
            self._read(data, at)

    def _read(self, data: bytes, at: int = 0) -> None:
        """Read from ``at`` on what is complete, and keep the rest."""
        if self._phase is Phase.DONE:
            return
        if self._phase is Phase.LEFT:
            self._chunks.append(data[at:])
            return
        try:
            while self._phase in (Phase.HEADER, Phase.SASL):
                if self._is_verdict_awaited:
                    self._keep(data, at, 1)
                    return
                before = at
                at = self._negotiate(data, at)
                if at == before:
                    self._keep(data, at, 1)
                    return
            if self._phase is Phase.FRAMES:
                self._frames(data, at)
        except RemoteError as error:
            self.fail(error)
        except (IndexError, struct.error):
            self.fail(DecodeError("a performative is cut short"))

    def _keep(self, data: bytes, at: int, missing: int) -> None:
        rest = data[at:]
        self._chunks = [rest] if rest else []
        self._missing = missing

    def _negotiate(self, data: bytes, at: int) -> int:
        """Read one protocol header or SASL frame; the same ``at`` means that more bytes are needed."""
        if self._phase is Phase.HEADER:
            if len(data) - at < 8:
                given = data[at:]
                if given[:4] != b"AMQP"[: len(given)]:
                    self._refuse_header(given)
                    return len(data)
                return at
            return self._on_header(data[at : at + 8]) or at + 8
        if len(data) - at < 8:
            return at
        size: int = _U32.unpack_from(data, at)[0]
        if size > SASL_FRAME_BYTES or size < 8:
            raise FramingError(f"a SASL frame of {size} bytes")
        if data[at + 5] != 1 or data[at + 4] < 2 or data[at + 4] * 4 > size:
            raise FramingError("not a SASL frame")
        stop = at + size
        if stop > len(data):
            return at
        found, _ = decode_composite(data, at + 4 * data[at + 4], stop)
        assert self.sasl is not None
        self._put_sasl(self.sasl.receive(found))
        if self._is_verdict_awaited:
            assert isinstance(self.sasl, SaslServer)
            self.sasl.resume = self._on_verdict
            # Nothing that it says can be understood before.
            self.hold_input(True)
        return len(data) if self._phase is Phase.DONE else stop

    def _put_sasl(self, frames: list[bytes]) -> None:
        """Send what SASL has to say, and go on if that was the last of it."""
        assert self.sasl is not None
        for frame in frames:
            self.put(frame)
        if self.sasl.is_done:
            if self.sasl.error is not None:
                self._finish(AmqpError("amqp:unauthorized-access", self.sasl.error))
                return
            self._phase = Phase.HEADER
            if not self.is_server:
                self.put(AMQP_HEADER)
                self.open()

    def _on_verdict(self, frames: list[bytes]) -> None:
        """Somebody else has decided on the peer: say so, and take what it has said meanwhile."""
        if self._phase is Phase.DONE or self._is_verdict_awaited:
            return
        self.hold_input(False)
        self._put_sasl(frames)
        kept = self.unread
        self._chunks.clear()
        self._missing = 0
        if kept:
            self._read(kept)

    def _on_header(self, header: bytes) -> int:
        """Act on a protocol header; a true answer ends the negotiation."""
        sasl = self.sasl
        if header == SASL_HEADER and sasl is not None and not sasl.is_done:
            if self.is_server:
                self.put(SASL_HEADER)
            for chunk in sasl.begin():
                self.put(chunk)
            self._phase = Phase.SASL
        elif header == AMQP_HEADER and (sasl is None or sasl.is_done or (self.is_server and sasl.is_optional)):
            if self.is_server:
                self.put(AMQP_HEADER)
            self._phase = Phase.FRAMES
        else:
            self._refuse_header(header)
        return 0

    def _refuse_header(self, given: bytes) -> None:
        """Answer with the header that we would have taken, and hang up [AMQP 2.2]."""
        if self.is_server:
            wants_sasl = self.sasl is not None and not self.sasl.is_done
            self.put(SASL_HEADER if wants_sasl else AMQP_HEADER)
        self._finish(AmqpError("amqp:connection:framing-error", f"the peer speaks {_protocol_of(given)}"))

    def _frames(self, data: bytes, at: int) -> None:
        """Read every complete frame from ``at`` on, unless that takes too long, and keep the rest."""
        end = len(data)
        stop = at
        mark = min(at + SLICE_BYTES, end - 10)
        is_hot = True
        sessions = self.sessions
        unpack = FRAME_HEAD.unpack_from
        max_frame_size = self.max_frame_size
        while True:
            session: Session | None = None
            try:
                while at < mark:
                    size, kind, channel, zero, code = unpack(data, at)
                    stop = at + size
                    if stop > end or size > max_frame_size:
                        break
                    if kind == 0x0200 and size > 11 and zero == 0:
                        if code == 0x5314:
                            session = sessions[channel]
                            session.on_transfer(data, at + 11, stop)
                            at = stop
                            continue
                        if code == 0x5315:
                            session = sessions[channel]
                            session.on_disposition(data, at + 11, stop)
                            at = stop
                            continue
                        if code == 0x5313:
                            session = sessions[channel]
                            session.on_flow(data, at + 11, stop)
                            mark = at = stop
                            is_hot = False
                            continue
                    session = sessions.get(channel)
                    self._on_frame(data, at, size, kind, channel)
                    if self._phase is not Phase.FRAMES:
                        if self._phase is Phase.LEFT:
                            self._keep(data, at, 1)
                        return
                    mark = at = stop
                    is_hot = False
                if at < mark or end - at < 11:
                    break
                if self.is_held or self.is_late(is_hot):
                    self._keep(data, at, 1)
                    self.has_more = True
                    return
                mark = min(at + SLICE_BYTES, end - 10)
                is_hot = True
            except SessionError as error:
                assert session is not None
                self.end_session(session, error)
                mark = at = stop
                is_hot = False
            except KeyError:
                if channel in sessions:
                    raise
                if self._is_leaving(channel):
                    mark = at = stop
                    is_hot = False
                    continue
                raise FramingError(f"no session on channel {channel}") from None
        rest = end - at
        if rest >= 8:
            (size,) = _U32.unpack_from(data, at)
            if size > max_frame_size:
                raise FramingError(f"a frame of {size} bytes is above the max-frame-size of {max_frame_size}")
            if size <= rest:
                # Between 8 and 10 bytes: an empty frame at the very end.
                self._on_frame(data, at, size, data[at + 4] << 8 | data[at + 5], 0)
                at += size
                rest = end - at
                size = rest + 1
            self._keep(data, at, size - rest)
            self.cut_frames += 1
            if not self._has_room_for_cut(rest):
                raise self._no_room()
        elif rest:
            self._keep(data, at, 1)

    def leave_open(self) -> None:
        """Leave the peer's open unread, which has just been handled, and all that follows: another may have it.

        See ``from_login``; ``ignore_rest`` is for who is closed instead.
        """
        self._phase = Phase.LEFT
        # The answer to the open is another's, or a refusal. A peer that waits for the end of the socket after that,
        # as proton does to come again, finds it as it writes: so it is to write soon.
        self.idle_timeout_s = SOON_S
        self.hold_input(True)

    @property
    def from_login(self) -> bytes:
        """What the peer has said from its login on: the header of AMQP, open, and what came behind it."""
        return AMQP_HEADER + self.unread

    def ignore_rest(self) -> None:
        """Drop the open that was left and what follows it, as the connection is closed [AMQP 2.4.6]."""
        if self._phase is Phase.LEFT:
            self._chunks.clear()
            self._missing = 0
            self._phase = Phase.FRAMES
            self.hold_input(False)
            self.discard()

    def _has_room_for_cut(self, size: int) -> bool:
        """Count what has come of a frame whose end has not."""
        self.cut_bytes += size
        self.partial_bytes += size
        return self.has_room()

    @staticmethod
    def _no_room() -> RemoteError:
        return RemoteError("amqp:resource-limit-exceeded", "there is no room for frames that are not complete")

    def _is_leaving(self, channel: int) -> bool:
        """True if a session on that channel was ended by us and the peer has not seen it yet."""
        return any(s.remote_channel == channel and s.is_end_sent for s in self._sessions.values())

    def _on_frame(self, data: bytes, at: int, size: int, kind: int, channel: int) -> None:
        """Read one frame that is not hot."""
        doff = kind >> 8
        if size < 8 or doff < 2 or doff * 4 > size:
            raise FramingError(f"a frame of {size} bytes with a data offset of {doff}")
        if kind & 0xFF != 0:
            raise FramingError(f"a frame of type {kind & 0xFF}")
        stop = at + size
        at += doff * 4
        if at == stop:
            return
        found, after = decode_composite(data, at, stop)
        if isinstance(found, Open):
            self._on_open(found)
            return
        if self.remote_open is None:
            raise RemoteError("amqp:not-allowed", f"{type(found).__name__.lower()} before open")
        if isinstance(found, Close):
            self._on_close(found)
        elif isinstance(found, Begin):
            self._on_begin(found, channel)
        else:
            self._on_session_frame(found, channel, data, after, stop)

    def _on_session_frame(self, found: Composite, channel: int, data: bytes, after: int, stop: int) -> None:
        session = self.sessions.get(channel)
        if session is None:
            if isinstance(found, End):
                self._on_end_of_leaving(channel)
                return
            if self._is_leaving(channel):
                return
            raise FramingError(f"no session on channel {channel}")
        if isinstance(found, Attach):
            session.on_attach(found)
        elif isinstance(found, Detach):
            session.on_detach(found)
        elif isinstance(found, End):
            self._on_end(session, found)
        elif found.CODE in (0x13, 0x14, 0x15):
            self._on_rare_shape(session, found, data[after:stop])
        else:
            raise FramingError(f"a {found.SYMBOL} is no performative")

    @staticmethod
    def _on_rare_shape(session: Session, found: Composite, payload: bytes) -> None:
        """A hot performative in a long-winded form: write it in the usual one and read that."""
        frame = amqp_frame(0, found, len(payload)) + payload
        if found.CODE == 0x14:
            session.on_transfer(frame, 11, len(frame))
        elif found.CODE == 0x15:
            session.on_disposition(frame, 11, len(frame))
        else:
            session.on_flow(frame, 11, len(frame))

    def _on_open(self, remote: Open) -> None:
        if self.remote_open is not None:
            raise RemoteError("amqp:not-allowed", "a second open")
        if remote.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise RemoteError(
                "amqp:invalid-field",
                f"a max-frame-size of {remote.max_frame_size} is below {MIN_MAX_FRAME_SIZE}",
            )
        if remote.idle_time_out and remote.idle_time_out < MIN_IDLE_TIMEOUT_S * 1000:
            raise RemoteError(
                "amqp:invalid-field",
                f"an idle-time-out of {remote.idle_time_out} ms is below {MIN_IDLE_TIMEOUT_S * 1000:.0f} ms",
            )
        self.remote_open = remote
        self.remote_max_frame_size = min(remote.max_frame_size, MAX_FRAME_SIZE)
        self.remote_channel_max = remote.channel_max
        self.remote_idle_s = (remote.idle_time_out or 0) / 1000
        self.handler.on_opened(self, remote)

    def _on_begin(self, begin: Begin, channel: int) -> None:
        if channel > self.channel_max:
            raise FramingError(f"channel {channel} is above the channel-max of {self.channel_max}")
        if channel in self.sessions:
            raise RemoteError("amqp:not-allowed", f"a second begin on channel {channel}")
        if begin.remote_channel is not None:
            session = self._sessions.get(begin.remote_channel)
            if session is None or session.remote_begin is not None:
                raise RemoteError("amqp:not-allowed", f"an answer to no begin on channel {begin.remote_channel}")
            session.on_begin(begin, channel)
        else:
            session = self._new_session()
            session.on_begin(begin, channel)
            self._put_begin(session, channel)
        self.sessions[channel] = session
        if not session.is_end_sent:
            self.handler.on_begun(session)

    def _on_end(self, session: Session, end: End) -> None:
        session.is_ended = True
        session.end()
        self._forget_session(session)
        session.drop_links(end.error)
        self.handler.on_ended(session, end.error)

    def _on_end_of_leaving(self, channel: int) -> None:
        for session in list(self._sessions.values()):
            if session.remote_channel == channel and session.is_end_sent:
                self._forget_session(session)
                return
        raise FramingError(f"no session on channel {channel}")

    def _forget_session(self, session: Session) -> None:
        if session.remote_channel is not None and self.sessions.get(session.remote_channel) is session:
            del self.sessions[session.remote_channel]
        self._sessions.pop(session.channel, None)
        self._sessions_due.pop(session, None)

    def _on_close(self, close: Close) -> None:
        self.close()
        self._finish(close.error or self.error)


def _protocol_of(given: bytes) -> str:
    """Return the protocol that begins so, as far as it is one that is met at the ports of messaging services."""
    if given[1:2] == b"\x03" and given[0] in (0x15, 0x16):
        return "TLS"
    if given.startswith(b"HTTP"):
        return "HTTP"
    if given.startswith(b"AMQP") and len(given) == 8 and given not in (AMQP_HEADER, SASL_HEADER):
        # Before 1.0 the version has other places in the header, as in AMQP 0 0 9 1.
        version = ".".join(str(number) for number in given[4:])
        return f"another version of AMQP ({version})"
    return "another protocol"
