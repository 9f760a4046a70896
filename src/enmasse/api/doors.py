"""How the API is reached, and by whom: set up from what the operator decides."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from enmasse.api.authentication import Authenticator
from enmasse.api.oidc_tokens import OidcTokens
from enmasse.api.server import open_listener, serve_http
from enmasse.api.tls import ApiCertificate
from enmasse.control.accounts import Accounts, new_secret
from enmasse.control.loopback import is_loopback
from enmasse.engines.authority import Authority
from enmasse.engines.private_files import replace_file
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fastapi import FastAPI

    from enmasse.engines.embedded.paths import Layout
    from enmasse.identity.oidc_settings import OidcSettings

__all__ = ["DoorSettings", "Doors", "open_doors"]

_log = logging.getLogger(__name__)

_NAME = "api"
_RENEW_EVERY_S = 3600.0


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """What the operator decides on the API's ports.

    Attributes:
        host: the loopback interface that is served without TLS.
        port: its port; 0 takes any that is free.
        is_auth_required: whether everybody is asked for a proof; else whoever reaches the port may do everything.
        tls_host: the interface that is served with TLS; None: none is.
        tls_port: its port; 0 takes any that is free.
        names: of this machine, for the certificate, beside those that are known.
        oidc: an OpenID provider whose tokens are good here; None: there is none.
        certificate: one of the operator's own with its key, instead of one by the platform's authority.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    is_auth_required: bool = False
    tls_host: str | None = None
    tls_port: int = 8443
    names: tuple[str, ...] = ()
    oidc: OidcSettings | None = None
    certificate: tuple[Path, Path] | None = None


@dataclass(slots=True)
class Doors:
    """The open ports of the API, and who watches them.

    Attributes:
        authenticator: knows who asks.
        urls: where the API is served, the one without TLS first.
    """

    authenticator: Authenticator
    urls: list[str]
    _plain: socket.socket
    _protected: tuple[socket.socket, ApiCertificate] | None
    _keeper: _Keeper | None = None

    async def serve(self, app: FastAPI, stop: asyncio.Event) -> None:
        """Serve the application on all ports until ``stop`` is set."""
        async with asyncio.TaskGroup() as tasks:
            background = []
            serving = [tasks.create_task(serve_http(app, self._plain, stop))]
            if self._protected is not None:
                listener, certificate = self._protected
                serving.append(tasks.create_task(serve_http(app, listener, stop, certificate)))
                background.append(tasks.create_task(certificate.watch(), name="the API's certificate"))
            if self._keeper is not None:
                background.append(tasks.create_task(self._keeper.run(), name="renew the API's certificate"))
            try:
                await asyncio.gather(*serving)
            finally:
                for task in background:
                    task.cancel()
                await self.authenticator.close()


@contextmanager
def open_doors(settings: DoorSettings, layout: Layout) -> Iterator[Doors]:
    """Open the ports for the time of the block.

    Args:
        settings: the operator's.
        layout: where accounts and certificates lie.

    Raises:
        ConfigError: when a port cannot be opened, or would be open to others without a proof.
    """
    is_far = settings.tls_host is not None and not is_loopback(settings.tls_host)
    if is_far and not settings.is_auth_required:
        raise ConfigError(f"the API on {settings.tls_host} is for everybody: add --api-auth required")
    with ExitStack() as stack:
        accounts = stack.enter_context(Accounts(layout.accounts, now=time.time))
        if is_far and not accounts.all():
            raise ConfigError(
                f"nobody could use the API on {settings.tls_host}, because there are no accounts: add one first, "
                "such as by `enmasse account add NAME --admin`"
            )
        plain = stack.enter_context(open_listener(settings.host, settings.port))
        urls, protected, keeper = [_url("http", plain)], None, None
        if settings.tls_host is not None:
            paths = settings.certificate
            authority = layout.tls / "authority" / "ca.crt"
            if paths is None:
                keeper = _Keeper(layout, settings)
                keeper.keep()
                paths = layout.api_tls / f"{_NAME}.crt", layout.api_tls / f"{_NAME}.key"
            else:
                Authority(layout.tls).certificate()  # client certificates are by it, whatever we show
            certificate = ApiCertificate(*paths, authority)
            listener = stack.enter_context(open_listener(settings.tls_host, settings.tls_port, is_protected=True))
            protected = listener, certificate
            urls.append(_url("https", listener))
        operator, pipelines = new_secret(), new_secret()
        replace_file(layout.operator_token, operator.encode())
        replace_file(layout.pipelines_token, pipelines.encode())
        verifier = None
        if settings.oidc is not None:
            verifier = OidcTokens(settings.oidc, wall=time.time, clock=time.monotonic)
        authenticator = Authenticator(
            accounts,
            is_required=settings.is_auth_required,
            operator=operator,
            pipelines=pipelines,
            verifier=verifier,
        )
        yield Doors(authenticator, urls, plain, protected, keeper)


class _Keeper:
    """Keeps the API's certificate from ending."""

    def __init__(self, layout: Layout, settings: DoorSettings) -> None:
        self._layout = layout
        own = socket.gethostname()
        assert settings.tls_host is not None
        is_any = settings.tls_host in ("0.0.0.0", "::")  # noqa: S104  # it is looked for, not bound
        hosts = [
            *settings.names,
            *([] if is_any else [settings.tls_host]),
            "localhost",
            "127.0.0.1",
            "::1",
            *([own] if own.isascii() and own else []),
        ]
        self._hosts = tuple(dict.fromkeys(hosts))

    def keep(self) -> None:
        """Make the certificate, or make it anew when a third of its life is left."""
        Authority(self._layout.tls).keep_server_certificate(_NAME, self._hosts, self._layout.api_tls)

    async def run(self) -> None:
        """Look from time to time, until cancelled."""
        while True:
            await asyncio.sleep(_RENEW_EVERY_S)
            try:
                self.keep()
            except ConfigError as error:
                _log.error("the API's certificate cannot be kept: %s", error)


def _url(scheme: str, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
