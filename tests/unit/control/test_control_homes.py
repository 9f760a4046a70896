"""The homes of spaces: evenly spread over the nodes that may have them, decided once."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.control.context import Context
from enmasse.control.control_plane import ControlPlane, found_installation
from enmasse.control.errors import ForbiddenError
from enmasse.control.nodes.planning import Candidate, choose_home
from enmasse.control.runtime.verdicts import Verdict
from enmasse.control.store.managed_fields import Manager
from enmasse.model.schema.objects import decode
from tests.support.polling import until_async
from tests.unit.control.stage import Stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from enmasse.control.store.registry import Registry
    from enmasse.model.schema.resource import Resource

    Make = Callable[..., Resource]

NAMES = ("node-0", "node-1", "node-2", "node-3")

LABELS = st.dictionaries(st.sampled_from(["disk", "zone"]), st.sampled_from(["a", "b"]), max_size=2)
CANDIDATES = st.lists(
    st.builds(
        Candidate,
        name=st.sampled_from(NAMES),
        labels=LABELS,
        is_cordoned=st.booleans(),
        is_home=st.booleans(),
        is_reachable=st.booleans(),
        spaces=st.integers(0, 3),
        busy=st.floats(0, 1),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda node: node.name,
)


@given(CANDIDATES, LABELS)
def test_of_the_nodes_that_may_have_it_the_one_with_the_fewest_spaces_has_it(
    nodes: list[Candidate], selector: dict[str, str]
) -> None:
    allowed = [
        node
        for node in nodes
        if node.is_home
        and not node.is_cordoned
        and (node.is_reachable or len(nodes) == 1)
        and all(node.labels.get(name) == value for name, value in selector.items())
    ]
    found = choose_home(nodes, selector)
    if isinstance(found, Verdict):
        assert not allowed
        assert not found.is_yes
    else:
        assert found in allowed
        assert found.spaces == min(node.spaces for node in allowed)
        assert all(found.busy < other.busy + 0.11 for other in allowed if other.spaces == found.spaces)


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_spaces_are_spread_evenly_however_busy_nodes_are(busy: list[float]) -> None:
    counts = dict.fromkeys(NAMES, 0)
    for _ in range(40):
        nodes = [Candidate(name, spaces=counts[name], busy=busy[at]) for at, name in enumerate(NAMES)]
        found = choose_home(nodes, {})
        assert isinstance(found, Candidate)
        counts[found.name] += 1
    assert set(counts.values()) == {10}


def test_who_gets_no_home_is_told_why_of_each_node() -> None:
    nodes = [
        Candidate("node-0", is_cordoned=True, labels={"disk": "ssd"}),
        Candidate("node-1"),
        Candidate("node-2", is_home=False),
    ]
    assert choose_home(nodes, {"disk": "ssd"}) == Verdict(
        "NoNode",
        "no node may have it: of 3, 1 has not the label disk=ssd, 1 has not the role home, 1 is cordoned",
    )
    away = [Candidate("node-0", is_cordoned=True), Candidate("node-1", is_reachable=False)]
    assert choose_home(away, {}) == Verdict("NodeUnavailable", "no node that may have it can be reached")


class Four(Stage):
    """Four nodes, and the control plane before them."""

    def __init__(self, registry: Registry, make: type[Any]) -> None:
        super().__init__(registry, make())
        self.nodes = [self.node, make(), make(), make()]
        for name, node in zip(NAMES, self.nodes, strict=True):
            node.name = name

    @asynccontextmanager
    async def controlled(self, resync_s: float = 1000.0, **parts: Any) -> AsyncIterator[ControlPlane]:
        context = Context(
            self.registry,
            self.nodes,
            now=lambda: "2026-01-01T00:00:00Z",
            jitter=lambda: 0.01,
            resync_s=resync_s,
            grace_s=0,
        )
        found_installation(context, frozenset())
        plane = ControlPlane(context, **parts)
        task = asyncio.create_task(plane.run())
        try:
            await until_async(lambda: all(node.mirror.is_complete for node in plane.context.nodes.values()))
            yield plane
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def change(self, name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> None:
        node = {
            "apiVersion": "admin.enmasse.io/v1beta1",
            "kind": "MessagingNode",
            "metadata": {"name": name, "labels": labels or {}},
            "spec": spec,
        }
        self.registry.replace(decode(node))

    def home(self, space: str) -> tuple[str, int] | None:
        status = self.status("AddressSpace", space)
        return (status["home"], status["homeGeneration"]) if status.get("home") else None

    def node_status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.registry.store.get("MessagingNode", "", name)["status"]
        return status


@pytest.fixture
def four(registry: Registry, memory_node: type[Any]) -> Four:
    return Four(registry, memory_node)


def test_spaces_in_a_loop_are_spread_and_nothing_moves_afterwards(
    four: Four, make_space: Make, make_address: Make
) -> None:
    names = [f"s{number}" for number in range(40)]

    async def scene() -> None:
        async with four.controlled() as plane:
            for name in names:
                four.registry.create(make_space(name))
                four.registry.create(make_address(space=name))
            await until_async(lambda: all(four.status("Address", f"{name}.orders").get("isReady") for name in names))
            await four.settled(plane)
            homes = {name: four.home(name) for name in names}
            for name, node in zip(NAMES, four.nodes, strict=True):
                mine = [space for space, home in homes.items() if home == (name, 1)]
                assert 9 <= len(mine) <= 11
                # All know every space with its home; its home alone has its addresses.
                assert {space.home for space in node.state.spaces.values()} == set(NAMES)
                assert {space.home_generation for space in node.state.spaces.values()} == {1}
                assert set(node.state.addresses) == {f"default/{space}.orders" for space in mine}
            counts = Counter(home[0] for home in homes.values() if home is not None)
            await until_async(lambda: all(four.node_status(name)["spaces"] == counts[name] for name in NAMES))
            with pytest.raises(ForbiddenError, match="it is the home of default/s"):
                four.registry.delete("MessagingNode", "", "node-1")
            before = [dict(node.state.addresses) for node in four.nodes]
            four.change("node-1", unschedulable=True)
            four.registry.create(make_space("another"))
            await until_async(lambda: four.home("another") is not None)
            await four.settled(plane)
        async with four.controlled() as plane:
            await four.settled(plane)
            assert {name: four.home(name) for name in names} == homes
            assert [dict(node.state.addresses) for node in four.nodes] == before

    asyncio.run(scene())


def test_a_label_holds_a_cordoned_node_gets_none_and_a_space_waits_for_a_node_that_may_have_it(
    four: Four, make_space: Make, make_address: Make
) -> None:
    plan = {
        "apiVersion": "admin.enmasse.io/v1beta2",
        "kind": "AddressSpacePlan",
        "metadata": {"name": "fast", "namespace": "enmasse-infra"},
        "spec": {
            "addressSpaceType": "standard",
            "addressPlans": ["standard-small-queue"],
            "nodeSelector": {"disk": "ssd"},
        },
    }

    async def scene() -> None:
        async with four.controlled() as plane:
            four.registry.create(decode(plan))
            four.change("node-2", labels={"disk": "ssd"})
            four.change("node-0", unschedulable=True)
            for number in range(6):
                four.registry.create(make_space(f"fast{number}", plan="fast"))
                four.registry.create(make_space(f"any{number}"))
            await until_async(lambda: all(four.home(f"{name}{at}") for name in ("fast", "any") for at in range(6)))
            assert {four.home(f"fast{number}") for number in range(6)} == {("node-2", 1)}
            assert {four.home(f"any{number}") for number in range(6)} == {("node-1", 1), ("node-3", 1)}
            four.change("node-2", labels={"disk": "ssd"}, unschedulable=True)
            four.registry.create(make_space("late", plan="fast"))
            four.registry.create(make_address(space="late"))
            await until_async(lambda: four.reason("AddressSpace", "late") == "NoNode")
            _, _, message = four.condition("AddressSpace", "late", "Ready")
            assert message == "no node may have it: of 4, 3 has not the label disk=ssd, 1 is cordoned"
            await until_async(lambda: four.reason("Address", "late.orders") == "SpaceNotReady")
            four.change("node-2", labels={"disk": "ssd"})
            await until_async(lambda: four.status("Address", "late.orders").get("isReady", False))
            assert four.home("late") == ("node-2", 1)
            await four.settled(plane)

    asyncio.run(scene())


def test_a_node_that_is_away_gets_no_new_space(four: Four, make_space: Make) -> None:
    async def scene() -> None:
        async with four.controlled() as plane:
            four.nodes[0].cut()
            await until_async(lambda: plane.context.nodes["node-0"].mirror.is_reachable is False)
            for number in range(6):
                four.registry.create(make_space(f"s{number}"))
            await until_async(lambda: all(four.home(f"s{number}") for number in range(6)))
            assert "node-0" not in {home[0] for number in range(6) if (home := four.home(f"s{number}"))}
            await until_async(lambda: four.node_status("node-0")["phase"] == "Configuring")
            assert four.node_status("node-0")["messages"] == ["the node cannot be reached"]

    asyncio.run(scene())


def test_spaces_of_an_installation_that_had_one_node_are_at_home_on_the_first_one(
    four: Four, make_space: Make
) -> None:
    four.registry.create_namespaces()
    four.registry.create_catalog()
    for number in range(3):
        four.registry.create(make_space(f"old{number}"))

    async def scene() -> None:
        async with four.controlled() as plane:
            four.registry.create(make_space("new"))
            await until_async(lambda: four.home("new") is not None)
            assert {four.home(f"old{number}") for number in range(3)} == {("node-0", 1)}
            assert four.home("new") == ("node-1", 1)
            await four.settled(plane)

    asyncio.run(scene())


def test_nobody_else_changes_the_home_of_a_space(four: Four, make_space: Make) -> None:
    async def scene() -> None:
        async with four.controlled() as plane:
            four.registry.create(make_space())
            await until_async(lambda: four.home("shop") is not None)
            await four.settled(plane)
            found = four.registry.store.get("AddressSpace", "default", "shop")
            status = found["status"] | {"home": "node-3", "homeGeneration": 9}
            four.registry.replace_status(
                found | {"status": status}, manager=Manager("somebody", "enmasse.io/v1beta1")
            )
            assert four.home("shop") == ("node-0", 1)
            await four.settled(plane)

    asyncio.run(scene())


def test_a_lost_store_learns_the_homes_from_the_nodes(four: Four, make_space: Make, make_address: Make) -> None:
    names = [f"s{number}" for number in range(6)]
    old = {
        "name": "old",
        "endpointHosts": [{"host": "old.example.com", "port": 5672}],
        "addresses": [{"name": "all", "pattern": "*"}],
    }

    async def scene() -> None:
        async with four.controlled() as plane:
            for name in names:
                four.registry.create(make_space(name, connectors=[old]))
                four.registry.create(make_address(space=name))
            await until_async(lambda: all(four.status("Address", f"{name}.orders").get("isReady") for name in names))
            await four.settled(plane)
        homes = {name: four.home(name) for name in names}
        for node in four.nodes:
            # Connectors are dialled by the home alone.
            assert {space.home == node.name for space in node.state.spaces.values() if space.connectors} == {True}
        four.registry = lose(four.registry)
        async with four.controlled() as plane:
            await until_async(
                lambda: all(four.registry.store.find("Address", "default", f"{name}.orders") for name in names)
            )
            await four.settled(plane)
            assert {name: four.home(name) for name in names} == homes
            specs = [four.registry.store.get("AddressSpace", "default", name)["spec"] for name in names]
            assert {spec["connectors"][0]["name"] for spec in specs} == {"old"}

    asyncio.run(scene())


def lose(registry: Registry) -> Registry:
    """Return a registry over an empty store."""
    other = type(registry.store)()
    return type(registry)(other, now=registry._now, new_uid=registry._new_uid)
