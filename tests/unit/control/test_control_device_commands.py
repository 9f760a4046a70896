"""What is known of when devices were seen: by whom is told, and after a restart by what is kept."""

from __future__ import annotations

import itertools
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.projects.commands import CommandDispatcher
from enmasse.iot.command_store import CommandStore
from enmasse.iot.lookups import Lookups
from enmasse.iot.registry import DeviceRegistry
from enmasse.iot.store import DeviceStore

if TYPE_CHECKING:
    from collections.abc import Iterator
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
