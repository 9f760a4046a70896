"""The telemetry job beside the demonstration: started, listened to, and stopped in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from enmasse.demo.devices import SPACE_HOST
from enmasse.demo.figures import Figures
from enmasse.pipeline.__main__ import telemetry_command
from enmasse.pipeline.supervise import Supervisor

__all__ = ["Job"]

FAILURES = 3
"""One start may fail by bad luck."""


class Job:
    """One supervised Spark job whose events flow into the figures.

    Args:
        url: where the space is reached.
        folder: its tables, checkpoint, logs and temporary files; goes on where it ended.
        band: degrees that raise no alert, ``LOW:HIGH``.
        figures: kept up to date on the event loop that made this object.
    """

    def __init__(self, url: str, folder: Path, band: str, figures: Figures) -> None:
        self.tables = folder / "tables"
        self.log = folder / "work" / "driver.log"
        self.ready = asyncio.Event()
        """Set once every query of the job has looked at its source."""
        self._figures = figures
        self._failures = 0
        loop = asyncio.get_running_loop()

        def on_event(event: dict[str, Any]) -> None:
            loop.call_soon_threadsafe(self._take, event)

        arguments = {
            "--url": url,
            "--space": SPACE_HOST,
            "--address": "telemetry",
            "--alerts": "alerts",
            "--out": self.tables,
            "--checkpoint": folder / "checkpoint",
            "--work": folder / "work",
            "--band": band,
            "--live-trigger": 1,
            "--table-trigger": 2,
        }
        words = [str(word) for pair in arguments.items() for word in pair]
        self._supervisor = Supervisor(telemetry_command([*words, "--quick"]), self.log, on_event)

    def _take(self, event: Mapping[str, Any]) -> None:
        self._figures.on_job_event(event)
        if event["event"] == "ready":
            self.ready.set()
        elif event["event"] == "ended" and not self.ready.is_set():
            self._failures += 1
            self._figures.job = f"driver ended: {_last_line(self.log)}"

    @property
    def is_hopeless(self) -> bool:
        """Whether the driver ended again and again before it was ready."""
        return self._failures >= FAILURES

    def start(self) -> None:
        """Start the driver."""
        self._supervisor.start()

    async def stop(self) -> None:
        """Stop it in order; everything it started is gone afterwards."""
        await asyncio.to_thread(self._supervisor.stop)


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").split("\n")
    except OSError:
        return "no reason given"
    return next((line for line in reversed(lines) if line.strip()), "no reason given")
