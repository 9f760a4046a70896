"""Acknowledgements and transactions of STOMP's clients.

Rules:
1. A delivery is the client's from the moment it is put out until it has its outcome, by a number that no other one of
   the connection has; a transaction takes it out of the client's hands, and gives it back if it is rolled back.
2. The outcome of ``NACK`` is that of a failed attempt, or of a message that nobody is to have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED, AmqpError, Rejected
from enmasse.message.sections import data_start
from enmasse.messaging.delivery import FAILED
from enmasse.messaging.part import Part
from enmasse.messaging.relay.senders import RelayProducer
from enmasse.node.stomp.headers import required
from enmasse.node.transactions import Transactions
from enmasse.wire.stomp.frames import Version

if TYPE_CHECKING:
    from enmasse.messaging.transaction import Transaction
    from enmasse.node.stomp.connection import StompConnection
    from enmasse.node.stomp.links import Receiver, Sender


class _Retired:
    """A delivery whose outcome depends on a transaction."""

    __slots__ = ("_number", "_receiver", "_settling", "delivery", "outcome")

    def __init__(self, settling: Settling, number: int, receiver: Receiver, delivery: Any, outcome: Any) -> None:
        self.delivery = delivery
        self.outcome = outcome
        self._settling = settling
        self._number = number
        self._receiver = receiver

    def committed(self) -> None:
        """Count the delivery as settled, as its transaction is committed."""
        if not self._receiver.is_detach_sent:
            self._receiver.gain()

    def rolled_back(self) -> None:
        """Return the delivery to the client, if it is connected, as the transaction is rolled back."""
        end = self.delivery.sink
        if not end.port.is_detach_sent:
            self._settling.unacknowledged[self._number] = self._receiver, self.delivery
            return
        if not end.address.is_closed:
            end.on_outcome(self.delivery, FAILED)
        if not self._receiver.is_detach_sent:
            # Of a pattern, this address alone is gone.
            self._settling.unacknowledged[self._number] = self._receiver, None


class Settling(Part["StompConnection"]):
    """The deliveries of one connection without an outcome, and its transactions.

    Attributes:
        unacknowledged: subscription and delivery by number; no delivery where its sender had settled it.
    """

    __slots__ = ("_begun", "_txn_ids", "unacknowledged")

    def __init__(self, connection: StompConnection) -> None:
        super().__init__(connection)
        self.unacknowledged: dict[int, tuple[Receiver, Any]] = {}
        self._begun: Transactions | None = None
        self._txn_ids: dict[str, bytes] = {}
        """The ids of transactions by the client's names."""

    @property
    def transactions(self) -> int:
        """The number of open transactions."""
        return 0 if self._begun is None else len(self._begun.transactions)

    def acknowledge(self, number: int) -> None:
        """Accept a delivery, or all of its subscription up to it.

        Raises:
            RemoteError: there is no such delivery.
        """
        found = self.unacknowledged.get(number)
        if found is None:
            raise _unknown(str(number))
        receiver, delivery = found
        if receiver.is_cumulative:
            for each in self._up_to(receiver, number):
                self._settle(each, ACCEPTED)
            return
        del self.unacknowledged[number]
        if delivery is not None:
            receiver.consumer.on_outcome(delivery, ACCEPTED)
        receiver.gain()

    def _up_to(self, receiver: Receiver, number: int) -> list[int]:
        """Return the deliveries of a subscription up to one, oldest first."""
        return sorted(n for n, (of, _) in self.unacknowledged.items() if n <= number and of is receiver)

    def _settle(self, number: int, outcome: Any) -> None:
        receiver, delivery = self.unacknowledged.pop(number)
        if delivery is not None:
            receiver.consumer.on_outcome(delivery, outcome)
        receiver.gain()

    def settle(self, is_ack: bool, headers: dict[str, str], receipt: bytes | None) -> None:
        """Handle an ``ACK`` or ``NACK``, now or with its transaction.

        Raises:
            RemoteError: there is no such delivery, or transaction, or it cannot be part of one.
        """
        command = "ACK" if is_ack else "NACK"
        if self.whole.engine.version is Version.V1_2:
            text = required(headers, "id", command)
        else:
            text = headers.get("id") or required(headers, "message-id", command)
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
        found = self.unacknowledged.get(number)
        if found is None:
            raise _unknown(text)
        receiver = found[0]
        numbers = self._up_to(receiver, number) if receiver.is_cumulative else [number]
        outcome: Any = ACCEPTED
        if not is_ack:
            # A failed attempt, after which it comes again; or, if the client says so, one that nobody is to have.
            outcome = Rejected() if headers.get("requeue", "").lower() == "false" else FAILED
        name = headers.get("transaction")
        if name is not None:
            transaction = self._transaction(name)
            for each in numbers:
                self._retire(transaction, each, outcome)
            if receipt is not None:
                self.whole.engine.put_receipt(receipt)
            return
        for each in numbers:
            self._settle(each, outcome)
        if receipt is not None:
            engine, due = self.whole.engine, receipt
            receiver.consumer.confirm(lambda: engine.put_receipt(due))

    # Transactions

    def begin(self, name: str) -> None:
        """Begin a transaction.

        Raises:
            RemoteError: it is begun already, or there are too many.
        """
        if name in self._txn_ids:
            raise RemoteError("amqp:not-allowed", f"transaction {name!r:.100} is begun already")
        if self._begun is None:
            connection = self.whole
            assert connection.space is not None
            self._begun = Transactions(connection.space.core, connection.limits, connection.party)
        self._txn_ids[name] = self._begun.declare()

    def _transaction(self, name: str) -> Transaction:
        txn_id = self._txn_ids.get(name)
        if txn_id is None or self._begun is None:
            raise RemoteError("amqp:transaction:unknown-id", f"there is no transaction {name!r:.100}")
        transaction = self._begun.transactions.get(txn_id)
        if transaction is None:
            raise _refusal(self._begun.unknown(txn_id))
        return transaction

    def post(self, sender: Sender, name: str, payload: bytes) -> None:
        """Add a message to a transaction.

        Raises:
            RemoteError: it cannot be part of it.
        """
        transaction = self._transaction(name)
        link = self.whole.links[sender]
        assert link.end is not None
        if link.metered is not None:
            link.metered.add_bytes(len(payload))
        sender.count_one()
        if isinstance(link.end, RelayProducer):
            problem = transaction.post_there(link.end, payload, False, None)
        else:
            problem = transaction.post(link.end.address, sender.target, payload)
        if problem is not None:
            raise _refusal(problem)

    def _retire(self, transaction: Transaction, number: int, outcome: Any) -> None:
        receiver, delivery = self.unacknowledged[number]
        if delivery is None:
            self._settle(number, outcome)
            return
        problem = transaction.retire(_Retired(self, number, receiver, delivery, outcome))
        if problem is not None:
            raise _refusal(problem)
        del self.unacknowledged[number]

    def end(self, name: str, commits: bool, receipt: bytes | None) -> None:
        """Commit a transaction or roll it back; the receipt comes once that is done.

        Raises:
            RemoteError: there is none of that name.
        """
        connection = self.whole
        txn_id = self._txn_ids.pop(name, None)
        if txn_id is None or self._begun is None:
            raise RemoteError("amqp:transaction:unknown-id", f"there is no transaction {name!r:.100}")
        connection.unanswered += 1

        def done(problem: AmqpError | None) -> None:
            connection.unanswered -= 1
            if problem is not None:
                error = _refusal(problem)
                connection.fail(error.condition, error.description, receipt)
                return
            if receipt is not None:
                connection.engine.put_receipt(receipt)
            connection.answered()

        self._begun.discharge(txn_id, not commits, done)

    def rollback(self) -> None:
        """Roll back all open transactions."""
        if self._begun is not None:
            for txn_id in self._txn_ids.values():
                self._begun.rollback(txn_id)
            self._begun.leave()
        self._txn_ids.clear()


class Posting:
    """The ``SendSink`` of a transaction's messages with the same headers."""

    is_lasting = False

    def __init__(self, connection: StompConnection, sender: Sender, transaction: str, head: bytes) -> None:
        self._connection = connection
        self._sender = sender
        self._transaction = transaction
        self._head = head

    def on_send(self, body: bytes, receipt: bytes | None) -> None:
        """Add a message to the transaction."""
        payload = self._head + data_start(len(body)) + body
        self._sender.check(payload)
        self._connection.settling.post(self._sender, self._transaction, payload)
        if receipt is not None:
            self._connection.engine.put_receipt(receipt)


def _unknown(name: str) -> RemoteError:
    return RemoteError(
        "amqp:not-found",
        f"no message {name!r:.60} waits to be acknowledged: it never was sent, or has its outcome already",
    )


def _refusal(problem: AmqpError) -> RemoteError:
    return RemoteError(problem.condition, problem.description or "the transaction cannot go on")
