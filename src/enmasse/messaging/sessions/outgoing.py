"""The messages in flight towards a session's client: their packet ids, and which are sent again when it comes back.

Rules:
1. A QoS 2 message of a session that outlives its connection is sent once the journal has its packet id: sent again
   after a crash under another one, the client would take it for a second message.
2. What the client has (PUBREC) is settled at its address with the same batch that says so, and never sent again;
   only its PUBREL is, until the client has done with it (PUBCOMP).
3. A client that comes back gets first what was in flight, in the order in which it was sent, under the same packet
   ids [MQTT-4.4.0-1, 4.6.0-1]; of a subscription of its own all of it, of what is shared (a queue, a shared
   subscription) QoS 2 alone: the rest was given back for others [MQTT-4.8.2-4].
4. At most ``receive_maximum`` messages are in flight [MQTT-3.3.4-7, 3.3.4-9].
5. What is sent again has DUP, and what is left of its time to live [MQTT-3.3.1-1, 3.3.2-6]. The packet ids of QoS 1
   are written some time after they were sent, so a node that dies may have sent more than it has written. To a client
   that was connected then, all of QoS 1 that an earlier run left has DUP: it may be for the second time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.delivery import FAILED
from enmasse.messaging.log.entry import Entry
from enmasse.messaging.part import Part
from enmasse.messaging.queues.consumer import BacklogConsumer
from enmasse.messaging.sessions.records import NOWHERE, Flight, Place

if TYPE_CHECKING:
    from enmasse.messaging.queues.backlog import Backlog
    from enmasse.messaging.sessions.session import Session
    from enmasse.messaging.sessions.session_filter import SessionLink


LAST_ID: Final = 0xFFFF

MAX_IN_FLIGHT: Final = 4_096
"""Messages in flight, whatever the client allows: their record is written as a whole, some 100 KiB then."""

Sent = tuple["SessionLink", Any, int]
"""The link that a message was sent for, its delivery (``None`` if it was settled before), and its QoS."""


class Outgoing(Part["Session"]):
    """The messages in flight towards a session's client.

    Args:
        session: the session.
    """

    __slots__ = (
        "_inherited_filters", "_last", "_recalled", "_released", "_sent", "_stored", "_to_send",
        "_waiting", "has_record", "may_repeat", "receive_maximum",
    )  # fmt: skip

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.receive_maximum = 0
        self.has_record = False
        """True if the journal may have a record."""
        self.may_repeat = False
        """True if an earlier run of the node may have sent more than it has written; see ``was_sent``."""
        self._inherited_filters = 0
        """The number of the last filter of that run."""
        self._last = 0
        """The packet id that was given last."""
        self._sent: dict[int, Sent] = {}
        """The messages that the client has not acknowledged, in the order of sending."""
        self._released: dict[int, Callable[[], None] | None] = {}
        """The packet ids whose PUBCOMP is due, with what sends PUBREL as soon as it may go; ``None`` once it may."""
        self._waiting: dict[int, bytes | None] = {}
        """Messages that go out once their packet ids are on disk; ``None`` where they are, and nobody was there."""
        self._to_send: dict[int, None] = {}
        """The packet ids of what is sent again, as the client takes it."""
        self._stored: list[Flight] = []
        """The messages that an earlier run of the node had in flight, and which were not read from disk yet."""
        self._recalled: Callable[[], None] | None = None
        """Called when these have been read; ``None`` while they are not being read."""

    def __len__(self) -> int:
        """The number of messages in flight."""
        return len(self._sent) + len(self._released) + len(self._stored)

    @property
    def room(self) -> int:
        """The number of messages that may be in flight besides."""
        return max(0, min(self.receive_maximum, MAX_IN_FLIGHT) - len(self))

    # Sending

    def assign(self, link: SessionLink, delivery: Any, payload: bytes, qos: int) -> int:
        """Give a message a packet id.

        Args:
            link: the link that it is sent for.
            delivery: the delivery as its address gave it; ``None`` if it is settled already.
            payload: the message.
            qos: 1 or 2.

        Returns:
            The packet id to send it with now; 0 if it will be sent by ``port.publish`` once that is possible.
        """
        packet_id = self._last
        while True:
            packet_id = packet_id + 1 if packet_id < LAST_ID else 1
            if packet_id not in self._sent and packet_id not in self._released:
                break
        self._last = packet_id
        self._sent[packet_id] = link, delivery, qos
        session = link.session
        if not session.is_lasting:
            return packet_id
        if qos == 1 or not isinstance(delivery, Entry) or not _is_written(delivery):
            session.journal.write_later(session)
            return packet_id
        self._waiting[packet_id] = payload
        log = delivery.sink.address.log  # type: ignore[union-attr]  # a receiver has it, and its address writes
        if delivery.frame is None and log is not None:
            session.journal.write(session, None, log)
        else:
            session.journal.write(session)
        return 0

    def was_sent(self, link: SessionLink, delivery: Any) -> bool:
        """Return true if an earlier run of the node may have sent a message to the client already."""
        if link.filter.number > self._inherited_filters or not isinstance(delivery, Entry):
            return False
        backlog: Backlog = link.consumer.address  # type: ignore[assignment]  # entries are of these
        inherited, frame = backlog.inherited, delivery.frame
        return inherited is not None and frame is not None and frame.first < inherited.below

    def acknowledge(self, packet_id: int, state: Any = ACCEPTED) -> bool:
        """Settle a QoS 1 message, as the client has acknowledged it; false if none has this packet id."""
        sent = self._sent.get(packet_id)
        if sent is None or sent[2] != 1:
            return False
        del self._sent[packet_id]
        _settle(sent, state)
        self._freed(sent[0].session)
        return True

    def receive(self, packet_id: int, done: Callable[[], None], state: Any = ACCEPTED) -> bool:
        """Settle a QoS 2 message, as the client has it.

        Args:
            packet_id: the packet id of its PUBREC.
            done: called once that is on disk, so that PUBREL may go out; not if the client has refused it.
            state: the outcome: accepted, or rejected.

        Returns:
            False if no message has this packet id.
        """
        sent = self._sent.get(packet_id)
        if sent is None or sent[2] != 2 or packet_id in self._waiting:
            if packet_id not in self._released:
                return False
            if self._released[packet_id] is None:
                done()
            else:
                self._released[packet_id] = done
            return True
        del self._sent[packet_id]
        if state is not ACCEPTED:
            _settle(sent, state)
            self._freed(sent[0].session)
            return True
        session = sent[0].session
        if not session.is_lasting:
            self._released[packet_id] = None
            _settle(sent, ACCEPTED)
            done()
            return True
        self._released[packet_id] = done

        def decided(reason: str | None) -> None:
            tell = self._released.get(packet_id)
            if tell is None:
                return
            if reason is None:
                self._released[packet_id] = None
                tell()
            else:
                # As if the client had said so once more, a moment later.
                del self._released[packet_id]
                self._sent[packet_id] = sent
                session.core.call_later(PAUSE_S, lambda: session.outgoing.receive_again(packet_id, tell))

        log = None
        delivery = sent[1]
        if isinstance(delivery, Entry) and delivery.sink is not None:
            backlog: Backlog = delivery.sink.address  # type: ignore[assignment]  # entries are of these
            if not backlog.is_closed:
                log = backlog.enlist_settlement(delivery, _ignore)
        elif delivery is not None:
            _settle(sent, ACCEPTED)
        session.journal.write(session, decided, *(() if log is None else (log,)))
        return True

    def receive_again(self, packet_id: int, done: Callable[[], None]) -> None:
        """Settle a QoS 2 message after all, as that could not be written before."""
        if packet_id in self._sent:
            self.receive(packet_id, done)

    def complete(self, packet_id: int) -> bool:
        """Free the packet id of a QoS 2 message, as the client has done with it; false if it is not in use so."""
        if packet_id not in self._released:
            return False
        del self._released[packet_id]
        self._freed(self.whole)
        return True

    def _freed(self, session: Session) -> None:
        if session.is_lasting:
            session.journal.write_later(session)
        if self._to_send:
            self._send_more()

    # The journal

    def cut(self) -> tuple[list[Flight], list[int], bool]:
        """Return what is in flight, the packet ids that may be sent then, and whether others have no place yet."""
        flights = list(self._stored)
        ready: list[int] = []
        refused: list[int] = []
        is_more_coming = False
        for packet_id, (link, delivery, qos) in self._sent.items():
            place = _place_of(delivery)
            is_waiting = self._waiting.get(packet_id) is not None
            if place is not None:
                flights.append(Flight(packet_id, qos, False, link.filter.number, place))
                if is_waiting:
                    ready.append(packet_id)
            elif is_waiting:
                if delivery.is_refused:
                    refused.append(packet_id)
                else:
                    is_more_coming = True
            elif _will_have_place(delivery):
                is_more_coming = True
        flights += [Flight(packet_id, 2, True, 0, NOWHERE) for packet_id in self._released]
        for packet_id in refused:
            # It could not be stored: its sender is to send it again.
            del self._waiting[packet_id]
            _settle(self._sent.pop(packet_id), RELEASED)
        return flights, ready, is_more_coming

    def written(self, packet_ids: list[int]) -> None:
        """Send messages whose packet ids are on disk."""
        for packet_id in packet_ids:
            sent, payload = self._sent.get(packet_id), self._waiting.get(packet_id)
            if sent is None or payload is None:
                continue
            if sent[0].is_open:
                del self._waiting[packet_id]
                sent[0].port.publish(packet_id, payload, sent[2], False)
            else:
                self._waiting[packet_id] = None

    # Coming and going

    def load(self, flights: list[Flight]) -> None:
        """Take up what an earlier run of the node had in flight."""
        self.has_record = bool(flights)
        self.may_repeat = not self.whole.left_us
        self._inherited_filters = max((filter_.number for filter_ in self.whole.filters.values()), default=0)
        for flight in flights:
            self._last = flight.packet_id
            if flight.is_released:
                self._released[flight.packet_id] = None
                continue
            backlog = self.whole.backlog_of(flight)
            if backlog is not None and backlog.pager is not None and backlog.pager.reserve(*flight.place[1:]):
                self._stored.append(flight)

    def recall(self, done: Callable[[], None]) -> None:
        """Read what an earlier run had in flight from disk; ``done`` is called once it is there.

        Of several calls while it is being read the last counts: a client may come and go meanwhile.
        """
        is_reading = self._recalled is not None
        self._recalled = done
        if is_reading:
            return
        session = self.whole
        entries: dict[Place, Entry] = {}
        homes: dict[Flight, tuple[Backlog, bool]] = {}
        backlogs: dict[Backlog, dict[int, set[int]]] = {}
        for flight in self._stored:
            backlog = session.backlog_of(flight)
            if backlog is not None and backlog.pager is not None:
                _, first, row = flight.place
                backlogs.setdefault(backlog, {}).setdefault(first, set()).add(row)
                homes[flight] = backlog, session.is_shared(flight)
        left = max(1, len(backlogs))

        def over() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._take_up(session, entries, homes)

        for backlog, rows in backlogs.items():
            owner = backlog.owner[0]

            def take(first: int, row: int, entry: Entry, owner: int = owner) -> None:
                entries[Place(owner, first, row)] = entry

            assert backlog.pager is not None
            backlog.pager.recall(rows, take, over)
        if not backlogs:
            over()

    def _take_up(
        self, session: Session, entries: dict[Place, Entry], homes: dict[Flight, tuple[Backlog, bool]]
    ) -> None:
        done, self._recalled = self._recalled, None
        self._stored = []
        before, self._sent = self._sent, {}
        for flight, (backlog, is_shared) in homes.items():
            entry = entries.get(flight.place)
            if entry is None or backlog.is_closed:
                continue
            link = session.link_of(flight)
            if link is not None:
                self._sent[flight.packet_id] = link, entry, flight.qos
                _hand_over(entry, link)
            elif not session.is_over:
                # The client has gone again: the message stays on disk.
                assert backlog.pager is not None
                backlog.pager.leave(entry)
                self._stored.append(flight)
            elif is_shared:
                backlog.settle(entry)
            else:
                backlog.put_back(entry)
        self._sent.update(before)
        if done is not None:
            done()

    def send_again(self) -> None:
        """Send what is in flight to a client that has come back."""
        session = self.whole
        for packet_id, tell in list(self._released.items()):
            if tell is None:
                session.require_holder().put_pubrel(packet_id)
            else:
                self._released[packet_id] = partial(session.put_pubrel, packet_id)
        self._to_send.clear()
        for packet_id, (before, delivery, qos) in list(self._sent.items()):
            link = before if before.is_open else session.link_like(before)
            if delivery is None or link is None or not _is_held(delivery):
                # What it was sent for is over, and has taken the message with it.
                del self._sent[packet_id]
                self._waiting.pop(packet_id, None)
                continue
            if link is not before:
                _hand_over(delivery, link)
                self._sent[packet_id] = link, delivery, qos
            if link.is_cut and not link.may_have(delivery.sink.address.redelivered(delivery)):
                # The grants cover it no more.
                _settle(self._sent.pop(packet_id), ACCEPTED)
                self._waiting.pop(packet_id, None)
                continue
            self._to_send[packet_id] = None
        self._send_more()

    def _send_more(self) -> None:
        most = min(self.receive_maximum, MAX_IN_FLIGHT)
        while self._to_send and len(self) - len(self._to_send) < most:
            packet_id = next(iter(self._to_send))
            del self._to_send[packet_id]
            sent = self._sent.get(packet_id)
            if sent is None:
                continue
            link, delivery, qos = sent
            is_first = packet_id in self._waiting
            if is_first:
                if self._waiting[packet_id] is not None:
                    # Its packet id is not on disk yet; it goes out as soon as that is so.
                    continue
                del self._waiting[packet_id]
            backlog: Backlog = delivery.sink.address
            link.port.publish(packet_id, backlog.redelivered(delivery), qos, not is_first)

    def detach(self) -> None:
        """Keep what is sent again when the client comes back, and give back the rest."""
        self._to_send.clear()
        for packet_id, sent in list(self._sent.items()):
            link, delivery, qos = sent
            if self.whole.is_lasting and delivery is not None and link.keeps(qos):
                continue
            del self._sent[packet_id]
            self._waiting.pop(packet_id, None)
            _settle(sent, RELEASED if isinstance(link.consumer, BacklogConsumer) else FAILED)
        for packet_id, tell in self._released.items():
            if tell is not None:
                self._released[packet_id] = _nothing
        if not self.whole.is_lasting:
            self._released.clear()

    def end(self) -> None:
        """Give back what the session holds of queues, as it is over; what a group shares is for nobody any more."""
        for sent in self._sent.values():
            if sent[1] is not None:
                _settle(sent, ACCEPTED if sent[0].filter.group is not None else RELEASED)
        self._sent.clear()
        self._released.clear()
        self._waiting.clear()
        if self._stored:
            self.recall(_nothing)


def _nothing() -> None:
    """Do nothing more."""


def _ignore(_problem: str | None) -> None:
    """Ignore the outcome of a part: the batch has one for all of it."""


def _is_written(entry: Entry) -> bool:
    """Return true if a message is on disk, or will be, so that it is there after a restart."""
    if entry.frame is not None:
        return not entry.frame.is_volatile
    backlog: Backlog = entry.sink.address  # type: ignore[union-attr,assignment]  # a receiver has it
    return backlog.log is not None and backlog.writes(entry.payload)


def _place_of(delivery: Any) -> Place | None:
    if not isinstance(delivery, Entry):
        return None
    frame = delivery.frame
    return None if frame is None else Place(frame.owner[0], frame.first, delivery.row)


def _will_have_place(delivery: Any) -> bool:
    """Return true if a message is about to be written, for the first time."""
    return _is_held(delivery) and not delivery.is_refused and delivery.frame is None and _is_written(delivery)


def _is_held(delivery: Any) -> bool:
    """Return true if a delivery still is somebody's to settle."""
    if not isinstance(delivery, Entry) or delivery.sink is None:
        return False
    backlog: Backlog = delivery.sink.address  # type: ignore[assignment]  # entries are of these
    return not backlog.is_closed


def _hand_over(entry: Entry, link: SessionLink) -> None:
    """Let the receiver of a new connection settle a message."""
    before = entry.sink
    if before is not None:
        before.unsettled -= 1
    consumer = link.consumer
    consumer.deliveries += 1
    consumer.unsettled += 1
    entry.sink = consumer


def _settle(sent: Sent, state: Any) -> None:
    """Report an outcome to the address, if it still is there."""
    delivery = sent[1]
    if delivery is None:
        return
    if isinstance(delivery, Entry):
        if _is_held(delivery):
            delivery.sink.on_outcome(delivery, state)  # type: ignore[union-attr]  # it is held
        return
    sent[0].consumer.on_outcome(delivery, state)
