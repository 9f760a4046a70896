"""What kubectl reads: tables, documents, columns, selections, explanations, changes as they come."""

from __future__ import annotations

import json
import time

import pytest
import yaml

from tests.interop.kubectl.kubectl_command import Kubectl, address, space

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubectl")]


def test_a_table_has_the_columns_of_the_kind(shop: Kubectl) -> None:
    head, *rows = shop.table("addresses")
    assert head == ["NAME", "ADDRESS", "TYPE", "PLAN", "READY", "PHASE", "AGE"]
    assert [row[:6] for row in rows] == [["shop.orders", "orders", "queue", "standard-small-queue", "true", "Active"]]
    assert shop.table("space", "shop")[0] == ["NAME", "TYPE", "PLAN", "READY", "PHASE", "AGE"]
    assert "STATUS" in shop.table("space", "-o", "wide")[0]
    assert shop.table("addr", "--no-headers")[0][0] == "shop.orders"


def test_every_name_of_a_kind_is_understood(shop: Kubectl) -> None:
    for name in ("address", "addresses", "addr", "Address", "addresses.enmasse.io", "addresses.v1beta1.enmasse.io"):
        assert shop.ok("get", name, "-o", "name") == "address.enmasse.io/shop.orders\n"
    assert shop.ok("get", "addr/shop.orders", "space/shop", "-o", "name").splitlines() == [
        "address.enmasse.io/shop.orders",
        "addressspace.enmasse.io/shop",
    ]
    every = shop.ok("get", "enmasse", "-o", "name").splitlines()
    assert {"address.enmasse.io/shop.orders", "addressspace.enmasse.io/shop"} <= set(every)


def test_objects_are_printed_in_every_form(shop: Kubectl) -> None:
    document = shop.document("addr", "shop.orders")
    assert yaml.safe_load(shop.ok("get", "addr", "shop.orders", "-o", "yaml"))["spec"] == document["spec"]
    assert shop.ok("get", "addr", "shop.orders", "-o", "jsonpath={.spec.address} {.status.phase}") == "orders Active"
    columns = "-o=custom-columns=WHAT:.spec.address,SPACE:.metadata.namespace"
    assert shop.table("addr", columns) == [["WHAT", "SPACE"], ["orders", shop.namespace]]
    assert shop.ok("get", "addr", "-o", "go-template={{range .items}}{{.spec.type}}{{end}}") == "queue"
    assert json.loads(shop.ok("get", "addr", "-o", "json"))["kind"] == "List"


def test_all_namespaces_are_listed_at_once(shop: Kubectl) -> None:
    rows = shop.table("addresses", "--all-namespaces")
    assert rows[0][0] == "NAMESPACE"
    assert [shop.namespace, "shop.orders"] in [row[:2] for row in rows]


def test_labels_and_fields_choose(shop: Kubectl) -> None:
    shop.apply(
        address("shop.a") | {"metadata": {"name": "shop.a", "labels": {"team": "red"}}},
        address("shop.b", type="topic", plan="standard-small-topic"),
    )

    def names(*options: str) -> list[str]:
        return shop.ok("get", "addr", *options, "-o", "jsonpath={.items[*].metadata.name}").split()

    assert names("-l", "team=red") == ["shop.a"]
    assert names("-l", "team!=red") == ["shop.b", "shop.orders"]
    assert names("-l", "team in (red, blue)") == ["shop.a"]
    assert names("--field-selector", "spec.type=topic") == ["shop.b"]
    assert names("--field-selector", "metadata.name!=shop.a") == ["shop.b", "shop.orders"]
    assert "field" in shop.refused("get", "addr", "--field-selector", "spec.colour=red").lower()
    assert shop.table("addr", "-L", "team")[0][-1] == "TEAM"


def test_a_long_list_is_read_in_pages(shop: Kubectl) -> None:
    shop.apply(*(address(f"shop.page-{number}") for number in range(7)))
    whole = shop.ok("get", "addr", "-o", "name").splitlines()
    assert len(whole) == 8
    assert shop.ok("get", "addr", "-o", "name", "--chunk-size=3").splitlines() == whole
    assert len(shop.table("addr", "--chunk-size=3")) == 9
    assert [row[0] for row in shop.table("addr", "--sort-by=.metadata.name")[1:]] == [
        name.partition("/")[2] for name in whole
    ]


def test_a_thing_is_described_with_its_events(shop: Kubectl) -> None:
    shop.apply(space("other", plan="no-such-plan"))
    shop.ok("wait", "--for=condition=PlanApplied=False", "--timeout=60s", "space/other")
    told = shop.ok("describe", "space", "other")
    assert "Plan:" in told
    assert "no-such-plan" in told
    assert "Events:" in told
    deadline = time.monotonic() + 30
    while "UnknownPlan" not in (events := told.partition("Events:")[2]):
        assert time.monotonic() < deadline, events
        told = shop.ok("describe", "space", "other")
    assert "UnknownPlan" in shop.ok("get", "events")


def test_what_has_no_effect_can_be_waited_for_and_asked_for(shop: Kubectl) -> None:
    shop.apply(space("walled", networkPolicy={"ingress": [{}]}))
    shop.ok("wait", "--for=condition=InEffect=False", "--timeout=60s", "space/walled")
    message = '{.status.conditions[?(@.type=="InEffect")].message}'
    assert "spec.networkPolicy" in shop.ok("get", "space", "walled", "-o", f"jsonpath={message}")


def test_what_there_is_can_be_discovered(kubectl: Kubectl) -> None:
    resources = kubectl.ok("api-resources", "--no-headers", "-o", "wide")
    addresses = next(line for line in resources.splitlines() if line.startswith("addresses "))
    assert "addr" in addresses
    assert "true" in addresses
    assert all(verb in addresses for verb in ("create", "delete", "get", "list", "patch", "update", "watch"))
    versions = kubectl.ok("api-versions").split()
    assert {"v1", "enmasse.io/v1beta1", "admin.enmasse.io/v1beta2", "user.enmasse.io/v1beta1"} <= set(versions)
    namespaced = kubectl.ok("api-resources", "--namespaced=false", "-o", "name").split()
    assert "namespaces" in namespaced
    assert "addresses.enmasse.io" in kubectl.ok("api-resources", "--api-group=enmasse.io", "-o", "name").split()
    assert "GitVersion" in kubectl.ok("version", "-o", "yaml").replace("gitVersion", "GitVersion")


def test_fields_are_explained(kubectl: Kubectl) -> None:
    told = kubectl.ok("explain", "addresses")
    assert "destination" in told
    assert "spec" in told
    told = kubectl.ok("explain", "addresses.spec.messageRedelivery")
    assert "maximumDeliveryAttempts" in told
    assert "integer" in told
    assert "attempts to deliver" in kubectl.ok("explain", "addr.spec.messageRedelivery").lower()
    assert "networkPolicy" in kubectl.ok("explain", "addressspace", "--recursive")
    assert "resourceLimits" in kubectl.ok("explain", "addressspaceplan.spec")
    assert "managedFields" in kubectl.ok("explain", "address.metadata")
    assert "colour" in kubectl.refused("explain", "address.spec.colour")


def test_changes_are_shown_as_they_come(shop: Kubectl) -> None:
    with shop.running("get", "addr", "--watch") as watch:
        watch.wait_for("shop.orders")
        shop.apply(address("shop.later"))
        watch.wait_for("shop.later")
        shop.ok("patch", "addr", "shop.later", "--type=merge", "-p", '{"spec": {"plan": "no-such-plan"}}')
        watch.wait_for("no-such-plan")
