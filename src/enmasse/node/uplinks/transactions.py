"""Transactions of another container: declared, used and discharged there for a client's own [AMQP 4].

Rules:
1. One link there declares and discharges all transactions that a client's connection has behind a connector. It is on
   the connection that the client's other links have there, as only what is on that can be part of them.
2. What belongs to a transaction waits until that is declared; its end is told once all has gone out. If that does not
   come within ``PATIENCE_S`` then, it is rolled back.
3. A transaction whose connection is lost is rolled back, as the other container does it; if its commit was on the way
   by then, nobody knows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from enmasse.message.codec import encode
from enmasse.message.composites import encode_composite
from enmasse.message.outcomes import ACCEPTED, IN_DOUBT, ROLLBACK, Accepted, AmqpError, Rejected
from enmasse.message.types import ULong
from enmasse.messaging.errors import AttachError
from enmasse.wire.amqp.performatives import Declare, Declared, Discharge, TransactionalState

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.message.composites import Composite
    from enmasse.messaging.delivery import Delivery
    from enmasse.messaging.relay.receivers import RelayConsumer
    from enmasse.messaging.relay.senders import Posted, RelayProducer
    from enmasse.wire.amqp.link import SendingLink

MAX_OPEN: Final = 200
"""Transactions of one client that are not ended, of which the other container may not have answered some."""

PATIENCE_S: Final = 60.0
"""Seconds that a commit waits for its transaction to be declared, and for credit for its messages."""

_VALUE: Final = b"\x00" + encode(ULong(0x77))

_LOST: Final = AmqpError(ROLLBACK, "the connector has lost its connection, and the transaction with it")

_UNKNOWN: Final = AmqpError(IN_DOUBT, "the other container has not said whether the transaction is committed")

_Retiring = tuple["RelayConsumer", "Delivery", Any, bool]


class _Request:
    """A declare or a discharge that has no answer yet."""

    __slots__ = ("is_declare", "sink", "transaction")

    def __init__(self, sink: Control, transaction: RemoteTransaction, *, is_declare: bool) -> None:
        self.sink = sink
        self.transaction = transaction
        self.is_declare = is_declare


class Control:
    """The link there for the transactions of one client: its end, and its sink.

    Args:
        detach: detaches it there.
    """

    __slots__ = ("_detach", "_link", "_open", "_requests", "granted", "is_over")

    def __init__(self, detach: Callable[[Control], None]) -> None:
        self._detach = detach
        self._link: SendingLink | None = None
        self._requests: deque[tuple[_Request, Composite]] = deque()
        """What waits for credit."""
        self._open: dict[RemoteTransaction, None] = {}
        self.granted: Any = None
        self.is_over = False

    def begin(self) -> RemoteTransaction:
        """Declare a transaction.

        Raises:
            AttachError: too many have no answer to their end.
        """
        if len(self._open) >= MAX_OPEN:
            problem = f"the other container has not ended {MAX_OPEN} transactions of this client"
            raise AttachError("amqp:resource-limit-exceeded", problem)
        transaction = RemoteTransaction(self)
        self._open[transaction] = None
        self._say(Declare(), transaction)
        return transaction

    def discharge(self, transaction: RemoteTransaction, txn_id: bytes, *, fail: bool) -> None:
        """End a transaction; it hears of the answer."""
        if self._link is not None:
            # What was settled before must go out before.
            for session in self._link.session.connection.sessions.values():
                session.flush()
        self._say(Discharge(txn_id, fail), transaction)

    def carries(self, upstream: Any) -> bool:
        """Return true if a link is on the same connection."""
        return self._link is not None and upstream.session.connection is self._link.session.connection

    def leave(self) -> None:
        """Detach it, which rolls back what is not committed."""
        self._detach(self)
        self._end(_LOST)

    def _say(self, what: Composite, transaction: RemoteTransaction) -> None:
        self._requests.append((_Request(self, transaction, is_declare=isinstance(what, Declare)), what))
        self._go_on()

    def _go_on(self) -> None:
        link = self._link
        while self._requests and link is not None and link.credit > 0:
            request, what = self._requests.popleft()
            link.send(request, _VALUE + encode_composite(what), False)

    def _end(self, problem: AmqpError) -> None:
        self._link = None
        self.is_over = True
        self._requests.clear()
        found, self._open = self._open, {}
        for transaction in found:
            transaction.lost(problem)

    # The link there

    def on_upstream(self, link: SendingLink) -> None:
        """Note that it is attached."""
        self._link = link
        self._go_on()

    def on_refused_upstream(self, error: AmqpError) -> None:
        """Note that the other container refuses it, or has detached it."""
        self._end(AmqpError(error.condition, f"the other container ends the transaction: {error.description or ''}"))

    def on_lost(self) -> None:
        """Note that the connection is lost: what comes next begins anew."""
        self._detach(self)
        self._end(_LOST)

    def on_credit(self, _gained: int, drain: bool) -> None:
        """Say what has waited."""
        self._go_on()
        if drain and self._link is not None:
            self._link.drained()

    def count_available(self) -> int | None:
        """Return how many requests wait for credit."""
        return len(self._requests)

    def on_outcome(self, request: _Request, state: Any) -> None:
        """Pass on what the other container answers."""
        transaction = request.transaction
        if request.is_declare and isinstance(state, Declared):
            transaction.declared(state.txn_id)
            return
        self._open.pop(transaction, None)
        if not request.is_declare and isinstance(state, Accepted):
            transaction.ended(None)
        elif request.is_declare or isinstance(state, Rejected):
            error = state.error if isinstance(state, Rejected) else None
            transaction.ended(error or AmqpError(ROLLBACK, "the other container gives no reason"))
        else:
            transaction.ended(_UNKNOWN)
            self.leave()

    def confirm(self, done: Callable[[], None]) -> None:
        """Settle at once: nothing is kept of what was told."""
        done()

    def on_blocked(self, blocked: bool) -> None:
        """Do nothing: requests are small and few."""


class RemoteTransaction:
    """A transaction there; ``TransactionThere`` says what its methods do."""

    __slots__ = (
        "_accepted", "_control", "_done", "_ends", "_id", "_is_told", "_retiring", "_timer", "_unsent", "is_over",
        "posted", "problem",
    )  # fmt: skip

    def __init__(self, control: Control) -> None:
        self.problem: AmqpError | None = None
        self.is_over = False
        self.posted: TransactionalState | None = None
        self._id = b""
        self._accepted: TransactionalState | None = None
        self._control = control
        self._ends: dict[RelayProducer, None] = {}
        """Where messages of it may wait."""
        self._unsent = 0
        self._retiring: list[_Retiring] = []
        """Outcomes that wait until it is declared."""
        self._done: Callable[[AmqpError | None], None] | None = None
        """Called at its end, once that was asked for."""
        self._is_told = False
        """True once the other container was told to end it."""
        self._timer: asyncio.TimerHandle | None = None
        """The end of the time that its commit waits for what has not gone out."""

    # What belongs to it

    def carries(self, upstream: Any) -> bool:
        """Return true if a link is on its connection."""
        return self._control.carries(upstream)

    def post(self, end: RelayProducer, posted: Posted) -> AmqpError | None:
        """Have a message sent by a sender's end."""
        if self.problem is not None:
            return self.problem
        self._unsent += 1
        self._ends[end] = None
        problem = end.post(posted)
        if problem is not None:
            self.fail(problem)
        return problem

    def went_out(self) -> None:
        """Note that a message has gone out."""
        self._unsent -= 1
        self._go_on()

    def retire(self, delivery: Delivery, outcome: Any, is_settled: bool) -> AmqpError | None:
        """Have an outcome told."""
        consumer: Any = delivery.sink
        if self.problem is None and not self._id:
            consumer.await_retiring(1)
            self._retiring.append((consumer, delivery, outcome, is_settled))
        elif self.problem is None:
            self._tell(consumer, delivery, outcome, is_settled)
        return self.problem

    def forget(self, delivery: Delivery) -> None:
        """Have an outcome not told that was not yet."""
        for item in [item for item in self._retiring if item[1] is delivery]:
            self._retiring.remove(item)
            item[0].await_retiring(-1)

    def _tell(self, consumer: RelayConsumer, delivery: Delivery, outcome: Any, is_settled: bool) -> None:
        known = consumer.known(outcome)
        state = self._accepted if known is ACCEPTED else TransactionalState(self._id, known)
        problem = ""
        if not self._control.carries(consumer.upstream):
            problem = "the other container has this link on another connection than its transaction"
        elif not consumer.retire(delivery, state, is_settled):
            problem = "the link on which a delivery has come is lost, or the message has not come to its end"
        if problem:
            self.fail(AmqpError(ROLLBACK, problem))

    # Its end

    def fail(self, problem: AmqpError) -> None:
        """Have it rolled back, for the first reason that was given."""
        if self.is_over:
            return
        self.problem = problem
        self._give_up()
        done, self._done = self._done, None
        if done is not None:
            done(problem)

    def _give_up(self) -> None:
        """Take nothing more, and have the other container roll back."""
        self._close()
        ends, self._ends = self._ends, {}
        for end in ends:
            end.drop_posts(self)
        retiring, self._retiring = self._retiring, []
        for consumer, *_ in retiring:
            consumer.await_retiring(-1)
        if self._id and not self._is_told:
            self._is_told = True
            self._control.discharge(self, self._id, fail=True)

    def end(self, fail: bool, done: Callable[[AmqpError | None], None]) -> None:
        """Commit it, or roll it back."""
        if self.is_over:
            done(None if fail else self.problem)
        elif fail and not self._id:
            self._give_up()
            done(None)
        elif fail:
            self._done = lambda _problem: done(None)
            self._give_up()
        else:
            self._done = done
            self._go_on()
            if not self._is_told:
                self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._on_patience)

    def _go_on(self) -> None:
        """Commit it, if that was asked for and nothing waits any more."""
        if self._done is not None and not (self._unsent or self.is_over) and self._id:
            self._close()
            self._is_told = True
            self._ends = {}
            self._control.discharge(self, self._id, fail=False)

    def _close(self) -> None:
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def _on_patience(self) -> None:
        problem = "the other container has not declared it, or given no credit for its messages, in time"
        self.fail(AmqpError(ROLLBACK, problem))

    # Told by its link

    def declared(self, txn_id: bytes) -> None:
        """Note that it is declared, and go on with what has waited for that."""
        self._id = txn_id
        if self.is_over:
            self._is_told = True
            self._control.discharge(self, txn_id, fail=True)
            return
        self.posted = TransactionalState(txn_id)
        self._accepted = TransactionalState(txn_id, ACCEPTED)
        retiring, self._retiring = self._retiring, []
        for item in retiring:
            if not self.is_over:
                self._tell(*item)
            item[0].await_retiring(-1)
        for end in list(self._ends):
            end.go_on()
        self._go_on()

    def ended(self, problem: AmqpError | None) -> None:
        """Note that the other container has ended it, or has not declared it."""
        done, self._done = self._done, None
        if self._is_told:
            if done is not None:
                done(problem)
        elif problem is not None:
            self._done = done
            self.fail(problem)

    def lost(self, problem: AmqpError) -> None:
        """Note that its link is gone."""
        is_reason = problem is not _LOST and problem.condition.startswith("amqp:transaction:")
        if self._is_told and not is_reason:
            problem = _UNKNOWN
        self._id = b""
        self.ended(problem)
