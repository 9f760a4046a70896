"""Requests and their replies, over one dynamic address for each connection."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, NoReturn

from enmasse.client.delivery import Delivery
from enmasse.client.errors import DeadlineError, RemoteError, UnavailableError
from enmasse.client.message import Message
from enmasse.client.outcome import Outcome
from enmasse.client.receiver import PREFETCH_BYTES, Receiver
from enmasse.client.sender import Sender
from enmasse.errors import EnmasseError
from enmasse.wire.amqp.link import Link as EngineLink

if TYPE_CHECKING:
    from enmasse.client.connection import Connection

__all__ = ["Requester"]

CREDIT = 100
MAX_ROUTES = 64
"""Links that are kept for the next request to the same address."""


class Replies(Receiver):
    """The receiver of replies: each goes straight to whoever waits for it."""

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
        """The address for replies is gone, and with it whatever was on its way there."""
        super().on_down(link, is_lost=is_lost)
        self.fail(UnavailableError("the connection was lost before the reply came"))

    def on_end(self) -> None:
        """No reply will come any more."""
        super().on_end()
        self.fail(self.error or UnavailableError("the connection was closed before the reply came"))

    def fail(self, error: EnmasseError) -> None:
        """Tell everybody who waits."""
        waiting = list(self.awaited.values())
        self.awaited.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()


class Requester:
    """Sends requests and matches replies; made by ``Connection.request`` on first use."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._replies: Replies | None = None
        self._routes: dict[str, _Route] = {}

    async def request(self, address: str, message: Message, timeout_s: float | None) -> Message:
        """See ``Connection.request``."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._request(address, message)
        except TimeoutError:
            raise DeadlineError(f"no reply from {address!r} within {timeout_s:g} s") from None

    async def _request(self, address: str, message: Message) -> Message:
        replies = await self._open_replies()
        sender = await self._open_sender(address)
        request = message.copy()
        if request.message_id is None:
            request.message_id = f"{self._connection.container_id}:{next(self._numbers)}"
        await replies.wait_attached()
        request.reply_to = replies.address
        expected = request.message_id if request.correlation_id is None else request.correlation_id
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        replies.awaited[expected] = future
        try:
            outcome = await sender.send(request)
            if outcome not in (Outcome.ACCEPTED, Outcome.SETTLED):
                _raise_refused(address, outcome)
            return await future
        finally:
            replies.awaited.pop(expected, None)

    async def _open_replies(self) -> Replies:
        async with self._lock:
            replies = self._replies
            if replies is None or replies.is_ended:
                replies = self._replies = await self._connection.open_link(
                    lambda name: Replies(
                        name,
                        None,
                        self._connection,
                        credit=CREDIT,
                        prefetch_bytes=PREFETCH_BYTES,
                        dynamic=True,
                        settled=False,
                        browse=False,
                        selector=None,
                        filters=None,
                        capabilities=(),
                        properties=None,
                        durable=False,
                        default_outcome=None,
                    ),
                    None,
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
                route.sender = await self._connection.sender(address, resend=False, timeout=None)
            return route.sender


class _Route:
    """The link for requests to one address, and who may attach it."""

    __slots__ = ("lock", "sender")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.sender: Sender | None = None


def _raise_refused(address: str, outcome: Outcome) -> NoReturn:
    if outcome == Outcome.REJECTED:
        raise RemoteError(
            outcome.condition or "amqp:precondition-failed",
            outcome.description or f"{address!r} rejected the request",
        )
    raise UnavailableError(f"nobody at {address!r} took the request: it was {outcome}")
