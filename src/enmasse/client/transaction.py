"""Transactions: what is sent and settled within one takes effect together or not at all [AMQP 4]."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Protocol, Self

from enmasse.client.errors import ClosedError, TransactionError, UnavailableError
from enmasse.client.message import Outcome
from enmasse.message.composites import Composite
from enmasse.message.outcomes import ACCEPTED
from enmasse.wire.amqp.link import ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Discharge, TransactionalState


class Coordination(Protocol):
    """The link on which a transaction is declared and discharged."""

    @property
    def link(self) -> SendingLink | None:
        """The link of the present connection, while it is up."""

    async def post(self, request: Composite) -> Outcome:
        """Send a declare or a discharge, and wait for its outcome."""


class TransactionHandle(Protocol):
    """A transaction, of this client or of the blocking one, to send or to settle within."""

    @property
    def inner(self) -> Transaction:
        """The transaction itself."""


class Transaction:
    """One transaction; made by ``Connection.transaction``.

    A block of ``async with`` commits at its end, and rolls back if it raises.

    Give it to ``Sender.send``, ``Delivery.accept`` and their like. Every address must be one that stores:
    a queue, a topic or subscription, or a stream; or all are behind one connector.

    A transaction does not outlive its connection: when that is lost, it is rolled back.
    """

    def __init__(self, control: Coordination, link: SendingLink, txn_id: bytes) -> None:
        self._control = control
        self._link = link
        self._id = txn_id
        self._is_ended = False
        self._futures: list[asyncio.Future[Outcome]] = []
        self._accepted = TransactionalState(txn_id, ACCEPTED)
        self.posted = TransactionalState(txn_id)
        """The state that a message of this transaction is sent with."""

    @property
    def inner(self) -> Transaction:
        """The transaction itself."""
        return self

    @property
    def is_open(self) -> bool:
        """True while it can be used: neither ended nor lost with its connection."""
        return not self._is_ended and self._control.link is self._link

    @property
    def is_ended(self) -> bool:
        """True once it was committed or rolled back."""
        return self._is_ended

    def check(self, link: SendingLink | ReceivingLink | None = None) -> None:
        """Raise unless it is open and the link is of the same connection.

        Raises:
            ClosedError: the transaction has ended, or belongs to another connection.
            TransactionError: the connection was lost, and the transaction with it.
        """
        if self._is_ended:
            raise ClosedError("the transaction has ended: begin another one")
        if self._control.link is not self._link:
            raise self.lost()
        if link is not None and link.session.connection is not self._link.session.connection:
            raise ClosedError("the transaction belongs to another connection")

    def lost(self) -> TransactionError:
        """Return the error to raise once its connection is lost."""
        return TransactionError(
            "amqp:transaction:rollback", "the connection was lost, and the transaction with it", str(self._control)
        )

    def add(self, future: asyncio.Future[Outcome]) -> None:
        """Have the commit wait until a message has gone out."""
        self._futures.append(future)

    def state(self, outcome: Any) -> TransactionalState:
        """Return the state to settle a delivery with, for an outcome."""
        return self._accepted if outcome is ACCEPTED else TransactionalState(self._id, outcome)

    async def commit(self) -> None:
        """Have everything take effect, or raise and have nothing.

        Raises:
            TransactionError: all was rolled back, for the reason given.
            UnavailableError: the connection was lost before the answer came: it may have been committed.
        """
        self.check()
        failed = await self._sent()
        if failed is not None:
            await self.rollback()
            raise failed
        self.check()
        outcome = await self._discharge(fail=False)
        if outcome != Outcome.ACCEPTED:
            raise TransactionError(
                outcome.condition or "amqp:transaction:rollback", outcome.description or "", str(self._control)
            )

    async def rollback(self) -> None:
        """Have nothing take effect; without effect on a transaction that has ended.

        What was received and settled within it comes again.
        """
        if self.is_open:
            try:
                await self._discharge(fail=True)
            except UnavailableError:
                # It is rolled back with its connection.
                return
        self._is_ended = True

    async def _sent(self) -> BaseException | None:
        """Wait for what was sent without waiting; returns what kept a message from going out."""
        futures, self._futures = self._futures, []
        waiting = [future for future in futures if not future.done()]
        if waiting:
            await asyncio.wait(waiting)
        for future in futures:
            if future.cancelled():
                return TransactionError(
                    "amqp:transaction:rollback", "a message was given up before it was sent", str(self._control)
                )
            error = future.exception()
            if error is not None:
                return error
        return None

    async def _discharge(self, *, fail: bool) -> Outcome:
        self._is_ended = True
        return await self._control.post(Discharge(self._id, fail))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_ended:
            return
        if error is None:
            await self.commit()
        else:
            await self.rollback()
