"""Targets of STOMP: a connection, whole and in pieces, which must mean the same; and a node behind one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from enmasse.errors import RemoteError
from enmasse.node.stomp.connection import StompConnection
from enmasse.wire.stomp.connection import LINGER_S, Connection
from enmasse.wire.stomp.trace import Splitter, describe, mask, shorten
from fuzz.engines import cut, headed
from fuzz.node import World, converse
from fuzz.target import BrokenBoundError, Target, held_bytes, is_measured

__all__ = ["FRAMES", "STOMP_NODE_TARGET", "STOMP_TARGET", "mutate_frames"]

HELD_AT_ALL = 64 << 10
HELD_PER_BYTE = 100

CONNECT = b"CONNECT\naccept-version:1.0,1.1,1.2\nhost:here\nheart-beat:1000,0\nclient-id:c\n\n\0"

FRAMES = (
    b"",
    CONNECT,
    b"STOMP\r\naccept-version:1.1\r\n\r\n\0\r\n",
    b"CONNECT\nlogin:me\npasscode:secret\n\n\0",
    b"SEND\ndestination:queue\ncontent-length:3\n\na\0b\0",
    b"SEND\ndestination:/queue/queue\nreceipt:1\n\ntext\0",
    b"SEND\ndestination:/topic/topic/below\nreceipt:2\npersistent:true\npriority:9\nttl:5\nkey:va\\clue\n\ntext\0\n\n",
    b"SEND\r\ndestination:any\r\nreceipt:3\r\ncontent-type:text/plain\r\n\r\ntext\0",
    b"SEND\ndestination:all\nexpires:1\ncorrelation-id:7\nreply-to:queue\nx-opt-delivery-delay:5\n\n\0",
    b"SEND\ndestination:stream\ntransaction:t\nreceipt:4\n\nx\0",
    b"SUBSCRIBE\nid:0\ndestination:queue\nack:client\nprefetch-count:2\n\n\0",
    b"SUBSCRIBE\nid:1\ndestination:topic\nack:client-individual\ndurable:true\nselector:a = 'b'\nreceipt:5\n\n\0",
    b"SUBSCRIBE\nid:2\ndestination:stream\nstart:first\npartition:0\nconsumer:me\n\n\0",
    b"SUBSCRIBE\nid:3\ndestination:any\n\n\0",
    b"SUBSCRIBE\nid:4\ndestination:topic/#\nbrowser:true\n\n\0",
    b"UNSUBSCRIBE\nid:1\ndurable:true\nreceipt:6\n\n\0",
    b"ACK\nid:1\n\n\0",
    b"ACK\nid:2\ntransaction:t\nreceipt:7\n\n\0",
    b"NACK\nid:3\nrequeue:false\n\n\0",
    b"BEGIN\ntransaction:t\n\n\0",
    b"COMMIT\ntransaction:t\nreceipt:8\n\n\0",
    b"ABORT\ntransaction:t\n\n\0",
    b"DISCONNECT\nreceipt:9\n\n\0",
    b"\n\r\n",
)  # fmt: skip
"""Words of a conversation."""

_PIECES = (
    b"\n",
    b"\0",
    b":",
    b"\\",
    b"\\n",
    b"\r\n",
    b"\n\n",
    b"\xff",
    b"receipt:1\n",
    b"content-length:4\n",
    b"id:1\n",
)


def mutate_frames(data: bytes, most: int, chance: Random) -> bytes:
    """An input with frames added, taken away or changed."""
    head, rest = data[:1] or b"\0", data[1:]
    frames = [frame + b"\0" for frame in rest.split(b"\0")]
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(frames) + 1)
        match chance.randrange(5):
            case 0:
                frames.insert(at, chance.choice(FRAMES))
            case 1 if at < len(frames):
                del frames[at]
            case 2 if at < len(frames):
                place = chance.randrange(len(frames[at]) + 1)
                frames[at] = frames[at][:place] + chance.choice(_PIECES) + frames[at][place:]
            case 3 if at < len(frames):
                place = chance.randrange(len(frames[at]) + 1)
                frames[at] = frames[at][:place] + frames[at][place + chance.randint(1, 4) :]
            case _:
                head = bytes((chance.randrange(256),))
    return (head + b"".join(frames))[:most]


class Application:
    """Lets everybody in and notes what is said; every fifth frame is refused, every third message is answered."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.is_closed = False
        self.engine = Connection(self, now=0.0, server="fuzz/1")

    def on_connect(self, headers: dict[str, str]) -> None:
        self.heard.append(("connect", headers))
        self.engine.connected("1")

    def make_sink(self, headers: dict[str, str]) -> Sink:
        return Sink(self, {name: value for name, value in headers.items() if name != "receipt"})

    def on_acknowledge(self, number: int) -> None:
        self.heard.append(("ACK", str(number)))

    def on_frame(self, command: bytes, headers: dict[str, str], receipt: bytes | None) -> None:
        if command == b"ACK" and set(headers) == {"id"}:
            self.heard.append(("ACK", str(int(headers["id"])) if headers["id"].isdecimal() else headers["id"]))
            return
        self.heard.append((command, headers, receipt))
        if len(self.heard) % 5 == 4:
            raise RemoteError("fuzz:no", "not today")
        if command == b"DISCONNECT":
            self.engine.close()

    def on_blocked(self, is_blocked: bool) -> None:
        self.heard.append(("blocked", is_blocked))

    def on_written(self) -> None: ...

    def on_closed(self, error: Exception | None) -> None:
        assert not self.is_closed, "an end that is told twice"
        self.is_closed = True
        self.heard.append(("closed", error is None))


class Sink:
    """Hears of messages."""

    def __init__(self, application: Application, headers: dict[str, str]) -> None:
        self.is_lasting = "transaction" not in headers
        self._application = application
        self._headers = headers

    def on_send(self, body: bytes, receipt: bytes | None) -> None:
        self._application.heard.append(("message", self._headers, body, receipt))
        if receipt is not None:
            self._application.engine.put_receipt(receipt)


def check_frames(said: bytes) -> list[bytes]:
    """The frames of what an engine says, which must be frames; heart-beats left out."""
    splitter = Splitter()
    frames = splitter.feed(said)
    assert not splitter.is_lost, "what is no frame"
    for frame in frames:
        assert frame.endswith(b"\0"), "an incomplete frame"
        assert describe(mask(shorten(frame, 10)))
    return [b"ERROR" if frame.startswith(b"ERROR") else frame for frame in frames]


def run_stomp(data: bytes) -> None:
    """However a stream is cut, it means the same; little is held, and the end is in order."""
    if not data:
        return
    results = []
    for head in sorted({0, data[0] & 7 or 1}):
        application = Application()
        engine = application.engine
        if data[0] & 8:
            engine.receive(CONNECT, 0.0)
        fed = 0
        said = b""
        for piece in cut(head, data[1:]):
            engine.receive(piece, 0.0)
            fed += len(piece)
        said += b"".join(engine.pending_output())
        if is_measured():
            held = held_bytes(engine, application)
            if held > HELD_AT_ALL + HELD_PER_BYTE * fed:
                raise BrokenBoundError(f"an engine holds {held} bytes after {fed} bytes of input")
        engine.handle_deadline(LINGER_S)
        engine.handle_deadline(1000.0)
        engine.lost()
        assert engine.closed
        assert engine.next_deadline() is None
        assert application.is_closed
        results.append((application.heard, check_frames(said)))
    assert results[0] == results[-1], f"cut, a stream means something else: {results!r:.2000}"


def _seeds() -> Sequence[bytes]:
    return headed(FRAMES, 0, 9)


def run_stomp_node(data: bytes) -> None:
    """A client may say anything: no address is at fault, and nothing stays behind when it is gone."""
    if data:
        check = lambda engine: check_frames(b"".join(engine.pending_output()))  # noqa: E731
        converse(World(StompConnection, check), data, CONNECT)


STOMP_TARGET = Target("stomp", run_stomp, _seeds, 2048, mutate_frames)
STOMP_NODE_TARGET = Target("stomp-node", run_stomp_node, _seeds, 2048, mutate_frames)
