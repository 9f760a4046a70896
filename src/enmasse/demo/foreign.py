"""The devices that speak through python-qpid-proton, in a process of their own."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path

from enmasse.demo.figures import DeviceFigures, Figures

__all__ = ["ForeignFleet", "has_proton"]

STOP_S = 10.0


def has_proton() -> bool:
    """Whether python-qpid-proton can be imported."""
    return importlib.util.find_spec("proton") is not None


class ForeignFleet:
    """Starts the process, takes in what it counts, and ends it.

    Args:
        url: where the space is reached.
        names: its devices.
        interval_s: between two messages of a device.
        figures: gets an entry for each device.
        log: file for what it complains of.
    """

    def __init__(self, url: str, names: Sequence[str], interval_s: float, figures: Figures, log: Path) -> None:
        self._arguments = ["--url", url, "--address", "telemetry", "--devices", ",".join(names)]
        self._arguments += ["--interval", str(interval_s)]
        self._devices = {name: DeviceFigures(name, "python-qpid-proton") for name in names}
        figures.devices.update(self._devices)
        self._log = log
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the devices."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "enmasse.demo.proton_fleet",
                *self._arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._reading = asyncio.create_task(self._read(self._process))

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            counted = json.loads(line)
            device = self._devices[counted["device"]]
            device.accepted, device.retries = counted["accepted"], counted["retries"]

    async def stop(self) -> None:
        """Let the devices finish what they are sending, and end the process."""
        process = self._process
        if process is None or self._reading is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()
        await self._reading
