"""Spaces whose users an OpenID provider knows (authentication ``external``), and their settings.

A space's record is read whenever it matters, so changes need no notification. A node without such spaces imports
nothing that they need.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from enmasse.errors import ConfigError
from enmasse.identity.login import Judged, Judgement
from enmasse.identity.oidc_settings import OidcSettings, read_settings

if TYPE_CHECKING:
    from enmasse.identity.users import User, UserDirectory
    from enmasse.node.entity_records import Record
    from enmasse.node.users.oidc_verifiers import OidcVerifiers


EXTERNAL = "external"
"""The type of authentication of such a space."""

_log = logging.getLogger(__name__)


class Federation:
    """The ``TokenAuthority`` of all spaces whose authentication is external.

    Args:
        records: the spaces' attributes, by name.
        users: returns the node's users, for their permissions in spaces.
        wall: returns seconds since 1970 UTC.
        clock: returns monotonic seconds.
        settled: called before the result of a verification that had to wait is passed on.
    """

    def __init__(
        self,
        records: Mapping[str, Record],
        users: Callable[[], UserDirectory],
        *,
        wall: Callable[[], float],
        clock: Callable[[], float],
        settled: Callable[[], object] = lambda: None,
    ) -> None:
        self._records = records
        self._users = users
        self._wall = wall
        self._clock = clock
        self._settled = settled
        self._read: dict[str, tuple[object, OidcSettings | None]] = {}
        """The settings of each space, with the map that they were read from."""
        self._loaded: OidcVerifiers | None = None

    def knows(self, space: str) -> bool:
        """Return true if a provider knows the users of a space."""
        record = self._records.get(space)
        return record is not None and record.get("authentication") == EXTERNAL

    def settings_of(self, space: str) -> OidcSettings | None:
        """Return the settings for a space's provider, or None if there are none and so nobody can log in."""
        fields = (self._records.get(space) or {}).get("oidc") if self.knows(space) else None
        if fields is None:
            self._read.pop(space, None)
            return None
        known = self._read.get(space)
        if known is None or known[0] is not fields:
            try:
                settings = read_settings("oidc", fields)
            except ConfigError as error:
                _log.warning("nobody can enter %s: %s", space, error)
                settings = None
            known = self._read[space] = (fields, settings)
        return known[1]

    def takes_passwords(self, space: str) -> bool:
        """Return true if the provider of a space can check passwords."""
        settings = self.settings_of(space)
        return settings is not None and settings.password_grant

    def judge_token(self, token: str, space: str) -> Judged:
        """Verify a bearer token for a space."""
        settings = self.settings_of(space)
        return _NO_PROVIDER if settings is None else self._verifiers.token(token, space, settings)

    def judge_password(self, user: str, password: str, space: str) -> Judged:
        """Verify the password of a user of a space."""
        settings = self.settings_of(space)
        if settings is None or not settings.password_grant:
            return _NO_PROVIDER
        return self._verifiers.password(user, password, space, settings)

    def judge_again(self, user: User) -> User | None:
        """Return the current state of a user that has logged in, or None if it may not stay."""
        settings = self.settings_of(user.space)
        return None if settings is None else self._verifiers.again(user, settings)

    def prepare(self) -> None:
        """Fetch the keys of all providers before they are needed, and drop providers that no space uses."""
        used = {settings for space in self._records if (settings := self.settings_of(space)) is not None}
        for settings in used:
            self._verifiers.provider(settings).prepare()
        if self._loaded is not None:
            self._loaded.keep(used)

    @property
    def _verifiers(self) -> OidcVerifiers:
        if self._loaded is None:
            # HTTP and the libraries for signatures take time and memory to load.
            from enmasse.node.users.oidc_verifiers import OidcVerifiers  # noqa: PLC0415

            self._loaded = OidcVerifiers(self._users, wall=self._wall, clock=self._clock, settled=self._settled)
        return self._loaded

    async def close(self) -> None:
        """Cancel the verifications that are under way."""
        if self._loaded is not None:
            await self._loaded.close()


_NO_PROVIDER: Judged = Judgement(reason="nothing is agreed with a provider of identities")
