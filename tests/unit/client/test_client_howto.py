"""Every example of the how-to runs."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from enmasse.client import Message, blocking, connect
from enmasse.net.loop import run
from tests.unit.client.authorities import Authority

HOWTO = Path(__file__).parents[3] / "docs" / "howto" / "use-the-python-client.md"
BLOCKS = re.findall(r"```python\n(.*?)```", HOWTO.read_text(), re.DOTALL)


@pytest.fixture
def url(serving: Any) -> Any:
    yield from in_the_background(serving())


@pytest.fixture
def node_url(noding: Any) -> Any:
    yield from in_the_background(noding(orders="queue", invoices="queue"))


def in_the_background(serving: Any) -> Any:
    """Serve in a thread; gives the URL."""
    started = threading.Event()
    found: dict[str, Any] = {}

    async def main() -> None:
        async with serving as server:
            found.update(url=server.url, loop=asyncio.get_running_loop(), stop=asyncio.Event())
            started.set()
            await found["stop"].wait()

    thread = threading.Thread(target=lambda: run(main()))
    thread.start()
    started.wait()
    yield found["url"]
    found["loop"].call_soon_threadsafe(found["stop"].set)
    thread.join()


def load(url: str, *words: str) -> dict[str, Any]:
    """Run the blocks that hold these words, as they are but for the place."""
    names: dict[str, Any] = {}
    blocks = [block for block in BLOCKS if any(word in block for word in words)]
    assert len(blocks) == len(words)
    for block in blocks:
        exec(compile(block.replace("amqp://127.0.0.1:5672", url), str(HOWTO), "exec"), names)
    return names


def test_the_first_example_prints_what_it_sent(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    load(url, "asyncio.run(main())")
    assert capsys.readouterr().out == "one coffee\n"


def test_the_blocking_example_prints_what_it_sent(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    load(url, "enmasse.client.blocking")
    assert capsys.readouterr().out.split() == [str(n) for n in range(10)]


async def test_the_example_of_a_transaction_does_all_of_it(noding: Any) -> None:
    async with noding(orders="queue", invoices="queue", ledger="stream") as node, connect(node.url) as connection:
        names = load(node.url, "async def bill")
        names.update(Message=Message)
        await (await connection.sender("orders")).send(Message("one coffee", durable=True))
        orders = await connection.receiver("orders")
        invoices, ledger = await connection.sender("invoices"), await connection.sender("ledger")
        await names["bill"](connection, orders, invoices, ledger)
        assert node.stored("orders", "invoices", "ledger") == [0, 1, 1]
        delivery = await (await connection.receiver("invoices")).receive(timeout=30)
        assert delivery is not None
        assert delivery.message.body == "invoice for one coffee"


def test_the_blocking_example_of_a_transaction_moves_a_message(node_url: str) -> None:
    names = load(node_url, "def move(")
    with blocking.connect(node_url) as connection:
        source = connection.sender("orders")
        source.send(Message("one coffee", durable=True))
        names["move"](connection, connection.receiver("orders"), connection.sender("invoices"))
        delivery = connection.receiver("invoices").receive(timeout=30)
        assert delivery is not None
        assert delivery.message.body == "one coffee"


async def test_the_other_examples_do_what_they_say(
    serving: Any, until: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving() as server, connect(server.url) as connection:
        names: dict[str, Any] = {}
        for block in BLOCKS:
            if not any(word in block for word in ("asyncio.run", "blocking", "transaction", "amqps:")):
                exec(block.replace("amqp://127.0.0.1:5672", server.url), names)
        names.update(Message=Message, connect=connect)
        exec("from enmasse.client import Outcome", names)
        assert await names["choose"]() == "server"
        assert await names["somewhere"]() == server.url
        await names["send_many"](connection)
        await names["pipe"](connection, range(500))
        answering = asyncio.ensure_future(names["answer"](connection))
        await names["ask"](connection)
        assert capsys.readouterr().out == "high time\n"
        await (await connection.sender("orders")).send(Message(""))
        consuming = asyncio.ensure_future(names["consume"](connection))
        await until(lambda: len(server.seen["orders"]) == 1501)
        assert [type(state).__name__ for state in server.seen["orders"]].count("Rejected") == 3
        for task in (answering, consuming):
            task.cancel()
            await asyncio.wait([task])
        sender, receiver = await names["thrifty"](connection)
        await receiver.close()
        for n in range(3):
            await sender.send(Message(n))
        assert await names["empty"](connection) == [0, 1, 2]


async def test_the_examples_of_tls_and_users_are_let_in(serving: Any, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    async with serving(tls=authority.server("127.0.0.1")) as server:
        names: dict[str, Any] = {"connect": connect}
        blocks = [block for block in BLOCKS if "amqps:" in block]
        assert len(blocks) == 2
        for block in blocks:
            placed = block.replace("amqps://mq.example.org:5671", server.url).replace(
                "ca.crt", str(authority.ca_file)
            )
            exec(placed, names)
        assert await names["safely"]() == server.url
        assert await names["as_somebody"]() == "let in"
        assert server.mechanisms_used == ["ANONYMOUS", "PLAIN"]


def test_the_typed_example_runs(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    (block,) = [block for block in BLOCKS if "take_one" in block]
    exec(compile(block.replace("amqp://127.0.0.1:5672", url), str(HOWTO), "exec"), names)
    assert capsys.readouterr().out == "typed\n"


@pytest.mark.slow
def test_the_typed_example_passes_mypy_strict(tmp_path: Path) -> None:
    (block,) = [block for block in BLOCKS if "take_one" in block]
    example = tmp_path / "example.py"
    example.write_text(block)
    assert files("enmasse").joinpath("py.typed").is_file()
    # Away from this repository's own configuration.
    ask = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, str(example)]
    done = subprocess.run(ask, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
