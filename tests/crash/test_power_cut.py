"""A power cut at any moment: nothing that was said to be done is lost, of what was never synced, anything may be."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from enmasse.client import Message, blocking
from enmasse.control.access.accounts import Accounts
from enmasse.control.store.store import ResourceStore
from enmasse.drivers.data_directory import Layout
from enmasse.iot.store import DeviceStore
from enmasse.messaging.storage import Table
from enmasse.schemas.store import SchemaStore
from enmasse.storage.environment import ReadEnvironment, WriteEnvironment
from enmasse.storage.presence import require_journal
from enmasse.wire.mqtt.packets import NEVER_EXPIRES
from tests.support.chance import SEED, kills
from tests.support.draining import everything
from tests.support.mqtt_peer import MqttPeer
from tests.support.node_process import NodeProcess
from tests.support.power_cut import Disk, record

pytestmark = [pytest.mark.slow, pytest.mark.chance]

JOURNAL = """
import asyncio
from pathlib import Path
from enmasse.messaging.storage import Operation, Table
from enmasse.storage.link import JournalLink

class Listener:
    def on_committed(self, number):
        print(number, flush=True)
        if number == 12:
            ended.set()
    def on_failed(self, number, reason):
        print("failed", reason, flush=True)

async def main():
    root = Path(sys.argv[1])
    link = JournalLink(root / "nodes" / "node-0" / "journal", marker=str(root / "journals" / "node-0"))
    await link.start(Listener())
    for number in range(1, 13):
        link.submit([Operation(Table.MARK, b"%016d" % number, b"x" * number * 300)])
        await asyncio.sleep(0.002)
    await ended.wait()
    await link.stop()

ended = asyncio.Event()
asyncio.run(main())
"""

STORE = """
from pathlib import Path
from enmasse.drivers.data_directory import DirectoryLock, Layout
layout = Layout(Path(sys.argv[1]) / "data")
with DirectoryLock(layout.control):
    {opened}
        for number in range(1, 13):
            {written}
            print(number, flush=True)
"""

CONTROL = STORE.format(
    opened="""
    from enmasse.control.store.store import ResourceStore
    with ResourceStore(layout.store) as store:""",
    written="""
            metadata = {"namespace": "ns", "name": str(number), "uid": str(number)}
            store.create({"kind": "Address", "metadata": metadata, "spec": {"x": "y" * 300 * number}})""",
)
REGISTRY = STORE.format(
    opened="""
    from enmasse.iot.store import DeviceStore
    with DeviceStore(layout.devices) as store:""",
    written="""
            with store.writing() as tables:
                tables.note_seen([("tenant", str(number), number)])""",
)
SCHEMAS = STORE.format(
    opened="""
    from enmasse.schemas.store import SchemaStore
    with SchemaStore(layout.schemas) as store:""",
    written="""
            with store.transaction("space") as tables:
                tables.add_version(str(number), 1, 1)""",
)
ACCOUNTS = STORE.format(
    opened="""
    from enmasse.control.access.accounts import Accounts
    with Accounts(layout.accounts, now=lambda: 1.0) as store:""",
    written="""
            store.add(str(number), password_hash="h")""",
)

NODE = """
import asyncio
import os
from pathlib import Path
import httpx
from enmasse.client import Message, blocking
from enmasse.wire.mqtt.packets import NEVER_EXPIRES, Filter
from tests.support.mqtt_peer import MqttPeer
from tests.support.node_process import NodeProcess
from tests.support.stomp_peer import StompPeer

def done(what):
    os.write(1, f"done {what}".encode())

async def talk(node):
    async with MqttPeer(node.port, "panel", session_expiry_s=NEVER_EXPIRES) as panel:
        assert await panel.subscribed(Filter("lamps/b", 1)) == [1]
        done("session panel")
        for qos in (1, 2):
            assert not await panel.answer("orders", b"mqtt%d" % qos, qos)
            done(f"orders mqtt{qos}")
        assert await panel.answer("lamps/a", b"on", 1, retain=True) < 128
        done("retained on")
    async with StompPeer(node.port, host="/") as stomp:
        stomp.say("SEND", b"stomp", destination="orders", receipt="r", persistent="true")
        await stomp.next("RECEIPT")
        done("orders stomp")

with NodeProcess(Path(sys.argv[1]) / "data") as node:
    with blocking.connect(node.admin_url) as admin:
        management = admin.management()
        management.create("io.enmasse.space", "default/shop", {})
        for name, kind in (("orders", "queue"), ("lamps", "topic")):
            declared = {"space": "default/shop", "address": name, "addressType": kind}
            management.create("io.enmasse.address", f"default/shop.{name}", declared)
            done(f"address {name}")
    with blocking.connect(node.url) as connection:
        connection.sender("orders").send(Message(b"amqp", durable=True))
        done("orders amqp")
    url = f"http://127.0.0.1:{node.port}/v1/spaces/shop.default/addresses/orders/messages"
    assert httpx.post(url, content=b"http", trust_env=False).is_success
    done("orders http")
    asyncio.run(talk(node))
"""


def journal(root: Path) -> set[int]:
    directory = root / "nodes" / "node-0" / "journal"
    require_journal(str(directory), str(root / "journals" / "node-0"))
    if not directory.exists():
        return set()
    WriteEnvironment(str(directory)).close()
    reader = ReadEnvironment(str(directory))
    try:
        return {int(key) for key, _ in reader.scan_all(Table.MARK)}
    finally:
        reader.close()


def opened(root: Path) -> Layout | None:
    layout = Layout(root / "data")
    return layout if layout.control.exists() else None


def control(layout: Layout) -> set[int]:
    with ResourceStore(layout.store) as store:
        return {int(document["metadata"]["name"]) for document in store.select("Address")}


def registry(layout: Layout) -> set[int]:
    with DeviceStore(layout.devices) as store, store.reading() as tables:
        return {int(device) for device in tables.seen("tenant", [str(number) for number in range(20)])}


def schemas(layout: Layout) -> set[int]:
    with SchemaStore(layout.schemas) as store, store.transaction("space") as tables:
        return {number for number in range(20) if tables.subjects() and (str(number), False) in tables.subjects()}


def accounts(layout: Layout) -> set[int]:
    with Accounts(layout.accounts, now=lambda: 1.0) as store:
        return {int(account.name) for account in store.all()}


def of_layout(read: Callable[[Layout], set[int]]) -> Callable[[Path], set[int]]:
    def found(root: Path) -> set[int]:
        layout = opened(root)
        return set() if layout is None else read(layout)

    return found


STORES: dict[str, tuple[str, Callable[[Path], set[int]]]] = {
    "journal": (JOURNAL, journal),
    "control": (CONTROL, of_layout(control)),
    "registry": (REGISTRY, of_layout(registry)),
    "schemas": (SCHEMAS, of_layout(schemas)),
    "accounts": (ACCOUNTS, of_layout(accounts)),
}
"""What writes to each kind of file and says so, and what finds it again."""


@pytest.mark.parametrize("name", STORES)
def test_nothing_that_was_said_is_lost(name: str, tmp_path: Path) -> None:
    program, read = STORES[name]
    root = tmp_path / "root"
    root.mkdir()
    events = record(root, program, str(root))
    said = [index for index, event in enumerate(events) if event[0] == "said"]
    assert events[said[-1]][1] == "12"
    assert [event for event in events if event[0] == "write"]
    chance = random.Random(SEED)
    # Most right after something was said, when all of it must be there; many while the files are made.
    moments = [
        *(chance.choice(said) for _ in range(kills(12))),
        *(chance.randrange(len(events)) for _ in range(kills(6))),
        *(chance.randrange(said[0]) for _ in range(kills(40))),
    ]
    for moment in moments:
        disk = Disk(root)
        for event in events[: moment + 1]:
            disk.take(event)
        shutil.rmtree(tmp_path / "left", ignore_errors=True)
        disk.cut(tmp_path / "left", chance)
        # A commit is one of all up to its number.
        last = max((int(event[1]) for event in events[: moment + 1] if event[0] == "said"), default=0)
        expected = set(range(1, last + 1))
        found = read(tmp_path / "left")
        assert expected <= found, f"after {moment} of {len(events)}"
        assert found == set(range(1, len(found) + 1))


def found_by(node: NodeProcess, *, has_session: bool) -> set[str]:
    """What a node still has of all that was done."""

    async def listen() -> None:
        async with MqttPeer(node.port, "panel", is_clean=False, session_expiry_s=NEVER_EXPIRES) as panel:
            with blocking.connect(node.url) as connection:
                connection.sender("lamps/b").send(Message(b"b", durable=True))
            while (await panel.message()).topic != "lamps/b":
                pass
            found.add("session panel")

    found: set[str] = set()
    with blocking.connect(node.admin_url) as admin:
        found |= {
            f"address {each['address']}" for each in admin.management().query("io.enmasse.address", ("address",))
        }
    with blocking.connect(node.url) as connection:
        if "address orders" in found:
            orders = everything(connection.receiver("orders", credit=0))
            found |= {"orders " + bytes(delivery.message.body).decode() for delivery in orders}
        if "address lamps" in found:
            with connection.receiver("lamps/#", credit=0, filters={"enmasse:retained": "always"}) as values:
                values.grant(4)
                values.drain()
                while (value := values.receive_nowait()) is not None:
                    found.add("retained " + bytes(value.message.body).decode())
    if has_session:
        asyncio.run(listen())
    return found


def test_what_a_node_has_acknowledged_in_any_protocol_is_there(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    events = record(root, NODE, str(root))
    said = [index for index, event in enumerate(events) if event[0] == "said" and event[1].startswith("done ")]
    done = [events[index][1].removeprefix("done ") for index in said]
    assert len(done) == 9
    chance = random.Random(SEED)
    for moment in [said[-1], *(chance.choice(said) for _ in range(kills(2) - 1))]:
        disk = Disk(root)
        for event in events[: moment + 1]:
            disk.take(event)
        shutil.rmtree(tmp_path / "left", ignore_errors=True)
        disk.cut(tmp_path / "left", chance)
        expected = {what for index, what in zip(said, done, strict=True) if index <= moment}
        with NodeProcess(tmp_path / "left" / "data") as node:
            assert expected <= found_by(node, has_session="session panel" in expected)
