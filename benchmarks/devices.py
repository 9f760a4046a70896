"""Ten thousand devices over MQTT: an event each in ten seconds, and commands that some of them answer meanwhile."""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from benchmarks.accounting import cpu_seconds
from benchmarks.control import Installation, ask
from benchmarks.measurement import Line, Measurement, Setting
from enmasse.drivers.data_directory import Layout
from enmasse.drivers.supervisor.endpoints import Endpoint, Endpoints, write_endpoints
from enmasse.errors import UnavailableError
from enmasse.node.devices.directory import Directory
from enmasse.node.devices.tenants import Tenant

__all__ = ["MEASUREMENTS"]

DEVICES = 10_000
PERIOD_S = 10.0
SECONDS = 20.0
COMMANDED = 100
"""A hundredth of them are commanded."""

ARRIVE_S = 120.0
FIGURES_S = 20.0
MAX_ANSWER_MS = 500
TENANT = "default.plant"
PROJECTS = "/apis/iot.enmasse.io/v1alpha1/namespaces/default/iotprojects"
PROJECT = {
    "apiVersion": "iot.enmasse.io/v1alpha1",
    "kind": "IoTProject",
    "metadata": {"name": "plant", "namespace": "default"},
    "spec": {"downstreamStrategy": {"managedStrategy": {"addressSpace": {"name": "farm"}, "addresses": {}}}},
}
LOGINS_OF = 50
LOGINS_AT_ONCE = 10
LOGINS_S = 5.0
MAX_LOOK_UP_US = 20
_SHOWN = re.compile(r"(\d+) connected .* (\d+) taken +(\d+) refused")


def fleet(setting: Setting) -> Iterator[Line]:
    """Measure acknowledgements and answers to commands while the whole fleet sends."""
    count = setting.count(DEVICES)
    with ExitStack() as stack:
        data = Path(stack.enter_context(TemporaryDirectory(prefix="run-", dir=setting.directory)))
        site = stack.enter_context(Installation(data))
        ask(site.api(), "POST", PROJECTS, PROJECT)
        urls = (
            Endpoint("api", f"http://127.0.0.1:{site.api_port}"),
            Endpoint("mqtt", f"mqtt://127.0.0.1:{site.node_port}"),
        )
        write_endpoints(Layout(data).endpoints, Endpoints(urls))  # where the fleet looks for them
        setting.patience.wait()
        shown = stack.enter_context((data / "fleet.txt").open("w+"))
        command = [sys.executable, "-m", "enmasse", "iot", "simulate", TENANT, "--devices", str(count)]
        command += ["--period", str(PERIOD_S), "--event", "--data", str(data)]
        played = subprocess.Popen(command, stdout=shown, stderr=subprocess.STDOUT)
        stack.callback(played.wait)
        stack.callback(played.terminate)
        began = time.monotonic()
        while _last(data)[0] < count:
            if time.monotonic() - began > ARRIVE_S or played.poll() is not None:
                raise UnavailableError(f"{_last(data)[0]} of {count} devices came in")
            time.sleep(0.5)
        arrived = time.monotonic() - began
        answers = _command(site, data, count, max(1, count // COMMANDED))
        connected, taken, refused = _last(data)
        answers.sort()
        yield Line(f"{count} devices registered and connected within", arrived, "s")
        yield Line("connected at the end", connected, "devices", target=count, at_least=True)
        yield Line("events taken", taken, "messages")
        yield Line("events refused", refused, "messages")
        played.terminate()
        played.wait()
        connected, taken, refused = _last(data)
        yield Line("of those taken, in the queue", _stored(site, taken), "messages", target=taken, at_least=True)
        yield Line("commands answered", len(answers), "commands", target=max(1, count // COMMANDED), at_least=True)
        yield Line("a command and its answer, median", answers[len(answers) // 2] * 1000, "ms")
        yield Line("a command and its answer, p99", answers[int(len(answers) * 0.99)] * 1000, "ms", MAX_ANSWER_MS)


def _last(data: Path) -> tuple[int, int, int]:
    """What the fleet has shown last."""
    found = _SHOWN.findall((data / "fleet.txt").read_text())
    connected, taken, refused = found[-1] if found else (0, 0, 0)
    return int(connected), int(taken), int(refused)


def _stored(site: Installation, taken: int) -> int:
    """Return how many events the queue has, once it has what was taken or control has had time to read the figure."""
    path = "/apis/enmasse.io/v1beta1/namespaces/default/addressspaces/farm/rows/addresses"
    end = time.monotonic() + FIGURES_S
    while True:
        rows = ask(site.api(), "GET", path)
        stored = next(int(row.get("stored", 0)) for row in rows["items"] if row["address"] == f"event/{TENANT}")
        if stored >= taken or time.monotonic() > end:
            return stored
        time.sleep(0.5)


def _command(site: Installation, data: Path, count: int, number: int) -> list[float]:
    headers = {"authorization": f"Bearer {Layout(data).operator_token.read_text()}"}
    chance = random.Random(1)  # which devices
    with httpx.Client(base_url=f"http://127.0.0.1:{site.api_port}", headers=headers, timeout=30) as client:

        def one(device: int) -> float:
            asked: dict[str, Any] = {"name": "blink", "mode": "direct"}
            began = time.monotonic()
            path = f"/registry/v1/commands/{TENANT}/sim-{device:05}?wait=10"
            answer = client.post(path, content=json.dumps(asked), headers={"content-type": "application/json"})
            answer.raise_for_status()
            return time.monotonic() - began

        found: list[float] = []
        with ThreadPoolExecutor(4) as threads:
            devices = [chance.randrange(count) for _ in range(number)]
            for at in range(0, number, 4):
                began = time.monotonic()
                found += threads.map(one, devices[at : at + 4])
                time.sleep(max(0.0, SECONDS * 4 / number - (time.monotonic() - began)))
    return found


def logins(setting: Setting) -> Iterator[Line]:
    """Measure logins of devices whose bcrypt passwords have been checked before, and the look-up of what is known."""
    yield Line("look-up of credentials that are kept, CPU", _look_up_us(), "us", MAX_LOOK_UP_US)
    with ExitStack() as stack:
        data = Path(stack.enter_context(TemporaryDirectory(prefix="run-", dir=setting.directory)))
        site = stack.enter_context(Installation(data))
        ask(site.api(), "POST", PROJECTS, PROJECT)
        setting.patience.wait()
        headers = {"authorization": f"Bearer {Layout(data).operator_token.read_text()}"}
        names = [f"device-{number}" for number in range(LOGINS_OF)]
        with httpx.Client(base_url=f"http://127.0.0.1:{site.api_port}", headers=headers, timeout=30) as client:
            for name in names:
                client.post(f"/registry/v1/devices/{TENANT}/{name}", json={}).raise_for_status()
                given = [{"type": "hashed-password", "auth-id": name, "secrets": [{"pwd-plain": name}]}]
                client.put(f"/registry/v1/credentials/{TENANT}/{name}", json=given).raise_for_status()
        asyncio.run(_log_in(site.node_port, names, 0.0))  # each password is hashed once
        pids = [site.pid("node")]
        before, began = cpu_seconds(pids), time.perf_counter()
        done = asyncio.run(_log_in(site.node_port, names, LOGINS_S))
        spent, passed = cpu_seconds(pids) - before, time.perf_counter() - began
        yield Line("logins of devices, passwords known", done / passed, "1/s", target=1_000, at_least=True)
        yield Line("a login, connection included, CPU of the node", spent / done * 1e6, "us")


def _look_up_us() -> float:
    """Return the time that a look-up of kept credentials takes."""

    def answer(question: dict[str, Any], done: Callable[[dict[str, Any] | None], None]) -> bool:
        credentials = {"auth-id": question["auth-id"], "secrets": [{}]}
        done({"found": {"device-id": question["auth-id"], "device": {}, "credentials": credentials}})
        return True

    directory = Directory(time.monotonic, answer, lambda _tenant: None, lambda _tenant, _device: None)
    tenant, names = Tenant(TENANT, "default/farm", {}), [f"device-{number}" for number in range(10_000)]
    found: list[object] = []
    for name in names:
        directory.find_login(tenant, "hashed-password", name, found.append)
    began = time.process_time()
    for name in names * 5:
        directory.find_login(tenant, "hashed-password", name, found.append)
    return (time.process_time() - began) / (len(names) * 5) * 1e6


async def _log_in(port: int, names: list[str], seconds: float) -> int:
    """Have devices log in over MQTT again and again, some at a time, and return how often they did."""
    done = 0
    end = time.monotonic() + seconds
    waiting = iter(names)

    async def one(name: str) -> None:
        nonlocal done
        user = f"{name}@{TENANT}".encode()
        proof = name.encode()
        rest = b"\0\4MQTT\4\xc2\0\x1e" + b"\0\0"
        rest += len(user).to_bytes(2, "big") + user + len(proof).to_bytes(2, "big") + proof
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(bytes((0x10, len(rest))) + rest)
            connack = await reader.readexactly(4)
            if connack[3]:
                raise UnavailableError(f"{name} is refused: {connack[3]}")
            writer.transport.abort()
            done += 1
            if time.monotonic() >= end:
                return

    async def some() -> None:
        for name in waiting:
            await one(name)

    await asyncio.gather(*(some() for _ in range(LOGINS_AT_ONCE)))
    return done


MEASUREMENTS = (
    Measurement("A fleet of devices over MQTT", fleet),
    Measurement("Logins of devices", logins),
)
