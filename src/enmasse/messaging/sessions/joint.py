"""The filters of one session that reach one address: what several of them want comes once.

Rules:
1. Shared filters stand apart: each is its group's. So do queues, streams and whatever else is reached by its exact
   name: an outcome there takes something away.
2. At a topic those of QoS 1 and 2 have one subscription, and those of QoS 0 another: what waits on disk, or for the
   client's answers, holds up nothing of QoS 0. What both want the first one has (``SessionSubscribing.lesser``).
   A multicast address has one receiver for all.
3. A message is sent with the options of all filters that match its name, as these are at that moment: the highest
   QoS, every identifier, and the retain flag if one of them has retain-as-published [MQTT-3.3.4-2, 3.3.4-3]. One that
   no filter matches any more is for nobody.
4. A retained value that a SUBSCRIBE asked for is of that filter alone, whose number it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from enmasse.messaging.pattern_trie import PatternTrie
from enmasse.messaging.patterns import is_cut, is_within, patterns_of

# A session, its filters and what these have in common know each other.
if TYPE_CHECKING:
    from enmasse.messaging.queues.session_subscription import SessionSubscription
    from enmasse.messaging.queues.subscription import Subscription
    from enmasse.messaging.sessions.session_filter import SessionFilter, SessionLink


NUMBER: Final = 0
"""The number of a joint subscription in its key, and of what is in flight from it; filters begin with 1."""


class Joint:
    """The filters of a session that reach an address.

    Args:
        name: the name of the address.

    Attributes:
        filters: the filters, with what each stands for at the address.
        kept: their durable subscription, if it is a topic and one of them asks for it.
        upper: while a client is connected, the link of filters of QoS 1 and 2, or of all at a multicast address.
        lower: at a topic, the link of filters of QoS 0.
        is_mixed: true once what waits may be for another filter than the only one that there is.
    """

    __slots__ = ("_found", "filters", "is_mixed", "kept", "lower", "name", "upper")

    def __init__(self, name: str) -> None:
        self.name = name
        self.filters: dict[SessionFilter, str] = {}
        self.kept: SessionSubscription | None = None
        self.upper: SessionLink | None = None
        self.lower: SessionLink | None = None
        self.is_mixed = False
        self._found: PatternTrie[SessionFilter] | None = None
        """The filters by their patterns, once there are several."""

    @property
    def links(self) -> list[SessionLink]:
        """Its links while a client is connected."""
        return [link for link in (self.upper, self.lower) if link is not None]

    def add(self, filter_: SessionFilter, source: str) -> None:
        """Add a filter with what it stands for here."""
        self.filters[filter_] = source
        if len(self.filters) > 1:
            self.is_mixed = True
        if self._found is not None:
            for pattern in patterns_of(source):
                self._found.add(pattern, filter_)

    def recut(self, filter_: SessionFilter, source: str) -> None:
        """Have a filter stand for what is left of it by other grants; what waits may be for nobody."""
        self.filters[filter_] = source
        self.is_mixed = True
        self._found = None

    def remove(self, filter_: SessionFilter) -> None:
        """Remove a filter; what waits for it alone is for nobody."""
        source = self.filters.pop(filter_, None)
        if source is not None and self._found is not None:
            for pattern in patterns_of(source):
                self._found.remove(pattern, filter_)

    def matching(self, name: str, number: int = 0) -> list[SessionFilter]:
        """Return the filters that a message is for.

        Args:
            name: the name that it was sent to.
            number: the number of the filter whose SUBSCRIBE asked for it, if it is such a retained value.
        """
        if number:
            asked = [filter_ for filter_ in self.filters if filter_.number == number]
            return [one for one in asked if not is_cut(self.filters[one]) or is_within(self.filters[one], name)]
        if self._found is None:
            self._found = PatternTrie()
            for filter_, source in self.filters.items():
                for pattern in patterns_of(source):
                    self._found.add(pattern, filter_)
        return self._found.find(name)

    def users_of(self, link: SessionLink) -> Iterator[SessionFilter]:
        """Return the filters that a link is for."""
        return (filter_ for filter_ in self.filters if filter_.links.get(self.name) is link)

    def _subscription_of(self, filter_: SessionFilter) -> Subscription | None:
        """Return the subscription that a filter has a part in, at a topic."""
        if self.name in filter_.kept:
            return self.kept
        link = filter_.links.get(self.name)
        return None if link is None else link.consumer.address  # type: ignore[return-value]  # a topic has no other

    def takes_own(self, subscription: Subscription, name: str) -> bool:
        """Return true if a subscription is given what the session's own client sends to a name."""
        return any(
            not filter_.no_local and self._subscription_of(filter_) is subscription for filter_ in self.matching(name)
        )
