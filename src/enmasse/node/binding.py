"""What a client's AMQP connection means to a node: its space, its links, their addresses.

The binding answers what is rare (open, attach, detach); messages, credit and outcomes go straight
between the engine's links and the addresses' ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from enmasse.errors import RemoteError
from enmasse.messaging.address import Address
from enmasse.messaging.backlog import Backlog, BacklogConsumer
from enmasse.messaging.delivery import Consumer, Producer
from enmasse.messaging.dynamic import Wish
from enmasse.messaging.errors import AttachError
from enmasse.messaging.metered_sink import MeteredSink
from enmasse.messaging.space import AnonymousTerminus, Space
from enmasse.messaging.stream_readers import CONSUMER
from enmasse.messaging.subscribing import SubscriberConsumer
from enmasse.messaging.subscription import Subscription
from enmasse.node.admission import Admission, Facts
from enmasse.node.bounds import MAX_MESSAGE_BYTES, Bounds
from enmasse.node.coordinator import CAPABILITIES, Coordinator, TransactionLimits
from enmasse.node.dynamic_terminus import dynamic_properties, dynamic_wish
from enmasse.node.gate import Gate
from enmasse.node.receipts import Attachment
from enmasse.node.recovering import Recovering
from enmasse.node.recovery import Key, map_to_tell
from enmasse.node.rights import MANAGEMENT
from enmasse.node.terminus import (
    address_of,
    granted_filters,
    receiver_options,
    recovered_source,
    require_filters,
    sender_options,
    what_is_told,
)
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.link import Link, ReceivingLink, SendingLink
from enmasse.wire.amqp.outcomes import known_outcome
from enmasse.wire.amqp.performatives import AmqpError, Attach, Modified, Open, Released, Source, Target
from enmasse.wire.amqp.performatives import Coordinator as CoordinatorTarget
from enmasse.wire.amqp.sasl import SaslServer
from enmasse.wire.amqp.session import Session
from enmasse.wire.amqp.types import Symbol, ULong

if TYPE_CHECKING:
    from enmasse.node.connections import Connections
    from enmasse.wire.amqp.session_output import SessionOutput

__all__ = ["MAX_MESSAGE_BYTES", "Binding"]

MAX_LINKS = 10_000
"""Links of one connection, over all its sessions: as many as a large client may want, and no memory to speak of."""

MAX_CONTROL_BYTES = 16 << 10
"""Room for what is said of a transaction, many times over."""

REJECTED = "amqp:rejected:list"

DIST_MODES = ("move", "copy")

ADDRESS_TYPE = "enmasse:address-type"
"""The capability by which a receiver asks what it has attached to, and the property that answers."""

STORED = "enmasse:messages-stored"
"""The property that tells such a receiver how many messages are there, where any are stored."""


def _described(address: Address, consumer: Consumer) -> dict[Any, Any]:
    found: dict[Any, Any] = {Symbol(ADDRESS_TYPE): address.kind}
    if isinstance(consumer.address, Backlog):
        found[Symbol(STORED)] = ULong(consumer.address.depth)
    return found


class Binding:
    """One client connection.

    Args:
        connections: the node's account of all connections, which this one joins when it opens.
        spaces: what a client may belong to, by name; ``None`` for the administrator's socket.
        fixed: the space of every connection of the listener, whatever it names.
        default: the name of the space that is meant by a connection which names none.
        url: how clients reach this node.
        peer: where the client is.
        limits: what its transactions may take.
        gate: who may come in; everybody without it.
        facts: what is known of the client before it has said anything.
    """

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
        facts: Facts | None = None,
    ) -> None:
        self.connection: Connection
        self.space: Space | None = fixed
        self.user = "anonymous"
        self.container = ""
        self.peer = peer
        self.opened_at_ms = 0
        self.links: dict[Link, Producer | Consumer] = {}
        self._connections = connections
        self.admission = Admission(
            gate or Gate(None, lambda: 0.0),
            spaces=spaces,
            default=default,
            facts=facts or Facts(peer),
            fixed=fixed,
        )
        self.bounds = Bounds()
        self._url = url
        self._dynamic: dict[Link, Address] = {}
        self._recovering = Recovering(connections.recovery)
        self._lasting: list[tuple[SessionOutput, SubscriberConsumer]] = []
        """Receivers of durable subscriptions that are detached."""
        self._limits = limits or TransactionLimits()
        self._coordinator: Coordinator | None = None

    @property
    def transactions(self) -> int:
        """How many of its transactions are not discharged."""
        return 0 if self._coordinator is None else len(self._coordinator.transactions)

    def sasl(self) -> SaslServer:
        """The server's side of SASL for this connection."""
        return self.admission.sasl()

    # The engine's handler

    def on_opened(self, connection: Connection, remote: Open) -> None:
        """Find the space; a client that names none, or several, is told how."""
        self.container = remote.container_id
        try:
            space = self.admission.enter(remote.hostname)
            self.bounds.enter(space, self.container)
            self.space = space
        except RemoteError as error:
            connection.close(AmqpError(error.condition, error.description))
            return
        self.user = self.admission.name
        self._connections.opened(self)
        connection.open()

    def on_begun(self, session: Session) -> None:
        """Sessions mean nothing to addresses."""

    def on_attach(self, link: Link, attach: Attach) -> None:
        """Join the link to its address, or say why not."""
        space = self.space
        if space is None or self.connection.is_close_sent:
            link.refuse("amqp:not-allowed", "the connection belongs to no space")
            return
        if len(self.links) >= MAX_LINKS:
            link.refuse("amqp:resource-limit-exceeded", f"the connection has {MAX_LINKS} links, as many as it may")
            return
        try:
            if isinstance(link, ReceivingLink):
                self._attach_producer(space, link, attach)
            else:
                assert isinstance(link, SendingLink)
                self._attach_consumer(space, link, attach)
        except AttachError as error:
            self.bounds.detached(link)
            link.refuse(error.condition, error.description, error.info)

    def _attach_producer(self, space: Space, link: ReceivingLink, attach: Attach) -> None:
        target = attach.target
        if isinstance(target, CoordinatorTarget):
            self._attach_controller(space, link, attach)
            return
        if target is None:
            raise AttachError("amqp:invalid-field", "a sender's link has no target")
        options = sender_options(attach, target)
        name = target.address
        answer = Target(address=name, capabilities=target.capabilities)
        # A producer keeps the link's way to settle, so it is chosen before.
        link.settle_as(attach.rcv_settle_mode)
        producer: Producer
        attachment: Attachment | None = None
        told: dict[str, Any] | None = None
        if target.dynamic:
            wish = dynamic_wish(target, options.capabilities)
            self.bounds.attach(space, link, None)
            address = self._new_dynamic(space, link, wish)
            producer = address.attach_producer(self.bounds.port(space, link, None), address.name, options)
            answer = Target(
                address=address.name,
                expiry_policy=target.expiry_policy,
                timeout=target.timeout,
                dynamic=True,
                dynamic_node_properties=dynamic_properties(wish),
                capabilities=target.capabilities,
            )
        elif name is None or name == "":
            outcomes = attach.source.outcomes if attach.source is not None else None
            self.bounds.attach(space, link, None)
            producer = AnonymousTerminus(
                space,
                self.bounds.port(space, link, None),
                knows_rejected=not outcomes or REJECTED in outcomes,
                require=self.admission.rights.require_send,
            )
        else:
            self.admission.rights.require_producer(address_of(target), options.capabilities)
            address = self._desk(space, address_of(target)) or space.find(address_of(target))
            self.bounds.attach(space, link, address)
            key = Key(space, self.user, self.container, attach.name, True)
            attachment = self._recovering.attach_sender(key, address, link, attach, target)
            if attachment is not None:
                answer.durable, answer.timeout = target.durable, target.timeout
                answer.expiry_policy = target.expiry_policy
            producer = address.attach_producer(self.bounds.port(space, link, address), address_of(target), options)
            told = what_is_told(address, options)
        self.links[link] = producer
        sink, most_bytes = self.bounds.sink(link, producer, self.bounds.size_limit(space, producer.address))
        link.accept(
            sink,
            source=attach.source or Source(),
            target=answer,
            max_message_size=most_bytes,
            offered_capabilities=options.capabilities or None,
            properties=told,
            unsettled=None if attachment is None else attachment.told,
            incomplete_unsettled=attachment is not None and attachment.is_incomplete,
        )

    def _desk(self, space: Space, name: str) -> Address | None:
        """Where the space itself answers, if it is that what is named."""
        desk = self._connections.desk
        if name != MANAGEMENT or desk is None or name in space.addresses:
            return None
        return desk.service(space.core, name, self)

    def _attach_controller(self, space: Space, link: ReceivingLink, attach: Attach) -> None:
        link.settle_as(attach.rcv_settle_mode)
        self.bounds.attach(space, link, None)
        if self._coordinator is None:
            self._coordinator = Coordinator(space.core, self._limits)
        source = attach.source or Source()
        controller = self._coordinator.attach_controller(link, source.outcomes)
        self.links[link] = controller
        link.accept(
            controller,
            source=source,
            target=CoordinatorTarget(CAPABILITIES),
            max_message_size=MAX_CONTROL_BYTES,
            offered_capabilities=CAPABILITIES,
        )

    def _attach_consumer(self, space: Space, link: SendingLink, attach: Attach) -> None:
        source = attach.source or recovered_source(space, self.container, attach.name)
        options = receiver_options(attach, source, self.container, self._url)
        properties = None
        if source.dynamic:
            self.bounds.attach(space, link, None)
            wish = dynamic_wish(source, options.capabilities)
            properties = dynamic_properties(wish)
            address = self._new_dynamic(space, link, wish)
        elif not source.address:
            raise AttachError("amqp:invalid-field", "a receiver's link has no source address")
        else:
            options.source = address_of(source)
            self.admission.rights.require_receive(options.source)
            address = space.find(options.source)
            self.bounds.attach(space, link, address)
        require_filters(address, options)
        is_named = CONSUMER in options.filters or CONSUMER in options.properties
        if (address.kind == "stream" or options.browse) and attach.snd_settle_mode != 0 and not is_named:
            # Nothing hangs on a reader's outcome, so it is asked for only if the reader wants to give it.
            options.presettle = True
        key = Key(space, self.user, self.container, attach.name, False)
        leases = self._recovering.attach_receiver(key, address, link, attach, source, options)
        consumer = address.attach_consumer(link, options)
        self.links[link] = consumer
        resumption, unsettled, is_incomplete = None, None, False
        if leases is not None and isinstance(consumer, BacklogConsumer):
            resumption = leases.resume(link, consumer)
            unsettled, is_incomplete = map_to_tell(resumption.states, self.connection.remote_max_frame_size)
        link.accept(
            consumer,
            source=Source(
                address=address.name if source.dynamic else source.address,
                durable=source.durable,
                expiry_policy=source.expiry_policy,
                timeout=source.timeout,
                dynamic=source.dynamic,
                dynamic_node_properties=properties,
                distribution_mode=source.distribution_mode if source.distribution_mode in DIST_MODES else None,
                filter=granted_filters(source),
                default_outcome=source.default_outcome,
                outcomes=source.outcomes,
                capabilities=source.capabilities,
            ),
            target=attach.target if isinstance(attach.target, Target) else Target(),
            snd_settle_mode=1 if options.presettle else attach.snd_settle_mode,
            offered_capabilities=options.capabilities or None,
            properties=_described(address, consumer) if ADDRESS_TYPE in options.capabilities else None,
            unsettled=unsettled,
            incomplete_unsettled=is_incomplete,
        )
        if source.default_outcome is not None:
            link.session.default_outcomes[consumer] = known_outcome(source.default_outcome)
        if resumption is not None:
            resumption.begin(is_limited=attach.incomplete_unsettled)

    def _new_dynamic(self, space: Space, link: Link, wish: Wish) -> Address:
        self.admission.rights.require_dynamic()
        address = space.add_dynamic(wish)
        self.admission.rights.owns(address.name)
        self._dynamic[link] = address
        return address

    def on_transactional_message(
        self,
        link: ReceivingLink,
        payload: bytes,
        delivery_id: int,
        settled: bool,
        message_format: int,
        txn_id: bytes,
    ) -> None:
        """Keep a message for the end of its transaction."""
        if self.space is not None:
            coordinator = self._coordinator or Coordinator(self.space.core, self._limits)
            if isinstance(link.sink, MeteredSink):
                link.sink.port.add_bytes(len(payload))
            coordinator.post(self.space, link, payload, delivery_id, settled, message_format, txn_id)

    def on_transactional_outcome(self, session: Session, delivery_id: int, state: Any, settled: bool) -> None:
        """Keep an outcome for the end of its transaction."""
        if self.space is not None:
            coordinator = self._coordinator or Coordinator(self.space.core, self._limits)
            coordinator.retire(session, delivery_id, state, settled)

    def on_attached(self, link: Link) -> None:
        """We attach nothing."""

    def on_detached(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        """Take the link from its address; a dynamic address may go with it."""
        end = self.links.pop(link, None)
        self.bounds.detached(link)
        self._recovering.leave(link, end, closed=closed)
        if isinstance(end, BacklogConsumer):
            default = link.session.default_outcomes.get(end)
            if isinstance(default, Released | Modified):
                # What the receiver said of messages that it leaves without an outcome [AMQP 3.5.3].
                for entry in end.port.take_unsettled():
                    end.on_outcome(entry, default)
        if isinstance(end, Consumer):
            end.gone(closed=closed)
            if isinstance(end, SubscriberConsumer):
                self._lasting.append((link.session, end))
        elif end is not None:
            end.gone()
        self._recovering.left(link, end, closed=closed)
        link.session.default_outcomes.pop(end, None)
        made = self._dynamic.pop(link, None)
        address = made or (None if end is None else end.address)
        if self.space is not None and address is not None:
            name = address.topic_name if isinstance(address, Subscription) else address.name
            self.space.dynamic.left(name, is_creator=made is not None)

    def on_ended(self, session: Session, error: AmqpError | None) -> None:
        """Its links were detached before; subscriptions may have lasted as long as it."""
        for of, consumer in self._lasting:
            if of is session:
                consumer.lasting.wait("session-end")
        self._recovering.happened("session-end", session)

    def on_closed(self, error: AmqpError | None) -> None:
        """Leave the node's account; subscriptions may have lasted as long as the connection."""
        for _, consumer in self._lasting:
            consumer.lasting.wait("connection-close")
        self._recovering.happened("connection-close")
        self.admission.leave()
        self.bounds.leave()
        self._connections.closed(self)
