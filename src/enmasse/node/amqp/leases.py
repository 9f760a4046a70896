"""Holds the unsettled messages of a detached receiver that may resume its link [AMQP 2.6.13, 3.4.6].

Only stored addresses do that: the deliveries of a direct address fail at once, as its sender should not wait for an
outcome that may never come. A receiver that attaches again lists the messages that it still has, with the outcomes
that it decided on; the others are delivered again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.messaging.delivery import FAILED
from enmasse.messaging.queues.consumer import BacklogConsumer
from enmasse.node.amqp.recovery import Key, Recovery, Terminus, state_of
from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.performatives import TERMINAL, Attach, Received, Source, Transfer
from enmasse.wire.amqp.unsettled import number_of, tag_of

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.log.entry import Entry
    from enmasse.wire.amqp.link import SendingLink


LAST_NUMBER = 0xF0000000
"""The highest tag that is held: the next session could not continue numbering from a higher one."""


class Leases(Terminus):
    """The messages that are held for one receiver, by their delivery tags."""

    __slots__ = ("_held", "_states", "_tags")

    def __init__(self, recovery: Recovery, key: Key, address: Address, terminus: Source) -> None:
        super().__init__(recovery, key, address, terminus)
        self._held: dict[bytes, tuple[Entry, BacklogConsumer]] = {}
        self._tags: dict[int, bytes] = {}
        """The tags of resumed deliveries by their new ids; other tags follow from the ids."""
        self._states: dict[bytes, Any] = {}
        """The states of deliveries that the receiver listed, while the link is being attached."""

    def __len__(self) -> int:
        """The number of messages that are held."""
        return len(self._held)

    @property
    def kept(self) -> int:
        """The number of messages that are held."""
        return len(self._held)

    @property
    def kept_bytes(self) -> int:
        """The bytes of the messages that are held."""
        return sum(len(entry.payload) for entry, _ in self._held.values())

    @property
    def first_free(self) -> int:
        """A delivery id above the tags of all held messages."""
        return max((number_of(tag) for tag in self._held), default=-1) + 1

    def hold(self, link: SendingLink, consumer: BacklogConsumer) -> None:
        """Hold the unsettled messages of a receiver that is detached."""
        unsettled = link.session.unsettled
        for delivery_id in [i for i, delivery in unsettled.items() if delivery.sink is consumer]:
            tag = self._tags.get(delivery_id) or tag_of(delivery_id)
            if number_of(tag) < LAST_NUMBER:
                entry = unsettled.pop(delivery_id)
                self._held[tag] = entry, consumer
                self._recovery.deliveries += 1
                self._recovery.held_bytes += len(entry.payload)
        self._tags.clear()
        self._recovery.number(self.first_free)

    def _release(self, tag: bytes) -> tuple[Entry, BacklogConsumer]:
        entry, consumer = self._held.pop(tag)
        self._recovery.deliveries -= 1
        self._recovery.held_bytes -= len(entry.payload)
        return entry, consumer

    def _fail(self, tag: bytes) -> None:
        entry, consumer = self._release(tag)
        if not consumer.address.is_closed:
            consumer.on_outcome(entry, FAILED)

    def forget_all(self) -> None:
        """Deliver again what is held."""
        for tag in list(self._held):
            self._fail(tag)

    def recall(self, link: SendingLink, attach: Attach) -> None:
        """Take the receiver's list of messages that it still has; the rest is delivered again.

        Deliveries of the session go on above the tags that are held, or nothing is resumed.
        """
        self.joined(link)
        theirs = {tag: state_of(value) for tag, value in (attach.unsettled or {}).items()}
        session = link.session
        is_fresh = not session.next_outgoing_id and not session.next_delivery_id
        if is_fresh:
            session.number_from(self._recovery.number(self.first_free))
        could_clash = self.first_free > session.next_delivery_id
        for tag in list(self._held):
            is_absent = tag not in theirs and not attach.incomplete_unsettled
            if could_clash or is_absent or self._held[tag][1].address.is_closed:
                self._fail(tag)
        self._states = {tag: theirs[tag] for tag in self._held if tag in theirs}

    def resume(self, link: SendingLink, consumer: BacklogConsumer) -> Resumption:
        """Return the sink that resumes deliveries on the new link."""
        items: list[tuple[bytes, Entry, Any]] = []
        states, self._states = self._states, {}
        for tag, given in states.items():
            if self._held[tag][1].address is not consumer.address:
                self._fail(tag)
                continue
            entry, before = self._release(tag)
            before.unsettled -= 1
            consumer.deliveries += 1
            consumer.unsettled += 1
            entry.sink = consumer
            state = given if isinstance(given, TERMINAL) else None
            if state is not None:
                consumer.on_outcome(entry, state)
            items.append((tag, entry, state))
        return Resumption(self, link, consumer, items)

    def resumed(self, delivery_id: int, tag: bytes) -> None:
        """Note the new id of a resumed delivery."""
        self._tags[delivery_id] = tag

    def take_back(self, tag: bytes, entry: Entry, consumer: BacklogConsumer) -> None:
        """Hold a delivery again that could not be resumed."""
        self._held[tag] = entry, consumer
        self._recovery.deliveries += 1
        self._recovery.held_bytes += len(entry.payload)


class Resumption:
    """The sink of a resumed receiver's link until every delivery is resumed; then the address takes over.

    Args:
        leases: the leases that hold the deliveries.
        link: the link.
        consumer: its end at the address.
        items: tag, message, and the outcome that is known already, or nothing.
    """

    __slots__ = ("_consumer", "_is_blocked", "_items", "_leases", "_link", "is_limited")

    def __init__(
        self, leases: Leases, link: SendingLink, consumer: BacklogConsumer, items: list[tuple[bytes, Entry, Any]]
    ) -> None:
        self._leases = leases
        self._link = link
        self._consumer = consumer
        self._items = items[::-1]
        self._is_blocked = False
        self.is_limited = False
        """True if only resumed deliveries may be sent."""

    @property
    def states(self) -> dict[bytes, Any]:
        """The outcomes of the deliveries to be resumed, by tag; None where there is none."""
        return {tag: state for tag, _, state in self._items}

    def begin(self, *, is_limited: bool) -> None:
        """Take the place of the address, if there is anything to resume."""
        self.is_limited = is_limited
        if is_limited:
            self._consumer.is_blocked = True
        if self._items or is_limited:
            self._link.sink = self

    def on_credit(self, gained: int, drain: bool) -> None:
        """Resume deliveries as far as there is credit."""
        self._pump()
        if not self.is_limited:
            self._consumer.on_credit(gained, drain)
        elif drain:
            self._link.drained()

    def count_available(self) -> int | None:
        """Return the number of messages at the address and of deliveries to be resumed."""
        waiting = self._consumer.count_available()
        return None if waiting is None else waiting + len(self._items)

    def on_blocked(self, blocked: bool) -> None:
        """Stop or continue, as the connection is blocked or not."""
        self._is_blocked = blocked
        self._pump()
        if not self.is_limited:
            self._consumer.on_blocked(blocked)

    def _pump(self) -> None:
        link = self._link
        while self._items and link.credit > 0 and not self._is_blocked:
            self._send(*self._items.pop())
        if not self._items and not self.is_limited:
            link.sink = self._consumer

    def _send(self, tag: bytes, entry: Entry, state: Any) -> None:
        link = self._link
        payload = b"" if state is not None else self._consumer.address.redelivered(entry)
        delivery_id = link.take_delivery_id(entry, settled=state is not None)
        if state is None:
            self._leases.resumed(delivery_id, tag)
        first = Transfer(
            handle=link.handle,
            delivery_id=delivery_id,
            delivery_tag=tag,
            message_format=0,
            settled=state is not None,
            # A message without an outcome comes again from its start.
            state=Received(0, 0) if state is None else state,
            resume=True,
        )
        room = link.session.connection.remote_max_frame_size - len(amqp_frame(0, first)) - 16
        for at in range(0, max(len(payload), 1), room):
            part = payload[at : at + room]
            transfer = first if at == 0 else Transfer(handle=link.handle)
            transfer.more = at + room < len(payload)
            link.session.queue_part(link, amqp_frame(link.channel, transfer, len(part)), part)
        link.session.send_pending()

    def stop(self) -> None:
        """Hold what could not be resumed, as the link is detached again."""
        for tag, entry, state in self._items:
            if state is None:
                self._leases.take_back(tag, entry, self._consumer)
        self._items.clear()
