"""The subscriptions of one client's connection: the holder of its session, and the credit of its receivers.

A packet whose filters lead to addresses that others have to answer for has its SUBACK once they have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED, AmqpError, Rejected
from enmasse.messaging.errors import AttachError
from enmasse.messaging.fan_out import Wave
from enmasse.messaging.sessions.names import REACHED
from enmasse.messaging.sessions.session_filter import SubscribeRequest
from enmasse.node.connections.client_connection import MAX_LINKS, ClientLink
from enmasse.node.mqtt.receiving import Encoder, EncoderKey, Receiver
from enmasse.node.mqtt.statistics import is_of_statistics
from enmasse.wire.mqtt.packets import Filter, Reason, Subscribe, Unsubscribe, Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.messaging.sessions.session import Session
    from enmasse.messaging.sessions.session_filter import SessionFilter, SessionLink
    from enmasse.node.mqtt.connection import MqttConnection


_CODES: Final = {
    "amqp:unauthorized-access": Reason.NOT_AUTHORIZED,
    "amqp:not-found": Reason.TOPIC_FILTER_INVALID,
    "amqp:not-allowed": Reason.TOPIC_FILTER_INVALID,
    "amqp:invalid-field": Reason.TOPIC_FILTER_INVALID,
    "amqp:resource-limit-exceeded": Reason.QUOTA_EXCEEDED,
    "amqp:not-implemented": Reason.IMPLEMENTATION_SPECIFIC_ERROR,
}
"""The codes of filters that are refused, by condition."""


FILTERS_AT_ONCE: Final = 8
"""Filters of a packet that are dealt with at once; of more, so many in a turn or two."""

MAX_WAITING: Final = 8
"""The most packets that wait for the answer to one filter."""

FILTER_UNITS: Final = 150
"""The work that a filter is, as ``fan_out`` counts it: some 0.1 ms."""


class _Pending(Wave):
    """The packets of a client that have more filters than are dealt with at once, and those behind them.

    Until they are, the client is not read.
    """

    __slots__ = ("_home", "work")

    def __init__(self, home: Subscriptions) -> None:
        super().__init__(home.session.sessions.space)
        self._home = home
        self.work: deque[Iterator[int]] = deque()

    def steps(self) -> Iterator[int]:
        """Deal with the packets, some filters at a time."""
        while self.work:
            yield from self.work.popleft()

    def end(self) -> None:
        """Note that nothing is left to do."""
        self._home.pending_over()
        super().end()


class Subscriptions:
    """The receiving side of one client; the ``SessionHolder`` of its session.

    Attributes:
        session: the client's, once it is open.
        written: the receivers that were sent something with QoS 0 since the last write.
        spent: the receivers that have used credit for QoS 1 and 2 since it was last renewed.
        is_full: whether the client has as many messages of QoS 1 and 2 as it takes.
        numbered: the number of receivers of QoS 1 and 2.
    """

    __slots__ = (
        "_connection", "_handles", "_links", "_opening", "_pending", "engine", "has_aliases", "is_full", "numbered",
        "session", "spent", "written",
    )  # fmt: skip
    session: Session

    def __init__(self, connection: MqttConnection) -> None:
        self.written: list[Receiver] = []
        self.spent: list[Receiver] = []
        self.is_full = False
        self.numbered = 0
        self.has_aliases = connection.engine.connect is not None and connection.engine.connect.topic_alias_maximum > 0
        self.engine = connection.engine
        self._connection = connection
        self._links: dict[Receiver, ClientLink] = {}
        self._handles = 0
        self._pending: _Pending | None = None
        """The packets that are dealt with in turns to come."""
        self._opening: dict[SessionLink, list[Callable[[RemoteError | None], None]]] = {}
        """The links that others have to answer for, and who waits for that."""

    # Packets

    def subscribe(self, packet: Subscribe) -> None:
        """Subscribe to filters, and answer once that is kept."""
        self._do(self._subscribe_all(packet), len(packet.filters))

    def unsubscribe(self, packet: Unsubscribe) -> None:
        """Unsubscribe from filters, and answer once that is kept."""
        self._do(self._unsubscribe_all(packet), len(packet.filters))

    def _do(self, work: Iterator[int], filters: int) -> None:
        """Do the work of a packet: at once, or in turns to come if it has many filters, or one before it has."""
        if self._pending is None and filters <= FILTERS_AT_ONCE:
            for _units in work:
                pass
            return
        fan_out = self.session.core.fan_out
        pending = self._pending
        if pending is None:
            pending = self._pending = _Pending(self)
            fan_out.add(pending)
        pending.work.append(work)
        fan_out.joined(pending, 0, filters)

    def pending_over(self) -> None:
        """Note that all packets with many filters are dealt with."""
        self._pending = None

    def _parts(self, filters: list[Any]) -> Iterator[Any]:
        """Return the filters, as long as the client has its session; the work of every few of them in between."""
        for at, wanted in enumerate(filters, 1):
            if self.session.holder is not self:
                return
            yield wanted
            if not at % FILTERS_AT_ONCE:
                yield None

    def _subscribe_all(self, packet: Subscribe) -> Iterator[int]:
        codes: list[int] = []
        text = ""
        for wanted in self._parts(packet.filters):
            if wanted is None:
                yield FILTERS_AT_ONCE * FILTER_UNITS
                continue
            try:
                codes.append(self._subscribe(wanted, packet.identifier))
            except RemoteError as error:
                self._connection.log_refused("receiver", wanted.text, error)
                codes.append(_CODES.get(error.condition, Reason.UNSPECIFIED_ERROR))
                text = text or f"{wanted.text!r:.200}: {error.description}"
        if len(codes) == len(packet.filters):
            self._answer(packet, codes, text)

    def _answer(self, packet: Subscribe, codes: list[int], text: str) -> None:
        """Answer once all filters have what they reach, and that is kept."""
        left = 1

        def end() -> None:
            nonlocal left
            left -= 1
            if not (left or self.engine.closed):
                self.session.after_stored(lambda: self.engine.put_suback(packet.packet_id, codes, text))

        def decided(at: int, error: RemoteError | None) -> None:
            nonlocal text
            if error is not None:
                codes[at] = _CODES.get(error.condition, Reason.UNSPECIFIED_ERROR)
                text = text or f"{packet.filters[at].text!r:.200}: {error.description}"
            end()

        for at, wanted in enumerate(packet.filters if self._opening else ()):
            if codes[at] < Reason.UNSPECIFIED_ERROR:
                for waiting in self._waiting(wanted.text):
                    left += 1
                    waiting.append(partial(decided, at))
        end()

    def _waiting(self, text: str) -> list[list[Callable[[RemoteError | None], None]]]:
        """Return who waits for what a filter reaches, of each link that others have to answer for."""
        filter_ = self.session.filters.get(text)
        links = () if filter_ is None else filter_.links.values()
        return [self._opening[link] for link in links if link in self._opening]

    def _unsubscribe_all(self, packet: Unsubscribe) -> Iterator[int]:
        codes: list[Reason] = []
        for text in self._parts(packet.filters):
            if text is None:
                yield FILTERS_AT_ONCE * FILTER_UNITS
                continue
            is_ended = self.session.unsubscribe(text)
            is_ended = is_ended or self._connection.statistics.unsubscribe(self._connection, text)
            codes.append(Reason.SUCCESS if is_ended else Reason.NO_SUBSCRIPTION_EXISTED)
        if len(codes) == len(packet.filters):
            self.session.after_stored(lambda: self.engine.put_unsuback(packet.packet_id, codes))

    def _subscribe(self, wanted: Filter, identifier: int) -> int:
        if is_of_statistics(wanted.text):
            self._connection.subscribe_to_statistics(wanted.text, identifier)
            return 0
        filters = self.session.filters
        if len(filters) >= MAX_LINKS and wanted.text not in filters:
            raise AttachError(
                "amqp:resource-limit-exceeded", f"the session has {MAX_LINKS} filters, as many as one may have"
            )
        if self._opening and any(len(waiting) >= MAX_WAITING for waiting in self._waiting(wanted.text)):
            raise AttachError(
                "amqp:resource-limit-exceeded", f"{MAX_WAITING} packets wait for the answer to this filter already"
            )
        return self.session.subscribe(
            SubscribeRequest(
                wanted.text,
                wanted.qos,
                wanted.no_local,
                wanted.retain_as_published,
                wanted.retain_handling,
                identifier,
            )
        )

    def on_puback(self, packet_id: int, reason: int) -> None:
        """Settle a message of QoS 1: an error rejects it."""
        self.session.outgoing.acknowledge(packet_id, ACCEPTED if reason < 0x80 else _rejected(reason))
        if not self._connection.is_due:
            self._connection.due()

    def on_pubrec(self, packet_id: int, reason: int) -> None:
        """Settle a message of QoS 2, and release it once that is on disk."""
        engine = self.engine
        if reason >= Reason.UNSPECIFIED_ERROR:
            self.session.outgoing.receive(packet_id, _nothing, _rejected(reason))
            self._connection.due()
        elif not self.session.outgoing.receive(packet_id, lambda: engine.put_pubrel(packet_id)):
            engine.put_pubrel(packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND)

    def on_pubcomp(self, packet_id: int) -> None:
        """Free the packet identifier of a message of QoS 2."""
        self.session.outgoing.complete(packet_id)
        self._connection.due()

    # The session's holder

    def make_port(self, link: SessionLink) -> Receiver:
        """Return the port for one address of a filter.

        Raises:
            AttachError: the connection, space or address has as many links as it may.
        """
        takes = link.address.kind not in REACHED or (link.filter.group is not None and link.address.kind == "topic")
        port = Receiver(self, link, self._encoder_of(link), takes=takes)
        self._handles += 1
        client_link = ClientLink(port, link.filter.text, f"r{self._handles}", str(link.source), is_sender=False)
        self._connection.count(client_link, link.address)
        self._links[port] = client_link
        return port

    def _encoder_of(self, link: SessionLink) -> Encoder:
        """Return the encoder of all messages of a link; of several filters together none decides for all."""
        return self.encoder_of(link, () if link.joint is not None and link.joint.is_mixed else (link.filter,))

    def encoder_of(self, link: SessionLink, filters: Sequence[SessionFilter]) -> Encoder:
        """Return the encoder of messages that some filters of a link match."""
        space = self._connection.space
        assert space is not None
        # What takes messages away, and streams, are reached by exact names alone. Behind a connector a name may
        # have wildcards, but none that a client is told has [MQTT-3.3.2-2].
        is_exact = link.address.kind not in REACHED
        wanted = link.filter.filter
        key = EncoderKey(
            space.name,
            self.engine.version is Version.V5,
            wanted.topic if is_exact and not wanted.is_wild else link.address.name,
            is_exact,
            is_exact,
            any(filter_.retain_as_published for filter_ in filters),
            tuple(filter_.identifier for filter_ in filters if filter_.identifier),
        )
        core = space.core
        return self._connection.encoders.of(key, lambda: core.wall_us // 1000)

    def changed(self, link: SessionLink) -> None:
        """Have the port of a link keep to the new options of its filters [MQTT-3.8.4-3]."""
        port = cast("Receiver", link.port)
        was_numbered = port.is_numbered
        port.apply(self._encoder_of(link))
        joint, client_link = link.joint, self._links.get(port)
        if joint is not None and client_link is not None and link.users > 1:
            client_link.name = f"{link.users} filters"
            client_link.address = joint.name
        if not port.has_begun:
            return
        if port.is_numbered and not was_numbered:
            # Unlike that of a port by itself, its credit does not heed what the client takes: it counts as two.
            self.numbered += 2
            self.fill()
        elif was_numbered and not port.is_numbered:
            self.numbered -= 1
        else:
            return
        self._tell_blocked()

    def joined(self, link: SessionLink) -> None:
        """Register a link that has its consumer, and let it begin, now or when it is answered."""
        port = cast("Receiver", link.port)
        client_link = self._links[port]
        self._connection.join(
            port, client_link, link.consumer, lambda: self._begin(link, port), lambda error: self._refuse(link, error)
        )
        if client_link.is_opening:
            self._opening[link] = []

    def _begin(self, link: SessionLink, port: Receiver) -> None:
        for told in self._opening.pop(link, ()):
            told(None)
        self.numbered += port.is_numbered
        port.begin(self.room)

    def _refuse(self, link: SessionLink, error: RemoteError) -> None:
        """Leave an address that gives nothing; a filter that the client has just asked for ends with it."""
        waiting = self._opening.pop(link, [])
        text = link.filter.text
        self.session.link_refused(link)
        if waiting:
            self.session.unsubscribe(text)
        for told in waiting:
            told(error)

    def left(self, link: SessionLink) -> None:
        """Forget a link whose consumer is gone, or that could not be attached."""
        port = cast("Receiver", link.port)
        client_link = self._links.pop(port, None)
        if client_link is None:
            return
        for told in self._opening.pop(link, ()):
            told(RemoteError("amqp:link:detach-forced", "it ended before it was answered"))
        self.numbered -= port.has_begun and port.is_numbered
        port.is_detach_sent = True
        if port in self._connection.links:
            self._connection.detached(port)
        else:
            self._connection.bounds.detached(client_link)

    def taken_over(self) -> None:
        """End the connection, as another one has its session [MQTT-3.1.4-3]."""
        self._connection.fail_with(
            Reason.SESSION_TAKEN_OVER, "another connection has come with this client identifier", is_urgent=True
        )

    def deleted(self) -> None:
        """End the connection, as its session was ended by management."""
        self._connection.fail_with(Reason.ADMINISTRATIVE_ACTION, "an administrator has ended the session")

    def filter_ended(self, text: str, error: RemoteError) -> None:
        """Note that a subscription has ended: before version 5 the connection ends with it."""
        self._connection.log("link-detached", error, role="receiver", address=text)
        if self.engine.version is not Version.V5:
            self._connection.fail_with(Reason.NOT_AUTHORIZED, error.description)

    def put_pubrel(self, packet_id: int) -> None:
        """Release a message of QoS 2 again, as the client has come again."""
        self.engine.put_pubrel(packet_id)

    # Credit

    @property
    def room(self) -> int:
        """The messages of QoS 1 and 2 that the client takes beside those that it has not acknowledged."""
        return self.session.outgoing.room

    def fill(self) -> None:
        """Have nothing more of QoS 1 and 2 sent while the client has as many without an answer as it takes."""
        if not self.is_full and self.room <= 0:
            self.is_full = True
            self._tell_blocked()

    def go_on(self) -> None:
        """Renew the credit of subscriptions of QoS 1 and 2, as messages were acknowledged."""
        if not (self.spent or self.is_full):
            return
        room = self.room
        if self.is_full and room > 0:
            self.is_full = False
            self._tell_blocked()
        spent, self.spent = self.spent, []
        for port in spent:
            if not port.is_detach_sent and not port.renew(room):
                self.spent.append(port)

    def on_blocked(self, is_blocked: bool) -> None:
        """Stop or resume sending messages, as the socket is blocked or not."""
        self._tell_blocked()

    def _tell_blocked(self) -> None:
        is_blocked, is_full = self.engine.is_blocked, self.is_full
        for port in list(self._links):
            wanted = is_blocked or (is_full and port.is_numbered)
            if port.has_begun and port.consumer.is_blocked is not wanted:
                port.consumer.on_blocked(wanted)

    def on_written(self) -> None:
        """Renew the credit of subscriptions of QoS 0, whose messages are being written."""
        if self.written:
            written, self.written = self.written, []
            for port in written:
                if not port.is_detach_sent:
                    port.renew_written()

    def close(self) -> None:
        """Forget what the session has left behind, as the connection is closed."""
        self._links.clear()
        self._opening.clear()
        self.written.clear()
        self.spent.clear()


def _rejected(reason: int) -> Rejected:
    return Rejected(AmqpError("mqtt:refused", f"the client answered with the reason code {reason:#04x}"))


def _nothing() -> None:
    """Do nothing: there is no release of what was refused."""
