"""Parses the heads of requests, by ``httptools``, and refuses whatever two readers could understand differently.

Rules:
1. Lines end with CR and LF, and nothing else does. Headers are not folded [RFC 9112 5.2].
2. The length of a body is said once: by ``Content-Length`` or by ``Transfer-Encoding: chunked``, never by both
   [RFC 9112 6.3].
3. What names no host is refused here, so that nobody behind reads it in another way [RFC 9112 3.2].
4. Everything has a bound: the head, the target, the number of headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import httptools

from enmasse.wire.http.answers import HttpError

MAX_HEAD_BYTES: Final = 16 << 10
"""The most bytes of a head: browsers send a few KiB, a token has some."""

MAX_TARGET_BYTES: Final = 4 << 10
"""The longest target: names of addresses have hundreds of characters, each of which may be three encoded."""

MAX_HEADERS: Final = 100

MAX_BODY_BYTES: Final = 17 << 20
"""The largest body: the largest message that is held whole, and what is around it in a batch."""

METHODS: Final = frozenset((b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"))

MAX_LENGTH_DIGITS: Final = 15

BARE_END: Final = re.compile(rb"(?<!\r)\n|\r(?=[^\n])")
"""A line that ends in another way than with CR and LF."""

_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
_TARGET = re.compile(rb"\*|/[\x21-\x7e]*")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?", re.ASCII)
"""A host and perhaps a port, as a header has them [RFC 9110 7.2]; empty where the target has no host."""

_ABSOLUTE = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)

_ONCE = frozenset(
    ("authorization", "content-length", "content-type", "expect", "host", "idempotency-key", "origin",
     "transfer-encoding")
)  # fmt: skip
"""Headers that a request has once at most; others of the same name are one list [RFC 9110 5.3]."""


class Request:
    """The head of a request.

    Attributes:
        method: such as ``POST``.
        path: the target before ``?``, still encoded.
        query: the target after ``?``, still encoded.
        headers: values by name in lower case.
        length: the bytes of the body; -1 if it comes in chunks.
        is_kept_alive: true if the connection stays open after the answer.
        is_http_10: true if the client speaks HTTP/1.0.
        expects_continue: true if the client waits for leave to send the body.
        route: the result that the handler makes of the head, for it alone; kept as long as the head is remembered.
    """

    __slots__ = (
        "expects_continue", "headers", "is_http_10", "is_kept_alive", "length", "method", "path", "query", "route",
    )  # fmt: skip

    def __init__(self, method: str, target: str, headers: dict[str, str], *, is_http_10: bool) -> None:
        self.method = method
        self.path, _, self.query = target.partition("?")
        self.headers = headers
        self.is_http_10 = is_http_10
        self.length = _length_of(headers, is_http_10=is_http_10)
        options = {option.strip().lower() for option in headers.get("connection", "").split(",")}
        self.is_kept_alive = "keep-alive" in options if is_http_10 else "close" not in options
        expected = headers.get("expect", "").strip().lower()
        if expected and expected != "100-continue":
            raise HttpError(417, f"Expect is 100-continue or left out, not {expected!r:.60}")
        self.expects_continue = bool(expected) and not is_http_10 and self.length != 0
        self.route: Any = None

    @property
    def target(self) -> str:
        """The path and what follows it, still encoded."""
        return f"{self.path}?{self.query}" if self.query else self.path


class _Collected:
    """The parts of a head that the parser finds."""

    __slots__ = ("body", "is_complete", "is_overrun", "lines")

    def __init__(self) -> None:
        self.lines: list[tuple[bytes, bytes]] = []
        self.body = bytearray()
        self.is_complete = self.is_overrun = False

    def on_message_begin(self) -> None:
        self.is_overrun = self.is_overrun or self.is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        self.lines.append((name, value))

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.is_complete = True


def read_head(data: bytes) -> tuple[Request, ChunkedBody | None]:
    """Return a request, and what reads its body if that comes in chunks.

    Args:
        data: the head, with the empty line that ends it.

    Raises:
        HttpError: this is not the head of a request, or not of one that is served here.
    """
    method, target, authority, is_http_10 = _read_line(data[: data.find(b"\r\n")])
    ends = data.count(b"\r\n")
    if BARE_END.search(data) is not None or b"\0" in data:
        raise HttpError(400, "the lines of a head end with CR and LF, and have neither of them, nor NUL, within")
    if b"\r\n " in data or b"\r\n\t" in data:
        raise HttpError(400, "a header is folded over several lines: send it in one")
    if ends - 2 > MAX_HEADERS:
        raise HttpError(431, f"a request has up to {MAX_HEADERS} headers: send fewer")
    collected = _Collected()
    parser = httptools.HttpRequestParser(collected)
    # White space may stand between the size of a chunk and its extension [RFC 9112 7.1.1].
    parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass  # The client would speak something else, too, and gets HTTP.
    except httptools.HttpParserError as error:
        raise HttpError(400, f"this is not the head of a request: {error}") from None
    headers = _headers_of(collected.lines)
    if "host" not in headers and not is_http_10:
        raise HttpError(400, "a request of HTTP/1.1 has a header Host: send one")
    if authority is not None:
        # Whatever Host says [RFC 9112 3.2.2].
        headers["host"] = authority
    _check_host(headers)
    request = Request(method, target, headers, is_http_10=is_http_10)
    return request, ChunkedBody(parser, collected) if request.length < 0 else None


def read_fields(fields: Sequence[tuple[bytes, bytes]], *, has_body: bool) -> Request:
    """Return a request of HTTP/2 [RFC 9113 8.3].

    Args:
        fields: its pseudo-header fields and headers, of which h2 has checked names and order.
        has_body: true if bytes of a body follow.

    Raises:
        HttpError: this is no request that is served here.
    """
    pseudo = dict(fields)
    lines = [(name, value) for name, value in fields if not name.startswith(b":")]
    if len(lines) > MAX_HEADERS:
        raise HttpError(431, f"a request has up to {MAX_HEADERS} headers: send fewer")
    if any(byte in value for _, value in fields for byte in (b"\r", b"\n", b"\0")):
        raise HttpError(400, "a header has neither CR, LF nor NUL within")
    target = pseudo.get(b":path", b"")
    if not _TARGET.fullmatch(target):
        raise HttpError(400, "a target begins with a slash, and has no spaces or control characters")
    method, path, _ = _checked(pseudo.get(b":method", b""), target)
    headers = _headers_of(lines)
    if b":authority" in pseudo:
        headers["host"] = pseudo[b":authority"].decode("latin-1")
    if "host" not in headers:
        raise HttpError(400, "a request of HTTP/2 has an :authority: send one")
    _check_host(headers)
    request = Request(method, path, headers, is_http_10=False)
    if has_body and "content-length" not in headers:
        request.length = -1
        request.expects_continue = "expect" in headers
    elif request.length and not has_body:
        raise HttpError(400, f"{request.length} bytes of a body are announced, and none come")
    return request


def _check_host(headers: dict[str, str]) -> None:
    host = headers.get("host")
    if host is not None and _HOST.fullmatch(host) is None:
        raise HttpError(400, f"the Host is {host!r:.100}: expected one name or address, and perhaps a port")


def _headers_of(lines: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for key, raw in lines:
        name, value = key.decode("latin-1").lower(), raw.decode("latin-1").strip(" \t")
        if name not in headers:
            headers[name] = value
        elif name in _ONCE:
            raise HttpError(400, f"the header {name} comes more than once: send it once")
        else:
            headers[name] += f", {value}"
    return headers


def _read_line(line: bytes) -> tuple[str, str, str | None, bool]:
    """Return method, target and the host in it, if there is one, and true for HTTP/1.0."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise HttpError(400, "a request begins with a method, a target and HTTP/1.1, with one space between them")
    method, target, major, minor = found.groups()
    if major != b"1" or minor not in b"01":
        raise HttpError(505, f"HTTP/1.1 and HTTP/1.0 are spoken here, not HTTP/{major.decode()}.{minor.decode()}")
    return *_checked(method, target), minor == b"0"


def _checked(method: bytes, target: bytes) -> tuple[str, str, str | None]:
    """Return method, target without scheme and host, and that host, if it has one.

    Raises:
        HttpError: they are not served here.
    """
    if len(target) > MAX_TARGET_BYTES:
        raise HttpError(414, f"a target has up to {MAX_TARGET_BYTES} bytes")
    if method not in METHODS:
        raise HttpError(501, f"the method {method.decode('latin-1'):.40} is not known here: use {_some(METHODS)}")
    absolute = _ABSOLUTE.match(target)
    if absolute is not None:
        target = target[absolute.end() :] or b"/"
    if not target.startswith(b"/") and (target != b"*" or method != b"OPTIONS"):
        raise HttpError(400, "a target begins with a slash, or is a whole http URL")
    authority = None if absolute is None else absolute[1].decode("ascii")
    return method.decode(), target.decode("ascii"), authority


def _some(names: frozenset[bytes]) -> str:
    return ", ".join(sorted(name.decode() for name in names))


def _length_of(headers: dict[str, str], *, is_http_10: bool) -> int:
    coding = headers.get("transfer-encoding")
    length = headers.get("content-length")
    if coding is not None:
        if length is not None:
            raise HttpError(400, "a body has a Content-Length or a Transfer-Encoding, not both")
        if is_http_10:
            raise HttpError(400, "HTTP/1.0 has no Transfer-Encoding: send a Content-Length")
        if coding.lower() != "chunked":
            raise HttpError(501, f"the only Transfer-Encoding is chunked, not {coding!r:.60}")
        return -1
    if length is None:
        return 0
    if not (length.isascii() and length.isdigit() and len(length) <= MAX_LENGTH_DIGITS):
        raise HttpError(400, f"a Content-Length is a number of bytes, not {length!r:.60}")
    return int(length)


MAX_OVERHEAD_BYTES: Final = 64 << 10
"""Bytes of chunk sizes and trailers that a body may have beside as many as its own."""

_END = b"\r\n\r\n"


class ChunkedBody:
    """Reads a body that comes in chunks [RFC 9112 7.1].

    The parser does not tell where in its input a message ends. But that is always behind an empty line, so it is fed
    up to each of these.
    """

    __slots__ = ("_collected", "_last", "_parser", "raw_bytes")

    def __init__(self, parser: Any, collected: _Collected) -> None:
        self._parser = parser
        self._collected = collected
        self._last = b""
        """The last bytes that were fed, in which an empty line may have begun."""
        self.raw_bytes = 0
        """The bytes that came, sizes and trailers included."""

    @property
    def body(self) -> bytes:
        """The body as far as it has come."""
        return bytes(self._collected.body)

    @property
    def held_bytes(self) -> int:
        """The bytes of the body that have come."""
        return len(self._collected.body)

    def feed(self, data: bytes) -> int:
        """Take bytes.

        Returns:
            The number of bytes that belong to the body if it is complete; -1 if more is to come.

        Raises:
            HttpError: these are no chunks, or too many.
        """
        collected, before = self._collected, len(self._last)
        joined = self._last + data
        at = before
        while at < len(joined):
            found = joined.find(_END, max(0, at - len(_END) + 1))
            stop = len(joined) if found < 0 else found + len(_END)
            try:
                self._parser.feed_data(joined[at:stop])
            except httptools.HttpParserUpgrade:
                pass  # As at the head.
            except httptools.HttpParserError as error:
                raise HttpError(400, f"the body is not in chunks as it should be: {error}") from None
            if collected.is_overrun:
                raise HttpError(400, "the chunks of a body end with an empty line")
            self.raw_bytes += stop - at
            at = stop
            if len(collected.body) > MAX_BODY_BYTES:
                raise HttpError(413, f"a body has up to {MAX_BODY_BYTES} bytes: send less")
            if self.raw_bytes > 2 * len(collected.body) + MAX_OVERHEAD_BYTES:
                raise HttpError(400, "the chunks of a body have more around them than in them: send larger ones")
            if collected.is_complete:
                return at - before
        self._last = joined[-len(_END) + 1 :]
        return -1
