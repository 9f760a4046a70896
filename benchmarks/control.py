"""The control plane with very many addresses: what one more costs, how soon it can be used, how soon it is back."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Self

from benchmarks.accounting import anonymous_bytes, cpu_seconds
from benchmarks.measurement import Line, Setting
from benchmarks.processes import free_port
from enmasse.client import connect
from enmasse.client.errors import LinkRefusedError
from enmasse.drivers.data_directory import Layout
from enmasse.errors import UnavailableError

__all__ = [
    "ADDRESSES_PATH",
    "SPACES_PATH",
    "Installation",
    "address",
    "ask",
    "cost_of_addresses",
    "create_addresses",
    "create_space",
    "wait_ready",
]

ADDRESSES = 100_000
BLOCK = 1_000
"""Addresses whose cost is compared: the first and the last of all."""

WRITERS = 4
ROUNDS = 30
SPACE = "bench"
START_S = 60.0
READY_S = 600.0
ADDRESSES_PATH = "/apis/enmasse.io/v1beta1/namespaces/default/addresses"
SPACES_PATH = "/apis/enmasse.io/v1beta1/namespaces/default/addressspaces"


class Installation:
    """A node and a control process over one data directory; a context manager."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._log = (data / "log").open("ab")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.api_port = free_port()
        self.node_port = free_port()

    def __enter__(self) -> Self:
        self.start("node", "--listen", f"127.0.0.1:{self.node_port}")
        self.start("control", "--port", str(self.api_port))
        return self

    def __exit__(self, *_: object) -> None:
        for role in list(self._processes):
            self.stop(role)
        self._log.close()

    def start(self, role: str, *arguments: str) -> float:
        """Start a process and return after how many seconds it listened."""
        began = time.monotonic()
        command = [sys.executable, "-m", "enmasse", role, "--data", str(self._data), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, stdin=subprocess.DEVNULL)
        self._processes[role] = process
        assert process.stdout is not None
        if b"listening" not in process.stdout.readline():
            raise UnavailableError(f"{role} does not start:\n{(self._data / 'log').read_text()[-2000:]}")
        return time.monotonic() - began

    def stop(self, role: str) -> None:
        process = self._processes.pop(role)
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(START_S)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def cpu(self, role: str) -> float:
        return cpu_seconds([self._processes[role].pid])

    def pid(self, role: str) -> int:
        return self._processes[role].pid

    def memory(self, role: str) -> int:
        return anonymous_bytes([self._processes[role].pid])

    def api(self) -> Api:
        return Api("127.0.0.1", self.api_port, Layout(self._data).operator_token.read_text())


class Api(http.client.HTTPConnection):
    """A connection whose requests are the operator's."""

    def __init__(self, host: str, port: int, token: str) -> None:
        super().__init__(host, port, timeout=READY_S)
        self.headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}


def ask(api: Api, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """One request; the answer."""
    given = None if body is None else json.dumps(body)
    api.request(method, path, given, api.headers)
    answer = api.getresponse()
    found: dict[str, Any] = json.loads(answer.read())
    if answer.status >= 400:
        raise UnavailableError(f"{method} {path}: {found}")
    return found


def address(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Address",
        "metadata": {"name": f"{SPACE}.a{number:06}", "namespace": "default"},
        "spec": {"address": f"plant/{number}", "type": "anycast"},
    }


def create_space(api: Api, name: str) -> None:
    """Create a space whose plan does not limit it."""
    space = {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "AddressSpace",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "standard", "plan": "standard-unlimited"},
    }
    ask(api, "POST", SPACES_PATH, space)


def cost_of_addresses(setting: Setting) -> Iterator[Line]:
    """Create addresses through the API, one request each, by a few clients at a time."""
    count = max(setting.count(ADDRESSES), 2 * BLOCK)
    with ExitStack() as stack:
        data = Path(stack.enter_context(TemporaryDirectory(prefix="run-", dir=setting.directory)))
        site = stack.enter_context(Installation(data))
        api = site.api()
        create_space(api, SPACE)
        first, last = yield from _fill(setting, site, count)
        yield Line(f"control's CPU for the first {BLOCK:,}, ready included", first * 1e3, "ms")
        yield Line(f"control's CPU for the last {BLOCK:,} of {count:,}", last * 1e3, "ms")
        yield Line("the last in terms of the first", last / first, "", target=1.2)
        yield Line("control's memory", site.memory("control") / 1e6, "MB")
        yield Line("the node's memory", site.memory("node") / 1e6, "MB")
        times = sorted(asyncio.run(_change_to_use(site, count)))
        yield Line("from the change to its use, p50", median(times) * 1e3, "ms", target=50)
        yield Line("from the change to its use, longest", times[-1] * 1e3, "ms")
        yield from _restarts(site, count)


def _fill(setting: Setting, site: Installation, count: int) -> Generator[Line, None, tuple[float, float]]:
    setting.patience.wait()
    first, node_first, _ = create_addresses(site, 0, BLOCK)
    began = time.monotonic()
    create_addresses(site, BLOCK, count - BLOCK)
    middle = count - 2 * BLOCK
    yield Line("addresses a second, created and ready", middle / max(time.monotonic() - began, 1e-9), "1/s")
    setting.patience.wait()
    last, node_last, seconds = create_addresses(site, count - BLOCK, count)
    yield Line(f"the last {BLOCK:,}: time until all are ready", seconds, "s")
    yield Line("the node's CPU for the last in terms of the first", node_last / node_first, "", target=1.2)
    return first, last


def create_addresses(site: Installation, start: int, end: int) -> tuple[float, float, float]:
    """Create addresses until all are ready; CPU seconds of control and node, and the time it took."""
    before = site.cpu("control"), site.cpu("node")
    began = time.monotonic()

    def write(offset: int) -> None:
        api = site.api()
        for number in range(start + offset, end, WRITERS):
            ask(api, "POST", ADDRESSES_PATH, address(number))
        api.close()

    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(write, range(WRITERS)))
    api = site.api()
    for number in range(max(start, end - 2 * WRITERS), end):
        wait_ready(api, number)
    api.close()
    return site.cpu("control") - before[0], site.cpu("node") - before[1], time.monotonic() - began


def wait_ready(api: Api, number: int) -> None:
    """Wait until an address is ready."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        found = ask(api, "GET", f"{ADDRESSES_PATH}/{address(number)['metadata']['name']}")
        if found.get("status", {}).get("isReady"):
            return
        time.sleep(0.005)
    raise UnavailableError(f"address {number} is not ready after {READY_S:.0f} s: {found.get('status')}")


async def _change_to_use(site: Installation, start: int) -> list[float]:
    """Declare an address and attach to it; the seconds between, of each round."""
    times = []
    api = site.api()
    async with connect(f"amqp://127.0.0.1:{site.node_port}") as connection:
        for number in range(start, start + ROUNDS):
            declared = address(number)
            began = time.perf_counter()
            await asyncio.to_thread(ask, api, "POST", ADDRESSES_PATH, declared)
            while True:
                try:
                    async with connection.receiver(declared["spec"]["address"]):
                        times.append(time.perf_counter() - began)
                        break
                except LinkRefusedError:
                    await asyncio.sleep(0.001)
                if time.perf_counter() - began > READY_S:
                    raise UnavailableError("the address never came")
    api.close()
    return times


def _restarts(site: Installation, count: int) -> Iterator[Line]:
    """Start control anew; it is ready when a change is in effect."""
    site.stop("control")
    began = time.monotonic()
    site.start("control", "--port", str(site.api_port))
    listening = time.monotonic() - began
    api = site.api()
    ask(api, "POST", ADDRESSES_PATH, address(count + ROUNDS))
    wait_ready(api, count + ROUNDS)
    yield Line("restart of control until it answers", listening, "s")
    yield Line("restart of control until a change is in effect", time.monotonic() - began, "s", target=5)
    before = site.cpu("control")
    time.sleep(10)
    yield Line("its CPU in the 10 seconds after", site.cpu("control") - before, "s")
    api.close()
