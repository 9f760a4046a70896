"""Checks of every request before authentication: Host header, origin, and size.

Rules:
1. The Host header is valid, and an address, ``localhost`` or one of the API's own names: this refuses web pages whose
   own name resolves to this machine (DNS rebinding). On a public address, with accounts, any name is accepted.
2. A web page of another origin can change nothing, whatever it sends, and can open no WebSocket. Where the operator
   allows its origin (``--web-origin``), it may use the device registry, as CORS has it [Fetch 3.2], with a proof of
   its own in each request: cookies count for nothing there.
3. A load balancer's own connection, and that of a client in the clear (``HttpProtocol``), is served health alone.
4. Bodies are bounded, whatever their announced length; more so where they are read before authentication.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from starlette.datastructures import MutableHeaders
from starlette.responses import Response

from enmasse.api.access.authorization import is_of_health, is_public
from enmasse.api.kube.status import RequestError, answer, answer_error
from enmasse.net.origins import SAFE_METHODS, host_of, host_refusal, page_host_of, scheme_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 1024 * 1024
"""An object with all fields set has a few kilobytes."""

MAX_MODEL_BYTES = 8 * 1024 * 1024
"""The file of a model that is imported; it is read once its sender is known and may do so."""

MAX_PUBLIC_BODY_BYTES = 16 * 1024
"""A login is a name and a password."""

_OF_MODEL = re.compile(r"/apis/[^/]+/[^/]+/namespaces/[^/]+/addressspaces/[^/]+/models/[^/]+/import")
_SHARED = "/registry/"
"""The paths that pages of other origins may use, if the operator allows them."""

_PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "DELETE, GET, HEAD, POST, PUT",
    "Access-Control-Allow-Headers": "*, Authorization",
    "Access-Control-Max-Age": "600",
}

_FROM_ELSEWHERE = frozenset({"cross-site", "same-site"})


class Guard:
    """ASGI middleware that refuses foreign hosts and origins, and large bodies.

    Args:
        app: the wrapped application.
        is_local: whether only this machine is served.
        is_own_name: returns true if a host, in lower case, is a name of the API.
        origins: origins of web pages that may use the device registry; ``*`` is all.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        is_local: bool,
        is_own_name: Callable[[str], bool],
        origins: Collection[str] = (),
    ) -> None:
        self._app = app
        self._origins = origins
        self._is_local = is_local
        self._is_own_name = is_own_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        origin = self._allowed_origin(scope)
        if origin is not None:
            scope, send = _without_cookies(scope), _allowing(send, origin)
        if (why := self._refusal(scope, origin)) is not None:
            await answer(403, why)(scope, receive, send)
            return
        if origin is not None and scope["method"] == "OPTIONS":
            await Response(status_code=204, headers=_PREFLIGHT)(scope, receive, send)
            return
        most = _most_bytes(scope["path"])
        if _is_too_long((_values(scope, b"content-length") or ["0"])[0], most):
            await answer_error(_too_large(most))(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > most:
                raise _too_large(most)
            return message

        await self._app(scope, counted, send)

    def _allowed_origin(self, scope: Scope) -> str | None:
        """Return the origin of the page that a request is of, if it may use what that is for; else None."""
        origins = _values(scope, b"origin")
        if not self._origins or len(origins) != 1 or not scope["path"].startswith(_SHARED):
            return None
        return origins[0] if "*" in self._origins or origins[0] in self._origins else None

    def _refusal(self, scope: Scope, allowed: str | None) -> str | None:
        """Return why a request is refused, None if it is not."""
        unserved: str | None = (scope.get("state") or {}).get("refusal")
        if unserved is not None:
            return None if is_of_health(scope["path"]) else unserved
        hosts = _values(scope, b"host")
        # Several are none, as h11 has it.
        host = ", ".join(hosts) if hosts else None
        refusal = host_refusal(host, scope.get("server"), self._is_own_name, is_open=self._is_local)
        if refusal is not None:
            return refusal
        if allowed is not None:
            return None
        if scope["method"] in SAFE_METHODS and not _values(scope, b"upgrade"):
            return None
        origins = _values(scope, b"origin")
        # A proxy may have terminated TLS: the scheme of the page says which port is meant without one.
        if len(origins) > 1 or any(not _is_page_of(it, host) for it in origins):
            return f"the request is of a web page of '{', '.join(origins)[:100]}', which may change nothing here"
        if not _FROM_ELSEWHERE.isdisjoint(_values(scope, b"sec-fetch-site")):
            return "the request is of a web page of another site, which may change nothing here"
        return None


def _without_cookies(scope: Scope) -> Scope:
    return {**scope, "headers": [header for header in scope["headers"] if header[0] != b"cookie"]}


def _allowing(send: Send, origin: str) -> Send:
    """Return the function that sends an answer with the headers by which a page of an origin may read it."""

    async def send_allowed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = "ETag, Location, Retry-After"
            headers.add_vary_header("Origin")
        await send(message)

    return send_allowed


def _is_page_of(origin: str, host: str | None) -> bool:
    """Return true if an Origin header is of a page of the very host that the request is for."""
    page = page_host_of(origin)
    return page is not None and host is not None and page == host_of(host, scheme_of(origin))


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _most_bytes(path: str) -> int:
    if is_public(path):
        return MAX_PUBLIC_BODY_BYTES
    return MAX_MODEL_BYTES if _OF_MODEL.fullmatch(path) else MAX_BODY_BYTES


def _too_large(most: int) -> RequestError:
    return RequestError(413, f"the body is larger than {most >> 10} KiB")


def _is_too_long(length: str, most: int) -> bool:
    return not length.isdigit() or int(length[:20]) > most
