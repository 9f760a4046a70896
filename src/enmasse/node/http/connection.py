"""A client's HTTP connection at a node: who it is, and the request under way.

Rules:
1. Each request names its space and may prove who sends it. A connection is of one user in one space, as every
   connection of a node is; a request that names others makes it another connection, with a number of its own.
2. A request that may not enter its space is answered in the same way whether the space exists or not.
3. An address may end a link in the middle of its turn. What follows for the connection is done in its own turn.
4. HTTP/2 has many requests at a time on one socket: each of them is on a connection in the sense of 1, which serves
   one request after another and is kept for the next.
5. A page of another origin than the operator allows is refused, whatever it asks for, and so is a host that is none
   of the node's.
6. Requests to a space whose home is another node are passed on (``passing.py``). There a connection is of the user
   and space that the header says, and what concerns the client's own connection was checked before.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable, Mapping
from email.utils import formatdate
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol
from weakref import ref

from enmasse.errors import RemoteError
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.budget import Holder
from enmasse.messaging.log.sequences import PRODUCER_PROPERTY
from enmasse.node.connections.client_connection import ClientConnection, ClientLink
from enmasse.node.connections.waiting import Waker
from enmasse.node.health_port import health_answer
from enmasse.node.http.browse import get_messages
from enmasse.node.http.description import DESCRIPTION_PATH, description
from enmasse.node.http.devices import (
    DEVICE,
    DEVICE_METHODS,
    WaitingDevice,
    device_route_of,
    enter_device,
    leave_device,
    serve_device,
)
from enmasse.node.http.events import Events, get_events
from enmasse.node.http.leases import LeaseOwner, Leases
from enmasse.node.http.links import STORING_KINDS, Sender
from enmasse.node.http.receiving import Leasing, Receiving, post_receive, post_renew, post_settle
from enmasse.node.http.request_reply import post_request
from enmasse.node.http.routes import ACTIONS, RETRY, Route, http_error, route_of
from enmasse.node.http.sending import post_messages
from enmasse.node.large_messages import MAX_MESSAGE_BYTES
from enmasse.node.users.authentication import IN_THE_CLEAR
from enmasse.pending import Pending
from enmasse.wire.http.answers import HttpError, head
from enmasse.wire.http.connection import Connection
from enmasse.wire.http.heads import METHODS
from enmasse.wire.sasl.mechanisms import Admitted, SaslCode

if TYPE_CHECKING:
    from enmasse.messaging.space import Space
    from enmasse.net.transport import EngineProtocol
    from enmasse.node.http.passing import Passing
    from enmasse.wire.http.exchange import Exchange
    from enmasse.wire.http.heads import Request


MAX_SENDERS: Final = 100
"""The most addresses that a connection keeps links to; the idle one that was used least recently makes room."""

_CHALLENGES: Final = (("WWW-Authenticate", 'Basic realm="enmasse", charset="UTF-8"'), ("WWW-Authenticate", "Bearer"))

_PREFLIGHT: Final = (
    ("Access-Control-Allow-Headers", "*, Authorization"),
    ("Access-Control-Max-Age", "600"),
)


class Operation(Protocol):
    """A request that is being handled."""

    def start(self) -> None:
        """Begin; it ends with the connection's ``finish`` or ``finish_with``.

        Raises:
            HttpError: it cannot begin, and this is the answer.
        """

    def cancel(self) -> None:
        """Stop, as the client is gone."""


Action = Callable[["HttpConnection", "Request", bytes], None]

_ACTIONS: Final[Mapping[tuple[str, str], Action]] = {
    ("messages", "POST"): post_messages,
    ("messages", "GET"): get_messages,
    ("messages", "HEAD"): get_messages,
    ("receive", "POST"): post_receive,
    ("events", "GET"): get_events,
    ("events", "HEAD"): get_events,
    ("settle", "POST"): post_settle,
    ("renew", "POST"): post_renew,
    ("request", "POST"): post_request,
}


class _Dates:
    """The header ``Date``, made once in a second for all connections."""

    def __init__(self) -> None:
        self._second = -1
        self._line = b""

    def line(self, second: int) -> bytes:
        if second != self._second:
            self._second = second
            self._line = b"Date: %b\r\n" % formatdate(second, usegmt=True).encode()
        return self._line


class HttpConnection(ClientConnection):
    """One client's connection."""

    __slots__ = (
        "_arguments", "_date", "_dropped", "_has_entered", "_identity", "_is_entering", "_login_error",
        "_operation", "_options", "_owed", "_passing", "_senders", "_waker", "_written", "is_due",
    )  # fmt: skip

    protocol: ClassVar[str] = "http"
    names_itself: ClassVar[bool] = False
    serves_devices: ClassVar[bool] = True
    engine: Connection | Exchange

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._waker = Waker(self)
        self._arguments = arguments
        self._options = options
        self.is_due = False
        self._identity: tuple[str, str] | None = None
        self._has_entered = self._is_entering = False
        self._login_error: str | None = None
        self._operation: Operation | None = None
        self._passing: Passing | None = None
        """Passes requests on, as the home of the space is another node."""
        self._senders: dict[str, Sender] = {}
        self._dropped: list[Callable[[], None]] = []
        self._written: list[Leasing] = []
        self._owed: Holder | None = None
        """The room of an answer that the client has yet to read."""

    @property
    def name(self) -> str:
        """The connection's name in reports."""
        return f"HTTP connection of {self.peer}"

    def make_engine(self, node: str, now: float) -> Connection:
        """Make the engine of this connection, and keep it in ``engine``."""
        connections = self._connections
        dates = connections.shared(_Dates)
        mine = ref(self)

        def date() -> bytes:
            connection = mine()
            space = None if connection is None else connection.space
            # The time of the turn, once there is one: the clock is not read for each message.
            second = connections.wall_ms() // 1_000 if space is None else space.core.wall_us // 1_000_000
            return dates.line(second)

        engine = Connection(self, now=now, date=date)
        # The client's own connection ends when that is idle, and this one with it.
        engine.may_idle = self.admission.is_asserted
        self._use(engine)
        self._date = date
        return engine

    def _use(self, engine: Connection | Exchange) -> None:
        self.engine = engine
        engine.more_room = self.more_room
        if isinstance(engine, Connection):
            engine.hears_out = self.on_input_end
        else:
            engine.may_owe = self.may_owe

    def on_http2(self, data: bytes) -> None:
        """Go on in HTTP/2, where each request at a time is of a connection of its own, of which this is the first."""
        # Many nodes never meet it, and its libraries take time to load.
        from enmasse.wire.http.http2 import Http2Connection  # noqa: PLC0415

        shell, before = self._connections.shells[self], self.engine
        assert isinstance(before, Connection)

        def first(exchange: Exchange) -> HttpConnection:
            self._use(exchange)
            exchange.trace = before.trace
            return self

        engine = Http2Connection(
            first, lambda exchange: self._another(exchange, shell), now=before.now, date=self._date
        )
        engine.wake, engine.is_late = before.wake, before.is_late
        engine.out_room, engine.more_out, engine.admits = before.out_room, before.more_out, before.admits
        shell.engine = engine
        engine.receive(data, before.now)

    def _another(self, engine: Connection | Exchange, shell: EngineProtocol) -> HttpConnection:
        """Return another connection of the client, over the same socket."""
        other = type(self)(*self._arguments, **self._options)
        other._use(engine)  # noqa: SLF001  it is of this class
        self._connections.connected(other, shell)
        return other

    # Its turn

    def due(self) -> None:
        """Have ``on_turn`` called before the turn of the loop ends."""
        if not self.is_due and self.space is not None:
            self.is_due = True
            self.space.core.due(self)

    def on_turn(self, now: float) -> None:
        """Do what could not be done in the middle of addresses' turns."""
        dropped, self._dropped = self._dropped, []
        for drop in dropped:
            drop()
        senders = [sender for sender in self._senders.values() if sender.waiting]
        for sender in senders:
            sender.expire(now)
        deadlines = [sender.go_on(now) for sender in senders]
        operation = self._operation
        if isinstance(operation, Receiving) and operation.has_begun:
            deadlines.append(operation.on_turn(now))
        deadline = min((each for each in deadlines if each is not None), default=None)
        if deadline is not None and self.space is not None:
            self.space.core.schedule(self._waker, deadline)

    # The engine's handler

    def on_head(self, request: Request) -> bool:
        """Find out what a request asks for, and enter its space if it is another than that of the one before."""
        route: Route | None = request.route
        if route is None:
            if request.path.count("/") == 1 and self._answer_health(request):
                return False
            if request.path == "*":
                self._answer_server(request)
                return False
            if request.path == DESCRIPTION_PATH:
                self._answer_description(request)
                return False
            route = request.route = self._read_route(request)
        if self.admission.is_asserted:
            return self._has_entered or self._log_in(route)
        if "origin" in request.headers or "sec-fetch-site" in request.headers:
            self._check_origin(request)
        if request.method == "OPTIONS":
            # A browser asks so before the request that it is about, and proves nothing.
            return True
        if self._has_entered:
            if route.identity == self._identity:
                return True
            return self._succeed().on_head(request)
        self._identity = route.identity
        return self._log_in(route)

    def _answer_health(self, request: Request) -> bool:
        """Answer what monitors ask a node, as on a connection of theirs; false if it is something else."""
        found = self._connections.answer(request.target) if request.method in ("GET", "HEAD") else None
        if found is None:
            return False
        self._check_host(request)
        # A connection that is in no space does not stay: it would be dropped while another request is on its way.
        self.engine.closes = self.engine.closes or not self._has_entered
        self.engine.answer(*health_answer(*found))
        return True

    def _answer_server(self, request: Request) -> None:
        """Answer which methods there are at all: ``OPTIONS *`` asks about no path [RFC 9110 9.3.7]."""
        self._check_host(request)
        self._check_origin(request)
        self.engine.closes = self.engine.closes or not self._has_entered
        self.engine.answer(head(204, "", (("Allow", ", ".join(sorted(map(bytes.decode, METHODS)))),)))

    def _answer_description(self, request: Request) -> None:
        """Answer what HTTP is here, to everybody: it names no space.

        Raises:
            HttpError: the method is another one, or it may be a page of a stranger that asks.
        """
        self._check_host(request)
        self._check_origin(request)
        if request.method not in ("GET", "HEAD"):
            raise HttpError(
                405, f"{request.path} takes GET or HEAD, not {request.method}", headers=(("Allow", "GET, HEAD"),)
            )
        self.engine.answer(head(200, "application/json"), description())

    def on_request(self, request: Request, body: bytes) -> None:
        """Handle a whole request."""
        route: Route = request.route
        if request.method == "OPTIONS":
            self._answer_options(route)
            return
        if self._passing is not None:
            self._passing.ask(request, body)
            return
        if route.action == DEVICE:
            serve_device(self, request, body)
        elif self.admission.device is not None:
            raise HttpError(
                403, "devices use the paths /telemetry, /event, /command and /inquiry", "amqp:not-allowed"
            )
        else:
            _ACTIONS[route.action, request.method](self, request, body)

    def on_input_end(self) -> bool:
        """Have a request answered whose client says nothing more: with what there is now, if it waits for more.

        Messages are handed out by no other answer, so whoever is gone altogether gets none.
        """
        operation = self._operation
        if self._passing is not None:
            self._passing.end_input()
            return True
        if isinstance(operation, Events):
            return False
        if isinstance(operation, Receiving | WaitingDevice):
            operation.wait_no_longer()
        for sender in self._senders.values():
            sender.wait_no_longer(self.engine.now)
        self.due()
        return True

    def on_blocked(self, is_blocked: bool) -> None:
        """Stop or resume taking messages for an answer."""
        if self._passing is not None:
            self._passing.on_blocked(is_blocked)
        operation = self._operation
        if isinstance(operation, Receiving) and operation.has_begun and not operation.is_over:
            operation.on_blocked(is_blocked)

    def may_owe(self, size: int) -> bool:
        """Return true if so many bytes may wait for the client to read them; 0 gives their room back."""
        if self._owed is None:
            engine = self.engine
            if not size or isinstance(engine, Connection):
                return True
            self._owed = Holder(self._connections.unread, self.party, engine.give_up)
        unread = self._connections.unread
        has_room = self._owed.resize(size)
        if not has_room and size > unread.max_bytes and unread.finishing is None:
            # One at a time may be larger than all may be together, or nobody could ever have it.
            has_room = self._owed.wait(size, lambda: None)
        if not size:
            self._owed = None
        return has_room

    def on_written(self) -> None:
        """Accept what was received to be accepted as it is written."""
        written, self._written = self._written, []
        for receiving in written:
            receiving.accept()

    def on_closed(self, error: Exception | None) -> None:
        """Detach all links, as the connection is closed."""
        self._cancel()
        for receiving in self._written:
            receiving.give_back()
        self._written.clear()
        for key in list(self.links):
            self.detached(key, is_logged=False)
        if self._passing is not None:
            self._passing.cancel()
            self._passing = None
        leave_device(self)
        for sender in self._senders.values():
            sender.is_detach_sent = True
        self._senders.clear()
        found = None
        if isinstance(error, HttpError):
            found = RemoteError(error.condition or f"http:{error.status}", error.detail)
        self.disconnected(self.closing or found, login_error=self._login_error)

    # The request under way

    def begin(self, operation: Operation) -> None:
        """Begin what a request asks for, whose answer comes now or later."""
        self._operation = operation
        try:
            operation.start()
        except HttpError:
            self._operation = None
            raise

    def finish(self, start: bytes, body: bytes = b"") -> None:
        """Answer the request under way."""
        self._operation = None
        self._settle(lambda: self.engine.answer(start, body))

    def finish_with(self, error: HttpError) -> None:
        """Answer the request under way with an error."""
        self._operation = None
        self._settle(lambda: self.engine.fail(error))

    def _settle(self, answer: Callable[[], None]) -> None:
        """Give an answer: in the connection's own turn if it ends the connection, and so detaches all links."""
        engine = self.engine
        if self.space is not None and (engine.closes or engine.is_streaming):
            self.soon(answer)
        else:
            answer()

    def _cancel(self) -> None:
        operation, self._operation = self._operation, None
        if operation is not None:
            operation.cancel()

    def end(self, error: RemoteError) -> None:
        """Answer the request under way with the reason, and close the connection."""
        engine = self.engine
        if self._is_entering:
            return
        self._cancel()
        if engine.is_handled:
            engine.closes = True
            engine.fail(http_error(error))
        elif not engine.closed:
            engine.close()

    # The home of its space

    def hand_over(self, space: Space) -> bool:
        """Have requests passed on from now on, if the home of the space is another node."""
        handovers = self._connections.handovers
        home = None if handovers is None else handovers.elsewhere(space.name)
        if handovers is None or home is None:
            return False
        # What it holds counts as the user's, as ever.
        self.space, self.user = space, self.admission.name
        # A node that is alone passes nothing on.
        from enmasse.node.http.passing import Passing  # noqa: PLC0415

        self._passing = Passing(self, handovers, space, home)
        return True

    def has_left(self, passing: Passing, error: HttpError) -> None:
        """Log in anew with the next request, as the home of the space has gone.

        Args:
            passing: what has passed requests on.
            error: the answer to the request under way, if there is one.
        """
        if self._passing is not passing:
            return
        self._passing = None
        self._has_entered = False
        self.more_room(0)
        if self.engine.is_handled:
            self.finish_with(error)
        self.space = None

    def end_stream(self) -> None:
        """End an answer in parts, which has been passed on."""
        self._settle(self.engine.end_stream)

    # Who it is

    def _succeed(self) -> HttpConnection:
        """Return the connection that takes the place of this one, for another user or space."""
        engine, shell = self.engine, self._connections.shells[self]
        self.on_closed(None)
        engine.trace = None
        engine.handler = successor = self._another(engine, shell)
        engine.forget_routes()
        return successor

    def _log_in(self, route: Route) -> bool:
        """Log the client in; return false if the answer comes later."""
        admission = self.admission
        host = f"{route.space}.{admission.domain}" if route.space else None
        scheme, _, proof = route.proof.partition(" ")
        verdict: Any
        if admission.is_asserted:
            verdict = True
        elif not route.proof:
            # Without credentials a client may enter open spaces.
            verdict = admission.certificate("", host) if admission.has_certificate else True
        elif scheme.lower() == "basic":
            verdict = admission.login(*_basic(proof), host)
        elif scheme.lower() == "bearer":
            verdict = admission.token("", proof.strip(), host)
        else:
            raise HttpError(401, f"Authorization is Basic or Bearer, not {scheme!r:.40}", headers=_CHALLENGES)
        if not isinstance(verdict, Pending):
            self._judge(route, host, verdict)
            return True

        def decided(later: Any) -> None:
            if self.engine.closed:
                return
            try:
                self._judge(route, host, later)
            except HttpError as error:
                self.engine.fail(error)
            else:
                self.engine.go_on()

        verdict.then(decided)
        return False

    def _judge(self, route: Route, host: str | None, verdict: Any) -> None:
        """Enter the space if the verdict allows that.

        Raises:
            HttpError: it does not, or the space cannot be entered.
        """
        if verdict is not True and not isinstance(verdict, Admitted):
            self._refuse(route, verdict)
        if (closing := self.closing) is not None:
            raise http_error(closing)
        self._is_entering = True
        has_entered = self.enter(host, f"http-{self.number}")
        self._is_entering = False
        if self._passing is not None:
            self._has_entered = True
            return
        if not has_entered:
            assert self.closing is not None
            self.engine.closes = True
            if self.closing.condition in ("amqp:not-found", "amqp:unauthorized-access", "amqp:not-allowed"):
                self._refuse(route, False)
            raise HttpError(503, self.closing.description, self.closing.condition, RETRY)
        self._has_entered = True
        if route.action == DEVICE:
            enter_device(self)

    def _refuse(self, route: Route, verdict: Any) -> None:
        """Refuse a client, with the same words whether its space exists or not.

        Raises:
            HttpError: always.
        """
        self.engine.closes = True
        self._login_error = "the login has failed"
        if verdict is SaslCode.SYS_TEMP:
            raise HttpError(429, "the login cannot be checked now: try again later", headers=RETRY)
        if route.action == DEVICE:
            raise HttpError(
                401,
                "the credentials are no device's: send Basic with AUTH-ID@TENANT and the password, or Bearer with a "
                "token that is signed with the device's key",
                "amqp:unauthorized-access",
                _CHALLENGES,
            )
        if self.admission.is_everything_open:
            raise HttpError(
                404, f"there is no space {route.space!r}: name one as <space>.<namespace>", "amqp:not-found"
            )
        how = "send Basic or Bearer credentials of one of its users"
        if route.proof and not self.admission.is_private:
            how = IN_THE_CLEAR
        raise HttpError(
            401,
            f"there is no space {route.space!r} for you, or the credentials are wrong: {how}",
            "amqp:unauthorized-access",
            _CHALLENGES,
        )

    # Web pages

    def _read_route(self, request: Request) -> Route:
        """Return what a request asks for, once its host has been checked.

        Raises:
            HttpError: it asks for nothing that is here, or at a host that is not served.
        """
        try:
            route = device_route_of(request) or route_of(request)
        except HttpError:
            self._check_host(request)
            raise
        if self.admission.is_asserted:
            return route
        # A space is `<namespace>/<name>` within.
        space = "/".join(reversed(route.space.split("."))) if route.space else None
        self._check_host(request, space, has_login=route.action == DEVICE)
        return route

    def _check_host(self, request: Request, space: str | None = None, *, has_login: bool = False) -> None:
        """Refuse what may come of a page whose own name was turned to this node.

        Raises:
            HttpError: the host is not one by which the node is called.
        """
        transport = self._connections.shells[self].transport
        host = request.headers.get("host")
        refusal = self._connections.hosts.refusal(host, transport, self.peer, space, has_login=has_login)
        if refusal is not None:
            raise HttpError(403, refusal, "amqp:unauthorized-access")

    def _check_origin(self, request: Request) -> None:
        """Refuse what a page of an origin asks that the operator does not allow.

        Raises:
            HttpError: it is of such a page.
        """
        headers = request.headers
        origin = headers.get("origin")
        if origin is None:
            if headers.get("sec-fetch-site", "none") == "none":
                return
            origin = f"http://{headers.get('host', '')}"
        origins = self._connections.origins
        if "*" not in origins and origin not in origins:
            raise HttpError(
                403,
                f"pages of {origin!r:.100} may not use this node: have it started with --web-origin",
                "amqp:unauthorized-access",
            )

        # The page may read the answer.
        self.engine.more_headers = b"Access-Control-Allow-Origin: %b\r\nVary: Origin\r\n" % origin.encode("latin-1")

    def _answer_options(self, route: Route) -> None:
        methods = ", ".join((*(DEVICE_METHODS if route.action == DEVICE else ACTIONS[route.action]), "OPTIONS"))
        headers: tuple[tuple[str, str], ...] = (("Allow", methods),)
        if self.engine.more_headers:
            headers += (("Access-Control-Allow-Methods", methods), *_PREFLIGHT)
        self.finish(head(204, "", headers))

    # Sending

    def sender(self, address: str, key: str = "") -> Sender:
        """Return the link to an address, made now if there is none.

        Args:
            address: the address.
            key: the key that tells a request from others that were sent before, so that it has its effect once.

        Raises:
            HttpError: there is no such address, or the user may not send to it.
        """
        sender = self._senders.get(f"{address}\n{key}" if key else address)
        if sender is not None and not sender.is_detach_sent:
            return sender
        try:
            return self._attach_sender(address, key)
        except RemoteError as error:
            raise http_error(error) from None

    def _attach_sender(self, target: str, key: str) -> Sender:
        space = self.open_space
        if len(self._senders) >= MAX_SENDERS:
            for known in list(self._senders.values()):
                if known.is_idle:
                    self._remove(known)
                    break
        address = self.find_target(target)
        properties = {}
        if key:
            if address.kind not in STORING_KINDS:
                raise HttpError(
                    409,
                    f"{target!r:.200} stores nothing and knows no message again: leave Idempotency-Key out",
                    "amqp:not-allowed",
                )
            properties[PRODUCER_PROPERTY] = _producer_of(self.admission.rights.owner, key)
        sender = Sender(self, target, f"{target}\n{key}" if key else target)
        link = ClientLink(sender, target, target, target, is_sender=True)
        try:
            self.count(link, address)
            end = address.attach_producer(
                self.bounds.port(space, link, address), target, AttachOptions(properties=properties)
            )
        except RemoteError as error:
            self.refused(link, error)
            raise
        sender.sink, most_bytes = self.bounds.sink(link, end, self.bounds.size_limit(space, address))
        sender.most_bytes = min(most_bytes or MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES)
        sender.status = 202 if address.kind in STORING_KINDS else 200
        self._senders[sender.key] = sender
        self.join(sender, link, end, lambda: None, sender.refuse)
        return sender

    def drop(self, sender: Sender) -> None:
        """Remove a sender in the connection's turn."""
        self.soon(lambda: self._remove(sender))

    def soon(self, call: Callable[[], None]) -> None:
        """Have something called in the connection's turn."""
        self._dropped.append(call)
        self.due()

    def _remove(self, sender: Sender) -> None:
        sender.is_detach_sent = True
        if self._senders.get(sender.key) is sender:
            del self._senders[sender.key]
        self.detached(sender)

    # Receiving

    @property
    def leases(self) -> Leases:
        """The leases of the node."""
        return self._connections.shared(Leases)

    @property
    def owner(self) -> LeaseOwner:
        """The account whose leases the client may settle."""
        rights = self.admission.rights
        return LeaseOwner(self.open_space, rights.owner, rights.username)

    def part_with(self, receiving: Receiving) -> None:
        """Leave a link to its leases: it is none of the connection any more."""
        link = self.links.pop(receiving, None)
        if link is not None:
            self.bounds.detached(link)

    def leave_later(self, receiving: Receiving, delay_s: float) -> None:
        """Have a link, which is none of the connection any more, leave its address after some seconds."""
        link = self.links.get(receiving)
        self.part_with(receiving)
        if link is None:
            return

        def leave() -> None:
            self.leave(receiving, link, closed=True)
            self._forget_address(link)

        self.open_space.core.call_later(delay_s, leave)

    def accept_when_written(self, receiving: Leasing) -> None:
        """Have what was received accepted once the answer is being written."""
        self._written.append(receiving)

    # Shared

    @property
    def open_space(self) -> Space:
        """The space that the connection is in."""
        assert self.space is not None
        return self.space


def _producer_of(owner: str, key: str) -> str:
    """Return the name under which what an owner sends with a key is known again."""
    named = f"{owner}\n{key}".encode(errors="replace")
    return f"http:{sha256(named).hexdigest()}"


def _basic(proof: str) -> tuple[str, str]:
    """Return user and password [RFC 7617].

    Raises:
        HttpError: this is no such proof.
    """
    try:
        user, colon, password = b64decode(proof.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        colon = ""
    if not colon:
        raise HttpError(401, "Basic is followed by base64 of user:password in UTF-8", headers=_CHALLENGES)
    return user, password
