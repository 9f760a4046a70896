"""Every format that a data directory ever had still opens, with all its messages."""

from __future__ import annotations

import asyncio
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from enmasse.client import Connection, Delivery, Message, Outcome, connect
from enmasse.client.management import Management
from enmasse.storage.environment import FORMAT_VERSION
from enmasse.storage.tools import main as run_tool
from enmasse.wire.mqtt.packets import NEVER_EXPIRES
from tests.support.mqtt_peer import MqttPeer
from tests.support.node_process import NodeProcess

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
            delivery = await receiver.receive(timeout=60)
            assert delivery is not None, f"{address} gave {len(found)} messages of {count}"
            await delivery.accept()
            found.append(delivery)
        assert await receiver.drain(timeout=60) == 0
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


async def check_from_format_2(connection: Connection) -> None:
    """What the first format could not hold."""
    jobs = await take(connection, "retried", 3)
    assert {job.message.body: job.message.delivery_count for job in jobs}[b"job 1"] == 2
    assert sorted(job.message.body for job in jobs) == [b"job 0", b"job 1", b"job 2"]
    notes = await take(connection, "mixed", 3)
    assert [note.message.body for note in notes] == [b"note 0", b"note 2", b"note 4"]
    notes = await take(connection, "keen", 7)
    assert [note.message.body for note in notes] == [b"note %d" % n for n in range(7)]
    goals = await take(connection, "sport::fans", 4)
    assert [goal.message.body for goal in goals] == [b"goal %d" % n for n in range(4)]
    goals = await take(connection, "sport::press", 2)
    assert [goal.message.body for goal in goals] == [b"goal 1", b"goal 2"]
    receiver = await connection.receiver("ticks", credit=6, filters={"enmasse:consumer": "clock"})
    for n in range(4, 10):
        tick = await receiver.receive(timeout=60)
        assert tick is not None
        assert tick.message.body == b"tick %d" % n
        await tick.accept()
    await receiver.close()


async def check_from_format_3(connection: Connection) -> None:
    """What a receiver had when the node died."""
    parcels = await take(connection, "held", 4)
    assert [parcel.message.body for parcel in parcels] == [b"parcel %d" % n for n in range(4)]
    assert [parcel.message.delivery_count for parcel in parcels] == [1, 2, 1, 1]


async def check_from_format_4(connection: Connection) -> None:
    """What the subscriptions of a topic had left, each for itself."""
    for name, left in (("first", [1, 3, 4, 6]), ("second", []), ("third", range(7))):
        letters = await take(connection, f"desk::{name}", len(left))
        assert [letter.message.body for letter in letters] == [f"letter {n}" for n in left]


async def check_values_and_session(node: NodeProcess, connection: Connection) -> None:
    """What names had retained, and a session with its will and what was in flight, both ways."""
    values = await take(connection, "lamps/#", 2, filters={"enmasse:retained": "always"})
    assert sorted(str(value.message.body) for value in values) == ["value 1", "value 2"]
    async with connect(node.admin_url) as admin:
        (will,) = await Management(admin).query("io.enmasse.will")
    assert (will["client"], will["address"]) == ("panel", "lamps/gone")
    options: dict[str, Any] = {"is_clean": False, "session_expiry_s": NEVER_EXPIRES, "receive_maximum": 2}
    async with MqttPeer(node.port, "panel", **options) as panel:
        assert panel.connack is not None
        assert panel.connack.said.is_session_present
        told = [await panel.next("pubrel", "publish") for _ in range(2)]
        released, again = sorted(told, key=lambda heard: heard.kind, reverse=True)
        assert (released.kind, again.kind, again.payload, again.is_duplicate) == (
            "pubrel",
            "publish",
            b"state 1",
            True,
        )
        panel.engine.put_pubcomp(released.packet_id)
        waited = await panel.next("publish")
        assert (waited.payload, waited.is_duplicate) == (b"state 2", False)
        for message in (again, waited):
            panel.acknowledge(message)
            assert (await panel.next("pubrel")).packet_id == message.packet_id
            panel.engine.put_pubcomp(message.packet_id)
        assert await panel.answer("lamps/panel", b"pressed", 2, packet_id=77, dup=True) == 0
        panel.engine.put_pubrel(77)
        assert (await panel.next("pubcomp")).packet_id == 77
        panel.leave()
        await panel.ended()
    seen = await take(connection, "lamps::seen", 8)
    assert [one.message.body for one in seen] == [
        "value 1", "value 2", "value 3", b"", "state 0", "state 1", "state 2", b"pressed"
    ]  # fmt: skip


def version_of(archive: Path) -> int:
    found = re.fullmatch(r"journal-v(\d+)\.tar\.xz", archive.name)
    assert found is not None, archive
    return int(found[1])


def test_there_is_a_directory_of_every_format() -> None:
    assert sorted(map(version_of, ARCHIVES)) == list(range(1, FORMAT_VERSION + 1))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def test_a_node_takes_up_what_an_earlier_version_stored(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # comes with Python 3.11.4
        packed.extractall(tmp_path)

    async def consume(node: NodeProcess) -> None:
        async with connect(node.url) as connection:
            await check_queue_and_subscription(connection)
            await check_stream(connection)
            if version_of(archive) >= 2:
                await check_from_format_2(connection)
            if version_of(archive) >= 3:
                await check_from_format_3(connection)
            if version_of(archive) >= 4:
                await check_from_format_4(connection)
                await check_values_and_session(node, connection)

    async def find_consumed(node: NodeProcess) -> None:
        async with connect(node.url) as connection:
            await take(connection, "orders", 0)
            await take(connection, "news::archive", 0)
            await take(connection, "readings", 26, filters={"enmasse:start": "first"})

    assert run_tool(["check", str(tmp_path / "nodes/node-0/journal")]) == 0
    with NodeProcess(tmp_path) as node:
        asyncio.run(consume(node))
    with NodeProcess(tmp_path) as node:
        asyncio.run(find_consumed(node))
    assert run_tool(["check", str(tmp_path / "nodes/node-0/journal")]) == 0
