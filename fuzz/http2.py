"""Target of HTTP/2: a connection behind its preface, whole and in pieces, which must mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import ProtocolError
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from enmasse.wire.http.answers import HttpError, head
from enmasse.wire.http.connection import CHECK_S, IDLE_TIMEOUT_S
from enmasse.wire.http.exchange import Exchange
from enmasse.wire.http.heads import Request
from enmasse.wire.http.http2 import PREFACE, Http2Connection
from fuzz.engines import cut, headed
from fuzz.target import BrokenBoundError, Target, held_bytes, is_measured

__all__ = ["HTTP2_TARGET"]

HELD_AT_ALL = 256 << 10
HELD_PER_BYTE = 400


def _head(*more: tuple[str, str]) -> bytes:
    known = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "here")]
    return Encoder().encode([*known, *more])


_FRAMES: tuple[Frame, ...] = (
    SettingsFrame(0, settings={4: 100}),
    SettingsFrame(0, flags=["ACK"]),
    HeadersFrame(1, data=_head(), flags=["END_HEADERS", "END_STREAM"]),
    HeadersFrame(3, data=_head(("content-length", "4")), flags=["END_HEADERS"]),
    DataFrame(3, data=b"text", flags=["END_STREAM"]),
    HeadersFrame(5, data=_head(("expect", "100-continue")), flags=["END_HEADERS"]),
    DataFrame(5, data=b"", flags=[]),
    HeadersFrame(7, data=_head()[:5], flags=[]),
    ContinuationFrame(7, data=_head()[5:], flags=["END_HEADERS"]),
    RstStreamFrame(7, error_code=8),
    WindowUpdateFrame(0, window_increment=70_000),
    WindowUpdateFrame(1, window_increment=1),
    PingFrame(0, opaque_data=b"12345678"),
    PriorityFrame(9, depends_on=1, stream_weight=3),
    GoAwayFrame(0, last_stream_id=0, error_code=0),
)

_WORDS = tuple(frame.serialize() for frame in _FRAMES)


def _frames_of(data: bytes) -> list[bytes]:
    frames, at = [], 0
    while at < len(data):
        end = at + 9 + int.from_bytes(data[at : at + 3], "big")
        frames.append(data[at:end])
        at = end
    return frames


def mutate_frames(data: bytes, most: int, chance: Random) -> bytes:
    """An input with frames added, taken away or changed."""
    first, parts = data[:1] or b"\0", _frames_of(data[1:])
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(parts) + 1)
        match chance.randrange(5):
            case 0:
                parts.insert(at, chance.choice(_WORDS))
            case 1 if at < len(parts):
                del parts[at]
            case 2 if at < len(parts):
                place = chance.randrange(len(parts[at]) + 1)
                parts[at] = parts[at][:place] + bytes((chance.randrange(256),)) + parts[at][place + 1 :]
            case 3:
                path = "/" + "x" * chance.randrange(40)
                stream = 2 * chance.randrange(20) + 1
                flags = ["END_HEADERS"] + ["END_STREAM"] * chance.randrange(2)
                parts.insert(at, HeadersFrame(stream, data=_head(("x-more", path)), flags=flags).serialize())
            case _:
                first = bytes((chance.randrange(256),))
    return (first + b"".join(parts))[:most]


class Application:
    """Notes what is asked, over all exchanges; every fifth is refused, every seventh answered in parts."""

    def __init__(self, heard: list[tuple[object, ...]], engine: Exchange) -> None:
        self.heard = heard
        self.engine = engine
        self.is_closed = False

    def on_head(self, request: Request) -> bool:
        self.heard.append((request.method, request.path, request.query, tuple(request.headers.items())))
        if len(self.heard) % 5 == 4:
            raise HttpError(403, "not today")
        return True

    def on_request(self, request: Request, body: bytes) -> None:
        self.heard.append((body,))
        if len(self.heard) % 7 == 6 and self.engine.begin_stream(head(200)):
            self.engine.put_part(b"a part")
            self.engine.end_stream()
        else:
            self.engine.answer(head(200), b"yes")

    def on_http2(self, data: bytes) -> None:
        raise AssertionError("an exchange speaks HTTP/2 already")

    def on_blocked(self, is_blocked: bool) -> None: ...

    def on_written(self) -> None: ...

    def on_closed(self, error: Exception | None) -> None:
        assert not self.is_closed, "an end that is told twice"
        self.is_closed = True


def _check_frames(said: bytes) -> None:
    """Have a client read what an engine says: it must be frames, whatever they mean to it."""
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    for frame in _frames_of(said):
        try:
            client.receive_data(frame)
        except ProtocolError as error:
            # Streams that the client has not opened itself are unknown to it.
            if "stream" not in str(error).lower() and "StreamID" not in type(error).__name__:
                raise
            return


def run_http2(data: bytes) -> None:
    """However frames are cut, they mean the same; little is held, and the end is in order."""
    if not data:
        return
    results = []
    for pieces in sorted({0, data[0] & 7 or 1}):
        heard: list[tuple[object, ...]] = []
        applications: list[Application] = []

        def make(
            exchange: Exchange, heard: list[tuple[object, ...]] = heard, made: list[Application] = applications
        ) -> Application:
            made.append(Application(heard, exchange))
            return made[-1]

        engine = Http2Connection(make, make, now=0.0, date=lambda: b"Date: now\r\n")
        fed = 0
        said = b""
        for piece in cut(pieces, PREFACE + data[1:]):
            engine.receive(piece, 0.0)
            fed += len(piece)
            said += b"".join(bytes(part) for part in engine.pending_output())
        if is_measured():
            held = held_bytes(engine)
            if held > HELD_AT_ALL + HELD_PER_BYTE * fed:
                raise BrokenBoundError(f"an engine holds {held} bytes after {fed} bytes of input")
        _check_frames(said)
        engine.handle_deadline(CHECK_S)
        engine.handle_deadline(CHECK_S + IDLE_TIMEOUT_S)
        engine.pending_output()
        engine.lost()
        assert engine.closed
        assert engine.next_deadline() is None
        assert all(application.is_closed for application in applications)
        results.append(heard)
    assert results[0] == results[-1], f"cut, frames mean something else: {results!r:.2000}"


def _seeds() -> Sequence[bytes]:
    return headed((b"", *_WORDS, b"".join(_WORDS[:7]), b"".join(_WORDS[7:11])), 0, 9)


HTTP2_TARGET = Target("http2", run_http2, _seeds, 2048, mutate_frames)
