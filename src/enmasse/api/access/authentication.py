"""Authentication of requests.

Credentials, in the order in which they are tried:

1. ``Authorization: Bearer``: a token of ours, or one of an OpenID provider.
2. ``Authorization: Basic``, for service brokers and clients of schema registries alone, many of which support nothing
   else: a browser would send it by itself, and so is never asked for it at the latter.
3. The cookie of a session, as ``/login`` gives it for a password, and for the operator's token in a link. What
   outlasts the session asks for a fresh proof besides: see ``sessions``.
4. A client certificate of the platform's authority: its common name is the user, its organisations are groups.

Wrong credentials are refused, even where none are required.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING

from enmasse.api.access.browser_logins import BrowserLogins
from enmasse.api.access.sessions import COOKIE, LOCAL, PROOF_HEADER, Lifetime, Sessions
from enmasse.api.kube.status import RequestError
from enmasse.control.access.accounts import TOKEN_PREFIX, WebPasswords, hash_token
from enmasse.errors import UnavailableError
from enmasse.identity.rbac import ANONYMOUS, LOCAL_OPERATOR, PIPELINE_HOST, Requester
from enmasse.identity.throttle import LoginThrottle

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

    from enmasse.api.access.browser_logins import BearerVerifier, BrowserLogin, ProviderProof
    from enmasse.api.access.sessions import Session
    from enmasse.control.access.accounts import Account, Accounts

BROKER_PATH = "/osbapi/"
SCHEMAS_PATH = "/schemas/"

_AT_ONCE = 2  # concurrent checks of passwords: each takes 64 MiB and a core
_WAITING = 18  # concurrent logins, fewer than may fail; the next is answered 429
_REMEMBERED = 1_024
_REMEMBER_S = 300.0
_RETRY_S = 6
_WRONG = "user name or password is wrong"


class Authenticator:
    """Authenticates requests.

    Args:
        accounts: the accounts of users; None: there are none.
        is_required: whether credentials are required; else a request without any is the local operator's.
        is_local: whether the API serves one person on this machine; by default if no credentials are required.
        operator: the token of the local operator; empty: there is none.
        pipelines: the token of the pipeline host; empty: there is none.
        passwords: hashes and checks passwords.
        verifier: the verifier of tokens of an identity provider.
        lifetime: how long browsers' sessions last.
        now: returns seconds for sessions and throttling; by default those since 1970 UTC for the former, which
            outlive the process, and monotonic ones for the latter.
        wall: returns seconds since 1970 UTC, for logins that a browser brings back.

    Attributes:
        accounts: the accounts as given.
        is_required: as given.
        logins: delays logins after failures.
    """

    def __init__(
        self,
        accounts: Accounts | None = None,
        *,
        is_required: bool = False,
        is_local: bool | None = None,
        operator: str = "",
        pipelines: str = "",
        passwords: WebPasswords | None = None,
        verifier: BearerVerifier | None = None,
        lifetime: Lifetime = LOCAL,
        now: object = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        clock = now if callable(now) else time.monotonic
        self.accounts = accounts
        self.is_required = is_required
        self.is_local = not is_required if is_local is None else is_local
        self.sessions = Sessions(now if callable(now) else wall, lifetime, accounts, operator)
        self.browser_logins = BrowserLogins(operator, wall)
        self.passwords = passwords or WebPasswords()
        self._processes = {
            hash_token(secret): who
            for secret, who in ((operator, LOCAL_OPERATOR), (pipelines, PIPELINE_HOST))
            if secret
        }
        self._verifier = verifier
        self._now = clock
        self.logins = LoginThrottle()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0
        self._secret = secrets.token_bytes(32)
        self._correct: dict[bytes, float] = {}

    async def requester_of(self, scope: Scope, *, is_again: bool = False) -> Requester:
        """Return the requester; ``ANONYMOUS`` if credentials are required and there are none.

        They are of clients that come through a load balancer, whatever others have to have.

        Args:
            scope: the request's scope.
            is_again: whether a stream is only authorized again: that does not keep an idle session alive.

        Raises:
            RequestError: 401 when credentials are wrong, 429 after too many wrong ones.
        """
        authorization = _header(scope, b"authorization")
        if authorization:
            scheme, _, value = authorization.partition(" ")
            if scheme.lower() == "bearer":
                return await self._by_token(value.strip(), scope)
            if scheme.lower() == "basic" and scope["path"].startswith((BROKER_PATH, SCHEMAS_PATH)):
                return await self._by_basic(value.strip(), _host(scope))
            raise RequestError(401, f"authorization by {scheme!r} is not supported here: send Bearer and a token")
        session = self.session_of(scope, is_used=not is_again)
        if session is not None and await self._holds(session):
            return session.requester
        peer = (scope.get("state") or {}).get("peer")
        if peer is not None:
            name, groups = peer
            return Requester.known(name, groups)
        # Whoever comes through a load balancer is not on this machine.
        is_proxied = (scope.get("state") or {}).get("is_proxied", False)
        return ANONYMOUS if self.is_required or is_proxied else LOCAL_OPERATOR

    async def _holds(self, session: Session) -> bool:
        """Return whether a session's proof by a provider holds, or could be renewed; else it has ended."""
        if session.provider is None:
            return True
        if not await session.provider.holds():
            self.sessions.end(session)
            return False
        session.requester = session.provider.requester
        return True

    def session_of(self, scope: Scope, *, is_used: bool = False) -> Session | None:
        """Return the session that a request is made in; None: it has another proof, or none.

        Args:
            scope: the request's scope.
            is_used: whether this counts as its use.
        """
        secret = "" if _header(scope, b"authorization") else session_secret(scope)
        session = self.sessions.find(secret, is_used=is_used) if secret else None
        if session is None or session.password is None:
            return session
        account = self.accounts.find(session.requester.name) if self.accounts is not None else None
        if (
            account is None
            or self.accounts is None
            or hash_token(self.accounts.password_of(account.name)) != session.password
        ):
            self.sessions.end(session)
            return None
        session.requester = Requester.known(account.name, account.groups)
        return session

    def unproved_session_of(self, scope: Scope) -> Session | None:
        """Return the session that a request is made in without a fresh proof; None: it has one, or needs none."""
        session = self.session_of(scope) if self.is_required else None
        proof = _header(scope, PROOF_HEADER.lower().encode())
        return None if session is None or self.sessions.is_proved(session, proof) else session

    @property
    def provider_name(self) -> str | None:
        """The identity provider that a browser can log in at; None: there is none."""
        return (self._verifier.login_name if self._verifier is not None else "") or None

    async def begin_browser_login(self, redirect: str, *, is_fresh: bool = False) -> tuple[str, str]:
        """Return the provider's URL that a browser is sent to, and the sealed login that it has to come back with.

        Args:
            redirect: our own URL that it comes back to.
            is_fresh: whether the provider has to ask for a proof even of a person whom it knows.

        Raises:
            RequestError: 404 without such a provider, 503 when it does not answer.
        """
        if self._verifier is None or not self._verifier.login_name:
            raise RequestError(404, "there is no identity provider to log in at: `enmasse up --api-oidc-client`")
        login, sealed = self.browser_logins.begin(redirect, is_fresh=is_fresh)
        try:
            return await self._verifier.login_url(login), sealed
        except UnavailableError as error:
            raise RequestError(503, f"the identity provider does not answer: {error}") from None

    async def end_browser_login(self, login: BrowserLogin, code: str, issuer: str) -> ProviderProof:
        """Return the proof of who has logged in at the provider.

        Args:
            login: the sealed login that the browser has brought back.
            code: the provider's code, which the browser has brought.
            issuer: the name that the provider has sent it back under; empty: none.

        Raises:
            RequestError: 401 when the provider does not confirm this login, 503 when it does not answer.
        """
        if self._verifier is None:
            raise RequestError(401, "there is no identity provider to log in at any more")
        try:
            proof = await self._verifier.redeem(login, code, issuer)
        except UnavailableError as error:
            raise RequestError(503, f"the identity provider does not answer: {error}") from None
        if proof is None or not self.browser_logins.use(login):
            raise RequestError(401, "the identity provider does not confirm this login: log in again")
        return proof

    async def close(self) -> None:
        """Cancel questions under way."""
        if self._verifier is not None:
            await self._verifier.close()

    def expect_operator(self, token: str) -> None:
        """Raise an error unless a token is the local operator's.

        Raises:
            RequestError: 401.
        """
        if self._processes.get(hash_token(token)) is not LOCAL_OPERATOR:
            raise RequestError(401, "the link has no token of this installation: `enmasse up` prints one that has")

    async def log_in(self, name: str, password: str, host: str) -> Account:
        """Check a password, and return its account.

        Args:
            name: the name of the account.
            password: the password as it was sent.
            host: the host of the client.

        Raises:
            RequestError: 401 when it is wrong, 429 when there were too many wrong ones.
        """
        attempt = (host, "", name)  # the API has no space
        if self.logins.must_wait(*attempt, self._now()):
            raise RequestError(429, f"too many logins have failed: try again in {_RETRY_S} s")
        kept = self.accounts.password_of(name) if self.accounts is not None else ""
        # Many may be sent at once: each counts as failed until it is checked.
        self.logins.started(*attempt, self._now())
        try:
            is_right = await self._is_right(kept, password)
        finally:
            self.logins.finished(*attempt, self._now())
        if not is_right:
            self.logins.failed(*attempt, self._now())
            raise RequestError(401, _WRONG)
        self.logins.succeeded(*attempt, self._now())
        account = self.accounts.find(name) if self.accounts is not None else None
        if account is None:  # removed meanwhile
            raise RequestError(401, _WRONG)
        return account

    async def hash(self, password: str) -> str:
        """Return the hash of a password.

        Raises:
            ConfigError: when it is too short or too long.
        """
        async with self._slots:
            return await asyncio.to_thread(self.passwords.hash, password)

    async def _is_right(self, kept: str, password: str) -> bool:
        key = hmac.digest(self._secret, f"{kept}\0{password}".encode("utf-8", "surrogatepass"), hashlib.sha256)
        if self._correct.get(key, -1.0) > self._now():
            return True
        if self._waiting >= _WAITING:
            raise RequestError(429, f"too many are logging in: try again in {_RETRY_S} s")
        self._waiting += 1
        try:
            async with self._slots:
                is_correct = await asyncio.to_thread(self.passwords.is_right, kept, password)
        finally:
            self._waiting -= 1
        if is_correct:
            if len(self._correct) >= _REMEMBERED:
                del self._correct[next(iter(self._correct))]
            self._correct[key] = self._now() + _REMEMBER_S
        return is_correct

    async def _by_token(self, token: str, scope: Scope) -> Requester:
        if token.startswith(TOKEN_PREFIX):
            if (
                process := self._processes.get(hash_token(token))
            ) is not None:  # hashes are compared, so timing reveals nothing
                return process
            known = self.accounts.find_token(token) if self.accounts is not None else None
            if known is not None:
                account, scope.setdefault("state", {})["token"] = known
                return Requester.known(account.name, account.groups)
        elif self._verifier is not None:
            found = await self._verifier.requester_of(token)
            if found is not None:
                return found
        raise RequestError(401, "the token is not valid: it has expired, was revoked, or is of another installation")

    async def _by_basic(self, value: str, host: str) -> Requester:
        try:
            name, _, password = base64.b64decode(value, validate=True).decode().partition(":")
        except ValueError:
            raise RequestError(401, "the user name and password are not encoded as Basic requires") from None
        account = await self.log_in(name, password, host)
        return Requester.known(account.name, account.groups)


def session_secret(scope: Scope) -> str:
    """Return the secret of the session in the cookie of a request; empty without one."""
    try:
        morsel = SimpleCookie(_header(scope, b"cookie")).get(COOKIE)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _host(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""
