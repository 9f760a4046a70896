"""One physical connection: a socket, an engine and a session, from dialling to its end.

A ``Connection`` outlives its carriers: when one is lost it dials the next.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from enmasse.client.authentication import Authentication
from enmasse.client.errors import ConnectionDeniedError, DeadlineError, UnavailableError
from enmasse.client.options import Options
from enmasse.client.tls import explain_tls, has_certificate
from enmasse.client.url import Url
from enmasse.errors import EnmasseError
from enmasse.net.loop import Turn
from enmasse.net.transport import EngineProtocol
from enmasse.version import __version__
from enmasse.wire.amqp.connection import Connection as Engine
from enmasse.wire.amqp.link import Link as EngineLink
from enmasse.wire.amqp.link import ReceivingLink
from enmasse.wire.amqp.performatives import AmqpError, Attach, Open
from enmasse.wire.amqp.session import Session

__all__ = ["UNAUTHORIZED", "Carrier"]

CLOSE_TIMEOUT_S = 3.0
"""How long the peer's answer to our close is waited for."""

UNAUTHORIZED = "amqp:unauthorized-access"


class Carrier:
    """The handler of one engine.

    Args:
        options: how to connect.
        url: where to.
        on_gone: told once, after a successful ``dial``, when the carrier can carry no more.
        next_delivery_id: of the first message that is sent.
    """

    def __init__(
        self,
        options: Options,
        url: Url,
        on_gone: Callable[[Carrier, EnmasseError], None],
        next_delivery_id: int = 0,
    ) -> None:
        self._options = options
        self.url = url
        self._next_delivery_id = next_delivery_id
        self._on_gone = on_gone
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._shell: _Shell | None = None
        self._sasl: Authentication | None = None
        self._is_used = False
        self.error: EnmasseError | None = None
        """Why it can carry no more, once that is so."""
        self.engine: Engine | None = None
        self.session: Session | None = None
        """The session that new links are attached on."""
        self.on_room: Callable[[], None] = _nothing
        """Told when there is a session with room for links again."""
        self._sessions: list[Session] = []
        self._is_beginning = False
        self.remote: Open | None = None

    # Dialling and closing

    async def dial(self, timeout_s: float) -> None:
        """Connect, and begin a session.

        Raises:
            UnavailableError: the place cannot be reached, or did not answer in time.
            ConnectionDeniedError: the peer refused.
            TlsError: one of the two ends does not trust the other.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._connect()
                await self._ready
        except TimeoutError:
            await self.abort()
            raise DeadlineError(f"{self.url} did not answer within {timeout_s:g} s") from None
        except BaseException:
            await self.abort()
            raise
        self._is_used = True

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        turn = Turn(loop)
        url = self.url
        context = self._options.context_for(url)

        def make_shell() -> _Shell:
            return _Shell(turn, lambda shell: self._make_engine(shell, turn), yields=False)

        try:
            if url.path:
                _, self._shell = await loop.create_unix_connection(make_shell, url.path)
            elif url.is_websocket:
                await self._connect_websocket(loop, make_shell(), context)
            elif context is None:
                _, self._shell = await loop.create_connection(make_shell, url.host, url.port)
            else:
                name = self._options.server_name(url)
                _, self._shell = await loop.create_connection(
                    make_shell, url.host, url.port, ssl=context, server_hostname=name
                )
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
            if context is None:
                raise UnavailableError(f"{url} hung up before the connection was open") from error
            raise explain_tls(error, url, self._options.server_name(url)) from error
        except OSError as error:
            raise UnavailableError(f"cannot reach {url}: {_explain_reach(error)}") from error
        except asyncio.CancelledError:
            if self._shell is not None:
                # The socket is connected, and closed without another word: uvloop does not tell of that.
                self._shell.connection_lost(None)
            raise

    async def _connect_websocket(
        self, loop: asyncio.AbstractEventLoop, shell: EngineProtocol, context: ssl.SSLContext | None
    ) -> None:
        # Most programs do without, and would load its library for nothing.
        from enmasse.net.websocket_client import WebSocketClientLayer, WebSocketRefusedError  # noqa: PLC0415

        url = self.url
        layer = WebSocketClientLayer(shell, url.websocket_uri)
        name = None if context is None else self._options.server_name(url)
        transport, _ = await loop.create_connection(
            lambda: layer, url.host, url.port, ssl=context, server_hostname=name
        )
        try:
            await layer.opened
        except WebSocketRefusedError as error:
            raise UnavailableError(f"cannot reach {url}: {error}") from error
        except BaseException:
            transport.abort()
            raise

    def _make_engine(self, shell: EngineProtocol, turn: Turn) -> Engine:
        assert isinstance(shell, _Shell)
        options = self._options
        sasl = self._sasl = Authentication(options, self.url)
        self._shell = shell
        self.engine = Engine(
            self,
            container_id=options.container_id,
            sasl=sasl,
            is_server=False,
            now=turn.now,
            hostname=sasl.hostname,
            idle_timeout_s=options.idle_timeout_s,
            properties={"product": "enmasse-python", "version": __version__, **options.properties},
        )
        return self.engine

    async def close(self) -> None:
        """Close in order, as far as the peer takes part."""
        if self.engine is not None and self._shell is not None:
            self.engine.close()
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._shell.wait_closed()
            except TimeoutError:
                await self.abort()

    async def wait_gone(self) -> None:
        """Wait until the socket is gone, after the peer or we have ended the connection."""
        if self._shell is not None:
            await self._shell.wait_closed()

    async def abort(self) -> None:
        """Drop the socket."""
        if self._shell is not None:
            self._shell.abort()
            await self._shell.wait_closed()
        self._ready.cancel()

    # What the engine tells

    def on_opened(self, connection: Engine, remote: Open) -> None:
        """The peer has let us in, or is about to say why not."""
        self.remote = remote
        connection.begin()

    def on_begun(self, session: Session) -> None:
        """Everything is there that links need."""
        session.number_from(self._next_delivery_id)
        self._sessions.append(session)
        self.session = session
        self._is_beginning = False
        if not self._ready.done():
            self._ready.set_result(None)
        else:
            self.on_room()

    @property
    def next_delivery_id(self) -> int:
        """A number above those of all deliveries that were sent."""
        return max((session.next_delivery_id for session in self._sessions), default=self._next_delivery_id)

    def has_room(self) -> bool:
        """Whether one more link may be attached; if not, another session is begun, and ``on_room`` told."""
        session = self.session
        assert session is not None
        if len(session.handles) <= min(session.remote_handle_max, session.connection.handle_max):
            return True
        if not self._is_beginning and self.engine is not None:
            self._is_beginning = True
            self.engine.begin()
        return False

    def on_attach(self, link: EngineLink, attach: Attach) -> None:
        """The peer wants a link of its own, which a client has no use for."""
        link.refuse("amqp:not-implemented", f"a client takes no link {attach.name!r} of the peer's wish")

    def on_attached(self, link: EngineLink) -> None:
        """The peer answered the attach of one of our links."""
        link.sink.on_attached(link)

    def on_detached(self, link: EngineLink, error: AmqpError | None, _closed: bool) -> None:
        """One of our links is gone."""
        if link.sink is not None:
            link.sink.on_detached(link, error)

    def on_transactional_message(
        self,
        link: ReceivingLink,
        payload: bytes,
        delivery_id: int,
        settled: bool,
        message_format: int,
        _txn_id: bytes,
    ) -> None:
        """A peer that sends within a transaction of its own sends all the same."""
        link.sink.on_message(payload, delivery_id, settled, message_format)

    def on_transactional_outcome(self, session: Session, delivery_id: int, state: Any, settled: bool) -> None:
        """The peer has told what one of our messages is to be once its transaction is committed."""
        delivery = session.unsettled.pop(delivery_id)
        delivery.sink.on_outcome(delivery, state)
        if not settled:
            session.settle_sent(delivery_id, state)

    def on_ended(self, session: Session, error: AmqpError | None) -> None:
        """The session is gone, and what is left of the connection is no use."""
        engine = session.connection
        if not engine.closed and not engine.is_close_sent:
            engine.close(error)

    def on_closed(self, error: AmqpError | None) -> None:
        """The connection is gone."""
        self.error = self._explain(error)
        if not self._ready.done():
            self._ready.set_exception(self.error)
            self._ready.exception()
        elif self._is_used:
            self._on_gone(self, self.error)

    def _explain(self, error: AmqpError | None) -> EnmasseError:
        url = self.url
        if error is not None and self._sasl is not None and self._sasl.is_passing:
            return UnavailableError(f"{url}: {self._sasl.error}")
        if error is not None:
            return ConnectionDeniedError(error.condition, error.description or "", str(url), error.info)
        cause = None if self._shell is None else self._shell.cause
        if url.is_tls and isinstance(cause, ssl.SSLError):
            # With TLS 1.3 a server looks at our certificate when our side of the handshake is done.
            return explain_tls(cause, url, self._options.server_name(url))
        if self._ready.done():
            return UnavailableError(f"the connection to {url} is lost")
        if url.is_tls and self._shell is not None and not self._shell.bytes_in:
            shown = (
                "refuses our certificate"
                if has_certificate(self._options.tls)
                else "wants a certificate: give TlsOptions(certificate=...)"
            )
            return UnavailableError(f"{url} hung up right after the TLS handshake: perhaps it {shown}")
        return UnavailableError(f"{url} hung up before the connection was open")


class _Shell(EngineProtocol):
    """Remembers why the socket was lost."""

    __slots__ = ("cause",)
    cause: Exception | None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        self.cause = None
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self.cause = exc
        super().connection_lost(exc)


def _nothing() -> None:
    """Nobody waits for room."""


def _explain_reach(error: OSError) -> str:
    said = error.strerror or str(error)
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nothing listens there; is it started, and is that its port?"
    if isinstance(error, socket.gaierror):
        return f"the host name is not known ({said})"
    return said
