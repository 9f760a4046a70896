"""WebSocket on a port of AMQP, with another library's client."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from enmasse.net.connection_limiter import ConnectionLimiter, ConnectionLimits
from enmasse.net.listener import Port
from enmasse.net.loop import Turn
from enmasse.net.origins import SECURITY_HEADERS, host_refusal
from enmasse.net.transport import EngineProtocol
from enmasse.net.websocket_layer import MAX_FRAGMENT_BYTES
from enmasse.node.protocols import PROTOCOLS
from tests.conformance.clause_list import clause

HEADER = b"AMQP\x00\x01\x00\x00"


def _refuse_host(host: str | None, _transport: object) -> str | None:
    return host_refusal(host, ("127.0.0.1", 1), lambda name: name == "here", is_open=False)


class Site:
    def __init__(self, script: Any, origins: tuple[str, ...], protocol: str) -> None:
        self.script = script
        turn = Turn(asyncio.get_running_loop())
        self.limiter = ConnectionLimiter(turn, ConnectionLimits())
        made = {PROTOCOLS[protocol].signature: self.make_engine}
        self.port = Port(turn, made, self.limiter, _refuse_host, origins=origins)
        self.url = ""
        self.engine: Any = None
        self.shell: Any = None

    def make_engine(self, shell: EngineProtocol) -> Any:
        self.shell, self.engine = shell, self.script()
        return self.engine

    def connect(self, **options: Any) -> Any:
        options = {"subprotocols": ["amqp"], "compression": None, "proxy": None, "ping_interval": None, **options}
        return connect(self.url, **options)


@asynccontextmanager
async def site(script: Any, *origins: str, protocol: str = "amqp") -> AsyncIterator[Site]:
    made = Site(script, origins, protocol)
    server = await asyncio.get_running_loop().create_server(made.port.make_protocol, "127.0.0.1", 0)
    made.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        yield made
    finally:
        made.limiter.shut()
        if made.shell is not None:
            made.shell.abort()
            await made.shell.wait_closed()
        async with asyncio.timeout(60):
            while len(made.limiter):
                await asyncio.sleep(0.01)
        server.close()
        await server.wait_closed()


@clause("mqtt5:6.0.0-2", "mqtt3:6.0.0-2")
async def test_messages_are_one_stream_of_bytes_in_both_directions(script: Any, until: Any) -> None:
    async with site(script) as here, here.connect() as peer:
        assert peer.subprotocol == "amqp"
        for part in (HEADER[:3], HEADER[3:]):
            await peer.send(part)
        await until(lambda: here.engine.received == HEADER)
        here.engine.put(b"answer")
        assert await peer.recv() == b"answer"


async def test_a_fragmented_message_is_heard_fragment_by_fragment(script: Any, until: Any) -> None:
    async with site(script) as here, here.connect() as peer:

        async def fragments() -> AsyncIterator[bytes]:
            yield b"one "
            yield b"two "
            await until(lambda: here.engine.received == b"one two ")
            yield b"three"

        await peer.send(fragments())
        await until(lambda: here.engine.received == b"one two three")


async def test_much_goes_through_whole_and_in_moderate_messages(script: Any, until: Any) -> None:
    much = os.urandom(3 << 20)
    async with site(script) as here, here.connect() as peer:
        for at in range(0, len(much), 1 << 19):
            await peer.send(much[at : at + (1 << 19)])
        await until(lambda: len(here.engine.received) == len(much))
        assert here.engine.received == much
        here.engine.put(much)
        got = bytearray()
        async with asyncio.timeout(20):
            while len(got) < len(much):
                message = await peer.recv()
                assert len(message) <= 65535
                got += message
        assert got == much


async def test_a_ping_is_answered(script: Any) -> None:
    async with site(script) as here, here.connect() as peer:
        async with asyncio.timeout(60):
            await (await peer.ping(b"are you there"))
        assert here.engine.received == b""


async def test_a_close_is_answered_and_the_engine_told(script: Any, until: Any) -> None:
    async with site(script) as here:
        async with here.connect() as peer:
            await peer.close(1000)
            assert (peer.close_code, peer.protocol.close_rcvd.code) == (1000, 1000)
        await until(lambda: "lost" in here.engine.calls)


async def test_an_engine_that_is_done_says_its_last_words_and_closes(script: Any) -> None:
    async with site(script) as here, here.connect() as peer:
        here.engine.put(b"last words")
        here.engine.closed = True
        assert await peer.recv() == b"last words"
        with pytest.raises(ConnectionClosed) as caught:
            await peer.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1000


async def close_code(peer: ClientConnection) -> int | None:
    async with asyncio.timeout(60):
        await peer.wait_closed()
    return peer.close_code


@clause("mqtt5:6.0.0-1", "mqtt3:6.0.0-1")
async def test_text_is_refused(script: Any) -> None:
    async with site(script) as here, here.connect() as peer:
        await peer.send("AMQP")
        assert await close_code(peer) == 1003
        assert here.engine.received == b""


async def test_a_fragment_that_is_too_long_is_refused_before_it_is_held(script: Any) -> None:
    async with site(script) as here, here.connect() as peer:
        head = Frame(Opcode.BINARY, bytes(MAX_FRAGMENT_BYTES + 1)).serialize(mask=True)[:100]
        peer.transport.write(head)
        assert await close_code(peer) == 1009


async def test_a_frame_without_mask_is_refused(script: Any) -> None:
    async with site(script) as here, here.connect() as peer:
        peer.transport.write(Frame(Opcode.BINARY, HEADER).serialize(mask=False))
        assert await close_code(peer) == 1002
        assert here.engine.received == b""


async def test_a_peer_that_does_not_read_blocks_the_engine(script: Any, until: Any) -> None:
    async with site(script) as here:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
            sock.connect(("127.0.0.1", int(here.url.rpartition(":")[2].strip("/"))))
            async with here.connect(sock=sock.dup(), max_queue=1) as peer:
                for _ in range(16):
                    here.engine.put(bytes(1 << 20))
                    await asyncio.sleep(0)
                await until(lambda: "block" in here.engine.calls)
                got = 0
                async with asyncio.timeout(20):
                    while got < 16 << 20:
                        got += len(await peer.recv())
                await until(lambda: "resume" in here.engine.calls)


@clause("mqtt5:6.0.0-4", "mqtt3:6.0.0-4")
@pytest.mark.parametrize("offered", [["mqtt"], ["amqp", "mqtt"]])
async def test_the_sub_protocol_of_mqtt_is_chosen(script: Any, until: Any, offered: list[str]) -> None:
    async with site(script, protocol="mqtt") as here, here.connect(subprotocols=offered) as peer:
        assert peer.subprotocol == "mqtt"
        await peer.send(b"\xc0\x00")
        await until(lambda: here.engine.received == b"\xc0\x00")


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("amqp", HEADER),
        ("mqtt", b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00"),
        ("stomp", "CONNECT\naccept-version:1.2\n\n\0"),
        ("stomp", b"STOMP\naccept-version:1.2\n\n\0"),
    ],
)
async def test_without_a_sub_protocol_the_first_bytes_decide(
    script: Any, until: Any, protocol: str, said: str | bytes
) -> None:
    whole = said.encode() if isinstance(said, str) else said
    async with site(script, protocol=protocol) as here:
        for cut in (0, 3):
            async with here.connect(subprotocols=None) as peer:
                assert peer.subprotocol is None
                for part in (said[:cut], said[cut:]) if cut else (said,):
                    await peer.send(part)
                await until(lambda: here.engine is not None and here.engine.received == whole)
                here.engine.put(b"answer")
                assert await peer.recv() == b"answer"
            await here.shell.wait_closed()
            here.engine = None


async def test_texts_for_a_protocol_that_takes_none_are_refused_without_a_sub_protocol_too(script: Any) -> None:
    async with site(script) as here, here.connect(subprotocols=None) as peer:
        await peer.send("AMQP\0\1\0\0")
        with pytest.raises(ConnectionClosed):
            await peer.recv()
        assert peer.close_code == 1003


async def test_without_a_sub_protocol_that_is_known_the_handshake_fails(script: Any) -> None:
    async with site(script) as here:
        with pytest.raises(InvalidStatus) as caught:
            await here.connect(subprotocols=["mqtt"])
        assert caught.value.response.status_code == 400
        assert here.engine is None


@pytest.mark.parametrize(
    ("origin", "is_welcome"),
    [
        (None, True),
        ("http://localhost:3000", True),
        ("http://127.0.0.1", True),
        ("http://[::1]:80", True),
        ("https://shop.example.org", True),
        ("https://shop.example.org.evil.example", False),
        ("http://shop.example.org", False),
        ("http://localhost.evil.example", False),
        ("null", False),
        ("http://evil@localhost", False),
        ("http://localhost.", False),
        ("http://localhost/page", False),
        ("ftp://localhost", False),
        ("http://[127.0.0.1]", False),
    ],
)
async def test_pages_of_strangers_are_refused(script: Any, origin: Any, is_welcome: bool) -> None:
    async with site(script, "https://shop.example.org") as here:
        if is_welcome:
            async with here.connect(origin=origin) as socket:
                assert here.engine is not None
                answer = socket.response
        else:
            with pytest.raises(InvalidStatus) as caught:
                await here.connect(origin=origin)
            answer = caught.value.response
            assert answer.status_code == 403
        assert answer is not None
        assert all(answer.headers[name] == value for name, value in SECURITY_HEADERS)


async def test_pages_from_everywhere_are_welcome_if_that_is_said(script: Any) -> None:
    async with site(script, "*") as here, here.connect(origin="https://anywhere.example"):
        assert here.engine is not None


async def test_a_handshake_in_crumbs_is_understood(script: Any, until: Any) -> None:
    async with site(script) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(here.url.rpartition(":")[2].strip("/")))
        request = (
            b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Protocol: amqp\r\n\r\n" + Frame(Opcode.BINARY, HEADER).serialize(mask=True)
        )
        for at in range(0, len(request), 7):
            writer.write(request[at : at + 7])
            await asyncio.sleep(0.001)
        await until(lambda: here.engine is not None and here.engine.received == HEADER)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        writer.close()
        await writer.wait_closed()


async def test_a_wrong_version_is_told_the_right_one(script: Any, tmp_path: Path) -> None:
    async with site(script) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(here.url.rpartition(":")[2].strip("/")))
        writer.write(
            b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 7\r\n\r\n"
        )
        async with asyncio.timeout(60):
            assert (await reader.read()).startswith(b"HTTP/1.1 4")
        writer.close()
        await writer.wait_closed()
