"""A real node under the load of real clients, while it, its journal or both are killed again and again.

After every recovery the addresses are compared with what their clients were told (``Ledger``). Each round
of a story loads, kills, recovers and looks; what was stored stays for the rounds that follow.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.client import Connection, Delivery, Message, connect
from tests.crash.crash_clients import Client, Clients, Flag, OurClient
from tests.crash.crash_site import BARRIER, KILLS, PATIENCE_S, WINDOW, Site, live, make_sure, peek
from tests.support.chance import kills
from tests.support.ledger import Ledger, Name, name_of
from tests.support.node_process import NodeProcess

if TYPE_CHECKING:
    from tests.support.proton_load import ProtonConsumer, ProtonProducer

pytestmark = [pytest.mark.slow, pytest.mark.chance]

TESTS = Path(__file__).parents[1]
RHEA = TESTS / "support" / "rhea_producer.js"

ROUNDS = kills(2)
"""Kills in each story."""

QUEUE, TOPIC, SUBSCRIPTIONS, STREAM = "orders", "news", ("news-a", "news-b"), "log"
STORED = (QUEUE, *SUBSCRIPTIONS, STREAM)
PARTITIONS = 2
ADDRESSES: dict[str, dict[str, Any]] = {
    QUEUE: {"addressType": "queue"},
    TOPIC: {"addressType": "topic"},
    **{name: {"addressType": "subscription", "topic": TOPIC} for name in SUBSCRIPTIONS},
    STREAM: {"addressType": "stream", "partitions": PARTITIONS},
}

SURE_AFTER = 50
"""Settlements after which a receiver makes sure of them."""
FULL_ENOUGH = 2_000
"""Messages above which a look empties an address."""


class Accounts(Site):
    """The node, and what its clients know of it.

    Attributes:
        ledgers: by address.
        next: each producer's next number.
        unanswered: sequences of the stream's producer that it does not know to be stored.
    """

    def __init__(self, process: NodeProcess, chance: random.Random) -> None:
        super().__init__(process, chance)
        self.ledgers = {address: Ledger(address) for address in STORED}
        self.next = dict.fromkeys(("ours", "news", "proton", "rhea", "appender"), 0)
        self.unanswered: list[int] = []

    def number(self, producer: str) -> int:
        self.next[producer] += 1
        return self.next[producer]

    def check(self) -> None:
        problems = [problem for ledger in self.ledgers.values() for problem in ledger.problems]
        assert not problems, "\n".join(problems)


# Clients


class Producer(OurClient):
    """Sends numbered durable messages to a queue or topic."""

    def __init__(self, site: Accounts, name: str, address: str, *stored: str) -> None:
        super().__init__()
        self.site, self.name, self.address = site, name, address
        self.ledgers = [site.ledgers[queue] for queue in stored]

    def messages(self) -> Iterator[tuple[Name, Message]]:
        while True:
            name = (self.name, self.site.number(self.name))
            yield name, Message(b"%s:%d" % (name[0].encode(), name[1]), durable=True)

    async def work(self, connection: Connection) -> None:
        async with connection.sender(self.address) as sender:
            await self.produce(sender, self.messages(), *self.ledgers)


class Appender(OurClient):
    """Appends with an id and sequences; what has no answer is sent again in the next round."""

    PRODUCER = "appender"

    def __init__(self, site: Accounts) -> None:
        super().__init__()
        self.site = site

    def messages(self) -> Iterator[tuple[Name, Message]]:
        for number in list(self.site.unanswered):
            yield self.message(number)
        while True:
            self.site.unanswered.append(self.site.number(self.PRODUCER))
            yield self.message(self.site.unanswered[-1])

    def message(self, number: int) -> tuple[Name, Message]:
        name = (self.PRODUCER, number)
        annotations = {"x-opt-sequence": number}
        return name, Message(f"{name[0]}:{number}", subject=f"key-{number % 7}", annotations=annotations)

    async def work(self, connection: Connection) -> None:
        try:
            async with connection.sender(STREAM, properties={"enmasse:producer": self.PRODUCER}) as sender:
                await self.produce(sender, self.messages(), self.site.ledgers[STREAM])
        finally:
            known = {number for _, number in self.accepted}
            self.site.unanswered = [number for number in self.site.unanswered if number not in known]


class Consumer(OurClient):
    """Receives, accepts, and now and then makes sure of what it accepted.

    Args:
        site: where.
        address: what to receive from.
        returns: whether to give some back, and so to be given messages out of order.
    """

    def __init__(self, site: Accounts, address: str, *, returns: bool) -> None:
        super().__init__()
        self.address = address
        self.ledger = site.ledgers[address]
        self.chance = site.chance
        self.returns = returns

    async def work(self, connection: Connection) -> None:
        recent: list[Name] = []
        last: dict[str, int] = {}
        async with (
            connection.sender(BARRIER) as barrier,
            connection.receiver(self.address, credit=WINDOW) as receiver,
        ):
            while not self.is_stopping.is_set():
                delivery = await receiver.receive(timeout=0.02)
                if delivery is None:
                    continue
                name = name_of(delivery.message.body)
                self.ledger.delivered(name)
                if self.returns and self.chance.random() < 0.1:
                    delivery.modify(failed=True)
                    continue
                if not self.returns and last.get(name[0], -1) >= name[1]:
                    self.ledger.problems.append(f"{self.address}: {name} was delivered after {last[name[0]]}")
                last[name[0]] = name[1]
                self.ledger.taken(name)
                delivery.accept()
                recent.append(name)
                self.has_begun.set()
                if len(recent) >= SURE_AFTER and await make_sure(barrier):
                    self.ledger.sure(recent)
                    recent = []
            if await make_sure(barrier):
                self.ledger.sure(recent)


class ProtonClient:
    """A client of python-qpid-proton, in a thread of its own."""

    def __init__(self, client: ProtonProducer | ProtonConsumer) -> None:
        self.client = client
        self.has_begun: Flag = client.has_begun
        self.is_stopping: Flag = client.is_stopping

    async def run(self, url: str) -> None:
        await asyncio.to_thread(self.client.run)


class RheaProducer:
    """A program of rhea, in a process of its own."""

    def __init__(self, site: Accounts) -> None:
        self.site = site
        self.has_begun: Flag = asyncio.Event()
        self.is_stopping: Flag = asyncio.Event()

    async def run(self, url: str) -> None:
        asked = {
            "port": self.site.process.port,
            "address": QUEUE,
            "name": "rhea",
            "first": self.site.next["rhea"],
            "window": WINDOW,
        }
        process = await asyncio.create_subprocess_exec(
            "node",
            str(RHEA),
            json.dumps(asked),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "NODE_PATH": str(TESTS / "tools" / "node_modules")},
        )
        stopping = asyncio.create_task(self._stop(process))
        assert process.stdout is not None
        async for line in process.stdout:
            self._hear(*line.split())
        stopping.cancel()
        assert await process.wait() == 0

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        while not self.is_stopping.is_set():
            await asyncio.sleep(0.01)
        process.stdin.write(b"stop\n")

    def _hear(self, letter: bytes, number: bytes) -> None:
        ledger = self.site.ledgers[QUEUE]
        name = ("rhea", int(number))
        if letter == b"s":
            self.site.next["rhea"] = name[1] + 1
            ledger.offered(name)
        elif letter == b"a":
            ledger.accepted(name)
            self.has_begun.set()
        else:
            ledger.refused(name)


def start(site: Accounts) -> tuple[Clients, ProtonProducer]:
    """All clients of one round, and the one whose last number is asked for afterwards."""
    from tests.support.proton_load import ProtonConsumer, ProtonProducer

    url, ledgers = site.process.url, site.ledgers
    sending = ProtonProducer(url, TOPIC, [ledgers[name] for name in SUBSCRIPTIONS], "proton", site.next["proton"])
    taking = ProtonConsumer(url, QUEUE, ledgers[QUEUE])
    clients: list[Client] = [
        Producer(site, "ours", QUEUE, QUEUE),
        Producer(site, "news", TOPIC, *SUBSCRIPTIONS),
        Appender(site),
        Consumer(site, QUEUE, returns=True),
        Consumer(site, SUBSCRIPTIONS[0], returns=False),
        ProtonClient(sending),
        ProtonClient(taking),
        RheaProducer(site),
    ]
    return Clients(clients, url), sending


# Looks


async def look(site: Accounts) -> None:
    """Compare everything that is stored with the accounts; every client has gone."""
    emptied: dict[str, list[Name]] = {}

    def keep(address: str, names: list[Name]) -> bool:
        if len(names) > FULL_ENOUGH or site.chance.random() < 0.2:
            emptied[address] = names
        return address not in emptied

    async with connect(site.process.url) as connection:
        held = await peek(site, connection, {QUEUE: QUEUE, **dict.fromkeys(SUBSCRIPTIONS, TOPIC)}, keep)
        for address, (names, stored) in held.items():
            site.ledgers[address].look([names], stored)
        for address, names in emptied.items():
            for name in names:
                site.ledgers[address].taken(name)
            site.ledgers[address].sure(names)
        await look_at_stream(site, connection)


async def look_at_stream(site: Accounts, connection: Connection) -> None:
    stored = await site.stored(STREAM)
    runs: list[list[Name]] = [[] for _ in range(PARTITIONS)]
    async with connection.receiver(STREAM, filters={"enmasse:start": "first"}) as receiver:
        for _ in range(stored):
            delivery: Delivery | None = await receiver.receive(timeout=PATIENCE_S)
            assert delivery is not None, f"{stored} messages are stored in {STREAM}, {sum(map(len, runs))} came"
            annotations = delivery.message.annotations
            run = runs[annotations["x-opt-partition"]]
            assert annotations["x-opt-offset"] == len(run)
            run.append(name_of(delivery.message.body))
    site.ledgers[STREAM].look(runs, stored)


@pytest.mark.usefixtures("foreign_clients")
@pytest.mark.parametrize("kind", KILLS)
def test_whatever_is_killed_nothing_is_lost_and_nothing_settled_comes_back(
    process: NodeProcess, story_chance: random.Random, kind: str
) -> None:
    site = Accounts(process, story_chance)

    async def tell() -> None:
        await site.declare(ADDRESSES)
        for _ in range(ROUNDS):
            clients, proton = start(site)
            await clients.begun()
            await asyncio.sleep(story_chance.uniform(0, 0.1))
            await KILLS[kind](site, clients)
            site.next["proton"] = proton.next
            if kind == "journal":
                assert not [address for address, ledger in site.ledgers.items() if ledger.unsure()]
            await look(site)
            site.check()

    live(site, tell)
