"""Sends what MQTT clients publish to addresses: a link for each address, and a sink for each name.

Rules:
1. A connection has one link to an address, however many names below it the client uses; each name has an end of its
   own there, and the rights to it are checked once, and again when they or the addresses have changed.
2. QoS 0 is settled. QoS 1 and 2 are not: PUBACK or PUBREC says what became of the message at its address.
3. What finds no credit waits, in the order of its address. A message of QoS 0 waits for ``BRIEFLY_S`` and is then
   dropped and counted, and so are others at once until the address takes more. One of QoS 1 or 2 waits for
   ``PATIENCE_S``, however often it is tried meanwhile: then version 5 has an error code, and earlier ones are closed,
   unless others of the address were taken in that time.
4. Without a consumer at all QoS 0 is dropped at once, and version 5 has its error code at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Modified, Rejected
from enmasse.message.sections import data_start
from enmasse.messaging.delivery import UNSTORED
from enmasse.node.connections.waiting import PATIENCE_S, WaitingMessage, WaitingSender
from enmasse.node.mqtt.messages import to_sections
from enmasse.wire.mqtt.packets import PublishProperties, Reason

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.delivery import Producer
    from enmasse.messaging.direct.metered_sink import MeteredSink
    from enmasse.node.mqtt.publications import Publications


BRIEFLY_S: Final = 1.0
"""Seconds that a message of QoS 0 may wait for credit: long enough for a consumer that reads, and short, as others of
the same client wait behind it."""

ONCE: Final = 0x10000
"""Added to the packet identifier in the number of a delivery of QoS 2."""

LARGE_BYTES: Final = 4 << 10
"""Messages above this size are counted in bytes while they have no answer; smaller ones are bounded by number."""

MAX_KEPT_BYTES: Final = 16 << 20
"""The most bytes of large messages without an answer; then the connection is not read."""


class Waiting(WaitingMessage):
    """A message that waits for credit.

    Args:
        target: the address to which it goes.
        payload: the message.
        number: the number of the delivery; 0 for QoS 0.
    """

    __slots__ = ("number", "target")

    def __init__(self, target: Target, payload: bytes, number: int) -> None:
        super().__init__(payload)
        self.target = target
        self.number = number


class Target:
    """A name that a client publishes to, and its end at the address.

    Attributes:
        sender: the link to the address.
        end: takes the messages: the name's end at the address, or the metering before it.
        producer: the name's end at the address.
    """

    __slots__ = ("end", "name", "producer", "sender")

    def __init__(self, name: str, sender: Sender, producer: Producer, end: Producer | MeteredSink) -> None:
        self.name = name
        self.sender = sender
        self.producer = producer
        self.end = end


class Sender(WaitingSender[Waiting]):
    """The link of a connection to one address; a ``ProducerPort``.

    Attributes:
        name: the address, or the name below it that has a link of its own.
    """

    __slots__ = ("_home", "_is_stuck", "_sink", "address", "name")

    def __init__(self, home: Publications, address: Address, name: str) -> None:
        super().__init__(home.space.core)
        self.address = address
        self.name = name
        self._home = home
        self._is_stuck = False
        """True once a message of QoS 0 has waited in vain, until there is credit: a thousand of them hold up what
        comes behind them for a second."""
        self._sink: Producer | MeteredSink | None = None

    @property
    def sink(self) -> Producer | MeteredSink | None:
        """The end of the link itself at the address, or the metering before it."""
        return self._sink

    @sink.setter
    def sink(self, sink: Producer | MeteredSink) -> None:
        # The metering has changed: names that are known have their ends behind another one, or none.
        self._sink = sink
        self._home.forget_targets()

    # What the client sends

    def wait(self, target: Target, payload: bytes, number: int) -> None:
        """Have a message wait for credit, unless nobody can give any."""
        home = self._home
        if self.address.is_unattended and not self.waiting:
            # A multicast address takes what is to be retained. Anything else is dropped, or released at once.
            self.count_one()
            target.end.on_crossed(payload, number, not number, 0)
            return
        if self._is_stuck and not number:
            self.address.dropped += 1
            return
        self.waiting.append(Waiting(target, payload, number))
        home.wait(number, len(payload))
        target.end.on_available(len(self.waiting))

    @property
    def _unattended(self) -> str:
        return f"{self.address.kind} {self.address.name!r:.200} has no consumer"

    @property
    def is_ending(self) -> bool:
        """True if the connection is to end."""
        return self._home.is_ending

    def due(self) -> None:
        """Have what waits looked at before the turn of the loop ends."""
        self._home.due()

    def patience(self, message: Waiting) -> float:
        """Return the seconds that a message may wait."""
        return PATIENCE_S if message.number else BRIEFLY_S

    def ends_all(self, message: Waiting) -> bool:
        """Return true if the answer to a message that has waited too long is the end of the connection."""
        return message.number > 0 and not self._home.is_v5

    def waited(self, message: Waiting) -> None:
        """Note that a message waits no longer."""
        self._home.waited(message.number, len(message.payload))

    def give_up(self, message: Waiting) -> None:
        """Drop a message of QoS 0, and answer another one."""
        home = self._home
        if not message.number:
            self.address.dropped += 1
            self._is_stuck = self.received >= self.limit
            return
        home.forget_message(message.number)
        home.answer(
            message.number,
            Reason.QUOTA_EXCEEDED,
            f"nobody took a message to {message.target.name!r:.200} within {PATIENCE_S:.0f} s: "
            "the address has no consumer that takes more, or no room, or it could not be written",
        )

    def send_waiting(self, message: Waiting) -> None:
        """Send a message that has waited."""
        home, number, target = self._home, message.number, message.target
        if number:
            home.unanswered[number] = target, message.payload, message.deadline
        if number >= ONCE and home.stores_once(target):
            home.receive_once(target, message.payload, number - ONCE)
            return
        self.received += 1
        target.end.on_message(message.payload, number, not number, 0)
        if self.received == self.limit:
            target.end.on_exhausted()

    # What the address says

    def grant(self, credit: int) -> None:
        """Set the credit; waiting messages are sent at the end of the turn."""
        if credit:
            self._is_stuck = False
        super().grant(credit)

    def settle(self, delivery_id: int, state: Any) -> None:
        """Answer a message with its outcome; one that was released is offered again while it may wait."""
        home = self._home
        kept = home.unanswered.pop(delivery_id, None)
        if kept is None:
            return
        if len(kept[1]) > LARGE_BYTES:
            home.kept_bytes -= len(kept[1])
        if state is ACCEPTED:
            if self.waiting:
                self.has_taken = True
            if home.is_v5 and not kept[0].producer.reaches_any:
                home.accepted(delivery_id, Reason.NO_MATCHING_SUBSCRIBERS)
            elif delivery_id < ONCE and not home.is_held:
                home.put_puback(delivery_id)
            else:
                home.accepted(delivery_id, 0)
            return
        target, payload, deadline = kept
        if state is RELEASED and not self.is_detach_sent:
            if self.address.is_unattended and home.refuses_unattended:
                home.answer(delivery_id, Reason.IMPLEMENTATION_SPECIFIC_ERROR, self._unattended)
                return
            home.keep(delivery_id, target, payload)
            message = Waiting(target, payload, delivery_id)
            message.deadline = deadline
            self.give_back(message)
            home.wait(delivery_id, len(payload))
            return
        reason, text = _reason_of(state)
        home.answer(delivery_id, reason, f"a message to {target.name!r:.200} was not accepted: {text}")

    def detach(self, error: Any = None) -> None:
        """End the link, as the address takes no more; the next message gets the reason."""
        if self.is_detach_sent:
            return
        self.is_detach_sent = True
        self._home.drop(self, error if isinstance(error, AmqpError) else None)


def _reason_of(state: Any) -> tuple[Reason, str]:
    """Return the reason code and text for a message that was not accepted."""
    if isinstance(state, Rejected):
        error = state.error
        if error is None:
            return Reason.UNSPECIFIED_ERROR, "it was rejected"
        text = f"it was rejected: {error.description or error.condition}"
        if str(error.condition) in ("amqp:resource-limit-exceeded", "amqp:link:message-size-exceeded"):
            return Reason.QUOTA_EXCEEDED, text
        return Reason.UNSPECIFIED_ERROR, text
    if isinstance(state, Modified):
        return Reason.IMPLEMENTATION_SPECIFIC_ERROR, "its receiver has failed, or cannot take it"
    if state is UNSTORED:
        return Reason.QUOTA_EXCEEDED, "it could not be written, and its receiver has not accepted it"
    return Reason.IMPLEMENTATION_SPECIFIC_ERROR, "nobody took it"


class Publishing:
    """The ``PublishSink`` of messages with the same topic and properties."""

    __slots__ = (
        "_end",
        "_flags",
        "_home",
        "_on_message",
        "_properties",
        "_sender",
        "_size",
        "_space",
        "_start",
        "_target",
        "_version",
        "is_lasting",
    )  # fmt: skip

    def __init__(
        self,
        home: Publications,
        target: Target,
        properties: PublishProperties | None,
        *,
        is_lasting: bool,
    ) -> None:
        self.is_lasting = is_lasting
        self._home = home
        self._target = target
        self._properties = properties
        self._sender = target.sender
        self._end = target.end
        self._on_message = target.end.on_message
        self._space = home.space
        self._version = self._space.version
        self._flags = -1
        self._size = -1
        self._start = b""
        """The bytes before a payload of the size and flags of the latest."""

    def on_publish(self, payload: bytes, flags: int, packet_id: int) -> None:
        """Send a message to its address."""
        if self._space.version != self._version:
            # Another address may have come that the name belongs to, or this one may have gone.
            self._home.publish_anew(self._target.name, self._properties, payload, flags, packet_id)
            return
        if len(payload) != self._size or flags != self._flags:
            self._learn(len(payload), flags)
        sender = self._sender
        if not packet_id:
            if sender.received < sender.limit and not sender.waiting:
                sender.received += 1
                self._on_message(self._start + payload, 0, True, 0)
                if sender.received == sender.limit:
                    self._end.on_exhausted()
            else:
                sender.wait(self._target, self._start + payload, 0)
            return
        number = packet_id if flags & 2 else packet_id + ONCE
        home = self._home
        unanswered = home.unanswered
        message = self._start + payload
        if number >= ONCE and home.is_received(packet_id):
            home.accepted(number, 0)
            return
        if number in unanswered:
            home.repeated(packet_id, flags)
            return
        unanswered[number] = self._target, message, 0.0
        if len(message) > LARGE_BYTES:
            home.kept_bytes += len(message)
        if sender.received < sender.limit and not sender.waiting:
            if number >= ONCE and home.stores_once(self._target):
                home.receive_once(self._target, message, packet_id)
            else:
                sender.received += 1
                self._on_message(message, number, False, 0)
                if sender.received == sender.limit:
                    self._end.on_exhausted()
        else:
            sender.wait(self._target, message, number)
        if len(unanswered) >= home.most_unanswered or home.kept_bytes > MAX_KEPT_BYTES:
            home.hold()

    def _learn(self, size: int, flags: int) -> None:
        parts = to_sections(
            (flags >> 1) & 3,
            bool(flags & 1),
            self._properties,
            self._space.core.wall_us // 1000,
            # The messages of a client stay in order, unless it names other keys.
            key=self._home.client_id if self._sender.address.is_read_by_offset else "",
        )
        start = parts.encode_head() + data_start(size)
        if len(start) + size > self._sender.most_bytes:
            raise RemoteError(
                "amqp:link:message-size-exceeded",
                f"messages to {self._target.name!r:.200} may have up to {self._sender.most_bytes} bytes",
            )
        self._size = size
        self._flags = flags
        self._start = start


class Dropping:
    """The ``PublishSink`` of messages whose topic leads nowhere, or which the client may not publish.

    Args:
        home: the client's publications.
        topic: the topic.
        properties: the messages'.
        error: the reason.
    """

    __slots__ = ("_error", "_home", "_properties", "_space", "_topic", "_version", "is_lasting")

    def __init__(
        self, home: Publications, topic: str, properties: PublishProperties | None, error: RemoteError
    ) -> None:
        self.is_lasting = True
        self._properties = properties
        self._home = home
        self._topic = topic
        self._error = error
        self._space = home.space
        self._version = self._space.version

    def on_publish(self, payload: bytes, flags: int, packet_id: int) -> None:
        """Drop and count a message of QoS 0; answer one of QoS 1 or 2 with the reason."""
        home = self._home
        if self._space.version != self._version:
            home.publish_anew(self._topic, self._properties, payload, flags, packet_id)
            return
        self._space.unroutable += 1
        if packet_id:
            number = packet_id if flags & 2 else packet_id + ONCE
            home.refuse_message(number, self._error)


class Overruled:
    """The ``PublishSink`` of messages that a client would have be statistics of the node, as bridges do on their own.

    Args:
        home: the client's publications.
        topic: the topic.
    """

    __slots__ = ("_home", "_topic", "is_lasting")

    def __init__(self, home: Publications, topic: str) -> None:
        self.is_lasting = True
        self._home = home
        self._topic = topic

    def on_publish(self, payload: bytes, flags: int, packet_id: int) -> None:
        """Drop and count a message, and acknowledge it: nothing is wrong with the client."""
        number = packet_id if flags & 2 or not packet_id else packet_id + ONCE
        self._home.drop_statistics(self._topic, number)
