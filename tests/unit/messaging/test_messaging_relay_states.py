"""Every state that a link through a connector can come to, in any order of what its three parties may do.

The parties are a client, the relay and another container; the ports between them keep the rules of AMQP links, and
let go beyond: what is on its way when credit is taken back, or a link is lost, may come at any later time. The states
are walked breadth first. In each, what was told is held against what each party knows; and from each all that was
begun has to come to its end once the parties do their part.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, Accepted, AmqpError, Rejected, Released
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.delivery import FAILED
from enmasse.messaging.direct.large import PATIENCE_S, LargeDelivery
from enmasse.messaging.limits import SpaceLimits, Usage
from enmasse.messaging.relay.receivers import RelayConsumer
from enmasse.messaging.relay.relay import Relay
from enmasse.messaging.relay.senders import IDLE_S, RelayGuest, RelayProducer
from enmasse.messaging.relay.uplink import OVERHEAD_BYTES, ControlThere
from enmasse.testing.ports import Arrival, CoreHarness, MemoryConsumerPort, MemoryProducerPort
from enmasse.wire.amqp.performatives import Attach
from tests.support.chance import is_long

Action = tuple[Any, ...]

GONE = AmqpError("x:gone", "the queue is deleted")
KEPT = 1 + OVERHEAD_BYTES
"""Bytes of a message that waits."""

NO_TIME = CoreHarness()
"""What all worlds share in which nothing waits for a time."""

REFUSED = Rejected(AmqpError("x:bad", "no"))


@dataclass(frozen=True)
class Bounds:
    """How far a world goes.

    Attributes:
        credit: the most credit of a link.
        messages: that are sent in all.
        losses: of the connection to the other container.
        undecided: messages of a sender that may be without an outcome.
        kept: messages that may wait.
        outcomes: that who receives a message may tell.
        large: whether messages are large, and go on while they come.
    """

    credit: int = 2
    messages: int = 2
    losses: int = 1
    undecided: int = 2
    kept: int = 2
    outcomes: tuple[Any, ...] = (ACCEPTED, REFUSED, None)
    large: bool = False


class World(Protocol):
    """One state, which actions change."""

    def actions(self) -> Iterator[Action]:
        """Yield what may happen next."""

    def do(self, action: Action) -> None:
        """Have it happen."""

    def state(self) -> Hashable:
        """Return all that what happens later may depend on."""

    def check(self) -> None:
        """Assert what holds in every state."""

    def finish(self) -> None:
        """Let each party do its part, and assert that nothing is left."""


def explore(make: Callable[[], World]) -> int:
    """Walk all states of a world breadth first; an error names the way there."""
    found: set[Hashable] = set()
    waiting: deque[tuple[Action, ...]] = deque([()])
    while waiting:
        way = waiting.popleft()
        world = make()
        try:
            for action in way:
                world.do(action)
            world.check()
            state = world.state()
            if state in found:
                continue
            found.add(state)
            waiting.extend((*way, action) for action in world.actions())
            world.finish()
        except Exception as error:
            error.add_note(f"on the way {' '.join(repr(action) for action in way)}")
            raise
    return len(found)


class Uplink:
    """The way to the other container; what it is asked for, tests answer."""

    def __init__(self) -> None:
        self.wanted: set[RelayProducer | RelayConsumer] = set()

    def attach_sender(self, end: RelayProducer, _name: str, _options: AttachOptions) -> None:
        assert end not in self.wanted
        self.wanted.add(end)

    def attach_receiver(self, end: RelayConsumer, _name: str, _options: AttachOptions) -> None:
        assert end not in self.wanted
        self.wanted.add(end)

    def attach_control(self, client: object) -> ControlThere:
        raise NotImplementedError(client)

    def detach(self, end: RelayProducer | RelayConsumer, *, closed: bool = True) -> None:
        self.wanted.discard(end)


def state_of(large: LargeDelivery) -> tuple[Any, ...]:
    """Return all of a large message that what happens to it may depend on."""
    return (
        large.producer_id, large.settled, large.is_complete, large.consumer is None, large.sink is None,
        repr(large._outcome), large._is_given_up, large._is_stalled, large.waiting_bytes,
    )  # fmt: skip


def relay(harness: CoreHarness, uplink: Uplink, bounds: Bounds) -> Relay:
    usage = Usage("shop")
    usage.limits = SpaceLimits(connector_unsettled=bounds.undecided, connector_bytes=bounds.kept * KEPT)
    return Relay(harness.core, "far", uplink, lambda _name: True, usage)


class Parts:
    """A large message on its way out of the relay.

    Args:
        link: the link that it goes out on, which has its unsettled messages by their names.
        name: the name of the message.
    """

    is_kept = False

    def __init__(self, link: There | ReceiverPort, name: str) -> None:
        self.link = link
        self.name = name
        self.is_over = False

    def write(self, part: bytes | memoryview) -> None:
        assert not self.is_over
        self.link.fill()

    def end(self, part: bytes | memoryview) -> None:
        assert not self.is_over
        self.is_over = True
        self.link.fill()

    def abort(self) -> None:
        """Give it up, which settles it."""
        if not self.is_over:
            self.is_over = True
            self.link.aborted(self.name)


# Senders


class There:
    """The link on which a sender's messages go on, and what the other container has of them."""

    def __init__(self, world: SenderWorld, *, is_shut: bool) -> None:
        self.world = world
        self.is_live = True
        self.credit = 0
        self.drain = False
        self.is_open = not is_shut
        self.holds_back = is_shut
        self.pending: list[tuple[str, bool]] = []
        self.followed: dict[str, Any] = {}
        self.unsettled: dict[str, Any] = {}

    # What the relay calls

    def send(self, delivery: Any, payload: bytes, settled: bool, _message_format: int = 0) -> None:
        name = payload.decode()
        assert self.is_live, f"{name} is sent on a link that is lost"
        assert self.credit > 0, f"{name} is sent without credit"
        assert name not in self.world.gone, f"{name} is sent twice"
        assert self.is_open or not self.holds_back, f"{name} is sent to who takes no more"
        self.credit -= 1
        self.world.gone.append(name)
        if not settled:
            self.unsettled[name] = delivery
        if self.is_open:
            self.world.written.add(name)
            return
        self.pending.append((name, settled))
        if not self.holds_back:
            self.holds_back = True
            self.world.end.on_blocked(True)

    def follow(self, delivery: Any) -> bool:
        if not self.pending:
            return False
        self.followed[self.pending[-1][0]] = delivery
        return True

    def drained(self) -> None:
        assert self.is_live
        self.drain = False
        self.credit = 0

    def take_unsettled(self) -> list[Any]:
        taken, self.unsettled = list(self.unsettled.values()), {}
        return taken

    def send_while_it_comes(self, delivery: Any, settled: bool, message_format: int = 0) -> Parts:
        name = str(delivery.producer_id)
        assert self.is_live
        assert self.credit > 0, f"{name} is sent without credit"
        assert name not in self.world.gone, f"{name} is sent twice"
        self.credit -= 1
        self.world.gone.append(name)
        self.world.written.add(name)
        if not settled:
            self.unsettled[name] = delivery
        return Parts(self, name)

    def fill(self) -> None:
        """Note that something more goes out, or is held back."""
        assert self.is_live, "a large message goes on on a link that is lost"
        if not (self.is_open or self.holds_back):
            self.holds_back = True
            self.world.end.on_blocked(True)

    def aborted(self, name: str) -> None:
        self.unsettled.pop(name, None)

    # What the other container does

    def let_out(self) -> None:
        """Open the window: what it held back goes out."""
        self.is_open = True
        pending, self.pending = self.pending, []
        for name, _ in pending:
            self.world.written.add(name)
            followed = self.followed.pop(name, None)
            if followed is not None:
                followed.sink.on_outcome(followed, ACCEPTED)
        if self.holds_back:
            self.holds_back = False
            self.world.end.on_blocked(False)

    def settle(self, name: str, state: Any) -> None:
        delivery = self.unsettled.pop(name)
        self.world.expected[name] = RELEASED if state is None else state
        delivery.sink.on_outcome(delivery, state)

    def lose(self) -> None:
        """Lose what was not written, and tell that of what was followed."""
        self.is_live = False
        for name, _ in self.pending:
            followed = self.followed.pop(name, None)
            if followed is not None:
                followed.sink.on_outcome(followed, RELEASED)


class SenderPort(MemoryProducerPort):
    """A sender's link, which knows what the outcome of each message has to be."""

    def __init__(self, world: SenderWorld) -> None:
        super().__init__()
        self.world = world
        self.stalls = 0

    def settle(self, delivery_id: int, state: Any) -> None:
        super().settle(delivery_id, state)  # asserts that it was not settled before
        name = str(delivery_id)
        world = self.world
        if name == world.late and state in (FAILED, RELEASED):
            pass  # nobody went on with it for too long
        elif name in world.expected:
            assert state == world.expected[name], f"{name} ended {state}, not {world.expected[name]}"
        elif name in world.written:
            assert state == FAILED, f"{name} was written, and ended {state}"
        elif name in world.gone or not isinstance(world.end, RelayGuest):
            assert state == RELEASED, f"{name} was not written, and ended {state}"
        else:
            # Nothing else tells who names the address in a message that its link is refused.
            assert state in (RELEASED, Rejected(GONE)), f"{name} waited, and ended {state}"

    def stall(self, is_stalled: bool) -> None:
        self.stalls += 1 if is_stalled else -1
        assert self.stalls in (0, 1)

    def hold_input(self, is_held: bool) -> None:
        raise AssertionError("nothing is that large")

    def begin(self, settled: bool) -> LargeDelivery:
        """Send the beginning of a large message."""
        number, self._next_id = self._next_id, self._next_id + 1
        if not settled:
            self.unsettled.add(number)
        is_crossed = self.received >= self.limit
        self.received += 1
        self.limit = max(self.limit, self.received)
        assert isinstance(self.sink, RelayProducer)
        large = self.sink.on_large(str(number).encode(), number, settled, 0, is_crossed)
        if not is_crossed and self.received == self.limit:
            self.sink.on_exhausted()
        return large


class SenderWorld:
    """A client that sends."""

    def __init__(self, bounds: Bounds, *, is_guest: bool = False) -> None:
        self.bounds = bounds
        self.is_guest = is_guest
        self.harness = CoreHarness() if is_guest or bounds.large else NO_TIME
        self.uplink = Uplink()
        self.relay = relay(self.harness, self.uplink, bounds)
        self.gone: list[str] = []
        """Messages that were given to a link there, in order."""
        self.written: set[str] = set()
        self.expected: dict[str, Any] = {}
        """What the other container has made of them."""
        self.sent: list[tuple[str, bool]] = []
        self.there: There | None = None
        self.losses = 0
        self.large: LargeDelivery | None = None
        """The large message that the client is sending."""
        self.late = ""
        self.port = SenderPort(self)
        end: Any
        if is_guest:
            end = self.relay.make_producer(self.port, "far/q")
        else:
            end = self.relay.attach_producer(self.port, "far/q", AttachOptions())
            end.opening.then(self._opened)
        self.end: RelayProducer = end
        self.port.sink = end
        self.is_here = True

    def _opened(self, error: Any) -> None:
        if error is not None:
            self._leave()

    def _leave(self) -> None:
        self.is_here = False
        self.port.leave()

    @property
    def is_asked(self) -> bool:
        return self.end in self.uplink.wanted and self.there is None

    @property
    def held(self) -> list[tuple[bytes, int, bool, int]]:
        """What waits in the relay."""
        return [item for item in self.end._held if isinstance(item, tuple)]

    def actions(self) -> Iterator[Action]:
        bounds, there = self.bounds, self.there
        if self.is_here:
            yield ("leave",)
            can_send = self.large is None and (self.is_guest or self.port.received < self.port.highest)
            if can_send and len(self.sent) < bounds.messages:
                yield "send", False
                yield "send", True
            if self.port.credit and self.large is None:
                yield ("give up",)
            if self.large is not None:
                yield ("end",)
                yield ("abort",)
                yield ("wait",)
        if self.is_guest and self.is_here:
            yield ("idle",)
        if self.is_asked:
            yield "answer", False
            yield "answer", True
            yield ("refuse",)
        if there is None:
            return
        yield ("refuse",)
        if self.losses < bounds.losses:
            yield ("lose",)
        yield ("open",) if there.holds_back or not there.is_open else ("shut",)
        if not there.holds_back:
            yield ("fill",)
        for credit in range(bounds.credit + 1):
            if credit != there.credit:
                yield "grant", credit, False
            if credit:
                yield "grant", credit, True
        for name in there.unsettled:
            if name in self.written:
                yield from (("settle", name, state) for state in bounds.outcomes)

    def do(self, action: Action) -> None:
        what, there = action[0], self.there
        if what == "leave":
            self._leave()
        elif what in {"end", "abort", "wait"}:
            large = self.large
            assert large is not None
            if what == "wait":
                self.late = str(large.producer_id)
                self.harness.advance(PATIENCE_S + 1)
                return
            self.large = None
            if what == "end":
                large.end(b"", large.settled)
            else:
                self.port.unsettled.discard(large.producer_id)
                large.abort()
        elif what == "send" and self.bounds.large:
            self.sent.append((str(len(self.sent)), action[1]))
            self.large = self.port.begin(action[1])
        elif what == "send":
            settled = action[1]
            name = str(len(self.sent))
            self.sent.append((name, settled))
            if self.is_guest:
                self.port.unsettled |= set() if settled else {int(name)}
                self.end.on_message(name.encode(), int(name), settled, 0)
            else:
                assert self.port.send(name.encode(), settled=settled) == int(name)
        elif what == "give up":
            self.port.give_up()
        elif what == "idle":
            self.harness.advance(IDLE_S + 1)
        elif what == "answer":
            self.there = There(self, is_shut=action[1])
            self.end.on_upstream(self.there)
            if self.there.holds_back:
                self.end.on_blocked(True)
        elif what in {"refuse", "lose"}:
            self.there = None
            if there is not None:
                there.lose()
            if what == "refuse":
                self.uplink.wanted.discard(self.end)
                self.end.on_refused_upstream(GONE)
            else:
                self.losses += 1
                self.end.on_lost()
        elif there is None:
            raise AssertionError(f"nothing is attached there: {action}")
        elif what == "open":
            there.let_out()
        elif what == "shut":
            there.is_open = False
        elif what == "fill":
            there.holds_back = True
            self.end.on_blocked(True)
        elif what == "grant":
            gained = action[1] - there.credit
            there.credit, there.drain = action[1], action[2]
            self.end.on_credit(gained, there.drain)
        else:
            there.settle(*action[1:])
        self._forget_detached()

    def _forget_detached(self) -> None:
        """Let go of the link there once the relay has detached it, or its own has been."""
        if self.port.is_detached and self.is_here:
            self.is_here = False
        if self.there is not None and self.end not in self.uplink.wanted:
            self.there.is_live = False
            self.there = None

    def state(self) -> Hashable:
        port, end, there = self.port, self.end, self.there
        return (
            self.is_here, self.is_asked, self.losses, len(self.sent), tuple(sorted(port.unsettled)),
            port.credit, port.highest - port.received, tuple(item[1:3] for item in self.held),
            end.unsettled, len(end.unwritten), end._is_blocked,
            end.opening.answer is None, self.large and (*state_of(self.large), self.port.stalls, self.late),
            *(state_of(item) for item in end._held if isinstance(item, LargeDelivery)),
            self.is_guest and (end._is_used, end._is_wanted),  # type: ignore[attr-defined]
            there and (there.credit, there.drain, there.is_open, there.holds_back, *there.pending, *there.unsettled),
        )  # fmt: skip

    def check(self) -> None:
        end, there, bounds = self.end, self.there, self.bounds
        assert not self.harness.faults
        assert self.gone == sorted(self.gone), "out of order"
        assert end._held_bytes == KEPT * len(self.held) <= KEPT * bounds.kept
        large = [item for item in end._held if isinstance(item, LargeDelivery)]
        assert self.relay.backlog_bytes == end._held_bytes + sum(item.waiting_bytes for item in large)
        assert self.port.stalls <= (self.large is not None)
        assert all(item.is_complete or item._is_stalled for item in large), "more of what waits is asked for"
        if not self.is_here:
            assert not end._held
            assert end not in self.uplink.wanted
            assert self.relay.producers == []
            return
        assert end.unsettled == (0 if there is None else len(there.unsettled))
        assert len(end.unwritten) <= end.unsettled
        undecided = {str(number) for number in self.port.unsettled}
        if self.large is not None:
            undecided.discard(str(self.large.producer_id))  # it has its outcome once all of it has come
        kept = {str(item[1]) for item in self.held} | {str(item.producer_id) for item in large}
        assert undecided <= kept | set(there.unsettled if there is not None else ())
        if self.is_guest:
            return
        if end._passing is not None:
            return  # the sender sends nothing else
        covered = 0 if there is None or there.holds_back else there.credit - len(end._held)
        assert self.port.credit <= max(0, covered), "more was granted than the other container has"
        assert self.port.credit <= max(0, bounds.undecided - end.unsettled)
        if there is not None:
            assert not there.drain, "a drain is not answered"
            assert there.holds_back or not (end._held and there.credit), "messages wait beside credit"

    def finish(self) -> None:
        for _ in range(3 * self.bounds.messages + 6):
            if self.large is not None:
                self.do(("end",))
            if self.is_asked:
                self.do(("answer", False))
            if self.there is not None and (self.there.holds_back or not self.there.is_open):
                self.do(("open",))
            if self.there is not None and self.there.credit == 0:
                self.do(("grant", 1, False))
            for name in list(self.there.unsettled) if self.there is not None else ():
                self.do(("settle", name, ACCEPTED))
        if self.is_here:
            assert not self.port.unsettled, "messages have no outcome"
            assert self.is_guest or self.port.credit
            self.check()
            self.do(("leave",))
        assert not self.uplink.wanted
        self.check()
        counted = Counter(delivery_id for delivery_id, _ in self.port.outcomes)
        assert all(count == 1 for count in counted.values())


# Receivers


class From:
    """The link on which a receiver's messages come, and what the other container has heard of them."""

    def __init__(self, world: ReceiverWorld) -> None:
        self.world = world
        self.is_live = True
        self.received = self.limit = self.highest = 0
        self.drained_at: int | None = None
        """The limit with which it was asked to drain."""
        self.stalls = 0
        self.unsettled: set[str] = set()
        self.awaited: dict[str, Callable[[], None]] = {}

    # What the relay calls

    @property
    def credit(self) -> int:
        return self.limit - self.received

    def grant(self, credit: int) -> None:
        assert self.is_live
        assert credit >= 0
        self.limit = self.received + credit
        self.highest = max(self.highest, self.limit)

    def drain(self) -> None:
        assert self.is_live
        assert self.credit > 0
        self.drained_at = self.limit

    def settle(self, delivery_id: int, state: Any) -> None:
        name = str(delivery_id)
        assert self.is_live, f"{name} is settled on a link that is lost"
        assert name in self.unsettled, f"{name} is settled twice"
        self.unsettled.remove(name)
        self.world.told(name, state)

    def settle_after(self, delivery_id: int, state: Any, done: Callable[[], None]) -> None:
        self.settle(delivery_id, state)
        self.awaited[str(delivery_id)] = done

    def stall(self, is_stalled: bool) -> None:
        # One that is lost too: its session is that of other links, and may go on.
        self.stalls += 1 if is_stalled else -1
        assert self.stalls in (0, 1, 2)

    def hold_input(self, is_held: bool) -> None:
        raise AssertionError("nothing is that large")

    # What the other container does

    def send(self, name: str, settled: bool) -> None:
        end = self.world.end
        if not settled:
            self.unsettled.add(name)
        self.received += 1
        if self.received <= self.limit:
            is_last = self.received == self.limit
            end.on_message(name.encode(), int(name), settled, 0)
            if is_last:
                end.on_exhausted()
        else:
            self.limit = self.received
            end.on_crossed(name.encode(), int(name), settled, 0)

    def begin(self, name: str, settled: bool) -> LargeDelivery:
        """Send the beginning of a large message."""
        end = self.world.end
        if not settled:
            self.unsettled.add(name)
        is_crossed = self.received >= self.limit
        self.received += 1
        self.limit = max(self.limit, self.received)
        large = end.on_large(name.encode(), int(name), settled, 0, is_crossed)
        if not is_crossed and self.received == self.limit:
            end.on_exhausted()
        return large

    def give_up(self) -> None:
        """Answer a drain, for the credit that there was as it came."""
        reached, self.drained_at = self.drained_at, None
        if reached is not None and reached > self.received:
            given_up = min(reached, self.limit) - min(self.received, self.limit)
            self.received = reached
            self.limit = max(self.limit, reached)
            if given_up:
                self.world.end.on_given_up(given_up)


class ReceiverPort(MemoryConsumerPort):
    """A receiver's link, of a client whose window may be shut."""

    def __init__(self, world: ReceiverWorld) -> None:
        super().__init__()
        self.world = world
        self.is_open = True
        self.holds_back = False
        self.pending: list[tuple[str, Any]] = []
        """What the window holds back, with what is followed of it."""

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        assert self.is_open or not self.holds_back, "sent to who takes no more"
        super().send(delivery, payload, settled, message_format)
        assert payload.decode() not in self.world.lost, "sent though the other container sends it again"
        self.world.passed.append(payload.decode())
        if self.is_open:
            self.world.seen.add(payload.decode())
            return
        self.pending.append((payload.decode(), None))
        if not self.holds_back:
            self.holds_back = True
            self.sink.on_blocked(True)

    def send_while_it_comes(self, delivery: Any, settled: bool, message_format: int = 0) -> Parts:
        name = str(delivery.producer_id)
        assert not self.is_detached
        assert self.credit > 0, f"{name} is sent without credit"
        assert name not in self.world.lost, "sent though the other container sends it again"
        self.credit -= 1
        self.world.passed.append(name)
        self.world.seen.add(name)
        if not settled:
            self.unsettled.append(Arrival(delivery, name.encode(), settled, message_format))
        return Parts(self, name)

    def fill(self) -> None:
        """Note that something more goes out, or is held back."""
        if not (self.is_open or self.holds_back):
            self.holds_back = True
            self.sink.on_blocked(True)

    def aborted(self, name: str) -> None:
        self.unsettled = [arrival for arrival in self.unsettled if arrival.payload.decode() != name]

    def follow(self, delivery: Any) -> bool:
        if not self.pending:
            return False
        self.pending[-1] = self.pending[-1][0], delivery
        return True

    def let_out(self) -> None:
        """Open the window: what it held back goes out."""
        self.is_open = True
        pending, self.pending = self.pending, []
        for name, followed in pending:
            self.world.seen.add(name)
            if followed is not None:
                followed.sink.on_outcome(followed, ACCEPTED)
        if self.holds_back:
            self.holds_back = False
            self.sink.on_blocked(False)

    def detach(self, error: Any = None) -> None:
        super().detach(error)
        self.drop()

    def drop(self) -> None:
        """Tell that what the window holds back never goes out."""
        pending, self.pending = self.pending, []
        for _, followed in pending:
            if followed is not None:
                followed.sink.on_outcome(followed, RELEASED)


class ReceiverWorld:
    """A client that receives.

    Args:
        bounds: how far it goes.
        presettle: whether the client asks for settled messages.
        settles_second: whether it settles second.
        offered: the outcomes that the other container understands, if not all.
    """

    def __init__(
        self,
        bounds: Bounds,
        *,
        presettle: bool = False,
        settles_second: bool = False,
        offered: tuple[Any, ...] = (),
    ) -> None:
        self.bounds = bounds
        self.offered = {kind.SYMBOL for kind in offered}
        self.settles_second = settles_second
        self.harness = CoreHarness() if bounds.large else NO_TIME
        self.large: LargeDelivery | None = None
        """The large message that the other container is sending."""
        self.late = ""
        self.uplink = Uplink()
        self.relay = relay(self.harness, self.uplink, bounds)
        self.sent = 0
        self.passed: list[str] = []
        """Messages that the client was sent, in order."""
        self.seen: set[str] = set()
        """Those that have gone out to it."""
        self.decided: dict[str, Any] = {}
        """What the client has made of them."""
        self.lost: set[str] = set()
        """Those whose link is lost."""
        self.outcomes: dict[str, Any] = {}
        """What the other container was told of them."""
        self.confirmed: set[str] = set()
        self.there: From | None = None
        self.losses = 0
        self.port = ReceiverPort(self)
        attach = Attach(name="in", handle=0, role=True, rcv_settle_mode=int(settles_second))
        end = self.relay.attach_consumer(self.port, AttachOptions(source="far/q", presettle=presettle, attach=attach))
        assert isinstance(end, RelayConsumer)
        self.end = end
        self.port.sink = end
        self.is_here = True
        end.opening.then(self._opened)

    def _opened(self, error: Any) -> None:
        if error is not None:
            self._leave()

    def _leave(self) -> None:
        self.is_here = False
        self.port.drop()
        self.port.leave()

    def told(self, name: str, state: Any) -> None:
        """Hold an outcome that the other container is told against what the client has done."""
        self.outcomes[name] = state
        if name in self.decided:
            expected: Any = (self.decided[name],)
        elif name in self.seen and self.end.presettle:
            expected = (ACCEPTED,)
        elif name in self.seen:
            expected = (FAILED,)
        elif name in self.passed:  # it may be on its way, as far as the relay knows
            expected = (RELEASED,) if self.end.presettle else (FAILED,)
        else:
            expected = (RELEASED,)
        if state is ACCEPTED and self.end.presettle and self.port.is_open:
            return  # it goes out as this is told
        if name == self.late and state in (FAILED, RELEASED):
            return  # nobody went on with it for too long
        if self.offered:
            expected = tuple(each if each.SYMBOL in self.offered else RELEASED for each in expected)
        assert state in expected, f"{name} ended {state}, not {expected}"

    @property
    def is_asked(self) -> bool:
        return self.end in self.uplink.wanted and self.there is None

    def actions(self) -> Iterator[Action]:
        port, there, bounds = self.port, self.there, self.bounds
        if self.is_here:
            yield ("leave",)
            for credit in range(bounds.credit + 1):
                if credit != port.credit or port.is_draining:
                    yield "credit", credit
                yield "drain", credit
            yield ("open",) if port.holds_back or not port.is_open else ("shut",)
            if not port.holds_back:
                yield ("fill",)
            if port.unsettled and port.unsettled[0].payload.decode() in self.seen:
                yield from (("settle", state) for state in bounds.outcomes)
        if self.is_asked:
            yield ("answer",)
            yield ("refuse",)
        if there is None:
            return
        yield ("refuse",)
        if self.losses < bounds.losses:
            yield ("lose",)
        if self.large is not None:
            yield ("end",)
            yield ("abort",)
            yield ("wait",)
        elif self.sent < bounds.messages and there.received < there.highest:
            yield "send", False
            yield "send", True
        if there.drained_at is not None:
            yield ("give up",)
        for name in there.awaited:
            yield "confirm", name

    def do(self, action: Action) -> None:
        what, port, there = action[0], self.port, self.there
        if what == "leave":
            self._leave()
        elif what == "credit":
            port._is_draining = False
            port.grant(action[1])
        elif what == "drain":
            port.drain(action[1])
        elif what == "open":
            port.let_out()
        elif what == "shut":
            port.is_open = False
        elif what == "fill":
            port.holds_back = True
            self.end.on_blocked(True)
        elif what == "settle":
            name, state = port.unsettled[0].payload.decode(), action[1]
            self.decided[name] = RELEASED if state is None else state
            port.settle(state)
            if self.settles_second:
                self.end.confirm(lambda: self.confirmed.add(name))
        elif what == "answer":
            self.there = From(self)
            if self.offered:
                self.end.offered = self.offered
            self.end.on_upstream(self.there)
        elif what in {"refuse", "lose"}:
            if there is not None:
                there.is_live = False
                self.lost |= there.unsettled | set(there.awaited)
            self.there = None
            self.large = None
            if what == "refuse":
                self.uplink.wanted.discard(self.end)
                self.end.on_refused_upstream(GONE)
            else:
                self.losses += 1
                self.end.on_lost()
            assert there is None or not there.stalls
        elif there is None:
            raise AssertionError(f"nothing is attached there: {action}")
        elif what in {"end", "abort", "wait"}:
            large = self.large
            assert large is not None
            if what == "wait":
                self.late = str(large.producer_id)
                self.harness.advance(PATIENCE_S + 1)
                return
            self.large = None
            if what == "end":
                large.end(b"", large.settled)
            else:
                there.unsettled.discard(str(large.producer_id))
                large.abort()
        elif what == "send" and self.bounds.large:
            self.sent += 1
            self.large = there.begin(str(self.sent - 1), action[1])
        elif what == "send":
            name, settled = str(self.sent), action[1]
            self.sent += 1
            is_wanted = settled or port.credit or port.holds_back
            there.send(name, settled)
            assert is_wanted or self.outcomes[name] is RELEASED
        elif what == "give up":
            there.give_up()
        else:
            there.awaited.pop(action[1])()
        self._forget_detached()

    def _forget_detached(self) -> None:
        """Let go of the link there once the relay has detached it, or its own has been."""
        if self.port.is_detached:
            self.is_here = False
        if self.there is not None and self.end not in self.uplink.wanted:
            under_way = set() if self.large is None else {str(self.large.producer_id)}
            assert self.there.unsettled <= under_way, "messages have no outcome"
            assert not self.there.stalls
            self.large = None
            self.there.is_live = False
            self.there = None

    def state(self) -> Hashable:
        port, end, there = self.port, self.end, self.there
        return (
            self.is_here, self.is_asked, self.losses, self.sent, port.credit, port.is_draining, port.is_open,
            port.holds_back, *((name, followed is not None) for name, followed in port.pending),
            *(arrival.payload for arrival in port.unsettled), end.opening.answer is None, end.unsettled,
            *(state_of(item) if isinstance(item, LargeDelivery) else (payload, item.settled)
              for payload, item in end._backlog), self.large and (*state_of(self.large), self.late),
            end.large is None, end._is_draining, end._is_stalled,
            end.is_blocked, len(end._awaited), end._outcomes.count, tuple(sorted(self.confirmed)),
            there and (there.credit, there.highest - there.received, tuple(sorted(there.unsettled)), there.stalls,
                       tuple(there.awaited), there.drained_at and there.drained_at - there.received),
        )  # fmt: skip

    def check(self) -> None:
        end, port, there = self.end, self.port, self.there
        assert not self.harness.faults
        assert self.passed == sorted(self.passed), "out of order"
        large = [item for _, item in end._backlog if isinstance(item, LargeDelivery)]
        small = KEPT * (len(end._backlog) - len(large)) + OVERHEAD_BYTES * len(large)
        assert end._backlog_bytes == small <= KEPT * self.bounds.kept
        assert self.relay.backlog_bytes == small + sum(item.waiting_bytes for item in large)
        assert all(item.is_complete or item._is_stalled for item in large), "more of what waits is asked for"
        assert self.confirmed <= self.outcomes.keys() - (set(there.awaited) if there is not None else set())
        assert not self.confirmed & self.lost, "an outcome is confirmed that was lost"
        if not self.is_here:
            assert not end._backlog
            assert end not in self.uplink.wanted
            assert self.relay.consumers == []
            return
        assert end.unsettled == len(port.unsettled) + sum(followed is not None for _, followed in port.pending)
        if end.large is not None:
            return  # it has all that there is of the link
        assert port.holds_back or not (port.credit and end._backlog), "messages wait beside credit"
        if there is not None:
            asked = 0 if port.holds_back else port.credit - len(end._backlog)
            assert there.credit == max(0, asked), "another credit is asked for than the client has"
            assert there.stalls == port.holds_back + (self.large is not None and self.large._is_stalled)
            kept = {str(delivery.producer_id) for _, delivery in end._backlog}
            kept |= set() if self.large is None else {str(self.large.producer_id)}
            here = {arrival.payload.decode() for arrival in port.unsettled} | {name for name, _ in port.pending}
            assert there.unsettled <= kept | here, "messages are forgotten"
            assert not port.is_draining or there.drained_at is not None or end._backlog, "a drain is not asked for"

    def finish(self) -> None:
        for _ in range(3 * self.bounds.messages + 6):
            if self.large is not None:
                self.do(("end",))
            if self.is_asked:
                self.do(("answer",))
            if self.is_here and (self.port.holds_back or not self.port.is_open):
                self.do(("open",))
            if self.there is not None:
                self.do(("give up",))
                for name in list(self.there.awaited):
                    self.do(("confirm", name))
            if self.is_here and self.end._backlog and not self.port.credit:
                self.do(("credit", 1))
            while self.port.unsettled:
                self.do(("settle", ACCEPTED))
        if self.is_here:
            assert not self.port.is_draining, "a drain does not end"
            assert not self.settles_second or self.decided.keys() - self.lost <= self.confirmed
            self.check()
            self.do(("leave",))
        assert not self.uplink.wanted
        self.check()


FEW = Accepted, Released
"""What a container takes that knows neither rejected nor modified."""

TINY = Bounds(credit=1, messages=1)
LARGE = Bounds(credit=1, outcomes=(ACCEPTED,), large=True)
TINY_LARGE = Bounds(credit=1, messages=1, outcomes=(ACCEPTED,), large=True)

WORLDS: dict[str, tuple[Callable[[Bounds], World], Bounds, Bounds]] = {
    "sender": (SenderWorld, Bounds(), Bounds(messages=4, losses=2)),
    "large sender": (SenderWorld, LARGE, Bounds(messages=3, losses=2, large=True)),
    "guest": (lambda bounds: SenderWorld(bounds, is_guest=True), Bounds(credit=1), Bounds(messages=3, losses=2)),
    "receiver": (ReceiverWorld, Bounds(credit=1, outcomes=(ACCEPTED, None)), Bounds(messages=3)),
    "large receiver": (ReceiverWorld, TINY_LARGE, Bounds(credit=1, large=True)),
    "settled": (lambda bounds: ReceiverWorld(bounds, presettle=True), TINY, Bounds(messages=3)),
    "second": (lambda bounds: ReceiverWorld(bounds, settles_second=True), TINY, Bounds(credit=1)),
    "narrow": (lambda bounds: ReceiverWorld(bounds, offered=FEW), TINY, Bounds(credit=1)),
}
"""Worlds, with how far they go at first and at length."""


@pytest.mark.slow
@pytest.mark.chance
@pytest.mark.parametrize("name", WORLDS)
def test_every_state_keeps_what_credit_and_outcomes_promise(name: str) -> None:
    make, few, many = WORLDS[name]
    bounds = many if is_long() else few
    assert explore(lambda: make(bounds)) > 100
