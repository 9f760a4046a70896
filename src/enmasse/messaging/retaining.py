"""Sets retained values by messages, and gives them to receivers.

Rules:
1. A message with the annotation ``x-opt-retain`` goes to the receivers as any other does, and becomes the value of
   the name that it was sent to. With an empty body it clears the value.
2. One that is durable is accepted once both it and the value are on disk. For any other nobody waits.
3. One for whose value there is no room is rejected, and nobody gets it.
4. A receiver asks for values by the filter ``enmasse:retained``: ``always``, or ``new`` for a subscription that did
   not exist before. They are annotated ``x-opt-retained``, which no sender can make up.
5. A subscription is given values as far as it has room, a few in each turn. What became a value since it asked comes
   to it as any other message, and so not as a value, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from enmasse.message.codec import encode, skip
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError
from enmasse.message.sections import (
    HEADER,
    MESSAGE_ANNOTATIONS,
    RETAIN,
    RETAINED,
    Sections,
    with_message_annotations,
    without_message_annotations,
)
from enmasse.message.types import UInt
from enmasse.messaging.delivery import SMALL_BYTES
from enmasse.messaging.errors import AttachError
from enmasse.messaging.facts import PLAIN, facts_of, known_facts
from enmasse.messaging.limits import EXCEEDED
from enmasse.messaging.log.entry import with_ttl
from enmasse.messaging.patterns import is_cut, is_within

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.delivery import Producer
    from enmasse.messaging.facts import Facts
    from enmasse.messaging.patterns import Pattern
    from enmasse.messaging.queues.subscription import Subscription
    from enmasse.messaging.retained import Value
    from enmasse.messaging.retained_log import RetainedLog


RETAINED_FILTER = "enmasse:retained"
ALWAYS, NEW, NEVER = "always", "new", "never"

FED_AT_ONCE = 32
"""Values that a subscription is given in one go, of which there are two in a turn: some half a millisecond."""

FED_UNITS = 4 * FED_AT_ONCE
"""The work of that, in units of a turn (``core``)."""

FED_BYTES = 96 << 10
"""Bytes in memory for one subscription beyond which its further values wait."""

EMPTY_BYTES = 64
"""No body that is empty is longer, if it has no dozen sections; a longer one is not read."""

RETAIN_NAME = RETAIN.encode()
_RETAINED = RETAINED.encode()
_SMALL_ANNOTATIONS = b"\x00\x53\x72\xc1"
_RETAINED_FIELD = encode(RETAINED) + encode(True)
_MAX_FIELDS = 0xFE
_HEADER_START = b"\x00\x53\x70"
_LIST_8 = b"\xc0"
_BEFORE_PROPERTIES = frozenset(b"\x00\x53" + bytes((code,)) for code in range(HEADER, MESSAGE_ANNOTATIONS + 1))
_AFTER_ANNOTATIONS = frozenset(b"\x00\x53" + bytes((code,)) for code in range(MESSAGE_ANNOTATIONS + 1, 0x79))


def handling_of(filters: dict[str, Any]) -> str:
    """Return when a receiver wants retained values: ``always``, ``new`` or ``never``.

    Args:
        filters: the filters of its source, by descriptor.

    Raises:
        AttachError: the filter has another value.
    """
    value = filters.get(RETAINED_FILTER, NEVER)
    if value not in (ALWAYS, NEW, NEVER):
        raise AttachError(
            "amqp:invalid-field", f"the filter {RETAINED_FILTER} is {ALWAYS}, {NEW} or {NEVER}, not {value!r:.100}"
        )
    return str(value)


# Messages that are to be retained


def plain_start(payload: bytes) -> bytes:
    """Return the start of a message up to the code of the section behind its annotations, if these are nothing to us.

    A message that begins in the same way is not to be retained either. The start is empty if the message is, or if it
    has no such sections.
    """
    at = 0
    try:
        while payload[at : at + 3] in _BEFORE_PROPERTIES:
            start, at = at, skip(payload, at + 3, len(payload))
            if payload.find(RETAIN_NAME, start, at) >= 0:
                return b""
    except DecodeError:
        return b""
    return payload[: at + 3] if payload[at : at + 3] in _AFTER_ANNOTATIONS else b""


def retained_message(payload: bytes) -> tuple[bytes, Facts]:
    """Return a message without what is not for senders to say, and its facts; one that cannot be read has none."""
    try:
        return without_retained(payload), facts_of(payload)
    except DecodeError:
        return payload, PLAIN


def without_retained(payload: bytes) -> bytes:
    """Return a message without the annotation of retained values, which is not for senders to say.

    Raises:
        DecodeError: its annotations cannot be read.
    """
    return without_message_annotations(payload, (RETAINED,)) if _RETAINED in payload else payload


def is_clearing(payload: bytes) -> bool:
    """Return whether a message has an empty body: no bytes, no text, or nothing at all."""
    sections = Sections(payload)
    try:
        start, stop = sections.body_range
        if stop - start > EMPTY_BYTES:
            return False
        body = sections.body
    except DecodeError:
        return False
    return body is None or (isinstance(body, bytes | str | list) and not body)


class RetainingSender:
    """The sender of a message that is retained: it is answered when both the message and the value are done with."""

    __slots__ = ("_delivery_id", "_open", "_producer", "_state")

    def __init__(self, producer: Producer, delivery_id: int) -> None:
        self._producer = producer
        self._delivery_id = delivery_id
        self._open = 2
        self._state: Any = ACCEPTED

    def settle(self, _delivery_id: int, state: Any) -> None:
        """Note the outcome of the message."""
        self._note(state)

    def retained(self, reason: str | None) -> None:
        """Note that the value is on disk, or why it is not."""
        self._note(ACCEPTED if reason is None else RELEASED)

    def _note(self, state: Any) -> None:
        if state is not ACCEPTED:
            self._state = state
        self._open -= 1
        if not self._open:
            self._producer.settle(self._delivery_id, self._state)


def why_not(values: RetainedLog, name: str, payload: bytes) -> AmqpError | None:
    """Return why a message that is to be retained is not taken; ``None`` if it is.

    Args:
        values: the values of the address.
        name: the address, or the name below it that the message was sent to.
        payload: the message.
    """
    assert values.index is not None
    problem = values.index.refusal(name, len(payload))
    if problem is None or is_clearing(payload):
        return None
    return AmqpError(EXCEEDED, problem)


def retain(
    values: RetainedLog, name: str, payload: bytes, facts: Facts, producer: Producer, delivery_id: int, *, waits: bool
) -> Any:
    """Make a message that was taken the value of its name, or clear that.

    Args:
        values: the values of the address.
        name: the address, or the name below it that the message was sent to.
        payload: the message as receivers get it.
        facts: the facts of the message.
        producer: its sender's end.
        delivery_id: the sender's.
        waits: whether the sender's outcome waits for the disk.

    Returns:
        What is to be told the outcome of the message instead of the sender, with the same id.
    """
    sender = RetainingSender(producer, delivery_id) if waits else None
    done = None if sender is None else sender.retained
    if is_clearing(payload):
        values.clear(name, done)
    else:
        values.set(name, payload, facts, done)
    return producer if sender is None else sender


# Receivers of values


def copy_of(value: Value, core: Core, number: int = 0) -> bytes:
    """Return a retained value for a receiver: annotated as such, with the time to live that it has left.

    Args:
        value: the value.
        core: the core, for the time.
        number: the number of the filter that asked for it, where the receiver has several; it is the
            annotation's value.
    """
    field = encode(RETAINED) + encode(UInt(number)) if number else _RETAINED_FIELD
    payload = value.payload
    if value.ends_us:
        payload = with_ttl(payload, max(1, (value.ends_us - core.steady_us) // 1_000))
    at = 0
    if payload.startswith(_HEADER_START) and payload[3:4] == _LIST_8:
        at = 5 + payload[4]
    if (
        payload.startswith(_SMALL_ANNOTATIONS, at)
        and payload[at + 4] < 0xFF - len(field)
        and payload[at + 5] < _MAX_FIELDS
    ):
        # Nearly always: one more field, without a look at the others.
        size, stop = payload[at + 4], at + 5 + payload[at + 4]
        head = payload[: at + 4] + bytes((size + len(field), payload[at + 5] + 2))
        return head + payload[at + 6 : stop] + field + payload[stop:]
    try:
        return with_message_annotations(payload, {RETAINED: UInt(number) if number else True})
    except DecodeError:
        # It was read when it was set; the journal has its own checks.
        return payload


class Feed:
    """Gives retained values to a subscription, as far as it has room.

    Args:
        subscription: belongs to a topic.
    """

    __slots__ = ("_searches", "_subscription", "_waiting")

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._searches: dict[int, tuple[Iterator[Value | None], int]] = {}
        """By the numbers of filters that ask, the values, with ``None`` wherever others may go on (see
        ``Retained.search``), and the version of the latest that it is to get (``Retained.version``)."""
        self._waiting: Value | None = None
        """The next value for the first of them, if there was no room for it on its way to the receiver."""

    def add(self, number: int, values: Iterator[Value | None], version: int) -> None:
        """Give values for a filter behind those for others; its own are given again from the first one on."""
        if self._waiting is not None and number == next(iter(self._searches)):
            self._waiting = None
        self._searches.pop(number, None)
        self._searches[number] = values, version

    def go_on(self) -> bool:
        """Give the subscription what there is room for; return whether there may be more."""
        subscription, core, searches = self._subscription, self._subscription.core, self._searches
        core.units += FED_UNITS
        for _ in range(FED_AT_ONCE):
            if core.is_pressed and subscription.log is not None:
                core.hold(subscription)
                return True
            if not self._has_room():
                return True
            number, (values, version) = next(iter(searches.items()))
            value, self._waiting = self._waiting, None
            if value is None:
                try:
                    value = next(values)
                except StopIteration:
                    del searches[number]
                    if not searches:
                        return False
                    continue
                if value is None:
                    break
            elif not (value.home.index and value.home.index.has(value)):
                continue
            if value.version <= version:
                if len(value.payload) > SMALL_BYTES and self._must_wait(len(value.payload)):
                    self._waiting = value
                    return True
                payload = copy_of(value, core, number)
                subscription.receive(payload, known_facts(payload))
        subscription.due()
        return True

    def _must_wait(self, size: int) -> bool:
        """Return true if none of the receivers has room for a large value now; it goes on once one has."""
        consumers = self._subscription.consumers
        return self._subscription.log is None and bool(consumers) and all(it.must_wait(size) for it in consumers)

    def _has_room(self) -> bool:
        subscription = self._subscription
        if subscription.log is None:
            return subscription.resident_bytes < FED_BYTES
        return subscription.free_bytes > 0


def _within(values: Iterator[Value | None], source: str) -> Iterator[Value | None]:
    """Return the values that what is left of a filter matches, with ``None`` wherever others may go on."""
    for passed, value in enumerate(values, 1):
        if value is None or is_within(source, value.name):
            yield value
        elif not passed % FED_AT_ONCE:
            yield None


def feed(subscription: Subscription, *, pattern: Pattern = (), number: int = 0, within: str = "") -> None:
    """Give a topic's subscription all retained values of the topic that match a pattern, beginning in this turn.

    Args:
        subscription: belongs to a topic; values that it was being given are given again from the first one on.
        pattern: the names that are asked for; all that the subscription wants, unless it is said.
        number: the number of the filter that asks, where the subscription is for several.
        within: the filter that asks; of one that grants cover in part, the values of that part are given.
    """
    topic = subscription.topic
    assert topic is not None
    index = topic.retained.index
    if index is None or not topic.retained.values:
        return
    found = index.search(pattern or subscription.pattern, home=topic.retained)
    if is_cut(within):
        found = _within(found, within)
    if subscription.feed is None:
        subscription.feed = Feed(subscription)
    subscription.feed.add(number, found, index.version)
    subscription.due()
