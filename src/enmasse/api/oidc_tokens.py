"""Tokens of an OpenID provider, by which people use the API.

Users and groups get the prefix ``oidc:``. So nobody at the provider is taken for an account of ours, nor for an
administrator, whatever their name is.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from enmasse.api.status import RequestError
from enmasse.errors import UnavailableError
from enmasse.identity.errors import TokenError
from enmasse.identity.requester import Requester
from enmasse.net.oidc_provider import OidcProvider

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.identity.oidc_settings import OidcSettings

__all__ = ["PREFIX", "OidcTokens"]

PREFIX: Final = "oidc:"

_log = logging.getLogger(__name__)


class OidcTokens:
    """Judges tokens; a ``BearerVerifier``.

    Args:
        settings: what is agreed with the provider.
        wall: seconds since 1970 UTC.
        clock: seconds that nobody sets back.
    """

    def __init__(self, settings: OidcSettings, *, wall: Callable[[], float], clock: Callable[[], float]) -> None:
        self._provider = OidcProvider(settings, wall=wall, clock=clock)

    async def requester_of(self, token: str) -> Requester | None:
        """Return whom a token names, None when it is worth nothing.

        Raises:
            RequestError: 503, when the provider's keys are needed and it does not answer.
        """
        try:
            found = self._provider.judge(token) or await self._provider.fetch_and_judge(token)
        except TokenError as error:
            _log.info("a token for the API is refused: %s", error)
            return None
        except UnavailableError as error:
            raise RequestError(503, f"the provider of identities cannot be asked now: {error}") from None
        groups = tuple(f"{PREFIX}{group}" for group in found.groups)
        return Requester.known(f"{PREFIX}{found.username}", groups)

    async def close(self) -> None:
        """Give up what is under way."""
        await self._provider.close()
