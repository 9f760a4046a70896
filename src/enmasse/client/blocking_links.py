"""Senders, receivers and deliveries without asyncio; see ``blocking``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from enmasse.client.background import Background
from enmasse.client.blocking_transaction import Transaction, inner
from enmasse.client.delivery import Delivery as AsyncDelivery
from enmasse.client.message import Message
from enmasse.client.outcome import Outcome
from enmasse.client.receiver import Receiver as AsyncReceiver
from enmasse.client.sender import Sender as AsyncSender
from enmasse.client.transaction import Transaction as AsyncTransaction
from enmasse.errors import EnmasseError

__all__ = ["Closing", "Delivery", "Receiver", "Sender"]


class Closing:
    """What is closed when its block ends."""

    def close(self) -> None:
        """Close it; without effect the second time."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Link(Closing):
    """What senders and receivers tell of themselves; see ``enmasse.client``."""

    def __init__(self, background: Background, link: AsyncSender | AsyncReceiver) -> None:
        self._background = background
        self._link = link

    @property
    def name(self) -> str:
        """The link's name."""
        return self._link.name

    @property
    def address(self) -> str | None:
        """The address; for a dynamic receiver, as the peer has named it."""
        return self._link.address

    @property
    def credit(self) -> int:
        """How many messages may be sent now."""
        return self._link.credit

    @property
    def is_attached(self) -> bool:
        """Whether the link is up at this moment."""
        return self._link.is_attached

    @property
    def is_ended(self) -> bool:
        """Whether the link has ended for good."""
        return self._link.is_ended

    @property
    def error(self) -> EnmasseError | None:
        """Why the link has ended, if it did not end in order."""
        return self._link.error

    @property
    def remote_properties(self) -> dict[Any, Any]:
        """What the peer said of its end of the link."""
        return self._link.remote_properties

    @property
    def remote_capabilities(self) -> tuple[str, ...]:
        """The extensions that the peer's end supports."""
        return self._link.remote_capabilities

    def wait_attached(self) -> None:
        """Wait until the link is attached again after a loss."""
        self._background.run(self._link.wait_attached())

    def __str__(self) -> str:
        return str(self._link)


class Sender(_Link):
    """See ``enmasse.client.Sender``."""

    def __init__(self, background: Background, sender: AsyncSender) -> None:
        super().__init__(background, sender)
        self._sender = sender

    @property
    def max_message_size(self) -> int | None:
        """How many bytes of a message the peer takes, once attached; ``None`` if it did not say."""
        return self._sender.max_message_size

    @property
    def pending(self) -> int:
        """Messages that were given and have no outcome yet."""
        return self._sender.pending

    @property
    def pending_bytes(self) -> int:
        """Bytes of those that wait here for credit."""
        return self._sender.pending_bytes

    def send(
        self,
        message: Message,
        *,
        settled: bool = False,
        timeout: float | None = None,
        transaction: Transaction | None = None,
    ) -> Outcome:
        """Send one message, and wait for its outcome."""
        return self.send_payload(message.encode(), settled=settled, timeout=timeout, transaction=transaction)

    def send_payload(
        self,
        payload: bytes,
        *,
        message_format: int = 0,
        settled: bool = False,
        timeout: float | None = None,
        transaction: Transaction | None = None,
    ) -> Outcome:
        """Send bytes as they are, and wait for their outcome."""
        return self._background.run(
            self._sender.send_payload(
                payload,
                message_format=message_format,
                settled=settled,
                timeout=timeout,
                transaction=inner(transaction),
            )
        )

    def send_nowait(
        self, message: Message, *, settled: bool = False, transaction: Transaction | None = None
    ) -> Future[Outcome]:
        """Send one message and go on; the future gives its outcome, or is cancelled with the message."""
        return self.send_payload_nowait(message.encode(), settled=settled, transaction=transaction)

    def send_payload_nowait(
        self,
        payload: bytes,
        *,
        message_format: int = 0,
        settled: bool = False,
        transaction: Transaction | None = None,
    ) -> Future[Outcome]:
        """Send bytes as they are and go on; see ``send_nowait``."""

        async def submit() -> Future[Outcome]:
            sent = self._sender.send_payload_nowait(
                payload, message_format=message_format, settled=settled, transaction=inner(transaction)
            )

            async def wait() -> Outcome:
                return await sent

            return asyncio.run_coroutine_threadsafe(wait(), asyncio.get_running_loop())

        return self._background.run(submit())

    def send_all(
        self, messages: Iterable[Message], *, timeout: float | None = None, transaction: Transaction | None = None
    ) -> list[Outcome]:
        """Send many messages, and wait for their outcomes; far quicker than one by one."""
        return self._background.run(self._sender.send_all(messages, timeout=timeout, transaction=inner(transaction)))

    def wait_for_credit(self) -> int:
        """Wait until a message could leave at once, and tell how many could."""
        return self._background.run(self._sender.wait_for_credit())

    def flush(self) -> None:
        """Wait until every message that was given has its outcome, or has failed."""
        self._background.run(self._sender.flush())

    def close(self) -> None:
        """Detach; without effect the second time."""
        self._background.run(self._sender.close())


class Delivery:
    """See ``enmasse.client.Delivery``; the outcomes are told without waiting."""

    __slots__ = ("_background", "_delivery")

    def __init__(self, background: Background, delivery: AsyncDelivery) -> None:
        self._background = background
        self._delivery = delivery

    @property
    def payload(self) -> bytes:
        """The message's bytes."""
        return self._delivery.payload

    @property
    def message_format(self) -> int:
        """0 for AMQP's own; else ``payload`` is not made of AMQP sections."""
        return self._delivery.message_format

    @property
    def settled(self) -> bool:
        """Whether the sender knows the outcome, or does not want to know it."""
        return self._delivery.settled

    @property
    def message(self) -> Message:
        """The message, decoded when it is first asked for."""
        return self._delivery.message

    @property
    def may_be_repeated(self) -> bool:
        """Whether the message, or a failed delivery of it, may have been here before."""
        return self._delivery.may_be_repeated

    def accept(self, *, transaction: Transaction | None = None) -> None:
        """The message is taken care of."""
        if transaction is None:
            self._tell(self._delivery.accept)
        else:
            self._tell_in(lambda within: self._delivery.accept(transaction=within), transaction)

    def release(self, *, transaction: Transaction | None = None) -> None:
        """The message was not processed; whoever wants may have it."""
        self._tell_in(lambda within: self._delivery.release(transaction=within), transaction)

    def reject(
        self,
        condition: str = "amqp:precondition-failed",
        description: str | None = None,
        *,
        transaction: Transaction | None = None,
    ) -> None:
        """The message is invalid, for the reason given."""
        self._tell_in(lambda within: self._delivery.reject(condition, description, transaction=within), transaction)

    def modify(
        self,
        *,
        failed: bool = True,
        undeliverable_here: bool = False,
        annotations: dict[str, Any] | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """The message was not processed to the end."""
        self._tell_in(
            lambda within: self._delivery.modify(
                failed=failed, undeliverable_here=undeliverable_here, annotations=annotations, transaction=within
            ),
            transaction,
        )

    def _tell_in(self, settle: Callable[[AsyncTransaction | None], object], transaction: Transaction | None) -> None:
        """Within a transaction it matters whether that went well, so it is waited for."""
        if transaction is None:
            self._tell(lambda: settle(None))
            return

        async def do_it() -> None:
            settle(transaction.inner)

        self._background.run(do_it())

    def _tell(self, settle: Callable[[], object]) -> None:
        if not self._delivery.settled:
            self._background.call(settle)


class Receiver(_Link):
    """See ``enmasse.client.Receiver``.

    What lies ready is fetched together, so up to two credit windows of messages may be here.
    """

    def __init__(self, background: Background, receiver: AsyncReceiver) -> None:
        super().__init__(background, receiver)
        self._receiver = receiver
        self._fetched: deque[AsyncDelivery] = deque()

    @property
    def filters(self) -> dict[str, Any]:
        """What was asked of the source; changes count from the next attach on."""
        return self._receiver.filters

    @property
    def waiting(self) -> int:
        """How many deliveries wait here to be taken."""
        return self._receiver.waiting + len(self._fetched)

    @property
    def waiting_bytes(self) -> int:
        """How many bytes these have."""
        return self._receiver.waiting_bytes + sum(len(delivery.payload) for delivery in self._fetched)

    @property
    def is_ended(self) -> bool:
        """Whether the link has ended for good and everything it brought has been received."""
        return self._receiver.is_ended and not self._fetched and not self._receiver.waiting

    def grant(self, credit: int) -> None:
        """Ask for ``credit`` messages more; for receivers without a window."""

        async def do_it() -> None:
            self._receiver.grant(credit)

        self._background.run(do_it())

    def drain(self, timeout: float | None = None) -> int:
        """Have the peer send what it has for the present credit; how many deliveries wait here then."""
        self._background.run(self._receiver.drain(timeout))
        return self.waiting

    def receive(self, timeout: float | None = None) -> Delivery | None:
        """The next delivery; ``None`` if none came in time, or if the peer ended the link in order."""
        fetched = self._fetched
        if not fetched:
            fetched.extend(self._background.run(self._fetch(timeout)))
        return Delivery(self._background, fetched.popleft()) if fetched else None

    def receive_nowait(self) -> Delivery | None:
        """The next delivery, if one waits here."""
        return self.receive(0) if self.waiting else None

    async def _fetch(self, timeout_s: float | None) -> list[AsyncDelivery]:
        receiver = self._receiver
        found = []
        delivery = await receiver.receive(timeout_s)
        while delivery is not None:
            found.append(delivery)
            delivery = receiver.receive_nowait()
        return found

    def __iter__(self) -> Iterator[Delivery]:
        while True:
            delivery = self.receive()
            if delivery is None:
                return
            yield delivery

    def close(self) -> None:
        """Detach, and give back what was not received; without effect the second time."""

        async def do_it() -> None:
            while self._fetched:
                self._fetched.pop().release()
            await self._receiver.close()

        self._background.run(do_it())
