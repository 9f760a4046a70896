"""Simulated devices: one class for each protocol, which all do the same.

A device connects, sends readings and events, listens for commands and answers each. What it does is driven from
outside (``fleet``): it has no timers of its own.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

import httpx

from enmasse.client import Message, Outcome, connect
from enmasse.errors import EnmasseError, UnavailableError
from enmasse.net.loop import Turn
from enmasse.net.transport import EngineProtocol
from enmasse.wire.mqtt.client import ClientConnection
from enmasse.wire.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Filter,
    PublishProperties,
    Subscribe,
    Version,
)
from enmasse.wire.mqtt.writing import encode_publish

if TYPE_CHECKING:
    from enmasse.client import Connection, Sender
    from enmasse.wire.mqtt.handler import PublishSink

ANSWER_S: Final = 30.0
TTD_S: Final = 20
"""The time that a device that speaks HTTP waits for a command."""

KEEP_ALIVE_S: Final = 60
_HERE: Final = frozenset(("127.0.0.1", "::1", "localhost"))

Commanded = Callable[[str, bytes], tuple[int, bytes]]
"""Called with the name and the payload of a command; returns the status and the payload of the answer."""


class SimulatedDevice(Protocol):
    """A device."""

    async def start(self) -> None:
        """Connect.

        Raises:
            EnmasseError: it is not let in, or nobody is there.
        """

    async def send(self, kind: str, payload: bytes) -> bool:
        """Send telemetry or an event; return whether it was taken.

        Raises:
            EnmasseError: it is not connected.
        """

    async def stop(self) -> None:
        """Disconnect."""


class _Sink:
    is_lasting = False

    def __init__(self, device: MqttDevice, topic: str) -> None:
        self._device = device
        self._topic = topic

    def on_publish(self, payload: bytes, flags: int, packet_id: int) -> None:
        self._device.on_command(self._topic, payload, packet_id)


class MqttDevice:
    """A device that speaks MQTT 3.1.1.

    Args:
        turn: the turn of the loop.
        url: the URL of the node, ``mqtt://`` or ``mqtts://``.
        user: the auth-id with the tenant.
        password: the password of the device.
        commanded: called when it is commanded.
        tls: the authorities that it trusts; None for ``mqtt://``.
    """

    def __init__(
        self, turn: Turn, url: str, user: str, password: str, commanded: Commanded, tls: ssl.SSLContext | None = None
    ) -> None:
        self._turn = turn
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 1883
        self._user = user
        self._password = password
        self._commanded = commanded
        self._tls = tls
        self._shell: EngineProtocol | None = None
        self._engine: ClientConnection
        self._opened: asyncio.Future[None]
        self._waiting: dict[int, asyncio.Future[bool]] = {}
        self._packet_id = 0

    # Doing

    async def start(self) -> None:
        """Connect, and listen for commands."""
        loop = self._turn.loop
        self._opened = loop.create_future()
        wanted = Connect(
            version=Version.V3_1_1,
            client_id="",
            keep_alive_s=KEEP_ALIVE_S,
            user_name=self._user,
            password=self._password.encode(),
        )

        def make(_shell: EngineProtocol) -> ClientConnection:
            self._engine = ClientConnection(self, wanted, now=self._turn.now)
            return self._engine

        try:
            _, self._shell = await loop.create_connection(
                lambda: EngineProtocol(self._turn, make), self._host, self._port, ssl=self._tls
            )
        except OSError as error:
            raise UnavailableError(f"{self._host}:{self._port} is not reachable: {error}") from None
        async with asyncio.timeout(ANSWER_S):
            await self._opened

    async def send(self, kind: str, payload: bytes) -> bool:
        """Send a message of QoS 1, and wait for its acknowledgement."""
        engine = self._engine
        if engine.closed or not self._opened.done():
            raise UnavailableError(f"{self._user} is not connected")
        self._turn.begin()
        packet_id = self._next()
        answer: asyncio.Future[bool] = self._turn.loop.create_future()
        self._waiting[packet_id] = answer
        engine.put(encode_publish(kind.encode(), payload, qos=1, packet_id=packet_id))
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(packet_id, None)

    async def stop(self) -> None:
        """Disconnect."""
        if self._shell is not None:
            self._turn.begin()
            self._engine.close()
            await self._shell.wait_closed()

    def _next(self) -> int:
        while True:
            self._packet_id = self._packet_id % 0xFFFF + 1
            if self._packet_id not in self._waiting:
                return self._packet_id

    def on_command(self, topic: str, payload: bytes, packet_id: int) -> None:
        """Do what a command says, and answer it."""
        words = topic.split("/")
        status, answer = self._commanded(words[-1], payload)
        if packet_id:
            self._engine.put_puback(packet_id)
        if len(words) == 6 and words[4]:
            to = f"command///res/{words[4]}/{status}".encode()
            self._engine.put(encode_publish(to, answer, qos=1, packet_id=self._next()))

    # The engine's handler

    def on_connack(self, connack: Connack) -> None:
        """Subscribe to commands, or fail."""
        if connack.reason:
            self._opened.set_exception(UnavailableError(f"{self._user} is refused: {connack.reason}"))
        else:
            self._engine.put_subscribe(Subscribe(self._next(), [Filter("command///req/#", 1)]))

    def on_suback(self, packet_id: int, reasons: bytes) -> None:
        """Be connected, as it listens."""
        if not self._opened.done():
            self._opened.set_result(None)

    def make_sink(self, topic: str, properties: PublishProperties | None) -> PublishSink:
        """Return what takes commands."""
        return _Sink(self, topic)

    def on_puback(self, packet_id: int, reason: int) -> None:
        """Take an acknowledgement."""
        answer = self._waiting.get(packet_id)
        if answer is not None and not answer.done():
            answer.set_result(True)

    def on_closed(self, error: Exception | None) -> None:
        """Give up what has no answer."""
        gone = UnavailableError(f"{self._user} was disconnected: {error or 'the node has closed the connection'}")
        if not self._opened.done():
            self._opened.set_exception(gone)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result(False)

    def on_unsuback(self, packet_id: int, reasons: bytes) -> None:
        """Do nothing: it never unsubscribes."""

    def on_pubrec(self, packet_id: int, reason: int) -> None:
        """Do nothing: it sends nothing with QoS 2."""

    def on_pubrel(self, packet_id: int, reason: int) -> None:
        """Do nothing: it is sent nothing with QoS 2."""

    def on_pubcomp(self, packet_id: int, reason: int) -> None:
        """Do nothing: it sends nothing with QoS 2."""

    def on_auth(self, auth: Auth) -> None:
        """Do nothing: it has a password."""

    def on_pingresp(self) -> None:
        """Do nothing: the engine watches the server."""

    def on_disconnect(self, disconnect: Disconnect) -> None:
        """Do nothing: the connection is closed then."""

    def on_blocked(self, is_blocked: bool) -> None:
        """Do nothing: what it sends is little."""

    def on_written(self) -> None:
        """Do nothing: acknowledgements count."""


class HttpDevice:
    """A device that speaks HTTP, and waits for commands with a request of its own.

    Args:
        client: shared by devices, without credentials.
        url: the URL of the node.
        user: the auth-id with the tenant.
        password: the password of the device.
        commanded: called when it is commanded.
    """

    def __init__(self, client: httpx.AsyncClient, url: str, user: str, password: str, commanded: Commanded) -> None:
        self._client = client
        self._url = url
        self._headers = {"authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}
        self._user = user
        self._commanded = commanded
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Prove who it is, and wait for commands from then on."""
        answer = await self._post("event", b"", "application/vnd.eclipse-hono-empty-notification")
        if answer.status_code != 202:
            raise UnavailableError(f"{self._user} is refused: {answer.status_code} {answer.text.strip()}")
        self._listening = asyncio.create_task(self._listen())

    async def send(self, kind: str, payload: bytes) -> bool:
        """Send a message, and return whether it was taken."""
        return (await self._post(f"{kind}?qos-level=1", payload)).status_code == 202

    async def stop(self) -> None:
        """Wait for no more commands."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _post(self, path: str, payload: bytes, content_type: str = "application/json") -> httpx.Response:
        headers = self._headers | {"content-type": content_type}
        try:
            return await self._client.post(
                f"{self._url}/{path}", content=payload, headers=headers, timeout=TTD_S + 30
            )
        except httpx.HTTPError as error:
            raise UnavailableError(f"{self._user}: {error}") from None

    async def _listen(self) -> None:
        while True:
            try:
                asked = f"event?hono-ttd={TTD_S}"
                answer = await self._post(asked, b"", "application/vnd.eclipse-hono-empty-notification")
                if answer.status_code == 200:
                    status, payload = self._commanded(answer.headers["hono-command"], answer.content)
                    if request_id := answer.headers.get("hono-cmd-req-id"):
                        await self._post(f"command/res/{request_id}?hono-cmd-status={status}", payload)
                elif answer.status_code != 202:
                    await asyncio.sleep(1)
            except EnmasseError:
                await asyncio.sleep(1)


class AmqpDevice:
    """A device that speaks AMQP.

    Args:
        url: the URL of the node.
        user: the auth-id with the tenant.
        password: the password of the device.
        commanded: called when it is commanded.
    """

    def __init__(self, url: str, user: str, password: str, commanded: Commanded) -> None:
        self._url = url
        self._user = user
        self._password = password
        self._commanded = commanded
        self._sender: Sender | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None]

    async def start(self) -> None:
        """Connect, and listen for commands."""
        self._ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run())
        async with asyncio.timeout(ANSWER_S):
            await self._ready

    async def send(self, kind: str, payload: bytes) -> bool:
        """Send a message, and return whether it was accepted."""
        if self._sender is None:
            raise UnavailableError(f"{self._user} is not connected")
        message = Message(payload, to=kind, content_type="application/json")
        return await self._sender.send(message, timeout=ANSWER_S) == Outcome.ACCEPTED

    async def stop(self) -> None:
        """Disconnect."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            async with connect(
                self._url,
                user=self._user,
                password=self._password,
                container_id=self._user,
                reconnect=False,
                sasl=["PLAIN"],  # the registry knows hashes, by which SCRAM is not possible
                # Nobody else reads what does not leave this machine.
                allow_insecure_plain=urlsplit(self._url).hostname in _HERE,
            ) as connection:
                await self._serve(connection)
        except EnmasseError as error:
            if not self._ready.done():
                self._ready.set_exception(UnavailableError(f"{self._user}: {error}"))
        finally:
            self._sender = None

    async def _serve(self, connection: Connection) -> None:
        async with connection.sender(None) as sender, connection.receiver("command", credit=10) as commands:
            self._sender = sender
            self._ready.set_result(None)
            while (delivery := await commands.receive()) is not None:
                message = delivery.message
                body = message.body if isinstance(message.body, bytes) else str(message.body or "").encode()
                status, answer = self._commanded(message.subject or "", body)
                await delivery.accept()
                if message.reply_to:
                    told = {"status": status}
                    await sender.send(
                        Message(answer, to=message.reply_to, correlation_id=message.correlation_id, properties=told)
                    )


Make = Callable[[str, str, Commanded], SimulatedDevice]
"""Makes a device from its user, its password, and what it does when it is commanded."""
