"""One simulated world: a node over a journal with faults, its clients, and the accounts of what must hold."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import AttachOptions
from enmasse.messaging.delivery import ACCEPTED
from enmasse.testing.faults import JournalFaults
from enmasse.testing.simulated_storage import SimulatedStorage
from tests.simulation.accounts import LEAVING, OUT, Account, Copy, Message
from tests.simulation.clients import Receiver, Sender
from tests.simulation.node import LOG_TABLES, QUEUES, Node, look
from tests.simulation.stream_clients import StreamClients
from tests.simulation.streams import StreamAccount

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from tests.simulation.scenario import AddressPlan, Scenario

__all__ = ["BrokenPromiseError", "World"]

MAX_LINKS = 3
"""Senders, and receivers, of one address at a time."""

MARGIN = 2
"""Batches by which a log may fall behind because others that share its fate are on their way."""

LATE_S = 0.2
"""How late or early times may be that pass through the journal: rows are stamped when they are written."""


class BrokenPromiseError(AssertionError):
    """Something that must hold does not."""


class World:
    """What one scenario plays in.

    Args:
        scenario: the play.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.random = Random(scenario.seed ^ 0x5EED)
        self.problems: list[str] = []
        self.plans = {plan.name: plan for plan in scenario.addresses}
        self.accounts: dict[str, Account] = {}
        self.streams: dict[str, StreamAccount] = {}
        self.senders: dict[str, list[Sender]] = {}
        self.receivers: dict[str, list[Receiver]] = {}
        self.stream_clients: dict[str, StreamClients] = {}
        self.numbers = 0
        self.restarts = 0
        self.faults = JournalFaults(self.random, scenario.rates)
        self.storage = SimulatedStorage()
        self.node = Node(self.storage, 0.0, self.problems.append)
        self._failures = 0
        self._declare()

    def _declare(self) -> None:
        self.node.create_space()
        for plan in self.scenario.addresses:
            self.node.create_address(plan.name, plan.attributes)
            if plan.kind in QUEUES:
                account = Account(plan.name, plan.option("storage", "message"), self.problems.append)
                account.slack = LATE_S
                account.is_topics = plan.kind == "subscription"
                self.accounts[plan.name] = account
            elif plan.kind == "stream":
                self.streams[plan.name] = StreamAccount(plan.name, plan.option("partitions", 1), self.problems.append)
        self._open_links()
        self.check()

    def _open_links(self) -> None:
        self.senders = {name: [] for name, plan in self.plans.items() if plan.kind in {"queue", "topic"}}
        self.receivers = {name: [] for name, plan in self.plans.items() if plan.kind != "stream"}
        for name, account in self.streams.items():
            clients = self.stream_clients.get(name)
            if clients is None:
                clients = self.stream_clients[name] = StreamClients(self, name, account)
            clients.open()
        self.node.turn()

    @property
    def now(self) -> float:
        """The clock in seconds."""
        return self.node.now

    def chance(self, probability: float) -> bool:
        """Whether something happens that is so likely."""
        return self.random.random() < probability

    def next_number(self) -> int:
        """A number for one more message."""
        self.numbers += 1
        return self.numbers

    # Links

    def attach_sender(self, plan: AddressPlan) -> Sender:
        """One more sender of an address."""
        sender = Sender(lambda message, state: self.told(plan, message, state))
        address = self.node.find(plan.name)
        sender.sink = address.attach_producer(sender, plan.name, AttachOptions())
        self.senders[plan.name].append(sender)
        self.node.turn()
        return sender

    def attach_receiver(self, plan: AddressPlan, *, credit: int, presettle: bool) -> Receiver:
        """One more receiver of an address; on a topic, a subscriber of its own."""
        account = self.accounts.get(plan.name)
        if account is None:
            account = Account(f"{plan.name} (volatile)", "memory", self.problems.append)
            account.is_topics = True
        receiver = Receiver(self, account, presettle=presettle)
        address = self.node.find(plan.name)
        receiver.sink = address.attach_consumer(receiver, AttachOptions(presettle=presettle, source=plan.name))
        self.receivers[plan.name].append(receiver)
        receiver.grant(credit)
        return receiver

    def fed_by(self, plan: AddressPlan) -> list[Account]:
        """The accounts that get what is sent to an address."""
        if plan.kind == "queue":
            return [self.accounts[plan.name]]
        stored = [
            self.accounts[other.name]
            for other in self.scenario.addresses
            if other.kind == "subscription" and other.option("topic", "") == plan.name
        ]
        return stored + [receiver.account for receiver in self.receivers[plan.name]]

    # What clients hear and do

    def told(self, plan: AddressPlan, message: Message, state: Any) -> None:
        """A sender heard an outcome."""
        if state is ACCEPTED:
            message.accepted = True
            return
        message.refused = True
        for account in self.fed_by(plan):
            account.refused(message.number)

    def reject(self, account: Account, number: int) -> None:
        """A receiver says that a message is not fit."""
        account.accepted(number, self.storage.submitted)

    def give_back(
        self, account: Account, number: int, receiver: Receiver, *, failed: bool, avoids: bool = False
    ) -> Copy:
        """A receiver gave a message back."""
        return account.came_back(number, self.storage.submitted, self.now, failed=failed)

    # The journal, and time

    def journal(self) -> None:
        """One thing happens to the journal."""
        self.faults.step(self.storage)

    def after_step(self) -> None:
        """Do what the node does at the end of its turn, and compare."""
        self.node.turn()
        if self.node.core.batches_failed != self._failures:
            self._failures = self.node.core.batches_failed
            for account in self.all_accounts():
                account.batch_failed()
        if self.node.core.is_idle and self.storage.is_idle:
            for account in self.all_accounts():
                account.forget_gone()
        self.check()

    def all_accounts(self) -> list[Account]:
        """Those of stored addresses and of volatile subscribers."""
        volatile = [r.account for n, rs in self.receivers.items() if n not in self.accounts for r in rs]
        return [*self.accounts.values(), *volatile]

    def is_written(self, stamp: float) -> bool:
        """Whether what was asked for when a batch was the last is on the disk for certain."""
        return stamp < 0 or self.storage.written_through >= stamp + MARGIN

    # What must hold

    def check(self) -> None:
        """Raise what does not fit.

        Raises:
            BrokenPromiseError: something does not.
        """
        if self.problems:
            raise BrokenPromiseError("\n".join(self.problems[:8]))

    def check_depths(self) -> None:
        """Compare what addresses say of themselves."""
        for name, account in self.accounts.items():
            counts = self.node.find(name).counts()
            account.check_depth(counts["messagesStored"], counts["bytesStored"], self.now)

    def calm(self) -> None:
        """Have everything done; then all counts are exact, and nobody waits for an answer without reason."""
        for receivers in self.receivers.values():
            for receiver in receivers:
                if receiver.is_blocked:
                    receiver.is_blocked = False
                    receiver.block(False)
        self.node.settle()
        self.after_step()
        for account in self.all_accounts():
            account.settle_leaving()
        held = {
            copy.message.number
            for account in self.all_accounts()
            for copy in account.copies.values()
            if copy.state in {OUT, LEAVING}
        }
        for name, senders in self.senders.items():
            for sender in senders:
                for message in sender.waiting.values():
                    if message.number not in held:
                        self.problems.append(f"{name}: nobody answers the sender of message {message.number}")
        self.check_depths()
        for clients in self.stream_clients.values():
            clients.check()
        self.check()

    def look(self) -> None:
        """See what a node would find that starts over what is on the disk now."""
        self._look(self.storage.copy())
        self.check()

    def _look(self, storage: SimulatedStorage) -> dict[str, dict[int, int]]:
        findings = look(storage, self.now, self.patience, self.problems.append)
        found = {}
        for name, messages in findings.messages.items():
            found[name] = dict(messages)
            account = self.accounts[name]
            if len(found[name]) < len(messages):
                account.problem(f"after a restart it holds messages twice: {messages}")
            account.check_found(found[name], self.now, self.is_written)
            account.check_found_order([number for number, _ in messages])
        for name, rows in findings.rows.items():
            self.streams[name].check_found(rows)
        return found

    @property
    def patience(self) -> float:
        """How long a message may be held back, in seconds."""
        return 0.0

    def crash(self) -> None:
        """Node and journal die, and another node starts over what is left."""
        self.restarts += 1
        left = self.faults.crash(self.storage)
        written = self.storage.written_through
        self.storage = left.copy()
        self.storage.written_through = written
        found = self._look(left)
        self.check()
        self.storage.written_through = 0
        for senders in self.senders.values():
            for sender in senders:
                sender.abandon()
        for name, account in self.accounts.items():
            account.adopt(found[name], self.now)
        self.node = Node(self.storage, self.now + self.random.choice([0.0, 1.0]), self.problems.append)
        self._failures = 0
        self.node.load()
        self._open_links()
        self.check_depths()
        self.check()

    def finish(self) -> None:
        """Take all that is left; then nothing is left in memory or on the disk."""
        for receivers in self.receivers.values():
            for receiver in receivers:
                receiver.leave()
            receivers.clear()
        self.calm()
        for clients in self.stream_clients.values():
            clients.finish()
        for _ in range(3):
            for name in self.accounts:
                receiver = self.attach_receiver(self.plans[name], credit=1_000_000, presettle=False)
                self.node.settle()
                while receiver.unsettled:
                    receiver.finish(0, ACCEPTED)
                self.calm()
                receiver.leave()
                self.receivers[name].clear()
        self.calm()
        for account in self.accounts.values():
            for copy in account.copies.values():
                if not copy.is_doubtful and not copy.expires and not account.can_drop:
                    account.problem(f"message {copy.message.number} was never delivered, it is {copy.state}")
        self._check_empty()
        self.check()

    def _check_empty(self) -> None:
        records = self.node.entities.records["io.enmasse.address"].values()
        streams = {record["log"] for record in records if record["addressType"] == "stream"}
        for table in LOG_TABLES:
            left = [key for key, _ in self.storage.scan_all(table) if int.from_bytes(key[:4], "big") not in streams]
            if left:
                self.problems.append(f"{len(left)} records of {table.name} are left in the end: {left[0].hex()}")
        if self.node.core.gathered_bytes:
            self.problems.append(f"{self.node.core.gathered_bytes} bytes are gathered in the end, for nothing")
        for name in self.accounts:
            counts = self.node.find(name).counts()
            if counts["messagesStored"] or counts["bytesStored"]:
                self.problems.append(f"{name}: {counts['messagesStored']} messages of {counts['bytesStored']} bytes "
                                     "are left in the end")  # fmt: skip

    def address(self, name: str) -> Address:
        """An address of the node that runs now."""
        return self.node.find(name)
