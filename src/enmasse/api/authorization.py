"""Whether whoever sends a request may do what it asks for.

Rules:
1. What a request asks for is read from its method and path alone, as Kubernetes does; a path that is nobody's
   is asked for as a path, which only administrators may do.
2. The decision comes before anything is looked up: a refusal tells nothing of what there is.
3. A watch ends as soon as its owner may no longer have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from enmasse.api.status import RequestError, answer, answer_error
from enmasse.identity.rbac import Ask, describe_refusal
from enmasse.identity.requester import ANONYMOUS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from enmasse.api.authentication import Authenticator
    from enmasse.control.rights import Rights
    from enmasse.identity.requester import Requester

__all__ = ["Access", "ask_of"]

PUBLIC = frozenset({"/healthz", "/livez", "/readyz", "/login", "/logout"})
"""What everybody may ask for who reaches the port; what it says is nobody's secret."""

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_OF_NAMESPACE = ("status", "finalize")
_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})


class Access:
    """The layer of the application that knows who asks, and says no.

    It puts ``requester`` and ``rights`` into the state of a request, for routes that must look closer.

    Args:
        app: what is behind it.
        authenticator: knows who asks.
        rights: knows what they may do.
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator, rights: Rights) -> None:
        self._app = app
        self._authenticator = authenticator
        self._rights = rights

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        ask = _ask_of_scope(scope)
        try:
            requester = await self._authenticator.requester_of(scope)
        except RequestError as error:
            await self._refuse(error, scope, receive, send)
            return
        scope.setdefault("state", {}).update(requester=requester, rights=self._rights)
        if ask.path not in PUBLIC and not self._rights.allows(requester, ask):
            if requester is ANONYMOUS:
                unknown = RequestError(401, "Unauthorized: log in with `enmasse login`, or send a token")
                await self._refuse(unknown, scope, receive, send)
            else:
                await answer(403, describe_refusal(requester, ask))(scope, receive, send)
            return
        if ask.verb == "watch" and not requester.is_admin:
            await self._watch(ask, requester, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _refuse(self, error: RequestError, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = answer_error(error)
        if error.code == 401:
            scheme = "Basic" if scope["path"].startswith("/osbapi/") else "Bearer"
            refusal.headers["WWW-Authenticate"] = f'{scheme} realm="enmasse"'
        if error.code == 429:
            refusal.headers["Retry-After"] = "6"
        await refusal(scope, receive, send)

    async def _watch(self, ask: Ask, requester: Requester, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a stream, and look again before each part of it."""
        has_ended = False

        async def looked_at(message: Message) -> None:
            nonlocal has_ended
            if message["type"] == "http.response.body" and not await self._may_still(ask, requester, scope):
                has_ended = True
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                raise OSError("no longer allowed")  # as if the client had gone
            await send(message)

        try:
            await self._app(scope, receive, looked_at)
        except Exception:
            if not has_ended:
                raise

    async def _may_still(self, ask: Ask, requester: Requester, scope: Scope) -> bool:
        try:
            now = await self._authenticator.requester_of(scope)
        except RequestError:
            return False
        return now.name == requester.name and self._rights.allows(now, ask)


def ask_of(method: str, path: str, *, is_watch: bool = False, is_detailed: bool = False) -> Ask:
    """Return what a request asks for.

    Args:
        method: of HTTP.
        path: decoded.
        is_watch: whether it asks for a stream of changes.
        is_detailed: whether it asks how nodes are, beside whether all is well.
    """
    if path == "/readyz" and is_detailed:
        return Ask("get", path="/readyz/details")
    words = path[1:].split("/")
    core = len(words) > 2 and words[0] == "api"
    named = len(words) > 3 and words[0] == "apis"
    if not (core or named) or "" in words:
        return Ask("get" if method == "HEAD" else method.lower(), path=path)
    group, rest = ("", words[2:]) if core else (words[1], words[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        # A namespace itself lies in itself, so that a role bound in it counts.
        is_itself = len(rest) == 2 or (core and len(rest) == 3 and rest[2] in _OF_NAMESPACE)
        rest = rest if is_itself else rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    resource = "/".join((rest[0], *rest[2:3]))
    return Ask(_verb(method, is_watch, bool(name)), group, resource, namespace, name)


def _verb(method: str, is_watch: bool, is_named: bool) -> str:
    if method in ("GET", "HEAD"):
        return "watch" if is_watch else "get" if is_named else "list"
    if method == "DELETE":
        return "delete" if is_named else "deletecollection"
    return _VERBS.get(method, method.lower())


def _ask_of_scope(scope: Scope) -> Ask:
    query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    accept = next((value for key, value in scope["headers"] if key == b"accept"), b"")
    return ask_of(
        scope["method"],
        scope["path"],
        is_watch=any(key == "watch" and value.lower() in _TRUE for key, value in query),
        is_detailed=b"application/json" in accept or any(key == "verbose" for key, _ in query),
    )
