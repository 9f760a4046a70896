"""A session: what a client has subscribed to, what waits for it, and what is in flight between both.

Rules:
1. A session is a named set of subscriptions: its filters have what they reach (``filter_targets``).
2. What several filters of one session want comes once (``joint``); or, as [MQTT-3.3.4-2] allows, a copy for each,
   with its own QoS and identifier, if the space said so when the session began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from enmasse.messaging.delivery import DETACHED
from enmasse.messaging.errors import AttachError
from enmasse.messaging.limits import SESSION_BYTES, Footprint, memory_of
from enmasse.messaging.patterns import Cut
from enmasse.messaging.queues.consumer import BacklogConsumer
from enmasse.messaging.queues.session_subscription import SessionRoom, footprint_at
from enmasse.messaging.sessions import filter_targets, records
from enmasse.messaging.sessions.crowd import MAX_MATCHES, Crowd
from enmasse.messaging.sessions.filters import Filter
from enmasse.messaging.sessions.incoming import Incoming
from enmasse.messaging.sessions.names import REACHED
from enmasse.messaging.sessions.outgoing import Outgoing
from enmasse.messaging.sessions.session_filter import SessionFilter, SessionLink, SubscribeRequest

if TYPE_CHECKING:
    from enmasse.errors import RemoteError
    from enmasse.messaging.core import Core
    from enmasse.messaging.owners import Grants
    from enmasse.messaging.patterns import Pattern
    from enmasse.messaging.queues.backlog import Backlog
    from enmasse.messaging.queues.session_subscription import SessionSubscription
    from enmasse.messaging.queues.subscription import Subscription
    from enmasse.messaging.sessions.joint import Joint
    from enmasse.messaging.sessions.journal import SessionJournal
    from enmasse.messaging.sessions.records import Flight
    from enmasse.messaging.sessions.session_filter import SessionHolder
    from enmasse.messaging.sessions.sessions import Sessions
    from enmasse.messaging.sessions.wills import Will
    from enmasse.messaging.storage import Operation


NEVER: Final = 0xFFFF_FFFF
"""The expiry of a session that does not end by itself, in seconds [MQTT 3.1.2.11.2]."""


_NONE: Final[dict[Any, Any]] = {}
"""Of the many sessions that have nothing of an older version; never changed."""


def footprint_of(client_id: str) -> Footprint:
    """Return what the session of a client counts for in its space, beside its filters."""
    return Footprint(0, memory_of(SESSION_BYTES, client_id))


class Session:
    """The session of one client.

    Args:
        sessions: the sessions of its space.
        client_id: the client's name for itself.
        owner: the owner of the session; see ``owners``.
        user: the owner's name; empty where no login is needed.
        log_id: its number in the journal; 0 if nothing of it is kept there.

    Attributes:
        is_present: true if it was there when the client connected.
        expiry_s: the seconds that it is kept without a client; 0 ends it with the connection, ``NEVER`` keeps it.
        outgoing: the messages in flight towards the client.
        incoming: the messages received of it with QoS 2.
        filters: by their texts.
        joints: the parts that its filters have in common, by the names of addresses.
        is_joint: true if what several filters want comes once.
        has_leftovers: true if an older version may have kept a subscription for each filter.
        leftover_links: the links to these while a client is connected.
        holder: the connection that has it, while there is one.
        left_us: the time at which its client went, by the wall clock; 0 while one is there.
        will: the will of the connection.
    """

    __slots__ = (
        "__weakref__", "_crowd", "_has_no_local", "_next_number", "_waiting", "_writes", "client_id", "expiry_s",
        "filters", "has_leftovers", "holder", "incoming", "is_joint", "is_over", "is_present", "joints", "left_us",
        "leftover_links", "log_id", "may_receive", "may_send", "outgoing", "owner", "parts", "room", "sessions",
        "user", "will",
    )  # fmt: skip

    def __init__(self, sessions: Sessions, client_id: str, owner: str, user: str, log_id: int) -> None:
        self.sessions = sessions
        self.client_id = client_id
        self.owner = owner
        self.user = user
        self.log_id = log_id
        self.is_present = False
        self.is_over = False
        self.expiry_s = 0
        self.left_us = 0
        self.filters: dict[str, SessionFilter] = {}
        self.joints: dict[str, Joint] = {}
        self.is_joint = not sessions.space.copies_overlapping
        self.has_leftovers = False
        self.leftover_links: dict[SessionSubscription, SessionLink] = _NONE
        self._crowd: Crowd | None = None
        """The filters, if there are more than may match one name."""
        self.holder: SessionHolder | None = None
        self.may_receive: Callable[[str], bool] | None = None
        self.may_send: Callable[[str], bool] | None = None
        self.parts: Callable[[str], Sequence[Pattern]] | None = None
        self.will: Will | None = None
        self.room = SessionRoom(sessions.space)
        self.outgoing = Outgoing(self)
        self.incoming = Incoming(self)
        self._has_no_local = False
        self._next_number = 0
        self._writes = 0
        """Changes on their way to the disk."""
        self._waiting: list[Callable[[], None]] = []

    @property
    def name(self) -> str:
        """Its name in reports."""
        return f"session {self.client_id!r:.200} of {self.sessions.space.name}"

    @property
    def has_no_local(self) -> bool:
        """True if some of its filters do not want what its client sends."""
        return self._has_no_local

    def takes_own(self, subscription: Subscription, name: str) -> bool:
        """Return true if one of its subscriptions is given what its own client sends to a name; see ``Origin``."""
        joint = self.joints.get(subscription.topic_name)
        return joint is not None and joint.takes_own(subscription, name)

    @property
    def core(self) -> Core:
        """The core."""
        return self.sessions.core

    @property
    def journal(self) -> SessionJournal:
        """The log of what is in flight."""
        return self.sessions.journal

    @property
    def is_lasting(self) -> bool:
        """True if it is in the journal, as it outlives its connection."""
        return self.log_id > 0

    @property
    def footprint(self) -> Footprint:
        """The cost to its space, beside its filters."""
        return footprint_of(self.client_id)

    @property
    def bytes_stored(self) -> int:
        """The bytes of the messages that wait for the client."""
        return self.room.bytes_stored

    @property
    def depth(self) -> int:
        """The number of the messages that wait for the client, those in flight included."""
        return sum(subscription.depth for subscription in self.room.subscriptions)

    def require_holder(self) -> SessionHolder:
        """Return the connection."""
        assert self.holder is not None
        return self.holder

    def record(self) -> Operation:
        """Return the operation that writes it."""
        space = self.sessions.space
        return records.put(
            self.log_id,
            records.SESSION,
            {
                "space": space.name,
                "spaceUid": space.uid,
                "client": self.client_id,
                "owner": self.owner,
                "user": self.user,
                "expiry": self.expiry_s,
                "left": self.left_us,
            }
            | ({} if self.is_joint else {"overlapping": "each"}),
        )

    # Filters

    def subscribe(self, wish: SubscribeRequest) -> int:
        """Subscribe to what a filter stands for, or change the options of one that is there [MQTT-3.8.4-3].

        Returns:
            The QoS that is granted.

        Raises:
            AttachError: it is no filter, leads nowhere or to too much, or the grants do not cover it.
        """
        before = self.filters.get(wish.filter)
        filter_ = SessionFilter(self, self._next_number + 1, Filter(wish.filter)) if before is None else before
        if filter_targets.is_one_name(filter_):
            self.require_allowed(filter_.filter.topic)
        if before is None:
            self._require_few(filter_)
        was_durable, had_qos, no_local = filter_.is_durable, filter_.qos > 0, filter_.no_local
        filter_.apply(wish)
        self._has_no_local = self._has_no_local or wish.no_local
        if before is not None and (was_durable != filter_.is_durable or self._is_moved(filter_, had_qos, no_local)):
            filter_targets.disconnect(filter_)
            filter_targets.forget_kept(filter_)
        elif before is not None:
            filter_targets.options_changed(filter_)
        reached = filter_targets.reach(filter_, is_new=True)
        if before is None:
            first = footprint_at(reached[0][1]).size if reached else 0
            self.sessions.space.usage.require_room(Footprint(1, filter_.footprint.size + first))
            if filter_.filter.group:
                filter_.group = self.sessions.groups.join(filter_)
            self._next_number += 1
            self._add(filter_)
        wants_retained = not filter_.filter.group and (
            wish.retain_handling == 0 or (wish.retain_handling == 1 and before is None)
        )
        fresh: Sequence[SessionLink | None]
        if before is not None:
            fresh = filter_targets.connect_all(filter_, reached)
        else:
            try:
                fresh = [filter_targets.connect(filter_, address, source) for address, source in reached]
            except AttachError:
                self._drop(filter_)
                raise
        if self.is_lasting:
            self.store([records.put(self.log_id, records.FILTER, filter_.record(), filter_.number)])
        for link in fresh:
            if link is not None:
                self.require_holder().joined(link)
        if wants_retained:
            filter_targets.give_retained(filter_)
        return wish.qos

    def _is_moved(self, filter_: SessionFilter, had_qos: bool, no_local: bool) -> bool:
        """Return true if the new options of a filter need other subscriptions than those that it has a part in."""
        if self.is_joint and filter_.group is None:
            return had_qos != (filter_.qos > 0)
        return no_local != filter_.no_local

    def _require_few(self, filter_: SessionFilter) -> None:
        """Check that no name is seen that more of the filters match than may, with one more.

        Raises:
            AttachError: there is one.
        """
        if len(self.filters) < MAX_MATCHES:
            self._crowd = None
            return
        if self._crowd is None:
            self._crowd = Crowd(self.filters.values())
        name = self._crowd.name_in(filter_)
        if name is not None:
            raise AttachError(
                "amqp:resource-limit-exceeded",
                f"{MAX_MATCHES} filters of the session match {name!r:.200}, as many as may match one name: "
                f"unsubscribe from some before {filter_.text!r:.200}, or use fewer that are wider",
            )

    def unsubscribe(self, text: str) -> bool:
        """End a filter; false if there is none."""
        filter_ = self.filters.get(text)
        if filter_ is None:
            return False
        self._drop(filter_)
        if self.is_lasting:
            self.store([records.remove(self.log_id, records.FILTER, filter_.number)])
        return True

    def _add(self, filter_: SessionFilter) -> None:
        self.filters[filter_.text] = filter_
        if self._crowd is not None:
            self._crowd.add(filter_)
        self.sessions.index.add(filter_.filter.words, filter_)
        self.sessions.space.usage.take(filter_.footprint)

    def _drop(self, filter_: SessionFilter) -> None:
        filter_targets.disconnect(filter_)
        filter_targets.forget_kept(filter_)
        del self.filters[filter_.text]
        if self._crowd is not None:
            self._crowd.remove(filter_)
        self.sessions.index.remove(filter_.filter.words, filter_)
        self.sessions.space.usage.give_back(filter_.footprint)
        if filter_.group is not None:
            names = list(filter_.shares)
            filter_targets.forget_shares(filter_)
            filter_.group.leave(filter_, names)

    def require_allowed(self, source: str) -> None:
        """Raise an ``AttachError`` if the user may not receive from a name or filter."""
        if not self.may_reach(source):
            raise AttachError("amqp:unauthorized-access", f"user {self.user!r} may not receive from {source!r:.200}")

    def may_reach(self, source: str) -> bool:
        """Return true if the user may receive from a name or filter, as far as that is known now."""
        if self.may_receive is not None:
            return self.may_receive(source)
        # Nobody is connected: what the grants do not cover then is ended before anything of it is sent.
        grants = self.known_grants
        return grants is None or grants.may_receive(source)

    @property
    def known_grants(self) -> Grants | None:
        """The grants as far as they are known without the client."""
        grants = self.sessions.space.grants(self.owner, self.user)
        return None if grants is None else grants.of_client(self.client_id)

    def granted(self, source: str, *, is_new: bool = False) -> str | None:
        """Return what the user may receive of a filter at a topic: all, a part, or ``None``, as far as that is known.

        Args:
            source: the filter.
            is_new: true to complain of what a client should hear of when it subscribes.

        Raises:
            AttachError: the part is one of too many patterns.
        """
        if self.may_reach(source):
            return source
        parts = self.parts
        if self.may_receive is None:
            grants = self.known_grants
            parts = None if grants is None else grants.parts
        try:
            patterns = () if parts is None else tuple(parts(source))
        except AttachError:
            if is_new:
                raise
            return None
        return Cut.of(source, patterns) if patterns else None

    # Links

    def link_ended(self, link: SessionLink, error: RemoteError | None) -> None:
        """Note that an address has detached a link."""
        link.is_open = False
        filters = [link.filter] if link.joint is None else list(link.joint.users_of(link))
        is_leftover = link in self.leftover_links.values()
        filter_targets.forget(link)
        holder = self.holder
        if holder is not None:
            holder.left(link)
        link.port = DETACHED
        if holder is not None:
            for filter_ in filters:
                is_one_of_many = filter_.filter.is_wild and link.address.kind in REACHED
                if not (is_one_of_many or error is None or is_leftover):
                    holder.filter_ended(filter_.text, error)

    def link_refused(self, link: SessionLink) -> None:
        """Leave an address that answered late that it gives nothing."""
        filter_targets.leave(link)
        self.sessions.unreached += 1

    @property
    def links(self) -> Iterator[SessionLink]:
        """The links of the connection; first those to what an older version left."""
        yield from self.leftover_links.values()
        for filter_ in self.filters.values():
            for link in filter_.links.values():
                if link.joint is None:
                    yield link
        for joint in self.joints.values():
            yield from joint.links

    def link_like(self, before: SessionLink) -> SessionLink | None:
        """Return the link that is in the place of one of an earlier connection."""
        address = before.consumer.address
        if before.is_kept:
            # A subscription of its own has one receiver.
            return next((link for link in self.links if link.consumer.address is address), None)
        found = before.filter.links.get(before.address.name)
        return found if found is not None and found.consumer.address is address else None

    def link_of(self, flight: Flight) -> SessionLink | None:
        """Return the link for what an earlier run of the node had in flight."""
        for link in self.links:
            consumer = link.consumer
            if not (link.is_kept or link.number == flight.number) or not isinstance(consumer, BacklogConsumer):
                continue
            if consumer.address.owner[0] == flight.place.owner:
                return link
        return None

    def _filter_of(self, flight: Flight) -> SessionFilter | None:
        return next((one for one in self.filters.values() if one.number == flight.number), None)

    def backlog_of(self, flight: Flight) -> Backlog | None:
        """Return the queue or subscription in which such a message lies."""
        owner = flight.place.owner
        own = next((one for one in self.room.subscriptions if one.owner[0] == owner), None)
        filter_ = self._filter_of(flight)
        if own is not None or filter_ is None:
            return own
        backlogs: list[Any] = [] if filter_.group is None else [*filter_.group.kept.values()]
        if not backlogs and not filter_.filter.is_wild:
            backlogs = [self.sessions.space.address(filter_.filter.topic)]
        return next((one for one in backlogs if getattr(one, "owner", (0, 0))[0] == owner), None)

    def is_shared(self, flight: Flight) -> bool:
        """Return true if such a message was for a filter that a group shares."""
        filter_ = self._filter_of(flight)
        return filter_ is not None and filter_.group is not None

    # Addresses that come and go, and grants

    def review(self) -> None:
        """End what the grants do not cover any more, and reach what they cover now."""
        holder = self.holder
        if holder is None:
            return
        for filter_ in list(self.filters.values()):
            error = AttachError(
                "amqp:unauthorized-access",
                f"user {self.user!r} may not receive from {filter_.filter.topic!r:.200} any more",
            )
            lost = filter_targets.regrant(filter_)
            if lost and not filter_.links:
                self.unsubscribe(filter_.text)
                holder.filter_ended(filter_.text, error)
            elif lost:
                holder.filter_ended(filter_.text, error)
            elif filter_.filter.is_wild:
                filter_targets.join_all(filter_)
            if self.holder is not holder:
                return

    def regrant(self) -> None:
        """Gather what the grants cover now, as they have changed while the client is away; see ``resume``."""
        for filter_ in list(self.filters.values()):
            if filter_.is_durable or filter_.group is not None:
                filter_targets.regrant(filter_)
                filter_targets.connect_all(filter_, filter_targets.reach(filter_))

    # The connection

    def resume(self) -> None:
        """Begin to send, once the client knows that it is connected: first what was in flight, then what waits."""
        holder = self.require_holder()
        for filter_ in list(self.filters.values()):
            filter_targets.join_leftovers(filter_)
            reached = filter_targets.reach(filter_)
            sources = {address.name: source for address, source in reached}
            for name in list(filter_.kept):
                if name not in sources:
                    # The grants do not cover it any more, or a name leads elsewhere now.
                    filter_targets.address_went(filter_, name)
                else:
                    filter_targets.recut(filter_, name, sources[name])
            filter_targets.connect_all(filter_, reached)
        fresh = list(self.links)

        def go_on() -> None:
            if self.holder is not holder:
                return
            self.outgoing.send_again()
            for link in fresh:
                if link.is_open and self.holder is holder:
                    holder.joined(link)

        self.outgoing.recall(go_on)

    def put_pubrel(self, packet_id: int) -> None:
        """Send PUBREL, if the client is there."""
        if self.holder is not None:
            self.holder.put_pubrel(packet_id)

    def disconnect(self) -> None:
        """Let go of the connection: links are detached, and what is in flight stays where that is right."""
        self.outgoing.detach()
        self.incoming.detach()
        for link in list(self.links):
            filter_targets.leave(link)
        self.holder = self.may_receive = self.may_send = self.parts = None
        self._waiting.clear()

    def detach(
        self,
        holder: SessionHolder,
        *,
        is_clean_close: bool,
        expiry_s: int | None = None,
        is_node_gone: bool = False,
    ) -> None:
        """Note that a connection is gone; one that does not have the session any more changes nothing.

        Args:
            holder: the connection.
            is_clean_close: true if the client said goodbye and does not want its will to be sent.
            expiry_s: the seconds that the session is kept from now on, if the client said so.
            is_node_gone: true if it is not the client that has gone, but the node that it had reached, beside this
                one: its will waits for some seconds at least.
        """
        if self.holder is holder:
            self.sessions.left(self, is_clean_close=is_clean_close, expiry_s=expiry_s, is_node_gone=is_node_gone)

    def cancel_will(self) -> None:
        """Send no will, whatever becomes of the connection."""
        will, self.will = self.will, None
        if will is not None:
            self.core.store_in_time([will.cancel()])

    def end(self) -> None:
        """Forget everything in memory, as the session is over."""
        self.is_over = True
        self.disconnect()
        self.outgoing.end()
        self.incoming.clear()
        for filter_ in list(self.filters.values()):
            self._drop(filter_)
            filter_targets.forget_offset(filter_)
        self.journal.forget(self)

    def adopted(self) -> Operation | None:
        """Return the operation that writes it with its owner; ``None`` if it is over."""
        return None if self.is_over else self.record()

    def disown(self) -> None:
        """End, as its owner is gone."""
        self.sessions.delete(self)

    def on_waited(self) -> None:
        """End, as the client has stayed away for too long."""
        self.sessions.expired(self)

    # The journal

    def restore(self, filters: dict[int, dict[str, Any]]) -> None:
        """Take up the filters of an earlier run of the node."""
        for number, record in filters.items():
            filter_ = SessionFilter.of(self, number, record)
            self._add(filter_)
            self._next_number = max(self._next_number, number)
            self._has_no_local = self._has_no_local or filter_.no_local
            if filter_.filter.group:
                filter_.group = self.sessions.groups.join(filter_)

    def take_up(self, flights: list[Flight]) -> None:
        """Take up the subscriptions, and what was in flight, of an earlier run of the node."""
        for filter_ in self.filters.values():
            if filter_.is_durable or filter_.group is not None:
                filter_targets.connect_all(filter_, filter_targets.reach(filter_))
        self.outgoing.load(flights)

    def store(self, operations: list[Operation]) -> None:
        """Have something written; see ``after_stored``."""
        self._writes += 1
        self.core.store_in_time(operations, self._stored)

    def _stored(self) -> None:
        self._writes -= 1
        if not self._writes:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()

    def after_stored(self, call: Callable[[], None]) -> None:
        """Call back once everything that was asked for is on disk; for SUBACK and UNSUBACK."""
        if self._writes:
            self._waiting.append(call)
        else:
            call()

    def cut(self) -> tuple[list[Operation], list[int], bool]:
        """Return what is to be written of what is in flight; see ``journal.Written``."""
        if self.is_over or not self.is_lasting:
            return [], [], False
        operations = []
        flights, ready, is_more_coming = self.outgoing.cut()
        if flights or self.outgoing.has_record:
            self.outgoing.has_record = bool(flights)
            operations.append(records.put_outgoing(self.log_id, flights))
        if len(self.incoming) or self.incoming.has_record:
            self.incoming.has_record = len(self.incoming) > 0
            operations.append(records.put_incoming(self.log_id, self.incoming))
        return operations, ready, is_more_coming

    def written(self, packet_ids: list[int]) -> None:
        """Send what waited for that."""
        self.outgoing.written(packet_ids)

    def unwritten(self) -> None:
        """Have both records written again, whatever the journal has."""
        self.outgoing.has_record = self.incoming.has_record = True
