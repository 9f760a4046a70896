"""Routes for login and logout, accounts and tokens.

Administrators manage accounts; users manage the tokens of their own account. Answers contain no hashes, and
the secret of a token only when it is created.
"""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from enmasse.api.access.authentication import COOKIE, LOGIN_S, SESSION_S, session_secret
from enmasse.api.kube.requests import OBJECTS, read_body
from enmasse.api.kube.status import RequestError
from enmasse.control.errors import ForbiddenError, ResourceNotFoundError
from enmasse.identity.rbac import ANONYMOUS, LOCAL_OPERATOR, Requester

if TYPE_CHECKING:
    from enmasse.api.access.authentication import Authenticator
    from enmasse.control.access.accounts import Accounts

LOGIN_COOKIE = "enmasse_login"
"""The cookie of a login under way at a provider."""

CALLBACK_PATH = "/login/oidc/callback"

ACCESS_PATH = "/apis/access.enmasse.io/v1beta1"

MAX_TOKEN_SECONDS = 10 * 366 * 86_400

_PAGE = re.compile(r"(?!.*\.\.)[\w.~/-]{0,1024}", re.ASCII)
"""A path below that of the console, which leads nowhere else."""

Document = dict[str, Any]


def account_routes(authenticator: Authenticator) -> APIRouter:
    """Return the routes.

    Args:
        authenticator: with the accounts.
    """
    router = APIRouter(tags=["access"])
    routes = _Routes(authenticator)
    accounts, tokens = f"{ACCESS_PATH}/accounts", f"{ACCESS_PATH}/tokens"
    for path, endpoint, method, summary in (
        ("/login", routes.log_in, "POST", "Begin a session with a password"),
        ("/login", routes.follow_link, "GET", "Begin a session of the operator with the token of a link"),
        ("/login/oidc", routes.go_to_provider, "GET", "Lead a browser to the identity provider"),
        (CALLBACK_PATH, routes.come_from_provider, "GET", "Begin a session of who has logged in there"),
        ("/logout", routes.log_out, "POST", "End the session"),
        ("/whoami", routes.who, "GET", "Show the requester"),
        (accounts, routes.accounts, "GET", "List accounts"),
        (accounts, routes.add_account, "POST", "Add an account"),
        (f"{accounts}/{{name}}", routes.remove_account, "DELETE", "Remove an account with its tokens"),
        (f"{accounts}/{{name}}/password", routes.set_password, "PUT", "Change the password of an account"),
        (tokens, routes.tokens, "GET", "List tokens"),
        (tokens, routes.create_token, "POST", "Create a token"),
        (f"{tokens}/{{name}}", routes.revoke_token, "DELETE", "Revoke a token"),
    ):
        router.add_api_route(
            path,
            endpoint,
            methods=[method],
            summary=summary,
            response_class=JSONResponse,
            response_model=None,
            operation_id=f"access_{endpoint.__name__}",
        )
    return router


class _Routes:
    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    @property
    def _accounts(self) -> Accounts:
        accounts = self._authenticator.accounts
        if accounts is None:
            raise RequestError(404, "this API has no accounts")
        return accounts

    async def log_in(self, request: Request) -> Response:
        body = await read_body(request, OBJECTS)
        name, password = _text(body, "username"), _text(body, "password")
        host = request.client.host if request.client else ""
        account = await self._authenticator.log_in(name, password, host)
        request.state.requester = Requester.known(account.name, account.groups)  # for the audit log
        secret = self._authenticator.sessions.begin(request.state.requester, self._accounts.password_of(account.name))
        answer = JSONResponse(account.to_dict() | {"expirationSeconds": SESSION_S})
        _set_cookie(answer, request, secret)
        return answer

    async def follow_link(self, request: Request, token: str = "", page: str = "") -> Response:
        if not _PAGE.fullmatch(page):
            raise RequestError(400, "page: expected the path of a page below /console/")
        secret = self._authenticator.log_in_operator(token)
        # A redirect removes the token from the address bar of the browser and the next Referer.
        answer = RedirectResponse(f"/console/{page}", 303, {"Cache-Control": "no-store"})
        _set_cookie(answer, request, secret)
        return answer

    async def go_to_provider(self, request: Request) -> Response:
        redirect = f"{request.url.scheme}://{request.url.netloc}{CALLBACK_PATH}"
        url, state = await self._authenticator.begin_browser_login(redirect)
        answer = RedirectResponse(url, 303, {"Cache-Control": "no-store"})
        # It comes back from a page of the provider, which a strict cookie would not survive.
        answer.set_cookie(
            LOGIN_COOKIE,
            state,
            max_age=int(LOGIN_S),
            path=CALLBACK_PATH,
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        return answer

    async def come_from_provider(
        self, request: Request, code: str = "", state: str = "", error: str = ""
    ) -> Response:
        # Another browser must not be logged in with somebody else's code.
        if not state or not hmac.compare_digest(request.cookies.get(LOGIN_COOKIE, "").encode(), state.encode()):
            raise RequestError(401, "this login was not begun in this browser: log in again")
        if error or not code:
            raise RequestError(401, f"the identity provider refuses the login: {error[:100] or 'it gives no code'}")
        requester, secret = await self._authenticator.end_browser_login(state, code)
        request.state.requester = requester  # for the audit log
        answer = RedirectResponse("/console/", 303, {"Cache-Control": "no-store"})
        _set_cookie(answer, request, secret)
        answer.delete_cookie(LOGIN_COOKIE, path=CALLBACK_PATH, httponly=True, samesite="lax")
        return answer

    async def log_out(self, request: Request) -> Response:
        if secret := session_secret(request.scope):
            self._authenticator.sessions.end(secret)
        answer = JSONResponse(_success("logged out"))
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    async def who(self, request: Request) -> Response:
        requester: Requester = request.state.requester
        return JSONResponse({"username": requester.name, "groups": list(requester.groups)})

    async def accounts(self, request: Request) -> Response:
        _require_admin(request, "list accounts")
        return JSONResponse({"items": [account.to_dict() for account in self._accounts.all()]})

    async def add_account(self, request: Request) -> Response:
        _require_admin(request, "add accounts")
        body = await read_body(request, OBJECTS)
        groups = body.get("groups") or []
        if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
            raise RequestError(400, "groups: expected a list of names")
        kept = await self._authenticator.hash(_text(body, "password")) if body.get("password") else ""
        account = self._accounts.add(_text(body, "username"), password_hash=kept, groups=tuple(groups))
        return JSONResponse(account.to_dict(), status_code=201)

    async def remove_account(self, request: Request, name: str) -> Response:
        _require_admin(request, "remove accounts")
        self._accounts.remove(name)
        return JSONResponse(_success(f"account {name} removed"))

    async def set_password(self, request: Request, name: str) -> Response:
        body = await read_body(request, OBJECTS)
        requester: Requester = request.state.requester
        if not requester.is_admin:
            if requester.name != name:
                raise ForbiddenError(f'User "{requester.name}" cannot change the password of another account')
            # An attacker with an open session, or a token, must not be able to take over the account.
            host = request.client.host if request.client else ""
            await self._authenticator.log_in(name, _text(body, "oldPassword"), host)
        self._accounts.set_password(name, await self._authenticator.hash(_text(body, "password")))
        return JSONResponse(_success(f"the password of account {name} has been changed"))

    async def tokens(self, request: Request) -> Response:
        requester: Requester = request.state.requester
        found = self._accounts.tokens(None if requester.is_admin else requester.name)
        return JSONResponse({"items": [token.to_dict() for token in found]})

    async def create_token(self, request: Request) -> Response:
        body = await read_body(request, OBJECTS)
        requester: Requester = request.state.requester
        account = _text(body, "account", requester.name)
        if account == LOCAL_OPERATOR.name:
            raise RequestError(
                422,
                "account: the local operator has none, and its token is the file control/operator.token in the data "
                "directory; name the account that the token is for",
            )
        if account != requester.name and not requester.is_admin:
            raise ForbiddenError(f'User "{requester.name}" cannot create tokens of another account')
        seconds = body.get("expirationSeconds") or 0
        if not isinstance(seconds, int) or not 0 <= seconds <= MAX_TOKEN_SECONDS:
            raise RequestError(400, f"expirationSeconds: expected a number from 0 to {MAX_TOKEN_SECONDS}")
        if requester is ANONYMOUS or self._accounts.find(account) is None:
            raise ResourceNotFoundError("account", "", account)
        made = self._accounts.create_token(account, note=_text(body, "note", ""), seconds=seconds)
        return JSONResponse(made.to_dict(), status_code=201, headers={"Cache-Control": "no-store"})

    async def revoke_token(self, request: Request, name: str) -> Response:
        requester: Requester = request.state.requester
        self._accounts.revoke_token(name, account=None if requester.is_admin else requester.name)
        return JSONResponse(_success(f"token {name} revoked"))


def _set_cookie(answer: Response, request: Request, secret: str) -> None:
    answer.set_cookie(
        COOKIE,
        secret,
        max_age=SESSION_S,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def _require_admin(request: Request, what: str) -> None:
    requester: Requester = request.state.requester
    if not requester.is_admin:
        raise ForbiddenError(f'User "{requester.name}" cannot {what}')


def _success(message: str) -> Document:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "message": message}


def _text(body: Document, field: str, default: str | None = None) -> str:
    value = body.get(field, default)
    if not isinstance(value, str):
        raise RequestError(400, f"{field}: expected a string")
    return value
