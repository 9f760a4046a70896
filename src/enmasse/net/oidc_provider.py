"""Verifies tokens and passwords with one OpenID provider.

Rules:
1. Keys are used until newer ones are fetched: while the provider cannot be reached, tokens signed with a known key
   stay valid.
2. A token that no known key has signed makes the keys be fetched again, once in ``REFETCH_S`` at most, however many
   such tokens come. Keys that nobody has looked at for ``STALE_S`` are fetched again before they are used.
3. Few passwords are verified at a time, and few wait: each of them costs the provider much time.
4. A provider that a tenant has named is asked at public addresses alone (``net/egress.py``), wherever its description
   of itself leads.
5. Nothing follows a redirect, reads more than ``MAX_ANSWER_BYTES``, or takes longer than ``DEADLINE_S``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx

from enmasse.errors import ConfigError, UnavailableError
from enmasse.identity.errors import TokenError, UnknownKeyError
from enmasse.identity.oidc import Identity, IdToken, KeySet, read_discovery, verify_id_token, verify_token
from enmasse.identity.oidc_settings import OidcSettings, check_provider_url, is_loopback
from enmasse.net.egress import WEBHOOKS, EgressError, Reach, trust_of
from enmasse.net.egress_http import Egress

REFETCH_S = 10.0
"""Seconds between two fetches of keys that tokens cause; a new key is known that much later at worst."""

REFRESH_S = 300.0
"""The age in seconds from which on keys that are used are fetched again in the background, so that withdrawn ones are
dropped."""

STALE_S = 2 * REFRESH_S
"""The age in seconds from which on keys are fetched again before they are used, unless the provider is away: so a
withdrawn one does not count for longer, however seldom somebody comes."""

DEADLINE_S = 10.0
"""Seconds for an answer with everything that it needs; a client's login waits for it."""

REQUEST_S = 5.0
"""Seconds for one request; so a slow one leaves time for a second."""

MAX_ASKING, MAX_WAITING = 8, 256
"""The passwords that are verified at a time, and those that wait: Keycloak verifies some 20 per second and core, so
the last one is answered in time."""

MAX_ANSWER_BYTES = 1 << 20
"""Documents of providers have some KiB; with hundreds of keys, some hundred."""

_NO_CODE = "the provider does not know the code, or no longer"

T = TypeVar("T")

DISCOVERY = "/.well-known/openid-configuration"

_log = logging.getLogger(__name__)

# It would log each request.
logging.getLogger("httpx").setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class BrowserProof:
    """The proof of who has logged in with a browser.

    Attributes:
        identity: the identity as the provider states it, until the first of its tokens ends.
        refresh_token: gets the next proof; empty: the provider gives none.
    """

    identity: Identity
    refresh_token: str = field(default="", repr=False)


class OidcProvider:
    """One OpenID provider, its keys and its verification of passwords.

    Args:
        settings: the settings for the provider.
        wall: returns seconds since 1970 UTC.
        clock: returns monotonic seconds, for the limits of requests.
        keys: the provider's keys, if they are known already.
    """

    def __init__(
        self,
        settings: OidcSettings,
        *,
        wall: Callable[[], float],
        clock: Callable[[], float],
        keys: KeySet | None = None,
    ) -> None:
        self.settings = settings
        self.keys = keys
        self._wall = wall
        self._clock = clock
        self._http: httpx.AsyncClient | None = None
        self._token_endpoint = ""
        self._authorization_endpoint = ""
        self._names_issuer = False
        self._asked_at: float | None = None
        self._failure: str | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._waiting = 0
        self._asking = asyncio.Semaphore(MAX_ASKING)

    # Tokens

    def judge(self, token: str) -> Identity | None:
        """Return the identity of a token's bearer, or None if keys have to be fetched: see ``fetch_and_judge``.

        Raises:
            TokenError: the token is not good.
            UnavailableError: the provider has just failed to give the keys that would be needed.
        """
        keys = self.keys
        if keys is not None and not self._is_stale:
            try:
                found = verify_token(token, self.settings, keys, self._wall())
            except UnknownKeyError:
                if self._is_spared and self._failure is None and self._fetching is None:
                    raise
            else:
                if self._asked_at is None or self._clock() - self._asked_at > REFRESH_S:
                    self.refresh()
                return found
        if self._is_spared and self._fetching is None:
            raise UnavailableError(self._failure or "the provider has given no keys")
        return None

    async def fetch_and_judge(self, token: str) -> Identity:
        """Fetch keys if that may help, and return the identity of a token's bearer.

        Raises:
            TokenError: the token is not good.
            UnavailableError: the provider cannot be asked now.
        """
        if not self._is_spared or self._fetching is not None:
            await self._fetched()
        if self.keys is None:
            raise UnavailableError(self._failure or "the provider has given no keys")
        try:
            return verify_token(token, self.settings, self.keys, self._wall())
        except UnknownKeyError:
            if self._failure is not None:
                raise UnavailableError(self._failure) from None
            raise

    @property
    def _is_stale(self) -> bool:
        """True if the keys are old, although the provider answers as far as is known."""
        return self._failure is None and self._asked_at is not None and self._clock() - self._asked_at > STALE_S

    @property
    def _is_spared(self) -> bool:
        return self._asked_at is not None and self._clock() - self._asked_at < REFETCH_S

    def prepare(self) -> None:
        """Fetch the keys in the background, if that has never been tried."""
        if self._asked_at is None:
            self.refresh()

    def refresh(self) -> None:
        """Fetch the keys in the background."""
        if self._fetching is None:
            self._asked_at = self._clock()
            self._fetching = asyncio.get_running_loop().create_task(self._fetch(), name="fetch keys")

    async def _fetched(self) -> None:
        self.refresh()
        assert self._fetching is not None
        # Others wait for the same answer, so a client that leaves must not cancel it.
        await asyncio.shield(self._fetching)

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                issuer = self.settings.issuer
                said = await self._get(issuer.rstrip("/") + DISCOVERY)
                named = read_discovery(said, issuer)
                self._token_endpoint, self._authorization_endpoint = named.token, named.authorization
                self._names_issuer = said.get("authorization_response_iss_parameter_supported") is True
                self.keys = KeySet(await self._get(named.keys))
        except (TokenError, UnavailableError, ConfigError) as error:
            self._failed(error.description if isinstance(error, TokenError) else str(error))
        except TimeoutError:
            self._failed(f"no answer within {DEADLINE_S:.0f} s")
        else:
            if self._failure is not None:
                _log.info("the OpenID provider %s answers again", self.settings.issuer)
            self._failure = None
        finally:
            self._fetching = None

    def _failed(self, reason: str) -> None:
        kept = "; the keys that are known go on being used" if self.keys is not None else ""
        _log.warning("the OpenID provider %s gives no keys: %s%s", self.settings.issuer, reason, kept)
        self._failure = reason

    # Passwords

    async def judge_password(self, user: str, password: str) -> Identity:
        """Return the identity of a user whose password the provider confirms.

        Raises:
            TokenError: it is not right, or the provider does not say for whom.
            UnavailableError: the provider cannot be asked now.
        """
        if self._waiting >= MAX_WAITING:
            raise UnavailableError(f"{MAX_WAITING} others wait for the provider already")
        self._waiting += 1
        try:
            async with asyncio.timeout(DEADLINE_S), self._asking:
                return await self._show_password(user, password)
        except TimeoutError:
            raise UnavailableError(f"no answer within {DEADLINE_S:.0f} s") from None
        except ConfigError as error:
            raise UnavailableError(str(error)) from None
        finally:
            self._waiting -= 1

    async def _show_password(self, user: str, password: str) -> Identity:
        form = {"grant_type": "password", "username": user, "password": password, "scope": self.settings.scopes}
        said = await self._exchange(form, "wrong password")
        # Access tokens of some providers are opaque; the ID token is always for this client.
        reason = TokenError("the provider gives no token")
        access, id_token = said.get("access_token"), said.get("id_token")
        try:
            if isinstance(access, str):
                return replace(await self._given(access), expires_at=None)
        except TokenError as error:
            reason = error
        if isinstance(id_token, str):
            return replace((await self._given_id(id_token, None)).identity, expires_at=None)
        raise reason

    async def _exchange(self, form: dict[str, str], wrong: str) -> dict[str, Any]:
        """Return what the provider gives for what a form shows.

        Raises:
            TokenError: the provider refuses it, for the reason ``wrong``.
            UnavailableError: the provider cannot be asked now.
        """
        await self._discovered()
        if not self._token_endpoint:
            raise UnavailableError(self._failure or "the provider names no place to ask for tokens")
        settings = self.settings
        authentication = None
        if settings.client_secret:
            # Both are encoded before they are put together [RFC 6749 2.3.1].
            authentication = httpx.BasicAuth(quote_plus(settings.client_id), quote_plus(settings.client_secret))
        else:
            form["client_id"] = settings.client_id
        status, said = await self._ask("POST", self._token_endpoint, data=form, auth=authentication)
        code = said.get("error") if isinstance(said, dict) else None
        if status in (400, 401) and code == "invalid_grant":
            raise TokenError(wrong)
        if status != 200 or not isinstance(said, dict):
            raise UnavailableError(f"the provider answers with status {status} {code or ''!s:.100}")
        return said

    async def _given(self, token: str) -> Identity:
        """Return the identity in an access token that the provider has just given."""
        return await self._with_keys(lambda keys: verify_token(token, self.settings, keys, self._wall()))

    async def _given_id(self, token: str, nonce: str | None) -> IdToken:
        """Return an ID token that the provider has just given."""
        return await self._with_keys(
            lambda keys: verify_id_token(token, self.settings, keys, self._wall(), nonce=nonce)
        )

    async def _with_keys(self, verify: Callable[[KeySet], T]) -> T:
        for is_last in (False, True):
            if self.keys is not None:
                try:
                    return verify(self.keys)
                except UnknownKeyError:
                    pass
            if is_last or (self._is_spared and self._fetching is None):
                break
            await self._fetched()
        raise UnavailableError("the provider signs with a key that it does not publish")

    # Browsers

    async def login_url(
        self, redirect: str, state: str, nonce: str, challenge: str, *, is_fresh: bool = False
    ) -> str:
        """Return where a browser logs in, which then leads it to ``redirect`` with a code.

        Args:
            redirect: our own URL.
            state: comes back with the code.
            nonce: comes back in the ID token.
            challenge: the hash of the secret that the code is exchanged with [RFC 7636].
            is_fresh: whether the provider has to ask for a proof even of a person whom it knows.

        Raises:
            UnavailableError: the provider does not answer, or names no such place.
        """
        await self._discovered()
        if not self._authorization_endpoint:
            raise UnavailableError(self._failure or "the provider names no place to log in")
        try:
            check_provider_url(
                "the provider's authorization_endpoint", self._authorization_endpoint.partition("?")[0]
            )
        except ConfigError as error:
            raise UnavailableError(str(error)) from None
        asked = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect,
            "scope": self.settings.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        } | ({"max_age": "0"} if is_fresh else {})
        joint = "&" if "?" in self._authorization_endpoint else "?"
        return f"{self._authorization_endpoint}{joint}{urlencode(asked)}"

    async def judge_code(
        self, code: str, redirect: str, verifier: str, nonce: str, issuer: str, *, max_age_s: float | None = None
    ) -> BrowserProof:
        """Return the proof of who has logged in with a browser.

        Args:
            code: the provider's code, which the browser has brought.
            redirect: our own URL, as the browser was sent away with it.
            verifier: the secret whose hash it was sent away with.
            nonce: the nonce as it was sent away with it.
            issuer: the name that the provider has sent it back under [RFC 9207]; empty: none.
            max_age_s: the age of their proof at most [OpenID Connect Core 3.1.3.7]; None: any.

        Raises:
            TokenError: the code is not right, or has been used; or it is not this provider's, or of another login.
            UnavailableError: the provider cannot be asked now.
        """
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect, "code_verifier": verifier}

        async def ask() -> BrowserProof:
            await self._discovered()
            if issuer != self.settings.issuer and (issuer or self._names_issuer):
                raise TokenError("the browser comes from another provider (iss of the authorization response)")
            return await self._read_proof(await self._exchange(form, _NO_CODE), nonce, max_age_s=max_age_s)

        return await self._in_time(ask())

    async def renew(self, proof: BrowserProof) -> BrowserProof:
        """Return the proof that takes the place of one that has ended, or ends.

        Raises:
            TokenError: the provider gives none any more.
            UnavailableError: the provider cannot be asked now.
        """
        if not proof.refresh_token:
            raise TokenError("the provider gave nothing to renew the login with")
        form = {"grant_type": "refresh_token", "refresh_token": proof.refresh_token}

        async def ask() -> BrowserProof:
            said = await self._exchange(form, "the login at the provider has ended")
            found = await self._read_proof(said, None, is_renewed=True)
            now, before = found.identity, proof.identity
            if (now.subject, now.username) != (before.subject, before.username):
                raise TokenError("the provider renews the login for somebody else")
            return found if found.refresh_token else replace(found, refresh_token=proof.refresh_token)

        return await self._in_time(ask())

    async def _read_proof(
        self,
        said: dict[str, Any],
        nonce: str | None,
        *,
        is_renewed: bool = False,
        max_age_s: float | None = None,
    ) -> BrowserProof:
        """Return the proof in an answer: the ID token, and the access token where it is for us to read."""
        access, id_token, refresh = (said.get(name) for name in ("access_token", "id_token", "refresh_token"))
        is_due = "openid" in self.settings.scopes.split() and not is_renewed
        given = await self._given_id(id_token, nonce) if isinstance(id_token, str) else None
        if given is None and is_due:
            raise TokenError("the provider gives no ID token")
        if max_age_s is not None:
            proved_at = None if given is None else given.proved_at
            if proved_at is None or self._wall() - proved_at > max_age_s + self.settings.leeway_s:
                raise TokenError("the provider did not ask for a proof anew, or does not say when it did (auth_time)")
        identity: Identity | None = None
        try:
            if isinstance(access, str):
                identity = await self._given(access)
        except (TokenError, UnavailableError):
            # It may be for somebody else to read.
            if given is None:
                raise
        if identity is None and given is not None:
            identity = given.identity
        if identity is None:
            raise TokenError("the provider gives no token")
        if given is not None:
            if identity.subject != given.subject:
                raise TokenError("the access token is of another user than the ID token (sub)")
            identity = replace(identity, expires_at=min(given.expires_at, identity.expires_at or math.inf))
        return BrowserProof(identity, refresh if isinstance(refresh, str) else "")

    async def _in_time(self, asking: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await asking
        except TimeoutError:
            raise UnavailableError(f"no answer within {DEADLINE_S:.0f} s") from None
        except ConfigError as error:
            raise UnavailableError(str(error)) from None

    async def _discovered(self) -> None:
        """Ask the provider for its URLs, if they are not known and that may help."""
        if not self._token_endpoint and (not self._is_spared or self._fetching is not None):
            await self._fetched()

    # HTTP

    async def _get(self, url: str) -> Any:
        status, said = await self._ask("GET", url)
        if status != 200:
            raise UnavailableError(f"{url} is answered with status {status}")
        return said

    async def _ask(self, method: str, url: str, **options: Any) -> tuple[int, Any]:
        """Return status and JSON of an answer.

        Raises:
            UnavailableError: there is none.
            ConfigError: the URL is not one that secrets may be sent to, or the authorities cannot be read.
        """
        check_provider_url(url.partition("?")[0], url.partition("?")[0])
        body = bytearray()
        try:
            async with self._client().stream(method, url, **options) as answer:
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > MAX_ANSWER_BYTES:
                        raise UnavailableError(f"{url} answers with more than {MAX_ANSWER_BYTES} bytes")
                status = answer.status_code
        except (EgressError, httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise UnavailableError(f"{url} does not answer: {str(error) or type(error).__name__}") from None
        try:
            return status, json.loads(body) if body else None
        except (ValueError, RecursionError):
            if status == 200:
                raise UnavailableError(f"{url} does not answer with JSON") from None
            return status, None

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            networks, trust = self.settings.networks, _trust(self.settings.ca_cert)
            is_here = is_loopback(urlsplit(self.settings.issuer).hostname or "")
            self._http = httpx.AsyncClient(
                transport=None if networks is None else Egress(Reach(WEBHOOKS, networks), trust),
                verify=trust,
                timeout=REQUEST_S,
                limits=httpx.Limits(max_connections=MAX_ASKING + 2, keepalive_expiry=30.0),
                follow_redirects=False,
                # Proxies are for other machines, and reach what nobody here has looked at.
                trust_env=networks is None and not is_here,
                headers={"Accept": "application/json"},
            )
        return self._http

    async def close(self) -> None:
        """Cancel what is under way."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)
        if self._http is not None:
            await self._http.aclose()


def _trust(ca_cert: str) -> ssl.SSLContext:
    try:
        return trust_of(ca_cert or None)
    except ValueError:
        raise ConfigError("caCert: certificates of authorities in PEM are expected") from None
