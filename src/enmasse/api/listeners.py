"""The listeners of the API, opened with the operator's settings: without TLS on a loopback interface alone."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import uvicorn
from starlette.datastructures import MutableHeaders

from enmasse.api.access.authentication import Authenticator
from enmasse.api.access.browser_logins import OidcTokens
from enmasse.api.access.sessions import LOCAL, REMOTE, Lifetime
from enmasse.api.http_connections import HttpConnections
from enmasse.api.tls import ApiCertificate
from enmasse.control.access.accounts import Accounts, new_secret
from enmasse.databases.soundness import check_database
from enmasse.drivers.authority import Authority
from enmasse.drivers.data_directory import keep_secret, replace_file
from enmasse.drivers.supervisor.endpoints import is_loopback, require_loopback
from enmasse.errors import ConfigError
from enmasse.net.http_server import serve_until
from enmasse.net.origins import SECURITY_HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from enmasse.drivers.data_directory import Layout
    from enmasse.identity.oidc_settings import OidcSettings
    from enmasse.net.special_addresses import Network

_LISTENER_BACKLOG = 128
_GRACE_S = 2  # for requests under way when the server stops; watches end by themselves


def open_listener(host: str, port: int, *, is_protected: bool = False) -> socket.socket:
    """Open a port.

    Args:
        host: the interface, a loopback one unless the port is protected.
        port: 0 takes any that is free.
        is_protected: whether it has TLS, and requires authentication.

    Raises:
        ConfigError: when the interface is not allowed, or the port is taken.
    """
    if not is_protected:
        require_loopback(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio turns Nagle's algorithm off, which costs 40 ms per answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_LISTENER_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"port {port} on {host} cannot be opened: {error.strerror}") from None
    return listener


async def serve_http(
    app: ASGIApp,
    listener: socket.socket,
    stop: asyncio.Event,
    certificate: ApiCertificate | None = None,
    connections: HttpConnections | None = None,
) -> None:
    """Serve an application on a port until ``stop`` is set; closes the port.

    Args:
        app: the application.
        listener: the port.
        stop: ends it.
        certificate: the certificate of TLS; None: without TLS.
        connections: the connections of all ports; None: those of this port alone.
    """
    account = HttpConnections() if connections is None else connections
    config = uvicorn.Config(
        _Shielded(app),
        http=account.protocols(certificate),  # type: ignore[arg-type]  # uvicorn only calls it
        headers=[header for header in SECURITY_HEADERS if header not in _UNLESS_GIVEN],
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        backlog=_LISTENER_BACKLOG,  # connections that are accepted before any of them has its slot
        proxy_headers=False,  # or every client on this machine could claim another address
        timeout_graceful_shutdown=_GRACE_S,
    )
    await serve_until(stop, config, listener, account.shut)


_NOT_OF_ALL = ("Content-Security-Policy", "Cross-Origin-Resource-Policy")


class _Shielded:
    """ASGI application that adds the strictest policies to answers that have none of their own, as pages do."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope."""

        async def shielded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _UNLESS_GIVEN:
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, shielded)


_UNLESS_GIVEN = tuple(header for header in SECURITY_HEADERS if header[0] in _NOT_OF_ALL)

_log = logging.getLogger(__name__)

_NAME = "api"
_RENEW_EVERY_S = 3600.0

ApiAuth = Literal["token", "open", "required"]
"""``token``: an installation of one person, whose token is in the data directory; ``open``: no authentication;
``required``: tenants with accounts, from other machines too."""


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Settings of the API's ports.

    Attributes:
        host: the loopback interface that is served without TLS.
        port: its port; 0 takes any that is free.
        auth: the mode of authentication.
        tls_host: the interface that is served with TLS; None: none is.
        tls_port: its port; 0 takes any that is free.
        names: the names of this machine, for the certificate, beside those found out.
        served_names: in lower case, by which clients come, beside those of this machine and its certificate.
        oidc: an OpenID provider whose tokens are accepted; None: there is none.
        certificate: the operator's own with its key; None: one issued by the platform's authority.
        session_idle_s: seconds without a request after which a browser's session ends; None: as long as is customary.
        session_life_s: seconds after which it ends in any case; None: as long as is customary.
        proxy_from: the networks of load balancers that tell who their clients are.
        web_origins: origins of web pages that may use the device registry; ``*`` is all.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    auth: ApiAuth = "token"
    tls_host: str | None = None
    tls_port: int = 8443
    names: tuple[str, ...] = ()
    served_names: frozenset[str] = frozenset()
    oidc: OidcSettings | None = None
    certificate: tuple[Path, Path] | None = None
    session_idle_s: float | None = None
    session_life_s: float | None = None
    proxy_from: tuple[Network, ...] = ()
    web_origins: tuple[str, ...] = ()


@dataclass(slots=True)
class Listeners:
    """The open ports of the API.

    Attributes:
        authenticator: the authenticator of requests.
        urls: the URLs of the API, the ones without TLS first.
        names: accepted in Host headers, in lower case, beside those of the certificate.
        connections: the connections of all ports.
    """

    authenticator: Authenticator
    urls: list[str]
    names: frozenset[str]
    _plain: socket.socket
    _protected: tuple[socket.socket, ApiCertificate] | None
    _renewal: _CertificateRenewal | None = None
    connections: HttpConnections = field(default_factory=HttpConnections)

    def is_own_name(self, host: str) -> bool:
        """Return true if a host, in lower case, is a name of the API."""
        return host in self.names or (self._protected is not None and self._protected[1].covers(host))

    async def serve(self, app: ASGIApp, stop: asyncio.Event) -> None:
        """Serve the application on all ports until ``stop`` is set."""
        async with asyncio.TaskGroup() as tasks:
            background = []
            serving = [tasks.create_task(serve_http(app, self._plain, stop, None, self.connections))]
            if self._protected is not None:
                listener, certificate = self._protected
                secured = serve_http(app, listener, stop, certificate, self.connections)
                serving.append(tasks.create_task(secured))
                background.append(tasks.create_task(certificate.watch(), name="the API's certificate"))
            if self._renewal is not None:
                background.append(tasks.create_task(self._renewal.run(), name="renew the API's certificate"))
            try:
                await asyncio.gather(*serving)
            finally:
                for task in background:
                    task.cancel()
                await self.authenticator.close()


@contextmanager
def open_listeners(settings: ListenerSettings, layout: Layout) -> Iterator[Listeners]:
    """Open the ports for the duration of the block.

    Args:
        settings: the settings of the operator.
        layout: the layout of the data directory, with accounts and certificates.

    Raises:
        ConfigError: when a port cannot be opened, or other machines could use it without authentication.
    """
    is_remote = settings.tls_host is not None and not is_loopback(settings.tls_host)
    if is_remote and settings.auth != "required":
        raise ConfigError(
            f"the API on {settings.tls_host} can be reached from other machines: add --api-auth required"
        )
    with ExitStack() as stack:
        check_database(layout.accounts)
        accounts = stack.enter_context(Accounts(layout.accounts, now=time.time))
        if is_remote and not accounts.all():
            raise ConfigError(
                f"nobody could use the API on {settings.tls_host}, because there are no accounts: add one first, "
                "such as by `enmasse account add NAME --admin`"
            )
        plain = stack.enter_context(open_listener(settings.host, settings.port))
        urls, protected, renewal = [_url("http", plain)], None, None
        if settings.tls_host is not None:
            paths = settings.certificate
            authority = layout.tls / "authority" / "ca.crt"
            if paths is None:
                renewal = _CertificateRenewal(layout, settings)
                renewal.renew()
                paths = layout.api_tls / f"{_NAME}.crt", layout.api_tls / f"{_NAME}.key"
            else:
                Authority(layout.tls).certificate()  # it issues client certificates in any case
            certificate = ApiCertificate(*paths, authority)
            listener = stack.enter_context(open_listener(settings.tls_host, settings.tls_port, is_protected=True))
            protected = listener, certificate
            urls.append(_url("https", listener))
        operator, pipelines = keep_secret(layout.operator_token, new_secret, _log.warning), new_secret()
        replace_file(layout.pipelines_token, pipelines.encode())
        verifier = None
        if settings.oidc is not None:
            verifier = OidcTokens(settings.oidc, wall=time.time, clock=time.monotonic)
        customary = REMOTE if is_remote else LOCAL
        authenticator = Authenticator(
            accounts,
            is_required=settings.auth != "open",
            is_local=settings.auth != "required",
            operator=operator,
            pipelines=pipelines,
            verifier=verifier,
            lifetime=Lifetime(
                settings.session_idle_s or customary.idle_s, settings.session_life_s or customary.whole_s
            ),
        )
        names = settings.served_names.union(name.lower() for name in settings.names)
        connections = HttpConnections(proxy_from=settings.proxy_from)
        yield Listeners(authenticator, urls, names, plain, protected, renewal, connections)


class _CertificateRenewal:
    """Renews the API's certificate before it expires."""

    def __init__(self, layout: Layout, settings: ListenerSettings) -> None:
        self._layout = layout
        own = socket.gethostname()
        assert settings.tls_host is not None
        is_any = settings.tls_host in ("0.0.0.0", "::")  # noqa: S104  # compared, not bound
        hosts = [
            *settings.names,
            *([] if is_any else [settings.tls_host]),
            "localhost",
            "127.0.0.1",
            "::1",
            *([own] if own.isascii() and own else []),
        ]
        self._hosts = tuple(dict.fromkeys(hosts))

    def renew(self) -> None:
        """Issue the certificate if there is none, or a third of its lifetime is left."""
        Authority(self._layout.tls).keep_server_certificate(_NAME, self._hosts, self._layout.api_tls)

    async def run(self) -> None:
        """Check once an hour, until cancelled."""
        while True:
            await asyncio.sleep(_RENEW_EVERY_S)
            try:
                self.renew()
            except ConfigError as error:
                _log.error("the API's certificate cannot be renewed: %s", error)


def _url(scheme: str, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
