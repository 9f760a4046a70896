"""What control asks of a node about users."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from enmasse.control.ports import JournalOwner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["UserAdmin", "UserEntity", "UserSighting"]


@dataclass(frozen=True, slots=True)
class UserEntity:
    """A user as a node has it.

    Attributes:
        name: ``<namespace>/<space>.<username>``.
        space: ``<namespace>/<space>``.
        space_uid: of the AddressSpace.
        username: what it logs in with.
        uid: of the MessagingUser.
        generation: of its spec.
        revision: the same if all of this is the same.
        certificates: names in client certificates that prove it.
        authorization: operations and patterns, in the node's grammar.
        scram: the keys of its password by mechanism.
    """

    name: str
    space: str
    space_uid: str
    username: str
    uid: str
    generation: int
    revision: str
    certificates: tuple[str, ...] = ()
    authorization: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    scram: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class UserSighting:
    """What identifies a user of a node.

    Attributes:
        name: as of ``UserEntity``.
        uid: of the MessagingUser that it was made for.
        revision: of what the node has.
    """

    name: str
    uid: str
    revision: str


class UserAdmin(JournalOwner, Protocol):
    """The way to tell one node its users.

    Every method but ``connections`` raises ``NodeUnavailableError`` when the
    node cannot be reached, and ``NodeRefusedError`` when it says no.
    """

    def connections(self) -> AsyncIterator[bool]:
        """Yield True whenever the node has become reachable, False when it no longer is; for ever."""

    def users_after(self, name: str) -> AsyncIterator[list[UserSighting]]:
        """Yield all users in the order of their names, page by page, from beyond a name; empty: from the first."""

    async def find_user(self, name: str) -> UserSighting | None:
        """Return what the node has under a name; None: nothing."""

    async def read_user(self, name: str) -> UserEntity | None:
        """Return a user with all that the node knows of it, the keys of its password too; None: there is none."""

    async def create_user(self, user: UserEntity) -> None:
        """Add a user."""

    async def update_user(self, user: UserEntity) -> None:
        """Give a user other attributes; its connections stay as far as they may."""

    async def delete_user(self, name: str) -> None:
        """Remove a user; one that is not there is removed already."""
