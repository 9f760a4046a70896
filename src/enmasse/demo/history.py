"""Each device's last minutes, and what was alarming in them: what charts are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

__all__ = ["Alarm", "Curve", "History"]


@dataclass(frozen=True)
class Curve:
    """One metric of one device over time."""

    device: str
    metric: str
    moments: Sequence[datetime]
    """Rising."""
    values: Sequence[float]


@dataclass(frozen=True)
class Alarm:
    """A reading that raised an alert."""

    device: str
    moment: datetime
    value: float


@dataclass(frozen=True)
class History:
    """What a picture shows."""

    curves: Sequence[Curve]
    """One for each device."""
    alarms: Sequence[Alarm]
    metric: str
    low: float
    """Below it an alert is raised."""
    high: float

    def alarms_of(self, device: str) -> list[Alarm]:
        """The alarms of one device."""
        return [alarm for alarm in self.alarms if alarm.device == device]
