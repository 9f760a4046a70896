"""Two clients that ask and answer: nothing stalls, nothing is lost, and every reply finds its request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from enmasse.client import Connection, Message, Outcome, blocking, connect
from enmasse.message.composites import decode_composite
from enmasse.wire.amqp.framing import AMQP_HEADER, amqp_frame
from enmasse.wire.amqp.performatives import Open
from tests.support.chance import examples
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

ROUND_TRIPS = examples(1_000)
AT_ONCE = 400
"""Four times the window of the requester, so that replies would come faster than it grants."""

DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("rpc")) as node:
        with blocking.connect(node.admin_url, timeout=30, patience=30) as admin:
            management = admin.management()
            management.create("io.enmasse.space", "default/shop", {"spaceType": "standard", "authentication": "none"})
            for address, kind in {"double": "anycast", "jobs": "queue"}.items():
                management.create(
                    "io.enmasse.address",
                    f"default/shop.{address}",
                    {"space": "default/shop", "address": address, "addressType": kind},
                )
        yield node


async def serve(
    connection: Connection, address: str, ready: asyncio.Event, answered: list[Outcome], credit: int = 100
) -> None:
    """Answer each number with its double, without ever waiting for an outcome."""
    async with connection.receiver(address, credit=credit) as requests, connection.sender(None) as replies:
        ready.set()
        async for delivery in requests:
            asked = delivery.message
            reply = Message(asked.body * 2, to=asked.reply_to, correlation_id=asked.message_id)
            await replies.wait_for_credit()
            replies.send_nowait(reply).add_done_callback(lambda future: answered.append(future.result()))
            delivery.accept()


async def ask(connection: Connection, address: str, numbers: Iterator[int]) -> int:
    """Ask for one double after the other; how many were right."""
    right = 0
    for number in numbers:
        reply = await connection.request(address, Message(number))
        right += reply.body == 2 * number
    return right


@pytest.mark.chance
@pytest.mark.parametrize(("address", "round_trips"), [("double", ROUND_TRIPS), ("jobs", ROUND_TRIPS // 10)])
def test_many_round_trips_at_once_all_come_back(node: NodeProcess, address: str, round_trips: int) -> None:
    async def body() -> tuple[int, list[Outcome]]:
        answered: list[Outcome] = []
        async with asyncio.timeout(DEADLINE_S), connect(node.url) as asking, connect(node.url) as answering:
            ready = asyncio.Event()
            serving = asyncio.create_task(serve(answering, address, ready, answered))
            await ready.wait()
            numbers = iter(range(round_trips))
            found = await asyncio.gather(*(ask(asking, address, numbers) for _ in range(AT_ONCE)))
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        return sum(found), answered

    right, answered = asyncio.run(body())
    assert right == round_trips
    assert {str(outcome) for outcome in answered} == {"accepted"}


@pytest.mark.parametrize("credit", [1, 100])
def test_many_who_ask_now_and_then_share_one_who_answers(node: NodeProcess, credit: int) -> None:
    async def body() -> int:
        async with AsyncExitStack() as stack, asyncio.timeout(DEADLINE_S):
            connections = [await stack.enter_async_context(connect(node.url)) for _ in range(9)]
            answering, *asking = connections
            ready = asyncio.Event()
            serving = asyncio.create_task(serve(answering, "double", ready, [], credit=credit))
            await ready.wait()
            found = await asyncio.gather(*(ask(connection, "double", iter(range(50))) for connection in asking))
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        return sum(found)

    # A request that is released because its sender's credit was called in while it was on its way is sent again.
    assert asyncio.run(body()) == 8 * 50


def test_a_requester_that_has_gone_is_told_to_the_one_who_answers(node: NodeProcess, tmp_path: Path) -> None:
    async def body() -> Outcome:
        async with asyncio.timeout(DEADLINE_S), connect(node.url) as asking, connect(node.url) as answering:
            async with asking.receiver(dynamic=True) as replies:
                gone = replies.address
            sender = await answering.sender(None)
            return await sender.send(Message("too late", to=gone))

    outcome = asyncio.run(body())
    assert (outcome.name, outcome.condition) == ("rejected", "amqp:not-found")


def test_the_node_offers_the_anonymous_relay(node: NodeProcess) -> None:
    with socket.create_connection(("127.0.0.1", node.port), timeout=30) as peer:
        peer.sendall(AMQP_HEADER + amqp_frame(0, Open("raw")))
        heard = b""
        while len(heard) < 12 or len(heard) < 8 + int.from_bytes(heard[8:12], "big"):
            part = peer.recv(4_096)
            assert part
            heard += part
    assert heard[:8] == AMQP_HEADER
    answer, _ = decode_composite(heard, 16, len(heard))
    assert isinstance(answer, Open)
    assert "ANONYMOUS-RELAY" in (answer.offered_capabilities or ())
