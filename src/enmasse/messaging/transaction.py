"""Transactions: messages and settlements on stored addresses that take effect together or not at all.

Replies to dynamic addresses may be part of one, too: they are handed out once the rest is on disk.

Rules:
1. Until its commit nothing of a transaction leaves it: its messages are held here, the deliveries that it
   settles stay with their receivers.
2. A commit enlists everything in one go and has the logs concerned cut into one batch, whose fate is the
   transaction's.
3. Acceptance is part of that batch. The other outcomes take nothing away for good, so the addresses are
   told of them once the batch is on disk: after a crash in between, such a message comes again.
4. What went wrong leaves a transaction good for a rollback only, and its end tells the reason.
5. An address that is deleted during the commit takes its part of the transaction with it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from enmasse.messaging.delivery import ACCEPTED, Producer
from enmasse.messaging.facts import facts_of
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.performatives import AmqpError
from enmasse.wire.amqp.sections import check_order
from enmasse.wire.amqp.transactions import ROLLBACK, TIMEOUT

if TYPE_CHECKING:
    from enmasse.messaging.core import Core, Log
    from enmasse.messaging.storage import Operation

__all__ = ["Account", "Done", "Fate", "GivesMessages", "Retirement", "TakesMessages", "Transaction", "sender_of"]

MESSAGE_OVERHEAD_BYTES = 200
"""What a held message costs beside its payload, so that many small ones count for what they take."""

Done = Callable[[str | None], None]
"""Hears the fate of one part: nothing, or why the part was not written and counts for nothing."""


class Party(Protocol):
    """An address that can take part in a transaction."""

    kind: str
    name: str
    is_closed: bool
    """Whether it is deleted."""


@runtime_checkable
class TakesMessages(Party, Protocol):
    """An address to which messages can be sent within a transaction: a stored one, or one for replies."""

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more could be stored now."""

    def enlist_message(self, payload: bytes, target: str, done: Done) -> Log:
        """Have a message written with the next batch of the log returned, and be invisible until then.

        Args:
            payload: the message.
            target: the address as its sender named it.
            done: called once; with a reason, the message is gone.
        """


@runtime_checkable
class GivesMessages(Party, Protocol):
    """An address whose deliveries can be settled within a transaction."""

    def enlist_settlement(self, entry: Any, done: Done) -> Log | None:
        """Have a delivery that a receiver has accepted removed with the next batch of the log returned.

        Args:
            entry: what the receiver was sent; ``entry.sink`` is the receiver's end.
            done: called once; with a reason, the entry is as before. Otherwise the address has counted
                it as accepted.

        Returns:
            ``None`` where nothing is to be written. Then nothing has been done, ``done`` is not called, and
            the outcome is told in the ordinary way once the rest is on disk.
        """


class Retirement(Protocol):
    """A delivery whose outcome waits for the end of a transaction."""

    delivery: Any
    """What the receiver was sent; its ``sink`` is the receiver's end."""
    outcome: Any

    def committed(self) -> None:
        """The outcome has taken effect."""

    def rolled_back(self) -> None:
        """The outcome counts for nothing: the delivery is its receiver's again."""


class Account:
    """What all transactions of a node may hold together.

    Args:
        max_bytes: held messages with their overhead.
    """

    __slots__ = ("held_bytes", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0


class Fate:
    """A log that writes nothing and hears what becomes of the batch that it is part of.

    Args:
        name: what to call it in a report.
        done: called once.
    """

    __slots__ = ("_done", "name")

    def __init__(self, name: str, done: Done) -> None:
        self.name = name
        self._done = done

    def cut(self, wall_us: int) -> tuple[list[Operation], Any]:
        """Nothing is written, something hangs on it."""
        return [], self._done

    def committed(self, token: Done) -> None:
        """What else the batch holds is on disk."""
        token(None)

    def failed(self, token: Done, reason: str) -> None:
        """What else the batch holds was not written and never will be."""
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
    """What an address takes for the sender of a message that a transaction brings."""

    __slots__ = ("_done",)

    def __init__(self, done: Done) -> None:
        self._done = done

    def settle(self, _delivery_id: int, state: Any) -> None:
        """The message is stored, or never will be."""
        self._done(None if state is ACCEPTED else "a message could not be written")


def sender_of(done: Done) -> Producer:
    """A stand-in for a sender: ``done`` hears what the sender would be told."""
    return cast("Producer", _Sender(done))


class _Phase(Enum):
    OPEN = auto()
    COMMITTING = auto()
    ENDED = auto()


class Transaction:
    """One transaction from its declaration to its end.

    Args:
        core: whose batches it is written with.
        account: what it may hold together with the others.
        max_bytes: what it may hold by itself.
    """

    __slots__ = ("_account", "_core", "_done", "_phase", "_posts", "_retired", "_sizes", "_told",
                 "held_bytes", "max_bytes", "problem")  # fmt: skip

    def __init__(self, core: Core, account: Account, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self.problem: AmqpError | None = None
        """Why it can only be rolled back."""
        self._core = core
        self._account = account
        self._phase = _Phase.OPEN
        self._posts: list[tuple[TakesMessages, str, bytes]] = []
        self._sizes: dict[TakesMessages, int] = {}
        """Bytes for each address, with their overhead."""
        self._retired: dict[Retirement, None] = {}
        self._told: list[Retirement] = []
        """Those whose outcome is told in the ordinary way."""
        self._done: Callable[[AmqpError | None], None] = _nobody

    @property
    def is_open(self) -> bool:
        """Whether it is neither ended nor being committed."""
        return self._phase is _Phase.OPEN

    # What belongs to it

    def post(self, address: Any, target: str, payload: bytes) -> AmqpError | None:
        """Have a message sent to an address with the commit.

        Returns:
            Why that cannot be, which leaves the transaction good for a rollback only.
        """
        problem = self.problem or self._check(address, payload)
        if problem is not None:
            self.fail(problem)
            return problem
        size = len(payload) + MESSAGE_OVERHEAD_BYTES
        self.held_bytes += size
        self._account.held_bytes += size
        self._sizes[address] = self._sizes.get(address, 0) + size
        self._posts.append((address, target, payload))
        return None

    def _check(self, address: Any, payload: bytes) -> AmqpError | None:
        if address not in self._sizes and not isinstance(address, TakesMessages):
            return not_stored(address)
        try:
            facts_of(payload)
            check_order(payload)
        except DecodeError as error:
            return AmqpError("amqp:decode-error", str(error))
        size = len(payload) + MESSAGE_OVERHEAD_BYTES
        if self.held_bytes + size > self.max_bytes:
            return AmqpError(
                "amqp:resource-limit-exceeded", f"a transaction holds messages of up to {self.max_bytes} bytes"
            )
        if self._account.held_bytes + size > self._account.max_bytes:
            return AmqpError(
                "amqp:resource-limit-exceeded",
                f"the transactions of this node hold messages of up to {self._account.max_bytes} bytes",
            )
        # While the journal is behind nothing has room; what its sender had credit for is held here till then.
        if not self._core.is_pressed and not address.has_room(self._sizes.get(address, 0) + len(payload)):
            return full(address)
        return None

    def retire(self, item: Retirement) -> AmqpError | None:
        """Have a delivery's outcome take effect with the commit.

        Returns:
            Why that cannot be, which leaves the transaction good for a rollback only.
        """
        address = item.delivery.sink.address
        if isinstance(address, GivesMessages):
            self._retired[item] = None
            return None
        problem = not_stored(address)
        self.fail(problem)
        return problem

    def forget(self, item: Retirement) -> None:
        """A delivery's outcome does not wait for this transaction any more."""
        self._retired.pop(item, None)

    def fail(self, problem: AmqpError) -> None:
        """Leave it good for a rollback only, for the first reason that was given."""
        if self.problem is None:
            is_told = problem.condition in (ROLLBACK, TIMEOUT)
            text = f"{problem.condition}: {problem.description}"
            self.problem = problem if is_told else AmqpError(ROLLBACK, text)

    # Its end

    def rollback(self) -> None:
        """Let go of the messages and give the deliveries back to their receivers; once only."""
        if self._phase is _Phase.OPEN:
            self._undo()

    def _undo(self) -> None:
        self._phase = _Phase.ENDED
        self._let_go()
        retired, self._retired = self._retired, {}
        for item in retired:
            item.rolled_back()

    def _let_go(self) -> None:
        self._account.held_bytes -= self.held_bytes
        self.held_bytes = 0
        self._posts = []
        self._sizes = {}

    def commit(self, done: Callable[[AmqpError | None], None]) -> None:
        """Have everything take effect, or nothing.

        Args:
            done: called with nothing once it is on disk, or with the reason why all was rolled back.
        """
        for address, size in self._sizes.items():
            if address.is_closed:
                self.fail(AmqpError("amqp:resource-deleted", f"address {address.name!r} was deleted"))
            elif address.kind == "anycast" and not address.has_room(size):
                # Stored addresses take what they had room for; replies wait in memory, which others may have used.
                self.fail(full(address))
        if self.problem is not None:
            self._undo()
            done(self.problem)
            return
        self._phase = _Phase.COMMITTING
        self._done = done
        logs: dict[Log, None] = {}
        try:
            for address, target, payload in self._posts:
                logs[address.enlist_message(payload, target, self._hear(address))] = None
            for item in self._retired:
                log = self._enlist(item)
                if log is not None:
                    logs[log] = None
        except Exception as error:  # noqa: BLE001  what was enlisted before must not be written without the rest
            logs[_Veto("a transaction", error)] = None
        self._let_go()
        if logs:
            # Heard last, so that everything else has been told by then.
            self._core.write_together([*logs, Fate("a transaction", self._end)])
        else:
            self._end(None)

    def _enlist(self, item: Retirement) -> Log | None:
        delivery = item.delivery
        address = delivery.sink.address
        if address.is_closed:
            return None
        if item.outcome is ACCEPTED:
            log: Log | None = address.enlist_settlement(delivery, self._hear(address))
            if log is not None:
                return log
        self._told.append(item)
        return None

    def _hear(self, address: Party) -> Done:
        def done(reason: str | None) -> None:
            if reason is not None and not address.is_closed:
                self.fail(AmqpError(ROLLBACK, f"{address.name!r}: {reason}"))

        return done

    def _end(self, reason: str | None) -> None:
        if reason is not None:
            # It knows best why the parts have failed.
            self.problem = AmqpError(ROLLBACK, reason)
        if self.problem is not None:
            self._undo()
        else:
            self._phase = _Phase.ENDED
            for item in self._told:
                if not item.delivery.sink.address.is_closed:
                    item.delivery.sink.on_outcome(item.delivery, item.outcome)
            for item in self._retired:
                item.committed()
            self._retired = {}
        self._done(self.problem)


def full(address: Party) -> AmqpError:
    """Why an address takes no more."""
    return AmqpError("amqp:resource-limit-exceeded", f"{address.name!r} is full")


def not_stored(address: Any) -> AmqpError:
    """Why an address cannot take part."""
    return AmqpError(
        "amqp:not-implemented",
        f"{address.kind} {address.name!r} stores nothing, so it cannot be part of a transaction",
    )


def _nobody(_problem: AmqpError | None) -> None:
    """Nobody waits for the end yet."""
