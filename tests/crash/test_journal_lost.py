"""A node whose journal is deleted under it, or was lost before its start: it accepts nothing and says why."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from enmasse.client import Connection, Message, Outcome, connect
from enmasse.client.management import Management
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow


async def declare(node: NodeProcess) -> None:
    async with connect(node.admin_url) as connection:
        management = Management(connection)
        await management.create("io.enmasse.space", "default/small", {})
        for name in ("queue", "stream"):
            attributes = {"space": "default/small", "address": name, "addressType": name}
            await management.create("io.enmasse.address", f"default/{name}", attributes)


async def send(connection: Connection, address: str) -> Outcome:
    async with connection.sender(address) as sender:
        return await sender.send(Message(b"durable", durable=True), timeout=30)


async def gets_credit(connection: Connection, address: str) -> bool:
    async with connection.sender(address) as sender:
        try:
            await sender.send(Message(b"x", durable=True), timeout=0.3)
        except TimeoutError:
            return False
        return True


def readiness(node: NodeProcess) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{node.port}/readyz?verbose", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def until_ready(node: NodeProcess, status: int) -> str:
    async with asyncio.timeout(20):
        while (found := await asyncio.to_thread(readiness, node))[0] != status:
            await asyncio.sleep(0.02)
    return found[1]


def test_a_node_whose_journal_is_deleted_accepts_no_more_and_says_why(tmp_path: Path) -> None:
    journal = tmp_path / "nodes" / "node-0" / "journal"

    async def story(node: NodeProcess) -> None:
        await declare(node)
        async with connect(node.url) as connection, connection.sender("queue") as early:
            assert await send(connection, "queue") == await send(connection, "stream") == Outcome.ACCEPTED
            (journal / "data.mdb").rename(journal / "kept.mdb")
            said = await until_ready(node, 503)
            assert f"[-] journal: {journal / 'data.mdb'} was deleted or moved away" in said
            # It had its credit before.
            assert await early.send(Message(b"durable", durable=True), timeout=30) == Outcome.RELEASED
            for address in ("queue", "stream"):
                assert not await gets_credit(connection, address)
            assert f"the journal in {journal} is lost: {journal / 'data.mdb'} was deleted" in node.log
            assert {path.name for path in journal.iterdir()} == {"kept.mdb", "lock.mdb", "writer.lock"}
            (journal / "kept.mdb").rename(journal / "data.mdb")
            await until_ready(node, 200)
            assert await send(connection, "queue") == await send(connection, "stream") == Outcome.ACCEPTED

    with NodeProcess(tmp_path) as node:
        asyncio.run(story(node))


def test_a_node_that_was_stopped_without_its_journal_begins_none_until_it_is_said(tmp_path: Path) -> None:
    journal = tmp_path / "nodes" / "node-0" / "journal"
    node = NodeProcess(tmp_path).start()
    (journal / "data.mdb").unlink()
    asyncio.run(until_ready(node, 503))
    assert node.stop() == 0
    with pytest.raises(RuntimeError, match=f"enmasse node: the journal in {journal} is gone: .*journal init"):
        node.start()
    assert "Traceback" not in node.log
    assert not (journal / "data.mdb").exists()
    init = [sys.executable, "-m", "enmasse", "journal", "init", "--data", str(tmp_path)]
    subprocess.run(init, check=True, capture_output=True)
    with node:
        asyncio.run(declare(node))
