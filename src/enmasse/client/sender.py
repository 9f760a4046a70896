"""Senders: messages go out as credit allows, and their outcomes come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from enmasse.client.carrier import Carrier
from enmasse.client.errors import (
    ClosedError,
    DeadlineError,
    FullError,
    TooLargeError,
    UnavailableError,
)
from enmasse.client.link import ClientLink, Owner
from enmasse.client.message import RESENT, Message, Outcome
from enmasse.client.transaction import Transaction, TransactionHandle
from enmasse.errors import EnmasseError
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import Accepted
from enmasse.message.sections import with_message_annotations
from enmasse.wire.amqp.link import Link as EngineLink
from enmasse.wire.amqp.link import SendingLink
from enmasse.wire.amqp.performatives import Target

MAX_PENDING = 10_000
"""Messages that ``send_nowait`` lets wait for credit: a second of what one process can send."""

MAX_PENDING_BYTES = 64 << 20
"""Bytes that wait for credit: what a process can well spare."""

UNLIMITED = 1 << 62


class Outgoing:
    """A message on its way out, with the future of its outcome."""

    __slots__ = ("future", "is_resent", "message_format", "payload", "settled", "sink", "transaction")

    def __init__(
        self,
        sink: Sender,
        future: asyncio.Future[Outcome],
        payload: bytes,
        settled: bool,
        message_format: int,
        transaction: Transaction | None = None,
    ) -> None:
        self.sink = sink
        self.future = future
        self.payload = payload
        self.settled = settled
        self.message_format = message_format
        self.transaction = transaction
        self.is_resent = False

    def flag(self) -> None:
        """Annotate it as sent again, where its format has a place for that."""
        if not self.is_resent:
            self.is_resent = True
            if not self.message_format:
                with suppress(DecodeError):
                    self.payload = with_message_annotations(self.payload, {RESENT: True})


class Sender(ClientLink):
    """Sends messages to one address; made by ``Connection.sender``.

    Messages leave in the order in which they were given. While the connection is down they wait; what
    was under way without an outcome is sent again (so it may arrive twice), unless ``resend`` is off. Such a
    message carries the annotation ``x-opt-resent``, and its outcome has ``is_resent``.

    At most ``max_pending`` messages of ``max_pending_bytes`` in all wait here for credit (one message always
    may); how many are under way without an outcome is bounded by the credit that the peer gives.
    """

    role = "sender"

    def __init__(
        self,
        name: str,
        address: str | None,
        owner: Owner,
        *,
        resend: bool = True,
        max_pending: int = MAX_PENDING,
        max_pending_bytes: int = MAX_PENDING_BYTES,
        capabilities: Sequence[str] = (),
        properties: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(name, address, owner)
        self._resend = resend
        self._max_pending = max_pending
        self._max_pending_bytes = max_pending_bytes
        self._pending_bytes = 0
        self._room_waiters: deque[asyncio.Future[None]] = deque()
        self._capabilities = tuple(capabilities)
        self._properties = properties
        self._link: SendingLink | None = None
        self._is_blocked = False
        self._largest = UNLIMITED
        self._queue: deque[Outgoing] = deque()
        self._under_way = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._grant_waiters: list[asyncio.Future[None]] = []
        self._create_future = self._loop.create_future

    @property
    def is_attached(self) -> bool:
        """True while the link is up."""
        return self._link is not None

    @property
    def credit(self) -> int:
        """Messages that the peer takes now, those that wait here already counted off."""
        link = self._link
        return 0 if link is None else max(0, link.credit - len(self._queue))

    @property
    def max_message_size(self) -> int | None:
        """Bytes of a message that the peer takes at most, once attached; ``None`` if it did not say."""
        return None if self._largest == UNLIMITED else self._largest

    @property
    def pending(self) -> int:
        """Messages that were given and have no outcome yet."""
        return len(self._queue) + self._under_way

    @property
    def pending_bytes(self) -> int:
        """Bytes of those that wait here for credit."""
        return self._pending_bytes

    # Sending

    async def send(
        self,
        message: Message,
        *,
        settled: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109  a socket's time-out, with words
        transaction: TransactionHandle | None = None,
    ) -> Outcome:
        """Send one message, and wait for room, for credit and for its outcome.

        Args:
            message: the message.
            settled: send it without asking for an outcome; the answer is ``Outcome.SETTLED`` as
                soon as it is on its way.
            timeout: seconds to wait.
            transaction: have the message count only if this is committed; the outcome is what it then has.

        Raises:
            DeadlineError: the time is over; a message that still waited is not sent any more.
            UnavailableError: the connection was lost, and the message is not sent again.
            LinkDetachedError: the peer ended the link.
            TooLargeError: the message is larger than the peer takes.
        """
        return await self.send_payload(message.encode(), settled=settled, timeout=timeout, transaction=transaction)

    async def send_payload(
        self,
        payload: bytes,
        *,
        message_format: int = 0,
        settled: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109  as in send
        transaction: TransactionHandle | None = None,
    ) -> Outcome:
        """Send bytes as they are; see ``send``.

        Args:
            payload: AMQP sections, or whatever ``message_format`` says.
            message_format: 0 for AMQP's own.
            settled: as in ``send``.
            timeout: as in ``send``.
            transaction: as in ``send``.
        """
        future: asyncio.Future[Outcome] | None = None
        try:
            if timeout is None:
                if self._queue or self._room_waiters:
                    await self._wait_for_room()
                future = self._submit(payload, settled, message_format, transaction)
                return await future
            async with asyncio.timeout(timeout):
                await self._wait_for_room()
                future = self._submit(payload, settled, message_format, transaction)
                return await future
        except TimeoutError:
            raise DeadlineError(self._explain_wait(timeout or 0.0)) from None
        finally:
            if future is not None and future.cancelled():
                self._drop_cancelled()

    def send_nowait(
        self, message: Message, *, settled: bool = False, transaction: TransactionHandle | None = None
    ) -> asyncio.Future[Outcome]:
        """Send one message and go on; the future gives its outcome.

        Raises:
            FullError: too many messages wait for credit; see ``wait_for_credit``.
            ClosedError: the sender is closed.
        """
        if self._queue:
            self._check_room()
        return self._submit(message.encode(), settled, 0, transaction)

    def send_payload_nowait(
        self,
        payload: bytes,
        *,
        message_format: int = 0,
        settled: bool = False,
        transaction: TransactionHandle | None = None,
    ) -> asyncio.Future[Outcome]:
        """Send bytes as they are and go on; see ``send_nowait``."""
        if self._queue:
            self._check_room()
        return self._submit(payload, settled, message_format, transaction)

    async def send_all(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | None = None,  # noqa: ASYNC109  as in send
        transaction: TransactionHandle | None = None,
    ) -> list[Outcome]:
        """Send many messages without waiting in between, and return their outcomes in order.

        Raises:
            EnmasseError: as for ``send``, from the first message that failed.
        """
        try:
            async with asyncio.timeout(timeout):
                futures = []
                for message in messages:
                    if self._queue or self._room_waiters:
                        await self._wait_for_room()
                    futures.append(self._submit(message.encode(), False, 0, transaction))
                return [await future for future in futures]
        except TimeoutError:
            raise DeadlineError(self._explain_wait(timeout or 0.0)) from None

    async def wait_for_credit(self) -> int:
        """Wait until a message could leave at once, and return how many could.

        Raises:
            EnmasseError: the link has ended.
        """
        while True:
            self._check()
            credit = self.credit
            if credit > 0 and not self._is_blocked:
                return credit
            await self._wait_in(self._waiters)

    async def is_granted(self, within_s: float) -> bool:
        """Return true if the peer takes messages, or takes more within so many seconds, whoever waits for that."""
        if self._link is None or self._link.credit <= 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._wait_in(self._grant_waiters)
                    return True
            return False
        return True

    async def flush(self) -> None:
        """Wait until every message that was given has its outcome, or has failed."""
        while self.pending:
            await self._wait_in(self._idle_waiters)

    async def _wait_in(self, waiters: list[asyncio.Future[None]]) -> None:
        waiter = self._loop.create_future()
        waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in waiters:
                waiters.remove(waiter)

    @property
    def _is_full(self) -> bool:
        return len(self._queue) >= self._max_pending or self._pending_bytes >= self._max_pending_bytes

    async def _wait_for_room(self) -> None:
        """Wait until fewer messages wait here, behind those who wait already; the caller then submits at once."""
        if self._room_waiters or self._is_full:
            waiter = self._loop.create_future()
            self._room_waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._room_waiters:
                    self._room_waiters.remove(waiter)
                else:
                    self._wake_for_room()
                raise
            # The next one tries again once our message is in.
            self._loop.call_soon(self._wake_for_room)

    def _wake_for_room(self) -> None:
        """Let the first waiter for room go on, if there is some."""
        while self._room_waiters and (self._is_ended or not self._is_full):
            waiter = self._room_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _check_room(self) -> None:
        if self._is_full:
            self._drop_cancelled()
        if self._is_full:
            raise FullError(
                f"{len(self._queue)} messages of {self._pending_bytes} bytes wait for credit in {self}:"
                " await wait_for_credit() first"
            )

    def _enqueue(self, outgoing: Outgoing) -> None:
        self._queue.append(outgoing)
        self._pending_bytes += len(outgoing.payload)

    def _drop_cancelled(self) -> None:
        """Drop messages whose futures were cancelled."""
        self._replace_queue(outgoing for outgoing in self._queue if not outgoing.future.cancelled())
        self._wake_for_room()

    def _replace_queue(self, queue: Iterable[Outgoing]) -> None:
        self._queue = deque(queue)
        self._pending_bytes = sum(len(outgoing.payload) for outgoing in self._queue)

    def _submit(
        self, payload: bytes, settled: bool, message_format: int, transaction: TransactionHandle | None = None
    ) -> asyncio.Future[Outcome]:
        if self._is_ended:
            self._check()
        if len(payload) > self._largest:
            raise TooLargeError(f"{len(payload)} bytes are too many for {self}, which takes {self._largest}")
        future: asyncio.Future[Outcome] = self._create_future()
        link = self._link
        within = None if transaction is None else transaction.inner
        outgoing = Outgoing(self, future, payload, settled, message_format, within)
        if within is not None:
            within.check(link)
            within.add(future)
            self._enqueue(outgoing)
            self._pump()
        elif link is None or link.credit <= 0 or self._is_blocked or self._queue:
            self._enqueue(outgoing)
        elif settled:
            link.send(outgoing, payload, True, message_format)
            future.set_result(Outcome.SETTLED)
        else:
            self._under_way += 1
            link.send(outgoing, payload, False, message_format)
        return future

    def _pump(self) -> None:
        """Send what waits, as far as credit goes."""
        link = self._link
        queue = self._queue
        if link is None:
            return
        while queue and link.credit > 0 and not self._is_blocked:
            outgoing = queue.popleft()
            self._pending_bytes -= len(outgoing.payload)
            if outgoing.future.done():
                continue
            if outgoing.transaction is not None:
                self._send_in(outgoing.transaction, link, outgoing)
            elif outgoing.settled:
                link.send(outgoing, outgoing.payload, True, outgoing.message_format)
                outgoing.future.set_result(Outcome.SETTLED)
            else:
                self._under_way += 1
                link.send(outgoing, outgoing.payload, False, outgoing.message_format)
        if self._room_waiters:
            self._wake_for_room()
        if not queue:
            if link.drain:
                link.drained()
            elif self._waiters and link.credit > 0 and not self._is_blocked:
                self._wake(self._waiters)
            if self._idle_waiters and not self._under_way:
                self._wake(self._idle_waiters)

    def _send_in(self, transaction: Transaction, link: SendingLink, outgoing: Outgoing) -> None:
        future = outgoing.future
        try:
            transaction.check(link)
        except EnmasseError as error:
            self._fail([outgoing], error)
            return
        payload, settled = outgoing.payload, outgoing.settled
        link.send_in_transaction(outgoing, payload, settled, outgoing.message_format, transaction.posted)
        if settled:
            future.set_result(Outcome.SETTLED)
        else:
            self._under_way += 1

    @staticmethod
    def _wake(waiters: list[asyncio.Future[None]]) -> None:
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        waiters.clear()

    def _explain_wait(self, timeout_s: float) -> str:
        link = self._link
        if link is None:
            return f"{self} was not connected for {timeout_s:g} s"
        if link.credit <= 0:
            why = "no receiver has room for more, or what is behind a connector cannot be reached"
            return f"{self} got no credit within {timeout_s:g} s: {why}"
        return f"{self} got no outcome within {timeout_s:g} s"

    # Callbacks of the engine

    def attach(self, carrier: Carrier) -> None:
        """Attach over a carrier that is up."""
        session = carrier.session
        assert session is not None
        self._attaching = session.attach_sender(
            self.name,
            self,
            Target(address=self._redirected or self._asked),
            desired_capabilities=self._capabilities or None,
            properties=self._properties,
        )

    def on_up(self, link: EngineLink) -> None:
        """The link is attached; credit follows."""
        assert isinstance(link, SendingLink)
        remote = link.remote_attach
        assert remote is not None
        self._largest = remote.max_message_size or UNLIMITED
        self._is_blocked = link.session.is_blocked or link.session.connection.is_blocked
        self._link = link

    def on_down(self, link: EngineLink, *, is_lost: bool) -> None:
        """Send what is under way again over the next link, or fail it."""
        self._link = None
        if not isinstance(link, SendingLink):
            return
        lost = [outgoing for outgoing in link.take_unsettled() if not outgoing.future.done()]
        self._under_way = 0
        for outgoing in (*lost, *self._queue):
            if outgoing.transaction is not None:
                self._fail([outgoing], outgoing.transaction.lost())
        lost = [outgoing for outgoing in lost if not outgoing.future.done()]
        if self._is_ended or (is_lost and not self._resend):
            self._fail(lost, UnavailableError(f"the outcome is not known: {self} lost its connection"))
        else:
            for outgoing in lost:
                outgoing.flag()
            self._replace_queue((*lost, *self._queue))

    def explain_end(self) -> EnmasseError | None:
        """The address takes no more, for whatever reason."""
        return UnavailableError(f"{self} was closed by the peer")

    def on_end(self) -> None:
        """Nothing more can be sent."""
        waiting = list(self._queue)
        self._replace_queue(())
        self._wake_for_room()
        self._fail(waiting, self._error or ClosedError(f"{self} was closed before the message was sent"))
        link = self._link
        if link is not None:
            self._link = None
            self._under_way = 0
            self._fail(
                link.take_unsettled(),
                self._error or self.unknown_outcome(),
            )
        self._wake(self._waiters)
        self._wake(self._idle_waiters)
        self._wake(self._grant_waiters)

    def unknown_outcome(self) -> UnavailableError:
        """Return the error of a message that was under way at the end."""
        return UnavailableError(f"the outcome is not known: {self} was closed before it came")

    @staticmethod
    def _fail(lost: list[Outgoing], error: EnmasseError) -> None:
        for outgoing in lost:
            future = outgoing.future
            if not future.done():
                future.set_exception(error)
                # A caller that sent without waiting may not ask.
                future.exception()

    def on_credit(self, gained: int, _drain: bool) -> None:
        """The peer takes more, or less."""
        if gained > 0 and self._grant_waiters:
            self._wake(self._grant_waiters)
        self._pump()

    def count_available(self) -> int | None:
        """Return how many messages wait for credit."""
        return len(self._queue)

    def on_blocked(self, blocked: bool) -> None:
        """The socket or the session's window is full, or is not any more."""
        self._is_blocked = blocked
        if not blocked:
            self._pump()

    def confirm(self, done: Callable[[], None]) -> None:
        """Call ``done`` at once, as nothing has to be stored for an outcome."""
        done()

    def on_outcome(self, outgoing: Outgoing, state: Any) -> None:
        """A message has its outcome."""
        self._under_way -= 1
        future = outgoing.future
        if not future.done():
            outcome = Outcome.ACCEPTED if type(state) is Accepted else Outcome.of(state)
            future.set_result(outcome.resent() if outgoing.is_resent else outcome)
        if self._idle_waiters and not self._under_way and not self._queue:
            self._wake(self._idle_waiters)
