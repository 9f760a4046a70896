"""PUBLIC: the client without asyncio, for scripts and for workers of other frameworks.

Each call waits for its end; the connection itself lives on a loop in a background thread, so it
keeps the peer content while the program computes. Objects may be used from several threads.

    with connect("amqp://127.0.0.1:5672") as connection:
        connection.sender("orders").send(Message(b"one coffee"))
        for delivery in connection.receiver("orders"):
            delivery.accept()
"""

from __future__ import annotations

import atexit
import os
import ssl
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from enmasse.client import connection as asynchronous
from enmasse.client import management
from enmasse.client.background import Background
from enmasse.client.blocking_transaction import Transaction, inner
from enmasse.client.connecting import TIMEOUT_S
from enmasse.client.connecting import connect as connect_asynchronously
from enmasse.client.connection import ATTACH_TIMEOUT_S, CREDIT
from enmasse.client.delivery import Delivery as AsyncDelivery
from enmasse.client.message import Message
from enmasse.client.outcome import Outcome
from enmasse.client.receiver import Receiver as AsyncReceiver
from enmasse.client.sender import Sender as AsyncSender
from enmasse.client.tls import TlsOptions
from enmasse.client.transaction import Transaction as AsyncTransaction
from enmasse.errors import EnmasseError

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

_open: weakref.WeakSet[Connection] = weakref.WeakSet()


def connect(
    url: str | Sequence[str],
    *,
    container_id: str | None = None,
    user: str | None = None,
    password: str | None = None,
    token: str | Callable[[], str] | None = None,
    hostname: str | None = None,
    tls: TlsOptions | ssl.SSLContext | None = None,
    sasl: Sequence[str] | None = None,
    allow_insecure_plain: bool = False,
    shuffle: bool = False,
    reconnect: bool = True,
    timeout: float = TIMEOUT_S,
    patience: float = 0.0,
    idle_timeout: float = 60.0,
    properties: Mapping[str, Any] | None = None,
) -> Connection:
    """Connect; arguments and errors are those of ``enmasse.client.connect``."""
    background = Background.acquire()

    async def open_it() -> asynchronous.Connection:
        return await connect_asynchronously(
            url,
            container_id=container_id,
            user=user,
            password=password,
            token=token,
            hostname=hostname,
            tls=tls,
            sasl=sasl,
            allow_insecure_plain=allow_insecure_plain,
            shuffle=shuffle,
            reconnect=reconnect,
            timeout=timeout,
            patience=patience,
            idle_timeout=idle_timeout,
            properties=properties,
        )

    try:
        return Connection(background, background.run(open_it()))
    except BaseException:
        background.release()
        raise


class _Closing:
    """What is closed when its block ends."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Connection(_Closing):
    """See ``enmasse.client.Connection``."""

    def __init__(self, background: Background, connection: asynchronous.Connection) -> None:
        self._background = background
        self._connection = connection
        self._is_released = False
        _open.add(self)

    @property
    def container_id(self) -> str:
        """How this client names itself."""
        return self._connection.container_id

    @property
    def remote_container_id(self) -> str | None:
        """How the peer names itself, while connected."""
        return self._connection.remote_container_id

    @property
    def is_connected(self) -> bool:
        """Whether the connection is up at this moment."""
        return self._connection.is_connected

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed, or has failed for good."""
        return self._connection.is_closed

    def sender(
        self,
        address: str | None,
        *,
        name: str | None = None,
        resend: bool = True,
        capabilities: Sequence[str] = (),
        properties: dict[str, Any] | None = None,
        timeout: float | None = ATTACH_TIMEOUT_S,
    ) -> Sender:
        """Attach a sender; see ``enmasse.client.Connection.sender``."""

        async def open_it() -> AsyncSender:
            return await self._connection.sender(
                address,
                name=name,
                resend=resend,
                capabilities=capabilities,
                properties=properties,
                timeout=timeout,
            )

        return Sender(self._background, self._background.run(open_it()))

    def receiver(
        self,
        address: str | None = None,
        *,
        name: str | None = None,
        credit: int = CREDIT,
        dynamic: bool = False,
        settled: bool = False,
        browse: bool = False,
        selector: str | None = None,
        filters: Mapping[str, Any] | None = None,
        capabilities: Sequence[str] = (),
        properties: dict[str, Any] | None = None,
        timeout: float | None = ATTACH_TIMEOUT_S,
    ) -> Receiver:
        """Attach a receiver; see ``enmasse.client.Connection.receiver``."""

        async def open_it() -> AsyncReceiver:
            return await self._connection.receiver(
                address,
                name=name,
                credit=credit,
                dynamic=dynamic,
                settled=settled,
                browse=browse,
                selector=selector,
                filters=filters,
                capabilities=capabilities,
                properties=properties,
                timeout=timeout,
            )

        return Receiver(self._background, self._background.run(open_it()))

    def transaction(self) -> Transaction:
        """Begin a transaction; see ``enmasse.client.Connection.transaction``."""

        async def begin() -> AsyncTransaction:
            return await self._connection.transaction()

        return Transaction(self._background, self._background.run(begin()))

    def request(self, address: str, message: Message, *, timeout: float | None = None) -> Message:
        """Send a request and wait for the reply; see ``enmasse.client.Connection.request``."""
        return self._background.run(self._connection.request(address, message, timeout=timeout))

    def management(self, *, address: str = "$management", timeout: float = management.TIMEOUT_S) -> Management:
        """The manager of what the connection leads to."""
        return Management(self._background, management.Management(self._connection, address=address, timeout=timeout))

    def close(self) -> None:
        """Close the connection and all its links; without effect the second time."""
        if self._is_released or self._background.is_foreign:
            return
        self._is_released = True
        _open.discard(self)
        try:
            self._background.run(self._connection.close())
        finally:
            self._background.release()


class Sender(_Closing):
    """See ``enmasse.client.Sender``."""

    def __init__(self, background: Background, sender: AsyncSender) -> None:
        self._background = background
        self._sender = sender

    @property
    def address(self) -> str | None:
        """Where the messages go."""
        return self._sender.address

    @property
    def credit(self) -> int:
        """How many messages the peer takes now."""
        return self._sender.credit

    @property
    def remote_properties(self) -> dict[Any, Any]:
        """What the peer said of its end of the link."""
        return self._sender.remote_properties

    def send(
        self,
        message: Message,
        *,
        settled: bool = False,
        timeout: float | None = None,
        transaction: Transaction | None = None,
    ) -> Outcome:
        """Send one message, and wait for its outcome."""
        return self._background.run(
            self._sender.send(message, settled=settled, timeout=timeout, transaction=inner(transaction))
        )

    def send_all(
        self, messages: Iterable[Message], *, timeout: float | None = None, transaction: Transaction | None = None
    ) -> list[Outcome]:
        """Send many messages, and wait for their outcomes; far quicker than one by one."""
        return self._background.run(self._sender.send_all(messages, timeout=timeout, transaction=inner(transaction)))

    def send_payload(
        self, payload: bytes, *, message_format: int = 0, settled: bool = False, timeout: float | None = None
    ) -> Outcome:
        """Send bytes as they are, and wait for their outcome."""
        return self._background.run(
            self._sender.send_payload(payload, message_format=message_format, settled=settled, timeout=timeout)
        )

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


class Receiver(_Closing):
    """See ``enmasse.client.Receiver``.

    What lies ready is fetched together, so up to two credit windows of messages may be here.
    """

    def __init__(self, background: Background, receiver: AsyncReceiver) -> None:
        self._background = background
        self._receiver = receiver
        self._fetched: deque[AsyncDelivery] = deque()

    @property
    def address(self) -> str | None:
        """Where the messages come from; for a dynamic receiver, as the peer has named it."""
        return self._receiver.address

    @property
    def is_ended(self) -> bool:
        """Whether the link has ended for good and everything it brought has been received."""
        return self._receiver.is_ended and not self._fetched and not self._receiver.waiting

    @property
    def error(self) -> EnmasseError | None:
        """Why the link has ended, if it did not end in order."""
        return self._receiver.error

    @property
    def remote_properties(self) -> dict[Any, Any]:
        """What the peer said of its end of the link."""
        return self._receiver.remote_properties

    def grant(self, credit: int) -> None:
        """Ask for ``credit`` messages more; for receivers without a window."""

        async def do_it() -> None:
            self._receiver.grant(credit)

        self._background.run(do_it())

    def receive(self, timeout: float | None = None) -> Delivery | None:
        """The next delivery; ``None`` if none came in time, or if the peer ended the link in order."""
        fetched = self._fetched
        if not fetched:
            fetched.extend(self._background.run(self._fetch(timeout)))
        return Delivery(self._background, fetched.popleft()) if fetched else None

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


class Management:
    """See ``enmasse.client.management.Management``."""

    def __init__(self, background: Background, manager: management.Management) -> None:
        self._background = background
        self._manager = manager

    def create(self, entity_type: str, name: str, attributes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Create an entity."""
        return self._background.run(self._manager.create(entity_type, name, attributes))

    def read(self, entity_type: str, name: str | None = None, *, identity: str | None = None) -> dict[str, Any]:
        """The attributes of an entity."""
        return self._background.run(self._manager.read(entity_type, name, identity=identity))

    def update(
        self, entity_type: str, name: str | None, attributes: Mapping[str, Any], *, identity: str | None = None
    ) -> dict[str, Any]:
        """Set some attributes of an entity."""
        return self._background.run(self._manager.update(entity_type, name, attributes, identity=identity))

    def delete(self, entity_type: str, name: str | None = None, *, identity: str | None = None) -> None:
        """Delete an entity."""
        self._background.run(self._manager.delete(entity_type, name, identity=identity))

    def query(self, entity_type: str, attribute_names: Sequence[str] = ()) -> list[dict[str, Any]]:
        """The entities of a type, each with the attributes asked for."""
        return self._background.run(self._manager.query(entity_type, attribute_names))

    def purge(self, name: str, selector: str | None = None) -> int:
        """Delete messages of an address; how many."""
        return self._background.run(self._manager.purge(name, selector))

    def move(self, name: str, to: str, selector: str | None = None) -> int:
        """Move messages of an address to another one; how many."""
        return self._background.run(self._manager.move(name, to, selector))

    def replay(self, name: str, selector: str | None = None) -> int:
        """Send dead letters back to where they came from; how many."""
        return self._background.run(self._manager.replay(name, selector))


os.register_at_fork(after_in_child=_open.clear)


@atexit.register
def _close_all() -> None:
    """Say goodbye for whoever forgot to: a thread must not run on while the interpreter ends."""
    for connection in list(_open):
        connection.close()
