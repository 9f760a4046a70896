"""Verifies tokens and passwords with OpenID providers: at once if the keys are here, otherwise later.

A correct password is cached for a short time, so that a fleet which reconnects does not overload its provider. The
cache holds signatures by a secret of this process, never passwords.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any

from enmasse.errors import UnavailableError
from enmasse.identity.errors import TokenError
from enmasse.identity.federation import federated_user
from enmasse.identity.login import Judged, Judgement
from enmasse.identity.oidc import Identity
from enmasse.identity.oidc_settings import OidcSettings
from enmasse.net.oidc_provider import OidcProvider
from enmasse.node.patterns import matcher_of
from enmasse.pending import Pending

if TYPE_CHECKING:
    from enmasse.identity.users import User, UserDirectory

MAX_VERIFYING = 1_024
"""The most logins that wait for providers; each holds a connection and its token."""

MAX_CACHED = 4_096
"""The most cached passwords; the oldest go first."""

_log = logging.getLogger(__name__)


class OidcVerifiers:
    """The providers of a node, and the passwords that they confirmed.

    Args:
        users: returns the node's users, for their permissions in spaces.
        wall: returns seconds since 1970 UTC.
        clock: returns monotonic seconds.
        settled: called before the result of a verification that had to wait is passed on.
    """

    def __init__(
        self,
        users: Callable[[], UserDirectory],
        *,
        wall: Callable[[], float],
        clock: Callable[[], float],
        settled: Callable[[], object],
    ) -> None:
        self._users = users
        self._wall = wall
        self._clock = clock
        self._settled = settled
        self._providers: dict[OidcSettings, OidcProvider] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._secret = secrets.token_bytes(32)
        self._cached: dict[bytes, tuple[Identity, float]] = {}
        """The identity of each cached password by its signature, and when it expires."""
        self._asked: dict[bytes, list[tuple[str, OidcSettings, Pending[Judgement]]]] = {}
        """The logins that wait for each password that is being verified, by its signature."""

    def provider(self, settings: OidcSettings) -> OidcProvider:
        """Return the provider for these settings; spaces with the same settings share it."""
        found = self._providers.get(settings)
        if found is None:
            # Who names another authority to trust may name one that vouches for another provider of that name.
            trusted = settings.issuer, settings.ca_cert
            same = [it for it in self._providers.values() if (it.settings.issuer, it.settings.ca_cert) == trusted]
            keys = next((known.keys for known in same if known.keys is not None), None)
            found = OidcProvider(settings, wall=self._wall, clock=self._clock, keys=keys)
            self._providers[settings] = found
        return found

    def keep(self, used: Collection[OidcSettings]) -> None:
        """Close the providers that no space uses any more."""
        for settings in [known for known in self._providers if known not in used]:
            self._run(self._providers.pop(settings).close())

    # Verifying

    def token(self, token: str, space: str, settings: OidcSettings) -> Judged:
        """Verify a bearer token for a space."""
        provider = self.provider(settings)
        try:
            found = provider.judge(token)
        except (TokenError, UnavailableError) as error:
            return _refusal(error)
        if found is not None:
            return self._as_user(space, settings, found)
        if len(self._tasks) >= MAX_VERIFYING:
            return _TOO_MANY
        pending: Pending[Judgement] = Pending()
        self._start(
            provider.fetch_and_judge(token),
            lambda found: pending.settle(
                self._as_user(space, settings, found) if isinstance(found, Identity) else found
            ),
        )
        return pending

    def password(self, user: str, password: str, space: str, settings: OidcSettings) -> Judged:
        """Verify the password of a user of a space."""
        key = self._signature(user, password, settings)
        known = self._cached.get(key)
        if known is not None and self._clock() < known[1]:
            return self._as_user(space, settings, known[0])
        pending: Pending[Judgement] = Pending()
        if key in self._asked:
            self._asked[key].append((space, settings, pending))
            return pending
        if len(self._tasks) >= MAX_VERIFYING:
            return _TOO_MANY
        self._asked[key] = [(space, settings, pending)]
        self._start(
            self.provider(settings).judge_password(user, password),
            lambda found: self._password_verified(key, found),
        )
        return pending

    def _password_verified(self, key: bytes, found: Identity | Judgement) -> None:
        waiting = self._asked.pop(key)
        if isinstance(found, Identity):
            lasts_s = waiting[0][1].password_cache_s
            if len(self._cached) >= MAX_CACHED:
                del self._cached[next(iter(self._cached))]
            self._cached.pop(key, None)
            self._cached[key] = (found, self._clock() + lasts_s)
        for space, settings, pending in waiting:
            pending.settle(self._as_user(space, settings, found) if isinstance(found, Identity) else found)

    def _signature(self, user: str, password: str, settings: OidcSettings) -> bytes:
        given = json.dumps([settings.issuer, settings.ca_cert, settings.client_id, settings.revision, user, password])
        return hmac.digest(self._secret, given.encode(), "sha256")

    def again(self, user: User, settings: OidcSettings) -> User | None:
        """Return the current state of a user that has logged in, or None if it may not stay."""
        identity = user.identity
        if identity is None or identity.issuer != settings.issuer:
            return None
        now = self._as_user(user.space, settings, identity).user
        # A user that has lost its own permissions has to go, whatever its token may grant.
        return None if now is None or (user.is_listed and not now.is_listed) else now

    def _as_user(self, space: str, settings: OidcSettings, identity: Identity) -> Judgement:
        listed = self._users().find(space, identity.username)
        user = federated_user(space, identity, listed, settings, matcher_of)
        reason = "" if user is not None else "neither a MessagingUser nor the token grants anything"
        return Judgement(user, reason)

    # What takes time

    def _start(self, work: Coroutine[Any, Any, Identity], settle: Callable[[Identity | Judgement], None]) -> None:
        async def run() -> None:
            found: Identity | Judgement
            try:
                found = await work
            except (TokenError, UnavailableError) as error:
                found = _refusal(error)
            except Exception:  # noqa: BLE001  the client that waits needs an answer
                _log.exception("verifying a login failed")
                found = Judgement(reason="verifying failed", is_temporary=True)
            self._settled()
            settle(found)

        self._run(run())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="ask a provider")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel the verifications that are under way, and close the providers."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for provider in self._providers.values():
            await provider.close()
        self._providers.clear()


def _refusal(error: TokenError | UnavailableError) -> Judgement:
    if isinstance(error, TokenError):
        return Judgement(reason=error.description)
    return Judgement(reason=f"the provider of identities cannot be asked: {error}", is_temporary=True)


_TOO_MANY = Judgement(reason=f"{MAX_VERIFYING} logins wait for providers already", is_temporary=True)
