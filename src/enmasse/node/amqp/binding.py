"""A client's AMQP connection at a node: connects the protocol engine's links with addresses.

The binding handles what is rare (open, attach, detach); messages, credit and outcomes pass directly between the
engine's links and the addresses' ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from enmasse.errors import RemoteError
from enmasse.message.composites import encode_composite
from enmasse.message.outcomes import AmqpError, Modified, Released, known_outcome
from enmasse.message.types import Symbol, ULong
from enmasse.messaging.across import AcrossConsumer
from enmasse.messaging.address import Address
from enmasse.messaging.delivery import Consumer, Producer
from enmasse.messaging.direct.metered_sink import MeteredSink
from enmasse.messaging.errors import AttachError
from enmasse.messaging.limits import least
from enmasse.messaging.patterns import SUBTREE_CAPABILITY, subtree
from enmasse.messaging.queues.consumer import BacklogConsumer
from enmasse.messaging.queues.subscribing import SubscriberConsumer
from enmasse.messaging.space import AnonymousTerminus, Space
from enmasse.messaging.streams.readers import CONSUMER
from enmasse.node.amqp.connection_recovery import ConnectionRecovery
from enmasse.node.amqp.coordinator import CAPABILITIES, Coordinator
from enmasse.node.amqp.devices import CommandConsumer, DeviceTerminus, device_of_source
from enmasse.node.amqp.receipts import Attachment
from enmasse.node.amqp.recovery import Key, Recovery, unsettled_map
from enmasse.node.amqp.terminus import (
    address_of,
    as_named,
    attach_properties,
    dynamic_place,
    dynamic_properties,
    dynamic_request,
    granted_filters,
    receiver_options,
    recovered_source,
    require_kind,
    sender_options,
)
from enmasse.node.amqp.wills import LWT, WILL, LinkWills, WillProducer
from enmasse.node.connections.client_connection import ClientConnection, ClientLink, require_filters, told_by
from enmasse.node.connections.unfinished import FREE_BYTES, UNOPENED_BYTES, Unfinished
from enmasse.node.devices.messages import DeviceError
from enmasse.node.devices.tenants import AMQP, Device
from enmasse.node.user_ids import LinkUserIds
from enmasse.node.users.authentication import HostWords
from enmasse.version import __version__
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.connection_output import MAX_PARTIAL_BYTES
from enmasse.wire.amqp.framing import AMQP_HEADER
from enmasse.wire.amqp.link import Link, ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Attach, Open, Source, Target
from enmasse.wire.amqp.performatives import Coordinator as CoordinatorTarget
from enmasse.wire.amqp.sasl import SaslServer
from enmasse.wire.amqp.session import Session

if TYPE_CHECKING:
    from enmasse.wire.amqp.session_output import SessionOutput


ANONYMOUS_RELAY = "ANONYMOUS-RELAY"

UNAUTHORIZED = "amqp:unauthorized-access"

CLOSE_S = 5.0
"""Seconds in which a client may still settle what it has, once its connection is closed for another reason."""

LINGER_S = 1.0
"""Seconds in which a client may read why its connection was closed, before its socket is."""

MAX_CONTROL_BYTES = 16 << 10
"""The largest message on a control link: many times what a declare or discharge takes."""

ANSWER_ROOM = 64
"""Bytes of an attach's frame beside what others have answered."""

REJECTED = "amqp:rejected:list"

DIST_MODES = ("move", "copy")

_SETTLES = {0: False, 1: True}
"""True if a link with that snd-settle-mode carries settled messages; one of mode 2 may carry both."""

ADDRESS_TYPE = "enmasse:address-type"
"""The capability by which a receiver asks for the type of its address, and the property with the answer."""

STORED = "enmasse:messages-stored"
"""The property with the number of stored messages, for such a receiver."""


def _described(address: Address, consumer: Consumer) -> dict[Any, Any]:
    found: dict[Any, Any] = {Symbol(ADDRESS_TYPE): address.kind}
    if consumer.address.depth is not None:
        found[Symbol(STORED)] = ULong(consumer.address.depth)
    return found


def _neutral(error: AmqpError | None) -> RemoteError | None:
    return None if error is None else RemoteError(str(error.condition), error.description or "")


class Binding(ClientConnection):
    """One client connection; for its arguments see ``ClientConnection``."""

    __slots__ = ("_coordinator", "_lasting", "_recovering", "_unfinished", "_wills")

    protocol = "amqp"
    serves_devices = True
    host_words = HostWords("the host in sasl-init", "the host in open or sasl-init")
    first_words = AMQP_HEADER
    waits_for_reset = True  # proton answers no close with `amqp:connection:forced`
    engine: Connection

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._recovering = ConnectionRecovery(self._connections.shared(Recovery))
        self._lasting: list[tuple[SessionOutput, SubscriberConsumer]] = []
        """The detached receivers of durable subscriptions, with their sessions."""
        self._coordinator: Coordinator | None = None
        self._wills: LinkWills | None = None
        self._unfinished: Unfinished | None = None

    def make_engine(self, node: str, now: float) -> Connection:
        """Make the engine, which asks for SASL first."""
        self.engine = Connection(
            self,
            container_id=node,
            sasl=None if self.admission.is_asserted else self.sasl(),
            is_server=True,
            now=now,
            properties={"product": "enmasse", "version": __version__},
            offered_capabilities=(ANONYMOUS_RELAY,),
        )
        self.engine.partial_room = UNOPENED_BYTES
        return self.engine

    def sasl(self) -> SaslServer:
        """Return the server's side of SASL for this connection."""
        mechanisms, is_optional = self.admission.offer()
        return SaslServer(mechanisms, self.admission.authenticate, is_optional=is_optional)

    def leave_login(self) -> None:
        """Leave the client's open unread, and what follows."""
        self.engine.leave_open()

    def ignore_rest(self) -> None:
        """Drop the client's open, and what follows."""
        self.engine.ignore_rest()

    def from_login(self) -> bytes:
        """Return what the client has said from the header of AMQP on."""
        return self.engine.from_login

    def end(self, error: RemoteError) -> None:
        """Close it with AMQP's close; a client that does not answer keeps its links for a while, or not at all."""
        self.engine.close(AmqpError(error.condition, error.description))
        if self.space is not None:
            # Not now: an address may be in the middle of its turn.
            patience_s = 0.0 if error.condition == UNAUTHORIZED else CLOSE_S
            self.space.core.call_later(patience_s, self._discard)

    def _discard(self) -> None:
        """Have what the client still says ignored, and its socket closed once it has had time to read the reason."""
        self.engine.discard()
        if self.space is not None and not self.engine.closed:
            self.space.core.call_later(LINGER_S, self.engine.lost)

    @property
    def transactions(self) -> int:
        """The number of its transactions that are not discharged."""
        return 0 if self._coordinator is None else len(self._coordinator.transactions)

    @property
    def why_held(self) -> str:
        """The reason why the client is not read; empty if it is."""
        return "a message that is not complete waits for room, or for its receiver" if self.engine.is_held else ""

    # The engine's handler

    def on_opened(self, connection: Connection, remote: Open) -> None:
        """Open the connection in its space, or close it with the reason."""
        self.properties = told_by(remote.properties)
        if not self.enter(remote.hostname, remote.container_id) or not self._enter_device():
            return
        connection.partial_room = FREE_BYTES
        connection.more_room = self._share_room
        connection.open()

    def _enter_device(self) -> bool:
        """Register the connection of a device; return false if its tenant does not allow it."""
        devices, device = self.admission.devices, self.admission.device
        if devices is not None and device is not None:
            try:
                devices.enter(self, device, AMQP)
            except DeviceError as error:
                self.close(error.condition, error.description)
                return False
        return True

    def _share_room(self) -> bool:
        """Take part in the node's budget, as incomplete messages exceed what every connection may have."""
        assert self.space is not None
        budget, core = self._connections.unfinished, self.space.core
        self._unfinished = Unfinished(self.engine, self._begun, budget, core, self.party, MAX_PARTIAL_BYTES)
        return self.engine.more_room()

    def _begun(self) -> Iterable[ReceivingLink]:
        sessions = self.engine.sessions.values()
        return (link for session in sessions for link in session.receivers.values() if link.partial_bytes)

    def on_begun(self, session: Session) -> None:
        """Do nothing: addresses do not know sessions."""

    def on_attach(self, link: Link, attach: Attach) -> None:
        """Attach the link to its address, or refuse it with the reason."""
        space = self.space
        terminus: Any = attach.target if isinstance(link, ReceivingLink) else attach.source
        named = getattr(terminus, "address", None)
        known = ClientLink(link, link.name, f"{link.channel}/{link.handle}", named, is_sender=not link.is_sender)
        known.is_presettled = _SETTLES.get(attach.snd_settle_mode)
        if space is None or self.engine.is_close_sent:
            link.refuse("amqp:not-allowed", "the connection belongs to no space")
            self.refused(known, RemoteError("amqp:not-allowed", "the connection belongs to no space"))
            return
        try:
            if self.admission.device is None:
                self._attach_will(space, link, attach)
            if self.admission.device is not None and self._attach_device(space, known, link, attach):
                pass
            elif isinstance(link, ReceivingLink):
                self._attach_producer(space, known, link, attach)
            else:
                assert isinstance(link, SendingLink)
                self._attach_consumer(space, known, link, attach)
        except AttachError as error:
            self._refuse(link, error)
            self.refused(known, error)
        else:
            if link.is_detach_sent:
                self.log("link-refused", _neutral(link.error), **known.log_fields)

    def _refuse(self, link: Link, error: RemoteError) -> None:
        if self._wills is not None:
            self._wills.detached(link, None, closed=True)
        link.refuse(error.condition, error.description)

    def _fits(self, link: Link, granted: Attach, asked: Source | Target) -> bool:
        """Return whether an answer of others fits into a frame of the client; the link is refused if it does not.

        A frame that is too large would cost the client its connection.
        """
        size = ANSWER_ROOM + len(encode_composite(granted)) + 4 * len(str(asked.address or ""))
        if size <= self.engine.remote_max_frame_size:
            return True
        problem = f"what is behind the connector answers with {size} bytes: take frames of as many"
        error = AttachError("amqp:frame-size-too-small", problem)
        self.detached(link, error=error)
        self._refuse(link, error)
        return False

    def _attach_device(self, space: Space, known: ClientLink, link: Link, attach: Attach) -> bool:
        """Attach a device's link; return false if it is one like those of users: the receiver of a dynamic address.

        Raises:
            AttachError: devices have no such links.
        """
        devices, device = self.admission.devices, self.admission.device
        assert devices is not None
        assert device is not None
        if isinstance(link, ReceivingLink):
            target = attach.target
            if not isinstance(target, Target) or target.dynamic or target.address:
                raise AttachError("amqp:not-allowed", "a device's sender has no address: its messages name theirs")
            self.count(known, None)
            link.settle_as(attach.rcv_settle_mode)
            terminus = DeviceTerminus(
                space,
                self.bounds.port(space, known, None),
                devices,
                self._connected_device,
                self.admission.rights.require_send,
            )
            self.joined(link, known, terminus)
            sink, most_bytes = self.bounds.sink(known, terminus, self.bounds.size_limit(space, terminus.address))
            link.accept(sink, source=attach.source or Source(), target=Target(), max_message_size=most_bytes)
            return True
        assert isinstance(link, SendingLink)
        source = attach.source
        if source is not None and source.dynamic:
            return False
        name = (source.address if source is not None else None) or ""
        wanted = device_of_source(device.tenant, name)
        self.count(known, None)
        consumer = CommandConsumer(space.core, link, name, device.tenant, presettle=attach.snd_settle_mode == 1)
        self.joined(link, known, consumer)
        link.accept(consumer, source=Source(address=name), target=attach.target or Target())

        def found(which: Device | DeviceError) -> None:
            if isinstance(which, DeviceError):
                link.detach(AmqpError(which.condition, which.description))
                consumer.on_detached()
            elif not link.is_detach_sent:
                consumer.address.leave = devices.commands.listen(
                    which, consumer, self._connected_device, adapter=AMQP
                )

        if wanted:
            devices.act_for(device, wanted, found)
        else:
            consumer.address.leave = devices.commands.listen_as(device, consumer, adapter=AMQP)
        return True

    def _connected_device(self) -> Device:
        device = self.admission.device
        assert device is not None
        return device

    def _attach_will(self, space: Space, link: Link, attach: Attach) -> None:
        """Give the link the will that its properties ask for, or that it had before it came back."""
        properties = {str(name): value for name, value in (attach.properties or {}).items()}
        if WILL in properties or len(space.sessions.wills):
            self._link_wills(space).attached(link, properties)

    def _link_wills(self, space: Space) -> LinkWills:
        if self._wills is None:
            rights = self.admission.rights
            self._wills = LinkWills(space, rights, self.container)
        return self._wills

    def _attach_producer(self, space: Space, known: ClientLink, link: ReceivingLink, attach: Attach) -> None:
        target = attach.target
        if isinstance(target, CoordinatorTarget):
            self._attach_controller(space, known, link, attach)
            return
        if target is None:
            raise AttachError("amqp:invalid-field", "a sender's link has no target")
        options = sender_options(attach, target)
        options.container, options.connection = self.container, self
        name = target.address
        answer = Target(address=name, capabilities=target.capabilities)
        # A producer keeps the link's way to settle, so it is chosen before.
        link.settle_as(attach.rcv_settle_mode)
        producer: Producer
        attachment: Attachment | None = None
        properties: dict[str, Any] | None = None
        if place := dynamic_place(target):
            address = self.find_connector(known, place)
            options.is_dynamic = True
            self.count(known, address)
            producer = address.attach_producer(self.bounds.port(space, known, address), place, options)
        elif target.dynamic:
            wish = dynamic_request(target, options.capabilities)
            self.count(known, None)
            address = self.make_dynamic(known, wish)
            producer = address.attach_producer(self.bounds.port(space, known, None), address.name, options)
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
            self.count(known, None)
            producer = AnonymousTerminus(
                space,
                self.bounds.port(space, known, None),
                knows_rejected=not outcomes or REJECTED in outcomes,
                require=self.admission.rights.require_send,
                client=self,
            )
        elif name == LWT and LWT not in space.addresses:
            self.count(known, None)
            wills = self._link_wills(space)
            producer = WillProducer(space.core, link, wills, wills.key_of(link.name))
        else:
            address = self.find_target(address_of(target), options.capabilities)
            require_kind(address, options.capabilities)
            self.count(known, address)
            rights = self.admission.rights
            key = Key(space, rights.owner, self.container, attach.name, True)
            attachment = self._recovering.attach_sender(key, rights.username, address, link, attach, target)
            if attachment is not None:
                answer.durable, answer.timeout = target.durable, target.timeout
                answer.expiry_policy = target.expiry_policy
            producer = address.attach_producer(self.bounds.port(space, known, address), address_of(target), options)
            properties = attach_properties(address, options)
        if not self.admission.is_administrator:
            link.guard = LinkUserIds(self.admission.rights, link)

        def begin() -> None:
            sink, most_bytes = self.bounds.sink(known, producer, self.bounds.size_limit(space, producer.address))
            granted: Any = producer.granted
            if granted is not None:
                if not self._fits(link, granted, target):
                    return
                most_bytes = least(most_bytes or 0, granted.max_message_size or 0) or None
            offered = options.capabilities or None
            link.accept(
                sink,
                source=attach.source or Source() if granted is None else granted.source,
                target=answer if granted is None else as_named(granted.target, target),
                max_message_size=most_bytes,
                offered_capabilities=offered if granted is None else granted.offered_capabilities,
                properties=properties if granted is None else granted.properties,
                unsettled=None if attachment is None else attachment.unsettled,
                incomplete_unsettled=attachment is not None and attachment.is_incomplete,
            )

        self.join(link, known, producer, begin, lambda error: self._refuse(link, error))

    def _attach_controller(self, space: Space, known: ClientLink, link: ReceivingLink, attach: Attach) -> None:
        link.settle_as(attach.rcv_settle_mode)
        self.count(known, None)
        if self._coordinator is None:
            self._coordinator = Coordinator(space.core, self.limits, self.party)
        source = attach.source or Source()
        controller = self._coordinator.attach_controller(link, source.outcomes)
        known.is_control = True
        self.joined(link, known, controller)
        link.accept(
            controller,
            source=source,
            target=CoordinatorTarget(CAPABILITIES),
            max_message_size=MAX_CONTROL_BYTES,
            offered_capabilities=CAPABILITIES,
        )

    def _attach_consumer(self, space: Space, known: ClientLink, link: SendingLink, attach: Attach) -> None:
        rights = self.admission.rights
        source = attach.source or recovered_source(space, self.container, attach.name, rights)
        options = receiver_options(attach, source, self.container, self.url, rights)
        properties = None
        if place := dynamic_place(source):
            options.source, options.is_dynamic, options.connection = place, True, self
            address = self.find_connector(known, place)
            self.count(known, address)
        elif source.dynamic:
            self.count(known, None)
            wish = dynamic_request(source, options.capabilities)
            properties = dynamic_properties(wish)
            address = self.make_dynamic(known, wish)
        elif not source.address:
            raise AttachError("amqp:invalid-field", "a receiver's link has no source address")
        else:
            options.source = address_of(source)
            if attach.source is None:
                # Grants are looked at by it.
                known.address = options.source
            options.connection = self
            if SUBTREE_CAPABILITY in options.capabilities:
                options.source = known.address = subtree(options.source)
            address, options.source = self.find_source(options.source, options)
            require_kind(address, options.capabilities)
            self.count(known, address)
        require_filters(address, options)
        is_named = CONSUMER in options.filters or CONSUMER in options.properties
        if (address.is_read_by_offset or options.browse) and attach.snd_settle_mode != 0 and not is_named:
            # A reader's outcomes have no effect, so deliveries are settled unless the reader wants otherwise.
            options.presettle = True
        key = Key(space, rights.owner, self.container, attach.name, False)
        leases = self._recovering.attach_receiver(key, address, link, attach, source, options)
        consumer = address.attach_consumer(link, options)

        def begin() -> None:
            resumption, unsettled, is_incomplete = None, None, False
            if leases is not None and isinstance(consumer, BacklogConsumer):
                resumption = leases.resume(link, consumer)
                unsettled, is_incomplete = unsettled_map(resumption.states, self.engine.remote_max_frame_size)
            granted: Any = consumer.granted
            if granted is not None:
                if not self._fits(link, granted, source):
                    return
                answer, target = as_named(granted.source, source), granted.target
                snd_settle_mode = granted.snd_settle_mode
                offered, told = granted.offered_capabilities, granted.properties
            else:
                answer = Source(
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
                )
                target = attach.target if isinstance(attach.target, Target) else Target()
                snd_settle_mode = 1 if options.presettle else attach.snd_settle_mode
                offered = options.capabilities or None
                told = _described(address, consumer) if ADDRESS_TYPE in options.capabilities else None
            link.accept(
                consumer,
                source=answer,
                target=target,
                snd_settle_mode=snd_settle_mode,
                offered_capabilities=offered,
                properties=told,
                unsettled=unsettled,
                incomplete_unsettled=is_incomplete,
            )
            if answer.default_outcome is not None:
                link.session.default_outcomes[consumer] = known_outcome(answer.default_outcome)
            if resumption is not None:
                resumption.begin(is_limited=attach.incomplete_unsettled)

        self.join(link, known, consumer, begin, lambda error: self._refuse(link, error))

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
            coordinator = self._coordinator or Coordinator(self.space.core, self.limits)
            if isinstance(link.sink, MeteredSink):
                link.sink.port.add_bytes(len(payload))
            coordinator.post(self.space, link, payload, delivery_id, settled, message_format, txn_id)

    def on_transactional_outcome(self, session: Session, delivery_id: int, state: Any, settled: bool) -> None:
        """Keep an outcome for the end of its transaction."""
        if self.space is not None:
            coordinator = self._coordinator or Coordinator(self.space.core, self.limits)
            coordinator.retire(session, delivery_id, state, settled)

    def on_attached(self, link: Link) -> None:
        """Do nothing: the node attaches no links of its own."""

    def on_detached(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        """Remove the link from its address; a dynamic address may end with it."""
        if self._wills is not None:
            self._wills.detached(link, link.error or error, closed=closed)
        if link in self.links:
            is_logged = not self.engine.closed
            self.detached(link, error=_neutral(link.error or error), closed=closed, is_logged=is_logged)
        else:
            self._recovering.left(link, None, closed=closed)

    def leave(self, key: Link, link: ClientLink, *, closed: bool) -> None:
        """Remove a link from its address; its unsettled deliveries may be kept for a resumption."""
        end = link.end
        self._recovering.leave(key, end, closed=closed)
        default = key.session.default_outcomes.get(end)
        if isinstance(default, Released | Modified):
            # What the receiver said of messages that it leaves without an outcome [AMQP 3.5.3].
            ends = end.ends.values() if isinstance(end, AcrossConsumer) else (end,)
            for one in (one for one in ends if isinstance(one, BacklogConsumer)):
                for entry in one.port.take_unsettled():
                    one.on_outcome(entry, default)
        super().leave(key, link, closed=closed)
        if isinstance(end, SubscriberConsumer):
            self._lasting.append((key.session, end))
        self._recovering.left(key, end, closed=closed)
        key.session.default_outcomes.pop(end, None)

    def on_ended(self, session: Session, error: AmqpError | None) -> None:
        """End what lasts as long as the session; its links were detached before."""
        for of, consumer in self._lasting:
            if of is session:
                consumer.lasting.wait("session-end")
        self._recovering.happened("session-end", session)
        if error is not None and not self.engine.closed:
            self.log("session-ended", _neutral(error), channel=session.channel)

    def on_closed(self, error: AmqpError | None) -> None:
        """Leave the node's registry, and end what lasts as long as the connection."""
        if self._wills is not None:
            self._wills.closed(
                is_in_order=error is None and self.engine.is_close_sent, is_node_gone=self.has_lost_front
            )
        for _, consumer in self._lasting:
            consumer.lasting.wait("connection-close")
        self._recovering.happened("connection-close")
        if self._unfinished is not None:
            self._unfinished.leave()
        if self.admission.devices is not None:
            self.admission.devices.leave(self, _neutral(error))
        sasl = self.engine.sasl
        self.disconnected(_neutral(error), login_error=None if sasl is None else sasl.error)
