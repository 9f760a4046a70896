"""Who finds room: on the machine, and in the quotas of the namespace."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.pipeline.host.capacity import (
    Machine,
    Needs,
    check_capacity,
    needs_of,
    quota_facts,
    this_machine,
    used_of,
)

GI = 2**30
MACHINE = Machine(Decimal(4 * GI + 5), Decimal(2))


def quota(**hard: Any) -> Any:
    return quota_facts({"spec": {"hard": {"count/configmaps": "1", **hard}}, "status": {"used": {}}})


def needs(memory: int = GI, cpu: int = 1) -> Needs:
    return Needs(Decimal(memory), Decimal(cpu))


def own(**resources: Any) -> Pipeline:
    spec = {
        "sources": [{"name": "rows", "address": "in"}],
        "sinks": [{"table": "out"}],
        "resources": {"session": "own"} | resources,
    }
    return Pipeline.model_validate({"metadata": {"name": "shop.a", "namespace": "default"}, "spec": spec})


def test_what_nobody_asks_for_is_a_heap_and_the_machine_and_one_core_where_cores_are_counted() -> None:
    assert needs_of(None, [], MACHINE) == Needs(Decimal(640 * 2**20), Decimal(2))
    assert needs_of(None, [quota(**{"requests.cpu": "4"})], MACHINE).cpu == 1
    assert needs_of(own(), [quota(**{"requests.memory": "4Gi"})], MACHINE).cpu == 2


@pytest.mark.parametrize(
    ("resources", "cpu"),
    [
        ({"cores": 3}, 3),
        ({"master": "local[7]"}, 7),
        ({"master": "local[*]", "cores": 1}, 2),
        ({"master": "local"}, 1),
    ],
)
def test_cores_are_those_that_spark_will_use(resources: dict[str, Any], cpu: int) -> None:
    assert needs_of(own(**resources), [quota(cpu="9")], MACHINE).cpu == cpu


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            needs(500 * GI),
            "it asks for 500Gi of memory and this machine has 4Gi: ask for less in spec.resources.memory",
        ),
        (needs(cpu=64), "it asks for 64 of cores and this machine has 2: ask for less in spec.resources.cores"),
    ],
)
def test_more_than_the_machine_has_is_refused(asked: Needs, message: str) -> None:
    rule = check_capacity(asked, [], {}, MACHINE)
    assert (rule.is_allowed, rule.reason, rule.message) == (False, "TooLarge", message)


@pytest.mark.parametrize(
    ("asks", "message"),
    [
        ({"memory": "3Gi"}, "it asks for 3Gi of memory and the plan of its space allows 2Gi: ask for less in memory"),
        ({"cores": 2}, "it asks for 2 of cores and the plan of its space allows 1: ask for less in cores"),
        ({"memory": "2Gi", "cores": 1}, ""),
        ({}, ""),
    ],
)
def test_a_session_has_no_more_than_the_plan_of_its_space_says(asks: dict[str, Any], message: str) -> None:
    there = MACHINE.within(2 * GI, 1)
    rule = check_capacity(needs_of(own(**asks), [], there), [], {}, there)
    said = rule.message.replace("spec.resources.", "").removesuffix(", or for a larger plan")
    assert (rule.is_allowed, said) == (not message, message)
    # One that asks for nothing, or is of a whole space, is as large as the plan lets it be.
    small = MACHINE.within(600 * 2**20, None)
    assert needs_of(None, [], small) == Needs(Decimal(600 * 2**20), Decimal(2))
    assert MACHINE.within(9 * GI, 9) == MACHINE, "the machine has no more for that"


def test_the_cores_of_a_cluster_are_not_those_of_this_machine() -> None:
    asked = needs_of(own(master="spark://host:7077", cores=64), [], MACHINE)
    assert check_capacity(asked, [], {}, MACHINE).is_allowed


@pytest.mark.parametrize("name", ["requests.memory", "limits.memory", "memory"])
def test_the_sum_of_a_namespace_stays_within_its_quota(name: str) -> None:
    quotas = {"team": quota(**{name: "2Gi"})}
    assert check_capacity(needs(), [needs()], quotas, MACHINE).is_allowed
    rule = check_capacity(needs(), [needs(), needs()], quotas, MACHINE)
    assert (rule.is_allowed, rule.reason) == (False, "QuotaExceeded")
    assert rule.message == (
        f"exceeded quota: team, requested: {name}=1Gi, used: {name}=2Gi, limited: {name}=2Gi; "
        "it starts when others of its namespace have ended"
    )


def test_of_several_quotas_each_counts() -> None:
    quotas = {"wide": quota(memory="100Gi"), "narrow": quota(**{"enmasse.io/sessions": "1"})}
    assert check_capacity(needs(), [], quotas, MACHINE).is_allowed
    assert "exceeded quota: narrow, requested: enmasse.io/sessions=1" in (
        check_capacity(needs(), [needs()], quotas, MACHINE).message
    )


def test_what_is_used_is_told_of_what_runs_alone() -> None:
    found = quota(**{"limits.cpu": "3", "enmasse.io/sessions": 9})
    assert used_of(found, [needs(cpu=2), needs()]) == {"limits.cpu": 3, "enmasse.io/sessions": 2}


def test_this_machine_has_something() -> None:
    assert this_machine().memory > GI // 8
    assert this_machine().cpu >= 1
