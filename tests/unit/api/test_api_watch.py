"""Watches: what a client sees from a version on."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.api.kube.negotiation import Form
from enmasse.api.kube.served import SERVED
from enmasse.api.kube.status import RequestError
from enmasse.api.kube.tables import Shape
from enmasse.api.kube.watch import Watches, WatchRequest, WatchResponse
from enmasse.model.schema.objects import decode
from enmasse.model.schema.selectors import EVERYTHING, Selector, parse_selector

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from enmasse.control.store.registry import Registry

    Api = Callable[..., httpx.Response]

SPACES = "/apis/enmasse.io/v1beta1/namespaces/default/addressspaces"


def put(registry: Registry, name: str, *, namespace: str = "default", **labels: str) -> None:
    resource = decode(
        {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "AddressSpace",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
        }
    )
    if registry.store.find("AddressSpace", namespace, name):
        registry.replace(resource)
    else:
        registry.create(resource)


def seen(
    registry: Registry,
    *acts: Callable[[], Any],
    after: int | None = None,
    selector: Selector = EVERYTHING,
    namespace: str | None = "default",
    bookmark_s: float | None = None,
) -> list[str]:
    """Watch, do one act after the other, and tell what was seen in the end."""

    async def body() -> list[str]:
        stop = asyncio.Event()
        found: list[str] = []
        follow = WatchRequest(
            store=registry.store,
            served=next(served for served in SERVED if served.kind.name == "AddressSpace"),
            namespace=namespace,
            selector=selector,
            shape=Shape("AddressSpace", Form()),
            after=after,
            wants_bookmarks=bookmark_s is not None,
            timeout_s=10,
        )
        events = follow.events(Watches(stop, bookmark_s=bookmark_s or 60))

        async def play() -> None:
            for act in acts:
                await asyncio.sleep(0.01)
                act()
            await asyncio.sleep(0.01)
            stop.set()

        player = asyncio.create_task(play())
        async for line in events:
            event = json.loads(line)
            found.append(f"{event['type']} {event['object'].get('metadata', {}).get('name')}")
        await player
        return found

    return asyncio.run(body())


def test_a_watch_without_a_version_begins_with_what_is_there(registry: Registry) -> None:
    put(registry, "a")
    assert seen(registry, lambda: put(registry, "b")) == ["ADDED a", "ADDED b"]


def test_a_watch_goes_on_from_a_version(registry: Registry) -> None:
    put(registry, "a")
    put(registry, "b")
    acts = (
        lambda: put(registry, "b", colour="red"),
        lambda: registry.delete("AddressSpace", "default", "a"),
    )
    assert seen(registry, *acts, after=1) == ["ADDED b", "MODIFIED b", "DELETED a"]


def test_a_watch_keeps_to_its_namespace(registry: Registry) -> None:
    registry.create(decode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}))
    acts = (lambda: put(registry, "a", namespace="other"), lambda: put(registry, "b"))
    assert seen(registry, *acts) == ["ADDED b"]
    assert seen(registry, namespace=None) == ["ADDED b", "ADDED a"]


def test_an_object_that_ceases_to_be_chosen_is_gone_for_the_watcher(registry: Registry) -> None:
    put(registry, "a", tier="gold")
    put(registry, "b")
    acts = (
        lambda: put(registry, "a"),
        lambda: put(registry, "b", other="x"),
        lambda: put(registry, "a", tier="gold"),
        lambda: put(registry, "a", tier="gold", more="x"),
        lambda: registry.delete("AddressSpace", "default", "b"),
    )
    found = seen(registry, *acts, selector=parse_selector("tier=gold"))
    assert found == ["ADDED a", "DELETED a", "ADDED a", "MODIFIED a"]


def test_a_watch_of_one_name_is_not_told_of_others(registry: Registry) -> None:
    acts = (lambda: put(registry, "a"), lambda: put(registry, "b"), lambda: put(registry, "a", x="y"))
    found = seen(registry, *acts, selector=parse_selector("", "metadata.name=b"))
    assert found == ["ADDED b"]


def test_a_watch_that_falls_behind_ends_with_410(registry: Registry) -> None:
    put(registry, "a")

    def much() -> None:
        for number in range(120):
            put(registry, "a", n=str(number))

    found = seen(registry, much)
    assert found == ["ADDED a", "ERROR None"]


def test_a_version_that_is_too_old_is_answered_with_410(api: Api, registry: Registry) -> None:
    for number in range(120):
        put(registry, "a", n=str(number))
    for version in ("3", "9999"):
        response = api("GET", SPACES, params={"watch": "1", "resourceVersion": version})
        assert (response.status_code, response.json()["reason"]) == (410, "Expired")


def test_what_one_namespace_writes_makes_nobody_else_list_again(api: Api, registry: Registry) -> None:
    registry.create(decode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}))
    version = str(registry.store.version)
    for number in range(120):
        put(registry, "a", n=str(number))
    since = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "0.01"}
    for path in (SPACES.replace("/default/", "/other/"), "/api/v1/namespaces"):
        assert api("GET", path, params=since).status_code == 200
    assert api("GET", SPACES, params=since).status_code == 410


@pytest.mark.parametrize("timeout", ["0.05", "0.01"])
def test_a_watch_ends_after_its_time(api: Api, registry: Registry, timeout: str) -> None:
    put(registry, "a")
    response = api("GET", SPACES, params={"watch": "true", "timeoutSeconds": timeout})
    events = [json.loads(line) for line in response.text.splitlines()]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("ADDED", "a")]


def test_bookmarks_tell_the_version_after_the_beginning_and_from_time_to_time(registry: Registry) -> None:
    put(registry, "a")
    found = seen(registry, lambda: put(registry, "b"), bookmark_s=0.001)
    assert found[:2] == ["ADDED a", "BOOKMARK None"]
    assert found[-1] == "BOOKMARK None"
    assert "ADDED b" in found
    assert "BOOKMARK None" not in seen(registry, lambda: put(registry, "c"))


def lines(response: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in response.text.splitlines()]


def test_the_end_of_what_was_there_is_marked_for_clients_that_ask_for_it(api: Api, registry: Registry) -> None:
    put(registry, "a")
    asked = {
        "watch": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "resourceVersion": "",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "0.01",
    }
    added, mark = lines(api("GET", SPACES, params=asked))
    assert (added["type"], mark["type"]) == ("ADDED", "BOOKMARK")
    assert mark["object"] == {
        "kind": "AddressSpace",
        "apiVersion": "enmasse.io/v1beta1",
        "metadata": {
            "resourceVersion": "1",
            "creationTimestamp": None,
            "annotations": {"k8s.io/initial-events-end": "true"},
        },
    }


def test_a_watch_of_a_phase_is_told_when_an_object_comes_to_it_and_leaves_it(registry: Registry) -> None:
    def say(phase: str) -> None:
        space = registry.store.get("AddressSpace", "default", "a")
        registry.store.replace(space | {"status": {"phase": phase}})

    put(registry, "a")
    acts = (lambda: say("Active"), lambda: say("Active"), lambda: say("Failed"))
    found = seen(registry, *acts, selector=parse_selector("", "status.phase=Active"))
    assert found == ["ADDED a", "MODIFIED a", "DELETED a"]


def test_a_deleted_event_shows_the_object_as_the_client_saw_it_last(api: Api, registry: Registry) -> None:
    put(registry, "a", tier="gold")
    put(registry, "a", tier="tin")
    asked = {"watch": "true", "resourceVersion": "1", "labelSelector": "tier=gold", "timeoutSeconds": "0.01"}
    (event,) = lines(api("GET", SPACES, params=asked))
    metadata = event["object"]["metadata"]
    assert (event["type"], metadata["labels"], metadata["resourceVersion"]) == ("DELETED", {"tier": "gold"}, "2")


def test_so_many_watches_are_open_and_no_more() -> None:
    watches = Watches(asyncio.Event(), most=2)
    ann, bob = ("ann", "team-a", "192.0.2.1"), ("bob", "team-a", "192.0.2.1")
    with watches.slot(ann) as first, watches.slot(ann) as second:
        with pytest.raises(RequestError, match="2 watches are open, and your share of them") as caught:
            watches.require_slot(ann)
        assert caught.value.code == 429
        with watches.slot(bob):
            assert (first.is_set(), second.is_set()) == (False, True), "the latest of who has most gives way"
            assert (len(watches), watches.refused) == (2, 2)
            with pytest.raises(RequestError):
                watches.require_slot(bob)
    assert len(watches) == 0
    with watches.slot(ann), watches.slot(ann):
        pass


def test_a_watch_that_has_to_end_ends_as_if_its_time_were_over(registry: Registry) -> None:
    async def body() -> list[Any]:
        watches = Watches(asyncio.Event(), most=2)
        sent: list[Any] = []
        served = next(served for served in SERVED if served.kind.name == "AddressSpace")
        follow = WatchRequest(
            store=registry.store,
            served=served,
            namespace=None,
            selector=EVERYTHING,
            shape=Shape("AddressSpace", Form()),
        )

        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

        begun = asyncio.Event()

        async def send(message: Any) -> None:
            sent.append(message)
            begun.set()

        put(registry, "a")
        with watches.slot(("eve", "", "x")):
            answer = asyncio.ensure_future(WatchResponse(watches, follow, ("eve", "", "x"))({}, receive, send))
            await begun.wait()
            with watches.slot(("ann", "", "x")):
                await answer
        return sent

    *_, last = asyncio.run(body())
    assert (last["body"], last["more_body"]) == (b"", False)


def test_a_client_that_takes_nothing_is_cut_off(registry: Registry) -> None:
    async def body() -> list[str]:
        watches = Watches(asyncio.Event(), patience_s=0.01)
        acts: list[str] = []
        sent: list[str] = []
        gone = asyncio.Event()

        def cut() -> None:
            acts.append("cut")
            gone.set()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message["type"])
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        put(registry, "a")
        served = next(served for served in SERVED if served.kind.name == "AddressSpace")
        follow = WatchRequest(
            store=registry.store,
            served=served,
            namespace=None,
            selector=EVERYTHING,
            shape=Shape("AddressSpace", Form()),
        )
        scope = {"type": "http", "state": {"cut": cut}}
        await WatchResponse(watches, follow, ("ann", "", ""))(scope, receive, send)
        assert sent == ["http.response.start", "http.response.body"]
        assert len(watches) == 0
        return acts

    assert asyncio.run(body()) == ["cut"]
