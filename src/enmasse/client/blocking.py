"""PUBLIC: the client without asyncio, for scripts and for workers of other frameworks.

Each call waits for its end; the connection itself lives on a loop in a background thread, so it
keeps the peer content while the program computes. Objects may be used from several threads.

    with connect("amqp://127.0.0.1:5672") as connection:
        connection.sender("orders").send(Message(b"one coffee"))
        for delivery in connection.receiver("orders"):
            delivery.accept()

Methods and attributes are those of the asynchronous client, docstrings included: what is awaited there is
waited for here.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial, wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from enmasse.client import connection as asynchronous
from enmasse.client import management
from enmasse.client.background import Background, Mirror, Read, opening, submitting, waiting
from enmasse.client.connecting import connect as connect_asynchronously
from enmasse.client.link import ClientLink
from enmasse.client.message import Message, Outcome
from enmasse.client.options import TlsOptions
from enmasse.client.receiver import Delivery as AsyncDelivery
from enmasse.client.receiver import Receiver as AsyncReceiver
from enmasse.client.sender import Sender as AsyncSender
from enmasse.client.transaction import Transaction as AsyncTransaction

__all__ = [
    "Connection",
    "Delivery",
    "Management",
    "Message",
    "Outcome",
    "Receiver",
    "Sender",
    "TlsOptions",
    "Transaction",
    "connect",
]

P = ParamSpec("P")
L_co = TypeVar("L_co", bound=ClientLink, covariant=True)


class _Closing:
    """Base of what is closed when its block ends."""

    def close(self) -> None:
        """Close it; without effect the second time."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Transaction(Mirror[AsyncTransaction]):
    """See ``enmasse.client.Transaction``; a ``with`` block commits at its end, and rolls back if it raises."""

    inner = Read(AsyncTransaction, lambda transaction: transaction.inner)
    is_open = Read(AsyncTransaction, lambda transaction: transaction.is_open)
    is_ended = Read(AsyncTransaction, lambda transaction: transaction.is_ended)
    commit = waiting(AsyncTransaction.commit)
    rollback = waiting(AsyncTransaction.rollback)

    def __enter__(self) -> Self:
        return self

    __exit__ = waiting(AsyncTransaction.__aexit__)


class _Link(Mirror[L_co], _Closing):
    """Base of senders and receivers."""

    name = Read(ClientLink, lambda link: link.name)
    address = Read(ClientLink, lambda link: link.address)
    is_attached = Read(ClientLink, lambda link: link.is_attached)
    error = Read(ClientLink, lambda link: link.error)
    remote_properties = Read(ClientLink, lambda link: link.remote_properties)
    remote_capabilities = Read(ClientLink, lambda link: link.remote_capabilities)
    wait_attached = waiting(ClientLink.wait_attached)


class Sender(_Link[AsyncSender]):
    """See ``enmasse.client.Sender``."""

    credit = Read(AsyncSender, lambda sender: sender.credit)
    is_ended = Read(AsyncSender, lambda sender: sender.is_ended)
    max_message_size = Read(AsyncSender, lambda sender: sender.max_message_size)
    pending = Read(AsyncSender, lambda sender: sender.pending)
    pending_bytes = Read(AsyncSender, lambda sender: sender.pending_bytes)
    send = waiting(AsyncSender.send)
    send_payload = waiting(AsyncSender.send_payload)
    send_nowait = submitting(AsyncSender.send_nowait)
    send_payload_nowait = submitting(AsyncSender.send_payload_nowait)
    send_all = waiting(AsyncSender.send_all)
    wait_for_credit = waiting(AsyncSender.wait_for_credit)
    flush = waiting(AsyncSender.flush)

    def close(self) -> None:
        """Detach; without effect the second time."""
        self._background.run(self._inner.close())


def _settling(
    method: Callable[Concatenate[AsyncDelivery, P], object],
) -> Callable[Concatenate[Mirror[AsyncDelivery], P], None]:
    """Make a method that settles a delivery without waiting, but within a transaction."""

    @wraps(method)
    def call(self: Mirror[AsyncDelivery], /, *args: P.args, **kwargs: P.kwargs) -> None:
        delivery = self._inner
        if kwargs.get("transaction") is None:
            if not delivery.settled:
                self._background.call(partial(method, delivery, *args, **kwargs))
            return

        async def settle() -> None:
            method(delivery, *args, **kwargs)

        # A transaction may have ended, which is an error.
        self._background.run(settle())

    return call


class Delivery(Mirror[AsyncDelivery]):
    """See ``enmasse.client.Delivery``; outcomes are sent without waiting."""

    __slots__ = ()

    # What every message is asked for is read without a detour.

    @property
    def payload(self) -> bytes:
        """The message's bytes."""
        return self._inner.payload

    @property
    def message_format(self) -> int:
        """0 for AMQP's own; else ``payload`` is not made of AMQP sections."""
        return self._inner.message_format

    @property
    def settled(self) -> bool:
        """True if the sender knows the outcome, or does not want to know it."""
        return self._inner.settled

    message = Read(AsyncDelivery, lambda delivery: delivery.message)
    may_be_repeated = Read(AsyncDelivery, lambda delivery: delivery.may_be_repeated)
    accept = _settling(AsyncDelivery.accept)
    release = _settling(AsyncDelivery.release)
    reject = _settling(AsyncDelivery.reject)
    modify = _settling(AsyncDelivery.modify)


class Receiver(_Link[AsyncReceiver]):
    """See ``enmasse.client.Receiver``.

    What lies ready is fetched together, so up to two credit windows of messages may be here.
    """

    def __init__(self, background: Background, inner: AsyncReceiver) -> None:
        super().__init__(background, inner)
        self._fetched: deque[AsyncDelivery] = deque()

    credit = Read(AsyncReceiver, lambda receiver: receiver.credit)
    filters = Read(AsyncReceiver, lambda receiver: receiver.filters)

    @property
    def waiting(self) -> int:
        """Deliveries that wait here to be taken."""
        return self._inner.waiting + len(self._fetched)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of these."""
        return self._inner.waiting_bytes + sum(len(delivery.payload) for delivery in self._fetched)

    @property
    def is_ended(self) -> bool:
        """True once the link has ended for good and everything it brought has been received."""
        return self._inner.is_ended and not self._fetched and not self._inner.waiting

    def grant(self, credit: int) -> None:
        """Ask for ``credit`` messages more; for receivers without a window."""

        async def grant() -> None:
            self._inner.grant(credit)

        self._background.run(grant())

    def drain(self, timeout: float | None = None) -> int:
        """Have the peer send what it has for the present credit; return how many deliveries wait here then."""
        self._background.run(self._inner.drain(timeout))
        return self.waiting

    def receive(self, timeout: float | None = None) -> Delivery | None:
        """Return the next delivery; ``None`` if none came in time, or if the peer ended the link in order."""
        fetched = self._fetched
        if not fetched:
            fetched.extend(self._background.run(self._fetch(timeout)))
        return Delivery(self._background, fetched.popleft()) if fetched else None

    def receive_nowait(self) -> Delivery | None:
        """Return the next delivery, if one waits here."""
        return self.receive(0) if self.waiting else None

    async def _fetch(self, timeout_s: float | None) -> list[AsyncDelivery]:
        receiver = self._inner
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

        async def close() -> None:
            while self._fetched:
                self._fetched.pop().release()
            await self._inner.close()

        self._background.run(close())


class Management(Mirror[management.Management]):
    """See ``enmasse.client.management.Management``."""

    create = waiting(management.Management.create)
    read = waiting(management.Management.read)
    update = waiting(management.Management.update)
    delete = waiting(management.Management.delete)
    query = waiting(management.Management.query)
    perform = waiting(management.Management.perform)
    purge = waiting(management.Management.purge)
    move = waiting(management.Management.move)
    replay = waiting(management.Management.replay)


class Connection(Mirror[asynchronous.Connection], _Closing):
    """See ``enmasse.client.Connection``."""

    def __init__(self, background: Background, inner: asynchronous.Connection) -> None:
        super().__init__(background, inner)
        self._is_released = False
        _open.add(self)

    container_id = Read(asynchronous.Connection, lambda connection: connection.container_id)
    remote_container_id = Read(asynchronous.Connection, lambda connection: connection.remote_container_id)
    remote_properties = Read(asynchronous.Connection, lambda connection: connection.remote_properties)
    address = Read(asynchronous.Connection, lambda connection: connection.address)
    is_connected = Read(asynchronous.Connection, lambda connection: connection.is_connected)
    is_closed = Read(asynchronous.Connection, lambda connection: connection.is_closed)
    error = Read(asynchronous.Connection, lambda connection: connection.error)
    wait_connected = waiting(asynchronous.Connection.wait_connected)
    sender = opening(asynchronous.Connection.sender, Sender)
    receiver = opening(asynchronous.Connection.receiver, Receiver)
    transaction = opening(asynchronous.Connection.transaction, Transaction)
    request = waiting(asynchronous.Connection.request)

    def management(self, *, address: str = "$management", timeout: float = management.TIMEOUT_S) -> Management:
        """Return the manager of what the connection leads to."""
        return Management(self._background, management.Management(self._inner, address=address, timeout=timeout))

    def close(self) -> None:
        """Close the connection and all its links; without effect the second time."""
        if self._is_released or self._background.is_foreign:
            return
        self._is_released = True
        _open.discard(self)
        try:
            self._background.run(self._inner.close())
        finally:
            self._background.release()


_open: weakref.WeakSet[Connection] = weakref.WeakSet()


def _connecting(connect: Callable[P, Awaitable[asynchronous.Connection]]) -> Callable[P, Connection]:
    @wraps(connect)
    def call(*args: P.args, **kwargs: P.kwargs) -> Connection:
        background = Background.acquire()

        async def open_it() -> asynchronous.Connection:
            return await connect(*args, **kwargs)

        try:
            return Connection(background, background.run(open_it()))
        except BaseException:
            background.release()
            raise

    return call


connect = _connecting(connect_asynchronously)

os.register_at_fork(after_in_child=_open.clear)


@atexit.register
def _close_all() -> None:
    """Close what the program forgot to: a thread must not run on while the interpreter ends."""
    for connection in list(_open):
        connection.close()
