"""Routes for login and logout, accounts, tokens and sessions.

Administrators manage accounts; users manage the tokens and sessions of their own account. Answers contain no hashes,
and the secret of a token only when it is created.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from enmasse.api.access.browser_logins import LOGIN_S
from enmasse.api.access.sessions import COOKIE, PROOF_S, proof_required
from enmasse.api.kube.requests import OBJECTS, Query, place, read_body
from enmasse.api.kube.status import RequestError, answer_error
from enmasse.control.access.accounts import BY_SESSION, TOKEN_S
from enmasse.control.errors import ForbiddenError, ResourceNotFoundError
from enmasse.identity.rbac import ANONYMOUS, LOCAL_OPERATOR, Requester

if TYPE_CHECKING:
    from enmasse.api.access.authentication import Authenticator
    from enmasse.api.access.browser_logins import BrowserLogin, ProviderProof
    from enmasse.api.access.sessions import Session
    from enmasse.control.access.accounts import Accounts, Token

LOGIN_COOKIE = "enmasse_login"
"""The cookie of a login under way at a provider."""

CALLBACK_PATH = "/login/oidc/callback"

ACCESS_PATH = "/apis/access.enmasse.io/v1beta1"

MAX_TOKEN_SECONDS = 10 * 366 * 86_400

_PAGE = re.compile(r"(?!.*\.\.)[\w.~/-]{0,1024}", re.ASCII)
"""A path below that of the console, which leads nowhere else."""

Document = dict[str, Any]


def account_routes(authenticator: Authenticator) -> list[Route]:
    """Return the routes.

    Args:
        authenticator: with the accounts.
    """
    routes = _Routes(authenticator)
    accounts, tokens, sessions = (f"{ACCESS_PATH}/{name}" for name in ("accounts", "tokens", "sessions"))
    return [
        Route(path, endpoint, methods=[method])
        for path, endpoint, method in (
            ("/login", routes.log_in, "POST"),
            ("/login", routes.follow_link, "GET"),
            ("/login/oidc", routes.go_to_provider, "GET"),
            (CALLBACK_PATH, routes.come_from_provider, "GET"),
            ("/login/proof", routes.prove, "POST"),
            ("/logout", routes.log_out, "POST"),
            ("/whoami", routes.who, "GET"),
            (accounts, routes.accounts, "GET"),
            (accounts, routes.add_account, "POST"),
            (f"{accounts}/{{name}}", routes.remove_account, "DELETE"),
            (f"{accounts}/{{name}}/password", routes.set_password, "PUT"),
            (tokens, routes.tokens, "GET"),
            (tokens, routes.create_token, "POST"),
            (f"{tokens}/{{name}}", routes.revoke_token, "DELETE"),
            (sessions, routes.sessions, "GET"),
            (sessions, routes.end_sessions, "DELETE"),
            (f"{sessions}/{{name}}", routes.end_session, "DELETE"),
        )
    ]


class _LoginQuery(Query):
    fresh: bool = False


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
        account = await self._authenticator.log_in(name, password, _host(request))
        requester = Requester.known(account.name, account.groups)
        session, secret = self._begin(request, requester, self._accounts.password_of(account.name))
        answer = JSONResponse(account.to_dict() | {"expirationSeconds": self._life_s} | self._proof(session))
        _set_cookie(answer, request, secret, self._life_s)
        return answer

    @property
    def _life_s(self) -> int:
        """The seconds after which a session ends in any case."""
        return int(self._authenticator.sessions.lifetime.whole_s)

    def _begin(
        self,
        request: Request,
        requester: Requester,
        password: str | None = None,
        provider: ProviderProof | None = None,
    ) -> tuple[Session, str]:
        """Begin a session; return it and its secret."""
        request.state.requester = requester  # for the audit log
        sessions = self._authenticator.sessions
        agent = request.headers.get("user-agent", "")
        secret = sessions.begin(requester, password, host=_host(request), agent=agent, provider=provider)
        session = sessions.find(secret)
        assert session is not None
        return session, secret

    def _proof(self, session: Session) -> Document:
        """Return a fresh proof as answers have it: for pages and programs, and never in a cookie."""
        proof = self._authenticator.sessions.prove(session)
        return {"proof": proof, "proofExpirationSeconds": PROOF_S}

    def _lead(
        self,
        request: Request,
        requester: Requester,
        page: str,
        *,
        is_proved: bool,
        provider: ProviderProof | None = None,
    ) -> Response:
        """Begin a session, and lead to a page of the console, with a proof where none but the page sees it."""
        session, secret = self._begin(request, requester, provider=provider)
        proof = f"#proof={self._proof(session)['proof']}" if is_proved else ""
        # A redirect removes what came in the address from the browser's, and from the next Referer.
        answer = RedirectResponse(f"/console/{page}{proof}", 303, {"Cache-Control": "no-store"})
        _set_cookie(answer, request, secret, self._life_s)
        return answer

    async def follow_link(self, request: Request) -> Response:
        page = request.query_params.get("page", "")
        if not _PAGE.fullmatch(page):
            raise RequestError(400, "page: expected the path of a page below /console/")
        self._authenticator.expect_operator(request.query_params.get("token", ""))
        return self._lead(request, LOCAL_OPERATOR, page, is_proved=True)

    async def prove(self, request: Request) -> Response:
        session = self._authenticator.session_of(request.scope)
        if session is None:
            raise RequestError(401, "there is no session to prove anything in: log in")
        if session.password is None:
            raise proof_required(session)
        body = await read_body(request, OBJECTS)
        await self._authenticator.log_in(session.requester.name, _text(body, "password"), _host(request))
        request.state.requester = session.requester  # for the audit log
        return JSONResponse(self._proof(session), headers={"Cache-Control": "no-store"})

    async def go_to_provider(self, request: Request) -> Response:
        redirect = f"{request.url.scheme}://{request.url.netloc}{CALLBACK_PATH}"
        url, sealed = await self._authenticator.begin_browser_login(redirect, is_fresh=_LoginQuery.of(request).fresh)
        answer = RedirectResponse(url, 303, {"Cache-Control": "no-store"})
        # It comes back from a page of the provider, which a strict cookie would not survive.
        answer.set_cookie(
            LOGIN_COOKIE,
            sealed,
            max_age=LOGIN_S,
            path=CALLBACK_PATH,
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        return answer

    async def come_from_provider(self, request: Request) -> Response:
        answer: Response
        code, state, error, issuer = (
            request.query_params.get(name, "") for name in ("code", "state", "error", "iss")
        )
        try:
            # Another browser must not be logged in with somebody else's code.
            login = self._login(request, state, "" if error else code, error)
            proof = await self._authenticator.end_browser_login(login, code, issuer)
        except RequestError as refusal:
            answer = answer_error(refusal)
        else:
            answer = self._lead(request, proof.requester, "", is_proved=login.is_fresh, provider=proof)
        answer.delete_cookie(LOGIN_COOKIE, path=CALLBACK_PATH, httponly=True, samesite="lax")
        return answer

    def _login(self, request: Request, state: str, code: str, error: str) -> BrowserLogin:
        login = self._authenticator.browser_logins.open(request.cookies.get(LOGIN_COOKIE, ""), state)
        if login is None:
            raise RequestError(401, "this login was not begun in this browser, or took too long: log in again")
        if not code:
            raise RequestError(401, f"the identity provider refuses the login: {error[:100] or 'it gives no code'}")
        return login

    async def log_out(self, request: Request) -> Response:
        if session := self._authenticator.session_of(request.scope):
            self._authenticator.sessions.end(session)
        answer = JSONResponse(_success("logged out"))
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    async def who(self, request: Request) -> Response:
        requester: Requester = request.state.requester
        session = self._authenticator.session_of(request.scope)
        accounts = self._authenticator.accounts
        account = accounts.find(requester.name) if accounts is not None else None
        return JSONResponse(
            {
                "username": requester.name,
                "groups": list(requester.groups),
                "hasPassword": account is not None and account.has_password,
                "prove": session.way_to_prove if session is not None else None,
            }
        )

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

    async def remove_account(self, request: Request) -> Response:
        _require_admin(request, "remove accounts")
        _, name = place(request)
        self._accounts.remove(name)
        return JSONResponse(_success(f"account {name} removed"))

    async def set_password(self, request: Request) -> Response:
        _, name = place(request)
        body = await read_body(request, OBJECTS)
        requester: Requester = request.state.requester
        session = self._authenticator.session_of(request.scope)
        if requester.name == name:
            # An attacker with an open session, or a token, must not be able to take over the account.
            await self._authenticator.log_in(name, _text(body, "oldPassword"), _host(request))
        elif not requester.is_admin:
            raise ForbiddenError(f'User "{requester.name}" cannot change the password of another account')
        elif (unproved := self._authenticator.unproved_session_of(request.scope)) is not None:
            raise proof_required(unproved)
        ids = _ids(body, "endTokens")
        self._accounts.set_password(name, await self._authenticator.hash(_text(body, "password")))
        ended = self._end(name, ids, but=_id_of_token(request))
        answer = JSONResponse(_success(f"the password of account {name} has been changed") | ended)
        if session is not None and requester.name == name:
            # All sessions end with the password; who has just shown it goes on in a new one.
            _, secret = self._begin(request, requester, self._accounts.password_of(name))
            _set_cookie(answer, request, secret, self._life_s)
        return answer

    def _end(self, name: str, ids: list[str] | None, *, but: str = "") -> Document:
        """End all sessions of a requester, and tokens of an account; return what has ended."""
        sessions = self._authenticator.sessions
        open_sessions = sessions.of(name)
        for session in open_sessions:
            sessions.end(session)
        found = self._accounts.end_tokens(name, ids, but=but)
        return {"sessionsEnded": len(open_sessions), "tokensEnded": [token.to_dict() for token in found]}

    async def tokens(self, request: Request) -> Response:
        found = self._accounts.tokens(self._owner(request) or None)
        return JSONResponse({"items": [self._describe(token) for token in found]})

    def _owner(self, request: Request) -> str:
        """Return the account that is asked for; empty: all, for administrators."""
        account = request.query_params.get("account", "")
        requester: Requester = request.state.requester
        if account not in ("", requester.name) and not requester.is_admin:
            raise ForbiddenError(f'User "{requester.name}" cannot see tokens and sessions of another account')
        return account or ("" if requester.is_admin else requester.name)

    def _describe(self, token: Token) -> Document:
        return token.to_dict() | {"endsSoon": token.ends_soon(time.time())}

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
        seconds = body.get("expirationSeconds", TOKEN_S)
        if type(seconds) is not int or not 0 <= seconds <= MAX_TOKEN_SECONDS:
            raise RequestError(400, f"expirationSeconds: expected a number from 0 to {MAX_TOKEN_SECONDS}")
        if requester is ANONYMOUS or self._accounts.find(account) is None:
            raise ResourceNotFoundError("account", "", account)
        parent = _id_of_token(request)
        made = self._accounts.create_token(
            account,
            note=_text(body, "note", ""),
            seconds=seconds,
            made_by="token" if parent else self._proof_of(request),
            parent=parent,
        )
        return JSONResponse(made.to_dict(), status_code=201, headers={"Cache-Control": "no-store"})

    def _proof_of(self, request: Request) -> str:
        """Return the kind of proof that a request came with."""
        if self._authenticator.session_of(request.scope) is not None:
            return BY_SESSION
        return "operator" if request.state.requester is LOCAL_OPERATOR else "certificate"

    async def revoke_token(self, request: Request) -> Response:
        _, name = place(request)
        requester: Requester = request.state.requester
        self._accounts.revoke_token(name, account=None if requester.is_admin else requester.name)
        return JSONResponse(_success(f"token {name} revoked"))

    async def sessions(self, request: Request) -> Response:
        name = self._owner(request) or request.state.requester.name
        own = self._authenticator.session_of(request.scope)
        found = [
            self._describe_session(session) | {"current": session is own}
            for session in self._authenticator.sessions.of(name)
        ]
        return JSONResponse({"items": found})

    def _describe_session(self, session: Session) -> Document:
        now = datetime.now(UTC)
        began, used = (
            (now - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
            for age in self._authenticator.sessions.age_of(session)
        )
        return {
            "id": session.id,
            "account": session.requester.name,
            "began": began,
            "lastUsed": used,
            "from": session.host,
            "agent": session.agent,
        }

    async def end_sessions(self, request: Request) -> Response:
        body = await read_body(request, OBJECTS) if await request.body() else {}
        name = self._owner(request) or request.state.requester.name
        ended = self._end(name, _ids(body, "endTokens"))
        answer = JSONResponse(_success(f"{name} is logged out everywhere") | ended)
        if name == request.state.requester.name:
            answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    async def end_session(self, request: Request) -> Response:
        _, name = place(request)
        owner = self._owner(request) or request.state.requester.name
        sessions = self._authenticator.sessions
        found = next((session for session in sessions.of(owner) if session.id == name), None)
        if found is None:
            raise ResourceNotFoundError("session", "", name)
        sessions.end(found)
        return JSONResponse(_success(f"session {name} ended"))


def _set_cookie(answer: Response, request: Request, secret: str, life_s: int) -> None:
    answer.set_cookie(
        COOKIE,
        secret,
        max_age=life_s,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def _require_admin(request: Request, what: str) -> None:
    requester: Requester = request.state.requester
    if not requester.is_admin:
        raise ForbiddenError(f'User "{requester.name}" cannot {what}')


def _host(request: Request) -> str:
    return request.client.host if request.client else ""


def _id_of_token(request: Request) -> str:
    """Return the id of the account's token that a request came with; empty: it came with another proof."""
    token: Token | None = getattr(request.state, "token", None)
    return "" if token is None else token.id


def _ids(body: Document, field: str) -> list[str] | None:
    value = body.get(field)
    if value is not None and (not isinstance(value, list) or not all(isinstance(item, str) for item in value)):
        raise RequestError(400, f"{field}: expected a list of the ids of tokens")
    return value


def _success(message: str) -> Document:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "message": message}


def _text(body: Document, field: str, default: str | None = None) -> str:
    value = body.get(field, default)
    if not isinstance(value, str):
        raise RequestError(400, f"{field}: expected a string")
    return value
