"""Clients that reach nodes which are not the home of their space: their connections are handed over."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from enmasse.client import Message, Outcome, blocking, connect
from enmasse.errors import EnmasseError
from enmasse.net.connection_limiter import room_for_connections
from enmasse.wire.mqtt.packets import Reason, Version
from enmasse.wire.stomp.frames import Version as StompVersion
from enmasse.wire.stomp.frames import encode_frame
from tests.support.chance import is_long, kills
from tests.support.mqtt_peer import MqttPeer
from tests.support.node_process import NodeProcess
from tests.support.nodes import Nodes, two_nodes
from tests.support.polling import PATIENCE_S, until, until_async
from tests.support.stomp_peer import StompPeer, named

pytestmark = pytest.mark.slow

SPACE = "default/there"

STILL_S = 30 if is_long() else 0
"""Seconds for which a home stands still, at least; those who come to it then wait for five."""

T = TypeVar("T")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two fronts, the first and the last; the home of what is there is between them."""
    with two_nodes(tmp_path_factory.mktemp("nodes"), count=3) as found:
        found.space("default/here", 0)
        found.space(SPACE, 1)
        found.space("default/guarded", 1, authentication="standard")
        found.address("default/here", 0, "orders", "queue")
        found.address(SPACE, 1, "orders", "queue")
        found.address(SPACE, 1, "large", "queue")
        found.address(SPACE, 1, "many", "queue")
        found.address(SPACE, 1, "news", "topic")
        yield found


def test_amqp(nodes: Nodes) -> None:
    with blocking.connect(nodes.nodes[0].url, hostname="there.default", timeout=30) as connection:
        sender = connection.sender("orders")
        assert sender.send(Message("to the home"), timeout=30) == Outcome.ACCEPTED
        (row,) = nodes.connections(1)
        assert (row["via"], row["space"], row["senders"]) == ("node-0", SPACE, 1)
        assert row["host"].startswith("127.0.0.1:")
        delivery = connection.receiver("orders").receive(30)
        assert delivery is not None
        assert delivery.message.body == "to the home"
        delivery.accept()
    with blocking.connect(nodes.nodes[1].url, hostname="there.default", timeout=30) as connection:
        assert connection.receiver("orders").drain(30) == 0


def test_mqtt_with_a_session_that_outlives_its_connection(nodes: Nodes) -> None:
    async def story() -> None:
        front = nodes.nodes[0].port
        name: dict[str, Any] = {"user_name": "anyone@there.default"}
        async with MqttPeer(front, "meter", session_expiry_s=300, **name) as peer:
            assert await peer.subscribed("news", qos=2) == [2]
        async with MqttPeer(nodes.nodes[1].port, "other", Version.V3_1_1, **name) as peer:
            for number in range(20):
                assert await peer.answer("news", b"%d" % number, 1) == 0
        async with MqttPeer(front, "meter", session_expiry_s=300, is_clean=False, **name) as peer:
            assert peer.connack is not None
            assert peer.connack.said.is_session_present
            assert [(await peer.message()).payload for _ in range(20)] == [b"%d" % number for number in range(20)]
            (row,) = [row for row in nodes.connections(1) if row["container"] == "meter"]
            assert (row["via"], row["protocol"], row["space"]) == ("node-0", "mqtt", SPACE)

    asyncio.run(story())


def test_stomp(nodes: Nodes) -> None:
    async def story() -> None:
        async with StompPeer(nodes.nodes[0].port, host="there.default", client_id="me") as peer:
            peer.send("orders", b"one", receipt="1")
            await peer.receipt("1")
            await peer.subscribe("orders", ack="client-individual")
            assert (await peer.next("MESSAGE")).body == b"one"
            (row,) = [row for row in nodes.connections(1) if row["container"] == "me"]
            assert (row["via"], row["protocol"]) == ("node-0", "stomp")

    asyncio.run(story())


def test_a_client_that_waits_for_nothing_has_its_bytes_passed_on(nodes: Nodes) -> None:
    async def story() -> None:
        """Everything in one write, a message of the client's behind its login."""
        head = encode_frame("CONNECT", [("accept-version", "1.2"), ("host", "there.default")], b"", StompVersion.V1_2)
        large = b"x" * 300_000
        sent = encode_frame(
            "SEND",
            [("destination", "large"), ("receipt", "7"), ("content-length", str(len(large)))],
            large,
            StompVersion.V1_2,
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", nodes.nodes[0].port)
        writer.write(head + sent)
        heard = await reader.readuntil(b"receipt-id:7\n\n\0")
        assert heard.startswith(b"CONNECTED\n")
        writer.close()

    asyncio.run(story())


def frame(command: str, body: bytes = b"", /, **headers: str) -> bytes:
    return encode_frame(command, named(headers), body, StompVersion.V1_2)


async def come(port: int, host: str, **login: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client of STOMP, once it is connected.

    Raises:
        EOFError: it was refused.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frame("CONNECT", accept_version="1.2", host=host, **login))
    try:
        answer = await reader.readuntil(b"\0")
    except BaseException:
        writer.close()
        raise
    if not answer.startswith(b"CONNECTED"):
        writer.close()
        raise EOFError(answer)
    return reader, writer


async def has_come_again(port: int, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await come(port, host)
        except (EOFError, ConnectionError):
            await asyncio.sleep(0.1)


@asynccontextmanager
async def unharmed(fronts: Sequence[NodeProcess]) -> AsyncIterator[None]:
    """Clients of another space, one at each front, are answered all the time."""

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            async with asyncio.timeout(PATIENCE_S):
                writer.write(frame("SEND", b"x", destination="orders", receipt="1", persistent="true"))
                assert (await reader.readuntil(b"\0")).startswith(b"RECEIPT")
                answered[writer] += 1
            await asyncio.sleep(0.05)  # others are to have the processor, too

    clients = [await come(front.port, "here.default") for front in fronts]
    answered = {writer: 0 for _, writer in clients}
    working = [asyncio.create_task(work(*client)) for client in clients]
    try:
        yield
        goals = {writer: count + 1 for writer, count in answered.items()}
        await until_async(
            lambda: any(task.done() for task in working) or all(answered[each] >= goals[each] for each in goals)
        )
    finally:
        for _, writer in clients:
            writer.close()
    assert not any(task.done() for task in working)
    for task in working:
        task.cancel()


def test_a_home_that_stands_still_stops_nobody_elsewhere_and_loses_nothing(nodes: Nodes) -> None:
    """Clients of a home that is stopped are held back, newcomers are told to come again, and then it goes on."""
    *_, home, _ = nodes.nodes
    fronts = [node for node in nodes.nodes if node is not home]
    number, count, size = 20, 100, 50_000
    user: dict[str, Any] = {"user_name": "anyone@there.default"}

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        for each in range(count):
            length = str(size)
            writer.write(frame("SEND", bytes(size), destination="large", receipt=str(each), content_length=length))
            await writer.drain()
        answered = 0
        while answered < count:
            answered += (await reader.readuntil(b"\0")).startswith(b"RECEIPT") or 0
        return answered

    async def stomp_comes(front: NodeProcess) -> None:
        with pytest.raises(EOFError, match=r"connection.{1,4}forced"):
            await come(front.port, "there.default")

    async def amqp_comes(front: NodeProcess) -> None:
        with pytest.raises(EnmasseError, match=r"connection:forced|does not answer"):
            await connect(front.url, hostname="there.default", reconnect=False)

    async def mqtt_comes(front: NodeProcess) -> None:
        async with MqttPeer(front.port, "new", **user, is_refused=True) as peer:
            assert peer.connack is not None
            assert peer.connack.reason == Reason.SERVER_UNAVAILABLE

    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            senders = [await come(front.port, "there.default") for front in fronts for _ in range(number)]
            links, devices = [], []
            for front in fronts:
                client = connect(front.url, hostname="there.default", reconnect=False)
                links.append(await (await stack.enter_async_context(client)).sender("orders"))
                devices.append(await stack.enter_async_context(MqttPeer(front.port, f"d{front.port}", **user)))
            before = [front.memory_bytes for front in fronts]
            began = loop.time()
            os.kill(home.pid, signal.SIGSTOP)
            try:
                async with unharmed(fronts):
                    sending = [asyncio.create_task(send(*sender)) for sender in senders]
                    waiting = [link.send_nowait(Message("late", durable=True)) for link in links]
                    answers = [asyncio.create_task(device.answer("orders", b"late", 1)) for device in devices]
                    while True:
                        coming = (stomp_comes, amqp_comes, mqtt_comes)
                        await asyncio.gather(*(comes(front) for front in fronts for comes in coming))
                        if loop.time() >= began + STILL_S:
                            break
                    pending: list[asyncio.Future[Any]] = [*sending, *waiting, *answers]
                    assert not any(each.done() for each in pending)
                    for front, memory in zip(fronts, before, strict=True):
                        # Of what each has to say, one read.
                        assert front.memory_bytes - memory < number * (1 << 20)
            finally:
                os.kill(home.pid, signal.SIGCONT)
            assert await asyncio.gather(*sending) == [count] * len(senders)
            assert await asyncio.gather(*waiting) == [Outcome.ACCEPTED] * len(links)
            assert await asyncio.gather(*answers) == [0] * len(devices)
            for _, writer in senders:
                writer.close()

    asyncio.run(story())


def descriptors(node: NodeProcess) -> int:
    return len(list(Path(f"/proc/{node.pid}/fd").iterdir()))


async def some_at_a_time(acts: Iterable[Awaitable[T]]) -> list[T]:
    """The results of much that is awaited, of which only so much goes on at a time."""
    room = asyncio.Semaphore(50)

    async def take(act: Awaitable[T]) -> T:
        async with room:
            return await act

    return await asyncio.gather(*map(take, acts))


async def store(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    """Send a message, and wait until it is stored."""
    writer.write(frame("SEND", b"%d" % number, destination="many", receipt=str(number), persistent="true"))
    assert (await reader.readuntil(b"\0")).startswith(b"RECEIPT")


@pytest.mark.chance
@pytest.mark.timeout(3600 if is_long() else 180)
def test_all_connections_of_a_home_that_is_killed_come_again(nodes: Nodes) -> None:
    """Nobody comes in that may not, nothing acknowledged is lost, others are unharmed, and nothing is left."""
    *_, home, _ = nodes.nodes
    fronts = [node for node in nodes.nodes if node is not home]
    # This process has one descriptor for each, a node counts two; some room is for what else there is.
    number = min(10_000, room_for_connections() * 2 // 5) if is_long() else 200
    ports = [fronts[each % len(fronts)].port for each in range(number)]

    async def is_let_in(port: int) -> bool:
        """Whether a stranger is."""
        try:
            _, writer = await come(port, "guarded.default", login="jo", passcode="a guess")
        except (EOFError, ConnectionError):
            return False
        writer.close()
        return True

    async def story() -> None:
        async with unharmed(fronts):
            theirs = await some_at_a_time(has_come_again(port, "there.default") for port in ports)
            assert nodes.statistics(1)["connections"] >= number
            await some_at_a_time(store(*client, each) for each, client in enumerate(theirs))
            # What is under way when the home dies.
            for each, (_, writer) in enumerate(theirs):
                text = str(number + each)
                writer.write(frame("SEND", text.encode(), destination="many", receipt=text, persistent="true"))
            opened.extend(front.memory_bytes for front in fronts)
            home.kill()
            ends = await asyncio.gather(*(reader.read() for reader, _ in theirs), return_exceptions=True)
            acknowledged = sum(end.count(b"RECEIPT") for end in ends if isinstance(end, bytes))
            assert all(isinstance(end, bytes | ConnectionError) for end in ends)
            for _, writer in theirs:
                writer.close()
            coming = asyncio.create_task(some_at_a_time(has_come_again(port, "there.default") for port in ports))
            strangers = [asyncio.create_task(is_let_in(port)) for port in ports[:20]]
            await asyncio.to_thread(home.start)
            theirs = await coming
            strangers += [asyncio.create_task(is_let_in(port)) for port in ports[:20]]
            assert not any(await asyncio.gather(*strangers))
            with blocking.connect(home.admin_url, timeout=30, patience=30) as admin:
                stored = admin.management().read("io.enmasse.address", f"{SPACE}.many")["messagesStored"]
            assert number + acknowledged <= stored <= 2 * number
            await some_at_a_time(store(*client, each) for each, client in enumerate(theirs))
            for _, writer in theirs:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for _, writer in theirs), return_exceptions=True)

    before = [descriptors(front) for front in fronts]
    opened: list[int] = []
    asyncio.run(story())
    until(lambda: not nodes.connections(1))
    left = [max(0, descriptors(front) - count) for front, count in zip(fronts, before, strict=True)]
    assert max(left) < 5, left
    # Python keeps what it had for the first of them, and has enough with that for those who came again.
    grown = [front.memory_bytes - memory for front, memory in zip(fronts, opened, strict=True)]
    assert max(grown) < number * 2_000 + (4 << 20), grown
    assert not any("Traceback" in front.log for front in fronts)


@pytest.mark.chance
def test_a_front_that_is_killed_while_clients_come_in_leaves_nothing_behind(
    nodes: Nodes, story_chance: random.Random
) -> None:
    _, home, front = nodes.nodes
    before = descriptors(home)

    async def comes(number: int) -> None:
        """Come in by some protocol, again and again, until the front is gone."""
        while True:
            if number % 3 == 0:
                _, writer = await come(front.port, "there.default")
                writer.close()
            elif number % 3 == 1:
                async with connect(front.url, hostname="there.default", reconnect=False) as client:
                    await client.sender("orders")
            else:
                async with MqttPeer(front.port, f"c{number}", user_name="anyone@there.default") as peer:
                    assert await peer.answer("news", b"x", 1) is not None

    async def story() -> None:
        coming = [asyncio.create_task(comes(number)) for number in range(30)]
        async with unharmed(nodes.nodes[:1]):
            await until_async(lambda: nodes.statistics(1)["connections"] > 0)
            await asyncio.sleep(story_chance.uniform(0, 0.2))  # it is to be at any moment
            front.kill()
            await asyncio.gather(*coming, return_exceptions=True)

    for _ in range(kills(3)):
        asyncio.run(story())
        until(lambda: not nodes.connections(1))
        until(lambda: not nodes.statistics(1)["halfOpen"])
        until(lambda: descriptors(home) <= before + 2)
        front.start()
    assert "Traceback" not in home.log
