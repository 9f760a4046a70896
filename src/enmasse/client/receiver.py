"""Receivers: credit goes out, deliveries come in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Self

from enmasse.client.carrier import Carrier
from enmasse.client.delivery import Delivery
from enmasse.client.link import ClientLink, Owner
from enmasse.errors import EnmasseError
from enmasse.wire.amqp.link import Link as EngineLink
from enmasse.wire.amqp.link import ReceivingLink
from enmasse.wire.amqp.performatives import Source
from enmasse.wire.amqp.types import Described, Symbol

__all__ = ["Receiver"]

SETTLED, MIXED = 1, 2

SELECTOR_FILTER = "apache.org:selector-filter:string"


class Receiver(ClientLink):
    """Receives messages from one address; made by ``Connection.receiver``.

    With a credit window of ``credit``, so many messages at most are on their way or wait here to be
    taken; half of them taken, the window is filled up. With a window of 0 nothing comes but what
    ``grant`` asks for.

    When the connection was lost, what waits here unseen is dropped, since it will come again.

    Attributes:
        filters: what was asked of the source; changes count from the next attach on.
    """

    role = "receiver"

    def __init__(
        self,
        name: str,
        address: str | None,
        owner: Owner,
        *,
        credit: int,
        dynamic: bool,
        settled: bool,
        browse: bool,
        selector: str | None,
        filters: Mapping[str, Any] | None,
        capabilities: Sequence[str],
        properties: dict[str, Any] | None,
    ) -> None:
        super().__init__(name, address, owner)
        self.filters = dict(filters or {})
        if selector is not None:
            self.filters[SELECTOR_FILTER] = selector
        self._mode = Symbol("copy") if browse else None
        self._window = credit
        self._refill = max(1, credit // 2)
        self._taken = 0
        self._granted = 0
        self._is_dynamic = dynamic
        self._wants_settled = settled
        self._capabilities = tuple(capabilities)
        self._properties = properties
        self._link: ReceivingLink | None = None
        self._buffer: deque[Delivery] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def is_attached(self) -> bool:
        """Whether the link is up at this moment."""
        return self._link is not None

    @property
    def credit(self) -> int:
        """How many messages the peer may still send."""
        return self._granted if self._link is None else self._link.credit

    @property
    def waiting(self) -> int:
        """How many deliveries wait here to be taken."""
        return len(self._buffer)

    # Receiving

    def grant(self, credit: int) -> None:
        """Ask for ``credit`` messages more; for receivers without a window."""
        self._check()
        if self._link is None:
            self._granted += credit
        else:
            self._link.grant(self._link.credit + credit)

    async def receive(self, timeout: float | None = None) -> Delivery | None:  # noqa: ASYNC109  a poll
        """The next delivery; ``None`` if none came in time, or if the peer ended the link in order.

        Args:
            timeout: seconds to wait.

        Raises:
            LinkDetachedError: the peer ended the link because of an error.
            UnavailableError: the connection was lost and is not made again.
        """
        if not self._buffer:
            if timeout is None:
                await self._wait()
            else:
                try:
                    async with asyncio.timeout(timeout):
                        await self._wait()
                except TimeoutError:
                    return None
        return self.receive_nowait()

    def receive_nowait(self) -> Delivery | None:
        """The next delivery, if one waits here."""
        if not self._buffer:
            return None
        delivery = self._buffer.popleft()
        self._taken += 1
        if self._taken >= self._refill:
            self._top_up()
        return delivery

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        if not self._buffer:
            await self._wait()
        delivery = self.receive_nowait()
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    async def _wait(self) -> None:
        """Wait until something lies in the buffer, or the link has ended in order."""
        while not self._buffer:
            if self._is_ended:
                if self._error is not None:
                    raise self._error
                return
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                elif self._buffer:
                    # What this one was woken for is another's now.
                    self._wake()
                raise

    def _wake(self) -> None:
        waiters = self._waiters
        while waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _top_up(self) -> None:
        self._taken = 0
        if self._window and self._link is not None:
            self._link.grant(max(0, self._window - len(self._buffer)))

    # What the engine tells

    def attach(self, carrier: Carrier) -> None:
        """Attach over a carrier that is up."""
        session = carrier.session
        assert session is not None
        filters = {
            Symbol(key): value if isinstance(value, Described) else Described(Symbol(key), value)
            for key, value in self.filters.items()
        }
        self._attaching = session.attach_receiver(
            self.name,
            self,
            Source(
                address=self._told or self._asked,
                dynamic=self._is_dynamic,
                distribution_mode=self._mode,
                filter=filters or None,
            ),
            snd_settle_mode=SETTLED if self._wants_settled else MIXED,
            desired_capabilities=self._capabilities or None,
            properties=self._properties,
        )

    def on_up(self, link: EngineLink) -> None:
        """The link is attached: grant."""
        assert isinstance(link, ReceivingLink)
        remote = link.remote_attach
        assert remote is not None
        if self._is_dynamic and remote.source is not None:
            self.address = remote.source.address
        self._link = link
        if self._window:
            self._top_up()
        elif self._granted:
            link.grant(self._granted)
            self._granted = 0

    def on_down(self, link: EngineLink, *, is_lost: bool) -> None:
        """What waits here unseen will come again."""
        if self._link is not None:
            self._granted = self._link.credit
            self._link = None
        if is_lost:
            kept = [delivery for delivery in self._buffer if delivery.settled]
            self._granted += len(self._buffer) - len(kept)
            self._buffer.clear()
            self._buffer.extend(kept)

    def explain_end(self) -> EnmasseError | None:
        """There is no more to come, as at the end of a stream's range."""
        return None

    def on_end(self) -> None:
        """Nothing more will come; whoever waits is told."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def before_close(self) -> None:
        """Give back what nobody has seen."""
        for delivery in self._buffer:
            delivery.release()
        self._buffer.clear()

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """A message has come."""
        link = self._link
        assert link is not None
        self._buffer.append(Delivery(self, link, payload, delivery_id, settled, message_format))
        if self._waiters:
            self._wake()

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """A message has come for credit that we took back meanwhile; it is welcome all the same."""
        self.on_message(payload, delivery_id, settled, message_format)

    def on_exhausted(self) -> None:
        """The credit is used up; taking what waits here fills it again."""

    def on_given_up(self, _credit: int) -> None:
        """The peer has used up credit without sending."""
        self._top_up()

    def on_available(self, available: int) -> None:
        """The peer has messages waiting."""
