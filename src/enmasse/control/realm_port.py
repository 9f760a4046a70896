"""What control asks of a Keycloak: a realm for each space, and its users in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from enmasse.errors import EnmasseError

__all__ = ["ConnectRealmAdmin", "RealmAdmin", "RealmConflictError", "RealmUnavailableError", "RealmUser"]


class RealmUnavailableError(EnmasseError):
    """The Keycloak cannot be reached, or does not do what it is asked now; another attempt may end otherwise."""


class RealmConflictError(EnmasseError):
    """A realm of that name belongs to somebody else."""


@dataclass(frozen=True, slots=True)
class RealmUser:
    """A messaging user as a realm has it.

    Attributes:
        username: what it logs in with.
        uid: of the MessagingUser that it was made for.
        revision: the same if its password is the same.
        groups: the names of those that it is in.
        id: how the realm calls it; empty for one that is not there yet.
    """

    username: str
    uid: str
    revision: str
    groups: frozenset[str] = frozenset()
    id: str = field(default="", compare=False)


class RealmAdmin(Protocol):
    """The way to one Keycloak.

    Whatever cannot be done now raises ``RealmUnavailableError``. Users that nobody has made through this are not
    told of and not touched: a realm may have others, from a directory or from another provider.
    """

    async def realms(self, owner: str) -> dict[str, str]:
        """Return the realms of an owner: name to the uid of the space."""

    async def ensure_realm(self, name: str, owner: str, space_uid: str) -> None:
        """See that there is a realm with a client that can be given tokens, and with no other space's users.

        Raises:
            RealmConflictError: it is not the owner's.
        """

    async def delete_realm(self, name: str) -> None:
        """Remove a realm with all users; one that is not there is removed already."""

    async def users(self, realm: str) -> dict[str, RealmUser]:
        """Return all messaging users of a realm by name."""

    async def find_user(self, realm: str, username: str) -> RealmUser | None:
        """Return one messaging user of a realm."""

    async def put_user(
        self, realm: str, user: RealmUser, present: RealmUser | None, password: Mapping[str, Any] | None
    ) -> None:
        """Make a user, or make one what it should be.

        Args:
            realm: where.
            user: what it should be.
            present: what it is; None: it is not there.
            password: its hash, as ``identity.keycloak.hashed_password`` gives it; None: it has none.

        Raises:
            RealmConflictError: there is another user of that name, which was not made through this.
        """

    async def delete_user(self, realm: str, user: RealmUser) -> None:
        """Remove a user; one that is not there is removed already."""

    async def close(self) -> None:
        """Give up what is under way."""


ConnectRealmAdmin = Callable[[str, str, str, str], RealmAdmin]
"""From URL, administrator's name, password and PEM of authorities (empty: the system's) to the way there."""
