"""What the demonstration ends with: sent against stored, device by device, and whether all is well."""

from __future__ import annotations

from collections import Counter

from rich.table import Table

from enmasse.demo.figures import Figures

__all__ = ["Verdict"]


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
