"""The senders of a topic: each message gets its name below the topic, and goes to the subscriptions that want it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED, RELEASED, Rejected
from enmasse.message.sections import (
    MESSAGE_ANNOTATIONS,
    TOPIC_NAME,
    with_message_annotations,
    without_message_annotations,
)
from enmasse.messaging.delivery import ProducerPort
from enmasse.messaging.errors import UNSUPPORTED_FORMAT, full, malformed
from enmasse.messaging.facts import Facts
from enmasse.messaging.fan_out import FEW
from enmasse.messaging.log.entry import DONE, READY, Entry
from enmasse.messaging.queues.producers import StoredProducer
from enmasse.messaging.queues.subscription import Subscription, VolatileSubscription
from enmasse.messaging.queues.topic_wave import WaveMessage
from enmasse.messaging.retaining import retain, why_not, without_retained

# Topics and their subscriptions know each other.
if TYPE_CHECKING:
    from enmasse.messaging.address import Origin
    from enmasse.messaging.queues.topic import Topic

_TOPIC_NAME = TOPIC_NAME.encode()
_HEADER_START = b"\x00\x53\x70"
_AFTER_ANNOTATIONS = frozenset(b"\x00\x53" + bytes((code,)) for code in range(MESSAGE_ANNOTATIONS + 1, 0x79))


def named(payload: bytes, name: str, section: bytes) -> bytes:
    """A message with the name below a topic to which it was sent, or the start of one up to its body.

    Args:
        payload: the message, whose body is not read.
        name: the name; empty if it was sent to the topic itself, and then an annotation by the sender is removed.
        section: message annotations with the name alone, for messages without any; empty with the name.

    Raises:
        DecodeError: its annotations cannot be read.
    """
    if not name:
        return without_message_annotations(payload, (TOPIC_NAME,)) if _TOPIC_NAME in payload else payload
    at = 0
    if payload.startswith(_HEADER_START):
        kind = payload[3]
        at = 4 if kind == 0x45 else 5 + payload[4] if kind == 0xC0 else len(payload)
    if payload[at : at + 3] in _AFTER_ANNOTATIONS:
        return payload[:at] + section + payload[at:]
    return with_message_annotations(payload, {TOPIC_NAME: name})


class SharedRow:
    """A message that is written for several subscriptions."""

    __slots__ = ("_open", "_state", "entries", "is_durable", "payload", "producer", "producer_id")
    body_at = 0

    def __init__(self, payload: bytes, producer: Any, producer_id: int, *, is_durable: bool) -> None:
        self.payload = payload
        self.producer = producer
        self.producer_id = producer_id
        self.is_durable = is_durable
        self.entries: dict[Subscription, Entry] = {}
        self._open = 0
        self._state: Any = ACCEPTED

    def hold(self) -> None:
        """Keep it open for more subscriptions, until one more ``settle``."""
        self._open += 1

    def add(self, subscription: Subscription, entry: Entry) -> None:
        """Add the entry of a subscription that wants it."""
        self.entries[subscription] = entry
        self._open += 1

    @property
    def state(self) -> int:
        """``DONE`` once no subscription has to hand it out."""
        return READY if any(entry.state != DONE for entry in self.entries.values()) else DONE

    def settle(self, _id: int, state: Any) -> None:
        """Note that one subscription is finished with it before it was stored, or could not store it."""
        if state is not ACCEPTED:
            self._state = state
        self._open -= 1
        if not self._open:
            self._answer()

    def stored(self) -> None:
        """Note that it is on disk."""
        for entry in self.entries.values():
            entry.producer = None
        self._answer()

    def _answer(self) -> None:
        producer = self.producer
        if producer is not None:
            self.producer = None
            producer.settle(self.producer_id, self._state)


class TopicProducer(StoredProducer):
    """A sender's end at a topic or at a name below it."""

    __slots__ = ("_name", "_named_head", "_section", "_stored", "_version", "_volatile", "origin")
    address: Topic

    def __init__(self, address: Topic, port: ProducerPort, target: str) -> None:
        super().__init__(address, port, target)
        self.origin: Origin | None = None
        """The session that sends, for filters that do not want its messages."""
        self._version = -1
        """The topic's version for which the subscriptions below were found."""
        self._stored: list[Subscription] = []
        self._volatile: list[VolatileSubscription] = []
        self._name = address.name_below(target)
        self._section = with_message_annotations(b"", {TOPIC_NAME: self._name}) if self._name else b""
        self._named_head: bytes | None = None
        """In place of the head that the latest message came with, unless that may stay."""

    @property
    def reaches_any(self) -> bool:
        """True if there is a subscription to the name; see ``Producer``."""
        # What is handed out later is not remembered: it reaches some.
        return self._version < 0 or bool(self._stored or self._volatile)

    def read_facts(self, payload: bytes) -> Facts:
        """Return the facts of a message, and work out its head as it is stored."""
        if len(payload) == self.size and payload.startswith(self.head):
            return self.facts
        facts = super().read_facts(payload)
        # One whose annotations cannot be read is no model for the next.
        size, self.size = self.size, -1
        head = named(without_retained(self.head), self._name, self._section)
        self._named_head = None if head is self.head else head
        self.size = size
        return facts

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Give it to every subscription whose pattern matches."""
        topic = self.address
        refusal: Rejected | None = None
        if message_format:
            refusal = UNSUPPORTED_FORMAT
        else:
            try:
                facts = self.read_facts(payload)
                if self._named_head is not None:
                    payload = self._named_head + payload[len(self.head) :]
            except DecodeError as error:
                refusal = malformed(error)
        stored, volatile = self._stored, self._volatile
        if self._version != topic.version:
            stored, volatile = self._find_subscriptions()
        if refusal is None and topic.options.full_policy != "block" and not topic.make_room(stored, len(payload)):
            refusal = full(topic.name)
        if refusal is None and facts.retain and (problem := why_not(topic.retained, self.target, payload)):
            refusal = Rejected(problem)
        if refusal is not None:
            if settled:
                topic.dropped += 1
            else:
                self.settle(delivery_id, refusal)
            return
        sender: Any = self
        if facts.retain:
            waits = not settled and (facts.durable or topic.options.storage == "durable")
            sender = retain(topic.retained, self.target, payload, facts, self, delivery_id, waits=waits)
        if self._version < 0:
            message = WaveMessage(payload, facts, None if settled else sender, delivery_id)
            is_own = self.origin is not None and self.origin.has_no_local
            topic.hand_out_later(stored, volatile, message, "" if is_own else self.target)
            return
        for subscription in volatile:
            if subscription.selector is None or subscription.wants(payload):
                subscription.offer(payload, facts)
        is_waiting = False
        if stored:
            producer = None if settled else sender
            is_waiting = topic.store(stored, payload, facts, producer, delivery_id)
        if not settled and not is_waiting:
            sender.settle(delivery_id, ACCEPTED)

    def _find_subscriptions(self) -> tuple[list[Subscription], list[VolatileSubscription]]:
        """Return the subscriptions that want its messages; remember those that can be given the next one at once."""
        topic = self.address
        if topic.is_behind and not (self.origin is not None and self.origin.has_no_local):
            wave = topic.found_before(self.target)
            if wave is not None:
                return wave.stored, wave.volatile
        stored, volatile = topic.routes(self.target, self.origin)
        count = len(stored) + len(volatile)
        if not count or (count <= FEW and not topic.is_behind):
            self._version, self._stored, self._volatile = topic.version, stored, volatile
        else:
            self._version, self._stored, self._volatile = -1, [], []
        return stored, volatile

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take it if every subscription that holds senders back has room."""
        if self.address.options.full_policy != "block" or self.address.window_for(1):
            self.on_message(payload, delivery_id, settled, message_format)
        elif settled:
            self.address.dropped += 1
        else:
            self.settle(delivery_id, RELEASED)
