"""The connections to the other container of a connector, and the links on them.

Rules:
1. Each connection of a client has a session of its own there, so that a client that takes nothing holds up nobody;
   at RabbitMQ 3 each link has. Sessions share connections, as many as the other container allows.
2. A connection is made when a link needs it, and closed once none has needed it for ``IDLE_S``.
3. A connection that is lost is made again for as long as links are there, by turns at all servers, and later each
   time. A link that was never attached is refused once each server was tried in vain; one that had an address made
   for it ends, as that is gone.
4. Some servers end a session because of one attach that they do not like. The first link without an answer is taken
   for that and refused; the others are attached again. If all have an answer, nobody knows, and all are refused.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from enmasse.client.carrier import Carrier, jittered
from enmasse.errors import EnmasseError
from enmasse.message.composites import encode_composite
from enmasse.message.outcomes import ACCEPTED, Accepted, AmqpError
from enmasse.message.types import Described, Symbol
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.direct.large import LARGE_BYTES
from enmasse.messaging.errors import AttachError
from enmasse.messaging.relay.receivers import OUTCOMES, RelayConsumer
from enmasse.messaging.relay.senders import Posted, RelayProducer
from enmasse.node.uplinks.rabbitmq import SLACK, as_done, is_rabbitmq_3
from enmasse.node.uplinks.remote import MAX_WORDS, in_our_words
from enmasse.node.uplinks.transactions import Control
from enmasse.wire.amqp.errors import LinkError, LocalError, RemoteError, SessionError
from enmasse.wire.amqp.performatives import (
    DYNAMIC_PLACE,
    LOCAL_TRANSACTIONS,
    MULTI_SESSIONS,
    MULTI_TRANSACTIONS,
    Attach,
    Coordinator,
    Source,
    Target,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from enmasse.client.options import Options, Url
    from enmasse.messaging.limits import Usage
    from enmasse.net.loop import Turn
    from enmasse.wire.amqp.connection import Connection as Engine
    from enmasse.wire.amqp.link import Link
    from enmasse.wire.amqp.performatives import Open
    from enmasse.wire.amqp.session import Session
    from enmasse.wire.amqp.session_output import SessionOutput

    End = RelayProducer | RelayConsumer | Control

TerminusT = TypeVar("TerminusT", Source, Target)

IDLE_S: Final = 60.0
"""Seconds after which a connection without links is closed."""

DIAL_S: Final = 10.0
"""Seconds for one server to let us in."""

FIRST_PAUSE_S: Final = 0.5
MAX_PAUSE_S: Final = 30.0
"""Seconds between rounds of servers, the first and the longest."""

MAX_CONNECTIONS: Final = 16
"""The most connections of one connector, so that a server that has little room leaves some to the space's others."""

UNREACHABLE: Final = "amqp:connection:forced"
"""The condition of links that end, or are refused, as no server of a connector lets us in."""

_log = logging.getLogger(__name__)


FRAME_ROOM: Final = 64
"""Bytes of an attach's frame beside what was asked for."""

REDIRECT: Final = "amqp:link:redirect"

THROUGH: Final = Symbol("enmasse:through")
"""The property of an attach that lists the connectors by which it has come; it gives no rights."""

MAX_THROUGH: Final = 16

TO_OUTLIVE: Final = 2
"""The durability of a source whose state outlives its link [AMQP 3.5.5]."""


def _through(options: AttachOptions) -> list[str]:
    """Return the connectors by which a link has come, as far as it says so."""
    found = options.properties.get(THROUGH)
    return [str(mark) for mark in found[:MAX_THROUGH]] if isinstance(found, list) else []


def _attach_of(options: AttachOptions, *, is_sender: bool) -> Attach:
    """Return the attach of a client whose protocol has none."""
    asked = {Symbol(name): Described(Symbol(name), value) for name, value in options.filters.items()}
    source = Source(
        durable=TO_OUTLIVE if options.is_durable else 0,
        expiry_policy=Symbol(options.expiry_policy),
        timeout=options.expiry_timeout_s,
        distribution_mode=Symbol("copy") if options.browse else None,
        dynamic=options.is_dynamic,
        filter=asked or None,
    )
    settled = 1 if options.presettle else 2
    return Attach(
        name=options.name, handle=0, role=not is_sender, snd_settle_mode=settled, source=source, target=Target()
    )


def _named(asked: TerminusT, name: str, options: AttachOptions) -> TerminusT:
    """Return a client's terminus with what the other container calls the address, or with where it is to make one."""
    if not options.is_dynamic:
        return replace(asked, address=name)
    properties = {key: value for key, value in (asked.dynamic_node_properties or {}).items() if key != DYNAMIC_PLACE}
    if name:
        properties[DYNAMIC_PLACE] = name
    return replace(asked, address=None, dynamic_node_properties=properties or None)


def _ignored(options: AttachOptions, answer: Attach) -> str:
    """Return a wish that the other container has left out, of a client whose protocol cannot tell it so."""
    source = answer.source
    if options.attach is not None or source is None:
        return ""
    if options.browse and source.distribution_mode == "move":
        return "browsing"
    known = {str(name) for name in source.filter or {}}
    return next((f"the filter {name!r}" for name in options.filters if name not in known), "")


def _ignore(_line: Line) -> None:
    """Do nothing with a new connection."""


class _Upstream:
    """A link that a client wants there: what it needs to be attached, as often as it has to be."""

    __slots__ = ("end", "key", "line", "link", "link_name", "name", "options", "was_attached")

    def __init__(self, end: End, name: str, options: AttachOptions, number: int) -> None:
        self.end = end
        self.key: object = options.connection or end
        """The client's connection."""
        self.name = name
        self.options = options
        self.link_name = f"{options.container}|{options.name}"
        """A subscription that outlasts its link is found by that name; others have it to themselves."""
        if not options.is_durable:
            self.link_name += f"|{number}"
        self.line: Line | None = None
        self.link: Link | None = None
        self.was_attached = False


class Line(Carrier):
    """One connection to the other container, with sessions of their own for each client's connection."""

    def __init__(self, uplinks: Uplinks, options: Options, url: Url, turn: Turn) -> None:
        super().__init__(options, url, uplinks.on_gone, turn=turn)
        self._uplinks = uplinks
        self._sessions_of: dict[object, Session] = {}
        """The latest session of each client's connection; it may not have begun yet."""
        self._owners: dict[SessionOutput, object] = {}
        """The client's connection of each session, of those that are just ending only while this is traced."""
        self._waiting: dict[Session, list[_Upstream]] = {}
        """Links that are attached once their session has begun."""
        self._links: dict[Link, _Upstream] = {}
        self._dropped: list[tuple[Link, _Upstream | None]] = []
        """The links of a session that is just ending; None: nobody wants it any more."""
        self._is_rabbitmq_3 = False
        self.idle: asyncio.TimerHandle | None = None
        self.since = asyncio.get_running_loop().time()

    @property
    def is_idle(self) -> bool:
        """True if it carries no link."""
        return not self._links and not self._waiting

    @property
    def traffic(self) -> tuple[int, int]:
        """The bytes that were written and read."""
        return (0, 0) if self._shell is None else (self._shell.bytes_out, self._shell.bytes_in)

    @property
    def sessions(self) -> int:
        """The number of its sessions, but for those that the other container keeps though we have ended them."""
        if self.engine is None:
            return 0
        return len(self._waiting) + sum(not session.is_end_sent for session in self.engine.sessions.values())

    def carries(self, key: object) -> bool:
        """Return true if a client's connection has a session here."""
        return key in self._sessions_of

    def attach(self, wanted: _Upstream) -> None:
        """Attach a link on a session of its client, which is begun if need be.

        Raises:
            RemoteError: the other container allows no more links on this connection; a ``LinkError``: nor on another.
        """
        key = wanted.end if self._is_rabbitmq_3 else wanted.key
        session = self._sessions_of.get(key)
        if session is not None and session not in self._waiting:
            try:
                self._attach(wanted, session)
            except (SessionError, LocalError):  # it allows no more links in a session, or not yet that name again
                session = None
            else:
                return
        if session is None:
            session = self._begin(key, wanted.key)
        wanted.line = self
        if session is self.session:
            self._attach(wanted, session)
        else:
            self._waiting.setdefault(session, []).append(wanted)

    def _begin(self, key: object, owner: object) -> Session:
        """Begin a session for a client, or its link; the first has the one that the connection began with."""
        assert self.engine is not None
        assert self.session is not None
        first = self.session
        is_taken = first.is_end_sent or first in self._sessions_of.values() or first.handles or self._is_rabbitmq_3
        if is_taken:
            self._uplinks.together.require_session()
        session = self.engine.begin() if is_taken else first
        self._sessions_of[key] = session
        self._owners[session] = owner
        return session

    def _attach(self, wanted: _Upstream, session: Session) -> None:
        if isinstance(wanted.end, Control):
            coordinator = Coordinator((LOCAL_TRANSACTIONS, MULTI_TRANSACTIONS, MULTI_SESSIONS))
            self._attached(wanted, session.attach_sender(wanted.link_name, wanted.end, coordinator))
            return
        options = wanted.options
        asked = options.attach or _attach_of(options, is_sender=isinstance(wanted.end, RelayProducer))
        properties = {**(asked.properties or {}), THROUGH: [*_through(options), self._uplinks.mark]}
        given: dict[str, Any] = {
            "snd_settle_mode": asked.snd_settle_mode,
            "desired_capabilities": asked.desired_capabilities,
            "properties": properties,
        }
        link: Link
        # One frame that is too large would cost everybody the connection.
        size = FRAME_ROOM + len(encode_composite(replace(asked, name=wanted.link_name, properties=properties)))
        if size + len(wanted.name) * 4 > session.connection.remote_max_frame_size:
            problem = "the other container takes no frame with so much in it as this attach: give it less properties"
            raise LinkError("amqp:frame-size-too-small", problem)
        if isinstance(wanted.end, RelayProducer):
            assert isinstance(asked.target, Target)
            target = _named(asked.target, wanted.name, options)
            link = session.attach_sender(wanted.link_name, wanted.end, target, source=asked.source, **given)
        else:
            assert asked.source is not None
            # It is told which outcomes there are: the client's own are not all, as we release what it leaves behind.
            source = replace(_named(asked.source, wanted.name, options), outcomes=None)
            given["target"] = asked.target if isinstance(asked.target, Target) else None
            given["rcv_settle_mode"] = asked.rcv_settle_mode
            link = session.attach_receiver(wanted.link_name, wanted.end, source, **given)
            link.passes_from = LARGE_BYTES
            if self._is_rabbitmq_3:
                link.slack, wanted.end.keeps_crossed = SLACK, True
        self._attached(wanted, link)

    def _attached(self, wanted: _Upstream, link: Link) -> None:
        wanted.line, wanted.link = self, link
        self._links[link] = wanted

    def leave(self, wanted: _Upstream, *, closed: bool = True) -> None:
        """Detach a link; its session ends with the last one, but for the one that the connection began with."""
        link, wanted.link, wanted.line = wanted.link, None, None
        for waiting in self._waiting.values():
            if wanted in waiting:
                waiting.remove(wanted)
        if link is None:
            return
        del self._links[link]
        link.detach(closed=closed or not wanted.options.is_durable)
        self._look_at(link.session)

    def _look_at(self, session: SessionOutput) -> None:
        """End a session without links, but for the one that the connection began with, which is free again."""
        if session not in self._waiting and all(link.is_detach_sent for link in session.handles.values()):
            self._forget(session)
            if session is not self.session:
                session.end()

    # Its traces

    @property
    def name(self) -> str:
        """The space and the connector that it belongs to, as ``<namespace>/<space>/<connector>``."""
        return self._uplinks.name

    @property
    def container(self) -> str:
        """The other container's name for itself."""
        return "" if self.remote is None else self.remote.container_id

    def trace(self, on_bytes: Callable[[bool, bytes], None] | None) -> bytes:
        """Have what is received and sent told, or not any more; returns what has come of an incomplete frame."""
        if self.engine is None:
            return b""
        self.engine.trace = on_bytes
        if on_bytes is None:
            current = set(self._sessions_of.values())
            self._owners = {session: owner for session, owner in self._owners.items() if session in current}
        return self.engine.unread

    def owner(self, is_outgoing: bool, channel: int) -> object:
        """Return whose session a channel is: a client's connection, or the end of a link that is its only one."""
        for session, owner in self._owners.items():
            if (session.channel if is_outgoing else session.remote_channel) == channel:
                return owner
        return None

    def links_of(self, owner: object) -> list[tuple[int, int, str, str, str]]:
        """Return channel, handle, role of the client, name and address of the links that are attached."""
        return [
            (link.channel, link.handle, "sender" if link.is_sender else "receiver", link.name, wanted.name)
            for link, wanted in self._links.items()
            if wanted.key is owner and link.remote_attach is not None
        ]

    def _forget(self, session: SessionOutput) -> None:
        for key, other in list(self._sessions_of.items()):
            if other is session:
                del self._sessions_of[key]
        if self.engine is not None and self.engine.trace is None:
            self._owners.pop(session, None)

    def leave_all(self) -> list[_Upstream]:
        """Detach all links; return what has to be attached elsewhere."""
        found = [*self._links.values(), *(wanted for waiting in self._waiting.values() for wanted in waiting)]
        self._waiting.clear()
        for wanted in found:
            self.leave(wanted, closed=False)
        return found

    # Callbacks of the engine

    def on_opened(self, connection: Engine, remote: Open) -> None:
        """The other container has let us in, and says what it is."""
        self._is_rabbitmq_3 = is_rabbitmq_3(remote.properties)
        super().on_opened(connection, remote)

    def on_begun(self, session: Session) -> None:
        """The first session shows that the connection is open; others are those of clients."""
        if self.session is None:
            super().on_begun(session)
            return
        for wanted in self._waiting.pop(session, ()):
            if wanted.line is not self:
                continue
            try:
                self.attach(wanted)
            except RemoteError as error:
                self._uplinks.refused(wanted, AmqpError(error.condition, error.description))
        self._look_at(session)  # whoever wanted it may have gone

    def on_attached(self, link: Link) -> None:
        """The other container has answered; without a terminus it refuses, and says why as it detaches."""
        wanted, attach = self._links.get(link), link.remote_attach
        if wanted is None or attach is None:
            return
        terminus: Any = attach.target if link.is_sender else attach.source
        if terminus is not None:
            if self._is_rabbitmq_3:
                attach = as_done(attach)
            if wanted.options.is_dynamic and not (isinstance(terminus.address, str) and terminus.address):
                problem = "what is behind the connector makes no addresses for links"
                link.detach(AmqpError("amqp:not-implemented", problem))
                return
            if ignored := _ignored(wanted.options, attach):
                problem = f"what is behind the connector does not know {ignored}"
                link.detach(AmqpError("amqp:not-implemented", problem))
                return
            wanted.was_attached = True
            if isinstance(wanted.end, RelayConsumer):
                assert attach.source is not None
                wanted.end.offered = attach.source.outcomes or OUTCOMES
            if wanted.options.attach is not None or wanted.options.is_dynamic:
                wanted.end.granted = attach
            wanted.end.on_upstream(link)  # type: ignore[arg-type]  # it is of the end's direction

    def on_detached(self, link: Link, error: AmqpError | None, _closed: bool) -> None:
        """The other container has detached the link, or is gone with it."""
        wanted = self._links.pop(link, None)
        if wanted is not None:
            wanted.link = None
        if link.session.is_ended and not link.session.connection.closed:
            self._dropped.append((link, wanted))
        elif wanted is not None:
            self._end(wanted, link.session, error or link.error)
            self._look_at(link.session)
            self._uplinks.look_for_idle(self)

    def on_transactional_outcome(self, session: Session, delivery_id: int, state: Any, settled: bool) -> None:
        """Pass on what a message is to have once its transaction is committed."""
        delivery = session.unsettled.get(delivery_id)
        if not isinstance(delivery, Posted):
            super().on_transactional_outcome(session, delivery_id, state, settled)
            return
        del session.unsettled[delivery_id]
        outcome = state.outcome or ACCEPTED
        delivery.sink.on_outcome(delivery, ACCEPTED if isinstance(outcome, Accepted) else outcome)  # type: ignore[union-attr]  # it has one once it is sent
        if not settled:
            session.settle_sent(delivery_id, state)

    def on_ended(self, session: Session, error: AmqpError | None) -> None:
        """A session has ended, and its links with it, but nothing else."""
        self._forget(session)
        self._owners.pop(session, None)
        for wanted in self._waiting.pop(session, ()):
            if wanted.line is self:
                self._end(wanted, session, error)
        dropped, self._dropped = self._dropped, []
        culprit = next((link for link, _ in dropped if link.remote_attach is None), None)
        for link, one in dropped:
            if one is None:
                continue
            is_welcome = one.was_attached or link.remote_attach is None
            if culprit is None or link is culprit or not is_welcome:
                self._end(one, session, error)
            else:
                one.line = None
                self._uplinks.attach_again(one)
        self._uplinks.look_for_idle(self)

    def _end(self, wanted: _Upstream, session: SessionOutput, error: AmqpError | None) -> None:
        wanted.line = None
        if session.connection.closed and wanted.was_attached:
            self._uplinks.lost(wanted)
        else:
            self._uplinks.refused(wanted, error)


class Together:
    """What the connectors of one space have together, and may have.

    Args:
        usage: the account of the space.
    """

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        self.uplinks: set[Uplinks] = set()

    def require_connection(self) -> None:
        """Check that there may be one more connection, with its first session.

        Raises:
            RemoteError: there are as many as there may be.
        """
        most = self.usage.limits.connector_connections
        if sum(each.connections + each.is_dialling for each in self.uplinks) >= most:
            raise self._exceeded("connections of connectors", most)
        self.require_session()

    def require_session(self) -> None:
        """Check that there may be one more session.

        Raises:
            RemoteError: there are as many as there may be.
        """
        most = self.usage.limits.connector_sessions
        if sum(each.sessions for each in self.uplinks) >= most:
            raise self._exceeded("sessions at its connectors", most)

    def _exceeded(self, what: str, most: int) -> RemoteError:
        return self.usage.exceeded(what, most, "close a client's connection that uses one")


class Uplinks:
    """The way to the other container of one connector.

    Args:
        name: ``<space>/<connector>``, for errors and the log.
        servers: returns how to connect to each of its servers, the preferred one first.
        turn: the turn that the output of its connections belongs to.
        changed: called when there is another problem, or none any more.
        mark: ``<installation>/<space>/<connector>``, all by ids that tell nobody anything: shows others that a link
            has come through here.
        together: what the connectors of the space have together.
    """

    def __init__(
        self,
        name: str,
        servers: Sequence[Callable[[], Options]],
        turn: Turn,
        changed: Callable[[], None],
        mark: str,
        together: Together,
    ) -> None:
        self.mark = mark
        self.together = together
        together.uplinks.add(self)
        self.is_dialling = False
        """True while one more connection is being made."""
        self.name = name
        self.line_made: Callable[[Line], None] = _ignore
        """Called with each new connection."""
        self._changed = changed
        self._servers = list(servers)
        self._turn = turn
        self._lines: list[Line] = []
        self._wanted: dict[End, _Upstream] = {}
        self._dialling: asyncio.Task[None] | None = None
        self._replacing: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._numbers = count(1)
        self._gone_traffic = (0, 0)
        """The bytes of connections that there are no more."""
        self._hasty_s = 0.0
        """Seconds until the next connection, as the last one did not last."""
        self.reconnects = 0
        """Connections that were made in place of others that were lost."""
        self.problem = ""
        """Why no server lets us in, as the last round found; empty: one did, or none was needed."""

    @property
    def lines(self) -> Sequence[Line]:
        """Its connections, for traces."""
        return self._lines

    @property
    def connections(self) -> int:
        """The number of connections."""
        return len(self._lines)

    @property
    def sessions(self) -> int:
        """The number of sessions on its connections."""
        return sum(line.sessions for line in self._lines)

    @property
    def traffic(self) -> tuple[int, int]:
        """The bytes that were written and read, on connections that there are no more, too."""
        sent, received = self._gone_traffic
        for line in self._lines:
            sent, received = sent + line.traffic[0], received + line.traffic[1]
        return sent, received

    @property
    def silence_s(self) -> float | None:
        """The seconds since something came on the connection that is silent longest; None: there is none."""
        now = self._turn.begin()
        last = [line.engine.last_received for line in self._lines if line.engine is not None]
        return max(0.0, now - min(last)) if last else None

    def attach_sender(self, end: RelayProducer, name: str, options: AttachOptions) -> None:
        """Attach a sender's link there."""
        self._want(_Upstream(end, name, options, next(self._numbers)))

    def attach_receiver(self, end: RelayConsumer, name: str, options: AttachOptions) -> None:
        """Attach a receiver's link there."""
        self._want(_Upstream(end, name, options, next(self._numbers)))

    def attach_control(self, client: object) -> Control:
        """Attach a link for the transactions of a client there."""
        control = Control(self.detach)
        options = AttachOptions(name="transactions", connection=client)
        self._want(_Upstream(control, "", options, next(self._numbers)))
        return control

    def _want(self, wanted: _Upstream) -> None:
        through = _through(wanted.options)
        if any(mark.partition("/")[0] == self.mark.partition("/")[0] for mark in through):
            path = ", ".join([*through, self.mark])
            raise AttachError("amqp:not-allowed", f"the link comes back to where it has been: {path:.500}")
        self._wanted[wanted.end] = wanted
        # Lines that are connected answer later, too: nothing is told to an end before it is returned.
        try:
            self._place(wanted)
        except LinkError as error:
            del self._wanted[wanted.end]
            raise AttachError(error.condition, error.description or "") from None

    def attach_again(self, wanted: _Upstream) -> None:
        """Attach a link that has lost its session, and nothing else."""
        if wanted.was_attached and self._wanted.get(wanted.end) is wanted:
            self.lost(wanted)
        if self._wanted.get(wanted.end) is wanted:
            try:
                self._place(wanted)
            except LinkError as error:
                self.refused(wanted, AmqpError(error.condition, error.description))

    def _place(self, wanted: _Upstream) -> None:
        """Attach a link on a connection that has room, or on another that is to be made."""
        for line in sorted(self._lines, key=lambda line: not line.carries(wanted.key)):
            try:
                line.attach(wanted)
            except LinkError:
                raise
            except RemoteError:
                continue
            if line.idle is not None:
                line.idle.cancel()
                line.idle = None
            return
        self._dial_for_waiting()

    def detach(self, end: End, *, closed: bool = True) -> None:
        """Detach what was attached for an end, or is being attached."""
        wanted = self._wanted.pop(end, None)
        line = None if wanted is None else wanted.line
        if wanted is not None and line is not None:
            line.leave(wanted, closed=closed)
            self.look_for_idle(line)

    def renew(self, servers: Sequence[Callable[[], Options]]) -> None:
        """Connect anew, as something of the servers has changed: what there is goes on until that has succeeded."""
        self._servers = list(servers)
        self._note("")  # it was about what has been changed
        if self._replacing is not None:
            self._replacing.cancel()
        if self._lines:
            self._replacing = asyncio.get_running_loop().create_task(self._replace(list(self._lines)))
        else:
            self._dial_for_waiting()

    def review(self, reaches: Callable[[str], bool], problem_of: Callable[[str], str]) -> None:
        """End the links to addresses there that are not reached any more.

        Args:
            reaches: whether an address there is.
            problem_of: what is told of one that is not.
        """
        for wanted in list(self._wanted.values()):
            # Links for transactions, and those of dynamic addresses that the other container names, have none.
            if wanted.name and not reaches(wanted.name):
                line = wanted.line
                if line is not None:
                    line.leave(wanted, closed=False)
                    self.look_for_idle(line)
                self.refused(wanted, AmqpError("amqp:not-found", problem_of(wanted.name)))

    async def close(self) -> None:
        """Close all connections; links to the other container are detached first."""
        self._servers = []
        connecting = list(filter(None, (self._dialling, self._replacing)))
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, *self._ending, return_exceptions=True)
        error = AmqpError(UNREACHABLE, f"connector {self.name} is no more, or waits for a Secret")
        for wanted in list(self._wanted.values()):
            if wanted.line is not None:
                wanted.line.leave(wanted, closed=False)
            self.refused(wanted, error)
        lines, self._lines = self._lines, []
        self.together.uplinks.discard(self)
        for line in lines:
            if line.idle is not None:
                line.idle.cancel()
        await asyncio.gather(*(line.close() for line in lines))

    def _drop(self, line: Line) -> None:
        """Count on without a connection, which is lost or about to be closed."""
        sent, received = self._gone_traffic
        self._gone_traffic = (sent + line.traffic[0], received + line.traffic[1])
        self._lines.remove(line)

    # Told by connections

    def on_gone(self, line: Carrier, error: EnmasseError) -> None:
        """Make another connection if links need one, as this one is lost."""
        if line not in self._lines:
            return
        assert isinstance(line, Line)
        self._drop(line)
        is_hasty = asyncio.get_running_loop().time() < line.since + MAX_PAUSE_S
        self._hasty_s = min(MAX_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._hasty_s)) if is_hasty else 0.0
        if line.idle is not None:
            line.idle.cancel()
        problem = in_our_words(error, line.url)
        _log.warning("Connector %s lost its connection: %s", self.name, problem)
        if any(wanted.line is None for wanted in self._wanted.values()):
            self._note(problem)
            self.reconnects += 1
            self._dial_for_waiting()

    def lost(self, wanted: _Upstream) -> None:
        """Have a link wait for the next connection, or end it if its address is gone with the way that it had."""
        if wanted.options.is_dynamic:
            problem = "the way there is lost, and with it the address that was made for the link"
            self.refused(wanted, AmqpError("amqp:link:detach-forced", problem))
        else:
            wanted.end.on_lost()

    def refused(self, wanted: _Upstream, error: AmqpError | None) -> None:
        """End a link that the other container refuses, or has detached."""
        if self._wanted.get(wanted.end) is not wanted:
            return
        del self._wanted[wanted.end]
        if error is None:
            told = AmqpError("amqp:link:detach-forced", "the connector's link has ended")
        elif error.condition == REDIRECT:
            # Our clients are not sent anywhere by somebody whom they do not know.
            words = f"the connector's server sends the link elsewhere: {error.description or ''}"
            told = AmqpError("amqp:not-allowed", words[:MAX_WORDS])
        else:
            told = AmqpError(error.condition[:MAX_WORDS], (error.description or "")[:MAX_WORDS])
        wanted.end.on_refused_upstream(told)

    def look_for_idle(self, line: Line) -> None:
        """Close a connection that carries no link any more, unless one comes soon."""
        if line in self._lines and line.is_idle and line.idle is None:
            line.idle = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle, line)

    def _end_idle(self, line: Line) -> None:
        line.idle = None
        if line.is_idle and line in self._lines:
            self._drop(line)
            self._start(line.close())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    # Dialling

    def _dial_for_waiting(self) -> None:
        if self._dialling is None:
            self._dialling = asyncio.get_running_loop().create_task(self._dial(), name=f"uplink {self.name}")

    async def _dial(self) -> None:
        """Connect, and attach what waits for it."""
        pause_s = FIRST_PAUSE_S
        try:
            if self._hasty_s:
                await asyncio.sleep(jittered(self._hasty_s))
            while waiting := [each for each in self._wanted.values() if each.line is None]:
                full = self._why_full()
                if full is not None:
                    self._refuse_new(waiting, full)
                    await self._wait_for_room(full, pause_s)
                    pause_s = min(MAX_PAUSE_S, 2 * pause_s)
                    continue
                self.is_dialling = True
                try:
                    line = await self._round()
                finally:
                    self.is_dialling = False
                if line is not None:
                    pause_s = FIRST_PAUSE_S
                    self._attach_all(line)
                    continue
                problem = f"connector {self.name} reaches no server: {self.problem}"
                self._refuse_new(waiting, AmqpError(UNREACHABLE, problem))
                await asyncio.sleep(jittered(pause_s))
                pause_s = min(MAX_PAUSE_S, 2 * pause_s)
        finally:
            self._dialling = None

    def _why_full(self) -> AmqpError | None:
        """Return why there may be no more connections; None: there may be."""
        if len(self._lines) >= MAX_CONNECTIONS:
            problem = f"connector {self.name} has {MAX_CONNECTIONS} connections, and none has room for a link"
            return AmqpError("amqp:resource-limit-exceeded", problem)
        try:
            self.together.require_connection()
        except RemoteError as error:
            return AmqpError(error.condition, error.description)
        return None

    async def _wait_for_room(self, full: AmqpError, pause_s: float) -> None:
        """Let links that have lost their connection wait, for room on those that there are, too."""
        if not any(each.line is None for each in self._wanted.values()):
            return
        self._note(full.description or "")
        await asyncio.sleep(jittered(pause_s))
        for line in list(self._lines):
            self._attach_all(line)
        if all(each.line is not None for each in self._wanted.values()):
            self._note("")

    def _refuse_new(self, waiting: Iterable[_Upstream], error: AmqpError) -> None:
        """Refuse links that were never attached; others wait."""
        for wanted in waiting:
            if not wanted.was_attached and wanted.line is None and self._wanted.get(wanted.end) is wanted:
                self.refused(wanted, error)

    def _attach_all(self, line: Line) -> None:
        """Attach what waits on a connection that was just made; what it has no room for waits for another."""
        room = True
        for wanted in [each for each in self._wanted.values() if each.line is None]:
            if self._wanted.get(wanted.end) is not wanted:
                continue
            try:
                line.attach(wanted)
            except RemoteError as error:
                is_no_use = isinstance(error, LinkError)
                if is_no_use or (room and line.is_idle):
                    self.refused(wanted, AmqpError(error.condition, error.description))
                room = room and is_no_use
        self.look_for_idle(line)

    async def _replace(self, lines: Sequence[Line]) -> None:
        """Connect anew, and close the connections that there were."""
        pause_s = FIRST_PAUSE_S
        while (line := await self._round()) is None:
            await asyncio.sleep(jittered(pause_s))
            pause_s = min(MAX_PAUSE_S, 2 * pause_s)
        for old in lines:
            if old in self._lines:
                self._drop(old)
                for wanted in old.leave_all():
                    self.lost(wanted)
        self._attach_all(line)
        for old in lines:
            self._start(old.close())

    async def _round(self) -> Line | None:
        """Try each server once; the first that lets us in becomes the preferred one."""
        problems = []
        for _ in range(len(self._servers)):
            place = None
            try:
                options = self._servers[0]()
                place = options.places[0]
                line = Line(self, options, place, self._turn)
                await line.dial(DIAL_S)
                if line.error is not None:
                    raise line.error
            except EnmasseError as error:
                problems.append(in_our_words(error, place))
            except OSError as error:
                problems.append(error.strerror or str(error))
            else:
                self._lines.append(line)
                self.line_made(line)
                self._note("")
                _log.info("Connector %s is connected to %s", self.name, line.url)
                return line
            self._servers.append(self._servers.pop(0))
        self._note("; ".join(dict.fromkeys(problems)))
        return None

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self._changed()
