"""A real node under the load of real clients, while it, its journal or both are killed again and again.

After every recovery the addresses are compared with what their clients were told (``Ledger``). Each round
of a story loads, kills, recovers and looks; what was stored stays for the rounds that follow.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
import uvloop

from enmasse.client import Connection, Delivery, Message, Outcome, Receiver, Sender, UnavailableError, connect
from enmasse.client.management import Management
from enmasse.testing.ledger import Ledger, Name, name_of
from enmasse.testing.node_process import NodeProcess

if TYPE_CHECKING:
    from enmasse.testing.proton_load import ProtonConsumer, ProtonProducer

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
TOOLS = HERE.parent / "tools"
IS_CI = os.environ.get("CI") == "true"

SEED = int(os.environ.get("ENMASSE_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
STORIES = 2
"""Of each kind of kill."""
KILLS = int(os.environ.get("ENMASSE_TEST_KILLS", "9" if IS_CI else "2"))
"""In each story: 54 in all where every test tool is to be there, else a dozen."""

SPACE = "default/crash"
QUEUE, TOPIC, SUBSCRIPTIONS, STREAM, BARRIER = "orders", "news", ("news-a", "news-b"), "log", "barrier"
STORED = (QUEUE, *SUBSCRIPTIONS, STREAM)
PARTITIONS = 2

WINDOW = 20
"""Messages that a producer has on their way."""
SURE_AFTER = 50
"""Settlements after which a receiver makes sure of them."""
APPENDS = 3
"""Appends to another log, accepted one after the other: the first leaves after the settlement, and what a
log cannot write with one batch, as one of its own is on its way, is written before the next but one."""
FULL_ENOUGH = 2_000
"""Messages above which a look empties an address."""
PATIENCE_S = 60


class Site:
    """The node, its addresses and their accounts.

    Attributes:
        next: each producer's next number.
        unanswered: sequences of the stream's producer that it does not know to be stored.
    """

    def __init__(self, process: NodeProcess, chance: random.Random) -> None:
        self.process = process
        self.chance = chance
        self.ledgers = {address: Ledger(address) for address in STORED}
        self.next = dict.fromkeys(("ours", "news", "proton", "rhea", "appender", "end"), 0)
        self.unanswered: list[int] = []

    def number(self, producer: str) -> int:
        self.next[producer] += 1
        return self.next[producer]

    async def declare(self) -> None:
        async with connect(self.process.admin_url) as connection:
            management = Management(connection)
            await management.create("io.enmasse.space", SPACE, {"spaceType": "standard", "authentication": "none"})
            addresses: tuple[tuple[str, str, dict[str, Any]], ...] = (
                (QUEUE, "queue", {}),
                (TOPIC, "topic", {}),
                *((name, "subscription", {"topic": TOPIC}) for name in SUBSCRIPTIONS),
                (STREAM, "stream", {"partitions": PARTITIONS}),
                (BARRIER, "stream", {}),
            )
            for address, kind, more in addresses:
                attributes = {"space": SPACE, "address": address, "addressType": kind, **more}
                await management.create("io.enmasse.address", f"default/{address}", attributes)

    async def journal_pid(self) -> int:
        async with connect(self.process.admin_url) as connection:
            found = await Management(connection).query("io.enmasse.statistics", ["journalPid"])
            return int(found[0]["journalPid"] or 0)

    async def stored(self, address: str) -> int:
        async with connect(self.process.admin_url) as connection:
            entity = await Management(connection).read("io.enmasse.address", f"default/{address}")
            return int(entity["messagesStored"])

    def check(self) -> None:
        problems = [problem for ledger in self.ledgers.values() for problem in ledger.problems]
        assert not problems, "\n".join(problems)
        assert "Traceback" not in self.process.log, self.process.log


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, what
        await asyncio.sleep(0.005)


async def make_sure(barrier: Sender) -> bool:
    """Whether everything that this connection settled before is committed now."""
    for _ in range(APPENDS):
        if await barrier.send(Message(b"barrier")) != Outcome.ACCEPTED:
            return False
    return True


# Clients


class Flag(Protocol):
    def is_set(self) -> bool: ...
    def set(self) -> None: ...


class Client(Protocol):
    """At work until it is stopped or the node dies."""

    has_begun: Flag
    is_stopping: Flag

    async def run(self, url: str) -> None: ...


class OurClient:
    """Some links of one connection of our own client."""

    def __init__(self) -> None:
        self.has_begun: Flag = asyncio.Event()
        self.is_stopping: Flag = asyncio.Event()
        self.accepted: set[Name] = set()

    async def run(self, url: str) -> None:
        with contextlib.suppress(UnavailableError):
            async with connect(url, reconnect=False) as connection:
                await self.work(connection)

    async def work(self, connection: Connection) -> None:
        raise NotImplementedError

    async def produce(self, sender: Sender, messages: Iterator[tuple[Name, Message]], *ledgers: Ledger) -> None:
        """Keep some messages on their way, and put down what becomes of each."""

        def answer(name: Name, future: asyncio.Future[Outcome]) -> None:
            if future.cancelled() or future.exception() is not None:
                return
            is_accepted = future.result() == Outcome.ACCEPTED
            for ledger in ledgers:
                (ledger.accepted if is_accepted else ledger.refused)(name)
            if is_accepted:
                self.accepted.add(name)
                self.has_begun.set()

        def send(name: Name, message: Message) -> asyncio.Future[Outcome]:
            for ledger in ledgers:
                ledger.offered(name)
            future = sender.send_nowait(message)
            future.add_done_callback(lambda future: answer(name, future))
            return future

        under_way: deque[asyncio.Future[Outcome]] = deque()
        for name, message in messages:
            under_way.append(send(name, message))
            if len(under_way) >= WINDOW:
                await under_way.popleft()
            if self.is_stopping.is_set():
                break
        while under_way:
            await under_way.popleft()


class Producer(OurClient):
    """Sends numbered durable messages to a queue or topic."""

    def __init__(self, site: Site, name: str, address: str, *stored: str) -> None:
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

    def __init__(self, site: Site) -> None:
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

    def __init__(self, site: Site, address: str, *, returns: bool) -> None:
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

    def __init__(self, site: Site) -> None:
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
            str(HERE / "rhea_producer.js"),
            json.dumps(asked),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "NODE_PATH": str(TOOLS / "node_modules")},
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


class Load:
    """All clients of one round."""

    def __init__(self, site: Site) -> None:
        from enmasse.testing.proton_load import ProtonConsumer, ProtonProducer

        url, ledgers = site.process.url, site.ledgers
        self.site = site
        news = [ledgers[name] for name in SUBSCRIPTIONS]
        self.proton = ProtonProducer(url, TOPIC, news, "proton", site.next["proton"])
        taking = ProtonConsumer(url, QUEUE, ledgers[QUEUE], BARRIER, APPENDS)
        self.clients: list[Client] = [
            Producer(site, "ours", QUEUE, QUEUE),
            Producer(site, "news", TOPIC, *SUBSCRIPTIONS),
            Appender(site),
            Consumer(site, QUEUE, returns=True),
            Consumer(site, SUBSCRIPTIONS[0], returns=False),
            ProtonClient(self.proton),
            ProtonClient(taking),
            RheaProducer(site),
        ]
        self.tasks = [asyncio.create_task(client.run(url)) for client in self.clients]

    async def begun(self) -> None:
        """Return when every client has done something."""
        await until(lambda: all(client.has_begun.is_set() for client in self.clients), "some client does not begin")
        assert not [task for task in self.tasks if task.done()], "some client ended before anything was killed"

    async def end(self) -> None:
        """Have everybody stop, and wait until they have, be it in order or not."""
        for client in self.clients:
            client.is_stopping.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self.tasks)
        self.site.next["proton"] = self.proton.next


# Kills and looks


async def kill_node(site: Site, load: Load) -> None:
    await asyncio.to_thread(site.process.kill)
    await load.end()
    await asyncio.to_thread(site.process.start)


async def kill_both(site: Site, load: Load) -> None:
    journal = await site.journal_pid()
    await asyncio.sleep(site.chance.uniform(0, 0.05))
    if site.chance.random() < 0.5:
        os.kill(journal, signal.SIGKILL)
        await asyncio.to_thread(site.process.kill)
    else:
        os.kill(site.process.pid, signal.SIGKILL)
        os.kill(journal, signal.SIGKILL)
        await asyncio.to_thread(site.process.kill)
    await load.end()
    await asyncio.to_thread(site.process.start)


async def kill_journal(site: Site, load: Load) -> None:
    """Its clients notice nothing but a pause, so whatever they send is answered in the end."""
    journal = await site.journal_pid()
    os.kill(journal, signal.SIGKILL)
    before = {address: ledger.accepted_count for address, ledger in site.ledgers.items()}
    await until(
        lambda: all(ledger.accepted_count > before[address] + WINDOW for address, ledger in site.ledgers.items()),
        "messages are not accepted after the journal was killed",
    )
    assert await site.journal_pid() not in (0, journal)
    await load.end()
    assert not [address for address, ledger in site.ledgers.items() if ledger.unsure()]


async def look(site: Site) -> None:
    """Compare everything that is stored with the accounts; each client has gone."""
    async with connect(site.process.url) as connection:
        async with connection.sender(BARRIER) as barrier:
            for target, addresses in ((QUEUE, (QUEUE,)), (TOPIC, SUBSCRIPTIONS)):
                stored = {address: await site.stored(address) for address in addresses}
                async with connection.sender(target) as sender:
                    assert await sender.send(Message(b"end:0")) == Outcome.ACCEPTED
                for address in addresses:
                    await look_at_queue(site, connection, barrier, address, stored[address])
        await look_at_stream(site, connection)


async def look_at_queue(site: Site, connection: Connection, barrier: Sender, address: str, stored: int) -> None:
    ledger = site.ledgers[address]
    async with connection.receiver(address, credit=2 * stored + WINDOW) as receiver:
        deliveries = [delivery async for delivery in up_to_the_end(receiver)]
        found = [name_of(delivery.message.body) for delivery in deliveries]
        ledger.look([found], stored)
        is_emptied = len(found) > FULL_ENOUGH or site.chance.random() < 0.2
        for delivery in deliveries:
            if is_emptied:
                delivery.accept()
            else:
                delivery.release()
    if is_emptied:
        for name in found:
            ledger.taken(name)
        assert await make_sure(barrier)
        ledger.sure(found)
    assert await site.stored(address) == (0 if is_emptied else stored)


async def up_to_the_end(receiver: Receiver) -> Any:
    """What is stored, up to the message that was sent last."""
    while True:
        delivery = await receiver.receive(timeout=PATIENCE_S)
        assert delivery is not None, f"the last message does not come from {receiver}"
        if delivery.message.body == b"end:0":
            delivery.accept()
            return
        yield delivery


async def look_at_stream(site: Site, connection: Connection) -> None:
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


# Stories


@pytest.fixture
def tools() -> None:
    """The foreign clients are there."""
    for is_there, what, how in (
        (find_spec("proton") is not None, "python-qpid-proton", "install a C compiler, then run `make clean setup`"),
        (
            shutil.which("node") is not None and (TOOLS / "node_modules/rhea").is_dir(),
            "rhea",
            "run `make test-tools`",
        ),
    ):
        if not is_there:
            (pytest.fail if IS_CI else pytest.skip)(f"{what} is missing: {how}")


KINDS = {"node": kill_node, "journal": kill_journal, "both": kill_both}


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("story", range(STORIES))
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_killed_nothing_is_lost_and_nothing_settled_comes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, story: int
) -> None:
    with capsys.disabled():
        print(f"[ENMASSE_TEST_SEED={SEED}]", end=" ", flush=True)  # noqa: T201
    chance = random.Random(f"{SEED} {kind} {story}")

    async def live() -> None:
        site = Site(process, chance)
        await site.declare()
        for _ in range(KILLS):
            load = Load(site)
            await load.begun()
            await asyncio.sleep(chance.uniform(0, 0.2))
            await KINDS[kind](site, load)
            await look(site)
            site.check()

    async def live_or_end() -> None:
        try:
            await live()
        except BaseException:
            # Clients in threads of their own end with their node.
            process.kill()
            raise

    with NodeProcess(tmp_path) as process:
        uvloop.run(live_or_end())
