"""A server's end of a STOMP connection, and a handler that notes what it is told."""

from __future__ import annotations

from typing import Any

from enmasse.errors import RemoteError
from enmasse.wire.stomp.connection import Connection

CONNECT = b"CONNECT\naccept-version:1.2\nhost:here\n\n\x00"


class Noted:
    """Takes messages of equal heads."""

    is_lasting = True

    def __init__(self, scene: Scene, headers: dict[str, str]) -> None:
        self._scene = scene
        self._headers = headers
        self.is_lasting = "transaction" not in headers

    def on_send(self, body: bytes, receipt: bytes | None) -> None:
        known = {name: value for name, value in self._headers.items() if name != "receipt"}
        self._scene.heard.append(("SEND", known, body, receipt))


class Scene:
    """A handler that lets everybody in."""

    def __init__(self, *, lets_in: bool = True) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.sinks = 0
        self._lets_in = lets_in
        self.engine = Connection(self, now=0.0, server="enmasse/1")

    def is_closed(self) -> bool:
        """Whether the socket can go."""
        return self.engine.closed

    def said(self) -> bytes:
        """What the engine has put out."""
        return b"".join(bytes(chunk) for chunk in self.engine.pending_output())

    def opened(self, *headers: bytes) -> Scene:
        """With a connection that is open."""
        connect = b"CONNECT\naccept-version:1.2\nhost:here\n" + b"".join(line + b"\n" for line in headers) + b"\n\x00"
        self.engine.receive(connect, 0.0)
        assert self.said().startswith(b"CONNECTED\n")
        self.heard.clear()
        return self

    def on_connect(self, headers: dict[str, str]) -> None:
        self.heard.append(("CONNECT", headers))
        if self._lets_in:
            self.engine.connected("7")

    def make_sink(self, headers: dict[str, str]) -> Noted:
        self.sinks += 1
        if "destination" not in headers:
            raise RemoteError("stomp:frame-error", "SEND has no destination")
        return Noted(self, headers)

    def on_acknowledge(self, number: int) -> None:
        self.heard.append(("ACK", {"id": str(number)}, None))

    def on_frame(self, command: bytes, headers: dict[str, str], receipt: bytes | None) -> None:
        self.heard.append((command.decode(), headers, receipt))

    def on_blocked(self, is_blocked: bool) -> None:
        self.heard.append(("blocked", is_blocked))

    def on_written(self) -> None: ...

    def on_closed(self, error: Exception | None) -> None:
        self.heard.append(("closed", None if error is None else str(error).partition(": ")[2]))
