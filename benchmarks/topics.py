"""Publishing among very many subscriptions of one topic, of which ten want each message.

    python benchmarks/topics.py

The core alone, over a storage in memory: what it costs to find subscriptions, to give each its message, and to keep
the accounts of durable ones. Links, sockets and the journal process are measured elsewhere.

Among 100,000 subscriptions a message costs more than among 1,000 for the processor's caches alone: to read and change
ten subscriptions chosen by chance, each of four small objects and without any of ours, takes four times as long (4.2
and 18 us on a machine where others ran, too).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from enmasse.message.outcomes import ACCEPTED
from enmasse.message.sections import Header, encode_message
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.core import Core
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.space import Space
from enmasse.testing.memory_storage import MemoryStorage

MESSAGES_A_TURN = 10
NAMES = 1_000
"""Names that messages are sent to, by turns: with changes in between, no sender remembers its subscriptions."""

BATCH = 1_000


class Port:
    """Both ends of links, without a protocol."""

    __slots__ = ("credit", "highest", "limit", "received", "sink", "unsettled")

    def __init__(self) -> None:
        self.credit = self.limit = self.highest = 1 << 40
        self.received = 0
        self.sink: Any = None
        self.unsettled: list[Any] = []

    def send(self, delivery: Any, _payload: bytes, settled: bool, _message_format: int = 0) -> None:
        """Take a message."""
        if not settled:
            self.unsettled.append(delivery)

    def grant(self, credit: int) -> None:
        """Have credit without end."""

    def settle(self, _delivery_id: int, _state: Any) -> None:
        """Ignore the outcome."""

    def follow(self, _delivery: Any) -> bool:
        """Say that it has gone out."""
        return False

    def detach(self, _error: Any = None) -> None:
        """Ignore the end."""

    def take_unsettled(self) -> list[Any]:
        """Return what has no outcome yet."""
        return []


class Bench:
    """One topic with its subscriptions.

    Args:
        kind: ``volatile`` or ``durable``.
        number: of subscriptions.
        matches: how many of them want each message.
    """

    def __init__(self, kind: str, number: int, matches: int) -> None:
        self.is_durable = kind == "durable"
        self.groups = max(1, number // matches)
        self.storage = MemoryStorage()
        self.core = Core(self.storage, lambda: None, self._failed)
        self.storage.listener = self.core
        self.core.log_numbers.next = 2_000
        space = Space(self.core, "ns/bench", lambda: "id")
        self.topic = Topic(self.core, "devices", 1_000)
        space.add(self.topic)
        self.topic.load()
        self.made = 0
        self.ports: list[Port] = []
        for index in range(number):
            self.ports.append(self.come(index % self.groups))
            if index % BATCH == 0:
                self.turn()
        self.turn()
        chance = random.Random(1)
        names = [f"devices/{chance.randrange(self.groups)}/up" for _ in range(NAMES)]
        sender: Any = Port()
        self.senders = [self.topic.make_producer(sender, name) for name in names]
        self.payload = encode_message(bytes(100), header=Header(durable=self.is_durable))

    @staticmethod
    def _failed(name: str, error: Exception) -> None:
        raise RuntimeError(name) from error

    def come(self, group: int) -> Port:
        """One more subscription."""
        self.made += 1
        port: Any = Port()
        options = AttachOptions(
            presettle=not self.is_durable,
            source=f"devices/{group}/up/#",
            is_durable=self.is_durable,
            container=f"client-{self.made}",
            name="s",
            expiry_policy="never",
        )
        port.sink = self.topic.attach_consumer(port, options)
        made: Port = port
        return made

    def turn(self) -> None:
        """One turn, and what it stores is committed."""
        now = time.monotonic()
        for _ in range(2):
            self.core.run_turn(now, int(time.time() * 1e6))
            if self.storage.pending:
                self.storage.commit()

    def change(self) -> None:
        """One subscription comes and one goes."""
        at = random.randrange(len(self.ports))
        gone, self.ports[at] = self.ports[at], self.come(random.randrange(self.groups))
        gone.sink.on_detached(closed=True)

    def publish(self, first: int) -> None:
        """One turn of messages, and of their outcomes."""
        for number in range(first, first + MESSAGES_A_TURN):
            self.senders[number % NAMES].on_message(self.payload, number, False, 0)
        self.turn()
        if self.is_durable:
            for subscription in self.touched(first):
                port = subscription.consumers[0].port
                unsettled, port.unsettled = port.unsettled, []
                for delivery in unsettled:
                    port.sink.on_outcome(delivery, ACCEPTED)
            self.turn()

    def touched(self, first: int) -> Any:
        """The subscriptions that got the messages of a turn; found as the topic finds them."""
        found: dict[Any, None] = {}
        for number in range(first, first + MESSAGES_A_TURN):
            found.update(dict.fromkeys(self.topic.routes(self.senders[number % NAMES].target)[0]))
        return found

    def run(self, seconds: float, changes: int) -> tuple[float, float]:
        """Return the CPU microseconds of a message and of a change."""
        began = time.perf_counter()
        messages = changed = 0
        publishing = changing = 0.0
        while (elapsed := time.perf_counter() - began) < seconds:
            before = time.thread_time()
            while changed < elapsed * changes:
                self.change()
                self.turn()
                changed += 1
            between = time.thread_time()
            self.publish(messages)
            messages += MESSAGES_A_TURN
            changing += between - before
            publishing += time.thread_time() - between
        return 1e6 * publishing / messages, 1e6 * changing / max(1, changed)


def main() -> None:
    """Measure, and print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--subscriptions", type=int, nargs="*", default=[1_000, 100_000])
    parser.add_argument("--matches", type=int, default=10)
    options = parser.parse_args()
    print(f"{'subscriptions':<24}{'changes/s':>10}{'us a message':>14}{'us a change':>13}")
    for kind in ("volatile", "durable"):
        for number in options.subscriptions:
            bench = Bench(kind, number, options.matches)
            for changes in (0, 1_000):
                message, change = bench.run(options.seconds, changes)
                shown = f"{change:.1f}" if changes else ""
                print(f"{f'{number:,} {kind}':<24}{changes:>10,}{message:>14.1f}{shown:>13}", flush=True)


if __name__ == "__main__":
    main()
