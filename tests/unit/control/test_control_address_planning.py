"""Planning of spaces and addresses: pure functions from what is declared to what a node is told, or why it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.addresses.planning import (
    AddressView,
    Reference,
    address_status,
    claim_of,
    judge_address,
    wanted_address,
)
from enmasse.control.ports import AddressEntity, ObservedEntity, SpaceEntity
from enmasse.control.runtime.node_mirror import Outcome
from enmasse.control.runtime.verdicts import ADMITTED, PlanCatalog, Verdict
from enmasse.control.spaces.planning import (
    SpaceView,
    judge_space,
    plan_space_plan,
    readiness,
    space_conditions,
    wanted_space,
)
from enmasse.control.spaces.quota import Place
from enmasse.control.users.authentication_services import resolve_authentication
from enmasse.model.catalog import default_plans
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.model.kinds.addresses import AddressStatus, PlanStatus
from enmasse.model.kinds.limits import AddressLimits, MessageTtl
from enmasse.model.kinds.plans import AddressPlan, AddressSpacePlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.model.schema.resource import Resource

    Make = Callable[..., Resource]

PLANS = PlanCatalog(
    {plan.metadata.name: plan for plan in default_plans() if isinstance(plan, AddressSpacePlan)},
    {plan.metadata.name: plan for plan in default_plans() if isinstance(plan, AddressPlan)},
)


def stored(resource: Resource, *, uid: str = "", generation: int = 1) -> Any:
    metadata = resource.metadata.model_copy(
        update={"uid": uid or f"uid-of-{resource.metadata.name}", "generation": generation}
    )
    return resource.model_copy(update={"metadata": metadata})


@pytest.fixture
def shop(make_space: Make) -> Any:
    return stored(make_space())


def view(space: Any, address: Any, **options: Any) -> AddressView:
    return AddressView(address=address, space=space, plans=options.pop("plans", PLANS), **options)


def test_a_space_and_its_addresses_are_told_in_the_nodes_words(shop: Any, make_address: Make) -> None:
    assert wanted_space(SpaceView(shop, PLANS)) == SpaceEntity("default/shop", "standard", "none", "uid-of-shop", 1)
    reader = stored(make_address("reader", "subscription", topic="news", subscription={"maxConsumers": 3}))
    assert wanted_address(view(shop, reader)) == AddressEntity(
        "default/shop.reader",
        "default/shop",
        "reader",
        "subscription",
        "news",
        0,
        "uid-of-shop.reader",
        1,
        settings=AddressSettings(max_consumers=3),
    )


def test_what_a_plan_limits_is_told(shop: Any, make_address: Make) -> None:
    small = PLANS.addresses["standard-small-queue"]
    limited = small.spec.model_copy(update={"limits": AddressLimits(max_bytes=7, message_rate=5, links=3)})
    plans = PlanCatalog(
        PLANS.spaces, dict(PLANS.addresses) | {"standard-small-queue": small.model_copy(update={"spec": limited})}
    )
    settings = wanted_address(view(shop, stored(make_address(limits={"maxBytes": 9})), plans=plans)).settings
    assert (settings.max_bytes, settings.max_message_rate, settings.max_links) == (7, 5, 3)


def test_the_least_of_what_space_and_plan_say_holds_for_a_space(make_space: Make) -> None:
    free = PLANS.spaces["standard-small"]
    limits = {"maxBytes": 1_000, "connections": 50, "ttl": "1h"}
    planned = type(free.spec).model_validate(free.spec.to_dict() | {"limits": {"connections": 20, "links": 7}})
    plans = PlanCatalog({"standard-small": free.model_copy(update={"spec": planned})}, PLANS.addresses)
    entity = wanted_space(SpaceView(stored(make_space(limits=limits)), plans))
    assert (entity.max_bytes, entity.limits.max_connections, entity.limits.max_links) == (1_000, 20, 7)
    assert entity.limits.max_ttl == 3_600_000


def test_the_status_tells_what_is_in_effect_and_where_it_lies(shop: Any, make_address: Make) -> None:
    orders = stored(make_address(deadletter="failed", messageTtl={"maximum": 5}))
    seen = view(shop, orders)
    status = address_status(seen, wanted_address(seen), Place(), "node-0")
    assert status.message_ttl == MessageTtl(maximum=5)
    assert status.message_redelivery is not None
    assert status.message_redelivery.maximum_delivery_attempts == 10
    assert status.plan_status == PlanStatus(
        name="standard-small-queue", resources=dict(PLANS.addresses["standard-small-queue"].spec.resources)
    )
    assert [item.cluster_id for item in status.broker_statuses] == ["node-0"]
    again = view(shop, orders.model_copy(update={"status": status}))
    assert address_status(again, wanted_address(again), Place(), "node-0") is status
    direct = view(shop, stored(make_address("a", "anycast")))
    assert address_status(direct, wanted_address(direct), Place(), "node-0").broker_statuses == ()


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome("d", ObservedEntity("default/shop", "uid-of-shop", "d")), "Served"),
        (Outcome("d", ObservedEntity("default/shop", "uid-of-shop", "e")), "Configuring"),
        (Outcome("d", ObservedEntity("default/shop", "uid-of-another", "d")), "Configuring"),
        (Outcome("d"), "Configuring"),
        (Outcome("d", is_reachable=False), "NodeUnavailable"),
        (Outcome("d", refusal="no"), "NodeRefused"),
        (Outcome("d", refusal="no", differs=True), "NodeDiffers"),
    ],
)
def test_ready_is_what_the_node_has_as_it_is_declared(shop: Any, outcome: Outcome, reason: str) -> None:
    found = readiness(ADMITTED, wanted_space(SpaceView(shop, PLANS)), outcome, 1)
    assert (found.reason, found.status) == (reason, "True" if reason == "Served" else "False")


def test_what_cannot_be_served_is_not_ready_for_that_reason() -> None:
    found = readiness(Verdict("UnknownPlan", "there is none"), None, None, 3)
    assert (found.status, found.reason, found.observed_generation) == ("False", "UnknownPlan", 3)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"plan": "huge"}, "UnknownPlan"),
        ({"plan": "brokered-single-broker"}, "UnknownPlan"),
        ({"authenticationService": {"name": "keycloak"}}, "UnknownAuthenticationService"),
    ],
)
def test_a_space_that_asks_for_what_does_not_exist_waits_and_so_do_its_addresses(
    make_space: Make, make_address: Make, spec: dict[str, Any], reason: str
) -> None:
    space = stored(make_space(**spec))
    authentication = resolve_authentication(space, {}, lambda _namespace, _name: None)
    verdict = judge_space(SpaceView(space, PLANS, authentication=authentication))
    assert verdict.reason == reason
    assert judge_address(view(space, stored(make_address()), space_verdict=verdict)).reason == "SpaceNotReady"
    assert judge_address(view(space, stored(make_address()), space_verdict=verdict, is_served=True)).reason in {
        "UnknownPlan",  # its own, which no plan of the space offers
        "Admitted",
    }


def test_a_plan_that_does_not_fit_any_more_is_told_and_disturbs_nothing(shop: Any) -> None:
    ready = readiness(ADMITTED, None, None, 1)
    (applied, *_) = space_conditions(SpaceView(shop, PLANS, ("Quota exceeded for resource addresses: ...",)), ready)
    assert (applied.status, applied.reason) == ("True", "QuotaExceeded")
    assert "what is there stays" in applied.message


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
        ({"forwarders": [{"name": "f", "remoteAddress": "far/x", "direction": "out"}]}, "ConnectorMissing"),
    ],
)
def test_a_missing_reference_is_waited_for_with_a_reason(
    shop: Any, make_address: Make, spec: dict[str, Any], reason: str
) -> None:
    assert judge_address(view(shop, stored(make_address("x", **spec)))).reason == reason


def test_a_forwarder_whose_connector_the_space_has_is_fine(make_space: Make, make_address: Make) -> None:
    space = stored(make_space(connectors=[{"name": "far", "endpointHosts": [{"host": "far.example.com"}]}]))
    forwarding = make_address(forwarders=[{"name": "f", "remoteAddress": "far/x", "direction": "out"}])
    assert judge_address(view(space, stored(forwarding))).is_yes


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (Reference(), "topic 'news' does not exist yet"),
        (Reference("queue", is_scheduled=True), "address 'news' is not of type topic but queue"),
        (Reference("topic"), "topic 'news' waits itself"),
    ],
)
def test_a_subscription_waits_for_its_topic(
    shop: Any, make_address: Make, reference: Reference, message: str
) -> None:
    reader = stored(make_address("reader", "subscription", topic="news"))
    assert judge_address(view(shop, reader, references={"news": reference})) == Verdict("TopicMissing", message)
    fine = {"news": Reference("topic", is_scheduled=True)}
    assert judge_address(view(shop, reader, references=fine)).is_yes


def test_an_address_waits_for_its_space(make_address: Make) -> None:
    verdict = judge_address(view(None, stored(make_address())))
    assert verdict == Verdict("SpaceMissing", "address space 'shop' does not exist")


@pytest.mark.parametrize("kind", ["anycast", "multicast", "stream"])
def test_a_brokered_space_has_no_direct_addresses_and_no_streams(
    make_space: Make, make_address: Make, kind: str
) -> None:
    verdict = judge_address(view(stored(make_space(type="brokered")), stored(make_address("a", kind))))
    assert verdict == Verdict(
        "UnknownAddressType",
        f"a brokered space has no addresses of type {kind}, only deadletter, queue, subscription, topic",
    )


def test_one_of_two_objects_with_one_address_waits(shop: Any, make_address: Make) -> None:
    assert judge_address(view(shop, stored(make_address()), rival="shop.z")) == Verdict(
        "DuplicateAddress", "address 'orders' already exists with resource name 'shop.z'"
    )


def test_the_plan_decides_on_partitions_unless_something_did_before(shop: Any, make_address: Make) -> None:
    def partitions(present: AddressEntity | None = None, status: AddressStatus | None = None, **spec: Any) -> int:
        stream = stored(make_address("a", "stream", plan="standard-medium-stream", **spec))
        if status is not None:
            stream = stream.model_copy(update={"status": status})
        return wanted_address(view(shop, stream), present).partitions

    present = replace(wanted_address(view(shop, stored(make_address("a", "stream")))), partitions=9)
    assert partitions() == 4
    assert partitions(partitions=3) == 3
    assert partitions(present) == 9
    assert partitions(present, AddressStatus(plan_status=PlanStatus(name="x", partitions=2))) == 2
    assert partitions(replace(present, uid="another")) == 4


def test_a_claim_is_what_the_plan_says(shop: Any, make_address: Make) -> None:
    claim = claim_of(view(shop, stored(make_address(plan="standard-large-partitioned-queue"))))
    assert (claim.kind, claim.router, claim.broker, claim.partitions) == ("queue", 0.1, 1.0, 3)


def test_a_space_plan_that_offers_unknown_address_plans_says_so() -> None:
    small = PLANS.spaces["standard-small"]
    found = plan_space_plan(small, PlanCatalog(PLANS.spaces, {}))
    assert found.reason == "UnknownPlan"
    assert plan_space_plan(small, PLANS).status == "True"
