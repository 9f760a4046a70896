"""The plan credits of EnMasse 1.0: exact arithmetic of routers and brokers. Pure.

Rules:
1. Router credits of all addresses of a space are summed up under one id.
2. A queue has ``max(plan's partitions, ceil(credit))`` parts, each on another pooled broker: the first in the
   order of names with room for it (a broker takes credits up to 1), else a new one.
3. A topic below 1 is placed as a queue of one part; from 1 on it has a cluster of its own of ``ceil(credit)``
   members.
4. A subscription sits with its topic, on the least used member. What subscriptions use of a broker is counted
   apart, up to 1, and does not enter the sums.
5. Dead letters cost nothing.
6. Of each id ``ceil(used)`` is needed. Per resource, and over routers and brokers together (``aggregate``), the
   sum of what is needed must not exceed the limit.

Credits are fractions, not floating point: ten times 0.1 is one.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

from enmasse.control.spaces.quota import Claim, Place, Probe, Waiting

if TYPE_CHECKING:
    from collections.abc import Iterator


_NAMES = 1 << 16  # of brokers: four hexadecimal digits


@dataclass(slots=True)
class _Use:
    """The credits that the placed objects of a space use."""

    routers: Fraction = Fraction()
    pooled: dict[str, Fraction] = field(default_factory=dict)
    sharded: dict[str, Fraction] = field(default_factory=dict)
    subscribed: defaultdict[str, Fraction] = field(default_factory=lambda: defaultdict(Fraction))


class CreditPlaces:
    """The places of one space, in credits.

    Args:
        space: ``<namespace>/<space>``.
        limits: of ``router``, ``broker`` and ``aggregate``; what is left out is without limit.
        plan: the name of the space plan, for messages.
        is_pooled: whether queues share brokers; in a brokered space all are on one.
    """

    def __init__(self, space: str, limits: dict[str, float], plan: str, *, is_pooled: bool = True) -> None:
        self.plan = plan
        self._space = space
        self._limits = _exact(limits)
        self._is_pooled = is_pooled
        self._infra = hashlib.sha256(space.replace("/", ".").encode()).hexdigest()[:7]
        self._placed: dict[str, tuple[int, Claim, Place]] = {}
        self._topics: dict[str, str] = {}
        self._use = _Use()
        self._waiting = Waiting()
        self._refusals: dict[str, str] = {}

    def hold(self, key: str, order: int, claim: Claim, place: Place) -> None:
        """Restore a place that was given before."""
        self._take_back(key)
        self._forget(key)
        self._put(key, order, claim, place)

    def acquire(self, key: str, order: int, claim: Claim) -> Place | None:
        """Place an object, or move it when its claim has changed; None: it waits.

        An object that finds no place for its new claim keeps the one that it has.
        """
        former = self._placed.get(key)
        if former is not None and former[1] == claim:
            self._forget(key)
            return former[2]
        self._take_back(key)
        place, refusal = self._find(claim, former[2].brokers if former else ())
        if place is not None:
            self._put(key, order, claim, place)
            self._forget(key)
            return place
        if former is not None:
            self._put(key, *former)
        self._waiting.put(key, order, claim)
        self._refusals[key] = refusal
        return None

    def place_of(self, key: str) -> Place | None:
        """Return the place that an object has."""
        found = self._placed.get(key)
        return found[2] if found else None

    def refusal(self, key: str) -> str:
        """Return why an object waits."""
        return self._refusals.get(key, "")

    def give_back(self, key: str) -> list[str]:
        """Release the place of an object, and return those that have got a place now."""
        had = key in self._placed
        self._take_back(key)
        self._forget(key)
        return self._let_in() if had else []

    def relimit(self, limits: dict[str, float]) -> list[str]:
        """Set the limits, and return those that have got a place now."""
        self._limits = _exact(limits)
        return self._let_in()

    def excess(self, limits: dict[str, float]) -> list[str]:
        """Return a sentence for each of these limits that what is placed already exceeds."""
        return list(_exceeded(self._needed(), _exact(limits)))

    def usage(self) -> dict[str, float]:
        """Return how many routers and brokers are needed, and both together."""
        return {name: float(value) for name, value in self._needed().items()}

    def probe(self, key: str, claim: Claim) -> Probe:
        """Return what ``acquire`` would do, and change nothing."""
        limits = {name: float(value) for name, value in self._limits.items()}
        former = self._placed.get(key)
        if former is not None and former[1] == claim:
            return Probe(former[2], "", self.usage(), limits)
        self._take_back(key)
        place, refusal = self._find(claim, former[2].brokers if former else ())
        if place is not None:
            self._count(claim, place, 1)
            usage = self.usage()
            self._count(claim, place, -1)
        if former is not None:
            self._put(key, *former)
        return Probe(place, refusal, self.usage() if place is None else usage, limits)

    # What is used

    def _needed(self) -> dict[str, int]:
        routers = ceil(self._use.routers)
        brokers = sum(ceil(used) for used in (*self._use.pooled.values(), *self._use.sharded.values()))
        return {"router": routers, "broker": brokers, "aggregate": routers + brokers}

    def _put(self, key: str, order: int, claim: Claim, place: Place) -> None:
        self._placed[key] = (order, claim, place)
        if claim.kind == "topic":
            self._topics[claim.address] = key
        self._count(claim, place, 1)

    def _take_back(self, key: str) -> None:
        found = self._placed.pop(key, None)
        if found is None:
            return
        if self._topics.get(found[1].address) == key:
            del self._topics[found[1].address]
        self._count(found[1], found[2], -1)

    def _count(self, claim: Claim, place: Place, sign: int) -> None:
        use = self._use
        use.routers += sign * _fraction(claim.router)
        if not place.brokers:
            return
        credit = _fraction(claim.broker)
        if claim.kind == "subscription":
            for broker in place.brokers:
                use.subscribed[broker] += sign * credit
        elif _is_sharded_topic(claim):
            use.sharded[place.brokers[0]] = use.sharded.get(place.brokers[0], Fraction()) + sign * credit
            if not use.sharded[place.brokers[0]]:
                del use.sharded[place.brokers[0]]
        else:
            for broker, count in Counter(place.brokers).items():
                use.pooled[broker] = use.pooled.get(broker, Fraction()) + sign * credit * count / len(place.brokers)
            self._retire()

    def _retire(self) -> None:
        """Forget brokers on which nothing is placed any more."""
        for name in [name for name, used in self._use.pooled.items() if used <= 0]:
            del self._use.pooled[name]

    # Looking for a place

    def _find(self, claim: Claim, former: tuple[str, ...]) -> tuple[Place | None, str]:
        brokers, refusal = self._brokers(claim, former)
        if refusal:
            return None, refusal
        place = Place(brokers)
        self._count(claim, place, 1)
        problem = next(_exceeded(self._needed(), self._limits), "")
        self._count(claim, place, -1)
        return (None, f"{problem} of plan '{self.plan}'") if problem else (place, "")

    def _brokers(self, claim: Claim, former: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        credit = _fraction(claim.broker)
        if claim.kind == "subscription":
            return self._broker_of_subscription(claim, credit)
        if claim.kind not in ("queue", "topic", "stream"):
            return (), ""
        if not self._is_pooled:
            return (f"broker-{self._infra}",), ""
        if _is_sharded_topic(claim):
            digest = zlib.crc32(f"{self._space.replace('/', '')}{claim.address}".encode())
            return (f"broker-sharded-{digest:08x}-{self._infra}",), ""
        parts = 1 if claim.kind == "topic" else max(claim.partitions, ceil(credit), 1)
        return self._pooled(parts, credit / parts, former), ""

    def _pooled(self, parts: int, cost: Fraction, former: tuple[str, ...]) -> tuple[str, ...]:
        pooled = self._use.pooled
        # Where it was it stays, if there is room: moving a queue is dear.
        order = [*(name for name in former if name in pooled), *sorted(set(pooled) - set(former))]
        chosen = [name for name in order if pooled[name] + cost <= 1][:parts]
        names = self._new_names()
        while len(chosen) < parts:
            chosen.append(next(names))
        return tuple(chosen)

    def _new_names(self) -> Iterator[str]:
        """Yield names for brokers: the same after a restart, and random-looking."""
        for number in range(_NAMES):
            digits = hashlib.sha256(f"{self._infra}/{number}".encode()).hexdigest()[:4]
            if (name := f"broker-{self._infra}-{digits}") not in self._use.pooled:
                yield name

    def _broker_of_subscription(self, claim: Claim, credit: Fraction) -> tuple[tuple[str, ...], str]:
        topic = self._topics.get(claim.topic)
        if topic is None:
            return (), f"topic '{claim.topic}' has no place yet"
        _, above, place = self._placed[topic]
        members = place.brokers
        if _is_sharded_topic(above):
            members = tuple(f"{place.brokers[0]}-{number}" for number in range(ceil(_fraction(above.broker))))
        if not members:
            return (), ""
        least = min(members, key=lambda name: (self._use.subscribed.get(name, Fraction()), name))
        if self._is_pooled and self._use.subscribed.get(least, Fraction()) + credit > 1:
            return (
                (),
                f"Quota exceeded for resource broker: the subscriptions of topic '{claim.topic}' fill its brokers",
            )
        return (least,), ""

    # Those that wait

    def _forget(self, key: str) -> None:
        self._waiting.remove(key)
        self._refusals.pop(key, None)

    def _let_in(self) -> list[str]:
        let_in = []
        for key, order, claim in self._waiting.oldest_first():
            if self.acquire(key, order, claim) is not None:
                let_in.append(key)
        return let_in


def _is_sharded_topic(claim: Claim) -> bool:
    return claim.kind == "topic" and claim.broker >= 1


def _exceeded(needed: dict[str, int], limits: dict[str, Fraction]) -> Iterator[str]:
    for resource, value in needed.items():
        limit = limits.get(resource)
        if limit is not None and value > limit:
            yield f"Quota exceeded for resource {resource}: {value} would be needed, the limit is {float(limit):g}"


def _exact(limits: dict[str, float]) -> dict[str, Fraction]:
    return {name: _fraction(value) for name, value in limits.items()}


def _fraction(value: float) -> Fraction:
    """Return a credit as it was written: 0.1 is a tenth, and not what a computer makes of it."""
    return Fraction(repr(value))
