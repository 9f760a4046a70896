"""Links: the two ends of a one-way route for messages [AMQP 2.6].

Rules:
1. Counts of deliveries are plain integers from 0 that never wrap; only the wire sees serial numbers.
2. A link calls its sink (``sinks``) directly for what is hot (messages, credit, outcomes) and the
   connection's handler for what is not (attach, detach).
3. A sending link never holds messages back for want of credit: who has no credit does not send.
   What the session's window or the frame size keeps from going out at once waits in the session,
   and the sink is told by ``on_blocked`` to stop meanwhile.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse.message.codec import encode
from enmasse.message.composites import decode_composite
from enmasse.message.outcomes import AmqpError
from enmasse.message.passage import Passage
from enmasse.message.types import UInt
from enmasse.wire.amqp.errors import LinkError, LocalError
from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.parts import OutgoingParts
from enmasse.wire.amqp.performatives import Attach, Coordinator, Detach, Source, Target, TransactionalState, Transfer
from enmasse.wire.amqp.sinks import DeliveryTracker, MessageGuard
from enmasse.wire.amqp.unsettled import tag_of

# A connection, its sessions and their links know each other.
if TYPE_CHECKING:
    from enmasse.wire.amqp.session_output import SessionOutput

__all__ = ["Link", "ReceivingLink", "SendingLink"]

MASK = 0xFFFFFFFF

MAX_CREDIT = 0x7FFFFFFF
"""More could not be told from less, as delivery counts wrap [RFC 1982]."""

TURN_BYTES = 1 << 20
"""The most that one connection may put out between two writes before its links are blocked, where its shell has no
other bound: several times what a socket takes at once, so that the bound never costs throughput."""

_FIRST_PART = struct.Struct(">I2s5ssIss")

PART_HEAD_BYTES = 48
"""Room for a transfer's frame without its payload and its state."""


class Link:
    """The part that both ends have in common."""

    __slots__ = (
        "attach", "channel", "error", "handle", "is_attached", "is_detach_sent", "is_detached", "name",
        "remote_attach", "remote_handle", "session", "sink",
    )  # fmt: skip
    is_sender: bool

    def __init__(self, session: SessionOutput, name: str, handle: int) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.channel = session.channel
        self.remote_handle: int | None = None
        self.remote_attach: Attach | None = None
        """The peer's attach, once it has come."""
        self.attach: Attach | None = None
        """Our attach, once it has gone."""
        self.is_attached = False
        self.is_detached = False
        """The peer has detached, or the session is gone: nothing can be sent."""
        self.is_detach_sent = False
        self.error: AmqpError | None = None
        """Why we detached, if we did with an error."""
        self.sink: Any = None

    def accept(
        self,
        sink: Any,
        *,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        snd_settle_mode: int | None = None,
        max_message_size: int | None = None,
        offered_capabilities: tuple[str, ...] | None = None,
        properties: dict[Any, Any] | None = None,
        unsettled: dict[Any, Any] | None = None,
        incomplete_unsettled: bool = False,
    ) -> None:
        """Answer the peer's attach, and tell ``sink`` of the credit and drain that came before.

        What is ``unsettled`` of an earlier life of the link is told by delivery tag [AMQP 2.6.13].

        Raises:
            LocalError: the attach was answered before, or the link has ended.
        """
        remote = self._wish()
        self.sink = sink
        if isinstance(self, ReceivingLink):
            self.limit_messages(max_message_size)
            self.settle_as(remote.rcv_settle_mode)
        self._send_attach(
            Attach(
                name=self.name,
                handle=self.handle,
                role=not self.is_sender,
                snd_settle_mode=remote.snd_settle_mode if snd_settle_mode is None else snd_settle_mode,
                rcv_settle_mode=remote.rcv_settle_mode,
                source=source,
                target=target,
                unsettled=unsettled,
                incomplete_unsettled=incomplete_unsettled,
                initial_delivery_count=0 if self.is_sender else None,
                max_message_size=max_message_size,
                offered_capabilities=offered_capabilities,
                properties=properties,
            )
        )
        self.tell_blocked()
        self.tell_credit()

    def refuse(self, condition: str, description: str, info: dict[Any, Any] | None = None) -> None:
        """Answer the peer's attach with an attach without terminus and a detach [AMQP 2.6.3].

        Raises as ``accept`` does.
        """
        self._wish()
        self.detach(AmqpError(condition, description, info))

    def _wish(self) -> Attach:
        """Return the peer's attach, which waits for an answer."""
        remote = self.remote_attach
        if remote is None or self.attach is not None or self.is_detached or self.session.is_end_sent:
            raise LocalError(f"link {self.name!r} has no attach to answer")
        return remote

    def _send_attach(self, attach: Attach) -> None:
        self.attach = attach
        self.is_attached = True
        self.session.connection.put(amqp_frame(self.channel, attach))
        self.on_attach_sent()

    def on_attach_sent(self) -> None:
        """Send what waited for the attach."""

    def detach(self, error: AmqpError | None = None, *, closed: bool = True) -> None:
        """Detach, or close, the link; without effect where that was done.

        A peer whose attach has no answer yet is told by an attach without terminus first [AMQP 2.6.3].
        """
        if self.is_detach_sent or self.session.is_end_sent:
            return
        if self.attach is None:
            self._send_attach(
                Attach(
                    name=self.name,
                    handle=self.handle,
                    role=not self.is_sender,
                    initial_delivery_count=0 if self.is_sender else None,
                )
            )
        self.is_detach_sent = True
        self.error = error
        self.session.flush_link(self)
        self.session.connection.say(self.channel, Detach(handle=self.handle, closed=closed, error=error))
        self.on_detach_sent()

    def on_detach_sent(self) -> None:
        """Forget what only an attached link needs."""

    def tell_blocked(self) -> None:
        """Tell the sink of a new link that its session holds back, if it does."""

    def tell_credit(self) -> None:
        """Tell the sink of a new link what the peer has granted before it was answered, if it has."""

    @property
    def is_open(self) -> bool:
        """True if both ends are attached."""
        return self.is_attached and not self.is_detached and not self.is_detach_sent


class SendingLink(Link):
    """We send, the peer receives and grants credit."""

    __slots__ = (
        "_head", "_pack", "_size", "_tails", "credit", "delivery_count", "drain", "max_message_size", "room",
    )  # fmt: skip
    is_sender = True

    def __init__(self, session: SessionOutput, name: str, handle: int) -> None:
        super().__init__(session, name, handle)
        self.delivery_count = 0
        self.credit = 0
        """The messages that the peer still takes."""
        self.drain = False
        fields = encode(UInt(handle))
        content = 1 + len(fields) + 5 + 7 + 2
        self._head = (
            b"\x02\x00"
            + session.channel.to_bytes(2, "big")
            + b"\x00\x53\x14\xc0"
            + bytes((content, 5))
            + fields
            + b"\x70"
        )
        self._tails = (b"\x43\x42", b"\x43\x41")
        self._pack = struct.Struct(f">I{len(self._head)}sI6sB2s").pack
        self._size = len(self._head) + 17
        self.room = session.connection.remote_max_frame_size - self._size
        """Bytes of payload that fit into one frame, and into a message."""
        self.max_message_size = 0
        """Bytes of payload that the peer takes in one message; 0 is any number."""

    def limit_messages(self, max_message_size: int | None) -> None:
        """The peer takes only messages of up to so many bytes; nothing or 0 means any size [AMQP 2.7.3]."""
        self.max_message_size = max_message_size or 0
        if self.max_message_size:
            self.room = min(self.room, self.max_message_size)

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        """Send one message; the caller has seen to it that there is credit.

        One that is larger than the peer takes is not sent: its outcome is ``TOO_LARGE``, told with the next
        output; a settled one is dropped.

        Args:
            delivery: the delivery that ``on_outcome`` will be given; its ``sink`` must be this link's. Ignored for a
                settled message.
            payload: the sections of the message.
            settled: whether the peer need not answer.
            message_format: 0 for AMQP's own.
        """
        session = self.session
        size = len(payload)
        self.delivery_count += 1
        self.credit -= 1
        delivery_id = session.next_delivery_id
        tag_head = session.tag_head
        tag_end = delivery_id & 0x7F
        if tag_end == 0x7F:
            session.number_from(delivery_id + 1)
        else:
            session.next_delivery_id = delivery_id + 1
        if not settled:
            session.unsettled[delivery_id] = delivery
        if size > self.room or session.remote_window <= 0 or message_format:
            session.send_in_parts(self, delivery_id, payload, settled, message_format)
            return
        session.remote_window -= 1
        session.next_outgoing_id += 1
        connection = session.connection
        out = connection.out
        if not out:
            connection.wake(connection)
        out.append(
            self._pack(
                size + self._size,
                self._head,
                delivery_id,
                tag_head,
                tag_end,
                self._tails[settled],
            )
        )
        out.append(payload)
        connection.out_bytes += size
        if connection.out_bytes > connection.out_room:
            connection.fill()

    def admits(self, size: int) -> bool:
        """Return true if there is room for a large message; the links hold back otherwise, until there may be."""
        return self.session.connection.admits(size)

    def follow(self, delivery: Any) -> bool:
        """Have the end of the message that was just sent settled told, if the session's window holds it back.

        The delivery's sink hears ``ACCEPTED`` once all of it has gone out, and ``RELEASED`` if it never does.

        Returns:
            Whether it waits for the window.
        """
        return self.session.follow(self, delivery)

    def send_in_transaction(
        self, delivery: Any, payload: bytes, settled: bool, message_format: int, state: TransactionalState
    ) -> None:
        """Send one message that counts only if its transaction is committed; see ``send``.

        A peer that does not settle by itself is answered by the handler's ``on_transactional_outcome``.
        """
        delivery_id = self.take_delivery_id(delivery, settled)
        self.session.send_in_parts(self, delivery_id, payload, settled, message_format, state)

    def take_delivery_id(self, delivery: Any, settled: bool) -> int:
        """Use up a credit for a delivery, and number it."""
        session = self.session
        self.delivery_count += 1
        self.credit -= 1
        delivery_id = session.next_delivery_id
        session.number_from(delivery_id + 1)
        if not settled:
            session.unsettled[delivery_id] = delivery
        return delivery_id

    def send_while_it_comes(self, delivery: Any, settled: bool, message_format: int = 0) -> OutgoingParts:
        """Begin to send a message whose pieces are still to come; see ``send``."""
        return OutgoingParts(self, delivery, settled, message_format)

    @property
    def holds_back(self) -> bool:
        """True if nothing more should be sent for now, whatever the credit."""
        return self.session.is_blocked or self.session.connection.is_blocked

    @property
    def part_room(self) -> int:
        """Bytes of payload that fit into one frame of a delivery in parts."""
        return self.session.connection.remote_max_frame_size - PART_HEAD_BYTES

    def part_heads(self, delivery_id: int, settled: bool, message_format: int) -> tuple[bytes, bytes, bytes]:
        """The transfers of a delivery in several frames without their sizes and payloads.

        Returns:
            the first one, which names the delivery; one in between; the last one, which has no more.
        """
        start = self._head[:8]
        handle = self._head[10:-1]
        of_rest = len(handle) + 1
        first = _FIRST_PART.pack(
            delivery_id,
            b"\xa0\x05",
            tag_of(delivery_id),
            b"\x70",
            message_format,
            b"\x41" if settled else b"\x42",
            b"\x41",
        )
        return (
            start + bytes((of_rest + 1 + len(first), 6)) + handle + b"\x70" + first,
            start + bytes((of_rest + 5, 6)) + handle + b"\x40\x40\x40\x40\x41",
            start + bytes((of_rest, 1)) + handle,
        )

    def tell_blocked(self) -> None:
        """Tell the sink of a new link that its session holds back, if it does."""
        if self.is_open and self.holds_back:
            self.sink.on_blocked(True)

    def tell_credit(self) -> None:
        """Tell the sink of a new link what the peer has granted before it was answered, if it has."""
        if self.credit or self.drain:
            self.sink.on_credit(self.credit, self.drain)

    def drained(self) -> None:
        """Use up the credit, as the peer asked by drain [AMQP 2.6.7]."""
        if self.drain:
            self.drain = False
            self.delivery_count += self.credit
            self.credit = 0
            self.session.flow_for(self, drain=True)

    def take_unsettled(self) -> list[Any]:
        """Remove and return what was sent on this link and has no outcome yet, oldest first."""
        return self.session.by_link.take(self.session, self.sink)

    def take_from(self, sink: Any) -> list[Any]:
        """Remove and return what one of several ends has sent on this link and has no outcome yet, oldest first."""
        return self.session.by_link.take(self.session, sink)


class ReceivingLink(Link):
    """The peer sends, we receive and grant credit."""

    __slots__ = (
        "__weakref__", "_is_measured", "delivery_format", "delivery_id", "delivery_settled", "delivery_txn", "guard",
        "highest", "initial", "is_stalled", "known_head", "known_size", "limit", "max_message_size", "partial",
        "partial_bytes", "passage", "passes_from", "received", "settle", "slack", "takes_parts", "tracker",
    )  # fmt: skip
    is_sender = False

    def __init__(self, session: SessionOutput, name: str, handle: int) -> None:
        super().__init__(session, name, handle)
        self.initial = 0
        self.received = 0
        """Deliveries that have come (or that the sender gave up), from 0."""
        self.limit = 0
        """Deliveries that may come in all, from 0: the credit is what lies between."""
        self.highest = 0
        """The largest limit that was ever told to the sender, and its slack."""
        self.slack = 0
        """Deliveries beyond what it was told that count as crossed on the wire, for a sender known to send them."""
        self.max_message_size = 0
        self.partial: list[bytes | bytearray | memoryview] | None = None
        """The bytes that have come of a delivery that takes several transfers."""
        self.partial_bytes = 0
        self.is_stalled = False
        """True if what comes of a message that passes has to wait."""
        self.passes_from = 0
        """Bytes of a message from which it is passed on while it comes; 0 holds every message whole."""
        self.passage: Passage | None = None
        self.guard: MessageGuard | None = None
        """The guard that messages have to pass before the sink has them; set before the link is accepted."""
        self.known_size = -1
        """The size of a message that may pass the guard if it begins with ``known_head``; -1: none is known."""
        self.known_head = b""
        self.tracker: DeliveryTracker | None = None
        """The follower of the deliveries, if the link may be resumed; set before the link is accepted."""
        self.takes_parts = False
        """True if the next transfer may be a part, or must be measured or followed."""
        self._is_measured = False
        self.delivery_id = 0
        self.delivery_settled = False
        self.delivery_format = 0
        self.delivery_txn: bytes | None = None
        """The transaction that the delivery under way belongs to."""
        self.settle: Callable[[int, Any], None] = session.settle
        """Given (delivery id, state) tells the sender the outcome of a delivery; ranges of equal ones
        go out together."""

    def limit_messages(self, max_message_size: int | None) -> None:
        """Take only messages of up to so many bytes; nothing or 0 means any size."""
        self.max_message_size = max_message_size or 0
        is_small = 0 < self.max_message_size < self.session.connection.max_frame_size
        self.takes_parts = self._is_measured = is_small or self.tracker is not None

    def stall(self, is_stalled: bool) -> None:
        """Have the sender stop by its session's window, or go on; what is on its way still comes."""
        self.is_stalled = is_stalled
        self.session.stall_window(is_stalled)
        if not (is_stalled or (self.passage is not None and self.passage.is_kept)):
            size, self.partial_bytes = self.partial_bytes, 0
            self.session.connection.forget_partial(size)

    def hold_input(self, is_held: bool) -> None:
        """Leave what the peer sends unread, or read on; for who cannot pass on what has come."""
        self.session.connection.hold_input(is_held)

    def settle_as(self, rcv_settle_mode: int) -> None:
        """Settle at once (0, first) or leave it to the sender to settle first (1, second)."""
        self.settle = self.session.settle_second if rcv_settle_mode == 1 else self.session.settle

    def settle_after(self, delivery_id: int, state: Any, done: Callable[[], None]) -> None:
        """Send the outcome of a delivery, and have ``done`` called once the sender has settled it [AMQP 2.6.12].

        That is how a receiver hears that its outcome has taken effect. One whose sender has not agreed to settle
        second is settled at once. If the link ends before, ``done`` is not called.
        """
        remote = self.remote_attach
        if remote is not None and remote.rcv_settle_mode == 1:
            self.session.settle_after(self, delivery_id, state, done)
        else:
            self.session.settle(delivery_id, state)
            done()

    def settle_within(self, delivery_id: int, state: TransactionalState, is_settled: bool) -> None:
        """Send the outcome that a delivery has once its transaction is committed [AMQP 4.4.2].

        One that is not settled by us is settled by the sender then, and stays ours if it is rolled back.
        """
        if is_settled:
            self.session.settle(delivery_id, state)
        else:
            self.session.settle_second(delivery_id, state)

    @property
    def is_under_way(self) -> bool:
        """True if a part of a delivery has come."""
        return self.partial is not None or self.passage is not None

    def is_taken(self, data: bytes, start: int, stop: int) -> bool:
        """True if nothing more is to be done about a transfer, as its delivery was resumed [AMQP 2.6.13]."""
        assert self.tracker is not None
        if self.is_detach_sent:
            return True
        found, _ = decode_composite(data, start - 3, stop)
        assert isinstance(found, Transfer)
        return self.tracker.takes(found)

    def forget_parts(self) -> None:
        """The incomplete delivery is complete, or will never be."""
        self.partial = None
        connection = self.session.connection
        connection.partial_bytes -= self.partial_bytes
        self.partial_bytes = 0
        if connection.partial_bytes < connection.partial_kept:
            connection.less_room()
        self.takes_parts = self._is_measured
        if self.passage is not None:
            self.passage = None
            self.session.widen_window()

    def give_up(self, error: AmqpError) -> None:
        """Detach, and let go of what has come of a delivery that is not complete."""
        passage = self.passage
        self.detach(error)
        if passage is not None:
            passage.abort()

    @staticmethod
    def no_room() -> AmqpError:
        """Return the error for a sender of whose messages too much is not complete."""
        problem = "there is no room for messages that are not complete; send larger ones one after the other"
        return AmqpError("amqp:resource-limit-exceeded", problem)

    def abort(self) -> None:
        """The sender gives up the delivery under way, which used up a credit all the same [AMQP 2.6.14]."""
        passage = self.passage
        self.forget_parts()
        if passage is not None:
            passage.abort()
            return
        if self.received < self.highest:
            self.received += 1
            if self.received <= self.limit:
                self.sink.on_given_up(1)
            else:
                self.limit = self.received

    def on_attach_sent(self) -> None:
        """Credit may have been granted before."""
        if self.limit:
            self.session.flow_pending(self)

    def on_detach_sent(self) -> None:
        """Whatever still comes is beyond the credit, and so ignored."""
        self.forget_parts()
        self.limit = self.highest = self.received

    @property
    def credit(self) -> int:
        """The messages that the sender may still send."""
        return self.limit - self.received

    def grant(self, credit: int) -> None:
        """Set the sender's credit; less than before takes credit back without awaiting an answer."""
        if credit > MAX_CREDIT:
            credit = MAX_CREDIT
        limit = self.received + credit
        if limit != self.limit:
            self.limit = limit
            if limit + self.slack > self.highest:
                self.highest = limit + self.slack
            self.session.flow_pending(self)

    def drain(self) -> None:
        """Ask the sender to use up the credit now, with messages or without [AMQP 2.6.7].

        Without, the sink hears ``on_given_up``; either way the credit is 0 in the end.
        """
        if self.credit > 0:
            self.session.flow_for(self, drain=True)

    def beyond_limit(self) -> AmqpError:
        """Return the error for a sender that went beyond whatever was granted."""
        return AmqpError(
            "amqp:link:transfer-limit-exceeded",
            f"link {self.name!r:.100} sent delivery {self.received + 1}, {self.highest - self.slack} were granted",
        )

    def count(self) -> bool:
        """Count a delivery that has come, and tell whether it used up the last credit.

        Raises:
            LinkError: it is beyond whatever was granted.
        """
        if self.received < self.limit:
            self.received += 1
            return self.received == self.limit
        if self.received >= self.highest:
            error = self.beyond_limit()
            raise LinkError(error.condition, error.description or "")
        self.received += 1
        self.limit = self.received
        return False

    def cross(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """A delivery above the present limit: crossed on the wire, or a breach [AMQP 2.6.7]."""
        self.count()
        if self.guard is None or self.guard.admits(payload, delivery_id, settled, message_format):
            self.sink.on_crossed(payload, delivery_id, settled, message_format)
