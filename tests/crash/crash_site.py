"""What the stories of crashes have in common: the node, how it is killed, and looks at what it stores."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import uvloop

from enmasse.client import Connection, Message, Outcome, Receiver, Sender, connect
from enmasse.client.management import Management
from tests.support.ledger import Name, name_of
from tests.support.node_process import NodeProcess

__all__ = ["BARRIER", "KILLS", "WINDOW", "Load", "Site", "live", "make_sure", "peek"]

SPACE = "default/crash"
BARRIER = "barrier"
"""A stream that nobody reads: what it accepts is committed."""
END = b"end:0"

WINDOW = 20
"""Messages that a client has on their way."""
APPENDS = 3
"""Appends to another log, accepted one after the other: the first leaves after the settlement, and what a
log cannot write with one batch, as one of its own is on its way, is written before the next but one."""
PATIENCE_S = 60


class Load(Protocol):
    """All clients of one round."""

    async def begun(self) -> None:
        """Return when every client has done something."""

    async def end(self) -> None:
        """Have everybody stop, and wait until they have, be it in order or not."""

    async def moved(self) -> None:
        """Return when every client has done something more."""


class Site:
    """A node with addresses.

    Args:
        process: the node.
        chance: what happens when.
    """

    def __init__(self, process: NodeProcess, chance: random.Random) -> None:
        self.process = process
        self.chance = chance

    async def declare(self, addresses: Mapping[str, dict[str, Any]]) -> None:
        """Make the space and its addresses, a topic before its subscriptions."""
        async with connect(self.process.admin_url) as connection:
            management = Management(connection)
            await management.create("io.enmasse.space", SPACE, {"spaceType": "standard", "authentication": "none"})
            for address, attributes in (*addresses.items(), (BARRIER, {"addressType": "stream"})):
                everything = {"space": SPACE, "address": address, **attributes}
                await management.create("io.enmasse.address", f"default/{address}", everything)

    async def journal_pid(self) -> int:
        async with connect(self.process.admin_url) as connection:
            found = await Management(connection).query("io.enmasse.statistics", ["journalPid"])
            return int(found[0]["journalPid"] or 0)

    async def stored(self, address: str) -> int:
        async with connect(self.process.admin_url) as connection:
            entity = await Management(connection).read("io.enmasse.address", f"default/{address}")
            return int(entity["messagesStored"])


async def make_sure(barrier: Sender) -> bool:
    """Whether everything that this connection settled before is committed now."""
    for _ in range(APPENDS):
        if await barrier.send(Message(b"barrier")) != Outcome.ACCEPTED:
            return False
    return True


# Kills


async def _kill_node(site: Site, load: Load) -> None:
    await asyncio.to_thread(site.process.kill)
    await load.end()
    await asyncio.to_thread(site.process.start)


async def _kill_both(site: Site, load: Load) -> None:
    journal = await site.journal_pid()
    await asyncio.sleep(site.chance.uniform(0, 0.05))
    first, second = site.chance.choice(((journal, site.process.pid), (site.process.pid, journal)))
    os.kill(first, signal.SIGKILL)
    os.kill(second, signal.SIGKILL)
    await asyncio.to_thread(site.process.kill)
    await load.end()
    await asyncio.to_thread(site.process.start)


async def _kill_journal(site: Site, load: Load) -> None:
    """Clients notice nothing but a pause, so whatever they send is answered in the end."""
    journal = await site.journal_pid()
    os.kill(journal, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_S):
        while await site.journal_pid() in (0, journal):
            await asyncio.sleep(0.01)
    await load.moved()
    await load.end()


KILLS: dict[str, Callable[[Site, Load], Awaitable[None]]] = {
    "node": _kill_node,
    "journal": _kill_journal,
    "both": _kill_both,
}


def live(site: Site, story: Callable[[], Awaitable[None]]) -> None:
    """Run a story to its end, be it a bad one."""

    async def live_or_end() -> None:
        try:
            await story()
        except BaseException:
            # Clients in threads of their own end with their node.
            site.process.kill()
            raise

    uvloop.run(live_or_end())
    assert "Traceback" not in site.process.log, site.process.log


# Looks


async def peek(
    site: Site, connection: Connection, addresses: Mapping[str, str], keep: Callable[[str, list[Name]], bool]
) -> dict[str, tuple[list[Name], int]]:
    """What addresses hold, in order, and how many that are by the node's account.

    Args:
        site: where; no client but this one may be there.
        connection: to what.
        addresses: where to receive from, and where to send to for that.
        keep: told what is there, says whether to leave it there or to take it.
    """
    stored = {source: await site.stored(source) for source in addresses}
    for target in dict.fromkeys(addresses.values()):
        async with connection.sender(target) as sender:
            assert await sender.send(Message(END)) == Outcome.ACCEPTED
    found: dict[str, tuple[list[Name], int]] = {}
    for source in addresses:
        async with connection.receiver(source, credit=2 * stored[source] + WINDOW) as receiver:
            deliveries = [delivery async for delivery in _up_to_the_end(receiver)]
            names = [name_of(delivery.message.body) for delivery in deliveries]
            found[source] = (names, stored[source])
            is_kept = keep(source, names)
            for delivery in deliveries:
                (delivery.release if is_kept else delivery.accept)()
        async with connection.sender(BARRIER) as barrier:
            assert await make_sure(barrier)
        assert await site.stored(source) == (len(names) if is_kept else 0)
    return found


async def _up_to_the_end(receiver: Receiver) -> Any:
    """What is stored, up to the message that was sent last."""
    while True:
        delivery = await receiver.receive(timeout=PATIENCE_S)
        assert delivery is not None, f"the last message does not come from {receiver}"
        if delivery.message.body == END:
            delivery.accept()
            return
        yield delivery
