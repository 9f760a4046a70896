"""Who it is that sends a request.

Proofs, in the order in which they are looked for:

1. ``Authorization: Bearer``: a token of ours, or one of an OpenID provider.
2. ``Authorization: Basic``, for service brokers alone, who know nothing else: a browser would send it by itself.
3. The cookie of a session, as ``POST /login`` gives it.
4. A client certificate of the platform's authority: its common name is the user, its organisations are groups.

A proof that does not hold is refused, even where none is needed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Protocol

from enmasse.api.sessions import COOKIE, Sessions
from enmasse.api.status import RequestError
from enmasse.control.accounts import TOKEN_PREFIX, hash_token
from enmasse.control.web_passwords import WebPasswords
from enmasse.identity.requester import ANONYMOUS, LOCAL_OPERATOR, PIPELINE_HOST, Requester
from enmasse.identity.throttle import Throttle

if TYPE_CHECKING:
    from starlette.types import Scope

    from enmasse.control.accounts import Account, Accounts

__all__ = ["Authenticator", "BearerVerifier"]

BROKER_PATH = "/osbapi/"

_AT_ONCE = 2  # passwords being checked: each takes 64 MiB and a core
_WAITING = 32  # beyond that, logins are told to come again
_REMEMBERED = 1_024
_REMEMBER_S = 300.0
_USER_FAILURES, _USER_FORGET_S = 5, 6.0
_HOST_FAILURES, _HOST_FORGET_S = 20, 3.0
_RETRY_S = 6
_WRONG = "user name or password is wrong"


class BearerVerifier(Protocol):
    """Knows what tokens of somebody else are worth."""

    async def requester_of(self, token: str) -> Requester | None:
        """Return whom a token names, None when it is worth nothing."""

    async def close(self) -> None:
        """Give up what is under way."""


class Authenticator:
    """Finds out who sends a request.

    Args:
        accounts: who may; None: nobody but whoever reaches the port.
        is_required: whether a proof is needed; else whoever brings none is the local operator.
        operator: the secret that is the local operator's; empty: there is none.
        pipelines: the secret of the process that runs pipelines; empty: there is none.
        passwords: checks passwords.
        verifier: of tokens that are not ours.
        now: gives seconds, for sessions and throttling; only goes forward.
    """

    def __init__(
        self,
        accounts: Accounts | None = None,
        *,
        is_required: bool = False,
        operator: str = "",
        pipelines: str = "",
        passwords: WebPasswords | None = None,
        verifier: BearerVerifier | None = None,
        now: object = None,
    ) -> None:
        clock = now if callable(now) else time.monotonic
        self.accounts = accounts
        self.is_required = is_required
        self.sessions = Sessions(clock)
        self.passwords = passwords or WebPasswords()
        self._processes = {
            hash_token(secret): who
            for secret, who in ((operator, LOCAL_OPERATOR), (pipelines, PIPELINE_HOST))
            if secret
        }
        self._verifier = verifier
        self._now = clock
        self._by_user = Throttle(_USER_FAILURES, _USER_FORGET_S)
        self._by_host = Throttle(_HOST_FAILURES, _HOST_FORGET_S)
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0
        self._secret = secrets.token_bytes(32)
        self._right: dict[bytes, float] = {}

    async def requester_of(self, scope: Scope) -> Requester:
        """Return who sends a request; ``ANONYMOUS`` when that is needed and not told.

        Raises:
            RequestError: 401 when a proof does not hold, 429 when there were too many that did not.
        """
        authorization = _header(scope, b"authorization")
        if authorization:
            scheme, _, value = authorization.partition(" ")
            if scheme.lower() == "bearer":
                return await self._by_token(value.strip())
            if scheme.lower() == "basic" and scope["path"].startswith(BROKER_PATH):
                return await self._by_basic(value.strip(), _host(scope))
            raise RequestError(401, f"authorization by {scheme!r} is not understood here: send Bearer and a token")
        secret = session_secret(scope)
        if secret and (found := self._by_session(secret)) is not None:
            return found
        peer = (scope.get("state") or {}).get("peer")
        if peer is not None:
            name, groups = peer
            return Requester.known(name, groups)
        return ANONYMOUS if self.is_required else LOCAL_OPERATOR

    async def close(self) -> None:
        """Give up what is under way."""
        if self._verifier is not None:
            await self._verifier.close()

    async def log_in(self, name: str, password: str, host: str) -> Account:
        """Return the account whose password this is.

        Args:
            name: of the account.
            password: what was sent.
            host: where it was sent from.

        Raises:
            RequestError: 401 when it is wrong, 429 when there were too many wrong ones.
        """
        key, now = f"{host} {name}", self._now()
        if self._by_user.must_wait(key, now) or self._by_host.must_wait(host, now):
            raise RequestError(429, f"too many logins have failed: try again in {_RETRY_S} s")
        kept = self.accounts.password_of(name) if self.accounts is not None else ""
        if not await self._is_right(kept, password):
            self._by_user.failed(key, self._now())
            self._by_host.failed(host, self._now())
            raise RequestError(401, _WRONG)
        account = self.accounts.find(name) if self.accounts is not None else None
        if account is None:  # removed meanwhile
            raise RequestError(401, _WRONG)
        return account

    async def hash(self, password: str) -> str:
        """Return what is kept of a password.

        Raises:
            ConfigError: when it is too short or too long.
        """
        async with self._places:
            return await asyncio.to_thread(self.passwords.hash, password)

    async def _is_right(self, kept: str, password: str) -> bool:
        key = hmac.digest(self._secret, f"{kept}\0{password}".encode("utf-8", "surrogatepass"), hashlib.sha256)
        if self._right.get(key, -1.0) > self._now():
            return True
        if self._waiting >= _WAITING:
            raise RequestError(429, f"too many are logging in: try again in {_RETRY_S} s")
        self._waiting += 1
        try:
            async with self._places:
                right = await asyncio.to_thread(self.passwords.is_right, kept, password)
        finally:
            self._waiting -= 1
        if right:
            if len(self._right) >= _REMEMBERED:
                del self._right[next(iter(self._right))]
            self._right[key] = self._now() + _REMEMBER_S
        return right

    async def _by_token(self, token: str) -> Requester:
        if token.startswith(TOKEN_PREFIX):
            if (process := self._processes.get(hash_token(token))) is not None:  # by hashes, time tells nothing
                return process
            account = self.accounts.account_of_token(token) if self.accounts is not None else None
            if account is not None:
                return Requester.known(account.name, account.groups)
        elif self._verifier is not None:
            found = await self._verifier.requester_of(token)
            if found is not None:
                return found
        raise RequestError(
            401, "the token is worth nothing: it has ended, was revoked, or is of another installation"
        )

    async def _by_basic(self, value: str, host: str) -> Requester:
        try:
            name, _, password = base64.b64decode(value, validate=True).decode().partition(":")
        except ValueError:
            raise RequestError(401, "the user name and password are not encoded as Basic demands") from None
        account = await self.log_in(name, password, host)
        return Requester.known(account.name, account.groups)

    def _by_session(self, secret: str) -> Requester | None:
        found = self.sessions.find(secret)
        if found is None or self.accounts is None:
            return None
        name, password = found
        account = self.accounts.find(name)
        if account is None or self.accounts.password_of(name) != password:
            self.sessions.end(secret)
            return None
        return Requester.known(account.name, account.groups)


def session_secret(scope: Scope) -> str:
    """Return the session that a request names; empty when it names none."""
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
