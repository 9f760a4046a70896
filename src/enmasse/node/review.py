"""What changed users and permissions mean for the connections that are there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from enmasse.messaging.errors import AttachError
from enmasse.wire.amqp.link import ReceivingLink
from enmasse.wire.amqp.performatives import AmqpError

if TYPE_CHECKING:
    from enmasse.messaging.space import Space
    from enmasse.node.binding import Binding
    from enmasse.node.connections import Connections
    from enmasse.wire.amqp.link import Link

__all__ = ["review", "review_user"]


def review(connections: Connections, spaces: Iterable[Space]) -> None:
    """Close connections whose users may no longer be here, and detach links that may no longer be."""
    for space in spaces:
        # Whoever names addresses in messages is asked anew.
        space.version += 1
    for binding in list(connections.shells):
        _review(binding)


def review_user(connections: Connections, space: Space | None, name: str) -> None:
    """Do so for the connections of one user."""
    if space is None:
        return
    space.version += 1
    for binding in list(connections.shells):
        rights = binding.admission.rights
        if rights.space is space and rights.user is not None and rights.user.name == name:
            _review(binding)


def _review(binding: Binding) -> None:
    reason = binding.admission.review()
    if reason is not None:
        binding.connection.close(AmqpError("amqp:unauthorized-access", f"{reason}; authenticate again"))
        return
    for link in list(binding.links):
        _review_link(binding, link)


def _review_link(binding: Binding, link: Link) -> None:
    end, attach = binding.links[link], link.remote_attach
    if attach is None or link.is_detach_sent:
        return
    is_sender = isinstance(link, ReceivingLink)
    terminus = attach.target if is_sender else attach.source
    address = getattr(terminus, "address", None)
    if not isinstance(address, str) or not address:
        return
    try:
        if is_sender:
            binding.admission.rights.require_send(address)
        else:
            binding.admission.rights.require_receive(address)
    except AttachError as error:
        link.detach(AmqpError(error.condition, error.description))
        end.gone()
