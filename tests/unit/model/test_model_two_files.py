"""Flavors and addresses of 2016 become plans, a space and addresses."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.model.kinds.addresses import GROUP, Address
from enmasse.model.kinds.plans import AddressPlan, AddressSpacePlan
from enmasse.model.kinds.two_files import from_two_files
from enmasse.model.schema.errors import ManifestError
from enmasse.model.schema.resource import Resource

FLAVORS = {
    "vanilla-queue": {"templateName": "queue-persisted", "templateParameters": {"STORAGE_CAPACITY": "2Gi"}},
    "quick": {"templateName": "queue-inmemory"},
}


def read(addresses: Any, flavors: Any = None) -> list[Resource]:
    return from_two_files(addresses, flavors, space="shop", namespace="default", sources=("a.json", "f.json"))


@pytest.mark.parametrize(
    ("stored", "multicast", "kind"),
    [(False, False, "anycast"), (False, True, "multicast"), (True, False, "queue"), (True, True, "topic")],
)
def test_two_flags_tell_the_type(stored: bool, multicast: bool, kind: str) -> None:
    *_, address = read({"x": {"store_and_forward": stored, "multicast": multicast}})
    assert isinstance(address, Address)
    assert (address.spec.address, address.spec.type, address.spec.plan) == ("x", kind, f"standard-small-{kind}")


def test_a_flavor_becomes_a_plan_for_each_type_that_uses_it() -> None:
    stored = {"store_and_forward": True, "flavor": "vanilla-queue"}
    resources = read({"q": {**stored, "multicast": False}, "t": {**stored, "multicast": True}}, FLAVORS)
    plans = {item.metadata.name: item for item in resources if isinstance(item, AddressPlan)}
    assert sorted(plans) == ["vanilla-queue-queue", "vanilla-queue-topic"]
    limits = plans["vanilla-queue-queue"].spec.limits
    assert limits is not None
    assert limits.max_bytes == 2 << 30
    space_plan = next(item for item in resources if isinstance(item, AddressSpacePlan))
    assert {"vanilla-queue-queue", "vanilla-queue-topic"} <= set(space_plan.spec.address_plans)


def test_a_template_in_memory_makes_queues_in_memory_and_a_group_is_kept() -> None:
    entry = {"store_and_forward": True, "multicast": False, "flavor": "quick", "group_id": "g1"}
    *_, queue = read({"q": entry}, FLAVORS)
    assert isinstance(queue, Address)
    assert queue.spec.storage == "memory"
    assert queue.metadata.annotations == {GROUP: "g1"}


def test_parameters_of_a_template_that_mean_nothing_today_are_kept_and_reported() -> None:
    flavors = {"big": {"templateParameters": {"STORAGE_CAPACITY": "2Gi", "BROKER_MEMORY": "1Gi", "COLOUR": 3}}}
    resources = read({"q": {"store_and_forward": True, "flavor": "big", "group_id": "g1"}}, flavors)
    plan = next(item for item in resources if isinstance(item, AddressPlan))
    (found,) = plan.unapplied()
    assert found.path == "metadata.annotations[enmasse.io/template-parameters]"
    assert found.why.endswith("BROKER_MEMORY=1Gi COLOUR=3")
    assert [item.path for item in resources[-1].unapplied()] == [f"metadata.annotations[{GROUP}]"]


def test_direct_addresses_need_no_plan_of_their_flavor() -> None:
    resources = read({"x": {"store_and_forward": False, "multicast": False, "flavor": "quick"}}, FLAVORS)
    assert not [item for item in resources if isinstance(item, AddressPlan)]


@pytest.mark.parametrize(
    ("addresses", "flavors", "message"),
    [
        ([], None, "a.json: expected a map of names"),
        ({"x": 1}, None, "x: expected a map with store_and_forward"),
        ({"x": {"multicast": "no"}}, None, "x.multicast: expected true or false"),
        ({"x": {"colour": 1}}, None, "x.colour: unknown; there are store_and_forward"),
        ({"x": {"flavor": "none"}}, FLAVORS, "unknown flavor 'none'; there are quick, vanilla-queue"),
        ({"x": {"flavor": "none"}}, None, "no flavors were given"),
        ({}, {"f": {"templateParameters": {"STORAGE_CAPACITY": "much"}}}, "expected an amount of bytes such as 2Gi"),
        ({}, {"f": {"templateParameters": 7}}, "f.templateParameters: expected a map"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(addresses: Any, flavors: Any, message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read(addresses, flavors)
    assert message in str(caught.value)
