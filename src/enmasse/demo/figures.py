"""Everything that the demonstration knows at a moment: what its pictures and its verdict are made of."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["AddressFigures", "DeviceFigures", "Figures", "PipelineFigures"]


@dataclass
class AddressFigures:
    """One address as the node's management tells it."""

    address: str
    type: str
    senders: int = 0
    receivers: int = 0
    stored: int = 0
    messages_in: int = 0
    messages_out: int = 0
    in_rate: float = 0.0
    """Messages a second since the last look."""
    out_rate: float = 0.0


@dataclass
class DeviceFigures:
    """One device as it knows itself, and what was last said of it."""

    name: str
    client: str
    """What it speaks through."""
    accepted: int = 0
    """Messages that the address accepted."""
    retries: int = 0
    """Attempts without an answer: the node was away."""
    window: dict[str, Any] | None = None


@dataclass
class PipelineFigures:
    """One pipeline as the API tells it."""

    name: str
    phase: str = "Pending"
    is_running: bool = False
    """Whether each of its queries has looked at its source."""
    batches: int = 0
    rows: int = 0
    rate: float = 0.0
    """Rows a second."""
    lag: int | None = None
    """Rows that are there and were not read yet."""
    problem: str = ""
    is_runner_gone: bool = False


@dataclass
class Figures:
    """The whole state."""

    phase: str = "starting"
    elapsed_s: float = 0.0
    began: str = ""
    """When the run began, in UTC as ISO 8601."""
    seconds: float = 0.0
    """How long to run; 0: until told to stop."""
    addresses: dict[str, AddressFigures] = field(default_factory=dict)
    devices: dict[str, DeviceFigures] = field(default_factory=dict)
    pipelines: dict[str, PipelineFigures] = field(default_factory=dict)
    alerts: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=200))
    alerts_told: int = 0
    """How many came, word of their ends included."""
    alerts_seen: int = 0
    node_restarts: int = 0
    runner_restarts: int = 0

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
        self.alerts_told += 1
        self.alerts_seen += alert.get("state") == "raised"
