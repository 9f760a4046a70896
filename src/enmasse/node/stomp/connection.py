"""A client's STOMP connection at a node: login, links, acknowledgements and transactions.

Messages pass directly between the engine's frames and the addresses' ends (``links``); this file has what is rare.

Rules:
1. An address may end a link in the middle of its turn. What follows for the connection (its end, the end of a sender)
   is done in the connection's own turn, ``on_turn``.
2. Every error is answered in the same way: ``ERROR``, and the end of the connection.
3. ``COMMIT`` and ``ABORT`` come after the messages that were sent before them, also those that wait; what has to
   come after such a frame (messages, what is of the same transaction) waits with it. All else is served at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from enmasse.errors import RemoteError
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.queues.subscribing import SubscriberConsumer
from enmasse.messaging.streams.readers import CONSUMER
from enmasse.node.connections.client_connection import ClientConnection, ClientLink, require_filters
from enmasse.node.connections.waiting import PATIENCE_S, WaitingRoom, Waker
from enmasse.node.large_messages import MAX_MESSAGE_BYTES
from enmasse.node.stomp.headers import (
    INVALID,
    durable_name,
    filters_of,
    is_true,
    mode_of,
    required,
    resolve,
    subscription_of,
    window_of,
)
from enmasse.node.stomp.links import WAITING_OVERHEAD_BYTES, Deferring, Receiver, Sender, Sending
from enmasse.node.stomp.messages import USER_ID, to_sections
from enmasse.node.stomp.settling import Posting, Settling
from enmasse.node.users.authentication import IN_THE_CLEAR
from enmasse.pending import Pending
from enmasse.version import __version__
from enmasse.wire.sasl.mechanisms import Admitted, SaslCode, Verdict
from enmasse.wire.stomp.connection import LINGER_S, Connection
from enmasse.wire.stomp.handler import SendSink

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.space import Space


MAX_SENDERS: Final = 100
"""The most destinations that a connection sends to; the idle one that was used least recently makes room."""

MAX_WAITING: Final = 1_000
"""The most messages of a connection that wait for credit; a connection with more is not read."""


class _Deferred(NamedTuple):
    """A frame that comes after messages that wait."""

    transaction: str | None
    """The one that it ends, or is part of."""
    act: Callable[[], None]
    receipt: bytes | None
    size: int


class StompConnection(ClientConnection):
    """One client's connection.

    Attributes:
        serial: the latest number of a delivery, in either direction.
        settling: the deliveries without an outcome, and the transactions.
        unacknowledged: the same deliveries by number.
        unanswered: the number of the client's messages whose receipt is due.
        written: the ``auto`` subscriptions that were sent something since the last write.
    """

    __slots__ = (
        "_client", "_deferred", "_dropped", "_failure", "_goodbye", "_handles", "_is_leaving", "_is_stopped",
        "_login_error", "_receivers", "_senders", "_waiting", "_waiting_bytes", "_waiting_room", "_waker", "is_due",
        "serial", "settling", "unacknowledged", "unanswered", "written",
    )  # fmt: skip

    protocol: ClassVar[str] = "stomp"
    first_words: ClassVar[bytes | None] = b""
    engine: Connection

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._waker = Waker(self)
        self.serial = 0
        self.settling = Settling(self)
        self.unacknowledged = self.settling.unacknowledged
        self.unanswered = 0
        self.written: list[Receiver] = []
        self.is_due = False
        self._handles = 0
        self._senders: dict[str, Sender] = {}
        self._receivers: dict[str, Receiver] = {}
        self._dropped: list[Sender] = []
        self._failure: tuple[RemoteError, bytes | None] | None = None
        self._client = ""
        """The client's ``client-id``, if it has one."""
        self._login_error: str | None = None
        self._goodbye: bytes | None = None
        self._is_leaving = False
        self._waiting = self._waiting_bytes = 0
        self._waiting_room: WaitingRoom | None = None
        self._deferred: deque[_Deferred] = deque()
        self._is_stopped = False
        """True while the client is not read, as too much of it waits."""

    @property
    def name(self) -> str:
        """The connection's name in reports."""
        return f"STOMP connection of {self.peer}"

    @property
    def transactions(self) -> int:
        """The number of open transactions."""
        return self.settling.transactions

    def make_engine(self, node: str, now: float) -> Connection:
        """Make the engine of this connection, and keep it in ``engine``."""
        self.engine = engine = Connection(self, now=now, server=f"enmasse/{__version__}")
        engine.more_room = self.more_room
        engine.keeps_login = self._connections.has_peers
        return engine

    def from_login(self) -> bytes:
        """Return what the client has said from ``CONNECT`` on."""
        return self.engine.from_login

    # Its turn

    def due(self) -> None:
        """Have ``on_turn`` called before the turn of the loop ends."""
        if not self.is_due and self.space is not None:
            self.is_due = True
            self.space.core.due(self)

    def on_turn(self, now: float) -> None:
        """Do what could not be done in the middle of addresses' turns."""
        dropped, self._dropped = self._dropped, []
        for sender in dropped:
            self._remove(sender)
        if self._waiting or self._deferred:
            self._go_on(now)
        if self._failure is not None:
            self.engine.fail(*self._failure)
        elif self._is_leaving and not (self.unanswered or self._waiting or self._deferred):
            if self._goodbye is not None:
                self.engine.put_receipt(self._goodbye)
            self.engine.close()

    def _go_on(self, now: float) -> None:
        """Send what waits as far as there is credit, then do what comes after it."""
        while True:
            senders = [sender for sender in self._senders.values() if sender.waiting]
            for sender in senders:
                sender.expire(now)
            if self.is_failing:
                return
            deadline = min((found for sender in senders if (found := sender.go_on(now)) is not None), default=None)
            if deadline is not None:
                self.core.schedule(self._waker, deadline)
            if self._waiting or not self._deferred:
                return
            deferred = self._deferred.popleft()
            self._count_waiting(-deferred.size)
            try:
                deferred.act()
            except RemoteError as error:
                self.fail(error.condition, error.description, deferred.receipt)

    @property
    def core(self) -> Core:
        """The core whose turn it takes part in."""
        return self._space().core

    @property
    def is_failing(self) -> bool:
        """True if the connection ends with this turn, or its next one."""
        return self._failure is not None

    @property
    def why_held(self) -> str:
        """The reason why the client is not read; empty if it is."""
        if not self._is_stopped:
            return ""
        count = self._waiting + len(self._deferred)
        return f"{count} messages, of {self._waiting_bytes} bytes, wait for a receiver, room or a rate"

    def fail(self, condition: str, description: str, receipt: bytes | None = None) -> None:
        """End the connection, in its turn, with the first reason that was given."""
        if self._failure is None:
            self._failure = RemoteError(condition, description), receipt
            self.due()

    def end(self, error: RemoteError) -> None:
        """Tell the client why the connection ends, and close it once that is written."""
        if self.space is None:
            self.engine.fail(error)
        else:
            self.fail(error.condition, error.description)

    def _leave_late(self) -> None:
        if not self.engine.closed:
            self.fail(
                "amqp:resource-limit-exceeded",
                f"not all that was sent had its outcome within {PATIENCE_S:.0f} s after DISCONNECT",
                self._goodbye,
            )

    def answered(self) -> None:
        """Go on with DISCONNECT after a receipt, if the client waits for that."""
        if self._is_leaving:
            self.due()

    # The engine's handler: coming and going

    def on_connect(self, headers: dict[str, str]) -> None:
        """Log the client in, and open the connection in its space."""
        user, proof, host = headers.get("login", ""), headers.get("passcode", ""), headers.get("host")

        def decided(verdict: Any) -> None:
            if verdict is True or isinstance(verdict, Admitted):
                self._enter(host, headers.get("client-id", ""))
                return
            is_later = verdict is SaslCode.SYS_TEMP
            wrong = "login or passcode is wrong" if self.admission.is_private else IN_THE_CLEAR
            reason = "try again later" if is_later else wrong
            self._login_error = f"the login has failed: {reason}"
            self.engine.fail(RemoteError("amqp:unauthorized-access", self._login_error))

        verdict: Verdict = True  # without credentials a client may enter open spaces
        if self.admission.is_asserted:
            pass
        elif user:
            verdict = self.admission.login(user, proof, host)
        elif proof:
            verdict = self.admission.token("", proof, host)
        if isinstance(verdict, Pending):
            verdict.then(decided)
        else:
            decided(verdict)

    def _enter(self, host: str | None, client: str) -> None:
        if self.engine.closed:
            return
        self._client = client
        session = f"stomp-{self.number}"
        if self.enter(host, client or session):
            self.engine.connected(session)

    def on_closed(self, error: Exception | None) -> None:
        """Detach all links, as the connection is closed."""
        self.settling.rollback()
        for key in list(self.links):
            self.detached(key, closed=False, is_logged=False)
        for receiver in self._receivers.values():
            receiver.is_detach_sent = True
        self._senders.clear()
        self._receivers.clear()
        self._deferred.clear()
        if self._waiting_room is not None:
            self._waiting_room.resize(0)
        self.unacknowledged.clear()
        found = error if isinstance(error, RemoteError) else None
        if self.space is not None and not self.engine.closed:
            self.space.core.call_later(LINGER_S, self.engine.close)
        self.disconnected(found, login_error=self._login_error)

    def on_blocked(self, is_blocked: bool) -> None:
        """Stop or continue sending, as the socket is blocked or not."""
        for receiver in self._receivers.values():
            receiver.consumer.on_blocked(is_blocked)

    def on_written(self) -> None:
        """Grant credit to ``auto`` subscriptions, whose messages are being written."""
        if self.written:
            written, self.written = self.written, []
            for receiver in written:
                if not receiver.is_detach_sent:
                    receiver.refill()

    def on_frame(self, command: bytes, headers: dict[str, str], receipt: bytes | None) -> None:
        """Handle a frame other than ``SEND``."""
        is_end = command in (b"COMMIT", b"ABORT")
        transaction = headers.get("transaction")
        if (is_end and (self._waiting or self._deferred)) or self._is_deferred(transaction):
            size = sum(map(len, headers.values()))
            self.defer(transaction, lambda: self._do(command, headers, receipt), receipt, size)
        else:
            self._do(command, headers, receipt)

    def _do(self, command: bytes, headers: dict[str, str], receipt: bytes | None) -> None:
        if command in (b"ACK", b"NACK"):
            self.settling.settle(command == b"ACK", headers, receipt)
            return
        if command in (b"COMMIT", b"ABORT"):
            self.settling.end(required(headers, "transaction", command.decode()), command == b"COMMIT", receipt)
            return
        if command == b"DISCONNECT":
            self._is_leaving = True
            self._goodbye = receipt
            self.engine.hold_input(True)
            self._space().core.call_later(PATIENCE_S, self._leave_late)
            self.due()
            return
        if command == b"SUBSCRIBE":
            self._subscribe(headers, receipt)
            return
        if command == b"UNSUBSCRIBE":
            self._unsubscribe(headers)
        else:
            self.settling.begin(required(headers, "transaction", command.decode()))
        if receipt is not None:
            self.engine.put_receipt(receipt)

    # Sending

    def make_sink(self, headers: dict[str, str]) -> SendSink:
        """Return the sink for messages with these headers."""
        transaction = headers.get("transaction")
        if self._deferred and (transaction is None or self._is_deferred(transaction)):
            return Deferring(self, headers)
        return self.sink_of(headers)

    def sink_of(self, headers: dict[str, str]) -> SendSink:
        """Return the sink for messages with these headers, that nothing is before."""
        destination = required(headers, "destination", "SEND")
        transaction = headers.get("transaction")
        if reply_to := headers.get("reply-to"):
            # Whoever answers may speak another protocol, where no name has such a prefix.
            headers = {**headers, "reply-to": resolve(self._space(), reply_to)}
        head = to_sections(headers).encode_head()
        if USER_ID in headers and not self.admission.is_administrator:
            self.admission.rights.require_user_id(headers[USER_ID].encode())
        sender = self._sender(destination)
        if transaction is not None:
            return Posting(self, sender, transaction, head)
        return Sending(sender, head)

    def _sender(self, destination: str) -> Sender:
        sender = self._senders.get(destination)
        if sender is not None:
            # The most recently used one is the last in order.
            del self._senders[destination]
            self._senders[destination] = sender
            return sender
        space = self._space()
        if len(self._senders) >= MAX_SENDERS:
            for known in self._senders.values():
                if known.is_idle:
                    self._remove(known)
                    break
        target = resolve(space, destination)
        address = self.find_target(target)
        sender = Sender(self, destination, target)
        link = ClientLink(sender, destination, self._handle("s"), target, is_sender=True)
        try:
            self.count(link, address)
            end = address.attach_producer(self.bounds.port(space, link, address), target, AttachOptions())
        except RemoteError as error:
            self.refused(link, error)
            raise
        sender.sink, most_bytes = self.bounds.sink(link, end, self.bounds.size_limit(space, address))
        sender.most_bytes = min(most_bytes or MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES)
        self._senders[destination] = sender
        self.join(sender, link, end, lambda: None, sender.refuse)
        return sender

    def drop(self, sender: Sender) -> None:
        """Remove a sender in the connection's turn."""
        self._dropped.append(sender)
        self.due()

    def _remove(self, sender: Sender) -> None:
        sender.is_detach_sent = True
        if self._senders.get(sender.destination) is sender:
            del self._senders[sender.destination]
        self.engine.forget_sinks()
        self.detached(sender)

    def wait(self, size: int) -> None:
        """Count a message that waits for credit."""
        self._waiting += 1
        self._count_waiting(size)
        self.due()

    def waited(self, size: int) -> None:
        """Count a message that waits no longer."""
        self._waiting -= 1
        self._count_waiting(-size)

    def _count_waiting(self, change: int) -> None:
        """Count bytes that wait, and read the client as long as that is not too much."""
        self._waiting_bytes += change
        if self._waiting_room is None:
            self._waiting_room = self.waiting_room()
        has_room = self._waiting_room.resize(self._waiting_bytes)
        count = self._waiting + len(self._deferred)
        if not self._is_stopped:
            if count > MAX_WAITING or not has_room:
                self._is_stopped = True
                self.engine.hold_input(True)
        elif has_room and 2 * count <= MAX_WAITING and not self._is_leaving:
            self._is_stopped = False
            self.engine.hold_input(False)

    def defer(self, transaction: str | None, act: Callable[[], None], receipt: bytes | None, size: int) -> None:
        """Do what a frame asks for once everything is sent that waits now."""
        if not self._deferred:
            # Those of messages do not ask whether something is before them.
            self.engine.forget_sinks()
        deferred = _Deferred(transaction, act, receipt, size + WAITING_OVERHEAD_BYTES)
        self._deferred.append(deferred)
        self._count_waiting(deferred.size)
        self.due()

    def _is_deferred(self, transaction: str | None) -> bool:
        return transaction is not None and any(one.transaction == transaction for one in self._deferred)

    # Receiving

    def _subscribe(self, headers: dict[str, str], receipt: bytes | None) -> None:
        destination = required(headers, "destination", "SUBSCRIBE")
        name = subscription_of(headers, "SUBSCRIBE", self.engine.version)
        if name in self._receivers:
            raise RemoteError("amqp:not-allowed", f"there is a subscription {name!r:.100} already")
        mode = mode_of(headers)
        options = self._options(headers, name, resolve(self._space(), destination), mode)
        address, source = self.find_source(options.source, options)
        options.source = source
        receiver = Receiver(self, name, destination, mode, window_of(headers, mode))
        receiver.prefix = destination.removesuffix(source)
        link = ClientLink(receiver, name, self._handle("r"), source, is_sender=False)
        try:
            require_filters(address, options)
            self.count(link, address)
            consumer = address.attach_consumer(receiver, options)
        except RemoteError as error:
            self.refused(link, error)
            raise
        receiver.consumer = consumer
        receiver.receipt = receipt
        self._receivers[name] = receiver

        def refuse(error: RemoteError) -> None:
            receiver.is_detach_sent = True
            self.fail(error.condition, error.description, receipt)

        self.join(receiver, link, consumer, receiver.begin, refuse)

    def _options(self, headers: dict[str, str], name: str, source: str, mode: str) -> AttachOptions:
        rights = self.admission.rights
        filters = filters_of(headers)
        lasting = durable_name(headers, name)
        if lasting is not None and not self._client:
            raise RemoteError(INVALID, "a durable subscription needs a client-id, which CONNECT gives")
        return AttachOptions(
            # The offset of a stream's named consumer moves with accepted messages, so these are not settled.
            presettle=mode == "auto" and CONSUMER not in filters,
            filters=filters,
            name=lasting or name,
            container=self.container,
            owner=rights.owner,
            user=rights.username,
            may_manage=rights.may_manage,
            source=source,
            url=self.url,
            browse=is_true(headers, "browser"),
            is_durable=lasting is not None,
            expiry_policy="never" if lasting is not None else "session-end",
        )

    def _unsubscribe(self, headers: dict[str, str]) -> None:
        name = subscription_of(headers, "UNSUBSCRIBE", self.engine.version)
        if name not in self._receivers and not headers.get("id"):
            source = resolve(self._space(), name)
            same = (one for one in self._receivers if resolve(self._space(), one) == source)
            name = next(same, name)
        receiver = self._receivers.pop(name, None)
        if receiver is None:
            raise RemoteError("amqp:not-found", f"there is no subscription {name!r:.100}")
        receiver.is_detach_sent = True
        # One that ends before it was answered was dealt with, too.
        receiver.put_receipt()
        # A durable subscription continues, unless the client names it to end it.
        is_lasting = isinstance(receiver.consumer, SubscriberConsumer) and durable_name(headers, name) is None
        self.detached(receiver, closed=not is_lasting)

    def on_acknowledge(self, number: int) -> None:
        """Accept a delivery, or all up to it."""
        self.settling.acknowledge(number)

    # Shared

    def _space(self) -> Space:
        assert self.space is not None
        return self.space

    def _handle(self, kind: str) -> str:
        self._handles += 1
        return f"{kind}{self._handles}"
