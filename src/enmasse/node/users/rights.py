"""The permissions of one connection, checked when a link attaches or a message first names an address."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from enmasse.errors import RemoteError
from enmasse.identity.permissions import MANAGE, RECV, SEND, VIEW
from enmasse.messaging.across import crosses
from enmasse.messaging.dynamic import DYNAMIC_PREFIX
from enmasse.messaging.errors import AttachError
from enmasse.messaging.owners import ANONYMOUS
from enmasse.messaging.patterns import Cut, is_pattern, parse, words_problem
from enmasse.messaging.streams.producers import COMMITS_CAPABILITY, FRAMES_CAPABILITY
from enmasse.node.patterns import part_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from enmasse.identity.users import User
    from enmasse.messaging.address import Address
    from enmasse.messaging.patterns import Pattern
    from enmasse.messaging.space import Space
    from enmasse.node.users.directory import NodeUsers
    from enmasse.node.users.gate import Gate


MANAGEMENT = "$management"
"""The address of a space's management; permissions are checked there with each request."""

ADDRESS_LIST = "$addresses"
"""The address from which a space's list of addresses is received."""


class Rights:
    """The permissions of a connection; without a user it may do everything that is not for users only.

    Attributes:
        user: the user; None in a space that is open to everybody, and of an administrator.
        space: the space, once the connection is open; None of an administrator.
    """

    __slots__ = ("client", "nobody", "space", "user")

    def __init__(self) -> None:
        self.user: User | None = None
        self.client = ""
        """The client's name for itself, once it has said that."""
        self.space: Space | None = None
        self.nobody = ANONYMOUS
        """The owner of what it leaves behind, if that is no user of the space: an administrator, or a device."""

    @property
    def owner(self) -> str:
        """The owner of what the connection leaves behind."""
        return self.user.owner if self.user is not None and self.nobody == ANONYMOUS else self.nobody

    @property
    def username(self) -> str:
        """The user's name; empty without a user."""
        return "" if self.user is None else self.user.name

    @property
    def client_problem(self) -> str | None:
        """The reason why the client may not have its name for itself; ``None`` if it may, or has none."""
        user = self.user
        if user is None or not self.client or user.may_call_itself(self.client):
            return None
        return f"clients of user {user.name!r} call themselves {user.client_ids!r}, not {self.client!r:.200}"

    @property
    def user_id(self) -> bytes:
        """The user-id that messages of the user may have [AMQP 3.2.4]."""
        return (self.username or ANONYMOUS).encode()

    def require_user_id(self, user_id: bytes) -> None:
        """Check that the user-id of a message is its sender's own.

        Raises:
            RemoteError: it is another's.
        """
        if user_id != self.user_id:
            raise RemoteError(
                "amqp:unauthorized-access",
                f"the user-id of a message is its sender's own, {self.user_id.decode()!r:.100}, or left out, not "
                f"{user_id.decode(errors='replace')!r:.100}",
            )

    @property
    def may_view(self) -> bool:
        """True if the user may read the space's management."""
        return self.user is None or self.user.permissions.allow_any(VIEW) or self.may_manage

    @property
    def may_manage(self) -> bool:
        """True if the user may use all of the space's management."""
        return self.user is None or self.user.permissions.allow_any(MANAGE)

    def require_send(self, address: str) -> None:
        """Check that the user may send to an address.

        Raises:
            AttachError: the user may not.
        """
        user = self.user
        if user is None:
            self._require_for_everybody("send to", address)
            return
        # Names of dynamic addresses cannot be guessed: whoever knows one was given it to answer there.
        if _allows(user, self.client, self.space, SEND, address) or address.startswith(DYNAMIC_PREFIX):
            return
        if address == MANAGEMENT and self.may_view:
            return
        raise _refusal(user, "send to", address, self._hint(user, SEND, address))

    def require_producer(self, address: str, capabilities: tuple[str, ...]) -> None:
        """Check that a sender may attach; committing offsets of a stream takes the right to receive from it.

        Raises:
            AttachError: the user may not.
        """
        user, space = self.user, self.space
        commits_offsets = COMMITS_CAPABILITY in capabilities and FRAMES_CAPABILITY not in capabilities
        if (
            user is not None
            and space is not None
            and commits_offsets
            and user.permissions.of_client(self.client).allow(RECV, address)
        ):
            found = _find(space, address)
            if found is not None and found.is_read_by_offset:
                return
        self.require_send(address)

    def require_receive(self, address: str) -> None:
        """Check that the user may receive from an address.

        Raises:
            AttachError: the user may not.
        """
        user, space = self.user, self.space
        if user is None:
            self._require_for_everybody("receive from", address)
            return
        if _allows(user, self.client, self.space, RECV, address):
            return
        if address == ADDRESS_LIST and self.may_view:
            return
        found = _find(space, address) if space is not None else None
        if space is not None and found is not None:
            if address.startswith(DYNAMIC_PREFIX) and space.dynamic.owner_of(found.name) == self.owner:
                return
            if (
                "::" in address
                and found.topic_name is not None
                and user.permissions.of_client(self.client).allow(RECV, found.name)
            ):
                return
        raise _refusal(user, "receive from", address, self._hint(user, RECV, address))

    def granted(self, source: str) -> str:
        """Return what the user may receive of what a receiver names: all, or of a pattern the part that is granted.

        Raises:
            AttachError: that is nothing, or a part of too many patterns.
        """
        user, space = self.user, self.space
        if user is None and space is not None and crosses(space, source):
            # Which of the addresses are for users only is asked of each of them.
            return source
        try:
            self.require_receive(source)
        except AttachError:
            if user is None or not is_pattern(source) or words_problem(source) is not None:
                raise
            found = _parts(user, self.client, source, parse(source))
            if not found:
                raise
            return Cut.of(source, tuple(found))
        return source

    def parts(self, filter_: str) -> list[Pattern]:
        """Return the patterns of what a user may receive of all that a filter stands for.

        Raises:
            AttachError: there are too many.
        """
        user = self.user
        return [] if user is None else _parts(user, self.client, filter_)

    def _hint(self, user: User, operation: str, address: str) -> str:
        """Return what a grant on everything lacks that covers an address but for the connector before it."""
        connector = address.partition("/")[0]
        if self.space is None or connector not in self.space.connectors:
            return ""
        if not user.permissions.of_client(self.client).allow(operation, address):
            return ""
        return f": only grants that name the connector, such as '{connector}/#', cover what is behind it"

    def is_closed(self, address: Address) -> bool:
        """Return true if an address is for users only, and nobody has logged in."""
        if self.user is not None or self.space is None:
            return False
        topic = None if address.topic_name is None else self.space.address(address.topic_name)
        return address.is_for_users or (topic is not None and topic.is_for_users)

    def closed_problem(self, what: str, address: Address, name: str = "") -> AttachError | None:
        """Return why a client may not use an address by a name, as nobody has logged in; ``None`` if it may."""
        if not self.is_closed(address):
            return None
        return AttachError(
            "amqp:unauthorized-access",
            f"who has not logged in may not {what} {name or address.name!r:.200}, which is for users only; the space "
            "has none as long as it is open to everybody",
        )

    def _require_for_everybody(self, what: str, name: str) -> None:
        address = None if self.space is None else _find(self.space, name)
        if address is not None and (problem := self.closed_problem(what, address, name)) is not None:
            raise problem

    def require_dynamic(self, connector: str = "") -> None:
        """Check that the user may have a dynamic address, here or behind a connector.

        Raises:
            AttachError: the user may do nothing at all, or has no permission that names the connector.
        """
        user = self.user
        if connector:
            if user is not None and not user.permissions.name(connector):
                raise _refusal(user, "make", f"a dynamic address behind {connector}")
            return
        if self.may_view:
            # The answers of the space's management go to dynamic addresses.
            return
        if user is not None and not (user.permissions.allow_any(SEND) or user.permissions.allow_any(RECV)):
            raise _refusal(user, "make", "a dynamic address")


class KnownGrants:
    """The permissions of a user who is not connected.

    Args:
        user: the user; ``None`` if it is gone, and may do nothing.
        space: the space that the grants are for; ``None`` if there is none any more.
        client: the name for itself of a client of the user.
    """

    __slots__ = ("_client", "_space", "_user")

    def __init__(self, user: User | None, space: Space | None, client: str = "") -> None:
        self._user = user
        self._space = space
        self._client = client

    def of_client(self, client: str) -> KnownGrants:
        """Return the permissions as they are for a client of the user, by its name for itself."""
        return KnownGrants(self._user, self._space, client)

    def may_receive(self, name: str) -> bool:
        """Return true if the user may receive from an address, or from all that a filter stands for."""
        return self._user is not None and _allows(self._user, self._client, self._space, RECV, name)

    def parts(self, filter_: str) -> list[Pattern]:
        """Return the patterns of what the user may receive of all that a filter stands for.

        Raises:
            AttachError: there are too many.
        """
        return [] if self._user is None else _parts(self._user, self._client, filter_)

    def granted(self, source: str) -> str:
        """Return what the user may receive of a receiver's source: all, or a part, which may be nothing."""
        if self.may_receive(source):
            return source
        found: list[Pattern] = []
        if self._user is not None and is_pattern(source) and words_problem(source) is None:
            # Of too many parts a receiver is refused, and so nothing gathers for it.
            with suppress(AttachError):
                found = _parts(self._user, self._client, source, parse(source))
        return Cut.of(source, tuple(found))

    def may_send(self, name: str) -> bool:
        """Return true if the user may send to an address."""
        return self._user is not None and _allows(self._user, self._client, self._space, SEND, name)


def known_grants(
    gate: Gate, users: NodeUsers, spaces: Mapping[str, Space], space: str, owner: str, name: str
) -> KnownGrants | None:
    """Return the grants of an owner of a name; ``None``: all may enter, or they are not known without a token."""
    if gate.is_open(space):
        return None
    found = users.all(space, name)
    if gate.tokens is not None and gate.tokens.knows(space):
        # A MessagingUser of the name says what the provider's user may do; without one its token does.
        return KnownGrants(found[0], spaces.get(space)) if found else None
    return KnownGrants(next((user for user in found if owner in ("", user.owner)), None), spaces.get(space))


def _allows(user: User, client: str, space: Space | None, operation: str, address: str) -> bool:
    return user.permissions.of_client(client).cover(operation, address, () if space is None else space.connectors)


def _parts(user: User, client: str, filter_: str, wanted: Pattern | None = None) -> list[Pattern]:
    return part_of(filter_, user.permissions.patterns(RECV), user.name, client, wanted)


def _find(space: Space, address: str) -> Address | None:
    try:
        return space.find(address)
    except AttachError:
        return None


def _refusal(user: User, what: str, address: str, hint: str = "") -> AttachError:
    return AttachError("amqp:unauthorized-access", f"user {user.name!r} may not {what} {address!r:.200}{hint}")
