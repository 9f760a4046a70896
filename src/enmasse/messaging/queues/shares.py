"""Shares: what receivers of a subscription may have of it, by the grants of their users.

Rules:
1. A topic gives a subscription what its receivers may have together (``Subscription.parts``), so nothing is asked for
   each message where that is what each of them may have.
2. A receiver that may have less gets what its own share matches; the rest is for others, or waits for one.
3. What waits as that shrinks, and is nobody's any more, is dropped before it is handed out.
4. While no receiver is there, a durable subscription gathers what its owner may have, as far as that is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from enmasse.message.errors import DecodeError
from enmasse.message.sections import TOPIC_NAME, Sections
from enmasse.messaging.limits import Footprint, patterns_memory
from enmasse.messaging.pattern_trie import PatternTrie
from enmasse.messaging.patterns import is_cut, patterns_at

# Subscriptions, their receivers and the shares of these know each other.
if TYPE_CHECKING:
    from enmasse.messaging.patterns import Pattern
    from enmasse.messaging.queues.consumer import BacklogConsumer
    from enmasse.messaging.queues.subscription import Subscription


LOOK_UNITS: Final = 8
"""The work of finding the name of a message among patterns, in units of a turn (``core``)."""

Share = tuple["Pattern", ...] | None
"""The patterns of the names that a receiver may have of a subscription; ``None``: all that it stands for."""


class NameSelector:
    """A selector of messages by the names that they were sent to.

    Args:
        patterns: match the names.
        topic: the name of what has no other.

    Attributes:
        text: tells it from others.
    """

    __slots__ = ("_names", "_topic", "text")

    def __init__(self, patterns: tuple[Pattern, ...], topic: str) -> None:
        self.text = repr(patterns)
        self._topic = topic
        self._names: PatternTrie[bool] = PatternTrie()
        for pattern in patterns:
            self._names.add(pattern, True)

    def matches(self, payload: bytes, attempts: int = 0) -> bool:
        """Return whether a message is selected; one whose name cannot be read is not."""
        try:
            name = Sections(payload).message_annotations.get(TOPIC_NAME, self._topic)
        except DecodeError:
            return False
        return bool(self._names.find(name))

    def cost(self, payload: bytes) -> int:
        """Return the work of looking at a message, in units of a turn."""
        return LOOK_UNITS


def share_of(subscription: Subscription, source: str) -> Share:
    """Return what a receiver may have of a subscription by its source, or what grants leave of that."""
    patterns = patterns_at(source)
    return None if patterns == (subscription.pattern,) and not is_cut(source) else patterns


def share_out(subscription: Subscription, shares: Sequence[tuple[BacklogConsumer, Share]], *others: Share) -> None:
    """Give a subscription what all may have of it together, and each receiver no more than its own share.

    Args:
        subscription: belongs to a topic.
        shares: its receivers, with what they may have.
        others: what those may have who are away.
    """
    patterns: dict[Pattern, None] | None = {}
    for share in (*others, *(share for _, share in shares)):
        if share is None or patterns is None:
            patterns = None
        else:
            patterns |= dict.fromkeys(share)
    whole = None if patterns is None else tuple(patterns)
    subscription.recut(whole)
    size = 0 if whole is None else patterns_memory(whole)
    for consumer, share in shares:
        if share is None or (whole is not None and len(share) == len(whole)):
            consumer.reselect(None)
        else:
            consumer.reselect(NameSelector(share, subscription.topic_name))
            size += patterns_memory(share)
    _count(subscription, size)


def _count(subscription: Subscription, size: int) -> None:
    """Correct the memory that a subscription counts for."""
    before = subscription.footprint
    subscription.footprint = Footprint(before.subscriptions, before.size - subscription.cut_bytes + size)
    subscription.cut_bytes = size
    topic = subscription.topic
    if topic is not None and topic.space is not None:
        topic.space.usage.give_back(before)
        topic.space.usage.take(subscription.footprint)
