"""Links in memory: both ends of an address without a protocol, and a core to hang addresses on.

    harness = CoreHarness()
    address = Anycast(harness.core, "orders")
    receiver = harness.receiver(address, credit=10)
    sender = harness.sender(address)
    harness.turn()
    sender.send(b"...")
    receiver.accept()
    assert sender.outcomes == [(0, ACCEPTED)]

The ports keep the rules of AMQP links: no message without credit, and one that crossed a call-in on the
wire is offered as such.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from enmasse.errors import LocalError
from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.core import Core
from enmasse.testing.clock import ManualClock
from enmasse.testing.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.delivery import Consumer, Producer

__all__ = ["Arrival", "CoreHarness", "MemoryConsumerPort", "MemoryProducerPort"]

MAX_TURNS = 1_000
"""Turns that may follow from one another; more mean that something asks for ever."""

FIRST_WALL_US = 1_700_000_000_000_000


class MemoryProducerPort:
    """A sender's link in memory.

    Attributes:
        received: deliveries that came, from 0.
        limit: deliveries that may come in all.
        highest: the largest limit that was ever granted.
        unsettled: ids of the deliveries that await their outcome.
        outcomes: (delivery id, state) in the order given.
        grants: every credit that was set, in order.
        error: the error with which the link was detached.
        on_raise: called after a grant that raised the credit; for checks of rules about grants.
    """

    def __init__(self) -> None:
        self.received = 0
        self.limit = 0
        self.highest = 0
        self.unsettled: set[int] = set()
        self.outcomes: list[tuple[int, Any]] = []
        self.grants: list[int] = []
        self.is_detached = False
        self.error: Any = None
        self.on_raise: Callable[[], None] | None = None
        self.sink: Producer
        self._next_id = 0

    # What the address calls

    def grant(self, credit: int) -> None:
        """Set the sender's credit."""
        if credit < 0:
            raise LocalError(f"a credit of {credit} was granted")
        before = self.limit
        self.limit = self.received + credit
        self.highest = max(self.highest, self.limit)
        self.grants.append(credit)
        if self.limit > before and self.on_raise is not None:
            self.on_raise()

    def settle(self, delivery_id: int, state: Any) -> None:
        """Keep an outcome.

        Raises:
            LocalError: it was settled before, or no such delivery was sent unsettled.
        """
        if delivery_id not in self.unsettled:
            raise LocalError(f"delivery {delivery_id} is settled twice, or was not sent unsettled")
        self.unsettled.discard(delivery_id)
        self.outcomes.append((delivery_id, state))

    def detach(self, error: Any = None) -> None:
        """Close the link from the address's side."""
        self.is_detached = True
        self.error = error
        self.limit = self.highest = self.received

    # What the test calls

    @property
    def credit(self) -> int:
        """Messages that may still be sent."""
        return self.limit - self.received

    @property
    def states(self) -> dict[int, Any]:
        """The outcomes, by delivery id."""
        return dict(self.outcomes)

    def send(self, payload: bytes = b"", *, settled: bool = False, message_format: int = 0) -> int:
        """Send one message and return its delivery id.

        With no credit left but some taken back since, the message crosses that on the wire.

        Raises:
            LocalError: there was never credit for it.
        """
        if self.received >= self.highest:
            raise LocalError(f"no credit: {self.received} were sent, {self.highest} granted")
        delivery_id = self._next_id
        self._next_id += 1
        if not settled:
            self.unsettled.add(delivery_id)
        self.received += 1
        if self.received <= self.limit:
            exhausted = self.received == self.limit
            self.sink.on_message(payload, delivery_id, settled, message_format)
            if exhausted:
                self.sink.on_exhausted()
        else:
            self.limit = self.received
            self.sink.on_crossed(payload, delivery_id, settled, message_format)
        return delivery_id

    def give_up(self) -> None:
        """Use up the credit without a message, as after a drain."""
        credit = self.credit
        self.received = self.limit
        self.sink.on_given_up(credit)

    def leave(self) -> None:
        """Detach from the sender's side."""
        self.limit = self.highest = self.received
        self.sink.on_detached()


class Arrival(NamedTuple):
    """One message as a receiver got it."""

    delivery: Any
    payload: bytes
    settled: bool
    message_format: int


class MemoryConsumerPort:
    """A receiver's link in memory.

    Attributes:
        credit: the messages that the receiver still takes.
        arrivals: the messages that came, in order.
        unsettled: the messages that came and have no outcome yet, oldest first.
        error: the error with which the link was detached.
    """

    def __init__(self) -> None:
        self.credit = 0
        self.arrivals: list[Arrival] = []
        self.unsettled: list[Arrival] = []
        self.is_detached = False
        self.error: Any = None
        self.sink: Consumer
        self._is_draining = False

    # What the address calls

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        """Take one message for one credit.

        Raises:
            LocalError: there is no credit, the link is detached, or the delivery's sink is another's.
        """
        if self.credit <= 0 or self.is_detached:
            raise LocalError("a message was sent without credit")
        self.credit -= 1
        arrival = Arrival(delivery, payload, settled, message_format)
        self.arrivals.append(arrival)
        if not settled:
            if delivery.sink is not self.sink and delivery.sink not in getattr(self.sink, "ends", {}).values():
                raise LocalError("a delivery whose outcome would go to another receiver's end")
            self.unsettled.append(arrival)

    def admits(self, _size: int) -> bool:
        """Return true: there is room for any message."""
        return True

    def follow(self, _delivery: Any) -> bool:
        """Return false: nothing is followed, as what is sent here has gone out."""
        return False

    def drained(self) -> None:
        """Use up the credit, if that was asked for."""
        if self._is_draining:
            self._is_draining = False
            self.credit = 0

    def take_from(self, sink: Any) -> list[Any]:
        """Remove and return what one of several ends has sent and has no outcome yet."""
        mine = [one.delivery for one in self.unsettled if one.delivery.sink is sink]
        self.unsettled = [one for one in self.unsettled if one.delivery.sink is not sink]
        return mine

    def take_unsettled(self) -> list[Any]:
        """Remove and return what has no outcome yet."""
        taken = [arrival.delivery for arrival in self.unsettled]
        self.unsettled = []
        return taken

    def detach(self, error: Any = None) -> None:
        """Close the link from the address's side."""
        self.is_detached = True
        self.error = error

    # What the test calls

    @property
    def payloads(self) -> list[bytes]:
        """The payloads that came, in order."""
        return [arrival.payload for arrival in self.arrivals]

    def grant(self, credit: int) -> None:
        """Set the credit; less than before takes some back."""
        gained = credit - self.credit
        self.credit = credit
        self.sink.on_credit(gained, False)

    def drain(self, credit: int | None = None) -> None:
        """Ask for what there is at once, up to ``credit`` (the present one) messages."""
        gained = 0 if credit is None else credit - self.credit
        self.credit += gained
        self._is_draining = True
        self.sink.on_credit(gained, True)

    def block(self, blocked: bool = True) -> None:
        """Say that the connection takes no more for now, or again."""
        self.sink.on_blocked(blocked)

    def settle(self, state: Any, count: int = 1, at: int = 0) -> None:
        """Settle ``count`` deliveries from the oldest unsettled one but ``at`` on."""
        settled = self.unsettled[at : at + count]
        if len(settled) < count:
            raise LocalError(f"{len(settled)} deliveries are unsettled there, not {count}")
        del self.unsettled[at : at + count]
        for arrival in settled:
            self.sink.on_outcome(arrival.delivery, state)

    def accept(self, count: int = 1) -> None:
        """Accept the oldest unsettled deliveries."""
        self.settle(ACCEPTED, count)

    def release(self, count: int = 1) -> None:
        """Release the oldest unsettled deliveries."""
        self.settle(RELEASED, count)

    def leave(self) -> None:
        """Detach from the receiver's side."""
        self.is_detached = True
        self.sink.on_detached()


class CoreHarness:
    """A core with a storage in memory and a clock that the test moves.

    Args:
        storage: the storage of an earlier node; a new one without.
    """

    def __init__(self, storage: MemoryStorage | None = None) -> None:
        self.storage = storage or MemoryStorage()
        self.clock = ManualClock()
        self.wall_shift_s = 0.0
        """By how much the wall clock was set; it is noticed with the next turn."""
        self.faults: list[tuple[str, Exception]] = []
        """Names and errors of what failed."""
        self.turns_requested = 0
        self.core = Core(self.storage, self._request_turn, lambda name, error: self.faults.append((name, error)))
        self.storage.listener = self.core

    def _request_turn(self) -> None:
        self.turns_requested += 1

    def turn(self) -> None:
        """Run turns until none is asked for, and no read waits.

        Raises:
            LocalError: that does not end.
        """
        for _ in range(MAX_TURNS):
            while self.storage.answer_reads():
                # What was read may ask for more.
                pass
            if not self.step():
                return
        raise LocalError(f"turns are still asked for after {MAX_TURNS}")

    def step(self) -> bool:
        """Run one turn, if one is asked for; return whether it was."""
        if not self.turns_requested:
            return False
        self.turns_requested = 0
        wall_s = self.clock.now + self.wall_shift_s
        self.core.run_turn(self.clock.now, FIRST_WALL_US + int(wall_s * 1_000_000))
        return True

    def commit(self) -> None:
        """Run what is due, and commit whatever is to be stored."""
        self.turn()
        while self.storage.pending:
            self.storage.commit()
            self.turn()

    def fail(self) -> None:
        """Run what is due, and fail the oldest batch; what is submitted then waits."""
        self.turn()
        self.storage.fail()
        self.turn()

    def advance(self, seconds: float) -> None:
        """Let time pass, with every deadline and its turn on the way."""
        end = self.clock.now + seconds
        self.turn()
        while True:
            deadline = self.core.next_deadline()
            if deadline is None or deadline > end:
                break
            self.clock.advance(max(0.0, deadline - self.clock.now))
            self.core.handle_deadline(self.clock.now)
            self.turn()
        self.clock.advance(max(0.0, end - self.clock.now))

    def sender(self, address: Address, target: str | None = None, **options: Any) -> MemoryProducerPort:
        """Attach a sender; ``options`` are those of ``AttachOptions``."""
        port = MemoryProducerPort()
        name = address.name if target is None else target
        port.sink = address.attach_producer(port, name, AttachOptions(**options))
        return port

    def receiver(self, address: Address, credit: int = 0, **options: Any) -> MemoryConsumerPort:
        """Attach a receiver and let it grant credit; ``options`` are those of ``AttachOptions``."""
        port = MemoryConsumerPort()
        port.sink = address.attach_consumer(port, AttachOptions(**options))
        if credit:
            port.grant(credit)
        return port

    def restarted(self, through: int = 0) -> CoreHarness:
        """A core over what this one's storage holds after a crash.

        Args:
            through: the last waiting batch that still reached the disk; 0 for none.
        """
        return CoreHarness(self.storage.crash(through))
