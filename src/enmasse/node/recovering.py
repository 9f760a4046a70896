"""The links of one connection that may come back, and what of them waits meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.messaging.backlog import Backlog, BacklogConsumer
from enmasse.messaging.topic import Topic
from enmasse.node.leases import Leases, Resumption
from enmasse.node.receipts import Attachment, Receipts
from enmasse.node.recovery import STOLEN, Key, Recovery, Terminus, is_recoverable

if TYPE_CHECKING:
    from enmasse.messaging.address import Address, AttachOptions
    from enmasse.messaging.delivery import Consumer, Producer
    from enmasse.wire.amqp.link import Link, ReceivingLink, SendingLink
    from enmasse.wire.amqp.performatives import Attach, Source, Target
    from enmasse.wire.amqp.session_output import SessionOutput

__all__ = ["Recovering"]

MAX_LEASES = 32
"""Receivers of one session that may come back for their messages; more are served, but not waited for."""


class Recovering:
    """One connection's part of what a node keeps for links that may come back.

    Args:
        recovery: the node's account.
    """

    __slots__ = ("_attachments", "_leases", "_recovery", "_waiting")

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self._attachments: dict[Link, tuple[Receipts, Attachment]] = {}
        self._leases: dict[Link, Leases] = {}
        self._waiting: list[tuple[SessionOutput, Terminus, int]] = []
        """What was attached on this connection, with its session and the life that it had there."""

    def attach_sender(
        self, key: Key, address: Address, link: ReceivingLink, attach: Attach, target: Target
    ) -> Attachment | None:
        """A sender attaches: follow its deliveries if it asks for that; before its producer is made."""
        if not is_recoverable(target):
            return None
        found = self._recovery.find(key, address)
        receipts = found if isinstance(found, Receipts) else Receipts(self._recovery, key, address, target)
        attachment = receipts.attach(link, attach)
        self._attachments[link] = receipts, attachment
        link.tracker = attachment
        link.settle = attachment.settle
        return attachment

    def attach_receiver(
        self, key: Key, address: Address, link: SendingLink, attach: Attach, source: Source, options: AttachOptions
    ) -> Leases | None:
        """A receiver attaches: find what it may have, if it asks for that; before its consumer is made."""
        is_taking = not options.browse and not options.presettle and "shared" not in options.capabilities
        if not is_recoverable(source) or not is_taking or not isinstance(address, Backlog | Topic):
            return None
        if sum(other.session is link.session for other in self._leases) >= MAX_LEASES:
            return None
        found = self._recovery.find(key, address)
        leases = found if isinstance(found, Leases) else Leases(self._recovery, key, address, source)
        leases.recall(link, attach)
        self._leases[link] = leases
        return leases

    def leave(self, link: Link, end: Producer | Consumer | None, *, closed: bool) -> None:
        """A link is detached: take what may be resumed before its end goes."""
        leases = self._leases.get(link)
        if leases is None or not isinstance(end, BacklogConsumer):
            return
        if isinstance(link.sink, Resumption):
            link.sink.stop()
        if not closed:
            leases.hold(link, end)  # type: ignore[arg-type]

    def left(self, link: Link, end: Producer | Consumer | None, *, closed: bool) -> None:
        """A link is detached, and its end gone."""
        terminus: Terminus | None = self._leases.pop(link, None)
        receipts, attachment = self._attachments.pop(link, (None, None))
        if receipts is not None and attachment is not None:
            terminus = receipts
            attachment.leave()
            if not closed and end is not None:
                # Outcomes that are still to come are remembered.
                end.settle = attachment.settle  # type: ignore[union-attr]
        if terminus is None or terminus.link is not link:
            return
        # Why we detached the link is a reason not to go on with it, but that it was attached again.
        if closed or (link.error is not None and link.error.condition != STOLEN.condition):
            terminus.give_up()
        else:
            terminus.suspended()
            self._waiting.append((link.session, terminus, terminus.life))

    def happened(self, event: str, session: SessionOutput | None = None) -> None:
        """A session has ended, or without one the connection."""
        for of, terminus, life in self._waiting:
            if life == terminus.life and (session is None or of is session):
                terminus.happened(event)
