"""Server-side apply and what the server says of fields that are wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.interop.kubectl.kubectl_command import Kubectl, address, space

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubectl")]

SERVER_SIDE = ("--server-side", "--field-manager=team-a")


def test_managers_share_an_object_field_by_field(shop: Kubectl) -> None:
    assert "serverside-applied" in shop.apply(address("shop.shared"), options=SERVER_SIDE)
    labels: dict[str, Any] = {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Address",
        "metadata": {"name": "shop.shared", "labels": {"team": "b"}},
    }
    shop.apply(labels, options=("--server-side", "--field-manager=team-b", "--validate=false"))
    present = shop.document("addr", "shop.shared", *(("--show-managed-fields",) if shop.minor > 20 else ()))
    assert present["spec"]["type"] == "queue"
    assert present["metadata"]["labels"] == {"team": "b"}
    managers = {entry["manager"]: entry for entry in present["metadata"]["managedFields"]}
    assert {"team-a", "team-b"} <= set(managers)
    assert managers["team-b"]["fieldsV1"] == {"f:metadata": {"f:labels": {"f:team": {}}}}
    assert managers["team-a"]["operation"] == "Apply"


def test_a_field_of_somebody_else_is_a_conflict_until_it_is_forced(shop: Kubectl) -> None:
    shop.apply(address("shop.shared", messageTtl={"maximum": 1000}), options=SERVER_SIDE)
    other = address("shop.shared", messageTtl={"maximum": 2000})
    by_other = ("--server-side", "--field-manager=team-b")
    refused = shop.refused("apply", *by_other, "-f", "-", stdin=yaml.safe_dump(other))
    assert "conflict" in refused
    assert "team-a" in refused
    assert ".spec.messageTtl.maximum" in refused
    shop.apply(other, options=(*by_other, "--force-conflicts"))
    assert shop.document("addr", "shop.shared")["spec"]["messageTtl"] == {"maximum": 2000}


def test_what_a_manager_leaves_out_goes(shop: Kubectl) -> None:
    shop.apply(address("shop.shared", messageTtl={"maximum": 1000}), options=SERVER_SIDE)
    shop.apply(address("shop.shared"), options=SERVER_SIDE)
    assert "messageTtl" not in shop.document("addr", "shop.shared")["spec"]


def test_a_server_side_dry_run_and_difference_write_nothing(shop: Kubectl) -> None:
    shop.apply(address("shop.dry"), options=(*SERVER_SIDE, "--dry-run=server"))
    assert "NotFound" in shop.refused("get", "addr", "shop.dry")
    told = shop.run("diff", "--server-side", "-f", shop.file(address("shop.dry")))
    assert told.code == 1, told
    assert "+kind: Address" in told.out


@pytest.mark.parametrize("command", ["create", "apply"])
def test_a_misspelt_field_is_refused_with_its_name(shop: Kubectl, command: str) -> None:
    refused = shop.refused(command, "-f", "-", stdin=yaml.safe_dump(address("shop.typo", mesageTtl={"maximum": 1})))
    assert "mesageTtl" in refused
    assert "NotFound" in shop.refused("get", "addr", "shop.typo")


def test_a_wrong_type_is_refused_with_the_field(shop: Kubectl) -> None:
    wrong = yaml.safe_dump(address("shop.wrong", messageTtl={"maximum": "long"}))
    assert "maximum" in shop.refused("apply", "-f", "-", stdin=wrong)


def test_whoever_asks_not_to_check_gets_a_warning_or_nothing(shop: Kubectl) -> None:
    typo = yaml.safe_dump(address("shop.typo", mesageTtl={"maximum": 1}))
    done = shop.run("apply", "--validate=false", "-f", "-", stdin=typo)
    assert done.code == 0, done.err
    assert "mesageTtl" not in shop.document("addr", "shop.typo")["spec"]
    if shop.minor >= 27:
        done = shop.run("apply", "--validate=warn", "-f", "-", stdin=typo.replace("shop.typo", "shop.warned"))
        assert done.code == 0, done.err
        assert "Warning: unknown field 'spec.mesageTtl'" in done.err


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"type": "queueue"}, "expected one of anycast"),
        ({"address": "two words"}, "spec.address"),
        ({"type": "subscription", "topic": None}, "spec.topic"),
    ],
)
def test_a_broken_rule_is_told_in_words_that_help(shop: Kubectl, spec: dict[str, Any], said: str) -> None:
    document = address("shop.broken")
    document["spec"] = {key: value for key, value in (document["spec"] | spec).items() if value is not None}
    refused = shop.refused("apply", "--validate=false", "-f", "-", stdin=json.dumps(document))
    assert said in refused
    assert "shop.broken" in refused


def test_what_is_not_there_is_told_as_of_any_cluster(kubectl: Kubectl) -> None:
    refused = kubectl.refused("get", "space", "nothing")
    assert (
        f"Error from server (NotFound): there is no AddressSpace 'nothing' in namespace {kubectl.namespace}"
        in refused
    )
    assert 'the server doesn\'t have a resource type "pods"' in kubectl.refused("get", "pods")
    assert kubectl.run("get", "space").err.strip() == f"No resources found in {kubectl.namespace} namespace."
    refused = kubectl.refused("apply", "-f", "-", stdin=yaml.safe_dump(space() | {"apiVersion": "enmasse.io/v9"}))
    assert "no matches for kind" in refused
