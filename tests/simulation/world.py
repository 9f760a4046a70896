"""One simulated world: a node over a journal with faults, its clients, and the accounts of what must hold."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from enmasse.message.outcomes import ACCEPTED
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.errors import AttachError
from enmasse.testing.simulated_storage import SimulatedStorage
from tests.simulation.accounts import SWEEP_S, Account
from tests.simulation.audit import adopt, check_depth, check_found, check_found_order
from tests.simulation.clients import NAME, Receiver, Sender
from tests.simulation.copies import LEAVING, OUT, READY, Message, WallClock
from tests.simulation.node import ALONE, LOG_TABLES, QUEUES, Node, Surroundings, look
from tests.simulation.stream_clients import StreamClients
from tests.simulation.streams import StreamAccount
from tests.simulation.transacting import Exchange
from tests.support.faults import JournalFaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.messaging.address import Address
    from tests.simulation.scenario import AddressPlan, Scenario

__all__ = ["BrokenPromiseError", "World"]

MAX_LINKS = 3
"""Senders, and receivers, of one address at a time."""

MARGIN = 2
"""Batches by which a log may fall behind because others that share its fate are on their way."""


class BrokenPromiseError(AssertionError):
    """Something that must hold does not."""


class World:
    """What one scenario plays in.

    Args:
        scenario: the play.
        surroundings: of its node.
    """

    def __init__(self, scenario: Scenario, surroundings: Surroundings = ALONE) -> None:
        self.scenario = scenario
        self.surroundings = surroundings
        self.neighbour: World | None = None
        """That of another node, by which clients come to this one, and the other way round."""
        self.answers: list[Callable[[], None]] = []
        """What is on its way to clients by the other node."""
        self.random = Random(scenario.seed ^ 0x5EED)
        self.problems: list[str] = []
        self.events: list[str] | None = None
        """What happens, in words, if somebody wants to know."""
        self.clock = WallClock()
        self.plans = {plan.name: plan for plan in scenario.addresses}
        self.accounts: dict[str, Account] = {}
        self.streams: dict[str, StreamAccount] = {}
        self.senders: dict[str, list[Sender]] = {}
        self.receivers: dict[str, list[Receiver]] = {}
        self.stream_clients: dict[str, StreamClients] = {}
        self.exchanges: list[Exchange] = []
        """Transactions that are not decided."""
        self.numbers = 0
        self.names: dict[int, str | None] = {}
        """By its number, the name below a topic that a message was sent to."""
        self.labels = 0
        self.lives = 0
        """Nodes that died."""
        self.faults = JournalFaults(self.random, scenario.rates)
        self.storage = SimulatedStorage()
        self.node = Node(surroundings, self.storage, 0.0, self.clock, self.problems.append, scenario.window)
        self.storage.listener = self
        self._declare()

    def _declare(self) -> None:
        self.node.create_spaces()
        for plan in self.scenario.addresses:
            self.node.create_address(plan.name, plan.attributes)
            if plan.kind in QUEUES:
                self._open_account(plan)
            elif plan.kind == "stream":
                stream = StreamAccount(plan.name, plan.option("partitions", 1), self.problems.append)
                stream.keep_s = plan.option("retentionMs", 0) / 1000
                stream.can_delete = bool(stream.keep_s or plan.option("retentionBytes", 0))
                self.streams[plan.name] = stream
        for name, account in self.accounts.items():
            plan = self.plans[name]
            account.dead_letter = self.accounts.get(plan.option("deadletter", ""))
            account.expiry = self.accounts.get(plan.option("expiry", ""))
            for target in (account.dead_letter, account.expiry):
                if target is not None:
                    target.is_target = True
                    target.sources.append(account)
        self._open_links()
        self.check()

    def _open_account(self, plan: AddressPlan) -> None:
        account = self.accounts[plan.name] = Account(plan.name, plan.attributes, self.problems.append, self.clock)
        account.is_shared = plan.kind == "subscription"
        account.has_small_window = account.is_paged = bool(self.scenario.window)
        account.is_cut = self.scenario.cuts_turns

    def _open_links(self) -> None:
        self.senders = {name: [] for name, plan in self.plans.items() if plan.kind in {"queue", "topic"}}
        self.receivers = {name: [] for name, plan in self.plans.items() if plan.kind != "stream"}
        for name, account in self.accounts.items():
            account.receivers = self.receivers[name]
        for name, stream in self.streams.items():
            clients = self.stream_clients.get(name)
            if clients is None:
                clients = self.stream_clients[name] = StreamClients(self, name, stream)
            clients.open()
        self.node.turn()

    def note(self, text: str, *details: Any) -> None:
        """Keep what happened, for whoever plays it again; ``details`` fill the text's braces."""
        if self.events is not None:
            self.events.append(f"{self.now:8.3f} {text.format(*details)}")

    @property
    def now(self) -> float:
        """The clock in seconds."""
        return self.node.now

    def chance(self, probability: float) -> bool:
        """Whether something happens that is so likely."""
        return self.random.random() < probability

    def next_label(self) -> int:
        """What to call one more receiver or transaction in what is noted."""
        self.labels += 1
        return self.labels

    def next_number(self) -> int:
        """A number for one more message."""
        self.numbers += 1
        return self.numbers

    # Other nodes

    def meet(self, neighbour: World) -> None:
        """Let clients come by another node from now on."""
        self.neighbour = neighbour
        for clients in self.stream_clients.values():
            clients.is_by_front = self.comes_by_front()

    def comes_by_front(self) -> bool:
        """Whether a client happens to come by the other node."""
        if self.neighbour is None or not self.chance(0.5):
            return False
        if not self.node.takes_from(self.neighbour.node):
            self.problems.append("a client that comes by the other node is not let in")
        return True

    def answer(self, heard: Callable[[], None], *, is_by_front: bool) -> None:
        """Let a client hear something: at once, or once the other node has passed it on."""
        if is_by_front:
            self.answers.append(heard)
        else:
            heard()

    def pass_on(self, count: int | None = None) -> None:
        """The other node passes on what it has for clients, or some of it."""
        passed, self.answers = self.answers[:count], [] if count is None else self.answers[count:]
        for heard in passed:
            heard()

    def lose_front(self) -> None:
        """The other node dies: who came by it is gone, and what was on its way to them."""
        self.note("the other node dies")
        self.pass_on(self.random.randint(0, len(self.answers)))
        self.answers.clear()
        if is_late := self.chance(0.5):
            self._lose_transactions()
        for receivers in self.receivers.values():
            for receiver in [receiver for receiver in receivers if receiver.is_by_front]:
                receivers.remove(receiver)
                receiver.leave()
        for senders in self.senders.values():
            for sender in [sender for sender in senders if sender.is_by_front]:
                senders.remove(sender)
                sender.abandon()
                sender.leave()
        if not is_late:
            self._lose_transactions()
        for clients in self.stream_clients.values():
            clients.lose_front()
        self.after_step()

    def _lose_transactions(self) -> None:
        for exchange in self.exchanges:
            if exchange.is_by_front and exchange.is_open:
                exchange.rollback()

    # Links

    def attach_sender(self, plan: AddressPlan) -> Sender:
        """One more sender of an address."""
        sender = Sender(lambda message, state: self.told(plan, message, state))
        sender.is_by_front = self.comes_by_front()
        address = self.node.find(plan.name)
        sender.target = self.target_of(plan, len(self.senders[plan.name]))
        sender.sink = address.attach_producer(sender, sender.target, AttachOptions())
        self.senders[plan.name].append(sender)
        self.node.turn()
        return sender

    @staticmethod
    def target_of(plan: AddressPlan, number: int) -> str:
        """Where a sender sends: every second one on a topic to a name below it."""
        return f"{plan.name}/{number}" if plan.kind == "topic" and number % 2 else plan.name

    def name(self, plan: AddressPlan, message: Message, target: str) -> dict[str, str]:
        """Note which name a message for a topic is sent to; returns the false one that its sender claims."""
        if plan.kind != "topic":
            return {}
        self.names[message.number] = None if target == plan.name else target
        return {NAME: f"{plan.name}/false"}

    def attach_receiver(
        self, plan: AddressPlan, *, credit: int, presettle: bool = False, colour: str | None = None
    ) -> Receiver | None:
        """One more receiver of an address, if it takes one; on a topic, a subscriber of its own."""
        account = self.accounts.get(plan.name)
        if account is None:
            account = Account(f"{plan.name} (volatile)", {"storage": "memory"}, self.problems.append, self.clock)
            account.is_cut = self.scenario.cuts_turns
            account.is_shared = True
        receiver = Receiver(self, account, presettle=presettle, colour=colour)
        receiver.is_by_front = self.comes_by_front()
        source = f"{plan.name}/#" if plan.kind == "topic" else plan.name
        options = AttachOptions(presettle=presettle, source=source, filters=receiver.filters)
        most = plan.option("maxConsumers", 0)
        receivers = self.receivers[plan.name]
        try:
            receiver.sink = self.node.find(plan.name).attach_consumer(receiver, options)
        except AttachError:
            if not most or len(receivers) < most:
                raise
            return None
        if most and len(receivers) >= most:
            account.problem(f"it took one receiver more than {most}")
        account.is_mixed = account.is_mixed or colour is not None
        receivers.append(receiver)
        account.is_read = True
        if plan.name not in self.accounts:
            account.receivers = [receiver]
        receiver.grant(credit)
        return receiver

    def fed_by(self, plan: AddressPlan) -> list[Account]:
        """The accounts that get what is sent to an address."""
        if plan.kind == "queue":
            return [self.accounts[plan.name]] if plan.name in self.accounts else []
        stored = [
            self.accounts[other.name]
            for other in self.scenario.addresses
            if other.option("topic", "") == plan.name and other.name in self.accounts
        ]
        return stored + [receiver.account for receiver in self.receivers[plan.name]]

    # What clients hear and do

    def told(self, plan: AddressPlan, message: Message, state: Any) -> None:
        """A sender heard an outcome."""
        self.note("{}: sender of {} hears {}", plan.name, message.number, state)
        if state is ACCEPTED:
            message.accepted = True
            message.accepted_at = self.now
            for account in self.fed_by(plan):
                account.stored(message.number)
            return
        message.refused = True
        for account in self.fed_by(plan):
            account.refused(message.number, self.now)

    # The journal, and time

    def journal(self) -> None:
        """One thing happens to the journal."""
        storage = self.storage
        self.faults.step(storage)
        if storage.is_refusing:
            self.batch_failed()
        state = "lives" if storage.is_alive else "is dead"
        if self.events is not None:
            self.note(
                "journal {}: open {}, unanswered {}, {} reads", state, storage.open, storage.unanswered, storage.reads
            )

    def set_clock(self, shift: float) -> None:
        """The wall clock is set; only what asks for a time of day is to notice it."""
        self.note("the wall clock is set by {} s", shift)
        self.clock.set(self.now, shift)
        for account in self.all_accounts():
            account.clock_set(self.now)
        self.node.look_at_clock()

    def after_step(self) -> None:
        """Do what the node does at the end of its turn, and compare."""
        if self.storage.is_refusing:
            self.batch_failed()
        self.node.turn()
        for exchange in self.exchanges:
            self.problems += exchange.early
        self.exchanges = [exchange for exchange in self.exchanges if not exchange.is_decided]
        if self.node.core.is_idle and self.storage.is_idle:
            for account in self.all_accounts():
                account.forget_gone()
        self.check()

    def on_committed(self, number: int) -> None:
        """Every batch up to a number is on disk."""
        self.node.core.on_committed(number)

    def on_failed(self, number: int, reason: str) -> None:
        """A batch was not written: the accounts know it before anybody acts on it."""
        self.batch_failed()
        self.node.core.on_failed(number, reason)

    def batch_failed(self) -> None:
        """A batch has failed, or is about to."""
        for account in self.all_accounts():
            account.batch_failed()

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
        for clients in self.stream_clients.values():
            clients.observe()
        if self.node.core.fan_out.is_busy:
            # What waits for its turns is nobody's yet.
            return
        for name, account in self.accounts.items():
            counts = self.node.find(name).counts()
            check_depth(account, counts["messagesStored"], counts["bytesStored"], self.now)

    def calm(self) -> None:
        """Have everything done; then all counts are exact, and nobody waits for an answer without reason."""
        for receivers in self.receivers.values():
            for receiver in receivers:
                if receiver.is_blocked:
                    receiver.is_blocked = False
                    receiver.block(False)
        for _ in range(3):
            # Messages on their way to another address try again after a second.
            self.node.settle()
            self.node.advance(1.1)
            self.after_step()
        self.node.settle()
        self.pass_on()
        self.after_step()
        for account in self.all_accounts():
            account.settle_leaving(self.now)
        if any(not exchange.is_open for exchange in self.exchanges):
            self.problems.append("nobody decides a transaction")
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
            clients.calmed()
        self.check()

    def redeclare(self, plan: AddressPlan) -> None:
        """Delete an address with all that it holds, and declare it anew; the journal is idle before."""
        self.note("{} is deleted", plan.name)
        for exchange in self.exchanges:
            if exchange.is_open:
                exchange.rollback()
        self.exchanges.clear()
        for sender in self.senders.get(plan.name, []):
            sender.abandon()
        del self.accounts[plan.name]
        for links in (self.senders.get(plan.name, []), self.receivers[plan.name]):
            links.clear()
        if not self.storage.is_alive:
            self.storage.revive()
        self.storage.is_refusing = False
        told = self.node.delete_address(plan.name)
        while not told:
            self.node.turn()
            self.storage.commit()
            self.storage.answer()
        assert told == [None], told
        # What it stored is deleted step by step, and by the next node if this one dies in between.
        self.look()
        self.node.settle()
        self.node.create_address(plan.name, plan.attributes)
        self._open_account(plan)
        self.accounts[plan.name].receivers = self.receivers[plan.name]
        self.accounts[plan.name].is_paged = bool(self.scenario.window or self.lives)
        self.note("{} is declared anew", plan.name)
        self.check()

    def look(self) -> None:
        """See what a node would find that starts over what is on the disk now."""
        self._look(self.storage.copy())
        self.check()

    def _look(self, storage: SimulatedStorage) -> dict[str, dict[int, int]]:
        scenario = self.scenario
        targets = {name for name, account in self.accounts.items() if account.is_target}
        findings = look(
            self.surroundings,
            storage,
            self.now,
            self.clock,
            scenario.patience,
            scenario.window,
            targets,
            self.problems.append,
        )
        found = {name: dict(messages) for name, messages in findings.messages.items()}
        for name, messages in findings.messages.items():
            account = self.accounts[name]
            if len(found[name]) < len(messages) and not account.is_target:
                account.problem(f"after a restart it holds messages twice: {messages}")
            check_found(account, found, self.now, self.is_written)
            check_found_order(account, [number for number, _ in messages])
        rows_of = {name: {number for part in rows for _, number in part} for name, rows in findings.rows.items()}
        for exchange in self.exchanges:
            exchange.check_found(found, rows_of)
        for name, rows in findings.rows.items():
            self.streams[name].check_found(rows, findings.marks[name])
        return found

    def crash(self) -> None:
        """Node and journal die, and another node starts over what is left."""
        self.note("crash")
        self.lives += 1
        # The other node has passed on what it was sent, or not.
        self.pass_on(self.random.randint(0, len(self.answers)) if self.answers else 0)
        self.answers.clear()
        left = self.faults.crash(self.storage)
        written = self.storage.written_through
        self.storage = left.copy()
        # What is compared was asked for in the numbers of the life before.
        self.storage.written_through = written
        found = self._look(left)
        self.check()
        for senders in self.senders.values():
            for sender in senders:
                sender.abandon()
        self.exchanges.clear()
        for stream in self.streams.values():
            stream.restarted()
        adopt(self.accounts, found, self.now, self.is_written)
        self.storage.written_through = 0
        now = self.now + self.random.choice([0.0, 1.0])
        self.node = Node(self.surroundings, self.storage, now, self.clock, self.problems.append, self.scenario.window)
        self.storage.listener = self
        self.node.load()
        self._open_links()
        self.check_depths()
        self.check()
        if self.neighbour is not None:
            self.neighbour.lose_front()

    def finish(self) -> None:
        """Take all that is left; then nothing is left in memory or on the disk."""
        for exchange in self.exchanges:
            if exchange.is_open:
                exchange.rollback()
        for receivers in self.receivers.values():
            for receiver in receivers:
                receiver.leave()
            receivers.clear()
        self.calm()
        if any(copy.life for account in self.accounts.values() for copy in account.copies.values()):
            self.node.advance(SWEEP_S + 1)
            self.calm()
        for clients in self.stream_clients.values():
            clients.finish()
        for _ in range(2):
            self._take_all()
        self.calm()
        for account in self.accounts.values():
            for copy in account.copies.values():
                if not copy.is_doubtful:
                    account.problem(f"message {copy.message.number} was never delivered, it is {copy.state}")
                elif copy.is_spent and copy.state == READY and account.dead_letter is not None and not copy.life:
                    account.problem(f"message {copy.message.number} had its last attempt and is no dead letter")
        self._check_empty()
        self.check()

    def _take_all(self) -> None:
        """One receiver at each address takes all there is."""
        last = [self.attach_receiver(self.plans[name], credit=1_000_000) for name in self.accounts]
        self.node.settle()
        if self.scenario.patience:
            self.node.advance(self.scenario.patience)
            self.node.settle()
        for receiver in last:
            assert receiver is not None
            while receiver.unsettled:
                receiver.finish(0, ACCEPTED)
        self.calm()
        for receiver in last:
            assert receiver is not None
            receiver.leave()
            receiver.account.receivers.clear()

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
