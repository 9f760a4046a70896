"""The devices of the demonstration: simulated ones, and the host that it runs on.

A simulated device measures smooth curves with a little noise, and an excursion on demand.
"""

from __future__ import annotations

import math
import os
import random
import socket
from collections.abc import Sequence
from typing import Any

import psutil

SPACE = "default/demo"
"""The space of the examples, by its full name."""
SPACE_HOST = "demo.default.enmasse.local"
"""The host name that chooses it, should there be others beside it."""
TENANT = "default.plant"
"""The tenant of the devices, which they say behind their names."""

LAKE = "demo.iot-plant-lake"
"""The pipeline that keeps every message."""

BAND = "10:35"
"""Degrees in which every device lives; the job raises an alert outside."""

FLEET = (
    "boiler-1",
    "boiler-2",
    "chiller-1",
    "press-1",
    "press-2",
    "conveyor-1",
    "conveyor-2",
    "greenhouse-1",
)
OVER_HTTP = frozenset(("boiler-1", "boiler-2", "chiller-1"))
"""Of these, who speaks HTTP; the others speak MQTT."""
PROTON_FLEET = ("pump-1", "pump-2")
"""These speak AMQP, through python-qpid-proton."""
PAHO_FLEET = ("valve-1", "valve-2")
"""These speak MQTT, through paho-mqtt."""

COOL = "cool"
"""The command that ends an excursion."""

_PERIOD_S = 40.0
_EXCURSION = 18.0
"""Degrees above the middle of the band at the peak: clearly outside."""
_COOLS_IN_S = 2.0
"""The time in which a device that cools loses two thirds of them."""


class SimulatedDevice:
    """One device.

    Args:
        name: its name, also the partition key of what it sends.
        seed: the number that makes it differ from others.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self._random = random.Random(seed)  # noqa: S311  # noise, no secret
        self._middle = self._random.uniform(18.0, 25.0)
        self._phase = self._random.uniform(0.0, 2 * math.pi)
        self._excursion_until = 0.0
        self._cooled_at = math.inf

    def leave_band(self, now: float, seconds: float) -> None:
        """Run hot for so long, or until it is cooled."""
        self._excursion_until = now + seconds
        self._cooled_at = math.inf

    def do_command(self, command: str, now: float) -> tuple[int, bytes]:
        """Do what a command says; return the status and the payload of the answer."""
        if command != COOL:
            return 404, f"{self.name} knows {COOL} alone".encode()
        self._cooled_at = min(now, self._cooled_at)
        return 200, b"it cools"

    def measure(self, now: float) -> dict[str, Any]:
        """Return the message of this moment (seconds since 1970)."""
        wave = math.sin(2 * math.pi * now / _PERIOD_S + self._phase)
        temperature = self._middle + 2.5 * wave + self._random.gauss(0.0, 0.2)
        if now < self._excursion_until:
            temperature += _EXCURSION * math.exp(min(0.0, self._cooled_at - now) / _COOLS_IN_S)
        return {
            "device": self.name,
            "ts": round(now * 1000),
            "temperature": round(temperature, 2),
            "humidity": round(45.0 + 8.0 * math.cos(wave) + self._random.gauss(0.0, 0.5), 1),
            "vibration": round(abs(self._random.gauss(0.8, 0.2)), 3),
        }


def make_fleet(names: Sequence[str], seed: int = 1) -> list[SimulatedDevice]:
    """Devices of these names, the same ones for the same seed."""
    return [SimulatedDevice(name, seed * 1000 + number) for number, name in enumerate(names)]


class HostDevice:
    """Measures this machine under its own host name."""

    def __init__(self) -> None:
        self.name = socket.gethostname()
        self._before: tuple[float, int, int] | None = None
        psutil.cpu_percent()  # the first call only sets the mark to measure from

    def do_command(self, command: str, now: float) -> tuple[int, bytes]:
        """Do nothing: this machine is measured, and not steered."""
        return 404, f"{self.name} takes no commands".encode()

    def measure(self, now: float) -> dict[str, Any]:
        """Return the message of this moment (seconds since 1970)."""
        memory = psutil.virtual_memory()
        message: dict[str, Any] = {
            "device": self.name,
            "ts": round(now * 1000),
            "cpu_percent": psutil.cpu_percent(),
            "memory_percent": memory.percent,
            "memory_available_bytes": memory.available,
            "disk_percent": psutil.disk_usage(os.sep).percent,
            "load_1m": round(os.getloadavg()[0], 2),
            **self._network_rates(now),
        }
        heat = _heat()
        if heat is not None:
            message["cpu_temperature"] = heat
        return message

    def _network_rates(self, now: float) -> dict[str, float]:
        # A machine without any interface has no counters, whatever the stubs say.
        counters: Any = psutil.net_io_counters()
        if counters is None:
            return {}
        before, self._before = self._before, (now, counters.bytes_recv, counters.bytes_sent)
        if before is None or now <= before[0]:
            return {}
        seconds = now - before[0]
        return {
            "network_in_bytes_per_s": round((counters.bytes_recv - before[1]) / seconds, 1),
            "network_out_bytes_per_s": round((counters.bytes_sent - before[2]) / seconds, 1),
        }


def _heat() -> float | None:
    """The hottest sensor, where there are any."""
    try:
        sensors = psutil.sensors_temperatures()
    except (AttributeError, OSError):
        return None
    found = [entry.current for entries in sensors.values() for entry in entries if entry.current]
    return max(found) if found else None
