"""Requests that are passed on to the node that is the home of their space, one by one.

A connection of HTTP serves several users and spaces, so it stays with the node that the client has reached, its
*front*: that checks hosts, origins and logins, and answers what is of no space. Each ``HttpConnection``, which is of
one user in one space, has a connection to the home, over which its requests go as they are, but for what proves who
sends them: a header has said that (``wire/peer_header``).

Rules:
1. An answer goes to the client as it comes: a short one whole, others in parts, and no faster than the client reads.
2. Nothing is asked twice. Where the home ends before it has answered, nobody knows what became of the request, and
   the client is told so.
3. A connection to the home that has ended, as the user's rights or the space's home have changed, leaves nothing
   behind: the client logs in anew with its next request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from enmasse.errors import RemoteError
from enmasse.node.http.routes import RETRY, http_error
from enmasse.wire.http.answers import HttpError
from enmasse.wire.http.client import ClientConnection

if TYPE_CHECKING:
    import asyncio

    from enmasse.messaging.space import Space
    from enmasse.net.peers import Failure, PeerCall
    from enmasse.node.connections.handover import Handovers, Home
    from enmasse.node.http.connection import HttpConnection
    from enmasse.wire.http.heads import Request

WHOLE_BYTES: Final = 64 << 10
"""The longest answer that is written as a whole, and so without a wait in between."""


class Passing:
    """The requests of a connection, on their way to the home of their space and back.

    Args:
        connection: the client's.
        handovers: reach the other nodes.
        space: the space.
        home: the home of the space.
    """

    __slots__ = (
        "_asked", "_call", "_connection", "_handovers", "_home", "_is_input_over", "_is_over", "_parts", "_space",
        "_start", "_upstream",
    )  # fmt: skip

    def __init__(self, connection: HttpConnection, handovers: Handovers, space: Space, home: Home) -> None:
        self._connection = connection
        self._handovers = handovers
        self._space = space
        self._home = home
        self._call: PeerCall | None = None
        self._upstream: ClientConnection | None = None
        self._asked: tuple[Request, bytes] | None = None
        """The request that waits for the connection."""
        self._start = b""
        """The head of an answer that is to be written as a whole."""
        self._parts: list[bytes] = []
        self._is_over = self._is_input_over = False

    def ask(self, request: Request, body: bytes) -> None:
        """Pass a request on.

        Raises:
            HttpError: there is no room for its body until the home has read it, or the home cannot be told of the
                client.
        """
        if not self._connection.more_room(len(body)):
            raise HttpError(
                503, "there is no room for bodies that wait: send smaller ones, or later",
                "amqp:resource-limit-exceeded", RETRY,
            )  # fmt: skip
        if self._upstream is not None:
            self._upstream.ask(request, body)
            return
        self._asked = request, body
        if self._call is None:
            try:
                header = self._handovers.message(self._connection, self._space, self._home)
            except RemoteError as error:
                raise http_error(error) from None
            self._call = self._handovers.call(self._home, lambda: header, self._taken, self._failed)

    def _taken(self, transport: asyncio.Transport, rest: bytes) -> None:
        self._call = None
        asked, self._asked = self._asked, None
        self._upstream = upstream = ClientConnection(self)
        shell = self._handovers.attach(self._connection, self._space, self._home, transport, upstream)
        if asked is not None:
            upstream.ask(*asked)
        if self._is_input_over:
            upstream.end_requests()
        if rest:
            shell.data_received(rest)

    def end_input(self) -> None:
        """Tell the home that the client says nothing more: it answers with what there is."""
        self._is_input_over = True
        if self._upstream is not None:
            self._upstream.end_requests()

    def _failed(self, failure: Failure) -> None:
        self._call = None
        error = self._handovers.problem(self._connection, self._space, self._home, failure)
        self._leave(http_error(error))

    def cancel(self) -> None:
        """End, as the client is gone."""
        self._is_over = True
        call, self._call = self._call, None
        upstream, self._upstream = self._upstream, None
        self._asked = None
        if call is not None:
            call.cancel()
        if upstream is not None:
            upstream.close()

    def _leave(self, error: HttpError) -> None:
        """End, as the home is gone: have the client log in again, and tell it of the request under way."""
        if not self._is_over:
            self._is_over = True
            self._parts.clear()
            self._connection.has_left(self, error)

    def on_blocked(self, is_blocked: bool) -> None:
        """Leave the answer with the home while the client does not read, or go on."""
        if self._upstream is not None:
            self._upstream.hold(is_blocked)

    # What the home answers

    def on_answer(self, start: bytes, length: int | None) -> None:
        """Begin an answer to the client."""
        self._connection.more_room(0)
        if length is not None and length <= WHOLE_BYTES:
            self._start = start
        else:
            self._connection.engine.begin_stream(start, length)

    def on_answer_part(self, data: bytes) -> None:
        """Pass on a part of an answer."""
        if self._start:
            self._parts.append(data)
        else:
            self._connection.engine.put_part(data)

    def on_answer_end(self) -> None:
        """Complete the answer."""
        start, self._start = self._start, b""
        parts, self._parts = self._parts, []
        if start:
            self._connection.finish(start, b"".join(parts))
        else:
            self._connection.end_stream()

    def on_ended(self) -> None:
        """Have the client log in again: what it has proved may not hold any more."""
        self._upstream = None
        self._leave(
            HttpError(
                502,
                "the node that is the home of the space has ended the connection before it answered: the request may "
                "have been done. Look, or repeat it with the same Idempotency-Key",
                "amqp:connection:forced",
            )
        )
