"""What is in effect: the address, its topic, its plan and the defaults, in this order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.spaces.effective import effective_settings, effective_space_bytes, effective_status
from enmasse.model.kinds.address_settings import MAX_MS, AddressSettings
from enmasse.model.kinds.addresses import AddressStatus
from enmasse.model.kinds.infra import BrokerInfra
from enmasse.model.kinds.plans import AddressPlanSpec, AddressSpacePlanSpec
from enmasse.model.kinds.spaces import AddressSpaceSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.model.kinds.address_settings import AddressType, FullPolicy, RejectPolicy
    from enmasse.model.schema.resource import Resource

    Make = Callable[..., Resource]


def plan(kind: str = "queue", **spec: Any) -> AddressPlanSpec:
    return AddressPlanSpec.model_validate({"addressType": kind} | spec)


@pytest.fixture
def settle(make_address: Make) -> Callable[..., AddressSettings]:
    """Return a function from an address's spec, and its plan's, to what is in effect."""

    def settle(kind: str = "queue", planned: AddressPlanSpec | None = None, **spec: Any) -> AddressSettings:
        address: Any = make_address(kind=kind, **spec)
        return effective_settings(address, planned or plan(kind), None)

    return settle


@pytest.mark.parametrize("kind", ["anycast", "multicast", "queue", "topic", "stream", "deadletter"])
def test_an_address_that_says_nothing_is_as_the_node_has_it_by_default(settle: Any, kind: str) -> None:
    assert settle(kind) == AddressSettings()


def test_with_a_deadletter_and_nothing_said_there_are_10_attempts_without_delay(settle: Any) -> None:
    assert settle(deadletter="failed") == AddressSettings(deadletter="failed", max_attempts=10)


@pytest.mark.parametrize(("said", "told"), [(-1, 0), (0, 0), (1, 1), (25, 25)])
def test_attempts_that_are_said_count_with_and_without_a_deadletter(settle: Any, said: int, told: int) -> None:
    redelivery = {"maximumDeliveryAttempts": said}
    assert settle(deadletter="failed", messageRedelivery=redelivery).max_attempts == told
    assert settle(messageRedelivery=redelivery).max_attempts == told


def test_redelivery_overrides_its_plan_field_by_field(settle: Any) -> None:
    planned = plan(messageRedelivery={"maximumDeliveryAttempts": 5, "redeliveryDelay": 100})
    said = {"maximumDeliveryAttempts": 50, "redeliveryDelayMultiplier": 2, "maximumDeliveryDelay": 1_000}
    found = settle(planned=planned, messageRedelivery=said)
    assert (found.max_attempts, found.redelivery_delay) == (50, 100)
    assert (found.redelivery_delay_multiplier, found.max_redelivery_delay) == (2.0, 1_000)


@pytest.mark.parametrize(
    ("said", "planned", "told"),
    [
        ({"minimum": 10, "maximum": 20}, {}, (10, 20)),
        ({}, {"minimum": 10, "maximum": 20}, (10, 20)),
        ({"minimum": 12, "maximum": 18}, {"minimum": 10, "maximum": 20}, (12, 18)),
        ({"minimum": 5, "maximum": 50}, {"minimum": 10, "maximum": 20}, (10, 20)),
        ({"minimum": 30}, {"maximum": 20}, (20, 20)),
        ({"minimum": 30}, {}, (30, 0)),
        ({"maximum": (1 << 63) - 1}, {}, (0, MAX_MS)),
    ],
)
def test_a_time_to_live_only_narrows_its_plans(
    settle: Any, said: dict[str, int], planned: dict[str, int], told: tuple[int, int]
) -> None:
    found = settle(planned=plan(messageTtl=planned), messageTtl=said)
    assert (found.ttl_minimum, found.ttl_maximum) == told


@pytest.mark.parametrize(("said", "planned", "told"), [(5, None, 5), (None, 7, 7), (5, 7, 5), (9, 7, 7)])
def test_limits_only_narrow_their_plans(settle: Any, said: int | None, planned: int | None, told: int) -> None:
    limits = plan(limits={"maxBytes": planned, "maxConsumers": planned})
    found = settle(planned=limits, limits={"maxBytes": said, "maxConsumers": said})
    assert (found.max_bytes, found.max_consumers) == (told, told)


@pytest.mark.parametrize(
    ("said", "planned", "told"), [(5, None, 5), (None, 7, 7), (5, 7, 5), (9, 7, 7), (None, None, 0)]
)
def test_a_space_only_narrows_its_plan(said: int | None, planned: int | None, told: int) -> None:
    spec = AddressSpaceSpec.model_validate({"limits": {"maxBytes": said}})
    space_plan = AddressSpacePlanSpec.model_validate(
        {"addressSpaceType": "standard", "resourceLimits": {}, "addressPlans": [], "limits": {"maxBytes": planned}}
    )
    assert effective_space_bytes(spec, space_plan) == told
    assert effective_space_bytes(spec, None) == (said or 0)


def test_retention_only_narrows_its_plans(settle: Any) -> None:
    planned = plan("stream", retentionBytes=1_000, retentionAge="7d")
    assert settle("stream", planned) == AddressSettings(retention_bytes=1_000, retention_ms=604_800_000)
    found = settle("stream", planned, retention={"bytes": 2_000, "age": "1h"})
    assert (found.retention_bytes, found.retention_ms) == (1_000, 3_600_000)


def test_policies_override_their_plans(settle: Any) -> None:
    planned = plan("topic", fullPolicy="reject", slowPolicy="block")
    assert settle("topic", planned) == AddressSettings(full_policy="reject", slow_policy="block")
    found = settle("topic", planned, fullPolicy="drop-oldest", slowPolicy="spill")
    assert (found.full_policy, found.slow_policy) == ("drop-oldest", "spill")
    assert settle("queue", plan("queue", slowPolicy="block")).slow_policy == "drop-oldest"


def test_direct_addresses_are_told_where_to_fall_back_to_and_whom_to_wait_for(settle: Any) -> None:
    found = settle("anycast", fallback="later", distribution="closest")
    assert found == AddressSettings(fallback="later", distribution="closest")
    assert settle("multicast", slowPolicy="block") == AddressSettings(slow_policy="block")
    assert settle("multicast", plan("multicast", slowPolicy="block"), slowPolicy="drop") == AddressSettings()


def test_a_queue_is_told_that_it_is_exclusive_and_what_its_key_is(settle: Any) -> None:
    assert settle(exclusive=True, lastValueKey="subject") == AddressSettings(exclusive=True, last_value_key="subject")


def test_a_subscription_is_as_its_topic_where_it_says_nothing(make_address: Make) -> None:
    news: Any = make_address(
        "news",
        "topic",
        deadletter="failed",
        expiry="late",
        messageTtl={"maximum": 100},
        messageRedelivery={"maximumDeliveryAttempts": 4, "redeliveryDelay": 9},
    )
    silent: Any = make_address("a", "subscription", topic="news")
    assert effective_settings(silent, None, news) == AddressSettings(
        max_consumers=1, deadletter="failed", expiry="late", ttl_maximum=100, max_attempts=4, redelivery_delay=9
    )
    outspoken: Any = make_address(
        "b",
        "subscription",
        topic="news",
        deadletter="other",
        messageTtl={"maximum": 50},
        messageRedelivery={"maximumDeliveryAttempts": 1},
        subscription={"maxConsumers": 3},
    )
    assert effective_settings(outspoken, None, news) == AddressSettings(
        max_consumers=3, deadletter="other", expiry="late", ttl_maximum=50, max_attempts=1, redelivery_delay=9
    )


def test_a_topic_has_no_limit_of_receivers_whatever_its_plan_says(settle: Any) -> None:
    assert settle("topic", plan("topic", limits={"maxConsumers": 3, "links": 4})) == AddressSettings(max_links=4)


def told(kind: AddressType, settings: AddressSettings) -> dict[str, Any]:
    status = effective_status(AddressStatus(), kind, settings).to_dict()
    return {key: status[key] for key in status if key not in ("isReady", "phase")}


def test_the_status_tells_what_is_in_effect() -> None:
    settings = AddressSettings(max_bytes=5, max_consumers=2, ttl_maximum=9, max_attempts=10, redelivery_delay=3)
    redelivery = {
        "maximumDeliveryAttempts": 10,
        "redeliveryDelay": 3,
        "redeliveryDelayMultiplier": 1.0,
        "maximumDeliveryDelay": 0,
    }
    assert told("queue", settings) == {
        "messageTtl": {"maximum": 9},
        "messageRedelivery": redelivery,
        "limits": {"maxBytes": 5, "maxConsumers": 2},
    }
    assert told("subscription", settings)["subscription"] == {"maxConsumers": 2}
    assert told("queue", AddressSettings())["messageRedelivery"]["maximumDeliveryAttempts"] == -1
    kept = AddressSettings(retention_bytes=7, retention_ms=90_000)
    assert told("stream", kept) == {"retention": {"bytes": 7, "age": "90s"}}
    assert told("anycast", AddressSettings()) == {}
    assert told("deadletter", AddressSettings(max_attempts=2))["messageRedelivery"]["maximumDeliveryAttempts"] == 2


def test_a_status_that_tells_it_already_stays_the_same_object() -> None:
    settings = AddressSettings(ttl_maximum=9)
    status = effective_status(AddressStatus(), "queue", settings)
    assert effective_status(status, "queue", settings) is status
    assert effective_status(status, "queue", AddressSettings()).message_ttl is None


@pytest.mark.parametrize("kind", ["queue", "topic", "deadletter"])
@pytest.mark.parametrize(
    ("said", "full", "rejects"),
    [
        ({}, "block", ""),
        ({"addressFullPolicy": "PAGE"}, "block", ""),
        ({"addressFullPolicy": "BLOCK"}, "block", ""),
        ({"addressFullPolicy": "FAIL", "treatRejectAsUnmodifiedDeliveryFailed": True}, "reject", "retry"),
        ({"addressFullPolicy": "DROP", "treatRejectAsUnmodifiedDeliveryFailed": False}, "drop-oldest", "deadletter"),
    ],
)
def test_brokers_of_the_infrastructure_say_what_is_left_open(
    make_address: Make, kind: str, said: dict[str, Any], full: FullPolicy, rejects: RejectPolicy
) -> None:
    broker = BrokerInfra.model_validate(said)
    address: Any = make_address(kind=kind)
    found = effective_settings(address, plan(kind), None, broker)
    assert found == AddressSettings(full_policy=full, reject_policy=rejects)
    planned = plan(kind, fullPolicy="drop-oldest", messageRedelivery={"rejectPolicy": "retry"})
    found = effective_settings(address, planned, None, broker)
    assert found == AddressSettings(full_policy="drop-oldest", reject_policy="retry")
