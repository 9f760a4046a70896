"""Shares: what receivers of a subscription may have of it, by the grants of their users.

Rules:
1. A topic gives a subscription what its receivers may have together, so nothing is asked for each message where that
   is what each of them may have.
2. A receiver that may have less gets what its own share selects; the rest is for others, or waits for one.
3. What waits as that shrinks, and is nobody's any more, is dropped before it is handed out.
4. While no receiver is there, a durable subscription gathers what its owner may have, as far as that is known.
5. One that comes or goes, or whose grants change, costs by its own share alone. Receivers have their selectors with
   the next turn of the subscription, before anything is handed out.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from enmasse.message.errors import DecodeError
from enmasse.message.sections import TOPIC_NAME, Sections
from enmasse.messaging.limits import Footprint, patterns_memory
from enmasse.messaging.pattern_trie import PatternTrie
from enmasse.messaging.patterns import Cut, is_cut, patterns_at

# Subscriptions, their receivers and the shares of these know each other.
if TYPE_CHECKING:
    from enmasse.messaging.patterns import Pattern
    from enmasse.messaging.queues.subscription import Subscription


LOOK_UNITS: Final = 8
"""The work of finding the name of a message among patterns, in units of a turn (``core``)."""

AWAY: Final = "away"
"""The owner of a durable subscription, while no receiver of the owner's is there."""

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

    __slots__ = ("names", "text", "topic")

    def __init__(self, patterns: Collection[Pattern], topic: str) -> None:
        self.text = repr(patterns)
        self.topic = topic
        self.names: PatternTrie[bool] = PatternTrie()
        for pattern in patterns:
            self.names.add(pattern, True)

    def matches(self, payload: bytes, attempts: int = 0) -> bool:
        """Return whether a message is selected; one whose name cannot be read is not."""
        try:
            name = Sections(payload).message_annotations.get(TOPIC_NAME, self.topic)
        except DecodeError:
            return False
        return bool(self.names.find(name))

    def cost(self, payload: bytes) -> int:
        """Return the work of looking at a message, in units of a turn."""
        return LOOK_UNITS


def share_of(subscription: Subscription, source: str) -> Share:
    """Return what a receiver may have of a subscription by its source, or what grants leave of that."""
    patterns = patterns_at(source)
    return None if patterns == (subscription.pattern,) and not is_cut(source) else patterns


class Shares:
    """The shares of those that have one subscription: its receivers, and who is ``AWAY``.

    Args:
        subscription: has had receivers that may have all of it until now.

    Attributes:
        patterns: the patterns of what all may have together, unless somebody may have all.
    """

    __slots__ = (
        "_is_changed", "_is_narrowed", "_of", "_same", "_selected", "_selectors", "_users", "_whole", "patterns",
    )  # fmt: skip

    def __init__(self, subscription: Subscription) -> None:
        self._of: dict[object, Share] = dict.fromkeys(subscription.consumers)
        if subscription.is_durable:
            self._of[AWAY] = None
        self._whole = len(self._of)
        """The number of those that may have all."""
        self.patterns: dict[Pattern, int] = {}
        """With the number of shares that have each."""
        self._users: dict[tuple[Pattern, ...], int] = {}
        """The number of those that have each share."""
        self._same: dict[tuple[Pattern, ...], tuple[Pattern, ...]] = {}
        """Each share by itself: equal ones are one object."""
        self._selectors: dict[tuple[Pattern, ...], NameSelector] = {}
        self._selected = NameSelector((), subscription.topic_name)
        """Selects what somebody may have, unless that is all."""
        self._is_changed = False
        self._is_narrowed = False

    @property
    def is_whole(self) -> bool:
        """True if somebody may have all that the subscription stands for."""
        return self._whole > 0

    def put(self, subscription: Subscription, sharer: object, source: str) -> None:
        """Note what one may have of the subscription by its source, or what grants leave of that."""
        share = share_of(subscription, source)
        if sharer not in self._of or self._of[sharer] != share:
            self._change(subscription, sharer, share, is_there=True)

    def remove(self, subscription: Subscription, sharer: object) -> None:
        """Note that one has gone."""
        if sharer in self._of:
            self._change(subscription, sharer, None, is_there=False)

    def _change(self, subscription: Subscription, sharer: object, share: Share, *, is_there: bool) -> None:
        was_whole, was_there = self._whole > 0, sharer in self._of
        before = self._of.pop(sharer, None)
        added, removed, size = [], [], 0
        if is_there:
            self._of[sharer] = share
            if share is None:
                self._whole += 1
            else:
                if share not in self._users:
                    self._users[share] = 0
                    self._same[share] = share
                    size += patterns_memory(share)
                self._users[share] += 1
                for pattern in share:
                    if pattern not in self.patterns:
                        self.patterns[pattern] = 0
                        added.append(pattern)
                    self.patterns[pattern] += 1
        if was_there and before is None:
            self._whole -= 1
        elif before is not None:
            self._users[before] -= 1
            if not self._users[before]:
                del self._users[before], self._same[before]
                self._selectors.pop(before, None)
                size -= patterns_memory(before)
            for pattern in before:
                self.patterns[pattern] -= 1
                if not self.patterns[pattern]:
                    del self.patterns[pattern]
                    removed.append(pattern)
        for pattern in removed:
            self._selected.names.remove(pattern, True)
        for pattern in added:
            self._selected.names.add(pattern, True)
        self._route(subscription, added, removed, was_whole=was_whole)
        _count(subscription, size)
        self._is_changed = True
        if not self._whole and (removed or was_whole):
            self.sift(subscription)
        subscription.due()

    def _route(
        self, subscription: Subscription, added: list[Pattern], removed: list[Pattern], *, was_whole: bool
    ) -> None:
        """Have the topic look for what all may have together now."""
        topic = subscription.topic
        if topic is None:
            return
        if was_whole and self._whole:
            return
        if was_whole:
            topic.narrow(subscription, subscription.pattern)
            added = list(self.patterns)
        elif self._whole:
            fresh = set(added)
            removed += [pattern for pattern in self.patterns if pattern not in fresh]
        if not was_whole:
            for pattern in removed:
                topic.narrow(subscription, pattern)
        if self._whole:
            topic.widen(subscription, subscription.pattern)
        else:
            for pattern in added:
                topic.widen(subscription, pattern)

    def sift(self, subscription: Subscription) -> None:
        """Have what waits looked through, as it may have come before its receivers had less."""
        topic = subscription.topic
        waits = subscription.depth or subscription.feed is not None or (topic is not None and topic.is_behind)
        if waits and not self._whole:
            # Nothing goes by the order of arrival alone from now on.
            subscription.arrange()
            self._is_narrowed = True
            subscription.due()

    def settle(self, subscription: Subscription) -> None:
        """Give receivers their selectors, before something is handed out."""
        if self._is_changed:
            self._is_changed = False
            is_mixed = len(self._users) + (self._whole > 0) > 1
            for consumer in subscription.consumers:
                share = self._of.get(consumer)
                selector = None if share is None or not is_mixed else self._selector_of(subscription, share)
                consumer.reselect(selector)  # type: ignore[attr-defined]  # a backlog has no others
            if self._whole and subscription.order is not None:
                subscription.order.keep(None)
        if self._is_narrowed:
            self._is_narrowed = False
            if not self._whole:
                subscription.arrange().keep(self._selected)

    def _selector_of(self, subscription: Subscription, share: tuple[Pattern, ...]) -> NameSelector:
        found = self._selectors.get(share)
        if found is None:
            found = self._selectors[share] = NameSelector(share, subscription.topic_name)
        return found

    def end(self, subscription: Subscription) -> None:
        """Have all have all, as the subscription is about to stand for something else."""
        for sharer in list(self._of):
            if self._of[sharer] is not None:
                self._change(subscription, sharer, None, is_there=True)
        self.settle(subscription)

    def known(self, source: str) -> str:
        """Return a source with the patterns of those that have the same share, which are in memory once."""
        same = self._same.get(patterns_at(source)) if is_cut(source) else None
        return source if same is None else Cut.of(source, same)


def _count(subscription: Subscription, change: int) -> None:
    """Correct the memory that a subscription counts for."""
    before = subscription.footprint
    subscription.footprint = Footprint(before.subscriptions, before.size + change)
    topic = subscription.topic
    if topic is not None and topic.space is not None:
        topic.space.usage.give_back(before)
        topic.space.usage.take(subscription.footprint)
