"""The server's end of an HTTP/2 connection: many requests at a time on one socket [RFC 9113].

Rules:
1. Frames, HPACK and flow control are h2's. Each stream is given to an ``Exchange``, which the handler of HTTP/1.1's
   requests takes for a connection: it has one request at a time, and serves another stream once that is answered.
2. Frames that carry no request and no body are bounded by time, and so are requests that the client takes back:
   floods of them end the connection. So does a head of too many bytes, compressed or not.
3. A connection ends, with GOAWAY, once the server has closed each of its exchanges.
4. Answers are made as the client takes them: while it is owed ``MAX_OWED_BYTES``, those that can wait are not made.
5. The engine has no clock: time comes with ``receive`` and ``handle_deadline``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from enmasse.wire.http.connection import CHECK_S, HEAD_TIMEOUT_S, IDLE_TIMEOUT_S, TURN_BYTES
from enmasse.wire.http.exchange import MAX_OWED_BYTES, Exchange
from enmasse.wire.http.handler import NOBODY, Handler
from enmasse.wire.http.heads import MAX_HEAD_BYTES

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The bytes that a client begins with [RFC 9113 3.4]."""

MAX_STREAMS: Final = 100
"""The most requests at a time, as RFC 9113 6.5.2 recommends; each counts as a connection of its own."""

MAX_FIELD_BYTES: Final = MAX_HEAD_BYTES + (4 << 10)
"""The most bytes of a head, by the count of RFC 9113 6.5.2, which adds 32 for each field."""

WINDOW_BYTES: Final = 1 << 20
"""The bytes of bodies that a client may have under way, once it has entered a space."""

MAX_SPARE: Final = 1_000
"""The frames beside requests and bodies that may come at once, such as PING and WINDOW_UPDATE."""

SPARE_RATE: Final = 50.0
"""The number of further ones that may come in a second."""

RESET_COST: Final = 5
"""A request that is taken back counts for so many of them, as its work is done for nothing."""

_HEADER_BYTES = 9
_DATA, _HEADERS, _RST_STREAM, _CONTINUATION = 0, 1, 3, 9
_END_STREAM, _END_HEADERS = 1, 4


class _Frames(H2Connection):
    """The connection as h2 knows it, with a bound to the streams that it remembers."""

    MAX_CLOSED_STREAMS = 2 * MAX_STREAMS
    DEFAULT_MAX_HEADER_LIST_SIZE = MAX_FIELD_BYTES

    def end(self) -> None:
        """Receive nothing any more: what receives each kind of frame are methods of its own, and so a cycle."""
        self._frame_dispatch_table: dict[Any, Any] = {}


class Http2Connection:
    """A server's HTTP/2 connection.

    Args:
        first: the handler of the first exchange.
        make_handler: makes the handler of each further one.
        now: the time in seconds.
        date: returns the line of the header ``Date``.
    """

    def __init__(
        self,
        first: Callable[[Exchange], Handler],
        make_handler: Callable[[Exchange], Handler],
        *,
        now: float,
        date: Callable[[], bytes],
    ) -> None:
        self.wake: Callable[[Any], None] = lambda _engine: None
        self.is_late: Callable[[bool], bool] = lambda _is_hot: False
        self.out_room = TURN_BYTES
        self.more_out: Callable[[int], bool] = lambda _size: False
        self.admits: Callable[[int], bool] = lambda _size: True
        self.has_more = self.is_paused = self.is_blocked = self.is_held = False
        self.date = date
        self.now = now
        self.frames = _Frames(H2Configuration(client_side=False, header_encoding=None))
        self.frames.local_settings.update(
            {
                SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                SettingCodes.MAX_HEADER_LIST_SIZE: MAX_FIELD_BYTES,
                SettingCodes.ENABLE_CONNECT_PROTOCOL: 0,
            }
        )
        self.frames.initiate_connection()
        self._make_handler = make_handler
        self._active: dict[int, Exchange] = {}
        self._free: list[Exchange] = []
        self._answered: list[Exchange] = []
        self._rest = b""
        self._has_preface = self._is_wide = self._is_done = False
        self._since = self._used = self._checked = now
        self._block_bytes = 0
        """The bytes of a head, compressed, whose end has not come."""
        self._spare = float(MAX_SPARE)
        self._spare_at = now
        self.out_bytes = 0
        self.owed = 0
        """The bytes that wait for the client's windows, and those that are kept for answers."""
        self._is_full = False
        self._free.append(self._make(first))

    def _make(self, make_handler: Callable[[Exchange], Handler]) -> Exchange:
        # Each knows the other.
        exchange = Exchange(self, None)  # type: ignore[arg-type]
        exchange.handler = make_handler(exchange)
        return exchange

    @property
    def closed(self) -> bool:
        """True if the socket can be closed once the output is written."""
        return self._is_done

    # Input

    def receive(self, data: bytes, now: float) -> None:
        """Handle bytes from the client; all that follows is in the output, and the handlers have been called."""
        self.now = now
        if self._is_done:
            return
        if data:
            if not self._rest and not self._block_bytes:
                self._since = now
            self._rest += data
        self.has_more = False
        try:
            self._read()
        except ProtocolError:
            # h2 has put out the reason.
            self._end()

    def _read(self) -> None:
        rest, at = self._rest, 0
        try:
            if not self._has_preface:
                if len(rest) < len(PREFACE) and PREFACE.startswith(rest):
                    return
                self.frames.receive_data(rest[: len(PREFACE)])
                self._has_preface = True
                at = len(PREFACE)
            while len(rest) - at >= _HEADER_BYTES and not self._is_done:
                size = int.from_bytes(rest[at : at + 3], "big")
                end = at + _HEADER_BYTES + size
                if size > self.frames.max_inbound_frame_size:
                    self._go_away(ErrorCodes.FRAME_SIZE_ERROR)
                    return
                if end > len(rest):
                    return
                self._count(rest[at + 3], rest[at + 4], size)
                if self.closed:
                    return
                frame, at = rest[at:end], end
                if not self._block_bytes:
                    self._since = self.now
                for event in self.frames.receive_data(frame):
                    self._take(event)
                self.wake(self)
                if at < len(rest) and self.is_late(True):
                    self.has_more = True
                    return
        finally:
            self._rest = b"" if self._is_done else rest[at:]

    def _count(self, kind: int, flags: int, size: int) -> None:
        """Count a frame; too many of those that bring nothing end the connection."""
        if kind in (_HEADERS, _CONTINUATION):
            begun = self._block_bytes + size + 1
            if begun > MAX_FIELD_BYTES:
                self._go_away(ErrorCodes.ENHANCE_YOUR_CALM)
            self._block_bytes = 0 if flags & _END_HEADERS else begun
            if kind == _HEADERS:
                return
        elif kind == _DATA and (size or flags & _END_STREAM):
            return
        elapsed, self._spare_at = self.now - self._spare_at, self.now
        self._spare = min(self._spare + elapsed * SPARE_RATE, MAX_SPARE) - (RESET_COST if kind == _RST_STREAM else 1)
        if self._spare < 0:
            self._go_away(ErrorCodes.ENHANCE_YOUR_CALM)

    def _take(self, event: Event) -> None:
        if self._is_done:
            return
        if isinstance(event, RequestReceived):
            exchange = self._free.pop() if self._free else self._make(self._make_handler)
            assert event.stream_id is not None
            self._active[event.stream_id] = exchange
            self._used = self.now
            exchange.begin(event.stream_id, event.headers or [], has_body=event.stream_ended is None)
        elif isinstance(event, DataReceived):
            size, found = event.flow_controlled_length or 0, self._active.get(event.stream_id or 0)
            if found is not None:
                found.take(event.data or b"", size)
            elif size:
                self.frames.acknowledge_received_data(size, event.stream_id or 0)
        elif isinstance(event, StreamEnded):
            if (found := self._active.get(event.stream_id or 0)) is not None:
                found.end()
        elif isinstance(event, StreamReset):
            if (found := self._active.get(event.stream_id or 0)) is not None:
                found.lost()
        elif isinstance(event, WindowUpdated) and event.stream_id:
            if (found := self._active.get(event.stream_id)) is not None:
                found.flush()
        elif isinstance(event, WindowUpdated | RemoteSettingsChanged):
            self._flush()
        elif isinstance(event, ConnectionTerminated):
            self._end()

    def widen(self) -> None:
        """Let the client have more bytes of bodies under way."""
        if not self._is_wide:
            self._is_wide = True
            self.frames.increment_flow_control_window(WINDOW_BYTES)
            self.wake(self)

    # Output

    def put_out(self, size: int) -> None:
        """Count output; too much of it waits for the socket."""
        self.out_bytes += size
        self.wake(self)
        if self.out_bytes > self.out_room and not self.more_out(self.out_bytes):
            self.block_output()

    @property
    def is_held_up(self) -> bool:
        """True while no more answers are to be made."""
        return self.is_blocked or self._is_full

    def owe(self, more: int) -> None:
        """Count bytes that wait for the client, or do no more."""
        self.owed += more
        if more > 0 and not self._is_full and self.owed >= MAX_OWED_BYTES:
            self._is_full = True
            self._block()
        elif self._is_full and self.owed <= MAX_OWED_BYTES // 2:
            self._is_full = False
            self._flush()

    def answered(self, exchange: Exchange) -> None:
        """Have an exchange told when its answer is written."""
        self._answered.append(exchange)
        self.wake(self)

    def left(self, exchange: Exchange) -> None:
        """Remove an exchange that serves no other stream."""
        if self._active.get(exchange.stream) is exchange:
            del self._active[exchange.stream]
        elif exchange in self._free:
            self._free.remove(exchange)

    def end_if_unused(self) -> None:
        """End the connection if the server has ended its last exchange."""
        if not (self._active or self._free):
            self._go_away()

    def pending_output(self) -> list[bytes | memoryview]:
        """Return the output to be written now, and clear it."""
        out = [self.frames.data_to_send()]
        self.out_bytes = 0
        answered, self._answered = self._answered, []
        for exchange in answered:
            if exchange.written():
                del self._active[exchange.stream]
                self._free.append(exchange)
        out.append(self.frames.data_to_send())
        return [data for data in out if data]

    def block_output(self) -> None:
        """Stop answers until ``resume_output``."""
        if not self.is_blocked:
            self.is_blocked = True
            self._block()

    def _block(self) -> None:
        for exchange in list(self._active.values()):
            exchange.block()

    def resume_output(self) -> None:
        """Let answers go on, as the socket takes more."""
        if self.is_blocked:
            self.is_blocked = False
            self._flush()

    def _flush(self) -> None:
        for exchange in list(self._active.values()):
            exchange.flush()

    # Time

    def next_deadline(self) -> float | None:
        """Return the time of the next call of ``handle_deadline``."""
        return None if self._is_done else self.now + CHECK_S

    def handle_deadline(self, now: float) -> None:
        """Close what a client is late with, and give up exchanges that nobody uses."""
        self.now = now
        if self._is_done or now - self._checked < CHECK_S:
            return
        self._checked = now
        if now - self._since > HEAD_TIMEOUT_S and (self._rest or self._block_bytes or not self._has_preface):
            self._go_away()
            return
        for exchange in list(self._active.values()):
            exchange.handle_deadline(now)
        for exchange in list(self._free):
            if not exchange.is_used and len(self._free) + len(self._active) > 1:
                exchange.close()
            exchange.is_used = False
        if not self._active and now - self._used > IDLE_TIMEOUT_S:
            self._go_away()

    # The end

    def _go_away(self, code: ErrorCodes = ErrorCodes.NO_ERROR) -> None:
        if not self._is_done:
            self.frames.close_connection(code)
            self._end()

    def lost(self) -> None:
        """End the connection, as the socket is closed."""
        self._end()

    def _end(self) -> None:
        if self._is_done:
            return
        self._is_done = True
        self.has_more = self.is_held = False
        self._rest = b""
        for exchange in [*self._active.values(), *self._free]:
            exchange.lost()
        self._active.clear()
        self._free.clear()
        self._make_handler = lambda _exchange: NOBODY
        self.frames.end()
        self.wake(self)
