"""The server's end of a STOMP connection: bytes in, frames out.

Rules:
1. A frame is parsed in place. Only one that is cut by the end of a read is copied (``remainder``).
2. Messages go to a *sink*, cached by the bytes of the frame's head without its receipt: a client that repeats a head
   has it parsed once.
3. An error is answered with ``ERROR``, the receipt of the frame that caused it, and the end of the connection
   [STOMP 1.2 "ERROR"]. What the peer still sends is ignored until it has had time to read that.
4. The engine has no clock: time comes with ``receive`` and ``handle_deadline``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from enmasse.errors import RemoteError, kept
from enmasse.wire.stomp.frames import (
    COMMANDS,
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    FrameError,
    Version,
    content_length,
    encode_frame,
    is_plain,
    missing_end,
    read_head,
    split_receipt,
    unknown_command,
)
from enmasse.wire.stomp.handler import NOBODY, Handler, SendSink
from enmasse.wire.stomp.remainder import Awaited, Remainder, no_limit

TURN_BYTES = 1 << 20
"""The most output of a connection between two writes; beyond that its output is blocked."""

SLICE_BYTES = 4 << 10
"""The bytes that are parsed before ``is_late`` is asked if other connections wait."""

MAX_SINKS = 256
"""The most sinks that a connection caches; most clients use a handful."""

MAX_KNOWN_HEAD_BYTES = 2 << 10
"""The longest head that is cached: longer ones are hardly ever repeated."""

CONNECT_TIMEOUT_S = 30.0
LINGER_S = 1.0
"""Seconds for a peer that was sending to read the ``ERROR`` before the socket is closed."""

SENDS_EVERY_MS = 1_000
"""The shortest interval of heart-beats that the server offers."""

WANTS_EVERY_MS = 10_000
"""The interval of heart-beats that the server wants from peers that send any."""

BEATS = 3
"""The checks per interval whether the server has been silent."""

PATIENCE = 2
"""The number of missing heart-beats after which a peer is taken to be gone."""

MAX_BEAT_DIGITS = 9

MAX_LINE_ENDS = 64
"""The most line ends in the place of a body that a frame has none of; some clients write one or two."""


class _Phase(Enum):
    CONNECT = auto()
    """The peer has not sent ``CONNECT``."""
    ASKED = auto()
    """``CONNECT`` has come and was not answered."""
    OPEN = auto()
    LINGER = auto()
    """``ERROR`` was sent; input is ignored."""
    DONE = auto()


def _is_empty(data: bytes, at: int, end: int, size: int) -> bool:
    """Return whether a body has nothing but line ends, as far as it has come.

    Args:
        data: what has come.
        at: where the body begins in it.
        end: where it ends.
        size: the length that the frame states for the body, or -1.
    """
    body = data[at : min(end, at + (MAX_LINE_ENDS if size < 0 else size) + 1)]
    plain = body.lstrip(b"\r\n")
    ends = len(body) - len(plain)
    return ends <= MAX_LINE_ENDS and (not plain or (not plain[0] and (size < 0 or ends == size)))


class Connection:
    """A server's STOMP connection.

    Args:
        handler: acts on the peer's frames.
        now: the time in seconds.
        server: the server's name in ``CONNECTED``.

    Attributes:
        version: the version that was agreed on.
        out: the output to be written, in order.
        trace: called with true for output or false for input, and the bytes, if the connection is traced.
        more_room: called with a number of bytes; returns true if an incomplete frame may take that many.
        keeps_login: true if the bytes of ``CONNECT`` are kept until it is answered, as another may be to have them.
    """

    __slots__ = (
        "_created", "_has_sent", "_last_received", "_last_sent", "_linger_until", "_login", "_phase", "_read_to",
        "_receipt", "_receives_every_s", "_rest", "_sends_every_s", "_server", "_sinks", "admits", "error",
        "handler", "has_more", "is_blocked", "is_held", "is_late", "is_paused", "keeps_login", "more_out", "out",
        "out_bytes", "out_room", "trace", "version", "wake",
    )  # fmt: skip

    def __init__(self, handler: Handler, *, now: float, server: str) -> None:
        self.handler = handler
        self.version = Version.V1_2
        self.out: list[bytes] = []
        self.out_bytes = 0
        self.error: RemoteError | None = None
        """The error for which the server closed the connection."""
        self.wake: Callable[[Any], None] = lambda _engine: None
        self.is_late: Callable[[bool], bool] = lambda _is_hot: False
        self.out_room = TURN_BYTES
        self.more_out: Callable[[int], bool] = lambda _size: False
        self.admits: Callable[[int], bool] = lambda _size: True
        self.has_more = False
        self.is_paused = False
        self.is_blocked = False
        self.is_held = False
        self.trace: Callable[[bool, bytes], None] | None = None
        self.keeps_login = False
        self._login = b""
        self._server = server
        self._phase = _Phase.CONNECT
        self._created = self._last_received = self._last_sent = now
        self._linger_until = 0.0
        self._has_sent = False
        self._receives_every_s = 0.0
        self._sends_every_s = 0.0
        self._sinks: dict[bytes, tuple[SendSink, int]] = {}
        self._rest = Remainder()
        """The beginning of an incomplete frame; with ``has_more``, frames that were not parsed yet."""
        self._receipt: bytes | None = None
        """The receipt of the frame that is being read."""
        self._read_to = 0
        """The end of the frame that is being handled."""

    @property
    def more_room(self) -> Callable[[int], bool]:
        """Tells whether an incomplete frame may take so many bytes."""
        return self._rest.more_room

    @more_room.setter
    def more_room(self, ask: Callable[[int], bool]) -> None:
        self._rest.more_room = ask

    @property
    def closed(self) -> bool:
        """True if the socket can be closed once the output is written."""
        return self._phase is _Phase.DONE

    @property
    def is_open(self) -> bool:
        """True while the peer is connected and admitted."""
        return self._phase is _Phase.OPEN

    # Input

    def receive(self, data: bytes, now: float) -> None:
        """Handle bytes from the peer; all that follows is in ``out``, and the handler has been called."""
        self._last_received = now
        if self._phase in (_Phase.LINGER, _Phase.DONE):
            return
        if self.trace is not None and data:
            self.trace(False, data)
        rest = self._rest
        if self.is_held:
            if data:
                rest.data += data
                self.has_more = True
            return
        if rest.data:
            if self.has_more:
                rest.data += data
            else:
                try:
                    if not rest.is_worth_reading(data):
                        return
                except FrameError as error:
                    self.fail(error, is_more_coming=True)
                    return
            data = rest.take()
        self.has_more = False
        if data:
            self._read(data)

    def _put_off(self, data: bytes, at: int) -> None:
        """Keep the rest for later, as others wait or as it cannot be handled now."""
        if at < len(data) and self._phase not in (_Phase.LINGER, _Phase.DONE):
            self._rest.data += data[at:]
            self.has_more = True

    # Frames

    def _read(self, data: bytes) -> None:
        """Handle the frames of ``data``, and keep the beginning of an incomplete last one."""
        receipt: bytes | None = None
        at = self._read_to = 0
        end = len(data)
        mark = SLICE_BYTES
        is_hot = True
        sinks = self._sinks
        try:
            while at < end:
                first = data[at]
                if first == 10 or first == 13:  # noqa: PLR1714  a heart-beat, or the end of a line after a frame
                    at += 1
                    continue
                if at >= mark:
                    if self.is_late(is_hot):
                        self._put_off(data, at)
                        return
                    mark = at + SLICE_BYTES
                    is_hot = True
                head_end = data.find(b"\n\n", at, at + MAX_KNOWN_HEAD_BYTES)
                if head_end > 0:
                    key = data[at:head_end]
                    if first == 83:
                        receipt = None
                        found = key.find(b"\nreceipt:")
                        if found >= 0:
                            line_end = key.find(b"\n", found + 9)
                            if line_end < 0:
                                receipt = key[found + 9 :]
                                key = key[:found]
                            else:
                                receipt = key[found + 9 : line_end]
                                key = key[:found] + key[line_end:]
                        known = sinks.get(key)
                        if known is not None and (receipt is None or is_plain(receipt)):
                            sink, size = known
                            body_at = head_end + 2
                            if size < 0:
                                stop = data.find(0, body_at)
                                if stop < 0:
                                    self._rest.keep(data, at, Awaited.NUL)
                                    return
                            else:
                                stop = body_at + size
                                if stop >= end:
                                    self._rest.keep(data, at, Awaited.LENGTH, stop + 1 - at)
                                    return
                                if data[stop]:
                                    raise missing_end(size)
                            at = stop + 1
                            sink.on_send(data[body_at:stop], receipt)
                            if self.is_held or self._phase is not _Phase.OPEN:
                                self._put_off(data, at)
                                return
                            continue
                    elif key[:7] == b"ACK\nid:" and len(key) < 24 and key[7:].isdigit():
                        stop = head_end + 2
                        if stop < end and not data[stop] and self._phase is _Phase.OPEN:
                            receipt = None
                            at = stop + 1
                            self.handler.on_acknowledge(int(key[7:]))
                            continue
                receipt = self._receipt = None
                stop = self._read_frame(data, at, end)
                if stop == at:
                    return
                mark = at = stop
                is_hot = False
                if self.is_held or self._phase is not _Phase.OPEN:
                    self._put_off(data, at)
                    return
        except FrameError as error:
            self.fail(error, receipt or self._receipt, is_more_coming=True)
        except RemoteError as error:
            rest = data[max(at, self._read_to) :]
            self.fail(error, receipt or self._receipt, is_more_coming=not rest.isspace() and bool(rest))

    def _read_frame(self, data: bytes, at: int, end: int) -> int:
        """Handle one frame without a cached sink; return its end, or ``at`` if it is incomplete."""
        line_end = data.find(b"\n\n", at, at + MAX_HEAD_BYTES + 2)
        with_cr = data.find(b"\n\r\n", at, at + MAX_HEAD_BYTES + 3 if line_end < 0 else line_end + 1)
        head_end, body_at = (with_cr, with_cr + 3) if with_cr >= 0 else (line_end, line_end + 2)
        nul = data.find(0, at, end if head_end < 0 else head_end)
        if nul >= 0:
            # Bytes that do not begin with a command are no frame at all.
            command = data[at:nul].partition(b"\n")[0].removesuffix(b"\r")
            if command not in COMMANDS:
                raise unknown_command(command)
            raise FrameError("a NUL comes before the empty line that ends the headers")
        if head_end < 0:
            self._rest.keep(data, at, Awaited.HEAD)
            return at
        head = data[at:head_end]
        command, headers = read_head(head, self.version)
        key, self._receipt = split_receipt(head)
        is_connect = command in (b"CONNECT", b"STOMP")
        if is_connect is not (self._phase is _Phase.CONNECT):
            problem = "comes again" if is_connect else "comes before CONNECT"
            raise FrameError(f"{command.decode()} {problem}")
        size = content_length(headers)
        stop = self._body_end(data, at, body_at, end, size, has_body=command == b"SEND")
        if stop < 0:
            return at
        self._read_to = stop + 1
        if is_connect:
            if self.keeps_login:
                self._login = data[at : stop + 1]
            self._connect(headers)
        elif command == b"SEND":
            sink = self.handler.make_sink(headers)
            if sink.is_lasting and with_cr < 0 and len(key) <= MAX_KNOWN_HEAD_BYTES:
                if len(self._sinks) >= MAX_SINKS:
                    self._sinks.clear()
                self._sinks[key] = sink, size
            sink.on_send(data[body_at:stop], self._receipt)
        else:
            self.handler.on_frame(command, headers, self._receipt)
        return stop + 1

    def _body_end(self, data: bytes, at: int, body_at: int, end: int, size: int, *, has_body: bool) -> int:
        """Return the place of the NUL after a body; -1 if it has not come, and the frame is kept."""
        if size > MAX_BODY_BYTES:
            raise FrameError(f"a body has up to {MAX_BODY_BYTES} bytes, not {size}")
        if not has_body and (size > MAX_LINE_ENDS or not _is_empty(data, body_at, end, size)):
            raise FrameError("only SEND has a body")
        if size < 0:
            stop = data.find(0, body_at)
            if stop < 0:
                self._rest.keep(data, at, Awaited.NUL)
            elif stop - body_at > MAX_BODY_BYTES:
                raise FrameError(f"a body has up to {MAX_BODY_BYTES} bytes, not {stop - body_at}")
            return stop
        stop = body_at + size
        if stop >= end:
            self._rest.keep(data, at, Awaited.LENGTH, stop + 1 - at)
            return -1
        if data[stop]:
            raise missing_end(size)
        return stop

    @property
    def unread(self) -> bytes:
        """The bytes of an incomplete frame, or of frames that were not parsed yet."""
        return bytes(self._rest.data)

    def hold_input(self, is_held: bool) -> None:
        """Stop reading, or read on; for a handler that cannot pass messages on."""
        if is_held is not self.is_held:
            self.is_held = is_held
            self.wake(self)

    def forget_sinks(self) -> None:
        """Drop the cached sinks, so that the handler is asked for new ones."""
        self._sinks.clear()

    # Connecting

    def _connect(self, headers: dict[str, str]) -> None:
        accepted = headers.get("accept-version", "1.0").replace(" ", "").split(",")
        spoken = [version for version in Version if version.text in accepted]
        if not spoken:
            raise RemoteError(
                "stomp:version", f"versions 1.0, 1.1 and 1.2 are spoken here, not {headers['accept-version']!r:.60}"
            )
        self.version = max(spoken)
        sends, wants = self._beats(headers.get("heart-beat", "0,0"))
        self._receives_every_s = max(sends, WANTS_EVERY_MS) / 1000 if sends else 0.0
        self._sends_every_s = max(wants, SENDS_EVERY_MS) / 1000 if wants else 0.0
        self._phase = _Phase.ASKED
        self.hold_input(True)
        self.handler.on_connect(headers)

    @staticmethod
    def _beats(text: str) -> tuple[int, int]:
        parts = [part.strip() for part in text.split(",")]
        if len(parts) != 2 or not all(p.isascii() and p.isdigit() and len(p) <= MAX_BEAT_DIGITS for p in parts):
            raise FrameError(f"a heart-beat is two numbers of milliseconds with a comma between, not {text!r:.60}")
        return int(parts[0]), int(parts[1])

    def connected(self, session: str) -> None:
        """Admit the peer: send ``CONNECTED``."""
        if self._phase is not _Phase.ASKED:
            return
        self._phase = _Phase.OPEN
        self._login = b""
        self.put(
            encode_frame(
                "CONNECTED",
                (
                    ("version", self.version.text),
                    ("session", session),
                    ("server", self._server),
                    ("heart-beat", f"{SENDS_EVERY_MS},{WANTS_EVERY_MS}"),
                ),
            )
        )
        self.hold_input(False)

    @property
    def from_login(self) -> bytes:
        """What the peer has said and is not answered: ``CONNECT``, and what came behind it."""
        return self._login + self.unread

    # Output

    def put(self, frame: bytes) -> None:
        """Write a frame at the end of the turn."""
        out = self.out
        if not out:
            self.wake(self)
        out.append(frame)
        self.out_bytes += len(frame)
        if self.out_bytes > self.out_room and not self.more_out(self.out_bytes):
            self.block_output()

    def put_receipt(self, receipt: bytes) -> None:
        """Send the receipt of a frame."""
        self.put(b"RECEIPT\nreceipt-id:%b\n\n\x00" % receipt)

    def pending_output(self) -> list[bytes | memoryview]:
        """Return the output to be written now, and clear it."""
        out = self.out
        self.out = []
        self.out_bytes = 0
        if out:
            self._has_sent = True
            if self.trace is not None:
                self.trace(True, b"".join(out))
            self.handler.on_written()
        return out  # type: ignore[return-value]  # bytes are what it asks for

    def block_output(self) -> None:
        """Stop messages until ``resume_output``."""
        if not self.is_blocked:
            self.is_blocked = True
            self.handler.on_blocked(True)

    def resume_output(self) -> None:
        """Let messages go on, as the socket takes more."""
        if self.is_blocked:
            self.is_blocked = False
            self.handler.on_blocked(False)

    # Time

    def next_deadline(self) -> float | None:
        """Return the time of the next call of ``handle_deadline``, by the clock given to ``receive``."""
        phase = self._phase
        if phase is _Phase.DONE:
            return None
        if phase is _Phase.LINGER:
            return self._linger_until
        if phase is not _Phase.OPEN:
            return self._created + CONNECT_TIMEOUT_S
        found = []
        if self._receives_every_s:
            found.append(self._last_received + PATIENCE * self._receives_every_s)
        if self._sends_every_s:
            found.append(self._last_sent + self._sends_every_s / BEATS)
        return min(found) if found else None

    def handle_deadline(self, now: float) -> None:
        """Send a heart-beat, or close the connection of a peer that is late, as is due."""
        phase = self._phase
        if phase is _Phase.DONE:
            return
        if phase is _Phase.LINGER:
            if now >= self._linger_until:
                self._finish()
            return
        if phase is _Phase.ASKED:
            # It is for our answer that the peer waits.
            self._created = now
            return
        if phase is not _Phase.OPEN:
            if now >= self._created + CONNECT_TIMEOUT_S:
                self._fail_at(now, f"no CONNECT within {CONNECT_TIMEOUT_S:.0f} s")
            return
        if self._has_sent:
            self._has_sent = False
            self._last_sent = now
        patience = PATIENCE * self._receives_every_s
        if patience and now >= self._last_received + patience:
            self._fail_at(now, f"no heart-beat within {patience:g} s")
            return
        if self._sends_every_s and now >= self._last_sent + self._sends_every_s / BEATS:
            self._last_sent = now
            self.put(b"\n")

    def _fail_at(self, now: float, text: str) -> None:
        self._last_received = now
        self.fail(RemoteError("amqp:resource-limit-exceeded", text))

    # The end

    def fail(self, error: RemoteError, receipt: bytes | None = None, *, is_more_coming: bool = False) -> None:
        """Send ``ERROR`` and close the connection.

        Args:
            error: the reason.
            receipt: the receipt of the frame that caused it, with its escapes.
            is_more_coming: true if the peer is likely to be sending. It then has ``LINGER_S`` to read the error, as
                closing a socket with unread bytes discards what was sent.
        """
        if self._phase in (_Phase.LINGER, _Phase.DONE):
            return
        self.error = kept(error)
        version = self.version
        headers = [("message", error.description), ("condition", error.condition), ("content-type", "text/plain")]
        if error.condition == "stomp:version":
            headers.insert(0, ("version", ",".join(version.text for version in Version)))
        body = error.description.encode(errors="replace")
        headers.append(("content-length", str(len(body))))
        frame = encode_frame("ERROR", headers, body, version)
        if receipt is not None:
            frame = b"ERROR\nreceipt-id:%b\n" % receipt + frame[6:]
        self.put(frame)
        self._leave(is_more_coming=is_more_coming)

    def close(self) -> None:
        """Close the connection once the output is written, without ``LINGER_S``."""
        self._finish()

    def _leave(self, *, is_more_coming: bool) -> None:
        if not is_more_coming:
            self._finish()
            return
        self._phase = _Phase.LINGER
        self._linger_until = self._last_received + LINGER_S
        self._forget_input()
        self._tell_end()
        self.wake(self)

    def _tell_end(self) -> None:
        self.handler.on_closed(self.error)
        self.handler = NOBODY
        self.more_room = no_limit

    def lost(self) -> None:
        """End the connection, as the socket is closed."""
        self._finish()

    def _forget_input(self) -> None:
        self.has_more = False
        self.is_held = False
        self._login = b""
        self._rest.clear()
        self._sinks.clear()

    def _finish(self) -> None:
        if self._phase is _Phase.DONE:
            return
        has_ended = self._phase is _Phase.LINGER
        self._phase = _Phase.DONE
        self._forget_input()
        if not has_ended:
            self._tell_end()
        self.wake(self)
