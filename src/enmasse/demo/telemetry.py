"""What the table of raw messages holds of the devices."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from enmasse.demo.devices import BAND
from enmasse.demo.history import Alarm, Curve, History

__all__ = ["count_rows", "last_minutes"]

METRIC = "temperature"
MINUTES = 10


def count_rows(table: Path, since: datetime) -> Counter[str]:
    """Rows that were accepted since then, by device."""
    return Counter(device for device, _, _ in _messages(table, since))


def last_minutes(table: Path, alerts: Iterable[Mapping[str, Any]]) -> History:
    """The temperature of each device before its newest message, and the alerts that were raised about it."""
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
    return History(curves, alarms, METRIC, low, high)


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
