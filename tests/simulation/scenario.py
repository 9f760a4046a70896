"""What one seed plays: addresses, clients' habits and how much goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from enmasse.testing.faults import FaultRates

__all__ = ["AddressPlan", "Scenario", "make_scenario"]

STEPS = 110


@dataclass(frozen=True, slots=True)
class AddressPlan:
    """One address as it is declared."""

    name: str
    attributes: dict[str, Any]

    @property
    def kind(self) -> str:
        """Its type."""
        return str(self.attributes["addressType"])

    def option(self, name: str, default: Any) -> Any:
        """One of its attributes."""
        return self.attributes.get(name, default)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What one seed plays.

    Attributes:
        weights: how often each action of a client is chosen, by its name.
        durable: the part of the messages that is durable.
        padding: sizes of messages' bodies to choose from.
        calm: how likely a step ends in everything being done and compared exactly.
        look: how likely a step ends in a look at what a restart would find.
        pause: how long a step may take, in seconds.
    """

    seed: int
    addresses: list[AddressPlan]
    steps: int
    rates: FaultRates
    weights: dict[str, float] = field(default_factory=dict)
    durable: float = 0.8
    settled: float = 0.15
    padding: tuple[int, ...] = (0,)
    calm: float = 0.02
    look: float = 0.03
    pause: float = 0.05


def make_scenario(seed: int) -> Scenario:
    """The scenario of a seed; the same for ever as long as this function is."""
    random = Random(seed)
    addresses: list[AddressPlan] = []
    for _ in range(random.randint(1, 2)):
        _add(random, addresses)
    rates = FaultRates(
        disk_full=random.choice([0.0, 0.0, 0.1, 0.3]),
        journal_death=random.choice([0.0, 0.0, 0.05, 0.15]),
        refusal=random.choice([0.0, 0.0, 0.0, 0.05]),
        stale_read=random.choice([0.0, 0.5]),
        crash=random.choice([0.0, 0.01, 0.01, 0.03]),
    )
    weights = {
        "send": random.choice([4.0, 8.0, 12.0]),
        "receive": random.choice([2.0, 4.0, 6.0]),
        "finish": random.choice([2.0, 5.0, 8.0]),
        "block": random.choice([0.0, 0.3]),
        "drain": random.choice([0.0, 0.3]),
        "lose_receiver": random.choice([0.1, 0.5]),
        "lose_sender": random.choice([0.1, 0.5]),
        "journal": random.choice([3.0, 6.0, 12.0]),
        "pass_time": 1.0,
    }
    return Scenario(
        seed,
        addresses,
        random.randint(STEPS // 2, STEPS * 3 // 2),
        rates,
        weights,
        durable=random.choice([0.5, 0.9, 1.0]),
        settled=random.choice([0.0, 0.1, 0.3]),
        padding=random.choice([(0,), (0, 20, 200), (0, 300, 3000)]),
        pause=random.choice([0.0, 0.02, 0.1]),
    )


def _add(random: Random, addresses: list[AddressPlan]) -> None:
    index = len(addresses)
    kind = random.choice(["queue", "queue", "topic", "topic", "stream"])
    name = f"{kind}-{index}"
    if kind == "queue":
        addresses.append(AddressPlan(name, {"addressType": "queue", **_storage(random)}))
    elif kind == "stream":
        addresses.append(AddressPlan(name, {"addressType": "stream", "partitions": random.choice([1, 1, 2])}))
    else:
        addresses.append(AddressPlan(name, {"addressType": "topic"}))
        for number in range(random.randint(1, 4)):
            attributes = {"addressType": "subscription", "topic": name, **_storage(random)}
            addresses.append(AddressPlan(f"{name}-sub-{number}", attributes))


def _storage(random: Random) -> dict[str, Any]:
    return {}
