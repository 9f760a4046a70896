"""A message that kills whoever has it, the node too, ends as a dead letter; what it took along is marked."""

from __future__ import annotations

import asyncio
import os
import random
import signal

import pytest

from enmasse.client import Connection, Delivery, Message, Outcome, connect
from tests.crash.crash_site import BARRIER, Site, live, make_sure
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

ATTEMPTS = 3


async def receive(connection: Connection, address: str, count: int) -> list[Delivery]:
    receiver = await connection.receiver(address, credit=count)
    deliveries = [await receiver.receive(timeout=60) for _ in range(count)]
    return [delivery for delivery in deliveries if delivery is not None]


async def lose_node(site: Site, *, with_journal: bool) -> None:
    """Kill the node, at once with its journal or alone, and start another."""
    if with_journal:
        os.kill(await site.journal_pid(), signal.SIGKILL)
    await asyncio.to_thread(site.process.kill)
    await asyncio.to_thread(site.process.start)


@pytest.mark.parametrize("with_journal", [False, True], ids=["node", "both"])
def test_a_message_that_kills_the_node_becomes_a_dead_letter(
    process: NodeProcess, story_chance: random.Random, with_journal: bool
) -> None:
    site = Site(process, story_chance)

    async def tell() -> None:
        await site.declare(
            {
                "dead": {"addressType": "deadletter"},
                "orders": {"addressType": "queue", "maxAttempts": ATTEMPTS, "deadletter": "dead"},
            }
        )
        async with connect(process.url) as connection, connection.sender("orders") as sender:
            assert await sender.send(Message("poison", durable=True)) == Outcome.ACCEPTED
        for attempt in range(ATTEMPTS):
            async with connect(process.url, reconnect=False) as connection:
                (poison,) = await receive(connection, "orders", 1)
                assert poison.message.body == "poison"
                assert poison.message.delivery_count == attempt
                if not attempt:
                    # Nobody waits for the first mark; all that follow were on disk before the message came.
                    async with connection.sender(BARRIER) as barrier:
                        assert await make_sure(barrier)
                await lose_node(site, with_journal=with_journal)
        async with connect(process.url) as connection:
            orders = await connection.receiver("orders")
            (letter,) = await receive(connection, "dead", 1)
            assert letter.message.body == "poison"
            assert letter.message.annotations["x-opt-dead-letter-reason"] == "attempts"
            assert letter.message.annotations["x-opt-delivery-count"] == ATTEMPTS
            assert await orders.receive(timeout=0) is None
            await letter.accept()

    live(site, tell)


def test_what_an_orderly_stop_finds_with_receivers_counts_once(
    process: NodeProcess, story_chance: random.Random
) -> None:
    site = Site(process, story_chance)

    async def tell() -> None:
        await site.declare({"orders": {"addressType": "queue"}})
        async with connect(process.url, reconnect=False) as connection:
            async with connection.sender("orders") as sender:
                assert await sender.send(Message("m", durable=True)) == Outcome.ACCEPTED
            await receive(connection, "orders", 1)
            await asyncio.to_thread(process.stop)
        await asyncio.to_thread(process.start)
        async with connect(process.url) as connection:
            (again,) = await receive(connection, "orders", 1)
            assert again.message.delivery_count == 1

    live(site, tell)
