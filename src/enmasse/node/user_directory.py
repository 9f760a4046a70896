"""All users of a node: those of the operator's file, and those that it was told of.

Rule: the file is the operator's. A user in it comes before another of the same name, and takes its certificate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from enmasse.identity.users import Users

if TYPE_CHECKING:
    from enmasse.identity.users import ScramKeys, User
    from enmasse.node.stored_users import StoredUsers

__all__ = ["NodeUsers"]


class NodeUsers:
    """The file's users before the node's own.

    Args:
        stored: those that the node was told of.

    Attributes:
        file: those of the file, as it is now.
    """

    def __init__(self, stored: StoredUsers) -> None:
        self.file = Users()
        self._stored = stored

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not len(self.file) and self._stored.is_empty

    def find(self, space: str, name: str) -> User | None:
        """A user by name."""
        return self.file.find(space, name) or self._stored.find(space, name)

    def certified(self, names: Iterable[str], space: str | None) -> list[User]:
        """The users that a certificate with these names proves: in a space, or in any."""
        given = list(names)
        listed = self.file.certified(given, space)
        spaces = {user.space for user in listed}
        others = self._stored.certified(given, space)
        return listed + [
            user for user in others if user.space not in spaces and self.file.find(user.space, user.name) is None
        ]

    def mechanisms(self, space: str) -> set[str]:
        """The SCRAM mechanisms for which a user of a space has keys."""
        return self.file.mechanisms(space) | self._stored.mechanisms(space)

    def keys_of_nobody(self, mechanism: str, space: str, name: str) -> ScramKeys:
        """Keys that no password fits, for a user that does not exist: always the same, like a user's own."""
        source = self.file if len(self.file) else self._stored
        return source.keys_of_nobody(mechanism, space, name)
