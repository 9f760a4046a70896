"""What is no traffic to compare between servers: measurements of EnMasse with a plan of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.accounting import Patience, cpu_seconds
from benchmarks.generators import Load, run
from benchmarks.node import Node
from benchmarks.peers import Peer

__all__ = ["Line", "Measurement", "Setting", "Traffic", "send_traffic"]


LIMIT_S = 900
"""What a number of messages may take: ten millions on a slow disk."""


@dataclass(frozen=True)
class Line:
    """One figure.

    Attributes:
        what: what it is of.
        value: how much.
        unit: of what.
        target: what we want; 0 is no wish.
        at_least: whether the target is a lower bound.
    """

    what: str
    value: float
    unit: str
    target: float = 0.0
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """Whether the target is met."""
        if not self.target:
            return ""
        is_met = self.value >= self.target if self.at_least else self.value <= self.target
        sign = ">=" if self.at_least else "<="
        return f"{'within' if is_met else 'MISSES'} {sign} {self.target:,g}"


@dataclass(frozen=True)
class Setting:
    """With what to measure.

    Attributes:
        directory: for what servers store.
        seconds: of each run of traffic.
        runs: of what is repeated.
        scale: of numbers of messages; 1 is what the names say.
        patience: waits for a quiet machine.
        peers: what is here to measure beside.
    """

    directory: Path
    seconds: float
    runs: int
    scale: float
    patience: Patience
    peers: Sequence[type[Peer]] = ()

    def count(self, messages: int) -> int:
        """A number of messages at this scale."""
        return max(1, round(messages * self.scale))

    @contextmanager
    def node(self, *options: str) -> Iterator[Node]:
        """A node with an empty journal, and more options of its command."""
        with TemporaryDirectory(prefix="run-", dir=self.directory) as directory:
            node = Node(Path(directory), options=options)
            try:
                yield node
            finally:
                node.stop()


@dataclass(frozen=True)
class Measurement:
    """A named measurement.

    Attributes:
        name: as lists and tables show it.
        measure: does it, line by line.
        missing: what it needs and is not here, in words; empty if it can be done.
    """

    name: str
    measure: Callable[[Setting], Iterator[Line]]
    missing: Callable[[], str] = str


@dataclass(frozen=True)
class Traffic:
    """What one run of the load generator cost.

    Attributes:
        result: as the generator tells it.
        node_us: CPU microseconds of the node per message.
        journal_us: the same of all other processes of the node.
    """

    result: dict[str, Any]
    node_us: float
    journal_us: float

    @property
    def us(self) -> float:
        """CPU microseconds per message."""
        return self.node_us + self.journal_us


def send_traffic(node: Node, address: str, *arguments: str, seconds: float = 0.0, warmup: float = 0.0) -> Traffic:
    """Run the load generator against a node.

    Args:
        node: which.
        address: where to.
        arguments: more of the generator's.
        seconds: how long; 0 where the arguments name a number of messages.
        warmup: how long to send before that.
    """
    before = {role: cpu_seconds(pids) for role, pids in node.processes.items()}
    where = ("--port", str(node.port), "--address", address, "--limit", str(LIMIT_S))
    everybody = [pid for pids in node.processes.values() for pid in pids]
    load = Load("amqp_load", (*where, *arguments))
    result = run(load, everybody, seconds=seconds, warmup=warmup, late=2 * LIMIT_S)
    used = {role: cpu_seconds(pids) - before[role] for role, pids in node.processes.items()}
    # With a warm-up these are the CPU seconds of the whole run, and so its messages count.
    messages = result["total_received"] or result["total_sent"]
    return Traffic(result, used["node"] / messages * 1e6, used["journal"] / messages * 1e6)
