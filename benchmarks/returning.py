"""Five thousand clients that connect at once, without and with passwords, and what a bystander notices of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.accounting import cpu_seconds
from benchmarks.measurement import Line, Measurement, Setting
from benchmarks.node import Node
from benchmarks.users import user_attributes
from enmasse.client import connect
from enmasse.client.management import Management
from enmasse.identity.users import DEFAULT_ITERATIONS, key_fields, make_keys

__all__ = ["MEASUREMENTS", "create_users", "user_keys"]

CLIENTS = 5_000
PROTOCOLS = ("stomp", "amqp")
PASSWORD = "a password"
SPACE = "default/guarded"
ADDRESS = "anycast.0"

MAX_S = 10.0
MAX_WITH_PASSWORDS_S = 30.0
MAX_BYSTANDER_MS = 20.0

AT_ONCE = 50
TIMEOUT_S = 60.0


def returning(setting: Setting) -> Iterator[Line]:
    """All at once to a node that was just started: first without passwords, then as users of their own each.

    The second time with passwords the node remembers that they are right.
    """
    count = setting.count(CLIENTS)
    with setting.node("--allow-insecure-plain") as node:
        node.declare(ADDRESS, addressType="anycast")
        asyncio.run(create_users(node, count, user_keys(setting.directory, count)))
        for protocol in PROTOCOLS:
            setting.patience.wait()
            _restart(node)
            yield from _storm(node, protocol, count, f"{protocol}, no password", MAX_S)
            setting.patience.wait()
            _restart(node)
            guarded = ("--host", "guarded.default", "--password", PASSWORD)
            yield from _storm(node, protocol, count, f"{protocol}, new passwords", MAX_WITH_PASSWORDS_S, *guarded)
            yield from _storm(node, protocol, count, f"{protocol}, known passwords", MAX_S, *guarded)


def _restart(node: Node) -> None:
    node.kill()
    node.start()


def _storm(node: Node, protocol: str, count: int, name: str, max_s: float, *options: str) -> Iterator[Line]:
    script = Path(__file__).parent / "storming.py"
    command = [sys.executable, str(script), "--port", str(node.port), "--protocol", protocol, "--count", str(count)]
    with _bystander(node) as seen:
        before = {role: cpu_seconds(pids) for role, pids in node.processes.items()}
        done = subprocess.run(
            [*command, *(options or ("--host", "bench.default"))], stdout=subprocess.PIPE, check=True, text=True
        )
        used = {role: cpu_seconds(pids) - before[role] for role, pids in node.processes.items()}
    found = json.loads(done.stdout)
    yield Line(f"{name}: until all are in", found["seconds"], "s", max_s)
    yield Line(f"{name}: half of them", found["p50"], "s")
    yield Line(f"{name}: attempts of each", found["attempts"] / count, "")
    yield Line(f"{name}: CPU of the node, each", used["node"] / count * 1e6, "us")
    yield Line(f"{name}: CPU of its other processes, each", used["journal"] / count * 1e6, "us")
    yield Line(f"{name}: bystander's p50", seen["p50"], "ms")
    yield Line(f"{name}: bystander's p99", seen["p99"], "ms", MAX_BYSTANDER_MS)
    yield Line(f"{name}: bystander's longest", seen["max"], "ms")
    yield Line(f"{name}: bystander's p99, time of the node", seen["node_p99"], "ms", MAX_BYSTANDER_MS)
    yield Line(f"{name}: bystander's longest, time of the node", seen["node_max"], "ms")


@contextmanager
def _bystander(node: Node) -> Iterator[dict[str, float]]:
    """Watch from one client; what it has seen is there at the end."""
    script = Path(__file__).parent / "bystander.py"
    command = [sys.executable, str(script), "--port", str(node.port), "--host", "bench.default", "--address", ADDRESS]
    command += ["--pid", str(node.processes["node"][0])]
    seen: dict[str, float] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        yield seen
        seen |= json.loads(watching.communicate()[0])


# Users


def user_keys(directory: Path, count: int) -> list[dict[str, Any]]:
    """Keys with the usual cost, different for each user; they are kept for the next run."""
    kept = directory / f"keys-{count}.json"
    if kept.exists():
        found: list[dict[str, Any]] = json.loads(kept.read_text())
        return found
    with ThreadPoolExecutor() as threads:
        keys = list(
            threads.map(
                lambda number: key_fields(
                    make_keys("SCRAM-SHA-256", PASSWORD, b"%016d" % number, DEFAULT_ITERATIONS)
                ),
                range(count),
            )
        )
    kept.write_text(json.dumps(keys))
    return keys


async def create_users(node: Node, count: int, keys: list[dict[str, Any]]) -> None:
    async with connect(node.admin_url) as connection:
        management = Management(connection, timeout=TIMEOUT_S)
        await management.create("io.enmasse.space", SPACE, {"authentication": "standard", "uid": "guarded"})
        numbers = iter(range(count))

        async def some() -> None:
            for number in numbers:
                attributes = user_attributes(number, {"SCRAM-SHA-256": keys[number]})
                await management.create("io.enmasse.user", f"{SPACE}.device-{number}", attributes)

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))


MEASUREMENTS = (Measurement("Five thousand clients that come back at once", returning),)
