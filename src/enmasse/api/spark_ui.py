"""Spark's pages of running pipelines, behind the API's login.

Whatever a page holds is the tenant's: column names, SQL, or what their Python answers in Spark's place. So no page
may act with the login of who looks at it:

1. A page has no origin (Content-Security-Policy ``sandbox``): the console's cookie, storage and answers are not its
   own, and its scripts reach nothing but these pages.
2. As it cannot come with the cookie, its address has a ticket that nobody guesses. Who may see the pages of a
   pipeline gets one, and it is worth as much as their login: when that ends or the right is gone, so is the ticket.
3. Only GET, and OPTIONS with which a browser asks whether it may.
"""

from __future__ import annotations

import secrets
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from enmasse.api.access.authorization import SPARK_PAGES
from enmasse.api.kube.requests import place
from enmasse.api.kube.status import RequestError
from enmasse.identity.rbac import AccessRequest
from enmasse.model.schema.kinds import PIPELINE
from enmasse.net.http_server import has_dot_segments, unless_gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    import httpx
    from starlette.types import Scope

    from enmasse.api.access.authentication import Authenticator
    from enmasse.api.pipelines import PipelineHost
    from enmasse.control.access.rights import Rights
    from enmasse.control.store.registry import Registry
    from enmasse.identity.rbac import Requester

T = TypeVar("T")

IDLE_S: Final = 1800.0
LONGEST_S: Final = 12 * 3600.0
MAX_TICKETS: Final = 20
"""Of one requester: nobody's looking ends what others look at."""
MAX_HTML_BYTES: Final = 16 << 20
"""A page of HTML is changed as a whole; Spark's have some hundred kilobytes."""

_PROOFS: Final = (b"authorization", b"cookie")
_NO_TICKET: Final = "this address of Spark's pages is no longer valid: open them again with `enmasse pipeline ui`"
_STORAGE: Final = (
    b"<script>for(const n of['localStorage','sessionStorage']){const m=new Map;Object.defineProperty(window,n,{"
    b"value:{getItem:k=>m.has(k)?m.get(k):null,setItem:(k,v)=>{m.set(k,String(v))},removeItem:k=>{m.delete(k)},"
    b"clear:()=>m.clear()}})}</script>"
)
"""A page without an origin has no storage, and Spark's scripts end where they ask for it."""


@dataclass(slots=True)
class _Ticket:
    requester: Requester
    scope: Scope
    access: AccessRequest
    began_at: float
    used_at: float


class Tickets:
    """The tickets that are valid.

    Args:
        authenticator: the authenticator of requests.
        rights: decides by the stored roles.
        now: returns seconds that only grow.
    """

    def __init__(
        self, authenticator: Authenticator, rights: Rights, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._authenticator = authenticator
        self._rights = rights
        self._now = now
        self._tickets: dict[str, _Ticket] = {}

    def give(self, request: Request, access: AccessRequest) -> str:
        """Return a new ticket for who asks.

        Args:
            request: the request that has been authorized.
            access: the access that the ticket gives.
        """
        now = self._now()
        valid = {key: item for key, item in self._tickets.items() if not _is_over(item, now)}
        requester = request.state.requester
        own = [key for key, item in valid.items() if item.requester.name == requester.name]
        for key in sorted(own, key=lambda key: valid[key].used_at)[: len(own) + 1 - MAX_TICKETS]:
            del valid[key]
        proofs = [(key, value) for key, value in request.scope["headers"] if key in _PROOFS]
        state = {"peer": peer} if (peer := getattr(request.state, "peer", None)) is not None else {}
        scope = {"type": "http", "path": request.scope["path"], "headers": proofs, "state": state}
        ticket = secrets.token_urlsafe(32)
        self._tickets = {**valid, ticket: _Ticket(requester, scope, access, now, now)}
        return ticket

    async def check(self, ticket: str) -> AccessRequest:
        """Return what a ticket is for.

        Raises:
            RequestError: 404; it is not valid, or not any more.
        """
        found, now = self._tickets.get(ticket), self._now()
        if found is None or _is_over(found, now) or not await self._is_allowed(found):
            self._tickets.pop(ticket, None)
            raise RequestError(404, _NO_TICKET)
        found.used_at = now
        return found.access

    async def _is_allowed(self, ticket: _Ticket) -> bool:
        try:
            requester = await self._authenticator.requester_of(ticket.scope, is_again=True)
        except RequestError:
            return False
        return requester.name == ticket.requester.name and self._rights.allows(requester, ticket.access)


def _is_over(ticket: _Ticket, now: float) -> bool:
    return now - ticket.used_at > IDLE_S or now - ticket.began_at > LONGEST_S


def spark_ui_routes(registry: Registry, host: PipelineHost, tickets: Tickets) -> list[Route]:
    """Return the routes.

    Args:
        registry: the registry of pipelines.
        host: the client of the pipeline host.
        tickets: for those who may see the pages.
    """

    async def lead(request: Request) -> Response:
        """Lead to Spark's pages of the session of a pipeline."""
        namespace, name = place(request)
        registry.store.get(PIPELINE.name, namespace, name)
        async with host.spark_page(namespace, name, "", {}):
            pass  # so that a problem is answered here, with the login, and not after the redirect
        access = AccessRequest("get", PIPELINE.group, f"{PIPELINE.plural}/ui", namespace, name)
        target = f"{SPARK_PAGES}{tickets.give(request, access)}/jobs/"
        return RedirectResponse(target, 303, headers={"Cache-Control": "no-store"})

    async def ask(request: Request) -> Response:
        ticket: str = request.path_params["ticket"]
        await tickets.check(ticket)
        return Response(status_code=204, headers=_CROSSING | {"Access-Control-Allow-Headers": "x-requested-with"})

    async def page(request: Request) -> Response:
        ticket: str = request.path_params["ticket"]
        access = await tickets.check(ticket)
        base = f"{SPARK_PAGES}{ticket}"
        # As it was written: Spark decodes it.
        written = request.scope["raw_path"].decode("latin-1")
        path = written.removeprefix(f"{base}/")
        if path == written or has_dot_segments(path):
            raise RequestError(
                404, "Spark has no page with such a path: it has . or .. in it, or is written in codes"
            )
        query = request.scope["query_string"].decode("latin-1")
        headers = {"x-forwarded-context": base, "accept": request.headers.get("accept", "*/*")}
        stack = AsyncExitStack()
        path += f"?{query}" if query else ""
        asking = stack.enter_async_context(host.spark_page(access.namespace, access.name, path, headers))
        answer = await _unless_left(request, asking)
        given = _headers(request, base)
        kind = answer.headers.get("content-type", "application/octet-stream")
        if location := answer.headers.get("location"):
            async with stack:
                return RedirectResponse(_within(base, location), 302, headers=given)
        if not kind.startswith("text/html"):
            return StreamingResponse(_parts(answer, stack), answer.status_code, given, media_type=kind)
        async with stack:
            content = await _unless_left(request, _whole(answer))
        shown = content.replace(b"<head>", b"<head>" + _STORAGE, 1)
        return Response(shown, answer.status_code, given, media_type=kind)

    return [
        Route(f"/apis/{PIPELINE.api_version}/namespaces/{{namespace}}/{PIPELINE.plural}/{{name}}/ui", lead),
        Route(f"{SPARK_PAGES}{{ticket}}/{{path:path}}", ask, methods=["OPTIONS"]),
        Route(f"{SPARK_PAGES}{{ticket}}/{{path:path}}", page),
    ]


_CROSSING: Final = {
    # Without an origin a page crosses origins even to its own files. Who asks here has the ticket.
    "Access-Control-Allow-Origin": "*",
    "Cross-Origin-Resource-Policy": "cross-origin",
}


def _headers(request: Request, base: str) -> dict[str, str]:
    own = f"{request.url.scheme}://{request.url.netloc}{base}/"
    policy = (
        f"sandbox allow-scripts allow-forms; default-src 'none'; script-src {own} 'unsafe-inline'; "
        f"style-src {own} 'unsafe-inline'; img-src {own} data:; font-src {own} data:; connect-src {own}; "
        f"form-action {own}; frame-ancestors 'none'; base-uri 'none'"
    )
    return {**_CROSSING, "Content-Security-Policy": policy, "Cache-Control": "no-store"}


def _within(base: str, location: str) -> str:
    """Return where one of Spark's redirections leads to, which does not leave the pages."""
    try:
        found = urlsplit(location)
    except ValueError:
        return f"{base}/"
    path = "/" + found.path.removeprefix(base).lstrip("/")
    if has_dot_segments(path):
        return f"{base}/"
    return base + path + (f"?{found.query}" if found.query else "")


async def _unless_left(request: Request, work: Coroutine[Any, Any, T]) -> T:
    found = await unless_gone(request.receive, work)
    if found is None:
        raise ClientDisconnect
    return found


async def _whole(answer: httpx.Response) -> bytes:
    content = bytearray()
    async for part in answer.aiter_raw():
        content += part
        if len(content) > MAX_HTML_BYTES:
            raise RequestError(502, f"the page has more than {MAX_HTML_BYTES >> 20} MiB")
    return bytes(content)


async def _parts(answer: httpx.Response, stack: AsyncExitStack) -> AsyncIterator[bytes]:
    async with stack:
        async for part in answer.aiter_raw():
            yield part
