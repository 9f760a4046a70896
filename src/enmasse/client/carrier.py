"""One physical connection, from dialling to its end, and the dialling of several places.

A carrier is a socket, an engine and a session. A ``Connection`` outlives its carriers: when one is lost, its
dialler makes the next.

Rules of dialling:
1. A round tries every place once. The first round begins with the first place; after a loss the next
   place comes first, and the lost one last.
2. A redirect is followed within the round; the next round begins with the places that were given.
3. A redirect never leads from TLS to a connection without.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from enmasse.client.errors import ConnectionDeniedError, DeadlineError, TlsError, UnavailableError
from enmasse.client.options import Authentication, Options, Url, explain_tls, has_certificate
from enmasse.errors import EnmasseError
from enmasse.message.outcomes import AmqpError
from enmasse.net.loop import Turn
from enmasse.net.transport import EngineProtocol
from enmasse.version import __version__
from enmasse.wire.amqp.connection import SPEAKS_TLS
from enmasse.wire.amqp.connection import Connection as Engine
from enmasse.wire.amqp.link import Link as EngineLink
from enmasse.wire.amqp.link import ReceivingLink
from enmasse.wire.amqp.performatives import Attach, Open
from enmasse.wire.amqp.session import Session

CLOSE_TIMEOUT_S = 3.0
"""Seconds to wait for the peer's answer to our close."""

UNAUTHORIZED = "amqp:unauthorized-access"


Step = Literal["TLS", "SASL", "open"]


def _ignore(_step: Step) -> None:
    """Do nothing when a step is done."""


class Carrier:
    """The handler of one engine.

    Args:
        options: the options of the connection.
        url: the URL to connect to.
        on_gone: called once, after a successful ``dial``, when the carrier can carry no more.
        next_delivery_id: of the first message that is sent.
        on_step: called when a step of dialling is done: TLS, SASL and the open of AMQP.
        turn: the turn that its output belongs to; None: one of its own.
    """

    def __init__(
        self,
        options: Options,
        url: Url,
        on_gone: Callable[[Carrier, EnmasseError], None],
        next_delivery_id: int = 0,
        on_step: Callable[[Step], None] = _ignore,
        turn: Turn | None = None,
    ) -> None:
        self._options = options
        self._on_step = on_step
        self._turn = turn
        self.url = url
        self._next_delivery_id = next_delivery_id
        self._on_gone = on_gone
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._shell: _Shell | None = None
        self._sasl: Authentication | None = None
        self._is_used = False
        self.error: EnmasseError | None = None
        """The reason that it can carry no more, once that is so."""
        self.engine: Engine | None = None
        self.session: Session | None = None
        """The session that new links are attached on."""
        self.on_room: Callable[[], None] = _nothing
        """Called when there is a session with room for links again."""
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
        turn = self._turn or Turn(loop)
        url = self.url
        context = self._options.context_for(url)

        def make_shell() -> _Shell:
            return _Shell(turn, lambda shell: self._make_engine(shell, turn), yields=False)

        try:
            if url.path:
                _, self._shell = await loop.create_unix_connection(make_shell, url.path)
            elif url.is_websocket:
                await self._connect_websocket(loop, make_shell(), context)
            else:
                name = None if context is None else self._options.server_name(url)
                if self._options.connect is None:
                    made: dict[str, Any] = {"host": url.host, "port": url.port}
                else:
                    made = {"sock": await self._options.connect(url)}
                _, self._shell = await loop.create_connection(make_shell, ssl=context, server_hostname=name, **made)
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
            if context is None:
                raise UnavailableError(f"{url} hung up before the connection was open") from error
            raise explain_tls(error, url, self._options.server_name(url)) from error
        except OSError as error:
            raise UnavailableError(f"cannot reach {url}: {_explain_reach(error)}") from error
        except asyncio.CancelledError:
            if self._shell is not None:
                # The socket is connected, and closed without a callback of uvloop.
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
        self._shell = shell
        if self.url.is_tls:
            self._on_step("TLS")
        sasl = self._sasl = Authentication(options, self.url, lambda: self._on_step("SASL"))
        self.engine = Engine(
            self,
            container_id=options.container_id,
            sasl=sasl,
            is_server=False,
            now=turn.now,
            hostname=sasl.hostname,
            idle_timeout_s=options.idle_timeout_s,
            max_frame_size=options.max_frame_size,
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

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The TLS of the connection, while there is one."""
        found: ssl.SSLObject | None = (
            None if self._shell is None else self._shell.transport.get_extra_info("ssl_object")
        )
        return found

    @property
    def mechanism(self) -> str:
        """The mechanism of SASL that was chosen; empty before."""
        chosen = None if self._sasl is None else self._sasl.mechanism
        return "" if chosen is None else chosen.name

    async def wait_gone(self) -> None:
        """Wait until the socket is closed, after the peer or we have ended the connection."""
        if self._shell is not None:
            await self._shell.wait_closed()

    async def abort(self) -> None:
        """Drop the socket."""
        if self._shell is not None:
            self._shell.abort()
            await self._shell.wait_closed()
        self._ready.cancel()

    # Callbacks of the engine

    def on_opened(self, connection: Engine, remote: Open) -> None:
        """The peer has let us in, or is about to say why not."""
        self.remote = remote
        self._on_step("open")
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
        """Return true if one more link may be attached; if not, begin another session, and call ``on_room`` then."""
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
        link.refuse("amqp:not-implemented", f"a client accepts no link, and the peer asked for {attach.name!r}")

    def on_attached(self, link: EngineLink) -> None:
        """The peer answered the attach of one of our links."""
        link.sink.on_attached(link)

    def on_detached(self, link: EngineLink, error: AmqpError | None, _closed: bool) -> None:
        """One of our links is detached."""
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
        """One of our messages has the outcome that counts once its transaction is committed."""
        delivery = session.unsettled.pop(delivery_id)
        delivery.sink.on_outcome(delivery, state)
        if not settled:
            session.settle_sent(delivery_id, state)

    def on_ended(self, session: Session, error: AmqpError | None) -> None:
        """The session has ended, and the connection is no use without it."""
        engine = session.connection
        if not engine.closed and not engine.is_close_sent:
            engine.close(error)

    def on_closed(self, error: AmqpError | None) -> None:
        """The connection has ended."""
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
        if error is not None and error.description == SPEAKS_TLS and not url.is_tls:
            return TlsError(f"{url} speaks TLS: use an amqps:// URL")
        if error is not None:
            return ConnectionDeniedError(error.condition, error.description or "", str(url), error.info)
        cause = None if self._shell is None else self._shell.cause
        if url.is_tls and isinstance(cause, ssl.SSLError):
            # With TLS 1.3 a server checks our certificate when our side of the handshake is done.
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
        """The socket is closed."""
        self.cause = exc
        super().connection_lost(exc)


def _nothing() -> None:
    """Do nothing when there is room."""


def _explain_reach(error: OSError) -> str:
    said = error.strerror or str(error)
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nothing listens there; is it started, and is that its port?"
    if isinstance(error, socket.gaierror):
        return f"the host name is not known ({said})"
    return said


REDIRECT = "amqp:connection:redirect"

MAX_REDIRECTS = 5
"""From one place; more is a circle."""


class Dialler:
    """Connects to one place after the other until one answers.

    Args:
        options: the options of the connection, with its URLs.
        on_gone: called by a carrier when it can carry no more.
        timeout_s: for one attempt.

    Attributes:
        present: the place that was connected to last, or is tried now.
        next_delivery_id: the number from which deliveries are counted on; they are known by it for longer than a
            connection lasts.
    """

    def __init__(self, options: Options, on_gone: Callable[[Carrier, EnmasseError], None], timeout_s: float) -> None:
        self._options = options
        self._on_gone = on_gone
        self._timeout_s = timeout_s
        self._places = list(options.places)
        if options.shuffle:
            random.shuffle(self._places)
        self._hint: Url | None = None
        self.present = self._places[0]
        self.next_delivery_id = 0

    def leave(self, error: EnmasseError) -> None:
        """Begin the next round at another place, if there is one, as the carrier was lost."""
        self._hint = _target(error, self.present)
        self._places.append(self._places.pop(0))

    async def dial(self) -> Carrier:
        """Try every place once.

        Raises:
            UnavailableError: no place can be reached.
            ConnectionDeniedError: the place refused; of several, all did.
            TlsError: the place is not to be trusted; of several, none can be used.
        """
        failures: list[EnmasseError] = []
        hint, self._hint = self._hint, None
        if hint is not None:
            try:
                return await self._follow(hint)
            except (UnavailableError, ConnectionDeniedError, TlsError) as error:
                failures.append(error)
        for _ in range(len(self._places)):
            try:
                return await self._follow(self._places[0])
            except (UnavailableError, ConnectionDeniedError, TlsError) as error:
                failures.append(error)
                self._places.append(self._places.pop(0))
        raise _sum_up(failures)

    async def _follow(self, place: Url) -> Carrier:
        """Connect to a place, or to where it sends us.

        Raises:
            EnmasseError: as for ``dial``.
        """
        for _ in range(MAX_REDIRECTS + 1):
            self.present = place
            carrier = Carrier(self._options, place, self._on_gone, self.next_delivery_id)
            try:
                await carrier.dial(self._timeout_s)
            except ConnectionDeniedError as error:
                target = _target(error, place)
                if target is None:
                    raise
                place = target
            else:
                if carrier.error is not None:
                    raise UnavailableError(f"the connection to {place} was lost at once") from carrier.error
                return carrier
        raise UnavailableError(f"{place} sends us on once more after {MAX_REDIRECTS} redirects: a circle")


def _target(error: EnmasseError, place: Url) -> Url | None:
    if not isinstance(error, ConnectionDeniedError) or error.condition != REDIRECT:
        return None
    return redirected(place, error.info)


def redirected(place: Url, info: Mapping[Any, Any]) -> Url | None:
    """Return where a redirect leads to [AMQP 2.8.16, 2.8.18]; nothing if it names no host."""
    host, port, hostname = info.get("network-host"), info.get("port"), info.get("hostname")
    if host is None:
        host = hostname
    if not isinstance(host, str) or not host or not place.host:
        return None
    return replace(
        place,
        scheme="amqps" if place.scheme == "amqp" and info.get("scheme") == "amqps" else place.scheme,
        host=host,
        port=port if isinstance(port, int) else place.port,
        hostname=hostname if isinstance(hostname, str) else None,
        address=None,
    )


def is_final(error: EnmasseError) -> bool:
    """Return true if it is no use to try again, as the peer refused our credentials."""
    return isinstance(error, ConnectionDeniedError) and error.condition == UNAUTHORIZED


def jittered(delay_s: float) -> float:
    """Return between half the delay and all of it, so that clients do not connect again in step."""
    return delay_s * (0.5 + random.random() / 2)  # noqa: S311  no secret


def _sum_up(failures: list[EnmasseError]) -> EnmasseError:
    """One error for a round; it is final only if every one was."""
    if len({str(failure) for failure in failures}) == 1:
        return failures[-1]
    reasons = "; ".join(str(failure) for failure in failures)
    if all(isinstance(failure, DeadlineError) for failure in failures):
        return DeadlineError(reasons)
    for kind in (UnavailableError, TlsError):
        for failure in failures:
            if isinstance(failure, kind):
                return UnavailableError(f"no place can be reached: {reasons}")
    passing = [failure for failure in failures if not is_final(failure)]
    return (passing or failures)[-1]
