"""What the journal costs: CPU of both processes per message, and how long a commit takes.

    python benchmarks/journal.py [--seconds S] [--directory D]

Frames of 100 and of 1,000 messages of 150 bytes are handed over with 1 and with 8 frames on their
way; encoding the frames is not counted. Each batch also moves a mark and, as retention would,
deletes an old frame, so that the file and the kernel's page cache stop growing. Beside each, in
the same run, stands a plain LMDB commit of the same batches in one process, without a socket pair:
what nothing can be cheaper than. With 1 on the way both processes sleep between commits, so the
node takes one wake-up for each frame and finds its caches cold.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import lmdb
import uvloop

from enmasse.messaging.log.frame import encode_frame
from enmasse.messaging.storage import Operation, Table
from enmasse.storage.environment import ReadEnvironment, WriteEnvironment
from enmasse.storage.link import JournalLink

BODY = b"x" * 140
HEAD = b"\0\x53\x75\xa0\x8c"
KEY = b"dev-1"
KEPT_BYTES = 64 << 20


def make_frame(rows: int, offset: int) -> bytes:
    return encode_frame(offset, [offset] * rows, [KEY] * rows, [HEAD] * rows, [BODY] * rows)


def operations(frame: bytes, counter: int) -> list[Operation]:
    return [
        Operation(Table.FRAME, counter.to_bytes(16, "big"), frame),
        Operation(Table.MARK, b"log-and-partition", counter.to_bytes(16, "big")),
        Operation(Table.FRAME, max(0, counter - KEPT_BYTES // len(frame)).to_bytes(16, "big"), None),
    ]


def cpu_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def quantile(values: list[float], part: float) -> float:
    return sorted(values)[min(int(len(values) * part), len(values) - 1)] * 1e3


def report(name: str, messages: int, seconds: float, node: float, journal: float | None, waits: list[float]) -> None:
    journal_text = "     -" if journal is None else f"{journal / messages * 1e6:6.3f}"
    print(
        f"{name:<34} {messages / seconds / 1e3:9,.0f} k msg/s   node {node / messages * 1e6:6.3f} us   "
        f"journal {journal_text} us   commit p50 {quantile(waits, 0.5):6.2f} p99 {quantile(waits, 0.99):6.2f} ms"
    )


class Load:
    """Keeps a number of frames on their way and notes how long each took."""

    def __init__(self, link: JournalLink, frame: bytes, seconds: float) -> None:
        self.link = link
        self.frame = frame
        self.end = time.perf_counter() + seconds
        self.sent: list[float] = []
        self.waits: list[float] = []
        self.done = asyncio.get_running_loop().create_future()

    def submit(self) -> None:
        self.sent.append(time.perf_counter())
        self.link.submit(operations(self.frame, len(self.sent)))

    def on_committed(self, number: int) -> None:
        now = time.perf_counter()
        answered = number - len(self.waits)
        self.waits += [now - sent for sent in self.sent[len(self.waits) : number]]
        if now < self.end:
            for _ in range(answered):
                self.submit()
        elif len(self.waits) == len(self.sent):
            self.done.set_result(None)

    def on_failed(self, number: int, reason: str) -> None:
        self.done.set_exception(RuntimeError(f"batch {number}: {reason}"))


class Relay:
    """Lets the load be made after the link has started."""

    load: Load

    def on_committed(self, number: int) -> None:
        self.load.on_committed(number)

    def on_failed(self, number: int, reason: str) -> None:
        self.load.on_failed(number, reason)


async def measure_link(directory: Path, rows: int, window: int, seconds: float) -> None:
    relay = Relay()
    link = JournalLink(directory)
    await link.start(relay)
    relay.load = load = Load(link, make_frame(rows, 0), seconds)
    pid = link.journal_pid
    assert pid is not None
    journal, node, began = cpu_seconds(pid), time.process_time(), time.perf_counter()
    for _ in range(window):
        load.submit()
    await load.done
    took = time.perf_counter() - began
    node, journal = time.process_time() - node, cpu_seconds(pid) - journal
    report(
        f"journal, {rows:5,} a frame, {window} on the way", rows * len(load.waits), took, node, journal, load.waits
    )
    await link.stop()


def measure_plain(directory: Path, rows: int, group: int, seconds: float) -> None:
    frame = make_frame(rows, 0)
    env = lmdb.open(str(directory), map_size=1 << 40)
    waits: list[float] = []
    counter = 0
    cpu, began = time.process_time(), time.perf_counter()
    now = began
    while now < began + seconds:
        with env.begin(write=True) as txn:
            for _ in range(group):
                counter += 1
                for table, key, value in operations(frame, counter):
                    if value is None:
                        txn.delete(bytes((table,)) + key)
                    else:
                        txn.put(bytes((table,)) + key, value)
        before, now = now, time.perf_counter()
        waits.append(now - before)
    cpu = time.process_time() - cpu
    env.close()
    report(f"plain LMDB, {rows:5,} a frame, {group} a commit", rows * counter, now - began, cpu, None, waits)


def measure_reads(directory: Path) -> None:
    directory.mkdir()
    writer = WriteEnvironment(str(directory))
    writer.close()
    env = lmdb.open(str(directory), map_size=1 << 40)
    frame = make_frame(100, 0)
    with env.begin(write=True) as txn:
        for i in range(2000):
            txn.put(b"\x02" + i.to_bytes(16, "big"), frame)
    env.close()
    reader = ReadEnvironment(str(directory))
    began = time.process_time()
    for i in range(20_000):
        reader.get(Table.FRAME, (i % 2000).to_bytes(16, "big"))
    single = (time.process_time() - began) / 20_000
    began = time.process_time()
    count = len(reader.scan(Table.FRAME, b"", b"\xff", 1 << 40))
    scanned = (time.process_time() - began) / count
    reader.close()
    print(f"read one frame of 100: {single * 1e6:.2f} us; in a scan: {scanned * 1e6:.2f} us a frame")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each measurement")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="which disk")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="enmasse-bench-", dir=options.directory))
    print(
        f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, every commit synced, disk of {options.directory}"
    )
    try:
        for rows in (100, 1000):
            for window in (1, 8):
                uvloop.run(measure_link(root / f"link-{rows}-{window}", rows, window, options.seconds))
                measure_plain(root / f"plain-{rows}-{window}", rows, window, options.seconds)
                shutil.rmtree(root / f"link-{rows}-{window}")
                shutil.rmtree(root / f"plain-{rows}-{window}")
        measure_reads(root / "reads")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
