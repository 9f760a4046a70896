"""Tokens of an OpenID provider at the API, and logins of browsers there.

Rules:
1. A login under way is kept by its browser, sealed by a key of the installation: however many are begun, none pushes
   out another, and a restart loses none.
2. A login counts once, within ``LOGIN_S``, and in the browser that began it alone.
3. A session ends no later than its proof: the provider is asked for the next one, if it gives any, and says no once
   its user may not come in any more.
4. Users and groups of a provider get the prefix ``oidc:``, so that none of them has the name of an account or of the
   group of administrators.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import secrets
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from cryptography.fernet import Fernet, InvalidToken

from enmasse.api.kube.status import RequestError
from enmasse.errors import UnavailableError
from enmasse.identity.errors import TokenError
from enmasse.identity.rbac import Requester
from enmasse.net.oidc_provider import OidcProvider

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.identity.oidc import Identity
    from enmasse.identity.oidc_settings import OidcSettings
    from enmasse.net.oidc_provider import BrowserProof

LOGIN_S: Final = 600
"""Seconds that a browser may take to log in at a provider."""

PREFIX: Final = "oidc:"

_MAX_USED: Final = 10_000
"""Logins that are remembered as used; the provider takes the code of an older one only once anyway."""

_MAX_SEALED: Final = 4_096
"""The characters of a cookie that browsers keep."""

_SECRET_BYTES: Final = 32

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrowserLogin:
    """A login of a browser that is under way at the provider.

    Attributes:
        redirect: our URL to which the provider sends the browser back.
        state: comes back in that URL.
        nonce: comes back in the ID token.
        verifier: the secret with which the code is redeemed [RFC 7636].
        began: the time at which it began, in seconds since 1970 UTC.
        is_fresh: whether the provider has to ask for a proof even of a person whom it knows.
    """

    redirect: str
    state: str
    nonce: str
    verifier: str
    began: int
    is_fresh: bool

    @property
    def challenge(self) -> str:
        """The hash of the secret [RFC 7636 4.2]."""
        return base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).decode().rstrip("=")


class BrowserLogins:
    """Seals logins that begin, and opens those that come back.

    Args:
        secret: the installation's secret; empty: one of this process.
        now: returns seconds since 1970 UTC.
    """

    def __init__(self, secret: str, now: Callable[[], float]) -> None:
        own = secret.encode() or secrets.token_bytes(_SECRET_BYTES)
        self._seal = Fernet(base64.urlsafe_b64encode(hmac.digest(own, b"logins of browsers", "sha256")))
        self._now = now
        self._used: dict[str, float] = {}
        """The states of logins that have counted, and when they end."""

    def begin(self, redirect: str, *, is_fresh: bool = False) -> tuple[BrowserLogin, str]:
        """Begin a login that leads to a URL of ours; return it, and sealed."""
        state, nonce, verifier = (secrets.token_urlsafe(_SECRET_BYTES) for _ in range(3))
        made = BrowserLogin(redirect, state, nonce, verifier, int(self._now()), is_fresh)
        sealed = self._seal.encrypt_at_time(json.dumps(asdict(made)).encode(), made.began).decode()
        # A cookie with the padding would need quotes.
        return made, sealed.rstrip("=")

    def open(self, sealed: str, state: str) -> BrowserLogin | None:
        """Return a login that comes back; None: it is not one of ours and of this state, has counted, or is too old.

        Args:
            sealed: the login that the browser has kept.
            state: the state that has come back in the URL.
        """
        if not state or len(sealed) > _MAX_SEALED:
            return None
        try:
            # The seal holds the time at which it was made.
            padded = sealed + "=" * (-len(sealed) % 4)
            opened = self._seal.decrypt_at_time(padded.encode(), LOGIN_S, int(self._now()))
            found = BrowserLogin(**json.loads(opened))
        except (InvalidToken, ValueError, TypeError):
            return None
        if not hmac.compare_digest(found.state.encode(), state.encode()) or found.state in self._used:
            return None
        return found

    def use(self, login: BrowserLogin) -> bool:
        """Have a login count that the provider has confirmed; return false if it has counted before."""
        now = self._now()
        if login.state in self._used:
            return False
        if len(self._used) >= _MAX_USED:
            self._used = {state: end for state, end in self._used.items() if end > now}
        if len(self._used) >= _MAX_USED:
            del self._used[next(iter(self._used))]
        self._used[login.state] = now + LOGIN_S
        return True


class ProviderProof:
    """The proof of a session by a provider, which is renewed there as long as it gives one.

    Args:
        provider: the user's provider.
        given: the first proof.
        wall: returns seconds since 1970 UTC.

    Attributes:
        requester: the requester as the provider states it by now.
    """

    def __init__(self, provider: OidcProvider, given: BrowserProof, wall: Callable[[], float]) -> None:
        self.requester = _requester(given.identity)
        self._provider = provider
        self._given = given
        self._wall = wall
        self._renewing: asyncio.Task[bool] | None = None

    async def holds(self) -> bool:
        """Return whether it has not ended, or could be renewed.

        Raises:
            RequestError: 503, when the provider has to be asked and does not answer.
        """
        if self._wall() < (self._given.identity.expires_at or 0):
            return True
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(), name="renew a proof")
        try:
            # Other requests of the session wait for the same answer.
            return await asyncio.shield(self._renewing)
        except UnavailableError as error:
            raise RequestError(503, f"the identity provider does not answer: {error}") from None

    async def _renew(self) -> bool:
        try:
            self._given = await self._provider.renew(self._given)
        except TokenError as error:
            _log.info("a session has ended: %s", error)
            return False
        finally:
            self._renewing = None
        self.requester = _requester(self._given.identity)
        return self._wall() < (self._given.identity.expires_at or 0)


class BearerVerifier(Protocol):
    """Verifies tokens of an identity provider, and lets browsers log in there."""

    @property
    def login_name(self) -> str:
        """The name of the OpenID provider on the login page; empty: browsers cannot log in there."""

    async def login_url(self, login: BrowserLogin) -> str:
        """Return where a browser logs in; see ``OidcProvider``."""

    async def redeem(self, login: BrowserLogin, code: str, issuer: str) -> ProviderProof | None:
        """Return the proof of who has logged in with a browser; None: the provider refuses, or did not ask anew."""

    async def requester_of(self, token: str) -> Requester | None:
        """Return the requester of a token, None when it is invalid."""

    async def close(self) -> None:
        """Cancel questions under way."""


class OidcTokens:
    """Verifies tokens of an OpenID provider; a ``BearerVerifier``.

    Args:
        settings: the settings of the provider.
        wall: returns seconds since 1970 UTC.
        clock: returns seconds, monotonic.
    """

    def __init__(self, settings: OidcSettings, *, wall: Callable[[], float], clock: Callable[[], float]) -> None:
        self._provider = OidcProvider(settings, wall=wall, clock=clock)
        self._wall = wall

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

    async def login_url(self, login: BrowserLogin) -> str:
        """Return where a browser logs in; see ``OidcProvider``."""
        return await self._provider.login_url(
            login.redirect, login.state, login.nonce, login.challenge, is_fresh=login.is_fresh
        )

    async def redeem(self, login: BrowserLogin, code: str, issuer: str) -> ProviderProof | None:
        """Return the proof of who has logged in with a browser; None: the provider refuses, or did not ask anew."""
        max_age_s = self._wall() - login.began if login.is_fresh else None
        try:
            given = await self._provider.judge_code(
                code, login.redirect, login.verifier, login.nonce, issuer, max_age_s=max_age_s
            )
        except TokenError as error:
            _log.info("a login at the provider is refused: %s", error)
            return None
        return ProviderProof(self._provider, given, self._wall)

    async def close(self) -> None:
        """Cancel questions under way."""
        await self._provider.close()


def _requester(found: Identity) -> Requester:
    groups = tuple(f"{PREFIX}{group}" for group in found.groups)
    return Requester.known(f"{PREFIX}{found.username}", groups)
