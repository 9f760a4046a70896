"""Authorization of requests, and reviews of one's own access (``kubectl auth can-i`` and ``kubectl auth whoami``).

Rules:
1. The access is derived from method and path alone, as in Kubernetes; unknown paths are authorized as paths, which
   only administrators have access to.
2. The decision comes before any lookup: a refusal does not reveal what exists.
3. A watch, and a log that is followed, ends as soon as its owner is no longer allowed to have it: before its next
   part, or within ``_AGAIN_S``. So is any other answer cut off that takes longer than that.
4. In a session of a browser, whose cookie may be stolen, what gives access that outlasts it asks for a fresh proof.
5. An answer to a request with a token that ends soon says so.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from enmasse.api.access.sessions import outlasts_session, proof_required, refusal_of
from enmasse.api.kube.protobuf import PROTOBUF, read_review
from enmasse.api.kube.requests import OBJECTS, media_type, read_body
from enmasse.api.kube.status import RequestError, answer, answer_error
from enmasse.identity.rbac import ANONYMOUS, AccessRequest, Rule, describe_refusal
from enmasse.net.origins import SAFE_METHODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from enmasse.api.access.authentication import Authenticator
    from enmasse.control.access.accounts import Token
    from enmasse.control.access.rights import Rights
    from enmasse.identity.rbac import Requester

_HEALTH_PATHS = frozenset({"/healthz", "/livez", "/readyz"})

NODE_READINESS = "/readyz/nodes/"
"""The readiness of one node; its name follows."""

_PUBLIC = _HEALTH_PATHS | frozenset(
    {
        "/login",
        "/login/proof",
        "/login/oidc",
        "/login/oidc/callback",
        "/logout",
        "/console",
    }
)

SPARK_PAGES = "/spark/"
"""Spark's pages lie below it and a ticket, which is the proof."""


def is_of_health(path: str) -> bool:
    """Return whether a path is for probes, such as those of load balancers."""
    return path in _HEALTH_PATHS or path.startswith(NODE_READINESS)


def is_public(path: str) -> bool:
    """Return whether a path needs no authentication: it holds nothing secret, or is its own proof."""
    return path in _PUBLIC or path.startswith(("/console/", SPARK_PAGES, NODE_READINESS))


_UNAUTHORIZED = (
    "Unauthorized: log in with `enmasse login`, and with `enmasse login --kubeconfig` for kubectl, or send a token "
    "as `Authorization: Bearer`; the operator's is in the data directory, in control/operator.token"
)

_AGAIN_S = 0.5
_END_S = 5.0  # in which a client takes the end of its stream

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_OF_NAMESPACE = ("status", "finalize")
_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})


class Access:
    """ASGI middleware that authenticates and authorizes each request.

    It puts ``requester`` and ``rights`` into the state of a request, for routes that check more.

    Args:
        app: the wrapped application.
        authenticator: the authenticator of requests.
        rights: decides by the stored roles.
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
        access = _access_request_of_scope(scope)
        try:
            requester = await self._authenticator.requester_of(scope)
        except RequestError as error:
            await self._refuse(error, scope, receive, send)
            return
        scope.setdefault("state", {}).update(requester=requester, rights=self._rights)
        if not is_public(access.path) and not self._rights.allows(requester, access):
            if requester is ANONYMOUS:
                unknown = RequestError(401, _UNAUTHORIZED)
                await self._refuse(unknown, scope, receive, send)
            else:
                await answer(403, describe_refusal(requester, access))(scope, receive, send)
            return
        is_lasting = outlasts_session(access)
        if is_lasting or scope["method"] not in SAFE_METHODS:
            unproved = self._authenticator.unproved_session_of(scope)
            if unproved is not None and is_lasting:
                await answer_error(proof_required(unproved))(scope, receive, send)
                return
            if unproved is not None:  # more may turn out to outlast the session once the body has been read
                scope["state"]["requester"] = replace(requester, unproved=refusal_of(unproved))
        send = _warning(scope["state"].get("token"), send)
        if is_public(access.path):
            await self._app(scope, receive, send)
        elif access.verb == "watch" or _is_followed(scope):
            await self._stream(access, requester, scope, receive, send)
        else:
            await self._serve(access, requester, scope, receive, send)

    async def _refuse(self, error: RequestError, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = answer_error(error)
        if error.code == 401:
            scheme = "Basic" if scope["path"].startswith("/osbapi/") else "Bearer"
            refusal.headers["WWW-Authenticate"] = f'{scheme} realm="enmasse"'
        if error.code == 429:
            refusal.headers["Retry-After"] = "6"
        await refusal(scope, receive, send)

    async def _serve(
        self, access: AccessRequest, requester: Requester, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve a request; an answer in parts that takes long is authorized again now and then, and cut off."""
        clock = asyncio.get_running_loop().time
        checked_at: float | None = None
        is_cut = False

        async def checked(message: Message) -> None:
            nonlocal checked_at, is_cut
            if checked_at is None:
                checked_at = clock()
            elif clock() - checked_at >= _AGAIN_S:
                checked_at = clock()
                if not await self._is_still_allowed(access, requester, scope):
                    is_cut = True
                    scope["state"].get("cut", _nothing)()  # so that the client does not take it for whole
                    raise OSError("no longer allowed")
            await send(message)

        try:
            await self._app(scope, receive, checked)
        except Exception:
            if not is_cut:
                raise

    async def _stream(
        self, access: AccessRequest, requester: Requester, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve a stream, and authorize it again before each part, and now and then while it has nothing to tell."""
        has_begun = has_ended = False

        async def is_over() -> bool:
            nonlocal has_ended
            if not has_ended and has_begun and not await self._is_still_allowed(access, requester, scope):
                has_ended = True
            return has_ended

        async def checked(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.body" and await is_over():
                raise OSError("no longer allowed")  # as if the client had disconnected
            await send(message)
            has_begun = True

        serving = asyncio.ensure_future(self._app(scope, receive, checked))
        try:
            while not (await asyncio.wait({serving}, timeout=_AGAIN_S))[0]:
                if await is_over():
                    break
        finally:
            if not serving.done():
                serving.cancel()
                await asyncio.wait({serving})
        if not has_ended:
            await serving  # for what it has raised
            return
        with suppress(TimeoutError):  # then the server closes the connection
            async with asyncio.timeout(_END_S):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _is_still_allowed(self, access: AccessRequest, requester: Requester, scope: Scope) -> bool:
        try:
            now = await self._authenticator.requester_of(scope, is_again=True)
        except RequestError:
            return False
        return now.name == requester.name and self._rights.allows(now, access)


def _warning(token: Token | None, send: Send) -> Send:
    """Return a function that sends an answer, with a warning if the token of the request ends soon."""
    if token is None or not token.ends_soon(time.time()):
        return send
    text = (
        f'299 - "the token {token.id} of account {token.account} ends at {token.to_dict()["expires"]}: make another"'
    )

    async def warn(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"warning", text.encode("ascii"))]}
        await send(message)

    return warn


def _nothing() -> None:
    """Do nothing, where nothing can be cut."""


def _is_followed(scope: Scope) -> bool:
    """Return whether a request asks for what comes from now on, too, as of a log."""
    query = scope.get("query_string", b"")
    return b"follow" in query and any(
        key == "follow" and value.lower() in _TRUE for key, value in parse_qsl(query.decode("latin-1"))
    )


def access_request_of(method: str, path: str, *, is_watch: bool = False, is_detailed: bool = False) -> AccessRequest:
    """Return the access that a request needs.

    Args:
        method: the method of HTTP.
        path: decoded.
        is_watch: whether it is a watch.
        is_detailed: whether it asks for the state of nodes in ``/readyz``.
    """
    if path == "/readyz" and is_detailed:
        return AccessRequest("get", path="/readyz/details")
    words = path[1:].split("/")
    core = len(words) > 2 and words[0] == "api"
    named = len(words) > 3 and words[0] == "apis"
    if not (core or named) or "" in words:
        return AccessRequest("get" if method == "HEAD" else method.lower(), path=path)
    group, rest = ("", words[2:]) if core else (words[1], words[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        # A namespace object counts as in itself, so that a role bound in it applies.
        is_itself = len(rest) == 2 or (core and len(rest) == 3 and rest[2] in _OF_NAMESPACE)
        rest = rest if is_itself else rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    resource = "/".join((rest[0], *rest[2:3]))
    return AccessRequest(_verb(method, is_watch, bool(name)), group, resource, namespace, name)


def _verb(method: str, is_watch: bool, is_named: bool) -> str:
    if method in ("GET", "HEAD"):
        return "watch" if is_watch else "get" if is_named else "list"
    if method == "DELETE":
        return "delete" if is_named else "deletecollection"
    return _VERBS.get(method, method.lower())


def _access_request_of_scope(scope: Scope) -> AccessRequest:
    query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    accept = next((value for key, value in scope["headers"] if key == b"accept"), b"")
    return access_request_of(
        scope["method"],
        scope["path"],
        is_watch=any(key == "watch" and value.lower() in _TRUE for key, value in query),
        is_detailed=b"application/json" in accept or any(key == "verbose" for key, _ in query),
    )


Document = dict[str, Any]

AUTHORIZATION = "authorization.k8s.io/v1"
AUTHENTICATION = "authentication.k8s.io/v1"

_ALL = (Rule(("*",), ("*",), ("*",)), Rule(("*",), paths=("*",)))


def review_routes(rights: Rights) -> list[Route]:
    """Return the routes.

    Args:
        rights: decides by the stored roles.
    """

    def serve(group_version: str, kind: str, review: Callable[[Requester, Document], Document]) -> Route:
        async def endpoint(request: Request) -> Response:
            if media_type(request) == PROTOBUF:
                body = read_review(await request.body(), kind)
            else:
                body = await read_body(request, OBJECTS)
            spec = body.get("spec") or {}
            if body.get("kind", kind) != kind or not isinstance(spec, dict):
                raise RequestError(400, f"expected a {kind} with a map as spec")
            found = {
                "kind": kind,
                "apiVersion": group_version,
                "metadata": {},
                "spec": spec,
                "status": review(request.state.requester, spec),
            }
            return JSONResponse(found, status_code=201)

        return Route(f"/apis/{group_version}/{kind.lower()}s", endpoint, methods=["POST"])

    def may(requester: Requester, spec: Document) -> Document:
        return {"allowed": rights.allows(requester, _ask(spec))}

    def all_rules(requester: Requester, spec: Document) -> Document:
        namespace = _text(spec, "namespace")
        rules = _ALL if requester.is_admin else rights.rules(requester, namespace)
        return {
            "resourceRules": [
                {
                    "verbs": list(rule.verbs),
                    "apiGroups": list(rule.groups),
                    "resources": list(rule.resources),
                    **({"resourceNames": list(rule.names)} if rule.names else {}),
                }
                for rule in rules
                if not rule.paths
            ],
            "nonResourceRules": [
                {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.paths)} for rule in rules if rule.paths
            ],
            "incomplete": False,
        }

    def who(requester: Requester, _spec: Document) -> Document:
        return {"userInfo": {"username": requester.name, "groups": list(requester.groups)}}

    return [
        serve(AUTHORIZATION, "SelfSubjectAccessReview", may),
        serve(AUTHORIZATION, "SelfSubjectRulesReview", all_rules),
        serve(AUTHENTICATION, "SelfSubjectReview", who),
    ]


def _ask(spec: Document) -> AccessRequest:
    of_resource, of_path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if isinstance(of_path, dict) and of_resource is None:
        return AccessRequest(_text(of_path, "verb"), path=_text(of_path, "path"))
    if not isinstance(of_resource, dict) or of_path is not None:
        raise RequestError(400, "spec: expected either resourceAttributes or nonResourceAttributes")
    resource, sub = _text(of_resource, "resource"), _text(of_resource, "subresource")
    return AccessRequest(
        _text(of_resource, "verb"),
        _text(of_resource, "group"),
        f"{resource}/{sub}" if sub else resource,
        _text(of_resource, "namespace"),
        _text(of_resource, "name"),
    )


def _text(document: Document, field: str) -> str:
    value = document.get(field) or ""
    if not isinstance(value, str):
        raise RequestError(400, f"{field}: expected a string")
    return value
