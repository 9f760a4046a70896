"""Planning: a pure function from what is declared and what is there to steps and conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.admission import PlanCatalog
from enmasse.control.planning import SpacePlan, SpaceView, plan_space, plan_space_plan
from enmasse.control.ports import AddressEntity, AddressSettings, Entity, NodeState, SpaceEntity
from enmasse.model.addresses import Address, AddressStatus, PlanStatus
from enmasse.model.catalog import default_plans
from enmasse.model.limits import AddressLimits
from enmasse.model.plans import AddressPlan, AddressSpacePlan
from enmasse.model.spaces import AddressSpace
from enmasse.model.storing import MessageTtl

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.model.resource import Resource

    Make = Callable[..., Resource]

PLANS = PlanCatalog(
    {plan.metadata.name: plan for plan in default_plans() if isinstance(plan, AddressSpacePlan)},
    {plan.metadata.name: plan for plan in default_plans() if isinstance(plan, AddressPlan)},
)


def stored(resource: Resource, *, uid: str = "", generation: int = 1, created: str = "t1") -> Any:
    metadata = resource.metadata.model_copy(
        update={
            "uid": uid or f"uid-of-{resource.metadata.name}",
            "generation": generation,
            "creation_timestamp": created,
        }
    )
    return resource.model_copy(update={"metadata": metadata})


def view(
    space: AddressSpace | None, *addresses: Address, node: NodeState | None = None, **refusals: str
) -> SpaceView:
    return SpaceView(space, addresses, PLANS, node if node is not None else NodeState(), refusals)


def steps(plan: SpacePlan) -> list[list[str]]:
    return [[f"{step.action} {step.entity.name}" for step in stage] for stage in plan.stages]


def carried_out(plan: SpacePlan, node: NodeState) -> NodeState:
    state = NodeState(dict(node.spaces), dict(node.addresses))
    for stage in plan.stages:
        for step in stage:
            table: dict[str, Any] = state.spaces if isinstance(step.entity, SpaceEntity) else state.addresses
            if step.action == "delete":
                del table[step.entity.name]
            else:
                table[step.entity.name] = step.entity
    return state


def ready(plan: SpacePlan) -> dict[str, tuple[str, str]]:
    return {
        resource.metadata.name: (conditions[-1].status, conditions[-1].reason)
        for resource, conditions in plan.resources
    }


def scheduled(plan: SpacePlan, name: str) -> tuple[str, str]:
    for resource, conditions in plan.resources:
        if resource.metadata.name == name:
            return conditions[0].reason, conditions[0].message
    raise AssertionError(name)


def entities(plan: SpacePlan) -> list[Entity]:
    return [step.entity for stage in plan.stages for step in stage]


@pytest.fixture
def shop(make_space: Make) -> AddressSpace:
    space: AddressSpace = stored(make_space())
    return space


def test_what_is_declared_is_created_spaces_first_and_subscriptions_last(
    shop: AddressSpace, make_address: Make
) -> None:
    news = stored(make_address("news", "topic"))
    reader = stored(make_address("reader", "subscription", topic="news", subscription={"maxConsumers": 3}))
    plan = plan_space(view(shop, reader, news))
    assert steps(plan) == [
        ["create default/shop"],
        ["create default/shop.news"],
        ["create default/shop.reader"],
    ]
    assert entities(plan) == [
        SpaceEntity("default/shop", "standard", "none", "uid-of-shop", 1),
        AddressEntity("default/shop.news", "default/shop", "news", "topic", "", 0, "uid-of-shop.news", 1),
        AddressEntity(
            "default/shop.reader",
            "default/shop",
            "reader",
            "subscription",
            "news",
            0,
            "uid-of-shop.reader",
            1,
            settings=AddressSettings(max_consumers=3),
        ),
    ]
    assert set(ready(plan).values()) == {("False", "Configuring")}


def test_what_was_carried_out_is_ready_and_leaves_nothing_to_do(shop: AddressSpace, make_address: Make) -> None:
    orders = stored(make_address())
    node = carried_out(plan_space(view(shop, orders)), NodeState())
    plan = plan_space(view(shop, orders, node=node))
    assert steps(plan) == []
    assert set(ready(plan).values()) == {("True", "Served")}


def test_a_new_generation_is_an_update_and_not_ready_before(shop: AddressSpace, make_address: Make) -> None:
    node = carried_out(plan_space(view(shop, stored(make_address()))), NodeState())
    changed = stored(make_address(plan="standard-large-queue"), generation=2)
    plan = plan_space(view(shop, changed, node=node))
    assert steps(plan) == [["update default/shop.orders"]]
    assert ready(plan)["shop.orders"] == ("False", "Configuring")


def test_options_are_told_and_may_change_all_but_the_storage(shop: AddressSpace, make_address: Make) -> None:
    before = stored(make_address(messageTtl={"maximum": 5}, limits={"maxBytes": 9}))
    node = carried_out(plan_space(view(shop, before)), NodeState())
    assert node.addresses["default/shop.orders"].settings == AddressSettings(ttl_maximum=5, max_bytes=9)
    after = stored(make_address(expiry="late", fullPolicy="reject"), generation=2)
    late = stored(make_address("late", "deadletter"))
    plan = plan_space(view(shop, after, late, node=node))
    assert steps(plan) == [["update default/shop.orders", "create default/shop.late"]]
    node = carried_out(plan, node)
    assert node.addresses["default/shop.orders"].settings == AddressSettings(expiry="late", full_policy="reject")
    other = stored(make_address(expiry="late", fullPolicy="reject", storage="memory"), generation=3)
    plan = plan_space(view(shop, other, late, node=node))
    assert steps(plan) == []
    assert ready(plan)["shop.orders"] == ("False", "NodeDiffers")


def test_a_plan_that_changes_its_limits_changes_the_addresses(shop: AddressSpace, make_address: Make) -> None:
    orders = stored(make_address())
    node = carried_out(plan_space(view(shop, orders)), NodeState())
    plans = dict(PLANS.addresses)
    small = plans["standard-small-queue"]
    limited = small.spec.model_copy(update={"limits": AddressLimits(max_bytes=7)})
    plans["standard-small-queue"] = small.model_copy(update={"spec": limited})
    changed = plan_space(SpaceView(shop, (orders,), PlanCatalog(PLANS.spaces, plans), node))
    assert steps(changed) == [["update default/shop.orders"]]
    assert ready(changed)["shop.orders"] == ("False", "Configuring")


def test_a_space_is_told_its_limit_and_when_it_changes(make_space: Make) -> None:
    space: Any = stored(make_space(limits={"maxBytes": 1_000}))
    node = carried_out(plan_space(view(space)), NodeState())
    assert node.spaces["default/shop"].max_bytes == 1_000
    larger: Any = stored(make_space(limits={"maxBytes": 2_000}), generation=2)
    assert steps(plan_space(view(larger, node=node))) == [["update default/shop"]]


def test_the_status_tells_what_is_in_effect(shop: AddressSpace, make_address: Make) -> None:
    failed = stored(make_address("failed", "deadletter"))
    orders = stored(make_address(deadletter="failed", messageTtl={"maximum": 5}))
    (found, *_) = [
        item for item, _ in plan_space(view(shop, orders, failed)).resources if item.metadata.name == "shop.orders"
    ]
    assert isinstance(found, Address)
    assert found.status.message_ttl == MessageTtl(maximum=5)
    assert found.status.message_redelivery is not None
    assert found.status.message_redelivery.maximum_delivery_attempts == 10


def test_what_is_not_declared_is_deleted_addresses_before_their_space(shop: AddressSpace, make_address: Make) -> None:
    news = stored(make_address("news", "topic"))
    reader = stored(make_address("reader", "subscription", topic="news"))
    node = carried_out(plan_space(view(shop, news, reader)), NodeState())
    assert steps(plan_space(view(None, node=node))) == [
        ["delete default/shop.reader"],
        ["delete default/shop.news"],
        ["delete default/shop"],
    ]


def test_an_object_made_anew_replaces_its_namesake_on_the_node(shop: AddressSpace, make_address: Make) -> None:
    node = carried_out(plan_space(view(shop, stored(make_address()))), NodeState())
    plan = plan_space(view(shop, stored(make_address(), uid="another"), node=node))
    assert steps(plan) == [["delete default/shop.orders"], ["create default/shop.orders"]]


def test_a_space_made_anew_begins_empty(shop: AddressSpace, make_address: Make) -> None:
    orders = stored(make_address())
    node = carried_out(plan_space(view(shop, orders)), NodeState())
    again = stored(shop, uid="another")
    assert steps(plan_space(view(again, orders, node=node))) == [
        ["delete default/shop.orders"],
        ["delete default/shop"],
        ["create default/shop"],
        ["create default/shop.orders"],
    ]


def test_nothing_is_said_to_a_node_that_cannot_be_reached(shop: AddressSpace, make_address: Make) -> None:
    plan = plan_space(SpaceView(shop, (stored(make_address()),), PLANS, None))
    assert steps(plan) == []
    assert set(ready(plan).values()) == {("False", "NodeUnavailable")}


def test_a_refusal_is_told(shop: AddressSpace, make_address: Make) -> None:
    orders = stored(make_address())
    refusals = {"default/shop.orders": "the node answered 501: no queues today"}
    plan = plan_space(SpaceView(shop, (orders,), PLANS, NodeState(), refusals))
    assert ready(plan)["shop.orders"] == ("False", "NodeRefused")
    assert plan.resources[1][1][-1].message == "the node answered 501: no queues today"


def test_an_address_waits_for_its_space(make_address: Make) -> None:
    plan = plan_space(view(None, stored(make_address())))
    assert steps(plan) == []
    assert scheduled(plan, "shop.orders") == ("SpaceMissing", "address space 'shop' does not exist")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"plan": "huge"}, "UnknownPlan"),
        ({"plan": "brokered-single-broker"}, "UnknownPlan"),
        ({"authenticationService": {"name": "keycloak"}}, "UnknownAuthenticationService"),
        ({"authenticationService": {"type": "external"}}, "UnknownAuthenticationService"),
        ({"authenticationService": {"name": "standard", "type": "none"}}, "UnknownAuthenticationService"),
    ],
)
def test_a_space_that_asks_for_what_does_not_exist_waits_and_so_do_its_addresses(
    make_space: Make, make_address: Make, spec: dict[str, Any], reason: str
) -> None:
    plan = plan_space(view(stored(make_space(**spec)), stored(make_address())))
    assert steps(plan) == []
    assert ready(plan)["shop"] == ("False", reason)
    assert scheduled(plan, "shop.orders")[0] == "SpaceNotReady"


@pytest.mark.parametrize(
    ("service", "kind"),
    [
        ({}, "none"),
        ({"name": "none-authservice"}, "none"),
        ({"name": "standard-authservice"}, "standard"),
        ({"name": "standard", "type": "standard"}, "standard"),
        ({"type": "standard"}, "standard"),
    ],
)
def test_the_node_is_told_who_knows_the_users(make_space: Make, service: dict[str, Any], kind: str) -> None:
    space = stored(make_space(authenticationService=service))
    plan = plan_space(view(space))
    (entity,) = [step.entity for stage in plan.stages for step in stage]
    assert isinstance(entity, SpaceEntity)
    assert entity.authentication == kind
    node = carried_out(plan, NodeState())
    other = stored(make_space(authenticationService={"type": "standard" if kind == "none" else "none"}))
    assert steps(plan_space(view(other, node=node))) == [["update default/shop"]]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"plan": "nope"}, "UnknownPlan"),
        ({"plan": "standard-small-topic"}, "UnknownPlan"),
        ({"plan": "brokered-queue"}, "UnknownPlan"),
        ({"kind": "subscription", "topic": "news"}, "TopicMissing"),
        ({"deadletter": "dlq"}, "DeadletterMissing"),
        ({"expiry": "dlq"}, "DeadletterMissing"),
        ({"kind": "anycast", "fallback": "later"}, "FallbackMissing"),
    ],
)
def test_a_missing_reference_is_waited_for_with_a_reason(
    shop: AddressSpace, make_address: Make, spec: dict[str, Any], reason: str
) -> None:
    plan = plan_space(view(shop, stored(make_address("x", **spec))))
    assert steps(plan) == [["create default/shop"]]
    assert scheduled(plan, "shop.x")[0] == reason


def test_a_subscription_to_something_that_is_no_topic_is_told_so(shop: AddressSpace, make_address: Make) -> None:
    orders = stored(make_address())
    reader = stored(make_address("reader", "subscription", topic="orders"))
    plan = plan_space(view(shop, orders, reader))
    assert scheduled(plan, "shop.reader") == (
        "TopicMissing",
        "address 'orders' is not of type topic but queue",
    )


def test_a_subscription_waits_for_a_topic_that_waits_itself(shop: AddressSpace, make_address: Make) -> None:
    news = stored(make_address("news", "topic", deadletter="dlq"))
    reader = stored(make_address("a-reader", "subscription", topic="news"))
    plan = plan_space(view(shop, reader, news))
    assert scheduled(plan, "shop.a-reader") == (
        "TopicMissing",
        "topic 'news' waits: deadletter 'dlq' does not exist yet",
    )


def test_a_brokered_space_has_no_direct_addresses(make_space: Make, make_address: Make) -> None:
    plan = plan_space(
        view(stored(make_space(type="brokered")), stored(make_address("a", "anycast")), stored(make_address()))
    )
    assert scheduled(plan, "shop.a")[0] == "UnknownAddressType"
    assert steps(plan) == [["create default/shop"], ["create default/shop.orders"]]


def test_of_two_objects_with_one_address_the_older_wins(shop: AddressSpace, make_address: Make) -> None:
    first = stored(make_address(name="z"), created="t1")
    second = stored(make_address(name="a"), created="t2")
    plan = plan_space(view(shop, second, first))
    assert scheduled(plan, "shop.a") == (
        "DuplicateAddress",
        "address 'orders' already exists with resource name 'shop.z'",
    )
    assert steps(plan)[1] == ["create default/shop.z"]


def test_of_two_objects_with_one_address_the_served_one_wins(shop: AddressSpace, make_address: Make) -> None:
    served = stored(make_address(name="z"), created="t2")
    node = carried_out(plan_space(view(shop, served)), NodeState())
    older = stored(make_address(name="a"), created="t1")
    assert scheduled(plan_space(view(shop, older, served, node=node)), "shop.a")[0] == "DuplicateAddress"


def test_what_is_served_stays_when_it_could_not_be_created_any_more(shop: AddressSpace, make_address: Make) -> None:
    orders = stored(make_address())
    node = carried_out(plan_space(view(shop, orders)), NodeState())
    plan = plan_space(SpaceView(shop, (orders,), PlanCatalog(), node))
    assert steps(plan) == []
    assert ready(plan) == {"shop": ("False", "UnknownPlan"), "shop.orders": ("False", "UnknownPlan")}


def test_a_node_that_has_it_otherwise_is_not_made_to_lose_it(shop: AddressSpace, make_address: Make) -> None:
    orders = stored(make_address())
    node = carried_out(plan_space(view(shop, orders)), NodeState())
    entity = node.addresses["default/shop.orders"]
    node.addresses[entity.name] = replace(entity, address_type="topic")
    plan = plan_space(view(shop, orders, node=node))
    assert steps(plan) == []
    assert ready(plan)["shop.orders"] == ("False", "NodeDiffers")
    assert "another address type" in plan.resources[1][1][-1].message


def partitions(plan: SpacePlan) -> list[int]:
    return [item.partitions for item in entities(plan) if isinstance(item, AddressEntity)]


def test_the_plan_decides_on_partitions_unless_the_stream_says_so_itself(
    shop: AddressSpace, make_address: Make
) -> None:
    medium = stored(make_address("a", "stream", plan="standard-medium-stream"))
    own = stored(make_address("b", "stream", plan="standard-medium-stream", partitions=3))
    plan = plan_space(view(shop, medium, own))
    assert partitions(plan) == [4, 3]
    assert [
        item.status.plan_status.partitions
        for item, _ in plan.resources
        if isinstance(item, Address) and item.status.plan_status
    ] == [4, 3]


def test_partitions_stay_when_the_plan_changes(shop: AddressSpace, make_address: Make) -> None:
    small = stored(make_address("a", "stream"))
    node = carried_out(plan_space(view(shop, small)), NodeState())
    large = stored(make_address("a", "stream", plan="standard-large-stream"), generation=2)
    assert partitions(plan_space(view(shop, large, node=node))) == [1]
    known = large.model_copy(
        update={"status": AddressStatus(plan_status=PlanStatus(name="standard-small-stream", partitions=1))}
    )
    assert partitions(plan_space(view(shop, known))) == [1]


def test_a_space_plan_that_offers_unknown_address_plans_says_so() -> None:
    small = PLANS.spaces["standard-small"]
    (condition,) = plan_space_plan(small, PlanCatalog(PLANS.spaces, {}))
    assert condition.reason == "UnknownPlan"
    assert plan_space_plan(small, PLANS)[0].status == "True"
