"""``anomalies``: alerts about readings that are not as they should be, or not as they were.

For each device and metric there is a mean and a variance in which the newest reading weighs ``alpha``
(EWMA); while there are fewer than 1/alpha readings, and with alpha 0 always, all weigh the same. A reading
is outside when it leaves its band, or when it is more standard deviations from that mean than allowed. What
clears an alert may be narrower than what raises it (hysteresis), for each of the two rules by itself.

Rules:
1. Readings count in the order of the stream, late ones too, so nothing depends on how they were batched.
2. A reading is judged by what came before it, and only then taken into the mean.
3. An alert begins with the first reading outside (``raised``) and ends with the first inside
   (``cleared``); in between it is sent again (``repeated``) if that is wanted.
4. With a minimum duration it begins with the first reading that is so much younger, by its own moment, than one
   since which all were outside. Until then nothing is raised, so narrower limits do not count yet.
5. An alert's id names the reading that it is about, so that one that comes twice can be recognised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.builtins import AnomaliesParameters, band_limits
from enmasse.pipeline.builtin.device_state import Devices, by_bucket, name_codes
from enmasse.pipeline.builtin.plans import as_json_messages, checked, compaction_of, seconds
from enmasse.pipeline.builtin.telemetry import readings_of, telemetry_messages
from enmasse.pipeline.running.planning.plans import AddressTarget, JobPlan, QueryPlan, TableTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from enmasse.pipeline.running.planning.plans import PlanContext

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
"""Readings, mean, variance, what is outside, the moments of the last alert and of the last reading."""
_SEEN: Final = 5
_BAND: Final = 1
_DEVIATION: Final = 2
"""What an alert is about, together: in the state as a sum, 0 without an alert."""
_WAITING: Final = -1
"""Outside, but not for long enough: instead of the last alert's moment there is that of the first reading outside."""
_OPEN: Final = (-math.inf, math.inf)


@dataclass(frozen=True)
class AnomalyKeeper:
    """Finds anomalies in the readings of one bucket's devices."""

    bands: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By metric."""
    device_bands: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    """By device and metric, instead of those."""
    clear_bands: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By metric, what ends an alert, within the band."""
    device_clear_bands: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    """By device and metric, instead of those."""
    deviations: float | None = None
    clear_deviations: float | None = None
    """The deviations that end an alert; None: the same."""
    alpha: float = 0.05
    warm_up: int = 20
    min_deviation: float = 0.0
    repeat_s: float | None = None
    min_s: float = 0.0
    """The time for which readings are outside before an alert begins."""
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
        alerts: list[tuple[Any, ...]] = []
        if len(rows):
            codes, names = name_codes(rows["device"], rows["metric"])
            indexes = devices.rows_of(names, _NEW)
            touched = devices.numbers[indexes].tolist()
            self._judge(rows, codes.tolist(), names, touched, alerts)
            devices.numbers[indexes] = touched
            newest = float(devices.numbers[:, _SEEN].max())
            devices.keep_recent(_SEEN, newest - self.forget_s, self.most)
        return devices.to_bytes(), pd.DataFrame(alerts, columns=[name for name, _ in _COLUMNS])

    def _band(self, name: tuple[str, ...]) -> tuple[float, float]:
        device, metric = name
        return self.device_bands.get((device, metric), self.bands.get(metric, _OPEN))

    def _clear_band(self, name: tuple[str, ...]) -> tuple[float, float]:
        """Return the part of the device's band in which an alert ends."""
        device, metric = name
        low, high = self._band(name)
        of_metric = _OPEN if (device, metric) in self.device_bands else self.clear_bands.get(metric, _OPEN)
        least, most = self.device_clear_bands.get((device, metric), of_metric)
        return max(low, least), min(high, most)

    def _judge(
        self,
        rows: pd.DataFrame,
        codes: list[int],
        names: list[tuple[str, ...]],
        states: list[list[float]],
        alerts: list[tuple[Any, ...]],
    ) -> None:
        """Judge one reading after another, each by those before it."""
        bands = [self._band(name) for name in names]
        clear_bands = [self._clear_band(name) for name in names]
        # Distance and deviation are compared as squares: this loop is what limits the rate.
        warm_up = math.inf if self.deviations is None else self.warm_up
        allowed, least, alpha = (self.deviations or 0.0) ** 2, self.min_deviation**2, self.alpha
        clearing = allowed if self.clear_deviations is None else self.clear_deviations**2
        columns = ("value", "time_us", "heard_us", "partition", "offset")
        values = zip(codes, *[rows[name].tolist() for name in columns], strict=True)
        for code, value, time_us, heard_us, partition, offset in values:
            state = states[code]
            count, mean, variance, outside, last_alert, seen = state
            low, high = bands[code]
            distance = value - mean
            spread = variance if variance > least else least  # noqa: FURB136  # calls cost more than all else here
            is_far = count >= warm_up and distance * distance > allowed * spread
            found = 0 if low <= value <= high else _BAND
            if is_far:
                found += _DEVIATION
            time_s, seen_s = time_us / 1e6, heard_us / 1e6
            if found or outside:
                raised = int(outside) if outside > 0 else 0
                ends = clear_bands[code]
                if raised & ~found & _BAND and not ends[0] <= value <= ends[1]:
                    found += _BAND
                if raised & ~found & _DEVIATION and count >= warm_up and distance * distance > clearing * spread:
                    found += _DEVIATION
                change = ""
                since = time_s if not outside else last_alert
                if not found:
                    change = "cleared" if raised and self.cleared else ""
                elif raised:
                    if self.repeat_s is not None and time_s - last_alert >= self.repeat_s:
                        change = "repeated"
                elif time_s - since >= self.min_s:
                    change = "raised"
                else:
                    found, last_alert = _WAITING, since
                if change:
                    last_alert = time_s
                    reason = "" if change == "cleared" else "band" if found & _BAND else "deviation"
                    text = _text(change, reason, value, (bands[code], ends), state, time_s - since)
                    where = f"{partition}-{offset}"
                    alerts.append(
                        _alert(names[code], change, reason, value, bands[code], state, time_us, where, text)
                    )
            weight = 1.0 / (count + 1.0)
            if weight < alpha:
                weight = alpha
            step = weight * distance
            state[:] = (
                count + 1.0,
                mean + step,
                (1.0 - weight) * (variance + distance * step),
                float(found),
                last_alert,
                seen if seen > seen_s else seen_s,  # noqa: FURB136  # the same
            )


def _text(
    change: str,
    reason: str,
    value: float,
    bands: tuple[tuple[float, float], tuple[float, float]],
    state: list[float],
    lasted_s: float,
) -> str:
    """Return what is said of a value, by its band, the part of it that ends an alert, and what came before it."""
    if change == "cleared":
        return f"{value:g} is as it should be"
    band, ends = bands
    duration = f" for {lasted_s:g} s" if change == "raised" and lasted_s > 0 else ""
    if reason == "band":
        low, high = ends if band[0] <= value <= band[1] else band
        side = f"above {high:g}" if value > high else f"below {low:g}"
        return f"{value:g} is {side}{duration}"
    spread = f"with a standard deviation of {math.sqrt(state[2]):.3g}"
    return f"{value:g} is far from {state[1]:.4g}, {spread}{duration}"


def _alert(
    name: tuple[str, ...],
    change: str,
    reason: str,
    value: float,
    band: tuple[float, float],
    state: list[float],
    time_us: int,
    where: str,
    text: str,
) -> tuple[Any, ...]:
    device, metric = name
    count, mean, deviation = state[0], state[1], math.sqrt(state[2])
    low, high = (end if math.isfinite(end) else None for end in band)
    known = count >= 2  # one value has no deviation
    return (
        f"{metric}/{device}/{where}/{change}",
        device,
        metric,
        change,
        reason or None,
        value,
        low,
        high,
        mean if known else None,
        deviation if known else None,
        time_us,
        f"{device}: {metric} {text}",
    )


BUCKETS: Final = 8
"""More than the cores of a small machine, so that both halves of the work are about as large."""
MAX_ROWS: Final = 200_000
"""Rows of a batch: a worker holds a bucket's share at once, some 20 MB."""
STATE: Final = (f"anomalies 1: {BUCKETS} buckets of device, metric -> count, mean, variance, outside, told, heard",)


def build(context: PlanContext, parameters: AnomaliesParameters | Mapping[str, Any]) -> Sequence[QueryPlan | JobPlan]:
    """Return a query for the address and one for the table, as wanted.

    Raises:
        PlanError: a parameter is wrong.
    """
    wanted = checked(AnomaliesParameters, parameters)
    readings = readings_of(telemetry_messages(context, wanted, most=MAX_ROWS), wanted, wanted.metrics)
    alerts = alerts_of(readings, wanted)
    plans: list[QueryPlan | JobPlan] = []
    if wanted.alerts is not None:
        messages = as_json_messages(alerts, F.col("id"))
        plans.append(QueryPlan("alerts", messages, AddressTarget(wanted.alerts), STATE))
    if wanted.table is not None:
        plans.append(QueryPlan("table", alerts, TableTarget(wanted.table), STATE))
        plans.append(compaction_of(context, wanted.table))
    return plans


def alerts_of(readings: DataFrame, wanted: AnomaliesParameters) -> DataFrame:
    """Return the alerts that readings give rise to.

    Args:
        readings: the readings as ``readings_of`` gives them.
        wanted: the rules.
    """
    keeper = AnomalyKeeper(
        bands={metric: band_limits(band) for metric, band in wanted.bands.items()},
        device_bands={
            (device, metric): band_limits(band)
            for device, bands in wanted.device_bands.items()
            for metric, band in bands.items()
        },
        clear_bands={metric: band_limits(band) for metric, band in wanted.clear_bands.items()},
        device_clear_bands={
            (device, metric): band_limits(band)
            for device, bands in wanted.device_clear_bands.items()
            for metric, band in bands.items()
        },
        deviations=wanted.deviations,
        clear_deviations=wanted.clear_deviations,
        alpha=wanted.alpha,
        warm_up=wanted.warm_up,
        min_deviation=wanted.min_deviation,
        repeat_s=None if wanted.repeat_after is None else seconds(wanted.repeat_after),
        min_s=0.0 if wanted.min_duration is None else seconds(wanted.min_duration),
        cleared=wanted.cleared,
        forget_s=seconds(wanted.forget_after),
        most=max(1, wanted.max_devices // BUCKETS),
    )
    narrow = readings.selectExpr(
        "device",
        "metric",
        "value",
        "unix_micros(time) AS time_us",
        "unix_micros(timestamp) AS heard_us",
        "partition",
        "offset",
    )
    return by_bucket(narrow, keeper, BUCKETS).selectExpr(
        "id",
        "device",
        "metric",
        "state",
        "reason",
        "value",
        "low",
        "high",
        "mean",
        "deviation",
        "timestamp_micros(time_us) AS time",
        "text",
    )
