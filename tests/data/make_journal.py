"""Makes a small journal of the format that the tree writes now: ``python tests/data/make_journal.py VERSION``.

Run once for each new format, with the code that is the first to write it; the archive is kept for ever.
``tests/scenario/test_journal_versions.py`` knows what must be found in each.
"""

from __future__ import annotations

import asyncio
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from enmasse.client import Connection, Message, connect
from enmasse.client.management import Management
from enmasse.testing.node_process import NodeProcess

HERE = Path(__file__).parent
SPACE = "default/kept"
ADDRESS = "io.enmasse.address"


async def declare(node: NodeProcess) -> None:
    async with connect(node.admin_url) as connection:
        management = Management(connection)
        await management.create("io.enmasse.space", SPACE, {})
        addresses: dict[str, dict[str, Any]] = {
            "orders": {"addressType": "queue"},
            "news": {"addressType": "topic"},
            "archive": {"addressType": "subscription", "topic": "news"},
            "readings": {"addressType": "stream", "partitions": 2},
        }
        for name, attributes in addresses.items():
            await management.create(ADDRESS, f"default/{name}", {"space": SPACE, "address": name, **attributes})


async def fill_queue(connection: Connection) -> None:
    """Twelve orders in two frames; 1, 3, 4 and 8 are accepted, one by one and not in that order."""
    sender = await connection.sender("orders")
    for numbers in (range(6), range(6, 12)):
        await sender.send_all(
            Message(b"order %d" % n, subject=f"s{n}", durable=True, properties={"n": n}) for n in numbers
        )
    receiver = await connection.receiver("orders", credit=12)
    deliveries = [await receiver.receive(timeout=10) for _ in range(12)]
    for n in (8, 3, 1, 4):
        delivery = deliveries[n]
        assert delivery is not None
        assert delivery.message.body == b"order %d" % n
        await delivery.accept()
    await receiver.close()


async def fill_topic(connection: Connection) -> None:
    """Five items in the archive; the second is accepted."""
    sender = await connection.sender("news/sport")
    for n in range(5):
        await sender.send(Message(f"news {n}", durable=True))
    receiver = await connection.receiver("news::archive", credit=5)
    deliveries = [await receiver.receive(timeout=10) for _ in range(5)]
    assert deliveries[1] is not None
    await deliveries[1].accept()
    await receiver.close()


async def fill_stream(connection: Connection) -> None:
    """Twenty readings of four devices, then five of an idempotent producer."""
    sender = await connection.sender("readings")
    for n in range(20):
        await sender.send(Message(b"reading %d" % n, annotations={"x-opt-partition-key": f"device-{n % 4}"}))
    producer = await connection.sender("readings", properties={"enmasse:producer": "meter-1"})
    for n in range(5):
        await producer.send(
            Message(b"meter %d" % n, annotations={"x-opt-partition-key": "meter", "x-opt-sequence": n})
        )


async def fill(node: NodeProcess) -> None:
    await declare(node)
    async with connect(node.url) as connection:
        await fill_queue(connection)
        await fill_topic(connection)
        await fill_stream(connection)


def main(version: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        data = Path(name)
        with NodeProcess(data) as node:
            asyncio.run(fill(node))
        with tarfile.open(HERE / f"journal-v{version}.tar.xz", "w:xz") as archive:
            archive.add(data / "nodes/node-0/journal/data.mdb", "nodes/node-0/journal/data.mdb")


if __name__ == "__main__":
    main(sys.argv[1])
