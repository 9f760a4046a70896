"""Sessions: windows, delivery ids and dispositions [AMQP 2.5, 2.6.12].

Rules:
1. Both windows are kept: we never send beyond the peer's, and a peer that sends beyond ours is ended.
2. Dispositions of deliveries that we received are gathered into ranges and go out once per turn.
3. Transfer, disposition and flow are read here in place, by hand; any shape that these readers do not
   expect goes through the general decoder, which accepts the same set of frames.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from enmasse.wire.amqp.errors import DecodeError, FramingError, LinkError, LocalError, SessionError
from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.link import MASK, TURN_BYTES, Link, ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import (
    Accepted,
    AmqpError,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
    decode_performative,
)

if TYPE_CHECKING:
    from enmasse.wire.amqp.connection import Connection

__all__ = ["ACCEPTED", "RELEASED", "Session"]

ACCEPTED = Accepted()
RELEASED = Released()
_TERMINAL = (Accepted, Rejected, Released, Modified)

INCOMING_WINDOW = 16_384
"""Frames; credit bounds what comes, so the window is only wide enough never to be felt."""

OUTGOING_WINDOW = 0x7FFFFFFF
"""Told because the protocol asks for it; what we hold back is bounded by blocking the links."""

_U32 = struct.Struct(">I")
_SMALL_STATES = {
    b"\x00\x53\x24\x45": ACCEPTED,
    b"\x00\x53\x24\xc0\x01\x00": ACCEPTED,
    b"\x00\x53\x26\x45": RELEASED,
    b"\x00\x53\x26\xc0\x01\x00": RELEASED,
}


class Session:
    """One session of a connection; made by the connection, never directly."""

    __slots__ = (
        "_first", "_frames_in", "_initial_in", "_is_flow_due", "_last", "_links_due", "_pending", "_refill_at",
        "_settled_count", "_state", "_window_end", "by_name", "channel", "connection", "handles",
        "is_blocked", "is_end_sent", "is_ended", "next_delivery_id", "next_outgoing_id", "receivers",
        "remote_begin", "remote_channel", "remote_handle_max", "remote_window", "senders", "unsettled",
    )  # fmt: skip

    def __init__(self, connection: Connection, channel: int) -> None:
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
        self.next_delivery_id = 0
        self.remote_window = 0
        self.unsettled: dict[int, Any] = {}
        """What we sent and has no outcome yet, by delivery id."""
        self._frames_in = 0
        self._initial_in = 0
        self._window_end = INCOMING_WINDOW
        self._refill_at = INCOMING_WINDOW // 2
        self._first = 0
        self._last = -1
        self._state: Any = None
        self._settled_count = 0
        self._links_due: dict[Link, bool] = {}
        self._is_flow_due = False
        self._pending: deque[tuple[SendingLink, bytes, bytes]] = deque()

    # What the peer does

    def on_begin(self, begin: Begin, remote_channel: int) -> None:
        """The peer's begin has come."""
        self.remote_channel = remote_channel
        self.remote_begin = begin
        self.remote_handle_max = begin.handle_max
        self._initial_in = begin.next_outgoing_id
        self.remote_window = begin.incoming_window

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
                                if self._is_aborted(data, start, count - 6, data[at:body], stop):
                                    link.abort()
                                    return
                                at = body
        if at != body:
            raise DecodeError("a transfer's fields do not fill its list")

        if more or link.takes_parts or delivery_id < 0:
            self._on_part(link, data[body:stop], delivery_id, settled, more, message_format)
            return
        try:
            received = link.received + 1
            limit = link.limit
            if received <= limit:
                link.received = received
                link.sink.on_message(data[body:stop], delivery_id, settled, message_format)
                if received == limit:
                    link.sink.on_exhausted()
            else:
                link.cross(data[body:stop], delivery_id, settled, message_format)
        except LinkError as error:
            link.detach(AmqpError(error.condition, error.description))

    @staticmethod
    def _is_aborted(data: bytes, start: int, count: int, rare: bytes, stop: int) -> bool:
        """Read the rare fields of a transfer: rcv-settle-mode, state, resume, aborted, batchable."""
        if len(rare) == count and count <= 5 and not rare[:2].strip(b"\x40") and not rare[2:].strip(b"\x40\x42"):
            return False
        found, _ = decode_performative(data, start - 3, stop)
        assert isinstance(found, Transfer)
        return found.aborted

    def _on_part(
        self,
        link: ReceivingLink,
        part: bytes,
        delivery_id: int,
        settled: bool,
        more: bool,
        message_format: int,
    ) -> None:
        """A transfer of a delivery that takes several [AMQP 2.6.14]."""
        if link.is_detach_sent:
            return
        if link.partial is None:
            if delivery_id < 0:
                raise SessionError("amqp:invalid-field", "a transfer starts a delivery without a delivery-id")
            link.partial = bytearray()
            link.takes_parts = True
            link.delivery_id = delivery_id
            link.delivery_settled = False
            link.delivery_format = message_format
        elif delivery_id not in (-1, link.delivery_id):
            raise SessionError(
                "amqp:invalid-field",
                f"delivery {delivery_id} begins while {link.delivery_id} is not complete",
            )
        link.partial += part
        link.delivery_settled |= settled
        if link.max_message_size and len(link.partial) > link.max_message_size:
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
            return
        payload = bytes(link.partial)
        link.forget_parts()
        try:
            if link.received < link.limit:
                link.received += 1
                exhausted = link.received == link.limit
                link.sink.on_message(payload, link.delivery_id, link.delivery_settled, link.delivery_format)
                if exhausted:
                    link.sink.on_exhausted()
            else:
                link.cross(payload, link.delivery_id, link.delivery_settled, link.delivery_format)
        except LinkError as error:
            link.detach(AmqpError(error.condition, error.description))

    @staticmethod
    def _unknown_handle(handle: int) -> SessionError:
        return SessionError("amqp:session:unattached-handle", f"no link is attached to handle {handle}")

    def _refill(self, frames: int) -> None:
        if frames > self._window_end:
            raise SessionError("amqp:session:window-violation", "more transfers than the incoming window")
        if not self._is_flow_due:
            self._is_flow_due = True
            self.connection.session_due(self)

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
                    state = _SMALL_STATES.get(data[at:end])
                if not settled and code != 0x42:
                    role = 0
        if role not in (0x41, 0x42) or (state is None and (at != end or count > 4)):
            self._on_any_disposition(data, start, stop)
            return
        self._dispose(role == 0x41, first, last, settled, state)

    def _on_any_disposition(self, data: bytes, at: int, stop: int) -> None:
        found, _ = decode_performative(data, at - 3, stop)
        assert isinstance(found, Disposition)
        last = found.first if found.last is None else found.last
        self._dispose(found.role, found.first, last, found.settled, found.state)

    def _dispose(self, from_receiver: bool, first: int, last: int, settled: bool, state: Any) -> None:
        if not from_receiver:
            return
        if state is None:
            if not settled:
                return
        elif not isinstance(state, _TERMINAL) and not settled:
            return
        unsettled = self.unsettled
        if first == last:
            delivery = unsettled.pop(first, None)
            if delivery is not None:
                delivery.sink.on_outcome(delivery, state)
        else:
            span = (last - first) & MASK
            if span >= 0x80000000:
                raise SessionError("amqp:invalid-field", f"a disposition from {first} back to {last}")
            if span < 2 * len(unsettled) + 64:
                ids = range(first, first + span + 1)
                if last < first:
                    ids = [delivery_id & MASK for delivery_id in ids]  # type: ignore[assignment]
            else:
                ids = [i for i in unsettled if (i - first) & MASK <= span]  # type: ignore[assignment]
            pop = unsettled.pop
            for delivery_id in ids:
                delivery = pop(delivery_id, None)
                if delivery is not None:
                    delivery.sink.on_outcome(delivery, state)
        if not settled:
            # The receiver settles second: it waits for us to settle [AMQP 2.6.12].
            self.connection.put(
                amqp_frame(self.channel, Disposition(role=False, first=first, last=last, settled=True, state=state))
            )

    def on_flow(self, data: bytes, at: int, stop: int) -> None:
        """A flow whose list starts at ``at``."""
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
            raise DecodeError("a flow is not a list of fields")
        if end > stop or count > 11:
            raise DecodeError("a flow is longer than its frame or its 11 fields")
        numbers: list[int | None] = [None] * 11
        for index in range(count):
            code = data[at]
            if code == 0x40:
                at += 1
            elif index >= 8:
                if code not in (0x41, 0x42) or index == 10:
                    break
                numbers[index] = code == 0x41
                at += 1
            elif code == 0x70:
                numbers[index] = _U32.unpack_from(data, at + 1)[0]
                at += 5
            elif code == 0x52:
                numbers[index] = data[at + 1]
                at += 2
            elif code == 0x43:
                numbers[index] = 0
                at += 1
            else:
                break
        if at != end:
            # A shape that is rare (properties, wide booleans) or wrong: the decoder knows which.
            found, _ = decode_performative(data, start - 3, stop)
            numbers = [getattr(found, name) for name in _FLOW_FIELDS]
        incoming, window, outgoing, outgoing_window, handle, count_, credit, available, drain, echo, _ = numbers
        if window is None or outgoing is None or outgoing_window is None:
            raise DecodeError("a flow lacks a mandatory field")
        if incoming is None:
            self.remote_window = window - self.next_outgoing_id
        else:
            self.remote_window = window - ((self.next_outgoing_id - incoming) & MASK)
        if self._pending or self.is_blocked:
            self._send_pending()
        if handle is not None:
            self._on_link_flow(handle, count_, credit, available, bool(drain))
            if echo and handle in self.receivers:
                self.flow_pending(self.receivers[handle])
            elif echo and handle in self.senders:
                self.flow_for(self.senders[handle], drain=False)
        elif echo:
            self._is_flow_due = True
            self.connection.session_due(self)

    def _on_link_flow(
        self, handle: int, count: int | None, credit: int | None, available: int | None, drain: bool
    ) -> None:
        sender = self.senders.get(handle)
        if sender is not None:
            if credit is None:
                return
            # A receiver that has not seen our attach yet does not know our count [AMQP 2.7.4].
            seen = 0 if count is None else self._unwrap(sender.delivery_count, count)
            before = sender.credit
            sender.credit = max(0, seen + credit - sender.delivery_count)
            sender.drain = drain
            if sender.sink is not None:
                sender.sink.on_credit(sender.credit - before, drain)
            return
        receiver = self.receivers.get(handle)
        if receiver is None:
            raise self._unknown_handle(handle)
        if count is not None:
            told = self._unwrap(receiver.received, (count - receiver.initial) & MASK)
            if receiver.received < told <= receiver.highest:
                given_up = min(told, receiver.limit) - min(receiver.received, receiver.limit)
                receiver.received = told
                receiver.limit = max(receiver.limit, told)
                if receiver.sink is not None and given_up:
                    receiver.sink.on_given_up(given_up)
        if receiver.sink is not None and available:
            receiver.sink.on_available(available)

    @staticmethod
    def _unwrap(count: int, serial: int) -> int:
        """The count near ``count`` whose lower 32 bits are ``serial`` [RFC 1982]."""
        difference = (serial - count) & MASK
        return count + (difference - (1 << 32) if difference >= 0x80000000 else difference)

    def on_attach(self, attach: Attach) -> None:
        """The peer's attach: the answer to ours, or a link that it wants."""
        is_sender = attach.role
        if attach.handle in self.receivers or attach.handle in self.senders:
            raise SessionError("amqp:session:handle-in-use", f"handle {attach.handle} is attached already")
        if attach.handle > self.connection.handle_max:
            raise FramingError(f"handle {attach.handle} is above the handle-max of {self.connection.handle_max}")
        link = self.by_name.get((is_sender, attach.name))
        if link is not None and link.remote_attach is not None:
            link.detach(AmqpError("amqp:link:stolen", "the link was attached again under its name"))
            del self.by_name[is_sender, attach.name]
            link.is_detached = True
            self.connection.handler.on_detached(link, None, False)
            link = None
        answers = link is not None
        if link is None:
            link = self._new_link(is_sender, attach.name)
        link.remote_attach = attach
        link.remote_handle = attach.handle
        if isinstance(link, SendingLink):
            self.senders[attach.handle] = link
        elif isinstance(link, ReceivingLink):
            link.initial = attach.initial_delivery_count or 0
            self.receivers[attach.handle] = link
        if answers:
            self.connection.handler.on_attached(link)
            link.tell_blocked()
        else:
            self.connection.handler.on_attach(link, attach)

    def on_detach(self, detach: Detach) -> None:
        """The peer's detach: the answer to ours, or its own wish."""
        link: Link | None = self.receivers.get(detach.handle) or self.senders.get(detach.handle)
        if link is None:
            raise self._unknown_handle(detach.handle)
        link.detach(closed=detach.closed)
        self.forget(link)
        if link.is_detached:
            return
        link.is_detached = True
        self.connection.handler.on_detached(link, detach.error, detach.closed)

    def forget(self, link: Link) -> None:
        """Free the link's name and handles."""
        if link.remote_handle is not None:
            self.receivers.pop(link.remote_handle, None)
            self.senders.pop(link.remote_handle, None)
        self.handles.pop(link.handle, None)
        key = (link.is_sender, link.name)
        if self.by_name.get(key) is link:
            del self.by_name[key]

    # What we do

    def _new_link(self, is_sender: bool, name: str) -> Link:
        handle = 0
        while handle in self.handles:
            handle += 1
        if handle > min(self.remote_handle_max, self.connection.handle_max):
            raise SessionError("amqp:resource-limit-exceeded", "the session has no free handle")
        link: Link = SendingLink(self, name, handle) if is_sender else ReceivingLink(self, name, handle)
        self.handles[handle] = link
        self.by_name[is_sender, name] = link
        return link

    def attach_sender(
        self,
        name: str,
        sink: Any,
        target: Target | None,
        *,
        source: Source | None = None,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        desired_capabilities: tuple[str, ...] | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> SendingLink:
        """Attach a link on which we send; the handler hears ``on_attached`` or ``on_detached``."""
        link = self._own_link(True, name)
        assert isinstance(link, SendingLink)
        link.sink = sink
        link._send_attach(  # noqa: SLF001
            Attach(
                name=name,
                handle=link.handle,
                role=False,
                snd_settle_mode=snd_settle_mode,
                rcv_settle_mode=rcv_settle_mode,
                source=source or Source(),
                target=target,
                initial_delivery_count=0,
                desired_capabilities=desired_capabilities,
                properties=properties,
            )
        )
        return link

    def attach_receiver(
        self,
        name: str,
        sink: Any,
        source: Source,
        *,
        target: Target | None = None,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        max_message_size: int | None = None,
        desired_capabilities: tuple[str, ...] | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> ReceivingLink:
        """Attach a link on which we receive; the handler hears ``on_attached`` or ``on_detached``."""
        link = self._own_link(False, name)
        assert isinstance(link, ReceivingLink)
        link.sink = sink
        link.limit_messages(max_message_size)
        link.settle_as(rcv_settle_mode)
        link._send_attach(  # noqa: SLF001
            Attach(
                name=name,
                handle=link.handle,
                role=True,
                snd_settle_mode=snd_settle_mode,
                rcv_settle_mode=rcv_settle_mode,
                source=source,
                target=target or Target(),
                max_message_size=max_message_size,
                desired_capabilities=desired_capabilities,
                properties=properties,
            )
        )
        return link

    def _own_link(self, is_sender: bool, name: str) -> Link:
        if self.is_end_sent or self.is_ended:
            raise LocalError("the session has ended")
        if (is_sender, name) in self.by_name:
            raise LocalError(f"a link named {name!r} is attached already")
        return self._new_link(is_sender, name)

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
        """Tell the state of a delivery that the sender is to settle first [AMQP 2.6.12]."""
        if not self.is_end_sent:
            self._flush_dispositions()
            self.connection.put(
                amqp_frame(self.channel, Disposition(role=True, first=delivery_id, settled=False, state=state))
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
            self.connection.put(
                amqp_frame(self.channel, Disposition(role=True, first=first, last=last, settled=True, state=state))
            )

    def flow_pending(self, link: ReceivingLink) -> None:
        """Tell the sender of ``link`` its credit with the next output."""
        if link.is_attached and not link.is_detach_sent:
            if link not in self._links_due:
                self._links_due[link] = False
            self.connection.session_due(self)

    def flow_for(self, link: SendingLink, *, drain: bool) -> None:
        """Tell the receiver of ``link`` where we stand, with the next output."""
        if link.is_attached and not link.is_detach_sent:
            self._links_due[link] = drain
            self.connection.session_due(self)

    def flush(self) -> None:
        """Put out what was gathered in this turn: dispositions, credit, windows."""
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
        self._flush_dispositions()
        if self._links_due.pop(link, None) is not None and isinstance(link, SendingLink):
            self._put_flow(link, True)
        if self._pending:
            # What the window kept back can no longer be sent: after a detach the handle means nothing.
            self._pending = deque(item for item in self._pending if item[0] is not link)

    def _put_flow(self, link: Link | None, drain: bool) -> None:
        if self.is_end_sent:
            return
        self._is_flow_due = False
        frames = self._frames_in
        self._window_end = frames + INCOMING_WINDOW
        self._refill_at = frames + INCOMING_WINDOW // 2
        flow = Flow(
            next_incoming_id=None if self.remote_begin is None else (self._initial_in + frames) & MASK,
            incoming_window=INCOMING_WINDOW,
            next_outgoing_id=self.next_outgoing_id & MASK,
            outgoing_window=OUTGOING_WINDOW,
        )
        if isinstance(link, ReceivingLink):
            if link.is_detach_sent:
                return
            flow.handle = link.handle
            flow.delivery_count = (link.initial + link.received) & MASK
            flow.link_credit = max(0, link.limit - link.received)
        elif isinstance(link, SendingLink):
            flow.handle = link.handle
            flow.delivery_count = link.delivery_count & MASK
            flow.link_credit = link.credit
            flow.drain = drain
        self.connection.put(amqp_frame(self.channel, flow))

    def send_in_parts(
        self, link: SendingLink, delivery_id: int, payload: bytes, settled: bool, message_format: int
    ) -> None:
        """Send a message as several transfers, or when the window opens."""
        view = memoryview(payload)
        limit = self.connection.remote_max_frame_size
        at = 0
        size = len(payload)
        first = True
        while True:
            transfer = Transfer(handle=link.handle)
            if first:
                transfer.delivery_id = delivery_id
                transfer.delivery_tag = _U32.pack(delivery_id)
                transfer.message_format = message_format
                transfer.settled = settled
            room = limit - 48
            transfer.more = size - at > room
            part = bytes(view[at : at + room])
            self._pending.append((link, amqp_frame(self.channel, transfer, len(part)), part))
            at += len(part)
            first = False
            if not transfer.more:
                break
        self._send_pending()

    def _send_pending(self) -> None:
        pending = self._pending
        connection = self.connection
        while pending and self.remote_window > 0:
            _, head, part = pending.popleft()
            self.remote_window -= 1
            self.next_outgoing_id += 1
            connection.put(head)
            connection.put(part)
        blocked = bool(pending) or self.remote_window <= 0
        if blocked != self.is_blocked:
            self.is_blocked = blocked
            if not connection.is_blocked:
                self.tell_blocked(blocked)
        if connection.out_bytes > TURN_BYTES:
            connection.block_output()

    def tell_blocked(self, blocked: bool) -> None:
        """Tell every sending link whether to hold back."""
        for link in list(self.senders.values()):
            if link.sink is not None and link.is_open:
                link.sink.on_blocked(blocked)

    def end(self, error: AmqpError | None = None) -> None:
        """End the session; its links are gone with it."""
        if self.is_end_sent:
            return
        self._flush_dispositions()
        self.is_end_sent = True
        self.connection.put(amqp_frame(self.channel, End(error)))

    def drop_links(self, error: AmqpError | None) -> None:
        """Tell the handler that every link of an ended session is gone."""
        for link in list(self.handles.values()):
            if not link.is_detached:
                link.is_detached = True
                self.connection.handler.on_detached(link, error, False)
            self.forget(link)
        self._pending.clear()


_FLOW_FIELDS = (
    "next_incoming_id", "incoming_window", "next_outgoing_id", "outgoing_window", "handle", "delivery_count",
    "link_credit", "available", "drain", "echo", "properties",
)  # fmt: skip
_HEAD_OF_DISPOSITION = b"\x00\x53\x15\xc0\x11\x05\x41\x70"
_TAIL_ACCEPTED = b"\x41\x00\x53\x24\x45"
_ACCEPTED_FRAME = struct.Struct(">I8sIBI5s")
