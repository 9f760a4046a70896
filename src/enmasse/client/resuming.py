"""Senders whose peer remembers outcomes: what arrived before a loss is not sent again [AMQP 2.6.13].

After a loss the link is attached again under its name with the tags of what is unsettled, and the peer answers
with those that it knows. A delivery that it has an outcome for is done; one that it has without an outcome goes on;
only what it does not know is sent again. A peer that remembers nothing, as after its own restart, knows none.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from enmasse.client.carrier import Carrier
from enmasse.client.sender import Outgoing, Sender
from enmasse.message.composites import from_described
from enmasse.message.errors import DecodeError
from enmasse.message.types import Described
from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.link import Link as EngineLink
from enmasse.wire.amqp.link import SendingLink
from enmasse.wire.amqp.performatives import TERMINAL, Target, Transfer
from enmasse.wire.amqp.unsettled import tag_of

UNSETTLED_STATE = 2
"""The durability of a terminus that remembers what is unsettled [AMQP 3.5.5]."""

KEEP_S = 300
"""Seconds that the peer is asked to remember after a loss: a machine is rebooted within minutes."""

MAX_TAGS = 4_096
"""Tags sent in one attach, which has to fit a frame; beyond that the oldest are sent again."""


class ResumingSender(Sender):
    """See ``Connection.sender`` with ``resume``."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lost: dict[bytes, Outgoing] = {}
        """Messages that were under way when the connection was lost, by tag."""
        self._known: deque[tuple[bytes, Outgoing, bool]] = deque()
        """Deliveries that the peer knows, until there is credit to resume them: tag, message, is it done."""
        self._tags: dict[int, bytes] = {}
        """Tags of resumed deliveries by their new ids; those of others follow from their ids."""

    @property
    def pending(self) -> int:
        """Messages that were given and have no outcome yet."""
        return super().pending + len(self._lost) + sum(not is_done for _, _, is_done in self._known)

    def attach(self, carrier: Carrier) -> None:
        """Attach over a carrier that is up."""
        session = carrier.session
        assert session is not None
        tags = list(self._lost)[-MAX_TAGS:]
        self._attaching = session.attach_sender(
            self.name,
            self,
            Target(
                address=self._redirected or self._asked,
                durable=UNSETTLED_STATE,
                expiry_policy="connection-close",
                timeout=KEEP_S,
            ),
            desired_capabilities=self._capabilities or None,
            properties=self._properties,
            unsettled=dict.fromkeys(tags),
        )

    def on_up(self, link: EngineLink) -> None:
        """The link is attached, and the peer has listed the deliveries that it knows."""
        super().on_up(link)
        assert link.remote_attach is not None
        theirs = link.remote_attach.unsettled or {}
        lost, self._lost = self._lost, {}
        again = []
        for tag, outgoing in lost.items():
            if tag not in theirs:
                outgoing.flag()
                again.append(outgoing)
                continue
            state = _state_of(theirs[tag])
            is_done = isinstance(state, TERMINAL)
            self._known.append((tag, outgoing, is_done))
            if is_done:
                self._under_way += 1
                self.on_outcome(outgoing, state)
        self._replace_queue((*again, *self._queue))

    def on_credit(self, gained: int, drain: bool) -> None:
        """Resume deliveries that the peer knows, then send others."""
        link = self._link
        while link is not None and self._known and link.credit > 0:
            tag, outgoing, is_done = self._known.popleft()
            delivery_id = _resume(link, outgoing, tag, settled=is_done)
            if not is_done:
                self._tags[delivery_id] = tag
                self._under_way += 1
        super().on_credit(gained, drain)

    def on_down(self, link: EngineLink, *, is_lost: bool) -> None:
        """Keep what is under way, to be asked for when the link is attached again."""
        if is_lost and not self._is_ended and isinstance(link, SendingLink):
            unsettled = link.session.unsettled
            for delivery_id, outgoing in list(unsettled.items()):
                if outgoing.sink is self and outgoing.transaction is None:
                    tag = self._tags.get(delivery_id) or tag_of(delivery_id)
                    # Of a message in parts the peer may have only some.
                    if len(outgoing.payload) <= link.room and not outgoing.future.done():
                        self._lost[tag] = unsettled.pop(delivery_id)
            for tag, outgoing, is_done in self._known:
                if not is_done:
                    self._lost[tag] = outgoing
        self._known.clear()
        self._tags.clear()
        super().on_down(link, is_lost=is_lost)

    def on_end(self) -> None:
        """Nothing more can be sent."""
        lost = [*self._lost.values(), *(outgoing for _, outgoing, is_done in self._known if not is_done)]
        self._lost.clear()
        self._known.clear()
        self._fail(lost, self._error or self.unknown_outcome())
        super().on_end()


def _resume(link: SendingLink, outgoing: Outgoing, tag: bytes, *, settled: bool) -> int:
    """Go on with a delivery that the peer has in full, under a new id; settled, it only has to forget it."""
    session = link.session
    delivery_id = link.take_delivery_id(outgoing, settled)
    transfer = Transfer(link.handle, delivery_id, tag, message_format=0, settled=settled, resume=True)
    session.queue_part(link, amqp_frame(link.channel, transfer), b"")
    session.send_pending()
    return delivery_id


def _state_of(value: Any) -> Any:
    """The delivery state in a map of what is unsettled, if there is one that we know."""
    try:
        return from_described(value) if isinstance(value, Described) else None
    except DecodeError:
        return None
