"""When a device's reading has left its band, and what the alert says.

One alert is raised per device and window, as soon as a reading of that window lies outside: a
device that stays outside is heard of again in every window, one that returns falls silent. The
alert's id is made of device and window alone, so an alert that is sent again can be told.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from enmasse.pipeline.errors import OptionError

__all__ = ["Alert", "Band", "Bands", "Reading", "find_alerts"]


@dataclass(frozen=True)
class Band:
    """Values that are as they should be, both ends included."""

    low: float
    high: float

    @classmethod
    def parse(cls, text: str) -> Band:
        """A band from ``LOW:HIGH``; an end left empty is open.

        Raises:
            OptionError: the text is no band.
        """
        low, colon, high = text.partition(":")
        try:
            band = cls(float(low or "-inf"), float(high or "inf"))
        except ValueError:
            band = cls(0, -1)
        if not colon or math.isnan(band.low) or math.isnan(band.high) or band.low > band.high:
            raise OptionError(f"expected a band as LOW:HIGH, such as 10:35 or :80, got {text!r}")
        return band

    def holds(self, value: float) -> bool:
        """Whether the value lies inside."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Bands:
    """Which band applies to which device."""

    default: Band
    devices: Mapping[str, Band] = field(default_factory=dict)

    @classmethod
    def load(cls, default: Band, path: Path | None = None) -> Bands:
        """Bands of single devices from a JSON file such as ``{"freezer-1": "-25:-15"}``.

        Raises:
            OptionError: the file cannot be read as such.
        """
        if path is None:
            return cls(default)
        try:
            given = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise OptionError(f"the bands in {path} cannot be read: {error}") from error
        if not isinstance(given, dict) or not all(isinstance(text, str) for text in given.values()):
            raise OptionError(f'{path}: expected JSON such as {{"freezer-1": "-25:-15"}}')
        return cls(default, {device: Band.parse(text) for device, text in given.items()})

    def of(self, device: str) -> Band:
        """The band of one device."""
        return self.devices.get(device, self.default)


@dataclass(frozen=True)
class Reading:
    """What one window holds of one device so far."""

    device: str
    metric: str
    start: datetime
    end: datetime
    count: int
    mean: float
    low: float
    high: float
    deviation: float | None
    """Of the sample; ``None`` for a single reading."""

    def to_json(self) -> dict[str, Any]:
        """The form for progress lines."""
        return {
            "device": self.device,
            "metric": self.metric,
            "start": _iso(self.start),
            "end": _iso(self.end),
            "count": self.count,
            "mean": self.mean,
            "min": self.low,
            "max": self.high,
            "stddev": self.deviation,
        }


@dataclass(frozen=True)
class Alert:
    """A device left its band."""

    id: str
    """The same whenever this alert is sent again."""
    device: str
    metric: str
    value: float
    """The reading that lies furthest outside."""
    band: Band
    start: datetime
    """Start of the window."""
    end: datetime

    def to_json(self) -> dict[str, Any]:
        """The body of the message."""
        side, limit = ("above", self.band.high) if self.value > self.band.high else ("below", self.band.low)
        return {
            "id": self.id,
            "device": self.device,
            "metric": self.metric,
            "value": self.value,
            "band": [_finite(self.band.low), _finite(self.band.high)],
            "window": {"start": _iso(self.start), "end": _iso(self.end)},
            "text": f"{self.device}: {self.metric} {self.value:g} is {side} {limit:g}",
        }


def find_alerts(readings: Iterable[Reading], bands: Bands, metric: str) -> list[Alert]:
    """The alerts that these windows give rise to, at most one a window."""
    alerts = []
    for reading in readings:
        if reading.metric != metric:
            continue
        band = bands.of(reading.device)
        over, under = reading.high - band.high, band.low - reading.low
        if over <= 0 and under <= 0:
            continue
        alerts.append(
            Alert(
                f"{metric}/{reading.device}/{int(reading.start.timestamp())}",
                reading.device,
                metric,
                reading.high if over >= under else reading.low,
                band,
                reading.start,
                reading.end,
            )
        )
    return alerts


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
