"""Transactions: messages and settlements on stored addresses that take effect together or not at all.

Replies to dynamic addresses may be part of one, too: they are handed out once the rest is on disk.

Rules:
1. Until its commit nothing of a transaction leaves it: its messages are held here, the deliveries that it
   settles stay with their receivers.
2. A commit enlists everything at once and has the logs concerned cut into one batch, whose outcome is the
   transaction's.
3. Acceptance is part of that batch. The other outcomes take nothing away for good, so the addresses are
   settled once the batch is on disk: after a crash in between, such a message comes again.
4. An error leaves a transaction good for a rollback only, and its end reports the reason.
5. An address that is deleted during the commit takes its part of the transaction with it.
6. A transaction is wholly here or wholly behind one connector. Then the other container has it: messages and outcomes
   go there at once, and so does its end. Where the way there is lost after its end was asked for, nobody knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast, runtime_checkable

from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED, IN_DOUBT, ROLLBACK, TIMEOUT, AmqpError
from enmasse.message.sections import check_order
from enmasse.messaging.budget import Budget, Holder
from enmasse.messaging.delivery import Producer
from enmasse.messaging.errors import AttachError
from enmasse.messaging.facts import facts_of
from enmasse.messaging.relay.relay import Relay
from enmasse.messaging.relay.senders import Posted, RelayProducer

if TYPE_CHECKING:
    from enmasse.messaging.core import Core, Log
    from enmasse.messaging.relay.uplink import TransactionThere
    from enmasse.messaging.storage import Operation


TRANSACTION_TIMEOUT_S = 60.0
"""Long for a program, short for a queue whose messages a program that hangs keeps from the others."""

MESSAGE_OVERHEAD_BYTES = 200
"""Bytes that a held message costs beside its payload, so that many small ones count for what they take."""

COPY_BYTES = 100
"""The same for each subscription of a topic that has a part in it: with 16 MiB some 160,000 in one batch."""

GRAIN_BYTES = 16 << 10
"""Transactions take their share in multiples of this: asking for each message would cost it more."""


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Limits of transactions at a node.

    Attributes:
        timeout_s: from a transaction's declaration to its discharge; 0 waits for ever.
        max_open: transactions of one connection that are not discharged.
        max_bytes: messages that one transaction holds, with their overhead.
        budget: the budget of all transactions of the node together.
    """

    timeout_s: float = TRANSACTION_TIMEOUT_S
    max_open: int = 100
    max_bytes: int = 16 << 20
    budget: Budget = field(default_factory=lambda: Budget(256 << 20, GRAIN_BYTES))


Done = Callable[[str | None], None]
"""Called with the outcome of one part: ``None``, or why the part was not written and counts for nothing."""


class Participant(Protocol):
    """An address that can take part in a transaction."""

    kind: str
    name: str
    is_closed: bool
    """True if it is deleted."""
    keeps_room: ClassVar[bool]
    """True if room that was found for a message is still there at the commit."""


@runtime_checkable
class TakesMessages(Participant, Protocol):
    """An address to which messages can be sent within a transaction: a stored one, or one for replies."""

    def has_room(self, size: int) -> bool:
        """Return whether so many bytes more could be stored now."""

    def annotate(self, payload: bytes, target: str) -> bytes:
        """Return the message with what the address itself writes into its annotations.

        Raises:
            DecodeError: the message's annotations cannot be read.
        """

    def copies(self, target: str) -> int:
        """Return for how many a message for a name is stored or handed out."""

    def why_not_retained(self, payload: bytes, target: str) -> AmqpError | None:
        """Return why a message cannot be the retained value of its name; most addresses retain nothing."""

    def enlist_message(self, payload: bytes, target: str, done: Done) -> Log:
        """Have a message written with the next batch of the log returned, and be invisible until then.

        Args:
            payload: the message, annotated.
            target: the address as its sender named it.
            done: called once; with a reason if the message is lost.
        """


@runtime_checkable
class GivesMessages(Participant, Protocol):
    """An address whose deliveries can be settled within a transaction."""

    def enlist_settlement(self, entry: Any, done: Done) -> Log | None:
        """Have a delivery that a receiver has accepted removed with the next batch of the log returned.

        Args:
            entry: the delivery as the receiver was sent it; ``entry.sink`` is the receiver's end.
            done: called once; with a reason, the entry is as before. Otherwise the address has counted
                it as accepted.

        Returns:
            ``None`` where nothing is to be written. Then nothing has been done, ``done`` is not called, and
            the outcome is reported in the ordinary way once the rest is on disk.
        """


class Retirement(Protocol):
    """A delivery whose outcome waits for the end of a transaction."""

    delivery: Any
    """The delivery that the receiver was sent; its ``sink`` is the receiver's end."""
    outcome: Any

    def committed(self) -> None:
        """Note that the outcome has taken effect."""

    def rolled_back(self) -> None:
        """Note that the outcome counts for nothing: the delivery is its receiver's again."""


class OutcomeLog:
    """A log that writes nothing and reports the outcome of the batch that it is part of.

    Args:
        name: the name of it in a report.
        done: called once.
    """

    __slots__ = ("_done", "name")

    def __init__(self, name: str, done: Done) -> None:
        self.name = name
        self._done = done

    def cut(self, wall_us: int) -> tuple[list[Operation], Any]:
        """Return no operations, and a token so that the outcome is reported."""
        return [], self._done

    def committed(self, token: Done) -> None:
        """Report that the rest of the batch is on disk."""
        token(None)

    def failed(self, token: Done, reason: str) -> None:
        """Report that the rest of the batch was not written and never will be."""
        token(reason)


class _Veto:
    """A log that cannot be written, and so has nothing written of what is written together with it."""

    __slots__ = ("_error", "name")

    def __init__(self, name: str, error: Exception) -> None:
        self.name = name
        self._error = error

    def cut(self, wall_us: int) -> tuple[list[Operation], Any]:
        """Have the batch do without the whole group."""
        raise self._error

    def committed(self, token: Any) -> None:
        """Never called."""

    def failed(self, token: Any, reason: str) -> None:
        """Never called."""


class _Sender:
    """The stand-in for the sender of a message that a transaction brings."""

    __slots__ = ("_done",)

    def __init__(self, done: Done) -> None:
        self._done = done

    def settle(self, _delivery_id: int, state: Any) -> None:
        """Report that the message is stored, or never will be."""
        self._done(None if state is ACCEPTED else "a message could not be written")


def sender_of(done: Done) -> Producer:
    """Return a stand-in for a sender: ``done`` is called with the outcome."""
    return cast("Producer", _Sender(done))


class _Phase(Enum):
    OPEN = auto()
    COMMITTING = auto()
    ENDED = auto()


class Transaction:
    """A transaction from its declaration to its end.

    Args:
        core: the core whose batches it is written with.
        budget: the budget of all transactions of a node: messages with their overhead.
        max_bytes: the most bytes that it may hold by itself.
        path: the names of its owners: space, user, address, connection.
        begin: declares a transaction of the container behind a connector, if that can be.
    """

    __slots__ = (
        "__weakref__",
        "_begin",
        "_core",
        "_done",
        "_phase",
        "_posts",
        "_relay",
        "_retired",
        "_room",
        "_settled_later",
        "_sizes",
        "_there",
        "held_bytes",
        "max_bytes",
        "problem",
    )  # fmt: skip

    def __init__(
        self,
        core: Core,
        budget: Budget,
        max_bytes: int,
        path: tuple[Hashable, ...] = (),
        begin: Callable[[Relay], TransactionThere] | None = None,
    ) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self.problem: AmqpError | None = None
        """The reason why it can only be rolled back."""
        self._begin = begin
        self._relay: Relay | None = None
        """The connector behind which all of it is."""
        self._there: TransactionThere | None = None
        self._core = core
        self._room = Holder(budget, path, self._give_up)
        self._phase = _Phase.OPEN
        self._posts: list[tuple[TakesMessages, str, bytes]] = []
        self._sizes: dict[TakesMessages, int] = {}
        """Bytes for each address, with their overhead."""
        self._retired: dict[Retirement, None] = {}
        self._settled_later: list[Retirement] = []
        """Deliveries whose outcome is reported in the ordinary way."""
        self._done: Callable[[AmqpError | None], None] = _ignore_end

    @property
    def is_open(self) -> bool:
        """True if it is neither ended nor being committed."""
        return self._phase is _Phase.OPEN

    # What belongs to it

    def post(self, address: Any, target: str, payload: bytes) -> AmqpError | None:
        """Have a message sent to an address with the commit.

        Returns:
            Why that cannot be, which leaves the transaction good for a rollback only.
        """
        problem = self.problem
        if problem is None and self._relay is not None:
            problem = _mixed(self._relay, address)
        if problem is None and address not in self._sizes and not isinstance(address, TakesMessages):
            problem = not_stored(address)
        if problem is None:
            try:
                facts = facts_of(payload)
                check_order(payload)
                payload = address.annotate(payload, target)
                if facts.retain:
                    problem = address.why_not_retained(payload, target)
                size = len(payload) + MESSAGE_OVERHEAD_BYTES + COPY_BYTES * (address.copies(target) - 1)
                problem = problem or self._check_room(address, payload, size)
            except DecodeError as error:
                problem = AmqpError("amqp:decode-error", str(error))
        if problem is not None:
            self.fail(problem)
            return problem
        self.held_bytes += size
        self._sizes[address] = self._sizes.get(address, 0) + size
        self._posts.append((address, target, payload))
        return None

    def post_there(
        self, end: RelayProducer, payload: bytes, settled: bool, tell: Callable[[Any], None] | None
    ) -> AmqpError | None:
        """Have a message sent behind a connector, at once, which counts with the commit.

        Args:
            end: the sender's end.
            payload: the message.
            settled: whether its sender has settled it.
            tell: called with its outcome, unless it is settled; None: the commit waits for that, and fails unless it
                is accepted.

        Returns:
            Why that cannot be, which leaves the transaction good for a rollback only.
        """
        problem = self._enter(end.address)
        if problem is None:
            assert self._there is not None
            problem = self._there.post(end, Posted(payload, settled, self._there, tell))
        if problem is not None:
            self.fail(problem)
        return problem

    def _enter(self, relay: Relay) -> AmqpError | None:
        """Have all of it behind a connector; returns why that cannot be."""
        if self.problem is not None:
            return self.problem
        other = self._relay or next(iter(self._sizes), None)
        if other is None and self._retired:
            other = next(iter(self._retired)).delivery.sink.address
        if other is not None and other is not relay:
            return _mixed(other, relay)
        if self._there is None:
            if self._begin is None:
                return not_stored(relay)
            try:
                self._there = self._begin(relay)
            except AttachError as error:
                return AmqpError(error.condition, error.description)
            self._relay = relay
        return None

    def _check_room(self, address: Any, payload: bytes, size: int) -> AmqpError | None:
        if self.held_bytes + size > self.max_bytes:
            text = f"a transaction holds messages of up to {self.max_bytes} bytes"
            if size >= len(payload) + MESSAGE_OVERHEAD_BYTES + COPY_BYTES:
                text += f", with {COPY_BYTES} for each subscription of a topic that one is for"
            return AmqpError("amqp:resource-limit-exceeded", text)
        # While the journal is behind nothing has room; what its sender had credit for is held here till then.
        if not self._core.is_pressed and not address.has_room(self._sizes.get(address, 0) + len(payload)):
            return full(address)
        if self.held_bytes + size > self._room.held and not self._room.resize(self.held_bytes + size):
            return AmqpError(
                "amqp:resource-limit-exceeded",
                "the transactions of this node hold as much as they may together, and others hold no more than "
                "these; discharge some first",
            )
        return None

    def _give_up(self) -> None:
        """Fail, as others who hold less need the room."""
        problem = "others, whose transactions hold less, need the room of this one: roll it back and try again"
        self.fail(AmqpError("amqp:resource-limit-exceeded", problem))
        self._release()

    def retire(self, item: Retirement, *, is_settled: bool = False) -> AmqpError | None:
        """Have a delivery's outcome take effect with the commit.

        Args:
            item: the delivery.
            is_settled: whether the receiver has settled it; else it stays the receiver's if all is rolled back.

        Returns:
            Why that cannot be, which leaves the transaction good for a rollback only.
        """
        address = item.delivery.sink.address
        problem: AmqpError | None = None
        if isinstance(address, Relay):
            problem = self._enter(address)
            if problem is None:
                assert self._there is not None
                problem = self._there.retire(item.delivery, item.outcome, is_settled)
        elif self._relay is not None:
            problem = _mixed(self._relay, address)
        elif not isinstance(address, GivesMessages):
            problem = not_stored(address)
        if problem is None:
            self._retired[item] = None
        else:
            self.fail(problem)
        return problem

    def forget(self, item: Retirement) -> None:
        """Forget a delivery whose outcome does not wait for this transaction any more."""
        self._retired.pop(item, None)
        if self._there is not None:
            self._there.forget(item.delivery)

    def fail(self, problem: AmqpError) -> None:
        """Leave it good for a rollback only, for the first reason that was given."""
        if self.problem is None:
            is_reason = problem.condition in (ROLLBACK, TIMEOUT)
            text = f"{problem.condition}: {problem.description}"
            self.problem = problem if is_reason else AmqpError(ROLLBACK, text)

    # Its end

    def rollback(self, done: Callable[[AmqpError | None], None] | None = None) -> None:
        """Drop the messages and give the deliveries back to their receivers; once only.

        Args:
            done: called once that has been done, behind a connector, too.
        """
        if self._phase is _Phase.OPEN:
            self._undo(done or _ignore_end)
        elif done is not None:
            done(None)

    def _undo(self, done: Callable[[AmqpError | None], None]) -> None:
        self._phase = _Phase.ENDED
        self._release()
        there, self._there = self._there, None

        def undone(_problem: AmqpError | None) -> None:
            retired, self._retired = self._retired, {}
            for item in retired:
                item.rolled_back()
            done(self.problem)

        if there is None:
            undone(None)
        else:
            there.end(True, undone)

    def _release(self) -> None:
        self._room.leave()
        self.held_bytes = 0
        self._posts = []
        self._sizes = {}

    def commit(self, done: Callable[[AmqpError | None], None]) -> None:
        """Have everything take effect, or nothing.

        Args:
            done: called with nothing once it is on disk, or with the reason why all was rolled back.
        """
        if self._there is not None and self.problem is None:
            self._phase = _Phase.COMMITTING
            self._done = done
            self._there.end(False, self._end_there)
            return
        for address, size in self._sizes.items():
            if address.is_closed:
                self.fail(AmqpError("amqp:resource-deleted", f"address {address.name!r} was deleted"))
            elif not address.keeps_room and not address.has_room(size):
                self.fail(full(address))
        if self.problem is not None:
            self._undo(done)
            return
        self._phase = _Phase.COMMITTING
        self._done = done
        logs: dict[Log, None] = {}
        try:
            for address, target, payload in self._posts:
                logs[address.enlist_message(payload, target, self._on_decided(address))] = None
            for item in self._retired:
                log = self._enlist(item)
                if log is not None:
                    logs[log] = None
        except Exception as error:  # noqa: BLE001  what was enlisted before must not be written without the rest
            logs[_Veto("a transaction", error)] = None
        self._release()
        if logs:
            # Called last, so that everything else has been reported by then.
            self._core.write_together([*logs, OutcomeLog("a transaction", self._end)])
        else:
            self._end(None)

    def _enlist(self, item: Retirement) -> Log | None:
        delivery = item.delivery
        address = delivery.sink.address
        if address.is_closed:
            return None
        if item.outcome is ACCEPTED:
            log: Log | None = address.enlist_settlement(delivery, self._on_decided(address))
            if log is not None:
                return log
        self._settled_later.append(item)
        return None

    def _on_decided(self, address: Participant) -> Done:
        def done(reason: str | None) -> None:
            if reason is not None and not address.is_closed:
                self.fail(AmqpError(ROLLBACK, f"{address.name!r}: {reason}"))

        return done

    def _end(self, reason: str | None) -> None:
        if reason is not None:
            # It knows best why the parts have failed.
            self.problem = AmqpError(ROLLBACK, reason)
        if self.problem is not None:
            self._undo(self._done)
            return
        self._phase = _Phase.ENDED
        for item in self._settled_later:
            if not item.delivery.sink.address.is_closed:
                item.delivery.sink.on_outcome(item.delivery, item.outcome)
        for item in self._retired:
            item.committed()
        self._retired = {}
        self._done(None)

    def _end_there(self, problem: AmqpError | None) -> None:
        self._there = None
        if problem is not None:
            assert self._relay is not None
            told = AmqpError(problem.condition, f"connector {self._relay.name!r}: {problem.description or ''}")
            if problem.condition == IN_DOUBT or problem.condition.startswith("amqp:transaction:"):
                self.problem = told
            else:
                self.fail(told)
            self._undo(self._done)
            return
        self._phase = _Phase.ENDED
        retired, self._retired = self._retired, {}
        for item in retired:
            item.delivery.sink.retired(item.delivery, item.outcome)
            item.committed()
        self._done(None)


def full(address: Participant) -> AmqpError:
    """Return why an address takes no more."""
    return AmqpError("amqp:resource-limit-exceeded", f"{address.name!r} is full")


def _mixed(one: Any, other: Any) -> AmqpError:
    """Return why two addresses cannot be in one transaction."""
    names = " and ".join(f"{address.kind} {address.name!r}" for address in (one, other))
    problem = f"a transaction is wholly here or wholly behind one connector, and so not with {names} together"
    return AmqpError("amqp:not-implemented", problem)


def not_stored(address: Any) -> AmqpError:
    """Return why an address cannot take part."""
    return AmqpError(
        "amqp:not-implemented",
        f"{address.kind} {address.name!r} stores nothing, so it cannot be part of a transaction",
    )


def _ignore_end(_problem: AmqpError | None) -> None:
    """Ignore the end: it is not awaited yet."""
