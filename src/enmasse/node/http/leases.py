"""Leases: messages that clients of HTTP have received, and which are theirs until they settle them or time is up.

Rules:
1. A lease outlives the connection by which its message was received: another request, on any connection, settles it.
2. It is of one owner in one space, and goes with that one. What others name is unknown to them.
3. A message whose lease ends goes back, as a failed attempt: its client may have processed it.
4. The receiver's end at the address stays as long as it has leases; it gets nothing more, and counts as no link.
"""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from enmasse.messaging.delivery import FAILED
from enmasse.wire.http.answers import HttpError

# Leases, and the receivers that they are of, know each other.
if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.delivery import Consumer
    from enmasse.messaging.space import Space


MAX_LEASES: Final = 10_000
"""The most leases of one user in a space."""

STEP_S: Final = 0.25
"""Leases end up to so much late, so that many of them share a timer."""


class LeaseOwner(NamedTuple):
    """The account that owns leases.

    Attributes:
        space: the space.
        owner: the owner there.
        user: the owner's name.
    """

    space: Space
    owner: str
    user: str


class Holder:
    """The leases of one receiver.

    Args:
        leases: all of the node.
        of: the account that owns them.
        address: the address as the client named it.
    """

    __slots__ = ("_leases", "address", "consumer", "held", "is_over", "of")

    def __init__(self, leases: Leases, of: LeaseOwner, address: str) -> None:
        self._leases = leases
        self.of = of
        self.address = address
        self.consumer: Consumer
        self.held: dict[str, Any] = {}
        """The deliveries by the names of their leases."""
        self.is_over = False
        """True once the receiver's end is gone."""

    @property
    def owner(self) -> str:
        """The owner of the leases."""
        return self.of.owner

    @property
    def user(self) -> str:
        """The owner's name."""
        return self.of.user

    def disown(self) -> None:
        """Give back what is leased, as the owner is gone."""
        for name in list(self.held):
            self.settle(name, FAILED)

    def lease(self, delivery: Any, until: float, core: Core) -> str:
        """Lease a delivery, and return the lease's name."""
        name = secrets.token_urlsafe(12)
        self.held[name] = delivery
        self._leases.add(name, self, until, core)
        return name

    def settle(self, name: str, outcome: Any) -> None:
        """Give a leased message its outcome."""
        delivery = self.held.pop(name)
        self._leases.remove(name)
        self.consumer.on_outcome(delivery, outcome)
        self.leave_if_idle()

    def leave_if_idle(self) -> None:
        """Leave the address once nothing is leased."""
        if not self.held and not self.is_over:
            self.is_over = True
            self.consumer.on_detached(closed=True)

    def take_all(self) -> list[Any]:
        """Forget all leases, as the receiver's end is gone, and return their deliveries."""
        held, self.held = self.held, {}
        for name in held:
            self._leases.remove(name)
        return list(held.values())

    def take_from(self, sink: Any) -> list[Any]:
        """Forget the leases of one of several ends, as that is gone, and return their deliveries."""
        names = [name for name, delivery in self.held.items() if delivery.sink is sink]
        for name in names:
            self._leases.remove(name)
        return [self.held.pop(name) for name in names]


class _Lease:
    __slots__ = ("holder", "until")

    def __init__(self, holder: Holder, until: float) -> None:
        self.holder = holder
        self.until = until


class Leases:
    """The leases of a node."""

    def __init__(self) -> None:
        self.name = "leases of HTTP's clients"
        self._leases: dict[str, _Lease] = {}
        self._counts: dict[LeaseOwner, int] = {}
        self._times: list[tuple[float, str]] = []
        self._core: Core | None = None

    def __len__(self) -> int:
        """Return the number of leases."""
        return len(self._leases)

    def holdings(self, space: Space) -> Iterable[Holder]:
        """Return who has leases in a space."""
        return {lease.holder: None for lease in self._leases.values() if lease.holder.of.space is space}

    def room(self, owner: LeaseOwner) -> int:
        """Return how many more leases a user may have.

        Raises:
            HttpError: none.
        """
        room = MAX_LEASES - self._counts.get(owner, 0)
        if room <= 0:
            raise HttpError(
                429,
                f"there are {MAX_LEASES} leases that are not settled: settle some",
                "amqp:resource-limit-exceeded",
            )
        return room

    def add(self, name: str, holder: Holder, until: float, core: Core) -> None:
        """Add a lease."""
        self._core = core
        self._leases[name] = _Lease(holder, until)
        self._counts[holder.of] = self._counts.get(holder.of, 0) + 1
        self._wait(name, until)

    def _wait(self, name: str, until: float) -> None:
        assert self._core is not None
        heapq.heappush(self._times, (until, name))
        self._core.schedule(self, (until // STEP_S + 1) * STEP_S)

    def remove(self, name: str) -> None:
        """Remove a lease."""
        owner = self._leases.pop(name).holder.of
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]
        if len(self._times) > 2 * len(self._leases) + 1_000:
            # Those that were settled in time are most of them.
            self._times = [(lease.until, name) for name, lease in self._leases.items()]
            heapq.heapify(self._times)

    def find(self, name: Any, owner: LeaseOwner, address: str) -> Holder | None:
        """Return who holds a lease, if it is that user's at that address."""
        lease = self._leases.get(name) if isinstance(name, str) else None
        if lease is None or lease.holder.of != owner or lease.holder.address != address:
            return None
        return lease.holder

    def renew(self, name: str, until: float) -> None:
        """Have a lease last until another time."""
        self._leases[name].until = until
        self._wait(name, until)

    def on_deadline(self, now: float) -> None:
        """Give back the messages whose leases have ended."""
        times = self._times
        while times and times[0][0] <= now:
            _, name = heapq.heappop(times)
            lease = self._leases.get(name)
            if lease is not None and lease.until <= now:
                lease.holder.settle(name, FAILED)


class Confirmation:
    """Waits until the outcomes of several receivers are on disk.

    Args:
        done: called once they are.
    """

    __slots__ = ("_done", "_left")

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done
        self._left = 1

    def wait_for(self, consumer: Consumer) -> None:
        """Wait for a receiver's outcomes, too."""
        self._left += 1
        consumer.confirm(self.end)

    def end(self) -> None:
        """One of them is on disk; or, called last, all were named."""
        self._left -= 1
        if not self._left:
            self._done()
