"""A client of each protocol that goes against the limits of a space, and tells in one line what it hears of that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Protocol, Self, TypeVar

import httpx
from websockets.asyncio.client import ClientConnection as WebSocket
from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from enmasse.client import Message
from enmasse.message.outcomes import Accepted, Rejected
from enmasse.wire.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    Flow,
    Source,
    Target,
    Transfer,
)
from enmasse.wire.mqtt.packets import Version
from tests.support.mqtt_peer import MqttPeer
from tests.support.stomp_peer import StompFrame, StompPeer
from tests.support.stranger import Stranger

__all__ = ["CLIENTS", "Client", "MakeClient", "RefusedError"]

WAIT_S = 60.0
P = TypeVar("P", bound=Composite)
PATH = "/v1/spaces/limited.default/addresses"


class RefusedError(Exception):
    """What a client was told instead of what it asked for."""


class Client(Protocol):
    """A client; an async context manager that connects.

    Attributes:
        links: those that its connection has by itself.
    """

    links: int

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            RefusedError: it may not.
        """

    async def __aexit__(self, *_: object) -> None:
        """Hang up."""

    async def send(self, address: str, body: bytes = b"x", *, is_kept: bool = False) -> None:
        """Send a message, as a retained value or not, and wait until it is accepted.

        Raises:
            RefusedError: it is not.
        """

    async def listen(self, address: str) -> None:
        """Begin to receive, until the connection ends.

        Raises:
            RefusedError: it may not.
        """


class AmqpClient:
    """One that speaks AMQP frame by frame, and believes nothing that it is told of limits."""

    links = 0

    def __init__(self, port: int) -> None:
        self._port = port
        self._handles = count()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._open)
        return self

    def _open(self) -> None:
        self._peer = Stranger(self._port)
        self._peer.open()
        self._peer.say(Begin(incoming_window=1 << 30, outgoing_window=1 << 30))
        try:
            self._hear(Begin)
        except RefusedError:
            self._peer.socket.close()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._peer.socket.close()

    async def send(self, address: str, body: bytes = b"x", *, is_kept: bool = False) -> None:
        await asyncio.to_thread(self._send, address, body, is_kept)

    def _send(self, address: str, body: bytes, is_kept: bool) -> None:
        handle = next(self._handles)
        source, target = Source(), Target(address)
        self._attach(Attach(f"s{handle}", handle, False, source=source, target=target, initial_delivery_count=0))
        while not self._hear(Flow).link_credit:
            pass
        annotations: Any = {"x-opt-retain": True} if is_kept else {}
        payload = Message(body=body, annotations=annotations).encode()
        self._peer.say(Transfer(handle, handle, b"t", 0), payload=payload)
        state = self._hear(Disposition).state
        if isinstance(state, Rejected):
            raise RefusedError(f"rejected, {state.error and state.error.condition}")
        assert isinstance(state, Accepted), state
        self._peer.say(Detach(handle, True))
        self._hear(Detach)

    async def listen(self, address: str) -> None:
        handle = next(self._handles)
        attach = Attach(f"r{handle}", handle, True, source=Source(address), target=Target())
        await asyncio.to_thread(self._attach, attach)

    def _attach(self, attach: Attach) -> None:
        self._peer.say(attach)
        answer = self._hear(Attach)
        if (answer.source if attach.role else answer.target) is None:
            self._hear(Detach)

    def _hear(self, kind: type[P]) -> P:
        while (frame := self._peer.hear_frame()) is not None:
            if isinstance(frame[0], Detach | Close) and frame[0].error is not None:
                raise RefusedError(f"{type(frame[0]).__name__.lower()}, {frame[0].error.condition}")
            if isinstance(frame[0], kind):
                return frame[0]
        raise ConnectionError(f"the connection ended before {kind.__name__}")


class MqttClient(MqttPeer):
    """One of MQTT 5, whose session outlives the connection if it has a name."""

    links = 0

    def __init__(self, port: int, name: str = "", version: Version = Version.V5) -> None:
        super().__init__(port, name, version, is_clean=not name, session_expiry_s=60 if name else 0)

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await self.dial()
        heard = await self.next("connack")
        if heard.reason:
            self._writer.close()
            raise RefusedError(f"CONNACK {heard.reason:#x}")
        return self

    async def send(self, address: str, body: bytes = b"x", *, is_kept: bool = False) -> None:
        self.publish(address, body, 1, retain=is_kept)
        try:
            heard = await self.next("puback", "disconnect")
        except EOFError:
            raise RefusedError("the connection ends") from None
        if heard.reason >= 0x80:
            raise RefusedError(f"{heard.kind.upper()} {heard.reason:#x}")

    async def listen(self, address: str) -> None:
        (code,) = await self.subscribed(address, qos=1)
        if code >= 0x80:
            raise RefusedError(f"SUBACK {code:#x}")


class Mqtt3Client(MqttClient):
    """One of MQTT 3.1.1."""

    def __init__(self, port: int, name: str = "") -> None:
        super().__init__(port, name, Version.V3_1_1)


class _Cable:
    """A WebSocket in the place of a stream's two ends."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._sent: asyncio.Task[None] | None = None

    async def read(self, _most: int) -> bytes:
        if self._sent is not None:
            await self._sent
        try:
            data = await self._socket.recv()
        except ConnectionClosed:
            return b""
        assert isinstance(data, bytes)
        return data

    def writelines(self, parts: Iterable[bytes]) -> None:
        if data := b"".join(parts):
            self._sent = asyncio.create_task(self._socket.send(data))

    def close(self) -> None:
        self._socket.transport.close()


class WebSocketClient(MqttClient):
    """One of MQTT 5 whose bytes go by WebSocket, as those of a web page do."""

    async def dial(self) -> tuple[Any, Any]:
        socket = await connect_websocket(
            f"ws://127.0.0.1:{self._port}/", subprotocols=[Subprotocol("mqtt")], max_size=None, proxy=None
        )
        cable = _Cable(socket)
        return cable, cable


class _Stomp(StompPeer):
    async def next(self, *commands: str) -> StompFrame:
        """The next frame, which has one of these commands, or is an ERROR."""
        frame = await super().next(*commands, "ERROR")
        if frame.command == "ERROR":
            raise RefusedError(f"ERROR, {frame['condition']}")
        return frame


class StompClient:
    """One of STOMP, whose refusals are ERROR frames."""

    links = 0

    def __init__(self, port: int) -> None:
        self._peer = _Stomp(port)

    async def __aenter__(self) -> Self:
        await self._peer.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._peer.__aexit__()

    async def send(self, address: str, body: bytes = b"x", *, is_kept: bool = False) -> None:
        self._peer.send(address, body, receipt="sent", **({"x_opt_retain": "true"} if is_kept else {}))
        await self._peer.receipt("sent")

    async def listen(self, address: str) -> None:
        await self._peer.subscribe(address)


class HttpClient:
    """One of HTTP/1.1; each of its requests is a connection to the space, with a link."""

    links = 1
    is_v2 = False

    def __init__(self, port: int) -> None:
        base = f"http://127.0.0.1:{port}{PATH}"
        self._http = httpx.AsyncClient(
            base_url=base, http1=not self.is_v2, http2=self.is_v2, timeout=WAIT_S, trust_env=False
        )
        self._open: list[httpx.Response] = []

    async def __aenter__(self) -> Self:
        """Ask for something, as a socket without a request is no connection to a space."""
        try:
            await self.listen("multicast")
        except RefusedError:
            await self._http.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for answer in self._open:
            await answer.aclose()
        await self._http.aclose()

    async def send(self, address: str, body: bytes = b"x", *, is_kept: bool = False) -> None:
        headers = {"x-opt-retain": "true"} if is_kept else {}
        answer = await self._http.post(f"/{address}/messages", params={"wait": 0}, content=body, headers=headers)
        _raise_for(answer)

    async def listen(self, address: str) -> None:
        request = self._http.build_request("GET", f"/{address}/events", headers={"accept": "text/event-stream"})
        answer = await self._http.send(request, stream=True)
        if answer.is_error:
            await answer.aread()
        _raise_for(answer)
        self._open.append(answer)


class Http2Client(HttpClient):
    """One of HTTP/2."""

    is_v2 = True


def _raise_for(answer: httpx.Response) -> None:
    if answer.is_error:
        problem = answer.json()
        words = (problem.get("condition"), problem.get("reason"))
        raise RefusedError(", ".join([str(answer.status_code), *filter(None, words)]))


MakeClient = Callable[[int], Client]

CLIENTS: dict[str, dict[str, MakeClient]] = {
    "amqp": {"amqp": AmqpClient},
    "mqtt": {"mqtt 5": MqttClient, "mqtt 3.1.1": Mqtt3Client},
    "stomp": {"stomp": StompClient},
    "http/1.1": {"http/1.1": HttpClient},
    "http/2": {"http/2": Http2Client},
    "websocket": {"mqtt 5 over WebSocket": WebSocketClient},
}
"""How to make the clients of a protocol for a node's port, by their names."""
