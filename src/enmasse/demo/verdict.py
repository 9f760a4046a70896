"""What the demonstration ends with: sent against stored, device by device, and whether all is well."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path

from rich.table import Table

from enmasse.demo.figures import Figures

__all__ = ["Verdict", "count_raw_rows"]


def count_raw_rows(table: Path, since: datetime) -> Counter[str]:
    """Rows of the table ``raw`` that were accepted since then, by device."""
    import pyarrow as pa  # noqa: PLC0415  # an extra; without it there is no table either
    import pyarrow.dataset as ds  # noqa: PLC0415

    counts: Counter[str] = Counter()
    if not table.is_dir():
        return counts
    moment = pa.scalar(since, pa.timestamp("us", "UTC"))
    rows = ds.dataset(table, format="parquet").to_table(["value"], filter=ds.field("timestamp") >= moment)
    for value in rows.column("value").to_pylist():
        try:
            counts[json.loads(value)["device"]] += 1
        except (ValueError, KeyError, TypeError):
            continue
    return counts


class Verdict:
    """Whether every device reached the table and an alert came.

    Args:
        figures: the run's last state.
        rows: of the raw table by device; ``None`` when there was no Spark.
    """

    def __init__(self, figures: Figures, rows: Counter[str] | None) -> None:
        self._figures = figures
        self._rows = rows

    def faults(self) -> list[str]:
        """What is wrong, in sentences; empty when all is well."""
        faults = [
            f"{device.name} could not send anything"
            for device in self._figures.devices.values()
            if not device.accepted
        ]
        if self._rows is None:
            return faults
        for device in self._figures.devices.values():
            rows = self._rows[device.name]
            if device.accepted and rows == 0:
                faults.append(f"the raw table has no row of {device.name}")
            elif rows < device.accepted:
                faults.append(
                    f"the raw table has {rows} rows of {device.name}, which had {device.accepted} messages accepted"
                )
        if not self._figures.alerts_seen:
            faults.append("no alert came")
        return faults

    def table(self) -> Table:
        """The summary."""
        table = Table(title="Summary", title_justify="left")
        table.add_column("device")
        table.add_column("client")
        for column in ("accepted", "retries", "rows in raw"):
            table.add_column(column, justify="right")
        for device in self._figures.devices.values():
            rows = "no Spark" if self._rows is None else str(self._rows[device.name])
            table.add_row(device.name, device.client, str(device.accepted), str(device.retries), rows)
        return table
