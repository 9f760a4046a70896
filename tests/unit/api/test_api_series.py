"""The last hour, the overview and nodes: bounded, of what one may see, and in words that help."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.api.live.history import History, Recorded
from enmasse.control.errors import NodeUnavailableError
from tests.unit.api.test_api_metrics import address
from tests.unit.api.test_api_rows import BASE, SHOP, Place, document, lines_of, place

if TYPE_CHECKING:
    from enmasse.control.store.registry import Registry

__all__ = ["place"]


def test_a_history_keeps_changes_alone_and_an_hour_of_them() -> None:
    history = History(1, kept_s=100)
    for second in range(0, 1000, 10):
        history.add("busy", second, (float(second),))
    history.add("idle", 0, (7.0,))
    assert history.read("busy", [890, 895, 990]) == [(890.0,), (890.0,), (990.0,)]
    assert history.read("busy", [500]) == [None]
    assert history.read("idle", [990]) == [(7.0,)]
    assert len(history) < 40
    history.forget("busy")
    assert (len(history), history.read("busy", [990])) == (1, [None])


def test_beyond_its_bound_a_history_loses_what_nobody_looked_at() -> None:
    history = History(1, most=10)
    for name in ("looked at", "forgotten"):
        for second in range(5):
            history.add(name, second, (float(second),))
    assert history.read("looked at", [4]) == [(4.0,)]
    history.add("new", 5, (1.0,))
    assert history.read("forgotten", [4]) == [None]
    assert history.read("looked at", [4]) == [(4.0,)]
    assert len(history) <= 10


def test_counters_are_told_as_growth_in_a_second_and_never_negative() -> None:
    recorded = Recorded(("messagesIn",), ("messagesStored",))
    times = [0.0, 10.0, 20.0, 30.0]
    for at, count, stored in ((0.0, 100, 1), (10.0, 200, 2), (20.0, 5, 2), (30.0, 25, 0)):
        recorded.add("a", at, (count, stored))
    assert recorded.series("a", times, -1) == (times, {"messagesIn": [None, 10, 0, 2], "stored": [1, 2, 2, 0]})
    assert recorded.series("a", times, 20) == ([30.0], {"messagesIn": [2], "stored": [0]})
    assert recorded.series("b", times, 20) == ([30.0], {"messagesIn": [0], "stored": [None]})
    assert recorded.series("a", [], 20) == ([], {"messagesIn": [], "stored": []})


async def test_the_series_of_an_address_a_pipeline_and_a_space(place: Place) -> None:
    pipeline = document("Pipeline", "shop.etl") | {"status": {"phase": "Active", "rows": 10, "rate": 2.5, "lag": 3}}
    place.declare(pipeline)
    await place.after(0, address("orders"))
    await place.after(5, address("orders", messagesIn=50, messagesStored=50, accepted=5))
    found = await place.get(f"{SHOP}/series?address=shop.orders")
    assert (found["kind"], found["times"]) == ("Series", [1000, 1005])
    assert found["series"]["messagesIn"] == [None, 10]
    assert (found["series"]["stored"], found["series"]["accepted"]) == ([0, 50], [None, 1])
    of_pipeline = await place.get(f"{SHOP}/series?pipeline=shop.etl")
    assert of_pipeline["series"] == {"rows": [10, 10], "rate": [2.5, 2.5], "lag": [3, 3]}
    of_space = await place.get(f"{SHOP}/series")
    assert of_space["series"] == {"messagesIn": [0, 10], "messagesOut": [0, 0], "stored": [0, 50]}
    assert (await place.get(f"{SHOP}/series?address=shop.nope")).status_code == 404
    assert (await place.get(f"{SHOP}/series?address=a&pipeline=b")).status_code == 400
    assert (await place.get(f"{SHOP}/series?minutes=61")).status_code == 400


@pytest.fixture
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is asked again however little time has passed: that of the tests is made up."""
    monkeypatch.setattr("enmasse.api.live.sessions._FRESH_S", 0.0)


@pytest.mark.usefixtures("asked_anew")
async def test_the_series_of_a_connection_begin_when_it_is_looked_at_or_where_there_are_few(place: Place) -> None:
    def flow(count: int, connections: int) -> None:
        place.sessions.told = {"b": {"messagesIn": count, "messagesOut": 2 * count, "senders": 1}}
        spaces = [{"name": "ns/shop", "connections": connections}]
        place.node.found = replace(place.node.found, spaces=spaces)

    flow(0, connections=3)
    await place.after(0)
    await place.after(5)  # the first reading has said how many there are
    flow(50, connections=3)
    await place.after(5)
    found = await place.get(f"{SHOP}/series?connection=b")
    assert found["times"] == [1000, 1005, 1010]
    assert found["series"]["messagesIn"] == [None, 0, 10]
    assert found["series"]["messagesOut"] == [None, 0, 20]
    assert found["series"]["senders"] == [None, 1, 1]
    assert (await place.get(f"{SHOP}/series?connection=z")).status_code == 404
    assert (await place.get(f"{SHOP}/series?connection=b&address=shop.orders")).status_code == 400
    flow(100, connections=1_000_000)
    await place.after(5)  # looked at a moment ago
    assert (await place.get(f"{SHOP}/series?connection=b"))["series"]["messagesIn"][-1] == 10
    await place.after(1_000)
    await place.after(5)  # nobody looks any more, and there are too many
    assert (await place.get(f"{SHOP}/series?connection=b&minutes=1"))["series"]["senders"][-1] is None


@pytest.mark.usefixtures("asked_anew")
async def test_a_connection_that_has_gone_is_forgotten_and_an_unreachable_node_forgets_nothing(
    place: Place,
) -> None:
    place.node.found = replace(place.node.found, spaces=[{"name": "ns/shop", "connections": 3}])
    await place.after(0)
    await place.after(5)
    history = place.sampler.followers[-1].__self__.recorded  # type: ignore[attr-defined]
    assert set(history.names) == {"ns/shop/a", "ns/shop/b", "ns/shop/c"}
    place.sessions.names.remove("a")
    await place.after(5)
    assert set(history.names) == {"ns/shop/b", "ns/shop/c"}
    place.sessions.error = NodeUnavailableError("node node-0 is not connected")
    await place.after(5)
    assert set(history.names) == {"ns/shop/b", "ns/shop/c"}


async def test_a_watch_of_a_series_tells_what_is_new_alone(place: Place) -> None:
    await place.after(0, address("orders"))
    lines = lines_of(place.app, f"{SHOP}/series?watch=true&address=shop.orders")
    assert (await anext(lines))["times"] == [1000]
    await place.after(5, address("orders", messagesIn=5))
    line = await anext(lines)
    assert (line["times"], line["series"]["messagesIn"]) == ([1005], [1])
    await lines.aclose()  # type: ignore[attr-defined]


def unready(kind: str, name: str, *messages: str, **status: Any) -> dict[str, Any]:
    return document(kind, name, address=name, type="queue") | {
        "status": {"phase": "Failed", "messages": list(messages), **status}
    }


async def test_the_overview_says_what_is_wrong_and_how_to_mend_it(place: Place, registry: Registry) -> None:
    place.declare(unready("Address", "shop.bad", "there is no plan of that name"))
    place.declare(unready("Pipeline", "shop.etl", lastError="no such table"))
    full = document("Address", "shop.full", address="full", type="queue", limits={"maxBytes": 1000})
    place.declare(full | {"status": {"phase": "Active", "isReady": True}})
    await place.after(0, address("full", bytesStored=950))
    found = await place.get(f"{BASE}/overview")
    told = {(item["kind"], item["name"]): item for item in found["problems"]}
    assert told["Address", "shop.bad"]["text"] == "there is no plan of that name"
    assert told["Pipeline", "shop.etl"]["text"] == "no such table"
    assert "95 %" in told["Address", "shop.full"]["text"]
    assert all(item["remedy"] and item["path"].startswith("/") for item in found["problems"])
    assert (found["totals"]["spaces"], found["totals"]["addresses"]) == (2, 7)
    assert found["totals"]["pipelines"] == {"Failed": 1}
    assert [node["name"] for node in found["nodes"]] == ["node-0"]


async def test_a_node_that_does_not_answer_is_a_problem_and_its_figures_are_not_made_up(place: Place) -> None:
    await place.after(0, address("orders", messagesStored=3))
    place.node.error = NodeUnavailableError("node node-0 is not connected")
    await place.after(5)
    [problem] = (await place.get(f"{BASE}/overview"))["problems"]
    assert (problem["kind"], problem["text"]) == ("Node", "node node-0 is not connected")
    assert "`enmasse logs node-0`" in problem["remedy"]
    [node] = (await place.get(f"{BASE}/nodes"))["items"]
    assert (node["up"], node["ready"]) == (False, False)
    [row] = (await place.get(f"{SHOP}/rows/addresses?search=orders"))["items"]
    assert "stored" not in row
    place.node.error = None
    await place.after(5, address("orders", messagesStored=4))
    series = (await place.get(f"{SHOP}/series?address=shop.orders"))["series"]["stored"]
    assert series == [3, 3, 4]
