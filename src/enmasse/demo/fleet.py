"""The fleet's connections: devices on our own client, those on foreign ones, and a listener for results.

The devices of python-qpid-proton run in a process of their own (``proton_fleet``), and so do those of paho-mqtt
(``paho_fleet``).
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from enmasse.client import Connection, Message, Outcome, connect
from enmasse.demo.devices import SPACE_HOST
from enmasse.demo.figures import DeviceFigures, Figures
from enmasse.errors import EnmasseError

FIRST_PAUSE_S = 0.2
LAST_PAUSE_S = 2.0


class Device(Protocol):
    """Something that measures."""

    name: str

    def measure(self, now: float) -> dict[str, Any]:
        """Return the message of this moment (seconds since 1970)."""


async def run_device(
    url: str, address: str, device: Device, figures: DeviceFigures, interval_s: float, stop: asyncio.Event
) -> None:
    """Measure and send until ``stop``, through any number of lost connections.

    A measurement is sent again until the address accepted it, so each one is stored at least once.
    """
    pause_s = FIRST_PAUSE_S
    message: Message | None = None
    while not stop.is_set():
        try:
            async with connect(url, hostname=SPACE_HOST, container_id=device.name, reconnect=False) as connection:
                sender = await connection.sender(address)
                while not stop.is_set():
                    if message is None:
                        body = json.dumps(device.measure(time.time())).encode()
                        message = Message(
                            body=body, subject=device.name, content_type="application/json", durable=True
                        )
                    if await sender.send(message) is Outcome.ACCEPTED:
                        figures.accepted += 1
                        message = None
                    else:
                        figures.retries += 1
                    pause_s = FIRST_PAUSE_S
                    await _pause(stop, interval_s)
        except (EnmasseError, OSError):
            figures.retries += 1
            await _pause(stop, pause_s * random.uniform(0.5, 1.0))  # noqa: S311  # spreads reconnects
            pause_s = min(pause_s * 2, LAST_PAUSE_S)


async def listen(url: str, address: str, take: Callable[[Mapping[str, Any]], None]) -> None:
    """Receive from an address until cancelled, leaving out messages whose id came before."""
    seen: set[object] = set()
    while True:
        try:
            async with connect(
                url, hostname=SPACE_HOST, container_id=f"demo-{address}", reconnect=False
            ) as connection:
                await _receive(connection, address, seen, take)
        except (EnmasseError, OSError):
            await asyncio.sleep(FIRST_PAUSE_S)


async def _receive(
    connection: Connection,
    address: str,
    seen: set[object],
    take: Callable[[Mapping[str, Any]], None],
) -> None:
    receiver = await connection.receiver(address)
    async for delivery in receiver:
        message = delivery.message
        if message.message_id not in seen:
            seen.add(message.message_id)
            try:
                alert = json.loads(message.body)
            except (TypeError, ValueError):
                alert = {"text": repr(message.body)}
            take(alert if isinstance(alert, dict) else {"text": str(alert)})
        # Only now: a node that is killed may have taken note of it, and its answer is lost.
        await delivery.accept()


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return


STOP_S = 10.0


def has_proton() -> bool:
    """Return true if python-qpid-proton can be imported."""
    return importlib.util.find_spec("proton") is not None


class ForeignFleet:
    """Starts a process of devices, takes in what it counts, and ends it.

    Args:
        module: what the process runs, ``proton_fleet`` or ``paho_fleet``.
        client: the name of the library that the devices speak through.
        url: where the space is reached.
        names: its devices.
        interval_s: between two messages of a device.
        figures: gets an entry for each device.
        log: file for what it complains of.
    """

    def __init__(
        self,
        module: str,
        client: str,
        url: str,
        names: Sequence[str],
        interval_s: float,
        figures: Figures,
        log: Path,
    ) -> None:
        self._module = module
        self._arguments = ["--url", url, "--address", "telemetry", "--devices", ",".join(names)]
        self._arguments += ["--interval", str(interval_s)]
        self._devices = {name: DeviceFigures(name, client) for name in names}
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
                f"enmasse.demo.{self._module}",
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
