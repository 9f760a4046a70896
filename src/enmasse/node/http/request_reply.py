"""Questions of HTTP's clients: messages that another message answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED
from enmasse.message.sections import Sections
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.dynamic import DynamicRequest
from enmasse.node.cloudevents import attributes_of
from enmasse.node.connections.client_connection import ClientLink
from enmasse.node.http.cloudevents import from_headers, to_headers
from enmasse.node.http.links import Post
from enmasse.node.http.messages import from_sections, to_sections
from enmasse.node.http.receiving import Receiving
from enmasse.node.http.routes import Route, check_query, seconds
from enmasse.node.http.sending import MAX_WAIT_S
from enmasse.wire.http.answers import HttpError, head

if TYPE_CHECKING:
    from enmasse.node.http.connection import HttpConnection
    from enmasse.node.http.links import Sender
    from enmasse.wire.http.heads import Request


ANSWER_S: Final = 30.0
"""The time that a request for an answer waits if it says nothing."""

LINGER_S: Final = 0.5
"""The time that an address for an answer stays once that has come."""

Headers = tuple[tuple[str, str], ...]


class Asking(Receiving):
    """A request that is sent as a message, and answered by another one.

    Args:
        connection: the client's.
        address: to which it is sent.
        wait_s: the seconds that an answer is waited for.
        request: the request, whose headers say more of it.
        body: the request's.
    """

    __slots__ = ("_body", "_headers", "_is_sent", "_post", "_sender")
    waits_for_reader = False

    def __init__(
        self, connection: HttpConnection, address: str, wait_s: float, request: Request, body: bytes
    ) -> None:
        super().__init__(connection, address, 1, wait_s)
        self._headers = request.headers
        self._body = body
        self._sender: Sender = connection.sender(address)
        self._post: Post | None = None
        """The question, until it is done or given up: it knows this request."""
        self._is_sent = False

    def _attach(self) -> None:
        connection = self._connection
        link = ClientLink(self, f"http-{connection.number}", "reply", None, is_sender=False)
        options = AttachOptions(name=link.name, container=connection.container)
        connector = self.address.partition("/")[0]
        try:
            if connector in connection.open_space.connectors:
                # Who answers over there knows no address of ours.
                address = connection.find_connector(link, connector)
                options.source, options.is_dynamic = connector, True
            else:
                address = connection.make_dynamic(link, DynamicRequest())
                options.source = address.name
            connection.count(link, address)
            self.consumer = address.attach_consumer(self, options)
        except RemoteError as error:
            connection.refused(link, error)
            raise
        connection.join(self, link, self.consumer, self._begin, self._refuse)
        if not options.is_dynamic:
            self._ask(address.name)

    def _begin(self) -> None:
        """Grant credit, and ask now if the address for the answer was not known before."""
        super()._begin()
        if self.consumer.granted is None:
            return
        try:
            self._ask(self.consumer.granted.source.address)
        except HttpError as error:
            self._sent(error)
        else:
            self._send()

    def _ask(self, reply_to: str) -> None:
        payload = self._question(reply_to)
        self._sender.check(len(payload))
        self._post = Post(payload, self._wait_s, self._sent)

    def _question(self, reply_to: str) -> bytes:
        """Return the message that asks for an answer at an address."""
        parts = to_sections(self._headers)
        from_headers(parts, self._headers)
        parts.fields["reply_to"] = reply_to
        parts.header.durable = self._headers.get("x-durable", "false").strip().lower() == "true"
        parts.fields.setdefault("correlation_id", reply_to)
        return parts.encode(self._body)

    def start(self) -> None:
        """Make the address for the answer, and send the question."""
        try:
            super().start()
        except HttpError:
            self._connection.detached(self, is_logged=False)
            raise
        self._send()

    def _send(self) -> None:
        if self._post is not None:
            self._sender.send(self._post)

    def _sent(self, error: HttpError | None) -> None:
        self._post = None
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
            kind, headers, body = from_sections(sections)
            headers += tuple(to_headers(attributes_of(sections.application_properties)))
        except RemoteError as error:
            self._connection.finish_with(HttpError(502, f"the answer cannot be read: {error.description}"))
            return
        self._finish(sections, kind, headers, body)

    def _finish(self, sections: Sections, kind: str, headers: Headers, body: bytes) -> None:
        """Answer the request with the answer that has come."""
        self._connection.finish(head(200, kind, headers), body)

    def wait_no_longer(self) -> None:
        """Wait on: the answer is for nobody else."""

    def _give_up(self) -> None:
        post, self._post = self._post, None
        if post is not None:
            post.is_given_up = True
            self._sender.forget_given_up()

    def cancel(self) -> None:
        """Leave the question unsent, if it is, and take no answer."""
        self._give_up()
        super().cancel()


def post_request(connection: HttpConnection, request: Request, body: bytes) -> None:
    """Ask, and be answered."""
    route: Route = request.route
    check_query(route, "POST")
    wait_s = seconds(route.query, "wait", ANSWER_S, MAX_WAIT_S)
    connection.begin(Asking(connection, route.address, wait_s, request, body))
