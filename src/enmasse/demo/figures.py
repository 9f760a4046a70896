"""Everything that the demonstration knows at a moment: what its pictures and its verdict are made of."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["AddressFigures", "DeviceFigures", "Figures"]


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
    """One device as it knows itself, and what the job last said of it."""

    name: str
    client: str
    """What it speaks through."""
    accepted: int = 0
    """Messages that the address accepted."""
    retries: int = 0
    """Attempts without an answer: the node was away."""
    window: dict[str, Any] | None = None


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
    job: str = "not started"
    """The job's state in a few words."""
    batches: int = 0
    raw_rows: int = 0
    window_rows: int = 0
    rows_per_s: float = 0.0
    alerts: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=200))
    alerts_seen: int = 0
    node_restarts: int = 0
    driver_restarts: int = 0
    driver_started: bool = False
    """Whether there was a driver before the next."""

    def accepted(self) -> int:
        """Messages of all devices that were accepted."""
        return sum(device.accepted for device in self.devices.values())

    def on_job_event(self, event: Mapping[str, Any]) -> None:
        """Take in one line that the job wrote."""
        kind = event["event"]
        if kind == "started":
            self.job = f"Java and Spark start (driver {event['pid']})"
            self.driver_restarts += self.driver_started
            self.driver_started = True
        elif kind == "ended":
            self.job = "driver ended"
        elif kind == "ready":
            self.job = "running"
        elif kind == "failed":
            self.job = f"query {event['query']} failed, again in {event['retry_s']:.0f} s: {_short(event['error'])}"
        elif kind == "progress":
            self.batches += 1
            if event["query"] == "raw":
                self.rows_per_s = event["rate"]
            if self.job.startswith("query"):
                self.job = "running"
        elif kind == "table":
            if event["table"] == "raw":
                self.raw_rows += event["rows"]
            else:
                self.window_rows += event["rows"]
        elif kind == "window":
            self._on_window(event)

    def _on_window(self, event: Mapping[str, Any]) -> None:
        device = self.devices.get(event["device"])
        if device is None or event["metric"] not in {"temperature", "cpu_percent"}:
            return
        if device.window is None or event["start"] >= device.window["start"]:
            device.window = dict(event)

    def on_alert(self, alert: Mapping[str, Any]) -> None:
        """Take in one alert that came back through its address.

        The job sends alerts at least once, so one of an earlier run may come again; it is left out.
        """
        window = alert.get("window", {})
        if window and window["end"] < self.began:
            return
        self.alerts.append(alert)
        self.alerts_seen += 1


def _short(error: str) -> str:
    return error.strip().splitlines()[-1][:120] if error.strip() else "no reason given"
