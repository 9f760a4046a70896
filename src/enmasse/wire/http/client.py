"""The client's end of an HTTP/1.1 connection to another node: requests out, answers in as they come.

Rules:
1. One request is under way at a time: its answer has ended before the next.
2. An answer is handed on as it comes: its head, then its body in parts. While its reader cannot pass on what it has,
   the rest stays in the socket (``hold``).
3. The other end is a node, which writes answers as ``connection.Connection`` does. Anything else ends the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import httptools

from enmasse.wire.http.heads import MAX_HEAD_BYTES

if TYPE_CHECKING:
    from enmasse.wire.http.heads import Request

_LEFT_OUT: Final = frozenset(
    ("authorization", "connection", "content-length", "expect", "http2-settings", "keep-alive",
     "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade")
)  # fmt: skip
"""Headers of a request that concern the client's own connection [RFC 9110 7.6.1], and proofs, which the other node
needs none of; the length is written anew."""

_WRITTEN_ANEW: Final = frozenset((b"connection", b"content-length", b"date", b"transfer-encoding"))
"""Headers that whoever passes an answer on writes itself."""


class AnswerReader(Protocol):
    """Takes the answers to requests."""

    def on_answer(self, start: bytes, length: int | None) -> None:
        """Take the head of an answer.

        Args:
            start: its lines without the empty one, and without those of length, date and connection.
            length: the bytes of the body; None: nobody knows yet.
        """

    def on_answer_part(self, data: bytes) -> None:
        """Take a part of the body."""

    def on_answer_end(self) -> None:
        """Hear that the answer has come whole; another request may be made."""

    def on_ended(self) -> None:
        """Hear that the connection has ended: what is asked and not answered whole will not be."""


class ClientConnection:
    """A client's HTTP/1.1 connection.

    Args:
        reader: takes the answers.

    Attributes:
        closed: true if the connection has ended.
        is_asked: true from a request to the end of its answer.
        is_ending: true once nothing more is asked.
    """

    __slots__ = (
        "_head_bytes", "_is_without_body", "_length", "_lines", "_parser", "_phrase", "_reader", "admits", "closed",
        "has_more", "is_asked", "is_blocked", "is_ending", "is_held", "is_late", "is_paused", "more_out", "out",
        "out_bytes", "out_room", "wake",
    )  # fmt: skip

    def __init__(self, reader: AnswerReader) -> None:
        self.wake: Callable[[Any], None] = lambda _engine: None
        self.is_late: Callable[[bool], bool] = lambda _is_hot: False
        self.more_out: Callable[[int], bool] = lambda _size: True
        self.admits: Callable[[int], bool] = lambda _size: True
        self.has_more = self.is_paused = self.is_blocked = self.is_held = False
        self.out_room = self.out_bytes = 0
        self.closed = self.is_asked = self.is_ending = False
        self._reader = reader
        self.out: list[bytes] = []
        self._is_without_body = False
        self._parser: Any = None
        self._head_bytes = 0
        """The bytes that have come of a head that is not whole; negative once it is."""
        self._phrase = b""
        self._lines: list[bytes] = []
        self._length: int | None = None

    # Requests

    def ask(self, request: Request, body: bytes) -> None:
        """Make a request, which is written at the end of the turn.

        Args:
            request: the head, as a client sent it. What proves who the client is is left out.
            body: the whole body.
        """
        lines = [f"{request.method} {request.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in request.headers.items() if name not in _LEFT_OUT]
        if body:
            lines.append(f"content-length: {len(body)}")
        self.out.append("\r\n".join((*lines, "", "")).encode("latin-1"))
        if body:
            self.out.append(body)
        self.is_asked = True
        self._is_without_body = request.method == "HEAD"
        self._head_bytes = 0
        self._phrase = b""
        self._lines.clear()
        self._length = None
        self._parser = httptools.HttpResponseParser(self)
        self.wake(self)

    def end_requests(self) -> None:
        """Say that nothing more is asked, once what was is written."""
        self.is_ending = True
        self.wake(self)

    def hold(self, is_held: bool) -> None:
        """Leave what comes in the socket, or go on reading."""
        if is_held is not self.is_held:
            self.is_held = is_held
            self.wake(self)

    # Answers

    def receive(self, data: bytes, _now: float) -> None:
        """Take bytes of an answer, and hand on what they complete."""
        if self.closed or not data:
            return
        if not self.is_asked:
            self.close()
            return
        if self._head_bytes >= 0:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()
            return
        if self._head_bytes > MAX_HEAD_BYTES:
            self.close()

    def on_message_begin(self) -> None:
        """Refuse an answer that nobody asked for, from the parser."""
        if not self.is_asked:
            raise ValueError("an answer to nothing")  # the parser makes it an error of its own

    def on_status(self, phrase: bytes) -> None:
        """Take a part of the phrase beside the status, from the parser."""
        self._phrase += phrase

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, from the parser."""
        lower = name.lower()
        if lower == b"content-length":
            self._length = int(value)
        elif lower not in _WRITTEN_ANEW:
            self._lines.append(b"%b: %b\r\n" % (name, value))

    def on_headers_complete(self) -> None:
        """Hand on the head, from the parser."""
        self._head_bytes = -1
        first = b"HTTP/1.1 %d %b\r\n" % (self._parser.get_status_code(), self._phrase)
        self._reader.on_answer(b"".join((first, *self._lines)), 0 if self._is_without_body else self._length)
        if self._is_without_body and self.is_asked:
            self.on_message_complete()

    def on_body(self, data: bytes) -> None:
        """Hand on a part of the body, from the parser."""
        self._reader.on_answer_part(data)

    def on_message_complete(self) -> None:
        """Hand on the end of the answer, from the parser."""
        self.is_asked = False
        self._reader.on_answer_end()

    # The socket

    def pending_output(self) -> list[bytes | memoryview]:
        """Return the output to be written now, and clear it."""
        out, self.out = self.out, []
        return out  # type: ignore[return-value]  # bytes are what it asks for

    def next_deadline(self) -> float | None:
        """Return None: who asks knows how long the answer may take."""
        return None

    def handle_deadline(self, _now: float) -> None:
        """Do nothing."""

    def block_output(self) -> None:
        """Do nothing: there is one request at a time."""
        self.is_blocked = True

    def resume_output(self) -> None:
        """Do nothing."""
        self.is_blocked = False

    def close(self) -> None:
        """End the connection once the output is written."""
        self.lost()

    def lost(self) -> None:
        """End the connection, as the socket is closed."""
        if not self.closed:
            self.closed = True
            self.is_asked = self.is_held = False
            self._parser = None  # they know each other
            reader, self._reader = self._reader, _NOBODY
            self.wake(self)
            reader.on_ended()


class _Nobody(AnswerReader):
    """Takes the place of the reader of a connection that has ended."""


_NOBODY: Any = _Nobody()  # type: ignore[abstract]  # nothing is read any more
