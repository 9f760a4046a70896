"""Sends messages to MQTT clients: packets that are encoded once for all, and a port for each address of a filter.

Rules:
1. Subscribers that are told the same of a message (version, topic, flags, properties) share an ``Encoder``: what
   precedes a payload is looked up by the bytes that precede the body in the message, and the packet of QoS 0 is the
   same bytes for all.
2. A message is delivered with the lower one of the QoS that it was published with and the subscription's. What takes
   messages away has the subscription's, as there the outcome counts.
3. A window of QoS 0 is of messages that are not written yet; of QoS 1 and 2, of messages that are not acknowledged,
   of all receivers of the connection together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakValueDictionary

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED, TOO_LARGE, AmqpError
from enmasse.messaging.patterns import is_cut, is_within
from enmasse.node.large_messages import Gathered
from enmasse.node.mqtt.messages import Content, find_body, from_sections, topic_of
from enmasse.wire.mqtt.writing import encode_publish, encode_publish_properties, encode_variable, with_properties

if TYPE_CHECKING:
    from enmasse.messaging.sessions.session_filter import SessionFilter, SessionLink
    from enmasse.node.mqtt.subscriptions import Subscriptions


WINDOW: Final = 1_000
"""The most messages of a subscription that are not written, or not acknowledged."""

MAX_HEADS: Final = 256
"""The most beginnings of messages that an encoder knows: topic names and properties, mostly."""

MAX_CHOICES: Final = 256
"""The most names of which a receiver knows for which of its filters they are, and the most identifiers in that."""

MAX_HEAD_BYTES: Final = 2 << 10
"""The longest one that is kept."""

MAX_SHARED_BYTES: Final = 64 << 10
"""The largest message whose packet is kept for the next subscriber: encoding a larger one costs little beside it."""


class EncoderKey(NamedTuple):
    """The key of an encoder: subscribers for whom it is equal are sent the same packets.

    Attributes:
        space: the space's name.
        is_v5: whether they are told properties.
        topic: the topic name; of messages below a topic that is their own.
        is_fixed: whether messages below a topic have this name, too, as what is subscribed to is another address.
        takes: whether receiving takes messages away, so that the subscription's QoS counts alone.
        keeps_retain: whether the RETAIN flag is told as it was published.
        identifiers: the subscription identifiers.
    """

    space: str
    is_v5: bool
    topic: str
    is_fixed: bool
    takes: bool
    keeps_retain: bool
    identifiers: tuple[int, ...]


class _Head(NamedTuple):
    """The fields of a packet before the payload, of messages that begin alike.

    Attributes:
        topic: the topic name.
        qos: the highest quality of service.
        retain: the RETAIN flag.
        properties: those of version 5.
        name: the name that the message was sent to, if it is one below an address.
        number: the number of the filter that asked for it, if it is a retained value for one of several together.
    """

    topic: bytes
    qos: int
    retain: bool
    properties: bytes
    name: str | None
    number: int


class Encoder:
    """Encodes messages for subscribers that are told the same.

    Attributes:
        payload: the message that was read last, if its packet may be used again.
        qos: the highest quality of service with which it may be delivered.
        packet: its packet of QoS 0; empty before it is asked for.
    """

    __slots__ = (
        "__weakref__",
        "_body",
        "_head",
        "_heads",
        "_key",
        "_now_ms",
        "_prefix",
        "_size",
        "_skip",
        "_starts",
        "_starts_size",
        "packet",
        "payload",
        "qos",
    )  # fmt: skip

    def __init__(self, key: EncoderKey, now_ms: Callable[[], int]) -> None:
        self._key = key
        self._now_ms = now_ms
        self._heads: dict[bytes, _Head] = {}
        self._prefix = b""
        self._size = -1
        self._skip = 0
        self._head = _Head(b"", 0, False, b"", None, 0)
        self._body = b""
        self._starts = [b"", b"", b""]
        """The bytes before the payload, or the packet identifier, by QoS; for a payload of ``_starts_size``."""
        self._starts_size = -1
        self.payload: bytes | None = None
        self.qos = 0
        self.packet = b""

    @property
    def topic(self) -> bytes:
        """The topic name of the message."""
        return self._head.topic

    @property
    def asked(self) -> tuple[str | None, int]:
        """The name below an address that the message was sent to, and the number of the filter that asked for it."""
        return self._head[4:]

    def read(self, payload: bytes) -> None:
        """Read a message, for the packets that are asked for then."""
        self.packet = b""
        if len(payload) == self._size and payload.startswith(self._prefix):
            self.payload = payload if self._size <= MAX_SHARED_BYTES else None
            self._body = payload[self._skip :]
            return
        section, begin = find_body(payload)
        if begin:
            is_timed = False
            # With the kind of the body, which says whether it is text.
            known = self._heads.get(payload[: section + 4])
            if known is None:
                content = from_sections(payload, self._now_ms())
                known = self._learn(content, payload[: section + 4])
                is_timed = content.is_timed
            self._body = payload[begin:]
            # What tells the time that is left is not the same for a later one.
            self._size = -1 if is_timed else len(payload)
            self._prefix = payload[:begin]
            self._skip = begin
        else:
            content = from_sections(payload, self._now_ms())
            known = self._encode_head(content)
            self._body = content.payload
            self._size = -1
        self.payload = payload if len(payload) <= MAX_SHARED_BYTES else None
        self._head = known
        self._starts_size = -1
        self.qos = 2 if self._key.takes else known.qos

    def _learn(self, content: Content, start: bytes) -> _Head:
        head = self._encode_head(content)
        # What tells the time that is left is not the same for a later one.
        if len(start) <= MAX_HEAD_BYTES and not content.is_timed:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[start] = head
        return head

    def _encode_head(self, content: Content) -> _Head:
        key = self._key
        name = None if key.is_fixed else topic_of(content)
        properties = b""
        if key.is_v5:
            told = content.properties
            if key.is_fixed and content.topic is not None:
                told.user_properties.append(("x-opt-topic-name", content.topic))
            properties = with_properties(encode_publish_properties(told), 0, key.identifiers)
        # Only topics and multicast addresses have retained values; elsewhere a sender may say anything.
        is_value = content.is_retained and not key.is_fixed
        retain = is_value or (key.keeps_retain and content.is_retain)
        topic = (key.topic if name is None else name).encode(errors="replace")
        return _Head(topic, content.qos, retain, properties, content.topic, content.number)

    def plain(self) -> bytes:
        """Return the packet of QoS 0."""
        if len(self._body) != self._starts_size:
            self._begin()
        self.packet = packet = self._starts[0] + self._body
        return packet

    def numbered(self, qos: int, packet_id: int) -> bytes:
        """Return the packet of QoS 1 or 2 with an identifier."""
        if len(self._body) != self._starts_size:
            self._begin()
        properties = self._head.properties
        if properties:
            return b"%b%b%b%b" % (self._starts[qos], packet_id.to_bytes(2, "big"), properties, self._body)
        return self._starts[qos] + packet_id.to_bytes(2, "big") + self._body

    def _begin(self) -> None:
        """Work out what precedes a payload of the size of this one."""
        head = self._head
        size = self._starts_size = len(self._body)
        topic = len(head.topic).to_bytes(2, "big") + head.topic
        properties = head.properties
        rest = len(topic) + len(properties) + size
        numbered = encode_variable(rest + 2) + topic
        self._starts = [
            bytes((0x30 | head.retain,)) + encode_variable(rest) + topic + properties,
            bytes((0x32 | head.retain,)) + numbered,
            bytes((0x34 | head.retain,)) + numbered,
        ]

    def aliased(self, qos: int, packet_id: int, topic: bytes, alias: int, *, is_duplicate: bool = False) -> bytes:
        """Return the packet for a client that knows an alias of the topic, or is told it now."""
        head = self._head
        properties = with_properties(head.properties, alias)
        return encode_publish(topic, self._body, qos, head.retain, is_duplicate, packet_id, properties)

    def size(self, qos: int) -> int:
        """Return the bytes of the packet."""
        head = self._head
        content = 2 + len(head.topic) + len(head.properties) + len(self._body) + (2 if qos else 0)
        return 1 + (1 if content < 1 << 7 else 2 if content < 1 << 14 else 3 if content < 1 << 21 else 4) + content


class Encoders:
    """The encoders in use, of all connections of a node."""

    def __init__(self) -> None:
        self._found: WeakValueDictionary[EncoderKey, Encoder] = WeakValueDictionary()

    def of(self, key: EncoderKey, now_ms: Callable[[], int]) -> Encoder:
        """Return the encoder for subscribers that are told the same."""
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = Encoder(key, now_ms)
        return found


class _Choice(NamedTuple):
    """The encoder and the quality of messages to one name, which several filters may match.

    Attributes:
        encoder: encodes them; ``None`` if no filter matches any more.
        qos: the highest quality of service.
    """

    encoder: Encoder | None
    qos: int


class Receiver:
    """The port for one address of a subscription, or of several together; a ``SessionPort``.

    Args:
        home: the client's subscriptions.
        link: the subscription's link to the address.
        encoder: encodes the messages.
        takes: whether what is too large for the client may be for others.
    """

    __slots__ = (
        "_choices", "_encoder", "_engine", "_has_aliases", "_home", "_is_mixed", "_most_bytes", "_outgoing", "_put",
        "_qos", "_takes", "_told", "_used", "_written", "credit", "has_begun", "is_detach_sent", "is_limited", "link",
    )  # fmt: skip

    def __init__(self, home: Subscriptions, link: SessionLink, encoder: Encoder, *, takes: bool) -> None:
        self.link = link
        self.credit = 0
        self.is_detach_sent = False
        self._home = home
        self._engine = home.engine
        self._encoder: Encoder
        """Encodes the messages; of several filters together, as if none of them said anything."""
        self._qos: int
        self._is_mixed: bool
        """True if each message is looked at for the filters that it is for."""
        self._choices: dict[tuple[str | None, int], _Choice] = {}
        self._told = 0
        """The identifiers in these."""
        self._takes = takes
        self._outgoing = home.session.outgoing
        self.has_begun = False
        self._most_bytes = home.engine.peer_maximum_packet_size or 1 << 62
        self.is_limited = home.engine.peer_maximum_packet_size > 0
        self._has_aliases = home.has_aliases
        self._put = 0
        """Messages of QoS 0 that were put out since the credit for them was last renewed."""
        self._used = 0
        """The same of QoS 1 and 2."""
        self._written: list[Any] = []
        """The deliveries of QoS 0 that are accepted once they are written."""
        self.apply(encoder)

    @property
    def is_numbered(self) -> bool:
        """True if its messages may have QoS 1 or 2."""
        return self._qos > 0

    def begin(self, room: int) -> None:
        """Begin to receive, as the link's consumer is set.

        Args:
            room: the messages of QoS 1 and 2 that the client takes now.
        """
        self.has_begun = True
        self.credit = credit = min(WINDOW, room) if self._qos else WINDOW
        if credit < WINDOW and self._qos:
            self._used = WINDOW - credit
            self._home.spent.append(self)
        consumer = self.link.consumer
        consumer.on_credit(credit, False)
        if self._engine.is_blocked or (self._qos and self._home.is_full):
            consumer.on_blocked(True)

    def apply(self, encoder: Encoder) -> None:
        """Keep to the options that the filters have now."""
        link = self.link
        self._encoder = encoder
        # A member of a group is given what it may have alone.
        is_part = link.filter.group is None and is_cut(link.source)
        self._is_mixed = is_part if link.joint is None else link.joint.is_mixed
        self._qos = (2 if link.is_numbered else 0) if self._is_mixed else link.filter.qos
        self._choices.clear()
        self._told = 0

    def _choose(self, payload: bytes) -> _Choice:
        """Return how a message is told of, by the filters that it is for; its encoder has read it."""
        plain = self._encoder
        if payload is not plain.payload:
            plain.read(payload)
        asked = plain.asked
        choice = self._choices.get(asked)
        if choice is None:
            choice = self._learn(asked)
        encoder = choice.encoder
        if encoder is not None and payload is not encoder.payload:
            encoder.read(payload)
        return choice

    def _learn(self, asked: tuple[str | None, int]) -> _Choice:
        name, number = asked
        link = self.link
        name = link.address.name if name is None else name
        filters: Sequence[SessionFilter]
        if link.joint is None:
            filters = (link.filter,) if is_within(link.source, name) else ()
        else:
            filters = link.joint.matching(name, number)
        identifiers = tuple(filter_.identifier for filter_ in filters if filter_.identifier)
        if len(self._choices) >= MAX_CHOICES or self._told + len(identifiers) > MAX_CHOICES:
            self._choices.clear()
            self._told = 0
        self._told += len(identifiers)
        encoder = self._home.encoder_of(self.link, filters) if filters else None
        choice = self._choices[asked] = _Choice(encoder, max((filter_.qos for filter_ in filters), default=0))
        return choice

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        """Send one message for one credit."""
        self.credit -= 1
        if self._is_mixed:
            choice = self._choose(payload)
            if choice.encoder is None:
                self._leave_out(delivery, settled)
                return
            encoder, qos = choice.encoder, choice.qos
        else:
            encoder, qos = self._encoder, self._qos
            if payload is not encoder.payload:
                encoder.read(payload)
        if encoder.qos < qos:
            qos = encoder.qos
        if not qos:
            packet = encoder.packet or encoder.plain()
            if self._has_aliases:
                packet = self._aliased(encoder, 0, 0)
            if len(packet) <= self._most_bytes:
                self._engine.put(packet)
            elif not settled and self._takes_more(delivery):
                return
            if not settled:
                self._written.append(delivery)
            if not self._put:
                self._home.written.append(self)
            self._put += 1
            return
        if self.is_limited and encoder.size(qos) > self._most_bytes:
            if settled or not self._takes_more(delivery):
                self._discard(delivery, settled)
            return
        packet_id = self._outgoing.assign(self.link, delivery, payload, qos)
        if packet_id:
            if self._outgoing.may_repeat and self._outgoing.was_sent(self.link, delivery):
                self.publish(packet_id, payload, qos, True)
            elif self._has_aliases:
                self._engine.put(self._aliased(encoder, qos, packet_id))
            else:
                self._engine.put(encoder.numbered(qos, packet_id))
        if not self._used:
            self._home.spent.append(self)
        self._used += 1
        if self._home.numbered > 1:
            self._home.fill()

    def publish(self, packet_id: int, payload: bytes, qos: int, is_duplicate: bool) -> None:
        """Put out a message that has its identifier, for no credit."""
        # What was begun is brought to its end, whether there still is a filter for it or not.
        encoder = (self._choose(payload).encoder if self._is_mixed else None) or self._encoder
        if payload is not encoder.payload or is_duplicate:
            encoder.read(payload)
        if self._has_aliases:
            self._engine.put(self._aliased(encoder, qos, packet_id, is_duplicate=is_duplicate))
        else:
            packet = encoder.numbered(qos, packet_id)
            self._engine.put(bytes((packet[0] | 8,)) + packet[1:] if is_duplicate else packet)

    def _aliased(self, encoder: Encoder, qos: int, packet_id: int, *, is_duplicate: bool = False) -> bytes:
        topic, alias = self._engine.alias(encoder.topic)
        return encoder.aliased(qos, packet_id, topic, alias, is_duplicate=is_duplicate)

    def _takes_more(self, delivery: Any) -> bool:
        """Give back a message that is too large for the client, if others may take it; false if it is dropped."""
        if not self._takes:
            return False
        self.link.consumer.on_outcome(delivery, TOO_LARGE)
        self._gain(1)
        return True

    def _discard(self, delivery: Any, settled: bool) -> None:
        """Treat a message that is too large as if it had been delivered [MQTT-3.1.2-25]."""
        self.link.address.dropped += 1
        self._leave_out(delivery, settled)

    def _leave_out(self, delivery: Any, settled: bool) -> None:
        """Do not send a message: it is for a filter that is no more, or too large."""
        if not settled:
            self.link.consumer.on_outcome(delivery, ACCEPTED)
        self._gain(1)

    def _gain(self, credit: int) -> None:
        self.credit += credit
        self.link.consumer.on_credit(credit, False)

    def take_back(self) -> None:
        """Give a credit back whose message was not sent."""
        self._gain(1)

    def send_while_it_comes(self, delivery: Any, settled: bool, message_format: int = 0) -> Gathered:
        """Begin to send a message that is still being received."""
        return Gathered(self, delivery, settled)

    def put(self, delivery: Any, payload: bytes, settled: bool) -> None:
        """Send a message whose credit is used up."""
        self.credit += 1
        self.send(delivery, payload, settled)

    @property
    def consumer(self) -> Any:
        """The link's end at the address."""
        return self.link.consumer

    def admits(self, size: int) -> bool:
        """Return true if there is room for a large message."""
        return self._engine.admits(size)

    def follow(self, delivery: Any) -> bool:
        """Return false: a packet that is put out cannot be held back."""
        return False

    @property
    def holds_back(self) -> bool:
        """True if nothing more should be sent for now."""
        return bool(self._engine.is_blocked)

    def drained(self) -> None:
        """Do nothing: MQTT has no drain."""

    # Credit

    def renew_written(self) -> None:
        """Accept what was sent with QoS 0, as it is being written, and renew the credit."""
        written = self._written
        consumer = self.link.consumer
        if written:
            self._written = []
            for delivery in written:
                consumer.on_outcome(delivery, ACCEPTED)
        gained, self._put = self._put, 0
        self.credit += gained
        consumer.on_credit(gained, False)

    def renew(self, room: int) -> bool:
        """Renew the credit as far as there is room; return true if all that was used is renewed."""
        gained = min(self._used, room - self.credit)
        if gained > 0:
            self._used -= gained
            self.credit += gained
            self.link.consumer.on_credit(gained, False)
        return not self._used

    def take_unsettled(self) -> list[Any]:
        """Remove and return what was put out with QoS 0 and is not written."""
        written, self._written = self._written, []
        return written

    def detach(self, error: Any = None) -> None:
        """End the link, as the address says."""
        if not self.is_detach_sent:
            self.is_detach_sent = True
            problem = error if isinstance(error, AmqpError) else AmqpError("amqp:link:detach-forced")
            self.link.ended(RemoteError(str(problem.condition), problem.description or "it was ended"))
