"""Remembers the outcomes of a sender's deliveries, for a sender that resumes its link [AMQP 2.6.13, 3.4.6].

A sender that attaches again lists the deliveries that it takes for unsettled. Those that have been received are
answered with the outcome that they have, or will have, and are not taken twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse.message.composites import Composite, encode_composite
from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Modified, Rejected
from enmasse.node.amqp.recovery import Key, Recovery, Terminus, unsettled_map
from enmasse.wire.amqp.errors import SessionError
from enmasse.wire.amqp.performatives import Attach, Target, Transfer

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.wire.amqp.link import ReceivingLink


MAX_RECEIPTS = 4_096
"""The deliveries of one link whose outcome is remembered: the latest."""

MAX_TAG_BYTES = 32

MAX_STATE_BYTES = 1_024
"""The largest outcome that is kept as it is; larger ones are kept without details."""

_UNKNOWN = object()


def to_keep(state: Any) -> Any:
    """Return an outcome shortened to a size that can be kept many times over."""
    if state is ACCEPTED or state is RELEASED or not isinstance(state, Composite):
        return state
    if len(encode_composite(state)) <= MAX_STATE_BYTES:
        return state
    if isinstance(state, Modified):
        return Modified(state.delivery_failed, state.undeliverable_here)
    if isinstance(state, Rejected) and state.error is not None:
        description = state.error.description
        return Rejected(AmqpError(state.error.condition[:128], description and description[:128]))
    return RELEASED


class Receipts(Terminus):
    """The outcomes of one sender's deliveries, by their tags; ``None`` where there is none yet."""

    __slots__ = ("outcomes", "resumed")

    def __init__(self, recovery: Recovery, key: Key, address: Address, terminus: Target) -> None:
        super().__init__(recovery, key, address, terminus)
        self.outcomes: dict[bytes, Any] = {}
        self.resumed: dict[bytes, tuple[Attachment, int]] = {}
        """The resumed deliveries that have no outcome yet, and where to send it."""

    def attach(self, link: ReceivingLink, attach: Attach) -> Attachment:
        """Attach the link, and forget deliveries that its sender does not list."""
        self.joined(link)
        self.resumed.clear()
        asked = attach.unsettled or {}
        if not attach.incomplete_unsettled:
            for tag in [tag for tag in self.outcomes if tag not in asked]:
                self.forget(tag)
        return Attachment(self, link)

    def begin(self, tag: bytes) -> None:
        """Note a delivery that begins."""
        self.forget(tag)
        self.outcomes[tag] = None
        self._recovery.deliveries += 1
        if len(self.outcomes) > MAX_RECEIPTS or self._recovery.is_full:
            self._recovery.make_room()
            self.forget(next(iter(self.outcomes)))

    def forget(self, tag: bytes) -> None:
        """Forget a delivery."""
        if self.outcomes.pop(tag, _UNKNOWN) is not _UNKNOWN:
            self._recovery.deliveries -= 1
            self.resumed.pop(tag, None)

    @property
    def kept(self) -> int:
        """The number of deliveries that are remembered."""
        return len(self.outcomes)

    def forget_all(self) -> None:
        """Forget all deliveries."""
        for tag in list(self.outcomes):
            self.forget(tag)


class Attachment:
    """One attachment of the link; it follows the link's deliveries from their beginning to their outcome."""

    __slots__ = ("_coming", "_ids", "_is_partial", "_link", "_receipts", "_settle", "_skipped", "unsettled")

    def __init__(self, receipts: Receipts, link: ReceivingLink) -> None:
        self._receipts = receipts
        self._link = link
        self._settle: Callable[[int, Any], None] = link.settle
        self._ids: dict[int, bytes] = {}
        self._skipped: int | None = None
        self._coming: bytes | None = None
        """The tag of an incomplete delivery."""
        self.unsettled, self._is_partial = unsettled_map(
            receipts.outcomes, link.session.connection.remote_max_frame_size
        )
        """The deliveries that the attach reports to the sender as unsettled."""

    @property
    def is_incomplete(self) -> bool:
        """True if ``unsettled`` is incomplete, as no more fits into a frame."""
        return self._is_partial

    def takes(self, transfer: Transfer) -> bool:
        """Check a transfer; return true if the link need not handle it any more. See ``ReceivingLink``."""
        delivery_id = transfer.delivery_id
        if self._skipped is not None:
            if delivery_id in (None, self._skipped):
                if not transfer.more:
                    self._skipped = None
                return True
            self._skipped = None
        if self._link.is_under_way:
            if not transfer.more:
                self._coming = None
            return False
        tag = transfer.delivery_tag
        if delivery_id is None or tag is None or len(tag) > MAX_TAG_BYTES:
            problem = f"a delivery starts with an id and a tag of up to {MAX_TAG_BYTES} bytes"
            raise SessionError("amqp:invalid-field", problem)
        if transfer.resume:
            if transfer.more:
                self._skipped = delivery_id
            self._resume(tag, delivery_id, settled=bool(transfer.settled))
            return True
        if self._is_partial:
            problem = "only resumed deliveries are taken until the link is attached with everything unsettled"
            self._link.detach(AmqpError("amqp:not-allowed", problem))
            return True
        if transfer.settled:
            self._receipts.forget(tag)
            return False
        self._coming = tag if transfer.more else None
        self._ids[delivery_id] = tag
        if len(self._ids) > 2 * MAX_RECEIPTS:
            del self._ids[next(iter(self._ids))]
        self._receipts.begin(tag)
        return False

    def leave(self) -> None:
        """Forget an incomplete delivery, as the link is detached."""
        if self._coming is not None:
            self._receipts.forget(self._coming)

    def _resume(self, tag: bytes, delivery_id: int, *, settled: bool) -> None:
        link = self._link
        if link.received >= link.highest:
            link.detach(link.beyond_limit())
            return
        link.abort()
        receipts = self._receipts
        state = receipts.outcomes.get(tag, _UNKNOWN)
        if state is _UNKNOWN:
            return
        if settled:
            receipts.forget(tag)
        elif state is None:
            receipts.resumed[tag] = self, delivery_id
        else:
            self.answer(delivery_id, state)

    def settle(self, delivery_id: int, state: Any) -> None:
        """Remember the outcome of a delivery, and send it."""
        receipts = self._receipts
        tag = self._ids.pop(delivery_id, None)
        if tag is not None and tag in receipts.outcomes:
            receipts.outcomes[tag] = to_keep(state)
            resumed = receipts.resumed.pop(tag, None)
            if resumed is not None:
                resumed[0].answer(resumed[1], state)
                return
        self.answer(delivery_id, state)

    def answer(self, delivery_id: int, state: Any) -> None:
        """Tell the sender an outcome, if it is there."""
        if self._receipts.link is self._link and self._link.is_open:
            self._settle(delivery_id, state)
