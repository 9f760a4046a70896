"""WebSocket servers that are none, or not for AMQP."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Any

import pytest

from enmasse.client import DeadlineError, UnavailableError, connect
from enmasse.client.options import parse_url

NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


def switching(request: bytes, *more: bytes) -> bytes:
    (key,) = [
        line.split(b": ")[1] for line in request.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key")
    ]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    head = [b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade"]
    return b"\r\n".join([*head, b"Sec-WebSocket-Accept: " + accept, *more, b"", b""])


async def answering(answer: Any) -> tuple[asyncio.Server, str, list[bytes]]:
    seen: list[bytes] = []

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        if answer is not None:
            writer.write(answer(seen[-1]) if callable(answer) else answer)
            writer.close()
        else:
            await reader.read()
            writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(reply, "127.0.0.1", 0)
    return server, f"amqpws://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (NOT_FOUND, "answered with HTTP 404: is that the path"),
        (switching, "gave us no WebSocket for AMQP"),
        (b"AMQP\x00\x01\x00\x00", "gave us no WebSocket for AMQP"),
        (b"", "hung up"),
    ],
)
async def test_a_server_without_websocket_for_amqp_is_told(until: Any, answer: Any, hint: str) -> None:
    server, url, seen = await answering(answer)
    async with server:
        with pytest.raises(UnavailableError, match=hint):
            await connect(f"{url}/amqp?x=1")
        assert seen[0].startswith(b"GET /amqp?x=1 HTTP/1.1\r\n")
        assert b"Sec-WebSocket-Protocol: amqp\r\n" in seen[0]
        await until(lambda: len(asyncio.all_tasks()) == 1)


async def test_a_server_that_never_answers_is_given_up(until: Any) -> None:
    server, url, _ = await answering(None)
    async with server:
        with pytest.raises(DeadlineError, match="did not answer"):
            await connect(url, timeout=0.05)
        await until(lambda: len(asyncio.all_tasks()) == 1)


def test_urls_of_websockets_keep_their_path() -> None:
    url = parse_url("wss://ann:secret@mq.example.org/$servicebus/websocket?a=b")
    assert (url.scheme, url.port, url.user, url.address, url.is_tls) == ("amqpwss", 443, "ann", None, True)
    assert url.websocket_uri == "wss://mq.example.org:443/$servicebus/websocket?a=b"
    assert parse_url("ws://h").websocket_uri == "ws://h:80/"
    assert str(parse_url("amqpws://h:8080/x")) == "amqpws://h:8080"
