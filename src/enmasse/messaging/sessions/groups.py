"""Shared subscriptions: the sessions of a space that name one group and filter get each message once between them.

Rules:
1. A group has one durable subscription at each topic that its filter reaches; its members' connections are its
   receivers, of which the one with the fewest unsettled messages gets the next (``Address.choose``).
2. It lasts as long as it has members, and so no longer than the last of their owners. What waits in it has the same
   bound as a session has.
3. A member has what its user's grants cover; the rest is for others, or waits for them (``shares``).
4. What is too large for one member's client is another's; if all that are connected have refused it, it is dropped.
5. What a member was sent with QoS 1 and has not acknowledged is another's when its connection goes; with QoS 2 it
   stays the member's until its session is over, and nobody's then [MQTT-4.8.2-4, 4.8.2-5].
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from enmasse.messaging.patterns import Cut, is_cut, patterns_of
from enmasse.messaging.queues.session_subscription import SessionRoom, SessionSubscription
from enmasse.messaging.sessions import records

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.patterns import Pattern
    from enmasse.messaging.sessions.session_filter import SessionFilter
    from enmasse.messaging.space import Space


class Group:
    """A group that shares a filter.

    Args:
        groups: the groups of its space.
        name: the group's name.
        topic: the filter.
        log_id: its number in the journal.

    Attributes:
        members: the members' filters.
        kept: its subscriptions by the names of topics.
    """

    __slots__ = ("_groups", "_shares", "kept", "log_id", "members", "name", "room", "topic")

    def __init__(self, groups: Groups, name: str, topic: str, log_id: int) -> None:
        self._groups = groups
        self.name = name
        self.topic = topic
        self.log_id = log_id
        self.members: dict[SessionFilter, None] = {}
        self.kept: dict[str, SessionSubscription] = {}
        self._shares: dict[str, dict[tuple[Pattern, ...], tuple[int, str]]] = {}
        """By topics, what members may receive there, with the number of those that may."""
        self.room = SessionRoom(groups.space)

    @property
    def title(self) -> str:
        """Its name in reports."""
        return f"group {self.name!r:.200} of {self._groups.space.name}"

    def note(self, name: str, before: str | None, source: str | None) -> None:
        """Note that a member may receive something else at a topic than before; ``None`` is nothing."""
        shares = self._shares.setdefault(name, {})
        if source is not None:
            share = patterns_of(source)
            shares[share] = (shares[share][0] + 1 if share in shares else 1), source
        if before is not None:
            share = patterns_of(before)
            count, same = shares.pop(share)
            if count > 1:
                shares[share] = count - 1, same
        if not shares:
            del self._shares[name]

    def source_at(self, name: str) -> str | None:
        """Return what its members may receive at a topic together; ``None`` if that is nothing."""
        sources = [source for _, source in self._shares.get(name, {}).values()]
        if len(sources) < 2 or not all(map(is_cut, sources)):
            return next((source for source in sources if len(sources) < 2 or not is_cut(source)), None)
        patterns = dict.fromkeys(pattern for source in sources for pattern in patterns_of(source))
        return Cut.of(sources[0], tuple(patterns))

    def share(self, name: str) -> None:
        """Have its subscription at a topic get what some member may receive, as members or their grants change."""
        found, source = self.kept.get(name), self.source_at(name)
        if found is not None and found.topic is not None and source is not None:
            found.topic.sessions.recut(found, source)

    def leave(self, filter_: SessionFilter, names: Iterable[str]) -> None:
        """Note that a member has left, which had a part at some topics; the group is over with the last one."""
        self.members.pop(filter_, None)
        for name in names:
            self.share(name)
        if not self.members:
            self._groups.end(self)


class Groups:
    """The groups of one space.

    Args:
        core: the core.
        space: the space.
    """

    __slots__ = ("_by_name", "_core", "space")

    def __init__(self, core: Core, space: Space) -> None:
        self._core = core
        self.space = space
        self._by_name: dict[tuple[str, str], Group] = {}

    def __len__(self) -> int:
        """The number of groups."""
        return len(self._by_name)

    @property
    def all(self) -> list[Group]:
        """The groups."""
        return list(self._by_name.values())

    def join(self, filter_: SessionFilter) -> Group:
        """Return the group of a shared filter, with a member more."""
        wanted = filter_.filter
        name = wanted.group, wanted.topic
        group = self._by_name.get(name)
        if group is None:
            log_id, _ = self._core.new_log()
            group = self._by_name[name] = Group(self, *name, log_id)
            record = {
                "space": self.space.name,
                "spaceUid": self.space.uid,
                "group": group.name,
                "filter": group.topic,
            }
            self._core.store_in_time(
                [self._core.log_counter(), records.put(log_id, records.GROUP, record)],
                lambda: self._written(group),
            )
        group.members[filter_] = None
        return group

    def _written(self, group: Group) -> None:
        if self._by_name.get((group.name, group.topic)) is not group:
            # It was over before it was written.
            self._core.store_in_time([records.remove(group.log_id, records.GROUP)])

    def load(self, log_id: int, name: str, topic: str) -> None:
        """Take up a group of an earlier run of the node."""
        self._by_name[name, topic] = Group(self, name, topic, log_id)

    def clear(self) -> None:
        """End the groups that have lost all members, as these were in memory alone."""
        for group in self.all:
            if not group.members:
                self.end(group)

    def end(self, group: Group) -> None:
        """End a group, with its subscriptions."""
        self._by_name.pop((group.name, group.topic), None)
        kept, group.kept = group.kept, {}
        for subscription in kept.values():
            if subscription.topic is not None:
                subscription.topic.sessions.end(subscription)
        self._core.store_in_time([records.remove(group.log_id, records.GROUP)])

    def address_went(self, name: str) -> None:
        """Leave a topic that is deleted."""
        for group in self._by_name.values():
            group.kept.pop(name, None)
