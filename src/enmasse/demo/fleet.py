"""The fleet's connections: devices of our own, those on foreign clients, and a listener for results.

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
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from enmasse.client import Connection, connect
from enmasse.demo.devices import SPACE, SPACE_HOST
from enmasse.demo.figures import DeviceFigures, Figures
from enmasse.errors import EnmasseError, UnavailableError
from enmasse.iot.simulator.devices import Commanded, SimulatedDevice
from enmasse.model.schema.kinds import MESSAGING_USER, SECRET

USER, ACCESS = "app", "demo-access"
"""The user of the space, and the Secret with its password."""
FIRST_PAUSE_S = 0.2
LAST_PAUSE_S = 2.0


class Measured(Protocol):
    """Something that measures, and takes commands."""

    name: str

    def measure(self, now: float) -> dict[str, Any]:
        """Return the message of this moment (seconds since 1970)."""

    def do_command(self, command: str, now: float) -> tuple[int, bytes]:
        """Do what a command says; return the status and the payload of the answer."""


class Device:
    """A device of the fleet: it connects, sends what it measures, and obeys, through any number of lost connections.

    A measurement is sent again until it was accepted, so each one is stored at least once.

    Args:
        measured: the thing that it measures.
        make: makes its connection, given what it does when it is commanded.
        figures: the counts of the device.
        interval_s: between two messages.
        quiet: set when it is to measure no more; it still listens.
    """

    def __init__(
        self,
        measured: Measured,
        make: Callable[[Commanded], SimulatedDevice],
        figures: DeviceFigures,
        interval_s: float,
        quiet: asyncio.Event,
    ) -> None:
        self._measured = measured
        self._make = make
        self._figures = figures
        self._interval_s = interval_s
        self._quiet = quiet
        self._message: bytes | None = None
        self.is_done = asyncio.Event()
        """Set when it has sent its last message."""

    async def run(self) -> None:
        """Go on until cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            link = self._make(lambda command, _payload: self._measured.do_command(command, time.time()))
            taken = self._figures.accepted
            try:
                await link.start()
                await self._send(link)
                self.is_done.set()
                await asyncio.Event().wait()
            except (EnmasseError, OSError, TimeoutError):
                self._figures.retries += 1
            finally:
                await link.stop()
            pause_s = FIRST_PAUSE_S if self._figures.accepted > taken else min(pause_s * 2, LAST_PAUSE_S)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311  # spreads reconnects

    async def _send(self, link: SimulatedDevice) -> None:
        while self._message is not None or not self._quiet.is_set():
            if self._message is None:
                self._message = json.dumps(self._measured.measure(time.time())).encode()
            if not await link.send("telemetry", self._message):
                raise UnavailableError(f"{self._measured.name} had a message refused")
            self._figures.accepted += 1
            self._message = None
            await _pause(self._quiet, self._interval_s)


def access(password: str) -> str:
    """Return the declarations of the space's user, as whom the demonstration listens, and its pipelines run."""
    namespace, _, space = SPACE.partition("/")
    entries = {"username": USER, "password": password}
    user = {
        "apiVersion": MESSAGING_USER.api_version,
        "kind": MESSAGING_USER.name,
        "metadata": {"name": f"{space}.{USER}", "namespace": namespace},
        "spec": {
            "username": USER,
            "authentication": {"type": "password", "password": _encoded(password)},
            "authorization": [{"operations": ["send", "recv"], "addresses": ["#"]}],
        },
    }
    secret = {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.name,
        "metadata": {"name": ACCESS, "namespace": namespace},
        "data": {name: _encoded(value) for name, value in entries.items()},
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [user, secret]})


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


async def listen(url: str, password: str, address: str, take: Callable[[Mapping[str, Any]], None]) -> None:
    """Receive from an address until cancelled, leaving out messages whose id came before."""
    seen: set[object] = set()
    while True:
        try:
            async with connect(
                url,
                user=USER,
                password=password,
                hostname=SPACE_HOST,
                container_id=f"demo-{address}",
                reconnect=False,
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
        module: the module that the process runs, ``proton_fleet`` or ``paho_fleet``.
        client: the name of the library that the devices speak through.
        url: the URL of the space.
        passwords: the passwords of its devices, by their names.
        interval_s: between two messages of a device.
        figures: gets an entry for each device.
        log: file for what it complains of.
    """

    def __init__(
        self,
        module: str,
        client: str,
        url: str,
        passwords: Mapping[str, str],
        interval_s: float,
        figures: Figures,
        log: Path,
    ) -> None:
        self._module = module
        self._arguments = ["--url", url, "--interval", str(interval_s)]
        self._passwords = dict(passwords)
        self._devices = {name: DeviceFigures(name, client) for name in passwords}
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
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self._passwords).encode() + b"\n")
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
