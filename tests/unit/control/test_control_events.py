"""Events: counted, bounded, and written together."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from enmasse.control.errors import StoreFullError
from enmasse.control.runtime.events import EventRecorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.store.store import ResourceStore


@pytest.fixture
def clock() -> Callable[[], str]:
    seconds = itertools.count()
    return lambda: f"2026-01-01T00:00:{next(seconds):02}Z"


def recorder(store: ResourceStore, clock: Callable[[], str], **bounds: int) -> EventRecorder:
    uids = itertools.count(store.version)
    return EventRecorder(store, now=clock, new_uid=lambda: f"event-{next(uids)}", **bounds)


def happen(events: EventRecorder, name: str = "shop", message: str = "it is served") -> None:
    events.record("AddressSpace", "default", name, f"uid-of-{name}", "Normal", "Active", message)


def test_an_event_tells_what_happened_to_which_object(store: ResourceStore, clock: Callable[[], str]) -> None:
    events = recorder(store, clock)
    happen(events)
    assert store.select("Event") == []
    events.flush()
    (event,) = store.select("Event")
    assert event["involvedObject"] == {
        "kind": "AddressSpace",
        "namespace": "default",
        "name": "shop",
        "uid": "uid-of-shop",
    }
    assert (event["type"], event["reason"], event["message"], event["count"]) == (
        "Normal",
        "Active",
        "it is served",
        1,
    )


def test_what_happens_again_is_counted(store: ResourceStore, clock: Callable[[], str]) -> None:
    events = recorder(store, clock)
    happen(events)
    happen(events)
    events.flush()
    happen(recorded := recorder(store, clock))
    recorded.flush()
    (event,) = store.select("Event")
    assert event["count"] == 3
    assert (event["firstTimestamp"], event["lastTimestamp"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:02Z")


def test_the_oldest_events_go(store: ResourceStore, clock: Callable[[], str]) -> None:
    for name in ("a", "b", "c", "a", "d"):
        events = recorder(store, clock, most=3)
        happen(events, name)
        events.flush()
    assert sorted(item["involvedObject"]["name"] for item in store.select("Event")) == ["a", "c", "d"]


def test_of_a_flood_only_the_last_are_written(store: ResourceStore, clock: Callable[[], str]) -> None:
    events = recorder(store, clock, most_at_once=2)
    for name in ("a", "b", "c", "d"):
        happen(events, name)
    events.flush()
    assert [item["involvedObject"]["name"] for item in store.select("Event")] == ["c", "d"]


def test_an_event_of_an_object_without_namespace_lies_in_default(
    store: ResourceStore, clock: Callable[[], str]
) -> None:
    events = recorder(store, clock)
    events.record("Namespace", "", "team", "uid", "Warning", "Stuck", "something is left in it")
    events.flush()
    assert [item["metadata"]["namespace"] for item in store.select("Event")] == ["default"]


def test_events_that_cannot_be_written_now_are_written_later(
    store: ResourceStore, clock: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_document: object) -> None:
        raise StoreFullError("full")

    events = recorder(store, clock)
    happen(events)
    with monkeypatch.context() as patch:
        patch.setattr(store, "create", refuse)
        with pytest.raises(StoreFullError):
            events.flush()
    events.flush()
    assert len(store.select("Event")) == 1


def test_what_happens_in_one_namespace_pushes_out_its_own_events_alone(
    store: ResourceStore, clock: Callable[[], str]
) -> None:
    for namespace in ("quiet", "loud"):
        store.create({"kind": "Namespace", "metadata": {"name": namespace}})

    def happen_in(events: EventRecorder, namespace: str, name: str) -> None:
        events.record("AddressSpace", namespace, name, "uid", "Normal", "Active", "it is served")

    events = recorder(store, clock, most=6, most_at_once=4)
    happen_in(events, "quiet", "a")
    for number in range(20):
        happen_in(events, "loud", f"n{number}")
    events.flush()
    assert len(store.select("Event", "quiet")) == 1
    for number in range(20, 30):
        happen_in(events, "loud", f"n{number}")
        events.flush()
    assert len(store.select("Event", "quiet")) == 1
    names = [item["involvedObject"]["name"] for item in store.select("Event", "loud")]
    assert sorted(names) == ["n25", "n26", "n27", "n28", "n29"]


def test_events_that_others_have_written_are_kept_within_the_same_bound(
    store: ResourceStore, clock: Callable[[], str]
) -> None:
    events = recorder(store, clock, most=3)
    happen(events, "a")
    events.flush()
    for number in range(5):
        metadata = {"namespace": "default", "name": f"foreign{number}", "uid": f"foreign-{number}"}
        store.create({"kind": "Event", "metadata": metadata, "lastTimestamp": "2025-01-01T00:00:00Z"})
    happen(events, "b")
    events.flush()
    assert len(store.select("Event")) == 3
