"""Places, plans and deletion with the control plane at work: who waits, who is let in, what is never disturbed."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.errors import ForbiddenError
from enmasse.control.runtime.events import EventRecorder
from enmasse.control.spaces.admission import SpaceAdmission
from enmasse.identity.rbac import Requester
from enmasse.model.kinds.connectors import DEVICE_WORDS
from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.schema.objects import decode
from tests.support.polling import until_async
from tests.unit.control.stage import node_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.model.schema.resource import Resource
    from tests.unit.control.stage import Stage

    Make = Callable[..., Resource]

Perform = Any

ADDRESS_PLANS = ["standard-small-queue", "standard-large-queue", "standard-small-anycast"]


def space_plan(name: str = "tiny", **spec: Any) -> Resource:
    return decode(
        {
            "apiVersion": "admin.enmasse.io/v1beta2",
            "kind": "AddressSpacePlan",
            "metadata": {"name": name, "namespace": "enmasse-infra"},
            "spec": {"addressSpaceType": "standard", "resourceLimits": {}, "addressPlans": ADDRESS_PLANS, **spec},
        }
    )


def pipeline(name: str = "hot", space: str = "shop", **source: Any) -> Resource:
    spec = {"sources": [{"name": "readings", **(source or {"address": "a1"})}], "sinks": [{"address": "a2"}]}
    metadata = {"name": f"{space}.{name}", "namespace": "default"}
    return decode({"apiVersion": "enmasse.io/v1beta1", "kind": "Pipeline", "metadata": metadata, "spec": spec})


def phases(stage: Stage, *names: str) -> list[str]:
    return [stage.status("Address", f"shop.{name}").get("phase", "Pending") for name in names]


def test_who_finds_no_place_waits_and_is_let_in_oldest_first(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(space_plan(limits={"addresses": 2}))
        stage.registry.create(make_space(plan="tiny"))
        async with stage.controlled() as plane:
            # The names rise and fall and the clock runs wild: only the order of creation counts.
            for name in ("m", "z", "y", "a"):
                stage.registry.create(make_address(name))
            await stage.settled(plane)
            assert phases(stage, "m", "z", "y", "a") == ["Active", "Active", "Pending", "Pending"]
            assert stage.condition("Address", "shop.y", "Scheduled") == (
                "False",
                "QuotaExceeded",
                "Quota exceeded for resource addresses: plan 'tiny' allows 2, 2 are used",
            )
            stage.registry.delete("Address", "default", "shop.m")
            await stage.settled(plane)
            assert phases(stage, "z", "y", "a") == ["Active", "Active", "Pending"]
        async with stage.controlled() as plane:
            await stage.settled(plane)
            stage.registry.replace(space_plan(limits={"addresses": 3}))
            await stage.settled(plane)
            assert phases(stage, "z", "y", "a") == ["Active", "Active", "Active"]

    perform(scene)


def test_credits_decide_where_the_plan_has_them_alone_and_survive_a_restart(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    limits = {"router": 1, "broker": 1, "aggregate": 2}

    async def scene(stage: Stage) -> None:
        stage.registry.create(space_plan(resourceLimits=limits))
        stage.registry.create(make_space(plan="tiny"))
        async with stage.controlled() as plane:
            stage.registry.create(make_address("small"))
            await stage.settled(plane)
            stage.registry.create(make_address("large", plan="standard-large-queue"))
            stage.registry.create(make_address("direct", "anycast"))
            await stage.settled(plane)
            assert phases(stage, "small", "large", "direct") == ["Active", "Pending", "Active"]
            status = stage.status("Address", "shop.small")
            assert status["planStatus"]["resources"] == {"broker": 0.01, "router": 0.001}
            (broker,) = status["brokerStatuses"]
            assert broker["clusterId"].startswith("broker-")
        async with stage.controlled() as plane:
            await stage.settled(plane)
            assert stage.status("Address", "shop.small") == status
            assert plane.context.placements.of("default/shop").usage() == {"router": 1, "broker": 1, "aggregate": 2}
            stage.registry.delete("Address", "default", "shop.small")
            await stage.settled(plane)
            assert phases(stage, "large") == ["Active"]

    perform(scene)


def test_one_that_asks_for_more_than_there_is_keeps_what_it_has(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(space_plan(quota="credits", resourceLimits={"router": 9, "broker": 1, "aggregate": 9}))
        stage.registry.create(make_space(plan="tiny"))
        async with stage.controlled() as plane:
            for name in ("a", "b"):
                stage.registry.create(make_address(name))
            await stage.settled(plane)
            before = stage.status("Address", "shop.a")["planStatus"]
            stage.registry.replace(make_address("a", plan="standard-large-queue"))
            await stage.settled(plane)
            assert phases(stage, "a", "b") == ["Pending", "Active"]
            assert stage.status("Address", "shop.a")["planStatus"] == before
            assert stage.node.generations()["default/shop.a"] == 1
        async with stage.controlled() as plane:
            await stage.settled(plane)
            assert stage.condition("Address", "shop.a", "Scheduled")[1] == "QuotaExceeded"
            stage.registry.delete("Address", "default", "shop.b")
            await stage.settled(plane)
            assert phases(stage, "a") == ["Active"]

    perform(scene)


@pytest.mark.parametrize(
    ("spec", "resource"),
    [
        ({"limits": {"addresses": 1}}, "addresses"),
        ({"quota": "credits", "resourceLimits": {"router": 0, "broker": 9, "aggregate": 9}}, "router"),
    ],
)
def test_a_plan_that_what_is_there_does_not_fit_is_refused(
    perform: Perform, make_space: Make, make_address: Make, spec: dict[str, Any], resource: str
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(space_plan(**spec))
        stage.registry.create(make_space())
        async with stage.controlled() as plane:
            for name in ("a", "b"):
                stage.registry.create(make_address(name))
            await stage.settled(plane)
            with pytest.raises(InvalidResourceError, match=f"Quota exceeded for resource {resource}"):
                stage.registry.replace(make_space(plan="tiny"))
            stage.registry.delete("Address", "default", "shop.b")
            await stage.settled(plane)
            if resource == "addresses":
                stage.registry.replace(make_space(plan="tiny"))
                await stage.settled(plane)
                assert stage.status("AddressSpace", "shop")["phase"] == "Active"

    perform(scene)


def test_a_plan_that_becomes_smaller_disturbs_nothing(perform: Perform, make_space: Make, make_address: Make) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(space_plan(limits={"addresses": 2}))
        stage.registry.create(make_space(plan="tiny"))
        async with stage.controlled() as plane:
            for name in ("a", "b"):
                stage.registry.create(make_address(name))
            await stage.settled(plane)
            stage.registry.replace(space_plan(limits={"addresses": 1}))
            await stage.settled(plane)
            assert phases(stage, "a", "b") == ["Active", "Active"]
            status, reason, message = stage.condition("AddressSpace", "shop", "PlanApplied")
            assert (status, reason) == ("True", "QuotaExceeded")
            assert "2 are used, the limit is 1" in message

    perform(scene)


def test_a_plan_that_is_gone_is_told_and_what_is_served_stays_ready(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(space_plan())
        stage.registry.create(make_space(plan="tiny"))
        async with stage.controlled() as plane:
            stage.registry.create(make_address("a", plan="standard-small-queue"))
            await stage.settled(plane)
            served = stage.node.generations()
            stage.registry.delete("AddressSpacePlan", "enmasse-infra", "tiny")
            stage.registry.delete("AddressPlan", "enmasse-infra", "standard-small-queue")
            await stage.settled(plane)
            assert stage.condition("AddressSpace", "shop", "PlanApplied")[1] == "UnknownPlan"
            scheduled = stage.condition("Address", "shop.a", "Scheduled")
            assert scheduled[:2] == ("True", "UnknownPlan")
            assert scheduled[2].startswith("unknown address plan 'standard-small-queue'; what is served stays")
            assert phases(stage, "a") == ["Active"]
            assert stage.node.generations() == served
            stage.registry.create(make_address("b"))
            await stage.settled(plane)
            assert stage.condition("Address", "shop.b", "Scheduled")[1] == "SpaceNotReady"
            stage.registry.create(space_plan(addressPlans=["standard-large-queue"]))
            stage.registry.replace(make_address("b", plan="standard-large-queue"))
            await stage.settled(plane)
            assert phases(stage, "a", "b") == ["Active", "Active"]
            assert stage.condition("Address", "shop.a", "Scheduled")[1] == "UnknownPlan"
            stage.registry.replace(make_address("a", plan="standard-small-queue", limits={"maxBytes": 1}))
            await stage.settled(plane)
            assert phases(stage, "a") == ["Pending"]  # the change is not in effect
            assert stage.node.generations() == served | {"default/shop.b": stage.node.generations()["default/shop.b"]}

    perform(scene)


@pytest.mark.slow
def test_a_space_goes_with_all_that_is_in_it_and_not_before(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        async with stage.controlled() as plane:
            for number in range(250):  # more than are deleted with one write
                stage.registry.create(make_address(f"a{number}"))
            stage.registry.create(pipeline())
            stage.registry.create(pipeline(space="other"))
            await stage.settled(plane)
            assert len(stage.node.generations()) == 251
            stage.node.cut()
            await until_async(lambda: node_of(plane).mirror.is_reachable is False)
            stage.registry.delete("AddressSpace", "default", "shop")
            await until_async(lambda: stage.status("AddressSpace", "shop")["phase"] == "Terminating")
            with pytest.raises(ForbiddenError, match="is being deleted"):
                stage.registry.create(make_address("late"))
            with pytest.raises(ForbiddenError, match="is being deleted"):
                stage.registry.create(pipeline("late"))
            await until_async(lambda: not stage.registry.store.select("Address"))
            left = [item["metadata"]["name"] for item in stage.registry.store.select("Pipeline")]
            assert left == ["other.hot"]
            assert len(stage.node.generations()) == 251
            stage.node.connect()
            await until_async(lambda: stage.registry.store.find("AddressSpace", "default", "shop") is None)
            assert stage.node.generations() == {}

    perform(scene)


@pytest.mark.parametrize("kind", ["Address", "Pipeline"])
def test_a_space_goes_when_the_last_that_was_held_in_it_goes(
    perform: Perform, make_space: Make, make_address: Make, kind: str
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        async with stage.controlled() as plane:
            metadata = stage.registry.create(make_address() if kind == "Address" else pipeline())["metadata"]
            name, uid = metadata["name"], metadata["uid"]
            stage.registry.change_finalizers(kind, "default", name, uid=uid, add="example.com/hold")
            await stage.settled(plane)
            stage.registry.delete("AddressSpace", "default", "shop")
            await until_async(lambda: stage.status("AddressSpace", "shop")["phase"] == "Terminating")
            await stage.settled(plane)
            stage.registry.change_finalizers(kind, "default", name, uid=uid, remove="example.com/hold")
            await until_async(lambda: stage.registry.store.find("AddressSpace", "default", "shop") is None)

    perform(scene)


def test_a_finalizer_of_somebody_else_keeps_an_address_served(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        async with stage.controlled() as plane:
            created = stage.registry.create(make_address())
            uid = created["metadata"]["uid"]
            stage.registry.change_finalizers("Address", "default", "shop.orders", uid=uid, add="example.com/drain")
            await stage.settled(plane)
            stage.registry.delete("Address", "default", "shop.orders")
            await stage.settled(plane)
            assert phases(stage, "orders") == ["Terminating"]
            assert "default/shop.orders" in stage.node.generations()
            stage.registry.change_finalizers("Address", "default", "shop.orders", uid=uid, remove="example.com/drain")
            await until_async(lambda: "default/shop.orders" not in stage.node.generations())

    perform(scene)


@pytest.mark.parametrize("kind", ["anycast", "multicast", "stream"])
def test_what_a_brokered_space_can_never_have_is_refused_at_once(
    perform: Perform, make_space: Make, make_address: Make, kind: str
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space(type="brokered"))
        async with stage.controlled() as plane:
            with pytest.raises(InvalidResourceError, match=f"a brokered space has no addresses of type {kind}, only"):
                stage.registry.create(make_address("a", kind))
            for name, stored, more in (
                ("q", "queue", {}),
                ("t", "topic", {}),
                ("s", "subscription", {"topic": "t"}),
                ("d", "deadletter", {}),
            ):
                stage.registry.create(make_address(name, stored, **more))
            await stage.settled(plane)
            assert phases(stage, "q", "t", "s", "d") == ["Active"] * 4

    perform(scene)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("t/+", r"'\+' stands for"),
        ("a#", "'#' stands for"),
        ("top*", r"'\*' stands for"),
        ("b::c", "'::' stands between"),
        ("!!GLOBAL_DLQ", "says where its dead letters go"),
    ],
)
def test_a_new_address_is_not_called_like_a_pattern(
    perform: Perform, make_space: Make, make_address: Make, address: str, problem: str
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        # An earlier version made it.
        stage.registry.create(make_address(address, name="old"))
        async with stage.controlled() as plane:
            with pytest.raises(InvalidResourceError, match=problem):
                stage.registry.create(make_address(address, name="new"))
            with pytest.raises(InvalidResourceError, match="'#' stands for"):
                stage.registry.create(make_address("#", name="root"))
            stage.registry.create(make_address("#", "topic", name="root"))
            stage.registry.replace(make_address(address, name="old", limits={"maxBytes": 4096}))
            await stage.settled(plane)
            assert phases(stage, "old", "root") == ["Active"] * 2

    perform(scene)


def test_what_belongs_to_one_address_names_no_pattern(perform: Perform, make_space: Make, make_address: Make) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        # An earlier version made it.
        stage.registry.create(make_address("t/+", "topic", name="old"))
        async with stage.controlled() as plane:
            await stage.settled(plane)
            with pytest.raises(InvalidResourceError, match="a subscription belongs to one topic"):
                stage.registry.create(make_address("s", "subscription", topic="news/#"))
            with pytest.raises(InvalidResourceError, match="addressPattern reads all streams"):
                stage.registry.create(pipeline("p", address="news/#"))
            with pytest.raises(InvalidResourceError, match=r"sources\[0\]\.addresses"):
                stage.registry.create(pipeline("p", addresses=["a", "news/+"]))
            for name, topic in (("old-one", "t/+"), ("all", "#"), ("later", "news")):
                stage.registry.create(make_address(name, "subscription", topic=topic))
            stage.registry.create(pipeline("p", address="t/+"))
            stage.registry.create(pipeline("q", addressPattern="news/#"))

    perform(scene)


@pytest.mark.parametrize("kind", ["StandardInfraConfig", "BrokeredInfraConfig"])
def test_a_new_infrastructure_has_rejected_messages_come_again(perform: Perform, kind: str) -> None:
    def config(name: str, **spec: Any) -> Resource:
        metadata = {"name": name, "namespace": "enmasse-infra"}
        return decode({"apiVersion": "admin.enmasse.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec})

    def told(stage: Stage, name: str) -> Any:
        spec = stage.registry.store.get(kind, "enmasse-infra", name).get("spec", {})
        return spec.get("broker", {}).get("treatRejectAsUnmodifiedDeliveryFailed")

    async def scene(stage: Stage) -> None:
        stage.registry.create(config("old", broker={"addressFullPolicy": "FAIL"}))  # by an earlier version
        async with stage.controlled():
            stage.registry.create(config("bare"))
            stage.registry.create(config("full", broker={"addressFullPolicy": "FAIL"}))
            stage.registry.create(config("strict", broker={"treatRejectAsUnmodifiedDeliveryFailed": False}))
            assert [told(stage, name) for name in ("default", "bare", "full", "strict")] == [None, True, True, False]
            stage.registry.replace(config("old", broker={"addressFullPolicy": "DROP"}))
            assert told(stage, "old") is None
            stage.registry.replace(config("default", broker={"addressFullPolicy": "FAIL"}))
            assert told(stage, "default") is True

    perform(scene)


def test_an_address_of_two_objects_is_the_first_ones_and_then_the_others(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        async with stage.controlled() as plane:
            stage.registry.create(make_address(name="z"))
            stage.registry.create(make_address(name="a"))
            await stage.settled(plane)
            assert stage.condition("Address", "shop.a", "Scheduled") == (
                "False",
                "DuplicateAddress",
                "address 'orders' already exists with resource name 'shop.z'",
            )
            stage.registry.delete("Address", "default", "shop.z")
            await stage.settled(plane)
            assert phases(stage, "a") == ["Active"]

    perform(scene)


def test_a_change_of_one_address_reconciles_what_depends_on_it_and_nothing_else(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        stage.registry.create(make_address("news", "topic"))
        stage.registry.create(make_address("reader", "subscription", topic="news"))
        for number in range(20):
            stage.registry.create(make_address(f"a{number}"))
        async with stage.controlled() as plane:
            await stage.settled(plane)
            reconciled: list[str] = []
            addresses: Any = plane.context.controllers["addresses"]
            reconcile = addresses.reconcile

            async def noting(key: str) -> bool:
                reconciled.append(key)
                return bool(await reconcile(key))

            addresses.reconcile = noting
            stage.registry.replace(make_address("news", "topic", messageTtl={"maximum": 7}))
            await stage.settled(plane)
            assert set(reconciled) == {"default/shop.news", "default/shop.reader"}
            assert stage.status("Address", "shop.reader")["messageTtl"] == {"maximum": 7}
            reconciled.clear()
            small = stage.registry.store.get("AddressPlan", "enmasse-infra", "standard-small-topic")
            small["spec"]["messageTtl"] = {"maximum": 5}
            stage.registry.replace(decode(small))
            await stage.settled(plane)
            assert set(reconciled) == {"default/shop.news"}
            assert stage.status("Address", "shop.news")["messageTtl"] == {"maximum": 5}

    perform(scene)


def test_a_dry_run_tells_what_would_be_and_leaves_nothing_behind(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(space_plan(limits={"addresses": 2, "connections": 9}))
        async with stage.controlled() as plane:
            await stage.settled(plane)
            found = stage.registry.create(make_space(plan="tiny"), dry_run=True)
            assert found["status"]["limits"] == {"addresses": 2, "connections": 9}
            alone = stage.registry.create(make_address("a"), dry_run=True)
            assert alone["status"]["messages"] == ["address space 'shop' does not exist"]
            stage.registry.create(make_space(plan="tiny"))
            stage.registry.create(make_address("a"))
            await stage.settled(plane)
            fits = stage.registry.create(make_address("b"), dry_run=True)["status"]
            assert fits["conditions"][0]["reason"] == "WouldFit"
            assert fits["conditions"][0]["message"] == "it fits; the address space would use 2 of 2 addresses"
            assert fits["planStatus"] == {
                "name": "standard-small-queue",
                "resources": {"broker": 0.01, "router": 0.001},
            }
            stage.registry.create(make_address("b"))
            await stage.settled(plane)
            waits = stage.registry.create(make_address("c"), dry_run=True)["status"]
            assert waits["phase"] == "Pending"
            assert waits["messages"] == ["Quota exceeded for resource addresses: plan 'tiny' allows 2, 2 are used"]
            changed = stage.registry.replace(make_address("b", messageTtl={"maximum": 9}), dry_run=True)
            assert changed["status"]["messageTtl"] == {"maximum": 9}
            assert "messageTtl" not in stage.status("Address", "shop.b")
            assert stage.registry.store.find("Address", "default", "shop.c") is None

    perform(scene)


def test_what_tenants_may_choose_follows_the_plans(perform: Perform) -> None:
    async def scene(stage: Stage) -> None:
        def plans() -> set[str]:
            found = stage.registry.store.find("AddressSpaceSchema", "", "standard")
            return {item["name"] for item in found["spec"]["plans"]} if found else set()

        async with stage.controlled():
            await until_async(lambda: "standard-small" in plans())
            stage.registry.create(space_plan())
            await until_async(lambda: "tiny" in plans())
            stage.registry.delete("AddressSpacePlan", "enmasse-infra", "tiny")
            await until_async(lambda: "tiny" not in plans())

    perform(scene)


def test_a_plan_that_many_use_changes_and_a_new_address_does_not_wait_for_them(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        for number in range(300):
            stage.registry.create(make_address(f"a{number}"))
        async with stage.controlled() as plane:
            await stage.settled(plane)
            small = stage.registry.store.get("AddressPlan", "enmasse-infra", "standard-small-queue")
            small["spec"]["messageTtl"] = {"maximum": 5}
            stage.registry.replace(decode(small))
            await asyncio.sleep(0)
            stage.registry.create(make_address("new", "anycast"))
            await until_async(lambda: stage.status("Address", "shop.new").get("isReady", False))
            assert not plane.is_settled
            await stage.settled(plane)
            last = stage.status("Address", "shop.a299")
            assert last["messageTtl"] == {"maximum": 5}

    perform(scene)


def test_how_many_addresses_are_in_each_phase_is_known_without_counting(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        counted = stage.registry.tally
        async with stage.controlled() as plane:
            for name in ("a", "b"):
                stage.registry.create(make_address(name))
            await stage.settled(plane)
            assert stage.registry.tally() == {("default/shop", "Pending"): 2} == counted()
            stage.registry.create(make_space())
            await stage.settled(plane)
            stage.registry.delete("Address", "default", "shop.a")
            stage.registry.create(make_address("reader", "subscription", topic="news"))
            await stage.settled(plane)
            assert (
                stage.registry.tally() == {("default/shop", "Active"): 1, ("default/shop", "Pending"): 1} == counted()
            )

    perform(scene)


def test_addresses_that_waited_for_their_space_do_not_get_more_places_than_it_has(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(space_plan(limits={"addresses": 3}))
        names = [f"a{number}" for number in range(9)]
        async with stage.controlled() as plane:
            for name in names:
                stage.registry.create(make_address(name))
            await stage.settled(plane)
            stage.registry.create(make_space(plan="tiny"))
            await stage.settled(plane)
            assert phases(stage, *names) == ["Active"] * 3 + ["Pending"] * 6
            stage.registry.replace(make_space(plan="tiny", limits={"addresses": 3}))
            await stage.settled(plane)
            stage.registry.replace(space_plan(limits={"addresses": 6}))
            await stage.settled(plane)
            assert phases(stage, *names) == ["Active"] * 3 + ["Pending"] * 6  # the space itself says three
            stage.registry.replace(make_space(plan="tiny"))
            await stage.settled(plane)
            assert phases(stage, *names) == ["Active"] * 6 + ["Pending"] * 3

    perform(scene)


def test_a_plan_for_some_namespaces_is_refused_to_others_and_kept_by_who_had_it(
    perform: Perform, make_space: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create_namespaces()
        stage.registry.create(space_plan("gold", namespaces=["enmasse-infra"]))
        stage.registry.create(space_plan("open"))
        async with stage.controlled() as plane:
            stage.registry.create(make_space("theirs", namespace="enmasse-infra", plan="gold"))
            with pytest.raises(
                ForbiddenError, match="'gold' is not for spaces of namespace default; there are free, "
            ):
                stage.registry.create(make_space(plan="gold"))
            stage.registry.create(make_space(plan="open"))
            with pytest.raises(ForbiddenError, match="plan 'gold' is not for"):
                stage.registry.replace(make_space(plan="gold"))
            # Who declares a space before its plan is there gets it no sooner.
            stage.registry.create(make_space("early", plan="later"))
            await stage.settled(plane)
            stage.registry.create(space_plan("later", namespaces=["enmasse-infra"]))
            await stage.settled(plane)
            assert stage.condition("AddressSpace", "early", "PlanApplied")[1] == "PlanNotGranted"
            assert "default/early" not in stage.node.state.spaces
            stage.registry.replace(space_plan("later", namespaces=["enmasse-infra", "default"]))
            await stage.settled(plane)
            assert stage.status("AddressSpace", "early")["isReady"]
            # What has a plan goes on with it.
            stage.registry.replace(space_plan("open", namespaces=["enmasse-infra"]))
            stage.registry.replace(space_plan("later", namespaces=["enmasse-infra"]))
            await stage.settled(plane)
            for name in ("shop", "early"):
                assert stage.status("AddressSpace", name)["isReady"], name
        async with stage.controlled() as plane:
            await stage.settled(plane)
            assert stage.status("AddressSpace", "early")["isReady"]

    perform(scene)


def test_a_plan_without_bounds_is_for_namespaces_that_are_named_where_there_are_tenants(
    perform: Perform, make_space: Make
) -> None:
    tina = Requester.known("tina")

    async def scene(stage: Stage) -> None:
        stage.registry.create_namespaces()
        stage.registry.create(space_plan("endless"))
        stage.registry.create(space_plan("credits", resourceLimits={"router": 1, "broker": 1, "aggregate": 1}))
        stage.registry.create(space_plan("named", namespaces=["default"]))
        stage.registry.create(space_plan("bounded", limits={"connections": 5}))
        async with stage.controlled() as plane:
            # Without tenants, and for an administrator, all are there.
            stage.registry.create(make_space("before", plan="endless"), user=tina)
            stage.registry.add_admission(
                SpaceAdmission(plane.context.placements, plane.context.desired, needs_bounds=True)
            )
            stage.registry.create(make_space("given", plan="endless"))
            wanted = (
                "has no bounds and is for the namespaces that it lists, take bounded, credits, free, named, or an"
            )
            for plan in ("endless", "standard-small"):
                with pytest.raises(
                    ForbiddenError, match=f"plan {plan} {wanted} operator lists default in the plan's"
                ):
                    stage.registry.create(make_space(plan=plan), user=tina)
            stage.registry.create(make_space(plan="bounded"), user=tina)
            for plan in ("credits", "named", "bounded"):
                stage.registry.replace(make_space(plan=plan), user=tina)
            with pytest.raises(ForbiddenError, match="has no bounds"):
                stage.registry.replace(make_space(plan="endless"), user=tina)
            # What has it goes on with it, and may be changed.
            for name in ("before", "given"):
                stage.registry.replace(make_space(name, plan="endless", limits={"connections": 7}), user=tina)
            await stage.settled(plane)
            assert stage.status("AddressSpace", "before")["isReady"]

    perform(scene)


def connectors(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "endpointHosts": [{"host": "mq.example.com"}]} for name in names]


def test_a_connector_that_is_lost_and_reached_again_is_an_event_of_its_space(
    perform: Perform, make_space: Make
) -> None:
    async def scene(stage: Stage) -> None:
        store = stage.registry.store
        uids = itertools.count(1)
        stage.events = events = EventRecorder(
            store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"event-{next(uids)}"
        )

        def told() -> list[tuple[str, str, str]]:
            events.flush()
            found = [item for item in store.select("Event") if item["reason"].startswith("Connector")]
            return [(item["type"], item["reason"], item["message"]) for item in found]

        secret = {"username": {"valueFromSecret": {"name": "far"}}, "password": {"value": "x"}}
        waiting = {**connectors("barn")[0], "credentials": secret}
        stage.registry.create(make_space(connectors=connectors("mill")))
        async with stage.controlled(resync_s=0.005):
            await until_async(lambda: stage.status("AddressSpace", "shop").get("isReady", False))
            assert told() == []
            lost = ("Warning", "ConnectorNotReady", "connector mill does not work: nothing listens there")
            back = ("Normal", "ConnectorReady", "connector mill works")
            for problem, expected in (("nothing listens there", lost), ("", back)):
                stage.node.connectors["default/shop"] = (("mill", problem),)
                stage.node.changes += 1
                await until_async(lambda: expected in told())  # noqa: B023
                (found,) = stage.status("AddressSpace", "shop")["connectors"]
                assert found.get("isReady", False) is not bool(problem)
                assert found.get("messages", []) == [problem] * bool(problem)
            stage.registry.replace(make_space(connectors=[*connectors("mill"), waiting]))
            await until_async(lambda: len(told()) == 3)
            assert any("barn does not work: it waits: there is no Secret default/far" in item[2] for item in told())
            stage.node.cut()
            await until_async(lambda: not stage.status("AddressSpace", "shop").get("isReady", False))
            stage.node.connect()
            await until_async(lambda: stage.status("AddressSpace", "shop").get("isReady", False))
            assert len(told()) == 3, "the space's own events tell of a node that cannot be reached"

    perform(scene)


def test_a_connector_takes_no_name_that_leads_elsewhere_and_no_address_takes_its(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    def refused(act: Callable[[], object]) -> dict[str, str]:
        with pytest.raises(InvalidResourceError) as caught:
            act()
        return {problem.path: problem.message for problem in caught.value.problems}

    async def scene(stage: Stage) -> None:
        registry = stage.registry
        # It may be declared before its space.
        registry.create(make_address("early"))
        registry.create(make_space(connectors=connectors("old")))
        registry.create(make_address("sensors/hall/1", name="a"))
        registry.create(make_address("orders"))
        async with stage.controlled() as plane:
            await stage.settled(plane)
            for name in ("early", "sensors", "orders"):
                found = refused(lambda: registry.replace(make_space(connectors=connectors("old", name))))  # noqa: B023
                assert "would be behind it" in found["spec.connectors[1].name"], name
            for word in DEVICE_WORDS:
                found = refused(lambda: registry.replace(make_space(connectors=connectors(word))))  # noqa: B023
                assert "by which devices reach their endpoints" in found["spec.connectors[0].name"], word
            registry.replace(make_space(connectors=connectors("old", "hall", "order", "telemetry2")))
            for address in ("old", "old/orders", "hall/1", "telemetry2/x"):
                found = refused(
                    lambda: registry.create(make_address(address, name="c"))  # noqa: B023
                )
                assert "what begins so is behind it" in found["spec.address"], address
            registry.create(make_address("older/orders", name="d"))

    perform(scene)


def test_a_space_whose_connector_has_such_a_name_from_before_can_be_changed(
    perform: Perform, make_space: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space(connectors=connectors("telemetry")))
        async with stage.controlled() as plane:
            await stage.settled(plane)
            stage.registry.replace(make_space(connectors=connectors("telemetry"), limits={"connections": 7}))

    perform(scene)


@pytest.mark.parametrize("namespaces", [[], ["Not a Name"], ["a.b"]])
def test_the_namespaces_of_a_plan_are_names_of_namespaces(namespaces: list[str]) -> None:
    with pytest.raises(InvalidResourceError, match=r"spec.namespaces"):
        space_plan(namespaces=namespaces)
