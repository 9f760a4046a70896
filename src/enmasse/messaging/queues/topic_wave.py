"""Messages of a topic for more subscriptions than one turn bears; see ``fan_out``.

A message that is stored is one row of the topic's log for as many subscriptions as a batch can take account of in one
turn, and its sender is told when the last of its rows is on disk. The log is not cut while a row is being filled.
What is part of a transaction is one row for all, and so in one batch for all of them or for none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.messaging.facts import Facts
from enmasse.messaging.fan_out import MAX_MESSAGES, RECEIVER_UNITS, STEP_UNITS, STORED_UNITS, Wave
from enmasse.messaging.log.shared_log import BATCH_UNITS, OWNER_UNITS, ROW_UNITS

MAX_STORED_MESSAGES: Final = 8
"""The most messages of a wave that is stored. They are written once for each part of its subscriptions, which is
larger the fewer they are."""

MAX_STORED_BYTES: Final = 64 << 10
"""The bytes of messages from which on no other joins a wave that is stored."""

# A topic and its waves know each other.
if TYPE_CHECKING:
    from enmasse.messaging.queues.subscription import Subscription, VolatileSubscription
    from enmasse.messaging.queues.topic import Topic
    from enmasse.messaging.queues.topic_producer import SharedRow


class WaveMessage:
    """One message of a wave, and the sender of its rows.

    Args:
        payload: the message.
        facts: its wishes.
        producer: is told the outcome; ``None`` if nobody waits for it.
        producer_id: the id for that.
        is_staged: whether it is part of a transaction: handed out only once it is stored.

    Attributes:
        kept: the row that is being filled, of those that survive a restart.
        passing: the same of those that do not.
    """

    __slots__ = (
        "_has_rows", "_open", "_state", "facts", "is_staged", "kept", "passing", "payload", "producer", "producer_id",
    )  # fmt: skip

    def __init__(
        self, payload: bytes, facts: Facts, producer: Any, producer_id: int, *, is_staged: bool = False
    ) -> None:
        self.payload = payload
        self.facts = facts
        self.producer = producer
        self.producer_id = producer_id
        self.is_staged = is_staged
        self.kept: SharedRow | None = None
        self.passing: SharedRow | None = None
        self._open = 1
        self._state: Any = ACCEPTED
        self._has_rows = False

    def settle(self, _id: int, state: Any) -> None:
        """Note the outcome of a row, or that there are no more; the last one is the message's."""
        if state is not ACCEPTED:
            self._state = state
        self._open -= 1
        if not self._open and self.producer is not None:
            self.producer.settle(self.producer_id, self._state)

    def close_rows(self) -> None:
        """Note that the rows are filled: what they become decides."""
        for row in (self.kept, self.passing):
            if row is not None:
                if self.producer is not None and (row is self.kept or self.is_staged):
                    self._has_rows = True
                    self._open += 1
                    row.producer = self
                # Until now it was kept open for the subscriptions that were still to come.
                row.settle(0, ACCEPTED)
        self.kept = self.passing = None

    @property
    def is_bound(self) -> bool:
        """True if its outcome is that of a batch which none of its rows is in, as nobody wants it."""
        return self.is_staged and not self._has_rows


class TopicWave(Wave):
    """A wave of a topic.

    Args:
        topic: the topic.
        stored: the subscriptions that store.
        volatile: the others.
    """

    __slots__ = (
        "_holds_log", "_is_staged", "_messages", "_state", "_stores", "_topic", "found_for", "stored", "volatile",
    )  # fmt: skip

    def __init__(self, topic: Topic, stored: list[Subscription], volatile: list[VolatileSubscription]) -> None:
        super().__init__(topic.space)
        self.stored = stored
        self.volatile = volatile
        self.found_for: tuple[int, str] | None = None
        """The topic's version, and the name, for which a sender has found these subscriptions last."""
        self._topic = topic
        self._messages: list[WaveMessage] = []
        self._state: Any = ACCEPTED
        self._holds_log = False
        self._is_staged = False
        self._stores = not volatile

    def takes(self, stored: list[Subscription], volatile: list[VolatileSubscription]) -> bool:
        """Return whether a message for these subscriptions can join it."""
        if self.is_begun or self.size >= (MAX_STORED_MESSAGES if self.stored else MAX_MESSAGES):
            return False
        if self.stored and self.waiting_bytes > MAX_STORED_BYTES:
            return False
        is_same = stored is self.stored and volatile is self.volatile
        return is_same or (stored == self.stored and volatile == self.volatile)

    def join(self, message: WaveMessage) -> None:
        """Add a message, behind the others."""
        topic = self._topic
        self._messages.append(message)
        if message.is_staged and self.stored:
            # Whatever is to be written with it waits for it, from now on.
            self._is_staged = True
            self._hold_log()
        topic.core.fan_out.joined(self, len(message.payload), len(self.stored) + len(self.volatile))

    def _hold_log(self) -> None:
        if not self._holds_log:
            self._holds_log = True
            self._topic.core.fill(self._topic.log)

    @property
    def is_ready(self) -> bool:
        """True if it may go on: what was stored before does not wait for it to be written."""
        return not self._stores or self._holds_log or self._topic.core.may_fill(self._topic.log)

    def steps(self) -> Iterator[int]:
        """Hand out the messages; see ``Wave``."""
        count = len(self._messages)
        size = max(1, STEP_UNITS // (RECEIVER_UNITS + count))
        for at in range(0, len(self.volatile), size):
            yield from self._offer(self.volatile[at : at + size])
        stored = self.stored
        if not stored:
            return
        if not self._stores:
            self._stores = True
            yield 0
        size = max(1, STEP_UNITS // (RECEIVER_UNITS + STORED_UNITS * count))
        of_batch = len(stored) if self._is_staged else max(size, BATCH_UNITS // (OWNER_UNITS + ROW_UNITS * count))
        for start in range(0, len(stored), of_batch):
            end = min(start + of_batch, len(stored))
            self._hold_log()
            for at in range(start, end, size):
                yield from self._store(stored[at : min(at + size, end)])
            if end < len(stored):
                self._close_rows()
                yield 0

    def _close_rows(self) -> None:
        for message in self._messages:
            message.close_rows()
        if self._holds_log:
            self._holds_log = False
            self._topic.core.filled(self._topic.log)

    def _offer(self, part: list[VolatileSubscription]) -> Iterator[int]:
        topic = self._topic
        units = RECEIVER_UNITS * len(part)
        for message in self._messages:
            payload, facts = message.payload, message.facts
            units += len(part)
            for subscription in part:
                if subscription.topic is not topic:
                    continue
                selector = subscription.selector
                if selector is not None:
                    units += selector.units(len(payload))
                    is_wanted = selector.matches(payload)
                    if units >= STEP_UNITS:
                        yield units
                        units = 0
                        is_wanted = is_wanted and subscription.topic is topic
                    if not is_wanted:
                        continue
                subscription.offer(payload, facts)
        yield units

    def _store(self, part: list[Subscription]) -> Iterator[int]:
        topic = self._topic
        units = RECEIVER_UNITS * len(part)
        for message in self._messages:
            payload = message.payload
            units += STORED_UNITS * len(part)
            plain = []
            for subscription in part:
                if subscription.topic is not topic:
                    continue
                if subscription.selector is None:
                    plain.append(subscription)
                    continue
                units += subscription.selector.units(len(payload))
                topic.fill(message, [subscription])
                if units >= STEP_UNITS:
                    yield units
                    units = 0
            if plain:
                topic.fill(message, [one for one in plain if one.topic is topic])
        yield units

    def cancel(self) -> None:
        """Give back what is not handed out, as the topic is deleted."""
        self._state = RELEASED
        for message in self._messages:
            # The log is closed, and their rows are not written.
            message.kept = message.passing = None
        self.end()

    def end(self) -> None:
        """Note that it is over: its senders are told, now or when it is stored."""
        if self.is_over:
            return
        topic = self._topic
        self._close_rows()
        messages, self._messages = self._messages, []
        for message in messages:
            if message.is_bound and self._state is ACCEPTED:
                topic.log.stage(_outcome_of(message))
            else:
                message.settle(0, self._state)
        topic.wave_over(self)
        self.stored, self.volatile = [], []
        super().end()


def _outcome_of(message: WaveMessage) -> Callable[[str | None], None]:
    """Return what tells a transaction the outcome of the batch."""
    return lambda problem: message.settle(0, ACCEPTED if problem is None else RELEASED)
