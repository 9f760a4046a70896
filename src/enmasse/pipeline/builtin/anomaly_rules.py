"""When a reading is an anomaly, and what is told of it.

For each device and metric there is a mean and a variance in which the newest reading weighs ``alpha``
(EWMA); while there are fewer than 1/alpha readings, and with alpha 0 always, all weigh the same. A reading
is outside when it leaves its band, or when it is more standard deviations from that mean than allowed.

Rules:
1. Readings count in the order of the stream, late ones too, so nothing depends on how they were batched.
2. A reading is judged by what came before it, and only then taken into the mean.
3. An alert begins with the first reading outside (``raised``) and ends with the first inside
   (``cleared``); in between it is told again (``repeated``) if that is wanted.
4. An alert's id names the reading that it is about, so that one that comes twice can be told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from enmasse.pipeline.builtin.devices import Devices, name_codes

__all__ = ["AnomalyKeeper"]

_COLUMNS: Final = (
    ("id", "STRING"),
    ("device", "STRING"),
    ("metric", "STRING"),
    ("state", "STRING"),
    ("reason", "STRING"),
    ("value", "DOUBLE"),
    ("low", "DOUBLE"),
    ("high", "DOUBLE"),
    ("mean", "DOUBLE"),
    ("deviation", "DOUBLE"),
    ("time_us", "BIGINT"),
    ("text", "STRING"),
)
_NEW: Final = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Readings, mean, variance, whether outside, when that was last told, when last heard."""
_HEARD: Final = 5
_OPEN: Final = (-math.inf, math.inf)


@dataclass(frozen=True)
class AnomalyKeeper:
    """Looks at the readings of one bucket's devices."""

    bands: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By metric."""
    device_bands: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    """By device and metric, instead of those."""
    deviations: float | None = None
    alpha: float = 0.05
    warm_up: int = 20
    min_deviation: float = 0.0
    repeat_s: float | None = None
    cleared: bool = True
    forget_s: float = 86_400.0
    most: int = 1_000_000
    """Devices times metrics of one bucket."""

    @property
    def columns(self) -> str:
        """The columns of alerts."""
        return ", ".join(f"{name} {kind}" for name, kind in _COLUMNS)

    def __call__(self, kept: bytes | None, rows: pd.DataFrame, now_us: int) -> tuple[bytes, pd.DataFrame]:
        """Take readings: ``device, metric, value, time_us, heard_us, partition, offset``."""
        devices = Devices(len(_NEW), kept)
        told: list[tuple[Any, ...]] = []
        if len(rows):
            codes, names = name_codes(rows["device"], rows["metric"])
            indexes = devices.rows_of(names, _NEW)
            touched = devices.numbers[indexes].tolist()
            self._judge(rows, codes.tolist(), names, touched, told)
            devices.numbers[indexes] = touched
            newest = float(devices.numbers[:, _HEARD].max())
            devices.keep_recent(_HEARD, newest - self.forget_s, self.most)
        return devices.to_bytes(), pd.DataFrame(told, columns=[name for name, _ in _COLUMNS])

    def _judge(
        self,
        rows: pd.DataFrame,
        codes: list[int],
        names: list[tuple[str, ...]],
        states: list[list[float]],
        told: list[tuple[Any, ...]],
    ) -> None:
        """One reading after another: each is judged by those before it."""
        bands = [self.device_bands.get((name[0], name[1]), self.bands.get(name[1], _OPEN)) for name in names]
        # Distance and deviation are compared as squares: this loop is what limits the rate.
        warm_up = math.inf if self.deviations is None else self.warm_up
        allowed, least, alpha = (self.deviations or 0.0) ** 2, self.min_deviation**2, self.alpha
        columns = ("value", "time_us", "heard_us", "partition", "offset")
        values = zip(codes, *[rows[name].tolist() for name in columns], strict=True)
        for code, value, time_us, heard_us, partition, offset in values:
            state = states[code]
            count, mean, variance, is_outside, last_told, heard = state
            low, high = bands[code]
            reason = "" if low <= value <= high else "band"
            distance = value - mean
            spread = variance if variance > least else least  # noqa: FURB136  # calls cost more than all else here
            if not reason and count >= warm_up and distance * distance > allowed * spread:
                reason = "deviation"
            time_s, heard_s = time_us / 1e6, heard_us / 1e6
            say = ""
            if reason:
                if not is_outside:
                    say = "raised"
                elif self.repeat_s is not None and time_s - last_told >= self.repeat_s:
                    say = "repeated"
            elif is_outside and self.cleared:
                say = "cleared"
            if say:
                last_told = time_s
                where = f"{partition}-{offset}"
                told.append(_alert(names[code], say, reason, value, (low, high), state, time_us, where))
            weight = 1.0 / (count + 1.0)
            if weight < alpha:
                weight = alpha
            step = weight * distance
            state[:] = (
                count + 1.0,
                mean + step,
                (1.0 - weight) * (variance + distance * step),
                float(bool(reason)),
                last_told,
                heard if heard > heard_s else heard_s,  # noqa: FURB136
            )


def _alert(
    name: tuple[str, ...],
    say: str,
    reason: str,
    value: float,
    band: tuple[float, float],
    state: list[float],
    time_us: int,
    where: str,
) -> tuple[Any, ...]:
    device, metric = name
    count, mean, deviation = state[0], state[1], math.sqrt(state[2])
    low, high = (end if math.isfinite(end) else None for end in band)
    if say == "cleared":
        text = f"{device}: {metric} {value:g} is as it should be"
    elif reason == "band":
        side, end = ("above", band[1]) if value > band[1] else ("below", band[0])
        text = f"{device}: {metric} {value:g} is {side} {end:g}"
    else:
        text = f"{device}: {metric} {value:g} is far from {mean:.4g}, with a standard deviation of {deviation:.3g}"
    known = count >= 2  # one value has no deviation
    return (
        f"{metric}/{device}/{where}/{say}",
        device,
        metric,
        say,
        reason or None,
        value,
        low,
        high,
        mean if known else None,
        deviation if known else None,
        time_us,
        text,
    )
