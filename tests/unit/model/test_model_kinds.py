"""Decoding of single objects: types, rules, defaults, and messages that help."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from enmasse.control.spaces.effective import effective_settings
from enmasse.model.catalog import default_objects, default_plans
from enmasse.model.kinds.address_settings import ADDRESS_TYPES
from enmasse.model.kinds.addresses import Address
from enmasse.model.kinds.authentication import AuthenticationService
from enmasse.model.kinds.infra import BrokeredInfraConfig, StandardInfraConfig
from enmasse.model.kinds.limits import AddressLimits, SpaceLimits
from enmasse.model.kinds.plans import AddressPlan, AddressSpacePlan
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.schema.conditions import sentences
from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.schema.kinds import KINDS, kind_named
from enmasse.model.schema.names import PLAN_NAMESPACE
from enmasse.model.schema.objects import decode

SOURCES = Path(__file__).parents[3] / "src" / "enmasse"


def space(name: str = "shop", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "AddressSpace",
        "metadata": {"name": name},
        "spec": spec,
    }


def address(name: str = "shop.orders", **spec: Any) -> dict[str, Any]:
    spec = {"address": "orders", "type": "queue"} | spec
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Address",
        "metadata": {"name": name},
        "spec": spec,
    }


def problems(document: Any) -> dict[str, str]:
    with pytest.raises(InvalidResourceError) as caught:
        decode(document)
    return {problem.path: problem.message for problem in caught.value.problems}


def test_a_space_needs_nothing_but_a_name() -> None:
    shop = decode(space())
    assert isinstance(shop, AddressSpace)
    assert (shop.spec.type, shop.spec.plan_name) == ("standard", "standard-small")
    assert shop.spec.authentication_service.is_none


def test_a_space_of_enmasse_1_0_applies_unchanged() -> None:
    shop = decode(
        space(
            type="brokered",
            plan="brokered-single-broker",
            authenticationService={"name": "none-authservice"},
            endpoints=[
                {
                    "name": "messaging",
                    "service": "messaging",
                    "cert": {"provider": "certBundle", "tlsCert": "...", "tlsKey": "..."},
                    "expose": {"type": "loadbalancer", "loadBalancerPorts": ["amqps"]},
                    "exports": [{"kind": "ConfigMap", "name": "shop-config"}],
                }
            ],
            connectors=[
                {
                    "name": "remote1",
                    "endpointHosts": [{"host": "messaging.example.com", "port": 5671}],
                    "tls": {"caCert": {"valueFromSecret": {"name": "certs", "key": "ca.crt"}}},
                    "credentials": {"username": {"value": "u"}, "password": {"value": "p"}},
                    "addresses": [{"name": "all", "pattern": "*"}],
                }
            ],
            networkPolicy={"ingress": [{"from": [{"podSelector": {}}]}]},
        )
    )
    assert decode(shop.to_dict()) == shop
    assert [item.path for item in shop.unapplied()] == [
        "spec.endpoints[0].expose.type",
        "spec.endpoints[0].expose.loadBalancerPorts",
        "spec.networkPolicy",
    ]


def test_an_address_of_enmasse_1_0_applies_unchanged() -> None:
    orders = decode(
        address(
            plan="standard-small-queue",
            deadletter="dlq",
            expiry="late",
            messageTtl={"minimum": 10, "maximum": 30000},
            messageRedelivery={"maximumDeliveryAttempts": 3, "redeliveryDelayMultiplier": 1.5},
            forwarders=[{"name": "f", "remoteAddress": "remote1/target", "direction": "out"}],
        )
    )
    assert isinstance(orders, Address)
    assert decode(orders.to_dict()) == orders
    assert [(item.path, item.is_needed) for item in orders.unapplied()] == [("spec.forwarders", True)]


def test_an_address_with_every_wish_of_ours_applies_and_is_written_the_same() -> None:
    wishes: dict[str, Any] = {
        "storage": "durable",
        "fullPolicy": "drop-oldest",
        "exclusive": True,
        "lastValueKey": "subject",
        "limits": {"maxBytes": 1_000_000, "maxConsumers": 3},
    }
    queue = decode(address(**wishes))
    assert isinstance(queue, Address)
    assert wishes.items() <= queue.to_dict()["spec"].items()
    assert queue.spec.max_consumers == 3
    log = decode(address(type="stream", retention={"bytes": 5_000, "age": "1h30m"}))
    assert isinstance(log, Address)
    assert decode(log.to_dict()) == log
    assert log.spec.retention is not None
    assert (log.spec.retention.size, log.spec.retention.age_ms) == (5_000, 5_400_000)
    assert [*queue.unapplied(), *log.unapplied()] == []


@pytest.mark.parametrize(
    ("remote", "message"),
    [
        ("remote1", "expected <connector>/<address>"),
        ("/orders", "expected <connector>/<address>"),
        ("remote-1/orders", "where the connector is letters and digits"),
        ("remote1/or*ders/x", "'*' stands for a whole word"),
        ("remote1/white space", "without white space"),
    ],
)
def test_a_forwarder_that_leads_nowhere_is_refused(remote: str, message: str) -> None:
    forwarders = [{"name": "f", "remoteAddress": remote, "direction": "out"}]
    found = problems(address(forwarders=forwarders))
    assert list(found) == ["spec.forwarders[0].remoteAddress"]
    assert message in found["spec.forwarders[0].remoteAddress"]


def test_a_pattern_of_a_connector_that_no_address_matches_is_refused() -> None:
    patterns = [
        {"name": "a", "pattern": "orders/#"},
        {"name": "a", "pattern": "or*ders/x"},
        {"name": "replies", "pattern": "$dynamic/#"},
        {"name": "nothing", "pattern": "$"},
        {"name": "user", "pattern": "${user}/x"},
    ]
    connector = {"name": "remote1", "endpointHosts": [{"host": "mq.example.com"}], "addresses": patterns}
    found = problems(space(connectors=[connector]))
    wrong = ("[1].name", "[1].pattern", "[3].pattern", "[4].pattern")
    assert found.keys() == {f"spec.connectors[0].addresses{path}" for path in wrong}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"endpointHosts": []}, "endpointHosts"),
        ({"endpointHosts": [{"host": "mq.example.com"}] * 17}, "endpointHosts"),
        ({"endpointHosts": [{"host": "amqps://mq.example.com"}]}, "endpointHosts[0].host"),
        ({"endpointHosts": [{"host": "u:p@mq"}]}, "endpointHosts[0].host"),
        ({"endpointHosts": [{"host": ""}]}, "endpointHosts[0].host"),
        ({"tls": {"clientCert": {"value": "x"}}}, "tls"),
        ({"tls": {"caCert": {}}}, "tls.caCert"),
        ({"tls": {"caCert": {"value": "x", "valueFromSecret": {"name": "s"}}}}, "tls.caCert"),
        ({"credentials": {"username": {"value": "u"}, "password": {}}}, "credentials.password"),
        ({"maxFrameSize": 511}, "maxFrameSize"),
        ({"idleTimeout": -1}, "idleTimeout"),
        ({"role": "inter-router"}, "role"),
    ],
)
def test_what_is_wrong_with_a_connector_is_named(fields: dict[str, Any], path: str) -> None:
    connector = {"name": "old", "endpointHosts": [{"host": "mq.example.com"}]} | fields
    assert list(problems(space(connectors=[connector]))) == [f"spec.connectors[0].{path}"]


@pytest.mark.parametrize("tls", [{}, None])
def test_a_connector_with_tls_and_nothing_more_is_stored_with_tls(tls: dict[str, str] | None) -> None:
    connector = {"name": "old", "endpointHosts": [{"host": "mq.example.com"}], "tls": tls}
    stored = decode(decode(space(connectors=[connector])).to_dict())
    assert isinstance(stored, AddressSpace)
    assert (stored.spec.connectors[0].tls is None) is (tls is None)


def test_a_connector_names_each_secret_once() -> None:
    from_secret = [{"valueFromSecret": {"name": name}} for name in ("a", "b", "a")]
    credentials = dict(zip(("username", "password"), from_secret, strict=False))
    tls = {"caCert": from_secret[2], "clientCert": {"value": "x"}, "clientKey": from_secret[1]}
    hosts = [{"host": host} for host in ("mq.example.com", "10.1.2.3", "::1", "[fd00::1]", "mq", "MQ-1.example.")]
    found = decode(
        space(connectors=[{"name": "old", "endpointHosts": hosts, "tls": tls, "credentials": credentials}])
    )
    assert isinstance(found, AddressSpace)
    assert found.spec.connectors[0].secrets == ("a", "b")


def test_what_means_nothing_to_a_type_is_warned_of() -> None:
    quotes = decode(address(type="anycast", messageTtl={"maximum": 5}, messageRedelivery={"redeliveryDelay": 5}))
    why = "it is for messages that wait for receivers, and an anycast keeps none so"
    assert sentences(list(quotes.unapplied())) == [f"spec.messageTtl, spec.messageRedelivery have no effect: {why}"]


@pytest.mark.parametrize("address_type", ADDRESS_TYPES)
def test_every_address_type_has_a_default_plan_in_the_catalog(address_type: str) -> None:
    spec = {"type": address_type} | ({"topic": "t"} if address_type == "subscription" else {})
    decoded = decode(address(**spec))
    assert isinstance(decoded, Address)
    plans = {plan.metadata.name: plan for plan in default_plans() if isinstance(plan, AddressPlan)}
    assert plans[decoded.spec.plan_name("standard")].spec.address_type == address_type


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    document = space() | {"kind": "AdressSpace"}
    message = problems(document)["kind"]
    assert message.startswith("expected one of Namespace, ResourceQuota, ConfigMap, ")
    assert message.endswith(
        ", Address, MessagingUser, Pipeline, Webhook, IoTProject, got 'AdressSpace'; did you mean AddressSpace?"
    )


def test_an_api_version_of_another_release_is_refused() -> None:
    assert problems(space() | {"apiVersion": "enmasse.io/v2"}) == {
        "apiVersion": "expected enmasse.io/v1beta1 or enmasse.io/v1alpha1 for kind AddressSpace, got 'enmasse.io/v2'"
    }
    assert decode(space() | {"apiVersion": "enmasse.io/v1alpha1"}).api_version == "enmasse.io/v1beta1"


def test_an_unknown_field_is_refused_with_a_guess_at_what_was_meant() -> None:
    assert problems(address(adress="x"))["spec.adress"] == "unknown field; did you mean 'address'?"


def test_an_unknown_field_deep_inside_is_refused_with_its_path() -> None:
    document = address(forwarders=[{"name": "f", "remoteAddress": "a/b", "direction": "out", "colour": 1}])
    assert problems(document) == {
        "spec.forwarders[0].colour": "unknown field; expected one of direction, name, priority, remoteAddress"
    }


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        ({"address": 5}, "spec.address", "expected a string, got 5; put it in quotes"),
        ({"address": True}, "spec.address", "expected a string, got true; put it in quotes"),
        ({"address": ["a"]}, "spec.address", "expected a string, got a list"),
        ({"type": "stream", "partitions": "4"}, "spec.partitions", "expected a whole number, got '4'"),
        ({"messageTtl": 5}, "spec.messageTtl", "expected a map, got 5"),
        ({"forwarders": {}}, "spec.forwarders", "expected a list, got a map"),
        ({"full_policy": "block"}, "spec.full_policy", "unknown field; did you mean 'fullPolicy'?"),
        ({"exclusive": "yes"}, "spec.exclusive", "expected true or false, got 'yes'"),
        ({"storage": "disk"}, "spec.storage", "expected one of message, memory, durable, got 'disk'"),
        ({"fullPolicy": "page"}, "spec.fullPolicy", "expected one of block, reject, drop-oldest, got 'page'"),
        (
            {"type": "stream", "retention": {"age": "7 days"}},
            "spec.retention.age",
            "expected a duration such as 30s, 15m, 12h, 7d or 1h30m, at most a hundred years, got '7 days'",
        ),
        (
            {"type": "stream", "retention": {"size": 5}},
            "spec.retention.size",
            "unknown field; expected one of age, bytes",
        ),
        ({"deadletter": "orders"}, "spec.deadletter", "expected another address, got 'orders' itself"),
        (
            {"type": "anycast", "expiry": "late"},
            "spec.expiry",
            "only a queue, topic or subscription has it, this is an anycast",
        ),
        (
            {"type": "subscription", "topic": "t", "limits": {"maxConsumers": 2}},
            "spec.limits.maxConsumers",
            "only a queue has it, this is a subscription; use spec.subscription.maxConsumers",
        ),
        (
            {"type": "quue"},
            "spec.type",
            "expected one of anycast, multicast, queue, topic, subscription, stream, deadletter, got 'quue'",
        ),
    ],
)
def test_a_wrong_type_is_refused_with_what_was_expected(spec: dict[str, Any], path: str, message: str) -> None:
    assert problems(address(**spec)) == {path: message}


def test_all_problems_are_told_at_once() -> None:
    assert problems(address(address=1, type=2, plan=3)).keys() == {"spec.address", "spec.type", "spec.plan"}


@pytest.mark.parametrize("wrong", ["a b", "a\tb", "", "$management", "x" * 1025, "a\x00b"])
def test_an_address_is_any_text_without_white_space_that_is_not_the_services_own(wrong: str) -> None:
    assert problems(address(address=wrong)).keys() == {"spec.address"}


@pytest.mark.parametrize("right", ["orders", "Orders/2024#é", "a.b.c", "sensors/+/x", "日本"])
def test_the_objects_name_does_not_restrict_the_address(right: str) -> None:
    decoded = decode(address(name="shop.whatever", address=right))
    assert isinstance(decoded, Address)
    assert decoded.spec.address == right


@pytest.mark.parametrize("name", ["orders", "Shop.orders", ".orders", "shop.", "shop.or ders", "shop..x"])
def test_the_name_of_an_address_is_space_dot_anything(name: str) -> None:
    assert problems(address(name=name)).keys() == {"metadata.name"}


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        ({"type": "subscription"}, {"spec.topic"}),
        ({"type": "queue", "topic": "t"}, {"spec.topic"}),
        ({"type": "queue", "partitions": 3}, {"spec.partitions"}),
        ({"type": "stream", "partitions": 0}, {"spec.partitions"}),
        ({"type": "anycast", "deadletter": "d", "expiry": "e"}, {"spec.deadletter", "spec.expiry"}),
        ({"type": "queue", "subscription": {"maxConsumers": 2}}, {"spec.subscription"}),
        ({"messageTtl": {"minimum": 5, "maximum": 4}}, {"spec.messageTtl"}),
        ({"messageTtl": {"maximum": -1}}, {"spec.messageTtl.maximum"}),
        (
            {"messageRedelivery": {"redeliveryDelayMultiplier": 0.5}},
            {"spec.messageRedelivery.redeliveryDelayMultiplier"},
        ),
        ({"messageRedelivery": {"maximumDeliveryAttempts": -2}}, {"spec.messageRedelivery.maximumDeliveryAttempts"}),
        ({"messageRedelivery": {"redeliveryDelay": 9, "maximumDeliveryDelay": 8}}, {"spec.messageRedelivery"}),
        ({"deadletter": "orders", "expiry": "orders"}, {"spec.deadletter", "spec.expiry"}),
        ({"type": "stream", "storage": "memory", "fullPolicy": "reject"}, {"spec.storage", "spec.fullPolicy"}),
        ({"type": "topic", "exclusive": True, "lastValueKey": "k"}, {"spec.exclusive", "spec.lastValueKey"}),
        ({"type": "topic", "slowPolicy": "drop"}, {"spec.slowPolicy"}),
        ({"type": "multicast", "slowPolicy": "spill", "fallback": "orders"}, {"spec.slowPolicy", "spec.fallback"}),
        ({"type": "queue", "fallback": "q", "distribution": "closest"}, {"spec.fallback", "spec.distribution"}),
        ({"slowPolicy": "spill", "retention": {"age": "1d"}}, {"spec.slowPolicy", "spec.retention"}),
        ({"type": "anycast", "limits": {"maxBytes": 5}}, {"spec.limits.maxBytes"}),
        ({"type": "stream", "limits": {"maxConsumers": 5}}, {"spec.limits.maxConsumers"}),
        ({"limits": {"maxBytes": 0, "maxConsumers": 0}}, {"spec.limits.maxBytes", "spec.limits.maxConsumers"}),
        ({"type": "stream", "retention": {"bytes": 0, "age": "0s"}}, {"spec.retention.bytes", "spec.retention.age"}),
        (
            {"forwarders": [{"name": "f", "remoteAddress": "a", "direction": "out"}]},
            {"spec.forwarders[0].remoteAddress"},
        ),
        (
            {
                "type": "subscription",
                "topic": "t",
                "forwarders": [{"name": "f", "remoteAddress": "a/b", "direction": "in"}],
            },
            {"spec.forwarders[0].direction"},
        ),
        (
            {
                "type": "anycast",
                "forwarders": [{"name": "f", "remoteAddress": "a/b", "direction": "in"}],
            },
            {"spec.forwarders"},
        ),
    ],
)
def test_fields_that_do_not_fit_together_are_refused(spec: dict[str, Any], paths: set[str]) -> None:
    assert problems(address(**spec)).keys() == paths


def test_a_null_means_that_the_field_is_absent() -> None:
    decoded = decode(address(plan=None, topic=None))
    assert isinstance(decoded, Address)
    assert decoded.spec.plan is None


def test_what_a_user_says_about_status_is_left_out() -> None:
    decoded = decode(address() | {"status": {"isReady": True, "anything": 1}})
    assert not decoded.status.is_ready


def test_a_document_that_is_no_map_is_refused() -> None:
    assert "expected a map" in problems(["x"])[""]


def test_kinds_are_found_by_every_name_they_go_by() -> None:
    names = {
        "AddressSpace": ["space", "spaces", "addressspace", "AddressSpaces"],
        "Address": ["address", "addresses", "addr"],
        "AddressPlan": ["plan", "plans", "aplan"],
        "AddressSpacePlan": ["spaceplan", "splan"],
        "StandardInfraConfig": ["sinfra"],
        "BrokeredInfraConfig": ["binfra"],
        "AuthenticationService": ["authsvc"],
        "ConsoleService": ["console"],
        "MessagingNode": ["mnode", "mnodes", "messagingnodes"],
        "MessagingUser": ["muser"],
        "Pipeline": ["pl", "pipe", "pipes", "pipelines"],
        "Webhook": ["hook", "hooks", "webhook", "webhooks"],
        "IoTProject": ["iot", "iotproject", "iotprojects"],
        "AddressSpaceSchema": ["addressspaceschemas"],
        "Namespace": ["ns"],
        "ResourceQuota": ["quota", "resourcequotas"],
        "ConfigMap": ["cm"],
        "Secret": ["secrets"],
        "Service": ["svc"],
        "Event": ["ev"],
        "ClusterRole": ["clusterroles"],
        "ClusterRoleBinding": ["clusterrolebindings"],
        "RoleBinding": ["rolebindings"],
    }
    for kind, spoken in names.items():
        assert {found.name for name in spoken if (found := kind_named(name))} == {kind}
    assert kind_named("pod") is None
    assert len(KINDS) == len(names)


def test_the_catalog_is_consistent_and_lies_in_the_operators_namespace() -> None:
    plans = default_plans()
    addresses = {plan.metadata.name for plan in plans if isinstance(plan, AddressPlan)}
    spaces = [plan for plan in plans if isinstance(plan, AddressSpacePlan)]
    assert {plan.metadata.namespace for plan in plans} == {PLAN_NAMESPACE}
    assert {name for plan in spaces for name in plan.spec.address_plans} == addresses
    assert len(plans) == len(addresses) + len(spaces)


def test_every_plan_of_spaces_leads_to_infrastructure_that_is_there() -> None:
    objects = default_objects()
    infra = {
        ("standard" if isinstance(item, StandardInfraConfig) else "brokered", item.metadata.name)
        for item in objects
        if isinstance(item, StandardInfraConfig | BrokeredInfraConfig)
    }
    needed = {
        (item.spec.address_space_type, item.spec.infra_config_ref)
        for item in objects
        if isinstance(item, AddressSpacePlan)
    }
    assert needed == infra
    services = {item.metadata.name: item.spec.type for item in objects if isinstance(item, AuthenticationService)}
    assert services == {"none-authservice": "none", "standard-authservice": "standard"}


def test_the_free_plan_has_a_cap_in_every_unit_and_its_address_plans_too() -> None:
    plans = {(item.kind, item.metadata.name): item for item in default_plans()}
    free = plans["AddressSpacePlan", "free"]
    assert isinstance(free, AddressSpacePlan)
    assert free.spec.limits is not None
    assert free.spec.limits.to_dict().keys() == {field.alias for field in SpaceLimits.model_fields.values()}
    types = {}
    for name in free.spec.address_plans:
        plan = plans["AddressPlan", name]
        assert isinstance(plan, AddressPlan)
        types[plan.spec.address_type] = plan.spec.limits
    assert types.keys() == set(ADDRESS_TYPES)
    queue = types["queue"]
    assert queue is not None
    assert queue.to_dict().keys() == {field.alias for field in AddressLimits.model_fields.values()}
    assert all(limits is not None and limits.links for limits in types.values())


def test_streams_have_1_4_and_16_partitions() -> None:
    plans = {plan.metadata.name: plan for plan in default_plans() if isinstance(plan, AddressPlan)}
    sizes = ("small", "medium", "large")
    assert [plans[f"standard-{size}-stream"].spec.partitions for size in sizes] == [1, 4, 16]


@pytest.mark.parametrize("room", ["api", "cli", "demo", "engines", "node", "pipeline"])
def test_only_the_model_spells_the_names_of_our_kinds(room: str) -> None:
    named = re.compile("|".join(f'"{kind.name}"' for kind in KINDS if kind.is_ours))
    of_other_things = re.compile(r"cast\(|prompt\(")  # a type, and a question to a person
    spelt = [
        f"{path.name}: {line.strip()}"
        for path in (SOURCES / room).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if named.search(line) and not of_other_things.search(line)
    ]
    assert spelt == [], "take the constant of model/schema/kinds.py"


def test_the_console_s_endpoint_of_enmasse_is_taken_and_not_served() -> None:
    ends = [{"name": name, "service": name} for name in ("messaging", "mqtt", "console")]
    found = decode(space(endpoints=ends))
    assert isinstance(found, AddressSpace)
    assert [endpoint.name for endpoint in found.spec.served_endpoints] == ["messaging", "mqtt"]
    assert [item.path for item in found.unapplied()] == ["spec.endpoints[2]"]
    assert problems(space(endpoints=[{"name": "x", "service": "kafka"}])).keys() == {"spec.endpoints[0].service"}


def test_no_time_to_live_at_most_is_no_bound() -> None:
    found = decode(address(messageTtl={"minimum": 10, "maximum": 0}))
    assert isinstance(found, Address)
    settings = effective_settings(found, None, None)
    assert (settings.ttl_minimum, settings.ttl_maximum) == (10, 0)


@pytest.mark.parametrize(("plan", "in_effect"), [("standard-small-with-mqtt", "standard-small"), ("mine", "mine")])
def test_plans_of_enmasse_with_mqtt_are_those_without(plan: str, in_effect: str) -> None:
    space = AddressSpace.model_validate(
        {"metadata": {"name": "shop", "namespace": "default"}, "spec": {"type": "standard", "plan": plan}}
    )
    assert space.spec.plan_name == in_effect
    said = [(item.path, item.why) for item in space.unapplied()]
    assert said == (
        [("spec.plan", f"its ending alone: every space speaks MQTT, so {in_effect} is in effect")]
        * (plan != in_effect)
    )
