"""Conditions, changes between versions, names and selectors."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.model.kinds.addresses import Address, AddressStatus, PlanStatus
from enmasse.model.kinds.changes import change_problems, keep_immutable
from enmasse.model.kinds.durations import milliseconds, written
from enmasse.model.schema.conditions import Condition, phase_of, stamp, unmet
from enmasse.model.schema.names import is_subdomain, object_name
from enmasse.model.schema.objects import decode
from enmasse.model.schema.selectors import SelectorError, parse_selector


def address(**spec: Any) -> Address:
    decoded = decode(
        {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "Address",
            "metadata": {"name": "shop.x"},
            "spec": {"address": "x", "type": "queue"} | spec,
        }
    )
    assert isinstance(decoded, Address)
    return decoded


def condition(kind: str, status: Any, reason: str = "Because", message: str = "") -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message)


def test_a_condition_keeps_its_time_while_its_truth_is_unchanged() -> None:
    first = stamp([condition("Ready", "False"), condition("Scheduled", "True")], [], "t1")
    second = stamp([condition("Ready", "True"), condition("Scheduled", "True", "Other")], first, "t2")
    assert [(item.type, item.reason, item.last_transition_time) for item in second] == [
        ("Ready", "Because", "t2"),
        ("Scheduled", "Other", "t1"),
    ]


@pytest.mark.parametrize(
    ("conditions", "phase"),
    [
        ([], "Pending"),
        ([condition("Scheduled", "False"), condition("Ready", "False")], "Pending"),
        ([condition("Scheduled", "True"), condition("Ready", "False", "Configuring")], "Configuring"),
        ([condition("Scheduled", "True"), condition("Ready", "False", "NodeRefused")], "Failed"),
        ([condition("Scheduled", "True"), condition("Ready", "True")], "Active"),
    ],
)
def test_the_phase_follows_from_the_conditions(conditions: list[Condition], phase: str) -> None:
    assert phase_of(conditions) == phase
    assert phase_of(conditions, deleted=True) == "Terminating"


def test_messages_are_those_of_the_conditions_that_do_not_hold() -> None:
    conditions = [
        condition("Scheduled", "False", message="no such topic"),
        condition("Ready", "False", message="no such topic"),
        condition("PlanApplied", "True", message="fine"),
    ]
    assert unmet(conditions) == ("no such topic",)


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ({}, {"address": "y"}, "spec.address"),
        ({}, {"type": "topic"}, "spec.type"),
        ({"type": "stream", "partitions": 2}, {"type": "stream", "partitions": 3}, "spec.partitions"),
        ({"type": "subscription", "topic": "a"}, {"type": "subscription", "topic": "b"}, "spec.topic"),
        (
            {"type": "subscription", "topic": "a"},
            {"type": "subscription", "topic": "a", "subscription": {"maxConsumers": 2}},
            "spec.subscription.maxConsumers",
        ),
        ({}, {"storage": "memory"}, "spec.storage"),
        ({"storage": "durable"}, {"storage": "message"}, "spec.storage"),
    ],
)
def test_what_is_fixed_cannot_change(old: dict[str, Any], new: dict[str, Any], path: str) -> None:
    (problem,) = change_problems(address(**old), address(**new))
    assert problem.path == path
    assert "delete Address shop.x and create it anew" in problem.message


def test_a_plan_may_change() -> None:
    assert change_problems(address(), address(plan="standard-large-queue")) == []


def test_the_storage_that_is_the_default_may_be_written_down() -> None:
    assert change_problems(address(), address(storage="message")) == []
    assert keep_immutable(address(storage="durable"), address()).spec.storage == "durable"


@pytest.mark.parametrize(
    ("text", "length_ms"),
    [("1ms", 1), ("30s", 30_000), ("15m", 900_000), ("1h30m", 5_400_000), ("7d", 604_800_000), ("2w", 1_209_600_000)],
)
def test_a_duration_is_numbers_with_units(text: str, length_ms: int) -> None:
    assert milliseconds(text) == length_ms
    assert milliseconds(written(length_ms)) == length_ms


@pytest.mark.parametrize("text", ["", "7", "d", "7 d", "-7d", "1.5h", "7D", "٣d", "99999999999d", "1d\n"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|hundred years"):
        milliseconds(text)


def test_partitions_that_a_plan_decided_may_be_written_down_but_not_changed() -> None:
    status = AddressStatus(plan_status=PlanStatus(name="standard-medium-stream", partitions=4))
    old = address(type="stream").model_copy(update={"status": status})
    assert change_problems(old, address(type="stream", partitions=4)) == []
    assert len(change_problems(old, address(type="stream", partitions=8))) == 1


def test_a_fixed_field_that_is_not_mentioned_keeps_its_value() -> None:
    old = address(type="stream", partitions=3)
    assert keep_immutable(old, address(type="stream")).spec.partitions == 3


@pytest.mark.parametrize("name", ["orders", "Orders", "a/b/c", "日本", "x" * 500, "a..b", "$x", "UPPER.lower"])
def test_every_address_gets_an_object_name_that_kubernetes_takes(name: str) -> None:
    found = object_name("shop", name)
    assert is_subdomain(found)
    assert found.startswith("shop.")
    assert found == object_name("shop", name)


def test_addresses_that_look_alike_get_different_object_names() -> None:
    names = ["a/b", "a-b", "A-b", "a_b", "a.b"]
    assert len({object_name("shop", name) for name in names}) == len(names)


DOCUMENT = {
    "metadata": {"name": "shop.x", "namespace": "default", "labels": {"app": "shop", "tier": "gold"}},
    "spec": {"address": "x", "type": "queue"},
}


@pytest.mark.parametrize(
    ("labels", "fields", "chosen"),
    [
        ("", "", True),
        ("app=shop", "", True),
        ("app==shop,tier!=silver", "", True),
        ("app=other", "", False),
        ("app", "", True),
        ("!app", "", False),
        ("tier in (gold, silver),app", "", True),
        ("app,tier in (gold,silver),absent notin (x,y)", "", True),
        ("app,,", "", True),
        ("tier notin (gold)", "", False),
        ("absent!=x", "", True),
        ("", "metadata.name=shop.x", True),
        ("", "spec.type!=queue", False),
        ("app=shop", "spec.address=y", False),
    ],
)
def test_selectors_choose_as_kubernetes_does(labels: str, fields: str, chosen: bool) -> None:
    assert parse_selector(labels, fields).matches(DOCUMENT) is chosen


@pytest.mark.parametrize(
    ("labels", "fields"),
    [("a=b=c", ""), ("a in b", ""), ("a in (b", ""), ("a in (b,c,d", ""), ("", "spec.plan=x"), ("", "x")],
)
def test_a_selector_that_cannot_be_understood_is_refused(labels: str, fields: str) -> None:
    with pytest.raises(SelectorError):
        parse_selector(labels, fields)
