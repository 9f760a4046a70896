"""The links of one connection that may be resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.messaging.queues.consumer import BacklogConsumer
from enmasse.node.amqp.leases import Leases, Resumption
from enmasse.node.amqp.receipts import Attachment, Receipts
from enmasse.node.amqp.recovery import STOLEN, Key, Recovery, Terminus, is_recoverable

if TYPE_CHECKING:
    from enmasse.messaging.address import Address, AttachOptions
    from enmasse.messaging.delivery import Consumer, Producer
    from enmasse.wire.amqp.link import Link, ReceivingLink, SendingLink
    from enmasse.wire.amqp.performatives import Attach, Source, Target
    from enmasse.wire.amqp.session_output import SessionOutput


MAX_LEASES = 32
"""The receivers of one session that may be resumed; more are served, but nothing is kept for them."""


class ConnectionRecovery:
    """Attaches and detaches the links of one connection that may be resumed.

    Args:
        recovery: the node's registry of termini.
    """

    __slots__ = ("_attachments", "_leases", "_recovery", "_waiting")

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self._attachments: dict[Link, tuple[Receipts, Attachment]] = {}
        self._leases: dict[Link, Leases] = {}
        self._waiting: list[tuple[SessionOutput, Terminus, int]] = []
        """The termini that were detached on this connection, with session and epoch."""

    def attach_sender(
        self, key: Key, user: str, address: Address, link: ReceivingLink, attach: Attach, target: Target
    ) -> Attachment | None:
        """Follow the deliveries of a user's sender that asks for that; called before its producer is made."""
        if not is_recoverable(target):
            return None
        found = self._recovery.find(key, address)
        receipts = found if isinstance(found, Receipts) else Receipts(self._recovery, key, address, target)
        receipts.user = user
        attachment = receipts.attach(link, attach)
        self._attachments[link] = receipts, attachment
        link.tracker = attachment
        link.settle = attachment.settle
        return attachment

    def attach_receiver(
        self, key: Key, address: Address, link: SendingLink, attach: Attach, source: Source, options: AttachOptions
    ) -> Leases | None:
        """Find the deliveries of a receiver that resumes its link; called before its consumer is made."""
        is_taking = not options.browse and not options.presettle and "shared" not in options.capabilities
        if not is_recoverable(source) or not is_taking or not address.can_resume:
            return None
        if sum(other.session is link.session for other in self._leases) >= MAX_LEASES:
            return None
        found = self._recovery.find(key, address)
        leases = found if isinstance(found, Leases) else Leases(self._recovery, key, address, source)
        leases.user = options.user
        leases.recall(link, attach)
        self._leases[link] = leases
        return leases

    def leave(self, link: Link, end: Producer | Consumer | None, *, closed: bool) -> None:
        """Hold what may be resumed of a detached link, before its end is removed."""
        leases = self._leases.get(link)
        if leases is None or not isinstance(end, BacklogConsumer):
            return
        if isinstance(link.sink, Resumption):
            link.sink.stop()
        if not closed:
            leases.hold(link, end)  # type: ignore[arg-type]

    def left(self, link: Link, end: Producer | Consumer | None, *, closed: bool) -> None:
        """Keep or drop the terminus of a detached link, after its end was removed."""
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
        # A link that the node detached for an error is not resumed, unless the error is that it was attached again.
        if closed or (link.error is not None and link.error.condition != STOLEN.condition):
            terminus.give_up()
        else:
            terminus.suspended()
            self._waiting.append((link.session, terminus, terminus.epoch))

    def happened(self, event: str, session: SessionOutput | None = None) -> None:
        """Tell the termini that a session has ended, or without one the connection."""
        for of, terminus, epoch in self._waiting:
            if epoch == terminus.epoch and (session is None or of is session):
                terminus.happened(event)
