"""What one seed plays: addresses, clients' habits and how much goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.faults import FaultRates

__all__ = ["AddressPlan", "Scenario", "make_scenario"]

STEPS = 75

LEAST_LIFE_S = 0.8
"""Of messages at addresses that limit it."""

CUT_TURNS = 0.2
"""How often turns bear little."""

NEIGHBOURS = 0.25
"""How often there are two nodes."""


@dataclass(frozen=True, slots=True)
class AddressPlan:
    """One address as it is declared."""

    name: str
    attributes: dict[str, Any]

    @property
    def kind(self) -> str:
        """Its type."""
        return str(self.attributes["addressType"])

    @property
    def is_alone(self) -> bool:
        """Whether nothing of it goes to other addresses."""
        return not {"deadletter", "expiry"} & self.attributes.keys()

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
        run_frames: of a stream, so many small frames are merged; 0 is as a real node has it.
        cuts_turns: whether turns bear so little that topics hand out nearly everything later.
        window: bytes that each address may have in memory; 0 is as a real node has it.
        priorities: to choose from.
        ttls: times to live to choose from, in seconds; 0 is for ever.
        delays: how long messages ask not to be delivered, in seconds.
        dated: the part of these that asks for a time of day in place of a delay.
        shifts: by how much the wall clock may be set, in seconds.
        groups: of messages, to choose from.
        keys: of the last-value option.
        colours: what selectors ask for.
        patience: how long a message may be held back, in seconds.
        has_neighbour: whether there is another node, with a space of its own.
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
    run_frames: int = 0
    cuts_turns: bool = False
    window: int = 0
    priorities: tuple[int, ...] = (4,)
    ttls: tuple[float, ...] = (0.0,)
    delays: tuple[float, ...] = (0.0,)
    dated: float = 0.0
    shifts: tuple[float, ...] = (0.0,)
    groups: tuple[str | None, ...] = (None,)
    keys: tuple[str | None, ...] = (None,)
    colours: tuple[str | None, ...] = (None,)
    patience: float = 0.0
    has_neighbour: bool = False


_DULL = dict[str, Any]()
_LETTERS = {"maxAttempts": 2, "deadletter": "dead"}
_QUEUE_OPTIONS: list[dict[str, Any]] = [
    _DULL,
    _DULL,
    {"storage": "durable"},
    {"storage": "memory"},
    {"maxAttempts": 3},
    _LETTERS,
    {**_LETTERS, "redeliveryDelay": 300, "redeliveryDelayMultiplier": 2.0, "maxRedeliveryDelay": 1_000},
    {"deadletter": "dead", "storage": "durable"},
    {"ttlMaximum": 2_000, "ttlMinimum": 200},
    {"ttlMinimum": 800, "expiry": "dead"},
    {"exclusive": True},
    {"maxConsumers": 2},
    {"maxBytes": 4_000},
    {"maxBytes": 4_000, "fullPolicy": "reject"},
    {"maxBytes": 4_000, "fullPolicy": "drop-oldest"},
    {"lastValueKey": "subject"},
]

_STREAM_OPTIONS: list[dict[str, Any]] = [_DULL, _DULL, {"retentionMs": 1_000}, {"retentionBytes": 2_000}]

_SUBJECTS: list[dict[str, Any]] = [
    {},
    {},
    {},
    {"priorities": (4, 4, 0, 9)},
    {"ttls": (0.0, 0.0, 0.5, 2.0)},
    {"delays": (0.0, 0.0, 0.4), "patience": 2.0},
    {"delays": (0.0, 1.5, 3.0), "patience": 5.0},
    {"delays": (0.4, 1.5, 3.0), "dated": 0.5, "shifts": (-5.0, 0.0, 5.0), "patience": 15.0},
    {"ttls": (0.0, 0.5, 2.0), "shifts": (-5.0, 0.0, 5.0)},
    {"groups": (None, "g1", "g2", "g3")},
    {"colours": (None, "red", "blue")},
    {"priorities": (4, 9), "colours": ("red", "blue")},
    {"priorities": (4, 1), "groups": ("g1", "g2")},
]
"""What messages of one scenario ask for; more at once than here are not told apart by the oracle."""


def make_scenario(seed: int) -> Scenario:
    """The scenario of a seed; the same for ever as long as this function is."""
    random = Random(seed)
    addresses: list[AddressPlan] = []
    for _ in range(random.choice([1, 1, 2])):
        _add(random, addresses)
    if any("dead" in plan.attributes.values() for plan in addresses):
        addresses.append(AddressPlan("dead", {"addressType": "deadletter"}))
    rates = FaultRates(
        disk_full=random.choice([0.0, 0.0, 0.1, 0.3]),
        journal_death=random.choice([0.0, 0.0, 0.05, 0.15]),
        refusal=random.choice([0.0, 0.0, 0.0, 0.05]),
        short_read=random.choice([0.0, 0.5]),
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
        "transact": random.choice([0.0, 0.0, 2.0]),
    }
    extras: dict[str, Any] = dict(random.choice(_SUBJECTS))
    if any(plan.option("ttlMinimum", 0) for plan in addresses) and max(extras.get("delays", (0.0,))) > LEAST_LIFE_S:
        # What expires before its time comes is never seen, so a look cannot tell whether it was there.
        extras = {}
    if any(plan.option("lastValueKey", "") for plan in addresses):
        extras = {"keys": (None, "a", "b", "c")}
        # Which message of a key is the latest is decided at the end of a transaction.
        weights["transact"] = 0.0
    if any(plan.option("redeliveryDelay", 0) for plan in addresses):
        extras["patience"] = max(2.0, extras.get("patience", 0.0))
    is_kept_for_a_while = any(plan.option("retentionMs", 0) for plan in addresses)
    # What a stream keeps goes by the times of its rows, and so by the wall clock.
    weights["set_clock"] = 0.3 if "shifts" in extras and not is_kept_for_a_while else 0.0
    return Scenario(
        seed,
        addresses,
        random.randint(STEPS // 2, STEPS * 3 // 2),
        rates,
        weights,
        durable=random.choice([0.5, 0.9, 1.0]),
        settled=random.choice([0.0, 0.1, 0.3]),
        padding=random.choice([(0,), (0, 20, 200), (0, 300, 3000)]),
        pause=0.4 if is_kept_for_a_while else random.choice([0.0, 0.02, 0.1]),
        run_frames=random.choice([0, 3, 5]),
        window=random.choice([0, 0, 3_000, 8_000]),
        cuts_turns=random.random() < CUT_TURNS,
        has_neighbour=random.random() < NEIGHBOURS,
        **extras,
    )


def _add(random: Random, addresses: list[AddressPlan]) -> None:
    index = len(addresses)
    kind = random.choice(["queue", "queue", "topic", "topic", "stream"])
    name = f"{kind}-{index}"
    if kind == "queue":
        addresses.append(AddressPlan(name, {"addressType": "queue", **random.choice(_QUEUE_OPTIONS)}))
    elif kind == "stream":
        attributes = {
            "addressType": "stream",
            "partitions": random.choice([1, 1, 2]),
            **random.choice(_STREAM_OPTIONS),
        }
        addresses.append(AddressPlan(name, attributes))
    else:
        addresses.append(AddressPlan(name, {"addressType": "topic"}))
        has_target = False
        for number in range(random.randint(1, 4)):
            options = random.choice([_DULL, _DULL, random.choice(_QUEUE_OPTIONS)])
            is_source = "dead" in options.values()
            if "maxBytes" in options or (is_source and has_target):
                # Copies of one message that come together in another address are not told apart.
                options = _DULL
            has_target = has_target or is_source
            attributes = {"addressType": "subscription", "topic": name, **options}
            addresses.append(AddressPlan(f"{name}-sub-{number}", attributes))
