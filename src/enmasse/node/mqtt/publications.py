"""The messages that one client publishes: their senders, what waits for credit, and what has no answer yet.

Rules:
1. A message of QoS 1 or 2 is answered once, whatever happens: with PUBACK or PUBREC, or the connection ends.
2. A name is resolved when it is first published to, and again once addresses, limits or rights have changed.
3. A packet identifier of QoS 2 is kept from PUBREC to PUBREL: in memory, or by a session that outlives its connection
   on disk, in one batch with the message where its address stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED, AmqpError
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.direct.metered_sink import MeteredSink
from enmasse.messaging.queues.topic_producer import TopicProducer
from enmasse.messaging.transaction import TakesMessages
from enmasse.node.connections.client_connection import ClientLink
from enmasse.node.large_messages import MAX_MESSAGE_BYTES
from enmasse.node.mqtt.messages import is_lasting
from enmasse.node.mqtt.publishing import (
    LARGE_BYTES,
    MAX_KEPT_BYTES,
    ONCE,
    Dropping,
    Overruled,
    Publishing,
    Sender,
    Target,
)
from enmasse.node.mqtt.statistics import FED_BY_NODE, is_of_statistics
from enmasse.wire.mqtt.handler import PublishSink
from enmasse.wire.mqtt.packets import PublishProperties, Reason, Version, protocol_error

# A connection, and what it publishes and receives, know each other: they are one client's.
if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.delivery import Producer
    from enmasse.messaging.space import Space
    from enmasse.node.mqtt.connection import MqttConnection


RECEIVE_MAXIMUM: Final = 1_000
"""The most messages of QoS 1 and 2 without an answer, which clients of version 5 are told; and the most of any QoS
that wait for credit. An earlier client with more is not read."""

MAX_SENDERS: Final = 100
"""The most addresses that a connection has links to; the idle one that was used least recently makes room."""

MAX_TARGETS: Final = 1_000
"""The most names that a connection has ends for; then the oldest makes room."""


MAX_NAME_CHARACTERS: Final = 1_024
"""The longest of these: names may have 64 KiB."""


class Publications:
    """The publishing side of one client: its targets, and the messages without an answer.

    Attributes:
        space: the client's.
        client_id: the client's name.
        is_v5: whether errors have codes.
        unanswered: messages without an answer, by the number of their delivery; of each, when it has waited too long,
            or 0 as long as it never waited.
        kept_bytes: bytes of the large ones among them.
        most_unanswered: the number of these above which the client is not read.
        is_held: whether the client is not read, as it has too much without an answer.
        put_puback: answers a message of QoS 1.
        once: packet identifiers of QoS 2 from PUBREC to PUBREL, of a session that ends with the connection.
    """

    __slots__ = (
        "_connection", "_dropped", "_engine", "_handles", "_is_lasting", "_is_leaving", "_room", "_senders",
        "_session", "_targets", "_waiting", "_waiting_bytes", "_waiting_numbered", "client_id", "is_held", "is_v5",
        "kept_bytes", "most_unanswered", "once", "put_puback", "space", "unanswered",
    )  # fmt: skip

    def __init__(self, connection: MqttConnection) -> None:
        assert connection.space is not None
        self.space: Space = connection.space
        self.client_id = connection.container
        self.is_v5 = connection.engine.version is Version.V5
        self.unanswered: dict[int, tuple[Target, bytes, float]] = {}
        self.kept_bytes = 0
        most = connection.space.usage.limits.mqtt_receive_maximum or RECEIVE_MAXIMUM
        # Clients of version 5 keep to what they were told, or are disconnected by the engine.
        self.most_unanswered = most + self.is_v5
        self.once: set[int] = set()
        self._connection = connection
        self._engine = connection.engine
        self.put_puback = connection.engine.put_puback
        self._session = connection.session
        self._is_lasting = connection.session.is_lasting
        self._senders: dict[tuple[Address, str], Sender] = {}
        self._targets: dict[str, Target] = {}
        self._dropped: list[tuple[Sender, AmqpError | None]] = []
        self._waiting = self._waiting_numbered = self._waiting_bytes = 0
        self._room = connection.waiting_room()
        self.is_held = False
        self._is_leaving = False
        self._handles = 0

    @property
    def refuses_unattended(self) -> bool:
        """True if a message to an address without a consumer is refused at once."""
        return self.is_v5

    # Names and their ends

    def make_sink(self, topic: str, properties: PublishProperties | None) -> PublishSink:
        """Return the sink for messages with this topic and these properties."""
        try:
            target = self._target(topic)
        except RemoteError as error:
            if is_of_statistics(topic):
                return Overruled(self, topic)
            self._connection.log_refused("sender", topic, error)
            return Dropping(self, topic, properties, error)
        may_last = is_lasting(properties) and len(topic) <= MAX_NAME_CHARACTERS
        return Publishing(self, target, properties, is_lasting=may_last)

    def publish_anew(
        self, topic: str, properties: PublishProperties | None, payload: bytes, flags: int, packet_id: int
    ) -> None:
        """Handle a message whose name has to be resolved again."""
        self.forget_targets()
        self.make_sink(topic, properties).on_publish(payload, flags, packet_id)

    def forget_targets(self) -> None:
        """Resolve every name again when it is next used."""
        self._targets.clear()
        self._engine.forget_sinks()

    def _target(self, name: str) -> Target:
        target = self._targets.get(name)
        if target is not None:
            return target
        address = self._connection.find_name(name)
        own_name = name if address.names_apart else address.name
        sender = self._senders.get((address, own_name))
        if sender is None:
            sender = self._attach(address, own_name)
        else:
            # The most recently used one is the last in order.
            del self._senders[address, own_name]
            self._senders[address, own_name] = sender
        link = self._connection.links[sender]
        producer: Producer
        if name == own_name:
            assert link.end is not None
            producer = link.end  # type: ignore[assignment]  # it is a sender's
        else:
            producer = address.make_producer(link.metered or sender, name)
            if isinstance(producer, TopicProducer):
                producer.origin = self._session
        end = producer
        if link.metered is not None:
            end = MeteredSink(producer, link.metered, sender.most_bytes)  # type: ignore[assignment]
        target = Target(name, sender, producer, end)
        if len(name) <= MAX_NAME_CHARACTERS:
            if len(self._targets) >= MAX_TARGETS:
                del self._targets[next(iter(self._targets))]
            self._targets[name] = target
        return target

    def _attach(self, address: Address, name: str) -> Sender:
        if len(self._senders) >= MAX_SENDERS:
            for known in self._senders.values():
                if not known.waiting and not any(target.sender is known for target, _, _ in self.unanswered.values()):
                    self._remove(known)
                    break
        connection = self._connection
        sender = Sender(self, address, name)
        self._handles += 1
        link = ClientLink(sender, name, f"s{self._handles}", name, is_sender=True)
        try:
            connection.count(link, address)
            port = connection.bounds.port(self.space, link, address)
            end = address.attach_producer(port, name, AttachOptions(origin=self._session))
        except RemoteError as error:
            connection.refused(link, error)
            raise
        sink, most_bytes = connection.bounds.sink(link, end, connection.bounds.size_limit(self.space, address))
        sender.most_bytes = min(most_bytes or MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES)
        sender.sink = sink
        self._senders[address, name] = sender
        connection.join(sender, link, end, lambda: None, lambda error: self._refuse(sender, error))
        return sender

    def drop(self, sender: Sender, error: AmqpError | None) -> None:
        """Remove a sender in the connection's turn, as its address says."""
        self._dropped.append((sender, error))
        self._connection.due()

    def _remove(self, sender: Sender, error: AmqpError | None = None) -> None:
        sender.is_detach_sent = True
        if self._senders.get((sender.address, sender.name)) is sender:
            del self._senders[sender.address, sender.name]
        self.forget_targets()
        text = f"{sender.address.kind} {sender.address.name!r:.200} takes no more messages"
        if error is not None and error.description:
            text = error.description
        for message in sender.waiting:
            self.waited(message.number, len(message.payload))
        sender.waiting.clear()
        for number in [number for number, (target, _, _) in self.unanswered.items() if target.sender is sender]:
            self.forget_message(number)
            self.answer(number, Reason.IMPLEMENTATION_SPECIFIC_ERROR, text)
        self._connection.detached(sender)

    def _refuse(self, sender: Sender, error: RemoteError) -> None:
        """Remove a sender whose messages whoever is behind the address does not take, and answer them."""
        for message in sender.waiting:
            self.waited(message.number, len(message.payload))
            self.space.unroutable += 1
            if message.number:
                self.forget_message(message.number)
                self.refuse_message(message.number, error)
        sender.waiting.clear()
        self._remove(sender)

    # What has no answer

    def keep(self, number: int, target: Target, payload: bytes) -> None:
        """Keep a message until it has its answer."""
        self.unanswered[number] = target, payload, 0.0
        if len(payload) > LARGE_BYTES:
            self.kept_bytes += len(payload)

    def forget_message(self, number: int) -> None:
        """Forget a message that has its answer."""
        kept = self.unanswered.pop(number, None)
        if kept is not None and len(kept[1]) > LARGE_BYTES:
            self.kept_bytes -= len(kept[1])

    def accepted(self, number: int, reason: int, text: str = "") -> None:
        """Answer a message that was accepted, or was received before."""
        if number < ONCE:
            self._engine.put_puback(number, reason, text)
        elif self._is_lasting:
            packet_id = number - ONCE
            self._session.incoming.note(packet_id, lambda: self._engine.put_pubrec(packet_id, reason, text))
        else:
            self.once.add(number - ONCE)
            self._engine.put_pubrec(number - ONCE, reason, text)
        if self.is_held:
            self._go_on_reading()

    def answer(self, number: int, reason: Reason, text: str) -> None:
        """Answer a message that was not accepted: before version 5, by closing the connection."""
        if not self.is_v5:
            self._connection.fail_with(reason, text)
        elif number < ONCE:
            self._engine.put_puback(number, reason, text)
        else:
            self._engine.put_pubrec(number - ONCE, reason, text)
        if self.is_held:
            self._go_on_reading()

    def drop_statistics(self, topic: str, number: int) -> None:
        """Acknowledge a message that only the node may send, which reaches nobody."""
        self._connection.drop_statistics(topic)
        if number:
            self.accepted(number, Reason.NO_MATCHING_SUBSCRIBERS if self.is_v5 else 0, FED_BY_NODE)

    def refuse_message(self, number: int, error: RemoteError) -> None:
        """Answer a message that leads nowhere, or may not be published."""
        if self.is_v5 or not self.space.acknowledges_undeliverable:
            self.answer(
                number, _REFUSALS.get(error.condition, Reason.IMPLEMENTATION_SPECIFIC_ERROR), error.description
            )
        else:
            self.accepted(number, 0)

    def repeated(self, packet_id: int, flags: int) -> None:
        """Handle a message whose identifier another one has that has no answer yet.

        Raises:
            PacketError: it is another message.
        """
        if not flags & 8:
            raise protocol_error(f"packet identifier {packet_id} is in use [MQTT-2.2.1-3]")

    # QoS 2

    def is_received(self, packet_id: int) -> bool:
        """Return true if a message of QoS 2 with this identifier has been accepted and not been released."""
        return packet_id in self.once or (self._is_lasting and packet_id in self._session.incoming)

    def stores_once(self, target: Target) -> bool:
        """Return true if a message and its identifier are written in one batch."""
        return self._is_lasting and isinstance(target.sender.address, TakesMessages)

    def receive_once(self, target: Target, payload: bytes, packet_id: int) -> None:
        """Have a message stored together with its identifier."""
        number = packet_id + ONCE
        sender = target.sender
        sender.received += 1
        metered = self._connection.links[sender].metered
        if metered is not None:
            metered.add_bytes(len(payload))
        if sender.received == sender.limit:
            target.end.on_exhausted()

        def done(state: Any) -> None:
            if state is ACCEPTED and self.unanswered.get(number) is not None:
                self.forget_message(number)
                sender.has_taken = True
                reason = 0 if target.producer.reaches_any else Reason.NO_MATCHING_SUBSCRIBERS
                self._engine.put_pubrec(packet_id, reason if self.is_v5 else 0)
                if self.is_held:
                    self._go_on_reading()
            else:
                sender.settle(number, state)

        address = cast("TakesMessages", sender.address)
        self._session.incoming.receive(packet_id, address, target.name, payload, done)

    def on_pubrel(self, packet_id: int) -> None:
        """Handle the release of a message of QoS 2."""
        engine = self._engine
        if packet_id in self.once:
            self.once.discard(packet_id)
            engine.put_pubcomp(packet_id)
        elif not self._is_lasting or not self._session.incoming.release(
            packet_id, lambda: engine.put_pubcomp(packet_id)
        ):
            engine.put_pubcomp(packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND)

    # Waiting for credit

    def due(self) -> None:
        """Have ``go_on`` called before the turn of the loop ends."""
        self._connection.due()

    def wait(self, number: int, size: int) -> None:
        """Count a message that waits for credit."""
        self._waiting += 1
        self._waiting_numbered += number > 0
        self._waiting_bytes += size
        if not self._has_room:
            self.hold()
        self._connection.due()

    def waited(self, number: int, size: int) -> None:
        """Count a message that waits no longer."""
        self._waiting -= 1
        self._waiting_numbered -= number > 0
        self._waiting_bytes -= size
        if self.is_held:
            self._go_on_reading()

    @property
    def is_ending(self) -> bool:
        """True if the connection ends for want of an answer that its version could have: nothing more is sent."""
        return self._connection.is_failing

    @property
    def why_held(self) -> str:
        """The reason why the client is not read; empty if it is."""
        if not self.is_held:
            return ""
        if self._waiting:
            return f"{self._waiting} messages, of {self._waiting_bytes} bytes, wait for a receiver, room or a rate"
        return f"{len(self.unanswered)} messages have no answer yet"

    @property
    def _has_room(self) -> bool:
        return self._waiting < RECEIVE_MAXIMUM and self._room.resize(self._waiting_bytes)

    def leave(self) -> bool:
        """Note that the client leaves; return true if it does so later, as messages wait that would be lost.

        Those of QoS 0 are offered a last time as the connection is closed, which needs a link that is attached.
        """
        self._is_leaving = self._waiting_numbered > 0 or self._is_opening
        self.is_held |= self._is_leaving
        return self._is_leaving

    @property
    def has_left(self) -> bool:
        """True if the client leaves, and everything has its answer."""
        return self._is_leaving and not (self.unanswered or self._is_opening)

    @property
    def _is_opening(self) -> bool:
        """True if messages wait for a link that another container has not answered yet."""
        links = self._connection.links
        return self._waiting > 0 and any(one.waiting and links[one].is_opening for one in self._senders.values())

    def hold(self) -> None:
        """Read no more of the client, as it has too much without an answer."""
        if not self.is_held:
            self.is_held = True
            self._engine.hold_input(True)

    def _go_on_reading(self) -> None:
        if self._is_leaving:
            self._connection.due()
        elif self._has_room and len(self.unanswered) < self.most_unanswered and self.kept_bytes <= MAX_KEPT_BYTES:
            self.is_held = False
            self._engine.hold_input(False)

    def go_on(self, now: float) -> float | None:
        """Do what could not be done in the middle of addresses' turns; return when to come back, if ever."""
        dropped, self._dropped = self._dropped, []
        for sender, error in dropped:
            self._remove(sender, error)
        if not self._waiting:
            return None
        senders = [sender for sender in self._senders.values() if sender.waiting]
        for sender in senders:
            sender.expire(now)
        if self.is_ending:
            # What is closed has its answer, and is not to be stored after that.
            return None
        return min((found for sender in senders if (found := sender.go_on(now)) is not None), default=None)

    def close(self) -> None:
        """Offer what waits with QoS 0 for the last time, as the connection is closed."""
        for sender in self._senders.values():
            waiting, sender.waiting = list(sender.waiting), type(sender.waiting)()
            if sender.is_detach_sent or self._connection.links[sender].is_opening:
                continue
            for message in waiting:
                if not message.number:
                    sender.count_one()
                    message.target.end.on_crossed(message.payload, 0, True, 0)
        self.unanswered.clear()
        self._senders.clear()
        self._targets.clear()
        self._room.resize(0)


_REFUSALS: Final = {
    "amqp:not-found": Reason.TOPIC_NAME_INVALID,
    "amqp:unauthorized-access": Reason.NOT_AUTHORIZED,
    "amqp:resource-limit-exceeded": Reason.QUOTA_EXCEEDED,
}
"""The reason codes for messages that leads nowhere, by the condition of the error."""
