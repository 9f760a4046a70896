"""Nonsense of whatever the port speaks besides AMQP: HTTP, WebSocket, TLS. Each costs only itself."""

from __future__ import annotations

import base64
import socket
import struct
from collections.abc import Iterator
from random import Random

import pytest

from tests.interop.hostile import MEGABYTE, Bystander
from tests.support.node_process import NodeProcess
from tests.support.stranger import Stranger

pytestmark = pytest.mark.slow

GROWTH_BYTES = 32 * MEGABYTE


@pytest.fixture(autouse=True)
def _unharmed(node: NodeProcess, bystander: Bystander) -> Iterator[None]:
    """The bystander's round trips go on in time, and the node stays as small as it was."""
    before = node.memory_bytes
    yield
    bystander.check()
    assert node.memory_bytes < before + GROWTH_BYTES


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: " + base64.b64encode(bytes(16)) + b"\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: amqp\r\n\r\n"
)


def says_and_is_hung_up(port: int, data: bytes) -> bytes:
    """Say something, nothing more, and return what is answered before the node hangs up."""
    with Stranger(port) as peer:
        heard = b""
        try:
            peer.say_bytes(data)
            peer.socket.shutdown(socket.SHUT_WR)
            while more := peer.socket.recv(65_536):
                heard += more
        except TimeoutError:
            raise
        except OSError:
            # It has hung up already, and maybe while it was spoken to.
            pass
        return heard


HEADS = {
    "no more than a method": b"GET ",
    "no version": b"GET /healthz\r\n\r\n",
    "a version of its own": b"GET /healthz HTTP/9.9\r\n\r\n",
    "a header without a colon": b"GET /healthz HTTP/1.1\r\nnonsense\r\n\r\n",
    "bytes that are no text": b"GET /healthz HTTP/1.1\r\nHost: \xff\xfe\0\r\n\r\n",
    "a path that leaves": b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    "a long path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    "a header of a megabyte": b"GET / HTTP/1.1\r\nX: " + b"a" * MEGABYTE + b"\r\n\r\n",
    "headers by the thousand": b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
    "a body": b"GET /healthz HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n" + bytes(1000),
    "another method": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
    "an upgrade to nothing": UPGRADE.replace(b"websocket", b"nonsense"),
    "no key": UPGRADE.replace(b"Sec-WebSocket-Key", b"X"),
    "another version": UPGRADE.replace(b": 13", b": 12"),
    "another protocol": UPGRADE.replace(b"Protocol: amqp", b"Protocol: chat"),
    "an origin of elsewhere": UPGRADE.replace(b"\r\n\r\n", b"\r\nOrigin: https://elsewhere.example\r\n\r\n"),
    "a TLS hello and no more": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "TLS of zeros": b"\x16\x03\x01\xff\xff" + bytes(100_000),
    "AMQP's own TLS header, then zeros": b"AMQP\x02\x01\x00\x00" + bytes(1000),
    "MQTT": b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",
    "STOMP": b"CONNECT\naccept-version:1.2\n\n\0",
}


@pytest.mark.parametrize("data", HEADS.values(), ids=HEADS)
def test_a_beginning_that_is_wrong_is_hung_up_on(node: NodeProcess, data: bytes) -> None:
    answer = says_and_is_hung_up(node.port, data)
    assert b" 101 " not in answer
    assert b"root:" not in answer


def frame(opcode: int, payload: bytes = b"", *, masked: bool = True, final: bool = True) -> bytes:
    """A WebSocket frame, masked by zeros."""
    head = bytes((opcode | (0x80 if final else 0),))
    size = len(payload)
    mask = 0x80 if masked else 0
    if size < 126:
        head += bytes((mask | size,))
    elif size < 1 << 16:
        head += bytes((mask | 126,)) + struct.pack(">H", size)
    else:
        head += bytes((mask | 127,)) + struct.pack(">Q", size)
    return head + (bytes(4) if masked else b"") + payload


FRAMES = {
    "not masked": frame(2, b"AMQP\0\1\0\0", masked=False),
    "text": frame(1, b"AMQP"),
    "an opcode of nobody": frame(5, b"x"),
    "reserved bits": b"\xf2\x80" + bytes(4),
    "a length of 8 exabytes": b"\x82\xff" + struct.pack(">Q", 1 << 62) + bytes(4),
    "a length with its sign": b"\x82\xff" + struct.pack(">Q", (1 << 64) - 1) + bytes(4),
    "a continuation of nothing": frame(0, b"x"),
    "a message within a message": frame(2, b"A", final=False) + frame(2, b"B"),
    "a long ping": frame(9, bytes(200)),
    "a ping in fragments": frame(9, b"x", final=False),
    "a close of one byte": frame(8, b"x"),
    "a close with a code of nobody": frame(8, struct.pack(">H", 77)),
    "AMQP that is none": frame(2, b"nonsense"),
    "a frame of 4 GiB in AMQP": frame(2, b"AMQP\0\1\0\0" + struct.pack(">IBBH", 0xFFFFFFFF, 2, 0, 0)),
    "random bytes": Random(1).randbytes(10_000),
}


@pytest.mark.parametrize("data", FRAMES.values(), ids=FRAMES)
def test_a_websocket_that_breaks_the_rules_is_hung_up_on(node: NodeProcess, data: bytes) -> None:
    assert b" 101 " in says_and_is_hung_up(node.port, UPGRADE + data)


FLOODS = {
    "pings": frame(9, bytes(125)),
    "fragments of nothing": frame(0, b"", final=False),
    "messages of nothing": frame(2, b""),
    "messages of a byte": frame(2, b"\0"),
}


@pytest.mark.parametrize("piece", FLOODS.values(), ids=FLOODS)
def test_a_flood_over_websocket(node: NodeProcess, piece: bytes) -> None:
    begin = frame(2, b"", final=False) if piece[0] & 0x0F == 0 else b""
    with Stranger(node.port) as peer:
        peer.say_bytes(UPGRADE + begin)
        peer.socket.settimeout(3.0)
        try:
            for _ in range(8):
                peer.say_bytes(piece * (60_000 // len(piece)))
        except (ConnectionResetError, BrokenPipeError, TimeoutError):
            pass


@pytest.mark.parametrize("seed", range(60))
def test_upgrades_that_were_changed(node: NodeProcess, seed: int) -> None:
    chance = Random(seed)
    data = bytearray(UPGRADE + frame(2, b"AMQP\0\1\0\0") + frame(9, b"ping") + frame(8, struct.pack(">H", 1000)))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(4, len(data))
        match chance.randrange(3):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                del data[at : at + chance.randint(1, 20)]
            case _:
                data[at:at] = chance.randbytes(chance.randint(1, 8))
    says_and_is_hung_up(node.port, bytes(data))
