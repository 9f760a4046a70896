"""Keeps the termini of detached links that may be resumed [AMQP 2.6.4, 2.6.13, 3.5.6].

Rules:
1. Only a terminus that asks to outlast its link is kept: by durability ``unsettled-state``, a time-out, or the
   expiry policy ``connection-close`` or ``never``. Everything else is dropped with the link.
2. A terminus is identified by space, owner, container id, link name and direction, so nobody finds another's; it goes
   with its owner.
3. Everything kept is bounded, for the node as a whole and in time. What is too much is dropped, the oldest of the
   space that has most of it first, so that no tenant evicts another's. It does not outlive the node's process: what
   a sender then sends again may be taken twice.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, NamedTuple

from enmasse.message.codec import decode, encode
from enmasse.message.composites import Composite, encode_composite, from_described
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import AmqpError, known_outcome
from enmasse.message.types import Described
from enmasse.wire.amqp.performatives import Source, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from enmasse.messaging.address import Address
    from enmasse.messaging.core import Core
    from enmasse.messaging.space import Space
    from enmasse.wire.amqp.link import Link


MAX_SUSPENSION_S = 3600.0
"""The longest time that anything is kept for a detached link, whatever it asks for."""

CHECK_S = 1.0
"""Seconds between two checks of time-outs, which are given in seconds."""

MAX_TERMINI = 10_000
MAX_DELIVERIES = 100_000
"""The most deliveries whose outcome is remembered, or which are held: some 300 bytes each, beside the message."""

MAX_HELD_BYTES = 64 << 20
"""The most bytes of messages that are held for detached receivers."""

MAP_MARGIN_BYTES = 2_048
"""Room in an attach's frame for everything but the map of what is unsettled."""

EVENTS = ("link-detach", "session-end", "connection-close")
"""The events that the expiry policies wait for, in the order in which they happen."""

STOLEN = AmqpError("amqp:link:stolen", "the link was attached again under its name")


class Key(NamedTuple):
    """Identifies a terminus."""

    space: Space
    owner: str
    container: str
    name: str
    is_sender: bool


def is_recoverable(terminus: Source | Target) -> bool:
    """Return true if a terminus asks to outlast its link, with its unsettled deliveries."""
    if terminus.dynamic or terminus.durable == 1:
        return False
    return terminus.durable == 2 or terminus.timeout > 0 or terminus.expiry_policy in (EVENTS[2], "never")


def state_of(value: Any) -> Any:
    """Return the delivery state of a value in a map of unsettled deliveries; None if it is unknown."""
    try:
        state = from_described(value) if isinstance(value, Described) else None
    except DecodeError:
        return None
    return known_outcome(state)


def unsettled_map(states: Mapping[bytes, Any], max_frame_size: int) -> tuple[dict[Any, Any] | None, bool]:
    """Return the map of unsettled deliveries for an attach, and true if some of them did not fit the frame."""
    room = max_frame_size - MAP_MARGIN_BYTES
    fitting: dict[Any, Any] = {}
    for tag, state in states.items():
        value = decode(encode_composite(state))[0] if isinstance(state, Composite) else None
        room -= len(tag) + 2 + len(encode(value))
        if room < 0 and fitting:
            return fitting, True
        fitting[tag] = value
    return fitting or None, False


class Terminus:
    """One end of a link, which is attached, or waits to be resumed.

    Args:
        recovery: the node's registry of termini.
        key: identifies the terminus.
        address: the address of the link.
        terminus: the terminus that the peer asked for.

    Attributes:
        user: the owner's name.
    """

    __slots__ = ("_recovery", "address", "deadline", "epoch", "key", "link", "policy", "timeout_s", "user")

    def __init__(self, recovery: Recovery, key: Key, address: Address, terminus: Source | Target) -> None:
        self._recovery = recovery
        self.epoch = 0
        """The number of times that the link was attached."""
        self.deadline = 0.0
        """The time at which it is dropped, while the link is detached."""
        self.key = key
        self.address = address
        self.policy = str(terminus.expiry_policy)
        self.timeout_s = terminus.timeout
        self.link: Link | None = None
        """The link, while it is attached."""
        self.user = ""

    @property
    def owner(self) -> str:
        """The owner of it."""
        return self.key.owner

    def disown(self) -> None:
        """Drop it, as its owner is gone."""
        self.give_up()

    def joined(self, link: Link) -> None:
        """Attach the link; a connection that had it before loses it."""
        self.epoch += 1
        before = self.link
        if before is not None and not before.is_detached:
            before.detach(STOLEN)
            before.is_detached = True
            before.session.connection.handler.on_detached(before, STOLEN, False)
        self.link = link
        self._recovery.keep(self)

    def suspended(self) -> None:
        """Wait for the link, as it is detached but not closed."""
        self.link = None
        self.deadline = float("inf")
        self._recovery.keep(self)
        self._recovery.wait(self, MAX_SUSPENSION_S)
        self.happened(EVENTS[0])

    def happened(self, event: str) -> None:
        """Start the time-out of the terminus if its expiry policy waits for this event."""
        if self.link is None and self.policy in EVENTS and EVENTS.index(event) >= EVENTS.index(self.policy):
            if self.timeout_s:
                self._recovery.wait(self, min(self.timeout_s, MAX_SUSPENSION_S))
            else:
                self.give_up()

    def give_up(self) -> None:
        """Drop the terminus."""
        self._recovery.forget(self)
        self.forget_all()

    def forget_all(self) -> None:
        """Drop what is kept of deliveries."""
        raise NotImplementedError

    @property
    def kept(self) -> int:
        """The number of deliveries that are remembered or held."""
        raise NotImplementedError

    @property
    def kept_bytes(self) -> int:
        """The bytes of the messages that are held."""
        return 0


class Recovery:
    """The registry of a node's termini that may be resumed."""

    name = "links that may come back"
    """Its name in reports of the core, in whose turns it takes part like an address."""

    def __init__(self) -> None:
        self.is_due = False
        self.deliveries = 0
        """The number of deliveries that are remembered or held."""
        self.held_bytes = 0
        self._first_free = 0
        self._termini: dict[Key, Terminus] = {}
        self._core: Core | None = None
        self._waits: list[tuple[Terminus, int, float]] = []
        """The termini that wait from the end of this turn on, each with its epoch and seconds."""
        self._next_check = 0.0

    def holdings(self, space: Space) -> list[Terminus]:
        """Return the termini of a space whose links are detached; those of others go with their connections."""
        return [one for one in self._termini.values() if one.key.space is space and one.link is None]

    # Time

    def wait(self, terminus: Terminus, seconds: float) -> None:
        """Drop a terminus after a time, counted from this turn on, unless its link is attached again by then."""
        self._waits.append((terminus, terminus.epoch, seconds))
        self._core = terminus.address.core
        if not self.is_due:
            self.is_due = True
            self._core.due(self)

    def on_turn(self, now: float) -> None:
        """Start the times of the termini that wait since this turn."""
        waits, self._waits = self._waits, []
        for terminus, epoch, seconds in waits:
            if terminus.epoch == epoch and terminus.link is None:
                terminus.deadline = min(terminus.deadline, now + seconds)
                self._check_at(terminus.deadline, now)

    def _check_at(self, when: float, now: float) -> None:
        assert self._core is not None
        if self._next_check <= now or when < self._next_check:
            self._next_check = when
            self._core.schedule(self, when)

    def on_deadline(self, now: float) -> None:
        """Drop the termini that have waited long enough."""
        if now < self._next_check:
            return
        waiting = [terminus for terminus in self._termini.values() if terminus.link is None]
        for terminus in waiting:
            if terminus.deadline <= now:
                terminus.give_up()
        later = min((terminus.deadline for terminus in waiting if terminus.deadline > now), default=0.0)
        if later and later != float("inf"):
            self._check_at(max(later, now + CHECK_S), now)

    # Termini

    def number(self, above: int) -> int:
        """Return a delivery id above all tags that were ever held, after noting one more."""
        self._first_free = max(self._first_free, above)
        return self._first_free

    def __len__(self) -> int:
        """Return the number of termini."""
        return len(self._termini)

    def find(self, key: Key, address: Address) -> Terminus | None:
        """Return the terminus of a key, if it is of the same address."""
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
        """Remove a terminus."""
        if self._termini.get(terminus.key) is terminus:
            del self._termini[terminus.key]

    @property
    def is_full(self) -> bool:
        """True if more is kept than may be."""
        return (
            len(self._termini) > MAX_TERMINI or self.deliveries > MAX_DELIVERIES or self.held_bytes > MAX_HELD_BYTES
        )

    def make_room(self) -> None:
        """Drop detached termini while there is too much: the oldest of the space that has most."""
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
