"""A stream of HTTP/2 after another, as the handler of HTTP/1.1's requests sees them.

Rules:
1. Bytes of a body are taken once the handler has agreed to its head; until then they fill the stream's window.
2. An answer waits for the client's windows. One in parts is held up while too much of it waits, and so is every
   one that is not made yet while too much waits of all (``Http2Connection.owe``).
3. A client that takes an unanswered request back ends the exchange: its handler hears that the connection is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from h2.errors import ErrorCodes

from enmasse.errors import kept
from enmasse.wire.http.answers import HttpError, answer_of
from enmasse.wire.http.connection import BODY_TIMEOUT_S, FREE_BYTES, MAX_KNOWN_HEADS, MIN_BODY_RATE, no_limit
from enmasse.wire.http.handler import NOBODY
from enmasse.wire.http.heads import MAX_BODY_BYTES, Request, read_fields

# A connection and its exchanges know each other.
if TYPE_CHECKING:
    from enmasse.wire.http.handler import Handler
    from enmasse.wire.http.http2 import Http2Connection

PART_BYTES: Final = 64 << 10
"""The bytes of an answer in parts that may wait for the client's window."""

ASSURED_BYTES: Final = 64 << 10
"""The bytes that may wait for a client's windows whatever waits for others."""

MAX_OWED_BYTES: Final = 1 << 20
"""The bytes that a client is owed, or are kept for its answers, from which on no more are made."""

STALL_S: Final = 60.0
"""Seconds after which an answer of which the client takes nothing is given up."""


class _Phase(Enum):
    FREE = auto()
    """No stream has it."""
    ASKED = auto()
    """The handler checks a head."""
    BODY = auto()
    """The body of a request is awaited."""
    HANDLED = auto()
    """The handler has the request, and has not answered."""
    STREAM = auto()
    """The handler is writing an answer in parts."""
    ANSWERED = auto()
    """The answer is whole, and some of it may wait for the client's window."""
    CLOSED = auto()
    """It serves no other stream."""


class Exchange:
    """Serves one stream after another; to a handler it is what ``connection.Connection`` is.

    Args:
        owner: the connection.
        handler: acts on the requests; it may be replaced between two of them.
    """

    __slots__ = (
        "__weakref__", "_body", "_gathered", "_has_ended", "_holds_room", "_is_in_chunks", "_is_whole", "_known",
        "_owed", "_owner", "_pending", "_phase", "_since", "_unacknowledged", "closes", "error", "handler",
        "is_blocked", "is_used", "may_owe", "more_headers", "more_room", "request", "requests", "stream", "trace",
    )  # fmt: skip

    def __init__(self, owner: Http2Connection, handler: Handler) -> None:
        self.handler = handler
        self.request: Request | None = None
        self.requests = 0
        self.more_headers = b""
        self.closes = False
        """True if the exchange serves no other stream after the answer that is due."""
        self.error: HttpError | None = None
        self.is_blocked = False
        self.is_used = True
        """True if it has had a stream since the connection looked last."""
        self.trace: Callable[[bool, bytes], None] | None = None
        self.more_room: Callable[[int], bool] = no_limit
        self.may_owe: Callable[[int], bool] = no_limit
        """Returns true if so many bytes of the answer may be kept; 0 gives the room of all back."""
        self._owner = owner
        self._phase = _Phase.FREE
        self.stream = 0
        self._since = 0.0
        self._body = bytearray()
        self._unacknowledged = 0
        self._has_ended = False
        """True once the request has come whole."""
        self._holds_room = False
        self._pending = bytearray()
        """The part of the answer that waits for the client's window."""
        self._is_whole = False
        """True once nothing is added to it."""
        self._is_in_chunks = False
        """True if its length is not said: a trace shows its parts as HTTP/1.1 writes them."""
        self._gathered = 0
        """The bytes that the handler keeps for an answer that it has not made yet."""
        self._owed = 0
        """The bytes of both, as the connection counts them."""
        self._known: dict[tuple[tuple[bytes, bytes], ...], Request] = {}

    @property
    def closed(self) -> bool:
        """True if it serves no other stream."""
        return self._phase is _Phase.CLOSED

    @property
    def now(self) -> float:
        """The time of the connection's latest input or deadline."""
        return self._owner.now

    @property
    def is_handled(self) -> bool:
        """True while the handler has a request that is not answered."""
        return self._phase in (_Phase.ASKED, _Phase.HANDLED, _Phase.STREAM)

    @property
    def is_streaming(self) -> bool:
        """True while an answer in parts has no end yet."""
        return self._phase is _Phase.STREAM

    @property
    def unread(self) -> bytes:
        """Nothing: a trace begins with the next request."""
        return b""

    # The request

    def begin(self, stream: int, fields: list[tuple[bytes, bytes]], *, has_body: bool) -> None:
        """Take a stream, whose head has come."""
        self._phase = _Phase.ASKED
        self.stream = stream
        self._has_ended = not has_body
        self._is_whole = self.closes = False
        self.is_used = True
        self.is_blocked = self._owner.is_held_up
        self.requests += 1
        self.more_headers = b""
        self.request = None
        try:
            self.request = request = self._request_of(fields, has_body=has_body)
            _check_size(request.length)
            if self.handler.on_head(request):
                self._begin_body(request)
        except HttpError as error:
            self.fail(error)

    def _request_of(self, fields: list[tuple[bytes, bytes]], *, has_body: bool) -> Request:
        key = (*fields, (b"", b"body" if has_body else b""))
        request = self._known.get(key)
        if request is None:
            request = read_fields(fields, has_body=has_body)
            if len(self._known) >= MAX_KNOWN_HEADS:
                self._known.clear()
            self._known[key] = request
        return request

    def go_on(self) -> None:
        """Take the body of the request whose head the handler has agreed to, later than ``on_head``."""
        request = self.request
        if self._phase is not _Phase.ASKED or request is None:
            return
        try:
            self._begin_body(request)
        except HttpError as error:
            self.fail(error)

    def _begin_body(self, request: Request) -> None:
        self._phase = _Phase.BODY
        self._since = self.now
        self._owner.widen()
        if self._has_ended:
            self._handle(request)
            return
        self._take_room()
        self._acknowledge()
        if request.expects_continue and not self._body:
            self._owner.frames.send_headers(self.stream, [(b":status", b"100")])
            self._owner.wake(self._owner)

    def take(self, data: bytes, size: int) -> None:
        """Take bytes of the body; ``size`` is what they take of the windows."""
        self._unacknowledged += size
        if self._phase is _Phase.ASKED:
            self._body += data
            return
        if self._phase is _Phase.BODY:
            self._body += data
            try:
                _check_size(len(self._body))
                self._take_room()
            except HttpError as error:
                self.fail(error)
        self._acknowledge()

    def end(self) -> None:
        """Handle the request, as it has come whole."""
        self._has_ended = True
        if self._phase is _Phase.BODY and self.request is not None:
            try:
                self._handle(self.request)
            except HttpError as error:
                self.fail(error)

    def _handle(self, request: Request) -> None:
        body = bytes(self._body)
        self._body.clear()
        self._leave_room()
        self._acknowledge()
        self._phase = _Phase.HANDLED
        if self.trace is not None:
            self.trace(False, _request_text(request, body))
        self.handler.on_request(request, body)

    def _acknowledge(self) -> None:
        size, self._unacknowledged = self._unacknowledged, 0
        if size:
            self._owner.frames.acknowledge_received_data(size, self.stream)
            self._owner.wake(self._owner)

    def _take_room(self) -> None:
        if len(self._body) > FREE_BYTES:
            self._holds_room = True
            if not self.more_room(len(self._body)):
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

    def forget_routes(self) -> None:
        """Drop what the handler has made of heads."""
        for request in self._known.values():
            request.route = None

    # The answer

    def answer(self, start: bytes, body: bytes = b"") -> None:
        """Answer the request.

        Args:
            start: the head of the answer, made by ``answers.head``.
            body: the body, which is left out where the client asks for the head alone.
        """
        if self._phase not in (_Phase.ASKED, _Phase.BODY, _Phase.HANDLED):
            return
        length = b"Content-Length: %d\r\n" % len(body)
        if self.request is not None and self.request.method == "HEAD":
            length = body = b""
        self._put_head(start, length, body, is_last=not body)
        self._phase = _Phase.ANSWERED
        self._is_whole = True
        self._gathered = 0
        self._pending += body
        self._body.clear()
        self._leave_room()
        self._acknowledge()
        if body:
            self.flush()
        else:
            self._finish()
            self._count()

    def _put_head(self, start: bytes, length: bytes, body: bytes = b"", *, is_last: bool = False) -> None:
        owner = self._owner
        text = b"".join((start, length, owner.date(), self.more_headers))
        if self.trace is not None:
            if not length:
                text += b"Transfer-Encoding: chunked\r\n" if self._phase is _Phase.STREAM else b""
            self.trace(True, b"%b\r\n%b" % (text, body))
        owner.frames.send_headers(self.stream, _fields_of(text), end_stream=is_last)
        self._since = owner.now
        owner.wake(owner)

    def fail(self, error: HttpError) -> None:
        """Answer the request with an error."""
        phase = self._phase
        if phase is _Phase.STREAM:
            # The answer has begun, so the client notices by its incomplete end.
            self.error = kept(error)
            self._reset(ErrorCodes.INTERNAL_ERROR)
        elif phase in (_Phase.ASKED, _Phase.BODY, _Phase.HANDLED):
            if self.closes:
                self.error = kept(error)
            self.answer(*answer_of(error))

    def begin_stream(self, start: bytes, length: int | None = None) -> bool:
        """Begin an answer in parts; return false if the client asks for the head alone, which ends it.

        Args:
            start: the head of the answer, as for ``answer``.
            length: the bytes of all parts; None: nobody knows yet.
        """
        if self._phase is not _Phase.HANDLED or self.request is None:
            return False
        if self.request.method == "HEAD":
            self.answer(start)
            return False
        self._phase = _Phase.STREAM
        self._is_in_chunks = length is None
        self._put_head(start, b"" if length is None else b"Content-Length: %d\r\n" % length)
        return True

    def put_part(self, data: bytes) -> None:
        """Write a part of an answer."""
        if self._phase is not _Phase.STREAM or not data:
            return
        if self.trace is not None:
            self.trace(True, b"%x\r\n%b\r\n" % (len(data), data) if self._is_in_chunks else data)
        if not self._pending:
            self._since = self.now
        self._pending += data
        self.flush()
        if len(self._pending) > PART_BYTES:
            self.block()

    def end_stream(self) -> None:
        """End an answer in parts."""
        if self._phase is _Phase.STREAM:
            if self.trace is not None and self._is_in_chunks:
                self.trace(True, b"0\r\n\r\n")
            self._phase = _Phase.ANSWERED
            self._is_whole = True
            if self._pending:
                self.flush()
            else:
                self._owner.frames.end_stream(self.stream)
                self._finish()

    def flush(self) -> None:
        """Write what waits, as far as the client's windows and the socket allow."""
        owner, stream, pending = self._owner, self.stream, self._pending
        if self._phase not in (_Phase.STREAM, _Phase.ANSWERED):
            self._unblock()
            return
        frames = owner.frames
        while pending and not owner.is_blocked:
            room = min(frames.local_flow_control_window(stream), frames.max_outbound_frame_size)
            if room <= 0:
                break
            part = bytes(pending[:room])
            del pending[:room]
            is_last = self._is_whole and not pending
            frames.send_data(stream, part, end_stream=is_last)
            self._since = owner.now
            owner.put_out(len(part))
            if is_last:
                self._finish()
        if not self._count():
            self.give_up()
        elif self._phase is _Phase.STREAM:
            self._unblock()

    def _unblock(self) -> None:
        if self.is_blocked and not self._pending and not self._owner.is_held_up:
            self.is_blocked = False
            self.handler.on_blocked(False)

    @property
    def room(self) -> int:
        """The bytes of an answer beyond which the handler adds nothing to it: each leaves as much for others."""
        return (MAX_OWED_BYTES - self._owner.owed + self._owed) // 2

    def admits(self, _size: int) -> bool:
        """Return true: what there is no room for is given up."""
        return True

    def gather(self, size: int) -> bool:
        """Count the bytes that the handler keeps for its answer; return false if it is to keep no more."""
        self._gathered = size
        return self._count()

    def _count(self) -> bool:
        """Count what the client is owed; return false if there is no room for that."""
        owed = self._gathered + len(self._pending)
        more = owed - self._owed
        if not more:
            return True
        self._owed = owed
        owner = self._owner
        has_room = self.may_owe(owed if owner.owed + more > ASSURED_BYTES else 0)
        owner.owe(more)
        return has_room

    def give_up(self) -> None:
        """Take the stream back, as others are entitled to the room that its answer takes."""
        if self._phase is not _Phase.CLOSED:
            self._reset(ErrorCodes.ENHANCE_YOUR_CALM)

    def _finish(self) -> None:
        """Leave a stream whose answer has been put out."""
        self._is_whole = False
        if not self._has_ended:
            # The rest of the request is not wanted [RFC 9113 8.1].
            self._owner.frames.reset_stream(self.stream, ErrorCodes.NO_ERROR)
        self._owner.answered(self)

    def block(self) -> None:
        """Stop the answer, or parts of it, from being made."""
        if self._phase in (_Phase.HANDLED, _Phase.STREAM) and not self.is_blocked:
            self.is_blocked = True
            self.handler.on_blocked(True)

    def written(self) -> bool:
        """Tell the handler that its answer is being written; return true if another stream may come."""
        if self._phase is not _Phase.ANSWERED:
            return False
        self.handler.on_written()
        if self.closes:
            # The client is not told to go: it would lose what it has asked meanwhile.
            self.lost()
            return False
        self._phase = _Phase.FREE
        self.request = None
        return True

    # Time

    def handle_deadline(self, now: float) -> None:
        """Give up a client that is late."""
        late = now - self._since
        if self._phase is _Phase.BODY and late > BODY_TIMEOUT_S + len(self._body) / MIN_BODY_RATE:
            self.fail(HttpError(408, f"the body comes slower than {MIN_BODY_RATE} bytes a second: send it faster"))
        elif self._pending and late > STALL_S:
            self._reset(ErrorCodes.CANCEL)

    # The end

    def close(self) -> None:
        """Serve no other stream, and take this one back if it is not answered."""
        if self._phase is _Phase.ANSWERED:
            self.closes = True
            return
        if self._phase is _Phase.FREE:
            self.lost()
        elif self._phase is not _Phase.CLOSED:
            self._reset(ErrorCodes.CANCEL)
        self._owner.end_if_unused()

    def _reset(self, code: ErrorCodes) -> None:
        self._acknowledge()
        self._owner.frames.reset_stream(self.stream, code)
        self._owner.wake(self._owner)
        self.lost()

    def lost(self) -> None:
        """End, as the client has taken the stream back or the socket is closed."""
        if self._phase is _Phase.CLOSED:
            return
        self._phase = _Phase.CLOSED
        self._body.clear()
        self._pending.clear()
        self._gathered = 0
        self._known.clear()
        self._leave_room()
        self._count()
        self._owner.left(self)
        self.handler.on_closed(self.error)
        self.handler = NOBODY
        self.more_room = self.may_owe = no_limit


def _check_size(size: int) -> None:
    if size > MAX_BODY_BYTES:
        raise HttpError(413, f"a body has up to {MAX_BODY_BYTES} bytes, not {size}: send less")


def _fields_of(text: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields of an answer's head, which is written as HTTP/1.1 has it."""
    first, *lines = text.split(b"\r\n")
    fields = [(b":status", first.split(b" ", 2)[1])]
    for line in lines:
        name, colon, value = line.partition(b":")
        if colon:
            fields.append((name.lower(), value.strip(b" \t")))
    return fields


def _request_text(request: Request, body: bytes) -> bytes:
    """Return a request as HTTP/1.1 writes it, which is how traces show it."""
    lines = [f"{request.method} {request.target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in request.headers.items() if name != "content-length"]
    if body:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body
