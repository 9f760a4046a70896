"""Links that come back: what a node keeps of a link while it is detached [AMQP 2.6.4, 2.6.13, 3.5.6].

Rules:
1. Only a terminus that asks to outlast its link is kept: by durability ``unsettled-state``, a time-out, or the
   expiry policy ``connection-close`` or ``never``. Everything else is given up with the link.
2. A terminus is known by space, user, container id, link name and direction, so that nobody else's is found.
3. Whatever is kept is bounded, for the node as a whole and in time; what is too much is given up, the oldest
   of the space that has most of it first: no tenant pushes out another's. It does not outlive the node's
   process: what a sender then sends again may come twice.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, NamedTuple

from enmasse.wire.amqp.codec import decode, encode
from enmasse.wire.amqp.composites import Performative, encode_performative, from_described
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.outcomes import known_outcome
from enmasse.wire.amqp.performatives import AmqpError, Source, Target
from enmasse.wire.amqp.types import Described

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from enmasse.messaging.address import Address
    from enmasse.messaging.core import Core
    from enmasse.messaging.space import Space
    from enmasse.wire.amqp.link import Link

__all__ = [
    "EVENTS",
    "MAX_SUSPENSION_S",
    "STOLEN",
    "Key",
    "Recovery",
    "Terminus",
    "is_recoverable",
    "map_to_tell",
    "state_of",
]

MAX_SUSPENSION_S = 3600.0
"""The longest that anything is kept for a link that is detached, also if it asks for ever."""

LOOK_S = 1.0
"""Between two looks at what may be given up; time-outs are told in seconds."""

MAX_TERMINI = 10_000
MAX_DELIVERIES = 100_000
"""Deliveries whose outcome is remembered, or which are held; each costs some 300 bytes beside its message."""

MAX_HELD_BYTES = 64 << 20
"""Messages that are held for receivers which are detached."""

MAP_MARGIN_BYTES = 2_048
"""Room in an attach's frame for everything but the map of what is unsettled."""

EVENTS = ("link-detach", "session-end", "connection-close")
"""What the expiry policies wait for, in the order in which it happens."""

STOLEN = AmqpError("amqp:link:stolen", "the link was attached again under its name")


class Key(NamedTuple):
    """Whose terminus it is."""

    space: Space
    user: str
    container: str
    name: str
    is_sender: bool


def is_recoverable(terminus: Source | Target) -> bool:
    """Whether a terminus asks to outlast its link, with what is unsettled."""
    if terminus.dynamic or terminus.durable == 1:
        return False
    return terminus.durable == 2 or terminus.timeout > 0 or terminus.expiry_policy in (EVENTS[2], "never")


def state_of(value: Any) -> Any:
    """The delivery state that stands in a map of what is unsettled; ``None`` for none that is known."""
    try:
        state = from_described(value) if isinstance(value, Described) else None
    except DecodeError:
        return None
    return known_outcome(state)


def map_to_tell(states: Mapping[bytes, Any], max_frame_size: int) -> tuple[dict[Any, Any] | None, bool]:
    """A map of what is unsettled as it is told in an attach, and whether some of it did not fit the frame."""
    room = max_frame_size - MAP_MARGIN_BYTES
    told: dict[Any, Any] = {}
    for tag, state in states.items():
        value = decode(encode_performative(state))[0] if isinstance(state, Performative) else None
        room -= len(tag) + 2 + len(encode(value))
        if room < 0 and told:
            return told, True
        told[tag] = value
    return told or None, False


class Terminus:
    """One end of a link, which may be attached, or wait for the link to come back.

    Args:
        recovery: the node's account of all of them.
        key: whose it is.
        address: where it is.
        terminus: what the peer asked for.
    """

    __slots__ = ("_recovery", "address", "deadline", "key", "life", "link", "policy", "timeout_s")

    def __init__(self, recovery: Recovery, key: Key, address: Address, terminus: Source | Target) -> None:
        self._recovery = recovery
        self.life = 0
        """How often the link was attached."""
        self.deadline = 0.0
        """When it is given up, while the link is detached."""
        self.key = key
        self.address = address
        self.policy = str(terminus.expiry_policy)
        self.timeout_s = terminus.timeout
        self.link: Link | None = None
        """The link, while it is attached."""

    def joined(self, link: Link) -> None:
        """The link is attached; whoever had it before loses it."""
        self.life += 1
        before = self.link
        if before is not None and not before.is_detached:
            before.detach(STOLEN)
            before.is_detached = True
            before.session.connection.handler.on_detached(before, STOLEN, False)
        self.link = link
        self._recovery.keep(self)

    def suspended(self) -> None:
        """The link is detached, but not closed."""
        self.link = None
        self.deadline = float("inf")
        self._recovery.keep(self)
        self._recovery.wait(self, MAX_SUSPENSION_S)
        self.happened(EVENTS[0])

    def happened(self, event: str) -> None:
        """Something happened after which the terminus may have only its time-out left."""
        if self.link is None and self.policy in EVENTS and EVENTS.index(event) >= EVENTS.index(self.policy):
            if self.timeout_s:
                self._recovery.wait(self, min(self.timeout_s, MAX_SUSPENSION_S))
            else:
                self.give_up()

    def give_up(self) -> None:
        """Keep nothing any more."""
        self._recovery.forget(self)
        self.forget_all()

    def forget_all(self) -> None:
        """Give up what is kept of deliveries."""
        raise NotImplementedError

    @property
    def kept(self) -> int:
        """How many deliveries it remembers or holds."""
        raise NotImplementedError

    @property
    def kept_bytes(self) -> int:
        """What the messages have that it holds."""
        return 0


class Recovery:
    """Everything that a node keeps for links that may come back."""

    name = "links that may come back"
    """What the core reports it as, in whose turns it takes part like an address."""

    def __init__(self) -> None:
        self.is_due = False
        self.deliveries = 0
        """Deliveries that are remembered or held."""
        self.held_bytes = 0
        self._first_free = 0
        self._termini: dict[Key, Terminus] = {}
        self._core: Core | None = None
        self._waits: list[tuple[Terminus, int, float]] = []
        """Who waits from the end of this turn on, in which life, and for how many seconds."""
        self._next_look = 0.0

    # Time

    def wait(self, terminus: Terminus, seconds: float) -> None:
        """Give a terminus up after a time, counted from this turn on, unless its link is back by then."""
        self._waits.append((terminus, terminus.life, seconds))
        self._core = terminus.address.core
        if not self.is_due:
            self.is_due = True
            self._core.due(self)

    def on_turn(self, now: float) -> None:
        """The times begin."""
        waits, self._waits = self._waits, []
        for terminus, life, seconds in waits:
            if terminus.life == life and terminus.link is None:
                terminus.deadline = min(terminus.deadline, now + seconds)
                self._look_at(terminus.deadline, now)

    def _look_at(self, when: float, now: float) -> None:
        assert self._core is not None
        if self._next_look <= now or when < self._next_look:
            self._next_look = when
            self._core.schedule(self, when)

    def on_deadline(self, now: float) -> None:
        """Give up what has waited long enough."""
        if now < self._next_look:
            return
        waiting = [terminus for terminus in self._termini.values() if terminus.link is None]
        for terminus in waiting:
            if terminus.deadline <= now:
                terminus.give_up()
        later = min((terminus.deadline for terminus in waiting if terminus.deadline > now), default=0.0)
        if later and later != float("inf"):
            self._look_at(max(later, now + LOOK_S), now)

    # Termini

    def number(self, above: int) -> int:
        """A delivery id above all that were ever tags of what is held, given one more of them."""
        self._first_free = max(self._first_free, above)
        return self._first_free

    def __len__(self) -> int:
        """How many termini there are."""
        return len(self._termini)

    def find(self, key: Key, address: Address) -> Terminus | None:
        """What is kept under a key, if it is of that very address."""
        found = self._termini.get(key)
        if found is not None and found.address is not address:
            if found.link is None:
                found.give_up()
            return None
        return found

    def keep(self, terminus: Terminus) -> None:
        """Keep a terminus, as the youngest."""
        self._termini.pop(terminus.key, None)
        self._termini[terminus.key] = terminus
        self.make_room()

    def forget(self, terminus: Terminus) -> None:
        """A terminus is given up."""
        if self._termini.get(terminus.key) is terminus:
            del self._termini[terminus.key]

    @property
    def is_full(self) -> bool:
        """Whether more is kept than should be."""
        return (
            len(self._termini) > MAX_TERMINI or self.deliveries > MAX_DELIVERIES or self.held_bytes > MAX_HELD_BYTES
        )

    def make_room(self) -> None:
        """Give up those that are detached while there is too much: the oldest of the space that has most of it."""
        if len(self._termini) > MAX_TERMINI:
            self._make_room(lambda _terminus: 1, lambda: len(self._termini) > MAX_TERMINI)
        if self.deliveries > MAX_DELIVERIES:
            self._make_room(lambda terminus: terminus.kept, lambda: self.deliveries > MAX_DELIVERIES)
        if self.held_bytes > MAX_HELD_BYTES:
            self._make_room(lambda terminus: terminus.kept_bytes, lambda: self.held_bytes > MAX_HELD_BYTES)

    def _make_room(self, amount: Callable[[Terminus], int], is_needed: Callable[[], bool]) -> None:
        waiting: dict[Space, deque[tuple[Terminus, int]]] = {}
        held: Counter[Space] = Counter()
        for terminus in self._termini.values():
            size, space = amount(terminus), terminus.key.space
            held[space] += size
            if terminus.link is None:
                waiting.setdefault(space, deque()).append((terminus, size))
        while waiting and is_needed():
            space = max(waiting, key=held.__getitem__)
            terminus, size = waiting[space].popleft()
            if not waiting[space]:
                del waiting[space]
            held[space] -= size
            terminus.give_up()
