"""What a tenant that sends whatever it can costs a quiet one on the same node."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from benchmarks.generators import build
from benchmarks.measurement import Line, Measurement, Setting
from benchmarks.node import Node
from enmasse.client.blocking import connect
from enmasse.control.spaces.effective import limit_settings
from enmasse.errors import UnavailableError
from enmasse.model.catalog import default_plans
from enmasse.model.kinds.plans import AddressSpacePlanSpec

__all__ = ["MEASUREMENTS"]

RATE = 500
"""Messages a second of the quiet tenant: far from what a node can do."""

SECONDS = 5.0
"""At least, so that one message in a hundred is twenty-five."""

WARMUP_S = 1.0

PAIRS = 10
"""Senders, and receivers, of the noisy tenant, each with a connection."""

RATIO = 2.0

QUIET, NOISY = "default/quiet", "default/noisy"

KINDS = {"quiet": "anycast", "noisy": "anycast", "disk": "queue"}
"""Address to type, in both spaces."""


def free_plan() -> dict[str, int]:
    """The rates of the plan for everybody, in the words of a node."""
    (plan,) = [
        plan.spec for plan in default_plans() if plan.kind == "AddressSpacePlan" and plan.metadata.name == "free"
    ]
    assert isinstance(plan, AddressSpacePlanSpec)
    assert plan.limits is not None
    limits = limit_settings(plan.limits)
    return {"maxMessageRate": limits.max_message_rate, "maxByteRate": limits.max_byte_rate}


class Tenants:
    """Two spaces of a node, each with a port of its own."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.ports = {QUIET: _free_port(), NOISY: _free_port()}
        with connect(node.admin_url) as connection:
            management = connection.management()
            for space, port in self.ports.items():
                management.create("io.enmasse.space", space, {"authentication": "none", "port": port})
                for name, kind in KINDS.items():
                    for address in (f"{name}.{number}" for number in range(PAIRS)):
                        attributes = {"space": space, "address": address, "addressType": kind}
                        management.create("io.enmasse.address", f"{space}.{address}", attributes)
        for port in self.ports.values():
            _wait_for(port)

    def limit(self, **limits: int) -> None:
        """Bound the noisy tenant."""
        with connect(self.node.admin_url) as connection:
            connection.management().update("io.enmasse.space", NOISY, limits)

    def quiet(self, seconds: float) -> dict[str, float]:
        """The quiet tenant's latencies in microseconds: from when a message was due to its receiver."""
        found = _load(self.ports[QUIET], "quiet.0", seconds, "--rate", str(RATE))
        done = subprocess.run(found, capture_output=True, text=True, check=False, timeout=seconds + 60)
        latencies: dict[str, float] = _result(done.stdout, done.stderr)["lat_us"]
        return latencies

    @contextmanager
    def noise(self, address: str, seconds: float, *arguments: str) -> Iterator[None]:
        """Have the noisy tenant send whatever it may."""
        # Clients are on machines of their own; here the noisy one's must not keep the quiet one's from running.
        command = ["nice", "-n", "10", *_load(self.ports[NOISY], address, seconds, *arguments)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                time.sleep(WARMUP_S)
                yield
            finally:
                process.kill()


def noisy_neighbour(setting: Setting) -> Iterator[Line]:
    """A quiet tenant by itself, beside a noisy one on the plan ``free``, and beside one without limits."""
    seconds = max(setting.seconds, SECONDS)
    with setting.node() as node:
        tenants = Tenants(node)
        alone: list[dict[str, float]] = []
        beside: dict[str, list[dict[str, float]]] = {}
        senders = ("--connections", str(PAIRS))
        cases = {
            "on the plan free": (free_plan(), "noisy.%d", senders),
            "without limits": ({}, "noisy.%d", senders),
            "that stores without limits": ({}, "disk.%d", (*senders, "--durable")),
        }
        setting.patience.wait()
        for _ in range(setting.runs):
            # In turns, so that whatever else the machine does meets all of them.
            alone.append(tenants.quiet(seconds))
            for name, (limits, address, arguments) in cases.items():
                tenants.limit(**{"maxMessageRate": 0, "maxByteRate": 0} | limits)
                with tenants.noise(address, seconds + 60, *arguments):
                    beside.setdefault(name, []).append(tenants.quiet(seconds))
        base = {part: median(run[part] for run in alone) for part in ("p50", "p99")}
        for part, value in base.items():
            yield Line(f"quiet tenant alone: {part}", value, "us")
        for name, runs in beside.items():
            for part, value in base.items():
                found = median(run[part] for run in runs)
                yield Line(f"beside one {name}: {part}", found, "us")
                yield Line("ratio", found / value, "", target=RATIO if part == "p99" else 0)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise UnavailableError(f"the node has not opened port {port} of a space") from None
            time.sleep(0.02)
        else:
            return


def _load(port: int, address: str, seconds: float, *arguments: str) -> list[str]:
    command = [str(build("amqp_load")), "--port", str(port), "--address", address, "--json"]
    return [*command, "--seconds", str(seconds), "--warmup", str(WARMUP_S), *arguments]


def _result(stdout: str, stderr: str) -> dict[str, Any]:
    if not stdout:
        raise UnavailableError(stderr.strip() or "the load generator said nothing")
    found: dict[str, Any] = json.loads(stdout)
    return found


MEASUREMENTS = (Measurement("A noisy tenant beside a quiet one", noisy_neighbour),)
