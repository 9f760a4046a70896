"""A client of STOMP that says and hears frames, and believes nothing: for tests of what a node answers."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Any, Self

from enmasse.wire.stomp.frames import Version, encode_frame
from enmasse.wire.stomp.trace import Splitter

__all__ = ["StompFrame", "StompPeer", "named"]

WAIT_S = 60.0


class StompFrame:
    """What a client is told.

    Args:
        frame: with its NUL.
    """

    def __init__(self, frame: bytes) -> None:
        head, _, body = frame.partition(b"\n\n")
        command, *lines = head.decode().split("\n")
        self.command = command
        self.body = body[:-1]
        self.headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            if command != "CONNECTED":
                name, value = (
                    text.replace("\\c", ":").replace("\\n", "\n").replace("\\\\", "\\") for text in (name, value)
                )
            self.headers.setdefault(name, value)

    def __getitem__(self, name: str) -> str:
        return self.headers[name]

    def __repr__(self) -> str:
        return f"{self.command} {self.headers} {self.body!r}"


def named(headers: dict[str, str]) -> list[tuple[str, str]]:
    """Headers from keyword arguments, whose underscores are hyphens."""
    return [(name.replace("_", "-"), value) for name, value in headers.items()]


class StompPeer:
    """A connection; an async context manager.

    Args:
        port: on the loopback interface.
        headers: of CONNECT, beside the version; and ``tls``, the context for TLS, or it is spoken in the clear.
    """

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    def __init__(self, port: int, **headers: Any) -> None:
        self._port = port
        self._tls: ssl.SSLContext | None = headers.pop("tls", None)
        self._headers = headers
        self._splitter = Splitter()
        self._frames: deque[StompFrame] = deque()

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls)
        self.say("CONNECT", accept_version="1.2", **self._headers)
        try:
            await self.next("CONNECTED")
        except BaseException:
            self._writer.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def say(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        """Send a frame; underscores of names are hyphens."""
        self._writer.write(encode_frame(command, named(headers), body, Version.V1_2))

    def send(self, destination: str, body: bytes = b"x", /, **headers: str) -> None:
        """Send a message."""
        self.say("SEND", body, destination=destination, content_length=str(len(body)), **headers)

    async def subscribe(self, destination: str, **headers: str) -> None:
        """Subscribe, and wait until that is done."""
        self.say("SUBSCRIBE", id=destination, destination=destination, receipt="subscribed", **headers)
        await self.receipt("subscribed")

    async def next(self, *commands: str) -> StompFrame:
        """The next frame, which has one of these commands."""
        async with asyncio.timeout(WAIT_S):
            while not self._frames:
                data = await self._reader.read(65536)
                assert data, f"the connection has ended, and {commands} did not come"
                self._frames += map(StompFrame, self._splitter.feed(data))
        frame = self._frames.popleft()
        assert frame.command in commands, frame
        return frame

    async def receipt(self, wanted: str) -> None:
        """Wait for a receipt, which is the next frame."""
        assert (await self.next("RECEIPT"))["receipt-id"] == wanted

    async def ended(self) -> None:
        """Wait until the node has closed the connection."""
        async with asyncio.timeout(WAIT_S):
            while await self._reader.read(65536):
                pass
