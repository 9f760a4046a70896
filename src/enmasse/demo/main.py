"""``enmasse demo``: the platform, a fleet of devices, its pipelines, and a live picture of them all."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.markup import escape

from enmasse.demo.chart import count_rows, draw, last_minutes, lines, size
from enmasse.demo.devices import FLEET, OVER_HTTP, PAHO_FLEET, PROTON_FLEET, TENANT, HostDevice, make_fleet
from enmasse.demo.figures import DeviceFigures, Figures, Verdict, watch_platform
from enmasse.demo.fleet import ACCESS, Device, ForeignFleet, Measured, access, has_proton, listen
from enmasse.demo.picture import Picture
from enmasse.demo.pipelines import Pipelines
from enmasse.demo.registered import Registered
from enmasse.demo.service import Service
from enmasse.errors import ConfigError, EnmasseError
from enmasse.extras import install_command
from enmasse.iot.simulator.devices import AmqpDevice, HttpDevice, Make, MqttDevice
from enmasse.net.loop import Turn
from enmasse.pipeline.errors import SparkMissingError
from enmasse.pipeline.session import require_spark

INTERVAL_S = 0.4
"""Between two messages of a simulated device."""
HOST_INTERVAL_S = 1.0
PICTURE_S = 0.5
READY_S = 180.0
"""Seconds that Spark may take to start on a slow machine."""
EXCURSION_AFTER_S = 20.0
EXCURSION_S = 60.0
"""A device that is not cooled runs hot for so long."""
EXCURSION_EVERY_S = 90.0
"""In a run without an end there is something to see every now and then."""
CATCH_UP_S = 120.0
"""Seconds that the pipelines may take over the messages that were sent last."""
SILENCE_S = 5.0
INTERRUPTED = 130

WATCHED_PAGE = "spaces/default/demo/projects/plant"
"""Of the console: the devices."""

BESIDE_A_CURVE = 54
"""Characters of a line with a curve that are none of it."""
LONGEST_CURVE = 80
_PICTURE = "devices.png"
_DECLARED = Path(__file__).with_name("demo.yaml")
"""The space, its addresses, devices and pipelines."""


def run(seconds: float, data: Path, nodes: int | None = None) -> int:
    """Show everything at work.

    Args:
        seconds: the seconds to run, from the moment when everything runs; 0: until Ctrl-C.
        data: folder of the platform and of the tables; a second run goes on with it.
        nodes: the number of nodes; None: as many as the last run had, or one.

    Returns:
        0 if every device reached the raw table and an alert came, else 1; 130 when interrupted early.
    """
    console = Console(highlight=False)
    try:
        return asyncio.run(_Demo(seconds, data, console, nodes).run())
    except EnmasseError as error:
        console.print(f"[red]{escape(str(error))}[/red]", soft_wrap=True)
        return 1


class _Demo:
    """One run. What was started is stopped in the opposite order, whatever happens."""

    def __init__(self, seconds: float, data: Path, console: Console, nodes: int | None) -> None:
        self._seconds = seconds
        self._console = console
        self._began = datetime.now(UTC)
        self._figures = Figures(seconds=seconds, began=self._began.isoformat())
        self._picture = Picture(console, self._figures)
        self._password = ""
        """Of the user of the space."""
        self._folder = data / "demo"
        self._service = Service(data, self._folder / "up.log", nodes=nodes)
        self._fleet = make_fleet(FLEET)
        self._pipelines: Pipelines | None = None
        self._registered = Registered(self._service, self._figures)
        self._foreign: list[ForeignFleet] = []
        self._devices: list[Device] = []
        self._interrupted = asyncio.Event()
        self._quiet = asyncio.Event()

    async def run(self) -> int:
        """Everything, from start to verdict; the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupted.set)
        rows: Counter[str] | None = None
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._service.stop)
            if not await self._unless_interrupted(self._start_platform()):
                return INTERRUPTED
            with self._picture:
                await self._start_rest(undo)
                await self._watch()
                self._figures.phase = "ending"
                await self._silence()
                if self._pipelines is not None and not self._pipelines.is_hopeless:
                    rows = await self._catch_up(self._pipelines)
            self._console.print("Stopping the pipelines and the platform ...")
        return self._end(rows)

    async def _unless_interrupted(self, work: Coroutine[None, None, None]) -> bool:
        """Do the work, and return true if it was done; interrupted work is cancelled."""
        task = asyncio.create_task(work)
        waiting = asyncio.create_task(self._interrupted.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await _cancel(task)
            return False
        await _cancel(waiting)
        task.result()
        return True

    async def _start_platform(self) -> None:
        self._console.print(f"Starting the platform on {self._service.data} ...")
        await self._service.start()
        self._console.print(f"Applying {_short(_DECLARED)} ...", markup=False, soft_wrap=True)
        self._password = await self._service.password(ACCESS) or secrets.token_urlsafe(16)
        await self._service.run("apply", "-f", "-", given=access(self._password))
        await self._service.run("apply", "-f", str(_DECLARED))
        await self._service.run("status", "--wait", "60")
        await self._service.run("wait", "iotproject", "plant", "--timeout", "60")
        self._console.print(await self._service.run("endpoints"), markup=False)
        if self._console.is_terminal:
            link = self._service.console_link(WATCHED_PAGE)
            said = f"Watch the devices, for your browser and nobody else's eyes: {link}"
        else:  # a link that lets in would be kept in somebody's log
            said = f"Watch the devices: {_program()} console --data {_short(self._service.data)}"
        self._console.print(said, markup=False, soft_wrap=True)

    async def _start_rest(self, undo: AsyncExitStack) -> None:
        url = self._service.url("amqp")
        if url is None:
            raise ConfigError("the platform serves no amqp endpoint")
        figures = self._figures
        for address, take in (("alerts", self._on_alert), ("statistics", figures.on_window)):
            undo.push_async_callback(_cancel, asyncio.create_task(listen(url, self._password, address, take)))
        watching = asyncio.create_task(watch_platform(self._service, figures))
        undo.push_async_callback(_cancel, watching)
        try:
            await asyncio.to_thread(require_spark)
        except SparkMissingError as error:
            self._picture.print(f"{error}. All but the tables and alerts works without it.")
        else:
            self._pipelines = Pipelines(self._service, figures)
            undo.push_async_callback(_cancel, asyncio.create_task(self._pipelines.follow()))
            self._picture.print("Spark starts; time counts from when it is ready.")
        undo.push_async_callback(_cancel, asyncio.create_task(self._registered.command()))
        host = HostDevice()
        names = [*FLEET, *PROTON_FLEET, *PAHO_FLEET, host.name]
        passwords = await self._registered.register(names)
        if has_proton():
            self._add_foreign("proton_fleet", "AMQP (Proton)", url, PROTON_FLEET, passwords)
        else:
            install = f"{install_command('proton')}, which needs a C compiler"
            self._picture.print(f"python-qpid-proton is not installed, and its devices stay away: {install}")
        mqtt_url, http_url = self._service.url("mqtt"), self._service.url("http")
        if mqtt_url is None or http_url is None:
            raise ConfigError("the platform serves no mqtt or no http endpoint")
        self._add_foreign("paho_fleet", "MQTT (paho)", mqtt_url, PAHO_FLEET, passwords)
        for fleet in self._foreign:
            await fleet.start()
        undo.push_async_callback(self._silence)
        turn = Turn(asyncio.get_running_loop())
        client = await undo.enter_async_context(httpx.AsyncClient(trust_env=False))

        def add(measured: Measured, protocol: str, make: Make, interval_s: float = INTERVAL_S) -> None:
            counted = figures.devices[measured.name] = DeviceFigures(measured.name, protocol)
            connect = partial(make, f"{measured.name}@{TENANT}", passwords[measured.name])
            device = Device(measured, connect, counted, interval_s, self._quiet)
            self._devices.append(device)
            undo.push_async_callback(_cancel, asyncio.create_task(device.run()))

        for measured in self._fleet:
            if measured.name in OVER_HTTP:
                add(measured, "HTTP (httpx)", partial(HttpDevice, client, http_url))
            else:
                add(measured, "MQTT", partial(MqttDevice, turn, mqtt_url))
        add(host, "AMQP", partial(AmqpDevice, url), HOST_INTERVAL_S)

    def _on_alert(self, alert: Mapping[str, Any]) -> None:
        before = self._figures.alerts_seen
        self._figures.on_alert(alert)
        if self._figures.alerts_seen > before:
            self._registered.take(alert)

    def _add_foreign(
        self, module: str, client: str, url: str, names: Sequence[str], passwords: Mapping[str, str]
    ) -> None:
        log, own = self._folder / f"{module}.log", {name: passwords[name] for name in names}
        self._foreign.append(ForeignFleet(module, client, url, own, INTERVAL_S, self._figures, log))

    async def _silence(self) -> None:
        """Let the devices finish what they are sending; they still listen, but for those of foreign clients."""
        self._quiet.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_S):
                for device in self._devices:
                    await device.is_done.wait()
        for fleet in self._foreign:
            await fleet.stop()

    async def _watch(self) -> None:
        """Keep the picture fresh until the time is over; it counts from when the pipelines run."""
        figures = self._figures
        entered = time.monotonic()
        began: float | None = None
        excursion_at = min(EXCURSION_AFTER_S, self._seconds / 3) if self._seconds else EXCURSION_AFTER_S
        figures.phase = "starting Spark" if self._pipelines is not None else "running"
        while not self._interrupted.is_set():
            now = time.monotonic()
            if began is None and (_is_settled(self._pipelines) or now - entered > READY_S):
                began = now
                figures.phase = "running"
            if began is not None:
                figures.elapsed_s = now - began
                if figures.elapsed_s >= excursion_at:
                    self._fleet[0].leave_band(time.time(), EXCURSION_S)
                    excursion_at += EXCURSION_EVERY_S
                if self._seconds and figures.elapsed_s >= self._seconds:
                    return
            self._picture.update()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._interrupted.wait(), PICTURE_S)

    async def _catch_up(self, pipelines: Pipelines) -> Counter[str]:
        """Wait until the raw table has what was accepted, an alert has come, and its device has obeyed.

        The table of the devices' pipeline, which reads the same stream, is waited for, too.
        """
        deadline = time.monotonic() + CATCH_UP_S
        raw, columns = pipelines.lake / "raw", pipelines.lake / "plant_telemetry"
        while True:
            rows = await asyncio.to_thread(count_rows, raw, self._began)
            complete = not Verdict(self._figures, rows).faults()
            complete = complete and await asyncio.to_thread(size, columns) >= await asyncio.to_thread(size, raw)
            self._picture.update()
            if complete or self._interrupted.is_set() or time.monotonic() > deadline:
                return rows
            await asyncio.sleep(1.0)

    def _end(self, rows: Counter[str] | None) -> int:
        figures = self._figures
        verdict = Verdict(figures, rows)
        if self._pipelines is not None and rows:
            self._show_devices(self._pipelines)
        self._console.print(verdict.table())
        self._console.print(
            f"{figures.accepted()} messages accepted, {sum((rows or Counter()).values())} rows of them in the raw "
            f"table, {figures.alerts_seen} alerts, {figures.obeyed()} commands obeyed, "
            f"{figures.node_restarts} restarts of the node, {figures.runner_restarts} of the runner.",
            soft_wrap=True,
        )
        if self._pipelines is not None:
            self._show_next_steps(self._pipelines)
        if self._interrupted.is_set():
            return INTERRUPTED if self._seconds else 0
        for fault in verdict.faults():
            self._console.print(f"[red]{escape(fault)}[/red]", soft_wrap=True)
        return 1 if verdict.faults() else 0

    def _show_devices(self, pipelines: Pipelines) -> None:
        history = last_minutes(pipelines.lake / "raw", self._figures.alerts, self._figures.commands)
        if not history.curves:
            return
        width = min(LONGEST_CURVE, max(10, self._console.width - BESIDE_A_CURVE))
        self._console.print(lines(history, width))
        picture = pipelines.lake.parent / _PICTURE
        draw(history, picture)
        self._console.print(f"The same as a picture: {_short(picture)}", markup=False, soft_wrap=True)

    def _show_next_steps(self, pipelines: Pipelines) -> None:
        program, data = _program(), _short(self._service.data)
        query = "SELECT device, metric, round(avg(mean), 2) AS mean FROM windows GROUP BY device, metric"
        said = [
            "The tables are Delta Lake; pandas, polars, DuckDB and Spark read them as they are:",
            f"  {_short(pipelines.lake)}/raw              every message as it came",
            f"  {_short(pipelines.lake)}/plant_telemetry  the same, with device, adapter and properties as columns",
            f"  {_short(pipelines.lake)}/windows          statistics of each device, metric and 10 seconds",
            "Start the same platform again, and look around from another terminal:",
            f"  {program} up --data {data}",
            f'  {program} pipeline query "{query}" --space demo --data {data}',
            f"  {program} pipeline status demo.iot-plant-anomalies --data {data}",
            f"  {program} iot command list {TENANT} --data {data}",
            f"  {program} tail alerts --data {data}",
            f"Spark's log is {_short(pipelines.logs)}/spark.log.",
        ]
        self._console.print("\n".join(said), markup=False, soft_wrap=True)


def _is_settled(pipelines: Pipelines | None) -> bool:
    """Return true if there is nothing to wait for before time counts."""
    return pipelines is None or pipelines.ready.is_set() or pipelines.is_hopeless


async def _cancel(task: asyncio.Task[None] | asyncio.Task[bool]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _program() -> str:
    """The command ``enmasse`` as one would type it here."""
    return _short(Path(sys.executable).with_name("enmasse"))


def _short(path: Path) -> str:
    """The path as one would type it here."""
    relative = os.path.relpath(path.absolute())
    return relative if not relative.startswith("..") else str(path.absolute())
