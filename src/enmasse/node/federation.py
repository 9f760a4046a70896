"""Spaces whose users somebody else knows: which, and by whose word.

What a space's record says is looked at whenever it matters, so there is nothing to be told of changes. A node
without such spaces loads nothing that they need.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from enmasse.errors import ConfigError
from enmasse.identity.oidc_settings import OidcSettings, read_settings
from enmasse.identity.tokens import Judged, Judgement

if TYPE_CHECKING:
    from enmasse.identity.directory import UserDirectory
    from enmasse.identity.users import User
    from enmasse.node.entity_fields import Record
    from enmasse.node.oidc_judges import OidcJudges

__all__ = ["EXTERNAL", "Federation"]

EXTERNAL = "external"
"""The kind of authentication of such a space."""

_log = logging.getLogger(__name__)


class Federation:
    """Knows the users of all spaces whose authentication is external; a ``TokenAuthority``.

    Args:
        records: the spaces' attributes, by name.
        users: who has rights in spaces of the node.
        wall: seconds since 1970 UTC.
        clock: seconds that nobody sets back.
        settled: called before a judgement that took its time is told.
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
        """Space to the map that its settings were read from, and them."""
        self._judges: OidcJudges | None = None

    def knows(self, space: str) -> bool:
        """Whether the users of a space are known elsewhere."""
        record = self._records.get(space)
        return record is not None and record.get("authentication") == EXTERNAL

    def settings_of(self, space: str) -> OidcSettings | None:
        """What is agreed with the provider of a space; nothing if nothing is, so that nobody can come in."""
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
        """Whether the provider of a space can check passwords."""
        settings = self.settings_of(space)
        return settings is not None and settings.password_grant

    def judge_token(self, token: str, space: str) -> Judged:
        """Who the bearer of a token is in a space."""
        settings = self.settings_of(space)
        return _NOBODY if settings is None else self._judge.token(token, space, settings)

    def judge_password(self, user: str, password: str, space: str) -> Judged:
        """Whether a password is the one of a user of a space."""
        settings = self.settings_of(space)
        if settings is None or not settings.password_grant:
            return _NOBODY
        return self._judge.password(user, password, space, settings)

    def judge_again(self, user: User) -> User | None:
        """A user that was let in, as it is now; nothing if it may not stay."""
        settings = self.settings_of(user.space)
        return None if settings is None else self._judge.again(user, settings)

    def prepare(self) -> None:
        """Have the keys of all providers here before they are needed, and forget those that are not any more."""
        used = {settings for space in self._records if (settings := self.settings_of(space)) is not None}
        for settings in used:
            self._judge.provider(settings).prepare()
        if self._judges is not None:
            self._judges.keep(used)

    @property
    def _judge(self) -> OidcJudges:
        if self._judges is None:
            # HTTP and the libraries for signatures take time and memory to load.
            from enmasse.node.oidc_judges import OidcJudges  # noqa: PLC0415

            self._judges = OidcJudges(self._users, wall=self._wall, clock=self._clock, settled=self._settled)
        return self._judges

    async def close(self) -> None:
        """Give up what is under way."""
        if self._judges is not None:
            await self._judges.close()


_NOBODY: Judged = Judgement(reason="nothing is agreed with a provider of identities")
