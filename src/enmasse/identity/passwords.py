"""Passwords of our own users: checked once, slowly, and remembered while they are right.

Rules:
1. A check is handed to a ``PasswordChecker``, which may answer later; until then it waits in turn with others.
2. Immediately before it is done it is asked about once more: the password may be known by now, the client gone, or
   too many logins may have failed meanwhile.
3. Refusing a password takes as long as with the user of the space whose check costs most, whether there is the user
   or not: what is missing is spent on keys that are made up, in the same queue.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from enmasse.errors import RemoteError
from enmasse.identity.password_checks import PasswordCheck, scram_check
from enmasse.identity.users import PasswordCost, ScramKeys, User, UserDirectory, password_cost
from enmasse.pending import Pending
from enmasse.wire.sasl.scram import HASHES, sign

# Logins, and the passwords that they are decided by, know each other.
if TYPE_CHECKING:
    from enmasse.identity.login import LoginTarget

REMEMBERED = 32_768
"""Passwords that are known to be right: a fleet that comes back is to find its own. Each takes 250 bytes."""


class Postponed(Enum):
    """Why a password was not looked at; another attempt may succeed. The values are for the log."""

    BUSY = "too many passwords wait to be checked"
    FAILED = "the password could not be checked"
    GUESSES = "too many logins have failed"
    GONE = "the client has gone"


Checked = bool | Postponed
"""The outcome of a check: right or wrong, or postponed with the reason."""


class PasswordClient(Protocol):
    """A client that has sent a password.

    Attributes:
        host: the host, or network, that it connects from.
    """

    @property
    def host(self) -> str:
        """The host, or network, that it connects from."""

    def postponed(self) -> Postponed | None:
        """Return the reason why its password is not to be looked at now, if there is one."""


class PasswordChecker(Protocol):
    """Does what is slow about passwords."""

    def check(
        self, check: PasswordCheck, space: str, host: str, known: Callable[[], Checked | None]
    ) -> Checked | Pending[Checked]:
        """Check a password, at once or later.

        Args:
            check: the password and what is stored.
            space: the space that the client wants to enter; it is shared with fairly.
            host: the host from which the client connects; the same.
            known: returns what has become known meanwhile and makes the check unnecessary; called before it is done.
        """


class DirectChecker:
    """Checks passwords at once, while everything else waits."""

    def check(self, check: PasswordCheck, space: str, host: str, known: Callable[[], Checked | None]) -> Checked:
        """Check a password."""
        return check.is_right()


class _Here:
    """A client that nothing is known of."""

    host = ""

    def postponed(self) -> Postponed | None:
        """Return nothing."""
        return None


SOMEBODY = _Here()


def is_password_of(keys: Mapping[str, ScramKeys], password: str) -> bool:
    """Return whether keys belong to a password; slow on purpose.

    Raises:
        RemoteError: the password contains a forbidden character.
    """
    cost = password_cost(keys)
    return cost is not None and _check(cost.mechanism, keys[cost.mechanism], password).is_right()


def _made_up(users: UserDirectory, cost: PasswordCost, space: str, name: str) -> ScramKeys:
    return replace(users.decoy_keys(cost.mechanism, space, name), iterations=cost.iterations)


def _check(mechanism: str, keys: ScramKeys, password: str) -> PasswordCheck:
    return scram_check(HASHES[mechanism], password, keys.salt, keys.iterations, keys.stored)


class Passwords:
    """Has passwords checked, and caches the correct ones, because checking is slow on purpose.

    The cache holds signatures of passwords, which are useless without the secret.

    Args:
        secret: random bytes that do not leave this process.
        checker: does the checks.
    """

    def __init__(self, secret: bytes, checker: PasswordChecker | None = None) -> None:
        self._secret = secret
        self.checker: PasswordChecker = checker or DirectChecker()
        self._correct: dict[bytes, bytes] = {}
        """The stored key of a user, to the signature of the correct password."""

    def check(
        self,
        users: UserDirectory,
        target: LoginTarget,
        user: User | None,
        password: str,
        client: PasswordClient = SOMEBODY,
    ) -> Checked | Pending[Checked]:
        """Return whether a password is correct; refusing an unknown user takes as long."""
        space = target.space or ""
        most, own = users.password_cost(space), None if user is None else password_cost(user.keys)
        spent = own or most
        keys = None if user is None or own is None else user.keys[own.mechanism]
        tried = keys or _made_up(users, most, space, target.user)
        signature = sign("sha256", self._secret, tried.stored + password.encode("utf-8", "surrogatepass"))
        if self._is_correct(tried.stored, signature):
            return True
        try:
            check = _check(spent.mechanism, tried, password)
        except RemoteError:
            return False

        def known() -> Checked | None:
            return True if self._is_correct(tried.stored, signature) else client.postponed()

        def decide(found: Checked) -> Checked | Pending[Checked]:
            if found is True and keys is not None:  # no password matches a decoy
                self._remember(tried.stored, signature)
                return True
            if isinstance(found, Postponed) or not (left := most.less(spent)).iterations:
                return found if isinstance(found, Postponed) else False
            rest = _check(left.mechanism, _made_up(users, left, space, target.user), password)
            waiting = self.pretend(rest, space, client)
            return waiting.map(lambda _: False) if isinstance(waiting, Pending) else False

        found = self.checker.check(check, space, client.host, known)
        return found.chain(decide) if isinstance(found, Pending) else decide(found)

    def check_stored(
        self, check: PasswordCheck, stored: bytes, password: str, owner: str, client: PasswordClient = SOMEBODY
    ) -> Checked | Pending[Checked]:
        """Return whether a password is the one of which something else than keys of SCRAM is stored.

        Args:
            check: the password and what is stored.
            stored: the stored key, by which the password is remembered.
            password: the password, as it was sent.
            owner: with whom places among those that wait are shared fairly, as with a space.
            client: the client who has sent it.
        """
        signature = sign("sha256", self._secret, stored + password.encode("utf-8", "surrogatepass"))
        if self._is_correct(stored, signature):
            return True

        def known() -> Checked | None:
            return True if self._is_correct(stored, signature) else client.postponed()

        def decide(found: Checked) -> Checked:
            if found is True:
                self._remember(stored, signature)
            return found

        found = self.checker.check(check, owner, client.host, known)
        return found.map(decide) if isinstance(found, Pending) else decide(found)

    def pretend(self, check: PasswordCheck, owner: str, client: PasswordClient) -> Checked | Pending[Checked]:
        """Have a check done whose outcome is known, so that a refusal takes as long as another one.

        Args:
            check: against something made up.
            owner: as in ``check_stored``.
            client: the same.
        """
        return self.checker.check(check, owner, client.host, client.postponed)

    def _is_correct(self, stored: bytes, signature: bytes) -> bool:
        found = self._correct.get(stored)
        return found is not None and hmac.compare_digest(found, signature)

    def _remember(self, stored: bytes, signature: bytes) -> None:
        if stored not in self._correct and len(self._correct) >= REMEMBERED:
            del self._correct[next(iter(self._correct))]
        self._correct[stored] = signature
