"""What is known of when devices were seen: by whom is told, and after a restart by what is kept."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.client import Message, Outcome
from enmasse.control.projects.commands import CommandDispatcher
from enmasse.iot.command_store import CommandStore
from enmasse.iot.lookups import Lookups
from enmasse.iot.registry import DeviceRegistry
from enmasse.iot.store import DeviceStore
from tests.support.polling import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

TENANT = "default.plant"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DeviceStore]:
    with DeviceStore(tmp_path / "devices.db") as found:
        yield found


def nowhere(space: str) -> AbstractAsyncContextManager[Any]:
    raise AssertionError(f"nobody goes to {space}")


def test_when_a_device_was_seen_outlives_a_restart_but_not_the_device(store: DeviceStore) -> None:
    numbers = itertools.count(1)
    registry = DeviceRegistry(store, now=str, new_id=str, new_version=lambda: f"v{next(numbers)}")
    registry.create_tenant(TENANT, {})
    for device in ("lamp", "lock"):
        registry.create_device(TENANT, device, {}, "jo")
    commands = CommandStore(store, new_id=str, now_ms=lambda: 0)
    dispatcher = CommandDispatcher(commands, Lookups(store), lambda _tenant: None, nowhere)
    dispatcher.note([["connected", TENANT, "lamp", 1_000], ["seen", TENANT, "lock", 2_000]])
    dispatcher.note([["disconnected", TENANT, "lamp", 3_000], ["present", TENANT, "lock", 4_000]])
    seen = dispatcher.seen(TENANT, "lamp", 0)
    assert seen is not None
    assert (seen.at_ms, seen.is_connected) == (3_000, False)
    assert seen.events == (("connected", 1_000), ("disconnected", 3_000))
    present = dispatcher.seen(TENANT, "lock", 0)
    again = dispatcher.seen(TENANT, "lamp", 2_000)
    assert again is not None
    assert again.events == (("disconnected", 3_000),), "it was registered again, and a former one was connected"
    assert dispatcher.seen(TENANT, "lamp", 4_000) is None
    assert present is not None
    assert (present.is_connected, present.events) == (True, ())
    dispatcher._save_seen()
    assert commands.last_seen(TENANT, ["lamp", "lock", "none"]) == {"lamp": 3_000, "lock": 4_000}
    assert commands.last_seen("other.plant", ["lamp"]) == {}
    registry.delete_device(TENANT, "lamp")
    assert commands.last_seen(TENANT, ["lamp", "lock"]) == {"lock": 4_000}
    registry.delete_tenant(TENANT)
    assert commands.last_seen(TENANT, ["lock"]) == {}


def test_only_the_last_comings_and_goings_are_kept(store: DeviceStore) -> None:
    commands = CommandStore(store, new_id=str, now_ms=lambda: 0)
    dispatcher = CommandDispatcher(commands, Lookups(store), lambda _tenant: None, nowhere)
    dispatcher.note([["connected", TENANT, "lamp", number] for number in range(50)])
    seen = dispatcher.seen(TENANT, "lamp", 0)
    assert seen is not None
    assert [at for _, at in seen.events] == list(range(40, 50))


class Applications:
    """The addresses of all tenants, in place of nodes: one takes no events until it is told to.

    A queue that is full could be had of a node, but not that its sender waits while another one sends.
    """

    def __init__(self) -> None:
        self.taken: list[tuple[str, str]] = []
        """Tenants and devices of the events that were accepted."""
        self.has_room = asyncio.Event()
        self.changed = asyncio.Event()

    @asynccontextmanager
    async def visit(self, space: str) -> AsyncIterator[Any]:
        yield self

    @asynccontextmanager
    async def sender(self, address: str) -> AsyncIterator[Any]:
        yield self

    @asynccontextmanager
    async def receiver(self, address: str, *, credit: int) -> AsyncIterator[Any]:
        yield self

    async def receive(self) -> None:
        await asyncio.Event().wait()

    async def send(self, message: Message, **_: Any) -> Outcome:
        if message.to is not None:
            return Outcome.RELEASED  # no device listens for commands
        tenant, device = message.properties["tenant_id"], message.properties["device_id"]
        if tenant == "full":
            await self.has_room.wait()
        self.taken.append((tenant, device))
        self.changed.set()
        return Outcome.ACCEPTED

    async def until_taken(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.taken) < count:
                self.changed.clear()
                await self.changed.wait()


@pytest.mark.parametrize("what", ["notifications", "states"])
def test_a_tenant_whose_events_are_not_taken_holds_up_no_other(store: DeviceStore, what: str) -> None:
    numbers = itertools.count(1)
    registry = DeviceRegistry(store, now=str, new_id=str, new_version=lambda: f"v{next(numbers)}")
    commands = CommandStore(store, new_id=lambda: f"c{next(numbers)}", now_ms=lambda: int(time.time() * 1000))
    notified: list[tuple[str, str]] = []

    async def story() -> None:
        applications = Applications()
        dispatcher = CommandDispatcher(
            commands, Lookups(store), lambda tenant: None if tenant == "none" else tenant, applications.visit
        )
        dispatcher.notified = lambda tenant, device: notified.append((tenant, device))
        told = [
            ("full", "a"),
            ("none", "a"),
            ("full", "b"),
            ("free", "c"),
            ("full", "c"),
            ("free", "a"),
            ("free", "b"),
        ]
        if what == "states":
            for tenant in ("full", "none", "free"):
                registry.create_tenant(tenant, {})
            for tenant, device in told:
                registry.create_device(tenant, device, {}, "jo")
                commands.queue_message({"tenant": tenant, "device-id": device, "name": "on"})
        running = asyncio.create_task(dispatcher.run())
        await asyncio.sleep(0)
        if what == "notifications":
            for tenant, device in told:
                dispatcher.provisioned(tenant, device, "gate")
        await applications.until_taken(3)
        assert applications.taken == [("free", "c"), ("free", "a"), ("free", "b")]
        applications.has_room.set()
        await applications.until_taken(6)
        assert applications.taken[3:] == [("full", "a"), ("full", "b"), ("full", "c")]
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    asyncio.run(story())
    if what == "notifications":
        assert [one for one in notified if one[0] != "full"][:2] == [("free", "c"), ("free", "a")]
