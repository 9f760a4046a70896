"""The coordinator of a connection: declares and discharges its transactions, and times them [AMQP 4].

Rules:
1. A transaction may be used on every session of its connection. It ends with a discharge, after a time, or
   with the control link that declared it: then it is rolled back.
2. A message of a transaction is answered, and settled, with the outcome that it is to have.
3. A delivery that was settled within a transaction comes again if that is rolled back, as a failed
   attempt; one that was not settled stays with its receiver.
4. What is refused is refused at once, and leaves its transaction good for a rollback only.
5. What goes behind a connector has the outcomes of the other container, for its transaction there. If nobody can
   know whether that was committed, the control link ends.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED, IN_DOUBT, Accepted, AmqpError, Rejected
from enmasse.message.sections import Sections, to_of
from enmasse.messaging.delivery import FAILED, Producer, ProducerPort
from enmasse.messaging.direct.metered_sink import MeteredSink
from enmasse.messaging.errors import AttachError
from enmasse.messaging.relay.relay import Relay
from enmasse.messaging.relay.senders import RelayProducer
from enmasse.messaging.space import ANONYMOUS_CREDIT, AnonymousTerminus, Space
from enmasse.messaging.transaction import Transaction, TransactionLimits
from enmasse.node.transactions import Transactions
from enmasse.wire.amqp.errors import RemoteError
from enmasse.wire.amqp.link import ReceivingLink
from enmasse.wire.amqp.performatives import (
    LOCAL_TRANSACTIONS,
    MULTI_SESSIONS,
    MULTI_TRANSACTIONS,
    Declare,
    Declared,
    Discharge,
    TransactionalState,
    from_described,
)

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.core import Core
    from enmasse.wire.amqp.session import Session


CAPABILITIES = (LOCAL_TRANSACTIONS, MULTI_TRANSACTIONS, MULTI_SESSIONS)

CONTROL_CREDIT = 100

REJECTED = "amqp:rejected:list"


class Retired:
    """A delivery whose outcome depends on a transaction."""

    __slots__ = ("delivery", "delivery_id", "is_settled", "outcome", "session", "transaction")

    def __init__(self, session: Session, delivery_id: int, delivery: Any, outcome: Any, is_settled: bool) -> None:
        self.session = session
        self.delivery_id = delivery_id
        self.delivery = delivery
        self.outcome = outcome
        self.is_settled = is_settled
        """True if the receiver has settled it."""
        self.transaction: Transaction

    def committed(self) -> None:
        """Settle the delivery at a receiver that waits for that, as the transaction is committed."""
        self.session.enlisted.pop(self.delivery_id, None)
        if not self.is_settled:
            self.session.settle_sent(self.delivery_id, self.outcome)

    def rolled_back(self) -> None:
        """Give the delivery back, as the transaction is rolled back."""
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
        """Handle a declare or a discharge."""
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

        self.address.discharge(asked.txn_id, bool(asked.fail), done)

    def _answer(self, delivery_id: int, problem: AmqpError | None) -> None:
        if problem is None:
            self.settle(delivery_id, ACCEPTED)
        elif problem.condition == IN_DOUBT:
            # A rejection would say that all was rolled back.
            self.port.detach(AmqpError("amqp:link:detach-forced", problem.description))
        elif self._can_reject:
            self.settle(delivery_id, Rejected(problem))
        else:
            # A peer that does not know rejected has no other way to get the error [AMQP 4.3].
            self.port.detach(problem)

    def on_detached(self) -> None:
        """Roll back what the control link has declared, as it is detached."""
        super().on_detached()
        declared, self.declared = self.declared, set()
        for txn_id in declared:
            self.address.rollback(txn_id)
        if not self.address.producers:
            self.address.leave()


class Coordinator(Transactions):
    """The transactions of one AMQP connection; for its arguments see ``Transactions``."""

    __slots__ = ("_states",)

    def __init__(self, core: Core, limits: TransactionLimits, path: tuple[Hashable, ...] = ()) -> None:
        super().__init__(core, limits, path)
        self._states: dict[bytes, TransactionalState] = {}
        """The answer to messages, one object for each transaction, so that ranges are settled together."""

    def attach_controller(self, port: ProducerPort, outcomes: tuple[str, ...] | None) -> Producer:
        """Attach a control link.

        Args:
            port: the link.
            outcomes: the outcomes that its peer understands; None is all of them.
        """
        return self.add_producer(Controller(self, port, outcomes is None or REJECTED in outcomes))

    @property
    def client(self) -> object:
        """The client's connection, by which its links are kept together behind connectors."""
        controls = (producer.port for producer in self.producers)
        return next((link.session.connection.handler for link in controls if isinstance(link, ReceivingLink)), None)

    def is_cut_short(self, txn_id: bytes) -> bool:
        """Tell if a message has begun to come [AMQP 4.4.1]."""
        controls = (producer.port for producer in self.producers)
        connections = {link.session.connection for link in controls if isinstance(link, ReceivingLink)}
        return any(
            link.partial is not None and link.delivery_txn == txn_id
            for connection in connections
            for session in connection.sessions.values()
            for link in session.receivers.values()
        )

    def take(self, txn_id: bytes) -> Transaction | None:
        """Remove a transaction that ends, and return it."""
        self._states.pop(txn_id, None)
        return super().take(txn_id)

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
        """Add a message to its transaction."""
        sink = link.sink
        producer: Producer = sink.producer if isinstance(sink, MeteredSink) else sink
        producer.address.due()
        transaction = self.transactions.get(txn_id)
        if transaction is None:
            problem: AmqpError | None = self.unknown(txn_id)
        elif message_format:
            problem = AmqpError("amqp:not-implemented", "only messages of format 0 can be part of a transaction")
        elif link.guard is not None and (wrong := link.guard.problem(payload, message_format)) is not None:
            problem = wrong
        else:
            try:
                end, target = self._target(space, producer, payload)
                if isinstance(end, RelayProducer):

                    def tell(outcome: Any) -> None:
                        producer.settle(delivery_id, self._state(txn_id, outcome))

                    problem = transaction.post_there(end, payload, settled, tell)
                    if problem is None:
                        return
                else:
                    problem = transaction.post(end, target, payload)
            except RemoteError as error:
                problem = AmqpError(error.condition, error.description)
        if problem is not None and transaction is not None:
            transaction.fail(problem)
        if problem is None and not settled:
            producer.settle(delivery_id, self._states.get(txn_id) or self._state(txn_id, ACCEPTED))
        elif not settled:
            refusal = Rejected(problem)
            producer.settle(delivery_id, refusal if transaction is None else TransactionalState(txn_id, refusal))
        elif transaction is None:
            link.detach(problem)

    def _state(self, txn_id: bytes, outcome: Any) -> TransactionalState:
        """Return the answer to a message that has an outcome within a transaction."""
        if outcome is not ACCEPTED:
            return TransactionalState(txn_id, outcome)
        state = self._states.get(txn_id)
        if state is None:
            state = TransactionalState(txn_id, ACCEPTED)
            if txn_id in self.transactions:
                self._states[txn_id] = state
        return state

    @staticmethod
    def _target(space: Space | None, producer: Producer, payload: bytes) -> tuple[Address | Producer, str]:
        """Return the address of a message, or the end from which it goes on to another container."""
        if isinstance(producer, AnonymousTerminus):
            if 2 * producer.credit <= ANONYMOUS_CREDIT:
                producer.port.grant(ANONYMOUS_CREDIT)
            to = to_of(payload)
            if not to or space is None:
                raise AttachError("amqp:precondition-failed", "a message without an address in its field to")
            address = producer.find(to)
            return (producer.end_of(to, address) if isinstance(address, Relay) else address), to
        if not producer.is_plain:
            raise AttachError(
                "amqp:not-implemented",
                "what this link carries is more than messages, so cannot be part of a transaction",
            )
        return (producer if isinstance(producer, RelayProducer) else producer.address), producer.target

    # Outcomes

    def retire(self, session: Session, delivery_id: int, state: Any, settled: bool) -> None:
        """Handle an outcome that concerns a transaction; see ``ConnectionHandler``."""
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
            # The receiver has replaced the outcome by one outside of the transaction.
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
        problem = (
            self.unknown(state.txn_id) if transaction is None else transaction.retire(retired, is_settled=settled)
        )
        if transaction is None or problem is not None:
            # Detaching the link gives the delivery back.
            session.unsettled[delivery_id] = delivery
            delivery.sink.port.detach(problem)
        else:
            retired.transaction = transaction
            session.enlisted[delivery_id] = retired
