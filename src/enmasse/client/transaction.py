"""Transactions: what is sent and settled within one takes effect together or not at all [AMQP 4]."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any

from enmasse.client.carrier import Carrier
from enmasse.client.errors import ClosedError, TransactionError, UnavailableError
from enmasse.client.link import Owner
from enmasse.client.outcome import Declaration, Outcome
from enmasse.client.sender import MAX_PENDING, MAX_PENDING_BYTES, Sender
from enmasse.wire.amqp.codec import encode
from enmasse.wire.amqp.composites import Performative, encode_performative
from enmasse.wire.amqp.link import ReceivingLink, SendingLink
from enmasse.wire.amqp.outcomes import ACCEPTED
from enmasse.wire.amqp.performatives import Coordinator
from enmasse.wire.amqp.transactions import LOCAL_TRANSACTIONS, Declare, Discharge, TransactionalState
from enmasse.wire.amqp.types import ULong

__all__ = ["Beginning", "ControlLink", "Transaction", "declare"]

_AMQP_VALUE = b"\x00" + encode(ULong(0x77))


class ControlLink(Sender):
    """The link that transactions are declared and discharged on; made by ``Connection.transaction``."""

    role = "control link"

    def __init__(self, name: str, owner: Owner) -> None:
        super().__init__(
            name,
            None,
            owner,
            resend=False,
            max_pending=MAX_PENDING,
            max_pending_bytes=MAX_PENDING_BYTES,
            capabilities=(),
            properties=None,
        )

    def __str__(self) -> str:
        return f"the transactions' {self.role} at {self._owner}"

    @property
    def link(self) -> SendingLink | None:
        """The link of the present connection, while it is up."""
        return self._link

    def attach(self, carrier: Carrier) -> None:
        """Attach over a carrier that is up."""
        session = carrier.session
        assert session is not None
        self._attaching = session.attach_sender(self.name, self, Coordinator((LOCAL_TRANSACTIONS,)))

    async def say(self, what: Performative) -> Outcome:
        """Send a declare or a discharge, and wait for its outcome."""
        if self._link is not None:
            # What was settled before must go out before.
            self._link.session.flush()
        return await self.send_payload(_AMQP_VALUE + encode_performative(what))


class Transaction:
    """One transaction; made by ``Connection.transaction``.

    Give it to ``Sender.send``, ``Delivery.accept`` and their like. Every address must be one that stores:
    a queue, a topic or subscription, or a stream.

    A transaction does not outlive its connection: when that is lost, it is rolled back.
    """

    def __init__(self, control: ControlLink, link: SendingLink, txn_id: bytes) -> None:
        self._control = control
        self._link = link
        self._id = txn_id
        self._is_ended = False
        self._futures: list[asyncio.Future[Outcome]] = []
        self._accepted = TransactionalState(txn_id, ACCEPTED)
        self.posted = TransactionalState(txn_id)
        """What a message of this transaction is sent with."""

    @property
    def is_open(self) -> bool:
        """Whether it can still be used: neither ended nor lost with its connection."""
        return not self._is_ended and self._control.link is self._link

    @property
    def is_ended(self) -> bool:
        """Whether it was committed or rolled back."""
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
        """What to raise once its connection is lost."""
        return TransactionError(
            "amqp:transaction:rollback", "the connection was lost, and the transaction with it", str(self._control)
        )

    def add(self, future: asyncio.Future[Outcome]) -> None:
        """Have the commit wait until a message has gone out."""
        self._futures.append(future)

    def state(self, outcome: Any) -> TransactionalState:
        """What a delivery is settled with that is to have an outcome."""
        return self._accepted if outcome is ACCEPTED else TransactionalState(self._id, outcome)

    async def commit(self) -> None:
        """Have everything take effect, or raise and have nothing.

        Raises:
            TransactionError: all was rolled back, for the reason told.
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
        return await self._control.say(Discharge(self._id, fail))


class Beginning:
    """A transaction that is still to be declared.

    ``await`` it, and ``commit`` or ``rollback``; or use it with ``async with``, which commits at the end of
    the block and rolls back if that raises.
    """

    __slots__ = ("_begin", "_begun")

    def __init__(self, begin: Callable[[], Awaitable[Transaction]]) -> None:
        self._begin = begin
        self._begun: Transaction | None = None

    def __await__(self) -> Generator[object, None, Transaction]:
        return self._begin().__await__()

    async def __aenter__(self) -> Transaction:
        self._begun = await self._begin()
        return self._begun

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        transaction = self._begun
        if transaction is None or transaction.is_ended:
            return
        if error is None:
            await transaction.commit()
        else:
            await transaction.rollback()


async def declare(control: ControlLink) -> Transaction:
    """Begin a transaction.

    Raises:
        TransactionError: the peer has refused.
        UnavailableError: the connection was lost.
    """
    outcome = await control.say(Declare())
    link = control.link
    if link is None:
        raise UnavailableError(f"{control} lost its connection")
    if not isinstance(outcome, Declaration):
        raise TransactionError(outcome.condition or "amqp:internal-error", outcome.description or "", str(control))
    return Transaction(control, link, outcome.txn_id)
