"""What one connection may do where it is: asked when a link attaches, or an address is named for the first time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.identity.permissions import MANAGE, RECV, SEND, VIEW
from enmasse.messaging.dynamic import DYNAMIC_PREFIX
from enmasse.messaging.errors import AttachError
from enmasse.messaging.stream import COMMITS_CAPABILITY, FRAMES_CAPABILITY, Stream
from enmasse.messaging.subscription import Subscription

if TYPE_CHECKING:
    from enmasse.identity.users import User
    from enmasse.messaging.address import Address
    from enmasse.messaging.space import Space

__all__ = ["ADDRESS_LIST", "MANAGEMENT", "Rights"]

MANAGEMENT = "$management"
"""Where a space is asked for what it has; who may do what there is asked for with each request."""

ADDRESS_LIST = "$addresses"
"""From where a space's list of addresses is received."""


class Rights:
    """The rights of a connection; of everybody to everything while it has no user.

    Attributes:
        user: who it is; nobody where everybody may come in.
        space: where it is, once it is there.
    """

    __slots__ = ("space", "user")

    def __init__(self) -> None:
        self.user: User | None = None
        self.space: Space | None = None

    @property
    def may_view(self) -> bool:
        """Whether the user may see what the space has."""
        return self.user is None or self.user.permissions.allow_any(VIEW) or self.may_manage

    @property
    def may_manage(self) -> bool:
        """Whether the user may act on what the space has."""
        return self.user is None or self.user.permissions.allow_any(MANAGE)

    def require_send(self, address: str) -> None:
        """See that messages may be sent to an address.

        Raises:
            AttachError: they may not.
        """
        user = self.user
        # Whoever was told the name of a dynamic address may answer there.
        if user is None or user.permissions.allow(SEND, address) or address.startswith(DYNAMIC_PREFIX):
            return
        if address == MANAGEMENT and self.may_view:
            return
        raise _refusal(user, "send to", address)

    def require_producer(self, address: str, capabilities: tuple[str, ...]) -> None:
        """See that a sender may attach.

        Telling a stream how far one has read it is a reader's right.

        Raises:
            AttachError: it may not.
        """
        user, space = self.user, self.space
        tells_offsets = COMMITS_CAPABILITY in capabilities and FRAMES_CAPABILITY not in capabilities
        if user is not None and space is not None and tells_offsets and user.permissions.allow(RECV, address):
            found = _find(space, address)
            if found is not None and found.kind == Stream.kind:
                return
        self.require_send(address)

    def require_receive(self, address: str) -> None:
        """See that messages may be received from an address.

        Raises:
            AttachError: they may not.
        """
        user, space = self.user, self.space
        if user is None or user.permissions.allow(RECV, address):
            return
        if address == ADDRESS_LIST and self.may_view:
            return
        found = _find(space, address) if space is not None else None
        if space is not None and found is not None:
            if address.startswith(DYNAMIC_PREFIX) and space.dynamic.owners.get(found.name) == user.name:
                return
            if "::" in address and isinstance(found, Subscription) and user.permissions.allow(RECV, found.name):
                return
        raise _refusal(user, "receive from", address)

    def require_dynamic(self) -> None:
        """See that a dynamic address may be made.

        Raises:
            AttachError: the user may do nothing at all.
        """
        user = self.user
        if self.may_view:
            # Answers of the space itself have to go somewhere.
            return
        if user is not None and not (user.permissions.allow_any(SEND) or user.permissions.allow_any(RECV)):
            raise _refusal(user, "make", "a dynamic address")

    def owns(self, address: str) -> None:
        """A dynamic address was made for this connection: its user may receive from it."""
        if self.user is not None and self.space is not None:
            self.space.dynamic.owners[address] = self.user.name


def _find(space: Space, address: str) -> Address | None:
    try:
        return space.find(address)
    except AttachError:
        return None


def _refusal(user: User, what: str, address: str) -> AttachError:
    return AttachError("amqp:unauthorized-access", f"user {user.name!r} may not {what} {address!r:.200}")
