"""A device registry in a temporary directory, with one tenant."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from enmasse.iot.registry import DeviceRegistry
from enmasse.iot.store import DeviceStore
from tests.support.empty_databases import copied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLANT = "blue.plant"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DeviceStore]:
    with DeviceStore(copied(DeviceStore, tmp_path / "devices.db")) as store:
        yield store


@pytest.fixture
def registry(store: DeviceStore) -> DeviceRegistry:
    ids, versions = itertools.count(1), itertools.count(1)
    made = DeviceRegistry(
        store,
        now=lambda: "2026-01-01T00:00:00Z",
        new_id=lambda: f"id-{next(ids)}",
        new_version=lambda: f"v{next(versions)}",
    )
    made.create_tenant(PLANT, {})
    return made
