"""Tokens that transactions carry from one queue to the other, while node and journal are killed.

A token is taken from one queue and put into the other by one transaction, so after every recovery each is
in exactly one of them: where the last commit that was answered has put it, or else on one side or the other.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from enmasse.client import Connection, Delivery, Message, Outcome, Receiver, Sender, TransactionError, connect
from tests.crash.crash_clients import Clients, OurClient
from tests.crash.crash_site import KILLS, Site, live, peek
from tests.support.chance import kills
from tests.support.ledger import Name, name_of
from tests.support.node_process import NodeProcess

pytestmark = [pytest.mark.slow, pytest.mark.chance]

ROUNDS = kills(1)
SIDES = ("left", "right")
TOKENS = 60
CREDIT = 5


class Tokens(Site):
    """The node, and where each token must be; in doubt it is nowhere."""

    def __init__(self, process: NodeProcess, chance: random.Random) -> None:
        super().__init__(process, chance)
        self.places: dict[Name, str | None] = {}
        self.moves = 0

    async def look(self) -> None:
        """Find every token; all clients have gone."""
        async with connect(self.process.url) as connection:
            held = await peek(self, connection, {side: side for side in SIDES}, lambda _side, _names: True)
        for side, (names, stored) in held.items():
            assert stored == len(names), f"{stored} tokens by the account of {side}, {len(names)} really"
        everything = [name for names, _ in held.values() for name in names]
        assert sorted(everything) == sorted(self.places), "tokens are missing or doubled"
        for side, (names, _) in held.items():
            wrong = [name for name in names if self.places[name] not in (side, None)]
            assert not wrong, f"{wrong} are in {side}, where no commit put them"
            self.places |= dict.fromkeys(names, side)


class Mover(OurClient):
    """Carries tokens in both directions; changes its mind now and then."""

    def __init__(self, site: Tokens) -> None:
        super().__init__()
        self.site = site

    async def work(self, connection: Connection) -> None:
        senders = {side: await connection.sender(side) for side in SIDES}
        receivers = {side: await connection.receiver(side, credit=CREDIT) for side in SIDES}
        while not self.is_stopping.is_set():
            source, target = self.site.chance.sample(SIDES, 2)
            try:
                await self._move(connection, receivers[source], senders[target], target)
            except TransactionError:
                # It is rolled back with its connection, and for no other reason.
                if not connection.is_closed:
                    raise
                return

    async def _move(self, connection: Connection, receiver: Receiver, sender: Sender, target: str) -> None:
        taken: list[Delivery] = []
        for _ in range(self.site.chance.randint(1, 3)):
            delivery = await receiver.receive(timeout=0.02)
            if delivery is not None:
                taken.append(delivery)
        if not taken:
            return
        names = [name_of(delivery.message.body) for delivery in taken]
        transaction = await connection.transaction()
        for delivery in taken:
            outcome = await sender.send(Message(delivery.message.body, durable=True), transaction=transaction)
            assert outcome == Outcome.ACCEPTED
            delivery.accept(transaction=transaction)
        if self.site.chance.random() < 0.2:
            await transaction.rollback()
            return
        self.site.places |= dict.fromkeys(names, None)
        await transaction.commit()
        self.site.places |= dict.fromkeys(names, target)
        self.site.moves += 1
        self.has_begun.set()


@pytest.mark.parametrize("kind", KILLS)
def test_what_a_transaction_takes_and_puts_is_in_exactly_one_place(
    process: NodeProcess, story_chance: random.Random, kind: str
) -> None:
    site = Tokens(process, story_chance)

    async def tell() -> None:
        await site.declare({side: {"addressType": "queue"} for side in SIDES})
        async with connect(process.url) as connection, connection.sender("left") as sender:
            for number in range(TOKENS):
                assert await sender.send(Message(f"token:{number}", durable=True)) == Outcome.ACCEPTED
                site.places["token", number] = "left"
        for _ in range(ROUNDS):
            movers = Clients([Mover(site) for _ in range(3)], process.url)
            await movers.begun()
            await asyncio.sleep(story_chance.uniform(0, 0.1))
            await KILLS[kind](site, movers)
            await site.look()

    live(site, tell)
    assert site.moves >= ROUNDS
