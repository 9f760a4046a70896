"""The transactions of one connection, of any protocol, and their time-outs.

Rules:
1. A transaction ends when the client commits it or rolls it back; after a time it is rolled back.
2. One that has timed out is remembered until the client ends it, so that the client gets the reason.
3. What is behind a connector is declared there when it first is part of a transaction, by a link for all those of
   the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ROLLBACK, TIMEOUT, UNKNOWN_ID, AmqpError
from enmasse.messaging.address import Address
from enmasse.messaging.transaction import Transaction, TransactionLimits

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.relay.relay import Relay
    from enmasse.messaging.relay.uplink import ControlThere, TransactionThere


_ID = struct.Struct(">Q")


class Transactions(Address):
    """The transactions of one connection, by ids that are given here.

    Args:
        core: the messaging core, with whose batches they are written.
        limits: the limits of transactions.
        path: the owner of the connection, for budgets: space, user, network.
    """

    kind = "coordinator"
    __slots__ = (
        "_controls", "_deadlines", "_declared", "_is_waiting", "_lapsed", "_limits", "_path", "transactions",
    )  # fmt: skip

    def __init__(self, core: Core, limits: TransactionLimits, path: tuple[Hashable, ...] = ()) -> None:
        super().__init__(core, "$coordinator")
        self.transactions: dict[bytes, Transaction] = {}
        """The open transactions by id."""
        self._limits = limits
        self._path = path
        self._controls: dict[Relay, ControlThere] = {}
        """The links for transactions behind connectors."""
        self._declared = 0
        self._deadlines: dict[bytes, float | None] = {}
        """The times at which transactions time out; None for those that were declared in this turn."""
        self._is_waiting = False
        self._lapsed: dict[bytes, None] = {}
        """The transactions that have timed out and were not discharged yet."""

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
        path = (*self._path, self)
        limits = self._limits
        self.transactions[txn_id] = Transaction(self.core, limits.budget, limits.max_bytes, path, self._begin_there)
        if self._limits.timeout_s:
            self._deadlines[txn_id] = None
            self.due()
        return txn_id

    @property
    def client(self) -> object:
        """The connection whose links are kept together behind connectors; None: that is not known."""
        return None

    def _begin_there(self, relay: Relay) -> TransactionThere:
        """Declare a transaction behind a connector.

        Raises:
            AttachError: there is no room for it.
        """
        control = self._controls.get(relay)
        if control is None or control.is_over:
            control = self._controls[relay] = relay.uplink.attach_control(self.client)
        return control.begin()

    def leave(self) -> None:
        """Detach the links behind connectors, as nobody is left who may end what was begun there."""
        controls, self._controls = self._controls, {}
        for control in controls.values():
            control.leave()

    def discharge(self, txn_id: bytes, fail: bool, done: Callable[[AmqpError | None], None]) -> None:
        """End a transaction.

        Args:
            txn_id: the transaction's id.
            fail: roll it back instead of committing it.
            done: called with None, or with the reason why it failed.
        """
        transaction = self.take(txn_id)
        if transaction is None:
            problem = self.unknown(txn_id)
            done(None if fail and txn_id in self._lapsed else problem)
            self._lapsed.pop(txn_id, None)
        elif fail:
            transaction.rollback(lambda _problem: done(None))
        else:
            if self.is_cut_short(txn_id):
                transaction.fail(AmqpError(ROLLBACK, "a message of the transaction has not come to its end"))
            transaction.commit(done)

    def is_cut_short(self, txn_id: bytes) -> bool:
        """Return true if a message of the transaction is incomplete, if the protocol can know."""
        return False

    def rollback(self, txn_id: bytes) -> None:
        """Roll back a transaction that its client has left open."""
        self._lapsed.pop(txn_id, None)
        transaction = self.take(txn_id)
        if transaction is not None:
            transaction.rollback()

    def take(self, txn_id: bytes) -> Transaction | None:
        """Remove a transaction that ends, and return it."""
        self._deadlines.pop(txn_id, None)
        return self.transactions.pop(txn_id, None)

    # Time

    def on_turn(self, now: float) -> None:
        """Start the time-outs of the transactions that were declared in this turn."""
        for txn_id in reversed(self._deadlines):
            if self._deadlines[txn_id] is not None:
                break
            self._deadlines[txn_id] = now + self._limits.timeout_s
        self._schedule()

    def _schedule(self) -> None:
        """Set a timer for the first only: transactions time out in the order in which they were declared."""
        first = next(iter(self._deadlines.values()), None)
        if first is not None and not self._is_waiting:
            self._is_waiting = True
            self.core.schedule(self, first)

    def on_deadline(self, now: float) -> None:
        """Roll back the transactions that have timed out."""
        self._is_waiting = False
        late = [txn_id for txn_id, when in self._deadlines.items() if when is not None and when <= now]
        for txn_id in late:
            transaction = self.take(txn_id)
            assert transaction is not None
            transaction.rollback()
            self._lapsed[txn_id] = None
            if len(self._lapsed) > self._limits.max_open:
                del self._lapsed[next(iter(self._lapsed))]
        self._schedule()

    def unknown(self, txn_id: bytes) -> AmqpError:
        """Return the reason why there is no such transaction (any more)."""
        if txn_id in self._lapsed:
            return AmqpError(TIMEOUT, f"the transaction was not discharged within {self._limits.timeout_s:g} s")
        return AmqpError(UNKNOWN_ID, f"no transaction {txn_id.hex()} is open")
