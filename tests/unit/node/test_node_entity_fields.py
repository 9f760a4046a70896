"""Attributes of entities: what each takes, which type has it, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.messaging.address_types import ADDRESS_TYPES
from enmasse.messaging.limits import SpaceLimits
from enmasse.model.kinds import address_settings, addresses
from enmasse.model.kinds.address_settings import MAX_MS, AddressSettings
from enmasse.node.errors import EntityError
from enmasse.node.management.entity_fields import (
    ADDRESS_TYPE,
    SPACE_TYPE,
    check_address,
    checked,
    settings_of,
    space_limits,
)

WISHES: dict[str, Any] = {
    "storage": "durable",
    "maxBytes": 1_000,
    "maxConsumers": 2,
    "fullPolicy": "reject",
    "ttlMinimum": 10,
    "ttlMaximum": 20,
    "maxAttempts": 3,
    "redeliveryDelay": 100,
    "redeliveryDelayMultiplier": 1.5,
    "maxRedeliveryDelay": 1_000,
    "deadletter": "failed",
    "expiry": "late",
    "exclusive": True,
    "lastValueKey": "subject",
}


def test_the_types_of_addresses_are_those_of_the_model() -> None:
    assert tuple(ADDRESS_TYPES) == address_settings.ADDRESS_TYPES
    assert addresses.FIELD_OWNERS["topic"] == tuple(row.name for row in ADDRESS_TYPES.values() if row.needs_topic)
    kept = tuple(row.name for row in ADDRESS_TYPES.values() if row.of.is_read_by_offset)
    assert addresses.FIELD_OWNERS["retention"] == kept


def made(kind: str = "queue", **attributes: Any) -> dict[str, Any]:
    asked = {"space": "ns/shop", "address": "q", "addressType": kind, **attributes}
    record = checked(ADDRESS_TYPE, "ns/q", asked)
    check_address("ns/q", record)
    return record


def refusal(kind: str = "queue", **attributes: Any) -> str:
    with pytest.raises(EntityError) as caught:
        made(kind, **attributes)
    assert caught.value.status == 400
    return caught.value.description


def test_every_wish_reaches_the_options_of_the_address() -> None:
    assert settings_of(made(**WISHES)) == AddressSettings(
        max_bytes=1_000,
        full_policy="reject",
        storage="durable",
        ttl_minimum=10,
        ttl_maximum=20,
        max_attempts=3,
        redelivery_delay=100,
        redelivery_delay_multiplier=1.5,
        max_redelivery_delay=1_000,
        deadletter="failed",
        expiry="late",
        max_consumers=2,
        exclusive=True,
        last_value_key="subject",
    )
    assert settings_of(made("topic", slowPolicy="spill")) == AddressSettings(slow_policy="spill")


def test_an_address_without_wishes_has_the_defaults() -> None:
    assert settings_of(made()) == AddressSettings()


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"ttlMaximum": -1}, "attribute ttlMaximum takes a whole number from 0 on, not -1"),
        ({"ttlMinimum": 1.5}, "attribute ttlMinimum takes a whole number from 0 on, not 1.5"),
        ({"ttlMinimum": 5, "ttlMaximum": 4}, "ttlMinimum is at most ttlMaximum, but 5 is more than 4"),
        ({"ttlMaximum": MAX_MS + 1}, f"attribute ttlMaximum takes at most {MAX_MS}, not {MAX_MS + 1}"),
        ({"maxAttempts": -1}, "attribute maxAttempts takes a whole number from 0 on, not -1"),
        ({"maxAttempts": 1 << 63}, f"attribute maxAttempts takes at most {(1 << 63) - 1}"),
        ({"redeliveryDelayMultiplier": 0.5}, "attribute redeliveryDelayMultiplier takes at least 1, not 0.5"),
        ({"redeliveryDelayMultiplier": "2"}, "attribute redeliveryDelayMultiplier takes a number, not '2'"),
        ({"redeliveryDelayMultiplier": float("nan")}, "takes a number, not nan"),
        ({"redeliveryDelayMultiplier": float("inf")}, "takes a number, not inf"),
        ({"redeliveryDelayMultiplier": 1e9}, "takes at most 1000, not"),
        ({"fullPolicy": "page"}, "'page' is no full policy; there are block, reject, drop-oldest"),
        ({"storage": "disk"}, "'disk' is no storage; there are message, memory, durable"),
        ({"exclusive": 1}, "attribute exclusive takes true or false, not 1"),
        ({"deadletter": 5}, "attribute deadletter takes a string, not 5"),
        ({"deadletter": "q"}, "attribute deadletter of 'ns/q' names the address itself"),
        ({"expiry": "q"}, "attribute expiry of 'ns/q' names the address itself"),
        ({"slowPolicy": "spill"}, "only a topic or multicast has the attribute slowPolicy, and 'ns/q' is a queue"),
        ({"retentionBytes": 5}, "only a stream has the attribute retentionBytes, and 'ns/q' is a queue"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused_with_a_sentence(attributes: dict[str, Any], why: str) -> None:
    assert why in refusal(**attributes)


@pytest.mark.parametrize("kind", ["anycast", "multicast", "stream"])
def test_what_does_not_store_for_receivers_has_no_wishes(kind: str) -> None:
    assert refusal(kind, deadletter="d").startswith(
        "only a queue, topic, subscription or deadletter has the attribute deadletter"
    )


def test_a_slow_policy_is_one_that_there_is() -> None:
    assert "'wait' is no slow policy; there are block, drop-oldest, spill" in refusal("topic", slowPolicy="wait")


@pytest.mark.parametrize(("kind", "policy"), [("multicast", "spill"), ("topic", "drop")])
def test_a_slow_policy_fits_the_type(kind: str, policy: str) -> None:
    assert f"a {kind} takes as its slow policy one of block, " in refusal(kind, slowPolicy=policy)


def test_a_multiplier_may_be_a_whole_number() -> None:
    assert settings_of(made(redeliveryDelayMultiplier=2)).redelivery_delay_multiplier == 2.0


def test_a_space_may_have_a_limit() -> None:
    assert checked(SPACE_TYPE, "ns/shop", {"maxBytes": 5})["maxBytes"] == 5
    with pytest.raises(EntityError, match="attribute maxBytes takes a whole number"):
        checked(SPACE_TYPE, "ns/shop", {"maxBytes": -5})


# Spaces


def space_refusal(**attributes: Any) -> str:
    with pytest.raises(EntityError) as caught:
        checked(SPACE_TYPE, "ns/shop", attributes)
    assert caught.value.status == 400
    return caught.value.description


def test_hosts_are_kept_in_lower_case_and_once() -> None:
    record = checked(SPACE_TYPE, "ns/shop", {"hosts": ["MQ.Example.org", "mq.example.org", "b.example.org"]})
    assert record["hosts"] == ["mq.example.org", "b.example.org"]


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"hosts": "mq.example.org"}, "hosts takes a list of strings"),
        ({"hosts": ["mq.example.org:5671"]}, "has a port"),
        ({"hosts": [5]}, "expected a host name, got 5"),
        ({"hosts": [""]}, "it has no domain"),
        ({"hosts": ["x" * 254]}, "it has no domain"),
        ({"hosts": ["mq.example.org", "localhost"]}, "expected a host name of the space alone"),
        ({"hosts": ["127.0.0.1"]}, "an IP address"),
        ({"hosts": ["*"]}, "a wildcard"),
        ({"hosts": ["mq.example.org."]}, "ends with a dot"),
        ({"hosts": [f"h{number}" for number in range(65)]}, "at most 64 names, not 65"),
        ({"port": 70_000}, "port takes at most 65535, not 70000"),
        ({"port": -1}, "port takes a whole number from 0 on"),
        ({"maxConnections": "many"}, "maxConnections takes a whole number from 0 on, not 'many'"),
        ({"maxMessageRate": 1.5}, "maxMessageRate takes a whole number from 0 on"),
        ({"maxTtl": MAX_MS + 1}, "maxTtl takes at most"),
        ({"spaceType": "huge"}, "'huge' is no spaceType; there are standard, brokered"),
        ({"authentication": "magic"}, "there are none, standard, external"),
        ({"maxLink": 3}, "io.enmasse.space has no attribute 'maxLink'; it has"),
    ],
)
def test_a_wrong_attribute_of_a_space_is_named(attributes: dict[str, Any], words: str) -> None:
    assert words in space_refusal(**attributes)


def test_limits_that_nobody_has_said_are_none() -> None:
    assert space_limits({"name": "ns/shop"}) == SpaceLimits()


def test_what_is_in_memory_is_bounded_without_a_limit_too() -> None:
    limits = space_limits({"name": "ns/shop", "maxRetained": 0, "maxRetainedBytes": 0, "maxSessions": 0})
    assert limits == SpaceLimits()
    assert 0 not in (limits.retained, limits.retained_bytes, limits.sessions, limits.session_bytes)
    assert 0 not in (limits.filter_addresses, limits.subscriptions, limits.subscription_bytes)
    assert 0 not in (limits.connector_connections, limits.connector_sessions)
    assert 0 not in (limits.connector_unsettled, limits.connector_bytes)


def test_limits_reach_what_keeps_them() -> None:
    words = (
        "maxConnections", "maxDevices", "maxLinks", "maxMessageRate", "maxByteRate", "maxMessageSize", "maxTtl",
        "maxRetained", "maxRetainedBytes", "maxSessions", "maxSessionBytes", "maxSessionExpiry", "willGrace",
        "maxFilterAddresses", "maxSubscriptions", "maxSubscriptionBytes", "maxConnectorConnections",
        "maxConnectorSessions", "maxConnectorUnsettled", "maxConnectorBytes",
    )  # fmt: skip
    record = checked(SPACE_TYPE, "ns/shop", {word: number for number, word in enumerate(words, 1)})
    assert space_limits(record) == SpaceLimits(*range(1, 21))
    of_address = ("maxLinks", "maxSenders", "maxReceivers", "maxMessageRate", "maxByteRate", "maxMessageSize")
    said: dict[str, Any] = {word: number for number, word in enumerate(of_address, 1)}
    assert settings_of(made("queue", **said)) == AddressSettings(
        max_links=1, max_senders=2, max_receivers=3, max_message_rate=4, max_byte_rate=5, max_message_size=6
    )
