"""The coordinator of a connection: declares and discharges its transactions, and times them [AMQP 4].

Rules:
1. A transaction may be used on every session of its connection. It ends with a discharge, after a time, or
   with the control link that declared it: then it is rolled back.
2. A message of a transaction is answered, and settled, with the outcome that it is to have.
3. A delivery that was settled within a transaction comes again if that is rolled back, as a failed
   attempt; one that was not settled stays with its receiver.
4. What is refused is refused at once, and leaves its transaction good for a rollback only.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import Address
from enmasse.messaging.delivery import ACCEPTED, FAILED, Producer, ProducerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.metered_sink import MeteredSink
from enmasse.messaging.queue import QueueProducer
from enmasse.messaging.space import ANONYMOUS_CREDIT, AnonymousTerminus, Space
from enmasse.messaging.stream_producers import MessageProducer
from enmasse.messaging.topic import TopicProducer
from enmasse.messaging.transaction import Account, Transaction
from enmasse.wire.amqp.errors import DecodeError, RemoteError
from enmasse.wire.amqp.link import ReceivingLink
from enmasse.wire.amqp.performatives import Accepted, AmqpError, Rejected, from_described
from enmasse.wire.amqp.sections import Sections, to_of
from enmasse.wire.amqp.transactions import (
    LOCAL_TRANSACTIONS,
    MULTI_SESSIONS,
    MULTI_TRANSACTIONS,
    ROLLBACK,
    TIMEOUT,
    UNKNOWN_ID,
    Declare,
    Declared,
    Discharge,
    TransactionalState,
)

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.wire.amqp.session import Session

__all__ = ["CAPABILITIES", "TRANSACTION_TIMEOUT_S", "Coordinator", "TransactionLimits"]

CAPABILITIES = (LOCAL_TRANSACTIONS, MULTI_TRANSACTIONS, MULTI_SESSIONS)

TRANSACTION_TIMEOUT_S = 60.0
"""Long for a program, short for a queue whose messages a program that hangs keeps from the others."""

CONTROL_CREDIT = 100

REJECTED = "amqp:rejected:list"

PLAIN_PRODUCERS = (QueueProducer, TopicProducer, MessageProducer)
"""Ends of senders that send messages and nothing but messages."""

_ID = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """What transactions may take of a node.

    Attributes:
        timeout_s: from a transaction's declaration to its discharge; 0 waits for ever.
        max_open: transactions of one connection that are not discharged.
        max_bytes: messages that one transaction holds, with their overhead.
        account: what all transactions of the node hold together.
    """

    timeout_s: float = TRANSACTION_TIMEOUT_S
    max_open: int = 100
    max_bytes: int = 16 << 20
    account: Account = field(default_factory=lambda: Account(256 << 20))


class Retired:
    """A delivery whose outcome waits for the end of a transaction."""

    __slots__ = ("delivery", "delivery_id", "is_settled", "outcome", "session", "transaction")

    def __init__(self, session: Session, delivery_id: int, delivery: Any, outcome: Any, is_settled: bool) -> None:
        self.session = session
        self.delivery_id = delivery_id
        self.delivery = delivery
        self.outcome = outcome
        self.is_settled = is_settled
        """Whether the receiver has forgotten it."""
        self.transaction: Transaction

    def committed(self) -> None:
        """The outcome has taken effect: a receiver that waits for it is told."""
        self.session.enlisted.pop(self.delivery_id, None)
        if not self.is_settled:
            self.session.settle_sent(self.delivery_id, self.outcome)

    def rolled_back(self) -> None:
        """The outcome counts for nothing."""
        self.session.enlisted.pop(self.delivery_id, None)
        end = self.delivery.sink
        if not self.is_settled and not end.port.is_detached:
            self.session.unsettled[self.delivery_id] = self.delivery
        elif not end.address.is_closed:
            end.on_outcome(self.delivery, FAILED)


class Controller(Producer):
    """The node's end of a control link."""

    __slots__ = ("_can_reject", "declared")
    address: Coordinator

    def __init__(self, address: Coordinator, port: ProducerPort, can_reject: bool) -> None:
        super().__init__(address, port, address.name)
        self.declared: set[bytes] = set()
        """The transactions that end with this link."""
        self._can_reject = can_reject
        port.grant(CONTROL_CREDIT)

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Declare a transaction, or discharge one."""
        if 2 * self.credit <= CONTROL_CREDIT:
            self.port.grant(CONTROL_CREDIT)
        try:
            asked = from_described(Sections(payload).body)
        except DecodeError as error:
            asked = error
        if settled and not isinstance(asked, Discharge):
            problem = "whoever declares a transaction must wait to be told its id, so cannot send settled"
            self.port.detach(AmqpError("amqp:not-allowed", problem))
        elif isinstance(asked, Declare):
            self._declare(asked, delivery_id)
        elif isinstance(asked, Discharge):
            self._discharge(asked, delivery_id, settled)
        else:
            self._answer(
                delivery_id, AmqpError("amqp:invalid-field", f"neither a declare nor a discharge: {asked!r:.200}")
            )

    on_crossed = on_message

    def _declare(self, asked: Declare, delivery_id: int) -> None:
        if asked.global_id is not None:
            self._answer(delivery_id, AmqpError("amqp:not-implemented", "distributed transactions are not served"))
            return
        try:
            txn_id = self.address.declare()
        except RemoteError as error:
            self._answer(delivery_id, AmqpError(error.condition, error.description))
            return
        self.declared.add(txn_id)
        self.settle(delivery_id, Declared(txn_id))

    def _discharge(self, asked: Discharge, delivery_id: int, settled: bool) -> None:
        self.declared.discard(asked.txn_id)

        def done(problem: AmqpError | None) -> None:
            if not settled:
                self._answer(delivery_id, problem)

        self.address.discharge(asked.txn_id, asked.fail, done)

    def _answer(self, delivery_id: int, problem: AmqpError | None) -> None:
        if problem is None:
            self.settle(delivery_id, ACCEPTED)
        elif self._can_reject:
            self.settle(delivery_id, Rejected(problem))
        else:
            # There is no other way to tell this peer [AMQP 4.3].
            self.port.detach(problem)

    def gone(self) -> None:
        """The control link is detached: what it declared is rolled back."""
        super().gone()
        declared, self.declared = self.declared, set()
        for txn_id in declared:
            self.address.rollback(txn_id)


class Coordinator(Address):
    """The transactions of one connection.

    Args:
        core: whose batches they are written with.
        limits: what they may take.
    """

    kind = "coordinator"
    __slots__ = ("_deadlines", "_declared", "_is_waiting", "_lapsed", "_limits", "_states", "transactions")

    def __init__(self, core: Core, limits: TransactionLimits) -> None:
        super().__init__(core, "$coordinator")
        self.transactions: dict[bytes, Transaction] = {}
        """Those that are not discharged."""
        self._limits = limits
        self._declared = 0
        self._deadlines: dict[bytes, float | None] = {}
        """When they lapse; nothing for those that were declared in this turn."""
        self._is_waiting = False
        self._lapsed: dict[bytes, None] = {}
        """Those that took too long and were not discharged yet."""
        self._states: dict[bytes, TransactionalState] = {}
        """What messages are answered with, one object for each transaction, so that ranges go out together."""

    def attach_controller(self, port: ProducerPort, outcomes: tuple[str, ...] | None) -> Producer:
        """A control link joins.

        Args:
            port: the link.
            outcomes: those that its peer understands; nothing is all of them.
        """
        return self.add_producer(Controller(self, port, outcomes is None or REJECTED in outcomes))

    # Control

    def declare(self) -> bytes:
        """Begin a transaction and return its id.

        Raises:
            RemoteError: there are too many.
        """
        if len(self.transactions) >= self._limits.max_open:
            raise RemoteError(
                "amqp:resource-limit-exceeded",
                f"a connection has up to {self._limits.max_open} transactions; discharge one first",
            )
        self._declared += 1
        txn_id = _ID.pack(self._declared)
        self.transactions[txn_id] = Transaction(self.core, self._limits.account, self._limits.max_bytes)
        if self._limits.timeout_s:
            self._deadlines[txn_id] = None
            self.due()
        return txn_id

    def discharge(self, txn_id: bytes, fail: bool, done: Any) -> None:
        """End a transaction.

        Args:
            txn_id: its id.
            fail: whether to roll it back.
            done: called with nothing, or with what is wrong.
        """
        transaction = self._take(txn_id)
        if transaction is None:
            if txn_id not in self._lapsed:
                done(AmqpError(UNKNOWN_ID, f"no transaction {txn_id.hex()} is open"))
                return
            del self._lapsed[txn_id]
            done(None if fail else self._too_late())
        elif fail:
            transaction.rollback()
            done(None)
        else:
            if self._is_cut_short(txn_id):
                transaction.fail(AmqpError(ROLLBACK, "a message of the transaction has not come to its end"))
            transaction.commit(done)

    def _is_cut_short(self, txn_id: bytes) -> bool:
        """Whether a message has begun to come [AMQP 4.4.1]."""
        controls = (producer.port for producer in self.producers)
        connections = {link.session.connection for link in controls if isinstance(link, ReceivingLink)}
        return any(
            link.partial is not None and link.delivery_txn == txn_id
            for connection in connections
            for session in connection.sessions.values()
            for link in session.receivers.values()
        )

    def rollback(self, txn_id: bytes) -> None:
        """A transaction's control link is gone."""
        self._lapsed.pop(txn_id, None)
        transaction = self._take(txn_id)
        if transaction is not None:
            transaction.rollback()

    def _take(self, txn_id: bytes) -> Transaction | None:
        self._deadlines.pop(txn_id, None)
        self._states.pop(txn_id, None)
        return self.transactions.pop(txn_id, None)

    # Time

    def on_turn(self, now: float) -> None:
        """What was declared in this turn has its time from now on."""
        for txn_id in reversed(self._deadlines):
            if self._deadlines[txn_id] is not None:
                break
            self._deadlines[txn_id] = now + self._limits.timeout_s
        self._schedule()

    def _schedule(self) -> None:
        """Wait for the first only: the others lapse in the order in which they were declared."""
        first = next(iter(self._deadlines.values()), None)
        if first is not None and not self._is_waiting:
            self._is_waiting = True
            self.core.schedule(self, first)

    def on_deadline(self, now: float) -> None:
        """Roll back what took too long."""
        self._is_waiting = False
        late = [txn_id for txn_id, when in self._deadlines.items() if when is not None and when <= now]
        for txn_id in late:
            transaction = self._take(txn_id)
            assert transaction is not None
            transaction.rollback()
            self._lapsed[txn_id] = None
            if len(self._lapsed) > self._limits.max_open:
                del self._lapsed[next(iter(self._lapsed))]
        self._schedule()

    def _too_late(self) -> AmqpError:
        return AmqpError(TIMEOUT, f"the transaction was not discharged within {self._limits.timeout_s:g} s")

    # Messages

    def post(
        self,
        space: Space | None,
        link: ReceivingLink,
        payload: bytes,
        delivery_id: int,
        settled: bool,
        message_format: int,
        txn_id: bytes,
    ) -> None:
        """A message has come that counts only if its transaction is committed."""
        sink = link.sink
        producer: Producer = sink.producer if isinstance(sink, MeteredSink) else sink
        producer.address.due()
        transaction = self.transactions.get(txn_id)
        if transaction is None:
            problem: AmqpError | None = self._unknown(txn_id)
        elif message_format:
            problem = AmqpError("amqp:not-implemented", "only messages of format 0 can be part of a transaction")
        else:
            try:
                problem = transaction.post(*self._target(space, producer, payload), payload)
            except RemoteError as error:
                problem = AmqpError(error.condition, error.description)
        if problem is not None and transaction is not None:
            transaction.fail(problem)
        if problem is None and not settled:
            state = self._states.get(txn_id)
            if state is None:
                state = self._states[txn_id] = TransactionalState(txn_id, ACCEPTED)
            producer.settle(delivery_id, state)
        elif not settled:
            refusal = Rejected(problem)
            producer.settle(delivery_id, refusal if transaction is None else TransactionalState(txn_id, refusal))
        elif transaction is None:
            link.detach(problem)

    def _unknown(self, txn_id: bytes) -> AmqpError:
        if txn_id in self._lapsed:
            return self._too_late()
        return AmqpError(UNKNOWN_ID, f"no transaction {txn_id.hex()} is open")

    @staticmethod
    def _target(space: Space | None, producer: Producer, payload: bytes) -> tuple[Address, str]:
        if isinstance(producer, AnonymousTerminus):
            if 2 * producer.credit <= ANONYMOUS_CREDIT:
                producer.port.grant(ANONYMOUS_CREDIT)
            to = to_of(payload)
            if not to or space is None:
                raise AttachError("amqp:precondition-failed", "a message without an address in its field to")
            return producer.find(to), to
        if producer.address.kind in ("queue", "topic", "stream") and type(producer) not in PLAIN_PRODUCERS:
            raise AttachError(
                "amqp:not-implemented",
                "what this link carries is more than messages, so cannot be part of a transaction",
            )
        return producer.address, producer.target

    # Outcomes

    def retire(self, session: Session, delivery_id: int, state: Any, settled: bool) -> None:
        """A receiver has told an outcome that concerns a transaction; see ``ConnectionHandler``."""
        known: Retired | None = session.enlisted.get(delivery_id)
        if known is not None and (state is None or not known.transaction.is_open):
            known.is_settled |= settled
            return
        if known is not None:
            known.transaction.forget(known)
            del session.enlisted[delivery_id]
            delivery = known.delivery
            settled |= known.is_settled
        else:
            delivery = session.unsettled.pop(delivery_id)
        if not isinstance(state, TransactionalState):
            # The receiver has thought better of it.
            delivery.sink.on_outcome(delivery, state)
            return
        self._enlist(session, delivery_id, delivery, state, settled)

    def _enlist(
        self, session: Session, delivery_id: int, delivery: Any, state: TransactionalState, settled: bool
    ) -> None:
        outcome = ACCEPTED if isinstance(state.outcome, Accepted) else state.outcome
        retired = Retired(session, delivery_id, delivery, outcome, settled)
        transaction = self.transactions.get(state.txn_id)
        if transaction is None and state.txn_id in self._lapsed:
            retired.rolled_back()
            return
        problem = self._unknown(state.txn_id) if transaction is None else transaction.retire(retired)
        if transaction is None or problem is not None:
            # The link's end has the delivery given back.
            session.unsettled[delivery_id] = delivery
            delivery.sink.port.detach(problem)
        else:
            retired.transaction = transaction
            session.enlisted[delivery_id] = retired
