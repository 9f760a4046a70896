"""The last minutes of each device, read from the table of raw messages and drawn with their alerts.

A history is drawn as lines of characters in the terminal, and as a PNG.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from enmasse.demo.devices import BAND
from enmasse.demo.figures import CommandFigures


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
class Order:
    """A command that a device was sent."""

    device: str
    moment: datetime
    name: str


@dataclass(frozen=True)
class History:
    """The contents of a picture."""

    curves: Sequence[Curve]
    """One for each device."""
    alarms: Sequence[Alarm]
    metric: str
    low: float
    """Below it an alert is raised."""
    high: float
    orders: Sequence[Order] = ()

    def alarms_of(self, device: str) -> list[Alarm]:
        """The alarms of one device."""
        return [alarm for alarm in self.alarms if alarm.device == device]


METRIC = "temperature"
MINUTES = 10


def count_rows(table: Path, since: datetime) -> Counter[str]:
    """Rows that were accepted since then, by device."""
    return Counter(device for device, _, _ in _messages(table, since))


def size(table: Path) -> int:
    """All rows of a table; 0 if there is none yet."""
    from deltalake import DeltaTable  # noqa: PLC0415  # an extra; without it there is no table either

    return DeltaTable(table).count() if DeltaTable.is_deltatable(str(table)) else 0


def last_minutes(
    table: Path, alerts: Iterable[Mapping[str, Any]], commands: Iterable[CommandFigures] = ()
) -> History:
    """The temperature of each device before its newest message, with alerts about it and commands to it."""
    found: defaultdict[str, list[tuple[datetime, float]]] = defaultdict(list)
    for device, moment, message in _messages(table, datetime.now(UTC) - timedelta(minutes=MINUTES)):
        if isinstance(value := message.get(METRIC), int | float):
            found[device].append((moment, float(value)))
    curves = []
    for device in sorted(found):
        moments, values = zip(*sorted(found[device]), strict=True)
        curves.append(Curve(device, METRIC, moments, values))
    alarms = [
        Alarm(str(alert["device"]), datetime.fromisoformat(str(alert["time"])), float(alert["value"]))
        for alert in alerts
        if alert.get("state") == "raised" and alert.get("metric") == METRIC
    ]
    low, high = (float(end) for end in BAND.split(":"))
    orders = [Order(command.device, datetime.fromtimestamp(command.at, UTC), command.name) for command in commands]
    return History(curves, alarms, METRIC, low, high, orders)


def _messages(table: Path, since: datetime) -> Iterator[tuple[str, datetime, dict[str, Any]]]:
    """Device, moment and content of the messages that were accepted since then."""
    import pyarrow as pa  # noqa: PLC0415  # extras; without them there is no table either
    import pyarrow.dataset as ds  # noqa: PLC0415
    from deltalake import DeltaTable  # noqa: PLC0415

    if not DeltaTable.is_deltatable(str(table)):
        return
    moment = pa.scalar(since, pa.timestamp("us", "UTC"))
    rows = DeltaTable(table).to_pyarrow_dataset().to_table(["timestamp", "value"], ds.field("timestamp") >= moment)
    for timestamp, value in zip(rows["timestamp"].to_pylist(), rows["value"].to_pylist(), strict=True):
        try:
            message = json.loads(value)
            device = message["device"]
        except (ValueError, KeyError, TypeError):
            continue
        yield device, timestamp, message


_BARS = "▁▂▃▄▅▆▇█"
_COLUMNS = 3
_BLUE, _RED, _BAND, _GREY = "#2563a8", "#d1332e", "#e6f2e9", "#5b6470"


def lines(history: History, width: int) -> Table:
    """The history as a table with a small curve for each device; alarming stretches are red.

    Args:
        history: the history to show.
        width: characters for a curve.
    """
    low = min((min(curve.values) for curve in history.curves if curve.values), default=0.0)
    high = max((max(curve.values) for curve in history.curves if curve.values), default=1.0)
    table = Table(title=f"{history.metric}, {low:.0f} to {high:.0f}", box=SIMPLE_HEAD, title_justify="left")
    table.add_column("device", no_wrap=True)
    table.add_column("the last minutes", no_wrap=True)
    for name in ("min", "now", "max", "alerts"):
        table.add_column(name, justify="right", no_wrap=True)
    for curve in history.curves:
        alarms = len(history.alarms_of(curve.device))
        table.add_row(
            curve.device,
            _sparkline(curve, history, low, high, width),
            f"{min(curve.values):.1f}",
            f"{curve.values[-1]:.1f}",
            f"{max(curve.values):.1f}",
            Text(str(alarms), style="bold red" if alarms else "dim"),
        )
    return table


def _sparkline(curve: Curve, history: History, low: float, high: float, width: int) -> Text:
    text = Text()
    for value in _resampled(curve.values, width, history):
        step = 0 if high <= low else (value - low) / (high - low)
        is_alarming = not history.low <= value <= history.high
        text.append(_BARS[min(len(_BARS) - 1, int(step * len(_BARS)))], style="red" if is_alarming else "cyan")
    return text


def _resampled(values: Sequence[float], width: int, history: History) -> list[float]:
    """One value for each character: the one furthest from the middle of the band, so that no peak is lost."""
    middle = (history.low + history.high) / 2
    count = min(width, len(values))
    cuts = [len(values) * number // count for number in range(count + 1)] if count else [0]
    return [max(values[a:b], key=lambda value: abs(value - middle)) for a, b in pairwise(cuts)]


def draw(history: History, path: Path) -> None:
    """Write the history as a PNG: one small chart for each device, all on the same axes.

    Raises:
        OSError: the file cannot be written.
    """
    rows = max(1, math.ceil(len(history.curves) / _COLUMNS))
    figure = Figure(figsize=(4.2 * _COLUMNS, 0.9 + 1.9 * rows), dpi=120, layout="constrained")
    band = f"no alert between {history.low:g} and {history.high:g}"
    figure.suptitle(f"{history.metric} of each device: {band}", x=0.01, ha="left", fontsize=13)
    grid = figure.subplots(rows, _COLUMNS, sharex=True, sharey=True, squeeze=False)
    places = [axes for row in grid for axes in row]
    for axes, curve in zip(places, history.curves, strict=False):
        _draw_curve(axes, curve, history)
    for axes in places[len(history.curves) :]:
        axes.set_visible(False)
    # The lowest chart of a column names the time, also where the grid is not full.
    for column in range(min(_COLUMNS, len(history.curves))):
        last = grid[(len(history.curves) - 1 - column) // _COLUMNS][column]
        last.tick_params(labelbottom=True)
    figure.savefig(path)


def _draw_curve(axes: Axes, curve: Curve, history: History) -> None:
    alarms = history.alarms_of(curve.device)
    axes.axhspan(history.low, history.high, color=_BAND, lw=0)
    axes.plot(date2num(curve.moments), curve.values, color=_BLUE, lw=1.2)
    if alarms:
        axes.plot(
            date2num([alarm.moment for alarm in alarms]),
            [alarm.value for alarm in alarms],
            ls="",
            marker="o",
            ms=5,
            mfc="none",
            mec=_RED,
            mew=1.5,
        )
    for order in history.orders:
        if order.device == curve.device and curve.moments[0] <= order.moment <= curve.moments[-1]:
            at, across = date2num(order.moment), axes.get_xaxis_transform()
            axes.axvline(at, color=_GREY, lw=1, ls=":")
            axes.text(at, 0.97, f" {order.name}", transform=across, fontsize=8, color=_GREY, va="top")
    axes.set_title(curve.device, loc="left", fontsize=10, color=_RED if alarms else "black")
    if alarms:
        word = "alert" if len(alarms) == 1 else "alerts"
        axes.set_title(f"{len(alarms)} {word}", loc="right", fontsize=9, color=_RED)
    locator = AutoDateLocator(minticks=2, maxticks=7)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))
    axes.tick_params(labelsize=8, colors=_GREY, length=2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#c4cad1")
