"""The port to whoever knows the users."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from enmasse.identity.users import ScramKeys, User

__all__ = ["UserDirectory"]


class UserDirectory(Protocol):
    """Knows the users of all spaces, as they are at the moment. It answers at once."""

    def find(self, space: str, name: str) -> User | None:
        """A user by name."""

    def certified(self, names: Iterable[str], space: str | None) -> list[User]:
        """The users that a certificate with these names proves: in a space, or in any."""

    def mechanisms(self, space: str) -> set[str]:
        """The SCRAM mechanisms for which a user of a space has keys."""

    def keys_of_nobody(self, mechanism: str, space: str, name: str) -> ScramKeys:
        """Keys that no password fits, for a user that does not exist: always the same, like a user's own."""
