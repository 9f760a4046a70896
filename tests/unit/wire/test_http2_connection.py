"""The server's end of HTTP/2: many requests at a time, windows, and clients that break the rules or wear it out."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from enmasse.wire.http.answers import HttpError, head
from enmasse.wire.http.connection import BODY_TIMEOUT_S, CHECK_S, HEAD_TIMEOUT_S, IDLE_TIMEOUT_S, Connection
from enmasse.wire.http.exchange import MAX_OWED_BYTES, PART_BYTES, STALL_S, Exchange
from enmasse.wire.http.heads import MAX_BODY_BYTES, Request
from enmasse.wire.http.http2 import MAX_FIELD_BYTES, MAX_SPARE, MAX_STREAMS, PREFACE, Http2Connection

OK = head(200, "text/plain")
HEADERS = [(":method", "POST"), (":scheme", "http"), (":path", "/a?b=c"), (":authority", "here")]
FEW = [*HEADERS[:2], (":path", "/"), HEADERS[3]]


class Handler:
    """Answers with what it was sent, unless it is told otherwise."""

    def __init__(self, server: Server, engine: Exchange) -> None:
        self.server = server
        self.engine = engine
        self.written = 0
        self.blocked: list[bool] = []
        self.is_gone = False
        self.error: Exception | None = None

    def on_head(self, request: Request) -> bool:
        if self.server.refuses is not None:
            raise self.server.refuses
        return self.server.admits

    def on_request(self, request: Request, body: bytes) -> None:
        self.server.seen.append((request.method, request.path, body))
        if not self.server.is_slow:
            self.engine.answer(OK, body)

    def on_http2(self, data: bytes) -> None:
        raise AssertionError

    def on_blocked(self, is_blocked: bool) -> None:
        self.blocked.append(is_blocked)

    def on_written(self) -> None:
        self.written += 1

    def on_closed(self, error: Exception | None) -> None:
        assert not self.is_gone
        self.is_gone, self.error = True, error


class Server:
    """A server and a client of h2 that is joined to it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes]] = []
        self.refuses: HttpError | None = None
        self.is_slow = False
        self.admits = True
        self.handlers: list[Handler] = []
        self.now = 0.0
        self.engine = Http2Connection(self.make, self.make, now=0.0, date=lambda: b"Date: now\r\n")
        self.client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.client.initiate_connection()
        self.heads: dict[int, dict[str, str]] = {}
        self.bodies: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.reset: dict[int, int] = {}
        self.gone: int | None = None
        self.pongs = 0
        self.reads = True

    def make(self, exchange: Exchange) -> Handler:
        self.handlers.append(Handler(self, exchange))
        return self.handlers[-1]

    def put(self, *frames: Frame) -> None:
        self.raw(b"".join(frame.serialize() for frame in frames))

    def raw(self, data: bytes) -> None:
        self.engine.receive(data, self.now)
        while self.engine.has_more:
            self.engine.receive(b"", self.now)

    def turn(self) -> None:
        """Pass on what both have to say, until neither has more."""
        while True:
            data = self.client.data_to_send()
            if data:
                self.raw(data)
            told = b"".join(bytes(part) for part in self.engine.pending_output())
            if told:
                for event in self.client.receive_data(told):
                    self.note(event)
            if not data and not told:
                return

    def note(self, event: Event) -> None:
        if isinstance(event, ResponseReceived):
            self.heads[event.stream_id or 0] = {str(name): str(value) for name, value in event.headers or []}
        elif isinstance(event, DataReceived):
            stream = event.stream_id or 0
            self.bodies[stream] = self.bodies.get(stream, b"") + (event.data or b"")
            if self.reads:
                self.client.acknowledge_received_data(event.flow_controlled_length or 0, stream)
        elif isinstance(event, StreamEnded):
            self.ended.add(event.stream_id or 0)
        elif isinstance(event, StreamReset):
            self.reset[event.stream_id or 0] = int(event.error_code or 0)
        elif isinstance(event, PingAckReceived):
            self.pongs += 1
        elif isinstance(event, ConnectionTerminated):
            self.gone = int(event.error_code or 0)

    def ask(self, body: bytes = b"", headers: list[tuple[str, str]] = HEADERS) -> int:
        stream = self.client.get_next_available_stream_id()
        self.client.send_headers(stream, headers, end_stream=not body)
        if body:
            self.give(stream, body)
        self.turn()
        return stream

    def give(self, stream: int, body: bytes) -> None:
        """Send a body, as the windows allow."""
        while body:
            size = min(self.client.local_flow_control_window(stream), self.client.max_outbound_frame_size, len(body))
            if not size:
                self.turn()
                assert self.client.local_flow_control_window(stream), "the window was opened again"
                continue
            self.client.send_data(stream, body[:size], end_stream=size == len(body))
            body = body[size:]

    def later(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end and not self.engine.closed:
            self.now += CHECK_S
            self.engine.handle_deadline(self.now)
        self.turn()


@pytest.fixture
def server() -> Server:
    return Server()


def test_requests_are_answered_one_beside_the_other(server: Server) -> None:
    server.is_slow = True
    first, second = server.ask(b"one"), server.ask(b"two")
    server.handlers[1].engine.answer(OK, b"2")
    server.turn()
    assert server.bodies == {second: b"2"}
    server.handlers[0].engine.answer(OK, b"1")
    server.turn()
    assert server.bodies[first] == b"1"
    assert server.seen == [("POST", "/a", b"one"), ("POST", "/a", b"two")]
    assert server.heads[first][":status"] == "200"
    assert server.heads[first]["content-length"] == "1"
    assert server.heads[first]["x-content-type-options"] == "nosniff"
    assert [handler.written for handler in server.handlers] == [1, 1]
    # What is answered serves the next one.
    server.ask(b"three")
    assert len(server.handlers) == 2


def test_requests_that_wait_hold_up_neither_pings_nor_other_streams(server: Server) -> None:
    server.is_slow = True
    waiting = [server.ask(bytes(40_000)) for _ in range(MAX_STREAMS - 1)]
    server.is_slow = False
    server.client.ping(b"?" * 8)
    settling = server.ask(bytes(50_000))
    assert (server.pongs, len(server.bodies[settling])) == (1, 50_000)
    assert not server.engine.is_held
    server.client.reset_stream(waiting[0])
    server.turn()
    assert [handler.is_gone for handler in server.handlers].count(True) == 1
    server.handlers[1].engine.answer(OK, b"later")
    server.turn()
    assert server.bodies == {settling: bytes(50_000), waiting[1]: b"later"}


def test_bodies_and_answers_of_any_size_pass_the_windows(server: Server) -> None:
    body = bytes(range(256)) * 4_000
    stream = server.ask(body)
    assert server.bodies[stream] == body
    assert stream in server.ended


def test_a_reader_that_is_slow_stops_its_own_stream_alone(server: Server) -> None:
    body = b"x" * 60_000
    server.reads = False
    slow = server.ask(body)
    slower = server.ask(body)
    assert len(server.bodies[slow]) == 60_000
    assert len(server.bodies[slower]) == 5_535, "the connection's window is full"
    assert slower not in server.ended
    (handler,) = server.handlers
    assert handler.written == 1, "what is not written is not accepted"
    server.client.increment_flow_control_window(60_000)
    server.turn()
    assert slower in server.ended
    assert handler.written == 2


def test_an_answer_in_parts_is_held_up_by_the_window(server: Server) -> None:
    server.is_slow, server.reads = True, False
    stream = server.ask()
    (handler,) = server.handlers
    assert handler.engine.begin_stream(head(200, "text/event-stream"))
    part = b"y" * 10_000
    sent = 0
    while not handler.engine.is_blocked:
        handler.engine.put_part(part)
        sent += len(part)
    server.turn()
    assert sent <= 65_535 + PART_BYTES + len(part)
    server.client.increment_flow_control_window(sent)
    server.client.increment_flow_control_window(sent, stream)
    server.turn()
    assert handler.blocked == [True, False]
    handler.engine.end_stream()
    server.turn()
    assert server.bodies[stream] == b"y" * sent
    assert stream in server.ended


def test_what_the_socket_does_not_take_holds_up_all(server: Server) -> None:
    server.is_slow = True
    stream = server.ask()
    engine = server.handlers[0].engine
    engine.begin_stream(OK)
    server.engine.block_output()
    engine.put_part(b"z")
    server.turn()
    assert stream not in server.bodies
    server.engine.resume_output()
    server.turn()
    assert server.bodies[stream] == b"z"
    assert server.handlers[0].blocked == [True, False]


def test_a_head_alone_is_answered_without_a_body(server: Server) -> None:
    stream = server.ask(headers=[(":method", "HEAD"), *HEADERS[1:]])
    assert server.heads[stream][":status"] == "200"
    assert stream not in server.bodies
    assert stream in server.ended


def test_a_body_waits_until_its_head_is_agreed_to(server: Server) -> None:
    server.admits = False
    stream = server.client.get_next_available_stream_id()
    server.client.send_headers(stream, HEADERS)
    server.client.send_data(stream, b"m" * 16_384)
    server.turn()
    assert server.client.local_flow_control_window(stream) == 65_535 - 16_384
    assert server.seen == []
    server.handlers[0].engine.go_on()
    server.client.end_stream(stream)
    server.turn()
    assert server.seen == [("POST", "/a", b"m" * 16_384)]


def test_leave_to_go_on_is_given_where_it_is_asked_for(server: Server) -> None:
    stream = server.client.get_next_available_stream_id()
    server.client.send_headers(stream, [*HEADERS, ("expect", "100-continue")])
    server.raw(server.client.data_to_send())
    told = b"".join(bytes(part) for part in server.engine.pending_output())
    names = [type(event).__name__ for event in server.client.receive_data(told)]
    assert "InformationalResponseReceived" in names


def test_a_refused_head_costs_the_stream_alone(server: Server) -> None:
    server.refuses = HttpError(403, "no")
    stream = server.client.get_next_available_stream_id()
    server.client.send_headers(stream, HEADERS)
    server.turn()
    assert server.heads[stream][":status"] == "403"
    assert json.loads(server.bodies[stream])["detail"] == "no"
    assert server.reset == {stream: ErrorCodes.NO_ERROR}, "the rest of the body is not wanted"
    server.refuses = None
    assert server.heads[server.ask(b"yes")][":status"] == "200"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(":method", "BREW"), *HEADERS[1:]], 501),
        ([(":method", "CONNECT"), (":authority", "here")], 400),
        ([*HEADERS, ("content-type", "a"), ("content-type", "b")], 400),
        ([*HEADERS[:2], (":path", "/" + "a" * 5_000), HEADERS[3]], 414),
        ([*HEADERS, *((f"x-{number}", "") for number in range(101))], 431),
        ([*HEADERS, ("expect", "tea")], 417),
        ([*HEADERS, ("content-length", "5")], 400),
    ],
)
def test_requests_that_are_not_served_are_answered_with_the_reason(
    server: Server, headers: list[tuple[str, str]], status: int
) -> None:
    stream = server.client.get_next_available_stream_id()
    server.client.send_headers(stream, headers, end_stream=True)
    server.turn()
    assert server.heads[stream][":status"] == str(status)
    assert json.loads(server.bodies[stream])["status"] == status
    assert server.heads[server.ask(b"a bystander")][":status"] == "200"


def test_a_body_that_is_announced_too_large_is_refused(server: Server) -> None:
    stream = server.client.get_next_available_stream_id()
    server.client.send_headers(stream, [*HEADERS, ("content-length", str(MAX_BODY_BYTES + 1))])
    server.turn()
    assert server.heads[stream][":status"] == "413"


@pytest.mark.slow
def test_a_body_without_end_is_refused(server: Server) -> None:
    stream = server.client.get_next_available_stream_id()
    server.client.send_headers(stream, HEADERS)
    with pytest.raises(AssertionError, match="window"):
        server.give(stream, b"n" * (MAX_BODY_BYTES + 100_000))
    assert server.heads[stream][":status"] == "413"


def test_a_body_needs_room(server: Server) -> None:
    server.handlers[0].engine.more_room = lambda size: size < 10_000
    stream = server.client.get_next_available_stream_id()
    server.client.send_headers(stream, HEADERS)
    server.client.send_data(stream, b"r" * 16_000)
    server.turn()
    assert server.heads[stream][":status"] == "503"


def test_a_client_that_takes_its_request_back_ends_the_exchange(server: Server) -> None:
    server.is_slow = True
    stream = server.ask(b"")
    server.client.reset_stream(stream, ErrorCodes.CANCEL)
    server.turn()
    assert server.handlers[0].is_gone
    server.handlers[0].engine.answer(OK, b"too late")
    server.is_slow = False
    assert server.bodies[server.ask(b"another")] == b"another"


def test_the_connection_ends_as_the_server_closes_its_last_exchange(server: Server) -> None:
    server.is_slow = True
    first, second = server.ask(), server.ask()
    server.handlers[0].engine.closes = True
    server.handlers[0].engine.fail(HttpError(401, "who?"))
    server.turn()
    assert server.heads[first][":status"] == "401"
    assert server.handlers[0].is_gone
    assert isinstance(server.handlers[0].error, HttpError)
    assert not server.engine.closed
    server.handlers[1].engine.close()
    server.turn()
    assert server.reset == {second: ErrorCodes.CANCEL}
    assert server.gone == ErrorCodes.NO_ERROR
    assert server.engine.closed


def test_an_answer_that_fails_in_the_middle_is_cut(server: Server) -> None:
    server.is_slow = True
    stream, _other = server.ask(), server.ask()
    engine = server.handlers[0].engine
    engine.begin_stream(OK)
    engine.fail(HttpError(500, "broken"))
    server.turn()
    assert server.reset == {stream: ErrorCodes.INTERNAL_ERROR}


# Time


def test_what_nobody_uses_is_closed(server: Server) -> None:
    server.is_slow = True
    server.ask()
    server.ask()
    for handler in server.handlers:
        handler.engine.answer(OK)
    server.turn()
    server.later(3 * CHECK_S)
    assert [handler.is_gone for handler in server.handlers].count(True) == 1, "one is kept for what comes"
    server.later(IDLE_TIMEOUT_S)
    assert server.gone == ErrorCodes.NO_ERROR
    assert all(handler.is_gone for handler in server.handlers)


@pytest.mark.parametrize("data", [b"", PREFACE[:10], PREFACE + b"\0\0"])
def test_beginnings_that_go_no_further_are_closed(server: Server, data: bytes) -> None:
    server.raw(data)
    server.now += HEAD_TIMEOUT_S + CHECK_S
    server.engine.handle_deadline(server.now)
    assert server.engine.closed


def test_a_head_whose_end_does_not_come_is_closed(server: Server) -> None:
    server.turn()
    begun = HeadersFrame(1, data=Encoder().encode(FEW), flags=[])
    server.put(begun)
    for _ in range(3):
        server.now += HEAD_TIMEOUT_S / 2
        server.put(ContinuationFrame(1, data=b""))
        server.engine.handle_deadline(server.now)
    assert server.engine.closed


def test_a_body_that_is_slow_is_given_up(server: Server) -> None:
    stream = server.client.get_next_available_stream_id()
    server.client.send_headers(stream, HEADERS)
    server.client.send_data(stream, b"s")
    server.turn()
    server.later(BODY_TIMEOUT_S + 2 * CHECK_S)
    assert server.heads[stream][":status"] == "408"


def test_an_answer_that_nobody_takes_is_given_up(server: Server) -> None:
    server.reads = False
    server.ask(b"t" * 60_000)
    stream = server.ask(b"t" * 60_000)
    server.later(STALL_S + 2 * CHECK_S)
    assert server.reset == {stream: ErrorCodes.CANCEL}
    assert server.handlers[0].is_gone


def test_no_answer_is_begun_while_a_client_is_owed_much(server: Server) -> None:
    """Streams that can wait do so until half of it was read."""
    server.is_slow = True
    server.reads = False
    for _ in range(3):
        server.ask()
    first, second, third = (handler.engine for handler in server.handlers)
    assert first.room == MAX_OWED_BYTES // 2
    second.gather(1000)
    assert (first.room, second.room) == ((MAX_OWED_BYTES - 1000) // 2, MAX_OWED_BYTES // 2)
    first.answer(OK, bytes(MAX_OWED_BYTES + 65_535))
    assert [handler.blocked for handler in server.handlers] == [[], [True], [True]]
    server.ask()
    assert server.handlers[3].engine.is_blocked, "one that comes later waits, too"
    assert third.room < 0
    server.turn()
    for size in (400_000, 200_000):
        server.client.increment_flow_control_window(size)
        server.client.increment_flow_control_window(size, 1)
        assert server.handlers[1].blocked == [True]
        server.turn()
    assert [handler.blocked for handler in server.handlers] == [[], [True, False], [True, False], [False]]
    second.answer(OK, b"")
    server.reads = True
    server.client.increment_flow_control_window(MAX_OWED_BYTES)
    server.client.increment_flow_control_window(MAX_OWED_BYTES, 1)
    server.turn()
    assert server.ended == {1, 3}
    assert server.engine.owed == 0


@pytest.mark.parametrize("way", ["answer", "parts", "given-up", "lost"])
def test_an_answer_for_which_there_is_no_room_is_taken_back(server: Server, way: str) -> None:
    server.is_slow = True
    server.reads = False
    held: list[int] = []
    stream = server.ask()
    (handler,) = server.handlers

    def may_owe(size: int) -> bool:
        held.append(size)
        return way in ("given-up", "lost") or size < 100_000

    handler.engine.may_owe = may_owe
    if way == "parts":
        handler.engine.begin_stream(OK)
        handler.engine.put_part(bytes(300_000))
    else:
        handler.engine.answer(OK, bytes(300_000))
    if way == "given-up":
        handler.engine.give_up()
    elif way == "lost":
        server.engine.lost()
    server.turn()
    assert handler.is_gone
    assert held == [300_000 - 65_535, 0]
    assert server.engine.owed == 0
    assert server.reset == ({} if way == "lost" else {stream: ErrorCodes.ENHANCE_YOUR_CALM})


# Clients that break the rules [RFC 9113], and those that wear the server out


def fields(*headers: tuple[str, str]) -> bytes:
    return Encoder().encode([*FEW, *headers])


def whole(stream: int = 1, *more: tuple[str, str], end: bool = True) -> HeadersFrame:
    flags = ["END_HEADERS", "END_STREAM"] if end else ["END_HEADERS"]
    return HeadersFrame(stream, data=fields(*more), flags=flags)


def unpacked() -> bytes:
    """A head of a quarter of a megabyte, in few bytes: the same field again and again."""
    encoder = Encoder()
    return b"".join(encoder.encode([("x", "z" * 4_000)]) for _ in range(60))


BROKEN: dict[str, tuple[Callable[[], list[Frame | bytes]], ErrorCodes]] = {
    "5.1 DATA before HEADERS": (lambda: [DataFrame(1, data=b"a")], ErrorCodes.PROTOCOL_ERROR),
    "5.1 RST_STREAM of an idle stream": (lambda: [RstStreamFrame(7, error_code=8)], ErrorCodes.PROTOCOL_ERROR),
    "5.1.1 a stream with an even number": (lambda: [whole(2)], ErrorCodes.PROTOCOL_ERROR),
    "5.1.1 a stream below one before": (lambda: [whole(5), whole(3)], ErrorCodes.PROTOCOL_ERROR),
    "4.2 a frame that is too large": (lambda: [b"\x00\x40\x01\x00\x00\x00\x00\x00\x01"], ErrorCodes.FRAME_SIZE_ERROR),
    "4.3 a head that cannot be read": (
        lambda: [HeadersFrame(1, data=b"\xff" * 20, flags=["END_HEADERS"])],
        ErrorCodes.PROTOCOL_ERROR,  # h2 does not tell it from other mistakes
    ),
    "6.2 another frame within a head": (
        lambda: [HeadersFrame(1, data=fields(), flags=[]), PingFrame(0, opaque_data=b"12345678")],
        ErrorCodes.PROTOCOL_ERROR,
    ),
    "6.5 SETTINGS on a stream": (lambda: [b"\0\0\0\x04\0\0\0\0\x01"], ErrorCodes.PROTOCOL_ERROR),
    "6.5 SETTINGS of a wrong size": (lambda: [b"\0\0\x05\x04\0\0\0\0\0abcde"], ErrorCodes.FRAME_SIZE_ERROR),
    "6.5.2 a window that is too large": (
        lambda: [SettingsFrame(0, settings={4: 2**31})],
        ErrorCodes.FLOW_CONTROL_ERROR,
    ),
    "6.7 PING of a wrong size": (lambda: [b"\0\0\x06\x06\0\0\0\0\0abcdef"], ErrorCodes.FRAME_SIZE_ERROR),
    "6.9 a window that grows by nothing": (lambda: [b"\0\0\x04\x08\0\0\0\0\0\0\0\0\0"], ErrorCodes.PROTOCOL_ERROR),
    "6.9.1 a window that overflows": (
        lambda: [WindowUpdateFrame(0, window_increment=2**31 - 1)],
        ErrorCodes.FLOW_CONTROL_ERROR,
    ),
    "6.10 CONTINUATION without a head": (lambda: [ContinuationFrame(1, data=b"")], ErrorCodes.PROTOCOL_ERROR),
    "8.1.1 a length that is not kept": (
        lambda: [whole(1, ("content-length", "5"), end=False), DataFrame(1, data=b"123", flags=["END_STREAM"])],
        ErrorCodes.PROTOCOL_ERROR,
    ),
    "8.2.1 a name in upper case": (lambda: [whole(1, ("Accept", "a"))], ErrorCodes.PROTOCOL_ERROR),
    "8.2.2 a header of the connection": (
        lambda: [whole(1, ("transfer-encoding", "chunked"))],
        ErrorCodes.PROTOCOL_ERROR,
    ),
    "8.3 a pseudo-header twice": (lambda: [whole(1, (":path", "/b"))], ErrorCodes.PROTOCOL_ERROR),
    "8.3.1 no path": (
        lambda: [HeadersFrame(1, data=Encoder().encode(FEW[:2]), flags=["END_HEADERS", "END_STREAM"])],
        ErrorCodes.PROTOCOL_ERROR,
    ),
    "10.5 a head of many CONTINUATIONs": (
        lambda: [
            HeadersFrame(1, data=fields(), flags=[]),
            *(ContinuationFrame(1, data=Encoder().encode([(f"x-{n}", "y" * 1_000)])) for n in range(30)),
        ],
        ErrorCodes.ENHANCE_YOUR_CALM,
    ),
    "10.5 a head of empty CONTINUATIONs": (
        lambda: [HeadersFrame(1, data=fields(), flags=[]), *(ContinuationFrame(1, data=b"") for _ in range(70))],
        ErrorCodes.PROTOCOL_ERROR,
    ),
    "10.5 a head that is small until it is unpacked": (
        lambda: [
            HeadersFrame(
                1,
                data=unpacked(),
                flags=["END_HEADERS"],
            )
        ],
        ErrorCodes.ENHANCE_YOUR_CALM,
    ),
    "10.5 requests that are taken back": (
        lambda: [frame for n in range(1, MAX_SPARE, 2) for frame in (whole(n), RstStreamFrame(n, error_code=8))],
        ErrorCodes.ENHANCE_YOUR_CALM,
    ),
    "10.5 PINGs": (
        lambda: [PingFrame(0, opaque_data=b"12345678") for _ in range(MAX_SPARE + 1)],
        ErrorCodes.ENHANCE_YOUR_CALM,
    ),
    "10.5 SETTINGS": (lambda: [SettingsFrame(0) for _ in range(MAX_SPARE + 1)], ErrorCodes.ENHANCE_YOUR_CALM),
    "10.5 PRIORITY": (
        lambda: [PriorityFrame(1, depends_on=0, stream_weight=1) for _ in range(MAX_SPARE + 1)],
        ErrorCodes.ENHANCE_YOUR_CALM,
    ),
    "10.5 empty DATA": (
        lambda: [whole(1, end=False), *(DataFrame(1, data=b"") for _ in range(MAX_SPARE + 1))],
        ErrorCodes.ENHANCE_YOUR_CALM,
    ),
    "5.1.2 more requests than may be under way": (
        lambda: [whole(2 * n + 1) for n in range(MAX_STREAMS + 1)],
        ErrorCodes.PROTOCOL_ERROR,
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_who_breaks_the_rules_loses_the_connection(server: Server, case: str) -> None:
    make, code = BROKEN[case]
    server.is_slow = True
    server.raw(PREFACE + SettingsFrame(0).serialize())
    for frame in make():
        server.raw(frame if isinstance(frame, bytes) else frame.serialize())
        if server.engine.closed:
            break
    assert server.engine.closed
    told = b"".join(bytes(part) for part in server.engine.pending_output())
    gone = [event for event in server.client.receive_data(told) if isinstance(event, ConnectionTerminated)]
    assert [event.error_code for event in gone] == [code]
    assert all(handler.is_gone for handler in server.handlers)
    server.raw(whole(999).serialize())
    assert server.engine.pending_output() == []


def test_requests_that_are_taken_back_slowly_do_no_harm(server: Server) -> None:
    server.is_slow = True
    kept = server.ask()
    for _ in range(300):
        stream = server.ask()
        server.client.reset_stream(stream, ErrorCodes.CANCEL)
        server.now += 0.2
        server.turn()
    server.handlers[0].engine.answer(OK, b"here still")
    server.turn()
    assert server.bodies[kept] == b"here still"


def test_a_connection_of_http11_is_handed_over_at_its_first_bytes() -> None:
    given: list[bytes] = []

    class Old:
        on_head = on_request = on_blocked = on_written = on_closed = None

        def on_http2(self, data: bytes) -> None:
            given.append(data)

    engine = Connection(Old(), now=0.0, date=lambda: b"")  # type: ignore[arg-type]
    engine.receive(PREFACE[:5], 0.0)
    assert given == []
    engine.receive(PREFACE[5:] + b"more", 0.0)
    assert given == [PREFACE + b"more"]
    assert engine.pending_output() == []
    assert not engine.has_more


def test_a_head_is_no_larger_than_is_announced(server: Server) -> None:
    server.turn()
    assert server.client.remote_settings.max_header_list_size == MAX_FIELD_BYTES
    assert server.client.remote_settings.max_concurrent_streams == MAX_STREAMS
