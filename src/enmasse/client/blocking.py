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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from enmasse.client import connection as asynchronous
from enmasse.client import management
from enmasse.client.background import Background
from enmasse.client.blocking_links import Closing, Delivery, Receiver, Sender
from enmasse.client.blocking_transaction import Transaction
from enmasse.client.connecting import TIMEOUT_S
from enmasse.client.connecting import connect as connect_asynchronously
from enmasse.client.connection import ATTACH_TIMEOUT_S, CREDIT
from enmasse.client.message import Message
from enmasse.client.outcome import Outcome
from enmasse.client.receiver import PREFETCH_BYTES
from enmasse.client.receiver import Receiver as AsyncReceiver
from enmasse.client.sender import MAX_PENDING, MAX_PENDING_BYTES
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


class Connection(Closing):
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
    def remote_properties(self) -> dict[Any, Any]:
        """What the peer said of itself, while connected."""
        return self._connection.remote_properties

    @property
    def address(self) -> str | None:
        """The address that the URL names, if it names one."""
        return self._connection.address

    @property
    def is_connected(self) -> bool:
        """Whether the connection is up at this moment."""
        return self._connection.is_connected

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed, or has failed for good."""
        return self._connection.is_closed

    @property
    def error(self) -> EnmasseError | None:
        """Why the connection is closed, once it is."""
        return self._connection.error

    def __str__(self) -> str:
        return str(self._connection)

    def wait_connected(self) -> None:
        """Wait until the connection is up."""
        self._background.run(self._connection.wait_connected())

    def sender(
        self,
        address: str | None,
        *,
        name: str | None = None,
        resend: bool = True,
        resume: bool = False,
        max_pending: int = MAX_PENDING,
        max_pending_bytes: int = MAX_PENDING_BYTES,
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
                resume=resume,
                max_pending=max_pending,
                max_pending_bytes=max_pending_bytes,
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
        timeout: float | None = ATTACH_TIMEOUT_S,
    ) -> Receiver:
        """Attach a receiver; see ``enmasse.client.Connection.receiver``."""

        async def open_it() -> AsyncReceiver:
            return await self._connection.receiver(
                address,
                name=name,
                credit=credit,
                prefetch_bytes=prefetch_bytes,
                dynamic=dynamic,
                settled=settled,
                browse=browse,
                selector=selector,
                filters=filters,
                capabilities=capabilities,
                properties=properties,
                durable=durable,
                default_outcome=default_outcome,
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

    def query(
        self, entity_type: str, attribute_names: Sequence[str] = (), *, offset: int = 0, count: int | None = None
    ) -> list[dict[str, Any]]:
        """The entities of a type, each with the attributes asked for."""
        return self._background.run(self._manager.query(entity_type, attribute_names, offset=offset, count=count))

    def perform(
        self, operation: str, entity_type: str, name: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Any other operation that a node knows; the body of its answer."""
        return self._background.run(self._manager.perform(operation, entity_type, name, arguments))

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
