"""The first request of HTTP on every port of a node: what it is answered, and that nothing else follows.

Whichever part of the node serves it, strangers' pages and heads that two readers could read differently are refused.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded

from enmasse.drivers.authority import Authority
from enmasse.net.connection_limiter import ConnectionLimits
from enmasse.net.first_bytes import MAX_UPGRADE_BYTES
from enmasse.net.loop import run
from enmasse.net.origins import SECURITY_HEADERS
from enmasse.node.management.entity_fields import SPACE_TYPE
from enmasse.node.ports import PortOptions
from enmasse.node.server import Server
from enmasse.wire.http.heads import MAX_HEAD_BYTES

OWN = "ns/own"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
)


def _with(request: bytes, line: bytes) -> bytes:
    return request.replace(b"\r\n\r\n", b"\r\n" + line + b"\r\n\r\n")


BOTH = {"health": (HEALTH, 200), "WebSocket": (UPGRADE, 101)}

READ_DIFFERENTLY: dict[str, Callable[[bytes], bytes]] = {
    "line feeds": lambda request: request.replace(b"\r\n", b"\n"),
    "a line feed": lambda request: request.replace(b"Host: localhost", b"Host: localhost\nX: y"),
    "a carriage return": lambda request: request.replace(b"Host: localhost", b"Host: localhost\rX: y"),
    "a fold": lambda request: request.replace(b"Host: localhost", b"Host: localhost\r\n folded"),
    "two hosts": lambda request: _with(request, b"Host: localhost"),
    "no host": lambda request: request.replace(b"Host: localhost\r\n", b""),
    "NUL": lambda request: _with(request, b"X: a\0b"),
    "a space before a colon": lambda request: _with(request, b"X : y"),
    "two lengths": lambda request: _with(request, b"Content-Length: 1\r\nTransfer-Encoding: chunked"),
    "two lengths of one kind": lambda request: _with(request, b"Content-Length: 0\r\nContent-Length: 0"),
    "a length that is none": lambda request: _with(request, b"Content-Length: +1"),
    "chunks of HTTP/1.0": lambda request: _with(
        request.replace(b"HTTP/1.1", b"HTTP/1.0"), b"Transfer-Encoding: chunked"
    ),
    "two origins": lambda request: _with(request, b"Origin: http://localhost\r\nOrigin: http://localhost"),
}
"""Changes of a request by which it is none, on whatever port it comes."""

CASES = {
    **BOTH,
    **{
        f"{what}: {name}": (change(request), 400)
        for what, (request, _) in BOTH.items()
        for name, change in READ_DIFFERENTLY.items()
    },
    **{
        f"{what}: a host of a stranger": (request.replace(b"Host: localhost", b"Host: evil.example"), 403)
        for what, (request, _) in BOTH.items()
    },
    **{
        f"{what}: a head that is too long": (_with(request, b"X: " + b"y" * MAX_HEAD_BYTES), 431)
        for what, (request, _) in BOTH.items()
    },
    "a page of a stranger": (_with(UPGRADE, b"Origin: https://evil.example"), 403),
    "a page of nobody": (_with(UPGRADE, b"Origin: null"), 403),
    "a page of this machine": (_with(UPGRADE, b"Origin: http://localhost:3000"), 101),
    "a stranger's host in the target": (UPGRADE.replace(b"GET /", b"GET http://evil.example/"), 403),
    "WebSocket with a body": (_with(UPGRADE, b"Content-Length: 4") + b"AMQP", 400),
    "WebSocket with a body in chunks": (_with(UPGRADE, b"Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
    "WebSocket by HTTP/1.0": (UPGRADE.replace(b"HTTP/1.1", b"HTTP/1.0"), 400),
    "WebSocket or something else": (
        UPGRADE.replace(b"Upgrade: websocket", b"Upgrade: websocket\r\nUpgrade: h2c"),
        426,
    ),
    "WebSocket without its option": (UPGRADE.replace(b"Connection: Upgrade\r\n", b""), 426),
    "WebSocket of another version": (UPGRADE.replace(b": 13", b": 8"), 426),
    "WebSocket with two keys": (_with(UPGRADE, b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="), 400),
    "WebSocket without a key": (UPGRADE.replace(b"Sec-WebSocket-Key", b"X"), 400),
    "WebSocket for another protocol": (UPGRADE.replace(b"Protocol: amqp", b"Protocol: chat"), 400),
    "a line that ends in LF, and no end of the head": (b"GET /healthz HTTP/1.1\r\nHost: localhost\n", 400),
    "a line that ends in CR, and no end of the head": (b"GET /healthz HTTP/1.1\rHost: localhost\r", 400),
    "no host": (HEALTH.replace(b"localhost", b"http://localhost"), 400),
    "two hosts": (HEALTH.replace(b"localhost", b"localhost, other"), 400),
    "a host with a space": (HEALTH.replace(b"localhost", b"local host"), 400),
    "all of the server": (HEALTH.replace(b"GET /healthz", b"OPTIONS *"), 204),
    "no path": (HEALTH.replace(b"/healthz", b"*"), 400),
    "a tunnel": (HEALTH.replace(b"GET /healthz", b"CONNECT localhost:80"), 501),
    "a trace": (HEALTH.replace(b"GET", b"TRACE"), 501),
    "a method of WebDAV": (HEALTH.replace(b"GET", b"PROPFIND"), 501),
    "no version": (b"GET /healthz\r\n\r\n", 400),
    "nothing that is here": (HEALTH.replace(b"healthz", b"nothing"), 404),
    "a body that nobody reads": (_with(HEALTH, b"Content-Length: 99999999"), 413),
}
"""Requests, and the statuses of their answers on every port."""


class Ports:
    """The ports of a node, by name, with the number of each and true for TLS."""

    def __init__(self, trusting: ssl.SSLContext) -> None:
        self._trusting = trusting
        self.open: dict[str, tuple[int, bool]] = {}

    @asynccontextmanager
    async def connected(self, name: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        port, is_secure = self.open[name]
        options = {"ssl": self._trusting, "server_hostname": "localhost"} if is_secure else {}
        reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)  # type: ignore[arg-type]
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def answer(self, name: str, request: bytes, *, until_end: bool) -> bytes:
        """Send a request, and return the head of its answer, or all up to the end of the connection."""
        async with self.connected(name) as (reader, writer):
            writer.write(request)
            return await (reader.read() if until_end else reader.readuntil(b"\r\n\r\n"))


def play(directory: Path, story: Callable[[Ports], Awaitable[None]], limits: ConnectionLimits | None = None) -> None:
    """Have a story told at a node that has every kind of port."""

    async def main() -> None:
        tls = directory / "tls"
        Authority(tls).keep_server_certificate("default", ("localhost", "127.0.0.1"))
        options = PortOptions(tls=tls, limits=limits or ConnectionLimits())
        server = Server(directory / "node", "node", ports=options)
        await server.load()
        try:
            async with asyncio.timeout(60):
                stored: asyncio.Future[object] = asyncio.get_running_loop().create_future()
                server.entities.create(SPACE_TYPE, OWN, {}, stored.set_result)
                assert await stored is None
                ports = Ports(ssl.create_default_context(cafile=str(tls / "authority" / "ca.crt")))
                for protocol in server.protocols:
                    port = await server.listen("127.0.0.1", 0, protocol=protocol)
                    ports.open[protocol], ports.open[f"{protocol} in TLS"] = (port, False), (port, True)
                own = await server._open_space_port("127.0.0.1", 0, OWN)
                ports.open["a space's own"] = own.sockets[0].getsockname()[1], False
                ports.open["management"] = await server.listen_management("127.0.0.1", 0, tls), True
                try:
                    await story(ports)
                finally:
                    own.close()
        finally:
            await server.stop()

    run(main())


def test_the_first_request_on_every_port(tmp_path: Path) -> None:
    async def story(ports: Ports) -> None:
        for name in ports.open:
            for what, (request, status) in CASES.items():
                answer = await ports.answer(name, request, until_end=False)
                assert answer.startswith(b"HTTP/1.1 %d " % status), (name, what, answer)
                assert all(f"{key}: {value}\r\n".encode() in answer for key, value in SECURITY_HEADERS), (name, what)

    play(tmp_path, story)


def test_health_ends_a_connection_that_is_in_no_space(tmp_path: Path) -> None:
    """Only such a connection: one on which messages are sent stays."""
    asked = b"POST /v1/spaces/own.ns/addresses/none/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"

    async def story(ports: Ports) -> None:
        for name in ports.open:
            for request, body in ((HEALTH, b"ok\n"), (HEALTH.replace(b"GET", b"HEAD"), b"")):
                answer = await ports.answer(name, request, until_end=True)
                assert answer.count(b"HTTP/1.1 ") == 1, (name, answer)
                head, _, found = answer.partition(b"\r\n\r\n")
                assert b"\r\nConnection: close" in head, name
                assert found == body, name
            answer = await ports.answer(name, HEALTH.replace(b"/healthz", b"/readyz?verbose"), until_end=True)
            assert b"[+] " in answer, (name, answer)
        async with ports.connected("http") as (reader, writer):
            writer.write(asked + HEALTH * 2 + HEALTH.replace(b"/healthz", b"/readyz?verbose"))
            heard = b""
            while heard.count(b"ok\n") < 2 or b"[+] " not in heard:
                more = await reader.read(65_536)
                assert more, heard
                heard += more

    play(tmp_path, story)


def test_health_by_http2_keeps_its_query_and_the_socket(tmp_path: Path) -> None:
    async def story(ports: Ports) -> None:
        for name in ("http", "http in TLS", "amqp"):
            async with ports.connected(name) as (reader, writer):
                client = H2Connection(H2Configuration(header_encoding="utf-8"))
                client.initiate_connection()
                for target, expected in (
                    ("/readyz?verbose", b"[+] "),
                    ("/healthz", b"ok\n"),
                    ("/readyz", b"ok\n"),
                ) * 2:
                    stream = client.get_next_available_stream_id()
                    fields = {":method": "GET", ":scheme": "http", ":path": target, ":authority": "localhost"}
                    client.send_headers(stream, list(fields.items()), end_stream=True)
                    writer.write(client.data_to_send())
                    body, is_ended = b"", False
                    while not is_ended:
                        more = await reader.read(65_536)
                        assert more, (name, target, body)
                        for event in client.receive_data(more):
                            body += event.data if isinstance(event, DataReceived) else b""
                            is_ended = is_ended or isinstance(event, StreamEnded)
                    assert body.startswith(expected), (name, target, body)

    play(tmp_path, story)


def test_a_node_that_is_full_tells_its_health(tmp_path: Path) -> None:
    async def story(ports: Ports) -> None:
        async with ports.connected("http") as (reader, writer):
            writer.write(b"POST /v1/spaces/own.ns/addresses/none/messages HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 404 " in await reader.readuntil(b"\r\n\r\n")
            answer = await ports.answer(
                "http", HEALTH.replace(b"/healthz", b"/v1/spaces/own.ns/addresses/x/receive"), until_end=False
            )
            assert b" 404 " not in answer
            for name in ports.open:
                assert (await ports.answer(name, HEALTH, until_end=True)).endswith(b"ok\n"), name

    play(tmp_path, story, ConnectionLimits(max_connections=1))


def test_management_answers_nothing_but_health(tmp_path: Path) -> None:
    post = b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"
    asked = {
        post: 405,
        post.replace(b"POST", b"DELETE"): 405,
        _with(HEALTH, b"Content-Length: 99999999"): 413,
        post.replace(b"\r\n\r\n", b"\r\nOrigin: http://localhost\r\n\r\n"): 403,
        post.replace(b"/healthz", b"/v1/spaces/own.ns/addresses/orders/messages"): 404,
        HEALTH.replace(b"/healthz", b"/v1/spaces/own.ns/addresses/orders/messages"): 404,
        HEALTH.replace(b"/healthz", b"/v1/openapi.json"): 404,
    }

    async def story(ports: Ports) -> None:
        for request, status in asked.items():
            answer = await ports.answer("management", request, until_end=False)
            assert answer.startswith(b"HTTP/1.1 %d " % status), (request, answer)
            assert b"\r\nConnection: close\r\n" in answer, request
        # HTTP/2 is not spoken there: the connection ends.
        assert await ports.answer("management", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", until_end=True) == b""

    play(tmp_path, story)


@pytest.mark.parametrize("beginning", [b"GET ", b"HEAD ", b"POST "])
def test_a_head_without_an_end_is_answered_once_it_is_too_long(tmp_path: Path, beginning: bytes) -> None:
    request = beginning + b"/ HTTP/1.1\r\nUpgrade: websocket\r\nX: " + b"y" * (MAX_UPGRADE_BYTES + 1_000)

    async def story(ports: Ports) -> None:
        for name in ports.open:
            assert (await ports.answer(name, request, until_end=False)).startswith(b"HTTP/1.1 431 "), name

    play(tmp_path, story)
