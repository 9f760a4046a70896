"""The interface between the node and the protocols that clients speak: one connection and its links.

A protocol named X consists of three parts: ``wire/X`` turns bytes into frames and back; ``node/X`` has a subclass of
``ClientConnection`` and converts messages to AMQP's sections and back; ``node/protocols.py`` has a row for it. The
rest of the node (the registry of connections, limits, permissions, expiry of tokens, scheduling, logs, traces,
management, shutdown) uses ``ClientConnection`` and ``ClientLink`` only, and so serves every protocol.

A connection's life, and what the subclass has to do at each step:

1. A socket is connected: ``make_engine`` returns the protocol's engine, which ``net/transport.py`` drives.
2. The client logs in: pass its credentials to ``admission``, then call ``enter``. If ``enter`` returns true, the
   connection is open, counted and logged; otherwise it has been closed with the reason, or is being handed over to
   the node that is the home of its space (``handover.py``): then nothing more is said to the client. At that node
   ``admission.is_asserted`` is true, and ``enter`` comes without a login.
3. The client asks to send to an address or to receive from one. Make a ``ClientLink`` around the protocol's own port,
   which the address calls directly. Then, in this order: ``find_target`` (senders) finds the address and checks
   permissions; ``count`` checks limits; the address's ``attach_producer`` or ``attach_consumer`` returns the link's
   end; ``join`` registers the link with its end, and calls back to have the client answered: at once, or when whoever
   is behind the address has answered. If any of these raises an error, call ``refused`` instead.
4. A link ends, for whatever reason: call ``detached``.
5. The node closes the connection (``close``): it calls ``end``, where the subclass sends the reason in its own way.
6. The socket is closed: detach the links, then call ``disconnected``, once.

Errors are neutral: ``RemoteError`` with a condition of AMQP and a text, which each protocol sends in its own form.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from ipaddress import IPv6Network
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from enmasse.errors import RemoteError
from enmasse.message.outcomes import AmqpError
from enmasse.messaging.across import Across, crosses, lasting_at, reached_by
from enmasse.messaging.budget import Holder
from enmasse.messaging.delivery import Consumer, Producer
from enmasse.messaging.errors import AttachError
from enmasse.messaging.patterns import is_cut
from enmasse.messaging.transaction import TransactionLimits
from enmasse.net.transport import Engine
from enmasse.node.connections.bounds import Bounds, PatternReach
from enmasse.node.connections.unfinished import EXCEEDED, UNOPENED_BYTES
from enmasse.node.users.admission import Admission
from enmasse.node.users.authentication import HostWords
from enmasse.node.users.gate import Gate
from enmasse.node.users.peer import PeerInfo
from enmasse.node.users.rights import MANAGEMENT

# A node's connections and each of them know each other, as do a connection and its log.
if TYPE_CHECKING:
    from enmasse.messaging.address import Address, AttachOptions
    from enmasse.messaging.dynamic import DynamicRequest
    from enmasse.messaging.space import Space
    from enmasse.node.connections.connections import Connections
    from enmasse.node.connections.logs import EventLog
    from enmasse.node.connections.waiting import WaitingRoom


UNAUTHORIZED = "amqp:unauthorized-access"

NETWORK_BITS = 64
"""The prefix of an IPv6 address that stands for one client: whoever has one address has the whole network."""

MAX_LINKS = 10_000
"""The most links of one connection: as many as a large client may want, at little cost in memory."""


MAX_ASKED = 50
"""The most receivers of an address whose links tell what waits for them: a page of links takes no longer then."""

MAX_TOLD = 100
"""The characters that are kept of each property of a client."""

_TOLD_PROPERTIES = ("product", "version", "platform")


def told_by(properties: Mapping[Any, Any] | None) -> dict[str, str] | None:
    """Return what a client tells of its program, cut; None if that is nothing."""
    found = {name: str(value)[:MAX_TOLD] for name in _TOLD_PROPERTIES if (value := (properties or {}).get(name))}
    return found or None


def network_of(peer: str) -> str:
    """Return a peer's address without its port, or its network if it is an IPv6 address."""
    host = peer.rpartition(":")[0]
    if not host.startswith("["):
        return host
    address = host[1:-1].partition("%")[0]
    return str(IPv6Network((address, NETWORK_BITS), strict=False))


def require_filters(address: Address, options: AttachOptions) -> None:
    """Check that an address supports a receiver's filters, as nobody is sent messages that a filter excludes.

    Raises:
        AttachError: the address does not know one of the filters.
    """
    known = address.known_filters(options)
    for name in options.filters:
        if name not in known:
            raise AttachError(
                "amqp:not-implemented",
                f"{address.kind} {address.name!r:.100} does not know the filter {name!r:.100} for such a receiver: "
                f"it knows {', '.join(known) or 'none'}",
            )


class Traced(Protocol):
    """The part of an engine that a trace needs, or of what serves a connection."""

    trace: Callable[[bool, bytes], None] | None
    """Called with all bytes received (false) and sent (true) while the connection is traced."""

    @property
    def unread(self) -> bytes:
        """The bytes of an incomplete frame that have been received."""


class ClientEngine(Engine, Traced, Protocol):
    """A protocol's engine."""


class ClientLink:
    """One link of a client's connection.

    Args:
        port: the protocol's link, a ``ProducerPort`` or ``ConsumerPort``. It has ``credit``, and ``is_detach_sent``,
            which is true once the client was sent the end of the link. A sender's port has ``sink``, whose
            ``on_message`` it calls and which limits may replace, and ``passes_from``: the size in bytes from which on
            a message may be passed on while it is received.
        name: the client's name for the link.
        handle: identifies the link within its connection.
        address: the address that the client named; None if each message names one, or if it is dynamic.
        is_sender: true if the client sends.

    Attributes:
        end: the link's end at the address, once it has joined.
        connector: the connector behind which it has a dynamic address; empty: behind none.
        made: the dynamic address that was made for the link.
        counted: the address whose limits the link counts for (or None), and those that its pattern reaches, once it
            is counted.
    """

    __slots__ = (
        "address", "connector", "counted", "end", "handle", "is_control", "is_presettled", "is_sender", "made",
        "metered", "name", "port",
    )  # fmt: skip

    def __init__(self, port: Any, name: str, handle: str, address: Any, *, is_sender: bool) -> None:
        self.port = port
        self.name = name
        self.handle = handle
        self.address = address
        self.is_sender = is_sender
        self.is_control = False
        """True for a link that controls transactions: it stays while the node stops."""
        self.is_presettled: bool | None = None
        """True if its sender settles every message itself, or none; None: that is not known."""
        self.end: Producer | Consumer | None = None
        self.connector = ""
        self.made: Address | None = None
        self.counted: list[Address | None] | None = None
        self.metered: Any = None
        """The metered port of a sender whose rate is limited."""

    @property
    def role(self) -> str:
        """The client's role, ``sender`` or ``receiver``."""
        return "sender" if self.is_sender else "receiver"

    @property
    def is_detached(self) -> bool:
        """True once the client was sent the end of the link."""
        return bool(self.port.is_detach_sent)

    @property
    def is_opening(self) -> bool:
        """True while whoever is behind the address has not answered the attach."""
        opening = None if self.end is None else self.end.opening
        return opening is not None and opening.answer is None

    @property
    def log_fields(self) -> dict[str, Any]:
        """The link's fields in log events."""
        return {"link": self.name, "role": self.role, "address": self.address}

    def counts(self) -> dict[str, int]:
        """Return the credit, deliveries and their outcomes by name."""
        end = self.end
        if isinstance(end, Consumer):
            return {
                "credit": self.port.credit,
                "unsettled": end.unsettled,
                "deliveries": end.deliveries,
                "accepted": end.accepted,
                "rejected": end.rejected,
                "released": end.released,
                "modified": end.modified,
            }
        # The peer's credit: limits of rates may have made it less than the address grants.
        return {"credit": self.port.credit, "deliveries": 0 if end is None else end.port.received}

    def estimates(self) -> dict[str, int | None]:
        """Return what is told of no counter of its own: messages that went settled, and those that wait for credit.

        None: that is not known. Nothing is counted for it while messages pass.
        """
        end, waiting = self.end, None
        is_presettled = self.is_presettled
        if isinstance(end, Consumer):
            is_presettled = end.presettle
            # Some addresses look at all their receivers for it.
            if len(end.address.consumers) <= MAX_ASKED:
                waiting = end.count_available()
        presettled = 0 if is_presettled is False or end is None else None
        if is_presettled and end is not None:
            presettled = end.deliveries if isinstance(end, Consumer) else end.port.received
        return {"presettled": presettled, "backlog": waiting}

    def detach(self, condition: str, description: str) -> None:
        """Detach the link, and send the client the reason."""
        self.port.detach(AmqpError(condition, description))


class ClientConnection:
    """One client's connection; each protocol has a subclass.

    Args:
        connections: the node's registry of connections, which this one joins when it opens.
        spaces: returns the spaces of the node by name.
        fixed: the space of every connection of this listener, whatever the client names.
        default: the name of the space for clients that name none.
        port_of: the name of the space that the port belongs to, if it is one space's own.
        url: the URL of this node by AMQP, for redirects.
        peer: the client's address, as ``host:port`` or ``unix``.
        limits: the limits of its transactions.
        gate: the node's users and login limits; without it everybody is admitted.
        peer_info: the facts that the socket and TLS tell of the client.
        events: logs and counts the connection's events; without it nothing is logged.

    Attributes:
        engine: the protocol's engine, once it is made, or what of it serves this connection.
        links: the links that have joined their addresses, by a key that the protocol chooses.
        closing: the reason why the node closes the connection, once it does.
        properties: the facts that the client tells of its program; None: nothing.
    """

    # A node has tens of thousands: a dictionary of so many attributes takes more than the connection otherwise.
    __slots__ = (
        "__weakref__", "_connections", "_is_logged", "_room", "admission", "bounds", "closing", "container", "engine",
        "events", "limits", "links", "opened_at_ms", "peer", "properties", "space", "url", "user",
    )  # fmt: skip

    protocol: ClassVar[str]
    """The name of the protocol's row in ``node/protocols.py``."""

    host_words: ClassVar[HostWords] = HostWords()
    """The protocol's words for the host that clients name, for errors."""

    names_itself: ClassVar[bool] = True
    """True if its clients have names for themselves."""
    serves_devices: ClassVar[bool] = False
    """True if the protocol has words for what devices do."""

    first_words: ClassVar[bytes | None] = None
    """The bytes that its client has been told when it enters, and which the home says again, as the connection is
    handed over; None: its connections are not."""

    waits_for_reset: ClassVar[bool] = False
    """True if there are clients that come again, as they were told to, no sooner than their sockets fail."""

    engine: Traced

    def __init__(
        self,
        connections: Connections,
        *,
        spaces: Callable[[], Mapping[str, Space]],
        fixed: Space | None,
        default: str | None,
        url: str,
        peer: str,
        limits: TransactionLimits | None = None,
        gate: Gate | None = None,
        peer_info: PeerInfo | None = None,
        port_of: str | None = None,
        events: EventLog | None = None,
    ) -> None:
        self.space: Space | None = fixed
        self.user = "anonymous"
        self.container = ""
        self.peer = peer
        self.opened_at_ms = 0
        self.links: dict[Any, ClientLink] = {}
        self.closing: RemoteError | None = None
        self.properties: dict[str, str] | None = None
        self.admission = Admission(
            gate or Gate(None, lambda: 0.0),
            spaces=spaces,
            default=default,
            peer_info=peer_info or PeerInfo(peer),
            fixed=fixed,
            port_of=port_of,
            words=self.host_words,
            waiting=self._wait,
        )
        self.bounds = Bounds()
        self.url = url
        self.limits = limits or TransactionLimits()
        self.events = events
        self._connections = connections
        self._is_logged = False
        """True once the log has said that the connection was opened or refused."""
        self._room: Holder | None = None
        """The room of an incomplete frame, for engines that ask by its size."""

    @property
    def party(self) -> tuple[Hashable, ...]:
        """The owner of the connection where a budget is shared: space, user, network."""
        return "" if self.space is None else self.space.name, self.user, network_of(self.peer)

    @property
    def why_held(self) -> str:
        """The reason why the client is not read; empty if it is, or if that is its own doing."""
        return ""

    @property
    def number(self) -> int:
        """The connection's number in management; 0 once it is closed."""
        return self._connections.numbers.get(self, 0)

    @property
    def has_lost_front(self) -> bool:
        """True if the node ends, or has ended, that the client had reached and that handed the connection over."""
        shell, handovers = self._connections.shells.get(self), self._connections.handovers
        return shell is not None and handovers is not None and handovers.has_ended(shell)

    def waiting_room(self) -> WaitingRoom:
        """Return the place of the messages that wait for credit."""
        assert self.space is not None
        return self._connections.waiting_room(self.space)

    def _wait(self, is_waiting: bool) -> None:
        self._connections.waits(self, is_waiting=is_waiting)

    # What a protocol implements

    def make_engine(self, node: str, now: float) -> ClientEngine:
        """Make this connection's engine, and set ``engine``.

        Args:
            node: the node's name.
            now: the turn's time.
        """
        raise NotImplementedError

    def end(self, error: RemoteError) -> None:
        """Send the client the reason, and close the connection once that is written."""
        raise NotImplementedError

    @property
    def transactions(self) -> int:
        """The number of open transactions."""
        return 0

    def leave(self, key: Any, link: ClientLink, *, closed: bool) -> None:
        """Remove a link from its address; a protocol may extend this by its own state of the link."""
        end = link.end
        if isinstance(end, Consumer):
            end.on_detached(closed=closed)
        elif end is not None:
            end.on_detached()

    # What a protocol implements whose connections are handed over

    def leave_login(self) -> None:
        """Leave unread what the client says behind its login; nothing to do where that is so until it is answered."""

    def ignore_rest(self) -> None:
        """Drop what was left, as the client was told that it is not admitted."""

    def from_login(self) -> bytes:
        """Return what the client has said from its login on."""
        raise NotImplementedError

    @property
    def final_data(self) -> bytes | None:
        """The last message of a login, which the client is told by the home."""
        return None

    def handed_in(self, final_data: bytes | None) -> None:
        """Take what ``final_data`` was at the node that has handed the connection over."""

    def hand_over(self, space: Space) -> bool:
        """Begin to hand the connection over, if its space is at home at another node; return whether it is.

        Raises:
            RemoteError: it is, and the connection cannot be handed over.
        """
        return self._connections.hand_over(self, space)

    # From login to close

    def enter(self, host: str | None, container: str) -> bool:
        """Open the connection in its space once the client has logged in, or close it with the reason.

        Args:
            host: the host that the client names now, beside those of TLS and login; it may name the space.
            container: the client's name for itself.

        Returns:
            True if the connection is open now.
        """
        self.container = container
        rights = self.admission.rights
        rights.client = container if self.names_itself else ""
        try:
            space = self.admission.enter(host)
            self._require_served()
            if not self.admission.is_administrator:
                if self.hand_over(space):
                    return False
                self.bounds.enter(space, container)
        except RemoteError as error:
            # Before the end, which some protocols reach at once, and which would be logged as another refusal.
            self._is_logged = True
            self.log("connection-refused", error)
            self.close(error.condition, error.description)
            return False
        self.space = space
        self.user = self.admission.name
        self._connections.opened(self)
        self._is_logged = True
        if self.closing is None:
            mechanism = self.admission.mechanism
            self.log("connection-opened", hostname=host, mechanism=mechanism, protocol=self.protocol)
        else:
            self.log("connection-refused", self.closing)
        return self.closing is None

    def _require_served(self) -> None:
        if self.admission.device is not None and not self.serves_devices:
            raise RemoteError("amqp:not-allowed", f"devices do not speak {self.protocol} here")
        if self.admission.device is None and (problem := self.admission.rights.client_problem) is not None:
            raise RemoteError("amqp:unauthorized-access", problem)

    def close(self, condition: str, description: str) -> None:
        """Close the connection and send the client the reason; does nothing if it is being closed already."""
        if self.closing is None:
            self.closing = RemoteError(condition, description)
            self.end(self.closing)

    def disconnected(self, error: RemoteError | None, *, login_error: str | None = None) -> None:
        """Leave the node's registry, as the socket is closed, and log why.

        Args:
            error: the reason, of either side, if there is one.
            login_error: the reason why the login failed, if it did.
        """
        number, is_opened = self.number, self.opened_at_ms > 0
        if self.space is not None and self.closing is not None and self.closing.condition == UNAUTHORIZED:
            # Until now its user, who may be gone, could leave more behind.
            self.space.owners.cut(self.admission.rights.username)
        self.more_room(0)
        self._connections.left(self)
        self.admission.leave()
        self.bounds.leave(self.links.values())
        self._connections.closed(self)
        # A socket that never sent anything is not worth a line.
        if is_opened:
            self.log("connection-closed", error, connection=number)
        elif self._is_logged:
            pass
        elif login_error is not None:
            self.log(
                "authentication-failed",
                level=logging.WARNING,
                connection=number or None,
                description=self.admission.refusal or login_error,
                mechanism=self.admission.mechanism,
                user=self.admission.named or None,
            )
        elif error is not None:
            self.log("connection-refused", error, connection=number or None)
        self.admission.forget_login()

    def log(self, event: str, error: RemoteError | None = None, level: int = logging.INFO, **fields: Any) -> None:
        """Log and count an event of this connection."""
        if self.events is not None:
            self.events.log(self, event, error, level, **fields)

    def review(self) -> None:
        """Close the connection, or detach links, that changed users or permissions do not allow any more."""
        reason = self.admission.review()
        if reason is not None:
            self.close(UNAUTHORIZED, f"{reason}; authenticate again")
            return
        if self.admission.device is not None:
            return  # what it may be commanded is asked for by its adapter, and by no permission of an address
        for link in list(self.links.values()):
            self._review_link(link)

    def _review_link(self, link: ClientLink) -> None:
        rights, address = self.admission.rights, link.address
        if link.is_detached or link.end is None or not (link.connector or (isinstance(address, str) and address)):
            return
        try:
            if link.connector:
                rights.require_dynamic(link.connector)
            elif link.is_sender:
                rights.require_send(address)
            else:
                link.end.recut(rights.granted(address))  # type: ignore[union-attr]  # it is a receiver's
                if (problem := rights.closed_problem("receive from", link.end.address, address)) is not None:
                    raise problem
        except AttachError as error:
            link.detach(error.condition, error.description)
            link.end.on_detached()

    def stop_senders(self) -> None:
        """Take no more messages, as the node stops; transactions can still be ended."""
        for link in self.links.values():
            if isinstance(link.end, Producer) and not link.is_control:
                link.end.port.grant(0)
                link.end.address.remove_producer(link.end)

    @property
    def is_settled(self) -> bool:
        """True when the client's receivers have settled everything that they were sent."""
        return not any(isinstance(link.end, Consumer) and link.end.unsettled for link in self.links.values())

    # Room for frames that are not complete

    def more_room(self, size: int) -> bool:
        """Return true if an incomplete frame may take so many bytes; 0 gives all of its room back."""
        if not size:
            if self._room is not None:
                self._room.leave()
                self._room = None
            return True
        if self.space is None:
            return size <= UNOPENED_BYTES
        if self._room is None:
            self._room = Holder(self._connections.unfinished, self.party, self._give_up_room)
        return self._room.resize(size)

    def _give_up_room(self) -> None:
        self.more_room(0)
        self.close(
            EXCEEDED,
            "others, who hold less, need the room of a message whose end has not come: send it faster, or later",
        )

    # Links

    def find_target(self, name: str, capabilities: tuple[str, ...] = ()) -> Address:
        """Return the address that a sender names, which may be the management of its space.

        Raises:
            AttachError: there is no such address, or the user may not send to it.
        """
        space = self.space
        assert space is not None
        self.admission.rights.require_producer(name, capabilities)
        management = self._connections.space_management
        if name == MANAGEMENT and management is not None and name not in space.addresses:
            return management.service(space.core, name, self)
        return space.find_target(name)

    def find_source(self, name: str, wanted: AttachOptions | None = None) -> tuple[Address, str]:
        """Return the address that a receiver names, and what the user may receive there: the name, or a part of it.

        Args:
            name: the address as the receiver names it.
            wanted: the receiver's wishes, where it may have a durable subscription.

        Raises:
            AttachError: there is no such address, or the user may receive nothing of what the name stands for.
        """
        admission, space = self.admission, self.space
        rights = admission.rights
        assert space is not None
        source = rights.granted(name)
        if crosses(space, name) and reached_by(space, source):
            if wanted is None or not wanted.is_durable:
                reach = PatternReach(self.bounds, rights, is_bound=not admission.is_administrator)
                return Across(space, name, reach), source
            address = lasting_at(space, name, source, wanted)
            if (problem := rights.closed_problem("receive from", address, name)) is not None:
                raise problem
            return address, source
        address = space.find_source(name)
        if is_cut(source) and not address.owns_subtree:
            # Only a topic looks for patterns; another container knows what one stands for itself.
            rights.require_receive(name)
        return address, source

    def find_connector(self, link: ClientLink, place: str) -> Address:
        """Return the connector behind which a link wants a dynamic address.

        Args:
            link: the link.
            place: the name of the connector, and perhaps what leads on from there.

        Raises:
            AttachError: there is none of that name, or the user may not use it.
        """
        space = self.space
        assert space is not None
        name = place.partition("/")[0]
        self.admission.rights.require_dynamic(name)
        if name not in space.connectors:
            raise AttachError("amqp:not-found", f"space {space.name!r} has no connector {name!r:.100}")
        link.connector = name
        return space.connectors[name]

    def make_dynamic(self, link: ClientLink, wish: DynamicRequest) -> Address:
        """Make a dynamic address for a link.

        Raises:
            AttachError: the user may not have one, or the space has as many as it may.
        """
        space, rights = self.space, self.admission.rights
        assert space is not None
        rights.require_dynamic()
        link.made = space.add_dynamic(wish, rights.owner, rights.username)
        return link.made

    def count(self, link: ClientLink, address: Address | None) -> None:
        """Count a link that is about to join an address, or none if each message names one.

        Raises:
            AttachError: the connection, space or address has as many links as it may.
        """
        if len(self.links) >= MAX_LINKS:
            raise AttachError(
                "amqp:resource-limit-exceeded", f"the connection has {MAX_LINKS} links, as many as it may"
            )
        assert self.space is not None
        if not self.admission.is_administrator:
            self.bounds.attach(self.space, link, None if isinstance(address, Across) else address)
        if isinstance(address, Across) and isinstance(address.reach, PatternReach):
            # It is counted at each address as it joins that.
            address.reach.link = link

    def join(
        self,
        key: Any,
        link: ClientLink,
        end: Producer | Consumer,
        begin: Callable[[], None],
        refuse: Callable[[RemoteError], None],
    ) -> None:
        """Register a link that has its end at an address, and have the client answered, now or later.

        A link that is gone before its answer comes is not answered any more.

        Args:
            key: its key in ``links``.
            link: the link.
            end: its end.
            begin: tells the client that it is attached, and begins with it.
            refuse: tells the client why it is not; the link has left by then.
        """
        opening = end.opening
        if opening is None:
            self.joined(key, link, end)
            if not link.is_detached:
                begin()
            return

        def decided(error: RemoteError | None) -> None:
            if self.links.get(key) is not link or link.is_detached or self.closing is not None:
                return
            if error is None:
                self.log("link-attached", **link.log_fields)
                begin()
            else:
                self.detached(key, is_logged=False)
                self.log("link-refused", error, **link.log_fields)
                refuse(error)

        link.end = end
        self.links[key] = link
        opening.then(decided)

    def joined(self, key: Any, link: ClientLink, end: Producer | Consumer) -> None:
        """Register a link that has its end, at an address that always answers at once."""
        link.end = end
        self.links[key] = link
        if not link.is_detached:
            self.log("link-attached", **link.log_fields)

    def refused(self, link: ClientLink, error: RemoteError) -> None:
        """Undo ``count`` and ``make_dynamic`` for a link that could not be attached, and log why."""
        self.bounds.detached(link)
        if link.made is not None:
            self._forget_address(link)
        self.log("link-refused", error, **link.log_fields)

    def detached(
        self, key: Any, *, error: RemoteError | None = None, closed: bool = True, is_logged: bool = True
    ) -> None:
        """Remove a link that is detached from its address, which ends with it if it is dynamic.

        Args:
            key: its key in ``links``.
            error: the reason, of either side, if there is one.
            closed: true if the link is closed for good, false if it may come back.
            is_logged: false for links that end with their connection, which is logged once.
        """
        link = self.links.pop(key, None)
        if link is None:
            return
        self.bounds.detached(link)
        self.leave(key, link, closed=closed)
        self._forget_address(link)
        if is_logged:
            self.log("link-detached", error, **link.log_fields)

    def _forget_address(self, link: ClientLink) -> None:
        address = link.made or (None if link.end is None else link.end.address)
        if self.space is not None and address is not None:
            name = address.topic_name or address.name
            self.space.dynamic.left(name, is_creator=link.made is not None)
