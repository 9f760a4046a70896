"""What every request must be before anyone looks at it.

Rules:
1. Where no proof is needed of who asks, the Host header names a loopback interface: a web page that had its
   own name resolved to 127.0.0.1 (DNS rebinding) is sent away. Reaching the port is all the permission there.
2. A body is small, whatever its announced length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.api.status import RequestError, answer, answer_error
from enmasse.control.loopback import is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["MAX_BODY_BYTES", "Guard"]

MAX_BODY_BYTES = 1024 * 1024
"""An object with every field used has a few kilobytes."""


class Guard:
    """The outermost layer of the application.

    Args:
        app: what is behind it.
        is_open: whether reaching the port is all the permission that is needed.
    """

    def __init__(self, app: ASGIApp, *, is_open: bool = True) -> None:
        self._app = app
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if self._is_open and not is_loopback(_without_port(host)):
            refusal = answer(
                403,
                f"the Host header names '{host}': without users only localhost and loopback addresses are served",
            )
            await refusal(scope, receive, send)
            return
        if _is_too_long(headers.get(b"content-length", "0")):
            await answer_error(_too_large())(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise _too_large()
            return message

        await self._app(scope, counted, send)


def _too_large() -> RequestError:
    return RequestError(413, f"the body is larger than {MAX_BODY_BYTES >> 20} MiB")


def _is_too_long(length: str) -> bool:
    return not length.isdigit() or int(length[:20]) > MAX_BODY_BYTES


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0] if host.count(":") == 1 else host
