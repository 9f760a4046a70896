"""The one real device: the host that this runs on."""

from __future__ import annotations

import os
import socket
from typing import Any

import psutil

__all__ = ["HostDevice"]


class HostDevice:
    """Measures this machine under its own host name."""

    def __init__(self) -> None:
        self.name = socket.gethostname()
        self._before: tuple[float, int, int] | None = None
        psutil.cpu_percent()  # the first call only sets the mark to measure from

    def measure(self, now: float) -> dict[str, Any]:
        """The message of this moment (seconds since 1970)."""
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
