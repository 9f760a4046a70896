"""The links that a connection keeps for itself: for requests and their replies, and for transactions.

All requests of a connection share one dynamic address for replies, and one behind each connector. Transactions are
declared and discharged on one link to the peer's coordinator.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, NoReturn

from enmasse.client.carrier import Carrier
from enmasse.client.errors import DeadlineError, RemoteError, TransactionError, UnavailableError
from enmasse.client.link import Owner
from enmasse.client.message import Declaration, Message, Outcome
from enmasse.client.receiver import Delivery, Receiver
from enmasse.client.sender import Sender
from enmasse.client.transaction import Transaction
from enmasse.errors import EnmasseError
from enmasse.message.codec import encode
from enmasse.message.composites import Composite, encode_composite
from enmasse.message.types import ULong
from enmasse.wire.amqp.link import Link as EngineLink
from enmasse.wire.amqp.link import SendingLink
from enmasse.wire.amqp.performatives import LOCAL_TRANSACTIONS, Coordinator, Declare

MAX_ROUTES = 64
"""Links that are kept for the next request to the same address."""

RELEASED_S = 1.0
"""A request that was released is sent again if credit comes within this time, in seconds; else nobody takes it."""

MAX_RELEASES = 20
"""Times that a request is released before nobody is said to take it: its peer does not mean the credit it gives."""


class Replies(Receiver):
    """The receiver of replies: each goes straight to the request that waits for it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.awaited: dict[Any, asyncio.Future[Message]] = {}

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """A reply has come; one that nobody waits for any more is dropped."""
        super().on_message(payload, delivery_id, settled, message_format)
        delivery = self.receive_nowait()
        if delivery is not None:
            self._hand_over(delivery)

    def _hand_over(self, delivery: Delivery) -> None:
        try:
            message = delivery.message
        except RemoteError as error:
            delivery.reject(error.condition, error.description)
            return
        delivery.accept()
        future = self.awaited.pop(message.correlation_id, None)
        if future is not None and not future.done():
            future.set_result(message)

    def on_down(self, link: EngineLink, *, is_lost: bool) -> None:
        """Fail what waits, as the address for replies has ended with the link."""
        super().on_down(link, is_lost=is_lost)
        self.fail(UnavailableError("the connection was lost before the reply came"))

    def on_end(self) -> None:
        """No reply will come any more."""
        super().on_end()
        self.fail(self.error or UnavailableError("the connection was closed before the reply came"))

    def fail(self, error: EnmasseError) -> None:
        """Fail all requests that wait."""
        waiting = list(self.awaited.values())
        self.awaited.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()


class Requester:
    """Sends requests and matches replies; made by ``Connection.request`` on first use."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._lock = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._replies: dict[str | None, Replies] = {}
        """By the connector behind which the address for replies is."""
        self._routes: dict[str, _Route] = {}

    async def request(
        self, address: str, message: Message, timeout_s: float | None, connector: str | None
    ) -> Message:
        """See ``Connection.request``."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._request(address, message, connector)
        except TimeoutError:
            raise DeadlineError(f"no reply from {address!r} within {timeout_s:g} s") from None

    async def _request(self, address: str, message: Message, connector: str | None) -> Message:
        replies = await self._open_replies(connector)
        sender = await self._open_sender(address)
        request = message.copy()
        if request.message_id is None:
            request.message_id = f"{self._owner.container_id}:{next(self._numbers)}"
        await replies.wait_attached()
        request.reply_to = replies.address
        if connector is not None and replies.address is not None:
            # Over there it goes by its own name.
            request.reply_to = replies.address.removeprefix(f"{connector}/")
        expected = request.message_id if request.correlation_id is None else request.correlation_id
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        replies.awaited[expected] = future
        try:
            outcome = await _send(sender, request)
            if outcome not in (Outcome.ACCEPTED, Outcome.SETTLED):
                _raise_refused(address, outcome)
            return await future
        finally:
            replies.awaited.pop(expected, None)

    async def _open_replies(self, connector: str | None) -> Replies:
        async with self._lock:
            replies = self._replies.get(connector)
            if replies is None or replies.is_ended:
                replies = self._replies[connector] = await self._owner.open_link(
                    lambda name: Replies(name, connector, self._owner, dynamic=True), None
                )
            return replies

    async def _open_sender(self, address: str) -> Sender:
        route = self._routes.pop(address, None) or _Route()
        self._routes[address] = route
        if len(self._routes) > MAX_ROUTES:
            oldest = self._routes.pop(next(iter(self._routes))).sender
            if oldest is not None:
                await oldest.close()
        async with route.lock:
            if route.sender is None or route.sender.is_ended:
                # A request is no use on a new connection: its reply address is gone with the old one.
                route.sender = await self._owner.open_link(
                    lambda name: Sender(name, address, self._owner, resend=False), None
                )
            return route.sender


class _Route:
    """The link for requests to one address, and the lock for attaching it."""

    __slots__ = ("lock", "sender")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.sender: Sender | None = None


async def _send(sender: Sender, request: Message) -> Outcome:
    """Send a request, and again when it was released: its credit may have been called in while it was on its way."""
    for _ in range(MAX_RELEASES):
        outcome = await sender.send(request)
        if outcome != Outcome.RELEASED or not await sender.is_granted(RELEASED_S):
            break
    return outcome


def _raise_refused(address: str, outcome: Outcome) -> NoReturn:
    if outcome == Outcome.REJECTED:
        raise RemoteError(
            outcome.condition or "amqp:precondition-failed",
            outcome.description or f"{address!r} rejected the request",
        )
    raise UnavailableError(f"nobody at {address!r} took the request: it was {outcome}")


_AMQP_VALUE = b"\x00" + encode(ULong(0x77))


class ControlLink(Sender):
    """The link that transactions are declared and discharged on; made by ``Connection.transaction``."""

    role = "control link"

    def __init__(self, name: str, owner: Owner) -> None:
        super().__init__(name, None, owner, resend=False)

    def __str__(self) -> str:
        return f"the transactions' {self.role} at {self._owner}"

    @property
    def link(self) -> SendingLink | None:
        """The link of the present connection, while it is up."""
        return self._link

    def attach(self, carrier: Carrier) -> None:
        """Attach over a carrier that is up."""
        session = carrier.session
        assert session is not None
        self._attaching = session.attach_sender(self.name, self, Coordinator((LOCAL_TRANSACTIONS,)))

    async def post(self, request: Composite) -> Outcome:
        """Send a declare or a discharge, and wait for its outcome."""
        if self._link is not None:
            # What was settled before must go out before.
            self._link.session.flush()
        return await self.send_payload(_AMQP_VALUE + encode_composite(request))


async def declare(control: ControlLink) -> Transaction:
    """Begin a transaction.

    Raises:
        TransactionError: the peer has refused.
        UnavailableError: the connection was lost.
    """
    outcome = await control.post(Declare())
    link = control.link
    if link is None:
        raise UnavailableError(f"{control} lost its connection")
    if not isinstance(outcome, Declaration):
        raise TransactionError(outcome.condition or "amqp:internal-error", outcome.description or "", str(control))
    return Transaction(control, link, outcome.txn_id)
