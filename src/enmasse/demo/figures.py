"""The figures of a running demonstration, how they are gathered, and the verdict at its end.

They are gathered from outside: addresses through management, processes by their ids. The verdict compares what was
sent with what is stored, device by device.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from enmasse.client import connect
from enmasse.client.management import Management
from enmasse.demo.devices import SPACE
from enmasse.demo.service import Service
from enmasse.errors import EnmasseError


@dataclass
class AddressFigures:
    """One address as the node's management reports it."""

    address: str
    type: str
    senders: int = 0
    receivers: int = 0
    stored: int = 0
    messages_in: int = 0
    messages_out: int = 0
    in_rate: float = 0.0
    """Messages a second since the last reading."""
    out_rate: float = 0.0


@dataclass
class DeviceFigures:
    """One device as it knows itself, and what was last said of it."""

    name: str
    client: str
    """The client that it uses."""
    accepted: int = 0
    """Messages that the address accepted."""
    retries: int = 0
    """Attempts without an answer: the node was away."""
    window: dict[str, Any] | None = None


@dataclass
class PipelineFigures:
    """One pipeline as the API reports it."""

    name: str
    phase: str = "Pending"
    is_running: bool = False
    """True if each of its queries has read from its source."""
    batches: int = 0
    rows: int = 0
    rate: float = 0.0
    """Rows a second."""
    lag: int | None = None
    """Rows that are there and were not read yet."""
    problem: str = ""
    is_runner_gone: bool = False


@dataclass
class CommandFigures:
    """One command, and what has become of it."""

    device: str
    name: str
    at: float
    """The time at which it was sent, in seconds since 1970."""
    state: str = "queued"


@dataclass
class Figures:
    """The whole state."""

    phase: str = "starting"
    elapsed_s: float = 0.0
    began: str = ""
    """The time at which the run began, in UTC as ISO 8601."""
    seconds: float = 0.0
    """Seconds to run; 0: until it is stopped."""
    addresses: dict[str, AddressFigures] = field(default_factory=dict)
    devices: dict[str, DeviceFigures] = field(default_factory=dict)
    pipelines: dict[str, PipelineFigures] = field(default_factory=dict)
    alerts: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=200))
    commands: list[CommandFigures] = field(default_factory=list)
    alerts_received: int = 0
    """Alerts that came, those of their ends included."""
    alerts_seen: int = 0
    node_restarts: int = 0
    runner_restarts: int = 0

    def obeyed(self) -> int:
        """Commands that their devices have answered."""
        return sum(command.state == "accepted" for command in self.commands)

    def accepted(self) -> int:
        """Messages of all devices that were accepted."""
        return sum(device.accepted for device in self.devices.values())

    def on_pipeline(self, pipeline: PipelineFigures) -> None:
        """Take in how a pipeline is now."""
        before = self.pipelines.get(pipeline.name)
        # All pipelines of a space share a runner; it is counted by the first of them.
        is_first = pipeline.name == min([*self.pipelines, pipeline.name])
        if is_first and before is not None and pipeline.is_runner_gone and not before.is_runner_gone:
            self.runner_restarts += 1
        self.pipelines[pipeline.name] = pipeline

    def rows_of(self, pipeline: str) -> int:
        """Rows that a pipeline has read since it runs."""
        found = self.pipelines.get(pipeline)
        return 0 if found is None else found.rows

    def on_window(self, window: Mapping[str, Any]) -> None:
        """Take in the statistics of one window."""
        device = self.devices.get(str(window.get("device")))
        if device is None or window.get("metric") not in {"temperature", "cpu_percent"}:
            return
        if device.window is None or window["window_start"] >= device.window["window_start"]:
            device.window = dict(window)

    def on_alert(self, alert: Mapping[str, Any]) -> None:
        """Take in one alert, or word of its end, that came through its address; one of an earlier run is left out."""
        if str(alert.get("time", "")) < self.began:
            return
        self.alerts.append(alert)
        self.alerts_received += 1
        self.alerts_seen += alert.get("state") == "raised"


INTERVAL_S = 1.0
_ATTRIBUTES = (
    "space",
    "address",
    "addressType",
    "senders",
    "receivers",
    "messagesStored",
    "messagesIn",
    "messagesOut",
)


async def watch_platform(service: Service, figures: Figures) -> None:
    """Keep the figures of the addresses fresh until cancelled, through restarts of nodes."""
    home = ""
    pids: dict[str, int] = {}
    while True:
        try:
            home = home or await service.home(SPACE)
            await _watch_node(service, figures, home, pids)
        except (EnmasseError, OSError, TimeoutError):
            for address in figures.addresses.values():
                address.in_rate = address.out_rate = 0.0
        await asyncio.sleep(INTERVAL_S)


def _count_restarts(service: Service, figures: Figures, pids: dict[str, int]) -> None:
    """Count the nodes that are other processes than before, and take note of them."""
    now = {str(node["name"]): int(node["pid"]) for node in service.processes("node")}
    figures.node_restarts += sum(pids.get(name, pid) != pid for name, pid in now.items())
    pids |= now


async def _watch_node(service: Service, figures: Figures, home: str, pids: dict[str, int]) -> None:
    _count_restarts(service, figures, pids)
    pid = pids.get(home)
    async with connect(service.admin_url(home), container_id="demo", reconnect=False) as connection:
        management = Management(connection)
        looked = 0.0
        while True:
            async with asyncio.timeout(10.0):
                everything = await management.query("io.enmasse.address", list(_ATTRIBUTES))
            found = [attributes for attributes in everything if attributes["space"] == SPACE]
            now = time.monotonic()
            for attributes in found:
                _take(figures, attributes, now - looked if looked else 0.0)
            known = {str(attributes["address"]) for attributes in found}
            for gone in set(figures.addresses) - known:
                del figures.addresses[gone]
            looked = now
            _count_restarts(service, figures, pids)
            if pids.get(home) != pid:
                return
            await asyncio.sleep(INTERVAL_S)


def _take(figures: Figures, attributes: dict[str, object], seconds: float) -> None:
    def count(name: str) -> int:
        value = attributes.get(name)
        return value if isinstance(value, int) else 0

    name = str(attributes["address"])
    before = figures.addresses.get(name)
    now = AddressFigures(
        name,
        str(attributes.get("addressType", "")),
        count("senders"),
        count("receivers"),
        count("messagesStored"),
        count("messagesIn"),
        count("messagesOut"),
    )
    if before is not None and seconds > 0:
        # A restarted node counts from zero again.
        now.in_rate = max(0, now.messages_in - before.messages_in) / seconds
        now.out_rate = max(0, now.messages_out - before.messages_out) / seconds
    figures.addresses[name] = now


class Verdict:
    """Return true if every device reached the table and an alert came.

    Args:
        figures: the run's last state.
        rows: the rows of the raw table by device; ``None`` when there was no Spark.
    """

    def __init__(self, figures: Figures, rows: Counter[str] | None) -> None:
        self._figures = figures
        self._rows = rows

    def faults(self) -> list[str]:
        """Return the faults in sentences; empty when all is well."""
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
        elif not self._figures.obeyed():
            faults.append("no device has obeyed a command")
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
