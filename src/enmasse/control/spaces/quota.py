"""Placement of addresses within the limits of a space: which have a place and which wait for one. Pure.

Rules:
1. An address that has a place keeps it, also when the limits become narrower than what is there.
2. An address that does not fit waits. As soon as there is room, those that waited longest come first;
   one that does not fit does not hold up one that does.
3. The time of waiting is measured by a number that rises with every object, never by a clock.

Two policies follow them: ``limits`` (this file) counts objects, as it is by default; ``credits``
(``credits.py``) is the arithmetic of EnMasse 1.0, for plans that use it.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Claim:
    """The resources that an object requests.

    Attributes:
        address: the name for applications.
        kind: the type of the address; ``user`` for a user.
        topic: of a subscription, the address of its topic.
        plan: the address plan.
        router: its router credit, as the plan writes it.
        broker: its broker credit, as the plan writes it.
        partitions: over how many brokers the plan spreads it.
    """

    address: str = ""
    kind: str = ""
    topic: str = ""
    plan: str = ""
    router: float = 0.0
    broker: float = 0.0
    partitions: int = 1


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an object.

    Attributes:
        brokers: the clusters or brokers that hold it; empty when the policy places it nowhere in particular.
    """

    brokers: tuple[str, ...] = ()


class Places(Protocol):
    """The places of one space under one policy.

    Attributes:
        plan: the name of the space plan, for messages.
    """

    plan: str

    def hold(self, key: str, order: int, claim: Claim, place: Place) -> None:
        """Restore a place that was given before."""

    def acquire(self, key: str, order: int, claim: Claim) -> Place | None:
        """Place an object, or move it when its claim has changed; None: it waits.

        Args:
            key: the object.
            order: a number that rises with every object that is created.
            claim: the requested resources.
        """

    def place_of(self, key: str) -> Place | None:
        """Return the place that an object has."""

    def refusal(self, key: str) -> str:
        """Return the reason why an object waits; empty when it does not."""

    def give_back(self, key: str) -> list[str]:
        """Release the place of an object, and return those that have got a place now."""

    def relimit(self, limits: dict[str, float]) -> list[str]:
        """Set the limits, and return those that have got a place now."""

    def excess(self, limits: dict[str, float]) -> list[str]:
        """Return a sentence for each of these limits that what is placed already exceeds."""

    def usage(self) -> dict[str, float]:
        """Return how much is used, by resource."""

    def probe(self, key: str, claim: Claim) -> Probe:
        """Return what ``acquire`` would do, and change nothing."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of ``Places.probe``.

    Attributes:
        place: the place of the object, None when it would wait.
        refusal: the reason to wait.
        usage: the amounts that would be used, the object included if it had a place.
        limits: by resource; what is left out is without limit.
    """

    place: Place | None
    refusal: str
    usage: dict[str, float]
    limits: dict[str, float]


class Waiting:
    """Objects that wait, by their age."""

    def __init__(self) -> None:
        self._claims: dict[str, tuple[int, Claim]] = {}
        self._order: list[tuple[int, str]] = []

    def __contains__(self, key: str) -> bool:
        return key in self._claims

    def __len__(self) -> int:
        return len(self._claims)

    def put(self, key: str, order: int, claim: Claim) -> None:
        """Add an object that waits, with its claim."""
        if key in self._claims:
            self.remove(key)
        self._claims[key] = (order, claim)
        if self._order and self._order[-1] < (order, key):
            self._order.append((order, key))
        else:
            insort(self._order, (order, key))

    def remove(self, key: str) -> None:
        """Remove an object that waits; one that does not wait is left alone."""
        if self._claims.pop(key, None) and len(self._order) > 2 * len(self._claims) + 8:
            # Swept together: taking one out of the middle moves all that follow.
            self._order = [item for item in self._order if self._is_current(item)]

    def oldest_first(self) -> Iterable[tuple[str, int, Claim]]:
        """Yield key, order and claim of those that wait; they may be taken out meanwhile."""
        for item in list(self._order):
            if self._is_current(item):
                yield item[1], *self._claims[item[1]]

    def oldest(self) -> str | None:
        """Return the key of the one that waits longest."""
        while self._order and not self._is_current(self._order[0]):
            del self._order[0]
        return self._order[0][1] if self._order else None

    def _is_current(self, item: tuple[int, str]) -> bool:
        found = self._claims.get(item[1])
        return found is not None and found[0] == item[0]


class CountedPlaces:
    """Places that are all alike: there are so many, or any number.

    Args:
        resource: the name of the limit, as ``addresses``.
        limits: by resource; without one there is no limit.
        plan: the name of the space plan, for messages.
    """

    def __init__(self, resource: str, limits: dict[str, float], plan: str) -> None:
        self.plan = plan
        self._resource = resource
        self._limit = limits.get(resource)
        self._placed: set[str] = set()
        self._waiting = Waiting()

    def hold(self, key: str, order: int, claim: Claim, place: Place) -> None:
        """Restore a place that was given before."""
        self._waiting.remove(key)
        self._placed.add(key)

    def acquire(self, key: str, order: int, claim: Claim) -> Place | None:
        """Place an object; None: it waits."""
        if key not in self._placed:
            if self._is_full():
                self._waiting.put(key, order, claim)
                return None
            self._waiting.remove(key)
            self._placed.add(key)
        return Place()

    def place_of(self, key: str) -> Place | None:
        """Return the place that an object has."""
        return Place() if key in self._placed else None

    def refusal(self, key: str) -> str:
        """Return why an object waits."""
        return self._refusal() if key in self._waiting else ""

    def _refusal(self) -> str:
        room = f"plan '{self.plan}' allows {self._limit:g}, {len(self._placed)} are used"
        return f"Quota exceeded for resource {self._resource}: {room}"

    def give_back(self, key: str) -> list[str]:
        """Release a place, and return those that have got one now."""
        self._waiting.remove(key)
        self._placed.discard(key)
        return self._let_in()

    def relimit(self, limits: dict[str, float]) -> list[str]:
        """Set the limit, and return those that have got a place now."""
        self._limit = limits.get(self._resource)
        return self._let_in()

    def excess(self, limits: dict[str, float]) -> list[str]:
        """Return a sentence if more is placed than a limit allows."""
        limit, used = limits.get(self._resource), len(self._placed)
        if limit is None or used <= limit:
            return []
        return [f"Quota exceeded for resource {self._resource}: {used} are used, the limit is {limit:g}"]

    def usage(self) -> dict[str, float]:
        """Return how many places are used."""
        return {self._resource: float(len(self._placed))}

    def probe(self, key: str, claim: Claim) -> Probe:
        """Return what ``acquire`` would do, and change nothing."""
        limits = {} if self._limit is None else {self._resource: self._limit}
        used = len(self._placed) + (key not in self._placed)
        if key not in self._placed and self._is_full():
            return Probe(None, self._refusal(), self.usage(), limits)
        return Probe(Place(), "", {self._resource: float(used)}, limits)

    def _is_full(self) -> bool:
        return self._limit is not None and len(self._placed) >= self._limit

    def _let_in(self) -> list[str]:
        let_in = []
        while not self._is_full() and (key := self._waiting.oldest()) is not None:
            self._waiting.remove(key)
            self._placed.add(key)
            let_in.append(key)
        return let_in
