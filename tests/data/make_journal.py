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

from enmasse.client import Connection, Delivery, Message, connect
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
            "retried": {"addressType": "queue"},
            "mixed": {"addressType": "queue"},
            "keen": {"addressType": "queue", "storage": "durable"},
            "sport": {"addressType": "topic"},
            "fans": {"addressType": "subscription", "topic": "sport"},
            "press": {"addressType": "subscription", "topic": "sport"},
            "ticks": {"addressType": "stream", "partitions": 1},
            "held": {"addressType": "queue"},
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


async def take(connection: Connection, address: str, count: int, **options: Any) -> list[Delivery]:
    receiver = await connection.receiver(address, credit=count, **options)
    found: list[Delivery] = []
    for _ in range(count):
        delivery = await receiver.receive(timeout=10)
        assert delivery is not None
        found.append(delivery)
    return found


async def fill_from_format_2(connection: Connection) -> None:
    """Failed deliveries, messages that are not durable, a body that two subscriptions share, a named consumer."""
    sender = await connection.sender("retried")
    await sender.send_all(Message(b"job %d" % n, durable=True) for n in range(3))
    for _ in range(2):
        jobs = await take(connection, "retried", 3)
        await jobs[1].modify(failed=True)
        await jobs[0].release()
        await jobs[2].release()
        await jobs[0].receiver.close()
    for address in ("mixed", "keen"):
        sender = await connection.sender(address)
        for n in range(6):
            await sender.send(Message(b"note %d" % n, durable=n % 2 == 0))
    sender = await connection.sender("sport")
    for n in range(4):
        await sender.send(Message(b"goal %d" % n, durable=True))
    goals = await take(connection, "sport::press", 4)
    await goals[0].accept()
    await goals[3].accept()
    await goals[0].receiver.close()
    sender = await connection.sender("ticks")
    for n in range(10):
        await sender.send(Message(b"tick %d" % n))
    ticks = await take(connection, "ticks", 4, filters={"enmasse:consumer": "clock", "enmasse:start": "first"})
    for tick in ticks:
        await tick.accept()
    await ticks[0].receiver.close()
    # Outcomes are written with the next commit; this one waits for it.
    await (await connection.sender("keen")).send(Message(b"note 6", durable=True))


async def fill_from_format_3(connection: Connection) -> None:
    """Four parcels, all with a receiver when the node is killed; one has failed before."""
    sender = await connection.sender("held")
    await sender.send_all(Message(b"parcel %d" % n, durable=True) for n in range(4))
    parcels = await take(connection, "held", 4)
    await parcels[1].modify(failed=True)
    assert await parcels[0].receiver.receive(timeout=10) is not None
    # That they are handed out is written with the next commit.
    for _ in range(3):
        await (await connection.sender("ticks")).send(Message(b"tick"))


async def fill(node: NodeProcess) -> None:
    await declare(node)
    async with connect(node.url) as connection:
        await fill_queue(connection)
        await fill_topic(connection)
        await fill_stream(connection)
        await fill_from_format_2(connection)
        await fill_from_format_3(connection)
        node.kill()


def main(version: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        data = Path(name)
        with NodeProcess(data) as node:
            asyncio.run(fill(node))
        with tarfile.open(HERE / f"journal-v{version}.tar.xz", "w:xz") as archive:
            archive.add(data / "nodes/node-0/journal/data.mdb", "nodes/node-0/journal/data.mdb")


if __name__ == "__main__":
    main(sys.argv[1])
