"""A node whose disk is full or read only, or whose journal is not for it: a clear error, and nothing lost."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from enmasse.client import Connection, Message, Outcome, connect
from enmasse.client.management import Management
from enmasse.messaging.storage import Operation, Table
from enmasse.storage.environment import FORMAT_VERSION
from enmasse.storage.errors import JournalFormatError
from enmasse.storage.link import JournalLink
from enmasse.storage.pages import PageFile
from enmasse.testing.memory_storage import RecordingListener
from tests.support.node_process import NodeProcess
from tests.support.small_disk import fill_up, mount, small_disk

pytestmark = pytest.mark.slow

BODY = b"x" * 20_000


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    directory = tmp_path / "nodes" / "node-0" / "journal"
    directory.mkdir(parents=True)
    return directory


@pytest.fixture
def disk(journal: Path) -> Iterator[Path]:
    """The journal's directory on a small disk of its own."""
    with small_disk(journal, "8m"):
        yield journal


async def declare(node: NodeProcess) -> None:
    async with connect(node.admin_url) as connection:
        management = Management(connection)
        await management.create("io.enmasse.space", "default/small", {})
        await management.create(
            "io.enmasse.address",
            "default/orders",
            {"space": "default/small", "address": "orders", "addressType": "queue"},
        )


async def send(connection: Connection, numbers: range) -> dict[int, Outcome]:
    sender = await connection.sender("orders")
    outcomes = await sender.send_all(Message(b"%d " % n + BODY, durable=True) for n in numbers)
    await sender.close()
    return dict(zip(numbers, outcomes, strict=True))


async def take(connection: Connection, count: int) -> list[int]:
    receiver = await connection.receiver("orders", credit=count)
    found: list[int] = []
    for _ in range(count):
        delivery = await receiver.receive(timeout=30)
        assert delivery is not None, f"{len(found)} of {count} came"
        found.append(int(delivery.message.body.split()[0]))
        await delivery.accept()
    await receiver.close()
    return found


async def is_empty(connection: Connection) -> bool:
    async with connection.receiver("orders", credit=1) as receiver:
        return await receiver.drain(timeout=30) == 0


def test_a_full_disk_accepts_nothing_and_loses_nothing(disk: Path, tmp_path: Path) -> None:
    async def story(node: NodeProcess) -> None:
        await declare(node)
        async with connect(node.url) as connection:
            before = await send(connection, range(10))
            assert set(before.values()) == {Outcome.ACCEPTED}
            ballast = fill_up(disk)
            during = await send(connection, range(10, 20))
            assert Outcome.ACCEPTED not in during.values()
            assert await take(connection, 4) == [0, 1, 2, 3]
            ballast.unlink()
            after = await send(connection, range(20, 30))
            assert set(after.values()) == {Outcome.ACCEPTED}
        async with connect(node.admin_url) as connection:
            (statistics,) = await Management(connection).query("io.enmasse.statistics", ["failedCommits"])
            assert statistics["failedCommits"] > 0

    async def rest(node: NodeProcess) -> None:
        async with connect(node.url) as connection:
            assert await take(connection, 16) == [*range(4, 10), *range(20, 30)]
            assert await is_empty(connection)

    with NodeProcess(tmp_path) as node:
        asyncio.run(story(node))
        assert f"the journal in {disk} cannot be written" in node.log
        assert "its disk has " in node.log
        assert f"the journal in {disk} is written again" in node.log
    with NodeProcess(tmp_path) as node:
        asyncio.run(rest(node))


def test_a_disk_that_is_full_from_the_start_is_named(disk: Path, tmp_path: Path) -> None:
    fill_up(disk)
    node = NodeProcess(tmp_path)
    with pytest.raises(RuntimeError, match=f"{disk}.*No space left on device"):
        node.start()
    assert "Traceback" not in node.log


def test_a_read_only_directory_is_named(disk: Path, tmp_path: Path) -> None:
    async def store(node: NodeProcess) -> None:
        await declare(node)
        async with connect(node.url) as connection:
            await send(connection, range(3))

    async def find(node: NodeProcess) -> None:
        async with connect(node.url) as connection:
            assert await take(connection, 3) == [0, 1, 2]

    with NodeProcess(tmp_path) as node:
        asyncio.run(store(node))
    mount("-o", "remount,ro", str(disk))
    node = NodeProcess(tmp_path)
    with pytest.raises(RuntimeError, match=f"{disk}.*Read-only file system"):
        node.start()
    assert "Traceback" not in node.log
    mount("-o", "remount,rw", str(disk))
    with NodeProcess(tmp_path) as node:
        asyncio.run(find(node))


def test_a_journal_of_a_newer_format_is_refused_and_left_alone(journal: Path, tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        asyncio.run(declare(node))
    raw = lmdb.open(str(journal))
    with raw.begin(write=True) as transaction:
        transaction.put(b"\0format", (FORMAT_VERSION + 1).to_bytes(4, "little"))
    raw.close()
    before = (journal / "data.mdb").read_bytes()
    node = NodeProcess(tmp_path)
    with pytest.raises(RuntimeError, match=f"format {FORMAT_VERSION + 1}, this version reads up to {FORMAT_VERSION}"):
        node.start()
    assert "Traceback" not in node.log
    assert (journal / "data.mdb").read_bytes() == before


def test_a_second_node_over_the_same_journal_is_refused(journal: Path, tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        asyncio.run(declare(node))
        second = NodeProcess(tmp_path)
        with pytest.raises(RuntimeError, match=rf"process \d+ still writes the journal in {journal}"):
            second.start()

        async def use() -> None:
            async with connect(node.url) as connection:
                assert (await send(connection, range(1)))[0] == Outcome.ACCEPTED

        asyncio.run(use())


def test_a_file_that_may_not_grow_fails_what_does_not_fit_and_nothing_else(tmp_path: Path) -> None:
    """What a quota does; without any right to mount something."""

    async def story() -> None:
        listener = RecordingListener()
        link = JournalLink(tmp_path)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
        try:
            await link.start(listener)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        small = link.submit([Operation(Table.MARK, b"a" * 16, b"1")])
        large = link.submit([Operation(Table.MARK, b"b" * 16, bytes(2 << 20))])
        last = link.submit([Operation(Table.MARK, b"c" * 16, b"3")])
        await link.stop()
        assert list(listener.failed) == [large]
        assert "its disk has " in listener.failed[large]
        assert {number for number, reason in listener.answers if reason is None} >= {small, last}
        again = JournalLink(tmp_path)
        await again.start(RecordingListener())
        assert list(again.scan_all(Table.MARK)) == [(b"a" * 16, b"1"), (b"c" * 16, b"3")]
        await again.stop()

    asyncio.run(story())


def test_a_damaged_page_keeps_a_node_from_starting_and_says_what_to_do(journal: Path, tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        asyncio.run(declare(node))
    with (journal / "data.mdb").open("r+b") as file:
        file.seek(2 * 4096)
        file.write(bytes((journal / "data.mdb").stat().st_size - 2 * 4096))
    node = NodeProcess(tmp_path)
    with pytest.raises(RuntimeError, match=r"page \d+ .*`enmasse journal check .*`enmasse journal salvage"):
        node.start()
    assert "Traceback" not in node.log
    with pytest.raises(JournalFormatError, match="is damaged"):
        asyncio.run(JournalLink(journal).start(RecordingListener()))


def test_a_damaged_frame_is_left_out_by_name_and_the_others_are_delivered(journal: Path, tmp_path: Path) -> None:
    async def store(node: NodeProcess) -> None:
        await declare(node)
        async with connect(node.url) as connection:
            for number in range(5):
                await send(connection, range(number, number + 1))

    async def find(node: NodeProcess) -> None:
        async with connect(node.url) as connection:
            assert await take(connection, 4) == [0, 1, 3, 4]
            assert await is_empty(connection)
            assert (await send(connection, range(9, 10)))[9] == Outcome.ACCEPTED
            assert await take(connection, 1) == [9]

    with NodeProcess(tmp_path) as node:
        asyncio.run(store(node))
    file = PageFile(str(journal / "data.mdb"))
    frames = [
        found
        for number, data in file.leaves(file.metas[0].main)
        for found in file.nodes(number, data)
        if found.key[:1] == b"\2"
    ]
    file.close()
    assert len(frames) == 5
    with (journal / "data.mdb").open("r+b") as raw:
        raw.seek(frames[2].overflow * 4096 + 5000)
        raw.write(b"?")
    with NodeProcess(tmp_path) as node:
        asyncio.run(find(node))
        assert "partition 0, offset 2 in" in node.log
        assert "enmasse journal check" in node.log
