"""Authentication of requests.

Credentials, in the order in which they are tried:

1. ``Authorization: Bearer``: a token of ours, or one of an OpenID provider.
2. ``Authorization: Basic``, for service brokers and clients of schema registries alone, many of which support nothing
   else: a browser would send it by itself, and so is never asked for it at the latter.
3. The cookie of a session, as ``/login`` gives it for a password, and for the operator's token in a link. What
   outlasts the session asks for a fresh proof besides: see ``sessions``.
4. A client certificate of the platform's authority: its common name is the user, its organisations are groups.

Wrong credentials are refused, even where none are required.

Users and groups of an OpenID provider get the prefix ``oidc:``, so that none of them has the name of an account or of
the group of administrators.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import secrets
import time
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from enmasse.api.access.sessions import COOKIE, IDLE_S, PROOF_HEADER, Sessions
from enmasse.api.kube.status import RequestError
from enmasse.control.access.accounts import TOKEN_PREFIX, WebPasswords, hash_token
from enmasse.errors import UnavailableError
from enmasse.identity.errors import TokenError
from enmasse.identity.rbac import ANONYMOUS, LOCAL_OPERATOR, PIPELINE_HOST, Requester
from enmasse.identity.throttle import LoginThrottle
from enmasse.net.oidc_provider import OidcProvider

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

    from enmasse.api.access.sessions import Session
    from enmasse.control.access.accounts import Account, Accounts
    from enmasse.identity.oidc import Identity
    from enmasse.identity.oidc_settings import OidcSettings

LOGIN_S: Final = 600.0
"""Seconds that a browser may take to log in at a provider."""

_MOST_LOGINS: Final = 1_000
_SECRET_BYTES: Final = 32


class BrowserLogins:
    """Logins of browsers that are under way at an identity provider.

    Args:
        now: returns seconds, monotonic.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._begun: dict[str, tuple[float, str, str, bool]] = {}

    def begin(self, redirect: str, *, is_fresh: bool) -> tuple[str, str]:
        """Begin a login that leads to a URL of ours; return its state and its secret."""
        if len(self._begun) >= _MOST_LOGINS:
            del self._begun[next(iter(self._begun))]
        state, verifier = secrets.token_urlsafe(_SECRET_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        self._begun[state] = (self._now(), redirect, verifier, is_fresh)
        return state, verifier

    def take(self, state: str) -> tuple[str, str, float | None] | None:
        """Return URL and secret of a login, once, and its age if the person has to have logged in since it began.

        None: there is none, or it took too long.
        """
        began, redirect, verifier, is_fresh = self._begun.pop(state, (-LOGIN_S, "", "", False))
        age = self._now() - began
        return (redirect, verifier, age if is_fresh else None) if verifier and age < LOGIN_S else None


def challenge_of(verifier: str) -> str:
    """Return the challenge of a secret, by its hash [RFC 7636 4.2]."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


BROKER_PATH = "/osbapi/"
SCHEMAS_PATH = "/schemas/"

_AT_ONCE = 2  # concurrent checks of passwords: each takes 64 MiB and a core
_WAITING = 18  # concurrent logins, fewer than may fail; the next is answered 429
_REMEMBERED = 1_024
_REMEMBER_S = 300.0
_RETRY_S = 6
_WRONG = "user name or password is wrong"


class BearerVerifier(Protocol):
    """Verifies tokens of an identity provider, and lets browsers log in there."""

    @property
    def login_name(self) -> str:
        """The name of the OpenID provider on the login page; empty: browsers cannot log in there."""

    async def login_url(self, redirect: str, state: str, challenge: str, *, is_fresh: bool) -> str:
        """Return where a browser logs in; see ``OidcProvider``."""

    async def redeem(self, code: str, redirect: str, verifier: str, *, max_age_s: float | None) -> Requester | None:
        """Return who has logged in with a browser; None: the provider refuses the code, or did not ask anew."""

    async def requester_of(self, token: str) -> Requester | None:
        """Return the requester of a token, None when it is invalid."""

    async def close(self) -> None:
        """Cancel questions under way."""


class Authenticator:
    """Authenticates requests.

    Args:
        accounts: of users; None: there are none.
        is_required: whether credentials are required; else a request without any is the local operator's.
        is_local: whether the API serves one person on this machine; by default if no credentials are required.
        operator: the token of the local operator; empty: there is none.
        pipelines: the token of the pipeline host; empty: there is none.
        passwords: hashes and checks passwords.
        verifier: of tokens of an identity provider.
        idle_s: seconds without a request after which a browser's session ends.
        now: returns seconds, monotonic, for sessions and throttling.

    Attributes:
        accounts: as given.
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
        idle_s: float = IDLE_S,
        now: object = None,
    ) -> None:
        clock = now if callable(now) else time.monotonic
        self.accounts = accounts
        self.is_required = is_required
        self.is_local = not is_required if is_local is None else is_local
        self.sessions = Sessions(clock, idle_s)
        self.browser_logins = BrowserLogins(clock)
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

        Args:
            scope: of the request.
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
        if session is not None:
            return session.requester
        peer = (scope.get("state") or {}).get("peer")
        if peer is not None:
            name, groups = peer
            return Requester.known(name, groups)
        return ANONYMOUS if self.is_required else LOCAL_OPERATOR

    def session_of(self, scope: Scope, *, is_used: bool = False) -> Session | None:
        """Return the session that a request is made in; None: it has another proof, or none.

        Args:
            scope: of the request.
            is_used: whether this counts as its use.
        """
        secret = "" if _header(scope, b"authorization") else session_secret(scope)
        session = self.sessions.find(secret, is_used=is_used) if secret else None
        if session is None or session.password is None:
            return session
        account = self.accounts.find(session.requester.name) if self.accounts is not None else None
        if account is None or self.accounts is None or self.accounts.password_of(account.name) != session.password:
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
        """Return the provider's URL that a browser is sent to, and the state that it has to come back with.

        Args:
            redirect: our own URL that it comes back to.
            is_fresh: whether the provider has to ask for a proof even of a person whom it knows.

        Raises:
            RequestError: 404 without such a provider, 503 when it does not answer.
        """
        if self._verifier is None or not self._verifier.login_name:
            raise RequestError(404, "there is no identity provider to log in at: `enmasse up --api-oidc-client`")
        state, verifier = self.browser_logins.begin(redirect, is_fresh=is_fresh)
        try:
            url = await self._verifier.login_url(redirect, state, challenge_of(verifier), is_fresh=is_fresh)
        except UnavailableError as error:
            raise RequestError(503, f"the identity provider does not answer: {error}") from None
        return url, state

    async def end_browser_login(self, state: str, code: str) -> tuple[Requester, bool]:
        """Return who has logged in at the provider, and whether that was asked to be fresh, and is.

        Raises:
            RequestError: 401 when the provider or we do not know this login, 503 when it does not answer.
        """
        begun = self.browser_logins.take(state)
        if begun is None or self._verifier is None:
            raise RequestError(401, "this login was not begun here, or took too long: log in again")
        redirect, verifier, max_age_s = begun
        try:
            requester = await self._verifier.redeem(code, redirect, verifier, max_age_s=max_age_s)
        except UnavailableError as error:
            raise RequestError(503, f"the identity provider does not answer: {error}") from None
        if requester is None:
            raise RequestError(401, "the identity provider does not confirm this login: log in again")
        return requester, max_age_s is not None

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
            name: of the account.
            password: as it was sent.
            host: of the client.

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


PREFIX: Final = "oidc:"

_log = logging.getLogger(__name__)


class OidcTokens:
    """Verifies tokens of an OpenID provider; a ``BearerVerifier``.

    Args:
        settings: of the provider.
        wall: returns seconds since 1970 UTC.
        clock: returns seconds, monotonic.
    """

    def __init__(self, settings: OidcSettings, *, wall: Callable[[], float], clock: Callable[[], float]) -> None:
        self._provider = OidcProvider(settings, wall=wall, clock=clock)

    async def requester_of(self, token: str) -> Requester | None:
        """Return the requester of a token, None when it is invalid.

        Raises:
            RequestError: 503, when the provider's keys are needed and it does not answer.
        """
        try:
            found = self._provider.judge(token) or await self._provider.fetch_and_judge(token)
        except TokenError as error:
            _log.info("a token for the API is refused: %s", error)
            return None
        except UnavailableError as error:
            raise RequestError(503, f"the identity provider does not answer: {error}") from None
        return _requester(found)

    @property
    def login_name(self) -> str:
        """The name of the provider on the login page; empty: no client of ours is registered there."""
        settings = self._provider.settings
        return (urlsplit(settings.issuer).hostname or "") if settings.client_id else ""

    async def login_url(self, redirect: str, state: str, challenge: str, *, is_fresh: bool) -> str:
        """Return where a browser logs in; see ``OidcProvider``."""
        return await self._provider.login_url(redirect, state, challenge, is_fresh=is_fresh)

    async def redeem(self, code: str, redirect: str, verifier: str, *, max_age_s: float | None) -> Requester | None:
        """Return who has logged in with a browser; None: the provider refuses the code, or did not ask anew."""
        try:
            return _requester(await self._provider.judge_code(code, redirect, verifier, max_age_s=max_age_s))
        except TokenError as error:
            _log.info("a login at the provider is refused: %s", error)
            return None

    async def close(self) -> None:
        """Cancel questions under way."""
        await self._provider.close()


def _requester(found: Identity) -> Requester:
    groups = tuple(f"{PREFIX}{group}" for group in found.groups)
    return Requester.known(f"{PREFIX}{found.username}", groups)
