"""What simulated devices measure: smooth curves with a little noise, and an excursion on demand."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

__all__ = ["BAND", "FLEET", "PROTON_FLEET", "SPACE", "SPACE_HOST", "SimulatedDevice", "make_fleet"]

SPACE = "default/demo"
"""The space of the examples, by its full name."""
SPACE_HOST = "demo.default"
"""The host name that chooses it, should there be others beside it."""

BAND = "10:35"
"""Degrees in which every device lives; the job raises an alert outside."""

FLEET = (
    "boiler-1",
    "boiler-2",
    "chiller-1",
    "press-1",
    "press-2",
    "conveyor-1",
    "conveyor-2",
    "greenhouse-1",
)
PROTON_FLEET = ("pump-1", "pump-2")
"""These speak through python-qpid-proton."""

_PERIOD_S = 40.0
_EXCURSION = 18.0
"""Degrees above the middle of the band at the peak: clearly outside."""


class SimulatedDevice:
    """One device.

    Args:
        name: its name, also the partition key of what it sends.
        seed: what makes it differ from others.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self._random = random.Random(seed)  # noqa: S311  # noise, no secret
        self._middle = self._random.uniform(18.0, 25.0)
        self._phase = self._random.uniform(0.0, 2 * math.pi)
        self._excursion_until = 0.0

    def leave_band(self, now: float, seconds: float) -> None:
        """Run hot for so long."""
        self._excursion_until = now + seconds

    def measure(self, now: float) -> dict[str, Any]:
        """The message of this moment (seconds since 1970)."""
        wave = math.sin(2 * math.pi * now / _PERIOD_S + self._phase)
        temperature = self._middle + 2.5 * wave + self._random.gauss(0.0, 0.2)
        if now < self._excursion_until:
            temperature += _EXCURSION
        return {
            "device": self.name,
            "ts": round(now * 1000),
            "temperature": round(temperature, 2),
            "humidity": round(45.0 + 8.0 * math.cos(wave) + self._random.gauss(0.0, 0.5), 1),
            "vibration": round(abs(self._random.gauss(0.8, 0.2)), 3),
        }


def make_fleet(names: Sequence[str], seed: int = 1) -> list[SimulatedDevice]:
    """Devices of these names, the same ones for the same seed."""
    return [SimulatedDevice(name, seed * 1000 + number) for number, name in enumerate(names)]
