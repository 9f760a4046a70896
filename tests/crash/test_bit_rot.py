"""One bit that a disk has changed, in each class of file: mended, or left out by name, and nothing else is lost."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from enmasse.client import Message, blocking
from enmasse.control.access.accounts import Accounts, KeptSession
from enmasse.control.store.store import ResourceStore
from enmasse.databases import soundness
from enmasse.errors import EnmasseError
from enmasse.iot.store import DeviceStore
from enmasse.iot.tables import DeviceRow, TenantRow
from enmasse.messaging.log.frame import FrameError, check_frame, encode_frame
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.log.merge import time_key
from enmasse.messaging.storage import Operation, Table
from enmasse.schemas.compatibility import Schema
from enmasse.schemas.store import SchemaStore
from enmasse.storage.batch import encode_batch, split_batches
from enmasse.storage.environment import ReadEnvironment, WriteEnvironment
from enmasse.storage.errors import JournalFormatError
from enmasse.storage.pages import PageFile
from enmasse.storage.records import describe
from enmasse.storage.tools import main as run_tool
from enmasse.wire.mqtt.packets import NEVER_EXPIRES, Filter, Will
from tests.support.chance import kills
from tests.support.mqtt_peer import MqttPeer
from tests.support.node_process import NodeProcess

pytestmark = [pytest.mark.slow, pytest.mark.chance]

RECORDS = {
    Table.ENTITY: 300, Table.SETTLED: 16, Table.MARK: 16, Table.PRODUCER: 8, Table.SUBSCRIPTION: 200,
    Table.ATTEMPTS: 8, Table.OFFSET: 8, Table.HOLDER: 60, Table.RETAINED: 3000, Table.SESSION: 2500,
}  # fmt: skip
"""Tables, with the size of a value."""


def make_journal(directory: Path, chance: random.Random) -> None:
    environment = WriteEnvironment(str(directory))
    offset = 0
    for number in range(1, 25):
        made: list[Operation] = []
        for size in (10, 100, 900, 5000):
            offset += 1
            key = log_key(chance.randrange(1, 4), 0, offset)
            frame = encode_frame(offset, [offset], [b"k"], [b"h"], [chance.randbytes(size)])
            made += [Operation(Table.FRAME, key, frame), Operation(Table.TIME, time_key(key, offset), b"")]
        made += [Operation(table, chance.randbytes(16), chance.randbytes(size)) for table, size in RECORDS.items()]
        if number > 12:
            made += [Operation(Table.FRAME, log_key(log, 0, 4 * number - 48), None) for log in (1, 2, 3)]
        (batch,), _, _ = split_batches(memoryview(encode_batch(1, number, 0, made)))
        environment.apply([batch])
    environment.close()


def read_journal(directory: Path) -> tuple[dict[bytes, bytes], set[bytes]]:
    """The sound records by their stored keys, and the keys of those that are named as damaged."""
    named: set[bytes] = set()
    records: dict[bytes, bytes] = {}
    reader = ReadEnvironment(str(directory), report=named.add)
    for table in range(1, 13):
        for key, value in reader.scan_all(table):
            stored = bytes((table,)) + key
            try:
                if table == Table.FRAME:
                    check_frame(value, int.from_bytes(key[-8:], "big"))
                records[stored] = value
            except FrameError:
                named.add(stored)
    reader.close()
    return records, named


def flipped(data: bytes, chance: random.Random, part: int) -> bytes:
    """The same with one bit changed, in the first part: that of a write-ahead log is what has not been done yet."""
    changed = bytearray(data)
    changed[chance.randrange(min(len(data), part))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def test_a_bit_of_a_journal_is_mended_or_costs_one_frame_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random("journal")
    sound = tmp_path / "sound"
    sound.mkdir()
    make_journal(sound, chance)
    expected, _ = read_journal(sound)
    data = (sound / "data.mdb").read_bytes()
    image = tmp_path / "image"
    mended = 0
    for _ in range(kills(60)):
        shutil.rmtree(image, ignore_errors=True)
        shutil.rmtree(tmp_path / "salvaged", ignore_errors=True)
        image.mkdir()
        (image / "data.mdb").write_bytes(flipped(data, chance, len(data)))
        try:
            environment = WriteEnvironment(str(image))
        except JournalFormatError as error:
            # Not a record but what leads to records: nothing was changed, and all of them are still there.
            assert str(image) in str(error)  # noqa: PT017 - no error is as well
            run_tool(["salvage", str(image), str(tmp_path / "salvaged")])
            found, _ = read_journal(tmp_path / "salvaged")
            told = capsys.readouterr().out
            for key in expected.keys() - found.keys():
                assert describe(key) in told or "the other state" in told, (describe(key), told)
            continue
        mended += bool(environment.mended)
        environment.close()
        found, named = read_journal(image)
        lost = {key for key, value in expected.items() if found.get(key) != value}
        assert lost <= named
        assert len(lost) <= 1
        assert not lost or describe(lost.pop()).startswith("FRAME")
        assert found.keys() <= expected.keys()
    assert mended


def resources(path: Path) -> ResourceStore:
    store = ResourceStore(path)
    for number in range(60):
        name = f"a{number}"
        metadata = {"namespace": f"ns{number % 3}", "name": name, "uid": f"uid-{number}"}
        store.create({"kind": "Address", "metadata": metadata, "spec": {"address": name, "x": "y" * (number * 13)}})
        store.put_aside(f"uid-{number}", "secret", b"x" * 50)
    store.delete("Address", "ns0", "a0")
    return store


def devices(path: Path) -> DeviceStore:
    store = DeviceStore(path)
    with store.writing() as tables:
        row = TenantRow(0, "plant", "alias", "ns", True, "1", "now", "now", "{}")
        tenant = tables.add_tenant(row)
        rows = [
            DeviceRow(tenant, f"d{n}", bool(n % 2), "1", "1", "now", "now", "me", f'{{"n": "{"x" * n * 10}"}}')
            for n in range(60)
        ]
        tables.add_devices(rows, [])
        for n in range(60):
            tables.put_credentials(tenant, f"d{n}", '[{"type": "psk"}]', [("psk", f"auth-{n}")], "2")
        tables.note_seen([("plant", f"d{n}", n) for n in range(60)])
    return store


def schemas(path: Path) -> SchemaStore:
    store = SchemaStore(path)
    with store.transaction("space") as tables:
        for number in range(40):
            tables.changed()
            text = f'{{"type": "string", "doc": "{number * "d"}"}}'
            tables.add_version(f"subject-{number}", 1, tables.add_schema(Schema("AVRO", text)))
    return store


def accounts(path: Path) -> Accounts:
    store = Accounts(path, now=lambda: 1000.0)
    for number in range(30):
        store.add(f"name-{number}", password_hash="scrypt:" + "h" * 60)
        store.create_token(f"name-{number}", note="laptop")
        key = number.to_bytes(32)
        store.keep_session(KeptSession(key, f"{number}", f"name-{number}", key, 900.0, 900.0, "host", "b" * 60))
    return store


def check_accounts(path: Path) -> Accounts:
    soundness.check_database(path)
    return Accounts(path, now=lambda: 1000.0)


STORES: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "control": (resources, ResourceStore),
    "registry": (devices, DeviceStore),
    "schemas": (schemas, SchemaStore),
    "accounts": (accounts, check_accounts),
}
"""How each database is filled, and how it is opened."""


def dump(path: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(path)) as database:
        names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(database.execute(f"SELECT * FROM {name}").fetchall()) for name in names}


@pytest.mark.parametrize("part", ["", "-wal"])
@pytest.mark.parametrize("name", STORES)
def test_a_bit_of_a_database_is_mended(
    name: str, part: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soundness, "_TRIED_S", 1.5)
    chance = random.Random(f"{name}{part}")
    fill, reopen = STORES[name]
    path = tmp_path / "made" / "some.db"
    path.parent.mkdir()
    store = fill(path)
    if part:  # as a process leaves it that is killed
        files = {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}
        store.close()
    else:
        store.close()
        files = {path.name: path.read_bytes()}
    expected = dump(path)
    image = tmp_path / "image"
    mended = refused = 0
    for _ in range(kills(6)):
        shutil.rmtree(image, ignore_errors=True)
        image.mkdir()
        for file, data in files.items():
            damaged = flipped(data, chance, 1 << 16 if part else len(data))
            (image / file).write_bytes(damaged if file == f"some.db{part}" else data)
        caplog.clear()
        try:
            with caplog.at_level(logging.ERROR):
                reopen(image / "some.db").close()
        except EnmasseError as error:
            assert str(image / "some.db") in str(error)  # noqa: PT017 - no error is as well
            refused += 1
            continue
        found = dump(image / "some.db")
        if "is left out" in caplog.text:
            lost = [row for table, rows in expected.items() for row in rows if row not in found[table]]
            assert len(lost) <= 1
            assert all(set(found[table]) <= set(rows) for table, rows in expected.items())
        else:
            assert found == expected
        mended += bool(caplog.records)
    assert mended + refused


@pytest.mark.parametrize("name", STORES)
def test_a_changed_row_of_a_database_is_named_in_a_copy_however_large_it_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soundness, "MAX_CHECKED_BYTES", 0)
    fill, _ = STORES[name]
    path = tmp_path / "some.db"
    fill(path).close()
    assert soundness.told_damage(path) == []
    data = path.read_bytes()
    text = {"control": b"y" * 300, "registry": b"x" * 300, "schemas": b"d" * 30, "accounts": b"h" * 60}[name]
    at = data.index(text) + 20
    path.write_bytes(data[:at] + bytes((data[at] ^ 2,)) + data[at + 1 :])
    assert any("is not as it was written" in problem for problem in soundness.told_damage(path))


def damage_records(path: Path, chance: random.Random) -> list[bytes]:
    """Change a bit of one record in each table of a journal; the stored keys of these."""
    file = PageFile(str(path))
    places: dict[int, list[tuple[bytes, int, int]]] = {}
    for number, data in file.leaves(file.metas[0].main):
        for node in file.nodes(number, data):
            places.setdefault(node.key[0], []).append((node.key, file.place_of(number, node), node.size))
    file.close()
    changed = bytearray(path.read_bytes())
    keys = []
    for table in sorted(places):
        if table in (Table.META, Table.FRAME):
            continue
        key, at, size = chance.choice(places[table])
        changed[at + chance.randrange(size)] ^= 1 << chance.randrange(8)
        keys.append(key)
    path.write_bytes(changed)
    return keys


def bodies(receiver: blocking.Receiver, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        delivery = receiver.receive()
        assert delivery is not None
        found.append(delivery.message.body)
    return found


def test_a_node_has_everything_after_a_bit_in_a_record_of_each_kind(tmp_path: Path) -> None:
    async def subscribe_and_kill() -> None:
        will = Will("lamps/will", b"gone", qos=1)
        async with MqttPeer(node.port, "panel", session_expiry_s=NEVER_EXPIRES, will=will) as panel:
            assert await panel.subscribed(Filter("lamps/new", 1)) == [1]
            node.kill()

    async def come_back() -> None:
        async with MqttPeer(node.port, "panel", is_clean=False, session_expiry_s=NEVER_EXPIRES) as panel:
            with blocking.connect(node.url) as connection:
                connection.sender("lamps/new").send(Message(b"new", durable=True))
            assert (await panel.message()).payload == b"new"

    chance = random.Random("records")
    with NodeProcess(tmp_path / "node") as node:
        with blocking.connect(node.admin_url) as admin:
            management = admin.management()
            management.create("io.enmasse.space", "default/shop", {})
            for name, kind in (("orders", "queue"), ("lamps", "topic"), ("log", "stream")):
                declared = {"space": "default/shop", "address": name, "addressType": kind}
                management.create("io.enmasse.address", f"default/shop.{name}", declared)
        with blocking.connect(node.url) as connection:
            for number in range(20):
                late = {"x-opt-delivery-delay": 3_600_000} if number % 2 else {}
                connection.sender("orders").send(Message(number, durable=True, annotations=late))
                connection.sender("log").send(Message(number, durable=True))
                kept = Message(b"%d" % number, durable=True, annotations={"x-opt-retain": True})
                connection.sender(f"lamps/{number}").send(kept)
        asyncio.run(subscribe_and_kill())
        node.start()
        node.stop()
        keys = damage_records(tmp_path / "node" / "nodes" / "node-0" / "journal" / "data.mdb", chance)
        node.start()
        for key in keys:
            assert describe(key) in node.log
        with blocking.connect(node.url) as connection:
            with connection.receiver("lamps/#", credit=0, filters={"enmasse:retained": "always"}) as receiver:
                receiver.grant(40)
                receiver.drain()
                values = 0
                while receiver.receive_nowait() is not None:
                    values += 1
            assert values == 20
            log = connection.receiver("log", filters={"enmasse:start": "first"}, credit=40)
            assert bodies(log, 20) == list(range(20))
            orders = connection.receiver("orders", credit=40)
            assert bodies(orders, 10) == list(range(0, 20, 2))
        asyncio.run(come_back())
