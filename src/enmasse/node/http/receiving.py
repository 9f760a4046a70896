"""Receiving by HTTP: messages under leases, which clients settle and renew.

Rules:
1. A request has a link of its own, as long as it waits. It is answered at the end of the first turn that brought
   something, or when its time is up.
2. What was handed out for a client that is gone before it was answered is released: nobody has seen it.
3. An answer holds as many bytes of messages as its engine has room for, some 1 MiB at most, and one more message.
4. While the client does not read what it was answered, no messages are taken for another answer.
5. The time of a request begins when it is attached. Where whoever is behind the address answers that, a request that
   waits for nothing is answered once they have said what there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Modified, Rejected
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.selectors.selector import SELECTOR_FILTER
from enmasse.node.connections.client_connection import ClientLink, require_filters
from enmasse.node.http.cloudevents import BATCH_TYPE, event_of
from enmasse.node.http.documents import from_sections
from enmasse.node.http.leases import Confirmation, Holder
from enmasse.node.http.routes import Route, check_query, http_error, number, seconds, switch
from enmasse.node.http.sending import MAX_WAIT_S
from enmasse.node.http.values import INVALID, dumped, read_json, size_of
from enmasse.node.large_messages import Gathered
from enmasse.wire.http.answers import HttpError, head

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.delivery import Consumer
    from enmasse.node.http.connection import HttpConnection
    from enmasse.wire.http.heads import Request


MAX_MESSAGES: Final = 1_000
STEP_BYTES: Final = 16 << 10
"""The bytes of messages after which the engine is asked for room again."""

LEASE_S: Final = 30.0
MAX_LEASE_S: Final = 12 * 3_600.0

JSON: Final = head(200, "application/json")
"""The head of an answer in JSON."""


class Receiving:
    """A request for messages; a ``ConsumerPort``.

    Args:
        connection: the client's.
        address: the address as the client names it.
        most: the most messages.
        wait_s: the seconds for which it waits for the first.
    """

    __slots__ = (
        "_bytes", "_connection", "_deadline", "_got", "_is_draining", "_mark", "_most", "_wait_s", "address",
        "consumer", "credit", "has_begun", "is_detach_sent", "is_over",
    )  # fmt: skip

    waits_for_reader: ClassVar[bool] = True
    """True if its time begins once the client has read what it was answered before."""

    def __init__(self, connection: HttpConnection, address: str, most: int, wait_s: float) -> None:
        self._connection = connection
        self.address = address
        self._most = most
        self._wait_s = wait_s
        self._deadline: float | None = None
        self.consumer: Consumer
        self.credit = 0
        self.is_detach_sent = False
        self.has_begun = False
        """True once it is attached."""
        self.is_over = False
        """True once it is answered, or never will be."""
        self._is_draining = False
        """True while nothing has said yet that there is no more for now, if it waits for that."""
        self._got: list[tuple[Any, bytes]] = []
        """The deliveries, of which those that are settled already are None, and the messages."""
        self._bytes = 0
        self._mark = STEP_BYTES

    # The request

    def start(self) -> None:
        """Attach.

        Raises:
            HttpError: the address gives nothing to this user.
        """
        try:
            self._attach()
        except RemoteError as error:
            self.is_over = True
            raise http_error(error) from None

    def _begin(self) -> None:
        """Grant credit, as it is attached."""
        connection = self._connection
        self.has_begun = True
        self.credit = self._most
        if connection.engine.is_blocked:
            self.consumer.on_blocked(True)
        self._is_draining = self.consumer.opening is not None and not self._wait_s
        self.consumer.on_credit(self._most, self._is_draining or self._drains())
        connection.due()

    def _refuse(self, error: RemoteError) -> None:
        """Answer that the address gives nothing."""
        self.is_over = True
        self._connection.finish_with(http_error(error))

    def wait_no_longer(self) -> None:
        """Answer with what there is: the client says nothing more, and may be gone."""
        self._wait_s = 0.0
        if self._deadline is not None:
            self._deadline = 0.0
            self._connection.due()

    def on_blocked(self, is_blocked: bool) -> None:
        """Stop or resume taking messages."""
        self.consumer.on_blocked(is_blocked)
        self._connection.due()

    def _options(self, address: Address) -> AttachOptions:
        rights = self._connection.admission.rights
        return AttachOptions(
            name=f"http-{self._connection.number}",
            container=self._connection.container,
            owner=rights.owner,
            user=rights.username,
            may_manage=rights.may_manage,
            source=self.address,
            url=self._connection.url,
            filters=self._filters(address),
        )

    def _filters(self, address: Address) -> dict[str, Any]:
        return {}

    def _drains(self) -> bool:
        return False

    def _attach(self) -> None:
        connection = self._connection
        address, source = connection.find_source(self.address)
        options = self._options(address)
        options.source = source
        link = ClientLink(self, options.name, "receive", self.address, is_sender=False)
        try:
            require_filters(address, options)
            connection.count(link, address)
            self.consumer = address.attach_consumer(self, options)
        except RemoteError as error:
            connection.refused(link, error)
            raise
        connection.join(self, link, self.consumer, self._begin, self._refuse)

    def on_turn(self, now: float) -> float | None:
        """Answer, if there is something or time is up; else return when that is."""
        if not self._got and self._connection.engine.is_blocked and self.waits_for_reader:
            self._deadline = None
            return None
        if self._is_draining and not self._got:
            return None
        if self._deadline is None:
            self._deadline = now + self._wait_s
        if self._got or now >= self._deadline:
            self._end(now)
            return None
        return self._deadline

    def _end(self, now: float) -> None:
        raise NotImplementedError

    def _wants_events(self) -> bool:
        """Return true if the client wants messages as a batch of CloudEvents."""
        request = self._connection.engine.request
        return request is not None and BATCH_TYPE in request.headers.get("accept", "").lower()

    def _event(self, payload: bytes, name: str) -> dict[str, Any]:
        """Return a message as a CloudEvent; ``name`` is its id if it has none itself."""
        source = f"/{self._connection.open_space.name}/{self.address}"
        return event_of(payload, source=quote(source), name=name or token_urlsafe(12))

    def _leave(self) -> None:
        """Detach from the address."""
        self.credit = 0
        self.is_over = True
        self._connection.detached(self, is_logged=False)

    def cancel(self) -> None:
        """Give everything back, as the client is gone."""
        if self.is_over:
            return
        self.credit = 0
        self._release()
        self._leave()

    def _release(self) -> None:
        got, self._got = self._got, []
        for delivery, _ in got:
            if delivery is not None:
                self.consumer.on_outcome(delivery, RELEASED)

    # The port

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        """Take one message for one credit."""
        self.credit -= 1
        self.put(delivery, payload, settled)

    def put(self, delivery: Any, payload: bytes, settled: bool) -> None:
        """Take a message whose credit is used up."""
        if self.is_over:
            if not settled and not self.is_detach_sent:
                self.consumer.on_outcome(delivery, RELEASED)
            return
        self._got.append((None if settled else delivery, payload))
        self._bytes += size_of(payload)
        if self._bytes >= self._mark:
            self._gather()
        self._connection.due()

    def _gather(self) -> None:
        """Take no more than there is room for."""
        engine = self._connection.engine
        if not engine.gather(self._bytes) or self._bytes >= engine.room:
            self.credit = 0
            # An address may be in the middle of a run, whose length followed from the credit.
            self.consumer.is_blocked = True
        self._mark = self._bytes + STEP_BYTES

    def admits(self, size: int) -> bool:
        """Return true if there is room for a large message."""
        return self._connection.engine.admits(size)

    def follow(self, delivery: Any) -> bool:
        """Return false: what was taken is not held back."""
        return False

    def send_while_it_comes(self, delivery: Any, settled: bool, message_format: int = 0) -> Gathered:
        """Begin to take a message that is still being received."""
        return Gathered(self, delivery, settled)

    def take_back(self) -> None:
        """Give a credit back whose message was not sent."""
        if not self.is_over:
            self.credit += 1
            self.consumer.on_credit(1, False)

    @property
    def holds_back(self) -> bool:
        """Return false: the answer is bounded."""
        return False

    def drained(self) -> None:
        """Note that there is nothing more for now."""
        self._is_draining = False
        self.credit = 0
        self._connection.due()

    def take_unsettled(self) -> list[Any]:
        """Remove and return the deliveries without an outcome."""
        got, self._got = self._got, []
        return [delivery for delivery, _ in got if delivery is not None]

    def take_from(self, sink: Any) -> list[Any]:
        """Remove and return what one of several ends has sent and has no outcome yet."""
        mine = [delivery for delivery, _ in self._got if delivery is not None and delivery.sink is sink]
        self._got = [one for one in self._got if one[0] is None or one[0].sink is not sink]
        return mine

    def detach(self, error: Any = None) -> None:
        """End the request, as the address gives no more."""
        if self.is_detach_sent:
            return
        self.is_detach_sent = True
        if self.is_over:
            return
        self.is_over = True
        self.credit = 0
        problem = error if isinstance(error, AmqpError) else AmqpError("amqp:link:detach-forced")
        reason = http_error(RemoteError(str(problem.condition), problem.description or "the address is gone"))
        connection = self._connection
        connection.soon(lambda: connection.detached(self, is_logged=False))
        connection.finish_with(reason)


# Leases


class Leasing(Receiving):
    """A request for messages that are leased, or accepted as they are answered."""

    __slots__ = ("_accepted", "_holder", "_is_auto", "_lease_s", "_selector")

    def __init__(self, connection: HttpConnection, route: Route) -> None:
        query = route.query
        check_query(route, "POST")
        most = number(query, "max", 1, 1, MAX_MESSAGES)
        super().__init__(connection, route.address, most, seconds(query, "wait", 0.0, MAX_WAIT_S))
        self._is_auto = switch(query, "auto")
        self._accepted: list[Any] = []
        """The deliveries that are accepted once the answer is being written."""
        self._lease_s = seconds(query, "lease", LEASE_S, MAX_LEASE_S)
        self._selector = query.get("selector")
        leases = connection.leases
        self._holder = Holder(leases, connection.owner, route.address)
        if not self._is_auto:
            self._most = min(most, leases.room(connection.owner))

    def _filters(self, address: Address) -> dict[str, Any]:
        if address.is_read_by_offset:
            raise HttpError(
                409,
                f"{self.address!r:.200} is a stream, from which nothing is taken: GET .../messages?offset= reads it",
                "amqp:not-allowed",
            )
        return {} if self._selector is None else {SELECTOR_FILTER: self._selector}

    def _end(self, now: float) -> None:
        connection, got = self._connection, self._got
        self._got = []
        left, self.credit = self.credit, 0
        if left:
            self.consumer.on_credit(-left, False)
        documents = []
        is_events = self._wants_events()
        holder = self._holder
        holder.consumer = self.consumer
        core = connection.open_space.core
        for delivery, payload in got:
            lease = ""
            if delivery is not None and self._is_auto:
                self._accepted.append(delivery)
            elif delivery is not None:
                lease = holder.lease(delivery, now + self._lease_s, core)
            document = self._event(payload, lease) if is_events else from_sections(payload)
            documents.append({**document, "lease": lease} if lease else document)
        self.is_over = True
        if holder.held:
            connection.part_with(self)
        else:
            connection.accept_when_written(self)
        if is_events:
            connection.finish(head(200, BATCH_TYPE), dumped(documents))
        else:
            connection.finish(JSON, dumped({"messages": documents}))

    def accept(self) -> None:
        """Accept what the client is being written, and leave."""
        accepted, self._accepted = self._accepted, []
        for delivery in accepted:
            self.consumer.on_outcome(delivery, ACCEPTED)
        self._leave()

    def give_back(self) -> None:
        """Release what the client was not written, as it is gone."""
        accepted, self._accepted = self._accepted, []
        for delivery in accepted:
            self.consumer.on_outcome(delivery, RELEASED)

    def take_unsettled(self) -> list[Any]:
        """Remove and return the deliveries without an outcome, leased ones included."""
        accepted, self._accepted = self._accepted, []
        return [*super().take_unsettled(), *accepted, *self._holder.take_all()]

    def take_from(self, sink: Any) -> list[Any]:
        """Remove and return what one of several ends has sent and has no outcome yet, leased ones included."""
        accepted = [delivery for delivery in self._accepted if delivery.sink is sink]
        self._accepted = [delivery for delivery in self._accepted if delivery.sink is not sink]
        leased = self._holder.take_from(sink)
        if leased and self.is_over:
            # The connection may be gone, and the receiver is in the middle of leaving.
            self._holder.of.space.core.call_later(0.0, self._holder.leave_if_idle)
        return [*super().take_from(sink), *accepted, *leased]

    def detach(self, error: Any = None) -> None:
        """End the request, or the leases, as the address gives no more."""
        super().detach(error)
        self._holder.is_over = True


def post_receive(connection: HttpConnection, request: Request, _body: bytes) -> None:
    """Receive messages."""
    connection.begin(Leasing(connection, request.route))


def post_settle(connection: HttpConnection, request: Request, body: bytes) -> None:
    """Settle leased messages.

    Raises:
        HttpError: the body does not say which, or how.
    """
    asked, names = _asked(connection, request, body)
    outcome = _outcome(asked)
    unknown: list[Any] = []
    settled = 0
    confirmation = Confirmation(lambda: connection.finish(JSON, _settled(settled, unknown)))
    consumers: dict[Consumer, None] = {}
    for name in names:
        holder = connection.leases.find(name, connection.owner, request.route.address)
        if holder is None:
            unknown.append(name)
            continue
        consumers[holder.consumer] = None
        holder.settle(name, outcome)
        settled += 1
    connection.begin(_Waiting())
    for consumer in consumers:
        confirmation.wait_for(consumer)
    confirmation.end()


def post_renew(connection: HttpConnection, request: Request, body: bytes) -> None:
    """Have leases last longer.

    Raises:
        HttpError: the body does not say which.
    """
    asked, names = _asked(connection, request, body)
    lease_s = asked.get("lease", LEASE_S)
    if isinstance(lease_s, bool) or not isinstance(lease_s, int | float) or not 0 <= lease_s <= MAX_LEASE_S:
        raise HttpError(400, f"lease is a number of seconds from 0 to {MAX_LEASE_S:g}", INVALID)
    unknown = []
    for name in names:
        if connection.leases.find(name, connection.owner, request.route.address) is None:
            unknown.append(name)
        else:
            connection.leases.renew(name, connection.engine.now + lease_s)
    connection.finish(JSON, dumped({"renewed": len(names) - len(unknown), "unknown": unknown}))


class _Waiting:
    """A request that waits for the disk."""

    def start(self) -> None:
        """Do nothing: it has begun."""

    def cancel(self) -> None:
        """Do nothing: what was settled is settled."""


def _asked(connection: HttpConnection, request: Request, body: bytes) -> tuple[dict[str, Any], list[Any]]:
    route: Route = request.route
    check_query(route, "POST")
    try:
        connection.admission.rights.granted(route.address)
    except RemoteError as error:
        raise http_error(error) from None
    asked = read_json(body, "the body")
    names = asked.get("leases") if isinstance(asked, dict) else None
    if not isinstance(names, list) or len(names) > MAX_MESSAGES:
        raise HttpError(
            400, f'the body is an object with up to {MAX_MESSAGES} leases: {{"leases": ["..."]}}', INVALID
        )
    # One that is named twice is settled once.
    return asked, list(dict.fromkeys(name if isinstance(name, str) else str(name) for name in names))


OUTCOMES: Final = ("accept", "reject", "release", "modify")


def _outcome(asked: Mapping[str, Any]) -> Any:
    name = asked.get("outcome", "accept")
    if name == "accept":
        return ACCEPTED
    if name == "release":
        return RELEASED
    if name == "reject":
        condition, text = asked.get("condition", "amqp:rejected"), asked.get("description", "")
        if not isinstance(condition, str) or not condition or not isinstance(text, str):
            raise HttpError(400, "condition and description of a rejection are texts", INVALID)
        return Rejected(AmqpError(condition, text or None))
    if name == "modify":
        failed, undeliverable = asked.get("failed", True), asked.get("undeliverableHere", False)
        if not isinstance(failed, bool) or not isinstance(undeliverable, bool):
            raise HttpError(400, "failed and undeliverableHere of a modification are true or false", INVALID)
        return Modified(delivery_failed=failed, undeliverable_here=undeliverable)
    raise HttpError(400, f"outcome is {', '.join(OUTCOMES)}; not {name!r:.60}", INVALID)


def _settled(count: int, unknown: list[Any]) -> bytes:
    return dumped({"settled": count, "unknown": unknown})
