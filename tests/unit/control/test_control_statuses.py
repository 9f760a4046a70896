"""Statuses that are written together, and what was found last of each."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

import pytest

from enmasse.control.runtime.statuses import StatusWriter
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.model.schema.conditions import Condition
from enmasse.model.schema.objects import decode, restore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from enmasse.model.schema.resource import Resource, ResourceStatus

NOW = "2026-01-01T00:00:00Z"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResourceStore]:
    with ResourceStore(tmp_path / "resources.db") as store:
        yield store


@pytest.fixture
def space(store: ResourceStore) -> Resource:
    uids = itertools.count(1)
    registry = Registry(store, now=lambda: NOW, new_uid=lambda: f"uid-{next(uids)}")
    registry.create(decode({"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "metadata": NAME}))
    return restore(store.get("AddressSpace", "default", "shop"))


NAME = {"name": "shop", "namespace": "default"}


def ready(resource: Resource, status: str) -> ResourceStatus:
    condition = Condition(type="Ready", status="True" if status == "Served" else "False", reason=status)
    return resource.status.with_conditions((condition,), NOW)


def nobody() -> None:
    """Stand for a publisher whose object does not change."""
    raise AssertionError("the object is not stale")


def reason(store: ResourceStore) -> str:
    conditions = store.get("AddressSpace", "default", "shop").get("status", {}).get("conditions", [])
    return str(conditions[0]["reason"]) if conditions else ""


def test_of_two_findings_the_later_one_is_written(store: ResourceStore, space: Resource) -> None:
    writer = StatusWriter(store)
    writer.publish(space, ready(space, "Configuring"), nobody)
    writer.publish(space, ready(space, "Served"), nobody)
    writer.flush()
    assert reason(store) == "Served"


def test_a_finding_that_all_is_as_it_was_takes_back_what_is_not_written_yet(
    store: ResourceStore, space: Resource
) -> None:
    writer = StatusWriter(store)
    writer.publish(space, ready(space, "Served"), nobody)
    writer.flush()
    served = restore(store.get("AddressSpace", "default", "shop"))
    writer.publish(served, ready(served, "Configuring"), nobody)
    writer.publish(served, served.status, nobody)
    writer.flush()
    assert reason(store) == "Served"
    assert len(writer) == 0


def test_what_was_found_of_an_object_that_has_changed_is_not_written(store: ResourceStore, space: Resource) -> None:
    stale: list[str] = []
    again = partial(stale.append, "its publisher")
    writer = StatusWriter(store)
    writer.publish(space, ready(space, "Served"), again)
    document = store.get("AddressSpace", "default", "shop")
    store.replace(document | {"metadata": document["metadata"] | {"labels": {"a": "b"}}})
    writer.flush()
    assert reason(store) == ""
    assert stale == ["its publisher"]


def test_a_finding_that_all_is_as_it_was_counts_for_nothing_if_another_was_written_meanwhile(
    store: ResourceStore, space: Resource
) -> None:
    stale: list[str] = []
    again = partial(stale.append, "its publisher")
    writer = StatusWriter(store)
    writer.publish(space, ready(space, "Served"), again)
    writer.flush()
    served = restore(store.get("AddressSpace", "default", "shop"))
    writer.publish(served, ready(served, "Configuring"), again)
    writer.flush()
    writer.publish(served, served.status, again)
    assert stale == ["its publisher"]
    configuring = restore(store.get("AddressSpace", "default", "shop"))
    writer.publish(configuring, configuring.status, again)
    writer.publish(configuring, ready(configuring, "Served"), again)
    writer.flush()
    assert reason(store) == "Served"
    assert len(stale) == 1
