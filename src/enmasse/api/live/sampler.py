"""The counters of all addresses at regular times: their rates now, and their series of the last hour.

Rules:
1. Nodes are asked whether or not anybody looks, so that the last hour is there when somebody does.
2. Asking takes a twentieth of a processor at most: where one reading takes long, the next one comes later.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from enmasse.api.live.connectors import flowing
from enmasse.api.live.history import KEPT_S, Recorded
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from enmasse.api.live.history import Values
    from enmasse.control.ports import FiguresSource

COUNTERS: Final = ("messagesIn", "messagesOut", "accepted", "rejected", "released", "modified")
"""The figures that only grow while a node runs: series show it for each second."""

GAUGES: Final = ("messagesStored", "bytesStored", "senders", "receivers", "creditGranted")
"""The figures that show the present."""

SAMPLED: Final = (*COUNTERS, *GAUGES)

SPACE_GAUGES: Final = ("messagesIn", "messagesOut", "messagesStored")
"""The figures that are kept of a space: what flows in a second, and what is stored."""

STEP_S: Final = 5.0
_SHARE: Final = 0.05  # of a processor
_PATIENCE_S: Final = 10.0  # a node with ten thousand addresses takes half a second


@dataclass(frozen=True, slots=True)
class Reading:
    """All figures at one time.

    Attributes:
        number: the number of the reading, from 1 on; 0: there was none yet.
        at: seconds since 1970.
        addresses: counters and gauges of each address, in the order of ``SAMPLED``, by ``<namespace>/<object name>``.
        rates: messages in and out a second, of the addresses where something flows.
        nodes: the statistics, health and problem of each node, by name.
        totals: counters and gauges of all addresses of a space together, and their rates, by ``<namespace>/<space>``.
        connectors: those of each space that has some, by ``<namespace>/<space>`` and their names.
        truncated_at: the number of addresses reported by a node that has more than these; 0: all are reported.
    """

    number: int = 0
    at: float = 0.0
    addresses: Mapping[str, Values] = field(default_factory=dict)
    rates: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    nodes: Mapping[str, NodeReading] = field(default_factory=dict)
    totals: Mapping[str, SpaceTotals] = field(default_factory=dict)
    connectors: Mapping[str, Mapping[str, dict[str, Any]]] = field(default_factory=dict)
    truncated_at: int = 0


@dataclass(frozen=True, slots=True)
class NodeReading:
    """The figures that a node gave of itself.

    Attributes:
        statistics: empty if it did not answer.
        health: the health as it sees it.
        problem: why it did not answer; empty if it did.
        cpu: the share of a processor that it used since the reading before.
    """

    statistics: Mapping[str, Any]
    health: Mapping[str, Any]
    problem: str = ""
    cpu: float | None = None


@dataclass(slots=True)
class SpaceTotals:
    """Of all addresses of a space together.

    Attributes:
        connections: the connections that clients have open.
        sessions: the sessions that outlive their connections.
        subscriptions: filters of sessions, and subscriptions that other receivers made.
        subscription_bytes: the bytes of memory that these take.
        stored: messages.
        bytes: the bytes of these.
        rate_in: messages in a second.
        rate_out: messages out a second.
    """

    connections: int = 0
    sessions: int = 0
    subscriptions: int = 0
    subscription_bytes: int = 0
    stored: float = 0
    bytes: float = 0
    rate_in: float = 0
    rate_out: float = 0


class Sampler:
    """Reads the figures of all nodes at regular times, and keeps the last hour.

    Args:
        sources: the ports to the nodes.
        wall: returns seconds since 1970.
        cpu: returns the processor time of this process in seconds.

    Attributes:
        latest: the last reading.
        times: the times of the readings of the last hour.
        addresses: the history of each, by ``<namespace>/<object name>``.
        spaces: the history of each, by ``<namespace>/<space>``.
        followers: called after each reading, with its time.
    """

    def __init__(
        self,
        sources: Sequence[FiguresSource],
        *,
        wall: Callable[[], float] = time.time,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self.latest = Reading()
        self.times: list[float] = []
        self.addresses = Recorded(COUNTERS, GAUGES)
        self.spaces = Recorded((), SPACE_GAUGES)
        self.followers: list[Callable[[float], Awaitable[None]]] = []
        self._sources = sources
        self._wall = wall
        self._cpu = cpu

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            began = self._cpu()
            await self.sample()
            await asyncio.sleep(max(STEP_S, (self._cpu() - began) / _SHARE))

    async def sample(self) -> None:
        """Take one reading."""
        before, at = self.latest, self._wall()
        passed = at - before.at
        addresses: dict[str, Values] = {}
        rates: dict[str, tuple[float, float]] = {}
        totals: dict[str, SpaceTotals] = {}
        nodes: dict[str, NodeReading] = {}
        connectors: dict[str, dict[str, dict[str, Any]]] = {}
        truncated_at = 0
        for source in self._sources:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    found = await source.figures(SAMPLED)
            except (TimeoutError, EnmasseError) as error:
                problem = str(error) or f"it did not answer within {_PATIENCE_S:g} s"
                nodes[source.name] = NodeReading({}, {}, problem)
                continue
            earlier = before.nodes.get(source.name)
            nodes[source.name] = NodeReading(
                found.statistics, found.health, cpu=_share(earlier, found.statistics, passed)
            )
            if found.has_more:
                truncated_at = len(found.addresses)
            for space in found.spaces:
                total = totals.setdefault(space["name"], SpaceTotals())
                total.connections += space.get("connections") or 0
                total.sessions += space.get("sessions") or 0
                total.subscriptions += space.get("subscriptions") or 0
                total.subscription_bytes += space.get("subscriptionBytes") or 0
                if told := space.get("connectorStatus"):
                    former = before.connectors.get(space["name"], {})
                    connectors.setdefault(space["name"], {}).update(flowing(told, former, passed))
            for number, address in enumerate(found.addresses):
                if number % 500 == 499:
                    await asyncio.sleep(0)
                self._take(address, at, passed, addresses, rates, totals)
        if not any(node.problem for node in nodes.values()):
            self.addresses.forget(before.addresses.keys() - addresses.keys())
            self.spaces.forget(before.totals.keys() - totals.keys())
        for name, total in totals.items():
            self.spaces.add(name, at, (round(total.rate_in, 2), round(total.rate_out, 2), total.stored))
        self.times.append(at)
        while self.times[0] < at - KEPT_S:
            del self.times[0]
        for follower in self.followers:
            await follower(at)
        self.latest = Reading(before.number + 1, at, addresses, rates, nodes, totals, connectors, truncated_at)

    def _take(
        self,
        address: dict[str, Any],
        at: float,
        passed: float,
        addresses: dict[str, Values],
        rates: dict[str, tuple[float, float]],
        totals: dict[str, SpaceTotals],
    ) -> None:
        name = address["name"]
        values = tuple([address.get(counter) or 0 for counter in SAMPLED])
        former = self.latest.addresses.get(name)
        addresses[name] = values
        total = totals.get(address["space"]) or totals.setdefault(address["space"], SpaceTotals())
        total.stored += values[_STORED]
        total.bytes += values[_BYTES]
        if values == former:
            return
        self.addresses.add(name, at, values)
        if former is not None and passed > 0:
            came, left = (max(0.0, values[index] - former[index]) / passed for index in (0, 1))
            if came or left:
                rates[name] = (came, left)
                total.rate_in += came
                total.rate_out += left


_STORED: Final = SAMPLED.index("messagesStored")
_BYTES: Final = SAMPLED.index("bytesStored")


def _share(earlier: NodeReading | None, statistics: Mapping[str, Any], passed: float) -> float | None:
    """Return the share of a processor that a node used since an earlier reading; None: that is not known."""
    former = (earlier.statistics if earlier else {}).get("cpuSeconds")
    now = statistics.get("cpuSeconds")
    if former is None or now is None or now < former or passed <= 0:
        return None
    return round(float(now - former) / passed, 3)
