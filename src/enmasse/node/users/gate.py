"""The state that all logins of a node share: users, open spaces, failed attempts, and each user's connections."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from enmasse.identity.login import TokenAuthority
from enmasse.identity.passwords import Passwords
from enmasse.identity.throttle import LoginReport, LoginStep, LoginThrottle, network_of
from enmasse.identity.users import User, Users
from enmasse.node.tenancy import Names

if TYPE_CHECKING:
    from enmasse.identity.passwords import PasswordChecker
    from enmasse.identity.users import UserDirectory
    from enmasse.node.devices.devices import Devices
    from enmasse.node.entity_records import Record


OPEN, STANDARD = "none", "standard"
"""The types of a space's authentication."""

MAX_USER_CONNECTIONS = 1_000
"""The connections of one user: enough for a fleet that shares a name, and too few for a client in a loop to take all
sockets."""


class GateOptions:
    """The operator's options for logins.

    Args:
        allow_insecure_plain: accept passwords that are sent without TLS.
        allow_anonymous: let clients on other machines enter spaces that have no users.
        max_user_connections: the most connections of one user; 0 is without limit.
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
    """Decides on logins as far as that concerns more than one connection.

    Args:
        records: the spaces' attributes, by name; without them everybody may enter every space.
        clock: returns the time in seconds, by which failed attempts expire.
        options: the operator's options.
        tokens: verifies bearer tokens; without it they are not offered.
        checker: checks passwords; without it they are checked at once, while everything else waits.
    """

    def __init__(
        self,
        records: Mapping[str, Record] | None,
        clock: Callable[[], float],
        options: GateOptions | None = None,
        tokens: TokenAuthority | None = None,
        checker: PasswordChecker | None = None,
    ) -> None:
        self.users: UserDirectory = Users(seed=secrets.token_bytes(32))
        self.options = options or GateOptions()
        self.tokens = tokens
        self.passwords = Passwords(secrets.token_bytes(32), checker)
        self.names = Names()
        """The meaning of host names."""
        self.devices: Devices | None = None
        """The devices, which log in by credentials of their own; None: there are none."""
        self.logins = LoginThrottle()
        """The recent failed logins."""
        self.report: Callable[[LoginReport], None] = lambda _report: None
        """Tells other nodes of a step of a login, so that all count alike."""
        self.refused = 0
        """The number of refused logins since the start."""
        self._records = records
        self._clock = clock
        self._connections: Counter[tuple[str, str]] = Counter()
        self._under_way: Counter[tuple[str, str, str, int]] = Counter()

    def is_open(self, space: str, *, is_here: bool = True) -> bool:
        """Return true if everybody may enter a space: from this machine, and if that is allowed, from others."""
        if self._records is None:
            return True
        if not is_here and not self.options.allow_anonymous:
            return False
        record = self._records.get(space)
        return record is not None and record.get("authentication", OPEN) == OPEN

    def must_wait(self, host: str, space: str, user: str) -> bool:
        """Return true if too many recent logins failed, of a user, or in its space from the same network."""
        return self.logins.must_wait(host, space, user, self._clock())

    def must_wait_on(self, host: str, space: str, user: str) -> bool:
        """Return true if a login under way must wait after all, as too many others have failed nearby."""
        return self.logins.must_wait_on(host, space, user, self._clock())

    def failed(self, host: str, space: str, user: str) -> None:
        """Count a failed login."""
        self.refused += 1
        self._count(LoginStep.FAILED, host, space, user)

    def begun(self, host: str, space: str, user: str, guess: int) -> Callable[[], None]:
        """Count a password as failed while it is being checked.

        Args:
            host: the client's host.
            space: the space of the login.
            user: the user's name.
            guess: identifies the password: the same one is one guess, however many clients of a network send it.

        Returns:
            A function to call once the answer has come.
        """
        key = (network_of(host), space, user, guess)
        self._under_way[key] += 1
        if self._under_way[key] == 1:
            self._count(LoginStep.STARTED, host, space, user)

        def decided() -> None:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]
                self._count(LoginStep.FINISHED, host, space, user)

        return decided

    def came_in(self, host: str, space: str, user: str) -> None:
        """Count a successful login."""
        self._count(LoginStep.SUCCEEDED, host, space, user)

    def _count(self, step: LoginStep, host: str, space: str, user: str) -> None:
        report = LoginReport(step, network_of(host), space, user)
        self.logins.count(report, self._clock())
        self.report(report)

    def reported(self, report: LoginReport) -> None:
        """Count a step of a login at another node of this machine."""
        self.logins.count(report, self._clock())

    def entered(self, user: User) -> bool:
        """Count a connection of a user; return false, and count nothing, if it is one too many."""
        key = (user.space, user.name)
        most = self.options.max_user_connections
        if most and self._connections[key] >= most:
            return False
        self._connections[key] += 1
        return True

    def left(self, user: User) -> None:
        """Count a closed connection of a user."""
        key = (user.space, user.name)
        self._connections[key] -= 1
        if self._connections[key] <= 0:
            del self._connections[key]
