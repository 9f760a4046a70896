"""What a node answers when it is asked whether it lives and is ready, and how it looks at itself and its clock."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from enmasse.client.blocking import connect
from enmasse.client.message import Message
from enmasse.net.loop import run
from enmasse.net.shared_listener import Siblings, no_counts
from enmasse.node.health import CHECK_S, Check, Health, LoopWatch
from enmasse.node.ports import PortOptions
from enmasse.node.server import Server
from tests.support.node_process import NodeProcess
from tests.support.polling import until

LOADED = Check("snapshot", is_ok=True)


def health(*checks: Check) -> Health:
    """The health of a node of which these things are so."""
    loop = asyncio.new_event_loop()
    loop.close()
    return Health("node-0", LoopWatch(loop), lambda: list(checks))


def test_a_node_that_is_ready_says_ok() -> None:
    assert health(LOADED).answer("/readyz") == (200, "ok\n")
    assert health(LOADED).answer("/readyz?verbose") == (200, "[+] snapshot\nnode-0: readyz passed\n")


def test_a_journal_that_is_down_makes_it_not_ready_and_the_text_says_so() -> None:
    found = health(LOADED, Check("journal", is_ok=False, detail="its process is being started"))
    status, text = found.answer("/readyz") or (0, "")
    assert status == 503
    assert text == "[+] snapshot\n[-] journal: its process is being started\nnode-0: readyz failed\n"
    assert not found.is_ready
    assert found.read()[0]["problems"] == ["journal: its process is being started"]


def test_a_full_disk_is_told_and_leaves_it_ready() -> None:
    found = health(LOADED, Check("storage", is_ok=False, detail="no space left", is_needed=False))
    assert found.answer("/readyz") == (200, "ok\n")
    assert "[!] storage: no space left" in (found.answer("/readyz?verbose") or (0, ""))[1]
    entity = found.read()[0]
    assert (entity["ready"], entity["problems"]) == (True, ["storage: no space left"])


def test_health_is_the_loop_alone() -> None:
    found = health(Check("journal", is_ok=False))
    assert found.answer("/healthz") == (200, "ok\n")
    assert "ms late" in (found.answer("/healthz?verbose") or (0, ""))[1]


@pytest.mark.parametrize("target", ["/", "/readyz/x", "/health", "/metrics"])
def test_other_targets_are_not_its_business(target: str) -> None:
    assert health(LOADED).answer(target) is None


def test_a_loop_that_was_held_up_is_seen() -> None:
    async def story() -> LoopWatch:
        watch = LoopWatch(asyncio.get_running_loop())
        watch.start()
        time.sleep(2 * CHECK_S)  # noqa: ASYNC251  holding the loop up is what this is about
        for _ in range(1000):
            if watch.lags.count:
                break
            await asyncio.sleep(0.01)
        watch.stop()
        return watch

    watch = asyncio.run(story())
    assert watch.recent_s >= CHECK_S / 2
    assert watch.lags.count >= 1


@pytest.mark.slow
def test_a_node_that_is_drained_is_not_ready_and_serves_until_it_is_told_again_to_stop(tmp_path: Path) -> None:
    def asked(target: str) -> tuple[int, str]:
        with closing(HTTPConnection("127.0.0.1", node.port, timeout=60)) as http:
            http.request("GET", target)
            answer = http.getresponse()
            return answer.status, answer.read().decode()

    def asked_as_administrator() -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(node.admin_url.removeprefix("amqp+unix://"))
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with connection.makefile() as answer:
                return answer.read()

    with NodeProcess(tmp_path, "--drain-delay", "600") as node:
        with connect(node.admin_url) as admin:
            management = admin.management()
            management.create("io.enmasse.space", "default/shop", {"spaceType": "standard"})
            record = {"space": "default/shop", "address": "orders", "addressType": "queue"}
            management.create("io.enmasse.address", "default/shop.orders", record)
        with connect(node.url) as connection:
            assert asked("/readyz") == (200, "ok\n")
            assert asked_as_administrator().endswith("\n\nok\n")
            os.kill(node.pid, signal.SIGTERM)
            until(lambda: asked("/readyz")[0] == 503)
            assert "[-] stopping: the node is stopping\n" in asked("/readyz")[1]
            assert asked_as_administrator().startswith("HTTP/1.1 503")
            with connect(node.url) as other, other.receiver("orders") as receiver:
                connection.sender("orders").send(Message("still served"))
                delivery = receiver.receive(timeout=60)
                assert delivery is not None
                assert delivery.message.body == "still served"
        assert node.stop() == 0


@pytest.mark.parametrize("takes_more", [True, False], ids=["another takes more", "the other takes none"])
def test_a_node_that_is_drained_leaves_connections_to_one_that_listens_on_the_same_sockets(
    tmp_path: Path, takes_more: bool
) -> None:
    async def story() -> None:
        memory = os.memfd_create("test")
        os.write(memory, no_counts(2))
        other = Siblings(memory, 1)
        with socket.create_server(("127.0.0.1", 0)) as bound:
            options = PortOptions(siblings=Siblings(memory, 0))
            os.close(memory)
            server = Server(tmp_path / "node", "node-0", ports=options)
            await server.load()
            inherited = bound.dup()
            await server.listen("127.0.0.1", 0, inherited=inherited)
            assert other.least() == 0
            other.tell(7 if takes_more else None)
            hurried = asyncio.Event()
            hurried.set()
            await server.drain(600, hurried)
            assert other.least() is None, "nobody waits for it"
            assert (inherited.fileno() < 0) is takes_more
            await server.stop()

    run(story())


def test_an_idle_node_notices_that_the_wall_clock_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        server = Server(tmp_path / "node", "node-0")
        noticed = asyncio.Event()

        class Waiting:
            name = "waiting"

            def on_deadline(self, _now: float) -> None:
                noticed.set()

        await server.load()
        while not server.core.wall_us:
            await asyncio.sleep(0.01)
        try:
            server.core.schedule(Waiting(), asyncio.get_running_loop().time() + 3_600)
            # The clock of the machine that tests run on is not theirs to set.
            real = time.time
            monkeypatch.setattr(time, "time", lambda: real() + 86_400)
            async with asyncio.timeout(30):
                await noticed.wait()
        finally:
            monkeypatch.undo()
            await server.stop()

    run(story())
