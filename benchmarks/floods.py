"""What a flood costs others: frames on one connection, messages for very many receivers, what ends at once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles

from benchmarks.measurement import Line, Measurement, Setting
from benchmarks.node import SPACE, Node
from enmasse.client.blocking import connect
from enmasse.client.message import Message
from enmasse.errors import EnmasseError

__all__ = ["MEASUREMENTS"]

KINDS = {"attach": "attaches and detaches", "begin": "begins and ends", "flow": "asks for flows"}

LIMIT_MS = 30.0

WARMUP_S = 0.5

SECONDS = 3.0
"""At least."""

FANS = {
    "clients": "subscribers of MQTT",
    "sessions": "sessions of MQTT with QoS 1",
    "shared": "members of a shared subscription",
    "multicast": "receivers of a multicast address",
    "links": "links of AMQP",
    "retained": "subscribers that ask for 200 retained values",
    "wills": "clients with a will that are lost at once",
    "busy": "receivers of an anycast address, all but one without credit",
    "working": "receivers of an anycast address that settle nothing",
}

RECEIVERS = 4_000

FAN_LIMIT_MS = 50.0

AFTER_S = 2.0
"""The time for which others are watched after an event."""

EXPIRING_S = 10.0
"""The time until sessions have ended whose clients are lost."""

QUIET = "default/quiet"

DEEP = 100_000
"""Messages of a queue that is gone through."""

DEAR = " OR ".join(["x LIKE '%a_b%'"] * 8)
"""A selector that takes nearly all that it may take for one message, a millisecond."""

TEXT = "a" * 1_000
"""What it is applied to."""

THROUGH = {
    "receivers with a selector": "attach",
    "browsers with a selector": "browse",
    "counts by a selector": "count",
    "searches for a text": "search",
    "moves there and back": "move",
    "purges": "purge",
}

ADDRESS_TYPE = "io.enmasse.address"

FAN_OPTIONS = ("--default-space", "default/bench")


def floods(setting: Setting) -> Iterator[Line]:
    """Durable sends one at a time, connections and links, beside one flooder of each kind in turn."""
    seconds = max(setting.seconds, SECONDS)
    found: dict[str, list[dict[str, float]]] = {}
    with setting.node() as node:
        for address in ("queue.flood", "queue.probe"):
            node.declare(address, addressType="queue")
        setting.patience.wait()
        for _ in range(setting.runs):
            # In turns, so that whatever else the machine does meets all of them.
            found.setdefault("calm", []).append(_probe(node, seconds))
            for kind, name in KINDS.items():
                with _flood(node, kind, seconds + 60):
                    found.setdefault(f"beside one that {name}", []).append(_probe(node, seconds))
    for name, runs in found.items():
        for what in runs[0]:
            target = 0.0 if name == "calm" or "p50" in what else LIMIT_MS
            yield Line(f"{name}: {what}", median(run[what] for run in runs), "ms", target=target)


def _probe(node: Node, seconds: float) -> dict[str, float]:
    """Milliseconds of a send that is accepted, of an open connection and of an attached link.

    By the clock, and how long the node ran meanwhile: on a machine that others use the latter tells more.
    """
    found: dict[str, float] = {}

    def measure(what: str, call: Callable[[], object], seconds: float) -> None:
        clock, cpu = _times(node, call, seconds)
        found[f"{what} p50"] = median(clock)
        found[f"{what} p99"] = quantiles(clock, n=100)[98]
        found[f"{what} p99, time of the node"] = quantiles(cpu, n=100)[98]

    with connect(node.url) as connection:
        sender = connection.sender("queue.probe")
        message = Message("x" * 100, durable=True)
        measure("send", lambda: sender.send(message), seconds)
        measure("attach and detach", lambda: connection.sender("queue.probe").close(), seconds / 2)
    measure("connect and close", lambda: connect(node.url).close(), seconds / 2)
    return found


def _times(node: Node, call: Callable[[], object], seconds: float) -> tuple[list[float], list[float]]:
    clock: list[float] = []
    cpu: list[float] = []
    spent = Path(f"/proc/{node.processes['node'][0]}/schedstat")
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until or len(clock) < 2:
        before = _nanoseconds(spent)
        call()
        clock.append((time.perf_counter() - began) * 1000)
        cpu.append((_nanoseconds(spent) - before) / 1_000_000)
    return clock, cpu


def _nanoseconds(spent: Path) -> int:
    return int(spent.read_text(encoding="ascii").split()[0])


@contextmanager
def _flood(node: Node, kind: str, seconds: float) -> Iterator[None]:
    script = Path(__file__).parent / "flooding.py"
    where = ("--port", str(node.port), "--kind", kind, "--address", "queue.flood", "--seconds", str(seconds))
    # Clients are on machines of their own; here the flooder must not keep the other one from running.
    with subprocess.Popen(["nice", "-n", "10", sys.executable, str(script), *where]) as process:
        try:
            time.sleep(WARMUP_S)
            yield
            if process.poll() is not None:
                message = f"the flooder has ended: {process.returncode}"
                raise RuntimeError(message)
        finally:
            process.kill()


def fans(setting: Setting) -> Iterator[Line]:
    """A client of another space that sends itself messages, beside bursts of messages for thousands of receivers."""
    seconds = max(setting.seconds, SECONDS)
    count = setting.count(RECEIVERS)
    for kind, name in FANS.items():
        with setting.node(*FAN_OPTIONS) as node:
            _declare(node)
            setting.patience.wait()
            with _fan(node, kind, count) as told:
                runs = [_bystander(node, seconds) for _ in range(setting.runs)]
        yield Line(f"{count:,} {name}: p99", median(run["p99"] for run in runs), "ms", target=FAN_LIMIT_MS)
        yield Line("longest", median(run["max"] for run in runs), "ms")
        yield Line("p99, time of the node", median(run["node_p99"] for run in runs), "ms", target=FAN_LIMIT_MS)
        for what, value in told.items():
            yield Line(what, value, "")


def _declare(node: Node) -> None:
    with connect(node.admin_url) as connection:
        management = connection.management()
        management.create("io.enmasse.space", QUIET, {"authentication": "none"})
        attributes = {"space": QUIET, "address": "anycast.0", "addressType": "anycast"}
        management.create("io.enmasse.address", f"{QUIET}.anycast.0", attributes)
    for kind in ("anycast", "topic", "multicast"):
        node.declare(f"{kind}.0", addressType=kind)


def crowds(setting: Setting) -> Iterator[Line]:
    """The longest wait of a client of another space, while one event concerns thousands."""
    count = setting.count(RECEIVERS)
    for name, (kind, act) in EVENTS.items():
        longest = []
        for _ in range(setting.runs):
            with setting.node(*FAN_OPTIONS) as node:
                _declare(node)
                node.declare("queue.0", addressType="queue")
                node.declare("stream.0", addressType="stream")
                setting.patience.wait()
                with _fan(node, kind, count):
                    longest.append(_bystander(node, AFTER_S, partial(act, node))["node_max"])
        yield Line(f"{count:,} {name}: longest, time of the node", median(longest), "ms", target=FAN_LIMIT_MS)


def _delete(*addresses: str) -> Callable[[Node], None]:
    def act(node: Node) -> None:
        for address in addresses:
            node.remove(address)

    return act


def _close_space(node: Node) -> None:
    _delete("anycast.0", "topic.0", "multicast.0", "queue.0", "stream.0")(node)
    with connect(node.admin_url) as connection:
        connection.management().delete("io.enmasse.space", SPACE)


def _list(entity_type: str) -> Callable[[Node], None]:
    def act(node: Node) -> None:
        with connect(node.admin_url) as connection:
            connection.management().query(entity_type)

    return act


def _list_pages(operation: str) -> Callable[[Node], None]:
    def act(node: Node) -> None:
        with connect(node.admin_url) as connection:
            offset, has_more = 0, True
            while has_more:
                page = connection.management().perform(operation, "io.enmasse.space", SPACE, {"offset": offset})
                offset, has_more = offset + len(page["results"]), page["hasMore"]

    return act


def _turn_away(node: Node) -> None:
    with connect(node.admin_url) as connection:
        connection.management().update("io.enmasse.space", SPACE, {"authentication": "standard"})


EVENTS: dict[str, tuple[str, Callable[[Node], None]]] = {
    "sessions of MQTT that expire": ("expiring", lambda _node: time.sleep(EXPIRING_S)),
    "subscribers of a topic that is deleted": ("connected", _delete("topic.0")),
    "sessions of a topic that is deleted": ("stored", _delete("topic.0")),
    "links of a queue that is deleted": ("attached", _delete("queue.0")),
    "connections of a space that is deleted": ("connected", _close_space),
    "sessions of a space that is deleted": ("stored", _close_space),
    "connections whose users may not stay": ("connected", _turn_away),
    "connections that are listed": ("connected", _list("io.enmasse.connection")),
    "links that are listed": ("connected", _list("io.enmasse.link")),
    "sessions that are listed": ("stored", _list("io.enmasse.session")),
    "connections that are listed in pages": ("connected", _list_pages("CONNECTIONS")),
    "links that are listed in pages": ("connected", _list_pages("LINKS")),
    "sessions that are listed in pages": ("stored", _list_pages("SESSIONS")),
}
"""The events, each with the clients that are there and what makes it happen."""


def deep(setting: Setting) -> Iterator[Line]:
    """A client of another space that sends itself messages, beside one that goes through a whole queue in vain."""
    seconds = max(setting.seconds, SECONDS)
    count = setting.count(DEEP)
    for where in ("durable", "memory"):
        with setting.node(*FAN_OPTIONS) as node, ThreadPoolExecutor(1) as pool:
            _declare(node)
            for address in ("queue.0", "queue.1"):
                node.declare(address, addressType="queue", storage=where, maxBytes=1 << 30)
            with connect(node.url) as connection:
                sender = connection.sender("queue.0")
                message = Message("y", durable=True, properties={"x": TEXT})
                sender.send_all([message] * count)
                sender.close()
            setting.patience.wait()
            for name, what in THROUGH.items():
                until = time.monotonic() + seconds
                going = pool.submit(_go_through, node, what, until)
                found = _bystander(node, seconds)
                going.result()
                title = f"{count:,} in {'memory' if where == 'memory' else 'a journal'}, {name}: p99"
                yield Line(title, found["p99"], "ms", target=FAN_LIMIT_MS)
                yield Line("longest", found["max"], "ms")
                yield Line("p99, time of the node", found["node_p99"], "ms", target=FAN_LIMIT_MS)


def _go_through(node: Node, what: str, until: float) -> None:
    """Do one thing with all of a queue, again and again; who asks goes away at the end, and so it ends."""
    names = ["default/queue.0", "default/queue.1"]
    while time.monotonic() < until:
        with connect(node.admin_url if what not in ("attach", "browse") else node.url) as connection:
            if what in ("attach", "browse"):
                receiver = connection.receiver("queue.0", browse=what == "browse", selector=DEAR)
                receiver.receive(timeout=max(0.1, until - time.monotonic()))
                continue
            management = connection.management(timeout=max(0.1, until - time.monotonic()))
            asked = {
                "search": {"search": "no such text", "dryRun": True},
                "count": {"selector": DEAR, "dryRun": True},
            }
            try:
                if what == "move":
                    management.perform("MOVE", ADDRESS_TYPE, names[0], {"to": names[1].partition("/")[2]})
                    names.reverse()
                else:
                    for name in names:
                        management.perform("PURGE", ADDRESS_TYPE, name, asked.get(what, {}))
            except EnmasseError:
                return  # the time is over


@contextmanager
def _fan(node: Node, kind: str, count: int) -> Iterator[dict[str, float]]:
    """Have many clients connected and messages sent to them meanwhile; what they tell is there at the end."""
    told: dict[str, float] = {}
    script = Path(__file__).parent / "fanning.py"
    where = ("--port", str(node.port), "--kind", kind, "--count", str(count))
    command = ["nice", "-n", "10", sys.executable, str(script), *where]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                message = "the clients could not connect"
                raise RuntimeError(message)
            time.sleep(WARMUP_S)
            yield told
            told |= json.loads(process.communicate("", timeout=120)[0])
        finally:
            process.kill()


def _bystander(node: Node, seconds: float, act: Callable[[], None] | None = None) -> dict[str, float]:
    """Milliseconds of a client's messages, for some seconds after what is done meanwhile."""
    script = Path(__file__).parent / "bystander.py"
    where = ("--port", str(node.port), "--host", "quiet.default", "--address", "anycast.0")
    command = [sys.executable, str(script), *where, "--pid", str(node.processes["node"][0])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # it is ready
            if act is not None:
                act()
            time.sleep(seconds)
            found: dict[str, float] = json.loads(process.communicate("", timeout=120)[0])
        finally:
            process.kill()
    return found


MEASUREMENTS = (
    Measurement("One connection that floods its space", floods),
    Measurement("Messages for thousands of receivers", fans),
    Measurement("Events that concern thousands", crowds),
    Measurement("A whole queue that is gone through", deep),
)
