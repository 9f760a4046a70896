"""The numbers that processes of spaces run as: each belongs to one installation of the machine at a time.

A host that starts ends whatever runs as its numbers, so two must never have the same: each holds a lock for
every one of its numbers as long as it lives. The kernel lets go of them when it dies.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import random
from collections.abc import Iterable
from pathlib import Path

from enmasse.errors import ConfigError

__all__ = ["USERS", "UserNumbers"]

USERS = range(52_000, 58_000)
"""Below what systems give out by themselves, and within what a user namespace has."""

_LOCKS = Path("/run/enmasse/pipeline-users")


class UserNumbers:
    """Those of one host.

    Args:
        locks: folder of the locks; the same for all installations of a machine.
    """

    def __init__(self, locks: Path = _LOCKS) -> None:
        self._locks = locks
        self._held: dict[int, int] = {}

    def close(self) -> None:
        """Let go of all."""
        while self._held:
            os.close(self._held.popitem()[1])

    def take(self, number: int) -> bool:
        """Have a number for as long as this process lives; whether no other host has it.

        Raises:
            ConfigError: the lock cannot be made.
        """
        if number in self._held:
            return True
        try:
            self._locks.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self._locks / str(number), os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"{self._locks / str(number)} cannot be made: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._held[number] = lock
        return True

    def take_any(self, taken: Iterable[int | None]) -> int:
        """Have a number that is nobody's yet.

        Args:
            taken: numbers of this installation.

        Raises:
            ConfigError: there is none.
        """
        refused = set(taken)
        # At different places, so that what one installation left is seldom another's number later on.
        begin = random.randrange(len(USERS))  # noqa: S311  # to spread, not to hide
        numbers: list[int] = [*USERS[begin:], *USERS[:begin]]
        for number in numbers:
            if number not in refused and not _is_somebody(number) and self.take(number):
                return number
        raise ConfigError(f"all numbers from {USERS.start} to {USERS.stop - 1} are taken by spaces or users")


def _is_somebody(number: int) -> bool:
    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True
