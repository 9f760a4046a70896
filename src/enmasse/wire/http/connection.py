"""The server's end of an HTTP/1.1 connection: bytes in, answers out.

Rules:
1. One request is handled at a time: requests that are pipelined wait, and are answered in their order.
2. A head that is the same as one before on the connection, byte by byte, is not parsed again.
3. The body of a request is read once the handler has agreed to its head. A request that is refused before its body
   has come ends the connection, as what follows could not be told from another request.
4. What cannot be understood is answered with the reason, and ends the connection. What the peer still sends is
   ignored until it has had time to read that.
5. A client that closes its half of the connection after a request hears the answer, if the handler gives it one: it
   may be gone altogether, which looks the same.
6. A client that begins with HTTP/2 is left to another engine.
7. The engine has no clock: time comes with ``receive`` and ``handle_deadline``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final

from enmasse.errors import kept
from enmasse.wire.http.answers import CONTINUE, HttpError, answer_of
from enmasse.wire.http.handler import NOBODY, Handler
from enmasse.wire.http.heads import (
    BARE_END,
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    MAX_TARGET_BYTES,
    ChunkedBody,
    Request,
    read_head,
)

MAX_KNOWN_HEADS: Final = 8
"""The most heads that a connection remembers, each some 5 KiB with what is made of it; clients repeat one or two."""

MAX_KNOWN_HEAD_BYTES: Final = 2 << 10
"""The longest head that is remembered."""

PIPELINED_BYTES: Final = 64 << 10
"""The bytes that are taken while a request is handled; more of them stay in the socket."""

FREE_BYTES: Final = 4 << 10
"""The bytes of an incomplete request that need no room of a shared budget."""

TURN_BYTES: Final = 1 << 20
"""The most output of a connection between two writes; beyond that its output is blocked."""

ANSWER_BYTES: Final = 1 << 20
"""The bytes of an answer beyond which a handler adds nothing to it."""

HEAD_TIMEOUT_S: Final = 10.0
"""Seconds from the first byte of a head to its last."""

BODY_TIMEOUT_S: Final = 30.0
"""Seconds for a body, beside those that ``MIN_BODY_RATE`` allows."""

MIN_BODY_RATE: Final = 16 << 10
"""Bytes of a body that are expected in a second: 130 kbit/s are enough."""

IDLE_TIMEOUT_S: Final = 75.0
"""Seconds without a request after which a connection is closed; proxies keep theirs for 60 s."""

CHECK_S: Final = 5.0
"""Seconds between two checks of the times above, as a new one is often nearer than the one before."""

LINGER_S: Final = 1.0
"""Seconds for a peer that is sending to read the answer before the socket is closed."""

_HEAD_END = b"\r\n\r\n"
_HTTP_2 = b"PRI * HTTP/2.0\r\n\r\n"
"""The line that looks like the head of a request where a client speaks HTTP/2 [RFC 9113 3.4]."""


class _Phase(Enum):
    HEAD = auto()
    """The head of a request is awaited."""
    ASKED = auto()
    """The handler checks a head."""
    BODY = auto()
    """The body of a request is awaited."""
    HANDLED = auto()
    """The handler has the request, and has not answered."""
    STREAM = auto()
    """The handler is writing an answer in parts."""
    LINGER = auto()
    """The last answer was given; input is ignored."""
    DONE = auto()


# A member of an enum takes half a microsecond to find, and each request asks for many.
_HEAD, _ASKED, _BODY = _Phase.HEAD, _Phase.ASKED, _Phase.BODY
_HANDLED, _STREAM, _LINGER, _DONE = _Phase.HANDLED, _Phase.STREAM, _Phase.LINGER, _Phase.DONE


def no_limit(_size: int) -> bool:
    """Return true: there is room for any number of bytes."""
    return True


class Connection:
    """A server's HTTP/1.1 connection.

    Args:
        handler: acts on the peer's requests; it may be replaced between two of them.
        now: the time in seconds.
        date: returns the line of the header ``Date``.

    Attributes:
        request: the request that is being read or handled.
        requests: the number of requests so far.
        more_headers: lines of the answer's head that the handler sets when it is asked about a head.
        trace: called with true for output or false for input, and the bytes, if the connection is traced.
        more_room: called with a number of bytes; returns true if an incomplete request may take that many.
        hears_out: called as the peer says nothing more, and may be gone; returns true if it is to hear the answer.
        may_idle: true if the peer may be without a request for any time.
    """

    __slots__ = (
        "_body", "_chunks", "_date", "_holds_room", "_is_in_chunks", "_is_input_over", "_is_reading", "_known",
        "_linger_until", "_now", "_out", "_phase", "_rest", "_since", "_sought", "admits", "closes", "error",
        "handler", "has_more", "hears_out", "is_blocked", "is_held", "is_late", "is_paused", "may_idle",
        "more_headers", "more_out", "more_room", "out_bytes", "out_room", "request", "requests", "trace", "wake",
    )  # fmt: skip

    def __init__(self, handler: Handler, *, now: float, date: Callable[[], bytes]) -> None:
        self.handler = handler
        self.request: Request | None = None
        self.requests = 0
        self.more_headers = b""
        self.closes = False
        """True if the connection ends with the answer that is due."""
        self.error: HttpError | None = None
        """The error for which the server closed the connection."""
        self.wake: Callable[[Any], None] = lambda _engine: None
        self.is_late: Callable[[bool], bool] = lambda _is_hot: False
        self.has_more = self.is_paused = self.is_blocked = self.is_held = False
        self.trace: Callable[[bool, bytes], None] | None = None
        self.more_room: Callable[[int], bool] = no_limit
        self.out_room = TURN_BYTES
        self.more_out: Callable[[int], bool] = lambda _size: False
        self.admits: Callable[[int], bool] = lambda _size: True
        self.hears_out: Callable[[], bool] = bool
        self.may_idle = False
        self._date = date
        self._phase = _HEAD
        self._now = self._since = now
        self._linger_until = 0.0
        self._rest = b""
        """The bytes received that belong to no request that was read."""
        self._sought = 0
        """The bytes of it in which no head ends."""
        self._body = bytearray()
        self._chunks: ChunkedBody | None = None
        self._is_reading = self._is_in_chunks = self._is_input_over = False
        self._holds_room = False
        self._known: dict[bytes, Request] = {}
        self._out: list[bytes] = []
        self.out_bytes = 0

    @property
    def closed(self) -> bool:
        """True if the socket can be closed once the output is written."""
        return self._phase is _DONE

    @property
    def now(self) -> float:
        """The time of the latest input or deadline."""
        return self._now

    @property
    def is_idle(self) -> bool:
        """True between two requests."""
        return self._phase is _HEAD and not self._rest

    @property
    def is_handled(self) -> bool:
        """True while the handler has a request that is not answered."""
        return self._phase in (_ASKED, _HANDLED, _STREAM)

    @property
    def is_streaming(self) -> bool:
        """True while an answer in parts has no end yet."""
        return self._phase is _STREAM

    @property
    def unread(self) -> bytes:
        """The bytes of an incomplete head."""
        return self._rest if self._phase is _HEAD else b""

    @property
    def room(self) -> int:
        """The bytes of an answer beyond which the handler adds nothing to it."""
        return ANSWER_BYTES

    def gather(self, size: int) -> bool:
        """Return true if the handler may keep more for its answer than so many bytes."""
        size += self.out_bytes
        return size <= self.out_room or self.more_out(size)

    # Input

    def receive(self, data: bytes, now: float) -> None:
        """Handle bytes from the peer; all that follows is in the output, and the handler has been called."""
        self._now = now
        phase = self._phase
        if phase is _LINGER or phase is _DONE:
            return
        if data:
            if self.trace is not None:
                self.trace(False, data)
            if not self._rest:
                if phase is _HEAD:
                    self._since = now
                self._rest = data
            else:
                self._rest += data
        self._read()

    def _read(self) -> None:
        """Handle what has come, as far as that is possible now."""
        self.has_more = False
        self._is_reading = True
        try:
            while self._rest:
                if self._phase is _HEAD:
                    if not self._read_head():
                        return
                elif self._phase is _BODY:
                    if not self._read_body():
                        return
                else:
                    if len(self._rest) > PIPELINED_BYTES:
                        self._hold(True)
                    return
                if self._rest and self.is_late(True):
                    self.has_more = True
                    return
        except HttpError as error:
            self.fail(error)
            self.has_more = bool(self._rest)
        finally:
            self._is_reading = False
            if self._is_input_over and not self.has_more and self._phase in (_HEAD, _BODY):
                self._end()

    def end_input(self) -> bool:
        """Note that the peer says nothing more; return true if it has yet to hear an answer."""
        if not self.is_handled or not self.hears_out():
            return False
        self._is_input_over = True
        self.closes = self.closes or (self._phase is _HANDLED and not self._rest)
        return True

    def _read_head(self) -> bool:
        """Handle the head that has come; return false if it is not complete."""
        rest = self._rest
        if rest[0] in b"\r\n" and not self._sought:
            # Empty lines before a request are left out [RFC 9112 2.2].
            self._rest = rest = rest.lstrip(b"\r\n")
            if not rest:
                return False
        end = rest.find(_HEAD_END, max(0, self._sought - 3), MAX_HEAD_BYTES) + 4
        if end < 4:
            self._check_begun(rest, self._sought)
            self._sought = len(rest)
            return False
        self._sought = 0
        data = rest[:end]
        chunks: ChunkedBody | None = None
        request = self._known.get(data)
        if request is None:
            if data == _HTTP_2 and not self.requests:
                self._phase, self._rest = _DONE, b""
                self.handler.on_http2(rest)
                return False
            self.closes = True
            request, chunks = read_head(data)
            if len(data) <= MAX_KNOWN_HEAD_BYTES and chunks is None:
                if len(self._known) >= MAX_KNOWN_HEADS:
                    self._known.clear()
                self._known[data] = request
        self._rest = rest[end:]
        self.request = request
        self.requests += 1
        self.more_headers = b""
        length = request.length
        # Until the body has come, what follows an error cannot be told from a request.
        self.closes = not request.is_kept_alive or length < 0 or length > len(self._rest)
        if length > MAX_BODY_BYTES:
            raise HttpError(413, f"a body has up to {MAX_BODY_BYTES} bytes, not {length}: send less")
        self._chunks = chunks
        self._phase = _ASKED
        if not self.handler.on_head(request):
            return True
        self._begin_body(request)
        return True

    @staticmethod
    def _check_begun(rest: bytes, sought: int) -> None:
        """Check the beginning of a head, of which so many bytes were checked before.

        Raises:
            HttpError: it is too long, or its lines end in another way.
        """
        if BARE_END.search(rest, max(0, sought - 1), MAX_HEAD_BYTES) is not None:
            raise HttpError(400, "the lines of a head end with CR and LF")
        if len(rest) < MAX_TARGET_BYTES:
            return
        if rest.find(b"\r\n", 0, MAX_TARGET_BYTES + 40) < 0 and len(rest) > MAX_TARGET_BYTES + 40:
            raise HttpError(414, f"a target has up to {MAX_TARGET_BYTES} bytes: send a shorter one")
        if len(rest) >= MAX_HEAD_BYTES:
            raise HttpError(431, f"the head of a request has up to {MAX_HEAD_BYTES} bytes: send fewer headers")

    def go_on(self) -> None:
        """Read the body of the request whose head the handler has agreed to, later than ``on_head``."""
        request = self.request
        if self._phase is not _ASKED or request is None:
            return
        try:
            self._begin_body(request)
        except HttpError as error:
            self.fail(error)
            return
        if self._is_input_over and self._phase is _BODY:
            self._end()  # it will never be whole
            return
        self._resume()

    def _begin_body(self, request: Request) -> None:
        length = request.length
        if length == 0:
            self._handle(request, b"")
            return
        rest = self._rest
        if 0 < length <= len(rest):
            self._rest = rest[length:]
            self._handle(request, rest[:length])
            return
        self._phase = _BODY
        self._since = self._now
        if request.expects_continue and not rest:
            self._put(CONTINUE)
        if rest:
            self._read_body()

    def _read_body(self) -> bool:
        """Take bytes of a body; return false if it is not complete."""
        request, data = self.request, self._rest
        assert request is not None
        if self._chunks is not None:
            self._rest = b""
            used = self._chunks.feed(data)
            if used < 0:
                self._take_room(self._chunks.held_bytes)
                return False
            self._rest = data[used:]
            body = self._chunks.body
            self._chunks = None
        else:
            left = request.length - len(self._body)
            self._body += data[:left]
            self._rest = data[left:]
            if len(self._body) < request.length:
                self._take_room(len(self._body))
                return False
            body = bytes(self._body)
            self._body.clear()
        self._leave_room()
        self.closes = not request.is_kept_alive
        self._handle(request, body)
        return True

    def _handle(self, request: Request, body: bytes) -> None:
        self.closes = not request.is_kept_alive or (self._is_input_over and not self._rest)
        self._phase = _HANDLED
        try:
            self.handler.on_request(request, body)
        except HttpError as error:
            self.fail(error)

    def _take_room(self, size: int) -> None:
        if size > FREE_BYTES:
            self._holds_room = True
            if not self.more_room(size):
                raise HttpError(
                    503,
                    "there is no room for bodies that are not complete: send smaller ones, or later",
                    "amqp:resource-limit-exceeded",
                    (("Retry-After", "1"),),
                )

    def _leave_room(self) -> None:
        if self._holds_room:
            self._holds_room = False
            self.more_room(0)

    def _hold(self, is_held: bool) -> None:
        if is_held is not self.is_held:
            self.is_held = is_held
            self.wake(self)

    def _resume(self) -> None:
        """Have what waits read in a turn to come."""
        self._hold(False)
        if self._rest and not self._is_reading and self._phase in (_HEAD, _BODY):
            self.has_more = True
            self.wake(self)

    def forget_routes(self) -> None:
        """Drop what the handler has made of heads."""
        for request in self._known.values():
            request.route = None

    # Output

    def answer(self, start: bytes, body: bytes = b"") -> None:
        """Answer the request.

        Args:
            start: the head of the answer, made by ``answers.head``.
            body: the body, which is left out where the client asks for the head alone.
        """
        if self._phase not in (_ASKED, _HANDLED):
            return
        self._put_answer(start, body)
        self._finish_answer(is_read=self._phase is _HANDLED)

    def _put_answer(self, start: bytes, body: bytes) -> None:
        request = self.request
        if request is not None and request.method == "HEAD":
            self._put(start + self._tail(b""))
        else:
            self._put(b"".join((start, self._tail(b"Content-Length: %d\r\n" % len(body)), body)))

    def _tail(self, length: bytes) -> bytes:
        """Return the end of an answer's head."""
        request = self.request
        if self.closes:
            kept = b"Connection: close\r\n"
        elif request is not None and request.is_http_10:
            kept = b"Connection: keep-alive\r\n"
        else:
            kept = b""
        return b"%b%b%b%b\r\n" % (length, self._date(), kept, self.more_headers)

    def fail(self, error: HttpError) -> None:
        """Answer the request with an error, which ends the connection unless the request was read whole."""
        phase = self._phase
        if phase in (_LINGER, _DONE):
            return
        if phase is _STREAM:
            # The answer has begun, so the client notices by its incomplete end.
            self.error = kept(error)
            self._leave(is_more_coming=False)
            return
        if phase in (_HEAD, _BODY):
            self.closes = True
            self.error = kept(error)
            if phase is _HEAD:
                self.request = None
        self._put_answer(*answer_of(error))
        self._finish_answer(is_read=phase is _HANDLED)

    def _finish_answer(self, *, is_read: bool) -> None:
        request = self.request
        if self.closes:
            has_come = is_read or (request is not None and request.length == 0)
            self._leave(is_more_coming=not has_come or bool(self._rest))
            return
        if not is_read and request is not None and request.length > 0:
            # It is here whole, or the connection would end.
            self._rest = self._rest[request.length :]
        self.request = None
        self._phase = _HEAD
        self._since = self._now
        if self._is_input_over and not self._rest:
            self._end()
            return
        self._resume()

    def begin_stream(self, start: bytes, length: int | None = None) -> bool:
        """Begin an answer in parts; return false if the client asks for the head alone, which ends it.

        Args:
            start: the head of the answer, as for ``answer``.
            length: the bytes of all parts; None: nobody knows yet.
        """
        request = self.request
        if self._phase is not _HANDLED or request is None:
            return False
        if request.method == "HEAD":
            self.answer(start)
            return False
        self._is_in_chunks = length is None and not request.is_http_10
        # HTTP/1.0 has no chunks: the end of the connection is that of the answer.
        self.closes = self.closes or (length is None and request.is_http_10)
        self._phase = _STREAM
        if length is not None:
            said = b"Content-Length: %d\r\n" % length
        else:
            said = b"Transfer-Encoding: chunked\r\n" if self._is_in_chunks else b""
        self._put(start + self._tail(said))
        return True

    def put_part(self, data: bytes) -> None:
        """Write a part of an answer."""
        if self._phase is _STREAM and data:
            self._put(b"%x\r\n%b\r\n" % (len(data), data) if self._is_in_chunks else data)

    def end_stream(self) -> None:
        """End an answer in parts."""
        if self._phase is not _STREAM:
            return
        if self._is_in_chunks:
            self._put(b"0\r\n\r\n")
        self._phase = _HANDLED
        self._finish_answer(is_read=True)

    def _put(self, data: bytes) -> None:
        if not self._out:
            self.wake(self)
        self._out.append(data)
        self.out_bytes += len(data)
        if self.out_bytes > self.out_room and not self.more_out(self.out_bytes):
            self.block_output()

    def pending_output(self) -> list[bytes | memoryview]:
        """Return the output to be written now, and clear it."""
        out, self._out = self._out, []
        self.out_bytes = 0
        if out:
            if self.trace is not None:
                self.trace(True, b"".join(out))
            self.handler.on_written()
        return out  # type: ignore[return-value]  # bytes are what it asks for

    def block_output(self) -> None:
        """Stop parts of answers until ``resume_output``."""
        if not self.is_blocked:
            self.is_blocked = True
            self.handler.on_blocked(True)

    def resume_output(self) -> None:
        """Let parts go on, as the socket takes more."""
        if self.is_blocked:
            self.is_blocked = False
            self.handler.on_blocked(False)

    # Time

    def _deadline(self) -> float | None:
        """Return the time by which the peer has to go on."""
        phase = self._phase
        if phase is _HEAD:
            if self.may_idle and not self._rest:
                return None
            return self._since + (HEAD_TIMEOUT_S if self._rest else IDLE_TIMEOUT_S)
        if phase is _BODY:
            size = len(self._body) if self._chunks is None else self._chunks.held_bytes
            return self._since + BODY_TIMEOUT_S + size / MIN_BODY_RATE
        return self._linger_until if phase is _LINGER else None

    def next_deadline(self) -> float | None:
        """Return the time of the next call of ``handle_deadline``, by the clock given to ``receive``."""
        if self._phase is _DONE:
            return None
        deadline = self._deadline()
        check = self._now + CHECK_S
        return check if deadline is None else min(deadline, check)

    def handle_deadline(self, now: float) -> None:
        """Close the connection of a peer that is late."""
        self._now = now
        deadline = self._deadline()
        if self._phase is _DONE or deadline is None or now < deadline:
            return
        if self._phase is _LINGER:
            self._end()
        elif self._phase is _BODY:
            self.fail(HttpError(408, f"the body comes slower than {MIN_BODY_RATE} bytes a second: send it faster"))
        elif self._rest:
            self.fail(HttpError(408, f"no whole head within {HEAD_TIMEOUT_S:.0f} s: send it faster"))
        else:
            self._end()

    # The end

    def close(self) -> None:
        """Close the connection once the output is written, without ``LINGER_S``."""
        self._end()

    def _leave(self, *, is_more_coming: bool) -> None:
        if not is_more_coming:
            self._end()
            return
        self._phase = _LINGER
        self._linger_until = self._now + LINGER_S
        self._forget_input()
        self._tell_end()
        self.wake(self)

    def _tell_end(self) -> None:
        self.handler.on_closed(self.error)
        self.handler = NOBODY
        self.more_room, self.hears_out = no_limit, bool

    def lost(self) -> None:
        """End the connection, as the socket is closed."""
        self._end()

    def _forget_input(self) -> None:
        self.has_more = self.is_held = False
        self._rest = b""
        self._body.clear()
        self._chunks = None
        self._known.clear()
        self._leave_room()

    def _end(self) -> None:
        if self._phase is _DONE:
            return
        has_ended = self._phase is _LINGER
        self._phase = _DONE
        self._forget_input()
        if not has_ended:
            self._tell_end()
        self.wake(self)
