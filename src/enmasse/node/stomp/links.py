"""STOMP's links to addresses: senders and subscriptions.

Rules:
1. A sender needs credit of its address. Messages without credit wait, in order, for ``PATIENCE_S`` at most, unless
   others of the destination were taken in that time; then the connection ends with the reason. A connection with too
   many waiting messages is not read.
2. A message without a receipt is sent settled, as nobody waits for its outcome. One with a receipt gets its
   ``RECEIPT`` once the address has accepted it; one that was released is sent again while it may wait.
3. A subscription's window is its prefetch count: in ``auto`` of messages that are not written yet, otherwise of
   messages without an outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Modified, Rejected
from enmasse.message.sections import data_start
from enmasse.messaging.delivery import UNSTORED
from enmasse.node.connections.waiting import PATIENCE_S, WaitingMessage, WaitingSender
from enmasse.node.large_messages import Gathered
from enmasse.node.stomp.messages import from_sections
from enmasse.wire.stomp.frames import Version, encode_frame

# A connection, its links and what they settle know each other.
if TYPE_CHECKING:
    from enmasse.messaging.delivery import Consumer, Producer
    from enmasse.messaging.direct.metered_sink import MeteredSink
    from enmasse.node.stomp.connection import StompConnection


WAITING_OVERHEAD_BYTES: Final = 200
"""The bytes that a waiting message costs beside its own."""

_LEARNT_BYTES = 4 << 10
"""The longest beginning of a message that is cached for comparison with the next."""


class Waiting(WaitingMessage):
    """A message that waits to be sent, or for its outcome."""

    __slots__ = ("receipt",)

    def __init__(self, payload: bytes, receipt: bytes | None) -> None:
        super().__init__(payload)
        self.receipt = receipt

    @property
    def size(self) -> int:
        """The bytes that it takes while it waits."""
        return len(self.payload) + WAITING_OVERHEAD_BYTES


class Sender(WaitingSender[Waiting]):
    """The link of a connection that sends to one destination; a ``ProducerPort``.

    Attributes:
        sink: takes the messages: the link's end at the address, or the metering before it.
    """

    __slots__ = ("_connection", "_unanswered", "destination", "sink", "target")

    def __init__(self, connection: StompConnection, destination: str, target: str) -> None:
        super().__init__(connection.core)
        self.destination = destination
        self.target = target
        """The address of the destination."""
        self.sink: Producer | MeteredSink
        self._connection = connection
        self._unanswered: dict[int, Waiting] = {}

    @property
    def is_idle(self) -> bool:
        """True if no message waits to be sent or for its outcome."""
        return not (self.waiting or self._unanswered)

    # What the client sends

    def send(self, payload: bytes, receipt: bytes | None) -> None:
        """Send a message, or queue it for credit.

        Raises:
            RemoteError: the message is too large.
        """
        if len(payload) > self.most_bytes:
            self.check(payload)
        if self.waiting or self.received >= self.limit:
            self._wait(Waiting(payload, receipt))
            return
        if receipt is None:
            self.received += 1
            self.sink.on_message(payload, 0, True, 0)
            if self.received == self.limit:
                self.sink.on_exhausted()
        else:
            self._send(Waiting(payload, receipt))

    def check(self, payload: bytes) -> None:
        """Check the size of a message.

        Raises:
            RemoteError: the message is too large.
        """
        if len(payload) > self.most_bytes:
            raise RemoteError(
                "amqp:link:message-size-exceeded",
                f"messages to {self.destination!r:.200} may have up to {self.most_bytes} bytes",
            )

    def _send(self, message: Waiting) -> None:
        self.received += 1
        if message.receipt is None:
            self.sink.on_message(message.payload, 0, True, 0)
        else:
            connection = self._connection
            connection.serial = number = connection.serial + 1
            self._unanswered[number] = message
            connection.unanswered += 1
            self.sink.on_message(message.payload, number, False, 0)
        if self.received == self.limit:
            self.sink.on_exhausted()

    def _wait(self, message: Waiting) -> None:
        self.waiting.append(message)
        self._connection.wait(message.size)
        self.sink.on_available(len(self.waiting))

    @property
    def is_ending(self) -> bool:
        """True if the connection is to end."""
        return self._connection.is_failing

    def due(self) -> None:
        """Have what waits looked at before the turn of the loop ends."""
        self._connection.due()

    def patience(self, message: Waiting) -> float:
        """Return the seconds that a message may wait."""
        return PATIENCE_S

    def ends_all(self, message: Waiting) -> bool:
        """Return true: the only other answer than ``RECEIPT`` is ``ERROR``."""
        return True

    def waited(self, message: Waiting) -> None:
        """Note that a message waits no longer."""
        self._connection.waited(message.size)

    def give_up(self, message: Waiting) -> None:
        """End the connection, as a message has waited too long."""
        self._connection.fail(
            "amqp:resource-limit-exceeded",
            f"nobody took a message to {self.destination!r:.200} within {PATIENCE_S:.0f} s: "
            "the address has no receiver that takes more, or no room, or it could not be written",
            message.receipt,
        )

    def send_waiting(self, message: Waiting) -> None:
        """Send a message that has waited."""
        self._send(message)

    # What the address says

    def settle(self, delivery_id: int, state: Any) -> None:
        """Send the receipt of a message, or fail the connection with the reason."""
        connection = self._connection
        message = self._unanswered.pop(delivery_id)
        connection.unanswered -= 1
        assert message.receipt is not None
        if state is ACCEPTED:
            if self.waiting:
                self.has_taken = True
            connection.engine.put_receipt(message.receipt)
            connection.answered()
            return
        if state is RELEASED and not self.is_detach_sent:
            # Somebody else may take it.
            self.give_back(message)
            connection.wait(message.size)
            return
        condition, description = _reason(state)
        connection.fail(
            condition, f"a message to {self.destination!r:.200} was not accepted: {description}", message.receipt
        )

    def refuse(self, error: RemoteError) -> None:
        """End the link, as whoever is behind the address takes nothing of it."""
        self.detach(AmqpError(error.condition, error.description))

    def detach(self, error: Any = None) -> None:
        """End the link, as the address takes no more; the next message gets the reason."""
        if self.is_detach_sent:
            return
        self.is_detach_sent = True
        if self.is_idle or not isinstance(error, AmqpError):
            self._connection.drop(self)
            return
        first = self.waiting[0] if self.waiting else next(iter(self._unanswered.values()))
        self._connection.fail(str(error.condition), error.description or "the address is gone", first.receipt)


def _reason(state: Any) -> tuple[str, str]:
    """Return the reason why a message was not accepted."""
    if isinstance(state, Rejected):
        error = state.error
        if error is None:
            return "amqp:rejected", "it was rejected"
        return str(error.condition), f"it was rejected: {error.description or error.condition}"
    if isinstance(state, Modified):
        return "amqp:modified", "its receiver has failed, or cannot take it"
    if state is UNSTORED:
        return "amqp:resource-limit-exceeded", "it could not be written, and its receiver has not accepted it"
    return "amqp:released", "nobody took it"


class Sending:
    """The ``SendSink`` of messages with the same destination and headers."""

    __slots__ = ("_head", "_sender", "_size", "_start", "is_lasting")

    def __init__(self, sender: Sender, head: bytes) -> None:
        self.is_lasting = True
        self._sender = sender
        self._head = head
        self._size = -1
        self._start = b""
        """The bytes before a body of the size of the latest."""

    def on_send(self, body: bytes, receipt: bytes | None) -> None:
        """Send a message."""
        if len(body) != self._size:
            self._size = len(body)
            self._start = self._head + data_start(self._size)
        self._sender.send(self._start + body, receipt)


class Deferring:
    """The ``SendSink`` of messages that come behind the end of a transaction, which waits itself."""

    is_lasting = False

    def __init__(self, connection: StompConnection, headers: dict[str, str]) -> None:
        self._connection = connection
        self._headers = headers

    def on_send(self, body: bytes, receipt: bytes | None) -> None:
        """Send the message after what waits."""
        connection, headers = self._connection, self._headers
        connection.defer(
            headers.get("transaction"),
            lambda: connection.sink_of(headers).on_send(body, receipt),
            receipt,
            len(body) + sum(map(len, headers.values())),
        )


class Receiver:
    """A subscription; a ``ConsumerPort``.

    Args:
        connection: the client's connection.
        name: the subscription's ``id``.
        destination: the destination as the client named it.
        mode: ``auto``, ``client`` or ``client-individual``.
        window: the prefetch count.
    """

    __slots__ = (
        "_connection", "_gained", "_has_ack", "_head", "_prefix", "_size", "_skip", "_written", "consumer", "credit",
        "destination", "is_auto", "is_cumulative", "is_detach_sent", "name", "prefix", "receipt", "window",
    )  # fmt: skip

    def __init__(self, connection: StompConnection, name: str, destination: str, mode: str, window: int) -> None:
        self.name = name
        self.destination = destination
        self.prefix = ""
        """The prefix that the client puts before the names of addresses."""
        self.window = window
        self.credit = 0
        self.is_auto = mode == "auto"
        self.is_cumulative = mode == "client"
        self.is_detach_sent = False
        self.consumer: Consumer
        self.receipt: bytes | None = None
        """The receipt that the client waits for until it is subscribed."""
        self._connection = connection
        self._has_ack = connection.engine.version is Version.V1_2
        """True if the client acknowledges by the header ``ack``; before version 1.2, by message id."""
        self._gained = 0
        self._written: list[Any] = []
        """The deliveries that are accepted once they are written."""
        self._prefix = b""
        self._size = -1
        self._skip = 0
        self._head = b""

    # Messages

    def begin(self) -> None:
        """Tell the client that it is subscribed, and begin to receive."""
        self.put_receipt()
        self.credit = self.window
        self.consumer.on_credit(self.window, False)
        if self._connection.engine.is_blocked:
            self.consumer.on_blocked(True)

    def put_receipt(self) -> None:
        """Send the receipt that the client waits for, if it does."""
        receipt, self.receipt = self.receipt, None
        if receipt is not None:
            self._connection.engine.put_receipt(receipt)

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        """Send one message for one credit."""
        self.credit -= 1
        self.put(delivery, payload, settled)

    def put(self, delivery: Any, payload: bytes, settled: bool) -> None:
        """Send a message whose credit is used up."""
        connection = self._connection
        connection.serial = number = connection.serial + 1
        if len(payload) == self._size and payload.startswith(self._prefix):
            head = self._head
            body = payload[self._skip :]
        else:
            head, body = self._read(payload)
        if self.is_auto:
            if not settled:
                self._written.append(delivery)
            if not self._gained:
                connection.written.append(self)
            self._gained += 1
            frame = b"MESSAGE\nmessage-id:%d\n%b%b\x00" % (number, head, body)
        else:
            # The client acknowledges what its sender had sent settled, too, as it cannot know.
            connection.unacknowledged[number] = self, None if settled else delivery
            if self._has_ack:
                frame = b"MESSAGE\nmessage-id:%d\nack:%d\n%b%b\x00" % (number, number, head, body)
            else:
                frame = b"MESSAGE\nmessage-id:%d\n%b%b\x00" % (number, head, body)
        connection.engine.put(frame)

    def _read(self, payload: bytes) -> tuple[bytes, bytes]:
        """Return the frame after the message's number, and the body; cached for a next one of the same shape."""
        content = from_sections(payload)
        destination = self.destination if content.topic_name is None else self.prefix + content.topic_name
        headers = (
            ("subscription", self.name),
            ("destination", destination),
            ("content-length", str(len(content.body))),
            # Of headers of one name the first counts, so no message can take the place of what stands above.
            *content.headers,
        )
        head = encode_frame("MESSAGE", headers, b"", self._connection.engine.version)[len("MESSAGE\n") : -1]
        if 0 < content.body_at <= _LEARNT_BYTES:
            self._size = len(payload)
            self._skip = content.body_at
            self._prefix = payload[: content.body_at]
            self._head = head
        return head, content.body

    def admits(self, size: int) -> bool:
        """Return true if there is room for a large message."""
        return self._connection.engine.admits(size)

    def follow(self, delivery: Any) -> bool:
        """Return false: a frame that is sent cannot be held back."""
        return False

    def send_while_it_comes(self, delivery: Any, settled: bool, message_format: int = 0) -> Gathered:
        """Begin to send a message that is still being received."""
        return Gathered(self, delivery, settled)

    @property
    def holds_back(self) -> bool:
        """True if nothing more should be sent for now."""
        return self._connection.engine.is_blocked

    def drained(self) -> None:
        """Do nothing: STOMP has no drain."""

    # Outcomes

    def refill(self) -> None:
        """Accept what was sent, as it is being written, and grant as much credit again."""
        written = self._written
        if written:
            self._written = []
            for delivery in written:
                self.consumer.on_outcome(delivery, ACCEPTED)
        gained, self._gained = self._gained, 0
        self.credit += gained
        self.consumer.on_credit(gained, False)

    def gain(self) -> None:
        """Count a place in the window that an outcome has freed; credit is granted in batches."""
        self._gained += 1
        if 2 * self._gained >= self.window:
            gained, self._gained = self._gained, 0
            self.credit += gained
            self.consumer.on_credit(gained, False)

    def take_back(self) -> None:
        """Give a credit back whose message was not sent."""
        self.credit += 1
        self.consumer.on_credit(1, False)

    def take_unsettled(self) -> list[Any]:
        """Remove and return the deliveries without an outcome, oldest first."""
        unacknowledged = self._connection.unacknowledged
        numbers = sorted(number for number, (receiver, _) in unacknowledged.items() if receiver is self)
        found = [unacknowledged.pop(number)[1] for number in numbers]
        written, self._written = self._written, []
        return [delivery for delivery in found if delivery is not None] + written

    def take_from(self, sink: Any) -> list[Any]:
        """Remove and return what one of several ends has sent and has no outcome yet, oldest first.

        The client acknowledges it all the same, as it cannot know, and has room for more then.
        """
        unacknowledged = self._connection.unacknowledged
        numbers = sorted(
            number
            for number, (receiver, delivery) in unacknowledged.items()
            if receiver is self and delivery is not None and delivery.sink is sink
        )
        found = [unacknowledged[number][1] for number in numbers]
        unacknowledged.update((number, (self, None)) for number in numbers)
        written = [delivery for delivery in self._written if delivery.sink is sink]
        self._written = [delivery for delivery in self._written if delivery.sink is not sink]
        return found + written

    def detach(self, error: Any = None) -> None:
        """End the connection with the subscription, as STOMP has no other way to report that."""
        if self.is_detach_sent:
            return
        self.is_detach_sent = True
        problem = error if isinstance(error, AmqpError) else AmqpError("amqp:link:detach-forced")
        text = problem.description or "it was ended"
        self._connection.fail(str(problem.condition), f"subscription {self.name!r:.100} is over: {text}")
