"""What pipelines cost that have little or nothing to do: CPU of the runner with all it started, and its memory.

    python -m benchmarks.spark_idle [--pipelines 1,10] [--settle 90] [--seconds 60] [--rate 1]

A runner is started for each number of pipelines, as its host starts it. Each pipeline reads a stream of its own
as JSON, keeps what is hot, and has a few messages to read before it is left alone; then each gets ``--rate``
messages a second. CPU is what all its processes used in the measured time, with what the node used for them. Of
pages that several processes share each counts its part (PSS).
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.accounting import AnonymousPeak, descendants
from benchmarks.node import Node
from benchmarks.spark_place import Runner, node_in_folder
from enmasse.client.blocking import Message, connect


def used_seconds(pid: int) -> float:
    """CPU time of a process, with its threads that have ended: Java's come and go; 0 if it is gone itself."""
    with suppress(psutil.NoSuchProcess):
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system
    return 0.0


def shared_bytes(pids: Iterable[int]) -> int:
    """Memory of processes; of a page that several share, each has its part."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
            total += int(found[1]) * 1024 if found else 0
    return total


def send(node: Node, addresses: Sequence[str], rate: float, seconds: float) -> None:
    """Send each address so many readings a second."""
    with connect(node.url) as connection:
        senders = [connection.sender(address) for address in addresses]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for sender in senders:
                sender.send(reading(40))
            time.sleep(1 / rate)


def hot(address: str, table: str) -> dict[str, Any]:
    """A pipeline that keeps what is hot."""
    schema = "device STRING, temperature DOUBLE"
    return {
        "sources": [{"name": "readings", "address": address, "format": "json", "schema": schema}],
        "steps": [{"name": "hot", "sql": "SELECT device, temperature FROM readings WHERE temperature > 30"}],
        "sinks": [{"input": "hot", "table": table}],
    }


def reading(temperature: int) -> Message:
    return Message(json.dumps({"device": "d", "temperature": temperature}).encode())


def measure(node: Node, folder: Path, count: int, options: argparse.Namespace) -> None:
    """Start so many pipelines, leave them alone, then give them little to do, and say what they cost."""
    runner = Runner(node.url, folder)
    addresses = [f"idle-{count}-{number}" for number in range(count)]

    def processes() -> list[int]:
        return [runner.process.pid, *descendants(runner.process.pid)]

    def watch(what: str, act: Callable[[], None]) -> None:
        before = {pid: used_seconds(pid) for pid in (*processes(), *node.pids)}
        with AnonymousPeak(processes) as peak:
            act()
        own = processes()
        # Workers begin and end meanwhile; what one used that has ended is not seen.
        cpu = sum(used_seconds(pid) - before.get(pid, 0.0) for pid in (*own, *node.pids))
        print(
            f"{count:3} pipelines, {what:20} {cpu / options.seconds * 100:5.1f} % of a core  "
            f"{shared_bytes(own) >> 20} MB in {len(own)} processes, anonymous {peak.bytes >> 20} MB at most",
            flush=True,
        )

    try:
        for number, address in enumerate(addresses):
            node.declare(address, addressType="stream", partitions=1)
            with connect(node.url) as connection:
                sender = connection.sender(address)
                for temperature in (20, 40):
                    sender.send(reading(temperature))
            runner.put(f"p{number}", hot(address, f"p{number}"), address)
        deadline = time.monotonic() + 300
        while len([rows for rows in runner.rows.values() if rows >= 2]) < count:
            assert time.monotonic() < deadline, runner.rows
            time.sleep(0.5)
        time.sleep(options.settle)
        watch("idle", lambda: time.sleep(options.seconds))
        watch(f"{options.rate:g} messages/s each", lambda: send(node, addresses, options.rate, options.seconds))
    finally:
        runner.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", default="1,10", help="how many; several, separated by commas")
    parser.add_argument("--settle", type=float, default=90.0, help="seconds between the last row and the measure")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=1.0, help="messages a second for each, after it was idle")
    options = parser.parse_args()
    with node_in_folder() as (node, folder):
        for count in map(int, options.pipelines.split(",")):
            measure(node, folder / f"space-{count}", count, options)


if __name__ == "__main__":
    main()
