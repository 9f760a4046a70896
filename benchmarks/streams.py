"""Reading streams: by ordinary AMQP receivers, and in bulk by readers of frames."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import uvloop

from benchmarks.accounting import cpu_seconds
from benchmarks.measurement import Line, Setting, send_traffic
from benchmarks.node import PARTITIONS, Node
from enmasse.client import Connection, connect
from enmasse.messaging.log.frame import Frame, encode_frame
from enmasse.messaging.streams.producers import FRAME_FORMAT

__all__ = ["read_frames", "read_messages"]

MESSAGES = 1_000_000
MESSAGES_PER_S = 300_000
ROWS = 8_000_000
ROWS_PER_S = 2_000_000
FRAME_ROWS = 4_096
BODY = b"x" * 100
HEAD = b"\0\x53\x75\xa0\x64"
FRAME_CREDIT = 16


def read_messages(setting: Setting) -> Iterator[Line]:
    """One receiver reads from the first message on, settled; the messages lie in four partitions."""
    with setting.node() as node:
        node.declare("stream.0", addressType="stream")
        count = str(setting.count(MESSAGES))
        filled = send_traffic(node, "stream.0", "--mode", "send", "--durable", "--count", count, "--senders", "10")
        yield Line("appended by ten senders: node", filled.node_us, "us/message", target=6)
        yield Line("journal", filled.journal_us, "us/message")
        for number in range(setting.runs):
            setting.patience.wait()
            read = send_traffic(node, "stream.0", "--mode", "recv", "--settled", "--from-first", "--count", count)
            yield Line(f"read {number + 1}: node", read.node_us, "us/message")
            yield Line("per core", 1e6 / read.us, "messages/s", target=MESSAGES_PER_S, at_least=True)
            yield Line("by the clock", read.result["received_per_s"], "messages/s")


def read_frames(setting: Setting) -> Iterator[Line]:
    """A client reads one partition after the other, as Spark's source does, and only counts rows."""
    with setting.node() as node:
        node.declare("stream.0", addressType="stream")
        rows = setting.count(ROWS) // PARTITIONS
        uvloop.run(_fill(node.url, rows))
        for number in range(setting.runs):
            setting.patience.wait()
            yield from _read(node, number)


async def _fill(url: str, rows: int) -> None:
    async with connect(url) as connection:
        for partition in range(PARTITIONS):
            properties = {"enmasse:partition": partition}
            capabilities = ("enmasse:frames",)
            async with connection.sender("stream.0", capabilities=capabilities, properties=properties) as sender:
                for first in range(0, rows, FRAME_ROWS):
                    count = min(FRAME_ROWS, rows - first)
                    columns = ([0] * count, [b"device-1"] * count, [HEAD] * count, [BODY] * count)
                    frame = encode_frame(0, *columns, producer=b"bench", sequence=first // FRAME_ROWS + 1)
                    await sender.send_payload(frame, message_format=FRAME_FORMAT)


def _read(node: Node, number: int) -> Iterator[Line]:
    pids = node.processes["node"]
    before, began = cpu_seconds(pids), time.perf_counter()
    rows = uvloop.run(_count_rows(node.url, node.stored("stream.0") // PARTITIONS))
    took, used = time.perf_counter() - began, cpu_seconds(pids) - before
    yield Line(f"read {number + 1}: by the clock, with the client", rows / took, "rows/s", ROWS_PER_S, at_least=True)
    yield Line("per core of the node", rows / used, "rows/s", ROWS_PER_S, at_least=True)


async def _count_rows(url: str, rows: int) -> int:
    async with connect(url) as connection:
        return sum([await _count_partition(connection, partition, rows) for partition in range(PARTITIONS)])


async def _count_partition(connection: Connection, partition: int, rows: int) -> int:
    filters = {"enmasse:partition": partition, "enmasse:from": 0, "enmasse:to": rows}
    found = 0
    async with connection.receiver(
        "stream.0", credit=FRAME_CREDIT, filters=filters, capabilities=("enmasse:frames",)
    ) as receiver:
        async with asyncio.timeout(60):
            async for delivery in receiver:
                found += Frame(delivery.payload, verify=False).rows
                delivery.accept()
    return found
