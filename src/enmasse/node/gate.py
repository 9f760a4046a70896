"""Who may come in at a node, over all its connections: users, open spaces, failed logins, how many at once."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from enmasse.identity.passwords import Passwords
from enmasse.identity.throttle import Throttle
from enmasse.identity.tokens import TokenAuthority
from enmasse.identity.users import User, Users
from enmasse.node.tenancy import Names

if TYPE_CHECKING:
    from enmasse.identity.directory import UserDirectory
    from enmasse.node.entity_fields import Record

__all__ = ["MAX_USER_CONNECTIONS", "OPEN", "STANDARD", "Gate", "GateOptions"]

OPEN, STANDARD = "none", "standard"
"""The kinds of a space's authentication."""

MAX_USER_CONNECTIONS = 1_000
"""Enough for a fleet that shares a name; a client in a loop is stopped before it takes all sockets."""

HOST_FAILURES, HOST_FORGET_S = 20, 3.0
"""A host may be the door of many clients; guessing goes on with one password in three seconds."""

USER_FAILURES, USER_FORGET_S = 5, 6.0
"""The same for one user from one host; the same user from other hosts is not locked out."""


class GateOptions:
    """What the operator decides.

    Args:
        allow_insecure_plain: whether passwords may be sent without TLS.
        allow_anonymous: whether clients on other machines may enter spaces that have no users.
        max_user_connections: how many connections one user may have; 0 is without limit.
    """

    def __init__(
        self,
        *,
        allow_insecure_plain: bool = False,
        allow_anonymous: bool = False,
        max_user_connections: int = MAX_USER_CONNECTIONS,
    ) -> None:
        self.allow_insecure_plain = allow_insecure_plain
        self.max_user_connections = max_user_connections
        self.allow_anonymous = allow_anonymous


class Gate:
    """What the connections of a node have in common when somebody wants to come in.

    Args:
        records: the spaces' attributes, by name; without them everybody may enter every space.
        clock: the time in seconds, by which failures are forgotten.
        options: what the operator decides.
        tokens: knows what bearer tokens are worth; without it they are not asked for.
    """

    def __init__(
        self,
        records: Mapping[str, Record] | None,
        clock: Callable[[], float],
        options: GateOptions | None = None,
        tokens: TokenAuthority | None = None,
    ) -> None:
        self.users: UserDirectory = Users(seed=secrets.token_bytes(32))
        self.options = options or GateOptions()
        self.tokens = tokens
        self.passwords = Passwords(secrets.token_bytes(32))
        self.names = Names()
        """What host names mean."""
        self.refused = 0
        """Logins that were refused since the start."""
        self._records = records
        self._clock = clock
        self._hosts = Throttle(HOST_FAILURES, HOST_FORGET_S)
        self._accounts = Throttle(USER_FAILURES, USER_FORGET_S)
        self._connections: Counter[tuple[str, str]] = Counter()

    def is_open(self, space: str, *, is_here: bool = True) -> bool:
        """Whether everybody may enter a space: from this machine, and if that is allowed, from others."""
        if self._records is None:
            return True
        if not is_here and not self.options.allow_anonymous:
            return False
        record = self._records.get(space)
        return record is not None and record.get("authentication", OPEN) == OPEN

    def must_wait(self, host: str, user: str = "") -> bool:
        """Whether too many logins of a host, or of a user there, have failed of late."""
        now = self._clock()
        if user:
            return self._accounts.must_wait(f"{host} {user}", now)
        return self._hosts.must_wait(host, now)

    def failed(self, host: str, user: str) -> None:
        """A login has failed; one that named nobody has guessed nothing."""
        self.refused += 1
        if user:
            now = self._clock()
            self._hosts.failed(host, now)
            self._accounts.failed(f"{host} {user}", now)

    def entered(self, user: User) -> bool:
        """A user has one more connection; false, and nothing has changed, if that is one too many."""
        key = (user.space, user.name)
        most = self.options.max_user_connections
        if most and self._connections[key] >= most:
            return False
        self._connections[key] += 1
        return True

    def has(self, space: str, name: str) -> bool:
        """Whether a user has connections."""
        return (space, name) in self._connections

    def left(self, user: User) -> None:
        """A user has one connection less."""
        key = (user.space, user.name)
        self._connections[key] -= 1
        if self._connections[key] <= 0:
            del self._connections[key]
