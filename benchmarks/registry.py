"""The device registry with a million devices: how long an import, looks at single devices, and searches take.

python -m benchmarks.registry [DEVICES]
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from enmasse.iot.bulk import MAX_LINES, read_json_lines
from enmasse.iot.registry import DeviceRegistry
from enmasse.iot.search import read_query
from enmasse.iot.store import DeviceStore

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICES = 1_000_000
_GATEWAYS = 1_000
_DISABLED = 100  # one in so many
_TIMES = 20
PLANT = "bench.plant"


def main(devices: int) -> None:
    """Print the figures as a table."""
    numbers = itertools.count()
    with (
        tempfile.TemporaryDirectory() as directory,
        DeviceStore(Path(directory) / "devices.db", read_s=120) as store,
    ):
        registry = DeviceRegistry(
            store,
            now=lambda: "2026-01-01T00:00:00Z",
            new_id=lambda: f"id-{next(numbers)}",
            new_version=lambda: f"{next(numbers):016x}",
        )
        registry.create_tenant(PLANT, {})
        begin, begin_cpu = time.perf_counter(), time.process_time()
        for first in range(0, devices, MAX_LINES):
            lines = "\n".join(map(_line, range(first, min(first + MAX_LINES, devices))))
            registry.import_devices(PLANT, read_json_lines(lines), "fail", "bench")
        took, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
        size = sum(path.stat().st_size for path in Path(directory).iterdir()) / 1e6
        print(
            f"| import of {devices:,} devices | {devices / took:,.0f} a second, {devices / cpu:,.0f} a second of "
            f"a processor, {size:,.0f} MB on disk |",
            flush=True,
        )
        middle = f"d-{devices // 2:07}"
        cases: dict[str, Callable[[], object]] = {
            "one by id": lambda: registry.device(PLANT, middle),
            "its credentials": lambda: registry.credentials(PLANT, middle),
            "change of one": lambda: registry.update_device(PLANT, middle, {"via": "gw-1"}, "bench"),
            "first page": lambda: _search(registry),
            "page in the middle": lambda: _search(registry, ("pageOffset", str(devices // 2))),
            "last page": lambda: _search(registry, ("pageOffset", str(devices - 30))),
            "by id": lambda: _search(registry, _where("/id", middle)),
            "by the beginning of the id": lambda: _search(registry, _where("/id", "d-00001*")),
            "of a gateway": lambda: _search(registry, _where("/via", "gw-7")),
            "enabled": lambda: _search(registry, _where("/enabled", True)),
            "disabled": lambda: _search(registry, _where("/enabled", False)),
            "gateways": lambda: _search(registry, ("isGateway", "true")),
            "by a field without index": lambda: _search(registry, _where("/ext/serial", middle)),
        }
        for name, act in cases.items():
            times = [_timed(act) for _ in range(3 if "without" in name else _TIMES)]
            wall, cpu = (statistics.median(item) * 1000 for item in zip(*times, strict=True))
            print(f"| {name} | {wall:.1f} ms, {cpu:.1f} ms of a processor |", flush=True)


def _line(number: int) -> str:
    device = {
        "id": f"d-{number:07}",
        "enabled": number % _DISABLED > 0,
        "via": [f"gw-{number % _GATEWAYS}"],
        "ext": {"serial": f"s-{number}", "model": "TEMP-SEN"},
    }
    return json.dumps(device)


def _where(field: str, value: str | bool) -> tuple[str, str]:
    return "filterJson", json.dumps({"field": field, "value": value})


def _search(registry: DeviceRegistry, *parameters: tuple[str, str]) -> object:
    return registry.search_devices(PLANT, read_query(parameters))


def _timed(act: Callable[[], object]) -> tuple[float, float]:
    begin, begin_cpu = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - begin, time.process_time() - begin_cpu


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else DEVICES)
