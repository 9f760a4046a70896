"""Flow frames of the peer: windows and credit [AMQP 2.6.7, 2.7.4]; see ``session`` for how it is read."""

from __future__ import annotations

import struct
from typing import Any

from enmasse.message.composites import decode_composite
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import AmqpError
from enmasse.wire.amqp.link import MASK
from enmasse.wire.amqp.session_links import SessionLinks

_U32 = struct.Struct(">I")
_FLOW_FIELDS = (
    "next_incoming_id", "incoming_window", "next_outgoing_id", "outgoing_window", "handle", "delivery_count",
    "link_credit", "available", "drain", "echo", "properties",
)  # fmt: skip


class SessionFlow(SessionLinks):
    """A session whose windows and credit follow what the peer says."""

    __slots__ = ()

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
        numbers: list[Any] = [None] * 11
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
            found, _ = decode_composite(data, start - 3, stop)
            numbers = [getattr(found, name) for name in _FLOW_FIELDS]
        incoming, window, outgoing, outgoing_window, handle, count_, credit, available, drain, echo, properties = (
            numbers
        )
        if window is None or outgoing is None or outgoing_window is None:
            raise DecodeError("a flow lacks a mandatory field")
        if incoming is None:
            self.open_window(window - self.next_outgoing_id)
        else:
            # Below: what is on its way to the peer. Above: it counts wrongly, which may not stop it for ever.
            sent = self.next_outgoing_id
            self.open_window(window + self._unwrap(sent, incoming) - sent)
        if self._pending or self.is_blocked:
            self.send_pending()
        if handle is not None:
            if properties is not None and "txn-id" in properties:
                self._refuse_acquisition(handle)
                return
            self._on_link_flow(handle, count_, credit, available, bool(drain))
            if echo and handle in self.receivers:
                self.flow_pending(self.receivers[handle])
            elif echo and handle in self.senders:
                self.flow_for(self.senders[handle])
        elif echo:
            self._is_flow_due = True
            self.connection.session_due(self)

    def _refuse_acquisition(self, handle: int) -> None:
        """Credit that belongs to a transaction [AMQP 4.4.3]."""
        link = self.senders.get(handle)
        if link is not None:
            problem = "credit cannot belong to a transaction; settle within the transaction what was received"
            link.detach(AmqpError("amqp:not-implemented", problem))

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
            sender.credit = min(MASK, max(0, seen + credit - sender.delivery_count))
            sender.drain = drain
            if sender.sink is not None:
                sender.sink.on_credit(sender.credit - before, drain)
            return
        receiver = self.receivers.get(handle)
        if receiver is None:
            raise self._unknown_handle(handle)
        if count is not None:
            reached = self._unwrap(receiver.received, (count - receiver.initial) & MASK)
            if receiver.received < reached <= receiver.highest:
                given_up = min(reached, receiver.limit) - min(receiver.received, receiver.limit)
                receiver.received = reached
                receiver.limit = max(receiver.limit, reached)
                if receiver.sink is not None and given_up:
                    receiver.sink.on_given_up(given_up)
        if receiver.sink is not None and available:
            receiver.sink.on_available(available)

    @staticmethod
    def _unwrap(count: int, serial: int) -> int:
        """The count near ``count`` whose lower 32 bits are ``serial`` [RFC 1982]."""
        difference = (serial - count) & MASK
        return count + (difference - (1 << 32) if difference >= 0x80000000 else difference)
