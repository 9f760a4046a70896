"""What clients of HTTP receive: messages under leases, copies of what waits, what a stream holds, and answers.

Rules:
1. A request has a link of its own, as long as it waits. It is answered at the end of the first turn that brought
   something, or when its time is up.
2. What was handed out for a client that is gone before it was answered is released: nobody has seen it.
3. An answer holds ``MAX_ANSWER_BYTES`` of messages, and one more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import RemoteError
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.dynamic import DynamicRequest
from enmasse.messaging.queues.browse import IDS_CAPABILITY
from enmasse.messaging.selectors.selector import SELECTOR_FILTER
from enmasse.messaging.streams.reader import PARTITION_FILTER, START_FILTER
from enmasse.messaging.streams.rows import OFFSET, PARTITION
from enmasse.node.client_connection import ClientLink, require_filters
from enmasse.node.gathered import Gathered
from enmasse.node.http.leases import Confirmation, Holder
from enmasse.node.http.links import Post
from enmasse.node.http.messages import INVALID, document_of, headers_of, parts_of, read_json
from enmasse.node.http.routes import Route, check_query, http_error, number, seconds, switch
from enmasse.node.http.sending import MAX_WAIT_S
from enmasse.wire.amqp.performatives import ACCEPTED, RELEASED, AmqpError, Modified, Rejected
from enmasse.wire.amqp.sections import Sections
from enmasse.wire.amqp.text_search import ID_ANNOTATION
from enmasse.wire.http.answers import HttpError, head

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.delivery import Consumer
    from enmasse.node.http.connection import HttpConnection
    from enmasse.node.http.links import Sender
    from enmasse.wire.http.heads import Request


MAX_MESSAGES: Final = 1_000
MAX_ANSWER_BYTES: Final = 4 << 20

LEASE_S: Final = 30.0
MAX_LEASE_S: Final = 12 * 3_600.0

ANSWER_S: Final = 30.0
"""How long a request for an answer waits if it says nothing."""

LINGER_S: Final = 0.5
"""How long an address for an answer stays once that has come."""

_JSON: Final = head(200, "application/json")


class Receiving:
    """A request for messages; a ``ConsumerPort``.

    Args:
        connection: the client's.
        address: as the client names it.
        most: the most messages.
        wait_s: the seconds for which it waits for the first.
    """

    __slots__ = (
        "_bytes", "_connection", "_deadline", "_got", "_most", "_wait_s", "address", "consumer", "credit",
        "is_detach_sent", "is_over",
    )  # fmt: skip

    def __init__(self, connection: HttpConnection, address: str, most: int, wait_s: float) -> None:
        self._connection = connection
        self.address = address
        self._most = most
        self._wait_s = wait_s
        self._deadline: float | None = None
        self.consumer: Consumer
        self.credit = 0
        self.is_detach_sent = False
        self.is_over = False
        """True once it is answered, or never will be."""
        self._got: list[tuple[Any, bytes]] = []
        """The deliveries, of which those that are settled already are None, and the messages."""
        self._bytes = 0

    # The request

    def start(self) -> None:
        """Attach, and grant credit.

        Raises:
            HttpError: the address gives nothing to this user.
        """
        connection = self._connection
        try:
            self._attach()
        except RemoteError as error:
            self.is_over = True
            raise http_error(error) from None
        self.credit = self._most
        self.consumer.on_credit(self._most, self._drains())
        connection.due()

    def _options(self, address: Address) -> AttachOptions:
        rights = self._connection.admission.rights
        return AttachOptions(
            name=f"http-{self._connection.number}",
            container=self._connection.container,
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
        connection.admission.rights.require_receive(self.address)
        address = connection.open_space.find(self.address)
        options = self._options(address)
        link = ClientLink(self, options.name, "receive", self.address, is_sender=False)
        try:
            require_filters(address, options)
            connection.count(link, address)
            self.consumer = address.attach_consumer(self, options)
        except RemoteError as error:
            connection.refused(link, error)
            raise
        connection.joined(self, link, self.consumer)

    def on_turn(self, now: float) -> float | None:
        """Answer, if there is something or time is up; else return when that is."""
        if self._deadline is None:
            self._deadline = now + self._wait_s
        if self._got or now >= self._deadline:
            self._end(now)
            return None
        return self._deadline

    def _end(self, now: float) -> None:
        raise NotImplementedError

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
        self._bytes += len(payload)
        if self._bytes >= MAX_ANSWER_BYTES:
            self.credit = 0
        self._connection.due()

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
        self.credit = 0
        self._connection.due()

    def take_unsettled(self) -> list[Any]:
        """Remove and return the deliveries without an outcome."""
        got, self._got = self._got, []
        return [delivery for delivery, _ in got if delivery is not None]

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
        check_query(query, "max", "wait", "lease", "auto", "selector")
        most = number(query, "max", 1, 1, MAX_MESSAGES)
        super().__init__(connection, route.address, most, seconds(query, "wait", 0.0, MAX_WAIT_S))
        self._is_auto = switch(query, "auto")
        self._accepted: list[Any] = []
        """What is accepted once the answer is being written."""
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
        holder = self._holder
        holder.consumer = self.consumer
        core = connection.open_space.core
        for delivery, payload in got:
            document = document_of(payload)
            if delivery is not None and self._is_auto:
                self._accepted.append(delivery)
            elif delivery is not None:
                document["lease"] = holder.lease(delivery, now + self._lease_s, core)
            documents.append(document)
        self.is_over = True
        if holder.held:
            connection.part_with(self)
        else:
            connection.accept_when_written(self)
        connection.finish(_JSON, _dumped({"messages": documents}))

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
    confirmation = Confirmation(lambda: connection.finish(_JSON, _settled(settled, unknown)))
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
    connection.finish(_JSON, _dumped({"renewed": len(names) - len(unknown), "unknown": unknown}))


class _Waiting:
    """A request that waits for the disk."""

    def start(self) -> None:
        """Do nothing: it has begun."""

    def cancel(self) -> None:
        """Do nothing: what was settled is settled."""


def _asked(connection: HttpConnection, request: Request, body: bytes) -> tuple[dict[str, Any], list[Any]]:
    route: Route = request.route
    check_query(route.query)
    try:
        connection.admission.rights.require_receive(route.address)
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


_OUTCOMES: Final = ("accept", "reject", "release", "modify")


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
    raise HttpError(400, f"outcome is {', '.join(_OUTCOMES)}; not {name!r:.60}", INVALID)


def _settled(count: int, unknown: list[Any]) -> bytes:
    return _dumped({"settled": count, "unknown": unknown})


def _dumped(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode(errors="replace") + b"\n"


# Looking


class _Looking(Receiving):
    """A request for copies of messages, of which none is taken."""

    __slots__ = ("_after", "_has_drained", "_is_stream", "_offset", "_partition", "_selector")

    def __init__(self, connection: HttpConnection, route: Route) -> None:
        query = route.query
        check_query(query, "max", "wait", "after", "offset", "partition", "selector")
        most = number(query, "max", 10, 1, MAX_MESSAGES)
        super().__init__(connection, route.address, most, seconds(query, "wait", 0.0, MAX_WAIT_S))
        self._after = query.get("after")
        self._offset = query.get("offset")
        self._partition = query.get("partition")
        self._selector = query.get("selector")
        self._is_stream = self._has_drained = False

    def _options(self, address: Address) -> AttachOptions:
        options = super()._options(address)
        options.presettle = True
        self._is_stream = address.is_read_by_offset
        if not self._is_stream:
            options.browse = True
            options.capabilities = (IDS_CAPABILITY,)
        return options

    def _filters(self, address: Address) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._selector is not None:
            found[SELECTOR_FILTER] = self._selector
        if address.is_read_by_offset:
            if self._after is not None:
                raise HttpError(400, "a stream is read from an offset, and not after an id", INVALID)
            found[START_FILTER] = _offset(self._offset or "first")
            if self._partition is not None:
                found[PARTITION_FILTER] = number({"partition": self._partition}, "partition", 0, 0, 1 << 30)
            elif len(address.partitions) > 1 and isinstance(found[START_FILTER], int):
                raise HttpError(
                    400, "the stream has several partitions: name the one of the offset by partition", INVALID
                )
            return found
        if self._offset is not None or self._partition is not None:
            raise HttpError(400, "offset and partition are for streams: name the id of a message by after", INVALID)
        if self._after is not None:
            found[START_FILTER] = self._after
        return found

    def _drains(self) -> bool:
        return True

    def drained(self) -> None:
        """Note that there is nothing more for now: then wait, if there was nothing at all."""
        super().drained()
        self._has_drained = True

    def on_turn(self, now: float) -> float | None:
        """Answer once all is here that there is, or time is up."""
        if self._deadline is None:
            self._deadline = now + self._wait_s
        if not (self._has_drained or self.credit <= 0):
            # The journal is being read; it answers.
            return None
        if self._got or now >= self._deadline or self.credit < 0:
            self._end(now)
            return None
        if self._has_drained and self.credit == 0:
            self.credit = self._most
            self.consumer.on_credit(self._most, False)
        return self._deadline

    def _end(self, now: float) -> None:
        got, self._got = self._got, []
        documents = []
        following: dict[str, int] = {}
        last: str | None = self._after
        for _, payload in got[: self._most]:
            document = document_of(payload)
            annotations = document.get("annotations", {})
            if self._is_stream and isinstance(annotations.get(OFFSET), int):
                following[str(annotations.get(PARTITION, 0))] = annotations[OFFSET] + 1
            elif ID_ANNOTATION in annotations:
                document["id"] = last = annotations.pop(ID_ANNOTATION)
                if not annotations:
                    del document["annotations"]
            documents.append(document)
        self._leave()
        found: dict[str, Any] = {"messages": documents}
        if self._is_stream:
            found["next"] = following or self._unchanged()
        elif last is not None:
            found["next"] = last
        self._connection.finish(_JSON, _dumped(found))

    def _unchanged(self) -> dict[str, int]:
        """Return where reading goes on if nothing came: where it was."""
        offset = self._offset or ""
        return {self._partition or "0": int(offset)} if offset.isdigit() else {}


def _offset(text: str) -> Any:
    if text in ("first", "last", "next"):
        return text
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    raise HttpError(400, f"offset is a number, first, last or next; not {text!r:.60}", INVALID)


def get_messages(connection: HttpConnection, request: Request, _body: bytes) -> None:
    """Look at messages, or read a stream."""
    connection.begin(_Looking(connection, request.route))


# Answers


class _Asking(Receiving):
    """A request that is sent as a message, and answered by another one."""

    __slots__ = ("_body", "_headers", "_is_sent", "_post", "_sender")

    def __init__(self, connection: HttpConnection, request: Request, body: bytes) -> None:
        route: Route = request.route
        check_query(route.query, "wait")
        super().__init__(connection, route.address, 1, seconds(route.query, "wait", ANSWER_S, MAX_WAIT_S))
        self._headers = request.headers
        self._body = body
        self._sender: Sender = connection.sender(route.address)
        self._post: Post | None = None
        self._is_sent = False

    def _attach(self) -> None:
        connection = self._connection
        link = ClientLink(self, f"http-{connection.number}", "reply", None, is_sender=False)
        try:
            address = connection.make_dynamic(link, DynamicRequest())
            connection.count(link, address)
            self.consumer = address.attach_consumer(self, AttachOptions(source=address.name))
        except RemoteError as error:
            connection.refused(link, error)
            raise
        connection.joined(self, link, self.consumer)
        parts = parts_of(self._headers)
        parts.fields["reply_to"] = address.name
        parts.header.durable = self._headers.get("x-durable", "false").strip().lower() == "true"
        parts.fields.setdefault("correlation_id", address.name)
        payload = parts.encode(self._body)
        self._sender.check(len(payload))
        self._post = Post(payload, self._wait_s, self._sent)

    def start(self) -> None:
        """Make the address for the answer, and send the question."""
        try:
            super().start()
        except HttpError:
            self._connection.detached(self, is_logged=False)
            raise
        assert self._post is not None
        self._sender.send(self._post)

    def _sent(self, error: HttpError | None) -> None:
        if error is not None and not self.is_over:
            self.is_over = True
            self._connection.soon(lambda: self._connection.detached(self, is_logged=False))
            self._connection.finish_with(error)

    def _end(self, now: float) -> None:
        got, self._got = self._got, []
        for delivery, _ in got:
            if delivery is not None:
                self.consumer.on_outcome(delivery, ACCEPTED)
        self.credit = 0
        self.is_over = True
        connection = self._connection
        if got:
            # Who answers hears that its answer was taken before the address goes, and its link with it.
            connection.leave_later(self, LINGER_S)
        else:
            connection.detached(self, is_logged=False)
        self._give_up()
        if not got:
            self._connection.finish_with(
                HttpError(504, f"{self.address!r:.200} was asked, and has not answered within {self._wait_s:g} s")
            )
            return
        sections = Sections(got[0][1])
        try:
            kind, headers, body = headers_of(sections)
        except RemoteError as error:
            self._connection.finish_with(HttpError(502, f"the answer cannot be read: {error.description}"))
            return
        self._connection.finish(head(200, kind, headers), body)

    def _give_up(self) -> None:
        if self._post is not None:
            self._post.is_given_up = True
            self._sender.give_up()

    def cancel(self) -> None:
        """Leave the question unsent, if it is, and take no answer."""
        self._give_up()
        super().cancel()


def post_request(connection: HttpConnection, request: Request, body: bytes) -> None:
    """Ask, and be answered."""
    connection.begin(_Asking(connection, request, body))
