"""Sessions: what the peer says in transfer and disposition [AMQP 2.5, 2.6.12 - 2.6.14].

Rules:
1. They and flow (``session_flow``) are read in place, by hand; any shape that these readers do not
   expect goes through the general decoder, which accepts the same set of frames.
2. A peer that sends beyond our window is ended.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from enmasse.message.composites import decode_composite
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED, Accepted, AmqpError
from enmasse.message.passage import Passage
from enmasse.wire.amqp.errors import LinkError, SessionError
from enmasse.wire.amqp.framing import amqp_frame, gather
from enmasse.wire.amqp.link import MASK, ReceivingLink
from enmasse.wire.amqp.performatives import SMALL_STATES, TERMINAL, Begin, Disposition, TransactionalState, Transfer
from enmasse.wire.amqp.session_flow import SessionFlow

__all__ = ["Session"]

PASSING_BYTES = 4 << 20
"""The most bytes that a peer may send ahead of a message that is passed on while it comes."""
MIN_PASSING_FRAMES = 16

LARGE_PART_BYTES = 32 << 10
LARGE_PART_SHARE = 4
"""Such a part of a message, if it is no less than a quarter of a read, is left where it was read until the message is
joined; for less, what it was read with would be too much to keep."""

FEW_IDS = 64
"""A disposition of so many deliveries costs no more than reading it."""

WALKED_AT_ALL, WALKED_PER_FRAME = 1_000_000, 64
"""Delivery ids that a peer's dispositions may have us look at, besides the first few of each: many times
those that we have sent, as ranges may overlap; without a bound, a frame could cost a walk through all."""

_U32 = struct.Struct(">I")


class Session(SessionFlow):
    """One session of a connection; made by the connection, never directly."""

    __slots__ = ()

    def on_begin(self, begin: Begin, remote_channel: int) -> None:
        """The peer's begin has come."""
        self.remote_channel = remote_channel
        self.remote_begin = begin
        self.remote_handle_max = begin.handle_max
        self._initial_in = begin.next_outgoing_id
        self.open_window(begin.incoming_window)

    def on_transfer(self, data: bytes, at: int, stop: int) -> None:
        """A transfer whose list starts at ``at`` and whose frame ends at ``stop``."""
        start = at
        code = data[at]
        if code == 0xC0:
            body = at + 2 + data[at + 1]
            count = data[at + 2]
            at += 3
        elif code == 0xD0:
            body = at + 5 + _U32.unpack_from(data, at + 1)[0]
            count = _U32.unpack_from(data, at + 5)[0]
            at += 9
        else:
            raise DecodeError("a transfer is not a list of fields")
        if body > stop:
            raise DecodeError("a transfer is longer than its frame")

        self._frames_in = frames = self._frames_in + 1
        if frames >= self._refill_at:
            self._refill(frames)

        code = data[at]
        if code == 0x43:
            handle = 0
            at += 1
        elif code == 0x52:
            handle = data[at + 1]
            at += 2
        elif code == 0x70:
            handle = _U32.unpack_from(data, at + 1)[0]
            at += 5
        else:
            raise DecodeError("a transfer without a handle")
        link = self.receivers.get(handle)
        if link is None:
            raise self._unknown_handle(handle)

        delivery_id = -1
        settled = more = False
        message_format = 0
        if count >= 2:
            code = data[at]
            if code == 0x70:
                delivery_id = _U32.unpack_from(data, at + 1)[0]
                at += 5
            elif code == 0x52:
                delivery_id = data[at + 1]
                at += 2
            elif code == 0x43:
                delivery_id = 0
                at += 1
            elif code == 0x40:
                at += 1
            else:
                raise DecodeError("a delivery-id that is no uint")
            if count >= 3:
                code = data[at]
                if code == 0xA0:
                    at += 2 + data[at + 1]
                elif code == 0x40:
                    at += 1
                elif code == 0xB0:
                    at += 5 + _U32.unpack_from(data, at + 1)[0]
                else:
                    raise DecodeError("a delivery-tag that is no binary")
                if count >= 4:
                    code = data[at]
                    if code in (0x43, 0x40):
                        at += 1
                    elif code == 0x70:
                        message_format = _U32.unpack_from(data, at + 1)[0]
                        at += 5
                    elif code == 0x52:
                        message_format = data[at + 1]
                        at += 2
                    else:
                        raise DecodeError("a message-format that is no uint")
                    if count >= 5:
                        code = data[at]
                        if code == 0x41:
                            settled = True
                            at += 1
                        elif code in (0x42, 0x40):
                            at += 1
                        elif code == 0x56 and data[at + 1] <= 1:
                            settled = data[at + 1] == 1
                            at += 2
                        else:
                            raise DecodeError("settled is no boolean")
                        if count >= 6:
                            code = data[at]
                            if code == 0x41:
                                more = True
                                at += 1
                            elif code in (0x42, 0x40):
                                at += 1
                            elif code == 0x56 and data[at + 1] <= 1:
                                more = data[at + 1] == 1
                                at += 2
                            else:
                                raise DecodeError("more is no boolean")
                            if count > 6:
                                rare = self._rare_fields(data, start, count - 6, data[at:body], stop)
                                if rare is not None:
                                    if rare.aborted:
                                        link.abort()
                                        return
                                    if isinstance(rare.state, TransactionalState):
                                        txn_id = rare.state.txn_id
                                        part = data[body:stop]
                                        self._on_part(link, part, delivery_id, settled, more, message_format, txn_id)
                                        return
                                at = body
        if at != body:
            raise DecodeError("a transfer's fields do not fill its list")

        if more or link.takes_parts or delivery_id < 0:
            if link.tracker is not None and link.is_taken(data, start, stop):
                return
            is_large = stop - body >= LARGE_PART_BYTES and (stop - body) * LARGE_PART_SHARE >= len(data)
            cut = memoryview(data)[body:stop] if is_large else data[body:stop]
            self._on_part(link, cut, delivery_id, settled, more, message_format)
            return
        try:
            received = link.received + 1
            limit = link.limit
            if received <= limit:
                link.received = received
                payload = data[body:stop]
                if (
                    (stop - body == link.known_size and payload.startswith(link.known_head))
                    or link.guard is None
                    or link.guard.admits(payload, delivery_id, settled, message_format)
                ):
                    link.sink.on_message(payload, delivery_id, settled, message_format)
                if received == limit:
                    link.sink.on_exhausted()
            else:
                link.cross(data[body:stop], delivery_id, settled, message_format)
        except LinkError as error:
            link.detach(AmqpError(error.condition, error.description))

    def _rare_fields(self, data: bytes, start: int, count: int, rare: bytes, stop: int) -> Transfer | None:
        """Read rcv-settle-mode, state, resume, aborted and batchable, unless they say nothing.

        They are often those of the transfer before, as within a transaction; only they count in the answer.
        """
        if (count, rare) == self._rare:
            return self._rare_transfer
        if len(rare) == count and count <= 5 and not rare[:2].strip(b"\x40") and not rare[2:].strip(b"\x40\x42"):
            return None
        found, _ = decode_composite(data, start - 3, stop)
        assert isinstance(found, Transfer)
        self._rare = count, rare
        self._rare_transfer = found
        return found

    def _on_part(
        self,
        link: ReceivingLink,
        part: bytes | memoryview,
        delivery_id: int,
        settled: bool,
        more: bool,
        message_format: int,
        txn_id: bytes | None = None,
    ) -> None:
        """A transfer of a delivery that takes several [AMQP 2.6.14], or belongs to a transaction [AMQP 4.4.1]."""
        if link.is_detach_sent:
            return
        if link.passage is not None:
            self._on_passing(link, part, delivery_id, settled, more)
            return
        if link.partial is None:
            if delivery_id < 0:
                raise SessionError("amqp:invalid-field", "a transfer starts a delivery without a delivery-id")
            link.partial = []
            link.takes_parts = True
            link.delivery_id = delivery_id
            link.delivery_settled = False
            link.delivery_format = message_format
            link.delivery_txn = txn_id
        elif delivery_id not in (-1, link.delivery_id):
            raise SessionError(
                "amqp:invalid-field",
                f"delivery {delivery_id} begins while {link.delivery_id} is not complete",
            )
        elif txn_id is not None:
            link.delivery_txn = txn_id
        gather(link.partial, part)
        link.partial_bytes += len(part)
        self.connection.partial_bytes += len(part)
        link.delivery_settled |= settled
        if link.max_message_size and link.partial_bytes > link.max_message_size:
            link.detach(
                AmqpError(
                    "amqp:link:message-size-exceeded",
                    f"messages may have up to {link.max_message_size} bytes",
                )
            )
            return
        if link.received >= link.highest:
            link.detach(link.beyond_limit())
            return
        if more:
            if not self.connection.has_room():
                link.detach(link.no_room())
                return
            if link.partial_bytes >= link.passes_from > 0 and link.delivery_txn is None:
                self._begin_passing(link, len(part))
            return
        payload = b"".join(link.partial)
        link.forget_parts()
        try:
            if link.delivery_txn is not None:
                self._post(link, payload, link.delivery_txn)
            elif link.received < link.limit:
                link.received += 1
                exhausted = link.received == link.limit
                last = link.delivery_id, link.delivery_settled, link.delivery_format
                if link.guard is None or link.guard.admits(payload, *last):
                    link.sink.on_message(payload, *last)
                if exhausted:
                    link.sink.on_exhausted()
            else:
                link.cross(payload, link.delivery_id, link.delivery_settled, link.delivery_format)
        except LinkError as error:
            link.detach(AmqpError(error.condition, error.description))

    def _begin_passing(self, link: ReceivingLink, part_bytes: int) -> None:
        """Pass a message on while it comes, within the credit or for credit that was taken back meanwhile."""
        assert link.partial is not None
        payload = b"".join(link.partial)
        link.forget_parts()
        link.partial = []
        link.takes_parts = True
        self.narrow_window(max(MIN_PASSING_FRAMES, PASSING_BYTES // max(1, part_bytes)))
        is_crossed = link.received >= link.limit
        exhausted = link.count()
        given = link.delivery_id, link.delivery_settled, link.delivery_format

        def begin() -> Passage:
            passage: Passage = link.sink.on_large(payload, *given, is_crossed)
            return passage

        link.passage = begin() if link.guard is None else link.guard.passage(payload, *given, begin)
        if exhausted:
            link.sink.on_exhausted()
        self._count_stalled(link, len(payload))

    def _count_stalled(self, link: ReceivingLink, size: int) -> None:
        """Count what has come of a message that nobody takes further for now, or whose receiver needs it whole."""
        if link.is_stalled or (link.passage is not None and link.passage.is_kept):
            link.partial_bytes += size
            self.connection.partial_bytes += size
            if not self.connection.has_room():
                link.give_up(link.no_room())

    def _on_passing(
        self, link: ReceivingLink, part: bytes | memoryview, delivery_id: int, settled: bool, more: bool
    ) -> None:
        passage = link.passage
        assert passage is not None
        if delivery_id not in (-1, link.delivery_id):
            raise SessionError(
                "amqp:invalid-field", f"delivery {delivery_id} begins while {link.delivery_id} is not complete"
            )
        link.delivery_settled |= settled
        if more:
            passage.write(part)
            self._count_stalled(link, len(part))
            return
        link.forget_parts()
        passage.end(part, link.delivery_settled)

    def _post(self, link: ReceivingLink, payload: bytes, txn_id: bytes) -> None:
        exhausted = link.count()
        self.connection.handler.on_transactional_message(
            link, payload, link.delivery_id, link.delivery_settled, link.delivery_format, txn_id
        )
        if exhausted:
            link.sink.on_exhausted()

    def _refill(self, frames: int) -> None:
        if frames > self._window_end:
            raise SessionError("amqp:session:window-violation", "more transfers than the incoming window")
        self._flow_due()

    def on_disposition(self, data: bytes, at: int, stop: int) -> None:
        """A disposition whose list starts at ``at``."""
        start = at
        code = data[at]
        if code == 0xC0:
            end = at + 2 + data[at + 1]
            count = data[at + 2]
            at += 3
        elif code == 0xD0:
            end = at + 5 + _U32.unpack_from(data, at + 1)[0]
            count = _U32.unpack_from(data, at + 5)[0]
            at += 9
        else:
            raise DecodeError("a disposition is not a list of fields")
        if end > stop or count < 2:
            raise DecodeError("a disposition is cut short")
        role = data[at]
        at += 1
        code = data[at]
        if code == 0x70:
            first = _U32.unpack_from(data, at + 1)[0]
            at += 5
        elif code == 0x52:
            first = data[at + 1]
            at += 2
        elif code == 0x43:
            first = 0
            at += 1
        else:
            self._on_any_disposition(data, start, stop)
            return
        last = first
        settled = False
        state: Any = None
        if count >= 3:
            code = data[at]
            if code == 0x70:
                last = _U32.unpack_from(data, at + 1)[0]
                at += 5
            elif code == 0x52:
                last = data[at + 1]
                at += 2
            elif code == 0x43:
                last = 0
                at += 1
            elif code == 0x40:
                at += 1
            else:
                self._on_any_disposition(data, start, stop)
                return
            if count >= 4:
                code = data[at]
                at += 1
                settled = code == 0x41
                if count == 5:
                    state = SMALL_STATES.get(data[at:end])
                if not settled and code != 0x42:
                    role = 0
        if role not in (0x41, 0x42) or (state is None and (at != end or count > 4)):
            self._on_any_disposition(data, start, stop)
            return
        self._dispose(role == 0x41, first, last, settled, state)
        if self.is_blocked:
            self.on_room()

    def _on_any_disposition(self, data: bytes, at: int, stop: int) -> None:
        found, _ = decode_composite(data, at - 3, stop)
        assert isinstance(found, Disposition)
        last = found.first if found.last is None else found.last
        # Sinks compare by identity, whatever shape the peer chose.
        state = ACCEPTED if isinstance(found.state, Accepted) else found.state
        self._dispose(found.role, found.first, last, found.settled, state)
        if self.is_blocked:
            self.on_room()

    def _dispose(self, from_receiver: bool, first: int, last: int, settled: bool, state: Any) -> None:
        if not from_receiver:
            if settled and self.awaited:
                self._confirm(first, last)
            return
        if state is None:
            if not settled:
                return
            if self.default_outcomes:
                self._dispose_by_default(first, last)
        elif not isinstance(state, TERMINAL):
            if isinstance(state, TransactionalState):
                for delivery_id in self._ids(first, last):
                    if delivery_id in self.unsettled or delivery_id in self.enlisted:
                        self.connection.handler.on_transactional_outcome(self, delivery_id, state, settled)
                return
            if not settled:
                return
        unsettled = self.unsettled
        if self.enlisted:
            for delivery_id in self._ids(first, last):
                if delivery_id in self.enlisted:
                    self.connection.handler.on_transactional_outcome(self, delivery_id, state, settled)
        if not settled:
            self._dispose_second(first, last, state)
        elif first == last:
            delivery = unsettled.pop(first, None)
            if delivery is not None:
                delivery.sink.on_outcome(delivery, state)
        else:
            pop = unsettled.pop
            for delivery_id in self._ids(first, last):
                delivery = pop(delivery_id, None)
                if delivery is not None:
                    delivery.sink.on_outcome(delivery, state)

    def _confirm(self, first: int, last: int) -> None:
        """The sender has settled what it was sent the state of [AMQP 2.6.12]."""
        awaited = self.awaited
        span = (last - first) & MASK
        if span >= 0x80000000:
            raise SessionError("amqp:invalid-field", f"a disposition from {first} back to {last}")
        if span < len(awaited):
            ids = [(first + at) & MASK for at in range(span + 1)]
        else:
            ids = [delivery_id for delivery_id in awaited if (delivery_id - first) & MASK <= span]
        for delivery_id in ids:
            found = awaited.pop(delivery_id, None)
            if found is not None:
                found[1]()

    def _dispose_by_default(self, first: int, last: int) -> None:
        """Settle without a state what has an outcome for that [AMQP 3.5.3]."""
        for delivery_id in self._ids(first, last):
            delivery = self.unsettled.get(delivery_id)
            if delivery is None:
                continue
            # One of several ends of a link knows the one that the link has.
            outcome = self.default_outcomes.get(delivery.sink.port.sink)
            if outcome is not None:
                del self.unsettled[delivery_id]
                delivery.sink.on_outcome(delivery, outcome)

    def _dispose_second(self, first: int, last: int, state: Any) -> None:
        """The receiver settles second: it waits for us to settle [AMQP 2.6.12]."""
        sinks: dict[Any, None] = {}
        for delivery_id in self._ids(first, last):
            delivery = self.unsettled.pop(delivery_id, None)
            if delivery is not None:
                sink = delivery.sink
                sinks[sink] = None
                sink.on_outcome(delivery, state)
        waits = len(sinks)

        def confirmed() -> None:
            nonlocal waits
            waits -= 1
            if waits <= 0 and not self.is_end_sent:
                answer = Disposition(role=False, first=first, last=last, settled=True, state=state)
                self.connection.put(amqp_frame(self.channel, answer))

        for sink in sinks:
            sink.confirm(confirmed)
        if not sinks:
            confirmed()

    def _ids(self, first: int, last: int) -> Iterable[int]:
        """The delivery ids from first to last, at least those that anything is known of [RFC 1982]."""
        span = (last - first) & MASK
        if span >= 0x80000000:
            raise SessionError("amqp:invalid-field", f"a disposition from {first} back to {last}")
        if span >= FEW_IDS:
            sent = (self.next_delivery_id - 1 - first) & MASK
            if sent >= 0x80000000:
                return ()
            span = min(span, sent)
            self._count_walk(min(span, 2 * len(self.unsettled) + FEW_IDS))
        if span < 2 * len(self.unsettled) + FEW_IDS:
            ids = range(first, first + span + 1)
            return ids if first + span <= MASK else [delivery_id & MASK for delivery_id in ids]
        return [i for i in (*self.unsettled, *self.enlisted) if (i - first) & MASK <= span]

    def _count_walk(self, ids: int) -> None:
        """Many ids are looked at; over and over for the same ones, that is an attack."""
        self._walked += ids
        if self._walked > WALKED_AT_ALL + WALKED_PER_FRAME * self.next_outgoing_id:
            raise SessionError(
                "amqp:resource-limit-exceeded", "dispositions name far more deliveries than there were"
            )
