"""A client's MQTT connection at a node: login, session, and how it ends.

Messages pass directly between the engine's packets and the addresses' ends (``publishing``, ``receiving``); this file
has what is rare.

Rules:
1. The session is the client's, the connection is its holder for a while: filters, packet identifiers and the will are
   kept there (``messaging.sessions``).
2. An address may end a link in the middle of its turn. What follows for the connection is done in its own turn.
3. A client of version 5 is told the reason of every refusal and of the end; of an earlier one, the connection ends
   where the protocol has no word for it.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, ClassVar, Final

from enmasse.errors import RemoteError
from enmasse.messaging.delivery import Consumer
from enmasse.messaging.errors import AttachError
from enmasse.messaging.sessions.sessions import OpenRequest
from enmasse.messaging.sessions.wills import WillMessage
from enmasse.node.connections.client_connection import ClientConnection, ClientLink
from enmasse.node.connections.waiting import PATIENCE_S, Waker
from enmasse.node.devices.tenants import MQTT
from enmasse.node.large_messages import MAX_MESSAGE_BYTES
from enmasse.node.mqtt.devices import DevicePublications, DeviceSubscriptions, NoSession
from enmasse.node.mqtt.login import Login, Refusal
from enmasse.node.mqtt.messages import to_sections
from enmasse.node.mqtt.publications import RECEIVE_MAXIMUM, Publications
from enmasse.node.mqtt.receiving import Encoders
from enmasse.node.mqtt.statistics import FED_BY_NODE, Statistics, is_of_statistics
from enmasse.node.mqtt.subscriptions import Subscriptions
from enmasse.wire.mqtt.connection import Connection
from enmasse.wire.mqtt.handler import PublishSink
from enmasse.wire.mqtt.packets import (
    MAX_PACKET_BYTES,
    Auth,
    ConnackProperties,
    Connect,
    PacketError,
    PublishProperties,
    Reason,
    Subscribe,
    Unsubscribe,
    Will,
    reason_of,
)

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.sessions.session import Session


MAX_KEEP_ALIVE_S: Final = 3_600
"""The longest keep-alive, which clients of version 5 that want a longer one or none are told: a client that is gone
without a word is found within an hour and a half."""

TOPIC_ALIASES: Final = 64
"""Topic aliases that a client may use: each keeps a topic of up to 64 KiB in memory."""

MAX_INFLIGHT: Final = 1_000
"""The most messages of QoS 1 and 2 to a client without an answer, whatever it takes."""

MAX_REFUSALS: Final = 20
"""Refused names that are logged of a connection: it may come with any number of them."""

RESPONSES: Final = "responses"
"""The address under which a client that asks for response information gets a name, if it is there."""

_REFUSED: Final = {
    "amqp:not-found": Reason.NOT_AUTHORIZED,
    "amqp:invalid-field": Reason.NOT_AUTHORIZED,
    "amqp:connection:forced": Reason.SERVER_UNAVAILABLE,
}
"""Reason codes of CONNACK that differ from those of later packets, by condition."""


class MqttConnection(ClientConnection):
    """One client's connection.

    Attributes:
        session: the client's session, once it is open.
        subscriptions: the messages that it receives, once its session is open.
    """

    __slots__ = (
        "_authentication_data", "_connect", "_failure", "_has_session", "_has_told_statistics", "_is_clean_close",
        "_login", "_login_error", "_publications", "_refusals", "_session_expiry_s", "_waker", "is_due",
        "session", "subscriptions",
    )  # fmt: skip
    protocol: ClassVar[str] = "mqtt"
    serves_devices: ClassVar[bool] = True
    first_words: ClassVar[bytes | None] = b""
    engine: Connection
    session: Session
    subscriptions: Subscriptions

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._waker = Waker(self)
        self.is_due = False
        self._publications: Publications | None = None
        self._connect: Connect | None = None
        self._login: Login | None = None
        self._login_error: str | None = None
        self._failure: RemoteError | None = None
        self._has_session = False
        self._is_clean_close = False
        self._session_expiry_s: int | None = None
        self._authentication_data: bytes | None = None
        self._refusals = 0
        """Refused names that were logged."""
        self._has_told_statistics = False
        """True once it was logged that the client publishes to ``$SYS``."""

    @property
    def publications(self) -> Publications:
        """The publications of the client, made with the first message, as many clients only listen."""
        if self._publications is None:
            self._publications = Publications(self)
        return self._publications

    @property
    def encoders(self) -> Encoders:
        """The encoders that all connections of the node share."""
        return self._connections.shared(Encoders)

    @property
    def statistics(self) -> Statistics:
        """The statistics that clients of the node are subscribed to."""
        return self._connections.shared(Statistics)

    def subscribe_to_statistics(self, text: str, identifier: int) -> None:
        """Subscribe to statistics of the space.

        Raises:
            AttachError: the user may not see them.
        """
        self.statistics.subscribe(self, self._connections, text, identifier)

    @property
    def name(self) -> str:
        """The connection's name in reports."""
        return f"MQTT connection of {self.peer}"

    def make_engine(self, node: str, now: float) -> Connection:
        """Make the engine of this connection, and keep it in ``engine``."""
        self.engine = engine = Connection(self, now=now)
        engine.more_room = self.more_room
        engine.keeps_login = self._connections.has_peers
        return engine

    def from_login(self) -> bytes:
        """Return what the client has said from CONNECT on, but for an exchange of AUTH."""
        return self.engine.from_login

    @property
    def final_data(self) -> bytes | None:
        """The last data of an exchange, which the home's CONNACK has."""
        return self._authentication_data

    def handed_in(self, final_data: bytes | None) -> None:
        """Take the last data of the exchange with the front."""
        self._authentication_data = final_data

    # Its turn

    def due(self) -> None:
        """Have ``on_turn`` called before the turn of the loop ends."""
        if not self.is_due and self.space is not None:
            self.is_due = True
            self.space.core.due(self)

    def on_turn(self, now: float) -> None:
        """Do what could not be done in the middle of addresses' turns."""
        if self.engine.closed or not self._has_session:
            return
        deadline = None if self._publications is None else self._publications.go_on(now)
        self.subscriptions.go_on()
        if deadline is not None and self.space is not None:
            self.space.core.schedule(self._waker, deadline)
        if self._failure is not None:
            self.engine.fail(self._failure)
        elif self._publications is not None and self._publications.has_left:
            self.engine.close()

    @property
    def is_failing(self) -> bool:
        """True if the connection ends with this turn, or its next one."""
        return self._failure is not None

    @property
    def why_held(self) -> str:
        """The reason why the client is not read; empty if it is."""
        return "" if self._publications is None else self._publications.why_held

    def fail_with(self, reason: Reason, text: str, *, is_urgent: bool = False) -> None:
        """End the connection, in its turn, with the first reason that was given, unless one is more urgent."""
        if self._failure is None or is_urgent:
            self._failure = PacketError(reason, text)
            self.due()

    def log_refused(self, role: str, address: str, error: RemoteError) -> None:
        """Log that the client may not send to an address or receive from it."""
        if self._refusals < MAX_REFUSALS:
            self._refusals += 1
            self.log("link-refused", error, role=role, address=address)

    def end(self, error: RemoteError) -> None:
        """Tell the client why the connection ends, and close it once that is written."""
        if self.space is None:
            is_other = self.admission.rights.client_problem is not None
            reason = (
                Reason.CLIENT_IDENTIFIER_NOT_VALID if is_other else _REFUSED.get(error.condition) or reason_of(error)
            )
            self.engine.refuse(reason, error.description)
        elif not self._has_session:
            self.engine.fail(error)
        elif self._failure is None:
            self._failure = error
            self.due()

    # Coming

    def on_connect(self, connect: Connect) -> None:
        """Log the client in, and open its session."""
        self._connect = connect
        self.container = connect.client_id
        if self.admission.is_asserted:
            self._admitted(self._authentication_data)
            return
        self._login = Login(self.admission, self._ask, self._admitted)
        self._login.begin(connect)

    def on_auth(self, auth: Auth) -> None:
        """Go on with an exchange, or begin another one."""
        if auth.reason == Reason.REAUTHENTICATE:
            self._authenticate_again(auth)
        elif self._login is not None:
            self._login.answer(auth)

    def _ask(self, challenge: bytes) -> None:
        self.engine.put_auth(Reason.CONTINUE_AUTHENTICATION, challenge)

    def _authenticate_again(self, auth: Auth) -> None:
        admission = self.admission
        before, device, proof = admission.rights.user, admission.device, admission.proof

        def decided(outcome: Refusal | bytes | None) -> None:
            self._login = None
            now = admission.rights.user
            if isinstance(outcome, Refusal):
                self.fail_with(Reason.NOT_AUTHORIZED, outcome.text)
            elif (before and (before.space, before.owner)) != (now and (now.space, now.owner)) or (
                device and device.id
            ) != (admission.device and admission.device.id):
                admission.rights.user, admission.device, admission.proof = before, device, proof
                self.fail_with(Reason.NOT_AUTHORIZED, "the connection belongs to another user")
            else:
                self.engine.put_auth(Reason.SUCCESS, outcome)

        self._login = Login(self.admission, self._ask, decided)
        self._login.exchange(auth.method, auth.data)

    def _admitted(self, outcome: Refusal | bytes | None) -> None:
        self._login = None
        if self.engine.closed:
            return
        if isinstance(outcome, Refusal):
            self._login_error = f"the login has failed: {outcome.text}"
            self.engine.refuse(outcome.reason, outcome.text)
            return
        self._authentication_data = outcome
        # With its password and its will it is needed no longer.
        connect, self._connect = self._connect, None
        assert connect is not None
        # An identifier that nobody else has, and nobody can guess [MQTT-3.1.3-6].
        client_id = connect.client_id or f"enmasse-{secrets.token_hex(12)}"
        if not self.enter(None, client_id):
            return
        try:
            if self.admission.device is not None:
                self._serve_device(connect, client_id)
            else:
                self._open_session(connect, client_id)
        except RemoteError as error:
            self.log("connection-refused", error)
            is_other = error.condition == "amqp:unauthorized-access" and "belongs" in error.description
            self.engine.refuse(
                Reason.CLIENT_IDENTIFIER_NOT_VALID if is_other else reason_of(error), error.description
            )

    def _serve_device(self, connect: Connect, client_id: str) -> None:
        """Speak Hono's topics with a device, which has no session."""
        devices, device = self.admission.devices, self.admission.device
        assert devices is not None
        assert device is not None
        devices.enter(self, device, MQTT)
        self.session = NoSession()  # type: ignore[assignment]  # the little of it that a connection needs
        subscriptions = DeviceSubscriptions(self, devices)
        self.subscriptions = subscriptions  # type: ignore[assignment]  # as much of them as a connection needs
        self._publications = DevicePublications(self, devices, subscriptions)
        self._has_session = True
        self._accept(connect, client_id)

    def _open_session(self, connect: Connect, client_id: str) -> None:
        space, rights = self.space, self.admission.rights
        assert space is not None
        request = OpenRequest(
            client_id=client_id,
            owner=rights.owner,
            user=rights.username,
            may_manage=rights.may_manage,
            is_clean=connect.is_clean,
            expiry_s=connect.session_expiry_s,
            receive_maximum=min(connect.receive_maximum, space.usage.limits.mqtt_inflight or MAX_INFLIGHT),
            may_receive=self._may_receive,
            parts=rights.parts,
            may_send=self._may_send,
            will=None if connect.will is None or self._is_for_nobody(connect.will) else self._will(connect.will),
        )

        found: list[str | None] = []

        def done(problem: str | None) -> None:
            if self._has_session:
                self._opened(connect, client_id, problem)
            else:
                found.append(problem)

        self.subscriptions = Subscriptions(self)
        self.session = self.subscriptions.session = space.sessions.open(request, self.subscriptions, done)
        self._has_session = True
        if found:
            self._opened(connect, client_id, found[0])

    def _opened(self, connect: Connect, client_id: str, problem: str | None) -> None:
        if self.engine.closed:
            return
        if problem is None:
            self._accept(connect, client_id)
        else:
            self.engine.refuse(Reason.SERVER_UNAVAILABLE, f"the session cannot be kept: {problem}")

    def _accept(self, connect: Connect, client_id: str) -> None:
        session, engine, space = self.session, self.engine, self.space
        assert space is not None
        limits = space.usage.limits
        told = ConnackProperties(
            receive_maximum=limits.mqtt_receive_maximum or RECEIVE_MAXIMUM,
            maximum_packet_size=limits.mqtt_packet_bytes or MAX_PACKET_BYTES,
            topic_alias_maximum=TOPIC_ALIASES,
            authentication_data=self._authentication_data,
        )
        if session.expiry_s != connect.session_expiry_s:
            told.session_expiry_s = session.expiry_s
        if not connect.client_id:
            told.assigned_client_id = client_id
        longest_s = limits.mqtt_keep_alive_s or MAX_KEEP_ALIVE_S
        if not 0 < connect.keep_alive_s <= longest_s:
            told.server_keep_alive_s = longest_s
        if connect.wants_response_information:
            told.response_information = self._response_information(client_id)
        engine.accept(session.is_present, told)
        session.resume()

    def _response_information(self, client_id: str) -> str | None:
        """Return the name at which a client may have its answers, if there is one that it may receive from."""
        name = f"{RESPONSES}/{client_id}"
        try:
            assert self.space is not None
            self.space.find_target(name)
        except RemoteError:
            return None
        return name if self._may_receive(name) else None

    def _may_receive(self, name: str) -> bool:
        try:
            self.admission.rights.require_receive(name)
        except AttachError:
            return False
        return True

    def _may_send(self, name: str) -> bool:
        try:
            self.admission.rights.require_send(name)
        except AttachError:
            return False
        return True

    def _is_for_nobody(self, will: Will) -> bool:
        """Return true if a will is to be sent where the node alone tells something, as those of bridges are."""
        if not is_of_statistics(will.topic):
            return False
        self.drop_statistics(will.topic)
        return True

    def drop_statistics(self, topic: str) -> None:
        """Count a message that would be statistics of the node, and log the first: nobody else feeds these."""
        assert self.space is not None
        self.space.unroutable += 1
        if not self._has_told_statistics:
            self._has_told_statistics = True
            self.log("link-refused", AttachError("amqp:not-allowed", FED_BY_NODE), role="sender", address=topic)

    def _will(self, will: Will) -> WillMessage:
        assert self.space is not None
        parts = to_sections(will.qos, will.is_retained, will.properties, self.space.core.wall_us // 1000)
        payload = parts.encode(will.payload)
        if len(payload) > MAX_MESSAGE_BYTES:
            raise RemoteError("amqp:link:message-size-exceeded", f"a will has up to {MAX_MESSAGE_BYTES} bytes")
        return WillMessage(will.topic, payload, will.delay_s)

    # Going

    def on_disconnect(self, reason: int, session_expiry_s: int | None) -> bool:
        """Note that the client leaves: its will is not sent, unless it asks for that.

        Returns:
            True if nothing waits that it published before.
        """
        self._is_clean_close = reason == Reason.SUCCESS
        self._session_expiry_s = session_expiry_s
        if self._publications is None or not self._publications.leave():
            return True
        if self._is_clean_close:
            self.session.cancel_will()
        assert self.space is not None
        self.space.core.call_later(PATIENCE_S, self.engine.close)
        return False

    def on_closed(self, error: Exception | None) -> None:
        """Leave the session and detach all links, as the connection is closed."""
        if self._has_session:
            if self._publications is not None:
                self._publications.close()
            self.session.detach(
                self.subscriptions,
                is_clean_close=self._is_clean_close,
                expiry_s=self._session_expiry_s,
                is_node_gone=self.has_lost_front,
            )
            self.subscriptions.close()
            self.statistics.leave(self)
        for key in list(self.links):
            self.detached(key, closed=False, is_logged=False)
        if self.admission.devices is not None:
            self.admission.devices.leave(self, error)
        found = error if isinstance(error, RemoteError) else None
        self.disconnected(found, login_error=self._login_error)
        # These know the connection.
        if self._has_session:
            self._has_session = False
            del self.subscriptions
        self._publications = self._login = self._connect = None

    def leave(self, key: Any, link: ClientLink, *, closed: bool) -> None:
        """Remove a link from its address; that of a receiver is its session's to remove."""
        if not isinstance(link.end, Consumer):
            super().leave(key, link, closed=closed)

    def review(self) -> None:
        """Close the connection, or end subscriptions, that changed users or permissions do not allow any more."""
        reason = self.admission.review()
        if reason is not None:
            self.close("amqp:unauthorized-access", f"{reason}; authenticate again")
        elif self._has_session:
            if self._publications is not None:
                self._publications.forget_targets()
            self.session.review()
            if not self.admission.rights.may_view:
                self._end_statistics()

    def _end_statistics(self) -> None:
        error = AttachError("amqp:unauthorized-access", f"user {self.user!r} may not see statistics any more")
        for text in self.statistics.of(self):
            self.statistics.unsubscribe(self, text)
            self.subscriptions.filter_ended(text, error)

    def find_name(self, name: str) -> Address:
        """Return the address that a topic name leads to; ``*`` is a letter of it like any other.

        Raises:
            AttachError: there is none, or the user may not send to it.
        """
        if "*" not in name:
            return self.find_target(name)
        assert self.space is not None
        self.admission.rights.require_send(name)
        return self.space.find(name)

    # The engine's handler, passed on

    def make_sink(self, topic: str, properties: PublishProperties | None) -> PublishSink:
        """Return the sink for messages with this topic and these properties."""
        return self.publications.make_sink(topic, properties)

    def on_pubrel(self, packet_id: int, reason: int) -> None:
        """Handle the client's release of a message of QoS 2."""
        self.publications.on_pubrel(packet_id)

    def on_puback(self, packet_id: int, reason: int) -> None:
        """Handle the answer to a message of QoS 1."""
        self.subscriptions.on_puback(packet_id, reason)

    def on_pubrec(self, packet_id: int, reason: int) -> None:
        """Handle the first answer to a message of QoS 2."""
        self.subscriptions.on_pubrec(packet_id, reason)

    def on_pubcomp(self, packet_id: int, reason: int) -> None:
        """Handle the last answer to a message of QoS 2."""
        self.subscriptions.on_pubcomp(packet_id)

    def on_subscribe(self, subscribe: Subscribe) -> None:
        """Subscribe to filters."""
        self.subscriptions.subscribe(subscribe)

    def on_unsubscribe(self, unsubscribe: Unsubscribe) -> None:
        """Unsubscribe from filters."""
        self.subscriptions.unsubscribe(unsubscribe)

    def on_blocked(self, is_blocked: bool) -> None:
        """Stop or resume sending messages, as the socket is blocked or not."""
        if self._has_session:
            self.subscriptions.on_blocked(is_blocked)

    def on_written(self) -> None:
        """Renew the credit of subscriptions of QoS 0, whose messages are being written."""
        if self._has_session:
            self.subscriptions.on_written()
