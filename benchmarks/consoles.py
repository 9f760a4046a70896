"""Fifty open consoles on ten thousand addresses: what they cost control, and what looking costs the node."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from benchmarks.control import ADDRESSES_PATH, Installation, address, ask, create_space, wait_ready
from benchmarks.measurement import Line, Measurement, Setting
from enmasse.client import Message, connect
from enmasse.drivers.data_directory import Layout

__all__ = ["MEASUREMENTS", "declare"]

ADDRESSES = 10_000
CONSOLES = 50
AT_ONCE = 50
"""The most addresses of one request."""

FLOWING = 20
"""Queues that messages flow through, so that there is something to tell."""

SECONDS = 90.0
MAX_SHARE = 0.20
MAX_ANSWER_MS = 200
BASE = "/apis/enmasse.io/v1beta1"
ROWS = f"{BASE}/namespaces/default/addressspaces/bench/rows/addresses"


def consoles(setting: Setting) -> Iterator[Line]:
    """Measure control and node without and with consoles, while messages flow."""
    count = setting.count(ADDRESSES)
    with ExitStack() as stack:
        data = Path(stack.enter_context(TemporaryDirectory(prefix="run-", dir=setting.directory)))
        site = stack.enter_context(Installation(data))
        api = site.api()
        create_space(api, "bench")
        for number in range(FLOWING):
            ask(api, "POST", ADDRESSES_PATH, _queue(number))
        declare(site, count)
        setting.patience.wait()
        token = Layout(data).operator_token.read_text()
        yield from asyncio.run(_look(site, token))


def declare(site: Installation, count: int) -> None:
    """Declare addresses by as many requests as it takes at least, and wait until they are ready."""
    api = site.api()
    for first in range(0, count, AT_ONCE):
        items = [address(number) for number in range(first, min(first + AT_ONCE, count))]
        listed = {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressList", "items": items}
        ask(api, "POST", ADDRESSES_PATH, listed)
    wait_ready(api, count - 1)


def _queue(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Address",
        "metadata": {"name": f"bench.flow{number}", "namespace": "default"},
        "spec": {"address": f"flow/{number}", "type": "queue"},
    }


async def _look(site: Installation, token: str) -> list[Line]:
    flowing = asyncio.create_task(_flow(site.node_port))
    try:
        await asyncio.sleep(SECONDS / 3)  # the first readings, and what creation left to do
        alone = await _shares(site)
        headers = {"authorization": f"Bearer {token}"}
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{site.api_port}",
            headers=headers,
            limits=limits,
            timeout=None,
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        ) as http:
            told: list[int] = []
            viewers = [asyncio.create_task(_view(http, path, told)) for path in _pages()]
            await asyncio.sleep(SECONDS / 3)
            before = len(told)
            watched = await _shares(site)
            lines = len(told) - before
            for task in (flowing, *viewers):
                if task.done():
                    task.result()  # it was to go on: this raises why it did not
            answers = [await _filter(http, number) for number in range(30)]
            for viewer in viewers:
                viewer.cancel()
            await asyncio.gather(*viewers, return_exceptions=True)
        return [
            Line("control's share of a core, nobody looks", alone[0], ""),
            Line(f"control's share of a core, {CONSOLES} consoles", watched[0], "", target=MAX_SHARE),
            Line("the node's share, nobody looks", alone[1], ""),
            Line(f"the node's share, {CONSOLES} consoles", watched[1], ""),
            Line("a client's p99 beside it, nobody looks", alone[2]["p99"], "ms"),
            Line(f"a client's p99 beside it, {CONSOLES} consoles", watched[2]["p99"], "ms"),
            Line("the node's own part of it, nobody looks", alone[2]["node_p99"], "ms"),
            Line(f"the node's own part of it, {CONSOLES} consoles", watched[2]["node_p99"], "ms"),
            Line("answers told to all consoles a second", lines / SECONDS, "1/s"),
            Line("rows for another filter, p50", sorted(answers)[15] * 1e3, "ms"),
            Line("rows for another filter, longest", max(answers) * 1e3, "ms", target=MAX_ANSWER_MS),
            Line("control's memory", site.memory("control") / 1e6, "MB"),
        ]
    finally:
        flowing.cancel()
        await asyncio.gather(flowing, return_exceptions=True)


def _pages() -> Iterator[str]:
    """Yield what the consoles have open: a page of addresses each, most of them different, and two others."""
    for number in range(CONSOLES):
        sort = ("address", "-messagesIn", "-stored", "type")[number % 4]
        search = "" if number % 3 else f"{number % 10}"
        yield f"{ROWS}?watch=true&limit=20&sort={sort}&search={search}"
        yield f"{BASE}/overview?watch=true"
        yield f"{BASE}/rows/addressspaces?watch=true"


async def _view(http: httpx.AsyncClient, path: str, told: list[int]) -> None:
    async with http.stream("GET", path) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            told.append(len(line))  # noqa: PERF401  # each as it comes


async def _filter(http: httpx.AsyncClient, number: int) -> float:
    began = time.perf_counter()
    answer = await http.get(f"{ROWS}?search={number}&limit=20")
    answer.raise_for_status()
    return time.perf_counter() - began


async def _shares(site: Installation) -> tuple[float, float, dict[str, float]]:
    """Return the shares of a core that control and node take for a while, and what a client beside it meets."""
    arguments = ("--port", str(site.node_port), "--host", "bench.default", "--address", address(0)["spec"]["address"])
    bystander = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("bystander.py")),
        *arguments,
        "--pid",
        str(site.pid("node")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert bystander.stdout is not None
    await bystander.stdout.readline()  # it is ready
    before, began = (site.cpu("control"), site.cpu("node")), time.monotonic()
    await asyncio.sleep(SECONDS)
    took = time.monotonic() - began
    shares = (site.cpu("control") - before[0]) / took, (site.cpu("node") - before[1]) / took
    met: dict[str, float] = json.loads((await bystander.communicate(b""))[0])
    return *shares, met


async def _flow(port: int) -> None:
    """Send to some queues and receive from half of them, some messages a second: a row of each page changes."""
    async with connect(f"amqp://127.0.0.1:{port}", hostname="bench.default") as connection:
        senders = [await connection.sender(f"flow/{number}") for number in range(FLOWING)]
        receivers = [await connection.receiver(f"flow/{number}") for number in range(FLOWING // 2)]
        while True:
            for sender in senders:
                await sender.send(Message("a reading"))
            for receiver in receivers:
                delivery = await receiver.receive(SECONDS)
                assert delivery is not None
                await delivery.accept()
            await asyncio.sleep(0.5)


MEASUREMENTS = (Measurement("Fifty consoles on 10,000 addresses", consoles),)
