"""Kinds of Kubernetes beside our own, and the first form of plans."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.model.kinds.changes import change_problems
from enmasse.model.kinds.core import ConfigMap, Secret
from enmasse.model.kinds.infra import StandardInfraConfig
from enmasse.model.kinds.plans import AddressPlan, AddressSpacePlan
from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.schema.kinds import kind_named
from enmasse.model.schema.objects import decode, restore


def document(api_version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}} | fields


def secret(**fields: Any) -> Secret:
    found = decode(document("v1", "Secret", "keys", **fields))
    assert isinstance(found, Secret)
    return found


def binding(role: str) -> dict[str, Any]:
    return document(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        "ann:edits",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        subjects=[{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann"}],
    )


def problems(given: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidResourceError) as caught:
        decode(given)
    return {problem.path: problem.message for problem in caught.value.problems}


def test_what_is_written_as_text_in_a_secret_is_kept_as_bytes() -> None:
    keys = secret(data={"a": "YQ=="}, stringData={"a": "b", "c": "d"})
    assert keys.to_dict()["data"] == {"a": "Yg==", "c": "ZA=="}
    assert "stringData" not in keys.to_dict()
    assert restore(keys.to_dict()) == keys


def test_what_a_secret_holds_is_in_no_text_and_no_message() -> None:
    keys = secret(stringData={"key": "s3cr3t"})
    assert "s3cr3t" not in f"{keys!r} {keys}"
    assert "czNjcjN0" not in f"{keys!r} {keys}"
    found = problems(document("v1", "Secret", "keys", data={"k": "s3cr3t!"}, stringData={"n": 77777}))
    assert "77777" not in found["stringData.n"]
    assert "s3cr3t" not in str(found)


def test_objects_without_spec_have_none() -> None:
    found = decode(document("v1", "ConfigMap", "facts", data={"service.host": "x"}))
    assert found.to_dict().keys() == {"apiVersion", "kind", "metadata", "data"}
    assert problems(document("v1", "ConfigMap", "facts", spec={})) == {
        "spec": "unknown field: a ConfigMap has no spec"
    }


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_what_is_immutable_stays(kind: str) -> None:
    old = decode(document("v1", kind, "x", data={"a": "YQ=="}, immutable=True))
    for changed, path in (
        ({"data": {"a": "Yg=="}, "immutable": True}, "data"),
        ({"data": {"a": "YQ=="}}, "immutable"),
    ):
        assert [problem.path for problem in change_problems(old, decode(document("v1", kind, "x", **changed)))] == [
            path
        ]
    assert change_problems(old, old) == []
    assert isinstance(old, ConfigMap | Secret)


def test_a_binding_may_have_a_colon_in_its_name() -> None:
    assert decode(binding("edit")).metadata.name == "ann:edits"
    assert problems(binding("edit") | {"metadata": {"name": "a/b"}}).keys() == {"metadata.name"}


def test_a_namespace_has_no_namespace_and_says_only_its_phase() -> None:
    found = decode(document("v1", "Namespace", "team-a"))
    assert found.to_dict()["status"] == {"phase": "Active"}
    assert problems(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "namespace": "b"}}
    ).keys() == {"metadata.namespace"}
    assert problems(document("v1", "Namespace", "a.b")).keys() == {"metadata.name"}


def test_a_name_may_be_left_to_the_service() -> None:
    given = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "facts-"}}
    assert decode(given).metadata.generate_name == "facts-"
    assert problems(given | {"metadata": {}}) == {"metadata.name": "required, but it is missing"}
    assert problems(given | {"metadata": {"generateName": "Facts"}}).keys() == {"metadata.name"}


def test_the_first_form_of_plans_is_read_as_that_of_today() -> None:
    plan = decode(
        document(
            "admin.enmasse.io/v1beta1",
            "AddressPlan",
            "small",
            displayName="Small",
            addressType="queue",
            requiredResources=[{"name": "router", "credit": 0.01}, {"name": "broker", "credit": 0.1}],
        )
    )
    assert isinstance(plan, AddressPlan)
    assert (plan.api_version, plan.spec.resources) == ("admin.enmasse.io/v1beta2", {"router": 0.01, "broker": 0.1})
    space = document(
        "admin.enmasse.io/v1beta1",
        "AddressSpacePlan",
        "all",
        addressSpaceType="standard",
        addressPlans=["small"],
        resources=[{"name": "router", "max": 2.0}, {"name": "aggregate", "max": 2}],
    )
    space["metadata"]["annotations"] = {"enmasse.io/defined-by": "default"}
    decoded = decode(space)
    assert isinstance(decoded, AddressSpacePlan)
    assert (decoded.spec.resource_limits, decoded.spec.infra_config_ref) == ({"router": 2, "aggregate": 2}, "default")


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_plans_may_say_either_version_and_are_kept_in_the_first(version: str) -> None:
    kind = kind_named("plan")
    assert kind is not None
    given = document(f"admin.enmasse.io/{version}", "AddressPlan", "small", spec={"addressType": "queue"})
    assert decode(given).api_version == kind.api_version == "admin.enmasse.io/v1beta2"
    assert kind.base_path("v1beta1") == "/apis/admin.enmasse.io/v1beta1"


@pytest.mark.parametrize(
    ("kind", "spec", "paths"),
    [
        ("AddressPlan", {"addressType": "topic", "partitions": 2}, {"spec.partitions"}),
        (
            "AddressPlan",
            {"addressType": "queue", "retentionBytes": 1, "retentionAge": "1d"},
            {"spec.retentionBytes", "spec.retentionAge"},
        ),
        ("AddressPlan", {"addressType": "queue", "resources": {"broker": -0.1}}, {"spec.resources.broker"}),
        (
            "AddressSpacePlan",
            {"addressSpaceType": "standard", "addressPlans": [], "quota": "credits", "resourceLimits": {"router": 1}},
            {"spec.resourceLimits.broker", "spec.resourceLimits.aggregate"},
        ),
        (
            "AddressSpacePlan",
            {"addressSpaceType": "brokered", "addressPlans": [], "quota": "credits"},
            {"spec.resourceLimits.broker"},
        ),
        (
            "AddressSpacePlan",
            {"addressSpaceType": "brokered", "addressPlans": [], "resourceLimits": {"router": 1, "broker": 1}},
            {"spec.resourceLimits.router"},
        ),
        (
            "AddressSpacePlan",
            {"addressSpaceType": "standard", "addressPlans": [], "ports": {"first": 31000, "last": 30000}},
            {"spec.ports"},
        ),
        ("AddressPlan", {"addressType": "queue", "messageTtl": {"minimum": 2, "maximum": 1}}, {"spec.messageTtl"}),
        (
            "AddressPlan",
            {"addressType": "queue", "messageRedelivery": {"redeliveryDelay": 2, "maximumDeliveryDelay": 1}},
            {"spec.messageRedelivery"},
        ),
    ],
)
def test_plans_that_make_no_sense_are_refused(kind: str, spec: dict[str, Any], paths: set[str]) -> None:
    assert problems(document("admin.enmasse.io/v1beta2", kind, "p", spec=spec)).keys() == paths


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        ({}, "limits"),
        ({"resourceLimits": {"router": 1, "broker": 1, "aggregate": 2}}, "credits"),
        ({"resourceLimits": {"broker": 1}}, "credits"),
        ({"resourceLimits": {"broker": 1}, "limits": {"addresses": 5}}, "limits"),
        ({"resourceLimits": {"broker": 1}, "quota": "limits"}, "limits"),
    ],
)
def test_credits_count_where_a_plan_has_them_and_no_limits(spec: dict[str, Any], policy: str) -> None:
    given = {"addressSpaceType": "standard", "addressPlans": []} | spec
    plan = decode(document("admin.enmasse.io/v1beta2", "AddressSpacePlan", "p", spec=given))
    assert isinstance(plan, AddressSpacePlan)
    assert plan.spec.policy == policy
    assert plan.to_dict()["spec"] == given, "what was left out stays so"


def test_a_plan_in_real_units_needs_no_credits() -> None:
    spec = {"addressSpaceType": "standard", "addressPlans": ["small"], "limits": {"connections": 5}}
    assert decode(document("admin.enmasse.io/v1beta2", "AddressSpacePlan", "p", spec=spec)).to_dict()["spec"] == spec


def test_infrastructure_is_kept_with_a_warning_and_its_budget_is_one() -> None:
    broker = {"resources": {"memory": "512Mi", "cpu": 0.5}, "maxUnavailable": 1, "addressFullPolicy": "FAIL"}
    spec = {"broker": broker, "globalDLQ": True}
    infra = decode(document("admin.enmasse.io/v1beta1", "StandardInfraConfig", "default", spec=spec))
    assert isinstance(infra, StandardInfraConfig)
    assert infra.to_dict()["spec"] == spec
    paths = [item.path for item in infra.unapplied()]
    assert paths == ["spec.broker.maxUnavailable", "spec.broker.resources", "spec.globalDLQ"]
    for size in ("64Mb", "1 GB", "512Mi", "100000", 5):
        given = document(
            "admin.enmasse.io/v1beta1", "StandardInfraConfig", "x", spec={"broker": {"globalMaxSize": size}}
        )
        assert decode(given).to_dict()["spec"]["broker"]["globalMaxSize"] == size
    given = document(
        "admin.enmasse.io/v1beta1", "StandardInfraConfig", "x", spec={"broker": {"globalMaxSize": "64Mbit"}}
    )
    assert problems(given).keys() == {"spec.broker.globalMaxSize"}
    for amount, budget in (("much", True), (True, "half"), ([], -1)):
        wrong: dict[str, Any] = {"broker": {"maxUnavailable": budget, "resources": {"memory": amount}}}
        given = document("admin.enmasse.io/v1beta1", "StandardInfraConfig", "default", spec=wrong)
        assert problems(given).keys() == {"spec.broker.maxUnavailable", "spec.broker.resources.memory"}
    both = {"broker": {"maxUnavailable": 1, "minAvailable": "50%"}}
    given = document("admin.enmasse.io/v1beta1", "StandardInfraConfig", "default", spec=both)
    assert problems(given).keys() == {"spec.broker"}
