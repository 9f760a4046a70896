"""Transactions of the simulation, and the check that all of one takes effect or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.message.outcomes import ACCEPTED, Modified, Rejected
from enmasse.messaging.budget import Budget
from enmasse.messaging.delivery import FAILED
from enmasse.messaging.transaction import Transaction
from tests.simulation.clients import number_of, payload_of
from tests.simulation.copies import Copy, Message

if TYPE_CHECKING:
    from enmasse.testing.ports import Arrival
    from tests.simulation.accounts import Account
    from tests.simulation.clients import Receiver
    from tests.simulation.scenario import AddressPlan
    from tests.simulation.streams import StreamAccount
    from tests.simulation.world import World

__all__ = ["Exchange"]

MAX_BYTES = 1 << 20

TRANSACTIONS = -3
"""Stands for the sender of what transactions send to streams, where its place does not count."""


class _Retired:
    """A delivery whose outcome waits for the end of a transaction."""

    def __init__(self, exchange: Exchange, receiver: Receiver, arrival: Arrival, outcome: Any) -> None:
        self.receiver = receiver
        self.arrival = arrival
        self.delivery = arrival.delivery
        self.outcome = outcome
        self.number = number_of(arrival.payload)
        self._exchange = exchange

    def committed(self) -> None:
        """The outcome has taken effect."""
        self._exchange.committed(self)

    def rolled_back(self) -> None:
        """The outcome counts for nothing: the delivery is its receiver's again, if that is still there."""
        self._exchange.rolled_back(self)


class Exchange:
    """One transaction: what it sends and what it takes.

    Args:
        world: what it is part of.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.label = world.next_label()
        self._transaction = Transaction(world.node.core, Budget(MAX_BYTES, grain=1), MAX_BYTES)
        self._posts: list[tuple[AddressPlan, Message]] = []
        self._retired: list[_Retired] = []
        self._rows: list[tuple[StreamAccount, int]] = []
        """Streams and what is sent to them."""
        self._coming: list[tuple[Account, Copy]] = []
        """The copies that are there once it is committed."""
        self.early: list[str] = []
        """What was delivered of it and is a problem, unless it is committed in the same step."""
        self._began = 0.0
        """When its commit was asked for."""
        self.is_open = True
        self.is_decided = False
        self.is_by_front = world.comes_by_front()

    def post(self, plan: AddressPlan, message: Message, padding: int) -> None:
        """Send a message with the commit."""
        address = self._world.node.find(plan.name)
        target = self._world.target_of(plan, message.number)
        claimed = self._world.name(plan, message, target)
        problem = self._transaction.post(address, target, payload_of(message, padding, **claimed))
        self._world.note("{}: transaction {} sends {}: {}", plan.name, self.label, message, problem)
        stream = self._world.streams.get(plan.name)
        if stream is not None:
            stream.sent[message.number] = (TRANSACTIONS, message.number)
            stream.sent_at[message.number] = self._world.now
            self._rows.append((stream, message.number))
        elif problem is None:
            self._posts.append((plan, message))

    def retire(self, receiver: Receiver, at: int, outcome: Any) -> None:
        """Have a delivery's outcome take effect with the commit."""
        arrival = receiver.unsettled.pop(at)
        item = _Retired(self, receiver, arrival, outcome)
        self._world.note("{}: transaction {} takes {}: {}", receiver.account.name, self.label, item.number, outcome)
        receiver.account.copies[item.number].pending = self
        problem = self._transaction.retire(item)
        assert problem is None, problem
        self._retired.append(item)

    def rollback(self) -> None:
        """Have none of it happen."""
        self.is_open = False
        self.is_decided = True
        self._world.note("transaction {} is rolled back", self.label)
        self._transaction.rollback()
        for stream, number in self._rows:
            stream.refused.add(number)

    def commit(self) -> None:
        """Have all of it happen, or nothing."""
        world = self._world
        self.is_open = False
        self._began = world.now
        world.note("transaction {} is to be committed", self.label)
        if self._transaction.problem is None:
            for plan, message in self._posts:
                for account in world.fed_by(plan):
                    copy = account.offer(message, world.now)
                    copy.pending = self
                    copy.is_doubtful = copy.is_unordered = True
                    self._coming.append((account, copy))
        self._transaction.commit(self._decided)

    def _decided(self, problem: Any) -> None:
        world = self._world
        self.is_decided = True
        world.note("transaction {} is decided: {}", self.label, problem)
        if problem is None:
            self.early.clear()
        for stream, number in self._rows:
            (stream.accepted if problem is None else stream.refused).add(number)
        for account, copy in self._coming:
            copy.pending = None
            if problem is not None:
                account.disown(copy)
                account.copies.pop(copy.message.number, None)
                continue
            copy.is_doubtful = account.can_drop or copy.is_replaced
            # Volatile subscribers get it only now.
            copy.expires_by += world.now - self._began
            copy.ready_by += world.now - self._began
            copy.message.accepted = True
            copy.message.accepted_at = world.now
            copy.is_stored = copy.is_stored or account.keeps(copy)

    def committed(self, item: _Retired) -> None:
        """An outcome has taken effect; that of an acceptance is on the disk, of the others it is said now."""
        account = item.receiver.account
        copy = account.copies.get(item.number)
        if copy is None:
            account.problem(f"message {item.number} was part of a transaction and is gone")
            return
        copy.pending = None
        stamp, now = self._world.storage.submitted, self._world.now
        if item.outcome is ACCEPTED:
            account.accepted(item.number, stamp if not account.keeps(copy) or not copy.is_stored else -1)
        elif isinstance(item.outcome, Rejected):
            account.rejected(item.number, stamp, now)
        elif isinstance(item.outcome, Modified) and item.outcome.delivery_failed:
            account.failed(item.number, stamp, now)
        else:
            account.released(item.number)

    def rolled_back(self, item: _Retired) -> None:
        """An outcome counts for nothing."""
        account, receiver = item.receiver.account, item.receiver
        account.copies[item.number].pending = None
        if not receiver.is_detached:
            receiver.unsettled.append(item.arrival)
            return
        account.failed(item.number, self._world.storage.submitted, self._world.now)
        receiver.sink.on_outcome(item.delivery, FAILED)

    def check_found(self, found: dict[str, dict[int, int]], rows: dict[str, set[int]]) -> None:
        """A node has died meanwhile: it is all there, or nothing of it.

        Args:
            found: by address: the messages that a node finds that starts now.
            rows: the same of streams.
        """
        happened: list[str] = []
        did_not: list[str] = []
        for stream, number in self._rows:
            if not stream.can_delete:
                came = number in rows[stream.name]
                (happened if came else did_not).append(f"{number} came to {stream.name}")
        for account, copy in self._coming:
            number = copy.message.number
            if account.keeps(copy) and not (account.can_drop or copy.life or copy.is_replaced):
                came = number in found.get(account.name, {})
                (happened if came else did_not).append(f"{number} came to {account.name}")
        for item in self._retired:
            account = item.receiver.account
            gone = account.copies.get(item.number)
            if item.outcome is not ACCEPTED or gone is None or not account.keeps(gone):
                continue
            if gone.life or account.can_drop or account.is_target or gone.is_replaced:
                continue
            if 0 < account.max_attempts <= gone.attempts + 1:
                # Not there, it may be a dead letter.
                continue
            if gone.is_stored or (gone.message.accepted and not gone.is_doubtful):
                left = item.number not in found.get(account.name, {})
                (happened if left else did_not).append(f"{item.number} left {account.name}")
        if happened and did_not:
            self._world.problems.append(f"of one transaction, {happened} happened and {did_not} did not")
        if happened and self.is_open:
            self._world.problems.append(f"of a transaction that was never committed, {happened} happened")
