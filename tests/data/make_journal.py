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
from enmasse.wire.mqtt.packets import NEVER_EXPIRES, Filter, Will
from tests.support.mqtt_peer import MqttPeer
from tests.support.node_process import NodeProcess

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
            "desk": {"addressType": "topic"},
            "first": {"addressType": "subscription", "topic": "desk"},
            "second": {"addressType": "subscription", "topic": "desk"},
            "third": {"addressType": "subscription", "topic": "desk"},
            "lamps": {"addressType": "topic"},
            "seen": {"addressType": "subscription", "topic": "lamps"},
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


async def fill_from_format_4(connection: Connection) -> None:
    """Letters for three, of whom one has taken all and one some of them: records say who has which."""
    sender = await connection.sender("desk")
    await sender.send_all(Message(f"letter {n}", durable=True) for n in range(4))
    for n in range(4, 7):
        await sender.send(Message(f"letter {n}", durable=True))
    letters = await take(connection, "desk::second", 7)
    for letter in letters:
        await letter.accept()
    await letters[0].receiver.close()
    letters = await take(connection, "desk::first", 7)
    for n in (0, 2, 5):
        await letters[n].accept()
    await letters[0].receiver.close()
    # Outcomes are written with the next commit.
    for _ in range(3):
        await (await connection.sender("ticks")).send(Message(b"tick"))


async def fill_values_and_session(node: NodeProcess, connection: Connection) -> None:
    """Two retained values and one that was cleared; and a client of MQTT that is connected when the node is killed.

    Its session has a will, a filter, and of each state a message: one that it is to complete, one that it has not
    acknowledged, one that waits, as it takes two at a time; and one of its own that it has not released.
    """
    retain = {"x-opt-retain": True}
    for n in (1, 2, 3):
        sender = await connection.sender(f"lamps/{n}")
        await sender.send(Message(f"value {n}", durable=True, annotations=retain))
    await sender.send(Message(b"", durable=True, annotations=retain))
    will = Will("lamps/gone", b"the panel is gone", qos=1)
    options: dict[str, Any] = {"session_expiry_s": NEVER_EXPIRES, "receive_maximum": 2, "will": will}
    async with MqttPeer(node.port, "panel", **options) as panel:
        wanted = Filter("lamps/#", 2, no_local=True, retain_handling=2)
        assert await panel.subscribed(wanted) == [2]
        for n in range(3):
            await sender.send(Message(f"state {n}", durable=True))
        first = await panel.next("publish")
        second = await panel.next("publish")
        assert (first.qos, second.qos) == (2, 2)
        assert await panel.answer("lamps/panel", b"pressed", 2, packet_id=77) == 0
        panel.acknowledge(first)
        assert (await panel.next("pubrel")).packet_id == first.packet_id
        node.kill()


async def fill(node: NodeProcess) -> None:
    await declare(node)
    async with connect(node.url) as connection:
        await fill_queue(connection)
        await fill_topic(connection)
        await fill_stream(connection)
        await fill_from_format_2(connection)
        await fill_from_format_4(connection)
        await fill_from_format_3(connection)
        await fill_values_and_session(node, connection)


def main(version: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        data = Path(name)
        with NodeProcess(data) as node:
            asyncio.run(fill(node))
        with tarfile.open(HERE / f"journal-v{version}.tar.xz", "w:xz") as archive:
            archive.add(data / "nodes/node-0/journal/data.mdb", "nodes/node-0/journal/data.mdb")


if __name__ == "__main__":
    main(sys.argv[1])
