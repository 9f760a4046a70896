"""The output of a session: windows, dispositions in ranges, credit, messages in parts [AMQP 2.5, 2.6].

Rules:
1. We never send beyond the peer's window; what it keeps back waits here, and the links are blocked.
2. Dispositions of deliveries that we received are gathered into ranges and go out once per turn.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from enmasse.message.composites import encode_composite
from enmasse.message.outcomes import ACCEPTED, RELEASED, TOO_LARGE, AmqpError
from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.link import MASK, Link, ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Begin, Disposition, End, Flow, TransactionalState, Transfer
from enmasse.wire.amqp.unsettled import UnsettledByLink, tag_of

if TYPE_CHECKING:
    from enmasse.wire.amqp.connection_output import ConnectionOutput

INCOMING_WINDOW = 16_384
"""Frames; credit bounds what comes, so the window is only wide enough never to be felt."""

MAX_UNSETTLED = 1 << 18
"""Deliveries of one session that may wait for the peer's answer, whatever its window and its credit: what each
costs here is little, but not nothing."""

OUTGOING_WINDOW = 0x7FFFFFFF
"""Sent because the protocol asks for it; what we hold back is bounded by blocking the links."""

KEPT_PART_BYTES = 256
"""The memory that each transfer takes that the window holds back, beside its bytes."""

STALL_S = 60.0
"""Seconds for which a peer may take nothing of what its window holds back."""

_Pending = tuple[SendingLink, bytes, bytes | memoryview, Any]

_U32 = struct.Struct(">I")
_HEAD_OF_DISPOSITION = b"\x00\x53\x15\xc0\x11\x05\x41\x70"
_TAIL_ACCEPTED = b"\x41\x00\x53\x24\x45"
_ACCEPTED_FRAME = struct.Struct(">I8sIBI5s")


class SessionOutput:
    """The state and the output of a session."""

    __slots__ = (
        "_first", "_frames_in", "_granted_end", "_held_window", "_initial_in", "_is_flow_due", "_last",
        "_links_due", "_passings", "_pending", "_rare", "_rare_transfer", "_refill_at", "_settled_count",
        "_shut", "_stalls", "_state", "_too_large", "_walked", "_window", "_window_end", "awaited", "by_link",
        "by_name", "channel", "connection", "default_outcomes", "enlisted", "handles", "is_blocked", "is_end_sent",
        "is_ended", "next_delivery_id", "next_outgoing_id", "receivers", "remote_begin", "remote_channel",
        "remote_handle_max", "remote_window", "senders", "tag_head", "unsettled",
    )  # fmt: skip

    def __init__(self, connection: ConnectionOutput, channel: int) -> None:
        self.connection = connection
        self.channel = channel
        self.remote_channel: int | None = None
        self.remote_begin: Begin | None = None
        self.remote_handle_max = 0xFFFFFFFF
        self.is_end_sent = False
        self.is_ended = False
        """The peer has ended the session, or the connection is gone."""
        self.is_blocked = False
        self.by_name: dict[tuple[bool, str], Link] = {}
        self.handles: dict[int, Link] = {}
        self.receivers: dict[int, ReceivingLink] = {}
        """Receiving links by the peer's handle."""
        self.senders: dict[int, SendingLink] = {}
        """Sending links by the peer's handle."""
        self.next_outgoing_id = 0
        self.number_from(0)
        self.remote_window = 0
        self._held_window = 0
        self.unsettled: dict[int, Any] = {}
        """Sent deliveries without an outcome yet, by delivery id."""
        self.enlisted: dict[int, Any] = {}
        """Sent deliveries whose outcome waits for a transaction's end, by delivery id; the handler
        keeps this account, whose entries have their ``delivery``, and is called for whatever else comes for these."""
        self.awaited: dict[int, tuple[ReceivingLink, Callable[[], None]]] = {}
        """Received deliveries whose sender is to settle them, by delivery id, and who waits for that; each has used
        credit that its receiver has granted."""
        self.by_link = UnsettledByLink()
        self._walked = 0
        self._too_large: list[Any] = []
        """Deliveries that could not be sent."""
        self.default_outcomes: dict[Any, Any] = {}
        """By sink, the outcome of what the peer settles without saying one [AMQP 3.5.3]; few links have any."""
        self._frames_in = 0
        self._initial_in = 0
        self._window = INCOMING_WINDOW
        self._granted_end = INCOMING_WINDOW
        """Frames that the peer may send in all, by the last window sent to it."""
        self._window_end = INCOMING_WINDOW
        """The most of any window sent to it: what is on its way when the window narrows is no breach."""
        self._passings = 0
        self._stalls = 0
        self._refill_at = INCOMING_WINDOW // 2
        self._rare = 0, b""
        self._rare_transfer: Transfer | None = None
        self._first = 0
        self._last = -1
        self._state: Any = None
        self._settled_count = 0
        self._links_due: dict[Link, bool] = {}
        self._is_flow_due = False
        self._pending: deque[_Pending] = deque()
        """Transfers that the window holds back: head, payload, and the delivery whose end is followed."""
        self._shut: tuple[int, float] | None = None
        """The count sent when it was asked whether the window lets any of them out, and since when."""

    def number_from(self, delivery_id: int) -> None:
        """Number the deliveries that are sent from now on from this id on."""
        self.next_delivery_id = delivery_id & MASK
        self.tag_head = b"\xa0\x05" + tag_of(self.next_delivery_id)[:4]
        """Their tags as they are encoded, but for the last byte, the same for all ids that differ in nothing else."""

    def settle(self, delivery_id: int, state: Any) -> None:
        """Settle a delivery that we received; see ``ReceivingLink.settle``."""
        if self._settled_count:
            if state is self._state and delivery_id == self._last + 1:
                self._last = delivery_id
                self._settled_count += 1
                return
            self._flush_dispositions()
        else:
            self.connection.session_due(self)
        self._first = self._last = delivery_id
        self._state = state
        self._settled_count = 1

    def settle_second(self, delivery_id: int, state: Any) -> None:
        """Send the state of a delivery that the sender is to settle first [AMQP 2.6.12]."""
        if not self.is_end_sent:
            self._flush_dispositions()
            self.connection.say(self.channel, Disposition(role=True, first=delivery_id, settled=False, state=state))

    def settle_after(self, link: ReceivingLink, delivery_id: int, state: Any, done: Callable[[], None]) -> None:
        """Send the state of a delivery, and have ``done`` called once its sender has settled it."""
        self.awaited[delivery_id] = link, done
        self.settle_second(delivery_id, state)

    def settle_sent(self, delivery_id: int, state: Any) -> None:
        """Settle a delivery that we sent, whose receiver has sent its state but not settled it."""
        if not self.is_end_sent:
            self.connection.say(
                self.channel,
                Disposition(role=False, first=delivery_id, last=delivery_id, settled=True, state=state),
            )

    def _flush_dispositions(self) -> None:
        if not self._settled_count:
            return
        self._settled_count = 0
        if self.is_end_sent:
            return
        first, last = self._first, self._last
        state = self._state
        if state is ACCEPTED:
            frame = _ACCEPTED_FRAME.pack(
                0x02000000 | self.channel, _HEAD_OF_DISPOSITION, first, 0x70, last, _TAIL_ACCEPTED
            )
            self.connection.put(b"\x00\x00\x00\x1e" + frame)
        else:
            self.connection.say(
                self.channel, Disposition(role=True, first=first, last=last, settled=True, state=state)
            )

    def narrow_window(self, frames: int) -> None:
        """Have the peer send few frames ahead, as they are large and only pass by, until ``widen_window``."""
        self._passings += 1
        self._window = min(self._window, frames)
        self._flow_due()

    def widen_window(self) -> None:
        """One that narrowed the window has done."""
        self._passings -= 1
        if not self._passings:
            self._window = INCOMING_WINDOW
            self._flow_due()

    def stall_window(self, is_stalled: bool) -> None:
        """Count up or down the holders who want the peer to send nothing beyond its last window."""
        self._stalls += 1 if is_stalled else -1
        self._flow_due()

    def _flow_due(self) -> None:
        if not self._is_flow_due and not self.is_end_sent:
            self._is_flow_due = True
            self.connection.session_due(self)

    def flow_pending(self, link: ReceivingLink) -> None:
        """Send its credit to the sender of ``link`` with the next output."""
        if link.is_attached and not link.is_detach_sent:
            if link not in self._links_due:
                self._links_due[link] = False
            self.connection.session_due(self)

    def flow_for(self, link: SendingLink | ReceivingLink, *, drain: bool = False) -> None:
        """Send the state of ``link`` to its other end with the next output; a drain that is due stays one."""
        if link.is_attached and not link.is_detach_sent:
            self._links_due[link] = drain or self._links_due.get(link, False)
            self.connection.session_due(self)

    def flush(self) -> None:
        """Put out what was gathered in this turn: dispositions, credit, windows."""
        if self._too_large:
            self._report_too_large()
        self._flush_dispositions()
        due = self._links_due
        if due:
            self._links_due = {}
            for link, drain in due.items():
                self._put_flow(link, drain)
        if self._is_flow_due:
            self._put_flow(None, False)

    def flush_link(self, link: Link) -> None:
        """Put out what is due before the link's detach."""
        self._report_too_large()
        self._flush_dispositions()
        if self._links_due.pop(link, None) is not None and isinstance(link, SendingLink):
            self._put_flow(link, True)
        if self._pending:
            # What the window kept back can no longer be sent: after a detach the handle means nothing.
            pending = self._pending
            self._pending = deque(item for item in pending if item[0] is not link)
            self.drop_unsent([item for item in pending if item[0] is link])

    def _put_flow(self, link: Link | None, drain: bool) -> None:
        if self.is_end_sent:
            return
        self._is_flow_due = False
        frames = self._frames_in
        if self._stalls:
            self._refill_at = self._window_end
        else:
            self._granted_end = frames + self._window
            self._window_end = max(self._window_end, self._granted_end)
            self._refill_at = frames + self._window // 2
        flow = Flow(
            next_incoming_id=None if self.remote_begin is None else (self._initial_in + frames) & MASK,
            incoming_window=max(0, self._granted_end - frames),
            next_outgoing_id=self.next_outgoing_id & MASK,
            outgoing_window=OUTGOING_WINDOW,
        )
        if isinstance(link, ReceivingLink):
            if link.is_detach_sent:
                return
            flow.handle = link.handle
            flow.delivery_count = (link.initial + link.received) & MASK
            flow.link_credit = max(0, link.limit - link.received)
            flow.drain = drain
        elif isinstance(link, SendingLink):
            flow.handle = link.handle
            flow.delivery_count = link.delivery_count & MASK
            flow.link_credit = link.credit
            flow.available = None if link.sink is None else link.sink.count_available()
            flow.drain = drain
        self.connection.put(amqp_frame(self.channel, flow))

    def send_in_parts(
        self,
        link: SendingLink,
        delivery_id: int,
        payload: bytes,
        settled: bool,
        message_format: int,
        state: TransactionalState | None = None,
    ) -> None:
        """Send a message as several transfers, within a transaction, or when the window opens."""
        size = len(payload)
        if size > link.max_message_size > 0:
            self._refuse_to_send(link, delivery_id)
            return
        room = link.part_room
        if state is None and size > room:
            heads = link.part_heads(delivery_id, settled, message_format)
        else:
            room -= len(encode_composite(state)) if state is not None else 0
            heads = self._any_heads(link, delivery_id, settled, message_format, state, more=size > room)
        view = memoryview(payload)
        head, between, last = heads
        at = 0
        while size - at > room:
            self.queue_part(link, _U32.pack(4 + len(head) + room) + head, view[at : at + room])
            at += room
            head = between
        if at:
            head = last
        self.queue_part(link, _U32.pack(4 + len(head) + size - at) + head, view[at:] if at else payload)
        self.send_pending()

    def _refuse_to_send(self, link: SendingLink, delivery_id: int) -> None:
        """Take back the number that a message was given, and report that to its sink."""
        link.delivery_count -= 1
        link.credit += 1
        self.number_from(delivery_id)
        delivery = self.unsettled.pop(delivery_id, None)
        if delivery is not None:
            self.report_too_large(delivery)

    def report_too_large(self, delivery: Any) -> None:
        """Report to the sink of a delivery with the next output that the peer takes no message of that size."""
        self._too_large.append(delivery)
        self.connection.session_due(self)

    def _report_too_large(self) -> None:
        deliveries, self._too_large = self._too_large, []
        for delivery in deliveries:
            if delivery.sink is not None:
                delivery.sink.on_outcome(delivery, TOO_LARGE)

    def queue_part(self, link: SendingLink, head: bytes, part: bytes | memoryview) -> None:
        """Add a transfer to what ``send_pending`` sends."""
        self._pending.append((link, head, part, None))
        self.connection.keep(len(part) + KEPT_PART_BYTES)

    def follow(self, link: SendingLink, delivery: Any) -> bool:
        """See ``SendingLink.follow``."""
        pending = self._pending
        if not pending or pending[-1][0] is not link:
            return False
        _, head, part, _ = pending.pop()
        pending.append((link, head, part, delivery))
        return True

    def drop_unsent(self, dropped: Iterable[_Pending]) -> None:
        """Forget transfers that were held back; sinks of followed deliveries are told that those never went out."""
        for _, _, part, delivery in dropped:
            self.connection.keep(-len(part) - KEPT_PART_BYTES)
            if delivery is not None:
                delivery.sink.on_outcome(delivery, RELEASED)

    def _any_heads(
        self,
        link: SendingLink,
        delivery_id: int,
        settled: bool,
        message_format: int,
        state: TransactionalState | None,
        *,
        more: bool,
    ) -> tuple[bytes, bytes, bytes]:
        """See ``SendingLink.part_heads``."""
        first = Transfer(
            handle=link.handle,
            delivery_id=delivery_id,
            delivery_tag=tag_of(delivery_id),
            message_format=message_format,
            settled=settled,
            more=more,
            state=state,
        )
        between = Transfer(handle=link.handle, more=True, state=state)
        last = Transfer(handle=link.handle, state=state)
        return (
            amqp_frame(self.channel, first)[4:],
            amqp_frame(self.channel, between)[4:],
            amqp_frame(self.channel, last)[4:],
        )

    def open_window(self, window: int) -> None:
        """Take the window that the peer has sent, for now as far as there is room for unsettled deliveries."""
        self.remote_window = min(window, MAX_UNSETTLED - len(self.unsettled))
        self._held_window = window - self.remote_window

    def _widen(self) -> bool:
        """Open the window by what was held back, as far as there is room by now; whether it is open."""
        more = min(self._held_window, MAX_UNSETTLED - len(self.unsettled) - self.remote_window)
        if more > 0:
            self._held_window -= more
            self.remote_window += more
        return self.remote_window > 0

    def on_room(self) -> None:
        """Deliveries were settled: go on if that was waited for."""
        if self.is_blocked and self._held_window and not self.is_end_sent:
            self.send_pending()

    def send_pending(self) -> None:
        """Send what the peer's window allows, and block the links if it allows no more."""
        pending = self._pending
        connection = self.connection
        while pending and (self.remote_window > 0 or self._widen()):
            _, head, part, followed = pending.popleft()
            self.remote_window -= 1
            self.next_outgoing_id += 1
            connection.keep(-len(part) - KEPT_PART_BYTES)
            connection.put(head)
            connection.put(part)
            if followed is not None:
                followed.sink.on_outcome(followed, ACCEPTED)
        if pending:
            connection.kept_more()
        blocked = bool(pending) or (self.remote_window <= 0 and not self._widen())
        if blocked != self.is_blocked:
            self.is_blocked = blocked
            if not connection.is_blocked:
                self.tell_blocked(blocked)

    def is_shut(self, now: float) -> bool:
        """Return true if nothing of what is held back could be sent for ``STALL_S``; to be asked again and again."""
        if not self._pending:
            self._shut = None
        elif self._shut is None or self._shut[0] != self.next_outgoing_id:
            self._shut = self.next_outgoing_id, now
        else:
            return now >= self._shut[1] + STALL_S
        return False

    def tell_blocked(self, blocked: bool) -> None:
        """Have every sending link hold back, or go on."""
        for link in list(self.senders.values()):
            if link.sink is not None and link.is_open:
                link.sink.on_blocked(blocked)

    def end(self, error: AmqpError | None = None) -> None:
        """End the session; its links are gone with it."""
        if self.is_end_sent:
            return
        self._flush_dispositions()
        self.is_end_sent = True
        self.connection.say(self.channel, End(error))
