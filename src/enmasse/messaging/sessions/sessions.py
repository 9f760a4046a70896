"""The sessions of a space: opening, takeover, expiry, and what is taken up after a restart.

Rules:
1. A client id has one session, which belongs to the owner who opened it (``owners``). Others are refused, unless they
   may manage the space, or the owner is gone, and the session with it. A connection that opens it takes it from the
   connection that has it [MQTT-3.1.4-3].
2. A session that ends with its connection is in memory alone. Any other is on disk before its client is told that it
   is connected, and everything that was asked of it, too.
3. A session ends when its client wants a clean one, or has been away for longer than its expiry; then all of it is
   deleted. The time in which no node runs counts; clients that were connected when it stopped have ``GRACE_S``, at
   least, to come back.
4. Nothing here walks over all sessions when one of them comes or goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from enmasse.messaging.chores import ENDING_UNITS
from enmasse.messaging.errors import AttachError
from enmasse.messaging.owners import is_open_to
from enmasse.messaging.sessions import filter_targets, records
from enmasse.messaging.sessions.delays import Delays
from enmasse.messaging.sessions.filters import ROOT
from enmasse.messaging.sessions.groups import Groups
from enmasse.messaging.sessions.journal import SessionJournal
from enmasse.messaging.sessions.names import OWNERS, REACHED, Names
from enmasse.messaging.sessions.records import owner_in
from enmasse.messaging.sessions.session import NEVER, Session, footprint_of
from enmasse.messaging.sessions.wills import GRACE_S, Will, WillMessage, Wills, WillState
from enmasse.messaging.sessions.word_index import WordIndex

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.core import Core
    from enmasse.messaging.limits import SpaceLimits
    from enmasse.messaging.owners import Grants
    from enmasse.messaging.patterns import Pattern
    from enmasse.messaging.queues.topic import Topic
    from enmasse.messaging.sessions.records import Stored
    from enmasse.messaging.sessions.session_filter import SessionFilter, SessionHolder
    from enmasse.messaging.space import Space
    from enmasse.messaging.storage import Operation


SESSIONS_AT_ONCE: Final = 1_000
"""Sessions of others that are passed by in one go."""


def _no_parts(_filter: str) -> Sequence[Pattern]:
    return ()


class OpenRequest(NamedTuple):
    """A client that opens its session.

    Attributes:
        client_id: its name for itself.
        owner: the owner of the session.
        user: the user's name; empty where no login is needed.
        may_manage: true if the user may take what belongs to others.
        is_clean: true to begin a new session, whatever was there.
        expiry_s: the seconds that the session is kept without a client; 0 ends it with the connection.
        receive_maximum: the most messages that may be in flight towards the client.
        may_receive: asks for the user's grants of a name or filter, as they are at the time.
        may_send: the same of a name to send to.
        parts: returns the patterns of what the grants cover of a filter that they do not cover wholly.
        will: the message that is sent when the connection is lost.
    """

    client_id: str
    owner: str
    user: str
    may_manage: bool
    is_clean: bool
    expiry_s: int
    receive_maximum: int
    may_receive: Callable[[str], bool]
    may_send: Callable[[str], bool]
    will: WillMessage | None = None
    parts: Callable[[str], Sequence[Pattern]] = _no_parts


class Sessions:
    """The sessions of one space.

    Args:
        core: the core.
        space: the space.

    Attributes:
        names: the addresses that filters with wildcards may reach.
        index: all filters, by their words.
        unreached: addresses that a filter went without, as its connection had as many links as it may.
        expired_count: sessions that ended as their clients stayed away.
        lasting: the number of sessions that outlive their connections.
    """

    is_due = False
    """True while it is to take up what an earlier run left, in the next turn."""

    def __init__(self, core: Core, space: Space) -> None:
        self.core = core
        self.space = space
        self.name = f"sessions of {space.name}"
        self.journal = SessionJournal(core, self.name)
        self.delays = Delays(core, self.name)
        self.groups = Groups(core, space)
        self.index: WordIndex[SessionFilter] = WordIndex()
        self.names = Names(_Listing(space))
        self.wills = Wills(core, space, self.delays, self._known_grants)
        self.unreached = 0
        self.expired_count = 0
        self._by_client: dict[str, Session] = {}
        self.lasting = 0
        self.is_stopping = False
        """True once the node stops: what ends then is as if the node had died, and goes on after the restart."""
        self._loaded: list[Session] = []
        """Sessions that wait for their clients after a restart."""
        self._orphans: dict[str, Will] = {}
        """Wills that outlast their sessions, which ended with a node, until their clients come back."""

    def _known_grants(self, owner: str, user: str) -> Grants | None:
        return self.space.grants(owner, user)

    def __len__(self) -> int:
        """The number of sessions."""
        return len(self._by_client)

    def __iter__(self) -> Iterator[Session]:
        """Iterate over the sessions, in the order in which they were opened first."""
        return iter(self._by_client.values())

    def get(self, client_id: str) -> Session | None:
        """Return a client's session."""
        return self._by_client.get(client_id)

    @property
    def limits(self) -> SpaceLimits:
        """The limits of the space."""
        return self.space.usage.limits

    @property
    def logs(self) -> set[int]:
        """The numbers of what is kept in the journal."""
        found = {session.log_id for session in self._by_client.values() if session.log_id}
        found.update(group.log_id for group in self.groups.all)
        found.update(will.log_id for will in self.wills.all)
        return found

    # Opening

    def open(self, wish: OpenRequest, holder: SessionHolder, done: Callable[[str | None], None]) -> Session:
        """Open a client's session, and take it from the connection that has it.

        Args:
            wish: the client's request.
            holder: the connection.
            done: called once with nothing when all of it is on disk, or with the reason why it is not, and then the
                session is not open; not called if the connection has lost the session by then.

        Raises:
            AttachError: it belongs to another user, there are too many, or the will is not allowed.
        """
        before = self._by_client.get(wish.client_id)
        if before is not None and before.owner != wish.owner and self.space.owners.is_gone(before):
            before.disown()
            before = None
        self._check(wish, before)
        will = None
        if wish.will is not None:
            will = self.wills.make(wish.owner, wish.user, wish.will, client=wish.client_id)
        operations: list[Operation] = []
        if before is not None and before.holder is not None:
            self._take_from(before, wish)
        # Its connection may have ended it.
        before = self._by_client.get(wish.client_id)
        if before is not None and wish.is_clean:
            self._end(before)
            before = None
        expiry_s = self._expiry(wish.expiry_s)
        if before is None:
            log_id = self.core.new_log()[0] if expiry_s else 0
            session = Session(self, wish.client_id, wish.owner, wish.user, log_id)
            self._add(session)
        else:
            session = before
            session.is_present = True
            if session.owner in ("", wish.owner):
                session.owner, session.user = wish.owner, wish.user
            if session.will is not None:
                # It came back in time.
                operations.append(session.will.cancel())
                session.will = None
        orphan = self._orphans.pop(wish.client_id, None)
        is_back = orphan is not None and is_open_to(orphan, wish.owner, wish.user)
        if orphan is not None and orphan.state is WillState.WAITING and is_back:
            operations.append(orphan.cancel())
        self.delays.cancel(session)
        session.expiry_s = expiry_s
        session.left_us = 0
        session.holder = holder
        session.may_receive = wish.may_receive
        session.may_send = wish.may_send
        session.parts = wish.parts
        session.outgoing.receive_maximum = wish.receive_maximum
        if session.is_lasting:
            operations.append(session.record())
        if will is not None:
            will.session = session.log_id
            session.will = will
            operations.append(will.operation())
        self._write(session, holder, operations, done)
        return session

    def _add(self, session: Session) -> None:
        self._by_client[session.client_id] = session
        self.lasting += session.is_lasting
        self.space.usage.take(session.footprint)

    def _check(self, wish: OpenRequest, before: Session | None) -> None:
        if not wish.client_id or "\0" in wish.client_id:
            raise AttachError("amqp:invalid-field", "a session needs the name of its client")
        if before is not None and not (wish.may_manage or is_open_to(before, wish.owner, wish.user)):
            raise AttachError(
                "amqp:unauthorized-access",
                f"the session of client {wish.client_id!r:.200} belongs to another user: take another client id, or "
                "let a user with the permission manage delete it",
            )
        will = wish.will
        if will is not None and not wish.may_send(will.name):
            raise AttachError(
                "amqp:unauthorized-access", f"user {wish.user!r} may not send to {will.name!r:.200}, as its will does"
            )
        is_new = before is None or not before.is_lasting
        self.core.log_numbers.require((will is not None) + bool(wish.expiry_s and (is_new or wish.is_clean)))
        most = self.limits.sessions
        if wish.expiry_s and is_new and most and self.lasting >= most:
            raise AttachError(
                "amqp:resource-limit-exceeded",
                f"space {self.space.name!r} has {most} sessions that outlive their connections, as many as its plan "
                "allows; delete one, or ask for a larger plan",
            )
        if before is None:
            self.space.usage.require_room(footprint_of(wish.client_id))

    def _expiry(self, seconds: int) -> int:
        most_ms = self.limits.session_expiry_ms
        return min(seconds, max(1, most_ms // 1_000)) if most_ms and seconds else seconds

    def _take_from(self, session: Session, wish: OpenRequest) -> None:
        """Take a session from its connection, whose will is sent unless it waits for such a thing [MQTT 3.1.4-3]."""
        holder = session.require_holder()
        is_resumed = session.is_lasting and session.expiry_s > 0 and not wish.is_clean
        will, session.will = session.will, None
        if will is not None and is_resumed and will.message.delay_s > 0:
            self.core.store_in_time([will.cancel()])
        elif will is not None:
            self._lose(session, will, 0.0)
        if is_resumed:
            session.disconnect()
        else:
            self._end(session)
        holder.taken_over()

    def _write(
        self,
        session: Session,
        holder: SessionHolder,
        operations: list[Operation],
        done: Callable[[str | None], None],
    ) -> None:
        if not operations:
            done(None)
            return

        def decided(reason: str | None) -> None:
            if session.holder is not holder:
                if reason is not None and session.is_lasting and not session.is_over:
                    # It has gone again, and what it left is not on disk yet.
                    self.core.store_in_time([session.record()])
                return
            if reason is not None:
                self._failed(session, holder)
            done(reason)

        self.core.store([self.core.log_counter(), *operations], decided)

    def _failed(self, session: Session, holder: SessionHolder) -> None:
        """Let go of a connection whose session could not be opened."""
        session.cancel_will()
        if session.is_present:
            self.left(session, is_clean_close=True)
        else:
            self._end(session)

    # Going

    def left(
        self, session: Session, *, is_clean_close: bool, expiry_s: int | None = None, is_node_gone: bool = False
    ) -> None:
        """Note that the connection of a session is gone; see ``Session.detach``."""
        if expiry_s is not None and session.expiry_s:
            session.expiry_s = self._expiry(expiry_s)
        if self.is_stopping:
            # Everything stays as it is on disk: the client comes back, or its will is sent after the restart.
            session.disconnect()
            return
        will, session.will = session.will, None
        is_over = not (session.is_lasting and session.expiry_s)
        if will is not None and is_clean_close:
            self.core.store_in_time([will.cancel()])
        elif will is not None:
            grace_s = self.limits.will_grace_ms / 1_000 if is_node_gone else 0.0
            self._lose(session, will, 0.0 if is_over else session.expiry_s, grace_s)
            if will.state is WillState.WAITING:
                if is_over:
                    self._leave_orphan(session.client_id, will)
                else:
                    session.will = will
        session.disconnect()
        if is_over:
            self._end(session)
            return
        session.left_us = self.core.wall_us
        self.core.store_in_time([session.record()], lambda: self._written(session))
        # Who is known to be away is known to have been sent what is in flight, and nothing else.
        self.journal.write(session)
        if session.expiry_s != NEVER:
            self.delays.wait(session, session.expiry_s)

    def _lose(self, session: Session, will: Will, most_s: float, grace_s: float = 0.0) -> None:
        """Send the will of a connection that is lost, after its delay."""
        is_allowed = session.may_send is None or session.may_send(will.message.name)
        will.lost(float("inf") if most_s == NEVER else most_s, is_allowed=is_allowed, grace_s=grace_s)

    def _leave_orphan(self, client_id: str, will: Will) -> None:
        """Keep a will that waits longer than its session."""
        will.session = 0
        if len(self._orphans) > 2 * len(self.wills):
            kept = {name: each for name, each in self._orphans.items() if each.state is WillState.WAITING}
            self._orphans = kept
        self._orphans[client_id] = will

    def _written(self, session: Session) -> None:
        if session.is_over and session.is_lasting:
            # It was over before that was written.
            self.core.store_in_time([records.remove(session.log_id, records.SESSION)])

    def expired(self, session: Session) -> None:
        """End a session whose client has stayed away."""
        if session.holder is None and not session.is_over:
            self.expired_count += 1
            self._end(session)

    def delete(self, session: Session) -> None:
        """End a session, and its connection with it, as somebody who may manage the space wants that."""
        holder = session.holder
        session.cancel_will()
        self._end(session)
        if holder is not None:
            holder.deleted()

    def _end(self, session: Session) -> None:
        """End a session, and delete everything of it."""
        if session.is_over:
            return
        if self._by_client.get(session.client_id) is session:
            del self._by_client[session.client_id]
            self.space.usage.give_back(session.footprint)
        self.delays.cancel(session)
        will, session.will = session.will, None
        session.end()
        if will is not None:
            will.hasten()
        if not session.is_lasting:
            return
        self.lasting -= 1
        core, log_id = self.core, session.log_id
        # What is on its way to the disk is committed before or with this batch, and found then.
        core.store_in_time([records.remove(log_id, records.SESSION)], lambda: core.clear(log_id))

    def stop(self) -> None:
        """Leave what is on disk as it is, as the node stops: clients come back to it as after a crash."""
        self.is_stopping = True

    def close(self) -> Iterator[int]:
        """End everything part by part, as the space is deleted; each part says the work that it was."""
        for session in list(self._by_client.values()):
            if not session.is_over:
                self.delete(session)
                yield ENDING_UNITS
        self.core.store_in_time(self.wills.close())

    def review(self, user: str = "") -> None:
        """Look again at what sessions gather whose clients are away: their grants, or those of one user, changed."""
        if self._by_client:
            self.core.chores.add(f"grants of {self.name}", self._review(user))

    def _review(self, user: str) -> Iterator[int]:
        for number, session in enumerate(list(self._by_client.values())):
            is_away = session.holder is None and not session.is_over and user in ("", session.user)
            # What a token alone says is known again once its client is back.
            if is_away and self.space.grants(session.owner, session.user) is not None:
                session.regrant()
                yield ENDING_UNITS
            elif not number % SESSIONS_AT_ONCE:
                yield 1

    # Addresses

    def address_came(self, name: str, kind: str) -> Iterator[int]:
        """Return the parts in which filters reach an address that is declared now; each says the work that it was.

        Filters that come from now on reach it by themselves.
        """
        if name.startswith("$"):
            return iter(())
        if kind in REACHED:
            self.names.add(name, kind)
        return self._come(name, kind)

    def _come(self, name: str, kind: str) -> Iterator[int]:
        owns_subtree = kind in OWNERS
        for filter_ in self._reaching(name):
            session, wanted = filter_.session, filter_.filter
            is_there = not session.is_over and session.filters.get(wanted.text) is filter_
            if is_there and (kind in REACHED or filter_targets.is_one_name(filter_)):
                filter_targets.address_came(filter_, name, owns_subtree=owns_subtree)
                yield ENDING_UNITS

    def address_made(self, address: Address) -> Iterator[int]:
        """Return the parts in which filters reach an address that was made without a declaration."""
        if len(self._by_client) and not self.names.knows(address.name):
            return self.address_came(address.name, address.kind)
        return iter(())

    def address_went(self, name: str) -> Iterator[int]:
        """Return the parts in which filters leave an address that is about to be deleted.

        It is reached by no other from now on. Each part says the work that it was.
        """
        self.names.remove(name)
        self.groups.address_went(name)
        return self._leave(name)

    def _leave(self, name: str) -> Iterator[int]:
        for filter_ in self._reaching(name):
            if not filter_.session.is_over:
                filter_targets.address_went(filter_, name)
                yield ENDING_UNITS

    def address_gone(self, name: str) -> Iterator[int]:
        """Let exact names lead elsewhere, as an address is deleted, part by part; each says the work that it was."""
        for filter_ in self._reaching(name):
            if not (filter_.filter.is_wild or filter_.session.is_over):
                filter_targets.address_came(filter_, name, owns_subtree=True)
                yield ENDING_UNITS

    def _reaching(self, name: str) -> list[SessionFilter]:
        return list(self.index if name == ROOT else self.index.reaching(tuple(name.split("/"))))

    # Start

    def load(self, found: Iterable[Stored]) -> None:
        """Take up what the journal holds, once all addresses have taken up theirs."""
        held = list(found)
        for stored in held:
            if stored.group is not None:
                self.groups.load(stored.log_id, stored.group["group"], stored.group["filter"])
        by_log: dict[int, tuple[Session, Stored]] = {}
        for stored in held:
            if stored.session is not None:
                by_log[stored.log_id] = self._load(stored), stored
        for stored in held:
            if stored.will is not None:
                will = self.wills.load(stored.log_id, *stored.will)
                if will.session in by_log:
                    by_log[will.session][0].will = will
                elif will.link is None:
                    self._orphans[will.client] = will
        for session, stored in by_log.values():
            session.take_up(stored.outgoing)
        self.groups.clear()
        self._loaded = [session for session, _ in by_log.values()]
        if held:
            self.is_due = True
            self.core.due(self)

    def _load(self, stored: Stored) -> Session:
        record = stored.session
        assert record is not None
        session = Session(self, record["client"], owner_in(record), record["user"], stored.log_id)
        if not session.owner:
            self.space.owners.adopt(session)
        session.expiry_s = record["expiry"]
        session.left_us = record["left"]
        session.is_joint = record.get("overlapping") != "each"
        session.restore(stored.filters)
        session.incoming.load(stored.incoming)
        self._add(session)
        return session

    def clear(self, topics: Iterable[Topic]) -> None:
        """End the subscriptions at topics whose sessions are over, as a deletion was interrupted."""
        for topic in topics:
            for subscription in topic.sessions.kept:
                if subscription.room is None:
                    topic.sessions.end(subscription)

    def on_turn(self, now: float) -> None:
        """Begin the waits for clients that are to come back after a restart; now there is a clock."""
        for will in self.wills.all:
            self.wills.wait_after_restart(will)
        loaded, self._loaded = self._loaded, []
        self.core.chores.add(self.name, self._wait_after_restart(loaded))

    def _wait_after_restart(self, loaded: list[Session]) -> Iterator[int]:
        for session in loaded:
            yield 1
            if session.holder is not None or session.is_over or session.expiry_s == NEVER:
                continue
            if not session.left_us:
                self.delays.wait(session, max(GRACE_S, session.expiry_s))
                continue
            rest_s = session.expiry_s - (self.core.wall_us - session.left_us) / 1e6
            if rest_s > 0:
                self.delays.wait(session, rest_s)
            else:
                self.expired(session)
                yield ENDING_UNITS


class _Listing:
    """The names and types of a space's addresses, each time as they are."""

    __slots__ = ("_space",)

    def __init__(self, space: Space) -> None:
        self._space = space

    def __iter__(self) -> Iterator[tuple[str, str]]:
        yield from self._space.declarations()
        for address in self._space.addresses.values():
            if not address.name.startswith("$"):
                yield address.name, address.kind
