"""A delivery that is sent while its message is still coming [AMQP 2.6.14]."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.performatives import Transfer

if TYPE_CHECKING:
    from enmasse.wire.amqp.link import SendingLink

_U32 = struct.Struct(">I")


class OutgoingParts:
    """One delivery of a sending link, piece by piece; the link sends nothing else until it ends.

    Args:
        link: with credit, of which this delivery takes one.
        delivery: the delivery that the link's sink will be given with the outcome.
        settled: whether the peer need not answer.
        message_format: 0 for AMQP's own.
    """

    is_kept = False
    __slots__ = ("_between", "_delivery", "_delivery_id", "_head", "_is_over", "_last", "_left", "link")

    def __init__(self, link: SendingLink, delivery: Any, settled: bool, message_format: int) -> None:
        self.link = link
        self._delivery = None if settled else delivery
        self._is_over = False
        self._left = link.max_message_size
        """Bytes that the peer takes yet, if it has said how many."""
        self._delivery_id = link.take_delivery_id(delivery, settled)
        self._head, self._between, self._last = link.part_heads(self._delivery_id, settled, message_format)

    def write(self, part: bytes | memoryview) -> None:
        """Send a piece, after which others come."""
        if self.link.max_message_size and self._exceeds(len(part)):
            return
        self._write(part)

    def _write(self, part: bytes | memoryview) -> None:
        room = self.link.part_room
        view = memoryview(part)
        for at in range(0, len(view), room):
            self._put(self._head, view[at : at + room])
            self._head = self._between
        self.link.session.send_pending()

    def end(self, part: bytes | memoryview) -> None:
        """Send the last piece; something was written before."""
        if self.link.max_message_size and self._exceeds(len(part)):
            return
        room = self.link.part_room
        if len(part) > room:
            cut = (len(part) - 1) // room * room
            self._write(memoryview(part)[:cut])
            part = memoryview(part)[cut:]
        self._put(self._last, part)
        self.link.session.send_pending()

    def _exceeds(self, size: int) -> bool:
        """Return true if the message is larger than the peer takes; then it is given up [AMQP 2.7.3]."""
        self._left -= size
        if self._left < 0 and not self._is_over:
            self.abort()
            if self._delivery is not None:
                self.link.session.report_too_large(self._delivery)
        return self._is_over

    def abort(self) -> None:
        """Give the delivery up, which settles it; something was written before."""
        if self._is_over:
            return
        self._is_over = True
        link = self.link
        link.session.unsettled.pop(self._delivery_id, None)
        if link.is_open:
            frame = amqp_frame(link.channel, Transfer(handle=link.handle, aborted=True))
            link.session.queue_part(link, frame, b"")
            link.session.send_pending()

    def _put(self, head: bytes, part: bytes | memoryview) -> None:
        link = self.link
        if link.is_open:
            link.session.queue_part(link, _U32.pack(4 + len(head) + len(part)) + head, part)
