"""The network side: deliveries are received, and accepted when the planner says so.

Everything that the node's absence can cause comes out as ``UnavailableError``; what waiting cannot mend
comes out as ``OptionError``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from enmasse.client import (
    ConnectionDeniedError,
    Delivery,
    LinkDetachedError,
    LinkRefusedError,
    Outcome,
    Receiver,
    TlsError,
    TransactionError,
    UrlError,
)
from enmasse.client import connect as client_connect
from enmasse.client.background import Background
from enmasse.client.connection import Connection
from enmasse.errors import EnmasseError, LocalError, UnavailableError
from enmasse.messaging.patterns import SUBTREE_CAPABILITY, is_pattern
from enmasse.pipeline.errors import AccessError, OptionError
from enmasse.pipeline.source.consumed.options import ConsumedOptions
from enmasse.pipeline.source.options import SourceOptions

ADDRESS_TYPE = "enmasse:address-type"
STORED = "enmasse:messages-stored"

ANSWER_S = 10.0
"""Seconds to wait for what a node answers at once; a longer silence means that it is gone."""

CLOSE_S = 3.0
"""Seconds that closing may take; stopping a query waits for it."""

ACCEPTED_AT_ONCE = 5_000
"""Deliveries of one transaction: a few milliseconds of the node's time."""

_FOREVER = frozenset(
    (
        "amqp:not-found",
        "amqp:not-allowed",
        "amqp:unauthorized-access",
        "amqp:not-implemented",
        "amqp:invalid-field",
        "amqp:resource-deleted",
    )
)
"""Refusals whose text names what is wrong with the options."""


@asynccontextmanager
async def translated(source: SourceOptions) -> AsyncIterator[None]:
    """Raise what callers can act on in place of the client's errors."""
    try:
        yield
    except (LinkRefusedError, LinkDetachedError) as error:
        raise _refusal(source, error) from error
    except (UrlError, TlsError) as error:
        raise OptionError(str(error)) from error
    except (ConnectionDeniedError, LocalError, TransactionError) as error:
        # The link went with its connection, as that does with its token, or the node ended it; a new one fails with
        # the reason.
        raise UnavailableError(str(error)) from error


def _refusal(source: SourceOptions, error: LinkRefusedError | LinkDetachedError) -> EnmasseError:
    if error.condition in _FOREVER:
        return OptionError(
            f"cannot receive from {source.address!r} at {source.url}: {error.condition}: {error.description}"
        )
    return UnavailableError(str(error))


async def connected(source: SourceOptions) -> Connection:
    """Return a connection to the place of the options, which is not made again when it is lost."""
    who = source.login.arguments()
    try:
        return await client_connect(
            source.url, hostname=source.space or None, reconnect=False, timeout=ANSWER_S, **who
        )
    except ConnectionDeniedError as error:
        if error.condition in _FOREVER:
            denied = f"{source.url} does not let in {source.login.describe(who['user'])}"
            raise AccessError(f"{denied}: {error.condition}: {error.description}") from error
        raise UnavailableError(str(error)) from error


@asynccontextmanager
async def attached(source: SourceOptions, **asked: Any) -> AsyncIterator[Receiver]:
    """Attach a receiver over a connection of its own for the duration of the block.

    Raises:
        UnavailableError: the node cannot be reached, or went away.
        OptionError: the node refuses what is asked for.
    """
    async with translated(source):
        connection = await connected(source)
        try:
            yield await connection.receiver(source.address, timeout=ANSWER_S, **asked)
        finally:
            await connection.close()


def find_type(source: SourceOptions) -> str:
    """Return what the address is; ``stream`` where the peer does not report it, as other products do not.

    Raises:
        UnavailableError: the node cannot be reached.
        OptionError: the node refuses what the options ask for.
    """

    async def ask() -> str:
        # A browser takes nothing, and without credit is given nothing.
        async with attached(source, browse=True, credit=0, capabilities=(ADDRESS_TYPE,)) as receiver:
            return str(receiver.remote_properties.get(ADDRESS_TYPE, "stream"))

    background = Background.acquire()
    try:
        return background.run(ask())
    finally:
        background.release()


class Link:
    """One connection with one receiver, given up when it is lost.

    Args:
        options: the options, with the address to receive from.

    Raises:
        UnavailableError: the node cannot be reached.
        OptionError: the node refuses what the options ask for.
    """

    def __init__(self, options: ConsumedOptions) -> None:
        self._options = options
        self._background = Background.acquire()
        self._connection: Connection | None = None
        self._is_closed = False
        try:
            self._receiver = self._background.run(self._open())
        except BaseException:
            self.close()
            raise

    async def _open(self) -> Receiver:
        options = self._options
        is_topic = options.kind == "topic"
        capabilities = [ADDRESS_TYPE]
        if is_topic:
            # Shared and global, a subscription is found by its name alone, whatever the planner is called.
            capabilities += ["shared", "global"]
            if not is_pattern(options.source.address):
                capabilities.append(SUBTREE_CAPABILITY)
        async with translated(options.source):
            self._connection = await connected(options.source)
            return await self._connection.receiver(
                options.source.address,
                name=options.subscription if is_topic else None,
                credit=options.max_rows,
                prefetch_bytes=options.max_bytes,
                settled=options.is_lossy,
                capabilities=tuple(capabilities),
                durable=is_topic,
                # A planner that is killed has not failed: nothing of that is the message's fault.
                default_outcome=Outcome.RELEASED,
                timeout=ANSWER_S,
            )
        raise AssertionError

    @property
    def is_usable(self) -> bool:
        """True if the connection and the link are up."""
        return self._connection is not None and self._connection.is_connected and self._receiver.is_attached

    @property
    def kind(self) -> str:
        """The type of the address, as the node reports it."""
        return str(self._receiver.remote_properties.get(ADDRESS_TYPE, ""))

    @property
    def stored(self) -> int:
        """The number of messages when the link was attached."""
        return int(self._receiver.remote_properties.get(STORED, 0))

    def receive(self, max_rows: int, max_bytes: int, timeout_s: float) -> list[Delivery]:
        """Return what is there, as far as it may be; waits for the first one.

        Raises:
            UnavailableError: the connection is lost.
        """
        return self._gather(lambda: self._receiver.receive(timeout_s), max_rows, max_bytes)

    def drain(self, max_rows: int, max_bytes: int) -> list[Delivery]:
        """Return what is there, as far as it may be; nothing once nothing is left.

        Raises:
            UnavailableError: the connection is lost, or the node did not answer.
        """

        async def drained() -> Delivery | None:
            first = self._receiver.receive_nowait()
            if first is None:
                await self._receiver.drain(ANSWER_S)
                first = self._receiver.receive_nowait()
            # Credit is given again by the next call that waits.
            return first or await self._receiver.receive(0)

        return self._gather(drained, max_rows, max_bytes)

    def _gather(
        self, receive: Callable[[], Awaitable[Delivery | None]], max_rows: int, max_bytes: int
    ) -> list[Delivery]:
        """Return a delivery and what is there behind it."""

        async def gather() -> list[Delivery]:
            async with translated(self._options.source):
                first = await receive()
                return [] if first is None else self._gathered(first, max_rows, max_bytes)
            raise AssertionError

        found = self._background.run(gather())
        if not found:
            self._check()
        return found

    def _gathered(self, first: Delivery, max_rows: int, max_bytes: int) -> list[Delivery]:
        found, size = [first], len(first.payload)
        while len(found) < max_rows and size < max_bytes:
            delivery = self._receiver.receive_nowait()
            if delivery is None:
                break
            found.append(delivery)
            size += len(delivery.payload)
        return found

    def _check(self) -> None:
        if not self.is_usable:
            error = self._receiver.error
            if error is None or isinstance(error, ConnectionDeniedError):
                raise UnavailableError(f"{self._receiver} is gone") from error
            raise error

    def accept(self, deliveries: Sequence[Delivery]) -> None:
        """Accept deliveries; when this returns, a stored address will not give them again.

        Raises:
            UnavailableError: the connection is lost, so some may have been accepted and others come again.
        """
        if self._options.is_lossy or not deliveries:
            return

        async def accept() -> None:
            connection = self._receiver.owner
            assert isinstance(connection, Connection)
            async with translated(self._options.source):
                if not self._options.is_confirmed:
                    for delivery in deliveries:
                        delivery.accept()
                    return
                for at in range(0, len(deliveries), ACCEPTED_AT_ONCE):
                    async with asyncio.timeout(ANSWER_S), connection.transaction() as transaction:
                        for delivery in deliveries[at : at + ACCEPTED_AT_ONCE]:
                            delivery.accept(transaction=transaction)

        try:
            self._background.run(accept())
        except TimeoutError as error:
            raise UnavailableError(f"{self._receiver}: the node did not answer in time") from error

    def close(self) -> None:
        """Close the connection; what was not accepted is given back without a mark."""
        if self._is_closed:
            return
        self._is_closed = True

        async def end() -> None:
            if self._connection is not None:
                async with asyncio.timeout(CLOSE_S):
                    await self._connection.close()

        try:
            self._background.run(end())
        except TimeoutError:
            return
        finally:
            self._background.release()
