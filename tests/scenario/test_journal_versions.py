"""Every format that a data directory ever had still opens, with all its messages."""

from __future__ import annotations

import asyncio
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from enmasse.client import Connection, Delivery, Message, Outcome, connect
from enmasse.testing.node_process import NodeProcess

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[1] / "data"
ARCHIVES = sorted(DATA.glob("journal-v*.tar.xz"))

QUEUE = [0, 2, 5, 6, 7, 9, 10, 11]
SUBSCRIPTION = [0, 2, 3, 4]


async def take(connection: Connection, address: str, count: int, **options: Any) -> list[Delivery]:
    """The first messages, and that no further one comes."""
    async with connection.receiver(address, credit=count + 10, **options) as receiver:
        found: list[Delivery] = []
        for _ in range(count):
            delivery = await receiver.receive(timeout=20)
            assert delivery is not None, f"{address} gave {len(found)} messages of {count}"
            await delivery.accept()
            found.append(delivery)
        assert await receiver.receive(timeout=0.2) is None
        return found


async def check_queue_and_subscription(connection: Connection) -> None:
    orders = await take(connection, "orders", len(QUEUE))
    assert [order.message.body for order in orders] == [b"order %d" % n for n in QUEUE]
    assert [order.message.properties for order in orders] == [{"n": n} for n in QUEUE]
    assert [order.message.subject for order in orders] == [f"s{n}" for n in QUEUE]
    news = await take(connection, "news::archive", len(SUBSCRIPTION))
    assert [item.message.body for item in news] == [f"news {n}" for n in SUBSCRIPTION]


async def check_stream(connection: Connection) -> None:
    """Every reading under its offset, those of a device in order, and the producer's sequence known."""
    producer = await connection.sender("readings", properties={"enmasse:producer": "meter-1"})
    for sequence in (3, 4, 5):
        message = Message(
            b"meter %d" % sequence, annotations={"x-opt-partition-key": "meter", "x-opt-sequence": sequence}
        )
        assert await producer.send(message) == Outcome.ACCEPTED
    readings = await take(connection, "readings", 26, filters={"enmasse:start": "first"})
    bodies = [reading.message.body for reading in readings]
    assert sorted(bodies) == sorted([b"reading %d" % n for n in range(20)] + [b"meter %d" % n for n in range(6)])
    for device in range(4):
        assert [body for body in bodies if body in {b"reading %d" % n for n in range(device, 20, 4)}] == [
            b"reading %d" % n for n in range(device, 20, 4)
        ]
    assert [body for body in bodies if body.startswith(b"meter")] == [b"meter %d" % n for n in range(6)]
    offsets: dict[int, list[int]] = {}
    for reading in readings:
        annotations = reading.message.annotations
        offsets.setdefault(annotations["x-opt-partition"], []).append(annotations["x-opt-offset"])
    assert sorted(offsets) == [0, 1]
    for found in offsets.values():
        assert found == list(range(len(found)))


def test_there_is_a_directory_of_the_first_format() -> None:
    assert "journal-v1.tar.xz" in [archive.name for archive in ARCHIVES]
    assert all(re.fullmatch(r"journal-v\d+\.tar\.xz", archive.name) for archive in ARCHIVES)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def test_a_node_takes_up_what_an_earlier_version_stored(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")

    async def consume(node: NodeProcess) -> None:
        async with connect(node.url) as connection:
            await check_queue_and_subscription(connection)
            await check_stream(connection)

    async def find_consumed(node: NodeProcess) -> None:
        async with connect(node.url) as connection:
            await take(connection, "orders", 0)
            await take(connection, "news::archive", 0)
            await take(connection, "readings", 26, filters={"enmasse:start": "first"})

    with NodeProcess(tmp_path) as node:
        asyncio.run(consume(node))
    with NodeProcess(tmp_path) as node:
        asyncio.run(find_consumed(node))
