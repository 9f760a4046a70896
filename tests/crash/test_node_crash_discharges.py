"""Transactions over two queues and a stream, while node and journal are killed: all of each or nothing.

Every transaction sends its number to all three. So after every recovery the three hold the same numbers: those
whose commit was answered, none that were rolled back or still open, and any of those in between.
"""

from __future__ import annotations

import asyncio
import random
from itertools import count
from typing import Any

import pytest

from enmasse.client import Connection, Message, Outcome, Receiver, TransactionError, UnavailableError, connect
from tests.crash.crash_clients import Clients, OurClient
from tests.crash.crash_site import KILLS, Site, live
from tests.support.chance import kills
from tests.support.node_process import NodeProcess

pytestmark = [pytest.mark.slow, pytest.mark.chance]

ROUNDS = kills(1)
ADDRESSES: dict[str, dict[str, Any]] = {
    "first": {"addressType": "queue"},
    "second": {"addressType": "queue"},
    "log": {"addressType": "stream", "partitions": 2},
}


class Sums(Site):
    """The node, and what is known of each transaction."""

    def __init__(self, process: NodeProcess, chance: random.Random) -> None:
        super().__init__(process, chance)
        self.numbers = count()
        self.committed: set[int] = set()
        self.doubtful: set[int] = set()
        self.let_go: set[int] = set()
        """Rolled back, or never discharged."""

    async def look(self) -> None:
        """Compare what the three hold; all clients have gone."""
        async with connect(self.process.url) as connection:
            held = {}
            for name in ADDRESSES:
                stored = await self.stored(name)
                filters = {"enmasse:start": "first"} if name == "log" else None
                async with connection.receiver(name, browse=name != "log", filters=filters) as receiver:
                    held[name] = [await _number(receiver) for _ in range(stored)]
        for name, numbers in held.items():
            assert len(numbers) == len(set(numbers)), f"{name} holds something twice"
        sets = {name: set(numbers) for name, numbers in held.items()}
        assert sets["first"] == sets["second"] == sets["log"], "half a transaction is stored"
        found = sets["first"]
        assert self.committed <= found, "a commit that was answered is gone"
        assert not self.let_go & found, "what was never committed is stored"
        assert found <= self.committed | self.doubtful
        self.committed |= self.doubtful & found
        self.let_go |= self.doubtful - found
        self.doubtful.clear()


async def _number(receiver: Receiver) -> int:
    delivery = await receiver.receive(timeout=30)
    assert delivery is not None, f"less is stored than {receiver} should give"
    await delivery.accept()
    return int(delivery.message.body)


class Adder(OurClient):
    """Sends numbers to all three, one transaction after the other, now and then without an end."""

    def __init__(self, site: Sums) -> None:
        super().__init__()
        self.site = site

    async def work(self, connection: Connection) -> None:
        senders = [await connection.sender(name) for name in ADDRESSES]
        while not self.is_stopping.is_set():
            number = next(self.site.numbers)
            self.site.let_go.add(number)
            transaction = await connection.transaction()
            try:
                for sender in senders:
                    message = Message(number, durable=True, subject=str(number))
                    assert await sender.send(message, transaction=transaction) == Outcome.ACCEPTED
                chance = self.site.chance.random()
                if chance < 0.1:
                    await transaction.rollback()
                elif chance < 0.98:
                    self.site.let_go.discard(number)
                    self.site.doubtful.add(number)
                    await transaction.commit()
                    self.site.doubtful.discard(number)
                    self.site.committed.add(number)
                    self.has_begun.set()
            except TransactionError as error:
                # It is rolled back with its connection, and for no other reason.
                if not connection.is_closed:
                    raise
                raise UnavailableError("the connection is lost") from error


@pytest.mark.parametrize("kind", KILLS)
def test_a_transaction_is_in_all_places_or_in_none(
    process: NodeProcess, story_chance: random.Random, kind: str
) -> None:
    site = Sums(process, story_chance)

    async def tell() -> None:
        await site.declare(ADDRESSES)
        for _ in range(ROUNDS):
            adders = Clients([Adder(site) for _ in range(4)], process.url)
            await adders.begun()
            await asyncio.sleep(story_chance.uniform(0, 0.2))
            await KILLS[kind](site, adders)
            await site.look()

    live(site, tell)
    assert len(site.committed) >= ROUNDS
