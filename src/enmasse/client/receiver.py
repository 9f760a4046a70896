"""Receivers, which grant credit and take deliveries, and deliveries, which are settled with an outcome."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Self

from enmasse.client.carrier import Carrier
from enmasse.client.errors import DeadlineError, UnavailableError
from enmasse.client.link import ClientLink, Owner
from enmasse.client.message import RESENT, Message, Outcome
from enmasse.client.transaction import TransactionHandle
from enmasse.errors import EnmasseError
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Modified, Rejected
from enmasse.message.types import Described, Symbol
from enmasse.wire.amqp.link import Link as EngineLink
from enmasse.wire.amqp.link import ReceivingLink
from enmasse.wire.amqp.performatives import DYNAMIC_PLACE, Source

SETTLED, MIXED = 1, 2

CREDIT = 100
"""The window of a receiver: messages that may be on their way or wait here."""

PREFETCH_BYTES = 16 << 20
"""So much may wait to be taken: hundreds of ordinary messages, a dozen of the largest ones."""

NEED = 4
"""So many times the room may be taken before credit is taken back: senders to a direct
address then get messages on their way back as released, which is worse than to hold them."""

LARGE_BYTES = 64 << 10
"""The size assumed of messages before the first has come: few are larger."""

LASTING: dict[str, Any] = {"durable": 1, "expiry_policy": Symbol("never")}
"""A source whose subscription outlives the link, but not what is unsettled."""

SELECTOR_FILTER = "apache.org:selector-filter:string"


class _Done:
    """An awaitable that is done already."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        return iter(())  # type: ignore[return-value]


_DONE = _Done()


class Delivery:
    """One message that came.

    ``accept``, ``release``, ``reject`` and ``modify`` take effect at once, awaited or not, and go
    out together at the end of the loop's turn. They are without effect on a delivery that is
    settled, and on one whose connection is gone: its sender will send it again. Within a transaction the
    outcome counts once that is committed; if it is rolled back, the message comes again.

    Attributes:
        payload: the message's bytes.
        message_format: 0 for AMQP's own; else ``payload`` is not made of AMQP sections.
        settled: true if the sender knows the outcome, or does not want to know it.
        receiver: the receiver that it came through.
    """

    __slots__ = ("_id", "_link", "_message", "message_format", "payload", "receiver", "settled")

    def __init__(
        self,
        receiver: Receiver,
        link: ReceivingLink,
        payload: bytes,
        delivery_id: int,
        settled: bool,
        message_format: int,
    ) -> None:
        self.receiver = receiver
        self._link = link
        self.payload = payload
        self._id = delivery_id
        self.settled = settled
        self.message_format = message_format
        self._message: Message | None = None

    @property
    def message(self) -> Message:
        """The message, decoded when it is first asked for.

        Raises:
            DecodeError: it is malformed, or not in AMQP's own format.
        """
        message = self._message
        if message is None:
            if self.message_format:
                raise DecodeError(f"message format {self.message_format:#x} has no AMQP sections; read the payload")
            message = self._message = Message.decode(self.payload)
        return message

    @property
    def may_be_repeated(self) -> bool:
        """True if the message, or a failed delivery of it, may have been here before.

        A sender that does not flag what it sends again makes duplicates that look like any other message.
        """
        message = self.message
        return bool(message.delivery_count or message.annotations.get(RESENT))

    def accept(self, *, transaction: TransactionHandle | None = None) -> _Done:
        """Accept the message, with a transaction once that is committed.

        Raises:
            EnmasseError: the transaction has ended, was lost, or is not of the delivery's connection.
        """
        if transaction is not None:
            return self._settle(ACCEPTED, transaction)
        if not self.settled:
            self.settled = True
            link = self._link
            if not link.is_detached:
                link.session.settle(self._id, ACCEPTED)
        return _DONE

    def release(self, *, transaction: TransactionHandle | None = None) -> _Done:
        """Release the message, which was not processed: it may be delivered to any receiver."""
        return self._settle(RELEASED, transaction)

    def reject(
        self,
        condition: str = "amqp:precondition-failed",
        description: str | None = None,
        *,
        transaction: TransactionHandle | None = None,
    ) -> _Done:
        """Reject the message as invalid, for the reason given."""
        return self._settle(Rejected(AmqpError(condition, description)), transaction)

    def modify(
        self,
        *,
        failed: bool = True,
        undeliverable_here: bool = False,
        annotations: dict[str, Any] | None = None,
        transaction: TransactionHandle | None = None,
    ) -> _Done:
        """Give the message back as not processed to the end.

        Args:
            failed: whether to count it as a failed attempt.
            undeliverable_here: whether this receiver is not to have it again.
            annotations: to add to the message.
            transaction: as for ``accept``.
        """
        named = {Symbol(key): value for key, value in annotations.items()} if annotations else None
        return self._settle(Modified(failed, undeliverable_here, named), transaction)

    def _settle(self, state: Any, transaction: TransactionHandle | None) -> _Done:
        if not self.settled:
            link = self._link
            if transaction is not None:
                within = transaction.inner
                within.check(link)
                if link.is_detached:
                    raise UnavailableError(f"the delivery was given back when {self.receiver} was detached")
                state = within.state(state)
            self.settled = True
            if not link.is_detached:
                link.session.settle(self._id, state)
        return _DONE

    def __repr__(self) -> str:
        kind = f"format {self.message_format:#x}" if self.message_format else "message"
        return f"<Delivery of a {kind} of {len(self.payload)} bytes through {self.receiver}>"


class Receiver(ClientLink):
    """Receives messages from one address; made by ``Connection.receiver``.

    With a credit window of ``credit``, so many messages at most are on their way or wait here to be
    taken; half of them taken, the window is filled up. With a window of 0 nothing comes but what
    ``grant`` asks for. A window is smaller while messages are so large that ``prefetch_bytes`` would
    not hold them; it opens with the first message, whose size is known. Should four times as much wait here,
    credit is taken back, and a message of a direct address that is on its way may be released.

    When the connection was lost, what waits here unseen is dropped, since it will come again.

    Attributes:
        filters: the filters that were asked of the source; changes count from the next attach on.
    """

    role = "receiver"

    def __init__(
        self,
        name: str,
        address: str | None,
        owner: Owner,
        *,
        credit: int = CREDIT,
        prefetch_bytes: int = PREFETCH_BYTES,
        dynamic: bool = False,
        settled: bool = False,
        browse: bool = False,
        selector: str | None = None,
        filters: Mapping[str, Any] | None = None,
        capabilities: Sequence[str] = (),
        properties: dict[str, Any] | None = None,
        durable: bool = False,
        default_outcome: Outcome | None = None,
    ) -> None:
        super().__init__(name, address, owner)
        self.filters = dict(filters or {})
        if selector is not None:
            self.filters[SELECTOR_FILTER] = selector
        self._mode = Symbol("copy") if browse else None
        self._window = credit
        self._refill = max(1, credit // 2)
        self._room = prefetch_bytes
        self._held = 0
        self._size = 0
        self._mark = 0
        """With more bytes than this waiting here, there is something to decide."""
        self._taken = 0
        self._is_short = False
        self._drained: asyncio.Future[None] | None = None
        self._granted = 0
        self._is_dynamic = dynamic
        self._wants_settled = settled
        self._capabilities = tuple(capabilities)
        self._properties = properties
        self._is_durable = durable
        self._default = None if default_outcome is None else default_outcome.state()
        self._link: ReceivingLink | None = None
        self._buffer: deque[Delivery] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def is_attached(self) -> bool:
        """True while the link is up."""
        return self._link is not None

    @property
    def credit(self) -> int:
        """Messages that the peer may still send."""
        return self._granted if self._link is None else self._link.credit

    @property
    def waiting(self) -> int:
        """Deliveries that wait here to be taken."""
        return len(self._buffer)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of these."""
        return self._held

    # Receiving

    def grant(self, credit: int) -> None:
        """Ask for ``credit`` messages more; for receivers without a window."""
        self._check()
        if self._link is None:
            self._granted += credit
        else:
            self._link.grant(self._link.credit + credit)

    async def drain(self, timeout: float | None = None) -> int:  # noqa: ASYNC109  as in receive
        """Have the peer send what it has for the present credit, and take the rest of that credit back.

        Afterwards the credit is 0, and what came waits here: take it with ``receive_nowait``. The window is
        opened again when ``receive`` finds nothing here.

        Args:
            timeout: seconds to wait for the peer.

        Returns:
            How many deliveries wait here to be taken.

        Raises:
            DeadlineError: the peer did not answer in time.
            LinkDetachedError: the peer ended the link because of an error.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._drain()
        except TimeoutError:
            raise DeadlineError(f"{self} was not drained within {timeout:g} s") from None
        finally:
            self._on_drained()
        return len(self._buffer)

    async def _drain(self) -> None:
        while not self._is_ended:
            self._is_short = True
            link = self._link
            if (self._granted if link is None else link.credit) <= 0:
                return
            if link is not None and self._drained is None:
                link.drain()
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)
        if self._error is not None:
            raise self._error

    def _on_drained(self) -> None:
        """Wake what waits for the end of a drain."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    async def receive(self, timeout: float | None = None) -> Delivery | None:  # noqa: ASYNC109  a poll
        """Return the next delivery; ``None`` if none came in time, or if the peer ended the link in order.

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
        """Return the next delivery, if one waits here."""
        if not self._buffer:
            return None
        delivery = self._buffer.popleft()
        self._held -= len(delivery.payload)
        self._taken += 1
        if self._taken >= self._refill:
            self._top_up(len(delivery.payload))
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
            if self._is_short and self._drained is None:
                self._is_short = False
                self._top_up()
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

    def _top_up(self, size: int = 0) -> None:
        """Fill the window up; ``size`` is that of a message just taken."""
        self._taken = 0
        link = self._link
        if not self._window or link is None or self._drained is not None:
            return
        waiting = len(self._buffer)
        credit = self._window - waiting
        # As large as those that came last the next ones may be, too.
        size = self._size = (self._held // waiting if waiting else size) or self._size
        credit = min(credit, (self._room - self._held) // (size or LARGE_BYTES))
        # What was granted is a promise, and taken back only when there is need.
        credit = max(credit, link.credit, 0 if waiting else 1)
        self._refill = max(1, (credit + waiting) // 2)
        link.grant(credit)

    def _weigh(self) -> None:
        """Open the window when the first size is known; close it when more waits here than there is room for."""
        link = self._link
        if not self._mark:
            self._mark = NEED * self._room
            if self._held <= self._mark:
                self._top_up()
                return
        if self._window and link is not None and link.credit > 0 and self._drained is None:
            self._refill = max(1, len(self._buffer) // 2)
            link.grant(0)

    # Callbacks of the engine

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
                address=None if self._is_dynamic else self._redirected or self._asked,
                dynamic=self._is_dynamic,
                dynamic_node_properties={DYNAMIC_PLACE: self._asked} if self._is_dynamic and self._asked else None,
                distribution_mode=self._mode,
                filter=filters or None,
                default_outcome=self._default,
                **(LASTING if self._is_durable else {}),
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
        self._on_drained()
        if self._window:
            self._top_up()
        elif self._granted:
            link.grant(self._granted)
            self._granted = 0

    def on_down(self, link: EngineLink, *, is_lost: bool) -> None:
        """Drop deliveries that nobody has taken, as they come again."""
        if self._link is not None:
            self._granted = self._link.credit
            self._link = None
        if is_lost:
            kept = [delivery for delivery in self._buffer if delivery.settled]
            self._granted += len(self._buffer) - len(kept)
            self._buffer.clear()
            self._buffer.extend(kept)
            self._held = sum(len(delivery.payload) for delivery in kept)

    def explain_end(self) -> EnmasseError | None:
        """Return no error: there is no more to come, as at the end of a stream's range."""
        return None

    def on_end(self) -> None:
        """Nothing more will come: wake everything that waits."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
        self._on_drained()

    def before_close(self) -> None:
        """Release the deliveries that nobody has taken."""
        for delivery in self._buffer:
            delivery.release()
        self._buffer.clear()
        self._held = 0

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """A message has come."""
        link = self._link
        assert link is not None
        self._buffer.append(Delivery(self, link, payload, delivery_id, settled, message_format))
        self._held += len(payload)
        if self._waiters:
            self._wake()
        if self._held > self._mark:
            self._weigh()

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """A message has come for credit that we took back meanwhile; it is taken all the same."""
        self.on_message(payload, delivery_id, settled, message_format)

    def on_exhausted(self) -> None:
        """The credit is used up; taking what waits here fills it again."""
        if self._drained is not None:
            self._on_drained()

    def on_given_up(self, _credit: int) -> None:
        """The peer has used up credit without sending."""
        if self._drained is not None:
            self._on_drained()
        else:
            self._top_up()

    def on_available(self, available: int) -> None:
        """The peer has messages waiting."""
